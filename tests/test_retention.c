/*
 * Retention in the storage: what goes by bytes and by age, in which order it goes, that readers keep what they were promised, and
 * what failures and crashes at each step leave.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/retention.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

static const enum record_format formats[] = { RECORD_PLAIN, RECORD_CRC32C };
enum { FORMATS = 2, SEGMENT = 1000, PAYLOAD = 92, DEEP = 1000 };

static const int64_t second_ns = CLOCK_NS_PER_S;

static struct logkit kit;

/* A log of `segments` segments of ten records of 100 bytes; the last one holds `last` records, 0 to 10. */
static void
begin(int segments, int last)
{
	logkit_begin(&kit, RECORD_CRC32C, SEGMENT);
	logkit_open(&kit);
	logkit_append(&kit, 10 * (segments - 1), PAYLOAD);
	if (segments > 1 && last == 0)
		ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_append(&kit, last, PAYLOAD);
	ck_assert_int_eq(partition_segments(kit.p), segments);
}

static void
reopen_keeping(int64_t bytes, int64_t age_ms)
{
	logkit_close(&kit);
	kit.settings.retention_bytes = bytes;
	kit.settings.retention_age_ms = age_ms;
	logkit_open(&kit);
}

static int64_t
retire_at(int64_t now_ns)
{
	return partition_retire(kit.p, now_ns);
}

/* One whole job. Returns 0, or -1 with errno; -2 when there was nothing to do. */
static int
run_job(bool *force_failed)
{
	struct partition_retire *retire = partition_retire_begin(kit.p);

	if (retire == NULL)
		return -2;
	partition_retire_run(retire);
	return partition_retire_finish(kit.p, retire, force_failed);
}

static void
run_jobs(void)
{
	bool force_failed;
	int done;

	while ((done = run_job(&force_failed)) == 0)
		;
	ck_assert_int_eq(done, -2);
}

static bool
has_segment(int64_t base)
{
	char path[LOGKIT_PATH_BYTES];

	logkit_segment_path(&kit, base, path);
	return logkit_file_bytes(path) != -1;
}

static void
expect_out_of_range(int64_t from, int64_t to)
{
	struct partition_place place;

	for (int64_t i = from; i < to; i++)
		ck_assert(i < partition_log_start(kit.p) && partition_find(kit.p, i, &place) == PARTITION_BROKEN);
}

/* The last write to a segment, so many seconds ago; nothing else tells. */
static void
set_age(int64_t base, int64_t seconds)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = time(NULL) - seconds } };
	char path[LOGKIT_PATH_BYTES];

	logkit_segment_path(&kit, base, path);
	ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
	logkit_remove_list(&kit);
}

/* ---- which ---- */

START_TEST(A12_retention_to_one_byte_leaves_the_active_segment)
{
	int64_t start;

	logkit_begin(&kit, formats[_i], SEGMENT);
	kit.settings.retention_bytes = 1;
	logkit_open(&kit);
	logkit_append(&kit, 27, 80);
	ck_assert_int_eq(partition_segments(kit.p), 3);
	ck_assert_int_eq(retire_at(clock_now_ns()), 2);
	/* The log start is raised while all files are there. */
	start = partition_log_start(kit.p);
	ck_assert_int_gt(start, 10);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 3);
	ck_assert_int_eq(partition_segments(kit.p), 1);
	ck_assert_int_eq(partition_size_bytes(kit.p), (27 - start) * (int64_t)(80 + record_header_bytes(formats[_i])));
	ck_assert(partition_retiring(kit.p));
	expect_out_of_range(0, start);
	run_jobs();
	ck_assert(!partition_retiring(kit.p));
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
	ck_assert(has_segment(start));
	logkit_expect(&kit, start, 27, 80);
	logkit_append(&kit, 30, 80);
	logkit_expect(&kit, start, 57, 80);
	logkit_reopen(&kit);
	ck_assert_int_eq(partition_log_start(kit.p), start);
	logkit_expect(&kit, start, 57, 80);
	logkit_end(&kit);
}
END_TEST

