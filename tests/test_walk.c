/*
 * Walking over damaged segment files: what is found again behind damage of every kind, that nothing that is whole is
 * missed, places that the disk refuses, and that neither garbage nor holes take long.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/segment.h"
#include "worker/syscalls.h"
#include "worker/walk.h"

enum { STEPS_MAX = 4096, HEADER = 8 };

static struct logkit kit;
static int fd;
static struct walk_step steps[STEPS_MAX];
static int step_count;

static void
set_up(void)
{
	logkit_begin(&kit, RECORD_CRC32C, 1000);
	fd = segment_create_file(kit.data_fd, "file");
	ck_assert_int_ge(fd, 0);
}

static void
tear_down(void)
{
	close(fd);
	logkit_end(&kit);
}

static void
put(const uint8_t *bytes, size_t size)
{
	ck_assert_int_eq(segment_truncate(fd, 0), 0);
	ck_assert_int_eq(segment_write(fd, bytes, size, 0), 0);
}

/* Walks over the file. The steps must cover it without a gap, and every record must be one. */
static void
walk_over(enum record_format format)
{
	struct walk walk;
	int64_t position = 0;

	ck_assert_int_eq(walk_open(&walk, fd, format, 0, segment_file_bytes(fd)), 0);
	for (step_count = 0; step_count < STEPS_MAX; step_count++) {
		struct walk_step *step = &steps[step_count];
		size_t bytes;

		ck_assert_int_eq(walk_next(&walk, step), 0);
		ck_assert_int_eq(step->position, position);
		if (step->kind == WALK_END)
			break;
		ck_assert_int_gt(step->bytes, 0);
		if (step->kind == WALK_RECORD) {
			ck_assert_int_eq(record_check(format, step->record, (size_t)step->bytes, &bytes), RECORD_VALID);
			ck_assert_uint_eq(bytes, (size_t)step->bytes);
		}
		position += step->bytes;
	}
	ck_assert_int_lt(step_count, STEPS_MAX);
	ck_assert_int_eq(position, segment_file_bytes(fd));
	walk_close(&walk);
}

static int
count_records(void)
{
	int count = 0;

	for (int i = 0; i < step_count; i++)
		count += steps[i].kind == WALK_RECORD;
	return count;
}

/* Exactly one bad stretch, from `position` on; returns it. */
static const struct walk_step *
expect_one_bad(int64_t position, int64_t bytes)
{
	const struct walk_step *bad = NULL;

	for (int i = 0; i < step_count; i++) {
		if (steps[i].kind != WALK_BAD)
			continue;
		ck_assert_ptr_null(bad);
		bad = &steps[i];
	}
	ck_assert_ptr_nonnull(bad);
	ck_assert_int_eq(bad->position, position);
	ck_assert_int_eq(bad->bytes, bytes);
	return bad;
}

START_TEST(a_whole_file_is_its_records)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(_i == 0 ? RECORD_PLAIN : RECORD_CRC32C, 0, 1000, 3000, &bytes);

	put(batch, bytes);
	walk_over(_i == 0 ? RECORD_PLAIN : RECORD_CRC32C);
	ck_assert_int_eq(step_count, 1000);
	ck_assert_int_eq(count_records(), 1000);
	put(batch, 0);
	walk_over(RECORD_CRC32C);
	ck_assert_int_eq(step_count, 0);
	free(batch);
}
END_TEST

/* ---- one damage ---- */

enum { RECORDS = 5, SIZE = 56, WHOLE = SIZE + HEADER };	/* so that a flipped length can lead to another record */

static const struct {
	const char *what;
	int at;			/* the byte of the damaged record */
	uint8_t flip;
	enum record_verdict verdict;
	bool length_only;
} flips[] = {
	{ "the payload", HEADER + 20, 0x01, RECORD_WRONG_SUM, false },
	{ "the sum", 5, 0x80, RECORD_WRONG_SUM, false },
	{ "the length is negative", 0, 0x80, RECORD_IMPOSSIBLE, true },
	{ "the length is too large", 1, 0x80, RECORD_IMPOSSIBLE, true },
	{ "the length leads out of the file", 2, 0x10, RECORD_INCOMPLETE, true },
	{ "the length is two records'", 3, 0x40, RECORD_WRONG_SUM, true },
	{ "the length is too small", 3, 0x10, RECORD_WRONG_SUM, true },
	{ "the length is zero", 3, SIZE, RECORD_END, true },
};
enum { FLIPS = sizeof(flips) / sizeof(flips[0]) };

