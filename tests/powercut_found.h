/*
 * A log as it was found once it had been recovered: all its records, read as the worker reads them, and what recoveries have
 * copied aside. Judges nothing.
 */
#ifndef TESTS_POWERCUT_FOUND_H
#define TESTS_POWERCUT_FOUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/partition.h"

enum { FOUND_COPIES_MAX = 16, FOUND_WHY_BYTES = 256 };

/* Zeroed at first. */
struct found {
	int64_t start, end;	/* offsets */
	uint8_t *bytes;		/* of all records, with their headers */
	size_t size, capacity;
	size_t *ends;		/* of each record in bytes */
	size_t count, ends_capacity;
	uint64_t copies[FOUND_COPIES_MAX];	/* hashes of what has been copied aside */
	int copy_count;
};

/* Reads the log, which is open, and the copies in its directory. Returns 0, or -1 with `why` (FOUND_WHY_BYTES): not all can be read. */
int found_read(struct found *found, struct partition *p, enum record_format format, const char *partition_path, char *why);
void found_free(struct found *found);

/* The record of that number, from 0, and its bytes. */
const uint8_t *found_record(const struct found *found, size_t number, size_t *size);

bool found_has_copy(const struct found *found, uint64_t hash);

#endif