START_TEST(as_many_go_as_are_too_many)
{
	/* Four segments of 1,000 bytes and an active one of 500. */
	struct { int64_t keep, gone; } rows[] = { { 0, 0 }, { 4500, 0 }, { 4499, 1 }, { 3500, 1 }, { 3499, 2 }, { 501, 4 }, { 500, 4 },
		{ 1, 4 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		begin(5, 5);
		reopen_keeping(rows[i].keep, 0);
		ck_assert_int_eq(retire_at(clock_now_ns()), rows[i].gone);
		ck_assert_int_eq(partition_log_start(kit.p), 10 * rows[i].gone);
		ck_assert_int_eq(partition_size_bytes(kit.p), 4500 - 1000 * rows[i].gone);
		ck_assert_int_eq(partition_segments(kit.p), 5 - rows[i].gone);
		ck_assert_int_eq(retire_at(clock_now_ns()), 0);
		run_jobs();
		ck_assert_int_eq(logkit_count_files(&kit, ".log"), 5 - rows[i].gone);
		logkit_expect(&kit, 10 * rows[i].gone, 45, PAYLOAD);
		logkit_end(&kit);
	}
}
END_TEST

START_TEST(bug_C5_age_counts_from_the_last_append)
{
	logkit_begin(&kit, RECORD_CRC32C, SEGMENT);
	kit.settings.retention_age_ms = 60000;
	logkit_open(&kit);
	logkit_append(&kit, 35, PAYLOAD);
	ck_assert_int_eq(retire_at(clock_now_ns()), 0);
	ck_assert_int_eq(retire_at(clock_now_ns() + 30 * second_ns), 0);
	ck_assert_int_eq(retire_at(clock_now_ns() + 60 * second_ns), 3);
	ck_assert_int_eq(partition_log_start(kit.p), 30);
	/* Never the active one. */
	ck_assert_int_eq(retire_at(clock_now_ns() + DEEP * second_ns), 0);
	logkit_end(&kit);
}
END_TEST

START_TEST(age_of_a_log_that_was_closed_is_that_of_its_files)
{
	begin(5, 5);
	set_age(0, 100);
	set_age(10, 80);
	set_age(20, 30);
	set_age(30, 90);	/* behind a young one */
	reopen_keeping(0, 70000);
	ck_assert_int_eq(retire_at(clock_now_ns()), 2);
	ck_assert_int_eq(partition_log_start(kit.p), 20);
	ck_assert_int_eq(retire_at(clock_now_ns() + 50 * second_ns), 2);
	ck_assert_int_eq(partition_log_start(kit.p), 40);
	run_jobs();
	logkit_expect(&kit, 40, 45, PAYLOAD);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_C7_a_time_in_the_future_is_reported_and_is_now)
{
	char *lines;

	begin(4, 5);
	set_age(0, -3600);
	set_age(10, -7200);
	set_age(20, 50);
	logkit_catch_lines();
	reopen_keeping(0, 60000);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, "t-0: 2 segments were written in the future, by up to 7"));
	free(lines);
	ck_assert_int_eq(retire_at(clock_now_ns()), 0);
	ck_assert_int_eq(retire_at(clock_now_ns() + 50 * second_ns), 0);
	ck_assert_int_eq(retire_at(clock_now_ns() + 61 * second_ns), 3);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_C7_times_that_make_no_sense_do_no_harm)
{
	static const int64_t times[] = { INT64_MIN / 2, -1, 0, INT64_C(1) << 33, INT64_C(1) << 60 };

	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
		begin(3, 5);
		/* The file system keeps the nearest that it can. */
		set_age(0, time(NULL) - times[i]);
		reopen_keeping(0, INT64_C(36500) * 86400 * 1000);
		ck_assert_int_eq(retire_at(clock_now_ns()), 0);
		ck_assert_int_eq(partition_roll_due_ns(kit.p) > clock_now_ns(), 1);
		logkit_end(&kit);
	}
}
END_TEST

START_TEST(bug_C9_an_active_segment_is_sealed_at_the_age_and_goes_at_twice_of_it)
{
	int64_t due_ns;

	logkit_begin(&kit, RECORD_CRC32C, SEGMENT);
	kit.settings.retention_age_ms = 60000;
	logkit_open(&kit);
	ck_assert(partition_roll_due_ns(kit.p) == INT64_MAX);
	logkit_append(&kit, 1, PAYLOAD);
	due_ns = partition_roll_due_ns(kit.p);
	ck_assert_int_gt(due_ns, clock_now_ns() + 50 * second_ns);
	ck_assert_int_le(due_ns, clock_now_ns() + 60 * second_ns);
	/* The first record counts. */
	logkit_append(&kit, 5, PAYLOAD);
	ck_assert_int_eq(partition_roll_due_ns(kit.p), due_ns);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	ck_assert(partition_roll_due_ns(kit.p) == INT64_MAX);
	ck_assert_int_eq(retire_at(clock_now_ns() + 61 * second_ns), 1);
	/* An idle log ends as an empty segment, which stays. */
	ck_assert_int_eq(partition_log_start(kit.p), 6);
	ck_assert_int_eq(partition_log_end(kit.p), 6);
	ck_assert_int_eq(retire_at(clock_now_ns() + DEEP * second_ns), 0);
	ck_assert(partition_roll_due_ns(kit.p) == INT64_MAX);
	run_jobs();
	logkit_append(&kit, 1, PAYLOAD);
	logkit_expect(&kit, 6, 7, PAYLOAD);
	logkit_end(&kit);
}
END_TEST

