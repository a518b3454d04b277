/* The codec, and the bytes under it: golden frames, every truncation and every bound of each request, routing. */
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/codec.h"
#include "common/record.h"
#include "tests/unit.h"

/* A frame under construction; `frame` is what stands behind the length word. */
struct builder {
	uint8_t frame[4096];
	uint8_t *end;
};

static struct builder b;

static void
begin(int16_t key, int16_t version, int32_t id)
{
	b.end = bytes_put_i16(b.frame, key);
	b.end = bytes_put_i16(b.end, version);
	b.end = bytes_put_i32(b.end, id);
}

static void
put_i8(int value)
{
	*b.end++ = (uint8_t)value;
}

static void
put_i32(int32_t value)
{
	b.end = bytes_put_i32(b.end, value);
}

static void
put_i64(int64_t value)
{
	b.end = bytes_put_i64(b.end, value);
}

static void
put_text(const char *text)
{
	memcpy(b.end, text, strlen(text));
	b.end += strlen(text);
}

static void
put_name(const char *name)
{
	b.end = bytes_put_u16(b.end, (uint16_t)strlen(name));
	put_text(name);
}

static size_t
frame_bytes(void)
{
	return (size_t)(b.end - b.frame);
}

/* Parses the first `bytes` bytes from memory that ends behind them: any further read is seen by the sanitizers. */
static enum codec_error
parse_first(size_t bytes, struct codec_request *request)
{
	uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
	enum codec_error error;

	memset(request, 0xEE, sizeof(*request));
	memcpy(copy, b.frame, bytes);
	error = codec_parse_request(copy, bytes, request);
	/* The views are compared by the callers through the builder's own bytes. */
	if (error == CODEC_NONE && request->api_key == CODEC_PRODUCE)
		request->records = b.frame + (request->records - copy);
	if (error == CODEC_NONE && request->api_key == CODEC_METADATA)
		request->names = b.frame + (request->names - copy);
	if (error == CODEC_NONE && request->api_key != CODEC_METADATA)
		request->topic.bytes = (const char *)b.frame + ((const uint8_t *)request->topic.bytes - copy);
	free(copy);
	return error;
}

static enum codec_error
parse(struct codec_request *request)
{
	return parse_first(frame_bytes(), request);
}

static void
expect(enum codec_error error)
{
	struct codec_request request;

	ck_assert_int_eq(parse(&request), error);
}

static void
begin_produce(const char *name, int32_t partition, int ack, int32_t count)
{
	begin(CODEC_PRODUCE, 1, 77);
	put_name(name);
	put_i32(partition);
	put_i8(ack);
	put_i32(count);
}

static void
put_record(const char *payload)
{
	put_i32((int32_t)strlen(payload));
	put_text(payload);
}

static void
begin_fetch(int16_t version, int32_t partition, int64_t offset, int32_t max_bytes)
{
	begin(CODEC_FETCH, version, -5);
	put_name("orders");
	put_i32(partition);
	put_i64(offset);
	put_i32(max_bytes);
}

/* ---- Bytes ---- */

START_TEST(integers_are_big_endian_and_signed)
{
	static const uint8_t drawn[] = { 0xFF, 0xFE, 0x80, 0x00, 0x00, 0x01, 0x80, 0, 0, 0, 0, 0, 0, 2, 0xAB, 0xCD };
	uint8_t to[16], *end = to;
	struct bytes_reader r = { drawn, sizeof(drawn), false };

	end = bytes_put_i16(end, -2);
	end = bytes_put_u32(end, 0x80000001);
	end = bytes_put_i64(end, INT64_MIN + 2);
	end = bytes_put_u16(end, 0xABCD);
	ck_assert_ptr_eq(end, to + sizeof(to));
	ck_assert_mem_eq(to, drawn, sizeof(to));
	ck_assert_int_eq(bytes_take_i16(&r), -2);
	ck_assert_int_eq(bytes_take_i32(&r), INT32_MIN + 1);
	ck_assert_int_eq(bytes_take_i64(&r), INT64_MIN + 2);
	ck_assert_uint_eq(bytes_take_u16(&r), 0xABCD);
	ck_assert(!r.bad);
	ck_assert_uint_eq(r.left, 0);
}
END_TEST

