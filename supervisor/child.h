/*
 * One worker as the supervisor sees it: its process, its channel, its place in the restart table, the connections that
 * are with it. Believes nothing that comes over the channel without a check, and nothing that stands on the board.
 * Knows nothing of the other workers, of listening sockets or of parking.
 */
#ifndef SUPERVISOR_CHILD_H
#define SUPERVISOR_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "supervisor/connection.h"
#include "supervisor/reserve.h"
#include "supervisor/restart.h"
#include "supervisor/setup.h"

struct event_base;
struct child;

enum {
	CHILD_BATCH = 64,	/* messages from one worker before the loop turns to something else */
	CHILD_SILENT_S = 2,	/* without a heartbeat, of which there is one a second */
	CHILD_SETUP_WINDOW = 8,	/* messages of the set-up that wait at a time, and with them the descriptors they hold */
};

/* What all children share; borrowed. */
struct child_shared {
	struct event_base *base;
	const struct setup *setup;
	const char *program;
	int lock;			/* descriptor */
	struct reserve *reserve;

	void *context;			/* of the functions below */
	/* A connection comes back, checked: it must go to message.group. Its descriptors go over; bytes: for the call. */
	void (*returned)(void *context, const struct connection *connection);
	/* The child's state has changed, or its process. */
	void (*changed)(void *context, struct child *child);
};

/* NULL with errno. */
struct child *child_new(const struct child_shared *shared, int32_t number);
void child_free(struct child *child);

/* Starts the first process. */
void child_begin(struct child *child);
/* Its process is gone, says waitpid. */
void child_reaped(struct child *child, int wait_status);
/* Lets it finish and end. */
void child_stop(struct child *child);

int32_t child_number(const struct child *child);
pid_t child_pid(const struct child *child);	/* 0 when no process runs */
const struct restart *child_restart(const struct child *child);
/* Restarts by reason so far, RESTART_REASON_COUNT of them. */
const int64_t *child_restarts(const struct child *child);
/* It stopped otherwise than it should: killed because it was late, crashed, or exited with another status than 0. */
bool child_unclean(const struct child *child);

/* May it be given connections now? */
bool child_serving(const struct child *child);
/*
 * Better give a connection to another one: messages wait because it does not read, or its loop has not turned for a
 * while, or it is about to end (it clears its heartbeat then, and takes no more). The board is its own word, so this is
 * a preference and no more.
 */
bool child_behind(const struct child *child);

/*
 * Gives it a connection; message.group becomes its own number. Its process must not be buried yet, and should be
 * serving: what cannot be sent comes back by `returned`. Returns 0, and the descriptors are gone; or -1 with errno
 * ENOMEM, and they are still the caller's.
 */
int child_give(struct child *child, const struct connection *connection);

/* Connections that live in it or are on their way to it. */
int64_t child_connections(const struct child *child);

#endif
