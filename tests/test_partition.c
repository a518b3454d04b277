/* The log as its owner sees it: append, lookup, barriers, reopening, damage in sealed segments. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/segment.h"
#include "worker/stop_marker.h"
#include "worker/syscalls.h"

static const enum record_format formats[] = { RECORD_PLAIN, RECORD_CRC32C };
enum { FORMATS = 2 };

static struct logkit kit;

static int64_t
header(void)
{
	return (int64_t)record_header_bytes(kit.settings.record_format);
}

/* What puts records into the file. */
static enum logkit_call
write_call(void)
{
	return kit.settings.mapped ? CALL_STORE : CALL_PWRITE;
}

START_TEST(A01_hundred_records_have_offsets_0_to_99)
{
	logkit_begin(&kit, formats[_i], 1 << 20);
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_start(kit.p), 0);
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(partition_log_end(kit.p), i);
		logkit_append(&kit, 1, 10);
	}
	ck_assert_int_eq(partition_log_end(kit.p), 100);
	ck_assert_int_eq(partition_size_bytes(kit.p), 100 * (header() + 10));
	logkit_expect(&kit, 0, 100, 10);
	logkit_end(&kit);
}
END_TEST

static size_t
odd_size(int64_t offset)
{
	return (size_t)(1 + (offset * 7919) % 3000);
}

START_TEST(A02_records_of_different_lengths_are_read_by_offset)
{
	logkit_begin(&kit, formats[_i], 1 << 24);
	kit.size_of = odd_size;
	logkit_open(&kit);
	logkit_append(&kit, 500, 0);
	logkit_expect(&kit, 0, 500, 0);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 500, 0);
	logkit_end(&kit);
}
END_TEST

START_TEST(A03_position_of_record)
{
	struct partition_place place;

	logkit_begin(&kit, formats[_i], 1 << 24);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_try_append(&kit, 5000, 64), 0);
	ck_assert_int_eq(logkit_find(&kit, 4321, &place), PARTITION_FOUND);
	ck_assert_int_eq(place.position, 4321 * (header() + 64));
	ck_assert_int_eq(place.bytes_in_segment, (5000 - 4321) * (header() + 64));
	logkit_expect(&kit, 4999, 5000, 64);
	logkit_reopen(&kit);
	ck_assert_int_eq(logkit_find(&kit, 4321, &place), PARTITION_FOUND);
	ck_assert_int_eq(place.position, 4321 * (header() + 64));
	logkit_expect(&kit, 0, 5000, 64);
	logkit_end(&kit);
}
END_TEST

START_TEST(A04_behind_the_end_there_is_no_data)
{
	struct partition_place place;
	struct slice slice;

	logkit_begin(&kit, formats[_i], 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, 1, 30);
	ck_assert_int_eq(logkit_find(&kit, 1, &place), PARTITION_FOUND);
	ck_assert_int_eq(place.bytes_in_segment, 0);
	ck_assert_int_eq(place.bytes_behind, 0);
	partition_slice(&place, 1000, &slice);
	ck_assert_ptr_null(slice.segment);
	ck_assert_int_eq(slice.bytes, 0);
	slice_release(&slice);
	ck_assert_int_eq(logkit_find(&kit, 7, &place), PARTITION_BROKEN);
	ck_assert_int_eq(logkit_find(&kit, -1, &place), PARTITION_BROKEN);
	logkit_end(&kit);
}
END_TEST

