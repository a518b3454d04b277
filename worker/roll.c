/*
 * Rolls. A failure before the first rename removes the temporary files and changes nothing. A failure behind it is
 * undone in reverse order with the directory forced at each step, so that what a power cut leaves is always a prefix
 * of the batch; where that does not work either the partition has failed. Forcing the temporary files may fail
 * without that consequence: they are removed, and their pages with them. A force of the active file or of the
 * directory may not: nothing tells then what has reached the disk, and the next success would say nothing.
 */
#include "worker/roll.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"

#include "worker/partition.h"
#include "worker/sealed_list.h"
#include "worker/syscalls.h"

/* Gives a part as many of the whole records at its start as fit a segment. Returns 0, or -1 with errno EINVAL. */
static int
plan_part(enum record_format format, int64_t segment_bytes, const uint8_t *end, int64_t left, struct roll_part *part)
{
	const uint8_t *p = part->records;

	while (part->count < left && end - p >= 4) {
		size_t n = segment_record_bytes(format, p);

		if (n == 0 || (int64_t)n > end - p || (int64_t)(part->bytes + n) > segment_bytes)
			break;
		part->bytes += n;
		part->count++;
		p += n;
	}
	errno = EINVAL;
	return part->count == 0 ? -1 : 0;
}

static int
add_part(struct roll_part **parts, size_t count)
{
	struct roll_part *grown = *parts;

	/* The array grows when the count is a power of two (0 and 1 are). */
	if ((count & (count - 1)) == 0)
		grown = realloc(*parts, (count == 0 ? 1 : count * 2) * sizeof(*grown));
	if (grown == NULL)
		return -1;
	*parts = grown;
	return 0;
}

int
roll_plan(enum record_format format, int64_t segment_bytes, int64_t base, const uint8_t *records, size_t bytes,
    int64_t count, struct roll_part **parts, size_t *part_count)
{
	struct roll_part part = { .base = base, .records = records };
	const uint8_t *end = bytes > 0 ? records + bytes : records;	/* without a batch both are NULL */
	int64_t left = count;
	int error;

	*parts = NULL;
	*part_count = 0;
	do {
		part.count = 0;
		part.bytes = 0;
		if (bytes > 0 && plan_part(format, segment_bytes, end, left, &part) == -1)
			goto fail;
		if (add_part(parts, *part_count) == -1)
			goto fail;
		(*parts)[(*part_count)++] = part;
		part.base += part.count;
		left -= part.count;
		if (part.bytes > 0)
			part.records += part.bytes;
	} while (left > 0);
	if (part.records == end)
		return 0;
	errno = EINVAL;
fail:
	error = errno;
	free(*parts);
	*parts = NULL;
	errno = error;
	return -1;
}

void
roll_free(struct partition_roll *roll)
{
	segment_drop(roll->active);
	segment_drop(roll->next);
	mapping_close(&roll->ahead);
	mapping_close(&roll->behind);
	free(roll->parts);
	free(roll);
}

struct segment *
roll_create_segment(int dir_fd, int64_t base, enum record_format format, int64_t index_interval_bytes)
{
	char name[SEGMENT_NAME_BYTES];
	struct segment *segment;
	int fd;

	segment_temporary_name(name, base);
	fd = segment_create_file(dir_fd, name);
	if (fd == -1)
		return NULL;
	segment = segment_new(fd, base, format, index_interval_bytes);
	if (segment == NULL) {
		close(fd);
		syscalls.unlink(dir_fd, name);
		errno = ENOMEM;
	}
	return segment;
}

int
roll_publish_segment(int dir_fd, int64_t base)
{
	char from[SEGMENT_NAME_BYTES], to[SEGMENT_NAME_BYTES];

	segment_temporary_name(from, base);
	segment_name(to, base);
	return syscalls.rename(dir_fd, from, to);
}

/* Remembers the first failure only: what follows it is cleaning up. */
static int
failed(struct partition_roll *roll)
{
	if (roll->error == 0)
		roll->error = errno;
	return -1;
}

