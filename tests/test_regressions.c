/*
 * What reviews found, so that it stays found: each test fails when the correction that it names is taken out. Connections
 * that were never closed, cut without a reason, forgotten, or counted wrongly; a worker without a free descriptor; a force
 * that failed in recovery; clients given to a worker that is about to end.
 *
 * The order of events decides in most of them. So a worker is frozen while both of two events happen, and wakes up to find
 * them together; and barriers take as long as the test says (badsync.c).
 */
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum {
	SOON_MS = 10000,	/* for what happens at once unless the machine is very busy */
	BACK_MS = 60000,	/* for a failed log to be opened again */
	MIB = 1024 * 1024,
	PIPELINED = 12,		/* FETCHes of BIG_BYTES: more than all socket buffers hold */
	BIG_BYTES = MIB,
	NARROW_BYTES = 64 * 1024,
};

static struct broker broker;
static int fd;	/* the socket of the test */

static int
connect_broker(void)
{
	int socket_fd = wire_connect_tcp(broker.port);

	ck_assert_msg(socket_fd >= 0, "connect: %s", strerror(errno));
	return socket_fd;
}

static void
start(const struct broker_config *config)
{
	broker_start(&broker, config);
	fd = connect_broker();
}

static void
finish(void)
{
	close(fd);
	broker_stop(&broker);
	broker_end(&broker);
}

/* ---- badsync.so ---------------------------------------------------------------------------------------------- */

static void
start_with_badsync(struct broker_config config)
{
	procs_start_with_badsync(&broker, &config);
	fd = connect_broker();
}

/* ---- requests, connections ----------------------------------------------------------------------------------- */

static void
send_frame(int socket_fd, struct wire_bytes *frame)
{
	ck_assert_int_eq(wire_send(socket_fd, frame->data, frame->length), 0);
	wire_bytes_free(frame);
}

/* The connection lives in the worker of that partition, which has answered it. */
static void
settle(int socket_fd, const char *topic, int32_t partition)
{
	struct wire_fetched fetched;

	ck_assert_int_eq(wire_fetch(socket_fd, topic, partition, 0, 1, 0, 0, &fetched), 0);
	wire_fetched_free(&fetched);
}

static int
connect_settled(const char *topic, int32_t partition)
{
	int socket_fd = connect_broker();

	settle(socket_fd, topic, partition);
	return socket_fd;
}

/* With a small receive buffer, so that the broker soon cannot send more; settled at t/0. */
static int
connect_narrow(int size)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)broker.port),
	    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(socket_fd, 0);
	ck_assert_int_eq(setsockopt(socket_fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size), 0);
	ck_assert_int_eq(connect(socket_fd, (struct sockaddr *)&to, sizeof to), 0);
	settle(socket_fd, "t", 0);
	return socket_fd;
}

static void
close_all(const int *fds, int count)
{
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

static void
wait_read(int socket_fd)
{
	ck_assert(procs_wait_read(socket_fd, SOON_MS));
}

/* A record of `length` bytes (zeros), WRITTEN. */
static void
put_written(struct wire_bytes *frame, int32_t id, const char *topic, int32_t partition, size_t length)
{
	uint8_t *payload = calloc(1, length);

	wire_put_produce_one(frame, id, topic, partition, WIRE_WRITTEN, payload, length);
	free(payload);
}

static void
produce_zeros(int socket_fd, const char *topic, int32_t partition, size_t length)
{
	struct wire_bytes frame = { 0 };

	put_written(&frame, 1, topic, partition, length);
	ck_assert_int_eq(wire_ask(socket_fd, &frame, NULL), 0);
	wire_bytes_free(&frame);
}

/* FETCHes that are answered with BIG_BYTES each, once t/0 holds that much. Ids 0, 1, ... */
static void
put_big_fetches(struct wire_bytes *frames, int count)
{
	for (int i = 0; i < count; i++)
		wire_put_fetch_v1(frames, i, "t", 0, 0, BIG_BYTES);
}

static int
unread_bytes(int socket_fd)
{
	int bytes = 0;

	ck_assert_int_eq(ioctl(socket_fd, FIONREAD, &bytes), 0);
	return bytes;
}

/* Until the broker has begun to answer and cannot go on, since nobody reads. */
static void
wait_output_blocked(int socket_fd)
{
	int64_t until = wire_now_ms() + SOON_MS;
	int before = 0;

	for (int quiet = 0; quiet < 30; quiet++) {
		int now = unread_bytes(socket_fd);

		ck_assert_msg(wire_now_ms() < until, "no answer, or no end of it: %d bytes", now);
		if (now == 0 || now != before)
			quiet = 0;
		before = now;
		usleep(1000);
	}
}

/* Reads those answers, in order, and whole. */
static void
expect_big_answers(int socket_fd, int count)
{
	for (int i = 0; i < count; i++) {
		struct wire_answer answer;

		ck_assert_int_eq(wire_read_answer(socket_fd, &answer, WIRE_DEADLINE_MS), 0);
		ck_assert_int_eq(answer.id, i);
		ck_assert_int_eq(answer.error, 0);
		ck_assert_uint_ge(answer.body_length, BIG_BYTES);
		wire_answer_free(&answer);
	}
}

static pid_t
worker_of_t0(void)
{
	pid_t worker = broker_wait_worker_of(&broker, "t", 0, 0, SOON_MS);

	ck_assert_int_gt(worker, 0);
	return worker;
}

/* Nobody is connected any more, and nothing is left of those who were. */
static void
expect_nothing_left(pid_t worker, int descriptors)
{
	ck_assert(procs_wait_fd_count(worker, descriptors, SOON_MS));
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 0, SOON_MS));
}

