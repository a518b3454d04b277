/*
 * The client's half of the protocol as bytes: requests written, answers and records read. common/codec.h and common/record.h
 * have the drawings. What comes from outside is believed only after each length and count in it has been checked against the
 * bytes that are there. No socket, no clock.
 */
#include "client/lib/codec.h"

#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/codec.h"
#include "common/record.h"

enum {
	FRAME_BYTES = LB_LENGTH_BYTES + CODEC_REQUEST_HEADER_BYTES,
	VERSION_AT = LB_LENGTH_BYTES + 2,
	ANSWER_HEADER_BYTES = CODEC_ERROR_ANSWER_BYTES - CODEC_LENGTH_BYTES,
	METADATA_VERSION_MAX = 2,
};

_Static_assert((int)LB_TOPIC_NAME_MAX == (int)CODEC_TOPIC_NAME_MAX, "the longest name of a topic");

/* ---- names and keys ---- */

bool
lb_topic_name_valid(const char *topic)
{
	return topic != NULL && codec_topic_name_valid(topic, strnlen(topic, LB_TOPIC_NAME_MAX + 1));
}

int32_t
lb_partition_of_key(const void *key, size_t key_bytes, int32_t partition_count)
{
	const unsigned char *bytes = key;
	uint32_t hash = 0x811C9DC5;

	for (size_t i = 0; i < key_bytes; i++)
		hash = (hash ^ bytes[i]) * 0x01000193;
	return (int32_t)(hash % (uint32_t)partition_count);
}

/* ---- requests ---- */

static uint8_t *
put_header(uint8_t *to, size_t frame_bytes, enum codec_api api, int16_t version, int32_t correlation_id)
{
	to = bytes_put_i32(to, (int32_t)(frame_bytes - LB_LENGTH_BYTES));
	to = bytes_put_i16(to, (int16_t)api);
	to = bytes_put_i16(to, version);
	return bytes_put_i32(to, correlation_id);
}

static uint8_t *
put_name(uint8_t *to, const char *name)
{
	size_t bytes = strlen(name);

	to = bytes_put_u16(to, (uint16_t)bytes);
	memcpy(to, name, bytes);
	return to + bytes;
}

/* Adds to *frame_bytes; false: that is more than a frame may have, or `bytes` is beyond sense. */
static bool
grow(size_t *frame_bytes, size_t bytes)
{
	if (bytes > LB_LENGTH_BYTES + LB_FRAME_MAX_BYTES - *frame_bytes)
		return false;
	*frame_bytes += bytes;
	return true;
}

size_t
lb_produce_head_bytes(size_t topic_bytes)
{
	return FRAME_BYTES + 2 + topic_bytes + 4 + 1 + 4;
}

void
lb_put_produce_head(uint8_t *to, size_t frame_bytes, int32_t correlation_id, const char *topic, int32_t partition,
    enum lb_ack ack, int32_t record_count)
{
	to = put_header(to, frame_bytes, CODEC_PRODUCE, 1, correlation_id);
	to = put_name(to, topic);
	to = bytes_put_i32(to, partition);
	*to++ = (uint8_t)ack;
	bytes_put_i32(to, record_count);
}

/* 0: not allowed. */
static size_t
produce_bytes(const char *topic, int32_t partition, enum lb_ack ack, const struct lb_payload *records, size_t record_count)
{
	size_t bytes;

	if (!lb_topic_name_valid(topic) || partition < 0 || record_count < 1)
		return 0;
	if (ack != LB_ACK_NONE && ack != LB_ACK_WRITTEN && ack != LB_ACK_FORCED)
		return 0;
	bytes = lb_produce_head_bytes(strlen(topic));
	for (size_t i = 0; i < record_count; i++) {
		if (records[i].bytes < 1 || !grow(&bytes, LB_LENGTH_BYTES) || !grow(&bytes, records[i].bytes))
			return 0;
	}
	return bytes;
}

