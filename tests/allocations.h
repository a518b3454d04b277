/*
 * Counts what this program allocates: malloc, calloc, realloc and aligned_alloc are its own, and the C library's behind them.
 */
#ifndef TESTS_ALLOCATIONS_H
#define TESTS_ALLOCATIONS_H

#include <stdbool.h>

/* False under a sanitizer, whose own allocator must not be replaced: nothing is counted then. */
bool allocations_are_counted(void);
/* Of the calling thread, only while this is on: a test's own allocations (Check's, too) are none of its business. */
void allocations_watch(bool on);
unsigned long allocations_count(void);
/* The count starts again, and the n-th one fails (0: none). */
void allocations_fail_at(unsigned long n);
/* The same with all behind it. */
void allocations_fail_from(unsigned long n);

#endif
