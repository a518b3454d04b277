/*
 * What is found in a log's files, and how it is said: a kind with its name and weight, a sentence, and what to do.
 */
#ifndef CLIENT_FINDING_H
#define CLIENT_FINDING_H

#include <stdbool.h>
#include <stdint.h>

#include "common/record.h"

enum finding_kind {
	/* Corruption: records are damaged, missing, or not where they belong. */
	FINDING_BAD_RECORD,
	FINDING_UNREADABLE,
	FINDING_MISSING,
	FINDING_GONE,		/* records, with a whole segment that the log is known to have had */
	FINDING_OVERLAP,
	FINDING_MISNAMED,
	FINDING_DOUBLED,
	FINDING_SURPLUS,
	FINDING_LOST,		/* records that had been forced to disk, as the segment's index says */
	FINDING_MORE,		/* more of it in one segment than are told one by one */
	/* Nobody can say. */
	FINDING_CANNOT_OPEN,
	/* Nothing is wrong, but worth a line. */
	FINDING_TORN,
	FINDING_BEING_WRITTEN,
	FINDING_FORMAT_ASSUMED,
	FINDING_EMPTY,
	FINDING_FOREIGN,
	FINDING_LEFTOVER,
	FINDING_CUT_COPY,
	FINDING_WRONG_INDEX,
	FINDING_UNREADABLE_INDEX,
	FINDING_WRONG_LIST,
	FINDING_KINDS,
};

enum finding_weight { FINDING_NOTE, FINDING_FAILURE, FINDING_CORRUPTION };

/* Numbers that nobody knows are -1. */
struct finding {
	enum finding_kind kind;
	const char *name;	/* the file's, in the partition's directory; "" that itself. Valid for the call */
	int64_t position;
	int64_t offset;		/* of the first record concerned; MISNAMED: what the name should say */
	int64_t bytes;
	int64_t records;	/* concerned: damaged, missing, too many */
	int64_t before, behind;	/* good records in the same segment */
	int64_t other;		/* base of another segment: the next one, the original of a doubled one */
	enum record_verdict verdict;
	bool length_only;	/* the payload of the record is good */
	bool last;		/* of the last segment, which the broker's next start cuts there */
	int error;
	const char *why;	/* an entry is foreign, or a cache not believed */
};

/* "bad_record": for programs, for good. */
const char *finding_name(enum finding_kind kind);
enum finding_weight finding_weight(enum finding_kind kind);
const char *finding_weight_name(enum finding_weight weight);

enum { FINDING_TEXT_BYTES = 512 };

/* What was found, without the file's name, into FINDING_TEXT_BYTES; and what to do about it, "" = nothing. */
void finding_text(const struct finding *finding, char *to);
const char *finding_remedy(const struct finding *finding);

#endif
