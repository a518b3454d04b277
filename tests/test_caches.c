/*
 * Stored indexes and the list of sealed segments at work: when they are written, what recovery and lookup make of them, of
 * missing, damaged, foreign and stale ones; and that a log works on when none can be written.
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

#include "common/clock.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/index_file.h"
#include "worker/retention.h"
#include "worker/sealed_list.h"
#include "worker/segment.h"
#include "worker/stop_marker.h"

static const enum record_format formats[] = { RECORD_PLAIN, RECORD_CRC32C };
enum { FORMATS = 2, MIB = 1024 * 1024 };

static struct logkit kit;

static int64_t
header(void)
{
	return (int64_t)record_header_bytes(kit.settings.record_format);
}

static void
index_path(int64_t base, char *path)
{
	char name[SEGMENT_NAME_BYTES];

	index_file_name(name, base);
	logkit_file_path(&kit, name, path);
}

/* What is stored of a segment; bytes 0: nothing that is valid. */
static struct index_file
stored(int64_t base)
{
	struct index_file file;
	struct index index;
	int dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	index_init(&index, 1);
	index_file_read(dir_fd, base, kit.settings.record_format, &index, &file, NULL);
	index_free(&index);
	close(dir_fd);
	return file;
}

static int64_t
stored_end(int64_t base)
{
	return stored(base).point.end;
}

/* Of a log that is open: what a process that is killed leaves. */
static void
kill_and_open(void)
{
	logkit_reopen(&kit);
}

static int
count_lines(const char *lines)
{
	int count = 0;

	for (; *lines != '\0'; lines++)
		count += *lines == '\n';
	return count;
}

/* Opens; there must be one line, with these texts in it. */
static void
open_with_line(const char *text, const char *and_text)
{
	char *lines;

	logkit_catch_lines();
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_msg(count_lines(lines) == 1 && strstr(lines, text) != NULL && strstr(lines, and_text) != NULL, "%s", lines);
	free(lines);
}

static void
open_silently(void)
{
	char *lines;

	logkit_catch_lines();
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_str_eq(lines, "");
	free(lines);
}

/* A log of one segment with `forced` records of 100 bytes and a recovery point, and `more` behind it; closed. */
static void
make_log(enum record_format format, int forced, int more)
{
	logkit_begin(&kit, format, 1 << 24);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_try_append(&kit, forced, 100), 0);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_eq(stored_end(0), forced);
	if (more > 0)
		ck_assert_int_eq(logkit_try_append(&kit, more, 100), 0);
	logkit_close(&kit);
}

/* ---- when points are stored ---- */

START_TEST(a_point_follows_the_durable_end_by_time)
{
	int64_t now_ns = clock_now_ns();

	logkit_begin(&kit, formats[_i], 1 << 24);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_upkeep_at(&kit, 0, now_ns), 0);
	ck_assert_int_eq(stored(0).bytes, 0);
	logkit_append(&kit, 3, 100);
	/* Written is not durable. */
	ck_assert_int_eq(logkit_upkeep_at(&kit, 0, now_ns), 0);
	ck_assert_int_eq(stored(0).bytes, 0);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_append(&kit, 2, 100);
	ck_assert_int_eq(logkit_upkeep_at(&kit, 0, now_ns), 0);
	ck_assert_int_eq(stored_end(0), 3);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	ck_assert_int_eq(logkit_upkeep_at(&kit, 0, now_ns + 4999 * (int64_t)CLOCK_NS_PER_MS), 0);
	ck_assert_int_eq(stored_end(0), 3);
	ck_assert_int_eq(logkit_upkeep_at(&kit, 0, now_ns + 5000 * (int64_t)CLOCK_NS_PER_MS), 0);
	ck_assert_int_eq(stored_end(0), 5);
	/* Nothing new: nothing is written. */
	logkit_trace_caches();
	ck_assert_int_eq(logkit_upkeep_at(&kit, 0, now_ns + 50000 * (int64_t)CLOCK_NS_PER_MS), 0);
	ck_assert_str_eq(logkit_trace(), "");
	logkit_end(&kit);
}
END_TEST

START_TEST(a_point_follows_the_durable_end_by_bytes)
{
	int64_t now_ns = clock_now_ns();

	logkit_begin(&kit, RECORD_CRC32C, 128 * MIB);
	logkit_open(&kit);
	logkit_append(&kit, 1, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	ck_assert_int_eq(logkit_upkeep_at(&kit, 0, now_ns), 0);
	ck_assert_int_eq(stored_end(0), 1);
	for (int i = 1; i <= 40; i++) {
		logkit_append(&kit, 1, MIB - 8);
		ck_assert_int_eq(logkit_barrier(&kit), 0);
		ck_assert_int_eq(logkit_upkeep_at(&kit, 0, now_ns), 0);
		ck_assert_int_eq(stored_end(0), 1 + i / 16 * 16);
	}
	logkit_reopen(&kit);
	ck_assert_int_eq(stored_end(0), 41);
	logkit_expect(&kit, 0, 1, 100);
	logkit_expect(&kit, 1, 41, MIB - 8);
	logkit_end(&kit);
}
END_TEST

/* A point is written behind the force that it speaks of, and is never forced. */
START_TEST(the_order_of_a_point)
{
	logkit_begin(&kit, RECORD_CRC32C, 1000);
	logkit_open(&kit);
	logkit_append(&kit, 3, 100);
	logkit_trace_caches();
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_str_eq(logkit_trace(), "force 00000000000000000000.log;create 00000000000000000000.index.tmp;"
	    "write 00000000000000000000.index.tmp;rename 00000000000000000000.index;");
	logkit_append(&kit, 1, 100);
	logkit_trace_caches();
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	ck_assert_str_eq(logkit_trace(), "force 00000000000000000000.log;create 00000000000000000004.log.tmp;"
	    "force 00000000000000000004.log.tmp;rename 00000000000000000004.log;fsync t-0;write 00000000000000000000.index;"
	    "create sealed.list.tmp;write sealed.list.tmp;rename sealed.list;");
	ck_assert_int_eq(stored_end(0), 4);
	ck_assert_int_eq(stored(4).bytes, 0);
	logkit_end(&kit);
}
END_TEST

START_TEST(every_segment_of_a_large_batch_has_its_index)
{
	logkit_begin(&kit, formats[_i], 1000);
	logkit_open(&kit);
	for (int round = 0; round < 2; round++) {
		int64_t base = partition_log_end(kit.p);

		ck_assert_int_eq(logkit_try_append(&kit, 40, 100), 0);
		/* Nine fit a segment. */
		for (int64_t at = base; at < base + 36; at += 9)
			ck_assert_int_eq(stored_end(at), at + 9);
		ck_assert_int_eq(stored_end(base + 36), base + 40);
		logkit_append(&kit, 1, 100);
	}
	logkit_set_fault((struct logkit_fault){ .aim = LOGKIT_AT_CACHES });
	logkit_expect(&kit, 0, partition_log_end(kit.p), 100);
	ck_assert_int_eq(logkit_calls(CALL_PWRITE), 0);
	kill_and_open();
	logkit_expect(&kit, 0, partition_log_end(kit.p), 100);
	logkit_end(&kit);
}
END_TEST

/* ---- recovery ---- */

START_TEST(bug_A19_damage_behind_the_recovery_point_is_cut)
{
	char path[LOGKIT_PATH_BYTES];

	make_log(RECORD_CRC32C, 1000, 100);
	logkit_segment_path(&kit, 0, path);
	logkit_flip(path, 1050 * 108 + 50);
	open_with_line("cutting 5400 bytes", "offset 1050");
	ck_assert_int_eq(partition_log_end(kit.p), 1050);
	ck_assert_int_eq(logkit_file_bytes(path), 1050 * 108);
	logkit_expect(&kit, 0, 1050, 100);
	ck_assert_int_eq(stored_end(0), 1050);
	logkit_append(&kit, 10, 100);
	kill_and_open();
	logkit_expect(&kit, 0, 1060, 100);
	logkit_end(&kit);
}
END_TEST

/* `_i`: at which record; in its length or in its payload. */
START_TEST(bug_A19_damage_ahead_of_the_recovery_point_stays)
{
	int64_t records[] = { 0, 1, 37, 500, 998, 999 };
	int64_t bad = records[_i / 2];
	bool in_length = _i % 2 == 0;
	char path[LOGKIT_PATH_BYTES];
	char *lines;

	/* The length of the last record ahead of the point is what the point is known by: see below. */
	if (in_length && bad == 999)
		return;
	make_log(RECORD_CRC32C, 1000, 100);
	logkit_segment_path(&kit, 0, path);
	logkit_flip(path, bad * 108 + (in_length ? 0 : 50));
	open_silently();
	ck_assert_int_eq(partition_log_end(kit.p), 1100);
	ck_assert_int_eq(kit.opened.truncated_bytes, 0);
	ck_assert_int_eq(logkit_file_bytes(path), 1100 * 108);
	ck_assert_int_eq(logkit_count_files(&kit, ""), 1);
	logkit_expect(&kit, 0, bad, 100);
	logkit_append(&kit, 10, 100);
	logkit_expect(&kit, bad + 1 + (in_length ? 38 : 0), 1110, 100);
	if (in_length) {
		/* Until the next mark: one in 38 records has one. */
		logkit_catch_lines();
		logkit_expect_broken(&kit, bad, bad + 1);
		logkit_expect_broken(&kit, bad, bad + 1);
		lines = logkit_caught_lines();
		ck_assert_int_eq(count_lines(lines), 1);
		ck_assert_ptr_nonnull(strstr(lines, "t-0/00000000000000000000.log: damaged at position"));
		free(lines);
	}
	kill_and_open();
	ck_assert_int_eq(partition_log_end(kit.p), 1110);
	ck_assert_int_eq(logkit_file_bytes(path), 1110 * 108);
	logkit_end(&kit);
}
END_TEST

/* The point is recognised by the last record ahead of it. Without it, it might be the point of another log. */
START_TEST(a_point_whose_last_record_has_another_header_is_not_believed)
{
	char path[LOGKIT_PATH_BYTES];

	make_log(formats[_i], 1000, 100);
	logkit_segment_path(&kit, 0, path);
	logkit_flip(path, 999 * (100 + header()));
	logkit_catch_lines();
	logkit_open(&kit);
	free(logkit_caught_lines());
	ck_assert_int_eq(partition_log_end(kit.p), 999);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 1);
	ck_assert_int_eq(stored_end(0), 999);
	logkit_append(&kit, 1, 100);
	kill_and_open();
	logkit_expect(&kit, 0, 1000, 100);
	logkit_end(&kit);
}
END_TEST

