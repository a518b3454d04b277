/* When a log that has failed is opened again, as policy with a clock of the test's. */
#include <check.h>

#include "common/clock.h"
#include "tests/unit.h"
#include "worker/backoff.h"

static const int64_t S = CLOCK_NS_PER_S;
static int64_t now;

/* The try that is due in `wait_s` and not before begins. */
static void
expect_try(struct backoff *backoff, int64_t wait_s)
{
	ck_assert(!backoff_due(backoff, now));
	ck_assert(!backoff_due(backoff, now + wait_s * S - 1));
	now += wait_s * S;
	ck_assert(backoff_due(backoff, now));
	backoff_begun(backoff);
	ck_assert(!backoff_due(backoff, now + 1000 * S));
}

START_TEST(nothing_is_due_where_nothing_has_failed)
{
	struct backoff backoff = { 0 };

	ck_assert(!backoff_due(&backoff, INT64_MAX));
	backoff_worked(&backoff, 5 * S);
	ck_assert(!backoff_due(&backoff, INT64_MAX));
}
END_TEST

START_TEST(twice_as_long_each_time_up_to_half_a_minute)
{
	const int64_t waits_s[] = { 1, 2, 4, 8, 16, 30, 30, 30 };
	struct backoff backoff = { 0 };

	now = 1000 * S;
	for (size_t i = 0; i < sizeof(waits_s) / sizeof(waits_s[0]); i++) {
		backoff_failed(&backoff, now);
		expect_try(&backoff, waits_s[i]);
		now += 3 * S;	/* so long it takes */
	}
}
END_TEST

START_TEST(a_failure_that_is_told_twice_is_one)
{
	struct backoff backoff = { 0 };

	now = 1000 * S;
	backoff_failed(&backoff, now);
	backoff_failed(&backoff, now + S / 2);
	expect_try(&backoff, 1);
	backoff_failed(&backoff, now);
	backoff_failed(&backoff, now);
	expect_try(&backoff, 2);
}
END_TEST

START_TEST(what_fails_again_soon_has_not_worked)
{
	struct backoff backoff = { 0 };

	now = 1000 * S;
	for (int i = 0; i < 4; i++) {
		backoff_failed(&backoff, now);
		expect_try(&backoff, 1 << i);
		backoff_worked(&backoff, now);
		now += 59 * S;
	}
	/* A minute is enough. */
	now += S;
	backoff_failed(&backoff, now);
	expect_try(&backoff, 1);
	/* But not one long ago, with failures since. */
	backoff_failed(&backoff, now + 1000 * S);
	now += 1000 * S;
	expect_try(&backoff, 2);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("backoff");
	TCase *tests = tcase_create("backoff");

	tcase_add_test(tests, nothing_is_due_where_nothing_has_failed);
	tcase_add_test(tests, twice_as_long_each_time_up_to_half_a_minute);
	tcase_add_test(tests, a_failure_that_is_told_twice_is_one);
	tcase_add_test(tests, what_fails_again_soon_has_not_worked);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
