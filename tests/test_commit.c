/* Group commit with a clock of the test's own: every rule by which a barrier begins, and whom it covers. */
#include "tests/unit.h"
#include "worker/commit.h"

enum { INTERVAL = 1000, T0 = 5000 };

static struct commit commit;

START_TEST(nothing_written_nothing_due)
{
	commit_init(&commit, INTERVAL, 1, 42);
	ck_assert(!commit_due(&commit, INT64_MAX));
	ck_assert_int_eq(commit_deadline_ns(&commit), INT64_MAX);
	ck_assert_int_eq(commit.durable_end, 42);
}
END_TEST

/* Both flush keys off: what nobody waits for never asks for a barrier. */
START_TEST(written_without_keys_is_never_due)
{
	commit_init(&commit, 0, 0, 0);
	commit_written(&commit, 1000000, false, T0);
	ck_assert(!commit_due(&commit, INT64_MAX - 1));
	ck_assert_int_eq(commit_deadline_ns(&commit), INT64_MAX);
}
END_TEST

START_TEST(a_waiting_producer_begins_one_at_once)
{
	commit_init(&commit, 0, 0, 10);
	commit_written(&commit, 11, true, T0);
	ck_assert(commit_due(&commit, T0));
	commit_begun(&commit);
	ck_assert_int_eq(commit.running_end, 11);
	ck_assert(!commit_due(&commit, T0));
	commit_ended(&commit, 11);
	ck_assert_int_eq(commit.durable_end, 11);
	ck_assert(!commit_due(&commit, INT64_MAX - 1));
}
END_TEST

/* An unforced record ahead of the one that is waited for is covered with it; one behind it is as well. */
START_TEST(a_barrier_covers_everything_written)
{
	commit_init(&commit, INTERVAL, 0, 0);
	commit_written(&commit, 1, false, T0);
	commit_written(&commit, 2, true, T0 + 1);
	commit_written(&commit, 3, false, T0 + 2);
	ck_assert(commit_due(&commit, T0 + 2));
	commit_begun(&commit);
	ck_assert_int_eq(commit.running_end, 3);
	commit_ended(&commit, 3);
	ck_assert(!commit_due(&commit, INT64_MAX - 1));
	ck_assert_int_eq(commit_deadline_ns(&commit), INT64_MAX);
}
END_TEST

/* Never two at a time: what arrives meanwhile is the next group, due as soon as the first has ended. */
START_TEST(the_next_group_gathers_while_one_runs)
{
	commit_init(&commit, 0, 0, 0);
	commit_written(&commit, 1, true, T0);
	commit_begun(&commit);
	for (int64_t end = 2; end <= 50; end++) {
		commit_written(&commit, end, true, T0 + end);
		ck_assert(!commit_due(&commit, INT64_MAX - 1));
		ck_assert_int_eq(commit_deadline_ns(&commit), INT64_MAX);
	}
	ck_assert_int_eq(commit.running_end, 1);
	commit_ended(&commit, 1);
	ck_assert(commit_due(&commit, T0 + 50));
	commit_begun(&commit);
	ck_assert_int_eq(commit.running_end, 50);
	commit_ended(&commit, 50);
	ck_assert(!commit_due(&commit, INT64_MAX - 1));
}
END_TEST

/* What was waited for stays wanted although later records are not. */
START_TEST(a_later_write_that_nobody_waits_for_does_not_hide_a_wanted_one)
{
	commit_init(&commit, 0, 0, 0);
	commit_written(&commit, 1, false, T0);
	commit_begun(&commit);
	commit_written(&commit, 2, true, T0 + 1);
	commit_written(&commit, 3, false, T0 + 2);
	commit_ended(&commit, 1);
	ck_assert(commit_due(&commit, T0 + 2));
}
END_TEST

/* A wanted record that the running barrier happens to cover asks for no second one. */
START_TEST(no_barrier_for_what_is_durable_already)
{
	commit_init(&commit, 0, 0, 0);
	commit_written(&commit, 5, true, T0);
	commit_begun(&commit);
	commit_ended(&commit, 5);
	commit_written(&commit, 6, false, T0 + 1);
	ck_assert(!commit_due(&commit, INT64_MAX - 1));
}
END_TEST

START_TEST(the_interval_counts_from_the_oldest_unforced_record)
{
	commit_init(&commit, INTERVAL, 0, 0);
	commit_written(&commit, 1, false, T0);
	commit_written(&commit, 2, false, T0 + INTERVAL - 1);
	ck_assert_int_eq(commit_deadline_ns(&commit), T0 + INTERVAL);
	ck_assert(!commit_due(&commit, T0 + INTERVAL - 1));
	ck_assert(commit_due(&commit, T0 + INTERVAL));
	ck_assert(commit_due(&commit, T0 + 10 * INTERVAL));
}
END_TEST

