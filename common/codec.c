/* Requests and answers as bytes; the drawing is in codec.h. Owns every length check of the wire. */
#include "common/codec.h"

#include <string.h>

#include "common/bytes.h"

enum { METADATA_HEAD_BYTES = 4 + 6 + 4 };

static bool
version_supported(int16_t api_key, int16_t api_version)
{
	switch (api_key) {
	case CODEC_PRODUCE:
		return api_version == 1;
	case CODEC_FETCH:
	case CODEC_METADATA:
		return api_version == 1 || api_version == 2;
	default:
		return false;
	}
}

static struct codec_name
take_name(struct bytes_reader *r)
{
	size_t length = bytes_take_u16(r);
	const uint8_t *bytes = bytes_take(r, length);
	struct codec_name name = { (const char *)bytes, length };

	if (bytes == NULL || !codec_topic_name_valid(name.bytes, length))
		r->bad = true;
	return name;
}

static void
take_topic_and_partition(struct bytes_reader *r, struct codec_request *request)
{
	request->topic = take_name(r);
	request->partition = bytes_take_i32(r);
	if (request->partition < 0)
		r->bad = true;
}

static void
check_records(struct bytes_reader *r, struct codec_request *request)
{
	request->records = r->next;
	request->records_bytes = r->left;
	request->largest_payload = 0;
	for (int32_t i = 0; i < request->record_count && !r->bad; i++) {
		int32_t size = bytes_take_i32(r);

		if (size < 1)
			r->bad = true;
		else if (bytes_take(r, (size_t)size) != NULL && size > request->largest_payload)
			request->largest_payload = size;
	}
}

static void
parse_produce(struct bytes_reader *r, struct codec_request *request)
{
	take_topic_and_partition(r, request);
	request->ack = bytes_take_i8(r);
	request->record_count = bytes_take_i32(r);
	if (request->ack < CODEC_ACK_NONE || request->ack > CODEC_ACK_FORCED ||
	    request->record_count < 1 || (size_t)request->record_count > r->left / 5)
		r->bad = true;
	if (!r->bad)
		check_records(r, request);
}

static void
parse_fetch(struct bytes_reader *r, struct codec_request *request)
{
	take_topic_and_partition(r, request);
	request->fetch_offset = bytes_take_i64(r);
	request->max_bytes = bytes_take_i32(r);
	request->max_wait_ms = request->api_version >= 2 ? bytes_take_i32(r) : 0;
	request->min_bytes = request->api_version >= 2 ? bytes_take_i32(r) : 0;
	if (request->fetch_offset < 0 || request->max_bytes < 1 || request->max_wait_ms < 0 ||
	    request->min_bytes < 0 || request->min_bytes > request->max_bytes)
		r->bad = true;
}

static void
parse_metadata(struct bytes_reader *r, struct codec_request *request)
{
	request->topic_count = bytes_take_i32(r);
	/* A name takes at least three bytes: its length and one character. */
	if (request->topic_count < 0 || (size_t)request->topic_count > r->left / 3)
		r->bad = true;
	request->names = r->next;
	for (int32_t i = 0; i < request->topic_count && !r->bad; i++)
		take_name(r);
}

/* A PRODUCE v1 with a 0 where its ack byte stands gets no answer, whatever else is wrong with it. */
static bool
is_silent(const uint8_t *body, size_t bytes)
{
	struct bytes_reader r = { body, bytes, false };
	int8_t ack;

	bytes_take(&r, bytes_take_u16(&r));
	bytes_take_i32(&r);
	ack = bytes_take_i8(&r);
	return !r.bad && ack == CODEC_ACK_NONE;
}

enum codec_error
codec_parse_request(const uint8_t *frame, size_t bytes, struct codec_request *request)
{
	struct bytes_reader r = { frame, bytes, false };

	/* A refusal copies some of it: nothing may be indeterminate. */
	*request = (struct codec_request){ .silent = false };
	request->api_key = bytes_take_i16(&r);
	request->api_version = bytes_take_i16(&r);
	request->correlation_id = bytes_take_i32(&r);
	if (r.bad) {
		request->api_key = 0;
		request->correlation_id = 0;
		return CODEC_CORRUPT_REQUEST;
	}
	if (!version_supported(request->api_key, request->api_version))
		return CODEC_UNSUPPORTED_VERSION;
	if (request->api_key == CODEC_PRODUCE) {
		request->silent = is_silent(r.next, r.left);
		parse_produce(&r, request);
	} else if (request->api_key == CODEC_FETCH) {
		parse_fetch(&r, request);
	} else {
		parse_metadata(&r, request);
	}
	return r.bad || r.left > 0 ? CODEC_CORRUPT_REQUEST : CODEC_NONE;
}

struct codec_name
codec_next_name(struct codec_request *request)
{
	struct codec_name name;

	name.length = bytes_get_u16(request->names);
	name.bytes = (const char *)request->names + 2;
	request->names += 2 + name.length;
	return name;
}

