/*
 * Topic handles, and the way of a record into its partition's open bundle.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/codec.h"
#include "client/lib/error.h"
#include "client/lib/groups.h"
#include "client/lib/link.h"
#include "client/lib/outcome.h"
#include "client/lib/producer.h"
#include "client/lib/producer_state.h"
#include "client/lib/sender.h"
#include "common/clock.h"

/* ---- handles ---- */

static struct lb_topic *
find_topic(const struct lb_producer *producer, const char *name)
{
	struct lb_topic *topic = producer->topics;

	while (topic != NULL && strcmp(topic->name, name) != 0)
		topic = topic->next;
	return topic;
}

/* On a connection of its own: what is under way on the others goes on undisturbed. */
static enum lb_code
ask(const struct lb_producer *producer, const char *name, struct lb_metadata **metadata, struct lb_error *error)
{
	struct lb_connection_options how = lb_connection_defaults();
	struct lb_connection *connection;
	enum lb_code code;

	if (how.timeout_ms > producer->options.delivery_timeout_ms)
		how.timeout_ms = producer->options.delivery_timeout_ms;
	code = lb_connection_open(&connection, producer->address, &how, error);
	if (code != LB_OK)
		return code;
	code = lb_connection_metadata(connection, &name, 1, metadata, error);
	lb_connection_free(connection);
	return code;
}

/* NULL: no memory. */
static struct lb_topic *
make_topic(struct lb_producer *producer, const struct lb_topic_metadata *metadata)
{
	size_t count = (size_t)metadata->partition_count;
	struct lb_topic *topic = calloc(1, sizeof(*topic) + count * sizeof(topic->partitions[0]));
	struct lb_link *first = lb_link_of_group(producer, metadata->partitions[0].group);

	if (topic == NULL || first == NULL) {
		free(topic);
		return NULL;
	}
	topic->producer = producer;
	memcpy(topic->name, metadata->name, strlen(metadata->name));
	topic->head_bytes = lb_produce_head_bytes(strlen(metadata->name));
	topic->partition_count = metadata->partition_count;
	for (int32_t i = 0; i < topic->partition_count; i++) {
		struct lb_partition *partition = &topic->partitions[i];

		partition->topic = topic;
		partition->number = i;
		partition->home = first;
		partition->link = first;
		TAILQ_INIT(&partition->bundles);
	}
	lb_groups_take(topic, metadata);
	topic->next = producer->topics;
	producer->topics = topic;
	return topic;
}

enum lb_code
lb_topic_open(struct lb_topic **opened, struct lb_producer *producer, const char *name, struct lb_error *error)
{
	struct lb_metadata *metadata;
	const struct lb_topic_metadata *found;
	enum lb_code code;

	*opened = NULL;
	if (!lb_topic_name_valid(name))
		return lb_error_no_topic(error, name);
	if (producer->closing)
		return lb_error_set(error, LB_CLOSED, name, -1, -1, "the producer is being closed");
	*opened = find_topic(producer, name);
	if (*opened != NULL)
		return LB_OK;
	if (lb_source_busy(&producer->source))
		return lb_error_set(error, LB_INVALID_ARGUMENT, name, -1, -1, "opening %s inside a callback of the producer", name);
	code = ask(producer, name, &metadata, error);
	if (code != LB_OK)
		return code;
	/* An answer without the topic, or with none of its partitions, would have been refused. */
	found = lb_metadata_find(metadata, name);
	*opened = make_topic(producer, found);
	if (*opened == NULL)
		code = lb_error_set(error, LB_NO_MEMORY, name, -1, -1, "no memory for %d partitions of %s", found->partition_count, name);
	lb_metadata_free(metadata);
	return code;
}

const char *
lb_topic_name(const struct lb_topic *topic)
{
	return topic->name;
}

int32_t
lb_topic_partition_count(const struct lb_topic *topic)
{
	return topic->partition_count;
}

/* ---- limits ---- */

/* Bytes of records, with their lengths, that a frame of the topic has room for. */
static size_t
room_of_frame(const struct lb_topic *topic)
{
	return LB_LENGTH_BYTES + LB_FRAME_MAX_BYTES - topic->head_bytes;
}

