/*
 * A connection's place in the epoll set of the producer or subscription that it belongs to.
 *
 * It leaves the set in so many words, and does not rely on its descriptor being closed: when the program has forked, the other
 * process has the same socket yet, and a set reports what is in it for as long as anybody has.
 */
#ifndef CLIENT_LIB_WATCH_H
#define CLIENT_LIB_WATCH_H

#include <stdbool.h>

#include "client/lib/logbroker.h"

struct lb_watch {
	int epoll_fd;
	int fd;			/* in the set; -1: none */
	short events;
};

void lb_watch_init(struct lb_watch *watch, int epoll_fd);
/* As the connection wants it now, with `owner` as data. false, with errno: the kernel has no memory, or no room, for that. */
bool lb_watch_follow(struct lb_watch *watch, struct lb_connection *connection, void *owner);
/* Ahead of the connection's free. */
void lb_watch_end(struct lb_watch *watch);

#endif
