/*
 * `logbroker consume`, `replay` and `follow`: one engine with different defaults.
 *
 * A replay knows its ends from the start and reads one partition after the other over one connection. Whoever waits
 * for records to come (--to never, or an offset that is not there yet) reads all partitions at once, each over a
 * connection of its own, where its FETCH is held by the broker. A connection that breaks is made again, and reading
 * goes on from the position: what had been delivered is not asked for a second time.
 *
 *   partition's state:  idle (until retry_ns) -> asked (until answer_due_ns) -> idle ... -> finished
 */
#include <sys/resource.h>

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/framing.h"
#include "client/options.h"
#include "client/output.h"
#include "client/reader.h"
#include "client/tool.h"
#include "client/wire.h"
#include "common/clock.h"

enum {
	CONSUME_WAIT_MS = 5000,			/* how long the broker holds a FETCH */
	CONSUME_BACKOFF_FIRST_MS = 100,		/* doubling to: */
	CONSUME_BACKOFF_MAX_MS = 2000,
	CONSUME_RANGE_RETRIES = 10,		/* refused as out of range although METADATA says it is within */
	CONSUME_ADDED_FDS = 2,			/* in the poll set: standard output, the wish to stop */
	CONSUME_GOING = -1,			/* no exit code yet */
};

static const int64_t CONSUME_WAIT_MAX_NS = 3600 * (int64_t)CLOCK_NS_PER_S;	/* fits poll's milliseconds */

struct partition {
	struct reader reader;
	int32_t number;
	struct client *client;		/* NULL: not yet */
	bool asked, finished;
	bool begun;			/* an offset of it has been accepted by the broker */
	int32_t range_retries;
	int64_t answer_due_ns, retry_ns, backoff_ms;
	int64_t tried_ns;		/* when the last request was begun, connecting included */
	int64_t failing_ns;		/* since when nothing has come of them; 0: all is well */
};

struct consume {
	const struct options *options;
	char topic[CODEC_TOPIC_NAME_MAX + 1];
	int32_t only;			/* the partition that was named, or -1 */
	struct partition *partitions;
	int32_t count;
	int32_t first_active, active_count;	/* a replay has one active partition at a time */
	bool waits;			/* FETCHes are held */
	bool outage_said, wait_said;
	bool cut;			/* records were taken off `left` that have not been written */
	int64_t left;			/* records that may still be delivered */
	struct output output;
	struct pollfd *fds;
};

/* TOPIC or TOPIC/PARTITION. */
static int
read_operand(struct consume *consume, const char *operand)
{
	const char *slash = strchr(operand, '/');
	size_t length = slash == NULL ? strlen(operand) : (size_t)(slash - operand);
	char *end;

	consume->only = -1;
	if (!codec_topic_name_valid(operand, length)) {
		tool_say("'%s': the topic's name must have 1 to 249 characters out of A-Z a-z 0-9 . _ -", operand);
		return TOOL_USAGE;
	}
	memcpy(consume->topic, operand, length);
	if (slash == NULL)
		return TOOL_DONE;
	consume->only = (int32_t)strtol(slash + 1, &end, 10);
	if (slash[1] >= '0' && slash[1] <= '9' && *end == '\0' && end - slash <= 6)
		return TOOL_DONE;
	tool_say("'%s': behind the slash the partition's number must stand", operand);
	return TOOL_USAGE;
}

static void
say_gap(const struct consume *consume, const struct partition *partition, const struct wire_partition *log,
    int64_t next)
{
	int64_t position = partition->reader.position;

	if (position > log->high_watermark)
		tool_say("%s/%d: offset %" PRId64 " is behind the log's end, %" PRId64 "%s", consume->topic,
		    partition->number, position, log->high_watermark,
		    next < 0 ? "; --on-gap tells how to go on" : "; going on there");
	else if (next < 0)
		tool_say("%s/%d: the records from offset %" PRId64 " to %" PRId64 " are gone (%" PRId64 " records), the log "
		    "begins at %" PRId64 "; --on-gap tells how to go on", consume->topic, partition->number, position,
		    log->log_start - 1, log->log_start - position, log->log_start);
	else
		tool_say("%s/%d: skipped %" PRId64 " records that are gone and %" PRId64 " that are not, from offset "
		    "%" PRId64 "; going on at %" PRId64, consume->topic, partition->number, log->log_start - position,
		    next - log->log_start, position, next);
}