/* Recovery reads what is behind the point, however much is ahead of it. */
START_TEST(recovery_starts_at_the_point)
{
	int reads;

	make_log(formats[_i], 100000, 10);
	logkit_set_fault((struct logkit_fault){ 0 });
	open_silently();
	reads = logkit_calls(CALL_PREAD);
	ck_assert_int_le(reads, 4);
	logkit_expect(&kit, 99990, 100010, 100);
	logkit_expect(&kit, 0, 100, 100);
	logkit_append(&kit, 10, 100);
	logkit_expect(&kit, 100000, 100020, 100);
	logkit_end(&kit);
}
END_TEST

/* Every start stores what it has found, so that the next one need not look for it again. */
START_TEST(a_start_stores_what_it_has_recovered)
{
	make_log(formats[_i], 10, 20);
	open_silently();
	ck_assert_int_eq(stored_end(0), 30);
	logkit_append(&kit, 5, 100);
	kill_and_open();
	ck_assert_int_eq(stored_end(0), 35);
	kill_and_open();
	ck_assert_uint_eq(stored(0).chunks, 3);
	logkit_expect(&kit, 0, 35, 100);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A2_a_file_shorter_than_its_recovery_point)
{
	for (int64_t lost = 0; lost < 300; lost += unit_sample()) {
		char path[LOGKIT_PATH_BYTES];
		int64_t bytes, end;

		make_log(formats[_i], 100, 0);
		logkit_segment_path(&kit, 0, path);
		bytes = logkit_file_bytes(path) - lost;
		logkit_truncate(path, bytes);
		end = bytes / (100 + header());
		logkit_catch_lines();
		logkit_open(&kit);
		if (lost > 0) {
			char *lines = logkit_caught_lines();
			char wanted[128];

			snprintf(wanted, sizeof(wanted), "forced to disk up to offset 100, but ends at %" PRId64, end);
			ck_assert_msg(strstr(lines, wanted) != NULL, "%s in %s", wanted, lines);
			free(lines);
		} else {
			free(logkit_caught_lines());
		}
		ck_assert_int_eq(partition_log_end(kit.p), end);
		ck_assert_int_eq(stored_end(0), end);
		logkit_append(&kit, 3, 100);
		kill_and_open();
		logkit_expect(&kit, 0, end + 3, 100);
		logkit_end(&kit);
	}
}
END_TEST

/* It could come to fit again: so it is gone, durably, before anything is cut or appended. */
START_TEST(a_wrong_index_is_removed_before_the_cut)
{
	char path[LOGKIT_PATH_BYTES];

	make_log(RECORD_CRC32C, 100, 0);
	logkit_segment_path(&kit, 0, path);
	logkit_truncate(path, 99 * 108 + 50);
	logkit_trace_caches();
	logkit_open(&kit);
	ck_assert_ptr_eq(strstr(logkit_trace(), "unlink 00000000000000000000.index;fsync t-0;"
	    "truncate 00000000000000000000.log;force 00000000000000000000.log;"), logkit_trace());
	logkit_end(&kit);
}
END_TEST

START_TEST(a_wrong_index_that_cannot_be_removed_closes_the_log)
{
	char path[LOGKIT_PATH_BYTES];

	for (int call = CALL_FSYNC; call <= CALL_UNLINK; call++) {
		if (call != CALL_FSYNC && call != CALL_UNLINK)
			continue;
		make_log(RECORD_CRC32C, 100, 0);
		logkit_segment_path(&kit, 0, path);
		logkit_truncate(path, 99 * 108 + 50);
		logkit_set_fault((struct logkit_fault){ .call = call, .at = 1, .error = EIO, .sticky = true,
		    .aim = LOGKIT_AT_ALL });
		logkit_refused(&kit);
		logkit_clear_fault();
		ck_assert_int_eq(logkit_file_bytes(path), 99 * 108 + 50);
		logkit_open(&kit);
		logkit_expect(&kit, 0, 99, 100);
		logkit_end(&kit);
	}
}
END_TEST

/* The directory was restored from a copy, or files were moved: an index of another log, of the same shape or not. */
START_TEST(an_index_of_another_log)
{
	int sizes[] = { 100, 100, 101, 50 };
	char path[LOGKIT_PATH_BYTES];
	uint8_t *index;
	size_t bytes;

	make_log(formats[_i % FORMATS], 1000, 0);
	index_path(0, path);
	index = logkit_read_file(path, &bytes);
	logkit_end(&kit);
	logkit_begin(&kit, formats[_i % FORMATS], 1 << 24);
	kit.known.published_end = -1;
	logkit_open(&kit);
	if (_i / FORMATS == 0)
		ck_assert_int_eq(logkit_try_append(&kit, 1, 60), 0);
	ck_assert_int_eq(logkit_try_append(&kit, 1500, (size_t)sizes[_i / FORMATS]), 0);
	logkit_close(&kit);
	index_path(0, path);
	logkit_write_file(path, index, bytes);
	free(index);
	if (_i / FORMATS == 1) {
		/* The same records, longer: it is its own. */
		open_silently();
	} else {
		open_with_line("00000000000000000000.index: it does not fit", "stored anew");
	}
	if (_i / FORMATS > 0)
		logkit_expect(&kit, 0, 1500, (size_t)sizes[_i / FORMATS]);
	ck_assert_int_eq(stored_end(0), partition_log_end(kit.p));
	logkit_end(&kit);
}
END_TEST

START_TEST(a_plain_log_is_not_opened_as_crc32c_for_an_index)
{
	const char *why;

	make_log(formats[_i], 1000, 0);
	kit.settings.record_format = formats[1 - _i];
	why = logkit_refused(&kit);
	ck_assert_ptr_nonnull(strstr(why, "nothing was changed"));
	kit.settings.record_format = formats[_i];
	ck_assert_int_eq(stored_end(0), 1000);
	open_silently();
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A6_random_bytes_in_place_of_indexes)
{
	unsigned seed = (unsigned)time(NULL) * 2 + (unsigned)getpid();
	char path[LOGKIT_PATH_BYTES];

	printf("bug_A6_random_bytes_in_place_of_indexes: seed %u\n", seed);
	fflush(stdout);
	srand(seed);
	for (int round = 0; round < 50; round += unit_sample()) {
		uint8_t garbage[3000];
		size_t size = round == 0 ? 0 : 1 + (size_t)rand() % (sizeof(garbage) - 1);
		char *lines;

		for (size_t i = 0; i < size; i++)
			garbage[i] = (uint8_t)rand();
		logkit_begin(&kit, formats[round % FORMATS], 1000);
		logkit_open(&kit);
		logkit_append(&kit, 40, 100);
		kill_and_open();
		logkit_close(&kit);
		for (int64_t base = 0; base <= 36; base += 9) {
			index_path(base, path);
			ck_assert_int_gt(logkit_file_bytes(path), 0);
			logkit_write_file(path, garbage, size);
		}
		/* The active one's is seen at start, the others when they are read. */
		open_with_line("00000000000000000036.index: it is damaged, or no index of this log", "stored anew");
		logkit_catch_lines();
		logkit_expect(&kit, 0, 40, 100);
		lines = logkit_caught_lines();
		ck_assert_int_eq(count_lines(lines), 4);
		free(lines);
		for (int64_t base = 0; base <= 36; base += 9)
			ck_assert_int_eq(stored_end(base), base == 36 ? 40 : base + 9);
		logkit_close(&kit);
		open_silently();
		logkit_catch_lines();
		logkit_expect(&kit, 0, 40, 100);
		lines = logkit_caught_lines();
		ck_assert_str_eq(lines, "");
		free(lines);
		logkit_end(&kit);
	}
}
END_TEST

