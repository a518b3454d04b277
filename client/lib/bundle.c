/*
 * Frames that grow, and their receivers: see bundle.h. Sizes are the pool's: powers of two.
 */
#include "client/lib/bundle.h"

#include <string.h>

#include "client/lib/codec.h"
#include "common/bytes.h"

enum {
	FRAME_FIRST_BYTES = 256,
	RECEIVERS_FIRST = 16,
};

static size_t
power_of_two(size_t at_least, size_t from)
{
	while (from < at_least)
		from *= 2;
	return from;
}

bool
lb_bundle_begin(struct lb_bundle *bundle, struct lb_pool *pool, size_t head_bytes, size_t expected_bytes)
{
	size_t capacity = power_of_two(expected_bytes > head_bytes ? expected_bytes : head_bytes, FRAME_FIRST_BYTES);
	struct lb_block *block = lb_pool_take(pool, capacity);

	if (block == NULL)
		return false;
	bundle->block = block;
	bundle->frame = lb_block_bytes(block);
	bundle->capacity_bytes = capacity;
	bundle->frame_bytes = head_bytes;
	bundle->record_count = 0;
	bundle->receiver_block = NULL;
	bundle->receivers = NULL;
	bundle->receiver_capacity = 0;
	bundle->together = false;
	bundle->told = 0;
	return true;
}

static bool
grow_frame(struct lb_bundle *bundle, struct lb_pool *pool, size_t bytes)
{
	size_t capacity = power_of_two(bytes, bundle->capacity_bytes);
	struct lb_block *block = lb_pool_take(pool, capacity);

	if (block == NULL)
		return false;
	memcpy(lb_block_bytes(block), bundle->frame, bundle->frame_bytes);
	lb_pool_give(pool, bundle->block);
	bundle->block = block;
	bundle->frame = lb_block_bytes(block);
	bundle->capacity_bytes = capacity;
	return true;
}

bool
lb_bundle_put(struct lb_bundle *bundle, struct lb_pool *pool, const void *payload, size_t bytes)
{
	size_t frame_bytes = bundle->frame_bytes + LB_LENGTH_BYTES + bytes;
	uint8_t *to;

	if (frame_bytes > bundle->capacity_bytes && !grow_frame(bundle, pool, frame_bytes))
		return false;
	to = bytes_put_i32(bundle->frame + bundle->frame_bytes, (int32_t)bytes);
	memcpy(to, payload, bytes);
	bundle->frame_bytes = frame_bytes;
	bundle->record_count++;
	return true;
}

void
lb_bundle_unput(struct lb_bundle *bundle, size_t bytes)
{
	bundle->frame_bytes -= LB_LENGTH_BYTES + bytes;
	bundle->record_count--;
}

static bool
grow_receivers(struct lb_bundle *bundle, struct lb_pool *pool, size_t count, size_t used)
{
	size_t capacity = power_of_two(count, RECEIVERS_FIRST);
	struct lb_block *block = lb_pool_take(pool, capacity * sizeof(struct lb_receiver));
	struct lb_receiver *receivers;

	if (block == NULL)
		return false;
	receivers = (struct lb_receiver *)(void *)lb_block_bytes(block);
	if (bundle->receivers != NULL) {
		memcpy(receivers, bundle->receivers, used * sizeof(*receivers));
		lb_pool_give(pool, bundle->receiver_block);
	} else {
		memset(receivers, 0, used * sizeof(*receivers));
	}
	bundle->receiver_block = block;
	bundle->receivers = receivers;
	bundle->receiver_capacity = capacity;
	return true;
}

bool
lb_bundle_tell(struct lb_bundle *bundle, struct lb_pool *pool, lb_receipt_cb *done, void *context)
{
	size_t at = bundle->together ? 0 : (size_t)bundle->record_count - 1;

	if (done == NULL && bundle->receivers == NULL)
		return true;
	if (at >= bundle->receiver_capacity && !grow_receivers(bundle, pool, at + 1, at))
		return false;
	bundle->receivers[at] = (struct lb_receiver){ .done = done, .context = context };
	return true;
}

size_t
lb_bundle_receivers(const struct lb_bundle *bundle)
{
	if (bundle->receivers == NULL)
		return 0;
	return bundle->together ? 1 : (size_t)bundle->record_count;
}

void
lb_bundle_seal(struct lb_bundle *bundle, const char *topic, int32_t partition, enum lb_ack ack)
{
	lb_put_produce_head(bundle->frame, bundle->frame_bytes, 0, topic, partition, ack, bundle->record_count);
}

void
lb_bundle_end(struct lb_bundle *bundle, struct lb_pool *pool)
{
	lb_pool_give(pool, bundle->block);
	if (bundle->receivers != NULL)
		lb_pool_give(pool, bundle->receiver_block);
}
