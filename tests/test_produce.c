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
#include "worker/stop_marker.h"

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
static int64_t produced, refused, outstanding, given_up;
static enum codec_error last_refusal;
static int roll_error;	/* errno: the next roll cannot begin */
static bool no_memory;	/* for the next that is allocated */
static bool no_reply;

enum { CONNS = sizeof(conns) / sizeof(conns[0]), MIB = 1024 * 1024 };

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
	ck_assert_msg(conn == &producer && no_reply, "no connection is to be given up here");
	given_up++;
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
	struct reply *reply = no_reply ? NULL : calloc(1, sizeof(*reply));

	if (reply == NULL)
		return NULL;
	*reply = (struct reply){ .conn = conn, .ack = request->ack, .api = api, .record_count = request->record_count };
	outstanding++;
	return reply;
}

void
conn_answer(struct worker *of, struct reply *reply, enum codec_error error)
{
	(void)of;
	outstanding--;
	if (error == CODEC_NONE) {
		produced += reply->record_count;
	} else {
		refused++;
		last_refusal = error;
	}
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

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static bool
is_memory(void)
{
	bool is = !no_memory;

	no_memory = false;
	if (!is)
		errno = ENOMEM;
	return is;
}

void *
__wrap_malloc(size_t bytes)
{
	return is_memory() ? __real_malloc(bytes) : NULL;
}

void *
__wrap_calloc(size_t count, size_t bytes)
{
	return is_memory() ? __real_calloc(count, bytes) : NULL;
}

void *
__wrap_realloc(void *old, size_t bytes)
{
	return is_memory() ? __real_realloc(old, bytes) : NULL;
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
	produced = refused = outstanding = given_up = 0;
	roll_error = 0;
	no_memory = no_reply = false;
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

/* Records of that payload. False: the producer is to wait. */
static bool
offer(int count, int32_t size, enum codec_ack ack)
{
	static uint8_t records[8 * MIB];
	size_t bytes = (size_t)count * (4 + (size_t)size);
	struct codec_request request = { .api_key = CODEC_PRODUCE, .ack = (int8_t)ack, .record_count = count,
		.largest_payload = size, .records = records, .records_bytes = bytes };

	/* Where all is well nothing of Check's is called: it allocates. */
	if (bytes > sizeof(records))
		ck_abort();
	for (uint8_t *p = records; p < records + bytes; p += 4 + size) {
		bytes_put_u32(p, (uint32_t)size);
		memset(p + 4, 'x', (size_t)size);
	}
	return produce_execute(&producer, &lane, &request);
}

static void
produce(int count, enum codec_ack ack)
{
	ck_assert(offer(count, PAYLOAD_BYTES, ack));
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

/* The batch that it could not carry is refused, and no other. `_i`: no memory for the roll, or for its copy of the batch. */
START_TEST(a_large_batch_that_cannot_be_carried_takes_none_with_it)
{
	fill_segment();
	produce(SEGMENT_BYTES / RECORD_BYTES + 1, CODEC_ACK_WRITTEN);
	produce(1, CODEC_ACK_WRITTEN);
	roll_error = _i == 0 ? ENOMEM : 0;
	no_memory = _i == 1;
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

/* The segment's last but one record is being forced, and what waits for the last one's force waits for a roll's. */
static void
begin_roll_with_all_waiting(void)
{
	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	produce(SEGMENT_BYTES / RECORD_BYTES - 1, CODEC_ACK_FORCED);
	turn();
	produce(1, CODEC_ACK_FORCED);
	produce(1, CODEC_ACK_WRITTEN);
	produce(1, CODEC_ACK_FORCED);
	turn();
	run_job(0);
	collect();
	ck_assert_int_eq(produced, SEGMENT_BYTES / RECORD_BYTES - 1);
	ck_assert_ptr_nonnull(lane.roll);
	produce(1, CODEC_ACK_WRITTEN);
}

/* What waits for its segment is refused; what waits for its force alone gets another one. */
START_TEST(a_roll_that_fails_refuses_what_waits_for_it)
{
	begin_roll_with_all_waiting();
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 1, .error = ENOSPC });
	run_job(0);
	collect();
	ck_assert_int_eq(refused, 3);
	ck_assert_int_eq(board_get(&counters.storage_errors[BOARD_ROLL]), 1);
	ck_assert_int_eq(count_lines(strerror(ENOSPC)), 1);
	ck_assert_ptr_eq(waiting[0], &lane.job);
	run_all();
	ck_assert_int_eq(produced, SEGMENT_BYTES / RECORD_BYTES);
	produce(1, CODEC_ACK_FORCED);
	run_all();
	ck_assert_int_eq(produced, SEGMENT_BYTES / RECORD_BYTES + 1);
	ck_assert_int_eq(refused, 3);
	ck_assert_int_eq(board_get(&counters.fsync_failures), 0);
}
END_TEST

START_TEST(a_roll_that_cannot_force_the_log_refuses_all)
{
	begin_roll_with_all_waiting();
	fail_force(CALL_FDATASYNC);
	run_job(0);
	collect();
	ck_assert(partition_failed(lane.log));
	ck_assert_int_eq(refused, 4);
	ck_assert_int_eq(board_get(&counters.fsync_failures), 1);
	ck_assert_int_eq(atomic_load(&slot.state), BOARD_FAILED);
	ck_assert_int_eq(atomic_load(&slot.forcing), 1);
	/* And whatever comes now. */
	produce(1, CODEC_ACK_WRITTEN);
	run_all();
	ck_assert_int_eq(refused, 5);
	ck_assert_int_eq(produced, SEGMENT_BYTES / RECORD_BYTES - 1);
}
END_TEST

/* The batch that it carried is refused, and no other. */
START_TEST(a_roll_that_fails_with_a_batch_takes_no_other_with_it)
{
	fill_segment();
	produce(SEGMENT_BYTES / RECORD_BYTES + 1, CODEC_ACK_WRITTEN);
	produce(1, CODEC_ACK_WRITTEN);
	turn();
	logkit_set_fault((struct logkit_fault){ .call = CALL_PWRITE, .at = 1, .error = ENOSPC });
	run_all();
	ck_assert_int_eq(refused, 1);
	ck_assert_int_eq(produced, SEGMENT_BYTES / RECORD_BYTES + 1);
}
END_TEST

/* `_i`: so many records come while it is under way, and find room in the old segment. */
START_TEST(a_roll_by_age_that_fails_refuses_nobody)
{
	open_lane(LOG_VISIBLE_WRITTEN, 0, 1000);
	produce(1, CODEC_ACK_WRITTEN);
	run_all();
	worker.now_ns = clock_now_ns() + 2 * S;
	produce_roll_due(&lane);
	ck_assert_ptr_nonnull(lane.roll);
	for (int i = 0; i < _i; i++)
		produce(1, CODEC_ACK_WRITTEN);
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 1, .error = ENOSPC });
	run_all();
	ck_assert_int_eq(board_get(&counters.storage_errors[BOARD_ROLL]), 1);
	ck_assert_int_eq(produced, 1 + _i);
	ck_assert_int_eq(partition_segments(lane.log), 1);
}
END_TEST

