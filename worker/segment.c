/* One segment file, read and written at known positions only: there is no file offset that threads could disturb. */
#include "worker/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/direct.h"
#include "worker/mapping.h"
#include "worker/syscalls.h"

enum {
	LENGTH_BYTES = 4,
	WALK_WINDOW_BYTES = 256 * 1024,
	LOCATE_WINDOW_BYTES = 8 * 1024,		/* an index interval by default, and then some */
};

/* Bytes of the file in memory, for the walk from length to length. */
struct window {
	uint8_t *buffer;
	size_t capacity;
	size_t filled;
	int64_t position;	/* in the file, of buffer[0] */
	struct residency *residency;	/* not NULL: what is not in memory is not read but EAGAIN */
};

void
segment_name(char *to, int64_t base)
{
	snprintf(to, SEGMENT_NAME_BYTES, "%020" PRId64 ".log", base);
}

void
segment_temporary_name(char *to, int64_t base)
{
	snprintf(to, SEGMENT_NAME_BYTES, "%020" PRId64 ".log.tmp", base);
}

int64_t
segment_parse_base(const char *name)
{
	int64_t base = 0;

	for (int i = 0; i < SEGMENT_BASE_DIGITS; i++) {
		if (name[i] < '0' || name[i] > '9')
			return -1;
		if (__builtin_mul_overflow(base, 10, &base) || __builtin_add_overflow(base, name[i] - '0', &base))
			return -1;
	}
	return base;
}

struct segment *
segment_new(int fd, int64_t base, enum record_format format, int64_t index_interval_bytes)
{
	struct segment *segment = calloc(1, sizeof(*segment));

	if (segment == NULL)
		return NULL;
	atomic_init(&segment->references, 1);
	segment->fd = fd;
	segment->format = format;
	segment->base = base;
	segment->end = base;
	segment->cut_position = INT64_MAX;
	index_init(&segment->index, index_interval_bytes);
	/* Left to itself the kernel would begin reading ahead in whatever thread touches a page, megabytes in the loop's; and
	 * the first read after a write would be a write too, of the time it was made. (Refused to all but the owner.) */
	syscalls.fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NOATIME);
	return segment;
}

void
segment_hold(struct segment *segment)
{
	atomic_fetch_add_explicit(&segment->references, 1, memory_order_relaxed);
}

void
segment_drop(struct segment *segment)
{
	if (segment == NULL || atomic_fetch_sub_explicit(&segment->references, 1, memory_order_acq_rel) != 1)
		return;
	residency_end(&segment->residency);
	close(segment->fd);
	index_free(&segment->index);
	free(segment);
}

bool
segment_is_shared(const struct segment *segment)
{
	return atomic_load_explicit(&segment->references, memory_order_acquire) > 1;
}

int
segment_open_regular(int dir_fd, const char *name, int flags)
{
	struct stat st;
	int fd, error = 0;

	/* O_NONBLOCK: a pipe put there since the listing must not hold us up. It means nothing to a regular file. */
	fd = syscalls.open(dir_fd, name, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd == -1)
		return -1;
	if (syscalls.fstat(fd, &st) == -1)
		error = errno;
	else if (!S_ISREG(st.st_mode))
		error = EIO;
	if (error == 0)
		return fd;
	close(fd);
	errno = error;
	return -1;
}

int
segment_open_file(int dir_fd, int64_t base, int flags)
{
	char name[SEGMENT_NAME_BYTES];

	segment_name(name, base);
	return segment_open_regular(dir_fd, name, flags);
}

int
segment_create_file(int dir_fd, const char *name)
{
	int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
	int fd = syscalls.open(dir_fd, name, flags, SEGMENT_FILE_MODE);

	if (fd == -1 && errno == EEXIST && syscalls.unlink(dir_fd, name) == 0)
		fd = syscalls.open(dir_fd, name, flags, SEGMENT_FILE_MODE);
	if (fd == -1)
		return -1;
	if (syscalls.fchmod(fd, SEGMENT_FILE_MODE) == -1) {
		int error = errno;

		close(fd);
		syscalls.unlink(dir_fd, name);
		errno = error;
		return -1;
	}
	return fd;
}

int64_t
segment_file_bytes(int fd)
{
	struct stat st;

	return syscalls.fstat(fd, &st) == -1 ? -1 : (int64_t)st.st_size;
}

int64_t
segment_whole_bytes(int fd, int64_t bytes)
{
	struct stat st;

	if (syscalls.fstat(fd, &st) == -1)
		return -1;
	if (st.st_nlink > 0 && (int64_t)st.st_size >= bytes)
		return (int64_t)st.st_size;
	errno = EIO;
	return -1;
}

