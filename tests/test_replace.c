/*
 * A worker is replaced while it serves: what its clients are just doing goes on in the next process as if nothing had
 * happened. Each test puts connections into one special state, has the worker replaced (SIGTERM asks for that), and
 * finishes in the new process what was begun in the old one. All of it in both write modes.
 */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum {
	CHANGE_MS = 30000,
	ANSWER_MS = 90000,	/* megabytes through a small window, on a busy machine */
	ANSWER_BYTES = 8 * 1000 * 1000,	/* of the records behind which a slow reader is */
	RECORD_BYTES = 1000 * 1000,
	FRAME_BYTES = 3 * 1000 * 1000,
};

static struct broker broker;

/* One worker: the owner of everything is replaced. */
static void
start(const char *keys, const char *log)
{
	struct broker_config config = { .workers = 1, .topics = "t = 2\n", .broker = keys, .log = log };

	broker_start(&broker, &config);
	broker.workers_may_die = true;
}

static void
stop(void)
{
	broker_stop(&broker);
	ck_assert_int_eq(broker_count_log(&broker, "killing it"), 0);
	ck_assert_int_eq(broker_count_log(&broker, "is recovered"), 0);
	broker_end(&broker);
}

static pid_t
owner(void)
{
	pid_t pid = broker_wait_worker_of(&broker, "t", 0, 0, CHANGE_MS);

	ck_assert_int_gt(pid, 0);
	return pid;
}

struct change {
	long before;	/* workers that have said that they serve */
};

static bool
has_served(void *change)
{
	return broker_count_log(&broker, ": serving ") > ((struct change *)change)->before;
}

/* Asks this worker for its replacement, and waits until that serves. The old one may still have answers to send. */
static void
replace(pid_t pid)
{
	struct change change = { broker_count_log(&broker, ": serving ") };

	ck_assert_int_eq(kill(pid, SIGTERM), 0);
	ck_assert_msg(broker_wait(has_served, &change, CHANGE_MS), "pid %d has not been replaced", (int)pid);
}

static int
connect_to(void)
{
	int fd = wire_connect_tcp(broker.port);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void
produce(int fd, const char *text, int64_t offset)
{
	int64_t base = -1;

	ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_WRITTEN, text, strlen(text), &base), 0);
	ck_assert_int_eq(base, offset);
}

static void
send_fetch(int fd, int32_t id, int64_t offset, int32_t max_wait_ms, int32_t min_bytes)
{
	struct wire_bytes request = { 0 };

	wire_put_fetch(&request, id, "t", 0, offset, WIRE_PAYLOAD_MAX, max_wait_ms, min_bytes);
	ck_assert_int_eq(wire_send(fd, request.data, request.length), 0);
	wire_bytes_free(&request);
}

/* The answer to a FETCH: its error code, with the records in it counted. */
static int
take_fetched(int fd, int32_t id, long *records)
{
	struct wire_answer answer = { 0 };
	struct wire_fetched fetched = { 0 };
	int error = wire_read_answer(fd, &answer, ANSWER_MS);

	if (error != 0)
		return error;
	ck_assert_int_eq(answer.id, id);
	error = answer.error;
	if (error == 0) {
		ck_assert_int_eq(wire_parse_fetched(&answer, &fetched), 0);
		*records = wire_count_records(fetched.payload, fetched.length, true);
		wire_fetched_free(&fetched);
	}
	wire_answer_free(&answer);
	return error;
}

/* The log of partition 0 holds these texts and nothing else. */
static void
check_log(int fd, const char *const *texts, int64_t count)
{
	struct wire_bytes log = { 0 };
	struct wire_record record;
	size_t position = 0;
	bool good;

	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), count);
	ck_assert_int_eq(wire_read_log(fd, "t", 0, 0, count, 1000000, true, &log), count);
	for (int64_t i = 0; i < count; i++) {
		ck_assert(wire_next_record(log.data, log.length, &position, true, &record, &good) && good);
		ck_assert_msg(record.length == strlen(texts[i]) && memcmp(record.payload, texts[i], record.length) == 0,
		    "offset %lld holds another record than \"%s\"", (long long)i, texts[i]);
	}
	wire_bytes_free(&log);
}

