/*
 * Connections: their bytes, their order, their deadlines, their moves; see conn.h.
 *
 * Reading is edge-triggered: an edge says only that there may be something, `readable` remembers it, and a connection
 * that must not read (a hold, back-pressure) costs nothing while its client keeps sending. An idle connection has no
 * buffer: what arrives is read into one area of the worker and executed from there; only what is left of a frame is
 * copied into the connection, and its buffer grows with what has arrived, never with what a length word announces.
 */
#include "worker/conn.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "common/bytes.h"
#include "common/channel.h"
#include "common/clock.h"
#include "common/log.h"
#include "worker/dispatch.h"
#include "worker/fetch.h"

enum {
	READ_BYTES = 512 * 1024,	/* the worker's area: one read of one connection */
	SPILL_FIRST_BYTES = 4096,	/* a connection in motion is read in small pieces first: most of it may move on */
	KEPT_FIRST_BYTES = 512,
	FLUSH_BUDGET_BYTES = 1024 * 1024,	/* of one connection and turn */
	OUTPUT_MAX_BYTES = 256 * 1024,	/* with more unsent in memory nothing is executed */
	OUTPUT_MAX_SLICES = 16,
	REPLIES_MAX = 16384,		/* owed on one connection; then it waits until they have been given */
	ROUNDS = 4,			/* of work in one turn */
	FOREIGN_REPORT_S = 60,
};

enum { FOREIGN_HTTP, FOREIGN_TLS, FOREIGN_PROXY, FOREIGN_KINDS };

enum phase {
	SERVING,
	FINISHING,	/* executes nothing more; sends what it owes, then shuts down writing */
	DISCARDING,	/* reads and drops until the peer closes, so that no reset destroys answers on their way */
};

enum blocked {
	NOT_BLOCKED,
	BLOCKED_ANSWERS,	/* until nothing is owed */
	BLOCKED_OUTPUT,		/* until the output has room, or with move_to is empty */
	BLOCKED_LATER,		/* until conn_resume_all */
};

struct conn {
	struct conn_set *set;
	TAILQ_ENTRY(conn) all;
	TAILQ_ENTRY(conn) ready;
	TAILQ_ENTRY(conn) again;
	TAILQ_ENTRY(conn) unsent;
	bool is_ready, is_again, is_unsent;

	int fd;
	struct event io;		/* EV_READ | EV_CLOSED, edge-triggered */
	struct event writable;		/* EV_WRITE, while the output is blocked */
	struct event timer;
	int64_t timer_ns;		/* when it fires at the latest; 0 = not armed */

	enum phase phase;
	enum blocked blocked;
	int32_t move_to;		/* the group that the next request belongs to; -1 = none */
	bool readable;
	bool ended;			/* everything the client sent has been read */
	bool ending;			/* it will send no more: ended, or seen coming */
	bool gone;			/* it takes no more answers */
	bool dead;			/* closed in this turn */
	bool edge;			/* something has happened to the socket since look_for_end */
	uint64_t read_turn;		/* in which the socket was read last: once a turn */
	uint64_t frames;		/* executed here */

	uint8_t *kept;			/* received and not executed: from kept_head to kept_tail */
	size_t kept_head, kept_tail, kept_capacity;
	int spill_fd;			/* what came with the connection and is read before the socket; -1 = none */
	int64_t spill_position, spill_end;
	size_t spill_chunk_bytes;
	int64_t frame_started_ns;	/* 0 = no half frame that the client could complete */

	struct output output;
	int64_t stalled_ns;		/* since then nothing of the output has gone; 0 = not stalled */
	int64_t discard_until_ns;
	struct reply *first_reply, *last_reply;
	int32_t reply_count;
	struct hold hold;
	int64_t buffered_bytes;		/* as counted in the worker's */
};

TAILQ_HEAD(conn_list, conn);

struct conn_set {
	struct worker *worker;
	struct event_base *base;
	struct channel *channel;
	uint64_t turn;
	struct conn_list all;
	struct conn_list ready;		/* to be worked on in this turn */
	struct conn_list again;		/* in the next one: their sockets have more */
	struct conn_list unsent;
	struct reply *free_replies;
	struct log_limit foreign_limits[FOREIGN_KINDS];
	uint8_t area[READ_BYTES];
};