/* A power cut leaves of the index what it will; the log was forced. */
START_TEST(an_index_cut_or_zeroed_at_any_byte)
{
	char path[LOGKIT_PATH_BYTES], log_path[LOGKIT_PATH_BYTES];
	uint8_t *whole, *log;
	size_t bytes, log_bytes;

	make_log(RECORD_CRC32C, 200, 0);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_try_append(&kit, 100, 100), 0);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	logkit_close(&kit);
	ck_assert_uint_eq(stored(0).chunks, 2);
	index_path(0, path);
	logkit_segment_path(&kit, 0, log_path);
	whole = logkit_read_file(path, &bytes);
	log = logkit_read_file(log_path, &log_bytes);
	for (size_t i = 0; i <= bytes; i += (size_t)unit_sample()) {
		for (int zeros = 0; zeros < 2; zeros++) {
			logkit_write_file(path, whole, i);
			if (zeros == 1)
				logkit_truncate(path, (int64_t)bytes);
			logkit_catch_lines();
			logkit_open(&kit);
			free(logkit_caught_lines());
			ck_assert_int_eq(partition_log_end(kit.p), 300);
			ck_assert_int_eq(stored_end(0), 300);
			logkit_expect(&kit, 299, 300, 100);
			logkit_append(&kit, 1, 100);
			logkit_reopen(&kit);
			logkit_expect(&kit, 0, 1, 100);
			logkit_expect(&kit, 199, 301, 100);
			logkit_close(&kit);
			logkit_write_file(log_path, log, log_bytes);
		}
	}
	free(whole);
	free(log);
	logkit_end(&kit);
}
END_TEST

START_TEST(another_index_interval_goes_on_with_what_is_stored)
{
	int64_t intervals[] = { 64, 100000, 1, 4096 };

	make_log(formats[_i], 1000, 0);
	for (int i = 0; i < 4; i++) {
		kit.settings.index_interval_bytes = intervals[i];
		open_silently();
		logkit_append(&kit, 100, 100);
		logkit_expect(&kit, 0, 1100 + i * 100, 100);
		if (i == 2)
			ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
		logkit_close(&kit);
	}
	open_silently();
	logkit_expect(&kit, 0, 1400, 100);
	logkit_end(&kit);
}
END_TEST

START_TEST(orphans_are_removed)
{
	char path[LOGKIT_PATH_BYTES];

	make_log(RECORD_CRC32C, 10, 0);
	index_path(5, path);
	logkit_write_file(path, "x", 1);
	index_path(500, path);
	logkit_write_file(path, "x", 1);
	logkit_file_path(&kit, "00000000000000000000.index.tmp", path);
	logkit_write_file(path, "x", 1);
	open_silently();
	ck_assert_int_eq(logkit_count_files(&kit, ".index"), 1);
	ck_assert_int_eq(logkit_count_files(&kit, ".tmp"), 0);
	logkit_end(&kit);
}
END_TEST

/* ---- lookup ---- */

/* A sealed segment with a stored index is not read to be opened. */
START_TEST(a_sealed_segment_is_opened_with_its_index)
{
	struct partition_place place;

	make_log(formats[_i], 100000, 0);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_reopen(&kit);
	logkit_set_fault((struct logkit_fault){ 0 });
	ck_assert_int_eq(logkit_find(&kit, 70000, &place), PARTITION_FOUND);
	ck_assert_int_eq(place.position, 70000 * (100 + header()));
	ck_assert_int_le(logkit_calls(CALL_PREAD), 5);
	logkit_expect(&kit, 0, 100, 100);
	logkit_expect(&kit, 99000, 100000, 100);
	logkit_end(&kit);
}
END_TEST

/* A crash between the seal and its last chunk: the walk goes on from the point, and completes the file. */
START_TEST(an_index_that_ends_early_is_completed)
{
	char path[LOGKIT_PATH_BYTES];
	uint8_t *index;
	size_t bytes;

	make_log(formats[_i], 1000, 500);
	index_path(0, path);
	index = logkit_read_file(path, &bytes);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_close(&kit);
	logkit_write_file(path, index, bytes);
	ck_assert_int_eq(stored_end(0), 1000);
	open_silently();
	ck_assert_int_eq(partition_segments(kit.p), 2);
	logkit_expect(&kit, 0, 1, 100);
	ck_assert_int_eq(stored_end(0), 1500);
	logkit_expect(&kit, 0, 1500, 100);
	free(index);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_missing_index_is_stored_anew)
{
	char path[LOGKIT_PATH_BYTES];

	logkit_begin(&kit, formats[_i], 1000);
	logkit_open(&kit);
	logkit_append(&kit, 40, 100);
	logkit_close(&kit);
	for (int64_t base = 0; base <= 36; base += 9) {
		index_path(base, path);
		unlink(path);
	}
	open_silently();
	logkit_expect(&kit, 0, 40, 100);
	for (int64_t base = 0; base <= 36; base += 9)
		ck_assert_int_eq(stored_end(base), base == 36 ? 40 : base + 9);
	logkit_end(&kit);
}
END_TEST

/* The log may be another process's when it runs. */
START_TEST(D03_a_load_that_stores_nothing)
{
	struct partition_load *load;
	struct partition_place place;
	char path[LOGKIT_PATH_BYTES];

	logkit_begin(&kit, formats[0], 1000);
	logkit_open(&kit);
	logkit_append(&kit, 40, 100);
	logkit_close(&kit);
	index_path(0, path);
	ck_assert_int_eq(unlink(path), 0);
	open_silently();
	load = partition_load_begin(kit.p, 3);
	ck_assert_ptr_nonnull(load);
	partition_load_store_nothing(load);
	partition_load_run(load);
	ck_assert_int_eq(partition_load_finish(kit.p, load), 0);
	ck_assert_int_eq(partition_find(kit.p, 3, &place), PARTITION_FOUND);
	ck_assert_int_eq(access(path, F_OK), -1);
	logkit_end(&kit);
}
END_TEST

/* A sealed segment was replaced by another file: of the same size, a shorter and a longer one. */
START_TEST(an_index_whose_segment_was_replaced)
{
	char path[LOGKIT_PATH_BYTES];
	size_t bytes;
	uint8_t *batch;

	logkit_begin(&kit, RECORD_CRC32C, 1000);
	logkit_open(&kit);
	logkit_append(&kit, 40, 100);
	logkit_close(&kit);
	batch = logkit_batch(RECORD_CRC32C, 1000, 12, 100, &bytes);
	logkit_segment_path(&kit, 9, path);
	logkit_write_file(path, batch, 9 * 108);
	logkit_open(&kit);
	logkit_catch_lines();
	for (int64_t i = 9; i < 18; i++)
		logkit_expect_as(&kit, i, 991 + i, 100);
	free(logkit_caught_lines());
	logkit_close(&kit);
	logkit_write_file(path, batch, 4 * 108);
	logkit_open(&kit);
	logkit_catch_lines();
	for (int64_t i = 9; i < 13; i++)
		logkit_expect_as(&kit, i, 991 + i, 100);
	logkit_expect_broken(&kit, 13, 18);
	free(logkit_caught_lines());
	logkit_expect(&kit, 0, 9, 100);
	logkit_expect(&kit, 18, 40, 100);
	free(batch);
	logkit_end(&kit);
}
END_TEST

/* ---- the list of sealed segments ---- */

static void
read_list(struct sealed_list *list)
{
	int dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(sealed_list_read(dir_fd, list, NULL), 0);
	close(dir_fd);
}

/* The list has exactly the segments of nine records from `from` to `to`. */
static void
expect_list(int64_t from, int64_t to)
{
	struct sealed_list list;
	size_t at = 0;

	read_list(&list);
	for (int64_t base = from; base < to; base += 9, at++) {
		ck_assert_uint_lt(at, list.count);
		ck_assert_int_eq(list.entries[at].base, base);
		ck_assert_int_eq(list.entries[at].end, base + 9);
		ck_assert_int_eq(list.entries[at].bytes, 9 * (100 + header()));
		ck_assert_int_le(list.entries[at].last_append_ms, clock_wall_ms());
		ck_assert_int_ge(list.entries[at].last_append_ms, clock_wall_ms() - 600000);
	}
	ck_assert_uint_eq(list.count, at);
	sealed_list_free(&list);
}

