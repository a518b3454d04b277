/*
 * A log after a failed force: it is opened by what the disk has, not by what the page cache shows, and from then on both
 * are the same. On a disk that a test makes sick (sickdisk.h), and by reads past the cache alone.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/logkit.h"
#include "tests/sickdisk.h"
#include "tests/unit.h"
#include "worker/direct.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

static const enum record_format formats[] = { RECORD_PLAIN, RECORD_CRC32C };
enum { FORMATS = 2, RECORD_BYTES = 700 };	/* more than a block */

static struct logkit kit;
static char path[LOGKIT_PATH_BYTES];

/* ---- reads past the cache ---- */

static int
open_direct(void)
{
	int dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int fd = direct_open(dir_fd, 0);

	close(dir_fd);
	return fd;
}

/* A file of `bytes` random bytes as segment 0; returns them, or NULL where nothing can be read past the cache. */
static uint8_t *
begin_direct(size_t bytes, int *fd)
{
	uint32_t state = unit_seed();
	uint8_t *content = malloc(bytes + 1);

	for (size_t i = 0; i < bytes; i++)
		content[i] = (uint8_t)unit_random(&state);
	logkit_begin(&kit, RECORD_CRC32C, 1 << 24);
	logkit_open(&kit);
	logkit_close(&kit);
	logkit_segment_path(&kit, 0, path);
	logkit_write_file(path, content, bytes);
	*fd = open_direct();
	if (*fd != -1)
		return content;
	ck_assert_int_eq(errno, EOPNOTSUPP);
	printf("no reads past the page cache below TMPDIR: skipped\n");
	free(content);
	logkit_end(&kit);
	return NULL;
}

/* `_i`: what happens to one of the reads. */
START_TEST(direct_reads_need_no_alignment)
{
	enum { BYTES = 3 * 1024 * 1024 + 777 };
	const int faults[] = { 0, EINTR, LOGKIT_SHORT };
	uint32_t state = unit_seed();
	uint8_t *content, *to = malloc(BYTES + 1);
	int fd;

	content = begin_direct(BYTES, &fd);
	for (int i = 0; content != NULL && i < 200; i++) {
		int64_t position = unit_random(&state) % (BYTES + 100);
		size_t wanted = unit_random(&state) % (i % 10 == 0 ? BYTES : 10000);
		size_t there = position >= BYTES ? 0 : (size_t)(BYTES - position) < wanted ? (size_t)(BYTES - position) : wanted;
		ssize_t n;

		if (faults[_i] != 0)
			logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1 + i % 2, .error = faults[_i] });
		/* One that was cut short is made good, or it is an error and can be tried again. */
		n = direct_read(fd, to, wanted, position);
		if (n == -1 && faults[_i] == LOGKIT_SHORT && errno == EIO)
			n = direct_read(fd, to, wanted, position);
		ck_assert_int_eq(n, there);
		ck_assert(there == 0 || memcmp(to, content + position, there) == 0);
	}
	if (content != NULL) {
		close(fd);
		logkit_end(&kit);
	}
	free(content);
	free(to);
}
END_TEST

static ssize_t (*real_pread)(int fd, void *to, size_t bytes, off_t position);

/* Reads where all of `to` is in memory already. */
static ssize_t
pread_into_pages(int fd, void *to, size_t bytes, off_t position)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE), pages = (bytes + page_bytes - 1) / page_bytes;
	unsigned char *there = malloc(pages);

	ck_assert_int_eq(mincore(to, bytes, there), 0);
	for (size_t i = 0; i < pages; i++)
		ck_assert_msg((there[i] & 1) != 0, "page %zu of %zu", i, pages);
	free(there);
	return real_pread(fd, to, bytes, position);
}

/* On btrfs what goes to memory that has no pages yet comes from the cache. */
START_TEST(bug_B3_direct_reads_go_to_memory_that_is_there)
{
	enum { BYTES = 3 * 1024 * 1024 };
	uint8_t *content, *to = malloc(BYTES);
	int fd;

	content = begin_direct(BYTES, &fd);
	if (content != NULL) {
		real_pread = syscalls.pread;
		syscalls.pread = pread_into_pages;
		ck_assert_int_eq(direct_read(fd, to, BYTES, 0), BYTES);
		syscalls.pread = real_pread;
		close(fd);
		logkit_end(&kit);
	}
	free(content);
	free(to);
}
END_TEST

