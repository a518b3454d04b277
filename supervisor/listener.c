/* The accepting side; see listener.h. */
#include "supervisor/listener.h"

#include <errno.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/log.h"

struct listener {
	struct reserve *reserve;
	void (*accepted)(void *context, int descriptor);
	void *context;
	struct event *resume;
	int64_t pauses;
	struct log_limit limit;
	int count;
	struct event *events[];
};

static void
pause_all(struct listener *listener, int error)
{
	static const struct timeval pause = { 0, LISTENER_PAUSE_MS * 1000 };
	char more[LOG_MORE_BYTES];

	for (int i = 0; i < listener->count; i++)
		event_del(listener->events[i]);
	evtimer_add(listener->resume, &pause);
	listener->pauses++;
	if (log_limit_pass(&listener->limit, 60 * (int64_t)CLOCK_NS_PER_S, more))
		log_warning("cannot accept connections: %s; paused for %d ms. Connected clients are served; raise LimitNOFILE or "
		    "lower max_connections%s", strerror(error), LISTENER_PAUSE_MS, more);
}

static void
on_resume(evutil_socket_t fd, short what, void *context)
{
	struct listener *listener = context;

	(void)fd;
	(void)what;
	for (int i = 0; i < listener->count; i++)
		event_add(listener->events[i], NULL);
}

/* Is that the failure of one connection, which the next may not share? */
static bool
concerns_one(int error)
{
	switch (error) {
	case EINTR:
	case ECONNABORTED:
	case EPROTO:
	case EPERM:		/* a firewall's rule */
	case ENETDOWN:
	case ENOPROTOOPT:
	case EHOSTDOWN:
	case ENONET:
	case EHOSTUNREACH:
	case EOPNOTSUPP:
	case ENETUNREACH:
		return true;
	default:
		return false;
	}
}

static void
on_readable(evutil_socket_t fd, short what, void *context)
{
	struct listener *listener = context;

	(void)what;
	for (int i = 0; i < LISTENER_BATCH; i++) {
		int connection;

		if (!reserve_fill(listener->reserve)) {
			pause_all(listener, EMFILE);
			return;
		}
		connection = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (connection >= 0) {
			listener->accepted(listener->context, connection);
			continue;
		}
		if (errno == EAGAIN)
			return;
		if (!concerns_one(errno)) {
			pause_all(listener, errno);
			return;
		}
	}
}

struct listener *
listener_new(struct event_base *base, const struct endpoints *endpoints, struct reserve *reserve,
    void (*accepted)(void *context, int descriptor), void *context)
{
	struct listener *listener = calloc(1, sizeof(*listener) + (size_t)endpoints->count * sizeof(struct event *));

	if (listener == NULL)
		return NULL;
	listener->reserve = reserve;
	listener->accepted = accepted;
	listener->context = context;
	listener->resume = evtimer_new(base, on_resume, listener);
	if (listener->resume == NULL)
		goto fail;
	for (; listener->count < endpoints->count; listener->count++) {
		int fd = endpoints->list[listener->count].descriptor;

		listener->events[listener->count] = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, listener);
		if (listener->events[listener->count] == NULL)
			goto fail;
	}
	return listener;
fail:
	listener_free(listener);
	errno = ENOMEM;
	return NULL;
}

int
listener_start(struct listener *listener)
{
	for (int i = 0; i < listener->count; i++)
		if (event_add(listener->events[i], NULL) != 0)
			return -1;
	return 0;
}

void
listener_stop(struct listener *listener)
{
	evtimer_del(listener->resume);
	for (int i = 0; i < listener->count; i++)
		event_del(listener->events[i]);
}

void
listener_free(struct listener *listener)
{
	if (listener == NULL)
		return;
	for (int i = 0; i < listener->count; i++)
		event_free(listener->events[i]);
	if (listener->resume != NULL)
		event_free(listener->resume);
	free(listener);
}

int64_t
listener_pauses(const struct listener *listener)
{
	return listener->pauses;
}