static void
make_segments(enum record_format format, int records)
{
	logkit_begin(&kit, format, 1000);
	logkit_open(&kit);
	logkit_append(&kit, records, 100);
}

START_TEST(every_sealed_segment_is_listed)
{
	make_segments(formats[_i], 40);
	expect_list(0, 36);
	ck_assert_int_eq(logkit_try_append(&kit, 5, 100), 0);
	/* Rolls, and then goes into segments of its own. */
	ck_assert_int_eq(logkit_try_append(&kit, 27, 100), 0);
	expect_list(0, 63);
	logkit_close(&kit);
	open_silently();
	expect_list(0, 63);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A6_a_list_that_is_missing_or_damaged_is_made_anew)
{
	char path[LOGKIT_PATH_BYTES];
	uint8_t *whole;
	size_t bytes;

	make_segments(formats[_i], 40);
	logkit_close(&kit);
	logkit_file_path(&kit, SEALED_LIST_NAME, path);
	whole = logkit_read_file(path, &bytes);
	for (size_t kept = 0; kept < bytes; kept += 3 * (size_t)unit_sample()) {
		logkit_write_file(path, whole, kept);
		if (kept < 16)
			open_with_line("t-0/sealed.list: it is damaged", "made anew");
		else
			open_with_line("t-0/sealed.list: it lacks", "of 4 sealed segments");
		expect_list(0, 36);
		logkit_close(&kit);
	}
	ck_assert_int_eq(unlink(path), 0);
	open_with_line("t-0/sealed.list: it lacks 4 of 4", "taken from the directory");
	expect_list(0, 36);
	logkit_close(&kit);
	logkit_truncate(path, (int64_t)bytes + 100);
	open_with_line("t-0/sealed.list: its last 100 bytes are damaged", "anew");
	logkit_close(&kit);
	for (size_t i = 0; i < bytes; i++)
		whole[i] = (uint8_t)(i * 7 + 1);
	logkit_write_file(path, whole, bytes);
	open_with_line("t-0/sealed.list: it is damaged", "made anew");
	expect_list(0, 36);
	logkit_close(&kit);
	open_silently();
	logkit_expect(&kit, 0, 40, 100);
	free(whole);
	logkit_end(&kit);
}
END_TEST

/* A directory that was copied has new times; the records are as old as they were. */
START_TEST(the_list_knows_when_a_segment_was_written)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = time(NULL) - 1000000 } };
	char path[LOGKIT_PATH_BYTES];

	make_segments(RECORD_CRC32C, 40);
	logkit_close(&kit);
	for (int64_t base = 0; base < 36; base += 9) {
		logkit_segment_path(&kit, base, path);
		ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
	}
	kit.settings.retention_age_ms = 600000;
	open_silently();
	ck_assert_int_eq(partition_retire(kit.p, clock_now_ns()), 0);
	logkit_close(&kit);
	logkit_remove_list(&kit);
	logkit_open(&kit);
	ck_assert_int_eq(partition_retire(kit.p, clock_now_ns()), 4);
	logkit_end(&kit);
}
END_TEST

static void
retire_all(void)
{
	struct partition_retire *retire;
	bool force_failed;

	partition_retire(kit.p, clock_now_ns());
	while ((retire = partition_retire_begin(kit.p)) != NULL) {
		partition_retire_run(retire);
		ck_assert_int_eq(partition_retire_finish(kit.p, retire, &force_failed), 0);
	}
}

/*
 * Two segments are missing, and the list with them, which a start makes anew from what is left: they can be put back all the same.
 * `_i`: without indexes, too.
 */
START_TEST(bug_A6_what_was_missing_when_the_list_was_made_can_be_put_back)
{
	char paths[2][LOGKIT_PATH_BYTES];
	uint8_t *bytes[2];
	size_t sizes[2];

	make_segments(RECORD_CRC32C, 40);
	logkit_close(&kit);
	for (int i = 0; i < 2; i++) {
		logkit_segment_path(&kit, 9 * (i + 1), paths[i]);
		bytes[i] = logkit_read_file(paths[i], &sizes[i]);
		ck_assert_int_eq(unlink(paths[i]), 0);
	}
	logkit_remove_list(&kit);
	for (int64_t base = 0; _i == 1 && base < 40; base += 9)
		logkit_remove_index(&kit, base);
	logkit_open(&kit);
	logkit_expect_broken(&kit, 9, 27);
	logkit_close(&kit);
	for (int i = 0; i < 2; i++) {
		logkit_write_file(paths[i], bytes[i], sizes[i]);
		free(bytes[i]);
	}
	for (int start = 0; start < 3; start++) {
		logkit_open(&kit);
		logkit_expect(&kit, 0, 40, 100);
		logkit_close(&kit);
	}
	open_silently();
	logkit_end(&kit);
}
END_TEST

/* What retention has removed is not missed, also when it is not configured any more; and the list does not grow for ever. */
START_TEST(what_retention_removes_leaves_the_list)
{
	char path[LOGKIT_PATH_BYTES];

	make_segments(RECORD_CRC32C, 1);
	kit.settings.retention_bytes = 1;
	logkit_reopen(&kit);
	for (int i = 0; i < 200; i++) {
		logkit_append(&kit, 9, 100);
		retire_all();
	}
	logkit_file_path(&kit, SEALED_LIST_NAME, path);
	ck_assert_int_lt(logkit_file_bytes(path), 100 * 36);
	ck_assert_int_eq(logkit_count_files(&kit, ".index"), 0);
	kit.settings.retention_bytes = 0;
	logkit_close(&kit);
	open_silently();
	ck_assert_int_eq(partition_log_start(kit.p), 1800);
	logkit_append(&kit, 20, 100);
	logkit_close(&kit);
	open_silently();
	logkit_expect(&kit, 1800, 1821, 100);
	/* But what somebody else removes is. */
	logkit_close(&kit);
	logkit_segment_path(&kit, 1800, path);
	ck_assert_int_eq(unlink(path), 0);
	open_with_line("t-0/00000000000000001800.log is missing: offsets 1800 to 1808 cannot be read", "Restore");
	ck_assert_int_eq(partition_log_start(kit.p), 1809);
	logkit_end(&kit);
}
END_TEST

/* Also a list that has been written anew when nothing sealed was left: the active segment is lost, and nothing else. */
START_TEST(bug_A13_a_list_without_segments_tells_where_the_log_ended)
{
	char path[LOGKIT_PATH_BYTES];
	int64_t bytes, end;

	make_segments(RECORD_CRC32C, 1);
	kit.settings.retention_bytes = 1;
	logkit_reopen(&kit);
	logkit_file_path(&kit, SEALED_LIST_NAME, path);
	do {
		bytes = logkit_file_bytes(path);
		logkit_append(&kit, 9, 100);
		retire_all();
	} while (logkit_file_bytes(path) > bytes);
	end = partition_log_start(kit.p);
	logkit_close(&kit);
	logkit_segment_path(&kit, end, path);
	ck_assert_int_eq(unlink(path), 0);
	logkit_remove_index(&kit, end);
	for (int start = 0; start < 2; start++) {
		logkit_open(&kit);
		ck_assert_int_eq(partition_log_start(kit.p), end);
		ck_assert_int_eq(partition_log_end(kit.p), end);
		logkit_close(&kit);
	}
	logkit_end(&kit);
}
END_TEST

/* Where damage to the list may hide what retention has noted there, it does not speak of what is gone from the front. */
START_TEST(bug_A6_a_damaged_list_misses_nothing_that_retention_has_removed)
{
	char path[LOGKIT_PATH_BYTES];

	make_segments(RECORD_CRC32C, 40);
	kit.settings.retention_bytes = 25 * 108;
	logkit_reopen(&kit);
	retire_all();
	ck_assert_int_eq(partition_log_start(kit.p), 18);
	logkit_close(&kit);
	logkit_file_path(&kit, SEALED_LIST_NAME, path);
	logkit_flip(path, 16 + 36 + 5);
	open_with_line("t-0/sealed.list: it lacks 2 of 2 sealed segments", "taken from the directory");
	logkit_close(&kit);
	open_silently();
	logkit_expect(&kit, 18, 40, 100);
	expect_list(18, 36);
	/* From here on it does. */
	logkit_close(&kit);
	logkit_segment_path(&kit, 18, path);
	ck_assert_int_eq(unlink(path), 0);
	open_with_line("t-0/00000000000000000018.log is missing: offsets 18 to 26 cannot be read", "Restore");
	logkit_end(&kit);
}
END_TEST

/* ---- a clean stop ---- */

static struct stop_state left;

