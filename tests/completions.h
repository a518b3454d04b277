/* What the tests of the client library's connection record about operations: each completion, its code, what it brought. */
#ifndef TESTS_COMPLETIONS_H
#define TESTS_COMPLETIONS_H

#include "client/lib/connection.h"
#include "client/lib/logbroker.h"

struct completion {
	int times;
	int code;
	struct lb_error error;
	int64_t base_offset, log_end_offset, high_watermark;	/* of what it brought; -2: nothing of the kind */
	char payload[64];
	size_t payload_bytes;
	int version;		/* of METADATA */
	int order;		/* 1 for the first of all completions since completions_begin */
	struct lb_connection *frees;	/* freed by this completion's callback; NULL: none */
};

void completion_init(struct completion *completion);
/* The orders count from 1 again, and nothing was freed. */
void completions_begin(void);
/* Frees it, as a completion's `frees` does; a completion behind that fails the test. */
void completions_free(struct lb_connection *connection);
/* Whether one has been freed so since. */
bool completions_have_freed(void);

/* Callbacks; the context is a struct completion. */
void completion_produced(void *context, const struct lb_produced *produced, const struct lb_error *error);
void completion_fetched(void *context, const struct lb_fetched *fetched, const struct lb_error *error);
void completion_metadata(void *context, struct lb_metadata *metadata, const struct lb_error *error);
void completion_answered(void *context, const struct lb_answer *answer, const struct lb_error *error);

/* Submits one request to topic t, partition 0, which must be accepted. */
void submit_produce(struct lb_connection *connection, enum lb_ack ack, size_t bytes, struct completion *completion);
void submit_fetch(struct lb_connection *connection, int32_t max_wait_ms, struct completion *completion);
void submit_metadata(struct lb_connection *connection, struct completion *completion);
/* 0: PRODUCE, 1: FETCH, 2: METADATA. */
void submit_kind(struct lb_connection *connection, int kind, struct completion *completion);

/* Turns until it has completed; fails after half a minute. */
void await_completion(struct lb_connection *connection, const struct completion *completion);

#endif
