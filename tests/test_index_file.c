/*
 * Stored indexes: what is written comes back; of a damaged, cut or foreign file the longest valid prefix or nothing; a
 * point is believed only beside the segment it was made for.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/index_file.h"
#include "worker/segment.h"

static const enum record_format formats[] = { RECORD_PLAIN, RECORD_CRC32C };
enum { FORMATS = 2, PAYLOAD = 100, PER_MARK = 10, HEADER_BYTES = 28, HEAD_BYTES = 52, MARK_BYTES = 16, SUM_BYTES = 4 };

static struct logkit kit;
static char path[LOGKIT_PATH_BYTES];		/* of the index file */
static char log_path[LOGKIT_PATH_BYTES];	/* of its segment */
static int dir_fd;
static int64_t base;
static struct index_file file;			/* as the writer knows it */
static struct index index_read;
static struct index_file file_read;

/* A directory with a segment `first` of 1,000 records (of `PAYLOAD` bytes), and no index. */
static void
begin(enum record_format format, int64_t first)
{
	char name[SEGMENT_NAME_BYTES];
	uint8_t *batch;
	size_t bytes;

	logkit_begin(&kit, format, 1 << 24);
	base = first;
	ck_assert_int_eq(mkdir(kit.path, 0750), 0);
	dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ne(dir_fd, -1);
	logkit_segment_path(&kit, base, log_path);
	batch = logkit_batch(format, base, 1000, PAYLOAD, &bytes);
	logkit_write_file(log_path, batch, bytes);
	free(batch);
	index_file_name(name, base);
	logkit_file_path(&kit, name, path);
	file = (struct index_file){ 0 };
	index_init(&index_read, 4096);
}

static void
end(void)
{
	index_free(&index_read);
	close(dir_fd);
	logkit_end(&kit);
}

static int64_t
position_of(int64_t offset)
{
	return (offset - base) * ((int64_t)record_header_bytes(kit.settings.record_format) + PAYLOAD);
}

static struct index_mark
mark_of(int64_t offset)
{
	return (struct index_mark){ offset, position_of(offset) };
}