/* ---- requests that are not whole ----------------------------------------------------------------------------- */

static void
finish_half_frame(size_t payload_bytes, size_t first_bytes)
{
	uint8_t *payload = calloc(1, payload_bytes);
	struct wire_bytes request = { 0 };
	int fd, other;

	start(NULL, NULL);
	memset(payload, 'h', payload_bytes);
	fd = connect_to();
	other = connect_to();
	produce(fd, "before", 0);
	wire_put_produce_one(&request, 7, "t", 0, WIRE_FORCED, payload, payload_bytes);
	ck_assert_int_eq(wire_send(fd, request.data, first_bytes), 0);
	ck_assert(procs_wait_read(fd, CHANGE_MS));
	replace(owner());
	produce(other, "between", 1);
	ck_assert_int_eq(wire_send(fd, request.data + first_bytes, request.length - first_bytes), 0);
	ck_assert_int_eq(wire_expect(fd, 7), 0);
	produce(fd, "behind", 3);
	wire_bytes_free(&request);
	free(payload);
	close(fd);
	close(other);
	stop();
}

START_TEST(D03_half_a_frame_travels_inline)
{
	finish_half_frame(5000, 100);
}
END_TEST

START_TEST(D03_half_a_frame_travels_in_a_memfd)
{
	finish_half_frame(FRAME_BYTES, FRAME_BYTES / 2);
}
END_TEST

/* As a half-read frame that is replaced twice: what came in a memfd travels on in it. */
START_TEST(D03_half_a_frame_travels_twice)
{
	uint8_t *payload = calloc(1, FRAME_BYTES);
	struct wire_bytes request = { 0 };
	pid_t pid;
	int fd;

	start(NULL, NULL);
	fd = connect_to();
	memset(payload, 'h', FRAME_BYTES);
	wire_put_produce_one(&request, 7, "t", 0, WIRE_WRITTEN, payload, FRAME_BYTES);
	for (size_t at = 0, part = request.length / 3 + 1; at < request.length; at += part) {
		pid = owner();
		ck_assert_int_eq(wire_send(fd, request.data + at, part < request.length - at ? part : request.length - at), 0);
		ck_assert(procs_wait_read(fd, CHANGE_MS));
		replace(pid);
		ck_assert(broker_wait_gone(pid, CHANGE_MS));
	}
	ck_assert_int_eq(wire_expect(fd, 7), 0);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), 1);
	wire_bytes_free(&request);
	free(payload);
	close(fd);
	stop();
}
END_TEST

/* ---- held requests ------------------------------------------------------------------------------------------- */

static void
wait_held(int count)
{
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, count, CHANGE_MS));
}

START_TEST(D03_held_fetch_gets_data_that_comes_behind_the_change)
{
	static const char *const texts[] = { "before", "behind" };
	int fd, other;
	long records = 0;

	start(NULL, NULL);
	fd = connect_to();
	other = connect_to();
	produce(fd, texts[0], 0);
	send_fetch(fd, 5, 1, 30000, 1);
	wait_held(1);
	replace(owner());
	produce(other, texts[1], 1);
	ck_assert_int_eq(take_fetched(fd, 5, &records), 0);
	ck_assert_int_eq(records, 1);
	wait_held(0);
	check_log(fd, texts, 2);
	close(fd);
	close(other);
	stop();
}
END_TEST

