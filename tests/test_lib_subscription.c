/*
 * Subscriptions of the library against a fake broker: what the real one never does, or not when a test wants it. Nearly all of it
 * twice: with a handler, and by lb_subscription_next.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "broker.h"
#include "fakebroker.h"
#include "subscribing.h"
#include "wire.h"

static struct fake fake;
static struct subscribing by;
static bool epoll_is_full;

int
epoll_ctl(int set, int what, int fd, struct epoll_event *event)
{
	if (epoll_is_full && what == EPOLL_CTL_ADD) {
		errno = ENOSPC;
		return -1;
	}
	return (int)syscall(SYS_epoll_ctl, set, what, fd, event);
}

static void
lock(void)
{
	pthread_mutex_lock(&fake.mutex);
}

static void
unlock(void)
{
	pthread_mutex_unlock(&fake.mutex);
}

static int
count(const int *what)
{
	int value;

	lock();
	value = *what;
	unlock();
	return value;
}

/* Every record is what the fake broker has. */
static void
look(struct subscribing *one, int32_t partition, const struct lb_record *record)
{
	const uint8_t *expected;
	size_t size;

	(void)one;
	lock();
	expected = fake_record(&fake, partition, record->offset, &size);
	ck_assert_uint_eq(record->bytes, size);
	ck_assert_mem_eq(record->data, expected, size);
	unlock();
}

static void
append(int partition, int records, size_t size)
{
	uint8_t payload[20000];

	for (int i = 0; i < records; i++) {
		memset(payload, 'a' + i % 26, size);
		fake_append(&fake, partition, payload, size);
	}
}

static void
begin(int partitions, bool crc, bool pull)
{
	fake_start(&fake, partitions, crc);
	subscribing_init(&by, pull);
	by.look = look;
}

static void
open_it(void)
{
	subscribing_open(&by, fake.address, "t");
}

static void
end(void)
{
	subscribing_close(&by);
	fake_stop(&fake);
}

static int
descriptors(void)
{
	return broker_fd_count(getpid());
}

/* ---- which records ---------------------------------------------------------------------------------------------- */

START_TEST(C01_both_formats_and_dribbled)
{
	for (int crc = 0; crc < 2; crc++) {
		begin(3, crc, _i);
		fake.faults.dribble = crc;
		for (int partition = 0; partition < 3; partition++)
			append(partition, 10 * partition, 30);
		open_it();
		subscribing_until(&by, 30);
		append(0, 5, 50);
		subscribing_until(&by, 35);
		ck_assert_int_eq(by.stops, 0);
		end();
	}
}
END_TEST

START_TEST(C01_a_broker_of_version_1)
{
	int fetches;

	begin(2, true, _i);
	fake.faults.only_v1 = true;
	append(0, 100, 30);
	by.options.max_bytes = 300;
	open_it();
	subscribing_until(&by, 100);
	/* It does not hold requests, so they are few. */
	fetches = count(&fake.fetches);
	subscribing_for(&by, 300);
	ck_assert_int_lt(count(&fake.fetches), fetches + 2 * 8);
	append(1, 1, 30);
	subscribing_until(&by, 101);
	end();
}
END_TEST

START_TEST(C02_retention_between_metadata_and_fetch)
{
	begin(1, true, _i);
	append(0, 50, 30);
	fake.faults.raise_start = 20;
	open_it();
	subscribing_until(&by, 30);
	ck_assert_int_eq(by.first[0], 20);
	ck_assert_int_eq(by.skipped, 0);
	end();
}
END_TEST

START_TEST(C03_replay_ends_at_its_first_watermarks)
{
	begin(3, true, _i);
	append(0, 100, 30);
	append(2, 1, 30);
	fake.faults.grow = 7;
	by.options.stop = LB_STOP_AT_WATERMARK;
	by.options.max_bytes = 1000;
	by.options.min_bytes = 1000;
	by.options.max_wait_ms = 20000;
	open_it();
	ck_assert_int_eq(subscribing_until_stop(&by), LB_ENDED);
	ck_assert_int_eq(by.records, 101);
	ck_assert_int_eq(by.next[0], 100);
	ck_assert_int_eq(by.next[1], -1);
	ck_assert_int_eq(by.next[2], 1);
	ck_assert_int_eq(by.stops, 1);
	subscribing_for(&by, 50);
	ck_assert_int_eq(by.stops, 1);
	/* Again from somewhere: it ends there again. */
	subscribing_seek(&by, 0, 90);
	ck_assert_int_eq(subscribing_until_stop(&by), LB_ENDED);
	ck_assert_int_eq(by.records, 111);
	ck_assert_int_eq(by.stops, 2);
	end();
}
END_TEST

START_TEST(C03_nothing_to_replay)
{
	begin(3, true, _i);
	by.options.stop = LB_STOP_AT_WATERMARK;
	open_it();
	ck_assert_int_eq(subscribing_until_stop(&by), LB_ENDED);
	ck_assert_int_eq(by.batches, 0);
	ck_assert_int_eq(count(&fake.fetches), 0);
	end();
}
END_TEST

START_TEST(C03_a_stop_beyond_the_end_is_waited_for)
{
	begin(1, true, _i);
	append(0, 10, 30);
	by.options.stop = LB_STOP_AT_OFFSET;
	by.options.stop_offset = 15;
	open_it();
	subscribing_until(&by, 10);
	subscribing_for(&by, 50);
	ck_assert_int_eq(by.stops, 0);
	append(0, 10, 30);
	ck_assert_int_eq(subscribing_until_stop(&by), LB_ENDED);
	ck_assert_int_eq(by.records, 15);
	end();
}
END_TEST

START_TEST(starts_latest_before_the_end_and_some_partitions)
{
	static const int32_t some[] = { 2, 0 };

	begin(3, true, _i);
	append(0, 100, 30);
	append(1, 50, 30);
	append(2, 5, 30);
	by.options.partitions = some;
	by.options.partition_count = 2;
	by.options.start = LB_START_BEFORE_END;
	by.options.start_offset = 10;
	open_it();
	subscribing_until(&by, 15);
	ck_assert_int_eq(by.first[0], 90);
	ck_assert_int_eq(by.first[1], -1);
	ck_assert_int_eq(by.first[2], 0);
	ck_assert_int_eq(lb_subscription_position(by.subscription, 1), -1);
	subscribing_close(&by);
	subscribing_init(&by, _i);
	by.look = look;
	by.options.start = LB_START_LATEST;
	open_it();
	while (lb_subscription_position(by.subscription, 2) < 0)
		subscribing_for(&by, 5);
	append(2, 3, 30);
	subscribing_until(&by, 3);
	ck_assert_int_eq(by.first[2], 5);
	end();
}
END_TEST

