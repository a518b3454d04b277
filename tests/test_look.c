/*
 * What the offline tools find in a log, in process: every single bit of a segment flipped, a table of damages, disks that
 * refuse, and files that change between two looks.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/examine.h"
#include "client/look.h"
#include "common/bytes.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/index_file.h"
#include "worker/sealed_list.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

enum { SIZE = 56, WHOLE = SIZE + 8 };

static struct logkit kit;

/* ---- one look ---- */

static int
file_of(const uint8_t *bytes, size_t size)
{
	int fd = memfd_create("segment", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(segment_write(fd, bytes, size, 0), 0);
	return fd;
}

static struct look
look(const uint8_t *bytes, size_t size, int64_t base, int64_t next)
{
	struct look found;
	int fd = file_of(bytes, size);

	ck_assert_int_eq(look_at(&found, fd, RECORD_CRC32C, base, next, NULL, NULL), 0);
	close(fd);
	return found;
}

enum { FLIP_BYTES = 64 * 1024, FLIP_PARTS = 16 };

/*
 * 64 KiB of records of many sizes. Each of their 524,288 bits is flipped, one at a time: the look finds exactly the damaged
 * record, all others, and knows their offsets. `_i`: which part of the file. Of a sample each byte has its share.
 */
START_TEST(A19_every_flipped_bit_of_a_sealed_segment_is_found)
{
	static uint8_t bytes[FLIP_BYTES];
	int64_t ends[1000], count = 0, position = 0, record = 0;
	uint8_t payload[2048];
	int fd, every = unit_sample();

	while (position < FLIP_BYTES) {
		size_t size = (size_t)(count * 131 % 700 + 1);

		/* The last one takes what is left. */
		if (position + 8 + (int64_t)size + 8 + 700 > FLIP_BYTES)
			size = (size_t)(FLIP_BYTES - position - 8);
		logkit_payload(count, payload, size);
		record_put(bytes + position, RECORD_CRC32C, payload, size);
		position += 8 + (int64_t)size;
		ends[count++] = position;
	}
	ck_assert_int_eq(position, FLIP_BYTES);
	fd = file_of(bytes, FLIP_BYTES);
	for (int64_t at = 0; at < FLIP_BYTES; at++) {
		record += at == ends[record];
		for (int bit = (int)(at % every); bit < 8 && at * FLIP_PARTS / FLIP_BYTES == _i; bit += every) {
			uint8_t flipped = bytes[at] ^ (uint8_t)(1 << bit);
			struct look found;

			ck_assert_int_eq(segment_write(fd, &flipped, 1, at), 0);
			ck_assert_int_eq(look_at(&found, fd, RECORD_CRC32C, 1000, 1000 + count, NULL, NULL), 0);
			ck_assert_int_eq(found.records, count - 1);
			ck_assert_int_eq(found.count, 1);
			ck_assert_int_eq(found.found[0].kind, FINDING_BAD_RECORD);
			ck_assert_int_eq(found.found[0].offset, 1000 + record);
			ck_assert_int_eq(found.found[0].position, record == 0 ? 0 : ends[record - 1]);
			ck_assert_int_eq(found.found[0].records, 1);
			ck_assert_int_eq(found.torn_bytes, 0);
			ck_assert_int_eq(segment_write(fd, bytes + at, 1, at), 0);
		}
	}
	close(fd);
}
END_TEST

/* Each one byte string per record, of five records. */
static uint8_t *
five(size_t *bytes)
{
	return logkit_batch(RECORD_CRC32C, 100, 5, SIZE, bytes);
}

static void
expect(const struct finding *finding, enum finding_kind kind, int64_t position, int64_t offset, int64_t records)
{
	ck_assert_int_eq(finding->kind, kind);
	ck_assert_int_eq(finding->position, position);
	ck_assert_int_eq(finding->offset, offset);
	ck_assert_int_eq(finding->records, records);
}

START_TEST(a_whole_segment_has_nothing_to_tell)
{
	size_t bytes;
	uint8_t *batch = five(&bytes);
	struct look sealed = look(batch, bytes, 100, 105), last = look(batch, bytes, 100, -1), none = look(batch, 0, 7, -1);

	ck_assert_int_eq(sealed.count + last.count + none.count, 0);
	ck_assert_int_eq(sealed.torn_bytes + last.torn_bytes + none.torn_bytes, 0);
	ck_assert_int_eq(sealed.records, 5);
	ck_assert_int_eq(sealed.bytes, bytes);
	ck_assert_int_eq(last.end, 105);
	ck_assert_int_eq(none.end, 7);
	free(batch);
}
END_TEST

START_TEST(counts_that_do_not_fit_the_next_segment_are_told)
{
	size_t bytes;
	uint8_t *batch = five(&bytes);
	struct look missing = look(batch, bytes, 100, 108), overlap = look(batch, bytes, 100, 103);

	ck_assert_int_eq(missing.count, 1);
	expect(&missing.found[0], FINDING_MISSING, -1, 105, 3);
	ck_assert_int_eq(missing.found[0].other, 108);
	ck_assert_int_eq(overlap.count, 1);
	expect(&overlap.found[0], FINDING_OVERLAP, -1, 103, 2);
	free(batch);
}
END_TEST

/* Two records are wiped out, lengths and all: how many they were, and what the ones behind are, the next segment tells. */
START_TEST(behind_a_stretch_of_unknown_length_offsets_come_from_the_end)
{
	size_t bytes;
	uint8_t *batch = five(&bytes);
	struct look found;

	memset(batch + WHOLE, 0xEE, 2 * WHOLE);
	batch[4 * WHOLE + 20] ^= 1;
	found = look(batch, bytes, 100, 105);
	ck_assert_int_eq(found.count, 2);
	expect(&found.found[0], FINDING_BAD_RECORD, WHOLE, 101, 2);
	expect(&found.found[1], FINDING_BAD_RECORD, 4 * WHOLE, 104, 1);
	ck_assert_int_eq(found.found[0].before, 1);
	ck_assert_int_eq(found.found[0].behind, 1);
	/* In the last segment nobody knows. */
	found = look(batch, bytes, 100, -1);
	expect(&found.found[0], FINDING_BAD_RECORD, WHOLE, 101, -1);
	ck_assert_int_eq(found.end, -1);
	/* Nor with a second such stretch. */
	memset(batch + 4 * WHOLE, 0, 16);
	found = look(batch, bytes, 100, 105);
	ck_assert_int_eq(found.count, 2);
	expect(&found.found[0], FINDING_BAD_RECORD, WHOLE, 101, -1);
	expect(&found.found[1], FINDING_BAD_RECORD, 4 * WHOLE, -1, -1);
	free(batch);
}
END_TEST

START_TEST(bytes_behind_the_last_record_of_a_sealed_segment_are_told)
{
	size_t bytes;
	uint8_t *batch = five(&bytes);
	uint8_t *more = calloc(1, bytes + 100);
	struct look found;

	memcpy(more, batch, bytes);
	found = look(more, bytes + 100, 100, 105);
	ck_assert_int_eq(found.count, 1);
	expect(&found.found[0], FINDING_SURPLUS, (int64_t)bytes, 105, -1);
	memset(more + bytes, 0x77, 100);
	found = look(more, bytes + 100, 100, 105);
	expect(&found.found[0], FINDING_SURPLUS, (int64_t)bytes, 105, -1);
	/* Without the fifth record it is one that is damaged. */
	found = look(more, bytes + 100, 100, 106);
	expect(&found.found[0], FINDING_BAD_RECORD, (int64_t)bytes, 105, 1);
	free(more);
	free(batch);
}
END_TEST

/* ---- the end of the last segment ---- */

static const struct {
	const char *what;
	int from, length;	/* wiped out, in the last record */
	int cut;		/* bytes cut off the file */
	int zeros;		/* and added to it */
	int64_t torn_bytes;
} ends[] = {
	{ "the file ends inside", 0, 0, 10, 0, WHOLE - 10 },
	{ "the payload was not written", 8, SIZE, 0, 0, WHOLE },
	{ "its second half was not", 40, 24, 0, 0, WHOLE },
	{ "the length was not", 0, 4, 0, 0, WHOLE },
	{ "the length was not, preallocated", 0, 4, 0, 1000, WHOLE },
	{ "nothing was", 0, WHOLE, 0, 0, 0 },
	{ "nothing was, preallocated", 0, WHOLE, 0, 1000000, 0 },
	{ "all was, preallocated", 0, 0, 0, 1000000, -1 },
};
enum { ENDS = sizeof(ends) / sizeof(ends[0]) };

START_TEST(A11_a_torn_end_is_no_damage)
{
	size_t bytes;
	uint8_t *batch = five(&bytes);
	uint8_t *file = calloc(1, bytes + 1000000);
	bool whole = ends[_i].torn_bytes == -1;
	struct look found;

	memcpy(file, batch, bytes);
	memset(file + 4 * WHOLE + ends[_i].from, 0, (size_t)ends[_i].length);
	found = look(file, bytes - (size_t)ends[_i].cut + (size_t)ends[_i].zeros, 100, -1);
	ck_assert_int_eq(found.count, 0);
	ck_assert_int_eq(found.records, whole ? 5 : 4);
	ck_assert_int_eq(found.end, whole ? 105 : 104);
	ck_assert_int_eq(found.prefix_bytes, (whole ? 5 : 4) * WHOLE);
	ck_assert_int_eq(found.torn_bytes, whole ? 0 : ends[_i].torn_bytes);
	free(file);
	free(batch);
}
END_TEST

/* An append to a mapping whose first length was not stored any more: the others of it never counted. */
START_TEST(an_append_that_was_never_published_is_no_damage)
{
	size_t bytes;
	uint8_t *batch = five(&bytes);
	uint8_t *file = calloc(1, bytes + 5000);
	struct look found;

	memcpy(file, batch, bytes);
	memset(file + 2 * WHOLE, 0, 4);
	found = look(file, bytes + 5000, 100, -1);
	ck_assert_int_eq(found.count, 0);
	ck_assert_int_eq(found.records, 2);
	ck_assert_int_eq(found.end, 102);
	ck_assert_int_eq(found.torn_bytes, 3 * WHOLE);
	/* When the first one's payload does not fit its sum either, something else has happened. */
	file[2 * WHOLE + 30] ^= 4;
	found = look(file, bytes + 5000, 100, -1);
	ck_assert_int_eq(found.count, 1);
	ck_assert_int_eq(found.found[0].behind, 2);
	ck_assert(found.found[0].last);
	free(file);
	free(batch);
}
END_TEST

START_TEST(A19_a_flipped_byte_with_good_records_behind_is_damage_in_the_last_segment_too)
{
	size_t bytes;
	uint8_t *batch = five(&bytes);

	for (int record = 0; record < 4; record++) {
		for (int at = 0; at < WHOLE; at++) {
			struct look found;

			batch[record * WHOLE + at] ^= 0x10;
			found = look(batch, bytes, 100, -1);
			ck_assert_int_eq(found.count, 1);
			expect(&found.found[0], FINDING_BAD_RECORD, record * WHOLE, 100 + record, 1);
			ck_assert_int_eq(found.records, 4);
			ck_assert_int_eq(found.torn_bytes, 0);
			batch[record * WHOLE + at] ^= 0x10;
		}
	}
	free(batch);
}
END_TEST

START_TEST(many_damaged_places_are_counted)
{
	enum { COUNT = 1000 };
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, COUNT, SIZE, &bytes);
	struct look found;

	for (int i = 0; i < COUNT; i += 2)
		batch[i * WHOLE + 30] ^= 1;
	found = look(batch, bytes, 0, COUNT);
	ck_assert_int_eq(found.count, LOOK_FINDINGS_MAX);
	ck_assert_int_eq(found.more, COUNT / 2 - LOOK_FINDINGS_MAX);
	ck_assert_int_eq(found.records, COUNT / 2);
	ck_assert_int_eq(found.found[LOOK_FINDINGS_MAX - 1].offset, 2 * (LOOK_FINDINGS_MAX - 1));
	free(batch);
}
END_TEST

