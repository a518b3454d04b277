/*
 * Connections that come and go: see link.h.
 */
#include "client/lib/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/error.h"
#include "client/lib/groups.h"
#include "client/lib/wait.h"
#include "common/clock.h"

enum {
	MEMORY_RETRY_MS = 10,	/* what could be sent and was not had no memory for its operation */
	GROUPS_MAX = 1024,	/* as many as a broker can have; if one tells of more, they share connections, which is no error */
};

struct lb_link *
lb_link_of_group(struct lb_producer *producer, int32_t group)
{
	struct lb_link *link;

	group = group < GROUPS_MAX ? group : group % GROUPS_MAX;
	for (link = producer->links; link != NULL; link = link->next) {
		if (link->group == group)
			return link;
	}
	link = calloc(1, sizeof(*link));
	if (link == NULL)
		return NULL;
	link->producer = producer;
	link->group = group;
	lb_watch_init(&link->watch, producer->epoll_fd);
	TAILQ_INIT(&link->ready);
	lb_backoff_init(&link->backoff, (uint64_t)clock_now_ns() ^ (uint64_t)(uintptr_t)link);
	link->next = producer->links;
	producer->links = link;
	return link;
}

void
lb_link_drop(struct lb_link *link)
{
	struct lb_connection *connection = link->connection;

	link->connection = NULL;
	link->opened = false;
	link->silent = false;
	lb_watch_end(&link->watch);
	lb_connection_free(connection);
}

static void
lose(struct lb_link *link, int64_t now_ns)
{
	link->was_lost = true;
	lb_backoff_failed(&link->backoff, now_ns);
	lb_link_drop(link);
}

void
lb_link_process(struct lb_link *link, int64_t now_ns)
{
	const struct lb_error *failure;

	if (link->connection == NULL)
		return;
	lb_source_process(lb_connection_source(link->connection));
	failure = lb_connection_failure(link->connection);
	if (failure == NULL && lb_watch_follow(&link->watch, link->connection, link))
		return;
	if (failure != NULL)
		link->failure = *failure;
	else
		lb_error_set(&link->failure, LB_NO_MEMORY, NULL, -1, -1, "%s: epoll_ctl: %s", link->producer->address,
		    strerror(errno));
	lose(link, now_ns);
}

static void
begin_to_connect(struct lb_link *link, int64_t now_ns)
{
	if (lb_connection_open(&link->connection, link->producer->address, NULL, &link->failure) == LB_OK) {
		/* It may have failed already, with nothing to wait for. */
		lb_link_process(link, now_ns);
		return;
	}
	link->connection = NULL;
	lb_backoff_failed(&link->backoff, now_ns);
}

bool
lb_link_usable(struct lb_link *link, int64_t now_ns)
{
	if (link->connection == NULL && now_ns >= link->backoff.due_ns)
		begin_to_connect(link, now_ns);
	if (link->connection == NULL || link->silent || !lb_connection_is_open(link->connection))
		return false;
	if (!link->opened && link->was_lost)
		lb_groups_ask(link->producer, link->connection);
	link->opened = true;
	return true;
}

void
lb_link_give_up(struct lb_link *link, int64_t now_ns)
{
	lb_error_set(&link->failure, LB_TIMED_OUT, NULL, -1, -1, "%s: no answer", link->producer->address);
	lose(link, now_ns);
}

int
lb_link_timeout_ms(const struct lb_link *link, int64_t now_ns)
{
	bool waiting = !TAILQ_EMPTY(&link->ready);

	if (link->connection == NULL)
		return waiting ? lb_wait_ms(link->backoff.due_ns, now_ns) : -1;
	if (waiting && link->opened && !link->silent && link->in_flight < link->producer->options.in_flight)
		return MEMORY_RETRY_MS;
	return lb_source_wants(lb_connection_source(link->connection)).timeout_ms;
}
