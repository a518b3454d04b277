/*
 * Outcomes: see outcome.h. A bundle whose time has passed is settled while a connection has its frame yet; it is recycled
 * when both are done with it.
 */
#include "client/lib/outcome.h"

#include <stdio.h>

#include "client/lib/error.h"

static void
settle(struct lb_bundle *bundle)
{
	struct lb_partition *partition = bundle->partition;
	struct lb_producer *producer = partition->topic->producer;

	if (bundle->open)
		lb_accumulator_close(&producer->accumulator, bundle);
	if (partition->unsent == bundle)
		partition->unsent = TAILQ_NEXT(bundle, of_partition);
	TAILQ_REMOVE(&partition->bundles, bundle, of_partition);
	TAILQ_REMOVE(&producer->by_age, bundle, by_age);
	bundle->settled = true;
	TAILQ_INSERT_TAIL(&producer->settled, bundle, queue);
}

void
lb_outcome_acknowledged(struct lb_bundle *bundle, int64_t base_offset)
{
	bundle->error.code = LB_OK;
	bundle->base_offset = base_offset;
	settle(bundle);
}

static void
fail(struct lb_bundle *bundle, int code, const char *what)
{
	const struct lb_partition *partition = bundle->partition;

	bundle->base_offset = -1;
	lb_error_set(&bundle->error, code, partition->topic->name, partition->number, -1, "PRODUCE to %s/%d, %d record%s: %s",
	    partition->topic->name, partition->number, bundle->record_count, bundle->record_count == 1 ? "" : "s", what);
	settle(bundle);
}

void
lb_outcome_refused(struct lb_bundle *bundle, int code)
{
	char what[LB_ERROR_TEXT_BYTES / 2];

	lb_error_explain(what, sizeof(what), bundle->partition->topic->producer->address, code);
	fail(bundle, code, what);
}

void
lb_outcome_failed(struct lb_bundle *bundle, int code, const char *reason)
{
	char what[LB_ERROR_TEXT_BYTES + 32];

	snprintf(what, sizeof(what), "%s: %s", lb_code_name(code), reason);
	fail(bundle, code, what);
}

static uint64_t *
total_of(struct lb_totals *totals, int code)
{
	if (code == LB_OK)
		return &totals->acknowledged;
	if (code == LB_OUTCOME_UNKNOWN)
		return &totals->unknown;
	return code < 0 ? &totals->not_sent : &totals->refused;
}

/* Ahead of the callbacks: they may send again in the memory that this gives back. */
static void
count(struct lb_producer *producer, struct lb_bundle *bundle)
{
	*total_of(&producer->totals, bundle->error.code) += (uint64_t)bundle->record_count;
	producer->held_bytes -= bundle->charged_bytes;
	if (bundle->error.code != LB_OK && producer->first_failure.code == LB_OK)
		producer->first_failure = bundle->error;
}

static void
tell_next(struct lb_bundle *bundle)
{
	size_t n = bundle->told++;
	struct lb_receiver receiver = bundle->receivers[n];
	struct lb_receipt receipt = {
		.topic = bundle->partition->topic->name,
		.partition = bundle->partition->number,
		.base_offset = bundle->base_offset < 0 ? -1 : bundle->base_offset + (int64_t)n,
		.record_count = bundle->together ? (size_t)bundle->record_count : 1,
	};

	if (receiver.done != NULL)
		receiver.done(receiver.context, &receipt, bundle->error.code == LB_OK ? NULL : &bundle->error);
}

/* false: a callback has freed the producer, which has told the rest, of this bundle, too. */
static bool
tell(struct lb_producer *producer, struct lb_bundle *bundle)
{
	if (bundle->told == 0)
		count(producer, bundle);
	while (bundle->told < lb_bundle_receivers(bundle)) {
		tell_next(bundle);
		if (lb_source_gone(&producer->source))
			return false;
	}
	return true;
}

void
lb_outcome_tell(struct lb_producer *producer)
{
	struct lb_bundle *bundle;

	TAILQ_CONCAT(&producer->telling, &producer->settled, queue);
	while ((bundle = TAILQ_FIRST(&producer->telling)) != NULL) {
		if (!tell(producer, bundle))
			return;
		TAILQ_REMOVE(&producer->telling, bundle, queue);
		bundle->delivered = true;
		if (!bundle->in_flight)
			lb_outcome_recycle(producer, bundle);
	}
}

void
lb_outcome_recycle(struct lb_producer *producer, struct lb_bundle *bundle)
{
	lb_bundle_end(bundle, &producer->pool);
	TAILQ_INSERT_HEAD(&producer->unused, bundle, queue);
}
