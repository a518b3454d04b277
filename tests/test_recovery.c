/*
 * What opening a log makes of what is on disk: torn and damaged ends, the other record format, foreign entries, empty
 * segments, a log that is shorter than what was published. Each is done to files by hand and seen from outside.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/cut.h"
#include "worker/listing.h"
#include "worker/scan.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

static const enum record_format formats[] = { RECORD_PLAIN, RECORD_CRC32C };
enum { FORMATS = 2 };

static struct logkit kit;
static char path[LOGKIT_PATH_BYTES];	/* of the segment in question */

static int64_t
header(void)
{
	return (int64_t)record_header_bytes(kit.settings.record_format);
}

/* A closed log of `count` records of `size` bytes in one segment; `path` is its file, which ends with them. */
static void
make_log(enum record_format format, int count, size_t size)
{
	logkit_begin(&kit, format, 1 << 24);
	logkit_open(&kit);
	if (count > 0)
		ck_assert_int_eq(logkit_try_append(&kit, count, size), 0);
	logkit_close(&kit);
	logkit_segment_path(&kit, 0, path);
	logkit_truncate(path, count * (header() + (int64_t)size));
}

/* Replaces the file by `content`, opens, and expects exactly the records 0 to end - 1, and no byte more in the file. */
static void
expect_recovered(const uint8_t *content, size_t bytes, int64_t end, size_t size)
{
	logkit_write_file(path, content, bytes);
	logkit_remove_index(&kit, 0);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), end);
	ck_assert_int_eq(partition_durable_end(kit.p), end);
	logkit_expect_file_end(&kit, path, end * (header() + (int64_t)size));
	logkit_expect(&kit, 0, end, size);
}

/* ---- torn ---- */

/* `_i`: format, and whether the torn record is the only one. */
START_TEST(A11_last_record_torn_at_every_byte)
{
	int records = _i / FORMATS == 0 ? 3 : 1;
	size_t bytes, record;
	uint8_t *whole;

	make_log(formats[_i % FORMATS], records, 64);
	whole = logkit_read_file(path, &bytes);
	record = (size_t)header() + 64;
	ck_assert_uint_eq(bytes, (size_t)records * record);
	for (size_t kept = 0; kept < record; kept++) {
		/* The only record, torn just so that it is a whole one in plain: see the test of that name. */
		if (records == 1 && header() == 8 && kept == record - 4)
			continue;
		expect_recovered(whole, bytes - record + kept, records - 1, 64);
		/* The first three bytes of this length are zeros: no content. */
		ck_assert_int_eq(kit.opened.truncated_bytes, kept < 4 ? 0 : (int64_t)kept);
		logkit_append(&kit, 1, 64);
		ck_assert_int_eq(partition_log_end(kit.p), records);
		logkit_reopen(&kit);
		ck_assert_int_eq(kit.opened.truncated_bytes, 0);
		ck_assert_int_eq(partition_log_end(kit.p), records);
		logkit_expect(&kit, 0, records, 64);
		logkit_close(&kit);
	}
	/* Of the only record these three lengths could be a whole one in plain and more: copied aside, in doubt. */
	ck_assert_int_eq(logkit_count_files(&kit, ""), records == 1 && header() == 8 ? 1 + 3 : 1);
	free(whole);
	logkit_end(&kit);
}
END_TEST

/* The file grew, and the last sector of its only record did not reach the disk: four bytes, behind a whole record of plain. */
START_TEST(A11_only_record_torn_where_a_sector_begins)
{
	size_t bytes;
	uint8_t *whole;

	make_log(RECORD_CRC32C, 1, 508);
	whole = logkit_read_file(path, &bytes);
	whole[511] |= 1;
	memset(whole + 512, 0, 4);
	expect_recovered(whole, bytes, 0, 508);
	ck_assert_int_eq(kit.opened.truncated_bytes, 516);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 1);
	free(whole);
	logkit_end(&kit);
}
END_TEST

/*
 * Stored through a mapping, and of the only record nothing but its length and its last two bytes have reached the disk: in plain
 * these are a second length, of a record of zeros which the file is long enough for.
 */
START_TEST(A11_only_record_torn_but_for_its_last_bytes)
{
	enum { SEGMENT_BYTES = 65536, PAYLOAD = 42, KEPT_FROM = 48 };
	uint8_t *torn = calloc(1, SEGMENT_BYTES);

	ck_assert_ptr_nonnull(torn);
	make_log(RECORD_CRC32C, 1, PAYLOAD);
	torn[3] = PAYLOAD;
	torn[KEPT_FROM] = torn[KEPT_FROM + 1] = 0xEE;
	expect_recovered(torn, SEGMENT_BYTES, 0, PAYLOAD);
	ck_assert_int_eq(kit.opened.truncated_bytes, KEPT_FROM + 2);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 1);
	free(torn);
	logkit_end(&kit);
}
END_TEST

START_TEST(A11_nothing_comes_back_from_the_dead)
{
	size_t bytes, size = 64 + 8;
	uint8_t *whole;

	/* Record 2 of 6 is lost, 3 to 5 survive: a new record of the same length at 2 must not bring them back. */
	make_log(RECORD_CRC32C, 6, 64);
	whole = logkit_read_file(path, &bytes);
	memset(whole + 2 * size, 0, size);
	expect_recovered(whole, bytes, 2, 64);
	ck_assert_int_eq(kit.opened.truncated_bytes, 4 * size);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 1);
	logkit_append(&kit, 1, 64);
	logkit_reopen(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 3);
	logkit_expect(&kit, 0, 3, 64);
	free(whole);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_copy_that_root_makes_is_the_owners)
{
	char copy[LOGKIT_PATH_BYTES];
	struct stat st;

	if (geteuid() != 0)
		return;
	make_log(RECORD_CRC32C, 6, 64);
	ck_assert_int_eq(chown(path, 4711, 4712), 0);
	logkit_flip(path, 2 * 72 + 20);
	logkit_open(&kit);
	logkit_file_path(&kit, "00000000000000000000.cut", copy);
	ck_assert_int_eq(stat(copy, &st), 0);
	ck_assert_uint_eq(st.st_uid, 4711);
	ck_assert_uint_eq(st.st_gid, 4712);
	logkit_end(&kit);
}
END_TEST