size_t
lb_encode_produce(void *to, size_t capacity_bytes, int32_t correlation_id, const char *topic, int32_t partition,
    enum lb_ack ack, const struct lb_payload *records, size_t record_count)
{
	size_t bytes = produce_bytes(topic, partition, ack, records, record_count);
	uint8_t *next;

	if (bytes == 0 || bytes > capacity_bytes)
		return bytes;
	lb_put_produce_head(to, bytes, correlation_id, topic, partition, ack, (int32_t)record_count);
	next = (uint8_t *)to + lb_produce_head_bytes(strlen(topic));
	for (size_t i = 0; i < record_count; i++) {
		next = bytes_put_i32(next, (int32_t)records[i].bytes);
		memcpy(next, records[i].data, records[i].bytes);
		next += records[i].bytes;
	}
	return bytes;
}

static bool
fetch_allowed(int16_t version, const char *topic, int32_t partition, int64_t fetch_offset, int32_t max_bytes,
    int32_t max_wait_ms, int32_t min_bytes)
{
	if (!lb_topic_name_valid(topic) || partition < 0 || fetch_offset < 0 || max_bytes < 1)
		return false;
	if (version == 1)
		return max_wait_ms == 0 && min_bytes == 0;
	return version == 2 && max_wait_ms >= 0 && min_bytes >= 0 && min_bytes <= max_bytes;
}

size_t
lb_encode_fetch(void *to, size_t capacity_bytes, int16_t version, int32_t correlation_id, const char *topic,
    int32_t partition, int64_t fetch_offset, int32_t max_bytes, int32_t max_wait_ms, int32_t min_bytes)
{
	size_t bytes;
	uint8_t *next;

	if (!fetch_allowed(version, topic, partition, fetch_offset, max_bytes, max_wait_ms, min_bytes))
		return 0;
	bytes = FRAME_BYTES + 2 + strlen(topic) + 4 + 8 + 4 + (version == 2 ? 8 : 0);
	if (bytes > capacity_bytes)
		return bytes;
	next = put_header(to, bytes, CODEC_FETCH, version, correlation_id);
	next = put_name(next, topic);
	next = bytes_put_i32(next, partition);
	next = bytes_put_i64(next, fetch_offset);
	next = bytes_put_i32(next, max_bytes);
	if (version == 2) {
		next = bytes_put_i32(next, max_wait_ms);
		bytes_put_i32(next, min_bytes);
	}
	return bytes;
}

size_t
lb_encode_metadata(void *to, size_t capacity_bytes, int16_t version, int32_t correlation_id, const char *const *topics,
    size_t topic_count)
{
	size_t bytes = FRAME_BYTES + 4;
	uint8_t *next;

	if (version < 1 || version > METADATA_VERSION_MAX)
		return 0;
	for (size_t i = 0; i < topic_count; i++) {
		if (!lb_topic_name_valid(topics[i]) || !grow(&bytes, 2 + strlen(topics[i])))
			return 0;
	}
	if (bytes > capacity_bytes)
		return bytes;
	next = put_header(to, bytes, CODEC_METADATA, version, correlation_id);
	next = bytes_put_i32(next, (int32_t)topic_count);
	for (size_t i = 0; i < topic_count; i++)
		next = put_name(next, topics[i]);
	return bytes;
}

/* ---- answers ---- */

int64_t
lb_decode_answer(struct lb_answer *answer, const void *from, size_t bytes)
{
	struct bytes_reader r = { from, bytes, false };
	int32_t length = bytes_take_i32(&r);
	struct lb_answer found;

	if (r.bad)
		return 0;
	if (length < ANSWER_HEADER_BYTES || length > LB_FRAME_MAX_BYTES)
		return -1;
	found.correlation_id = bytes_take_i32(&r);
	found.error_code = bytes_take_i16(&r);
	if (r.bad)
		return 0;
	if (found.error_code < 0 || (found.error_code > 0 && length > ANSWER_HEADER_BYTES))
		return -1;
	found.body_bytes = (size_t)(length - ANSWER_HEADER_BYTES);
	found.body = bytes_take(&r, found.body_bytes);
	if (r.bad)
		return 0;
	*answer = found;
	return LB_LENGTH_BYTES + (int64_t)length;
}

