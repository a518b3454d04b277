/*
 * What a subscription makes of a broker's answers, without sockets: states and events of one partition, and back-off.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/cursor.h"
#include "common/crc32c.h"
#include "tests/unit.h"

static const int64_t MS = 1000000, S = 1000000000;

static struct lb_subscription_options options;
static struct lb_cursor cursor;
static struct lb_batch batch;
static uint8_t payload[65536];
static size_t payload_bytes;
static int64_t now;

static void
set_up(void)
{
	options = lb_subscription_defaults();
	now = 1000 * S;
	payload_bytes = 0;
}

static void
place_kept(int64_t log_start, int64_t high_watermark, int64_t kept)
{
	struct lb_partition_metadata found = { 3, 0, log_start, high_watermark };

	lb_cursor_init(&cursor, &options, "a:1", "t", 3, unit_seed());
	ck_assert_int_eq(lb_cursor_wants(&cursor), LB_ASK_METADATA);
	lb_cursor_place(&cursor, &found, options.start, kept, now);
}

static void
place(int64_t log_start, int64_t high_watermark)
{
	place_kept(log_start, high_watermark, -1);
}

static void
find(int64_t log_start, int64_t high_watermark)
{
	struct lb_partition_metadata found = { 3, 0, log_start, high_watermark };

	ck_assert_int_eq(lb_cursor_wants(&cursor), LB_ASK_METADATA);
	lb_cursor_found(&cursor, &found, now);
}

static void
put_i32(size_t at, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		payload[at + (size_t)i] = (uint8_t)(value >> (24 - 8 * i));
}

static void
put_records(int count, size_t size)
{
	payload_bytes = 0;
	for (int i = 0; i < count; i++) {
		memset(payload + payload_bytes + 8, 'a' + i % 26, size);
		put_i32(payload_bytes, (uint32_t)size);
		put_i32(payload_bytes + 4, crc32c(payload + payload_bytes + 8, size));
		payload_bytes += 8 + size;
	}
}

static void
fetched(int64_t high_watermark)
{
	struct lb_fetched answer = { high_watermark, payload, payload_bytes };

	ck_assert_int_eq(lb_cursor_wants(&cursor), LB_ASK_FETCH);
	lb_cursor_fetched(&cursor, &answer, now, &batch);
}

static void
expect(enum lb_cursor_state state, int64_t next_offset)
{
	ck_assert_msg(cursor.state == state, "state %d: %s", cursor.state, cursor.error.text);
	ck_assert_int_eq(cursor.next_offset, next_offset);
}

static void
expect_failed(int code, int64_t offset)
{
	expect(LB_CURSOR_FAILED, offset);
	ck_assert_int_eq(cursor.error.code, code);
	ck_assert_str_eq(cursor.error.topic, "t");
	ck_assert_int_eq(cursor.error.partition, 3);
	ck_assert_int_eq(cursor.error.offset, offset);
	ck_assert_int_eq(lb_cursor_wants(&cursor), LB_ASK_NOTHING);
}

/* ---- starts and stops ------------------------------------------------------------------------------------------- */

