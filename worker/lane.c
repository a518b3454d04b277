#include "worker/lane.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "worker/retain.h"

enum { REPORT_INTERVAL_S = 10 };

/* Opening one lane's log: recovery waits for the disk, so it is a job. */
struct opening {
	struct job job;
	struct lane *lane;
	struct partition_settings settings;
	int data_fd;
	struct partition_known known;
	struct partition_opened opened;
	struct openings *all;
};

struct openings {
	void (*done)(void *context, int32_t opened, int32_t failed);
	void *context;
	int32_t outstanding, opened, failed;
};

void
reply_queue_append(struct reply_queue *queue, struct reply *reply)
{
	reply->next = NULL;
	if (queue->last == NULL)
		queue->first = reply;
	else
		queue->last->next = reply;
	queue->last = reply;
}

struct reply *
reply_queue_pop(struct reply_queue *queue)
{
	struct reply *reply = queue->first;

	if (reply == NULL)
		return NULL;
	queue->first = reply->next;
	if (queue->first == NULL)
		queue->last = NULL;
	return reply;
}

static void
create(struct worker *worker, const struct topic *topic, int32_t partition)
{
	int32_t slot = topics_slot(&worker->topics, topic, partition);
	struct lane *lane = &worker->lanes[slot];

	lane->worker = worker;
	lane->topic = topic;
	lane->number = partition;
	lane->slot = &worker->boards[worker->number].slots[slot];
	topics_directory(topic, partition, lane->name);
}

int
lane_create_all(struct worker *worker)
{
	const struct topics *topics = &worker->topics;

	worker->lane_count = topics->slot_counts[worker->number];
	worker->lanes = calloc((size_t)worker->lane_count + 1, sizeof(*worker->lanes));
	if (worker->lanes == NULL)
		return -1;
	for (int32_t t = 0; t < topics->count; t++)
		for (int32_t p = 0; p < topics->list[t].partition_count; p++)
			if (topics_group(topics, &topics->list[t], p) == worker->number)
				create(worker, &topics->list[t], p);
	return 0;
}

void
lane_free_all(struct worker *worker)
{
	for (int32_t i = 0; i < worker->lane_count; i++) {
		partition_close(worker->lanes[i].log);
		free(worker->lanes[i].staged);
	}
	free(worker->lanes);
	worker->lanes = NULL;
	worker->lane_count = 0;
}

void
lane_publish(struct lane *lane)
{
	board_publish(lane->slot, partition_log_start(lane->log), partition_visible_end(lane->log),
	    partition_durable_end(lane->log));
	board_set(&lane->slot->size_bytes, partition_size_bytes(lane->log));
	board_set(&lane->slot->segments, partition_segments(lane->log));
	board_set(&lane->slot->unsynced_bytes, partition_unforced_bytes(lane->log));
}

void
lane_report(struct lane *lane, enum board_operation operation, int error, const char *what)
{
	char more[LOG_MORE_BYTES];

	board_add(&lane->worker->counters->storage_errors[operation], 1);
	if (log_limit_pass(&lane->log_limits[operation], (int64_t)REPORT_INTERVAL_S * CLOCK_NS_PER_S, more))
		log_error("partition %s: %s: %s%s", lane->name, what, strerror(error), more);
}

static void
run_opening(struct job *job)
{
	struct opening *o = (struct opening *)job;

	partition_open(o->data_fd, o->lane->name, &o->settings, &o->known, &o->opened);
}

static void
adopt(struct lane *lane, const struct partition_opened *opened)
{
	const struct log_settings *settings = &lane->topic->log;

	lane->log = opened->partition;
	commit_init(&lane->commit, settings->flush_interval_us * CLOCK_NS_PER_US, settings->flush_records,
	    partition_log_end(lane->log));
	lane->visible_bytes = partition_visible_bytes(lane->log);
	lane_publish(lane);
	atomic_store_explicit(&lane->slot->state, BOARD_OPEN, memory_order_release);
	atomic_store_explicit(&lane->slot->opened, 1, memory_order_release);
	retain_opened(lane);
}

/* With `state` BOARD_FAILED no later start of this worker tries again, since a retried force proves nothing. */
static void
stay_closed(struct lane *lane, enum board_partition_state state, const char *why)
{
	board_add(&lane->worker->counters->storage_errors[BOARD_OPEN_LOG], 1);
	atomic_store_explicit(&lane->slot->state, state, memory_order_release);
	log_error("partition %s: stays closed: %s", lane->name, why);
}

static void
count_opening(struct openings *all, bool opened)
{
	if (opened)
		all->opened++;
	else
		all->failed++;
	if (--all->outstanding > 0)
		return;
	all->done(all->context, all->opened, all->failed);
	free(all);
}

static void
opening_done(struct job *job)
{
	struct opening *o = (struct opening *)job;
	struct worker *worker = o->lane->worker;

	board_add(&worker->counters->truncated_bytes, o->opened.truncated_bytes);
	if (o->opened.partition != NULL)
		adopt(o->lane, &o->opened);
	else
		stay_closed(o->lane, o->opened.failed ? BOARD_FAILED : BOARD_CLOSED, o->opened.why);
	count_opening(o->all, o->opened.partition != NULL);
	free(o);
}

/* What had been published since the machine's page cache was last lost must come back, and what had been retired must not. */
static struct partition_known
known_of(const struct lane *lane)
{
	struct partition_known known = { .published_end = -1 };
	int64_t durable_end;

	if (atomic_load_explicit(&lane->slot->opened, memory_order_acquire) != 0)
		board_read(lane->slot, &known.log_start, &known.published_end, &durable_end);
	return known;
}

static void
open_lane(struct lane *lane, struct openings *all)
{
	const struct log_settings *settings = &lane->topic->log;
	struct opening *o;

	/* After a failed force the page cache shows what the disk may not have: this process cannot tell what is true. */
	if (atomic_load_explicit(&lane->slot->state, memory_order_acquire) == BOARD_FAILED) {
		stay_closed(lane, BOARD_FAILED, "a barrier has failed since the broker was started; check the disk and its log, "
		    "then restart the machine or remount the file system, so that the log is read from the disk again");
		count_opening(all, false);
		return;
	}
	o = calloc(1, sizeof(*o));
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
	jobs_submit(lane->worker->jobs, &o->job);
}

void
lane_open_all(struct worker *worker, void (*done)(void *context, int32_t opened, int32_t failed), void *context)
{
	struct openings *all = calloc(1, sizeof(*all));

	if (all == NULL)
		log_fatal(1, "no memory to open the logs");
	all->done = done;
	all->context = context;
	/* One more than there are lanes: the result is told when all have been begun, and also when there is none. */
	all->outstanding = worker->lane_count + 1;
	for (int32_t i = 0; i < worker->lane_count; i++)
		open_lane(&worker->lanes[i], all);
	if (--all->outstanding == 0) {
		done(context, all->opened, all->failed);
		free(all);
	}
}