/* Somebody has cut the file: what it lacks is not made up for by what comes now. */
START_TEST(a_log_that_was_cut_refuses_from_then_on)
{
	char path[LOGKIT_PATH_BYTES];

	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	produce(2, CODEC_ACK_WRITTEN);
	run_all();
	logkit_segment_path(&kit, 0, path);
	logkit_truncate(path, RECORD_BYTES);
	for (int i = 1; i <= 3; i++) {
		produce(1, CODEC_ACK_WRITTEN);
		run_all();
		ck_assert_int_eq(refused, i);
	}
	ck_assert_int_eq(atomic_load(&slot.state), BOARD_FAILED);
	ck_assert_int_eq(board_get(&counters.storage_errors[BOARD_WRITE]), 1);
	ck_assert_int_eq(count_lines("was cut"), 1);
}
END_TEST

/* ---- Staging ---- */

/* So much is staged behind a roll; then producers wait until less is. */
START_TEST(producers_wait_behind_a_roll)
{
	int staged = 0;

	kit.settings.segment_bytes = 4 * MIB;
	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	/* These do not wait for the end of the turn, nor does the roll. */
	for (int i = 1; i <= 3; i++) {
		ck_assert(offer(1, MIB, CODEC_ACK_WRITTEN));
		ck_assert_int_eq(produced, i);
	}
	while (staged < 100 && offer(1, MIB, CODEC_ACK_WRITTEN))
		staged++;
	ck_assert_int_eq(staged, 7);
	ck_assert_ptr_nonnull(lane.roll);
	conns[0].state = PUT_OFF;
	turn();
	ck_assert_int_eq(conns[0].state, PUT_OFF);
	run_job(0);
	collect();
	ck_assert_int_eq(conns[0].state, RESUMED);
	conns[0].state = IDLE;
	ck_assert(offer(1, MIB, CODEC_ACK_WRITTEN));
	run_all();
	ck_assert_int_eq(produced, 3 + 7 + 1);
	ck_assert_int_eq(worker.staged_bytes, 0);
}
END_TEST

