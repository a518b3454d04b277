/*
 * Preloaded into a broker under test: every fdatasync and fsync takes SLOWSYNC_US microseconds longer, before it is done.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void
wait_a_while(void)
{
	const char *text = getenv("SLOWSYNC_US");
	long us = text != NULL ? atol(text) : 0;
	struct timespec left = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

int
fdatasync(int fd)
{
	wait_a_while();
	return (int)syscall(SYS_fdatasync, fd);
}

int
fsync(int fd)
{
	wait_a_while();
	return (int)syscall(SYS_fsync, fd);
}