/* `_i`: which flip, in which record. */
START_TEST(A19_everything_around_a_damaged_record_is_found)
{
	int record = _i % RECORDS;
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, RECORDS, SIZE, &bytes);
	const struct walk_step *bad;
	enum record_verdict verdict = flips[_i / RECORDS].verdict;

	ck_assert_uint_eq(bytes, RECORDS * WHOLE);
	batch[record * WHOLE + flips[_i / RECORDS].at] ^= flips[_i / RECORDS].flip;
	put(batch, bytes);
	walk_over(RECORD_CRC32C);
	ck_assert_int_eq(count_records(), RECORDS - 1);
	bad = expect_one_bad(record * WHOLE, WHOLE);
	ck_assert_int_eq(bad->last, record == RECORDS - 1);
	/* Two records' length leads out of the file from the last one. */
	if (flips[_i / RECORDS].flip == 0x40 && bad->last)
		verdict = RECORD_INCOMPLETE;
	ck_assert_int_eq(bad->verdict, verdict);
	ck_assert(bad->single);
	ck_assert_int_eq(bad->length_only, flips[_i / RECORDS].length_only);
	if (bad->last)
		ck_assert_int_eq(bad->content_end, bytes);
	free(batch);
}
END_TEST

/* Damaged payloads one behind the other, with their lengths whole: each is a stretch of its own. */
START_TEST(damaged_neighbours_are_told_apart)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, RECORDS, SIZE, &bytes);

	for (int i = 1; i < 1 + _i; i++)
		batch[i * WHOLE + HEADER + 3] ^= 1;
	put(batch, bytes);
	walk_over(RECORD_CRC32C);
	ck_assert_int_eq(step_count, RECORDS);
	ck_assert_int_eq(count_records(), RECORDS - _i);
	for (int i = 1; i < 1 + _i; i++)
		ck_assert(steps[i].kind == WALK_BAD && steps[i].single && steps[i].bytes == WHOLE);
	free(batch);
}
END_TEST

/* A payload may be anything, a piece of a log too: where its length is whole its inside is not looked at. */
START_TEST(records_in_a_damaged_payload_are_not_taken_for_some_of_the_log)
{
	size_t inner_bytes, bytes;
	uint8_t *inner = logkit_batch(RECORD_CRC32C, 0, 4, 100, &inner_bytes);
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, 3, inner_bytes + 10, &bytes);
	size_t record = bytes / 3;

	memcpy(batch + _i * record + HEADER + 5, inner, inner_bytes);	/* and its sum is wrong now */
	put(batch, bytes);
	walk_over(RECORD_CRC32C);
	ck_assert_int_eq(count_records(), 2);
	ck_assert(expect_one_bad(_i * (int64_t)record, (int64_t)record)->single);
	free(batch);
	free(inner);
}
END_TEST

START_TEST(without_sums_nothing_is_looked_for)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_PLAIN, 0, RECORDS, SIZE, &bytes);
	const struct walk_step *bad;
	int record = SIZE + 4;

	batch[2 * record] = 0xFF;
	put(batch, bytes);
	walk_over(RECORD_PLAIN);
	ck_assert_int_eq(count_records(), 2);
	bad = expect_one_bad(2 * record, 3 * record);
	ck_assert(bad->last && !bad->single);
	ck_assert_int_eq(bad->verdict, RECORD_IMPOSSIBLE);
	free(batch);
}
END_TEST

/* ---- ends ---- */

START_TEST(zeros_at_the_end_are_no_content)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(_i % 2 == 0 ? RECORD_PLAIN : RECORD_CRC32C, 0, 3, SIZE, &bytes);
	int64_t size = _i < 2 ? (int64_t)bytes + 5 : (int64_t)1 << 40;
	const struct walk_step *bad;

	put(batch, bytes);
	ck_assert_int_eq(segment_truncate(fd, size), 0);
	walk_over(_i % 2 == 0 ? RECORD_PLAIN : RECORD_CRC32C);
	ck_assert_int_eq(count_records(), 3);
	bad = expect_one_bad((int64_t)bytes, size - (int64_t)bytes);
	ck_assert(bad->last);
	ck_assert_int_eq(bad->verdict, RECORD_END);
	ck_assert_int_eq(bad->content_end, bad->position);
	free(batch);
}
END_TEST

/* The first record of an append to a mapping gets its length last; a crash leaves this. */
START_TEST(records_behind_a_length_that_was_never_stored_are_found)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, RECORDS, SIZE, &bytes);
	const struct walk_step *bad = &steps[2];

	memset(batch + 2 * WHOLE, 0, 4);
	put(batch, bytes);
	ck_assert_int_eq(segment_truncate(fd, 1 << 24), 0);
	walk_over(RECORD_CRC32C);
	ck_assert_int_eq(count_records(), RECORDS - 1);
	ck_assert(bad->kind == WALK_BAD && bad->length_only && !bad->last && bad->bytes == WHOLE);
	ck_assert_int_eq(bad->verdict, RECORD_END);
	free(batch);
}
END_TEST

