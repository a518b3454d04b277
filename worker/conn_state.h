/*
 * The inside of a connection, shared by the files that are its parts and by nobody else: conn.c (its state, its answers,
 * its end), intake.c (bytes to executed frames), move.c (to another worker) and connections.c (events, turns, sending).
 */
#ifndef WORKER_CONN_STATE_H
#define WORKER_CONN_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "common/log.h"
#include "worker/conn.h"

enum { CONN_AREA_BYTES = 512 * 1024 };	/* one read of one connection */

enum { FOREIGN_HTTP, FOREIGN_TLS, FOREIGN_PROXY, FOREIGN_KINDS };

enum phase {
	SERVING,
	FINISHING,	/* executes nothing more; sends what it owes, then shuts down writing */
	DISCARDING,	/* reads and drops until the peer closes, so that no reset destroys answers on their way */
};

enum blocked {
	NOT_BLOCKED,
	BLOCKED_ANSWERS,	/* until nothing is owed */
	BLOCKED_OUTPUT,		/* until the output has room */
	BLOCKED_MOVE,		/* until nothing is owed and all is sent; then it goes to the group move_to */
	BLOCKED_LATER,		/* until conn_resume_all */
};

/* A read on behalf of a connection, which may be gone when it has run. */
struct conn_read {
	struct job job;
	struct conn *conn;	/* NULL: it has gone */
	struct slice_read read;
};

struct conn {
	struct connections *set;
	TAILQ_ENTRY(conn) all;
	TAILQ_ENTRY(conn) ready;
	TAILQ_ENTRY(conn) again;
	TAILQ_ENTRY(conn) unsent;
	TAILQ_ENTRY(conn) later;
	TAILQ_ENTRY(conn) bulk;
	bool is_ready, is_again, is_unsent, is_later, is_bulk;

	int fd;
	struct event io;		/* EV_READ | EV_CLOSED, edge-triggered */
	struct event writable;		/* EV_WRITE, while the output is blocked */
	struct event timer;
	int64_t timer_ns;		/* when it fires at the latest; 0 = not armed */

	enum phase phase;
	enum blocked blocked;
	int32_t move_to;		/* with BLOCKED_MOVE: the group that the next request belongs to */
	bool readable;
	bool ended;			/* everything the client sent has been read */
	bool ending;			/* it will send no more: ended, or seen coming */
	bool gone;			/* it takes no more answers */
	bool dead;			/* closed in this turn */
	bool resumed;			/* others have been put off, too: after one frame it is their turn */
	bool deferred;			/* its next frame has been put behind the appends of this round */
	bool edge;			/* something has happened to the socket since look_for_end */
	uint64_t read_turn;		/* in which the socket was read last: once a turn */
	uint64_t frames;		/* executed here */

	uint8_t *kept;			/* received and not executed: from kept_head to kept_tail */
	size_t kept_head, kept_tail, kept_capacity;
	int spill_fd;			/* what came with the connection and is read before the socket; -1 = none */
	int64_t spill_position, spill_end;
	size_t spill_chunk_bytes;
	int64_t frame_started_ns;	/* 0 = no half frame that the client could complete */
	int64_t active_ns;		/* when bytes last came or left: of an idle one idle_timeout counts from there */

	struct output output;
	struct conn_read *reading;	/* what a thread reads from a file to be sent; NULL = nothing */
	int64_t stalled_ns;		/* since then nothing of the output has gone; 0 = not stalled */
	int stalled_bytes;		/* that the peer's kernel had not taken then */
	int64_t discard_until_ns;
	int64_t retry_ns;		/* when to try again to move; 0 = now or never */
	struct reply *first_reply, *last_reply;
	int32_t reply_count;
	struct hold hold;
	int64_t held_until_ns;		/* what is kept begins with a FETCH that was held elsewhere until then; 0 = it does not */
	int64_t buffered_bytes;		/* as counted in the worker's */
};

TAILQ_HEAD(conn_list, conn);

struct connections {
	struct worker *worker;
	struct event_base *base;
	struct channel *channel;
	uint64_t turn;
	struct conn_list all;
	struct conn_list ready;		/* to be worked on in this turn */
	struct conn_list again;		/* in the next one: their sockets have more */
	struct conn_list unsent;	/* have something to send */
	struct conn_list bulk;		/* have much to send: one of them a turn */
	struct conn_list later;		/* BLOCKED_LATER, the one that has waited longest first */
	struct reply *free_replies;
	size_t free_reply_count;
	struct log_limit fault_limit;	/* what clients do wrong, at debug */
	struct log_limit cut_limit;
	struct log_limit foreign_limits[FOREIGN_KINDS];
	bool returning;			/* every connection goes back to the supervisor, at once or when its answers have left */
	uint8_t area[CONN_AREA_BYTES];
};

static inline struct worker *
conn_worker(const struct conn *conn)
{
	return conn->set->worker;
}

static inline bool
conn_is_held(const struct conn *conn)
{
	return conn->hold.lane != NULL;
}

static inline size_t
conn_kept_bytes(const struct conn *conn)
{
	return conn->kept_tail - conn->kept_head;
}

/* In the next turn: its socket has more. */
void conn_schedule_again(struct conn *conn);

/* Its output is to be sent at the end of this turn. */
void conn_schedule_flush(struct conn *conn);

/* Its next frame is offered again by conn_resume_all. */
void conn_put_off(struct conn *conn);
/* Not any more. */
void conn_take_from_later(struct conn *conn);

/* Gives back the buffer of what was received; the memfd. */
void conn_drop_kept(struct conn *conn);
void conn_close_spill(struct conn *conn);

/* Counts what it holds in memory into the worker's buffered_bytes. */
void conn_account(struct conn *conn);

/* Sees to it that the timer fires when the next of its deadlines is over, or earlier. */
void conn_arm_timer(struct conn *conn);

/* Does it wait for nothing but the client's next request? */
bool conn_is_idle(const struct conn *conn);

/* Moves the answers that are due into the output. */
void conn_settle(struct conn *conn);

/* It executes nothing more; when all that is owed has been sent it is shut down. */
void conn_begin_finish(struct conn *conn);

/* What the client did wrong, or what was done about it: a debug line, not too often. */
void conn_blame(struct conn *conn, const char *what);

/* Closes and frees it. Only where nobody up the stack holds it. */
void conn_destroy(struct conn *conn);

#endif