/* Under steady load the interval of what the barrier does not cover began when that was written, not when it ended. */
START_TEST(the_interval_of_the_next_group_begins_during_the_barrier)
{
	commit_init(&commit, INTERVAL, 0, 0);
	commit_written(&commit, 1, false, T0);
	commit_begun(&commit);
	commit_written(&commit, 2, false, T0 + 300);
	commit_written(&commit, 3, false, T0 + 400);
	ck_assert_int_eq(commit_deadline_ns(&commit), INT64_MAX);
	commit_ended(&commit, 1);
	ck_assert_int_eq(commit_deadline_ns(&commit), T0 + 300 + INTERVAL);
	ck_assert(!commit_due(&commit, T0 + 300 + INTERVAL - 1));
	ck_assert(commit_due(&commit, T0 + 300 + INTERVAL));
	commit_begun(&commit);
	commit_ended(&commit, 3);
	ck_assert_int_eq(commit_deadline_ns(&commit), INT64_MAX);
	/* And the next record begins a new one. */
	commit_written(&commit, 4, false, T0 + 9000);
	ck_assert_int_eq(commit_deadline_ns(&commit), T0 + 9000 + INTERVAL);
}
END_TEST

/* A barrier longer than the interval: the next is due the moment it has ended. */
START_TEST(a_slow_barrier_is_followed_at_once)
{
	commit_init(&commit, INTERVAL, 0, 0);
	commit_written(&commit, 1, false, T0);
	commit_begun(&commit);
	commit_written(&commit, 2, false, T0 + 1);
	commit_ended(&commit, 1);
	ck_assert(commit_due(&commit, T0 + 5 * INTERVAL));
}
END_TEST

START_TEST(so_many_unforced_records)
{
	commit_init(&commit, 0, 10, 100);
	commit_written(&commit, 109, false, T0);
	ck_assert(!commit_due(&commit, INT64_MAX - 1));
	commit_written(&commit, 110, false, T0);
	ck_assert(commit_due(&commit, T0));
	commit_begun(&commit);
	commit_written(&commit, 119, false, T0);
	commit_ended(&commit, 110);
	ck_assert(!commit_due(&commit, T0));
	commit_written(&commit, 120, false, T0);
	ck_assert(commit_due(&commit, T0));
}
END_TEST

START_TEST(one_record_is_enough_with_flush_records_1)
{
	commit_init(&commit, 0, 1, 0);
	commit_written(&commit, 1, false, T0);
	ck_assert(commit_due(&commit, T0));
}
END_TEST

/* A roll that could not make its new file: everything is as unforced and as old as it was. */
START_TEST(a_roll_that_failed_before_it_forced_keeps_the_interval)
{
	commit_init(&commit, INTERVAL, 0, 0);
	commit_written(&commit, 3, false, T0);
	commit_begun(&commit);
	commit_ended(&commit, 0);
	ck_assert_int_eq(commit_deadline_ns(&commit), T0 + INTERVAL);
	ck_assert(commit_due(&commit, T0 + INTERVAL));
	/* What is written behind it does not make it younger. */
	commit_written(&commit, 4, false, T0 + 500);
	ck_assert_int_eq(commit_deadline_ns(&commit), T0 + INTERVAL);
}
END_TEST

START_TEST(a_roll_that_failed_keeps_what_is_wanted)
{
	commit_init(&commit, 0, 0, 0);
	commit_written(&commit, 3, true, T0);
	commit_begun(&commit);
	commit_ended(&commit, 0);
	ck_assert(commit_due(&commit, T0));
}
END_TEST

/* A roll with a batch makes more durable than was written when it began. */
START_TEST(a_roll_with_a_batch_ends_behind_what_it_began_with)
{
	commit_init(&commit, INTERVAL, 1, 0);
	commit_written(&commit, 3, false, T0);
	commit_begun(&commit);
	commit.written_end = 103;
	commit_ended(&commit, 103);
	ck_assert_int_eq(commit.durable_end, 103);
	ck_assert(!commit_due(&commit, INT64_MAX - 1));
	ck_assert_int_eq(commit_deadline_ns(&commit), INT64_MAX);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("commit");
	TCase *tests = tcase_create("commit");

	tcase_add_test(tests, nothing_written_nothing_due);
	tcase_add_test(tests, written_without_keys_is_never_due);
	tcase_add_test(tests, a_waiting_producer_begins_one_at_once);
	tcase_add_test(tests, a_barrier_covers_everything_written);
	tcase_add_test(tests, the_next_group_gathers_while_one_runs);
	tcase_add_test(tests, a_later_write_that_nobody_waits_for_does_not_hide_a_wanted_one);
	tcase_add_test(tests, no_barrier_for_what_is_durable_already);
	tcase_add_test(tests, the_interval_counts_from_the_oldest_unforced_record);
	tcase_add_test(tests, the_interval_of_the_next_group_begins_during_the_barrier);
	tcase_add_test(tests, a_slow_barrier_is_followed_at_once);
	tcase_add_test(tests, so_many_unforced_records);
	tcase_add_test(tests, one_record_is_enough_with_flush_records_1);
	tcase_add_test(tests, a_roll_that_failed_before_it_forced_keeps_the_interval);
	tcase_add_test(tests, a_roll_that_failed_keeps_what_is_wanted);
	tcase_add_test(tests, a_roll_with_a_batch_ends_behind_what_it_began_with);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
