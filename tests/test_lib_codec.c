/*
 * The library's codec: the golden vectors both ways, every truncation, every wrong field, capacities and limits, and the walk
 * over payloads that are cut or flipped anywhere. The broker's own codec is the other side.
 */
#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/codec.h"
#include "client/lib/logbroker.h"
#include "common/bytes.h"
#include "common/codec.h"
#include "common/record.h"
#include "tests/unit.h"

enum { LENGTH_BYTES = LB_LENGTH_BYTES, HEADER_BYTES = 6, UNTOUCHED = 0xA5 };

/* Memory that ends behind its last byte: any further read is seen by the sanitizers. */
static uint8_t *
exact_copy(const void *bytes, size_t size)
{
	uint8_t *copy = malloc(size > 0 ? size : 1);

	ck_assert_ptr_nonnull(copy);
	if (size > 0)
		memcpy(copy, bytes, size);
	return copy;
}

/* ---- names, keys, codes ---- */

START_TEST(topic_names)
{
	static const char *const wrong[] = { "", ".", "..", "a b", "a/b", "\xC3\xA4", "a\n", "a:", "a\x7F" };
	static const char *const right[] = { "a", "...", ".a", "a.", "-", "_", "..a", "A-Z.a_z-0.9" };
	char name[LB_TOPIC_NAME_MAX + 3];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(!lb_topic_name_valid(wrong[i]), "accepted: '%s'", wrong[i]);
	for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++)
		ck_assert_msg(lb_topic_name_valid(right[i]), "refused: '%s'", right[i]);
	ck_assert(!lb_topic_name_valid(NULL));
	memset(name, 'n', sizeof(name));
	for (size_t length = 1; length < sizeof(name); length++) {
		name[length] = '\0';
		ck_assert_int_eq(lb_topic_name_valid(name), length <= LB_TOPIC_NAME_MAX);
		name[length] = 'n';
	}
	for (int c = 1; c < 256; c++) {
		char one[] = { 'a', (char)c, '\0' };

		ck_assert_int_eq(lb_topic_name_valid(one), codec_topic_name_valid(one, 2));
	}
}
END_TEST

START_TEST(partitions_of_the_golden_keys)
{
	static const int32_t counts[] = { 1, 2, 3, 4, 16, 64 };
	FILE *file = unit_open_vectors("partitioner-fnv1a.tsv");
	char line[4096];
	int vectors = 0;

	while (fgets(line, sizeof(line), file) != NULL) {
		uint8_t key[2048];
		char *field = strchr(line, '\t');
		size_t size;

		if (line[0] == '#')
			continue;
		ck_assert_ptr_nonnull(field);
		size = unit_from_hex(line, (size_t)(field - line), key);
		/* The whole hash shows with as many partitions as there are numbers for. */
		ck_assert_int_eq(lb_partition_of_key(key, size, INT32_MAX), strtoul(field + 1, &field, 10) % INT32_MAX);
		for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
			ck_assert_int_eq(lb_partition_of_key(key, size, counts[i]), strtol(field + 1, &field, 10));
		vectors++;
	}
	fclose(file);
	ck_assert_int_eq(vectors, 11);
	ck_assert_int_eq(lb_partition_of_key(NULL, 0, 64), 5);
}
END_TEST

START_TEST(codes_have_names)
{
	for (int code = 0; code < CODEC_ERROR_COUNT; code++)
		ck_assert_str_eq(lb_code_name(code), code == 0 ? "OK" : codec_error_name(code));
	for (int code = LB_ENDED; code < 0; code++) {
		ck_assert_str_ne(lb_code_name(code), "UNKNOWN_ERROR");
		for (int other = LB_ENDED; other < code; other++)
			ck_assert_str_ne(lb_code_name(code), lb_code_name(other));
	}
	ck_assert_str_eq(lb_code_name(LB_ENDED - 1), "UNKNOWN_ERROR");
	ck_assert_str_eq(lb_code_name(CODEC_ERROR_COUNT), "UNKNOWN_ERROR");
	ck_assert_str_eq(lb_code_name(INT_MIN), "UNKNOWN_ERROR");
}
END_TEST

/* ---- the golden dialogue ---- */

/* The request, encoded again from what the broker's codec reads out of it. 0: not one that can be asked for. */
static size_t
encode_again(uint8_t *to, size_t capacity, const uint8_t *frame, size_t bytes)
{
	struct codec_request request;
	char topic[LB_TOPIC_NAME_MAX + 1], asked[LB_TOPIC_NAME_MAX + 1];
	const char *const topics[] = { asked };
	struct lb_payload records[16];

	if (codec_parse_request(frame + LENGTH_BYTES, bytes - LENGTH_BYTES, &request) != CODEC_NONE)
		return 0;
	snprintf(topic, sizeof(topic), "%.*s", (int)request.topic.length, request.topic.bytes);
	if (request.api_key == CODEC_METADATA) {
		if (request.topic_count > 0) {
			struct codec_name name = codec_next_name(&request);

			snprintf(asked, sizeof(asked), "%.*s", (int)name.length, name.bytes);
		}
		return lb_encode_metadata(to, capacity, request.api_version, request.correlation_id, topics,
		    (size_t)request.topic_count);
	}
	if (request.api_key == CODEC_FETCH)
		return lb_encode_fetch(to, capacity, request.api_version, request.correlation_id, topic, request.partition,
		    request.fetch_offset, request.max_bytes, request.max_wait_ms, request.min_bytes);
	ck_assert_int_le(request.record_count, 16);
	for (int32_t i = 0; i < request.record_count; i++) {
		records[i] = (struct lb_payload){ request.records + 4, (size_t)bytes_get_i32(request.records) };
		request.records += 4 + records[i].bytes;
	}
	return lb_encode_produce(to, capacity, request.correlation_id, topic, request.partition, (enum lb_ack)request.ack,
	    records, (size_t)request.record_count);
}

static size_t
put_metadata_again(uint8_t *to, int16_t version, const struct lb_answer *answer)
{
	struct lb_metadata *metadata;
	size_t bytes = codec_metadata_head_bytes();
	uint8_t *end;

	ck_assert_int_eq(lb_decode_metadata(&metadata, version, answer), LB_OK);
	for (int32_t t = 0; t < metadata->topic_count; t++)
		bytes += codec_metadata_topic_bytes(version, strlen(metadata->topics[t].name), metadata->topics[t].partition_count);
	end = codec_put_metadata_head(to, answer->correlation_id, bytes, metadata->topic_count);
	for (int32_t t = 0; t < metadata->topic_count; t++) {
		const struct lb_topic_metadata *topic = &metadata->topics[t];

		end = codec_put_metadata_topic(end, version, topic->name, strlen(topic->name), (int8_t)topic->record_format,
		    topic->partition_count);
		for (int32_t p = 0; p < topic->partition_count; p++)
			end = codec_put_metadata_partition(end, version, topic->partitions[p].partition,
			    topic->partitions[p].log_start_offset, topic->partitions[p].high_watermark, topic->partitions[p].group);
	}
	lb_metadata_free(metadata);
	ck_assert_uint_eq(end - to, bytes);
	return bytes;
}