/* What would look like the end of the file, where a log is cut, must not come of a read that was cut short. */
START_TEST(a_short_direct_read_is_no_end)
{
	uint8_t to[100];
	uint8_t *content;
	int fd;

	content = begin_direct(100000, &fd);
	if (content == NULL)
		return;
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = LOGKIT_SHORT });
	ck_assert_int_eq(direct_read(fd, to, 100, 60000), -1);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(direct_read(fd, to, 100, 60000), 100);
	ck_assert_int_eq(direct_read(fd, to, 100, 99950), 50);
	ck_assert_int_eq(direct_read(fd, to, 100, 100000), 0);
	ck_assert_int_eq(direct_read(fd, to, 100, 1000000), 0);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = EIO });
	ck_assert_int_eq(direct_read(fd, to, 100, 0), -1);
	ck_assert_int_eq(errno, EIO);
	close(fd);
	/* Found out at the first read only. */
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = EINVAL });
	ck_assert_int_eq(open_direct(), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 1, .error = EINVAL });
	ck_assert_int_eq(open_direct(), -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	logkit_clear_fault();
	free(content);
	logkit_end(&kit);
}
END_TEST

static bool through_the_cache;

int __real_statx(int dir_fd, const char *name, int flags, unsigned mask, struct statx *st);
int __wrap_statx(int dir_fd, const char *name, int flags, unsigned mask, struct statx *st);

int
__wrap_statx(int dir_fd, const char *name, int flags, unsigned mask, struct statx *st)
{
	int done = __real_statx(dir_fd, name, flags, mask, st);

	if (through_the_cache) {
		st->stx_mask |= STATX_DIOALIGN;
		st->stx_dio_offset_align = 0;
	}
	return done;
}

/* As ext4 does with data=journal. */
START_TEST(a_file_system_that_takes_the_flag_and_reads_its_cache)
{
	uint8_t *content;
	int fd;

	content = begin_direct(100, &fd);
	if (content == NULL)
		return;
	close(fd);
	free(content);
	through_the_cache = true;
	fd = open_direct();
	through_the_cache = false;
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(errno, EOPNOTSUPP);
	logkit_end(&kit);
}
END_TEST

/* ---- a sick disk ---- */

/* `_i`: format and write mode, where there are both. */
static bool
begin_sick(enum record_format format, int64_t segment_bytes, bool mapped)
{
	logkit_begin(&kit, format, segment_bytes);
	kit.settings.mapped = mapped;
	if (!sickdisk_begin(unit_seed())) {
		printf("no reads past the page cache below TMPDIR: skipped\n");
		logkit_end(&kit);
		return false;
	}
	logkit_open(&kit);
	logkit_segment_path(&kit, 0, path);
	return true;
}

static void
end_sick(void)
{
	logkit_close(&kit);
	sickdisk_end();
	logkit_end(&kit);
}

/* The force of five records works, that of five more fails. */
static void
fail_with_ten(struct sickdisk how)
{
	logkit_append(&kit, 5, RECORD_BYTES);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_append(&kit, 5, RECORD_BYTES);
	sickdisk_set(how);
	ck_assert_int_eq(logkit_barrier(&kit), -1);
	ck_assert(partition_failed(kit.p));
	sickdisk_set((struct sickdisk){ 0 });
	logkit_close(&kit);
}

static void
know(int64_t published_end, bool failed)
{
	kit.known = (struct partition_known){ .published_end = published_end, .from_disk = true, .failed = failed };
}

/* The log cannot be opened, but be read up to the offset that is known to be forced. Returns why. */
static const char *
refused_but_readable(int64_t durable_end, size_t size)
{
	kit.known.shown_end = durable_end + 3;
	partition_open(kit.data_fd, "t-0", &kit.settings, &kit.known, &kit.opened);
	kit.p = kit.opened.partition;
	ck_assert_ptr_nonnull(kit.p);
	ck_assert(kit.opened.failed && partition_failed(kit.p));
	ck_assert_int_eq(partition_durable_end(kit.p), durable_end);
	ck_assert_int_eq(partition_visible_end(kit.p), durable_end + 3);
	logkit_expect(&kit, 0, durable_end, size);
	logkit_expect_broken(&kit, durable_end, durable_end + 4);
	ck_assert_int_eq(logkit_try_append(&kit, 1, size), -1);
	logkit_close(&kit);
	return kit.opened.why;
}