START_TEST(A05_segment_of_1024_bytes)
{
	int fitting = formats[_i] == RECORD_PLAIN ? 5 : 4;
	int64_t bytes;

	logkit_begin(&kit, formats[_i], 1024);
	logkit_open(&kit);
	bytes = header() + 200;
	for (int i = 0; i < fitting; i++) {
		ck_assert_int_eq(partition_fit(kit.p, bytes),
		    i == 0 && kit.settings.mapped ? PARTITION_AHEAD : PARTITION_FITS);
		logkit_append(&kit, 1, 200);
		ck_assert_int_eq(partition_segments(kit.p), 1);
	}
	ck_assert_int_eq(partition_fit(kit.p, bytes), PARTITION_ROLL);
	ck_assert_int_eq(partition_room(kit.p), 1024 - fitting * bytes);
	logkit_append(&kit, 1, 200);
	ck_assert_int_eq(partition_segments(kit.p), 2);
	logkit_expect(&kit, 0, fitting + 1, 200);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_batch_is_refused_that_is_not_what_is_said)
{
	size_t bytes;
	uint8_t *batch;
	int forces;

	logkit_begin(&kit, formats[_i], 1000);
	logkit_open(&kit);
	batch = logkit_batch(formats[_i], 0, 3, 20, &bytes);
	ck_assert_int_eq(logkit_upkeep(&kit, (int64_t)bytes), 0);
	ck_assert_int_eq(partition_append(kit.p, batch, bytes, 2), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(partition_append(kit.p, batch, bytes, 4), -1);
	ck_assert_int_eq(partition_append(kit.p, batch, bytes - 1, 3), -1);
	ck_assert_int_eq(partition_append(kit.p, batch, 0, 0), -1);
	ck_assert_int_eq(logkit_calls(write_call()), 0);
	free(batch);
	batch = logkit_batch(formats[_i], 0, 1, 1000, &bytes);
	ck_assert_int_eq(partition_fit(kit.p, (int64_t)bytes), PARTITION_ALONE);
	ck_assert_int_eq(partition_append(kit.p, batch, bytes, 1), -1);
	ck_assert_int_eq(errno, EINVAL);
	free(batch);
	ck_assert_int_eq(partition_log_end(kit.p), 0);
	forces = logkit_calls(CALL_FDATASYNC);
	logkit_append(&kit, 2, 20);
	/* Where nothing stands behind the end there is nothing to cut off. */
	ck_assert_int_eq(logkit_calls(CALL_FDATASYNC), forces + (kit.settings.mapped ? 1 : 0));
	logkit_expect(&kit, 0, 2, 20);
	logkit_end(&kit);
}
END_TEST

START_TEST(A10_three_segments_are_reopened)
{
	logkit_begin(&kit, formats[_i], 1024);
	logkit_open(&kit);
	logkit_append(&kit, 12, 192);
	ck_assert_int_eq(partition_segments(kit.p), 3);
	logkit_reopen(&kit);
	ck_assert_int_eq(partition_segments(kit.p), 3);
	ck_assert_int_eq(partition_log_start(kit.p), 0);
	ck_assert_int_eq(partition_log_end(kit.p), 12);
	ck_assert_int_eq(partition_durable_end(kit.p), 12);
	ck_assert_int_eq(kit.opened.truncated_bytes, 0);
	ck_assert_int_eq(partition_size_bytes(kit.p), 12 * (header() + 192));
	logkit_append(&kit, 1, 192);
	ck_assert_int_eq(partition_log_end(kit.p), 13);
	logkit_expect(&kit, 0, 13, 192);
	logkit_end(&kit);
}
END_TEST

START_TEST(A20_reopened_with_smaller_segments)
{
	logkit_begin(&kit, formats[_i], 1 << 16);
	logkit_open(&kit);
	logkit_append(&kit, 100, 200);
	logkit_close(&kit);
	kit.settings.segment_bytes = 1024;
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 100);
	ck_assert_int_eq(partition_room(kit.p), 0);
	ck_assert_int_eq(partition_fit(kit.p, header() + 200), PARTITION_ROLL);
	logkit_append(&kit, 20, 200);
	ck_assert_int_eq(partition_segments(kit.p), formats[_i] == RECORD_PLAIN ? 5 : 6);
	logkit_expect(&kit, 0, 120, 200);
	logkit_close(&kit);
	kit.settings.segment_bytes = 1 << 20;
	logkit_open(&kit);
	logkit_append(&kit, 1, 200);
	logkit_expect(&kit, 0, 121, 200);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A20_first_append_after_a_restart_goes_to_the_end)
{
	logkit_begin(&kit, formats[_i], 4096);
	logkit_open(&kit);
	for (int round = 0; round < 50; round++) {
		logkit_append(&kit, 1, 60);
		logkit_reopen(&kit);
		ck_assert_int_eq(partition_log_end(kit.p), round + 1);
	}
	logkit_expect(&kit, 0, 50, 60);
	logkit_end(&kit);
}
END_TEST

/* Every offset, from every place where a length word can be cut by the edge of a read. */
static size_t
crossing_size(int64_t offset)
{
	/* Headers come to stand across 4 KiB, 8 KiB (a lookup's read) and 64 KiB at each of their bytes. */
	return (size_t)(offset % 3 == 0 ? 1 + offset % 13 : 1300 + offset % 61);
}

START_TEST(bug_E7_headers_across_every_edge)
{
	int64_t intervals[] = { 1, 4096, 1 << 30 };

	for (size_t i = 0; i < 3; i++) {
		struct partition_place place;
		struct slice slice;

		logkit_begin(&kit, formats[_i], 200000);
		kit.size_of = crossing_size;
		kit.settings.index_interval_bytes = intervals[i];
		logkit_open(&kit);
		logkit_append(&kit, 500, 0);
		ck_assert_int_gt(partition_segments(kit.p), 1);
		logkit_expect(&kit, 0, 500, 0);
		logkit_reopen(&kit);
		logkit_expect(&kit, 0, 500, 0);
		for (int64_t offset = 0; offset < 500; offset += unit_sample())
			for (int64_t max = 1; max <= 16; max++) {
				ck_assert_int_eq(logkit_find(&kit, offset, &place), PARTITION_FOUND);
				partition_slice(&place, max, &slice);
				if (slice.bytes != max)
					ck_assert_int_eq(slice.bytes, place.bytes_in_segment);
				ck_assert_int_ge(slice.bytes, max < header() + 1 ? max : header() + 1);
				slice_release(&slice);
			}
		logkit_end(&kit);
	}
}
END_TEST

START_TEST(bytes_behind_counts_to_the_end_of_the_log)
{
	struct partition_place place;
	int64_t bytes;

	logkit_begin(&kit, RECORD_CRC32C, 1024);
	logkit_open(&kit);
	bytes = header() + 100;
	logkit_append(&kit, 30, 100);
	for (int round = 0; round < 2; round++) {
		for (int64_t i = 0; i < 30; i++) {
			ck_assert_int_eq(logkit_find(&kit, i, &place), PARTITION_FOUND);
			ck_assert_int_eq(place.bytes_behind, (30 - i) * bytes);
		}
		logkit_reopen(&kit);
	}
	logkit_end(&kit);
}
END_TEST