/* Who is not allowed to give a copy away makes it all the same. */
START_TEST(a_copy_that_cannot_be_given_away)
{
	char name[SEGMENT_NAME_BYTES];
	int dir_fd, fd;

	if (geteuid() != 0)
		return;
	make_log(RECORD_CRC32C, 6, 64);
	dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert(dir_fd != -1 && fd != -1 && fchmod(dir_fd, 0777) == 0);
	ck_assert_int_eq(seteuid(4711), 0);
	ck_assert_int_eq(cut_copy_aside(dir_fd, fd, 0, 72, 6 * 72, name), 0);
	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_str_eq(name, "00000000000000000000.cut");
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 1);
	close(fd);
	close(dir_fd);
	logkit_end(&kit);
}
END_TEST

/* Of more than is copied at once. */
START_TEST(a_copy_is_made_once_and_whole)
{
	char name[SEGMENT_NAME_BYTES], other[LOGKIT_PATH_BYTES];
	int64_t end = 3 * 100008;
	int dir_fd, fd;

	make_log(RECORD_CRC32C, 3, 100000);
	dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(cut_copy_aside(dir_fd, fd, 0, 0, end, name), 0);
		ck_assert_str_eq(name, "00000000000000000000.cut");
	}
	/* One that cannot be compared is another one. */
	for (int at = 1; at <= 6; at++) {
		logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = at, .error = EIO });
		ck_assert_int_eq(cut_copy_aside(dir_fd, fd, 0, 0, end, name), 0);
		ck_assert(logkit_fault_hit());
		ck_assert_str_eq(name, "00000000000000000000.cut.2");
		ck_assert_int_eq(unlinkat(dir_fd, name, 0), 0);
	}
	/* So are one of the same length, and what can be no copy. */
	logkit_file_path(&kit, "00000000000000000000.cut", other);
	logkit_flip(other, end - 1);
	ck_assert_int_eq(symlinkat("00000000000000000000.log", dir_fd, "00000000000000000000.cut.2"), 0);
	ck_assert_int_eq(cut_copy_aside(dir_fd, fd, 0, 0, end, name), 0);
	ck_assert_str_eq(name, "00000000000000000000.cut.3");
	/* The file has been cut meanwhile: half of a copy is none. */
	ck_assert_int_eq(cut_copy_aside(dir_fd, fd, 0, 0, end + 1, name), -1);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut.4") + logkit_count_files(&kit, ".tmp"), 0);
	close(fd);
	close(dir_fd);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A2_every_length_of_the_last_segment)
{
	size_t bytes;
	uint8_t *whole;
	int64_t record;

	logkit_begin(&kit, formats[_i], 300);
	logkit_open(&kit);
	logkit_append(&kit, 15, 50);
	ck_assert_int_eq(partition_segments(kit.p), 3);
	logkit_close(&kit);
	record = header() + 50;
	logkit_segment_path(&kit, 10, path);
	logkit_truncate(path, 5 * record);
	whole = logkit_read_file(path, &bytes);
	for (size_t kept = 0; kept <= bytes; kept += (size_t)unit_sample()) {
		int64_t end = 10 + (int64_t)kept / record;

		logkit_write_file(path, whole, kept);
		logkit_open(&kit);
		ck_assert_int_eq(partition_log_end(kit.p), end);
		logkit_append(&kit, 1, 50);
		logkit_expect(&kit, 0, end + 1, 50);
		logkit_close(&kit);
		/* Only behind the last record the append had to roll. */
		ck_assert_int_eq(logkit_count_files(&kit, ".log"), kept == bytes ? 4 : 3);
	}
	free(whole);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A5_impossible_lengths)
{
	uint32_t lengths[] = { 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, (1 << 24) + 1, RECORD_MAX_BYTES,
		RECORD_MAX_BYTES - 8, RECORD_MAX_BYTES - 4, 0, 1000 };
	size_t bytes, record;
	uint8_t *whole;

	make_log(formats[_i], 4, 64);
	record = (size_t)header() + 64;
	whole = logkit_read_file(path, &bytes);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		bytes_put_u32(whole + 3 * record, lengths[i]);
		expect_recovered(whole, bytes, 3, 64);
		logkit_append(&kit, 1, 64);
		logkit_reopen(&kit);
		logkit_expect(&kit, 0, 4, 64);
		logkit_close(&kit);
	}
	free(whole);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A21_second_page_of_the_last_record_zeroed)
{
	size_t bytes;
	uint8_t *whole;

	/* The fifth record crosses a page. */
	make_log(RECORD_CRC32C, 5, 900);
	whole = logkit_read_file(path, &bytes);
	ck_assert_uint_gt(bytes, 4096);
	memset(whole + 4096, 0, bytes - 4096);
	expect_recovered(whole, bytes, 4, 900);
	logkit_append(&kit, 1, 900);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 5, 900);
	logkit_close(&kit);
	/* And the file ends there. */
	expect_recovered(whole, 4096, 4, 900);
	free(whole);
	logkit_end(&kit);
}
END_TEST

START_TEST(zeros_behind_the_end_are_no_content)
{
	size_t bytes;
	uint8_t *whole;
	char *lines;

	make_log(RECORD_CRC32C, 4, 64);
	whole = logkit_read_file(path, &bytes);
	whole = realloc(whole, bytes + 3000000);
	memset(whole + bytes, 0, 3000000);
	logkit_catch_lines();
	for (int more = 1; more <= 3000000; more = more * 3 + 1) {
		expect_recovered(whole, bytes + (size_t)more, 4, 64);
		ck_assert_int_eq(kit.opened.truncated_bytes, 0);
		logkit_close(&kit);
	}
	lines = logkit_caught_lines();
	ck_assert_str_eq(lines, "");
	free(lines);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 0);
	/* A file of nothing but zeros is an empty segment. */
	memset(whole, 0, bytes);
	expect_recovered(whole, bytes, 0, 64);
	free(whole);
	logkit_end(&kit);
}
END_TEST

