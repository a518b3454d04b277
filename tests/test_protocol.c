/*
 * The wire protocol, from outside: the golden dialogue, every refusal and boundary of protocol.md, names, silence,
 * fragmentation, limits. Each test starts a broker with two workers; the requests go over one socket, which must stay
 * usable, and what was refused must have appended nothing.
 */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker.h"
#include "wire.h"

static struct broker broker;
static int fd;	/* the socket of the test */

static void
start(const struct broker_config *config)
{
	broker_start(&broker, config);
	fd = wire_connect_tcp(broker.port);
	ck_assert_int_ge(fd, 0);
}

static void
finish(void)
{
	close(fd);
	broker_stop(&broker);
	broker_end(&broker);
}

static int64_t
watermark(const char *topic, int32_t partition)
{
	return wire_high_watermark(fd, topic, partition);
}

/* Sends one frame and frees it; the answer must have this code (and the request's id: wire_ask sees to it). */
static void
expect(struct wire_bytes *request, int code, const char *what, long long value)
{
	int got = wire_ask(fd, request, NULL);

	ck_assert_msg(got == code, "%s, %lld: answered %d, not %d", what, value, got, code);
	wire_bytes_free(request);
}

/* ---- the golden dialogue ------------------------------------------------------------------------------------ */

struct exchange {
	char name[200];
	struct wire_bytes request;
	struct wire_bytes answer;
};

enum { EXCHANGES_MAX = 100 };

static size_t
read_vectors(struct exchange *exchanges)
{
	char path[BROKER_PATH_BYTES];
	char *line = NULL;
	size_t size = 0;
	size_t count = 0;
	FILE *file;

	broker_source_path("vectors/frames.tsv", path, sizeof path);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (getline(&line, &size, file) >= 0 && count < EXCHANGES_MAX) {
		struct exchange *exchange = &exchanges[count];
		char *request = strchr(line, '\t');
		char *answer = request != NULL ? strchr(request + 1, '\t') : NULL;

		if (line[0] == '#')
			continue;
		ck_assert_ptr_nonnull(answer);
		memset(exchange, 0, sizeof *exchange);
		snprintf(exchange->name, sizeof exchange->name, "%.*s", (int)(request - line), line);
		wire_put_hex(&exchange->request, request + 1);
		wire_put_hex(&exchange->answer, answer + 1);
		count++;
	}
	free(line);
	fclose(file);
	ck_assert_uint_ge(count, 10);
	return count;
}

static void
free_vectors(struct exchange *exchanges, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		wire_bytes_free(&exchanges[i].request);
		wire_bytes_free(&exchanges[i].answer);
	}
}

static void
expect_bytes(int socket_fd, const struct wire_bytes *bytes, const char *what)
{
	uint8_t *got = malloc(bytes->length);
	size_t have = 0;

	while (have < bytes->length) {
		long more = wire_receive(socket_fd, got + have, bytes->length - have, WIRE_DEADLINE_MS);

		ck_assert_msg(more > 0, "%s: %ld after %zu of %zu bytes", what, more, have, bytes->length);
		have += (size_t)more;
	}
	for (size_t i = 0; i < have; i++)
		ck_assert_msg(got[i] == bytes->data[i], "%s: byte %zu is %02x, not %02x", what, i, got[i], bytes->data[i]);
	free(got);
}

static void
run_dialogue(int socket_fd)
{
	struct exchange exchanges[EXCHANGES_MAX];
	size_t count = read_vectors(exchanges);

	for (size_t i = 0; i < count; i++) {
		ck_assert_int_eq(wire_send(socket_fd, exchanges[i].request.data, exchanges[i].request.length), 0);
		expect_bytes(socket_fd, &exchanges[i].answer, exchanges[i].name);
	}
	ck_assert(wire_silent(socket_fd, 20));
	free_vectors(exchanges, count);
}

START_TEST(frames_tsv_dialogue)
{
	start(NULL);
	run_dialogue(fd);
	finish();
}
END_TEST

START_TEST(frames_tsv_dialogue_over_a_unix_socket)
{
	int other;

	start(NULL);
	other = wire_connect_unix(broker.unix_path);
	ck_assert_int_ge(other, 0);
	run_dialogue(other);
	close(other);
	finish();
}
END_TEST

START_TEST(frames_tsv_dialogue_pipelined)
{
	struct exchange exchanges[EXCHANGES_MAX];
	struct wire_bytes all_requests = { 0 };
	struct wire_bytes all_answers = { 0 };
	size_t count = read_vectors(exchanges);

	start(NULL);
	for (size_t i = 0; i < count; i++) {
		wire_put(&all_requests, exchanges[i].request.data, exchanges[i].request.length);
		wire_put(&all_answers, exchanges[i].answer.data, exchanges[i].answer.length);
	}
	ck_assert_int_eq(wire_send(fd, all_requests.data, all_requests.length), 0);
	expect_bytes(fd, &all_answers, "all at once");
	wire_bytes_free(&all_requests);
	wire_bytes_free(&all_answers);
	free_vectors(exchanges, count);
	finish();
}
END_TEST

/* ---- fields: valid requests of which one number is replaced -------------------------------------------------- */

/*
 * Topics of the tables: o has three partitions (spread, so both workers take part), t one, plain one in the other
 * record format. Two records stand in o/0 and o/1 when a table begins.
 */
static const struct broker_config table_config = { .topics = "t = 1\no = 3\nplain = 1\n",
	.sections = "[topic plain]\nrecord_format = plain\n" };

static void
start_table(void)
{
	struct wire_record two[2] = { { "first", 5 }, { "second", 6 } };

	start(&table_config);
	ck_assert_int_eq(wire_produce(fd, "o", 0, WIRE_WRITTEN, two, 2, NULL, NULL), 0);
	ck_assert_int_eq(wire_produce(fd, "o", 1, WIRE_WRITTEN, two, 2, NULL, NULL), 0);
}

static void
finish_table(void)
{
	ck_assert_int_eq(watermark("o", 0), 2);
	ck_assert_int_eq(watermark("o", 1), 2);
	ck_assert_int_eq(watermark("o", 2), 0);
	ck_assert_int_eq(watermark("t", 0), 0);
	finish();
}

/* Replaces the number of `width` bytes at `place` (from the frame's first byte). */
static void
replace(struct wire_bytes *frame, size_t place, int width, int64_t value)
{
	ck_assert_uint_le(place + (size_t)width, frame->length);
	for (int i = 0; i < width; i++)
		frame->data[place + (size_t)i] = (uint8_t)((uint64_t)value >> 8 * (width - 1 - i));
}

struct value {
	int64_t value;
	int code;	/* of the answer */
};

typedef void builder(struct wire_bytes *frame, int32_t partition);

static void
build_produce(struct wire_bytes *frame, int32_t partition)
{
	struct wire_record two[2] = { { "abc", 3 }, { "defgh", 5 } };

	wire_put_produce(frame, 0x1234567, "o", partition, WIRE_WRITTEN, two, 2);
}

static void
build_fetch_v1(struct wire_bytes *frame, int32_t partition)
{
	wire_put_fetch_v1(frame, -5, "o", partition, 0, 64);
}

static void
build_fetch_v2(struct wire_bytes *frame, int32_t partition)
{
	wire_put_fetch(frame, INT32_MIN, "o", partition, 0, 64, 0, 0);
}

static void
build_metadata(struct wire_bytes *frame, int version)
{
	size_t at = wire_begin(frame, WIRE_METADATA, version, INT32_MAX);

	wire_put_i32(frame, 2);
	wire_put_name(frame, "o");
	wire_put_name(frame, "t");
	wire_end(frame, at);
}

static void
build_metadata_v1(struct wire_bytes *frame, int32_t partition)
{
	(void)partition;
	build_metadata(frame, 1);
}

static void
build_metadata_v2(struct wire_bytes *frame, int32_t partition)
{
	(void)partition;
	build_metadata(frame, 2);
}

/* Where the fields stand in these frames: behind length 4, key 2, version 2, id 4; the name is one byte. */
enum {
	AT_KEY = 4,
	AT_VERSION = 6,
	AT_ID = 8,
	AT_NAME_LENGTH = 12,
	AT_NAME = 14,
	AT_PARTITION = 15,
	AT_ACK = 19,
	AT_RECORD_COUNT = 20,
	AT_FIRST_SIZE = 24,
	AT_SECOND_SIZE = 31,
	AT_OFFSET = 19,
	AT_MAX_BYTES = 27,
	AT_MAX_WAIT = 31,
	AT_MIN_BYTES = 35,
	AT_TOPIC_COUNT = 12,
	AT_FIRST_NAME_LENGTH = 16,
	AT_SECOND_NAME_LENGTH = 19,
};

struct field {
	const char *name;
	builder *build;
	size_t place;
	int width;
	struct value values[20];	/* ended by width 0: value and code both -99 */
};

#define END { -99, -99 }
#define CORRUPT(v) { v, WIRE_CORRUPT_REQUEST }
#define UNKNOWN(v) { v, WIRE_UNKNOWN_TOPIC_OR_PARTITION }
#define UNSUPPORTED(v) { v, WIRE_UNSUPPORTED_VERSION }
#define RANGE(v) { v, WIRE_OFFSET_OUT_OF_RANGE }
#define GOOD(v) { v, WIRE_OK }