START_TEST(starts_where_it_was_told)
{
	static const struct {
		enum lb_start start;
		int64_t offset, kept, expected;
	} cases[] = {
		{ LB_START_EARLIEST, 0, -1, 100 }, { LB_START_LATEST, 0, -1, 200 }, { LB_START_OFFSET, 150, -1, 150 },
		{ LB_START_BEFORE_END, 30, -1, 170 }, { LB_START_BEFORE_END, 0, -1, 200 }, { LB_START_BEFORE_END, 100, -1, 100 },
		{ LB_START_BEFORE_END, 5000, -1, 100 }, { LB_START_BEFORE_END, INT64_MAX, -1, 100 },
		{ LB_START_LATEST, 0, 123, 123 }, { LB_START_EARLIEST, 0, 200, 200 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		options.start = cases[i].start;
		options.start_offset = cases[i].offset;
		place_kept(100, 200, cases[i].kept);
		expect(LB_CURSOR_FETCHING, cases[i].expected);
	}
}
END_TEST

START_TEST(C03_ends_where_it_was_told)
{
	options.stop = LB_STOP_AT_WATERMARK;
	place(7, 7);
	expect(LB_CURSOR_ENDED, 7);
	place(0, 4);
	put_records(10, 20);
	fetched(10);
	ck_assert_uint_eq(batch.record_count, 4);
	ck_assert_int_eq(batch.lag, 6);
	expect(LB_CURSOR_ENDED, 4);
	options.stop = LB_STOP_AT_OFFSET;
	options.stop_offset = 15;
	place(0, 12);
	fetched(12);
	expect(LB_CURSOR_FETCHING, 10);
	fetched(20);
	ck_assert_uint_eq(batch.record_count, 5);
	expect(LB_CURSOR_ENDED, 15);
}
END_TEST

/* What is behind the stop is nobody's business, damaged or not. */
START_TEST(C03_damage_behind_the_stop)
{
	options.stop = LB_STOP_AT_WATERMARK;
	place(0, 4);
	put_records(10, 20);
	payload[4 * 28 + 10] ^= 1;
	fetched(10);
	ck_assert_uint_eq(batch.record_count, 4);
	expect(LB_CURSOR_ENDED, 4);
}
END_TEST

START_TEST(waits_only_for_what_is_not_there)
{
	struct lb_fetch fetch;

	options.min_bytes = 5000;
	place(0, 10);
	lb_cursor_fetch(&cursor, &fetch);
	ck_assert_int_eq(fetch.max_wait_ms, 30000);
	ck_assert_int_eq(fetch.min_bytes, 5000);
	options.stop = LB_STOP_AT_WATERMARK;
	place(0, 10);
	lb_cursor_fetch(&cursor, &fetch);
	ck_assert_int_eq(fetch.max_wait_ms, 0);
	ck_assert_int_eq(fetch.min_bytes, 0);
	options.stop = LB_STOP_AT_OFFSET;
	options.stop_offset = 11;
	place(0, 10);
	lb_cursor_fetch(&cursor, &fetch);
	ck_assert_int_eq(fetch.max_wait_ms, 30000);
}
END_TEST

/* ---- out of range ----------------------------------------------------------------------------------------------- */

START_TEST(C02_start_moves_with_the_log_start)
{
	for (int i = 0; i < 2; i++) {
		options.start = i == 0 ? LB_START_EARLIEST : LB_START_BEFORE_END;
		options.start_offset = 1000;
		place(0, 100);
		for (int64_t start = 10; start < 40; start += 10) {
			lb_cursor_refused(&cursor, LB_OFFSET_OUT_OF_RANGE, now);
			find(start, 100);
			expect(LB_CURSOR_FETCHING, start);
		}
		put_records(3, 20);
		fetched(100);
		ck_assert_int_eq(batch.skipped, 0);
		lb_cursor_refused(&cursor, LB_OFFSET_OUT_OF_RANGE, now);
		find(50, 100);
		expect_failed(LB_GAP, 33);
		ck_assert_int_eq(cursor.error.skipped, 17);
	}
}
END_TEST

/* All that was to be replayed has gone ahead of the first FETCH: nothing is left, and nothing was promised. */
START_TEST(C02_start_moves_behind_the_stop)
{
	options.stop = LB_STOP_AT_WATERMARK;
	place(0, 100);
	lb_cursor_refused(&cursor, LB_OFFSET_OUT_OF_RANGE, now);
	find(150, 200);
	expect(LB_CURSOR_ENDED, 150);
}
END_TEST

START_TEST(J3_a_gap_is_never_silent)
{
	options.start = LB_START_OFFSET;
	options.start_offset = 5;
	place(20, 100);
	expect_failed(LB_GAP, 5);
	ck_assert_int_eq(cursor.error.skipped, 15);
	options.on_gap = LB_GAP_EARLIEST;
	place(20, 100);
	expect(LB_CURSOR_FETCHING, 20);
	lb_cursor_refused(&cursor, LB_OFFSET_OUT_OF_RANGE, now);
	find(30, 100);
	put_records(1, 20);
	fetched(100);
	ck_assert_int_eq(batch.base_offset, 30);
	ck_assert_int_eq(batch.skipped, 25);
	fetched(100);
	ck_assert_int_eq(batch.skipped, 0);
	options.on_gap = LB_GAP_LATEST;
	place(20, 100);
	expect(LB_CURSOR_FETCHING, 100);
	fetched(101);
	ck_assert_int_eq(batch.skipped, 95);
	options.stop = LB_STOP_AT_WATERMARK;
	place(20, 100);
	expect_failed(LB_GAP, 5);
}
END_TEST

START_TEST(a_position_above_the_watermark_is_final)
{
	place_kept(0, 100, 101);
	expect_failed(LB_OFFSET_OUT_OF_RANGE, 101);
	place_kept(0, 100, 100);
	expect(LB_CURSOR_FETCHING, 100);
	lb_cursor_refused(&cursor, LB_OFFSET_OUT_OF_RANGE, now);
	find(0, 99);
	expect_failed(LB_OFFSET_OUT_OF_RANGE, 100);
	lb_cursor_seek(&cursor, 99);
	expect(LB_CURSOR_FETCHING, 99);
}
END_TEST

/* The broker says that the position is out of range, and METADATA that it is not: asked again with back-off, not for ever. */
START_TEST(a_contradiction_does_not_spin)
{
	int64_t begun = now;
	int rounds = 0;

	place(0, 100);
	while (cursor.state == LB_CURSOR_FETCHING) {
		lb_cursor_refused(&cursor, LB_OFFSET_OUT_OF_RANGE, now);
		find(0, 100);
		ck_assert(cursor.state == LB_CURSOR_FAILED || cursor.not_before_ns > now);
		now = cursor.state == LB_CURSOR_FAILED ? now : cursor.not_before_ns;
		rounds++;
	}
	expect_failed(LB_OFFSET_OUT_OF_RANGE, 0);
	ck_assert_int_eq(now, begun + 10 * S);
	ck_assert_int_lt(rounds, 15);
}
END_TEST

/* ---- refusals --------------------------------------------------------------------------------------------------- */

START_TEST(storage_failures_are_asked_again_for_ten_seconds)
{
	for (int unplaced = 0; unplaced < 2; unplaced++) {
		int64_t begun = now;
		int rounds = 0;

		place(0, 100);
		if (unplaced)
			lb_cursor_init(&cursor, &options, "a:1", "t", 3, 1);
		while (cursor.state != LB_CURSOR_FAILED) {
			lb_cursor_refused(&cursor, LB_STORAGE_FAILURE, now);
			if (cursor.state != LB_CURSOR_FAILED)
				now = cursor.not_before_ns;
			rounds++;
		}
		expect_failed(LB_STORAGE_FAILURE, unplaced ? -1 : 0);
		ck_assert_str_eq(cursor.error.text, unplaced ?
		    "METADATA of t: a:1 answered STORAGE_FAILURE: the broker could not write or read its files; its log says why "
		    "(for 10 s now)" :
		    "FETCH of t/3 at offset 0: a:1 answered STORAGE_FAILURE: the broker could not write or read its files; its log "
		    "says why (for 10 s now)");
		ck_assert_int_eq(now, begun + 10 * S);
		ck_assert_int_gt(rounds, 6);
		ck_assert_int_lt(rounds, 15);
	}
}
END_TEST

START_TEST(storage_failures_that_heal_begin_anew)
{
	place(0, 100);
	for (int i = 0; i < 5; i++) {
		lb_cursor_refused(&cursor, LB_STORAGE_FAILURE, now);
		ck_assert_int_le(cursor.not_before_ns, now + 100 * MS);
		now += 9 * S;
		lb_cursor_refused(&cursor, LB_STORAGE_FAILURE, now);
		expect(LB_CURSOR_FETCHING, i);
		put_records(1, 20);
		fetched(100);
	}
}
END_TEST

START_TEST(other_refusals_are_final)
{
	static const int codes[] = { LB_UNKNOWN_TOPIC_OR_PARTITION, LB_CORRUPT_REQUEST, LB_RECORD_TOO_LARGE, 77 };

	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
		place(0, 100);
		lb_cursor_refused(&cursor, codes[i], now);
		expect_failed(codes[i], 0);
	}
}
END_TEST

