/*
 * What becomes of bundles: their outcomes, and telling them.
 */
#ifndef CLIENT_LIB_OUTCOME_H
#define CLIENT_LIB_OUTCOME_H

#include "client/lib/producer_state.h"

/* The bundle leaves its partition, acknowledged. */
void lb_outcome_acknowledged(struct lb_bundle *bundle, int64_t base_offset);
/* The bundle leaves its partition, refused by the broker. */
void lb_outcome_refused(struct lb_bundle *bundle, int code);
/* The bundle leaves its partition; `reason` is for the person who reads the error. */
void lb_outcome_failed(struct lb_bundle *bundle, int code, const char *reason);

/*
 * Tells all that was settled before the call, and counts it. The producer may be gone afterwards (lb_source_gone); what was settled
 * has been told all the same, by the free function in the callback.
 */
void lb_outcome_tell(struct lb_producer *producer);

/* No connection has the bundle, and it has been told: its memory is used again. */
void lb_outcome_recycle(struct lb_producer *producer, struct lb_bundle *bundle);

#endif
