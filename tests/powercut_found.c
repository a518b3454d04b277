/* See powercut_found.h. */
#include "tests/powercut_found.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/powercut_image.h"
#include "worker/segment.h"

enum { PATH_BYTES = 512, COPY_MAX = 128 * 1024 };

__attribute__((format(printf, 2, 3))) static int
failed(char *why, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, FOUND_WHY_BYTES, format, arguments);
	va_end(arguments);
	return -1;
}

/* ---- records ---- */

static void
add_record(struct found *found, size_t bytes)
{
	found->ends = image_grown(found->ends, found->count, &found->ends_capacity, sizeof(*found->ends));
	found->ends[found->count] = (found->count == 0 ? 0 : found->ends[found->count - 1]) + bytes;
	found->count++;
}

static enum partition_found
find(struct partition *p, int64_t offset, struct partition_place *place)
{
	enum partition_found result = partition_find(p, offset, place);
	struct partition_load *load;

	if (result != PARTITION_COLD)
		return result;
	load = partition_load_begin(p, offset);
	ck_assert_ptr_nonnull(load);
	partition_load_store_nothing(load);
	partition_load_run(load);
	partition_load_finish(p, load);
	return partition_find(p, offset, place);
}

/* All that is to be read from that place of a segment on. */
static int
read_segment(struct found *found, const struct partition_place *place, enum record_format format, char *why)
{
	size_t bytes = (size_t)place->bytes_in_segment, from = found->size;

	if (from + bytes > found->capacity) {
		found->capacity = 2 * (from + bytes);
		found->bytes = realloc(found->bytes, found->capacity);
		ck_assert_ptr_nonnull(found->bytes);
	}
	if (pread(place->segment->fd, found->bytes + from, bytes, place->position) != (ssize_t)bytes)
		return failed(why, "a segment ends ahead of the record at offset %" PRId64, found->start + (int64_t)found->count);
	found->size += bytes;
	while (from < found->size) {
		size_t record = found->size - from < 4 ? 0 : segment_record_bytes(format, found->bytes + from);

		if (record == 0 || record > found->size - from)
			return failed(why, "no record stands at offset %" PRId64, found->start + (int64_t)found->count);
		add_record(found, record);
		from += record;
	}
	return 0;
}

/* ---- copies ---- */

static uint64_t
hash_file(const char *path)
{
	static uint8_t bytes[COPY_MAX];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = read(fd, bytes, sizeof(bytes));

	ck_assert_int_ge(n, 0);
	close(fd);
	return image_hash_bytes(bytes, (size_t)n);
}

static void
read_copies(const char *partition_path, struct found *found)
{
	char path[PATH_BYTES];
	struct dirent *entry;
	DIR *dir;

	dir = opendir(partition_path);
	found->copy_count = 0;
	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (strstr(entry->d_name, ".cut") == NULL || strstr(entry->d_name, ".tmp") != NULL)
			continue;
		ck_assert_int_lt(found->copy_count, FOUND_COPIES_MAX);
		snprintf(path, sizeof(path), "%.400s/%.60s", partition_path, entry->d_name);
		found->copies[found->copy_count++] = hash_file(path);
	}
	if (dir != NULL)
		closedir(dir);
}

int
found_read(struct found *found, struct partition *p, enum record_format format, const char *partition_path, char *why)
{
	found->size = found->count = 0;
	found->start = partition_log_start(p);
	found->end = partition_log_end(p);
	while (found->start + (int64_t)found->count < found->end) {
		struct partition_place place;
		int64_t offset = found->start + (int64_t)found->count;

		if (find(p, offset, &place) != PARTITION_FOUND || place.bytes_in_segment <= 0)
			return failed(why, "the record at offset %" PRId64 " cannot be read", offset);
		if (read_segment(found, &place, format, why) == -1)
			return -1;
	}
	if (found->start + (int64_t)found->count != found->end)
		return failed(why, "there are records behind the end, %" PRId64, found->end);
	read_copies(partition_path, found);
	return 0;
}

const uint8_t *
found_record(const struct found *found, size_t number, size_t *size)
{
	size_t from = number == 0 ? 0 : found->ends[number - 1];

	*size = found->ends[number] - from;
	return found->bytes + from;
}

bool
found_has_copy(const struct found *found, uint64_t hash)
{
	for (int i = 0; i < found->copy_count; i++)
		if (found->copies[i] == hash)
			return true;
	return false;
}

void
found_free(struct found *found)
{
	free(found->bytes);
	free(found->ends);
}
