/*
 * Times and poll: see wait.h.
 */
#include "client/lib/wait.h"

#include <poll.h>

#include "common/clock.h"

int
lb_wait_ms(int64_t deadline_ns, int64_t now_ns)
{
	static const int LONGEST_MS = 24 * 3600 * 1000;

	if (deadline_ns <= now_ns)
		return 0;
	if (deadline_ns - now_ns >= (int64_t)LONGEST_MS * CLOCK_NS_PER_MS)
		return LONGEST_MS;
	return (int)((deadline_ns - now_ns + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS);
}

int
lb_wait_sooner_ms(int a_ms, int b_ms)
{
	if (a_ms < 0 || b_ms < 0)
		return a_ms < 0 ? b_ms : a_ms;
	return a_ms < b_ms ? a_ms : b_ms;
}

void
lb_wait_for(const struct lb_source *source, int limit_ms)
{
	struct lb_wants wants = lb_source_wants(source);
	struct pollfd fd = { .fd = wants.fd, .events = wants.events };

	poll(&fd, 1, lb_wait_sooner_ms(wants.timeout_ms, limit_ms));
}
