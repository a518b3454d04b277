/* Held readers: who is due, who stays, who is removed, in which order. */
#include <stdbool.h>
#include <string.h>

#include "tests/unit.h"
#include "worker/hold.h"

enum { HOLDS = 200 };

static struct holds holds;
static struct hold held[HOLDS];
/* Only its address counts. */
static struct lane *const lane = (struct lane *)&holds;

static void
begin(void)
{
	memset(&holds, 0, sizeof(holds));
	memset(held, 0, sizeof(held));
}

static size_t
length(const struct hold *chain)
{
	size_t n = 0;

	for (; chain != NULL; chain = chain->next)
		n++;
	return n;
}

START_TEST(an_empty_list)
{
	ck_assert_ptr_null(hold_take_due(&holds));
	ck_assert_ptr_null(hold_take_all(&holds));
	hold_appended(&holds, 1000);
	ck_assert_ptr_null(hold_take_due(&holds));
}
END_TEST

START_TEST(due_with_the_last_missing_byte)
{
	hold_appended(&holds, 500);
	hold_add(&holds, &held[0], lane, 100);
	ck_assert_ptr_eq(held[0].lane, lane);
	ck_assert_ptr_null(hold_take_due(&holds));
	hold_appended(&holds, 99);
	ck_assert_ptr_null(hold_take_due(&holds));
	hold_appended(&holds, 1);
	ck_assert_ptr_eq(hold_take_due(&holds), &held[0]);
	ck_assert_ptr_null(held[0].lane);
	ck_assert_ptr_null(held[0].next);
	ck_assert_ptr_null(hold_take_due(&holds));
	ck_assert_ptr_null(holds.first);
}
END_TEST

START_TEST(due_at_once_when_nothing_is_missing)
{
	hold_appended(&holds, 7);
	hold_add(&holds, &held[0], lane, 1);
	hold_add(&holds, &held[1], lane, 0);
	ck_assert_ptr_eq(hold_take_due(&holds), &held[1]);
	ck_assert_ptr_null(held[1].next);
	ck_assert_ptr_null(hold_take_due(&holds));
}
END_TEST

/* Who has waited longest is answered first. */
START_TEST(the_oldest_comes_first)
{
	const struct hold *chain;

	for (size_t i = 0; i < HOLDS; i++)
		hold_add(&holds, &held[i], lane, 1);
	hold_appended(&holds, 1);
	chain = hold_take_due(&holds);
	for (size_t i = 0; i < HOLDS; i++, chain = chain->next)
		ck_assert_ptr_eq(chain, &held[i]);
	ck_assert_ptr_null(chain);
}
END_TEST

START_TEST(each_when_its_own_bytes_are_there)
{
	for (size_t i = 0; i < HOLDS; i++)
		hold_add(&holds, &held[i], lane, (int64_t)((i * 7) % HOLDS) + 1);
	for (size_t n = 1; n <= HOLDS; n++) {
		const struct hold *chain;

		hold_appended(&holds, 1);
		chain = hold_take_due(&holds);
		ck_assert_uint_eq(length(chain), 1);
		ck_assert_uint_eq((size_t)((chain - held) * 7) % HOLDS + 1, n);
	}
	ck_assert_ptr_null(holds.first);
}
END_TEST

/* A hold that came last with the least to wait for must not be missed, nor one left behind by a taken one. */
START_TEST(a_nearer_one_comes_later)
{
	hold_add(&holds, &held[0], lane, 100);
	hold_add(&holds, &held[1], lane, 10);
	hold_add(&holds, &held[2], lane, 50);
	hold_appended(&holds, 10);
	ck_assert_ptr_eq(hold_take_due(&holds), &held[1]);
	hold_appended(&holds, 40);
	ck_assert_ptr_eq(hold_take_due(&holds), &held[2]);
	hold_appended(&holds, 50);
	ck_assert_ptr_eq(hold_take_due(&holds), &held[0]);
}
END_TEST

START_TEST(removed_from_either_end_and_the_middle)
{
	const struct hold *chain;

	for (size_t i = 0; i < 5; i++)
		hold_add(&holds, &held[i], lane, 1);
	hold_remove(&held[4]);
	hold_remove(&held[0]);
	hold_remove(&held[2]);
	ck_assert_ptr_null(held[2].lane);
	hold_appended(&holds, 1);
	chain = hold_take_due(&holds);
	ck_assert_uint_eq(length(chain), 2);
	ck_assert_ptr_eq(chain, &held[1]);
	ck_assert_ptr_eq(chain->next, &held[3]);
}
END_TEST