START_TEST(version_1_is_asked_where_2_is_not_known)
{
	struct lb_fetch fetch;

	place(0, 100);
	lb_cursor_refused(&cursor, LB_UNSUPPORTED_VERSION, now);
	expect(LB_CURSOR_FETCHING, 0);
	ck_assert_int_eq(cursor.fetch_version, 1);
	lb_cursor_fetch(&cursor, &fetch);
	ck_assert_int_eq(fetch.max_wait_ms, 0);
	ck_assert_int_eq(fetch.min_bytes, 0);
	lb_cursor_refused(&cursor, LB_UNSUPPORTED_VERSION, now);
	expect_failed(LB_UNSUPPORTED_VERSION, 0);
}
END_TEST

/* ---- answers ---------------------------------------------------------------------------------------------------- */

START_TEST(C10_good_records_before_a_damaged_one)
{
	place(0, 100);
	put_records(5, 20);
	payload[3 * 28 + 8] ^= 0x80;
	fetched(100);
	ck_assert_uint_eq(batch.record_count, 3);
	expect_failed(LB_CORRUPT_RECORD, 3);
	lb_cursor_seek(&cursor, 4);
	put_records(1, 20);
	fetched(100);
	ck_assert_int_eq(batch.base_offset, 4);
	payload[0] = 0xff;
	fetched(100);
	ck_assert_uint_eq(batch.record_count, 0);
	expect_failed(LB_CORRUPT_RECORD, 5);
}
END_TEST