/* What is staged in the same turn is written first, when both are too much. */
START_TEST(a_large_batch_makes_its_own_room)
{
	kit.settings.segment_bytes = 64 * MIB;
	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	ck_assert(offer(1, MIB / 2, CODEC_ACK_WRITTEN));
	ck_assert_int_eq(produced, 0);
	ck_assert(offer(1, 8 * MIB - 1024, CODEC_ACK_WRITTEN));
	ck_assert_int_eq(produced, 2);
}
END_TEST

/* Of all partitions together no more is staged than that; of each one batch always. */
START_TEST(producers_wait_for_memory_that_others_use)
{
	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	worker.buffer_bytes = 3 * RECORD_BYTES;
	worker.staged_bytes = 5 * RECORD_BYTES;
	produce(1, CODEC_ACK_WRITTEN);
	ck_assert(!offer(1, PAYLOAD_BYTES, CODEC_ACK_WRITTEN));
	conns[0].state = PUT_OFF;
	worker.staged_bytes -= 5 * RECORD_BYTES;
	turn();
	ck_assert_int_eq(conns[0].state, RESUMED);
	conns[0].state = IDLE;
	produce(3, CODEC_ACK_WRITTEN);
	ck_assert(!offer(1, PAYLOAD_BYTES, CODEC_ACK_WRITTEN));
	run_all();
	ck_assert_int_eq(produced, 4);
}
END_TEST

START_TEST(what_cannot_be_staged_is_refused_at_once)
{
	struct partition *log;

	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	produce(1, CODEC_ACK_WRITTEN);
	ck_assert(offer(1, SEGMENT_BYTES - 7, CODEC_ACK_WRITTEN));
	ck_assert_int_eq(last_refusal, CODEC_RECORD_TOO_LARGE);
	topic.log.segment_bytes = 64 * MIB;
	ck_assert(offer(1, record_max_payload(RECORD_CRC32C) + 1, CODEC_ACK_WRITTEN));
	ck_assert_int_eq(last_refusal, CODEC_RECORD_TOO_LARGE);
	ck_assert_int_eq(refused, 2);
	no_memory = true;
	ck_assert(offer(1, MIB, CODEC_ACK_WRITTEN));
	ck_assert_int_eq(last_refusal, CODEC_STORAGE_FAILURE);
	log = lane.log;
	lane.log = NULL;
	last_refusal = CODEC_NONE;
	produce(1, CODEC_ACK_WRITTEN);
	ck_assert_int_eq(last_refusal, CODEC_STORAGE_FAILURE);
	lane.log = log;
	ck_assert_int_eq(refused, 4);
	/* Not even an answer. */
	no_reply = true;
	produce(1, CODEC_ACK_WRITTEN);
	ck_assert_int_eq(given_up, 1);
	run_all();
	ck_assert_int_eq(produced, 1);
}
END_TEST

/* A log that is closed has nothing to do. */
START_TEST(a_closed_log_begins_nothing)
{
	struct partition *log;

	open_lane(LOG_VISIBLE_WRITTEN, 0, 1000);
	produce(1, CODEC_ACK_WRITTEN);
	run_all();
	worker.now_ns = clock_now_ns() + 2 * S;
	log = lane.log;
	lane.log = NULL;
	produce_flush_due(&worker);
	produce_upkeep_due(&worker);
	ck_assert(produce_force_all(&worker));
	ck_assert_uint_eq(waiting_count, 0);
	lane.log = log;
}
END_TEST

