/*
 * Where a connection goes: a fresh one to any worker that serves, one that a worker has given back to the worker of
 * its group, and either into the parking while that worker is away. Counts them against max_connections. Moves
 * descriptors and the bytes that travel with them; reads neither.
 */
#ifndef SUPERVISOR_HANDOVER_H
#define SUPERVISOR_HANDOVER_H

#include <stdint.h>

#include "supervisor/crew.h"
#include "supervisor/parking.h"

struct handover;

struct handover_counts {
	int64_t accepted;
	int64_t refused;	/* of them: closed at once, max_connections were there */
	int64_t dropped;	/* for want of memory, or since the broker stops */
};

/* `parking` and `crew` are borrowed; `crew` may be set later, before the first connection. NULL with errno. */
struct handover *handover_new(struct parking *parking, int64_t max_connections);
void handover_set_crew(struct handover *handover, const struct crew *crew);
/* With fewer than are there nobody is closed, and nobody new taken until there are fewer. */
void handover_set_max_connections(struct handover *handover, int64_t max_connections);
void handover_free(struct handover *handover);

/* A new client. The descriptor goes over. */
void handover_fresh(struct handover *handover, int descriptor);

/* A connection on its way to message.group. Its descriptors go over; its bytes are borrowed for the call. */
void handover_returned(struct handover *handover, const struct connection *connection);

/* That worker serves now: it gets everything that has waited for it. */
void handover_serving(struct handover *handover, int32_t group);

/* Closes what waits, and from now on whatever comes. */
void handover_stop(struct handover *handover);

/* All connections: in the workers, on their way, parked. */
int64_t handover_connections(const struct handover *handover);
const struct handover_counts *handover_counts(const struct handover *handover);

#endif