/* PRODUCE's good values append, so they are not in this table; see produce_boundaries_that_are_good. */
static const struct field fields[] = {
	{ "PRODUCE apiKey", build_produce, AT_KEY, 2, { UNSUPPORTED(0), UNSUPPORTED(4), UNSUPPORTED(5), UNSUPPORTED(18),
		UNSUPPORTED(32767), UNSUPPORTED(-1), UNSUPPORTED(-32768), UNSUPPORTED(257), END } },
	{ "PRODUCE apiVersion", build_produce, AT_VERSION, 2, { UNSUPPORTED(0), UNSUPPORTED(2), UNSUPPORTED(3),
		UNSUPPORTED(257), UNSUPPORTED(32767), UNSUPPORTED(-1), UNSUPPORTED(-32768), END } },
	/* Smaller ones than 22 make a zero stand at the ack byte's place: bug_F9 has them. */
	{ "PRODUCE nameLength", build_produce, AT_NAME_LENGTH, 2, { CORRUPT(22), CORRUPT(248), CORRUPT(249), CORRUPT(250),
		CORRUPT(32767), CORRUPT(32768), CORRUPT(65535), END } },
	{ "PRODUCE partition", build_produce, AT_PARTITION, 4, { UNKNOWN(3), UNKNOWN(4), UNKNOWN(99998), UNKNOWN(99999),
		UNKNOWN(INT32_MAX), CORRUPT(-1), CORRUPT(-2), CORRUPT(INT32_MIN), END } },
	{ "PRODUCE ack", build_produce, AT_ACK, 1, { CORRUPT(3), CORRUPT(4), CORRUPT(127), CORRUPT(-1), CORRUPT(-2),
		CORRUPT(-128), END } },
	{ "PRODUCE recordCount", build_produce, AT_RECORD_COUNT, 4, { CORRUPT(0), CORRUPT(1), CORRUPT(3), CORRUPT(4),
		CORRUPT(65536), CORRUPT(1 << 24), CORRUPT(INT32_MAX - 1), CORRUPT(INT32_MAX), CORRUPT(-1), CORRUPT(INT32_MIN),
		CORRUPT(0x40000000), CORRUPT(0x33333334), END } },
	{ "PRODUCE first payloadSize", build_produce, AT_FIRST_SIZE, 4, { CORRUPT(0), CORRUPT(1), CORRUPT(2), CORRUPT(4),
		CORRUPT(12), CORRUPT(13), CORRUPT(8388582), CORRUPT(8388583), CORRUPT(INT32_MAX - 1), CORRUPT(INT32_MAX),
		CORRUPT(-1), CORRUPT(-4), CORRUPT(INT32_MIN), END } },
	{ "PRODUCE last payloadSize", build_produce, AT_SECOND_SIZE, 4, { CORRUPT(0), CORRUPT(1), CORRUPT(4), CORRUPT(6),
		CORRUPT(7), CORRUPT(INT32_MAX), CORRUPT(INT32_MAX - 3), CORRUPT(-1), CORRUPT(-5), CORRUPT(INT32_MIN), END } },

	{ "FETCH v1 apiVersion", build_fetch_v1, AT_VERSION, 2, { UNSUPPORTED(0), UNSUPPORTED(3), UNSUPPORTED(4),
		UNSUPPORTED(11), UNSUPPORTED(32767), UNSUPPORTED(-1), UNSUPPORTED(-32768), CORRUPT(2), GOOD(1), END } },
	{ "FETCH v2 apiVersion", build_fetch_v2, AT_VERSION, 2, { UNSUPPORTED(0), UNSUPPORTED(3), CORRUPT(1), GOOD(2), END } },
	{ "FETCH nameLength", build_fetch_v2, AT_NAME_LENGTH, 2, { CORRUPT(0), CORRUPT(2), CORRUPT(3), CORRUPT(248),
		CORRUPT(249), CORRUPT(250), CORRUPT(32767), CORRUPT(32768), CORRUPT(65535), END } },
	{ "FETCH v1 partition", build_fetch_v1, AT_PARTITION, 4, { GOOD(0), GOOD(1), GOOD(2), UNKNOWN(3), UNKNOWN(4),
		UNKNOWN(99999), UNKNOWN(INT32_MAX), CORRUPT(-1), CORRUPT(INT32_MIN), END } },
	{ "FETCH v2 partition", build_fetch_v2, AT_PARTITION, 4, { GOOD(0), GOOD(1), GOOD(2), UNKNOWN(3), UNKNOWN(4),
		UNKNOWN(99999), UNKNOWN(INT32_MAX), CORRUPT(-1), CORRUPT(INT32_MIN), END } },
	{ "FETCH v1 fetchOffset", build_fetch_v1, AT_OFFSET, 8, { GOOD(0), GOOD(1), GOOD(2), RANGE(3), RANGE(4),
		RANGE(INT32_MAX), RANGE(1LL << 31), RANGE(1LL << 32), RANGE(INT64_MAX - 1), RANGE(INT64_MAX), CORRUPT(-1),
		CORRUPT(-2), CORRUPT(INT32_MIN), CORRUPT(INT64_MIN), CORRUPT(INT64_MIN + 1), END } },
	{ "FETCH v2 fetchOffset", build_fetch_v2, AT_OFFSET, 8, { GOOD(0), GOOD(1), GOOD(2), RANGE(3), RANGE(4),
		RANGE(INT32_MAX), RANGE(1LL << 32), RANGE(INT64_MAX - 1), RANGE(INT64_MAX), CORRUPT(-1), CORRUPT(INT32_MIN),
		CORRUPT(INT64_MIN), END } },
	{ "FETCH v1 maxBytes", build_fetch_v1, AT_MAX_BYTES, 4, { CORRUPT(0), GOOD(1), GOOD(2), GOOD(8388589), GOOD(8388590),
		GOOD(8388591), GOOD(8388608), GOOD(INT32_MAX - 1), GOOD(INT32_MAX), CORRUPT(-1), CORRUPT(INT32_MIN), END } },
	{ "FETCH v2 maxBytes", build_fetch_v2, AT_MAX_BYTES, 4, { CORRUPT(0), GOOD(1), GOOD(2), GOOD(8388589), GOOD(8388590),
		GOOD(8388591), GOOD(INT32_MAX - 1), GOOD(INT32_MAX), CORRUPT(-1), CORRUPT(INT32_MIN), END } },
	{ "FETCH maxWaitMillis", build_fetch_v2, AT_MAX_WAIT, 4, { GOOD(0), GOOD(1), GOOD(59999), GOOD(60000), GOOD(60001),
		GOOD(INT32_MAX - 1), GOOD(INT32_MAX), CORRUPT(-1), CORRUPT(INT32_MIN), END } },
	{ "FETCH minBytes", build_fetch_v2, AT_MIN_BYTES, 4, { GOOD(0), GOOD(1), GOOD(63), GOOD(64), CORRUPT(65), CORRUPT(66),
		CORRUPT(INT32_MAX), CORRUPT(-1), CORRUPT(INT32_MIN), END } },

	{ "METADATA apiVersion", build_metadata_v1, AT_VERSION, 2, { UNSUPPORTED(0), GOOD(1), GOOD(2), UNSUPPORTED(3),
		UNSUPPORTED(9), UNSUPPORTED(32767), UNSUPPORTED(-1), UNSUPPORTED(-32768), END } },
	{ "METADATA v1 topicCount", build_metadata_v1, AT_TOPIC_COUNT, 4, { CORRUPT(0), CORRUPT(1), GOOD(2), CORRUPT(3),
		CORRUPT(4), CORRUPT(65536), CORRUPT(INT32_MAX - 1), CORRUPT(INT32_MAX), CORRUPT(0x55555556), CORRUPT(0x40000002),
		CORRUPT(-1), CORRUPT(INT32_MIN), END } },
	{ "METADATA v2 topicCount", build_metadata_v2, AT_TOPIC_COUNT, 4, { CORRUPT(0), CORRUPT(1), GOOD(2), CORRUPT(3),
		CORRUPT(INT32_MAX), CORRUPT(-1), CORRUPT(INT32_MIN), END } },
	{ "METADATA first nameLength", build_metadata_v1, AT_FIRST_NAME_LENGTH, 2, { CORRUPT(0), GOOD(1), CORRUPT(2),
		CORRUPT(4), CORRUPT(5), CORRUPT(249), CORRUPT(250), CORRUPT(32767), CORRUPT(32768), CORRUPT(65535), END } },
	{ "METADATA last nameLength", build_metadata_v2, AT_SECOND_NAME_LENGTH, 2, { CORRUPT(0), GOOD(1), CORRUPT(2),
		CORRUPT(249), CORRUPT(250), CORRUPT(65535), END } },
};

START_TEST(every_number_at_its_boundaries)
{
	start_table();
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		const struct field *field = &fields[i];

		for (const struct value *value = field->values; value->code != -99; value++) {
			struct wire_bytes frame = { 0 };

			field->build(&frame, 0);
			replace(&frame, field->place, field->width, value->value);
			expect(&frame, value->code, field->name, (long long)value->value);
		}
	}
	finish_table();
}
END_TEST

START_TEST(every_correlation_id_comes_back)
{
	static const int32_t ids[] = { 0, 1, -1, 2, 0x7f, 0x80, 0xff, 0x100, 0x7fff, 0x8000, 0xffff, INT32_MAX - 1, INT32_MAX,
		INT32_MIN, INT32_MIN + 1, 0x01020304 };
	static builder *const builders[] = { build_fetch_v1, build_fetch_v2, build_metadata_v1, build_metadata_v2 };

	start_table();
	for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
		for (size_t b = 0; b < sizeof builders / sizeof *builders; b++) {
			struct wire_bytes frame = { 0 };

			builders[b](&frame, 1);
			wire_set_i32(frame.data + AT_ID, ids[i]);
			expect(&frame, 0, "id", ids[i]);
		}
	finish_table();
}
END_TEST

START_TEST(produce_boundaries_that_are_good)
{
	int64_t base;
	int64_t end;

	start(&table_config);
	for (int32_t partition = 0; partition < 3; partition++)
		for (int ack = WIRE_WRITTEN; ack <= WIRE_FORCED; ack++) {
			struct wire_record three[3] = { { "x", 1 }, { "yy", 2 }, { "\0\0\0\0\0\0\0\0", 8 } };

			ck_assert_int_eq(wire_produce(fd, "o", partition, ack, three, 3, &base, &end), 0);
			ck_assert_int_eq(base, (ack - 1) * 3);
			ck_assert_int_eq(end, base + 3);
		}
	finish();
}
END_TEST

/* As many records, as many names as a frame of the largest length can hold; and one more announced than there are. */
START_TEST(counts_as_large_as_a_frame_allows)
{
	struct wire_bytes frame = { 0 };
	struct wire_answer answer;
	struct wire_fetched fetched;
	size_t at;
	int32_t count = (WIRE_FRAME_MAX - 8 - 3 - 4 - 1 - 4) / 5;
	int names = (WIRE_FRAME_MAX - 8 - 4) / 3;

	start(&table_config);
	at = wire_begin(&frame, WIRE_PRODUCE, 1, 1);
	wire_put_name(&frame, "t");
	wire_put_i32(&frame, 0);
	wire_put_i8(&frame, WIRE_WRITTEN);
	wire_put_i32(&frame, count);
	for (int32_t i = 0; i < count; i++) {
		wire_put_i32(&frame, 1);
		wire_put_i8(&frame, i);
	}
	wire_end(&frame, at);
	wire_set_i32(frame.data + AT_RECORD_COUNT, count + 1);
	ck_assert_int_eq(wire_ask(fd, &frame, NULL), WIRE_CORRUPT_REQUEST);
	wire_set_i32(frame.data + AT_RECORD_COUNT, count - 1);
	ck_assert_int_eq(wire_ask(fd, &frame, NULL), WIRE_CORRUPT_REQUEST);
	ck_assert_int_eq(watermark("t", 0), 0);
	wire_set_i32(frame.data + AT_RECORD_COUNT, count);
	ck_assert_int_eq(wire_ask(fd, &frame, &answer), 0);
	ck_assert_int_eq(wire_get_i64(answer.body), 0);
	ck_assert_int_eq(wire_get_i64(answer.body + 8), count);
	wire_answer_free(&answer);
	wire_bytes_free(&frame);
	ck_assert_int_eq(wire_fetch(fd, "t", 0, count - 1, 100, 0, 0, &fetched), 0);
	ck_assert_uint_eq(fetched.length, 9);
	ck_assert_uint_eq(fetched.payload[8], (uint8_t)(count - 1));
	wire_fetched_free(&fetched);

	at = wire_begin(&frame, WIRE_METADATA, 1, 1);
	wire_put_i32(&frame, names);
	for (int i = 0; i < names; i++)
		wire_put_name(&frame, i % 2 ? "t" : "o");
	wire_end(&frame, at);
	ck_assert_int_eq(wire_ask(fd, &frame, &answer), 0);
	ck_assert_int_eq(wire_get_i32(answer.body), 2);
	wire_answer_free(&answer);
	wire_set_i32(frame.data + AT_TOPIC_COUNT, names + 1);
	ck_assert_int_eq(wire_ask(fd, &frame, NULL), WIRE_CORRUPT_REQUEST);
	wire_bytes_free(&frame);
	finish();
}
END_TEST

