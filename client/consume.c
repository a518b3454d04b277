/*
 * `logbroker consume`, `replay`, `follow` and `tail`: a subscription, with different defaults, whose batches go to standard
 * output.
 *
 * With a checkpoint the positions at which reading begins are kept at once, and the one behind a batch once its records have been
 * written: the file is saved when a second has passed since the last time, and at the end. Who is killed gets what was not saved
 * again: at least once.
 */
#include <sys/resource.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/checkpoint.h"
#include "client/framing.h"
#include "client/options.h"
#include "client/output.h"
#include "client/text.h"
#include "client/tool.h"
#include "common/clock.h"

enum {
	CONSUME_SAVE_MS = 1000,
	CONSUME_ASKED_MS = 10000,	/* for so long the library asks a broker again that cannot read its files */
	CONSUME_GRACE_MS = 500,		/* for the subscription's own reason, due at the same time: it tells more */
	CONSUME_FAILED = -1,		/* of the handler: the position stays */
};

struct consume {
	const struct options *options;
	char topic[LB_TOPIC_NAME_MAX + 1];
	int32_t only;			/* the partition that was named, or -1 */
	struct lb_subscription *subscription;
	struct checkpoint checkpoint;
	bool moved;			/* there are positions that are not saved */
	int64_t save_due_ns;		/* when moved */
	int64_t progress_ns;		/* when the last batch came */
	int64_t left;			/* records that may still be delivered */
	int64_t written;
	bool wait_said;
	bool stopped;			/* the subscription has; `failure` tells why, with code 0 at its good end */
	struct lb_error failure;
	struct output output;
};

/* TOPIC or TOPIC/PARTITION. */
static int
read_operand(struct consume *consume, const char *operand)
{
	const char *slash = strchr(operand, '/');
	size_t length = slash == NULL ? strlen(operand) : (size_t)(slash - operand);
	char *end;

	consume->only = -1;
	if (length < sizeof(consume->topic))
		memcpy(consume->topic, operand, length);
	if (!lb_topic_name_valid(consume->topic)) {
		tool_say("'%s': the topic's name must have 1 to 249 characters out of A-Z a-z 0-9 . _ -", operand);
		return TOOL_USAGE;
	}
	if (slash == NULL)
		return TOOL_DONE;
	consume->only = (int32_t)strtol(slash + 1, &end, 10);
	if (slash[1] >= '0' && slash[1] <= '9' && *end == '\0' && end - slash <= 6)
		return TOOL_DONE;
	tool_say("'%s': behind the slash the partition's number must stand", operand);
	return TOOL_USAGE;
}

/* ---- a batch ---- */

static void
put_json(struct consume *consume, const struct lb_batch *batch, const struct lb_record *record)
{
	struct output *output = &consume->output;
	bool array = consume->options->output == OPTIONS_OUTPUT_JSON;

	if (array && consume->written > 0)
		output_put(output, ",\n", 2);
	output_print(output, "{\"topic\":\"%s\",\"partition\":%d,\"offset\":%" PRId64 ",", batch->topic, batch->partition,
	    record->offset);
	text_put_payload(output, record->data, record->bytes);
	output_put(output, array ? "}" : "}\n", array ? 1 : 2);
}

static void
put_record(struct consume *consume, const struct lb_batch *batch, const struct lb_record *record)
{
	struct output *output = &consume->output;
	uint8_t *to;

	if (consume->options->output != OPTIONS_OUTPUT_TEXT) {
		put_json(consume, batch, record);
		return;
	}
	to = output_room(output, record->bytes + FRAMING_OVERHEAD_BYTES);
	if (to != NULL)
		output_advance(output, (size_t)(framing_put(to, consume->options->framing, record->data, record->bytes) - to));
}

static void
say_skipped(const struct lb_batch *batch)
{
	if (batch->skipped > 0)
		tool_say("%s/%d: skipped %" PRId64 " records; going on at offset %" PRId64, batch->topic, batch->partition,
		    batch->skipped, batch->base_offset);
}

/* A person who has mistyped --to should see why nothing more comes. */
static void
say_wait(struct consume *consume, const struct lb_batch *batch)
{
	const struct options *options = consume->options;

	if (options->to != OPTIONS_TO_OFFSET || batch->lag > 0 || batch->next_offset >= options->to_offset || consume->wait_said)
		return;
	consume->wait_said = true;
	tool_say("%s/%d ends at offset %" PRId64 ", --to is %" PRId64 ": waiting for what comes", batch->topic,
	    batch->partition, batch->high_watermark, options->to_offset);
}

static void
note_moved(struct consume *consume)
{
	consume->progress_ns = clock_now_ns();
	if (consume->moved || consume->options->checkpoint == NULL)
		return;
	consume->moved = true;
	consume->save_due_ns = consume->progress_ns + CONSUME_SAVE_MS * (int64_t)CLOCK_NS_PER_MS;
}

