/*
 * What is special about write_mode = mapped: how much is allocated and when, what becomes of a disk that is full, of a file
 * that is cut under our hands and of a mapping that cannot be had, what a process leaves that dies in the middle of a
 * write, and changing the mode. (What both modes have in common is in test_partition and its sisters, run in both.)
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/segment.h"
#include "worker/store.h"
#include "worker/syscalls.h"

enum { KIB = 1024, MIB = 1024 * 1024, FORMATS = 2 };

static const enum record_format formats[FORMATS] = { RECORD_PLAIN, RECORD_CRC32C };

static struct logkit kit;
static char path[LOGKIT_PATH_BYTES];	/* of the first segment */

static int64_t
record_bytes(size_t size)
{
	return (int64_t)(record_header_bytes(kit.settings.record_format) + size);
}

/* An empty log that is open. */
static void
begin(enum record_format format, int64_t segment_bytes)
{
	logkit_begin(&kit, format, segment_bytes);
	logkit_open(&kit);
	logkit_segment_path(&kit, 0, path);
	logkit_set_fault((struct logkit_fault){ 0 });
}

/* Bytes that the file takes on the disk. */
static int64_t
allocated_bytes(const char *file)
{
	struct stat st;

	ck_assert_int_eq(stat(file, &st), 0);
	return (int64_t)st.st_blocks * 512;
}

/* Lines of /proc/self/maps with that in them, of mappings that are written to. */
static int
mappings_of(const char *text)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[2 * LOGKIT_PATH_BYTES];
	int count = 0;

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps) != NULL)
		count += strstr(line, text) != NULL && strstr(line, " rw-s ") != NULL;
	fclose(maps);
	return count;
}

/* ---- how much, and when ---- */

START_TEST(bug_B6_an_empty_partition_takes_no_room)
{
	struct partition_upkeep upkeep;

	begin(RECORD_CRC32C, 512 * MIB);
	for (int round = 0; round < 2; round++) {
		ck_assert_int_eq(logkit_file_bytes(path), 512 * MIB);
		ck_assert_int_eq(allocated_bytes(path), 0);
		ck_assert_int_eq(partition_room(kit.p), 0);
		ck_assert_int_eq(partition_fit(kit.p, 100), PARTITION_AHEAD);
		ck_assert(!partition_upkeep_begin(kit.p, 0, 0, &upkeep));
		logkit_reopen(&kit);
	}
	/* A roll makes another one, and gives back what the first had too much. */
	logkit_append(&kit, 1, 100);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	ck_assert_int_eq(logkit_file_bytes(path), 108);
	ck_assert_int_le(allocated_bytes(path), 4 * KIB);
	logkit_segment_path(&kit, 1, path);
	ck_assert_int_eq(logkit_file_bytes(path), 512 * MIB);
	ck_assert_int_eq(allocated_bytes(path), 0);
	logkit_end(&kit);
}
END_TEST

/* Ahead of the writer there are at least half a stretch, since nothing then waits, and at most two. */
START_TEST(stretches_grow_with_the_segment)
{
	enum { RECORD = 16 * KIB };

	begin(RECORD_CRC32C, 128 * MIB);
	while (partition_size_bytes(kit.p) < 64 * MIB) {
		int64_t bytes = partition_size_bytes(kit.p) + record_bytes(RECORD);
		int64_t stretch = bytes < 64 * KIB ? 64 * KIB : bytes < 16 * MIB ? bytes : 16 * MIB;
		bool first = partition_size_bytes(kit.p) == 0;

		ck_assert_int_eq(partition_fit(kit.p, record_bytes(RECORD)), first ? PARTITION_AHEAD : PARTITION_FITS);
		logkit_append(&kit, 1, RECORD);
		ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
		ck_assert_int_ge(partition_room(kit.p), stretch / 2 - RECORD);
		ck_assert_int_le(partition_room(kit.p), 3 * stretch);
		ck_assert_int_le(allocated_bytes(path), bytes + 3 * stretch + 4 * KIB);
	}
	ck_assert_int_lt(logkit_calls(CALL_FALLOCATE), 20);
	/* The mapping that is written through, and one that the next upkeep unmaps. */
	ck_assert_int_le(mappings_of(kit.path), 2);
	logkit_expect(&kit, 0, partition_log_end(kit.p), RECORD);
	logkit_close(&kit);
	ck_assert_int_eq(mappings_of(kit.path), 0);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_large_batch_gets_all_the_room_it_needs)
{
	begin(formats[_i], 64 * MIB);
	ck_assert_int_eq(logkit_try_append(&kit, 5, 7 * MIB), 0);
	ck_assert_int_eq(logkit_calls(CALL_FALLOCATE), 1);
	ck_assert_int_eq(logkit_try_append(&kit, 3, 7 * MIB), 0);
	ck_assert_int_eq(partition_segments(kit.p), 1);
	/* To its last byte. */
	ck_assert_int_eq(logkit_try_append(&kit, 1, 7 * MIB), 0);
	ck_assert_int_eq(logkit_try_append(&kit, 1, (size_t)(64 * MIB - partition_size_bytes(kit.p) - record_bytes(0))), 0);
	ck_assert_int_eq(partition_segments(kit.p), 1);
	ck_assert_int_eq(partition_size_bytes(kit.p), 64 * MIB);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 9, 7 * MIB);
	ck_assert_int_eq(partition_log_end(kit.p), 10);
	logkit_end(&kit);
}
END_TEST

