/*
 * FETCH on a real log, with connections and the job queue faked here: what is answered at once, what is held, what wakes
 * it, and segments that must be opened first.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/fetch.h"
#include "worker/opening.h"

enum { RECORD_BYTES = 108, PAYLOAD_BYTES = 100, SEGMENT_BYTES = 1080 };

/* ---- Fakes ---- */

struct conn {
	struct output output;
	struct hold hold;
	int64_t held_until_ns;
	bool ending;
	int scheduled;
	int errors;
	enum codec_error last_error;
};

static struct logkit kit;
static struct worker worker;
static struct board_worker counters;
static struct board_partition slot;
static struct topic topic;
static struct lane lane;
static struct conn conns[3];
static struct job *submitted;
static int resumed;

struct output *
conn_output(struct conn *conn)
{
	return &conn->output;
}

struct hold *
conn_hold(struct conn *conn)
{
	return &conn->hold;
}

bool
conn_ending(const struct conn *conn)
{
	return conn->ending;
}

int64_t
conn_held_until_ns(const struct conn *conn)
{
	return conn->held_until_ns;
}

void
conn_held(struct conn *conn)
{
	ck_assert_ptr_eq(conn->hold.lane, &lane);
}

void
conn_schedule(struct conn *conn)
{
	conn->scheduled++;
}

void
conn_abort(struct conn *conn)
{
	(void)conn;
	ck_abort_msg("no connection is to be given up here");
}

void
conn_put_error(struct conn *conn, int32_t correlation_id, enum codec_error error)
{
	(void)correlation_id;
	conn->errors++;
	conn->last_error = error;
}

void
conn_count(struct worker *of, enum board_api api, enum codec_error error)
{
	board_add(&of->counters->requests[api][error], 1);
}

void
conn_resume_all(struct connections *set)
{
	(void)set;
	resumed++;
}

void
jobs_submit_read(struct jobs *jobs, struct job *job)
{
	(void)jobs;
	ck_assert_ptr_null(submitted);
	submitted = job;
}

void
lane_count_error(struct lane *of, enum board_operation operation)
{
	board_add(&of->worker->counters->storage_errors[operation], 1);
}

void
lane_report(struct lane *of, enum board_operation operation, int error, const char *what)
{
	(void)error;
	(void)what;
	board_add(&of->worker->counters->storage_errors[operation], 1);
}

void
opening_job_ended(struct lane *of)
{
	ck_assert_ptr_eq(of, &lane);
	ck_assert_ptr_null(of->load);
}

/* ---- The set-up ---- */

static void
begin(void)
{
	memset(&counters, 0, sizeof(counters));
	memset(conns, 0, sizeof(conns));
	submitted = NULL;
	resumed = 0;
	logkit_begin(&kit, RECORD_CRC32C, SEGMENT_BYTES);
	logkit_open(&kit);
	worker = (struct worker){ .counters = &counters, .max_fetch_wait_ns = INT64_C(60) * CLOCK_NS_PER_S };
	lane = (struct lane){ .worker = &worker, .topic = &topic, .log = kit.p, .slot = &slot, .name = "t-0" };
}

static void
end(void)
{
	for (size_t i = 0; i < sizeof(conns) / sizeof(conns[0]); i++)
		output_clear(&conns[i].output);
	ck_assert_ptr_null(submitted);
	logkit_end(&kit);
}

static bool
fetch(struct conn *conn, int64_t offset, int32_t max_bytes, int32_t wait_ms, int32_t min_bytes)
{
	struct codec_request request = { .api_key = CODEC_FETCH, .api_version = 2, .correlation_id = 7,
		.fetch_offset = offset, .max_bytes = max_bytes, .max_wait_ms = wait_ms, .min_bytes = min_bytes };

	return fetch_execute(conn, &lane, &request);
}

/* Appends as produce does: counted for the holds, then those that are due are woken. */
static void
append(int count)
{
	logkit_append(&kit, count, PAYLOAD_BYTES);
	hold_appended(&lane.holds, (int64_t)count * RECORD_BYTES);
	fetch_wake_due(&lane);
}

static void
run_job(void)
{
	struct job *job = submitted;

	ck_assert_ptr_nonnull(job);
	job->run(job);
	submitted = NULL;
	job->done(job);
}