/* Stops cleanly, and tells the next start of it. */
static void
leave(void)
{
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	ck_assert_int_eq(partition_leave(kit.p, &left), 0);
	logkit_close(&kit);
	kit.known = (struct partition_known){ .published_end = -1, .from_disk = true, .stopped = &left };
}

/* `_i`: format; with records or none; in which mode it is written, and opened again. */
START_TEST(what_a_clean_stop_has_left_is_neither_read_nor_forced)
{
	int records = _i / FORMATS % 2 == 0 ? 200 : 0;

	logkit_begin(&kit, formats[_i % FORMATS], 100000);
	kit.settings.mapped = _i / FORMATS / 2 % 2 == 1;
	logkit_open(&kit);
	logkit_append(&kit, records, 100);
	leave();
	logkit_trace_begin();
	logkit_set_fault((struct logkit_fault){ 0 });
	open_silently();
	ck_assert_str_eq(logkit_trace(), "");
	/* The last record ahead of the recovery point. */
	ck_assert_int_le(logkit_calls(CALL_PREAD), 1);
	ck_assert_int_eq(partition_log_end(kit.p), records);
	ck_assert_int_eq(partition_durable_end(kit.p), records);
	logkit_expect(&kit, 0, records, 100);
	logkit_append(&kit, 20, 100);
	leave();
	kit.settings.mapped = !kit.settings.mapped;
	open_silently();
	logkit_append(&kit, 20, 100);
	logkit_close(&kit);
	kit.known = (struct partition_known){ .published_end = -1 };
	open_silently();
	logkit_expect(&kit, 0, records + 40, 100);
	logkit_end(&kit);
}
END_TEST

static void
set_time(const char *path, int64_t modified_ns)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
		{ modified_ns / CLOCK_NS_PER_S, modified_ns % CLOCK_NS_PER_S } };

	ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* The log was written to after the marker, which has come back: its time tells; and if not, its size, and if not ... */
START_TEST(a_marker_is_not_believed_of_a_log_that_was_changed)
{
	char path[LOGKIT_PATH_BYTES];
	int64_t bytes;

	logkit_begin(&kit, formats[_i], 100000);
	logkit_open(&kit);
	logkit_append(&kit, 100, 100);
	leave();
	logkit_segment_path(&kit, 0, path);
	bytes = logkit_file_bytes(path);
	/* A torn write of a process that was killed. */
	logkit_change(path, bytes, "\0\0\0\x20", 4);
	logkit_set_fault((struct logkit_fault){ 0 });
	logkit_catch_lines();
	logkit_open(&kit);
	free(logkit_caught_lines());
	ck_assert_int_eq(kit.opened.truncated_bytes, 4);
	ck_assert_int_gt(logkit_calls(CALL_FDATASYNC), 0);
	logkit_expect(&kit, 0, 100, 100);
	/* The size is the same. */
	leave();
	logkit_truncate(path, bytes - 1);
	logkit_truncate(path, bytes);
	logkit_set_fault((struct logkit_fault){ 0 });
	logkit_catch_lines();
	logkit_open(&kit);
	free(logkit_caught_lines());
	ck_assert_int_gt(logkit_calls(CALL_FDATASYNC), 0);
	logkit_expect(&kit, 0, 99, 100);
	/* The time is, but not the size: longer and shorter. */
	leave();
	logkit_change(path, bytes, "\0\0\0\x20", 4);
	set_time(path, left.modified_ns);
	logkit_catch_lines();
	logkit_open(&kit);
	free(logkit_caught_lines());
	ck_assert_int_eq(kit.opened.truncated_bytes, 4);
	ck_assert_int_eq(logkit_file_bytes(path), bytes);
	leave();
	logkit_truncate(path, bytes - 1000);
	set_time(path, left.modified_ns);
	logkit_catch_lines();
	logkit_open(&kit);
	free(logkit_caught_lines());
	logkit_expect(&kit, 0, 90, 100);
	ck_assert_int_le(partition_log_end(kit.p), 91);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_marker_needs_the_recovery_point)
{
	char *lines;

	logkit_begin(&kit, formats[_i], 100000);
	logkit_open(&kit);
	logkit_append(&kit, 100, 100);
	leave();
	logkit_remove_index(&kit, 0);
	open_silently();
	logkit_expect(&kit, 0, 100, 100);
	ck_assert_int_eq(stored_end(0), 100);
	/* Nobody is told of a log whose point could not be stored. */
	logkit_append(&kit, 10, 100);
	ck_assert_int_eq(partition_leave(kit.p, &left), -1);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PWRITE, .at = 1, .error = ENOSPC, .sticky = true,
	    .aim = LOGKIT_AT_CACHES });
	logkit_catch_lines();
	ck_assert_int_eq(partition_leave(kit.p, &left), -1);
	lines = logkit_caught_lines();
	ck_assert_int_eq(count_lines(lines), 1);
	free(lines);
	logkit_end(&kit);
}
END_TEST

/* A process that lives has let go of the log; the page cache is as good as it was. */
static void
release(void)
{
	ck_assert_int_eq(partition_release(kit.p, &left), 0);
	kit.known = (struct partition_known){ .published_end = partition_log_end(kit.p), .stopped = &left, .released = true,
		.durable_end = partition_durable_end(kit.p) };
	logkit_close(&kit);
}

/* `_i`: format; written through a mapping or not. Some of it is forced, some not, with the recovery point in between. */
START_TEST(D03_a_released_log_is_opened_without_a_force)
{
	logkit_begin(&kit, formats[_i % FORMATS], 100000);
	kit.settings.mapped = _i / FORMATS == 1;
	logkit_open(&kit);
	logkit_append(&kit, 300, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	partition_ask_point(kit.p);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_eq(stored_end(0), 300);
	logkit_append(&kit, 100, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_append(&kit, 50, 100);
	release();
	logkit_trace_begin();
	logkit_set_fault((struct logkit_fault){ 0 });
	open_silently();
	ck_assert_str_eq(logkit_trace(), "");
	ck_assert_int_eq(partition_log_end(kit.p), 450);
	ck_assert_int_eq(partition_durable_end(kit.p), 400);
	ck_assert_int_gt(partition_unforced_bytes(kit.p), 0);
	logkit_expect(&kit, 0, 450, 100);
	/* What is not forced must not be believed of the stored point. */
	ck_assert_int_eq(stored_end(0), 300);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	ck_assert_int_eq(partition_durable_end(kit.p), 450);
	ck_assert_int_eq(partition_unforced_bytes(kit.p), 0);
	logkit_append(&kit, 50, 100);
	release();
	open_silently();
	logkit_expect(&kit, 0, 500, 100);
	logkit_append(&kit, 20, 100);
	logkit_close(&kit);
	kit.known = (struct partition_known){ .published_end = 520 };
	open_silently();
	logkit_expect(&kit, 0, 520, 100);
	logkit_end(&kit);
}
END_TEST

/*
 * `_i`: format; with records behind the durable end or not. Damage in front of the recovery point, with no mark between: such a
 * log is served around it, and does not close for a restart.
 */
START_TEST(D03_a_released_log_with_damage_near_its_end_stays_open)
{
	char path[LOGKIT_PATH_BYTES];
	int64_t end = 20 + 10 * (_i / FORMATS);

	logkit_begin(&kit, formats[_i % FORMATS], 100000);
	logkit_open(&kit);
	logkit_append(&kit, 10, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	partition_ask_point(kit.p);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	logkit_append(&kit, 10, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	if (end > 20)
		logkit_append(&kit, 10, 100);
	logkit_segment_path(&kit, 0, path);
	logkit_flip(path, 3 * (100 + header()));
	release();
	open_silently();
	ck_assert_int_eq(partition_log_end(kit.p), end);
	ck_assert_int_eq(partition_durable_end(kit.p), 20);
	logkit_append(&kit, 10, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_expect(&kit, 10, end + 10, 100);
	logkit_end(&kit);
}
END_TEST

/* `_i`: format. The log goes on behind damage that no start has looked at: what comes now can be read at once. */
START_TEST(A19_what_is_appended_behind_damage_can_be_read)
{
	char path[LOGKIT_PATH_BYTES];

	logkit_begin(&kit, formats[_i], 100000);
	logkit_open(&kit);
	logkit_append(&kit, 10, 100);
	logkit_reopen(&kit);
	logkit_close(&kit);
	logkit_segment_path(&kit, 0, path);
	logkit_flip(path, 3 * (100 + header()));
	logkit_open(&kit);
	logkit_append(&kit, 10, 100);
	logkit_expect(&kit, 10, 20, 100);
	logkit_end(&kit);
}
END_TEST

/* `_i`: written through a mapping or not. Somebody has changed the file meanwhile: it is recovered, and forced. */
START_TEST(D03_a_released_log_that_has_changed_is_recovered)
{
	char path[LOGKIT_PATH_BYTES], *lines;

	logkit_begin(&kit, RECORD_CRC32C, 100000);
	kit.settings.mapped = _i == 1;
	logkit_open(&kit);
	logkit_append(&kit, 100, 100);
	release();
	logkit_segment_path(&kit, 0, path);
	logkit_flip(path, 99 * 108 + 50);
	kit.known.published_end = 0;
	logkit_catch_lines();
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, "not as the worker before this one has left it"));
	free(lines);
	ck_assert_int_eq(partition_log_end(kit.p), 99);
	ck_assert_int_eq(partition_durable_end(kit.p), 99);
	logkit_end(&kit);
}
END_TEST

/*
 * `_i`: format; what is told one too low or too high; with the recovery point at the end or at none. The file is as it was left, so
 * one of the two processes is wrong about the log, or a third has written to it: nobody goes on with it unasked.
 */
START_TEST(D03_a_released_log_that_ends_elsewhere_stays_closed)
{
	int64_t *const told = _i / FORMATS % 4 < 2 ? &left.end : &left.position;
	int64_t bytes;
	char path[LOGKIT_PATH_BYTES];

	logkit_begin(&kit, formats[_i % FORMATS], 100000);
	kit.settings.mapped = _i % FORMATS == 0;
	logkit_open(&kit);
	logkit_append(&kit, 100, 100);
	if (_i / FORMATS >= 4) {
		ck_assert_int_eq(logkit_barrier(&kit), 0);
		partition_ask_point(kit.p);
		ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
		ck_assert_int_eq(stored_end(0), 100);
	}
	release();
	logkit_segment_path(&kit, 0, path);
	bytes = logkit_file_bytes(path);
	*told += _i / FORMATS % 2 == 0 ? -1 : 1;
	logkit_trace_begin();
	logkit_set_fault((struct logkit_fault){ 0 });
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "another process writes here"));
	ck_assert_str_eq(logkit_trace(), "");
	ck_assert(!kit.opened.failed);
	ck_assert_int_eq(logkit_file_bytes(path), bytes);
	/* The next process is told nothing of it and recovers it, as after a death. */
	kit.known = (struct partition_known){ .published_end = 100 };
	open_silently();
	logkit_expect(&kit, 0, 100, 100);
	logkit_end(&kit);
}
END_TEST

/* Nor is one told of that has failed, not at a stop either. */
START_TEST(D03_a_failed_log_is_not_released)
{
	logkit_begin(&kit, RECORD_CRC32C, 100000);
	logkit_open(&kit);
	logkit_append(&kit, 10, 100);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FDATASYNC, .at = 1, .error = EIO });
	ck_assert_int_eq(logkit_barrier(&kit), -1);
	ck_assert(partition_failed(kit.p));
	ck_assert_int_eq(partition_release(kit.p, &left), -1);
	ck_assert_int_eq(partition_leave(kit.p, &left), -1);
	logkit_end(&kit);
}
END_TEST