/* ---- truncations, trailing bytes ----------------------------------------------------------------------------- */

static builder *const all_builders[] = { build_produce, build_fetch_v1, build_fetch_v2, build_metadata_v1,
	build_metadata_v2 };
static const char *const builder_names[] = { "PRODUCE", "FETCH v1", "FETCH v2", "METADATA v1", "METADATA v2" };
enum { BUILDERS = sizeof all_builders / sizeof *all_builders };

/* Sends the first `length` bytes of the frame with the length adjusted; the id must come back when it is there. */
static void
expect_cut(const struct wire_bytes *whole, size_t length, const char *what)
{
	struct wire_bytes cut = { 0 };
	struct wire_answer answer;

	wire_put(&cut, whole->data, length);
	wire_set_i32(cut.data, (int64_t)length - 4);
	ck_assert_int_eq(wire_send(fd, cut.data, cut.length), 0);
	ck_assert_int_eq(wire_read_answer(fd, &answer, WIRE_DEADLINE_MS), 0);
	ck_assert_msg(answer.error == WIRE_CORRUPT_REQUEST, "%s cut to %zu bytes: answered %d", what, length, answer.error);
	ck_assert_msg(answer.id == (length >= 12 ? wire_get_i32(whole->data + AT_ID) : 0), "%s cut to %zu bytes: id %d", what,
	    length, answer.id);
	wire_answer_free(&answer);
	wire_bytes_free(&cut);
}

START_TEST(bug_F4_every_truncation)
{
	start_table();
	for (int b = 0; b < BUILDERS; b++)
		for (int32_t partition = 0; partition < 3; partition++) {
			struct wire_bytes whole = { 0 };

			all_builders[b](&whole, partition);
			for (size_t length = 5; length < whole.length; length++)
				expect_cut(&whole, length, builder_names[b]);
			wire_bytes_free(&whole);
		}
	finish_table();
}
END_TEST

START_TEST(every_truncation_of_an_unknown_version_is_unsupported)
{
	start_table();
	for (int b = 0; b < BUILDERS; b++) {
		struct wire_bytes whole = { 0 };

		all_builders[b](&whole, 0);
		wire_set_i16(whole.data + AT_VERSION, 7);
		for (size_t length = 12; length <= whole.length; length++) {
			struct wire_bytes cut = { 0 };

			wire_put(&cut, whole.data, length);
			wire_set_i32(cut.data, (int64_t)length - 4);
			expect(&cut, WIRE_UNSUPPORTED_VERSION, builder_names[b], (long long)length);
		}
		for (size_t length = 5; length < 12; length++)
			expect_cut(&whole, length, builder_names[b]);
		wire_bytes_free(&whole);
	}
	finish_table();
}
END_TEST

START_TEST(trailing_bytes_are_corrupt)
{
	static const size_t more[] = { 1, 2, 3, 4, 5, 8, 100, 70000 };

	start_table();
	for (int b = 0; b < BUILDERS; b++)
		for (int32_t partition = 0; partition < 2; partition++)
			for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
				struct wire_bytes frame = { 0 };

				all_builders[b](&frame, partition);
				wire_put_zeros(&frame, more[i]);
				wire_end(&frame, 0);
				expect(&frame, WIRE_CORRUPT_REQUEST, builder_names[b], (long long)more[i]);
			}
	/* No topics at all, and one byte. */
	for (int version = 1; version <= 2; version++) {
		struct wire_bytes frame = { 0 };

		wire_put_metadata(&frame, 1, version, NULL);
		wire_put_i8(&frame, 0);
		wire_end(&frame, 0);
		expect(&frame, WIRE_CORRUPT_REQUEST, "METADATA of all topics", version);
	}
	finish_table();
}
END_TEST

/* ---- which answer comes first -------------------------------------------------------------------------------- */

START_TEST(order_of_checks)
{
	static char large[2000];
	struct wire_record too_large = { large, sizeof large };
	struct wire_bytes frame = { 0 };
	struct broker_config config = table_config;

	config.log = "segment_bytes = 1KiB\n";
	start(&config);

	/* Key and version before anything in the body, the ack byte of NONE included. */
	build_produce(&frame, -1);
	wire_set_i16(frame.data + AT_KEY, 9);
	expect(&frame, WIRE_UNSUPPORTED_VERSION, "key before body", 0);
	build_produce(&frame, -1);
	wire_set_i16(frame.data + AT_VERSION, 2);
	expect(&frame, WIRE_UNSUPPORTED_VERSION, "version before body", 0);
	wire_put_produce_one(&frame, 4, "nosuch", 7, WIRE_NONE, "x", 1);
	wire_set_i16(frame.data + AT_VERSION, 0);
	expect(&frame, WIRE_UNSUPPORTED_VERSION, "version before silence", 0);

	/* The body before the topic. */
	wire_put_produce_one(&frame, 5, "nosuch", 0, 3, "x", 1);
	expect(&frame, WIRE_CORRUPT_REQUEST, "ack before topic", 0);
	wire_put_produce_one(&frame, 5, "nosuch", -1, WIRE_WRITTEN, "x", 1);
	expect(&frame, WIRE_CORRUPT_REQUEST, "partition -1 before topic", 0);
	wire_put_produce(&frame, 5, "nosuch", 0, WIRE_WRITTEN, NULL, 0);
	expect(&frame, WIRE_CORRUPT_REQUEST, "no records before topic", 0);
	wire_put_produce_one(&frame, 5, "nosuch", 0, WIRE_WRITTEN, "", 0);
	expect(&frame, WIRE_CORRUPT_REQUEST, "empty record before topic", 0);
	wire_put_produce_one(&frame, 5, "o", 3, WIRE_WRITTEN, "", 0);
	expect(&frame, WIRE_CORRUPT_REQUEST, "empty record before partition", 0);
	wire_put_produce_one(&frame, 5, "nosuch", 0, WIRE_WRITTEN, "x", 1);
	wire_put_i8(&frame, 0);
	wire_end(&frame, 0);
	expect(&frame, WIRE_CORRUPT_REQUEST, "trailing byte before topic", 0);
	wire_put_fetch(&frame, 6, "nosuch", 0, -1, 10, 0, 0);
	expect(&frame, WIRE_CORRUPT_REQUEST, "offset -1 before topic", 0);
	wire_put_fetch(&frame, 6, "nosuch", 0, 0, 10, 0, 11);
	expect(&frame, WIRE_CORRUPT_REQUEST, "minBytes before topic", 0);
	wire_put_fetch(&frame, 6, "nosuch", 0, 0, 0, 0, 0);
	expect(&frame, WIRE_CORRUPT_REQUEST, "maxBytes before topic", 0);

	/* The topic before size and range. */
	wire_put_produce(&frame, 7, "nosuch", 0, WIRE_WRITTEN, &too_large, 1);
	expect(&frame, WIRE_UNKNOWN_TOPIC_OR_PARTITION, "topic before size", 0);
	wire_put_produce(&frame, 7, "o", 3, WIRE_FORCED, &too_large, 1);
	expect(&frame, WIRE_UNKNOWN_TOPIC_OR_PARTITION, "partition before size", 0);
	wire_put_produce(&frame, 7, "o", 2, WIRE_FORCED, &too_large, 1);
	expect(&frame, WIRE_RECORD_TOO_LARGE, "size", 0);
	wire_put_fetch(&frame, 8, "nosuch", 0, INT64_MAX, 10, 1000, 1);
	expect(&frame, WIRE_UNKNOWN_TOPIC_OR_PARTITION, "topic before range", 0);
	wire_put_fetch(&frame, 8, "o", 3, INT64_MAX, 10, 1000, 1);
	expect(&frame, WIRE_UNKNOWN_TOPIC_OR_PARTITION, "partition before range", 0);

	/* METADATA: a corrupt name behind an unknown one. */
	wire_begin(&frame, WIRE_METADATA, 1, 9);
	wire_put_i32(&frame, 2);
	wire_put_name(&frame, "nosuch");
	wire_put_name(&frame, "..");
	wire_end(&frame, 0);
	expect(&frame, WIRE_CORRUPT_REQUEST, "corrupt name before unknown one", 0);

	for (int32_t partition = 0; partition < 3; partition++)
		ck_assert_int_eq(watermark("o", partition), 0);
	finish();
}
END_TEST

START_TEST(requests_of_kafka_are_unsupported)
{
	/* apiKey, apiVersion of ApiVersions, Metadata, Produce, Fetch, ListOffsets as today's clients send them. */
	static const int requests[][2] = { { 18, 3 }, { 3, 9 }, { 0, 9 }, { 1, 12 }, { 2, 7 }, { 60, 0 } };

	start(&table_config);
	for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
		struct wire_bytes frame = { 0 };

		wire_begin(&frame, requests[i][0], requests[i][1], 1 + (int32_t)i);
		wire_put_name(&frame, "a-client");
		wire_put_zeros(&frame, 10);
		wire_end(&frame, 0);
		expect(&frame, WIRE_UNSUPPORTED_VERSION, "apiKey", requests[i][0]);
	}
	finish();
}
END_TEST

/* ---- silence ------------------------------------------------------------------------------------------------- */

/* Sends a frame (freed) and METADATA behind it, in one write: the first answer must be METADATA's. */
static void
expect_silence(struct wire_bytes *frame, const char *what, long long value)
{
	static int32_t id = 1000;
	struct wire_answer answer;

	id++;
	wire_put_metadata(frame, id, 1, "t");
	ck_assert_int_eq(wire_send(fd, frame->data, frame->length), 0);
	ck_assert_int_eq(wire_read_answer(fd, &answer, WIRE_DEADLINE_MS), 0);
	ck_assert_msg(answer.id == id && answer.error == 0, "%s, %lld: the first answer has id %d, error %d", what, value,
	    answer.id, answer.error);
	wire_answer_free(&answer);
	wire_bytes_free(frame);
}

