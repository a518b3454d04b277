/*
 * The clean-stop marker: what is left is taken once; a damaged, cut or foreign one is not believed; those of workers that
 * do not exist any more go away.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/stop_marker.h"

enum { WORKERS = 4, ENTRIES = 20 };

static struct logkit kit;
static char path[LOGKIT_PATH_BYTES];	/* of worker 2's marker */

static void
begin(void)
{
	logkit_begin(&kit, RECORD_CRC32C, 1000);
	snprintf(path, sizeof(path), "%.300s/worker-2.stopped", kit.data_path);
}

static const char *
name_of(int number)
{
	static char names[ENTRIES][300];

	/* Not sorted, of all lengths. */
	snprintf(names[number], sizeof(names[number]), "%c%0*d-0", 'a' + number * 7 % 13, number * 12 + 1, number);
	return names[number];
}

static struct stop_state
state_of(int number)
{
	return (struct stop_state){ .base = number * 100, .end = number * 101, .position = number * 1000,
		.file_bytes = number % 2 == 0 ? number * 1000 : 1 << 20, .modified_ns = 1700000000000000000 + number };
}

static int
try_leave(int worker, int count)
{
	struct stop_entry entries[ENTRIES];

	for (int i = 0; i < count; i++)
		entries[i] = (struct stop_entry){ .name = name_of(i), .state = state_of(i) };
	return stop_marker_leave(kit.data_fd, worker, entries, (size_t)count);
}

static void
leave(int worker, int count)
{
	ck_assert_int_eq(try_leave(worker, count), 0);
}

/* Takes worker 2's marker, which must have so many entries, and be gone. */
static void
expect_taken(int count)
{
	struct stop_marker marker;

	stop_marker_take(&marker, kit.data_fd, 2, WORKERS);
	ck_assert_uint_eq(marker.count, (size_t)count);
	for (int i = 0; i < ENTRIES; i++) {
		const struct stop_state *found = stop_marker_find(&marker, name_of(i));
		struct stop_state wanted = state_of(i);

		ck_assert_int_eq(found != NULL, i < count);
		if (found != NULL)
			ck_assert_mem_eq(found, &wanted, sizeof(wanted));
	}
	ck_assert_ptr_null(stop_marker_find(&marker, "nobody"));
	stop_marker_free(&marker);
	ck_assert_int_eq(logkit_file_bytes(path), -1);
}

static int
count_lines(const char *lines)
{
	int count = 0;

	for (; *lines != '\0'; lines++)
		count += *lines == '\n';
	return count;
}

/* The same with one line that names the file. */
static void
expect_refused(void)
{
	char *lines;

	logkit_catch_lines();
	expect_taken(0);
	lines = logkit_caught_lines();
	ck_assert_int_eq(count_lines(lines), 1);
	ck_assert_ptr_nonnull(strstr(lines, "worker-2.stopped"));
	free(lines);
}

START_TEST(what_is_left_is_taken_once)
{
	begin();
	logkit_trace_caches();
	expect_taken(0);
	ck_assert_str_eq(logkit_trace(), "unlink worker-2.stopped;");
	for (int count = 0; count <= ENTRIES; count++) {
		leave(2, count);
		expect_taken(count);
		expect_taken(0);
	}
	leave(2, 3);
	leave(2, 7);
	expect_taken(7);
	logkit_end(&kit);
}
END_TEST

START_TEST(it_is_gone_durably_when_it_has_been_taken)
{
	char expected[512];

	begin();
	leave(2, 3);
	logkit_trace_caches();
	expect_taken(3);
	snprintf(expected, sizeof(expected), "unlink worker-2.stopped;fsync %s;", strrchr(kit.data_path, '/') + 1);
	ck_assert_str_eq(logkit_trace(), expected);
	logkit_end(&kit);
}
END_TEST

