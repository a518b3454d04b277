/*
 * One look at one segment file: its records counted, its damage found, its end judged by what must follow it. Reads the
 * file once and believes what it sees; whether that lasts, in the files of a running broker, is examine.c's.
 */
#ifndef CLIENT_LOOK_H
#define CLIENT_LOOK_H

#include <stdbool.h>
#include <stdint.h>

#include "client/finding.h"
#include "common/record.h"
#include "worker/index.h"

enum { LOOK_FINDINGS_MAX = 64 };	/* of one segment that are told one by one */

struct look {
	/* What is looked at. */
	int64_t base;
	int64_t next;		/* base of the segment behind it; -1 = it is the last one, whose end may be torn */

	/* What is there. */
	int64_t file_bytes;
	int64_t records;	/* good ones */
	int64_t bytes;		/* of these */
	int64_t end;		/* offset behind the last record */
	int64_t prefix_end;	/* offset and position behind the good records up to the first damage or the end */
	int64_t prefix_bytes;

	/* Corruption, by position; names and `last` are not filled in. */
	struct finding found[LOOK_FINDINGS_MAX + 1];
	int count;
	int64_t more;		/* damaged places beyond that */

	/* The last segment without corruption: what a write that did not come to its end has left behind the prefix. */
	int64_t torn_bytes;
	enum record_verdict torn_verdict;

	/* Of the marks that were given: those that lead to a record with their offset, the first record's aside, and
	 * others ahead of the first damage. */
	int64_t marks_right, marks_wrong;

	/* What is worth a note: of kind FINDING_KINDS when nothing is. */
	struct finding note;
};

/* Called with the bytes that have been read since the last call. */
struct look_progress {
	void (*read)(void *with, int64_t bytes);
	void *with;
};

/*
 * Looks at the open file. `marks`, of its stored index, and `progress` may be NULL. Returns 0, or -1 with errno
 * ENOMEM, or what fstat says.
 */
int look_at(struct look *look, int fd, enum record_format format, int64_t base, int64_t next, const struct index *marks,
    const struct look_progress *progress);

/* Adds damage to what was found. */
struct finding *look_add(struct look *look, enum finding_kind kind);

/* Have two looks found the same? */
bool look_alike(const struct look *one, const struct look *other);

#endif