static enum lb_code
too_large(const struct lb_partition *partition, struct lb_error *error)
{
	return lb_error_set(error, LB_INVALID_ARGUMENT, partition->topic->name, partition->number, -1,
	    "%s/%d: more than a frame has room for, which is %zu bytes, 4 ahead of each record included", partition->topic->name,
	    partition->number, room_of_frame(partition->topic));
}

static enum lb_code
empty_record(const struct lb_partition *partition, struct lb_error *error)
{
	return lb_error_set(error, LB_INVALID_ARGUMENT, partition->topic->name, partition->number, -1,
	    "%s/%d: an empty record, and these do not exist", partition->topic->name, partition->number);
}

/* LB_OK: so much more may be held. A producer that holds nothing accepts whatever comes. */
static enum lb_code
check_limits(const struct lb_partition *partition, size_t charge_bytes, struct lb_error *error)
{
	const struct lb_producer *producer = partition->topic->producer;
	size_t limit_bytes = producer->options.memory_bytes;

	if (producer->closing)
		return lb_error_set(error, LB_CLOSED, partition->topic->name, partition->number, -1, "the producer is being closed");
	if (producer->held_bytes == 0 || (charge_bytes <= limit_bytes && producer->held_bytes <= limit_bytes - charge_bytes))
		return LB_OK;
	return lb_error_set(error, LB_WOULD_BLOCK, partition->topic->name, partition->number, -1,
	    "%s/%d: %zu of %zu bytes of memory are taken by records that have not completed", partition->topic->name,
	    partition->number, producer->held_bytes, limit_bytes);
}

/* ---- bundles ---- */

static struct lb_bundle *
take_unused(struct lb_producer *producer)
{
	struct lb_bundle *bundle = TAILQ_FIRST(&producer->unused);

	if (bundle == NULL)
		return malloc(sizeof(*bundle));
	TAILQ_REMOVE(&producer->unused, bundle, queue);
	return bundle;
}

/* A bundle without records, the last of its partition. NULL: no memory. */
static struct lb_bundle *
begin_bundle(struct lb_partition *partition, size_t expected_bytes)
{
	struct lb_producer *producer = partition->topic->producer;
	struct lb_bundle *bundle = take_unused(producer);

	if (bundle == NULL)
		return NULL;
	if (!lb_bundle_begin(bundle, &producer->pool, partition->topic->head_bytes, expected_bytes)) {
		TAILQ_INSERT_HEAD(&producer->unused, bundle, queue);
		return NULL;
	}
	bundle->partition = partition;
	bundle->number = ++producer->bundles_begun;
	bundle->begun_ns = clock_now_ns();
	bundle->charged_bytes = 0;
	bundle->open = bundle->in_flight = bundle->maybe_sent = bundle->settled = bundle->delivered = false;
	TAILQ_INSERT_TAIL(&partition->bundles, bundle, of_partition);
	TAILQ_INSERT_TAIL(&producer->by_age, bundle, by_age);
	if (partition->unsent == NULL)
		partition->unsent = bundle;
	return bundle;
}

/* Begun a moment ago, and nothing came of it. */
static void
undo_bundle(struct lb_bundle *bundle)
{
	struct lb_partition *partition = bundle->partition;
	struct lb_producer *producer = partition->topic->producer;

	if (partition->unsent == bundle)
		partition->unsent = NULL;
	TAILQ_REMOVE(&partition->bundles, bundle, of_partition);
	TAILQ_REMOVE(&producer->by_age, bundle, by_age);
	lb_outcome_recycle(producer, bundle);
}

static void
charge(struct lb_bundle *bundle, size_t bytes, size_t record_count)
{
	struct lb_producer *producer = bundle->partition->topic->producer;

	bundle->charged_bytes += bytes;
	producer->held_bytes += bytes;
	producer->totals.accepted += record_count;
}

static struct lb_bundle *
open_bundle(const struct lb_partition *partition)
{
	struct lb_bundle *last = TAILQ_LAST(&partition->bundles, lb_bundle_list);

	return last != NULL && last->open ? last : NULL;
}

