/*
 * The library's connections against a really started broker with several workers: many calls in flight, and each gets its own answer.
 */
#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker.h"
#include "client/lib/logbroker.h"

enum { PATIENCE_MS = 240000 };

static struct broker broker;
static char address[64];

static void
start(const struct broker_config *config)
{
	broker_start(&broker, config);
	snprintf(address, sizeof address, "127.0.0.1:%d", broker.port);
}

static void
end(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

static struct lb_connection *
connect_to_broker(void)
{
	struct lb_connection_options options = lb_connection_defaults();
	struct lb_connection *connection;
	struct lb_error error;

	/* A loaded machine is not what is tested. */
	options.timeout_ms = PATIENCE_MS;
	ck_assert_msg(lb_connection_open(&connection, address, &options, &error) == LB_OK, "%s", error.text);
	return connection;
}

static void
expect_ok(const struct lb_error *error)
{
	ck_assert_msg(error == NULL, "%s", error->text);
}

/* Whatever a payload says, its first record is that text. */
static void
expect_first_record(const struct lb_fetched *fetched, int64_t offset, const char *text)
{
	struct lb_walk walk;
	struct lb_record record;

	lb_walk_begin(&walk, LB_CRC32C, offset, fetched->payload, fetched->payload_bytes);
	ck_assert_int_eq(lb_walk_next(&walk, &record), LB_WALK_RECORD);
	ck_assert_msg(record.bytes == strlen(text) && memcmp(record.data, text, record.bytes) == 0,
	    "offset %lld has '%.*s', not '%s'", (long long)offset, (int)record.bytes, (const char *)record.data, text);
}

/* ---- fifty calls of all kinds on one connection ---- */

enum { FIFTY = 50, KINDS = 5 };

static struct fifty {
	int next;	/* the call whose answer is due: they come in order */
	bool submitting;
} fifty;

/* A call is known by where its context points. */
static char contexts[FIFTY];

static int
answered(const void *context)
{
	int call = (int)((const char *)context - contexts);

	ck_assert(!fifty.submitting);
	ck_assert_int_eq(call, fifty.next++);
	return call;
}

static void
on_fifty_produced(void *context, const struct lb_produced *produced, const struct lb_error *error)
{
	int call = answered(context);

	if (call % KINDS == 0) {
		expect_ok(error);
		ck_assert_int_eq(produced->base_offset, FIFTY + call / KINDS);
	} else {
		ck_assert_ptr_null(produced);
		ck_assert_int_eq(error->code, LB_UNKNOWN_TOPIC_OR_PARTITION);
		ck_assert_int_eq(error->partition, 1000 + call);
	}
}

static void
on_fifty_fetched(void *context, const struct lb_fetched *fetched, const struct lb_error *error)
{
	int call = answered(context);
	char text[32];

	if (call % KINDS == 1) {
		expect_ok(error);
		snprintf(text, sizeof text, "record %d", call);
		expect_first_record(fetched, call, text);
	} else {
		ck_assert_ptr_null(fetched);
		ck_assert_int_eq(error->code, LB_OFFSET_OUT_OF_RANGE);
		ck_assert_int_eq(error->offset, 1000 + call);
	}
}

static void
on_fifty_metadata(void *context, struct lb_metadata *metadata, const struct lb_error *error)
{
	int call = answered(context);

	expect_ok(error);
	ck_assert_int_eq(metadata->topic_count, 1);
	/* It sees what stands before it on the connection, and nothing of what is behind. */
	ck_assert_int_eq(metadata->topics[0].partitions[0].high_watermark, FIFTY + call / KINDS + 1);
	lb_metadata_free(metadata);
}

static enum lb_code
submit_nth(struct lb_connection *connection, int call, struct lb_error *error)
{
	static const char *const topic = "t";
	struct lb_payload payload = { "x", 1 };
	struct lb_fetch fetch = { .topic = topic, .offset = call % KINDS == 1 ? call : 1000 + call, .max_bytes = 100 };

	switch (call % KINDS) {
	case 0:
		return lb_connection_submit_produce(connection, topic, 0, LB_ACK_WRITTEN, &payload, 1, on_fifty_produced,
		    &contexts[call], error);
	case 1:
	case 2:
		return lb_connection_submit_fetch(connection, &fetch, on_fifty_fetched, &contexts[call], error);
	case 3:
		return lb_connection_submit_metadata(connection, &topic, 1, on_fifty_metadata, &contexts[call], error);
	default:
		return lb_connection_submit_produce(connection, topic, 1000 + call, LB_ACK_FORCED, &payload, 1, on_fifty_produced,
		    &contexts[call], error);
	}
}

START_TEST(A16_fifty_calls_in_flight_on_one_connection)
{
	struct lb_connection *connection;
	struct lb_error error;
	char text[32];

	start(&(struct broker_config){ .topics = "t = 2\n" });
	connection = connect_to_broker();
	for (int i = 0; i < FIFTY; i++) {
		struct lb_payload payload = { text, (size_t)snprintf(text, sizeof text, "record %d", i) };

		ck_assert_msg(lb_connection_produce(connection, "t", 0, LB_ACK_WRITTEN, &payload, 1, NULL, &error) == LB_OK, "%s",
		    error.text);
	}
	fifty.submitting = true;
	for (int i = 0; i < FIFTY; i++)
		ck_assert_msg(submit_nth(connection, i, &error) == LB_OK, "%s", error.text);
	fifty.submitting = false;
	while (fifty.next < FIFTY)
		lb_source_poll(lb_connection_source(connection), PATIENCE_MS);
	lb_connection_free(connection);
	ck_assert_int_eq(fifty.next, FIFTY);
	end();
}
END_TEST

/* ---- many pipelines at once ---- */

enum { PIPELINES = 64, IN_FLIGHT = 50, PARTITIONS = 6, CALLS = 100000 };

/*
 * Each call knows the pipeline and its own number there; what it produces says so. Three of four produce, the fourth fetches what the
 * pipeline's first acknowledged call of that partition has written. A pipeline changes its partition (and so its worker) now and then.
 */
struct call {
	struct pipeline *pipeline;
	int number;
	int32_t partition;
	int64_t offset;		/* that it was given, or asks for */
	int written_by;		/* a fetch: the number of the call that wrote it */
	bool done;
};

struct pipeline {
	struct lb_connection *connection;
	int number, next, completed, count;
	bool submitting;
	struct call *calls;
	int first[PARTITIONS];	/* a call whose record there is known; -1 = none yet */
};

static struct pipeline pipelines[PIPELINES];
static const struct call **owners[PARTITIONS];	/* by offset */
static int total, produced_total;

static size_t
text_of(const struct pipeline *pipeline, int number, char *text, size_t size)
{
	return (size_t)snprintf(text, size, "pipeline %d call %d", pipeline->number, number);
}

static void fill(struct pipeline *pipeline);

static struct call *
complete(void *context)
{
	struct call *call = context;

	ck_assert(!call->pipeline->submitting && !call->done);
	ck_assert_int_eq(call->number, call->pipeline->completed++);
	call->done = true;
	return call;
}

static void
on_produced(void *context, const struct lb_produced *produced, const struct lb_error *error)
{
	struct call *call = complete(context);

	expect_ok(error);
	call->offset = produced->base_offset;
	ck_assert_int_lt(call->offset, total);
	ck_assert_ptr_null(owners[call->partition][call->offset]);
	owners[call->partition][call->offset] = call;
	produced_total++;
	if (call->pipeline->first[call->partition] < 0)
		call->pipeline->first[call->partition] = call->number;
	fill(call->pipeline);
}

static void
on_fetched(void *context, const struct lb_fetched *fetched, const struct lb_error *error)
{
	struct call *call = complete(context);
	char text[64];

	expect_ok(error);
	text_of(call->pipeline, call->written_by, text, sizeof text);
	expect_first_record(fetched, call->offset, text);
	fill(call->pipeline);
}

static enum lb_code
submit(struct call *call, struct lb_error *error)
{
	struct pipeline *pipeline = call->pipeline;
	struct lb_fetch fetch = { .topic = "t", .partition = call->partition, .max_bytes = 64 };
	char text[64];
	struct lb_payload payload = { text, text_of(pipeline, call->number, text, sizeof text) };

	call->written_by = pipeline->first[call->partition];
	if (call->number % 4 != 3 || call->written_by < 0)
		return lb_connection_submit_produce(pipeline->connection, "t", call->partition, LB_ACK_WRITTEN, &payload, 1, on_produced,
		    call, error);
	fetch.offset = call->offset = pipeline->calls[call->written_by].offset;
	return lb_connection_submit_fetch(pipeline->connection, &fetch, on_fetched, call, error);
}

static void
fill(struct pipeline *pipeline)
{
	struct lb_error error;

	pipeline->submitting = true;
	while (pipeline->next < pipeline->count && pipeline->next - pipeline->completed < IN_FLIGHT) {
		struct call *call = &pipeline->calls[pipeline->next];

		*call = (struct call){ .pipeline = pipeline, .number = pipeline->next++ };
		call->partition = (pipeline->number + call->number / 200) % PARTITIONS;
		ck_assert_msg(submit(call, &error) == LB_OK, "%s", error.text);
	}
	pipeline->submitting = false;
}

static void
begin(struct pipeline *pipeline, int number)
{
	*pipeline = (struct pipeline){ .number = number, .count = total / PIPELINES, .connection = connect_to_broker() };
	pipeline->calls = calloc((size_t)pipeline->count, sizeof *pipeline->calls);
	for (int p = 0; p < PARTITIONS; p++)
		pipeline->first[p] = -1;
	fill(pipeline);
}

/* The event loop of a program with many connections: wait for all, process what is due. */
static bool
turn(void)
{
	struct pollfd fds[PIPELINES];
	int timeout_ms = PATIENCE_MS;
	bool over = true;

	for (int i = 0; i < PIPELINES; i++) {
		struct lb_wants wants = lb_source_wants(lb_connection_source(pipelines[i].connection));

		fds[i] = (struct pollfd){ .fd = wants.fd, .events = wants.events };
		if (wants.timeout_ms >= 0 && wants.timeout_ms < timeout_ms)
			timeout_ms = wants.timeout_ms;
	}
	ck_assert_int_ge(poll(fds, PIPELINES, timeout_ms), 0);
	for (int i = 0; i < PIPELINES; i++) {
		if (fds[i].revents != 0 || timeout_ms == 0)
			lb_source_process(lb_connection_source(pipelines[i].connection));
		over = over && pipelines[i].completed == pipelines[i].count;
	}
	return over;
}

/* Every record of the partition, by plain synchronous fetches, is its owner's. Returns their number. */
static int64_t
check_partition(struct lb_connection *connection, int32_t partition)
{
	struct lb_fetch fetch = { .topic = "t", .partition = partition, .max_bytes = 1 << 20 };
	struct lb_fetched fetched;
	struct lb_error error;

	do {
		struct lb_walk walk;
		struct lb_record record;

		ck_assert_msg(lb_connection_fetch(connection, &fetch, &fetched, &error) == LB_OK, "%s", error.text);
		lb_walk_begin(&walk, LB_CRC32C, fetch.offset, fetched.payload, fetched.payload_bytes);
		while (lb_walk_next(&walk, &record) == LB_WALK_RECORD) {
			const struct call *owner = owners[partition][record.offset];
			char text[64];

			ck_assert_ptr_nonnull(owner);
			ck_assert_uint_eq(record.bytes, text_of(owner->pipeline, owner->number, text, sizeof text));
			ck_assert_mem_eq(record.data, text, record.bytes);
			fetch.offset++;
		}
	} while (fetch.offset < fetched.high_watermark);
	return fetch.offset;
}

START_TEST(bug_J6_pipelined_calls_get_their_own_answers)
{
	struct lb_connection *connection;
	int64_t found = 0;

	total = CALLS / PIPELINES * PIPELINES * broker_scale();
	start(&(struct broker_config){ .topics = "t = 6\n", .workers = 3 });
	for (int p = 0; p < PARTITIONS; p++)
		owners[p] = calloc((size_t)total, sizeof *owners[p]);
	for (int i = 0; i < PIPELINES; i++)
		begin(&pipelines[i], i);
	while (!turn())
		continue;
	connection = connect_to_broker();
	for (int p = 0; p < PARTITIONS; p++)
		found += check_partition(connection, p);
	lb_connection_free(connection);
	ck_assert_int_eq(found, produced_total);
	for (int i = 0; i < PIPELINES; i++) {
		lb_connection_free(pipelines[i].connection);
		free(pipelines[i].calls);
	}
	for (int p = 0; p < PARTITIONS; p++)
		free(owners[p]);
	end();
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("lib_broker");
	TCase *tcase = tcase_create("lib_broker");

	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, A16_fifty_calls_in_flight_on_one_connection);
	tcase_add_test(tcase, bug_J6_pipelined_calls_get_their_own_answers);
	suite_add_tcase(suite, tcase);
	return broker_main(suite);
}
