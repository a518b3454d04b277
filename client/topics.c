/*
 * `logbroker topics` and `logbroker ping`: what METADATA alone can tell.
 *
 *   text    a table, a line for each partition
 *   json    {"topics":[{"topic":..., "record_format":..., "partitions":[{...}, ...]}, ...]}
 *   jsonl   a line for each partition: {"topic":..., "record_format":..., "partition":..., ...}
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/checkpoint.h"
#include "client/options.h"
#include "client/output.h"
#include "client/text.h"
#include "client/tool.h"
#include "common/clock.h"

struct topics {
	const struct options *options;
	struct lb_connection *connection;
	struct checkpoint checkpoint;	/* of --checkpoint */
	const char *const *names;	/* NULL: all */
	int32_t count;			/* of them; 0: all */
	struct lb_metadata **answers;	/* one for all names, or one for each, of which some may be NULL */
	int32_t answer_count;
	struct output output;
	int64_t printed;		/* partitions, or topics in JSON */
};

/* All of it is put: the exit code. */
static int
close_output(struct output *output)
{
	int result;

	output_flush(output);
	result = output->failed ? TOOL_INTERNAL : TOOL_DONE;
	output_free(output);
	return result;
}

/* ---- what is printed of a partition ---- */

/* Is a position of it kept? */
static bool
position_of(const struct topics *topics, const struct lb_topic_metadata *topic,
    const struct lb_partition_metadata *partition, int64_t *position)
{
	*position = strcmp(topic->name, topics->checkpoint.topic) == 0 ?
	    checkpoint_get(&topics->checkpoint, partition->partition) : -1;
	return *position >= 0;
}

static void
print_position(struct topics *topics, const struct lb_topic_metadata *topic,
    const struct lb_partition_metadata *partition)
{
	int64_t position;

	if (topics->options->checkpoint == NULL)
		return;
	if (position_of(topics, topic, partition, &position))
		output_print(&topics->output, " %12" PRId64 " %12" PRId64, position, partition->high_watermark - position);
	else
		output_print(&topics->output, " %12s %12s", "-", "-");
}

static void
print_row(struct topics *topics, const struct lb_topic_metadata *topic, const struct lb_partition_metadata *partition,
    int width)
{
	struct output *output = &topics->output;

	output_print(output, "%-*s %9d %12" PRId64 " %12" PRId64 " %12" PRId64 " ", width, topic->name,
	    partition->partition, partition->log_start_offset, partition->high_watermark,
	    partition->high_watermark - partition->log_start_offset);
	if (partition->group >= 0)
		output_print(output, "%5d", partition->group);
	else
		output_print(output, "    -");
	print_position(topics, topic, partition);
	output_put(output, "\n", 1);
}

/* The members of a partition's object. */
static void
print_members(struct topics *topics, const struct lb_topic_metadata *topic,
    const struct lb_partition_metadata *partition)
{
	struct output *output = &topics->output;
	int64_t position;

	output_print(output, "\"partition\":%d,\"start\":%" PRId64 ",\"watermark\":%" PRId64 ",\"records\":%" PRId64,
	    partition->partition, partition->log_start_offset, partition->high_watermark,
	    partition->high_watermark - partition->log_start_offset);
	if (partition->group >= 0)
		output_print(output, ",\"group\":%d", partition->group);
	if (position_of(topics, topic, partition, &position))
		output_print(output, ",\"position\":%" PRId64 ",\"lag\":%" PRId64, position,
		    partition->high_watermark - position);
}

/* ---- topics ---- */

static void
print_topic_members(struct topics *topics, const struct lb_topic_metadata *topic)
{
	output_print(&topics->output, "\"topic\":\"%s\",\"record_format\":\"%s\",", topic->name,
	    topic->record_format == LB_PLAIN ? "plain" : "crc32c");
}

static void
print_topic_json(struct topics *topics, const struct lb_topic_metadata *topic, int width)
{
	struct output *output = &topics->output;

	(void)width;
	output_print(output, topics->printed++ == 0 ? "{" : ",\n{");
	print_topic_members(topics, topic);
	output_print(output, "\"partitions\":[");
	for (int32_t i = 0; i < topic->partition_count; i++) {
		output_print(output, i == 0 ? "{" : ",\n{");
		print_members(topics, topic, &topic->partitions[i]);
		output_put(output, "}", 1);
	}
	output_print(output, "]}");
}

