/* The table of a planned replacement; see replace.h. Pure: no I/O, no clock. */
#include "supervisor/replace.h"

#include <errno.h>
#include <string.h>

#include "common/clock.h"
#include "supervisor/restart.h"

struct cell {
	enum replace_action action;
	enum replace_state next;
};

#define STAY(state)	{ REPLACE_NOTHING, REPLACE_##state }
#define TO(act, state)	{ act, REPLACE_##state }

/*
 * Columns in the order of enum replace_event.
 *
 * Up to READY nothing has changed for the current process: whatever goes wrong is told, and it goes on. From DRAINING on
 * there is no way back. A replacement that dies then is not replaced before the logs are released, which cannot be far:
 * the next process is the other table's.
 */
static const struct cell table[REPLACE_STATE_COUNT][REPLACE_EVENT_COUNT] = {
	[REPLACE_NONE] = {
		[REPLACE_BEGIN] = TO(REPLACE_START, STARTING),
		[REPLACE_HELLO] = STAY(NONE),
		[REPLACE_PREPARED] = STAY(NONE),
		[REPLACE_FREE] = STAY(NONE),
		[REPLACE_VACANT] = STAY(NONE),
		[REPLACE_SERVED] = STAY(NONE),
		[REPLACE_FAILING] = STAY(NONE),
		[REPLACE_BROKE] = STAY(NONE),
		[REPLACE_TIMER] = STAY(NONE),
		[REPLACE_DIED] = STAY(NONE),
		[REPLACE_STOP] = STAY(NONE),
	},
	[REPLACE_STARTING] = {
		[REPLACE_BEGIN] = STAY(STARTING),
		[REPLACE_HELLO] = TO(REPLACE_ANSWER, PREPARING),
		[REPLACE_PREPARED] = TO(REPLACE_KILL, KILLED),
		[REPLACE_FREE] = STAY(STARTING),
		[REPLACE_VACANT] = TO(REPLACE_PROMOTE, SUCCEEDING),
		[REPLACE_SERVED] = STAY(STARTING),
		[REPLACE_FAILING] = STAY(STARTING),
		[REPLACE_BROKE] = TO(REPLACE_KILL, KILLED),
		[REPLACE_TIMER] = TO(REPLACE_KILL, KILLED),
		[REPLACE_DIED] = TO(REPLACE_FAIL, NONE),
		[REPLACE_STOP] = TO(REPLACE_KILL, KILLED),
	},
	[REPLACE_PREPARING] = {
		[REPLACE_BEGIN] = STAY(PREPARING),
		[REPLACE_HELLO] = TO(REPLACE_KILL, KILLED),
		[REPLACE_PREPARED] = TO(REPLACE_READY_NOW, READY),
		[REPLACE_FREE] = STAY(PREPARING),
		[REPLACE_VACANT] = TO(REPLACE_PROMOTE, SUCCEEDING),
		[REPLACE_SERVED] = STAY(PREPARING),
		[REPLACE_FAILING] = STAY(PREPARING),
		[REPLACE_BROKE] = TO(REPLACE_KILL, KILLED),
		[REPLACE_TIMER] = TO(REPLACE_KILL, KILLED),
		[REPLACE_DIED] = TO(REPLACE_FAIL, NONE),
		[REPLACE_STOP] = TO(REPLACE_KILL, KILLED),
	},
	[REPLACE_READY] = {
		[REPLACE_BEGIN] = STAY(READY),
		[REPLACE_HELLO] = TO(REPLACE_KILL, KILLED),
		[REPLACE_PREPARED] = TO(REPLACE_KILL, KILLED),
		[REPLACE_FREE] = TO(REPLACE_TELL_DRAIN, DRAINING),
		[REPLACE_VACANT] = TO(REPLACE_PROMOTE, SUCCEEDING),
		[REPLACE_SERVED] = STAY(READY),
		[REPLACE_FAILING] = STAY(READY),
		[REPLACE_BROKE] = TO(REPLACE_KILL, KILLED),
		[REPLACE_TIMER] = STAY(READY),
		[REPLACE_DIED] = TO(REPLACE_FAIL, NONE),
		[REPLACE_STOP] = TO(REPLACE_KILL, KILLED),
	},
	[REPLACE_DRAINING] = {
		[REPLACE_BEGIN] = STAY(DRAINING),
		[REPLACE_HELLO] = TO(REPLACE_KILL, DRAINING),
		[REPLACE_PREPARED] = TO(REPLACE_KILL, DRAINING),
		[REPLACE_FREE] = STAY(DRAINING),
		[REPLACE_VACANT] = TO(REPLACE_PROMOTE, SUCCEEDING),
		[REPLACE_SERVED] = STAY(DRAINING),
		[REPLACE_FAILING] = STAY(DRAINING),
		[REPLACE_BROKE] = TO(REPLACE_KILL, DRAINING),
		[REPLACE_TIMER] = TO(REPLACE_KILL_OLD, DRAINING),
		[REPLACE_DIED] = STAY(DRAINING),
		[REPLACE_STOP] = TO(REPLACE_KILL, KILLED),
	},
	[REPLACE_SUCCEEDING] = {
		[REPLACE_BEGIN] = STAY(SUCCEEDING),
		[REPLACE_HELLO] = STAY(SUCCEEDING),
		[REPLACE_PREPARED] = STAY(SUCCEEDING),
		[REPLACE_FREE] = STAY(SUCCEEDING),
		[REPLACE_VACANT] = STAY(SUCCEEDING),
		[REPLACE_SERVED] = TO(REPLACE_DONE, NONE),
		[REPLACE_FAILING] = TO(REPLACE_FAIL, NONE),
		[REPLACE_BROKE] = STAY(SUCCEEDING),
		[REPLACE_TIMER] = STAY(SUCCEEDING),
		[REPLACE_DIED] = STAY(SUCCEEDING),
		[REPLACE_STOP] = TO(REPLACE_FAIL, NONE),
	},
	[REPLACE_KILLED] = {
		[REPLACE_BEGIN] = STAY(KILLED),
		[REPLACE_HELLO] = STAY(KILLED),
		[REPLACE_PREPARED] = STAY(KILLED),
		[REPLACE_FREE] = STAY(KILLED),
		[REPLACE_VACANT] = STAY(KILLED),
		[REPLACE_SERVED] = STAY(KILLED),
		[REPLACE_FAILING] = STAY(KILLED),
		[REPLACE_BROKE] = STAY(KILLED),
		[REPLACE_TIMER] = STAY(KILLED),
		[REPLACE_DIED] = TO(REPLACE_FAIL, NONE),
		[REPLACE_STOP] = STAY(KILLED),
	},
};