/* ---- Small things ---- */

static struct worker *
worker_of(const struct conn *conn)
{
	return conn->set->worker;
}

void
conn_schedule(struct conn *conn)
{
	if (conn->is_ready)
		return;
	conn->is_ready = true;
	TAILQ_INSERT_TAIL(&conn->set->ready, conn, ready);
}

static void
schedule_again(struct conn *conn)
{
	if (conn->is_again)
		return;
	conn->is_again = true;
	TAILQ_INSERT_TAIL(&conn->set->again, conn, again);
}

static void
schedule_flush(struct conn *conn)
{
	if (conn->is_unsent)
		return;
	conn->is_unsent = true;
	TAILQ_INSERT_TAIL(&conn->set->unsent, conn, unsent);
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

struct hold *
conn_hold(struct conn *conn)
{
	return &conn->hold;
}

static bool
is_held(const struct conn *conn)
{
	return conn->hold.lane != NULL;
}

static size_t
kept_bytes(const struct conn *conn)
{
	return conn->kept_tail - conn->kept_head;
}

static void
drop_kept(struct conn *conn)
{
	free(conn->kept);
	conn->kept = NULL;
	conn->kept_head = conn->kept_tail = conn->kept_capacity = 0;
}

static void
close_spill(struct conn *conn)
{
	if (conn->spill_fd >= 0)
		close(conn->spill_fd);
	conn->spill_fd = -1;
	conn->spill_position = conn->spill_end = 0;
}

static void
account(struct conn *conn)
{
	int64_t bytes = (int64_t)(conn->kept_tail + conn->output.capacity) +
	    (conn->spill_end - conn->spill_position);

	worker_of(conn)->buffered_bytes += bytes - conn->buffered_bytes;
	conn->buffered_bytes = bytes;
}

/* ---- Deadlines ---- */

static int64_t
earlier(int64_t a_ns, int64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

static int64_t
next_deadline_ns(const struct conn *conn)
{
	int64_t timeout_ns = worker_of(conn)->request_timeout_ns;
	int64_t deadline_ns = INT64_MAX;

	if (is_held(conn))
		deadline_ns = conn->hold.deadline_ns;
	if (conn->frame_started_ns != 0)
		deadline_ns = earlier(deadline_ns, conn->frame_started_ns + timeout_ns);
	if (conn->stalled_ns != 0)
		deadline_ns = earlier(deadline_ns, conn->stalled_ns + timeout_ns);
	if (conn->phase == DISCARDING)
		deadline_ns = earlier(deadline_ns, conn->discard_until_ns);
	return deadline_ns;
}

/* A timer that fires too early is armed again, so it is moved only when a deadline comes nearer. */
static void
arm_timer(struct conn *conn)
{
	int64_t deadline_ns = next_deadline_ns(conn);
	int64_t wait_us;
	struct timeval wait;

	if (deadline_ns == INT64_MAX || (conn->timer_ns != 0 && conn->timer_ns <= deadline_ns))
		return;
	conn->timer_ns = deadline_ns;
	wait_us = (deadline_ns - clock_now_ns()) / CLOCK_NS_PER_US + 1;
	if (wait_us < 1)
		wait_us = 1;
	wait = (struct timeval){ .tv_sec = wait_us / 1000000, .tv_usec = wait_us % 1000000 };
	event_add(&conn->timer, &wait);
}

void
conn_held(struct conn *conn)
{
	arm_timer(conn);
}

static void
time_out(struct conn *conn, const char *what)
{
	board_add(&worker_of(conn)->counters->connections_timed_out, 1);
	log_debug("connection closed: %s", what);
	conn_abort(conn);
}

/* libevent counts from the start of its turn and fires early after a long one: every deadline is looked at again. */
static void
on_timer(evutil_socket_t fd, short what, void *argument)
{
	struct conn *conn = argument;
	int64_t timeout_ns = worker_of(conn)->request_timeout_ns;
	int64_t now_ns = clock_now_ns();

	(void)fd;
	(void)what;
	conn->timer_ns = 0;
	worker_of(conn)->now_ns = now_ns;
	if (is_held(conn) && now_ns >= conn->hold.deadline_ns)
		fetch_wake(&conn->hold, BOARD_WAKEUP_TIMEOUT);
	if (conn->frame_started_ns != 0 && now_ns >= conn->frame_started_ns + timeout_ns)
		time_out(conn, "its frame was not complete within request_timeout");
	else if (conn->stalled_ns != 0 && now_ns >= conn->stalled_ns + timeout_ns)
		time_out(conn, "nothing of its answer was read for request_timeout");
	else if (conn->phase == DISCARDING && now_ns >= conn->discard_until_ns)
		conn_abort(conn);
	else
		arm_timer(conn);
}

/* ---- Replies, in the order of their requests ---- */

static struct reply *
take_free_reply(struct conn_set *set)
{
	struct reply *reply = set->free_replies;

	if (reply == NULL)
		return malloc(sizeof(*reply));
	set->free_replies = reply->next;
	return reply;
}

static void
free_reply(struct conn_set *set, struct reply *reply)
{
	reply->next = set->free_replies;
	set->free_replies = reply;
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
		.started_ns = worker_of(conn)->now_ns,
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
		free_reply(worker->conns, reply);
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

static void
settle(struct conn *conn)
{
	while (conn->first_reply != NULL && conn->first_reply->answered) {
		struct reply *reply = pop_reply(conn);

		put_reply(conn, reply);
		free_reply(conn->set, reply);
	}
}

/* ---- The end ---- */

static void
destroy(struct conn *conn)
{
	struct conn_set *set = conn->set;

	if (is_held(conn)) {
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
	output_clear(&conn->output);
	drop_kept(conn);
	close_spill(conn);
	account(conn);
	TAILQ_REMOVE(&set->all, conn, all);
	if (conn->is_ready)
		TAILQ_REMOVE(&set->ready, conn, ready);
	if (conn->is_again)
		TAILQ_REMOVE(&set->again, conn, again);
	if (conn->is_unsent)
		TAILQ_REMOVE(&set->unsent, conn, unsent);
	free(conn);
}

/* Executes nothing more. Whatever is owed leaves first. */
static void
begin_finish(struct conn *conn)
{
	conn->phase = FINISHING;
	conn->move_to = -1;
	conn->blocked = NOT_BLOCKED;
	conn->frame_started_ns = 0;
	drop_kept(conn);
	close_spill(conn);
	schedule_flush(conn);
}

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
	conn->discard_until_ns = clock_now_ns() + worker_of(conn)->request_timeout_ns;
	conn->readable = true;
	arm_timer(conn);
	conn_schedule(conn);
}

static void
discard(struct conn *conn)
{
	ssize_t n;

	if (!conn->readable)
		return;
	n = recv(conn->fd, conn->set->area, sizeof(conn->set->area), MSG_DONTWAIT);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		conn->dead = true;
	else if (n < 0)
		conn->readable = false;
	else
		schedule_again(conn);
}

/* HTTP, TLS or PROXY bytes announce an impossible length. */
static int
foreign_kind(const uint8_t *p)
{
	static const char http[][5] = { "GET ", "POST", "PUT ", "HEAD", "OPTI", "DELE", "CONN", "PATC", "PRI " };

	for (size_t i = 0; i < sizeof(http) / sizeof(http[0]); i++)
		if (memcmp(p, http[i], 4) == 0)
			return FOREIGN_HTTP;
	if (p[0] == 0x16 && p[1] == 0x03)
		return FOREIGN_TLS;
	return memcmp(p, "PROX", 4) == 0 || memcmp(p, "\r\n\r\n", 4) == 0 ? FOREIGN_PROXY : FOREIGN_KINDS;
}

/* The operator is told of each kind once a minute; everything else that a client does wrong stays at debug. */
static void
refuse_length(struct conn *conn, const uint8_t *p)
{
	static const char *const names[] = { "HTTP", "TLS", "the PROXY protocol" };
	int kind = foreign_kind(p);
	uint64_t suppressed;

	log_debug("connection closed: frame length %d is not from 1 to max_frame_bytes", bytes_get_i32(p));
	if (kind != FOREIGN_KINDS && log_limit_pass(&conn->set->foreign_limits[kind],
	    (int64_t)FOREIGN_REPORT_S * CLOCK_NS_PER_S, &suppressed))
		log_info("a client that speaks %s was closed: this port speaks the broker's own protocol "
		    "(%llu more since the last line)", names[kind], (unsigned long long)suppressed);
	begin_finish(conn);
}

/* ---- Executing ---- */

/* What a client may have outstanding is bounded: then nothing is executed, and so nothing read. */
static bool
may_execute(struct conn *conn)
{
	if (conn->reply_count >= REPLIES_MAX)
		conn->blocked = BLOCKED_ANSWERS;
	else if (output_bytes(&conn->output) >= OUTPUT_MAX_BYTES || output_slices(&conn->output) >= OUTPUT_MAX_SLICES)
		conn->blocked = BLOCKED_OUTPUT;
	return conn->blocked == NOT_BLOCKED && !is_held(conn) && conn->phase == SERVING && !conn->dead;
}

static void
must_move(struct conn *conn, int32_t group)
{
	conn->move_to = group;
	conn->blocked = conn_owes(conn) ? BLOCKED_ANSWERS : BLOCKED_OUTPUT;
	schedule_flush(conn);
}

/* Returns the bytes used: the frame's, or 0 when it must be offered again or is not complete. */
static size_t
execute_one(struct conn *conn, const uint8_t *p, size_t left)
{
	struct worker *worker = worker_of(conn);
	int32_t length = bytes_get_i32(p);
	int32_t group;

	if (length < 1 || length > worker->max_frame_bytes) {
		refuse_length(conn, p);
		return 0;
	}
	if (left - CODEC_LENGTH_BYTES < (size_t)length) {
		group = dispatch_route(worker, p, left);
		if (group >= 0)
			must_move(conn, group);
		return 0;
	}
	switch (dispatch_execute(worker, conn, p + CODEC_LENGTH_BYTES, (size_t)length, &group)) {
	case DISPATCH_EXECUTED:
		return CODEC_LENGTH_BYTES + (size_t)length;
	case DISPATCH_ELSEWHERE:
		must_move(conn, group);
		return 0;
	case DISPATCH_WHEN_ANSWERED:
		conn->blocked = BLOCKED_ANSWERS;
		return 0;
	default:
		conn->blocked = BLOCKED_LATER;
		return 0;
	}
}

/* Executes the complete frames that stand there, in order. Returns the bytes used. */
static size_t
execute(struct conn *conn, const uint8_t *bytes, size_t size)
{
	size_t used = 0;

	while (size - used >= CODEC_LENGTH_BYTES && may_execute(conn)) {
		size_t n = execute_one(conn, bytes + used, size - used);

		if (n == 0)
			break;
		used += n;
		conn->frames++;
		settle(conn);
	}
	return used;
}

static void
execute_kept(struct conn *conn)
{
	size_t used = kept_bytes(conn) == 0 ? 0 : execute(conn, conn->kept + conn->kept_head, kept_bytes(conn));

	/* Behind the last frame ever the buffer is gone. */
	if (conn->phase == SERVING)
		conn->kept_head += used;
}

/* ---- Reading ---- */

static int
grow_kept(struct conn *conn, size_t size)
{
	size_t capacity = conn->kept_capacity == 0 ? KEPT_FIRST_BYTES : conn->kept_capacity;
	uint8_t *bytes;

	if (conn->kept_head > 0) {
		memmove(conn->kept, conn->kept + conn->kept_head, kept_bytes(conn));
		conn->kept_tail -= conn->kept_head;
		conn->kept_head = 0;
	}
	while (capacity < size)
		capacity *= 2;
	if (capacity == conn->kept_capacity)
		return 0;
	bytes = realloc(conn->kept, capacity);
	if (bytes == NULL)
		return -1;
	conn->kept = bytes;
	conn->kept_capacity = capacity;
	return 0;
}

/* Keeps what was not used of the area. */
static void
keep(struct conn *conn, const uint8_t *bytes, size_t size)
{
	conn->kept_head = conn->kept_tail = 0;
	if (size == 0 || conn->kept_capacity / 4 > size)
		drop_kept(conn);
	if (size == 0)
		return;
	if (grow_kept(conn, size) != 0) {
		conn_abort(conn);
		return;
	}
	memcpy(conn->kept, bytes, size);
	conn->kept_tail = size;
}

static ssize_t
read_spill(struct conn *conn, uint8_t *to, size_t size)
{
	int64_t left = conn->spill_end - conn->spill_position;
	ssize_t n;

	if (size > conn->spill_chunk_bytes)
		size = conn->spill_chunk_bytes;
	if ((int64_t)size > left)
		size = (size_t)left;
	n = pread(conn->spill_fd, to, size, conn->spill_position);
	if (n <= 0) {
		log_error("connection closed: its memfd ends at %lld before %lld: a bug of another worker",
		    (long long)conn->spill_position, (long long)conn->spill_end);
		conn_abort(conn);
		return -1;
	}
	conn->spill_position += n;
	if (conn->spill_chunk_bytes < READ_BYTES)
		conn->spill_chunk_bytes *= 2;
	return n;
}

static ssize_t
read_socket(struct conn *conn, uint8_t *to, size_t size)
{
	ssize_t n = recv(conn->fd, to, size, MSG_DONTWAIT);

	conn->read_turn = conn->set->turn;
	if (n == 0) {
		conn->ended = conn->ending = true;
		conn->readable = false;
	} else if (n < 0 && errno == EAGAIN) {
		conn->readable = false;
	} else if (n < 0 && errno != EINTR) {
		conn->ended = conn->ending = conn->gone = true;
		conn->readable = false;
		output_clear(&conn->output);
	} else if (n > 0 && (size_t)n < size) {
		/* A short read means that it was all: the next byte brings a new edge. The end brings one, too. */
		conn->readable = conn->ending;
	}
	return n;
}

/* The next bytes from where they come now: the memfd first, then the socket, once a turn. */
static ssize_t
read_more(struct conn *conn, uint8_t *to, size_t size)
{
	if (conn->spill_position < conn->spill_end)
		return read_spill(conn, to, size);
	close_spill(conn);
	if (!conn->readable || conn->ended || conn->read_turn == conn->set->turn)
		return -1;
	return read_socket(conn, to, size);
}

/* Small rests go back in front of what is read into the worker's area, large ones grow where they are. */
static bool
read_and_execute(struct conn *conn)
{
	uint8_t *area = conn->set->area;
	size_t rest = kept_bytes(conn);
	ssize_t n;

	if (rest > READ_BYTES / 2) {
		if (grow_kept(conn, conn->kept_tail - conn->kept_head + READ_BYTES / 4) != 0) {
			conn_abort(conn);
			return false;
		}
		n = read_more(conn, conn->kept + conn->kept_tail, conn->kept_capacity - conn->kept_tail);
		if (n <= 0)
			return false;
		conn->kept_tail += (size_t)n;
		execute_kept(conn);
		return true;
	}
	n = read_more(conn, area + rest, READ_BYTES - rest);
	if (n <= 0)
		return false;
	if (rest > 0)
		memcpy(area, conn->kept + conn->kept_head, rest);
	rest += (size_t)n;
	n = (ssize_t)execute(conn, area, rest);
	if (conn->phase == SERVING)
		keep(conn, area + n, rest - (size_t)n);
	return true;
}

/* The rest of a frame that the client has begun runs against request_timeout; what waits for us does not. */
static void
watch_half_frame(struct conn *conn, bool executed)
{
	size_t size = kept_bytes(conn);
	bool half = size > 0 && (size < CODEC_LENGTH_BYTES ||
	    size - CODEC_LENGTH_BYTES < bytes_get_u32(conn->kept + conn->kept_head));
	bool waits_for_us = is_held(conn) || (conn->blocked != NOT_BLOCKED && conn->move_to < 0);

	if (executed || waits_for_us || !half)
		conn->frame_started_ns = 0;
	if (half && !waits_for_us && conn->frame_started_ns == 0)
		conn->frame_started_ns = clock_now_ns();
	arm_timer(conn);
}

static void
unblock(struct conn *conn)
{
	if (conn->blocked == BLOCKED_ANSWERS && !conn_owes(conn))
		conn->blocked = NOT_BLOCKED;
	if (conn->blocked == BLOCKED_OUTPUT && output_bytes(&conn->output) < OUTPUT_MAX_BYTES &&
	    output_slices(&conn->output) < OUTPUT_MAX_SLICES)
		conn->blocked = NOT_BLOCKED;
}

/* While nothing is read or sent, the only news can be the peer's end. */
static void
look_for_end(struct conn *conn)
{
	struct pollfd p = { .fd = conn->fd, .events = POLLRDHUP };

	conn->edge = false;
	if (!conn->ending && poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0)
		conn->ending = true;
}

/*
 * Everything has been executed. More may be waiting in the socket; and a reset that came in one edge with the last
 * data has brought no event of its own, and will not make itself felt as long as nothing is sent.
 */
static void
watch_socket(struct conn *conn)
{
	if (!conn->readable && conn->edge && !conn_owes(conn) && output_empty(&conn->output)) {
		look_for_end(conn);
		conn->readable = conn->ending;
	}
	if (conn->readable)
		schedule_again(conn);
}

static void
serve(struct conn *conn)
{
	uint64_t frames = conn->frames;

	unblock(conn);
	if (conn->blocked != NOT_BLOCKED || is_held(conn))
		return;
	conn->move_to = -1;
	execute_kept(conn);
	while (may_execute(conn) && read_and_execute(conn))
		;
	if (conn->phase != SERVING || conn->dead)
		return;
	if (kept_bytes(conn) == 0)
		drop_kept(conn);
	watch_half_frame(conn, conn->frames != frames);
	if (!may_execute(conn))
		return;
	if (conn->ended && !conn_owes(conn))
		begin_finish(conn);
	else if (!conn->ended)
		watch_socket(conn);
}

/* ---- Moving to another worker ---- */

static int
spill(struct conn *conn, struct message_connection *message)
{
	size_t size = kept_bytes(conn), done = 0;
	int fd = memfd_create("logbroker-connection", MFD_CLOEXEC);

	while (fd >= 0 && done < size) {
		ssize_t n = write(fd, conn->kept + conn->kept_head + done, size - done);

		if (n < 0 && errno != EINTR) {
			close(fd);
			return -1;
		}
		done += n > 0 ? (size_t)n : 0;
	}
	message->spilled_end = (int64_t)size;
	return fd;
}

/*
 * What has been read and not executed travels along: as it came, when it is still in the memfd that it came in (then
 * what was read of it is simply read again there), else inline or in a new memfd.
 */
static int
pack(struct conn *conn, struct message_connection *message, int *spill_fd)
{
	size_t size = kept_bytes(conn);

	*spill_fd = -1;
	if (conn->spill_fd >= 0) {
		message->spilled_position = conn->spill_position - (int64_t)size;
		message->spilled_end = conn->spill_end;
		*spill_fd = conn->spill_fd;
	} else if (size > MESSAGE_INLINE_MAX_BYTES) {
		*spill_fd = spill(conn, message);
		if (*spill_fd < 0)
			return -1;
	} else {
		message->inline_bytes = (int32_t)size;
	}
	return 0;
}

/* Nothing is owed and everything has been sent: the socket leaves this loop, and this process with its message. */
static void
move(struct conn *conn)
{
	struct conn_set *set = conn->set;
	struct message_connection head = { .group = conn->move_to, .frame_started_ns = conn->frame_started_ns };
	uint8_t payload[sizeof(head) + MESSAGE_INLINE_MAX_BYTES];
	struct channel_message message = { .type = MESSAGE_CONNECTION, .payload = payload };
	int spill_fd;

	event_del(&conn->io);
	if (pack(conn, &head, &spill_fd) != 0) {
		log_error("connection closed: no memory to hand it to group %d", head.group);
		conn->dead = true;
		return;
	}
	memcpy(payload, &head, sizeof(head));
	if (head.inline_bytes > 0)
		memcpy(payload + sizeof(head), conn->kept + conn->kept_head, (size_t)head.inline_bytes);
	message.size = sizeof(head) + (size_t)head.inline_bytes;
	message.descriptors[message.descriptor_count++] = conn->fd;
	if (spill_fd >= 0)
		message.descriptors[message.descriptor_count++] = spill_fd;
	conn->dead = true;
	if (channel_queue(set->channel, &message) != 0) {
		if (spill_fd >= 0 && spill_fd != conn->spill_fd)
			close(spill_fd);
		return;
	}
	conn->fd = -1;
	if (spill_fd == conn->spill_fd)
		conn->spill_fd = -1;
	board_add(&set->worker->counters->handoffs, 1);
}

/* ---- Turns ---- */

static void
work(struct conn *conn)
{
	settle(conn);
	if (is_held(conn) && conn->edge)
		look_for_end(conn);
	if (is_held(conn) && conn->ending)
		fetch_wake(&conn->hold, BOARD_WAKEUP_END);
	if (conn->phase == SERVING && !worker_of(conn)->stopping && !conn->dead)
		serve(conn);
	else if (conn->phase == DISCARDING)
		discard(conn);
	if (conn->gone)
		output_clear(&conn->output);
	if (!output_empty(&conn->output) || conn->phase == FINISHING || conn->move_to >= 0)
		schedule_flush(conn);
	account(conn);
}

static void
block_output(struct conn *conn)
{
	if (conn->stalled_ns == 0)
		conn->stalled_ns = clock_now_ns();
	event_add(&conn->writable, NULL);
	arm_timer(conn);
}

static void
drained(struct conn *conn)
{
	conn->stalled_ns = 0;
	if (conn->phase == FINISHING && !conn_owes(conn))
		begin_discard(conn);
	else if (conn->move_to >= 0 && !conn_owes(conn) && conn->phase == SERVING && !worker_of(conn)->stopping)
		move(conn);
	else if (conn->blocked == BLOCKED_OUTPUT && conn->move_to < 0)
		conn_schedule(conn);
}

static void
flush(struct conn *conn)
{
	uint64_t sent = conn->output.sent;
	int64_t slice_bytes_sent = conn->output.slice_bytes_sent;
	enum output_state state = output_flush(&conn->output, conn->fd, FLUSH_BUDGET_BYTES);
	bool progressed = sent != conn->output.sent || slice_bytes_sent != conn->output.slice_bytes_sent;

	board_add(&worker_of(conn)->counters->fetched_bytes, conn->output.slice_bytes_sent - slice_bytes_sent);
	if (progressed)
		conn->stalled_ns = 0;
	switch (state) {
	case OUTPUT_DRAINED:
		drained(conn);
		break;
	case OUTPUT_BLOCKED:
		block_output(conn);
		break;
	case OUTPUT_MORE:
		schedule_flush(conn);
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
		log_error("connection closed: a segment file ended, or could not be read, inside the bytes that had been "
		    "announced: was it truncated from outside, or is the disk failing?");
		conn->dead = true;
		break;
	}
	if (conn->blocked == BLOCKED_OUTPUT && conn->move_to < 0 && progressed)
		conn_schedule(conn);
	account(conn);
}

/* The connection whose half frame began longest ago; failing that, the one that has not read its answers for longest. */
static struct conn *
choose_victim(struct conn_set *set)
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
	return victim;
}

static void
keep_within_buffer_bytes(struct conn_set *set)
{
	struct worker *worker = set->worker;

	while (worker->buffered_bytes > worker->buffer_bytes) {
		struct conn *victim = choose_victim(set);

		if (victim == NULL)
			break;
		board_add(&worker->counters->connections_overflowed, 1);
		log_debug("connection closed: buffer_bytes is reached and its half frame is the oldest");
		destroy(victim);
	}
	board_set(&worker->counters->buffered_bytes, worker->buffered_bytes);
}

static void
work_on_ready(struct conn_set *set)
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
			destroy(conn);
	}
}