START_TEST(a_barrier_makes_what_was_written_before_it_durable)
{
	struct partition_barrier barrier;

	logkit_begin(&kit, RECORD_CRC32C, 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, 3, 10);
	ck_assert_int_eq(partition_durable_end(kit.p), 0);
	ck_assert_int_eq(partition_unforced_bytes(kit.p), 3 * 18);
	logkit_trace_begin();
	partition_barrier_begin(kit.p, &barrier);
	logkit_append(&kit, 2, 10);
	partition_barrier_run(&barrier);
	ck_assert_int_eq(partition_durable_end(kit.p), 0);
	ck_assert_int_eq(partition_barrier_finish(kit.p, &barrier), 0);
	ck_assert_int_eq(partition_durable_end(kit.p), 3);
	ck_assert_int_eq(partition_unforced_bytes(kit.p), 2 * 18);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	ck_assert_int_eq(partition_durable_end(kit.p), 5);
	ck_assert_ptr_nonnull(strstr(logkit_trace(), "force 00000000000000000000.log;"));
	logkit_end(&kit);
}
END_TEST

START_TEST(a_failed_barrier_never_becomes_a_success)
{
	int errors[] = { EIO, ENOSPC, EINTR };
	struct partition_place place;
	struct slice slice;
	int fds;

	logkit_begin(&kit, RECORD_CRC32C, 1000);
	fds = logkit_open_descriptors();
	logkit_open(&kit);
	logkit_append(&kit, 15, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_append(&kit, 2, 100);
	ck_assert_int_eq(logkit_find(&kit, 16, &place), PARTITION_FOUND);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FDATASYNC, .at = 1, .error = errors[_i] });
	ck_assert_int_eq(logkit_barrier(&kit), -1);
	ck_assert_int_eq(errno, errors[_i]);
	ck_assert(partition_failed(kit.p));
	ck_assert_int_eq(partition_durable_end(kit.p), 15);
	/* The next force would succeed. */
	ck_assert_int_eq(logkit_barrier(&kit), -1);
	ck_assert_int_eq(partition_durable_end(kit.p), 15);
	ck_assert_int_eq(logkit_try_append(&kit, 1, 10), -1);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), -1);
	ck_assert_int_eq(errno, EIO);
	/* Up to the durable end it can be read, in the sealed segment and in the active one. */
	logkit_expect(&kit, 0, 15, 100);
	ck_assert_int_eq(logkit_find(&kit, 14, &place), PARTITION_FOUND);
	ck_assert_int_eq(place.bytes_in_segment, 108);
	ck_assert_int_eq(place.bytes_behind, 108);
	partition_slice(&place, 10000, &slice);
	ck_assert_int_eq(slice.bytes, 108);
	slice_release(&slice);
	logkit_expect_broken(&kit, 15, 18);
	logkit_close(&kit);
	ck_assert_int_eq(logkit_open_descriptors(), fds);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A9_a_short_write_leaves_nothing_behind)
{
	int errors[] = { ENOSPC, EIO, EINTR, LOGKIT_SHORT };
	bool completed = errors[_i] == EINTR || errors[_i] == LOGKIT_SHORT;
	char path[LOGKIT_PATH_BYTES];

	for (int at = 1; at <= 3; at++) {
		logkit_begin(&kit, formats[at % FORMATS], 1 << 20);
		logkit_open(&kit);
		logkit_segment_path(&kit, 0, path);
		logkit_append(&kit, 4, 50);
		logkit_set_fault((struct logkit_fault){ .call = write_call(), .at = at, .error = errors[_i] });
		for (int i = 1; i <= 3; i++) {
			int64_t end = partition_log_end(kit.p);

			ck_assert_int_eq(logkit_try_append(&kit, 20, 50), completed || i != at ? 0 : -1);
			logkit_expect_file_end(&kit, path, partition_size_bytes(kit.p));
			ck_assert_int_eq(partition_log_end(kit.p), end + (completed || i != at ? 20 : 0));
		}
		ck_assert(logkit_fault_hit());
		logkit_reopen(&kit);
		ck_assert_int_eq(kit.opened.truncated_bytes, 0);
		ck_assert_int_eq(partition_log_end(kit.p), completed ? 64 : 44);
		logkit_expect(&kit, 0, partition_log_end(kit.p), 50);
		logkit_end(&kit);
	}
}
END_TEST

