/*
 * When is a log that has failed opened again? Pure policy: a second after the failure, then after twice as long each time,
 * up to half a minute; from the beginning only when it has worked for a minute. No I/O, no clock of its own.
 */
#ifndef WORKER_BACKOFF_H
#define WORKER_BACKOFF_H

#include <stdbool.h>
#include <stdint.h>

/* Zero-initialise: nothing has failed. */
struct backoff {
	int64_t wait_ns;	/* the last wait; 0 = none yet */
	int64_t due_ns;		/* when the next try begins; 0 = none is waited for */
	int64_t worked_ns;	/* since when it has worked; 0 = it has not since the last failure */
};

/* It has failed, or a try has. Told again while a try is waited for this changes nothing. */
void backoff_failed(struct backoff *backoff, int64_t now_ns);

/* Must a try begin now? */
bool backoff_due(const struct backoff *backoff, int64_t now_ns);

/* A try begins; how it ends must be told. */
void backoff_begun(struct backoff *backoff);

/* A try has worked. */
void backoff_worked(struct backoff *backoff, int64_t now_ns);

#endif
