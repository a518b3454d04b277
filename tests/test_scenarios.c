/*
 * The scenarios marked W of scenarios.md that are about appending, fetching and holding, and the bug reports beside them:
 * through the sockets of a really started broker with two workers. Loops grow with LOGBROKER_TEST_SCALE.
 *
 * Times are asserted only where they are promised: a wait is never shorter than asked for, a lost wake-up shows as an
 * answer that took as long as the whole (very long) wait.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <linux/sockios.h>
#include <unistd.h>

#include "broker.h"
#include "wire.h"

enum { LONG_WAIT_MS = 60000 };	/* of holds that something must end */

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

static void
send_frame(int socket_fd, struct wire_bytes *frame)
{
	ck_assert_int_eq(wire_send(socket_fd, frame->data, frame->length), 0);
	wire_bytes_free(frame);
}

/* Sends a FETCH v2 that asks for 1 MiB and for one byte at least. */
static void
send_hold(int socket_fd, int32_t id, const char *topic, int32_t partition, int64_t offset, int32_t wait_ms)
{
	struct wire_bytes frame = { 0 };

	wire_put_fetch(&frame, id, topic, partition, offset, 1 << 20, wait_ms, 1);
	send_frame(socket_fd, &frame);
}

/* Reads the answer of a FETCH with that id and error 0. */
static void
read_fetched(int socket_fd, int32_t id, struct wire_fetched *fetched)
{
	struct wire_answer answer;

	ck_assert_int_eq(wire_read_answer(socket_fd, &answer, 2 * LONG_WAIT_MS), 0);
	ck_assert_int_eq(answer.id, id);
	ck_assert_int_eq(answer.error, 0);
	ck_assert_int_eq(wire_parse_fetched(&answer, fetched), 0);
	wire_answer_free(&answer);
}

/* The payload must be exactly one record with these bytes. */
static void
expect_one_record(const struct wire_fetched *fetched, const void *payload, size_t length)
{
	struct wire_record record;
	size_t position = 0;

	ck_assert(wire_next_record(fetched->payload, fetched->length, &position, true, &record, NULL));
	ck_assert_uint_eq(position, fetched->length);
	ck_assert_uint_eq(record.length, length);
	ck_assert_mem_eq(record.payload, payload, length);
}

static void
expect_held(double count)
{
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, count, 30000));
}

/* ---- append and fetch ---------------------------------------------------------------------------------------- */

START_TEST(A07_offsets_of_a_batch)
{
	static const size_t sizes[] = { 1, 5, 1, 100, 1000, 2, 1 };
	struct wire_record records[1000];
	int64_t next[3] = { 0, 0, 0 };

	start(&(struct broker_config){ .topics = "t = 3\n" });
	for (size_t round = 0; round < sizeof sizes / sizeof *sizes; round++)
		for (int32_t partition = 0; partition < 3; partition++) {
			char payloads[1000][16];
			struct wire_fetched fetched;
			struct wire_record record;
			size_t position = 0;
			int64_t base;
			int64_t end;

			for (size_t i = 0; i < sizes[round]; i++) {
				records[i].payload = payloads[i];
				records[i].length = (size_t)snprintf(payloads[i], sizeof payloads[i], "%d %lld", partition,
				    (long long)next[partition] + (long long)i);
			}
			ck_assert_int_eq(wire_produce(fd, "t", partition, WIRE_WRITTEN, records, sizes[round], &base, &end), 0);
			ck_assert_int_eq(base, next[partition]);
			ck_assert_int_eq(end, base + (int64_t)sizes[round]);
			ck_assert_int_eq(wire_fetch(fd, "t", partition, base, 1 << 20, 0, 0, &fetched), 0);
			ck_assert_int_eq(fetched.high_watermark, end);
			for (size_t i = 0; i < sizes[round]; i++) {
				ck_assert(wire_next_record(fetched.payload, fetched.length, &position, true, &record, NULL));
				ck_assert_uint_eq(record.length, records[i].length);
				ck_assert_mem_eq(record.payload, records[i].payload, record.length);
			}
			ck_assert_uint_eq(position, fetched.length);
			wire_fetched_free(&fetched);
			next[partition] = end;
		}
	finish();
}
END_TEST

enum { PRODUCERS = 64, BATCHES = 25, BATCH = 4 };

struct producer {
	pthread_t thread;
	int number;
	int64_t bases[BATCHES];
};

static void *
run_producer(void *arg)
{
	struct producer *producer = arg;
	int socket_fd = connect_broker();

	for (int b = 0; b < BATCHES; b++) {
		char payloads[BATCH][48];
		struct wire_record records[BATCH];

		for (int i = 0; i < BATCH; i++) {
			records[i].payload = payloads[i];
			records[i].length = (size_t)snprintf(payloads[i], sizeof payloads[i], "%d.%d.%d", producer->number, b, i);
		}
		ck_assert_int_eq(wire_produce(socket_fd, "t", 1, b % 5 == 4 ? WIRE_FORCED : WIRE_WRITTEN, records, BATCH,
		    &producer->bases[b], NULL), 0);
	}
	close(socket_fd);
	return NULL;
}

START_TEST(A08_concurrent_producers)
{
	static struct producer producers[PRODUCERS];
	static char expected[PRODUCERS * BATCHES * BATCH][48];
	struct wire_bytes log = { 0 };
	struct wire_record record;
	size_t position = 0;

	start(&(struct broker_config){ .topics = "t = 2\n", .log = "segment_bytes = 32KiB\n" });
	for (int i = 0; i < PRODUCERS; i++) {
		producers[i].number = i;
		ck_assert_int_eq(pthread_create(&producers[i].thread, NULL, run_producer, &producers[i]), 0);
	}
	for (int i = 0; i < PRODUCERS; i++)
		pthread_join(producers[i].thread, NULL);
	/* Every offset belongs to exactly one batch. */
	for (int p = 0; p < PRODUCERS; p++)
		for (int b = 0; b < BATCHES; b++)
			for (int i = 0; i < BATCH; i++) {
				int64_t offset = producers[p].bases[b] + i;

				ck_assert_int_lt(offset, PRODUCERS * BATCHES * BATCH);
				ck_assert_int_eq(expected[offset][0], 0);
				snprintf(expected[offset], sizeof expected[offset], "%d.%d.%d", p, b, i);
			}
	ck_assert_int_eq(wire_high_watermark(fd, "t", 1), 6400);
	ck_assert_int_eq(wire_read_log(fd, "t", 1, 0, 6400, 100000, true, &log), 6400);
	for (int i = 0; i < 6400; i++) {
		ck_assert(wire_next_record(log.data, log.length, &position, true, &record, NULL));
		ck_assert_uint_eq(record.length, strlen(expected[i]));
		ck_assert_mem_eq(record.payload, expected[i], record.length);
	}
	wire_bytes_free(&log);
	finish();
}
END_TEST

/* ---- A09: barriers are shared -------------------------------------------------------------------------------- */

enum { FORCERS = 200, BARRIERS_MAX = 20 };

/* Connections that live in the worker of t/0, since they have asked it for something. */
static void
connect_forcers(int *fds)
{
	for (int i = 0; i < FORCERS; i++) {
		struct wire_fetched fetched;

		fds[i] = connect_broker();
		ck_assert_int_eq(wire_fetch(fds[i], "t", 0, 0, 1, 0, 0, &fetched), 0);
		wire_fetched_free(&fetched);
	}
}

static void
send_forced(int socket_fd, int32_t id)
{
	struct wire_bytes frame = { 0 };

	wire_put_produce_one(&frame, id, "t", 0, WIRE_FORCED, "forced", 6);
	send_frame(socket_fd, &frame);
}

/* True when the peer's kernel has everything that was sent. */
static bool
has_left(int socket_fd)
{
	int unsent = -1;

	return ioctl(socket_fd, SIOCOUTQ, &unsent) == 0 && unsent == 0;
}

/*
 * The number of barriers so far. The metrics may be a second old: they are up to date when they show all the requests that
 * this test has sent.
 */
static double
barriers(int requests)
{
	ck_assert(broker_wait_metric(&broker, "logbroker_requests_total", NULL, requests, 30000));
	return broker_metric(&broker, "logbroker_fsync_duration_seconds_count", NULL);
}

static void
expect_forced(int *fds)
{
	for (int i = 0; i < FORCERS; i++)
		ck_assert_int_eq(wire_expect(fds[i], i), 0);
}

static void
close_all(int *fds, int count)
{
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

static void
force_at_once(const struct broker_config *config)
{
	int fds[FORCERS];
	pid_t worker;
	double before;
	double count;
	long traced_before = 0;

	start(config);
	connect_forcers(fds);
	worker = broker_wait_worker_of(&broker, "t", 0, 0, 30000);
	ck_assert_int_gt(worker, 0);
	before = barriers(FORCERS);
	if (config->strace != NULL)
		traced_before = broker_count_strace(&broker, "sync(", "/t-0/");
	broker_freeze_worker(&broker, worker);
	for (int i = 0; i < FORCERS; i++)
		send_forced(fds[i], i);
	for (int i = 0; i < FORCERS; i++)
		while (!has_left(fds[i]))
			usleep(100);
	broker_thaw_worker(&broker, worker);
	expect_forced(fds);
	count = barriers(2 * FORCERS) - before;
	printf("A09: %d FORCED at once: %g barriers\n", FORCERS, count);
	ck_assert_double_ge(count, 1);
	ck_assert_double_le(count, BARRIERS_MAX);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), FORCERS);
	close_all(fds, FORCERS);
	if (config->strace != NULL) {
		long traced = broker_count_strace(&broker, "sync(", "/t-0/") - traced_before;

		ck_assert_int_ge(traced, 1);
		ck_assert_int_le(traced, BARRIERS_MAX);
	}
	finish();
}

START_TEST(A09_forced_at_once_share_barriers)
{
	force_at_once(&(struct broker_config){ .topics = "t = 2\n", .log = "flush_interval = off\n" });
}
END_TEST

