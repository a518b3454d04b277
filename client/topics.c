/*
 * `logbroker topics` and `logbroker ping`: what METADATA alone can tell.
 */
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
		const char *name = options->operands[i];

		if (codec_topic_name_valid(name, strlen(name)))
			continue;
		tool_say("'%s' cannot be a topic's name: 1 to 249 characters out of A-Z a-z 0-9 . _ -", name);
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

int
verb_topics(const struct options *options)
{
	struct wire_metadata metadata;
	struct client *client;
	int result = check_names(options);

	if (result != TOOL_DONE || (client = tool_connect(options, &result)) == NULL)
		return result;
	result = tool_metadata(client, options, (const char *const *)options->operands, options->operand_count,
	    &metadata);
	if (result == TOOL_DONE) {
		result = print_table(&metadata);
		wire_free_metadata(&metadata);
	}
	client_free(client);
	return result;
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
	int64_t began_ns;
	int result;
	struct client *client = tool_connect(options, &result);

	if (client == NULL)
		return result;
	began_ns = clock_now_ns();
	result = tool_metadata(client, options, NULL, 0, &metadata);
	if (result == TOOL_DONE) {
		result = print_ping(options, &metadata, clock_now_ns() - began_ns);
		wire_free_metadata(&metadata);
	}
	client_free(client);
	return result;
}
