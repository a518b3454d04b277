/*
 * A partition's log, see partition.h. Here is what the owning thread does: the list of segments, append, lookup, and
 * both ends of the jobs. What waits for the disk is in recovery.c (open) and roll.c, and in the two small run functions
 * here.
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
#include "worker/listing.h"
#include "worker/recovery.h"
#include "worker/roll.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

enum {
	DIRECTORY_MODE = 0750,
	/* So long a segment that could not be loaded for want of memory or descriptors is not tried again. */
	LOAD_RETRY_NS = 100 * CLOCK_NS_PER_MS,
	/* A log may have tens of thousands of segments; so many of the sealed ones stay open, the last read ones. */
	LOADED_MAX = 16,
};

/* A sealed segment as the owner knows it. Its file is opened and indexed when somebody reads it. */
struct sealed {
	int64_t base;
	int64_t bytes;		/* of the file */
	int64_t bytes_before;	/* of all segments ahead of it that were there when the log was opened or since */
	struct segment *segment;	/* NULL: not loaded */
	uint64_t used;		/* when it was last read, as a count of reads */
	int load_error;		/* errno of the last load, 0 = none or done */
	int64_t load_again_ns;	/* with an error: not before this */
	bool reported;		/* its damage has been logged */
};

struct partition {
	int dir_fd;
	char *name;
	struct partition_settings settings;
	struct sealed *sealed;		/* by base */
	size_t sealed_count;
	size_t sealed_capacity;
	size_t loaded_count;		/* sealed segments that are open */
	uint64_t reads;
	struct segment *active;
	int64_t bytes_before_active;
	int64_t durable_end;		/* always within the active segment, as is its position */
	int64_t durable_position;
	bool failed;
	bool uncut;		/* a failed write may have left bytes behind the end */
};

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

/* Closes the loaded segment that has not been read for longest. Slices of it keep what they need. */
static void
unload_one(struct partition *p)
{
	struct sealed *oldest = NULL;

	for (size_t i = 0; i < p->sealed_count; i++) {
		struct sealed *sealed = &p->sealed[i];

		if (sealed->segment != NULL && (oldest == NULL || sealed->used < oldest->used))
			oldest = sealed;
	}
	segment_drop(oldest->segment);
	oldest->segment = NULL;
	p->loaded_count--;
}

/* The segment is open and indexed from now on; takes over the reference. */
static void
keep_loaded(struct partition *p, struct sealed *sealed, struct segment *segment)
{
	sealed->segment = segment;
	sealed->used = ++p->reads;
	if (++p->loaded_count > LOADED_MAX)
		unload_one(p);
}

