/*
 * Connections in epoll sets: see watch.h.
 */
#include "client/lib/watch.h"

#include <sys/epoll.h>

void
lb_watch_init(struct lb_watch *watch, int epoll_fd)
{
	*watch = (struct lb_watch){ .epoll_fd = epoll_fd, .fd = -1 };
}

/* The bits of poll(2) and of epoll are the same. */
bool
lb_watch_follow(struct lb_watch *watch, struct lb_connection *connection, void *owner)
{
	struct lb_wants wants = lb_source_wants(lb_connection_source(connection));
	struct epoll_event event = { .events = (uint32_t)wants.events, .data.ptr = owner };
	bool same = wants.fd == watch->fd;

	if (same && wants.events == watch->events)
		return true;
	/* A connection has the descriptor before the one that it wants now for a turn yet. */
	if (!same)
		lb_watch_end(watch);
	if (wants.fd >= 0 && epoll_ctl(watch->epoll_fd, same ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, wants.fd, &event) != 0)
		return false;
	watch->fd = wants.fd;
	watch->events = wants.events;
	return true;
}

void
lb_watch_end(struct lb_watch *watch)
{
	if (watch->fd >= 0)
		epoll_ctl(watch->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
	watch->fd = -1;
}
