/* The parts below the log: the index alone, whole reads and writes, the walk over lengths, the scan with sums. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/index.h"
#include "worker/scan.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

static const enum record_format formats[] = { RECORD_PLAIN, RECORD_CRC32C };
enum { FORMATS = 2 };

static struct logkit kit;

/* A fresh file in the kit's data directory. */
static int
new_file(void)
{
	int fd;

	logkit_begin(&kit, RECORD_CRC32C, 1000);
	fd = segment_create_file(kit.data_fd, "file");
	ck_assert_int_ne(fd, -1);
	return fd;
}

START_TEST(index_marks_are_an_interval_apart)
{
	struct index index;

	index_init(&index, 100);
	for (int64_t i = 0; i < 1000; i++)
		ck_assert_int_eq(index_note(&index, 50 + i, i * 30), 0);
	/* A mark at 0, then at every fourth record: 120 is the first position 100 behind. */
	ck_assert_uint_eq(index.count, 250);
	for (int64_t i = 0; i < 1000; i++) {
		struct index_mark mark = index_nearest(&index, 50 + i);

		ck_assert_int_eq(mark.offset, 50 + i / 4 * 4);
		ck_assert_int_eq(mark.position, i / 4 * 120);
	}
	index_cut(&index, 3);
	ck_assert_int_eq(index_nearest(&index, 1000).offset, 58);
	/* The next mark is due where it was: records 9 to 11 have been forgotten as well. */
	ck_assert_int_eq(index_note(&index, 60, 339), 0);
	ck_assert_uint_eq(index.count, 3);
	ck_assert_int_eq(index_note(&index, 61, 340), 0);
	ck_assert_uint_eq(index.count, 4);
	index_cut(&index, 0);
	ck_assert_int_eq(index_note(&index, 50, 0), 0);
	ck_assert_uint_eq(index.count, 1);
	index_free(&index);
	index_free(&index);
}
END_TEST

START_TEST(whole_reads_and_writes)
{
	int errors[] = { LOGKIT_SHORT, EINTR };
	uint8_t from[1000], to[2000];
	int fd = new_file();

	logkit_payload(1, from, sizeof(from));
	logkit_set_fault((struct logkit_fault){ .call = CALL_PWRITE, .at = 1, .error = errors[_i], .sticky = _i == 0 });
	ck_assert_int_eq(segment_write(fd, from, sizeof(from), 10), 0);
	ck_assert_int_gt(logkit_calls(CALL_PWRITE), 1);
	ck_assert_int_eq(segment_file_bytes(fd), 1010);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = errors[_i], .sticky = _i == 0 });
	ck_assert_int_eq(segment_read(fd, to, 1000, 10), 1000);
	ck_assert_mem_eq(from, to, 1000);
	ck_assert_int_eq(segment_read(fd, to, 2000, 10), 1000);
	ck_assert_int_eq(segment_read(fd, to, 2000, 5000), 0);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = EIO });
	ck_assert_int_eq(segment_read(fd, to, 1000, 10), -1);
	ck_assert_int_eq(errno, EIO);
	close(fd);
	logkit_end(&kit);
}
END_TEST

static ssize_t
write_nothing(int fd, const void *from, size_t size, off_t position)
{
	(void)fd;
	(void)from;
	(void)size;
	(void)position;
	return 0;
}

/* Else it would be tried for ever. */
START_TEST(a_write_of_nothing_is_an_error)
{
	int fd = new_file();

	syscalls.pwrite = write_nothing;
	ck_assert_int_eq(segment_write(fd, "abc", 3, 0), -1);
	ck_assert_int_eq(errno, EIO);
	close(fd);
	logkit_end(&kit);
}
END_TEST

/* A file system need not know where the holes of a file are. */
START_TEST(what_cannot_tell_its_holes_has_none)
{
	int pipe_fds[2];

	ck_assert_int_eq(pipe(pipe_fds), 0);
	ck_assert_int_eq(segment_behind_hole(pipe_fds[0], 7, 100), 7);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
}
END_TEST

