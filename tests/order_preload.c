/*
 * Preloaded into a broker under strace: stores into a mapped file are no calls, so each is followed by one that fails and does
 * nothing, but shows in the trace what has been stored at which address: pwrite64(-1, bytes, size, address). They go by way
 * of the worker's table of system calls, which it exports.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/syscalls.h"

enum { LENGTH_BYTES = 4 };

static int (*real_store)(void *to, const void *from, size_t size);
static int (*real_store_length)(void *to, const uint8_t *word);

static int
show(int done, const void *to, size_t size)
{
	int error = errno;

	if (done == 0)
		syscall(SYS_pwrite64, -1, to, size, (off_t)(uintptr_t)to);
	errno = error;
	return done;
}

static int
store(void *to, const void *from, size_t size)
{
	return show(real_store(to, from, size), to, size);
}

static int
show_length(void *to, const uint8_t *word)
{
	return show(real_store_length(to, word), to, LENGTH_BYTES);
}

__attribute__((constructor)) static void
begin(void)
{
	struct syscalls *table = dlsym(RTLD_DEFAULT, "syscalls");

	if (table == NULL)
		return;
	real_store = table->store;
	real_store_length = table->store_length;
	table->store = store;
	table->store_length = show_length;
}
