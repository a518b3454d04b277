/*
 * The inside of a partition, shared by the files that are its parts and by nobody else: partition.c (open, ends, append,
 * barrier, roll), lookup.c (find, load), retention.c and upkeep.c.
 */
#ifndef WORKER_PARTITION_STATE_H
#define WORKER_PARTITION_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/log.h"
#include "worker/index_file.h"
#include "worker/partition.h"
#include "worker/segment.h"

/* A sealed segment as the owner knows it. Its file is opened and indexed when somebody reads it. */
struct sealed {
	int64_t base;
	int64_t bytes;		/* of the file */
	int64_t bytes_before;	/* of all segments ahead of it that were there when the log was opened or since, retired or not */
	int64_t last_append_ms;	/* by the wall clock, as recorded */
	int64_t last_append_ns;	/* the same on CLOCK_MONOTONIC, on which ages are counted: may be negative */
	struct segment *segment;	/* NULL: not loaded */
	uint64_t used;		/* when it was last read, as a count of reads */
	int load_error;		/* errno of the last load, 0 = none or done */
	int64_t load_again_ns;	/* with an error: not before this */
	bool reported;		/* its damage has been logged */
};

/* Where a load has found a record: whoever asked for it comes again, and must not have to wait for the disk again. */
struct located {
	bool known;
	int64_t offset;
	struct index_mark at;	/* its place; or, with EBADMSG, where no record can stand */
	int error;		/* errno: it could not be read, and is not tried again before then; 0 = done */
	int64_t again_ns;
};

struct partition {
	int dir_fd;
	char *name;
	struct partition_settings settings;
	struct sealed *sealed;		/* by base */
	size_t sealed_count;
	size_t sealed_capacity;
	size_t loaded_count;		/* sealed segments that are open */
	uint64_t reads;
	struct located located;	/* by the last load */
	struct segment *active;
	int64_t bytes_before_active;
	int64_t durable_end;		/* always within the active segment, as is its position */
	int64_t durable_position;
	int64_t write_back_position;	/* in the active segment: before it, write-back has been begun */
	struct mapping ahead;		/* what of the active segment can be written through; nothing before its first append */
	struct mapping behind;		/* what that was before, until the next upkeep unmaps it */
	int64_t first_append_ms, last_append_ms;	/* to the active segment; mean nothing while it is empty */
	int64_t first_append_ns, last_append_ns;	/* the same on CLOCK_MONOTONIC */
	int64_t least_start;		/* the log starts here or behind it: that had been published */
	int64_t retired_bytes;		/* of segments that are out of the log, but in bytes_before */
	int64_t *doomed;		/* bases of segments out of the log whose files are to be unlinked, oldest first */
	size_t doomed_count;
	size_t doomed_capacity;
	struct segment *lingering;	/* out of the log and still open, by next; one reference each */
	bool unlinks_unsure;		/* the directory could not be forced behind one: no more of them */
	struct index_file stored;	/* the active segment's index file: ends in its recovery point */
	int64_t stored_ns;		/* when a point was last stored or tried to be */
	bool cache_reported;		/* a cache cannot be written */
	bool active_reported;		/* damage in the active segment has been logged */
	struct log_limit shortage_limit;	/* of lines on segments that cannot be opened */
	bool failed;
	int64_t failed_end;	/* the visible end when it failed: from the durable end up to it everything is broken */
	bool uncut;		/* a failed write may have left bytes behind the end, in the file or on the disk alone */
	bool room_void;		/* an append has failed since the upkeep under way began: what it maps is of no use */
};

/* A cache could not be written (errno; 0: it has been): the log works without it, so that is told once. */
void partition_note_cache(struct partition *p, const char *file, int error);

/* A force has failed with errno: nothing tells what is on disk now, and a later success would not tell either. */
void partition_fail(struct partition *p);

/* A write has failed: if the file is shorter than the log or has no name any more, records are lost, and no later write brings them
 * back. Keeps errno. */
void partition_fail_if_cut(struct partition *p);

/* Bytes that the active segment can still take. */
static inline int64_t
partition_segment_room(const struct partition *p)
{
	int64_t room = p->settings.segment_bytes - p->active->bytes;

	return room > 0 ? room : 0;
}

/* What is mapped is not written through any more. */
void partition_retire_mapping(struct partition *p);

/* The sealed segment that would hold the offset; NULL: it is ahead of all of them, or in the active one. */
struct sealed *partition_find_sealed(const struct partition *p, int64_t offset);

/* The segment is open and indexed from now on; takes over the reference. A few stay so, the last read ones, and those in use. */
void partition_keep_loaded(struct partition *p, struct sealed *sealed, struct segment *segment);

/* The segment is out of the log: closes it, on a thread, when nobody reads it any more. Takes over the reference. */
void partition_linger(struct partition *p, struct segment *segment);

/* The segment is out of the log; its files, whichever are there, are removed by the next job. */
void partition_doom_again(struct partition *p, int64_t base);

/* The log starts at `log_start` at least: what lies below is out of it. Returns 0, or -1 with errno ENOMEM. */
int partition_retire_below(struct partition *p, int64_t log_start);

/* Position in the active segment up to which it is read. */
static inline int64_t
partition_visible_position(const struct partition *p)
{
	return p->failed || p->settings.durable_only ? p->durable_position : p->active->bytes;
}

#endif
