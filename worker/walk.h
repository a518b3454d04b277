/*
 * Reading a segment file record by record to its very end, past whatever is damaged in it: what the offline tools know
 * of a log. Where no valid record stands, reading goes on at the next place where one does. Only sums can tell that
 * place: in plain, what stands behind the first damage is not told apart. A place that the disk refuses to read is
 * damage like any other. Changes nothing; knows no offsets and no other files. Memory is bounded by twice the largest
 * possible record.
 */
#ifndef WORKER_WALK_H
#define WORKER_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/record.h"
#include "worker/piece.h"

struct walk {
	struct piece piece;
	enum record_format format;
	int64_t file_bytes;	/* falls when the file turns out to be shorter */
	int64_t position;	/* of the next step */
	int refused;		/* errno of a read: the piece's file ends there for now. 0 = none */
};

enum walk_kind {
	WALK_RECORD,	/* a valid one */
	WALK_BAD,	/* a stretch without one */
	WALK_END,	/* the file's */
};

struct walk_step {
	enum walk_kind kind;
	int64_t position;
	int64_t bytes;			/* of the record, header included; of the stretch */
	const uint8_t *record;		/* WALK_RECORD; valid until the next step */

	/* WALK_BAD */
	enum record_verdict verdict;	/* on what stands at its beginning */
	int error;			/* errno with which the disk refused to read it; 0 = it did not */
	bool single;			/* the stretch is exactly one record */
	bool length_only;		/* and its payload is good: its sum fits, only its length does not */
	bool last;			/* no valid record follows; or none was found with bearable work */
	int64_t content_end;		/* of the last one: position behind what is not just zeros */
};

/*
 * Begins at a position where a record should begin. Returns 0, or -1 with errno ENOMEM. The descriptor stays the
 * caller's.
 */
int walk_open(struct walk *walk, int fd, enum record_format format, int64_t position, int64_t file_bytes);
void walk_close(struct walk *walk);

/* Returns 0, or -1 with errno ENOMEM. */
int walk_next(struct walk *walk, struct walk_step *step);

#endif