/* ---- Stopping and handing over ---- */

/* `_i`: why: a roll by age is the next process's. */
START_TEST(a_worker_that_goes_rolls_nothing_for_its_age)
{
	open_lane(LOG_VISIBLE_WRITTEN, 0, 1000);
	produce(1, CODEC_ACK_WRITTEN);
	run_all();
	worker.now_ns = clock_now_ns() + 2 * S;
	worker.stopping = _i == 0;
	worker.leaving = _i == 1;
	produce_roll_due(&lane);
	ck_assert_uint_eq(waiting_count, 0);
	worker.stopping = worker.leaving = false;
	produce_roll_due(&lane);
	ck_assert_uint_eq(waiting_count, 1);
	run_all();
}
END_TEST

START_TEST(D03_what_nobody_waits_for_is_the_next_workers_to_force)
{
	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	lane.commit.flush_records = 1;
	worker.draining = true;
	produce(1, CODEC_ACK_WRITTEN);
	produce_write_all(&worker);
	produce_flush_due(&worker);
	ck_assert_uint_eq(waiting_count, 0);
	produce(1, CODEC_ACK_FORCED);
	produce_write_all(&worker);
	ck_assert_uint_eq(waiting_count, 1);
	run_all();
	ck_assert_int_eq(partition_durable_end(lane.log), 2);
}
END_TEST

/* What is under way on the lane, or has happened to its log; and whether one waits for that. */
struct under_way { bool opening, retire, load, stores_nothing, closed, waits; };

static const struct under_way under_way[] = { { .opening = true, .waits = true }, { .retire = true, .waits = true },
	{ .load = true, .waits = true }, { .load = true, .stores_nothing = true }, { .closed = true }, { .waits = false } };
enum { UNDER_WAY = sizeof(under_way) / sizeof(under_way[0]) };

static void
put_under_way(const struct under_way *what)
{
	static char something;

	lane.opening = what->opening;
	lane.retire = what->retire ? (struct partition_retire *)&something : NULL;
	lane.load = what->load ? (struct partition_load *)&something : NULL;
	lane.load_stores_nothing = what->stores_nothing;
	lane.log = what->closed ? NULL : kit.p;
}

/* `_i`: of these. */
START_TEST(D03_what_may_take_long_comes_to_its_end_first)
{
	const struct under_way *what = &under_way[_i];
	int turns = 0;

	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	produce(1, CODEC_ACK_WRITTEN);
	ck_assert(!produce_finished(&worker));
	produce_write_all(&worker);
	produce_begin_pass(&worker);
	put_under_way(what);
	ck_assert_int_eq(produce_finished(&worker), !what->waits);
	ck_assert_int_eq(produce_force_pass(&worker), what->closed);
	ck_assert_uint_eq(waiting_count, what->waits || what->closed ? 0 : 1);
	ck_assert_int_eq(produce_finished(&worker), what->closed);
	put_under_way(&(struct under_way){ .waits = false });
	/* It is forced, then the point is stored. */
	while (!produce_force_pass(&worker)) {
		run_job(0);
		collect();
		turns++;
	}
	ck_assert_int_eq(turns, what->closed ? 0 : 2);
	ck_assert_int_eq(partition_durable_end(lane.log), what->closed ? 0 : 1);
	ck_assert(produce_finished(&worker));
}
END_TEST

/* Nor is one waited for that has failed. */
START_TEST(D03_a_failed_log_holds_nobody_up)
{
	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	produce(1, CODEC_ACK_FORCED);
	produce_write_all(&worker);
	fail_force(CALL_FDATASYNC);
	run_all();
	ck_assert(partition_failed(lane.log));
	produce_begin_pass(&worker);
	ck_assert(produce_force_pass(&worker));
	ck_assert(produce_finished(&worker));
	ck_assert(produce_force_all(&worker));
	ck_assert_uint_eq(waiting_count, 0);
}
END_TEST