/* ---- gaps, positions -------------------------------------------------------------------------------------------- */

static void
move_start(int64_t start)
{
	lock();
	fake.partitions[0].start = start;
	pthread_cond_broadcast(&fake.news);
	unlock();
}

START_TEST(J3_a_gap_fails)
{
	begin(2, true, _i);
	append(0, 50, 30);
	by.options.max_bytes = 38;
	open_it();
	subscribing_until(&by, 3);
	move_start(30);
	ck_assert_int_eq(subscribing_until_stop(&by), LB_GAP);
	ck_assert_int_eq(by.error.partition, 0);
	ck_assert_int_eq(by.error.offset, by.next[0]);
	ck_assert_int_eq(by.error.skipped, 30 - by.next[0]);
	ck_assert_int_eq(lb_subscription_position(by.subscription, 0), by.next[0]);
	subscribing_seek(&by, 0, by.error.offset + 30 - by.next[0]);
	subscribing_until(&by, by.records + 20);
	ck_assert_int_eq(by.next[0], 50);
	end();
}
END_TEST

/* Whoever keeps the position while nothing has come behind the gap, and begins there, is told of it. */
START_TEST(J3_a_position_stays_ahead_of_a_gap_until_it_is_told)
{
	begin(1, true, _i);
	append(0, 50, 30);
	by.options.start = LB_START_OFFSET;
	by.options.start_offset = 3;
	by.options.on_gap = LB_GAP_LATEST;
	move_start(30);
	open_it();
	while (lb_subscription_position(by.subscription, 0) < 0)
		subscribing_for(&by, 5);
	ck_assert_int_eq(by.records, 0);
	ck_assert_int_eq(lb_subscription_position(by.subscription, 0), 3);
	append(0, 1, 30);
	by.next[0] = 3;
	subscribing_until(&by, 1);
	ck_assert_int_eq(by.skipped, 47);
	ck_assert_int_eq(by.first[0], 50);
	if (!_i)
		ck_assert_int_eq(lb_subscription_position(by.subscription, 0), 51);
	end();
}
END_TEST

START_TEST(J3_a_gap_is_skipped_and_counted)
{
	int64_t before;

	begin(1, true, _i);
	append(0, 50, 30);
	by.options.max_bytes = 38;
	by.options.on_gap = LB_GAP_EARLIEST;
	open_it();
	subscribing_until(&by, 3);
	move_start(30);
	subscribing_for(&by, 0);
	before = by.records;
	while (by.skipped == 0)
		subscribing_until(&by, by.records + 1);
	ck_assert_int_le(by.records, before + 3);
	subscribing_until(&by, 50 - by.skipped);
	ck_assert_int_eq(by.next[0], 50);
	end();
}
END_TEST

START_TEST(C04_a_position_above_the_watermark)
{
	begin(1, true, _i);
	append(0, 5, 30);
	by.options.start = LB_START_OFFSET;
	by.options.start_offset = 6;
	open_it();
	ck_assert_int_eq(subscribing_until_stop(&by), LB_OFFSET_OUT_OF_RANGE);
	ck_assert_int_eq(by.error.offset, 6);
	ck_assert_int_eq(by.records, 0);
	subscribing_seek(&by, 0, 5);
	append(0, 1, 30);
	subscribing_until(&by, 1);
	end();
}
END_TEST

/* ---- refusals, silence, lost connections ------------------------------------------------------------------------ */

START_TEST(what_is_not_there_is_final)
{
	static const int32_t some[] = { 0, 1, 3 };
	int connections;

	begin(3, true, _i);
	subscribing_open(&by, fake.address, "nothing");
	ck_assert_int_eq(subscribing_until_stop(&by), LB_UNKNOWN_TOPIC_OR_PARTITION);
	ck_assert_str_eq(by.error.topic, "nothing");
	subscribing_close(&by);
	subscribing_init(&by, _i);
	by.options.partitions = some;
	by.options.partition_count = 3;
	connections = count(&fake.connections);
	open_it();
	/* What is there is not asked for while nobody looks. */
	for (int turns = 0; turns < 10; turns++)
		lb_source_poll(lb_subscription_source(by.subscription), 10);
	ck_assert_int_eq(count(&fake.connections), connections + 1);
	ck_assert_int_eq(subscribing_until_stop(&by), LB_UNKNOWN_TOPIC_OR_PARTITION);
	ck_assert_int_eq(by.error.partition, 3);
	end();
}
END_TEST

START_TEST(storage_failures_for_a_while)
{
	begin(1, true, _i);
	append(0, 5, 30);
	fake.faults.metadata_error = WIRE_STORAGE_FAILURE;
	open_it();
	subscribing_for(&by, 150);
	ck_assert_int_eq(by.stops, 0);
	ck_assert_int_le(count(&fake.metadatas), 4);
	lock();
	fake.faults.metadata_error = 0;
	fake.faults.fetch_error = WIRE_STORAGE_FAILURE;
	unlock();
	while (count(&fake.fetches) < 2)
		subscribing_for(&by, 20);
	ck_assert_int_eq(by.stops, 0);
	lock();
	fake.faults.fetch_error = 0;
	unlock();
	subscribing_until(&by, 5);
	ck_assert_int_eq(count(&fake.connections), 1);
	end();
}
END_TEST

START_TEST(codes_from_the_future_are_passed_on)
{
	begin(2, true, _i);
	append(1, 5, 30);
	fake.faults.fetch_error = 99;
	open_it();
	ck_assert_int_eq(subscribing_until_stop(&by), 99);
	ck_assert_int_eq(by.error.offset, 0);
	end();
}
END_TEST

