#include "worker/produce.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/record.h"
#include "worker/fetch.h"
#include "worker/opening.h"
#include "worker/retain.h"

enum {
	ROLL_AGAIN_NS = CLOCK_NS_PER_S,		/* a roll by age that has failed is tried again so soon */
	POINTS_NS = CLOCK_NS_PER_S,		/* a worker that is to be replaced waits so long to store recovery points */
	STAGED_WRITE_BYTES = 1024 * 1024,	/* so much is written at once, before the turn ends, while it is in the cache */
	STAGED_MAX_BYTES = 8 * 1024 * 1024,	/* behind a roll: then producers wait; one batch is always taken */
	STAGED_FIRST_BYTES = 64 * 1024,
};

/* A full disk, mostly. */
static const char CANNOT_WRITE[] = "cannot write (the records are refused; writing goes on by itself when the disk takes "
    "it again)";

/* A record that fits a segment fits an answer. */
_Static_assert((int)RECORD_MAX_BYTES == (int)CODEC_FETCH_PAYLOAD_MAX, "the largest record and the largest answer");

static void write_lane(struct lane *lane);

/* ---- Gathering ---- */

static enum record_format
format_of(const struct lane *lane)
{
	return (enum record_format)lane->topic->log.record_format;
}

static bool
too_large(const struct lane *lane, const struct codec_request *request)
{
	int64_t header = (int64_t)record_header_bytes(format_of(lane));

	return request->largest_payload > record_max_payload(format_of(lane)) ||
	    request->largest_payload + header > lane->topic->log.segment_bytes;
}

static size_t
encoded_bytes(const struct lane *lane, const struct codec_request *request)
{
	size_t payload = request->records_bytes - (size_t)request->record_count * 4;

	return payload + (size_t)request->record_count * record_header_bytes(format_of(lane));
}

static size_t
staged_bytes(const struct lane *lane)
{
	return lane->staged_tail - lane->staged_head;
}

/* Returns where the batch goes, or NULL without memory. */
static uint8_t *
stage_reserve(struct lane *lane, size_t size)
{
	size_t capacity = lane->staged_capacity == 0 ? STAGED_FIRST_BYTES : lane->staged_capacity;
	uint8_t *bytes;

	if (lane->staged_head > 0 && lane->staged_capacity - lane->staged_tail < size) {
		memmove(lane->staged, lane->staged + lane->staged_head, staged_bytes(lane));
		lane->staged_tail -= lane->staged_head;
		lane->staged_head = 0;
	}
	while (capacity - lane->staged_tail < size)
		capacity *= 2;
	if (capacity != lane->staged_capacity) {
		bytes = realloc(lane->staged, capacity);
		if (bytes == NULL)
			return NULL;
		lane->staged = bytes;
		lane->staged_capacity = capacity;
	}
	return lane->staged + lane->staged_tail;
}

static void
stage_release(struct lane *lane)
{
	free(lane->staged);
	lane->staged = NULL;
	lane->staged_head = lane->staged_tail = lane->staged_capacity = 0;
}

/* Header, sum and payload of each record, as they will stand in the file: the one copy that an append makes. */
static void
encode(uint8_t *to, enum record_format format, const struct codec_request *request)
{
	const uint8_t *from = request->records;

	for (int32_t i = 0; i < request->record_count; i++) {
		size_t size = bytes_get_u32(from);

		to = record_put(to, format, from + 4, size);
		from += 4 + size;
	}
}

static void
mark_dirty(struct lane *lane)
{
	if (lane->dirty)
		return;
	lane->dirty = true;
	lane->next_dirty = lane->worker->dirty;
	lane->worker->dirty = lane;
}

/*
 * One batch is always taken. What is staged behind a roll is bounded, per lane and in all; then producers wait, until
 * less is staged than at that moment.
 */
static bool
room_to_stage(struct lane *lane, size_t bytes)
{
	struct worker *worker = lane->worker;

	if (staged_bytes(lane) + bytes > STAGED_MAX_BYTES)
		write_lane(lane);
	if (staged_bytes(lane) == 0 || (staged_bytes(lane) + bytes <= STAGED_MAX_BYTES &&
	    worker->staged_bytes + (int64_t)bytes <= worker->buffer_bytes))
		return true;
	worker->stalled_at_bytes = worker->staged_bytes;
	return false;
}

