/*
 * A bundle of records: a PRODUCE from its first record on. The frame that is being built, exactly as it will be sent (codec.h), and
 * beside it whom to tell about each record. Owns that memory; knows no queue, no connection and no clock, though it carries what
 * those keep of it.
 */
#ifndef CLIENT_LIB_BUNDLE_H
#define CLIENT_LIB_BUNDLE_H

#include <sys/queue.h>

#include "client/lib/logbroker.h"
#include "client/lib/pool.h"

struct lb_partition;

struct lb_receiver {
	lb_receipt_cb *done;	/* NULL: nobody */
	void *context;
};

/* Open ones, waiting ones and sent ones stand in their partition's queue until their outcome is known. */
struct lb_bundle {
	/* The frame. */
	struct lb_block *block;
	uint8_t *frame;
	size_t capacity_bytes, frame_bytes;	/* frame_bytes: head and records so far */
	int32_t record_count;

	/* Whom to tell: one for each record, or one for all; none at all until the first that is not NULL. */
	struct lb_block *receiver_block;
	struct lb_receiver *receivers;
	size_t receiver_capacity;
	bool together;			/* lb_topic_send_batch: one receiver for all */
	size_t told;			/* of the receivers, so far */

	/* Its way. */
	struct lb_partition *partition;
	uint64_t number;		/* of all bundles of the producer, in the order in which they were begun */
	int64_t begun_ns;
	size_t charged_bytes;		/* of the producer's memory_bytes */
	bool open;			/* takes records; stands in the accumulator */
	bool in_flight;			/* a connection has the frame: its memory must stay */
	bool maybe_sent;		/* by a connection that was lost: at_least_once */
	bool settled;			/* the outcome is known; stands in the list of those to be told until told */
	bool delivered;			/* has been told */

	/* The outcome. error.code 0: acknowledged. */
	int64_t base_offset;		/* -1: none */
	struct lb_error error;

	TAILQ_ENTRY(lb_bundle) of_partition;
	TAILQ_ENTRY(lb_bundle) by_age;
	TAILQ_ENTRY(lb_bundle) queue;	/* of the accumulator while open; of those to be told; of those unused */
};

TAILQ_HEAD(lb_bundle_list, lb_bundle);

/*
 * Begins anew, with room for a frame of `expected_bytes` (a guess). The frame's head is left out, `head_bytes` long. false: no
 * memory, nothing has changed.
 */
bool lb_bundle_begin(struct lb_bundle *bundle, struct lb_pool *pool, size_t head_bytes, size_t expected_bytes);
/* Adds a record. false: no memory, nothing has changed. That the frame stays within its limit is the caller's care. */
bool lb_bundle_put(struct lb_bundle *bundle, struct lb_pool *pool, const void *payload, size_t bytes);
/* Says whom to tell of the record put last, or of all of them when they are told of together. false: no memory. */
bool lb_bundle_tell(struct lb_bundle *bundle, struct lb_pool *pool, lb_receipt_cb *done, void *context);
/* How many receivers will be told: one for each record, one for all, or none. */
size_t lb_bundle_receivers(const struct lb_bundle *bundle);
/* Takes the record put last away again. */
void lb_bundle_unput(struct lb_bundle *bundle, size_t bytes);
/* Writes the head. No record is added from here on. */
void lb_bundle_seal(struct lb_bundle *bundle, const char *topic, int32_t partition, enum lb_ack ack);
/* Gives its memory back. */
void lb_bundle_end(struct lb_bundle *bundle, struct lb_pool *pool);

#endif
