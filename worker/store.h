/*
 * Copying into memory that is a file's. Such memory can turn out to have nothing behind it: the disk has gone, its file
 * system refuses, somebody has cut the file. The kernel says so by SIGBUS, which would end the process with all its
 * partitions; here it becomes an error of this one write. Knows nothing of what is copied.
 */
#ifndef WORKER_STORE_H
#define WORKER_STORE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Catches SIGBUS from now on, for the copies below; any other ends the process as before. Any thread, any number of times. */
void store_prepare(void);

/* Copies. Returns 0, or -1 with errno EIO: an unknown part is then copied. */
int store_bytes(void *to, const void *from, size_t bytes);

/*
 * Stores the four bytes at `word` with one store, anywhere, behind all that was stored before: a process that dies at any
 * point leaves all of them or none, and never these without those. Returns 0, or -1 with errno EIO.
 */
int store_length(void *to, const uint8_t *word);

/* Shows an end to other processes, behind all that was stored before. */
void store_end(_Atomic int64_t *word, int64_t end);

#endif