/*
 * The wanted offset lies outside the log: goes where the policy says. Behind the end there is nothing to skip, so
 * both policies go on at the end. Returns CONSUME_GOING or the exit code.
 */
static int
cross_gap(struct consume *consume, struct partition *partition, const struct wire_partition *log)
{
	int64_t next = log->log_start;

	if (partition->reader.position > log->high_watermark || consume->options->on_gap == OPTIONS_GAP_LATEST)
		next = log->high_watermark;
	if (!partition->begun && consume->options->from == OPTIONS_FROM_EARLIEST) {
		/* Retention was quicker than the first request; nobody has asked for these records by number. */
		partition->reader.position = log->log_start;
		return CONSUME_GOING;
	}
	if (consume->options->on_gap == OPTIONS_GAP_FAIL)
		next = -1;
	say_gap(consume, partition, log, next);
	if (next < 0)
		return TOOL_RANGE;
	partition->reader.position = next;
	return CONSUME_GOING;
}

static bool
in_range(const struct partition *partition, const struct wire_partition *log)
{
	return partition->reader.position >= log->log_start && partition->reader.position <= log->high_watermark;
}

static int64_t
first_position(const struct options *options, const struct wire_partition *log)
{
	switch (options->from) {
	case OPTIONS_FROM_EARLIEST:
		return log->log_start;
	case OPTIONS_FROM_LATEST:
		return log->high_watermark;
	case OPTIONS_FROM_LAST:
		return log->high_watermark - log->log_start > options->from_number ?
		    log->high_watermark - options->from_number : log->log_start;
	case OPTIONS_FROM_OFFSET:
		break;
	}
	return options->from_number;
}

static int64_t
last_position(const struct options *options, const struct wire_partition *log)
{
	switch (options->to) {
	case OPTIONS_TO_END:
		return log->high_watermark;
	case OPTIONS_TO_OFFSET:
		return options->to_offset;
	case OPTIONS_TO_NEVER:
		break;
	}
	return INT64_MAX;
}

static void
finish_if_done(struct partition *partition)
{
	if (partition->reader.position >= partition->reader.end)
		partition->finished = true;
}

/* A person who has mistyped --to should see why nothing more comes. */
static void
say_wait(struct consume *consume, const struct partition *partition, const struct wire_partition *log)
{
	if (consume->options->to != OPTIONS_TO_OFFSET || partition->reader.end <= log->high_watermark || consume->wait_said)
		return;
	consume->wait_said = true;
	tool_say("%s/%d ends at offset %" PRId64 ", --to is %" PRId64 ": waiting for what comes", consume->topic,
	    partition->number, log->high_watermark, partition->reader.end);
}

static int
init_partition(struct consume *consume, struct partition *partition, const struct wire_topic *topic, int32_t number)
{
	const struct options *options = consume->options;
	const struct wire_partition *log = &topic->partitions[number];
	int result = CONSUME_GOING;

	partition->number = number;
	partition->backoff_ms = CONSUME_BACKOFF_FIRST_MS;
	partition->reader = (struct reader){ .format = (enum record_format)topic->record_format,
		.position = first_position(options, log), .end = last_position(options, log),
		.max_bytes = options->max_bytes, .ask_bytes = options->max_bytes };
	if (!in_range(partition, log))
		result = cross_gap(consume, partition, log);
	if (partition->reader.end > log->high_watermark)
		consume->waits = true;
	say_wait(consume, partition, log);
	finish_if_done(partition);
	return result;
}

