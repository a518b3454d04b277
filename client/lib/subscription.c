/*
 * Subscriptions: a topic's partitions placed by its METADATA, a reader for each, turns among those that have something, what the
 * application is told and says. What follows from answers is cursor.c's, connections are reader.c's.
 */
#include "client/lib/subscription.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "client/lib/address.h"
#include "client/lib/error.h"
#include "client/lib/wait.h"
#include "common/clock.h"

enum { EVENTS = 64 };

struct lb_subscription_options
lb_subscription_defaults(void)
{
	return (struct lb_subscription_options){ .start = LB_START_EARLIEST, .stop = LB_STOP_NEVER, .on_gap = LB_GAP_FAIL,
		.max_bytes = 1024 * 1024, .max_bytes_limit = LB_FETCH_MAX_BYTES, .max_wait_ms = 30000, .min_bytes = 1,
		.timeout_ms = 5000, .give_up_ms = -1 };
}

/* ---- the source ---- */

/* Something to tell the application now? With lb_subscription_next it asks for itself. */
static bool
may_deliver(const struct lb_subscription *subscription)
{
	return subscription->options.handler != NULL && !subscription->paused && !subscription->stopped;
}

static bool
may_ask(const struct lb_subscription *subscription)
{
	return !subscription->paused && !subscription->stopped;
}

static struct lb_wants
wants(const struct lb_source *source)
{
	const struct lb_subscription *subscription = (const struct lb_subscription *)source;
	struct lb_wants wanted = { .fd = subscription->setting.epoll_fd, .events = POLLIN, .timeout_ms = -1 };
	int64_t now_ns = clock_now_ns(), due_ns = INT64_MAX;

	if (may_deliver(subscription) && lb_turns_any(subscription)) {
		wanted.timeout_ms = 0;
		return wanted;
	}
	for (size_t i = 0; i < subscription->reader_count; i++) {
		int64_t reader_due_ns = lb_reader_due_ns(subscription->readers[i], may_ask(subscription), now_ns);

		if (reader_due_ns < due_ns)
			due_ns = reader_due_ns;
	}
	if (due_ns < INT64_MAX)
		wanted.timeout_ms = lb_wait_ms(due_ns, now_ns);
	return wanted;
}

static void
read_and_write(struct lb_subscription *subscription)
{
	struct epoll_event events[EVENTS];
	int count = epoll_wait(subscription->setting.epoll_fd, events, EVENTS, 0);

	for (int i = 0; i < count; i++)
		((struct lb_reader *)events[i].data.ptr)->ready = true;
	for (size_t i = 0; i < subscription->reader_count; i++)
		lb_reader_process(subscription->readers[i]);
}

static void
work(struct lb_subscription *subscription)
{
	int64_t now_ns = clock_now_ns();

	for (size_t i = 0; i < subscription->reader_count; i++)
		lb_reader_work(subscription->readers[i], may_ask(subscription), now_ns);
}

/* All that does not wait. What was asked for first of all is METADATA: with it the partitions get their places. */
static void
turn(struct lb_subscription *subscription)
{
	read_and_write(subscription);
	if (subscription->readers[0]->metadata != NULL)
		lb_placing_take(subscription);
	if (!lb_source_gone(&subscription->source))
		work(subscription);
}

static void
process(struct lb_source *source)
{
	struct lb_subscription *subscription = (struct lb_subscription *)source;

	turn(subscription);
	/* As many as there are partitions: each gets its turn before sockets are looked at again. */
	for (size_t i = subscription->reader_count; i > 0; i--) {
		if (lb_source_gone(source) || !may_deliver(subscription) || !lb_turns_deliver(subscription))
			return;
	}
}

static void
release(struct lb_source *source)
{
	struct lb_subscription *subscription = (struct lb_subscription *)source;

	for (size_t i = 0; i < subscription->reader_count; i++) {
		lb_reader_free(subscription->readers[i]);
		free(subscription->readers[i]);
	}
	free(subscription->readers);
	if (subscription->setting.epoll_fd >= 0)
		close(subscription->setting.epoll_fd);
	free((void *)subscription->setting.address);
	free((void *)subscription->setting.topic);
	free((void *)subscription->options.partitions);
	free(subscription);
}

static const struct lb_source_kind subscription_kind = { wants, process, release };

