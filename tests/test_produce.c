/*
 * PRODUCE, and FETCHes held beside it, on a real log, with connections and the job queue faked here: jobs run and end when
 * the test says so, in any order. Nobody who waits for records is forgotten, whatever moves the end of the log; and what
 * is said and refused when a job fails, or cannot begin.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/fetch.h"
#include "worker/opening.h"
#include "worker/produce.h"
#include "worker/retain.h"

enum { PAYLOAD_BYTES = 100, RECORD_BYTES = 8 + PAYLOAD_BYTES, SEGMENT_BYTES = 20 * RECORD_BYTES, JOBS_MAX = 16 };

static const int64_t S = CLOCK_NS_PER_S;

/* ---- Fakes ---- */

enum conn_state { IDLE, HELD, PUT_OFF, RESUMED };

struct conn {
	struct output output;
	struct hold hold;
	struct codec_request request;
	enum conn_state state;
	bool over;	/* its wait was ended from outside */
};

static struct logkit kit;
static struct worker worker;
static struct board_worker counters;
static struct board_partition slot;
static struct topic topic;
static struct lane lane;
static struct conn conns[6];
static struct conn producer;
static struct job *waiting[JOBS_MAX], *ran[JOBS_MAX];
static size_t waiting_count, ran_count;
static int64_t produced, refused, outstanding;
static int roll_error;	/* errno: the next roll cannot begin */

enum { CONNS = sizeof(conns) / sizeof(conns[0]) };

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
	(void)conn;
	return false;
}

int64_t
conn_held_until_ns(const struct conn *conn)
{
	(void)conn;
	return 0;
}

void
conn_held(struct conn *conn)
{
	(void)conn;
}

/* An answer: with data whenever there are any, and unless its time was over not before there are enough. */
static void
expect_data(const struct conn *conn)
{
	const uint8_t *p = conn->output.bytes + conn->output.head;
	int64_t records = bytes_get_i64(p + 10) - conn->request.fetch_offset;

	ck_assert(records > 0 || conn->over);
	ck_assert_int_eq(records > 0, bytes_get_i32(p + 18) > 0);
	if (!conn->over)
		ck_assert_int_ge(records * RECORD_BYTES, conn->request.min_bytes);
}

void
conn_schedule(struct conn *conn)
{
	ck_assert(conn->hold.lane == NULL);
	if (!output_empty(&conn->output))
		expect_data(conn);
	output_clear(&conn->output);
	conn->state = IDLE;
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
	(void)conn;
	(void)correlation_id;
	ck_assert(error == CODEC_OFFSET_OUT_OF_RANGE || partition_failed(lane.log));
}

void
conn_count(struct worker *of, enum board_api api, enum codec_error error)
{
	board_add(&of->counters->requests[api][error], 1);
}

struct reply *
conn_add_reply(struct conn *conn, const struct codec_request *request, enum board_api api)
{
	struct reply *reply = calloc(1, sizeof(*reply));

	ck_assert_ptr_nonnull(reply);
	*reply = (struct reply){ .conn = conn, .ack = request->ack, .api = api, .record_count = request->record_count };
	outstanding++;
	return reply;
}

void
conn_answer(struct worker *of, struct reply *reply, enum codec_error error)
{
	(void)of;
	outstanding--;
	if (error == CODEC_NONE)
		produced += reply->record_count;
	else
		refused++;
	free(reply);
}

void
conn_resume_all(struct connections *set)
{
	(void)set;
	for (size_t i = 0; i < CONNS; i++)
		if (conns[i].state == PUT_OFF)
			conns[i].state = RESUMED;
}

void
jobs_submit(struct jobs *jobs, struct job *job)
{
	(void)jobs;
	ck_assert_uint_lt(waiting_count, JOBS_MAX);
	waiting[waiting_count++] = job;
}

void
jobs_submit_read(struct jobs *jobs, struct job *job)
{
	jobs_submit(jobs, job);
}

void
opening_log_failed(struct lane *of)
{
	ck_assert_ptr_eq(of, &lane);
}

void
opening_job_ended(struct lane *of)
{
	ck_assert_ptr_eq(of, &lane);
}

struct partition_roll *__real_partition_roll_begin(struct partition *p, const uint8_t *records, size_t bytes, int32_t count);
struct partition_roll *__wrap_partition_roll_begin(struct partition *p, const uint8_t *records, size_t bytes, int32_t count);

struct partition_roll *
__wrap_partition_roll_begin(struct partition *p, const uint8_t *records, size_t bytes, int32_t count)
{
	if (roll_error == 0)
		return __real_partition_roll_begin(p, records, bytes, count);
	errno = roll_error;
	roll_error = 0;
	return NULL;
}

