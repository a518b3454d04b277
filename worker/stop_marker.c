/* The clean-stop marker; see the drawing in stop_marker.h. */
#include "worker/stop_marker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "common/log.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

enum {
	FORMAT_VERSION = 1,
	MAGIC_BYTES = 8,
	HEADER_BYTES = 16,
	STATE_BYTES = 40,
	SUM_BYTES = 4,
	NAME_BYTES = 32,		/* "worker-<N>.stopped" */
	FILE_MAX_BYTES = 64 * 1024 * 1024,	/* more than a hundred thousand partitions with the longest names */
};

static const char magic[] = "lbstoppd";

_Static_assert(sizeof(magic) == MAGIC_BYTES + 1, "eight bytes");

static void
marker_name(char *to, int worker)
{
	snprintf(to, NAME_BYTES, "worker-%d.stopped", worker);
}

static uint8_t *
put_header(uint8_t *to, size_t count)
{
	memcpy(to, magic, MAGIC_BYTES);
	return bytes_put_u32(bytes_put_i32(to + MAGIC_BYTES, FORMAT_VERSION), (uint32_t)count);
}

/* ---- reading ---- */

/* The whole file; NULL with errno. */
static uint8_t *
read_file(int data_fd, const char *name, size_t *size)
{
	int fd = segment_open_regular(data_fd, name, O_RDONLY);
	uint8_t *bytes = NULL;
	int64_t file_bytes;
	ssize_t n = -1;
	int error;

	if (fd == -1)
		return NULL;
	file_bytes = segment_file_bytes(fd);
	if (file_bytes > FILE_MAX_BYTES)
		errno = EBADMSG;
	else if (file_bytes != -1 && (bytes = malloc((size_t)file_bytes + 1)) != NULL)
		n = segment_read(fd, bytes, (size_t)file_bytes, 0);
	error = errno;
	close(fd);
	if (n == -1) {
		free(bytes);
		bytes = NULL;
	}
	*size = n == -1 ? 0 : (size_t)n;
	errno = error;
	return bytes;
}

static bool
state_makes_sense(const struct stop_state *state)
{
	return state->base >= 0 && state->end >= state->base && state->position >= 0
	    && state->file_bytes >= state->position && (state->end == state->base) == (state->position == 0);
}

/* The next entry, its name copied to `name`, which moves behind it. False: there is none. */
static bool
take_entry(struct bytes_reader *r, struct stop_entry *entry, char **name)
{
	size_t length = bytes_take_u16(r);
	const uint8_t *text = bytes_take(r, length);

	entry->state.base = bytes_take_i64(r);
	entry->state.end = bytes_take_i64(r);
	entry->state.position = bytes_take_i64(r);
	entry->state.file_bytes = bytes_take_i64(r);
	entry->state.modified_ns = bytes_take_i64(r);
	if (r->bad || !state_makes_sense(&entry->state))
		return false;
	entry->name = *name;
	memcpy(*name, text, length);
	(*name)[length] = '\0';
	*name += length + 1;
	return true;
}

static int
by_name(const void *a, const void *b)
{
	const struct stop_entry *left = a;
	const struct stop_entry *right = b;

	return strcmp(left->name, right->name);
}

/* Returns 0, or -1 with errno: EBADMSG, ENOMEM. */
static int
parse(struct stop_marker *marker, const uint8_t *bytes, size_t size)
{
	struct bytes_reader r = { .next = bytes + HEADER_BYTES };
	uint8_t header[HEADER_BYTES];
	size_t count;
	char *name;

	errno = EBADMSG;
	if (size < HEADER_BYTES + SUM_BYTES
	    || crc32c(bytes, size - SUM_BYTES) != bytes_get_u32(bytes + size - SUM_BYTES))
		return -1;
	r.left = size - HEADER_BYTES - SUM_BYTES;
	count = bytes_get_u32(bytes + HEADER_BYTES - 4);
	put_header(header, count);
	if (memcmp(bytes, header, HEADER_BYTES) != 0 || count > r.left / (2 + STATE_BYTES))
		return -1;
	marker->entries = calloc(count + 1, sizeof(*marker->entries));
	marker->names = malloc(size);		/* each name takes less than its entry */
	if (marker->entries == NULL || marker->names == NULL)
		return -1;
	name = marker->names;
	for (; marker->count < count; marker->count++)
		if (!take_entry(&r, &marker->entries[marker->count], &name))
			return -1;
	if (r.left != 0)
		return -1;
	qsort(marker->entries, count, sizeof(*marker->entries), by_name);
	return 0;
}