START_TEST(appends_go_on_while_the_next_stretch_is_made)
{
	struct partition_upkeep upkeep;
	struct partition_barrier barrier;

	begin(RECORD_CRC32C, 16 * MIB);
	logkit_append(&kit, 40, KIB);
	ck_assert(partition_upkeep_begin(kit.p, 0, 0, &upkeep));
	logkit_append(&kit, 5, KIB);
	partition_barrier_begin(kit.p, &barrier);
	partition_upkeep_run(&upkeep);
	logkit_append(&kit, 5, KIB);
	partition_barrier_run(&barrier);
	ck_assert_int_eq(partition_upkeep_finish(kit.p, &upkeep), 0);
	ck_assert_int_eq(partition_barrier_finish(kit.p, &barrier), 0);
	ck_assert_int_eq(partition_durable_end(kit.p), 45);
	ck_assert_int_gt(partition_room(kit.p), 64 * KIB);
	logkit_append(&kit, 60, KIB);
	logkit_expect(&kit, 0, 110, KIB);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 110, KIB);
	logkit_end(&kit);
}
END_TEST

/* Where in its file the first mapping begins that is still there. */
static int64_t
mapped_from(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[2 * LOGKIT_PATH_BYTES];
	int64_t from = INT64_MAX;

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps) != NULL) {
		uint64_t position;

		if (strstr(line, kit.path) == NULL)
			continue;
		ck_assert_int_eq(sscanf(line, "%*s %*s %" SCNx64, &position), 1);
		if ((int64_t)position < from)
			from = (int64_t)position;
	}
	fclose(maps);
	return from;
}

static int64_t written_back_end;

static int
watch_write_back(int fd, off_t position, off_t size, unsigned flags)
{
	(void)fd;
	(void)flags;
	ck_assert_int_eq(position, written_back_end);
	ck_assert_int_ge(size, 8 * MIB);
	written_back_end = position + size;
	ck_assert_int_le(written_back_end, mapped_from());
	return 0;
}

START_TEST(what_is_mapped_is_not_written_back_early)
{
	begin(RECORD_CRC32C, 256 * MIB);
	written_back_end = 0;
	syscalls.sync_file_range = watch_write_back;
	while (partition_size_bytes(kit.p) < 128 * MIB) {
		logkit_append(&kit, 1, 256 * KIB);
		ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
		ck_assert_int_lt(partition_size_bytes(kit.p) - written_back_end, 48 * MIB);
	}
	ck_assert_int_ge(written_back_end, 80 * MIB);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_C3_sealed_and_replaced_segments_are_not_mapped)
{
	begin(RECORD_CRC32C, 64 * KIB);
	logkit_append(&kit, 40, KIB);
	ck_assert_int_ge(mappings_of("t-0/00000000000000000000.log"), 1);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	ck_assert_int_eq(mappings_of(kit.path), 0);
	/* An empty segment, of which a stretch is mapped already, makes way for a batch larger than a segment. */
	ck_assert_int_eq(logkit_upkeep(&kit, KIB), 0);
	ck_assert_int_eq(mappings_of(kit.path), 1);
	ck_assert_int_eq(logkit_try_append(&kit, 100, KIB), 0);
	ck_assert_int_eq(mappings_of(kit.path), 0);
	logkit_append(&kit, 1, KIB);
	ck_assert_int_eq(mappings_of(kit.path), 1);
	ck_assert_int_eq(mappings_of("(deleted)"), 0);
	logkit_expect(&kit, 0, 141, KIB);
	logkit_end(&kit);
}
END_TEST

/* Taking megabytes out of the address space waits for other threads that put some in: that is for the job. */
START_TEST(a_roll_unmaps_in_its_job)
{
	struct partition_roll *roll;
	int mappings;

	begin(RECORD_CRC32C, MIB);
	/* The second stretch has been mapped, and no upkeep has come since to unmap the first. */
	logkit_append(&kit, 50, KIB);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	mappings = mappings_of(kit.path);
	ck_assert_int_eq(mappings, 2);
	roll = partition_roll_begin(kit.p, NULL, 0, 0);
	ck_assert_ptr_nonnull(roll);
	ck_assert_int_eq(mappings_of(kit.path), mappings);
	partition_roll_run(roll);
	ck_assert_int_eq(mappings_of(kit.path), 0);
	ck_assert_int_eq(partition_roll_finish(kit.p, roll), 0);
	logkit_append(&kit, 1, KIB);
	logkit_expect(&kit, 0, 51, KIB);
	logkit_end(&kit);
}
END_TEST