/* ---- a log ---- */

static bool is_mapped;
static char told[16][FINDING_TEXT_BYTES + 64];
static int told_count;
static bool broker_runs;

static void
note_finding(void *with, const struct finding *finding)
{
	char text[FINDING_TEXT_BYTES];

	(void)with;
	finding_text(finding, text);
	ck_assert_int_lt(told_count, 16);
	snprintf(told[told_count++], sizeof(told[0]), "%s %s: %s", finding_name(finding->kind), finding->name, text);
}

static bool
runs(void *with)
{
	(void)with;
	return broker_runs;
}

static struct examine
examine(void)
{
	struct examine e = { .dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY), .format = -1, .only = -1, .running = runs,
		.found = note_finding };

	ck_assert_int_ge(e.dir_fd, 0);
	told_count = 0;
	ck_assert_int_eq(examine_log(&e), 0);
	close(e.dir_fd);
	return e;
}

/* Exactly these findings, each as the beginning of what is told, in this order. */
static void
expect_told(int count, const char *const *beginnings)
{
	for (int i = 0; i < told_count && i < count; i++)
		ck_assert_msg(strncmp(told[i], beginnings[i], strlen(beginnings[i])) == 0, "told: %s", told[i]);
	ck_assert_msg(told_count == count, "%d told, the first: %s", told_count, told[0]);
}

