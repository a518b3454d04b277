/* All connections of a worker: their events, the turns of the loop, sending, stopping; see connections.h. */
#include "worker/connections.h"

#include <linux/sockios.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "worker/conn_state.h"
#include "worker/fetch.h"
#include "worker/intake.h"
#include "worker/move.h"

enum {
	SPILL_FIRST_BYTES = 4096,	/* a connection in motion is read in small pieces first: most of it may move on */
	/* What a connection sends at once; whoever has more waits for its turn, which is one connection's in each turn of the
	 * loop. So small answers stand behind little, however many clients replay a log. */
	FLUSH_BYTES = 64 * 1024,
	FLUSH_BULK_BYTES = 256 * 1024,
	ROUNDS = 4,			/* of work in one turn */
	REPORT_S = 10,
	NAMED_MAX = 20,			/* connections that are cut, in the log */
};

/* ---- Timers ---- */

static void
time_out(struct conn *conn, const char *what)
{
	board_add(&conn_worker(conn)->counters->connections_timed_out, 1);
	conn_blame(conn, what);
	conn_abort(conn);
}

/* Bytes that the peer's kernel has not taken over yet. */
static int
unacknowledged_bytes(const struct conn *conn)
{
	int bytes = 0;

	return ioctl(conn->fd, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

/*
 * Has nothing been read for request_timeout? The socket takes more only when a good part of its buffer is free, so a
 * slow reader is told from one that does not read by what its kernel has taken meanwhile.
 */
static bool
is_stalled(struct conn *conn, int64_t now_ns)
{
	int bytes;

	if (conn->stalled_ns == 0 || now_ns < conn->stalled_ns + conn_worker(conn)->request_timeout_ns)
		return false;
	bytes = unacknowledged_bytes(conn);
	if (bytes >= conn->stalled_bytes)
		return true;
	conn->stalled_ns = now_ns;
	conn->stalled_bytes = bytes;
	return false;
}

/*
 * Has nothing come or gone for idle_timeout? What has arrived since this turn began to wait is about to be read. An idle
 * connection's timer is not moved by its requests: it fires once in idle_timeout and is set anew.
 */
static bool
is_idle_too_long(const struct conn *conn, int64_t now_ns)
{
	int64_t timeout_ns = conn_worker(conn)->idle_timeout_ns;
	char byte;

	if (timeout_ns == 0 || !conn_is_idle(conn) || now_ns < conn->active_ns + timeout_ns)
		return false;
	return recv(conn->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) <= 0;
}

static void
end_idle(struct conn *conn)
{
	board_add(&conn_worker(conn)->counters->connections_idle, 1);
	conn_blame(conn, "nothing was asked for idle_timeout");
	conn_begin_finish(conn);
}

/* libevent counts from the start of its turn and fires early after a long one: every deadline is looked at again. */
static void
on_timer(evutil_socket_t fd, short what, void *argument)
{
	struct conn *conn = argument;
	int64_t timeout_ns = conn_worker(conn)->request_timeout_ns;
	int64_t now_ns = clock_now_ns();

	(void)fd;
	(void)what;
	conn->timer_ns = 0;
	conn_worker(conn)->now_ns = now_ns;
	if (conn->retry_ns != 0 && now_ns >= conn->retry_ns) {
		conn->retry_ns = 0;
		conn_schedule_flush(conn);
	}
	if (conn_is_held(conn) && now_ns >= conn->hold.deadline_ns)
		fetch_wake(&conn->hold, BOARD_WAKEUP_TIMEOUT);
	if (conn->frame_started_ns != 0 && now_ns >= conn->frame_started_ns + timeout_ns)
		time_out(conn, "its frame was not complete within request_timeout");
	else if (is_stalled(conn, now_ns))
		time_out(conn, "nothing of its answer was read for request_timeout");
	else if (is_idle_too_long(conn, now_ns))
		end_idle(conn);
	else if (conn->phase == DISCARDING && now_ns >= conn->discard_until_ns)
		conn_abort(conn);
	else
		conn_arm_timer(conn);
}

/* ---- Sending ---- */

/* Everything owed has been sent. */
static void
begin_discard(struct conn *conn)
{
	if (conn->ended || conn->gone) {
		conn_abort(conn);
		return;
	}
	shutdown(conn->fd, SHUT_WR);
	conn->phase = DISCARDING;
	conn->discard_until_ns = clock_now_ns() + conn_worker(conn)->request_timeout_ns;
	conn->readable = true;
	conn_arm_timer(conn);
	conn_schedule(conn);
}

static void
block_output(struct conn *conn)
{
	if (conn->stalled_ns == 0) {
		conn->stalled_ns = clock_now_ns();
		conn->stalled_bytes = unacknowledged_bytes(conn);
	}
	event_add(&conn->writable, NULL);
	conn_arm_timer(conn);
}

static void
drained(struct conn *conn)
{
	conn->stalled_ns = 0;
	conn_arm_timer(conn);
	if (conn->phase == FINISHING && !conn_owes(conn))
		begin_discard(conn);
	else if (conn->phase == SERVING && conn->blocked == BLOCKED_MOVE && conn->retry_ns == 0 && !conn_owes(conn) &&
	    !conn_worker(conn)->stopping)
		move_out(conn);
	else if (conn->blocked == BLOCKED_OUTPUT)
		conn_schedule(conn);
}

/* A file ended, or could not be read, inside what had been announced; the storage has said which. */
static void
tell_cut(struct conn *conn)
{
	struct connections *set = conn->set;
	char more[LOG_MORE_BYTES];

	board_add(&set->worker->counters->storage_errors[BOARD_READ], 1);
	if (log_limit_pass(&set->cut_limit, (int64_t)REPORT_S * CLOCK_NS_PER_S, more))
		log_error("a connection was closed in the middle of an answer: what had been announced could not be read from "
		    "the segment file%s", more);
}

/* ---- Reading what is to be sent and not in memory ---- */

static void
run_read(struct job *job)
{
	slice_read_run(&((struct conn_read *)job)->read);
}

static void
read_done(struct job *job)
{
	struct conn_read *reading = (struct conn_read *)job;
	struct conn *conn = reading->conn;

	if (conn != NULL) {
		conn->reading = NULL;
		output_read_done(&conn->output, &reading->read);
		if (!output_empty(&conn->output))
			conn_schedule_flush(conn);
	}
	slice_read_end(&reading->read);
	free(reading);
}

/* One read at a time for a connection, so that all that replay a log share the threads; see output_next_read. */
static void
read_ahead(struct conn *conn, bool cold)
{
	struct conn_read *reading;
	struct slice_read read;

	if (conn_worker(conn)->overdue) {
		if (!cold)
			return;
		conn_blame(conn, "drain_timeout is over, and the rest of its answer is not in memory");
		conn_abort(conn);
		return;
	}
	if (conn->reading != NULL || !output_next_read(&conn->output, cold, &read))
		return;
	reading = malloc(sizeof(*reading));
	if (reading == NULL) {
		slice_read_end(&read);
		conn_abort(conn);
		return;
	}
	*reading = (struct conn_read){ .job = { run_read, read_done, NULL }, .conn = conn, .read = read };
	conn->reading = reading;
	jobs_submit_read(conn_worker(conn)->jobs, &reading->job);
}

static void
schedule_bulk(struct conn *conn)
{
	conn->is_bulk = true;
	TAILQ_INSERT_TAIL(&conn->set->bulk, conn, bulk);
}

static void
flush(struct conn *conn, size_t budget)
{
	uint64_t sent = conn->output.sent;
	int64_t slice_bytes_sent = conn->output.slice_bytes_sent;
	enum output_state state;
	bool progressed;

	read_ahead(conn, false);
	state = output_flush(&conn->output, conn->fd, budget);
	progressed = sent != conn->output.sent || slice_bytes_sent != conn->output.slice_bytes_sent;
	board_add(&conn_worker(conn)->counters->fetched_bytes, conn->output.slice_bytes_sent - slice_bytes_sent);
	if (progressed) {
		conn->stalled_ns = 0;
		conn->active_ns = conn_worker(conn)->now_ns;
	}
	switch (state) {
	case OUTPUT_DRAINED:
		drained(conn);
		break;
	case OUTPUT_BLOCKED:
		block_output(conn);
		break;
	case OUTPUT_MORE:
		schedule_bulk(conn);
		break;
	case OUTPUT_GONE:
		/* What it has sent is still executed; reading on tells when that is all. */
		conn->gone = true;
		conn->readable = !conn->ended;
		output_clear(&conn->output);
		drained(conn);
		conn_schedule(conn);
		break;
	case OUTPUT_CUT:
		tell_cut(conn);
		conn->dead = true;
		break;
	case OUTPUT_COLD:
		/* It is not the peer that lets us wait. */
		conn->stalled_ns = 0;
		read_ahead(conn, true);
		break;
	}
	if (conn->blocked == BLOCKED_OUTPUT && progressed)
		conn_schedule(conn);
	conn_account(conn);
}

/* ---- Turns ---- */

static void
work(struct conn *conn)
{
	conn_settle(conn);
	if (conn_is_held(conn) && conn->edge)
		intake_look_for_end(conn);
	if (conn_is_held(conn) && conn->ending)
		fetch_wake(&conn->hold, BOARD_WAKEUP_END);
	if (conn->phase == SERVING && !conn_worker(conn)->stopping && !conn_worker(conn)->draining && !conn->dead)
		intake_serve(conn);
	else if (conn->phase == DISCARDING)
		intake_discard(conn);
	if (conn->gone)
		output_clear(&conn->output);
	if (!output_empty(&conn->output) || conn->phase == FINISHING || conn->blocked == BLOCKED_OUTPUT ||
	    conn->blocked == BLOCKED_MOVE)
		conn_schedule_flush(conn);
	conn_account(conn);
}

/*
 * The connection whose half frame began longest ago; failing that, the one that has not read its answers for longest;
 * failing that, the one that holds most.
 */
static struct conn *
choose_victim(struct connections *set)
{
	struct conn *conn, *victim = NULL;
	int64_t oldest_ns = INT64_MAX;

	TAILQ_FOREACH(conn, &set->all, all)
		if (!conn->dead && conn->frame_started_ns != 0 && conn->frame_started_ns < oldest_ns) {
			oldest_ns = conn->frame_started_ns;
			victim = conn;
		}
	if (victim != NULL)
		return victim;
	TAILQ_FOREACH(conn, &set->all, all)
		if (!conn->dead && conn->stalled_ns != 0 && conn->stalled_ns < oldest_ns) {
			oldest_ns = conn->stalled_ns;
			victim = conn;
		}
	if (victim != NULL)
		return victim;
	TAILQ_FOREACH(conn, &set->all, all)
		if (!conn->dead && (victim == NULL || conn->buffered_bytes > victim->buffered_bytes))
			victim = conn;
	return victim;
}

static void
keep_within_buffer_bytes(struct connections *set)
{
	struct worker *worker = set->worker;

	while (worker->buffered_bytes > worker->buffer_bytes) {
		struct conn *victim = choose_victim(set);

		if (victim == NULL)
			break;
		board_add(&worker->counters->connections_overflowed, 1);
		conn_blame(victim, "buffer_bytes is reached, and its half frame or unread answer is the oldest");
		conn_destroy(victim);
	}
	board_set(&worker->counters->buffered_bytes, worker->buffered_bytes);
}

static void
work_on_ready(struct connections *set)
{
	struct conn_list ready = TAILQ_HEAD_INITIALIZER(ready);
	struct conn *conn;

	TAILQ_CONCAT(&ready, &set->ready, ready);
	while ((conn = TAILQ_FIRST(&ready)) != NULL) {
		TAILQ_REMOVE(&ready, conn, ready);
		conn->is_ready = false;
		if (!conn->dead)
			work(conn);
		if (conn->dead)
			conn_destroy(conn);
	}
}

static void
flush_unsent(struct connections *set)
{
	struct conn_list unsent = TAILQ_HEAD_INITIALIZER(unsent);
	struct conn *conn;

	TAILQ_CONCAT(&unsent, &set->unsent, unsent);
	while ((conn = TAILQ_FIRST(&unsent)) != NULL) {
		TAILQ_REMOVE(&unsent, conn, unsent);
		conn->is_unsent = false;
		if (!conn->dead)
			flush(conn, FLUSH_BYTES);
		if (conn->dead)
			conn_destroy(conn);
	}
}

static void
flush_next_bulk(struct connections *set)
{
	struct conn *conn = TAILQ_FIRST(&set->bulk);

	if (conn == NULL)
		return;
	TAILQ_REMOVE(&set->bulk, conn, bulk);
	conn->is_bulk = false;
	if (!conn->dead)
		flush(conn, FLUSH_BULK_BYTES);
	if (conn->dead)
		conn_destroy(conn);
}

bool
connections_turn(struct connections *set, void (*write_appends)(struct worker *worker))
{
	struct conn *conn;

	set->turn++;
	while ((conn = TAILQ_FIRST(&set->again)) != NULL) {
		TAILQ_REMOVE(&set->again, conn, again);
		conn->is_again = false;
		conn_schedule(conn);
	}
	for (int round = 0; round < ROUNDS; round++) {
		set->worker->now_ns = clock_now_ns();
		work_on_ready(set);
		set->worker->now_ns = clock_now_ns();
		write_appends(set->worker);
		if (TAILQ_EMPTY(&set->ready))
			break;
	}
	flush_unsent(set);
	flush_next_bulk(set);
	keep_within_buffer_bytes(set);
	return !TAILQ_EMPTY(&set->ready) || !TAILQ_EMPTY(&set->again) || !TAILQ_EMPTY(&set->unsent) ||
	    !TAILQ_EMPTY(&set->bulk);
}

/* ---- Events ---- */

static void
on_io(evutil_socket_t fd, short what, void *argument)
{
	struct conn *conn = argument;

	(void)fd;
	if ((what & EV_CLOSED) != 0)
		conn->ending = true;
	/* Adding interest in writing reports the end again; it has been read. */
	conn->readable = !conn->ended;
	conn->edge = true;
	conn_schedule(conn);
}

static void
on_writable(evutil_socket_t fd, short what, void *argument)
{
	(void)fd;
	(void)what;
	conn_schedule_flush(argument);
}

/* ---- The set ---- */

struct connections *
connections_new(struct worker *worker, struct event_base *base, struct channel *channel)
{
	struct connections *set = calloc(1, sizeof(*set));

	if (set == NULL)
		return NULL;
	set->worker = worker;
	set->base = base;
	set->channel = channel;
	TAILQ_INIT(&set->all);
	TAILQ_INIT(&set->ready);
	TAILQ_INIT(&set->again);
	TAILQ_INIT(&set->unsent);
	TAILQ_INIT(&set->later);
	TAILQ_INIT(&set->bulk);
	return set;
}

void
connections_free(struct connections *set)
{
	while (!TAILQ_EMPTY(&set->all))
		conn_destroy(TAILQ_FIRST(&set->all));
	while (set->free_replies != NULL) {
		struct reply *reply = set->free_replies;

		set->free_replies = reply->next;
		free(reply);
	}
	free(set);
}

/* A held request travels in front of what stands behind it. Without memory the connection ends here. */
static void
take_out_of_hold(struct conn *conn)
{
	uint8_t request[CODEC_FETCH_REQUEST_MAX_BYTES];
	uint8_t *end = fetch_write_again(&conn->hold, request, &conn->held_until_ns);

	if (intake_put_back(conn, request, (size_t)(end - request)) != 0)
		conn_abort(conn);
}

/* It goes to whoever takes this worker's place, as soon as what is owed on it has been sent; unless it was to go elsewhere. */
static void
send_back(struct conn *conn)
{
	if (conn_is_held(conn))
		take_out_of_hold(conn);
	/* While it waits for its answers to leave, nothing more of a half frame is read. */
	if (conn_owes(conn) || !output_empty(&conn->output))
		conn->frame_started_ns = 0;
	if (conn->blocked != BLOCKED_MOVE)
		conn->move_to = conn_worker(conn)->number;
	conn_take_from_later(conn);
	conn->blocked = BLOCKED_MOVE;
	conn_settle(conn);
	conn_schedule_flush(conn);
}

static void
refuse_connection(struct connections *set, int socket_fd, int spill_fd)
{
	close(socket_fd);
	if (spill_fd >= 0)
		close(spill_fd);
	board_add(&set->worker->counters->connections_closed, 1);
}

void
connections_take(struct connections *set, const struct message_connection *message, const uint8_t *inline_bytes, int socket_fd,
    int spill_fd)
{
	struct conn *conn = set->worker->stopping ? NULL : calloc(1, sizeof(*conn));

	if (conn == NULL) {
		refuse_connection(set, socket_fd, spill_fd);
		return;
	}
	conn->set = set;
	conn->fd = socket_fd;
	conn->spill_fd = spill_fd;
	conn->spill_position = message->spilled_position;
	conn->spill_end = message->spilled_end;
	conn->spill_chunk_bytes = SPILL_FIRST_BYTES;
	conn->frame_started_ns = message->frame_started_ns;
	conn->held_until_ns = message->held_until_ns;
	conn->active_ns = message->active_ns != 0 ? message->active_ns : clock_now_ns();
	event_assign(&conn->io, set->base, socket_fd, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_io, conn);
	event_assign(&conn->writable, set->base, socket_fd, EV_WRITE | EV_ET, on_writable, conn);
	evtimer_assign(&conn->timer, set->base, on_timer, conn);
	TAILQ_INSERT_TAIL(&set->all, conn, all);
	if (message->inline_bytes > 0)
		intake_keep(conn, inline_bytes, (size_t)message->inline_bytes);
	/* What has arrived before the descriptor was watched brings an edge of its own when it is added. */
	if (event_add(&conn->io, NULL) != 0)
		conn->dead = true;
	else if (set->returning)
		send_back(conn);
	conn_schedule(conn);
}

void
connections_return(struct connections *set)
{
	struct conn *conn;

	set->returning = true;
	TAILQ_FOREACH(conn, &set->all, all)
		if (conn->phase == SERVING && !conn->dead)
			send_back(conn);
}

void
connections_stop(struct connections *set)
{
	struct conn *conn;

	TAILQ_FOREACH(conn, &set->all, all) {
		if (conn_is_held(conn))
			fetch_wake(&conn->hold, BOARD_WAKEUP_STOP);
		if (conn->phase == SERVING)
			conn_begin_finish(conn);
	}
}

/* What a TCP peer's kernel has not acknowledged yet could still be destroyed by our end. */
static bool
unacknowledged(const struct conn *conn)
{
	int domain = 0;
	socklen_t size = sizeof(domain);

	if (conn->gone || getsockopt(conn->fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain == AF_UNIX)
		return false;
	return unacknowledged_bytes(conn) > 0;
}

static bool
unfinished(const struct conn *conn)
{
	if (conn->dead)
		return false;
	/* One that returns to the supervisor takes what is not acknowledged along, in its socket. */
	if (conn->set->returning && conn->phase == SERVING)
		return true;
	return conn_owes(conn) || !output_empty(&conn->output) || unacknowledged(conn);
}

size_t
connections_unfinished(struct connections *set)
{
	struct conn *conn;
	size_t count = 0;

	TAILQ_FOREACH(conn, &set->all, all)
		if (unfinished(conn))
			count++;
	return count;
}

/* "127.0.0.1:4711", or what else there is to say. */
static void
name_peer(const struct conn *conn, char *text, size_t size)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);
	char host[64], port[16];

	if (getpeername(conn->fd, (struct sockaddr *)&address, &length) != 0)
		snprintf(text, size, "unknown");
	else if (address.ss_family == AF_UNIX)
		snprintf(text, size, "unix");
	else if (getnameinfo((struct sockaddr *)&address, length, host, sizeof(host), port, sizeof(port),
	    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(text, size, address.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
	else
		snprintf(text, size, "unknown");
}

void
connections_name_unfinished(struct connections *set)
{
	size_t count = 0, left = connections_unfinished(set);
	struct conn *conn;
	char peer[96];

	if (left > 0)
		log_warning("drain_timeout is over: %zu connection%s cut that had not read their answers", left, left == 1 ? " is" : "s are");
	TAILQ_FOREACH(conn, &set->all, all) {
		if (!unfinished(conn) || count == NAMED_MAX)
			continue;
		name_peer(conn, peer, sizeof(peer));
		log_warning("cut: %s, %zu bytes of its answers in memory and %zu parts of files unsent", peer,
		    output_bytes(&conn->output), (size_t)output_slices(&conn->output));
		count++;
	}
}