/* A loop that spins takes the whole time; one that waits has its heartbeat. */
static void
expect_idle(pid_t worker)
{
	int64_t before = broker_cpu_ms(worker);

	usleep(200000);
	ck_assert_int_lt(broker_cpu_ms(worker) - before, 100);
}

/* ---- ends of connections -------------------------------------------------------------------------------------- */

/* `client` asks for much, closes its side, and reads only when the output has been blocked. */
static void
half_close(bool forced)
{
	struct wire_bytes frames = { 0 };
	int client = connect_narrow(NARROW_BYTES);

	put_big_fetches(&frames, PIPELINED);
	if (forced)
		wire_put_produce_one(&frames, PIPELINED, "t", 0, WIRE_FORCED, "forced", 6);
	send_frame(client, &frames);
	ck_assert_int_eq(shutdown(client, SHUT_WR), 0);
	wait_output_blocked(client);
	expect_big_answers(client, PIPELINED);
	if (forced)
		ck_assert_int_eq(wire_expect(client, PIPELINED), 0);
	ck_assert_msg(wire_ended_orderly(client, SOON_MS), "no FIN behind the answers");
	close(client);
}

/* on_io and intake_serve: adding interest in writing reports the end again, and nobody may read at it for ever. */
START_TEST(half_closed_with_blocked_output)
{
	struct wire_bytes frames = { 0 };
	int descriptors, client;
	pid_t worker;

	start(NULL);
	produce_zeros(fd, "t", 0, BIG_BYTES);
	close(fd);
	worker = worker_of_t0();
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 0, SOON_MS));
	descriptors = broker_fd_count(worker);
	half_close(false);
	half_close(true);
	/* The end, then a reset behind it. */
	client = connect_narrow(NARROW_BYTES);
	put_big_fetches(&frames, PIPELINED);
	send_frame(client, &frames);
	ck_assert_int_eq(shutdown(client, SHUT_WR), 0);
	wait_output_blocked(client);
	wire_close_reset(client);
	expect_nothing_left(worker, descriptors);
	expect_idle(worker);
	fd = connect_broker();
	finish();
}
END_TEST

enum { RESETTERS = 8 };

enum last_words {
	SAYS_NOTHING, ASKS_METADATA, ASKS_BIG, ASKS_VERY_MUCH, ASKS_AND_BEGINS, PRODUCES_NONE, PRODUCES_WRITTEN, PRODUCES_FORCED,
	BEGINS_A_FRAME, BEGINS_TO_MOVE, IS_HELD, LAST_WORDS
};

static const char *const last_words_names[LAST_WORDS] = { "nothing", "METADATA", "big FETCHes", "100 big FETCHes",
	"METADATA and half a frame", "PRODUCE NONE", "PRODUCE WRITTEN", "PRODUCE FORCED", "half a frame",
	"half a frame for another worker", "a FETCH that is held" };

/* What a client sends right before its reset. */
static void
put_last_words(struct wire_bytes *frames, enum last_words words)
{
	switch (words) {
	case SAYS_NOTHING:
	case LAST_WORDS:
		break;
	case ASKS_METADATA:
		for (int i = 0; i < 50; i++)
			wire_put_metadata(frames, i, 2, NULL);
		break;
	case ASKS_BIG:
		put_big_fetches(frames, 4);
		break;
	case ASKS_VERY_MUCH:
		put_big_fetches(frames, 100);
		break;
	case ASKS_AND_BEGINS:
		wire_put_metadata(frames, 1, 2, NULL);
		put_written(frames, 2, "t", 0, 1000);
		frames->length -= 500;
		break;
	case PRODUCES_NONE:
		wire_put_produce_one(frames, 1, "t", 0, WIRE_NONE, "none", 4);
		break;
	case PRODUCES_WRITTEN:
		wire_put_produce_one(frames, 1, "t", 0, WIRE_WRITTEN, "written", 7);
		break;
	case PRODUCES_FORCED:
		wire_put_produce_one(frames, 1, "t", 0, WIRE_FORCED, "forced", 6);
		break;
	case BEGINS_A_FRAME:
		put_written(frames, 1, "t", 0, 1000);
		frames->length -= 500;
		break;
	case BEGINS_TO_MOVE:
		put_written(frames, 1, "t", 1, 1000);
		frames->length -= 500;
		break;
	case IS_HELD:
		wire_put_fetch(frames, 1, "t", 0, 1, MIB, 60000, MIB);
		break;
	}
}

/* Clients that live in that worker send these words and reset, while it does not run: it gets both in one edge. */
static void
say_and_reset(pid_t worker, enum last_words words)
{
	struct wire_bytes frames = { 0 };
	int clients[RESETTERS];

	for (int i = 0; i < RESETTERS; i++)
		clients[i] = connect_settled("t", 0);
	put_last_words(&frames, words);
	broker_freeze_worker(&broker, worker);
	for (int i = 0; i < RESETTERS; i++) {
		ck_assert_int_eq(wire_send(clients[i], frames.data, frames.length), 0);
		wire_close_reset(clients[i]);
	}
	broker_thaw_worker(&broker, worker);
	wire_bytes_free(&frames);
}

/*
 * flush at OUTPUT_GONE, and watch_socket: a reset that comes in one edge with data brings no event of its own. Nothing here
 * may wait for request_timeout.
 */
