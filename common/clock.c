#include "common/clock.h"

#include <time.h>

int64_t
clock_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * CLOCK_NS_PER_S + t.tv_nsec;
}

int64_t
clock_wall_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / CLOCK_NS_PER_MS;
}

struct timeval
clock_until(int64_t deadline_ns)
{
	int64_t wait_us = (deadline_ns - clock_now_ns()) / CLOCK_NS_PER_US + 1;

	if (wait_us < 1)
		wait_us = 1;
	return (struct timeval){ .tv_sec = wait_us / 1000000, .tv_usec = wait_us % 1000000 };
}