/* The answer, written again by the broker's codec from what the library's reads out of it. */
static size_t
put_again(uint8_t *to, const uint8_t *request, const struct lb_answer *answer)
{
	int16_t key = bytes_get_i16(request + LENGTH_BYTES), version = bytes_get_i16(request + LENGTH_BYTES + 2);
	struct lb_produced produced;
	struct lb_fetched fetched;
	uint8_t *end;

	if (answer->error_code != 0)
		return (size_t)(codec_put_error(to, answer->correlation_id, (enum codec_error)answer->error_code) - to);
	if (key == CODEC_METADATA)
		return put_metadata_again(to, version, answer);
	if (key == CODEC_PRODUCE) {
		ck_assert_int_eq(lb_decode_produced(&produced, answer), LB_OK);
		return (size_t)(codec_put_produce_answer(to, answer->correlation_id, produced.base_offset,
		    produced.log_end_offset) - to);
	}
	ck_assert_int_eq(lb_decode_fetched(&fetched, answer), LB_OK);
	end = codec_put_fetch_answer(to, answer->correlation_id, fetched.high_watermark, (int32_t)fetched.payload_bytes);
	memcpy(end, fetched.payload, fetched.payload_bytes);
	return (size_t)(end - to) + fetched.payload_bytes;
}

struct golden {
	uint8_t request[256], answer[256];
	size_t request_bytes, answer_bytes;
};

static bool
next_golden(FILE *file, struct golden *golden)
{
	char line[4096], *request, *answer;

	do {
		if (fgets(line, sizeof(line), file) == NULL)
			return false;
	} while (line[0] == '#');
	request = strchr(line, '\t');
	ck_assert_ptr_nonnull(request);
	answer = strchr(++request, '\t');
	ck_assert_ptr_nonnull(answer);
	golden->request_bytes = unit_from_hex(request, (size_t)(answer - request), golden->request);
	answer++;
	golden->answer_bytes = unit_from_hex(answer, strcspn(answer, "\n"), golden->answer);
	return true;
}

START_TEST(golden_frames_both_ways)
{
	FILE *file = unit_open_vectors("frames.tsv");
	struct golden golden;
	int asked = 0, answered = 0;

	while (next_golden(file, &golden)) {
		uint8_t again[256];
		struct lb_answer answer;
		size_t bytes = encode_again(again, sizeof(again), golden.request, golden.request_bytes);

		if (bytes > 0) {
			ck_assert_uint_eq(bytes, golden.request_bytes);
			ck_assert_mem_eq(again, golden.request, bytes);
			asked++;
		}
		ck_assert_int_eq(lb_decode_answer(&answer, golden.answer, golden.answer_bytes), golden.answer_bytes);
		ck_assert_uint_eq(put_again(again, golden.request, &answer), golden.answer_bytes);
		ck_assert_mem_eq(again, golden.answer, golden.answer_bytes);
		answered++;
	}
	fclose(file);
	ck_assert_int_eq(asked, 8);
	ck_assert_int_eq(answered, 10);
}
END_TEST

/* The two records of the golden dialogue, and its cut. */
START_TEST(golden_records)
{
	static const char hex[] = "00000001c1d043306100000002242e02ac6263";
	uint8_t payload[64];
	size_t bytes = unit_from_hex(hex, strlen(hex), payload);
	struct lb_walk walk;
	struct lb_record record;

	lb_walk_begin(&walk, LB_CRC32C, 0, payload, bytes);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_RECORD);
	ck_assert(record.offset == 0 && record.bytes == 1 && memcmp(record.data, "a", 1) == 0);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_RECORD);
	ck_assert(record.offset == 1 && record.bytes == 2 && memcmp(record.data, "bc", 2) == 0);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_END);
	lb_walk_begin(&walk, LB_CRC32C, 0, payload, 10);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_RECORD);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_CUT);
	ck_assert_int_eq(record.offset, 1);
}
END_TEST

/* ---- requests ---- */

/* One of each request, so that capacities and truncations can be gone through alike. */
static size_t
encode_nth(int which, void *to, size_t capacity)
{
	static const char *const topics[] = { "orders", "a", "payments.eu" };
	static const struct lb_payload records[] = { { "one", 3 }, { "2", 1 }, { "three", 5 } };

	switch (which) {
	case 0:
		return lb_encode_produce(to, capacity, 7, "orders", 3, LB_ACK_FORCED, records, 3);
	case 1:
		return lb_encode_fetch(to, capacity, 1, -7, "orders", 3, INT64_MAX, INT32_MAX, 0, 0);
	case 2:
		return lb_encode_fetch(to, capacity, 2, INT32_MIN, "orders", 3, 1, 100, 30000, 100);
	case 3:
		return lb_encode_metadata(to, capacity, 1, 0, NULL, 0);
	default:
		return lb_encode_metadata(to, capacity, 2, INT32_MAX, topics, 3);
	}
}

enum { KINDS_OF_REQUEST = 5 };

START_TEST(too_little_capacity_writes_nothing)
{
	size_t bytes = encode_nth(_i, NULL, 0);

	ck_assert_uint_gt(bytes, 0);
	for (size_t capacity = 0; capacity < bytes; capacity++) {
		uint8_t *to = malloc(bytes);

		memset(to, UNTOUCHED, bytes);
		ck_assert_uint_eq(encode_nth(_i, to, capacity), bytes);
		for (size_t i = 0; i < bytes; i++)
			ck_assert_uint_eq(to[i], UNTOUCHED);
		free(to);
	}
}
END_TEST

START_TEST(a_frame_is_its_bytes_and_no_more)
{
	size_t bytes = encode_nth(_i, NULL, 0);
	uint8_t *to = malloc(bytes), *roomy = malloc(bytes + 16);
	struct codec_request request;

	memset(roomy, UNTOUCHED, bytes + 16);
	ck_assert_uint_eq(encode_nth(_i, to, bytes), bytes);
	ck_assert_uint_eq(encode_nth(_i, roomy, bytes + 16), bytes);
	ck_assert_mem_eq(to, roomy, bytes);
	for (size_t i = 0; i < 16; i++)
		ck_assert_uint_eq(roomy[bytes + i], UNTOUCHED);
	ck_assert_int_eq(bytes_get_i32(to), (int32_t)bytes - LENGTH_BYTES);
	ck_assert_int_eq(codec_parse_request(to + LENGTH_BYTES, bytes - LENGTH_BYTES, &request), CODEC_NONE);
	free(to);
	free(roomy);
}
END_TEST

START_TEST(fields_arrive_at_the_broker)
{
	uint8_t to[256];
	struct codec_request request;
	size_t bytes = encode_nth(2, to, sizeof(to));

	ck_assert_int_eq(codec_parse_request(to + LENGTH_BYTES, bytes - LENGTH_BYTES, &request), CODEC_NONE);
	ck_assert_int_eq(request.api_key, CODEC_FETCH);
	ck_assert_int_eq(request.correlation_id, INT32_MIN);
	ck_assert_mem_eq(request.topic.bytes, "orders", request.topic.length);
	ck_assert(request.partition == 3 && request.fetch_offset == 1 && request.max_bytes == 100);
	ck_assert(request.max_wait_ms == 30000 && request.min_bytes == 100);
	bytes = encode_nth(0, to, sizeof(to));
	ck_assert_int_eq(codec_parse_request(to + LENGTH_BYTES, bytes - LENGTH_BYTES, &request), CODEC_NONE);
	ck_assert(request.ack == CODEC_ACK_FORCED && request.record_count == 3 && request.largest_payload == 5);
	bytes = encode_nth(4, to, sizeof(to));
	ck_assert_int_eq(codec_parse_request(to + LENGTH_BYTES, bytes - LENGTH_BYTES, &request), CODEC_NONE);
	ck_assert(request.api_version == 2 && request.topic_count == 3);
	ck_assert_mem_eq(codec_next_name(&request).bytes, "orders", 6);
}
END_TEST