START_TEST(the_younger_of_two_ages_seals)
{
	struct { int64_t segment_s, retention_s, due_s; } rows[] = { { 20, 60, 20 }, { 60, 20, 20 }, { 40, 0, 40 }, { 0, 40, 40 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		int64_t before_ns = clock_now_ns(), due_ns;

		logkit_begin(&kit, RECORD_CRC32C, SEGMENT);
		kit.settings.segment_age_ms = rows[i].segment_s * 1000;
		kit.settings.retention_age_ms = rows[i].retention_s * 1000;
		logkit_open(&kit);
		logkit_append(&kit, 1, PAYLOAD);
		due_ns = partition_roll_due_ns(kit.p);
		ck_assert_int_ge(due_ns, before_ns + rows[i].due_s * second_ns);
		ck_assert_int_le(due_ns, clock_now_ns() + rows[i].due_s * second_ns);
		/* Opened again it is as old as its file. */
		set_age(0, 30);
		logkit_reopen(&kit);
		ck_assert_int_le(llabs(partition_roll_due_ns(kit.p) - clock_now_ns() - (rows[i].due_s - 30) * second_ns), 2 * second_ns);
		logkit_end(&kit);
	}
}
END_TEST

/* A batch larger than a segment leaves segments that nobody has opened yet, and an active one with records. */
START_TEST(a_large_batch_ages_from_its_append)
{
	logkit_begin(&kit, RECORD_CRC32C, SEGMENT);
	kit.settings.retention_age_ms = 60000;
	logkit_open(&kit);
	ck_assert_int_eq(logkit_try_append(&kit, 35, PAYLOAD), 0);
	ck_assert_int_eq(partition_segments(kit.p), 4);
	ck_assert_int_ge(partition_roll_due_ns(kit.p), clock_now_ns() + 50 * second_ns);
	ck_assert_int_lt(partition_roll_due_ns(kit.p), INT64_MAX);
	ck_assert_int_eq(retire_at(clock_now_ns()), 0);
	ck_assert_int_eq(retire_at(clock_now_ns() + 61 * second_ns), 3);
	logkit_end(&kit);
}
END_TEST

/* ---- order ---- */

START_TEST(oldest_first_one_at_a_time_and_the_directory_forced)
{
	begin(4, 3);
	reopen_keeping(1, 0);
	ck_assert_int_eq(retire_at(clock_now_ns()), 3);
	logkit_trace_begin();
	run_jobs();
	ck_assert_str_eq(logkit_trace(), "unlink 00000000000000000000.log;fsync t-0;unlink 00000000000000000010.log;fsync t-0;"
	    "unlink 00000000000000000020.log;fsync t-0;");
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A18_everything_removable_gone_and_the_numbers_stay)
{
	begin(4, 0);
	reopen_keeping(1, 0);
	ck_assert_int_eq(retire_at(clock_now_ns()), 3);
	run_jobs();
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
	for (int i = 0; i < 3; i++) {
		logkit_reopen(&kit);
		ck_assert_int_eq(partition_log_start(kit.p), 30);
		ck_assert_int_eq(partition_log_end(kit.p), 30);
	}
	logkit_append(&kit, 25, PAYLOAD);
	ck_assert_int_eq(partition_log_end(kit.p), 55);
	logkit_expect(&kit, 30, 55, PAYLOAD);
	logkit_end(&kit);
}
END_TEST

START_TEST(readers_of_what_stays_notice_nothing)
{
	struct partition_place before, after;
	int64_t bytes;

	begin(5, 5);
	reopen_keeping(2500, 0);
	ck_assert_int_eq(logkit_find(&kit, 33, &before), PARTITION_FOUND);
	bytes = partition_visible_bytes(kit.p);
	ck_assert_int_eq(retire_at(clock_now_ns()), 2);
	ck_assert_int_eq(partition_visible_bytes(kit.p), bytes);
	ck_assert_int_eq(partition_find(kit.p, 33, &after), PARTITION_FOUND);
	ck_assert(before.segment == after.segment && before.position == after.position);
	ck_assert_int_eq(before.bytes_behind, after.bytes_behind);
	ck_assert_int_eq(after.bytes_behind, 1200);
	run_jobs();
	logkit_expect(&kit, 20, 45, PAYLOAD);
	logkit_end(&kit);
}
END_TEST

/* ---- what others have open ---- */

START_TEST(A12_a_reader_gets_every_byte_of_an_unlinked_segment)
{
	struct partition_place place;
	struct slice slice;
	uint8_t *whole, *got;
	size_t bytes;
	int fds;

	begin(3, 5);
	reopen_keeping(1, 0);
	whole = logkit_batch(RECORD_CRC32C, 0, 10, PAYLOAD, &bytes);
	got = malloc(bytes);
	fds = logkit_open_descriptors();
	ck_assert_int_eq(logkit_find(&kit, 4, &place), PARTITION_FOUND);
	partition_slice(&place, 1000, &slice);
	ck_assert_int_eq(slice.bytes, 600);
	ck_assert_int_eq(retire_at(clock_now_ns()), 2);
	run_jobs();
	ck_assert(!has_segment(0) && !has_segment(10));
	/* The file is there as long as it is read, and is closed by a job. */
	ck_assert(partition_retiring(kit.p));
	ck_assert_int_eq(slice_check(&slice), 0);
	logkit_read_slice(&slice, got);
	ck_assert(memcmp(got, whole + 400, 600) == 0);
	ck_assert_int_eq(logkit_open_descriptors(), fds + 1);
	slice_release(&slice);
	ck_assert_int_eq(logkit_open_descriptors(), fds + 1);
	run_jobs();
	ck_assert_int_eq(logkit_open_descriptors(), fds);
	ck_assert(!partition_retiring(kit.p));
	free(whole);
	free(got);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_C3_open_segments_are_closed_by_the_job)
{
	int fds;

	begin(8, 5);
	reopen_keeping(1, 0);
	fds = logkit_open_descriptors();
	logkit_expect(&kit, 0, 75, PAYLOAD);
	ck_assert_int_eq(logkit_open_descriptors(), fds + 7);
	ck_assert_int_eq(retire_at(clock_now_ns()), 7);
	ck_assert_int_eq(logkit_open_descriptors(), fds + 7);
	run_jobs();
	ck_assert_int_eq(logkit_open_descriptors(), fds);
	/* As many as before can be open again. */
	logkit_append(&kit, 200, PAYLOAD);
	logkit_expect(&kit, 70, 275, PAYLOAD);
	logkit_end(&kit);
}
END_TEST

/* However many others have been read since: what is being sent is still closed by a job, never by the sender. */
START_TEST(bug_C3_one_that_is_sent_is_closed_by_the_job_after_others_were_read)
{
	enum { SEGMENTS = 40, SENT = 20 };
	struct partition_place place;
	struct slice slices[SENT];
	int fds;

	begin(SEGMENTS, 5);
	reopen_keeping(1, 0);
	fds = logkit_open_descriptors();
	for (int i = 0; i < SENT; i++) {
		ck_assert_int_eq(logkit_find(&kit, 10 * i, &place), PARTITION_FOUND);
		partition_slice(&place, 100, &slices[i]);
	}
	logkit_expect(&kit, 0, 10 * (SEGMENTS - 1), PAYLOAD);
	ck_assert_int_eq(logkit_open_descriptors(), fds + SENT + 1);
	ck_assert_int_eq(retire_at(clock_now_ns()), SEGMENTS - 1);
	run_jobs();
	ck_assert_int_eq(logkit_open_descriptors(), fds + SENT);
	for (int i = 0; i < SENT; i++)
		slice_release(&slices[i]);
	ck_assert_int_eq(logkit_open_descriptors(), fds + SENT);
	run_jobs();
	ck_assert_int_eq(logkit_open_descriptors(), fds);
	logkit_end(&kit);
}
END_TEST

/*
 * A log that has failed gives way to another one, whose jobs close what is still being sent of the first; `_i`: also of segments
 * that had left it before.
 */
START_TEST(bug_C3_what_is_sent_of_a_log_that_was_replaced_is_closed_by_the_job)
{
	struct partition_opened again;
	struct partition_place place;
	struct slice slices[2];
	uint8_t got[100];
	int fds;

	begin(3, 5);
	reopen_keeping(1, 0);
	fds = logkit_open_descriptors();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(logkit_find(&kit, 20 * i + 1, &place), PARTITION_FOUND);
		partition_slice(&place, 100, &slices[i]);
	}
	if (_i == 1)
		ck_assert_int_eq(retire_at(clock_now_ns()), 2);
	partition_open(kit.data_fd, "t-0", &kit.settings, &kit.known, &again);
	ck_assert_ptr_nonnull(again.partition);
	partition_take_lingering(again.partition, kit.p);
	partition_close(kit.p);
	kit.p = again.partition;
	ck_assert_int_eq(retire_at(clock_now_ns()), 2);
	run_jobs();
	ck_assert(partition_retiring(kit.p));
	for (int i = 0; i < 2; i++) {
		logkit_read_slice(&slices[i], got);
		slice_release(&slices[i]);
	}
	ck_assert_int_eq(logkit_open_descriptors(), fds + 2);
	run_jobs();
	ck_assert_int_eq(logkit_open_descriptors(), fds);
	ck_assert(!partition_retiring(kit.p));
	logkit_end(&kit);
}
END_TEST