START_TEST(A19_what_is_cut_is_copied_aside)
{
	char name[LOGKIT_PATH_BYTES];
	size_t bytes, cut_bytes, record = 64 + 8;
	uint8_t *whole, *cut;
	char *lines;

	make_log(RECORD_CRC32C, 6, 64);
	whole = logkit_read_file(path, &bytes);
	whole[2 * record + 20] ^= 1;
	logkit_file_path(&kit, "00000000000000000000.cut", name);
	logkit_catch_lines();
	expect_recovered(whole, bytes, 2, 64);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, " warning "));
	ck_assert_ptr_nonnull(strstr(lines, "t-0/00000000000000000000.log: cutting 288 bytes from position 144, "
	    "offset 2"));
	ck_assert_ptr_nonnull(strstr(lines, "copied to t-0/00000000000000000000.cut\n"));
	free(lines);
	ck_assert_int_eq(kit.opened.truncated_bytes, 4 * record);
	cut = logkit_read_file(name, &cut_bytes);
	ck_assert_uint_eq(cut_bytes, 4 * record);
	ck_assert_mem_eq(cut, whole + 2 * record, cut_bytes);
	free(cut);
	logkit_close(&kit);
	/* Another one does not overwrite it; the same again is not copied again. */
	whole[2 * record + 21] ^= 1;
	expect_recovered(whole, bytes, 2, 64);
	logkit_close(&kit);
	expect_recovered(whole, bytes, 2, 64);
	logkit_close(&kit);
	ck_assert_int_eq(logkit_count_files(&kit, ""), 3);
	logkit_file_path(&kit, "00000000000000000000.cut.2", name);
	cut = logkit_read_file(name, &cut_bytes);
	ck_assert_mem_eq(cut, whole + 2 * record, 4 * record);
	free(cut);
	free(whole);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_length_that_swallows_good_records_is_copied_aside)
{
	size_t bytes, record = 64 + 8;
	uint8_t *whole;

	make_log(RECORD_CRC32C, 6, 64);
	whole = logkit_read_file(path, &bytes);
	bytes_put_u32(whole + 2 * record, 5000);
	expect_recovered(whole, bytes, 2, 64);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 1);
	free(whole);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_large_torn_record)
{
	size_t bytes;
	uint8_t *whole;

	logkit_begin(&kit, formats[_i], 1 << 26);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_try_append(&kit, 1, 100), 0);
	ck_assert_int_eq(logkit_try_append(&kit, 1, (size_t)record_max_payload(formats[_i])), 0);
	logkit_close(&kit);
	logkit_segment_path(&kit, 0, path);
	logkit_truncate(path, header() + 100 + RECORD_MAX_BYTES);
	whole = logkit_read_file(path, &bytes);
	expect_recovered(whole, bytes - 1, 1, 100);
	logkit_close(&kit);
	logkit_write_file(path, whole, bytes);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 2);
	logkit_expect(&kit, 1, 2, (size_t)record_max_payload(formats[_i]));
	free(whole);
	logkit_end(&kit);
}
END_TEST

/* In mapped mode the file gets its full size. */
static const char *
extended(void)
{
	return kit.settings.mapped ? "truncate 00000000000000000000.log;" : "";
}

START_TEST(recovered_is_forced_in_order)
{
	size_t bytes, record = 64 + 8;
	char expected[512];
	uint8_t *whole;

	make_log(RECORD_CRC32C, 6, 64);
	whole = logkit_read_file(path, &bytes);
	whole[2 * record + 20] ^= 1;
	logkit_write_file(path, whole, bytes);
	snprintf(expected, sizeof(expected), "create 00000000000000000000.cut.tmp;write 00000000000000000000.cut.tmp;"
	    "force 00000000000000000000.cut.tmp;rename 00000000000000000000.cut;fsync t-0;"
	    "truncate 00000000000000000000.log;force 00000000000000000000.log;%s"
	    "force 00000000000000000000.log;fsync t-0;", extended());
	logkit_trace_begin();
	logkit_open(&kit);
	ck_assert_str_eq(logkit_trace(), expected);
	free(whole);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_new_log_is_forced_up_to_the_directory_above)
{
	char expected[512];
	const char *data;

	logkit_begin(&kit, RECORD_CRC32C, 1000);
	data = strrchr(kit.data_path, '/') + 1;
	logkit_trace_begin();
	logkit_open(&kit);
	snprintf(expected, sizeof(expected), "mkdir t-0;create 00000000000000000000.log.tmp;"
	    "force 00000000000000000000.log.tmp;rename 00000000000000000000.log;%sforce 00000000000000000000.log;"
	    "fsync t-0;fsync %s;", extended(), data);
	ck_assert_str_eq(logkit_trace(), expected);
	/* Still empty: an earlier start may have ended before it forced that. */
	logkit_close(&kit);
	logkit_trace_begin();
	logkit_open(&kit);
	snprintf(expected, sizeof(expected), "force 00000000000000000000.log;fsync t-0;fsync %s;", data);
	ck_assert_str_eq(logkit_trace(), expected);
	logkit_append(&kit, 1, 10);
	logkit_close(&kit);
	logkit_trace_begin();
	logkit_open(&kit);
	ck_assert_str_eq(logkit_trace(), "force 00000000000000000000.log;fsync t-0;");
	logkit_end(&kit);
}
END_TEST

START_TEST(plain_cuts_an_incomplete_tail_only)
{
	size_t bytes, record = 64 + 4;
	uint8_t *whole;

	make_log(RECORD_PLAIN, 4, 64);
	whole = logkit_read_file(path, &bytes);
	/* A changed payload is not seen. */
	logkit_flip(path, (int64_t)record + 30);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 4);
	logkit_close(&kit);
	/* Zeros that a power cut left in place of what was appended. */
	memset(whole + 2 * record, 0, 2 * record);
	expect_recovered(whole, bytes, 2, 64);
	free(whole);
	logkit_end(&kit);
}
END_TEST

/* ---- the published watermark ---- */

START_TEST(a_log_shorter_than_published_stays_closed)
{
	size_t bytes, after;
	uint8_t *whole, *found;

	make_log(formats[_i], 6, 64);
	whole = logkit_read_file(path, &bytes);
	kit.known.published_end = 6;
	logkit_open(&kit);
	logkit_close(&kit);
	logkit_truncate(path, (int64_t)bytes - 3);
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "the log on disk ends at offset 5, but 6 had been "
	    "published"));
	found = logkit_read_file(path, &after);
	ck_assert_uint_eq(after, bytes - 3);
	ck_assert_mem_eq(found, whole, after);
	free(found);
	kit.known.published_end = 5;
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 5);
	logkit_close(&kit);
	/* The file or the directory is gone altogether. */
	ck_assert_int_eq(unlink(path), 0);
	logkit_refused(&kit);
	logkit_remove_index(&kit, 0);
	ck_assert_int_eq(rmdir(kit.path), 0);
	logkit_refused(&kit);
	kit.known.published_end = 0;
	logkit_open(&kit);
	free(whole);
	logkit_end(&kit);
}
END_TEST

