/* See allocations.h. */
#include "tests/allocations.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif

static atomic_ulong count;
static atomic_bool watching;

void
allocations_watch(bool on)
{
	atomic_store(&watching, on);
}

unsigned long
allocations_count(void)
{
	return atomic_load(&count);
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
void *malloc(size_t bytes);
void *calloc(size_t number, size_t bytes);
void *realloc(void *old, size_t bytes);

bool
allocations_are_counted(void)
{
	return true;
}

static void
note(void)
{
	if (atomic_load(&watching))
		atomic_fetch_add(&count, 1);
}

void *
malloc(size_t bytes)
{
	note();
	return __libc_malloc(bytes);
}

void *
calloc(size_t number, size_t bytes)
{
	note();
	return __libc_calloc(number, bytes);
}

void *
realloc(void *old, size_t bytes)
{
	note();
	return __libc_realloc(old, bytes);
}

#endif