START_TEST(A09_forced_at_once_counted_by_strace)
{
	if (!broker_have_strace()) {
		printf("A09: strace is not available\n");
		return;
	}
	force_at_once(&(struct broker_config){ .topics = "t = 2\n", .log = "flush_interval = off\n",
	    .strace = "-y -e trace=fdatasync,fsync,sync_file_range" });
}
END_TEST

enum { SLOW_MS = 5 };

static void
start_slow(void)
{
	static char preload[BROKER_PATH_BYTES + 16] = "LD_PRELOAD=";
	static const char *const environment[] = { preload, "SLOWSYNC_US=5000", NULL };

	broker_build_path("tests/slowsync.so", preload + 11, sizeof preload - 11);
	start(&(struct broker_config){ .topics = "t = 2\n", .log = "flush_interval = off\n", .environment = environment });
}

/*
 * Requests one by one, each on its own connection, while a barrier takes 5 ms: all that arrive while one runs wait for
 * the same next one. So what they cost is the time of their arrival in barriers, whatever their number.
 */
START_TEST(A09_forced_one_by_one_with_a_slow_barrier)
{
	int fds[FORCERS];
	double before;
	double count;
	int64_t began;
	int64_t sent;
	int64_t answered;

	start_slow();
	connect_forcers(fds);
	before = barriers(FORCERS);
	began = wire_now_ms();
	for (int i = 0; i < FORCERS; i++)
		send_forced(fds[i], i);
	sent = wire_now_ms();
	expect_forced(fds);
	answered = wire_now_ms();
	count = barriers(2 * FORCERS) - before;
	printf("A09: %d FORCED one by one in %lld ms: %g barriers, answered after %lld ms\n", FORCERS,
	    (long long)(sent - began), count, (long long)(answered - began));
	ck_assert_int_ge(answered - began, SLOW_MS);
	ck_assert_double_ge(count, 1);
	ck_assert_double_le(count, BARRIERS_MAX + (double)(sent - began) / SLOW_MS);
	/* One after the other they would have taken a second. */
	ck_assert_double_lt(count, FORCERS / 2);
	/* Never two at once. */
	ck_assert_double_le(count, 2 + (double)(answered - began) / SLOW_MS);
	close_all(fds, FORCERS);
	finish();
}
END_TEST

/* A connection shares barriers with itself: a PRODUCE that waits does not stop the one behind it. */
START_TEST(A09_forced_on_one_connection_share_barriers)
{
	struct wire_bytes frames = { 0 };
	struct wire_bytes answers = { 0 };
	struct wire_answer answer;
	size_t position = 0;
	double before;
	double count;

	start_slow();
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), 0);
	before = barriers(1);
	for (int i = 0; i < FORCERS; i++)
		wire_put_produce_one(&frames, i, "t", 0, WIRE_FORCED, "forced", 6);
	ck_assert_uint_eq(wire_exchange(fd, frames.data, frames.length, FORCERS, &answers, WIRE_DEADLINE_MS), FORCERS);
	for (int i = 0; i < FORCERS; i++) {
		ck_assert(wire_next_answer(&answers, &position, &answer));
		ck_assert_int_eq(answer.id, i);
		ck_assert_int_eq(answer.error, 0);
		ck_assert_int_eq(wire_get_i64(answer.body), i);
	}
	count = barriers(1 + FORCERS) - before;
	printf("A09: %d FORCED on one connection: %g barriers\n", FORCERS, count);
	ck_assert_double_ge(count, 1);
	ck_assert_double_le(count, BARRIERS_MAX);
	wire_bytes_free(&frames);
	wire_bytes_free(&answers);
	finish();
}
END_TEST

/* A barrier waits for nobody: WRITTEN beside FORCED is answered while the barrier runs, each in its connection's order. */
START_TEST(A09_a_barrier_stops_nobody_else)
{
	static char preload[BROKER_PATH_BYTES + 16] = "LD_PRELOAD=";
	static const char *const environment[] = { preload, "SLOWSYNC_US=200000", NULL };
	int other;

	broker_build_path("tests/slowsync.so", preload + 11, sizeof preload - 11);
	start(&(struct broker_config){ .topics = "t = 2\n", .log = "flush_interval = off\n", .environment = environment });
	other = connect_broker();
	ck_assert_int_eq(wire_high_watermark(other, "t", 0), 0);
	send_forced(fd, 7);
	for (int i = 0; i < 20; i++) {
		struct wire_fetched fetched;
		int64_t base;

		ck_assert_int_eq(wire_produce_one(other, "t", 0, WIRE_WRITTEN, "beside", 6, &base), 0);
		ck_assert_int_eq(wire_fetch(other, "t", 0, base, 100, 0, 0, &fetched), 0);
		ck_assert_uint_ge(fetched.length, 14);
		wire_fetched_free(&fetched);
	}
	ck_assert(wire_silent(fd, 0));
	ck_assert_int_eq(wire_expect(fd, 7), 0);
	close(other);
	finish();
}
END_TEST

/* ---- A10 to A18 ---------------------------------------------------------------------------------------------- */

static void
three_segments(bool kill_it)
{
	struct wire_bytes before = { 0 };
	struct wire_bytes after = { 0 };
	char payload[200];
	int64_t bases[10];
	int64_t base;

	start(&(struct broker_config){ .topics = "t = 2\n", .log = "segment_bytes = 1KiB\n" });
	for (int i = 0; i < 12; i++) {
		memset(payload, 'a' + i, sizeof payload);
		ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, payload, sizeof payload, &base), 0);
		ck_assert_int_eq(base, i);
	}
	ck_assert_int_eq(wire_read_log(fd, "t", 1, 0, 12, 500, true, &before), 12);
	for (int round = 0; round < 3; round++) {
		ck_assert_int_ge(broker_segments(&broker, "t", 1, bases, 10), 3);
		ck_assert_int_eq(bases[0], 0);
		ck_assert_int_eq(bases[1], 4);
		ck_assert_int_eq(bases[2], 8);
		close(fd);
		if (kill_it)
			broker_kill(&broker);
		else
			broker_stop(&broker);
		broker_restart(&broker, NULL);
		fd = connect_broker();
		ck_assert_int_eq(wire_log_start(fd, "t", 1), 0);
		ck_assert_int_eq(wire_high_watermark(fd, "t", 1), 12 + round);
		after.length = 0;
		ck_assert_int_eq(wire_read_log(fd, "t", 1, 0, 12 + round, 1 << 20, true, &after), 12 + round);
		ck_assert_uint_ge(after.length, before.length);
		ck_assert_mem_eq(after.data, before.data, before.length);
		ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "next", 4, &base), 0);
		ck_assert_int_eq(base, 12 + round);
		ck_assert_int_eq(wire_high_watermark(fd, "t", 0), 0);
	}
	wire_bytes_free(&before);
	wire_bytes_free(&after);
	finish();
}

START_TEST(A10_three_segments_after_a_restart)
{
	three_segments(false);
}
END_TEST

START_TEST(A10_three_segments_after_a_kill)
{
	three_segments(true);
}
END_TEST

START_TEST(A13_beyond_and_at_the_high_watermark)
{
	struct wire_fetched fetched;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	for (int64_t end = 0; end < 3; end++) {
		for (int32_t wait = 0; wait <= LONG_WAIT_MS; wait += LONG_WAIT_MS) {
			ck_assert_int_eq(wire_fetch(fd, "t", 1, end + 1, 100, wait, 0, &fetched), WIRE_OFFSET_OUT_OF_RANGE);
			ck_assert_int_eq(wire_fetch(fd, "t", 1, end + 1000, 100, wait, 1, &fetched), WIRE_OFFSET_OUT_OF_RANGE);
		}
		ck_assert_int_eq(wire_fetch(fd, "t", 1, end, 100, 0, 0, &fetched), 0);
		ck_assert_uint_eq(fetched.length, 0);
		ck_assert_int_eq(fetched.high_watermark, end);
		ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "x", 1, NULL), 0);
	}
	finish();
}
END_TEST

START_TEST(A14_cut_at_the_byte)
{
	struct wire_bytes log = { 0 };
	struct wire_bytes again = { 0 };
	char payload[300];
	int32_t largest = 8 + 150;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	for (int i = 0; i < 100; i++) {
		memset(payload, i, sizeof payload);
		ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, payload, 51 + (size_t)i, NULL), 0);
	}
	ck_assert_int_eq(wire_read_log(fd, "t", 1, 0, 100, 1 << 20, true, &log), 100);
	for (int32_t max = 1; max < (int32_t)log.length + 20; max += max < 400 ? 1 : 97) {
		struct wire_fetched fetched;

		ck_assert_int_eq(wire_fetch(fd, "t", 1, 0, max, 0, 0, &fetched), 0);
		ck_assert_uint_eq(fetched.length, max < (int32_t)log.length ? (size_t)max : log.length);
		ck_assert_mem_eq(fetched.payload, log.data, fetched.length);
		ck_assert_int_eq(fetched.high_watermark, 100);
		wire_fetched_free(&fetched);
	}
	/* The client drops the tail and asks again: it gets every record once. */
	for (int32_t max = largest; max < largest + 300; max += 13) {
		again.length = 0;
		ck_assert_int_eq(wire_read_log(fd, "t", 1, 0, 100, max, true, &again), 100);
		ck_assert_uint_eq(again.length, log.length);
		ck_assert_mem_eq(again.data, log.data, log.length);
	}
	wire_bytes_free(&log);
	wire_bytes_free(&again);
	finish();
}
END_TEST

