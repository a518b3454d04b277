#include "worker/metadata.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/board.h"
#include "common/topics.h"

/* Marks the topics that are asked for, so that they come sorted and once. Returns false when one is unknown. */
static bool
mark(const struct topics *topics, struct codec_request *request, bool *asked)
{
	if (request->topic_count == 0)
		memset(asked, true, (size_t)topics->count * sizeof(*asked));
	for (int32_t i = 0; i < request->topic_count; i++) {
		const struct topic *topic = topics_find(topics, codec_next_name(request));

		if (topic == NULL)
			return false;
		asked[topic - topics->list] = true;
	}
	return true;
}

static const struct board_partition *
slot_of(const struct worker *worker, const struct topic *topic, int32_t partition)
{
	int32_t group = topics_group(&worker->topics, topic, partition);

	return &worker->boards[group].slots[topics_slot(&worker->topics, topic, partition)];
}

static bool
all_known(const struct worker *worker, const struct topic *topic)
{
	for (int32_t p = 0; p < topic->partition_count; p++)
		if (atomic_load_explicit(&slot_of(worker, topic, p)->opened, memory_order_acquire) == 0)
			return false;
	return true;
}

static uint8_t *
put_topic(uint8_t *to, const struct worker *worker, int16_t version, const struct topic *topic)
{
	to = codec_put_metadata_topic(to, version, topic->name, strlen(topic->name), (int8_t)topic->log.record_format,
	    topic->partition_count);
	for (int32_t p = 0; p < topic->partition_count; p++) {
		int64_t log_start, high_watermark, durable_end;

		board_read(slot_of(worker, topic, p), &log_start, &high_watermark, &durable_end);
		to = codec_put_metadata_partition(to, version, p, log_start, high_watermark,
		    topics_group(&worker->topics, topic, p));
	}
	return to;
}

static enum codec_error
measure(const struct worker *worker, int16_t version, const bool *asked, size_t *bytes, int32_t *count)
{
	*bytes = codec_metadata_head_bytes();
	*count = 0;
	for (int32_t i = 0; i < worker->topics.count; i++) {
		const struct topic *topic = &worker->topics.list[i];

		if (!asked[i])
			continue;
		if (!all_known(worker, topic))
			return CODEC_STORAGE_FAILURE;
		*bytes += codec_metadata_topic_bytes(version, strlen(topic->name), topic->partition_count);
		++*count;
	}
	return CODEC_NONE;
}

/* Returns the error to answer with; on CODEC_NONE the answer stands in the output. */
static enum codec_error
answer(struct worker *worker, struct conn *conn, struct codec_request *request, bool *asked)
{
	enum codec_error error;
	int32_t count;
	size_t bytes;
	uint8_t *to;

	if (!mark(&worker->topics, request, asked))
		return CODEC_UNKNOWN_TOPIC_OR_PARTITION;
	error = measure(worker, request->api_version, asked, &bytes, &count);
	if (error != CODEC_NONE)
		return error;
	to = output_reserve(conn_output(conn), bytes);
	if (to == NULL) {
		conn_abort(conn);
		return CODEC_NONE;
	}
	to = codec_put_metadata_head(to, request->correlation_id, bytes, count);
	for (int32_t i = 0; i < worker->topics.count; i++)
		if (asked[i])
			to = put_topic(to, worker, request->api_version, &worker->topics.list[i]);
	output_put(conn_output(conn), bytes);
	return CODEC_NONE;
}

void
metadata_execute(struct worker *worker, struct conn *conn, struct codec_request *request)
{
	bool *asked = calloc((size_t)worker->topics.count, sizeof(*asked));
	enum codec_error error;

	if (asked == NULL) {
		conn_abort(conn);
		return;
	}
	error = answer(worker, conn, request, asked);
	free(asked);
	if (error != CODEC_NONE)
		conn_put_error(conn, request->correlation_id, error);
	conn_count(worker, BOARD_METADATA, error);
}
