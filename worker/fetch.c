#include "worker/fetch.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "worker/opening.h"

/* What to send, or the error to send instead. A cold segment is none of both: see fetch_execute. */
struct outcome {
	enum codec_error error;
	bool cold;
	struct partition_place place;
};

static struct outcome
look(struct lane *lane, int64_t offset)
{
	struct outcome o = { .error = CODEC_NONE };

	if (lane->log == NULL) {
		o.error = CODEC_STORAGE_FAILURE;
		return o;
	}
	if (offset < partition_log_start(lane->log) || offset > partition_visible_end(lane->log)) {
		o.error = CODEC_OFFSET_OUT_OF_RANGE;
		return o;
	}
	switch (partition_find(lane->log, offset, &o.place)) {
	case PARTITION_FOUND:
		break;
	case PARTITION_COLD:
		o.cold = true;
		break;
	default:
		o.error = CODEC_STORAGE_FAILURE;
		/* Behind the durable end of a failed partition that is no news. */
		if (partition_failed(lane->log))
			break;
		if (errno == EBADMSG)
			lane_count_error(lane, BOARD_READ);
		else
			lane_report(lane, BOARD_READ, errno, "cannot read the log");
	}
	return o;
}

static void
put_error(struct conn *conn, struct lane *lane, int32_t correlation_id, enum codec_error error)
{
	conn_put_error(conn, correlation_id, error);
	conn_count(lane->worker, BOARD_FETCH, error);
}

static void
put_data(struct conn *conn, struct lane *lane, int32_t correlation_id, int32_t max_bytes,
    const struct partition_place *place)
{
	struct output *output = conn_output(conn);
	struct slice slice = { .segment = NULL };
	int64_t limit = max_bytes < CODEC_FETCH_PAYLOAD_MAX ? max_bytes : CODEC_FETCH_PAYLOAD_MAX;
	uint8_t *to;

	if (place->bytes_in_segment > 0)
		partition_slice(place, limit, &slice);
	if (slice.bytes > 0 && slice_check(&slice) != 0) {
		lane_report(lane, BOARD_READ, errno, "a segment file is shorter than its log: was it truncated from outside?");
		slice_release(&slice);
		put_error(conn, lane, correlation_id, CODEC_STORAGE_FAILURE);
		return;
	}
	to = output_reserve(output, CODEC_FETCH_ANSWER_HEADER_BYTES);
	if (to == NULL) {
		slice_release(&slice);
		conn_abort(conn);
		return;
	}
	codec_put_fetch_answer(to, correlation_id, partition_visible_end(lane->log), (int32_t)slice.bytes);
	output_put(output, CODEC_FETCH_ANSWER_HEADER_BYTES);
	if (slice.bytes > 0 && output_put_slice(output, &slice) != 0) {
		slice_release(&slice);
		conn_abort(conn);
		return;
	}
	conn_count(lane->worker, BOARD_FETCH, CODEC_NONE);
}

/* How many bytes must be there until a waiting reader is answered. */
static int64_t
enough(const struct codec_request *request)
{
	int64_t bytes = request->min_bytes > 1 ? request->min_bytes : 1;

	return bytes < CODEC_FETCH_PAYLOAD_MAX ? bytes : CODEC_FETCH_PAYLOAD_MAX;
}

static void
hold(struct conn *conn, struct lane *lane, const struct codec_request *request, int64_t missing_bytes)
{
	struct worker *worker = lane->worker;
	struct hold *h = conn_hold(conn);
	int64_t wait_ns = (int64_t)request->max_wait_ms * CLOCK_NS_PER_MS;
	int64_t held_until_ns = conn_held_until_ns(conn);

	if (wait_ns > worker->max_fetch_wait_ns)
		wait_ns = worker->max_fetch_wait_ns;
	h->conn = conn;
	h->correlation_id = request->correlation_id;
	h->max_bytes = request->max_bytes;
	h->min_bytes = request->min_bytes;
	h->offset = request->fetch_offset;
	/* Not the time at which this turn began: the wait must not be shorter than asked for. */
	h->deadline_ns = held_until_ns != 0 ? held_until_ns : clock_now_ns() + wait_ns;
	hold_add(&lane->holds, h, lane, missing_bytes);
	board_add(&worker->counters->fetch_held, 1);
	conn_held(conn);
}

static void
run_load(struct job *job)
{
	struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, load_job));

	partition_load_run(lane->load);
}

static void
load_done(struct job *job)
{
	struct lane *lane = (struct lane *)((char *)job - offsetof(struct lane, load_job));

	if (partition_load_finish(lane->log, lane->load) != 0)
		lane_count_error(lane, BOARD_READ);
	lane->load = NULL;
	opening_job_ended(lane);
	conn_resume_all(lane->worker->connections);
	fetch_wake_due(lane);
}