static size_t
produce_with(const char *topic, int32_t partition, int ack, const struct lb_payload *records, size_t count)
{
	return lb_encode_produce(NULL, 0, 1, topic, partition, (enum lb_ack)ack, records, count);
}

START_TEST(what_produce_does_not_allow)
{
	static const struct lb_payload good[] = { { "x", 1 } }, empty[] = { { "x", 1 }, { "", 0 } };
	static const struct lb_payload endless[] = { { "x", 1 }, { "x", SIZE_MAX - 2 } };
	char long_name[LB_TOPIC_NAME_MAX + 2];

	memset(long_name, 'n', sizeof(long_name));
	long_name[LB_TOPIC_NAME_MAX + 1] = '\0';
	ck_assert_uint_gt(produce_with("t", 0, LB_ACK_NONE, good, 1), 0);
	ck_assert_uint_gt(produce_with("t", INT32_MAX, LB_ACK_WRITTEN, good, 1), 0);
	ck_assert_uint_eq(produce_with(NULL, 0, LB_ACK_NONE, good, 1), 0);
	ck_assert_uint_eq(produce_with("..", 0, LB_ACK_NONE, good, 1), 0);
	ck_assert_uint_eq(produce_with(long_name, 0, LB_ACK_NONE, good, 1), 0);
	ck_assert_uint_eq(produce_with("t", -1, LB_ACK_NONE, good, 1), 0);
	ck_assert_uint_eq(produce_with("t", 0, 3, good, 1), 0);
	ck_assert_uint_eq(produce_with("t", 0, -1, good, 1), 0);
	ck_assert_uint_eq(produce_with("t", 0, LB_ACK_NONE, good, 0), 0);
	ck_assert_uint_eq(produce_with("t", 0, LB_ACK_NONE, empty, 2), 0);
	ck_assert_uint_eq(produce_with("t", 0, LB_ACK_NONE, endless, 2), 0);
}
END_TEST

START_TEST(what_fetch_does_not_allow)
{
	static const struct {
		int16_t version;
		const char *topic;
		int32_t partition;
		int64_t offset;
		int32_t max_bytes, max_wait_ms, min_bytes;
		bool allowed;
	} cases[] = {
		{ 1, "t", 0, 0, 1, 0, 0, true },
		{ 2, "t", 0, 0, 1, 0, 0, true },
		{ 2, "t", INT32_MAX, INT64_MAX, INT32_MAX, INT32_MAX, INT32_MAX, true },
		{ 0, "t", 0, 0, 1, 0, 0, false },
		{ 3, "t", 0, 0, 1, 0, 0, false },
		{ -1, "t", 0, 0, 1, 0, 0, false },
		{ 1, "", 0, 0, 1, 0, 0, false },
		{ 1, NULL, 0, 0, 1, 0, 0, false },
		{ 1, "t", -1, 0, 1, 0, 0, false },
		{ 1, "t", 0, -1, 1, 0, 0, false },
		{ 1, "t", 0, 0, 0, 0, 0, false },
		{ 1, "t", 0, 0, -1, 0, 0, false },
		{ 1, "t", 0, 0, 1, 1, 0, false },
		{ 1, "t", 0, 0, 1, 0, 1, false },
		{ 2, "t", 0, 0, 1, -1, 0, false },
		{ 2, "t", 0, 0, 1, 0, -1, false },
		{ 2, "t", 0, 0, 1, 0, 2, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t bytes = lb_encode_fetch(NULL, 0, cases[i].version, 1, cases[i].topic, cases[i].partition, cases[i].offset,
		    cases[i].max_bytes, cases[i].max_wait_ms, cases[i].min_bytes);

		ck_assert_msg((bytes > 0) == cases[i].allowed, "case %zu", i);
	}
}
END_TEST

START_TEST(what_metadata_does_not_allow)
{
	static const char *const good[] = { "a", "a" }, *const wrong[] = { "a", "a b" }, *const none[] = { "a", NULL };

	ck_assert_uint_eq(lb_encode_metadata(NULL, 0, 2, 1, good, 2), 16 + 2 * 3);
	ck_assert_uint_eq(lb_encode_metadata(NULL, 0, 0, 1, good, 2), 0);
	ck_assert_uint_eq(lb_encode_metadata(NULL, 0, 3, 1, good, 2), 0);
	ck_assert_uint_eq(lb_encode_metadata(NULL, 0, 2, 1, wrong, 2), 0);
	ck_assert_uint_eq(lb_encode_metadata(NULL, 0, 2, 1, none, 2), 0);
}
END_TEST

/* The largest frame, and one byte more, made of one record and of many. */
START_TEST(requests_up_to_eight_mebibytes)
{
	const size_t head = 8 + 2 + 1 + 4 + 1 + 4, largest = LENGTH_BYTES + LB_FRAME_MAX_BYTES;
	const size_t room = LB_FRAME_MAX_BYTES - head, many = room / 5;
	uint8_t *data = calloc(1, room), *to = malloc(largest);
	struct lb_payload one = { data, room - LENGTH_BYTES }, *records = calloc(many + 1, sizeof(*records));

	ck_assert_uint_eq(lb_encode_produce(to, largest, 1, "t", 0, LB_ACK_WRITTEN, &one, 1), largest);
	ck_assert_int_eq(bytes_get_i32(to), LB_FRAME_MAX_BYTES);
	one.bytes++;
	ck_assert_uint_eq(lb_encode_produce(to, largest, 1, "t", 0, LB_ACK_WRITTEN, &one, 1), 0);
	for (size_t i = 0; i <= many; i++)
		records[i] = (struct lb_payload){ data, 1 };
	ck_assert_uint_eq(lb_encode_produce(to, largest, 1, "t", 0, LB_ACK_WRITTEN, records, many),
	    LENGTH_BYTES + head + 5 * many);
	ck_assert_uint_eq(lb_encode_produce(to, largest, 1, "t", 0, LB_ACK_WRITTEN, records, many + 1), 0);
	free(records);
	free(to);
	free(data);
}
END_TEST

START_TEST(names_up_to_eight_mebibytes)
{
	const size_t room = LB_FRAME_MAX_BYTES - 12, many = room / 3;
	const char **topics = calloc(many + 1, sizeof(*topics));

	for (size_t i = 0; i <= many; i++)
		topics[i] = "t";
	ck_assert_uint_eq(lb_encode_metadata(NULL, 0, 1, 1, topics, many), 16 + 3 * many);
	ck_assert_uint_eq(lb_encode_metadata(NULL, 0, 1, 1, topics, many + 1), 0);
	free(topics);
}
END_TEST

/* ---- answers ---- */

static int64_t
decode_exactly(struct lb_answer *answer, const uint8_t *from, size_t bytes)
{
	uint8_t *copy = exact_copy(from, bytes);
	int64_t result = lb_decode_answer(answer, copy, bytes);

	/* The body is looked at through the caller's own bytes. */
	if (result > 0)
		answer->body = from + ((const uint8_t *)answer->body - copy);
	free(copy);
	return result;
}

START_TEST(every_truncation_of_the_golden_answers)
{
	FILE *file = unit_open_vectors("frames.tsv");
	struct golden golden;

	while (next_golden(file, &golden)) {
		struct lb_answer answer;

		for (size_t n = 0; n < golden.answer_bytes; n++)
			ck_assert_int_eq(decode_exactly(&answer, golden.answer, n), 0);
		/* What comes behind is the next answer's. */
		ck_assert_int_eq(decode_exactly(&answer, golden.answer, golden.answer_bytes + 1), golden.answer_bytes);
		ck_assert_uint_eq(answer.body_bytes, golden.answer_bytes - LENGTH_BYTES - HEADER_BYTES);
		ck_assert_ptr_eq(answer.body, golden.answer + LENGTH_BYTES + HEADER_BYTES);
	}
	fclose(file);
}
END_TEST

static int64_t
decode_head(struct lb_answer *answer, int32_t length, int16_t error_code, size_t bytes)
{
	uint8_t head[LENGTH_BYTES + HEADER_BYTES];

	bytes_put_i32(head, length);
	bytes_put_i32(head + 4, 42);
	bytes_put_i16(head + 8, error_code);
	return decode_exactly(answer, head, bytes);
}

START_TEST(lengths_of_answers)
{
	static const int32_t wrong[] = { INT32_MIN, -1, 0, 1, 5, LB_FRAME_MAX_BYTES + 1, INT32_MAX };
	struct lb_answer answer;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ck_assert_int_eq(decode_head(&answer, wrong[i], 0, 3), 0);
		for (size_t n = 4; n <= 10; n++)
			ck_assert_int_eq(decode_head(&answer, wrong[i], 0, n), -1);
	}
	ck_assert_int_eq(decode_head(&answer, LB_FRAME_MAX_BYTES, 0, 10), 0);
	ck_assert_int_eq(decode_head(&answer, 6, 0, 10), 10);
	ck_assert(answer.correlation_id == 42 && answer.error_code == 0 && answer.body_bytes == 0);
}
END_TEST

