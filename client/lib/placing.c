/*
 * Which partitions a subscription reads, and where each begins: from METADATA, checkpoints and options.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/lib/error.h"
#include "client/lib/subscription.h"
#include "common/clock.h"

struct lb_reader *
lb_placing_add(struct lb_subscription *subscription, int32_t partition)
{
	struct lb_reader **grown = realloc(subscription->readers, (subscription->reader_count + 1) * sizeof(*grown));
	struct lb_reader *reader;

	if (grown == NULL)
		return NULL;
	subscription->readers = grown;
	reader = malloc(sizeof(*reader));
	if (reader == NULL)
		return NULL;
	lb_reader_init(reader, &subscription->setting, partition, subscription->reader_count == 0);
	subscription->readers[subscription->reader_count++] = reader;
	return reader;
}

/* For good, in the name of the first reader. */
static void
fail(struct lb_subscription *subscription, int code, int32_t partition, const char *why)
{
	const char *topic = subscription->setting.topic;
	struct lb_error error;

	lb_error_set(&error, code, topic, partition, -1, "%s/%d: %s", topic, (int)partition, why);
	lb_cursor_fail(&subscription->readers[0]->cursor, &error);
}

static void
fail_unknown(struct lb_subscription *subscription, int32_t partition, int32_t partition_count)
{
	char why[LB_ERROR_TEXT_BYTES / 2];

	snprintf(why, sizeof(why), "the topic has no such partition at %.130s, but 0 to %d (%s)", subscription->setting.address,
	    (int)partition_count - 1, lb_code_name(LB_UNKNOWN_TOPIC_OR_PARTITION));
	fail(subscription, LB_UNKNOWN_TOPIC_OR_PARTITION, partition, why);
}

/* A checkpoint's offset, or -1 = there is none; -2: loading has failed. The subscription may be gone. */
static int64_t
load(const struct lb_subscription *subscription, const struct lb_reader *reader)
{
	const struct lb_checkpoints *checkpoints = &subscription->options.checkpoints;

	if (checkpoints->load == NULL)
		return -1;
	return checkpoints->load(checkpoints->context, subscription->setting.topic, reader->cursor.partition);
}

/* It has a place then all the same, from which a seek can make it go on. */
static void
fail_loading(struct lb_reader *reader)
{
	struct lb_error error;

	lb_error_set(&error, LB_HANDLER_FAILED, reader->cursor.topic, reader->cursor.partition, -1,
	    "%s/%d: the checkpoint could not be loaded", reader->cursor.topic, (int)reader->cursor.partition);
	lb_cursor_fail(&reader->cursor, &error);
}

static void
fail_saving(struct lb_reader *reader)
{
	int64_t offset = lb_reader_position(reader, false);
	struct lb_error error;

	lb_error_set(&error, LB_HANDLER_FAILED, reader->cursor.topic, reader->cursor.partition, offset,
	    "%s/%d: the checkpoint could not be saved at the start, offset %" PRId64, reader->cursor.topic,
	    (int)reader->cursor.partition, offset);
	lb_cursor_fail(&reader->cursor, &error);
}

/*
 * Nothing may come from there before the program ends, and the start would be another place the next time: what is written until then
 * would be passed over without a word. The subscription may be gone.
 */
static void
save_start(const struct lb_subscription *subscription, struct lb_reader *reader)
{
	const struct lb_checkpoints *checkpoints = &subscription->options.checkpoints;

	if (checkpoints->save == NULL || reader->cursor.state == LB_CURSOR_FAILED)
		return;
	if (checkpoints->save(checkpoints->context, subscription->setting.topic, reader->cursor.partition,
	    lb_reader_position(reader, false)) != 0 && !lb_source_gone(&subscription->source))
		fail_saving(reader);
}

/* The readers that have no place yet get one. */
static void
place(struct lb_subscription *subscription, const struct lb_metadata *metadata, const struct lb_topic_metadata *topic,
    enum lb_start start)
{
	for (size_t i = 0; i < subscription->reader_count; i++) {
		struct lb_reader *reader = subscription->readers[i];
		int64_t kept_offset;

		if (reader->cursor.state != LB_CURSOR_UNPLACED)
			continue;
		reader->cursor.record_format = topic->record_format;
		reader->cursor.fetch_version = metadata->version;
		kept_offset = load(subscription, reader);
		if (lb_source_gone(&subscription->source))
			return;
		lb_cursor_place(&reader->cursor, &topic->partitions[reader->cursor.partition], start,
		    kept_offset >= 0 ? kept_offset : -1, clock_now_ns());
		if (kept_offset < -1)
			fail_loading(reader);
		else if (kept_offset < 0)
			save_start(subscription, reader);
		if (lb_source_gone(&subscription->source))
			return;
	}
}

/* Are those that were asked for there? Seen to ahead of all else: readers without a place would ask for theirs. */
static bool
has_partitions(struct lb_subscription *subscription, const struct lb_topic_metadata *topic)
{
	for (size_t i = 0; i < subscription->options.partition_count; i++) {
		int32_t partition = subscription->options.partitions[i];

		if (partition >= topic->partition_count) {
			fail_unknown(subscription, partition, topic->partition_count);
			return false;
		}
	}
	return true;
}

/* Readers that have been added and will get no place: they would ask for one again and again. */
static void
take_back(struct lb_subscription *subscription, size_t count)
{
	while (subscription->reader_count > count) {
		struct lb_reader *reader = subscription->readers[--subscription->reader_count];

		lb_reader_free(reader);
		free(reader);
	}
}

/* Readers for the partitions from the n-th that is wanted on. False: it has failed, and none is there. */
static bool
add_readers(struct lb_subscription *subscription, const struct lb_topic_metadata *topic, size_t n)
{
	const int32_t *partitions = subscription->options.partitions;
	size_t before = subscription->reader_count;
	size_t count = partitions != NULL ? subscription->options.partition_count : (size_t)topic->partition_count;

	for (; n < count; n++) {
		int32_t partition = partitions != NULL ? partitions[n] : (int32_t)n;

		if (n == 0)
			subscription->readers[0]->cursor.partition = partition;
		else if (lb_placing_add(subscription, partition) == NULL) {
			take_back(subscription, before);
			fail(subscription, LB_NO_MEMORY, partition, "out of memory");
			return false;
		}
	}
	return true;
}

/* Whatever a partition has that the topic has only got since is read from its beginning; a replay's end was taken before. */
static void
take_topic(struct lb_subscription *subscription, const struct lb_metadata *metadata, const struct lb_topic_metadata *topic)
{
	bool all = subscription->options.partitions == NULL && subscription->options.stop != LB_STOP_AT_WATERMARK;

	if (!subscription->placed) {
		if (!has_partitions(subscription, topic) || !add_readers(subscription, topic, 0))
			return;
		subscription->placed = true;
		place(subscription, metadata, topic, subscription->options.start);
	} else if (all && (size_t)topic->partition_count > subscription->reader_count) {
		if (add_readers(subscription, topic, subscription->reader_count))
			place(subscription, metadata, topic, LB_START_EARLIEST);
	}
}

void
lb_placing_take(struct lb_subscription *subscription)
{
	struct lb_metadata *metadata = subscription->readers[0]->metadata;
	const struct lb_topic_metadata *topic = lb_metadata_find(metadata, subscription->setting.topic);

	subscription->readers[0]->metadata = NULL;
	take_topic(subscription, metadata, topic);
	lb_metadata_free(metadata);
}
