/*
 * The reader: every place where a FETCH answer can be cut, every kind of damage, records larger than what was asked
 * for. No socket.
 */
#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/reader.h"

enum { RECORDS = 5 };

/* Records "a", "bb", "ccc" ...; tells where each begins. */
static size_t
make_payload(enum record_format format, uint8_t *to, size_t *begins)
{
	uint8_t *end = to;

	for (size_t i = 0; i < RECORDS; i++) {
		uint8_t bytes[RECORDS];

		memset(bytes, (int)('a' + i), i + 1);
		begins[i] = (size_t)(end - to);
		end = record_put(end, format, bytes, i + 1);
	}
	begins[RECORDS] = (size_t)(end - to);
	return (size_t)(end - to);
}

static struct reader
new_reader(enum record_format format, int32_t max_bytes)
{
	return (struct reader){ .format = format, .position = 100, .end = INT64_MAX, .max_bytes = max_bytes,
		.ask_bytes = max_bytes };
}

START_TEST(reader_cut_at_every_byte_drops_the_tail_and_goes_on_from_it)
{
	enum record_format format = _i == 0 ? RECORD_PLAIN : RECORD_CRC32C;
	size_t begins[RECORDS + 1];
	uint8_t whole[256];
	size_t bytes = make_payload(format, whole, begins);

	for (size_t cut = 1; cut <= bytes; cut++) {
		struct reader reader = new_reader(format, (int32_t)cut);
		struct reader_batch batch;
		int64_t complete = 0;
		uint8_t *payload = malloc(cut);		/* of exactly this size: a sanitizer sees a byte too far */
		enum reader_verdict verdict;

		memcpy(payload, whole, cut);
		while (begins[complete + 1] <= cut && complete + 1 < RECORDS)
			complete++;
		complete += cut == bytes;
		verdict = reader_take(&reader, payload, cut, INT64_MAX, &batch);
		ck_assert_int_eq(batch.records, complete);
		ck_assert_uint_eq(batch.bytes, begins[complete]);
		ck_assert_int_eq(reader.position, 100 + complete);
		ck_assert_int_eq(verdict, complete == 0 ? READER_LARGER : READER_GOES_ON);
		if (complete == 0)
			ck_assert_int_gt(reader.ask_bytes, (int32_t)cut);
		free(payload);
	}
}
END_TEST

START_TEST(reader_stops_at_its_end_and_at_the_most_records)
{
	size_t begins[RECORDS + 1];
	uint8_t payload[256];
	size_t bytes = make_payload(RECORD_CRC32C, payload, begins);
	struct reader reader = new_reader(RECORD_CRC32C, 1024);
	struct reader_batch batch;

	reader.end = 103;
	ck_assert_int_eq(reader_take(&reader, payload, bytes, INT64_MAX, &batch), READER_GOES_ON);
	ck_assert_int_eq(batch.records, 3);
	ck_assert_int_eq(reader.position, 103);
	reader = new_reader(RECORD_CRC32C, 1024);
	ck_assert_int_eq(reader_take(&reader, payload, bytes, 2, &batch), READER_GOES_ON);
	ck_assert_int_eq(batch.records, 2);
	ck_assert_uint_eq(batch.bytes, begins[2]);
}
END_TEST

START_TEST(bug_J1_reader_flipped_bit_anywhere_is_never_delivered)
{
	size_t begins[RECORDS + 1];
	uint8_t good[256];
	size_t bytes = make_payload(RECORD_CRC32C, good, begins);

	for (size_t at = 0; at < bytes; at++) {
		for (int bit = 0; bit < 8; bit++) {
			struct reader reader = new_reader(RECORD_CRC32C, 1024);
			struct reader_batch batch;
			uint8_t payload[256];
			int64_t hit = 0;

			memcpy(payload, good, bytes);
			payload[at] ^= (uint8_t)(1 << bit);
			while (begins[hit + 1] <= at)
				hit++;
			reader_take(&reader, payload, bytes, INT64_MAX, &batch);
			ck_assert_int_eq(batch.records, hit);
			ck_assert_int_eq(reader.position, 100 + hit);
		}
	}
}
END_TEST

