/*
 * Bundles to their links: partitions that share a connection take turns, several bundles are in flight, what comes back unsent
 * keeps its place.
 */
#ifndef CLIENT_LIB_SENDER_H
#define CLIENT_LIB_SENDER_H

#include "client/lib/producer_state.h"

/*
 * Something of the partition has changed: what it has to send, what is in flight, its home. It stands in its link's turn
 * or not.
 */
void lb_sender_update(struct lb_partition *partition);
/* The open bundle is complete: it takes no more records and can be sent. */
void lb_sender_close(struct lb_bundle *bundle);
/* Sends what may be sent on the link now. */
void lb_sender_send(struct lb_link *link, int64_t now_ns);
/* Settles what was not settled within delivery_timeout_ms. */
void lb_sender_expire(struct lb_producer *producer, int64_t now_ns);

#endif