/* The recovery point is not insisted on. */
START_TEST(D03_a_pass_ends_in_time_under_a_load)
{
	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	produce_begin_pass(&worker);
	lane.upkeep_running = true;
	ck_assert(!produce_force_pass(&worker) && !produce_finished(&worker));
	worker.now_ns += S;
	ck_assert(produce_force_pass(&worker));
	lane.upkeep_running = false;
}
END_TEST

/* Of three logs one is closed, one has failed: the other processes are told of the third. */
START_TEST(only_a_sound_log_is_left_or_released)
{
	struct lane lanes[3];
	struct message_end ends[3];
	struct stop_marker marker;
	struct logkit other;

	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	logkit_begin(&other, RECORD_CRC32C, SEGMENT_BYTES);
	logkit_open(&other);
	logkit_append(&other, 1, PAYLOAD_BYTES);
	fail_force(CALL_FDATASYNC);
	ck_assert_int_eq(logkit_barrier(&other), -1);
	lanes[0] = lanes[1] = lanes[2] = lane;
	lanes[0].log = NULL;
	lanes[1].log = other.p;
	worker.lanes = lanes;
	worker.lane_count = 3;
	worker.data_fd = kit.data_fd;
	ck_assert_int_eq(lane_release_all(&worker, ends), 1);
	ck_assert_int_eq(ends[0].slot, 2);
	lane_leave_all(&worker);
	stop_marker_take(&marker, kit.data_fd, worker.number, 1);
	ck_assert_uint_eq(marker.count, 1);
	stop_marker_free(&marker);
	logkit_end(&other);
}
END_TEST

/* `_i`: no memory for it, or no file. */
START_TEST(a_stop_that_can_leave_no_word_says_so)
{
	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	worker.data_fd = kit.data_fd;
	if (_i == 0)
		no_memory = true;
	else
		logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 1, .error = ENOSPC, .aim = LOGKIT_AT_CACHES });
	lane_leave_all(&worker);
	ck_assert_int_eq(count_lines(strerror(_i == 0 ? ENOMEM : ENOSPC)), 1);
}
END_TEST

START_TEST(without_memory_there_are_no_lanes)
{
	int32_t slot_count = 1;

	open_lane(LOG_VISIBLE_WRITTEN, 0, 0);
	worker.topics.slot_counts = &slot_count;
	no_memory = true;
	ck_assert_int_eq(lane_create_all(&worker), -1);
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
	tcase_add_loop_test(file, a_large_batch_that_cannot_be_carried_takes_none_with_it, 0, 2);
	tcase_add_test(file, a_roll_by_age_that_cannot_begin_is_tried_again);
	tcase_add_test(file, a_roll_that_fails_refuses_what_waits_for_it);
	tcase_add_test(file, a_roll_that_cannot_force_the_log_refuses_all);
	tcase_add_test(file, a_roll_that_fails_with_a_batch_takes_no_other_with_it);
	tcase_add_loop_test(file, a_roll_by_age_that_fails_refuses_nobody, 0, 2);
	tcase_add_test(file, a_log_that_was_cut_refuses_from_then_on);
	tcase_add_test(file, producers_wait_behind_a_roll);
	tcase_add_test(file, a_large_batch_makes_its_own_room);
	tcase_add_test(file, producers_wait_for_memory_that_others_use);
	tcase_add_test(file, what_cannot_be_staged_is_refused_at_once);
	tcase_add_test(file, a_closed_log_begins_nothing);
	tcase_add_loop_test(file, a_worker_that_goes_rolls_nothing_for_its_age, 0, 2);
	tcase_add_test(file, D03_what_nobody_waits_for_is_the_next_workers_to_force);
	tcase_add_loop_test(file, D03_what_may_take_long_comes_to_its_end_first, 0, UNDER_WAY);
	tcase_add_test(file, D03_a_failed_log_holds_nobody_up);
	tcase_add_test(file, D03_a_pass_ends_in_time_under_a_load);
	tcase_add_test(file, only_a_sound_log_is_left_or_released);
	tcase_add_loop_test(file, a_stop_that_can_leave_no_word_says_so, 0, 2);
	tcase_add_test(file, without_memory_there_are_no_lanes);
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
