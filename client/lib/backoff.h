/*
 * When is a broker that could not be reached, or was lost, tried again? Pure policy: after 100 ms, then after twice as long each
 * time, up to 5 s; from the beginning once it has answered. Each wait is cut by up to a half, at random, so that clients
 * which lost the same broker do not come back all at once. No I/O, no clock of its own.
 */
#ifndef CLIENT_LIB_BACKOFF_H
#define CLIENT_LIB_BACKOFF_H

#include <stdint.h>

struct lb_backoff {
	int64_t wait_ns;	/* the last wait before it was cut; 0 = none since it has answered */
	int64_t due_ns;		/* no try begins before */
	uint64_t random;
};

/* A first try may begin at once. The seed: anything that differs between clients. */
void lb_backoff_init(struct lb_backoff *backoff, uint64_t seed);
/* A try has failed, or what it had opened was lost. */
void lb_backoff_failed(struct lb_backoff *backoff, int64_t now_ns);
/* The broker has answered. */
void lb_backoff_worked(struct lb_backoff *backoff);

#endif
