/*
 * When a bundle is complete, and when a lost broker is tried again: policies, with a clock that the tests set.
 */
#include <check.h>
#include <string.h>

#include "client/lib/accumulator.h"
#include "client/lib/backoff.h"
#include "unit.h"

enum { HEAD_BYTES = 24, MS = 1000000 };

static struct lb_accumulator accumulator;
static struct lb_pool pool;

static void
begin(struct lb_bundle *bundle, int64_t now_ns)
{
	memset(bundle, 0, sizeof *bundle);
	ck_assert(lb_bundle_begin(bundle, &pool, HEAD_BYTES, 0));
	bundle->begun_ns = now_ns;
	lb_accumulator_open(&accumulator, bundle);
}

static void
put(struct lb_bundle *bundle, size_t bytes)
{
	static const char zeros[1000];

	ck_assert(lb_accumulator_has_room(&accumulator, bundle, HEAD_BYTES, bytes));
	ck_assert(lb_bundle_put(bundle, &pool, zeros, bytes));
}

static void
close_one(struct lb_bundle *bundle)
{
	lb_accumulator_close(&accumulator, bundle);
	lb_bundle_end(bundle, &pool);
}

START_TEST(accumulator_full_by_records)
{
	struct lb_bundle bundle;

	lb_accumulator_init(&accumulator, 3, 100000, 5 * MS);
	begin(&bundle, 0);
	put(&bundle, 1);
	put(&bundle, 1);
	ck_assert(!lb_accumulator_is_full(&accumulator, &bundle, HEAD_BYTES));
	put(&bundle, 1);
	ck_assert(lb_accumulator_is_full(&accumulator, &bundle, HEAD_BYTES));
	ck_assert(!lb_accumulator_has_room(&accumulator, &bundle, HEAD_BYTES, 1));
	close_one(&bundle);
}
END_TEST

START_TEST(accumulator_full_by_bytes_with_lengths)
{
	struct lb_bundle bundle;

	lb_accumulator_init(&accumulator, 1000, 100, 5 * MS);
	begin(&bundle, 0);
	put(&bundle, 46);
	ck_assert(lb_accumulator_has_room(&accumulator, &bundle, HEAD_BYTES, 46));
	ck_assert(!lb_accumulator_has_room(&accumulator, &bundle, HEAD_BYTES, 47));
	put(&bundle, 41);
	ck_assert(!lb_accumulator_is_full(&accumulator, &bundle, HEAD_BYTES));
	put(&bundle, 1);
	ck_assert(lb_accumulator_is_full(&accumulator, &bundle, HEAD_BYTES));
	close_one(&bundle);
}
END_TEST

START_TEST(C08_linger_counts_from_the_first_record)
{
	struct lb_bundle first, second;

	lb_accumulator_init(&accumulator, 1000, 100000, 5 * MS);
	ck_assert_int_eq(lb_accumulator_due_ns(&accumulator), INT64_MAX);
	begin(&first, 100 * MS);
	put(&first, 1);
	begin(&second, 102 * MS);
	put(&first, 1);
	ck_assert_int_eq(lb_accumulator_due_ns(&accumulator), 105 * MS);
	ck_assert_ptr_null(lb_accumulator_due(&accumulator, 105 * MS - 1));
	ck_assert_ptr_eq(lb_accumulator_due(&accumulator, 105 * MS), &first);
	close_one(&first);
	ck_assert_ptr_null(lb_accumulator_due(&accumulator, 107 * MS - 1));
	ck_assert_ptr_eq(lb_accumulator_due(&accumulator, 200 * MS), &second);
	close_one(&second);
	ck_assert_ptr_null(lb_accumulator_due(&accumulator, 200 * MS));
}
END_TEST

/* A bundle that is due takes records until it is closed: one that comes at that moment is in it, or in the next, which is due later. */
START_TEST(C08_record_at_the_moment_of_the_timer)
{
	struct lb_bundle bundle, next;

	lb_accumulator_init(&accumulator, 1000, 100000, 5 * MS);
	begin(&bundle, 0);
	put(&bundle, 1);
	ck_assert_ptr_eq(lb_accumulator_due(&accumulator, 5 * MS), &bundle);
	put(&bundle, 1);
	ck_assert_int_eq(bundle.record_count, 2);
	close_one(&bundle);
	begin(&next, 5 * MS);
	put(&next, 1);
	ck_assert_ptr_null(lb_accumulator_due(&accumulator, 5 * MS));
	ck_assert_ptr_eq(lb_accumulator_due(&accumulator, 10 * MS), &next);
	close_one(&next);
}
END_TEST

START_TEST(accumulator_without_linger_is_due_at_once)
{
	struct lb_bundle bundle;

	lb_accumulator_init(&accumulator, 1000, 100000, 0);
	begin(&bundle, 7);
	ck_assert_ptr_eq(lb_accumulator_due(&accumulator, 7), &bundle);
	close_one(&bundle);
}
END_TEST

START_TEST(backoff_doubles_up_to_five_seconds_and_begins_anew)
{
	static const int64_t waits_ms[] = { 100, 200, 400, 800, 1600, 3200, 5000, 5000 };
	struct lb_backoff backoff;

	lb_backoff_init(&backoff, unit_seed());
	ck_assert_int_eq(backoff.due_ns, 0);
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < sizeof waits_ms / sizeof waits_ms[0]; i++) {
			int64_t now_ns = (int64_t)i * 1000 * MS;

			lb_backoff_failed(&backoff, now_ns);
			ck_assert_int_gt(backoff.due_ns - now_ns, waits_ms[i] * MS / 2);
			ck_assert_int_le(backoff.due_ns - now_ns, waits_ms[i] * MS);
		}
		lb_backoff_worked(&backoff);
	}
}
END_TEST

START_TEST(backoff_differs_between_clients)
{
	struct lb_backoff backoffs[8];
	int different = 0;

	for (int i = 0; i < 8; i++) {
		lb_backoff_init(&backoffs[i], (uint64_t)i);
		lb_backoff_failed(&backoffs[i], 0);
		different += backoffs[i].due_ns != backoffs[0].due_ns;
	}
	ck_assert_int_eq(different, 7);
}
END_TEST

static void
set_up(void)
{
	lb_pool_init(&pool, 1 << 20);
}

static void
tear_down(void)
{
	lb_pool_free(&pool);
}

int
main(void)
{
	Suite *suite = suite_create("lib_accumulator");
	TCase *tcase = tcase_create("policy");

	tcase_set_timeout(tcase, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, accumulator_full_by_records);
	tcase_add_test(tcase, accumulator_full_by_bytes_with_lengths);
	tcase_add_test(tcase, C08_linger_counts_from_the_first_record);
	tcase_add_test(tcase, C08_record_at_the_moment_of_the_timer);
	tcase_add_test(tcase, accumulator_without_linger_is_due_at_once);
	tcase_add_test(tcase, backoff_doubles_up_to_five_seconds_and_begins_anew);
	tcase_add_test(tcase, backoff_differs_between_clients);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