/* ---- the other record format ---- */

static enum record_format
other(enum record_format format)
{
	return format == RECORD_PLAIN ? RECORD_CRC32C : RECORD_PLAIN;
}

/* Opens with the other format, which must be refused, and nothing may have changed. */
static void
expect_other_format(void)
{
	enum record_format ours = kit.settings.record_format;
	int files = logkit_count_files(&kit, "");
	uint8_t *before, *after;
	size_t bytes, bytes_after;
	const char *why;

	before = logkit_read_file(path, &bytes);
	kit.settings.record_format = other(ours);
	logkit_trace_begin();
	why = logkit_refused(&kit);
	ck_assert_ptr_nonnull(strstr(why, "plain"));
	ck_assert_ptr_nonnull(strstr(why, "crc32c"));
	ck_assert_ptr_nonnull(strstr(why, ours == RECORD_PLAIN ? "Set record_format = plain"
	    : "Set record_format = crc32c"));
	ck_assert_str_eq(logkit_trace(), "");
	kit.settings.record_format = ours;
	after = logkit_read_file(path, &bytes_after);
	ck_assert_uint_eq(bytes_after, bytes);
	ck_assert_mem_eq(after, before, bytes);
	ck_assert_int_eq(logkit_count_files(&kit, ""), files);
	free(before);
	free(after);
}

START_TEST(the_other_format_is_refused)
{
	int counts[] = { 2, 3, 100 };

	for (int i = 0; i < 3; i++) {
		make_log(formats[_i], counts[i], 64);
		expect_other_format();
		logkit_open(&kit);
		logkit_expect(&kit, 0, counts[i], 64);
		logkit_end(&kit);
	}
}
END_TEST

START_TEST(the_other_format_is_refused_with_a_torn_end)
{
	size_t bytes;
	uint8_t *whole;

	make_log(formats[_i], 4, 64);
	whole = logkit_read_file(path, &bytes);
	for (size_t cut = 1; cut < 64; cut++) {
		logkit_write_file(path, whole, bytes - cut);
		expect_other_format();
	}
	free(whole);
	logkit_end(&kit);
}
END_TEST

START_TEST(one_record_in_crc32c_is_refused_as_plain)
{
	make_log(RECORD_CRC32C, 1, 64);
	expect_other_format();
	logkit_end(&kit);
}
END_TEST

START_TEST(one_record_in_plain_is_refused_as_crc32c)
{
	uint8_t *before, *after;
	size_t bytes, after_bytes;

	/* A record in crc32c that is torn four bytes before its end looks the same; refusing loses nothing. */
	make_log(RECORD_PLAIN, 1, 64);
	before = logkit_read_file(path, &bytes);
	kit.settings.record_format = RECORD_CRC32C;
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "record_format = plain"));
	after = logkit_read_file(path, &after_bytes);
	ck_assert_uint_eq(after_bytes, bytes);
	ck_assert_mem_eq(after, before, bytes);
	ck_assert_int_eq(logkit_count_files(&kit, ""), 1);
	free(before);
	free(after);
	logkit_end(&kit);
}
END_TEST

/* The last segment says nothing (one torn record, or empty); the sealed ones tell. `_i`: format; torn or empty. */
START_TEST(sealed_segments_tell_the_format)
{
	logkit_begin(&kit, formats[_i % FORMATS], 1000);
	logkit_open(&kit);
	logkit_append(&kit, 10, 100);
	ck_assert_int_eq(partition_segments(kit.p), 2);
	logkit_close(&kit);
	logkit_segment_path(&kit, 9, path);
	logkit_truncate(path, _i / FORMATS == 0 ? 60 : 0);
	expect_other_format();
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 9);
	logkit_append(&kit, 1, 100);
	logkit_expect(&kit, 0, 10, 100);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_sum_that_a_client_made_up_does_not_close_a_plain_log)
{
	uint8_t payload[64], batch[256], *p;

	/* The first payload begins with the sum of what, read as crc32c, would be the payload. */
	make_log(RECORD_PLAIN, 0, 0);
	memset(payload, 'x', sizeof(payload));
	p = record_put(batch, RECORD_PLAIN, payload, 64);
	p = record_put(p, RECORD_PLAIN, payload, 64);
	p = record_put(p, RECORD_PLAIN, payload, 30);
	bytes_put_u32(batch + 4, crc32c(batch + 8, 64));
	logkit_write_file(path, batch, (size_t)(p - batch));
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 3);
	logkit_end(&kit);
}
END_TEST

/* A crc32c log whose first record is damaged, with nothing else to tell: cut, and never taken for plain. */
START_TEST(a_damaged_first_record_is_not_the_other_format)
{
	size_t bytes;
	uint8_t *whole;

	make_log(RECORD_CRC32C, 5, 64);
	whole = logkit_read_file(path, &bytes);
	whole[20] ^= 1;
	expect_recovered(whole, bytes, 0, 64);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 1);
	free(whole);
	logkit_end(&kit);
}
END_TEST

/* ---- names ---- */

static void
put_foreign(void)
{
	char name[LOGKIT_PATH_BYTES];

	logkit_file_path(&kit, "README", name);
	logkit_write_file(name, "hello", 5);
	logkit_file_path(&kit, ".x.swp", name);
	logkit_write_file(name, "", 0);
	logkit_file_path(&kit, "00000000000000000500.log", name);
	logkit_write_file(name, "", 0);
	logkit_file_path(&kit, "subdirectory", name);
	ck_assert_int_eq(mkdir(name, 0700), 0);
	logkit_file_path(&kit, "00000000000000000600.log", name);
	ck_assert_int_eq(mkdir(name, 0700), 0);
	logkit_file_path(&kit, "dangling", name);
	ck_assert_int_eq(symlink("/nowhere/at/all", name), 0);
	logkit_file_path(&kit, "00000000000000000700.log", name);
	ck_assert_int_eq(symlink("00000000000000000000.log", name), 0);
	logkit_file_path(&kit, "99999999999999999999.log", name);
	logkit_write_file(name, "abc", 3);
	logkit_file_path(&kit, "09223372036854775808.log", name);
	logkit_write_file(name, "abc", 3);
	logkit_file_path(&kit, "0000000000000000012.log", name);
	logkit_write_file(name, "abc", 3);
	logkit_file_path(&kit, "00000000000000000012.logx", name);
	logkit_write_file(name, "abc", 3);
	logkit_file_path(&kit, "0000000000000000001x.log", name);
	logkit_write_file(name, "abc", 3);
	logkit_file_path(&kit, "00000000000000000012.cut.x", name);
	logkit_write_file(name, "abc", 3);
	logkit_file_path(&kit, "pipe", name);
	ck_assert_int_eq(mkfifo(name, 0600), 0);
}

