/*
 * The stretch of the active segment's file that is allocated ahead of its writer and mapped into memory, and writing
 * through it. Owns how blocks come to be there before anything is stored, so that a full disk is an error of the
 * allocation; and the order of the stores. Does not know segments, nor when a stretch is due.
 *
 *   file      | records ...................| zeros, allocated     | zeros, a hole ....... |
 *   mapping                             [ page ................. ]
 *                                          ^ the next record goes here
 *
 * A write stores everything but the length of its first record, then that length: a process that dies in between leaves a
 * length of zero, which is the end of a log, ahead of whatever it had stored.
 */
#ifndef WORKER_MAPPING_H
#define WORKER_MAPPING_H

#include <stddef.h>
#include <stdint.h>

struct mapping {
	uint8_t *bytes;		/* NULL: nothing is mapped */
	int64_t position;	/* of bytes[0] in the file, on a page */
	int64_t end;		/* position behind the last byte that is mapped */
};

/*
 * Gives the file blocks from `from` to before `to`, all zeros; its size, which is not below `to`, stays. Nothing may be
 * stored there meanwhile. They are written, too: a barrier on blocks that were written before has no metadata to commit
 * and takes half the time. Returns 0; or -1 with errno (ENOSPC), then with no more blocks than before.
 */
int mapping_allocate(int fd, int64_t from, int64_t to);

/*
 * Maps the file from the page in which `from` stands to before `to`, where it has blocks, and its pages with it, so that
 * a store meets them all. Returns 0, or -1 with errno and nothing mapped.
 */
int mapping_open(struct mapping *mapping, int fd, int64_t from, int64_t to);

/* Unmaps. What was stored stays in the file. None is allowed. */
void mapping_close(struct mapping *mapping);

/*
 * Writes `bytes` bytes, more than a length word and within the mapping, at `position`, where there are zeros. Returns 0,
 * or -1 with errno: the file is shorter than that, or cannot be stored to. Then there is still a length of zero, with an
 * unknown part of the rest behind it.
 */
int mapping_write(const struct mapping *mapping, int fd, const uint8_t *from, size_t bytes, int64_t position);

#endif