START_TEST(a_reader_never_leaves_its_bytes)
{
	static const uint8_t p[] = { 1, 2, 3 };
	struct bytes_reader r = { p, sizeof(p), false };

	ck_assert_int_eq(bytes_take_i32(&r), 0);
	ck_assert(r.bad);
	/* Bad for good, also where it would fit. */
	ck_assert_int_eq(bytes_take_i8(&r), 0);
	ck_assert_ptr_null(bytes_take(&r, 0));
	r = (struct bytes_reader){ p, sizeof(p), false };
	ck_assert_ptr_eq(bytes_take(&r, 3), p);
	ck_assert_ptr_nonnull(bytes_take(&r, 0));
	ck_assert_ptr_null(bytes_take(&r, SIZE_MAX));
	ck_assert(r.bad);
}
END_TEST

/* ---- Names ---- */

START_TEST(topic_names)
{
	char name[300];

	ck_assert(codec_topic_name_valid("a", 1));
	ck_assert(codec_topic_name_valid("azAZ09._-", 9));
	ck_assert(codec_topic_name_valid("...", 3));
	ck_assert(codec_topic_name_valid(".a", 2));
	ck_assert(codec_topic_name_valid("-", 1));
	ck_assert(!codec_topic_name_valid("", 0));
	ck_assert(!codec_topic_name_valid(".", 1));
	ck_assert(!codec_topic_name_valid("..", 2));
	memset(name, 'x', sizeof(name));
	ck_assert(codec_topic_name_valid(name, 249));
	ck_assert(!codec_topic_name_valid(name, 250));
	for (int c = 0; c < 256; c++) {
		bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
		    c == '_' || c == '-';

		name[1] = (char)c;
		ck_assert_int_eq(codec_topic_name_valid(name, 3), good);
	}
}
END_TEST

/* ---- PRODUCE ---- */

START_TEST(produce_is_read)
{
	struct codec_request request;

	begin_produce("orders", 7, CODEC_ACK_FORCED, 3);
	put_record("a");
	put_record("bcd");
	put_record("ef");
	ck_assert_int_eq(parse(&request), CODEC_NONE);
	ck_assert_int_eq(request.api_key, CODEC_PRODUCE);
	ck_assert_int_eq(request.api_version, 1);
	ck_assert_int_eq(request.correlation_id, 77);
	ck_assert(!request.silent);
	ck_assert_uint_eq(request.topic.length, 6);
	ck_assert_mem_eq(request.topic.bytes, "orders", 6);
	ck_assert_int_eq(request.partition, 7);
	ck_assert_int_eq(request.ack, CODEC_ACK_FORCED);
	ck_assert_int_eq(request.record_count, 3);
	ck_assert_int_eq(request.largest_payload, 3);
	ck_assert_uint_eq(request.records_bytes, 3 * 4 + 6);
	ck_assert_ptr_eq(request.records, b.end - request.records_bytes);
}
END_TEST

/* Silence begins where the ack byte stands, for any name length in front of it. */
START_TEST(every_truncation_of_a_produce)
{
	size_t ack_end = 8 + 2 + 6 + 4 + 1;
	int ack = _i;

	begin_produce("orders", 7, ack, 2);
	put_record("a");
	put_record("bcd");
	for (size_t bytes = 0; bytes < frame_bytes(); bytes++) {
		struct codec_request request;

		ck_assert_int_eq(parse_first(bytes, &request), CODEC_CORRUPT_REQUEST);
		ck_assert_int_eq(request.correlation_id, bytes < 8 ? 0 : 77);
		ck_assert_int_eq(request.silent, ack == CODEC_ACK_NONE && bytes >= ack_end);
	}
	expect(CODEC_NONE);
	put_i8(0);
	expect(CODEC_CORRUPT_REQUEST);
}
END_TEST

