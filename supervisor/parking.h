/*
 * Connections that wait for a worker: each at most `request_timeout`, counted from its parking, and only as long as
 * its client is there. A client that has merely ended its sending side still is. Knows no workers.
 */
#ifndef SUPERVISOR_PARKING_H
#define SUPERVISOR_PARKING_H

#include <stdint.h>

#include "supervisor/connection.h"

struct event_base;
struct parking;

struct parking_counts {
	int64_t waiting;
	int64_t timed_out;
	int64_t hung_up;
};

/* NULL with errno. */
struct parking *parking_new(struct event_base *base, int64_t timeout_ns);

/* Counts for those that wait already, too. */
void parking_set_timeout(struct parking *parking, int64_t timeout_ns);

/* Closes what still waits. NULL is allowed. */
void parking_free(struct parking *parking);

/* Takes the connection (its bytes are copied). message.group may be CONNECTION_ANY_GROUP. Returns 0, or -1 with errno:
 * then it is still the caller's. */
int parking_put(struct parking *parking, const struct connection *connection);

/*
 * Takes out all that wait for `group` or for any, oldest first, and passes each to `taken`, who then owns its
 * descriptors; its bytes are valid during the call. `taken` must not park.
 */
void parking_take(struct parking *parking, int32_t group,
    void (*taken)(void *context, const struct connection *connection), void *context);

/* Closes all, gently. */
void parking_close_all(struct parking *parking);

const struct parking_counts *parking_counts(const struct parking *parking);

#endif