/* Behind a recovery cache and disk are the same, and behind a power cut, too. */
static void
expect_settled(void)
{
	int64_t bytes = logkit_file_bytes(path);

	ck_assert(sickdisk_same(path, 0, bytes, false));
	ck_assert(sickdisk_same(path, 0, bytes, true));
}

START_TEST(bug_B3_the_cache_is_not_believed)
{
	int fd;

	if (!begin_sick(formats[_i % FORMATS], 1 << 16, _i / FORMATS > 0))
		return;
	fail_with_ten((struct sickdisk){ .lost_blocks = 1000 });
	/* That is how one would be taken in. */
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(syscalls.fdatasync(fd), 0);
	close(fd);
	ck_assert(!sickdisk_same(path, 0, logkit_file_bytes(path), false));
	know(5, true);
	logkit_open(&kit);
	/* The block that the fifth record ends in had been written before; what stood behind is zeros. */
	ck_assert_int_eq(partition_log_end(kit.p), 5);
	ck_assert_int_eq(partition_durable_end(kit.p), 5);
	expect_settled();
	logkit_append(&kit, 5, RECORD_BYTES);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_close(&kit);
	sickdisk_cut_power(path);
	kit.known = (struct partition_known){ .published_end = 10 };
	logkit_open(&kit);
	logkit_expect(&kit, 0, 10, RECORD_BYTES);
	end_sick();
}
END_TEST

START_TEST(what_a_failed_flush_made_the_disk_forget_is_written_again)
{
	if (!begin_sick(formats[_i % FORMATS], 1 << 16, _i / FORMATS > 0))
		return;
	fail_with_ten((struct sickdisk){ .lost_flushes = 1000 });
	ck_assert(sickdisk_same(path, 0, logkit_file_bytes(path), false));
	ck_assert(!sickdisk_same(path, 0, logkit_file_bytes(path), true));
	know(5, true);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 10);
	expect_settled();
	logkit_expect(&kit, 0, 10, RECORD_BYTES);
	end_sick();
}
END_TEST

/* Lengths are all that plain has: a record whose middle is lost stays a record, and must not change later. */
START_TEST(what_readers_see_is_what_the_disk_has)
{
	int64_t end;

	if (!begin_sick(RECORD_PLAIN, 1 << 18, false))
		return;
	logkit_append(&kit, 40, 3000);
	sickdisk_set((struct sickdisk){ .lost_blocks = 30 });
	sickdisk_write_back(path);
	logkit_close(&kit);
	sickdisk_set((struct sickdisk){ 0 });
	if (sickdisk_same(path, 0, 40 * 3004, false))
		printf("nothing was lost with this seed\n");
	/* `_i`: a force has failed; or the broker was started anew and nobody knows. The first read tells of it once. */
	know(_i == 0 ? 0 : -1, _i == 0);
	partition_open(kit.data_fd, "t-0", &kit.settings, &kit.known, &kit.opened);
	if (kit.opened.partition == NULL) {
		ck_assert(kit.opened.failed);
		logkit_open(&kit);
	}
	kit.p = kit.opened.partition;
	end = partition_log_end(kit.p);
	ck_assert_int_eq(logkit_file_bytes(path), end * 3004);
	ck_assert(sickdisk_same(path, 0, end * 3004, true));
	end_sick();
}
END_TEST

/*
 * Nobody has been told yet of what is lost: the first who reads there is. `_i`: a force has failed, or nobody has seen how it
 * ended; and the write mode.
 */
START_TEST(bug_B3_what_was_forced_is_read_though_the_disk_tells_of_its_loss_first)
{
	enum { FORCED = 30, BYTES = 3000 };	/* more than the first read asks for */

	if (!begin_sick(RECORD_CRC32C, 1 << 18, _i / 2 > 0))
		return;
	logkit_append(&kit, FORCED, BYTES);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_append(&kit, 20, BYTES);
	logkit_close(&kit);
	sickdisk_set((struct sickdisk){ .lost_blocks = 1000 });
	know(FORCED, _i % 2 == 0);
	ck_assert_ptr_nonnull(strstr(refused_but_readable(FORCED, BYTES), ".log: cannot read: "));
	sickdisk_set((struct sickdisk){ 0 });
	know(FORCED, true);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), FORCED);
	logkit_expect(&kit, 0, FORCED, BYTES);
	expect_settled();
	end_sick();
}
END_TEST

