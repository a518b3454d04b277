/*
 * The wire protocol's requests and answers as bytes, and nothing else: no sockets, no storage, no topics.
 * All integers are big-endian and signed unless written u16.
 *
 *   request  = int32 length | int16 apiKey | int16 apiVersion | int32 correlationId | body
 *   response = int32 length | int32 correlationId | int16 errorCode | body      (length counts what is behind it)
 *
 *   PRODUCE v1   u16 nameLength | name | int32 partition | int8 ack | int32 recordCount
 *                recordCount x ( int32 payloadSize | payload )
 *   answer       int64 baseOffset | int64 logEndOffset
 *
 *   FETCH v1     u16 nameLength | name | int32 partition | int64 fetchOffset | int32 maxBytes
 *   FETCH v2     v1 | int32 maxWaitMillis | int32 minBytes
 *   answer       int64 highWatermark | int32 payloadBytes | payload
 *
 *   METADATA     int32 topicCount | topicCount x ( u16 nameLength | name )          0 topics = all
 *   answer       int32 topicCount | topicCount x ( u16 nameLength | name | [v2: int8 recordFormat] |
 *                int32 partitionCount | partitionCount x ( int32 partition | int64 logStartOffset |
 *                int64 highWatermark | [v2: int32 group] ) )
 *
 * An answer with an error code other than 0 ends behind it. "Frame" below is what stands behind the length word.
 *
 * What a client must know besides (acks, error codes and limits are the enums below):
 *  - Answers come in the order of the requests, on each connection; PRODUCE with ack NONE has none, not even an error.
 *  - After an error the connection goes on. Only a length below 1 or above max_frame_bytes closes it.
 *  - PRODUCE is appended as a whole, with consecutive offsets, or refused as a whole. Empty payloads are CORRUPT_REQUEST.
 *  - FETCH: fetchOffset >= 0, maxBytes >= 1, maxWaitMillis >= 0, 0 <= minBytes <= maxBytes, else CORRUPT_REQUEST. A wait
 *    is cut to max_fetch_wait, maxBytes to CODEC_FETCH_PAYLOAD_MAX. At fetchOffset = highWatermark the answer is empty (or
 *    held); above it, or below the log's start, it is OFFSET_OUT_OF_RANGE.
 *  - The payload begins exactly with record fetchOffset, as on disk (common/record.h), and may end inside a record: drop
 *    the rest and ask again from there. Not one whole record in it: that record is larger than maxBytes, its length says
 *    how large; the same request again would give the same.
 *  - METADATA v2 adds what a topic's records look like (recordFormat: 0 plain, 1 crc32c) and each partition's worker. One
 *    unknown name refuses all; one partition that was never opened is STORAGE_FAILURE for its topic.
 */
#ifndef COMMON_CODEC_H
#define COMMON_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum codec_api {
	CODEC_PRODUCE = 1,
	CODEC_FETCH = 2,
	CODEC_METADATA = 3,
};

enum codec_error {
	CODEC_NONE = 0,
	CODEC_UNKNOWN_TOPIC_OR_PARTITION = 1,
	CODEC_OFFSET_OUT_OF_RANGE = 2,
	CODEC_RECORD_TOO_LARGE = 3,
	CODEC_UNSUPPORTED_VERSION = 4,
	CODEC_CORRUPT_REQUEST = 5,
	CODEC_STORAGE_FAILURE = 6,
	CODEC_ERROR_COUNT
};

enum codec_ack {
	CODEC_ACK_NONE = 0,
	CODEC_ACK_WRITTEN = 1,
	CODEC_ACK_FORCED = 2,
};

enum {
	CODEC_LENGTH_BYTES = 4,
	CODEC_REQUEST_HEADER_BYTES = 8,		/* apiKey, apiVersion, correlationId */
	CODEC_TOPIC_NAME_MAX = 249,
	/* Topic and partition of any request stand within this many bytes, the length word included. */
	CODEC_ROUTE_MAX_BYTES = 4 + 8 + 2 + CODEC_TOPIC_NAME_MAX + 4,
	CODEC_ERROR_ANSWER_BYTES = 4 + 6,
	CODEC_PRODUCE_ANSWER_BYTES = 4 + 6 + 16,
	CODEC_FETCH_ANSWER_HEADER_BYTES = 4 + 6 + 12,
	CODEC_FETCH_REQUEST_MAX_BYTES = CODEC_ROUTE_MAX_BYTES + 8 + 4 + 4 + 4,
	CODEC_ANSWER_MAX_BYTES = 8 * 1024 * 1024,	/* the largest `length` that every client accepts */
	CODEC_FETCH_PAYLOAD_MAX = CODEC_ANSWER_MAX_BYTES - (CODEC_FETCH_ANSWER_HEADER_BYTES - 4),
};

/* A view into the frame; not terminated. */
struct codec_name {
	const char *bytes;
	size_t length;
};