/* Closed with the log at the latest. */
START_TEST(closing_a_log_whose_old_segments_are_read)
{
	struct partition_place place;
	struct slice slice;
	uint8_t got[100];
	int fds;

	begin(3, 5);
	reopen_keeping(1, 0);
	fds = logkit_open_descriptors();
	ck_assert_int_eq(logkit_find(&kit, 4, &place), PARTITION_FOUND);
	partition_slice(&place, 100, &slice);
	ck_assert_int_eq(logkit_find(&kit, 14, &place), PARTITION_FOUND);
	ck_assert_int_eq(retire_at(clock_now_ns()), 2);
	logkit_close(&kit);
	ck_assert_int_eq(logkit_open_descriptors(), fds - 1);
	logkit_read_slice(&slice, got);
	slice_release(&slice);
	ck_assert_int_eq(logkit_open_descriptors(), fds - 2);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_start(kit.p), 0);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_load_of_a_segment_that_goes_meanwhile)
{
	/* Retired before the load opens it, unlinked before, and while it is open. */
	for (int when = 0; when < 3; when++) {
		struct partition_load *load;
		struct partition_place place;
		int fds;

		begin(3, 5);
		reopen_keeping(1, 0);
		fds = logkit_open_descriptors();
		ck_assert_int_eq(partition_find(kit.p, 13, &place), PARTITION_COLD);
		load = partition_load_begin(kit.p, 13);
		if (when == 2)
			partition_load_run(load);
		ck_assert_int_eq(retire_at(clock_now_ns()), 2);
		if (when == 1)
			run_jobs();
		if (when != 2)
			partition_load_run(load);
		ck_assert_int_eq(partition_load_finish(kit.p, load), 0);
		expect_out_of_range(13, 14);
		ck_assert(partition_retiring(kit.p) == (when != 1));
		run_jobs();
		ck_assert_int_eq(logkit_open_descriptors(), fds);
		ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
		logkit_end(&kit);
	}
}
END_TEST

