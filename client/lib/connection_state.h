/*
 * What the files of the connection share: connection.c (its life), connecting.c (until it is open), transfer.c (bytes
 * out and in, answers to operations), operation.c (the queue's entries and how they complete), requests.c and calls.c
 * (the public calls).
 */
#ifndef CLIENT_LIB_CONNECTION_STATE_H
#define CLIENT_LIB_CONNECTION_STATE_H

#include "client/lib/address.h"
#include "client/lib/connection.h"
#include "client/lib/logbroker.h"
#include "client/lib/pool.h"
#include "client/lib/source.h"

enum connection_state { CONNECTION_CONNECTING, CONNECTION_OPEN, CONNECTION_ENDED };

struct operation {
	struct operation *next;
	struct lb_connection *connection;
	enum lb_frame_kind kind;
	uint8_t *frame;
	size_t frame_bytes;
	bool whole;		/* has left whole */
	bool again;		/* set by done: not over, the frame is to be sent once more */
	int32_t id;
	int timeout_ms;
	int64_t deadline_ns;
	lb_answer_cb *done;	/* NULL: has completed; it stays for its place in the order */
	void *context;
	/* Of the public calls only: */
	struct lb_block *block;	/* what frame is in */
	union {
		lb_produced_cb *produced;
		lb_fetched_cb *fetched;
		lb_metadata_cb *metadata;
	} user;
	void *user_context;
};

struct operation_queue {
	struct operation *first;
	struct operation **end;		/* the link behind the last */
};

/*
 * Input:  | answers given out | answer_bytes: the one being given out | rest |
 *         0                   start                                           end                    capacity
 */
struct connection_input {
	uint8_t *bytes;
	size_t capacity, start, end;
	size_t answer_bytes;
};

struct lb_connection {
	struct lb_source source;	/* first: the one is cast to the other */
	char *address;
	int timeout_ms;
	size_t memory_bytes;
	enum connection_state state;
	struct lb_error failure;	/* of an ended one */
	bool freed;			/* lb_connection_free has begun */
	bool finishing;			/* nothing more is accepted; our side ends when all has left */
	bool rejected;			/* lb_connection_reject, with the text: */
	const char *rejection;
	int16_t metadata_version;	/* 1 once the broker has refused 2 */

	int fd;				/* stays open, but shut down, until the memory goes: see lb_connection_end */
	int retired_fd;			/* of the address before, for watchers that still hold it */
	struct lb_address_list addresses;
	size_t next_address;
	int connect_errno;		/* of the last address that did not take us */
	int64_t connect_deadline_ns;	/* for all addresses */
	int64_t attempt_deadline_ns;	/* for this one */
	int64_t attempt_again_ns;	/* a Unix socket's backlog was full: connect again then; 0 = no */

	int32_t next_id;
	int64_t earliest_ns;		/* no deadline is earlier; INT64_MAX: there is none */
	struct operation_queue unsent;	/* the first has sent_bytes outside already */
	size_t sent_bytes;
	struct operation_queue left;	/* LB_FRAME_UNANSWERED, sent, not completed yet */
	struct operation_queue unanswered;
	struct operation *unused;
	struct lb_pool pool;
	size_t public_bytes;		/* of public requests in the queues */
	size_t public_outstanding;	/* of them, those that have not completed */

	struct connection_input input;
	void *kept;			/* the answer that lb_connection_fetch has given out last */
	size_t kept_bytes;
};

/* ---- connection.c ---- */

/* Ends the connection with that reason: everything outstanding completes. */
void lb_connection_end(struct lb_connection *connection, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, the socket having ended or failed: an answer that came ahead of the end still counts. */
void lb_connection_lost(struct lb_connection *connection, const char *reason);
/* Why an ended connection takes nothing any more. */
enum lb_code lb_connection_refuse(const struct lb_connection *connection, struct lb_error *error);
/* Takes an operation that is filled in: LB_OK, or it is still the caller's. */
enum lb_code lb_connection_submit(struct lb_connection *connection, struct operation *operation, struct lb_error *error);
/* One turn of what lb_source_process does. */
void lb_connection_turn(struct lb_connection *connection);
struct lb_wants lb_connection_wants(const struct lb_connection *connection);

/* ---- connecting.c ---- */

/* Goes to the next address that does not refuse at once; none is left: the connection has ended. */
void lb_connecting_begin(struct lb_connection *connection);
void lb_connecting_process(struct lb_connection *connection);
void lb_connecting_forget_retired(struct lb_connection *connection);

/* ---- transfer.c ---- */

/* Takes what has come, and gives it out. */
void lb_transfer_receive(struct lb_connection *connection);
void lb_transfer_send(struct lb_connection *connection);
/* Gives out the answers that are whole. */
void lb_transfer_dispatch(struct lb_connection *connection);

/* ---- operation.c ---- */

void lb_operation_init_queue(struct operation_queue *queue);
void lb_operation_append(struct operation_queue *queue, struct operation *operation);
struct operation *lb_operation_take_first(struct operation_queue *queue);
/* All zero but its connection; NULL: no memory. */
struct operation *lb_operation_new(struct lb_connection *connection);
/* Back to the unused, with its block. */
void lb_operation_release(struct operation *operation);
/* Calls back, unless it was called back before. May free the connection, whose memory remains while it is entered. */
void lb_operation_complete(struct operation *operation, const struct lb_answer *answer, const struct lb_error *error);
/* Completes those that have left and wait for no answer. */
void lb_operation_complete_left(struct lb_connection *connection);
/* Completes with an error whose text tells what was asked for, then the reason. */
void lb_operation_fail(struct operation *operation, int code, const char *reason);
/* The error that names what was asked for, and the reason. */
void lb_operation_describe(const struct operation *operation, int code, const char *reason, struct lb_error *error);

/* ---- requests.c ---- */

/* As the public submit calls; `unlimited`: whatever memory_bytes says. */
enum lb_code lb_request_produce(struct lb_connection *connection, const char *topic, int32_t partition, enum lb_ack ack,
    const struct lb_payload *records, size_t record_count, bool unlimited, lb_produced_cb *done, void *context,
    struct lb_error *error);
enum lb_code lb_request_fetch(struct lb_connection *connection, const struct lb_fetch *fetch, bool unlimited,
    lb_fetched_cb *done, void *context, struct lb_error *error);
enum lb_code lb_request_metadata(struct lb_connection *connection, const char *const *topics, size_t topic_count,
    bool unlimited, lb_metadata_cb *done, void *context, struct lb_error *error);

#endif