static struct bytes_reader
read_body(const struct lb_answer *answer)
{
	return (struct bytes_reader){ answer->body, answer->body_bytes, answer->error_code != 0 };
}

enum lb_code
lb_decode_produced(struct lb_produced *produced, const struct lb_answer *answer)
{
	struct bytes_reader r = read_body(answer);
	struct lb_produced found;

	found.base_offset = bytes_take_i64(&r);
	found.log_end_offset = bytes_take_i64(&r);
	if (r.bad || r.left != 0 || found.base_offset < 0 || found.log_end_offset <= found.base_offset)
		return LB_BAD_ANSWER;
	*produced = found;
	return LB_OK;
}

enum lb_code
lb_decode_fetched(struct lb_fetched *fetched, const struct lb_answer *answer)
{
	struct bytes_reader r = read_body(answer);
	int64_t high_watermark = bytes_take_i64(&r);
	int32_t payload_bytes = bytes_take_i32(&r);

	if (r.bad || high_watermark < 0 || payload_bytes < 0 || (size_t)payload_bytes != r.left)
		return LB_BAD_ANSWER;
	*fetched = (struct lb_fetched){ high_watermark, r.next, r.left };
	return LB_OK;
}

/* ---- METADATA ---- */

/*
 * All of it in one block: the head, the partitions of all topics, the topics, the names. A first pass over the answer checks
 * it and counts; only then is memory taken, and a second pass, which cannot fail, fills it in.
 */
struct metadata_block {
	struct lb_metadata metadata;
	struct lb_partition_metadata partitions[];
};

struct metadata_size {
	size_t topics, partitions, name_bytes;
};

struct name_view {
	const char *bytes;
	size_t length;
};

struct topic_head {
	struct name_view name;
	int8_t record_format;
	int32_t partition_count;
};

static struct topic_head
take_topic_head(struct bytes_reader *r, int16_t version)
{
	struct topic_head head;

	head.name.length = bytes_take_u16(r);
	head.name.bytes = (const char *)bytes_take(r, head.name.length);
	head.record_format = version >= 2 ? bytes_take_i8(r) : LB_CRC32C;
	head.partition_count = bytes_take_i32(r);
	return head;
}

static struct lb_partition_metadata
take_partition(struct bytes_reader *r, int16_t version)
{
	struct lb_partition_metadata partition;

	partition.partition = bytes_take_i32(r);
	partition.log_start_offset = bytes_take_i64(r);
	partition.high_watermark = bytes_take_i64(r);
	partition.group = version >= 2 ? bytes_take_i32(r) : -1;
	return partition;
}

static size_t
partition_bytes(int16_t version)
{
	return version >= 2 ? 4 + 8 + 8 + 4 : 4 + 8 + 8;
}

/* The least a topic can take: a name of one character, one partition. */
static size_t
topic_min_bytes(int16_t version)
{
	return 2 + 1 + (version >= 2 ? 1 : 0) + 4 + partition_bytes(version);
}

/* Byte order, as the broker sorts: not the locale's. */
static bool
name_follows(const struct name_view *name, const struct name_view *previous)
{
	size_t common = name->length < previous->length ? name->length : previous->length;
	int order = common > 0 ? memcmp(name->bytes, previous->bytes, common) : 0;

	return order > 0 || (order == 0 && name->length > previous->length);
}

static bool
check_topic_head(const struct topic_head *head, size_t left_bytes, int16_t version, const struct name_view *previous)
{
	return codec_topic_name_valid(head->name.bytes, head->name.length) && name_follows(&head->name, previous) &&
	    (head->record_format == LB_PLAIN || head->record_format == LB_CRC32C) &&
	    head->partition_count >= 1 && (size_t)head->partition_count <= left_bytes / partition_bytes(version);
}

static bool
check_partition(const struct lb_partition_metadata *partition, int32_t number, int16_t version)
{
	return partition->partition == number && partition->log_start_offset >= 0 &&
	    partition->high_watermark >= partition->log_start_offset && (version < 2 || partition->group >= 0);
}