/* Cut behind each byte of METADATA's answer would be the connection's test; here what follows from it. */
START_TEST(C09_lost_at_any_byte_of_a_batch)
{
	static const size_t cuts[2][9] = { { 0, 4, 10, 21, 24, 30, 59, 61, 97 }, { 1, 9, 18, 22, 29, 31, 60, 80, 96 } };
	int descriptors_before = 0;

	begin(1, true, _i);
	open_it();
	for (size_t i = 0; i < 9; i++) {
		lock();
		fake.faults.cut_fetches = 1;
		fake.faults.cut_bytes = cuts[_i][i];
		unlock();
		append(0, 2, 30);
		subscribing_until(&by, 2 * (long)i + 2);
		if (i == 0)
			descriptors_before = descriptors();
	}
	ck_assert_int_ge(count(&fake.connections), 9);
	ck_assert_int_le(count(&fake.connections), 11);
	subscribing_for(&by, 20);
	/* The fake broker is in this process: its descriptors, of which the last may be on their way, count too. */
	ck_assert_int_le(descriptors(), descriptors_before + 2);
	end();
}
END_TEST

/* A broker that takes connections and requests, and cuts every answer, is asked less and less often. */
START_TEST(C09_lost_again_and_again)
{
	begin(1, true, _i);
	append(0, 5, 30);
	fake.faults.cut_fetches = 1000000;
	open_it();
	subscribing_for(&by, 350);
	ck_assert_int_le(count(&fake.connections), 4);
	ck_assert_int_ge(count(&fake.connections), 2);
	lock();
	fake.faults.cut_fetches = 0;
	unlock();
	subscribing_until(&by, 5);
	end();
}
END_TEST

START_TEST(nobody_listens)
{
	char address[64];
	int64_t begun = wire_now_ms();
	int turns;

	begin(1, true, false);
	strcpy(address, fake.address);
	fake_stop(&fake);
	by.options.give_up_ms = 200;
	subscribing_open(&by, address, "t");
	for (turns = 0; by.stops == 0; turns++)
		lb_source_poll(lb_subscription_source(by.subscription), 1000);
	ck_assert_int_le(turns, 12);
	ck_assert_int_eq(by.error.code, LB_CANNOT_CONNECT);
	ck_assert_int_ge(wire_now_ms() - begun, 200);
	ck_assert_str_eq(by.error.topic, "t");
	subscribing_close(&by);
	subscribing_init(&by, true);
	by.options.give_up_ms = 0;
	subscribing_open(&by, address, "t");
	ck_assert_int_eq(subscribing_until_stop(&by), LB_CANNOT_CONNECT);
	subscribing_close(&by);
}
END_TEST

START_TEST(silence_is_given_up)
{
	begin(1, true, _i);
	append(0, 5, 30);
	fake.faults.mute = true;
	by.options.timeout_ms = 50;
	by.options.max_wait_ms = 10;
	open_it();
	while (count(&fake.connections) < 2)
		subscribing_for(&by, 20);
	ck_assert_int_eq(by.stops, 0);
	lock();
	fake.faults.mute = false;
	unlock();
	subscribing_until(&by, 5);
	lock();
	fake.faults.mute = true;
	unlock();
	subscribing_close(&by);
	subscribing_init(&by, _i);
	by.options.timeout_ms = 50;
	by.options.give_up_ms = 100;
	open_it();
	ck_assert_int_eq(subscribing_until_stop(&by), LB_TIMED_OUT);
	end();
}
END_TEST

/* A seek behind that begins anew: the broker has as long to come back. */
START_TEST(C09_a_seek_when_the_broker_was_given_up)
{
	int64_t begun;

	begin(1, true, _i);
	append(0, 5, 30);
	by.options.give_up_ms = 300;
	open_it();
	subscribing_until(&by, 5);
	fake_stop(&fake);
	ck_assert_int_eq(subscribing_until_stop(&by), LB_CANNOT_CONNECT);
	begun = wire_now_ms();
	subscribing_seek(&by, 0, 5);
	ck_assert_int_eq(subscribing_until_stop(&by), LB_CANNOT_CONNECT);
	ck_assert_int_ge(wire_now_ms() - begun, 300);
	ck_assert_int_eq(lb_subscription_position(by.subscription, 0), 5);
	subscribing_close(&by);
}
END_TEST

START_TEST(what_is_no_answer_is_final)
{
	for (int i = 0; i < 3; i++) {
		begin(1, true, _i);
		append(0, 5, 30);
		fake.faults.id_shift = i == 0 ? 1 : 0;
		fake.faults.payload_lie = i == 1 ? 1 : 0;
		fake.faults.raw = i == 2 ? "HTTP/1.1 400 Bad Request\r\n\r\n" : NULL;
		fake.faults.raw_bytes = 28;
		open_it();
		ck_assert_int_eq(subscribing_until_stop(&by), LB_BAD_ANSWER);
		ck_assert_int_eq(count(&fake.connections), 1);
		ck_assert_int_eq(by.records, 0);
		end();
	}
}
END_TEST

START_TEST(a_topic_that_grows)
{
	begin(2, true, _i);
	fake.partition_count = 1;
	append(0, 5, 30);
	by.options.start = LB_START_LATEST;
	open_it();
	while (lb_subscription_position(by.subscription, 0) < 0)
		subscribing_for(&by, 5);
	append(1, 3, 30);
	lock();
	fake.partition_count = 2;
	fake.faults.cut_fetches = 1;
	unlock();
	append(0, 1, 30);
	subscribing_until(&by, 4);
	ck_assert_int_eq(by.first[0], 5);
	ck_assert_int_eq(by.first[1], 0);
	end();
}
END_TEST

/* ---- records ---------------------------------------------------------------------------------------------------- */

START_TEST(A15_requests_grow_for_a_larger_record)
{
	begin(1, true, _i);
	append(0, 2, 30);
	append(0, 10, 5000);
	append(0, 2, 30);
	by.options.max_bytes = 100;
	open_it();
	subscribing_until(&by, 14);
	ck_assert_int_eq(by.largest_max_bytes, 5008);
	/* One for the small ones, one for each large one, one for the small ones behind, and one ahead: none that brings nothing. */
	ck_assert_int_le(count(&fake.fetches), 13);
	append(0, 1, 30);
	subscribing_until(&by, 15);
	ck_assert_int_eq(by.last.max_bytes, 100);
	end();
}
END_TEST