/* ---- The set-up ---- */

static void
open_lane(enum log_visibility visibility, int64_t retention_bytes, int64_t segment_age_ms)
{
	kit.settings.durable_only = visibility == LOG_VISIBLE_DURABLE;
	kit.settings.retention_bytes = retention_bytes;
	kit.settings.segment_age_ms = segment_age_ms;
	logkit_open(&kit);
	topic = (struct topic){ .log = { .record_format = RECORD_CRC32C, .segment_bytes = kit.settings.segment_bytes,
		.visibility = visibility, .retention_bytes = retention_bytes, .retention_check_interval_ms = 1000 } };
	worker = (struct worker){ .counters = &counters, .lanes = &lane, .lane_count = 1, .buffer_bytes = INT64_C(1) << 30,
		.max_fetch_wait_ns = 60 * S, .now_ns = clock_now_ns(), .flush_deadline_ns = INT64_MAX,
		.retain_deadline_ns = INT64_MAX };
	lane = (struct lane){ .worker = &worker, .topic = &topic, .log = kit.p, .slot = &slot, .name = "t-0" };
	lane.visible_bytes = partition_visible_bytes(lane.log);
	commit_init(&lane.commit, 0, 0, partition_log_end(lane.log));
}

static void
begin(void)
{
	memset(&counters, 0, sizeof(counters));
	memset(&slot, 0, sizeof(slot));
	memset(conns, 0, sizeof(conns));
	waiting_count = ran_count = 0;
	produced = refused = outstanding = 0;
	roll_error = 0;
	logkit_begin(&kit, RECORD_CRC32C, SEGMENT_BYTES);
	logkit_catch_lines();
}

static void
begin_mapped(void)
{
	logkit_mapped_mode();
	begin();
}

static void
end(void)
{
	free(logkit_caught_lines());
	ck_assert_uint_eq(waiting_count + ran_count, 0);
	ck_assert_int_eq(outstanding, 0);
	free(lane.staged);
	logkit_end(&kit);
}

/* ---- What happens ---- */

static void
produce(int count, enum codec_ack ack)
{
	static uint8_t records[64 * (4 + PAYLOAD_BYTES)];
	struct codec_request request = { .api_key = CODEC_PRODUCE, .ack = (int8_t)ack, .record_count = count,
		.largest_payload = PAYLOAD_BYTES, .records = records, .records_bytes = (size_t)count * (4 + PAYLOAD_BYTES) };

	ck_assert_int_le(count, 64);
	for (int i = 0; i < count; i++) {
		bytes_put_u32(records + i * (4 + PAYLOAD_BYTES), PAYLOAD_BYTES);
		memset(records + i * (4 + PAYLOAD_BYTES) + 4, 'x', PAYLOAD_BYTES);
	}
	ck_assert(produce_execute(&producer, &lane, &request));
}

static void
take_out(struct job **jobs, size_t *count, size_t at)
{
	(*count)--;
	memmove(jobs + at, jobs + at + 1, (*count - at) * sizeof(*jobs));
}

/* A thread has run a job that waited. */
static void
run_job(size_t at)
{
	struct job *job = waiting[at];

	take_out(waiting, &waiting_count, at);
	job->run(job);
	ran[ran_count++] = job;
}

/* As jobs_collect: those that have run by now. */
static void
collect(void)
{
	for (size_t left = ran_count; left > 0; left--) {
		struct job *job = ran[0];

		take_out(ran, &ran_count, 0);
		job->done(job);
	}
}

static void
fetch(struct conn *conn)
{
	conn->over = false;
	if (!fetch_execute(conn, &lane, &conn->request)) {
		conn->state = PUT_OFF;
		return;
	}
	conn->state = conn->hold.lane != NULL ? HELD : IDLE;
	output_clear(&conn->output);
}

static void
ask(struct conn *conn, int64_t offset, int32_t min_bytes)
{
	conn->request = (struct codec_request){ .api_key = CODEC_FETCH, .api_version = 2, .fetch_offset = offset,
		.max_bytes = 1 << 20, .max_wait_ms = 60000, .min_bytes = min_bytes };
	fetch(conn);
}

/* The end of a turn of the loop. */
static void
turn(void)
{
	for (size_t i = 0; i < CONNS; i++)
		if (conns[i].state == RESUMED)
			fetch(&conns[i]);
	produce_write_all(&worker);
}