/* Neither shorter than it was asked for, nor begun anew. */
START_TEST(D03_held_fetch_ends_when_it_was_to_end)
{
	enum { WAIT_MS = 2000, CHANGES = 2 };
	int64_t began_ms, took_ms;
	long records = -1;
	pid_t pid;
	int fd;

	start(NULL, NULL);
	fd = connect_to();
	produce(fd, "before", 0);
	began_ms = wire_now_ms();
	send_fetch(fd, 5, 1, WAIT_MS, 1);
	ck_assert(procs_wait_read(fd, CHANGE_MS));
	for (int i = 0; i < CHANGES; i++) {
		pid = owner();
		replace(pid);
		ck_assert(broker_wait_gone(pid, CHANGE_MS));
	}
	ck_assert_int_eq(take_fetched(fd, 5, &records), 0);
	took_ms = wire_now_ms() - began_ms;
	ck_assert_int_eq(records, 0);
	ck_assert_int_ge(took_ms, WAIT_MS);
	produce(fd, "behind", 1);
	close(fd);
	stop();
}
END_TEST

/* And the clocks of retention and of a segment's age go on from when its records were written. */
START_TEST(D03_held_fetch_is_told_of_retention_behind_the_change)
{
	long records = -1;
	int fd;

	start(NULL, "retention_age = 1s\nretention_check_interval = 20ms\n");
	fd = connect_to();
	produce(fd, "old", 0);
	send_fetch(fd, 5, 0, 30000, 1000000);
	ck_assert(procs_wait_read(fd, CHANGE_MS));
	replace(owner());
	ck_assert_int_eq(take_fetched(fd, 5, &records), WIRE_OFFSET_OUT_OF_RANGE);
	ck_assert_int_eq(wire_log_start(fd, "t", 0), 1);
	produce(fd, "new", 1);
	close(fd);
	stop();
}
END_TEST

/* What the client has sent behind it is executed behind it: little, and so much that it needs a memfd. */
static void
hold_with_requests_behind(size_t payload_bytes)
{
	uint8_t *payload = calloc(1, payload_bytes);
	struct wire_bytes requests = { 0 };
	long records = 0;
	int fd, other;

	start(NULL, NULL);
	fd = connect_to();
	other = connect_to();
	memset(payload, 'b', payload_bytes);
	wire_put_fetch(&requests, 1, "t", 0, 0, 100000, 30000, 1);
	wire_put_produce_one(&requests, 2, "t", 0, WIRE_FORCED, payload, payload_bytes);
	wire_put_produce_one(&requests, 3, "t", 1, WIRE_WRITTEN, payload, payload_bytes);
	ck_assert_int_eq(wire_send(fd, requests.data, requests.length), 0);
	wait_held(1);
	replace(owner());
	produce(other, "first", 0);
	ck_assert_int_eq(take_fetched(fd, 1, &records), 0);
	ck_assert_int_eq(records, 1);
	ck_assert_int_eq(wire_expect(fd, 2), 0);
	ck_assert_int_eq(wire_expect(fd, 3), 0);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), 2);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 1), 1);
	wire_bytes_free(&requests);
	free(payload);
	close(fd);
	close(other);
	stop();
}

START_TEST(D03_requests_behind_a_held_fetch_travel_inline)
{
	hold_with_requests_behind(100);
}
END_TEST

START_TEST(D03_requests_behind_a_held_fetch_travel_in_a_memfd)
{
	hold_with_requests_behind(100 * 1000);
}
END_TEST

/* ---- large answers ------------------------------------------------------------------------------------------- */

/* Fills the partition so that an answer of it fits no socket; returns a connection to which that is being sent. */
static int
begin_large_answer(const struct wire_bytes *behind)
{
	uint8_t *payload = calloc(1, RECORD_BYTES);
	int small = 16 * 1024, filler = connect_to(), fd = connect_to();
	uint8_t some[1000];

	memset(payload, 'l', RECORD_BYTES);
	for (int i = 0; i < ANSWER_BYTES / RECORD_BYTES; i++)
		ck_assert_int_eq(wire_produce_one(filler, "t", 0, WIRE_WRITTEN, payload, RECORD_BYTES, NULL), 0);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
	send_fetch(fd, 9, 0, 0, 0);
	if (behind != NULL)
		ck_assert_int_eq(wire_send(fd, behind->data, behind->length), 0);
	ck_assert_int_eq(recv(fd, some, sizeof some, MSG_PEEK | MSG_WAITALL), sizeof some);
	free(payload);
	close(filler);
	return fd;
}