START_TEST(bug_E1_A15_larger_than_the_limit)
{
	int fetches;

	begin(1, true, _i);
	append(0, 2, 30);
	append(0, 1, 5000);
	append(0, 2, 30);
	by.options.max_bytes = 100;
	by.options.max_bytes_limit = 5007;
	open_it();
	ck_assert_int_eq(subscribing_until_stop(&by), LB_RECORD_EXCEEDS_MAX_BYTES);
	ck_assert_int_eq(by.records, 2);
	ck_assert_int_eq(by.error.offset, 2);
	ck_assert_int_eq(by.error.record_bytes, 5000);
	ck_assert_ptr_nonnull(strstr(by.error.text, "5000"));
	ck_assert_ptr_nonnull(strstr(by.error.text, "5007"));
	fetches = count(&fake.fetches);
	ck_assert_int_le(fetches, 3);
	subscribing_for(&by, 100);
	ck_assert_int_eq(count(&fake.fetches), fetches);
	subscribing_seek(&by, 0, 3);
	subscribing_until(&by, 4);
	end();
}
END_TEST

START_TEST(bug_J1_C10_a_damaged_record)
{
	begin(2, true, _i);
	fake.faults.flip_offset = 4 + 1;
	append(0, 8, 30);
	open_it();
	ck_assert_int_eq(subscribing_until_stop(&by), LB_CORRUPT_RECORD);
	ck_assert_int_eq(by.records, 4);
	ck_assert_int_eq(by.error.partition, 0);
	ck_assert_int_eq(by.error.offset, 4);
	ck_assert_int_eq(lb_subscription_position(by.subscription, 0), 4);
	subscribing_seek(&by, 0, 5);
	append(1, 3, 30);
	subscribing_until(&by, 10);
	ck_assert_int_eq(by.stops, 1);
	end();
}
END_TEST

/* ---- handlers --------------------------------------------------------------------------------------------------- */

static int64_t kept, saved;
static int saves, refuse_saves, refuse_batches;

static int64_t
load(void *context, const char *topic, int32_t partition)
{
	(void)context;
	ck_assert_str_eq(topic, "t");
	ck_assert_int_eq(partition, 0);
	return kept;
}

static int
save(void *context, const char *topic, int32_t partition, int64_t next_offset)
{
	(void)context;
	ck_assert_str_eq(topic, "t");
	ck_assert_int_eq(partition, 0);
	if (refuse_saves > 0)
		return -1;
	saved = next_offset;
	saves++;
	return 0;
}

static int
refuse(struct subscribing *one, const struct lb_batch *batch)
{
	(void)one;
	/* What is saved is behind the batch before. */
	ck_assert_int_le(saved, batch->base_offset);
	return refuse_batches-- > 0 ? -1 : 0;
}

static void
begin_checkpoints(bool pull)
{
	begin(1, true, pull);
	append(0, 20, 30);
	kept = -1;
	saved = saves = refuse_saves = refuse_batches = 0;
	by.options.checkpoints = (struct lb_checkpoints){ load, save, NULL };
	by.options.max_bytes = 10 * 38;
}

START_TEST(C04_saved_after_the_handler)
{
	begin_checkpoints(_i);
	by.handle = refuse;
	kept = 5;
	open_it();
	subscribing_until(&by, 15);
	ck_assert_int_eq(by.first[0], 5);
	/* lb_subscription_next says "handled" of the batch before. */
	subscribing_for(&by, 0);
	subscribing_for(&by, 20);
	ck_assert_int_eq(saved, 20);
	ck_assert_int_eq(saves, 2);
	end();
}
END_TEST

START_TEST(C04_a_handler_that_fails_gets_it_again)
{
	begin_checkpoints(false);
	by.handle = refuse;
	open_it();
	subscribing_until(&by, 10);
	ck_assert_int_eq(saved, 10);
	refuse_batches = 1;
	ck_assert_int_eq(subscribing_until_stop(&by), LB_HANDLER_FAILED);
	ck_assert_int_eq(by.error.offset, 10);
	ck_assert_int_eq(saved, 10);
	ck_assert_int_eq(lb_subscription_position(by.subscription, 0), 10);
	subscribing_seek(&by, 0, 10);
	subscribing_until(&by, 30);
	ck_assert_int_eq(saved, 20);
	end();
}
END_TEST

START_TEST(C04_checkpoints_that_fail)
{
	begin_checkpoints(_i);
	kept = -2;
	by.options.stop = LB_STOP_AT_WATERMARK;
	open_it();
	ck_assert_int_eq(subscribing_until_stop(&by), LB_HANDLER_FAILED);
	ck_assert_int_eq(by.records, 0);
	subscribing_seek(&by, 0, 15);
	ck_assert_int_eq(subscribing_until_stop(&by), LB_ENDED);
	ck_assert_int_eq(by.records, 5);
	subscribing_close(&by);
	subscribing_init(&by, _i);
	by.options.checkpoints = (struct lb_checkpoints){ load, save, NULL };
	by.options.max_bytes = 10 * 38;
	kept = 0;
	refuse_saves = 1;
	open_it();
	ck_assert_int_eq(subscribing_until_stop(&by), LB_HANDLER_FAILED);
	ck_assert_int_eq(by.records, 10);
	ck_assert_int_eq(lb_subscription_position(by.subscription, 0), 0);
	refuse_saves = 0;
	subscribing_seek(&by, 0, 0);
	subscribing_until(&by, 30);
	end();
}
END_TEST

static int
seek_inside(struct subscribing *one, const struct lb_batch *batch)
{
	if (batch->base_offset != 0 || one->batches > 1)
		return 0;
	ck_assert_int_eq(lb_subscription_seek(one->subscription, 0, 15, NULL), LB_OK);
	ck_assert_int_eq(lb_subscription_position(one->subscription, 0), 15);
	one->next[0] = 15;
	return 0;
}

