/*
 * The library's producer against a really started broker with three workers: where records go, what is told of them while the broker is
 * killed and started again, and that it allocates nothing once it runs. The log is read back by the tests' own wire code.
 */
#include <check.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocations.h"
#include "broker.h"
#include "client/lib/logbroker.h"
#include "wire.h"

enum { PARTITIONS = 3, RESTARTS = 20, NUMBERS_MAX = 2000000, PATIENCE_MS = 60000 };

static struct broker broker;
static char address[BROKER_PATH_BYTES + 8];
static struct lb_producer *producer;
static struct lb_topic *topic;
static struct lb_error error;

/* By Unix socket, whose path outlives restarts. */
static void
start(const struct lb_producer_options *options)
{
	broker_start(&broker, &(struct broker_config){ .workers = 3, .topics = "t = 3\nother = 4\n" });
	snprintf(address, sizeof address, "unix:%s", broker.unix_path);
	ck_assert_msg(lb_producer_open(&producer, address, options, &error) == LB_OK, "%s", error.text);
	ck_assert_msg(lb_topic_open(&topic, producer, "t", &error) == LB_OK, "%s", error.text);
	ck_assert_int_eq(lb_topic_partition_count(topic), PARTITIONS);
}

static void
finish(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

static void
close_producer(struct lb_totals *totals)
{
	ck_assert_msg(lb_producer_close(producer, PATIENCE_MS, totals, &error) == LB_OK, "%s", error.text);
}

/* ---- where records go ---- */

struct told {
	int count;
	int32_t partition;
	int64_t base_offset;
	size_t record_count;
	int code;
};

static void
note(void *context, const struct lb_receipt *receipt, const struct lb_error *failure)
{
	struct told *told = context;

	*told = (struct told){ .count = told->count + 1, .partition = receipt->partition, .base_offset = receipt->base_offset,
		.record_count = receipt->record_count, .code = failure != NULL ? failure->code : LB_OK };
}

START_TEST(C06_round_robin_is_even)
{
	struct told told[10] = { { 0 } };
	int counts[PARTITIONS] = { 0 };

	start(NULL);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(lb_topic_send(topic, NULL, 0, "x", 1, note, &told[i], &error), LB_OK);
	ck_assert_int_eq(lb_producer_flush(producer, PATIENCE_MS, &error), LB_OK);
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(told[i].count, 1);
		ck_assert_int_eq(told[i].code, LB_OK);
		ck_assert_int_eq(told[i].base_offset, counts[told[i].partition]++);
		if (i > 0)
			ck_assert_int_eq(told[i].partition, (told[i - 1].partition + 1) % PARTITIONS);
	}
	for (int i = 0; i < PARTITIONS; i++)
		ck_assert_int_ge(counts[i], 3);
	close_producer(NULL);
	finish();
}
END_TEST

static size_t
from_hex(const char *hex, uint8_t *to)
{
	struct wire_bytes bytes = { 0 };
	size_t count = wire_put_hex(&bytes, hex);

	if (count > 0)
		memcpy(to, bytes.data, count);
	wire_bytes_free(&bytes);
	return count;
}

/* Each golden key, to a topic of three partitions and to one of four, whose numbers the producer has from METADATA. */
START_TEST(C06_keys_as_in_the_golden_vectors)
{
	char path[BROKER_PATH_BYTES], line[4096];
	struct lb_topic *other;
	FILE *vectors;
	int keys = 0;

	start(NULL);
	ck_assert_int_eq(lb_topic_open(&other, producer, "other", &error), LB_OK);
	ck_assert_int_eq(lb_topic_partition_count(other), 4);
	broker_source_path("vectors/partitioner-fnv1a.tsv", path, sizeof path);
	vectors = fopen(path, "r");
	ck_assert_ptr_nonnull(vectors);
	while (fgets(line, sizeof line, vectors) != NULL) {
		struct told of_three = { 0 }, of_four = { 0 };
		uint8_t key[2048];
		size_t key_bytes;
		int three, four;

		if (line[0] == '#')
			continue;
		key_bytes = from_hex(line, key);
		ck_assert_int_eq(sscanf(strchr(line, '\t'), "%*u %*d %*d %d %d", &three, &four), 2);
		ck_assert_int_eq(lb_topic_send(topic, key, key_bytes, "x", 1, note, &of_three, &error), LB_OK);
		ck_assert_int_eq(lb_topic_send(other, key, key_bytes, "x", 1, note, &of_four, &error), LB_OK);
		ck_assert_int_eq(lb_producer_flush(producer, PATIENCE_MS, &error), LB_OK);
		ck_assert_int_eq(of_three.count + of_four.count, 2);
		ck_assert_int_eq(of_three.partition, three);
		ck_assert_int_eq(of_four.partition, four);
		keys++;
	}
	fclose(vectors);
	ck_assert_int_ge(keys, 5);
	close_producer(NULL);
	finish();
}
END_TEST