static bool
held(const struct conn *conn)
{
	return conn->hold.lane != NULL;
}

/* The connection has one answer: its header, and a slice of that many bytes at that position (0 bytes: none). */
static void
expect_answer(struct conn *conn, int64_t high_watermark, int64_t position, int32_t bytes)
{
	const uint8_t *p = conn->output.bytes + conn->output.head;
	const struct slice *slice;

	ck_assert(!held(conn));
	ck_assert_int_eq(conn->errors, 0);
	ck_assert_uint_eq(output_bytes(&conn->output), CODEC_FETCH_ANSWER_HEADER_BYTES);
	ck_assert_int_eq(bytes_get_i32(p), 18 + bytes);
	ck_assert_int_eq(bytes_get_i32(p + 4), 7);
	ck_assert_int_eq(bytes_get_i16(p + 8), 0);
	ck_assert_int_eq(bytes_get_i64(p + 10), high_watermark);
	ck_assert_int_eq(bytes_get_i32(p + 18), bytes);
	ck_assert_uint_eq(output_slices(&conn->output), bytes > 0 ? 1 : 0);
	if (bytes > 0) {
		slice = &conn->output.slices[conn->output.slice_head].slice;
		ck_assert_int_eq(slice->position, position);
		ck_assert_int_eq(slice->bytes, bytes);
	}
	output_clear(&conn->output);
}

static void
expect_error(struct conn *conn, enum codec_error error)
{
	ck_assert(!held(conn));
	ck_assert_int_eq(conn->errors, 1);
	ck_assert_int_eq(conn->last_error, error);
	ck_assert(output_empty(&conn->output));
	conn->errors = 0;
}

static int64_t
wakeups(enum board_wakeup cause)
{
	return board_get(&counters.fetch_wakeups[cause]);
}

/* ---- Answered at once ---- */

START_TEST(what_is_there)
{
	append(5);
	ck_assert(fetch(&conns[0], 0, 1000000, 0, 0));
	expect_answer(&conns[0], 5, 0, 5 * RECORD_BYTES);
	ck_assert(fetch(&conns[0], 3, 1000000, 0, 0));
	expect_answer(&conns[0], 5, 3 * RECORD_BYTES, 2 * RECORD_BYTES);
	/* Cut inside a record. */
	ck_assert(fetch(&conns[0], 0, 10, 0, 0));
	expect_answer(&conns[0], 5, 0, 10);
	/* Caught up. */
	ck_assert(fetch(&conns[0], 5, 10, 0, 0));
	expect_answer(&conns[0], 5, 0, 0);
	/* There is enough: nobody waits. */
	ck_assert(fetch(&conns[0], 4, 1000, 1000, RECORD_BYTES));
	expect_answer(&conns[0], 5, 4 * RECORD_BYTES, RECORD_BYTES);
}
END_TEST

START_TEST(outside_the_range)
{
	append(5);
	ck_assert(fetch(&conns[0], 6, 10, 1000, 0));
	expect_error(&conns[0], CODEC_OFFSET_OUT_OF_RANGE);
	ck_assert(fetch(&conns[0], INT64_MAX, 10, 0, 0));
	expect_error(&conns[0], CODEC_OFFSET_OUT_OF_RANGE);
}
END_TEST

START_TEST(a_closed_log)
{
	lane.log = NULL;
	ck_assert(fetch(&conns[0], 0, 10, 1000, 0));
	expect_error(&conns[0], CODEC_STORAGE_FAILURE);
	lane.log = kit.p;
}
END_TEST