START_TEST(bug_F9_ack_none_is_silent)
{
	static const char *const names[] = { "..", "../../etc/x", "a b", "\xff\xfe", "nosuch" };
	static char large[2000];
	struct broker_config config = table_config;
	struct wire_bytes frame = { 0 };
	struct wire_bytes whole = { 0 };
	struct wire_fetched fetched;

	config.log = "segment_bytes = 1KiB\n";
	start(&config);

	wire_put_produce_one(&frame, 1, "o", 0, WIRE_NONE, "good", 4);
	expect_silence(&frame, "good", 0);
	wire_put_produce_one(&frame, 1, "o", 1, WIRE_NONE, "good", 4);
	expect_silence(&frame, "good, other worker", 0);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		wire_put_produce_one(&frame, 2, names[i], 0, WIRE_NONE, "x", 1);
		expect_silence(&frame, names[i], 0);
	}
	for (int32_t partition = 3; partition < 9; partition++) {
		wire_put_produce_one(&frame, 3, "o", partition, WIRE_NONE, "x", 1);
		expect_silence(&frame, "partition", partition);
	}
	wire_put_produce_one(&frame, 3, "o", -1, WIRE_NONE, "x", 1);
	expect_silence(&frame, "partition", -1);
	wire_put_produce_one(&frame, 4, "o", 0, WIRE_NONE, large, sizeof large);
	expect_silence(&frame, "too large", 0);
	wire_put_produce(&frame, 5, "o", 1, WIRE_NONE, NULL, 0);
	expect_silence(&frame, "zero records", 0);
	wire_put_produce_one(&frame, 5, "o", 0, WIRE_NONE, "", 0);
	expect_silence(&frame, "empty record", 0);

	/* A name whose length breaks the rule: the ack byte has its place all the same. */
	wire_put_produce_one(&frame, 6, "", 0, WIRE_NONE, "x", 1);
	expect_silence(&frame, "empty name", 0);
	wire_begin(&frame, WIRE_PRODUCE, 1, 6);
	wire_put_i16(&frame, 65535);
	wire_put_zeros(&frame, 65535 + 4 + 1);
	wire_end(&frame, 0);
	expect_silence(&frame, "name of 65,535 zeros", 0);

	/* Cut behind the ack byte: silence. Before it: there is no ack byte, so the refusal is answered. */
	build_produce(&whole, 0);
	whole.data[AT_ACK] = WIRE_NONE;
	for (size_t length = 5; length < whole.length; length++) {
		if (length <= AT_ACK) {
			expect_cut(&whole, length, "PRODUCE NONE");
			continue;
		}
		wire_put(&frame, whole.data, length);
		wire_set_i32(frame.data, (int64_t)length - 4);
		expect_silence(&frame, "cut to", (long long)length);
	}
	for (size_t more = 1; more < 5; more++) {
		wire_put(&frame, whole.data, whole.length);
		wire_put_zeros(&frame, more);
		wire_end(&frame, 0);
		expect_silence(&frame, "trailing bytes", (long long)more);
	}
	for (size_t p = 0; p < 3; p++) {
		static const size_t places[] = { AT_RECORD_COUNT, AT_FIRST_SIZE, AT_SECOND_SIZE };
		static const int64_t values[] = { 0, -1, INT32_MAX, INT32_MIN };

		for (size_t i = 0; i < 4; i++) {
			wire_put(&frame, whole.data, whole.length);
			wire_set_i32(frame.data + places[p], values[i]);
			expect_silence(&frame, "count or size", (long long)values[i]);
		}
	}
	/* A wrong name length moves the ack byte's place; beyond the frame's end there is none. */
	for (int length = 0; length < 40; length++) {
		size_t place = AT_NAME + (size_t)length + 4;

		if (length == 1)
			continue;
		wire_put(&frame, whole.data, whole.length);
		wire_set_i16(frame.data + AT_NAME_LENGTH, length);
		if (place < frame.length && frame.data[place] == 0)
			expect_silence(&frame, "name length", length);
		else
			expect(&frame, WIRE_CORRUPT_REQUEST, "NONE, name length", length);
	}

	ck_assert_int_eq(watermark("o", 0), 1);
	ck_assert_int_eq(watermark("o", 1), 1);
	ck_assert_int_eq(watermark("o", 2), 0);
	ck_assert_int_eq(watermark("t", 0), 0);
	ck_assert_int_eq(wire_fetch(fd, "o", 1, 0, 100, 0, 0, &fetched), 0);
	ck_assert_uint_eq(fetched.length, 12);
	ck_assert_mem_eq(fetched.payload + 8, "good", 4);
	wire_fetched_free(&fetched);
	wire_bytes_free(&whole);
	finish();
}
END_TEST

START_TEST(silent_refusals_are_counted)
{
	struct wire_bytes frames = { 0 };
	double before;

	start(&table_config);
	ck_assert_int_eq(watermark("t", 0), 0);
	ck_assert(broker_wait_metric_least(&broker, "logbroker_requests_total", NULL, 1, 5000));
	before = broker_metric(&broker, "logbroker_requests_total", NULL);
	for (int i = 0; i < 10; i++) {
		wire_put_produce_one(&frames, 1, "nosuch", 0, WIRE_NONE, "x", 1);
		wire_put_produce(&frames, 1, "o", i % 3, WIRE_NONE, NULL, 0);
	}
	wire_put_metadata(&frames, 2, 1, NULL);
	ck_assert_int_eq(wire_send(fd, frames.data, frames.length), 0);
	ck_assert_int_eq(wire_expect(fd, 2), 0);
	ck_assert(broker_wait_metric(&broker, "logbroker_requests_total", NULL, before + 21, 5000));
	wire_bytes_free(&frames);
	finish();
}
END_TEST

/* ---- names ------------------------------------------------------------------------------------------------- */

static void
put_raw_name(struct wire_bytes *frame, int api, const void *name, size_t length)
{
	size_t at = wire_begin(frame, api, 1, 77);

	if (api == WIRE_METADATA)
		wire_put_i32(frame, 1);
	wire_put_i16(frame, (int)length);
	wire_put(frame, name, length);
	if (api == WIRE_PRODUCE) {
		wire_put_i32(frame, 0);
		wire_put_i8(frame, WIRE_WRITTEN);
		wire_put_i32(frame, 1);
		wire_put_i32(frame, 1);
		wire_put_i8(frame, 'x');
	} else if (api == WIRE_FETCH) {
		wire_put_i32(frame, 0);
		wire_put_i64(frame, 0);
		wire_put_i32(frame, 100);
	}
	wire_end(frame, at);
}

static void
expect_name(const void *name, size_t length, int code)
{
	for (int api = WIRE_PRODUCE; api <= WIRE_METADATA; api++) {
		struct wire_bytes frame = { 0 };
		int got;

		put_raw_name(&frame, api, name, length);
		got = wire_ask(fd, &frame, NULL);
		ck_assert_msg(got == code, "api %d, name of %zu bytes '%.*s': answered %d, not %d", api, length,
		    length < 60 ? (int)length : 60, (const char *)name, got, code);
		wire_bytes_free(&frame);
	}
}

static bool
may_stand_in_a_name(int byte)
{
	return byte != 0 && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-", byte) != NULL;
}

START_TEST(topic_names)
{
	char topics[400];
	char longest[249];
	char name[65536];

	memset(longest, 'n', sizeof longest);
	memset(name, 'n', sizeof name);
	snprintf(topics, sizeof topics, "t = 2\n%.249s = 2\n", longest);
	start(&(struct broker_config){ .topics = topics });

	for (int byte = 0; byte < 256; byte++) {
		char inside[3] = { 'a', (char)byte, 'b' };
		int code = may_stand_in_a_name(byte) ? WIRE_UNKNOWN_TOPIC_OR_PARTITION : WIRE_CORRUPT_REQUEST;

		expect_name(inside, 3, code);
		expect_name(inside, 2, code);
		expect_name(inside + 1, 2, code);
		if (byte != '.' && byte != 't')
			expect_name(inside + 1, 1, code);
	}
	expect_name(".", 1, WIRE_CORRUPT_REQUEST);
	expect_name("..", 2, WIRE_CORRUPT_REQUEST);
	expect_name("...", 3, WIRE_UNKNOWN_TOPIC_OR_PARTITION);
	expect_name(".a", 2, WIRE_UNKNOWN_TOPIC_OR_PARTITION);
	expect_name("T", 1, WIRE_UNKNOWN_TOPIC_OR_PARTITION);
	expect_name("t-0", 3, WIRE_UNKNOWN_TOPIC_OR_PARTITION);
	expect_name("t\0", 2, WIRE_CORRUPT_REQUEST);
	expect_name("", 0, WIRE_CORRUPT_REQUEST);
	expect_name("\xc3\xa4", 2, WIRE_CORRUPT_REQUEST);
	expect_name("\xed\xa0\x80", 3, WIRE_CORRUPT_REQUEST);

	expect_name(name, 2, WIRE_UNKNOWN_TOPIC_OR_PARTITION);
	expect_name(name, 248, WIRE_UNKNOWN_TOPIC_OR_PARTITION);
	expect_name(name, 249, WIRE_OK);
	expect_name(name, 250, WIRE_CORRUPT_REQUEST);
	expect_name(name, 251, WIRE_CORRUPT_REQUEST);
	expect_name(name, 255, WIRE_CORRUPT_REQUEST);
	expect_name(name, 256 + 249, WIRE_CORRUPT_REQUEST);
	expect_name(name, 32767, WIRE_CORRUPT_REQUEST);
	expect_name(name, 32768, WIRE_CORRUPT_REQUEST);
	expect_name(name, 65535, WIRE_CORRUPT_REQUEST);
	longest[248] = 'N';
	expect_name(longest, 249, WIRE_UNKNOWN_TOPIC_OR_PARTITION);
	ck_assert_int_eq(watermark("t", 0), 0);
	finish();
}
END_TEST

