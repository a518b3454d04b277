/*
 * Says in the log when a worker that serves, or opens its logs, gives no sign of life any more, and when it is back; one
 * that stays silent is killed, and so restarted: its loop never waits for a disk, so it will not come back by itself. Knows
 * boards; no pages.
 */
#ifndef SUPERVISOR_SILENCE_H
#define SUPERVISOR_SILENCE_H

#include "supervisor/boards.h"
#include "supervisor/crew.h"

struct event_base;
struct silence;

/* Without a heartbeat, of which there is one a second. */
enum {
	SILENCE_SAID_AFTER_S = 5,	/* /healthz says it then too */
	SILENCE_KILLED_AFTER_S = 10,
	SILENCE_GRACE_S = 5,		/* after the supervisor itself was held up: the workers were, perhaps, too */
};

/* Looks once a second from now on. All borrowed. NULL with errno. */
struct silence *silence_new(struct event_base *base, const struct crew *crew, const struct boards *boards);
void silence_free(struct silence *silence);

#endif
