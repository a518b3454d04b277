#include "worker/lane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker/syscalls.h"

enum { REPORT_INTERVAL_S = 10 };

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

/* A log that has failed, or could not be opened, is not spoken of: the next start has to look at it. */
void
lane_leave_all(struct worker *worker)
{
	struct stop_entry *entries = calloc((size_t)worker->lane_count + 1, sizeof(*entries));
	size_t count = 0;

	for (int32_t i = 0; entries != NULL && i < worker->lane_count; i++) {
		struct lane *lane = &worker->lanes[i];

		if (lane->log == NULL || partition_leave(lane->log, &entries[count].state) != 0)
			continue;
		entries[count++].name = lane->name;
	}
	if (entries == NULL || stop_marker_leave(worker->data_fd, worker->number, entries, count) != 0)
		log_warning("cannot leave word of this stop in the data directory: %s; the next start takes longer", strerror(errno));
	free(entries);
}

int32_t
lane_release_all(struct worker *worker, struct message_end *ends)
{
	struct stop_state state;
	int32_t count = 0;

	for (int32_t i = 0; i < worker->lane_count; i++) {
		struct lane *lane = &worker->lanes[i];

		if (lane->log == NULL || partition_release(lane->log, &state) != 0)
			continue;
		ends[count++] = (struct message_end){ .slot = i, .base = state.base, .end = state.end, .position = state.position,
			.file_bytes = state.file_bytes, .modified_ns = state.modified_ns };
	}
	return count;
}

void
lane_free_all(struct worker *worker)
{
	for (int32_t i = 0; i < worker->lane_count; i++) {
		partition_close(worker->lanes[i].log);
		partition_close(worker->lanes[i].opened);
		free(worker->lanes[i].staged);
	}
	free(worker->lanes);
	worker->lanes = NULL;
	worker->lane_count = 0;
}

/* What must outlast a power cut goes by way of the table: a test can only tell of the moment. The watermark goes first. */
void
lane_publish(struct lane *lane)
{
	syscalls.publish(&lane->slot->high_watermark, partition_visible_end(lane->log));
	syscalls.publish_durable(&lane->slot->durable_end, partition_durable_end(lane->log));
	board_publish(lane->slot, partition_log_start(lane->log), partition_visible_end(lane->log),
	    partition_durable_end(lane->log));
	board_set(&lane->slot->size_bytes, partition_size_bytes(lane->log));
	board_set(&lane->slot->segments, partition_segments(lane->log));
	board_set(&lane->slot->unsynced_bytes, partition_unforced_bytes(lane->log));
}

void
lane_count_error(struct lane *lane, enum board_operation operation)
{
	board_add(&lane->worker->counters->storage_errors[operation], 1);
}

void
lane_report(struct lane *lane, enum board_operation operation, int error, const char *what)
{
	char more[LOG_MORE_BYTES];

	lane_count_error(lane, operation);
	if (log_limit_pass(&lane->log_limits[operation], (int64_t)REPORT_INTERVAL_S * CLOCK_NS_PER_S, more))
		log_error("partition %s: %s: %s%s", lane->name, what, strerror(error), more);
}