/* Has the segment of `offset` opened; one load per partition at a time, whoever needs another asks again. */
static enum codec_error
load(struct lane *lane, int64_t offset)
{
	if (lane->load != NULL)
		return CODEC_NONE;
	lane->load = partition_load_begin(lane->log, offset);
	if (lane->load == NULL) {
		lane_report(lane, BOARD_READ, errno, "cannot open a sealed segment");
		return CODEC_STORAGE_FAILURE;
	}
	lane->load_stores_nothing = lane->worker->leaving;
	if (lane->load_stores_nothing)
		partition_load_store_nothing(lane->load);
	lane->load_job = (struct job){ run_load, load_done, NULL };
	jobs_submit_read(lane->worker->jobs, &lane->load_job);
	return CODEC_NONE;
}

bool
fetch_execute(struct conn *conn, struct lane *lane, const struct codec_request *request)
{
	struct outcome o = look(lane, request->fetch_offset);
	bool may_wait = request->max_wait_ms > 0 && !conn_ending(conn) && !lane->worker->stopping;

	if (conn_held_until_ns(conn) != 0 && conn_held_until_ns(conn) <= clock_now_ns())
		may_wait = false;
	/* Where a log has failed nothing comes that could be waited for: what can be read of it is all. */
	if (o.error == CODEC_NONE && partition_failed(lane->log))
		may_wait = false;
	if (o.error == CODEC_NONE && o.cold) {
		o.error = load(lane, request->fetch_offset);
		if (o.error == CODEC_NONE)
			return false;
	}
	if (o.error != CODEC_NONE)
		put_error(conn, lane, request->correlation_id, o.error);
	else if (may_wait && o.place.bytes_behind < enough(request))
		hold(conn, lane, request, enough(request) - o.place.bytes_behind);
	else
		put_data(conn, lane, request->correlation_id, request->max_bytes, &o.place);
	return true;
}

/* Its wait is over, and its bytes are there but cannot be sent yet: due, it stands by until load_done asks again. */
static void
hold_until_loaded(struct hold *h, struct lane *lane)
{
	h->deadline_ns = INT64_MAX;
	hold_add(&lane->holds, h, lane, 0);
}

/*
 * A hold has ended and is out of its list. Its offset was at or near the end of the log when it began, so its place is
 * mostly in memory. But a batch larger than a segment brings segments that nobody has opened yet, and lengths in front of
 * bytes that are waited for can have left memory meanwhile. Then the bytes are loaded first, as for a FETCH that does not
 * wait. Only a worker that stops does not wait for that: it answers without data.
 */
static void
answer(struct hold *h, struct lane *lane, enum board_wakeup cause)
{
	struct worker *worker = lane->worker;
	struct outcome o = look(lane, h->offset);

	if (o.cold && cause != BOARD_WAKEUP_STOP) {
		o.error = load(lane, h->offset);
		if (o.error == CODEC_NONE) {
			hold_until_loaded(h, lane);
			return;
		}
	}
	board_add(&worker->counters->fetch_held, -1);
	board_add(&worker->counters->fetch_wakeups[cause], 1);
	if (o.cold)
		memset(&o.place, 0, sizeof(o.place));
	if (o.error != CODEC_NONE)
		put_error(h->conn, lane, h->correlation_id, o.error);
	else
		put_data(h->conn, lane, h->correlation_id, h->max_bytes, &o.place);
	conn_schedule(h->conn);
}

void
fetch_wake(struct hold *h, enum board_wakeup cause)
{
	struct lane *lane = h->lane;

	hold_remove(h);
	answer(h, lane, cause);
}

uint8_t *
fetch_write_again(struct hold *h, uint8_t *to, int64_t *held_until_ns)
{
	const struct lane *lane = h->lane;
	int64_t now_ns = clock_now_ns();
	struct codec_request request = {
		.correlation_id = h->correlation_id,
		.topic = { lane->topic->name, strlen(lane->topic->name) },
		.partition = lane->number,
		.fetch_offset = h->offset,
		.max_bytes = h->max_bytes,
		.max_wait_ms = 1,	/* it is held_until_ns that counts */
		.min_bytes = h->min_bytes,
	};

	*held_until_ns = h->deadline_ns < INT64_MAX ? h->deadline_ns : now_ns;	/* INT64_MAX: see hold_until_loaded */
	hold_remove(h);
	board_add(&lane->worker->counters->fetch_held, -1);
	return codec_put_fetch_request(to, &request);
}

static void
answer_chain(struct hold *chain, struct lane *lane, enum board_wakeup cause)
{
	for (struct hold *next; chain != NULL; chain = next) {
		next = chain->next;
		answer(chain, lane, cause);
	}
}

void
fetch_wake_due(struct lane *lane)
{
	answer_chain(hold_take_due(&lane->holds), lane, BOARD_WAKEUP_DATA);
}

void
fetch_wake_below(struct lane *lane, int64_t offset)
{
	answer_chain(hold_take_below(&lane->holds, offset), lane, BOARD_WAKEUP_RETENTION);
}

void
fetch_wake_all(struct lane *lane, enum board_wakeup cause)
{
	answer_chain(hold_take_all(&lane->holds), lane, cause);
}
