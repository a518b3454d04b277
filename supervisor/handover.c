/* The ways of connections; see handover.h. */
#include "supervisor/handover.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"

struct handover {
	struct parking *parking;
	const struct crew *crew;
	int64_t max_connections;
	int32_t last;		/* the worker that got the last fresh connection */
	bool stopping;
	struct handover_counts counts;
	struct log_limit refused_limit, dropped_limit;
};

struct handover *
handover_new(struct parking *parking, int64_t max_connections)
{
	struct handover *handover = calloc(1, sizeof(*handover));

	if (handover == NULL)
		return NULL;
	handover->parking = parking;
	handover->max_connections = max_connections;
	handover->last = -1;
	return handover;
}

void
handover_set_crew(struct handover *handover, const struct crew *crew)
{
	handover->crew = crew;
}

void
handover_set_max_connections(struct handover *handover, int64_t max_connections)
{
	handover->max_connections = max_connections;
}

void
handover_free(struct handover *handover)
{
	free(handover);
}

int64_t
handover_connections(const struct handover *handover)
{
	int64_t sum = parking_counts(handover->parking)->waiting;

	for (int32_t i = 0; i < crew_count(handover->crew); i++)
		sum += child_connections(crew_child(handover->crew, i));
	return sum;
}

const struct handover_counts *
handover_counts(const struct handover *handover)
{
	return &handover->counts;
}

static void
drop(struct handover *handover, const struct connection *connection, const char *why)
{
	char more[LOG_MORE_BYTES];

	connection_close(connection);
	handover->counts.dropped++;
	if (!handover->stopping && log_limit_pass(&handover->dropped_limit, 60 * (int64_t)CLOCK_NS_PER_S, more))
		log_error("a client's connection is closed: %s%s", why, more);
}

static void
give(struct handover *handover, struct child *child, const struct connection *connection)
{
	if (child_give(child, connection) != 0)
		drop(handover, connection, "no memory to hand it to its worker");
}

static void
park(struct handover *handover, const struct connection *connection)
{
	if (parking_put(handover->parking, connection) != 0)
		drop(handover, connection, "no memory to keep it until its worker is back");
}

/* In turn, those that serve; one that is behind only when all others are no better. NULL: none. */
static struct child *
next_worker(struct handover *handover)
{
	int32_t count = crew_count(handover->crew);
	int32_t found = -1;

	for (int32_t i = 1; i <= count; i++) {
		int32_t number = (handover->last + i) % count;
		const struct child *child = crew_child(handover->crew, number);

		if (!child_serving(child))
			continue;
		if (!child_behind(child)) {
			found = number;
			break;
		}
		if (found < 0)
			found = number;
	}
	if (found < 0)
		return NULL;
	handover->last = found;
	return crew_child(handover->crew, found);
}

/* Nothing has been read from it yet: which group it needs, its next worker will see. */
static bool
fits_anywhere(const struct connection *connection)
{
	return connection->message.inline_bytes == 0 && connection->message.spilled_end == 0;
}

static void
route_anywhere(struct handover *handover, const struct connection *connection)
{
	struct connection anywhere = *connection;
	struct child *child = next_worker(handover);

	anywhere.message.group = CONNECTION_ANY_GROUP;
	if (child == NULL)
		park(handover, &anywhere);
	else
		give(handover, child, &anywhere);
}

void
handover_fresh(struct handover *handover, int descriptor)
{
	struct connection connection = { .socket = descriptor, .memfd = -1 };
	char more[LOG_MORE_BYTES];

	handover->counts.accepted++;
	if (handover_connections(handover) < handover->max_connections) {
		route_anywhere(handover, &connection);
		return;
	}
	handover->counts.refused++;
	close(descriptor);
	if (log_limit_pass(&handover->refused_limit, 60 * (int64_t)CLOCK_NS_PER_S, more))
		log_warning("max_connections = %lld are there: one more is closed%s",
		    (long long)handover->max_connections, more);
}

void
handover_returned(struct handover *handover, const struct connection *connection)
{
	struct child *child;

	if (handover->stopping) {
		drop(handover, connection, "the broker stops");
		return;
	}
	child = crew_child(handover->crew, connection->message.group);
	if (child_serving(child))
		give(handover, child, connection);
	else if (fits_anywhere(connection) && !child_taking_over(child))
		route_anywhere(handover, connection);
	else
		park(handover, connection);
}

struct taker {
	struct handover *handover;
	struct child *child;
};

/* Should its channel break now, it takes them back from the queue when it is buried. */
static void
on_taken(void *context, const struct connection *connection)
{
	const struct taker *taker = context;

	give(taker->handover, taker->child, connection);
}

void
handover_serving(struct handover *handover, int32_t group)
{
	struct taker taker = { handover, crew_child(handover->crew, group) };

	parking_take(handover->parking, group, on_taken, &taker);
}

void
handover_stop(struct handover *handover)
{
	handover->stopping = true;
	parking_close_all(handover->parking);
}
