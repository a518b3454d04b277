/*
 * The life of one worker: events come in (what its processes say, timers, waitpid), restart.c and replace.c decide, this
 * file does it.
 *
 * A group has a current process, which has the logs or is about to have them. Beside it there can be a replacement, which
 * has opened nothing, and an old one, which has released the logs and answers what it still owes. What is told to the
 * current one goes through one queue, so DRAIN and connections keep their order; a connection that comes when nobody
 * serves is not taken, and waits elsewhere.
 */
#include "supervisor/child.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/log.h"

enum { WHY_BYTES = 256, DEATH_BYTES = 64 };

struct child {
	const struct child_shared *shared;
	struct incarnation_hooks hooks;
	int32_t number;
	struct restart restart;			/* of the current process */
	struct replace replace;
	struct incarnation *current, *replacement, *old;	/* NULL: there is none */
	struct ends ends;			/* told by the one before the current one, until that serves */
	struct event *timer, *replace_timer;	/* the tables' */
	struct event *old_timer;
	int64_t old_limit_ns;			/* when the old one must be gone */
	int64_t vacant_ns;			/* since when the logs have nobody who serves; 0 = somebody serves */
	int64_t closed_before;			/* the board's connections_closed when the current process came */
	int64_t old_closed;			/* connections that the old one had closed when it released the logs */
	int64_t ended;				/* connections that ended with processes, on no board */
	char why[WHY_BYTES];			/* the replacement cannot be; "" = no reason yet */
	bool unclean;
	int64_t restarts[RESTART_REASON_COUNT];
	struct child_restart_told last;
};

static void step(struct child *child, enum restart_event event);
static void replace_event(struct child *child, enum replace_event event);

/* ---- small things ---- */

static void
arm(struct event *timer, int64_t at_ns)
{
	struct timeval wait;

	if (at_ns == 0) {
		evtimer_del(timer);
		return;
	}
	wait = clock_until(at_ns);
	evtimer_add(timer, &wait);
}

static int64_t
grace_ns(int64_t drain_timeout_ms)
{
	return (drain_timeout_ms + RESTART_GRACE_MS) * CLOCK_NS_PER_MS;
}

/* A process takes the time that it was told, whatever the settings say by now. */
static void
take_limits(struct child *child)
{
	int64_t limit_ns = grace_ns(incarnation_drain_timeout_ms(child->current));

	child->restart.stop_limit_ns = limit_ns;
	child->replace.drain_limit_ns = limit_ns;
}

static struct board *
board_of(const struct child *child)
{
	return &child->shared->site.setup->boards->maps[child->number];
}

static int64_t
board_closed(const struct child *child)
{
	return board_get(&board_of(child)->worker->connections_closed);
}

/* The board's counter is the worker's word: it cannot make more of it than there were, nor less than none, nor overflow. */
static int64_t
closed_of(const struct child *child, int64_t present)
{
	int64_t closed = (int64_t)((uint64_t)board_closed(child) - (uint64_t)child->closed_before);

	if (closed < 0)
		return 0;
	return closed > present ? present : closed;
}

/* Connections that live in it or are on their way to it. There is one. */
static int64_t
with_current(const struct child *child)
{
	int64_t present = incarnation_connections(child->current);

	return present - closed_of(child, present);
}

/* The same; how many of them have ended since it released the logs it tells nobody. */
static int64_t
with_old(const struct child *child)
{
	int64_t left = incarnation_connections(child->old) - child->old_closed;

	return left > 0 ? left : 0;
}

static void
describe_death(int wait_status, char *death)
{
	if (WIFSIGNALED(wait_status))
		snprintf(death, DEATH_BYTES, "died (signal %d)", WTERMSIG(wait_status));
	else
		snprintf(death, DEATH_BYTES, "exited (status %d)", WEXITSTATUS(wait_status));
}

/* The first reason is the one that counts. */
static void
note_why(struct child *child, const char *why)
{
	if (child->why[0] == '\0')
		snprintf(child->why, sizeof(child->why), "%s", why);
}

/* If somebody served up to now, nobody does any more. */
static void
count_restart(struct child *child, enum restart_reason reason)
{
	if (child->vacant_ns == 0)
		child->vacant_ns = clock_now_ns();
	child->restarts[reason]++;
	child->last = (struct child_restart_told){ child->last.number + 1, reason, clock_wall_ms(), -1 };
}

/* ---- the current process ---- */