START_TEST(bug_A9_a_failed_write_leaves_no_mark_in_the_index)
{
	logkit_begin(&kit, formats[_i], 1 << 20);
	kit.settings.index_interval_bytes = 1;
	kit.size_of = odd_size;
	logkit_open(&kit);
	logkit_append(&kit, 3, 0);
	logkit_set_fault((struct logkit_fault){ .call = write_call(), .at = 1, .error = ENOSPC });
	ck_assert_int_eq(logkit_try_append(&kit, 20, 50), -1);
	logkit_append(&kit, 20, 0);
	logkit_expect(&kit, 0, 23, 0);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A9_leavings_that_cannot_be_cut_stop_appends_until_they_can)
{
	char path[LOGKIT_PATH_BYTES];

	logkit_begin(&kit, formats[_i], 1 << 20);
	logkit_open(&kit);
	logkit_segment_path(&kit, 0, path);
	logkit_append(&kit, 4, 50);
	/* The first call asks for the file's size. */
	logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = 2, .error = ENOSPC, .sticky = true });
	ck_assert_int_eq(logkit_try_append(&kit, 20, 50), -1);
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_int_gt(logkit_file_bytes(path), partition_size_bytes(kit.p));
	logkit_set_fault((struct logkit_fault){ .call = CALL_FTRUNCATE, .at = 1, .error = EIO, .sticky = true });
	ck_assert_int_eq(logkit_try_append(&kit, 1, 10), -1);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(logkit_calls(write_call()), 0);
	ck_assert(!partition_failed(kit.p));
	logkit_expect(&kit, 0, 4, 50);
	logkit_clear_fault();
	logkit_append(&kit, 1, 50);
	logkit_expect_file_end(&kit, path, partition_size_bytes(kit.p));
	logkit_reopen(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 5);
	logkit_expect(&kit, 0, 5, 50);
	logkit_end(&kit);
}
END_TEST

/* Of a power cut nothing else tells: the rest of what was refused could stand there again, behind a batch that is shorter. */
START_TEST(bug_A9_leavings_are_cut_durably_before_the_next_append)
{
	logkit_begin(&kit, formats[_i], 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, 4, 50);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_set_fault((struct logkit_fault){ .call = write_call(), .at = 1, .error = ENOSPC });
	ck_assert_int_eq(logkit_try_append(&kit, 20, 50), -1);
	ck_assert_int_eq(partition_release(kit.p, &(struct stop_state){ 0 }), -1);
	ck_assert_int_eq(partition_leave(kit.p, &(struct stop_state){ 0 }), -1);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FDATASYNC, .at = 1, .error = EIO });
	ck_assert_int_eq(logkit_try_append(&kit, 1, 50), -1);
	ck_assert_int_eq(logkit_calls(write_call()), 0);
	ck_assert(partition_failed(kit.p));
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A9_leavings_are_cut_by_a_roll_too)
{
	char path[LOGKIT_PATH_BYTES];

	logkit_begin(&kit, formats[_i], 1 << 20);
	logkit_open(&kit);
	logkit_segment_path(&kit, 0, path);
	logkit_append(&kit, 4, 50);
	logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = 2, .error = EIO, .sticky = true });
	ck_assert_int_eq(logkit_try_append(&kit, 20, 50), -1);
	logkit_clear_fault();
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	ck_assert_int_eq(logkit_file_bytes(path), 4 * (header() + 50));
	logkit_append(&kit, 4, 50);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 8, 50);
	logkit_end(&kit);
}
END_TEST

/* ---- damage in sealed segments ---- */

/* Four segments of nine records of 100 bytes (plain: of 104, crc32c: of 108). */
static void
four_segments(enum record_format format)
{
	logkit_begin(&kit, format, 1000);
	logkit_open(&kit);
	logkit_append(&kit, 36, 100);
	ck_assert_int_eq(partition_segments(kit.p), 4);
	logkit_close(&kit);
}

START_TEST(bug_A13_a_flipped_payload_byte_in_a_sealed_segment)
{
	char path[LOGKIT_PATH_BYTES];
	struct partition_place place;
	uint8_t bytes[108];
	struct slice slice;
	size_t size;

	four_segments(RECORD_CRC32C);
	logkit_segment_path(&kit, 9, path);
	logkit_flip(path, 4 * 108 + 50);
	logkit_open(&kit);
	logkit_expect(&kit, 0, 13, 100);
	logkit_expect(&kit, 14, 36, 100);
	/* It is served as it is: the client's sum tells. */
	ck_assert_int_eq(logkit_find(&kit, 13, &place), PARTITION_FOUND);
	partition_slice(&place, 108, &slice);
	logkit_read_slice(&slice, bytes);
	slice_release(&slice);
	ck_assert_int_eq(record_check(RECORD_CRC32C, bytes, 108, &size), RECORD_WRONG_SUM);
	ck_assert_int_eq(logkit_file_bytes(path), 9 * 108);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 4);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut"), 0);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A13_a_flipped_length_byte_in_a_sealed_segment)
{
	char path[LOGKIT_PATH_BYTES];
	char *lines;

	four_segments(formats[_i]);
	logkit_segment_path(&kit, 9, path);
	logkit_flip(path, 4 * (100 + header()));
	logkit_open(&kit);
	logkit_catch_lines();
	logkit_expect_broken(&kit, 13, 18);
	logkit_expect(&kit, 0, 13, 100);
	logkit_expect(&kit, 18, 36, 100);
	logkit_expect_broken(&kit, 13, 18);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, "00000000000000000009.log: damaged at position 4"));
	ck_assert_ptr_nonnull(strstr(lines, "offsets 13 to 17"));
	ck_assert_ptr_eq(strchr(lines, '\n'), lines + strlen(lines) - 1);
	free(lines);
	ck_assert_int_eq(logkit_file_bytes(path), 9 * (100 + header()));
	logkit_append(&kit, 1, 100);
	logkit_reopen(&kit);
	logkit_expect(&kit, 18, 37, 100);
	logkit_end(&kit);
}
END_TEST

