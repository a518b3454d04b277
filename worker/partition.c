/*
 * A partition's log, see partition.h. Here is what the owning thread does: the list of segments, append, and both ends of
 * barriers and rolls. What waits for the disk is in recovery.c (open) and roll.c, and in the small run function here; looking
 * up records is lookup.c's, looking after the active segment upkeep.c's.
 */
#include "worker/partition.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "worker/inventory.h"
#include "worker/listing.h"
#include "worker/partition_state.h"
#include "worker/recovery.h"
#include "worker/roll.h"
#include "worker/segment.h"
#include "worker/stop_marker.h"
#include "worker/syscalls.h"

enum { DIRECTORY_MODE = 0750 };

enum { CLOCK_SLACK_MS = 1000 };	/* a clock that is kept by the network may be set back a little at any time */

/* Two hundred years in nanoseconds are still an int64_t; retention_age has at most one hundred. */
static const int64_t AGE_MAX_MS = INT64_C(200) * 365 * 86400 * 1000;

/* ---- open and close ---- */

/* Makes room for `more` further sealed segments. Returns 0, or -1 with errno ENOMEM. */
static int
reserve_sealed(struct partition *p, size_t more)
{
	size_t wanted = p->sealed_count + more;
	struct sealed *grown;

	if (wanted <= p->sealed_capacity)
		return 0;
	if (wanted < p->sealed_capacity * 2)
		wanted = p->sealed_capacity * 2;
	grown = realloc(p->sealed, wanted * sizeof(*grown));
	if (grown == NULL)
		return -1;
	p->sealed = grown;
	p->sealed_capacity = wanted;
	return 0;
}

/* Adds a sealed segment behind the others. Room has been reserved. The times are not set. */
static struct sealed *
add_sealed(struct partition *p, int64_t base, int64_t bytes)
{
	struct sealed *sealed = &p->sealed[p->sealed_count++];

	*sealed = (struct sealed){ .base = base, .bytes = bytes, .bytes_before = p->bytes_before_active };
	p->bytes_before_active += bytes;
	return sealed;
}

/* When was that by CLOCK_MONOTONIC? A time in the future is now, one longer ago than anybody keeps records is that. */
static int64_t
monotonic_ns(int64_t ms)
{
	int64_t age_ms = clock_wall_ms() - (ms < 0 ? 0 : ms);

	if (age_ms < 0)
		age_ms = 0;
	return clock_now_ns() - (age_ms < AGE_MAX_MS ? age_ms : AGE_MAX_MS) * CLOCK_NS_PER_MS;
}

static int
open_directory(int data_fd, const char *name)
{
	int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	int fd = syscalls.open(data_fd, name, flags, 0);

	if (fd != -1 || errno != ENOENT)
		return fd;
	/* Before it is opened: under a strict umask its owner could not do that either. */
	if (syscalls.mkdir(data_fd, name, DIRECTORY_MODE) == -1 || fchmodat(data_fd, name, DIRECTORY_MODE, 0) == -1)
		return -1;
	return syscalls.open(data_fd, name, flags, 0);
}

/* Wraps beyond the year 2262, which is of no consequence: it is only compared. */
static int64_t
modified_ns(const struct stat *st)
{
	return (int64_t)((uint64_t)st->st_mtim.tv_sec * CLOCK_NS_PER_S + (uint64_t)st->st_mtim.tv_nsec);
}

void
partition_note_cache(struct partition *p, const char *file, int error)
{
	if (error == 0 || p->cache_reported)
		return;
	log_warning("%s/%s: cannot be written: %s; the log works without such files, but the next start takes longer", p->name,
	    file, strerror(error));
	p->cache_reported = true;
}

/* The same of the active segment's index. */
static void
note_index(struct partition *p, int error)
{
	char file[SEGMENT_NAME_BYTES];

	index_file_name(file, p->active->base);
	partition_note_cache(p, file, error);
}

