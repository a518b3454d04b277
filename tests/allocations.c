/* See allocations.h. */
#include "tests/allocations.h"

#include <errno.h>
#include <stddef.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif

static _Thread_local unsigned long count, failing;
static _Thread_local bool watching, failing_on;

void
allocations_watch(bool on)
{
	watching = on;
}

void
allocations_fail_at(unsigned long n)
{
	count = 0;
	failing = n;
	failing_on = false;
}

void
allocations_fail_from(unsigned long n)
{
	allocations_fail_at(n);
	failing_on = true;
}

unsigned long
allocations_count(void)
{
	return count;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) || \
    __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)

bool
allocations_are_counted(void)
{
	return false;
}

#else

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t number, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void *malloc(size_t bytes);
void *calloc(size_t number, size_t bytes);
void *realloc(void *old, size_t bytes);
void *aligned_alloc(size_t alignment, size_t bytes);

bool
allocations_are_counted(void)
{
	return true;
}

/* False: this one fails. */
static bool
may(void)
{
	if (!watching || ++count < failing || failing == 0 || (count > failing && !failing_on))
		return true;
	errno = ENOMEM;
	return false;
}

void *
malloc(size_t bytes)
{
	return !may() ? NULL : __libc_malloc(bytes);
}

void *
calloc(size_t number, size_t bytes)
{
	return !may() ? NULL : __libc_calloc(number, bytes);
}

void *
realloc(void *old, size_t bytes)
{
	return !may() ? NULL : __libc_realloc(old, bytes);
}

void *
aligned_alloc(size_t alignment, size_t bytes)
{
	return !may() ? NULL : __libc_memalign(alignment, bytes);
}

#endif