START_TEST(reset_right_behind_data)
{
	int descriptors[2];
	pid_t workers[2];

	start(&(struct broker_config){ .topics = "t = 2\n", .broker = "request_timeout = 10min\n" });
	produce_zeros(fd, "t", 0, BIG_BYTES);
	close(fd);
	workers[0] = worker_of_t0();
	workers[1] = broker_wait_worker_of(&broker, "t", 1, 0, SOON_MS);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 0, SOON_MS));
	for (int i = 0; i < 2; i++)
		descriptors[i] = broker_fd_count(workers[i]);
	for (enum last_words words = SAYS_NOTHING; words < LAST_WORDS; words++) {
		say_and_reset(workers[0], words);
		for (int i = 0; i < 2; i++)
			ck_assert_msg(procs_wait_fd_count(workers[i], descriptors[i], SOON_MS),
			    "connections are left of clients that sent %s and reset", last_words_names[words]);
	}
	expect_nothing_left(workers[0], descriptors[0]);
	expect_idle(workers[0]);
	fd = connect_broker();
	finish();
}
END_TEST

enum { GREEDY = 10, GREEDY_FETCHES = 100 };

/* work: behind the reset of a client that did not read, what it has still asked for fills the output, which nobody empties. */
START_TEST(reset_under_back_pressure)
{
	int clients[GREEDY], descriptors;
	pid_t worker;

	start(NULL);
	produce_zeros(fd, "t", 0, BIG_BYTES);
	close(fd);
	worker = worker_of_t0();
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 0, SOON_MS));
	descriptors = broker_fd_count(worker);
	for (int i = 0; i < GREEDY; i++) {
		struct wire_bytes frames = { 0 };

		clients[i] = connect_narrow(NARROW_BYTES);
		put_big_fetches(&frames, GREEDY_FETCHES);
		send_frame(clients[i], &frames);
	}
	for (int i = 0; i < GREEDY; i++)
		wait_output_blocked(clients[i]);
	for (int i = 0; i < GREEDY; i++)
		wire_close_reset(clients[i]);
	expect_nothing_left(worker, descriptors);
	expect_idle(worker);
	fd = connect_broker();
	finish();
}
END_TEST

/* ---- producers that wait -------------------------------------------------------------------------------------- */

enum { SMALL_BATCH = 500000, LARGE_BATCH = 7900000, TAIL = 1000 };	/* together more than is staged */

/*
 * room_to_stage and produce_write_all: a batch for which there is no room behind what was staged in the same turn. With
 * flush_interval = off nothing else wakes its producer.
 */
START_TEST(stalled_producer_is_woken)
{
	struct wire_bytes small = { 0 }, large = { 0 };
	int other;
	pid_t worker;

	start(&(struct broker_config){ .log = "flush_interval = off\n" });
	settle(fd, "t", 0);
	other = connect_settled("t", 0);
	worker = worker_of_t0();
	put_written(&small, 1, "t", 0, SMALL_BATCH);
	put_written(&large, 2, "t", 0, LARGE_BATCH);
	/* Both are complete in one turn, the small one first. */
	ck_assert_int_eq(wire_send(fd, small.data, small.length - TAIL), 0);
	ck_assert_int_eq(wire_send(other, large.data, large.length - TAIL), 0);
	wait_read(fd);
	wait_read(other);
	broker_freeze_worker(&broker, worker);
	ck_assert_int_eq(wire_send(fd, small.data + small.length - TAIL, TAIL), 0);
	ck_assert_int_eq(wire_send(other, large.data + large.length - TAIL, TAIL), 0);
	broker_thaw_worker(&broker, worker);
	ck_assert_int_eq(wire_expect(fd, 1), 0);
	ck_assert_int_eq(wire_expect(other, 2), 0);
	/* One behind the other on one connection. */
	wire_put(&small, large.data, large.length);
	ck_assert_int_eq(wire_send(fd, small.data, small.length), 0);
	ck_assert_int_eq(wire_expect(fd, 1), 0);
	ck_assert_int_eq(wire_expect(fd, 2), 0);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), 4);
	wire_bytes_free(&small);
	wire_bytes_free(&large);
	close(other);
	finish();
}
END_TEST

/* ---- buffer_bytes ---------------------------------------------------------------------------------------------- */

enum { INNOCENTS = 3, INNOCENT_BYTES = 100000 };

/* Connections of their own, each with half a frame that the broker has read. */
static void
begin_frames(int *fds, const char *topic, size_t bytes)
{
	struct wire_bytes frame = { 0 };

	put_written(&frame, 1, topic, 0, bytes);
	for (int i = 0; i < INNOCENTS; i++) {
		fds[i] = connect_settled(topic, 0);
		ck_assert_int_eq(wire_send(fds[i], frame.data, frame.length / 2), 0);
	}
	for (int i = 0; i < INNOCENTS; i++)
		wait_read(fds[i]);
	wire_bytes_free(&frame);
}

static void
end_frames(int *fds, const char *topic, size_t bytes)
{
	struct wire_bytes frame = { 0 };

	put_written(&frame, 1, topic, 0, bytes);
	for (int i = 0; i < INNOCENTS; i++) {
		wire_send(fds[i], frame.data + frame.length / 2, frame.length - frame.length / 2);
		ck_assert_msg(wire_expect(fds[i], 1) == 0, "a half frame was cut, although little was buffered");
	}
	close_all(fds, INNOCENTS);
	wire_bytes_free(&frame);
}

static bool
little_is_buffered(void *with)
{
	double bytes = broker_metric(&broker, "logbroker_buffered_bytes", NULL);

	(void)with;
	return bytes >= 0 && bytes < INNOCENTS * INNOCENT_BYTES;
}

enum { ONCE_LARGE = 12 };