/* The rest of it is read as fast as it comes. */
static void
open_window(int fd)
{
	int large = 2 * 1024 * 1024;

	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &large, sizeof large), 0);
}

static void
read_answers(int fd, struct wire_bytes *in, size_t count, int32_t first_id)
{
	static uint8_t some[256 * 1024];
	struct wire_answer answer;
	size_t position = 0;

	open_window(fd);
	while (count > 0) {
		if (in->length > 0 && wire_next_answer(in, &position, &answer)) {
			ck_assert_int_eq(answer.id, first_id++);
			ck_assert_int_eq(answer.error, 0);
			count--;
		} else {
			long n = wire_receive(fd, some, sizeof some, WIRE_DEADLINE_MS);

			ck_assert_msg(n > 0, "the connection has ended: %ld", n);
			wire_put(in, some, (size_t)n);
		}
	}
}

/* What was sent behind it is not executed by the old worker, which has no log any more. */
START_TEST(D03_large_answer_is_sent_to_its_end)
{
	struct wire_bytes behind = { 0 };
	struct procs_tracer tracer = { 0 };
	bool traced = procs_may_trace() && !broker_is_asan();
	long records = 0;
	pid_t pid;
	int fd, other;

	start(NULL, NULL);
	wire_put_produce_one(&behind, 10, "t", 0, WIRE_FORCED, "behind", 6);
	fd = begin_large_answer(&behind);
	pid = owner();
	replace(pid);
	if (traced)
		procs_trace(&tracer, &broker, pid,
		    "-e trace=pwrite64,pwritev,fdatasync,fsync,ftruncate,fallocate,unlinkat,renameat,renameat2");
	other = connect_to();
	ck_assert_int_eq(wire_produce_one(other, "t", 0, WIRE_FORCED, "between", 7, NULL), 0);
	ck_assert_msg(kill(pid, 0) == 0, "the old worker ended before its answer was read");
	open_window(fd);
	ck_assert_int_eq(take_fetched(fd, 9, &records), 0);
	ck_assert_int_eq(records, ANSWER_BYTES / RECORD_BYTES);
	ck_assert_int_eq(wire_expect(fd, 10), 0);
	ck_assert(broker_wait_gone(pid, CHANGE_MS));
	if (traced) {
		procs_untrace(&tracer);
		ck_assert_int_eq(procs_count_lines(tracer.path, "(", NULL), 0);
	}
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), ANSWER_BYTES / RECORD_BYTES + 2);
	wire_bytes_free(&behind);
	close(fd);
	close(other);
	stop();
}
END_TEST

/* The broker stops meanwhile: what has been announced is sent all the same. */
START_TEST(D03_stop_while_the_old_worker_still_sends)
{
	struct wire_bytes in = { 0 };
	pid_t pid;
	int fd;

	start("drain_timeout = 60s\n", NULL);
	fd = begin_large_answer(NULL);
	pid = owner();
	replace(pid);
	ck_assert_int_eq(kill(broker.pid, SIGTERM), 0);
	ck_assert(broker_wait_log(&broker, "stopping", CHANGE_MS));
	ck_assert_int_eq(kill(pid, 0), 0);
	read_answers(fd, &in, 1, 9);
	ck_assert(wire_ended_orderly(fd, CHANGE_MS));
	ck_assert_int_eq(broker_wait_exit(&broker, CHANGE_MS), 0);
	wire_bytes_free(&in);
	close(fd);
	broker_end(&broker);
}
END_TEST

