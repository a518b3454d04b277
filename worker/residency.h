/*
 * Which bytes of a file are in memory? Whoever must not wait for a disk asks before it reads or sends.
 *
 * The kernel is asked by mincore, on a mapping of the file that nobody ever touches. Measured on Linux 6.18, 256 KiB in
 * memory: mincore on a mapping that is kept 3.3 us, on a fresh one 6.7 us, preadv2 with RWF_NOWAIT 27 us (it copies). And
 * preadv2 begins the read itself, in the thread that asked; on overlayfs and tmpfs it says EOPNOTSUPP, on overlayfs also
 * of what is on the disk. cachestat counts pages whose read has not ended, and Linux 6.1 does not have it.
 *
 * To ask takes a tenth of the time that a small FETCH takes in all, and its answers mostly come from where the last one
 * did: so what was in memory is believed to be there for some milliseconds.
 *
 * "In memory" may be over a moment later. "Not in memory" may last: a file system that keeps its data elsewhere (ZFS,
 * DAX), a hole on tmpfs, no memory for the mapping. So neither may be relied upon.
 */
#ifndef WORKER_RESIDENCY_H
#define WORKER_RESIDENCY_H

#include <stddef.h>
#include <stdint.h>

enum { RESIDENCY_MAX_BYTES = 256 * 1024 };	/* are looked at in one call */

struct residency {	/* of one file; zeroed = nothing mapped yet */
	uint8_t *map;
	size_t map_bytes;
	int64_t known_from, known_end;	/* positions: this was in memory, */
	int64_t known_until_ns;		/* and is taken to be so until then */
};

/* How many bytes from `position` on are in memory without a gap: from 0 to `bytes` or RESIDENCY_MAX_BYTES. */
int64_t residency_bytes(struct residency *residency, int fd, int64_t position, int64_t bytes);

/* Gives the mapping back and forgets what it knew. */
void residency_end(struct residency *residency);

#endif