START_TEST(bounds_of_a_produce)
{
	static const int acks[] = { -128, -1, 3, 127 };
	static const int32_t counts[] = { 0, -1, INT32_MIN, 2, INT32_MAX };
	static const int32_t sizes[] = { 0, -1, INT32_MIN, 2, INT32_MAX };

	for (size_t i = 0; i < sizeof(acks) / sizeof(acks[0]); i++) {
		begin_produce("t", 0, acks[i], 1);
		put_record("a");
		expect(CODEC_CORRUPT_REQUEST);
	}
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		begin_produce("t", 0, 1, counts[i]);
		put_record("a");
		expect(CODEC_CORRUPT_REQUEST);
	}
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		begin_produce("t", 0, 1, 1);
		put_i32(sizes[i]);
		put_text("a");
		expect(CODEC_CORRUPT_REQUEST);
	}
	begin_produce("t", -1, 1, 1);
	put_record("a");
	expect(CODEC_CORRUPT_REQUEST);
	begin_produce("t", INT32_MIN, 1, 1);
	put_record("a");
	expect(CODEC_CORRUPT_REQUEST);
	begin_produce("t", INT32_MAX, 1, 1);
	put_record("a");
	expect(CODEC_NONE);
}
END_TEST

START_TEST(an_empty_record_among_others)
{
	begin_produce("t", 0, 1, 3);
	put_record("a");
	put_record("");
	put_record("bbbbbbb");
	expect(CODEC_CORRUPT_REQUEST);
}
END_TEST

START_TEST(names_of_a_produce)
{
	static const char *const bad[] = { "", ".", "..", "a/b", "a b", "\xc3\xa4" };
	char name[301];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		begin_produce(bad[i], 0, 1, 1);
		put_record("a");
		expect(CODEC_CORRUPT_REQUEST);
	}
	memset(name, 'n', sizeof(name));
	name[249] = '\0';
	begin_produce(name, 0, 1, 1);
	put_record("a");
	expect(CODEC_NONE);
	name[249] = 'n';
	name[250] = '\0';
	begin_produce(name, 0, 1, 1);
	put_record("a");
	expect(CODEC_CORRUPT_REQUEST);
}
END_TEST

START_TEST(silence_whatever_is_wrong_behind_the_version)
{
	struct codec_request request;

	/* A name that breaks the rule, a negative partition, no records at all. */
	begin_produce("a b", -1, CODEC_ACK_NONE, 0);
	ck_assert_int_eq(parse(&request), CODEC_CORRUPT_REQUEST);
	ck_assert(request.silent);
	/* A length of the name beyond any rule: the ack byte's place follows from it all the same. */
	begin(CODEC_PRODUCE, 1, 1);
	b.end = bytes_put_u16(b.end, 300);
	memset(b.end, 'x', 300);
	b.end += 300;
	put_i32(0);
	put_i8(CODEC_ACK_NONE);
	ck_assert_int_eq(parse(&request), CODEC_CORRUPT_REQUEST);
	ck_assert(request.silent);
	/* A name that overruns the frame leaves no place for an ack byte. */
	begin(CODEC_PRODUCE, 1, 1);
	b.end = bytes_put_u16(b.end, 6000);
	memset(b.end, 0, 300);
	b.end += 300;
	ck_assert_int_eq(parse(&request), CODEC_CORRUPT_REQUEST);
	ck_assert(!request.silent);
	/* An unknown version comes first: nobody knows where its ack byte stands. */
	begin_produce("t", 0, CODEC_ACK_NONE, 1);
	bytes_put_i16(b.frame + 2, 2);
	put_record("a");
	ck_assert_int_eq(parse(&request), CODEC_UNSUPPORTED_VERSION);
	ck_assert(!request.silent);
	/* Other requests are never silent. */
	begin_fetch(1, 0, 0, 1);
	ck_assert_int_eq(parse(&request), CODEC_NONE);
	ck_assert(!request.silent);
}
END_TEST

/* ---- FETCH ---- */