START_TEST(error_codes_of_answers)
{
	static const int16_t codes[] = { 1, 6, 7, INT16_MAX };
	struct lb_answer answer;

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		ck_assert_int_eq(decode_head(&answer, 6, codes[i], 10), 10);
		ck_assert_int_eq(answer.error_code, codes[i]);
		/* Nothing may stand behind it, which is known before it has come. */
		ck_assert_int_eq(decode_head(&answer, 7, codes[i], 9), 0);
		ck_assert_int_eq(decode_head(&answer, 7, codes[i], 10), -1);
	}
	/* Those numbers are the library's own: none may come from outside. */
	ck_assert_int_eq(decode_head(&answer, 6, -1, 10), -1);
	ck_assert_int_eq(decode_head(&answer, 6, LB_OUTCOME_UNKNOWN, 10), -1);
	ck_assert_int_eq(decode_head(&answer, 6, INT16_MIN, 10), -1);
}
END_TEST

START_TEST(an_answer_of_eight_mebibytes)
{
	size_t bytes = LENGTH_BYTES + LB_FRAME_MAX_BYTES;
	uint8_t *frame = calloc(1, bytes);
	struct lb_answer answer;
	struct lb_fetched fetched;

	codec_put_fetch_answer(frame, 5, 9, LB_FETCH_MAX_BYTES);
	ck_assert_int_eq(lb_decode_answer(&answer, frame, bytes - 1), 0);
	ck_assert_int_eq(lb_decode_answer(&answer, frame, bytes), bytes);
	ck_assert_int_eq(lb_decode_fetched(&fetched, &answer), LB_OK);
	ck_assert(fetched.high_watermark == 9 && fetched.payload_bytes == LB_FETCH_MAX_BYTES);
	free(frame);
}
END_TEST

/* A body under construction. */
static uint8_t body[1024], *body_end;

static void
put_name(const char *name)
{
	body_end = bytes_put_u16(body_end, (uint16_t)strlen(name));
	memcpy(body_end, name, strlen(name));
	body_end += strlen(name);
}

static struct lb_answer
body_answer(size_t bytes)
{
	return (struct lb_answer){ 1, 0, body, bytes };
}

static enum lb_code
produced_of(int64_t base, int64_t end)
{
	struct lb_produced produced;
	struct lb_answer answer = body_answer(16);

	bytes_put_i64(bytes_put_i64(body, base), end);
	return lb_decode_produced(&produced, &answer);
}

START_TEST(bodies_of_produce)
{
	struct lb_produced produced = { 11, 12 };
	struct lb_answer answer;

	ck_assert_int_eq(produced_of(0, 1), LB_OK);
	ck_assert_int_eq(produced_of(INT64_MAX - 1, INT64_MAX), LB_OK);
	ck_assert_int_eq(produced_of(-1, 1), LB_BAD_ANSWER);
	ck_assert_int_eq(produced_of(INT64_MIN, INT64_MAX), LB_BAD_ANSWER);
	ck_assert_int_eq(produced_of(5, 5), LB_BAD_ANSWER);
	ck_assert_int_eq(produced_of(5, 4), LB_BAD_ANSWER);
	ck_assert_int_eq(produced_of(5, -1), LB_BAD_ANSWER);
	bytes_put_i64(bytes_put_i64(body, 0), 1);
	for (size_t n = 0; n < sizeof(body); n++) {
		answer = body_answer(n);
		ck_assert_int_eq(lb_decode_produced(&produced, &answer), n == 16 ? LB_OK : LB_BAD_ANSWER);
	}
	answer = body_answer(16);
	answer.error_code = 1;
	ck_assert_int_eq(lb_decode_produced(&produced, &answer), LB_BAD_ANSWER);
}
END_TEST

START_TEST(bodies_of_fetch)
{
	static const struct {
		int64_t high_watermark;
		int32_t payload_bytes;
		size_t behind;
		bool good;
	} cases[] = {
		{ 0, 0, 0, true }, { INT64_MAX, 7, 7, true }, { 3, 7, 6, false }, { 3, 7, 8, false }, { 3, 0, 1, false },
		{ -1, 0, 0, false }, { 3, -1, 0, false }, { 3, INT32_MAX, 7, false }, { 3, INT32_MIN, 0, false },
		{ INT64_MIN, 0, 0, false },
	};
	struct lb_fetched fetched;
	struct lb_answer answer;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bytes_put_i32(bytes_put_i64(body, cases[i].high_watermark), cases[i].payload_bytes);
		answer = body_answer(12 + cases[i].behind);
		ck_assert_msg((lb_decode_fetched(&fetched, &answer) == LB_OK) == cases[i].good, "case %zu", i);
	}
	for (size_t n = 0; n < 12; n++) {
		memset(body, 0, 12);
		answer = body_answer(n);
		ck_assert_int_eq(lb_decode_fetched(&fetched, &answer), LB_BAD_ANSWER);
	}
	answer = (struct lb_answer){ 1, LB_STORAGE_FAILURE, body, 12 };
	ck_assert_int_eq(lb_decode_fetched(&fetched, &answer), LB_BAD_ANSWER);
}
END_TEST

