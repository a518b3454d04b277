/*
 * Turns among the partitions, a batch out with the application, and the stop.
 */
#include <inttypes.h>

#include "client/lib/error.h"
#include "client/lib/subscription.h"
#include "common/clock.h"

/* Once per stop. The error stays for lb_subscription_next. */
static void
stop(struct lb_subscription *subscription, const struct lb_error *error)
{
	subscription->stopped = true;
	subscription->error = *error;
	if (subscription->options.stopped != NULL)
		subscription->options.stopped(subscription->options.context, error->code == LB_ENDED ? NULL : error);
}

static bool
is_over(const struct lb_reader *reader)
{
	return reader->batch_count == 0 && reader->cursor.state == LB_CURSOR_ENDED;
}

static bool
has_failed(const struct lb_reader *reader)
{
	return reader->batch_count == 0 && reader->cursor.state == LB_CURSOR_FAILED;
}

static bool
all_over(const struct lb_subscription *subscription)
{
	for (size_t i = 0; i < subscription->reader_count; i++)
		if (!is_over(subscription->readers[i]))
			return false;
	return true;
}

/* Whose turn it is: the first, from the one behind the last on, that has a batch or has failed; NULL = none. */
static struct lb_reader *
next_in_turn(const struct lb_subscription *subscription, size_t *index)
{
	for (size_t i = 0; i < subscription->reader_count; i++) {
		*index = (subscription->turn + i) % subscription->reader_count;
		if (lb_reader_batch(subscription->readers[*index]) != NULL || has_failed(subscription->readers[*index]))
			return subscription->readers[*index];
	}
	return NULL;
}

bool
lb_turns_any(const struct lb_subscription *subscription)
{
	size_t index;

	return next_in_turn(subscription, &index) != NULL || all_over(subscription);
}

const struct lb_batch *
lb_turns_take(struct lb_subscription *subscription)
{
	const char *topic = subscription->setting.topic;
	struct lb_error error;
	struct lb_reader *reader;
	size_t index;

	reader = next_in_turn(subscription, &index);
	if (reader == NULL) {
		if (!all_over(subscription))
			return NULL;
		lb_error_set(&error, LB_ENDED, topic, -1, -1, "%s: everything up to the end was delivered", topic);
		stop(subscription, &error);
		return NULL;
	}
	if (has_failed(reader)) {
		stop(subscription, &reader->cursor.error);
		return NULL;
	}
	subscription->turn = index + 1;
	subscription->out = reader;
	return lb_reader_batch(reader);
}

/* The position stays, unless a seek has moved it. */
static void
handling_failed(struct lb_subscription *subscription, const char *what)
{
	struct lb_reader *reader = subscription->out;
	const struct lb_batch *batch = lb_reader_batch(reader);
	const char *topic = subscription->setting.topic;
	struct lb_error error;

	lb_error_set(&error, LB_HANDLER_FAILED, topic, batch->partition, batch->base_offset, "%s/%d: %s the batch at offset %" PRId64,
	    topic, (int)batch->partition, what, batch->base_offset);
	subscription->out = NULL;
	if (reader->replaced)
		lb_reader_handled(reader);
	stop(subscription, &error);
}

void
lb_turns_handled(struct lb_subscription *subscription)
{
	const struct lb_checkpoints *checkpoints = &subscription->options.checkpoints;
	struct lb_reader *reader = subscription->out;
	int64_t next_offset;

	if (reader == NULL)
		return;
	next_offset = reader->replaced ? lb_reader_position(reader, true) : lb_reader_batch(reader)->next_offset;
	if (checkpoints->save != NULL &&
	    checkpoints->save(checkpoints->context, subscription->setting.topic, reader->cursor.partition, next_offset) != 0) {
		if (!lb_source_gone(&subscription->source))
			handling_failed(subscription, "the checkpoint could not be saved behind");
		return;
	}
	if (lb_source_gone(&subscription->source))
		return;
	lb_reader_handled(reader);
	subscription->out = NULL;
	lb_reader_work(reader, !subscription->paused && !subscription->stopped, clock_now_ns());
}

bool
lb_turns_deliver(struct lb_subscription *subscription)
{
	const struct lb_batch *batch = lb_turns_take(subscription);
	int failed;

	if (batch == NULL)
		return false;
	failed = subscription->options.handler(subscription->options.context, batch);
	if (lb_source_gone(&subscription->source))
		return true;
	if (failed != 0)
		handling_failed(subscription, "the handler refuses");
	else
		lb_turns_handled(subscription);
	return true;
}
