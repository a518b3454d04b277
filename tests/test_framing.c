/*
 * Framings: what goes in comes out, whatever the bytes, the pieces they arrive in, and the size of the record; and
 * what is no record is told with its place.
 */
#include <check.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "client/framing.h"
#include "client/json.h"
#include "tests/unit.h"

enum { MAX_BYTES = 2 * 1024 * 1024 };

static int
input_of(const void *bytes, size_t size)
{
	int fd = memfd_create("input", 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static void
expect_record(struct framing_reader *reader, const char *payload, size_t size, int64_t position)
{
	struct framing_record record;

	ck_assert_int_eq(framing_next(reader, &record), FRAMING_RECORD);
	ck_assert_uint_eq(record.size, size);
	ck_assert_mem_eq(record.payload, payload, size);
	ck_assert_int_eq(record.position, position);
}

static void
expect(struct framing_reader *reader, enum framing_result result)
{
	struct framing_record record;

	ck_assert_int_eq(framing_next(reader, &record), result);
	/* It stays so. */
	ck_assert_int_eq(framing_next(reader, &record), result);
}

START_TEST(framing_lines_blank_line_is_a_record_of_one_newline)
{
	int fd = input_of("one\n\ntwo\n\n", 10);
	struct framing_reader *reader = framing_open(FRAMING_LINES, fd, MAX_BYTES);

	expect_record(reader, "one", 3, 0);
	expect_record(reader, "\n", 1, 4);
	expect_record(reader, "two", 3, 5);
	expect_record(reader, "\n", 1, 9);
	expect(reader, FRAMING_END);
	framing_close(reader);
	close(fd);
}
END_TEST

START_TEST(framing_lines_last_line_without_newline_is_marked)
{
	int fd = input_of("one\ntwo", 7);
	struct framing_reader *reader = framing_open(FRAMING_LINES, fd, MAX_BYTES);
	struct framing_record record;

	ck_assert_int_eq(framing_next(reader, &record), FRAMING_RECORD);
	ck_assert(!record.unterminated);
	ck_assert_int_eq(framing_next(reader, &record), FRAMING_RECORD);
	ck_assert(record.unterminated);
	ck_assert_mem_eq(record.payload, "two", 3);
	expect(reader, FRAMING_END);
	framing_close(reader);
	close(fd);
}
END_TEST

START_TEST(framing_nul_keeps_newlines_and_blank_records)
{
	int fd = input_of("a\nb\0\0c", 6);
	struct framing_reader *reader = framing_open(FRAMING_NUL, fd, MAX_BYTES);

	expect_record(reader, "a\nb", 3, 0);
	expect_record(reader, "\0", 1, 4);
	expect_record(reader, "c", 1, 5);
	expect(reader, FRAMING_END);
	framing_close(reader);
	close(fd);
}
END_TEST

START_TEST(framing_none_takes_the_whole_input_as_one_record)
{
	int fd = input_of("a\n\0b\n", 5);
	struct framing_reader *reader = framing_open(FRAMING_NONE, fd, MAX_BYTES);

	expect_record(reader, "a\n\0b\n", 5, 0);
	expect(reader, FRAMING_END);
	framing_close(reader);
	close(fd);
}
END_TEST

START_TEST(framing_none_refuses_an_empty_input)
{
	int fd = input_of("", 0);
	struct framing_reader *reader = framing_open(FRAMING_NONE, fd, MAX_BYTES);

	expect(reader, FRAMING_BAD);
	ck_assert_ptr_nonnull(strstr(framing_problem(reader), "empty"));
	framing_close(reader);
	close(fd);
}
END_TEST

START_TEST(framing_empty_input_of_the_others_ends_at_once)
{
	static const enum framing framings[] = { FRAMING_LINES, FRAMING_NUL, FRAMING_LEN32 };

	for (size_t i = 0; i < 3; i++) {
		int fd = input_of("", 0);
		struct framing_reader *reader = framing_open(framings[i], fd, MAX_BYTES);

		expect(reader, FRAMING_END);
		framing_close(reader);
		close(fd);
	}
}
END_TEST

static const struct {
	const char *bytes;
	size_t size, good;
	const char *told;
} bad_len32[] = {
	{ "\0\0\0\0", 4, 0, "a length of 0 at byte 0;" },
	{ "\0\0\0\1x\0\0\0\0", 9, 1, "a length of 0 at byte 5;" },
	{ "\0\0\0\1x\377\377\377\377", 9, 1, "a length of -1 at byte 5;" },
	{ "\0\0\0\1x\200\0\0\0", 9, 1, "a length of -2147483648 at byte 5;" },
	{ "\0\0\0\1x\177\377\377\377", 9, 1, "a length of 2147483647 at byte 5;" },
	{ "\0\0\0\1x\0\040\0\1", 9, 1, "a length of 2097153 at byte 5;" },
	{ "\0\0\0\1x\0", 6, 1, "ends at byte 6, inside the record that begins at byte 5" },
	{ "\0\0\0\1x\0\0\0\2", 9, 1, "ends at byte 9, inside the record that begins at byte 5" },
	{ "\0\0\0\1x\0\0\0\2y", 10, 1, "ends at byte 10, inside the record that begins at byte 5" },
};

START_TEST(framing_len32_tells_the_place_of_a_bad_length)
{
	int fd = input_of(bad_len32[_i].bytes, bad_len32[_i].size);
	struct framing_reader *reader = framing_open(FRAMING_LEN32, fd, MAX_BYTES);

	if (bad_len32[_i].good == 1)
		expect_record(reader, "x", 1, 0);
	expect(reader, FRAMING_BAD);
	ck_assert_msg(strstr(framing_problem(reader), bad_len32[_i].told) != NULL, "said: %s", framing_problem(reader));
	framing_close(reader);
	close(fd);
}
END_TEST

/* The largest record passes; one byte more is told with its place, and memory stays bounded. */
START_TEST(framing_record_size_limit_is_exact)
{
	static const enum framing framings[] = { FRAMING_LINES, FRAMING_NUL, FRAMING_LEN32, FRAMING_NONE };
	char *bytes = malloc(MAX_BYTES + 16);
	char *payload = malloc(MAX_BYTES + 1);
	int64_t place = framings[_i] == FRAMING_NONE ? 0 : 2;

	memset(payload, 'x', MAX_BYTES + 1);
	for (size_t size = MAX_BYTES - 1; size <= MAX_BYTES + 1; size++) {
		char *end = bytes;
		struct framing_reader *reader;
		int fd;

		if (framings[_i] == FRAMING_LEN32) {
			place = 5;
			end = (char *)framing_put((uint8_t *)end, framings[_i], (const uint8_t *)"a", 1);
		} else if (framings[_i] != FRAMING_NONE) {
			end = (char *)framing_put((uint8_t *)end, framings[_i], (const uint8_t *)"a", 1);
		}
		end = (char *)framing_put((uint8_t *)end, framings[_i], (uint8_t *)payload, size);
		fd = input_of(bytes, (size_t)(end - bytes));
		reader = framing_open(framings[_i], fd, MAX_BYTES);
		if (framings[_i] != FRAMING_NONE)
			expect_record(reader, "a", 1, 0);
		if (size <= MAX_BYTES)
			expect_record(reader, payload, size, place);
		expect(reader, size <= MAX_BYTES ? FRAMING_END : FRAMING_BAD);
		framing_close(reader);
		close(fd);
	}
	free(bytes);
	free(payload);
}
END_TEST

struct records {
	size_t count;
	size_t sizes[400];
	uint8_t *payloads[400];
};

/* Random bytes; with a delimiter none of them is that, except where the whole record is. */
static void
make_records(struct records *records, int delimiter)
{
	records->count = 1 + (size_t)rand() % 400;
	for (size_t i = 0; i < records->count; i++) {
		size_t size = rand() % 20 == 0 ? 1 + (size_t)rand() % 300000 : 1 + (size_t)rand() % 60;

		records->sizes[i] = size;
		records->payloads[i] = malloc(size);
		for (size_t k = 0; k < size; k++) {
			uint8_t byte = (uint8_t)rand();

			records->payloads[i][k] = byte == delimiter ? (uint8_t)(byte + 1) : byte;
		}
		if (delimiter >= 0 && rand() % 5 == 0) {
			records->sizes[i] = 1;
			records->payloads[i][0] = (uint8_t)delimiter;
		}
	}
}

static uint8_t *
frame_records(const struct records *records, enum framing framing, size_t *bytes)
{
	size_t room = 0;
	uint8_t *begin, *end;

	for (size_t i = 0; i < records->count; i++)
		room += records->sizes[i] + FRAMING_OVERHEAD_BYTES;
	begin = end = malloc(room);
	for (size_t i = 0; i < records->count; i++)
		end = framing_put(end, framing, records->payloads[i], records->sizes[i]);
	*bytes = (size_t)(end - begin);
	ck_assert_uint_le(*bytes, room);
	return begin;
}

static void
expect_records(const struct records *records, struct framing_reader *reader)
{
	struct framing_record record;

	for (size_t i = 0; i < records->count; i++) {
		ck_assert_int_eq(framing_next(reader, &record), FRAMING_RECORD);
		ck_assert_uint_eq(record.size, records->sizes[i]);
		ck_assert_mem_eq(record.payload, records->payloads[i], record.size);
		ck_assert(!record.unterminated);
	}
	ck_assert_int_eq(framing_next(reader, &record), FRAMING_END);
}

static void
free_records(struct records *records)
{
	for (size_t i = 0; i < records->count; i++)
		free(records->payloads[i]);
}

START_TEST(framing_round_trip_of_random_bytes)
{
	static const struct {
		enum framing framing;
		int delimiter;
	} kinds[] = { { FRAMING_LINES, '\n' }, { FRAMING_NUL, 0 }, { FRAMING_LEN32, -1 } };
	unsigned seed = (unsigned)time(NULL) + (unsigned)_i;
	struct records records;

	printf("framing_round_trip_of_random_bytes: seed %u\n", seed);
	srand(seed);
	for (int round = 0; round < 30; round += unit_sample()) {
		size_t bytes;
		uint8_t *framed;
		struct framing_reader *reader;
		int fd;

		make_records(&records, kinds[_i].delimiter);
		framed = frame_records(&records, kinds[_i].framing, &bytes);
		fd = input_of(framed, bytes);
		reader = framing_open(kinds[_i].framing, fd, MAX_BYTES);
		expect_records(&records, reader);
		framing_close(reader);
		close(fd);
		free(framed);
		free_records(&records);
	}
}
END_TEST

/* A pipe that is fed byte by byte: FRAMING_PAUSE in between, the same records. */
START_TEST(framing_input_byte_by_byte_pauses_and_loses_nothing)
{
	static const char bytes[] = "one\n\nthree\n";
	struct framing_record record;
	struct framing_reader *reader;
	int fds[2], records = 0;

	ck_assert_int_eq(pipe(fds), 0);
	reader = framing_open(FRAMING_LINES, fds[0], MAX_BYTES);
	for (size_t i = 0; i < sizeof(bytes) - 1; i++) {
		ck_assert_int_eq(framing_next(reader, &record), FRAMING_PAUSE);
		ck_assert_int_eq(write(fds[1], bytes + i, 1), 1);
		if (bytes[i] != '\n')
			continue;
		ck_assert_int_eq(framing_next(reader, &record), FRAMING_RECORD);
		ck_assert_mem_eq(record.payload, records == 0 ? "one" : records == 1 ? "\n" : "three", record.size);
		records++;
	}
	ck_assert_int_eq(framing_next(reader, &record), FRAMING_PAUSE);
	close(fds[1]);
	expect(reader, FRAMING_END);
	ck_assert_int_eq(records, 3);
	framing_close(reader);
	close(fds[0]);
}
END_TEST

START_TEST(framing_unreadable_input_is_told_with_the_reason)
{
	int fd = open("/", O_RDONLY);
	struct framing_reader *reader = framing_open(FRAMING_LINES, fd, MAX_BYTES);
	struct framing_record record;

	ck_assert_int_eq(framing_next(reader, &record), FRAMING_BAD);
	ck_assert_ptr_nonnull(strstr(framing_problem(reader), "directory"));
	framing_close(reader);
	close(fd);
}
END_TEST

START_TEST(framing_put_writes_a_record_that_holds_the_delimiter_as_it_is)
{
	uint8_t out[16];

	ck_assert_int_eq(framing_put(out, FRAMING_LINES, (const uint8_t *)"a\nb", 3) - out, 4);
	ck_assert_mem_eq(out, "a\nb\n", 4);
	ck_assert_int_eq(framing_put(out, FRAMING_NONE, (const uint8_t *)"a\nb", 3) - out, 3);
	ck_assert_mem_eq(out, "a\nb", 3);
	ck_assert_int_eq(framing_put(out, FRAMING_LEN32, (const uint8_t *)"a\nb", 3) - out, 7);
	ck_assert_mem_eq(out, "\0\0\0\3a\nb", 7);
}
END_TEST

/* ---- jsonl ---- */

static const struct {
	const char *line, *payload;
	size_t bytes;
} json_records[] = {
	{ "{\"payload\":\"one\"}", "one", 3 },
	{ " { \"payload\" :\t\"one\" } \r", "one", 3 },
	{ "{\"topic\":\"t\",\"partition\":0,\"offset\":17,\"payload\":\"x\"}", "x", 1 },
	{ "{\"payload\":\"x\",\"more\":[1,-2.5e+10,true,false,null,{\"a\":{},\"b\":[]},\"\\u0000\"]}", "x", 1 },
	{ "{\"payload\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\"}", "\"\\/\b\f\n\r\t\0\037", 10 },
	{ "{\"payload\":\"\\u00e9\\u20AC\\ud83d\\ude80\"}", "\303\251\342\202\254\360\237\232\200", 9 },
	{ "{\"payload\":\"\303\251\360\237\232\200\"}", "\303\251\360\237\232\200", 6 },
	{ "{\"pay\\u006coad\":\"x\"}", "x", 1 },
	{ "{\"payload_base64\":\"/w==\"}", "\377", 1 },
	{ "{\"payload_base64\":\"AP8=\"}", "\0\377", 2 },
	{ "{\"payload_base64\":\"+\\/8A\"}", "\373\377\0", 3 },
};

START_TEST(framing_jsonl_takes_the_payload_out_of_an_object)
{
	char two[512];
	int length = snprintf(two, sizeof two, "%s\n%s", json_records[_i].line, json_records[_i].line);
	int fd = input_of(two, (size_t)length);
	struct framing_reader *reader = framing_open(FRAMING_JSONL, fd, MAX_BYTES);

	expect_record(reader, json_records[_i].payload, json_records[_i].bytes, 0);
	expect_record(reader, json_records[_i].payload, json_records[_i].bytes, length / 2 + 1);
	expect(reader, FRAMING_END);
	framing_close(reader);
	close(fd);
}
END_TEST

static const struct {
	const char *line, *problem;
} json_problems[] = {
	{ "", "a record is a JSON object, at byte 16" },
	{ "[]", "a record is a JSON object, at byte 16" },
	{ "{}", "neither payload nor payload_base64" },
	{ "{\"payload\":\"\"}", "empty" },
	{ "{\"payload\":1}", "a string is missing, at byte 27" },
	{ "{\"payload\":\"a\",\"payload\":\"b\"}", "a second payload" },
	{ "{\"payload\":\"a\",\"payload_base64\":\"AA==\"}", "a second payload" },
	{ "{\"payload\":\"a\"} x", "something behind the object" },
	{ "{\"payload\":\"a\"", "a comma or } is missing" },
	{ "{\"payload\":\"a", "does not end" },
	{ "{\"payload\":\"a\",}", "a string is missing" },
	{ "{\"payload\" \"a\"}", "a colon is missing" },
	{ "{\"payload\":\"\\x\"}", "not an escape" },
	{ "{\"payload\":\"\\u12G4\"}", "not an escape" },
	{ "{\"payload\":\"\\ud83d\"}", "not an escape" },
	{ "{\"payload\":\"\\ude80\"}", "not an escape" },
	{ "{\"payload\":\"\\ud83d\\u0041\"}", "not an escape" },
	{ "{\"payload\":\"\t\"}", "control character" },
	{ "{\"payload\":\"\377\"}", "not UTF-8, at byte 28" },
	{ "{\"payload\":\"\355\240\200\"}", "not UTF-8, at byte 28" },
	{ "{\"payload_base64\":\"AA\"}", "not Base64" },
	{ "{\"payload_base64\":\"A===\"}", "not Base64" },
	{ "{\"payload_base64\":\"AA=A\"}", "not Base64" },
	{ "{\"payload_base64\":\"A*==\"}", "not Base64" },
	{ "{\"payload_base64\":\"\"}", "empty" },
	{ "{\"a\":01}", "a comma or } is missing" },
	{ "{\"a\":-}", "a value is missing" },
	{ "{\"a\":1.}", "a digit is missing" },
	{ "{\"a\":1e}", "a digit is missing" },
	{ "{\"a\":nul}", "a value is missing" },
	{ "{\"a\":[1 2]}", "a comma or ] is missing" },
	{ "{\"a\":}", "a value is missing" },
	{ "{\"a\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "too deep" },
};

/* Behind a good line: the place counts from the input's begin. */
START_TEST(framing_jsonl_tells_what_is_wrong_and_where)
{
	static const char good[] = "{\"payload\":\"x\"}\n";
	char input[512];
	int length = snprintf(input, sizeof input, "%s%s\n", good, json_problems[_i].line);
	int fd = input_of(input, (size_t)length);
	struct framing_reader *reader = framing_open(FRAMING_JSONL, fd, MAX_BYTES);

	expect_record(reader, "x", 1, 0);
	expect(reader, FRAMING_BAD);
	ck_assert_msg(strstr(framing_problem(reader), json_problems[_i].problem) != NULL, "%s", framing_problem(reader));
	framing_close(reader);
	close(fd);
}
END_TEST

/* Whatever stands in a line: an answer, and no byte outside it is touched (the sanitizers' builds see that). */
START_TEST(framing_jsonl_survives_any_line)
{
	static const char bytes[] = "{}[]\":,\\ud8009payload_base64=tfne+-. \377\303\251";
	unsigned seed = (unsigned)time(NULL);

	printf("framing_jsonl_survives_any_line: seed %u\n", seed);
	srand(seed);
	for (int i = 0; i < 200000; i += unit_sample()) {
		const uint8_t *payload;
		size_t size = (size_t)rand() % 60, payload_bytes, at;
		uint8_t *line = malloc(size + 1);
		size_t begin = 0;

		if (rand() % 2 == 0 && size > 12)
			begin = (size_t)sprintf((char *)line, "{\"payload\":\"");
		for (size_t k = begin; k < size; k++)
			line[k] = (uint8_t)bytes[(size_t)rand() % (sizeof bytes - 1)];
		line = realloc(line, size == 0 ? 1 : size);
		if (json_read_record(line, size, &payload, &payload_bytes, &at) == NULL)
			ck_assert(payload >= line && payload_bytes > 0 && payload + payload_bytes <= line + size);
		else
			ck_assert_uint_le(at, size);
		free(line);
	}
}
END_TEST

START_TEST(framing_parse_knows_five_names)
{
	ck_assert_int_eq(framing_parse("jsonl"), FRAMING_JSONL);
	ck_assert_int_eq(framing_parse("lines"), FRAMING_LINES);
	ck_assert_int_eq(framing_parse("nul"), FRAMING_NUL);
	ck_assert_int_eq(framing_parse("len32"), FRAMING_LEN32);
	ck_assert_int_eq(framing_parse("none"), FRAMING_NONE);
	ck_assert_int_eq(framing_parse("line"), -1);
	ck_assert_int_eq(framing_parse(""), -1);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("framing");
	TCase *tcase = tcase_create("framing");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, framing_lines_blank_line_is_a_record_of_one_newline);
	tcase_add_test(tcase, framing_lines_last_line_without_newline_is_marked);
	tcase_add_test(tcase, framing_nul_keeps_newlines_and_blank_records);
	tcase_add_test(tcase, framing_none_takes_the_whole_input_as_one_record);
	tcase_add_test(tcase, framing_none_refuses_an_empty_input);
	tcase_add_test(tcase, framing_empty_input_of_the_others_ends_at_once);
	tcase_add_loop_test(tcase, framing_len32_tells_the_place_of_a_bad_length, 0,
	    (int)(sizeof(bad_len32) / sizeof(bad_len32[0])));
	tcase_add_loop_test(tcase, framing_record_size_limit_is_exact, 0, 4);
	tcase_add_loop_test(tcase, framing_round_trip_of_random_bytes, 0, 3);
	tcase_add_test(tcase, framing_input_byte_by_byte_pauses_and_loses_nothing);
	tcase_add_test(tcase, framing_unreadable_input_is_told_with_the_reason);
	tcase_add_loop_test(tcase, framing_jsonl_takes_the_payload_out_of_an_object, 0,
	    (int)(sizeof(json_records) / sizeof(json_records[0])));
	tcase_add_loop_test(tcase, framing_jsonl_tells_what_is_wrong_and_where, 0,
	    (int)(sizeof(json_problems) / sizeof(json_problems[0])));
	tcase_add_test(tcase, framing_jsonl_survives_any_line);
	tcase_add_test(tcase, framing_put_writes_a_record_that_holds_the_delimiter_as_it_is);
	tcase_add_test(tcase, framing_parse_knows_five_names);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