START_TEST(C07_batch_is_contiguous_and_told)
{
	struct told before = { 0 }, batch = { 0 }, empty = { 0 };
	struct lb_payload records[50];
	struct lb_totals totals;
	struct wire_bytes log = { 0 };
	int fd;

	for (int i = 0; i < 50; i++)
		records[i] = (struct lb_payload){ &"0123456789"[i % 10], 1 };
	start(NULL);
	ck_assert_int_eq(lb_topic_send_to(topic, 1, "before", 6, note, &before, &error), LB_OK);
	ck_assert_int_eq(lb_topic_send_batch(topic, 1, records, 50, note, &batch, &error), LB_OK);
	ck_assert_int_eq(lb_topic_send_batch(topic, 1, records, 0, note, &empty, &error), LB_OK);
	ck_assert_int_eq(lb_producer_flush(producer, PATIENCE_MS, &error), LB_OK);
	ck_assert_int_eq(before.base_offset, 0);
	ck_assert_int_eq(batch.count, 1);
	ck_assert_int_eq(batch.base_offset, 1);
	ck_assert_uint_eq(batch.record_count, 50);
	ck_assert_int_eq(empty.count, 1);
	ck_assert_uint_eq(empty.record_count, 0);
	fd = wire_connect_unix(broker.unix_path);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 1), 51);
	ck_assert_int_eq(wire_read_log(fd, "t", 1, 1, 51, 1 << 20, true, &log), 50);
	for (size_t i = 0; i < 50; i++)
		ck_assert_int_eq(log.data[i * 9 + 8], '0' + (int)(i % 10));
	close(fd);
	wire_bytes_free(&log);
	close_producer(&totals);
	ck_assert_uint_eq(totals.acknowledged, 51);
	finish();
}
END_TEST

/* Not one file of the topic is written before the linger is over, and then all of it is. */
START_TEST(C08_lone_record_with_a_real_broker)
{
	struct lb_producer_options options = lb_producer_defaults();
	struct told told = { 0 };
	int64_t begun;

	options.linger_ms = 100;
	start(&options);
	begun = wire_now_ms();
	ck_assert_int_eq(lb_topic_send(topic, NULL, 0, "lone", 4, note, &told, &error), LB_OK);
	while (told.count == 0)
		lb_source_poll(lb_producer_source(producer), PATIENCE_MS);
	ck_assert_int_ge(wire_now_ms() - begun, 99);
	ck_assert_int_eq(told.code, LB_OK);
	close_producer(NULL);
	finish();
}
END_TEST

START_TEST(producer_acks_of_all_kinds_arrive)
{
	struct lb_producer_options options = lb_producer_defaults();
	struct lb_totals totals;
	int64_t records = 0;
	int fd;

	options.ack = (enum lb_ack)_i;
	options.batch_records = 50;
	start(&options);
	for (int i = 0; i < 3000; i++)
		ck_assert_int_eq(lb_topic_send(topic, NULL, 0, "record", 6, NULL, NULL, &error), LB_OK);
	close_producer(&totals);
	ck_assert_uint_eq(totals.acknowledged, 3000);
	/* With LB_ACK_NONE, too: close has waited for the broker's end of the connections. */
	fd = wire_connect_unix(broker.unix_path);
	for (int i = 0; i < PARTITIONS; i++)
		records += wire_high_watermark(fd, "t", i);
	ck_assert_int_eq(records, 3000);
	close(fd);
	finish();
}
END_TEST

/* ---- a broker that goes away ---- */

struct load {
	pthread_t thread;
	bool stop;		/* atomic */
	int acknowledged;	/* atomic */
	int sent, told;
	int codes_unexpected;
	struct lb_totals totals;
	/* By number: */
	int8_t times_told[NUMBERS_MAX];
	int8_t codes[NUMBERS_MAX];
	int32_t partitions[NUMBERS_MAX];
	int64_t offsets[NUMBERS_MAX];
	uint8_t times_seen[NUMBERS_MAX];
};