START_TEST(an_incomplete_record_is_all_content)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, 3, SIZE, &bytes);
	const struct walk_step *bad;

	for (int cut = 1; cut < WHOLE - 4; cut++) {
		memset(batch + 2 * WHOLE + HEADER, 0, SIZE);
		put(batch, bytes - (size_t)cut);
		walk_over(RECORD_CRC32C);
		ck_assert_int_eq(count_records(), 2);
		bad = expect_one_bad(2 * WHOLE, WHOLE - cut);
		ck_assert(bad->last);
		ck_assert_int_eq(bad->verdict, RECORD_INCOMPLETE);
		ck_assert_int_eq(bad->content_end, (int64_t)bytes - cut);
	}
	free(batch);
}
END_TEST

START_TEST(a_record_behind_a_hole_is_found_soon)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, 1, SIZE, &bytes);
	int64_t block = 700 * ((int64_t)1 << 30), far = block + _i;

	put(batch, bytes);
	ck_assert_int_eq(segment_write(fd, batch, bytes, far), 0);
	/* The zeros that a record begins with can be in the hole, in a copy made by a tool that knows of holes. */
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block - 4096, 4096), 0);
	walk_over(RECORD_CRC32C);
	ck_assert_int_eq(count_records(), 2);
	expect_one_bad((int64_t)bytes, far - (int64_t)bytes);
	free(batch);
}
END_TEST

START_TEST(a_file_that_shrinks_ends_where_it_ends)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, 3, SIZE, &bytes);
	struct walk_step step;
	struct walk walk;

	put(batch, bytes);
	ck_assert_int_eq(walk_open(&walk, fd, RECORD_CRC32C, 0, (int64_t)bytes + 1000000), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(walk_next(&walk, &step), 0);
		ck_assert_int_eq(step.kind, WALK_RECORD);
	}
	ck_assert_int_eq(walk_next(&walk, &step), 0);
	ck_assert_int_eq(step.kind, WALK_END);
	ck_assert_int_eq(step.position, (int64_t)bytes);
	walk_close(&walk);
	free(batch);
}
END_TEST

/* ---- much damage ---- */

/*
 * Is the record, which was whole at this place once, still so? Then it must have been found. Unless it might as well stand
 * in the payload of the one before: a damaged length that leads over it, to the next one, cannot be told from a good one.
 */
static void
expect_found(const uint8_t *now, const uint8_t *before, int64_t position, size_t bytes)
{
	if (memcmp(now + position, before + position, bytes) != 0)
		return;
	for (int i = 0; i < step_count; i++) {
		const struct walk_step *step = &steps[i];

		if (step->kind == WALK_RECORD && step->position == position)
			return;
		if (step->verdict == RECORD_WRONG_SUM && step->single && position > step->position
		    && position + (int64_t)bytes <= step->position + step->bytes)
			return;
	}
	ck_abort_msg("the record at %lld was not found", (long long)position);
}

static void
damage(uint8_t *bytes, size_t size, uint32_t *random)
{
	size_t at = unit_random(random) % size;
	size_t length = 1 + unit_random(random) % 300;

	if (length > size - at)
		length = size - at;
	switch (unit_random(random) % 3) {
	case 0:
		bytes[at] ^= (uint8_t)(1 << unit_random(random) % 8);
		break;
	case 1:
		memset(bytes + at, 0, length);
		break;
	default:
		for (size_t i = 0; i < length; i++)
			bytes[at + i] = (uint8_t)unit_random(random);
	}
}

START_TEST(A19_no_whole_record_is_missed_whatever_is_damaged)
{
	enum { ROUNDS = 300, COUNT = 200 };
	static uint8_t before[COUNT * 600], now[COUNT * 600];
	int64_t positions[COUNT + 1] = { 0 };
	uint32_t random = unit_seed();

	for (int round = 0; round < ROUNDS / unit_sample(); round++) {
		uint8_t payload[600];

		for (int i = 0; i < COUNT; i++) {
			size_t size = 1 + unit_random(&random) % (i % 10 == 0 ? 590 : 60);

			for (size_t k = 0; k < size; k++)
				payload[k] = (uint8_t)(unit_random(&random) % (round % 2 == 0 ? 256 : 3));
			positions[i + 1] = record_put(before + positions[i], RECORD_CRC32C, payload, size) - before;
		}
		memcpy(now, before, (size_t)positions[COUNT]);
		for (uint32_t i = 1 + unit_random(&random) % 8; i > 0; i--)
			damage(now, (size_t)positions[COUNT], &random);
		put(now, (size_t)positions[COUNT]);
		walk_over(RECORD_CRC32C);
		for (int i = 0; i < COUNT; i++)
			expect_found(now, before, positions[i], (size_t)(positions[i + 1] - positions[i]));
	}
}
END_TEST

