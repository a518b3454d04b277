/*
 * The client's half of the protocol: requests into bytes, answers' bodies into structs. common/codec.h has the
 * drawing. What comes from the broker is believed only after every length and count in it has been checked against
 * the bytes that are there.
 */
#ifndef CLIENT_WIRE_H
#define CLIENT_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/client.h"
#include "common/codec.h"

enum {
	/* Any FETCH, or a PRODUCE's bytes ahead of its first record. */
	WIRE_HEAD_MAX_BYTES = 4 + 8 + 2 + CODEC_TOPIC_NAME_MAX + 4 + 8 + 4 + 4 + 4,
	WIRE_FRAME_MAX_BYTES = CODEC_LENGTH_BYTES + 8 * 1024 * 1024,	/* the broker's default limit */
};

/* Bytes of a PRODUCE ahead of its records, which are put behind it as ( int32 payloadSize | payload ). */
size_t wire_produce_head_bytes(size_t name_length);

/* Writes that head for a frame of `frame_bytes` bytes in all, the length word included. */
void wire_put_produce_head(uint8_t *to, const char *topic, int32_t partition, enum codec_ack ack, int32_t record_count,
    size_t frame_bytes);

struct wire_fetch {
	const char *topic;
	int32_t partition;
	int64_t offset;
	int32_t max_bytes;
	bool held;		/* v2, with the two below; else v1 */
	int32_t max_wait_ms;
	int32_t min_bytes;
};

/* Writes a whole FETCH (WIRE_HEAD_MAX_BYTES are enough) and returns its bytes. */
size_t wire_put_fetch(uint8_t *to, const struct wire_fetch *fetch);

struct wire_produced {
	int64_t base_offset, log_end_offset;
};

struct wire_fetched {
	int64_t high_watermark;
	const uint8_t *payload;
	size_t payload_bytes;
};

/* Each returns 0, or -1 when the body is not what such an answer must be. */
int wire_read_produced(const struct client_answer *answer, int32_t record_count, struct wire_produced *produced);
int wire_read_fetched(const struct client_answer *answer, int32_t max_bytes, struct wire_fetched *fetched);

struct wire_partition {
	int64_t log_start, high_watermark;
	int32_t group;		/* -1 with v1, which does not tell */
};

struct wire_topic {
	char name[CODEC_TOPIC_NAME_MAX + 1];
	int8_t record_format;	/* enum record_format; crc32c with v1, which does not tell */
	int32_t partition_count;
	struct wire_partition *partitions;	/* by number */
};

struct wire_metadata {
	int32_t topic_count;
	struct wire_topic *topics;
};

/*
 * Asks for the named topics (count 0: all), in version 2 or, where the broker does not know that, 1. Nothing may be
 * outstanding. With CLIENT_OK the metadata is complete and consistent, and to be freed; CLIENT_REFUSED leaves the
 * broker's code in *error.
 */
enum client_status wire_ask_metadata(struct client *client, const char *const *names, int32_t count,
    int64_t deadline_ns, struct wire_metadata *metadata, int16_t *error);
void wire_free_metadata(struct wire_metadata *metadata);

/* The topic of that name, or NULL. Each name that was asked for is there. */
const struct wire_topic *wire_find_topic(const struct wire_metadata *metadata, const char *name);

#endif