/* Of a log that has failed what is durable is there, and nothing comes that could be waited for. */
START_TEST(nobody_waits_in_a_failed_log)
{
	append(5);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	append(3);
	ck_assert(fetch(&conns[2], 7, 10000, 1000, 10000));
	ck_assert(held(&conns[2]));
	logkit_set_fault((struct logkit_fault){ .call = CALL_FDATASYNC, .at = 1, .error = EIO });
	ck_assert_int_eq(logkit_barrier(&kit), -1);
	fetch_wake_all(&lane, BOARD_WAKEUP_FAILURE);
	expect_error(&conns[2], CODEC_STORAGE_FAILURE);
	ck_assert(fetch(&conns[0], 3, 10000, 1000, 10000));
	expect_answer(&conns[0], 8, 3 * RECORD_BYTES, 2 * RECORD_BYTES);
	for (int64_t offset = 5; offset <= 8; offset++) {
		ck_assert(fetch(&conns[0], offset, 10000, 1000, 1));
		expect_error(&conns[0], CODEC_STORAGE_FAILURE);
	}
	ck_assert(fetch(&conns[0], 9, 10000, 1000, 1));
	expect_error(&conns[0], CODEC_OFFSET_OUT_OF_RANGE);
	ck_assert_int_eq(board_get(&counters.storage_errors[BOARD_READ]), 0);
}
END_TEST

START_TEST(nobody_waits_for_a_client_that_has_ended_or_a_worker_that_stops)
{
	conns[0].ending = true;
	ck_assert(fetch(&conns[0], 0, 10, 1000, 0));
	expect_answer(&conns[0], 0, 0, 0);
	worker.stopping = true;
	ck_assert(fetch(&conns[1], 0, 10, 1000, 0));
	expect_answer(&conns[1], 0, 0, 0);
}
END_TEST

/* ---- Held ---- */

START_TEST(held_until_a_byte_is_there)
{
	ck_assert(fetch(&conns[0], 0, 1000, 1000, 0));
	ck_assert(held(&conns[0]));
	ck_assert(output_empty(&conns[0].output));
	ck_assert_int_eq(board_get(&counters.fetch_held), 1);
	append(1);
	ck_assert_int_eq(conns[0].scheduled, 1);
	expect_answer(&conns[0], 1, 0, RECORD_BYTES);
	ck_assert_int_eq(board_get(&counters.fetch_held), 0);
	ck_assert_int_eq(wakeups(BOARD_WAKEUP_DATA), 1);
}
END_TEST

START_TEST(held_until_min_bytes_are_there)
{
	append(1);
	ck_assert(fetch(&conns[0], 0, 100000, 1000, 3 * RECORD_BYTES));
	ck_assert(held(&conns[0]));
	append(1);
	ck_assert(held(&conns[0]));
	append(1);
	expect_answer(&conns[0], 3, 0, 3 * RECORD_BYTES);
}
END_TEST

START_TEST(a_wait_is_clamped_and_never_shorter_than_asked)
{
	int64_t before = clock_now_ns();

	ck_assert(fetch(&conns[0], 0, 10, 1000, 0));
	ck_assert_int_ge(conns[0].hold.deadline_ns, before + INT64_C(1000) * CLOCK_NS_PER_MS);
	ck_assert(fetch(&conns[1], 0, 10, INT32_MAX, 0));
	ck_assert_int_le(conns[1].hold.deadline_ns, clock_now_ns() + worker.max_fetch_wait_ns);
	fetch_wake_all(&lane, BOARD_WAKEUP_STOP);
	expect_answer(&conns[0], 0, 0, 0);
	expect_answer(&conns[1], 0, 0, 0);
	ck_assert_int_eq(wakeups(BOARD_WAKEUP_STOP), 2);
}
END_TEST