static void
flush_unsent(struct conn_set *set)
{
	struct conn_list unsent = TAILQ_HEAD_INITIALIZER(unsent);
	struct conn *conn;

	TAILQ_CONCAT(&unsent, &set->unsent, unsent);
	while ((conn = TAILQ_FIRST(&unsent)) != NULL) {
		TAILQ_REMOVE(&unsent, conn, unsent);
		conn->is_unsent = false;
		if (!conn->dead)
			flush(conn);
		if (conn->dead)
			destroy(conn);
	}
}

bool
conn_turn(struct conn_set *set, void (*write_appends)(struct worker *worker))
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
	keep_within_buffer_bytes(set);
	return !TAILQ_EMPTY(&set->ready) || !TAILQ_EMPTY(&set->again) || !TAILQ_EMPTY(&set->unsent);
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
	schedule_flush(argument);
}

/* ---- The set ---- */

struct conn_set *
conn_set_new(struct worker *worker, struct event_base *base, struct channel *channel)
{
	struct conn_set *set = calloc(1, sizeof(*set));

	if (set == NULL)
		return NULL;
	set->worker = worker;
	set->base = base;
	set->channel = channel;
	TAILQ_INIT(&set->all);
	TAILQ_INIT(&set->ready);
	TAILQ_INIT(&set->again);
	TAILQ_INIT(&set->unsent);
	return set;
}