START_TEST(A14_only_whole_records)
{
	put_records(3, 20);
	for (size_t bytes = 28; bytes <= 84; bytes++) {
		place(0, 100);
		payload_bytes = bytes;
		fetched(100);
		ck_assert_uint_eq(batch.record_count, bytes / 28);
		expect(LB_CURSOR_FETCHING, (int64_t)(bytes / 28));
	}
}
END_TEST

/* It grows, stays while there are such records, and is back when there is none. */
START_TEST(A15_grows_for_records_and_back)
{
	options.max_bytes = 100;
	options.max_bytes_limit = 1008;
	options.min_bytes = 1;
	place(0, 100);
	put_records(1, 1000);
	payload_bytes = 100;
	fetched(100);
	ck_assert_uint_eq(batch.record_count, 0);
	expect(LB_CURSOR_FETCHING, 0);
	ck_assert_int_eq(cursor.max_bytes, 1008);
	payload_bytes = 1008;
	fetched(100);
	ck_assert_uint_eq(batch.record_count, 1);
	ck_assert_int_eq(batch.max_bytes, 1008);
	ck_assert_int_eq(cursor.max_bytes, 1008);
	put_records(1, 93);
	fetched(100);
	ck_assert_int_eq(cursor.max_bytes, 1008);
	put_records(10, 92);
	fetched(100);
	ck_assert_int_eq(cursor.max_bytes, 100);
	put_records(1, 1001);
	payload_bytes = 100;
	fetched(100);
	expect_failed(LB_RECORD_EXCEEDS_MAX_BYTES, 12);
	ck_assert_int_eq(cursor.error.record_bytes, 1001);
}
END_TEST

/* A record that was cut behind small ones has told its length: the next request has room for it, if that is allowed. */
START_TEST(A15_grows_for_a_record_that_was_cut)
{
	options.max_bytes = 100;
	options.max_bytes_limit = 1008;
	place(0, 100);
	put_records(2, 20);
	for (uint32_t length = 92; length <= 1001; length++) {
		place(0, 100);
		put_i32(28, length);
		payload_bytes = 32;
		fetched(100);
		ck_assert_uint_eq(batch.record_count, 1);
		expect(LB_CURSOR_FETCHING, 1);
		ck_assert_int_eq(cursor.max_bytes, length <= 1000 ? (int32_t)length + 8 : 100);
	}
	place(0, 100);
	payload_bytes = 31;
	fetched(100);
	ck_assert_int_eq(cursor.max_bytes, 100);
}
END_TEST

