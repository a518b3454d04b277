/*
 * From a connection's bytes to executed frames; see intake.h.
 *
 * Reading is edge-triggered: an edge says only that there may be something, `readable` remembers it, and a connection
 * that must not read (a hold, back-pressure) costs nothing while its client keeps sending. An idle connection has no
 * buffer: what arrives is read into one area of the worker and executed from there; only what is left of a frame is
 * copied into the connection, and its buffer grows with what has arrived, never with what a length word announces.
 */
#include "worker/intake.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/clock.h"
#include "common/log.h"
#include "worker/conn_state.h"
#include "worker/dispatch.h"

enum {
	KEPT_FIRST_BYTES = 512,
	OUTPUT_MAX_BYTES = 256 * 1024,	/* with more unsent in memory nothing is executed */
	OUTPUT_MAX_SLICES = 16,
	REPLIES_MAX = 4096,		/* owed on one connection; then it waits until they have been given */
	FOREIGN_REPORT_S = 60,
};

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
	char more[LOG_MORE_BYTES];

	conn_blame(conn, "a frame's length is not from 1 to max_frame_bytes");
	if (kind != FOREIGN_KINDS && log_limit_pass(&conn->set->foreign_limits[kind],
	    (int64_t)FOREIGN_REPORT_S * CLOCK_NS_PER_S, more))
		log_info("a client that speaks %s was closed: this port speaks the broker's own protocol%s",
		    names[kind], more);
	conn_begin_finish(conn);
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
	return conn->blocked == NOT_BLOCKED && !conn_is_held(conn) && conn->phase == SERVING && !conn->dead;
}

static void
must_move(struct conn *conn, int32_t group)
{
	conn->move_to = group;
	conn->blocked = BLOCKED_MOVE;
	conn_schedule_flush(conn);
}

/* Returns the bytes used: the frame's, or 0 when it must be offered again or is not complete. */
static size_t
execute_one(struct conn *conn, const uint8_t *p, size_t left)
{
	struct worker *worker = conn_worker(conn);
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
	case DISPATCH_BEHIND_APPENDS:
		conn->deferred = true;
		conn_schedule(conn);
		return 0;
	case DISPATCH_WHEN_ANSWERED:
		conn->blocked = BLOCKED_ANSWERS;
		return 0;
	default:
		conn_put_off(conn);
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
		conn->deferred = false;
		conn->held_until_ns = 0;
		conn_settle(conn);
		if (conn->resumed) {
			conn->resumed = false;
			conn_schedule(conn);
			break;
		}
	}
	return used;
}