/* A segment that had to be walked over is readable up to the damage; one with an index on both sides of it. */
START_TEST(a_place_ahead_of_damage)
{
	char path[LOGKIT_PATH_BYTES];
	struct partition_place place;

	four_segments(RECORD_CRC32C);
	logkit_segment_path(&kit, 9, path);
	logkit_flip(path, 4 * 108);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_find(&kit, 11, &place), PARTITION_FOUND);
	ck_assert_int_eq(place.bytes_in_segment, 7 * 108);
	logkit_close(&kit);
	logkit_file_path(&kit, "00000000000000000009.index", path);
	ck_assert_int_eq(unlink(path), 0);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_find(&kit, 11, &place), PARTITION_FOUND);
	ck_assert_int_eq(place.bytes_in_segment, 2 * 108);
	/* And is not stored as if it were whole. */
	ck_assert_int_eq(logkit_file_bytes(path), -1);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_missing_segment_is_a_hole_and_told_at_start)
{
	char path[LOGKIT_PATH_BYTES];
	char *lines;

	four_segments(formats[_i]);
	logkit_segment_path(&kit, 9, path);
	ck_assert_int_eq(unlink(path), 0);
	logkit_segment_path(&kit, 0, path);
	logkit_truncate(path, 20);
	logkit_remove_list(&kit);
	logkit_catch_lines();
	logkit_open(&kit);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, "t-0/00000000000000000000.log: its 20 bytes cannot hold the records up to "
	    "offset 18"));
	free(lines);
	ck_assert_int_eq(partition_log_start(kit.p), 0);
	logkit_expect_broken(&kit, 0, 18);
	logkit_expect(&kit, 18, 36, 100);
	logkit_append(&kit, 1, 100);
	logkit_expect(&kit, 36, 37, 100);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_missing_segment_behind_a_good_one)
{
	char path[LOGKIT_PATH_BYTES];

	four_segments(formats[_i]);
	logkit_segment_path(&kit, 9, path);
	ck_assert_int_eq(unlink(path), 0);
	logkit_open(&kit);
	logkit_expect(&kit, 0, 9, 100);
	logkit_expect_broken(&kit, 9, 18);
	logkit_expect(&kit, 18, 36, 100);
	logkit_end(&kit);
}
END_TEST

START_TEST(overlapping_segments_are_left_alone_and_both_readable)
{
	char path[LOGKIT_PATH_BYTES];
	size_t bytes;
	uint8_t *batch;
	char *lines;

	four_segments(formats[_i]);
	/* Nine records that belong to 12..20 under a name between 9 and 18. */
	batch = logkit_batch(formats[_i], 12, 9, 100, &bytes);
	logkit_segment_path(&kit, 12, path);
	logkit_write_file(path, batch, bytes);
	free(batch);
	logkit_remove_list(&kit);
	logkit_open(&kit);
	logkit_catch_lines();
	logkit_expect(&kit, 0, 36, 100);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, "00000000000000000009.log:"));
	ck_assert_ptr_nonnull(strstr(lines, "00000000000000000012.log:"));
	free(lines);
	ck_assert_int_eq(logkit_file_bytes(path), (int64_t)bytes);
	ck_assert_int_eq(partition_log_end(kit.p), 36);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_segment_that_cannot_be_opened_is_tried_again)
{
	int errors[] = { EMFILE, EACCES };
	struct partition_place place;
	struct partition_load *load;
	int64_t rounds = 0;

	four_segments(RECORD_CRC32C);
	logkit_open(&kit);
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 1, .error = errors[_i] });
	ck_assert_int_eq(partition_find(kit.p, 10, &place), PARTITION_COLD);
	load = partition_load_begin(kit.p, 10);
	partition_load_run(load);
	ck_assert_int_eq(partition_load_finish(kit.p, load), -1);
	ck_assert_int_eq(errno, errors[_i]);
	ck_assert_int_eq(partition_find(kit.p, 10, &place), PARTITION_BROKEN);
	ck_assert_int_eq(errno, EBADMSG);
	logkit_expect(&kit, 0, 9, 100);
	while (partition_find(kit.p, 10, &place) == PARTITION_BROKEN)
		ck_assert_int_lt(rounds++, INT64_C(1) << 40);
	logkit_expect(&kit, 0, 36, 100);
	logkit_end(&kit);
}
END_TEST

/* A reader that walks a log of many segments leaves a bounded number of them open, and can begin again. */
START_TEST(many_segments_are_not_all_kept_open)
{
	enum { RECORDS = 200, SIZE = 500, OPEN_AT_MOST = 20 };
	int before;

	logkit_begin(&kit, RECORD_CRC32C, 1024);
	logkit_open(&kit);
	before = logkit_open_descriptors();
	logkit_append(&kit, RECORDS, SIZE);
	ck_assert_int_ge(partition_segments(kit.p), RECORDS / 2);
	ck_assert_int_le(logkit_open_descriptors() - before, OPEN_AT_MOST);
	for (int round = 0; round < 2; round++) {
		logkit_expect(&kit, 0, RECORDS, SIZE);
		ck_assert_int_le(logkit_open_descriptors() - before, OPEN_AT_MOST);
	}
	logkit_end(&kit);
}
END_TEST

