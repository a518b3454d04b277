/* See orders.h. */
#include "supervisor/orders.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"

struct orders {
	struct crew *crew;
	struct orders_hooks hooks;
	struct orders_step *steps;	/* NULL: no order is under way */
	int32_t count;
	int32_t at;			/* the step that is being done */
	int64_t began_ns;
	orders_done *done;
	void *context;
};

struct orders *
orders_new(struct crew *crew, const struct orders_hooks *hooks)
{
	struct orders *orders = calloc(1, sizeof(*orders));

	if (orders == NULL)
		return NULL;
	orders->crew = crew;
	orders->hooks = *hooks;
	return orders;
}

static void
note_failure(struct orders_step *step, const char *why)
{
	step->outcome = ORDERS_FAILED;
	snprintf(step->why, sizeof(step->why), "%s", why);
}

/* The giver may give the next order from within `done`. */
static void
finish(struct orders *orders)
{
	struct orders_step *steps = orders->steps;
	bool ok = true;

	orders->steps = NULL;
	for (int32_t i = 0; i < orders->count; i++)
		ok = ok && steps[i].outcome == ORDERS_REPLACED;
	orders->done(orders->context, steps, orders->count, ok);
	free(steps);
	if (orders->steps == NULL && orders->hooks.idle != NULL)
		orders->hooks.idle(orders->hooks.context);
}

static void on_replaced(void *context, int32_t worker, const char *why, int64_t pause_ns);

/* Begins the step that it is at, or the first one behind it that can begin. Returns false when there is none. */
static bool
begin_step(struct orders *orders)
{
	for (; orders->at < orders->count; orders->at++) {
		struct orders_step *step = &orders->steps[orders->at];

		if (crew_replace(orders->crew, step->worker, on_replaced, orders) == 0)
			return true;
		note_failure(step, replace_refusal(errno));
	}
	return false;
}

static void
on_replaced(void *context, int32_t worker, const char *why, int64_t pause_ns)
{
	struct orders *orders = context;
	struct orders_step *step;

	(void)worker;
	if (orders->steps == NULL)
		return;
	step = &orders->steps[orders->at++];
	if (why != NULL) {
		note_failure(step, why);
	} else {
		step->outcome = ORDERS_REPLACED;
		step->pause_ns = pause_ns;
	}
	if (why != NULL || !begin_step(orders))
		finish(orders);
}

static int
begin(struct orders *orders, int32_t worker, orders_done *done, void *context)
{
	int32_t count = worker == ORDERS_ALL ? crew_count(orders->crew) : 1;

	orders->steps = calloc((size_t)count, sizeof(*orders->steps));
	if (orders->steps == NULL)
		return -1;
	for (int32_t i = 0; i < count; i++)
		orders->steps[i].worker = worker == ORDERS_ALL ? i : worker;
	orders->count = count;
	orders->at = 0;
	orders->began_ns = clock_now_ns();
	orders->done = done;
	orders->context = context;
	return 0;
}

int
orders_restart(struct orders *orders, int32_t worker, orders_done *done, void *context)
{
	int error = 0;

	if (orders->steps != NULL || crew_stopping(orders->crew))
		error = orders->steps != NULL ? EBUSY : ESHUTDOWN;
	else if (begin(orders, worker, done, context) != 0)
		error = errno;
	if (error != 0) {
		errno = error;
		return -1;
	}
	if (worker == ORDERS_ALL) {
		if (!begin_step(orders))
			finish(orders);
		return 0;
	}
	if (crew_replace(orders->crew, worker, on_replaced, orders) == 0)
		return 0;
	error = errno;
	free(orders->steps);
	orders->steps = NULL;
	errno = error;
	return -1;
}

bool
orders_busy(const struct orders *orders, char *text)
{
	if (orders->steps == NULL)
		return false;
	if (text != NULL)
		snprintf(text, ORDERS_TEXT_BYTES, "worker %d is being replaced (%d of %d), begun %lld s ago",
		    (int)orders->steps[orders->at].worker, (int)orders->at + 1, (int)orders->count,
		    (long long)((clock_now_ns() - orders->began_ns) / CLOCK_NS_PER_S));
	return true;
}

void
orders_free(struct orders *orders)
{
	if (orders == NULL)
		return;
	orders->hooks.idle = NULL;
	if (orders->steps != NULL) {
		for (int32_t i = orders->at; i < orders->count; i++)
			note_failure(&orders->steps[i], replace_refusal(ESHUTDOWN));
		finish(orders);
	}
	free(orders);
}
