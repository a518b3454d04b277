/*
 * Held FETCHes: readers that wait at their partition until enough bytes are there, their time is over, or something
 * ends the wait. A hold pins no segment and no memory but its own. Pure bookkeeping: what is answered, and when the
 * time is over, is told to it.
 */
#ifndef WORKER_HOLD_H
#define WORKER_HOLD_H

#include <stdbool.h>
#include <stdint.h>

struct conn;
struct lane;

struct hold {
	struct conn *conn;
	struct lane *lane;		/* NULL = not held */
	struct hold *next, **previous;
	int32_t correlation_id;
	int32_t max_bytes;
	int32_t min_bytes;
	int64_t offset;
	int64_t deadline_ns;
	int64_t wake_bytes;		/* of holds.appended_bytes: then enough is there */
};

/* One partition's holds. Zero-initialise. */
struct holds {
	struct hold *first;
	int64_t appended_bytes;		/* ever, in this process */
	int64_t next_wake_bytes;	/* no hold is due below it */
};

/* `missing_bytes` must still be appended until there is enough; 0 = due now. `hold` stays in place until removed. */
void hold_add(struct holds *holds, struct hold *hold, struct lane *lane, int64_t missing_bytes);
void hold_remove(struct hold *hold);

/* Counts an append. */
void hold_appended(struct holds *holds, int64_t bytes);

/*
 * Removes all holds for which enough is there now and returns them chained by `next`; NULL = none. A hold of the chain
 * may be added again after its `next` has been read.
 */
struct hold *hold_take_due(struct holds *holds);

/* The same with every hold of a reader that waits below `offset`. */
struct hold *hold_take_below(struct holds *holds, int64_t offset);

/* The same with every hold, whatever it waits for. */
struct hold *hold_take_all(struct holds *holds);

#endif
