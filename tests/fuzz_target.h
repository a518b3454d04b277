#ifndef LOGBROKER_TESTS_FUZZ_TARGET_H
#define LOGBROKER_TESTS_FUZZ_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* What libFuzzer, and tests/replay.c, call for each input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process where something does not hold, which is a find. */
static inline void
require(bool holds)
{
	if (!holds)
		abort();
}

#endif