/* The subscription's handler. What could not be written is not counted as read. */
static int
deliver(void *context, const struct lb_batch *batch)
{
	struct consume *consume = context;
	struct lb_record record = { 0 };

	say_skipped(batch);
	while (consume->left > 0 && lb_batch_next(batch, &record)) {
		put_record(consume, batch, &record);
		consume->left--;
		consume->written++;
	}
	if (output_flush(&consume->output) != 0)
		return CONSUME_FAILED;
	note_moved(consume);
	if (consume->left == 0) {
		lb_subscription_pause(consume->subscription, true);
		lb_subscription_seek(consume->subscription, batch->partition, record.offset + 1, NULL);
	}
	say_wait(consume, batch);
	return 0;
}

static void
note_stop(void *context, const struct lb_error *error)
{
	struct consume *consume = context;

	consume->stopped = true;
	if (error != NULL)
		consume->failure = *error;
}

/* ---- checkpoints ---- */

/*
 * Asked when the partitions' ends are known, so from now on each has a position. A follower that is killed ahead of the first
 * record must not begin at another end.
 */
static int64_t
load_position(void *context, const char *topic, int32_t partition)
{
	struct consume *consume = context;

	(void)topic;
	consume->moved = true;
	consume->save_due_ns = clock_now_ns();
	return consume->options->from == OPTIONS_FROM_CHECKPOINT ? checkpoint_get(&consume->checkpoint, partition) : -1;
}

/* Positions are taken from the subscription when the file is saved: see save. */
static int
accept_position(void *context, const char *topic, int32_t partition, int64_t next_offset)
{
	(void)context;
	(void)topic;
	(void)partition;
	(void)next_offset;
	return 0;
}

/*
 * All positions are kept, also of partitions from which nothing has come yet: a follower that began at their ends begins
 * there again.
 */
static int
save(struct consume *consume)
{
	int32_t partition = consume->only < 0 ? 0 : consume->only;
	int64_t next;

	while ((next = lb_subscription_position(consume->subscription, partition)) >= 0) {
		if (checkpoint_set(&consume->checkpoint, partition, next) != 0)
			return -1;
		if (consume->only >= 0)
			break;
		partition++;
	}
	consume->moved = false;
	return checkpoint_save(&consume->checkpoint);
}

static int
open_checkpoint(struct consume *consume)
{
	if (consume->options->checkpoint == NULL)
		return TOOL_DONE;
	return checkpoint_open(&consume->checkpoint, consume->options->checkpoint, consume->topic);
}

/* ---- the subscription ---- */

static enum lb_start
start_of(const struct consume *consume)
{
	const struct options *options = consume->options;
	enum options_from from = options->from;

	/* A partition that a checkpoint does not know has been added to its topic since: nothing of it has been read. */
	if (from == OPTIONS_FROM_CHECKPOINT)
		from = checkpoint_is_empty(&consume->checkpoint) ? options->from_unkept : OPTIONS_FROM_EARLIEST;
	switch (from) {
	case OPTIONS_FROM_LATEST:
		return LB_START_LATEST;
	case OPTIONS_FROM_OFFSET:
		return LB_START_OFFSET;
	case OPTIONS_FROM_LAST:
		return LB_START_BEFORE_END;
	default:
		return LB_START_EARLIEST;
	}
}

static struct lb_subscription_options
subscription_options(struct consume *consume)
{
	static const enum lb_stop stops[] = { [OPTIONS_TO_END] = LB_STOP_AT_WATERMARK,
		[OPTIONS_TO_OFFSET] = LB_STOP_AT_OFFSET, [OPTIONS_TO_NEVER] = LB_STOP_NEVER };
	const struct options *options = consume->options;
	struct lb_subscription_options how = lb_subscription_defaults();

	how.start = start_of(consume);
	how.start_offset = options->from_number;
	how.stop = stops[options->to];
	how.stop_offset = options->to_offset;
	how.on_gap = options->on_gap;
	if (consume->only >= 0) {
		how.partitions = &consume->only;
		how.partition_count = 1;
	}
	how.max_bytes = options->max_bytes;
	how.timeout_ms = options->timeout_ms;
	how.give_up_ms = options->timeout_ms;
	if (options->checkpoint != NULL)
		how.checkpoints = (struct lb_checkpoints){ load_position, accept_position, consume };
	how.handler = deliver;
	how.stopped = note_stop;
	how.context = consume;
	return how;
}

/* A connection for each partition takes a descriptor; what the system allows without asking is taken. */
static void
raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

/* ---- the loop ---- */

static int
ms_until(int64_t due_ns)
{
	int64_t left_ns = due_ns - clock_now_ns();

	return left_ns < 0 ? 0 : (int)(left_ns / CLOCK_NS_PER_MS) + 1;
}

static int
earlier(int a_ms, int b_ms)
{
	return a_ms < 0 || (b_ms >= 0 && b_ms < a_ms) ? b_ms : a_ms;
}