/* Four segments of six records, the last one active. */
static void
make_log(enum record_format format)
{
	logkit_begin(&kit, format, 6 * (SIZE + (int64_t)record_header_bytes(format)));
	kit.settings.mapped = is_mapped;
	logkit_open(&kit);
	logkit_append(&kit, 24, SIZE);
	logkit_close(&kit);
}

static void
remove_index(int64_t base)
{
	char name[SEGMENT_NAME_BYTES], path[LOGKIT_PATH_BYTES];

	index_file_name(name, base);
	logkit_file_path(&kit, name, path);
	ck_assert(unlink(path) == 0 || errno == ENOENT);
}

static void
rename_segment(int64_t from, int64_t to)
{
	char old[LOGKIT_PATH_BYTES], new[LOGKIT_PATH_BYTES];

	logkit_segment_path(&kit, from, old);
	logkit_segment_path(&kit, to, new);
	ck_assert_int_eq(rename(old, new), 0);
	remove_index(from);
}

static void
copy_segment(int64_t from, int64_t to)
{
	char old[LOGKIT_PATH_BYTES], new[LOGKIT_PATH_BYTES];
	size_t size;
	uint8_t *bytes;

	logkit_segment_path(&kit, from, old);
	logkit_segment_path(&kit, to, new);
	bytes = logkit_read_file(old, &size);
	logkit_write_file(new, bytes, size);
	free(bytes);
}

static void
remove_segment(int64_t base)
{
	char path[LOGKIT_PATH_BYTES];

	logkit_segment_path(&kit, base, path);
	ck_assert_int_eq(unlink(path), 0);
	remove_index(base);
}

/* As retention does: what is to go is noted first. */
static void
retire_below(int64_t log_start)
{
	int dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY);

	ck_assert_int_eq(sealed_list_note_start(dir_fd, log_start), 0);
	close(dir_fd);
	for (int64_t base = 0; base < log_start; base += 6) {
		char path[LOGKIT_PATH_BYTES];

		logkit_segment_path(&kit, base, path);
		if (logkit_file_bytes(path) != -1)
			remove_segment(base);
	}
}

START_TEST(a_whole_log_is_counted)
{
	enum record_format format = _i == 0 ? RECORD_PLAIN : RECORD_CRC32C;
	struct examine e;

	make_log(format);
	e = examine();
	expect_told(0, NULL);
	ck_assert_int_eq(e.segments, 4);
	ck_assert_int_eq(e.records, 24);
	ck_assert_int_eq(e.bytes, 24 * (SIZE + (int64_t)record_header_bytes(format)));
	ck_assert_int_eq(e.first, 0);
	ck_assert_int_eq(e.end, 24);
	ck_assert(e.format_told);
	ck_assert_int_eq(e.record_format, format);
	/* An empty active segment behind it, and then a log of that alone. */
	logkit_open(&kit);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_close(&kit);
	e = examine();
	expect_told(0, NULL);
	ck_assert_int_eq(e.segments, 5);
	ck_assert_int_eq(e.end, 24);
	retire_below(24);
	e = examine();
	expect_told(0, NULL);
	ck_assert_int_eq(e.segments, 1);
	ck_assert_int_eq(e.first, 24);
	ck_assert_int_eq(e.end, 24);
	logkit_end(&kit);
}
END_TEST

/* Preallocated: zeros behind the last record, and then a whole segment of them, which is the active one. */
START_TEST(zeros_that_a_mapping_writes_to_are_no_damage)
{
	enum record_format format = _i == 0 ? RECORD_PLAIN : RECORD_CRC32C;
	struct examine e;

	is_mapped = true;
	make_log(format);
	ck_assert_int_eq(examine().records, 24);
	expect_told(0, NULL);
	logkit_open(&kit);
	logkit_append(&kit, 3, SIZE);
	logkit_close(&kit);
	e = examine();
	expect_told(0, NULL);
	ck_assert_int_eq(e.records, 27);
	ck_assert_int_gt(e.last.file_bytes, e.last.bytes);
	ck_assert_int_eq(e.end, 27);
	logkit_open(&kit);
	logkit_append(&kit, 3, SIZE);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_close(&kit);
	e = examine();
	expect_told(0, NULL);
	ck_assert_int_eq(e.segments, 6);
	ck_assert_int_eq(e.end, 30);
	logkit_end(&kit);
	/* Nothing but a log that has just begun. */
	logkit_begin(&kit, format, 1 << 20);
	kit.settings.mapped = true;
	logkit_open(&kit);
	logkit_close(&kit);
	e = examine();
	expect_told(0, NULL);
	ck_assert_int_eq(e.segments, 1);
	ck_assert_int_eq(e.end, 0);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_missing_segment_is_told)
{
	make_log(RECORD_CRC32C);
	remove_segment(6);
	examine();
	expect_told(1, (const char *const[]){ "missing_records 00000000000000000000.log: its records end at offset 6, but the "
	    "next segment begins at 12: 6 records missing" });
	/* What retention takes is missed by nobody. */
	retire_below(12);
	ck_assert_int_eq(examine().first, 12);
	expect_told(0, NULL);
	logkit_end(&kit);
}
END_TEST

