/*
 * Waiting connections in the order of their deadlines, and an epoll set of their own: with an empty event mask it
 * reports errors and full hang-ups only, and a half-close or more data wake nobody. (libevent 2.1 cannot ask for that:
 * it reports EPOLLERR as readable and writable, which an EV_CLOSED event does not match, and turns in circles.)
 */
#include "supervisor/parking.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/clock.h"

enum { EPOLL_BATCH = 64 };

struct entry {
	struct entry *previous, *next;
	int64_t parked_ns;
	struct connection connection;
	char inline_bytes[];		/* what the connection's pointer points to */
};

struct parking {
	struct entry *first, *last;	/* the timeout is one for all, so they stand in the order of deadlines */
	int64_t timeout_ns;
	struct parking_counts counts;
	int epoll;
	struct event *peers;		/* the epoll set is readable: a peer is gone */
	struct event *expiry;		/* the first one's deadline */
};

static void
append(struct parking *parking, struct entry *entry)
{
	entry->next = NULL;
	entry->previous = parking->last;
	if (parking->last == NULL)
		parking->first = entry;
	else
		parking->last->next = entry;
	parking->last = entry;
	parking->counts.waiting++;
}

/* Out of the list and out of the epoll set (close alone would not do that: the description lives on elsewhere). */
static void
take_out(struct parking *parking, struct entry *entry)
{
	if (entry->previous == NULL)
		parking->first = entry->next;
	else
		entry->previous->next = entry->next;
	if (entry->next == NULL)
		parking->last = entry->previous;
	else
		entry->next->previous = entry->previous;
	parking->counts.waiting--;
	epoll_ctl(parking->epoll, EPOLL_CTL_DEL, entry->connection.socket, NULL);
}

static void
drop(struct parking *parking, struct entry *entry)
{
	take_out(parking, entry);
	connection_close(&entry->connection);
	free(entry);
}

static void
schedule(struct parking *parking)
{
	struct timeval wait;

	if (parking->first == NULL)
		return;
	wait = clock_until(parking->first->parked_ns + parking->timeout_ns);
	evtimer_add(parking->expiry, &wait);
}

/* The loop counts from the start of its turn and may be early: the clock decides. */
static void
on_expiry(evutil_socket_t fd, short what, void *context)
{
	struct parking *parking = context;
	int64_t now_ns = clock_now_ns();

	(void)fd;
	(void)what;
	while (parking->first != NULL && parking->first->parked_ns + parking->timeout_ns <= now_ns) {
		drop(parking, parking->first);
		parking->counts.timed_out++;
	}
	schedule(parking);
}

static void
on_peers(evutil_socket_t fd, short what, void *context)
{
	struct parking *parking = context;
	struct epoll_event events[EPOLL_BATCH];
	int n;

	(void)what;
	n = epoll_wait(fd, events, EPOLL_BATCH, 0);
	for (int i = 0; i < n; i++) {
		drop(parking, events[i].data.ptr);
		parking->counts.hung_up++;
	}
}

struct parking *
parking_new(struct event_base *base, int64_t timeout_ns)
{
	struct parking *parking = calloc(1, sizeof(*parking));

	if (parking == NULL)
		return NULL;
	parking->timeout_ns = timeout_ns;
	parking->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (parking->epoll < 0)
		goto fail;
	parking->peers = event_new(base, parking->epoll, EV_READ | EV_PERSIST, on_peers, parking);
	parking->expiry = evtimer_new(base, on_expiry, parking);
	if (parking->peers != NULL && parking->expiry != NULL && event_add(parking->peers, NULL) == 0)
		return parking;
fail:
	parking_free(parking);
	errno = ENOMEM;
	return NULL;
}

void
parking_set_timeout(struct parking *parking, int64_t timeout_ns)
{
	parking->timeout_ns = timeout_ns;
	schedule(parking);
}

void
parking_free(struct parking *parking)
{
	if (parking == NULL)
		return;
	parking_close_all(parking);
	if (parking->peers != NULL)
		event_free(parking->peers);
	if (parking->expiry != NULL)
		event_free(parking->expiry);
	if (parking->epoll >= 0)
		close(parking->epoll);
	free(parking);
}

int
parking_put(struct parking *parking, const struct connection *connection)
{
	size_t inline_bytes = (size_t)connection->message.inline_bytes;
	struct entry *entry = malloc(sizeof(*entry) + inline_bytes);
	struct epoll_event watch = { .events = 0, .data.ptr = entry };

	if (entry == NULL)
		return -1;
	entry->parked_ns = clock_now_ns();
	entry->connection = *connection;
	entry->connection.inline_bytes = entry->inline_bytes;
	if (inline_bytes > 0)
		memcpy(entry->inline_bytes, connection->inline_bytes, inline_bytes);
	append(parking, entry);
	/* Unwatched (no memory in the kernel, too many watches) it waits all the same. */
	epoll_ctl(parking->epoll, EPOLL_CTL_ADD, connection->socket, &watch);
	if (parking->first == entry)
		schedule(parking);
	return 0;
}

void
parking_take(struct parking *parking, int32_t group,
    void (*taken)(void *context, const struct connection *connection), void *context)
{
	struct entry *entry = parking->first;

	while (entry != NULL) {
		struct entry *next = entry->next;
		int32_t wanted = entry->connection.message.group;

		if (wanted == group || wanted == CONNECTION_ANY_GROUP) {
			take_out(parking, entry);
			taken(context, &entry->connection);
			free(entry);
		}
		entry = next;
	}
}

void
parking_close_all(struct parking *parking)
{
	while (parking->first != NULL)
		drop(parking, parking->first);
}

const struct parking_counts *
parking_counts(const struct parking *parking)
{
	return &parking->counts;
}