static bool
check_topic(struct bytes_reader *r, int16_t version, struct name_view *previous, struct metadata_size *size)
{
	struct topic_head head = take_topic_head(r, version);

	if (r->bad || !check_topic_head(&head, r->left, version, previous))
		return false;
	for (int32_t i = 0; i < head.partition_count; i++) {
		struct lb_partition_metadata partition = take_partition(r, version);

		if (!check_partition(&partition, i, version))
			return false;
	}
	*previous = head.name;
	size->partitions += (size_t)head.partition_count;
	size->name_bytes += head.name.length + 1;
	return true;
}

static bool
check_metadata(struct bytes_reader r, int16_t version, struct metadata_size *size)
{
	struct name_view previous = { "", 0 };
	int32_t count = bytes_take_i32(&r);

	if (r.bad || count < 0 || (size_t)count > r.left / topic_min_bytes(version))
		return false;
	*size = (struct metadata_size){ .topics = (size_t)count };
	for (int32_t i = 0; i < count; i++) {
		if (!check_topic(&r, version, &previous, size))
			return false;
	}
	return r.left == 0;
}

static void
fill_in(struct metadata_block *block, struct bytes_reader r, int16_t version, const struct metadata_size *size)
{
	struct lb_partition_metadata *partition = block->partitions;
	struct lb_topic_metadata *topics = (struct lb_topic_metadata *)(partition + size->partitions);
	char *name = (char *)(topics + size->topics);

	block->metadata = (struct lb_metadata){ version, bytes_take_i32(&r), topics };
	for (size_t i = 0; i < size->topics; i++) {
		struct topic_head head = take_topic_head(&r, version);

		topics[i] = (struct lb_topic_metadata){ name, (enum lb_record_format)head.record_format, head.partition_count,
		    partition };
		memcpy(name, head.name.bytes, head.name.length);
		name[head.name.length] = '\0';
		name += head.name.length + 1;
		for (int32_t n = 0; n < head.partition_count; n++)
			*partition++ = take_partition(&r, version);
	}
}

enum lb_code
lb_decode_metadata(struct lb_metadata **metadata, int16_t version, const struct lb_answer *answer)
{
	struct bytes_reader r = read_body(answer);
	struct metadata_block *block;
	struct metadata_size size;

	*metadata = NULL;
	if (version < 1 || version > METADATA_VERSION_MAX)
		return LB_INVALID_ARGUMENT;
	if (!check_metadata(r, version, &size))
		return LB_BAD_ANSWER;
	block = malloc(sizeof(*block) + size.partitions * sizeof(block->partitions[0]) +
	    size.topics * sizeof(struct lb_topic_metadata) + size.name_bytes);
	if (block == NULL)
		return LB_NO_MEMORY;
	fill_in(block, r, version, &size);
	*metadata = &block->metadata;
	return LB_OK;
}

/* The head is the block's first member. */
void
lb_metadata_free(struct lb_metadata *metadata)
{
	free(metadata);
}

static int
compare_name(const void *name, const void *topic)
{
	return strcmp(name, ((const struct lb_topic_metadata *)topic)->name);
}

const struct lb_topic_metadata *
lb_metadata_find(const struct lb_metadata *metadata, const char *topic)
{
	return bsearch(topic, metadata->topics, (size_t)metadata->topic_count, sizeof(metadata->topics[0]), compare_name);
}

/* ---- answers held against their requests ---- */

static struct bytes_reader
read_request(const uint8_t *frame)
{
	return (struct bytes_reader){ frame + FRAME_BYTES, (size_t)bytes_get_i32(frame) - CODEC_REQUEST_HEADER_BYTES, false };
}

/* The same of one that begins with topic and partition, behind them. */
static struct bytes_reader
read_request_body(const uint8_t *frame)
{
	struct bytes_reader r = read_request(frame);

	bytes_take(&r, bytes_take_u16(&r));
	bytes_take_i32(&r);
	return r;
}