START_TEST(less_than_was_forced_stays_closed_and_untouched)
{
	size_t bytes;
	uint8_t *before, *after;

	if (!begin_sick(formats[_i % FORMATS], 1 << 16, _i / FORMATS > 0))
		return;
	fail_with_ten((struct sickdisk){ .lost_blocks = 1000 });
	know(7, true);
	for (int i = 0; i < 3; i++) {
		before = logkit_read_file(path, &bytes);
		ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "ends at offset 5, but 7 had been forced to disk"));
		after = logkit_read_file(path, &bytes);
		if (!kit.settings.mapped)
			ck_assert_uint_eq(bytes, 10 * (record_header_bytes(kit.settings.record_format) + RECORD_BYTES));
		ck_assert_mem_eq(before, after, bytes);
		free(before);
		free(after);
	}
	ck_assert_int_eq(logkit_count_files(&kit, ""), 1);
	end_sick();
}
END_TEST

/* Everything that had been written is on the disk; but it takes nothing more. */
START_TEST(a_disk_that_takes_nothing_new_is_not_used)
{
	struct sickdisk sick[] = { { .no_new_files = 1000 }, { .lost_names = 1000 }, { .lost_blocks = 1000 },
		{ .lost_flushes = 1000 } };

	if (!begin_sick(RECORD_CRC32C, 1 << 16, false))
		return;
	logkit_append(&kit, 5, RECORD_BYTES);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_close(&kit);
	know(5, true);
	sickdisk_set(sick[_i]);
	for (int i = 0; i < 3; i++) {
		refused_but_readable(5, RECORD_BYTES);
		ck_assert_int_eq(logkit_count_files(&kit, ""), 1);
	}
	sickdisk_set((struct sickdisk){ 0 });
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 5);
	expect_settled();
	end_sick();
}
END_TEST

/*
 * A roll that could not be undone has left segments behind what is known to be forced: nothing of them is shown. `_i`:
 * up to where.
 */
START_TEST(what_nobody_was_told_of_is_not_read_in_sealed_segments)
{
	struct partition_place place;

	if (!begin_sick(RECORD_CRC32C, 4 * (8 + RECORD_BYTES), false))
		return;
	logkit_append(&kit, 9, RECORD_BYTES);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_close(&kit);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 3);
	know(_i, true);
	sickdisk_set((struct sickdisk){ .no_new_files = 1000 });
	refused_but_readable(_i, RECORD_BYTES);
	for (int offset = 0; offset < _i; offset++) {
		partition_open(kit.data_fd, "t-0", &kit.settings, &kit.known, &kit.opened);
		kit.p = kit.opened.partition;
		ck_assert_int_eq(logkit_find(&kit, offset, &place), PARTITION_FOUND);
		ck_assert_int_eq(place.bytes_behind, (_i - offset) * (8 + RECORD_BYTES));
		ck_assert_int_le(place.bytes_in_segment, place.bytes_behind);
		logkit_close(&kit);
	}
	sickdisk_set((struct sickdisk){ 0 });
	logkit_open(&kit);
	logkit_expect(&kit, 0, 9, RECORD_BYTES);
	end_sick();
}
END_TEST

/* `_i`: format; a force has failed, or one was under way. What is known to be forced can be read, whatever fails. */
START_TEST(any_call_of_an_opening_from_the_disk_fails)
{
	bool hit = true;

	for (int at = 1; hit; at++) {
		logkit_begin(&kit, formats[_i % FORMATS], 1 << 16);
		logkit_open(&kit);
		logkit_append(&kit, 10, RECORD_BYTES);
		logkit_close(&kit);
		logkit_remove_index(&kit, 0);
		know(8, _i / FORMATS == 0);
		kit.known.shown_end = 8;
		logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = EIO });
		partition_open(kit.data_fd, "t-0", &kit.settings, &kit.known, &kit.opened);
		hit = logkit_fault_hit();
		logkit_clear_fault();
		kit.p = kit.opened.partition;
		ck_assert(hit || (kit.p != NULL && !partition_failed(kit.p)));
		if (kit.p != NULL && partition_failed(kit.p)) {
			ck_assert(kit.opened.failed);
			ck_assert_int_eq(partition_durable_end(kit.p), 8);
			logkit_expect(&kit, 0, 8, RECORD_BYTES);
		}
		logkit_reopen(&kit);
		ck_assert(!partition_failed(kit.p));
		ck_assert_int_eq(partition_log_end(kit.p), 10);
		logkit_expect(&kit, 0, 10, RECORD_BYTES);
		logkit_end(&kit);
	}
}
END_TEST

