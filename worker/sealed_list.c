/* The list of sealed segments; see the drawing in sealed_list.h. */
#include "worker/sealed_list.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

enum {
	FORMAT_VERSION = 1,
	MAGIC_BYTES = 8,
	HEADER_BYTES = 16,
	ENTRY_BYTES = 36,
	SUMMED_BYTES = 32,	/* of an entry */
	READ_ENTRIES = 1024,
	FIRST_CAPACITY = 16,
	SMALLEST_RECORD_BYTES = 5,
};

static const char magic[] = "lbsealed";

_Static_assert(sizeof(magic) == MAGIC_BYTES + 1, "eight bytes");

static void
put_header(uint8_t *to)
{
	uint8_t *p = to + MAGIC_BYTES;

	memcpy(to, magic, MAGIC_BYTES);
	p = bytes_put_i32(p, FORMAT_VERSION);
	bytes_put_u32(p, crc32c(to, (size_t)(p - to)));
}

static uint8_t *
put_entry(uint8_t *to, const struct sealed_entry *entry)
{
	uint8_t *p = bytes_put_i64(to, entry->base);

	p = bytes_put_i64(p, entry->end);
	p = bytes_put_i64(p, entry->bytes);
	p = bytes_put_i64(p, entry->last_append_ms);
	return bytes_put_u32(p, crc32c(to, SUMMED_BYTES));
}

/* ---- in memory ---- */

void
sealed_list_free(struct sealed_list *list)
{
	free(list->entries);
	*list = (struct sealed_list){ 0 };
}

int
sealed_list_add(struct sealed_list *list, const struct sealed_entry *entry)
{
	/* The log has been cut back or begun anew since those were sealed. */
	while (list->count > 0 && list->entries[list->count - 1].end > entry->base)
		list->count--;
	if (list->count == list->capacity) {
		size_t capacity = list->capacity == 0 ? FIRST_CAPACITY : list->capacity * 2;
		struct sealed_entry *grown = realloc(list->entries, capacity * sizeof(*grown));

		if (grown == NULL)
			return -1;
		list->entries = grown;
		list->capacity = capacity;
	}
	list->entries[list->count++] = *entry;
	return 0;
}

bool
sealed_list_plausible(const struct sealed_entry *entry)
{
	return entry->base >= 0 && entry->end > entry->base && entry->bytes > 0
	    && entry->end - entry->base <= entry->bytes / SMALLEST_RECORD_BYTES;
}