/* It had a name before the list knew of the one ahead of it; and its own index tells how far it went, also behind a start. */
START_TEST(a_missing_last_segment_is_told)
{
	char path[LOGKIT_PATH_BYTES];

	make_log(RECORD_CRC32C);
	logkit_reopen(&kit);
	logkit_close(&kit);
	logkit_segment_path(&kit, 18, path);
	ck_assert_int_eq(unlink(path), 0);
	examine();
	expect_told(2, (const char *const[]){ "leftover 00000000000000000018.index", "missing_records 00000000000000000018.log: it is "
	    "not there any more: 6 records from offset 18 on missing" });
	logkit_open(&kit);
	logkit_close(&kit);
	examine();
	expect_told(2, (const char *const[]){ "leftover 00000000000000000018.index", "missing_records 00000000000000000012.log: its "
	    "records end at offset 18, but the next segment begins at 24: 6 records missing" });
	remove_segment(24);
	logkit_remove_list(&kit);
	ck_assert_int_eq(examine().findings[FINDING_CORRUPTION], 1);
	remove_index(18);
	ck_assert_int_eq(examine().findings[FINDING_CORRUPTION], 0);
	logkit_end(&kit);
	make_log(RECORD_CRC32C);
	remove_segment(18);
	examine();
	expect_told(1, (const char *const[]){ "missing_records 00000000000000000018.log: it is not there any more: an unknown number "
	    "of records from offset 18 on missing" });
	logkit_end(&kit);
}
END_TEST

/* `_i`: the wrong name lies above or below the right one. */
START_TEST(a_wrong_name_is_one_finding)
{
	make_log(RECORD_CRC32C);
	rename_segment(6, _i == 0 ? 8 : 3);
	examine();
	expect_told(1, (const char *const[]){ _i == 0
	    ? "misnamed 00000000000000000008.log: by the segments around it its first record has offset 6"
	    : "misnamed 00000000000000000003.log: by the segments around it its first record has offset 6" });
	logkit_end(&kit);
}
END_TEST

START_TEST(a_copy_under_another_name_is_told)
{
	struct examine e;

	make_log(RECORD_CRC32C);
	copy_segment(6, 8);
	copy_segment(6, 9);
	e = examine();
	expect_told(2, (const char *const[]){ "doubled 00000000000000000008.log: the same bytes as 00000000000000000006.log",
	    "doubled 00000000000000000009.log: the same bytes as 00000000000000000006.log" });
	ck_assert_int_eq(e.records, 24);
	logkit_end(&kit);
}
END_TEST

START_TEST(segments_that_overlap_are_told)
{
	make_log(RECORD_CRC32C);
	copy_segment(0, 9);
	examine();
	expect_told(2, (const char *const[]){ "overlap 00000000000000000006.log: 3 records too many: the next segment begins at "
	    "offset 9", "overlap 00000000000000000009.log: 3 records too many" });
	logkit_end(&kit);
}
END_TEST

/* The active one is empty, so the segment before it is sealed, although nothing with content stands behind it. */
START_TEST(the_end_of_a_segment_before_an_empty_one_is_no_torn_end)
{
	char path[LOGKIT_PATH_BYTES];

	make_log(RECORD_CRC32C);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_close(&kit);
	logkit_segment_path(&kit, 18, path);
	logkit_flip(path, 5 * WHOLE + 20);
	ck_assert_int_eq(examine().last.base, -1);
	expect_told(1, (const char *const[]){ "bad_record 00000000000000000018.log: position 320, offset 23: 64 bytes" });
	logkit_end(&kit);
}
END_TEST

/* As recovery has it, too. */
START_TEST(bug_A13_where_all_is_empty_the_list_tells_where_the_log_is)
{
	const char *gone = "missing_records 00000000000000000000.log: it is not there any more: 6 records from offset 0 on",
	    *empty = "empty_segment 00000000000000000000.log";
	char path[LOGKIT_PATH_BYTES];
	struct examine e;

	logkit_begin(&kit, RECORD_CRC32C, 6 * WHOLE);
	logkit_open(&kit);
	logkit_append(&kit, 6, SIZE);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_close(&kit);
	logkit_segment_path(&kit, 0, path);
	logkit_truncate(path, 0);
	e = examine();
	ck_assert_int_eq(e.first, 6);
	ck_assert_int_eq(e.end, 6);
	expect_told(3, (const char *const[]){ "wrong_list sealed.list: it knows 00000000000000000000.log", gone, empty });
	remove_segment(6);
	e = examine();
	ck_assert_int_eq(e.segments, 0);
	expect_told(2, (const char *const[]){ gone, empty });
	logkit_end(&kit);
}
END_TEST

/* The second of two sealed segments is emptied or gone, the active one empty or gone. */
START_TEST(bug_A13_what_the_list_knows_of_a_lost_last_segment_is_told)
{
	char path[LOGKIT_PATH_BYTES];
	int missing = 0;

	logkit_begin(&kit, RECORD_CRC32C, 6 * WHOLE);
	logkit_open(&kit);
	logkit_append(&kit, 12, SIZE);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_close(&kit);
	logkit_segment_path(&kit, 6, path);
	if (_i & 1)
		ck_assert_int_eq(unlink(path), 0);
	else
		logkit_truncate(path, 0);
	if (_i & 2)
		remove_segment(12);
	examine();
	for (int i = 0; i < told_count; i++)
		missing += strncmp(told[i], "missing_records ", 16) == 0 && strstr(told[i], ": 6 records") != NULL;
	ck_assert_int_eq(missing, 1);
	logkit_end(&kit);
}
END_TEST