/* More than is written at once: three pieces, beside what tries the disk and what wipes the last block. */
START_TEST(much_that_no_force_has_confirmed_is_written_again)
{
	uint8_t *content;
	int fd;

	content = begin_direct(100, &fd);
	if (content == NULL)
		return;
	close(fd);
	free(content);
	logkit_write_file(path, "", 0);
	logkit_open(&kit);
	logkit_append(&kit, 25, 100000);
	logkit_close(&kit);
	know(0, true);
	logkit_set_fault((struct logkit_fault){ 0 });
	logkit_open(&kit);
	ck_assert_int_eq(logkit_calls(CALL_PWRITE), 5);
	ck_assert_int_eq(partition_log_end(kit.p), 25);
	logkit_expect(&kit, 0, 25, 100000);
	logkit_end(&kit);
}
END_TEST

static int (*below_open)(int dir_fd, const char *name, int flags, mode_t mode);

/* The first file that is made is the one that tries the disk: then somebody cuts the log to seven records. */
static int
cutting_open(int dir_fd, const char *name, int flags, mode_t mode)
{
	if ((flags & O_CREAT) != 0)
		logkit_truncate(path, 7 * (8 + RECORD_BYTES));
	return below_open(dir_fd, name, flags, mode);
}

START_TEST(a_log_that_is_cut_while_it_is_renewed)
{
	if (!begin_sick(RECORD_CRC32C, 1 << 16, false))
		return;
	logkit_append(&kit, 10, RECORD_BYTES);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_close(&kit);
	logkit_remove_index(&kit, 0);
	know(5, true);
	below_open = syscalls.open;
	syscalls.open = cutting_open;
	ck_assert_ptr_nonnull(strstr(refused_but_readable(5, RECORD_BYTES), "cannot write once more"));
	syscalls.open = below_open;
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 7);
	logkit_expect(&kit, 0, 7, RECORD_BYTES);
	end_sick();
}
END_TEST

/* The log cannot be opened; nor is it shown, when it cannot be read where what was forced ends: in the active segment, or a sealed
 * one. `_i`: which, and what fails there. */
START_TEST(what_was_forced_and_cannot_be_read_is_not_shown)
{
	static const struct { int records, forced, call; } where[] = { { 3, 2, CALL_PREAD }, { 9, 2, CALL_OPEN },
		{ 9, 2, CALL_PREAD } };
	int count;

	if (!begin_sick(RECORD_CRC32C, 4 * (8 + RECORD_BYTES), false))
		return;
	logkit_append(&kit, where[_i].records, RECORD_BYTES);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_close(&kit);
	know(where[_i].forced, true);
	sickdisk_set((struct sickdisk){ .no_new_files = 1000 });
	logkit_set_fault((struct logkit_fault){ 0 });
	partition_open(kit.data_fd, "t-0", &kit.settings, &kit.known, &kit.opened);
	ck_assert_ptr_nonnull(kit.opened.partition);
	partition_close(kit.opened.partition);
	count = logkit_calls((enum logkit_call)where[_i].call);
	logkit_set_fault((struct logkit_fault){ .call = where[_i].call, .at = count, .error = EIO });
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), strerror(ENOSPC)));
	ck_assert(logkit_fault_hit() && kit.opened.failed);
	sickdisk_set((struct sickdisk){ 0 });
	logkit_open(&kit);
	logkit_expect(&kit, 0, where[_i].records, RECORD_BYTES);
	end_sick();
}
END_TEST

static int (*real_unlink)(int dir_fd, const char *name);
static bool tried;	/* the disk has been: what had to be found in the log has been */

static int
unlink_tried(int dir_fd, const char *name)
{
	tried = true;
	return real_unlink(dir_fd, name);
}

