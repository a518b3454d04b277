/*
 * What should stand in a partition's directory, by the list of its sealed segments, against what does: which files are not
 * of this log, which segments are missing or have another size than they were sealed with. Believes the list where the
 * directory bears it out, and writes it anew where it does not. Opens no segment but the last sealed one, when the list does
 * not know it, and one ahead of a file that seems foreign.
 */
#ifndef WORKER_INVENTORY_H
#define WORKER_INVENTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/record.h"
#include "worker/listing.h"
#include "worker/sealed_list.h"

struct inventory {
	const char *name;	/* of the directory, for log lines */
	int dir_fd;
	enum record_format format;
	struct listing *listing;
	struct sealed_list list;
	const char *wrong;	/* why the file is not believed; NULL: it is, or there is none */
	int64_t stray_bytes;	/* behind what is believed of it */
	size_t lacking;		/* sealed segments that it does not have */
	int64_t gap_at;		/* where the last sealed one ends, if the active one is known not to follow there; -1 */
};

/*
 * Reads the list, takes out of the listing what is foreign, and puts the recorded times into it. The four first are set
 * by the caller and borrowed. Returns 0, or -1 with errno ENOMEM and nothing to free.
 */
int inventory_read(struct inventory *inventory);

/* The same for what is foreign, when a segment has been added to the listing that lends the list weight. */
void inventory_drop_foreign(struct inventory *inventory);

void inventory_free(struct inventory *inventory);

/* When the active segment, the last one in the listing, is known: tells what is missing, changed or unlikely. */
void inventory_report(struct inventory *inventory);

/* After that: writes the list anew if it lacks something, was damaged or is mostly stale. Returns 0, or -1 with errno. */
int inventory_store(struct inventory *inventory);

#endif