/* A load stores the index of a segment that it has just read in full: that may be after its removal. */
START_TEST(an_index_that_is_stored_behind_a_removal)
{
	struct partition_load *load;
	struct partition_place place;
	char name[SEGMENT_NAME_BYTES], path[LOGKIT_PATH_BYTES];
	uint8_t *stored;
	size_t bytes;

	begin(3, 5);
	reopen_keeping(1, 0);
	index_file_name(name, 10);
	logkit_file_path(&kit, name, path);
	ck_assert_int_eq(partition_find(kit.p, 13, &place), PARTITION_COLD);
	load = partition_load_begin(kit.p, 13);
	partition_load_run(load);
	stored = logkit_read_file(path, &bytes);
	ck_assert_int_eq(retire_at(clock_now_ns()), 2);
	run_jobs();
	ck_assert_int_eq(logkit_file_bytes(path), -1);
	logkit_write_file(path, stored, bytes);
	ck_assert_int_eq(partition_load_finish(kit.p, load), 0);
	run_jobs();
	ck_assert_int_eq(logkit_file_bytes(path), -1);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
	free(stored);
	logkit_end(&kit);
}
END_TEST

/* What a job removes it has noted, also when such an index, of an old segment, is the last that it is to remove. */
START_TEST(a_load_that_ends_behind_a_removal_hides_no_note)
{
	struct partition_load *load;
	struct partition_place place;
	char *lines;

	begin(3, 5);
	reopen_keeping(1, 0);
	ck_assert_int_eq(partition_find(kit.p, 3, &place), PARTITION_COLD);
	load = partition_load_begin(kit.p, 3);
	partition_load_run(load);
	ck_assert_int_eq(retire_at(clock_now_ns()), 2);
	ck_assert_int_eq(partition_load_finish(kit.p, load), 0);
	run_jobs();
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
	logkit_close(&kit);
	logkit_catch_lines();
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_str_eq(lines, "");
	free(lines);
	logkit_end(&kit);
}
END_TEST

START_TEST(beside_a_barrier_and_a_roll)
{
	struct partition_barrier barrier;
	struct partition_roll *roll;
	struct partition_retire *retire;
	bool force_failed;

	begin(3, 5);
	reopen_keeping(1, 0);
	partition_barrier_begin(kit.p, &barrier);
	ck_assert_int_eq(retire_at(clock_now_ns()), 2);
	partition_barrier_run(&barrier);
	ck_assert_int_eq(partition_barrier_finish(kit.p, &barrier), 0);
	ck_assert_int_eq(partition_durable_end(kit.p), 25);
	retire = partition_retire_begin(kit.p);
	roll = partition_roll_begin(kit.p, NULL, 0, 0);
	partition_retire_run(retire);
	/* The one under way holds what it has taken; what comes meanwhile is the next one's. */
	ck_assert_int_eq(retire_at(clock_now_ns()), 0);
	partition_roll_run(roll);
	ck_assert_int_eq(partition_roll_finish(kit.p, roll), 0);
	ck_assert_int_eq(retire_at(clock_now_ns()), 1);
	ck_assert_int_eq(partition_retire_finish(kit.p, retire, &force_failed), 0);
	ck_assert(has_segment(20) && !has_segment(10));
	run_jobs();
	ck_assert(!has_segment(20));
	ck_assert_int_eq(partition_log_start(kit.p), 25);
	ck_assert_int_eq(partition_log_end(kit.p), 25);
	logkit_append(&kit, 30, PAYLOAD);
	logkit_expect(&kit, 25, 55, PAYLOAD);
	logkit_end(&kit);
}
END_TEST

/* ---- failures ---- */