static void
resume_stalled(struct worker *worker)
{
	if (worker->staged_bytes >= worker->stalled_at_bytes)
		return;
	worker->stalled_at_bytes = 0;
	conn_resume_all(worker->connections);
}

bool
produce_execute(struct conn *conn, struct lane *lane, const struct codec_request *request)
{
	size_t bytes = encoded_bytes(lane, request);
	bool refused = too_large(lane, request);
	struct reply *reply;
	uint8_t *to = NULL;

	if (!refused && lane->log != NULL) {
		if (!room_to_stage(lane, bytes))
			return false;
		to = stage_reserve(lane, bytes);
	}
	reply = conn_add_reply(conn, request, BOARD_PRODUCE);
	if (reply == NULL) {
		conn_abort(conn);
		return true;
	}
	if (to == NULL) {
		conn_answer(lane->worker, reply, refused ? CODEC_RECORD_TOO_LARGE : CODEC_STORAGE_FAILURE);
		return true;
	}
	encode(to, format_of(lane), request);
	lane->staged_tail += bytes;
	lane->worker->staged_bytes += (int64_t)bytes;
	reply->staged_bytes = bytes;
	reply->queued = true;
	reply_queue_append(&lane->to_write, reply);
	mark_dirty(lane);
	if (staged_bytes(lane) >= STAGED_WRITE_BYTES)
		write_lane(lane);
	return true;
}

/* ---- Answering ---- */

static void
answer(struct lane *lane, struct reply *reply, enum codec_error error)
{
	reply->queued = false;
	reply->high_watermark = partition_visible_end(lane->log);
	conn_answer(lane->worker, reply, error);
}

static void
count_produced(struct lane *lane, int64_t records, int64_t bytes)
{
	board_add(&lane->slot->produced_records, records);
	board_add(&lane->slot->produced_bytes, bytes - records * (int64_t)record_header_bytes(format_of(lane)));
}

/* Drops the first batch from the stage; its reply is the caller's. */
static struct reply *
unstage(struct lane *lane)
{
	struct reply *reply = reply_queue_pop(&lane->to_write);

	lane->staged_head += reply->staged_bytes;
	lane->worker->staged_bytes -= (int64_t)reply->staged_bytes;
	return reply;
}

static void
refuse_staged(struct lane *lane, size_t batches)
{
	while (batches-- > 0 && lane->to_write.first != NULL)
		answer(lane, unstage(lane), CODEC_STORAGE_FAILURE);
}

static void
answer_forced(struct lane *lane)
{
	int64_t durable_end = partition_durable_end(lane->log);

	while (lane->to_force.first != NULL && lane->to_force.first->end_offset <= durable_end)
		answer(lane, reply_queue_pop(&lane->to_force), CODEC_NONE);
}

/* A force has failed: nobody behind the durable end will ever be told anything else, and readers end there. */
static void
fail(struct lane *lane)
{
	struct reply *reply;

	atomic_store_explicit(&lane->slot->state, BOARD_FAILED, memory_order_release);
	board_set(&lane->slot->unsynced_bytes, 0);
	answer_forced(lane);
	while ((reply = reply_queue_pop(&lane->to_force)) != NULL)
		answer(lane, reply, CODEC_STORAGE_FAILURE);
	refuse_staged(lane, SIZE_MAX);
	stage_release(lane);
	fetch_wake_all(lane, BOARD_WAKEUP_FAILURE);
	opening_log_failed(lane);
}

/* What has become visible wakes those who wait for it. */
static void
tell_readers(struct lane *lane)
{
	int64_t bytes = partition_visible_bytes(lane->log);

	hold_appended(&lane->holds, bytes - lane->visible_bytes);
	lane->visible_bytes = bytes;
	fetch_wake_due(lane);
}