/* Adds a sealed segment behind the others. Room has been reserved; takes over the reference, NULL: not loaded. */
static void
add_sealed(struct partition *p, int64_t base, int64_t bytes, struct segment *segment)
{
	struct sealed *sealed = &p->sealed[p->sealed_count++];

	*sealed = (struct sealed){ .base = base, .bytes = bytes, .bytes_before = p->bytes_before_active };
	p->bytes_before_active += bytes;
	if (segment != NULL)
		keep_loaded(p, sealed, segment);
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

/* The log as recovery has found it. Takes over dir_fd and the active segment; NULL with neither when memory is out. */
static struct partition *
new_partition(int dir_fd, const char *name, const struct partition_settings *settings, const struct listing *listing,
    struct segment *active)
{
	struct partition *p = calloc(1, sizeof(*p));
	size_t sealed_count = listing->count == 0 ? 0 : listing->count - 1;

	if (p == NULL || (p->name = strdup(name)) == NULL || reserve_sealed(p, sealed_count) == -1) {
		if (p != NULL)
			free(p->name);
		free(p);
		return NULL;
	}
	p->dir_fd = dir_fd;
	p->settings = *settings;
	for (size_t i = 0; i < sealed_count; i++)
		add_sealed(p, listing->segments[i].base, listing->segments[i].bytes, NULL);
	p->active = active;
	p->durable_end = active->end;
	p->durable_position = active->bytes;
	return p;
}

void
partition_open(int data_fd, const char *name, const struct partition_settings *settings, int64_t published_end,
    struct partition_opened *opened)
{
	struct listing listing;
	struct recovery recovery = { .data_fd = data_fd, .name = name, .settings = settings,
		.published_end = published_end, .listing = &listing, .why = opened->why };
	int dir_fd = open_directory(data_fd, name);

	*opened = (struct partition_opened){ 0 };
	if (dir_fd == -1 || listing_read(&listing, dir_fd, name) == -1) {
		snprintf(opened->why, sizeof(opened->why), "cannot open its directory: %s", strerror(errno));
		if (dir_fd != -1)
			close(dir_fd);
		return;
	}
	recovery.dir_fd = dir_fd;
	if (recovery_run(&recovery) == 0) {
		opened->partition = new_partition(dir_fd, name, settings, &listing, recovery.active);
		if (opened->partition == NULL) {
			segment_drop(recovery.active);
			snprintf(opened->why, sizeof(opened->why), "out of memory");
		}
	}
	opened->truncated_bytes = recovery.truncated_bytes;
	opened->force_failed = recovery.force_failed;
	listing_free(&listing);
	if (opened->partition == NULL)
		close(dir_fd);
}

void
partition_close(struct partition *p)
{
	if (p == NULL)
		return;
	for (size_t i = 0; i < p->sealed_count; i++)
		segment_drop(p->sealed[i].segment);
	segment_drop(p->active);
	close(p->dir_fd);
	free(p->sealed);
	free(p->name);
	free(p);
}

/* ---- what it is ---- */

int64_t
partition_log_start(const struct partition *p)
{
	return p->sealed_count > 0 ? p->sealed[0].base : p->active->base;
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
	return p->settings.durable_only ? p->durable_end : p->active->end;
}

/* Position in the active segment up to which it is read. */
static int64_t
visible_position(const struct partition *p)
{
	return p->failed || p->settings.durable_only ? p->durable_position : p->active->bytes;
}

int64_t
partition_visible_bytes(const struct partition *p)
{
	return p->bytes_before_active + visible_position(p);
}

int64_t
partition_size_bytes(const struct partition *p)
{
	return p->bytes_before_active + p->active->bytes;
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

/* A force has failed with errno: nothing tells what is on disk now, and a later success would not tell either. */
static void
fail(struct partition *p)
{
	int error = errno;
	char file[SEGMENT_NAME_BYTES];

	segment_name(file, p->active->base);
	if (!p->failed)
		log_error("%s/%s: forcing it to disk failed: %s. The partition takes no more records and can be read up to "
		    "offset %" PRId64 ". Look after the disk, then restart the machine or remount its file system: only so is the "
		    "log read from the disk again", p->name, file, strerror(error),
		    p->durable_end);
	p->failed = true;
	errno = error;
}

/* ---- append ---- */

int64_t
partition_room(const struct partition *p)
{
	int64_t room = p->settings.segment_bytes - p->active->bytes;

	return room > 0 ? room : 0;
}

enum partition_fit
partition_fit(const struct partition *p, int64_t bytes)
{
	if (bytes > p->settings.segment_bytes)
		return PARTITION_ALONE;
	return bytes <= partition_room(p) ? PARTITION_FITS : PARTITION_ROLL;
}

/* Removes what a failed write may have left behind the end, or the next append's failure would leave a mixture. */
static int
cut_leavings(struct partition *p)
{
	if (segment_truncate(p->active->fd, p->active->bytes) == -1)
		return -1;
	p->uncut = false;
	return 0;
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
	if (p->uncut && cut_leavings(p) == -1)
		return -1;
	if (segment_append(p->active, records, bytes, count) == 0)
		return 0;
	/* At once, so that no crash brings back a part of what is refused now; if that fails, before the next append. */
	error = errno;
	p->uncut = true;
	cut_leavings(p);
	errno = error;
	return -1;
}

/* ---- barrier ---- */

void
partition_barrier_begin(struct partition *p, struct partition_barrier *barrier)
{
	segment_hold(p->active);
	*barrier = (struct partition_barrier){ .segment = p->active, .end_offset = p->active->end,
		.end_position = p->active->bytes };
}

void
partition_barrier_run(struct partition_barrier *barrier)
{
	int64_t began_ns = clock_now_ns();

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
		fail(p);
	}
	if (p->failed) {
		errno = barrier->error != 0 ? barrier->error : EIO;
		return -1;
	}
	p->durable_end = barrier->end_offset;
	p->durable_position = barrier->end_position;
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
	roll->replaces = p->active->bytes == 0;
	if (roll_plan(p->settings.record_format, p->settings.segment_bytes, p->active->end, records, bytes, count,
	    &roll->parts, &roll->part_count) == -1 || reserve_sealed(p, roll->part_count) == -1) {
		int error = errno;

		roll_free(roll);
		errno = error;
		return NULL;
	}
	return roll;
}

/* The new segments take their places in the list; everything up to the end of the last one has been forced. */
static void
take_over(struct partition *p, struct partition_roll *roll)
{
	if (roll->replaces)
		segment_drop(p->active);
	else
		add_sealed(p, p->active->base, p->active->bytes, p->active);
	for (size_t i = 0; i + 1 < roll->part_count; i++)
		add_sealed(p, roll->parts[i].base, (int64_t)roll->parts[i].bytes, NULL);
	p->active = roll->next;
	roll->next = NULL;
	p->durable_end = p->active->end;
	p->durable_position = p->active->bytes;
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
	if (roll->lost)
		fail(p);
	roll_free(roll);
	errno = error;
	return error == 0 ? 0 : -1;
}

/* ---- find ---- */

/* The sealed segment that would hold the offset; NULL: it is ahead of all of them, or in the active one. */
static struct sealed *
find_sealed(const struct partition *p, int64_t offset)
{
	size_t low = 0, high = p->sealed_count;

	if (offset >= p->active->base || p->sealed_count == 0 || offset < p->sealed[0].base)
		return NULL;
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (p->sealed[middle].base <= offset)
			low = middle;
		else
			high = middle;
	}
	return &p->sealed[low];
}