START_TEST(A21_parts_of_a_large_batch_are_exact_and_the_last_has_full_size)
{
	int64_t bases[] = { 5, 14, 23 };

	begin(RECORD_CRC32C, 1000);
	logkit_append(&kit, 5, 100);
	ck_assert_int_eq(logkit_try_append(&kit, 20, 100), 0);
	ck_assert_int_eq(logkit_file_bytes(path), 5 * 108);
	for (int i = 0; i < 3; i++) {
		logkit_segment_path(&kit, bases[i], path);
		ck_assert_int_eq(logkit_file_bytes(path), i < 2 ? 9 * 108 : 1000);
	}
	logkit_append(&kit, 3, 100);
	ck_assert_int_eq(partition_segments(kit.p), 4);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 28, 100);
	logkit_end(&kit);
}
END_TEST

/* ---- a full disk, and other refusals ---- */

static void
expect_not_taken(int error)
{
	int64_t end = partition_log_end(kit.p);

	ck_assert_int_eq(logkit_try_append(&kit, 1, 4 * KIB), -1);
	ck_assert_int_eq(errno, error);
	ck_assert_int_eq(partition_log_end(kit.p), end);
}

/* And nothing is lost. */
static void
expect_refused(int error)
{
	expect_not_taken(error);
	ck_assert(!partition_failed(kit.p));
}

/* Records of 4 KiB until nothing is left of what is allocated. Returns the log's end. */
static int64_t
fill_stretch(void)
{
	while (partition_fit(kit.p, record_bytes(4 * KIB)) == PARTITION_FITS)
		logkit_append(&kit, 1, 4 * KIB);
	return partition_log_end(kit.p);
}

START_TEST(bug_B2_a_full_disk_in_the_middle_of_a_segment)
{
	int64_t end, bytes;

	begin(formats[_i], 16 * MIB);
	logkit_append(&kit, 30, 4 * KIB);
	end = fill_stretch();
	bytes = allocated_bytes(path);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FALLOCATE, .at = 1, .error = ENOSPC, .sticky = true });
	for (int i = 0; i < 3; i++) {
		expect_refused(ENOSPC);
		logkit_expect(&kit, 0, end, 4 * KIB);
	}
	ck_assert_int_eq(logkit_calls(CALL_STORE), 0);
	/* Punching fails here as well: what the disk had left belongs to us. */
	logkit_clear_fault();
	logkit_append(&kit, 1, 4 * KIB);
	logkit_reopen(&kit);
	ck_assert_int_eq(kit.opened.truncated_bytes, 0);
	logkit_expect(&kit, 0, end + 1, 4 * KIB);
	ck_assert_int_gt(allocated_bytes(path), bytes);
	logkit_end(&kit);
}
END_TEST

/* What a full disk had left is given back, or taken in small pieces while there are any. */
START_TEST(a_nearly_full_disk)
{
	int64_t end, bytes;

	begin(formats[_i], 64 * MIB);
	ck_assert_int_eq(logkit_try_append(&kit, 1, 7 * MIB), 0);
	end = fill_stretch();
	bytes = allocated_bytes(path);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FALLOCATE, .at = 1, .error = ENOSPC });
	ck_assert_int_eq(logkit_try_append(&kit, 1, 4 * KIB), 0);
	ck_assert(logkit_fault_hit());
	ck_assert_int_le(allocated_bytes(path), bytes + 16 * KIB);
	/* Nobody waits: no piece is looked for. */
	bytes = allocated_bytes(path);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FALLOCATE, .at = 1, .error = ENOSPC });
	ck_assert_int_eq(logkit_upkeep(&kit, 0), -1);
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_int_eq(logkit_calls(CALL_FALLOCATE), 2);
	ck_assert_int_eq(allocated_bytes(path), bytes);
	logkit_clear_fault();
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_ge(partition_room(kit.p), 7 * MIB);
	logkit_expect(&kit, 1, end + 1, 4 * KIB);
	logkit_end(&kit);
}
END_TEST

static int no_fallocate_error;

static int
no_fallocate(int fd, int mode, off_t position, off_t size)
{
	(void)fd;
	(void)mode;
	(void)position;
	(void)size;
	errno = no_fallocate_error;
	return -1;
}

