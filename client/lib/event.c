/*
 * A source in libevent's loop: an event for its descriptor, which is made anew when descriptor or wishes change, and a timer for its time.
 */
#include "client/lib/logbroker-event.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>

struct attachment {
	struct lb_source *source;
	struct event_base *base;
	struct event *readiness;	/* NULL while there is no descriptor */
	struct event *timer;
	struct lb_wants wants;		/* what readiness was made for */
};

static void on_due(evutil_socket_t fd, short events, void *context);

static void
drop_readiness(struct attachment *attachment)
{
	if (attachment->readiness != NULL)
		event_free(attachment->readiness);
	attachment->readiness = NULL;
}

static int
make_readiness(struct attachment *attachment, struct lb_wants wants)
{
	short events = EV_PERSIST;

	drop_readiness(attachment);
	attachment->wants = wants;
	if (wants.fd < 0 || wants.events == 0)
		return 0;
	if (wants.events & POLLIN)
		events |= EV_READ;
	if (wants.events & POLLOUT)
		events |= EV_WRITE;
	attachment->readiness = event_new(attachment->base, wants.fd, events, on_due, attachment);
	if (attachment->readiness == NULL || event_add(attachment->readiness, NULL) != 0)
		return -1;
	return 0;
}

/* 0 or -1. A descriptor that could not be added is tried again by the timer. */
static int
follow_wants(struct attachment *attachment)
{
	struct lb_wants wants = lb_source_wants(attachment->source);
	struct timeval soon = { .tv_usec = 100000 };
	struct timeval timeout = { .tv_sec = wants.timeout_ms / 1000, .tv_usec = wants.timeout_ms % 1000 * 1000 };

	if ((wants.fd != attachment->wants.fd || wants.events != attachment->wants.events) &&
	    make_readiness(attachment, wants) != 0) {
		drop_readiness(attachment);
		attachment->wants = (struct lb_wants){ .fd = -1 };
		event_add(attachment->timer, &soon);
		return -1;
	}
	if (wants.timeout_ms < 0)
		return event_del(attachment->timer);
	return event_add(attachment->timer, &timeout);
}

static void
on_due(evutil_socket_t fd, short events, void *context)
{
	struct attachment *attachment = context;

	(void)fd;
	(void)events;
	lb_source_process(attachment->source);
}

static void
end(struct attachment *attachment)
{
	drop_readiness(attachment);
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
	*attachment = (struct attachment){ .source = source, .base = base, .wants = { .fd = -1 } };
	attachment->timer = evtimer_new(base, on_due, attachment);
	if (attachment->timer == NULL || follow_wants(attachment) != 0) {
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