/* intake_serve: the buffer of a large frame goes when the frame has been executed. */
START_TEST(idle_connections_buffer_nothing)
{
	int large[ONCE_LARGE], innocents[INNOCENTS];

	start(&(struct broker_config){ .broker = "max_frame_bytes = 1MiB\nbuffer_bytes = 4MiB\n" });
	for (int i = 0; i < ONCE_LARGE; i++) {
		large[i] = connect_settled("t", 0);
		produce_zeros(large[i], "t", 0, 1000000);
	}
	begin_frames(innocents, "t", INNOCENT_BYTES);
	/* Whatever is too much now has been dealt with when this is answered. */
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), ONCE_LARGE);
	settle(fd, "t", 0);
	ck_assert(broker_wait(little_is_buffered, NULL, SOON_MS));
	end_frames(innocents, "t", INNOCENT_BYTES);
	for (int i = 0; i < ONCE_LARGE; i++)
		produce_zeros(large[i], "t", 0, 1);
	close_all(large, ONCE_LARGE);
	finish();
}
END_TEST

enum { ROLLING = 6, ROLLING_BATCH = 50000 };

/* produce_execute: what is staged behind rolls cannot be freed by closing connections, so none is closed for it. */
START_TEST(staged_batches_cost_no_connection)
{
	int rolling[ROLLING], innocents[INNOCENTS];

	start_with_badsync((struct broker_config){ .topics = "t = 6\nfree = 1\n", .workers = 1,
	    .broker = "max_frame_bytes = 64KiB\nbuffer_bytes = 256KiB\n",
	    .log = "segment_bytes = 64KiB\nflush_interval = off\n" });
	for (int i = 0; i < ROLLING; i++) {
		rolling[i] = connect_broker();
		produce_zeros(rolling[i], "t", i, ROLLING_BATCH);
	}
	procs_let_barriers(&broker, "hold");
	for (int i = 0; i < ROLLING; i++) {
		struct wire_bytes frame = { 0 };

		put_written(&frame, 2, "t", i, ROLLING_BATCH);
		send_frame(rolling[i], &frame);
		wait_read(rolling[i]);
	}
	begin_frames(innocents, "free", 20000);
	settle(fd, "free", 0);
	end_frames(innocents, "free", 20000);
	for (int i = 0; i < ROLLING; i++)
		ck_assert(wire_silent(rolling[i], 0));
	procs_let_barriers(&broker, "work");
	for (int i = 0; i < ROLLING; i++)
		ck_assert_int_eq(wire_expect(rolling[i], 2), 0);
	close_all(rolling, ROLLING);
	finish();
}
END_TEST

enum { HOLDERS = 64, BEHIND_THE_HOLD = 50000 };

static bool
buffer_bytes_kept(void *with)
{
	double bytes = broker_metric(&broker, "logbroker_buffered_bytes", NULL);

	return bytes >= 0 && bytes <= *(int *)with;
}

/* choose_victim: what was read behind a held FETCH counts, and can be given back only by closing that connection. */
START_TEST(buffer_bytes_reaches_held_connections)
{
	static int clients[HOLDERS];
	struct wire_bytes frames = { 0 };
	int limit = MIB, closed, answered = 0;
	pid_t worker;

	start(&(struct broker_config){ .broker = "max_frame_bytes = 256KiB\nbuffer_bytes = 1MiB\n" });
	worker = worker_of_t0();
	wire_put_fetch(&frames, 7, "t", 0, 0, MIB, 60000, 1);
	put_written(&frames, 8, "t", 0, 200000);
	for (int i = 0; i < HOLDERS; i++)
		clients[i] = connect_settled("t", 0);
	/* Frozen, so that one read gets the FETCH and what is behind it. */
	broker_freeze_worker(&broker, worker);
	for (int i = 0; i < HOLDERS; i++)
		ck_assert_int_eq(send(clients[i], frames.data, BEHIND_THE_HOLD, MSG_DONTWAIT), BEHIND_THE_HOLD);
	broker_thaw_worker(&broker, worker);
	closed = HOLDERS - limit / BEHIND_THE_HOLD;
	ck_assert(broker_wait_metric_least(&broker, "logbroker_connections_overflowed_total", NULL, closed, SOON_MS));
	ck_assert(broker_wait(buffer_bytes_kept, &limit, SOON_MS));
	/* No more than that; the others are held. */
	closed = (int)broker_metric(&broker, "logbroker_connections_overflowed_total", NULL);
	ck_assert_int_lt(closed, HOLDERS);
	produce_zeros(fd, "t", 0, 1);
	for (int i = 0; i < HOLDERS; i++)
		if (wire_expect(clients[i], 7) == 0)
			answered++;
	ck_assert_int_eq(answered, HOLDERS - closed);
	close_all(clients, HOLDERS);
	wire_bytes_free(&frames);
	finish();
}
END_TEST

/* ---- request_timeout -------------------------------------------------------------------------------------------- */

enum { STALL_TIMEOUT_MS = 2000, PAUSE_MS = 1200, BETWEEN_BYTES = 16 * MIB, MOST_BYTES = 64 * MIB, STEP_BYTES = 3 * MIB,
	LARGEST_FETCHES = 12, VERY_NARROW_BYTES = 4096 };

/* Reads nothing for most of request_timeout. False when this machine is too busy to wake us up in time. */
static bool
pause_reading(int client)
{
	int64_t began = wire_now_ms();

	wait_output_blocked(client);
	while (wire_now_ms() < began + PAUSE_MS)
		usleep(10000);
	if (wire_now_ms() < began + STALL_TIMEOUT_MS * 9 / 10)
		return true;
	procs_skipped("pauses_of_a_reader_do_not_add_up", "this machine is too busy");
	return false;
}

/* Reads on until so many bytes, from the first one on, are there. */
static void
read_on(int client, struct wire_bytes *answers, size_t bytes)
{
	static uint8_t piece[256 * 1024];

	while (answers->length < bytes) {
		size_t left = bytes - answers->length;
		long got = wire_receive(client, piece, left < sizeof piece ? left : sizeof piece, SOON_MS);

		ck_assert_msg(got > 0, "cut after %zu bytes", answers->length);
		wire_put(answers, piece, (size_t)got);
	}
}