START_TEST(fetch_is_read)
{
	struct codec_request request;

	begin_fetch(2, 3, INT64_MAX, INT32_MAX);
	put_i32(1000);
	put_i32(12);
	ck_assert_int_eq(parse(&request), CODEC_NONE);
	ck_assert_int_eq(request.correlation_id, -5);
	ck_assert_int_eq(request.partition, 3);
	ck_assert_int_eq(request.fetch_offset, INT64_MAX);
	ck_assert_int_eq(request.max_bytes, INT32_MAX);
	ck_assert_int_eq(request.max_wait_ms, 1000);
	ck_assert_int_eq(request.min_bytes, 12);
	begin_fetch(1, 3, 0, 1);
	ck_assert_int_eq(parse(&request), CODEC_NONE);
	ck_assert_int_eq(request.max_wait_ms, 0);
	ck_assert_int_eq(request.min_bytes, 0);
}
END_TEST

START_TEST(every_truncation_of_a_fetch)
{
	int16_t version = (int16_t)_i;

	begin_fetch(version, 3, 4, 5);
	if (version == 2) {
		put_i32(0);
		put_i32(0);
	}
	for (size_t bytes = 0; bytes < frame_bytes(); bytes++) {
		struct codec_request request;

		ck_assert_int_eq(parse_first(bytes, &request), CODEC_CORRUPT_REQUEST);
		ck_assert_int_eq(request.correlation_id, bytes < 8 ? 0 : -5);
		ck_assert(!request.silent);
	}
	expect(CODEC_NONE);
	put_i8(0);
	expect(CODEC_CORRUPT_REQUEST);
}
END_TEST

START_TEST(bounds_of_a_fetch)
{
	static const struct {
		int32_t partition;
		int64_t offset;
		int32_t max_bytes, wait_ms, min_bytes;
		enum codec_error error;
	} rows[] = {
		{ 0, 0, 1, 0, 0, CODEC_NONE },
		{ 0, 0, 1, 0, 1, CODEC_NONE },
		{ 0, 0, 1, INT32_MAX, 1, CODEC_NONE },
		{ 0, 0, INT32_MAX, 0, INT32_MAX, CODEC_NONE },
		{ -1, 0, 1, 0, 0, CODEC_CORRUPT_REQUEST },
		{ 0, -1, 1, 0, 0, CODEC_CORRUPT_REQUEST },
		{ 0, INT64_MIN, 1, 0, 0, CODEC_CORRUPT_REQUEST },
		{ 0, 0, 0, 0, 0, CODEC_CORRUPT_REQUEST },
		{ 0, 0, -1, 0, 0, CODEC_CORRUPT_REQUEST },
		{ 0, 0, INT32_MIN, 0, 0, CODEC_CORRUPT_REQUEST },
		{ 0, 0, 1, -1, 0, CODEC_CORRUPT_REQUEST },
		{ 0, 0, 1, INT32_MIN, 0, CODEC_CORRUPT_REQUEST },
		{ 0, 0, 1, 0, -1, CODEC_CORRUPT_REQUEST },
		{ 0, 0, 1, 0, 2, CODEC_CORRUPT_REQUEST },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		begin_fetch(2, rows[i].partition, rows[i].offset, rows[i].max_bytes);
		put_i32(rows[i].wait_ms);
		put_i32(rows[i].min_bytes);
		expect(rows[i].error);
	}
}
END_TEST

/* ---- METADATA ---- */

START_TEST(metadata_is_read)
{
	struct codec_request request;
	struct codec_name name;

	for (int16_t version = 1; version <= 2; version++) {
		begin(CODEC_METADATA, version, 9);
		put_i32(2);
		put_name("b");
		put_name("aaa");
		ck_assert_int_eq(parse(&request), CODEC_NONE);
		ck_assert_int_eq(request.api_version, version);
		ck_assert_int_eq(request.topic_count, 2);
		name = codec_next_name(&request);
		ck_assert_uint_eq(name.length, 1);
		ck_assert_mem_eq(name.bytes, "b", 1);
		name = codec_next_name(&request);
		ck_assert_uint_eq(name.length, 3);
		ck_assert_mem_eq(name.bytes, "aaa", 3);
		begin(CODEC_METADATA, version, 9);
		put_i32(0);
		ck_assert_int_eq(parse(&request), CODEC_NONE);
		ck_assert_int_eq(request.topic_count, 0);
	}
}
END_TEST

