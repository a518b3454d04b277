/* See unit.h. */
#include "tests/unit.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

FILE *
unit_open_vectors(const char *name)
{
	const char *srcdir = getenv("srcdir");
	char path[4096];
	FILE *file;

	snprintf(path, sizeof(path), "%s/tests/vectors/%s", srcdir != NULL ? srcdir : ".", name);
	file = fopen(path, "r");
	ck_assert_msg(file != NULL, "cannot read %s", path);
	return file;
}

size_t
unit_from_hex(const char *hex, size_t length, uint8_t *to)
{
	for (size_t i = 0; i < length / 2; i++) {
		unsigned byte;

		ck_assert_int_eq(sscanf(hex + 2 * i, "%2x", &byte), 1);
		to[i] = (uint8_t)byte;
	}
	return length / 2;
}

uint32_t
unit_seed(void)
{
	static uint32_t seed;
	const char *given = getenv("UNIT_SEED");

	if (seed == 0) {
		seed = given != NULL ? (uint32_t)strtoul(given, NULL, 10) : (uint32_t)time(NULL);
		seed |= 1;
	}
	return seed;
}

/* Xorshift. */
uint32_t
unit_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

int
unit_sample(void)
{
	const char *text = getenv("LOGBROKER_TEST_SAMPLE");
	int every = text != NULL ? atoi(text) : 1;

	return every >= 1 ? every : 1;
}

int
unit_open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count - 3;	/* ".", ".." and the directory itself */
}

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

/*
 * Check calls this for each assertion that holds, and writes to a file where it stands, to tell where a test has crashed or was
 * at when its time was up. Once in a tick of the clock is enough for that: tests that assert a hundred thousand times would do
 * little else.
 */
void
__wrap__mark_point(const char *file, int line)
{
	static _Thread_local struct timespec noted;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	if (now.tv_sec == noted.tv_sec && now.tv_nsec == noted.tv_nsec)
		return;
	noted = now;
	__real__mark_point(file, line);
}

int
unit_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	unit_seed();	/* before the tests' processes are forked */
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	if (failed > 0)
		printf("run again with UNIT_SEED=%u\n", (unsigned)unit_seed());
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