/* ---- METADATA ---- */

struct partition {
	int32_t number;
	int64_t log_start, high_watermark;
	int32_t group;
};

static void
put_topic(int16_t version, const char *name, int8_t format, int32_t count)
{
	put_name(name);
	if (version == 2)
		*body_end++ = (uint8_t)format;
	body_end = bytes_put_i32(body_end, count);
}

static void
put_partition(int16_t version, struct partition partition)
{
	body_end = codec_put_metadata_partition(body_end, version, partition.number, partition.log_start,
	    partition.high_watermark, partition.group);
}

/* Three topics, of which no name is a beginning of all others. */
static size_t
put_three_topics(int16_t version)
{
	body_end = bytes_put_i32(body, 3);
	put_topic(version, "a", LB_PLAIN, 1);
	put_partition(version, (struct partition){ 0, 0, 0, 1 });
	put_topic(version, "a-b", LB_CRC32C, 2);
	put_partition(version, (struct partition){ 0, 5, 9, 0 });
	put_partition(version, (struct partition){ 1, INT64_MAX, INT64_MAX, INT32_MAX });
	put_topic(version, "a.b", LB_CRC32C, 1);
	put_partition(version, (struct partition){ 0, 1, 1, 3 });
	return (size_t)(body_end - body);
}

static enum lb_code
metadata_of(int16_t version, size_t bytes)
{
	uint8_t *copy = exact_copy(body, bytes);
	struct lb_answer answer = { 1, 0, copy, bytes };
	struct lb_metadata *metadata = (struct lb_metadata *)(uintptr_t)1;
	enum lb_code code = lb_decode_metadata(&metadata, version, &answer);

	ck_assert_int_eq(metadata != NULL, code == LB_OK);
	lb_metadata_free(metadata);
	free(copy);
	return code;
}

static bool
within(const struct lb_metadata *metadata, const void *place, size_t bytes)
{
	const char *from = (const char *)metadata, *to = from + malloc_usable_size((void *)(uintptr_t)metadata);

	return (const char *)place >= from && (const char *)place + bytes <= to;
}

START_TEST(metadata_is_one_block)
{
	int16_t version = (int16_t)_i;
	struct lb_answer answer = body_answer(put_three_topics(version));
	struct lb_metadata *metadata;

	ck_assert_int_eq(lb_decode_metadata(&metadata, version, &answer), LB_OK);
	memset(body, 0xFF, sizeof(body));	/* nothing points back into the answer */
	ck_assert(metadata->version == version && metadata->topic_count == 3);
	ck_assert(within(metadata, metadata->topics, 3 * sizeof(*metadata->topics)));
	for (int32_t t = 0; t < 3; t++) {
		const struct lb_topic_metadata *topic = &metadata->topics[t];

		ck_assert(within(metadata, topic->name, strlen(topic->name) + 1));
		ck_assert(within(metadata, topic->partitions, (size_t)topic->partition_count * sizeof(*topic->partitions)));
		ck_assert_uint_eq((uintptr_t)topic->partitions % _Alignof(struct lb_partition_metadata), 0);
		ck_assert_ptr_eq(lb_metadata_find(metadata, topic->name), topic);
	}
	ck_assert_str_eq(metadata->topics[1].name, "a-b");
	ck_assert_int_eq(metadata->topics[0].record_format, version == 2 ? LB_PLAIN : LB_CRC32C);
	ck_assert_int_eq(metadata->topics[1].partition_count, 2);
	ck_assert_int_eq(metadata->topics[1].partitions[0].log_start_offset, 5);
	ck_assert_int_eq(metadata->topics[1].partitions[0].high_watermark, 9);
	ck_assert_int_eq(metadata->topics[1].partitions[1].partition, 1);
	ck_assert_int_eq(metadata->topics[1].partitions[1].group, version == 2 ? INT32_MAX : -1);
	ck_assert_ptr_null(lb_metadata_find(metadata, ""));
	ck_assert_ptr_null(lb_metadata_find(metadata, "a-"));
	ck_assert_ptr_null(lb_metadata_find(metadata, "b"));
	lb_metadata_free(metadata);
}
END_TEST

START_TEST(metadata_without_topics)
{
	struct lb_answer answer = body_answer(4);
	struct lb_metadata *metadata;

	bytes_put_i32(body, 0);
	ck_assert_int_eq(lb_decode_metadata(&metadata, 2, &answer), LB_OK);
	ck_assert_int_eq(metadata->topic_count, 0);
	ck_assert_ptr_null(lb_metadata_find(metadata, "a"));
	lb_metadata_free(metadata);
	lb_metadata_free(NULL);
}
END_TEST

