/*
 * `logbroker produce`: inputs into records, records to their partitions, and an honest account at the end.
 *
 * The library batches and sends; each record's callback tells what became of it. The first one that was not acknowledged ends
 * the work: after a refusal what has been handed over is still sent and accounted for; when an outcome is unknown, or something
 * could not be sent, the producer is freed inside that very callback, so that nothing is sent over a new connection.
 */
#include <sys/stat.h>

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
#include "client/tool.h"
#include "client/underway.h"

enum {
	PRODUCE_TURN_BYTES = 64 * 1024,			/* of input between two looks at the connection */
	PRODUCE_IN_FLIGHT = 32,				/* requests on a connection */
	PRODUCE_MEMORY_BYTES = 16 * 1024 * 1024,	/* of records that wait or are under way */
};

/* Records of one partition, refused one after the other for one reason: told in one line. */
struct refusal {
	int code;		/* 0: none to tell */
	int32_t partition;
	int64_t count, first, last, largest_number;
	size_t largest;
};

struct produce {
	const struct options *options;
	const char *topic_name;
	struct lb_producer *producer;	/* NULL: not yet, or given up */
	struct lb_topic *topic;
	struct underway *underway;
	struct output offsets;
	int32_t fixed_partition;	/* -1: chosen record by record */
	size_t unseen_bytes;		/* handed over since the last look at the connection */
	int64_t record_number;		/* of the last record read, from 1, over all inputs */
	bool input_bad;			/* said */
	bool ended;			/* the input, to its end */
	int64_t accepted, acknowledged, refused, unknown, not_sent;
	int64_t first_unknown;
	struct refusal refusal;
	struct lb_error failure;	/* the first thing that was not acknowledged */
};

/* Is there any sense in reading on? */
static bool
going(const struct produce *produce)
{
	return produce->failure.code == LB_OK && !produce->input_bad && !tool_stopped();
}

/* ---- what became of a record ---- */

static void
print_offset(struct produce *produce, const struct lb_receipt *receipt)
{
	struct output *output = &produce->offsets;

	switch (produce->options->output) {
	case OPTIONS_OUTPUT_TEXT:
		output_print(output, "%d\t%" PRId64 "\n", receipt->partition, receipt->base_offset);
		break;
	case OPTIONS_OUTPUT_JSON:
		output_print(output, "%s{\"partition\":%d,\"offset\":%" PRId64 "}", produce->acknowledged == 0 ? "" : ",\n",
		    receipt->partition, receipt->base_offset);
		break;
	case OPTIONS_OUTPUT_JSONL:
		output_print(output, "{\"partition\":%d,\"offset\":%" PRId64 "}\n", receipt->partition,
		    receipt->base_offset);
	}
}

static void
say_refusal(struct produce *produce)
{
	const struct refusal *refusal = &produce->refusal;

	if (refusal->code != LB_OK)
		tool_say("%s: topic %s partition %d: %" PRId64 " records refused, input records %" PRId64 " to %" PRId64
		    "; the largest is record %" PRId64 " with %zu bytes%s", lb_code_name(refusal->code), produce->topic_name,
		    refusal->partition, refusal->count, refusal->first, refusal->last, refusal->largest_number,
		    refusal->largest, refusal->code == LB_STORAGE_FAILURE ? "; the broker's log says why" : "");
	produce->refusal.code = LB_OK;
}

static void
note_refusal(struct produce *produce, const struct underway_record *record, int32_t partition, int code)
{
	struct refusal *refusal = &produce->refusal;

	produce->refused++;
	if (refusal->code != code || refusal->partition != partition)
		say_refusal(produce);
	if (refusal->code == LB_OK)
		*refusal = (struct refusal){ .code = code, .partition = partition, .first = record->number };
	refusal->count++;
	refusal->last = record->number;
	if (record->bytes > refusal->largest) {
		refusal->largest = record->bytes;
		refusal->largest_number = record->number;
	}
}

/* Nothing more is to be sent; what is outstanding completes inside this call. */
static void
give_up(struct produce *produce)
{
	struct lb_producer *producer = produce->producer;

	produce->producer = NULL;
	lb_producer_free(producer);
}

