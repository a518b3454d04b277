/*
 * Opening a partition's log, at the start and again after a failed force, with board and job queue of the test's: what is
 * read from the disk itself, what must come back, when it is tried again, what board and operator are told, and when a log
 * takes the place of the one that has failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/opening.h"
#include "worker/retain.h"
#include "worker/syscalls.h"

enum { RECORDS = 5, SIZE = 100, RECORD_BYTES = 8 + SIZE };

static const int64_t S = CLOCK_NS_PER_S;

static struct logkit kit;
static struct worker worker;
static struct board_worker counters;
static struct board_partition slot;
static struct topic topic;
static struct lane lane;
static struct job *submitted;		/* the last one, by next */
static int retained, direct_opens;
static int32_t told_opened, told_failed;
static int (*below_open)(int dir_fd, const char *name, int flags, mode_t mode);

/* ---- Fakes ---- */

void
jobs_submit(struct jobs *jobs, struct job *job)
{
	(void)jobs;
	job->next = submitted;
	submitted = job;
}

void
retain_opened(struct lane *of)
{
	ck_assert_ptr_eq(of, &lane);
	retained++;
}

static int
counting_open(int dir_fd, const char *name, int flags, mode_t mode)
{
	direct_opens += (flags & O_DIRECT) != 0;
	return below_open(dir_fd, name, flags, mode);
}

static void
all_done(void *context, int32_t opened, int32_t failed)
{
	ck_assert_ptr_eq(context, &worker);
	told_opened = opened;
	told_failed = failed;
}

/* ---- The set-up ---- */

/* A closed log of five records, forced, and a lane that knows nothing of it. */
static void
begin(void)
{
	logkit_begin(&kit, RECORD_CRC32C, 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, RECORDS, SIZE);
	logkit_close(&kit);
	below_open = syscalls.open;
	syscalls.open = counting_open;
	memset(&counters, 0, sizeof(counters));
	memset(&slot, 0, sizeof(slot));
	topic = (struct topic){ .log = { .record_format = RECORD_CRC32C, .segment_bytes = 1 << 20,
		.index_interval_bytes = 4096 } };
	worker = (struct worker){ .counters = &counters, .lanes = &lane, .lane_count = 1, .data_fd = kit.data_fd,
		.now_ns = 1000 * S };
	lane = (struct lane){ .worker = &worker, .topic = &topic, .slot = &slot, .name = "t-0" };
	submitted = NULL;
	retained = direct_opens = 0;
	told_opened = told_failed = -1;
	logkit_catch_lines();
}

static void
run_jobs(void)
{
	while (submitted != NULL) {
		struct job *job = submitted;

		submitted = job->next;
		job->run(job);
		job->done(job);
	}
}

static void
end(void)
{
	free(logkit_caught_lines());
	run_jobs();
	partition_close(lane.log);
	logkit_end(&kit);
}

static long
count_lines(const char *text)
{
	char *lines = logkit_caught_lines();
	long count = 0;

	for (const char *at = strstr(lines, text); at != NULL; at = strstr(at + 1, text))
		count++;
	free(lines);
	logkit_catch_lines();
	return count;
}

static void
board(enum board_partition_state state, int64_t high_watermark, int64_t durable_end, bool forcing)
{
	board_publish(&slot, 0, high_watermark, durable_end);
	board_set(&slot.size_bytes, high_watermark * RECORD_BYTES);
	slot.state = state;
	slot.opened = 1;
	slot.forcing = forcing;
}

static void
start(void)
{
	opening_begin_all(&worker, all_done, &worker);
	ck_assert_int_eq(slot.forcing, 1);
	run_jobs();
}

static void
expect_board(enum board_partition_state state, int64_t high_watermark, int64_t durable_end)
{
	int64_t log_start, high, durable;

	board_read(&slot, &log_start, &high, &durable);
	ck_assert_int_eq(slot.state, state);
	ck_assert_int_eq(high, high_watermark);
	ck_assert_int_eq(durable, durable_end);
}

/* ---- What is known ---- */

START_TEST(a_first_start_reads_from_the_disk)
{
	begin();
	start();
	ck_assert_int_eq(told_opened, 1);
	ck_assert_int_gt(direct_opens, 0);
	expect_board(BOARD_OPEN, RECORDS, RECORDS);
	ck_assert_int_eq(slot.opened, 1);
	ck_assert_int_eq(slot.forcing, 0);
	ck_assert_int_eq(retained, 1);
	ck_assert_int_eq(count_lines("t-0"), 0);
	end();
}
END_TEST