static void
print_topic_jsonl(struct topics *topics, const struct lb_topic_metadata *topic, int width)
{
	(void)width;
	for (int32_t i = 0; i < topic->partition_count; i++) {
		output_put(&topics->output, "{", 1);
		print_topic_members(topics, topic);
		print_members(topics, topic, &topic->partitions[i]);
		output_put(&topics->output, "}\n", 2);
	}
}

static void
print_topic_text(struct topics *topics, const struct lb_topic_metadata *topic, int width)
{
	for (int32_t i = 0; i < topic->partition_count; i++)
		print_row(topics, topic, &topic->partitions[i], width);
}

/* A name that was given twice is listed once. */
static bool
is_first(const struct topics *topics, int32_t answer, const char *name)
{
	for (int32_t i = 0; i < answer; i++)
		if (topics->answers[i] != NULL && lb_metadata_find(topics->answers[i], name) != NULL)
			return false;
	return true;
}

static void
print_topics(struct topics *topics, int width,
    void (*print)(struct topics *topics, const struct lb_topic_metadata *topic, int width))
{
	for (int32_t i = 0; i < topics->answer_count; i++) {
		const struct lb_metadata *answer = topics->answers[i];

		for (int32_t k = 0; answer != NULL && k < answer->topic_count; k++)
			if (is_first(topics, i, answer->topics[k].name))
				print(topics, &answer->topics[k], width);
	}
}

static int
width_of_names(const struct topics *topics)
{
	int width = (int)strlen("TOPIC");

	for (int32_t i = 0; i < topics->answer_count; i++) {
		const struct lb_metadata *answer = topics->answers[i];

		for (int32_t k = 0; answer != NULL && k < answer->topic_count; k++) {
			int length = (int)strlen(answer->topics[k].name);

			width = length > width ? length : width;
		}
	}
	return width;
}

static int
print_all(struct topics *topics)
{
	struct output *output = &topics->output;
	int width = width_of_names(topics);

	if (output_open(output, STDOUT_FILENO) != 0)
		return TOOL_INTERNAL;
	switch (topics->options->output) {
	case OPTIONS_OUTPUT_TEXT:
		output_print(output, "%-*s %9s %12s %12s %12s %5s", width, "TOPIC", "PARTITION", "START", "WATERMARK",
		    "RECORDS", "GROUP");
		if (topics->options->checkpoint != NULL)
			output_print(output, " %12s %12s", "POSITION", "LAG");
		output_put(output, "\n", 1);
		print_topics(topics, width, print_topic_text);
		break;
	case OPTIONS_OUTPUT_JSON:
		output_print(output, "{\"topics\":[");
		print_topics(topics, width, print_topic_json);
		output_print(output, "]}\n");
		break;
	case OPTIONS_OUTPUT_JSONL:
		print_topics(topics, width, print_topic_jsonl);
		break;
	}
	return close_output(output);
}

/* ---- asking ---- */

static int
check_names(const struct topics *topics)
{
	bool found = topics->options->checkpoint == NULL || topics->count == 0;

	for (int32_t i = 0; i < topics->count; i++) {
		if (!tool_topic_valid(topics->names[i], "name the topic alone; all its partitions are listed"))
			return TOOL_USAGE;
		found = found || strcmp(topics->names[i], topics->checkpoint.topic) == 0;
	}
	if (found)
		return TOOL_DONE;
	tool_say("%s is a checkpoint of the topic %s, which is not among those that are named",
	    topics->options->checkpoint, topics->checkpoint.topic);
	return TOOL_USAGE;
}

/* What is to be listed: the named topics; or the checkpoint's; or all. */
static int
choose_names(struct topics *topics, const char **one)
{
	const struct options *options = topics->options;
	int result = TOOL_DONE;

	topics->names = (const char *const *)options->operands;
	topics->count = options->operand_count;
	if (options->checkpoint != NULL)
		result = checkpoint_read(&topics->checkpoint, options->checkpoint, NULL);
	if (result == TOOL_DONE)
		result = check_names(topics);
	if (topics->count > 0 || options->checkpoint == NULL)
		return result;
	*one = topics->checkpoint.topic;
	topics->names = one;
	topics->count = 1;
	return result;
}

