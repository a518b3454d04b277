/* Stored indexes; see the drawing in index_file.h. */
#include "worker/index_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "worker/direct.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

enum {
	FORMAT_VERSION = 1,
	MAGIC_BYTES = 8,
	HEADER_BYTES = 28,
	HEAD_BYTES = 52,	/* of a chunk, ahead of its marks */
	MARK_BYTES = 16,
	SUM_BYTES = 4,
	SMALLEST_RECORD_BYTES = 5,
	/* A slow log adds a chunk with hardly a mark every few seconds: so much more than the marks the heads may take. */
	HEADS_MAX_BYTES = 64 * 1024,
};

static const char magic[] = "lbindex\n";

_Static_assert(sizeof(magic) == MAGIC_BYTES + 1, "eight bytes");

void
index_file_name(char *to, int64_t base)
{
	snprintf(to, SEGMENT_NAME_BYTES, "%020" PRId64 ".index", base);
}

static void
temporary_name(char *to, int64_t base)
{
	snprintf(to, SEGMENT_NAME_BYTES, "%020" PRId64 ".index.tmp", base);
}

/* Writes the header; returns its sum. */
static uint32_t
put_header(uint8_t *to, int64_t base, enum record_format format)
{
	uint8_t *p = to + MAGIC_BYTES;
	uint32_t sum;

	memcpy(to, magic, MAGIC_BYTES);
	p = bytes_put_i32(p, FORMAT_VERSION);
	p = bytes_put_i32(p, format);
	p = bytes_put_i64(p, base);
	sum = crc32c(to, (size_t)(p - to));
	bytes_put_u32(p, sum);
	return sum;
}

/* ---- reading ---- */

/* An open file while it is read. */
struct reading {
	int fd;
	int64_t base;
	enum record_format format;
	int64_t file_bytes;
	uint8_t *chunk;		/* the sum before it, head, marks, sum */
};

/* All `bytes` of them. Returns 0, or -1 with errno: EBADMSG, the file ends inside. */
static int
read_whole(int fd, uint8_t *to, size_t bytes, int64_t position)
{
	ssize_t n = segment_read(fd, to, bytes, position);

	if (n >= 0 && (size_t)n < bytes)
		errno = EBADMSG;
	return n == (ssize_t)bytes ? 0 : -1;
}

static int
read_header(struct reading *r, struct index_file *file)
{
	uint8_t found[HEADER_BYTES], expected[HEADER_BYTES];

	file->sum = put_header(expected, r->base, r->format);
	file->bytes = HEADER_BYTES;
	if (read_whole(r->fd, found, HEADER_BYTES, 0) == -1)
		return -1;
	errno = EBADMSG;
	return memcmp(found, expected, HEADER_BYTES) == 0 ? 0 : -1;
}

static void
get_point(struct index_point *point, const uint8_t *head)
{
	point->end = bytes_get_i64(head + 4);
	point->position = bytes_get_i64(head + 12);
	point->last_position = bytes_get_i64(head + 20);
	memcpy(point->last_bytes, head + 28, INDEX_LAST_BYTES);
	point->first_append_ms = bytes_get_i64(head + 36);
	point->last_append_ms = bytes_get_i64(head + 44);
}

/* Could that be said of a segment in which the records up to `before` have been told of? */
static bool
follows(enum record_format format, const struct index_point *before, const struct index_point *point)
{
	if (point->end <= before->end || point->position <= before->position
	    || point->last_position < before->position || point->last_position >= point->position)
		return false;
	return (int64_t)segment_record_bytes(format, point->last_bytes) == point->position - point->last_position
	    && (point->position - before->position) / SMALLEST_RECORD_BYTES >= point->end - before->end;
}

/* Are these marks sorted, of records of this chunk, the first of them the segment's first one if the chunk is? */
static bool
marks_make_sense(const uint8_t *p, size_t count, const struct index_point *before, const struct index_point *point)
{
	struct index_mark last = { before->end - 1, before->position - 1 };

	if (before->position == 0 && (count == 0 || bytes_get_i64(p) != before->end || bytes_get_i64(p + 8) != 0))
		return false;
	for (size_t i = 0; i < count; i++, p += MARK_BYTES) {
		struct index_mark mark = { bytes_get_i64(p), bytes_get_i64(p + 8) };

		if (mark.offset <= last.offset || mark.position <= last.position)
			return false;
		last = mark;
	}
	return last.offset < point->end && last.position <= point->last_position;
}

static int
add_marks(struct index *index, const uint8_t *p, size_t count)
{
	size_t before = index->count;

	for (size_t i = 0; i < count; i++, p += MARK_BYTES)
		if (index_add(index, bytes_get_i64(p), bytes_get_i64(p + 8)) == -1) {
			index_cut(index, before);
			return -1;
		}
	return 0;
}

