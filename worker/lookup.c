/*
 * Looking up records: which segment, where in it. The owner answers from memory; opening the sealed segments that somebody
 * reads, and reading lengths that are on the disk, is a load's.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "worker/index_file.h"
#include "worker/partition_state.h"

enum {
	/* So long a segment that could not be loaded, for want of memory or descriptors, or read is not tried again. */
	LOAD_RETRY_NS = 100 * CLOCK_NS_PER_MS,
	/* A log may have tens of thousands of segments; so many of the sealed ones stay open, the last read ones. */
	LOADED_MAX = 16,
	SHORTAGE_REPORT_S = 10,
};

/* ---- descriptors ---- */

/*
 * Readers that do not read what they have asked for keep segments open, and there can be many of both. So sealed segments
 * take no more than the lower half of the table (the kernel gives out the lowest number that is free), those that a log
 * may always have open the next quarter too: the rest is for connections, new segments and indexes.
 */
static bool
leaves_room(int fd, bool within_max)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return true;
	return (rlim_t)fd < (within_max ? limit.rlim_cur / 4 * 3 : limit.rlim_cur / 2);
}

/* ---- find ---- */

struct sealed *
partition_find_sealed(const struct partition *p, int64_t offset)
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
	errno = error;
	return PARTITION_BROKEN;
}

/* A walk over lengths has come to one that cannot be, at `at`: told once per segment. */
static enum partition_found
damaged(const struct partition *p, const struct segment *segment, struct index_mark at, bool *reported)
{
	char file[SEGMENT_NAME_BYTES];

	segment_name(file, segment->base);
	if (!*reported)
		log_error("%s/%s: damaged at position %" PRId64 " (no record can stand there): offsets %" PRId64 " to %" PRId64
		    " cannot be read, those on both sides can. Restore the file from a copy and restart the broker", p->name, file,
		    at.position, at.offset, segment_next_mark(segment, at.offset).offset - 1);
	*reported = true;
	return broken(EBADMSG);
}

/* Where in a segment? `reported`: has its damage been logged? */
static enum partition_found
locate(const struct partition *p, struct segment *segment, int64_t offset, bool *reported, int64_t *position)
{
	const struct located *located = &p->located;
	struct index_mark at;
	int error = segment_locate(segment, offset, &at) == -1 ? errno : 0;

	if (error == EAGAIN) {
		if (!located->known || located->offset != offset
		    || (located->error != 0 && clock_now_ns() >= located->again_ns))
			return PARTITION_COLD;
		error = located->error;
		at = located->at;
	}
	*position = at.position;
	if (error == EBADMSG)
		return damaged(p, segment, at, reported);
	return error == 0 ? PARTITION_FOUND : broken(error);
}

static enum partition_found
find_in(const struct partition *p, struct segment *segment, int64_t readable_bytes, int64_t bytes_before,
    int64_t offset, bool *reported, struct partition_place *place)
{
	int64_t position;
	enum partition_found found = locate(p, segment, offset, reported, &position);

	if (found == PARTITION_FOUND)
		*place = (struct partition_place){ .segment = segment, .position = position,
			.bytes_in_segment = readable_bytes - position,
			.bytes_behind = partition_visible_bytes(p) - bytes_before - position };
	return found;
}

static enum partition_found
find_in_active(struct partition *p, int64_t offset, struct partition_place *place)
{
	struct segment *active = p->active;

	if (p->failed && offset >= p->durable_end)
		return broken(EIO);
	if (offset == partition_visible_end(p)) {
		*place = (struct partition_place){ .segment = active, .position = partition_visible_position(p) };
		return PARTITION_FOUND;
	}
	return find_in(p, active, partition_visible_position(p), p->bytes_before_active, offset, &p->active_reported, place);
}

