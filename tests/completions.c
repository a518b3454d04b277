/* See completions.h. */
#include "tests/completions.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/wire.h"

static int completed;
static bool freed, free_has_returned;

void
completion_init(struct completion *completion)
{
	*completion = (struct completion){ .base_offset = -2, .log_end_offset = -2, .high_watermark = -2 };
}

void
completions_begin(void)
{
	completed = 0;
	freed = free_has_returned = false;
}

bool
completions_have_freed(void)
{
	return freed;
}

void
completions_free(struct lb_connection *connection)
{
	bool first = !freed;

	freed = true;
	lb_connection_free(connection);
	free_has_returned = free_has_returned || first;
}

static void
complete(struct completion *completion, const struct lb_error *error)
{
	struct lb_connection *frees = completion->frees;

	ck_assert_msg(!free_has_returned, "called back behind the free function");
	completion->times++;
	completion->order = ++completed;
	completion->code = error == NULL ? 0 : error->code;
	if (error != NULL) {
		ck_assert_int_ne(error->code, 0);
		ck_assert_uint_gt(strlen(error->text), 0);
		completion->error = *error;
	}
	completion->frees = NULL;
	if (frees != NULL)
		completions_free(frees);
}

void
completion_produced(void *context, const struct lb_produced *produced, const struct lb_error *error)
{
	struct completion *completion = context;

	ck_assert((produced == NULL) == (error != NULL));
	if (produced != NULL) {
		completion->base_offset = produced->base_offset;
		completion->log_end_offset = produced->log_end_offset;
	}
	complete(completion, error);
}

void
completion_fetched(void *context, const struct lb_fetched *fetched, const struct lb_error *error)
{
	struct completion *completion = context;

	ck_assert((fetched == NULL) == (error != NULL));
	if (fetched != NULL) {
		completion->high_watermark = fetched->high_watermark;
		completion->payload_bytes = fetched->payload_bytes;
		if (fetched->payload_bytes <= sizeof(completion->payload))
			memcpy(completion->payload, fetched->payload, fetched->payload_bytes);
	}
	complete(completion, error);
}

void
completion_metadata(void *context, struct lb_metadata *metadata, const struct lb_error *error)
{
	struct completion *completion = context;

	ck_assert((metadata == NULL) == (error != NULL));
	if (metadata != NULL) {
		completion->version = metadata->version;
		completion->high_watermark = metadata->topics[0].partitions[0].high_watermark;
		lb_metadata_free(metadata);
	}
	complete(completion, error);
}

void
completion_answered(void *context, const struct lb_answer *answer, const struct lb_error *error)
{
	struct completion *completion = context;

	if (answer != NULL)
		completion->payload_bytes = answer->body_bytes;
	complete(completion, error);
}

void
submit_produce(struct lb_connection *connection, enum lb_ack ack, size_t bytes, struct completion *completion)
{
	void *data = calloc(1, bytes);
	struct lb_payload record = { .data = data, .bytes = bytes };
	int before = completion->times;
	struct lb_error error = { .text = "" };
	enum lb_code code = lb_connection_submit_produce(connection, "t", 0, ack, &record, 1, completion_produced, completion, &error);

	free(data);
	ck_assert_msg(code == LB_OK, "%s", error.text);
	ck_assert_int_eq(completion->times, before);
}

void
submit_fetch(struct lb_connection *connection, int32_t max_wait_ms, struct completion *completion)
{
	struct lb_fetch fetch = { .topic = "t", .offset = 5, .max_bytes = LB_FETCH_MAX_BYTES, .max_wait_ms = max_wait_ms };
	int before = completion->times;
	struct lb_error error = { .text = "" };
	enum lb_code code = lb_connection_submit_fetch(connection, &fetch, completion_fetched, completion, &error);

	ck_assert_msg(code == LB_OK, "%s", error.text);
	ck_assert_int_eq(completion->times, before);
}

void
submit_metadata(struct lb_connection *connection, struct completion *completion)
{
	const char *topics[] = { "t" };
	int before = completion->times;
	struct lb_error error = { .text = "" };
	enum lb_code code = lb_connection_submit_metadata(connection, topics, 1, completion_metadata, completion, &error);

	ck_assert_msg(code == LB_OK, "%s", error.text);
	ck_assert_int_eq(completion->times, before);
}

void
submit_kind(struct lb_connection *connection, int kind, struct completion *completion)
{
	if (kind == 0)
		submit_produce(connection, LB_ACK_WRITTEN, 10, completion);
	else if (kind == 1)
		submit_fetch(connection, 0, completion);
	else
		submit_metadata(connection, completion);
}

void
await_completion(struct lb_connection *connection, const struct completion *completion)
{
	int64_t until_ms = wire_now_ms() + 30000;

	while (completion->times == 0) {
		ck_assert_msg(wire_now_ms() < until_ms, "an operation does not complete");
		lb_source_poll(lb_connection_source(connection), 100);
	}
	ck_assert_int_eq(completion->times, 1);
}