/* Or that has leavings of a refused write behind its end: what stands there is for a recovery to judge. */
START_TEST(D03_a_log_with_leavings_is_not_released)
{
	logkit_begin(&kit, RECORD_CRC32C, 100000);
	logkit_open(&kit);
	logkit_append(&kit, 10, 100);
	logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = 2, .error = ENOSPC, .sticky = true });
	ck_assert_int_eq(logkit_try_append(&kit, 20, 100), -1);
	logkit_clear_fault();
	ck_assert(!partition_failed(kit.p));
	ck_assert_int_eq(partition_release(kit.p, &left), -1);
	kit.known = (struct partition_known){ .published_end = 10 };
	logkit_close(&kit);
	open_silently();
	logkit_expect(&kit, 0, 10, 100);
	logkit_end(&kit);
}
END_TEST

/* One that somebody has cut or removed meanwhile is not spoken of: the marker would not make sense, for any other log either. */
START_TEST(a_log_that_was_cut_is_not_left)
{
	char path[LOGKIT_PATH_BYTES], *lines;

	make_log(RECORD_CRC32C, 10, 0);
	logkit_open(&kit);
	logkit_segment_path(&kit, 0, path);
	if (_i & 1)
		ck_assert_int_eq(unlink(path), 0);
	else
		logkit_truncate(path, 30);
	logkit_catch_lines();
	ck_assert_int_eq((_i & 2) ? partition_release(kit.p, &left) : partition_leave(kit.p, &left), -1);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, (_i & 1) ? "was removed or replaced" : "was cut to 30 bytes from outside"));
	free(lines);
	logkit_end(&kit);
}
END_TEST

/* Of another segment, as after a roll. */
START_TEST(a_marker_of_an_earlier_life)
{
	struct stop_state old;

	logkit_begin(&kit, formats[_i], 1000);
	logkit_open(&kit);
	logkit_append(&kit, 20, 100);
	leave();
	old = left;
	logkit_open(&kit);
	logkit_append(&kit, 20, 100);
	logkit_close(&kit);
	kit.known.stopped = &old;
	open_silently();
	logkit_expect(&kit, 0, 40, 100);
	logkit_end(&kit);
}
END_TEST

/* Nor does it tell where the last segment ended that has gone since. */
START_TEST(a_marker_of_an_earlier_life_does_not_tell_of_a_lost_segment)
{
	struct stop_state old;
	char path[LOGKIT_PATH_BYTES], *lines;

	logkit_begin(&kit, formats[_i], 1000);
	logkit_open(&kit);
	logkit_append(&kit, 20, 100);
	leave();
	old = left;
	logkit_open(&kit);
	logkit_append(&kit, 20, 100);
	leave();
	logkit_segment_path(&kit, left.base, path);
	ck_assert_int_eq(unlink(path), 0);
	/* Its own marker does. */
	logkit_catch_lines();
	logkit_remove_index(&kit, left.base);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 40);
	logkit_close(&kit);
	logkit_segment_path(&kit, 40, path);
	ck_assert_int_eq(unlink(path), 0);
	kit.known.stopped = &old;
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_int_eq(partition_log_end(kit.p), left.base);
	ck_assert_ptr_nonnull(strstr(lines, "is missing, the log's last segment"));
	free(lines);
	logkit_end(&kit);
}
END_TEST

/* The list says of a released segment that it was sealed: what came behind it is lost, whatever was released. */
START_TEST(D03_a_released_log_whose_list_knows_of_more)
{
	struct sealed_entry sealed = { .end = 10, .last_append_ms = 1 };
	char *lines;
	int dir_fd;

	logkit_begin(&kit, RECORD_CRC32C, 100000);
	logkit_open(&kit);
	logkit_append(&kit, 10, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	sealed.bytes = partition_size_bytes(kit.p);
	release();
	dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(sealed_list_append(dir_fd, &sealed, 1), 0);
	close(dir_fd);
	logkit_catch_lines();
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, "00000000000000000010.log is missing, the log's last segment"));
	free(lines);
	ck_assert_int_eq(partition_segments(kit.p), 2);
	logkit_append(&kit, 2, 100);
	logkit_expect(&kit, 0, 12, 100);
	logkit_end(&kit);
}
END_TEST

/* `_i`: what there is not enough of. That passes: nothing is decided without the index meanwhile. */
START_TEST(an_index_that_there_is_no_room_for_closes_the_log)
{
	const int errors[] = { ENOMEM, EMFILE, ENFILE };
	char said[200];

	make_log(RECORD_CRC32C, 20, 0);
	snprintf(said, sizeof(said), "t-0/00000000000000000000.log: cannot read: %s", strerror(errors[_i]));
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 1, .error = errors[_i], .aim = LOGKIT_AT_CACHES });
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), said));
	logkit_clear_fault();
	open_silently();
	logkit_expect(&kit, 0, 20, 100);
	logkit_end(&kit);
}
END_TEST

/* Somebody has removed all of it: the log is a new one, and the marker alone tells what is gone. */
START_TEST(a_marker_of_a_log_that_was_removed)
{
	char path[LOGKIT_PATH_BYTES], *lines;

	logkit_begin(&kit, formats[_i], 1000);
	logkit_open(&kit);
	logkit_append(&kit, 5, 100);
	leave();
	logkit_segment_path(&kit, 0, path);
	ck_assert_int_eq(unlink(path), 0);
	logkit_remove_index(&kit, 0);
	logkit_remove_list(&kit);
	logkit_catch_lines();
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, "t-0: the log ended at offset 5 when its worker stopped, and ends at 0 now"));
	free(lines);
	ck_assert_int_eq(partition_log_end(kit.p), 0);
	logkit_append(&kit, 5, 100);
	logkit_expect(&kit, 0, 5, 100);
	logkit_end(&kit);
}
END_TEST

