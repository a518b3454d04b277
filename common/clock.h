/*
 * Time. Every wait and deadline in the project is CLOCK_MONOTONIC in nanoseconds; it is one clock for all processes. The wall
 * clock, which anybody may set, is asked only for what must outlive the machine's uptime: when a record was appended.
 */
#ifndef COMMON_CLOCK_H
#define COMMON_CLOCK_H

#include <stdint.h>
#include <sys/time.h>

enum {
	CLOCK_NS_PER_US = 1000,
	CLOCK_NS_PER_MS = 1000000,
	CLOCK_NS_PER_S = 1000000000,
};

/* CLOCK_MONOTONIC now, in nanoseconds. */
int64_t clock_now_ns(void);

/* CLOCK_REALTIME now, in milliseconds since 1970. */
int64_t clock_wall_ms(void);

/* The time from now until then, rounded up; at least a microsecond: what a timer of the event loop is given. */
struct timeval clock_until(int64_t deadline_ns);

#endif
