/*
 * Preloaded into a broker under test: what it asks of the kernel below the directory POWERCUT_ROOT is appended to the file
 * POWERCUT_LOG (powercut_events.h). POWERCUT_ROOM, POWERCUT_FAIL, POWERCUT_FORCE_US: see powercut_recorder.h and .c. Stores,
 * and the publication of the watermark, go by way of the worker's table of system calls, which it exports for this. With
 * POWERCUT_PACE, a number of events, time passes with them.
 *
 * Calls are only given their names here. One that could change a file in a way that no event tells ends the process.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "tests/powercut_recorder.h"

enum { SECONDS = 5 };	/* a recovery point is due after so many */

static const char *log_path;
static atomic_long told;	/* events */
static long pace;		/* events of SECONDS; 0: time is as it is */

/* Opened each time: the broker closes what it does not know. */
static void
append_event(const void *event, size_t bytes)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CLOEXEC, 0);

	if (fd == -1 || syscall(SYS_write, fd, event, bytes) != (long)bytes)
		recorder_fail("cannot write down an event");
	syscall(SYS_close, fd);
	atomic_fetch_add(&told, 1);
}

__attribute__((constructor)) static void
begin(void)
{
	const char *root = getenv("POWERCUT_ROOT"), *events = getenv("POWERCUT_PACE");
	struct syscalls *table = dlsym(RTLD_DEFAULT, "syscalls");

	log_path = getenv("POWERCUT_LOG");
	pace = events == NULL ? 0 : atol(events);
	if (root == NULL || log_path == NULL)
		recorder_fail("POWERCUT_ROOT and POWERCUT_LOG must be set");
	recorder_begin(root, getenv("POWERCUT_ROOM"), getenv("POWERCUT_FAIL"), append_event);
	if (table != NULL)
		recorder_use_stores(table);
}

/* What is done now and then only is done while little is recorded. */
int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int done = (int)syscall(SYS_clock_gettime, clock, now);

	if (done == 0 && clock == CLOCK_MONOTONIC && pace > 0)
		now->tv_sec += atomic_load(&told) / pace * SECONDS;
	return done;
}

/* ---- calls that events tell ---- */

static mode_t
mode_of(int flags, va_list arguments)
{
	return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

int
open(const char *path, int flags, ...)
{
	va_list arguments;
	int fd;

	va_start(arguments, flags);
	fd = recorder_openat(AT_FDCWD, path, flags, mode_of(flags, arguments));
	va_end(arguments);
	return fd;
}

int
openat(int dir_fd, const char *path, int flags, ...)
{
	va_list arguments;
	int fd;

	va_start(arguments, flags);
	fd = recorder_openat(dir_fd, path, flags, mode_of(flags, arguments));
	va_end(arguments);
	return fd;
}

int
mkdirat(int dir_fd, const char *path, mode_t mode)
{
	return recorder_mkdirat(dir_fd, path, mode);
}

int
mkdir(const char *path, mode_t mode)
{
	return recorder_mkdirat(AT_FDCWD, path, mode);
}

ssize_t
pwrite(int fd, const void *from, size_t size, off_t position)
{
	return recorder_pwrite(fd, from, size, position);
}

int
ftruncate(int fd, off_t size)
{
	return recorder_ftruncate(fd, size);
}

int
fallocate(int fd, int mode, off_t position, off_t size)
{
	return recorder_fallocate(fd, mode, position, size);
}

void *
mmap(void *at, size_t size, int protection, int flags, int fd, off_t position)
{
	return recorder_mmap(at, size, protection, flags, fd, position);
}

int
munmap(void *at, size_t size)
{
	return recorder_munmap(at, size);
}

int
fdatasync(int fd)
{
	return recorder_fdatasync(fd);
}

int
fsync(int fd)
{
	return recorder_fsync(fd);
}

int
renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	return recorder_renameat(from_fd, from, to_fd, to);
}

int
rename(const char *from, const char *to)
{
	return recorder_renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int
unlinkat(int dir_fd, const char *path, int flags)
{
	return recorder_unlinkat(dir_fd, path, flags);
}

int
unlink(const char *path)
{
	return recorder_unlinkat(AT_FDCWD, path, 0);
}

ssize_t
send(int fd, const void *from, size_t size, int flags)
{
	return recorder_send(fd, from, size, flags);
}

/* ---- calls that none tells ---- */

ssize_t
write(int fd, const void *from, size_t size)
{
	recorder_refuse(fd, "write");
	return syscall(SYS_write, fd, from, size);
}

ssize_t
writev(int fd, const struct iovec *pieces, int count)
{
	recorder_refuse(fd, "writev");
	return syscall(SYS_writev, fd, pieces, count);
}

ssize_t
pwritev(int fd, const struct iovec *pieces, int count, off_t position)
{
	recorder_refuse(fd, "pwritev");
	return syscall(SYS_pwritev, fd, pieces, count, position, 0L);
}

ssize_t
pwritev2(int fd, const struct iovec *pieces, int count, off_t position, int flags)
{
	recorder_refuse(fd, "pwritev2");
	return syscall(SYS_pwritev2, fd, pieces, count, position, 0L, flags);
}

ssize_t
copy_file_range(int from_fd, off64_t *from, int to_fd, off64_t *to, size_t size, unsigned flags)
{
	recorder_refuse(to_fd, "copy_file_range");
	return syscall(SYS_copy_file_range, from_fd, from, to_fd, to, size, flags);
}

ssize_t
sendfile(int to_fd, int from_fd, off_t *position, size_t size)
{
	recorder_refuse(to_fd, "sendfile");
	return syscall(SYS_sendfile, to_fd, from_fd, position, size);
}

int
truncate(const char *path, off_t size)
{
	recorder_refuse_path(AT_FDCWD, path, "truncate");
	return (int)syscall(SYS_truncate, path, size);
}

int
posix_fallocate(int fd, off_t position, off_t size)
{
	recorder_refuse(fd, "posix_fallocate");
	return syscall(SYS_fallocate, fd, 0, position, size) == -1 ? errno : 0;
}

int
linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
	recorder_refuse_path(to_fd, to, "linkat");
	return (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);
}

int
link(const char *from, const char *to)
{
	recorder_refuse_path(AT_FDCWD, to, "link");
	return (int)syscall(SYS_link, from, to);
}

int
symlinkat(const char *text, int dir_fd, const char *path)
{
	recorder_refuse_path(dir_fd, path, "symlinkat");
	return (int)syscall(SYS_symlinkat, text, dir_fd, path);
}

int
renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
	recorder_refuse_path(to_fd, to, "renameat2");
	return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

int
rmdir(const char *path)
{
	recorder_refuse_path(AT_FDCWD, path, "rmdir");
	return (int)syscall(SYS_rmdir, path);
}

int
syncfs(int fd)
{
	recorder_refuse(fd, "syncfs");
	return (int)syscall(SYS_syncfs, fd);
}

int
msync(void *at, size_t size, int flags)
{
	(void)at;
	(void)size;
	(void)flags;
	recorder_fail("msync, which no event can tell");
}
