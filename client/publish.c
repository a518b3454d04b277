/*
 * A publisher. A batch is a PRODUCE frame under construction: its head is written last, when count and length are
 * known, into the room that was left for it.
 *
 *   batch:   | room for the head | int32 size | payload | int32 size | payload | ...
 */
#include "client/publish.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/tool.h"
#include "client/wire.h"
#include "common/bytes.h"
#include "common/clock.h"

enum {
	PUBLISH_BATCH_BYTES = 256 * 1024,	/* a request is closed before it would grow beyond that */
	PUBLISH_FIRST_BYTES = 512,
	PUBLISH_FLIGHT_MAX = 32,		/* requests */
	PUBLISH_GATHERED_MAX_BYTES = 16 * 1024 * 1024,	/* in all batches that are not full yet */
	PUBLISH_SIZE_BYTES = 4,
};

struct batch {
	uint8_t *frame;
	size_t used, capacity;		/* used is 0, or at least the head's room */
	int32_t count;
	int64_t first, last;		/* numbers in the input */
	size_t largest;
	int64_t largest_number;
};

struct flight {
	int32_t partition, count;
	int64_t first, last, largest_number;
	size_t largest;
	int64_t deadline_ns;
};

struct publisher {
	struct client *client;
	struct publish_settings settings;
	size_t head_bytes;
	struct batch *batches;			/* per partition */
	size_t gathered_bytes;
	struct flight flights[PUBLISH_FLIGHT_MAX];	/* a ring, oldest at `oldest` */
	int32_t oldest, in_flight;
	bool refused;
	struct publish_totals totals;
};

struct publisher *
publish_new(struct client *client, const struct publish_settings *settings)
{
	struct publisher *publisher = calloc(1, sizeof(*publisher));

	if (publisher == NULL)
		return NULL;
	publisher->client = client;
	publisher->settings = *settings;
	publisher->head_bytes = wire_produce_head_bytes(strlen(settings->topic));
	publisher->batches = calloc((size_t)settings->partition_count, sizeof(*publisher->batches));
	if (publisher->batches == NULL) {
		free(publisher);
		return NULL;
	}
	return publisher;
}

void
publish_free(struct publisher *publisher)
{
	if (publisher == NULL)
		return;
	for (int32_t i = 0; i < publisher->settings.partition_count; i++)
		free(publisher->batches[i].frame);
	free(publisher->batches);
	free(publisher);
}

size_t
publish_max_record(const char *topic)
{
	return WIRE_FRAME_MAX_BYTES - wire_produce_head_bytes(strlen(topic)) - PUBLISH_SIZE_BYTES;
}

const struct publish_totals *
publish_totals(const struct publisher *publisher)
{
	return &publisher->totals;
}

int64_t
publish_first_unanswered(const struct publisher *publisher)
{
	return publisher->in_flight == 0 ? 0 : publisher->flights[publisher->oldest].first;
}

int64_t
publish_deadline(const struct publisher *publisher)
{
	return publisher->in_flight == 0 ? INT64_MAX : publisher->flights[publisher->oldest].deadline_ns;
}

static int64_t
step_deadline(const struct publisher *publisher)
{
	return clock_now_ns() + publisher->settings.timeout_ns;
}

/* The oldest request's answer is there, so the next one's time begins. */
static struct flight
land(struct publisher *publisher)
{
	struct flight flight = publisher->flights[publisher->oldest];

	publisher->oldest = (publisher->oldest + 1) % PUBLISH_FLIGHT_MAX;
	publisher->in_flight--;
	if (publisher->in_flight > 0)
		publisher->flights[publisher->oldest].deadline_ns = step_deadline(publisher);
	return flight;
}

static void
print_offsets(struct publisher *publisher, const struct flight *flight, int64_t base_offset)
{
	if (publisher->settings.offsets == NULL)
		return;
	for (int32_t i = 0; i < flight->count; i++)
		output_print(publisher->settings.offsets, "%d\t%" PRId64 "\n", flight->partition, base_offset + i);
}

