/*
 * Upkeep of the active segment: what must be done for it now and then and may wait for the disk. Write-back of what was
 * appended is begun early, so that barriers find little left to do and the kernel's limit of dirty pages, at which a
 * write would wait in the loop, stays far away. With write_mode = mapped the file is allocated and mapped ahead of its
 * writer, a stretch at a time: few blocks for a small segment, few jobs for a large one, none for an empty one. And how far
 * barriers have come is stored as the recovery point.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "worker/partition_state.h"
#include "worker/syscalls.h"

enum {
	WRITE_BACK_BYTES = 8 * 1024 * 1024,	/* so much is put on its way at once */
	/* Of what is given to the disk. The page at the end is still being filled, and would have to be written twice. */
	UNIT_BYTES = 4096,
	STRETCH_MIN_BYTES = 64 * 1024,
	STRETCH_MAX_BYTES = 16 * 1024 * 1024,
	POINT_BYTES = 16 * 1024 * 1024,
};

static const int64_t POINT_NS = INT64_C(5) * CLOCK_NS_PER_S;

/* ---- begin ---- */

/*
 * What a barrier has forced needs no write-back any more: where barriers are frequent there is none. What is mapped waits
 * until it is not: for each page that is written back, the kernel would look up its mappings and interrupt all CPUs.
 */
static void
plan_write_back(const struct partition *p, struct partition_upkeep *upkeep)
{
	int64_t from = p->write_back_position > p->durable_position ? p->write_back_position : p->durable_position;
	int64_t to = p->ahead.bytes == NULL ? p->active->bytes : p->ahead.position;

	to -= to % UNIT_BYTES;
	if (to - from < WRITE_BACK_BYTES)
		return;
	upkeep->write_back_position = from;
	upkeep->write_back_bytes = to - from;
}

/* As much as the segment has already, within bounds. */
static int64_t
stretch_bytes(int64_t segment_bytes)
{
	int64_t bytes = STRETCH_MIN_BYTES;

	while (bytes < STRETCH_MAX_BYTES && bytes < segment_bytes)
		bytes *= 2;
	return bytes;
}