/*
 * One topic that cannot be listed makes the broker refuse all of them: each is asked for by itself. Why some are not listed
 * is said. Returns the exit code.
 */
static int
ask(struct topics *topics)
{
	int result = TOOL_DONE;

	topics->answers = calloc(topics->count == 0 ? 1 : (size_t)topics->count, sizeof(struct lb_metadata *));
	if (topics->answers == NULL) {
		tool_say("out of memory");
		return TOOL_INTERNAL;
	}
	do {
		struct lb_error error;
		enum lb_code code = lb_connection_metadata(topics->connection, topics->names + topics->answer_count,
		    topics->count == 0 ? 0 : 1, &topics->answers[topics->answer_count], &error);

		if (code != LB_OK)
			result = tool_failed(&error);
		topics->answer_count++;
		if ((int)code < 0)
			break;
	} while (topics->answer_count < topics->count);
	return result;
}

static bool
nothing_to_list(const struct topics *topics)
{
	for (int32_t i = 0; i < topics->answer_count; i++)
		if (topics->answers[i] != NULL)
			return false;
	return true;
}

static int
list(struct topics *topics)
{
	int result = ask(topics), printed = TOOL_DONE;

	if (result == TOOL_DONE || !nothing_to_list(topics))
		printed = print_all(topics);
	for (int32_t i = 0; i < topics->answer_count; i++)
		lb_metadata_free(topics->answers[i]);
	free(topics->answers);
	return printed != TOOL_DONE ? printed : result;
}

int
verb_topics(const struct options *options)
{
	struct topics topics = { .options = options, .checkpoint.fd = -1 };
	const char *one;
	int result = choose_names(&topics, &one);

	if (result == TOOL_DONE && (topics.connection = tool_connect(options, &result)) != NULL)
		result = list(&topics);
	lb_connection_free(topics.connection);
	checkpoint_close(&topics.checkpoint);
	return result;
}

/* ---- ping ---- */

static void
print_ping(struct output *output, const struct options *options, const struct lb_metadata *metadata,
    const struct lb_error *refusal, double ms)
{
	int32_t partitions = 0;

	for (int32_t i = 0; metadata != NULL && i < metadata->topic_count; i++)
		partitions += metadata->topics[i].partition_count;
	if (options->output != OPTIONS_OUTPUT_TEXT) {
		output_print(output, "{\"address\":");
		text_put_json(output, options->address, strlen(options->address));
		output_print(output, ",\"ms\":%.3f,", ms);
		if (metadata != NULL)
			output_print(output, "\"topics\":%d,\"partitions\":%d}\n", metadata->topic_count, partitions);
		else
			output_print(output, "\"error\":\"%s\"}\n", lb_code_name(refusal->code));
		return;
	}
	output_print(output, "%s: %.3f ms, ", options->address, ms);
	if (metadata != NULL)
		output_print(output, "topics=%d partitions=%d\n", metadata->topic_count, partitions);
	else
		output_print(output, "METADATA answered with %s\n", lb_code_name(refusal->code));
}

/* An answer that refuses is a sign of life, too. */
int
verb_ping(const struct options *options)
{
	int64_t began_ns = clock_now_ns();
	struct lb_metadata *metadata = NULL;
	struct lb_error error = { .code = LB_OK };
	struct output output;
	int result;
	struct lb_connection *connection = tool_connect(options, &result);

	if (connection == NULL)
		return result;
	lb_connection_metadata(connection, NULL, 0, &metadata, &error);
	result = metadata == NULL ? tool_failed(&error) : TOOL_DONE;
	if (metadata != NULL || error.code > 0) {
		double ms = (double)(clock_now_ns() - began_ns) / CLOCK_NS_PER_MS;

		result = TOOL_INTERNAL;
		if (output_open(&output, STDOUT_FILENO) == 0) {
			print_ping(&output, options, metadata, &error, ms);
			result = close_output(&output);
		}
	}
	lb_metadata_free(metadata);
	lb_connection_free(connection);
	return result;
}