static void
say_refusal(const struct publisher *publisher, const struct flight *flight, int16_t error)
{
	tool_say("%s: topic %s partition %d: %d records refused, input records %" PRId64 " to %" PRId64
	    "; the largest is record %" PRId64 " with %zu bytes", codec_error_name(error), publisher->settings.topic,
	    flight->partition, flight->count, flight->first, flight->last, flight->largest_number, flight->largest);
}

/* One answer, just received. */
static enum client_status
take_in(struct publisher *publisher, enum client_status status, const struct client_answer *answer)
{
	struct wire_produced produced;
	struct flight flight;

	if (status == CLIENT_OK && wire_read_produced(answer,
	    publisher->flights[publisher->oldest].count, &produced) != 0)
		return client_break(publisher->client, "a PRODUCE answer that cannot be right");
	if (status != CLIENT_OK && status != CLIENT_REFUSED)
		return status;
	flight = land(publisher);
	if (status == CLIENT_OK) {
		publisher->totals.acknowledged += flight.count;
		print_offsets(publisher, &flight, produced.base_offset);
		return CLIENT_OK;
	}
	publisher->totals.refused += flight.count;
	publisher->refused = true;
	say_refusal(publisher, &flight, answer->error);
	return CLIENT_OK;
}

/* A refusal is reported by every call from then on. */
static enum client_status
verdict(const struct publisher *publisher, enum client_status status)
{
	return status == CLIENT_OK && publisher->refused ? CLIENT_REFUSED : status;
}

/* Takes in the answers that have arrived, without waiting; notices a connection that has ended. */
static enum client_status
collect(struct publisher *publisher)
{
	for (;;) {
		struct client_answer answer;
		enum client_status status = client_poll(publisher->client, &answer);

		if (status == CLIENT_AGAIN)
			return CLIENT_OK;
		if ((status = take_in(publisher, status, &answer)) != CLIENT_OK)
			return status;
	}
}

/* Waits until at most `most` requests are in flight. */
static enum client_status
wait_for_answers(struct publisher *publisher, int32_t most)
{
	while (publisher->in_flight > most) {
		struct client_answer answer;
		enum client_status status = client_receive(publisher->client, &answer, publish_deadline(publisher));

		if ((status = take_in(publisher, status, &answer)) != CLIENT_OK)
			return status;
	}
	return CLIENT_OK;
}

static void
note_flight(struct publisher *publisher, const struct batch *batch, int32_t partition)
{
	int32_t at = (publisher->oldest + publisher->in_flight) % PUBLISH_FLIGHT_MAX;

	publisher->flights[at] = (struct flight){ .partition = partition, .count = batch->count,
		.first = batch->first, .last = batch->last, .largest = batch->largest,
		.largest_number = batch->largest_number, .deadline_ns = step_deadline(publisher) };
	publisher->in_flight++;
}

static void
reset_batch(struct publisher *publisher, struct batch *batch)
{
	publisher->gathered_bytes -= batch->used;
	batch->used = 0;
	batch->count = 0;
	batch->largest = 0;
	if (batch->capacity > 2 * PUBLISH_BATCH_BYTES) {	/* one giant record must not stay in memory */
		free(batch->frame);
		batch->frame = NULL;
		batch->capacity = 0;
	}
}

static enum client_status
send_batch(struct publisher *publisher, int32_t partition)
{
	struct batch *batch = &publisher->batches[partition];
	bool answered = publisher->settings.ack != CODEC_ACK_NONE;
	enum client_status status;

	if (batch->count == 0)
		return CLIENT_OK;
	if ((status = wait_for_answers(publisher, PUBLISH_FLIGHT_MAX - 1)) != CLIENT_OK)
		return status;
	if ((status = collect(publisher)) != CLIENT_OK)
		return status;
	/* A request that has been refused is not overtaken by its successors more than pipelining makes inevitable. */
	if (publisher->refused)
		return CLIENT_OK;
	wire_put_produce_head(batch->frame, publisher->settings.topic, partition, publisher->settings.ack,
	    batch->count, batch->used);
	publisher->totals.sent += batch->count;
	if (answered)
		note_flight(publisher, batch, partition);
	status = client_send(publisher->client, batch->frame, batch->used, answered, step_deadline(publisher));
	reset_batch(publisher, batch);
	return status;
}

