/*
 * Requests and answers as bytes, from the client's side.
 */
#include "client/wire.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/record.h"

static uint8_t *
put_header(uint8_t *to, enum codec_api api, int16_t version, size_t frame_bytes)
{
	to = bytes_put_i32(to, (int32_t)(frame_bytes - CODEC_LENGTH_BYTES));
	to = bytes_put_i16(to, (int16_t)api);
	to = bytes_put_i16(to, version);
	return bytes_put_i32(to, 0);	/* client_send writes the correlation id */
}

static uint8_t *
put_name(uint8_t *to, const char *name)
{
	size_t length = strlen(name);

	to = bytes_put_u16(to, (uint16_t)length);
	memcpy(to, name, length);
	return to + length;
}

size_t
wire_produce_head_bytes(size_t name_length)
{
	return CODEC_LENGTH_BYTES + CODEC_REQUEST_HEADER_BYTES + 2 + name_length + 4 + 1 + 4;
}

void
wire_put_produce_head(uint8_t *to, const char *topic, int32_t partition, enum codec_ack ack, int32_t record_count,
    size_t frame_bytes)
{
	to = put_header(to, CODEC_PRODUCE, 1, frame_bytes);
	to = put_name(to, topic);
	to = bytes_put_i32(to, partition);
	*to++ = (uint8_t)ack;
	bytes_put_i32(to, record_count);
}

size_t
wire_put_fetch(uint8_t *to, const struct wire_fetch *fetch)
{
	size_t bytes = CODEC_LENGTH_BYTES + CODEC_REQUEST_HEADER_BYTES + 2 + strlen(fetch->topic) + 4 + 8 + 4 +
	    (fetch->held ? 8 : 0);

	to = put_header(to, CODEC_FETCH, fetch->held ? 2 : 1, bytes);
	to = put_name(to, fetch->topic);
	to = bytes_put_i32(to, fetch->partition);
	to = bytes_put_i64(to, fetch->offset);
	to = bytes_put_i32(to, fetch->max_bytes);
	if (fetch->held) {
		to = bytes_put_i32(to, fetch->max_wait_ms);
		bytes_put_i32(to, fetch->min_bytes);
	}
	return bytes;
}

int
wire_read_produced(const struct client_answer *answer, int32_t record_count, struct wire_produced *produced)
{
	struct bytes_reader r = { answer->body, answer->body_bytes, false };

	produced->base_offset = bytes_take_i64(&r);
	produced->log_end_offset = bytes_take_i64(&r);
	if (r.bad || r.left != 0 || produced->base_offset < 0 || produced->log_end_offset < 0)
		return -1;
	return produced->log_end_offset - record_count < produced->base_offset ? -1 : 0;
}

int
wire_read_fetched(const struct client_answer *answer, int32_t max_bytes, struct wire_fetched *fetched)
{
	struct bytes_reader r = { answer->body, answer->body_bytes, false };
	int32_t payload_bytes;

	fetched->high_watermark = bytes_take_i64(&r);
	payload_bytes = bytes_take_i32(&r);
	if (r.bad || fetched->high_watermark < 0 || payload_bytes < 0 || payload_bytes > max_bytes)
		return -1;
	if ((size_t)payload_bytes != r.left)
		return -1;
	fetched->payload = r.next;
	fetched->payload_bytes = r.left;
	return 0;
}

static int
read_partition(struct bytes_reader *r, int16_t version, int32_t number, struct wire_partition *partition)
{
	int32_t id = bytes_take_i32(r);

	partition->log_start = bytes_take_i64(r);
	partition->high_watermark = bytes_take_i64(r);
	partition->group = version == 2 ? bytes_take_i32(r) : -1;
	if (r->bad || id != number)
		return -1;
	return partition->log_start < 0 || partition->log_start > partition->high_watermark ? -1 : 0;
}

static int
read_topic_head(struct bytes_reader *r, int16_t version, struct wire_topic *topic)
{
	size_t partition_bytes = version == 2 ? 24 : 20;
	size_t length = bytes_take_u16(r);
	const uint8_t *name = bytes_take(r, length);

	topic->record_format = version == 2 ? bytes_take_i8(r) : RECORD_CRC32C;
	topic->partition_count = bytes_take_i32(r);
	if (r->bad || !codec_topic_name_valid((const char *)name, length))
		return -1;
	if (topic->record_format != RECORD_PLAIN && topic->record_format != RECORD_CRC32C)
		return -1;
	if (topic->partition_count < 1 || (size_t)topic->partition_count > r->left / partition_bytes)
		return -1;
	memcpy(topic->name, name, length);
	return 0;
}