START_TEST(a_file_system_that_cannot_allocate_gets_zeros)
{
	int64_t end;

	begin(RECORD_CRC32C, MIB);
	no_fallocate_error = _i == 0 ? EOPNOTSUPP : ENOSYS;
	syscalls.fallocate = no_fallocate;
	logkit_append(&kit, 10, 4 * KIB);
	ck_assert_int_gt(logkit_calls(CALL_PWRITE), 0);
	ck_assert_int_ge(allocated_bytes(path), 64 * KIB);
	/* Behind the end of a log that is opened anew, too. */
	logkit_reopen(&kit);
	end = fill_stretch();
	logkit_append(&kit, 10, 4 * KIB);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, end + 10, 4 * KIB);
	/* And when it is full it says so. */
	fill_stretch();
	logkit_set_fault((struct logkit_fault){ .call = CALL_PWRITE, .at = 1, .error = ENOSPC, .sticky = true });
	expect_refused(ENOSPC);
	logkit_clear_fault();
	logkit_append(&kit, 1, 4 * KIB);
	logkit_end(&kit);
}
END_TEST

START_TEST(an_interrupted_allocation_is_tried_again)
{
	begin(RECORD_CRC32C, MIB);
	logkit_set_fault((struct logkit_fault){ .call = _i == 0 ? CALL_FALLOCATE : CALL_MADVISE, .at = 1,
		.error = EINTR });
	logkit_append(&kit, 1, KIB);
	ck_assert(logkit_fault_hit());
	logkit_expect(&kit, 0, 1, KIB);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_mapping_that_cannot_be_had)
{
	const struct { int call, error, says; } refusals[] = { { CALL_MMAP, ENOMEM, ENOMEM }, { CALL_MMAP, ENODEV, ENODEV },
		{ CALL_MADVISE, ENOMEM, ENOMEM }, { CALL_MADVISE, EFAULT, EIO } };
	int64_t end;

	begin(RECORD_CRC32C, MIB);
	for (int first = 1; first >= 0; first--) {
		end = first ? 0 : fill_stretch();
		logkit_set_fault((struct logkit_fault){ .call = refusals[_i].call, .at = 1, .error = refusals[_i].error,
			.sticky = true });
		for (int i = 0; i < 3; i++)
			expect_refused(refusals[_i].says);
		ck_assert_int_eq(mappings_of(kit.path), first ? 0 : 1);
		logkit_clear_fault();
		logkit_append(&kit, 1, 4 * KIB);
		logkit_expect(&kit, 0, end + 1, 4 * KIB);
	}
	logkit_end(&kit);
}
END_TEST

START_TEST(a_kernel_that_cannot_populate_ahead)
{
	begin(RECORD_CRC32C, MIB);
	logkit_set_fault((struct logkit_fault){ .call = CALL_MADVISE, .at = 1, .error = EINVAL, .sticky = true });
	logkit_append(&kit, 60, 4 * KIB);
	logkit_expect(&kit, 0, 60, 4 * KIB);
	logkit_end(&kit);
}
END_TEST

/* ---- files that are cut under our hands ---- */

START_TEST(a_file_cut_behind_the_end_is_mended)
{
	int64_t end;

	begin(RECORD_CRC32C, MIB);
	logkit_append(&kit, 3, 4 * KIB);
	end = partition_size_bytes(kit.p);
	logkit_truncate(path, end);
	expect_refused(EIO);
	logkit_append(&kit, 20, 4 * KIB);
	ck_assert_int_eq(logkit_file_bytes(path), MIB);
	logkit_expect(&kit, 0, 23, 4 * KIB);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 23, 4 * KIB);
	logkit_end(&kit);
}
END_TEST

START_TEST(what_is_allocated_behind_the_end_goes_with_the_seal)
{
	struct stat st;
	int fd;

	begin(RECORD_CRC32C, MIB);
	logkit_append(&kit, 3, 4 * KIB);
	logkit_truncate(path, partition_size_bytes(kit.p));
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, MIB / 2), 0);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	close(fd);
	ck_assert_int_le(st.st_blocks * 512, 64 * KIB);
	logkit_expect(&kit, 0, 3, 4 * KIB);
	logkit_end(&kit);
}
END_TEST

/* In either mode. */
START_TEST(a_file_cut_before_the_end_takes_no_more)
{
	begin(RECORD_CRC32C, MIB);
	kit.settings.mapped = _i == 1;
	logkit_reopen(&kit);
	logkit_append(&kit, 3, 4 * KIB);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_truncate(path, 2 * record_bytes(4 * KIB));
	for (int i = 0; i < 3; i++) {
		expect_not_taken(EIO);
		ck_assert(partition_failed(kit.p));
	}
	ck_assert_int_eq(logkit_file_bytes(path), 2 * record_bytes(4 * KIB));
	logkit_expect(&kit, 0, 2, 4 * KIB);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), -1);
	ck_assert(partition_failed(kit.p));
	logkit_end(&kit);
}
END_TEST

