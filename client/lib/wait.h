/*
 * Waiting: how long until a deadline, and for what a source wants.
 */
#ifndef CLIENT_LIB_WAIT_H
#define CLIENT_LIB_WAIT_H

#include "client/lib/logbroker.h"

/* Milliseconds, rounded up so that nobody wakes ahead of the deadline and spins; 0 = it has passed. A day at most. */
int lb_wait_ms(int64_t deadline_ns, int64_t now_ns);
/* The less of two times, of which -1 is none. */
int lb_wait_sooner_ms(int a_ms, int b_ms);
/* Until there is something to process, at most limit_ms; -1: no other limit. Returns early at times. */
void lb_wait_for(const struct lb_source *source, int limit_ms);

#endif