START_TEST(every_truncation_of_metadata)
{
	int16_t version = (int16_t)_i;
	size_t bytes = put_three_topics(version);

	for (size_t n = 0; n < bytes; n++)
		ck_assert_int_eq(metadata_of(version, n), LB_BAD_ANSWER);
	ck_assert_int_eq(metadata_of(version, bytes), LB_OK);
	ck_assert_int_eq(metadata_of(version, bytes + 1), LB_BAD_ANSWER);
	/* The other version's layout, and versions that there are not. */
	ck_assert_int_eq(metadata_of((int16_t)(3 - version), bytes), LB_BAD_ANSWER);
	ck_assert_int_eq(metadata_of(0, bytes), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(metadata_of(3, bytes), LB_INVALID_ARGUMENT);
}
END_TEST

START_TEST(wrong_numbers_in_metadata)
{
	static const struct {
		int32_t topics;
		int8_t format;
		int32_t count;
		struct partition partitions[2];
		bool good;
	} cases[] = {
		{ 1, 1, 2, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, true },
		{ 0, 1, 2, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ 2, 1, 2, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ -1, 1, 2, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ INT32_MAX, 1, 2, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ 1, 2, 2, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ 1, -1, 2, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ 1, 1, 0, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ 1, 1, 1, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ 1, 1, 3, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ 1, 1, -1, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ 1, 1, INT32_MAX, { { 0, 0, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ 1, 1, 2, { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } }, false },
		{ 1, 1, 2, { { 0, 0, 0, 0 }, { 2, 0, 0, 0 } }, false },
		{ 1, 1, 2, { { 1, 0, 0, 0 }, { 0, 0, 0, 0 } }, false },
		{ 1, 1, 2, { { -1, 0, 0, 0 }, { 0, 0, 0, 0 } }, false },
		{ 1, 1, 2, { { 0, -1, 0, 0 }, { 1, 0, 0, 0 } }, false },
		{ 1, 1, 2, { { 0, 0, -1, 0 }, { 1, 0, 0, 0 } }, false },
		{ 1, 1, 2, { { 0, 6, 5, 0 }, { 1, 0, 0, 0 } }, false },
		{ 1, 1, 2, { { 0, 0, 0, 0 }, { 1, 0, 0, -1 } }, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		body_end = bytes_put_i32(body, cases[i].topics);
		put_topic(2, "topic", cases[i].format, cases[i].count);
		put_partition(2, cases[i].partitions[0]);
		put_partition(2, cases[i].partitions[1]);
		ck_assert_msg(metadata_of(2, (size_t)(body_end - body)) == (cases[i].good ? LB_OK : LB_BAD_ANSWER), "case %zu", i);
	}
}
END_TEST

static enum lb_code
two_topics(const char *first, const char *second)
{
	body_end = bytes_put_i32(body, 2);
	put_topic(2, first, 1, 1);
	put_partition(2, (struct partition){ 0, 0, 0, 0 });
	put_topic(2, second, 1, 1);
	put_partition(2, (struct partition){ 0, 0, 0, 0 });
	return metadata_of(2, (size_t)(body_end - body));
}

START_TEST(names_in_metadata)
{
	char longest[LB_TOPIC_NAME_MAX + 2];

	memset(longest, 'z', sizeof(longest));
	longest[LB_TOPIC_NAME_MAX] = '\0';
	ck_assert_int_eq(two_topics("a", "b"), LB_OK);
	ck_assert_int_eq(two_topics("Z", "a"), LB_OK);
	ck_assert_int_eq(two_topics("a", "aa"), LB_OK);
	ck_assert_int_eq(two_topics("a", longest), LB_OK);
	ck_assert_int_eq(two_topics("a", "a"), LB_BAD_ANSWER);
	ck_assert_int_eq(two_topics("b", "a"), LB_BAD_ANSWER);
	ck_assert_int_eq(two_topics("a", "Z"), LB_BAD_ANSWER);
	ck_assert_int_eq(two_topics("aa", "a"), LB_BAD_ANSWER);
	ck_assert_int_eq(two_topics("", "a"), LB_BAD_ANSWER);
	ck_assert_int_eq(two_topics(".", "a"), LB_BAD_ANSWER);
	ck_assert_int_eq(two_topics("..", "a"), LB_BAD_ANSWER);
	ck_assert_int_eq(two_topics("a", "b/c"), LB_BAD_ANSWER);
	longest[LB_TOPIC_NAME_MAX] = 'z';
	longest[LB_TOPIC_NAME_MAX + 1] = '\0';
	ck_assert_int_eq(two_topics("a", longest), LB_BAD_ANSWER);
	/* A NUL inside would end the name early. */
	put_three_topics(2);
	body[6] = '\0';
	ck_assert_int_eq(metadata_of(2, (size_t)(body_end - body)), LB_BAD_ANSWER);
}
END_TEST

/* A topic of as many partitions as there may be, and as many topics as an answer holds. */
START_TEST(large_metadata)
{
	enum { PARTITIONS = 99999, TOPICS = 100000 };
	size_t bytes = 4 + 2 + 5 + 1 + 4 + PARTITIONS * (size_t)24;
	uint8_t *large = malloc(TOPICS * (size_t)(2 + 6 + 1 + 4 + 24)), *end = bytes_put_i32(large, 1);
	struct lb_answer answer = { 1, 0, large, bytes };
	struct lb_metadata *metadata;
	char name[16];

	end = codec_put_metadata_topic(end, 2, "large", 5, 1, PARTITIONS);
	for (int32_t i = 0; i < PARTITIONS; i++)
		end = codec_put_metadata_partition(end, 2, i, i, 2 * (int64_t)i, i % 7);
	ck_assert_uint_eq(end - large, bytes);
	ck_assert_int_eq(lb_decode_metadata(&metadata, 2, &answer), LB_OK);
	ck_assert_int_eq(metadata->topics[0].partitions[PARTITIONS - 1].high_watermark, 2 * (PARTITIONS - 1));
	lb_metadata_free(metadata);
	end = bytes_put_i32(large, TOPICS - 1);
	for (int32_t i = 1; i < TOPICS; i++) {
		snprintf(name, sizeof(name), "t%05d", (int)i);
		end = codec_put_metadata_topic(end, 2, name, 6, 0, 1);
		end = codec_put_metadata_partition(end, 2, 0, i, i, 0);
	}
	answer.body_bytes = (size_t)(end - large);
	ck_assert_int_eq(lb_decode_metadata(&metadata, 2, &answer), LB_OK);
	for (int32_t i = 1; i < TOPICS; i++) {
		snprintf(name, sizeof(name), "t%05d", (int)i);
		ck_assert_int_eq(lb_metadata_find(metadata, name)->partitions[0].high_watermark, i);
	}
	lb_metadata_free(metadata);
	free(large);
}
END_TEST

/* ---- answers held against their requests ---- */

START_TEST(golden_answers_fit_their_requests)
{
	FILE *file = unit_open_vectors("frames.tsv");
	struct golden golden;
	int fit = 0;

	while (next_golden(file, &golden)) {
		int16_t key = bytes_get_i16(golden.request + LENGTH_BYTES);
		struct lb_answer answer;
		struct lb_produced produced;
		struct lb_fetched fetched;
		struct lb_metadata *metadata = NULL;

		ck_assert_int_gt(lb_decode_answer(&answer, golden.answer, golden.answer_bytes), 0);
		if (answer.error_code != 0)
			continue;
		fit += (key == CODEC_PRODUCE && lb_read_produced(&produced, &answer, golden.request) == LB_OK) ||
		    (key == CODEC_FETCH && lb_read_fetched(&fetched, &answer, golden.request) == LB_OK) ||
		    (key == CODEC_METADATA && lb_read_metadata(&metadata, &answer, golden.request) == LB_OK);
		lb_metadata_free(metadata);
	}
	fclose(file);
	ck_assert_int_eq(fit, 6);
}
END_TEST

START_TEST(produced_for_fewer_records_than_were_sent)
{
	uint8_t frame[256];
	struct lb_answer answer = body_answer(16);
	struct lb_produced produced;

	/* Three records. */
	encode_nth(0, frame, sizeof(frame));
	bytes_put_i64(bytes_put_i64(body, 100), 103);
	ck_assert_int_eq(lb_read_produced(&produced, &answer, frame), LB_OK);
	ck_assert(produced.base_offset == 100 && produced.log_end_offset == 103);
	bytes_put_i64(bytes_put_i64(body, 100), 200);
	ck_assert_int_eq(lb_read_produced(&produced, &answer, frame), LB_OK);
	bytes_put_i64(bytes_put_i64(body, 100), 102);
	ck_assert_int_eq(lb_read_produced(&produced, &answer, frame), LB_BAD_ANSWER);
	bytes_put_i64(bytes_put_i64(body, INT64_MAX - 2), INT64_MAX);
	ck_assert_int_eq(lb_read_produced(&produced, &answer, frame), LB_BAD_ANSWER);
	answer.body_bytes = 15;
	ck_assert_int_eq(lb_read_produced(&produced, &answer, frame), LB_BAD_ANSWER);
}
END_TEST

START_TEST(fetched_that_was_not_asked_for)
{
	static const struct {
		int16_t version;
		int64_t high_watermark;
		int32_t payload_bytes;
		bool good;
	} cases[] = {
		{ 1, 51, 100, true }, { 2, 51, 100, true }, { 1, 50, 0, true }, { 2, INT64_MAX, 1, true },
		{ 1, 51, 101, false }, { 2, 51, 101, false }, { 1, 49, 0, false }, { 2, 50, 1, false }, { 2, 0, 0, false },
	};
	uint8_t frame[256];
	struct lb_fetched fetched;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct lb_answer answer = body_answer(12 + (size_t)cases[i].payload_bytes);

		lb_encode_fetch(frame, sizeof(frame), cases[i].version, 1, "topic", 3, 50, 100, 0, 0);
		bytes_put_i32(bytes_put_i64(body, cases[i].high_watermark), cases[i].payload_bytes);
		ck_assert_msg((lb_read_fetched(&fetched, &answer, frame) == LB_OK) == cases[i].good, "case %zu", i);
	}
}
END_TEST

static enum lb_code
read_metadata_of(int16_t version, const char *const *topics, size_t topic_count)
{
	struct lb_answer answer = body_answer(put_three_topics(version));
	struct lb_metadata *metadata = NULL;
	uint8_t frame[256];
	enum lb_code code;

	ck_assert_uint_gt(lb_encode_metadata(frame, sizeof(frame), version, 1, topics, topic_count), 0);
	code = lb_read_metadata(&metadata, &answer, frame);
	ck_assert_int_eq(metadata != NULL, code == LB_OK);
	lb_metadata_free(metadata);
	return code;
}

START_TEST(metadata_without_a_topic_that_was_asked_for)
{
	static const char *const there[] = { "a.b", "a", "a-b", "a" }, *const more[] = { "a", "a-b", "a.b", "ab" };
	int16_t version = (int16_t)_i;

	ck_assert_int_eq(read_metadata_of(version, NULL, 0), LB_OK);
	for (size_t n = 1; n <= 4; n++) {
		ck_assert_int_eq(read_metadata_of(version, there, n), LB_OK);
		ck_assert_int_eq(read_metadata_of(version, more, n), n < 4 ? LB_OK : LB_BAD_ANSWER);
	}
}
END_TEST

/* ---- the walk ---- */

enum { FIRST_OFFSET = 1000, RECORDS = 5, PAYLOAD_MAX = 128 };

static const char *const texts[RECORDS] = { "a", "bcd", "a rather longer record", "\n", "end" };

struct payload {
	uint8_t bytes[PAYLOAD_MAX];
	size_t size;
	size_t ends[RECORDS + 1];	/* where each record begins, and the last one ends */
};

static struct payload
make_payload(enum record_format format)
{
	struct payload payload = { .size = 0 };
	uint8_t *end = payload.bytes;

	for (int i = 0; i < RECORDS; i++) {
		end = record_put(end, format, (const uint8_t *)texts[i], strlen(texts[i]));
		payload.ends[i + 1] = (size_t)(end - payload.bytes);
	}
	payload.size = payload.ends[RECORDS];
	return payload;
}

static void
expect_record(const struct lb_record *record, int number)
{
	ck_assert_int_eq(record->offset, FIRST_OFFSET + number);
	ck_assert_uint_eq(record->bytes, strlen(texts[number]));
	ck_assert_mem_eq(record->data, texts[number], record->bytes);
}

/* What ended the walk, as often as it is asked. */
static enum lb_walk_result
expect_end(struct lb_walk *walk, enum lb_walk_result result, const struct lb_record *record)
{
	for (int i = 0; i < 2; i++) {
		struct lb_record again;

		ck_assert_int_eq(lb_walk_next(walk, &again), result);
		ck_assert(again.offset == record->offset && again.bytes == record->bytes && again.data == NULL);
	}
	ck_assert_ptr_null(record->data);
	return result;
}

static void
walk_cut(const struct payload *payload, enum lb_record_format format, size_t cut)
{
	uint8_t *copy = exact_copy(payload->bytes, cut);
	struct lb_walk walk;
	struct lb_record record;
	int whole = 0;
	enum lb_walk_result result, wanted;

	lb_walk_begin(&walk, format, FIRST_OFFSET, copy, cut);
	while ((result = lb_walk_next(&walk, &record)) == LB_WALK_RECORD)
		expect_record(&record, whole++);
	expect_end(&walk, result, &record);
	ck_assert(payload->ends[whole] <= cut && (whole == RECORDS || cut < payload->ends[whole + 1]));
	ck_assert_int_eq(record.offset, FIRST_OFFSET + whole);
	wanted = payload->ends[whole] == cut ? LB_WALK_END : whole > 0 ? LB_WALK_CUT : LB_WALK_EXCEEDS;
	ck_assert_int_eq(result, wanted);
	ck_assert_uint_eq(record.bytes, wanted != LB_WALK_END && cut - payload->ends[whole] >= 4 ? strlen(texts[whole]) : 0);
	free(copy);
}

START_TEST(a_payload_cut_anywhere)
{
	struct payload payload = make_payload((enum record_format)_i);

	for (size_t cut = 0; cut <= payload.size; cut++)
		walk_cut(&payload, (enum lb_record_format)_i, cut);
}
END_TEST

/* Every record up to the flipped one comes unchanged; with sums, the flipped one never comes. */
static void
walk_flipped(const struct payload *payload, enum lb_record_format format, size_t bit)
{
	uint8_t *copy = exact_copy(payload->bytes, payload->size);
	struct lb_walk walk;
	struct lb_record record;
	int whole = 0, flipped = 0;
	enum lb_walk_result result;

	while (payload->ends[flipped + 1] <= bit / 8)
		flipped++;
	copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
	lb_walk_begin(&walk, format, FIRST_OFFSET, copy, payload->size);
	while ((result = lb_walk_next(&walk, &record)) == LB_WALK_RECORD) {
		ck_assert_int_eq(record.offset, FIRST_OFFSET + whole);
		ck_assert((const uint8_t *)record.data > copy && record.bytes > 0);
		ck_assert((const uint8_t *)record.data + record.bytes <= copy + payload->size);
		if (whole < flipped)
			expect_record(&record, whole);
		whole++;
	}
	expect_end(&walk, result, &record);
	ck_assert_int_eq(record.offset, FIRST_OFFSET + whole);
	ck_assert_int_ge(whole, flipped);
	if (format == LB_CRC32C) {
		ck_assert_int_eq(whole, flipped);
		ck_assert_int_ne(result, LB_WALK_END);
	}
	free(copy);
}

START_TEST(every_bit_of_a_payload_flipped)
{
	struct payload payload = make_payload((enum record_format)_i);

	for (size_t bit = 0; bit < 8 * payload.size; bit++)
		walk_flipped(&payload, (enum lb_record_format)_i, bit);
}
END_TEST

static enum lb_walk_result
walk_lengths(enum lb_record_format format, int32_t first, int32_t second, size_t bytes, struct lb_record *record)
{
	struct lb_walk walk;
	enum lb_walk_result result;
	uint8_t whole[32], *end = whole, *copy;

	/* With a first record, or with what stands in its place. */
	if (first > 0)
		end = record_put(end, (enum record_format)format, (const uint8_t *)"x", 1);
	end = bytes_put_i32(end, second);
	memset(end, 0, bytes);
	copy = exact_copy(whole, (size_t)(end - whole) + bytes);
	lb_walk_begin(&walk, format, 7, copy, (size_t)(end - whole) + bytes);
	if (first > 0)
		ck_assert_int_eq(lb_walk_next(&walk, record), LB_WALK_RECORD);
	result = lb_walk_next(&walk, record);
	ck_assert_int_eq(record->offset, first > 0 ? 8 : 7);
	result = expect_end(&walk, result, record);
	free(copy);
	return result;
}

/* Lengths that no record has are not a cut, nor a record that is too large: asking again would give the same for ever. */
START_TEST(impossible_lengths_are_corrupt_also_when_cut)
{
	enum lb_record_format format = (enum lb_record_format)_i;
	int32_t largest = record_max_payload((enum record_format)format);
	const int32_t wrong[] = { 0, -1, INT32_MIN, largest + 1, INT32_MAX };
	struct lb_record record;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		for (size_t behind = 0; behind < 8; behind++) {
			ck_assert_int_eq(walk_lengths(format, 0, wrong[i], behind, &record), LB_WALK_CORRUPT);
			ck_assert_int_eq(walk_lengths(format, 1, wrong[i], behind, &record), LB_WALK_CORRUPT);
		}
	}
	ck_assert_int_eq(walk_lengths(format, 0, largest, 3, &record), LB_WALK_EXCEEDS);
	ck_assert_uint_eq(record.bytes, (size_t)largest);
	ck_assert_int_eq(walk_lengths(format, 1, largest, 3, &record), LB_WALK_CUT);
	ck_assert_uint_eq(record.bytes, (size_t)largest);
}
END_TEST

/* The largest record fills the largest answer to its last byte. */
START_TEST(the_largest_record)
{
	enum record_format format = (enum record_format)_i;
	size_t size = (size_t)record_max_payload(format);
	uint8_t *data = calloc(1, size), *payload = malloc(LB_FETCH_MAX_BYTES);
	struct lb_walk walk;
	struct lb_record record;

	data[size - 1] = 1;
	ck_assert_ptr_eq(record_put(payload, format, data, size), payload + LB_FETCH_MAX_BYTES);
	lb_walk_begin(&walk, (enum lb_record_format)format, 0, payload, LB_FETCH_MAX_BYTES);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_RECORD);
	ck_assert_uint_eq(record.bytes, size);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_END);
	lb_walk_begin(&walk, (enum lb_record_format)format, 0, payload, LB_FETCH_MAX_BYTES - 1);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_EXCEEDS);
	ck_assert_uint_eq(record.bytes, size);
	free(payload);
	free(data);
}
END_TEST