/* Records, and a stop behind them; one that is not the last is forgotten. */
static void
append_and_leave(int count, bool last)
{
	logkit_open(&kit);
	logkit_append(&kit, count, 100);
	leave();
	if (!last)
		kit.known.stopped = NULL;
}

/*
 * But for its index: then the log's only segment is missing, and what was in it is missed. `_i`: format; without a marker, with it,
 * with an older one; the ones ahead of it have been removed, and so has the list.
 */
START_TEST(bug_A13_a_lone_segment_that_is_missing)
{
	int marker = _i / FORMATS % 3, base = _i / FORMATS / 3 * 9, end = base + 5;
	char path[LOGKIT_PATH_BYTES], *lines;

	logkit_begin(&kit, formats[_i % FORMATS], 1000);
	append_and_leave(base + 2, marker == 2);
	if (base > 0) {
		logkit_segment_path(&kit, 0, path);
		ck_assert_int_eq(unlink(path), 0);
		logkit_remove_index(&kit, 0);
		logkit_remove_list(&kit);
	}
	if (marker == 2) {
		struct stop_state old = left;

		append_and_leave(3, false);
		left = old;
		kit.known.stopped = &left;
	} else {
		append_and_leave(3, marker == 1);
	}
	logkit_remove_list(&kit);
	logkit_segment_path(&kit, base, path);
	ck_assert_int_eq(unlink(path), 0);
	logkit_catch_lines();
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, ".log is missing, the log's last segment"));
	free(lines);
	kit.known.stopped = NULL;
	for (int start = 0; start < 3; start++) {
		ck_assert_int_eq(partition_log_start(kit.p), end);
		ck_assert_int_eq(partition_log_end(kit.p), end);
		logkit_reopen(&kit);
	}
	logkit_append(&kit, 2, 100);
	logkit_expect(&kit, end, end + 2, 100);
	logkit_end(&kit);
}
END_TEST

/* An index that the disk does not give now is not a wrong one: what it alone can tell is not decided without it. */
START_TEST(an_index_that_cannot_be_read_is_not_passed_over)
{
	const struct logkit_fault fault = { .call = CALL_PREAD, .at = 1, .error = EIO, .sticky = true, .aim = LOGKIT_AT_CACHES };
	char path[LOGKIT_PATH_BYTES];
	const char *why;
	char *lines;

	logkit_begin(&kit, formats[_i], 100000);
	logkit_open(&kit);
	logkit_append(&kit, 20, 100);
	logkit_reopen(&kit);
	logkit_close(&kit);
	logkit_segment_path(&kit, 0, path);
	/* Nothing is to be cut: all of the log is read instead. */
	logkit_set_fault(fault);
	logkit_catch_lines();
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, "00000000000000000000.index: cannot be read: Input/output error"));
	free(lines);
	ck_assert(logkit_fault_hit());
	logkit_clear_fault();
	logkit_expect(&kit, 0, 20, 100);
	logkit_close(&kit);
	ck_assert_int_eq(stored_end(0), 20);
	logkit_change(path, 20 * (100 + (int64_t)record_header_bytes(formats[_i])), "\0\0\0\x20", 4);
	logkit_set_fault(fault);
	logkit_catch_lines();
	why = logkit_refused(&kit);
	lines = logkit_caught_lines();
	ck_assert_str_eq(lines, "");
	free(lines);
	ck_assert_ptr_nonnull(strstr(why, "00000000000000000000.index: cannot be read: Input/output error"));
	logkit_clear_fault();
	ck_assert_int_eq(stored_end(0), 20);
	logkit_catch_lines();
	logkit_open(&kit);
	free(logkit_caught_lines());
	ck_assert_int_eq(kit.opened.truncated_bytes, 4);
	logkit_expect(&kit, 0, 20, 100);
	logkit_end(&kit);
}
END_TEST

/* ---- memory ---- */

/* Tiny records and a mark for each of them would be more index than log. */
START_TEST(a_segment_has_a_million_marks_at_most)
{
	logkit_begin(&kit, RECORD_PLAIN, INT64_C(1) << 30);
	kit.settings.index_interval_bytes = 1;
	logkit_open(&kit);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(logkit_try_append(&kit, 1000, 1), 0);
	logkit_reopen(&kit);
	ck_assert_int_eq(stored_end(0), 100000);
	ck_assert_uint_le(stored(0).marks, 100000 * 5 / 1024 + 1);
	logkit_expect(&kit, 50000, 51000, 1);
	logkit_close(&kit);
	/* In a small segment as many as are asked for. */
	kit.settings.segment_bytes = 1 << 20;
	logkit_remove_index(&kit, 0);
	logkit_open(&kit);
	ck_assert_uint_eq(stored(0).marks, 100000);
	logkit_end(&kit);
}
END_TEST

/* ---- caches that cannot be written ---- */

/* No call on a cache works: the log does, and says so once. */
START_TEST(a_log_works_without_caches)
{
	int errors[] = { ENOSPC, EROFS, EACCES, EIO };
	char *lines, *said;

	logkit_begin(&kit, formats[_i % FORMATS], 1000);
	logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = 1, .error = errors[_i / FORMATS], .sticky = true,
	    .aim = LOGKIT_AT_CACHES });
	logkit_catch_lines();
	logkit_open(&kit);
	logkit_append(&kit, 40, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_eq(logkit_try_append(&kit, 40, 100), 0);
	logkit_expect(&kit, 0, 80, 100);
	lines = logkit_caught_lines();
	said = strstr(lines, "cannot be written");
	ck_assert(said != NULL && strstr(said + 1, "cannot be written") == NULL);
	free(lines);
	logkit_catch_lines();
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 80, 100);
	logkit_append(&kit, 3, 100);
	free(logkit_caught_lines());
	/* And when they can be written again they are. */
	logkit_clear_fault();
	logkit_append(&kit, 30, 100);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 113, 100);
	ck_assert_int_eq(stored_end(0), 9);
	ck_assert_int_eq(logkit_count_files(&kit, ".index"), logkit_count_files(&kit, ".log"));
	logkit_end(&kit);
}
END_TEST

/* What cannot be removed is no reason to keep the segment that it speaks of: a disk would fill up for it. */
START_TEST(bug_B2_an_index_that_cannot_be_removed_stops_no_retention)
{
	struct partition_retire *retire;
	bool force_failed;
	char path[LOGKIT_PATH_BYTES];

	logkit_begin(&kit, RECORD_CRC32C, 1000);
	kit.settings.retention_bytes = 1;
	logkit_open(&kit);
	logkit_append(&kit, 40, 92);
	index_path(10, path);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(partition_retire(kit.p, clock_now_ns()), 3);
	retire = partition_retire_begin(kit.p);
	partition_retire_run(retire);
	ck_assert_int_eq(partition_retire_finish(kit.p, retire, &force_failed), 0);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
	ck_assert_int_eq(rmdir(path), 0);
	logkit_end(&kit);
}
END_TEST

/* Nor does a list that can neither be written nor removed. */
START_TEST(bug_B2_a_list_that_cannot_be_told_stops_no_retention)
{
	char path[LOGKIT_PATH_BYTES], *lines;

	make_segments(RECORD_CRC32C, 40);
	kit.settings.retention_bytes = 1;
	logkit_reopen(&kit);
	logkit_file_path(&kit, SEALED_LIST_NAME, path);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	logkit_catch_lines();
	retire_all();
	lines = logkit_caught_lines();
	ck_assert_msg(count_lines(lines) == 1 && strstr(lines, "t-0/sealed.list: cannot be written") != NULL, "%s", lines);
	free(lines);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
	ck_assert_int_eq(rmdir(path), 0);
	logkit_end(&kit);
}
END_TEST