static enum client_status
send_all(struct publisher *publisher)
{
	for (int32_t i = 0; i < publisher->settings.partition_count && publisher->gathered_bytes > 0; i++) {
		enum client_status status = send_batch(publisher, i);

		if (status != CLIENT_OK)
			return status;
		if (publisher->refused)
			break;
	}
	return CLIENT_OK;
}

/* Room for `bytes` more; grows by doubling, so that thousands of partitions with little in them stay small. */
static bool
make_room(struct batch *batch, size_t bytes)
{
	size_t capacity = batch->capacity == 0 ? PUBLISH_FIRST_BYTES : batch->capacity;
	uint8_t *grown;

	if (batch->used + bytes <= batch->capacity)
		return true;
	while (capacity < batch->used + bytes)
		capacity *= 2;
	grown = realloc(batch->frame, capacity);
	if (grown == NULL)
		return false;
	batch->frame = grown;
	batch->capacity = capacity;
	return true;
}

static bool
add_record(struct publisher *publisher, struct batch *batch, const uint8_t *payload, size_t size, int64_t number)
{
	size_t head = batch->count == 0 ? publisher->head_bytes : 0;

	if (!make_room(batch, head + PUBLISH_SIZE_BYTES + size))
		return false;
	batch->used += head;
	bytes_put_i32(batch->frame + batch->used, (int32_t)size);
	memcpy(batch->frame + batch->used + PUBLISH_SIZE_BYTES, payload, size);
	batch->used += PUBLISH_SIZE_BYTES + size;
	publisher->gathered_bytes += head + PUBLISH_SIZE_BYTES + size;
	if (batch->count == 0)
		batch->first = number;
	if (size > batch->largest) {
		batch->largest = size;
		batch->largest_number = number;
	}
	batch->last = number;
	batch->count++;
	return true;
}

enum client_status
publish_put(struct publisher *publisher, int32_t partition, const uint8_t *payload, size_t size, int64_t number)
{
	struct batch *batch = &publisher->batches[partition];
	enum client_status status = CLIENT_OK;

	if (batch->count > 0 && batch->used + PUBLISH_SIZE_BYTES + size > PUBLISH_BATCH_BYTES)
		status = send_batch(publisher, partition);
	if (status != CLIENT_OK || publisher->refused)
		return verdict(publisher, status);
	if (!add_record(publisher, batch, payload, size, number))
		return CLIENT_NO_MEMORY;
	if (batch->used >= PUBLISH_BATCH_BYTES || batch->count == publisher->settings.batch_records)
		status = send_batch(publisher, partition);
	else if (publisher->gathered_bytes >= PUBLISH_GATHERED_MAX_BYTES)
		status = send_all(publisher);
	return verdict(publisher, status);
}

enum client_status
publish_pause(struct publisher *publisher)
{
	enum client_status status = collect(publisher);

	if (status == CLIENT_OK && publisher->in_flight == 0 && !publisher->refused)
		status = send_all(publisher);
	return verdict(publisher, status);
}

enum client_status
publish_end(struct publisher *publisher)
{
	enum client_status status = publisher->refused ? CLIENT_OK : send_all(publisher);

	if (status == CLIENT_OK)
		status = wait_for_answers(publisher, 0);
	if (status == CLIENT_OK && publisher->settings.ack == CODEC_ACK_NONE)
		status = client_finish(publisher->client, step_deadline(publisher));
	return verdict(publisher, status);
}

void
publish_salvage(struct publisher *publisher)
{
	collect(publisher);
}