int64_t
segment_behind_hole(int fd, int64_t position, int64_t file_bytes)
{
	off_t data = lseek(fd, position, SEEK_DATA);

	if (data == -1)
		return errno == ENXIO ? file_bytes : position;
	return data;
}

int
segment_write(int fd, const void *from, size_t bytes, int64_t position)
{
	const uint8_t *p = from;

	while (bytes > 0) {
		ssize_t n = syscalls.pwrite(fd, p, bytes, position);

		if (n == -1 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n == 0 ? EIO : errno;
			return -1;
		}
		p += n;
		bytes -= (size_t)n;
		position += n;
	}
	return 0;
}

ssize_t
segment_read(int fd, void *to, size_t bytes, int64_t position)
{
	size_t got = 0;

	while (got < bytes) {
		ssize_t n = syscalls.pread(fd, (uint8_t *)to + got, bytes - got, position + (int64_t)got);

		if (n == -1 && errno == EINTR)
			continue;
		if (n == -1)
			return -1;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

int
segment_truncate(int fd, int64_t bytes)
{
	int done;

	do
		done = syscalls.ftruncate(fd, bytes);
	while (done == -1 && errno == EINTR);
	return done;
}

/* Notes the batch in the index as if it were written, and checks that it is what the caller says. */
static int
note_batch(struct segment *segment, const uint8_t *p, size_t bytes, int64_t count)
{
	int64_t position = segment->bytes;

	for (int64_t i = 0; i < count; i++) {
		size_t n = bytes < LENGTH_BYTES ? 0 : segment_record_bytes(segment->format, p);

		if (n == 0 || n > bytes) {
			errno = EINVAL;
			return -1;
		}
		if (index_note(&segment->index, segment->end + i, position) == -1)
			return -1;
		p += n;
		bytes -= n;
		position += (int64_t)n;
	}
	errno = EINVAL;
	return bytes == 0 ? 0 : -1;
}

static int
write_batch(const struct segment *segment, const struct mapping *mapping, const uint8_t *records, size_t bytes)
{
	if (mapping != NULL)
		return mapping_write(mapping, segment->fd, records, bytes, segment->bytes);
	/* In a file that was cut a hole would come ahead of the records, and recovery would end there. */
	if (segment_whole_bytes(segment->fd, segment->bytes) == -1)
		return -1;
	return segment_write(segment->fd, records, bytes, segment->bytes);
}

int
segment_append(struct segment *segment, const struct mapping *mapping, const uint8_t *records, size_t bytes,
    int64_t count)
{
	size_t marks = segment->index.count;

	if (note_batch(segment, records, bytes, count) == -1
	    || write_batch(segment, mapping, records, bytes) == -1) {
		index_cut(&segment->index, marks);
		return -1;
	}
	segment->end += count;
	segment->bytes += (int64_t)bytes;
	return 0;
}

/* Reads what is in memory of these bytes. Returns their number, or -1: EAGAIN, not even a length. */
static ssize_t
read_in_memory(struct residency *residency, int fd, void *to, size_t bytes, int64_t position)
{
	size_t there = (size_t)residency_bytes(residency, fd, position, (int64_t)bytes);
	ssize_t n = there < LENGTH_BYTES ? 0 : syscalls.pread_nowait(fd, to, there, position);

	if (n >= LENGTH_BYTES || (n == -1 && errno != EINTR))
		return n;
	errno = EAGAIN;
	return -1;
}

int
segment_cut(int fd, int64_t bytes)
{
	int64_t file_bytes = segment_whole_bytes(fd, bytes);

	if (file_bytes == -1)
		return -1;
	return file_bytes == bytes ? 0 : segment_truncate(fd, bytes);
}

/* The length word at `position`, which only grows, all of it before `end`; or NULL with errno (EBADMSG: the file ends inside). */
static const uint8_t *
window_at(struct window *window, int fd, int64_t position, int64_t end)
{
	int64_t left = end - position;

	if (position + LENGTH_BYTES > window->position + (int64_t)window->filled) {
		size_t wanted = left < (int64_t)window->capacity ? (size_t)left : window->capacity;
		ssize_t n = window->residency == NULL ? direct_read(fd, window->buffer, wanted, position)
		    : read_in_memory(window->residency, fd, window->buffer, wanted, position);

		if (n == -1)
			return NULL;
		window->filled = (size_t)n;
		window->position = position;
		if (n < LENGTH_BYTES) {
			errno = EBADMSG;
			return NULL;
		}
	}
	return window->buffer + (position - window->position);
}

/* Bytes of the record at `position`, which ends at or before `end`; or -1 with errno. */
static int64_t
step(const struct segment *segment, struct window *window, int64_t position, int64_t end)
{
	const uint8_t *p = window_at(window, segment->fd, position, end);
	int64_t bytes;

	if (p == NULL)
		return -1;
	bytes = (int64_t)segment_record_bytes(segment->format, p);
	if (bytes == 0 || bytes > end - position) {
		errno = EBADMSG;
		return -1;
	}
	return bytes;
}

int
segment_walk(struct segment *segment, int64_t file_bytes, int64_t limit)
{
	struct window window = { .buffer = malloc(WALK_WINDOW_BYTES), .capacity = WALK_WINDOW_BYTES };
	int64_t bytes = 0;

	if (window.buffer == NULL)
		return -1;
	while (segment->end < limit && segment->bytes < file_bytes) {
		bytes = step(segment, &window, segment->bytes, file_bytes);
		if (bytes != -1 && index_note(&segment->index, segment->end, segment->bytes) == -1)
			bytes = -1;
		if (bytes == -1)
			break;
		segment->end++;
		segment->bytes += bytes;
	}
	free(window.buffer);
	return bytes == -1 ? -1 : 0;
}

struct index_mark
segment_mark(const struct segment *segment, int64_t offset)
{
	if (segment->index.count == 0)
		return (struct index_mark){ .offset = segment->base };
	return index_nearest(&segment->index, offset);
}

struct index_mark
segment_next_mark(const struct segment *segment, int64_t offset)
{
	size_t next = index_count_below(&segment->index, offset + 1);

	if (next == segment->index.count)
		return (struct index_mark){ .offset = segment->end, .position = segment->bytes };
	return segment->index.marks[next];
}

/*
 * From `at`, a mark, over the lengths to the record `offset`, and a look at its own: that of a damaged record must not be
 * taken for one.
 */
static int
seek(const struct segment *segment, struct window *window, int64_t end_position, int64_t offset, struct index_mark *at)
{
	while (at->position < end_position) {
		int64_t bytes = step(segment, window, at->position, end_position);

		if (bytes == -1)
			return -1;
		if (at->offset == offset)
			break;
		at->offset++;
		at->position += bytes;
	}
	errno = EBADMSG;
	return at->offset == offset ? 0 : -1;
}

/*
 * From there on the lengths come to the next mark with its offset: a damaged one that ends where another record does, which no
 * length tells, must not give the records behind it each other's offsets. A place that cannot be looked at tells nothing.
 */
static int
check_to(const struct segment *segment, struct window *window, const struct index_mark *end, struct index_mark at)
{
	while (at.position < end->position) {
		int64_t bytes = step(segment, window, at.position, end->position);

		if (bytes == -1)
			return errno == EAGAIN ? -1 : 0;
		at.offset++;
		at.position += bytes;
	}
	errno = EBADMSG;
	return at.offset == end->offset ? 0 : -1;
}

static int
seek_between(const struct segment *segment, struct window *window, const struct index_mark *end, int64_t offset,
    struct index_mark *at)
{
	const struct index_mark from = *at;
	int done = seek(segment, window, end->position, offset, at);

	if (done == -1 && at->position < end->position)
		return -1;
	if (done == 0 && check_to(segment, window, end, *at) == 0)
		return 0;
	/* Which of them nobody knows. */
	*at = from;
	return -1;
}

int
segment_locate(struct segment *segment, int64_t offset, struct index_mark *at)
{
	uint8_t buffer[LOCATE_WINDOW_BYTES];
	struct window window = { .buffer = buffer, .capacity = sizeof(buffer), .residency = &segment->residency };
	const struct index_mark end = segment_next_mark(segment, offset);

	*at = segment_mark(segment, offset);
	return seek_between(segment, &window, &end, offset, at);
}

int
segment_seek_between(const struct segment *segment, const struct index_mark *end, int64_t offset, struct index_mark *at)
{
	uint8_t buffer[LOCATE_WINDOW_BYTES];
	struct window window = { .buffer = buffer, .capacity = sizeof(buffer) };

	return seek_between(segment, &window, end, offset, at);
}

int
segment_seek(const struct segment *segment, int64_t end_position, int64_t offset, struct index_mark *at)
{
	uint8_t buffer[LOCATE_WINDOW_BYTES];
	struct window window = { .buffer = buffer, .capacity = sizeof(buffer) };

	return seek(segment, &window, end_position, offset, at);
}
