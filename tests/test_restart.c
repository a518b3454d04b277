/* The tables of restarts and of planned replacements, cell by cell, and their numbers, with a clock that the test turns. */
#include "supervisor/restart.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>

#include "supervisor/replace.h"
#include "tests/unit.h"

#define MS INT64_C(1000000)

enum { STOP_MS = 15000 };

/* What a cell must do: the action, and the state after it. */
struct expected {
	enum restart_action action;
	enum restart_state state;
};

#define NO(state)	{ RESTART_NOTHING, RESTART_##state }
#define DO(act, state)	{ RESTART_##act, RESTART_##state }

/* Written out a second time, on purpose: BEGIN HELLO PREPARED SERVED RELEASED HUNG BROKE TIMER DIED STOP. A death of one that
 * had not served; of one that had, see below. */
static const struct expected cells[RESTART_STATE_COUNT][RESTART_EVENT_COUNT] = {
	[RESTART_IDLE] = { DO(START, STARTING), NO(IDLE), NO(IDLE), NO(IDLE), NO(IDLE), NO(IDLE), NO(IDLE), NO(IDLE), NO(IDLE),
		DO(END, STOPPED) },
	[RESTART_STARTING] = { NO(STARTING), DO(ANSWER, PREPARING), DO(KILL, KILLED), DO(KILL, KILLED), DO(KILL, KILLED),
		NO(STARTING), DO(KILL, KILLED), DO(KILL, KILLED), DO(WAIT, WAITING), DO(KILL, STOPPING) },
	[RESTART_PREPARING] = { NO(PREPARING), DO(KILL, KILLED), DO(TELL_START, OPENING), DO(KILL, KILLED), DO(KILL, KILLED),
		NO(PREPARING), DO(KILL, KILLED), DO(KILL, KILLED), DO(WAIT, WAITING), DO(KILL, STOPPING) },
	[RESTART_OPENING] = { NO(OPENING), DO(KILL, KILLED), DO(KILL, KILLED), DO(OPEN, SERVING), DO(KILL, KILLED),
		DO(KILL, KILLED), DO(KILL, KILLED), NO(OPENING), DO(WAIT, WAITING), DO(TELL_STOP, STOPPING) },
	[RESTART_SERVING] = { NO(SERVING), DO(KILL, KILLED), DO(KILL, KILLED), DO(KILL, KILLED), DO(SUCCEED, STARTING),
		DO(KILL, KILLED), DO(KILL, KILLED), NO(SERVING), DO(WAIT, WAITING), DO(TELL_STOP, STOPPING) },
	[RESTART_KILLED] = { NO(KILLED), NO(KILLED), NO(KILLED), NO(KILLED), NO(KILLED), NO(KILLED), NO(KILLED), NO(KILLED),
		DO(WAIT, WAITING), NO(STOPPING) },
	[RESTART_WAITING] = { NO(WAITING), NO(WAITING), NO(WAITING), NO(WAITING), NO(WAITING), NO(WAITING), NO(WAITING),
		DO(START, STARTING), NO(WAITING), DO(END, STOPPED) },
	[RESTART_STOPPING] = { NO(STOPPING), NO(STOPPING), NO(STOPPING), NO(STOPPING), NO(STOPPING), NO(STOPPING),
		DO(KILL, STOPPING), DO(KILL_LATE, STOPPING), DO(END, STOPPED), NO(STOPPING) },
	[RESTART_STOPPED] = { NO(STOPPED), NO(STOPPED), NO(STOPPED), NO(STOPPED), NO(STOPPED), NO(STOPPED), NO(STOPPED),
		NO(STOPPED), NO(STOPPED), NO(STOPPED) },
};

/* The timer that a state sets when it is entered. */
static int64_t
timer_of(enum restart_state state)
{
	switch (state) {
	case RESTART_STARTING:
		return 10000 * MS;
	case RESTART_WAITING:
		return 100 * MS;
	case RESTART_STOPPING:
		return STOP_MS * MS;
	default:
		return 0;
	}
}

START_TEST(every_cell)
{
	enum restart_state state = (enum restart_state)(_i / RESTART_EVENT_COUNT);
	enum restart_event event = (enum restart_event)(_i % RESTART_EVENT_COUNT);
	const struct expected *expected = &cells[state][event];
	const int64_t now = 5000 * MS;
	struct restart restart;

	restart_init(&restart, STOP_MS * MS);
	restart.state = state;
	ck_assert_int_eq(restart_step(&restart, event, now), expected->action);
	ck_assert_int_eq(restart.state, expected->state);
	if (restart.state != state && restart.state != RESTART_PREPARING)
		ck_assert_int_eq(restart.timer_ns, timer_of(restart.state) == 0 ? 0 : now + timer_of(restart.state));
}
END_TEST