/* A complete bundle leaves at once where it can; anything else changes at most when the next turn is due. */
static void
after_send(struct lb_producer *producer, bool complete)
{
	if (complete)
		lb_producer_work(producer);
	lb_source_changed(&producer->source);
}

/* ---- one record ---- */

static bool
put_record(struct lb_bundle *bundle, const void *payload, size_t bytes, lb_receipt_cb *done, void *context)
{
	struct lb_pool *pool = &bundle->partition->topic->producer->pool;

	if (!lb_bundle_put(bundle, pool, payload, bytes))
		return false;
	if (lb_bundle_tell(bundle, pool, done, context))
		return true;
	lb_bundle_unput(bundle, bytes);
	return false;
}

/* The first record of a bundle: makes it, or leaves nothing of it. */
static struct lb_bundle *
begin_with(struct lb_partition *partition, const void *payload, size_t bytes, lb_receipt_cb *done, void *context)
{
	struct lb_producer *producer = partition->topic->producer;
	struct lb_bundle *bundle = begin_bundle(partition, partition->expected_bytes);

	if (bundle == NULL)
		return NULL;
	if (!put_record(bundle, payload, bytes, done, context)) {
		undo_bundle(bundle);
		return NULL;
	}
	lb_accumulator_open(&producer->accumulator, bundle);
	return bundle;
}

static enum lb_code
send_one(struct lb_partition *partition, const void *payload, size_t bytes, lb_receipt_cb *done, void *context,
    struct lb_error *error)
{
	struct lb_topic *topic = partition->topic;
	struct lb_accumulator *accumulator = &topic->producer->accumulator;
	struct lb_bundle *bundle = open_bundle(partition), *left = NULL;
	size_t cost = LB_LENGTH_BYTES + bytes + (done != NULL ? sizeof(struct lb_receiver) : 0);
	bool begin = bundle == NULL || !lb_accumulator_has_room(accumulator, bundle, topic->head_bytes, bytes);
	bool full;
	enum lb_code code;

	if (payload == NULL || bytes < 1)
		return empty_record(partition, error);
	if (bytes > room_of_frame(topic) - LB_LENGTH_BYTES)
		return too_large(partition, error);
	cost += begin ? sizeof(*bundle) : 0;
	code = check_limits(partition, cost, error);
	if (code != LB_OK)
		return code;
	if (begin) {
		left = bundle;
		bundle = begin_with(partition, payload, bytes, done, context);
	} else if (!put_record(bundle, payload, bytes, done, context)) {
		bundle = NULL;
	}
	if (bundle == NULL)
		return lb_error_set(error, LB_NO_MEMORY, topic->name, partition->number, -1, "no memory for a record of %zu bytes", bytes);
	charge(bundle, cost, 1);
	if (left != NULL)
		lb_sender_close(left);
	full = lb_accumulator_is_full(accumulator, bundle, topic->head_bytes);
	if (full)
		lb_sender_close(bundle);
	if (begin || full)
		after_send(topic->producer, left != NULL || full);
	return LB_OK;
}

static struct lb_partition *
next_in_turn(struct lb_topic *topic)
{
	return &topic->partitions[topic->next_partition];
}

/* Only what was accepted takes a turn: the records stay even. */
static void
take_turn(struct lb_topic *topic)
{
	if (++topic->next_partition == topic->partition_count)
		topic->next_partition = 0;
}

enum lb_code
lb_topic_send(struct lb_topic *topic, const void *key, size_t key_bytes, const void *payload, size_t bytes,
    lb_receipt_cb *done, void *context, struct lb_error *error)
{
	enum lb_code code;

	if (key != NULL)
		return send_one(&topic->partitions[lb_partition_of_key(key, key_bytes, topic->partition_count)], payload, bytes,
		    done, context, error);
	code = send_one(next_in_turn(topic), payload, bytes, done, context, error);
	if (code == LB_OK)
		take_turn(topic);
	return code;
}

