/*
 * `logbroker topics` and `logbroker ping`: what METADATA alone can tell.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/options.h"
#include "client/output.h"
#include "client/tool.h"
#include "client/wire.h"
#include "common/clock.h"

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

static int
check_names(const struct options *options)
{
	for (int32_t i = 0; i < options->operand_count; i++) {
		if (!tool_topic_valid(options->operands[i], "name the topic alone; all its partitions are listed"))
			return TOOL_USAGE;
	}
	return TOOL_DONE;
}

static void
print_topic(struct output *output, const struct wire_topic *topic, int width)
{
	for (int32_t i = 0; i < topic->partition_count; i++) {
		const struct wire_partition *partition = &topic->partitions[i];

		output_print(output, "%-*s %9d %12lld %12lld %12lld ", width, topic->name, i,
		    (long long)partition->log_start, (long long)partition->high_watermark,
		    (long long)(partition->high_watermark - partition->log_start));
		if (partition->group >= 0)
			output_print(output, "%5d\n", partition->group);
		else
			output_print(output, "    -\n");
	}
}

static int
print_table(const struct wire_metadata *metadata)
{
	struct output output;
	int width = (int)strlen("TOPIC");

	if (output_open(&output, STDOUT_FILENO) != 0)
		return TOOL_INTERNAL;
	for (int32_t i = 0; i < metadata->topic_count; i++) {
		int length = (int)strlen(metadata->topics[i].name);

		width = length > width ? length : width;
	}
	output_print(&output, "%-*s %9s %12s %12s %12s %5s\n", width, "TOPIC", "PARTITION", "START", "WATERMARK",
	    "RECORDS", "GROUP");
	for (int32_t i = 0; i < metadata->topic_count; i++)
		print_topic(&output, &metadata->topics[i], width);
	return close_output(&output);
}

/* Moves the answer for one topic behind the others; there is room. A name given twice is listed once. */
static void
take_topic(struct wire_metadata *all, struct wire_metadata *one, const char *name)
{
	for (int32_t i = 0; i < one->topic_count && wire_find_topic(all, name) == NULL; i++) {
		if (strcmp(one->topics[i].name, name) != 0)
			continue;
		all->topics[all->topic_count++] = one->topics[i];
		one->topics[i].partitions = NULL;
	}
	wire_free_metadata(one);
}

/*
 * One that cannot be listed makes the broker refuse all of them: each is asked for by itself. What is listed is in *all
 * (to be freed), why the others are not is said. Returns the exit code.
 */
static int
ask_one_by_one(struct client *client, const struct options *options, struct wire_metadata *all)
{
	int result = TOOL_DONE;

	*all = (struct wire_metadata){ .topics = calloc((size_t)options->operand_count, sizeof(*all->topics)) };
	if (all->topics == NULL)
		return tool_failed(CLIENT_NO_MEMORY, CODEC_NONE, client, NULL);
	for (int32_t i = 0; i < options->operand_count; i++) {
		const char *name = options->operands[i];
		struct wire_metadata one;
		int16_t error;
		enum client_status status = wire_ask_metadata(client, &name, 1, tool_deadline(options), &one, &error);

		if (status == CLIENT_OK)
			take_topic(all, &one, name);
		else
			result = tool_failed(status, error, client, name);
		if (status != CLIENT_OK && status != CLIENT_REFUSED)
			break;
	}
	return result;
}

static int
list(struct client *client, const struct options *options)
{
	struct wire_metadata metadata;
	int result, printed;

	if (options->operand_count <= 1)
		result = tool_metadata(client, options, (const char *const *)options->operands, options->operand_count,
		    &metadata);
	else
		result = ask_one_by_one(client, options, &metadata);
	if (result != TOOL_DONE && metadata.topic_count == 0) {
		wire_free_metadata(&metadata);
		return result;
	}
	printed = print_table(&metadata);
	wire_free_metadata(&metadata);
	return printed != TOOL_DONE ? printed : result;
}

int
verb_topics(const struct options *options)
{
	struct client *client;
	int result = check_names(options);

	if (result != TOOL_DONE || (client = tool_connect(options, &result)) == NULL)
		return result;
	result = list(client, options);
	client_free(client);
	return result;
}

/* An answer that refuses is a sign of life too. */
static int
print_refused_ping(const struct options *options, int16_t error, int64_t took_ns)
{
	struct output output;

	if (output_open(&output, STDOUT_FILENO) != 0)
		return TOOL_INTERNAL;
	output_print(&output, "%s: %.3f ms, METADATA answered with %s\n", options->address,
	    (double)took_ns / CLOCK_NS_PER_MS, codec_error_name(error));
	return close_output(&output);
}

static int
print_ping(const struct options *options, const struct wire_metadata *metadata, int64_t took_ns)
{
	struct output output;
	int32_t partitions = 0;

	if (output_open(&output, STDOUT_FILENO) != 0)
		return TOOL_INTERNAL;
	for (int32_t i = 0; i < metadata->topic_count; i++)
		partitions += metadata->topics[i].partition_count;
	output_print(&output, "%s: %.3f ms, topics=%d partitions=%d\n", options->address,
	    (double)took_ns / CLOCK_NS_PER_MS, metadata->topic_count, partitions);
	return close_output(&output);
}

int
verb_ping(const struct options *options)
{
	struct wire_metadata metadata;
	enum client_status status;
	int64_t began_ns, took_ns;
	int16_t error;
	int result;
	struct client *client = tool_connect(options, &result);

	if (client == NULL)
		return result;
	began_ns = clock_now_ns();
	status = wire_ask_metadata(client, NULL, 0, tool_deadline(options), &metadata, &error);
	took_ns = clock_now_ns() - began_ns;
	result = status == CLIENT_OK ? TOOL_DONE : tool_failed(status, error, client, NULL);
	if (status == CLIENT_OK)
		result = print_ping(options, &metadata, took_ns);
	else if (status == CLIENT_REFUSED)
		result = print_refused_ping(options, error, took_ns);
	wire_free_metadata(&metadata);
	client_free(client);
	return result;
}