static int
count_lines(const char *lines)
{
	int count = 0;

	for (; *lines != '\0'; lines++)
		count += *lines == '\n';
	return count;
}

START_TEST(bug_A8_foreign_entries_are_reported_once_and_left_alone)
{
	const char *names[] = { "README", ".x.swp", "00000000000000000500.log", "subdirectory",
		"00000000000000000600.log", "dangling", "00000000000000000700.log", "99999999999999999999.log", "09223372036854775808.log",
		"0000000000000000012.log",
		"00000000000000000012.logx", "0000000000000000001x.log", "00000000000000000012.cut.x", "pipe" };
	enum { NAMES = sizeof(names) / sizeof(names[0]) };
	int files;
	char *lines;

	make_log(formats[_i % FORMATS], _i / FORMATS == 0 ? 10 : 0, 64);
	put_foreign();
	files = logkit_count_files(&kit, "");
	logkit_catch_lines();
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_int_eq(count_lines(lines), NAMES);
	for (size_t i = 0; i < NAMES; i++) {
		char wanted[128];

		snprintf(wanted, sizeof(wanted), "t-0/%s does not belong to this log", names[i]);
		ck_assert_msg(strstr(lines, wanted) != NULL, "%s in\n%s", names[i], lines);
	}
	free(lines);
	ck_assert_int_eq(logkit_count_files(&kit, ""), files);
	ck_assert_int_eq(partition_segments(kit.p), 1);
	logkit_append(&kit, 3, 64);
	logkit_reopen(&kit);
	ck_assert_int_eq(logkit_count_files(&kit, ""), files);
	ck_assert_int_eq(partition_log_end(kit.p), _i / FORMATS == 0 ? 13 : 3);
	logkit_expect(&kit, 0, partition_log_end(kit.p), 64);
	logkit_end(&kit);
}
END_TEST

START_TEST(our_own_leftovers)
{
	char name[LOGKIT_PATH_BYTES];
	char *lines;

	make_log(RECORD_CRC32C, 10, 64);
	logkit_file_path(&kit, "00000000000000000010.log.tmp", name);
	logkit_write_file(name, "half a batch", 12);
	logkit_file_path(&kit, "00000000000000000000.cut.tmp", name);
	logkit_write_file(name, "half a copy", 11);
	logkit_file_path(&kit, "00000000000000000000.cut", name);
	logkit_write_file(name, "a copy", 6);
	logkit_file_path(&kit, "00000000000000000000.cut.17", name);
	logkit_write_file(name, "a copy", 6);
	logkit_catch_lines();
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_str_eq(lines, "");
	free(lines);
	ck_assert_int_eq(logkit_count_files(&kit, ".tmp"), 0);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 1);
	ck_assert_int_eq(logkit_count_files(&kit, ".17"), 1);
	ck_assert_int_eq(partition_log_end(kit.p), 10);
	logkit_end(&kit);
}
END_TEST

/* ---- empty segments ---- */

/* As the log's write mode leaves it. */
static void
put_empty(int64_t base)
{
	char name[LOGKIT_PATH_BYTES];

	logkit_segment_path(&kit, base, name);
	logkit_write_file(name, "", 0);
	if (kit.settings.mapped)
		logkit_truncate(name, kit.settings.segment_bytes);
}

START_TEST(an_empty_segment_at_the_end_is_the_active_one)
{
	make_log(formats[_i], 10, 64);
	put_empty(10);
	put_empty(11);
	logkit_segment_path(&kit, 3, path);
	logkit_write_file(path, "", 0);
	logkit_open(&kit);
	ck_assert_int_eq(partition_segments(kit.p), 2);
	ck_assert_int_eq(partition_log_start(kit.p), 0);
	ck_assert_int_eq(partition_log_end(kit.p), 10);
	logkit_append(&kit, 5, 64);
	logkit_expect(&kit, 0, 15, 64);
	logkit_segment_path(&kit, 10, path);
	logkit_expect_file_end(&kit, path, 5 * (header() + 64));
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 15, 64);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_lone_empty_segment_is_a_log_that_ends_there)
{
	make_log(RECORD_CRC32C, 0, 0);
	ck_assert_int_eq(unlink(path), 0);
	put_empty(500);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_start(kit.p), 500);
	ck_assert_int_eq(partition_log_end(kit.p), 500);
	logkit_append(&kit, 2, 64);
	logkit_reopen(&kit);
	ck_assert_int_eq(partition_log_start(kit.p), 500);
	logkit_expect(&kit, 500, 502, 64);
	logkit_end(&kit);
}
END_TEST

/* Another process writes the record to the empty segment at the last moment before it is opened. */
static uint8_t *late_record;
static int late_opens;		/* before it does */
static int (*below_open)(int dir_fd, const char *name, int flags, mode_t mode);

static int
late_open(int dir_fd, const char *name, int flags, mode_t mode)
{
	if (strcmp(name, "00000000000000000010.log") == 0 && late_opens-- == 0)
		logkit_change(path, 0, late_record, 72);
	return below_open(dir_fd, name, flags, mode);
}

START_TEST(an_empty_segment_that_is_written_meanwhile_is_refused)
{
	size_t bytes;

	make_log(RECORD_CRC32C, 10, 64);
	late_record = logkit_read_file(path, &bytes);
	put_empty(10);
	logkit_segment_path(&kit, 10, path);
	/* In mapped mode it is a file of zeros, which are read first. */
	late_opens = kit.settings.mapped ? 1 : 0;
	below_open = syscalls.open;
	syscalls.open = late_open;
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "0010.log: changed while it was being opened"));
	syscalls.open = below_open;
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 11);
	free(late_record);
	logkit_end(&kit);
}
END_TEST