/* The broker's half: it answers with the beginning of the record, from which a client knows its size; no hold, no error. */
START_TEST(A15_record_larger_than_max_bytes)
{
	char payload[10000];
	struct wire_fetched fetched;

	memset(payload, 'L', sizeof payload);
	start(&(struct broker_config){ .topics = "t = 2\n" });
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "small", 5, NULL), 0);
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, payload, sizeof payload, NULL), 0);
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "small", 5, NULL), 0);
	for (int32_t max = 1; max < 10008; max += max < 20 ? 1 : 999) {
		ck_assert_int_eq(wire_fetch(fd, "t", 1, 1, max, LONG_WAIT_MS, 1, &fetched), 0);
		ck_assert_uint_eq(fetched.length, (size_t)max);
		if (max >= 4)
			ck_assert_int_eq(wire_get_i32(fetched.payload), sizeof payload);
		ck_assert_int_eq(wire_count_records(fetched.payload, fetched.length, true), 0);
		wire_fetched_free(&fetched);
	}
	ck_assert_int_eq(wire_fetch(fd, "t", 1, 1, 10008, 0, 0, &fetched), 0);
	ck_assert_int_eq(wire_count_records(fetched.payload, fetched.length, true), 1);
	wire_fetched_free(&fetched);
	finish();
}
END_TEST

START_TEST(A16_fifty_calls_in_flight)
{
	enum { CALLS = 50 };
	uint64_t random = broker_seed("A16");

	start(&(struct broker_config){ .topics = "t = 3\nu = 2\n" });
	for (int round = 0; round < 20 * broker_scale(); round++) {
		struct wire_bytes frames = { 0 };
		struct wire_bytes answers = { 0 };
		struct wire_answer answer;
		size_t position = 0;
		int32_t ids[CALLS];
		int kinds[CALLS];
		int32_t partitions[CALLS];
		char payloads[CALLS][48];

		for (int i = 0; i < CALLS; i++) {
			ids[i] = (int32_t)wire_random(&random);
			kinds[i] = (int)(wire_random(&random) % 5);
			partitions[i] = (int32_t)(wire_random(&random) % 3);
			snprintf(payloads[i], sizeof payloads[i], "%d.%d", round, i);
			if (kinds[i] <= 1)
				wire_put_produce_one(&frames, ids[i], "t", partitions[i], WIRE_WRITTEN + kinds[i], payloads[i],
				    strlen(payloads[i]));
			else if (kinds[i] == 2)
				wire_put_metadata(&frames, ids[i], 1 + i % 2, "u");
			else if (kinds[i] == 3)
				wire_put_fetch(&frames, ids[i], "u", i % 2, 0, 100, 0, 0);
			else
				wire_put_fetch_v1(&frames, ids[i], "t", 3 + i, 0, 100);
		}
		ck_assert_uint_eq(wire_exchange(fd, frames.data, frames.length, CALLS, &answers, WIRE_DEADLINE_MS), CALLS);
		for (int i = 0; i < CALLS; i++) {
			struct wire_fetched fetched;

			ck_assert(wire_next_answer(&answers, &position, &answer));
			ck_assert_int_eq(answer.id, ids[i]);
			ck_assert_int_eq(answer.error, kinds[i] == 4 ? WIRE_UNKNOWN_TOPIC_OR_PARTITION : 0);
			if (kinds[i] > 1)
				continue;
			ck_assert_uint_eq(answer.body_length, 16);
			ck_assert_int_eq(wire_fetch(fd, "t", partitions[i], wire_get_i64(answer.body),
			    8 + (int32_t)strlen(payloads[i]), 0, 0, &fetched), 0);
			expect_one_record(&fetched, payloads[i], strlen(payloads[i]));
			wire_fetched_free(&fetched);
		}
		wire_bytes_free(&frames);
		wire_bytes_free(&answers);
	}
	finish();
}
END_TEST

START_TEST(A17_partitions_know_nothing_of_one_another)
{
	static const char *const topics[] = { "first", "second" };
	char payload[32];

	start(&(struct broker_config){ .topics = "first = 3\nsecond = 3\n" });
	for (int t = 0; t < 2; t++)
		for (int32_t p = 0; p < 3; p++) {
			ck_assert_int_eq(wire_high_watermark(fd, topics[t], p), 0);
			ck_assert_int_eq(wire_log_start(fd, topics[t], p), 0);
		}
	for (int t = 0; t < 2; t++)
		for (int32_t p = 0; p < 3; p++)
			for (int i = 0; i <= t * 3 + p; i++) {
				int64_t base;

				snprintf(payload, sizeof payload, "%s-%d %d", topics[t], p, i);
				ck_assert_int_eq(wire_produce_one(fd, topics[t], p, WIRE_WRITTEN, payload, strlen(payload), &base), 0);
				ck_assert_int_eq(base, i);
			}
	for (int t = 0; t < 2; t++)
		for (int32_t p = 0; p < 3; p++) {
			struct wire_bytes log = { 0 };
			struct wire_record record;
			size_t position = 0;
			int count = t * 3 + p + 1;

			ck_assert_int_eq(wire_high_watermark(fd, topics[t], p), count);
			ck_assert_int_eq(wire_read_log(fd, topics[t], p, 0, count, 1000, true, &log), count);
			for (int i = 0; i < count; i++) {
				snprintf(payload, sizeof payload, "%s-%d %d", topics[t], p, i);
				ck_assert(wire_next_record(log.data, log.length, &position, true, &record, NULL));
				ck_assert_uint_eq(record.length, strlen(payload));
				ck_assert_mem_eq(record.payload, payload, record.length);
			}
			wire_bytes_free(&log);
		}
	finish();
}
END_TEST

START_TEST(A18_refusals_carry_the_id)
{
	struct wire_bytes frame = { 0 };

	start(&(struct broker_config){ .topics = "t = 3\n" });
	for (int32_t id = -3; id < 3; id++) {
		wire_put_produce_one(&frame, id, "t", 3, WIRE_WRITTEN, "x", 1);
		wire_put_produce_one(&frame, id + 100, "foreign", 0, WIRE_WRITTEN, "x", 1);
		wire_begin(&frame, 77, 1, id + 200);
		wire_end(&frame, frame.length - 12);
		wire_put_metadata(&frame, id + 300, 3, NULL);
		send_frame(fd, &frame);
		ck_assert_int_eq(wire_expect(fd, id), WIRE_UNKNOWN_TOPIC_OR_PARTITION);
		ck_assert_int_eq(wire_expect(fd, id + 100), WIRE_UNKNOWN_TOPIC_OR_PARTITION);
		ck_assert_int_eq(wire_expect(fd, id + 200), WIRE_UNSUPPORTED_VERSION);
		ck_assert_int_eq(wire_expect(fd, id + 300), WIRE_UNSUPPORTED_VERSION);
	}
	ck_assert_int_eq(wire_high_watermark(fd, "t", 2), 0);
	finish();
}
END_TEST

/* ---- A22: bytes never change --------------------------------------------------------------------------------- */

/* What is known of a partition: its records as they stand in the log. */
struct model {
	const char *topic;
	int32_t partition;
	bool crc;
	struct wire_bytes log;
	int64_t next;	/* offset */
};

enum { MODELS = 4, BATCH_MAX = 40 };

struct batch {
	struct wire_record records[BATCH_MAX];
	uint8_t payloads[BATCH_MAX][700];
	size_t count;
};

static void
make_batch(struct batch *batch, uint64_t *random)
{
	batch->count = wire_random(random) % 4 == 0 ? 1 + wire_random(random) % BATCH_MAX : 1 + wire_random(random) % 3;
	for (size_t i = 0; i < batch->count; i++) {
		batch->records[i].payload = batch->payloads[i];
		batch->records[i].length = 1 + wire_random(random) % (wire_random(random) % 4 == 0 ? 700 : 40);
		for (size_t b = 0; b < batch->records[i].length; b++)
			batch->payloads[i][b] = (uint8_t)wire_random(random);
	}
}

/* Adds the first `count` records to what is known. */
static void
model_add(struct model *model, const struct batch *batch, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		wire_put_i32(&model->log, (int64_t)batch->records[i].length);
		if (model->crc)
			wire_put_i32(&model->log, wire_crc32c(batch->records[i].payload, batch->records[i].length));
		wire_put(&model->log, batch->records[i].payload, batch->records[i].length);
	}
	model->next += (int64_t)count;
}

/* Reads everything back, in pieces of a random size, and compares; and the files' bytes as well. */
static void
model_compare(struct model *model, uint64_t *random, bool files)
{
	struct wire_bytes got = { 0 };
	int64_t bases[2000];
	size_t position = 0;
	int segments;
	int32_t piece = 1000 + (int32_t)(wire_random(random) % 100000);

	ck_assert_int_eq(wire_high_watermark(fd, model->topic, model->partition), model->next);
	ck_assert_int_eq(wire_read_log(fd, model->topic, model->partition, 0, model->next, piece, model->crc, &got), model->next);
	ck_assert_uint_eq(got.length, model->log.length);
	while (position < got.length && got.data[position] == model->log.data[position])
		position++;
	ck_assert_msg(position == got.length, "%s-%d: byte %zu has changed", model->topic, model->partition, position);
	wire_bytes_free(&got);
	if (!files)
		return;
	segments = broker_segments(&broker, model->topic, model->partition, bases, 2000);
	position = 0;
	for (int i = 0; i < segments; i++) {
		char path[BROKER_PATH_BYTES * 2];
		char piece_of_file[8192];
		size_t length;
		FILE *file;

		broker_partition_path(&broker, model->topic, model->partition, bases[i], path, sizeof path);
		file = fopen(path, "r");
		ck_assert_ptr_nonnull(file);
		while ((length = fread(piece_of_file, 1, sizeof piece_of_file, file)) > 0) {
			if (i == segments - 1 && length > model->log.length - position)
				length = model->log.length - position;	/* zeros may stand ahead of the end */
			ck_assert_uint_le(position + length, model->log.length);
			ck_assert_mem_eq(piece_of_file, model->log.data + position, length);
			position += length;
			if (length == 0)
				break;
		}
		fclose(file);
	}
	ck_assert_uint_eq(position, model->log.length);
}

