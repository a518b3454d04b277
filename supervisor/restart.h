/*
 * When a worker is started, answered, killed and started again: pure policy, a table of states and events with every
 * cell decided (restart.c). Knows no processes, sockets or clocks: the caller says what happened and what time it is,
 * does what comes back, and reports TIMER when timer_ns has come.
 */
#ifndef SUPERVISOR_RESTART_H
#define SUPERVISOR_RESTART_H

#include <stdbool.h>
#include <stdint.h>

enum {
	RESTART_HELLO_MS = 10000,	/* a new process must have said HELLO and PREPARED by then */
	RESTART_GRACE_MS = 5000,	/* what a stop gives workers on top of drain_timeout */
	RESTART_BURST_MAX = 20,		/* one that had served is restarted at once, at most so often ... */
	RESTART_BURST_MS = 10000,	/* ... in this time; then like one that died before serving */
	RESTART_FIRST_WAIT_MS = 100,	/* before the next try, doubling ... */
	RESTART_LAST_WAIT_MS = 10000,	/* ... up to this */
	RESTART_FAILING_AFTER = 3,	/* so many deaths in a row are called failing */
};

enum restart_state {
	RESTART_IDLE,		/* never started */
	RESTART_STARTING,	/* the process runs and has not said HELLO */
	RESTART_PREPARING,	/* it is being sent its settings, and has not said PREPARED */
	RESTART_OPENING,	/* it was told START and opens (recovers) its logs, as long as that takes and its
				 * loop turns */
	RESTART_SERVING,
	RESTART_KILLED,		/* SIGKILL is sent, its death is not reported yet */
	RESTART_WAITING,	/* no process; the next try comes with the timer */
	RESTART_STOPPING,	/* the broker stops, its death is not reported yet */
	RESTART_STOPPED,	/* no process, and none will come */
	RESTART_STATE_COUNT
};

enum restart_event {
	RESTART_BEGIN,		/* the broker starts */
	RESTART_HELLO,		/* a valid one came */
	RESTART_PREPARED,	/* a valid one came */
	RESTART_SERVED,		/* a valid SERVING came */
	RESTART_RELEASED,	/* a valid one came: its logs are the next process's */
	RESTART_HUNG,		/* no sign of life for too long */
	RESTART_BROKE,		/* it broke a rule between processes: malformed message, wrong version */
	RESTART_TIMER,
	RESTART_DIED,		/* reaped, and everything taken out of its channel; or it could not even be started */
	RESTART_STOP,		/* the broker stops */
	RESTART_EVENT_COUNT
};

enum restart_action {
	RESTART_NOTHING,
	RESTART_START,		/* start a process */
	RESTART_ANSWER,		/* send the settings */
	RESTART_TELL_START,	/* send START */
	RESTART_OPEN,		/* give it connections */
	RESTART_SUCCEED,	/* this process finishes on its own; start the next one, which may be prepared already */
	RESTART_KILL,		/* SIGKILL */
	RESTART_TELL_STOP,	/* send STOP */
	RESTART_KILL_LATE,	/* SIGKILL: it had its time to stop; the stop is not a clean one */
	RESTART_WAIT,		/* the timer is set for the next try */
	RESTART_END,		/* it will not come back */
};

struct restart {
	enum restart_state state;
	bool served;			/* this process has served, or the one it succeeded, or the last one when none runs */
	int failures;			/* deaths in a row that were not answered by a restart at once */
	int64_t timer_ns;		/* when TIMER is due; 0 = never */
	int64_t wait_ns;		/* with RESTART_WAIT: how long */
	int64_t stop_limit_ns;
	int64_t burst_ns[RESTART_BURST_MAX];	/* the last restarts at once, a ring */
	int burst_next;
};

/* `stop_limit_ns`: what a stop gives a worker before it is killed. */
void restart_init(struct restart *restart, int64_t stop_limit_ns);

/* One event. Changes state and timer, returns what the caller must do now. */
enum restart_action restart_step(struct restart *restart, enum restart_event event, int64_t now_ns);

/* Died RESTART_FAILING_AFTER times in a row and does not serve now. */
bool restart_failing(const struct restart *restart);

/* "starting", "serving", ...: for people. */
const char *restart_state_name(enum restart_state state);

/* Why a worker had to be restarted; a label of a metric. */
enum restart_reason {
	RESTART_BY_KILL,	/* ended by a signal from outside (SIGKILL, the kernel's memory killer) */
	RESTART_BY_CRASH,	/* ended by a signal of its own making (SIGSEGV, SIGABRT, ...) */
	RESTART_BY_EXIT,	/* exited by itself, with whatever status */
	RESTART_BY_HANDSHAKE,	/* said HELLO, PREPARED or RELEASED too late, or of another version */
	RESTART_BY_PROTOCOL,	/* sent a malformed message */
	RESTART_BY_SPAWN,	/* could not be started: no process, no descriptors, no memory */
	RESTART_BY_REQUEST,	/* planned: its replacement has taken over */
	RESTART_BY_HANG,	/* gave no sign of life, and was killed for that */
	RESTART_REASON_COUNT
};

/* From what waitpid reported. */
enum restart_reason restart_reason_of(int wait_status);
const char *restart_reason_name(enum restart_reason reason);

#endif