START_TEST(sums_of_the_golden_payloads)
{
	FILE *file = unit_open_vectors("crc32c.tsv");
	char line[4096];
	int vectors = 0;

	while (fgets(line, sizeof(line), file) != NULL) {
		uint8_t payload[1024];
		char *field = strchr(line, '\t');
		size_t size;
		struct lb_walk walk;
		struct lb_record record;

		/* An empty record does not exist: that vector is for the sum alone. */
		if (line[0] == '#' || field == line)
			continue;
		ck_assert_ptr_nonnull(field);
		size = unit_from_hex(line, (size_t)(field - line), payload + 8);
		bytes_put_u32(bytes_put_i32(payload, (int32_t)size), (uint32_t)strtoul(field + 1, NULL, 10));
		lb_walk_begin(&walk, LB_CRC32C, 3, payload, 8 + size);
		ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_RECORD);
		ck_assert(record.offset == 3 && record.bytes == size && record.data == payload + 8);
		payload[4] ^= 1;
		lb_walk_begin(&walk, LB_CRC32C, 3, payload, 8 + size);
		ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_CORRUPT);
		ck_assert_int_eq(record.offset, 3);
		vectors++;
	}
	fclose(file);
	ck_assert_int_eq(vectors, 7);
}
END_TEST

/* The last number there is cannot be a record's: the next position would have none. */
START_TEST(offsets_have_an_end)
{
	struct payload payload = make_payload(RECORD_CRC32C);
	struct lb_walk walk;
	struct lb_record record;

	lb_walk_begin(&walk, LB_CRC32C, INT64_MAX - 1, payload.bytes, payload.size);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_RECORD);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_CORRUPT);
	ck_assert_int_eq(record.offset, INT64_MAX);
	lb_walk_begin(&walk, LB_CRC32C, INT64_MAX, NULL, 0);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_END);
}
END_TEST