/* Times in the future make segments look younger than they are: said once, of all of them. */
static void
report_future(const char *name, const struct listing *listing)
{
	int64_t now_ms = clock_wall_ms(), latest_ms = now_ms;
	size_t count = 0;

	for (size_t i = 0; i < listing->count; i++) {
		int64_t ms = listing->segments[i].last_append_ms;

		count += ms > now_ms + CLOCK_SLACK_MS;
		latest_ms = ms > latest_ms ? ms : latest_ms;
	}
	if (count > 0)
		log_warning("%s: %zu segment%s written in the future, by up to %" PRId64 " s: the age of such a segment counts from "
		    "now. Look after the machine's clock", name, count, count == 1 ? " was" : "s were",
		    (latest_ms - now_ms) / 1000);
}

/* The segments as recovery has found them, those taken out again that had been taken out before. */
static int
take_listing(struct partition *p, const struct listing *listing, int64_t log_start)
{
	size_t sealed_count = listing->count - 1;

	if (reserve_sealed(p, sealed_count) == -1)
		return -1;
	for (size_t i = 0; i < sealed_count; i++) {
		const struct listing_segment *segment = &listing->segments[i];
		struct sealed *sealed = add_sealed(p, segment->base, segment->bytes);

		sealed->last_append_ms = segment->last_append_ms;
		sealed->last_append_ns = monotonic_ns(segment->last_append_ms);
	}
	return partition_retire_below(p, log_start);
}

static void
take_active(struct partition *p, const struct recovery *r)
{
	p->active = r->active;
	p->durable_end = p->active->end;
	p->durable_position = p->active->bytes;
	p->first_append_ms = r->first_append_ms;
	p->first_append_ns = monotonic_ns(p->first_append_ms);
	p->last_append_ms = r->last_append_ms;
	p->last_append_ns = monotonic_ns(p->last_append_ms);
	p->stored = r->index.file;
}

/* The log as recovery has found it. Takes over dir_fd and the active segment; NULL with neither when memory is out. */
static struct partition *
new_partition(const struct recovery *r)
{
	struct partition *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	p->settings = *r->settings;
	take_active(p, r);
	p->name = strdup(r->name);
	if (p->name == NULL || take_listing(p, r->listing, r->known->log_start) == -1) {
		free(p->name);
		free(p->sealed);
		free(p);
		return NULL;
	}
	p->dir_fd = r->dir_fd;
	report_future(p->name, r->listing);
	note_index(p, r->index_error);
	return p;
}

/* Of the active segment only what lies below `offset` is known to be forced. Returns 0, or -1 with errno. */
static int
force_ends_at(struct partition *p, int64_t offset)
{
	struct segment *active = p->active;
	struct index_mark at;

	p->durable_end = offset > active->base ? offset : active->base;
	at = segment_mark(active, p->durable_end);
	if (segment_seek(active, active->bytes, p->durable_end, &at) == -1)
		return -1;
	p->durable_position = at.position;
	return 0;
}

/*
 * Nobody has been told that the log is forced up to a sealed segment's end: a roll has failed there, and could not be
 * undone. That segment is the last one then, up to where it is known to be forced. Returns 0, or -1 with errno.
 */
static int
end_in_sealed(struct partition *p, int64_t offset)
{
	const struct sealed *sealed = partition_find_sealed(p, offset);
	struct segment *segment;
	int fd;

	if (sealed == NULL)
		return 0;
	fd = segment_open_file(p->dir_fd, sealed->base, O_RDONLY);
	if (fd == -1)
		return -1;
	segment = segment_new(fd, sealed->base, p->settings.record_format, p->settings.index_interval_bytes);
	if (segment == NULL) {
		close(fd);
		errno = ENOMEM;
		return -1;
	}
	segment_drop(p->active);
	p->active = segment;
	p->bytes_before_active = sealed->bytes_before;
	p->sealed_count = (size_t)(sealed - p->sealed);
	return segment_walk(segment, sealed->bytes, offset);
}

/* A log that could not be opened, to be read as far as it is known to be forced. Returns 0, or -1. */
static int
end_at_forced(struct partition *p, const struct partition_known *known)
{
	p->failed = true;
	p->failed_end = known->shown_end;
	if (end_in_sealed(p, known->published_end) == -1)
		return -1;
	p->active->cut_position = 0;
	if (force_ends_at(p, known->published_end) == -1)
		return -1;
	p->active->cut_position = p->durable_position;
	return 0;
}