/* Connects until the broker answers for this partition (its worker may just be starting again). */
static void
reconnect(const struct model *model)
{
	int64_t until = wire_now_ms() + 20000;

	for (;;) {
		struct wire_fetched fetched;
		int code;

		close(fd);
		fd = connect_broker();
		code = wire_fetch(fd, model->topic, model->partition, 0, 1, 0, 0, &fetched);
		wire_fetched_free(&fetched);
		if (code == 0)
			return;
		ck_assert_msg(wire_now_ms() < until, "%s-%d does not come back: %d", model->topic, model->partition, code);
		usleep(2000);
	}
}

/*
 * A batch whose answer is not waited for before the process that owns it is killed: afterwards a prefix of its records is
 * there (contiguous, not atomic), and from then on it is part of what may never change.
 */
static void
model_settle(struct model *model, const struct batch *batch)
{
	int64_t end = wire_high_watermark(fd, model->topic, model->partition);

	ck_assert_int_ge(end, model->next);
	ck_assert_int_le(end, model->next + (int64_t)batch->count);
	model_add(model, batch, (size_t)(end - model->next));
}

enum { BATCH_ID = 9, BEHIND_ID };

static void
send_batch(struct model *model, const struct batch *batch, int ack)
{
	struct wire_bytes frame = { 0 };

	wire_put_produce(&frame, BATCH_ID, model->topic, model->partition, ack, batch->records, batch->count);
	wire_put_metadata(&frame, BEHIND_ID, 1, model->topic);
	wire_send(fd, frame.data, frame.length);
	wire_bytes_free(&frame);
}

/*
 * Until the request behind the batch is answered or the connection is lost, the batch may still be appended: the
 * connection may have been on its way between two workers when one of them was killed.
 */
static void
await_outcome(void)
{
	struct wire_answer answer;
	int32_t id;
	int code;

	do {
		code = wire_read_answer(fd, &answer, WIRE_DEADLINE_MS);
		ck_assert(code == 0 || code == WIRE_LOST);
		id = answer.id;
		wire_answer_free(&answer);
	} while (code == 0 && id != BEHIND_ID);
}

static void
append_batches(struct model *model, int batches, uint64_t *random)
{
	static struct batch batch;

	for (int i = 0; i < batches; i++) {
		int64_t base;

		make_batch(&batch, random);
		ck_assert_int_eq(wire_produce(fd, model->topic, model->partition, i % 5 == 0 ? WIRE_FORCED : WIRE_WRITTEN,
		    batch.records, batch.count, &base, NULL), 0);
		ck_assert_int_eq(base, model->next);
		model_add(model, &batch, batch.count);
	}
}

/* Mapped, its worker killed; then in file mode, all killed; and mapped again. */
START_TEST(A20_reopened_in_the_other_write_mode)
{
	static const struct broker_config file = { .log = "segment_bytes = 4KiB\n" },
	    mapped = { .log = "segment_bytes = 4KiB\nwrite_mode = mapped\n" };
	struct model model = { "t", 0, true, { 0 }, 0 };
	uint64_t random = broker_seed("A20_reopened_in_the_other_write_mode");
	pid_t worker;

	start(&mapped);
	broker.workers_may_die = true;
	append_batches(&model, 40, &random);
	worker = broker_wait_worker_of(&broker, "t", 0, 0, 30000);
	ck_assert_int_gt(worker, 0);
	kill(worker, SIGKILL);
	ck_assert_int_gt(broker_wait_worker_of(&broker, "t", 0, worker, 30000), 0);
	reconnect(&model);
	model_compare(&model, &random, true);
	append_batches(&model, 40, &random);
	broker_stop(&broker);
	broker_restart(&broker, &file);
	reconnect(&model);
	model_compare(&model, &random, true);
	append_batches(&model, 40, &random);
	broker_kill(&broker);
	broker_restart(&broker, &mapped);
	reconnect(&model);
	model_compare(&model, &random, true);
	append_batches(&model, 40, &random);
	model_compare(&model, &random, true);
	ck_assert_int_gt(broker_segments(&broker, "t", 0, NULL, 0), 3);
	wire_bytes_free(&model.log);
	finish();
}
END_TEST

/* Each start is in the other write mode. */
#define A22_LOG "segment_bytes = 4KiB\nflush_interval = 20ms\n"
#define A22_CONFIG .topics = "t = 3\nplain = 1\n", .sections = "[topic plain]\nrecord_format = plain\ngroup = 1\n"
static const struct broker_config modes_of_a22[] = { { .log = A22_LOG, A22_CONFIG },
	{ .log = A22_LOG "write_mode = mapped\n", A22_CONFIG } };

START_TEST(A22_acknowledged_bytes_never_change)
{
	static struct model models[MODELS] = { { "t", 0, true, { 0 }, 0 }, { "t", 1, true, { 0 }, 0 }, { "t", 2, true, { 0 }, 0 },
		{ "plain", 0, false, { 0 }, 0 } };
	static struct batch batch;
	uint64_t random = broker_seed("A22");
	int rounds = 12 * broker_scale(), mode = 0;

	start(&modes_of_a22[0]);
	broker.workers_may_die = true;
	for (int round = 0; round < rounds; round++) {
		struct model *victim = &models[wire_random(&random) % MODELS];
		pid_t worker;

		for (int i = 0; i < 30; i++) {
			struct model *model = &models[wire_random(&random) % MODELS];
			int64_t base;

			make_batch(&batch, &random);
			ck_assert_int_eq(wire_produce(fd, model->topic, model->partition, i % 7 == 0 ? WIRE_FORCED : WIRE_WRITTEN,
			    batch.records, batch.count, &base, NULL), 0);
			ck_assert_int_eq(base, model->next);
			model_add(model, &batch, batch.count);
		}
		make_batch(&batch, &random);
		switch (wire_random(&random) % 4) {
		case 0:
			close(fd);
			broker_stop(&broker);
			broker_restart(&broker, &modes_of_a22[++mode % 2]);
			fd = connect_broker();
			batch.count = 0;
			break;
		case 1:
			send_batch(victim, &batch, WIRE_WRITTEN);
			broker_kill(&broker);
			await_outcome();
			broker_restart(&broker, &modes_of_a22[++mode % 2]);
			reconnect(victim);
			break;
		case 2:
			worker = broker_wait_worker_of(&broker, victim->topic, victim->partition, 0, 30000);
			ck_assert_int_gt(worker, 0);
			send_batch(victim, &batch, (int)(wire_random(&random) % 3));
			kill(worker, SIGKILL);
			ck_assert_int_gt(broker_wait_worker_of(&broker, victim->topic, victim->partition, worker, 30000), 0);
			await_outcome();
			reconnect(victim);
			break;
		default:
			batch.count = 0;
			break;
		}
		for (int i = 0; i < MODELS; i++)
			reconnect(&models[i]);
		model_settle(victim, &batch);
		for (int i = 0; i < MODELS; i++)
			model_compare(&models[i], &random, round == rounds - 1 || round % 4 == 0);
	}
	printf("A22: %zu segments of t-0\n", (size_t)broker_segments(&broker, "t", 0, NULL, 0));
	for (int i = 0; i < MODELS; i++)
		wire_bytes_free(&models[i].log);
	finish();
}
END_TEST

/* ---- long fetch ---------------------------------------------------------------------------------------------- */

START_TEST(B01_caught_up_is_held_and_counted)
{
	struct wire_fetched fetched;
	int other;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	expect_held(0);
	send_hold(fd, 1, "t", 1, 0, LONG_WAIT_MS);
	expect_held(1);
	for (int i = 0; i < 10; i++) {
		other = connect_broker();
		send_hold(other, 1, "t", i % 2, 0, LONG_WAIT_MS);
		close(other);
	}
	/* Those whose clients went away are not counted any more. */
	expect_held(1);
	ck_assert(wire_silent(fd, 200));
	other = connect_broker();
	ck_assert_int_eq(wire_produce_one(other, "t", 1, WIRE_WRITTEN, "x", 1, NULL), 0);
	read_fetched(fd, 1, &fetched);
	expect_one_record(&fetched, "x", 1);
	wire_fetched_free(&fetched);
	expect_held(0);
	/* Until the time is over. That it is counted meanwhile nobody may be quick enough to see. */
	send_hold(fd, 2, "t", 1, 1, 300);
	read_fetched(fd, 2, &fetched);
	ck_assert_uint_eq(fetched.length, 0);
	expect_held(0);
	close(other);
	finish();
}
END_TEST

START_TEST(B02_a_batch_during_the_hold)
{
	static const struct wire_record batch[3] = { { "one", 3 }, { "two", 3 }, { "three", 5 } };
	struct wire_fetched fetched;
	int other;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	other = connect_broker();
	for (int ack = WIRE_NONE; ack <= WIRE_FORCED; ack++) {
		int64_t before = wire_high_watermark(other, "t", 1);
		int64_t began = wire_now_ms();

		send_hold(fd, ack, "t", 1, before, LONG_WAIT_MS);
		expect_held(1);
		ck_assert_int_eq(wire_produce(other, "t", 1, ack, batch, 3, NULL, NULL), 0);
		read_fetched(fd, ack, &fetched);
		ck_assert_int_lt(wire_now_ms() - began, LONG_WAIT_MS / 2);
		ck_assert_int_eq(wire_count_records(fetched.payload, fetched.length, true), 3);
		ck_assert_int_eq(fetched.high_watermark, before + 3);
		wire_fetched_free(&fetched);
	}
	close(other);
	finish();
}
END_TEST