/* What a chunk that ends behind `records` records says, with every PER_MARKth record in the index. */
static struct index_point
point_at(int64_t records)
{
	struct index_point point = { .end = base + records, .position = position_of(base + records),
		.first_append_ms = 1000 + base, .last_append_ms = 2000 + records };
	int fd = open(log_path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_eq(index_point_find_last(&point, fd, kit.settings.record_format, mark_of(base)), 0);
	close(fd);
	return point;
}

/* A chunk for the records `from` to before the point's end, counted from the segment's first. */
static int
try_append(int64_t from, const struct index_point *point)
{
	struct index_mark marks[200];
	size_t count = 0;

	for (int64_t i = from; i < point->end - base; i++)
		if (i % PER_MARK == 0)
			marks[count++] = mark_of(base + i);
	return index_file_append(dir_fd, base, kit.settings.record_format, &file, point, marks, count);
}

static void
append(int64_t from, int64_t to)
{
	struct index_point point = point_at(to);

	ck_assert_int_eq(try_append(from, &point), 0);
}

static void
expect_append_fails(int64_t from, int64_t to, int error)
{
	struct index_point point = point_at(to);

	ck_assert_int_eq(try_append(from, &point), -1);
	ck_assert_int_eq(errno, error);
	ck_assert_int_eq(file.bytes, 0);
}

static int
read_file(void)
{
	index_free(&index_read);
	return index_file_read(dir_fd, base, kit.settings.record_format, &index_read, &file_read, NULL);
}

static void
expect_read(int64_t records)
{
	struct index_point point = point_at(records);

	ck_assert_int_eq(read_file(), 0);
	ck_assert_int_eq(file_read.point.end, point.end);
	ck_assert_int_eq(file_read.point.position, point.position);
	ck_assert_int_eq(file_read.point.last_position, point.last_position);
	ck_assert_mem_eq(file_read.point.last_bytes, point.last_bytes, INDEX_LAST_BYTES);
	ck_assert_int_eq(file_read.point.first_append_ms, point.first_append_ms);
	ck_assert_int_eq(file_read.point.last_append_ms, point.last_append_ms);
	ck_assert_uint_eq(file_read.marks, index_read.count);
	ck_assert_uint_eq(index_read.count, (size_t)(records + PER_MARK - 1) / PER_MARK);
	for (size_t i = 0; i < index_read.count; i++) {
		ck_assert_int_eq(index_read.marks[i].offset, base + (int64_t)i * PER_MARK);
		ck_assert_int_eq(index_read.marks[i].position, position_of(index_read.marks[i].offset));
	}
}

static void
expect_refused(void)
{
	ck_assert_int_eq(read_file(), -1);
	ck_assert_int_eq(errno, EBADMSG);
	ck_assert_uint_eq(index_read.count, 0);
	ck_assert_int_eq(file_read.bytes, 0);
}

START_TEST(what_is_written_comes_back)
{
	begin(formats[_i % FORMATS], _i / FORMATS == 0 ? 0 : 123456789);
	ck_assert_int_eq(read_file(), -1);
	ck_assert_int_eq(errno, ENOENT);
	append(0, 1);
	expect_read(1);
	append(1, 501);
	expect_read(501);
	/* Without a mark. */
	append(501, 505);
	expect_read(505);
	append(505, 1000);
	expect_read(1000);
	ck_assert_int_eq(file_read.bytes, logkit_file_bytes(path));
	ck_assert_int_eq(file_read.bytes, HEADER_BYTES + 4 * (HEAD_BYTES + SUM_BYTES) + 100 * MARK_BYTES);
	ck_assert_uint_eq(file_read.chunks, 4);
	/* What was read can be gone on with. */
	ck_assert_int_eq(file_read.bytes, file.bytes);
	ck_assert_uint_eq(file_read.sum, file.sum);
	ck_assert_int_eq(index_file_remove(dir_fd, base), 0);
	ck_assert_int_eq(logkit_file_bytes(path), -1);
	ck_assert_int_eq(index_file_remove(dir_fd, base), 0);
	end();
}
END_TEST

START_TEST(another_interval_goes_on_with_stored_marks)
{
	begin(RECORD_CRC32C, 0);
	append(0, 1000);
	index_init(&index_read, 100000);
	expect_read(1000);
	ck_assert_int_eq(index_read.due_position, position_of(990) + 100000);
	index_free(&index_read);
	index_init(&index_read, 64);
	expect_read(1000);
	ck_assert_int_eq(index_read.due_position, position_of(990) + 64);
	end();
}
END_TEST

/* The records that the chunks up to byte `bytes` of the file speak of. */
static int64_t
records_in(int64_t bytes, const int64_t *ends, const int64_t *records, int count)
{
	int64_t in = 0;

	for (int i = 0; i < count; i++)
		if (ends[i] <= bytes)
			in = records[i];
	return in;
}

enum { CHUNKS = 4 };
static const int64_t chunk_records[CHUNKS] = { 3, 40, 45, 90 };

/* A file of several chunks; stores where each ends. */
static uint8_t *
several_chunks(int64_t *ends, size_t *bytes)
{
	int64_t from = 0;

	for (int i = 0; i < CHUNKS; i++) {
		append(from, chunk_records[i]);
		ends[i] = file.bytes;
		from = chunk_records[i];
	}
	return logkit_read_file(path, bytes);
}

static void
expect_prefix(int64_t good_bytes, const int64_t *ends)
{
	int64_t records = records_in(good_bytes, ends, chunk_records, CHUNKS);

	if (records == 0)
		expect_refused();
	else
		expect_read(records);
}

START_TEST(every_byte_flipped)
{
	int64_t ends[CHUNKS];
	size_t bytes;
	uint8_t *whole;

	begin(formats[_i], 77);
	whole = several_chunks(ends, &bytes);
	for (size_t i = 0; i < bytes; i++)
		for (int bit = 0; bit < 8; bit += 7) {
			whole[i] ^= (uint8_t)(1 << bit);
			logkit_write_file(path, whole, bytes);
			expect_prefix((int64_t)i, ends);
			whole[i] ^= (uint8_t)(1 << bit);
		}
	free(whole);
	end();
}
END_TEST

START_TEST(cut_at_every_byte)
{
	int64_t ends[CHUNKS];
	size_t bytes;
	uint8_t *whole;

	begin(formats[_i], 77);
	whole = several_chunks(ends, &bytes);
	for (size_t kept = 0; kept <= bytes; kept++) {
		logkit_write_file(path, whole, kept);
		expect_prefix((int64_t)kept, ends);
	}
	free(whole);
	end();
}
END_TEST

/* What a power cut leaves of a file that grew: zeros or garbage from some page on, or only in one. */
START_TEST(zeros_and_garbage_behind_any_byte)
{
	int64_t ends[CHUNKS];
	size_t bytes;
	uint8_t *whole, *damaged;

	begin(RECORD_CRC32C, 77);
	whole = several_chunks(ends, &bytes);
	damaged = malloc(bytes);
	for (size_t from = 0; from < bytes; from++) {
		size_t hole = bytes - from < 50 ? bytes - from : 50;

		/* A byte that is zero already is no damage. */
		if (whole[from] == 0)
			continue;
		memcpy(damaged, whole, bytes);
		memset(damaged + from, 0, bytes - from);
		logkit_write_file(path, damaged, bytes);
		expect_prefix((int64_t)from, ends);
		memcpy(damaged, whole, bytes);
		memset(damaged + from, 0, hole);
		logkit_write_file(path, damaged, bytes);
		expect_prefix((int64_t)from, ends);
	}
	free(damaged);
	free(whole);
	end();
}
END_TEST

START_TEST(random_bytes_are_no_index)
{
	unsigned seed = (unsigned)time(NULL) * 2 + (unsigned)getpid();
	uint8_t garbage[5000] = { 0 }, *whole;
	int64_t stray;
	size_t bytes;

	printf("random_bytes_are_no_index: seed %u\n", seed);
	fflush(stdout);
	srand(seed);
	begin(formats[_i], 0);
	append(0, 50);
	whole = logkit_read_file(path, &bytes);
	for (int round = 0; round < 500; round++) {
		size_t size = (size_t)rand() % sizeof(garbage);

		for (size_t i = 0; i < size; i++)
			garbage[i] = (uint8_t)rand();
		logkit_write_file(path, garbage, size);
		expect_refused();
		/* Behind a good header; with a count that no memory has; behind a good chunk. */
		memcpy(garbage, whole, HEADER_BYTES);
		logkit_write_file(path, garbage, size);
		if (size >= HEADER_BYTES)
			expect_refused();
		logkit_write_file(path, whole, bytes);
		logkit_change(path, HEADER_BYTES, "\xFF\xFF\xFF\xFF", 1 + round % 4);
		expect_refused();
		logkit_write_file(path, whole, bytes);
		logkit_change(path, (int64_t)bytes, garbage + HEADER_BYTES, sizeof(garbage) - HEADER_BYTES);
		expect_read(50);
		index_free(&index_read);
		ck_assert_int_eq(index_file_read(dir_fd, base, formats[_i], &index_read, &file_read, &stray), 0);
		ck_assert_int_eq(stray, sizeof(garbage) - HEADER_BYTES);
	}
	free(whole);
	end();
}
END_TEST

/* Changes the int32 at `position` and corrects the header's sum. */
static void
change_header(int64_t position, int32_t value)
{
	size_t bytes;
	uint8_t *whole = logkit_read_file(path, &bytes);

	bytes_put_i32(whole + position, value);
	bytes_put_u32(whole + HEADER_BYTES - 4, crc32c(whole, HEADER_BYTES - 4));
	logkit_write_file(path, whole, bytes);
	free(whole);
}

START_TEST(from_the_future_or_of_another_log)
{
	begin(RECORD_CRC32C, 0);
	append(0, 50);
	change_header(8, 2);
	expect_refused();
	change_header(8, 0);
	expect_refused();
	change_header(8, 1);
	change_header(12, RECORD_PLAIN);
	expect_refused();
	change_header(12, RECORD_CRC32C);
	change_header(20, 5);
	expect_refused();
	end();
}
END_TEST

/* Well-formed chunks that no log could have brought about. */
START_TEST(what_cannot_be_is_not_believed)
{
	struct index_point good, bad;
	struct index_mark marks[3] = { { 0, 0 }, { 10, 1080 }, { 20, 2160 } };
	struct index_mark other[3];

	begin(RECORD_CRC32C, 0);
	good = point_at(30);
	for (int i = 0; i < 14; i++) {
		size_t count = 3;

		bad = good;
		memcpy(other, marks, sizeof(other));
		switch (i) {
		case 0: bad.end = 0; break;
		case 1: bad.end = -5; break;
		case 2: bad.position = 0; break;
		case 3: bad.position = -1; break;
		case 4: bad.last_position = bad.position; break;
		case 5: bad.last_position += 1; break;
		case 6: bad.end = bad.position; break;		/* more records than fit */
		case 7: other[1] = other[0]; break;
		case 8: other[2].position = bad.position; break;
		case 9: other[2].offset = bad.end; break;
		case 10: other[0].position = 3; break;
		case 11: count = 0; break;
		case 12: other[0].offset = 1; break;
		case 13: other[1].position = 0; break;
		}
		file = (struct index_file){ 0 };
		ck_assert_int_eq(index_file_append(dir_fd, 0, RECORD_CRC32C, &file, &bad, other, count), 0);
		expect_refused();
	}
	file = (struct index_file){ 0 };
	ck_assert_int_eq(index_file_append(dir_fd, 0, RECORD_CRC32C, &file, &good, marks, 3), 0);
	ck_assert_int_eq(read_file(), 0);
	/* A chunk must lead on from the one before. */
	ck_assert_int_eq(index_file_append(dir_fd, 0, RECORD_CRC32C, &file, &good, NULL, 0), 0);
	ck_assert_int_eq(read_file(), 0);
	ck_assert_uint_eq(file_read.chunks, 1);
	end();
}
END_TEST

/* A left-over behind the chunks, where the next one should stand: right in itself, but it followed another one. */
START_TEST(a_chunk_of_another_time)
{
	uint8_t *other;
	size_t bytes;

	begin(RECORD_CRC32C, 0);
	append(0, 30);
	append(30, 60);
	other = logkit_read_file(path, &bytes);
	file = (struct index_file){ 0 };
	append(0, 10);
	append(10, 30);
	/* The same place in the log. */
	logkit_change(path, file.bytes, other + HEADER_BYTES + HEAD_BYTES + SUM_BYTES + 3 * MARK_BYTES,
	    HEAD_BYTES + SUM_BYTES + 3 * MARK_BYTES);
	expect_read(30);
	append(30, 60);
	expect_read(60);
	free(other);
	end();
}
END_TEST

START_TEST(no_regular_file)
{
	begin(RECORD_CRC32C, 0);
	ck_assert_int_eq(symlink(log_path, path), 0);
	ck_assert_int_eq(read_file(), -1);
	ck_assert_int_eq(errno, ELOOP);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(read_file(), -1);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(read_file(), -1);
	expect_append_fails(0, 10, EISDIR);
	ck_assert_int_eq(logkit_count_files(&kit, ".tmp"), 0);
	ck_assert_int_eq(rmdir(path), 0);
	append(0, 10);
	expect_read(10);
	end();
}
END_TEST

/* ---- points and segments ---- */

static bool
fits(void)
{
	int fd = open(log_path, O_RDONLY | O_CLOEXEC);
	bool does = index_point_fits(&file.point, fd, segment_file_bytes(fd));

	close(fd);
	return does;
}

START_TEST(a_point_fits_its_segment_alone)
{
	int64_t header;
	uint8_t *batch;
	size_t bytes;

	begin(formats[_i], 0);
	header = (int64_t)record_header_bytes(formats[_i]);
	append(0, 500);
	ck_assert(fits());
	/* Longer and shorter ones of this log. */
	logkit_truncate(log_path, file.point.position);
	ck_assert(fits());
	logkit_truncate(log_path, file.point.position - 1);
	ck_assert(!fits());
	/* A preallocated file has zeros there. */
	logkit_truncate(log_path, position_of(499));
	logkit_truncate(log_path, position_of(2000));
	ck_assert(!fits());
	/* Other records of the same length; the same content elsewhere. */
	batch = logkit_batch(formats[_i], 10000, 600, PAYLOAD, &bytes);
	logkit_write_file(log_path, batch, bytes);
	free(batch);
	ck_assert(!fits());
	batch = logkit_batch(formats[_i], 1, 600, PAYLOAD, &bytes);
	logkit_write_file(log_path, batch, bytes);
	free(batch);
	ck_assert(!fits());
	/* Damage is the reader's business, but for the last record's first eight bytes. */
	batch = logkit_batch(formats[_i], 0, 600, PAYLOAD, &bytes);
	logkit_write_file(log_path, batch, bytes);
	free(batch);
	logkit_flip(log_path, position_of(20));
	logkit_flip(log_path, position_of(499) + header + 50);
	ck_assert(fits());
	logkit_flip(log_path, position_of(499) + 7);
	ck_assert(!fits());
	end();
}
END_TEST

/* The smallest records, whose bytes are fewer than a point remembers. */
START_TEST(a_last_record_of_a_few_bytes)
{
	struct index_point point = { .end = 3, .position = 15 };
	struct index_mark mark = { 0, 0 };
	uint8_t *batch;
	size_t bytes;
	int fd;

	begin(RECORD_PLAIN, 0);
	batch = logkit_batch(RECORD_PLAIN, 0, 4, 1, &bytes);
	logkit_write_file(log_path, batch, bytes);
	fd = open(log_path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(index_point_find_last(&point, fd, RECORD_PLAIN, mark), 0);
	ck_assert_int_eq(point.last_position, 10);
	ck_assert_mem_eq(point.last_bytes, batch + 10, 5);
	ck_assert_mem_eq(point.last_bytes + 5, "\0\0\0", 3);
	ck_assert(index_point_fits(&point, fd, 20));
	ck_assert(index_point_fits(&point, fd, 15));
	ck_assert_int_eq(index_file_append(dir_fd, 0, RECORD_PLAIN, &file, &point, &mark, 1), 0);
	ck_assert_int_eq(read_file(), 0);
	close(fd);
	free(batch);
	end();
}
END_TEST

START_TEST(the_last_record_is_found_by_its_lengths)
{
	struct index_point point;
	int fd;

	begin(formats[_i], 50);
	fd = open(log_path, O_RDWR | O_CLOEXEC);
	for (int64_t from = 0; from < 200; from += 13) {
		point = (struct index_point){ .end = base + 200, .position = position_of(base + 200) };
		ck_assert_int_eq(index_point_find_last(&point, fd, formats[_i], mark_of(base + from)), 0);
		ck_assert_int_eq(point.last_position, position_of(base + 199));
	}
	/* An end that is none, an offset that does not go with it, a file that ends before, damage on the way. */
	for (int i = 0; i < 6; i++) {
		point = (struct index_point){ .end = base + 200, .position = position_of(base + 200) };
		if (i == 0)
			point.position += 1;
		else if (i < 3)
			point.end += i;
		else if (i == 3)
			point.end -= 1;
		else if (i == 4)
			logkit_flip(log_path, position_of(base + 150));
		else
			logkit_truncate(log_path, position_of(base + 190));
		ck_assert_int_eq(index_point_find_last(&point, fd, formats[_i], mark_of(base)), -1);
		ck_assert_int_eq(errno, EBADMSG);
	}
	close(fd);
	end();
}
END_TEST

/* ---- writing ---- */

/* `_i`: the first chunk; one more; one more over what an interrupted write has left. */
START_TEST(a_failed_write_leaves_what_was_there)
{
	int errors[] = { EIO, ENOSPC, EROFS };

	for (int call = 0; call < CALL_COUNT; call++)
		for (int at = 1;; at++) {
			struct index_point point;
			bool hit;
			int fds;

			begin(formats[at % FORMATS], 0);
			point = point_at(60);
			fds = logkit_open_descriptors();
			if (_i > 0)
				append(0, 30);
			if (_i == 2)
				logkit_truncate(path, 10000);
			logkit_set_fault((struct logkit_fault){ .call = call, .at = at, .error = errors[at % 3], .aim = LOGKIT_AT_ALL });
			if (try_append(_i > 0 ? 30 : 0, &point) == -1) {
				hit = logkit_fault_hit();
				ck_assert(hit);
				ck_assert_int_eq(errno, errors[at % 3]);
				logkit_clear_fault();
				if (_i > 0)
					expect_read(30);
				else
					ck_assert_int_eq(read_file(), -1);
				append(_i > 0 ? 30 : 0, 50);
				append(50, 60);
			} else {
				hit = logkit_fault_hit();
				logkit_clear_fault();
			}
			expect_read(60);
			ck_assert_int_eq(logkit_count_files(&kit, ".tmp"), 0);
			ck_assert_int_eq(logkit_open_descriptors(), fds);
			end();
			if (!hit)
				break;
		}
}
END_TEST

START_TEST(a_crash_at_any_call_leaves_what_was_there)
{
	for (int at = 1;; at++) {
		struct index_point point;
		int status;
		pid_t child;

		begin(RECORD_CRC32C, 0);
		point = point_at(60);
		if (_i == 1)
			append(0, 30);
		child = fork();
		if (child == 0) {
			logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = LOGKIT_EXIT, .aim = LOGKIT_AT_ALL });
			_exit(try_append(_i == 1 ? 30 : 0, &point) == 0 ? 0 : 1);
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFEXITED(status));
		if (read_file() == 0)
			expect_read(file_read.point.end);
		else
			ck_assert_int_eq(_i, 0);
		file = file_read;
		append(file.point.end, 70);
		expect_read(70);
		end();
		if (WEXITSTATUS(status) == 0)
			break;
		ck_assert_int_eq(WEXITSTATUS(status), 77);
	}
}
END_TEST