START_TEST(bug_I5_names_make_no_path)
{
	static const char *const texts[] = { "etc/x", "xyzzy", "pl\\300ugh", "plugh" };
	char name[65536];
	bool traced = broker_have_strace();

	start(&(struct broker_config){ .topics = "t = 2\n", .strace = traced ? "-e trace=%file" : NULL });
	expect_name("../../etc/x", 11, WIRE_CORRUPT_REQUEST);
	expect_name("/etc/x", 6, WIRE_CORRUPT_REQUEST);
	expect_name("xyzzy/../t", 10, WIRE_CORRUPT_REQUEST);
	expect_name("xyzzy", 5, WIRE_UNKNOWN_TOPIC_OR_PARTITION);
	expect_name("xyzzy-0", 7, WIRE_UNKNOWN_TOPIC_OR_PARTITION);
	expect_name("t\0xyzzy", 7, WIRE_CORRUPT_REQUEST);
	expect_name("pl\300ugh", 6, WIRE_CORRUPT_REQUEST);
	expect_name(" plugh", 6, WIRE_CORRUPT_REQUEST);
	expect_name(".", 1, WIRE_CORRUPT_REQUEST);
	expect_name("..", 2, WIRE_CORRUPT_REQUEST);
	expect_name("", 0, WIRE_CORRUPT_REQUEST);
	memset(name, 'q', sizeof name);
	memcpy(name, "plugh", 5);
	expect_name(name, 65535, WIRE_CORRUPT_REQUEST);
	finish();
	if (!traced) {
		printf("bug_I5: strace is not available, paths not checked\n");
		return;
	}
	ck_assert_int_gt(broker_count_strace(&broker, "t-0", NULL), 0);
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
		ck_assert_msg(broker_count_strace(&broker, texts[i], NULL) == 0, "a path was made from a name: %s", texts[i]);
}
END_TEST

/* ---- METADATA ------------------------------------------------------------------------------------------------ */

static const struct broker_config many_config = {
	.topics = "zz = 2\nB = 1\na = 3\na- = 1\na. = 1\na0 = 1\naa = 12\n_x = 1\nA.b = 2\n",
	.sections = "[topic zz]\nrecord_format = plain\ngroup = 1\n[topic aa]\ngroup = 0\n",
};

START_TEST(metadata_is_sorted_and_complete)
{
	/* '-' 2d, '.' 2e, '0' 30, upper case, '_' 5f, lower case. */
	static const struct { const char *name; int partitions; } sorted[] = { { "A.b", 2 }, { "B", 1 }, { "_x", 1 },
		{ "a", 3 }, { "a-", 1 }, { "a.", 1 }, { "a0", 1 }, { "aa", 12 }, { "zz", 2 } };
	enum { TOPICS = sizeof sorted / sizeof *sorted };

	start(&many_config);
	ck_assert_int_eq(broker.partition_count, 24);
	for (int version = 1; version <= 2; version++) {
		struct wire_topics topics;
		size_t at = 0;

		ck_assert_int_eq(wire_metadata(fd, version, NULL, &topics), 0);
		ck_assert_int_eq(topics.topic_count, TOPICS);
		ck_assert_uint_eq(topics.count, 24);
		for (int i = 0; i < TOPICS; i++)
			for (int partition = 0; partition < sorted[i].partitions; partition++) {
				const struct wire_partition *got = &topics.list[at++];

				ck_assert_str_eq(got->topic, sorted[i].name);
				ck_assert_int_eq(got->partition, partition);
				ck_assert_int_eq(got->log_start, 0);
				ck_assert_int_eq(got->high_watermark, 0);
				if (version == 1)
					continue;
				ck_assert_int_eq(got->record_format, i == TOPICS - 1 ? 0 : 1);
				ck_assert_int_ge(got->group, 0);
				ck_assert_int_lt(got->group, 2);
				if (i == TOPICS - 1)
					ck_assert_int_eq(got->group, 1);
				if (strcmp(got->topic, "aa") == 0)
					ck_assert_int_eq(got->group, 0);
			}
		wire_topics_free(&topics);
	}
	finish();
}
END_TEST

/* Asks for these names (ended by NULL), compares the topics that come with `expected`. */
static void
expect_topics(int version, const char *const *names, const char *const *expected)
{
	struct wire_bytes frame = { 0 };
	struct wire_answer answer;
	struct wire_topics topics;
	int32_t count = 0;
	size_t at = 0;

	wire_begin(&frame, WIRE_METADATA, version, 5);
	wire_put_i32(&frame, 0);
	for (; names[count] != NULL; count++)
		wire_put_name(&frame, names[count]);
	wire_set_i32(frame.data + AT_TOPIC_COUNT, count);
	wire_end(&frame, 0);
	ck_assert_int_eq(wire_ask(fd, &frame, &answer), 0);
	ck_assert_int_eq(wire_parse_topics(&answer, version, &topics), 0);
	for (count = 0; expected[count] != NULL; count++) {
		ck_assert_uint_lt(at, topics.count);
		ck_assert_str_eq(topics.list[at].topic, expected[count]);
		while (at < topics.count && strcmp(topics.list[at].topic, expected[count]) == 0)
			at++;
	}
	ck_assert_int_eq(topics.topic_count, count);
	ck_assert_uint_eq(at, topics.count);
	wire_topics_free(&topics);
	wire_answer_free(&answer);
	wire_bytes_free(&frame);
}

START_TEST(metadata_of_named_topics)
{
	static const char *const backwards[] = { "zz", "aa", "a", "B", NULL };
	static const char *const forwards[] = { "B", "a", "aa", "zz", NULL };
	static const char *const twice[] = { "zz", "B", "zz", "B", "B", NULL };
	static const char *const once[] = { "B", "zz", NULL };
	static const char *const unknown[] = { "B", "nosuch", "b" };
	struct wire_bytes frame = { 0 };

	start(&many_config);
	for (int version = 1; version <= 2; version++) {
		expect_topics(version, backwards, forwards);
		expect_topics(version, twice, once);
		expect_topics(version, once, once);
	}
	/* One unknown name fails the whole request, wherever it stands. */
	for (int place = 0; place < 3; place++) {
		wire_begin(&frame, WIRE_METADATA, 1 + place % 2, 5);
		wire_put_i32(&frame, 3);
		for (int i = 0; i < 3; i++)
			wire_put_name(&frame, i == place ? unknown[1] : unknown[0]);
		wire_end(&frame, 0);
		expect(&frame, WIRE_UNKNOWN_TOPIC_OR_PARTITION, "place", place);
	}
	wire_put_metadata(&frame, 6, 1, "b");
	expect(&frame, WIRE_UNKNOWN_TOPIC_OR_PARTITION, "b", 0);
	finish();
}
END_TEST

/* ---- frame lengths ------------------------------------------------------------------------------------------- */

START_TEST(impossible_lengths_close_behind_the_answers)
{
	static const int64_t lengths[] = { 0, -1, WIRE_FRAME_MAX + 1, INT32_MAX, INT32_MIN, -2, 0x47455420 };
	int baseline;

	start(&table_config);
	ck_assert_int_eq(watermark("t", 0), 0);
	baseline = broker_fd_count(broker.workers[0]) + broker_fd_count(broker.workers[1]);
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		int other = wire_connect_tcp(broker.port);
		struct wire_bytes frames = { 0 };

		wire_put_produce_one(&frames, 1, "o", 0, WIRE_WRITTEN, "x", 1);
		wire_put_metadata(&frames, 2, 1, NULL);
		wire_put_produce_one(&frames, 3, "o", 1, WIRE_FORCED, "y", 1);
		wire_put_fetch(&frames, 4, "o", 0, 0, 100, 0, 0);
		wire_put_i32(&frames, lengths[i]);
		/* What follows must not make a reset of the end. */
		wire_put_zeros(&frames, 300000);
		wire_put_produce_one(&frames, 5, "o", 2, WIRE_WRITTEN, "never", 5);
		ck_assert_int_eq(wire_send(other, frames.data, frames.length), 0);
		ck_assert_int_eq(wire_expect(other, 1), 0);
		ck_assert_int_eq(wire_expect(other, 2), 0);
		ck_assert_int_eq(wire_expect(other, 3), 0);
		ck_assert_int_eq(wire_expect(other, 4), 0);
		ck_assert_msg(wire_ended_orderly(other, 10000), "length %lld: no orderly end", (long long)lengths[i]);
		wire_bytes_free(&frames);
		close(other);
	}
	ck_assert_int_eq(watermark("o", 0), sizeof lengths / sizeof *lengths);
	ck_assert_int_eq(watermark("o", 1), sizeof lengths / sizeof *lengths);
	ck_assert_int_eq(watermark("o", 2), 0);
	for (int i = 0; i < 1000; i++) {
		if (broker_fd_count(broker.workers[0]) + broker_fd_count(broker.workers[1]) <= baseline)
			break;
		usleep(10000);
	}
	ck_assert_int_le(broker_fd_count(broker.workers[0]) + broker_fd_count(broker.workers[1]), baseline);
	finish();
}
END_TEST

/* A PRODUCE whose frame length is exactly that. */
static void
put_produce_of_length(struct wire_bytes *frame, const char *topic, int32_t length)
{
	size_t fixed = 8 + 2 + strlen(topic) + 4 + 1 + 4 + 4;
	char *payload = calloc(1, (size_t)length);

	wire_put_produce_one(frame, length, topic, 0, WIRE_WRITTEN, payload, (size_t)length - fixed);
	ck_assert_int_eq(wire_get_i32(frame->data), length);
	free(payload);
}

START_TEST(max_frame_bytes_is_the_limit)
{
	static const int32_t maxima[] = { 65536, 8388608 };

	for (int m = 0; m < 2; m++) {
		int32_t max = maxima[m];
		struct wire_bytes frame = { 0 };
		char lines[100];

		/* plain: the largest payload of the default frame is 8,388,584, above crc32c's limit and below plain's */
		snprintf(lines, sizeof lines, "max_frame_bytes = %d\n", max);
		start(&(struct broker_config){ .broker = lines, .topics = "t = 2\n", .log = "record_format = plain\n" });
		put_produce_of_length(&frame, "t", max - 1);
		expect(&frame, 0, "length", max - 1);
		put_produce_of_length(&frame, "t", max);
		expect(&frame, 0, "length", max);
		ck_assert_int_eq(watermark("t", 0), 2);
		put_produce_of_length(&frame, "t", max + 1);
		wire_send(fd, frame.data, frame.length);
		ck_assert_msg(wire_ended_orderly(fd, 10000), "length %d: not closed", max + 1);
		wire_bytes_free(&frame);
		close(fd);
		fd = wire_connect_tcp(broker.port);
		ck_assert_int_eq(watermark("t", 0), 2);
		finish();
	}
}
END_TEST

/* ---- fragmentation ------------------------------------------------------------------------------------------- */

/* A pipelined dialogue over both workers; its answers are checked against what is known of the log. */
struct dialogue {
	struct wire_bytes bytes;
	size_t ends[64];	/* of each frame */
	int frames;
	int answers;
	struct { int32_t id; int code; int32_t partition; int records; } expected[64];	/* partition -1: no PRODUCE */
	int64_t next[3];	/* offsets of topic o's partitions */
};

static void
add_frame_end(struct dialogue *dialogue)
{
	dialogue->ends[dialogue->frames++] = dialogue->bytes.length;
}