static void
run_all(void)
{
	do {
		while (waiting_count > 0)
			run_job(0);
		collect();
		turn();
	} while (waiting_count + ran_count > 0);
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

/* ---- B03: nobody is forgotten ---- */

/* Whoever is held has not enough yet, or a load is under way whose end looks after it; and so is whoever was put off. */
static void
expect_nobody_forgotten(void)
{
	int64_t visible_end = partition_visible_end(lane.log);

	for (size_t i = 0; i < CONNS; i++) {
		const struct conn *conn = &conns[i];
		int64_t wanted = conn->request.min_bytes > 0 ? conn->request.min_bytes : 1;

		ck_assert_int_eq(conn->state == HELD, conn->hold.lane != NULL);
		if (conn->state == IDLE || conn->state == RESUMED || lane.load != NULL)
			continue;
		ck_assert_int_eq(conn->state, HELD);
		ck_assert_int_ge(conn->request.fetch_offset, partition_log_start(lane.log));
		ck_assert_int_lt((visible_end - conn->request.fetch_offset) * RECORD_BYTES, wanted);
	}
	ck_assert_int_eq(lane.visible_bytes, partition_visible_bytes(lane.log));
	/* Producers neither. */
	if (waiting_count + ran_count == 0 && !lane.dirty)
		ck_assert_int_eq(outstanding, 0);
}

/* Mostly at the end, or behind what is visible. */
static int64_t
some_offset(uint32_t *random)
{
	int64_t visible_end = partition_visible_end(lane.log), start = partition_log_start(lane.log);

	if (unit_random(random) % 3 > 0)
		return visible_end;
	return start + (int64_t)(unit_random(random) % (uint32_t)(visible_end - start + 1));
}

static void
act(uint32_t *random)
{
	struct conn *conn = &conns[unit_random(random) % CONNS];

	switch (unit_random(random) % 12) {
	case 0:
	case 1:
		/* Now and then larger than a segment. */
		produce(unit_random(random) % 16 == 0 ? 45 : 1 + (int)(unit_random(random) % 4),
		    (enum codec_ack)(unit_random(random) % 3));
		break;
	case 2:
	case 3:
		turn();
		break;
	case 4:
	case 5:
	case 6:
		if (conn->state == IDLE)
			ask(conn, some_offset(random), (int32_t)(unit_random(random) % 3 == 0 ? unit_random(random) % 12000 : 1));
		break;
	case 7:
	case 8:
		if (waiting_count > 0)
			run_job(unit_random(random) % waiting_count);
		break;
	case 9:
		collect();
		break;
	case 10:
		worker.now_ns += S;
		produce_upkeep_due(&worker);
		retain_due(&worker);
		logkit_set_memory(unit_random(random) % 2 == 0 ? LOGKIT_WARM : LOGKIT_COLD);
		break;
	default:
		if (conn->state == HELD && unit_random(random) % 4 == 0) {
			conn->over = true;
			fetch_wake(&conn->hold, BOARD_WAKEUP_TIMEOUT);
		}
	}
}

static void
let_all_go(void)
{
	logkit_set_memory(LOGKIT_WARM);
	run_all();
	expect_nobody_forgotten();
	/* More than anybody waits for. */
	for (int i = 0; i < 2; i++)
		produce(64, CODEC_ACK_WRITTEN);
	run_all();
	for (size_t i = 0; i < CONNS; i++)
		ck_assert_int_ne(conns[i].state, HELD);
	ck_assert_int_eq(board_get(&counters.fetch_held), 0);
	ck_assert_int_eq(refused, 0);
}

START_TEST(B03_in_any_order)
{
	static const int64_t retention[] = { 0, 3 * SEGMENT_BYTES };
	uint32_t random = unit_seed() + (uint32_t)_i;

	open_lane(_i % 2 == 0 ? LOG_VISIBLE_WRITTEN : LOG_VISIBLE_DURABLE, retention[_i / 2 % 2], _i / 4 % 2 == 0 ? 0 : 2500);
	for (int step = 0; step < 4000; step++) {
		act(&random);
		expect_nobody_forgotten();
	}
	let_all_go();
	ck_assert_int_gt(produced, 100);
	ck_assert_int_gt(board_get(&counters.fetch_wakeups[BOARD_WAKEUP_DATA]), 20);
}
END_TEST

/* ---- Failures ---- */

/* Somebody has produced, and a job is under way. */
static void
fail_force(enum logkit_call call)
{
	logkit_set_fault((struct logkit_fault){ .call = call, .at = 1, .error = EIO });
}

/* More than write-back waits for. */
static void
open_with_much_unforced(void)
{
	kit.settings.segment_bytes = INT64_C(64) << 20;
	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	logkit_append(&kit, 9, 1 << 20);
	lane.visible_bytes = partition_visible_bytes(lane.log);
	commit_written(&lane.commit, partition_log_end(lane.log), false, worker.now_ns);
}

/* A barrier and an upkeep are under way, in this order. */
static void
begin_both(void)
{
	open_with_much_unforced();
	produce(1, CODEC_ACK_FORCED);
	produce_write_all(&worker);
	ck_assert_uint_eq(waiting_count, 2);
	ck_assert_ptr_eq(waiting[0], &lane.job);
	ck_assert_ptr_eq(waiting[1], &lane.upkeep_job);
}

static void
expect_one_failure(int64_t barriers)
{
	ck_assert(partition_failed(lane.log));
	ck_assert_int_eq(board_get(&counters.storage_errors[BOARD_FORCE]), 1);
	ck_assert_int_eq(board_get(&counters.fsync_failures), barriers);
	ck_assert_int_eq(refused, 1);
}

START_TEST(a_barrier_that_fails_beside_an_upkeep_is_told_once)
{
	begin_both();
	fail_force(CALL_FDATASYNC);
	run_job(0);
	collect();
	expect_one_failure(1);
	run_all();
	expect_one_failure(1);
}
END_TEST

START_TEST(an_upkeep_that_fails_beside_a_barrier_is_told_once)
{
	begin_both();
	fail_force(CALL_SYNC_FILE_RANGE);
	run_job(1);
	collect();
	expect_one_failure(0);
	run_all();
	expect_one_failure(0);
}
END_TEST

/* A batch is written in part and refused; what it has left can be cut off at once, or not. A barrier is under way. */
static void
refuse_in_part(bool cut)
{
	int call = cut ? kit.settings.mapped ? CALL_STORE : CALL_PWRITE : LOGKIT_ANY;

	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	produce(1, CODEC_ACK_WRITTEN);
	run_all();
	produce(1, CODEC_ACK_FORCED);
	produce_write_all(&worker);
	logkit_set_fault((struct logkit_fault){ .call = call, .at = cut ? 1 : 2, .error = ENOSPC, .sticky = true });
	produce(4, CODEC_ACK_WRITTEN);
	produce_write_all(&worker);
	ck_assert_int_eq(refused, 1);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FTRUNCATE, .at = 1, .error = cut ? 0 : EIO });
}

