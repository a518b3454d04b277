/*
 * What has been counted between two looks at the broker. Nobody looks, nothing is kept: a sample is taken when the status is
 * rendered, and compared with an earlier one.
 */
#ifndef SUPERVISOR_RATES_H
#define SUPERVISOR_RATES_H

#include <stdint.h>

#include "common/board.h"
#include "common/topics.h"

enum {
	RATES_MIN_MS = 1000,	/* what is compared lies so far apart ... */
	RATES_MAX_MS = 60000,	/* ... and not farther: what was long ago is no rate */
};

struct rates_partition {
	int64_t records, bytes;		/* produced */
};

struct rates_sample {
	int64_t at_ns;			/* CLOCK_MONOTONIC; 0: never taken */
	int64_t produced_records, produced_bytes, fetched_bytes, requests, barriers, barriers_ns;
	struct rates_partition *partitions;	/* topic by topic */
};

/* Zeros at first. */
struct rates {
	struct rates_sample samples[3];
	int latest, older;		/* of them; what is neither is taken next */
	struct rates_sample *now, *before;
};

/*
 * Takes a sample: rates->now, and rates->before to compare it with, NULL when there is none. Returns 0, or -1 with errno
 * ENOMEM. Valid until the next call.
 */
int rates_take(struct rates *rates, const struct topics *topics, const struct board *const *boards, int64_t now_ns);
void rates_free(struct rates *rates);

/* Per second; a counter that has gone back counts as none. */
double rates_per_second(const struct rates *rates, int64_t now, int64_t before);

#endif
