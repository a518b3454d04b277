/*
 * An operator's order to replace workers: one at a time, worker after worker, and what has become of each. An order that has
 * begun is carried out whether anybody still waits for it or not. Knows nothing of who gives orders.
 */
#ifndef SUPERVISOR_ORDERS_H
#define SUPERVISOR_ORDERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "supervisor/crew.h"

struct orders;

enum { ORDERS_ALL = -1, ORDERS_WHY_BYTES = 200, ORDERS_TEXT_BYTES = 96 };

enum orders_outcome { ORDERS_NOT_TRIED, ORDERS_REPLACED, ORDERS_FAILED };

struct orders_step {
	int32_t worker;
	enum orders_outcome outcome;
	char why[ORDERS_WHY_BYTES];	/* with ORDERS_FAILED */
	int64_t pause_ns;		/* with ORDERS_REPLACED: how long its clients waited; -1: some were cut */
};

/* ok: all were replaced. `steps` is for the call. */
typedef void orders_done(void *context, const struct orders_step *steps, int32_t count, bool ok);

struct orders_hooks {
	void *context;
	void (*idle)(void *context);	/* an order has ended, and its giver has been told. NULL: nobody asks */
};

/* NULL with errno ENOMEM. `crew` is borrowed. */
struct orders *orders_new(struct crew *crew, const struct orders_hooks *hooks);
/* An order under way gets its answer. NULL is allowed. */
void orders_free(struct orders *orders);

/*
 * Replaces one worker, or with ORDERS_ALL all in turn: one that does not serve is passed over; one whose replacement fails
 * ends it, since what the first one does not survive should not be tried on the others. Returns 0: `done` is called once,
 * perhaps at once; or -1 with errno: EBUSY (an order is under way), ENOMEM, or why crew_replace has refused that one.
 */
int orders_restart(struct orders *orders, int32_t worker, orders_done *done, void *context);

/* Is one under way? If so, `text` of ORDERS_TEXT_BYTES (may be NULL) tells which. */
bool orders_busy(const struct orders *orders, char *text);

#endif