/* What the broker's end of this connection has sent and our kernel has not taken. */
static unsigned
sent_to_us(int client)
{
	struct sockaddr_in mine;
	socklen_t length = sizeof mine;
	unsigned local, remote, unsent, found = 0;
	char line[512];
	FILE *file = fopen("/proc/net/tcp", "re");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(getsockname(client, (struct sockaddr *)&mine, &length), 0);
	while (fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, " %*d: %*x:%x %*x:%x %*x %x:", &local, &remote, &unsent) == 3 &&
		    local == (unsigned)broker.port && remote == ntohs(mine.sin_port))
			found = unsent;
	fclose(file);
	return found;
}

/*
 * flush: whoever has read something has a whole request_timeout again. Two pauses, each most of it, with megabytes read at
 * full speed between them. In the second one no less is under way than in the first (so the receive buffer is small at
 * first), and only what was read meanwhile tells them from one long pause.
 */
START_TEST(pauses_of_a_reader_do_not_add_up)
{
	enum { PAYLOAD = 8 * MIB - 1000, ANSWER = 4 + 4 + 2 + 8 + 4 + 8 + PAYLOAD };	/* one record */
	struct wire_bytes frames = { 0 }, answers = { 0 };
	int client, wide = MIB;

	start(&(struct broker_config){ .broker = "request_timeout = 2s\n" });
	produce_zeros(fd, "t", 0, PAYLOAD);
	for (int i = 0; i < LARGEST_FETCHES; i++)
		wire_put_fetch_v1(&frames, i, "t", 0, 0, WIRE_PAYLOAD_MAX);
	client = connect_narrow(VERY_NARROW_BYTES);
	send_frame(client, &frames);
	if (pause_reading(client)) {
		unsigned first = sent_to_us(client);

		setsockopt(client, SOL_SOCKET, SO_RCVBUF, &wide, sizeof wide);
		for (size_t until = BETWEEN_BYTES; until < (size_t)MOST_BYTES; until += STEP_BYTES) {
			read_on(client, &answers, until);
			wait_output_blocked(client);
			if (sent_to_us(client) >= first)
				break;
		}
		if (pause_reading(client)) {
			read_on(client, &answers, (size_t)LARGEST_FETCHES * ANSWER);
			ck_assert(wire_silent(client, 0));
		}
	}
	wire_bytes_free(&answers);
	close(client);
	finish();
}
END_TEST

enum { SHORT_TIMEOUT_MS = 200, SLOW_FRAMES = 3 };

/* watch_half_frame: request_timeout runs for what the client has not sent, not for what waits until we have answered. */
START_TEST(complete_frames_wait_for_a_slow_barrier)
{
	struct wire_bytes frames[SLOW_FRAMES] = { { 0 } };
	int clients[SLOW_FRAMES];

	start_with_badsync((struct broker_config){ .topics = "t = 2\n", .broker = "request_timeout = 200ms\n",
	    .log = "flush_interval = off\n" });
	procs_let_barriers(&broker, "hold");
	for (int i = 0; i < SLOW_FRAMES; i++) {
		clients[i] = connect_settled("t", 0);
		wire_put_produce_one(&frames[i], 1, "t", 0, WIRE_FORCED, "forced", 6);
	}
	wire_put_metadata(&frames[0], 2, 2, NULL);	/* when its own answer is due */
	put_written(&frames[1], 2, "t", 1, 10);		/* in another worker */
	put_written(&frames[2], 2, "t", 1, 100000);
	for (int i = 0; i < SLOW_FRAMES; i++)
		send_frame(clients[i], &frames[i]);
	for (int i = 0; i < SLOW_FRAMES; i++)
		ck_assert_msg(wire_silent(clients[i], 2 * SHORT_TIMEOUT_MS), "client %d has an answer or was cut", i);
	procs_let_barriers(&broker, "work");
	for (int i = 0; i < SLOW_FRAMES; i++) {
		ck_assert_int_eq(wire_expect(clients[i], 1), 0);
		ck_assert_int_eq(wire_expect(clients[i], 2), 0);
	}
	close_all(clients, SLOW_FRAMES);
	finish();
}
END_TEST

/* ---- a force that fails in recovery ------------------------------------------------------------------------------ */

static int
produce_word(const char *topic, int32_t partition, int ack)
{
	int client = connect_broker();
	int error = wire_produce_one(client, topic, partition, ack, "word", 4, NULL);

	close(client);
	return error;
}

/* The first worker without `but`, when all are there. */
static pid_t
wait_new_worker(pid_t but)
{
	int64_t until = wire_now_ms() + SOON_MS;
	pid_t pids[BROKER_WORKERS_MAX];

	for (;;) {
		if (broker_workers(&broker, pids, BROKER_WORKERS_MAX) == 2)
			return pids[0] == but ? pids[1] : pids[0];
		ck_assert_int_lt(wire_now_ms(), until);
		usleep(1000);
	}
}

static void
kill_worker(pid_t worker)
{
	kill(worker, SIGKILL);
	ck_assert(procs_wait_dead(worker, SOON_MS));
}

static bool
first_can_be_read(void *unused)
{
	struct wire_fetched fetched = { 0 };
	int client = connect_broker();
	int error = wire_fetch(client, "t", 0, 0, 1000, 0, 0, &fetched);

	(void)unused;
	ck_assert(error == WIRE_STORAGE_FAILURE || (error == 0 && fetched.length >= 8 + 4));
	wire_fetched_free(&fetched);
	close(client);
	return error == 0;
}

