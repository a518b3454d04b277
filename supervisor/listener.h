/*
 * Accepts connections on the broker's endpoints. When descriptors are short it pauses, 100 ms at a time, and leaves the
 * rest to the kernel's queue: nobody is refused, and whoever is connected already is served. Knows nothing of workers.
 */
#ifndef SUPERVISOR_LISTENER_H
#define SUPERVISOR_LISTENER_H

#include <stdint.h>

#include "supervisor/endpoint.h"
#include "supervisor/reserve.h"

struct event_base;
struct listener;

enum {
	LISTENER_PAUSE_MS = 100,
	LISTENER_BATCH = 64,	/* connections from one endpoint before the loop turns to something else */
};

/* All borrowed. `accepted` gets each connection, non-blocking and close-on-exec, and owns it. NULL with errno. */
struct listener *listener_new(struct event_base *base, const struct endpoints *endpoints, struct reserve *reserve,
    void (*accepted)(void *context, int descriptor), void *context);

/* Nothing is accepted before listener_start, which returns 0, or -1 with errno; and nothing after listener_stop. */
int listener_start(struct listener *listener);
void listener_stop(struct listener *listener);

/* The endpoints stay the caller's. NULL is allowed. */
void listener_free(struct listener *listener);

/* Pauses so far. */
int64_t listener_pauses(const struct listener *listener);

#endif