/* What that barrier forces may be what was cut off later: it takes another one. */
START_TEST(bug_A9_a_batch_waits_until_what_was_refused_is_cut_off_durably)
{
	refuse_in_part(true);
	produce(1, CODEC_ACK_WRITTEN);
	for (int barriers = 2; barriers > 0; barriers--) {
		produce_write_all(&worker);
		ck_assert_int_eq(produced, 2 - (barriers == 2));
		ck_assert_ptr_eq(waiting[0], &lane.job);
		run_job(0);
		collect();
	}
	run_all();
	ck_assert_int_eq(produced, 3);
	ck_assert_int_eq(refused, 1);
}
END_TEST

START_TEST(bug_A9_a_batch_is_refused_when_what_was_refused_cannot_be_cut_off)
{
	refuse_in_part(false);
	produce(1, CODEC_ACK_WRITTEN);
	run_all();
	ck_assert_int_eq(refused, 2);
	ck_assert_int_eq(board_get(&counters.storage_errors[BOARD_WRITE]), 2);
	ck_assert(!partition_failed(lane.log));
	produce(1, CODEC_ACK_WRITTEN);
	run_all();
	ck_assert_int_eq(refused, 2);
	ck_assert_int_eq(produced, 3);
}
END_TEST

/* Full to the last record, so that the next one needs a roll. */
static void
fill_segment(void)
{
	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	for (int i = 0; i < SEGMENT_BYTES / RECORD_BYTES; i++)
		produce(1, CODEC_ACK_WRITTEN);
	run_all();
	ck_assert_int_eq(produced, SEGMENT_BYTES / RECORD_BYTES);
}

START_TEST(a_roll_that_cannot_begin_says_why)
{
	static const int batches[] = { 1, SEGMENT_BYTES / RECORD_BYTES + 1 };

	fill_segment();
	for (size_t i = 0; i < sizeof(batches) / sizeof(batches[0]); i++) {
		lane.log_limits[BOARD_ROLL] = (struct log_limit){ 0 };
		roll_error = EPROTO;
		produce(batches[i], CODEC_ACK_WRITTEN);
		produce_write_all(&worker);
		ck_assert_int_eq(refused, (int64_t)i + 1);
		ck_assert_int_eq(count_lines(strerror(EPROTO)), 1);
	}
	ck_assert_int_eq(board_get(&counters.storage_errors[BOARD_ROLL]), 2);
	produce(1, CODEC_ACK_WRITTEN);
	run_all();
	ck_assert_int_eq(refused, 2);
}
END_TEST

