/*
 * The library's producer against a fake broker: what it does when connections end, when nobody answers or accepts, when memory is
 * short, and inside callbacks. What it does with a real broker is in test_lib_producer_broker.
 */
#include <check.h>
#include <dirent.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker.h"
#include "client/lib/logbroker.h"
#include "fakebroker.h"

enum { TOLD_MAX = 200000, PATIENCE_MS = 60000 };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* What a callback was told; the context is the record's number in the test. */
struct told {
	int number;
	int code;
	int32_t partition;
	int64_t base_offset;
	size_t record_count;
};

static struct fake fake;
static struct lb_producer *producer;
static struct lb_topic *topic;
static struct lb_error error;
static struct told told[TOLD_MAX];
static int told_count;
static uint64_t told_records;
static bool producer_gone;

static uint64_t
settled(const struct lb_totals *totals)
{
	return totals->acknowledged + totals->refused + totals->not_sent + totals->unknown;
}

static struct lb_totals
totals_now(void)
{
	struct lb_totals totals;

	lb_producer_totals(producer, &totals);
	ck_assert_uint_ge(totals.accepted, settled(&totals));
	return totals;
}

static void
on_receipt(void *context, const struct lb_receipt *receipt, const struct lb_error *failure)
{
	struct told *entry = &told[told_count++];
	struct lb_totals totals;

	ck_assert(!producer_gone);
	ck_assert_int_le(told_count, TOLD_MAX);
	ck_assert_str_eq(receipt->topic, "t");
	*entry = (struct told){ .number = (int)(intptr_t)context, .code = failure != NULL ? failure->code : LB_OK,
		.partition = receipt->partition, .base_offset = receipt->base_offset, .record_count = receipt->record_count };
	ck_assert(failure == NULL || receipt->base_offset == -1);
	ck_assert(failure == NULL || strstr(failure->text, "t/") != NULL);
	told_records += receipt->record_count;
	/* What is told has been counted. */
	totals = totals_now();
	ck_assert_uint_ge(settled(&totals), told_records);
}

static void
open_producer(const struct lb_producer_options *options)
{
	ck_assert_msg(lb_producer_open(&producer, fake.address, options, &error) == LB_OK, "%s", error.text);
	ck_assert_msg(lb_topic_open(&topic, producer, "t", &error) == LB_OK, "%s", error.text);
}

static void
start(int partitions, const struct lb_producer_options *options)
{
	fake_start(&fake, partitions, true);
	open_producer(options);
}

static void
close_all(void)
{
	lb_producer_free(producer);
	producer_gone = true;
	fake_stop(&fake);
}

static int
try_send(int32_t partition, int number, size_t bytes)
{
	char *payload = calloc(1, bytes + 16);
	int code;

	snprintf(payload, bytes + 16, "%d.", number);
	code = lb_topic_send_to(topic, partition, payload, bytes, on_receipt, (void *)(intptr_t)number, &error);
	free(payload);
	return code;
}

static void
send_one(int32_t partition, int number, size_t bytes)
{
	int code = try_send(partition, number, bytes);

	ck_assert_msg(code == LB_OK, "%s", error.text);
}

/* Turns until so many receipts have come. */
static void
wait_told(int count)
{
	int64_t deadline = wire_now_ms() + PATIENCE_MS;

	while (told_count < count) {
		ck_assert_msg(wire_now_ms() < deadline, "%d receipts of %d", told_count, count);
		lb_source_poll(lb_producer_source(producer), 1000);
	}
}

/* Turns until so many PRODUCEs have been seen; none of them is waited for. */
static void
wait_produces(int count)
{
	int64_t deadline = wire_now_ms() + PATIENCE_MS;
	bool there = false;

	while (!there) {
		ck_assert_int_lt(wire_now_ms(), deadline);
		lb_source_poll(lb_producer_source(producer), 5);
		pthread_mutex_lock(&fake.mutex);
		there = fake.produces >= count;
		pthread_mutex_unlock(&fake.mutex);
	}
}

static void
expect_all_codes(int code)
{
	for (int i = 0; i < told_count; i++)
		ck_assert_msg(told[i].code == code, "receipt %d of %d: %s", i, told_count, lb_code_name(told[i].code));
}

static int
count_codes(int code)
{
	int count = 0;

	for (int i = 0; i < told_count; i++)
		count += told[i].code == code;
	return count;
}

/* The number that the record begins with. */
static int
number_at(int partition, int64_t offset)
{
	size_t size;

	return atoi((const char *)fake_record(&fake, partition, offset, &size));
}

/* Each number was told once; what was acknowledged stands where it was told, the others at most once if `once`. */
static void
expect_exact(int numbers, bool once)
{
	int *times = calloc((size_t)numbers, sizeof *times);

	ck_assert_int_eq(told_count, numbers);
	for (int i = 0; i < told_count; i++) {
		ck_assert_int_eq(times[told[i].number]++, 0);
		if (told[i].code == LB_OK)
			ck_assert_int_eq(number_at(told[i].partition, told[i].base_offset), told[i].number);
	}
	memset(times, 0, (size_t)numbers * sizeof *times);
	for (int p = 0; p < fake.partition_count; p++) {
		for (int64_t offset = 0; offset < fake_end(&fake, p); offset++)
			times[number_at(p, offset)]++;
	}
	for (int i = 0; i < told_count; i++) {
		int n = times[told[i].number];

		if (told[i].code == LB_OK)
			ck_assert_int_ge(n, 1);
		if (once)
			ck_assert_int_le(n, 1);
		if (told[i].code != LB_OK && told[i].code != LB_OUTCOME_UNKNOWN)
			ck_assert_int_eq(n, 0);
	}
	free(times);
}

static struct lb_producer_options
options_with(int batch_records, int linger_ms)
{
	struct lb_producer_options options = lb_producer_defaults();

	options.batch_records = batch_records;
	options.linger_ms = linger_ms;
	return options;
}

/* ---- options, arguments ---- */

static void
refuse_options(const struct lb_producer_options *options, const char *name)
{
	ck_assert_int_eq(lb_producer_open(&producer, "127.0.0.1:1", options, &error), LB_INVALID_ARGUMENT);
	ck_assert_ptr_null(producer);
	ck_assert_msg(strstr(error.text, name) != NULL, "'%s' names no %s", error.text, name);
}