/* Whole pages up to that position, but not more than the file will have. */
static int64_t
page_end(const struct partition *p, int64_t position)
{
	int64_t end = (position + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;

	return end < p->settings.segment_bytes ? end : p->settings.segment_bytes;
}

/* Before anything waits for it, the next stretch is begun when half of one is left; the first one when something waits. */
static bool
room_is_due(const struct partition *p, int64_t stretch)
{
	return p->ahead.bytes != NULL && p->ahead.end < p->settings.segment_bytes && partition_room(p) < stretch / 2;
}

static void
plan_room(struct partition *p, int64_t room_bytes, struct partition_upkeep *upkeep)
{
	int64_t stretch = stretch_bytes(p->active->bytes);
	int64_t end = p->active->bytes + room_bytes;

	if (!p->settings.mapped || (room_bytes == 0 && !room_is_due(p, stretch)))
		return;
	p->room_void = false;
	upkeep->make_room = true;
	upkeep->end_position = p->active->bytes;
	upkeep->allocated_end = p->ahead.bytes == NULL ? p->active->bytes : p->ahead.end;
	upkeep->needed_end = page_end(p, end);
	upkeep->wanted_end = page_end(p, (end > upkeep->allocated_end ? end : upkeep->allocated_end) + stretch);
	upkeep->segment_bytes = p->settings.segment_bytes;
}

/*
 * The recovery point follows the durable end: by so many bytes, which recovery reads in a hundredth of a second, or by so
 * much time, in which what a barrier has reached could still be taken for torn.
 */
static void
plan_point(struct partition *p, int64_t now_ns, struct partition_upkeep *upkeep)
{
	const struct index *index = &p->active->index;
	int64_t fresh_bytes = p->durable_position - p->stored.point.position;
	size_t count;

	if (fresh_bytes == 0 || (fresh_bytes < POINT_BYTES && now_ns - p->stored_ns < POINT_NS))
		return;
	p->stored_ns = now_ns;
	count = index_count_below(index, p->durable_end) - p->stored.marks;
	upkeep->marks = malloc((count + 1) * sizeof(*upkeep->marks));
	if (upkeep->marks == NULL)
		return;
	memcpy(upkeep->marks, index->marks + p->stored.marks, count * sizeof(*upkeep->marks));
	upkeep->mark_count = count;
	upkeep->stored = p->stored;
	upkeep->point = (struct index_point){ .end = p->durable_end, .position = p->durable_position,
		.first_append_ms = p->first_append_ms, .last_append_ms = p->last_append_ms };
	upkeep->dir_fd = p->dir_fd;
}

bool
partition_upkeep_begin(struct partition *p, int64_t room_bytes, int64_t now_ns, struct partition_upkeep *upkeep)
{
	*upkeep = (struct partition_upkeep){ 0 };
	if (p->failed)
		return false;
	plan_room(p, room_bytes, upkeep);
	/* When somebody waits for room, nothing else is to be done meanwhile. */
	if (room_bytes == 0) {
		plan_write_back(p, upkeep);
		plan_point(p, now_ns, upkeep);
	}
	if (upkeep->write_back_bytes == 0 && !upkeep->make_room && upkeep->marks == NULL)
		return false;
	segment_hold(p->active);
	upkeep->segment = p->active;
	upkeep->behind = p->behind;
	p->behind = (struct mapping){ 0 };
	return true;
}

/* ---- run ---- */

/* Gives the file its full size. Returns 0, or -1 with errno. */
static int
restore_size(const struct partition_upkeep *upkeep)
{
	int fd = upkeep->segment->fd;
	int64_t file_bytes = segment_whole_bytes(fd, upkeep->end_position);

	if (file_bytes == -1)
		return -1;
	return file_bytes < upkeep->segment_bytes ? segment_truncate(fd, upkeep->segment_bytes) : 0;
}

/* On a disk that is nearly full there may still be room for what waits. */
static int
make_room(struct partition_upkeep *upkeep)
{
	int fd = upkeep->segment->fd;
	int64_t end = upkeep->wanted_end;

	if (restore_size(upkeep) == -1)
		return -1;
	if (mapping_allocate(fd, upkeep->allocated_end, end) == -1) {
		if (upkeep->needed_end <= upkeep->allocated_end || upkeep->needed_end >= end)
			return -1;
		end = upkeep->needed_end;
		if (mapping_allocate(fd, upkeep->allocated_end, end) == -1)
			return -1;
	}
	return mapping_open(&upkeep->mapping, fd, upkeep->end_position, end);
}

/*
 * SYNC_FILE_RANGE_WRITE alone begins write-back. Its other flags wait for its end and take the note of a failure that
 * the kernel keeps for the next force: that one would succeed then, with bytes missing on the disk.
 */
void
partition_upkeep_run(struct partition_upkeep *upkeep)
{
	mapping_close(&upkeep->behind);
	if (upkeep->make_room && make_room(upkeep) == -1)
		upkeep->room_error = errno;
	if (upkeep->write_back_bytes > 0 && syscalls.sync_file_range(upkeep->segment->fd, upkeep->write_back_position,
	    upkeep->write_back_bytes, SYNC_FILE_RANGE_WRITE) == -1)
		upkeep->write_back_error = errno;
	if (upkeep->marks != NULL && index_file_store(upkeep->dir_fd, upkeep->segment, &upkeep->stored, &upkeep->point,
	    upkeep->marks, upkeep->mark_count) == -1)
		upkeep->store_error = errno;
}

/* ---- finish ---- */

static void
finish_point(struct partition *p, struct partition_upkeep *upkeep)
{
	char file[SEGMENT_NAME_BYTES];

	index_file_name(file, upkeep->segment->base);
	/* ESTALE: somebody has removed it, and the next point begins it anew. */
	partition_note_cache(p, file, upkeep->store_error == ESTALE ? 0 : upkeep->store_error);
	p->stored = upkeep->stored;
	free(upkeep->marks);
	upkeep->marks = NULL;
}

/* A file system that has no such call, or a kernel without memory for it: then the barrier does it all. */
static bool
harmless(int error)
{
	return error == ENOSYS || error == EOPNOTSUPP || error == EINVAL || error == ESPIPE || error == EPERM ||
	    error == EINTR || error == EAGAIN || error == ENOMEM;
}

void
partition_retire_mapping(struct partition *p)
{
	/* One that is replaced before an upkeep has come: rare, and small. */
	if (p->ahead.bytes != NULL) {
		mapping_close(&p->behind);
		p->behind = p->ahead;
	}
	p->ahead = (struct mapping){ 0 };
}

static void
take_room(struct partition *p, struct partition_upkeep *upkeep)
{
	if (p->room_void) {
		mapping_close(&upkeep->mapping);
		return;
	}
	partition_retire_mapping(p);
	p->ahead = upkeep->mapping;
}

/* Nobody promises that the next force would tell again of pages that could not be written back. */
int
partition_upkeep_finish(struct partition *p, struct partition_upkeep *upkeep)
{
	int error = upkeep->write_back_error;

	if (upkeep->marks != NULL)
		finish_point(p, upkeep);
	segment_drop(upkeep->segment);
	upkeep->segment = NULL;
	if (upkeep->write_back_bytes > 0)
		p->write_back_position = upkeep->write_back_position + upkeep->write_back_bytes;
	if (upkeep->make_room && upkeep->room_error == 0)
		take_room(p, upkeep);
	if (upkeep->make_room && upkeep->room_error != 0)
		partition_fail_if_cut(p);
	if (error != 0 && !harmless(error)) {
		errno = error;
		partition_fail(p);
	}
	errno = p->failed ? (error != 0 ? error : EIO) : upkeep->room_error;
	return errno == 0 ? 0 : -1;
}
