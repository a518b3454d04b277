/*
 * Examining a log: all segments of a partition's directory, each by itself and by what must stand behind it. Reads
 * only.
 *
 * A broker may be at work on the log meanwhile: its last segment grows and may end in a write that is under way, rolls
 * and retention let files come and go, a restarted worker cuts what was never whole. So what a look at a segment finds
 * is believed only when the directory, read again, still has that segment with the same one behind it, and another
 * look finds the same; in the last segment of a running broker several times, with pauses.
 */
#ifndef CLIENT_EXAMINE_H
#define CLIENT_EXAMINE_H

#include <stdbool.h>
#include <stdint.h>

#include "client/finding.h"
#include "client/look.h"
#include "common/record.h"

enum { EXAMINE_PAUSE_MS = 30 };

struct examine {
	/* Set by the caller. */
	int dir_fd;
	int format;			/* enum record_format; -1 = the log tells it */
	int64_t only;			/* base of the one segment that is looked at; -1 = all of them */
	int pause_ms;			/* between looks at what a broker is at work on: EXAMINE_PAUSE_MS */
	bool (*running)(void *with);	/* is a broker at work on the log, now? */
	void *running_with;
	void (*found)(void *with, const struct finding *finding);
	void *found_with;
	struct look_progress progress;	/* read: NULL = nobody asks */

	/* Results. */
	enum record_format record_format;
	bool format_told;		/* by the log or the caller; else it is assumed */
	int64_t segments, records, bytes;	/* of good records */
	int64_t first, end;		/* offsets of the first record and behind the last one; -1 = nobody can say */
	int64_t findings[FINDING_CORRUPTION + 1];	/* how many, by weight */
	struct look last;		/* of the log's last segment; base -1: not looked at */
};

/* Returns 0, or -1 with errno: the directory cannot be read, memory is out. */
int examine_log(struct examine *e);

/*
 * What the log's records are: sets e->record_format and e->format_told. It is e->format when that is not -1, else what the log
 * tells; where nothing tells, crc32c is assumed. Returns 0, or -1 with errno.
 */
int examine_format(struct examine *e);

/* The same for a file that may be no segment; `format` may be -1. */
int examine_file_format(int fd, int format, enum record_format *record_format, bool *told);

#endif