/* Of the log's only segment nothing is left but its index. `_i`: format. */
START_TEST(bug_A13_what_an_index_knows_of_a_lost_lone_segment_is_told)
{
	const enum record_format format = _i == 0 ? RECORD_PLAIN : RECORD_CRC32C;
	char path[LOGKIT_PATH_BYTES];

	logkit_begin(&kit, format, 60 * WHOLE);
	kit.settings.mapped = is_mapped;
	logkit_open(&kit);
	logkit_append(&kit, 6, SIZE);
	/* Which stores it. */
	logkit_reopen(&kit);
	logkit_close(&kit);
	logkit_segment_path(&kit, 0, path);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(examine().segments, 0);
	expect_told(2, (const char *const[]){ "leftover 00000000000000000000.index", "missing_records 00000000000000000000.log: it is "
	    "not there any more: 6 records from offset 0 on missing" });
	logkit_end(&kit);
}
END_TEST

/* What was the last segment is followed by two that came and went, and by one of which the list does not know yet. */
START_TEST(a_running_log_has_not_lost_what_it_has_left_behind)
{
	make_log(RECORD_CRC32C);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_close(&kit);
	remove_segment(12);
	remove_segment(18);
	rename_segment(24, 30);
	broker_runs = true;
	examine();
	expect_told(0, NULL);
	broker_runs = false;
	examine();
	expect_told(2, (const char *const[]){ "missing_records 00000000000000000012.log: it is not there any more: ",
	    "empty_segment 00000000000000000030.log" });
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A8_what_is_foreign_is_named)
{
	char path[LOGKIT_PATH_BYTES];

	make_log(RECORD_CRC32C);
	logkit_file_path(&kit, "00000000000000000003.log", path);
	logkit_write_file(path, "", 0);
	logkit_file_path(&kit, "README", path);
	logkit_write_file(path, "hello", 5);
	examine();
	ck_assert_int_eq(told_count, 2);
	ck_assert_ptr_nonnull(strstr(told[0], "foreign README: does not belong to this log"));
	ck_assert_ptr_nonnull(strstr(told[1], "empty_segment 00000000000000000003.log: empty"));
	/* A name that leads beyond all numbers. */
	logkit_file_path(&kit, "09223372036854775800.log", path);
	logkit_write_file(path, "0123456789abcdef", 16);
	examine();
	ck_assert_int_eq(told_count, 3);
	ck_assert_ptr_nonnull(strstr(told[1], "foreign 09223372036854775800.log"));
	logkit_end(&kit);
}
END_TEST

START_TEST(without_sums_lengths_and_counts_are_checked)
{
	char path[LOGKIT_PATH_BYTES];

	make_log(RECORD_PLAIN);
	logkit_segment_path(&kit, 6, path);
	logkit_flip(path, 30);
	examine();
	expect_told(0, NULL);
	logkit_change(path, 2 * (SIZE + 4), "\xFF", 1);
	examine();
	expect_told(1, (const char *const[]){ "bad_record 00000000000000000006.log: position 120, offset 8: 240 bytes (an "
	    "impossible length), 4 records; good records in this file: 2 before, 0 behind" });
	logkit_end(&kit);
}
END_TEST

/* Damage in the first record of a log without a sealed segment: nothing at its beginning tells the format. */
START_TEST(the_format_is_told_by_any_sum_that_fits)
{
	char path[LOGKIT_PATH_BYTES];
	struct examine e;

	logkit_begin(&kit, RECORD_CRC32C, 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, 5, SIZE);
	logkit_close(&kit);
	logkit_segment_path(&kit, 0, path);
	logkit_flip(path, 9);
	e = examine();
	ck_assert(e.format_told);
	ck_assert_int_eq(e.record_format, RECORD_CRC32C);
	expect_told(1, (const char *const[]){ "bad_record 00000000000000000000.log: position 0, offset 0" });
	/* And by none it is assumed. */
	logkit_write_file(path, "no log at all, but it is named like one", 39);
	e = examine();
	ck_assert(!e.format_told);
	expect_told(2, (const char *const[]){ "torn_tail 00000000000000000000.log: position 0, offset 0: 39", "format_assumed" });
	logkit_end(&kit);
}
END_TEST

/* ---- caches ---- */

/* Three segments; the last one has records enough for some marks, and all of it has been forced: its index says so. */
static void
make_stopped_log(void)
{
	struct index index;
	struct index_file file;

	logkit_begin(&kit, RECORD_CRC32C, 100 * WHOLE);
	kit.settings.index_interval_bytes = 10 * WHOLE;
	logkit_open(&kit);
	logkit_append(&kit, 250, SIZE);
	logkit_close(&kit);
	logkit_reopen(&kit);
	logkit_close(&kit);
	index_init(&index, 1);
	ck_assert_int_eq(index_file_read(open(kit.path, O_RDONLY), 200, RECORD_CRC32C, &index, &file, NULL), 0);
	ck_assert_int_eq(file.point.end, 250);
	ck_assert_uint_eq(index.count, 5);
	index_free(&index);
}

static void
cache_path(const char *name, char *path)
{
	logkit_file_path(&kit, name, path);
	ck_assert_int_gt(logkit_file_bytes(path), 0);
}