/* The replacement has its time before this, and goes on from where it is. */
static void
promote(struct child *child)
{
	child->current = child->replacement;
	child->replacement = NULL;
	child->closed_before = board_closed(child);
	if (incarnation_said_hello(child->current))
		step(child, RESTART_HELLO);
	if (incarnation_prepared(child->current))
		step(child, RESTART_PREPARED);
}

/* Whoever waits for a replacement hears that the next process does not come up, and what becomes of them. */
static void
note_failing(struct child *child, const char *what)
{
	char why[WHY_BYTES];

	if (!restart_failing(&child->restart))
		return;
	snprintf(why, sizeof(why), "the new process %s, as others before it; it is tried again", what);
	note_why(child, why);
	replace_event(child, REPLACE_FAILING);
}

/* The logs have nobody, and the next process may have them. */
static void
start(struct child *child)
{
	char why[WHY_BYTES / 2];

	replace_event(child, REPLACE_VACANT);
	if (child->replace.state == REPLACE_SUCCEEDING && child->replacement != NULL) {
		promote(child);
		return;
	}
	child->closed_before = board_closed(child);
	child->current = incarnation_start(&child->shared->site, &child->hooks, child->number);
	if (child->current != NULL)
		return;
	snprintf(why, sizeof(why), "cannot be started: %s", strerror(errno));
	log_error("worker %d: %s", (int)child->number, why);
	count_restart(child, RESTART_BY_SPAWN);
	step(child, RESTART_DIED);
	note_failing(child, why);
}

static void
limit_old(struct child *child)
{
	child->old_limit_ns = clock_now_ns() + grace_ns(incarnation_drain_timeout_ms(child->old));
	arm(child->old_timer, child->old_limit_ns);
}

/* The current process has released its logs: it becomes the old one, and whoever comes next the current one. */
static void
succeed(struct child *child)
{
	child->old = child->current;
	child->current = NULL;
	child->old_closed = closed_of(child, incarnation_connections(child->old));
	limit_old(child);
	board_clear_gauges(board_of(child));
	count_restart(child, RESTART_BY_REQUEST);
	start(child);
}

static void
serves(struct child *child)
{
	if (child->vacant_ns != 0)
		child->last.pause_ns = clock_now_ns() - child->vacant_ns;
	child->vacant_ns = 0;
	take_limits(child);
	ends_free(&child->ends);
	replace_event(child, REPLACE_SERVED);
}

static void
tell_stop(struct child *child)
{
	/* It has opened nothing before START, and STOP must not come ahead of that. */
	if (!incarnation_started(child->current) || incarnation_tell_stop(child->current) != 0)
		incarnation_kill(child->current, RESTART_BY_KILL);
}

static void
kill_late(struct child *child)
{
	log_error("worker %d: pid %ld has not stopped within drain_timeout and %d s more; killing it", (int)child->number,
	    (long)incarnation_pid(child->current), RESTART_GRACE_MS / 1000);
	child->unclean = true;
	incarnation_kill(child->current, RESTART_BY_KILL);
}

static void
perform(struct child *child, enum restart_action action)
{
	switch (action) {
	case RESTART_NOTHING:
	case RESTART_WAIT:	/* the timer is armed */
	case RESTART_END:
		break;
	case RESTART_START:
		start(child);
		break;
	case RESTART_ANSWER:
		incarnation_tell_settings(child->current);
		break;
	case RESTART_TELL_START:
		/* Nobody writes the board yet. Should it not even get at START, its silence counts from here. */
		board_set(&board_of(child)->worker->heartbeat_ns, clock_now_ns());
		incarnation_tell_start(child->current, &child->ends);
		break;
	case RESTART_OPEN:	/* `changed` tells everybody */
		serves(child);
		break;
	case RESTART_SUCCEED:
		succeed(child);
		break;
	case RESTART_KILL:
		incarnation_kill(child->current, RESTART_BY_PROTOCOL);
		break;
	case RESTART_TELL_STOP:
		tell_stop(child);
		break;
	case RESTART_KILL_LATE:
		kill_late(child);
		break;
	}
}

static void
step(struct child *child, enum restart_event event)
{
	enum restart_state before = child->restart.state;
	enum restart_action action = restart_step(&child->restart, event, clock_now_ns());

	if (before == child->restart.state && action == RESTART_NOTHING)
		return;
	arm(child->timer, child->restart.timer_ns);
	perform(child, action);
	child->shared->changed(child->shared->context, child);
}

