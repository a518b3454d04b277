/*
 * What the bytes of a segment file tell where names, settings and caches do not: the record format, and whether a damaged
 * segment had been sealed, so that an empty one follows it. Reads only.
 */
#ifndef WORKER_EVIDENCE_H
#define WORKER_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker/segment.h"

enum evidence {
	EVIDENCE_NONE,
	EVIDENCE_DOUBT,		/* one whole record and more, if it is plain: hard to tell from a torn one in crc32c */
	EVIDENCE_PLAIN,
	EVIDENCE_CRC32C,
};

/* In which format do the bytes of a file make sense? `sealed`: it was never torn. Returns 0, or -1 with errno; -1 for -1 bytes,
 * with errno as it was. */
int evidence_of_file(int fd, int64_t file_bytes, bool sealed, enum evidence *evidence);

/* The same of the sealed segment `base`. What cannot be read is no evidence. */
enum evidence evidence_of_sealed(int dir_fd, int64_t base);

/*
 * Behind `last`, the last segment with content, stands an empty one, `base`. Is that the active one, and `last` sealed, so that
 * nothing of it may be cut? `last` has the end and bytes of its good records, which may end before the file's bytes do.
 * `sealed_end` is where the list of sealed segments ends: when that is farther, because something has been lost since, the
 * active one begins there. Otherwise it begins where the good records end or, behind damage, where the bytes from there on are,
 * or at least could be, exactly the records up to `base`. Or it begins at `indexed_end` (-1: nowhere): so far `last` had reached
 * once, or a segment behind it that is missing or empty now, as its index tells. Of several that follow it is the farthest, so
 * that no offset is given out again. Returns 0, or -1 with errno.
 */
int evidence_follows(const struct segment *last, int64_t file_bytes, int64_t sealed_end, int64_t indexed_end, int64_t base,
    bool *follows);

#endif