static int
init_partitions(struct consume *consume, const struct wire_topic *topic)
{
	int32_t first = consume->only < 0 ? 0 : consume->only;
	int result = CONSUME_GOING;

	if (consume->only >= topic->partition_count) {
		tool_say("%s: topic %s has %d partitions, none with number %d",
		    codec_error_name(CODEC_UNKNOWN_TOPIC_OR_PARTITION), consume->topic, topic->partition_count,
		    consume->only);
		return TOOL_REFUSED;
	}
	consume->count = consume->only < 0 ? topic->partition_count : 1;
	consume->partitions = calloc((size_t)consume->count, sizeof(*consume->partitions));
	consume->fds = calloc((size_t)consume->count + CONSUME_ADDED_FDS, sizeof(*consume->fds));
	if (consume->partitions == NULL || consume->fds == NULL) {
		tool_say("out of memory");
		return TOOL_INTERNAL;
	}
	for (int32_t i = 0; i < consume->count && result == CONSUME_GOING; i++)
		result = init_partition(consume, &consume->partitions[i], topic, first + i);
	consume->active_count = consume->waits ? consume->count : 1;
	return result;
}

/*
 * Gives up when there has been no progress for the user's time (which is what a missing answer means by itself); else
 * sets the time of the next try.
 */
static int
try_again_later(struct consume *consume, struct partition *partition, enum client_status status, const char *why)
{
	int64_t now = clock_now_ns();

	partition->asked = false;
	if (partition->failing_ns == 0)
		partition->failing_ns = status == CLIENT_UNREACHABLE ? partition->tried_ns : now;
	if (status == CLIENT_TIMEOUT || now - partition->failing_ns >= consume->options->timeout_ns) {
		tool_say("%s/%d: no progress at offset %" PRId64 ": %s", consume->topic, partition->number,
		    partition->reader.position, why);
		return status == CLIENT_UNREACHABLE ? TOOL_UNREACHABLE : TOOL_TIMEOUT;
	}
	if (!consume->outage_said)
		tool_say("%s/%d: trying again at offset %" PRId64 ": %s", consume->topic, partition->number,
		    partition->reader.position, why);
	consume->outage_said = true;
	partition->retry_ns = now + partition->backoff_ms * CLOCK_NS_PER_MS;
	partition->backoff_ms *= 2;
	if (partition->backoff_ms > CONSUME_BACKOFF_MAX_MS)
		partition->backoff_ms = CONSUME_BACKOFF_MAX_MS;
	return CONSUME_GOING;
}

/* What to do about a request that did not come to a proper answer. */
static int
recover(struct consume *consume, struct partition *partition, enum client_status status)
{
	switch (status) {
	case CLIENT_STOPPED:
		return TOOL_DONE;
	case CLIENT_UNREACHABLE:
	case CLIENT_LOST:
	case CLIENT_TIMEOUT:
		client_disconnect(partition->client);
		return try_again_later(consume, partition, status, client_reason(partition->client));
	default:
		tool_say("%s/%d: %s", consume->topic, partition->number, client_reason(partition->client));
		return tool_exit_code(status);
	}
}

static enum client_status
connect_partition(struct consume *consume, struct partition *partition)
{
	enum client_status status;

	if (partition->client == NULL)
		partition->client = client_new(consume->options->address, tool_stop_fd());
	if (partition->client == NULL)
		return CLIENT_NO_MEMORY;
	if (client_connected(partition->client))
		return CLIENT_OK;
	status = client_connect(partition->client, tool_deadline(consume->options));
	/* A host that does not answer is as unreachable as one that refuses. */
	return status == CLIENT_TIMEOUT ? CLIENT_UNREACHABLE : status;
}

static int
ask(struct consume *consume, struct partition *partition)
{
	struct wire_fetch fetch = { .topic = consume->topic, .partition = partition->number,
		.offset = partition->reader.position, .max_bytes = partition->reader.ask_bytes,
		.held = consume->waits, .max_wait_ms = CONSUME_WAIT_MS, .min_bytes = 1 };
	uint8_t frame[WIRE_HEAD_MAX_BYTES];
	enum client_status status;

	partition->tried_ns = clock_now_ns();
	status = connect_partition(consume, partition);
	if (status == CLIENT_NO_MEMORY && partition->client == NULL) {
		tool_say("out of memory");
		return TOOL_INTERNAL;
	}
	if (status == CLIENT_OK)
		status = client_send(partition->client, frame, wire_put_fetch(frame, &fetch), true,
		    tool_deadline(consume->options));
	if (status != CLIENT_OK)
		return recover(consume, partition, status);
	partition->asked = true;
	partition->answer_due_ns = tool_deadline(consume->options) +
	    (consume->waits ? CONSUME_WAIT_MS * (int64_t)CLOCK_NS_PER_MS : 0);
	return CONSUME_GOING;
}