static const char *
late_word(const struct incarnation *incarnation)
{
	return incarnation_said_hello(incarnation) ? "PREPARED" : "HELLO";
}

static void
on_timer(evutil_socket_t fd, short what, void *context)
{
	struct child *child = context;

	(void)fd;
	(void)what;
	if (clock_now_ns() < child->restart.timer_ns) {	/* the loop's timers can be early */
		arm(child->timer, child->restart.timer_ns);
		return;
	}
	if (child->restart.state == RESTART_STARTING || child->restart.state == RESTART_PREPARING) {
		log_error("worker %d: pid %ld has not said %s within %d s; killing it", (int)child->number,
		    (long)incarnation_pid(child->current), late_word(child->current), RESTART_HELLO_MS / 1000);
		incarnation_kill(child->current, RESTART_BY_HANDSHAKE);
	}
	step(child, RESTART_TIMER);
}

/* ---- its replacement ---- */

static void
done(struct child *child)
{
	int64_t pause_ns = child->last.pause_ns;

	log_info("worker %d: replaced, pid %ld serves after a pause of %lld us", (int)child->number,
	    (long)incarnation_pid(child->current), (long long)(pause_ns / CLOCK_NS_PER_US));
	child->shared->replaced(child->shared->context, child, NULL, child->last.reason == RESTART_BY_REQUEST ? pause_ns : -1);
}

static void
give_up(struct child *child)
{
	char why[WHY_BYTES];

	note_why(child, "the broker stops");
	snprintf(why, sizeof(why), "%s", child->why);
	log_warning("worker %d: cannot be replaced: %s%s", (int)child->number, why,
	    child_serving(child) ? "; the old process goes on" : "");
	child->shared->replaced(child->shared->context, child, why, -1);
}

/* Told or not, what happens next comes from the current process. */
static void
look_whether_free(struct child *child)
{
	if (child->replace.state != REPLACE_READY || child->old != NULL || !child_serving(child))
		return;
	if (incarnation_tell_drain(child->current) == 0) {
		replace_event(child, REPLACE_FREE);
		return;
	}
	note_why(child, "no memory to tell the old process");
	replace_event(child, REPLACE_BROKE);
}

/* It can be dead, and its place vacant only after a while, since too many have died before it. */
static void
kill_undrained(struct child *child)
{
	if (child->current == NULL)
		return;
	log_error("worker %d: pid %ld has not released its logs within drain_timeout and %d s more; killing it",
	    (int)child->number, (long)incarnation_pid(child->current), RESTART_GRACE_MS / 1000);
	incarnation_kill(child->current, RESTART_BY_HANDSHAKE);
	step(child, RESTART_BROKE);
}

static void
perform_replace(struct child *child, enum replace_action action)
{
	switch (action) {
	case REPLACE_NOTHING:
	case REPLACE_START:		/* child_replace has done it */
	case REPLACE_TELL_DRAIN:	/* look_whether_free has done it */
	case REPLACE_PROMOTE:		/* start does it */
		break;
	case REPLACE_ANSWER:
		incarnation_tell_settings(child->replacement);
		break;
	case REPLACE_READY_NOW:
		look_whether_free(child);
		break;
	case REPLACE_KILL:
		if (child->replacement != NULL)
			incarnation_kill(child->replacement, RESTART_BY_PROTOCOL);
		else
			replace_event(child, REPLACE_DIED);
		break;
	case REPLACE_KILL_OLD:
		kill_undrained(child);
		break;
	case REPLACE_DONE:
		done(child);
		break;
	case REPLACE_FAIL:
		give_up(child);
		break;
	}
}

static void
replace_event(struct child *child, enum replace_event event)
{
	enum replace_action action = replace_step(&child->replace, event, clock_now_ns());

	arm(child->replace_timer, child->replace.timer_ns);
	perform_replace(child, action);
}

static void
on_replace_timer(evutil_socket_t fd, short what, void *context)
{
	struct child *child = context;
	char why[WHY_BYTES];

	(void)fd;
	(void)what;
	if (clock_now_ns() < child->replace.timer_ns) {
		arm(child->replace_timer, child->replace.timer_ns);
		return;
	}
	if (child->replace.state != REPLACE_DRAINING) {
		snprintf(why, sizeof(why), "its replacement has not said %s within %d s", late_word(child->replacement),
		    RESTART_HELLO_MS / 1000);
		note_why(child, why);
	}
	replace_event(child, REPLACE_TIMER);
}

/* ---- the one before it, which finishes ---- */