START_TEST(C04_a_seek_inside_takes_the_place_of_the_next_offset)
{
	begin_checkpoints(_i);
	by.handle = seek_inside;
	open_it();
	subscribing_until(&by, 15);
	ck_assert_int_ge(saves, 1);
	subscribing_for(&by, 20);
	ck_assert_int_eq(saved, 20);
	/* Once at the start, which is not known. */
	ck_assert_int_eq(saves, 3);
	end();
}
END_TEST

/* The loop turns between the seek and the next call, and what the seek asks for comes: that is not handled yet. */
START_TEST(C04_a_seek_while_a_batch_is_out)
{
	const struct lb_batch *batch;

	begin_checkpoints(true);
	open_it();
	ck_assert_int_eq(lb_subscription_next(by.subscription, SUBSCRIBING_DEADLINE_MS, &batch, NULL), LB_OK);
	ck_assert_int_eq(lb_subscription_seek(by.subscription, 0, 12, NULL), LB_OK);
	for (int turns = 0; turns < 10; turns++)
		lb_source_poll(lb_subscription_source(by.subscription), 20);
	ck_assert_int_eq(lb_subscription_position(by.subscription, 0), 12);
	ck_assert_int_eq(lb_subscription_next(by.subscription, SUBSCRIBING_DEADLINE_MS, &batch, NULL), LB_OK);
	ck_assert_int_eq(saved, 12);
	ck_assert_int_eq(batch->base_offset, 12);
	end();
}
END_TEST

static int
seek_and_fail(struct subscribing *one, const struct lb_batch *batch)
{
	if (batch->base_offset != 0 || one->stops > 0)
		return 0;
	ck_assert_int_eq(lb_subscription_seek(one->subscription, 0, 15, NULL), LB_OK);
	one->next[0] = 15;
	return -1;
}

START_TEST(C04_a_seek_inside_a_handler_that_fails)
{
	begin(2, true, false);
	append(0, 20, 30);
	by.options.max_bytes = 10 * 38;
	by.handle = seek_and_fail;
	open_it();
	ck_assert_int_eq(subscribing_until_stop(&by), LB_HANDLER_FAILED);
	ck_assert_int_eq(by.error.offset, 0);
	ck_assert_int_eq(lb_subscription_position(by.subscription, 0), 15);
	/* The other partition's seek lets both go on. */
	subscribing_seek(&by, 1, 0);
	subscribing_until(&by, 15);
	ck_assert_int_eq(by.next[0], 20);
	end();
}
END_TEST

static int
pause_inside(struct subscribing *one, const struct lb_batch *batch)
{
	(void)batch;
	lb_subscription_pause(one->subscription, true);
	return 0;
}

START_TEST(C05_paused_inside)
{
	int fetches;

	begin(2, true, false);
	append(0, 20, 30);
	append(1, 20, 30);
	by.options.max_bytes = 38;
	by.handle = pause_inside;
	open_it();
	subscribing_until(&by, 1);
	subscribing_for(&by, 50);
	fetches = count(&fake.fetches);
	subscribing_for(&by, 100);
	ck_assert_int_eq(by.records, 1);
	ck_assert_int_eq(count(&fake.fetches), fetches);
	ck_assert_int_le(fetches, 4);
	by.handle = NULL;
	lb_subscription_pause(by.subscription, false);
	subscribing_until(&by, 40);
	end();
}
END_TEST

static int
free_inside(struct subscribing *one, const struct lb_batch *batch)
{
	struct lb_record record = { 0 };

	lb_subscription_free(one->subscription);
	/* Still valid, until this returns. */
	while (lb_batch_next(batch, &record))
		look(one, batch->partition, &record);
	one->error.code = LB_CLOSED;
	return refuse_batches;
}

static int
never_save(void *context, const char *topic, int32_t partition, int64_t next_offset)
{
	(void)context;
	ck_abort_msg("%s/%d is saved at %lld behind its end", topic, (int)partition, (long long)next_offset);
	return -1;
}

static int64_t
load_and_free(void *context, const char *topic, int32_t partition)
{
	(void)topic;
	(void)partition;
	lb_subscription_free(((struct subscribing *)context)->subscription);
	by.error.code = LB_CLOSED;
	return -1;
}

static int
save_and_free(void *context, const char *topic, int32_t partition, int64_t next_offset)
{
	(void)next_offset;
	load_and_free(context, topic, partition);
	return 0;
}

static int64_t
load_beginning(void *context, const char *topic, int32_t partition)
{
	(void)context;
	(void)topic;
	(void)partition;
	return 0;
}

static void
stopped_and_free(void *context, const struct lb_error *error)
{
	ck_assert_ptr_null(error);
	load_and_free(context, NULL, 0);
}

START_TEST(freed_inside_a_callback)
{
	int before, after;

	for (int i = 0; i < 6; i++) {
		begin(2, true, false);
		append(0, 20, 30);
		append(1, 20, 30);
		before = descriptors();
		by.handle = i == 0 || i == 4 ? free_inside : NULL;
		refuse_batches = i == 4;
		/* 2: saved behind a batch; 5: at the start. */
		by.options.checkpoints = (struct lb_checkpoints){ i == 1 ? load_and_free : i == 5 ? NULL : load_beginning,
		    i == 2 || i == 5 ? save_and_free : i == 1 || by.handle != NULL ? never_save : NULL, &by };
		by.options.stop = LB_STOP_AT_WATERMARK;
		open_it();
		if (i == 3) {
			/* Opened anew, with a callback of this test's. */
			subscribing_close(&by);
			by.options.stopped = stopped_and_free;
			ck_assert_int_eq(lb_subscription_open(&by.subscription, fake.address, "t", &by.options, NULL), LB_OK);
		}
		ck_assert_int_eq(subscribing_until_stop(&by), LB_CLOSED);
		ck_assert_int_eq(by.stops, 0);
		/* The broker's own come and go, a late one even now: once none is too many will do. */
		for (int tries = 0; (after = descriptors()) > before && tries < 1000; tries++)
			poll(NULL, 0, 5);
		ck_assert_int_le(after, before);
		fake_stop(&fake);
	}
}
END_TEST