/* The nearest one has been removed: the others are found all the same; and a list that became empty starts afresh. */
START_TEST(removal_does_not_hide_the_others)
{
	hold_add(&holds, &held[0], lane, 10);
	hold_add(&holds, &held[1], lane, 100);
	hold_remove(&held[0]);
	hold_appended(&holds, 10);
	ck_assert_ptr_null(hold_take_due(&holds));
	hold_appended(&holds, 90);
	ck_assert_ptr_eq(hold_take_due(&holds), &held[1]);
	hold_add(&holds, &held[0], lane, 5);
	hold_remove(&held[0]);
	hold_add(&holds, &held[2], lane, 100);
	hold_appended(&holds, 5);
	ck_assert_ptr_null(hold_take_due(&holds));
	hold_appended(&holds, 95);
	ck_assert_ptr_eq(hold_take_due(&holds), &held[2]);
}
END_TEST

START_TEST(all_of_them_whatever_they_wait_for)
{
	for (size_t i = 0; i < HOLDS; i++)
		hold_add(&holds, &held[i], lane, i == 3 ? INT64_MAX / 2 : (int64_t)i + 1);
	ck_assert_uint_eq(length(hold_take_all(&holds)), HOLDS);
	ck_assert_ptr_null(holds.first);
	for (size_t i = 0; i < HOLDS; i++)
		ck_assert_ptr_null(held[i].lane);
	/* And it works on. */
	hold_add(&holds, &held[0], lane, 1);
	hold_appended(&holds, 1);
	ck_assert_ptr_eq(hold_take_due(&holds), &held[0]);
}
END_TEST

START_TEST(those_below_an_offset_whatever_they_wait_for)
{
	const struct hold *chain;

	for (int64_t i = 0; i < 10; i++) {
		held[i].offset = i;
		hold_add(&holds, &held[i], lane, 100 - i);
	}
	ck_assert_ptr_null(hold_take_below(&holds, 0));
	chain = hold_take_below(&holds, 4);
	ck_assert_uint_eq(length(chain), 4);
	for (const struct hold *h = chain; h != NULL; h = h->next)
		ck_assert_int_lt(h->offset, 4);
	/* The others are due when they were. */
	hold_appended(&holds, 90);
	ck_assert_ptr_null(hold_take_due(&holds));
	hold_appended(&holds, 1);
	ck_assert_ptr_eq(hold_take_due(&holds), &held[9]);
	ck_assert_uint_eq(length(hold_take_below(&holds, INT64_MAX)), 5);
	ck_assert_ptr_null(holds.first);
}
END_TEST

/* What is held again while the chain is walked does not get into the chain. */
START_TEST(held_again_while_the_chain_is_walked)
{
	struct hold *next;
	size_t seen = 0;

	for (size_t i = 0; i < 10; i++)
		hold_add(&holds, &held[i], lane, 1);
	hold_appended(&holds, 1);
	for (struct hold *h = hold_take_due(&holds); h != NULL; h = next) {
		next = h->next;
		hold_add(&holds, h, lane, 0);
		seen++;
	}
	ck_assert_uint_eq(seen, 10);
	ck_assert_uint_eq(length(hold_take_due(&holds)), 10);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("hold");
	TCase *tests = tcase_create("hold");

	tcase_add_checked_fixture(tests, begin, NULL);
	tcase_add_test(tests, an_empty_list);
	tcase_add_test(tests, due_with_the_last_missing_byte);
	tcase_add_test(tests, due_at_once_when_nothing_is_missing);
	tcase_add_test(tests, the_oldest_comes_first);
	tcase_add_test(tests, each_when_its_own_bytes_are_there);
	tcase_add_test(tests, a_nearer_one_comes_later);
	tcase_add_test(tests, removed_from_either_end_and_the_middle);
	tcase_add_test(tests, removal_does_not_hide_the_others);
	tcase_add_test(tests, all_of_them_whatever_they_wait_for);
	tcase_add_test(tests, those_below_an_offset_whatever_they_wait_for);
	tcase_add_test(tests, held_again_while_the_chain_is_walked);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