static void
on_old_timer(evutil_socket_t fd, short what, void *context)
{
	struct child *child = context;

	(void)fd;
	(void)what;
	if (child->old == NULL)
		return;
	if (clock_now_ns() < child->old_limit_ns) {
		arm(child->old_timer, child->old_limit_ns);
		return;
	}
	log_error("worker %d: pid %ld, which was replaced, has not finished within drain_timeout and %d s more; killing it",
	    (int)child->number, (long)incarnation_pid(child->old), RESTART_GRACE_MS / 1000);
	incarnation_kill(child->old, RESTART_BY_KILL);
}

/* ---- what its processes say ---- */

static const char *
released(struct child *child, const struct report *report)
{
	const char *wrong = ends_release(&child->ends, report->released.ends);

	if (wrong == NULL)
		step(child, RESTART_RELEASED);
	return wrong;
}

static const char *
current_said(struct child *child, const struct report *report)
{
	switch (report->kind) {
	case REPORT_HELLO:
		step(child, RESTART_HELLO);
		break;
	case REPORT_PREPARED:
		step(child, RESTART_PREPARED);
		break;
	case REPORT_SERVING:
		log_debug("worker %d: pid %ld serves, %d partitions open, %d not", (int)child->number,
		    (long)incarnation_pid(child->current), (int)report->serving.opened, (int)report->serving.failed);
		step(child, RESTART_SERVED);
		look_whether_free(child);
		break;
	case REPORT_REPLACE:
		child->shared->changed(child->shared->context, child);
		break;
	case REPORT_ENDS:
		return ends_take(&child->ends, report->ends, report->ends_count);
	case REPORT_RELEASED:
		return released(child, report);
	case REPORT_CONNECTION:
		break;
	}
	return NULL;
}

static const char *
on_said(void *context, struct incarnation *incarnation, const struct report *report)
{
	struct child *child = context;

	if (incarnation == child->current)
		return current_said(child, report);
	/* The old one may have asked to be replaced at the last moment; anything else is out of turn for both. */
	if (incarnation == child->replacement && report->kind == REPORT_HELLO)
		replace_event(child, REPLACE_HELLO);
	else if (incarnation == child->replacement && report->kind == REPORT_PREPARED)
		replace_event(child, REPLACE_PREPARED);
	return NULL;
}

static void
on_returned(void *context, const struct connection *connection)
{
	struct child *child = context;

	child->shared->returned(child->shared->context, connection);
}

static void
on_broke(void *context, struct incarnation *incarnation, const char *why)
{
	struct child *child = context;
	char text[WHY_BYTES];

	if (incarnation == child->current)
		step(child, RESTART_BROKE);
	else if (incarnation == child->replacement) {
		snprintf(text, sizeof(text), "its replacement was killed: %s", why);
		note_why(child, text);
		replace_event(child, REPLACE_BROKE);
	} else
		incarnation_kill(incarnation, RESTART_BY_PROTOCOL);
}

/* ---- deaths ---- */

static void
log_death(const struct child *child, const struct incarnation *dead)
{
	const struct restart *restart = &child->restart;
	long pid = (long)incarnation_pid(dead);
	char death[DEATH_BYTES];

	describe_death(incarnation_wait_status(dead), death);
	if (restart->state == RESTART_STOPPED && child->unclean)
		log_error("worker %d: pid %ld %s instead of stopping in order", (int)child->number, pid, death);
	else if (restart->state == RESTART_STOPPED)
		log_debug("worker %d: pid %ld %s", (int)child->number, pid, death);
	else if (restart->state == RESTART_STARTING)
		log_warning("worker %d: %s, restarting (was pid %ld)", (int)child->number, death, pid);
	else
		log_error("worker %d: %s %s, %d time%s in a row%s; next try in %lld ms (was pid %ld)", (int)child->number, death,
		    incarnation_served(dead) ? "too often" : "before it served", restart->failures,
		    restart->failures == 1 ? "" : "s",
		    restart_failing(restart) ? ": failing, what it said before should tell why" : "",
		    (long long)(restart->wait_ns / CLOCK_NS_PER_MS), pid);
}

/* What it had told of its logs counts no more, since it has not released them; its predecessor's word does. */
static void
forget_ends(struct child *child)
{
	if (!child->ends.released)
		ends_free(&child->ends);
}