static int
lost(struct partition_roll *roll)
{
	roll->lost = true;
	return failed(roll);
}

static int
seal_active(struct partition_roll *roll)
{
	struct segment *active = roll->active;
	int64_t file_bytes = segment_whole_bytes(active->fd, active->bytes);

	mapping_close(&roll->ahead);
	mapping_close(&roll->behind);
	if (file_bytes == -1)
		return lost(roll);
	/* What is allocated ahead may lie behind the file's size, when that was cut meanwhile: the same size again frees it. */
	if ((file_bytes != active->bytes || roll->full_bytes > 0) && segment_truncate(active->fd, active->bytes) == -1)
		return failed(roll);
	roll->trimmed = true;
	return syscalls.fdatasync(active->fd) == -1 ? lost(roll) : 0;
}

/* Puts into the new segment what belongs there, and forces it. Returns 0, or -1 with errno. */
static int
fill_part(const struct partition_roll *roll, const struct roll_part *part, struct segment *segment, bool last)
{
	if (part->count > 0 && segment_append(segment, NULL, part->records, part->bytes, part->count) == -1)
		return -1;
	if (last && segment->bytes < roll->full_bytes && segment_truncate(segment->fd, roll->full_bytes) == -1)
		return -1;
	return syscalls.fdatasync(segment->fd);
}

static int
write_part(struct partition_roll *roll, size_t at)
{
	struct roll_part *part = &roll->parts[at];
	struct segment *segment = roll_create_segment(roll->dir_fd, part->base, roll->active->format,
	    roll->index_interval_bytes);
	bool last = at == roll->part_count - 1;

	if (segment == NULL)
		return failed(roll);
	if (fill_part(roll, part, segment, last) == -1)
		failed(roll);
	/* A batch can have thousands of parts: only the last one, the new active segment, stays open. */
	if (roll->error == 0 && last)
		roll->next = segment;
	else
		segment_drop(segment);
	return roll->error == 0 ? 0 : -1;
}

/* Removes the temporary files of the parts from `from` to before `to`. What stays is removed at the next start. */
static void
remove_temporaries(struct partition_roll *roll, size_t from, size_t to)
{
	char name[SEGMENT_NAME_BYTES];

	for (size_t i = from; i < to; i++) {
		segment_temporary_name(name, roll->parts[i].base);
		syscalls.unlink(roll->dir_fd, name);
	}
}

static int
write_parts(struct partition_roll *roll)
{
	for (size_t i = 0; i < roll->part_count; i++)
		if (write_part(roll, i) == -1) {
			remove_temporaries(roll, 0, i + 1);
			return -1;
		}
	return 0;
}

/* Empties the first part again, which has taken the name of an empty segment. */
static int
undo_replacement(struct partition_roll *roll)
{
	int64_t base = roll->parts[0].base;
	int fd = segment_open_file(roll->dir_fd, base, O_RDWR);

	if (fd == -1)
		return -1;
	if (segment_truncate(fd, 0) == -1 || syscalls.fdatasync(fd) == -1)
		goto fail;
	roll->next = segment_new(fd, base, roll->active->format, roll->index_interval_bytes);
	if (roll->next != NULL)
		return 0;
fail:
	close(fd);
	return -1;
}

static int
undo_part(struct partition_roll *roll, size_t at)
{
	char name[SEGMENT_NAME_BYTES];

	if (at == 0 && roll->replaces)
		return undo_replacement(roll);
	segment_name(name, roll->parts[at].base);
	if (syscalls.unlink(roll->dir_fd, name) == -1)
		return -1;
	return syscalls.fsync(roll->dir_fd);
}

/* Takes back the first `renamed` parts, the last one first; stops where that fails, so that no hole comes of it. */
static void
undo_parts(struct partition_roll *roll, size_t renamed)
{
	segment_drop(roll->next);
	roll->next = NULL;
	remove_temporaries(roll, renamed, roll->part_count);
	while (renamed > 0)
		if (undo_part(roll, --renamed) == -1) {
			lost(roll);
			return;
		}
}