/* With visibility = durable nobody is told of a record that a power cut could take back, its producer neither. */
static bool
waits_for_force(const struct lane *lane, const struct reply *reply)
{
	return reply->ack == CODEC_ACK_FORCED || lane->topic->log.visibility == LOG_VISIBLE_DURABLE;
}

/* The batches at the head of the stage, `records` records in all, are in the log, whose end has moved behind them. */
static void
written(struct lane *lane, size_t batches, int64_t records, int64_t bytes)
{
	int64_t durable_end = partition_durable_end(lane->log);
	int64_t end_offset = partition_log_end(lane->log) - records;
	bool wanted = false;

	lane_publish(lane);
	count_produced(lane, records, bytes);
	while (batches-- > 0) {
		struct reply *reply = unstage(lane);

		end_offset += reply->record_count;
		reply->end_offset = end_offset;
		if (waits_for_force(lane, reply) && end_offset > durable_end) {
			reply_queue_append(&lane->to_force, reply);
			wanted = true;
		} else {
			answer(lane, reply, CODEC_NONE);
		}
	}
	if (end_offset > durable_end)
		commit_written(&lane->commit, end_offset, wanted, lane->worker->now_ns);
	else
		commit_written_durable(&lane->commit, durable_end);
	tell_readers(lane);
}

/* ---- Barriers and rolls, one at a time per lane; and upkeep beside barriers: jobs ---- */

static struct lane *
lane_of(struct job *job)
{
	return (struct lane *)((char *)job - offsetof(struct lane, job));
}

static void
run_barrier(struct job *job)
{
	partition_barrier_run(&lane_of(job)->barrier);
}

static void begin_due_jobs(struct lane *lane);

/* Behind any job: waiting appends go on, and so does the next group. */
static void
after_job(struct lane *lane)
{
	if (partition_failed(lane->log)) {
		fail(lane);
	} else {
		write_lane(lane);
		begin_due_jobs(lane);
	}
	resume_stalled(lane->worker);
}

/* A barrier or a roll begins. Should this process not live to see its end, the next one is to know. */
static void
begin_force(struct lane *lane)
{
	commit_begun(&lane->commit);
	atomic_store_explicit(&lane->slot->forcing, 1, memory_order_release);
}

/* It has ended. */
static void
after_force(struct lane *lane)
{
	commit_ended(&lane->commit, partition_durable_end(lane->log));
	if (!partition_failed(lane->log)) {
		atomic_store_explicit(&lane->slot->forcing, 0, memory_order_release);
		lane_publish(lane);
		answer_forced(lane);
		tell_readers(lane);
	}
	after_job(lane);
}

static void
refuse_all(struct lane *lane, int error)
{
	lane_report(lane, BOARD_WRITE, error, CANNOT_WRITE);
	refuse_staged(lane, SIZE_MAX);
}

static void
barrier_done(struct job *job)
{
	struct lane *lane = lane_of(job);
	struct board_worker *counters = lane->worker->counters;

	if (partition_barrier_finish(lane->log, &lane->barrier) == 0) {
		board_observe(&counters->fsync_duration, lane->barrier.duration_ns);
		if (lane->barrier.cut_error != 0)
			refuse_all(lane, lane->barrier.cut_error);
	} else if (lane->barrier.error != 0) {
		board_add(&counters->fsync_failures, 1);
		lane_report(lane, BOARD_FORCE, errno, "forcing the log to disk failed");
	}
	after_force(lane);
}

static void
begin_barrier(struct lane *lane)
{
	partition_barrier_begin(lane->log, &lane->barrier);
	begin_force(lane);
	lane->job = (struct job){ run_barrier, barrier_done, NULL };
	jobs_submit(lane->worker->jobs, &lane->job);
}

static void
begin_due_barrier(struct lane *lane)
{
	int64_t deadline_ns;

	if (lane->log == NULL || partition_failed(lane->log))
		return;
	/* What nobody waits for is the next worker's. */
	if (lane->worker->draining && lane->to_force.first == NULL)
		return;
	if (commit_due(&lane->commit, lane->worker->now_ns)) {
		begin_barrier(lane);
		return;
	}
	deadline_ns = commit_deadline_ns(&lane->commit);
	if (deadline_ns < lane->worker->flush_deadline_ns)
		lane->worker->flush_deadline_ns = deadline_ns;
}