START_TEST(every_death_of_one_that_had_served)
{
	static const enum restart_state states[] = { RESTART_SERVING, RESTART_KILLED };
	struct restart restart;

	restart_init(&restart, STOP_MS * MS);
	restart.state = states[_i];
	restart.served = true;
	ck_assert_int_eq(restart_step(&restart, RESTART_DIED, 1000 * MS), RESTART_START);
	ck_assert_int_eq(restart.state, RESTART_STARTING);
	ck_assert_int_eq(restart.timer_ns, 1000 * MS + 10000 * MS);
	ck_assert(!restart.served);
	ck_assert_int_eq(restart.failures, 0);
}
END_TEST

/* Brings one to SERVING; it must be startable. */
static void
serve(struct restart *restart, enum restart_event begin, int64_t now)
{
	if (restart->state != RESTART_STARTING)
		ck_assert_int_eq(restart_step(restart, begin, now), RESTART_START);
	ck_assert_int_eq(restart_step(restart, RESTART_HELLO, now), RESTART_ANSWER);
	ck_assert_int_eq(restart_step(restart, RESTART_PREPARED, now), RESTART_TELL_START);
	ck_assert_int_eq(restart_step(restart, RESTART_SERVED, now), RESTART_OPEN);
	ck_assert(restart->served);
}

START_TEST(back_off_doubles_to_ten_seconds)
{
	static const int64_t waits_ms[] = { 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000, 10000 };
	int64_t now = 1000 * MS;
	struct restart restart;

	restart_init(&restart, STOP_MS * MS);
	ck_assert_int_eq(restart_step(&restart, RESTART_BEGIN, now), RESTART_START);
	for (int i = 0; i < 10; i++) {
		ck_assert(restart_failing(&restart) == (i >= 3));
		ck_assert_int_eq(restart_step(&restart, RESTART_DIED, now), RESTART_WAIT);
		ck_assert_int_eq(restart.wait_ns, waits_ms[i] * MS);
		ck_assert_int_eq(restart.timer_ns, now + waits_ms[i] * MS);
		ck_assert_int_eq(restart.failures, i + 1);
		ck_assert(restart_failing(&restart) == (i + 1 >= 3));
		now = restart.timer_ns;
		ck_assert_int_eq(restart_step(&restart, RESTART_TIMER, now), RESTART_START);
	}
	serve(&restart, RESTART_BEGIN, now);
	ck_assert(!restart_failing(&restart));
	ck_assert_int_eq(restart_step(&restart, RESTART_DIED, now), RESTART_START);
	ck_assert_int_eq(restart.failures, 0);
}
END_TEST

START_TEST(at_once_twenty_times_in_ten_seconds)
{
	int64_t now = 1000 * MS, first = now;
	struct restart restart;

	restart_init(&restart, STOP_MS * MS);
	serve(&restart, RESTART_BEGIN, now);
	for (int i = 0; i < 20; i++, now += 100 * MS) {
		ck_assert_int_eq(restart_step(&restart, RESTART_DIED, now), RESTART_START);
		serve(&restart, RESTART_BEGIN, now);
	}
	/* The twenty-first waits, and the next ones longer, although it serves in between. */
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(restart_step(&restart, RESTART_DIED, now), RESTART_WAIT);
		ck_assert_int_eq(restart.wait_ns, (INT64_C(100) << i) * MS);
		now += restart.wait_ns;
		serve(&restart, RESTART_TIMER, now);
	}
	/* Ten seconds after the first one, one place is free again. */
	now = first + 10000 * MS - 1;
	ck_assert_int_eq(restart_step(&restart, RESTART_DIED, now), RESTART_WAIT);
	serve(&restart, RESTART_TIMER, now);
	now = first + 10000 * MS;
	ck_assert_int_eq(restart_step(&restart, RESTART_DIED, now), RESTART_START);
	ck_assert_int_eq(restart.failures, 0);
}
END_TEST

START_TEST(recovery_may_take_long)
{
	struct restart restart;

	restart_init(&restart, STOP_MS * MS);
	restart_step(&restart, RESTART_BEGIN, 0);
	ck_assert_int_ne(restart.timer_ns, 0);
	restart_step(&restart, RESTART_HELLO, 1);
	ck_assert_int_eq(restart.timer_ns, 10000 * MS);	/* one limit for HELLO and PREPARED */
	restart_step(&restart, RESTART_PREPARED, 2);
	ck_assert_int_eq(restart.timer_ns, 0);
}
END_TEST

