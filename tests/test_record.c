/* Records as bytes: what is written is what the drawing says, and every cut or change of it is seen. */
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "common/record.h"
#include "tests/unit.h"

static const enum record_format formats[] = { RECORD_PLAIN, RECORD_CRC32C };
enum { FORMATS = 2 };

START_TEST(numbers_of_the_format)
{
	ck_assert_uint_eq(record_header_bytes(RECORD_PLAIN), 4);
	ck_assert_uint_eq(record_header_bytes(RECORD_CRC32C), 8);
	ck_assert_int_eq(record_max_payload(RECORD_PLAIN), 8388586);
	ck_assert_int_eq(record_max_payload(RECORD_CRC32C), 8388582);
	ck_assert_int_eq(RECORD_PLAIN, 0);
	ck_assert_int_eq(RECORD_CRC32C, 1);
}
END_TEST

START_TEST(bytes_as_drawn)
{
	static const uint8_t plain[] = { 0, 0, 0, 2, 'b', 'c' };
	static const uint8_t crc[] = { 0, 0, 0, 2, 0x24, 0x2e, 0x02, 0xac, 'b', 'c' };
	uint8_t to[16];

	ck_assert_ptr_eq(record_put(to, RECORD_PLAIN, (const uint8_t *)"bc", 2), to + sizeof(plain));
	ck_assert_mem_eq(to, plain, sizeof(plain));
	ck_assert_ptr_eq(record_put(to, RECORD_CRC32C, (const uint8_t *)"bc", 2), to + sizeof(crc));
	ck_assert_mem_eq(to, crc, sizeof(crc));
}
END_TEST

START_TEST(a_valid_record_with_and_without_more_behind_it)
{
	enum record_format format = formats[_i];
	uint8_t to[128];

	for (size_t size = 1; size <= 64; size++) {
		size_t bytes, whole = record_header_bytes(format) + size;
		uint8_t payload[64];

		memset(payload, (int)size, sizeof(payload));
		memset(to, 0xFF, sizeof(to));
		ck_assert_ptr_eq(record_put(to, format, payload, size), to + whole);
		ck_assert_int_eq(record_check(format, to, whole, &bytes), RECORD_VALID);
		ck_assert_uint_eq(bytes, whole);
		ck_assert_int_eq(record_check(format, to, sizeof(to), &bytes), RECORD_VALID);
		ck_assert_uint_eq(bytes, whole);
	}
}
END_TEST

/* Each copy ends where its memory ends, so that a read behind the end is seen by the sanitizers. */
START_TEST(every_truncation_is_incomplete)
{
	enum record_format format = formats[_i];
	uint8_t to[32];
	size_t whole = (size_t)(record_put(to, format, (const uint8_t *)"payload", 7) - to);

	for (size_t left = 0; left < whole; left++) {
		uint8_t *copy = malloc(left > 0 ? left : 1);
		size_t bytes = 999;
		enum record_verdict verdict;

		memcpy(copy, to, left);
		verdict = record_check(format, copy, left, &bytes);
		/* The length word begins with three zero bytes: so few of it look like the zeros ahead of the end. */
		ck_assert_int_eq(verdict, left < 4 ? RECORD_END : RECORD_INCOMPLETE);
		ck_assert_uint_eq(bytes, left < 4 ? 0 : whole);
		free(copy);
	}
}
END_TEST

START_TEST(a_cut_length_word)
{
	static const uint8_t p[] = { 0, 1, 2 };
	size_t bytes;

	ck_assert_int_eq(record_check(formats[_i], p, 0, &bytes), RECORD_END);
	ck_assert_int_eq(record_check(formats[_i], p, 1, &bytes), RECORD_END);
	ck_assert_int_eq(record_check(formats[_i], p, 2, &bytes), RECORD_INCOMPLETE);
	ck_assert_uint_eq(bytes, 0);
	ck_assert_int_eq(record_check(formats[_i], p, 3, &bytes), RECORD_INCOMPLETE);
	ck_assert_uint_eq(bytes, 0);
}
END_TEST

START_TEST(lengths_at_the_bounds)
{
	enum record_format format = formats[_i];
	int32_t max = record_max_payload(format);
	uint8_t p[16] = { 0 };
	size_t bytes;

	ck_assert_int_eq(record_check(format, p, sizeof(p), &bytes), RECORD_END);
	ck_assert_uint_eq(bytes, 0);
	bytes_put_i32(p, -1);
	ck_assert_int_eq(record_check(format, p, sizeof(p), &bytes), RECORD_IMPOSSIBLE);
	bytes_put_i32(p, INT32_MIN);
	ck_assert_int_eq(record_check(format, p, sizeof(p), &bytes), RECORD_IMPOSSIBLE);
	bytes_put_i32(p, INT32_MAX);
	ck_assert_int_eq(record_check(format, p, sizeof(p), &bytes), RECORD_IMPOSSIBLE);
	bytes_put_i32(p, max + 1);
	ck_assert_int_eq(record_check(format, p, sizeof(p), &bytes), RECORD_IMPOSSIBLE);
	ck_assert_uint_eq(bytes, 0);
	bytes_put_i32(p, max);
	ck_assert_int_eq(record_check(format, p, sizeof(p), &bytes), RECORD_INCOMPLETE);
	ck_assert_uint_eq(bytes, RECORD_MAX_BYTES);
}
END_TEST

START_TEST(the_largest_record)
{
	enum record_format format = formats[_i];
	size_t size = (size_t)record_max_payload(format), bytes;
	uint8_t *payload = malloc(size), *to = malloc(RECORD_MAX_BYTES);

	memset(payload, 0x5A, size);
	ck_assert_ptr_eq(record_put(to, format, payload, size), to + RECORD_MAX_BYTES);
	ck_assert_int_eq(record_check(format, to, RECORD_MAX_BYTES, &bytes), RECORD_VALID);
	ck_assert_int_eq(record_check(format, to, RECORD_MAX_BYTES - 1, &bytes), RECORD_INCOMPLETE);
	free(payload);
	free(to);
}
END_TEST

START_TEST(every_changed_bit_behind_the_length_is_a_wrong_sum)
{
	uint8_t to[32];
	size_t whole = (size_t)(record_put(to, RECORD_CRC32C, (const uint8_t *)"payload", 7) - to), bytes;

	for (size_t bit = 4 * 8; bit < whole * 8; bit++) {
		to[bit / 8] ^= (uint8_t)(1 << bit % 8);
		ck_assert_int_eq(record_check(RECORD_CRC32C, to, whole, &bytes), RECORD_WRONG_SUM);
		ck_assert_uint_eq(bytes, whole);
		to[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	ck_assert_int_eq(record_check(RECORD_CRC32C, to, whole, &bytes), RECORD_VALID);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("record");
	TCase *tests = tcase_create("record");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	tcase_add_test(tests, numbers_of_the_format);
	tcase_add_test(tests, bytes_as_drawn);
	tcase_add_loop_test(tests, a_valid_record_with_and_without_more_behind_it, 0, FORMATS);
	tcase_add_loop_test(tests, every_truncation_is_incomplete, 0, FORMATS);
	tcase_add_loop_test(tests, a_cut_length_word, 0, FORMATS);
	tcase_add_loop_test(tests, lengths_at_the_bounds, 0, FORMATS);
	tcase_add_loop_test(tests, the_largest_record, 0, FORMATS);
	tcase_add_test(tests, every_changed_bit_behind_the_length_is_a_wrong_sum);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
