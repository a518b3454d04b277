/*
 * Subscriptions of the library against a really started broker with several workers.
 */
#include <check.h>
#include <logbroker-event.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocations.h"
#include "broker.h"
#include "procs.h"
#include "subscribing.h"
#include "wire.h"

static struct broker broker;
static char address[BROKER_PATH_BYTES + 8];

/* By Unix socket, whose path outlives restarts. */
static void
start(const struct broker_config *config)
{
	broker_start(&broker, config);
	snprintf(address, sizeof address, "unix:%s", broker.unix_path);
}

static void
finish(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

static int
dial(void)
{
	int fd = wire_connect_unix(broker.unix_path);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* Records that name their partition and offset, `size` bytes each. */
static void
produce(int fd, int32_t partition, int64_t from, int count, size_t size)
{
	struct wire_record *records = calloc((size_t)count, sizeof *records);
	char *bytes = calloc((size_t)count, size);
	int64_t base;

	for (int i = 0; i < count; i++) {
		snprintf(bytes + (size_t)i * size, size, "%d:%lld", (int)partition, (long long)(from + i));
		records[i] = (struct wire_record){ bytes + (size_t)i * size, size };
	}
	ck_assert_int_eq(wire_produce(fd, "t", partition, WIRE_WRITTEN, records, (size_t)count, &base, NULL), 0);
	ck_assert_int_eq(base, from);
	free(records);
	free(bytes);
}

static void
look(struct subscribing *by, int32_t partition, const struct lb_record *record)
{
	char expected[64];

	(void)by;
	snprintf(expected, sizeof expected, "%d:%lld", (int)partition, (long long)record->offset);
	ck_assert_str_eq(record->data, expected);
}

START_TEST(C01_subscribe_by_name_from_earliest)
{
	struct subscribing by;
	int fd;

	start(&(struct broker_config){ .workers = 3, .topics = "t = 3\nother = 2\n" });
	fd = dial();
	for (int32_t partition = 0; partition < 3; partition++)
		produce(fd, partition, 0, 100 + partition, 64);
	subscribing_init(&by, _i);
	by.look = look;
	subscribing_open(&by, address, "t");
	subscribing_until(&by, 303);
	for (int round = 0; round < 20; round++) {
		produce(fd, round % 3, 100 + round % 3 + round / 3, 1, 64);
		subscribing_until(&by, 304 + round);
	}
	for (int32_t partition = 0; partition < 3; partition++)
		ck_assert_int_eq(by.first[partition], 0);
	ck_assert_int_eq(by.error.code, LB_OK);
	subscribing_close(&by);
	close(fd);
	finish();
}
END_TEST

START_TEST(C01_plain_records)
{
	struct subscribing by;
	int fd;

	start(&(struct broker_config){ .topics = "t = 2\n", .log = "record_format = plain\n" });
	fd = dial();
	produce(fd, 0, 0, 50, 32);
	produce(fd, 1, 0, 70, 32);
	subscribing_init(&by, _i);
	by.look = look;
	by.options.stop = LB_STOP_AT_WATERMARK;
	subscribing_open(&by, address, "t");
	ck_assert_int_eq(subscribing_until_stop(&by), LB_ENDED);
	ck_assert_int_eq(by.records, 120);
	subscribing_close(&by);
	close(fd);
	finish();
}
END_TEST

/* ---- in a loop -------------------------------------------------------------------------------------------------- */

struct looped {
	struct lb_subscription *subscription;
	long records, until;
};

/* The last one frees the subscription, after which the loop has nothing left to wait for. */
static int
count_in_loop(void *context, const struct lb_batch *batch)
{
	struct looped *looped = context;

	looped->records += (long)batch->record_count;
	if (looped->records == looped->until)
		lb_subscription_free(looped->subscription);
	return 0;
}

static void
produce_more(evutil_socket_t no_fd, short events, void *context)
{
	(void)no_fd;
	(void)events;
	produce(*(int *)context, 1, 50, 1, 64);
}

START_TEST(C01_in_libevents_loop)
{
	struct lb_subscription_options options = lb_subscription_defaults();
	struct event_base *base = event_base_new();
	struct looped looped = { .until = 101 };
	struct timeval later = { .tv_usec = 50000 };
	int fd;

	start(&(struct broker_config){ .workers = 2, .topics = "t = 3\n" });
	fd = dial();
	produce(fd, 0, 0, 50, 64);
	produce(fd, 1, 0, 50, 64);
	options.handler = count_in_loop;
	options.context = &looped;
	options.max_bytes = 1000;
	ck_assert_int_eq(lb_subscription_open(&looped.subscription, address, "t", &options, NULL), LB_OK);
	ck_assert_int_eq(lb_event_attach(lb_subscription_source(looped.subscription), base), 0);
	/* When everything is caught up and held. */
	ck_assert_int_eq(event_base_once(base, -1, EV_TIMEOUT, produce_more, &fd, &later), 0);
	event_base_dispatch(base);
	ck_assert_int_eq(looped.records, 101);
	event_base_free(base);
	close(fd);
	finish();
}
END_TEST

/* ---- retention -------------------------------------------------------------------------------------------------- */

static const char retention[] = "segment_bytes = 1KiB\nretention_bytes = 1\nretention_check_interval = 10ms\n";

START_TEST(C02_earliest_behind_retention)
{
	struct subscribing by;
	int64_t next = 0;
	int fd;

	start(&(struct broker_config){ .topics = "t = 1\n", .log = retention });
	fd = dial();
	/* Retention runs beside: each start is somewhere between its METADATA and its first FETCH. */
	for (int round = 0; round < 10 * broker_scale() || wire_log_start(fd, "t", 0) == 0; round++) {
		produce(fd, 0, next, 50, 100);
		next += 50;
		subscribing_init(&by, round % 2);
		by.look = look;
		subscribing_open(&by, address, "t");
		subscribing_until(&by, 1);
		subscribing_close(&by);
	}
	ck_assert_int_gt(by.first[0], 0);
	close(fd);
	finish();
}
END_TEST

START_TEST(bug_J3_behind_the_log_start)
{
	struct subscribing by;
	int64_t next = 0;
	int fd;

	start(&(struct broker_config){ .topics = "t = 1\n", .log = retention });
	fd = dial();
	for (; wire_log_start(fd, "t", 0) == 0; next += 50)
		produce(fd, 0, next, 50, 100);
	for (int policy = 0; policy < 3; policy++) {
		subscribing_init(&by, _i);
		by.look = look;
		by.options.start = LB_START_OFFSET;
		by.options.start_offset = 0;
		by.options.on_gap = policy == 0 ? LB_GAP_FAIL : policy == 1 ? LB_GAP_EARLIEST : LB_GAP_LATEST;
		subscribing_open(&by, address, "t");
		if (policy == 0) {
			ck_assert_int_eq(subscribing_until_stop(&by), LB_GAP);
			ck_assert_int_gt(by.error.skipped, 0);
			ck_assert_int_le(by.error.skipped, wire_log_start(fd, "t", 0));
		} else {
			while (lb_subscription_position(by.subscription, 0) < 0)
				subscribing_for(&by, 5);
			produce(fd, 0, next++, 1, 100);
			subscribing_until(&by, 1);
			ck_assert_int_eq(by.first[0], by.skipped);
			ck_assert_int_gt(by.skipped, 0);
			if (policy == 2)
				ck_assert_int_eq(by.skipped, next - 1);
		}
		subscribing_close(&by);
	}
	close(fd);
	finish();
}
END_TEST

/* ---- a topic that is written to --------------------------------------------------------------------------------- */

/* Writes to partitions in turn until it is told to stop; finds the broker again when it is gone. */
struct writer {
	pthread_t thread;
	int partitions, batch;
	volatile bool stop;
	volatile long batches;
};

static void *
write_on(void *argument)
{
	struct writer *writer = argument;
	struct wire_record records[100];
	char text[64];
	int fd = -1;

	for (long i = 0; !writer->stop; i++) {
		snprintf(text, sizeof text, "batch %ld", i);
		for (int r = 0; r < writer->batch; r++)
			records[r] = (struct wire_record){ text, strlen(text) };
		if (fd < 0 && (fd = wire_connect_unix(broker.unix_path)) < 0) {
			usleep(1000);
			continue;
		}
		if (wire_produce(fd, "t", (int32_t)(i % writer->partitions), WIRE_WRITTEN, records, (size_t)writer->batch, NULL,
		    NULL) != 0) {
			close(fd);
			fd = -1;
			continue;
		}
		writer->batches++;
	}
	if (fd >= 0)
		close(fd);
	return NULL;
}

static void
begin_writing(struct writer *writer, int partitions, int batch)
{
	*writer = (struct writer){ .partitions = partitions, .batch = batch };
	ck_assert_int_eq(pthread_create(&writer->thread, NULL, write_on, writer), 0);
	while (writer->batches < 10)
		usleep(1000);
}

static void
end_writing(struct writer *writer)
{
	writer->stop = true;
	pthread_join(writer->thread, NULL);
}

START_TEST(bug_J2_C03_replay_of_a_topic_that_is_written_to)
{
	struct subscribing by;
	struct writer writer;
	int fd;

	start(&(struct broker_config){ .workers = 2, .topics = "t = 2\n" });
	begin_writing(&writer, 2, 100);
	fd = dial();
	for (int round = 0; round < 10 * broker_scale(); round++) {
		int64_t before[2], after[2];

		subscribing_init(&by, round % 2);
		by.options.stop = LB_STOP_AT_WATERMARK;
		by.options.max_bytes = 5000;
		by.options.start = LB_START_BEFORE_END;
		by.options.start_offset = 3000;
		for (int32_t p = 0; p < 2; p++)
			before[p] = wire_high_watermark(fd, "t", p);
		subscribing_open(&by, address, "t");
		while (lb_subscription_position(by.subscription, 0) < 0)
			subscribing_for(&by, 1);
		for (int32_t p = 0; p < 2; p++)
			after[p] = wire_high_watermark(fd, "t", p);
		ck_assert_int_eq(subscribing_until_stop(&by), LB_ENDED);
		for (int32_t p = 0; p < 2; p++) {
			ck_assert_int_ge(by.next[p], before[p]);
			ck_assert_int_le(by.next[p], after[p]);
		}
		subscribing_close(&by);
	}
	end_writing(&writer);
	close(fd);
	finish();
}
END_TEST

enum { BEHIND = 100000, BEHIND_BYTES = 200 };

/* While it handles its first batch, a hundred thousand records come. */
static int
fall_behind(struct subscribing *by, const struct lb_batch *batch)
{
	if (by->batches == 1)
		for (int64_t at = batch->next_offset; at < BEHIND; at += 1000)
			produce(*(int *)by->context, 0, at, (int)(BEHIND - at < 1000 ? BEHIND - at : 1000), BEHIND_BYTES);
	return 0;
}

START_TEST(C05_a_handler_a_hundred_thousand_records_behind)
{
	struct subscribing by;
	long rss_kib;
	int fd;

	start(&(struct broker_config){ .topics = "t = 1\n" });
	fd = dial();
	produce(fd, 0, 0, 1, BEHIND_BYTES);
	subscribing_init(&by, _i);
	by.look = look;
	by.handle = fall_behind;
	by.context = &fd;
	by.options.max_bytes = 100000;
	subscribing_open(&by, address, "t");
	subscribing_until(&by, 2);
	rss_kib = broker_rss_kib(getpid());
	subscribing_until(&by, BEHIND);
	ck_assert_int_ge(by.batches, BEHIND * (BEHIND_BYTES + 8) / 100000);
	ck_assert_int_eq(by.next[0], BEHIND);
	ck_assert_msg(broker_is_asan() || broker_rss_kib(getpid()) - rss_kib < 2048, "%ld KiB more", broker_rss_kib(getpid()) - rss_kib);
	subscribing_close(&by);
	close(fd);
	finish();
}
END_TEST

/* Check's assertions allocate, so this one only counts. */
static int
count_batch(void *context, const struct lb_batch *batch)
{
	*(long *)context += (long)batch->record_count;
	return 0;
}

/* slowly: all that is read ahead has come before the next batch is taken, so that all memory there will ever be is there. */
static void
count_until(struct lb_subscription *subscription, bool pull, bool slowly, long *records, long until)
{
	int64_t until_ms = wire_now_ms() + SUBSCRIBING_DEADLINE_MS;
	const struct lb_batch *batch;

	allocations_watch(true);
	while (*records < until && wire_now_ms() < until_ms) {
		if (!pull)
			lb_source_poll(lb_subscription_source(subscription), 100);
		else if (lb_subscription_next(subscription, 100, &batch, NULL) == LB_OK)
			count_batch(records, batch);
		for (int i = 0; slowly && i < 4; i++) {
			usleep(500);
			lb_source_process(lb_subscription_source(subscription));
		}
	}
	allocations_watch(false);
	ck_assert_int_ge(*records, until);
}

/* Replaying, and following record by record: once every size has been there. */
START_TEST(a_running_subscription_allocates_nothing)
{
	struct lb_subscription_options options = lb_subscription_defaults();
	struct lb_subscription *subscription;
	unsigned long allocations;
	long records = 0;
	int fd;

	start(&(struct broker_config){ .workers = 2, .topics = "t = 2\n" });
	fd = dial();
	for (int i = 0; i < 200; i++)
		produce(fd, i % 2, i / 2 * 100, 100, 1000);
	options.max_bytes = 100800;
	options.handler = _i ? NULL : count_batch;
	options.context = &records;
	ck_assert_int_eq(lb_subscription_open(&subscription, address, "t", &options, NULL), LB_OK);
	count_until(subscription, _i, true, &records, 10000);
	allocations = allocations_count();
	ck_assert(!allocations_are_counted() || allocations > 0);
	count_until(subscription, _i, false, &records, 20000);
	for (int i = 0; i < 100; i++) {
		produce(fd, i % 2, 10000 + i / 2, 1, 1000);
		count_until(subscription, _i, false, &records, 20001 + i);
	}
	ck_assert_uint_eq(allocations_count(), allocations);
	if (!allocations_are_counted())
		printf("a_running_subscription_allocates_nothing: skipped, a sanitizer allocates here\n");
	lb_subscription_free(subscription);
	close(fd);
	finish();
}
END_TEST

/* ---- a broker that goes and comes back -------------------------------------------------------------------------- */

enum { FOLLOWERS = 4, FOLLOWED_PARTITIONS = 3 };

struct follower {
	struct subscribing by;
	uint32_t sums[FOLLOWED_PARTITIONS];	/* of all records so far */
};

static uint32_t
add_to_sum(uint32_t sum, const void *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		sum = (sum ^ ((const uint8_t *)data)[i]) * 0x01000193;
	return sum ^ (uint32_t)bytes;
}

static void
sum_up(struct subscribing *by, int32_t partition, const struct lb_record *record)
{
	struct follower *follower = by->context;

	follower->sums[partition] = add_to_sum(follower->sums[partition], record->data, record->bytes);
}

static void
follow(struct follower *followers)
{
	for (int i = 0; i < FOLLOWERS; i++)
		subscribing_for(&followers[i].by, 0);
	usleep(1000);
}

/* Until everybody has what is in the log, which nobody writes to any more. */
static void
catch_up(struct follower *followers)
{
	int fd = dial();

	for (int32_t partition = 0; partition < FOLLOWED_PARTITIONS; partition++) {
		struct wire_bytes log = { 0 };
		struct wire_record record;
		int64_t end = wire_high_watermark(fd, "t", partition);
		uint32_t sum = 0;
		size_t at = 0;

		ck_assert_int_eq(wire_read_log(fd, "t", partition, 0, end, 1000000, true, &log), end);
		while (wire_next_record(log.data, log.length, &at, true, &record, NULL))
			sum = add_to_sum(sum, record.payload, record.length);
		for (int i = 0; i < FOLLOWERS; i++) {
			int64_t until_ms = wire_now_ms() + SUBSCRIBING_DEADLINE_MS;

			while (followers[i].by.next[partition] < end && wire_now_ms() < until_ms)
				subscribing_for(&followers[i].by, 10);
			ck_assert_int_eq(followers[i].by.next[partition], end);
			ck_assert_int_eq(followers[i].by.first[partition], 0);
			ck_assert_uint_eq(followers[i].sums[partition], sum);
			ck_assert_int_eq(followers[i].by.stops, 0);
		}
		wire_bytes_free(&log);
	}
	close(fd);
}

/* Until each follower has had something from each partition since. */
static void
follow_for_more(struct follower *followers)
{
	int64_t since[FOLLOWERS][FOLLOWED_PARTITIONS], until_ms = wire_now_ms() + SUBSCRIBING_DEADLINE_MS;
	int behind;

	for (int i = 0; i < FOLLOWERS; i++)
		memcpy(since[i], followers[i].by.next, sizeof since[i]);
	do {
		follow(followers);
		behind = 0;
		for (int i = 0; i < FOLLOWERS; i++)
			for (int p = 0; p < FOLLOWED_PARTITIONS; p++)
				behind += followers[i].by.next[p] == since[i][p];
	} while (behind > 0 && wire_now_ms() < until_ms);
	ck_assert_int_eq(behind, 0);
}

/* As many as at first: everybody has all connections again, and not one of the old ones. */
static void
follow_until_descriptors(struct follower *followers, int count)
{
	int64_t until_ms = wire_now_ms() + SUBSCRIBING_DEADLINE_MS;

	while (broker_fd_count(getpid()) != count && wire_now_ms() < until_ms)
		follow(followers);
	ck_assert_int_eq(broker_fd_count(getpid()), count);
}

static void
take_away(int round)
{
	pid_t worker;

	broker.workers_may_die = true;
	switch (round % 4) {
	case 0:
		worker = broker_worker_of(&broker, "t", round % FOLLOWED_PARTITIONS);
		kill(worker, SIGKILL);
		/* A stop that meets it dead would have something to complain of. */
		ck_assert_int_gt(broker_wait_worker_of(&broker, "t", round % FOLLOWED_PARTITIONS, worker, BROKER_START_MS), 0);
		return;
	case 1:
		broker_stop(&broker);
		break;
	default:
		broker_kill(&broker);
	}
	broker_restart(&broker, NULL);
}

START_TEST(bug_G7_C09_a_broker_restarted_again_and_again)
{
	static struct follower followers[FOLLOWERS];
	struct writer writer;
	int descriptors = 0, rounds = 5 * broker_scale();

	start(&(struct broker_config){ .workers = 3, .topics = "t = 3\n" });
	for (int i = 0; i < FOLLOWERS; i++) {
		subscribing_init(&followers[i].by, i % 2);
		followers[i].by.look = sum_up;
		followers[i].by.context = &followers[i];
		followers[i].by.options.max_wait_ms = 30000;
		followers[i].by.options.max_bytes = i < 2 ? 1000 : 1024 * 1024;
		subscribing_open(&followers[i].by, address, "t");
	}
	begin_writing(&writer, FOLLOWED_PARTITIONS, 3);
	for (int round = 0; round < rounds; round++) {
		follow_for_more(followers);
		if (round == 0)
			descriptors = broker_fd_count(getpid());
		follow_until_descriptors(followers, descriptors);
		take_away(round);
	}
	follow_for_more(followers);
	end_writing(&writer);
	catch_up(followers);
	for (int i = 0; i < FOLLOWERS; i++)
		subscribing_close(&followers[i].by);
	finish();
}
END_TEST

/* ---- records ---------------------------------------------------------------------------------------------------- */

START_TEST(A14_requests_end_inside_records)
{
	struct subscribing by;
	int fd;

	start(&(struct broker_config){ .topics = "t = 1\n", .log = "segment_bytes = 4KiB\n" });
	fd = dial();
	produce(fd, 0, 0, 30, 100);
	subscribing_init(&by, _i);
	by.look = look;
	by.options.stop = LB_STOP_AT_WATERMARK;
	for (int32_t max_bytes = 108; max_bytes < 340; max_bytes += 29) {
		by.options.max_bytes = max_bytes;
		subscribing_open(&by, address, "t");
		ck_assert_int_eq(subscribing_until_stop(&by), LB_ENDED);
		ck_assert_int_eq(by.records, 30);
		ck_assert_int_eq(by.largest_max_bytes, max_bytes);
		subscribing_close(&by);
		by.records = 0;
		by.error.code = LB_OK;
		by.next[0] = -1;
		by.largest_max_bytes = 0;
	}
	close(fd);
	finish();
}
END_TEST

START_TEST(bug_E1_A15_a_record_larger_than_max_bytes)
{
	struct subscribing by;
	double requests;
	int fd;

	start(&(struct broker_config){ .topics = "t = 1\n" });
	fd = dial();
	produce(fd, 0, 0, 5, 100);
	produce(fd, 0, 5, 1, 300000);
	produce(fd, 0, 6, 5, 100);
	subscribing_init(&by, _i);
	by.look = look;
	by.options.max_bytes = 1000;
	by.options.max_bytes_limit = 300007;
	by.options.stop = LB_STOP_AT_WATERMARK;
	subscribing_open(&by, address, "t");
	ck_assert_int_eq(subscribing_until_stop(&by), LB_RECORD_EXCEEDS_MAX_BYTES);
	ck_assert_int_eq(by.records, 5);
	ck_assert_int_eq(by.error.offset, 5);
	ck_assert_int_eq(by.error.record_bytes, 300000);
	subscribing_for(&by, 100);
	subscribing_close(&by);
	requests = broker_metric(&broker, "logbroker_requests_total", "api=\"fetch\"");
	ck_assert(requests <= 3);
	subscribing_init(&by, _i);
	by.look = look;
	by.options.max_bytes = 1000;
	by.options.stop = LB_STOP_AT_WATERMARK;
	subscribing_open(&by, address, "t");
	ck_assert_int_eq(subscribing_until_stop(&by), LB_ENDED);
	ck_assert_int_eq(by.records, 11);
	ck_assert_int_eq(by.largest_max_bytes, 300008);
	ck_assert_int_eq(by.last.max_bytes, 300008);
	subscribing_close(&by);
	ck_assert(broker_metric(&broker, "logbroker_requests_total", "api=\"fetch\"") <= requests + 3);
	close(fd);
	finish();
}
END_TEST

START_TEST(bug_J1_C10_a_byte_flipped_on_disk)
{
	char path[BROKER_PATH_BYTES * 2];
	struct subscribing by;
	int fd;

	start(&(struct broker_config){ .topics = "t = 2\n", .log = "segment_bytes = 4KiB\n" });
	fd = dial();
	/* One after the other, so that segments hold 37 each. */
	for (int i = 0; i < 100; i++)
		produce(fd, 1, i, 1, 100);
	broker_partition_path(&broker, "t", 1, 0, path, sizeof path);
	procs_patch_file(path, 20 * 108 + 8 + 50, "x", 1);
	subscribing_init(&by, _i);
	by.look = look;
	by.options.stop = LB_STOP_AT_WATERMARK;
	subscribing_open(&by, address, "t");
	ck_assert_int_eq(subscribing_until_stop(&by), LB_CORRUPT_RECORD);
	ck_assert_int_eq(by.records, 20);
	ck_assert_int_eq(by.error.partition, 1);
	ck_assert_int_eq(by.error.offset, 20);
	subscribing_seek(&by, 1, 21);
	ck_assert_int_eq(subscribing_until_stop(&by), LB_ENDED);
	ck_assert_int_eq(by.records, 99);
	subscribing_close(&by);
	close(fd);
	finish();
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("lib_follow");
	TCase *tc = tcase_create("follow"), *restarts = tcase_create("restarts");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, C01_subscribe_by_name_from_earliest, 0, 2);
	tcase_add_loop_test(tc, C01_plain_records, 0, 2);
	tcase_add_test(tc, C01_in_libevents_loop);
	tcase_add_test(tc, C02_earliest_behind_retention);
	tcase_add_loop_test(tc, bug_J3_behind_the_log_start, 0, 2);
	tcase_add_test(tc, bug_J2_C03_replay_of_a_topic_that_is_written_to);
	tcase_add_loop_test(tc, C05_a_handler_a_hundred_thousand_records_behind, 0, broker_scale() > 1 ? 2 : 1);
	tcase_add_loop_test(tc, a_running_subscription_allocates_nothing, 0, 2);
	tcase_add_loop_test(tc, A14_requests_end_inside_records, 0, 2);
	tcase_add_loop_test(tc, bug_E1_A15_a_record_larger_than_max_bytes, 0, 2);
	tcase_add_loop_test(tc, bug_J1_C10_a_byte_flipped_on_disk, 0, 2);
	suite_add_tcase(s, tc);
	tcase_set_timeout(restarts, 60 + 10 * broker_scale());
	tcase_add_test(restarts, bug_G7_C09_a_broker_restarted_again_and_again);
	suite_add_tcase(s, restarts);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