START_TEST(freed_by_a_checkpoint_inside_next)
{
	const struct lb_batch *batch;

	for (int i = 0; i < 3; i++) {
		enum lb_code code;

		begin(1, true, true);
		append(0, 20, 30);
		by.options.checkpoints = (struct lb_checkpoints){ i == 0 ? load_and_free : i == 1 ? load_beginning : NULL,
		    i == 0 ? never_save : save_and_free, &by };
		open_it();
		code = lb_subscription_next(by.subscription, SUBSCRIBING_DEADLINE_MS, &batch, NULL);
		if (i == 1) {
			ck_assert_int_eq(code, LB_OK);
			code = lb_subscription_next(by.subscription, SUBSCRIBING_DEADLINE_MS, &batch, NULL);
		}
		ck_assert_int_eq(code, LB_CLOSED);
		ck_assert_ptr_null(batch);
		fake_stop(&fake);
	}
}
END_TEST

/* ---- starts that are kept --------------------------------------------------------------------------------------- */

/* Of each partition; -1 = none. */
static int64_t places[FAKE_PARTITIONS_MAX];

static int64_t
load_place(void *context, const char *topic, int32_t partition)
{
	(void)context;
	(void)topic;
	return places[partition];
}

static int
save_place(void *context, const char *topic, int32_t partition, int64_t next_offset)
{
	(void)context;
	(void)topic;
	if (refuse_saves > 0)
		return -1;
	places[partition] = next_offset;
	saves++;
	return 0;
}

static void
begin_places(int partitions, bool pull)
{
	begin(partitions, true, pull);
	for (int i = 0; i < partitions; i++) {
		append(i, 20, 30);
		places[i] = -1;
	}
	saves = refuse_saves = 0;
}

static void
run_places(bool pull, enum lb_start start, int64_t start_offset)
{
	subscribing_init(&by, pull);
	by.look = look;
	by.options.start = start;
	by.options.start_offset = start_offset;
	by.options.checkpoints = (struct lb_checkpoints){ load_place, save_place, NULL };
	open_it();
}

/* Until so many positions have been saved. */
static void
until_saved(int count_saves)
{
	int64_t until_ms = wire_now_ms() + SUBSCRIBING_DEADLINE_MS;

	while (saves < count_saves && wire_now_ms() < until_ms)
		subscribing_for(&by, 5);
	ck_assert_int_eq(saves, count_saves);
}

START_TEST(C04_a_start_is_kept_although_nothing_comes)
{
	static const enum lb_start starts[] = { LB_START_LATEST, LB_START_BEFORE_END, LB_START_OFFSET };

	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
		begin_places(2, _i);
		run_places(_i, starts[i], starts[i] == LB_START_OFFSET ? 20 : 0);
		until_saved(2);
		subscribing_for(&by, 20);
		ck_assert_int_eq(saves, 2);
		ck_assert_int_eq(by.records, 0);
		subscribing_close(&by);
		append(0, 5, 30);
		append(1, 7, 30);
		/* Whatever the start would come to now. */
		run_places(_i, LB_START_LATEST, 0);
		subscribing_until(&by, 12);
		ck_assert_int_eq(by.first[0], 20);
		ck_assert_int_eq(by.first[1], 20);
		end();
	}
}
END_TEST

/* Records that were there at the start and have gone unread are told. */
START_TEST(C04_J3_the_earliest_start_is_kept)
{
	begin_places(1, _i);
	run_places(_i, LB_START_EARLIEST, 0);
	/* Killed, as it were, with the first batch. */
	if (_i) {
		const struct lb_batch *batch;

		ck_assert_int_eq(lb_subscription_next(by.subscription, SUBSCRIBING_DEADLINE_MS, &batch, NULL), LB_OK);
	} else {
		by.handle = free_inside;
		refuse_batches = 0;
		ck_assert_int_eq(subscribing_until_stop(&by), LB_CLOSED);
		by.subscription = NULL;
	}
	subscribing_close(&by);
	ck_assert_int_eq(saves, 1);
	ck_assert_int_eq(places[0], 0);
	move_start(8);
	run_places(_i, LB_START_EARLIEST, 0);
	ck_assert_int_eq(subscribing_until_stop(&by), LB_GAP);
	ck_assert_int_eq(by.error.skipped, 8);
	end();
}
END_TEST

START_TEST(C04_J3_a_start_is_kept_ahead_of_its_gap)
{
	begin_places(1, _i);
	move_start(10);
	subscribing_init(&by, _i);
	by.options.start = LB_START_OFFSET;
	by.options.start_offset = 3;
	by.options.on_gap = LB_GAP_LATEST;
	by.options.checkpoints = (struct lb_checkpoints){ load_place, save_place, NULL };
	open_it();
	until_saved(1);
	ck_assert_int_eq(places[0], 3);
	end();
}
END_TEST

/* It is read from its beginning, whatever the start; so it must be the next time. */
START_TEST(C04_the_start_of_a_partition_that_is_added_is_kept)
{
	begin(2, true, _i);
	fake.partition_count = 1;
	append(0, 20, 30);
	places[0] = places[1] = -1;
	saves = 0;
	run_places(_i, LB_START_LATEST, 0);
	while (lb_subscription_position(by.subscription, 0) < 0)
		subscribing_for(&by, 5);
	lock();
	fake.partition_count = 2;
	fake.faults.cut_fetches = 1;
	unlock();
	append(0, 1, 30);
	/* The start of each, and behind the record. */
	until_saved(3);
	subscribing_close(&by);
	ck_assert_int_eq(places[0], 21);
	ck_assert_int_eq(places[1], 0);
	append(1, 3, 30);
	run_places(_i, LB_START_LATEST, 0);
	subscribing_until(&by, 3);
	ck_assert_int_eq(by.first[1], 0);
	end();
}
END_TEST

START_TEST(C04_a_start_that_cannot_be_kept)
{
	begin_places(2, _i);
	refuse_saves = 1;
	run_places(_i, LB_START_BEFORE_END, 5);
	ck_assert_int_eq(subscribing_until_stop(&by), LB_HANDLER_FAILED);
	ck_assert_int_eq(by.records, 0);
	ck_assert_int_eq(by.error.offset, 15);
	ck_assert_int_eq(lb_subscription_position(by.subscription, 0), 15);
	refuse_saves = 0;
	subscribing_seek(&by, 1, 15);
	subscribing_seek(&by, 0, 15);
	subscribing_until(&by, 10);
	end();
}
END_TEST