static enum lb_code
no_partition(const struct lb_topic *topic, int32_t partition, struct lb_error *error)
{
	return lb_error_set(error, LB_INVALID_ARGUMENT, topic->name, partition, -1, "%s has no partition %d, but 0 to %d", topic->name,
	    partition, topic->partition_count - 1);
}

enum lb_code
lb_topic_send_to(struct lb_topic *topic, int32_t partition, const void *payload, size_t bytes, lb_receipt_cb *done,
    void *context, struct lb_error *error)
{
	if (partition < 0 || partition >= topic->partition_count)
		return no_partition(topic, partition, error);
	return send_one(&topic->partitions[partition], payload, bytes, done, context, error);
}

/* ---- batches ---- */

/* The bytes of a frame of them, or 0 with *error. */
static size_t
frame_of(const struct lb_partition *partition, const struct lb_payload *records, size_t record_count, struct lb_error *error)
{
	size_t room_bytes = room_of_frame(partition->topic), bytes = 0;

	for (size_t i = 0; i < record_count; i++) {
		if (records[i].data == NULL || records[i].bytes < 1) {
			empty_record(partition, error);
			return 0;
		}
		if (records[i].bytes > room_bytes || (bytes += LB_LENGTH_BYTES + records[i].bytes) > room_bytes) {
			too_large(partition, error);
			return 0;
		}
	}
	return partition->topic->head_bytes + bytes;
}

/* A bundle with all of the records, or NULL and nothing of it. The room was taken at once: putting cannot fail. */
static struct lb_bundle *
bundle_of(struct lb_partition *partition, const struct lb_payload *records, size_t record_count, size_t frame_bytes,
    lb_receipt_cb *done, void *context)
{
	struct lb_pool *pool = &partition->topic->producer->pool;
	struct lb_bundle *bundle = begin_bundle(partition, frame_bytes);

	if (bundle == NULL)
		return NULL;
	bundle->together = true;
	if (!lb_bundle_tell(bundle, pool, done, context)) {
		undo_bundle(bundle);
		return NULL;
	}
	for (size_t i = 0; i < record_count; i++)
		lb_bundle_put(bundle, pool, records[i].data, records[i].bytes);
	return bundle;
}

static enum lb_code
send_together(struct lb_partition *partition, const struct lb_payload *records, size_t record_count, lb_receipt_cb *done,
    void *context, struct lb_error *error)
{
	struct lb_topic *topic = partition->topic;
	struct lb_bundle *left = open_bundle(partition), *bundle;
	size_t frame_bytes = frame_of(partition, records, record_count, error);
	size_t cost = frame_bytes - topic->head_bytes + sizeof(*bundle) + sizeof(struct lb_receiver);
	enum lb_code code;

	if (frame_bytes == 0)
		return LB_INVALID_ARGUMENT;
	code = check_limits(partition, cost, error);
	if (code != LB_OK)
		return code;
	bundle = bundle_of(partition, records, record_count, frame_bytes, done, context);
	if (bundle == NULL)
		return lb_error_set(error, LB_NO_MEMORY, topic->name, partition->number, -1, "no memory for %zu records", record_count);
	charge(bundle, cost, record_count);
	if (record_count == 0) {
		lb_outcome_acknowledged(bundle, -1);
	} else {
		if (left != NULL)
			lb_sender_close(left);
		lb_bundle_seal(bundle, topic->name, partition->number, topic->producer->options.ack);
	}
	lb_sender_update(partition);
	after_send(topic->producer, true);
	return LB_OK;
}

enum lb_code
lb_topic_send_batch(struct lb_topic *topic, int32_t partition, const struct lb_payload *records, size_t record_count,
    lb_receipt_cb *done, void *context, struct lb_error *error)
{
	enum lb_code code;

	if (partition != LB_ANY_PARTITION && (partition < 0 || partition >= topic->partition_count))
		return no_partition(topic, partition, error);
	if (partition != LB_ANY_PARTITION)
		return send_together(&topic->partitions[partition], records, record_count, done, context, error);
	code = send_together(next_in_turn(topic), records, record_count, done, context, error);
	if (code == LB_OK && record_count > 0)
		take_turn(topic);
	return code;
}