static int
read_topic(struct bytes_reader *r, int16_t version, struct wire_topic *topic)
{
	if (read_topic_head(r, version, topic) != 0)
		return -1;
	topic->partitions = calloc((size_t)topic->partition_count, sizeof(*topic->partitions));
	if (topic->partitions == NULL)
		return -1;
	for (int32_t i = 0; i < topic->partition_count; i++) {
		if (read_partition(r, version, i, &topic->partitions[i]) != 0)
			return -1;
	}
	return 0;
}

/* The least a topic can take: a name of one character and one partition. */
static size_t
topic_min_bytes(int16_t version)
{
	return version == 2 ? 2 + 1 + 1 + 4 + 24 : 2 + 1 + 4 + 20;
}

static int
read_metadata(const struct client_answer *answer, int16_t version, struct wire_metadata *metadata)
{
	struct bytes_reader r = { answer->body, answer->body_bytes, false };
	int32_t count = bytes_take_i32(&r);

	if (r.bad || count < 0 || (size_t)count > r.left / topic_min_bytes(version))
		return -1;
	metadata->topics = calloc((size_t)count + 1, sizeof(*metadata->topics));
	if (metadata->topics == NULL)
		return -1;
	metadata->topic_count = count;
	for (int32_t i = 0; i < count; i++) {
		if (read_topic(&r, version, &metadata->topics[i]) != 0)
			return -1;
	}
	return r.left == 0 ? 0 : -1;
}

void
wire_free_metadata(struct wire_metadata *metadata)
{
	for (int32_t i = 0; i < metadata->topic_count; i++)
		free(metadata->topics[i].partitions);
	free(metadata->topics);
	*metadata = (struct wire_metadata){ 0 };
}

static uint8_t *
metadata_request(const char *const *names, int32_t count, int16_t version, size_t *bytes)
{
	uint8_t *frame, *to;

	*bytes = CODEC_LENGTH_BYTES + CODEC_REQUEST_HEADER_BYTES + 4;
	for (int32_t i = 0; i < count; i++)
		*bytes += 2 + strlen(names[i]);
	frame = malloc(*bytes);
	if (frame == NULL)
		return NULL;
	to = put_header(frame, CODEC_METADATA, version, *bytes);
	to = bytes_put_i32(to, count);
	for (int32_t i = 0; i < count; i++)
		to = put_name(to, names[i]);
	return frame;
}

const struct wire_topic *
wire_find_topic(const struct wire_metadata *metadata, const char *name)
{
	for (int32_t i = 0; i < metadata->topic_count; i++) {
		if (strcmp(metadata->topics[i].name, name) == 0)
			return &metadata->topics[i];
	}
	return NULL;
}

/* One question in one version. */
static enum client_status
ask(struct client *client, const char *const *names, int32_t count, int16_t version, int64_t deadline_ns,
    struct wire_metadata *metadata, int16_t *error)
{
	struct client_answer answer;
	size_t bytes;
	uint8_t *frame = metadata_request(names, count, version, &bytes);
	enum client_status status;

	if (frame == NULL)
		return CLIENT_NO_MEMORY;
	status = client_send(client, frame, bytes, true, deadline_ns);
	free(frame);
	if (status == CLIENT_OK)
		status = client_receive(client, &answer, deadline_ns);
	if (status == CLIENT_REFUSED)
		*error = answer.error;
	if (status != CLIENT_OK)
		return status;
	if (read_metadata(&answer, version, metadata) != 0)
		status = client_break(client, "a METADATA answer that cannot be read");
	for (int32_t i = 0; i < count && status == CLIENT_OK; i++) {
		if (wire_find_topic(metadata, names[i]) == NULL)
			status = client_break(client, "a METADATA answer without a topic that was asked for");
	}
	if (status != CLIENT_OK)
		wire_free_metadata(metadata);
	return status;
}

enum client_status
wire_ask_metadata(struct client *client, const char *const *names, int32_t count, int64_t deadline_ns,
    struct wire_metadata *metadata, int16_t *error)
{
	enum client_status status;

	*metadata = (struct wire_metadata){ 0 };
	*error = CODEC_NONE;
	status = ask(client, names, count, 2, deadline_ns, metadata, error);
	if (status == CLIENT_REFUSED && *error == CODEC_UNSUPPORTED_VERSION)
		status = ask(client, names, count, 1, deadline_ns, metadata, error);
	return status;
}