/* minBytes: counted across segments; fewer do not wake. */
START_TEST(B02_min_bytes_across_segments)
{
	char payload[500];
	struct wire_bytes frame = { 0 };
	struct wire_fetched fetched;
	int64_t began = wire_now_ms();
	int other;

	memset(payload, 'm', sizeof payload);
	start(&(struct broker_config){ .topics = "t = 2\n", .log = "segment_bytes = 1KiB\n" });
	other = connect_broker();
	wire_put_fetch(&frame, 1, "t", 1, 0, 1 << 20, LONG_WAIT_MS, 3000);
	send_frame(fd, &frame);
	expect_held(1);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(wire_produce_one(other, "t", 1, WIRE_WRITTEN, payload, sizeof payload, NULL), 0);
	/* 2,540 bytes. */
	ck_assert(wire_silent(fd, 100));
	ck_assert_int_eq(wire_produce_one(other, "t", 1, WIRE_WRITTEN, payload, sizeof payload, NULL), 0);
	read_fetched(fd, 1, &fetched);
	ck_assert_int_lt(wire_now_ms() - began, LONG_WAIT_MS / 2);
	ck_assert_uint_ge(fetched.length, 508);
	wire_fetched_free(&fetched);
	close(other);
	finish();
}
END_TEST

/* One byte more than there is: held; exactly what is there: answered at once, not at the end of the wait. */
START_TEST(B02_min_bytes_to_the_byte)
{
	struct wire_bytes frame = { 0 };
	struct wire_fetched fetched;
	int64_t began = wire_now_ms();
	int other;

	start(&(struct broker_config){ .topics = "t = 2\n", .sections = "[topic t]\nrecord_format = plain\n" });
	other = connect_broker();
	for (int32_t length = 1; length < 20; length++) {
		int32_t partition = length % 2;
		char payload[20];
		int64_t end;

		memset(payload, length, sizeof payload);
		end = wire_high_watermark(other, "t", partition);
		wire_put_fetch(&frame, 1, "t", partition, end, 1000, LONG_WAIT_MS, 4 + length);
		wire_put_fetch(&frame, 2, "t", partition, end, 1000, LONG_WAIT_MS, 4 + length + 1);
		send_frame(fd, &frame);
		expect_held(1);
		ck_assert_int_eq(wire_produce_one(other, "t", partition, WIRE_WRITTEN, payload, (size_t)length, NULL), 0);
		read_fetched(fd, 1, &fetched);
		ck_assert_uint_eq(fetched.length, 4 + (size_t)length);
		wire_fetched_free(&fetched);
		expect_held(1);
		ck_assert(wire_silent(fd, 2));
		ck_assert_int_eq(wire_produce_one(other, "t", partition, WIRE_WRITTEN, "x", 1, NULL), 0);
		read_fetched(fd, 2, &fetched);
		ck_assert_uint_eq(fetched.length, 4 + (size_t)length + 5);
		wire_fetched_free(&fetched);
		/* Both are there by now: no wait at all. */
		wire_put_fetch(&frame, 3, "t", partition, end, 1000, LONG_WAIT_MS, 4 + length + 5);
		send_frame(fd, &frame);
		read_fetched(fd, 3, &fetched);
		wire_fetched_free(&fetched);
	}
	ck_assert_int_lt(wire_now_ms() - began, LONG_WAIT_MS);
	close(other);
	finish();
}
END_TEST

/* ---- B03: no lost wake-up, from outside ---------------------------------------------------------------------- */

enum { RACE_MS = 30000 };	/* at most: with the wait of one that is lost behind it, well within the case's limit */

struct racer {
	pthread_t thread;
	const char *topic;
	int ack;
	int rounds;
	int64_t until_ms;	/* a busy disk makes fewer of them: each round with FORCED waits for it */
	uint64_t random;
};

static void
busy_wait_us(uint64_t us)
{
	int64_t until = wire_now_us() + (int64_t)us;

	while (wire_now_us() < until)
		;
}

/*
 * One thread holds, the other appends, both at once, thousands of times; the topic's partitions take turns, so that the
 * holder's connection also moves between the workers. A wake-up that is lost costs the whole wait, and then the answer is
 * empty: the appender does not go on before it.
 */
static void *
race(void *arg)
{
	struct racer *racer = arg;
	int socket_fd = connect_broker();
	int appender = connect_broker();

	for (int round = 0; round < racer->rounds && wire_now_ms() < racer->until_ms; round++) {
		struct wire_bytes hold = { 0 };
		struct wire_bytes append = { 0 };
		struct wire_fetched fetched;
		struct wire_record record;
		size_t position = 0;
		int64_t offset = round / 2;
		int32_t partition = round % 2;

		wire_put_fetch(&hold, round, racer->topic, partition, offset, 1000, LONG_WAIT_MS, 1);
		wire_put_produce_one(&append, round, racer->topic, partition, racer->ack, &round, sizeof round);
		if (wire_random(&racer->random) % 8 == 0) {
			send_frame(appender, &append);
			busy_wait_us(wire_random(&racer->random) % 30);
			send_frame(socket_fd, &hold);
		} else {
			send_frame(socket_fd, &hold);
			busy_wait_us(wire_random(&racer->random) % 100);
			send_frame(appender, &append);
		}
		/* When the append came first, the offset is there already: also fine, but never an error or an empty answer. */
		read_fetched(socket_fd, round, &fetched);
		ck_assert_msg(fetched.length > 0, "round %d: a wake-up was lost", round);
		ck_assert(wire_next_record(fetched.payload, fetched.length, &position, true, &record, NULL));
		ck_assert_mem_eq(record.payload, &round, sizeof round);
		wire_fetched_free(&fetched);
		if (racer->ack != WIRE_NONE)
			ck_assert_int_eq(wire_expect(appender, round), 0);
	}
	close(socket_fd);
	close(appender);
	return NULL;
}

START_TEST(B03_no_wake_up_is_lost)
{
	static struct racer racers[3] = { { .topic = "a", .ack = WIRE_WRITTEN }, { .topic = "b", .ack = WIRE_NONE },
		{ .topic = "c", .ack = WIRE_FORCED } };
	int rounds = 9000 * broker_scale();
	uint64_t seed = broker_seed("B03");

	start(&(struct broker_config){ .topics = "a = 2\nb = 2\nc = 2\n", .log = "segment_bytes = 16KiB\n" });
	for (int i = 0; i < 3; i++) {
		racers[i].rounds = racers[i].ack == WIRE_FORCED ? rounds / 4 : rounds;
		racers[i].until_ms = wire_now_ms() + (int64_t)RACE_MS * broker_scale();
		racers[i].random = seed + (uint64_t)i;
		ck_assert_int_eq(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(racers[i].thread, NULL);
	expect_held(0);
	finish();
}
END_TEST

/* ---- B04, B05 ------------------------------------------------------------------------------------------------ */

START_TEST(B04_nothing_comes)
{
	struct wire_fetched fetched;
	int64_t began;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "x", 1, NULL), 0);
	for (int32_t partition = 0; partition < 2; partition++) {
		began = wire_now_us();
		ck_assert_int_eq(wire_fetch(fd, "t", partition, partition, 100, 100, 1, &fetched), 0);
		ck_assert_int_ge(wire_now_us() - began, 100000);
		ck_assert_uint_eq(fetched.length, 0);
		ck_assert_int_eq(fetched.high_watermark, partition);
	}
	/* minBytes 0 waits like 1. */
	began = wire_now_us();
	ck_assert_int_eq(wire_fetch(fd, "t", 0, 0, 100, 50, 0, &fetched), 0);
	ck_assert_int_ge(wire_now_us() - began, 50000);
	/* Fewer than minBytes: what is there, when the wait is over. */
	began = wire_now_us();
	ck_assert_int_eq(wire_fetch(fd, "t", 1, 0, 100, 100, 10, &fetched), 0);
	ck_assert_int_ge(wire_now_us() - began, 100000);
	ck_assert_uint_eq(fetched.length, 9);
	wire_fetched_free(&fetched);
	finish();
}
END_TEST

/* Waits of all lengths while the loop has much to do: none is shorter than asked for. */
START_TEST(B04_never_early_under_load)
{
	enum { HOLDERS = 60 };
	static char large[500000];
	int fds[HOLDERS];
	int64_t began[HOLDERS];
	struct wire_fetched fetched;
	struct wire_bytes load = { 0 };
	struct wire_bytes answers = { 0 };

	start(&(struct broker_config){ .topics = "t = 2\nload = 2\n" });
	for (int i = 0; i < 20; i++)
		wire_put_produce_one(&load, i, "load", i % 2, WIRE_WRITTEN, large, sizeof large);
	for (int i = 0; i < HOLDERS; i++)
		fds[i] = connect_broker();
	for (int i = 0; i < HOLDERS; i++) {
		began[i] = wire_now_us();
		send_hold(fds[i], i, "t", i % 2, 0, 1 + i * 7);
	}
	ck_assert_uint_eq(wire_exchange(fd, load.data, load.length, 20, &answers, WIRE_DEADLINE_MS), 20);
	for (int i = 0; i < HOLDERS; i++) {
		read_fetched(fds[i], i, &fetched);
		ck_assert_int_ge(wire_now_us() - began[i], (1 + i * 7) * 1000);
		ck_assert_uint_eq(fetched.length, 0);
	}
	close_all(fds, HOLDERS);
	wire_bytes_free(&load);
	wire_bytes_free(&answers);
	finish();
}
END_TEST

START_TEST(B04_max_fetch_wait_clamps)
{
	struct wire_fetched fetched;
	int64_t began;

	start(&(struct broker_config){ .topics = "t = 2\n", .broker = "max_fetch_wait = 200ms\n" });
	began = wire_now_us();
	ck_assert_int_eq(wire_fetch(fd, "t", 1, 0, 100, INT32_MAX, 1, &fetched), 0);
	ck_assert_int_ge(wire_now_us() - began, 200000);
	ck_assert_uint_eq(fetched.length, 0);
	finish();
}
END_TEST

START_TEST(B05_min_bytes_above_max_bytes)
{
	struct wire_fetched fetched;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(wire_fetch(fd, "t", 1, 0, 10, LONG_WAIT_MS, 11, &fetched), WIRE_CORRUPT_REQUEST);
		ck_assert_int_eq(wire_fetch(fd, "t", 1, 0, 10, 0, 10, &fetched), 0);
	}
	expect_held(0);
	finish();
}
END_TEST