static bool
takes_words(void *unused)
{
	(void)unused;
	return produce_word("t", 0, WIRE_FORCED) == 0;
}

/*
 * refuse_force: the kernel says success at the next attempt, while the pages are still not on the disk. So no process
 * goes on from there; the log is read from the disk, and until that works what was forced before can be read.
 */
START_TEST(failed_force_in_recovery_is_no_force)
{
	pid_t worker, other;

	start_with_badsync((struct broker_config){ .topics = "t = 2\n", .log = "flush_interval = off\n" });
	broker.workers_may_die = true;
	ck_assert_int_eq(produce_word("t", 0, WIRE_FORCED), 0);
	ck_assert_int_eq(produce_word("t", 0, WIRE_WRITTEN), 0);
	worker = worker_of_t0();
	other = broker_wait_worker_of(&broker, "t", 1, 0, SOON_MS);
	procs_let_barriers(&broker, "fail");
	kill_worker(worker);
	for (int i = 0; i < 2; i++) {
		/* Parked until there is a worker, which has then tried to recover. */
		ck_assert_int_eq(produce_word("t", 0, WIRE_FORCED), WIRE_STORAGE_FAILURE);
		ck_assert_int_eq(produce_word("t", 0, WIRE_WRITTEN), WIRE_STORAGE_FAILURE);
		ck_assert(broker_wait(first_can_be_read, NULL, BACK_MS));
		ck_assert(broker_wait_metric(&broker, "logbroker_partition_failed", "partition=\"0\"", 1, SOON_MS));
		kill_worker(wait_new_worker(other));
	}
	procs_let_barriers(&broker, "work");
	ck_assert(broker_wait(takes_words, NULL, BACK_MS));
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_failed", "partition=\"0\"", 0, SOON_MS));
	ck_assert_int_eq(produce_word("t", 1, WIRE_FORCED), 0);
	finish();
}
END_TEST

/* Where the log is opened again, a file is written beside it first. */
static bool
is_being_opened(void *unused)
{
	char path[BROKER_PATH_BYTES];

	(void)unused;
	broker_partition_path(&broker, "t", 0, 0, path, sizeof path);
	strcat(path, ".tmp");
	return access(path, F_OK) == 0;
}

/* The log has failed, and waits for the disk while it is opened again. */
static void
fail_and_begin_to_open(void)
{
	procs_let_barriers(&broker, "fail");
	ck_assert_int_eq(produce_word("t", 0, WIRE_FORCED), WIRE_STORAGE_FAILURE);
	procs_let_barriers(&broker, "hold");
	ck_assert(broker_wait(is_being_opened, NULL, BACK_MS));
	ck_assert_int_eq(produce_word("t", 0, WIRE_WRITTEN), WIRE_STORAGE_FAILURE);
	ck_assert(first_can_be_read(NULL));
	ck_assert_int_eq(produce_word("t", 1, WIRE_WRITTEN), 0);
}

START_TEST(a_worker_dies_or_stops_while_it_opens_a_failed_log)
{
	pid_t worker;

	start_with_badsync((struct broker_config){ .topics = "t = 2\n", .log = "flush_interval = off\n" });
	broker.workers_may_die = true;
	ck_assert_int_eq(produce_word("t", 0, WIRE_FORCED), 0);
	worker = worker_of_t0();
	fail_and_begin_to_open();
	kill_worker(worker);
	ck_assert_int_gt(broker_wait_worker_of(&broker, "t", 0, worker, SOON_MS), 0);
	procs_let_barriers(&broker, "work");
	ck_assert(broker_wait(takes_words, NULL, BACK_MS));
	/* What stops waits for it. */
	fail_and_begin_to_open();
	kill(broker.pid, SIGTERM);
	ck_assert(broker_wait_log(&broker, "stopping", SOON_MS));
	procs_let_barriers(&broker, "work");
	ck_assert_int_eq(broker_wait_exit(&broker, SOON_MS), 0);
	ck_assert(!is_being_opened(NULL));
	broker_restart(&broker, NULL);
	ck_assert_int_eq(produce_word("t", 0, WIRE_FORCED), 0);
	finish();
}
END_TEST

/*
 * Nobody else waits meanwhile, nor do readers of what is durable. And what is acknowledged as FORCED when it is back has had
 * a barrier of its own.
 */
START_TEST(bug_K1_K2_a_failed_log_is_opened_again)
{
	enum { PAIRS = 200 };
	struct wire_bytes frame = { 0 };
	struct wire_fetched fetched;
	int client;

	start_with_badsync((struct broker_config){ .topics = "t = 2\n", .workers = 1, .log = "flush_interval = off\n" });
	ck_assert_int_eq(produce_word("t", 0, WIRE_FORCED), 0);
	fail_and_begin_to_open();
	client = connect_broker();
	for (int i = 0; i < PAIRS; i++) {
		ck_assert_int_eq(wire_produce_one(client, "t", 1, WIRE_WRITTEN, "word", 4, NULL), 0);
		ck_assert_int_eq(wire_fetch(client, "t", 0, 0, 12, 0, 0, &fetched), 0);
		ck_assert_uint_eq(fetched.length, 12);
		wire_fetched_free(&fetched);
	}
	ck_assert(is_being_opened(NULL));
	procs_let_barriers(&broker, "work");
	ck_assert(broker_wait(takes_words, NULL, BACK_MS));
	procs_let_barriers(&broker, "hold");
	wire_put_produce_one(&frame, 1, "t", 0, WIRE_FORCED, "word", 4);
	send_frame(client, &frame);
	ck_assert(wire_silent(client, 300));
	procs_let_barriers(&broker, "work");
	ck_assert_int_eq(wire_expect(client, 1), 0);
	close(client);
	finish();
}
END_TEST

