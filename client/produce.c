/*
 * `logbroker produce`: inputs into records, records to their partitions, and an honest account at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/framing.h"
#include "client/options.h"
#include "client/output.h"
#include "client/partitioner.h"
#include "client/publish.h"
#include "client/tool.h"
#include "client/wire.h"
#include "common/clock.h"

struct produce {
	const struct options *options;
	const char *topic;
	struct client *client;
	struct publisher *publisher;
	struct output offsets;
	int32_t partition_count;
	int32_t fixed_partition;	/* -1: chosen record by record */
	int32_t next_partition;		/* round robin */
	int64_t record_number;		/* of the last record read, from 1, over all inputs */
	bool input_bad;			/* said */
};

/* The partition of a record; with --key-delim its key is cut off. Returns -1 when there is no key to go by. */
static int32_t
place_record(struct produce *produce, struct framing_record *record)
{
	const char *delimiter = produce->options->key_delimiter;
	const uint8_t *found;
	size_t key_bytes, skip;
	int32_t partition = produce->next_partition;

	if (produce->fixed_partition >= 0)
		return produce->fixed_partition;
	if (delimiter == NULL) {
		produce->next_partition = partition + 1 == produce->partition_count ? 0 : partition + 1;
		return partition;
	}
	found = memmem(record->payload, record->size, delimiter, strlen(delimiter));
	if (found == NULL)
		return -1;
	key_bytes = (size_t)(found - record->payload);
	skip = key_bytes + strlen(delimiter);
	partition = partitioner_choose(record->payload, key_bytes, produce->partition_count);
	record->payload += skip;
	record->size -= skip;
	return partition;
}

/* A key with nothing behind it: with lines and nul that is the blank record, elsewhere there is none. */
static bool
fill_empty_record(const struct produce *produce, struct framing_record *record)
{
	if (produce->options->framing != FRAMING_LINES && produce->options->framing != FRAMING_NUL)
		return false;
	record->payload = (const uint8_t *)(produce->options->framing == FRAMING_LINES ? "\n" : "\0");
	record->size = 1;
	return true;
}

static void
say_bad_record(const struct produce *produce, const char *input, const struct framing_record *record, int32_t partition)
{
	const char *delimiter = produce->options->key_delimiter;

	if (partition >= 0)
		tool_say("%s: record %" PRId64 " at byte %" PRId64 " has no bytes behind its key", input,
		    produce->record_number, record->position);
	else
		tool_say("%s: record %" PRId64 " at byte %" PRId64 " has no key: --key-delim '%s' is not in it%s", input,
		    produce->record_number, record->position, delimiter,
		    strchr(delimiter, '\\') != NULL ? " (a backslash is a character like others; a tab is $'\\t' in most shells)" : "");
}

static enum client_status
send_record(struct produce *produce, const char *input, struct framing_record *record)
{
	int32_t partition;

	produce->record_number++;
	partition = place_record(produce, record);
	if (partition < 0 || (record->size == 0 && !fill_empty_record(produce, record))) {
		say_bad_record(produce, input, record, partition);
		produce->input_bad = true;
		return CLIENT_OK;
	}
	return publish_put(produce->publisher, partition, record->payload, record->size, produce->record_number);
}

/* Ends the wait when the input has more, or when there is something to do for the connection. */
static enum client_status
wait_for_input(struct produce *produce, int input_fd)
{
	int64_t deadline_ns = publish_deadline(produce->publisher);
	int64_t left_ns = deadline_ns - clock_now_ns();
	int64_t left_ms = left_ns < 0 ? 0 : left_ns / CLOCK_NS_PER_MS + 1;
	struct pollfd fds[2] = { { .fd = input_fd, .events = POLLIN },
		{ .fd = client_fd(produce->client), .events = POLLIN } };
	int ready = poll(fds, 2, deadline_ns == INT64_MAX ? -1 : (int)(left_ms < 3600000 ? left_ms : 3600000));

	if (ready == 0 && clock_now_ns() >= deadline_ns)
		return CLIENT_TIMEOUT;
	return CLIENT_OK;
}

