/*
 * Order, proven by what strace has seen of a whole broker: producers of every sort write to several partitions through rolls,
 * batches larger than a segment, retention, a planned restart of one worker and the death of another, and readers look over
 * their shoulders; then order_check.h decides from the trace alone. A force takes a millisecond at least, so that much is
 * written while it is under way. Each trace is also read without some of its forces, and must then be found wrong.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/broker.h"
#include "tests/order_check.h"
#include "tests/procs.h"
#include "tests/wire.h"

enum { PRODUCERS = 6, DEPTH = 3, ROUNDS = 12, BATCH_MAX = 8, PAYLOAD_MAX = 200, LARGE_BYTES = 3000, LARGE_BATCH = 4 };

static const struct { const char *topic; int32_t partition; } logs[] = { { "t", 0 }, { "t", 1 }, { "t", 2 }, { "d", 0 },
	{ "d", 1 }, { "p", 0 } };
enum { LOGS = sizeof(logs) / sizeof(logs[0]) };

static const char *const modes[] = { "file", "mapped" };
enum { MODES = 2 };

struct producers {
	struct broker *broker;
	uint64_t seed;
	int fds[PRODUCERS];
	int owed[PRODUCERS];
	int32_t id;
	long forced;		/* answers */
};

static int
chance(struct producers *producers, int below)
{
	return (int)(wire_random(&producers->seed) % (uint64_t)below);
}

static void
connect_all(struct producers *producers)
{
	for (int i = 0; i < PRODUCERS; i++) {
		producers->fds[i] = wire_connect_tcp(producers->broker->port);
		ck_assert_int_ge(producers->fds[i], 0);
	}
}

static void
close_all(struct producers *producers)
{
	for (int i = 0; i < PRODUCERS; i++)
		close(producers->fds[i]);
}

/* Mostly to one log, so that connections do not only wander. Now and then the batch is larger than a segment. */
static void
send_one(struct producers *producers, int who)
{
	static uint8_t payloads[BATCH_MAX][LARGE_BYTES];
	struct wire_record records[BATCH_MAX];
	struct wire_bytes request = { 0 };
	int log = chance(producers, 8) == 0 ? chance(producers, LOGS) : who % LOGS, ack = chance(producers, 4);
	bool large = chance(producers, 24) == 0;
	int count = large ? LARGE_BATCH : 1 + chance(producers, BATCH_MAX);

	ack = ack > WIRE_FORCED ? WIRE_FORCED : ack;
	for (int i = 0; i < count; i++) {
		records[i] = (struct wire_record){ payloads[i], large ? LARGE_BYTES : (size_t)(1 + chance(producers, PAYLOAD_MAX)) };
		memset(payloads[i], 1 + chance(producers, 255), records[i].length);
	}
	wire_put_produce(&request, producers->id++, logs[log].topic, logs[log].partition, ack, records, (size_t)count);
	ck_assert_int_eq(wire_send(producers->fds[who], request.data, request.length), 0);
	wire_bytes_free(&request);
	producers->owed[who] += ack != WIRE_NONE;
	producers->forced += ack == WIRE_FORCED;
}

/* A reader of a log that shows what is forced alone, while others write to it, and retention may pass any place of it. */
static void
read_durable(struct broker *broker, int fd)
{
	int64_t start = wire_log_start(fd, "d", 0), end = wire_high_watermark(fd, "d", 0);

	ck_assert_int_ge(start, 0);
	ck_assert_int_ge(end, start);
	for (int i = 0; i < 2; i++) {
		struct wire_fetched fetched;
		int result = wire_fetch(fd, "d", 0, i == 0 ? start : end, 4096, i == 0 ? 0 : 20, i, &fetched);

		ck_assert_msg(result == 0 || result == WIRE_OFFSET_OUT_OF_RANGE, "%d: %s", result, broker->directory);
		if (result == 0)
			wire_fetched_free(&fetched);
	}
}

static void
run_rounds(struct producers *producers)
{
	int reader = wire_connect_tcp(producers->broker->port);

	ck_assert_int_ge(reader, 0);
	for (int round = 0; round < ROUNDS * broker_scale(); round++) {
		for (int i = 0; i < PRODUCERS * DEPTH; i++)
			send_one(producers, i % PRODUCERS);
		read_durable(producers->broker, reader);
		for (int i = 0; i < PRODUCERS; i++)
			for (; producers->owed[i] > 0; producers->owed[i]--) {
				struct wire_answer answer;

				ck_assert_int_eq(wire_read_answer(producers->fds[i], &answer, WIRE_DEADLINE_MS), 0);
				ck_assert_int_eq(answer.error, WIRE_OK);
				wire_answer_free(&answer);
			}
	}
	/* What is not answered is done, too, when something behind it is. */
	for (int i = 0; i < PRODUCERS; i++)
		ck_assert_int_ge(wire_high_watermark(producers->fds[i], "t", 0), 0);
	close(reader);
}

