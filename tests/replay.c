/*
 * A fuzzer's main without libFuzzer, for `make check`: replay_NAME gives fuzz_NAME every file of tests/corpus/fuzz_NAME. What
 * fuzz_NAME does not like ends the process, behind the name of the file.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz_target.h"

enum { INPUT_MAX_BYTES = 1024 * 1024 };

static void
replay(const char *directory, const char *name)
{
	char path[4096];
	FILE *file;
	/* Of exactly its size, so that a sanitizer sees what is read behind it. */
	uint8_t *whole = malloc(INPUT_MAX_BYTES), *data;
	size_t size;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "re");
	if (whole == NULL || file == NULL) {
		perror(path);
		exit(1);
	}
	size = fread(whole, 1, INPUT_MAX_BYTES, file);
	fclose(file);
	data = malloc(size + (size == 0));
	if (data == NULL)
		exit(1);
	memcpy(data, whole, size);
	printf("%s\n", path);
	fflush(stdout);
	LLVMFuzzerTestOneInput(data, size);
	free(data);
	free(whole);
}

int
main(int argc, char **argv)
{
	const char *name = strstr(argv[0], "replay_"), *srcdir = getenv("srcdir");
	char directory[2048];
	struct dirent **entries;
	int count, inputs = 0;

	if (argc != 1 || name == NULL)
		return 64;
	snprintf(directory, sizeof(directory), "%s/tests/corpus/fuzz_%s", srcdir != NULL ? srcdir : ".", name + 7);
	count = scandir(directory, &entries, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		if (entries[i]->d_name[0] != '.') {
			replay(directory, entries[i]->d_name);
			inputs++;
		}
		free(entries[i]);
	}
	if (count <= 0 || inputs == 0) {
		fprintf(stderr, "%s: no files\n", directory);
		return 1;
	}
	free(entries);
	printf("100%%: Checks: %d, Failures: 0, Errors: 0\n", inputs);
	return 0;
}
