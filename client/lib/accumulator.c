/*
 * Open bundles and when each is complete: see accumulator.h.
 */
#include "client/lib/accumulator.h"

#include "client/lib/codec.h"

void
lb_accumulator_init(struct lb_accumulator *accumulator, int32_t batch_records, size_t batch_bytes, int64_t linger_ns)
{
	*accumulator = (struct lb_accumulator){
		.batch_records = batch_records,
		.batch_bytes = batch_bytes,
		.linger_ns = linger_ns,
	};
	TAILQ_INIT(&accumulator->open);
}

void
lb_accumulator_open(struct lb_accumulator *accumulator, struct lb_bundle *bundle)
{
	bundle->open = true;
	TAILQ_INSERT_TAIL(&accumulator->open, bundle, queue);
}

void
lb_accumulator_close(struct lb_accumulator *accumulator, struct lb_bundle *bundle)
{
	bundle->open = false;
	TAILQ_REMOVE(&accumulator->open, bundle, queue);
}

bool
lb_accumulator_has_room(const struct lb_accumulator *accumulator, const struct lb_bundle *bundle, size_t head_bytes,
    size_t bytes)
{
	return bundle->record_count < accumulator->batch_records &&
	    bundle->frame_bytes - head_bytes + LB_LENGTH_BYTES + bytes <= accumulator->batch_bytes;
}

bool
lb_accumulator_is_full(const struct lb_accumulator *accumulator, const struct lb_bundle *bundle, size_t head_bytes)
{
	return !lb_accumulator_has_room(accumulator, bundle, head_bytes, 1);
}

struct lb_bundle *
lb_accumulator_due(const struct lb_accumulator *accumulator, int64_t now_ns)
{
	return now_ns >= lb_accumulator_due_ns(accumulator) ? TAILQ_FIRST(&accumulator->open) : NULL;
}

int64_t
lb_accumulator_due_ns(const struct lb_accumulator *accumulator)
{
	const struct lb_bundle *first = TAILQ_FIRST(&accumulator->open);

	return first == NULL ? INT64_MAX : first->begun_ns + accumulator->linger_ns;
}
