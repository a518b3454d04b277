/* Orders, against a crew that is played here. */
#include "supervisor/orders.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { WORKERS = 4 };

/* What crew.h promises, as far as orders use it. */
struct crew {
	bool stopping;
	int refusals[WORKERS];		/* errno, or 0 */
	int asked[WORKERS];
	int32_t under_way;		/* -1: none */
	crew_replaced *replaced;
	void *context;
};

static struct crew crew;
static struct orders *orders;
static struct orders_step told[WORKERS];
static int32_t told_count;
static int answers, idles;
static bool told_ok;

int
crew_replace(struct crew *of, int32_t worker, crew_replaced *replaced, void *context)
{
	if (worker < 0 || worker >= WORKERS) {
		errno = EINVAL;
		return -1;
	}
	of->asked[worker]++;
	if (of->refusals[worker] != 0) {
		errno = of->refusals[worker];
		return -1;
	}
	ck_assert_int_eq(of->under_way, -1);
	of->under_way = worker;
	of->replaced = replaced;
	of->context = context;
	return 0;
}

int32_t
crew_count(const struct crew *of)
{
	(void)of;
	return WORKERS;
}

bool
crew_stopping(const struct crew *of)
{
	return of->stopping;
}

static void
end_replacement(int32_t worker, const char *why)
{
	ck_assert_int_eq(crew.under_way, worker);
	crew.under_way = -1;
	crew.replaced(crew.context, worker, why, (worker + 1) * 1000);
}

static void
on_done(void *context, const struct orders_step *steps, int32_t count, bool ok)
{
	ck_assert_ptr_eq(context, &crew);
	ck_assert(!orders_busy(orders, NULL));	/* the next one may be given in here */
	memcpy(told, steps, (size_t)count * sizeof(*steps));
	told_count = count;
	told_ok = ok;
	answers++;
}

static void
on_idle(void *context)
{
	ck_assert_ptr_eq(context, &idles);
	ck_assert(!orders_busy(orders, NULL));
	idles++;
}

static void
set_up(void)
{
	const struct orders_hooks hooks = { &idles, on_idle };

	crew = (struct crew){ .under_way = -1 };
	answers = idles = 0;
	orders = orders_new(&crew, &hooks);
	ck_assert_ptr_nonnull(orders);
}

static void
tear_down(void)
{
	orders_free(orders);
}

static void
expect_step(int32_t at, int32_t worker, enum orders_outcome outcome)
{
	ck_assert_int_lt(at, told_count);
	ck_assert_int_eq(told[at].worker, worker);
	ck_assert_int_eq(told[at].outcome, outcome);
}

START_TEST(one_worker)
{
	char text[ORDERS_TEXT_BYTES];

	ck_assert(!orders_busy(orders, text));
	ck_assert_int_eq(orders_restart(orders, 2, on_done, &crew), 0);
	ck_assert(orders_busy(orders, text));
	ck_assert_ptr_nonnull(strstr(text, "worker 2 is being replaced (1 of 1)"));
	ck_assert_int_eq(answers, 0);
	end_replacement(2, NULL);
	ck_assert_int_eq(answers, 1);
	ck_assert_int_eq(idles, 1);
	ck_assert(told_ok);
	expect_step(0, 2, ORDERS_REPLACED);
	ck_assert_int_eq(told[0].pause_ns, 3000);
	ck_assert_int_eq(told_count, 1);
}
END_TEST

START_TEST(one_worker_that_cannot_be_replaced)
{
	ck_assert_int_eq(orders_restart(orders, 0, on_done, &crew), 0);
	end_replacement(0, "its replacement has died");
	ck_assert(!told_ok);
	expect_step(0, 0, ORDERS_FAILED);
	ck_assert_str_eq(told[0].why, "its replacement has died");
}
END_TEST

/* What crew_replace refuses is told at once, and nothing is under way. */
START_TEST(refusals)
{
	static const int errors[] = { EBUSY, ENOTCONN, EMFILE };

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		crew.refusals[1] = errors[i];
		ck_assert_int_eq(orders_restart(orders, 1, on_done, &crew), -1);
		ck_assert_int_eq(errno, errors[i]);
	}
	ck_assert_int_eq(orders_restart(orders, WORKERS, on_done, &crew), -1);
	ck_assert_int_eq(errno, EINVAL);
	crew.stopping = true;
	ck_assert_int_eq(orders_restart(orders, 0, on_done, &crew), -1);
	ck_assert_int_eq(errno, ESHUTDOWN);
	ck_assert_int_eq(answers, 0);
	ck_assert(!orders_busy(orders, NULL));
}
END_TEST