static void
note_progress(struct consume *consume, struct partition *partition)
{
	partition->failing_ns = 0;
	partition->backoff_ms = CONSUME_BACKOFF_FIRST_MS;
	partition->retry_ns = 0;
	partition->range_retries = 0;
	partition->begun = true;
	if (consume->outage_said)
		tool_say("%s/%d: going on at offset %" PRId64, consume->topic, partition->number,
		    partition->reader.position);
	consume->outage_said = false;
}

/* Writes a batch's records to the output. Returns CONSUME_GOING, or the exit code when nobody takes them. */
static int
deliver(struct consume *consume, enum record_format format, const uint8_t *record, const struct reader_batch *batch)
{
	for (int64_t i = 0; i < batch->records; i++) {
		size_t size;
		const uint8_t *payload = reader_payload(format, record, &size, &record);
		uint8_t *to = output_room(&consume->output, size + FRAMING_OVERHEAD_BYTES);

		if (to == NULL)
			return TOOL_INTERNAL;
		output_advance(&consume->output, (size_t)(framing_put(to, consume->options->framing, payload, size) - to));
	}
	if (output_flush(&consume->output) == 0)
		return CONSUME_GOING;
	consume->cut = true;
	return consume->output.failed ? TOOL_INTERNAL : TOOL_DONE;
}

static int
report(struct consume *consume, struct partition *partition, enum reader_verdict verdict,
    const struct reader_batch *batch, int64_t high_watermark)
{
	const struct reader *reader = &partition->reader;
	char why[128];

	switch (verdict) {
	case READER_GOES_ON:
	case READER_LARGER:
		return CONSUME_GOING;
	case READER_EMPTY:
		if (consume->waits || partition->finished)
			return CONSUME_GOING;
		snprintf(why, sizeof(why), "the log ends at %" PRId64 " and not at %" PRId64 " as it did at the start",
		    high_watermark, reader->end);
		return try_again_later(consume, partition, CLIENT_LOST, why);
	case READER_STUCK:
		tool_say("%s/%d: the record at offset %" PRId64 ", of %zu bytes, did not come whole although %d bytes were "
		    "asked for", consume->topic, partition->number, reader->position, batch->stuck_bytes,
		    reader->ask_bytes);
		return TOOL_INTERNAL;
	case READER_DAMAGED:
		tool_say("%s/%d: corruption at offset %" PRId64 ": %s", consume->topic, partition->number,
		    reader->position, batch->damage);
		return TOOL_CORRUPTION;
	}
	return TOOL_INTERNAL;
}

/* Records have come. The next ones are asked for before these are written, so that both take place at once. */
static int
take_records(struct consume *consume, struct partition *partition, const struct wire_fetched *fetched)
{
	struct reader_batch batch;
	enum reader_verdict verdict = reader_take(&partition->reader, fetched->payload, fetched->payload_bytes,
	    consume->left, &batch);
	int result = CONSUME_GOING, delivered;

	consume->left -= batch.records;
	finish_if_done(partition);
	if (verdict != READER_EMPTY || consume->waits)
		note_progress(consume, partition);
	if (verdict == READER_GOES_ON && !partition->finished && consume->left > 0)
		result = ask(consume, partition);
	delivered = deliver(consume, partition->reader.format, fetched->payload, &batch);
	if (delivered != CONSUME_GOING)
		return delivered;
	return result != CONSUME_GOING ? result : report(consume, partition, verdict, &batch, fetched->high_watermark);
}