static void
add_expected(struct dialogue *dialogue, int32_t id, int code, int32_t partition, int records)
{
	dialogue->expected[dialogue->answers].id = id;
	dialogue->expected[dialogue->answers].code = code;
	dialogue->expected[dialogue->answers].partition = partition;
	dialogue->expected[dialogue->answers].records = records;
	dialogue->answers++;
	add_frame_end(dialogue);
}

static void
add_produce(struct dialogue *dialogue, int32_t partition, int ack, int records)
{
	struct wire_record list[4] = { { "one", 3 }, { "a second one", 12 }, { "3", 1 }, { "and the fourth", 14 } };
	int32_t id = 1000 + dialogue->frames;

	wire_put_produce(&dialogue->bytes, id, "o", partition, ack, list, (size_t)records);
	if (ack == WIRE_NONE)
		add_frame_end(dialogue);
	else
		add_expected(dialogue, id, 0, partition, records);
}

static void
make_dialogue(struct dialogue *dialogue)
{
	memset(dialogue, 0, sizeof *dialogue);
	add_produce(dialogue, 0, WIRE_WRITTEN, 2);
	add_produce(dialogue, 0, WIRE_WRITTEN, 1);
	wire_put_metadata(&dialogue->bytes, 1, 1, NULL);
	add_expected(dialogue, 1, 0, -1, 0);
	add_produce(dialogue, 1, WIRE_WRITTEN, 4);
	wire_put_fetch(&dialogue->bytes, 2, "o", 1, 0, 30, 1000, 1);
	add_expected(dialogue, 2, 0, -1, 0);
	add_produce(dialogue, 2, WIRE_FORCED, 1);
	wire_begin(&dialogue->bytes, 9, 9, 3);
	wire_end(&dialogue->bytes, dialogue->bytes.length - 12);
	add_expected(dialogue, 3, WIRE_UNSUPPORTED_VERSION, -1, 0);
	wire_put_produce_one(&dialogue->bytes, 4, "nosuch", 0, WIRE_NONE, "x", 1);
	add_frame_end(dialogue);
	wire_put_i32(&dialogue->bytes, 3);
	wire_put(&dialogue->bytes, "\0\1\0", 3);
	add_expected(dialogue, 0, WIRE_CORRUPT_REQUEST, -1, 0);
	add_produce(dialogue, 1, WIRE_FORCED, 3);
	wire_put_fetch(&dialogue->bytes, 5, "o", 0, INT64_MAX, 30, 1000, 1);
	add_expected(dialogue, 5, WIRE_OFFSET_OUT_OF_RANGE, -1, 0);
	add_produce(dialogue, 0, WIRE_WRITTEN, 1);
}

/* Answers `from` to `to` (not included), read and compared. */
static void
check_answers(struct dialogue *dialogue, int from, int to, const char *how, size_t where)
{
	for (int i = from; i < to; i++) {
		struct wire_answer answer;
		int code = wire_read_answer(fd, &answer, WIRE_DEADLINE_MS);
		int32_t partition = dialogue->expected[i].partition;

		ck_assert_msg(code == 0, "%s %zu: answer %d: %d", how, where, i, code);
		ck_assert_msg(answer.id == dialogue->expected[i].id && answer.error == dialogue->expected[i].code,
		    "%s %zu: answer %d has id %d, error %d", how, where, i, answer.id, answer.error);
		if (partition >= 0) {
			ck_assert_msg(wire_get_i64(answer.body) == dialogue->next[partition],
			    "%s %zu: answer %d has base %lld, not %lld", how, where, i, (long long)wire_get_i64(answer.body),
			    (long long)dialogue->next[partition]);
			dialogue->next[partition] += dialogue->expected[i].records;
		}
		wire_answer_free(&answer);
	}
}

/* How many answers stand for the frames that end at or before `length`. The silent ones are known by their ids. */
static int
answers_before(const struct dialogue *dialogue, size_t length)
{
	int frames = 0;
	int silent = 0;

	for (int i = 0; i < dialogue->frames; i++) {
		size_t begin = i > 0 ? dialogue->ends[i - 1] : 0;

		if (dialogue->ends[i] > length)
			break;
		frames++;
		if (wire_get_i32(dialogue->bytes.data + begin) > 8 && wire_get_i32(dialogue->bytes.data + begin + 8) == 4)
			silent++;
	}
	return frames - silent;
}

static void
start_dialogue(struct dialogue *dialogue)
{
	start(&table_config);
	make_dialogue(dialogue);
	ck_assert_int_eq(answers_before(dialogue, dialogue->bytes.length), dialogue->answers);
}

static void
finish_dialogue(struct dialogue *dialogue)
{
	for (int32_t partition = 0; partition < 3; partition++)
		ck_assert_int_eq(watermark("o", partition), dialogue->next[partition]);
	wire_bytes_free(&dialogue->bytes);
	finish();
}

START_TEST(bug_F7_every_split_point)
{
	struct dialogue dialogue;

	start_dialogue(&dialogue);
	for (size_t split = 0; split <= dialogue.bytes.length; split++) {
		int first = answers_before(&dialogue, split);

		ck_assert_int_eq(wire_send(fd, dialogue.bytes.data, split), 0);
		check_answers(&dialogue, 0, first, "split at", split);
		ck_assert_int_eq(wire_send(fd, dialogue.bytes.data + split, dialogue.bytes.length - split), 0);
		check_answers(&dialogue, first, dialogue.answers, "split at", split);
	}
	finish_dialogue(&dialogue);
}
END_TEST

START_TEST(bug_F7_byte_by_byte)
{
	struct dialogue dialogue;

	start_dialogue(&dialogue);
	for (int round = 0; round < 3; round++) {
		for (size_t i = 0; i < dialogue.bytes.length; i++)
			ck_assert_int_eq(wire_send(fd, dialogue.bytes.data + i, 1), 0);
		check_answers(&dialogue, 0, dialogue.answers, "byte by byte", 0);
	}
	/* And with every answer read before the next frame's first byte. */
	for (size_t i = 0; i < dialogue.bytes.length; i++) {
		ck_assert_int_eq(wire_send(fd, dialogue.bytes.data + i, 1), 0);
		check_answers(&dialogue, answers_before(&dialogue, i), answers_before(&dialogue, i + 1), "one byte", i);
	}
	finish_dialogue(&dialogue);
}
END_TEST

START_TEST(bug_F7_two_and_a_half_frames_per_write)
{
	struct dialogue dialogue;
	struct wire_bytes many = { 0 };
	enum { TIMES = 5 };
	size_t sent = 0;

	start_dialogue(&dialogue);
	for (int i = 0; i < TIMES; i++)
		wire_put(&many, dialogue.bytes.data, dialogue.bytes.length);
	for (size_t halves = 5; sent < many.length; halves += 5) {
		size_t frame = halves / 2 % (size_t)dialogue.frames;
		size_t begin = frame > 0 ? dialogue.ends[frame - 1] : 0;
		size_t to = halves / 2 / (size_t)dialogue.frames * dialogue.bytes.length;

		to += halves % 2 == 0 ? begin : (begin + dialogue.ends[frame]) / 2;
		if (to > many.length)
			to = many.length;
		ck_assert_int_eq(wire_send(fd, many.data + sent, to - sent), 0);
		sent = to;
	}
	for (int i = 0; i < TIMES; i++)
		check_answers(&dialogue, 0, dialogue.answers, "2.5 frames, time", (size_t)i);
	wire_bytes_free(&many);
	finish_dialogue(&dialogue);
}
END_TEST

START_TEST(bug_F7_random_pieces)
{
	struct dialogue dialogue;
	struct wire_bytes many = { 0 };
	uint64_t random = broker_seed("bug_F7_random_pieces");

	start_dialogue(&dialogue);
	for (int round = 0; round < 20 * broker_scale(); round++) {
		size_t sent = 0;

		many.length = 0;
		for (int i = 0; i < 5; i++)
			wire_put(&many, dialogue.bytes.data, dialogue.bytes.length);
		while (sent < many.length) {
			size_t piece = 1 + wire_random(&random) % (wire_random(&random) % 4 == 0 ? 400 : 20);

			if (piece > many.length - sent)
				piece = many.length - sent;
			ck_assert_int_eq(wire_send(fd, many.data + sent, piece), 0);
			sent += piece;
		}
		for (int i = 0; i < 5; i++)
			check_answers(&dialogue, 0, dialogue.answers, "random pieces, round", (size_t)round);
	}
	wire_bytes_free(&many);
	finish_dialogue(&dialogue);
}
END_TEST

/* A client that stops in mid-frame: the others are served, its half frame comes to nothing. */
START_TEST(bug_F7_stops_in_mid_frame)
{
	struct wire_bytes frame = { 0 };
	int other;
	int64_t began;

	start(&(struct broker_config){ .topics = "o = 2\n", .broker = "request_timeout = 300ms\n" });
	other = wire_connect_tcp(broker.port);
	wire_put_produce_one(&frame, 1, "o", 1, WIRE_WRITTEN, "never whole", 11);
	began = wire_now_ms();
	ck_assert_int_eq(wire_send(other, frame.data, frame.length - 1), 0);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(wire_produce_one(fd, "o", i % 2, WIRE_WRITTEN, "x", 1, NULL), 0);
	ck_assert(wire_ended(other, 10000));
	ck_assert_int_ge(wire_now_ms() - began, 300);
	close(other);
	ck_assert_int_eq(watermark("o", 1), 10);
	wire_bytes_free(&frame);
	finish();
}
END_TEST

/* Large frames cut anywhere, to the worker that does not own the connection. */
START_TEST(large_frames_in_pieces)
{
	uint64_t random = broker_seed("large_frames_in_pieces");
	size_t size = 3000000;
	uint8_t *payload = malloc(size);
	int64_t next[2] = { 0, 0 };

	for (size_t i = 0; i < size; i++)
		payload[i] = (uint8_t)wire_random(&random);
	start(&(struct broker_config){ .topics = "o = 2\n" });
	for (int round = 0; round < 12 * broker_scale(); round++) {
		int32_t partition = round % 2;
		size_t length = 1 + wire_random(&random) % size;
		struct wire_bytes frame = { 0 };
		struct wire_answer answer;
		struct wire_fetched fetched;
		size_t cut;

		wire_put_produce_one(&frame, round, "o", partition, WIRE_WRITTEN, payload, length);
		/* The answer of a METADATA before it shows that what stands before the cut was read. */
		cut = wire_random(&random) % 3 == 0 ? wire_random(&random) % 40 : wire_random(&random) % frame.length;
		ck_assert_int_eq(wire_send(fd, frame.data, cut), 0);
		usleep((unsigned)(wire_random(&random) % 3000));
		ck_assert_int_eq(wire_send(fd, frame.data + cut, frame.length - cut), 0);
		ck_assert_int_eq(wire_read_answer(fd, &answer, WIRE_DEADLINE_MS), 0);
		ck_assert_int_eq(answer.id, round);
		ck_assert_int_eq(answer.error, 0);
		ck_assert_int_eq(wire_get_i64(answer.body), next[partition]);
		ck_assert_int_eq(wire_fetch(fd, "o", partition, next[partition], 4000000, 0, 0, &fetched), 0);
		ck_assert_uint_eq(fetched.length, length + 8);
		ck_assert_mem_eq(fetched.payload + 8, payload, length);
		wire_fetched_free(&fetched);
		wire_answer_free(&answer);
		wire_bytes_free(&frame);
		next[partition]++;
	}
	free(payload);
	finish();
}
END_TEST

