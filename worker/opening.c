#include "worker/opening.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "worker/retain.h"

enum { REPORT_INTERVAL_S = 60 };

/* Opening one lane's log: recovery waits for the disk, so it is a job. */
struct opening {
	struct job job;
	struct lane *lane;
	struct partition_settings settings;
	int data_fd;
	struct partition_known known;
	struct stop_state released;	/* with known.released */
	struct partition_opened opened;
	bool was_forcing;
	struct openings *all;		/* NULL: again, after a failure */
};

struct openings {
	struct worker *worker;
	void (*done)(void *context, int32_t opened, int32_t failed);
	void *context;
	int32_t outstanding, opened, failed;
};

/* ---- Letting go of a log ---- */

struct closing {
	struct job job;
	struct partition *log;
};

static void
run_closing(struct job *job)
{
	partition_close(((struct closing *)job)->log);
}

static void
closing_done(struct job *job)
{
	free(job);
}

/* Closing files can wait for the disk as well. */
static void
close_log(struct worker *worker, struct partition *log)
{
	struct closing *c = calloc(1, sizeof(*c));

	if (c == NULL)
		log_fatal(1, "no memory to close a log");
	c->job = (struct job){ run_closing, closing_done, NULL };
	c->log = log;
	jobs_submit(worker->jobs, &c->job);
}

/* ---- A log that is open ---- */

/* Of the jobs that the lane's log still has, these touch what recovery changes. */
static bool
has_writing_jobs(const struct lane *lane)
{
	return lane->commit.running || lane->upkeep_running || lane->retire != NULL;
}

/* The log that has been opened takes its place, when no job is under way that would come back to the other one. */
static void
take_place(struct lane *lane)
{
	const struct log_settings *settings = &lane->topic->log;
	struct partition *failed = lane->log;

	if (lane->opened == NULL || has_writing_jobs(lane) || lane->load != NULL)
		return;
	lane->log = lane->opened;
	lane->opened = NULL;
	if (failed != NULL) {
		partition_take_lingering(lane->log, failed);
		close_log(lane->worker, failed);
	}
	commit_init(&lane->commit, settings->flush_interval_us * CLOCK_NS_PER_US, settings->flush_records,
	    partition_durable_end(lane->log));
	/* What the worker before this one has written and not forced, and nobody knows when: so it is forced next. */
	if (partition_log_end(lane->log) > partition_durable_end(lane->log))
		commit_written(&lane->commit, partition_log_end(lane->log), true, lane->worker->now_ns);
	lane->visible_bytes = partition_visible_bytes(lane->log);
	lane_publish(lane);
	atomic_store_explicit(&lane->slot->state, BOARD_OPEN, memory_order_release);
	atomic_store_explicit(&lane->slot->opened, 1, memory_order_release);
	atomic_store_explicit(&lane->slot->forcing, 0, memory_order_release);
	retain_opened(lane);
}

/* What the log has lost that the board still shows; with it the watermark falls. Returns the bytes of it. */
static int64_t
tell_loss(const struct opening *o)
{
	struct lane *lane = o->lane;
	int64_t end = partition_visible_end(o->opened.partition);
	int64_t log_start, high_watermark, durable_end;

	if (atomic_load_explicit(&lane->slot->opened, memory_order_acquire) == 0)
		return 0;
	board_read(lane->slot, &log_start, &high_watermark, &durable_end);
	if (end >= high_watermark) {
		if (o->known.failed)
			log_info("partition %s: is open again: its log was read from the disk, and nothing of it is lost", lane->name);
		return 0;
	}
	log_error("partition %s: is open again with less: its log was read from the disk and ends at offset %" PRId64 ". Lost: %"
	    PRId64 " record%s, up to offset %" PRId64 ", written but never forced. These offsets are given out again: set consumers "
	    "that stand behind offset %" PRId64 " back to it", lane->name, end, high_watermark - end,
	    high_watermark - end == 1 ? "" : "s", high_watermark - 1, end);
	return board_get(&lane->slot->size_bytes) - partition_size_bytes(o->opened.partition);
}

static void
opened(const struct opening *o)
{
	struct lane *lane = o->lane;
	int64_t lost_bytes = tell_loss(o);

	/* What the disk had of it has been cut and counted as such. */
	if (lost_bytes > o->opened.truncated_bytes)
		board_add(&lane->worker->counters->truncated_bytes, lost_bytes - o->opened.truncated_bytes);
	lane->opened = o->opened.partition;
	backoff_worked(&lane->backoff, lane->worker->now_ns);
	take_place(lane);
}

/* ---- A log that is not ---- */

static void
report_not_yet(struct lane *lane, const char *what, const char *why)
{
	char more[LOG_MORE_BYTES];

	if (log_limit_pass(&lane->opening_limit, (int64_t)REPORT_INTERVAL_S * CLOCK_NS_PER_S, more))
		log_error("partition %s: %s yet: %s; it is tried in %" PRId64 " s%s", lane->name, what, why,
		    lane->backoff.wait_ns / CLOCK_NS_PER_S, more);
}

static void
not_opened(const struct opening *o)
{
	struct lane *lane = o->lane;
	bool failed = o->known.failed || o->opened.failed;

	board_add(&lane->worker->counters->storage_errors[BOARD_OPEN_LOG], 1);
	atomic_store_explicit(&lane->slot->state, failed ? BOARD_FAILED : BOARD_CLOSED, memory_order_release);
	atomic_store_explicit(&lane->slot->forcing, o->was_forcing, memory_order_release);
	if (failed) {
		backoff_failed(&lane->backoff, lane->worker->now_ns);
		report_not_yet(lane, "has failed, and its log cannot be opened again", o->opened.why);
	} else if (o->opened.short_of) {
		backoff_failed(&lane->backoff, lane->worker->now_ns);
		report_not_yet(lane, "its log cannot be opened", o->opened.why);
	} else {
		log_error("partition %s: stays closed: %s", lane->name, o->opened.why);
	}
	if (o->opened.partition == NULL)
		return;
	/* One that can be read meanwhile. */
	if (lane->log == NULL)
		lane->log = o->opened.partition;
	else
		close_log(lane->worker, o->opened.partition);
}

