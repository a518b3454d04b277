/*
 * What the files of the producer share: the producer, its topics with their partitions, its links.
 *
 *   topic.c      a record to its partition's open bundle (accumulator.h), within the limit of memory
 *   sender.c     complete bundles to their link's connection, partitions in turn; answers; bundles that come back
 *   link.c       a connection to each group of the broker's partitions: opened when needed, with back-off; lost
 *   outcome.c    outcomes to totals and callbacks
 *   producer.c   the turns in which all this happens: processing, flush, close, free
 *
 * The program's callbacks are called by outcome.c alone, when nothing else of the producer is under way; so they may do
 * anything, and lb_topic_send may let the connections work without calling anybody back.
 */
#ifndef CLIENT_LIB_PRODUCER_STATE_H
#define CLIENT_LIB_PRODUCER_STATE_H

#include <sys/queue.h>

#include "client/lib/accumulator.h"
#include "client/lib/backoff.h"
#include "client/lib/connection.h"
#include "client/lib/logbroker.h"
#include "client/lib/pool.h"
#include "client/lib/bundle.h"
#include "client/lib/source.h"
#include "client/lib/watch.h"

struct lb_partition {
	struct lb_topic *topic;
	int32_t number;
	struct lb_bundle_list bundles;	/* not settled, in the order of their records; the last may be open */
	struct lb_bundle *unsent;	/* the first of them that no connection has; NULL: none */
	int32_t in_flight;		/* bundles that a connection has, settled ones included */
	size_t expected_bytes;		/* of the next frame: what the last one had */
	struct lb_link *home;		/* of its group, as METADATA said last */
	struct lb_link *link;		/* where it sends: not another one while something is in flight, or order is lost */
	bool ready;			/* stands in link->ready */
	TAILQ_ENTRY(lb_partition) by_turn;
};

TAILQ_HEAD(lb_partition_list, lb_partition);

struct lb_topic {
	struct lb_producer *producer;
	struct lb_topic *next;
	char name[LB_TOPIC_NAME_MAX + 1];
	size_t head_bytes;		/* of its bundles' frames */
	int32_t next_partition;		/* round robin */
	int32_t partition_count;
	struct lb_partition partitions[];
};

struct lb_link {
	struct lb_producer *producer;
	struct lb_link *next;
	int32_t group;			/* -1: of a broker that does not tell */
	struct lb_connection *connection;	/* NULL: there is none */
	bool opened;			/* it was seen open */
	bool silent;			/* the time of a bundle in flight has passed, and no answer has come since: nothing more is sent */
	bool was_lost;			/* an earlier one was: groups may have changed */
	struct lb_watch watch;
	int in_flight;			/* bundles that the connection has */
	int given_up;			/* of these: settled, since their time has passed */
	struct lb_backoff backoff;
	struct lb_error failure;	/* why there is no connection; code 0: none was lost yet */
	struct lb_partition_list ready;	/* with something to send; they take turns, a bundle each */
};

struct lb_producer {
	struct lb_source source;
	struct lb_producer_options options;
	char *address;
	int epoll_fd;			/* the links' connections */
	bool closing;			/* nothing more is accepted */
	struct lb_link *links;
	struct lb_topic *topics;
	struct lb_accumulator accumulator;
	struct lb_bundle_list by_age;		/* all that are not settled: deadlines are in this order, too */
	struct lb_bundle_list settled;		/* to be told in the next turn */
	struct lb_bundle_list telling;		/* in this one */
	uint64_t bundles_begun;
	size_t held_bytes;		/* charged for records that have not completed */
	struct lb_bundle_list unused;
	struct lb_pool pool;
	struct lb_totals totals;
	struct lb_error first_failure;	/* code 0: everything was acknowledged so far */
};

#endif