START_TEST(a_file_is_created_in_place_of_a_leftover)
{
	int fd = new_file(), again;

	ck_assert_int_eq(segment_write(fd, "old", 3, 0), 0);
	again = segment_create_file(kit.data_fd, "file");
	ck_assert_int_ne(again, -1);
	ck_assert_int_eq(segment_file_bytes(again), 0);
	ck_assert_int_eq(segment_file_bytes(fd), 3);
	close(again);
	close(fd);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_walk_stops_at_its_limit_the_end_and_damage)
{
	size_t record = record_header_bytes(formats[_i]) + 100, bytes;
	uint8_t *batch = logkit_batch(formats[_i], 7, 5000, 100, &bytes);
	struct segment *segment;
	struct index_mark at;
	int fd = new_file();

	ck_assert_int_eq(segment_write(fd, batch, bytes, 0), 0);
	segment = segment_new(fd, 7, formats[_i], 4096);
	ck_assert_int_eq(segment_walk(segment, (int64_t)bytes, 7), 0);
	ck_assert_int_eq(segment->end, 7);
	ck_assert_int_eq(segment_walk(segment, (int64_t)bytes, 1000), 0);
	ck_assert_int_eq(segment->end, 1000);
	ck_assert_int_eq(segment->bytes, 993 * record);
	for (size_t i = 1; i < record; i++) {
		ck_assert_int_eq(segment_walk(segment, (int64_t)(2000 * record + i), INT64_MAX), -1);
		ck_assert_int_eq(errno, EBADMSG);
		ck_assert_int_eq(segment->end, 2007);
	}
	ck_assert_int_eq(segment_write(fd, "\0\0\0\0", 4, (int64_t)(3000 * record)), 0);
	ck_assert_int_eq(segment_walk(segment, (int64_t)bytes, INT64_MAX), -1);
	ck_assert_int_eq(errno, EBADMSG);
	ck_assert_int_eq(segment->end, 3007);
	ck_assert_int_eq(segment_write(fd, batch, bytes, 0), 0);
	ck_assert_int_eq(segment_walk(segment, (int64_t)bytes, INT64_MAX), 0);
	ck_assert_int_eq(segment->end, 5007);
	for (int64_t i = 0; i <= 5000; i++) {
		ck_assert_int_eq(segment_locate(segment, 7 + i, &at), 0);
		ck_assert_int_eq(at.offset, 7 + i);
		ck_assert_int_eq(at.position, i * (int64_t)record);
	}
	/* The file has become shorter than it was. */
	ck_assert_int_eq(segment_truncate(fd, (int64_t)(4000 * record)), 0);
	ck_assert_int_eq(segment_locate(segment, 4999, &at), -1);
	ck_assert_int_eq(errno, EAGAIN);
	at = segment_mark(segment, 4999);
	ck_assert_int_eq(segment_seek(segment, (int64_t)bytes, 4999, &at), -1);
	ck_assert_int_eq(errno, EBADMSG);
	segment_drop(segment);
	free(batch);
	logkit_end(&kit);
}
END_TEST

/* `_i`: format; one length that covers two records, or three, and ends where another begins: how many there are up to the
 * next mark tells. */
START_TEST(bug_A13_a_length_over_two_records)
{
	enum { RECORD = 100 };
	enum record_format format = formats[_i % FORMATS];
	size_t bytes, at_record = record_header_bytes(format) + RECORD;
	uint8_t *batch = logkit_batch(format, 0, 20, RECORD, &bytes), length[4];
	struct segment *segment;
	struct index_mark at;
	int fd = new_file();

	ck_assert_int_eq(segment_write(fd, batch, bytes, 0), 0);
	segment = segment_new(fd, 0, format, (int64_t)(5 * at_record));
	ck_assert_int_eq(segment_walk(segment, (int64_t)bytes, INT64_MAX), 0);
	bytes_put_u32(length, (uint32_t)(RECORD + at_record * (1 + (size_t)_i / FORMATS)));
	ck_assert_int_eq(segment_write(fd, length, sizeof(length), (int64_t)(7 * at_record)), 0);
	for (int64_t i = 0; i <= 20; i++) {
		bool broken = i >= 5 && i < 10;
		const struct index_mark end = segment_next_mark(segment, i);

		ck_assert_int_eq(segment_locate(segment, i, &at), broken ? -1 : 0);
		ck_assert(broken ? errno == EBADMSG && at.offset == 5 : at.position == i * (int64_t)at_record);
		at = segment_mark(segment, i);
		ck_assert_int_eq(segment_seek_between(segment, &end, i, &at), broken ? -1 : 0);
		ck_assert(broken ? errno == EBADMSG && at.offset == 5 : at.position == i * (int64_t)at_record);
	}
	segment_drop(segment);
	free(batch);
	logkit_end(&kit);
}
END_TEST