/* ---- The jobs ---- */

/* One of them has ended, or the beginning of them. */
static void
count_down(struct openings *all)
{
	if (--all->outstanding > 0)
		return;
	stop_marker_free(&all->worker->left);
	free(all->worker->handed);
	all->worker->handed = NULL;
	all->done(all->context, all->opened, all->failed);
	free(all);
}

static void
count_opening(struct openings *all, bool open)
{
	if (open)
		all->opened++;
	else
		all->failed++;
	count_down(all);
}

static void
run_opening(struct job *job)
{
	struct opening *o = (struct opening *)job;

	partition_open(o->data_fd, o->lane->name, &o->settings, &o->known, &o->opened);
}

static void
opening_done(struct job *job)
{
	struct opening *o = (struct opening *)job;
	bool open = o->opened.partition != NULL && !partition_failed(o->opened.partition);

	o->lane->opening = false;
	board_add(&o->lane->worker->counters->truncated_bytes, o->opened.truncated_bytes);
	if (open)
		opened(o);
	else
		not_opened(o);
	if (o->all != NULL)
		count_opening(o->all, open);
	free(o);
}

/* See the table in opening.h. */
static struct partition_known
known_of(const struct lane *lane)
{
	struct partition_known known = { .published_end = -1, .stopped = stop_marker_find(&lane->worker->left, lane->name) };
	int64_t high_watermark;

	known.failed = atomic_load_explicit(&lane->slot->state, memory_order_acquire) == BOARD_FAILED;
	known.from_disk = true;
	if (atomic_load_explicit(&lane->slot->opened, memory_order_acquire) == 0)
		return known;
	known.from_disk = known.failed || atomic_load_explicit(&lane->slot->forcing, memory_order_acquire) != 0;
	board_read(lane->slot, &known.log_start, &high_watermark, &known.durable_end);
	known.published_end = known.from_disk ? known.durable_end : high_watermark;
	known.shown_end = high_watermark;
	return known;
}

/*
 * As the worker before this one has released it; not when the log has failed, or another process has begun to open it since and
 * has not told how that ended.
 */
static void
know_released(struct opening *o)
{
	const struct worker *worker = o->lane->worker;
	const struct message_end *end = worker->handed == NULL ? NULL : &worker->handed[o->lane - worker->lanes];

	if (end == NULL || end->slot < 0 || o->known.from_disk)
		return;
	o->released = (struct stop_state){ .base = end->base, .end = end->end, .position = end->position,
		.file_bytes = end->file_bytes, .modified_ns = end->modified_ns };
	o->known.stopped = &o->released;
	o->known.released = true;
}

static void
begin(struct lane *lane, struct openings *all)
{
	const struct log_settings *settings = &lane->topic->log;
	struct opening *o = calloc(1, sizeof(*o));

	if (o == NULL)
		log_fatal(1, "no memory to open partition %s", lane->name);
	o->job = (struct job){ run_opening, opening_done, NULL };
	o->lane = lane;
	o->all = all;
	o->data_fd = lane->worker->data_fd;
	o->settings = (struct partition_settings){
		.record_format = (enum record_format)settings->record_format,
		.segment_bytes = settings->segment_bytes,
		.index_interval_bytes = settings->index_interval_bytes,
		.mapped = settings->write_mode == LOG_WRITE_MAPPED,
		.durable_only = settings->visibility == LOG_VISIBLE_DURABLE,
		.segment_age_ms = settings->segment_age_ms,
		.retention_bytes = settings->retention_bytes,
		.retention_age_ms = settings->retention_age_ms,
	};
	o->known = known_of(lane);
	if (all != NULL)
		know_released(o);
	o->was_forcing = atomic_exchange_explicit(&lane->slot->forcing, 1, memory_order_acq_rel) != 0;
	lane->opening = true;
	jobs_submit(lane->worker->jobs, &o->job);
}

void
opening_begin_all(struct worker *worker, void (*done)(void *context, int32_t opened, int32_t failed), void *context)
{
	struct openings *all = calloc(1, sizeof(*all));

	if (all == NULL)
		log_fatal(1, "no memory to open the logs");
	all->worker = worker;
	all->done = done;
	all->context = context;
	/* Before any log is opened, and with that written: what it says is true of the logs as they are. */
	if (worker->handed == NULL)
		stop_marker_take(&worker->left, worker->data_fd, worker->number, worker->topics.group_count);
	/* One more than there are lanes: the result is told when all have been begun, and also when there is none. */
	all->outstanding = worker->lane_count + 1;
	for (int32_t i = 0; i < worker->lane_count; i++)
		begin(&worker->lanes[i], all);
	count_down(all);
}

void
opening_log_failed(struct lane *lane)
{
	backoff_failed(&lane->backoff, lane->worker->now_ns);
}

void
opening_due(struct worker *worker)
{
	if (worker->stopping || worker->leaving)
		return;
	for (int32_t i = 0; i < worker->lane_count; i++) {
		struct lane *lane = &worker->lanes[i];

		if (lane->opening || has_writing_jobs(lane) || !backoff_due(&lane->backoff, worker->now_ns))
			continue;
		backoff_begun(&lane->backoff);
		begin(lane, NULL);
	}
}

void
opening_job_ended(struct lane *lane)
{
	take_place(lane);
}