START_TEST(a_process_that_died_leaves_a_cache_to_believe)
{
	begin();
	board(BOARD_OPEN, RECORDS, 2, false);
	start();
	ck_assert_int_eq(direct_opens, 0);
	expect_board(BOARD_OPEN, RECORDS, RECORDS);
	end();
}
END_TEST

/* Its predecessor has released it so, and lives. */
static void
hand_over(void)
{
	char path[LOGKIT_PATH_BYTES];
	struct stat st;

	logkit_segment_path(&kit, 0, path);
	ck_assert_int_eq(stat(path, &st), 0);
	worker.handed = calloc(1, sizeof(*worker.handed));
	ck_assert_ptr_nonnull(worker.handed);
	*worker.handed = (struct message_end){ .end = RECORDS, .position = RECORDS * RECORD_BYTES, .file_bytes = st.st_size,
		.modified_ns = st.st_mtim.tv_sec * S + st.st_mtim.tv_nsec };
}

/*
 * `_i`: should another process have begun to open it since, what was released counts no more; and should nobody have told of this
 * log, the board alone does.
 */
START_TEST(D03_a_released_log_is_forced_as_far_as_the_board_says)
{
	int64_t durable_end = _i == 0 ? RECORDS - 2 : RECORDS;

	begin();
	board(BOARD_OPEN, RECORDS, RECORDS - 2, _i == 1);
	hand_over();
	if (_i == 2)
		worker.handed->slot = -1;
	start();
	ck_assert_int_eq(told_opened, 1);
	ck_assert_ptr_null(worker.handed);
	ck_assert_int_eq(direct_opens > 0, _i == 1);
	ck_assert_int_eq(partition_durable_end(lane.log), durable_end);
	ck_assert_int_eq(partition_unforced_bytes(lane.log), (RECORDS - durable_end) * RECORD_BYTES);
	expect_board(BOARD_OPEN, RECORDS, durable_end);
	ck_assert_int_eq(commit_due(&lane.commit, worker.now_ns), _i == 0);
	end();
}
END_TEST

START_TEST(less_than_was_published_stays_closed)
{
	begin();
	board(BOARD_OPEN, RECORDS + 2, RECORDS, false);
	start();
	ck_assert_int_eq(told_failed, 1);
	ck_assert_ptr_null(lane.log);
	expect_board(BOARD_CLOSED, RECORDS + 2, RECORDS);
	/* The next process is to hold it to the same. */
	ck_assert_int_eq(slot.forcing, 0);
	ck_assert_int_eq(count_lines("partition t-0: stays closed: the log on disk ends at offset 5, but 7 had been published"), 1);
	worker.now_ns += 1000 * S;
	opening_due(&worker);
	ck_assert_ptr_null(submitted);
	end();
}
END_TEST

/* `_i`: a force was under way when the process died; or it is known that one has failed; one record is lost, or two. */
START_TEST(after_a_force_that_failed_the_durable_end_must_come_back)
{
	int lost = 1 + _i / 2;

	begin();
	board(_i % 2 == 0 ? BOARD_OPEN : BOARD_FAILED, RECORDS + lost, RECORDS - 1, _i % 2 == 0);
	start();
	ck_assert_int_eq(told_opened, 1);
	ck_assert_int_gt(direct_opens, 0);
	expect_board(BOARD_OPEN, RECORDS, RECORDS);
	ck_assert_int_eq(slot.forcing, 0);
	ck_assert_int_eq(count_lines(lost == 2 ? "is open again with less: its log was read from the disk and ends at offset 5. Lost: 2 "
	    "records, up to offset 6" : "Lost: 1 record, up to offset 5"), 1);
	ck_assert_int_eq(board_get(&counters.truncated_bytes), lost * RECORD_BYTES);
	end();
}
END_TEST

START_TEST(after_a_force_that_failed_without_a_loss)
{
	begin();
	board(BOARD_FAILED, RECORDS - 1, RECORDS - 2, false);
	start();
	expect_board(BOARD_OPEN, RECORDS, RECORDS);
	ck_assert_int_eq(count_lines("is open again: its log was read from the disk, and nothing of it is lost"), 1);
	ck_assert_int_eq(board_get(&counters.truncated_bytes), 0);
	end();
}
END_TEST