START_TEST(workers_that_do_not_exist_leave_nothing)
{
	const char *names[] = { "worker-4.stopped", "worker-5.stopped", "worker-123.stopped" };
	const char *others[] = { "worker-3.stopped", "worker-0.stopped", "worker-04.stopped", "worker-4.stoppe",
		"worker-4.stoppedx", "worker--4.stopped", "xworker-4.stopped", "worker-.stopped" };
	char file[LOGKIT_PATH_BYTES];

	begin();
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(file, sizeof(file), "%.300s/%s", kit.data_path, names[i]);
		logkit_write_file(file, "x", 1);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		snprintf(file, sizeof(file), "%.300s/%s", kit.data_path, others[i]);
		logkit_write_file(file, "x", 1);
	}
	logkit_trace_caches();
	expect_taken(0);
	ck_assert_ptr_nonnull(strstr(logkit_trace(), "fsync"));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(file, sizeof(file), "%.300s/%s", kit.data_path, names[i]);
		ck_assert_int_eq(logkit_file_bytes(file), -1);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		snprintf(file, sizeof(file), "%.300s/%s", kit.data_path, others[i]);
		ck_assert_int_eq(logkit_file_bytes(file), 1);
	}
	logkit_end(&kit);
}
END_TEST

START_TEST(every_byte_flipped_or_cut)
{
	size_t bytes;
	uint8_t *whole;

	begin();
	leave(2, 2);
	whole = logkit_read_file(path, &bytes);
	for (size_t i = 0; i < bytes; i++) {
		logkit_write_file(path, whole, i);
		expect_refused();
		for (int bit = 0; bit < 8; bit += 3) {
			whole[i] ^= (uint8_t)(1 << bit);
			logkit_write_file(path, whole, bytes);
			expect_refused();
			whole[i] ^= (uint8_t)(1 << bit);
		}
	}
	logkit_write_file(path, whole, bytes);
	expect_taken(2);
	free(whole);
	logkit_end(&kit);
}
END_TEST

START_TEST(random_bytes_and_large_files)
{
	unsigned seed = (unsigned)time(NULL) * 2 + (unsigned)getpid();
	uint8_t garbage[2000];

	printf("random_bytes_and_large_files: seed %u\n", seed);
	fflush(stdout);
	srand(seed);
	begin();
	for (int round = 0; round < 300; round++) {
		size_t size = (size_t)rand() % sizeof(garbage);

		for (size_t i = 0; i < size; i++)
			garbage[i] = round % 5 == 0 ? 0 : (uint8_t)rand();
		logkit_write_file(path, garbage, size);
		expect_refused();
	}
	logkit_write_file(path, garbage, 100);
	logkit_truncate(path, INT64_C(1) << 40);
	expect_refused();
	logkit_end(&kit);
}
END_TEST

/* Where one of them cannot be removed the others are, and that is forced. `_i`: which; or none can. */
START_TEST(workers_that_do_not_exist_and_cannot_be_forgotten)
{
	char file[LOGKIT_PATH_BYTES], *lines;
	int left = 0;

	begin();
	for (int i = WORKERS; i < WORKERS + 3; i++) {
		snprintf(file, sizeof(file), "%.300s/worker-%d.stopped", kit.data_path, i);
		logkit_write_file(file, "x", 1);
	}
	/* The first one is its own. */
	logkit_set_fault((struct logkit_fault){ .call = CALL_UNLINK, .at = 2 + _i % 3, .error = EROFS, .sticky = _i == 3,
	    .aim = LOGKIT_AT_ALL });
	logkit_trace_caches();
	logkit_catch_lines();
	expect_taken(0);
	lines = logkit_caught_lines();
	ck_assert_int_eq(strstr(logkit_trace(), "fsync") != NULL, _i < 3);
	for (int i = WORKERS; i < WORKERS + 3; i++) {
		snprintf(file, sizeof(file), "%.300s/worker-%d.stopped", kit.data_path, i);
		left += logkit_file_bytes(file) == 1;
	}
	ck_assert_int_eq(left, _i < 3 ? 1 : 3);
	ck_assert_int_eq(count_lines(lines), left);
	free(lines);
	logkit_end(&kit);
}
END_TEST

/* Changes the int32 at `position` and corrects the sum. */
static void
change(int64_t position, uint32_t value)
{
	size_t bytes;
	uint8_t *whole = logkit_read_file(path, &bytes);

	bytes_put_u32(whole + position, value);
	bytes_put_u32(whole + bytes - 4, crc32c(whole, bytes - 4));
	logkit_write_file(path, whole, bytes);
	free(whole);
}