static void
note_failure(struct produce *produce, const struct underway_record *record, int32_t partition, const struct lb_error *error)
{
	if (produce->failure.code == LB_OK)
		produce->failure = *error;
	if (error->code > 0) {
		note_refusal(produce, record, partition, error->code);
		return;
	}
	if (error->code == LB_OUTCOME_UNKNOWN) {
		if (produce->unknown++ == 0 || record->number < produce->first_unknown)
			produce->first_unknown = record->number;
	} else {
		produce->not_sent++;
	}
	give_up(produce);
}

/* A record's callback. */
static void
take_receipt(void *context, const struct lb_receipt *receipt, const struct lb_error *error)
{
	struct underway_record *record = context;
	struct produce *produce = record->owner;

	if (error != NULL) {
		note_failure(produce, record, receipt->partition, error);
	} else {
		if (produce->options->offsets)
			print_offset(produce, receipt);
		produce->acknowledged++;
	}
	underway_give_back(produce->underway, record);
}

/* ---- the connection's turns ---- */

static void
process(struct produce *produce)
{
	produce->unseen_bytes = 0;
	if (produce->producer != NULL)
		lb_source_process(lb_producer_source(produce->producer));
	say_refusal(produce);
}

/* Waits for one of the two descriptors (-1: none), or for something to process, and processes it. */
static void
wait_for_event(struct produce *produce, int input_fd, int stop_fd)
{
	struct lb_wants wants = lb_source_wants(lb_producer_source(produce->producer));
	struct pollfd fds[] = {
		{ .fd = input_fd, .events = POLLIN },
		{ .fd = stop_fd, .events = POLLIN },
		{ .fd = wants.fd, .events = wants.events },
	};

	poll(fds, 3, wants.timeout_ms);
	process(produce);
}

/* ---- records ---- */