static enum client_status
pause_input(struct produce *produce, int input_fd)
{
	enum client_status status = publish_pause(produce->publisher);

	output_flush(&produce->offsets);
	return status == CLIENT_OK ? wait_for_input(produce, input_fd) : status;
}

static void
note_unterminated(const struct produce *produce, const char *input)
{
	if (produce->options->framing == FRAMING_LINES)
		tool_say("%s: the last line has no newline; it will come back with one", input);
	else
		tool_say("%s: the last record has no NUL byte behind it; it will come back with one", input);
}

static enum client_status
send_records(struct produce *produce, const char *input, int fd, struct framing_reader *reader)
{
	enum client_status status = CLIENT_OK;

	while (status == CLIENT_OK && !produce->input_bad) {
		struct framing_record record;

		switch (framing_next(reader, &record)) {
		case FRAMING_RECORD:
			if (record.unterminated)
				note_unterminated(produce, input);
			status = send_record(produce, input, &record);
			break;
		case FRAMING_PAUSE:
			status = pause_input(produce, fd);
			break;
		case FRAMING_END:
			return CLIENT_OK;
		case FRAMING_BAD:
			tool_say("%s: %s", input, framing_problem(reader));
			produce->input_bad = true;
		}
	}
	return status;
}

static enum client_status
send_input(struct produce *produce, const char *input, int fd)
{
	struct framing_reader *reader = framing_open(produce->options->framing, fd, publish_max_record(produce->topic));
	enum client_status status;

	if (reader == NULL)
		return CLIENT_NO_MEMORY;
	status = send_records(produce, input, fd, reader);
	framing_close(reader);
	return status;
}

static enum client_status
send_file(struct produce *produce, const char *path)
{
	enum client_status status;
	int fd;

	if (strcmp(path, "-") == 0)
		return send_input(produce, "standard input", STDIN_FILENO);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		tool_say("%s: %s", path, strerror(errno));
		produce->input_bad = true;
		return CLIENT_OK;
	}
	status = send_input(produce, path, fd);
	close(fd);
	return status;
}

static enum client_status
send_everything(struct produce *produce)
{
	const struct options *options = produce->options;
	enum client_status status = CLIENT_OK;

	if (options->operand_count == 1)
		status = send_input(produce, "standard input", STDIN_FILENO);
	for (int32_t i = 1; i < options->operand_count && status == CLIENT_OK && !produce->input_bad; i++)
		status = send_file(produce, options->operands[i]);
	if (status == CLIENT_OK || status == CLIENT_REFUSED)
		return publish_end(produce->publisher);
	if (status == CLIENT_LOST)
		publish_salvage(produce->publisher);
	return status;
}

/* The account of an end that is not the good one. */
static void
say_totals(const struct produce *produce)
{
	const struct publish_totals *totals = publish_totals(produce->publisher);
	int64_t unknown = totals->sent - totals->acknowledged - totals->refused;

	if (produce->options->ack == CODEC_ACK_NONE) {
		tool_say("%" PRId64 " records were sent; with -a none nobody knows what became of them", totals->sent);
		return;
	}
	tool_say("%" PRId64 " records acknowledged, %" PRId64 " refused, %" PRId64 " sent without an answer, "
	    "%" PRId64 " read and not sent", totals->acknowledged, totals->refused, unknown,
	    produce->record_number - totals->sent);
	if (unknown > 0)
		tool_say("the first without an answer is input record %" PRId64 "; what became of it is unknown",
		    publish_first_unanswered(produce->publisher));
}