enum lb_code
lb_read_produced(struct lb_produced *produced, const struct lb_answer *answer, const void *frame)
{
	struct bytes_reader r = read_request_body(frame);
	int32_t record_count;

	bytes_take_i8(&r);
	record_count = bytes_take_i32(&r);
	if (lb_decode_produced(produced, answer) != LB_OK || produced->log_end_offset - produced->base_offset < record_count)
		return LB_BAD_ANSWER;
	return LB_OK;
}

enum lb_code
lb_read_fetched(struct lb_fetched *fetched, const struct lb_answer *answer, const void *frame)
{
	struct bytes_reader r = read_request_body(frame);
	int64_t fetch_offset = bytes_take_i64(&r);
	int32_t max_bytes = bytes_take_i32(&r);

	if (lb_decode_fetched(fetched, answer) != LB_OK || fetched->payload_bytes > (size_t)max_bytes)
		return LB_BAD_ANSWER;
	if (fetched->high_watermark < fetch_offset || (fetched->high_watermark == fetch_offset && fetched->payload_bytes > 0))
		return LB_BAD_ANSWER;
	return LB_OK;
}

static bool
has_all_topics(const struct lb_metadata *metadata, const uint8_t *frame)
{
	struct bytes_reader r = read_request(frame);
	char name[LB_TOPIC_NAME_MAX + 1];

	for (int32_t left = bytes_take_i32(&r); left > 0; left--) {
		size_t bytes = bytes_take_u16(&r);

		memcpy(name, bytes_take(&r, bytes), bytes);
		name[bytes] = '\0';
		if (lb_metadata_find(metadata, name) == NULL)
			return false;
	}
	return true;
}

enum lb_code
lb_read_metadata(struct lb_metadata **metadata, const struct lb_answer *answer, const void *frame)
{
	int16_t version = bytes_get_i16((const uint8_t *)frame + VERSION_AT);
	enum lb_code code = lb_decode_metadata(metadata, version, answer);

	if (code != LB_OK || has_all_topics(*metadata, frame))
		return code;
	lb_metadata_free(*metadata);
	*metadata = NULL;
	return LB_BAD_ANSWER;
}

/* ---- records of a FETCH ---- */

void
lb_walk_begin(struct lb_walk *walk, enum lb_record_format format, int64_t fetch_offset, const void *payload,
    size_t payload_bytes)
{
	*walk = (struct lb_walk){ payload, payload_bytes, fetch_offset, format, false };
}

/* The payload ends inside the record: known to be the rest of it, or too large for any answer to this request. */
static enum lb_walk_result
walk_ended(const struct lb_walk *walk, struct lb_record *record)
{
	record->bytes = walk->left_bytes >= LB_LENGTH_BYTES ? (size_t)bytes_get_i32(walk->next) : 0;
	return walk->any ? LB_WALK_CUT : LB_WALK_EXCEEDS;
}

enum lb_walk_result
lb_walk_next(struct lb_walk *walk, struct lb_record *record)
{
	enum record_format format = walk->format == LB_CRC32C ? RECORD_CRC32C : RECORD_PLAIN;
	enum record_verdict verdict;
	size_t bytes;

	*record = (struct lb_record){ .offset = walk->offset };
	if (walk->left_bytes == 0)
		return LB_WALK_END;
	/* Not record_check's to say: it takes such zeros for the end of a file's log, which no payload reaches into. */
	if (walk->left_bytes < LB_LENGTH_BYTES)
		return walk_ended(walk, record);
	verdict = record_check(format, walk->next, walk->left_bytes, &bytes);
	if (verdict == RECORD_INCOMPLETE)
		return walk_ended(walk, record);
	/* Behind the last number there is none for the next record. */
	if (verdict != RECORD_VALID || walk->offset == INT64_MAX)
		return LB_WALK_CORRUPT;
	record->data = walk->next + record_header_bytes(format);
	record->bytes = bytes - record_header_bytes(format);
	walk->next += bytes;
	walk->left_bytes -= bytes;
	walk->offset++;
	walk->any = true;
	return LB_WALK_RECORD;
}
