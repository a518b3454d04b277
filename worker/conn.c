/* A connection's state, its answers in the order of their requests, its deadlines and its end; see conn.h. */
#include "worker/conn.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/clock.h"
#include "worker/conn_state.h"

enum { FREE_REPLIES_MAX = 16384 };	/* kept for the next requests */

void
conn_schedule(struct conn *conn)
{
	if (conn->is_ready)
		return;
	conn->is_ready = true;
	TAILQ_INSERT_TAIL(&conn->set->ready, conn, ready);
}

void
conn_schedule_again(struct conn *conn)
{
	if (conn->is_again)
		return;
	conn->is_again = true;
	TAILQ_INSERT_TAIL(&conn->set->again, conn, again);
}

void
conn_schedule_flush(struct conn *conn)
{
	if (conn->is_unsent || conn->is_bulk)
		return;
	conn->is_unsent = true;
	TAILQ_INSERT_TAIL(&conn->set->unsent, conn, unsent);
}

void
conn_put_off(struct conn *conn)
{
	conn->blocked = BLOCKED_LATER;
	conn->is_later = true;
	TAILQ_INSERT_TAIL(&conn->set->later, conn, later);
}

void
conn_take_from_later(struct conn *conn)
{
	if (!conn->is_later)
		return;
	conn->is_later = false;
	TAILQ_REMOVE(&conn->set->later, conn, later);
}

void
conn_abort(struct conn *conn)
{
	conn->dead = true;
	conn_schedule(conn);
}

struct output *
conn_output(struct conn *conn)
{
	return &conn->output;
}

bool
conn_owes(const struct conn *conn)
{
	return conn->first_reply != NULL;
}

bool
conn_ending(const struct conn *conn)
{
	return conn->ending;
}

bool
conn_deferred(const struct conn *conn)
{
	return conn->deferred;
}

int64_t
conn_held_until_ns(const struct conn *conn)
{
	return conn->held_until_ns;
}

struct hold *
conn_hold(struct conn *conn)
{
	return &conn->hold;
}

void
conn_drop_kept(struct conn *conn)
{
	free(conn->kept);
	conn->kept = NULL;
	conn->kept_head = conn->kept_tail = conn->kept_capacity = 0;
}

void
conn_close_spill(struct conn *conn)
{
	if (conn->spill_fd >= 0)
		close(conn->spill_fd);
	conn->spill_fd = -1;
	conn->spill_position = conn->spill_end = 0;
}

void
conn_account(struct conn *conn)
{
	int64_t bytes = (int64_t)(conn->kept_tail + conn->output.capacity) +
	    (conn->spill_end - conn->spill_position) + conn->reply_count * (int64_t)sizeof(struct reply);

	conn_worker(conn)->buffered_bytes += bytes - conn->buffered_bytes;
	conn->buffered_bytes = bytes;
}

/* ---- Deadlines ---- */