/* Makes room for a chunk of so many marks, which are not more than the file has bytes for. */
static int
reserve_chunk(struct reading *r, size_t count)
{
	uint8_t *grown = realloc(r->chunk, SUM_BYTES + HEAD_BYTES + count * MARK_BYTES + SUM_BYTES);

	if (grown == NULL)
		return -1;
	r->chunk = grown;
	return 0;
}

/* Reads the chunk behind those that are known. Returns 0, or -1 with errno and nothing changed: EBADMSG, it is none. */
static int
read_chunk(struct reading *r, struct index *index, struct index_file *file)
{
	int64_t rest = r->file_bytes - file->bytes - HEAD_BYTES - SUM_BYTES;
	struct index_point point;
	uint8_t *head, *sum;
	size_t count;

	if (rest < 0)
		goto none;
	if (reserve_chunk(r, 0) == -1 || read_whole(r->fd, r->chunk + SUM_BYTES, HEAD_BYTES, file->bytes) == -1)
		return -1;
	count = bytes_get_u32(r->chunk + SUM_BYTES);
	get_point(&point, r->chunk + SUM_BYTES);
	if ((int64_t)count > rest / MARK_BYTES || !follows(r->format, &file->point, &point))
		goto none;
	if (reserve_chunk(r, count) == -1)
		return -1;
	head = r->chunk + SUM_BYTES;
	sum = head + HEAD_BYTES + count * MARK_BYTES;
	if (read_whole(r->fd, head + HEAD_BYTES, count * MARK_BYTES + SUM_BYTES, file->bytes + HEAD_BYTES) == -1)
		return -1;
	bytes_put_u32(r->chunk, file->sum);
	if (crc32c(r->chunk, (size_t)(sum - r->chunk)) != bytes_get_u32(sum)
	    || !marks_make_sense(head + HEAD_BYTES, count, &file->point, &point))
		goto none;
	if (add_marks(index, head + HEAD_BYTES, count) == -1)
		return -1;
	file->point = point;
	file->marks += count;
	file->chunks++;
	file->bytes += sum + SUM_BYTES - head;
	file->sum = bytes_get_u32(sum);
	return 0;
none:
	errno = EBADMSG;
	return -1;
}

static int
read_all(struct reading *r, struct index *index, struct index_file *file)
{
	if (r->file_bytes == -1 || read_header(r, file) == -1)
		return -1;
	file->point = (struct index_point){ .end = r->base };
	while (read_chunk(r, index, file) == 0)
		continue;
	return errno == EBADMSG && file->chunks > 0 ? 0 : -1;
}

int
index_file_read(int dir_fd, int64_t base, enum record_format format, struct index *index, struct index_file *file,
    int64_t *stray_bytes)
{
	struct reading r = { .base = base, .format = format };
	char name[SEGMENT_NAME_BYTES];
	int error = 0;

	*file = (struct index_file){ 0 };
	index_file_name(name, base);
	r.fd = segment_open_regular(dir_fd, name, O_RDONLY);
	if (r.fd == -1)
		return -1;
	r.file_bytes = segment_file_bytes(r.fd);
	if (read_all(&r, index, file) == -1) {
		error = errno;
		index_cut(index, 0);
		*file = (struct index_file){ 0 };
	} else if (stray_bytes != NULL) {
		*stray_bytes = r.file_bytes - file->bytes;
	}
	close(r.fd);
	free(r.chunk);
	errno = error;
	return error == 0 ? 0 : -1;
}

int64_t
index_file_end(int dir_fd, int64_t base, enum record_format format)
{
	struct index_file file;
	struct index index;

	index_init(&index, 1);
	while (index_file_read(dir_fd, base, format, &index, &file, NULL) == 0 && file.point.end > base) {
		base = file.point.end;
		index_cut(&index, 0);
	}
	index_free(&index);
	return base;
}

/* ---- points ---- */

/* So many of its first bytes a point remembers of its last record. */
static size_t
remembered_bytes(const struct index_point *point)
{
	int64_t bytes = point->position - point->last_position;

	return bytes < INDEX_LAST_BYTES ? (size_t)bytes : INDEX_LAST_BYTES;
}

bool
index_point_fits(const struct index_point *point, int segment_fd, int64_t file_bytes)
{
	uint8_t found[INDEX_LAST_BYTES];
	size_t bytes = remembered_bytes(point);

	return point->position <= file_bytes
	    && direct_read(segment_fd, found, bytes, point->last_position) == (ssize_t)bytes
	    && memcmp(found, point->last_bytes, bytes) == 0;
}