/* When it is asked first, from the beginning. */
static int
only_first_page(void *address, size_t size, unsigned char *pages)
{
	static bool asked;

	(void)address;
	memset(pages, 0, (size + 4095) / 4096);
	pages[0] = !asked;
	asked = true;
	return 0;
}

/* The record is in memory, but not all up to the next mark. */
START_TEST(bug_A13_what_is_not_in_memory_is_not_passed_over)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, 1000, 100, &bytes);
	const struct index_mark *end;
	struct segment *segment;
	struct index_mark at;
	int fd = new_file();

	ck_assert_int_eq(segment_write(fd, batch, bytes, 0), 0);
	segment = segment_new(fd, 0, RECORD_CRC32C, 8192);
	ck_assert_int_eq(segment_walk(segment, (int64_t)bytes, INT64_MAX), 0);
	syscalls.mincore = only_first_page;
	ck_assert_int_eq(segment_locate(segment, 1, &at), -1);
	ck_assert_int_eq(errno, EAGAIN);
	end = &segment->index.marks[1];
	at = segment_mark(segment, 1);
	ck_assert_int_eq(segment_seek_between(segment, end, 1, &at), 0);
	ck_assert_int_eq(at.position, 108);
	segment_drop(segment);
	free(batch);
	logkit_end(&kit);
}
END_TEST

/* From memory where it is there, from the disk where the caller may wait. */
START_TEST(a_record_is_located_in_memory_or_sought_on_the_disk)
{
	size_t record = record_header_bytes(formats[_i]) + 100, bytes;
	uint8_t *batch = logkit_batch(formats[_i], 7, 1000, 100, &bytes);
	struct segment *segment;
	struct index_mark at;
	int fd = new_file();

	ck_assert_int_eq(segment_write(fd, batch, bytes, 0), 0);
	segment = segment_new(fd, 7, formats[_i], 4096);
	ck_assert_int_eq(segment_walk(segment, (int64_t)bytes, INT64_MAX), 0);
	logkit_set_memory(LOGKIT_FROZEN);
	for (int64_t i = 0; i <= 1000; i++) {
		/* Also where there is a mark: the record's own length is looked at. */
		ck_assert_int_eq(segment_locate(segment, 7 + i, &at), -1);
		ck_assert_int_eq(errno, EAGAIN);
		at = segment_mark(segment, 7 + i);
		ck_assert_int_eq(segment_seek(segment, segment_next_mark(segment, 7 + i).position, 7 + i, &at), 0);
		ck_assert_int_eq(at.offset, 7 + i);
		ck_assert_int_eq(at.position, i * (int64_t)record);
	}
	segment_drop(segment);
	free(batch);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_segment_is_closed_with_its_last_reference)
{
	int fd = new_file();
	struct segment *segment = segment_new(fd, 0, RECORD_CRC32C, 4096);

	ck_assert_int_eq(fcntl(fd, F_GETFL) & O_NOATIME, O_NOATIME);
	segment_hold(segment);
	segment_drop(segment);
	ck_assert_int_ne(fcntl(fd, F_GETFD), -1);
	segment_drop(segment);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	segment_drop(NULL);
	logkit_end(&kit);
}
END_TEST

static int64_t
there(struct segment *segment, int64_t position, int64_t bytes)
{
	return residency_bytes(&segment->residency, segment->fd, position, bytes);
}

/* Removes the file from the page cache; false when it has no disk to go to. */
static bool
evict(struct segment *segment)
{
	ck_assert_int_eq(fsync(segment->fd), 0);
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(posix_fadvise(segment->fd, 0, 0, POSIX_FADV_DONTNEED), 0);
		residency_end(&segment->residency);
		if (there(segment, 0, 1) == 0 && there(segment, RESIDENCY_MAX_BYTES, 1) == 0)
			return true;
	}
	return false;
}