/* ---- B07, B08 ------------------------------------------------------------------------------------------------ */

START_TEST(B07_stop_during_a_hold)
{
	struct wire_fetched fetched;
	int over_unix;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	over_unix = wire_connect_unix(broker.unix_path);
	ck_assert_int_ge(over_unix, 0);
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "before", 6, NULL), 0);
	send_hold(fd, 5, "t", 1, 1, LONG_WAIT_MS);
	send_hold(over_unix, 6, "t", 0, 0, LONG_WAIT_MS);
	expect_held(2);
	kill(broker.pid, SIGTERM);
	read_fetched(fd, 5, &fetched);
	ck_assert_uint_eq(fetched.length, 0);
	ck_assert_int_eq(fetched.high_watermark, 1);
	ck_assert(wire_ended_orderly(fd, 30000));
	read_fetched(over_unix, 6, &fetched);
	ck_assert_uint_eq(fetched.length, 0);
	ck_assert(wire_ended_orderly(over_unix, 30000));
	ck_assert_int_eq(broker_wait_exit(&broker, BROKER_STOP_MS), 0);
	close(over_unix);

	/* The client asks again at the same offset: what comes is the next record, once. */
	broker_restart(&broker, NULL);
	close(fd);
	fd = connect_broker();
	send_hold(fd, 7, "t", 1, 1, LONG_WAIT_MS);
	over_unix = connect_broker();
	ck_assert_int_eq(wire_produce_one(over_unix, "t", 1, WIRE_WRITTEN, "after", 5, NULL), 0);
	read_fetched(fd, 7, &fetched);
	expect_one_record(&fetched, "after", 5);
	wire_fetched_free(&fetched);
	close(over_unix);
	finish();
}
END_TEST

START_TEST(B07_kill_during_a_hold)
{
	struct wire_fetched fetched;
	int producer;
	int64_t next = 0;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	for (int round = 0; round < 3; round++) {
		send_hold(fd, 5, "t", 1, next, LONG_WAIT_MS);
		expect_held(1);
		broker_kill(&broker);
		ck_assert(wire_ended(fd, 30000));
		close(fd);
		broker_restart(&broker, NULL);
		fd = connect_broker();
		producer = connect_broker();
		send_hold(fd, 6, "t", 1, next, LONG_WAIT_MS);
		expect_held(1);
		ck_assert_int_eq(wire_produce_one(producer, "t", 1, WIRE_WRITTEN, &round, sizeof round, NULL), 0);
		read_fetched(fd, 6, &fetched);
		expect_one_record(&fetched, &round, sizeof round);
		wire_fetched_free(&fetched);
		close(producer);
		next++;
	}
	finish();
}
END_TEST

/* A cable between a client and the broker that can be cut: bytes go through until then. */
struct cable {
	pthread_t thread;
	int ends[2];	/* the client's side (accepted by us), the broker's */
	int cut[2];	/* a pipe: closing its writing end cuts */
};

static void *
run_cable(void *arg)
{
	struct cable *cable = arg;
	char piece[65536];
	struct pollfd fds[3] = { { .fd = cable->ends[0], .events = POLLIN }, { .fd = cable->ends[1], .events = POLLIN },
		{ .fd = cable->cut[0], .events = POLLIN } };

	while (poll(fds, 3, -1) >= 0 && fds[2].revents == 0)
		for (int i = 0; i < 2; i++)
			if (fds[i].revents != 0) {
				ssize_t got = recv(fds[i].fd, piece, sizeof piece, MSG_DONTWAIT);

				if (got <= 0)
					fds[i].fd = -1;
				else if (wire_send(cable->ends[1 - i], piece, (size_t)got) != 0)
					fds[1 - i].fd = -1;
			}
	return NULL;
}

/* Returns the client's socket. */
static int
cable_lay(struct cable *cable)
{
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	ck_assert_int_eq(pipe2(cable->cut, O_CLOEXEC), 0);
	cable->ends[0] = pair[0];
	cable->ends[1] = connect_broker();
	ck_assert_int_eq(pthread_create(&cable->thread, NULL, run_cable, cable), 0);
	return pair[1];
}

static void
cable_cut(struct cable *cable, bool reset)
{
	close(cable->cut[1]);
	pthread_join(cable->thread, NULL);
	close(cable->cut[0]);
	close(cable->ends[0]);
	if (reset)
		wire_close_reset(cable->ends[1]);
	else
		close(cable->ends[1]);
}

START_TEST(B08_the_network_is_cut_during_a_hold)
{
	enum { ROUNDS = 20 };
	uint64_t random = broker_seed("B08");
	int64_t next = 0;		/* what the client asks for */
	int64_t produced = 0;
	int64_t seen[ROUNDS * 20] = { 0 };

	start(&(struct broker_config){ .topics = "t = 2\n" });
	for (int round = 0; round < ROUNDS; round++) {
		struct cable cable;
		int client = cable_lay(&cable);
		struct wire_fetched fetched;
		int more = (int)(wire_random(&random) % 6);
		struct wire_record record;
		size_t position = 0;

		/* Reads all it has missed, then holds. */
		while (next < produced) {
			ck_assert_int_eq(wire_fetch(client, "t", 1, next, 60, LONG_WAIT_MS, 1, &fetched), 0);
			for (position = 0; wire_next_record(fetched.payload, fetched.length, &position, true, &record, NULL); next++) {
				ck_assert_uint_eq(record.length, sizeof next);
				memcpy(&seen[next], record.payload, sizeof next);
				ck_assert_int_eq(seen[next], next);
			}
			wire_fetched_free(&fetched);
		}
		ck_assert_int_eq(next, produced);
		send_hold(client, 1, "t", 1, next, LONG_WAIT_MS);
		if (round % 2 == 0)
			expect_held(1);
		/* Cut; records that come around the cut are lost to this connection or not, never to the client. */
		for (int i = 0; i < more; i++) {
			if (i == more / 2)
				cable_cut(&cable, round % 2 == 0);
			ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, &produced, sizeof produced, NULL), 0);
			produced++;
		}
		if (more == 0)
			cable_cut(&cable, round % 2 == 0);
		close(client);
	}
	expect_held(0);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 1), produced);
	finish();
}
END_TEST

/* ---- B09 ----------------------------------------------------------------------------------------------------- */

START_TEST(B09_a_hold_delays_its_connection_only)
{
	struct wire_bytes frame = { 0 };
	struct wire_fetched fetched;
	int other;
	int64_t base;

	start(&(struct broker_config){ .topics = "t = 2\nu = 2\n" });
	other = connect_broker();
	for (int32_t behind = 0; behind < 2; behind++) {
		/* Behind the hold: a PRODUCE to the same and to the other worker. */
		send_hold(fd, 1, "t", 0, 0, 500);
		wire_put_produce_one(&frame, 2, "u", behind, WIRE_WRITTEN, "behind", 6);
		wire_put_metadata(&frame, 3, 1, NULL);
		send_frame(fd, &frame);
		expect_held(1);
		for (int i = 0; i < 20; i++)
			ck_assert_int_eq(wire_produce_one(other, "t", 1, WIRE_WRITTEN, "no delay", 8, NULL), 0);
		for (int i = 0; i < 5; i++)
			ck_assert_int_eq(wire_high_watermark(other, "u", behind), 0);
		read_fetched(fd, 1, &fetched);
		ck_assert_uint_eq(fetched.length, 0);
		ck_assert_int_eq(wire_expect(fd, 2), 0);
		ck_assert_int_eq(wire_expect(fd, 3), 0);
		ck_assert_int_eq(wire_high_watermark(other, "u", behind), 1);
	}
	/* A PRODUCE behind the hold of its own partition does not end it: it is executed afterwards. */
	send_hold(fd, 4, "t", 0, 0, 300);
	wire_put_produce_one(&frame, 5, "t", 0, WIRE_WRITTEN, "own", 3);
	send_frame(fd, &frame);
	read_fetched(fd, 4, &fetched);
	ck_assert_uint_eq(fetched.length, 0);
	ck_assert_int_eq(wire_expect(fd, 5), 0);
	/* And one from elsewhere does. */
	send_hold(fd, 6, "t", 0, 1, LONG_WAIT_MS);
	wire_put_produce_one(&frame, 7, "t", 1, WIRE_FORCED, "later", 5);
	send_frame(fd, &frame);
	expect_held(1);
	ck_assert_int_eq(wire_produce_one(other, "t", 0, WIRE_WRITTEN, "wakes", 5, &base), 0);
	ck_assert_int_eq(base, 1);
	read_fetched(fd, 6, &fetched);
	expect_one_record(&fetched, "wakes", 5);
	wire_fetched_free(&fetched);
	ck_assert_int_eq(wire_expect(fd, 7), 0);
	close(other);
	finish();
}
END_TEST

/* ---- D02 ----------------------------------------------------------------------------------------------------- */

START_TEST(D02_metadata_from_any_worker)
{
	enum { SOCKETS = 4 };
	int fds[SOCKETS];
	int64_t next[4] = { 0, 0, 0, 0 };
	uint64_t random = broker_seed("D02");

	start(&(struct broker_config){ .topics = "t = 4\n" });
	/* One connection in each worker, and two that move. */
	for (int i = 0; i < SOCKETS; i++)
		fds[i] = i % 2 == 0 ? connect_broker() : wire_connect_unix(broker.unix_path);
	for (int round = 0; round < 500 * broker_scale(); round++) {
		int32_t partition = (int32_t)(wire_random(&random) % 4);
		int producer = (int)(wire_random(&random) % SOCKETS);
		int64_t end;

		ck_assert_int_eq(wire_produce(fds[producer], "t", partition, round % 50 == 0 ? WIRE_FORCED : WIRE_WRITTEN,
		    &(struct wire_record){ "x", 1 }, 1, NULL, &end), 0);
		next[partition]++;
		ck_assert_int_eq(end, next[partition]);
		for (int i = 0; i < SOCKETS; i++) {
			struct wire_topics topics;

			ck_assert_int_eq(wire_metadata(fds[i], 1 + round % 2, round % 3 ? NULL : "t", &topics), 0);
			ck_assert_uint_eq(topics.count, 4);
			for (int p = 0; p < 4; p++) {
				ck_assert_int_eq(topics.list[p].high_watermark, next[p]);
				ck_assert_int_eq(topics.list[p].log_start, 0);
			}
			wire_topics_free(&topics);
		}
	}
	close_all(fds, SOCKETS);
	finish();
}
END_TEST

