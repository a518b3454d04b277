/*
 * A subscription, as the files that make it up see it: subscription.c (its life, its calls), placing.c (which partitions, from
 * where), turns.c (batches out, and back).
 */
#ifndef CLIENT_LIB_SUBSCRIPTION_H
#define CLIENT_LIB_SUBSCRIPTION_H

#include "client/lib/reader.h"
#include "client/lib/source.h"

struct lb_subscription {
	struct lb_source source;	/* ahead of all else */
	struct lb_subscription_options options;
	struct lb_reader_setting setting;
	struct lb_reader **readers;	/* at least one, the first, which asks for METADATA */
	size_t reader_count;
	bool placed;			/* METADATA has said which partitions there are */
	bool paused;
	bool stopped;
	struct lb_error error;		/* what it has stopped with: LB_ENDED = at the end */
	size_t turn;			/* the reader that is looked at first */
	struct lb_reader *out;		/* its first batch is with the application; NULL = none is */
};

/* ---- placing.c ---- */

/* One more reader; NULL: no memory. */
struct lb_reader *lb_placing_add(struct lb_subscription *subscription, int32_t partition);
/* The first reader has METADATA: what follows. May call back, and be freed in it. */
void lb_placing_take(struct lb_subscription *subscription);

/* ---- turns.c ---- */

/* Is there something for the application: a batch, or a stop? */
bool lb_turns_any(const struct lb_subscription *subscription);
/* The next batch, which is out then; or NULL, and the subscription may have stopped. May call back, and be freed in it. */
const struct lb_batch *lb_turns_take(struct lb_subscription *subscription);
/* Takes one and has it handled. False: there was nothing. May call back, and be freed in it. */
bool lb_turns_deliver(struct lb_subscription *subscription);
/* If a batch is out: it has been handled. May call back, and be freed in it. */
void lb_turns_handled(struct lb_subscription *subscription);

#endif