START_TEST(two_loads_of_one_segment)
{
	struct partition_load *first, *second;
	int fds;

	four_segments(RECORD_CRC32C);
	logkit_open(&kit);
	fds = logkit_open_descriptors();
	first = partition_load_begin(kit.p, 10);
	second = partition_load_begin(kit.p, 17);
	partition_load_run(first);
	partition_load_run(second);
	ck_assert_int_eq(partition_load_finish(kit.p, second), 0);
	ck_assert_int_eq(partition_load_finish(kit.p, first), 0);
	ck_assert_int_eq(logkit_open_descriptors(), fds + 1);
	ck_assert_ptr_null(partition_load_begin(kit.p, 37));
	ck_assert_int_eq(errno, EIO);
	ck_assert_ptr_null(partition_load_begin(kit.p, -1));
	ck_assert_int_eq(errno, EIO);
	logkit_expect(&kit, 0, 36, 100);
	logkit_end(&kit);
}
END_TEST

/* Begins and runs a load of that offset; what happens to the log meanwhile is the caller's. */
static struct partition_load *
begin_load(int64_t offset)
{
	struct partition_place place;
	struct partition_load *load;

	ck_assert_int_eq(partition_find(kit.p, offset, &place), PARTITION_COLD);
	load = partition_load_begin(kit.p, offset);
	ck_assert_ptr_nonnull(load);
	return load;
}

static void
expect_place(int64_t offset, int64_t position)
{
	struct partition_place place;

	ck_assert_int_eq(partition_find(kit.p, offset, &place), PARTITION_FOUND);
	ck_assert_int_eq(place.position, position);
}

/* One read brings it into memory, or is remembered where memory keeps nothing: whoever asks twice has got it. */
START_TEST(a_place_that_is_not_in_memory_is_loaded)
{
	enum logkit_memory memories[] = { LOGKIT_COLD, LOGKIT_FROZEN };
	int64_t record = (int64_t)record_header_bytes(RECORD_CRC32C) + 100;

	logkit_begin(&kit, RECORD_CRC32C, 900 * record);
	logkit_open(&kit);
	logkit_append(&kit, 1000, 100);
	for (int64_t offset = 1; offset < 1000; offset += 122) {
		struct partition_load *load;

		logkit_set_memory(memories[_i]);
		load = begin_load(offset);
		partition_load_run(load);
		ck_assert_int_eq(partition_load_finish(kit.p, load), 0);
		expect_place(offset, offset % 900 * record);
		if (memories[_i] == LOGKIT_FROZEN) {
			load = begin_load(offset + 1);
			partition_load_run(load);
			ck_assert_int_eq(partition_load_finish(kit.p, load), 0);
			expect_place(offset + 1, (offset + 1) % 900 * record);
			partition_load_finish(kit.p, begin_load(offset));
		}
	}
	logkit_end(&kit);
}
END_TEST

/* The job stands on nothing that the owner moves. */
START_TEST(the_log_grows_while_a_place_is_sought)
{
	int64_t record = (int64_t)record_header_bytes(RECORD_CRC32C) + 100;
	struct partition_load *load;

	logkit_begin(&kit, RECORD_CRC32C, 5000 * record);
	logkit_open(&kit);
	logkit_append(&kit, 100, 100);
	logkit_set_memory(LOGKIT_FROZEN);
	load = begin_load(99);
	logkit_append(&kit, 7000, 100);
	partition_load_run(load);
	ck_assert_int_eq(partition_load_finish(kit.p, load), 0);
	expect_place(99, 99 * record);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_place_that_cannot_be_read_is_an_error_for_a_while)
{
	struct partition_place place;
	struct partition_load *load;
	int64_t rounds = 0;

	four_segments(RECORD_CRC32C);
	logkit_open(&kit);
	logkit_set_memory(LOGKIT_FROZEN);
	load = begin_load(30);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = EIO });
	partition_load_run(load);
	ck_assert(logkit_fault_hit());
	ck_assert_int_eq(partition_load_finish(kit.p, load), 0);
	ck_assert_int_eq(partition_find(kit.p, 30, &place), PARTITION_BROKEN);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(partition_find(kit.p, 31, &place), PARTITION_COLD);
	while (partition_find(kit.p, 30, &place) == PARTITION_BROKEN)
		ck_assert_int_lt(rounds++, INT64_C(1) << 40);
	load = begin_load(30);
	partition_load_run(load);
	ck_assert_int_eq(partition_load_finish(kit.p, load), 0);
	ck_assert_int_eq(partition_find(kit.p, 30, &place), PARTITION_FOUND);
	logkit_end(&kit);
}
END_TEST