/* Offset of the first record behind a sealed segment. */
static int64_t
next_base(const struct partition *p, const struct sealed *sealed)
{
	return sealed + 1 < p->sealed + p->sealed_count ? sealed[1].base : p->active->base;
}

static enum partition_found
broken(int error)
{
	errno = error == EBADMSG ? EIO : error;
	return PARTITION_BROKEN;
}

static enum partition_found
find_in(const struct partition *p, struct segment *segment, int64_t readable_bytes, int64_t bytes_before,
    int64_t offset, struct partition_place *place)
{
	int64_t position;

	if (segment_locate(segment, offset, &position) == -1)
		return broken(errno);
	*place = (struct partition_place){ .segment = segment, .position = position,
		.bytes_in_segment = readable_bytes - position, .bytes_behind = partition_visible_bytes(p) - bytes_before - position };
	return PARTITION_FOUND;
}

static enum partition_found
find_in_active(const struct partition *p, int64_t offset, struct partition_place *place)
{
	struct segment *active = p->active;

	if (p->failed && offset >= p->durable_end)
		return broken(EIO);
	if (offset == partition_visible_end(p)) {
		*place = (struct partition_place){ .segment = active, .position = visible_position(p) };
		return PARTITION_FOUND;
	}
	return find_in(p, active, visible_position(p), p->bytes_before_active, offset, place);
}

enum partition_found
partition_find(struct partition *p, int64_t offset, struct partition_place *place)
{
	struct sealed *sealed;

	if (offset < partition_log_start(p) || offset > partition_visible_end(p))
		return broken(EINVAL);
	sealed = find_sealed(p, offset);
	if (sealed == NULL)
		return find_in_active(p, offset, place);
	if (sealed->segment == NULL) {
		if (sealed->load_error != 0 && clock_now_ns() < sealed->load_again_ns)
			return broken(sealed->load_error);
		return PARTITION_COLD;
	}
	sealed->used = ++p->reads;
	if (offset >= sealed->segment->end)
		return broken(EIO);
	return find_in(p, sealed->segment, sealed->segment->bytes, sealed->bytes_before, offset, place);
}

void
partition_slice(const struct partition_place *place, int64_t max_bytes, struct slice *slice)
{
	int64_t bytes = max_bytes < place->bytes_in_segment ? max_bytes : place->bytes_in_segment;

	*slice = (struct slice){ 0 };
	if (bytes <= 0)
		return;
	segment_hold(place->segment);
	*slice = (struct slice){ .segment = place->segment, .position = place->position, .bytes = bytes };
}