/* ---- the end of a connection --------------------------------------------------------------------------------- */

START_TEST(half_close_answers_what_is_complete)
{
	struct wire_bytes frames = { 0 };
	struct wire_answer answer;
	struct wire_fetched fetched;
	int other;

	start(&table_config);
	other = wire_connect_tcp(broker.port);
	wire_put_produce_one(&frames, 1, "o", 0, WIRE_FORCED, "a", 1);
	wire_put_metadata(&frames, 2, 1, "o");
	/* Held for a minute, unless the end releases it: with what is there, which is less than minBytes. */
	wire_put_fetch(&frames, 3, "o", 0, 0, 1000, 60000, 1000);
	wire_put_produce_one(&frames, 4, "o", 1, WIRE_WRITTEN, "b", 1);
	wire_put_fetch(&frames, 5, "o", 1, 1, 1000, 60000, 1);
	wire_put_produce_one(&frames, 6, "o", 2, WIRE_NONE, "c", 1);
	/* Half a frame: dropped. */
	wire_put_produce_one(&frames, 7, "o", 2, WIRE_WRITTEN, "never", 5);
	frames.length -= 3;
	ck_assert_int_eq(wire_send(other, frames.data, frames.length), 0);
	ck_assert_int_eq(shutdown(other, SHUT_WR), 0);
	ck_assert_int_eq(wire_expect(other, 1), 0);
	ck_assert_int_eq(wire_expect(other, 2), 0);
	ck_assert_int_eq(wire_read_answer(other, &answer, 20000), 0);
	ck_assert_int_eq(answer.id, 3);
	ck_assert_int_eq(wire_parse_fetched(&answer, &fetched), 0);
	ck_assert_uint_eq(fetched.length, 9);
	wire_fetched_free(&fetched);
	wire_answer_free(&answer);
	ck_assert_int_eq(wire_expect(other, 4), 0);
	ck_assert_int_eq(wire_read_answer(other, &answer, 20000), 0);
	ck_assert_int_eq(answer.id, 5);
	ck_assert_int_eq(wire_parse_fetched(&answer, &fetched), 0);
	ck_assert_uint_eq(fetched.length, 0);
	ck_assert_int_eq(fetched.high_watermark, 1);
	wire_answer_free(&answer);
	ck_assert(wire_ended_orderly(other, 10000));
	close(other);
	ck_assert_int_eq(watermark("o", 2), 1);
	wire_bytes_free(&frames);
	finish();
}
END_TEST

START_TEST(half_close_of_an_idle_connection)
{
	struct wire_bytes frame = { 0 };

	start(&table_config);
	for (int sent = 0; sent < 20; sent++) {
		int other = wire_connect_tcp(broker.port);

		frame.length = 0;
		wire_put_metadata(&frame, 1, 1, NULL);
		ck_assert_int_eq(wire_send(other, frame.data, sent <= 16 ? (size_t)sent : 0), 0);
		shutdown(other, SHUT_WR);
		if (sent == (int)frame.length)
			ck_assert_int_eq(wire_expect(other, 1), 0);
		ck_assert(wire_ended_orderly(other, 10000));
		close(other);
	}
	wire_bytes_free(&frame);
	finish();
}
END_TEST

/* ---- FETCH: range, sizes ------------------------------------------------------------------------------------- */

START_TEST(bug_E9_outside_the_log)
{
	static const struct value offsets[] = { RANGE(INT64_MAX), RANGE(6), RANGE(7), GOOD(5), GOOD(4), GOOD(0), CORRUPT(-1),
		CORRUPT(INT64_MIN), RANGE(1LL << 62), CORRUPT(-(1LL << 62)), END };

	start(&table_config);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(wire_produce_one(fd, "o", 1, WIRE_WRITTEN, "x", 1, NULL), 0);
	/* An empty log: 0 is caught up, anything else out of range. With and without a wait. */
	for (int32_t wait = 0; wait <= 60000; wait += 60000) {
		struct wire_fetched fetched;

		for (const struct value *value = offsets; value->code != -99; value++) {
			int code = wire_fetch(fd, "o", 1, value->value, 100, value->value == 5 ? 0 : wait, 1, &fetched);

			ck_assert_msg(code == value->code, "offset %lld: %d", (long long)value->value, code);
			if (code == 0)
				ck_assert_int_eq(fetched.high_watermark, 5);
			if (code == 0 && value->value == 5)
				ck_assert_uint_eq(fetched.length, 0);
			wire_fetched_free(&fetched);
		}
		ck_assert_int_eq(wire_fetch(fd, "o", 2, 1, 100, wait, 1, &fetched), WIRE_OFFSET_OUT_OF_RANGE);
		ck_assert_int_eq(wire_fetch(fd, "o", 2, 0, 100, 0, 1, &fetched), 0);
		ck_assert_uint_eq(fetched.length, 0);
	}
	finish();
}
END_TEST

/* Appends a record as it stands in the log. */
static void
put_encoded(struct wire_bytes *log, bool crc, const void *payload, size_t length)
{
	wire_put_i32(log, (int64_t)length);
	if (crc)
		wire_put_i32(log, wire_crc32c(payload, length));
	wire_put(log, payload, length);
}

static void
large_log(const char *log_lines)
{
	enum { RECORDS = 20, SIZE = 600000 };
	static const int32_t sizes[] = { 64 << 20, INT32_MAX, WIRE_PAYLOAD_MAX, WIRE_PAYLOAD_MAX + 1, WIRE_PAYLOAD_MAX - 1,
		9000000 };
	uint8_t *payload = malloc(SIZE);
	struct wire_bytes expected = { 0 };
	struct wire_bytes got = { 0 };
	uint64_t random = 12;

	start(&(struct broker_config){ .topics = "t = 2\n", .log = log_lines });
	for (int i = 0; i < RECORDS; i++) {
		for (size_t b = 0; b < SIZE; b++)
			payload[b] = (uint8_t)wire_random(&random);
		ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, payload, SIZE, NULL), 0);
		put_encoded(&expected, true, payload, SIZE);
	}
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (int held = 0; held < 2; held++) {
			struct wire_fetched fetched;

			/* wire_read_answer refuses a frame above 8 MiB as malformed. minBytes counts as at most the largest
			 * payload: no wait. */
			ck_assert_int_eq(wire_fetch(fd, "t", 1, 0, sizes[i], held ? 60000 : 0, held ? sizes[i] : 0, &fetched), 0);
			ck_assert_uint_gt(fetched.length, SIZE);
			ck_assert_uint_le(fetched.length, WIRE_PAYLOAD_MAX);
			ck_assert_mem_eq(fetched.payload, expected.data, fetched.length);
			wire_fetched_free(&fetched);
		}
	for (size_t i = 0; i < 3; i++) {
		got.length = 0;
		ck_assert_int_eq(wire_read_log(fd, "t", 1, 0, RECORDS, sizes[i], true, &got), RECORDS);
		ck_assert_uint_eq(got.length, expected.length);
		ck_assert_mem_eq(got.data, expected.data, got.length);
	}
	wire_bytes_free(&got);
	wire_bytes_free(&expected);
	free(payload);
	finish();
}

START_TEST(bug_E12_no_frame_above_8_mib)
{
	large_log("");
}
END_TEST

START_TEST(bug_E12_no_frame_above_8_mib_over_segments)
{
	large_log("segment_bytes = 1MiB\n");
}
END_TEST

/*
 * FETCH at every offset with maxBytes 1 to 16: the payload is the log from that record's first byte, cut at the byte; it
 * may end with its segment. The sizes make headers cross 4 KiB, 64 KiB and touch the segments' ends.
 */
static void
tiny_fetches(bool crc, int64_t segment_bytes)
{
	enum { RECORDS = 900 };
	static size_t places[RECORDS + 1];
	int64_t bases[1000];
	size_t header = crc ? 8 : 4;
	struct wire_bytes expected = { 0 };
	struct wire_bytes requests = { 0 };
	struct wire_bytes answers = { 0 };
	struct wire_answer answer;
	uint64_t random = 7;
	uint8_t payload[400];
	char lines[100];
	size_t position = 0;
	int segments;
	int segment = 0;

	snprintf(lines, sizeof lines, "segment_bytes = %lld\nrecord_format = %s\n", (long long)segment_bytes,
	    crc ? "crc32c" : "plain");
	start(&(struct broker_config){ .topics = "t = 2\n", .log = lines });
	for (int i = 0; i < RECORDS; i++) {
		size_t length = 1 + wire_random(&random) % 200;
		size_t to_page = 4096 - expected.length % 4096;

		/* Near a page's end: let the next header begin 1 to header - 1 bytes before it. */
		if (to_page > header + 20 && to_page < header + 300)
			length = to_page - header - 1 - wire_random(&random) % (header - 1);
		for (size_t b = 0; b < length; b++)
			payload[b] = (uint8_t)wire_random(&random);
		places[i] = expected.length;
		put_encoded(&expected, crc, payload, length);
		wire_put_produce_one(&requests, i, "t", 1, WIRE_WRITTEN, payload, length);
	}
	places[RECORDS] = expected.length;
	ck_assert_uint_eq(wire_exchange(fd, requests.data, requests.length, RECORDS, &answers, WIRE_DEADLINE_MS), RECORDS);
	segments = broker_segments(&broker, "t", 1, bases, 1000);
	ck_assert_int_ge(segments, 1);
	if (segment_bytes < (int64_t)expected.length)
		ck_assert_int_gt(segments, 3);
	requests.length = answers.length = 0;
	for (int i = 0; i < RECORDS; i++)
		for (int max = 1; max <= 16; max++)
			wire_put_fetch_v1(&requests, i * 16 + max - 1, "t", 1, i, max);
	ck_assert_uint_eq(wire_exchange(fd, requests.data, requests.length, RECORDS * 16, &answers, 2 * WIRE_DEADLINE_MS),
	    RECORDS * 16);
	for (int i = 0; i < RECORDS; i++)
		for (size_t max = 1; max <= 16; max++) {
			size_t want;
			size_t to_end;
			size_t length;

			ck_assert(wire_next_answer(&answers, &position, &answer));
			ck_assert_int_eq(answer.id, i * 16 + (int)max - 1);
			ck_assert_int_eq(answer.error, 0);
			ck_assert_int_eq(wire_get_i64(answer.body), RECORDS);
			while (segment + 1 < segments && bases[segment + 1] <= i)
				segment++;
			to_end = (segment + 1 < segments ? places[bases[segment + 1]] : places[RECORDS]) - places[i];
			want = max < places[RECORDS] - places[i] ? max : places[RECORDS] - places[i];
			length = (size_t)wire_get_i32(answer.body + 8);
			ck_assert_uint_eq(length, answer.body_length - 12);
			ck_assert_msg(length == want || (length == to_end && to_end < want),
			    "offset %d, maxBytes %zu: %zu bytes", i, max, length);
			ck_assert_mem_eq(answer.body + 12, expected.data + places[i], length);
		}
	wire_bytes_free(&answers);
	wire_bytes_free(&requests);
	wire_bytes_free(&expected);
	finish();
}