void
conn_set_free(struct conn_set *set)
{
	while (!TAILQ_EMPTY(&set->all))
		destroy(TAILQ_FIRST(&set->all));
	while (set->free_replies != NULL) {
		struct reply *reply = set->free_replies;

		set->free_replies = reply->next;
		free(reply);
	}
	free(set);
}

static void
refuse_connection(struct conn_set *set, int socket_fd, int spill_fd)
{
	close(socket_fd);
	if (spill_fd >= 0)
		close(spill_fd);
	board_add(&set->worker->counters->connections_closed, 1);
}

void
conn_take(struct conn_set *set, const struct message_connection *message, const uint8_t *inline_bytes, int socket_fd,
    int spill_fd)
{
	struct conn *conn = set->worker->stopping ? NULL : calloc(1, sizeof(*conn));

	if (conn == NULL) {
		refuse_connection(set, socket_fd, spill_fd);
		return;
	}
	conn->set = set;
	conn->fd = socket_fd;
	conn->move_to = -1;
	conn->spill_fd = spill_fd;
	conn->spill_position = message->spilled_position;
	conn->spill_end = message->spilled_end;
	conn->spill_chunk_bytes = SPILL_FIRST_BYTES;
	conn->frame_started_ns = message->frame_started_ns;
	event_assign(&conn->io, set->base, socket_fd, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_io, conn);
	event_assign(&conn->writable, set->base, socket_fd, EV_WRITE | EV_ET, on_writable, conn);
	evtimer_assign(&conn->timer, set->base, on_timer, conn);
	TAILQ_INSERT_TAIL(&set->all, conn, all);
	if (message->inline_bytes > 0)
		keep(conn, inline_bytes, (size_t)message->inline_bytes);
	/* What has arrived before the descriptor was watched brings an edge of its own when it is added. */
	if (event_add(&conn->io, NULL) != 0)
		conn->dead = true;
	conn_schedule(conn);
}

