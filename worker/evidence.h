/*
 * What the bytes of a segment file tell where names, settings and caches do not: the record format, and whether a damaged
 * segment had been sealed. Reads only.
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
 * The segment's good records (its end and bytes) end before the file's bytes do, and an empty segment `base` follows
 * somewhere behind. If this one is a sealed segment with damage, then that one is the active one, and nothing may be cut.
 * It is, if the bytes from the damage on are, or at least could be, exactly the records up to `base`. Returns 0, or -1
 * with errno.
 */
int evidence_is_seal(const struct segment *segment, int64_t file_bytes, int64_t base, bool *is);

#endif