/* Takes over the directory and what recovery has left in it; `done`: it came to its end. */
static void
make_partition(const struct recovery *r, bool done, struct partition_opened *opened)
{
	int placed = 0;

	opened->partition = new_partition(r);
	if (opened->partition == NULL) {
		segment_drop(r->active);
		close(r->dir_fd);
		opened->short_of = true;
		snprintf(opened->why, sizeof(opened->why), "out of memory");
		return;
	}
	if (!done)
		placed = end_at_forced(opened->partition, r->known);
	else if (r->known->released && r->as_left)
		placed = force_ends_at(opened->partition, r->known->durable_end);
	if (placed == 0)
		return;
	if (done)
		snprintf(opened->why, sizeof(opened->why), "cannot read it: %s", strerror(errno));
	partition_close(opened->partition);
	opened->partition = NULL;
}

static int
take_inventory(struct inventory *inventory, int dir_fd)
{
	inventory->dir_fd = dir_fd;
	if (listing_read(inventory->listing, dir_fd, inventory->name) == -1)
		return -1;
	if (inventory_read(inventory) == 0)
		return 0;
	listing_free(inventory->listing);
	errno = ENOMEM;
	return -1;
}

/* The log is open, unless memory was out. */
static void
settle_inventory(struct inventory *inventory, struct partition *p)
{
	if (p == NULL)
		return;
	inventory_report(inventory);
	partition_note_cache(p, SEALED_LIST_NAME, inventory_store(inventory) == -1 ? errno : 0);
}

/* What has been removed as a whole leaves nothing that tells of it but the marker of the stop before. */
static void
report_less(const char *name, const struct partition *p, const struct stop_state *left)
{
	if (p != NULL && left != NULL && left->end > p->active->end)
		log_warning("%s: the log ended at offset %" PRId64 " when its worker stopped, and ends at %" PRId64 " now: records are lost, or "
		    "its directory was removed or replaced by an older one", name, left->end, p->active->end);
}

