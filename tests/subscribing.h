/*
 * A subscription under test, by handler or by lb_subscription_next, and everything that it delivers: checked for order,
 * counted. Uses the library by its public header only.
 */
#ifndef TESTS_SUBSCRIBING_H
#define TESTS_SUBSCRIBING_H

#include <logbroker.h>
#include <stdbool.h>
#include <stdint.h>

enum { SUBSCRIBING_PARTITIONS_MAX = 16, SUBSCRIBING_DEADLINE_MS = 30000 };

struct subscribing {
	struct lb_subscription *subscription;
	struct lb_subscription_options options;
	bool pull;
	/* What has come. */
	int64_t first[SUBSCRIBING_PARTITIONS_MAX];	/* the first offset of each partition; -1 = nothing came */
	int64_t next[SUBSCRIBING_PARTITIONS_MAX];	/* what must come next; -1 = anything */
	long records, batches;
	int64_t skipped;
	int32_t largest_max_bytes;
	struct lb_batch last;		/* its records are gone */
	/* How it stopped. */
	int stops;
	struct lb_error error;		/* code LB_OK: it has not; LB_ENDED: everything up to the stop was delivered */
	/* The test's: called for each batch when it has been checked, and for each record. May be NULL. */
	int (*handle)(struct subscribing *by, const struct lb_batch *batch);
	void (*look)(struct subscribing *by, int32_t partition, const struct lb_record *record);
	void *context;
};

/* All of it zero but what has defaults; by lb_subscription_next when `pull`. */
void subscribing_init(struct subscribing *by, bool pull);
/* Opens with by->options, which must work. */
void subscribing_open(struct subscribing *by, const char *address, const char *topic);
/* Until so many records have come in all. Fails the test when it stops before, or is late. */
void subscribing_until(struct subscribing *by, long records);
/* Until it stops; returns the code. */
int subscribing_until_stop(struct subscribing *by);
/* For so long (0: one turn), or until it stops. */
void subscribing_for(struct subscribing *by, int ms);
/* Goes on there; what comes must begin there. */
void subscribing_seek(struct subscribing *by, int32_t partition, int64_t offset);
void subscribing_close(struct subscribing *by);

#endif