void
replace_init(struct replace *replace, int64_t drain_limit_ns)
{
	*replace = (struct replace){ .state = REPLACE_NONE, .drain_limit_ns = drain_limit_ns };
}

static void
enter(struct replace *replace, enum replace_state state, int64_t now_ns)
{
	replace->state = state;
	if (state == REPLACE_PREPARING)
		return;		/* one time limit for both */
	replace->timer_ns = 0;
	if (state == REPLACE_STARTING)
		replace->timer_ns = now_ns + RESTART_HELLO_MS * (int64_t)CLOCK_NS_PER_MS;
	else if (state == REPLACE_DRAINING)
		replace->timer_ns = now_ns + replace->drain_limit_ns;
}

enum replace_action
replace_step(struct replace *replace, enum replace_event event, int64_t now_ns)
{
	const struct cell *cell = &table[replace->state][event];

	if (event == REPLACE_TIMER)
		replace->timer_ns = 0;
	if (cell->next != replace->state)
		enter(replace, cell->next, now_ns);
	return cell->action;
}

const char *
replace_state_name(enum replace_state state)
{
	static const char *const names[REPLACE_STATE_COUNT] = {
		"none", "starting", "preparing", "prepared", "draining", "succeeding", "given up",
	};

	return names[state];
}

const char *
replace_refusal(int error)
{
	switch (error) {
	case EBUSY:
		return "it is being replaced already";
	case ENOTCONN:
		return "it does not serve now, and is started again by itself";
	case ESHUTDOWN:
		return "the broker stops";
	case EINPROGRESS:
		return "the broker starts: try again when it is ready";
	case EINVAL:
		return "there is no such worker";
	case EAGAIN:
		return "no process can be started: there are too many (raise TasksMax or ulimit -u)";
	case EMFILE:
	case ENFILE:
		return "no process can be started: no descriptors are free (raise LimitNOFILE or ulimit -n)";
	default:
		return strerror(error);
	}
}
