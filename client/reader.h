/*
 * A reader: the place of one partition's consumer, and what a FETCH answer means for it. Pure: no socket, no clock,
 * no output, so that every cut and every damage can be tried in a unit test.
 */
#ifndef CLIENT_READER_H
#define CLIENT_READER_H

#include <stddef.h>
#include <stdint.h>

#include "common/record.h"

struct reader {
	enum record_format format;
	int64_t position;	/* offset of the next record to deliver */
	int64_t end;		/* the offset to stop before; INT64_MAX: never */
	int32_t max_bytes;	/* what to ask for, normally */
	int32_t ask_bytes;	/* what to ask for next: more than that for a record that did not fit */
};

enum reader_verdict {
	READER_GOES_ON,		/* the payload ended with a whole record or inside one; ask again from `position` */
	READER_EMPTY,		/* no byte came */
	READER_LARGER,		/* not even one record was whole: ask_bytes has been raised, ask again */
	READER_STUCK,		/* the same although enough bytes had been asked for; see stuck_bytes */
	READER_DAMAGED,		/* behind the good ones stands something that is no record, at `position` */
};

struct reader_batch {
	int64_t records;	/* good ones to deliver, from the payload's begin */
	size_t bytes;		/* they take, headers included */
	size_t stuck_bytes;	/* with READER_STUCK: the record's payload, 0 when not even its length arrived */
	const char *damage;	/* with READER_DAMAGED: in words */
};

/*
 * Checks the records of a payload, sums included, until its end, `end`, or `most` records; moves the position behind
 * the good ones and tells in *batch which they are.
 */
enum reader_verdict reader_take(struct reader *reader, const uint8_t *payload, size_t bytes, int64_t most,
    struct reader_batch *batch);

/* The payload of a record that reader_take has found good; *next becomes the record behind it. */
const uint8_t *reader_payload(enum record_format format, const uint8_t *record, size_t *size, const uint8_t **next);

#endif