START_TEST(less_than_was_forced_is_not_used)
{
	begin();
	board(_i == 0 ? BOARD_OPEN : BOARD_FAILED, RECORDS + 2, RECORDS + 1, _i == 0);
	start();
	ck_assert_int_eq(told_failed, 1);
	ck_assert_ptr_null(lane.log);
	expect_board(_i == 0 ? BOARD_CLOSED : BOARD_FAILED, RECORDS + 2, RECORDS + 1);
	/* What the next process needs to know. */
	ck_assert_int_eq(slot.forcing, _i == 0);
	ck_assert_int_eq(count_lines("the log on disk ends at offset 5, but 6 had been forced to disk"), 1);
	end();
}
END_TEST

/* ---- Again ---- */

static void
fail_forces(void)
{
	logkit_set_fault((struct logkit_fault){ .call = CALL_FDATASYNC, .at = 1, .error = EIO, .sticky = true });
}

/* The log is open, with five forced records and two more, and fails. */
static void
fail_open_log(void)
{
	start();
	kit.p = lane.log;
	logkit_append(&kit, 2, SIZE);
	lane_publish(&lane);
	fail_forces();
	ck_assert_int_eq(logkit_barrier(&kit), -1);
	kit.p = NULL;
	slot.state = BOARD_FAILED;
	opening_log_failed(&lane);
}

/* It is tried so many seconds from now, and not before. */
static void
expect_try(int64_t wait_s)
{
	worker.now_ns += wait_s * S - 1;
	opening_due(&worker);
	ck_assert_ptr_null(submitted);
	worker.now_ns++;
	opening_due(&worker);
	ck_assert_ptr_nonnull(submitted);
	/* And not twice. */
	opening_due(&worker);
	ck_assert_ptr_null(submitted->next);
	run_jobs();
}

START_TEST(a_failed_log_is_opened_again_until_it_works)
{
	struct partition *failed;
	int fds;

	begin();
	fail_open_log();
	failed = lane.log;
	fds = logkit_open_descriptors();
	for (int i = 0; i < 4; i++) {
		expect_try(1 << i);
		ck_assert_ptr_eq(lane.log, failed);
		expect_board(BOARD_FAILED, RECORDS + 2, RECORDS);
		ck_assert_int_eq(logkit_open_descriptors(), fds);
	}
	/* A line a minute. */
	ck_assert_int_eq(count_lines("has failed, and its log cannot be opened again yet"), 1);
	ck_assert_int_eq(board_get(&counters.storage_errors[BOARD_OPEN_LOG]), 4);
	logkit_clear_fault();
	expect_try(16);
	ck_assert_ptr_ne(lane.log, failed);
	ck_assert_int_eq(logkit_open_descriptors(), fds);
	expect_board(BOARD_OPEN, RECORDS + 2, RECORDS + 2);
	ck_assert_int_eq(lane.visible_bytes, (RECORDS + 2) * RECORD_BYTES);
	ck_assert_int_eq(lane.commit.durable_end, RECORDS + 2);
	ck_assert_int_eq(retained, 2);
	worker.now_ns += 1000 * S;
	opening_due(&worker);
	ck_assert_ptr_null(submitted);
	end();
}
END_TEST

/* A job of the failed log comes back to that one. `_i`: which. */
START_TEST(the_failed_log_stays_while_its_jobs_are_under_way)
{
	struct partition *failed;

	begin();
	fail_open_log();
	failed = lane.log;
	logkit_clear_fault();
	lane.upkeep_running = _i == 0;
	lane.commit.running = _i == 1;
	lane.retire = _i == 2 ? (void *)&lane : NULL;
	worker.now_ns += 2 * S;
	/* These touch what recovery changes. */
	opening_due(&worker);
	ck_assert_int_eq(submitted != NULL, _i >= 3);
	lane.upkeep_running = lane.commit.running = false;
	lane.retire = NULL;
	/* A load only reads. */
	lane.load = _i < 4 ? (void *)&lane : NULL;
	opening_due(&worker);
	ck_assert_ptr_nonnull(submitted);
	/* Nor does one that closes what readers have let go of meanwhile. */
	lane.retire = _i == 4 ? (void *)&lane : NULL;
	run_jobs();
	ck_assert_ptr_eq(lane.log, failed);
	expect_board(BOARD_FAILED, RECORDS + 2, RECORDS);
	lane.load = NULL;
	lane.retire = NULL;
	opening_job_ended(&lane);
	ck_assert_ptr_ne(lane.log, failed);
	expect_board(BOARD_OPEN, RECORDS + 2, RECORDS + 2);
	end();
}
END_TEST