static void
add_requests_and_answers(TCase *tests)
{
	tcase_add_test(tests, topic_names);
	tcase_add_test(tests, partitions_of_the_golden_keys);
	tcase_add_test(tests, codes_have_names);
	tcase_add_test(tests, golden_frames_both_ways);
	tcase_add_test(tests, golden_records);
	tcase_add_loop_test(tests, too_little_capacity_writes_nothing, 0, KINDS_OF_REQUEST);
	tcase_add_loop_test(tests, a_frame_is_its_bytes_and_no_more, 0, KINDS_OF_REQUEST);
	tcase_add_test(tests, fields_arrive_at_the_broker);
	tcase_add_test(tests, what_produce_does_not_allow);
	tcase_add_test(tests, what_fetch_does_not_allow);
	tcase_add_test(tests, what_metadata_does_not_allow);
	tcase_add_test(tests, requests_up_to_eight_mebibytes);
	tcase_add_test(tests, names_up_to_eight_mebibytes);
	tcase_add_test(tests, every_truncation_of_the_golden_answers);
	tcase_add_test(tests, lengths_of_answers);
	tcase_add_test(tests, error_codes_of_answers);
	tcase_add_test(tests, an_answer_of_eight_mebibytes);
	tcase_add_test(tests, bodies_of_produce);
	tcase_add_test(tests, bodies_of_fetch);
}

static void
add_metadata_and_walk(TCase *tests)
{
	tcase_add_loop_test(tests, metadata_is_one_block, 1, 3);
	tcase_add_test(tests, metadata_without_topics);
	tcase_add_loop_test(tests, every_truncation_of_metadata, 1, 3);
	tcase_add_test(tests, wrong_numbers_in_metadata);
	tcase_add_test(tests, names_in_metadata);
	tcase_add_test(tests, large_metadata);
	tcase_add_test(tests, golden_answers_fit_their_requests);
	tcase_add_test(tests, produced_for_fewer_records_than_were_sent);
	tcase_add_test(tests, fetched_that_was_not_asked_for);
	tcase_add_loop_test(tests, metadata_without_a_topic_that_was_asked_for, 1, 3);
	tcase_add_loop_test(tests, a_payload_cut_anywhere, LB_PLAIN, LB_CRC32C + 1);
	tcase_add_loop_test(tests, every_bit_of_a_payload_flipped, LB_PLAIN, LB_CRC32C + 1);
	tcase_add_loop_test(tests, impossible_lengths_are_corrupt_also_when_cut, LB_PLAIN, LB_CRC32C + 1);
	tcase_add_loop_test(tests, the_largest_record, LB_PLAIN, LB_CRC32C + 1);
	tcase_add_test(tests, sums_of_the_golden_payloads);
	tcase_add_test(tests, offsets_have_an_end);
}

int
main(void)
{
	Suite *suite = suite_create("lib_codec");
	TCase *tests = tcase_create("lib_codec");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	add_requests_and_answers(tests);
	add_metadata_and_walk(tests);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