/* And so it is when its client asks for more and more: what nobody reads must not reset the connection. */
START_TEST(D03_stop_while_a_client_of_the_old_worker_asks_for_more)
{
	static uint8_t some[64 * 1024];
	struct wire_bytes in = { 0 }, more = { 0 };
	struct wire_answer answer;
	size_t position = 0;
	int fd;

	start("drain_timeout = 60s\n", NULL);
	fd = begin_large_answer(NULL);
	replace(owner());
	ck_assert_int_eq(kill(broker.pid, SIGTERM), 0);
	ck_assert(broker_wait_log(&broker, "stopping", CHANGE_MS));
	wire_put_fetch(&more, 10, "t", 0, 0, 1000, 0, 0);
	open_window(fd);
	while (in.length == 0 || !wire_next_answer(&in, &position, &answer)) {
		long n = wire_receive(fd, some, sizeof some, WIRE_DEADLINE_MS);

		ck_assert_msg(n > 0, "the connection has ended behind %zu bytes: %ld", in.length, n);
		wire_put(&in, some, (size_t)n);
		/* At last nobody is there any more, when the rest is in this socket. */
		wire_send(fd, more.data, more.length);
	}
	ck_assert_int_eq(answer.id, 9);
	ck_assert_int_eq(answer.error, 0);
	ck_assert_int_eq(broker_wait_exit(&broker, CHANGE_MS), 0);
	wire_bytes_free(&in);
	wire_bytes_free(&more);
	close(fd);
	broker_end(&broker);
}
END_TEST

START_TEST(D03_reader_that_does_not_read_is_cut_at_drain_timeout)
{
	double accepted;
	pid_t pid;
	int fd, other;

	start("drain_timeout = 1s\n", NULL);
	other = connect_to();
	fd = begin_large_answer(NULL);
	pid = owner();
	replace(pid);
	ck_assert(broker_wait_gone(pid, CHANGE_MS));
	ck_assert(broker_wait_log(&broker, "cut: 127.0.0.1:", CHANGE_MS));
	produce(other, "goes on", ANSWER_BYTES / RECORD_BYTES);
	/* The supervisor's counts know of it, and of one that ends with its worker. */
	ck_assert_int_eq(kill(owner(), SIGKILL), 0);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 0, CHANGE_MS));
	accepted = broker_metric(&broker, "logbroker_connections_accepted_total", NULL);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_closed_total", NULL, accepted, CHANGE_MS));
	close(other);
	close(fd);
	stop();
}
END_TEST

/* The supervisor itself takes nothing any more: what has no room on the way to it is cut, and counted. */
START_TEST(D03_what_the_supervisor_does_not_take_is_cut_at_drain_timeout)
{
	enum { CLIENTS = 40, KEPT_BYTES = 15000 };	/* 200 KiB fit */
	struct broker_config config = { .workers = 1, .topics = "t = 2\n", .broker = "drain_timeout = 1s\nlog_level = debug\n" };
	static uint8_t payload[2 * KEPT_BYTES];
	struct wire_bytes request = { 0 };
	int fds[CLIENTS], other;
	pid_t pid;

	procs_start_with_badsync(&broker, &config);
	broker.workers_may_die = true;
	pid = owner();
	other = connect_to();
	produce(other, "to be forced", 0);
	wire_put_produce_one(&request, 1, "t", 0, WIRE_WRITTEN, payload, sizeof payload);
	for (int i = 0; i < CLIENTS; i++) {
		fds[i] = connect_to();
		ck_assert_int_eq(wire_send(fds[i], request.data, KEPT_BYTES), 0);
		ck_assert(procs_wait_read(fds[i], CHANGE_MS));
	}
	procs_let_barriers(&broker, "hold");
	produce(other, "still to be forced", 1);
	ck_assert_int_eq(kill(pid, SIGTERM), 0);
	ck_assert(broker_wait_log(&broker, "draining: a replacement is ready", CHANGE_MS));
	broker_freeze(broker.pid);
	procs_let_barriers(&broker, "work");
	ck_assert(broker_wait_log(&broker, "drain_timeout is over: the supervisor takes nothing, and ", CHANGE_MS));
	ck_assert_int_eq(kill(broker.pid, SIGCONT), 0);
	ck_assert(broker_wait_gone(pid, CHANGE_MS));
	close(other);
	other = connect_to();
	produce(other, "goes on", 2);
	for (int i = 0; i < CLIENTS; i++)
		close(fds[i]);
	close(other);
	wire_bytes_free(&request);
	stop();
}
END_TEST

