/*
 * visibility = durable: a record is seen, by METADATA, FETCH and held FETCHes, and acknowledged to its producer whatever
 * ack it asked for, when a barrier has reached it and not before. badsync.so holds the barrier as long as a test says.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum { SOON_MS = 20000, RECORD_BYTES = 8 + 1, STORAGE_FAILURE = 6, OUT_OF_RANGE = 2 };

static struct broker broker;

static void
start(void)
{
	procs_start_with_badsync(&broker, &(struct broker_config){ .topics = "t = 2\n",
	    .log = "visibility = durable\nflush_interval = off\n" });
}

static void
finish(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

static void
send_request(int fd, struct wire_bytes *request)
{
	ck_assert_int_eq(wire_send(fd, request->data, request->length), 0);
	wire_bytes_free(request);
}

static void
send_produce(int fd, int32_t id, int ack)
{
	struct wire_bytes request = { 0 };

	wire_put_produce_one(&request, id, "t", 0, ack, "x", 1);
	send_request(fd, &request);
}

static int64_t
watermark(int fd)
{
	return wire_high_watermark(fd, "t", 0);
}

/* The record is in the file: this worker can tell by the file's size alone. */
static void
wait_written(int64_t records)
{
	char path[BROKER_PATH_BYTES];

	broker_partition_path(&broker, "t", 0, 0, path, sizeof path);
	for (int i = 0; i < SOON_MS; i++) {
		size_t length;
		char *bytes = procs_read_file(path, &length);

		free(bytes);
		if ((int64_t)length == records * RECORD_BYTES)
			return;
		usleep(1000);
	}
	ck_abort_msg("the record is not written");
}

/* `_i`: the producer's ack. */
START_TEST(D02_visible_and_acknowledged_behind_the_barrier)
{
	struct wire_fetched fetched;
	int producer, reader, held;

	start();
	producer = wire_connect_tcp(broker.port);
	reader = wire_connect_tcp(broker.port);
	held = wire_connect_tcp(broker.port);
	ck_assert_int_eq(watermark(reader), 0);
	procs_let_barriers(&broker, "hold");
	send_produce(producer, 1, _i);
	wait_written(1);
	/* Seen by nobody, told to nobody. */
	ck_assert_int_eq(watermark(reader), 0);
	ck_assert_int_eq(wire_fetch(reader, "t", 0, 0, 100, 0, 0, &fetched), 0);
	ck_assert_uint_eq(fetched.length, 0);
	ck_assert_int_eq(fetched.high_watermark, 0);
	wire_fetched_free(&fetched);
	ck_assert_int_eq(wire_fetch(reader, "t", 0, 1, 100, 0, 0, &fetched), OUT_OF_RANGE);
	ck_assert(wire_silent(producer, 100));
	{
		struct wire_bytes request = { 0 };

		wire_put_fetch(&request, 7, "t", 0, 0, 100, 50000, 1);
		send_request(held, &request);
	}
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, 1, SOON_MS));
	procs_let_barriers(&broker, "work");
	if (_i != WIRE_NONE)
		ck_assert_int_eq(wire_expect(producer, 1), 0);
	{
		struct wire_answer answer;

		ck_assert_int_eq(wire_read_answer(held, &answer, SOON_MS), 0);
		ck_assert_int_eq(wire_parse_fetched(&answer, &fetched), 0);
		ck_assert_uint_eq(fetched.length, RECORD_BYTES);
		ck_assert_int_eq(fetched.high_watermark, 1);
		wire_fetched_free(&fetched);
		wire_answer_free(&answer);
	}
	ck_assert_int_eq(watermark(reader), 1);
	close(producer);
	close(reader);
	close(held);
	finish();
}
END_TEST

/* A barrier's completion is the seam where a wake-up could be lost: a reader that asks at that very moment, many times. */
START_TEST(B03_durable_no_wake_up_is_lost)
{
	int rounds = 2000 * broker_scale();
	int producer, reader;

	start();
	producer = wire_connect_tcp(broker.port);
	reader = wire_connect_tcp(broker.port);
	for (int i = 0; i < rounds; i++) {
		struct wire_fetched fetched;

		send_produce(producer, i, i % 2 == 0 ? WIRE_WRITTEN : WIRE_FORCED);
		ck_assert_int_eq(wire_fetch(reader, "t", 0, i, 100, 50000, 1, &fetched), 0);
		ck_assert_uint_eq(fetched.length, RECORD_BYTES);
		wire_fetched_free(&fetched);
		ck_assert_int_eq(wire_expect(producer, i), 0);
	}
	close(producer);
	close(reader);
	finish();
}
END_TEST

static bool
takes_records(void *fd)
{
	return wire_produce_one(*(int *)fd, "t", 0, WIRE_WRITTEN, "z", 1, NULL) == 0;
}

/* What a barrier has not reached was never seen, and is not there when it fails; nor does the watermark fall then. */
START_TEST(a_failed_barrier_shows_nothing)
{
	struct wire_fetched fetched;
	int fd;

	start();
	fd = wire_connect_tcp(broker.port);
	ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_WRITTEN, "x", 1, NULL), 0);
	procs_let_barriers(&broker, "fail");
	for (int ack = WIRE_NONE; ack <= WIRE_FORCED; ack++)
		send_produce(fd, ack, ack);
	ck_assert_int_eq(wire_expect(fd, WIRE_WRITTEN), STORAGE_FAILURE);
	ck_assert_int_eq(wire_expect(fd, WIRE_FORCED), STORAGE_FAILURE);
	ck_assert_int_eq(watermark(fd), 1);
	ck_assert_int_eq(wire_fetch(fd, "t", 0, 0, 100, 0, 0, &fetched), 0);
	ck_assert_uint_eq(fetched.length, RECORD_BYTES);
	wire_fetched_free(&fetched);
	procs_let_barriers(&broker, "work");
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "z", 1, NULL), 0);
	ck_assert(broker_wait(takes_records, &fd, SOON_MS));
	ck_assert_int_ge(watermark(fd), 2);
	ck_assert_int_eq(broker_count_log(&broker, "is open again with less"), 0);
	close(fd);
	finish();
}
END_TEST

static Suite *
suite(void)
{
	Suite *all = suite_create("visibility");
	TCase *durable = tcase_create("durable"), *mapped = tcase_create("mapped");

	tcase_set_timeout(durable, 120.0 * broker_scale());
	suite_add_tcase(all, durable);
	tcase_add_loop_test(durable, D02_visible_and_acknowledged_behind_the_barrier, WIRE_NONE, WIRE_FORCED + 1);
	tcase_add_test(durable, B03_durable_no_wake_up_is_lost);
	tcase_add_test(durable, a_failed_barrier_shows_nothing);
	tcase_set_timeout(mapped, 120);
	tcase_add_checked_fixture(mapped, broker_use_mapped, NULL);
	tcase_add_test(mapped, a_failed_barrier_shows_nothing);
	suite_add_tcase(all, mapped);
	return all;
}

int
main(void)
{
	return broker_main(suite());
}