struct lb_source *
lb_subscription_source(struct lb_subscription *subscription)
{
	return &subscription->source;
}

/* ---- opening ---- */

static const char *
wrong_partitions(const struct lb_subscription_options *options)
{
	if ((options->partitions == NULL) != (options->partition_count == 0))
		return "partitions and partition_count: either both or none";
	for (size_t i = 0; i < options->partition_count; i++) {
		if (options->partitions[i] < 0)
			return "partitions: a number is negative";
		for (size_t j = 0; j < i; j++)
			if (options->partitions[i] == options->partitions[j])
				return "partitions: a number is there twice";
	}
	return NULL;
}

/* NULL, or what is wrong. */
static const char *
wrong_options(const struct lb_subscription_options *options)
{
	if (options->start < LB_START_EARLIEST || options->start > LB_START_BEFORE_END || options->start_offset < 0)
		return "start, start_offset: unknown, or negative";
	if (options->stop < LB_STOP_NEVER || options->stop > LB_STOP_AT_OFFSET || options->stop_offset < 0)
		return "stop, stop_offset: unknown, or negative";
	if (options->on_gap < LB_GAP_FAIL || options->on_gap > LB_GAP_LATEST)
		return "on_gap: unknown";
	if (options->max_bytes < 1 || options->max_bytes_limit < options->max_bytes)
		return "max_bytes must be at least 1, max_bytes_limit at least that";
	if (options->min_bytes < 0 || options->min_bytes > options->max_bytes || options->max_wait_ms < 0)
		return "min_bytes must be 0 to max_bytes, max_wait_ms at least 0";
	if (options->timeout_ms < 1 || options->max_wait_ms > INT32_MAX - options->timeout_ms)
		return "timeout_ms must be at least 1, and with max_wait_ms below 2^31";
	return wrong_partitions(options);
}

/* What the broker would clamp anyway. */
static int32_t
clamp_bytes(int32_t bytes)
{
	return bytes < LB_FETCH_MAX_BYTES ? bytes : LB_FETCH_MAX_BYTES;
}

/* 0, or -1: no memory, no descriptor. */
static int
copy_options(struct lb_subscription *subscription, const char *address, const char *topic,
    const struct lb_subscription_options *options)
{
	size_t bytes = options->partition_count * sizeof(options->partitions[0]);

	subscription->options = *options;
	subscription->options.partitions = NULL;
	subscription->options.max_bytes = clamp_bytes(options->max_bytes);
	subscription->options.max_bytes_limit = clamp_bytes(options->max_bytes_limit);
	subscription->options.min_bytes = clamp_bytes(options->min_bytes);
	subscription->setting = (struct lb_reader_setting){ strdup(address), strdup(topic), &subscription->options,
		epoll_create1(EPOLL_CLOEXEC) };
	if (subscription->setting.address == NULL || subscription->setting.topic == NULL || subscription->setting.epoll_fd < 0)
		return -1;
	if (bytes == 0)
		return 0;
	subscription->options.partitions = malloc(bytes);
	if (subscription->options.partitions == NULL)
		return -1;
	memcpy((void *)subscription->options.partitions, options->partitions, bytes);
	return 0;
}

static struct lb_subscription *
subscription_new(const char *address, const char *topic, const struct lb_subscription_options *options)
{
	struct lb_subscription *subscription = calloc(1, sizeof(*subscription));

	if (subscription == NULL)
		return NULL;
	lb_source_init(&subscription->source, &subscription_kind);
	if (copy_options(subscription, address, topic, options) != 0 || lb_placing_add(subscription, -1) == NULL) {
		release(&subscription->source);
		return NULL;
	}
	return subscription;
}

enum lb_code
lb_subscription_open(struct lb_subscription **subscription, const char *address, const char *topic,
    const struct lb_subscription_options *options, struct lb_error *error)
{
	struct lb_subscription_options defaults = lb_subscription_defaults();
	struct lb_subscription *new;
	const char *wrong;
	enum lb_code code;

	*subscription = NULL;
	if (options == NULL)
		options = &defaults;
	if (lb_address_check(address, error) != LB_OK)
		return LB_INVALID_ARGUMENT;
	if (!lb_topic_name_valid(topic))
		return lb_error_no_topic(error, topic);
	wrong = wrong_options(options);
	if (wrong != NULL)
		return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1, "%s", wrong);
	new = subscription_new(address, topic, options);
	if (new == NULL)
		return lb_error_set(error, LB_NO_MEMORY, topic, -1, -1, "%s: cannot subscribe: %s", topic, strerror(errno));
	code = lb_reader_connect(new->readers[0], clock_now_ns(), error);
	if (code != LB_OK) {
		release(&new->source);
		return code;
	}
	*subscription = new;
	return LB_OK;
}