/* `_i`: a force was under way when the process died; or it is known that one has failed. */
START_TEST(what_can_be_read_is_read_until_a_failed_log_can_be_opened)
{
	struct partition *readable;

	begin();
	board(_i == 0 ? BOARD_OPEN : BOARD_FAILED, RECORDS + 2, RECORDS - 1, _i == 0);
	fail_forces();
	start();
	ck_assert_int_eq(told_failed, 1);
	readable = lane.log;
	ck_assert_ptr_nonnull(readable);
	ck_assert(partition_failed(readable));
	ck_assert_int_eq(partition_durable_end(readable), RECORDS - 1);
	ck_assert_int_eq(partition_visible_end(readable), RECORDS + 2);
	expect_board(BOARD_FAILED, RECORDS + 2, RECORDS - 1);
	/* It is the same one until then. */
	expect_try(1);
	ck_assert_ptr_eq(lane.log, readable);
	logkit_clear_fault();
	expect_try(2);
	expect_board(BOARD_OPEN, RECORDS, RECORDS);
	ck_assert(!partition_failed(lane.log));
	end();
}
END_TEST

START_TEST(a_start_on_a_disk_that_fails_is_tried_again)
{
	begin();
	fail_forces();
	start();
	ck_assert_int_eq(told_failed, 1);
	ck_assert_ptr_null(lane.log);
	ck_assert_int_eq(slot.state, BOARD_FAILED);
	ck_assert_int_eq(slot.opened, 0);
	logkit_clear_fault();
	expect_try(1);
	expect_board(BOARD_OPEN, RECORDS, RECORDS);
	ck_assert_int_eq(slot.opened, 1);
	end();
}
END_TEST

/* `_i`: nor does one that gives way to another. */
/* Nothing is wrong with the log. `_i`: its directory, or its segment. */
START_TEST(a_start_without_memory_or_descriptors_is_tried_again)
{
	static const int errors[] = { ENOMEM, EMFILE, ENFILE };

	begin();
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 1 + _i / 3, .error = errors[_i % 3], .sticky = true });
	start();
	ck_assert_int_eq(told_failed, 1);
	expect_board(BOARD_CLOSED, 0, 0);
	ck_assert_int_eq(slot.opened, 0);
	ck_assert_int_eq(count_lines("partition t-0: its log cannot be opened yet: "), 1);
	ck_assert_int_eq(count_lines("stays closed"), 0);
	expect_try(1);
	logkit_clear_fault();
	expect_try(2);
	expect_board(BOARD_OPEN, RECORDS, RECORDS);
	ck_assert_int_eq(slot.opened, 1);
	ck_assert_int_eq(slot.forcing, 0);
	end();
}
END_TEST

START_TEST(a_worker_that_stops_tries_nothing)
{
	begin();
	fail_open_log();
	worker.stopping = _i == 0;
	worker.leaving = _i == 1;
	worker.now_ns += 1000 * S;
	opening_due(&worker);
	ck_assert_ptr_null(submitted);
	logkit_clear_fault();
	end();
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("opening");
	TCase *tests = tcase_create("opening");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	tcase_add_test(tests, a_first_start_reads_from_the_disk);
	tcase_add_test(tests, a_process_that_died_leaves_a_cache_to_believe);
	tcase_add_loop_test(tests, D03_a_released_log_is_forced_as_far_as_the_board_says, 0, 3);
	tcase_add_test(tests, less_than_was_published_stays_closed);
	tcase_add_loop_test(tests, after_a_force_that_failed_the_durable_end_must_come_back, 0, 4);
	tcase_add_test(tests, after_a_force_that_failed_without_a_loss);
	tcase_add_loop_test(tests, less_than_was_forced_is_not_used, 0, 2);
	tcase_add_test(tests, a_failed_log_is_opened_again_until_it_works);
	tcase_add_loop_test(tests, the_failed_log_stays_while_its_jobs_are_under_way, 0, 5);
	tcase_add_loop_test(tests, what_can_be_read_is_read_until_a_failed_log_can_be_opened, 0, 2);
	tcase_add_test(tests, a_start_on_a_disk_that_fails_is_tried_again);
	tcase_add_loop_test(tests, a_start_without_memory_or_descriptors_is_tried_again, 0, 6);
	tcase_add_loop_test(tests, a_worker_that_stops_tries_nothing, 0, 2);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
