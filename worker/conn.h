/*
 * A client's connection inside this worker: bytes to frames, answers to bytes, in order; and its life: half frames and
 * stalled answers have deadlines, the client's end and the broker's own are orderly, and a connection whose next
 * request belongs to another group is given away with everything that has been read and not executed.
 *
 * Knows no topics and no records: what a frame means is dispatch's business. This is what those who execute requests
 * see of it; the inside is in conn_state.h.
 */
#ifndef WORKER_CONN_H
#define WORKER_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/codec.h"
#include "common/message.h"
#include "worker/hold.h"
#include "worker/output.h"
#include "worker/worker.h"

struct connections;

/*
 * A PRODUCE on its way, or any answer that stands behind one: answers leave in the order of the requests. Belongs to
 * its connection until answered; when that has gone before, to the lane whose queue it stands in.
 */
struct reply {
	struct reply *next_in_conn;
	struct reply *next;		/* in the lane's queue; or free */
	struct conn *conn;		/* NULL: it has gone, nobody will be answered */
	int32_t correlation_id;
	int8_t ack;			/* enum codec_ack */
	enum board_api api;
	bool silent;
	bool queued;			/* in a lane's queue */
	bool answered;
	enum codec_error error;
	int32_t record_count;
	size_t staged_bytes;		/* of its records as they go to disk */
	int64_t end_offset;
	int64_t high_watermark;
	int64_t started_ns;
};

/* Offers again what dispatch has put off: a segment has been opened, a lane has room. Whoever has waited longest goes first,
 * and goes on only behind the others. */
void conn_resume_all(struct connections *set);

/* Has something to do in this turn (again). */
void conn_schedule(struct conn *conn);

/* Where an answer goes when conn_owes is false; whoever puts it there outside conn_work also calls conn_schedule. */
struct output *conn_output(struct conn *conn);

/* Is there a request whose answer is not in the output yet? */
bool conn_owes(const struct conn *conn);

/* The client will send no more: whoever would wait on its behalf must not. */
bool conn_ending(const struct conn *conn);

/* Has the frame that is offered been put off behind gathered appends already? Once is enough. */
bool conn_deferred(const struct conn *conn);

/* The frame that is offered is a FETCH that was held elsewhere until this instant, CLOCK_MONOTONIC; 0 = it was not. */
int64_t conn_held_until_ns(const struct conn *conn);

struct hold *conn_hold(struct conn *conn);
/* Arms the time-out of the hold that has been added. */
void conn_held(struct conn *conn);

/* Appends a reply for this request behind those that are owed. NULL: no memory. */
struct reply *conn_add_reply(struct conn *conn, const struct codec_request *request, enum board_api api);

/* The answer is known; it leaves when those before it have. Frees the reply if its connection has gone. */
void conn_answer(struct worker *worker, struct reply *reply, enum codec_error error);

/* For answers that go straight to the output: an error, and the counting of any. */
void conn_put_error(struct conn *conn, int32_t correlation_id, enum codec_error error);
void conn_count(struct worker *worker, enum board_api api, enum codec_error error);

/* No memory for what this connection needs: it is closed in this turn. */
void conn_abort(struct conn *conn);

#endif