/* Its worker is replaced: the request that is written again is the client's, and its time goes on where it was. */
START_TEST(D03_a_hold_goes_on_in_another_worker)
{
	uint8_t bytes[CODEC_FETCH_REQUEST_MAX_BYTES];
	struct codec_request again;
	int64_t deadline_ns, until_ns;
	const uint8_t *behind;

	memcpy(topic.name, "t", 2);
	append(2);
	ck_assert(fetch(&conns[0], 1, 1000, 5000, 500));
	deadline_ns = conns[0].hold.deadline_ns;
	behind = fetch_write_again(&conns[0].hold, bytes, &until_ns);
	ck_assert(!held(&conns[0]));
	ck_assert_int_eq(board_get(&counters.fetch_held), 0);
	ck_assert_int_eq(until_ns, deadline_ns);
	ck_assert_int_eq(bytes_get_i32(bytes), behind - bytes - CODEC_LENGTH_BYTES);
	ck_assert_int_eq(codec_parse_request(bytes + CODEC_LENGTH_BYTES, (size_t)(behind - bytes) - CODEC_LENGTH_BYTES, &again),
	    CODEC_NONE);
	ck_assert_int_eq(again.correlation_id, 7);
	ck_assert_uint_eq(again.topic.length, 1);
	ck_assert_mem_eq(again.topic.bytes, "t", 1);
	ck_assert_int_eq(again.partition, lane.number);
	ck_assert_int_eq(again.fetch_offset, 1);
	ck_assert_int_eq(again.max_bytes, 1000);
	ck_assert_int_eq(again.min_bytes, 500);
	conns[1].held_until_ns = until_ns;
	ck_assert(fetch_execute(&conns[1], &lane, &again));
	ck_assert(held(&conns[1]));
	ck_assert_int_eq(conns[1].hold.deadline_ns, deadline_ns);
	/* Or it has been over on the way. */
	conns[2].held_until_ns = clock_now_ns();
	ck_assert(fetch_execute(&conns[2], &lane, &again));
	expect_answer(&conns[2], 2, RECORD_BYTES, RECORD_BYTES);
	append(4);
	expect_answer(&conns[1], 6, RECORD_BYTES, 5 * RECORD_BYTES);
}
END_TEST

START_TEST(over_with_what_is_there_by_then)
{
	append(1);
	ck_assert(fetch(&conns[0], 0, 100000, 1000, 10 * RECORD_BYTES));
	append(2);
	ck_assert(held(&conns[0]));
	fetch_wake(&conns[0].hold, BOARD_WAKEUP_TIMEOUT);
	expect_answer(&conns[0], 3, 0, 3 * RECORD_BYTES);
	ck_assert_int_eq(board_get(&counters.fetch_held), 0);
}
END_TEST

START_TEST(only_those_that_have_enough_are_woken)
{
	ck_assert(fetch(&conns[0], 0, 100000, 1000, 2 * RECORD_BYTES));
	ck_assert(fetch(&conns[1], 0, 100000, 1000, 1));
	ck_assert(fetch(&conns[2], 0, 100000, 1000, RECORD_BYTES + 1));
	append(1);
	ck_assert(held(&conns[0]));
	ck_assert(held(&conns[2]));
	expect_answer(&conns[1], 1, 0, RECORD_BYTES);
	append(1);
	expect_answer(&conns[0], 2, 0, 2 * RECORD_BYTES);
	expect_answer(&conns[2], 2, 0, 2 * RECORD_BYTES);
}
END_TEST

/* The end of a sealed segment makes nobody sit out the wait: enough is counted across segments. */
START_TEST(enough_is_counted_across_segments)
{
	append(10);
	ck_assert(fetch(&conns[0], 9, 100000, 1000, 3 * RECORD_BYTES));
	ck_assert(held(&conns[0]));
	append(1);
	ck_assert(held(&conns[0]));
	append(1);
	expect_answer(&conns[0], 12, 9 * RECORD_BYTES, RECORD_BYTES);
	ck_assert(fetch(&conns[0], 9, 100000, 1000, 2 * RECORD_BYTES));
	expect_answer(&conns[0], 12, 9 * RECORD_BYTES, RECORD_BYTES);
}
END_TEST

/* ---- Segments that are not open ---- */

START_TEST(a_cold_segment_is_opened_first)
{
	append(25);
	logkit_reopen(&kit);
	lane.log = kit.p;
	ck_assert(!fetch(&conns[0], 3, 1000000, 0, 0));
	/* One at a time, whoever asks. */
	ck_assert(!fetch(&conns[1], 12, 1000000, 0, 0));
	ck_assert(output_empty(&conns[0].output));
	run_job();
	ck_assert_int_eq(resumed, 1);
	ck_assert(fetch(&conns[0], 3, 1000000, 0, 0));
	expect_answer(&conns[0], 25, 3 * RECORD_BYTES, 7 * RECORD_BYTES);
	ck_assert(!fetch(&conns[1], 12, 1000000, 0, 0));
	run_job();
	ck_assert(fetch(&conns[1], 12, 1000000, 0, 0));
	expect_answer(&conns[1], 25, 2 * RECORD_BYTES, 8 * RECORD_BYTES);
}
END_TEST

/*
 * A batch larger than a segment begins exactly where readers wait, in a segment that nobody has opened: they get its
 * bytes, not an empty answer ahead of their time.
 */