START_TEST(a_late_kill_happens_once)
{
	struct restart restart;

	restart_init(&restart, STOP_MS * MS);
	serve(&restart, RESTART_BEGIN, 0);
	ck_assert_int_eq(restart_step(&restart, RESTART_STOP, 5), RESTART_TELL_STOP);
	ck_assert_int_eq(restart.timer_ns, 5 + STOP_MS * MS);
	ck_assert_int_eq(restart_step(&restart, RESTART_STOP, 6), RESTART_NOTHING);
	ck_assert_int_eq(restart.timer_ns, 5 + STOP_MS * MS);
	ck_assert_int_eq(restart_step(&restart, RESTART_TIMER, restart.timer_ns), RESTART_KILL_LATE);
	ck_assert_int_eq(restart.timer_ns, 0);
	ck_assert_int_eq(restart_step(&restart, RESTART_DIED, 7), RESTART_END);
}
END_TEST

START_TEST(reasons)
{
	ck_assert_int_eq(restart_reason_of(0), RESTART_BY_EXIT);
	ck_assert_int_eq(restart_reason_of(3 << 8), RESTART_BY_EXIT);
	ck_assert_int_eq(restart_reason_of(SIGKILL), RESTART_BY_KILL);
	ck_assert_int_eq(restart_reason_of(SIGTERM), RESTART_BY_KILL);
	ck_assert_int_eq(restart_reason_of(SIGSEGV | 0x80), RESTART_BY_CRASH);
	ck_assert_int_eq(restart_reason_of(SIGABRT), RESTART_BY_CRASH);
	ck_assert_int_eq(restart_reason_of(SIGBUS), RESTART_BY_CRASH);
	for (int i = 0; i < RESTART_REASON_COUNT; i++)
		ck_assert_ptr_nonnull(restart_reason_name((enum restart_reason)i));
	for (int i = 0; i < RESTART_STATE_COUNT; i++)
		ck_assert_ptr_nonnull(restart_state_name((enum restart_state)i));
}
END_TEST

/* ---- planned replacements ---- */

struct expected_replace {
	enum replace_action action;
	enum replace_state state;
};

#define KEEP(state)		{ REPLACE_NOTHING, REPLACE_##state }
#define THEN(act, state)	{ REPLACE_##act, REPLACE_##state }

/* BEGIN HELLO PREPARED FREE VACANT SERVED FAILING BROKE TIMER DIED STOP */
static const struct expected_replace replace_cells[REPLACE_STATE_COUNT][REPLACE_EVENT_COUNT] = {
	[REPLACE_NONE] = { THEN(START, STARTING), KEEP(NONE), KEEP(NONE), KEEP(NONE), KEEP(NONE), KEEP(NONE), KEEP(NONE),
		KEEP(NONE), KEEP(NONE), KEEP(NONE), KEEP(NONE) },
	[REPLACE_STARTING] = { KEEP(STARTING), THEN(ANSWER, PREPARING), THEN(KILL, KILLED), KEEP(STARTING),
		THEN(PROMOTE, SUCCEEDING), KEEP(STARTING), KEEP(STARTING), THEN(KILL, KILLED), THEN(KILL, KILLED),
		THEN(FAIL, NONE), THEN(KILL, KILLED) },
	[REPLACE_PREPARING] = { KEEP(PREPARING), THEN(KILL, KILLED), THEN(READY_NOW, READY), KEEP(PREPARING),
		THEN(PROMOTE, SUCCEEDING), KEEP(PREPARING), KEEP(PREPARING), THEN(KILL, KILLED), THEN(KILL, KILLED),
		THEN(FAIL, NONE), THEN(KILL, KILLED) },
	[REPLACE_READY] = { KEEP(READY), THEN(KILL, KILLED), THEN(KILL, KILLED), THEN(TELL_DRAIN, DRAINING),
		THEN(PROMOTE, SUCCEEDING), KEEP(READY), KEEP(READY), THEN(KILL, KILLED), KEEP(READY), THEN(FAIL, NONE),
		THEN(KILL, KILLED) },
	[REPLACE_DRAINING] = { KEEP(DRAINING), THEN(KILL, DRAINING), THEN(KILL, DRAINING), KEEP(DRAINING),
		THEN(PROMOTE, SUCCEEDING), KEEP(DRAINING), KEEP(DRAINING), THEN(KILL, DRAINING), THEN(KILL_OLD, DRAINING),
		KEEP(DRAINING), THEN(KILL, KILLED) },
	[REPLACE_SUCCEEDING] = { KEEP(SUCCEEDING), KEEP(SUCCEEDING), KEEP(SUCCEEDING), KEEP(SUCCEEDING), KEEP(SUCCEEDING),
		THEN(DONE, NONE), THEN(FAIL, NONE), KEEP(SUCCEEDING), KEEP(SUCCEEDING), KEEP(SUCCEEDING), THEN(FAIL, NONE) },
	[REPLACE_KILLED] = { KEEP(KILLED), KEEP(KILLED), KEEP(KILLED), KEEP(KILLED), KEEP(KILLED), KEEP(KILLED), KEEP(KILLED),
		KEEP(KILLED), KEEP(KILLED), THEN(FAIL, NONE), KEEP(KILLED) },
};

