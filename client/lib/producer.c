/*
 * The producer as a whole: options, the turns in which everything happens, flush, close and free. producer_state.h tells
 * what is where.
 */
#include "client/lib/producer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client/lib/address.h"
#include "client/lib/codec.h"
#include "client/lib/error.h"
#include "client/lib/link.h"
#include "client/lib/outcome.h"
#include "client/lib/sender.h"
#include "client/lib/wait.h"
#include "common/clock.h"

enum {
	EVENTS_AT_ONCE = 16,
	BATCH_RECORDS_MAX = 1000000,	/* their receivers fit into the pool's largest block */
};

/* ---- options ---- */

struct lb_producer_options
lb_producer_defaults(void)
{
	return (struct lb_producer_options){
		.ack = LB_ACK_WRITTEN,
		.batch_records = 1000,
		.batch_bytes = (size_t)256 * 1024,
		.linger_ms = 5,
		.in_flight = 8,
		.memory_bytes = (size_t)64 * 1024 * 1024,
		.delivery_timeout_ms = 30000,
	};
}

static enum lb_code
invalid(struct lb_error *error, const char *option, int64_t value, const char *allowed)
{
	return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1, "%s is %lld, must be %s", option, (long long)value, allowed);
}

static enum lb_code
check_options(const struct lb_producer_options *options, struct lb_error *error)
{
	size_t batch_bytes_max = LB_LENGTH_BYTES + LB_FRAME_MAX_BYTES - lb_produce_head_bytes(LB_TOPIC_NAME_MAX);
	char allowed[64];

	if (options->ack != LB_ACK_NONE && options->ack != LB_ACK_WRITTEN && options->ack != LB_ACK_FORCED)
		return invalid(error, "ack", options->ack, "LB_ACK_NONE, LB_ACK_WRITTEN or LB_ACK_FORCED");
	if (options->batch_records < 1 || options->batch_records > BATCH_RECORDS_MAX)
		return invalid(error, "batch_records", options->batch_records, "1 to 1000000");
	snprintf(allowed, sizeof(allowed), "1 to %zu, which fits a frame", batch_bytes_max);
	if (options->batch_bytes < 1 || options->batch_bytes > batch_bytes_max)
		return invalid(error, "batch_bytes", (int64_t)options->batch_bytes, allowed);
	if (options->in_flight < 1)
		return invalid(error, "in_flight", options->in_flight, "at least 1");
	if (options->memory_bytes < 1)
		return invalid(error, "memory_bytes", (int64_t)options->memory_bytes, "at least 1");
	if (options->delivery_timeout_ms < 1)
		return invalid(error, "delivery_timeout_ms", options->delivery_timeout_ms, "at least 1");
	if (options->linger_ms < 0 || options->linger_ms >= options->delivery_timeout_ms)
		return invalid(error, "linger_ms", options->linger_ms, "0 or more, and less than delivery_timeout_ms");
	return LB_OK;
}

/* ---- turns ---- */

static void
process_links(struct lb_producer *producer, int64_t now_ns)
{
	struct epoll_event events[EVENTS_AT_ONCE];
	int count = epoll_wait(producer->epoll_fd, events, EVENTS_AT_ONCE, 0);

	for (int i = 0; i < count; i++)
		lb_link_process(events[i].data.ptr, now_ns);
	for (struct lb_link *link = producer->links; link != NULL; link = link->next) {
		if (link->connection != NULL && lb_link_timeout_ms(link, now_ns) == 0)
			lb_link_process(link, now_ns);
	}
}

/* Sends what is complete, or due. */
static void
send_due(struct lb_producer *producer, int64_t now_ns)
{
	struct lb_bundle *bundle;

	while ((bundle = lb_accumulator_due(&producer->accumulator, now_ns)) != NULL)
		lb_sender_close(bundle);
	for (struct lb_link *link = producer->links; link != NULL; link = link->next)
		lb_sender_send(link, now_ns);
}

void
lb_producer_work(struct lb_producer *producer)
{
	int64_t now_ns = clock_now_ns();

	process_links(producer, now_ns);
	lb_sender_expire(producer, now_ns);
	send_due(producer, now_ns);
}

static struct lb_producer *
producer_of(const struct lb_source *source)
{
	return (struct lb_producer *)(uintptr_t)source;
}

static void
process(struct lb_source *source)
{
	struct lb_producer *producer = producer_of(source);

	lb_producer_work(producer);
	lb_outcome_tell(producer);
	/* What the callbacks have sent. */
	if (!lb_source_gone(source))
		send_due(producer, clock_now_ns());
}