START_TEST(bug_E7_tiny_fetches_at_every_offset)
{
	tiny_fetches(true, 512 << 20);
}
END_TEST

START_TEST(bug_E7_tiny_fetches_at_every_offset_plain)
{
	tiny_fetches(false, 512 << 20);
}
END_TEST

START_TEST(bug_E7_tiny_fetches_at_every_offset_of_segments)
{
	tiny_fetches(true, 4096);
	tiny_fetches(false, 4099);
}
END_TEST

/* ---- RECORD_TOO_LARGE ---------------------------------------------------------------------------------------- */

START_TEST(records_that_no_segment_holds)
{
	static const struct { const char *topic; size_t max; } limits[] = { { "crc", 1016 }, { "plain", 1020 } };
	char payload[2000];

	memset(payload, 'r', sizeof payload);
	start(&(struct broker_config){ .topics = "crc = 2\nplain = 2\n", .log = "segment_bytes = 1KiB\n",
	    .sections = "[topic plain]\nrecord_format = plain\n" });
	for (int i = 0; i < 2; i++) {
		struct wire_record three[3] = { { payload, 5 }, { payload, limits[i].max + 1 }, { payload, 5 } };
		struct wire_fetched fetched;
		int64_t base;

		for (size_t more = 1; more < 5; more++)
			ck_assert_int_eq(wire_produce_one(fd, limits[i].topic, 1, WIRE_WRITTEN, payload, limits[i].max + more, NULL),
			    WIRE_RECORD_TOO_LARGE);
		/* One record that is too large refuses the whole request, wherever it stands. */
		for (int place = 0; place < 3; place++) {
			struct wire_record swapped = three[place];

			three[place] = three[1];
			three[1] = swapped;
			ck_assert_int_eq(wire_produce(fd, limits[i].topic, 1, WIRE_FORCED, three, 3, NULL, NULL),
			    WIRE_RECORD_TOO_LARGE);
			three[1] = three[place];
			three[place] = swapped;
		}
		ck_assert_int_eq(watermark(limits[i].topic, 1), 0);
		for (size_t less = 0; less < 3; less++) {
			ck_assert_int_eq(wire_produce_one(fd, limits[i].topic, 1, WIRE_WRITTEN, payload, limits[i].max - less, &base), 0);
			ck_assert_int_eq(base, (int64_t)less);
			ck_assert_int_eq(wire_fetch(fd, limits[i].topic, 1, base, 4000, 0, 0, &fetched), 0);
			ck_assert_uint_ge(fetched.length, limits[i].max - less);
			ck_assert_int_eq(wire_get_i32(fetched.payload), (int32_t)(limits[i].max - less));
			wire_fetched_free(&fetched);
		}
	}
	finish();
}
END_TEST

START_TEST(records_that_no_answer_carries)
{
	static const struct { const char *topic; size_t max; size_t header; } limits[] = { { "crc", 8388582, 8 },
		{ "plain", 8388586, 4 } };
	size_t size = 8388586 + 100;
	uint8_t *payload = malloc(size);
	uint64_t random = 3;

	for (size_t i = 0; i < size; i++)
		payload[i] = (uint8_t)wire_random(&random);
	start(&(struct broker_config){ .topics = "crc = 2\nplain = 2\n", .broker = "max_frame_bytes = 16MiB\n",
	    .sections = "[topic plain]\nrecord_format = plain\n" });
	for (int i = 0; i < 2; i++) {
		struct wire_record two[2] = { { payload, 5 }, { payload, limits[i].max + 1 } };
		struct wire_fetched fetched;
		int64_t base;

		ck_assert_int_eq(wire_produce_one(fd, limits[i].topic, 1, WIRE_WRITTEN, payload, limits[i].max + 1, NULL),
		    WIRE_RECORD_TOO_LARGE);
		ck_assert_int_eq(wire_produce(fd, limits[i].topic, 1, WIRE_WRITTEN, two, 2, NULL, NULL), WIRE_RECORD_TOO_LARGE);
		ck_assert_int_eq(watermark(limits[i].topic, 1), 0);
		for (size_t less = 0; less < 2; less++) {
			ck_assert_int_eq(wire_produce_one(fd, limits[i].topic, 1, WIRE_WRITTEN, payload, limits[i].max - less, &base), 0);
			ck_assert_int_eq(base, (int64_t)less);
			ck_assert_int_eq(wire_fetch(fd, limits[i].topic, 1, base, INT32_MAX, 0, 0, &fetched), 0);
			if (less == 0)
				ck_assert_uint_eq(fetched.length, WIRE_PAYLOAD_MAX);
			else
				ck_assert_uint_eq(fetched.length, WIRE_PAYLOAD_MAX - 1);
			ck_assert_int_eq(wire_get_i32(fetched.payload), (int32_t)(limits[i].max - less));
			ck_assert_mem_eq(fetched.payload + limits[i].header, payload, limits[i].max - less);
			if (limits[i].header == 8)
				ck_assert_uint_eq((uint32_t)wire_get_i32(fetched.payload + 4),
				    wire_crc32c(payload, limits[i].max - less));
			wire_fetched_free(&fetched);
		}
		ck_assert_int_eq(watermark(limits[i].topic, 1), 2);
	}
	free(payload);
	finish();
}
END_TEST

/* The default frame is large enough for the largest record of crc32c. */
START_TEST(largest_record_in_a_default_frame)
{
	uint8_t *payload = calloc(1, 8388583);

	start(&(struct broker_config){ .topics = "t = 2\n" });
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, payload, 8388583, NULL), WIRE_RECORD_TOO_LARGE);
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, payload, 8388582, NULL), 0);
	ck_assert_int_eq(watermark("t", 1), 1);
	free(payload);
	finish();
}
END_TEST

/* ---- this file's own tools ----------------------------------------------------------------------------------- */

START_TEST(wire_crc32c_golden)
{
	char path[BROKER_PATH_BYTES];
	char *line = NULL;
	size_t size = 0;
	FILE *file;
	int count = 0;

	broker_source_path("vectors/crc32c.tsv", path, sizeof path);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (getline(&line, &size, file) >= 0) {
		struct wire_bytes payload = { 0 };

		if (*line == '#')
			continue;
		wire_put_hex(&payload, line);
		ck_assert_uint_eq(wire_crc32c(payload.data, payload.length), strtoul(strchr(line, '\t') + 1, NULL, 10));
		wire_bytes_free(&payload);
		count++;
	}
	ck_assert_int_ge(count, 8);
	free(line);
	fclose(file);
}
END_TEST

static Suite *
suite(void)
{
	Suite *all = suite_create("protocol");
	TCase *dialogue = tcase_create("dialogue");
	TCase *refusals = tcase_create("refusals");
	TCase *names = tcase_create("names");
	TCase *frames = tcase_create("frames");
	TCase *sizes = tcase_create("sizes");
	TCase *cases[] = { dialogue, refusals, names, frames, sizes };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		tcase_set_timeout(cases[i], 60.0 * broker_scale());
		suite_add_tcase(all, cases[i]);
	}
	tcase_add_test(dialogue, wire_crc32c_golden);
	tcase_add_test(dialogue, frames_tsv_dialogue);
	tcase_add_test(dialogue, frames_tsv_dialogue_over_a_unix_socket);
	tcase_add_test(dialogue, frames_tsv_dialogue_pipelined);

	tcase_add_test(refusals, every_number_at_its_boundaries);
	tcase_add_test(refusals, every_correlation_id_comes_back);
	tcase_add_test(refusals, produce_boundaries_that_are_good);
	tcase_add_test(refusals, counts_as_large_as_a_frame_allows);
	tcase_add_test(refusals, bug_F4_every_truncation);
	tcase_add_test(refusals, every_truncation_of_an_unknown_version_is_unsupported);
	tcase_add_test(refusals, trailing_bytes_are_corrupt);
	tcase_add_test(refusals, order_of_checks);
	tcase_add_test(refusals, requests_of_kafka_are_unsupported);
	tcase_add_test(refusals, bug_F9_ack_none_is_silent);
	tcase_add_test(refusals, silent_refusals_are_counted);

	tcase_add_test(names, topic_names);
	tcase_add_test(names, bug_I5_names_make_no_path);
	tcase_add_test(names, metadata_is_sorted_and_complete);
	tcase_add_test(names, metadata_of_named_topics);

	tcase_add_test(frames, impossible_lengths_close_behind_the_answers);
	tcase_add_test(frames, max_frame_bytes_is_the_limit);
	tcase_add_test(frames, bug_F7_every_split_point);
	tcase_add_test(frames, bug_F7_byte_by_byte);
	tcase_add_test(frames, bug_F7_two_and_a_half_frames_per_write);
	tcase_add_test(frames, bug_F7_random_pieces);
	tcase_add_test(frames, bug_F7_stops_in_mid_frame);
	tcase_add_test(frames, large_frames_in_pieces);
	tcase_add_test(frames, half_close_answers_what_is_complete);
	tcase_add_test(frames, half_close_of_an_idle_connection);

	tcase_add_test(sizes, bug_E9_outside_the_log);
	tcase_add_test(sizes, bug_E12_no_frame_above_8_mib);
	tcase_add_test(sizes, bug_E12_no_frame_above_8_mib_over_segments);
	tcase_add_test(sizes, bug_E7_tiny_fetches_at_every_offset);
	tcase_add_test(sizes, bug_E7_tiny_fetches_at_every_offset_plain);
	tcase_add_test(sizes, bug_E7_tiny_fetches_at_every_offset_of_segments);
	tcase_add_test(sizes, records_that_no_segment_holds);
	tcase_add_test(sizes, records_that_no_answer_carries);
	tcase_add_test(sizes, largest_record_in_a_default_frame);
	return all;
}

int
main(void)
{
	return broker_main(suite());
}