/* Somebody tidies up while the log is open: it is stored anew, and nothing needs to be said. */
START_TEST(an_index_that_goes_while_the_log_is_open)
{
	int64_t now_ns = clock_now_ns();
	char path[LOGKIT_PATH_BYTES], *lines;

	make_log(RECORD_CRC32C, 3, 0);
	logkit_open(&kit);
	index_path(0, path);
	ck_assert_int_eq(unlink(path), 0);
	logkit_append(&kit, 3, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_catch_lines();
	for (int i = 1; i <= 2; i++)
		ck_assert_int_eq(logkit_upkeep_at(&kit, 0, now_ns + i * INT64_C(10) * CLOCK_NS_PER_S), 0);
	lines = logkit_caught_lines();
	ck_assert_str_eq(lines, "");
	free(lines);
	ck_assert_int_eq(stored_end(0), 6);
	logkit_end(&kit);
}
END_TEST

/* The same ahead of a stop. */
START_TEST(an_index_that_has_gone_is_stored_anew_by_a_stop)
{
	make_log(RECORD_CRC32C, 3, 0);
	logkit_open(&kit);
	logkit_remove_index(&kit, 0);
	logkit_append(&kit, 3, 100);
	leave();
	ck_assert_int_eq(stored_end(0), 6);
	open_silently();
	logkit_expect(&kit, 0, 6, 100);
	logkit_end(&kit);
}
END_TEST

/* Any one call on a cache fails, or leaves half of what it should have written. */
START_TEST(any_call_on_a_cache_may_fail)
{
	int errors[] = { ENOSPC, EIO, LOGKIT_SHORT, EINTR };

	for (int at = 1, count = 0;; at += unit_sample(), count++) {
		bool hit;

		logkit_begin(&kit, formats[count % FORMATS], 1000);
		logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = errors[_i],
		    .aim = LOGKIT_AT_CACHES });
		logkit_catch_lines();
		logkit_open(&kit);
		for (int i = 0; i < 4; i++) {
			logkit_append(&kit, 4, 100);
			ck_assert_int_eq(logkit_barrier(&kit), 0);
			ck_assert_int_eq(logkit_upkeep_at(&kit, 0, clock_now_ns() + i * INT64_C(10) * CLOCK_NS_PER_S), 0);
		}
		ck_assert_int_eq(logkit_try_append(&kit, 20, 100), 0);
		logkit_reopen(&kit);
		logkit_expect(&kit, 0, 36, 100);
		logkit_append(&kit, 4, 100);
		logkit_reopen(&kit);
		logkit_expect(&kit, 0, 40, 100);
		hit = logkit_fault_hit();
		logkit_clear_fault();
		logkit_reopen(&kit);
		logkit_expect(&kit, 0, 40, 100);
		free(logkit_caught_lines());
		logkit_end(&kit);
		if (!hit)
			break;
	}
}
END_TEST

/* ---- start ---- */

/* However many segments there are, a start opens the same few files. */
START_TEST(P8_a_start_opens_no_sealed_segment)
{
	int opens[3], reads[3];

	for (int i = 0; i < 3; i++) {
		int counts[] = { 20, 200, 200 + 1800 / unit_sample() };

		logkit_begin(&kit, formats[_i], 1000);
		logkit_open(&kit);
		logkit_append(&kit, counts[i], 800);
		ck_assert_int_eq(partition_segments(kit.p), counts[i]);
		logkit_reopen(&kit);
		logkit_close(&kit);
		logkit_set_fault((struct logkit_fault){ .aim = LOGKIT_AT_ALL });
		logkit_open(&kit);
		opens[i] = logkit_calls(CALL_OPEN);
		reads[i] = logkit_calls(CALL_PREAD);
		ck_assert_int_eq(partition_segments(kit.p), counts[i]);
		logkit_end(&kit);
	}
	ck_assert_int_eq(opens[0], opens[1]);
	ck_assert_int_eq(opens[1], opens[2]);
	ck_assert_int_le(opens[2], 8);
	ck_assert_int_le(reads[2] - reads[0], 4);
}
END_TEST

static void
add_tests(TCase *tests)
{
	tcase_add_loop_test(tests, a_point_follows_the_durable_end_by_time, 0, FORMATS);
	tcase_add_test(tests, a_point_follows_the_durable_end_by_bytes);
	tcase_add_test(tests, the_order_of_a_point);
	tcase_add_loop_test(tests, every_segment_of_a_large_batch_has_its_index, 0, FORMATS);
	tcase_add_test(tests, bug_A19_damage_behind_the_recovery_point_is_cut);
	tcase_add_loop_test(tests, bug_A19_damage_ahead_of_the_recovery_point_stays, 0, 12);
	tcase_add_loop_test(tests, a_point_whose_last_record_has_another_header_is_not_believed, 0, FORMATS);
	tcase_add_loop_test(tests, recovery_starts_at_the_point, 0, FORMATS);
	tcase_add_loop_test(tests, a_start_stores_what_it_has_recovered, 0, FORMATS);
	tcase_add_loop_test(tests, bug_A2_a_file_shorter_than_its_recovery_point, 0, FORMATS);
	tcase_add_test(tests, a_wrong_index_is_removed_before_the_cut);
	tcase_add_test(tests, a_wrong_index_that_cannot_be_removed_closes_the_log);
	tcase_add_loop_test(tests, an_index_of_another_log, 0, 4 * FORMATS);
	tcase_add_loop_test(tests, a_plain_log_is_not_opened_as_crc32c_for_an_index, 0, FORMATS);
	tcase_add_test(tests, bug_A6_random_bytes_in_place_of_indexes);
	tcase_add_test(tests, an_index_cut_or_zeroed_at_any_byte);
	tcase_add_loop_test(tests, another_index_interval_goes_on_with_what_is_stored, 0, FORMATS);
	tcase_add_test(tests, orphans_are_removed);
	tcase_add_loop_test(tests, a_sealed_segment_is_opened_with_its_index, 0, FORMATS);
	tcase_add_loop_test(tests, an_index_that_ends_early_is_completed, 0, FORMATS);
	tcase_add_loop_test(tests, a_missing_index_is_stored_anew, 0, FORMATS);
	tcase_add_test(tests, an_index_whose_segment_was_replaced);
	tcase_add_test(tests, bug_B2_an_index_that_cannot_be_removed_stops_no_retention);
	tcase_add_test(tests, bug_B2_a_list_that_cannot_be_told_stops_no_retention);
	tcase_add_test(tests, an_index_that_goes_while_the_log_is_open);
	tcase_add_test(tests, an_index_that_has_gone_is_stored_anew_by_a_stop);
	tcase_add_loop_test(tests, every_sealed_segment_is_listed, 0, FORMATS);
	tcase_add_loop_test(tests, bug_A6_a_list_that_is_missing_or_damaged_is_made_anew, 0, FORMATS);
	tcase_add_test(tests, the_list_knows_when_a_segment_was_written);
	tcase_add_loop_test(tests, bug_A6_what_was_missing_when_the_list_was_made_can_be_put_back, 0, 2);
	tcase_add_test(tests, what_retention_removes_leaves_the_list);
	tcase_add_test(tests, bug_A13_a_list_without_segments_tells_where_the_log_ended);
	tcase_add_test(tests, bug_A6_a_damaged_list_misses_nothing_that_retention_has_removed);
	tcase_add_loop_test(tests, what_a_clean_stop_has_left_is_neither_read_nor_forced, 0, 4 * FORMATS);
	tcase_add_loop_test(tests, a_marker_is_not_believed_of_a_log_that_was_changed, 0, FORMATS);
	tcase_add_loop_test(tests, a_marker_needs_the_recovery_point, 0, FORMATS);
	tcase_add_loop_test(tests, D03_a_released_log_is_opened_without_a_force, 0, 2 * FORMATS);
	tcase_add_loop_test(tests, D03_a_released_log_with_damage_near_its_end_stays_open, 0, 2 * FORMATS);
	tcase_add_loop_test(tests, A19_what_is_appended_behind_damage_can_be_read, 0, FORMATS);
	tcase_add_loop_test(tests, D03_a_released_log_that_has_changed_is_recovered, 0, 2);
	tcase_add_loop_test(tests, D03_a_released_log_that_ends_elsewhere_stays_closed, 0, 8 * FORMATS);
	tcase_add_test(tests, D03_a_failed_log_is_not_released);
	tcase_add_test(tests, D03_a_log_with_leavings_is_not_released);
	tcase_add_test(tests, D03_a_load_that_stores_nothing);
	tcase_add_loop_test(tests, a_log_that_was_cut_is_not_left, 0, 4);
	tcase_add_loop_test(tests, a_marker_of_an_earlier_life, 0, FORMATS);
	tcase_add_loop_test(tests, a_marker_of_a_log_that_was_removed, 0, FORMATS);
	tcase_add_loop_test(tests, bug_A13_a_lone_segment_that_is_missing, 0, 6 * FORMATS);
	tcase_add_loop_test(tests, a_marker_of_an_earlier_life_does_not_tell_of_a_lost_segment, 0, FORMATS);
	tcase_add_test(tests, D03_a_released_log_whose_list_knows_of_more);
	tcase_add_loop_test(tests, an_index_that_there_is_no_room_for_closes_the_log, 0, 3);
	tcase_add_loop_test(tests, an_index_that_cannot_be_read_is_not_passed_over, 0, FORMATS);
	tcase_add_test(tests, a_segment_has_a_million_marks_at_most);
	tcase_add_loop_test(tests, a_log_works_without_caches, 0, 4 * FORMATS);
	tcase_add_loop_test(tests, any_call_on_a_cache_may_fail, 0, 4);
	tcase_add_loop_test(tests, P8_a_start_opens_no_sealed_segment, 0, FORMATS);
}

int
main(void)
{
	Suite *suite = suite_create("caches");
	TCase *tests = tcase_create("caches");

	tcase_set_timeout(tests, 120);
	suite_add_tcase(suite, tests);
	add_tests(tests);
	return unit_run(suite);
}