/* Takes what comes, slowly, until the change has come and for so long at least. */
static void
read_slowly(int fd, struct wire_bytes *in, struct change *change, int for_ms)
{
	uint8_t some[8 * 1024];

	for (int64_t until = wire_now_ms() + for_ms; wire_now_ms() < until || !has_served(change); usleep(10000)) {
		long n = wire_receive(fd, some, sizeof some, WIRE_DEADLINE_MS);

		ck_assert_msg(n > 0, "the connection has ended: %ld", n);
		wire_put(in, some, (size_t)n);
	}
}

/* request_timeout does not run against half a frame of which nothing more is read, since an answer must leave first. */
START_TEST(D03_half_a_frame_behind_a_slow_answer_is_not_overdue)
{
	struct wire_bytes request = { 0 }, in = { 0 };
	struct change change;
	pid_t pid;
	int fd;

	start("request_timeout = 2s\ndrain_timeout = 60s\n", NULL);
	wire_put_produce_one(&request, 10, "t", 0, WIRE_WRITTEN, "behind", 6);
	request.length -= 2;
	pid = owner();
	change.before = broker_count_log(&broker, ": serving ");
	fd = begin_large_answer(&request);
	ck_assert_int_eq(kill(pid, SIGTERM), 0);
	read_slowly(fd, &in, &change, 3000);
	ck_assert_int_eq(kill(pid, 0), 0);
	ck_assert_int_eq(wire_send(fd, request.data + request.length, 2), 0);
	read_answers(fd, &in, 2, 9);
	ck_assert(broker_wait_gone(pid, CHANGE_MS));
	wire_bytes_free(&request);
	wire_bytes_free(&in);
	close(fd);
	stop();
}
END_TEST

/* ---- producers that do not wait ------------------------------------------------------------------------------ */

enum { PRODUCERS = 3, PRODUCED = 1500, NUMBER_BYTES = 12 };

struct producer {
	pthread_t thread;
	int number;
	int64_t bases[PRODUCED];
	char wrong[128];
};

static atomic_int producing;

static void
check_bases(struct producer *producer, const struct wire_bytes *in)
{
	struct wire_answer answer;
	size_t position = 0;

	for (int i = 0; i < PRODUCED && producer->wrong[0] == '\0'; i++) {
		if (!wire_next_answer(in, &position, &answer) || answer.id != i || answer.error != 0 || answer.body_length != 16) {
			snprintf(producer->wrong, sizeof producer->wrong, "answer %d: id %d, error %d", i, answer.id, answer.error);
			break;
		}
		producer->bases[i] = wire_get_i64(answer.body);
	}
}