/* ---- a disk that refuses ---- */

static int64_t refused_from, refused_to;

static ssize_t
refusing_pread(int file, void *to, size_t size, off_t position)
{
	if (position < refused_to && position + (off_t)size > refused_from) {
		if (position >= refused_from) {
			errno = EIO;
			return -1;
		}
		size = (size_t)(refused_from - position);
	}
	return pread(file, to, size, position);
}

/* `_i`: how many blocks are refused, and which is the first. */
START_TEST(what_the_disk_refuses_is_damage_and_passed)
{
	enum { COUNT = 600, PAYLOAD = 5000 };
	size_t bytes, record = PAYLOAD + HEADER;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, COUNT, PAYLOAD, &bytes);
	int blocks = _i % 4 == 0 ? 1 : _i % 4 * 90;
	const struct walk_step *bad;
	int64_t first, last;

	put(batch, bytes);
	refused_from = _i / 4 * 100 * 4096;
	refused_to = refused_from + blocks * 4096;
	syscalls.pread = refusing_pread;
	walk_over(RECORD_CRC32C);
	for (bad = steps; bad->kind == WALK_RECORD; bad++)
		;
	ck_assert_int_eq(bad->kind, WALK_BAD);
	ck_assert_int_eq(bad->error, EIO);
	first = refused_from / (int64_t)record;
	last = (refused_to - 1) / (int64_t)record;
	ck_assert_int_eq(bad->position, first * (int64_t)record);
	expect_one_bad(bad->position, bad->bytes);
	/* All ahead of it; and behind it no more is missed than was refused. */
	ck_assert_int_ge(bad->bytes, (last + 1 - first) * (int64_t)record);
	ck_assert_int_le(bad->bytes, 2 * (last + 1 - first) * (int64_t)record + 8192);
	if (blocks == 1)
		ck_assert_int_eq(bad->bytes, (last + 1 - first) * (int64_t)record);
	free(batch);
}
END_TEST

START_TEST(a_file_that_cannot_be_read_at_all_is_one_damage)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(_i == 0 ? RECORD_PLAIN : RECORD_CRC32C, 0, 10, 100000, &bytes);
	const struct walk_step *bad;

	put(batch, bytes);
	refused_from = 0;
	refused_to = INT64_MAX;
	syscalls.pread = refusing_pread;
	walk_over(_i == 0 ? RECORD_PLAIN : RECORD_CRC32C);
	bad = expect_one_bad(0, (int64_t)bytes);
	ck_assert(bad->last);
	ck_assert_int_eq(bad->error, EIO);
	free(batch);
}
END_TEST

START_TEST(memory_that_is_out_is_told)
{
	struct walk walk;
	struct walk_step step;
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, 3, SIZE, &bytes);

	put(batch, bytes);
	ck_assert_int_eq(walk_open(&walk, fd, RECORD_CRC32C, 0, (int64_t)bytes), 0);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = ENOMEM, .sticky = true });
	ck_assert_int_eq(walk_next(&walk, &step), -1);
	ck_assert_int_eq(errno, ENOMEM);
	logkit_clear_fault();
	walk_close(&walk);
	free(batch);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("walk");
	TCase *tests = tcase_create("walk");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(tests, set_up, tear_down);
	suite_add_tcase(suite, tests);
	tcase_add_loop_test(tests, a_whole_file_is_its_records, 0, 2);
	tcase_add_loop_test(tests, A19_everything_around_a_damaged_record_is_found, 0, FLIPS * RECORDS);
	tcase_add_loop_test(tests, damaged_neighbours_are_told_apart, 1, RECORDS);
	tcase_add_loop_test(tests, records_in_a_damaged_payload_are_not_taken_for_some_of_the_log, 0, 3);
	tcase_add_test(tests, without_sums_nothing_is_looked_for);
	tcase_add_loop_test(tests, zeros_at_the_end_are_no_content, 0, 4);
	tcase_add_test(tests, records_behind_a_length_that_was_never_stored_are_found);
	tcase_add_test(tests, an_incomplete_record_is_all_content);
	tcase_add_loop_test(tests, a_record_behind_a_hole_is_found_soon, -3, 5);
	tcase_add_test(tests, a_file_that_shrinks_ends_where_it_ends);
	tcase_add_test(tests, A19_no_whole_record_is_missed_whatever_is_damaged);
	tcase_add_loop_test(tests, what_the_disk_refuses_is_damage_and_passed, 0, 16);
	tcase_add_loop_test(tests, a_file_that_cannot_be_read_at_all_is_one_damage, 0, 2);
	tcase_add_test(tests, memory_that_is_out_is_told);
	return unit_run(suite);
}
