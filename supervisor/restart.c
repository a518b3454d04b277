/* The table of a worker's life and the arithmetic of its restarts; see restart.h. Pure: no I/O, no clock. */
#include "supervisor/restart.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

enum { NS_PER_MS = 1000000 };

/* What a cell asks for, besides the actions that are passed on as they are. */
enum { AFTER_DEATH = 100 };

struct cell {
	int action;
	enum restart_state next;
};

#define STAY(state)	{ RESTART_NOTHING, RESTART_##state }
#define TO(act, state)	{ act, RESTART_##state }

/*
 * Columns in the order of enum restart_event. AFTER_DEATH decides between START and WAIT, and sets the state itself.
 *
 * Stopping: one that has not been told START is killed (it has opened nothing), all others are told and have their time.
 * A message that comes late, behind a kill or a STOP, changes nothing any more.
 */
static const struct cell table[RESTART_STATE_COUNT][RESTART_EVENT_COUNT] = {
	[RESTART_IDLE] = {
		[RESTART_BEGIN] = TO(RESTART_START, STARTING),
		[RESTART_HELLO] = STAY(IDLE),
		[RESTART_PREPARED] = STAY(IDLE),
		[RESTART_SERVED] = STAY(IDLE),
		[RESTART_RELEASED] = STAY(IDLE),
		[RESTART_HUNG] = STAY(IDLE),
		[RESTART_BROKE] = STAY(IDLE),
		[RESTART_TIMER] = STAY(IDLE),
		[RESTART_DIED] = STAY(IDLE),
		[RESTART_STOP] = TO(RESTART_END, STOPPED),
	},
	[RESTART_STARTING] = {
		[RESTART_BEGIN] = STAY(STARTING),
		[RESTART_HELLO] = TO(RESTART_ANSWER, PREPARING),
		[RESTART_PREPARED] = TO(RESTART_KILL, KILLED),
		[RESTART_SERVED] = TO(RESTART_KILL, KILLED),
		[RESTART_RELEASED] = TO(RESTART_KILL, KILLED),
		[RESTART_HUNG] = STAY(STARTING),
		[RESTART_BROKE] = TO(RESTART_KILL, KILLED),
		[RESTART_TIMER] = TO(RESTART_KILL, KILLED),
		[RESTART_DIED] = TO(AFTER_DEATH, WAITING),
		[RESTART_STOP] = TO(RESTART_KILL, STOPPING),
	},
	[RESTART_PREPARING] = {
		[RESTART_BEGIN] = STAY(PREPARING),
		[RESTART_HELLO] = TO(RESTART_KILL, KILLED),
		[RESTART_PREPARED] = TO(RESTART_TELL_START, OPENING),
		[RESTART_SERVED] = TO(RESTART_KILL, KILLED),
		[RESTART_RELEASED] = TO(RESTART_KILL, KILLED),
		[RESTART_HUNG] = STAY(PREPARING),
		[RESTART_BROKE] = TO(RESTART_KILL, KILLED),
		[RESTART_TIMER] = TO(RESTART_KILL, KILLED),
		[RESTART_DIED] = TO(AFTER_DEATH, WAITING),
		[RESTART_STOP] = TO(RESTART_KILL, STOPPING),
	},
	[RESTART_OPENING] = {
		[RESTART_BEGIN] = STAY(OPENING),
		[RESTART_HELLO] = TO(RESTART_KILL, KILLED),
		[RESTART_PREPARED] = TO(RESTART_KILL, KILLED),
		[RESTART_SERVED] = TO(RESTART_OPEN, SERVING),
		[RESTART_RELEASED] = TO(RESTART_KILL, KILLED),
		[RESTART_HUNG] = TO(RESTART_KILL, KILLED),
		[RESTART_BROKE] = TO(RESTART_KILL, KILLED),
		[RESTART_TIMER] = STAY(OPENING),
		[RESTART_DIED] = TO(AFTER_DEATH, WAITING),
		[RESTART_STOP] = TO(RESTART_TELL_STOP, STOPPING),
	},
	[RESTART_SERVING] = {
		[RESTART_BEGIN] = STAY(SERVING),
		[RESTART_HELLO] = TO(RESTART_KILL, KILLED),
		[RESTART_PREPARED] = TO(RESTART_KILL, KILLED),
		[RESTART_SERVED] = TO(RESTART_KILL, KILLED),
		[RESTART_RELEASED] = TO(RESTART_SUCCEED, STARTING),
		[RESTART_HUNG] = TO(RESTART_KILL, KILLED),
		[RESTART_BROKE] = TO(RESTART_KILL, KILLED),
		[RESTART_TIMER] = STAY(SERVING),
		[RESTART_DIED] = TO(AFTER_DEATH, WAITING),
		[RESTART_STOP] = TO(RESTART_TELL_STOP, STOPPING),
	},
	[RESTART_KILLED] = {
		[RESTART_BEGIN] = STAY(KILLED),
		[RESTART_HELLO] = STAY(KILLED),
		[RESTART_PREPARED] = STAY(KILLED),
		[RESTART_SERVED] = STAY(KILLED),
		[RESTART_RELEASED] = STAY(KILLED),
		[RESTART_HUNG] = STAY(KILLED),
		[RESTART_BROKE] = STAY(KILLED),
		[RESTART_TIMER] = STAY(KILLED),
		[RESTART_DIED] = TO(AFTER_DEATH, WAITING),
		[RESTART_STOP] = TO(RESTART_NOTHING, STOPPING),
	},
	[RESTART_WAITING] = {
		[RESTART_BEGIN] = STAY(WAITING),
		[RESTART_HELLO] = STAY(WAITING),
		[RESTART_PREPARED] = STAY(WAITING),
		[RESTART_SERVED] = STAY(WAITING),
		[RESTART_RELEASED] = STAY(WAITING),
		[RESTART_HUNG] = STAY(WAITING),
		[RESTART_BROKE] = STAY(WAITING),
		[RESTART_TIMER] = TO(RESTART_START, STARTING),
		[RESTART_DIED] = STAY(WAITING),
		[RESTART_STOP] = TO(RESTART_END, STOPPED),
	},
	[RESTART_STOPPING] = {
		[RESTART_BEGIN] = STAY(STOPPING),
		[RESTART_HELLO] = STAY(STOPPING),
		[RESTART_PREPARED] = STAY(STOPPING),
		[RESTART_SERVED] = STAY(STOPPING),
		[RESTART_RELEASED] = STAY(STOPPING),
		[RESTART_HUNG] = STAY(STOPPING),
		[RESTART_BROKE] = TO(RESTART_KILL, STOPPING),
		[RESTART_TIMER] = TO(RESTART_KILL_LATE, STOPPING),
		[RESTART_DIED] = TO(RESTART_END, STOPPED),
		[RESTART_STOP] = STAY(STOPPING),
	},
	[RESTART_STOPPED] = {
		[RESTART_BEGIN] = STAY(STOPPED),
		[RESTART_HELLO] = STAY(STOPPED),
		[RESTART_PREPARED] = STAY(STOPPED),
		[RESTART_SERVED] = STAY(STOPPED),
		[RESTART_RELEASED] = STAY(STOPPED),
		[RESTART_HUNG] = STAY(STOPPED),
		[RESTART_BROKE] = STAY(STOPPED),
		[RESTART_TIMER] = STAY(STOPPED),
		[RESTART_DIED] = STAY(STOPPED),
		[RESTART_STOP] = STAY(STOPPED),
	},
};