START_TEST(what_is_in_memory_is_told_and_not_brought_there)
{
	size_t size = 40 * 1024 * 1024;
	uint8_t *bytes = calloc(1, size), byte;
	struct segment *segment = segment_new(new_file(), 0, RECORD_CRC32C, 4096);
	int64_t page = sysconf(_SC_PAGESIZE);

	ck_assert_int_eq(segment_write(segment->fd, bytes, size / 2, 0), 0);
	ck_assert_int_eq(there(segment, 0, 1000), 1000);
	ck_assert_int_eq(there(segment, 5, INT64_MAX / 2), RESIDENCY_MAX_BYTES);
	ck_assert_int_eq(there(segment, (int64_t)size / 2 - 10, 10), 10);
	/* Behind what is mapped so far, too. */
	ck_assert_int_eq(segment_write(segment->fd, bytes, size / 2, (int64_t)size / 2), 0);
	ck_assert_int_eq(there(segment, (int64_t)size - 100000, 100000), 100000);
	ck_assert_int_eq(there(segment, (int64_t)size, 1), 0);
	if (evict(segment)) {
		ck_assert_int_eq(there(segment, 100, 100000), 0);
		ck_assert_int_eq(segment_read(segment->fd, &byte, 1, 100), 1);
		/* Nothing more that the kernel might think of. */
		ck_assert_int_eq(there(segment, 0, RESIDENCY_MAX_BYTES), page);
		ck_assert_int_eq(there(segment, 100, RESIDENCY_MAX_BYTES), page - 100);
		ck_assert_int_eq(there(segment, 100, page - 100), page - 100);
		ck_assert_int_eq(there(segment, page, 1), 0);
		ck_assert_int_eq(there(segment, (int64_t)size - 1, 1), 0);
		/* Believed for a moment, and no longer. */
		ck_assert_int_eq(there(segment, 0, page), page);
		ck_assert_int_eq(posix_fadvise(segment->fd, 0, 0, POSIX_FADV_DONTNEED), 0);
		while (there(segment, 0, page) == page)
			;
		ck_assert_int_eq(there(segment, 0, page), 0);
	} else {
		printf("what_is_in_memory_is_told: half of it skipped: the file stays in memory here\n");
	}
	segment_drop(segment);
	free(bytes);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_scan_counts_what_is_valid)
{
	size_t sizes[] = { 1, 100, 1000000, 3, 1 << 20, 2000000, 8 }, position = 0;
	int count = sizeof(sizes) / sizeof(sizes[0]);
	struct scan scan;
	struct index index;
	int fd = new_file();

	index_init(&index, 1);
	for (int i = 0; i < count; i++) {
		size_t bytes;
		uint8_t *record = logkit_batch(formats[_i], i, 1, sizes[i], &bytes);

		ck_assert_int_eq(segment_write(fd, record, bytes, (int64_t)position), 0);
		position += bytes;
		free(record);
		ck_assert_int_eq(scan_records(fd, formats[_i], 0, (int64_t)position, NULL, &scan), 0);
		ck_assert_int_eq(scan.records, i + 1);
		ck_assert_int_eq(scan.position, position);
		ck_assert_int_eq(scan.verdict, RECORD_END);
		ck_assert_int_eq(scan_records(fd, formats[_i], 0, (int64_t)position - 1, NULL, &scan), 0);
		ck_assert_int_eq(scan.records, i);
		ck_assert_int_eq(scan.verdict, RECORD_INCOMPLETE);
		ck_assert_int_eq(scan.verdict_end, position - 1);
	}
	/* The file is shorter than it was said to be. */
	ck_assert_int_eq(scan_records(fd, formats[_i], 40, (int64_t)position + 5000000, &index, &scan), 0);
	ck_assert_int_eq(scan.records, count);
	ck_assert_uint_eq(index.count, (size_t)count);
	ck_assert_int_eq(index.marks[count - 1].offset, 40 + count - 1);
	ck_assert_int_eq(scan_content_end(fd, 0, (int64_t)position + 100), position);
	ck_assert_int_eq(segment_truncate(fd, (int64_t)position - 3), 0);
	ck_assert_int_eq(scan_records(fd, formats[_i], 0, (int64_t)position, NULL, &scan), 0);
	ck_assert_int_eq(scan.verdict, RECORD_INCOMPLETE);
	ck_assert_int_eq(scan.verdict_end, position - 3);
	index_free(&index);
	close(fd);
	logkit_end(&kit);
}
END_TEST

