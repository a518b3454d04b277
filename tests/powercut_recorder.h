/*
 * Calls that do what the kernel's do and hand an event of it (powercut_events.h) to a sink: of everything below one
 * directory, in a process that is preloaded (powercut_preload.c) or in the test itself. Ends the process with a message
 * when a file below there is changed in a way that no event can tell.
 */
#ifndef TESTS_POWERCUT_RECORDER_H
#define TESTS_POWERCUT_RECORDER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/powercut_events.h"
#include "worker/syscalls.h"

/*
 * Begins with a START. `root` is an absolute path without symbolic links, to a directory that is there. The sink gets whole
 * events, zeros included, from any thread. `room_path` (may be NULL): the file that holds how many bytes the files of one
 * directory may take; no file, or no number in it: any. `fail_path` (may be NULL): a file that is there makes the next force
 * of a segment fail, and is removed by it.
 */
void recorder_begin(const char *root, const char *room_path, const char *fail_path,
    void (*sink)(const void *event, size_t bytes));

/* Stores and publications, which are no calls, come by way of this table from now on. */
void recorder_use_stores(struct syscalls *table);
/* And all that is a call. */
void recorder_use_calls(struct syscalls *table);

/* "process: text", and the end of it. */
_Noreturn void recorder_fail(const char *text);
/* Ends the process when the descriptor's file, or the path, lies below the root. */
void recorder_refuse(int fd, const char *call);
void recorder_refuse_path(int dir_fd, const char *path, const char *call);

int recorder_openat(int dir_fd, const char *name, int flags, mode_t mode);
int recorder_mkdirat(int dir_fd, const char *name, mode_t mode);
ssize_t recorder_pwrite(int fd, const void *from, size_t size, off_t position);
int recorder_ftruncate(int fd, off_t size);
int recorder_fallocate(int fd, int mode, off_t position, off_t size);
void *recorder_mmap(void *at, size_t size, int protection, int flags, int fd, off_t position);
int recorder_munmap(void *at, size_t size);
int recorder_fdatasync(int fd);
int recorder_fsync(int fd);
int recorder_renameat(int from_fd, const char *from, int to_fd, const char *to);
int recorder_unlinkat(int dir_fd, const char *name, int flags);
ssize_t recorder_send(int fd, const void *from, size_t size, int flags);

#endif