/* ---- a worker without a free descriptor -------------------------------------------------------------------------- */

enum { QUEUED = 4 };	/* one by one to both workers */

/* It can open nothing more. LeakSanitizer, which opens files at the end, is left out. */
static void
fill_descriptors(pid_t worker)
{
	procs_set_fd_limit(worker, procs_lowest_free_fd(worker));
}

/* Connections that it cannot take stand in its channel, ahead of whatever comes. */
static void
queue_connections(int *fds)
{
	for (int i = 0; i < QUEUED; i++)
		fds[i] = connect_broker();
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 1 + QUEUED, SOON_MS));
}

/* next_has_descriptors: a message without a descriptor needs no room. inbox_receive: nor must it wait for room. */
START_TEST(full_worker_stops)
{
	struct wire_bytes frame = { 0 };
	struct wire_fetched fetched;
	struct wire_answer answer;
	int queued[QUEUED];

	procs_traced_to_the_end();
	start(&(struct broker_config){ .topics = "t = 2\n", .broker = "drain_timeout = 1s\n" });
	settle(fd, "t", 0);
	fill_descriptors(worker_of_t0());
	wire_put_fetch(&frame, 7, "t", 0, 0, MIB, 60000, 1);
	send_frame(fd, &frame);
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, 1, SOON_MS));
	queue_connections(queued);
	ck_assert_int_lt(broker_stop(&broker), 5000);
	ck_assert_int_eq(broker_count_log(&broker, "has not stopped"), 0);
	/* And in order. */
	ck_assert_int_eq(wire_read_answer(fd, &answer, SOON_MS), 0);
	ck_assert_int_eq(answer.error, 0);
	ck_assert_int_eq(wire_parse_fetched(&answer, &fetched), 0);
	ck_assert_uint_eq(fetched.length, 0);
	wire_answer_free(&answer);
	close_all(queued, QUEUED);
	close(fd);
	broker_end(&broker);
}
END_TEST

START_TEST(full_worker_ends_with_its_supervisor)
{
	int queued[QUEUED];
	pid_t worker;

	procs_traced_to_the_end();
	start(&(struct broker_config){ .topics = "t = 2\n" });
	settle(fd, "t", 0);
	worker = worker_of_t0();
	fill_descriptors(worker);
	queue_connections(queued);
	kill(broker.pid, SIGKILL);
	ck_assert_msg(broker_wait_gone(worker, SOON_MS), "the worker does not notice that its supervisor is gone");
	ck_assert_int_eq(broker_wait_exit(&broker, SOON_MS), 128 + SIGKILL);
	close_all(queued, QUEUED);
	close(fd);
	/* Nothing holds the lock. */
	broker_restart(&broker, NULL);
	fd = connect_broker();
	settle(fd, "t", 0);
	finish();
}
END_TEST

/* put_off: what must be handed over in a memfd waits for a descriptor; the client need not know. */
START_TEST(moves_when_there_is_a_descriptor)
{
	enum { BYTES = 60000, FIRST = 40000 };	/* FIRST: more than travels in the message itself */
	struct wire_bytes frame = { 0 };
	pid_t worker;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	settle(fd, "t", 0);
	worker = worker_of_t0();
	put_written(&frame, 5, "t", 1, BYTES);
	broker_freeze_worker(&broker, worker);
	ck_assert_int_eq(wire_send(fd, frame.data, FIRST), 0);
	fill_descriptors(worker);
	broker_thaw_worker(&broker, worker);
	ck_assert_msg(broker_wait_log(&broker, "waits to be handed to group 1", SOON_MS), "it was cut, or moved all the same");
	ck_assert_msg(wire_silent(fd, 100), "it was cut");
	procs_set_fd_limit(worker, 0);
	ck_assert_int_eq(wire_send(fd, frame.data + FIRST, frame.length - FIRST), 0);
	ck_assert_int_eq(wire_expect(fd, 5), 0);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 1), 1);
	wire_bytes_free(&frame);
	finish();
}
END_TEST

/* ---- readers of what is not in memory ----------------------------------------------------------------------------- */

enum {
	COLD_SEGMENTS = 64,	/* more than stay open: each read has to open one */
	GREEDY_SEGMENTS = 40,
	COLD_RECORD_BYTES = 900,	/* one in a segment of 1 KiB */
	COLD_FETCHES = 2000,
	FAIR_FETCHES = 20,
};

/* Of the oldest segments: the youngest ones are open. */
static void
put_cold_fetches(struct wire_bytes *frames, int count)
{
	for (int i = 0; i < count; i++)
		wire_put_fetch_v1(frames, i, "t", 0, i * 17 % GREEDY_SEGMENTS, 1);
}

/* How many complete answers have come until `other` has something to read? */
static int
answers_until_other(int socket_fd, int other)
{
	struct pollfd sockets[] = { { .fd = other, .events = POLLIN }, { .fd = socket_fd, .events = POLLIN } };
	struct wire_answer answer;
	int count = 0;

	for (;;) {
		ck_assert_int_gt(poll(sockets, 2, SOON_MS), 0);
		if (sockets[0].revents != 0)
			return count;
		ck_assert_int_eq(wire_read_answer(socket_fd, &answer, SOON_MS), 0);
		ck_assert_int_eq(answer.error, 0);
		wire_answer_free(&answer);
		count++;
	}
}

