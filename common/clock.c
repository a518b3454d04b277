#include "common/clock.h"

#include <time.h>

int64_t
clock_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * CLOCK_NS_PER_S + t.tv_nsec;
}