static void *
run_producer(void *argument)
{
	struct producer *producer = argument;
	struct wire_bytes out = { 0 }, in = { 0 };
	int fd = wire_connect_tcp(broker.port);

	for (int i = 0; i < PRODUCED; i++) {
		uint8_t payload[NUMBER_BYTES] = { 0 };

		wire_set_i32(payload, producer->number);
		wire_set_i64(payload + 4, i);
		wire_put_produce_one(&out, i, "t", 0, i % 2 == 0 ? WIRE_FORCED : WIRE_WRITTEN, payload, sizeof payload);
	}
	/* In pieces, so that it goes on through all the changes. */
	for (size_t at = 0, piece = out.length / 20 + 1; at < out.length; at += piece) {
		wire_send(fd, out.data + at, piece < out.length - at ? piece : out.length - at);
		usleep(30000);
	}
	if (wire_exchange(fd, NULL, 0, PRODUCED, &in, WIRE_DEADLINE_MS) != PRODUCED)
		snprintf(producer->wrong, sizeof producer->wrong, "not all answers have come");
	else
		check_bases(producer, &in);
	wire_bytes_free(&out);
	wire_bytes_free(&in);
	close(fd);
	producing--;
	return NULL;
}

/* Connects, asks and goes, again and again. */
static void *
run_newcomer(void *argument)
{
	struct producer *newcomer = argument;
	int64_t base;

	while (producing > 0 && newcomer->wrong[0] == '\0') {
		int fd = wire_connect_tcp(broker.port);
		int error = fd < 0 ? WIRE_LOST : wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "newcomer", 8, &base);

		if (error != 0 || base != newcomer->bases[0])
			snprintf(newcomer->wrong, sizeof newcomer->wrong, "error %d, offset %lld where %lld was due", error,
			    (long long)base, (long long)newcomer->bases[0]);
		newcomer->bases[0]++;
		close(fd);
	}
	return NULL;
}

static void
check_records(int fd, const struct producer *producers)
{
	struct wire_bytes log = { 0 };
	struct wire_record record;
	size_t position = 0;
	bool good;

	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), PRODUCERS * PRODUCED);
	ck_assert_int_eq(wire_read_log(fd, "t", 0, 0, PRODUCERS * PRODUCED, 1000000, true, &log), PRODUCERS * PRODUCED);
	for (int64_t offset = 0; offset < PRODUCERS * PRODUCED; offset++) {
		int64_t number, sequence;

		ck_assert(wire_next_record(log.data, log.length, &position, true, &record, &good) && good);
		number = wire_get_i32(record.payload);
		sequence = wire_get_i64((const uint8_t *)record.payload + 4);
		ck_assert_int_lt(number, PRODUCERS);
		ck_assert_int_lt(sequence, PRODUCED);
		ck_assert_int_eq(producers[number].bases[sequence], offset);
	}
	wire_bytes_free(&log);
}

/* Every record stands once, where its producer was told; and whoever comes meanwhile is served. */
START_TEST(D03_pipelined_producers_and_newcomers_do_not_notice)
{
	static struct producer producers[PRODUCERS], newcomer;
	int changes = 0, fd;

	start(NULL, "segment_bytes = 64KiB\nflush_interval = 5ms\n");
	memset(producers, 0, sizeof producers);
	memset(&newcomer, 0, sizeof newcomer);
	producing = PRODUCERS;
	for (int i = 0; i < PRODUCERS; i++) {
		producers[i].number = i;
		ck_assert_int_eq(pthread_create(&producers[i].thread, NULL, run_producer, &producers[i]), 0);
	}
	ck_assert_int_eq(pthread_create(&newcomer.thread, NULL, run_newcomer, &newcomer), 0);
	while (producing > 0) {
		pid_t pid = owner();

		replace(pid);
		ck_assert(broker_wait_gone(pid, CHANGE_MS));
		changes++;
	}
	for (int i = 0; i < PRODUCERS; i++) {
		pthread_join(producers[i].thread, NULL);
		ck_assert_msg(producers[i].wrong[0] == '\0', "producer %d: %s", i, producers[i].wrong);
	}
	pthread_join(newcomer.thread, NULL);
	ck_assert_msg(newcomer.wrong[0] == '\0', "newcomer: %s", newcomer.wrong);
	printf("D03_pipelined_producers_and_newcomers_do_not_notice: %d changes, %lld newcomers\n", changes,
	    (long long)newcomer.bases[0]);
	fd = connect_to();
	check_records(fd, producers);
	close(fd);
	stop();
}
END_TEST

