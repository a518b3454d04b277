/*
 * Recovery: what the log in a directory is, after whatever has happened to it. Decides which segment is the active
 * one and where the log ends, refuses a log that is not what the settings and the published watermark say, and only
 * then changes anything: removes, durably, what stands behind the end. Owns that order; knows nothing of a running
 * partition.
 *
 * Only the last segment is ever cut. Each step can be interrupted at any point and the whole be run again.
 */
#ifndef WORKER_RECOVERY_H
#define WORKER_RECOVERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/index_file.h"
#include "worker/inventory.h"
#include "worker/listing.h"
#include "worker/partition.h"
#include "worker/segment.h"

struct recovery {
	/* Set by the caller. */
	int data_fd;			/* the directory above */
	int dir_fd;
	const char *name;		/* of the directory, for log lines */
	const struct partition_settings *settings;
	const struct partition_known *known;
	struct listing *listing;	/* afterwards: the segments of the log, the active one last */
	struct inventory *inventory;	/* of that listing */
	const struct stop_state *left;	/* how a clean stop has left the log, whatever has become of it; or NULL */
	char *why;			/* PARTITION_WHY_BYTES */

	int64_t new_base;		/* its own: where the active segment begins, when it has to be created */
	int64_t next_base;		/* its own: the segment behind the last one that holds anything, which may be missing */
	bool as_left;			/* its own: the active segment is just as a clean stop, or a release, has left it */

	/* Results. */
	/* Opened, indexed, forced; one reference. Without success NULL, or, of a log that is read from the disk, what can be
	 * read of it meanwhile: only up to known->published_end it is known to be forced. */
	struct segment *active;
	int64_t first_append_ms, last_append_ms;	/* to the active segment, if it is not empty */
	struct index_taken index;	/* of the active segment; its file ends in the recovery point, mostly at the end */
	int index_error;		/* errno of storing that point; 0 = done */
	int64_t truncated_bytes;
	bool failed, short_of;		/* as in struct partition_opened */
};

/* Is that errno one of memory, descriptors or room on the disk that are out? */
bool recovery_is_shortage(int error);

/* Returns 0, or -1 with the reason in `why`; the log is then closed, and untouched unless a step of the cut failed. */
int recovery_run(struct recovery *recovery);

#endif