START_TEST(from_the_future_or_impossible)
{
	begin();
	leave(2, 3);
	change(8, 2);
	expect_refused();
	for (int i = 0; i < 4; i++) {
		uint32_t counts[] = { 2, 4, 0x7FFFFFFF, 0xFFFFFFFF };

		leave(2, 3);
		change(12, counts[i]);
		expect_refused();
	}
	/* A name that leads out of the file; an end before the base. */
	leave(2, 3);
	change(16, 0xFFFF0000);
	expect_refused();
	leave(2, 1);
	change(16 + 2 + (int64_t)strlen(name_of(0)), 0x80000000);
	expect_refused();
	logkit_end(&kit);
}
END_TEST

START_TEST(what_no_log_can_be_is_not_believed)
{
	const struct stop_state bad[] = { { .base = -1, .end = 3, .position = 300, .file_bytes = 300 },
		{ .base = 5, .end = 3, .position = 300, .file_bytes = 300 }, { .end = 3, .position = -1, .file_bytes = 300 },
		{ .end = 3, .position = 300, .file_bytes = 299 }, { .end = 3, .file_bytes = 300 },
		{ .position = 300, .file_bytes = 300 } };

	begin();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct stop_entry entry = { .name = "t-0", .state = bad[i] };

		ck_assert_int_eq(stop_marker_leave(kit.data_fd, 2, &entry, 1), 0);
		expect_refused();
	}
	logkit_end(&kit);
}
END_TEST

START_TEST(what_cannot_be_read_or_removed)
{
	struct stop_marker marker;
	char *lines;

	begin();
	leave(2, 3);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = EIO, .sticky = true, .aim = LOGKIT_AT_ALL });
	expect_refused();
	leave(2, 3);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FSTAT, .at = 2, .error = EIO, .aim = LOGKIT_AT_ALL });
	expect_refused();
	leave(2, 3);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FSYNC, .at = 1, .error = EIO, .sticky = true, .aim = LOGKIT_AT_ALL });
	expect_refused();
	/* It would speak of these logs again when they have been written to. */
	leave(2, 3);
	logkit_set_fault((struct logkit_fault){ .call = CALL_UNLINK, .at = 1, .error = EROFS, .sticky = true, .aim = LOGKIT_AT_ALL });
	logkit_catch_lines();
	stop_marker_take(&marker, kit.data_fd, 2, WORKERS);
	lines = logkit_caught_lines();
	ck_assert_int_eq(count_lines(lines), 1);
	free(lines);
	ck_assert_uint_eq(marker.count, 0);
	logkit_clear_fault();
	expect_taken(3);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	logkit_catch_lines();
	stop_marker_take(&marker, kit.data_fd, 2, WORKERS);
	free(logkit_caught_lines());
	ck_assert_uint_eq(marker.count, 0);
	ck_assert_int_eq(try_leave(2, 3), -1);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_failed_write_leaves_none)
{
	for (int at = 1;; at++) {
		bool hit;

		begin();
		logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = ENOSPC, .aim = LOGKIT_AT_ALL });
		ck_assert_int_eq(try_leave(2, 5), logkit_fault_hit() ? -1 : 0);
		hit = logkit_fault_hit();
		logkit_clear_fault();
		expect_taken(hit ? 0 : 5);
		logkit_end(&kit);
		if (!hit)
			break;
	}
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("stop marker");
	TCase *tests = tcase_create("stop marker");

	tcase_set_timeout(tests, 60);
	suite_add_tcase(suite, tests);
	tcase_add_test(tests, what_is_left_is_taken_once);
	tcase_add_test(tests, it_is_gone_durably_when_it_has_been_taken);
	tcase_add_test(tests, workers_that_do_not_exist_leave_nothing);
	tcase_add_loop_test(tests, workers_that_do_not_exist_and_cannot_be_forgotten, 0, 4);
	tcase_add_test(tests, every_byte_flipped_or_cut);
	tcase_add_test(tests, random_bytes_and_large_files);
	tcase_add_test(tests, from_the_future_or_impossible);
	tcase_add_test(tests, what_no_log_can_be_is_not_believed);
	tcase_add_test(tests, what_cannot_be_read_or_removed);
	tcase_add_test(tests, a_failed_write_leaves_none);
	return unit_run(suite);
}