/* A replay reads what is there, so it has nothing to wait for: INT64_MAX for the others. */
static int64_t
progress_due_ns(const struct consume *consume)
{
	if (consume->options->to != OPTIONS_TO_END)
		return INT64_MAX;
	return consume->progress_ns + (consume->options->timeout_ms + CONSUME_GRACE_MS) * (int64_t)CLOCK_NS_PER_MS;
}

/* Waits for something to process, or an end. Returns false when it is an end. */
static bool
wait_for_event(struct consume *consume)
{
	struct lb_wants wants = lb_source_wants(lb_subscription_source(consume->subscription));
	struct pollfd fds[] = {
		{ .fd = wants.fd, .events = wants.events },
		{ .fd = STDOUT_FILENO },	/* its reader's end is told without being asked for */
		{ .fd = tool_stop_fd(), .events = POLLIN },
	};
	int timeout_ms = wants.timeout_ms;

	if (consume->moved)
		timeout_ms = earlier(timeout_ms, ms_until(consume->save_due_ns));
	if (consume->options->to == OPTIONS_TO_END)
		timeout_ms = earlier(timeout_ms, ms_until(progress_due_ns(consume)));
	poll(fds, 3, timeout_ms);
	return fds[2].revents == 0 && (fds[1].revents & (POLLERR | POLLHUP)) == 0;
}

static bool
is_over(const struct consume *consume)
{
	return consume->stopped || consume->left == 0;
}

/* Returns TOOL_DONE at any good end. */
static int
turn(struct consume *consume)
{
	while (!is_over(consume) && wait_for_event(consume)) {
		lb_source_process(lb_subscription_source(consume->subscription));
		if (!is_over(consume) && clock_now_ns() >= progress_due_ns(consume)) {
			tool_say("%s: no progress in %d ms, ahead of the end as it was at the start%s", consume->topic,
			    consume->options->timeout_ms, consume->options->timeout_ms > CONSUME_ASKED_MS ? ""
			    : "; whether the broker cannot read its files is told with --timeout 15s");
			return TOOL_TIMEOUT;
		}
		if (consume->moved && clock_now_ns() >= consume->save_due_ns && save(consume) != 0)
			return TOOL_INTERNAL;
	}
	return TOOL_DONE;
}

/* A signal is the good end of what has no other one; elsewhere it comes too early. */
static int
judge_stop(const struct consume *consume)
{
	const struct options *options = consume->options;
	bool reached = is_over(consume) && !consume->output.closed;

	if (reached || !tool_stopped() || (options->to == OPTIONS_TO_NEVER && options->count == INT64_MAX))
		return TOOL_DONE;
	tool_say("%s: stopped ahead of the end that was asked for", consume->topic);
	return TOOL_PARTLY;
}

/* Connections that came about and broke, for as long as we wait for anything, are a time-out. */
static int
judge_failure(const struct consume *consume)
{
	const struct lb_error *failure = &consume->failure;
	int result = tool_failed(failure);

	if (failure->code == LB_LOST && lb_subscription_position(consume->subscription, failure->partition) >= 0)
		return TOOL_TIMEOUT;
	return result;
}

static int
judge(struct consume *consume, int result)
{
	if (consume->output.failed)
		return TOOL_INTERNAL;
	if (result == TOOL_DONE && consume->failure.code != LB_OK && !consume->output.closed)
		return judge_failure(consume);
	return result == TOOL_DONE ? judge_stop(consume) : result;
}

static int
run(struct consume *consume)
{
	struct lb_subscription_options how = subscription_options(consume);
	struct lb_error error;
	bool array = consume->options->output == OPTIONS_OUTPUT_JSON;
	int result;

	if (lb_subscription_open(&consume->subscription, consume->options->address, consume->topic, &how, &error) != LB_OK)
		return tool_not_opened(consume->options, &error);
	consume->progress_ns = clock_now_ns();
	if (array)
		output_put(&consume->output, "[", 1);
	result = turn(consume);
	if (array)
		output_put(&consume->output, "]\n", 2);
	output_flush(&consume->output);
	result = judge(consume, result);
	if (consume->options->checkpoint != NULL && save(consume) != 0)
		result = TOOL_INTERNAL;
	lb_subscription_free(consume->subscription);
	return result;
}

int
verb_consume(const struct options *options)
{
	struct consume consume = { .options = options, .left = options->count, .checkpoint.fd = -1 };
	int result = read_operand(&consume, options->operands[0]);

	if (result == TOOL_DONE)
		result = open_checkpoint(&consume);
	if (result == TOOL_DONE && output_open(&consume.output, STDOUT_FILENO) != 0)
		result = TOOL_INTERNAL;
	if (result != TOOL_DONE)
		goto end;
	raise_descriptor_limit();
	if (tool_catch_stop() != 0)
		tool_say("signals cannot be caught: %s", strerror(errno));
	result = run(&consume);
end:
	output_free(&consume.output);
	checkpoint_close(&consume.checkpoint);
	return result;
}
