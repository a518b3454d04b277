/*
 * How long until a deadline, for poll(2).
 */
#ifndef CLIENT_LIB_WAIT_H
#define CLIENT_LIB_WAIT_H

#include <stdint.h>

#include "common/clock.h"

/* Milliseconds, rounded up so that nobody wakes ahead of the deadline and spins; 0 = it has passed. A day at most. */
static inline int
lb_wait_ms(int64_t deadline_ns, int64_t now_ns)
{
	static const int LONGEST_MS = 24 * 3600 * 1000;

	if (deadline_ns <= now_ns)
		return 0;
	if (deadline_ns - now_ns >= (int64_t)LONGEST_MS * CLOCK_NS_PER_MS)
		return LONGEST_MS;
	return (int)((deadline_ns - now_ns + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS);
}

#endif