START_TEST(a_batch_in_segments_of_its_own_wakes_with_data)
{
	size_t bytes;
	uint8_t *batch;

	append(10);
	ck_assert(fetch(&conns[0], 10, 100000, 1000, 1));
	ck_assert(fetch(&conns[1], 10, 100000, 1000, 5 * RECORD_BYTES));
	batch = logkit_batch(RECORD_CRC32C, 10, 25, PAYLOAD_BYTES, &bytes);
	ck_assert_int_eq(logkit_roll(&kit, batch, bytes, 25), 0);
	free(batch);
	hold_appended(&lane.holds, (int64_t)bytes);
	fetch_wake_due(&lane);
	ck_assert(held(&conns[0]));
	ck_assert(held(&conns[1]));
	ck_assert_int_eq(board_get(&counters.fetch_held), 2);
	/* More comes while the segment is being opened: still held, and no second load is begun. */
	append(1);
	ck_assert(held(&conns[0]));
	run_job();
	expect_answer(&conns[0], 36, 0, 10 * RECORD_BYTES);
	expect_answer(&conns[1], 36, 0, 10 * RECORD_BYTES);
	ck_assert_int_eq(board_get(&counters.fetch_held), 0);
	ck_assert_int_eq(wakeups(BOARD_WAKEUP_DATA), 2);
}
END_TEST

/* A reader has waited at the end, where a batch larger than a segment begins then. */
static void
hold_in_front_of_a_large_batch(struct conn *conn, int32_t min_bytes)
{
	int64_t offset = partition_log_end(kit.p);
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, offset, 25, PAYLOAD_BYTES, &bytes);

	ck_assert(fetch(conn, offset, 100000, 1000, min_bytes));
	ck_assert_int_eq(logkit_roll(&kit, batch, bytes, 25), 0);
	free(batch);
	hold_appended(&lane.holds, (int64_t)bytes);
	fetch_wake_due(&lane);
	ck_assert(held(conn));
}

/* What ends its wait while its segment is being opened does not take its bytes from it. */
START_TEST(a_hold_that_waits_for_a_segment_ends_with_its_bytes)
{
	append(10);
	hold_in_front_of_a_large_batch(&conns[0], 1);
	/* Its time-out would find nothing new, again and again. */
	ck_assert_int_eq(conns[0].hold.deadline_ns, INT64_MAX);
	fetch_wake(&conns[0].hold, BOARD_WAKEUP_END);
	ck_assert(held(&conns[0]));
	run_job();
	expect_answer(&conns[0], 35, 0, 10 * RECORD_BYTES);
	ck_assert_int_eq(board_get(&counters.fetch_held), 0);
}
END_TEST

/* Fewer bytes are there than it waits for, but they are not where they can be sent from: they are loaded, as for a FETCH
 * that does not wait. */
START_TEST(a_hold_whose_time_is_over_gets_what_must_be_loaded)
{
	static const enum board_wakeup causes[] = { BOARD_WAKEUP_TIMEOUT, BOARD_WAKEUP_END };

	append(10);
	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
		int64_t end = partition_log_end(kit.p);

		hold_in_front_of_a_large_batch(&conns[0], 100000);
		ck_assert_int_ne(conns[0].hold.deadline_ns, INT64_MAX);
		ck_assert_ptr_null(submitted);
		fetch_wake(&conns[0].hold, causes[i]);
		ck_assert(held(&conns[0]));
		ck_assert_int_eq(conns[0].hold.deadline_ns, INT64_MAX);
		run_job();
		expect_answer(&conns[0], end + 25, 0, 10 * RECORD_BYTES);
		ck_assert_int_eq(board_get(&counters.fetch_held), 0);
	}
}
END_TEST

/* A worker that stops waits for no disk. */
START_TEST(B07_a_stop_while_a_hold_waits_for_a_segment)
{
	append(10);
	hold_in_front_of_a_large_batch(&conns[0], 1);
	fetch_wake(&conns[0].hold, BOARD_WAKEUP_STOP);
	expect_answer(&conns[0], 35, 0, 0);
	run_job();
	ck_assert(output_empty(&conns[0].output));
	ck_assert_int_eq(board_get(&counters.fetch_held), 0);
}
END_TEST