void
restart_init(struct restart *restart, int64_t stop_limit_ns)
{
	memset(restart, 0, sizeof(*restart));
	restart->state = RESTART_IDLE;
	restart->stop_limit_ns = stop_limit_ns;
}

/* The ring's next place holds the oldest restart at once; it may be reused when that one is long enough ago. */
static bool
take_burst(struct restart *restart, int64_t now_ns)
{
	int64_t *oldest = &restart->burst_ns[restart->burst_next];

	if (*oldest != 0 && now_ns - *oldest < (int64_t)RESTART_BURST_MS * NS_PER_MS)
		return false;
	*oldest = now_ns;
	restart->burst_next = (restart->burst_next + 1) % RESTART_BURST_MAX;
	return true;
}

static int64_t
back_off_ns(int failures)
{
	int64_t ms = RESTART_FIRST_WAIT_MS;

	for (int i = 1; i < failures && ms < RESTART_LAST_WAIT_MS; i++)
		ms *= 2;
	return (ms < RESTART_LAST_WAIT_MS ? ms : RESTART_LAST_WAIT_MS) * NS_PER_MS;
}

static struct cell
after_death(struct restart *restart, int64_t now_ns)
{
	if (restart->served && take_burst(restart, now_ns)) {
		restart->failures = 0;
		return (struct cell)TO(RESTART_START, STARTING);
	}
	restart->failures++;
	restart->wait_ns = back_off_ns(restart->failures);
	return (struct cell)TO(RESTART_WAIT, WAITING);
}