/* The same clients go on while one worker hands over; then another one dies while nobody waits for it. */
static void
run_all(struct producers *producers)
{
	struct broker *broker = producers->broker;
	pid_t first = broker_worker_of(broker, "t", 0), other;

	connect_all(producers);
	run_rounds(producers);
	ck_assert_int_eq(kill(first, SIGTERM), 0);
	run_rounds(producers);
	close_all(producers);
	ck_assert_int_ne(broker_wait_worker_of(broker, "t", 0, first, 20000), 0);
	other = broker_worker_of(broker, "t", 1);
	ck_assert_int_eq(kill(other, SIGKILL), 0);
	ck_assert_int_ne(broker_wait_worker_of(broker, "t", 1, other, 20000), 0);
	connect_all(producers);
	run_rounds(producers);
	close_all(producers);
}

static void
expect_order(const struct order_trace *trace, const struct broker *broker, long forced, bool mapped)
{
	struct order_config config = { .data_dir = broker->data_dir, .plain = 'p', .durable = 'd' };
	struct order_found found;

	order_check(trace, &config, &found);
	printf("%ld answers to FORCED and %ld as good, %ld slices of durable logs, %ld forces, %ld stores, %zu calls\n",
	    found.forced_answers, found.durable_answers, found.durable_slices, found.forces, found.stores, trace->count);
	ck_assert_msg(found.wrong == 0, "%ld times out of order, at first: %s", found.wrong, found.why);
	ck_assert_int_eq(found.forced_answers, forced);
	ck_assert_int_gt(found.durable_answers, 0);
	ck_assert_int_gt(found.durable_slices, 0);
	ck_assert(mapped ? found.stores > forced / 2 : found.stores == 0);
	for (config.blind = ORDER_BLIND_TO_FILES; config.blind <= ORDER_BLIND_TO_THE_DATA_DIRECTORY; config.blind++) {
		order_check(trace, &config, &found);
		ck_assert_msg(found.wrong > 0, "nothing is wrong without forces of sort %d", config.blind);
	}
}

START_TEST(bug_K1_no_answer_leaves_before_all_of_it_is_forced)
{
	static char preload[BROKER_PATH_BYTES + 16] = "LD_PRELOAD=";
	const char *environment[] = { preload, NULL };
	struct broker broker = { 0 };
	struct producers producers = { .broker = &broker, .seed = broker_seed("bug_K1_order") };
	struct order_trace trace;
	char log[256];

	if (!broker_have_strace()) {
		procs_skipped("bug_K1_no_answer_leaves_before_all_of_it_is_forced", "no strace that may trace here");
		return;
	}
	broker_build_path("tests/order.so", preload + 11, sizeof(preload) - 11);
	snprintf(log, sizeof log, "write_mode = %s\nsegment_bytes = 8KiB\nindex_interval_bytes = 1024\nflush_interval = 50ms\n"
	    "retention_bytes = 24KiB\nretention_check_interval = 20ms\n", modes[_i]);
	broker_start(&broker, &(struct broker_config){ .topics = "t = 3\nd = 2\np = 1\n", .workers = 2, .log = log,
		.sections = "[topic d]\nvisibility = durable\n[topic p]\nrecord_format = plain\n", .environment = environment,
		.strace = "-y -xx -ttt -s 100000 --seccomp-bpf -e trace=clone,clone3,openat,mkdir,mkdirat,renameat,renameat2,unlinkat,"
		    "pwrite64,ftruncate,mmap,fdatasync,fsync,recvfrom,sendto,sendfile -e inject=fdatasync:delay_exit=1000" });
	broker.workers_may_die = true;
	run_all(&producers);
	broker_stop(&broker);
	ck_assert(order_trace_read(&trace, broker.strace_path));
	expect_order(&trace, &broker, producers.forced, _i == 1);
	order_trace_free(&trace);
	broker_end(&broker);
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("order");
	TCase *tc = tcase_create("order");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, bug_K1_no_answer_leaves_before_all_of_it_is_forced, 0, MODES);
	suite_add_tcase(s, tc);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
