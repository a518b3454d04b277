/*
 * The planned replacement of a worker that serves: pure policy, a table of states and events with every cell decided
 * (replace.c), beside the table of the process that has the logs (restart.h). Knows no processes, sockets or clocks: the
 * caller says what happened and what time it is, does what comes back, and reports TIMER when timer_ns has come.
 *
 * The order is: the replacement is started and prepared while the current process serves; when no earlier one finishes any
 * more, the current one is told DRAIN; when the logs have nobody (RELEASED, or its death), the replacement becomes the
 * current process, and what happens to it is restart.h's; when that serves, the replacement is done.
 */
#ifndef SUPERVISOR_REPLACE_H
#define SUPERVISOR_REPLACE_H

#include <stdint.h>

enum replace_state {
	REPLACE_NONE,
	REPLACE_STARTING,	/* the replacement's process runs and has not said HELLO */
	REPLACE_PREPARING,	/* it is being sent its settings, and has not said PREPARED */
	REPLACE_READY,		/* it waits until an earlier process of the group has finished */
	REPLACE_DRAINING,	/* the current one was told DRAIN */
	REPLACE_SUCCEEDING,	/* the group's next process has the logs, or is about to; it does not serve yet */
	REPLACE_KILLED,		/* given up, the replacement's death is not reported yet */
	REPLACE_STATE_COUNT
};

enum replace_event {
	REPLACE_BEGIN,
	REPLACE_HELLO,		/* from the replacement, and so the next one */
	REPLACE_PREPARED,
	REPLACE_FREE,		/* the current one serves, and no earlier one runs any more */
	REPLACE_VACANT,		/* the logs have nobody: the current one has released them, or is dead and may be followed now */
	REPLACE_SERVED,		/* the current one serves */
	REPLACE_FAILING,	/* the current one has died several times in a row */
	REPLACE_BROKE,		/* the replacement broke a rule between processes */
	REPLACE_TIMER,
	REPLACE_DIED,		/* the replacement is reaped, and everything taken out of its channel */
	REPLACE_STOP,		/* the broker stops */
	REPLACE_EVENT_COUNT
};

enum replace_action {
	REPLACE_NOTHING,
	REPLACE_START,		/* start the replacement's process */
	REPLACE_ANSWER,		/* send it the settings */
	REPLACE_READY_NOW,	/* see whether FREE holds */
	REPLACE_TELL_DRAIN,	/* to the current one */
	REPLACE_PROMOTE,	/* the replacement is the current one from now on, when it lives; else start one */
	REPLACE_KILL,		/* SIGKILL to the replacement */
	REPLACE_KILL_OLD,	/* SIGKILL to the current one: it had its time to release the logs */
	REPLACE_DONE,		/* tell who asked for it: it serves */
	REPLACE_FAIL,		/* tell who asked for it that it was not to be */
};

struct replace {
	enum replace_state state;
	int64_t timer_ns;	/* when TIMER is due; 0 = never */
	int64_t drain_limit_ns;
};

/* `drain_limit_ns`: what DRAIN gives a process before it is killed. */
void replace_init(struct replace *replace, int64_t drain_limit_ns);

/* One event. Changes state and timer, returns what the caller must do now. */
enum replace_action replace_step(struct replace *replace, enum replace_event event, int64_t now_ns);

/* "preparing", "draining", ...: for people. */
const char *replace_state_name(enum replace_state state);

/* Why a replacement, or an order with several, did not even begin, by errno: for people. */
const char *replace_refusal(int error);

#endif