void
lb_subscription_free(struct lb_subscription *subscription)
{
	if (subscription == NULL || lb_source_gone(&subscription->source))
		return;
	for (size_t i = 0; i < subscription->reader_count; i++)
		lb_reader_close(subscription->readers[i]);
	lb_source_free(&subscription->source);
}

/* ---- what the application says ---- */

/* NULL: no such partition is subscribed to. */
static struct lb_reader *
find_reader(const struct lb_subscription *subscription, int32_t partition)
{
	for (size_t i = 0; subscription->placed && i < subscription->reader_count; i++)
		if (subscription->readers[i]->cursor.partition == partition)
			return subscription->readers[i];
	return NULL;
}

int64_t
lb_subscription_position(const struct lb_subscription *subscription, int32_t partition)
{
	const struct lb_reader *reader = find_reader(subscription, partition);

	return reader != NULL ? lb_reader_position(reader, reader == subscription->out) : -1;
}

enum lb_code
lb_subscription_seek(struct lb_subscription *subscription, int32_t partition, int64_t offset, struct lb_error *error)
{
	struct lb_reader *reader = find_reader(subscription, partition);
	const char *topic = subscription->setting.topic;
	bool known = subscription->placed && (reader == NULL || reader->cursor.state != LB_CURSOR_UNPLACED);

	if (offset < 0)
		return lb_error_set(error, LB_INVALID_ARGUMENT, topic, partition, offset, "%s/%d: cannot seek to offset %" PRId64,
		    topic, (int)partition, offset);
	if (!known || reader == NULL)
		return lb_error_set(error, LB_INVALID_ARGUMENT, topic, partition, offset, "%s/%d: %s", topic, (int)partition,
		    known ? "no such partition is subscribed to" : "cannot seek before the topic's partitions are known");
	lb_reader_seek(reader, offset, reader == subscription->out);
	subscription->stopped = false;
	lb_source_changed(&subscription->source);
	return LB_OK;
}

void
lb_subscription_pause(struct lb_subscription *subscription, bool paused)
{
	subscription->paused = paused;
	lb_source_changed(&subscription->source);
}

/* ---- lb_subscription_next ---- */

/* What there is at this moment; LB_TIMED_OUT: nothing. */
static enum lb_code
take_next(struct lb_subscription *subscription, const struct lb_batch **batch, struct lb_error *error)
{
	if (!lb_source_gone(&subscription->source))
		turn(subscription);
	if (!lb_source_gone(&subscription->source) && !subscription->stopped)
		*batch = lb_turns_take(subscription);
	if (lb_source_gone(&subscription->source))
		return lb_error_set(error, LB_CLOSED, NULL, -1, -1, "the subscription was freed");
	if (*batch != NULL)
		return LB_OK;
	if (!subscription->stopped)
		return lb_error_set(error, LB_TIMED_OUT, subscription->setting.topic, -1, -1, "%s: nothing came in time",
		    subscription->setting.topic);
	if (error != NULL)
		*error = subscription->error;
	return (enum lb_code)subscription->error.code;
}

enum lb_code
lb_subscription_next(struct lb_subscription *subscription, int timeout_ms, const struct lb_batch **batch,
    struct lb_error *error)
{
	int64_t deadline_ns = clock_now_ns() + (int64_t)timeout_ms * CLOCK_NS_PER_MS;
	enum lb_code code;
	int left_ms;

	*batch = NULL;
	if (lb_source_busy(&subscription->source) || subscription->options.handler != NULL)
		return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1,
		    "lb_subscription_next: not with a handler, nor inside a callback");
	lb_source_enter(&subscription->source);
	lb_turns_handled(subscription);
	while ((code = take_next(subscription, batch, error)) == LB_TIMED_OUT && !subscription->stopped &&
	    (left_ms = lb_wait_ms(deadline_ns, clock_now_ns())) > 0)
		lb_wait_for(&subscription->source, left_ms);
	lb_source_leave(&subscription->source);
	return code;
}