START_TEST(every_truncation_of_a_metadata)
{
	begin(CODEC_METADATA, 1, 9);
	put_i32(2);
	put_name("b");
	put_name("aaa");
	for (size_t bytes = 0; bytes < frame_bytes(); bytes++) {
		struct codec_request request;

		ck_assert_int_eq(parse_first(bytes, &request), CODEC_CORRUPT_REQUEST);
		ck_assert_int_eq(request.correlation_id, bytes < 8 ? 0 : 9);
	}
	expect(CODEC_NONE);
	put_i8(0);
	expect(CODEC_CORRUPT_REQUEST);
}
END_TEST

START_TEST(bounds_of_a_metadata)
{
	static const int32_t counts[] = { -1, INT32_MIN, 0, 2, INT32_MAX };

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		begin(CODEC_METADATA, 1, 9);
		put_i32(counts[i]);
		put_name("t");
		expect(CODEC_CORRUPT_REQUEST);
	}
	begin(CODEC_METADATA, 1, 9);
	put_i32(1);
	put_name("");
	put_i8('x');
	expect(CODEC_CORRUPT_REQUEST);
	begin(CODEC_METADATA, 1, 9);
	put_i32(1);
	put_name("..");
	expect(CODEC_CORRUPT_REQUEST);
}
END_TEST

/* ---- Versions ---- */

START_TEST(keys_and_versions)
{
	for (int key = -1; key <= 20; key++)
		for (int version = -1; version <= 4; version++) {
			bool known = (key == 1 && version == 1) || ((key == 2 || key == 3) && (version == 1 || version == 2));
			struct codec_request request;

			/* A body that is corrupt for all of them: the version is looked at first. */
			begin((int16_t)key, (int16_t)version, 1234);
			put_i8(0);
			ck_assert_int_eq(parse(&request), known ? CODEC_CORRUPT_REQUEST : CODEC_UNSUPPORTED_VERSION);
			ck_assert_int_eq(request.correlation_id, 1234);
			ck_assert_int_eq(request.api_key, key);
		}
	begin(INT16_MIN, INT16_MAX, INT32_MIN);
	expect(CODEC_UNSUPPORTED_VERSION);
}
END_TEST

START_TEST(a_refused_request_holds_nothing_indeterminate)
{
	struct codec_request request;

	begin(CODEC_FETCH, 7, 1);
	ck_assert_int_eq(parse(&request), CODEC_UNSUPPORTED_VERSION);
	ck_assert_int_eq(request.ack, 0);
	ck_assert_int_eq(request.record_count, 0);
	ck_assert_int_eq(parse_first(3, &request), CODEC_CORRUPT_REQUEST);
	ck_assert_int_eq(request.ack, 0);
	ck_assert_int_eq(request.record_count, 0);
}
END_TEST

/* Random bytes behind good headers: whatever comes out, nothing outside the frame is read. */
START_TEST(random_bodies)
{
	uint32_t state = unit_seed() + (uint32_t)_i;

	for (int round = 0; round < 5000; round++) {
		struct codec_request request;
		size_t bytes = unit_random(&state) % 80;

		begin((int16_t)(1 + unit_random(&state) % 3), (int16_t)(1 + unit_random(&state) % 2), round);
		for (size_t i = 0; i < bytes; i++)
			put_i8((int)(unit_random(&state) % 4 == 0 ? unit_random(&state) % 256 : unit_random(&state) % 3));
		if (parse(&request) == CODEC_NONE && request.api_key == CODEC_METADATA)
			for (int32_t i = 0; i < request.topic_count; i++) {
				struct codec_name name = codec_next_name(&request);

				ck_assert(codec_topic_name_valid(name.bytes, name.length));
			}
		ck_assert_int_eq(request.correlation_id, round);
	}
}
END_TEST

/* ---- Routing ---- */

