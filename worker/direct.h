/*
 * Reading a segment file past the page cache, from the disk itself (O_DIRECT): after a failed force the cache may show
 * what the disk does not have. Owns the alignment that such reads need; knows nothing of what is read, or why.
 */
#ifndef WORKER_DIRECT_H
#define WORKER_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Opens the segment file of that base for reading past the page cache. Pages of it that are dirty are written back by the
 * reads themselves, and a read fails when that does. Returns the descriptor, or -1 with errno; EOPNOTSUPP: this file
 * system reads nothing, or not this file, past its cache.
 */
int direct_open(int dir_fd, int64_t base);

/* Is there a disk behind the file? Not on a file system in memory: what its cache shows is all there is. */
bool direct_has_disk(int fd);

/*
 * Reads until `bytes` are there or the file ends, by any descriptor: of direct_open's, or another. Position, length and
 * memory need no alignment. Returns the number read, or -1 with errno.
 */
ssize_t direct_read(int fd, void *to, size_t bytes, int64_t position);

/* What this process has read so far by direct_read, all threads together: it grows while a recovery advances. */
int64_t direct_bytes_read(void);

#endif