START_TEST(slices_outlive_the_log)
{
	struct partition_place place;
	uint8_t bytes[216];
	struct slice slice, active;
	int fds;

	four_segments(RECORD_CRC32C);
	fds = logkit_open_descriptors();
	logkit_open(&kit);
	ck_assert_int_eq(logkit_find(&kit, 10, &place), PARTITION_FOUND);
	partition_slice(&place, 216, &slice);
	ck_assert_int_eq(logkit_find(&kit, 35, &place), PARTITION_FOUND);
	partition_slice(&place, 108, &active);
	logkit_close(&kit);
	logkit_read_slice(&slice, bytes);
	logkit_read_slice(&active, bytes);
	ck_assert_int_eq(logkit_open_descriptors(), fds + 2);
	slice_release(&slice);
	slice_release(&active);
	ck_assert_int_eq(logkit_open_descriptors(), fds);
	logkit_end(&kit);
}
END_TEST

static mode_t
mode_of(const char *path)
{
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	return st.st_mode & 07777;
}

START_TEST(modes_do_not_depend_on_the_umask)
{
	mode_t masks[] = { 0, 077, 0777 };
	char path[LOGKIT_PATH_BYTES];
	mode_t before = umask(022);

	logkit_begin(&kit, RECORD_CRC32C, 1000);
	umask(masks[_i]);
	logkit_open(&kit);
	logkit_append(&kit, 20, 100);
	umask(before);
	ck_assert_int_eq(mode_of(kit.path), 0750);
	logkit_segment_path(&kit, 0, path);
	ck_assert_int_eq(mode_of(path), 0640);
	logkit_segment_path(&kit, 9, path);
	ck_assert_int_eq(mode_of(path), 0640);
	logkit_end(&kit);
}
END_TEST

START_TEST(descriptors_are_close_on_exec)
{
	int before[64], count = 0;
	struct partition_place place;

	four_segments(RECORD_CRC32C);
	for (int fd = 0; fd < 64; fd++)
		before[fd] = fcntl(fd, F_GETFD);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_find(&kit, 0, &place), PARTITION_FOUND);
	logkit_append(&kit, 10, 100);
	for (int fd = 0; fd < 64; fd++)
		if (before[fd] == -1 && fcntl(fd, F_GETFD) != -1) {
			ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
			count++;
		}
	ck_assert_int_ge(count, 3);
	logkit_end(&kit);
}
END_TEST

/* With the kernel's own calls: what a fault table stands in for elsewhere. */
START_TEST(the_real_calls_work)
{
	struct syscalls real = syscalls;

	logkit_begin(&kit, formats[_i], 1000);
	syscalls = real;
	logkit_open(&kit);
	logkit_append(&kit, 20, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	ck_assert_int_eq(logkit_try_append(&kit, 50, 100), 0);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 70, 100);
	logkit_end(&kit);
}
END_TEST

/* ---- at random ---- */

static size_t sizes[100000];

static size_t
random_size(int64_t offset)
{
	return sizes[offset];
}

static void
random_append(struct logkit *log)
{
	int count = rand() % 4 == 0 ? 1 + rand() % 40 : 1 + rand() % 3;
	size_t size = (size_t)(1 + rand() % (rand() % 10 == 0 ? 900 : 60));

	for (int i = 0; i < count; i++)
		sizes[partition_log_end(log->p) + i] = size;
	ck_assert_int_eq(logkit_try_append(log, count, size), 0);
}

static void
random_step(struct logkit *log)
{
	int64_t end = partition_log_end(log->p);

	switch (rand() % 16) {
	case 0:
		logkit_reopen(log);
		ck_assert_int_eq(partition_log_end(log->p), end);
		break;
	case 1:
		ck_assert_int_eq(logkit_roll(log, NULL, 0, 0), 0);
		break;
	case 2:
		ck_assert_int_eq(logkit_barrier(log), 0);
		ck_assert_int_eq(partition_durable_end(log->p), end);
		break;
	case 3: case 4: case 5: case 6: case 7: case 8:
		random_append(log);
		break;
	default:
		if (end > 0) {
			int64_t offset = rand() % end;

			logkit_expect(log, offset, offset + 1, 0);
		}
		break;
	}
}

START_TEST(random_steps_agree_with_a_model)
{
	unsigned seed = (unsigned)time(NULL) * 2 + (unsigned)getpid();

	printf("random_steps_agree_with_a_model: seed %u\n", seed);
	fflush(stdout);
	srand(seed);
	logkit_begin(&kit, formats[_i], 1024);
	kit.settings.index_interval_bytes = 1 + rand() % 300;
	kit.size_of = random_size;
	logkit_open(&kit);
	for (int i = 0; i < 1500; i += unit_sample())
		random_step(&kit);
	logkit_expect(&kit, 0, partition_log_end(kit.p), 0);
	logkit_end(&kit);
}
END_TEST

/*
 * The active file is removed under the log (`_i` & 1: another one takes its place): what is appended, or sealed (2), would not be
 * found again, so nothing is taken, and what had been forced is missed.
 */
