/*
 * A source in libevent's loop: two events for its descriptor, made anew when that changes, and a timer for its time.
 * Steady work adds and removes them and allocates nothing.
 */
#include "client/lib/logbroker-event.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>

enum { EVENT_RETRY_MS = 100 };

struct attachment {
	struct lb_source *source;
	struct event_base *base;
	struct event *timer;
	struct event *reading, *writing;	/* NULL without a descriptor */
	int fd;					/* what they were made for; -1: none */
};

static void
on_due(evutil_socket_t fd, short events, void *context)
{
	struct attachment *attachment = context;

	(void)fd;
	(void)events;
	lb_source_process(attachment->source);
}

static void
forget_descriptor(struct attachment *attachment)
{
	if (attachment->reading != NULL)
		event_free(attachment->reading);
	if (attachment->writing != NULL)
		event_free(attachment->writing);
	attachment->reading = attachment->writing = NULL;
	attachment->fd = -1;
}

static bool
take_descriptor(struct attachment *attachment, int fd)
{
	forget_descriptor(attachment);
	if (fd < 0)
		return true;
	attachment->reading = event_new(attachment->base, fd, EV_READ | EV_PERSIST, on_due, attachment);
	attachment->writing = event_new(attachment->base, fd, EV_WRITE | EV_PERSIST, on_due, attachment);
	attachment->fd = fd;
	return attachment->reading != NULL && attachment->writing != NULL;
}

/* Adding what is there already, and removing what is not, costs next to nothing. */
static bool
follow_event(struct event *event, bool wanted)
{
	return (wanted ? event_add(event, NULL) : event_del(event)) == 0;
}

static bool
follow_descriptor(struct attachment *attachment, const struct lb_wants *wants)
{
	if (wants->fd != attachment->fd && !take_descriptor(attachment, wants->fd))
		return false;
	if (wants->fd < 0)
		return true;
	return follow_event(attachment->reading, (wants->events & POLLIN) != 0) &&
	    follow_event(attachment->writing, (wants->events & POLLOUT) != 0);
}

/* False: out of memory. What could not be added is tried again by the timer. */
static bool
follow_wants(struct attachment *attachment)
{
	struct lb_wants wants = lb_source_wants(attachment->source);
	bool good = follow_descriptor(attachment, &wants);
	int timeout_ms = wants.timeout_ms;
	struct timeval timeout;

	if (!good) {
		forget_descriptor(attachment);
		timeout_ms = EVENT_RETRY_MS;
	}
	timeout = (struct timeval){ .tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 };
	if (timeout_ms < 0)
		event_del(attachment->timer);
	else if (event_add(attachment->timer, &timeout) != 0)
		return false;
	return good;
}

static void
end(struct attachment *attachment)
{
	forget_descriptor(attachment);
	if (attachment->timer != NULL)
		event_free(attachment->timer);
	free(attachment);
}

static void
on_changed(void *context, bool gone)
{
	if (gone)
		end(context);
	else
		follow_wants(context);
}

int
lb_event_attach(struct lb_source *source, struct event_base *base)
{
	struct attachment *attachment = calloc(1, sizeof(*attachment));

	if (attachment == NULL)
		return -1;
	*attachment = (struct attachment){ .source = source, .base = base, .fd = -1 };
	attachment->timer = evtimer_new(base, on_due, attachment);
	if (attachment->timer == NULL || !follow_wants(attachment)) {
		end(attachment);
		errno = ENOMEM;
		return -1;
	}
	lb_source_watch(source, on_changed, attachment);
	return 0;
}

void
lb_event_detach(struct lb_source *source)
{
	lb_source_watch(source, NULL, NULL);
}