static struct lb_wants
wants(const struct lb_source *source)
{
	const struct lb_producer *producer = producer_of(source);
	const struct lb_bundle *oldest = TAILQ_FIRST(&producer->by_age);
	int64_t now_ns = clock_now_ns(), due_ns = lb_accumulator_due_ns(&producer->accumulator);
	struct lb_wants wants = { .fd = producer->epoll_fd, .events = POLLIN, .timeout_ms = -1 };

	if (!TAILQ_EMPTY(&producer->settled)) {
		wants.timeout_ms = 0;
		return wants;
	}
	if (oldest != NULL)
		wants.timeout_ms = lb_wait_ms(oldest->begun_ns +
		    (int64_t)producer->options.delivery_timeout_ms * CLOCK_NS_PER_MS, now_ns);
	if (due_ns != INT64_MAX)
		wants.timeout_ms = lb_wait_sooner_ms(wants.timeout_ms, lb_wait_ms(due_ns, now_ns));
	for (const struct lb_link *link = producer->links; link != NULL; link = link->next)
		wants.timeout_ms = lb_wait_sooner_ms(wants.timeout_ms, lb_link_timeout_ms(link, now_ns));
	return wants;
}

/* ---- beginning and end ---- */

static void
release(struct lb_source *source)
{
	struct lb_producer *producer = producer_of(source);
	struct lb_bundle *bundle;

	while (producer->topics != NULL) {
		struct lb_topic *topic = producer->topics;

		producer->topics = topic->next;
		free(topic);
	}
	while (producer->links != NULL) {
		struct lb_link *link = producer->links;

		producer->links = link->next;
		free(link);
	}
	while ((bundle = TAILQ_FIRST(&producer->unused)) != NULL) {
		TAILQ_REMOVE(&producer->unused, bundle, queue);
		free(bundle);
	}
	lb_pool_free(&producer->pool);
	if (producer->epoll_fd >= 0)
		close(producer->epoll_fd);
	free(producer->address);
	free(producer);
}

static const struct lb_source_kind kind = { .wants = wants, .process = process, .release = release };

enum lb_code
lb_producer_open(struct lb_producer **opened, const char *address, const struct lb_producer_options *options,
    struct lb_error *error)
{
	struct lb_producer_options given = options != NULL ? *options : lb_producer_defaults();
	struct lb_producer *producer;

	*opened = NULL;
	if (lb_address_check(address, error) != LB_OK || check_options(&given, error) != LB_OK)
		return LB_INVALID_ARGUMENT;
	producer = calloc(1, sizeof(*producer));
	if (producer == NULL)
		return lb_error_set(error, LB_NO_MEMORY, NULL, -1, -1, "no memory for a producer");
	lb_source_init(&producer->source, &kind);
	producer->options = given;
	TAILQ_INIT(&producer->by_age);
	TAILQ_INIT(&producer->settled);
	TAILQ_INIT(&producer->telling);
	TAILQ_INIT(&producer->unused);
	lb_accumulator_init(&producer->accumulator, given.batch_records, given.batch_bytes,
	    (int64_t)given.linger_ms * CLOCK_NS_PER_MS);
	/* Frames are up to twice as large as their blocks' use. */
	lb_pool_init(&producer->pool, given.memory_bytes > SIZE_MAX / 2 ? SIZE_MAX : given.memory_bytes * 2);
	producer->address = strdup(address);
	producer->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (producer->address == NULL || producer->epoll_fd < 0) {
		lb_error_set(error, LB_NO_MEMORY, NULL, -1, -1, "cannot make a producer: %s", strerror(errno));
		release(&producer->source);
		return LB_NO_MEMORY;
	}
	*opened = producer;
	return LB_OK;
}

struct lb_source *
lb_producer_source(struct lb_producer *producer)
{
	return &producer->source;
}

void
lb_producer_totals(const struct lb_producer *producer, struct lb_totals *totals)
{
	*totals = producer->totals;
}

/* Completes what is outstanding: unknown where a connection has sent it, else with `code`. */
static void
stop(struct lb_producer *producer, enum lb_code code, const char *reason)
{
	struct lb_bundle *bundle;

	producer->closing = true;
	for (struct lb_link *link = producer->links; link != NULL; link = link->next)
		lb_link_drop(link);
	while ((bundle = TAILQ_FIRST(&producer->by_age)) != NULL)
		lb_outcome_failed(bundle, bundle->maybe_sent ? LB_OUTCOME_UNKNOWN : code, reason);
	lb_outcome_tell(producer);
}

void
lb_producer_free(struct lb_producer *producer)
{
	if (producer == NULL)
		return;
	lb_source_enter(&producer->source);
	stop(producer, LB_CLOSED, "the producer was freed");
	lb_source_free(&producer->source);
	lb_source_leave(&producer->source);
}

/* ---- flush and close ---- */