static int
save_and_seek(void *context, const char *topic, int32_t partition, int64_t next_offset)
{
	(void)context;
	(void)topic;
	if (saves++ == 0) {
		ck_assert_int_eq(next_offset, 20);
		ck_assert_int_eq(lb_subscription_seek(by.subscription, partition, 15, NULL), LB_OK);
	}
	return 0;
}

START_TEST(C04_a_seek_while_the_start_is_kept)
{
	begin_places(1, _i);
	by.options.start = LB_START_LATEST;
	by.options.checkpoints = (struct lb_checkpoints){ NULL, save_and_seek, NULL };
	open_it();
	subscribing_until(&by, 5);
	ck_assert_int_eq(by.first[0], 15);
	end();
}
END_TEST

/* ---- turns ------------------------------------------------------------------------------------------------------ */

static int
take_time(struct subscribing *one, const struct lb_batch *batch)
{
	(void)one;
	(void)batch;
	usleep(1000);
	return 0;
}

/* All get more than is read of them, and have mostly answered by the time of the next turn: they get about equally many. */
START_TEST(C01_endless_partitions_starve_nobody)
{
	begin(3, true, _i);
	for (int partition = 0; partition < 3; partition++)
		append(partition, 10, 30);
	fake.faults.grow = 4;
	by.options.max_bytes = 38;
	by.handle = take_time;
	open_it();
	subscribing_until(&by, 150);
	for (int partition = 0; partition < 3; partition++)
		ck_assert_int_ge(by.next[partition], 20);
	end();
}
END_TEST

/* Without an answer being handled there is one more FETCH, and no other. */
START_TEST(C05_one_answer_ahead)
{
	begin(1, true, true);
	append(0, 1000, 30);
	by.options.max_bytes = 380;
	open_it();
	for (int i = 1; i <= 100; i++) {
		subscribing_until(&by, 10 * i);
		ck_assert_int_le(count(&fake.fetches), i + 2);
	}
	end();
}
END_TEST

/* Held at the broker, a FETCH would keep the next waiting. */
START_TEST(C10_a_seek_does_not_wait_for_a_held_request)
{
	int64_t begun;

	begin(1, true, _i);
	append(0, 20, 30);
	by.options.max_wait_ms = 60000;
	open_it();
	subscribing_until(&by, 20);
	ck_assert(fake_wait_fetches(&fake, 2));
	subscribing_for(&by, 1);
	begun = wire_now_ms();
	subscribing_seek(&by, 0, 3);
	subscribing_until(&by, 37);
	ck_assert_int_lt(wire_now_ms() - begun, 20000);
	end();
}
END_TEST

/* Nothing happens: nobody wakes up. */
START_TEST(waiting_is_quiet)
{
	int64_t until;
	int turns = 0;

	begin(3, true, false);
	append(0, 1, 30);
	by.options.max_wait_ms = 10000;
	open_it();
	subscribing_until(&by, 1);
	ck_assert(fake_wait_fetches(&fake, 4));
	subscribing_for(&by, 30);
	until = wire_now_ms() + 200;
	while (wire_now_ms() < until) {
		lb_source_poll(lb_subscription_source(by.subscription), 200);
		turns++;
	}
	ck_assert_int_le(turns, 3);
	end();
}
END_TEST

/* A child of the program's has the lost connection's socket yet: nobody waits for that. */
START_TEST(quiet_while_a_fork_has_its_sockets)
{
	int64_t until = wire_now_ms() + SUBSCRIBING_DEADLINE_MS;
	struct pollfd news = { .events = POLLIN };
	pid_t holder;

	begin(1, true, false);
	append(0, 1, 30);
	by.options.max_wait_ms = 10000;
	open_it();
	subscribing_until(&by, 1);
	holder = broker_fork_holder();
	fake_cut(&fake);
	append(0, 1, 30);
	subscribing_until(&by, 2);
	news.fd = lb_source_wants(lb_subscription_source(by.subscription)).fd;
	while (poll(&news, 1, 0) != 0) {
		ck_assert_int_lt(wire_now_ms(), until);
		lb_source_process(lb_subscription_source(by.subscription));
	}
	broker_end_holder(holder);
	end();
}
END_TEST

/* A descriptor that cannot be waited for: a silent subscription would wait for ever. A seek tries it again. */
START_TEST(no_room_to_wait_in_is_told)
{
	begin(1, true, _i);
	append(0, 1, 30);
	open_it();
	subscribing_until(&by, 1);
	epoll_is_full = true;
	fake_cut(&fake);
	ck_assert_int_eq(subscribing_until_stop(&by), LB_NO_MEMORY);
	ck_assert_msg(strstr(by.error.text, "No space") != NULL, "%s", by.error.text);
	epoll_is_full = false;
	append(0, 1, 30);
	subscribing_seek(&by, 0, 1);
	subscribing_until(&by, 2);
	end();
}
END_TEST

/* ---- arguments -------------------------------------------------------------------------------------------------- */

static void
expect_refused(struct lb_subscription_options options, const char *address, const char *topic)
{
	struct lb_subscription *subscription;
	struct lb_error error = { 0 };

	ck_assert_int_eq(lb_subscription_open(&subscription, address, topic, &options, &error), LB_INVALID_ARGUMENT);
	ck_assert_ptr_null(subscription);
	ck_assert_int_eq(error.code, LB_INVALID_ARGUMENT);
	ck_assert_int_gt(strlen(error.text), 10);
}