/* Is the active file still as a clean stop has left it? */
static bool
is_as_left(const struct inventory *inventory, const struct stop_state *stopped)
{
	const struct listing *listing = inventory->listing;
	char file[SEGMENT_NAME_BYTES];
	struct stat st;

	if (stopped == NULL || listing->count == 0 || listing->segments[listing->count - 1].base != stopped->base)
		return false;
	segment_name(file, stopped->base);
	return fstatat(inventory->dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_size == stopped->file_bytes
	    && modified_ns(&st) == stopped->modified_ns;
}

/* What is known, given what stands in the directory. */
static struct partition_known
what_counts(const struct partition_known *known, const struct inventory *inventory)
{
	struct partition_known counts = *known;

	if (!known->failed && is_as_left(inventory, known->stopped))
		counts.from_disk = false;
	else
		counts.stopped = NULL;
	if (counts.released && counts.stopped == NULL) {
		log_warning("%s: is not as the worker before this one has left it: it is recovered", inventory->name);
		counts.released = false;
	}
	return counts;
}

void
partition_open(int data_fd, const char *name, const struct partition_settings *settings,
    const struct partition_known *known, struct partition_opened *opened)
{
	struct listing listing;
	struct inventory inventory = { .name = name, .format = settings->record_format, .listing = &listing };
	struct partition_settings bounded = *settings;
	struct partition_known counts;
	struct recovery recovery = { .data_fd = data_fd, .name = name, .settings = &bounded,
		.known = &counts, .listing = &listing, .inventory = &inventory, .left = known->stopped,
		.why = opened->why };
	int dir_fd = open_directory(data_fd, name);
	int done;

	*opened = (struct partition_opened){ 0 };
	if (dir_fd == -1 || take_inventory(&inventory, dir_fd) == -1) {
		opened->short_of = recovery_is_shortage(errno);
		snprintf(opened->why, sizeof(opened->why), "cannot open its directory: %s", strerror(errno));
		if (dir_fd != -1)
			close(dir_fd);
		return;
	}
	recovery.dir_fd = dir_fd;
	/* A mark takes 16 bytes of memory for each open segment, and as much on the disk. */
	if (bounded.index_interval_bytes < bounded.segment_bytes / PARTITION_MARKS_MAX)
		bounded.index_interval_bytes = bounded.segment_bytes / PARTITION_MARKS_MAX;
	counts = what_counts(known, &inventory);
	done = recovery_run(&recovery);
	if (recovery.active != NULL)
		make_partition(&recovery, done == 0, opened);
	else
		close(dir_fd);
	if (done == 0) {
		settle_inventory(&inventory, opened->partition);
		report_less(name, opened->partition, known->stopped);
	}
	opened->truncated_bytes = recovery.truncated_bytes;
	opened->failed = recovery.failed;
	opened->short_of = opened->short_of || recovery.short_of;
	inventory_free(&inventory);
	listing_free(&listing);
}

static int
tell_state(const struct partition *p, struct stop_state *state)
{
	const struct segment *active = p->active;
	struct stat st;

	if (syscalls.fstat(active->fd, &st) == -1)
		return -1;
	*state = (struct stop_state){ .base = active->base, .end = active->end, .position = active->bytes,
		.file_bytes = st.st_size, .modified_ns = modified_ns(&st) };
	return 0;
}

int
partition_leave(struct partition *p, struct stop_state *state)
{
	struct segment *active = p->active;
	struct index_point point = { .end = active->end, .position = active->bytes, .first_append_ms = p->first_append_ms,
		.last_append_ms = p->last_append_ms };

	partition_fail_if_cut(p);
	if (p->failed || p->uncut || p->durable_end != active->end) {
		errno = EBUSY;
		return -1;
	}
	if (active->bytes > p->stored.point.position && index_file_store_all(p->dir_fd, active, &p->stored, &point) == -1) {
		note_index(p, errno);
		return -1;
	}
	return tell_state(p, state);
}

/* What a failed write has left must be cut off before anybody appends, durably, and names that are in doubt be forced. */
int
partition_release(struct partition *p, struct stop_state *state)
{
	partition_fail_if_cut(p);
	if (p->failed || p->uncut || p->unlinks_unsure) {
		errno = EBUSY;
		return -1;
	}
	return tell_state(p, state);
}

void
partition_ask_point(struct partition *p)
{
	p->stored_ns = INT64_MIN / 2;
}

void
partition_close(struct partition *p)
{
	if (p == NULL)
		return;
	for (size_t i = 0; i < p->sealed_count; i++)
		segment_drop(p->sealed[i].segment);
	segment_drop(p->active);
	while (p->lingering != NULL) {
		struct segment *segment = p->lingering;

		p->lingering = segment->next;
		segment_drop(segment);
	}
	free(p->doomed);
	mapping_close(&p->ahead);
	mapping_close(&p->behind);
	close(p->dir_fd);
	free(p->sealed);
	free(p->name);
	free(p);
}

/* ---- what it is ---- */

int64_t
partition_log_start(const struct partition *p)
{
	int64_t first = p->sealed_count > 0 ? p->sealed[0].base : p->active->base;

	return first > p->least_start ? first : p->least_start;
}

int64_t
partition_log_end(const struct partition *p)
{
	return p->active->end;
}

int64_t
partition_durable_end(const struct partition *p)
{
	return p->durable_end;
}

int64_t
partition_visible_end(const struct partition *p)
{
	if (p->failed)
		return p->failed_end;
	return p->settings.durable_only ? p->durable_end : p->active->end;
}

int64_t
partition_visible_bytes(const struct partition *p)
{
	return p->bytes_before_active + partition_visible_position(p);
}

int64_t
partition_size_bytes(const struct partition *p)
{
	return p->bytes_before_active + p->active->bytes - p->retired_bytes;
}

int64_t
partition_unforced_bytes(const struct partition *p)
{
	return p->active->bytes - p->durable_position;
}

int64_t
partition_segments(const struct partition *p)
{
	return (int64_t)p->sealed_count + 1;
}

bool
partition_failed(const struct partition *p)
{
	return p->failed;
}

static void
end_at_durable(struct partition *p)
{
	p->failed_end = partition_visible_end(p);
	p->failed = true;
	p->active->cut_position = p->durable_position;
}

void
partition_fail(struct partition *p)
{
	int error = errno;
	char file[SEGMENT_NAME_BYTES];

	if (p->failed)
		return;
	segment_name(file, p->active->base);
	log_error("%s/%s: forcing it to disk failed: %s. Look after the disk. The partition takes no records and can be read up "
	    "to offset %" PRId64 " until its log has been read from the disk again, which is tried from now on", p->name, file,
	    strerror(error), p->durable_end);
	end_at_durable(p);
	errno = error;
}

void
partition_fail_if_cut(struct partition *p)
{
	int error = errno;
	struct stat st;
	char file[SEGMENT_NAME_BYTES], what[64] = "removed or replaced";

	if (p->failed || syscalls.fstat(p->active->fd, &st) == -1 || (st.st_nlink > 0 && st.st_size >= p->active->bytes)) {
		errno = error;
		return;
	}
	if (st.st_nlink > 0)
		snprintf(what, sizeof(what), "cut to %" PRId64 " bytes", (int64_t)st.st_size);
	segment_name(file, p->active->base);
	log_error("%s/%s: was %s from outside; its records reach to position %" PRId64 ". The partition takes no records until its "
	    "log has been read from the disk again, which is tried from now on: look for who has done that", p->name, file, what,
	    p->active->bytes);
	end_at_durable(p);
	errno = error;
}

/* ---- append ---- */

int64_t
partition_room(const struct partition *p)
{
	int64_t room = partition_segment_room(p);

	if (p->uncut)
		return 0;
	if (!p->settings.mapped)
		return room;
	if (p->ahead.bytes == NULL)
		return 0;
	return p->ahead.end - p->active->bytes < room ? p->ahead.end - p->active->bytes : room;
}

enum partition_fit
partition_fit(const struct partition *p, int64_t bytes)
{
	if (bytes > p->settings.segment_bytes)
		return PARTITION_ALONE;
	if (bytes > partition_segment_room(p))
		return PARTITION_ROLL;
	if (p->uncut)
		return PARTITION_UNCUT;
	return bytes <= partition_room(p) ? PARTITION_FITS : PARTITION_AHEAD;
}

/* Something was appended to the active segment, now. */
static void
note_append(struct partition *p, bool first)
{
	p->last_append_ms = clock_wall_ms();
	p->last_append_ns = clock_now_ns();
	if (first) {
		p->first_append_ms = p->last_append_ms;
		p->first_append_ns = p->last_append_ns;
	}
}

/*
 * What it has left is cut off at once, so that no crash brings back a part of what is refused now; and durably before the next
 * append, or a power cut could put the rest of it behind that. What was mapped has lost its blocks then.
 */
static void
append_failed(struct partition *p)
{
	p->uncut = segment_file_bytes(p->active->fd) != p->active->bytes;
	p->room_void = true;
	partition_retire_mapping(p);
	segment_cut(p->active->fd, p->active->bytes);
}

int
partition_append(struct partition *p, const uint8_t *records, size_t bytes, int32_t count)
{
	int error;

	if (p->failed) {
		errno = EIO;
		return -1;
	}
	if (count <= 0 || bytes > (size_t)partition_room(p)) {
		errno = EINVAL;
		return -1;
	}
	if (segment_append(p->active, p->settings.mapped ? &p->ahead : NULL, records, bytes, count) == 0) {
		note_append(p, p->active->bytes == (int64_t)bytes);
		return 0;
	}
	error = errno;
	append_failed(p);
	partition_fail_if_cut(p);
	errno = error;
	return -1;
}

/* ---- barrier ---- */

void
partition_barrier_begin(struct partition *p, struct partition_barrier *barrier)
{
	segment_hold(p->active);
	*barrier = (struct partition_barrier){ .segment = p->active, .end_offset = p->active->end,
		.end_position = p->active->bytes, .cut = p->uncut };
}

void
partition_barrier_run(struct partition_barrier *barrier)
{
	int64_t began_ns = clock_now_ns();

	if (barrier->cut && segment_cut(barrier->segment->fd, barrier->end_position) == -1)
		barrier->cut_error = errno;
	barrier->error = syscalls.fdatasync(barrier->segment->fd) == -1 ? errno : 0;
	barrier->duration_ns = clock_now_ns() - began_ns;
}

int
partition_barrier_finish(struct partition *p, struct partition_barrier *barrier)
{
	segment_drop(barrier->segment);
	barrier->segment = NULL;
	if (barrier->error != 0) {
		errno = barrier->error;
		partition_fail(p);
	}
	if (p->failed) {
		errno = barrier->error != 0 ? barrier->error : EIO;
		return -1;
	}
	p->durable_end = barrier->end_offset;
	p->durable_position = barrier->end_position;
	if (barrier->cut && barrier->cut_error == 0)
		p->uncut = false;
	if (barrier->cut_error != 0)
		partition_fail_if_cut(p);
	return 0;
}

/* ---- roll ---- */

struct partition_roll *
partition_roll_begin(struct partition *p, const uint8_t *records, size_t bytes, int32_t count)
{
	struct partition_roll *roll;

	if (p->failed) {
		errno = EIO;
		return NULL;
	}
	roll = calloc(1, sizeof(*roll));
	if (roll == NULL)
		return NULL;
	segment_hold(p->active);
	roll->active = p->active;
	roll->dir_fd = p->dir_fd;
	roll->index_interval_bytes = p->settings.index_interval_bytes;
	roll->full_bytes = p->settings.mapped ? p->settings.segment_bytes : 0;
	roll->replaces = p->active->bytes == 0;
	roll->stored = p->stored;
	roll->first_append_ms = p->first_append_ms;
	roll->last_append_ms = p->last_append_ms;
	if (roll_plan(p->settings.record_format, p->settings.segment_bytes, p->active->end, records, bytes, count,
	    &roll->parts, &roll->part_count) == -1 || reserve_sealed(p, roll->part_count) == -1) {
		int error = errno;

		roll_free(roll);
		errno = error;
		return NULL;
	}
	roll->ahead = p->ahead;
	roll->behind = p->behind;
	p->ahead = p->behind = (struct mapping){ 0 };
	return roll;
}

/* What is noted of the active segment's last append is that segment's. */
static void
note_last_append(const struct partition *p, struct sealed *sealed)
{
	sealed->last_append_ms = p->last_append_ms;
	sealed->last_append_ns = p->last_append_ns;
}

static void
seal_active(struct partition *p)
{
	struct sealed *sealed = add_sealed(p, p->active->base, p->active->bytes);

	note_last_append(p, sealed);
	sealed->reported = p->active_reported;
	p->active_reported = false;
	partition_keep_loaded(p, sealed, p->active);
}

/* The new segments take their places in the list; everything up to the end of the last one has been forced. */
static void
take_over(struct partition *p, struct partition_roll *roll)
{
	if (roll->replaces)
		segment_drop(p->active);
	else
		seal_active(p);
	note_index(p, roll->index_error);
	partition_note_cache(p, SEALED_LIST_NAME, roll->list_error);
	p->stored = roll->stored;
	/* What the batch has brought, if there is one. */
	note_append(p, true);
	for (size_t i = 0; i + 1 < roll->part_count; i++)
		note_last_append(p, add_sealed(p, roll->parts[i].base, (int64_t)roll->parts[i].bytes));
	p->active = roll->next;
	roll->next = NULL;
	p->durable_end = p->active->end;
	p->durable_position = p->active->bytes;
	p->write_back_position = 0;
}

int
partition_roll_finish(struct partition *p, struct partition_roll *roll)
{
	int error = roll->error;

	if (roll->trimmed)
		p->uncut = false;
	if (error == 0) {
		take_over(p, roll);
	} else if (roll->next != NULL) {
		segment_drop(p->active);
		p->active = roll->next;
		roll->next = NULL;
	}
	errno = error;
	if (roll->lost && !roll->trimmed)
		partition_fail_if_cut(p);
	if (roll->lost)
		partition_fail(p);
	roll_free(roll);
	errno = error;
	return error == 0 ? 0 : -1;
}