static void
enter(struct restart *restart, enum restart_state state, int64_t now_ns)
{
	restart->state = state;
	if (state == RESTART_PREPARING)
		return;		/* one time limit for both */
	restart->timer_ns = 0;
	switch (state) {
	case RESTART_STARTING:
		restart->served = false;
		restart->timer_ns = now_ns + (int64_t)RESTART_HELLO_MS * NS_PER_MS;
		break;
	case RESTART_SERVING:
		restart->served = true;
		break;
	case RESTART_WAITING:
		restart->timer_ns = now_ns + restart->wait_ns;
		break;
	case RESTART_STOPPING:
		restart->timer_ns = now_ns + restart->stop_limit_ns;
		break;
	default:
		break;
	}
}

enum restart_action
restart_step(struct restart *restart, enum restart_event event, int64_t now_ns)
{
	struct cell cell = table[restart->state][event];

	if (event == RESTART_TIMER)
		restart->timer_ns = 0;
	if (cell.action == AFTER_DEATH)
		cell = after_death(restart, now_ns);
	if (cell.next != restart->state || cell.action == RESTART_START)
		enter(restart, cell.next, now_ns);
	if (cell.action == RESTART_SUCCEED) {
		restart->served = true;		/* should the successor die, the next one follows at once */
		restart->failures = 0;		/* it ends in order, and whatever died before it is past */
	}
	return (enum restart_action)cell.action;
}

bool
restart_failing(const struct restart *restart)
{
	return restart->state != RESTART_SERVING && restart->failures >= RESTART_FAILING_AFTER;
}

const char *
restart_state_name(enum restart_state state)
{
	static const char *const names[RESTART_STATE_COUNT] = {
		"idle", "starting", "taking its settings", "opening its logs", "serving", "killed", "waiting", "stopping", "stopped",
	};

	return names[state];
}

enum restart_reason
restart_reason_of(int wait_status)
{
	if (!WIFSIGNALED(wait_status))
		return RESTART_BY_EXIT;
	switch (WTERMSIG(wait_status)) {
	case SIGILL:
	case SIGTRAP:
	case SIGABRT:
	case SIGBUS:
	case SIGFPE:
	case SIGSEGV:
	case SIGSYS:
		return RESTART_BY_CRASH;
	default:
		return RESTART_BY_KILL;
	}
}

const char *
restart_reason_name(enum restart_reason reason)
{
	static const char *const names[RESTART_REASON_COUNT] = {
		"killed", "crashed", "exited", "handshake", "protocol", "spawn", "requested", "hung",
	};

	return names[reason];
}