/* Small and large ones in turn cost no request that brings nothing. */
START_TEST(A15_no_request_is_wasted_on_records_in_turn)
{
	options.max_bytes = 100;
	place(0, 100);
	for (int i = 0; i < 10; i++) {
		put_records(1, 20);
		put_i32(28, 1000);
		payload_bytes = 100;
		fetched(100);
		expect(LB_CURSOR_FETCHING, 2 * i + 1);
		put_records(1, 1000);
		fetched(100);
		ck_assert_int_eq(batch.max_bytes, 1008);
		expect(LB_CURSOR_FETCHING, 2 * i + 2);
	}
}
END_TEST

/* Not even the length has arrived: of a limit that does not allow to see it, or a request that grows until it does. */
START_TEST(A15_unknown_sizes)
{
	options.max_bytes = 3;
	options.max_bytes_limit = 3;
	place(0, 100);
	put_records(1, 1000);
	payload_bytes = 3;
	fetched(100);
	expect_failed(LB_RECORD_EXCEEDS_MAX_BYTES, 0);
	ck_assert_int_eq(cursor.error.record_bytes, 0);
	options.max_bytes_limit = 5000;
	place(0, 100);
	fetched(100);
	expect(LB_CURSOR_FETCHING, 0);
	payload_bytes = (size_t)cursor.max_bytes;
	fetched(100);
	ck_assert_int_eq(cursor.max_bytes, 1008);
}
END_TEST

/* A length that is damaged, but possible, is found out: the log has not got so much. */
START_TEST(J1_a_damaged_length_does_not_loop)
{
	place(0, 100);
	put_records(1, 20);
	put_i32(0, 5000000);
	fetched(1);
	expect(LB_CURSOR_FETCHING, 0);
	ck_assert_int_eq(cursor.max_bytes, 5000008);
	fetched(1);
	expect_failed(LB_CORRUPT_RECORD, 0);
}
END_TEST

START_TEST(empty_answers_are_paused_behind)
{
	int64_t asked;

	options.max_wait_ms = 0;
	place(5, 5);
	for (int i = 0; i < 20; i++) {
		asked = now;
		fetched(5);
		expect(LB_CURSOR_FETCHING, 5);
		ck_assert_int_ge(cursor.not_before_ns, asked + (i < 6 ? 10 : 500) * MS);
		ck_assert_int_le(cursor.not_before_ns, asked + 500 * MS);
		now = cursor.not_before_ns;
	}
	put_records(1, 20);
	fetched(6);
	payload_bytes = 0;
	fetched(6);
	ck_assert_int_eq(cursor.not_before_ns, now + 10 * MS);
}
END_TEST

START_TEST(records_above_the_watermark_are_no_answer)
{
	place(0, 100);
	put_records(3, 20);
	fetched(2);
	ck_assert_uint_eq(batch.record_count, 0);
	expect_failed(LB_BAD_ANSWER, 0);
}
END_TEST

START_TEST(late_answers_are_ignored)
{
	struct lb_fetched answer = { 100, payload, 0 };
	struct lb_partition_metadata found = { 3, 0, 50, 100 };

	put_records(3, 20);
	answer.payload_bytes = payload_bytes;
	options.stop = LB_STOP_AT_WATERMARK;
	place(0, 0);
	lb_cursor_fetched(&cursor, &answer, now, &batch);
	ck_assert_uint_eq(batch.record_count, 0);
	lb_cursor_found(&cursor, &found, now);
	lb_cursor_refused(&cursor, LB_STORAGE_FAILURE, now);
	expect(LB_CURSOR_ENDED, 0);
}
END_TEST

/* ---- batches ---------------------------------------------------------------------------------------------------- */