START_TEST(a_failed_partition_keeps_its_files)
{
	bool force_failed;

	begin(4, 5);
	kit.settings.segment_age_ms = 60000;
	reopen_keeping(1, 0);
	logkit_expect(&kit, 0, 10, PAYLOAD);
	ck_assert_int_eq(retire_at(clock_now_ns()), 3);
	logkit_append(&kit, 1, PAYLOAD);
	ck_assert(partition_roll_due_ns(kit.p) < INT64_MAX);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FDATASYNC, .at = 1, .error = EIO });
	ck_assert_int_eq(logkit_barrier(&kit), -1);
	logkit_clear_fault();
	ck_assert(partition_failed(kit.p));
	ck_assert_int_eq(retire_at(clock_now_ns()), 0);
	ck_assert(partition_roll_due_ns(kit.p) == INT64_MAX);
	/* What was open is closed. */
	ck_assert_int_eq(run_job(&force_failed), 0);
	ck_assert_int_eq(run_job(&force_failed), -2);
	ck_assert(!partition_retiring(kit.p));
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 4);
	logkit_end(&kit);
}
END_TEST

START_TEST(what_cannot_be_unlinked_stays_and_so_does_all_behind_it)
{
	static const int errors[] = { EIO, EROFS, EPERM, EBUSY };

	for (int i = 0; i < 4; i++)
		for (int at = 1; at <= 3; at++) {
			bool force_failed = true;

			begin(4, 5);
			reopen_keeping(1, 0);
			ck_assert_int_eq(retire_at(clock_now_ns()), 3);
			logkit_set_fault((struct logkit_fault){ .call = CALL_UNLINK, .at = at, .error = errors[i] });
			ck_assert_int_eq(run_job(&force_failed), -1);
			ck_assert_int_eq(errno, errors[i]);
			ck_assert(!force_failed);
			ck_assert_int_eq(logkit_calls(CALL_UNLINK), at);
			ck_assert_int_eq(logkit_count_files(&kit, ".log"), 4 - (at - 1));
			/* It does not come back into the log, and goes when that is possible again. */
			ck_assert_int_eq(partition_log_start(kit.p), 30);
			run_jobs();
			ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
			logkit_end(&kit);
		}
}
END_TEST

START_TEST(without_a_descriptor_nothing_goes_and_it_is_tried_again)
{
	bool force_failed;

	begin(4, 5);
	reopen_keeping(1, 0);
	ck_assert_int_eq(retire_at(clock_now_ns()), 3);
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 1, .error = EMFILE });
	ck_assert_int_eq(run_job(&force_failed), -1);
	ck_assert_int_eq(errno, EMFILE);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 4);
	run_jobs();
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_file_that_is_gone_already_is_no_failure)
{
	char path[LOGKIT_PATH_BYTES];

	begin(4, 5);
	reopen_keeping(1, 0);
	logkit_segment_path(&kit, 10, path);
	unlink(path);
	ck_assert_int_eq(retire_at(clock_now_ns()), 3);
	run_jobs();
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
	logkit_end(&kit);
}
END_TEST

/* Otherwise a name that comes back after a power cut could stand before a gap. */
START_TEST(after_a_failed_force_nothing_more_goes)
{
	for (int at = 1; at <= 3; at++) {
		bool force_failed = false;

		begin(4, 5);
		reopen_keeping(1, 0);
		ck_assert_int_eq(retire_at(clock_now_ns()), 3);
		logkit_set_fault((struct logkit_fault){ .call = CALL_FSYNC, .at = at, .error = EIO });
		ck_assert_int_eq(run_job(&force_failed), -1);
		ck_assert_int_eq(errno, EIO);
		ck_assert(force_failed);
		ck_assert_int_eq(logkit_count_files(&kit, ".log"), 4 - at);
		ck_assert_int_eq(run_job(&force_failed), -2);
		ck_assert(!partition_retiring(kit.p));
		/* The log itself is well. */
		ck_assert(!partition_failed(kit.p));
		logkit_append(&kit, 20, PAYLOAD);
		ck_assert_int_eq(retire_at(clock_now_ns()), 2);
		logkit_set_fault((struct logkit_fault){ 0 });
		run_jobs();
		ck_assert_int_eq(logkit_calls(CALL_UNLINK), 0);
		logkit_expect(&kit, 50, 55, PAYLOAD);
		kit.known.log_start = 50;
		logkit_reopen(&kit);
		ck_assert_int_eq(partition_log_start(kit.p), 50);
		run_jobs();
		ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
		logkit_end(&kit);
	}
}
END_TEST

/* ---- the worker dies, the power is cut ---- */