/* Cuts the file between the look at its size and the store, which then meets a page without a file behind it. */
static int
cutting_store(void *to, const void *from, size_t size)
{
	logkit_truncate(path, 0);
	return store_bytes(to, from, size);
}

/* Two at once: the log fails once, and for the force. */
START_TEST(a_stretch_that_cannot_be_had_beside_a_failing_barrier)
{
	struct partition_barrier barrier;
	struct partition_upkeep upkeep;

	begin(RECORD_CRC32C, 16 * MIB);
	logkit_append(&kit, 10, 4 * KIB);
	partition_barrier_begin(kit.p, &barrier);
	ck_assert(partition_upkeep_begin(kit.p, 0, 0, &upkeep));
	logkit_truncate(path, record_bytes(4 * KIB));
	logkit_set_fault((struct logkit_fault){ .call = CALL_FDATASYNC, .at = 1, .error = ENOSPC });
	partition_barrier_run(&barrier);
	partition_upkeep_run(&upkeep);
	ck_assert_int_eq(partition_barrier_finish(kit.p, &barrier), -1);
	ck_assert(partition_failed(kit.p));
	ck_assert_int_eq(partition_upkeep_finish(kit.p, &upkeep), -1);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(partition_durable_end(kit.p), 0);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_store_to_nothing_is_an_error)
{
	begin(RECORD_CRC32C, MIB);
	logkit_append(&kit, 1, 4 * KIB);
	syscalls.store = cutting_store;
	expect_not_taken(EIO);
	syscalls.store = store_bytes;
	expect_not_taken(EIO);
	ck_assert(partition_failed(kit.p));
	logkit_end(&kit);
}
END_TEST

static void
store_length_to_nothing(struct mapping *mapping)
{
	int fd;

	signal(SIGBUS, SIG_DFL);	/* a sanitizer has its own */
	begin(RECORD_CRC32C, MIB);
	fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(mapping_open(mapping, fd, 0, 4 * KIB), 0);
	logkit_truncate(path, 0);
	ck_assert_int_eq(store_length(mapping->bytes, (const uint8_t *)"abcd"), -1);
	ck_assert_int_eq(errno, EIO);
	close(fd);
}

START_TEST(a_length_stored_to_nothing_is_an_error)
{
	struct mapping mapping;

	store_length_to_nothing(&mapping);
	mapping_close(&mapping);
	logkit_end(&kit);
}
END_TEST

/* The guard is for these stores only: any other bus error ends the process. */
START_TEST(any_other_bus_error_ends_the_process)
{
	struct mapping mapping;

	store_length_to_nothing(&mapping);
	*(volatile uint8_t *)mapping.bytes = 1;
	ck_abort_msg("still here");
}
END_TEST

START_TEST(an_append_that_fails_while_the_next_stretch_is_made)
{
	struct partition_upkeep upkeep;
	int moments[] = { 0, 1 };

	for (int i = 0; i < 2; i++) {
		begin(formats[_i], 16 * MIB);
		logkit_append(&kit, 10, 4 * KIB);
		ck_assert(partition_upkeep_begin(kit.p, 0, 0, &upkeep));
		if (moments[i] == 1)
			partition_upkeep_run(&upkeep);
		logkit_set_fault((struct logkit_fault){ .call = CALL_STORE, .at = 1, .error = EIO });
		ck_assert_int_eq(logkit_try_append(&kit, 3, KIB), -1);
		logkit_clear_fault();
		if (moments[i] == 0)
			partition_upkeep_run(&upkeep);
		ck_assert_int_eq(partition_upkeep_finish(kit.p, &upkeep), 0);
		/* What it mapped may have lost its blocks. */
		ck_assert_int_eq(partition_room(kit.p), 0);
		logkit_append(&kit, 30, 4 * KIB);
		logkit_expect(&kit, 0, 40, 4 * KIB);
		logkit_reopen(&kit);
		ck_assert_int_eq(kit.opened.truncated_bytes, 0);
		logkit_expect(&kit, 0, 40, 4 * KIB);
		logkit_end(&kit);
	}
}
END_TEST

/* ---- what a write leaves that was interrupted ---- */

/* Puts a log of `count` records on disk as `content` says, in a file of full size. */
static void
put(const uint8_t *content, size_t bytes)
{
	logkit_write_file(path, content, bytes);
	logkit_truncate(path, kit.settings.segment_bytes);
	logkit_remove_index(&kit, 0);
}

static void
expect_recovered(int64_t end, size_t size, int cut_files)
{
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), end);
	ck_assert_int_eq(partition_durable_end(kit.p), end);
	ck_assert_int_eq(logkit_file_bytes(path), kit.settings.segment_bytes);
	logkit_expect_file_end(&kit, path, end * record_bytes(size));
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), cut_files);
	logkit_append(&kit, 1, size);
	logkit_reopen(&kit);
	ck_assert_int_eq(kit.opened.truncated_bytes, 0);
	ck_assert_int_eq(partition_log_end(kit.p), end + 1);
	logkit_expect(&kit, 0, end + 1, size);
	logkit_close(&kit);
}

