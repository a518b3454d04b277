/*
 * Counts what this program allocates: malloc, calloc and realloc are its own, and the C library's behind them.
 */
#ifndef TESTS_ALLOCATIONS_H
#define TESTS_ALLOCATIONS_H

#include <stdbool.h>

/* False under a sanitizer, whose own allocator must not be replaced: nothing is counted then. */
bool allocations_are_counted(void);
/* Allocations count only while this is on: a test's own (Check's, too) are none of its business. */
void allocations_watch(bool on);
/* By all threads. */
unsigned long allocations_count(void);

#endif