static struct lane *
lane_of_upkeep(struct job *job)
{
	return (struct lane *)((char *)job - offsetof(struct lane, upkeep_job));
}

static void
run_upkeep(struct job *job)
{
	partition_upkeep_run(&lane_of_upkeep(job)->upkeep);
}

/*
 * Room could not be made: what waits for it is refused, as by a write that fails. When nothing had waited for it yet it is
 * tried again when something does; not before, or a full disk would keep us busy. Or the disk has lost what was written.
 */
static void
upkeep_failed(struct lane *lane, int error)
{
	if (partition_failed(lane->log)) {
		lane_report(lane, BOARD_FORCE, error, "writing the log to disk failed");
		fail(lane);
	} else if (lane->upkeep_awaited) {
		refuse_all(lane, error);
	} else {
		write_lane(lane);
	}
	produce_roll_due(lane);
	begin_due_barrier(lane);
	resume_stalled(lane->worker);
}

static void
upkeep_done(struct job *job)
{
	struct lane *lane = lane_of_upkeep(job);
	bool failed = partition_failed(lane->log);
	int error = partition_upkeep_finish(lane->log, &lane->upkeep) == 0 ? 0 : errno;

	lane->upkeep_running = false;
	/* The barrier beside it has failed, has said so, and has left nothing to wait for. */
	if (failed)
		return;
	if (error == 0)
		after_job(lane);
	else
		upkeep_failed(lane, error);
}

/* Begins it when it is due. `room_bytes`: so many are staged and wait for it, and it is. */
static void
begin_upkeep(struct lane *lane, int64_t room_bytes)
{
	if (lane->upkeep_running || !partition_upkeep_begin(lane->log, room_bytes, lane->worker->now_ns, &lane->upkeep))
		return;
	lane->upkeep_running = true;
	lane->upkeep_awaited = room_bytes > 0;
	lane->upkeep_job = (struct job){ run_upkeep, upkeep_done, NULL };
	jobs_submit(lane->worker->jobs, &lane->upkeep_job);
}

static int64_t
roll_due_ns(const struct lane *lane)
{
	int64_t due_ns = lane->log == NULL ? INT64_MAX : partition_roll_due_ns(lane->log);

	return due_ns > lane->roll_again_ns ? due_ns : lane->roll_again_ns;
}

/*
 * A roll by age comes first, since it is a barrier as well. What is staged comes before an upkeep: it may wait for a roll, and
 * a roll, by age or not, for no upkeep but the one under way.
 */
static void
begin_due_jobs(struct lane *lane)
{
	produce_roll_due(lane);
	begin_due_barrier(lane);
	if (lane->worker->draining)
		return;
	if (lane->log != NULL && lane->roll == NULL && lane->to_write.first == NULL && roll_due_ns(lane) > lane->worker->now_ns)
		begin_upkeep(lane, 0);
}

static void
run_roll(struct job *job)
{
	partition_roll_run(lane_of(job)->roll);
}

/*
 * Refuses the batch that the roll carried, or everything that waited for it: each would meet the same full disk. What came
 * while a segment was to be sealed for its age did not wait for it if it fits the old one.
 */
static void
roll_failed(struct lane *lane, bool with_batch, int error)
{
	const struct reply *first = lane->to_write.first;

	if (partition_failed(lane->log))
		board_add(&lane->worker->counters->fsync_failures, 1);
	lane_report(lane, BOARD_ROLL, error, "cannot begin a new segment (what waited for it is refused; it is tried "
	    "again with the next record)");
	lane->roll_again_ns = lane->worker->now_ns + ROLL_AGAIN_NS;
	if (with_batch)
		refuse_staged(lane, 1);
	else if (first != NULL && partition_fit(lane->log, (int64_t)first->staged_bytes) == PARTITION_ROLL)
		refuse_staged(lane, SIZE_MAX);
}