/* The batch that it could not carry is refused, and no other. */
START_TEST(a_large_batch_that_cannot_be_carried_takes_none_with_it)
{
	fill_segment();
	roll_error = ENOMEM;
	produce(SEGMENT_BYTES / RECORD_BYTES + 1, CODEC_ACK_WRITTEN);
	produce(1, CODEC_ACK_WRITTEN);
	run_all();
	ck_assert_int_eq(refused, 1);
	ck_assert_int_eq(produced, SEGMENT_BYTES / RECORD_BYTES + 1);
}
END_TEST

/* It refuses nobody who finds room in the old segment, and is tried again a second later. */
START_TEST(a_roll_by_age_that_cannot_begin_is_tried_again)
{
	open_lane(LOG_VISIBLE_WRITTEN, 0, 1000);
	produce(1, CODEC_ACK_WRITTEN);
	run_all();
	worker.now_ns = clock_now_ns() + 2 * S;
	worker.retain_deadline_ns = INT64_MAX;
	roll_error = ENOMEM;
	produce(1, CODEC_ACK_WRITTEN);
	produce_roll_due(&lane);
	ck_assert_int_eq(board_get(&counters.storage_errors[BOARD_ROLL]), 1);
	ck_assert_uint_eq(waiting_count, 0);
	ck_assert_int_eq(worker.retain_deadline_ns, worker.now_ns + S);
	run_all();
	ck_assert_int_eq(refused, 0);
	ck_assert_int_eq(produced, 2);
	ck_assert_int_eq(partition_segments(lane.log), 1);
	worker.now_ns += S;
	retain_due(&worker);
	run_all();
	ck_assert_int_eq(partition_segments(lane.log), 2);
}
END_TEST

/* A log that comes back to a worker while that hands over, or when it has: its files are the next worker's. */
START_TEST(D03_a_worker_that_leaves_removes_nothing)
{
	open_lane(LOG_VISIBLE_WRITTEN, SEGMENT_BYTES, 0);
	worker.leaving = true;
	produce(60, CODEC_ACK_WRITTEN);
	run_all();
	ck_assert_int_eq(partition_segments(lane.log), 3);
	retain_opened(&lane);
	retain_due(&worker);
	ck_assert_uint_eq(waiting_count, 0);
	ck_assert_int_eq(partition_log_start(lane.log), 0);
	worker.leaving = false;
	retain_opened(&lane);
	ck_assert_uint_eq(waiting_count, 1);
	run_all();
	ck_assert_int_gt(partition_log_start(lane.log), 0);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("produce");
	TCase *file = tcase_create("produce"), *mapped = tcase_create("produce, mapped");

	tcase_set_timeout(file, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(file, begin, end);
	tcase_add_loop_test(file, B03_in_any_order, 0, (8 + unit_sample() - 1) / unit_sample());
	tcase_add_test(file, a_barrier_that_fails_beside_an_upkeep_is_told_once);
	tcase_add_test(file, an_upkeep_that_fails_beside_a_barrier_is_told_once);
	tcase_add_test(file, bug_A9_a_batch_waits_until_what_was_refused_is_cut_off_durably);
	tcase_add_test(file, bug_A9_a_batch_is_refused_when_what_was_refused_cannot_be_cut_off);
	tcase_add_test(file, a_roll_that_cannot_begin_says_why);
	tcase_add_test(file, a_large_batch_that_cannot_be_carried_takes_none_with_it);
	tcase_add_test(file, a_roll_by_age_that_cannot_begin_is_tried_again);
	tcase_add_test(file, D03_a_worker_that_leaves_removes_nothing);
	suite_add_tcase(suite, file);
	tcase_set_timeout(mapped, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(mapped, begin_mapped, end);
	tcase_add_loop_test(mapped, B03_in_any_order, 0, (8 + unit_sample() - 1) / unit_sample());
	tcase_add_test(mapped, bug_A9_a_batch_waits_until_what_was_refused_is_cut_off_durably);
	tcase_add_test(mapped, bug_A9_a_batch_is_refused_when_what_was_refused_cannot_be_cut_off);
	suite_add_tcase(suite, mapped);
	return unit_run(suite);
}