/* Behind the fifth record the disk has zeros; the first reads there were from the cache. */
static ssize_t
pread_once_from_the_cache(int fd, void *to, size_t bytes, off_t position)
{
	ssize_t n = real_pread(fd, to, bytes, position);
	off_t forced = 5 * (ssize_t)(record_header_bytes(kit.settings.record_format) + RECORD_BYTES);

	if (tried && (fcntl(fd, F_GETFL) & O_DIRECT) != 0 && position + n > forced)
		memset((uint8_t *)to + (forced - position), 0, (size_t)(position + n - forced));
	return n;
}

START_TEST(bug_B3_what_is_written_once_more_is_what_was_found)
{
	if (!begin_sick(formats[_i % FORMATS], 1 << 16, _i / FORMATS > 0))
		return;
	fail_with_ten((struct sickdisk){ .lost_flushes = 1000 });
	know(5, true);
	tried = false;
	real_unlink = syscalls.unlink;
	real_pread = syscalls.pread;
	syscalls.unlink = unlink_tried;
	syscalls.pread = pread_once_from_the_cache;
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "cannot write once more"));
	ck_assert(kit.opened.failed);
	logkit_open(&kit);
	syscalls.unlink = real_unlink;
	syscalls.pread = real_pread;
	ck_assert_int_eq(partition_log_end(kit.p), 5);
	logkit_append(&kit, 5, RECORD_BYTES);
	logkit_expect(&kit, 0, 10, RECORD_BYTES);
	end_sick();
}
END_TEST

START_TEST(the_directory_gets_something_to_force)
{
	if (!begin_sick(RECORD_CRC32C, 1 << 16, false))
		return;
	fail_with_ten((struct sickdisk){ .lost_blocks = 1000 });
	know(5, true);
	logkit_trace_begin();
	logkit_open(&kit);
	ck_assert_str_eq(logkit_trace(), "create 00000000000000000000.log.tmp;write 00000000000000000000.log.tmp;"
	    "force 00000000000000000000.log.tmp;unlink 00000000000000000000.log.tmp;truncate 00000000000000000000.log;"
	    "force 00000000000000000000.log;write 00000000000000000000.log;truncate 00000000000000000000.log;"
	    "force 00000000000000000000.log;fsync t-0;");
	end_sick();
}
END_TEST

/* What stands behind the end in its last block is cut in the cache; that this reaches the disk is tried until it does. */
START_TEST(a_cut_that_failed_leaves_nothing_behind_the_end)
{
	int64_t bytes;
	int fd;

	if (!begin_sick(RECORD_CRC32C, 1 << 16, false))
		return;
	logkit_append(&kit, 10, RECORD_BYTES);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_close(&kit);
	logkit_flip(path, 9 * (8 + RECORD_BYTES) + 20);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(syscalls.pwrite(fd, "x", 1, 9 * (8 + RECORD_BYTES) + 20), 1);
	ck_assert_int_eq(syscalls.fdatasync(fd), 0);
	/* Nine whole records, and a bad one that ends the log. Its cut fails. */
	know(9, true);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FTRUNCATE, .at = 1, .error = EIO });
	refused_but_readable(9, RECORD_BYTES);
	bytes = 9 * (8 + RECORD_BYTES);
	ck_assert_int_eq(syscalls.ftruncate(fd, bytes), 0);
	sickdisk_set((struct sickdisk){ .lost_blocks = 1000 });
	ck_assert_int_eq(syscalls.fdatasync(fd), -1);
	sickdisk_set((struct sickdisk){ 0 });
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 9);
	ck_assert_int_eq(syscalls.ftruncate(fd, bytes + 4096), 0);
	ck_assert(sickdisk_same(path, 0, bytes + 4096, true));
	close(fd);
	end_sick();
}
END_TEST

/* ---- without reads past the cache ---- */

/* In memory it would be opened: the next test. */
START_TEST(without_direct_reads_a_failed_log_is_only_read)
{
	if (!begin_sick(RECORD_CRC32C, 1 << 16, false))
		return;
	if (!direct_has_disk(kit.data_fd)) {
		printf("the files of this test are on no disk: skipped\n");
		end_sick();
		return;
	}
	fail_with_ten((struct sickdisk){ .lost_blocks = 1000 });
	sickdisk_set((struct sickdisk){ .cached_only = true });
	know(5, true);
	ck_assert_ptr_nonnull(strstr(refused_but_readable(5, RECORD_BYTES), "unmount the file system and mount it again"));
	/* Where nothing is known to have failed there is no better way. */
	know(-1, false);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 10);
	end_sick();
}
END_TEST

