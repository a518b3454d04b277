/*
 * One worker as the supervisor sees it: its group's process, the replacement that is being prepared for it, the one before
 * it that finishes; its place in the tables of restarts and replacements; the connections that are with it. Believes
 * nothing that stands on the board. Knows nothing of the other workers, of listening sockets or of parking.
 */
#ifndef SUPERVISOR_CHILD_H
#define SUPERVISOR_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "supervisor/connection.h"
#include "supervisor/incarnation.h"
#include "supervisor/replace.h"
#include "supervisor/restart.h"

struct child;

enum { CHILD_SILENT_S = 2 };	/* without a heartbeat, of which there is one a second */

/* What all children share; borrowed. */
struct child_shared {
	struct incarnation_site site;

	void *context;			/* of the functions below */
	/* A connection comes back, checked: it must go to message.group. Its descriptors go over; bytes: for the call. */
	void (*returned)(void *context, const struct connection *connection);
	/* The child's state has changed, or one of its processes. */
	void (*changed)(void *context, struct child *child);
	/* A replacement has come to its end. why NULL: the new process serves, `pause_ns` after the logs had nobody;
	 * -1: one of the processes died meanwhile, and clients' connections with it. */
	void (*replaced)(void *context, struct child *child, const char *why, int64_t pause_ns);
};

/* The last time that another process took the group's logs over. */
struct child_restart_told {
	int64_t number;		/* so many restarts so far; 0: none, and nothing else counts */
	enum restart_reason reason;
	int64_t wall_ms;	/* since 1970 */
	int64_t pause_ns;	/* until the next one served; -1: it does not yet */
};

/* NULL with errno. */
struct child *child_new(const struct child_shared *shared, int32_t number);
void child_free(struct child *child);

/* Starts the first process. */
void child_begin(struct child *child);
/* That process is gone, says waitpid. Returns false when it is not one of this child's. */
bool child_reaped(struct child *child, pid_t pid, int wait_status);
/* Lets it finish and end. */
void child_stop(struct child *child);
/* What that takes at most: each process has the time that it was told, whatever the settings say by now. */
int64_t child_stop_limit_ns(const struct child *child);
/* It gives no sign of life: it is killed, and restarted, when its loop should turn. */
void child_hung(struct child *child);

/*
 * Begins to replace its process, which must serve. Returns 0: `replaced` follows, later; or -1 with errno: EBUSY (one is
 * under way), ENOTCONN (it does not serve now, and is started again by itself), or why no process could be started.
 */
int child_replace(struct child *child);
/* Its process has asked to be replaced; the wish is forgotten. */
bool child_take_wish(struct child *child);
bool child_wishes(const struct child *child);

int32_t child_number(const struct child *child);
pid_t child_pid(const struct child *child);	/* of the process that has the logs; 0 when none runs */
const struct restart *child_restart(const struct child *child);
const struct replace *child_replacement(const struct child *child);
/* Restarts by reason so far, RESTART_REASON_COUNT of them. */
const int64_t *child_restarts(const struct child *child);
const struct child_restart_told *child_last_restart(const struct child *child);
/* It stopped otherwise than it should: killed because it was late, crashed, or exited with another status than 0. */
bool child_unclean(const struct child *child);
/* Its process was told settings that are not in force any more, and goes on with them. False when none runs. */
bool child_outdated(const struct child *child);
/* It was told to stop, and no process of it is left. */
bool child_stopped(const struct child *child);

/* May it be given connections now? */
bool child_serving(const struct child *child);
/* Should its loop turn, and its heartbeat be fresh? It serves, or opens its logs, which is done beside the loop. */
bool child_has_loop(const struct child *child);
/* It does not serve for a moment only: the process that has been prepared for it is taking over. */
bool child_taking_over(const struct child *child);
/* Since when it takes over logs that have been released to it, on CLOCK_MONOTONIC; 0 when it does not. */
int64_t child_takeover_ns(const struct child *child);
/*
 * Better give a connection to another one: messages wait because it does not read, or its loop has not turned for a
 * while, or it is about to end or to be replaced. The board is its own word, so this is a preference and no more.
 */
bool child_behind(const struct child *child);

/*
 * Gives it a connection; message.group becomes its own number. It should be serving: what cannot be sent comes back by
 * `returned`. Returns 0, and the descriptors are gone; or -1 with errno ENOMEM, and they are still the caller's.
 */
int child_give(struct child *child, const struct connection *connection);

/* Connections that live in its processes or are on their way to them. */
int64_t child_connections(const struct child *child);
/* Those that have ended with one of its processes so far: cut by its death, or closed by it when the board was another's. */
int64_t child_connections_ended(const struct child *child);

#endif