/* ---- bug reports --------------------------------------------------------------------------------------------- */

START_TEST(bug_D1_a_produce_wakes_the_hold)
{
	struct wire_fetched fetched;
	int other;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	other = connect_broker();
	send_hold(fd, 1, "t", 1, 0, 30000);
	ck_assert(wire_silent(fd, 200));
	ck_assert_int_eq(wire_produce_one(other, "t", 1, WIRE_WRITTEN, "woken", 5, NULL), 0);
	ck_assert_msg(!wire_silent(fd, 5000), "the hold was not woken");
	read_fetched(fd, 1, &fetched);
	expect_one_record(&fetched, "woken", 5);
	wire_fetched_free(&fetched);
	close(other);
	finish();
}
END_TEST

START_TEST(bug_D2_a_caught_up_consumer_does_not_loop)
{
	int64_t until;
	int requests = 0;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	until = wire_now_ms() + 2000;
	do {
		struct wire_fetched fetched;

		ck_assert_int_eq(wire_fetch(fd, "t", requests % 2, 0, 1000, 200, 1, &fetched), 0);
		ck_assert_uint_eq(fetched.length, 0);
		requests++;
	} while (wire_now_ms() < until);
	ck_assert_int_le(requests, 11);
	finish();
}
END_TEST

static int64_t
cpu_of_all(void)
{
	int64_t sum = broker_cpu_ms(broker.pid);

	for (int i = 0; i < broker.worker_count; i++)
		sum += broker_cpu_ms(broker.workers[i]);
	return sum;
}

static int
descriptors_of_all(void)
{
	int sum = broker_fd_count(broker.pid);

	for (int i = 0; i < broker.worker_count; i++)
		sum += broker_fd_count(broker.workers[i]);
	return sum;
}

static bool
few_descriptors(void *most)
{
	return descriptors_of_all() <= *(int *)most;
}

START_TEST(bug_D5_clients_vanish_from_their_holds)
{
	enum { HOLDS = 200, STAY = 20 };
	int fds[HOLDS];
	int stay[STAY];
	int baseline;
	int64_t cpu;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	for (int i = 0; i < STAY; i++) {
		stay[i] = connect_broker();
		send_hold(stay[i], i, "t", i % 2, 0, LONG_WAIT_MS);
	}
	expect_held(STAY);
	baseline = descriptors_of_all();
	for (int i = 0; i < HOLDS; i++) {
		fds[i] = connect_broker();
		send_hold(fds[i], i, "t", i % 2, 0, LONG_WAIT_MS);
	}
	expect_held(HOLDS + STAY);
	for (int i = 0; i < HOLDS; i++) {
		if (i % 2 == 0)
			close(fds[i]);
		else
			wire_close_reset(fds[i]);
	}
	expect_held(STAY);
	ck_assert_msg(broker_wait(few_descriptors, &baseline, 30000), "%d descriptors, not %d", descriptors_of_all(), baseline);
	cpu = cpu_of_all();
	usleep(500000);
	ck_assert_msg(cpu_of_all() - cpu < 100, "%lld ms of 500 were spent on nothing", (long long)(cpu_of_all() - cpu));
	/* Those that stay are held still, and woken. */
	ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_WRITTEN, "x", 1, NULL), 0);
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "x", 1, NULL), 0);
	for (int i = 0; i < STAY; i++)
		ck_assert_int_eq(wire_expect(stay[i], i), 0);
	expect_held(0);
	close_all(stay, STAY);
	finish();
}
END_TEST

START_TEST(bug_D7_a_hold_delays_nobody_else)
{
	enum { HOLDS = 50 };
	struct wire_bytes frame = { 0 };
	struct wire_fetched fetched;
	int fds[HOLDS];
	int other;

	start(&(struct broker_config){ .topics = "t = 2\nu = 2\n" });
	other = connect_broker();
	for (int i = 0; i < HOLDS; i++) {
		fds[i] = connect_broker();
		send_hold(fds[i], i, "t", 1, 0, LONG_WAIT_MS);
		wire_put_produce_one(&frame, 1000 + i, "u", i % 2, WIRE_WRITTEN, "behind", 6);
		send_frame(fds[i], &frame);
	}
	expect_held(HOLDS);
	/* The same worker, the other partitions. */
	for (int i = 0; i < 500; i++)
		ck_assert_int_eq(wire_produce_one(other, i % 2 ? "t" : "u", i % 2 ? 0 : i / 2 % 2, WIRE_WRITTEN, "x", 1, NULL), 0);
	for (int i = 0; i < HOLDS; i++)
		ck_assert(wire_silent(fds[i], 0));
	ck_assert_int_eq(wire_high_watermark(other, "u", 0) + wire_high_watermark(other, "u", 1), 250);
	/* The same partition: wakes all of them, then what stands behind is answered, in order. */
	ck_assert_int_eq(wire_produce_one(other, "t", 1, WIRE_WRITTEN, "go", 2, NULL), 0);
	for (int i = 0; i < HOLDS; i++) {
		read_fetched(fds[i], i, &fetched);
		expect_one_record(&fetched, "go", 2);
		wire_fetched_free(&fetched);
		ck_assert_int_eq(wire_expect(fds[i], 1000 + i), 0);
	}
	ck_assert_int_eq(wire_high_watermark(other, "u", 0) + wire_high_watermark(other, "u", 1), 250 + HOLDS);
	close_all(fds, HOLDS);
	close(other);
	finish();
}
END_TEST

START_TEST(bug_D8_stop_with_many_holds)
{
	enum { HOLDS = 100 };
	int fds[HOLDS];
	int64_t began;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	for (int32_t p = 0; p < 2; p++)
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(wire_produce_one(fd, "t", p, WIRE_WRITTEN, "x", 1, NULL), 0);
	for (int i = 0; i < HOLDS; i++) {
		fds[i] = connect_broker();
		send_hold(fds[i], i, "t", i % 2, 3, LONG_WAIT_MS);
	}
	expect_held(HOLDS);
	began = wire_now_ms();
	kill(broker.pid, SIGTERM);
	for (int i = 0; i < HOLDS; i++) {
		struct wire_fetched fetched;

		read_fetched(fds[i], i, &fetched);
		ck_assert_uint_eq(fetched.length, 0);
		ck_assert_int_eq(fetched.high_watermark, 3);
		ck_assert(wire_ended_orderly(fds[i], 30000));
	}
	/* The clients have not closed: a process that stops does not wait for that. drain_timeout is 10 s. */
	ck_assert_int_eq(broker_wait_exit(&broker, BROKER_STOP_MS), 0);
	ck_assert_int_lt(wire_now_ms() - began, 10000);
	close_all(fds, HOLDS);
	close(fd);
	broker_end(&broker);
}
END_TEST

/* `_i`: how the log is kept. */
START_TEST(bug_A11_many_tiny_records)
{
	static const char *const logs[] = { NULL, "write_mode = mapped\nrecord_format = plain\n" };
	enum { TINY = 20000, BURST = 3000 };
	static struct wire_record records[TINY];
	static uint8_t payloads[TINY];
	struct wire_bytes frames = { 0 };
	struct wire_bytes answers = { 0 };
	struct wire_bytes log = { 0 };
	struct wire_answer answer;
	struct wire_record record;
	size_t position = 0;
	int64_t base;
	int64_t end;

	start(&(struct broker_config){ .topics = "t = 2\n", .log = logs[_i] });
	for (int i = 0; i < TINY; i++) {
		payloads[i] = (uint8_t)(i * 7);
		records[i].payload = &payloads[i];
		records[i].length = 1;
	}
	ck_assert_int_eq(wire_produce(fd, "t", 1, WIRE_FORCED, records, TINY, &base, &end), 0);
	ck_assert_int_eq(base, 0);
	ck_assert_int_eq(end, TINY);
	for (int i = 0; i < BURST; i++)
		wire_put_produce_one(&frames, i, "t", 1, WIRE_WRITTEN, &payloads[i], 1);
	ck_assert_uint_eq(wire_exchange(fd, frames.data, frames.length, BURST, &answers, WIRE_DEADLINE_MS), BURST);
	for (int i = 0; i < BURST; i++) {
		ck_assert(wire_next_answer(&answers, &position, &answer));
		ck_assert_int_eq(answer.id, i);
		ck_assert_int_eq(answer.error, 0);
		ck_assert_int_eq(wire_get_i64(answer.body), TINY + i);
	}
	ck_assert_int_eq(wire_read_log(fd, "t", 1, 0, TINY + BURST, 50000, _i == 0, &log), TINY + BURST);
	position = 0;
	for (int i = 0; i < TINY + BURST; i++) {
		ck_assert(wire_next_record(log.data, log.length, &position, _i == 0, &record, NULL));
		ck_assert_uint_eq(record.length, 1);
		ck_assert_uint_eq(*(const uint8_t *)record.payload, payloads[i < TINY ? i : i - TINY]);
	}
	wire_bytes_free(&frames);
	wire_bytes_free(&answers);
	wire_bytes_free(&log);
	finish();
}
END_TEST