static void
roll_done(struct job *job)
{
	struct lane *lane = lane_of(job);
	bool with_batch = lane->roll_batch != NULL;
	int error = partition_roll_finish(lane->log, lane->roll) == 0 ? 0 : errno;

	lane->roll = NULL;
	free(lane->roll_batch);
	lane->roll_batch = NULL;
	if (error != 0)
		roll_failed(lane, with_batch, error);
	else if (with_batch)
		written(lane, 1, lane->to_write.first->record_count, (int64_t)lane->to_write.first->staged_bytes);
	if (error == 0)
		retain_rolled(lane);
	after_force(lane);
}

/* The first staged batch is larger than a segment and gets segments of its own. A copy: the stage moves meanwhile. */
static struct partition_roll *
roll_with_batch(struct lane *lane)
{
	struct reply *first = lane->to_write.first;
	struct partition_roll *roll;

	lane->roll_batch = malloc(first->staged_bytes);
	if (lane->roll_batch == NULL)
		return NULL;
	memcpy(lane->roll_batch, lane->staged + lane->staged_head, first->staged_bytes);
	roll = partition_roll_begin(lane->log, lane->roll_batch, first->staged_bytes, first->record_count);
	if (roll == NULL) {
		int error = errno;

		free(lane->roll_batch);
		lane->roll_batch = NULL;
		errno = error;
	}
	return roll;
}

static void
begin_roll(struct lane *lane, bool alone)
{
	lane->roll = alone ? roll_with_batch(lane) : partition_roll_begin(lane->log, NULL, 0, 0);
	if (lane->roll == NULL) {
		roll_failed(lane, alone, errno);
		return;
	}
	begin_force(lane);
	lane->job = (struct job){ run_roll, roll_done, NULL };
	jobs_submit(lane->worker->jobs, &lane->job);
}

void
produce_roll_due(struct lane *lane)
{
	struct worker *worker = lane->worker;
	int64_t due_ns;

	if (roll_due_ns(lane) <= worker->now_ns && !lane->commit.running && !lane->upkeep_running && !worker->stopping &&
	    !worker->leaving)
		begin_roll(lane, false);
	/* Later, when that was not possible. */
	due_ns = roll_due_ns(lane);
	if (due_ns > worker->now_ns && due_ns < worker->retain_deadline_ns)
		worker->retain_deadline_ns = due_ns;
}

/* ---- Writing ---- */

/* One write of as many staged batches as fit the active segment. */
static void
append_fitting(struct lane *lane)
{
	int64_t room = partition_room(lane->log);
	int64_t bytes = 0, records = 0;
	size_t batches = 0;

	for (struct reply *r = lane->to_write.first; r != NULL; r = r->next) {
		if (bytes + (int64_t)r->staged_bytes > room)
			break;
		bytes += (int64_t)r->staged_bytes;
		records += r->record_count;
		batches++;
	}
	if (partition_append(lane->log, lane->staged + lane->staged_head, (size_t)bytes, (int32_t)records) == 0) {
		written(lane, batches, records, bytes);
		return;
	}
	if (partition_failed(lane->log)) {
		lane_count_error(lane, BOARD_WRITE);
		fail(lane);
		return;
	}
	lane_report(lane, BOARD_WRITE, errno, CANNOT_WRITE);
	refuse_staged(lane, batches);
}

/*
 * Writes what is staged, until it is empty or a roll, a barrier or an upkeep must come first. While a barrier or an upkeep is
 * under way appends go on; a roll waits for both.
 */
static void
write_lane(struct lane *lane)
{
	if (lane->roll != NULL)
		return;
	while (lane->to_write.first != NULL) {
		enum partition_fit fit;

		if (partition_failed(lane->log)) {
			refuse_staged(lane, SIZE_MAX);
			break;
		}
		fit = partition_fit(lane->log, (int64_t)lane->to_write.first->staged_bytes);
		if (fit == PARTITION_FITS) {
			append_fitting(lane);
			continue;
		}
		if (fit == PARTITION_UNCUT && !lane->commit.running)
			begin_barrier(lane);
		if (fit == PARTITION_AHEAD)
			begin_upkeep(lane, (int64_t)staged_bytes(lane));
		if (fit == PARTITION_UNCUT || fit == PARTITION_AHEAD)
			return;
		if (lane->upkeep_running)
			return;
		if (!lane->commit.running)
			begin_roll(lane, fit == PARTITION_ALONE);
		if (lane->commit.running)
			return;
	}
	stage_release(lane);
}