/* The table hears of it, and what is left of this process is cleared away. */
static void
bury_current(struct child *child)
{
	struct incarnation *dead = child->current;
	bool stopping = child->restart.state == RESTART_STOPPING;
	enum restart_action action = restart_step(&child->restart, RESTART_DIED, clock_now_ns());
	char death[DEATH_BYTES];

	child->ended += with_current(child);
	child->current = NULL;
	forget_ends(child);
	board_clear_gauges(board_of(child));
	/* One that was told START has opened its logs; before that it is killed by us, and has lost nothing. */
	if (stopping && incarnation_started(dead) && incarnation_wait_status(dead) != 0)
		child->unclean = true;
	if (!stopping)
		count_restart(child, incarnation_reason(dead));
	log_death(child, dead);
	describe_death(incarnation_wait_status(dead), death);
	note_failing(child, death);
	incarnation_free(dead);
	arm(child->timer, child->restart.timer_ns);
	perform(child, action);
}

static void
bury_replacement(struct child *child)
{
	struct incarnation *dead = child->replacement;
	char death[DEATH_BYTES], why[WHY_BYTES];

	child->replacement = NULL;
	describe_death(incarnation_wait_status(dead), death);
	snprintf(why, sizeof(why), "its replacement %s before it was used (what it said is in the log)", death);
	if (child->replace.state == REPLACE_DRAINING)
		log_warning("worker %d: %s (was pid %ld); another one follows when the logs are released", (int)child->number,
		    why, (long)incarnation_pid(dead));
	note_why(child, why);
	incarnation_free(dead);
	replace_event(child, REPLACE_DIED);
}

static void
bury_old(struct child *child)
{
	struct incarnation *dead = child->old;
	char death[DEATH_BYTES];

	child->ended += with_old(child);
	child->old = NULL;
	evtimer_del(child->old_timer);
	describe_death(incarnation_wait_status(dead), death);
	if (incarnation_wait_status(dead) == 0)
		log_debug("worker %d: pid %ld, which was replaced, has finished", (int)child->number, (long)incarnation_pid(dead));
	else
		log_error("worker %d: pid %ld, which was replaced, %s before it had finished: clients that waited for an answer "
		    "are cut", (int)child->number, (long)incarnation_pid(dead), death);
	incarnation_free(dead);
	look_whether_free(child);
}

static void
on_gone(void *context, struct incarnation *incarnation)
{
	struct child *child = context;

	if (incarnation == child->current)
		bury_current(child);
	else if (incarnation == child->replacement)
		bury_replacement(child);
	else
		bury_old(child);
	child->shared->changed(child->shared->context, child);
}

/* ---- from outside ---- */

struct child *
child_new(const struct child_shared *shared, int32_t number)
{
	int64_t limit_ns = grace_ns(shared->site.setup->settings->drain_timeout_ms);
	struct event_base *base = shared->site.base;
	struct child *child = calloc(1, sizeof(*child));

	if (child == NULL)
		return NULL;
	child->shared = shared;
	child->hooks = (struct incarnation_hooks){ child, on_said, on_returned, on_broke, on_gone };
	child->number = number;
	restart_init(&child->restart, limit_ns);
	replace_init(&child->replace, limit_ns);
	child->timer = evtimer_new(base, on_timer, child);
	child->replace_timer = evtimer_new(base, on_replace_timer, child);
	child->old_timer = evtimer_new(base, on_old_timer, child);
	if (child->timer != NULL && child->replace_timer != NULL && child->old_timer != NULL)
		return child;
	child_free(child);
	errno = ENOMEM;
	return NULL;
}

void
child_free(struct child *child)
{
	if (child == NULL)
		return;
	incarnation_free(child->current);
	incarnation_free(child->replacement);
	incarnation_free(child->old);
	ends_free(&child->ends);
	if (child->timer != NULL)
		event_free(child->timer);
	if (child->replace_timer != NULL)
		event_free(child->replace_timer);
	if (child->old_timer != NULL)
		event_free(child->old_timer);
	free(child);
}

void
child_begin(struct child *child)
{
	step(child, RESTART_BEGIN);
}

static struct incarnation *
find(const struct child *child, pid_t pid)
{
	struct incarnation *const all[] = { child->current, child->replacement, child->old };

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i] != NULL && !incarnation_is_reaped(all[i]) && incarnation_pid(all[i]) == pid)
			return all[i];
	return NULL;
}

bool
child_reaped(struct child *child, pid_t pid, int wait_status)
{
	struct incarnation *incarnation = find(child, pid);

	if (incarnation == NULL)
		return false;
	incarnation_reaped(incarnation, wait_status);
	return true;
}

