/*
 * The waits between tries: see backoff.h.
 */
#include "client/lib/backoff.h"

#include "common/clock.h"

static const int64_t FIRST_WAIT_NS = INT64_C(100) * CLOCK_NS_PER_MS;
static const int64_t LONGEST_WAIT_NS = INT64_C(5) * CLOCK_NS_PER_S;

void
lb_backoff_init(struct lb_backoff *backoff, uint64_t seed)
{
	*backoff = (struct lb_backoff){ .random = seed };
}

/* splitmix64 */
static uint64_t
next_random(struct lb_backoff *backoff)
{
	uint64_t bits = backoff->random += 0x9E3779B97F4A7C15;

	bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9;
	bits = (bits ^ bits >> 27) * 0x94D049BB133111EB;
	return bits ^ bits >> 31;
}

void
lb_backoff_failed(struct lb_backoff *backoff, int64_t now_ns)
{
	int64_t wait_ns = backoff->wait_ns == 0 ? FIRST_WAIT_NS : backoff->wait_ns * 2;

	if (wait_ns > LONGEST_WAIT_NS)
		wait_ns = LONGEST_WAIT_NS;
	backoff->wait_ns = wait_ns;
	backoff->due_ns = now_ns + wait_ns - (int64_t)(next_random(backoff) % (uint64_t)(wait_ns / 2));
}

void
lb_backoff_worked(struct lb_backoff *backoff)
{
	backoff->wait_ns = 0;
	backoff->due_ns = 0;
}