/* Of the last record, or of three that were written at once, `stored` bytes; never the first length, which comes last. */
START_TEST(A11_a_write_through_the_mapping_torn_at_every_byte)
{
	enum record_format format = formats[_i % FORMATS];
	int whole = 2, torn = _i / FORMATS % 2 == 0 ? 1 : 3;
	bool process_died = _i / FORMATS / 2 == 0;
	size_t bytes;
	uint8_t *content;

	begin(format, 64 * KIB);
	logkit_close(&kit);
	content = logkit_batch(format, 0, whole + torn, 64, &bytes);
	for (int64_t stored = 4; stored <= torn * record_bytes(64); stored++) {
		size_t end = (size_t)(whole * record_bytes(64));
		bool many = stored > 64 + 4 && torn > 1 && stored > 2 * record_bytes(64);
		uint8_t *found = calloc(1, bytes);

		memcpy(found, content, end + (size_t)stored);
		memset(found + end, 0, 4);
		put(found, bytes);
		free(found);
		kit.known.published_end = process_died ? whole : -1;
		logkit_open(&kit);
		ck_assert_int_eq(partition_log_end(kit.p), whole);
		logkit_expect_file_end(&kit, path, whole * record_bytes(64));
		/* After a power cut records may be lost, so they are copied; of plain nobody can say. */
		if (process_died)
			ck_assert_int_eq(logkit_count_files(&kit, ""), 1);
		else if (many)
			ck_assert_int_ge(logkit_count_files(&kit, ".cut"), 1);
		logkit_append(&kit, 1, 64);
		kit.known.published_end = -1;
		logkit_reopen(&kit);
		ck_assert_int_eq(kit.opened.truncated_bytes, 0);
		ck_assert_int_eq(partition_log_end(kit.p), whole + 1);
		logkit_expect(&kit, 0, whole + 1, 64);
		logkit_close(&kit);
	}
	free(content);
	logkit_end(&kit);
}
END_TEST

/* What a power cut makes of pages: the length is there, the rest only up to a byte. Without sums nobody can tell. */
START_TEST(A11_a_power_cut_at_every_byte)
{
	size_t bytes;
	uint8_t *content;

	begin(RECORD_CRC32C, 64 * KIB);
	logkit_close(&kit);
	content = logkit_batch(RECORD_CRC32C, 0, 3, 64, &bytes);
	for (size_t stored = 0; stored < 72; stored++) {
		/* The payload may end with the zeros that stand in for it. */
		if (memcmp(content + 144 + stored, (uint8_t[72]){ 0 }, 72 - stored) == 0)
			break;
		put(content, 144 + stored);
		logkit_open(&kit);
		ck_assert_int_eq(partition_log_end(kit.p), 2);
		logkit_expect_file_end(&kit, path, 144);
		logkit_append(&kit, 1, 64);
		logkit_reopen(&kit);
		ck_assert_int_eq(kit.opened.truncated_bytes, 0);
		logkit_expect(&kit, 0, 3, 64);
		logkit_close(&kit);
	}
	free(content);
	logkit_end(&kit);
}
END_TEST

START_TEST(A11_nothing_comes_back_from_the_dead)
{
	size_t bytes, record = 64 + 8;
	uint8_t *content;

	/* Of six records the third is lost, the others survive: a new one of the same length must not bring them back. */
	begin(RECORD_CRC32C, 64 * KIB);
	logkit_close(&kit);
	content = logkit_batch(RECORD_CRC32C, 0, 6, 64, &bytes);
	memset(content + 2 * record, 0, record);
	put(content, bytes);
	expect_recovered(2, 64, 1);
	free(content);
	logkit_end(&kit);
}
END_TEST

/* A kill in the middle of each store of a write, for real: see test_storage_faults for all other calls. */
START_TEST(an_empty_log_whose_first_write_was_interrupted)
{
	size_t bytes;
	uint8_t *content;

	begin(formats[_i], 64 * KIB);
	logkit_close(&kit);
	content = logkit_batch(formats[_i], 0, 3, 64, &bytes);
	memset(content, 0, 4);
	kit.known.published_end = 0;
	put(content, bytes);
	expect_recovered(0, 64, 0);
	free(content);
	logkit_end(&kit);
}
END_TEST

/* ---- the other record format ---- */

static void
expect_other_format(const char *ours)
{
	enum record_format format = kit.settings.record_format;

	kit.settings.record_format = format == RECORD_PLAIN ? RECORD_CRC32C : RECORD_PLAIN;
	logkit_trace_begin();
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), ours));
	ck_assert_str_eq(logkit_trace(), "");
	kit.settings.record_format = format;
}