enum partition_found
partition_find(struct partition *p, int64_t offset, struct partition_place *place)
{
	struct sealed *sealed;

	if (offset < partition_log_start(p) || offset > partition_visible_end(p))
		return broken(EINVAL);
	sealed = partition_find_sealed(p, offset);
	if (sealed == NULL)
		return find_in_active(p, offset, place);
	if (sealed->segment == NULL) {
		if (sealed->load_error != 0 && clock_now_ns() < sealed->load_again_ns)
			return broken(EBADMSG);
		return PARTITION_COLD;
	}
	sealed->used = ++p->reads;
	if (offset >= sealed->segment->end)
		return broken(EBADMSG);
	return find_in(p, sealed->segment, sealed->segment->bytes, sealed->bytes_before, offset, &sealed->reported, place);
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

/*
 * Closes the loaded segment that has not been read for longest; not the one that has just been `added`. One that is being
 * sent stays: that takes no more files than are open anyway, and should it be unlinked meanwhile, it is known here who has
 * to close it. Returns false when there is none.
 */
static bool
unload_one(struct partition *p, const struct sealed *added)
{
	struct sealed *oldest = NULL;

	for (size_t i = 0; i < p->sealed_count; i++) {
		struct sealed *sealed = &p->sealed[i];

		if (sealed->segment != NULL && sealed != added && !segment_is_shared(sealed->segment)
		    && (oldest == NULL || sealed->used < oldest->used))
			oldest = sealed;
	}
	if (oldest == NULL)
		return false;
	segment_drop(oldest->segment);
	oldest->segment = NULL;
	p->loaded_count--;
	return true;
}

void
partition_keep_loaded(struct partition *p, struct sealed *sealed, struct segment *segment)
{
	sealed->segment = segment;
	sealed->used = ++p->reads;
	p->loaded_count++;
	while (p->loaded_count > LOADED_MAX && unload_one(p, sealed))
		continue;
}

/* ---- load ---- */

struct partition_load {
	int dir_fd;
	int64_t base;
	int64_t limit;		/* base of the next segment */
	enum record_format format;
	int64_t index_interval_bytes;
	int64_t last_append_ms;
	bool opens;		/* the segment is not open yet */
	bool within_max;	/* it is one of the LOADED_MAX that may be open */
	bool stores_nothing;
	int64_t offset;		/* the record to be found: */
	struct index_mark mark;		/* from here on, */
	struct index_mark end;		/* before there */

	int error;			/* the segment could not be opened, or memory is out */
	struct segment *segment;	/* else this, readable as far as the walk came; a reference of the job's own */
	int64_t file_bytes;
	int damage;			/* errno that ended the walk; 0 = none */
	struct index_taken taken;	/* the stored index */
	int store_error;		/* errno of storing it anew; 0 = done, or not needed */
	struct located located;
};

/* The job may look at nothing of a segment that the owner changes meanwhile. */
static void
set_out(struct partition_load *load)
{
	load->mark = segment_mark(load->segment, load->offset);
	load->end = segment_next_mark(load->segment, load->offset);
}

struct partition_load *
partition_load_begin(struct partition *p, int64_t offset)
{
	const struct sealed *sealed = partition_find_sealed(p, offset);
	struct segment *segment = sealed == NULL ? p->active : sealed->segment;
	struct partition_load *load;

	if (offset < partition_log_start(p) || offset > partition_log_end(p)) {
		errno = EIO;
		return NULL;
	}
	load = calloc(1, sizeof(*load));
	if (load == NULL)
		return NULL;
	load->dir_fd = p->dir_fd;
	load->offset = offset;
	load->format = p->settings.record_format;
	load->index_interval_bytes = p->settings.index_interval_bytes;
	if (segment != NULL) {
		segment_hold(segment);
		load->segment = segment;
		set_out(load);
		return load;
	}
	load->opens = true;
	load->within_max = p->loaded_count < LOADED_MAX;
	load->base = sealed->base;
	load->limit = next_base(p, sealed);
	load->last_append_ms = sealed->last_append_ms;
	return load;
}

void
partition_load_store_nothing(struct partition_load *load)
{
	load->stores_nothing = true;
}

static int
open_segment(struct partition_load *load)
{
	int fd = segment_open_file(load->dir_fd, load->base, O_RDONLY);

	if (fd == -1)
		return -1;
	if (!leaves_room(fd, load->within_max)) {
		close(fd);
		errno = EMFILE;
		return -1;
	}
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

/* Of a whole segment, so that the next load need not walk. */
static void
store_index(struct partition_load *load)
{
	const struct segment *segment = load->segment;
	struct index_file *file = &load->taken.file;
	struct index_point point = { .end = segment->end, .position = segment->bytes,
		.first_append_ms = load->last_append_ms, .last_append_ms = load->last_append_ms };

	if (file->bytes > 0)
		point.first_append_ms = file->point.first_append_ms;
	if (segment->end == load->limit && segment->bytes == load->file_bytes && segment->bytes > file->point.position
	    && index_file_store_all(load->dir_fd, segment, file, &point) == -1)
		load->store_error = errno;
}

/* Returns 0, or -1 when there is nothing to look for a record in. */
static int
open_and_walk(struct partition_load *load)
{
	if (open_segment(load) == -1 || index_file_take(&load->taken, load->dir_fd, load->segment, load->segment->fd,
	    load->file_bytes, load->limit) == -1) {
		load->error = errno;
		return -1;
	}
	if (segment_walk(load->segment, load->file_bytes, load->limit) == 0) {
		if (!load->stores_nothing)
			store_index(load);
	} else if (errno == ENOMEM) {
		load->error = ENOMEM;
	} else {
		load->damage = errno;
	}
	if (load->error != 0 || load->offset >= load->segment->end)
		return -1;
	set_out(load);
	return 0;
}

void
partition_load_run(struct partition_load *load)
{
	struct located *located = &load->located;

	if (load->opens && open_and_walk(load) == -1)
		return;
	*located = (struct located){ .known = true, .offset = load->offset, .at = load->mark };
	if (segment_seek_between(load->segment, &load->end, load->offset, &located->at) == -1) {
		located->error = errno;
		located->again_ns = clock_now_ns() + LOAD_RETRY_NS;
	}
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
report_index(struct partition *p, const struct partition_load *load)
{
	char file[SEGMENT_NAME_BYTES];

	index_file_name(file, load->base);
	if (load->taken.unread != 0)
		log_warning("%s/%s: cannot be read: %s; the segment was read instead", p->name, file, strerror(load->taken.unread));
	if (load->taken.wrong != NULL)
		log_warning("%s/%s: %s; the segment was read instead%s", p->name, file, load->taken.wrong,
		    load->segment->end < load->limit || load->store_error != 0 ? "" : ", and the index is stored anew");
	partition_note_cache(p, file, load->store_error);
}

/* What is short soon is not any more, and says nothing of this file: it is told once in a while for all of them. */
static void
report_unopened(struct partition *p, struct sealed *sealed, int error)
{
	char file[SEGMENT_NAME_BYTES], more[LOG_MORE_BYTES];

	segment_name(file, sealed->base);
	if (error == EMFILE || error == ENFILE || error == ENOMEM) {
		if (log_limit_pass(&p->shortage_limit, SHORTAGE_REPORT_S * (int64_t)CLOCK_NS_PER_S, more))
			log_error("%s/%s: cannot be opened: %s; reading from it gives an error until it can%s", p->name, file,
			    strerror(error), more);
		return;
	}
	if (!sealed->reported)
		log_error("%s/%s: cannot be opened: %s; reading from it gives an error until it can", p->name, file,
		    strerror(error));
	sealed->reported = true;
}

/* Returns 0, or an errno. */
static int
take_over(struct partition *p, struct partition_load *load)
{
	struct sealed *sealed = partition_find_sealed(p, load->base);

	/* Gone meanwhile: the file is unlinked, or will be; an index that was stored behind that is not left behind. */
	if (sealed == NULL || sealed->base != load->base) {
		if (load->taken.file.bytes > 0)
			partition_doom_again(p, load->base);
		if (load->segment != NULL)
			partition_linger(p, load->segment);
		load->segment = NULL;
		return 0;
	}
	/* Loaded by another job: then there is nothing to take over. */
	if (sealed->segment != NULL)
		return 0;
	if (load->error != 0) {
		sealed->load_error = load->error;
		sealed->load_again_ns = clock_now_ns() + LOAD_RETRY_NS;
		report_unopened(p, sealed, load->error);
		return load->error;
	}
	report_index(p, load);
	report_damage(p, sealed, load);
	sealed->load_error = 0;
	partition_keep_loaded(p, sealed, load->segment);
	load->segment = NULL;
	return 0;
}

int
partition_load_finish(struct partition *p, struct partition_load *load)
{
	int error = load->opens ? take_over(p, load) : 0;

	if (load->located.known)
		p->located = load->located;
	segment_drop(load->segment);
	free(load);
	errno = error;
	return error == 0 ? 0 : -1;
}
