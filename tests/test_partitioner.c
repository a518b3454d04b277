/*
 * The partitioner against the golden vectors. If this fails, the code is wrong, not the vectors.
 */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/partitioner.h"

static FILE *
open_vectors(const char *name)
{
	const char *srcdir = getenv("srcdir");
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/vectors/%s", srcdir != NULL ? srcdir : ".", name);
	file = fopen(path, "r");
	ck_assert_msg(file != NULL, "cannot read %s", path);
	return file;
}

static size_t
from_hex(const char *hex, size_t length, uint8_t *to)
{
	for (size_t i = 0; i < length / 2; i++) {
		unsigned byte;

		ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
		to[i] = (uint8_t)byte;
	}
	return length / 2;
}

START_TEST(partitioner_golden_vectors)
{
	static const int32_t counts[] = { 1, 2, 3, 4, 16, 64 };
	FILE *file = open_vectors("partitioner-fnv1a.tsv");
	char line[4096];
	int vectors = 0;

	while (fgets(line, sizeof(line), file) != NULL) {
		uint8_t key[2048];
		size_t size;
		char *field = strchr(line, '\t');

		if (line[0] == '#')
			continue;
		ck_assert_ptr_nonnull(field);
		size = from_hex(line, (size_t)(field - line), key);
		ck_assert_uint_eq(partitioner_hash(key, size), strtoul(field + 1, &field, 10));
		for (size_t i = 0; i < 6; i++)
			ck_assert_int_eq(partitioner_choose(key, size, counts[i]), strtol(field + 1, &field, 10));
		vectors++;
	}
	fclose(file);
	ck_assert_int_ge(vectors, 11);
}
END_TEST

START_TEST(partitioner_works_up_to_the_largest_partition_count)
{
	/* 0xffffffff as hash would be negative as a signed number: the remainder must not be. */
	for (uint32_t i = 0; i < 1000; i++) {
		int32_t partition = partitioner_choose(&i, sizeof(i), 99999);

		ck_assert_int_ge(partition, 0);
		ck_assert_int_lt(partition, 99999);
	}
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("partitioner");
	TCase *tcase = tcase_create("partitioner");
	SRunner *runner;
	int failed;

	tcase_add_test(tcase, partitioner_golden_vectors);
	tcase_add_test(tcase, partitioner_works_up_to_the_largest_partition_count);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