START_TEST(a_batch_is_walked_again_and_again)
{
	place(0, 100);
	put_records(3, 20);
	fetched(100);
	for (int round = 0; round < 2; round++) {
		struct lb_record record = { 0 };

		for (int i = 0; i < 3; i++) {
			ck_assert(lb_batch_next(&batch, &record));
			ck_assert_int_eq(record.offset, i);
			ck_assert_uint_eq(record.bytes, 20);
			ck_assert_int_eq(((const char *)record.data)[19], 'a' + i);
		}
		ck_assert(!lb_batch_next(&batch, &record));
		ck_assert(!lb_batch_next(&batch, &record));
	}
}
END_TEST

/* ---- back-off --------------------------------------------------------------------------------------------------- */

START_TEST(backoff_doubles_up_to_five_seconds)
{
	static const int64_t waits_ms[] = { 100, 200, 400, 800, 1600, 3200, 5000, 5000 };
	struct lb_backoff backoff;

	lb_backoff_init(&backoff, unit_seed());
	for (int round = 0; round < 2; round++) {
		for (size_t i = 0; i < sizeof waits_ms / sizeof waits_ms[0]; i++) {
			lb_backoff_failed(&backoff, now);
			ck_assert_int_gt(backoff.due_ns, now + waits_ms[i] * MS / 2);
			ck_assert_int_le(backoff.due_ns, now + waits_ms[i] * MS);
			now = backoff.due_ns;
		}
		lb_backoff_worked(&backoff);
	}
}
END_TEST

START_TEST(backoff_differs_between_clients)
{
	struct lb_backoff one, other;
	int same = 0;

	lb_backoff_init(&one, 1);
	lb_backoff_init(&other, 2);
	for (int i = 0; i < 10; i++) {
		lb_backoff_failed(&one, 0);
		lb_backoff_failed(&other, 0);
		same += one.due_ns == other.due_ns;
	}
	ck_assert_int_lt(same, 3);
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("lib_cursor");
	TCase *tc = tcase_create("cursor");

	tcase_add_checked_fixture(tc, set_up, NULL);
	tcase_add_test(tc, starts_where_it_was_told);
	tcase_add_test(tc, C03_ends_where_it_was_told);
	tcase_add_test(tc, C03_damage_behind_the_stop);
	tcase_add_test(tc, waits_only_for_what_is_not_there);
	tcase_add_test(tc, C02_start_moves_with_the_log_start);
	tcase_add_test(tc, C02_start_moves_behind_the_stop);
	tcase_add_test(tc, J3_a_gap_is_never_silent);
	tcase_add_test(tc, a_position_above_the_watermark_is_final);
	tcase_add_test(tc, a_contradiction_does_not_spin);
	tcase_add_test(tc, storage_failures_are_asked_again_for_ten_seconds);
	tcase_add_test(tc, storage_failures_that_heal_begin_anew);
	tcase_add_test(tc, other_refusals_are_final);
	tcase_add_test(tc, version_1_is_asked_where_2_is_not_known);
	tcase_add_test(tc, C10_good_records_before_a_damaged_one);
	tcase_add_test(tc, A14_only_whole_records);
	tcase_add_test(tc, A15_grows_for_records_and_back);
	tcase_add_test(tc, A15_grows_for_a_record_that_was_cut);
	tcase_add_test(tc, A15_no_request_is_wasted_on_records_in_turn);
	tcase_add_test(tc, A15_unknown_sizes);
	tcase_add_test(tc, J1_a_damaged_length_does_not_loop);
	tcase_add_test(tc, empty_answers_are_paused_behind);
	tcase_add_test(tc, records_above_the_watermark_are_no_answer);
	tcase_add_test(tc, late_answers_are_ignored);
	tcase_add_test(tc, a_batch_is_walked_again_and_again);
	tcase_add_test(tc, backoff_doubles_up_to_five_seconds);
	tcase_add_test(tc, backoff_differs_between_clients);
	suite_add_tcase(s, tc);
	return s;
}

int
main(void)
{
	return unit_run(suite());
}