START_TEST(of_several_empty_segments_the_watermark_chooses)
{
	make_log(RECORD_CRC32C, 0, 0);
	put_empty(500);
	put_empty(900);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 0);
	logkit_close(&kit);
	kit.known.published_end = 500;
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_start(kit.p), 500);
	ck_assert_int_eq(partition_log_end(kit.p), 500);
	logkit_close(&kit);
	kit.known.published_end = 901;
	logkit_refused(&kit);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 3);
	logkit_end(&kit);
}
END_TEST

/* The last segment was just sealed, the active one is empty, and a byte of the sealed one flips (length or payload). */
START_TEST(bug_A13_damage_in_the_segment_before_an_empty_active_one)
{
	bool in_length = _i == 0;

	make_log(RECORD_CRC32C, 10, 64);
	put_empty(10);
	logkit_flip(path, 4 * 72 + (in_length ? 0 : 30));
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 10);
	ck_assert_int_eq(logkit_file_bytes(path), 10 * 72);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 0);
	logkit_append(&kit, 2, 64);
	logkit_expect(&kit, 0, 4, 64);
	logkit_expect(&kit, 10, 12, 64);
	if (in_length)
		logkit_expect_broken(&kit, 4, 10);
	else
		logkit_expect(&kit, 5, 10, 64);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_torn_segment_with_an_empty_one_too_far_behind_is_cut)
{
	size_t bytes;
	uint8_t *whole;

	make_log(formats[_i], 10, 64);
	put_empty(11);
	put_empty(500);
	whole = logkit_read_file(path, &bytes);
	/* One byte is left of record 9: 11 cannot be where it ends. */
	expect_recovered(whole, 9 * ((size_t)header() + 64) + 5, 9, 64);
	ck_assert_int_eq(partition_segments(kit.p), 1);
	free(whole);
	logkit_end(&kit);
}
END_TEST

/* The last record is whole with a wrong sum; an empty segment stands where its bytes could lead, but do not. */
START_TEST(a_damaged_last_record_with_an_empty_segment_behind_a_gap)
{
	make_log(RECORD_CRC32C, 10, 64);
	put_empty(12);
	logkit_flip(path, 9 * 72 + 30);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 9);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 1);
	logkit_append(&kit, 5, 64);
	logkit_expect(&kit, 0, 14, 64);
	logkit_end(&kit);
}
END_TEST

/* Each start finds a log of [first, end), of which all from `broken` on gives an error, and changes nothing at `path`; then the log
 * goes on. */
static void
expect_starts(int64_t first, int64_t broken, int64_t end)
{
	int64_t bytes = logkit_file_bytes(path);

	for (int start = 0; start < 3; start++) {
		logkit_open(&kit);
		ck_assert_int_eq(partition_log_start(kit.p), first);
		ck_assert_int_eq(partition_log_end(kit.p), end);
		ck_assert_int_eq(logkit_file_bytes(path), bytes);
		logkit_expect(&kit, first, broken, 64);
		logkit_expect_broken(&kit, broken, end);
		logkit_close(&kit);
	}
	logkit_open(&kit);
	logkit_append(&kit, 2, 64);
	logkit_expect(&kit, end, end + 2, 64);
	logkit_end(&kit);
}

/*
 * A sealed segment is cut short, and nothing of the last one is valid, or nothing has been written into it yet: the start goes on
 * at its offset. So does the next one, although no record leads there; the list knows.
 */
START_TEST(bug_A13_an_emptied_last_segment_behind_damage_stays_the_active_one)
{
	char last[LOGKIT_PATH_BYTES];

	logkit_begin(&kit, RECORD_CRC32C, 1024);
	logkit_open(&kit);
	logkit_append(&kit, 16, 64);
	logkit_close(&kit);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 2);
	logkit_segment_path(&kit, 0, path);
	logkit_segment_path(&kit, 14, last);
	logkit_truncate(path, 3 * 72 + (_i & 1) * 5);
	logkit_write_file(last, "\xff\xff\xff\xff garbage", _i < 2 ? 12 : 0);
	expect_starts(0, 3, 14);
}
END_TEST

/* Segments of 14 records were sealed, the last one is at `path`, and an empty one follows; the list knows. */
static void
make_sealed_and_empty(int count)
{
	logkit_begin(&kit, RECORD_CRC32C, 1024);
	logkit_open(&kit);
	logkit_append(&kit, count, 64);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_close(&kit);
	logkit_segment_path(&kit, count - 14, path);
}

static void
lose(const char *file, bool gone)
{
	if (gone)
		ck_assert_int_eq(unlink(file), 0);
	else
		logkit_truncate(file, 0);
}

/* Of all that was written nothing is left: what the list knows is not given out again. */
START_TEST(bug_A13_offsets_that_the_list_knows_are_not_given_out_again)
{
	char last[LOGKIT_PATH_BYTES];

	make_sealed_and_empty(14);
	logkit_segment_path(&kit, 14, last);
	lose(path, _i & 1);
	lose(last, _i & 2);
	expect_starts(14, 14, 14);
}
END_TEST

/* The second of two sealed segments is emptied or gone, the active one empty or gone: the list knows where it began. */
START_TEST(bug_A13_offsets_of_a_lost_last_segment_are_not_given_out_again)
{
	char last[LOGKIT_PATH_BYTES];

	make_sealed_and_empty(28);
	logkit_segment_path(&kit, 28, last);
	lose(path, _i & 1);
	lose(last, _i & 2);
	expect_starts(0, 14, 28);
}
END_TEST

/*
 * The last sealed segment is emptied, cut short or overwritten, the active one is empty, and the list has lost its last entry, or
 * is gone: the segment's index knows where it was sealed. `_i`: which list; which damage.
 */
START_TEST(bug_A13_an_index_knows_where_a_damaged_last_segment_was_sealed)
{
	char list[LOGKIT_PATH_BYTES];

	make_sealed_and_empty(28);
	logkit_file_path(&kit, "sealed.list", list);
	if (_i % 2 == 0)
		ck_assert_int_eq(unlink(list), 0);
	else
		logkit_truncate(list, logkit_file_bytes(list) - 36);
	if (_i / 2 == 2)
		logkit_write_file(path, "\xff\xff\xff\xff garbage", 12);
	else
		logkit_truncate(path, _i / 2 == 1 ? 3 * 72 + 5 : 0);
	expect_starts(0, _i / 2 == 1 ? 17 : 14, 28);
}
END_TEST

