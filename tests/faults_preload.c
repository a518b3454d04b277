/* Preloaded into a broker under test; see faults.h. Calls go to the kernel itself. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/faults.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif

enum { PATH_BYTES = 1024 };

static struct faults *faults;

__attribute__((constructor)) static void
begin(void)
{
	const char *path = getenv("FAULTS_FILE");
	int fd = path == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	void *at = MAP_FAILED;

	if (fd != -1)
		at = (void *)syscall(SYS_mmap, NULL, sizeof(*faults), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0L);
	if (at != MAP_FAILED)
		faults = at;
	if (fd != -1)
		syscall(SYS_close, fd);
}

static bool
is_due(void)
{
	int seen = atomic_fetch_add(&faults->seen, 1) + 1;

	return seen == faults->at || (faults->sticky != 0 && seen > faults->at);
}

static bool
is_meant(enum faults_kind kind)
{
	return faults != NULL && atomic_load(&faults->kind) == (int)kind
	    && strcmp(program_invocation_short_name, faults->program) == 0;
}

/* ---- calls ---- */

/* What happens to this one: an errno, FAULTS_SHORT, or 0; with SIGKILL the caller has the process killed. */
struct fate {
	int error;
	bool killed;
};

static struct fate
meet_path(const char *path)
{
	bool killed = is_meant(FAULTS_KILL);

	if ((!killed && !is_meant(FAULTS_CALL)) || strstr(path, faults->path) == NULL || !is_due())
		return (struct fate){ 0, false };
	return (struct fate){ killed ? 0 : faults->error, killed };
}

static size_t
path_of(int fd, char *path)
{
	char link[64];
	long n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = syscall(SYS_readlinkat, AT_FDCWD, link, path, (size_t)PATH_BYTES / 2);
	path[n < 0 ? 0 : n] = '\0';
	return strlen(path);
}

static void
die(void)
{
	syscall(SYS_kill, getpid(), SIGKILL);
	for (;;)
		pause();
}

/* Half of what is written reaches the file before the process is killed, or before an error that is not EINTR. */
static struct fate
meet_fd(int fd)
{
	char path[PATH_BYTES];

	if (faults == NULL || atomic_load(&faults->kind) == FAULTS_NONE || atomic_load(&faults->kind) == FAULTS_MEMORY)
		return (struct fate){ 0, false };
	path_of(fd, path);
	return meet_path(path);
}

/* Of a name in a directory: true when the call must fail, with errno. */
static bool
fails_at(int dir_fd, const char *name)
{
	char path[PATH_BYTES] = "";
	struct fate fate;
	size_t length = 0;

	if (faults == NULL || atomic_load(&faults->kind) == FAULTS_NONE || atomic_load(&faults->kind) == FAULTS_MEMORY)
		return false;
	if (name[0] != '/' && dir_fd != AT_FDCWD)
		length = path_of(dir_fd, path);
	snprintf(path + length, sizeof(path) - length, "/%.400s", name);
	fate = meet_path(path);
	if (fate.killed)
		die();
	errno = fate.error;
	return fate.error > 0;
}

/* The same of an open file. */
static bool
fails(int fd)
{
	struct fate fate = meet_fd(fd);

	if (fate.killed)
		die();
	errno = fate.error;
	return fate.error > 0;
}

int
openat(int dir_fd, const char *name, int flags, ...)
{
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	return fails_at(dir_fd, name) ? -1 : (int)syscall(SYS_openat, dir_fd, name, flags, mode);
}

int
mkdirat(int dir_fd, const char *name, mode_t mode)
{
	return fails_at(dir_fd, name) ? -1 : (int)syscall(SYS_mkdirat, dir_fd, name, mode);
}

int
renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	return fails_at(to_fd, to) ? -1 : (int)syscall(SYS_renameat, from_fd, from, to_fd, to);
}

int
unlinkat(int dir_fd, const char *name, int flags)
{
	return fails_at(dir_fd, name) ? -1 : (int)syscall(SYS_unlinkat, dir_fd, name, flags);
}

ssize_t
pread(int fd, void *to, size_t size, off_t position)
{
	struct fate fate = meet_fd(fd);

	if (fate.killed)
		die();
	errno = fate.error;
	if (fate.error > 0)
		return -1;
	return syscall(SYS_pread64, fd, to, fate.error == FAULTS_SHORT ? (size + 1) / 2 : size, position);
}

ssize_t
pwrite(int fd, const void *from, size_t size, off_t position)
{
	struct fate fate = meet_fd(fd);

	if (fate.killed || (fate.error != 0 && fate.error != EINTR)) {
		long n = syscall(SYS_pwrite64, fd, from, (size + 1) / 2, position);

		if (fate.killed)
			die();
		if (fate.error == FAULTS_SHORT)
			return n;
	}
	errno = fate.error;
	return fate.error != 0 ? -1 : syscall(SYS_pwrite64, fd, from, size, position);
}

int
ftruncate(int fd, off_t size)
{
	return fails(fd) ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

int
fallocate(int fd, int mode, off_t position, off_t size)
{
	return fails(fd) ? -1 : (int)syscall(SYS_fallocate, fd, mode, position, size);
}

int
fdatasync(int fd)
{
	return fails(fd) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int
fsync(int fd)
{
	return fails(fd) ? -1 : (int)syscall(SYS_fsync, fd);
}

int
sync_file_range(int fd, off64_t position, off64_t size, unsigned flags)
{
	return fails(fd) ? -1 : (int)syscall(SYS_sync_file_range, fd, position, size, flags);
}

/* ---- allocations ---- */

/* A sanitizer's own must not be replaced. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !__has_feature(address_sanitizer) && \
    !__has_feature(thread_sanitizer) && !__has_feature(memory_sanitizer)

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t number, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *malloc(size_t bytes);
void *calloc(size_t number, size_t bytes);
void *realloc(void *old, size_t bytes);

static bool
may(void)
{
	if (!is_meant(FAULTS_MEMORY) || !is_due())
		return true;
	errno = ENOMEM;
	return false;
}

void *
malloc(size_t bytes)
{
	return may() ? __libc_malloc(bytes) : NULL;
}

void *
calloc(size_t number, size_t bytes)
{
	return may() ? __libc_calloc(number, bytes) : NULL;
}

void *
realloc(void *old, size_t bytes)
{
	return may() ? __libc_realloc(old, bytes) : NULL;
}

#endif
