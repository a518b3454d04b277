/*
 * Which worker of the broker has which partition: METADATA, applied to a topic's partitions.
 */
#ifndef CLIENT_LIB_GROUPS_H
#define CLIENT_LIB_GROUPS_H

#include "client/lib/producer_state.h"

/*
 * Each partition is at home where METADATA says. One that is not in it stays where it was, and so does one without memory
 * for its link.
 */
void lb_groups_take(struct lb_topic *topic, const struct lb_topic_metadata *metadata);
/* Asks for the groups of all topics: after a loss the broker may have come back with other workers. */
void lb_groups_ask(struct lb_producer *producer, struct lb_connection *connection);

#endif