int
index_point_find_last(struct index_point *point, int segment_fd, enum record_format format, struct index_mark from)
{
	struct segment walk = { .fd = segment_fd, .format = format, .end = from.offset, .bytes = from.position };
	int done;

	index_init(&walk.index, INT64_MAX / 2);
	done = segment_walk(&walk, point->position, point->end - 1);
	index_free(&walk.index);
	if (done == -1)
		return -1;
	point->last_position = walk.bytes;
	memset(point->last_bytes, 0, INDEX_LAST_BYTES);
	if (walk.end == point->end - 1
	    && read_whole(segment_fd, point->last_bytes, remembered_bytes(point), walk.bytes) == -1)
		return -1;
	errno = EBADMSG;
	return walk.bytes < point->position
	    && (int64_t)segment_record_bytes(format, point->last_bytes) == point->position - walk.bytes ? 0 : -1;
}

/* ---- taking ---- */

/* The file is what it should be: does it fit? */
static void
judge(struct index_taken *taken, struct segment *segment, int read_fd, int64_t file_bytes, int64_t limit)
{
	const struct index_point *point = &taken->file.point;

	if (point->end <= limit && index_point_fits(point, read_fd, file_bytes)) {
		segment->end = point->end;
		segment->bytes = point->position;
		/* What lies between the last mark and here is not looked at: whoever reads on from here does not walk over it. */
		segment->index.due_position = point->position;
		return;
	}
	taken->wrong = "it does not fit its segment";
	taken->forced_end = point->end;
	taken->file = (struct index_file){ 0 };
	index_cut(&segment->index, 0);
}

int
index_file_take(struct index_taken *taken, int dir_fd, struct segment *segment, int read_fd, int64_t file_bytes,
    int64_t limit)
{
	*taken = (struct index_taken){ 0 };
	if (index_file_read(dir_fd, segment->base, segment->format, &segment->index, &taken->file,
	    &taken->stray_bytes) == 0) {
		judge(taken, segment, read_fd, file_bytes, limit);
		return 0;
	}
	if (errno == ENOMEM || errno == EMFILE || errno == ENFILE)
		return -1;
	if (errno == EBADMSG)
		taken->wrong = "it is damaged, or no index of this log";
	else if (errno != ENOENT)
		taken->unread = errno;
	return 0;
}

/* ---- writing ---- */

/* What is written in one piece: a chunk, with the header ahead of it where it begins a file. */
struct encoded {
	uint8_t *memory;	/* header and chunk */
	const uint8_t *from;
	size_t bytes;
};

/* Encodes what follows on *file, which moves behind it. Returns 0, or -1 with errno ENOMEM. */
static int
encode(struct encoded *encoded, int64_t base, enum record_format format, struct index_file *file,
    const struct index_point *point, const struct index_mark *marks, size_t count)
{
	uint8_t *p, *chunk;

	encoded->memory = malloc(HEADER_BYTES + HEAD_BYTES + count * MARK_BYTES + SUM_BYTES);
	if (encoded->memory == NULL)
		return -1;
	chunk = encoded->memory + HEADER_BYTES;
	put_header(encoded->memory, base, format);
	/* The header ends in its sum: what stands ahead of the chunk is the sum before it, also where it is not written. */
	if (file->bytes > 0)
		bytes_put_u32(chunk - SUM_BYTES, file->sum);
	p = bytes_put_u32(chunk, (uint32_t)count);
	p = bytes_put_i64(p, point->end);
	p = bytes_put_i64(p, point->position);
	p = bytes_put_i64(p, point->last_position);
	memcpy(p, point->last_bytes, INDEX_LAST_BYTES);
	p = bytes_put_i64(p + INDEX_LAST_BYTES, point->first_append_ms);
	p = bytes_put_i64(p, point->last_append_ms);
	for (size_t i = 0; i < count; i++)
		p = bytes_put_i64(bytes_put_i64(p, marks[i].offset), marks[i].position);
	file->sum = crc32c(chunk - SUM_BYTES, (size_t)(p - chunk) + SUM_BYTES);
	p = bytes_put_u32(p, file->sum);
	encoded->from = file->bytes > 0 ? chunk : encoded->memory;
	encoded->bytes = (size_t)(p - encoded->from);
	file->bytes += (int64_t)encoded->bytes;
	file->point = *point;
	file->marks += count;
	file->chunks++;
	return 0;
}

static int
write_and_close(int fd, const struct encoded *encoded, int64_t position)
{
	int error = segment_write(fd, encoded->from, encoded->bytes, position) == -1 ? errno : 0;

	close(fd);
	errno = error;
	return error == 0 ? 0 : -1;
}

