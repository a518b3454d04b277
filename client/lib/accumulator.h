/*
 * When is a bundle complete? Pure policy: by its records, by its bytes, or linger_ns after its first record. The open bundles, one
 * per partition at most, wait here in the order in which they were begun, which is that in which they are due. No clock, no
 * sockets, no memory of its own.
 */
#ifndef CLIENT_LIB_ACCUMULATOR_H
#define CLIENT_LIB_ACCUMULATOR_H

#include "client/lib/bundle.h"

struct lb_accumulator {
	int32_t batch_records;
	size_t batch_bytes;	/* of records as they stand in the frame, their lengths included */
	int64_t linger_ns;
	struct lb_bundle_list open;
};

void lb_accumulator_init(struct lb_accumulator *accumulator, int32_t batch_records, size_t batch_bytes, int64_t linger_ns);
/* A bundle that has been begun (begun_ns) takes records from here on, until it is closed. */
void lb_accumulator_open(struct lb_accumulator *accumulator, struct lb_bundle *bundle);
void lb_accumulator_close(struct lb_accumulator *accumulator, struct lb_bundle *bundle);
/* May a record of so many bytes of payload join that one? If not, that one is to be closed. `head_bytes`: of its frame. */
bool lb_accumulator_has_room(const struct lb_accumulator *accumulator, const struct lb_bundle *bundle, size_t head_bytes,
    size_t bytes);
/* Nothing can join it any more. */
bool lb_accumulator_is_full(const struct lb_accumulator *accumulator, const struct lb_bundle *bundle, size_t head_bytes);
/* The open bundle that was begun first, when its linger is over, or NULL. Records may join it until it is closed. */
struct lb_bundle *lb_accumulator_due(const struct lb_accumulator *accumulator, int64_t now_ns);
/* When the next one will be due; INT64_MAX: none is open. */
int64_t lb_accumulator_due_ns(const struct lb_accumulator *accumulator);

#endif
