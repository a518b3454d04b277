/*
 * All workers together: starts them, hears of their deaths, replaces them one after the other, knows when the broker is
 * ready and when it has stopped. Knows nothing of connections.
 */
#ifndef SUPERVISOR_CREW_H
#define SUPERVISOR_CREW_H

#include <stdbool.h>
#include <stdint.h>

#include "supervisor/child.h"

struct crew;

struct crew_hooks {
	void *context;
	void (*returned)(void *context, const struct connection *connection);	/* see child.h */
	void (*serving)(void *context, int32_t group);	/* that worker may be given connections from now on */
	void (*ready)(void *context);	/* once: every worker serves, or has died three times in a row */
	void (*stopped)(void *context);	/* once, after crew_stop: no worker runs any more */
};

/* `setup`, `program` and `reserve` are borrowed, and the descriptor of the lock. NULL with errno. */
struct crew *crew_new(struct event_base *base, const struct setup *setup, const char *program, struct reserve *reserve,
    int lock, const struct crew_hooks *hooks);
void crew_free(struct crew *crew);

void crew_begin(struct crew *crew);

/* Upon SIGCHLD: asks until no death is left to report, since signals coalesce. */
void crew_reap(struct crew *crew);

/* Replacements that are under way or wait are given up, and told so. */
void crew_stop(struct crew *crew);
/* What that takes at most. */
int64_t crew_stop_limit_ns(const struct crew *crew);

/*
 * A planned replacement has come to its end. `why` NULL: the new process serves, `pause_ns` after the old one had released
 * its logs, or -1 when one of the two has died meanwhile. Otherwise why not; whether the old one goes on, child_serving tells.
 */
typedef void crew_replaced(void *context, int32_t worker, const char *why, int64_t pause_ns);

/*
 * Replaces the process of a worker that serves, without its clients' noticing; when another worker's replacement is under
 * way, behind that. Returns 0: `replaced` is called once, later; or -1 with errno: EBUSY (one is under way or waits for this
 * worker), ESHUTDOWN (the broker stops), EINVAL (there is no such worker), ENOTCONN (it does not serve now, and is started
 * again by itself), or why no process could be started (EAGAIN, ENOMEM, EMFILE).
 */
int crew_replace(struct crew *crew, int32_t worker, crew_replaced *replaced, void *context);

int32_t crew_count(const struct crew *crew);
struct child *crew_child(const struct crew *crew, int32_t number);
bool crew_ready(const struct crew *crew);
bool crew_stopping(const struct crew *crew);
/* A worker did not stop as it should. */
bool crew_unclean(const struct crew *crew);

#endif