START_TEST(a_file_that_was_changed_is_begun_anew)
{
	begin(RECORD_CRC32C, 0);
	append(0, 30);
	ck_assert_int_eq(unlink(path), 0);
	expect_append_fails(30, 60, ESTALE);
	append(0, 60);
	expect_read(60);
	logkit_truncate(path, 40);
	expect_append_fails(60, 70, ESTALE);
	append(0, 70);
	expect_read(70);
	/* What stands behind the chunks is overwritten. */
	logkit_truncate(path, 10000);
	append(70, 80);
	expect_read(80);
	ck_assert_int_eq(logkit_file_bytes(path), file.bytes);
	end();
}
END_TEST

enum { SLOW_RECORDS = 6000, SLOW_BYTES = 5 };

static void
begin_slow(void)
{
	uint8_t *batch;
	size_t bytes;

	begin(RECORD_PLAIN, 0);
	batch = logkit_batch(RECORD_PLAIN, 0, SLOW_RECORDS, 1, &bytes);
	logkit_write_file(log_path, batch, bytes);
	free(batch);
}

/* A chunk for the record `at` alone, with or without a mark. */
static int
try_append_slow(int64_t at, bool marked)
{
	struct index_mark mark = { at, at * SLOW_BYTES };
	struct index_point point = { .end = at + 1, .position = (at + 1) * SLOW_BYTES };
	int fd = open(log_path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_eq(index_point_find_last(&point, fd, RECORD_PLAIN, mark), 0);
	close(fd);
	return index_file_append(dir_fd, 0, RECORD_PLAIN, &file, &point, &mark, marked);
}

/* A chunk for every record, and hardly a mark in them. */
START_TEST(a_slow_log_does_not_fill_the_disk_with_heads)
{
	enum { RECORDS = SLOW_RECORDS, BYTES = SLOW_BYTES, EVERY = 1000 };
	int64_t largest = 0;

	begin_slow();
	for (int64_t i = 0; i < RECORDS; i++) {
		ck_assert_int_eq(try_append_slow(i, i % EVERY == 0), 0);
		if (logkit_file_bytes(path) > largest)
			largest = logkit_file_bytes(path);
	}
	ck_assert_int_lt(largest, 80 * 1024);
	ck_assert_int_eq(read_file(), 0);
	ck_assert_int_eq(file_read.point.end, RECORDS);
	ck_assert_uint_eq(index_read.count, RECORDS / EVERY);
	for (size_t i = 0; i < index_read.count; i++)
		ck_assert_int_eq(index_read.marks[i].position, (int64_t)i * EVERY * BYTES);
	ck_assert_int_eq(logkit_count_files(&kit, ".tmp"), 0);
	end();
}
END_TEST

/* Begins a file that is all heads: the next chunk writes it anew. Returns its bytes. */
static uint8_t *
all_heads(size_t *bytes)
{
	begin_slow();
	for (int64_t i = 0; file.chunks * HEAD_BYTES <= file.marks * MARK_BYTES + 64 * 1024; i++)
		ck_assert_int_eq(try_append_slow(i, i == 0), 0);
	return logkit_read_file(path, bytes);
}

/* The n-th such call fails; returns whether there is one. What is not written anew is what it was. */
static bool
try_anew(const uint8_t *whole, size_t bytes, const struct index_file *before, int call, int at)
{
	int fds = logkit_open_descriptors();
	int error = 0;
	bool hit;

	logkit_write_file(path, whole, bytes);
	file = *before;
	logkit_set_fault((struct logkit_fault){ .call = call, .at = at, .error = ENOSPC, .aim = LOGKIT_AT_CACHES });
	if (try_append_slow((int64_t)before->chunks, true) == -1)
		error = errno;
	hit = logkit_fault_hit();
	logkit_clear_fault();
	ck_assert_int_eq(error != 0, hit);
	ck_assert_int_eq(read_file(), 0);
	ck_assert_int_eq(file_read.chunks, hit ? before->chunks : 1);
	ck_assert_uint_eq(index_read.count, hit ? 1 : 2);
	/* One that cannot be read is taken for another one: the next chunk begins it anew. */
	ck_assert(error == ESTALE ? file.bytes == 0 : file.bytes == file_read.bytes && file.sum == file_read.sum);
	ck_assert(!hit || error == ESTALE || error == ENOSPC);
	ck_assert_int_eq(logkit_count_files(&kit, ".tmp"), 0);
	ck_assert_int_eq(logkit_open_descriptors(), fds);
	return hit;
}

START_TEST(a_file_that_cannot_be_written_anew_is_still_there)
{
	struct index_file before;
	uint8_t *whole;
	size_t bytes;

	whole = all_heads(&bytes);
	before = file;
	for (int call = 0; call < CALL_COUNT; call++)
		/* Of the thousands of reads the first one will do. */
		for (int at = 1; try_anew(whole, bytes, &before, call, at) && call != CALL_PREAD; at++)
			continue;
	free(whole);
	end();
}
END_TEST

/* `_i`: what is known of it is another length, or another sum. */
START_TEST(another_file_is_not_written_anew)
{
	size_t bytes;

	free(all_heads(&bytes));
	if (_i == 0)
		file.bytes -= 1;
	else
		file.sum ^= 1;
	ck_assert_int_eq(try_append_slow((int64_t)file.chunks, true), -1);
	ck_assert_int_eq(errno, ESTALE);
	ck_assert_int_eq(file.bytes, 0);
	ck_assert_int_eq(logkit_file_bytes(path), bytes);
	end();
}
END_TEST

static void
add_tests(TCase *tests)
{
	tcase_add_loop_test(tests, what_is_written_comes_back, 0, 2 * FORMATS);
	tcase_add_test(tests, another_interval_goes_on_with_stored_marks);
	tcase_add_loop_test(tests, every_byte_flipped, 0, FORMATS);
	tcase_add_loop_test(tests, cut_at_every_byte, 0, FORMATS);
	tcase_add_test(tests, zeros_and_garbage_behind_any_byte);
	tcase_add_loop_test(tests, random_bytes_are_no_index, 0, FORMATS);
	tcase_add_test(tests, from_the_future_or_of_another_log);
	tcase_add_test(tests, what_cannot_be_is_not_believed);
	tcase_add_test(tests, a_chunk_of_another_time);
	tcase_add_test(tests, no_regular_file);
	tcase_add_loop_test(tests, a_point_fits_its_segment_alone, 0, FORMATS);
	tcase_add_test(tests, a_last_record_of_a_few_bytes);
	tcase_add_loop_test(tests, the_last_record_is_found_by_its_lengths, 0, FORMATS);
	tcase_add_loop_test(tests, a_failed_write_leaves_what_was_there, 0, 3);
	tcase_add_loop_test(tests, a_crash_at_any_call_leaves_what_was_there, 0, 2);
	tcase_add_test(tests, a_file_that_was_changed_is_begun_anew);
	tcase_add_test(tests, a_slow_log_does_not_fill_the_disk_with_heads);
	tcase_add_test(tests, a_file_that_cannot_be_written_anew_is_still_there);
	tcase_add_loop_test(tests, another_file_is_not_written_anew, 0, 2);
}

int
main(void)
{
	Suite *suite = suite_create("index file");
	TCase *tests = tcase_create("index file");

	tcase_set_timeout(tests, 60);
	suite_add_tcase(suite, tests);
	add_tests(tests);
	return unit_run(suite);
}