void
child_stop(struct child *child)
{
	note_why(child, "the broker stops");
	replace_event(child, REPLACE_STOP);
	step(child, RESTART_STOP);
	/*
	 * Nobody takes its connections over any more: closed here, whatever their clients send then would destroy the answers
	 * that are on their way. And it forces what nobody may have taken over.
	 */
	if (child->old != NULL && incarnation_tell_stop(child->old) == 0)
		limit_old(child);
}

int64_t
child_stop_limit_ns(const struct child *child)
{
	int64_t old_ns = child->old == NULL ? 0 : grace_ns(incarnation_drain_timeout_ms(child->old));

	return old_ns > child->restart.stop_limit_ns ? old_ns : child->restart.stop_limit_ns;
}

void
child_hung(struct child *child)
{
	if (child_has_loop(child))
		incarnation_kill(child->current, RESTART_BY_HANG);
	step(child, RESTART_HUNG);
}

int
child_replace(struct child *child)
{
	int32_t slots = child->shared->site.setup->topics->slot_counts[child->number];

	errno = EBUSY;
	if (child->replace.state != REPLACE_NONE)
		return -1;
	errno = ENOTCONN;
	if (!child_serving(child))
		return -1;
	ends_free(&child->ends);
	if (ends_init(&child->ends, slots) != 0)
		return -1;
	child->replacement = incarnation_start(&child->shared->site, &child->hooks, child->number);
	if (child->replacement == NULL) {
		int error = errno;

		ends_free(&child->ends);
		errno = error;
		return -1;
	}
	child->why[0] = '\0';
	replace_event(child, REPLACE_BEGIN);
	return 0;
}

bool
child_take_wish(struct child *child)
{
	return child->current != NULL && incarnation_take_wish(child->current);
}

bool
child_wishes(const struct child *child)
{
	return child->current != NULL && incarnation_wishes(child->current);
}

int32_t
child_number(const struct child *child)
{
	return child->number;
}

pid_t
child_pid(const struct child *child)
{
	return child->current == NULL || incarnation_is_reaped(child->current) ? 0 : incarnation_pid(child->current);
}

const struct restart *
child_restart(const struct child *child)
{
	return &child->restart;
}

const struct replace *
child_replacement(const struct child *child)
{
	return &child->replace;
}

const int64_t *
child_restarts(const struct child *child)
{
	return child->restarts;
}

const struct child_restart_told *
child_last_restart(const struct child *child)
{
	return &child->last;
}

bool
child_unclean(const struct child *child)
{
	return child->unclean;
}

bool
child_outdated(const struct child *child)
{
	enum restart_state state = child->restart.state;

	return (state == RESTART_PREPARING || state == RESTART_OPENING || state == RESTART_SERVING) && child_pid(child) != 0 &&
	    incarnation_generation(child->current) != child->shared->site.setup->generation;
}

bool
child_stopped(const struct child *child)
{
	return child->restart.state == RESTART_STOPPED && child->replacement == NULL && child->old == NULL;
}

bool
child_serving(const struct child *child)
{
	return child->restart.state == RESTART_SERVING && child_pid(child) != 0;
}

bool
child_has_loop(const struct child *child)
{
	return (child->restart.state == RESTART_SERVING || child->restart.state == RESTART_OPENING) && child_pid(child) != 0;
}

bool
child_taking_over(const struct child *child)
{
	return child->replace.state == REPLACE_SUCCEEDING && child->restart.failures == 0 && !child_serving(child);
}

int64_t
child_takeover_ns(const struct child *child)
{
	return child->ends.released && child_taking_over(child) ? child->vacant_ns : 0;
}

bool
child_behind(const struct child *child)
{
	int64_t heartbeat_ns = board_get(&board_of(child)->worker->heartbeat_ns);

	if (child->current != NULL && (incarnation_behind(child->current) || incarnation_draining(child->current)))
		return true;
	return heartbeat_ns <= 0 || heartbeat_ns < clock_now_ns() - CHILD_SILENT_S * (int64_t)CLOCK_NS_PER_S;
}

int
child_give(struct child *child, const struct connection *connection)
{
	return incarnation_give(child->current, connection);
}

int64_t
child_connections(const struct child *child)
{
	return (child->current == NULL ? 0 : with_current(child)) + (child->old == NULL ? 0 : with_old(child));
}

int64_t
child_connections_ended(const struct child *child)
{
	return child->ended;
}