static int64_t
earlier(int64_t a_ns, int64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

/* Nothing is owed, nothing half read, nothing held, and nothing on its way in or out: the client is to speak. */
bool
conn_is_idle(const struct conn *conn)
{
	return conn->phase == SERVING && conn->blocked == NOT_BLOCKED && !conn_is_held(conn) && !conn_owes(conn) &&
	    output_empty(&conn->output) && conn->reading == NULL && conn_kept_bytes(conn) == 0 &&
	    conn->spill_position == conn->spill_end && !conn->ended && !conn->dead;
}

static int64_t
next_deadline_ns(const struct conn *conn)
{
	int64_t timeout_ns = conn_worker(conn)->request_timeout_ns;
	int64_t idle_timeout_ns = conn_worker(conn)->idle_timeout_ns;
	int64_t deadline_ns = INT64_MAX;

	if (idle_timeout_ns != 0 && conn_is_idle(conn))
		deadline_ns = conn->active_ns + idle_timeout_ns;
	if (conn_is_held(conn))
		deadline_ns = earlier(deadline_ns, conn->hold.deadline_ns);
	if (conn->frame_started_ns != 0)
		deadline_ns = earlier(deadline_ns, conn->frame_started_ns + timeout_ns);
	if (conn->stalled_ns != 0)
		deadline_ns = earlier(deadline_ns, conn->stalled_ns + timeout_ns);
	if (conn->retry_ns != 0)
		deadline_ns = earlier(deadline_ns, conn->retry_ns);
	if (conn->phase == DISCARDING)
		deadline_ns = earlier(deadline_ns, conn->discard_until_ns);
	return deadline_ns;
}

/*
 * A timer that fires too early is armed again, so it is moved only when a deadline comes nearer. Without memory for one the
 * connection ends: nothing would ever end it, or answer what it waits for.
 */
void
conn_arm_timer(struct conn *conn)
{
	int64_t deadline_ns = next_deadline_ns(conn);
	struct timeval wait;

	if (deadline_ns == INT64_MAX || (conn->timer_ns != 0 && conn->timer_ns <= deadline_ns))
		return;
	wait = clock_until(deadline_ns);
	if (event_add(&conn->timer, &wait) == 0)
		conn->timer_ns = deadline_ns;
	else
		conn_abort(conn);
}

void
conn_held(struct conn *conn)
{
	conn_arm_timer(conn);
}

/* ---- Replies, in the order of their requests ---- */

static struct reply *
take_free_reply(struct connections *set)
{
	struct reply *reply = set->free_replies;

	if (reply == NULL)
		return malloc(sizeof(*reply));
	set->free_replies = reply->next;
	set->free_reply_count--;
	return reply;
}

static void
free_reply(struct connections *set, struct reply *reply)
{
	if (set->free_reply_count >= FREE_REPLIES_MAX) {
		free(reply);
		return;
	}
	reply->next = set->free_replies;
	set->free_replies = reply;
	set->free_reply_count++;
}

struct reply *
conn_add_reply(struct conn *conn, const struct codec_request *request, enum board_api api)
{
	struct reply *reply = take_free_reply(conn->set);

	if (reply == NULL)
		return NULL;
	*reply = (struct reply){
		.conn = conn,
		.correlation_id = request->correlation_id,
		.ack = request->ack,
		.api = api,
		.silent = request->silent,
		.record_count = request->record_count,
		.started_ns = conn_worker(conn)->now_ns,
	};
	if (conn->last_reply == NULL)
		conn->first_reply = reply;
	else
		conn->last_reply->next_in_conn = reply;
	conn->last_reply = reply;
	conn->reply_count++;
	return reply;
}

void
conn_count(struct worker *worker, enum board_api api, enum codec_error error)
{
	board_add(&worker->counters->requests[api][error], 1);
	if (api != BOARD_PRODUCE)
		board_observe(&worker->counters->request_duration[api], clock_now_ns() - worker->now_ns);
}

void
conn_answer(struct worker *worker, struct reply *reply, enum codec_error error)
{
	conn_count(worker, reply->api, error);
	if (reply->api == BOARD_PRODUCE)
		board_observe(&worker->counters->request_duration[BOARD_PRODUCE], worker->now_ns - reply->started_ns);
	reply->error = error;
	reply->answered = true;
	if (reply->conn == NULL)
		free_reply(worker->connections, reply);
	else if (reply->conn->first_reply == reply)
		conn_schedule(reply->conn);
}

void
conn_put_error(struct conn *conn, int32_t correlation_id, enum codec_error error)
{
	uint8_t *to = output_reserve(&conn->output, CODEC_ERROR_ANSWER_BYTES);

	if (to == NULL) {
		conn_abort(conn);
		return;
	}
	codec_put_error(to, correlation_id, error);
	output_put(&conn->output, CODEC_ERROR_ANSWER_BYTES);
}

static void
put_reply(struct conn *conn, const struct reply *reply)
{
	uint8_t *to;

	if (reply->silent || conn->gone)
		return;
	if (reply->error != CODEC_NONE) {
		conn_put_error(conn, reply->correlation_id, reply->error);
		return;
	}
	to = output_reserve(&conn->output, CODEC_PRODUCE_ANSWER_BYTES);
	if (to == NULL) {
		conn_abort(conn);
		return;
	}
	codec_put_produce_answer(to, reply->correlation_id, reply->end_offset - reply->record_count,
	    reply->high_watermark);
	output_put(&conn->output, CODEC_PRODUCE_ANSWER_BYTES);
}

static struct reply *
pop_reply(struct conn *conn)
{
	struct reply *reply = conn->first_reply;

	conn->first_reply = reply->next_in_conn;
	if (conn->first_reply == NULL)
		conn->last_reply = NULL;
	conn->reply_count--;
	return reply;
}

void
conn_settle(struct conn *conn)
{
	while (conn->first_reply != NULL && conn->first_reply->answered) {
		struct reply *reply = pop_reply(conn);

		put_reply(conn, reply);
		free_reply(conn->set, reply);
	}
}

/* ---- The end ---- */

void
conn_blame(struct conn *conn, const char *what)
{
	char more[LOG_MORE_BYTES];

	if (log_enabled(LOG_DEBUG) && log_limit_pass(&conn->set->fault_limit, CLOCK_NS_PER_S, more))
		log_debug("connection closed: %s%s", what, more);
}

void
conn_destroy(struct conn *conn)
{
	struct connections *set = conn->set;

	if (conn_is_held(conn)) {
		hold_remove(&conn->hold);
		board_add(&set->worker->counters->fetch_held, -1);
	}
	while (conn->first_reply != NULL) {
		struct reply *reply = pop_reply(conn);

		reply->conn = NULL;
		if (!reply->queued)
			free_reply(set, reply);
	}
	event_del(&conn->io);
	event_del(&conn->writable);
	event_del(&conn->timer);
	if (conn->fd >= 0) {
		close(conn->fd);
		board_add(&set->worker->counters->connections_closed, 1);
	}
	if (conn->reading != NULL)
		conn->reading->conn = NULL;
	output_clear(&conn->output);
	conn_drop_kept(conn);
	conn_close_spill(conn);
	conn_account(conn);
	TAILQ_REMOVE(&set->all, conn, all);
	if (conn->is_ready)
		TAILQ_REMOVE(&set->ready, conn, ready);
	if (conn->is_again)
		TAILQ_REMOVE(&set->again, conn, again);
	if (conn->is_unsent)
		TAILQ_REMOVE(&set->unsent, conn, unsent);
	conn_take_from_later(conn);
	if (conn->is_bulk)
		TAILQ_REMOVE(&set->bulk, conn, bulk);
	free(conn);
}

/* Executes nothing more. Whatever is owed leaves first. */
void
conn_begin_finish(struct conn *conn)
{
	conn->phase = FINISHING;
	conn->blocked = NOT_BLOCKED;
	conn_take_from_later(conn);
	conn->frame_started_ns = 0;
	conn_drop_kept(conn);
	conn_close_spill(conn);
	conn_schedule_flush(conn);
}

/* ---- All of them ---- */

void
conn_resume_all(struct connections *set)
{
	struct conn *conn;

	while ((conn = TAILQ_FIRST(&set->later)) != NULL) {
		conn_take_from_later(conn);
		conn->blocked = NOT_BLOCKED;
		conn->resumed = true;
		conn_schedule(conn);
	}
}
