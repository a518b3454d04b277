#include "worker/backoff.h"

#include "common/clock.h"

static const int64_t FIRST_WAIT_NS = CLOCK_NS_PER_S;
static const int64_t LONGEST_WAIT_NS = INT64_C(30) * CLOCK_NS_PER_S;
static const int64_t FORGIVEN_NS = INT64_C(60) * CLOCK_NS_PER_S;	/* what failed sooner has not really worked */

static int64_t
next_wait_ns(const struct backoff *backoff, int64_t now_ns)
{
	if (backoff->wait_ns == 0 || (backoff->worked_ns != 0 && now_ns - backoff->worked_ns >= FORGIVEN_NS))
		return FIRST_WAIT_NS;
	return backoff->wait_ns * 2 < LONGEST_WAIT_NS ? backoff->wait_ns * 2 : LONGEST_WAIT_NS;
}

void
backoff_failed(struct backoff *backoff, int64_t now_ns)
{
	if (backoff->due_ns != 0)
		return;
	backoff->wait_ns = next_wait_ns(backoff, now_ns);
	backoff->due_ns = now_ns + backoff->wait_ns;
	backoff->worked_ns = 0;
}

bool
backoff_due(const struct backoff *backoff, int64_t now_ns)
{
	return backoff->due_ns != 0 && now_ns >= backoff->due_ns;
}

void
backoff_begun(struct backoff *backoff)
{
	backoff->due_ns = 0;
}

void
backoff_worked(struct backoff *backoff, int64_t now_ns)
{
	backoff->worked_ns = now_ns;
}