struct codec_request {
	int16_t api_key;
	int16_t api_version;
	int32_t correlation_id;	/* 0 when the header is not whole */
	bool silent;		/* PRODUCE with ack NONE: no answer ever, a refusal neither */

	struct codec_name topic;	/* PRODUCE, FETCH */
	int32_t partition;		/* PRODUCE, FETCH */

	int8_t ack;			/* PRODUCE: enum codec_ack */
	int32_t record_count;		/* PRODUCE */
	int32_t largest_payload;	/* PRODUCE */
	const uint8_t *records;		/* PRODUCE: record_count x ( int32 payloadSize | payload ), checked */
	size_t records_bytes;		/* PRODUCE */

	int64_t fetch_offset;		/* FETCH */
	int32_t max_bytes;		/* FETCH */
	int32_t max_wait_ms;		/* FETCH v2, else 0 */
	int32_t min_bytes;		/* FETCH v2, else 0 */

	int32_t topic_count;		/* METADATA: 0 = all */
	const uint8_t *names;		/* METADATA: what codec_next_name reads next */
};

/*
 * Reads a whole frame of `bytes` bytes. Returns CODEC_NONE, CODEC_UNSUPPORTED_VERSION or CODEC_CORRUPT_REQUEST;
 * correlation_id and silent are right in every case, the rest only with CODEC_NONE. Views point into the frame.
 */
enum codec_error codec_parse_request(const uint8_t *frame, size_t bytes, struct codec_request *request);

/* The next of the names of a METADATA request that codec_parse_request has accepted; at most topic_count calls. */
struct codec_name codec_next_name(struct codec_request *request);

enum codec_route {
	CODEC_ROUTE_MORE,	/* too few bytes to tell */
	CODEC_ROUTE_ANYWHERE,	/* any worker can answer: METADATA, or a frame that will be refused */
	CODEC_ROUTE_PARTITION,	/* topic and partition are known */
};

/*
 * Who must execute the request whose length word begins at `data`, of which `available` bytes are there? Decided as
 * soon as topic and partition have arrived, long before a large frame is complete. The length itself has been
 * checked by the caller.
 */
enum codec_route codec_route(const uint8_t *data, size_t available, struct codec_name *topic, int32_t *partition);

/* Answers: each writes its bytes, the length word included, at `to` and returns the byte behind. */
uint8_t *codec_put_error(uint8_t *to, int32_t correlation_id, enum codec_error error);
uint8_t *codec_put_produce_answer(uint8_t *to, int32_t correlation_id, int64_t base_offset, int64_t log_end_offset);
/* The payload of `payload_bytes` follows by other means. */
uint8_t *codec_put_fetch_answer(uint8_t *to, int32_t correlation_id, int64_t high_watermark, int32_t payload_bytes);

/*
 * The FETCH v2 request that this is (topic, partition, correlation id, fetch_offset, max_bytes, max_wait_ms, min_bytes), as
 * a client would send it: at most CODEC_FETCH_REQUEST_MAX_BYTES. For a request that is handed on after it was read.
 */
uint8_t *codec_put_fetch_request(uint8_t *to, const struct codec_request *request);

/* METADATA answers are built in pieces; `length` of the whole is what codec_metadata_*_bytes add up to. */
size_t codec_metadata_head_bytes(void);
size_t codec_metadata_topic_bytes(int16_t version, size_t name_length, int32_t partition_count);
uint8_t *codec_put_metadata_head(uint8_t *to, int32_t correlation_id, size_t whole_bytes, int32_t topic_count);
uint8_t *codec_put_metadata_topic(uint8_t *to, int16_t version, const char *name, size_t name_length,
    int8_t record_format, int32_t partition_count);
uint8_t *codec_put_metadata_partition(uint8_t *to, int16_t version, int32_t partition, int64_t log_start,
    int64_t high_watermark, int32_t group);

/* ---- What both ends of the wire know. It stands here whole: the client library links none of the above. ---- */

/* 1 to 249 characters out of A-Z a-z 0-9 . _ - and neither "." nor "..". */
static inline bool
codec_topic_name_valid(const char *name, size_t length)
{
	if (length < 1 || length > CODEC_TOPIC_NAME_MAX)
		return false;
	for (size_t i = 0; i < length; i++) {
		char c = name[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-'))
			return false;
	}
	return !(name[0] == '.' && (length == 1 || (length == 2 && name[1] == '.')));
}

/* "CORRUPT_REQUEST"; a number from the future gives "UNKNOWN_ERROR". */
static inline const char *
codec_error_name(int code)
{
	static const char *const names[CODEC_ERROR_COUNT] = {
		"NONE", "UNKNOWN_TOPIC_OR_PARTITION", "OFFSET_OUT_OF_RANGE", "RECORD_TOO_LARGE",
		"UNSUPPORTED_VERSION", "CORRUPT_REQUEST", "STORAGE_FAILURE",
	};

	return code >= 0 && code < CODEC_ERROR_COUNT ? names[code] : "UNKNOWN_ERROR";
}

#endif