static bool
is_outstanding(const struct lb_producer *producer, uint64_t up_to_number)
{
	const struct lb_bundle *bundle = TAILQ_FIRST(&producer->by_age);

	if (bundle != NULL && bundle->number <= up_to_number)
		return true;
	TAILQ_FOREACH(bundle, &producer->settled, queue) {
		if (bundle->number <= up_to_number)
			return true;
	}
	return false;
}

/* A turn inside a synchronous call, which has entered the producer. false: the time has passed. */
static bool
wait_turn(struct lb_producer *producer, int64_t deadline_ns)
{
	int left_ms = lb_wait_ms(deadline_ns, clock_now_ns());

	lb_wait_for(&producer->source, left_ms);
	process(&producer->source);
	return left_ms > 0;
}

/* Waits until all up to that number has been told, or the time has passed, or the producer is gone. */
static void
wait_for(struct lb_producer *producer, uint64_t number, int64_t deadline_ns)
{
	process(&producer->source);
	while (!lb_source_gone(&producer->source) && is_outstanding(producer, number) && wait_turn(producer, deadline_ns))
		continue;
}

/* From here on nothing lingers. Returns the number of the last bundle. */
static uint64_t
close_open(struct lb_producer *producer)
{
	struct lb_bundle *bundle;

	while ((bundle = TAILQ_FIRST(&producer->accumulator.open)) != NULL)
		lb_sender_close(bundle);
	return producer->bundles_begun;
}

static uint64_t
outstanding(const struct lb_totals *totals)
{
	return totals->accepted - totals->acknowledged - totals->refused - totals->not_sent - totals->unknown;
}

static enum lb_code
check_wait(const struct lb_producer *producer, const char *what, int timeout_ms, struct lb_error *error)
{
	if (timeout_ms < 0)
		return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1, "timeout_ms is %d: %s does not wait for ever",
		    timeout_ms, what);
	if (lb_source_busy(&producer->source))
		return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1, "%s inside a callback of the producer", what);
	return LB_OK;
}

static enum lb_code
tell_outstanding(const struct lb_producer *producer, int timeout_ms, struct lb_error *error)
{
	unsigned long long count = outstanding(&producer->totals);

	return lb_error_set(error, LB_TIMED_OUT, NULL, -1, -1, "%.200s: %llu record%s outstanding after %d ms, and will be sent on",
	    producer->address, count, count == 1 ? " is" : "s are", timeout_ms);
}

enum lb_code
lb_producer_flush(struct lb_producer *producer, int timeout_ms, struct lb_error *error)
{
	int64_t deadline_ns = clock_now_ns() + (int64_t)timeout_ms * CLOCK_NS_PER_MS;
	enum lb_code code = check_wait(producer, "flush", timeout_ms, error);
	uint64_t number;

	if (code != LB_OK)
		return code;
	number = close_open(producer);
	lb_source_enter(&producer->source);
	wait_for(producer, number, deadline_ns);
	if (lb_source_gone(&producer->source))
		code = lb_error_set(error, LB_CLOSED, NULL, -1, -1, "the producer was freed in a callback");
	else if (is_outstanding(producer, number))
		code = tell_outstanding(producer, timeout_ms, error);
	lb_source_leave(&producer->source);
	return code;
}

/* Without answers, what was sent has arrived when the broker has closed, too. */
static void
finish_links(struct lb_producer *producer, int64_t deadline_ns)
{
	for (struct lb_link *link = producer->links; link != NULL; link = link->next) {
		if (link->connection != NULL)
			lb_connection_finish(link->connection);
		while (link->connection != NULL && !lb_source_gone(&producer->source) && wait_turn(producer, deadline_ns))
			continue;
	}
}

enum lb_code
lb_producer_close(struct lb_producer *producer, int timeout_ms, struct lb_totals *totals, struct lb_error *error)
{
	int64_t deadline_ns = clock_now_ns() + (int64_t)timeout_ms * CLOCK_NS_PER_MS;
	enum lb_code code = check_wait(producer, "close", timeout_ms, error);

	if (code != LB_OK)
		return code;
	producer->closing = true;
	lb_source_enter(&producer->source);
	wait_for(producer, close_open(producer), deadline_ns);
	if (producer->options.ack == LB_ACK_NONE && !lb_source_gone(&producer->source))
		finish_links(producer, deadline_ns);
	if (!lb_source_gone(&producer->source))
		stop(producer, LB_TIMED_OUT, "the producer was closed");
	if (totals != NULL)
		*totals = producer->totals;
	if (error != NULL && producer->first_failure.code != LB_OK)
		*error = producer->first_failure;
	code = (enum lb_code)producer->first_failure.code;
	lb_source_free(&producer->source);
	lb_source_leave(&producer->source);
	return code;
}