/* The first `available` bytes with their length word, from memory that ends behind them. */
static enum codec_route
route_first(size_t available, struct codec_name *topic, int32_t *partition)
{
	uint8_t whole[4 + sizeof(b.frame)], *copy = malloc(available > 0 ? available : 1);
	enum codec_route route;

	bytes_put_i32(whole, (int32_t)frame_bytes());
	memcpy(whole + 4, b.frame, frame_bytes());
	memcpy(copy, whole, available);
	route = codec_route(copy, available, topic, partition);
	if (route == CODEC_ROUTE_PARTITION)
		topic->bytes = (const char *)b.frame + ((const uint8_t *)topic->bytes - copy - 4);
	free(copy);
	return route;
}

/* Known as soon as the partition has arrived, for any amount of bytes, and the same for all of them from there on. */
START_TEST(a_partition_is_known_as_early_as_it_can_be)
{
	char name[CODEC_TOPIC_NAME_MAX + 1];
	size_t length = _i == 0 ? 1 : CODEC_TOPIC_NAME_MAX, known = 4 + 8 + 2 + length + 4;

	memset(name, 'q', length);
	name[length] = '\0';
	begin_produce(name, 42, 1, 2);
	put_record("a");
	put_record("bcd");
	for (size_t available = 0; available <= 4 + frame_bytes(); available++) {
		struct codec_name topic;
		int32_t partition = -1;
		enum codec_route route = route_first(available, &topic, &partition);

		ck_assert_int_eq(route, available < known ? CODEC_ROUTE_MORE : CODEC_ROUTE_PARTITION);
		if (route == CODEC_ROUTE_PARTITION) {
			ck_assert_uint_eq(topic.length, length);
			ck_assert_mem_eq(topic.bytes, name, length);
			ck_assert_int_eq(partition, 42);
		}
	}
	ck_assert_uint_le(known, CODEC_ROUTE_MAX_BYTES);
	ck_assert(_i == 0 || known == CODEC_ROUTE_MAX_BYTES);
}
END_TEST

START_TEST(what_any_worker_can_answer)
{
	struct codec_name topic;
	int32_t partition;

	begin(CODEC_METADATA, 2, 1);
	put_i32(0);
	ck_assert_int_eq(route_first(11, &topic, &partition), CODEC_ROUTE_MORE);
	ck_assert_int_eq(route_first(12, &topic, &partition), CODEC_ROUTE_ANYWHERE);
	begin(18, 3, 1);
	put_text("kafka");
	ck_assert_int_eq(route_first(12, &topic, &partition), CODEC_ROUTE_ANYWHERE);
	/* Frames that end ahead of what would tell: they will be refused. */
	begin(CODEC_FETCH, 1, 1);
	put_name("topic");
	for (size_t available = 0; available < 4 + frame_bytes(); available++)
		ck_assert_int_eq(route_first(available, &topic, &partition), CODEC_ROUTE_MORE);
	ck_assert_int_eq(route_first(4 + frame_bytes(), &topic, &partition), CODEC_ROUTE_ANYWHERE);
	b.end = b.frame + 3;
	ck_assert_int_eq(route_first(6, &topic, &partition), CODEC_ROUTE_MORE);
	ck_assert_int_eq(route_first(7, &topic, &partition), CODEC_ROUTE_ANYWHERE);
	/* A name longer than any: no use waiting for it. */
	begin(CODEC_FETCH, 1, 1);
	b.end = bytes_put_u16(b.end, CODEC_TOPIC_NAME_MAX + 1);
	memset(b.end, 'x', 1000);
	b.end += 1000;
	ck_assert_int_eq(route_first(14, &topic, &partition), CODEC_ROUTE_ANYWHERE);
}
END_TEST

/* A pipelined frame behind a short one must not lend it bytes. */
START_TEST(routing_stays_inside_its_frame)
{
	uint8_t two[64], *end = bytes_put_i32(two, 9);
	struct codec_name topic;
	int32_t partition;

	end = bytes_put_i16(end, CODEC_FETCH);
	end = bytes_put_i16(end, 1);
	end = bytes_put_i32(end, 1);
	*end++ = 0;
	/* Read on, this would be a name of one character and a partition. */
	*end++ = 1;
	memset(end, 'a', sizeof(two) - (size_t)(end - two));
	ck_assert_int_eq(codec_route(two, sizeof(two), &topic, &partition), CODEC_ROUTE_ANYWHERE);
}
END_TEST