void
conn_resume_all(struct conn_set *set)
{
	struct conn *conn;

	TAILQ_FOREACH(conn, &set->all, all)
		if (conn->blocked == BLOCKED_LATER) {
			conn->blocked = NOT_BLOCKED;
			conn_schedule(conn);
		}
}

void
conn_stop_all(struct conn_set *set)
{
	struct conn *conn;

	TAILQ_FOREACH(conn, &set->all, all) {
		if (is_held(conn))
			fetch_wake(&conn->hold, BOARD_WAKEUP_STOP);
		if (conn->phase == SERVING)
			begin_finish(conn);
	}
}

/* What a TCP peer's kernel has not acknowledged yet could still be destroyed by our end. */
static bool
unacknowledged(const struct conn *conn)
{
	int domain = 0, bytes = 0;
	socklen_t size = sizeof(domain);

	if (conn->gone || getsockopt(conn->fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain == AF_UNIX)
		return false;
	return ioctl(conn->fd, SIOCOUTQ, &bytes) == 0 && bytes > 0;
}

size_t
conn_unfinished(struct conn_set *set)
{
	struct conn *conn;
	size_t count = 0;

	TAILQ_FOREACH(conn, &set->all, all)
		if (!conn->dead && (conn_owes(conn) || !output_empty(&conn->output) || unacknowledged(conn)))
			count++;
	return count;
}