/* Cuts off the key of --key-delim. False: there is none. */
static bool
split_key(const struct produce *produce, struct framing_record *record, const uint8_t **key, size_t *key_bytes)
{
	const char *delimiter = produce->options->key_delimiter;
	const uint8_t *found = memmem(record->payload, record->size, delimiter, strlen(delimiter));
	size_t skip;

	if (found == NULL)
		return false;
	*key = record->payload;
	*key_bytes = (size_t)(found - record->payload);
	skip = *key_bytes + strlen(delimiter);
	record->payload += skip;
	record->size -= skip;
	return true;
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
say_bad_record(struct produce *produce, const char *input, const struct framing_record *record, bool has_key)
{
	const char *delimiter = produce->options->key_delimiter;

	produce->input_bad = true;
	if (has_key)
		tool_say("%s: record %" PRId64 " at byte %" PRId64 " has no bytes behind its key", input,
		    produce->record_number, record->position);
	else
		tool_say("%s: record %" PRId64 " at byte %" PRId64 " has no key: --key-delim '%s' is not in it%s", input,
		    produce->record_number, record->position, delimiter,
		    strchr(delimiter, '\\') == NULL ? "" :
		    " (a backslash is a character like others; a tab is $'\\t' in most shells)");
}

static enum lb_code
hand_over(struct produce *produce, const struct framing_record *record, const uint8_t *key, size_t key_bytes,
    struct lb_error *error)
{
	struct underway_record *place = underway_take(produce->underway, produce->record_number, record->size);
	enum lb_code code;

	if (place == NULL)
		return LB_WOULD_BLOCK;
	if (produce->fixed_partition >= 0)
		code = lb_topic_send_to(produce->topic, produce->fixed_partition, record->payload, record->size,
		    take_receipt, place, error);
	else
		code = lb_topic_send(produce->topic, key, key_bytes, record->payload, record->size, take_receipt, place, error);
	if (code != LB_OK)
		underway_give_back(produce->underway, place);
	return code;
}

/* Waits for room when there is none; the record may still be here when the work has failed meanwhile, or is to end. */
static void
send_record(struct produce *produce, const struct framing_record *record, const uint8_t *key, size_t key_bytes)
{
	struct lb_error error;
	enum lb_code code = hand_over(produce, record, key, key_bytes, &error);

	while (code == LB_WOULD_BLOCK) {
		wait_for_event(produce, -1, tool_stop_fd());
		if (!going(produce))
			return;
		code = hand_over(produce, record, key, key_bytes, &error);
	}
	if (code != LB_OK) {
		produce->failure = error;
		return;
	}
	produce->accepted++;
	produce->unseen_bytes += record->size;
	if (produce->unseen_bytes >= PRODUCE_TURN_BYTES)
		process(produce);
}

static void
take_record(struct produce *produce, const char *input, struct framing_record *record)
{
	const uint8_t *key = NULL;
	size_t key_bytes = 0;
	bool has_key = produce->options->key_delimiter == NULL || split_key(produce, record, &key, &key_bytes);

	produce->record_number++;
	if (!has_key || (record->size == 0 && !fill_empty_record(produce, record)))
		say_bad_record(produce, input, record, has_key);
	else
		send_record(produce, record, key, key_bytes);
}

/* ---- inputs ---- */

static void
note_unterminated(const struct produce *produce, const char *input)
{
	if (produce->options->framing == FRAMING_LINES)
		tool_say("%s: the last line has no newline; it will come back with one", input);
	else
		tool_say("%s: the last record has no NUL byte behind it; it will come back with one", input);
}

static void
send_records(struct produce *produce, const char *input, int fd, struct framing_reader *reader)
{
	while (going(produce)) {
		struct framing_record record;

		switch (framing_next(reader, &record)) {
		case FRAMING_RECORD:
			if (record.unterminated)
				note_unterminated(produce, input);
			take_record(produce, input, &record);
			break;
		case FRAMING_PAUSE:
			output_flush(&produce->offsets);
			wait_for_event(produce, fd, tool_stop_fd());
			break;
		case FRAMING_END:
			return;
		case FRAMING_BAD:
			tool_say("%s: %s", input, framing_problem(reader));
			produce->input_bad = true;
		}
	}
}

/*
 * What a record of this topic may have at most: what a request with a single byte in it leaves.
 */
static size_t
max_record(const struct produce *produce)
{
	struct lb_payload byte = { "", 1 };

	return LB_FRAME_MAX_BYTES + sizeof(int32_t) + 1 -
	    lb_encode_produce(NULL, 0, 0, produce->topic_name, 0, produce->options->ack, &byte, 1);
}

static void
send_input(struct produce *produce, const char *input, int fd)
{
	struct framing_reader *reader = framing_open(produce->options->framing, fd, max_record(produce));

	if (reader == NULL) {
		produce->failure = (struct lb_error){ .code = LB_NO_MEMORY, .text = "out of memory" };
		return;
	}
	send_records(produce, input, fd, reader);
	framing_close(reader);
}

static void
send_file(struct produce *produce, const char *path)
{
	int fd;

	if (strcmp(path, "-") == 0) {
		send_input(produce, "standard input", STDIN_FILENO);
		return;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && tool_stopped())	/* a signal while a named pipe waited for its writer */
		return;
	if (fd < 0) {
		tool_say("%s: %s", path, strerror(errno));
		produce->input_bad = true;
		return;
	}
	send_input(produce, path, fd);
	close(fd);
}

static void
send_inputs(struct produce *produce)
{
	const struct options *options = produce->options;

	if (options->operand_count == 1)
		send_file(produce, "-");
	for (int32_t i = 1; i < options->operand_count && going(produce); i++)
		send_file(produce, options->operands[i]);
	produce->ended = going(produce);
}

/* 0, or an errno: why it is no input. */
static int
input_problem(const char *path)
{
	struct stat status;

	if (access(path, R_OK) != 0 || stat(path, &status) != 0)
		return errno;
	return S_ISDIR(status.st_mode) ? EISDIR : 0;
}

/* All inputs are looked at before the first record leaves: a mistyped name should not leave half of the work done. */
static int
check_inputs(const struct options *options)
{
	for (int32_t i = 1; i < options->operand_count; i++) {
		const char *path = options->operands[i];
		int problem = strcmp(path, "-") == 0 ? 0 : input_problem(path);

		if (problem == 0)
			continue;
		tool_say("%s: %s", path, strerror(problem));
		return TOOL_USAGE;
	}
	return TOOL_DONE;
}

/* ---- the end ---- */

static int64_t
outstanding(const struct produce *produce)
{
	return produce->accepted - produce->acknowledged - produce->refused - produce->unknown - produce->not_sent;
}

/* Until everything that was handed over is accounted for, which the library sees to within its time. */
static void
drain(struct produce *produce)
{
	if (produce->producer != NULL)
		lb_producer_flush(produce->producer, 0, NULL);
	while (produce->producer != NULL && outstanding(produce) > 0)
		wait_for_event(produce, -1, -1);
	if (produce->producer == NULL)
		return;
	/* With LB_ACK_NONE it waits until the broker has read everything. */
	lb_producer_close(produce->producer, produce->options->timeout_ms, NULL,
	    produce->failure.code == LB_OK ? &produce->failure : NULL);
	produce->producer = NULL;
}

/* The account of an end that is not the good one. */
static void
say_totals(const struct produce *produce)
{
	int64_t not_sent = produce->not_sent + produce->record_number - produce->accepted;

	if (produce->options->ack == LB_ACK_NONE) {
		tool_say("%" PRId64 " records were sent, of which with -a none nobody knows what became, %" PRId64
		    " read and not sent", produce->acknowledged + produce->unknown, not_sent);
		return;
	}
	tool_say("%" PRId64 " records acknowledged, %" PRId64 " refused, %" PRId64 " sent without an answer, "
	    "%" PRId64 " read and not sent", produce->acknowledged, produce->refused, produce->unknown, not_sent);
	if (produce->unknown > 0)
		tool_say("the first without an answer is input record %" PRId64 "; what became of it is unknown",
		    produce->first_unknown);
}

/* What the end of it all means, by the rules of the exit codes. */
static int
judge(struct produce *produce)
{
	bool delivered = produce->acknowledged + produce->unknown > 0;
	int code = produce->failure.code, result;

	if (code == LB_OK && produce->ended)
		return TOOL_DONE;
	if (code == LB_OK && !produce->input_bad)
		tool_say("%s: stopped ahead of the end of the input", produce->topic_name);
	result = code < 0 ? tool_failed(&produce->failure) : tool_exit_code(code);
	say_totals(produce);
	if (code == LB_OK)
		return delivered || !produce->input_bad ? TOOL_PARTLY : TOOL_USAGE;
	return code < 0 && delivered ? TOOL_PARTLY : result;
}

static int
open_topic(struct produce *produce)
{
	const struct options *options = produce->options;
	struct lb_producer_options how = lb_producer_defaults();
	struct lb_error error;
	int32_t count;

	how.ack = options->ack;
	how.batch_records = options->batch_records;
	how.linger_ms = options->linger_ms;
	how.in_flight = PRODUCE_IN_FLIGHT;
	how.memory_bytes = PRODUCE_MEMORY_BYTES;
	how.delivery_timeout_ms = options->timeout_ms;
	if (lb_producer_open(&produce->producer, options->address, &how, &error) != LB_OK ||
	    lb_topic_open(&produce->topic, produce->producer, produce->topic_name, &error) != LB_OK)
		return tool_not_opened(options, &error);
	count = lb_topic_partition_count(produce->topic);
	produce->fixed_partition = options->key == NULL ? options->partition :
	    lb_partition_of_key(options->key, strlen(options->key), count);
	if (produce->fixed_partition < count)
		return TOOL_DONE;
	tool_say("%s: topic %s has %d partitions, none with number %d", lb_code_name(LB_UNKNOWN_TOPIC_OR_PARTITION),
	    produce->topic_name, count, produce->fixed_partition);
	return TOOL_REFUSED;
}

static int
run(struct produce *produce)
{
	bool array = produce->options->output == OPTIONS_OUTPUT_JSON;
	int result = open_topic(produce);

	if (result != TOOL_DONE)
		return result;
	if (array)
		output_put(&produce->offsets, "[", 1);
	send_inputs(produce);
	drain(produce);
	say_refusal(produce);
	if (array)
		output_put(&produce->offsets, "]\n", 2);
	output_flush(&produce->offsets);
	result = judge(produce);
	return result == TOOL_DONE && produce->offsets.failed ? TOOL_INTERNAL : result;
}

int
verb_produce(const struct options *options)
{
	struct produce produce = { .options = options, .topic_name = options->operands[0] };
	int result;

	if (!tool_topic_valid(produce.topic_name, "name the topic alone, and choose its partition with -p N"))
		return TOOL_USAGE;
	if ((result = check_inputs(options)) != TOOL_DONE)
		return result;
	if (tool_catch_stop() != 0)
		tool_say("signals cannot be caught: %s", strerror(errno));
	produce.underway = underway_new(&produce);
	if (produce.underway == NULL)
		tool_say("out of memory");
	if (produce.underway != NULL && output_open(&produce.offsets, STDOUT_FILENO) == 0)
		result = run(&produce);
	else
		result = TOOL_INTERNAL;
	lb_producer_free(produce.producer);
	output_free(&produce.offsets);
	underway_free(produce.underway);
	return result;
}
