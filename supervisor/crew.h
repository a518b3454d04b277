/*
 * All workers together: starts them, hears of their deaths, knows when the broker is ready and when it has stopped.
 * Knows nothing of connections.
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

void crew_stop(struct crew *crew);

int32_t crew_count(const struct crew *crew);
struct child *crew_child(const struct crew *crew, int32_t number);
bool crew_ready(const struct crew *crew);
bool crew_stopping(const struct crew *crew);
/* A worker did not stop as it should. */
bool crew_unclean(const struct crew *crew);

#endif