/* Two segments behind the last one that is there are gone, and the list with them: their indexes tell where the log ended. */
START_TEST(bug_A13_indexes_of_lost_segments_tell_where_the_log_ended)
{
	logkit_begin(&kit, RECORD_CRC32C, 1024);
	logkit_open(&kit);
	logkit_append(&kit, 30, 64);
	logkit_reopen(&kit);
	logkit_close(&kit);
	logkit_remove_list(&kit);
	for (int64_t base = 14; base <= 28; base += 14) {
		logkit_segment_path(&kit, base, path);
		ck_assert_int_eq(unlink(path), 0);
	}
	/* This one tells nothing, and could come to fit. */
	logkit_file_path(&kit, "00000000000000000042.index", path);
	logkit_write_file(path, "an orphan", 9);
	for (int start = 0; start < 3; start++) {
		logkit_open(&kit);
		ck_assert_int_eq(partition_log_end(kit.p), 30);
		ck_assert_int_eq(logkit_count_files(&kit, ".index"), 3);
		logkit_expect_broken(&kit, 14, 30);
		logkit_close(&kit);
	}
	/* What has told that goes when the log itself does. */
	logkit_open(&kit);
	logkit_append(&kit, 1, 64);
	logkit_reopen(&kit);
	logkit_reopen(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 31);
	ck_assert_int_eq(logkit_count_files(&kit, ".index"), 2);
	logkit_end(&kit);
}
END_TEST

/*
 * The active segment is gone, and a file stands among the offsets of the sealed one: with the segment that is made now the list
 * tells that it is foreign, at the first start as at all others. `_i`: the sealed one is whole; it is empty.
 */
START_TEST(bug_A13_a_file_among_sealed_offsets_is_foreign_at_once)
{
	char among[LOGKIT_PATH_BYTES], last[LOGKIT_PATH_BYTES];

	make_sealed_and_empty(14);
	logkit_segment_path(&kit, 9, among);
	logkit_segment_path(&kit, 14, last);
	ck_assert_int_eq(unlink(last), 0);
	logkit_write_file(among, "\xff\xff\xff\xff garbage", 12);
	if (_i == 1)
		logkit_truncate(path, 0);
	for (int start = 0; start < 3; start++) {
		logkit_open(&kit);
		ck_assert_int_eq(partition_log_start(kit.p), _i == 0 ? 0 : 14);
		ck_assert_int_eq(partition_log_end(kit.p), 14 + start);
		logkit_expect(&kit, _i == 0 ? 0 : 14, 14 + start, 64);
		logkit_append(&kit, 1, 64);
		ck_assert_int_eq(logkit_file_bytes(among), 12);
		logkit_close(&kit);
	}
	logkit_end(&kit);
}
END_TEST

/* Nothing is left of list and sealed segment, and nothing valid of the last one: where one start goes on so do the others. */
START_TEST(bug_A13_a_start_without_a_list_notes_where_the_log_begins)
{
	static const uint8_t zeros[36];
	char last[LOGKIT_PATH_BYTES], list[LOGKIT_PATH_BYTES];

	make_sealed_and_empty(14);
	logkit_segment_path(&kit, 14, last);
	logkit_file_path(&kit, "sealed.list", list);
	logkit_truncate(path, 0);
	logkit_write_file(last, "\xff\xff\xff\xff garbage", 12);
	if (_i == 0)
		ck_assert_int_eq(unlink(list), 0);
	else if (_i == 1)
		logkit_write_file(list, "garbage", 7);
	else
		/* Its header, and nothing behind that. */
		logkit_change(list, 16, zeros, sizeof(zeros));
	for (int start = 0; start < 3; start++) {
		logkit_open(&kit);
		ck_assert_int_eq(partition_log_end(kit.p), 14);
		logkit_close(&kit);
	}
	logkit_end(&kit);
}
END_TEST

START_TEST(an_empty_segment_ahead_tells_no_format)
{
	uint8_t *whole;
	size_t bytes;

	make_log(RECORD_CRC32C, 1, 64);
	whole = logkit_read_file(path, &bytes);
	logkit_truncate(path, 0);
	logkit_segment_path(&kit, 5, path);
	logkit_write_file(path, whole, 40);
	free(whole);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_start(kit.p), 5);
	ck_assert_int_eq(partition_log_end(kit.p), 5);
	logkit_end(&kit);
}
END_TEST

START_TEST(what_cannot_be_opened_says_why)
{
	char name[LOGKIT_PATH_BYTES];

	logkit_begin(&kit, RECORD_CRC32C, 1000);
	logkit_write_file(kit.path, "a file", 6);
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "cannot open its directory: Not a directory"));
	ck_assert_int_eq(unlink(kit.path), 0);
	ck_assert_int_eq(symlink("nowhere", kit.path), 0);
	logkit_refused(&kit);
	ck_assert_int_eq(unlink(kit.path), 0);
	logkit_open(&kit);
	logkit_append(&kit, 1, 10);
	logkit_close(&kit);
	logkit_segment_path(&kit, 0, name);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = EIO, .sticky = true });
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "t-0/00000000000000000000.log: cannot read: "
	    "Input/output error"));
	logkit_clear_fault();
	logkit_open(&kit);
	logkit_end(&kit);
}
END_TEST

/* No room for a new log's directory, or its file, or for the copy of what must be cut: that is tried again. `_i`: which. */
START_TEST(bug_B12_a_full_disk_keeps_a_log_closed_only_as_long_as_it_is_full)
{
	const enum logkit_call calls[] = { CALL_MKDIR, CALL_FCHMOD, CALL_FCHMOD };

	if (_i < 2) {
		logkit_begin(&kit, RECORD_CRC32C, 1000);
	} else {
		make_log(RECORD_CRC32C, 3, 64);
		logkit_flip(path, 20);
	}
	logkit_set_fault((struct logkit_fault){ .call = calls[_i], .at = 1, .error = ENOSPC });
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "No space left on device"));
	ck_assert_ptr_null(strstr(kit.opened.why, "stays closed until"));
	ck_assert(kit.opened.short_of);
	logkit_clear_fault();
	logkit_open(&kit);
	logkit_end(&kit);
}
END_TEST