START_TEST(what_had_been_forced_is_not_torn)
{
	char path[LOGKIT_PATH_BYTES];

	make_stopped_log();
	examine();
	expect_told(0, NULL);
	/* The very last record: without the index that might be a write that was interrupted. */
	logkit_segment_path(&kit, 200, path);
	logkit_flip(path, 49 * WHOLE + 30);
	examine();
	expect_told(1, (const char *const[]){ "bad_record 00000000000000000200.log: position 3136, offset 249: 64 bytes" });
	logkit_flip(path, 49 * WHOLE + 30);
	logkit_truncate(path, 50 * WHOLE - 1);
	examine();
	expect_told(1, (const char *const[]){ "lost_records 00000000000000000200.log: position 3136, offset 249: its records end "
	    "here, but up to offset 250 they had been forced to disk, as its index says: 1 record lost" });
	logkit_truncate(path, 15 * WHOLE);
	examine();
	expect_told(1, (const char *const[]){ "lost_records 00000000000000000200.log: position 960, offset 215: its records end "
	    "here, but up to offset 250 they had been forced to disk, as its index says: 35 records lost" });
	/* Not a mark is left that could tell that this is an index of this segment. */
	logkit_truncate(path, 9 * WHOLE);
	examine();
	expect_told(1, (const char *const[]){ "wrong_index 00000000000000000200.index: its index does not fit it" });
	logkit_end(&kit);
}
END_TEST

/* The broker goes on from the recovery point: it does not cut what is ahead of it. */
START_TEST(what_to_do_depends_on_what_had_been_forced)
{
	char path[LOGKIT_PATH_BYTES];
	struct examine e;

	make_stopped_log();
	logkit_segment_path(&kit, 200, path);
	logkit_flip(path, 20 * WHOLE + 30);
	e = examine();
	ck_assert_int_eq(e.last.count, 1);
	ck_assert(!e.last.found[0].last);
	/* The very last record, too, which nothing but the index tells from a write that was interrupted. */
	logkit_flip(path, 20 * WHOLE + 30);
	logkit_flip(path, 49 * WHOLE + 30);
	e = examine();
	ck_assert_int_eq(e.last.count, 1);
	ck_assert(!e.last.found[0].last);
	logkit_flip(path, 20 * WHOLE + 30);
	remove_index(200);
	e = examine();
	ck_assert(e.last.found[0].last);
	logkit_end(&kit);
}
END_TEST

START_TEST(bug_A6_wrong_indexes_are_notes)
{
	static const char *const names[] = { "00000000000000000000.index", "00000000000000000100.index", "00000000000000000200.index" };
	char path[LOGKIT_PATH_BYTES], other[LOGKIT_PATH_BYTES];
	size_t size;
	uint8_t *bytes;

	for (int i = 0; i < 3; i++) {
		struct examine e;

		make_stopped_log();
		cache_path(names[i], path);
		logkit_write_file(path, "neither an index nor anything else", 34);
		e = examine();
		ck_assert_int_eq(e.findings[FINDING_CORRUPTION] + e.findings[FINDING_FAILURE], 0);
		ck_assert_int_eq(told_count, 1);
		ck_assert_ptr_nonnull(strstr(told[0], "wrong_index"));
		ck_assert_ptr_nonnull(strstr(told[0], names[i]));
		logkit_end(&kit);
	}
	/* A right one, of a segment with other records. */
	make_stopped_log();
	cache_path(names[0], path);
	bytes = logkit_read_file(path, &size);
	logkit_segment_path(&kit, 0, other);
	logkit_end(&kit);
	logkit_begin(&kit, RECORD_CRC32C, 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, 300, SIZE + 11);
	logkit_close(&kit);
	logkit_file_path(&kit, names[0], path);
	logkit_write_file(path, bytes, size);
	examine();
	expect_told(1, (const char *const[]){ "wrong_index 00000000000000000000.index: its index does not fit it" });
	free(bytes);
	logkit_end(&kit);
}
END_TEST

/* Which the broker does not take for a wrong one. */
START_TEST(an_index_that_cannot_be_read_is_a_note_of_its_own)
{
	make_stopped_log();
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = EIO, .sticky = true,
	    .aim = LOGKIT_AT_CACHES });
	examine();
	logkit_clear_fault();
	expect_told(3, (const char *const[]){ "unreadable_index 00000000000000000000.index: its index cannot be read",
	    "unreadable_index 00000000000000000100.index: its index cannot be read",
	    "unreadable_index 00000000000000000200.index: its index cannot be read" });
	logkit_end(&kit);
}
END_TEST

START_TEST(a_wrong_list_of_sealed_segments_is_a_note)
{
	struct sealed_entry entries[2] = { { 0, 100, 100 * WHOLE, 5 }, { 100, 200, 100 * WHOLE, 6 } };
	struct sealed_list list = { .entries = entries, .count = 2 };
	char path[LOGKIT_PATH_BYTES];
	int dir_fd;

	make_stopped_log();
	dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY);
	ck_assert_int_eq(sealed_list_write(dir_fd, &list), 0);
	examine();
	expect_told(0, NULL);
	entries[1].bytes++;
	ck_assert_int_eq(sealed_list_write(dir_fd, &list), 0);
	examine();
	expect_told(1, (const char *const[]){ "wrong_list sealed.list: it knows 00000000000000000100.log with 6401 bytes, not 6400" });
	entries[1].bytes--;
	ck_assert_int_eq(sealed_list_write(dir_fd, &list), 0);
	remove_segment(0);
	examine();
	expect_told(1, (const char *const[]){ "missing_records 00000000000000000000.log: it is not there any more: 100 records from "
	    "offset 0 on missing" });
	/* Retention has noted that it takes it. */
	ck_assert_int_eq(sealed_list_note_start(dir_fd, 100), 0);
	examine();
	expect_told(0, NULL);
	/* Which damage may hide. */
	logkit_file_path(&kit, SEALED_LIST_NAME, path);
	logkit_flip(path, 16 + 36 + 5);
	examine();
	expect_told(0, NULL);
	logkit_write_file(path, "garbage", 7);
	examine();
	expect_told(1, (const char *const[]){ "wrong_list sealed.list: it is damaged, or no such list" });
	close(dir_fd);
	logkit_end(&kit);
}
END_TEST

/* ---- a disk that refuses, files that cannot be opened ---- */