/* ---- Answers ---- */

START_TEST(answers_as_drawn)
{
	static const uint8_t error[] = { 0, 0, 0, 6, 0, 0, 0, 6, 0, 2 };
	static const uint8_t produce[] = { 0, 0, 0, 22, 0xFF, 0xFF, 0xFF, 0xFE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
		0, 0, 0, 0, 0, 0, 1, 0 };
	static const uint8_t fetch[] = { 0, 0, 0, 18 + 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 5 };
	uint8_t to[64];

	ck_assert_ptr_eq(codec_put_error(to, 6, CODEC_OFFSET_OUT_OF_RANGE), to + sizeof(error));
	ck_assert_uint_eq(sizeof(error), CODEC_ERROR_ANSWER_BYTES);
	ck_assert_mem_eq(to, error, sizeof(error));
	ck_assert_ptr_eq(codec_put_produce_answer(to, -2, 1, 256), to + sizeof(produce));
	ck_assert_uint_eq(sizeof(produce), CODEC_PRODUCE_ANSWER_BYTES);
	ck_assert_mem_eq(to, produce, sizeof(produce));
	ck_assert_ptr_eq(codec_put_fetch_answer(to, 1, 9, 5), to + sizeof(fetch));
	ck_assert_uint_eq(sizeof(fetch), CODEC_FETCH_ANSWER_HEADER_BYTES);
	ck_assert_mem_eq(to, fetch, sizeof(fetch));
}
END_TEST

START_TEST(the_largest_fetch_answer_is_what_clients_accept)
{
	uint8_t to[64];

	ck_assert_int_eq(CODEC_FETCH_PAYLOAD_MAX, 8388590);
	ck_assert_int_eq(CODEC_FETCH_PAYLOAD_MAX, RECORD_MAX_BYTES);
	codec_put_fetch_answer(to, 1, 9, CODEC_FETCH_PAYLOAD_MAX);
	ck_assert_int_eq(bytes_get_i32(to), 8 * 1024 * 1024);
}
END_TEST

START_TEST(error_names)
{
	ck_assert_str_eq(codec_error_name(CODEC_NONE), "NONE");
	ck_assert_str_eq(codec_error_name(1), "UNKNOWN_TOPIC_OR_PARTITION");
	ck_assert_str_eq(codec_error_name(2), "OFFSET_OUT_OF_RANGE");
	ck_assert_str_eq(codec_error_name(3), "RECORD_TOO_LARGE");
	ck_assert_str_eq(codec_error_name(4), "UNSUPPORTED_VERSION");
	ck_assert_str_eq(codec_error_name(5), "CORRUPT_REQUEST");
	ck_assert_str_eq(codec_error_name(6), "STORAGE_FAILURE");
	ck_assert_str_eq(codec_error_name(7), "UNKNOWN_ERROR");
	ck_assert_str_eq(codec_error_name(-1), "UNKNOWN_ERROR");
}
END_TEST

/* ---- The golden dialogue ---- */

/* What the one partition of the golden broker answers, with nothing but the codec and the record's layout. */
static size_t
answer_golden(const struct codec_request *request, enum codec_error error, int64_t end, uint8_t *to)
{
	uint8_t log[64], *p = log;
	int32_t available;

	if (error != CODEC_NONE)
		return (size_t)(codec_put_error(to, request->correlation_id, error) - to);
	if (request->api_key == CODEC_METADATA) {
		size_t bytes = codec_metadata_head_bytes() + codec_metadata_topic_bytes(request->api_version, 1, 1);

		p = codec_put_metadata_head(to, request->correlation_id, bytes, 1);
		p = codec_put_metadata_topic(p, request->api_version, "t", 1, RECORD_CRC32C, 1);
		p = codec_put_metadata_partition(p, request->api_version, 0, 0, end, 0);
		ck_assert_uint_eq(p - to, bytes);
		return bytes;
	}
	if (request->partition != 0)
		return (size_t)(codec_put_error(to, request->correlation_id, CODEC_UNKNOWN_TOPIC_OR_PARTITION) - to);
	if (request->api_key == CODEC_PRODUCE)
		return (size_t)(codec_put_produce_answer(to, request->correlation_id, end, end + request->record_count) - to);
	if (request->fetch_offset > end)
		return (size_t)(codec_put_error(to, request->correlation_id, CODEC_OFFSET_OUT_OF_RANGE) - to);
	p = record_put(log, RECORD_CRC32C, (const uint8_t *)"a", 1);
	p = record_put(p, RECORD_CRC32C, (const uint8_t *)"bc", 2);
	available = request->fetch_offset == end ? 0 : (int32_t)(p - log);
	if (available > request->max_bytes)
		available = request->max_bytes;
	p = codec_put_fetch_answer(to, request->correlation_id, end, available);
	memcpy(p, log, (size_t)available);
	return (size_t)(p - to) + (size_t)available;
}