START_TEST(in_memory_there_is_nothing_behind_the_cache)
{
	if (access("/dev/shm", W_OK) != 0)
		return;
	setenv("TMPDIR", "/dev/shm", 1);
	logkit_begin(&kit, RECORD_CRC32C, 1 << 16);
	if (direct_has_disk(kit.data_fd)) {
		printf("/dev/shm is no tmpfs: skipped\n");
		logkit_end(&kit);
		return;
	}
	logkit_open(&kit);
	logkit_append(&kit, 5, 100);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FDATASYNC, .at = 1, .error = EIO });
	ck_assert_int_eq(logkit_barrier(&kit), -1);
	logkit_close(&kit);
	know(0, true);
	/* `_i`: with and without direct reads, which some kernels have there. The third call opens the file for them. */
	if (_i == 1)
		logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 4, .error = EINVAL });
	logkit_open(&kit);
	ck_assert(_i == 0 || logkit_fault_hit());
	ck_assert_int_eq(partition_log_end(kit.p), 5);
	logkit_expect(&kit, 0, 5, 100);
	logkit_end(&kit);
}
END_TEST

/* ---- lives on a sick disk ---- */

enum { LIVES = 60, STEPS = 60, OFFSETS_MAX = 4000, SMALL_SEGMENT_BYTES = 24 * 1024 };

/* What was appended at each offset: the log that gave it out may have lost it, and then another record gets it. */
static int64_t given[OFFSETS_MAX];
static int64_t next_given;

static size_t
size_given(int64_t as)
{
	return 1 + (size_t)((uint64_t)as * 2654435761u >> 7) % 2500;
}

static bool
make_room(size_t bytes)
{
	if (partition_fit(kit.p, (int64_t)bytes) == PARTITION_ROLL && logkit_roll(&kit, NULL, 0, 0) == -1)
		return false;
	return partition_fit(kit.p, (int64_t)bytes) != PARTITION_AHEAD || logkit_upkeep(&kit, (int64_t)bytes) == 0;
}

static void
append_given(void)
{
	int64_t end = partition_log_end(kit.p);
	size_t bytes;
	uint8_t *record = logkit_batch(kit.settings.record_format, next_given, 1, size_given(next_given), &bytes);

	ck_assert_int_lt(end, OFFSETS_MAX);
	if (make_room(bytes) && partition_append(kit.p, record, bytes, 1) == 0)
		given[end] = next_given;
	next_given++;
	free(record);
}

static void
expect_given(int64_t end)
{
	for (int64_t i = 0; i < end; i++)
		logkit_expect_as(&kit, i, given[i], size_given(given[i]));
}

static void
for_each_segment(void (*what)(int64_t bytes))
{
	for (int64_t base = 0; base <= partition_log_end(kit.p); base++) {
		logkit_segment_path(&kit, base, path);
		if (logkit_file_bytes(path) != -1)
			what(logkit_file_bytes(path));
	}
}

static void
expect_same(int64_t bytes)
{
	ck_assert(sickdisk_same(path, 0, bytes, true));
}

/* Opens the failed log; what cannot be opened can be read as far as it is known to be forced, unless reading fails. */
static bool
try_to_open(void)
{
	partition_open(kit.data_fd, "t-0", &kit.settings, &kit.known, &kit.opened);
	kit.p = kit.opened.partition;
	ck_assert_msg(kit.p != NULL || kit.opened.failed, "%s", kit.opened.why);
	if (kit.p == NULL || !partition_failed(kit.p))
		return kit.p != NULL;
	ck_assert_int_ge(partition_durable_end(kit.p), kit.known.published_end);
	ck_assert_int_eq(partition_visible_end(kit.p), kit.known.shown_end);
	expect_given(partition_durable_end(kit.p));
	logkit_expect_broken(&kit, partition_durable_end(kit.p), kit.known.shown_end);
	logkit_close(&kit);
	return false;
}

