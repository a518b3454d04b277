/*
 * Reading a segment file record by record, from its beginning or a place that is known, sums included, in large pieces:
 * what recovery decides by. Descriptors may be those of direct_open. Knows nothing of logs and directories and changes
 * nothing. Memory is bounded by the largest possible record, whatever the lengths in the file say.
 */
#ifndef WORKER_SCAN_H
#define WORKER_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/record.h"
#include "worker/index.h"

struct scan {
	int64_t records;		/* valid ones from the beginning */
	int64_t position;		/* behind them */
	enum record_verdict verdict;	/* on what stands there; RECORD_END also at the end of the file */
	int64_t verdict_end;		/* where what the verdict is on ends, by its own length word and in the file */
};

/*
 * The longest prefix of valid records of a file of `file_bytes` bytes; a file that turns out shorter ends there. The
 * records, the first of which has the offset `base`, are noted in `index` unless it is NULL. Returns 0, or -1 with
 * errno: ENOMEM or the read's.
 */
int scan_records(int fd, enum record_format format, int64_t base, int64_t file_bytes, struct index *index,
    struct scan *scan);

/*
 * The same from a place in the file on where a record begins: from scan->position, ahead of which there are scan->records.
 */
int scan_records_on(int fd, enum record_format format, int64_t base, int64_t file_bytes, struct index *index,
    struct scan *scan);

/* The verdict on the first record alone. Returns 0, or -1 with errno as above. */
int scan_first(int fd, enum record_format format, int64_t file_bytes, enum record_verdict *verdict);

/* Position behind the last byte from `position` on that is not zero; `position` when all are. -1 with errno. */
int64_t scan_content_end(int fd, int64_t position, int64_t file_bytes);

/*
 * Might a whole record with a fitting sum begin anywhere behind `position`? Then what stands at `position` is not
 * just a record that was torn. True also when it cannot be said with moderate work. Returns 0, or -1 with errno.
 */
int scan_holds_record(int fd, int64_t position, int64_t file_bytes, bool *holds);

#endif