START_TEST(every_cell_of_a_replacement)
{
	enum replace_state state = (enum replace_state)(_i / REPLACE_EVENT_COUNT);
	enum replace_event event = (enum replace_event)(_i % REPLACE_EVENT_COUNT);
	const struct expected_replace *expected = &replace_cells[state][event];
	struct replace replace;

	replace_init(&replace, STOP_MS * MS);
	replace.state = state;
	replace.timer_ns = 7;
	ck_assert_int_eq(replace_step(&replace, event, 5000 * MS), expected->action);
	ck_assert_int_eq(replace.state, expected->state);
	if (replace.state == state)
		ck_assert_int_eq(replace.timer_ns, event == REPLACE_TIMER ? 0 : 7);
	ck_assert_ptr_nonnull(replace_state_name(state));
}
END_TEST

START_TEST(a_replacement_has_its_time_limits)
{
	struct replace replace;

	replace_init(&replace, STOP_MS * MS);
	replace_step(&replace, REPLACE_BEGIN, 100 * MS);
	ck_assert_int_eq(replace.timer_ns, 10100 * MS);
	replace_step(&replace, REPLACE_HELLO, 200 * MS);
	ck_assert_int_eq(replace.timer_ns, 10100 * MS);	/* one limit for both */
	replace_step(&replace, REPLACE_PREPARED, 300 * MS);
	ck_assert_int_eq(replace.timer_ns, 0);
	replace_step(&replace, REPLACE_FREE, 400 * MS);
	ck_assert_int_eq(replace.timer_ns, 400 * MS + STOP_MS * MS);
	replace_step(&replace, REPLACE_VACANT, 500 * MS);
	ck_assert_int_eq(replace.timer_ns, 0);
	ck_assert_int_eq(replace_step(&replace, REPLACE_SERVED, 600 * MS), REPLACE_DONE);
}
END_TEST

/* The successor dies: another one at once; that one, too: as any that dies before it serves. */
START_TEST(a_successor_that_dies)
{
	struct restart restart;

	restart_init(&restart, STOP_MS * MS);
	serve(&restart, RESTART_BEGIN, 0);
	ck_assert_int_eq(restart_step(&restart, RESTART_RELEASED, 1), RESTART_SUCCEED);
	ck_assert_int_eq(restart.timer_ns, 1 + 10000 * MS);
	ck_assert_int_eq(restart_step(&restart, RESTART_DIED, 2), RESTART_START);
	ck_assert_int_eq(restart_step(&restart, RESTART_DIED, 3), RESTART_WAIT);
	ck_assert_int_eq(restart.failures, 1);
}
END_TEST

/* Deaths before the one that is replaced do not make its successor one that fails. */
START_TEST(a_successor_begins_anew)
{
	struct restart restart;
	int64_t now = 0;

	restart_init(&restart, STOP_MS * MS);
	ck_assert_int_eq(restart_step(&restart, RESTART_BEGIN, now), RESTART_START);
	for (int i = 0; i < RESTART_FAILING_AFTER; i++) {
		ck_assert_int_eq(restart_step(&restart, RESTART_DIED, now), RESTART_WAIT);
		now = restart.timer_ns;
		ck_assert_int_eq(restart_step(&restart, RESTART_TIMER, now), RESTART_START);
	}
	serve(&restart, RESTART_BEGIN, now);
	ck_assert_int_eq(restart_step(&restart, RESTART_RELEASED, now), RESTART_SUCCEED);
	ck_assert(!restart_failing(&restart));
	ck_assert_int_eq(restart.failures, 0);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("restart");
	TCase *tcase = tcase_create("restart");

	tcase_add_loop_test(tcase, every_cell, 0, RESTART_STATE_COUNT * RESTART_EVENT_COUNT);
	tcase_add_loop_test(tcase, every_death_of_one_that_had_served, 0, 2);
	tcase_add_test(tcase, back_off_doubles_to_ten_seconds);
	tcase_add_test(tcase, at_once_twenty_times_in_ten_seconds);
	tcase_add_test(tcase, recovery_may_take_long);
	tcase_add_test(tcase, a_late_kill_happens_once);
	tcase_add_test(tcase, reasons);
	tcase_add_loop_test(tcase, every_cell_of_a_replacement, 0, REPLACE_STATE_COUNT * REPLACE_EVENT_COUNT);
	tcase_add_test(tcase, a_replacement_has_its_time_limits);
	tcase_add_test(tcase, a_successor_that_dies);
	tcase_add_test(tcase, a_successor_begins_anew);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