START_TEST(a_segment_that_was_removed_takes_nothing)
{
	char path[LOGKIT_PATH_BYTES], copy[LOGKIT_PATH_BYTES], *lines;
	uint8_t *content;
	size_t bytes;

	logkit_begin(&kit, RECORD_CRC32C, 4096);
	logkit_open(&kit);
	logkit_append(&kit, 5, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_segment_path(&kit, 0, path);
	logkit_file_path(&kit, "copy", copy);
	content = logkit_read_file(path, &bytes);
	logkit_write_file(copy, content, bytes);
	free(content);
	ck_assert_int_eq((_i & 1) ? rename(copy, path) : unlink(path), 0);
	logkit_catch_lines();
	ck_assert_int_eq((_i & 2) ? logkit_roll(&kit, NULL, 0, 0) : logkit_try_append(&kit, 1, 100), -1);
	lines = logkit_caught_lines();
	ck_assert_ptr_nonnull(strstr(lines, "was removed or replaced from outside; its records reach to position 540"));
	free(lines);
	ck_assert(partition_failed(kit.p));
	ck_assert_int_eq(partition_durable_end(kit.p), 5);
	logkit_expect(&kit, 0, 5, 100);
	logkit_close(&kit);
	kit.known.published_end = 5;
	if (_i & 1)
		logkit_open(&kit);
	else
		ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "records that were acknowledged are gone"));
	logkit_end(&kit);
}
END_TEST

/* A store is never short, and no signal interrupts it. */
static void
add_tests(TCase *tests, bool mapped)
{
	tcase_add_loop_test(tests, A01_hundred_records_have_offsets_0_to_99, 0, FORMATS);
	tcase_add_loop_test(tests, A02_records_of_different_lengths_are_read_by_offset, 0, FORMATS);
	tcase_add_loop_test(tests, A03_position_of_record, 0, FORMATS);
	tcase_add_loop_test(tests, A04_behind_the_end_there_is_no_data, 0, FORMATS);
	tcase_add_loop_test(tests, A05_segment_of_1024_bytes, 0, FORMATS);
	tcase_add_loop_test(tests, a_batch_is_refused_that_is_not_what_is_said, 0, FORMATS);
	tcase_add_loop_test(tests, A10_three_segments_are_reopened, 0, FORMATS);
	tcase_add_loop_test(tests, A20_reopened_with_smaller_segments, 0, FORMATS);
	tcase_add_loop_test(tests, bug_A20_first_append_after_a_restart_goes_to_the_end, 0, FORMATS);
	tcase_add_loop_test(tests, bug_E7_headers_across_every_edge, 0, FORMATS);
	tcase_add_test(tests, bytes_behind_counts_to_the_end_of_the_log);
	tcase_add_test(tests, a_barrier_makes_what_was_written_before_it_durable);
	tcase_add_loop_test(tests, a_failed_barrier_never_becomes_a_success, 0, 3);
	tcase_add_loop_test(tests, bug_A9_a_short_write_leaves_nothing_behind, 0, mapped ? 2 : 4);
	tcase_add_loop_test(tests, bug_A9_a_failed_write_leaves_no_mark_in_the_index, 0, FORMATS);
	tcase_add_loop_test(tests, bug_A9_leavings_that_cannot_be_cut_stop_appends_until_they_can, 0, FORMATS);
	tcase_add_loop_test(tests, bug_A9_leavings_are_cut_durably_before_the_next_append, 0, FORMATS);
	tcase_add_loop_test(tests, bug_A9_leavings_are_cut_by_a_roll_too, 0, FORMATS);
	tcase_add_loop_test(tests, a_segment_that_was_removed_takes_nothing, 0, 4);
	tcase_add_test(tests, bug_A13_a_flipped_payload_byte_in_a_sealed_segment);
	tcase_add_loop_test(tests, bug_A13_a_flipped_length_byte_in_a_sealed_segment, 0, FORMATS);
	tcase_add_test(tests, a_place_ahead_of_damage);
	tcase_add_loop_test(tests, a_missing_segment_is_a_hole_and_told_at_start, 0, FORMATS);
	tcase_add_loop_test(tests, a_missing_segment_behind_a_good_one, 0, FORMATS);
	tcase_add_loop_test(tests, overlapping_segments_are_left_alone_and_both_readable, 0, FORMATS);
	tcase_add_loop_test(tests, a_segment_that_cannot_be_opened_is_tried_again, 0, 2);
	tcase_add_test(tests, many_segments_are_not_all_kept_open);
	tcase_add_test(tests, two_loads_of_one_segment);
	tcase_add_loop_test(tests, a_place_that_is_not_in_memory_is_loaded, 0, 2);
	tcase_add_test(tests, the_log_grows_while_a_place_is_sought);
	tcase_add_test(tests, a_place_that_cannot_be_read_is_an_error_for_a_while);
	tcase_add_test(tests, slices_outlive_the_log);
	tcase_add_loop_test(tests, modes_do_not_depend_on_the_umask, 0, 3);
	tcase_add_test(tests, descriptors_are_close_on_exec);
	tcase_add_loop_test(tests, the_real_calls_work, 0, FORMATS);
	tcase_add_loop_test(tests, random_steps_agree_with_a_model, 0, FORMATS);
}

int
main(void)
{
	Suite *suite = suite_create("partition");
	TCase *file = tcase_create("file"), *mapped = tcase_create("mapped");

	tcase_set_timeout(file, 60);
	tcase_set_timeout(mapped, 60);
	tcase_add_checked_fixture(file, logkit_file_mode, NULL);
	tcase_add_checked_fixture(mapped, logkit_mapped_mode, NULL);
	suite_add_tcase(suite, file);
	suite_add_tcase(suite, mapped);
	add_tests(file, false);
	add_tests(mapped, true);
	return unit_run(suite);
}