static int64_t refused_from;

static ssize_t
refusing_pread(int fd, void *to, size_t size, off_t position)
{
	struct stat st;

	/* Only of the second segment, which is the longest. */
	ck_assert_int_eq(fstat(fd, &st), 0);
	if (st.st_size < 300000 || position + (off_t)size <= refused_from || position >= refused_from + 4096)
		return pread(fd, to, size, position);
	if (position < refused_from)
		return pread(fd, to, (size_t)(refused_from - position), position);
	errno = EIO;
	return -1;
}

START_TEST(a_place_that_the_disk_refuses_is_told_and_passed)
{
	struct examine e;

	logkit_begin(&kit, RECORD_CRC32C, 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, 6, SIZE);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_append(&kit, 100, 4000);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_append(&kit, 6, SIZE);
	logkit_close(&kit);
	refused_from = 50 * 4096;
	syscalls.pread = refusing_pread;
	e = examine();
	ck_assert_int_eq(e.findings[FINDING_CORRUPTION], 1);
	ck_assert_int_eq(e.records, 112 - 2);
	expect_told(1, (const char *const[]){ "unreadable 00000000000000000006.log: position 204408, offset 57: 8016 bytes cannot "
	    "be read: Input/output error" });
	logkit_end(&kit);
}
END_TEST

START_TEST(a_segment_that_cannot_be_opened_is_a_failure)
{
	struct examine e;

	make_log(RECORD_CRC32C);
	/* The listing, the last segment, evidence of a sealed one, and then the first look at the first one. */
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 4, .error = EACCES });
	e = examine();
	ck_assert(logkit_fault_hit());
	logkit_clear_fault();
	ck_assert_int_eq(e.findings[FINDING_FAILURE], 1);
	ck_assert_int_eq(e.findings[FINDING_CORRUPTION], 0);
	expect_told(1, (const char *const[]){ "cannot_open 00000000000000000000.log: cannot be opened: Permission denied" });
	logkit_end(&kit);
}
END_TEST

/* Every call fails once: that is told as what it is, nothing crashes, and no damage is made up. */
START_TEST(any_call_that_fails_is_no_damage)
{
	static const int errors[] = { EACCES, EMFILE, ENOMEM, EINTR };
	int error = errors[_i];

	make_log(RECORD_CRC32C);
	for (int at = 1; at < 200; at++) {
		struct examine e = { .dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY), .format = -1, .only = -1, .running = runs,
			.found = note_finding };
		int done;

		told_count = 0;
		logkit_set_fault((struct logkit_fault){ .call = error == EINTR ? CALL_PREAD : LOGKIT_ANY, .at = at,
			.error = error });
		done = examine_log(&e);
		logkit_clear_fault();
		close(e.dir_fd);
		if (error == ENOMEM || error == EINTR)
			ck_assert_int_eq(e.findings[FINDING_CORRUPTION], 0);
		if (done == 0 && error == EINTR)
			ck_assert_int_eq(e.records, 24);
	}
	logkit_end(&kit);
}
END_TEST

/* ---- a broker at work ---- */

static int reads;
static void (*meanwhile)(void);

/* Something happens behind one of the reads, which all are short, so that a file is read in many. */
static ssize_t
pread_and_go_on(int fd, void *to, size_t size, off_t position)
{
	ssize_t n = pread(fd, to, size < 50 ? size : 50, position);

	if (--reads == 0)
		meanwhile();
	return n;
}

/* The segment holds these records, whatever it held before. */
static void
write_records(enum record_format format, int64_t base, int count, size_t size)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(format, base, count, size, &bytes);
	char path[LOGKIT_PATH_BYTES];

	logkit_segment_path(&kit, base, path);
	logkit_write_file(path, batch, bytes);
	free(batch);
}

static void
retire_first(void)
{
	retire_below(12);
}

static void
complete(void)
{
	write_records(RECORD_CRC32C, 18, 6, SIZE);
}

/* The last segment is whole now, and there is another one. */
static void
complete_and_roll(void)
{
	complete();
	copy_segment(0, 24);
}

/* A restarted worker cuts what is not whole, and other records follow. */
static void
cut_and_append(void)
{
	write_records(RECORD_CRC32C, 18, 5, SIZE + 9);
}

/* A roll was undone: the segment that had been made is gone again, and the one before goes on. */
static void
undo_roll(void)
{
	remove_segment(18);
	write_records(RECORD_CRC32C, 12, 9, SIZE);
}

static void (*const changes[])(void) = { retire_first, complete_and_roll, complete, cut_and_append, undo_roll };
enum { CHANGES = sizeof(changes) / sizeof(changes[0]) };

/* All that was listed is gone, and the log goes on behind it. */
static void
overtake(void)
{
	for (int64_t base = 24; base < 48; base += 6)
		write_records(RECORD_PLAIN, base, 6, SIZE);
	retire_below(24);
}

/* At each read in turn; without sums nothing but a whole segment tells the format. */
START_TEST(the_format_is_known_when_all_that_was_listed_is_gone)
{
	broker_runs = true;
	meanwhile = overtake;
	for (int at = 1; at < 40; at++) {
		struct examine e;

		make_log(RECORD_PLAIN);
		reads = at;
		syscalls.pread = pread_and_go_on;
		e = examine();
		ck_assert_int_eq(e.record_format, RECORD_PLAIN);
		expect_told(0, NULL);
		logkit_end(&kit);
	}
}
END_TEST

/* The first record's length comes last, when the log is written through a mapping. */
static void
complete_first(void)
{
	write_records(RECORD_PLAIN, 0, 1, SIZE);
}

START_TEST(the_format_is_known_when_the_first_record_is_on_its_way)
{
	char path[LOGKIT_PATH_BYTES];

	broker_runs = true;
	meanwhile = complete_first;
	for (int at = 1; at < 5; at++) {
		logkit_begin(&kit, RECORD_PLAIN, 4096);
		logkit_open(&kit);
		logkit_close(&kit);
		logkit_segment_path(&kit, 0, path);
		logkit_write_file(path, (const uint8_t *)"\0\0\0\0payload", 11);
		reads = at;
		syscalls.pread = pread_and_go_on;
		ck_assert_int_eq(examine().record_format, RECORD_PLAIN);
		expect_told(0, NULL);
		logkit_end(&kit);
	}
}
END_TEST