/* The last entry whose base is at or below the offset, or NULL. */
static const struct sealed_entry *
at_or_below(const struct sealed_list *list, int64_t offset)
{
	size_t low = 0, high = list->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (list->entries[middle].base <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low == 0 ? NULL : &list->entries[low - 1];
}

const struct sealed_entry *
sealed_list_find(const struct sealed_list *list, int64_t base)
{
	const struct sealed_entry *entry = at_or_below(list, base);

	return entry != NULL && entry->base == base ? entry : NULL;
}

const struct sealed_entry *
sealed_list_inside(const struct sealed_list *list, int64_t offset)
{
	const struct sealed_entry *entry = at_or_below(list, offset);

	return entry != NULL && entry->base < offset && offset < entry->end ? entry : NULL;
}

void
sealed_list_allow_for(struct sealed_list *list, int64_t stray_bytes, int64_t first)
{
	if (stray_bytes >= ENTRY_BYTES && first > list->log_start)
		list->log_start = first;
}

int64_t
sealed_list_end(const struct sealed_list *list)
{
	int64_t end = list->count == 0 ? 0 : list->entries[list->count - 1].end;

	return end > list->log_start ? end : list->log_start;
}

bool
sealed_list_holds(const struct sealed_list *list, int64_t base, int64_t end, int64_t bytes)
{
	const struct sealed_entry *entry = sealed_list_find(list, base);

	return entry != NULL && entry->end == end && entry->bytes == bytes;
}

/* ---- reading ---- */

/* Decodes an entry. False: these bytes are none. */
static bool
get_entry(const uint8_t *p, struct sealed_entry *entry)
{
	*entry = (struct sealed_entry){ .base = bytes_get_i64(p), .end = bytes_get_i64(p + 8),
		.bytes = bytes_get_i64(p + 16), .last_append_ms = bytes_get_i64(p + 24) };
	if (crc32c(p, SUMMED_BYTES) != bytes_get_u32(p + SUMMED_BYTES))
		return false;
	return sealed_list_plausible(entry) || (entry->base >= 0 && entry->end == entry->base && entry->bytes == 0);
}

/* Takes up entries as far as they are valid. Returns their number, or -1 with errno ENOMEM. */
static int64_t
take_entries(struct sealed_list *list, const uint8_t *p, size_t count)
{
	for (size_t i = 0; i < count; i++, p += ENTRY_BYTES) {
		struct sealed_entry entry;

		if (!get_entry(p, &entry))
			return (int64_t)i;
		if (entry.bytes > 0) {
			if (sealed_list_add(list, &entry) == -1)
				return -1;
		} else if (entry.base > list->log_start) {
			list->log_start = entry.base;
		}
		list->in_file++;
	}
	return (int64_t)count;
}

static int
read_header(int fd)
{
	uint8_t found[HEADER_BYTES], expected[HEADER_BYTES];
	ssize_t n = segment_read(fd, found, HEADER_BYTES, 0);

	put_header(expected);
	if (n >= 0)
		errno = EBADMSG;
	return n == HEADER_BYTES && memcmp(found, expected, HEADER_BYTES) == 0 ? 0 : -1;
}

/* Returns the bytes of the valid prefix, or -1 with errno. */
static int64_t
read_entries(int fd, struct sealed_list *list)
{
	uint8_t *piece = malloc(READ_ENTRIES * ENTRY_BYTES);
	int64_t position = HEADER_BYTES, taken;
	size_t whole;

	if (piece == NULL)
		return -1;
	do {
		ssize_t n = segment_read(fd, piece, READ_ENTRIES * ENTRY_BYTES, position);

		whole = n == -1 ? 0 : (size_t)n / ENTRY_BYTES;
		taken = n == -1 ? -1 : take_entries(list, piece, whole);
		if (taken == -1)
			position = -1;
		else
			position += taken * ENTRY_BYTES;
	} while (taken == READ_ENTRIES);
	free(piece);
	return position;
}

int
sealed_list_read(int dir_fd, struct sealed_list *list, int64_t *stray_bytes)
{
	int fd = segment_open_regular(dir_fd, SEALED_LIST_NAME, O_RDONLY);
	int64_t file_bytes, bytes;
	int error = 0;

	*list = (struct sealed_list){ 0 };
	if (fd == -1)
		return -1;
	file_bytes = segment_file_bytes(fd);
	bytes = file_bytes == -1 || read_header(fd) == -1 ? -1 : read_entries(fd, list);
	if (bytes == -1) {
		error = errno;
		sealed_list_free(list);
	} else if (stray_bytes != NULL) {
		*stray_bytes = file_bytes - bytes;
	}
	close(fd);
	errno = error;
	return error == 0 ? 0 : -1;
}

/* ---- writing ---- */

/*
 * What is added goes behind what is there, and a list written anew takes the old one's place: what another thread adds meanwhile
 * would be lost. A roll and a removal by retention are jobs of one partition that run side by side. Held for no force.
 */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

static int
write_new(int dir_fd, const uint8_t *bytes, size_t size)
{
	int fd = segment_create_file(dir_fd, SEALED_LIST_TEMPORARY_NAME);
	int error;

	if (fd == -1)
		return -1;
	error = segment_write(fd, bytes, size, 0) == -1 ? errno : 0;
	close(fd);
	if (error == 0 && syscalls.rename(dir_fd, SEALED_LIST_TEMPORARY_NAME, SEALED_LIST_NAME) == 0)
		return 0;
	error = error == 0 ? errno : error;
	syscalls.unlink(dir_fd, SEALED_LIST_TEMPORARY_NAME);
	errno = error;
	return -1;
}

/* Where all of it is retired the log begins where the last one ended: that is told still, or offsets were free again. */
static int64_t
start_to_write(const struct sealed_list *list)
{
	bool all = list->count > 0 && sealed_list_retired(list, &list->entries[list->count - 1]);

	return all ? sealed_list_end(list) : list->log_start;
}

static int
write_all(int dir_fd, const struct sealed_list *list)
{
	int64_t log_start = start_to_write(list);
	const struct sealed_entry start = { .base = log_start, .end = log_start };
	uint8_t *bytes = malloc(HEADER_BYTES + (list->count + 1) * ENTRY_BYTES);
	uint8_t *p;
	int done;

	if (bytes == NULL)
		return -1;
	put_header(bytes);
	p = bytes + HEADER_BYTES;
	if (log_start > 0)
		p = put_entry(p, &start);
	for (size_t i = 0; i < list->count; i++)
		if (list->entries[i].base >= log_start)
			p = put_entry(p, &list->entries[i]);
	done = write_new(dir_fd, bytes, (size_t)(p - bytes));
	free(bytes);
	return done;
}

/* Behind the whole entries that are there: a write that was cut short leaves a part of one. */
static int
write_behind(int fd, const uint8_t *bytes, size_t size)
{
	int64_t file_bytes = segment_file_bytes(fd);

	if (file_bytes == -1)
		return -1;
	if (file_bytes < HEADER_BYTES) {
		errno = EBADMSG;
		return -1;
	}
	return segment_write(fd, bytes, size, file_bytes - (file_bytes - HEADER_BYTES) % ENTRY_BYTES);
}

static int
append_entries(int dir_fd, const struct sealed_entry *entries, size_t count)
{
	uint8_t *bytes = malloc(HEADER_BYTES + count * ENTRY_BYTES);
	uint8_t *p;
	int fd, error = 0;

	if (bytes == NULL)
		return -1;
	put_header(bytes);
	p = bytes + HEADER_BYTES;
	for (size_t i = 0; i < count; i++)
		p = put_entry(p, &entries[i]);
	fd = segment_open_regular(dir_fd, SEALED_LIST_NAME, O_WRONLY);
	if (fd == -1) {
		if (errno != ENOENT || write_new(dir_fd, bytes, (size_t)(p - bytes)) == -1)
			error = errno;
	} else {
		if (write_behind(fd, bytes + HEADER_BYTES, count * ENTRY_BYTES) == -1)
			error = errno;
		close(fd);
	}
	free(bytes);
	errno = error;
	return error == 0 ? 0 : -1;
}

static int
trim(int dir_fd, size_t sealed)
{
	struct sealed_list list;
	int fd = segment_open_regular(dir_fd, SEALED_LIST_NAME, O_RDONLY);
	int64_t file_bytes;
	int done = 0;

	if (fd == -1)
		return -1;
	file_bytes = segment_file_bytes(fd);
	close(fd);
	if (!sealed_list_stale((size_t)(file_bytes / ENTRY_BYTES), sealed))
		return 0;
	if (sealed_list_read(dir_fd, &list, NULL) == -1)
		return -1;
	done = write_all(dir_fd, &list);
	sealed_list_free(&list);
	return done;
}

int
sealed_list_write(int dir_fd, const struct sealed_list *list)
{
	int done;

	pthread_mutex_lock(&writing);
	done = write_all(dir_fd, list);
	pthread_mutex_unlock(&writing);
	return done;
}

int
sealed_list_append(int dir_fd, const struct sealed_entry *entries, size_t count)
{
	int done;

	pthread_mutex_lock(&writing);
	done = append_entries(dir_fd, entries, count);
	pthread_mutex_unlock(&writing);
	return done;
}

int
sealed_list_trim(int dir_fd, size_t sealed)
{
	int done;

	pthread_mutex_lock(&writing);
	done = trim(dir_fd, sealed);
	pthread_mutex_unlock(&writing);
	return done;
}

static int
force(int dir_fd)
{
	int fd = segment_open_regular(dir_fd, SEALED_LIST_NAME, O_RDONLY);
	int error;

	if (fd == -1)
		return -1;
	error = syscalls.fdatasync(fd) == -1 ? errno : 0;
	close(fd);
	errno = error;
	return error == 0 ? 0 : -1;
}

int
sealed_list_note_start(int dir_fd, int64_t log_start)
{
	const struct sealed_entry start = { .base = log_start, .end = log_start };

	if (sealed_list_append(dir_fd, &start, 1) == 0 && force(dir_fd) == 0)
		return 0;
	return syscalls.unlink(dir_fd, SEALED_LIST_NAME) == 0 || errno == ENOENT ? 0 : -1;
}