/* The offset was refused: looks where the log is now. */
static int
out_of_range(struct consume *consume, struct partition *partition)
{
	const char *topic = consume->topic;
	struct wire_metadata metadata;
	const struct wire_topic *found;
	struct wire_partition log;
	int16_t error;
	int result = CONSUME_GOING;
	enum client_status status = wire_ask_metadata(partition->client, &topic, 1, tool_deadline(consume->options),
	    &metadata, &error);

	if (status != CLIENT_OK)
		return recover(consume, partition, status);
	found = wire_find_topic(&metadata, topic);
	if (partition->number >= found->partition_count) {
		wire_free_metadata(&metadata);
		return recover(consume, partition, client_break(partition->client, "the partition has vanished"));
	}
	log = found->partitions[partition->number];
	wire_free_metadata(&metadata);
	if (!in_range(partition, &log))
		result = cross_gap(consume, partition, &log);
	else if (++partition->range_retries > CONSUME_RANGE_RETRIES)
		result = TOOL_REFUSED;
	if (result == TOOL_REFUSED)
		tool_say("%s/%d: OFFSET_OUT_OF_RANGE for offset %" PRId64 ", although the log goes from %" PRId64
		    " to %" PRId64, topic, partition->number, partition->reader.position, log.log_start,
		    log.high_watermark);
	finish_if_done(partition);
	return result;
}

static int
take_refusal(struct consume *consume, struct partition *partition, int16_t error)
{
	if (error == CODEC_OFFSET_OUT_OF_RANGE)
		return out_of_range(consume, partition);
	tool_say("%s/%d: offset %" PRId64 ": %s", consume->topic, partition->number, partition->reader.position,
	    client_reason(partition->client));
	return TOOL_REFUSED;
}

/* Something may have arrived for a partition that has asked, or its time may be over. */
static int
take_answer(struct consume *consume, struct partition *partition)
{
	struct client_answer answer;
	struct wire_fetched fetched;
	enum client_status status = client_poll(partition->client, &answer);

	if (status == CLIENT_AGAIN && clock_now_ns() < partition->answer_due_ns)
		return CONSUME_GOING;
	if (status == CLIENT_AGAIN) {
		client_disconnect(partition->client);
		return try_again_later(consume, partition, CLIENT_TIMEOUT, "no answer in time");
	}
	partition->asked = false;
	if (status == CLIENT_REFUSED)
		return take_refusal(consume, partition, answer.error);
	if (status == CLIENT_OK && wire_read_fetched(&answer, partition->reader.ask_bytes, &fetched) != 0)
		status = client_break(partition->client, "a FETCH answer whose lengths do not agree");
	if (status != CLIENT_OK)
		return recover(consume, partition, status);
	return take_records(consume, partition, &fetched);
}

/* A replay moves on to its next partition, and its connection with it. */
static void
move_on(struct consume *consume)
{
	while (!consume->waits && consume->first_active < consume->count &&
	    consume->partitions[consume->first_active].finished) {
		struct partition *done = &consume->partitions[consume->first_active++];

		if (consume->first_active == consume->count)
			break;
		done[1].client = done->client;
		done->client = NULL;
	}
}

static bool
all_finished(const struct consume *consume)
{
	for (int32_t i = consume->first_active; i < consume->count; i++) {
		if (!consume->partitions[i].finished)
			return false;
	}
	return true;
}

static struct partition *
active(struct consume *consume, int32_t i)
{
	return &consume->partitions[consume->first_active + i];
}

/* Waits until an answer, a time or an end comes. Returns CONSUME_GOING, or the exit code of an end. */
static int
wait_for_event(struct consume *consume)
{
	struct pollfd *added = &consume->fds[consume->active_count];
	int64_t next_ns = INT64_MAX, left_ns;

	for (int32_t i = 0; i < consume->active_count; i++) {
		struct partition *partition = active(consume, i);
		int64_t due_ns = partition->asked ? partition->answer_due_ns : partition->retry_ns;

		consume->fds[i] = (struct pollfd){ .fd = partition->asked ? client_fd(partition->client) : -1,
			.events = POLLIN };
		if (!partition->finished && due_ns < next_ns)
			next_ns = due_ns;
	}
	added[0] = (struct pollfd){ .fd = STDOUT_FILENO };	/* its reader's end is told without being asked for */
	added[1] = (struct pollfd){ .fd = tool_stop_fd(), .events = POLLIN };
	left_ns = next_ns - clock_now_ns();
	left_ns = left_ns < 0 ? 0 : left_ns > CONSUME_WAIT_MAX_NS ? CONSUME_WAIT_MAX_NS : left_ns;
	if (poll(consume->fds, (nfds_t)consume->active_count + CONSUME_ADDED_FDS,
	    (int)(left_ns / CLOCK_NS_PER_MS) + (left_ns > 0)) < 0 && errno != EINTR) {
		tool_say("poll: %s", strerror(errno));
		return TOOL_INTERNAL;
	}
	return added[1].revents != 0 || (added[0].revents & (POLLERR | POLLHUP)) != 0 ? TOOL_DONE : CONSUME_GOING;
}