START_TEST(the_other_format_is_refused)
{
	int counts[] = { 1, 2, 3, 100 };

	for (int i = 0; i < 4; i++) {
		size_t size = 64;
		uint8_t payload[64];

		begin(formats[_i], 64 * KIB);
		/* The last byte is not a zero: a lone record in plain that ends with zeros could be a torn one in crc32c. */
		logkit_payload(counts[i] - 1, payload, size);
		while (payload[size - 1] == 0)
			size--;
		ck_assert_int_eq(logkit_try_append(&kit, counts[i], size), 0);
		logkit_close(&kit);
		expect_other_format(formats[_i] == RECORD_PLAIN ? "Set record_format = plain" : "Set record_format = crc32c");
		logkit_open(&kit);
		logkit_expect(&kit, 0, counts[i], size);
		logkit_end(&kit);
	}
}
END_TEST

/* Zeros behind the end make a lone record of plain one of crc32c, if its payload begins with the right sum. */
START_TEST(a_sum_that_a_client_made_up_does_not_close_a_plain_log)
{
	for (int records = 1; records <= 3; records++) {
		uint8_t payload[64], as_summed[64], content[256] = { 0 }, *p = content;

		begin(RECORD_PLAIN, 64 * KIB);
		logkit_close(&kit);
		memset(payload, 'x', sizeof(payload));
		for (int i = 0; i < records; i++)
			p = record_put(p, RECORD_PLAIN, payload, 64);
		memcpy(as_summed, content + 8, 64);
		bytes_put_u32(content + 4, crc32c(as_summed, 64));
		put(content, (size_t)(p - content));
		logkit_open(&kit);
		ck_assert_int_eq(partition_log_end(kit.p), records);
		ck_assert_int_eq(kit.opened.truncated_bytes, 0);
		logkit_end(&kit);
	}
}
END_TEST

/* ---- the other write mode ---- */

/* Every byte of the log as its readers get it. */
static uint8_t *
read_log(size_t *bytes)
{
	uint8_t *content = malloc((size_t)partition_size_bytes(kit.p));
	int64_t offset = partition_log_start(kit.p);

	*bytes = 0;
	while (offset < partition_log_end(kit.p)) {
		struct partition_place place;
		struct slice slice;

		ck_assert_int_eq(logkit_find(&kit, offset, &place), PARTITION_FOUND);
		partition_slice(&place, record_bytes(200), &slice);
		logkit_read_slice(&slice, content + *bytes);
		*bytes += (size_t)slice.bytes;
		slice_release(&slice);
		offset++;
	}
	ck_assert_uint_eq(*bytes, (size_t)partition_size_bytes(kit.p));
	return content;
}

/* From mode to mode and back, with rolls: nothing lost, nothing renumbered, every byte as it was. */
START_TEST(A20_reopened_in_the_other_write_mode)
{
	size_t before_bytes = 0;
	uint8_t *before = NULL;
	int64_t end = 0;

	logkit_begin(&kit, formats[_i % FORMATS], 4096);
	kit.settings.mapped = _i / FORMATS == 0;
	for (int round = 0; round < 8; round++) {
		size_t bytes;
		uint8_t *now;

		logkit_open(&kit);
		ck_assert_int_eq(partition_log_end(kit.p), end);
		ck_assert_int_eq(kit.opened.truncated_bytes, 0);
		now = read_log(&bytes);
		ck_assert_uint_eq(bytes, before_bytes);
		ck_assert_mem_eq(now, before == NULL ? now : before, bytes);
		free(now);
		free(before);
		/* An empty active segment is left by every other round, one with records by the others. */
		logkit_append(&kit, 3 + 7 * round, 200);
		if (round % 2 == 0)
			ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
		if (round % 4 == 0)
			ck_assert_int_eq(logkit_upkeep(&kit, 100), 0);
		end = partition_log_end(kit.p);
		before = read_log(&before_bytes);
		logkit_close(&kit);
		kit.settings.mapped = !kit.settings.mapped;
	}
	free(before);
	logkit_end(&kit);
}
END_TEST