static struct load load;

static void
on_outcome(void *context, const struct lb_receipt *receipt, const struct lb_error *failure)
{
	intptr_t number = (intptr_t)context;

	load.told++;
	load.times_told[number]++;
	load.codes[number] = (int8_t)(failure != NULL ? failure->code : LB_OK);
	load.partitions[number] = receipt->partition;
	load.offsets[number] = receipt->base_offset;
	if (failure == NULL)
		__atomic_fetch_add(&load.acknowledged, 1, __ATOMIC_RELAXED);
}

/* A few records a turn, numbered, as long as the main thread has not had enough. */
static void *
run_load(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&load.stop, __ATOMIC_RELAXED)) {
		for (int i = 0; i < 20 && load.sent < NUMBERS_MAX; i++) {
			char record[32];
			int bytes = snprintf(record, sizeof record, "%d.", load.sent);

			if (lb_topic_send(topic, NULL, 0, record, (size_t)bytes, on_outcome, (void *)(intptr_t)load.sent, NULL) !=
			    LB_OK)
				break;
			load.sent++;
		}
		lb_source_poll(lb_producer_source(producer), 1);
	}
	lb_producer_close(producer, PATIENCE_MS, &load.totals, NULL);
	return NULL;
}

static void
wait_for_more(int count)
{
	int64_t deadline = wire_now_ms() + PATIENCE_MS;
	int from = __atomic_load_n(&load.acknowledged, __ATOMIC_RELAXED);

	while (__atomic_load_n(&load.acknowledged, __ATOMIC_RELAXED) < from + count) {
		ck_assert_msg(wire_now_ms() < deadline, "%d records were acknowledged, and no more",
		    __atomic_load_n(&load.acknowledged, __ATOMIC_RELAXED));
		usleep(1000);
	}
}

static void
see_log(int fd, int32_t partition)
{
	struct wire_bytes log = { 0 };
	int64_t end = wire_high_watermark(fd, "t", partition);
	struct wire_record record;
	size_t position = 0;

	ck_assert_int_eq(wire_read_log(fd, "t", partition, 0, end, 1 << 20, true, &log), end);
	for (int64_t offset = 0; offset < end; offset++) {
		int number;

		ck_assert(wire_next_record(log.data, log.length, &position, true, &record, NULL));
		number = atoi(record.payload);
		ck_assert_int_lt(number, load.sent);
		load.times_seen[number]++;
		if (load.codes[number] == LB_OK && load.offsets[number] == offset)
			ck_assert_int_eq(load.partitions[number], partition);
		else
			load.codes_unexpected += load.codes[number] == LB_OK;
	}
	wire_bytes_free(&log);
}

static void
run_restarts(const struct lb_producer_options *options, int restarts)
{
	int fd;

	start(options);
	pthread_create(&load.thread, NULL, run_load, NULL);
	for (int i = 0; i < restarts; i++) {
		wait_for_more(500);
		if (i % 4 == 3)
			broker_stop(&broker);
		else
			broker_kill(&broker);
		broker_restart(&broker, NULL);
	}
	wait_for_more(500);
	__atomic_store_n(&load.stop, true, __ATOMIC_RELAXED);
	pthread_join(load.thread, NULL);
	fd = wire_connect_unix(broker.unix_path);
	ck_assert_int_ge(fd, 0);
	for (int32_t i = 0; i < PARTITIONS; i++)
		see_log(fd, i);
	close(fd);
	ck_assert_int_eq(load.told, load.sent);
	ck_assert_uint_eq(load.totals.accepted, (uint64_t)load.sent);
	ck_assert_uint_eq(load.totals.acknowledged, (uint64_t)load.acknowledged);
	ck_assert_uint_eq(load.totals.accepted, load.totals.acknowledged + load.totals.refused + load.totals.not_sent + load.totals.unknown);
	for (int i = 0; i < load.sent; i++)
		ck_assert_int_eq(load.times_told[i], 1);
}

/* Each record is told once: acknowledged and in the log once, at its offset; or unknown and in it once or not; or not in it. */
START_TEST(C09_broker_restarted_twenty_times_under_load)
{
	struct lb_producer_options options = lb_producer_defaults();

	options.memory_bytes = (size_t)4 << 20;
	options.linger_ms = 1;
	run_restarts(&options, RESTARTS);
	ck_assert_int_eq(load.codes_unexpected, 0);
	for (int i = 0; i < load.sent; i++) {
		if (load.codes[i] == LB_OK)
			ck_assert_int_eq(load.times_seen[i], 1);
		else if (load.codes[i] == LB_OUTCOME_UNKNOWN)
			ck_assert_int_le(load.times_seen[i], 1);
		else
			ck_assert_int_eq(load.times_seen[i], 0);
	}
	finish();
}
END_TEST