/* `_i`: what happens; at each read in turn. The last segment ends in a half-written record at first. */
START_TEST(what_a_broker_does_meanwhile_is_no_damage)
{
	char path[LOGKIT_PATH_BYTES];

	broker_runs = true;
	meanwhile = changes[_i];
	for (int at = 1; at < 80; at++) {
		make_log(RECORD_CRC32C);
		logkit_segment_path(&kit, 18, path);
		logkit_truncate(path, 6 * WHOLE - 30);
		reads = at;
		syscalls.pread = pread_and_go_on;
		examine();
		for (int i = 0; i < told_count; i++)
			ck_assert_msg(strncmp(told[i], "being_written ", 14) == 0, "at %d: %s", at, told[i]);
		logkit_end(&kit);
	}
}
END_TEST

START_TEST(a_write_that_takes_its_time_is_told_as_such)
{
	char path[LOGKIT_PATH_BYTES];

	make_log(RECORD_CRC32C);
	logkit_segment_path(&kit, 18, path);
	logkit_truncate(path, 6 * WHOLE - 30);
	broker_runs = true;
	ck_assert_int_eq(examine().end, 23);
	expect_told(1, (const char *const[]){ "being_written 00000000000000000018.log: position 320, offset 23: 34 bytes" });
	broker_runs = false;
	ck_assert_int_eq(examine().end, 23);
	expect_told(1, (const char *const[]){ "torn_tail 00000000000000000018.log: position 320, offset 23: 34 bytes" });
	logkit_end(&kit);
}
END_TEST

START_TEST(damage_stands_also_when_a_broker_is_at_work)
{
	char path[LOGKIT_PATH_BYTES];

	make_log(RECORD_CRC32C);
	broker_runs = true;
	logkit_segment_path(&kit, _i * 6, path);
	logkit_flip(path, 3 * WHOLE + 11);
	ck_assert_int_eq(examine().findings[FINDING_CORRUPTION], 1);
	logkit_end(&kit);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("look");
	TCase *tests = tcase_create("look"), *flips = tcase_create("flips");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, flips);
	tcase_set_timeout(flips, 4 * UNIT_TIMEOUT_S);
	tcase_add_loop_test(flips, A19_every_flipped_bit_of_a_sealed_segment_is_found, 0, FLIP_PARTS);
	tcase_add_test(tests, a_whole_segment_has_nothing_to_tell);
	tcase_add_test(tests, counts_that_do_not_fit_the_next_segment_are_told);
	tcase_add_test(tests, behind_a_stretch_of_unknown_length_offsets_come_from_the_end);
	tcase_add_test(tests, bytes_behind_the_last_record_of_a_sealed_segment_are_told);
	tcase_add_loop_test(tests, A11_a_torn_end_is_no_damage, 0, ENDS);
	tcase_add_test(tests, an_append_that_was_never_published_is_no_damage);
	tcase_add_test(tests, A19_a_flipped_byte_with_good_records_behind_is_damage_in_the_last_segment_too);
	tcase_add_test(tests, many_damaged_places_are_counted);
	tcase_add_loop_test(tests, a_whole_log_is_counted, 0, 2);
	tcase_add_loop_test(tests, zeros_that_a_mapping_writes_to_are_no_damage, 0, 2);
	tcase_add_test(tests, a_missing_segment_is_told);
	tcase_add_test(tests, a_missing_last_segment_is_told);
	tcase_add_loop_test(tests, a_wrong_name_is_one_finding, 0, 2);
	tcase_add_test(tests, a_copy_under_another_name_is_told);
	tcase_add_test(tests, segments_that_overlap_are_told);
	tcase_add_test(tests, the_end_of_a_segment_before_an_empty_one_is_no_torn_end);
	tcase_add_loop_test(tests, bug_A13_what_the_list_knows_of_a_lost_last_segment_is_told, 0, 4);
	tcase_add_loop_test(tests, bug_A13_what_an_index_knows_of_a_lost_lone_segment_is_told, 0, 2);
	tcase_add_test(tests, bug_A13_where_all_is_empty_the_list_tells_where_the_log_is);
	tcase_add_test(tests, a_running_log_has_not_lost_what_it_has_left_behind);
	tcase_add_test(tests, bug_A8_what_is_foreign_is_named);
	tcase_add_test(tests, without_sums_lengths_and_counts_are_checked);
	tcase_add_test(tests, the_format_is_told_by_any_sum_that_fits);
	tcase_add_test(tests, what_had_been_forced_is_not_torn);
	tcase_add_test(tests, what_to_do_depends_on_what_had_been_forced);
	tcase_add_test(tests, bug_A6_wrong_indexes_are_notes);
	tcase_add_test(tests, an_index_that_cannot_be_read_is_a_note_of_its_own);
	tcase_add_test(tests, a_wrong_list_of_sealed_segments_is_a_note);
	tcase_add_test(tests, a_place_that_the_disk_refuses_is_told_and_passed);
	tcase_add_test(tests, a_segment_that_cannot_be_opened_is_a_failure);
	tcase_add_loop_test(tests, any_call_that_fails_is_no_damage, 0, 4);
	tcase_add_loop_test(tests, what_a_broker_does_meanwhile_is_no_damage, 0, CHANGES);
	tcase_add_test(tests, the_format_is_known_when_all_that_was_listed_is_gone);
	tcase_add_test(tests, the_format_is_known_when_the_first_record_is_on_its_way);
	tcase_add_test(tests, a_write_that_takes_its_time_is_told_as_such);
	tcase_add_loop_test(tests, damage_stands_also_when_a_broker_is_at_work, 0, 4);
	return unit_run(suite);
}
