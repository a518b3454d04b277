/*
 * What stands in a partition's directory: its segments in order, left-overs of ours, and what is foreign. Reads names,
 * sizes and times only, opens no segment and changes nothing.
 *
 *   <20 digits>.log          a segment (a regular file)
 *   <20 digits>.index        ours: a segment's index; without its segment a left-over
 *   sealed.list              ours: what is known of the sealed segments
 *   <20 digits>.log.tmp      ours: a segment that a crash has kept from its name
 *   <20 digits>.index.tmp    ours: such an index, and sealed.list.tmp
 *   <20 digits>.cut[.N]      ours: what recovery has copied aside; not looked at again
 *   <20 digits>.cut.tmp      ours: such a copy that a crash has interrupted
 *   anything else            foreign: reported once, ignored, left alone
 */
#ifndef WORKER_LISTING_H
#define WORKER_LISTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/segment.h"

struct listing_segment {
	int64_t base;
	int64_t bytes;		/* size of the file */
	int64_t last_append_ms;	/* by the wall clock: the file's time of modification */
	bool indexed;		/* there is an index file beside it */
};

struct listing {
	struct listing_segment *segments;	/* by base */
	size_t count;
	size_t capacity;
	char (*leftovers)[SEGMENT_NAME_BYTES];	/* names that may be removed */
	size_t leftover_count;
	size_t leftover_capacity;
	int64_t *indexes;			/* the bases of all index files */
	size_t index_count;
	size_t index_capacity;
	bool has_list;
};

/* Reads the directory; `name` is its name for log lines. Returns 0, or -1 with errno and nothing to free. */
int listing_read(struct listing *listing, int dir_fd, const char *name);

/* What an entry is that is no segment. */
enum listing_kind {
	LISTING_FOREIGN,
	LISTING_LEFTOVER,
	LISTING_CUT,
};

/* Hears of each of them, in no order; `why` an entry is foreign, else NULL. */
typedef void listing_note(void *with, enum listing_kind kind, const char *entry, const char *why);

/* The same, with everything that is no segment told to `note` instead of the log. */
int listing_read_noting(struct listing *listing, int dir_fd, listing_note *note, void *with);

void listing_free(struct listing *listing);

/* Adds a segment without content behind the others: it has been made. Returns 0, or -1 with errno ENOMEM. */
int listing_add(struct listing *listing, int64_t base);

/* Takes a segment out: it turned out not to belong to this log. */
void listing_remove(struct listing *listing, size_t at);

/* Reports an entry as foreign: one line with its name and why. */
void listing_report_foreign(const char *directory, const char *entry, const char *why);

#endif