START_TEST(bug_E4_a_slow_reader_gets_every_byte)
{
	enum { RECORDS = 40, SIZE = 100000 };
	static uint8_t payload[SIZE];
	struct wire_bytes log = { 0 };
	struct wire_bytes frame = { 0 };
	struct wire_bytes got = { 0 };
	uint64_t random = 4;
	int slow;
	int small = 32768;	/* with 4 KiB this kernel's loopback makes 40 KB/s of it: too slow for a test */
	int64_t began;
	int64_t cpu;
	int32_t length;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	for (int i = 0; i < RECORDS; i++) {
		for (size_t b = 0; b < SIZE; b++)
			payload[b] = (uint8_t)wire_random(&random);
		ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, payload, SIZE, NULL), 0);
	}
	ck_assert_int_eq(wire_read_log(fd, "t", 1, 0, RECORDS, 8 << 20, true, &log), RECORDS);
	slow = connect_broker();
	setsockopt(slow, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	ck_assert_int_eq(wire_high_watermark(slow, "t", 1), RECORDS);
	wire_put_fetch(&frame, 1, "t", 1, 0, 8 << 20, 0, 0);
	began = wire_now_ms();
	cpu = cpu_of_all();
	send_frame(slow, &frame);
	/* Nothing is read at first: that is no reason to spin. Then a few KiB at a time. */
	usleep(300000);
	for (size_t want = 4 + log.length + 18; got.length < want;) {
		uint8_t piece[20000];
		long more = wire_receive(slow, piece, sizeof piece, WIRE_DEADLINE_MS);

		ck_assert_int_gt(more, 0);
		wire_put(&got, piece, (size_t)more);
		usleep(2000);
	}
	cpu = cpu_of_all() - cpu;
	began = wire_now_ms() - began;
	length = wire_get_i32(got.data);
	ck_assert_int_eq(length, (int32_t)log.length + 18);
	ck_assert_uint_eq(got.length, log.length + 22);
	ck_assert_mem_eq(got.data + 22, log.data, log.length);
	ck_assert_msg(cpu * 3 < began, "%lld ms of CPU in %lld ms", (long long)cpu, (long long)began);
	close(slow);
	wire_bytes_free(&got);
	wire_bytes_free(&log);
	finish();
}
END_TEST

/*
 * request_timeout closes a connection that reads nothing of its answer for that long. One that reads slowly but steadily is
 * not such: also while the kernel's buffer is so full that the broker cannot write for longer than request_timeout.
 */
START_TEST(bug_E4_slow_is_not_stalled)
{
	enum { RECORDS = 8, SIZE = 1000000, TIMEOUT_MS = 2500, PIECE = 8192 };
	static uint8_t payload[SIZE];
	struct wire_bytes frame = { 0 };
	struct wire_bytes got = { 0 };
	int slow;
	int stalled;
	int small = 65536;
	int64_t began;
	size_t want = 4 + 18 + RECORDS * (SIZE + 8);

	start(&(struct broker_config){ .topics = "t = 2\n", .broker = "request_timeout = 2500ms\n" });
	for (int i = 0; i < RECORDS; i++)
		ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, payload, SIZE, NULL), 0);
	slow = connect_broker();
	stalled = connect_broker();
	setsockopt(slow, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	setsockopt(stalled, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	wire_put_fetch(&frame, 1, "t", 1, 0, 8388590, 0, 0);
	ck_assert_int_eq(wire_send(slow, frame.data, frame.length), 0);
	send_frame(stalled, &frame);
	began = wire_now_ms();
	/* Three times the timeout at 400 KB/s, then the rest at once. On a busy machine we come to no read for a second. */
	while (got.length < want) {
		uint8_t piece[PIECE];
		long more = wire_receive(slow, piece, sizeof piece, WIRE_DEADLINE_MS);

		ck_assert_msg(more > 0, "cut after %zu of %zu bytes and %lld ms", got.length, want,
		    (long long)(wire_now_ms() - began));
		wire_put(&got, piece, (size_t)more);
		if (wire_now_ms() - began < 3 * TIMEOUT_MS)
			usleep(20000);
	}
	/* The other one has been cut meanwhile: not all of its answer comes. */
	for (got.length = 0; got.length < want;) {
		uint8_t piece[PIECE * 8];
		long more = wire_receive(stalled, piece, sizeof piece, WIRE_DEADLINE_MS);

		if (more < 0)
			break;
		wire_put(&got, piece, (size_t)more);
	}
	ck_assert_uint_lt(got.length, want);
	close(slow);
	close(stalled);
	wire_bytes_free(&got);
	finish();
}
END_TEST

START_TEST(bug_B9_refusals_do_not_flood_the_log)
{
	enum { REQUESTS = 10000 };
	struct wire_bytes frames = { 0 };
	struct wire_bytes answers = { 0 };
	struct stat before;
	struct stat after;
	long lines;

	start(&(struct broker_config){ .topics = "t = 2\n" });
	ck_assert_int_eq(wire_high_watermark(fd, "t", 1), 0);
	lines = broker_count_log(&broker, " ");
	ck_assert_int_eq(stat(broker.log_path, &before), 0);
	for (int i = 0; i < REQUESTS; i++) {
		size_t at = frames.length;

		wire_put_produce_one(&frames, i, i % 2 ? "foreign" : "t", i % 3 ? 7 : -1, WIRE_WRITTEN, "x", 1);
		if (i % 4 == 3)
			wire_set_i16(frames.data + at + 4, 9);	/* apiKey */
	}
	ck_assert_uint_eq(wire_exchange(fd, frames.data, frames.length, REQUESTS, &answers, WIRE_DEADLINE_MS), REQUESTS);
	for (int i = 0; i < 100; i++) {
		int other = connect_broker();

		wire_send(other, "GET / HTTP/1.0\r\n\r\n", 18);
		ck_assert(wire_ended(other, 30000));
		close(other);
	}
	ck_assert_int_eq(wire_high_watermark(fd, "t", 1), 0);
	ck_assert_int_eq(stat(broker.log_path, &after), 0);
	ck_assert_int_lt(after.st_size - before.st_size, 64 * 1024);
	ck_assert_int_lt(broker_count_log(&broker, " ") - lines, 200);
	wire_bytes_free(&frames);
	wire_bytes_free(&answers);
	finish();
}
END_TEST

/* In either write mode. */
static void
add_append_tests(TCase *append)
{
	tcase_add_test(append, A07_offsets_of_a_batch);
	tcase_add_test(append, A08_concurrent_producers);
	tcase_add_test(append, A09_forced_at_once_share_barriers);
	tcase_add_test(append, A09_forced_at_once_counted_by_strace);
	tcase_add_test(append, A09_forced_one_by_one_with_a_slow_barrier);
	tcase_add_test(append, A09_forced_on_one_connection_share_barriers);
	tcase_add_test(append, A09_a_barrier_stops_nobody_else);
	tcase_add_test(append, A10_three_segments_after_a_restart);
	tcase_add_test(append, A10_three_segments_after_a_kill);
	tcase_add_test(append, A13_beyond_and_at_the_high_watermark);
	tcase_add_test(append, A14_cut_at_the_byte);
	tcase_add_test(append, A15_record_larger_than_max_bytes);
	tcase_add_test(append, A16_fifty_calls_in_flight);
	tcase_add_test(append, A17_partitions_know_nothing_of_one_another);
	tcase_add_test(append, A18_refusals_carry_the_id);
}

static Suite *
suite(void)
{
	Suite *all = suite_create("scenarios");
	TCase *append = tcase_create("append and fetch");
	TCase *mapped = tcase_create("append and fetch, mapped");
	TCase *hold = tcase_create("long fetch");
	TCase *bugs = tcase_create("bug reports");
	TCase *cases[] = { append, mapped, hold, bugs };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		tcase_set_timeout(cases[i], 120.0 * broker_scale());
		suite_add_tcase(all, cases[i]);
	}
	add_append_tests(append);
	tcase_add_test(append, A20_reopened_in_the_other_write_mode);
	tcase_add_test(append, A22_acknowledged_bytes_never_change);
	add_append_tests(mapped);
	tcase_add_checked_fixture(mapped, broker_use_mapped, NULL);

	tcase_add_test(hold, B01_caught_up_is_held_and_counted);
	tcase_add_test(hold, B02_a_batch_during_the_hold);
	tcase_add_test(hold, B02_min_bytes_across_segments);
	tcase_add_test(hold, B02_min_bytes_to_the_byte);
	tcase_add_test(hold, B03_no_wake_up_is_lost);
	tcase_add_test(hold, B04_nothing_comes);
	tcase_add_test(hold, B04_never_early_under_load);
	tcase_add_test(hold, B04_max_fetch_wait_clamps);
	tcase_add_test(hold, B05_min_bytes_above_max_bytes);
	tcase_add_test(hold, B07_stop_during_a_hold);
	tcase_add_test(hold, B07_kill_during_a_hold);
	tcase_add_test(hold, B08_the_network_is_cut_during_a_hold);
	tcase_add_test(hold, B09_a_hold_delays_its_connection_only);

	tcase_add_test(bugs, D02_metadata_from_any_worker);
	tcase_add_loop_test(bugs, bug_A11_many_tiny_records, 0, 2);
	tcase_add_test(bugs, bug_B9_refusals_do_not_flood_the_log);
	tcase_add_test(bugs, bug_D1_a_produce_wakes_the_hold);
	tcase_add_test(bugs, bug_D2_a_caught_up_consumer_does_not_loop);
	tcase_add_test(bugs, bug_D5_clients_vanish_from_their_holds);
	tcase_add_test(bugs, bug_D7_a_hold_delays_nobody_else);
	tcase_add_test(bugs, bug_D8_stop_with_many_holds);
	tcase_add_test(bugs, bug_E4_a_slow_reader_gets_every_byte);
	tcase_add_test(bugs, bug_E4_slow_is_not_stalled);
	return all;
}

int
main(void)
{
	return broker_main(suite());
}