/* One partition's turn. */
static int
step(struct consume *consume, struct partition *partition, int64_t now, bool readable)
{
	if (partition->finished)
		return CONSUME_GOING;
	if (partition->asked)
		return readable || now >= partition->answer_due_ns ? take_answer(consume, partition) : CONSUME_GOING;
	return now >= partition->retry_ns ? ask(consume, partition) : CONSUME_GOING;
}

static int
run(struct consume *consume)
{
	int result = CONSUME_GOING;

	move_on(consume);
	while (result == CONSUME_GOING && consume->left > 0 && !all_finished(consume)) {
		int64_t now = clock_now_ns();

		for (int32_t i = 0; i < consume->active_count && result == CONSUME_GOING && consume->left > 0; i++)
			result = step(consume, active(consume, i), now, consume->fds[i].revents != 0);
		move_on(consume);
		if (result == CONSUME_GOING && consume->left > 0 && !all_finished(consume))
			result = wait_for_event(consume);
	}
	return result == CONSUME_GOING ? TOOL_DONE : result;
}

/* Learns the partitions and their ends; the connection goes to the first partition. */
static int
look_up_topic(struct consume *consume)
{
	const char *topic = consume->topic;
	struct wire_metadata metadata;
	const struct wire_topic *found;
	int result;
	struct client *client = tool_connect(consume->options, &result);

	if (client == NULL)
		return result;
	result = tool_metadata(client, consume->options, &topic, 1, &metadata);
	found = wire_find_topic(&metadata, topic);
	if (result == TOOL_DONE && found != NULL)	/* it is NULL when the end was asked for meanwhile */
		result = init_partitions(consume, found);
	wire_free_metadata(&metadata);
	if (result == CONSUME_GOING)
		consume->partitions[0].client = client;
	else
		client_free(client);
	return result;
}

/* A signal is the good end of what has no other one; elsewhere it comes too early. */
static int
judge_stop(const struct consume *consume)
{
	const struct options *options = consume->options;
	bool reached = !consume->cut && consume->partitions != NULL && (consume->left == 0 || all_finished(consume));

	if (reached || !tool_stopped() || (options->to != OPTIONS_TO_OFFSET && options->count == INT64_MAX))
		return TOOL_DONE;
	tool_say("%s: stopped ahead of the end that was asked for (--to, -n)", consume->topic);
	return TOOL_PARTLY;
}

static void
free_consume(struct consume *consume)
{
	for (int32_t i = 0; i < consume->count && consume->partitions != NULL; i++)
		client_free(consume->partitions[i].client);
	free(consume->partitions);
	free(consume->fds);
	output_free(&consume->output);
}

/* Following needs a descriptor for each partition; what the system allows without asking is taken. */
static void
raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int
verb_consume(const struct options *options)
{
	struct consume consume = { .options = options, .left = options->count };
	int result = read_operand(&consume, options->operands[0]);

	if (result != TOOL_DONE)
		return result;
	if (output_open(&consume.output, STDOUT_FILENO) != 0)
		return TOOL_INTERNAL;
	if (options->to != OPTIONS_TO_END) {
		raise_descriptor_limit();
		if (tool_catch_stop() != 0)
			tool_say("signals cannot be caught: %s", strerror(errno));
	}
	result = look_up_topic(&consume);
	if (result == CONSUME_GOING)
		result = run(&consume);
	if (result == TOOL_DONE)
		result = judge_stop(&consume);
	free_consume(&consume);
	return result;
}
