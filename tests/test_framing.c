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

START_TEST(framing_parse_knows_four_names)
{
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
	SRunner *runner;
	int failed;

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
	tcase_add_test(tcase, framing_put_writes_a_record_that_holds_the_delimiter_as_it_is);
	tcase_add_test(tcase, framing_parse_knows_four_names);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