START_TEST(arguments_are_looked_at)
{
	static const int32_t twice[] = { 1, 1 }, negative[] = { -1 };
	struct lb_subscription_options good = lb_subscription_defaults(), o;
	int before = descriptors();

	expect_refused(good, "unix:/tmp/none", "");
	expect_refused(good, "unix:/tmp/none", "a/b");
	expect_refused(good, "no port", "t");
	expect_refused(good, NULL, "t");
	o = good, o.max_bytes = 0, expect_refused(o, "unix:/tmp/none", "t");
	o = good, o.max_bytes_limit = o.max_bytes - 1, expect_refused(o, "unix:/tmp/none", "t");
	o = good, o.min_bytes = o.max_bytes + 1, expect_refused(o, "unix:/tmp/none", "t");
	o = good, o.min_bytes = -1, expect_refused(o, "unix:/tmp/none", "t");
	o = good, o.max_wait_ms = -1, expect_refused(o, "unix:/tmp/none", "t");
	o = good, o.timeout_ms = 0, expect_refused(o, "unix:/tmp/none", "t");
	o = good, o.start_offset = -1, expect_refused(o, "unix:/tmp/none", "t");
	o = good, o.stop_offset = -1, expect_refused(o, "unix:/tmp/none", "t");
	o = good, o.start = 17, expect_refused(o, "unix:/tmp/none", "t");
	o = good, o.partitions = twice, o.partition_count = 2, expect_refused(o, "unix:/tmp/none", "t");
	o = good, o.partitions = negative, o.partition_count = 1, expect_refused(o, "unix:/tmp/none", "t");
	o = good, o.partition_count = 1, expect_refused(o, "unix:/tmp/none", "t");
	ck_assert_int_eq(descriptors(), before);
	lb_subscription_free(NULL);
}
END_TEST

START_TEST(seeks_that_cannot_be)
{
	const struct lb_batch *batch;
	struct lb_error error;

	begin(1, true, false);
	open_it();
	ck_assert_int_eq(lb_subscription_position(by.subscription, 0), -1);
	ck_assert_int_eq(lb_subscription_seek(by.subscription, 0, 0, &error), LB_INVALID_ARGUMENT);
	append(0, 1, 30);
	subscribing_until(&by, 1);
	ck_assert_int_eq(lb_subscription_seek(by.subscription, 1, 0, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_subscription_seek(by.subscription, 0, -1, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_subscription_next(by.subscription, 0, &batch, &error), LB_INVALID_ARGUMENT);
	end();
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("lib_subscription");
	TCase *tc = tcase_create("subscription");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, C01_both_formats_and_dribbled, 0, 2);
	tcase_add_loop_test(tc, C01_a_broker_of_version_1, 0, 2);
	tcase_add_loop_test(tc, C02_retention_between_metadata_and_fetch, 0, 2);
	tcase_add_loop_test(tc, C03_replay_ends_at_its_first_watermarks, 0, 2);
	tcase_add_loop_test(tc, C03_nothing_to_replay, 0, 2);
	tcase_add_loop_test(tc, C03_a_stop_beyond_the_end_is_waited_for, 0, 2);
	tcase_add_loop_test(tc, starts_latest_before_the_end_and_some_partitions, 0, 2);
	tcase_add_loop_test(tc, J3_a_gap_fails, 0, 2);
	tcase_add_loop_test(tc, J3_a_position_stays_ahead_of_a_gap_until_it_is_told, 0, 2);
	tcase_add_loop_test(tc, J3_a_gap_is_skipped_and_counted, 0, 2);
	tcase_add_loop_test(tc, C04_a_position_above_the_watermark, 0, 2);
	tcase_add_loop_test(tc, what_is_not_there_is_final, 0, 2);
	tcase_add_loop_test(tc, storage_failures_for_a_while, 0, 1);
	tcase_add_loop_test(tc, codes_from_the_future_are_passed_on, 0, 2);
	tcase_add_loop_test(tc, C09_lost_at_any_byte_of_a_batch, 0, 2);
	tcase_add_loop_test(tc, C09_lost_again_and_again, 1, 2);
	tcase_add_test(tc, nobody_listens);
	tcase_add_loop_test(tc, silence_is_given_up, 1, 2);
	tcase_add_loop_test(tc, C09_a_seek_when_the_broker_was_given_up, 0, 2);
	tcase_add_loop_test(tc, what_is_no_answer_is_final, 0, 2);
	tcase_add_loop_test(tc, a_topic_that_grows, 0, 2);
	tcase_add_loop_test(tc, A15_requests_grow_for_a_larger_record, 0, 2);
	tcase_add_loop_test(tc, bug_E1_A15_larger_than_the_limit, 0, 2);
	tcase_add_loop_test(tc, bug_J1_C10_a_damaged_record, 0, 2);
	tcase_add_loop_test(tc, C04_saved_after_the_handler, 0, 2);
	tcase_add_test(tc, C04_a_handler_that_fails_gets_it_again);
	tcase_add_loop_test(tc, C04_checkpoints_that_fail, 0, 2);
	tcase_add_loop_test(tc, C04_a_seek_inside_takes_the_place_of_the_next_offset, 0, 2);
	tcase_add_test(tc, C04_a_seek_while_a_batch_is_out);
	tcase_add_test(tc, C04_a_seek_inside_a_handler_that_fails);
	tcase_add_test(tc, C05_paused_inside);
	tcase_add_test(tc, freed_inside_a_callback);
	tcase_add_test(tc, freed_by_a_checkpoint_inside_next);
	tcase_add_loop_test(tc, C04_a_start_is_kept_although_nothing_comes, 0, 2);
	tcase_add_loop_test(tc, C04_J3_the_earliest_start_is_kept, 0, 2);
	tcase_add_loop_test(tc, C04_J3_a_start_is_kept_ahead_of_its_gap, 0, 2);
	tcase_add_loop_test(tc, C04_the_start_of_a_partition_that_is_added_is_kept, 0, 2);
	tcase_add_loop_test(tc, C04_a_start_that_cannot_be_kept, 0, 2);
	tcase_add_loop_test(tc, C04_a_seek_while_the_start_is_kept, 0, 2);
	tcase_add_loop_test(tc, C01_endless_partitions_starve_nobody, 0, 2);
	tcase_add_test(tc, C05_one_answer_ahead);
	tcase_add_loop_test(tc, C10_a_seek_does_not_wait_for_a_held_request, 0, 2);
	tcase_add_test(tc, waiting_is_quiet);
	tcase_add_loop_test(tc, no_room_to_wait_in_is_told, 0, 2);
	tcase_add_test(tc, quiet_while_a_fork_has_its_sockets);
	tcase_add_test(tc, arguments_are_looked_at);
	tcase_add_test(tc, seeks_that_cannot_be);
	suite_add_tcase(s, tc);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