/* ---- load ---- */

struct partition_load {
	int dir_fd;
	int64_t base;
	int64_t limit;		/* base of the next segment */
	enum record_format format;
	int64_t index_interval_bytes;

	int error;			/* the segment could not be opened, or memory is out */
	struct segment *segment;	/* else this, readable as far as the walk came */
	int64_t file_bytes;
	int damage;			/* errno that ended the walk; 0 = none */
};

struct partition_load *
partition_load_begin(struct partition *p, int64_t offset)
{
	const struct sealed *sealed = find_sealed(p, offset);
	struct partition_load *load;

	if (sealed == NULL) {
		errno = EIO;
		return NULL;
	}
	load = calloc(1, sizeof(*load));
	if (load == NULL)
		return NULL;
	load->dir_fd = p->dir_fd;
	load->base = sealed->base;
	load->limit = next_base(p, sealed);
	load->format = p->settings.record_format;
	load->index_interval_bytes = p->settings.index_interval_bytes;
	return load;
}

static int
open_segment(struct partition_load *load)
{
	int fd = segment_open_file(load->dir_fd, load->base, O_RDONLY);

	if (fd == -1)
		return -1;
	load->file_bytes = segment_file_bytes(fd);
	if (load->file_bytes != -1)
		load->segment = segment_new(fd, load->base, load->format, load->index_interval_bytes);
	if (load->segment == NULL) {
		close(fd);
		errno = ENOMEM;
		return -1;
	}
	return 0;
}

void
partition_load_run(struct partition_load *load)
{
	if (open_segment(load) == -1) {
		load->error = errno;
		return;
	}
	if (segment_walk(load->segment, load->file_bytes, load->limit) == 0)
		return;
	if (errno == ENOMEM)
		load->error = ENOMEM;
	else
		load->damage = errno;
}

/* What a walk over a sealed segment can find: told once. */
static void
report_damage(const struct partition *p, struct sealed *sealed, const struct partition_load *load)
{
	const struct segment *segment = load->segment;
	const char *what = load->damage == 0 ? "the file ends, a segment behind it may be missing"
	    : load->damage == EBADMSG ? "no record can stand there" : strerror(load->damage);
	char file[SEGMENT_NAME_BYTES];

	segment_name(file, load->base);
	if (sealed->reported)
		return;
	if (segment->end < load->limit)
		log_error("%s/%s: damaged at position %" PRId64 " (%s): offsets %" PRId64 " to %" PRId64 " cannot be read, all "
		    "others can. Restore the file from a copy and restart the broker", p->name, file, segment->bytes, what,
		    segment->end, load->limit - 1);
	else if (segment->bytes < load->file_bytes)
		log_error("%s/%s: %" PRId64 " bytes stand behind position %" PRId64 ", where the next segment begins (offset %"
		    PRId64 "): they are not read. Compare the directory with a copy", p->name, file,
		    load->file_bytes - segment->bytes, segment->bytes, load->limit);
	else
		return;
	sealed->reported = true;
}

static void
report_unopened(const struct partition *p, struct sealed *sealed, int error)
{
	char file[SEGMENT_NAME_BYTES];

	segment_name(file, sealed->base);
	if (!sealed->reported)
		log_error("%s/%s: cannot be opened: %s; reading from it gives an error until it can", p->name, file,
		    strerror(error));
	sealed->reported = true;
}

int
partition_load_finish(struct partition *p, struct partition_load *load)
{
	struct sealed *sealed = find_sealed(p, load->base);
	int error = load->error;

	/* Gone meanwhile, or loaded by another job: then there is nothing to take over. */
	if (sealed == NULL || sealed->base != load->base || sealed->segment != NULL)
		error = 0;
	else if (error != 0) {
		sealed->load_error = error;
		sealed->load_again_ns = clock_now_ns() + LOAD_RETRY_NS;
		report_unopened(p, sealed, error);
	} else {
		report_damage(p, sealed, load);
		sealed->load_error = 0;
		keep_loaded(p, sealed, load->segment);
		load->segment = NULL;
	}
	segment_drop(load->segment);
	free(load);
	errno = error;
	return error == 0 ? 0 : -1;
}