static void
execute_kept(struct conn *conn)
{
	size_t used = conn_kept_bytes(conn) == 0 ? 0 : execute(conn, conn->kept + conn->kept_head, conn_kept_bytes(conn));

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
		memmove(conn->kept, conn->kept + conn->kept_head, conn_kept_bytes(conn));
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

void
intake_keep(struct conn *conn, const uint8_t *bytes, size_t size)
{
	conn->kept_head = conn->kept_tail = 0;
	if (size == 0 || conn->kept_capacity / 4 > size)
		conn_drop_kept(conn);
	if (size == 0)
		return;
	if (grow_kept(conn, size) != 0) {
		conn_abort(conn);
		return;
	}
	memcpy(conn->kept, bytes, size);
	conn->kept_tail = size;
}

/* What is left of the memfd moves into memory, behind what was read of it. Returns 0, or -1. */
static int
take_in_spill(struct conn *conn)
{
	size_t size = (size_t)(conn->spill_end - conn->spill_position);

	if (conn->spill_fd < 0)
		return 0;
	if (grow_kept(conn, conn_kept_bytes(conn) + size) != 0 ||
	    pread(conn->spill_fd, conn->kept + conn->kept_tail, size, conn->spill_position) != (ssize_t)size)
		return -1;
	conn->kept_tail += size;
	conn_close_spill(conn);
	return 0;
}

int
intake_put_back(struct conn *conn, const uint8_t *bytes, size_t size)
{
	if (take_in_spill(conn) != 0 || grow_kept(conn, conn_kept_bytes(conn) + size) != 0)
		return -1;
	memmove(conn->kept + conn->kept_head + size, conn->kept + conn->kept_head, conn_kept_bytes(conn));
	memcpy(conn->kept + conn->kept_head, bytes, size);
	conn->kept_tail += size;
	return 0;
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
	if (conn->spill_chunk_bytes < CONN_AREA_BYTES)
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
	if (n > 0)
		conn->active_ns = conn_worker(conn)->now_ns;
	return n;
}

/* The next bytes from where they come now: the memfd first, then the socket, once a turn. */
static ssize_t
read_more(struct conn *conn, uint8_t *to, size_t size)
{
	if (conn->spill_position < conn->spill_end)
		return read_spill(conn, to, size);
	conn_close_spill(conn);
	if (!conn->readable || conn->ended || conn->read_turn == conn->set->turn)
		return -1;
	return read_socket(conn, to, size);
}

/* Small rests go back in front of what is read into the worker's area, large ones grow where they are. */
static bool
read_and_execute(struct conn *conn)
{
	uint8_t *area = conn->set->area;
	size_t rest = conn_kept_bytes(conn);
	ssize_t n;

	if (rest > CONN_AREA_BYTES / 2) {
		if (grow_kept(conn, conn->kept_tail - conn->kept_head + CONN_AREA_BYTES / 4) != 0) {
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
	n = read_more(conn, area + rest, CONN_AREA_BYTES - rest);
	if (n <= 0)
		return false;
	if (rest > 0)
		memcpy(area, conn->kept + conn->kept_head, rest);
	rest += (size_t)n;
	n = (ssize_t)execute(conn, area, rest);
	if (conn->phase == SERVING)
		intake_keep(conn, area + n, rest - (size_t)n);
	return true;
}

/* The rest of a frame that the client has begun runs against request_timeout; what waits for us does not. */
static void
watch_half_frame(struct conn *conn, bool executed)
{
	size_t size = conn_kept_bytes(conn);
	bool half = size > 0 && (size < CODEC_LENGTH_BYTES ||
	    size - CODEC_LENGTH_BYTES < bytes_get_u32(conn->kept + conn->kept_head));
	bool waits_for_us = conn_is_held(conn) || (conn->blocked != NOT_BLOCKED &&
	    (conn->blocked != BLOCKED_MOVE || conn_owes(conn)));

	if (executed || waits_for_us || !half)
		conn->frame_started_ns = 0;
	if (half && !waits_for_us && conn->frame_started_ns == 0)
		conn->frame_started_ns = clock_now_ns();
	conn_arm_timer(conn);
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
void
intake_look_for_end(struct conn *conn)
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
		intake_look_for_end(conn);
		conn->readable = conn->ending;
	}
	if (conn->readable)
		conn_schedule_again(conn);
}

void
intake_serve(struct conn *conn)
{
	uint64_t frames = conn->frames;

	unblock(conn);
	if (conn->blocked != NOT_BLOCKED || conn_is_held(conn))
		return;
	execute_kept(conn);
	/* One that has been scheduled goes on in the next round, behind the appends of this one. */
	while (!conn->is_ready && may_execute(conn) && read_and_execute(conn))
		;
	if (conn->phase != SERVING || conn->dead)
		return;
	if (conn_kept_bytes(conn) == 0)
		conn_drop_kept(conn);
	watch_half_frame(conn, conn->frames != frames);
	/* A reset in one edge with this FETCH brings no event of its own. */
	if (conn_is_held(conn) && conn->edge) {
		intake_look_for_end(conn);
		if (conn->ending)
			conn_schedule(conn);
	}
	if (!may_execute(conn))
		return;
	if (conn->ended && !conn_owes(conn))
		conn_begin_finish(conn);
	else if (!conn->ended)
		watch_socket(conn);
}

void
intake_discard(struct conn *conn)
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
		conn_schedule_again(conn);
}