START_TEST(reader_names_the_damage)
{
	static const struct {
		const char *bytes;
		size_t size;
		const char *told;
	} damages[] = {
		{ "\0\0\0\0\0\0\0\0", 8, "zero" },
		{ "\377\377\377\377\0\0\0\0", 8, "impossible" },
		{ "\200\0\0\0\0\0\0\0", 8, "impossible" },
		{ "\0\200\0\0\0\0\0\0", 8, "impossible" },	/* 8 MiB: no answer could carry it */
		{ "\0\0\0\1\0\0\0\0a", 9, "sum" },
	};
	struct reader reader = new_reader(RECORD_CRC32C, 1024);
	struct reader_batch batch;

	ck_assert_int_eq(reader_take(&reader, (const uint8_t *)damages[_i].bytes, damages[_i].size, INT64_MAX, &batch),
	    READER_DAMAGED);
	ck_assert_int_eq(batch.records, 0);
	ck_assert_ptr_nonnull(strstr(batch.damage, damages[_i].told));
}
END_TEST

/* The begin of a length like 0x00000100 is zeros: no damage. */
START_TEST(reader_cut_inside_a_length_of_zeros_is_no_damage)
{
	struct reader reader = new_reader(RECORD_CRC32C, 1024);
	struct reader_batch batch;
	uint8_t payload[16];
	uint8_t *end = record_put(payload, RECORD_CRC32C, (const uint8_t *)"a", 1);

	memset(end, 0, 3);
	for (size_t tail = 1; tail <= 3; tail++) {
		reader = new_reader(RECORD_CRC32C, 1024);
		ck_assert_int_eq(reader_take(&reader, payload, 9 + tail, INT64_MAX, &batch), READER_GOES_ON);
		ck_assert_int_eq(batch.records, 1);
	}
}
END_TEST

/* The request grows to the record's size, once, and back; a broker that still does not send it is told of. */
START_TEST(A15_reader_record_larger_than_max_bytes_is_asked_for_once)
{
	uint8_t *payload = calloc(1, 100000);
	uint8_t *record = malloc(100008);
	struct reader reader = new_reader(RECORD_CRC32C, 1);
	struct reader_batch batch;

	record_put(record, RECORD_CRC32C, payload, 100000);
	ck_assert_int_eq(reader_take(&reader, record, 1, INT64_MAX, &batch), READER_LARGER);
	ck_assert_int_eq(reader.ask_bytes, 8);
	ck_assert_int_eq(reader_take(&reader, record, 8, INT64_MAX, &batch), READER_LARGER);
	ck_assert_int_eq(reader.ask_bytes, 100008);
	ck_assert_int_eq(reader_take(&reader, record, 1000, INT64_MAX, &batch), READER_STUCK);
	ck_assert_uint_eq(batch.stuck_bytes, 100000);
	ck_assert_int_eq(reader_take(&reader, record, 3, INT64_MAX, &batch), READER_STUCK);
	ck_assert_uint_eq(batch.stuck_bytes, 0);
	ck_assert_int_eq(reader_take(&reader, record, 100008, INT64_MAX, &batch), READER_GOES_ON);
	ck_assert_int_eq(batch.records, 1);
	ck_assert_int_eq(reader.ask_bytes, 1);
	free(payload);
	free(record);
}
END_TEST

START_TEST(reader_empty_answer_changes_nothing)
{
	struct reader reader = new_reader(RECORD_CRC32C, 1024);
	struct reader_batch batch;

	ck_assert_int_eq(reader_take(&reader, NULL, 0, INT64_MAX, &batch), READER_EMPTY);
	ck_assert_int_eq(batch.records, 0);
	ck_assert_int_eq(reader.position, 100);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("reader");
	TCase *tcase = tcase_create("reader");
	SRunner *runner;
	int failed;

	tcase_add_loop_test(tcase, reader_cut_at_every_byte_drops_the_tail_and_goes_on_from_it, 0, 2);
	tcase_add_test(tcase, reader_stops_at_its_end_and_at_the_most_records);
	tcase_add_test(tcase, bug_J1_reader_flipped_bit_anywhere_is_never_delivered);
	tcase_add_loop_test(tcase, reader_names_the_damage, 0, 5);
	tcase_add_test(tcase, reader_cut_inside_a_length_of_zeros_is_no_damage);
	tcase_add_test(tcase, A15_reader_record_larger_than_max_bytes_is_asked_for_once);
	tcase_add_test(tcase, reader_empty_answer_changes_nothing);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