START_TEST(A20_the_file_has_the_size_that_the_mode_wants)
{
	int64_t bytes;

	begin(RECORD_CRC32C, MIB);
	logkit_append(&kit, 10, 100);
	bytes = partition_size_bytes(kit.p);
	logkit_close(&kit);
	ck_assert_int_eq(logkit_file_bytes(path), MIB);
	kit.settings.mapped = false;
	logkit_open(&kit);
	ck_assert_int_eq(logkit_file_bytes(path), bytes);
	logkit_close(&kit);
	/* Smaller and larger segments; and one smaller than what the file holds. */
	kit.settings.mapped = true;
	for (int64_t segment_bytes = 4 * MIB; segment_bytes >= KIB; segment_bytes /= 4) {
		kit.settings.segment_bytes = segment_bytes;
		logkit_open(&kit);
		ck_assert_int_eq(logkit_file_bytes(path), segment_bytes < bytes ? bytes : segment_bytes);
		ck_assert_int_eq(partition_fit(kit.p, 108), segment_bytes < bytes ? PARTITION_ROLL : PARTITION_AHEAD);
		logkit_close(&kit);
	}
	logkit_open(&kit);
	logkit_append(&kit, 10, 100);
	ck_assert_int_gt(partition_segments(kit.p), 1);
	logkit_expect(&kit, 0, 20, 100);
	logkit_end(&kit);
}
END_TEST

/* A file system that will not have a file so large: what is there can be read. */
START_TEST(a_size_that_cannot_be_given)
{
	begin(RECORD_CRC32C, MIB);
	logkit_append(&kit, 10, 100);
	logkit_close(&kit);
	logkit_truncate(path, 10 * 108);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FTRUNCATE, .at = 1, .error = EFBIG, .sticky = true });
	logkit_open(&kit);
	logkit_expect(&kit, 0, 10, 100);
	expect_refused(EFBIG);
	logkit_clear_fault();
	logkit_append(&kit, 10, 100);
	logkit_expect(&kit, 0, 20, 100);
	logkit_end(&kit);
}
END_TEST

static void
add_tests(TCase *tests)
{
	tcase_add_test(tests, bug_B6_an_empty_partition_takes_no_room);
	tcase_add_test(tests, stretches_grow_with_the_segment);
	tcase_add_loop_test(tests, a_large_batch_gets_all_the_room_it_needs, 0, FORMATS);
	tcase_add_test(tests, appends_go_on_while_the_next_stretch_is_made);
	tcase_add_test(tests, a_roll_unmaps_in_its_job);
	tcase_add_test(tests, what_is_mapped_is_not_written_back_early);
	tcase_add_test(tests, bug_C3_sealed_and_replaced_segments_are_not_mapped);
	tcase_add_test(tests, A21_parts_of_a_large_batch_are_exact_and_the_last_has_full_size);
	tcase_add_loop_test(tests, bug_B2_a_full_disk_in_the_middle_of_a_segment, 0, FORMATS);
	tcase_add_loop_test(tests, a_nearly_full_disk, 0, FORMATS);
	tcase_add_loop_test(tests, a_file_system_that_cannot_allocate_gets_zeros, 0, 2);
	tcase_add_loop_test(tests, an_interrupted_allocation_is_tried_again, 0, 2);
	tcase_add_loop_test(tests, a_mapping_that_cannot_be_had, 0, 4);
	tcase_add_test(tests, a_kernel_that_cannot_populate_ahead);
	tcase_add_test(tests, a_file_cut_behind_the_end_is_mended);
	tcase_add_test(tests, what_is_allocated_behind_the_end_goes_with_the_seal);
	tcase_add_loop_test(tests, a_file_cut_before_the_end_takes_no_more, 0, 2);
	tcase_add_test(tests, a_stretch_that_cannot_be_had_beside_a_failing_barrier);
	tcase_add_test(tests, a_store_to_nothing_is_an_error);
	tcase_add_test(tests, a_length_stored_to_nothing_is_an_error);
	tcase_add_test_raise_signal(tests, any_other_bus_error_ends_the_process, SIGBUS);
	tcase_add_loop_test(tests, an_append_that_fails_while_the_next_stretch_is_made, 0, FORMATS);
	tcase_add_loop_test(tests, A11_a_write_through_the_mapping_torn_at_every_byte, 0, 4 * FORMATS);
	tcase_add_test(tests, A11_a_power_cut_at_every_byte);
	tcase_add_test(tests, A11_nothing_comes_back_from_the_dead);
	tcase_add_loop_test(tests, an_empty_log_whose_first_write_was_interrupted, 0, FORMATS);
	tcase_add_loop_test(tests, the_other_format_is_refused, 0, FORMATS);
	tcase_add_test(tests, a_sum_that_a_client_made_up_does_not_close_a_plain_log);
	tcase_add_loop_test(tests, A20_reopened_in_the_other_write_mode, 0, 2 * FORMATS);
	tcase_add_test(tests, A20_the_file_has_the_size_that_the_mode_wants);
	tcase_add_test(tests, a_size_that_cannot_be_given);
}

int
main(void)
{
	Suite *suite = suite_create("mapped");
	TCase *tests = tcase_create("mapped");

	tcase_set_timeout(tests, 60);
	tcase_add_checked_fixture(tests, logkit_mapped_mode, NULL);
	suite_add_tcase(suite, tests);
	add_tests(tests);
	return unit_run(suite);
}