enum codec_route
codec_route(const uint8_t *data, size_t available, struct codec_name *topic, int32_t *partition)
{
	struct bytes_reader r = { data, available, false };
	int32_t length = bytes_take_i32(&r);
	bool whole;
	int16_t api_key, api_version;

	if (r.bad)
		return CODEC_ROUTE_MORE;
	whole = r.left >= (size_t)length;
	if (whole)
		r.left = (size_t)length;
	api_key = bytes_take_i16(&r);
	api_version = bytes_take_i16(&r);
	bytes_take_i32(&r);
	if (r.bad)
		return whole ? CODEC_ROUTE_ANYWHERE : CODEC_ROUTE_MORE;
	if (!version_supported(api_key, api_version) || api_key == CODEC_METADATA)
		return CODEC_ROUTE_ANYWHERE;
	topic->length = bytes_take_u16(&r);
	if (!r.bad && topic->length > CODEC_TOPIC_NAME_MAX)
		return CODEC_ROUTE_ANYWHERE;
	topic->bytes = (const char *)bytes_take(&r, topic->length);
	*partition = bytes_take_i32(&r);
	if (r.bad)
		return whole ? CODEC_ROUTE_ANYWHERE : CODEC_ROUTE_MORE;
	return CODEC_ROUTE_PARTITION;
}

static uint8_t *
put_head(uint8_t *to, size_t body_bytes, int32_t correlation_id, enum codec_error error)
{
	to = bytes_put_i32(to, (int32_t)(6 + body_bytes));
	to = bytes_put_i32(to, correlation_id);
	return bytes_put_i16(to, (int16_t)error);
}

uint8_t *
codec_put_error(uint8_t *to, int32_t correlation_id, enum codec_error error)
{
	return put_head(to, 0, correlation_id, error);
}

uint8_t *
codec_put_produce_answer(uint8_t *to, int32_t correlation_id, int64_t base_offset, int64_t log_end_offset)
{
	to = put_head(to, 16, correlation_id, CODEC_NONE);
	to = bytes_put_i64(to, base_offset);
	return bytes_put_i64(to, log_end_offset);
}

uint8_t *
codec_put_fetch_answer(uint8_t *to, int32_t correlation_id, int64_t high_watermark, int32_t payload_bytes)
{
	to = put_head(to, 12 + (size_t)payload_bytes, correlation_id, CODEC_NONE);
	to = bytes_put_i64(to, high_watermark);
	return bytes_put_i32(to, payload_bytes);
}

uint8_t *
codec_put_fetch_request(uint8_t *to, const struct codec_request *request)
{
	size_t body_bytes = 2 + request->topic.length + 4 + 8 + 4 + 4 + 4;

	to = bytes_put_i32(to, (int32_t)(CODEC_REQUEST_HEADER_BYTES + body_bytes));
	to = bytes_put_i16(to, CODEC_FETCH);
	to = bytes_put_i16(to, 2);
	to = bytes_put_i32(to, request->correlation_id);
	to = bytes_put_u16(to, (uint16_t)request->topic.length);
	memcpy(to, request->topic.bytes, request->topic.length);
	to = bytes_put_i32(to + request->topic.length, request->partition);
	to = bytes_put_i64(to, request->fetch_offset);
	to = bytes_put_i32(to, request->max_bytes);
	to = bytes_put_i32(to, request->max_wait_ms);
	return bytes_put_i32(to, request->min_bytes);
}

size_t
codec_metadata_head_bytes(void)
{
	return METADATA_HEAD_BYTES;
}

size_t
codec_metadata_topic_bytes(int16_t version, size_t name_length, int32_t partition_count)
{
	size_t partition_bytes = version >= 2 ? 24 : 20;

	return 2 + name_length + (version >= 2 ? 1 : 0) + 4 + (size_t)partition_count * partition_bytes;
}

uint8_t *
codec_put_metadata_head(uint8_t *to, int32_t correlation_id, size_t whole_bytes, int32_t topic_count)
{
	to = put_head(to, whole_bytes - CODEC_ERROR_ANSWER_BYTES, correlation_id, CODEC_NONE);
	return bytes_put_i32(to, topic_count);
}

uint8_t *
codec_put_metadata_topic(uint8_t *to, int16_t version, const char *name, size_t name_length, int8_t record_format,
    int32_t partition_count)
{
	to = bytes_put_u16(to, (uint16_t)name_length);
	memcpy(to, name, name_length);
	to += name_length;
	if (version >= 2)
		*to++ = (uint8_t)record_format;
	return bytes_put_i32(to, partition_count);
}

uint8_t *
codec_put_metadata_partition(uint8_t *to, int16_t version, int32_t partition, int64_t log_start,
    int64_t high_watermark, int32_t group)
{
	to = bytes_put_i32(to, partition);
	to = bytes_put_i64(to, log_start);
	to = bytes_put_i64(to, high_watermark);
	return version >= 2 ? bytes_put_i32(to, group) : to;
}
