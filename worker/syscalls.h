/*
 * The system calls of the storage that can fail in interesting ways, and the stores that stand in for writes, behind one
 * table of pointers, so that "the third barrier fails" is a unit test. The table is set before the first thread starts
 * and not changed after.
 */
#ifndef WORKER_SYSCALLS_H
#define WORKER_SYSCALLS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct syscalls {
	int (*open)(int dir_fd, const char *name, int flags, mode_t mode);	/* openat */
	int (*fstat)(int fd, struct stat *st);
	int (*mkdir)(int dir_fd, const char *name, mode_t mode);		/* mkdirat */
	int (*fchmod)(int fd, mode_t mode);
	ssize_t (*pread)(int fd, void *to, size_t size, off_t position);
	ssize_t (*pwrite)(int fd, const void *from, size_t size, off_t position);
	int (*ftruncate)(int fd, off_t size);
	int (*fallocate)(int fd, int mode, off_t position, off_t size);
	void *(*mmap)(void *at, size_t size, int protection, int flags, int fd, off_t position);
	int (*madvise)(void *at, size_t size, int advice);
	int (*store)(void *to, const void *from, size_t size);			/* store_bytes */
	int (*store_length)(void *to, const uint8_t *word);
	void (*publish)(_Atomic int64_t *word, int64_t end);			/* store_end: of what readers see */
	void (*publish_durable)(_Atomic int64_t *word, int64_t end);		/* store_end: of what has been forced */
	int (*fdatasync)(int fd);
	int (*fsync)(int fd);			/* of directories */
	int (*sync_file_range)(int fd, off_t position, off_t size, unsigned flags);
	int (*rename)(int dir_fd, const char *from, const char *to);		/* renameat within one directory */
	int (*unlink)(int dir_fd, const char *name);				/* unlinkat */
	ssize_t (*sendfile)(int to_fd, int from_fd, off_t *position, size_t size);
	int (*mincore)(void *address, size_t size, unsigned char *pages);
	ssize_t (*pread_nowait)(int fd, void *to, size_t size, off_t position);	/* EAGAIN: not in memory any more */
	int (*fadvise)(int fd, off_t position, off_t size, int advice);		/* posix_fadvise */
};

/* The table in use: the kernel's calls, unless a test has put others there. */
extern struct syscalls syscalls;

#endif