START_TEST(what_was_published_does_not_come_back_when_the_worker_dies)
{
	for (int at = 1;; at++) {
		int status;
		pid_t child;

		begin(5, 5);
		reopen_keeping(1500, 0);
		logkit_close(&kit);
		child = fork();
		ck_assert_int_ne(child, -1);
		if (child == 0) {
			logkit_open(&kit);
			if (retire_at(clock_now_ns()) != 3)
				_exit(1);
			logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = LOGKIT_EXIT, .aim = LOGKIT_AT_ALL });
			run_jobs();
			_exit(0);
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 0));
		/* Published before the job began. */
		kit.known = (struct partition_known){ .published_end = 45, .log_start = 30 };
		logkit_open(&kit);
		ck_assert_int_eq(partition_log_start(kit.p), 30);
		ck_assert_int_eq(partition_size_bytes(kit.p), 1500);
		expect_out_of_range(0, 30);
		run_jobs();
		ck_assert_int_eq(logkit_count_files(&kit, ".log"), 2);
		logkit_expect(&kit, 30, 45, PAYLOAD);
		logkit_append(&kit, 10, PAYLOAD);
		logkit_end(&kit);
		if (WEXITSTATUS(status) == 0)
			break;
	}
}
END_TEST

/* Files as they were, to be put back: a name whose removal no force has reached may come back. */
static uint8_t *copies[8];
static size_t copy_bytes[8];

/*
 * Ends at the n-th call: the directory is opened, then each file is unlinked and the directory forced. The last unlink may or may
 * not have reached the disk; all before it have, and nothing behind it was touched. Nobody remembers a log start then.
 */
START_TEST(a_power_cut_at_any_step_leaves_no_gap)
{
	for (int at = 1;; at++) {
		int forced = at < 3 ? 0 : (at - 2) / 2, unlinked = at < 2 ? 0 : (at - 1) / 2, status;
		pid_t child;
		char path[LOGKIT_PATH_BYTES];

		begin(6, 5);
		logkit_close(&kit);
		for (int i = 0; i < 5; i++) {
			logkit_segment_path(&kit, 10 * i, path);
			copies[i] = logkit_read_file(path, &copy_bytes[i]);
		}
		child = fork();
		ck_assert_int_ne(child, -1);
		if (child == 0) {
			kit.settings.retention_bytes = 1;
			logkit_open(&kit);
			if (retire_at(clock_now_ns()) != 5)
				_exit(1);
			logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = LOGKIT_EXIT });
			run_jobs();
			_exit(0);
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 0));
		if (WEXITSTATUS(status) == 0)
			forced = unlinked = 5;
		for (int back = unlinked - forced; back >= 0; back--) {
			int first = unlinked - back;

			ck_assert_int_eq(logkit_count_files(&kit, ".log"), 6 - unlinked);
			if (back > 0) {
				logkit_segment_path(&kit, 10 * first, path);
				logkit_write_file(path, copies[first], copy_bytes[first]);
			}
			logkit_open(&kit);
			ck_assert_int_eq(partition_log_start(kit.p), 10 * first);
			ck_assert_int_eq(partition_log_end(kit.p), 55);
			logkit_expect(&kit, 10 * first, 55, PAYLOAD);
			logkit_close(&kit);
			if (back > 0)
				unlink(path);
		}
		for (int i = 0; i < 5; i++)
			free(copies[i]);
		logkit_end(&kit);
		if (WEXITSTATUS(status) == 0)
			break;
	}
}
END_TEST

START_TEST(a_published_start_holds_whatever_the_files_are)
{
	struct { int64_t start, expected; int segments; } rows[] = { { 0, 0, 4 }, { 9, 9, 4 }, { 10, 10, 3 }, { 15, 15, 3 }, { 30, 30, 1 },
		{ 33, 33, 1 }, { 35, 35, 1 } };

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct partition_place place;

		begin(4, 5);
		logkit_close(&kit);
		kit.known = (struct partition_known){ .published_end = 35, .log_start = rows[i].start };
		logkit_open(&kit);
		ck_assert_int_eq(partition_log_start(kit.p), rows[i].expected);
		ck_assert_int_eq(partition_segments(kit.p), rows[i].segments);
		if (rows[i].start > 0)
			ck_assert_int_eq(partition_find(kit.p, rows[i].start - 1, &place), PARTITION_BROKEN);
		logkit_expect(&kit, rows[i].start, 35, PAYLOAD);
		run_jobs();
		ck_assert_int_eq(logkit_count_files(&kit, ".log"), rows[i].segments);
		/* And rises with the next segment that goes. */
		logkit_append(&kit, 20, PAYLOAD);
		reopen_keeping(1, 0);
		ck_assert_int_ge(retire_at(clock_now_ns()), 1);
		ck_assert_int_eq(partition_log_start(kit.p), 50);
		logkit_end(&kit);
	}
}
END_TEST

/* ---- very many ---- */

