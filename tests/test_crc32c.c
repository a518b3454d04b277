/* CRC-32C: the golden vectors, and the processor's way, the table's way and a bit by bit one against each other. */
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "tests/unit.h"

enum { SIZES = 65, ALIGNMENTS = 16 };

/* By the definition, one bit at a time. */
static uint32_t
slow_sum(const uint8_t *p, size_t size)
{
	uint32_t c = 0xFFFFFFFF;

	for (size_t i = 0; i < size; i++) {
		c ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			c = (c & 1) ? (c >> 1) ^ 0x82F63B78 : c >> 1;
	}
	return c ^ 0xFFFFFFFF;
}

static void
expect_everywhere(const uint8_t *payload, size_t size, uint32_t sum)
{
	uint8_t *copy = malloc(size + 1);

	ck_assert_uint_eq(crc32c(payload, size), sum);
	ck_assert_uint_eq(crc32c_by_table(payload, size), sum);
	ck_assert_uint_eq(crc32c_copy(copy, payload, size), sum);
	ck_assert_int_eq(memcmp(copy, payload, size), 0);
	free(copy);
}

START_TEST(golden_vectors)
{
	FILE *file = unit_open_vectors("crc32c.tsv");
	char line[4096];
	int vectors = 0;

	while (fgets(line, sizeof(line), file) != NULL) {
		uint8_t payload[2048];
		char *field = strchr(line, '\t');
		size_t size;

		if (line[0] == '#')
			continue;
		ck_assert_ptr_nonnull(field);
		size = unit_from_hex(line, (size_t)(field - line), payload);
		expect_everywhere(payload, size, (uint32_t)strtoul(field + 1, NULL, 10));
		vectors++;
	}
	fclose(file);
	ck_assert_int_ge(vectors, 8);
}
END_TEST

START_TEST(check_value)
{
	expect_everywhere((const uint8_t *)"123456789", 9, 0xE3069283);
	expect_everywhere((const uint8_t *)"", 0, 0);
}
END_TEST

/* Each size at each alignment of both areas; nothing around the copy is touched. */
START_TEST(all_alignments_and_sizes)
{
	uint8_t from[SIZES + ALIGNMENTS], to[SIZES + 2 * ALIGNMENTS];
	uint32_t state = unit_seed();

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (uint8_t)unit_random(&state);
	for (size_t size = 0; size < SIZES; size++)
		for (size_t at = 0; at < ALIGNMENTS; at++) {
			uint32_t sum = slow_sum(from + at, size);
			size_t to_at = ALIGNMENTS - at;

			ck_assert_uint_eq(crc32c(from + at, size), sum);
			ck_assert_uint_eq(crc32c_by_table(from + at, size), sum);
			memset(to, 0xA5, sizeof(to));
			ck_assert_uint_eq(crc32c_copy(to + to_at, from + at, size), sum);
			ck_assert_int_eq(memcmp(to + to_at, from + at, size), 0);
			for (size_t i = 0; i < sizeof(to); i++)
				if (i < to_at || i >= to_at + size)
					ck_assert_uint_eq(to[i], 0xA5);
		}
}
END_TEST

START_TEST(large_areas)
{
	uint32_t state = unit_seed();
	size_t size = 1024 * 1024 + 5;
	uint8_t *bytes = malloc(size);

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)unit_random(&state);
	expect_everywhere(bytes, size, slow_sum(bytes, size));
	free(bytes);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("crc32c");
	TCase *tests = tcase_create("crc32c");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	tcase_add_test(tests, golden_vectors);
	tcase_add_test(tests, check_value);
	tcase_add_test(tests, all_alignments_and_sizes);
	tcase_add_test(tests, large_areas);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