/* Begins a file, under a temporary name first: a left-over under the right one is replaced in one step. */
static int
write_first(int dir_fd, int64_t base, const struct encoded *encoded)
{
	char temporary[SEGMENT_NAME_BYTES], name[SEGMENT_NAME_BYTES];
	int fd, error;

	index_file_name(name, base);
	temporary_name(temporary, base);
	fd = segment_create_file(dir_fd, temporary);
	if (fd == -1)
		return -1;
	if (write_and_close(fd, encoded, 0) == 0 && syscalls.rename(dir_fd, temporary, name) == 0)
		return 0;
	error = errno;
	syscalls.unlink(dir_fd, temporary);
	errno = error;
	return -1;
}

/* Writes behind the chunks that are there, over what an interrupted write may have left. */
static int
write_next(int dir_fd, int64_t base, const struct encoded *encoded, int64_t position)
{
	char name[SEGMENT_NAME_BYTES];
	int64_t file_bytes;
	int fd, error;

	index_file_name(name, base);
	fd = segment_open_regular(dir_fd, name, O_WRONLY);
	if (fd == -1) {
		errno = errno == ENOENT ? ESTALE : errno;
		return -1;
	}
	file_bytes = segment_file_bytes(fd);
	if (file_bytes == position || (file_bytes > position && segment_truncate(fd, position) == 0))
		return write_and_close(fd, encoded, position);
	error = file_bytes != -1 && file_bytes < position ? ESTALE : errno;
	close(fd);
	errno = error;
	return -1;
}

/* All marks of the file and these in one chunk. */
static int
write_anew(int dir_fd, int64_t base, enum record_format format, struct index_file *file,
    const struct index_point *point, const struct index_mark *marks, size_t count)
{
	struct index_file old, fresh = { 0 };
	struct encoded encoded = { .memory = NULL };
	struct index index;
	int error = 0;

	index_init(&index, 1);
	if (index_file_read(dir_fd, base, format, &index, &old, NULL) == -1 || old.bytes != file->bytes
	    || old.sum != file->sum)
		error = ESTALE;
	for (size_t i = 0; error == 0 && i < count; i++)
		error = index_add(&index, marks[i].offset, marks[i].position) == -1 ? ENOMEM : 0;
	if (error == 0 && (encode(&encoded, base, format, &fresh, point, index.marks, index.count) == -1
	    || write_first(dir_fd, base, &encoded) == -1))
		error = errno;
	if (error == 0)
		*file = fresh;
	free(encoded.memory);
	index_free(&index);
	errno = error;
	return error == 0 ? 0 : -1;
}

static int
write_chunk(int dir_fd, int64_t base, enum record_format format, struct index_file *file,
    const struct index_point *point, const struct index_mark *marks, size_t count)
{
	struct index_file longer = *file;
	struct encoded encoded;
	int done;

	if (encode(&encoded, base, format, &longer, point, marks, count) == -1)
		return -1;
	done = file->bytes == 0 ? write_first(dir_fd, base, &encoded) : write_next(dir_fd, base, &encoded, file->bytes);
	free(encoded.memory);
	if (done == 0)
		*file = longer;
	return done;
}

int
index_file_append(int dir_fd, int64_t base, enum record_format format, struct index_file *file,
    const struct index_point *point, const struct index_mark *marks, size_t count)
{
	bool bloated = file->chunks * HEAD_BYTES > file->marks * MARK_BYTES + HEADS_MAX_BYTES;
	int done = bloated ? write_anew(dir_fd, base, format, file, point, marks, count)
	    : write_chunk(dir_fd, base, format, file, point, marks, count);

	if (done == -1 && errno == ESTALE)
		*file = (struct index_file){ 0 };
	return done;
}

int
index_file_store(int dir_fd, const struct segment *segment, struct index_file *file, struct index_point *point,
    const struct index_mark *marks, size_t count)
{
	struct index_mark from = { segment->base, 0 };

	if (file->bytes > 0)
		from = (struct index_mark){ file->point.end, file->point.position };
	if (count > 0 && marks[count - 1].offset > from.offset)
		from = marks[count - 1];
	if (index_point_find_last(point, segment->fd, segment->format, from) == -1)
		return -1;
	return index_file_append(dir_fd, segment->base, segment->format, file, point, marks, count);
}

int
index_file_store_all(int dir_fd, const struct segment *segment, struct index_file *file, struct index_point *point)
{
	const struct index *index = &segment->index;
	size_t count = index_count_below(index, point->end);

	if (index_file_store(dir_fd, segment, file, point, index->marks + file->marks, count - file->marks) == 0)
		return 0;
	if (errno != ESTALE)
		return -1;
	return index_file_store(dir_fd, segment, file, point, index->marks, count);
}

int
index_file_remove(int dir_fd, int64_t base)
{
	char name[SEGMENT_NAME_BYTES];

	index_file_name(name, base);
	return syscalls.unlink(dir_fd, name) == 0 || errno == ENOENT ? 0 : -1;
}