START_TEST(ten_thousand_segments_go_in_bounded_jobs)
{
	int fds, jobs = 0, most = 0, before = 10000;
	bool force_failed;
	size_t bytes;
	uint8_t *batch;

	logkit_begin(&kit, RECORD_PLAIN, 64);
	kit.settings.retention_bytes = 1;
	logkit_open(&kit);
	fds = logkit_open_descriptors();
	batch = logkit_batch(RECORD_PLAIN, 0, 10000, 60, &bytes);
	ck_assert_int_eq(logkit_roll(&kit, batch, bytes, 10000), 0);
	free(batch);
	ck_assert_int_eq(partition_segments(kit.p), 10000);
	ck_assert_int_eq(retire_at(clock_now_ns()), 9999);
	ck_assert_int_eq(partition_log_start(kit.p), 9999);
	while (partition_retiring(kit.p)) {
		int now;

		ck_assert_int_eq(run_job(&force_failed), 0);
		now = logkit_calls(CALL_UNLINK);
		most = now - before > most && jobs > 0 ? now - before : most;
		before = now;
		jobs++;
		ck_assert_int_eq(logkit_open_descriptors(), fds);
	}
	ck_assert_int_ge(jobs, 10);
	ck_assert_int_le(most, 1000);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 1);
	logkit_end(&kit);
}
END_TEST

static int
slow_fsync(int fd)
{
	struct timespec left = { .tv_nsec = (RETENTION_JOB_MS / 2 + 10) * CLOCK_NS_PER_MS };

	(void)fd;
	while (nanosleep(&left, &left) == -1)
		;
	return 0;
}

/* A stop waits for the job, so a slow disk makes it shorter. */
START_TEST(a_job_ends_soon_on_a_slow_disk)
{
	bool force_failed;

	begin(10, 5);
	reopen_keeping(1, 0);
	ck_assert_int_eq(retire_at(clock_now_ns()), 9);
	syscalls.fsync = slow_fsync;
	ck_assert_int_eq(run_job(&force_failed), 0);
	ck_assert_int_ge(logkit_count_files(&kit, ".log"), 8);
	ck_assert_int_le(logkit_count_files(&kit, ".log"), 9);
	ck_assert(partition_retiring(kit.p));
	logkit_end(&kit);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("retention");
	TCase *tests = tcase_create("retention");

	tcase_set_timeout(tests, 120);
	suite_add_tcase(suite, tests);
	tcase_add_loop_test(tests, A12_retention_to_one_byte_leaves_the_active_segment, 0, FORMATS);
	tcase_add_test(tests, as_many_go_as_are_too_many);
	tcase_add_test(tests, bug_C5_age_counts_from_the_last_append);
	tcase_add_test(tests, age_of_a_log_that_was_closed_is_that_of_its_files);
	tcase_add_test(tests, bug_C7_a_time_in_the_future_is_reported_and_is_now);
	tcase_add_test(tests, bug_C7_times_that_make_no_sense_do_no_harm);
	tcase_add_test(tests, bug_C9_an_active_segment_is_sealed_at_the_age_and_goes_at_twice_of_it);
	tcase_add_test(tests, the_younger_of_two_ages_seals);
	tcase_add_test(tests, a_large_batch_ages_from_its_append);
	tcase_add_test(tests, oldest_first_one_at_a_time_and_the_directory_forced);
	tcase_add_test(tests, bug_A18_everything_removable_gone_and_the_numbers_stay);
	tcase_add_test(tests, readers_of_what_stays_notice_nothing);
	tcase_add_test(tests, A12_a_reader_gets_every_byte_of_an_unlinked_segment);
	tcase_add_test(tests, bug_C3_open_segments_are_closed_by_the_job);
	tcase_add_test(tests, bug_C3_one_that_is_sent_is_closed_by_the_job_after_others_were_read);
	tcase_add_loop_test(tests, bug_C3_what_is_sent_of_a_log_that_was_replaced_is_closed_by_the_job, 0, 2);
	tcase_add_test(tests, closing_a_log_whose_old_segments_are_read);
	tcase_add_test(tests, a_load_of_a_segment_that_goes_meanwhile);
	tcase_add_test(tests, an_index_that_is_stored_behind_a_removal);
	tcase_add_test(tests, a_load_that_ends_behind_a_removal_hides_no_note);
	tcase_add_test(tests, beside_a_barrier_and_a_roll);
	tcase_add_test(tests, a_failed_partition_keeps_its_files);
	tcase_add_test(tests, what_cannot_be_unlinked_stays_and_so_does_all_behind_it);
	tcase_add_test(tests, without_a_descriptor_nothing_goes_and_it_is_tried_again);
	tcase_add_test(tests, a_file_that_is_gone_already_is_no_failure);
	tcase_add_test(tests, after_a_failed_force_nothing_more_goes);
	tcase_add_test(tests, what_was_published_does_not_come_back_when_the_worker_dies);
	tcase_add_test(tests, a_power_cut_at_any_step_leaves_no_gap);
	tcase_add_test(tests, a_published_start_holds_whatever_the_files_are);
	tcase_add_test(tests, ten_thousand_segments_go_in_bounded_jobs);
	tcase_add_test(tests, a_job_ends_soon_on_a_slow_disk);
	return unit_run(suite);
}