/* The disk heals meanwhile. */
static void
come_back(uint32_t *state)
{
	int64_t shown_end = partition_visible_end(kit.p);

	know(partition_durable_end(kit.p), true);
	kit.known.shown_end = shown_end;
	logkit_close(&kit);
	for (int tries = 0; !try_to_open(); tries++) {
		if (unit_random(state) % 4 == 0 || tries > 20)
			sickdisk_set((struct sickdisk){ 0 });
		ck_assert_int_lt(tries, 40);
	}
	ck_assert_int_ge(partition_log_end(kit.p), kit.known.published_end);
	expect_given(partition_log_end(kit.p));
	for_each_segment(expect_same);
}

static void
live(uint32_t *state)
{
	for (int step = 0; step < STEPS; step++) {
		switch (unit_random(state) % 8) {
		case 0:
			sickdisk_set((struct sickdisk){ .lost_blocks = unit_random(state) % 3 * 100,
			    .lost_flushes = unit_random(state) % 3 * 200, .no_new_files = unit_random(state) % 2 * 200,
			    .lost_names = unit_random(state) % 2 * 200 });
			break;
		case 1:
			sickdisk_set((struct sickdisk){ 0 });
			break;
		case 2:
			logkit_barrier(&kit);
			break;
		default:
			for (int i = 0; i < 5 && !partition_failed(kit.p); i++)
				append_given();
			break;
		}
		if (partition_failed(kit.p))
			come_back(state);
	}
}

START_TEST(bug_B3_what_was_forced_outlives_a_sick_disk)
{
	uint32_t state = unit_seed() + (uint32_t)_i;

	if (!begin_sick(RECORD_CRC32C, SMALL_SEGMENT_BYTES, _i % 2 == 1))
		return;
	next_given = 0;
	live(&state);
	/* At the end the power fails, behind a last barrier. */
	sickdisk_set((struct sickdisk){ 0 });
	if (logkit_barrier(&kit) == -1)
		come_back(&state);
	for_each_segment(expect_same);
	expect_given(partition_log_end(kit.p));
	end_sick();
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("failed");
	TCase *tests = tcase_create("failed");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	suite_add_tcase(suite, tests);
	tcase_add_loop_test(tests, direct_reads_need_no_alignment, 0, 3);
	tcase_add_test(tests, bug_B3_direct_reads_go_to_memory_that_is_there);
	tcase_add_test(tests, a_short_direct_read_is_no_end);
	tcase_add_test(tests, a_file_system_that_takes_the_flag_and_reads_its_cache);
	tcase_add_loop_test(tests, bug_B3_the_cache_is_not_believed, 0, 2 * FORMATS);
	tcase_add_loop_test(tests, what_a_failed_flush_made_the_disk_forget_is_written_again, 0, 2 * FORMATS);
	tcase_add_loop_test(tests, what_readers_see_is_what_the_disk_has, 0, 2);
	tcase_add_loop_test(tests, bug_B3_what_was_forced_is_read_though_the_disk_tells_of_its_loss_first, 0, 4);
	tcase_add_loop_test(tests, less_than_was_forced_stays_closed_and_untouched, 0, 2 * FORMATS);
	tcase_add_loop_test(tests, a_disk_that_takes_nothing_new_is_not_used, 0, 4);
	tcase_add_loop_test(tests, what_nobody_was_told_of_is_not_read_in_sealed_segments, 0, 10);
	tcase_add_loop_test(tests, any_call_of_an_opening_from_the_disk_fails, 0, 2 * FORMATS);
	tcase_add_test(tests, much_that_no_force_has_confirmed_is_written_again);
	tcase_add_test(tests, a_log_that_is_cut_while_it_is_renewed);
	tcase_add_loop_test(tests, what_was_forced_and_cannot_be_read_is_not_shown, 0, 3);
	tcase_add_loop_test(tests, bug_B3_what_is_written_once_more_is_what_was_found, 0, 2 * FORMATS);
	tcase_add_test(tests, the_directory_gets_something_to_force);
	tcase_add_test(tests, a_cut_that_failed_leaves_nothing_behind_the_end);
	tcase_add_test(tests, without_direct_reads_a_failed_log_is_only_read);
	tcase_add_loop_test(tests, in_memory_there_is_nothing_behind_the_cache, 0, 2);
	tcase_add_loop_test(tests, bug_B3_what_was_forced_outlives_a_sick_disk, 0, (LIVES + unit_sample() - 1) / unit_sample());
	return unit_run(suite);
}