START_TEST(one_order_at_a_time)
{
	ck_assert_int_eq(orders_restart(orders, 0, on_done, &crew), 0);
	ck_assert_int_eq(orders_restart(orders, 1, on_done, &crew), -1);
	ck_assert_int_eq(errno, EBUSY);
	ck_assert_int_eq(orders_restart(orders, ORDERS_ALL, on_done, &crew), -1);
	ck_assert_int_eq(errno, EBUSY);
	end_replacement(0, NULL);
	ck_assert_int_eq(orders_restart(orders, 1, on_done, &crew), 0);
	end_replacement(1, NULL);
	ck_assert_int_eq(answers, 2);
}
END_TEST

START_TEST(all_in_turn)
{
	ck_assert_int_eq(orders_restart(orders, ORDERS_ALL, on_done, &crew), 0);
	for (int32_t i = 0; i < WORKERS; i++) {
		ck_assert_int_eq(answers, 0);
		end_replacement(i, NULL);
	}
	ck_assert_int_eq(answers, 1);
	ck_assert(told_ok);
	for (int32_t i = 0; i < WORKERS; i++)
		expect_step(i, i, ORDERS_REPLACED);
}
END_TEST

/* What the first one does not survive is not tried on the others. */
START_TEST(all_end_with_the_first_that_fails)
{
	ck_assert_int_eq(orders_restart(orders, ORDERS_ALL, on_done, &crew), 0);
	end_replacement(0, NULL);
	end_replacement(1, "no");
	ck_assert_int_eq(answers, 1);
	ck_assert(!told_ok);
	expect_step(0, 0, ORDERS_REPLACED);
	expect_step(1, 1, ORDERS_FAILED);
	expect_step(2, 2, ORDERS_NOT_TRIED);
	expect_step(3, 3, ORDERS_NOT_TRIED);
	ck_assert_int_eq(crew.asked[2] + crew.asked[3], 0);
}
END_TEST

/* One that is away is passed over. */
START_TEST(all_but_those_that_do_not_serve)
{
	crew.refusals[0] = crew.refusals[3] = ENOTCONN;
	ck_assert_int_eq(orders_restart(orders, ORDERS_ALL, on_done, &crew), 0);
	end_replacement(1, NULL);
	end_replacement(2, NULL);
	ck_assert_int_eq(answers, 1);
	ck_assert(!told_ok);
	expect_step(0, 0, ORDERS_FAILED);
	ck_assert_str_eq(told[0].why, replace_refusal(ENOTCONN));
	expect_step(1, 1, ORDERS_REPLACED);
	expect_step(2, 2, ORDERS_REPLACED);
	expect_step(3, 3, ORDERS_FAILED);
}
END_TEST

START_TEST(all_when_none_serves)
{
	for (int i = 0; i < WORKERS; i++)
		crew.refusals[i] = ENOTCONN;
	ck_assert_int_eq(orders_restart(orders, ORDERS_ALL, on_done, &crew), 0);
	ck_assert_int_eq(answers, 1);
	ck_assert_int_eq(idles, 1);
	ck_assert(!told_ok);
}
END_TEST

/* A stop in the middle: the crew answers what it had begun, and refuses the rest. */
START_TEST(the_broker_stops_meanwhile)
{
	ck_assert_int_eq(orders_restart(orders, ORDERS_ALL, on_done, &crew), 0);
	end_replacement(0, NULL);
	crew.stopping = true;
	for (int i = 0; i < WORKERS; i++)
		crew.refusals[i] = ESHUTDOWN;
	end_replacement(1, NULL);
	ck_assert_int_eq(answers, 1);
	ck_assert(!told_ok);
	expect_step(1, 1, ORDERS_REPLACED);
	expect_step(2, 2, ORDERS_FAILED);
}
END_TEST

/* Whoever waits is told, even if the crew never answers. */
START_TEST(freed_in_the_middle)
{
	const struct orders_hooks none = { NULL, NULL };
	struct orders *others = orders_new(&crew, &none);

	ck_assert_ptr_nonnull(others);
	ck_assert_int_eq(orders_restart(others, ORDERS_ALL, on_done, &crew), 0);
	end_replacement(0, NULL);
	orders_free(others);
	ck_assert_int_eq(answers, 1);
	ck_assert(!told_ok);
	expect_step(0, 0, ORDERS_REPLACED);
	expect_step(1, 1, ORDERS_FAILED);
	expect_step(3, 3, ORDERS_FAILED);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("orders");
	TCase *tcase = tcase_create("orders");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, one_worker);
	tcase_add_test(tcase, one_worker_that_cannot_be_replaced);
	tcase_add_test(tcase, refusals);
	tcase_add_test(tcase, one_order_at_a_time);
	tcase_add_test(tcase, all_in_turn);
	tcase_add_test(tcase, all_end_with_the_first_that_fails);
	tcase_add_test(tcase, all_but_those_that_do_not_serve);
	tcase_add_test(tcase, all_when_none_serves);
	tcase_add_test(tcase, the_broker_stops_meanwhile);
	tcase_add_test(tcase, freed_in_the_middle);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