static void
read_marker(struct stop_marker *marker, int data_fd, const char *name)
{
	size_t size;
	uint8_t *bytes = read_file(data_fd, name, &size);

	if (bytes != NULL && parse(marker, bytes, size) == 0) {
		free(bytes);
		return;
	}
	if (errno == EBADMSG)
		log_warning("%s is not what a worker leaves when it stops (damaged, or of another version): the logs are read instead",
		    name);
	else if (errno != ENOENT)
		log_warning("%s: cannot read it: %s; the logs are read instead", name, strerror(errno));
	free(bytes);
	stop_marker_free(marker);
}

/* ---- taking ---- */

/* Is it the marker of a worker that does not exist? */
static bool
is_stale(const char *name, int worker_count)
{
	char again[NAME_BYTES];
	int worker;

	if (sscanf(name, "worker-%9d", &worker) != 1 || worker < worker_count)
		return false;
	marker_name(again, worker);
	return strcmp(name, again) == 0;
}

/* Returns 0, or -1 with errno: ENOENT, there is none. */
static int
remove_marker(int data_fd, const char *name)
{
	int error;

	if (syscalls.unlink(data_fd, name) == 0)
		return 0;
	error = errno;
	if (error != ENOENT)
		log_warning("%s: cannot remove it: %s; what it says is not believed. Remove it by hand", name, strerror(error));
	errno = error;
	return -1;
}

/* Removes the markers of workers that do not exist. Returns true when there was one. */
static bool
remove_stale(int data_fd, int worker_count)
{
	int fd = syscalls.open(data_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *dir = fd == -1 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool removed = false;

	if (dir == NULL) {
		if (fd != -1)
			close(fd);
		return false;
	}
	while ((entry = readdir(dir)) != NULL)
		if (is_stale(entry->d_name, worker_count))
			removed = remove_marker(data_fd, entry->d_name) == 0 || removed;
	closedir(dir);
	return removed;
}

void
stop_marker_take(struct stop_marker *marker, int data_fd, int worker, int worker_count)
{
	char name[NAME_BYTES];
	bool removed;

	*marker = (struct stop_marker){ 0 };
	marker_name(name, worker);
	read_marker(marker, data_fd, name);
	removed = remove_marker(data_fd, name) == 0;
	/* It would speak of these logs after they have been written to. */
	if (!removed && errno != ENOENT)
		stop_marker_free(marker);
	removed = remove_stale(data_fd, worker_count) || removed;
	if (removed && syscalls.fsync(data_fd) == -1) {
		/* It could come back, and speak of logs that have been written meanwhile: their times will tell. */
		log_warning("cannot force the data directory to disk: %s; the logs are read instead of believing %s",
		    strerror(errno), name);
		stop_marker_free(marker);
	}
}

void
stop_marker_free(struct stop_marker *marker)
{
	free(marker->entries);
	free(marker->names);
	*marker = (struct stop_marker){ 0 };
}

const struct stop_state *
stop_marker_find(const struct stop_marker *marker, const char *name)
{
	const struct stop_entry wanted = { .name = name };
	const struct stop_entry *found;

	if (marker->count == 0)
		return NULL;
	found = bsearch(&wanted, marker->entries, marker->count, sizeof(*marker->entries), by_name);
	return found == NULL ? NULL : &found->state;
}

/* ---- leaving ---- */

static size_t
encoded_bytes(const struct stop_entry *entries, size_t count)
{
	size_t size = HEADER_BYTES + SUM_BYTES;

	for (size_t i = 0; i < count; i++)
		size += 2 + strlen(entries[i].name) + STATE_BYTES;
	return size;
}

static uint8_t *
put_entry(uint8_t *p, const struct stop_entry *entry)
{
	size_t length = strlen(entry->name);

	p = bytes_put_u16(p, (uint16_t)length);
	memcpy(p, entry->name, length);
	p = bytes_put_i64(p + length, entry->state.base);
	p = bytes_put_i64(p, entry->state.end);
	p = bytes_put_i64(p, entry->state.position);
	p = bytes_put_i64(p, entry->state.file_bytes);
	return bytes_put_i64(p, entry->state.modified_ns);
}

int
stop_marker_leave(int data_fd, int worker, const struct stop_entry *entries, size_t count)
{
	size_t size = encoded_bytes(entries, count);
	uint8_t *bytes = malloc(size);
	char name[NAME_BYTES];
	uint8_t *p;
	int fd, error;

	if (bytes == NULL)
		return -1;
	p = put_header(bytes, count);
	for (size_t i = 0; i < count; i++)
		p = put_entry(p, &entries[i]);
	bytes_put_u32(p, crc32c(bytes, size - SUM_BYTES));
	marker_name(name, worker);
	fd = segment_create_file(data_fd, name);
	error = fd == -1 || segment_write(fd, bytes, size, 0) == -1 ? errno : 0;
	if (fd != -1)
		close(fd);
	if (fd != -1 && error != 0)
		syscalls.unlink(data_fd, name);
	free(bytes);
	errno = error;
	return error == 0 ? 0 : -1;
}