/* When the segment cannot be opened, that is the answer. */
START_TEST(a_hold_whose_segment_cannot_be_opened)
{
	append(10);
	hold_in_front_of_a_large_batch(&conns[0], 100000);
	fetch_wake(&conns[0].hold, BOARD_WAKEUP_TIMEOUT);
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 1, .error = EMFILE });
	run_job();
	expect_error(&conns[0], CODEC_STORAGE_FAILURE);
	ck_assert_int_eq(board_get(&counters.fetch_held), 0);
}
END_TEST

/* ---- Retention ---- */

static void
keep(int64_t bytes)
{
	kit.settings.retention_bytes = bytes;
	logkit_reopen(&kit);
	lane.log = kit.p;
}

START_TEST(bug_C11_held_below_the_new_log_start)
{
	keep(1);
	append(5);
	for (int i = 0; i < 3; i++)
		ck_assert(fetch(&conns[i], i == 2 ? 5 : i, 1000000, 60000, 1000000));
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	ck_assert_int_eq(partition_retire(kit.p, clock_now_ns()), 1);
	fetch_wake_below(&lane, partition_log_start(kit.p));
	expect_error(&conns[0], CODEC_OFFSET_OUT_OF_RANGE);
	expect_error(&conns[1], CODEC_OFFSET_OUT_OF_RANGE);
	ck_assert_int_eq(wakeups(BOARD_WAKEUP_RETENTION), 2);
	/* Exactly at it there is nothing to be told. */
	ck_assert(held(&conns[2]));
	append(1);
	fetch_wake(&conns[2].hold, BOARD_WAKEUP_TIMEOUT);
	expect_answer(&conns[2], 6, 0, RECORD_BYTES);
	ck_assert_int_eq(board_get(&counters.fetch_held), 0);
}
END_TEST

/* It waits until its segment is open; then there is no such segment any more. */
START_TEST(bug_C1_a_reader_whose_segment_goes_while_it_is_opened)
{
	append(25);
	keep(1);
	ck_assert(!fetch(&conns[0], 3, 1000, 1000, 0));
	ck_assert_int_eq(partition_retire(kit.p, clock_now_ns()), 2);
	run_job();
	ck_assert_int_eq(resumed, 1);
	ck_assert(fetch(&conns[0], 3, 1000, 1000, 0));
	expect_error(&conns[0], CODEC_OFFSET_OUT_OF_RANGE);
	ck_assert_int_eq(board_get(&counters.storage_errors[BOARD_READ]), 0);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("fetch");
	TCase *tests = tcase_create("fetch");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(tests, begin, end);
	tcase_add_test(tests, what_is_there);
	tcase_add_test(tests, outside_the_range);
	tcase_add_test(tests, a_closed_log);
	tcase_add_test(tests, nobody_waits_in_a_failed_log);
	tcase_add_test(tests, nobody_waits_for_a_client_that_has_ended_or_a_worker_that_stops);
	tcase_add_test(tests, held_until_a_byte_is_there);
	tcase_add_test(tests, held_until_min_bytes_are_there);
	tcase_add_test(tests, a_wait_is_clamped_and_never_shorter_than_asked);
	tcase_add_test(tests, D03_a_hold_goes_on_in_another_worker);
	tcase_add_test(tests, over_with_what_is_there_by_then);
	tcase_add_test(tests, only_those_that_have_enough_are_woken);
	tcase_add_test(tests, enough_is_counted_across_segments);
	tcase_add_test(tests, a_cold_segment_is_opened_first);
	tcase_add_test(tests, a_batch_in_segments_of_its_own_wakes_with_data);
	tcase_add_test(tests, a_hold_that_waits_for_a_segment_ends_with_its_bytes);
	tcase_add_test(tests, a_hold_whose_time_is_over_gets_what_must_be_loaded);
	tcase_add_test(tests, B07_a_stop_while_a_hold_waits_for_a_segment);
	tcase_add_test(tests, a_hold_whose_segment_cannot_be_opened);
	tcase_add_test(tests, bug_C11_held_below_the_new_log_start);
	tcase_add_test(tests, bug_C1_a_reader_whose_segment_goes_while_it_is_opened);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