/* Nothing is unknown: every record is acknowledged, and in the log at least once. */
START_TEST(C09_at_least_once_under_restarts)
{
	struct lb_producer_options options = lb_producer_defaults();

	options.memory_bytes = (size_t)4 << 20;
	options.linger_ms = 1;
	options.delivery_timeout_ms = 60000;
	options.at_least_once = true;
	run_restarts(&options, RESTARTS / 4);
	for (int i = 0; i < load.sent; i++) {
		if (load.codes[i] == LB_OK)
			ck_assert_int_ge(load.times_seen[i], 1);
		else	/* a worker that is just being started or stopped may refuse */
			ck_assert_int_gt(load.codes[i], 0);
	}
	finish();
}
END_TEST

/* A Unix socket refuses inside connect(2): the connection has failed before there is anything to wait for. */
START_TEST(C09_unix_socket_that_refuses_at_once)
{
	struct told told = { 0 };

	start(NULL);
	broker_kill(&broker);
	ck_assert_int_eq(lb_topic_send_to(topic, 0, "record", 6, note, &told, &error), LB_OK);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(lb_producer_flush(producer, 50, &error), LB_TIMED_OUT);
	broker_restart(&broker, NULL);
	while (told.count == 0)
		lb_source_poll(lb_producer_source(producer), PATIENCE_MS);
	ck_assert_int_eq(told.code, LB_OK);
	close_producer(NULL);
	finish();
}
END_TEST

/* ---- memory ---- */

static int receipts, failures;

static void
count_receipt(void *context, const struct lb_receipt *receipt, const struct lb_error *failure)
{
	(void)context;
	(void)receipt;
	failures += failure != NULL;
	receipts++;
}

/* Without assertions, which allocate. */
static void
run_rounds(int rounds)
{
	static const char record[200];
	struct lb_payload batch[3] = { { record, 10 }, { record, 200 }, { record, 1 } };

	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < 3000; i++) {
			size_t bytes = (size_t)(i * 13 % 200) + 1;

			failures += lb_topic_send(topic, NULL, 0, record, bytes, i % 5 != 0 ? count_receipt : NULL, NULL, &error) != LB_OK;
		}
		failures += lb_topic_send_batch(topic, LB_ANY_PARTITION, batch, 3, count_receipt, NULL, &error) != LB_OK;
		failures += lb_producer_flush(producer, PATIENCE_MS, &error) != LB_OK;
	}
}

START_TEST(producer_that_runs_allocates_nothing)
{
	struct lb_producer_options options = lb_producer_defaults();

	/* All of a round is always held at once: then each size of block has been needed in the first rounds. */
	options.linger_ms = 29000;
	options.batch_records = 100;
	start(&options);
	run_rounds(20);
	allocations_watch(true);
	run_rounds(100);
	allocations_watch(false);
	if (!allocations_are_counted())
		printf("producer_that_runs_allocates_nothing: skipped, a sanitizer allocates here\n");
	ck_assert_uint_eq(allocations_count(), 0);
	ck_assert_int_eq(failures, 0);
	ck_assert_int_eq(receipts, 120 * (2400 + 1));
	close_producer(NULL);
	finish();
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("lib_producer_broker");
	TCase *tcase = tcase_create("broker");

	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, C06_round_robin_is_even);
	tcase_add_test(tcase, C06_keys_as_in_the_golden_vectors);
	tcase_add_test(tcase, C07_batch_is_contiguous_and_told);
	tcase_add_test(tcase, C08_lone_record_with_a_real_broker);
	tcase_add_loop_test(tcase, producer_acks_of_all_kinds_arrive, 0, 3);
	tcase_add_test(tcase, C09_broker_restarted_twenty_times_under_load);
	tcase_add_test(tcase, C09_at_least_once_under_restarts);
	tcase_add_test(tcase, C09_unix_socket_that_refuses_at_once);
	tcase_add_test(tcase, producer_that_runs_allocates_nothing);
	suite_add_tcase(suite, tcase);
	return broker_main(suite);
}