/* ---- many connections --------------------------------------------------------------------------------------- */

/*
 * Room for as many descriptors as come at once when a crowd changes workers is there before: a worker has threads, and while
 * its kernel makes room, it stands still.
 */
START_TEST(D03_the_replacement_has_room_for_a_crowd)
{
	char path[64], *status;
	const char *size;

	start(NULL, NULL);
	replace(owner());
	snprintf(path, sizeof path, "/proc/%d/status", (int)owner());
	status = procs_read_file(path, NULL);
	size = strstr(status, "FDSize:");
	ck_assert_ptr_nonnull(size);
	ck_assert_int_ge(atoi(size + strlen("FDSize:")), 1024);
	free(status);
	stop();
}
END_TEST

/* ---- what is not forced -------------------------------------------------------------------------------------- */

/* The new one takes over the duty to force it, and everything counts on. */
START_TEST(D03_what_is_not_forced_is_the_replacements)
{
	struct broker_config config = { .workers = 1, .topics = "t = 1\n", .log = "flush_interval = off\n" };
	pid_t pid;
	int fd;

	broker_start(&broker, &config);
	broker.workers_may_die = true;
	fd = connect_to();
	for (int64_t i = 0; i < 20; i++) {
		produce(fd, "some record", i);
		if (i % 4 != 3)
			continue;
		pid = owner();
		replace(pid);
		ck_assert(broker_wait_gone(pid, CHANGE_MS));
	}
	ck_assert(broker_wait_metric(&broker, "logbroker_produced_records_total", NULL, 20, CHANGE_MS));
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_segments", NULL, 1, CHANGE_MS));
	close(fd);
	stop();
}
END_TEST

static void
add_tests(TCase *tc)
{
	tcase_set_timeout(tc, 120 * broker_scale());
	tcase_add_test(tc, D03_half_a_frame_travels_inline);
	tcase_add_test(tc, D03_half_a_frame_travels_in_a_memfd);
	tcase_add_test(tc, D03_half_a_frame_travels_twice);
	tcase_add_test(tc, D03_held_fetch_gets_data_that_comes_behind_the_change);
	tcase_add_test(tc, D03_held_fetch_ends_when_it_was_to_end);
	tcase_add_test(tc, D03_held_fetch_is_told_of_retention_behind_the_change);
	tcase_add_test(tc, D03_requests_behind_a_held_fetch_travel_inline);
	tcase_add_test(tc, D03_requests_behind_a_held_fetch_travel_in_a_memfd);
	tcase_add_test(tc, D03_large_answer_is_sent_to_its_end);
	tcase_add_test(tc, D03_stop_while_the_old_worker_still_sends);
	tcase_add_test(tc, D03_stop_while_a_client_of_the_old_worker_asks_for_more);
	tcase_add_test(tc, D03_reader_that_does_not_read_is_cut_at_drain_timeout);
	tcase_add_test(tc, D03_pipelined_producers_and_newcomers_do_not_notice);
	tcase_add_test(tc, D03_what_is_not_forced_is_the_replacements);
}

static Suite *
suite(void)
{
	Suite *s = suite_create("replace");
	TCase *tc = tcase_create("file"), *mapped = tcase_create("mapped");

	add_tests(tc);
	tcase_add_test(tc, D03_the_replacement_has_room_for_a_crowd);
	/* It takes its time, and knows nothing of files. */
	tcase_add_test(tc, D03_half_a_frame_behind_a_slow_answer_is_not_overdue);
	tcase_add_test(tc, D03_what_the_supervisor_does_not_take_is_cut_at_drain_timeout);
	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(mapped, broker_use_mapped, NULL);
	add_tests(mapped);
	suite_add_tcase(s, mapped);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
