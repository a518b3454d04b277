/* What the unit tests share: golden vectors, seeds, running a suite. */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <check.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { UNIT_TIMEOUT_S = 60 };

/* A file of tests/vectors in the source tree. */
FILE *unit_open_vectors(const char *name);

/* Decodes `length` hexadecimal digits; returns the number of bytes. */
size_t unit_from_hex(const char *hex, size_t length, uint8_t *to);

/* The seed of this run, from UNIT_SEED or the clock, and a small generator: the same numbers for the same seed. */
uint32_t unit_seed(void);
uint32_t unit_random(uint32_t *state);

/* Of exhaustive tables every n-th entry is tried, of random rounds as many fewer: LOGBROKER_TEST_SAMPLE, or 1. Only where
 * another run tries all. */
int unit_sample(void);

/* Descriptors that are open in this process. */
int unit_open_descriptors(void);

/* Runs a suite, frees it; returns the exit status. Prints the seed when something has failed. */
int unit_run(Suite *suite);

#endif