START_TEST(golden_frames)
{
	FILE *file = unit_open_vectors("frames.tsv");
	char line[4096];
	int64_t end = 0;
	int vectors = 0;

	while (fgets(line, sizeof(line), file) != NULL) {
		uint8_t request_bytes[256], wanted[256], got[256];
		char *request_hex = strchr(line, '\t'), *answer_hex;
		struct codec_request request;
		enum codec_error error;
		size_t size, wanted_size;

		if (line[0] == '#')
			continue;
		ck_assert_ptr_nonnull(request_hex);
		answer_hex = strchr(++request_hex, '\t');
		ck_assert_ptr_nonnull(answer_hex);
		size = unit_from_hex(request_hex, (size_t)(answer_hex - request_hex), request_bytes);
		answer_hex++;
		wanted_size = unit_from_hex(answer_hex, strcspn(answer_hex, "\n"), wanted);
		ck_assert_int_eq(bytes_get_i32(request_bytes), (int32_t)size - 4);
		error = codec_parse_request(request_bytes + 4, size - 4, &request);
		ck_assert_msg(answer_golden(&request, error, end, got) == wanted_size, "size of: %s", line);
		ck_assert_msg(memcmp(got, wanted, wanted_size) == 0, "bytes of: %s", line);
		if (error == CODEC_NONE && request.api_key == CODEC_PRODUCE && request.partition == 0)
			end += request.record_count;
		vectors++;
	}
	fclose(file);
	ck_assert_int_eq(vectors, 10);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("codec");
	TCase *tests = tcase_create("codec");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	tcase_add_test(tests, integers_are_big_endian_and_signed);
	tcase_add_test(tests, a_reader_never_leaves_its_bytes);
	tcase_add_test(tests, topic_names);
	tcase_add_test(tests, produce_is_read);
	tcase_add_loop_test(tests, every_truncation_of_a_produce, CODEC_ACK_NONE, CODEC_ACK_FORCED + 1);
	tcase_add_test(tests, bounds_of_a_produce);
	tcase_add_test(tests, an_empty_record_among_others);
	tcase_add_test(tests, names_of_a_produce);
	tcase_add_test(tests, silence_whatever_is_wrong_behind_the_version);
	tcase_add_test(tests, fetch_is_read);
	tcase_add_loop_test(tests, every_truncation_of_a_fetch, 1, 3);
	tcase_add_test(tests, bounds_of_a_fetch);
	tcase_add_test(tests, metadata_is_read);
	tcase_add_test(tests, every_truncation_of_a_metadata);
	tcase_add_test(tests, bounds_of_a_metadata);
	tcase_add_test(tests, keys_and_versions);
	tcase_add_test(tests, a_refused_request_holds_nothing_indeterminate);
	tcase_add_loop_test(tests, random_bodies, 0, 4);
	tcase_add_loop_test(tests, a_partition_is_known_as_early_as_it_can_be, 0, 2);
	tcase_add_test(tests, what_any_worker_can_answer);
	tcase_add_test(tests, routing_stays_inside_its_frame);
	tcase_add_test(tests, answers_as_drawn);
	tcase_add_test(tests, the_largest_fetch_answer_is_what_clients_accept);
	tcase_add_test(tests, error_names);
	tcase_add_test(tests, golden_frames);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
