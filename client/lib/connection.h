/*
 * A connection as producers and subscriptions use it: frames that they keep, answers that they may keep. The public
 * calls of logbroker.h stand on these.
 *
 * Operations wait in one queue, in order: first those whose frames are being sent, then those that wait for answers;
 * the broker answers in order, and an answer with another correlation id than the oldest one's is LB_BAD_ANSWER for
 * the whole connection. An operation whose deadline has passed completes, and stays in the queue until its answer has
 * come and been dropped.
 *
 * What is told when a connection ends: an operation whose frame did not leave whole for the kernel did nothing (the
 * broker executes whole frames only), so the reason's code: LB_LOST, LB_CANNOT_CONNECT, LB_BAD_ANSWER, LB_NO_MEMORY,
 * LB_CLOSED; a PRODUCE that left whole is LB_OUTCOME_UNKNOWN. When a deadline passes: LB_TIMED_OUT, and the frame is
 * taken out of the queue if not a byte of it has left; a PRODUCE of which a byte has left is LB_OUTCOME_UNKNOWN,
 * since the rest follows. So LB_OUTCOME_UNKNOWN is the one code (but an answer's own) with which a PRODUCE may have
 * been executed.
 */
#ifndef CLIENT_LIB_CONNECTION_H
#define CLIENT_LIB_CONNECTION_H

#include "client/lib/logbroker.h"

enum lb_frame_kind {
	LB_FRAME_PRODUCE,
	LB_FRAME_UNANSWERED,	/* PRODUCE with LB_ACK_NONE: completes, with answer NULL, when it has left whole */
	LB_FRAME_QUESTION,	/* FETCH, METADATA: nothing happens by them, so LB_LOST when the connection ends */
};

/* error NULL: the answer, whose error_code may be set; it is valid until the callback returns. */
typedef void lb_answer_cb(void *context, const struct lb_answer *answer, const struct lb_error *error);

/*
 * Submits a whole frame (lb_encode_*), whose correlation id is written into it here. The frame stays the caller's,
 * unchanged, until it completes; when that is for reasons of time (lb_connection_failure says NULL then), until the
 * connection has failed or is freed. No limit of memory. It is sent by the next processing; lb_source_process right
 * away is fine outside of the connection's callbacks.
 */
enum lb_code lb_connection_submit_frame(struct lb_connection *connection, enum lb_frame_kind kind, void *frame,
    size_t frame_bytes, int timeout_ms, lb_answer_cb *done, void *context, struct lb_error *error);

/*
 * Inside an lb_answer_cb: the block of memory that holds the answer becomes the caller's (free(3)), and the answer
 * stays valid with it. `spare` (NULL, or a block from an earlier call, with its size) is what the connection receives
 * into from now on.
 */
void *lb_connection_take_answer(struct lb_connection *connection, void *spare, size_t spare_bytes, size_t *taken_bytes);

/*
 * Inside an lb_answer_cb: the answer is not one to what was asked. When the callback has returned the connection
 * fails with LB_BAD_ANSWER; `what` becomes its text and must live as long ("its METADATA has a negative count").
 */
void lb_connection_reject(struct lb_connection *connection, const char *what);

/* NULL while the connection can be used, or is being opened. */
const struct lb_error *lb_connection_failure(const struct lb_connection *connection);
bool lb_connection_is_open(const struct lb_connection *connection);

/*
 * Ends our side when everything has left; the broker executes what it got whole and closes, upon which the connection
 * has failed with LB_CLOSED. What makes PRODUCE with LB_ACK_NONE arrive before a program exits.
 */
void lb_connection_finish(struct lb_connection *connection);

#endif
