/*
 * A link: the producer's way to one group of the broker's partitions, which is a connection while there is one. Knows how
 * it is opened, lost and opened again; not what is sent on it.
 */
#ifndef CLIENT_LIB_LINK_H
#define CLIENT_LIB_LINK_H

#include "client/lib/producer_state.h"

/* The group's link, made if need be; it connects when something is to be sent. NULL: no memory. */
struct lb_link *lb_link_of_group(struct lb_producer *producer, int32_t group);
/* Can a frame be submitted now? Begins to connect where there is no connection and it is time. */
bool lb_link_usable(struct lb_link *link, int64_t now_ns);
/* Lets the connection work, and notices its end: all that it had has come back then. */
void lb_link_process(struct lb_link *link, int64_t now_ns);
/* Ends a connection that answers no more. */
void lb_link_give_up(struct lb_link *link, int64_t now_ns);
/* Ends the connection, if there is one, for good. */
void lb_link_drop(struct lb_link *link);
/* Milliseconds until the link wants to be processed, whatever happens; -1: nothing is waited for. */
int lb_link_timeout_ms(const struct lb_link *link, int64_t now_ns);

#endif