/* conn_resume_all: whoever has waited longest for a segment goes first; a client that asks on and on is no reason to wait. */
START_TEST(cold_readers_take_turns)
{
	struct wire_bytes frames = { 0 };
	int greedy, modest;
	pid_t worker;

	start(&(struct broker_config){ .log = "segment_bytes = 1KiB\n" });
	for (int i = 0; i < COLD_SEGMENTS; i++)
		produce_zeros(fd, "t", 0, COLD_RECORD_BYTES);
	greedy = connect_settled("t", 0);
	modest = connect_settled("t", 0);
	worker = broker_worker_of(&broker, "t", 0);
	broker_freeze_worker(&broker, worker);
	put_cold_fetches(&frames, COLD_FETCHES);
	send_frame(greedy, &frames);
	wire_put_fetch_v1(&frames, 7, "t", 0, GREEDY_SEGMENTS, 1);
	send_frame(modest, &frames);
	broker_thaw_worker(&broker, worker);
	ck_assert_int_lt(answers_until_other(greedy, modest), FAIR_FETCHES);
	ck_assert_int_eq(wire_expect(modest, 7), 0);
	close(greedy);
	close(modest);
	finish();
}
END_TEST

/* ---- a worker that is replaced ------------------------------------------------------------------------------------ */

enum { FRESH = 8 };

/* One that does not read the answer in whose middle it is stays with the old worker; everybody else is with the new one. */
START_TEST(D03_a_slow_reader_keeps_nobody_waiting)
{
	struct wire_bytes frames = { 0 };
	int stalled, held;
	pid_t worker;

	start(&(struct broker_config){ .topics = "t = 2\n", .broker = "drain_timeout = 1min\n" });
	broker.workers_may_die = true;
	produce_zeros(fd, "t", 0, BIG_BYTES);
	worker = worker_of_t0();
	stalled = connect_narrow(NARROW_BYTES);
	put_big_fetches(&frames, PIPELINED);
	send_frame(stalled, &frames);
	wait_output_blocked(stalled);
	held = connect_settled("t", 0);
	wire_put_fetch(&frames, 7, "t", 0, 1, MIB, 60000, 1);
	send_frame(held, &frames);
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, 1, SOON_MS));
	kill(worker, SIGTERM);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_restarts_total", "reason=\"requested\"", 1, SOON_MS));
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, 1, SOON_MS));
	for (int i = 0; i < FRESH; i++) {
		struct wire_answer answer;
		int fresh = connect_broker();

		wire_put_metadata(&frames, i, 2, NULL);
		send_frame(fresh, &frames);
		ck_assert_msg(wire_read_answer(fresh, &answer, SOON_MS) == 0, "fresh client %d waits for a worker that ends", i);
		ck_assert_int_eq(answer.error, 0);
		wire_answer_free(&answer);
		close(fresh);
	}
	ck_assert_msg(kill(worker, 0) == 0, "the old worker has ended with an answer half sent");
	produce_zeros(fd, "t", 0, 10);
	ck_assert_int_eq(wire_expect(held, 7), 0);
	expect_big_answers(stalled, PIPELINED);
	ck_assert(procs_wait_dead(worker, SOON_MS));
	ck_assert_int_eq(wire_high_watermark(stalled, "t", 0), 2);
	close(stalled);
	close(held);
	finish();
}
END_TEST

/*
 * read_ahead: at the end of drain_timeout a worker stops, although a client is being sent what a slow disk has yet to read: 12
 * MiB in pieces of 256 KiB, for each of which it takes a second and more.
 */
START_TEST(a_slow_disk_does_not_outlast_drain_timeout)
{
	struct wire_bytes frames = { 0 };

	start_with_badsync((struct broker_config){ .broker = "drain_timeout = 1s\n" });
	produce_zeros(fd, "t", 0, BIG_BYTES);
	procs_let_barriers(&broker, "cold");
	put_big_fetches(&frames, PIPELINED);
	send_frame(fd, &frames);
	ck_assert_int_gt(wire_receive(fd, (uint8_t[1]){ 0 }, 1, SOON_MS), 0);
	ck_assert_int_lt(broker_stop(&broker), 5000);
	ck_assert_int_eq(broker_count_log(&broker, "has not stopped"), 0);
	close(fd);
	broker_end(&broker);
}
END_TEST

static Suite *
suite(void)
{
	Suite *all = suite_create("regressions");
	TCase *ends = tcase_create("ends of connections");
	TCase *limits = tcase_create("limits and waiting");
	TCase *processes = tcase_create("processes");
	TCase *cases[] = { ends, limits, processes };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		tcase_set_timeout(cases[i], 120.0);
		suite_add_tcase(all, cases[i]);
	}
	tcase_add_test(ends, half_closed_with_blocked_output);
	tcase_add_test(ends, reset_right_behind_data);
	tcase_add_test(ends, reset_under_back_pressure);
	tcase_add_test(limits, stalled_producer_is_woken);
	tcase_add_test(limits, idle_connections_buffer_nothing);
	tcase_add_test(limits, staged_batches_cost_no_connection);
	tcase_add_test(limits, buffer_bytes_reaches_held_connections);
	tcase_add_test(limits, pauses_of_a_reader_do_not_add_up);
	tcase_add_test(limits, complete_frames_wait_for_a_slow_barrier);
	tcase_add_test(limits, cold_readers_take_turns);
	tcase_add_test(processes, failed_force_in_recovery_is_no_force);
	tcase_add_test(processes, a_worker_dies_or_stops_while_it_opens_a_failed_log);
	tcase_add_test(processes, bug_K1_K2_a_failed_log_is_opened_again);
	tcase_add_test(processes, full_worker_stops);
	tcase_add_test(processes, full_worker_ends_with_its_supervisor);
	tcase_add_test(processes, moves_when_there_is_a_descriptor);
	tcase_add_test(processes, D03_a_slow_reader_keeps_nobody_waiting);
	tcase_add_test(processes, a_slow_disk_does_not_outlast_drain_timeout);
	return all;
}

int
main(void)
{
	return broker_main(suite());
}