START_TEST(producer_options_are_checked)
{
	struct lb_producer_options options;

#define REFUSE(field, value) \
	options = lb_producer_defaults(); \
	options.field = (value); \
	refuse_options(&options, #field)
	REFUSE(ack, 3);
	REFUSE(batch_records, 0);
	REFUSE(batch_records, 1000001);
	REFUSE(batch_bytes, 0);
	REFUSE(batch_bytes, LB_FRAME_MAX_BYTES);
	REFUSE(batch_bytes, SIZE_MAX);
	REFUSE(linger_ms, -1);
	REFUSE(linger_ms, 30000);
	REFUSE(in_flight, 0);
	REFUSE(memory_bytes, 0);
	REFUSE(delivery_timeout_ms, 0);
#undef REFUSE
	ck_assert_int_eq(lb_producer_open(&producer, NULL, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_producer_open(&producer, NULL, NULL, NULL), LB_INVALID_ARGUMENT);
	lb_producer_free(NULL);
}
END_TEST

START_TEST(producer_arguments_are_checked)
{
	struct lb_payload two[2] = { { "a", 1 }, { "", 0 } };
	struct lb_topic *again;

	start(2, NULL);
	ck_assert_int_eq(lb_topic_open(&again, producer, "a/b", &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_topic_open(&again, producer, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_topic_open(&again, producer, "other", &error), LB_UNKNOWN_TOPIC_OR_PARTITION);
	ck_assert_int_eq(lb_topic_open(&again, producer, "t", &error), LB_OK);
	ck_assert_ptr_eq(again, topic);
	ck_assert_str_eq(lb_topic_name(topic), "t");
	ck_assert_int_eq(lb_topic_partition_count(topic), 2);
	ck_assert_int_eq(try_send(2, 0, 1), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(error.partition, 2);
	ck_assert_int_eq(try_send(-1, 0, 1), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(try_send(0, 0, 0), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_topic_send(topic, NULL, 0, NULL, 1, NULL, NULL, NULL), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_topic_send_batch(topic, 2, two, 1, NULL, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_topic_send_batch(topic, 0, two, 2, NULL, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_producer_flush(producer, -1, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_producer_close(producer, -1, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(totals_now().accepted, 0);
	close_all();
}
END_TEST

/* ---- batches ---- */

START_TEST(C08_full_batch_is_sent_at_once)
{
	struct lb_producer_options options = options_with(10, 29000);
	int64_t begun = wire_now_ms();

	start(1, &options);
	for (int i = 0; i < 25; i++)
		send_one(0, i, 10);
	wait_told(20);
	ck_assert_int_lt(wire_now_ms() - begun, 29000);
	ck_assert_int_eq(told_count, 20);
	ck_assert_int_eq(fake.produces, 2);
	ck_assert_int_eq(lb_producer_flush(producer, PATIENCE_MS, &error), LB_OK);
	ck_assert_int_eq(fake.produces, 3);
	ck_assert_int_lt(wire_now_ms() - begun, 29000);
	expect_all_codes(LB_OK);
	expect_exact(25, true);
	close_all();
}
END_TEST

START_TEST(C08_lone_record_is_sent_after_linger_and_not_before)
{
	struct lb_producer_options options = options_with(1000, 200);
	int64_t begun;

	start(1, &options);
	begun = wire_now_ms();
	send_one(0, 0, 10);
	wait_told(1);
	ck_assert_int_ge(wire_now_ms() - begun, 199);
	expect_all_codes(LB_OK);
	close_all();
}
END_TEST

/* Records at, before and behind the moment of the timer, in loops of every length. */
START_TEST(C08_record_with_the_timer_is_not_lost)
{
	struct lb_producer_options options = options_with(1000, 1);

	start(1, &options);
	for (int i = 0; i < 2000; i++) {
		int64_t until = wire_now_us() + i % 50 * 40;

		send_one(0, i, 10);
		lb_source_process(lb_producer_source(producer));
		while (wire_now_us() < until)
			continue;
	}
	wait_told(2000);
	expect_all_codes(LB_OK);
	expect_exact(2000, true);
	for (int i = 0; i < 2000; i++)
		ck_assert_int_eq(told[i].base_offset, i);
	close_all();
}
END_TEST

START_TEST(C08_batches_split_below_their_bytes)
{
	struct lb_producer_options options = options_with(1000, 5);

	options.batch_bytes = 5000;
	start(1, &options);
	for (int i = 0; i < 500; i++)
		send_one(0, i, 16 + (size_t)(i * 37 % 300));
	send_one(0, 500, 20000);
	send_one(0, 501, 20);
	wait_told(502);
	expect_all_codes(LB_OK);
	expect_exact(502, true);
	/* The large one was alone. */
	ck_assert_int_eq(fake.largest_request, 8 + 2 + 1 + 4 + 1 + 4 + 4 + 20000);
	close_all();
}
END_TEST

START_TEST(C08_record_as_large_as_a_frame)
{
	size_t most = LB_FRAME_MAX_BYTES - (8 + 2 + 1 + 4 + 1 + 4) - 4;
	char *bytes = calloc(1, most + 1);
	struct lb_payload halves[2] = { { bytes, most / 2 }, { bytes, most - most / 2 - 4 } };

	bytes[0] = '7';
	start(1, NULL);
	ck_assert_int_eq(lb_topic_send_to(topic, 0, bytes, most + 1, on_receipt, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_topic_send_to(topic, 0, bytes, SIZE_MAX, on_receipt, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_topic_send_to(topic, 0, bytes, most, on_receipt, NULL, &error), LB_OK);
	ck_assert_int_eq(lb_topic_send_batch(topic, 0, halves, 2, on_receipt, NULL, &error), LB_OK);
	halves[0].bytes++;
	ck_assert_int_eq(lb_topic_send_batch(topic, 0, halves, 2, on_receipt, NULL, &error), LB_INVALID_ARGUMENT);
	wait_told(2);
	expect_all_codes(LB_OK);
	ck_assert_int_eq(fake.largest_request, LB_FRAME_MAX_BYTES);
	ck_assert_int_eq(totals_now().acknowledged, 3);
	close_all();
	free(bytes);
}
END_TEST

START_TEST(C07_batch_goes_behind_what_is_accumulated)
{
	struct lb_producer_options options = options_with(1000, 29000);
	struct lb_payload three[3] = { { "2.", 2 }, { "3.", 2 }, { "4.", 2 } };

	start(1, &options);
	send_one(0, 0, 10);
	send_one(0, 1, 10);
	ck_assert_int_eq(lb_topic_send_batch(topic, 0, three, 3, on_receipt, (void *)2, &error), LB_OK);
	send_one(0, 5, 10);
	wait_told(3);
	ck_assert_int_eq(told[2].record_count, 3);
	ck_assert_int_eq(told[2].base_offset, 2);
	ck_assert_int_eq(fake_end(&fake, 0), 5);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(number_at(0, i), i);
	ck_assert_int_eq(totals_now().accepted, 6);
	ck_assert_int_eq(totals_now().acknowledged, 5);
	close_all();
}
END_TEST

START_TEST(C07_empty_batch_sends_nothing)
{
	start(2, NULL);
	for (int round = 0; round < 3; round++) {
		ck_assert_int_eq(lb_topic_send_batch(topic, LB_ANY_PARTITION, NULL, 0, on_receipt, NULL, &error), LB_OK);
		ck_assert_int_eq(told_count, round);
		ck_assert_int_eq(lb_source_wants(lb_producer_source(producer)).timeout_ms, 0);
		lb_source_process(lb_producer_source(producer));
		ck_assert_int_eq(told_count, round + 1);
		ck_assert_int_eq(told[round].code, LB_OK);
		ck_assert_uint_eq(told[round].record_count, 0);
	}
	ck_assert_int_eq(lb_producer_close(producer, 1000, NULL, &error), LB_OK);
	ck_assert_int_eq(fake.produces, 0);
	fake_stop(&fake);
}
END_TEST

START_TEST(producer_partitions_take_turns_on_a_connection)
{
	struct lb_producer_options options = options_with(1, 0);
	int place = -1;

	options.in_flight = 1;
	fake_start(&fake, 3, true);
	fake.faults.groups = 1;
	open_producer(&options);
	fake_change(&fake, &(struct fake_faults){ .groups = 1, .stalled = true });
	for (int i = 0; i < 100; i++)
		send_one(0, i, 10);
	send_one(2, 100, 10);
	fake_change(&fake, &(struct fake_faults){ 0 });
	wait_told(101);
	for (int i = 0; i < 101; i++) {
		if (told[i].partition == 2)
			place = i;
	}
	ck_assert_int_ge(place, 0);
	ck_assert_int_le(place, 2);
	expect_exact(101, true);
	close_all();
}
END_TEST

/* ---- groups ---- */

static int
peer_of(int partition)
{
	int peer;

	pthread_mutex_lock(&fake.mutex);
	peer = fake.partitions[partition].peer;
	pthread_mutex_unlock(&fake.mutex);
	return peer;
}

static void
send_to_each(int partitions)
{
	int before = told_count;

	for (int i = 0; i < partitions; i++)
		send_one(i, before + i, 10);
	wait_told(before + partitions);
}

START_TEST(producer_has_a_connection_per_group)
{
	start(4, NULL);
	send_to_each(4);
	ck_assert_int_eq(peer_of(0), peer_of(2));
	ck_assert_int_eq(peer_of(1), peer_of(3));
	ck_assert_int_ne(peer_of(0), peer_of(1));
	/* One asked for METADATA. */
	ck_assert_int_eq(fake.connections, 3);
	expect_all_codes(LB_OK);
	close_all();
}
END_TEST

START_TEST(producer_has_one_connection_with_a_broker_that_knows_no_groups)
{
	fake_start(&fake, 4, true);
	fake.faults.only_v1 = true;
	open_producer(NULL);
	send_to_each(4);
	for (int i = 1; i < 4; i++)
		ck_assert_int_eq(peer_of(i), peer_of(0));
	ck_assert_int_eq(fake.connections, 2);
	expect_all_codes(LB_OK);
	close_all();
}
END_TEST

static void
let_it_be_noticed(void)
{
	for (int i = 0; i < 20; i++)
		lb_source_poll(lb_producer_source(producer), 10);
}

START_TEST(producer_follows_groups_that_change)
{
	start(4, NULL);
	send_to_each(4);
	fake_change(&fake, &(struct fake_faults){ .groups = 4 });
	fake_cut(&fake);
	let_it_be_noticed();
	/* Until both connections are back and their METADATA was read. */
	for (int round = 0; round < 200 && peer_of(0) == peer_of(2); round++) {
		send_to_each(4);
		let_it_be_noticed();
	}
	for (int i = 0; i < 4; i++) {
		for (int j = 0; j < i; j++)
			ck_assert_int_ne(peer_of(i), peer_of(j));
	}
	expect_all_codes(LB_OK);
	close_all();
}
END_TEST

static int
produces(void)
{
	int count;

	pthread_mutex_lock(&fake.mutex);
	count = fake.produces;
	pthread_mutex_unlock(&fake.mutex);
	return count;
}

/* Partition 2 moves from group 0 to group 2 while a bundle of it is not answered: what follows waits for that answer. */
START_TEST(producer_moves_partitions_with_nothing_in_flight_only)
{
	struct lb_producer_options options = options_with(1, 0);

	start(4, &options);
	send_to_each(4);
	fake_change(&fake, &(struct fake_faults){ .groups = 4, .hold_produces = 7 });
	send_one(2, 4, 10);
	wait_produces(5);
	fake_cut_one(&fake, peer_of(1));
	let_it_be_noticed();
	send_one(1, 5, 10);
	wait_produces(6);
	let_it_be_noticed();
	send_one(2, 6, 10);
	let_it_be_noticed();
	ck_assert_int_eq(produces(), 6);
	/* Brings the answers with it: */
	send_one(0, 7, 10);
	wait_produces(8);
	send_one(1, 8, 10);
	wait_told(9);
	expect_all_codes(LB_OK);
	expect_exact(9, true);
	ck_assert_int_ne(peer_of(2), peer_of(0));
	ck_assert_int_eq(number_at(2, 1), 4);
	ck_assert_int_eq(number_at(2, 2), 6);
	close_all();
}
END_TEST

/* ---- losses ---- */

/* The answer is cut at every place, its end included. */
START_TEST(C09_answer_cut_at_every_byte)
{
	struct lb_producer_options options = options_with(1, 0);

	start(1, &options);
	fake_change(&fake, &(struct fake_faults){ .cut_produces = 1, .cut_bytes = (size_t)_i });
	send_one(0, 0, 10);
	wait_told(1);
	ck_assert_int_eq(told[0].code, _i < 26 ? LB_OUTCOME_UNKNOWN : LB_OK);
	/* The end of a connection that has answered may come behind the next request: it is unknown, too. */
	for (int i = 1; told[told_count - 1].code != LB_OK || i == 1; i++) {
		ck_assert_int_lt(i, 10);
		send_one(0, i, 10);
		wait_told(i + 1);
	}
	expect_exact(told_count, true);
	close_all();
}
END_TEST

START_TEST(C09_request_that_was_not_executed_is_unknown)
{
	struct lb_producer_options options = options_with(1, 0);

	start(1, &options);
	fake_change(&fake, &(struct fake_faults){ .close_at_produce = 3 });
	for (int i = 0; i < 6; i++)
		send_one(0, i, 10);
	wait_told(6);
	ck_assert_int_eq(told[2].code, LB_OUTCOME_UNKNOWN);
	ck_assert_int_eq(count_codes(LB_OK) + count_codes(LB_OUTCOME_UNKNOWN), 6);
	expect_exact(6, true);
	ck_assert_uint_eq(totals_now().unknown, (uint64_t)count_codes(LB_OUTCOME_UNKNOWN));
	close_all();
}
END_TEST

/* Executed, not answered, connection gone: never sent again. */
START_TEST(C09_unknown_outcome_is_not_repeated)
{
	struct lb_producer_options options = options_with(1, 0);

	start(1, &options);
	fake_change(&fake, &(struct fake_faults){ .silent = true });
	for (int i = 0; i < 5; i++)
		send_one(0, i, 10);
	wait_produces(5);
	fake_change(&fake, &(struct fake_faults){ 0 });
	fake_cut(&fake);
	wait_told(5);
	expect_all_codes(LB_OUTCOME_UNKNOWN);
	send_one(0, 5, 10);
	wait_told(6);
	ck_assert_int_eq(told[5].code, LB_OK);
	expect_exact(6, true);
	close_all();
}
END_TEST

START_TEST(C09_at_least_once_is_sent_again_in_order)
{
	struct lb_producer_options options = options_with(1, 0);

	options.at_least_once = true;
	start(1, &options);
	fake_change(&fake, &(struct fake_faults){ .silent = true });
	for (int i = 0; i < 20; i++)
		send_one(0, i, 10);
	wait_produces(8);
	fake_change(&fake, &(struct fake_faults){ 0 });
	fake_cut(&fake);
	wait_told(20);
	expect_all_codes(LB_OK);
	expect_exact(20, false);
	ck_assert_int_eq(fake_end(&fake, 0), 28);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(number_at(0, 8 + i), i);
	ck_assert_uint_eq(totals_now().acknowledged, 20);
	close_all();
}
END_TEST

/* What has not left whole is sent again, and what has is unknown: the broker reads nothing while megabytes wait for it. */
START_TEST(C09_lost_while_bundles_leave)
{
	struct lb_producer_options options = options_with(1, 0);
	int unknown;

	options.in_flight = 64;
	start(1, &options);
	fake_change(&fake, &(struct fake_faults){ .stalled = true });
	for (int i = 0; i < 60; i++)
		send_one(0, i, 512 * 1024);
	let_it_be_noticed();
	fake_change(&fake, &(struct fake_faults){ 0 });
	fake_cut(&fake);
	wait_told(60);
	unknown = count_codes(LB_OUTCOME_UNKNOWN);
	ck_assert_int_gt(unknown, 0);
	ck_assert_int_eq(count_codes(LB_OK), 60 - unknown);
	ck_assert_int_gt(count_codes(LB_OK), 0);
	expect_exact(60, true);
	for (int i = 0; i < 60; i++)
		ck_assert_int_eq(told[i].number, i);
	close_all();
}
END_TEST

START_TEST(C09_refused_connections_until_the_broker_is_back)
{
	struct lb_producer_options options = options_with(10, 1);
	int port;

	start(2, &options);
	port = fake_port(&fake);
	fake_stop(&fake);
	for (int i = 0; i < 100; i++)
		send_one(i % 2, i, 10);
	for (int i = 0; i < 30; i++)
		lb_source_poll(lb_producer_source(producer), 20);
	ck_assert_int_eq(told_count, 0);
	fake_start_at(&fake, port, 2, true);
	wait_told(100);
	expect_all_codes(LB_OK);
	expect_exact(100, true);
	close_all();
}
END_TEST

START_TEST(C09_refused_connections_for_too_long)
{
	struct lb_producer_options options = options_with(10, 1);
	int64_t begun;

	options.delivery_timeout_ms = 2000;
	start(1, &options);
	fake_stop(&fake);
	begun = wire_now_ms();
	for (int i = 0; i < 15; i++)
		send_one(0, i, 10);
	wait_told(15);
	ck_assert_int_ge(wire_now_ms() - begun, 2000);
	expect_all_codes(LB_CANNOT_CONNECT);
	ck_assert_uint_eq(totals_now().not_sent, 15);
	ck_assert_int_eq(lb_producer_close(producer, 0, NULL, &error), LB_CANNOT_CONNECT);
	ck_assert_ptr_nonnull(strstr(error.text, "refused"));
}
END_TEST

START_TEST(C09_bad_answer_is_unknown)
{
	static const uint8_t short_body[] = { 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4 };
	static const uint8_t noise[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
	struct lb_producer_options options = options_with(1, 0);
	struct fake_faults faults[3] = { { .raw = short_body, .raw_bytes = sizeof short_body },
		{ .raw = noise, .raw_bytes = sizeof noise }, { .id_shift = 1 } };

	start(1, &options);
	fake_change(&fake, &faults[_i]);
	send_one(0, 0, 10);
	wait_told(1);
	ck_assert_int_eq(told[0].code, LB_OUTCOME_UNKNOWN);
	fake_change(&fake, &(struct fake_faults){ 0 });
	send_one(0, 1, 10);
	wait_told(2);
	ck_assert_int_eq(told[1].code, LB_OK);
	close_all();
}
END_TEST

/* ---- silence ---- */

/* One bundle in flight, four behind it: the first is unknown, the others were never sent. Then it goes on over another connection. */
START_TEST(producer_gives_up_on_silence)
{
	struct lb_producer_options options = options_with(1, 0);
	int64_t begun;

	options.in_flight = 1;
	options.delivery_timeout_ms = 2000;
	start(1, &options);
	fake_change(&fake, &(struct fake_faults){ .silent = true });
	begun = wire_now_ms();
	for (int i = 0; i < 5; i++)
		send_one(0, i, 10);
	wait_told(5);
	ck_assert_int_ge(wire_now_ms() - begun, 2000);
	ck_assert_int_eq(told[0].code, LB_OUTCOME_UNKNOWN);
	ck_assert_int_eq(told[0].number, 0);
	ck_assert_int_eq(count_codes(LB_TIMED_OUT), 4);
	ck_assert_uint_eq(totals_now().unknown, 1);
	ck_assert_uint_eq(totals_now().not_sent, 4);
	fake_change(&fake, &(struct fake_faults){ 0 });
	send_one(0, 5, 10);
	wait_told(6);
	ck_assert_int_eq(told[5].code, LB_OK);
	expect_exact(6, true);
	close_all();
}
END_TEST

/*
 * The second record's time passes while it is in flight, the third's does not. The answer to the second comes then: it changes nothing of
 * what was told, and the connection is of use again.
 */
START_TEST(producer_takes_late_answers)
{
	struct lb_producer_options options = options_with(1, 0);
	int64_t begun;
	int connections;

	options.delivery_timeout_ms = 4000;
	start(1, &options);
	fake_change(&fake, &(struct fake_faults){ .stall_at = 2 });
	send_one(0, 0, 10);
	wait_told(1);
	send_one(0, 1, 10);
	wait_told(2);
	connections = fake.connections;
	begun = wire_now_ms();
	send_one(0, 2, 10);
	while (wire_now_ms() < begun + 2000)
		lb_source_poll(lb_producer_source(producer), 100);
	send_one(0, 3, 10);
	wait_told(3);
	ck_assert_int_eq(told[2].code, LB_OUTCOME_UNKNOWN);
	fake_change(&fake, &(struct fake_faults){ 0 });
	wait_told(4);
	ck_assert_int_eq(told[3].code, LB_OK);
	send_one(0, 4, 10);
	wait_told(5);
	ck_assert_int_eq(told[4].code, LB_OK);
	expect_exact(5, true);
	ck_assert_int_eq(fake.connections, connections);
	ck_assert_uint_eq(totals_now().unknown, 1);
	close_all();
}
END_TEST

/* The first records' time passes while nothing can be sent; those behind keep their order. */
START_TEST(producer_timeouts_reorder_nothing)
{
	struct lb_producer_options options = options_with(1, 0);
	int last[2] = { -1, -1 };
	int port;

	options.delivery_timeout_ms = 600;
	start(2, &options);
	port = fake_port(&fake);
	fake_stop(&fake);
	for (int i = 0; i < 40; i++) {
		send_one(i % 2, i, 10);
		for (int64_t until = wire_now_ms() + 20; wire_now_ms() < until; )
			lb_source_poll(lb_producer_source(producer), 20);
	}
	fake_start_at(&fake, port, 2, true);
	wait_told(40);
	ck_assert_int_lt(count_codes(LB_OK), 40);
	expect_exact(40, true);
	for (int i = 0; i < 40; i++) {
		ck_assert_int_gt(told[i].number, last[told[i].partition]);
		last[told[i].partition] = told[i].number;
	}
	close_all();
}
END_TEST

/* Sent, lost, and no broker to send it to again: it may be in the log, whatever the reason is by now. */
START_TEST(C09_at_least_once_that_cannot_be_sent_again_is_unknown)
{
	struct lb_producer_options options = options_with(1, 0);

	options.at_least_once = true;
	options.delivery_timeout_ms = _i == 0 ? 2000 : 30000;
	start(1, &options);
	fake_change(&fake, &(struct fake_faults){ .silent = true });
	send_one(0, 0, 10);
	wait_produces(1);
	fake_stop(&fake);
	let_it_be_noticed();
	send_one(0, 1, 10);
	if (_i == 0)
		wait_told(2);
	lb_producer_free(producer);
	ck_assert_int_eq(told_count, 2);
	ck_assert_int_eq(told[0].code, LB_OUTCOME_UNKNOWN);
	ck_assert_int_eq(told[1].code, _i == 0 ? LB_CANNOT_CONNECT : LB_CLOSED);
}
END_TEST

/* ---- refusals ---- */

START_TEST(producer_tells_of_topics_that_disappear)
{
	start(2, NULL);
	fake_change(&fake, &(struct fake_faults){ .no_topic = true });
	for (int i = 0; i < 10; i++)
		send_one(i % 2, i, 10);
	wait_told(10);
	expect_all_codes(LB_UNKNOWN_TOPIC_OR_PARTITION);
	ck_assert_uint_eq(totals_now().refused, 10);
	ck_assert_int_eq(lb_producer_close(producer, 100, NULL, &error), LB_UNKNOWN_TOPIC_OR_PARTITION);
	ck_assert_str_eq(error.topic, "t");
	fake_stop(&fake);
}
END_TEST

START_TEST(producer_passes_on_codes_of_the_future)
{
	struct lb_producer_options options = options_with(1, 0);

	start(1, &options);
	fake_change(&fake, &(struct fake_faults){ .produce_error = 77, .produce_error_at = 2 });
	for (int i = 0; i < 3; i++)
		send_one(0, i, 10);
	wait_told(3);
	ck_assert_int_eq(told[0].code, LB_OK);
	ck_assert_int_eq(told[1].code, 77);
	ck_assert_int_eq(told[2].code, LB_OK);
	expect_exact(3, true);
	ck_assert_uint_eq(totals_now().refused, 1);
	close_all();
}
END_TEST

/* ---- memory ---- */

static int
fill(void)
{
	int count = 0;

	while (try_send(0, told_count + count, 100) == LB_OK)
		count++;
	ck_assert_int_eq(error.code, LB_WOULD_BLOCK);
	return count;
}

/* As much is accepted again after each way in which records can end. */
START_TEST(producer_memory_is_exact)
{
	static const struct fake_faults ways[] = { { 0 }, { .no_topic = true }, { .silent = true }, { .cut_produces = 1 }, { 0 } };
	struct lb_producer_options options = options_with(10, 1);
	struct lb_totals totals;
	int most = 0;

	options.memory_bytes = 100000;
	options.delivery_timeout_ms = 500;
	options.at_least_once = _i == 1;
	start(1, &options);
	for (size_t i = 0; i < COUNT(ways); i++) {
		int count;

		fake_change(&fake, &ways[i]);
		count = fill();
		ck_assert_int_gt(count, 100);
		if (i > 0)
			ck_assert_int_eq(count, most);
		most = count;
		wait_told(told_count + count);
		totals = totals_now();
		ck_assert_uint_eq(totals.accepted, (uint64_t)told_count);
		ck_assert_uint_eq(settled(&totals), totals.accepted);
	}
	close_all();
}
END_TEST

/* A record that would block has no turn: it is the same partition's when it is sent again. */
START_TEST(C06_round_robin_is_even_though_it_blocks)
{
	struct lb_producer_options options = options_with(10, 1);
	int blocked = 0;

	options.memory_bytes = 10000;
	start(3, &options);
	for (int i = 0; i < 3000; ) {
		int code = lb_topic_send(topic, NULL, 0, "record", 6, on_receipt, NULL, &error);

		ck_assert(code == LB_OK || code == LB_WOULD_BLOCK);
		i += code == LB_OK;
		if (code == LB_OK)
			continue;
		blocked++;
		lb_source_poll(lb_producer_source(producer), 1000);
	}
	ck_assert_int_gt(blocked, 0);
	ck_assert_int_eq(lb_producer_flush(producer, PATIENCE_MS, &error), LB_OK);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(fake_end(&fake, i), 1000);
	close_all();
}
END_TEST

START_TEST(producer_accepts_one_record_above_its_memory)
{
	struct lb_producer_options options = options_with(10, 1);

	options.memory_bytes = 10;
	start(1, &options);
	for (int i = 0; i < 3; i++) {
		send_one(0, i, 1000);
		ck_assert_int_eq(try_send(0, i, 1), LB_WOULD_BLOCK);
		wait_told(i + 1);
	}
	expect_all_codes(LB_OK);
	close_all();
}
END_TEST

/* ---- event loops ---- */

static bool changed;

static void
on_changed(void *context, bool gone)
{
	(void)context;
	(void)gone;
	changed = true;
}

/* A loop that asks what is wanted only when it is told to: lone records, full batches, and a connection that is lost. */
START_TEST(producer_tells_what_event_loops_need)
{
	struct lb_producer_options options = options_with(3, 2);
	struct lb_wants wants = { .fd = -1 };
	int sent = 0;

	start(2, &options);
	lb_source_watch(lb_producer_source(producer), on_changed, NULL);
	changed = true;
	for (int round = 0; round < 300; round++) {
		for (int i = 0; i <= round % 5; i++)
			send_one(0, sent++, 10);
		if (round % 100 == 99)
			fake_cut(&fake);
		while (told_count < sent) {
			struct pollfd fd;

			if (changed)
				wants = lb_source_wants(lb_producer_source(producer));
			changed = false;
			ck_assert_int_ge(wants.timeout_ms, 0);
			fd = (struct pollfd){ .fd = wants.fd, .events = wants.events };
			/* Not by the delivery time-out's processing. */
			ck_assert(poll(&fd, 1, wants.timeout_ms) > 0 || wants.timeout_ms < 10000);
			lb_source_process(lb_producer_source(producer));
		}
	}
	ck_assert_int_eq(count_codes(LB_OK) + count_codes(LB_OUTCOME_UNKNOWN), sent);
	expect_exact(sent, true);
	close_all();
}
END_TEST

/* ---- callbacks ---- */

static int left_to_send;

static void
send_again(void *context, const struct lb_receipt *receipt, const struct lb_error *failure)
{
	ck_assert_ptr_null(failure);
	told_count++;
	if (left_to_send == 0)
		return;
	left_to_send--;
	ck_assert_int_eq(lb_topic_send_to(topic, receipt->partition, "again", 5, send_again, context, &error), LB_OK);
}

START_TEST(producer_callbacks_send_again)
{
	struct lb_producer_options options = options_with(_i == 0 ? 1 : 3, _i);

	left_to_send = 500;
	start(2, &options);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(lb_topic_send(topic, NULL, 0, "first", 5, send_again, NULL, &error), LB_OK);
	wait_told(504);
	ck_assert_uint_eq(totals_now().acknowledged, 504);
	ck_assert_int_eq(fake_end(&fake, 0) + fake_end(&fake, 1), 504);
	close_all();
}
END_TEST

static int free_at;

static void
free_inside(void *context, const struct lb_receipt *receipt, const struct lb_error *failure)
{
	ck_assert(!producer_gone);
	on_receipt(context, receipt, failure);
	if (told_count != free_at)
		return;
	lb_producer_free(producer);
	producer_gone = true;
}

/* At the n-th receipt of bundles of five, some of them in flight, some waiting, one open. */
START_TEST(producer_is_freed_in_a_callback)
{
	struct lb_producer_options options = options_with(5, 29000);

	options.in_flight = 2;
	free_at = _i + 1;
	start(1, &options);
	for (int i = 0; i < 33; i++)
		ck_assert_int_eq(lb_topic_send_to(topic, 0, "record", 6, free_inside, (void *)(intptr_t)i, &error), LB_OK);
	while (!producer_gone)
		lb_source_poll(lb_producer_source(producer), 1000);
	ck_assert_int_eq(told_count, 33);
	for (int i = 0; i < 33; i++)
		ck_assert_int_eq(told[i].number, i);
	/* The bundle that was being told keeps its outcome. */
	for (int i = 0; i < free_at || i % 5 != 0; i++)
		ck_assert_int_eq(told[i].code, LB_OK);
	ck_assert_int_eq(told[32].code, LB_CLOSED);
	fake_stop(&fake);
}
END_TEST

/* Freed in a callback of its own flush, close or free. */
START_TEST(producer_is_freed_in_a_callback_of_a_synchronous_call)
{
	free_at = 3;
	start(1, NULL);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(lb_topic_send_to(topic, 0, "record", 6, free_inside, (void *)(intptr_t)i, &error), LB_OK);
	if (_i == 0)
		ck_assert_int_eq(lb_producer_flush(producer, PATIENCE_MS, &error), LB_CLOSED);
	else if (_i == 1)
		lb_producer_close(producer, PATIENCE_MS, NULL, &error);
	else
		lb_producer_free(producer);
	ck_assert(producer_gone);
	ck_assert_int_eq(told_count, 10);
	fake_stop(&fake);
}
END_TEST

static void
ask_for_what_waits(void *context, const struct lb_receipt *receipt, const struct lb_error *failure)
{
	struct lb_topic *other;

	on_receipt(context, receipt, failure);
	ck_assert_int_eq(lb_producer_flush(producer, 0, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_producer_flush(producer, 1000, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_producer_close(producer, 1000, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_topic_open(&other, producer, "other", &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_topic_open(&other, producer, "t", &error), LB_OK);
	lb_source_process(lb_producer_source(producer));
	lb_source_poll(lb_producer_source(producer), 1000);
}

START_TEST(producer_callbacks_cannot_wait)
{
	start(1, NULL);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(lb_topic_send_to(topic, 0, "record", 6, ask_for_what_waits, (void *)(intptr_t)i, &error), LB_OK);
	ck_assert_int_eq(lb_producer_flush(producer, PATIENCE_MS, &error), LB_OK);
	ck_assert_int_eq(told_count, 10);
	expect_all_codes(LB_OK);
	close_all();
}
END_TEST

static void
send_while_closing(void *context, const struct lb_receipt *receipt, const struct lb_error *failure)
{
	struct lb_topic *other;

	on_receipt(context, receipt, failure);
	ck_assert_int_eq(lb_topic_send(topic, NULL, 0, "x", 1, NULL, NULL, &error), LB_CLOSED);
	ck_assert_int_eq(lb_topic_open(&other, producer, "t", &error), LB_CLOSED);
}

START_TEST(producer_that_is_being_closed_accepts_nothing)
{
	start(1, NULL);
	ck_assert_int_eq(lb_topic_send_to(topic, 0, "record", 6, send_while_closing, NULL, &error), LB_OK);
	if (_i == 0)
		ck_assert_int_eq(lb_producer_close(producer, PATIENCE_MS, NULL, &error), LB_OK);
	else
		lb_producer_free(producer);
	ck_assert_int_eq(told_count, 1);
	ck_assert_int_eq(told[0].code, _i == 0 ? LB_OK : LB_CLOSED);
	fake_stop(&fake);
}
END_TEST

/* ---- flush, close, free ---- */

START_TEST(producer_flush_that_only_begins)
{
	struct lb_producer_options options = options_with(1000, 29000);

	start(1, &options);
	fake_change(&fake, &(struct fake_faults){ .stalled = true });
	for (int i = 0; i < 10; i++)
		send_one(0, i, 10);
	ck_assert_int_eq(lb_producer_flush(producer, 0, &error), LB_TIMED_OUT);
	ck_assert_ptr_nonnull(strstr(error.text, "10 records"));
	ck_assert_int_eq(lb_producer_flush(producer, 100, &error), LB_TIMED_OUT);
	fake_change(&fake, &(struct fake_faults){ 0 });
	wait_told(10);
	ck_assert_int_eq(fake.produces, 1);
	ck_assert_int_eq(lb_producer_flush(producer, 0, &error), LB_OK);
	ck_assert_int_eq(lb_producer_close(producer, 0, NULL, &error), LB_OK);
	fake_stop(&fake);
}
END_TEST

/* One bundle in flight that is not answered, one waiting, one open. */
START_TEST(producer_close_tells_what_was_not_acknowledged)
{
	struct lb_producer_options options = options_with(5, 29000);
	struct lb_totals totals;

	options.in_flight = 1;
	start(1, &options);
	send_one(0, 0, 10);
	ck_assert_int_eq(lb_producer_flush(producer, PATIENCE_MS, &error), LB_OK);
	fake_change(&fake, &(struct fake_faults){ .silent = true });
	for (int i = 1; i < 13; i++)
		send_one(0, i, 10);
	wait_produces(2);
	ck_assert_int_eq(lb_producer_close(producer, 100, &totals, &error), LB_OUTCOME_UNKNOWN);
	ck_assert_int_eq(error.code, LB_OUTCOME_UNKNOWN);
	ck_assert_uint_eq(totals.accepted, 13);
	ck_assert_uint_eq(totals.acknowledged, 1);
	ck_assert_uint_eq(totals.unknown, 5);
	ck_assert_uint_eq(totals.not_sent, 7);
	ck_assert_int_eq(count_codes(LB_TIMED_OUT), 7);
	expect_exact(13, true);
	fake_stop(&fake);
}
END_TEST

START_TEST(producer_free_completes_everything)
{
	struct lb_producer_options options = options_with(5, 29000);

	options.in_flight = 1;
	options.at_least_once = _i == 1;
	start(1, &options);
	fake_change(&fake, &(struct fake_faults){ .silent = true });
	for (int i = 0; i < 12; i++)
		send_one(0, i, 10);
	wait_produces(1);
	lb_producer_free(producer);
	ck_assert_int_eq(told_count, 12);
	ck_assert_int_eq(count_codes(LB_OUTCOME_UNKNOWN), 5);
	ck_assert_int_eq(count_codes(LB_CLOSED), 7);
	fake_stop(&fake);
}
END_TEST

/* As many records as fit nowhere but in the sockets: they have arrived when close returns LB_OK, or soon. */
START_TEST(producer_without_acknowledgements_arrives)
{
	struct lb_producer_options options = lb_producer_defaults();
	struct lb_totals totals;

	options.ack = LB_ACK_NONE;
	start(3, &options);
	for (int i = 0; i < 30000; i++)
		ck_assert_int_eq(lb_topic_send(topic, NULL, 0, "0123456789", 10, i % 100 == 0 ? on_receipt : NULL, NULL, &error), LB_OK);
	ck_assert_int_eq(lb_producer_close(producer, PATIENCE_MS, &totals, &error), LB_OK);
	ck_assert_uint_eq(totals.acknowledged, 30000);
	ck_assert_int_eq(told_count, 300);
	for (int i = 0; i < 300; i++)
		ck_assert_int_eq(told[i].base_offset, -1);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(fake_end(&fake, i), 10000);
	fake_stop(&fake);
}
END_TEST

static int
open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(directory) != NULL)
		count++;
	closedir(directory);
	return count;
}

START_TEST(producer_leaves_no_descriptors)
{
	struct lb_producer_options options = options_with(1, 0);
	int before;

	fake_start(&fake, 2, true);
	before = open_descriptors();
	open_producer(&options);
	ck_assert_int_eq(lb_source_wants(lb_producer_source(producer)).events, POLLIN);
	for (int round = 0; round < 20; round++) {
		int fd = lb_source_wants(lb_producer_source(producer)).fd;

		send_to_each(2);
		fake_cut(&fake);
		let_it_be_noticed();
		ck_assert_int_eq(lb_source_wants(lb_producer_source(producer)).fd, fd);
	}
	lb_producer_free(producer);
	/* The fake's own go when it has seen the end of its connections. */
	for (int64_t until = wire_now_ms() + PATIENCE_MS; open_descriptors() > before; )
		ck_assert_int_lt(wire_now_ms(), until);
	fake_stop(&fake);
}
END_TEST

/* A child of the program's has the lost connection's socket yet: nobody waits for that. */
START_TEST(producer_is_quiet_while_a_fork_has_its_sockets)
{
	struct lb_producer_options options = options_with(1, 0);
	int64_t until = wire_now_ms() + PATIENCE_MS;
	struct pollfd news = { .events = POLLIN };
	pid_t holder;

	start(1, &options);
	send_one(0, 0, 1);
	wait_told(1);
	holder = broker_fork_holder();
	fake_cut(&fake);
	let_it_be_noticed();
	send_one(0, 1, 1);
	wait_told(2);
	news.fd = lb_source_wants(lb_producer_source(producer)).fd;
	while (poll(&news, 1, 0) != 0) {
		ck_assert_int_lt(wire_now_ms(), until);
		lb_source_process(lb_producer_source(producer));
	}
	broker_end_holder(holder);
	close_all();
}
END_TEST

static void
reset(void)
{
	told_count = 0;
	told_records = 0;
	producer_gone = false;
}

static void
add_sending(TCase *tcase)
{
	tcase_add_test(tcase, producer_options_are_checked);
	tcase_add_test(tcase, producer_arguments_are_checked);
	tcase_add_test(tcase, C08_full_batch_is_sent_at_once);
	tcase_add_test(tcase, C08_lone_record_is_sent_after_linger_and_not_before);
	tcase_add_test(tcase, C08_record_with_the_timer_is_not_lost);
	tcase_add_test(tcase, C08_batches_split_below_their_bytes);
	tcase_add_test(tcase, C08_record_as_large_as_a_frame);
	tcase_add_test(tcase, C07_batch_goes_behind_what_is_accumulated);
	tcase_add_test(tcase, C07_empty_batch_sends_nothing);
	tcase_add_test(tcase, producer_partitions_take_turns_on_a_connection);
	tcase_add_test(tcase, producer_has_a_connection_per_group);
	tcase_add_test(tcase, producer_has_one_connection_with_a_broker_that_knows_no_groups);
	tcase_add_test(tcase, producer_follows_groups_that_change);
	tcase_add_test(tcase, producer_moves_partitions_with_nothing_in_flight_only);
}

static void
add_losses(TCase *tcase)
{
	tcase_add_loop_test(tcase, C09_answer_cut_at_every_byte, 0, 27);
	tcase_add_test(tcase, C09_request_that_was_not_executed_is_unknown);
	tcase_add_test(tcase, C09_unknown_outcome_is_not_repeated);
	tcase_add_test(tcase, C09_at_least_once_is_sent_again_in_order);
	tcase_add_test(tcase, C09_lost_while_bundles_leave);
	tcase_add_test(tcase, C09_refused_connections_until_the_broker_is_back);
	tcase_add_test(tcase, C09_refused_connections_for_too_long);
	tcase_add_loop_test(tcase, C09_bad_answer_is_unknown, 0, 3);
	tcase_add_loop_test(tcase, C09_at_least_once_that_cannot_be_sent_again_is_unknown, 0, 2);
	tcase_add_test(tcase, producer_gives_up_on_silence);
	tcase_add_test(tcase, producer_takes_late_answers);
	tcase_add_test(tcase, producer_timeouts_reorder_nothing);
	tcase_add_test(tcase, producer_tells_of_topics_that_disappear);
	tcase_add_test(tcase, producer_passes_on_codes_of_the_future);
	tcase_add_loop_test(tcase, producer_memory_is_exact, 0, 2);
	tcase_add_test(tcase, C06_round_robin_is_even_though_it_blocks);
	tcase_add_test(tcase, producer_accepts_one_record_above_its_memory);
}

static void
add_ends(TCase *tcase)
{
	tcase_add_test(tcase, producer_tells_what_event_loops_need);
	tcase_add_loop_test(tcase, producer_callbacks_send_again, 0, 2);
	tcase_add_loop_test(tcase, producer_is_freed_in_a_callback, 0, 12);
	tcase_add_loop_test(tcase, producer_is_freed_in_a_callback_of_a_synchronous_call, 0, 3);
	tcase_add_test(tcase, producer_callbacks_cannot_wait);
	tcase_add_loop_test(tcase, producer_that_is_being_closed_accepts_nothing, 0, 2);
	tcase_add_test(tcase, producer_flush_that_only_begins);
	tcase_add_test(tcase, producer_close_tells_what_was_not_acknowledged);
	tcase_add_loop_test(tcase, producer_free_completes_everything, 0, 2);
	tcase_add_test(tcase, producer_without_acknowledgements_arrives);
	tcase_add_test(tcase, producer_leaves_no_descriptors);
	tcase_add_test(tcase, producer_is_quiet_while_a_fork_has_its_sockets);
}

int
main(void)
{
	static void (*const groups[])(TCase *) = { add_sending, add_losses, add_ends };
	static const char *const names[] = { "sending", "losses", "ends" };
	Suite *suite = suite_create("lib_producer");

	for (size_t i = 0; i < COUNT(groups); i++) {
		TCase *tcase = tcase_create(names[i]);

		tcase_set_timeout(tcase, 120);
		tcase_add_checked_fixture(tcase, reset, NULL);
		groups[i](tcase);
		suite_add_tcase(suite, tcase);
	}
	return broker_main(suite);
}