/* Any bytes at all behind a good prefix: opens, keeps the prefix, and a second opening finds nothing to do. */
START_TEST(random_damage_keeps_the_prefix)
{
	unsigned seed = (unsigned)time(NULL) * 2 + (unsigned)getpid();
	size_t bytes, record = 64 + 8;
	uint8_t *whole;

	printf("random_damage_keeps_the_prefix: seed %u\n", seed);
	fflush(stdout);
	srand(seed);
	make_log(RECORD_CRC32C, 20, 64);
	whole = logkit_read_file(path, &bytes);
	logkit_catch_lines();
	for (int round = 0; round < 300 / unit_sample(); round++) {
		uint8_t *damaged = malloc(bytes);
		size_t from = record + (size_t)rand() % (bytes - record);
		size_t to = from + 1 + (size_t)rand() % 100;
		int64_t end;

		memcpy(damaged, whole, bytes);
		for (size_t i = from; i < to && i < bytes; i++)
			damaged[i] = round % 3 == 0 ? 0 : (uint8_t)rand();
		logkit_write_file(path, damaged, bytes - (round % 2 == 0 ? 0 : (size_t)rand() % 100));
		logkit_remove_index(&kit, 0);
		logkit_open(&kit);
		end = partition_log_end(kit.p);
		ck_assert_int_ge(end, (int64_t)(from / record) - 2);
		logkit_expect(&kit, 0, end, 64);
		logkit_append(&kit, 1, 64);
		logkit_reopen(&kit);
		ck_assert_int_eq(partition_log_end(kit.p), end + 1);
		ck_assert_int_eq(kit.opened.truncated_bytes, 0);
		logkit_close(&kit);
		free(damaged);
	}
	free(logkit_caught_lines());
	free(whole);
	logkit_end(&kit);
}
END_TEST

static void
add_tests(TCase *tests)
{
	tcase_add_loop_test(tests, A11_last_record_torn_at_every_byte, 0, 2 * FORMATS);
	tcase_add_test(tests, A11_only_record_torn_where_a_sector_begins);
	tcase_add_test(tests, A11_only_record_torn_but_for_its_last_bytes);
	tcase_add_test(tests, A11_nothing_comes_back_from_the_dead);
	tcase_add_test(tests, a_copy_that_root_makes_is_the_owners);
	tcase_add_test(tests, a_copy_that_cannot_be_given_away);
	tcase_add_test(tests, a_copy_is_made_once_and_whole);
	tcase_add_loop_test(tests, bug_A2_every_length_of_the_last_segment, 0, FORMATS);
	tcase_add_loop_test(tests, bug_A5_impossible_lengths, 0, FORMATS);
	tcase_add_test(tests, bug_A21_second_page_of_the_last_record_zeroed);
	tcase_add_test(tests, zeros_behind_the_end_are_no_content);
	tcase_add_test(tests, A19_what_is_cut_is_copied_aside);
	tcase_add_test(tests, a_length_that_swallows_good_records_is_copied_aside);
	tcase_add_loop_test(tests, a_large_torn_record, 0, FORMATS);
	tcase_add_test(tests, recovered_is_forced_in_order);
	tcase_add_test(tests, a_new_log_is_forced_up_to_the_directory_above);
	tcase_add_test(tests, plain_cuts_an_incomplete_tail_only);
	tcase_add_loop_test(tests, a_log_shorter_than_published_stays_closed, 0, FORMATS);
	tcase_add_loop_test(tests, the_other_format_is_refused, 0, FORMATS);
	tcase_add_loop_test(tests, the_other_format_is_refused_with_a_torn_end, 0, FORMATS);
	tcase_add_test(tests, one_record_in_crc32c_is_refused_as_plain);
	tcase_add_test(tests, one_record_in_plain_is_refused_as_crc32c);
	tcase_add_loop_test(tests, sealed_segments_tell_the_format, 0, 2 * FORMATS);
	tcase_add_test(tests, a_sum_that_a_client_made_up_does_not_close_a_plain_log);
	tcase_add_test(tests, a_damaged_first_record_is_not_the_other_format);
	tcase_add_loop_test(tests, bug_A8_foreign_entries_are_reported_once_and_left_alone, 0, 2 * FORMATS);
	tcase_add_test(tests, our_own_leftovers);
	tcase_add_loop_test(tests, an_empty_segment_at_the_end_is_the_active_one, 0, FORMATS);
	tcase_add_test(tests, a_lone_empty_segment_is_a_log_that_ends_there);
	tcase_add_test(tests, an_empty_segment_that_is_written_meanwhile_is_refused);
	tcase_add_test(tests, of_several_empty_segments_the_watermark_chooses);
	tcase_add_loop_test(tests, bug_A13_damage_in_the_segment_before_an_empty_active_one, 0, 2);
	tcase_add_loop_test(tests, a_torn_segment_with_an_empty_one_too_far_behind_is_cut, 0, FORMATS);
	tcase_add_test(tests, a_damaged_last_record_with_an_empty_segment_behind_a_gap);
	tcase_add_loop_test(tests, bug_A13_an_emptied_last_segment_behind_damage_stays_the_active_one, 0, 4);
	tcase_add_loop_test(tests, bug_A13_offsets_that_the_list_knows_are_not_given_out_again, 0, 4);
	tcase_add_loop_test(tests, bug_A13_offsets_of_a_lost_last_segment_are_not_given_out_again, 0, 4);
	tcase_add_loop_test(tests, bug_A13_an_index_knows_where_a_damaged_last_segment_was_sealed, 0, 6);
	tcase_add_test(tests, bug_A13_indexes_of_lost_segments_tell_where_the_log_ended);
	tcase_add_loop_test(tests, bug_A13_a_file_among_sealed_offsets_is_foreign_at_once, 0, 2);
	tcase_add_loop_test(tests, bug_A13_a_start_without_a_list_notes_where_the_log_begins, 0, 3);
	tcase_add_test(tests, an_empty_segment_ahead_tells_no_format);
	tcase_add_test(tests, what_cannot_be_opened_says_why);
	tcase_add_loop_test(tests, bug_B12_a_full_disk_keeps_a_log_closed_only_as_long_as_it_is_full, 0, 3);
	tcase_add_test(tests, random_damage_keeps_the_prefix);
}

int
main(void)
{
	Suite *suite = suite_create("recovery");
	TCase *file = tcase_create("file"), *mapped = tcase_create("mapped");

	tcase_set_timeout(file, 60);
	tcase_set_timeout(mapped, 60);
	tcase_add_checked_fixture(file, logkit_file_mode, NULL);
	tcase_add_checked_fixture(mapped, logkit_mapped_mode, NULL);
	suite_add_tcase(suite, file);
	suite_add_tcase(suite, mapped);
	add_tests(file);
	add_tests(mapped);
	return unit_run(suite);
}
