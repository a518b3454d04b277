/*
 * A subscription under test: see subscribing.h.
 */
#include "subscribing.h"

#include <check.h>

#include "wire.h"

static void
check_records(struct subscribing *by, const struct lb_batch *batch)
{
	struct lb_record record = { 0 };
	int64_t offset = batch->base_offset;

	while (lb_batch_next(batch, &record)) {
		ck_assert_int_eq(record.offset, offset);
		ck_assert_uint_ge(record.bytes, 1);
		if (by->look != NULL)
			by->look(by, batch->partition, &record);
		offset++;
	}
	ck_assert_int_eq(offset, batch->next_offset);
}

static int
on_batch(void *context, const struct lb_batch *batch)
{
	struct subscribing *by = context;
	int32_t partition = batch->partition;

	ck_assert_int_lt(partition, SUBSCRIBING_PARTITIONS_MAX);
	ck_assert_int_eq(lb_subscription_position(by->subscription, partition), batch->base_offset);
	ck_assert_msg(by->next[partition] < 0 || batch->base_offset == by->next[partition] + batch->skipped,
	    "partition %d: offset %lld after %lld, %lld skipped", partition, (long long)batch->base_offset,
	    (long long)by->next[partition], (long long)batch->skipped);
	ck_assert_uint_ge(batch->record_count, 1);
	ck_assert_int_eq(batch->next_offset, batch->base_offset + (int64_t)batch->record_count);
	ck_assert_int_eq(batch->lag, batch->high_watermark - batch->next_offset);
	ck_assert_int_ge(batch->lag, 0);
	check_records(by, batch);
	if (by->first[partition] < 0)
		by->first[partition] = batch->base_offset;
	by->next[partition] = batch->next_offset;
	by->records += (long)batch->record_count;
	by->batches++;
	by->skipped += batch->skipped;
	if (batch->max_bytes > by->largest_max_bytes)
		by->largest_max_bytes = batch->max_bytes;
	by->last = *batch;
	by->last.records = NULL;
	return by->handle != NULL ? by->handle(by, batch) : 0;
}

static void
on_stopped(void *context, const struct lb_error *error)
{
	struct subscribing *by = context;

	by->stops++;
	if (error != NULL)
		by->error = *error;
	else
		by->error.code = LB_ENDED;
}

void
subscribing_init(struct subscribing *by, bool pull)
{
	*by = (struct subscribing){ .pull = pull, .options = lb_subscription_defaults() };
	by->options.max_wait_ms = 1000;
	for (int i = 0; i < SUBSCRIBING_PARTITIONS_MAX; i++)
		by->first[i] = by->next[i] = -1;
}

void
subscribing_open(struct subscribing *by, const char *address, const char *topic)
{
	struct lb_error error;

	by->options.handler = by->pull ? NULL : on_batch;
	by->options.stopped = on_stopped;
	by->options.context = by;
	ck_assert_msg(lb_subscription_open(&by->subscription, address, topic, &by->options, &error) == LB_OK, "%s", error.text);
}

static void
pull_once(struct subscribing *by, int timeout_ms)
{
	const struct lb_batch *batch;
	struct lb_error error;
	enum lb_code code = lb_subscription_next(by->subscription, timeout_ms, &batch, &error);

	if (code == LB_OK)
		on_batch(by, batch);
	else if (code != LB_TIMED_OUT)
		ck_assert_int_eq(error.code, by->error.code);
}

static void
turn(struct subscribing *by, int timeout_ms)
{
	if (by->pull)
		pull_once(by, timeout_ms);
	else
		lb_source_poll(lb_subscription_source(by->subscription), timeout_ms);
}

void
subscribing_for(struct subscribing *by, int ms)
{
	int64_t until_ms = wire_now_ms() + ms, left_ms = ms;

	do
		turn(by, (int)left_ms);
	while (by->error.code == LB_OK && (left_ms = until_ms - wire_now_ms()) > 0);
}

void
subscribing_until(struct subscribing *by, long records)
{
	int64_t until_ms = wire_now_ms() + SUBSCRIBING_DEADLINE_MS;

	while (by->records < records && by->error.code == LB_OK && wire_now_ms() < until_ms)
		turn(by, 100);
	ck_assert_msg(by->records >= records, "%ld of %ld records came; %s", by->records, records,
	    by->error.code != LB_OK ? by->error.text : "late");
}

int
subscribing_until_stop(struct subscribing *by)
{
	int64_t until_ms = wire_now_ms() + SUBSCRIBING_DEADLINE_MS;

	while (by->error.code == LB_OK && wire_now_ms() < until_ms)
		turn(by, 100);
	ck_assert_msg(by->error.code != LB_OK, "it does not stop; %ld records came", by->records);
	return by->error.code;
}

void
subscribing_seek(struct subscribing *by, int32_t partition, int64_t offset)
{
	struct lb_error error;

	ck_assert_msg(lb_subscription_seek(by->subscription, partition, offset, &error) == LB_OK, "%s", error.text);
	by->next[partition] = offset;
	by->error = (struct lb_error){ .code = LB_OK };
}

void
subscribing_close(struct subscribing *by)
{
	lb_subscription_free(by->subscription);
	by->subscription = NULL;
}