START_TEST(the_content_ends_behind_the_last_byte_that_is_not_zero)
{
	int64_t places[] = { 0, 1, 4095, (1 << 20) - 1, 1 << 20, 2500000 };
	int fd = new_file();

	ck_assert_int_eq(segment_truncate(fd, 3000000), 0);
	ck_assert_int_eq(scan_content_end(fd, 0, 3000000), 0);
	ck_assert_int_eq(scan_content_end(fd, 500, 3000000), 500);
	for (int i = 0; i < 6; i++) {
		ck_assert_int_eq(segment_write(fd, "\1", 1, places[i]), 0);
		ck_assert_int_eq(scan_content_end(fd, 0, 3000000), places[i] + 1);
		ck_assert_int_eq(scan_content_end(fd, places[i] + 1, 3000000), places[i] + 1);
	}
	close(fd);
	logkit_end(&kit);
}
END_TEST

START_TEST(the_content_of_a_terabyte_that_is_a_hole_ends_soon)
{
	int64_t terabyte = (int64_t)1 << 40, middle = 700 * ((int64_t)1 << 30) + 11;
	int fd = new_file();

	ck_assert_int_eq(segment_truncate(fd, terabyte), 0);
	ck_assert_int_eq(scan_content_end(fd, 0, terabyte), 0);
	ck_assert_int_eq(segment_write(fd, "\1", 1, middle), 0);
	ck_assert_int_eq(scan_content_end(fd, 0, terabyte), middle + 1);
	ck_assert_int_eq(scan_content_end(fd, middle + 1, terabyte), middle + 1);
	close(fd);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_record_is_found_behind_a_wrong_length)
{
	size_t bytes;
	uint8_t *batch = logkit_batch(RECORD_CRC32C, 0, 2, 500, &bytes);
	bool holds;
	int fd = new_file();

	ck_assert_int_eq(segment_write(fd, batch, bytes, 0), 0);
	ck_assert_int_eq(scan_holds_record(fd, 0, (int64_t)bytes, &holds), 0);
	ck_assert(holds);
	/* Its own beginning does not count, and a piece of one is none. */
	ck_assert_int_eq(scan_holds_record(fd, 508, (int64_t)bytes, &holds), 0);
	ck_assert(!holds);
	ck_assert_int_eq(scan_holds_record(fd, 0, (int64_t)bytes - 1, &holds), 0);
	ck_assert(!holds);
	close(fd);
	free(batch);
	logkit_end(&kit);
}
END_TEST

START_TEST(looking_for_a_record_is_bounded)
{
	size_t size = 8000000;
	uint8_t *bytes = malloc(size);
	bool holds;
	int fd = new_file();

	/* Every fourth byte begins a length of a MiB that fits: to sum them all up would take hours. */
	for (size_t i = 0; i < size; i++)
		bytes[i] = i % 4 == 1 ? 0x10 : 0;
	ck_assert_int_eq(segment_write(fd, bytes, size, 0), 0);
	ck_assert_int_eq(scan_holds_record(fd, 0, (int64_t)size, &holds), 0);
	ck_assert(holds);
	close(fd);
	free(bytes);
	logkit_end(&kit);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("segment");
	TCase *tests = tcase_create("segment");

	tcase_set_timeout(tests, 60);
	suite_add_tcase(suite, tests);
	tcase_add_test(tests, index_marks_are_an_interval_apart);
	tcase_add_loop_test(tests, whole_reads_and_writes, 0, 2);
	tcase_add_test(tests, a_write_of_nothing_is_an_error);
	tcase_add_test(tests, what_cannot_tell_its_holes_has_none);
	tcase_add_test(tests, a_file_is_created_in_place_of_a_leftover);
	tcase_add_loop_test(tests, a_walk_stops_at_its_limit_the_end_and_damage, 0, FORMATS);
	tcase_add_loop_test(tests, bug_A13_a_length_over_two_records, 0, 2 * FORMATS);
	tcase_add_test(tests, bug_A13_what_is_not_in_memory_is_not_passed_over);
	tcase_add_loop_test(tests, a_record_is_located_in_memory_or_sought_on_the_disk, 0, FORMATS);
	tcase_add_test(tests, a_segment_is_closed_with_its_last_reference);
	tcase_add_test(tests, what_is_in_memory_is_told_and_not_brought_there);
	tcase_add_loop_test(tests, a_scan_counts_what_is_valid, 0, FORMATS);
	tcase_add_test(tests, the_content_ends_behind_the_last_byte_that_is_not_zero);
	tcase_add_test(tests, the_content_of_a_terabyte_that_is_a_hole_ends_soon);
	tcase_add_test(tests, a_record_is_found_behind_a_wrong_length);
	tcase_add_test(tests, looking_for_a_record_is_bounded);
	return unit_run(suite);
}