/* What the end of it all means, by the rules of the exit codes. */
static int
judge(struct produce *produce, enum client_status status)
{
	const struct publish_totals *totals = publish_totals(produce->publisher);

	if (status == CLIENT_OK && !produce->input_bad)
		return TOOL_DONE;
	if (status == CLIENT_TIMEOUT)
		tool_say("%s: no answer in time (--timeout)", produce->options->address);
	else if (status == CLIENT_NO_MEMORY)
		tool_say("out of memory");
	else if (status != CLIENT_OK && status != CLIENT_REFUSED)
		tool_say("%s", client_reason(produce->client));
	say_totals(produce);
	switch (status) {
	case CLIENT_OK:
		return totals->sent > 0 ? TOOL_PARTLY : TOOL_USAGE;
	case CLIENT_REFUSED:
	case CLIENT_TIMEOUT:
		return tool_exit_code(status);
	case CLIENT_LOST:
	case CLIENT_BROKEN:
		return totals->sent > 0 ? TOOL_PARTLY : tool_exit_code(status);
	default:
		return TOOL_INTERNAL;
	}
}

/* All inputs are looked at before the first record leaves: a mistyped name should not leave half of the work done. */
static int
check_inputs(const struct options *options)
{
	for (int32_t i = 1; i < options->operand_count; i++) {
		if (strcmp(options->operands[i], "-") == 0 || access(options->operands[i], R_OK) == 0)
			continue;
		tool_say("%s: %s", options->operands[i], strerror(errno));
		return TOOL_USAGE;
	}
	return TOOL_DONE;
}

/* Knows the topic's partitions, and with them where fixed records go. */
static int
look_up_topic(struct produce *produce)
{
	const struct options *options = produce->options;
	struct wire_metadata metadata;
	int16_t error;
	enum client_status status = wire_ask_metadata(produce->client, &produce->topic, 1, tool_deadline(options),
	    &metadata, &error);

	/* Another partition of the topic may be closed; the one that was named may serve all the same. */
	if (status == CLIENT_REFUSED && error == CODEC_STORAGE_FAILURE && options->partition >= 0)
		produce->partition_count = options->partition + 1;
	else if (status != CLIENT_OK)
		return tool_failed(status, error, produce->client, produce->topic);
	else
		produce->partition_count = wire_find_topic(&metadata, produce->topic)->partition_count;
	wire_free_metadata(&metadata);
	produce->fixed_partition = options->key == NULL ? options->partition :
	    partitioner_choose(options->key, strlen(options->key), produce->partition_count);
	if (produce->fixed_partition >= produce->partition_count) {
		tool_say("%s: topic %s has %d partitions, none with number %d",
		    codec_error_name(CODEC_UNKNOWN_TOPIC_OR_PARTITION), produce->topic, produce->partition_count,
		    produce->fixed_partition);
		return TOOL_REFUSED;
	}
	/* Not always from 0 on, or programs that send one record a run would fill partition 0 alone. */
	produce->next_partition = (int32_t)(clock_now_ns() / CLOCK_NS_PER_US % produce->partition_count);
	return TOOL_DONE;
}

static int
run(struct produce *produce)
{
	const struct options *options = produce->options;
	struct publish_settings settings = { .topic = produce->topic, .ack = options->ack,
		.batch_records = options->batch_records, .timeout_ns = options->timeout_ns };
	int result = look_up_topic(produce);

	if (result != TOOL_DONE)
		return result;
	settings.partition_count = produce->partition_count;
	settings.offsets = options->offsets ? &produce->offsets : NULL;
	produce->publisher = publish_new(produce->client, &settings);
	if (produce->publisher == NULL)
		return TOOL_INTERNAL;
	result = judge(produce, send_everything(produce));
	output_flush(&produce->offsets);
	if (result == TOOL_DONE && produce->offsets.failed)
		result = TOOL_INTERNAL;
	publish_free(produce->publisher);
	return result;
}

int
verb_produce(const struct options *options)
{
	struct produce produce = { .options = options, .topic = options->operands[0] };
	int result;

	if (!tool_topic_valid(produce.topic, "name the topic alone, and choose its partition with -p N"))
		return TOOL_USAGE;
	if ((result = check_inputs(options)) != TOOL_DONE ||
	    (produce.client = tool_connect(options, &result)) == NULL)
		return result;
	if (output_open(&produce.offsets, STDOUT_FILENO) == 0)
		result = run(&produce);
	else
		result = TOOL_INTERNAL;
	output_free(&produce.offsets);
	client_free(produce.client);
	return result;
}