void
produce_write_all(struct worker *worker)
{
	struct lane *lane = worker->dirty;

	worker->dirty = NULL;
	for (struct lane *next; lane != NULL; lane = next) {
		next = lane->next_dirty;
		lane->dirty = false;
		write_lane(lane);
		begin_due_jobs(lane);
	}
	resume_stalled(worker);
}

void
produce_flush_due(struct worker *worker)
{
	worker->flush_deadline_ns = INT64_MAX;
	for (int32_t i = 0; i < worker->lane_count; i++)
		begin_due_barrier(&worker->lanes[i]);
}

void
produce_upkeep_due(struct worker *worker)
{
	for (int32_t i = 0; i < worker->lane_count; i++)
		begin_due_jobs(&worker->lanes[i]);
}

void
produce_begin_pass(struct worker *worker)
{
	worker->leaving = true;
	worker->points_until_ns = worker->now_ns + POINTS_NS;
	for (int32_t i = 0; i < worker->lane_count; i++) {
		worker->lanes[i].passage = LANE_FORCED_TO;
		worker->lanes[i].passage_end = worker->lanes[i].commit.written_end;
	}
}

static bool
load_may_store(const struct lane *lane)
{
	return lane->load != NULL && !lane->load_stores_nothing;
}

/*
 * What may take long and is not begun any more comes to its end first, while everybody is served: a removal, a recovery, the
 * index of a sealed segment. Under a load that begins one upkeep or roll behind the other the point is not insisted on.
 */
static void
go_on_with_pass(struct lane *lane)
{
	bool late = lane->worker->now_ns >= lane->worker->points_until_ns;

	if (lane->opening || lane->retire != NULL || load_may_store(lane))
		return;
	if (lane->log == NULL || partition_failed(lane->log)) {
		lane->passage = LANE_PASSED;
	} else if (lane->passage == LANE_FORCED_TO && lane->commit.durable_end < lane->passage_end) {
		if (!lane->commit.running)
			begin_barrier(lane);
	} else if (lane->passage == LANE_FORCED_TO && lane->roll == NULL && !lane->upkeep_running) {
		partition_ask_point(lane->log);
		begin_upkeep(lane, 0);
		lane->passage = LANE_POINT_STORED;
	} else if (late) {
		lane->passage = LANE_PASSED;
	}
	/* At once, when there was nothing to store: then no job's end would bring the next turn. */
	if (lane->passage == LANE_POINT_STORED && !lane->upkeep_running)
		lane->passage = LANE_PASSED;
}

bool
produce_force_pass(struct worker *worker)
{
	bool passed = true;

	for (int32_t i = 0; i < worker->lane_count; i++) {
		go_on_with_pass(&worker->lanes[i]);
		passed = passed && worker->lanes[i].passage == LANE_PASSED;
	}
	return passed;
}

static bool
is_finished(const struct lane *lane)
{
	return lane->to_write.first == NULL && lane->to_force.first == NULL && !lane->commit.running && !lane->upkeep_running &&
	    lane->retire == NULL && !load_may_store(lane) && !lane->opening;
}

bool
produce_finished(const struct worker *worker)
{
	for (int32_t i = 0; i < worker->lane_count; i++)
		if (!is_finished(&worker->lanes[i]))
			return false;
	return true;
}

bool
produce_force_all(struct worker *worker)
{
	bool finished = true;

	for (int32_t i = 0; i < worker->lane_count; i++) {
		struct lane *lane = &worker->lanes[i];

		if (lane->log == NULL || partition_failed(lane->log))
			continue;
		if (!lane->commit.running && lane->commit.written_end > lane->commit.durable_end)
			begin_barrier(lane);
		if (lane->commit.running || lane->upkeep_running)
			finished = false;
	}
	return finished;
}