static int
publish_parts(struct partition_roll *roll)
{
	for (size_t i = 0; i < roll->part_count; i++) {
		if (roll_publish_segment(roll->dir_fd, roll->parts[i].base) == -1) {
			failed(roll);
			undo_parts(roll, i);
			return -1;
		}
		if (syscalls.fsync(roll->dir_fd) == -1) {
			lost(roll);
			undo_parts(roll, i + 1);
			return -1;
		}
	}
	return 0;
}

/* ---- store ---- */

/* The active segment's index, which is a sealed segment's from now on. */
static int
store_active(struct partition_roll *roll)
{
	struct segment *active = roll->active;
	struct index_point point = { .end = active->end, .position = active->bytes,
		.first_append_ms = roll->first_append_ms, .last_append_ms = roll->last_append_ms };

	if (active->bytes == roll->stored.point.position)
		return 0;
	return index_file_store_all(roll->dir_fd, active, &roll->stored, &point);
}

/* A part's index, and what its point says of its last record. Returns 0, or -1 with errno ENOMEM. */
static int
index_part(const struct roll_part *part, enum record_format format, struct index *index, struct index_point *point)
{
	int64_t position = 0, bytes = 0;

	for (int64_t i = 0; i < part->count; i++) {
		position += bytes;
		if (index_note(index, part->base + i, position) == -1)
			return -1;
		bytes = (int64_t)segment_record_bytes(format, part->records + position);
	}
	point->end = part->base + part->count;
	point->position = position + bytes;
	point->last_position = position;
	memcpy(point->last_bytes, part->records + position, bytes < INDEX_LAST_BYTES ? (size_t)bytes : INDEX_LAST_BYTES);
	return 0;
}

static int
store_part(struct partition_roll *roll, const struct roll_part *part, struct index_file *file)
{
	enum record_format format = roll->active->format;
	struct index_point point = { .first_append_ms = clock_wall_ms() };
	struct index index;
	int error = 0;

	*file = (struct index_file){ 0 };
	if (part->count == 0)
		return 0;
	point.last_append_ms = point.first_append_ms;
	index_init(&index, roll->index_interval_bytes);
	if (index_part(part, format, &index, &point) == -1
	    || index_file_append(roll->dir_fd, part->base, format, file, &point, index.marks, index.count) == -1)
		error = errno;
	index_free(&index);
	errno = error;
	return error == 0 ? 0 : -1;
}

/* Everything has been forced; from here on nothing can fail that matters. */
static void
store_indexes(struct partition_roll *roll)
{
	if (!roll->replaces && store_active(roll) == -1)
		roll->index_error = errno;
	for (size_t i = 0; i < roll->part_count; i++)
		if (store_part(roll, &roll->parts[i], &roll->stored) == -1 && roll->index_error == 0)
			roll->index_error = errno;
}

/* The active segment, and all parts but the last one. */
static int
store_list(struct partition_roll *roll)
{
	const struct segment *active = roll->active;
	struct sealed_entry *entries = malloc(roll->part_count * sizeof(*entries));
	int64_t now_ms = clock_wall_ms();
	size_t count = 0;
	int done = 0;

	if (entries == NULL)
		return -1;
	if (!roll->replaces)
		entries[count++] = (struct sealed_entry){ active->base, active->end, active->bytes, roll->last_append_ms };
	for (size_t i = 0; i + 1 < roll->part_count; i++) {
		const struct roll_part *part = &roll->parts[i];

		entries[count++] = (struct sealed_entry){ part->base, part->base + part->count, (int64_t)part->bytes, now_ms };
	}
	if (count > 0)
		done = sealed_list_append(roll->dir_fd, entries, count);
	free(entries);
	return done;
}

void
partition_roll_run(struct partition_roll *roll)
{
	if (seal_active(roll) == -1 || write_parts(roll) == -1 || publish_parts(roll) == -1)
		return;
	store_indexes(roll);
	if (store_list(roll) == -1)
		roll->list_error = errno;
}
