/*
 * Recovery of a partition's log, see recovery.h. The order:
 *
 *   look      the last segment that holds anything is scanned; format, empty segments and watermark are judged; where the
 *             disk does not let itself be read, as the cache shows it, for readers only
 *   try       after a failed force: a new file is written, forced and removed
 *   forget    an index that does not fit is removed, and that is forced
 *   cut       what stands behind the end is copied aside and that is forced; then the file is cut and forced
 *   renew     where the page cache is in doubt: what no force has confirmed is written as the disk has it
 *   settle    the active segment gets the size that its write mode wants, left-overs go, segment and names are forced;
 *             then the recovery point is stored
 *
 * The scan begins at the recovery point when there is one that fits. Behind it a bad record is a torn write and is cut.
 * Ahead of it everything had been forced: what is bad there is damage, which is not looked for and never cut.
 *
 * What may be believed after a failed force. Only bytes: which of them reached the disk is asked of the disk, by reading
 * past the page cache. The kernel marks the pages that it could not write as clean, goes on showing them, and says
 * success from then on. So what no force has confirmed is written once more, as it was read: then the cache shows what
 * the disk has, the next force has something to say, and a disk that has dropped what it had taken when it was told to
 * flush has it again. Bytes below the last confirmed place are not touched, neither are sealed segments: each was forced
 * before its successor had a name.
 *
 * Names, sizes and the places of blocks cannot be read past the cache. They need not be: a file system with a journal, or
 * one that copies on write, takes no change any more once it could not record one (ext4, xfs and btrfs refuse all
 * further forces), so that the success of a later force says that everything before is on the disk too. It must have
 * something to record for that, which is what the new file does to the directory and the renewed bytes to the segment. A
 * segment whose name was not forced is either undone by its roll or, where that failed too, believed like any other: it
 * is whole, since it was forced before it was named, nothing of it was acknowledged, and its name is forced now. (On a
 * file system without a journal nobody can tell which names have reached the disk. A log does not belong there.)
 */
#include "worker/recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "worker/cut.h"
#include "worker/direct.h"
#include "worker/evidence.h"
#include "worker/roll.h"
#include "worker/scan.h"
#include "worker/stop_marker.h"
#include "worker/syscalls.h"

enum {
	RENEWED_BYTES = 1024 * 1024,	/* at once */
	TRIED_BYTES = 64 * 1024,
	PAGE_BYTES = 4096,		/* the most that may lie on the disk behind the end of a file, in its last block */
};

/* What the last segment that holds anything was found to be. */
struct tail {
	struct segment *segment;
	int read_fd;		/* for reading it: past the page cache, or the segment's own */
	int64_t file_bytes;
	struct scan scan;
	struct index_taken index;
	bool as_left;		/* by a clean stop: there is nothing behind its end, and everything is forced */
	bool doubtful;		/* it might be a log in the other format, too short to tell */
};

__attribute__((format(printf, 2, 3))) static int
refuse(struct recovery *r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(r->why, PARTITION_WHY_BYTES, format, arguments);
	va_end(arguments);
	return -1;
}

bool
recovery_is_shortage(int error)
{
	return error == ENOMEM || error == EMFILE || error == ENFILE || error == ENOSPC || error == EDQUOT;
}

/* A step failed with errno: at which file, doing what. Of a log that has failed before everything is tried again. */
static int
refuse_errno(struct recovery *r, int64_t base, const char *what)
{
	r->short_of = r->short_of || recovery_is_shortage(errno);
	return refuse(r, "%s/%020" PRId64 ".log: cannot %s: %s%s", r->name, base, what, strerror(errno),
	    r->failed || r->known->failed || r->short_of ? ""
	    : "; the log stays closed until this is repaired and the broker is restarted");
}

/* Reading or writing has failed with errno. Where that went to the disk itself, it is tried again, later. */
static int
refuse_disk(struct recovery *r, int64_t base, const char *what)
{
	if (r->known->from_disk)
		r->failed = true;
	return refuse_errno(r, base, what);
}

/* A failed force is never tried again as it was: the next one could succeed without anything being on disk. */
static int
refuse_force(struct recovery *r, int64_t base, const char *what)
{
	r->failed = true;
	return refuse(r, "%s/%020" PRId64 ".log: cannot force %s to disk: %s", r->name, base, what, strerror(errno));
}

/* ---- look ---- */

/* Does the last segment speak for the configured format by itself, so that no other evidence is needed? */
static int
speaks_for_itself(const struct recovery *r, const struct tail *tail, bool *speaks)
{
	enum record_verdict first;

	*speaks = tail->scan.records > 0;
	/* An index of this format that fits says that the log has been written in it. */
	if (tail->index.file.bytes > 0)
		return 0;
	if (r->settings->record_format == RECORD_CRC32C)
		return 0;
	if (scan_first(tail->read_fd, RECORD_CRC32C, tail->file_bytes, &first) == -1)
		return -1;
	*speaks = tail->scan.position == tail->file_bytes && first != RECORD_VALID;
	return 0;
}

/* Refuses a log whose records make sense in the other format only. `last` is the listing's entry of the tail. */
static int
check_format(struct recovery *r, struct tail *tail, size_t last)
{
	enum record_format configured = r->settings->record_format;
	enum evidence evidence = EVIDENCE_NONE;
	enum record_format found;
	bool speaks;

	if (speaks_for_itself(r, tail, &speaks) == -1)
		return refuse_disk(r, tail->segment->base, "read");
	if (speaks)
		return 0;
	for (size_t i = last; i-- > 0 && evidence == EVIDENCE_NONE;)
		evidence = evidence_of_sealed(r->dir_fd, r->listing->segments[i].base);
	if (evidence == EVIDENCE_NONE
	    && evidence_of_file(tail->read_fd, tail->file_bytes, false, &evidence) == -1)
		return refuse_disk(r, tail->segment->base, "read");
	tail->doubtful = evidence == EVIDENCE_DOUBT && configured == RECORD_CRC32C;
	found = evidence == EVIDENCE_PLAIN ? RECORD_PLAIN : RECORD_CRC32C;
	if (evidence == EVIDENCE_NONE || evidence == EVIDENCE_DOUBT || found == configured)
		return 0;
	return refuse(r, "its records are %s, but record_format = %s is configured for this topic; nothing was "
	    "changed. Set record_format = %s for it again, or move the directory away to begin a new log",
	    record_format_name(found), record_format_name(configured), record_format_name(found));
}

/* By which descriptor is the segment `base`, open as `fd`, to be read? Returns it, or -1 with the reason in `why`. */
static int
open_to_read(struct recovery *r, int64_t base, int fd)
{
	int direct_fd;

	if (!r->known->from_disk)
		return fd;
	direct_fd = direct_open(r->dir_fd, base);
	if (direct_fd != -1)
		return direct_fd;
	if (errno != EOPNOTSUPP)
		return refuse_disk(r, base, "open");
	/* Then what the cache shows is all there is; or all that anybody can see, and no force is known to have failed. */
	if (!r->known->failed || !direct_has_disk(fd))
		return fd;
	r->failed = true;
	return refuse(r, "%s/%020" PRId64 ".log: its file system cannot read past the page cache, which shows what the disk may "
	    "not have: stop the broker, unmount the file system and mount it again, or restart the machine", r->name, base);
}

static void
close_tail(struct tail *tail)
{
	if (tail->segment == NULL)
		return;
	if (tail->read_fd != tail->segment->fd && tail->read_fd != -1)
		close(tail->read_fd);
	segment_drop(tail->segment);
}

/* Does it end where the clean stop says that the log does? */
static bool
was_left(const struct recovery *r, const struct segment *segment)
{
	const struct stop_state *stopped = r->known->stopped;

	return stopped != NULL && stopped->base == segment->base && stopped->end == segment->end
	    && stopped->position == segment->bytes;
}

/* From the recovery point on, or from the beginning. */
static int
scan_tail(struct recovery *r, struct tail *tail, bool indexed)
{
	struct segment *segment = tail->segment;

	if (tail->file_bytes == -1
	    || (indexed && index_file_take(&tail->index, r->dir_fd, segment, tail->read_fd, tail->file_bytes, INT64_MAX) == -1))
		return -1;
	tail->scan = (struct scan){ .records = segment->end - segment->base, .position = segment->bytes,
		.verdict = RECORD_END };
	tail->as_left = was_left(r, segment);
	if (tail->as_left)
		return 0;
	if (scan_records_on(tail->read_fd, segment->format, segment->base, tail->file_bytes, &segment->index,
	    &tail->scan) == -1)
		return -1;
	segment->end = segment->base + tail->scan.records;
	segment->bytes = tail->scan.position;
	/* What was not forced when a living process released the log is not in its index, and was read just now. */
	tail->as_left = r->known->released && was_left(r, segment);
	return 0;
}

/* On success, and only then, close_tail must follow. */
static int
read_tail(struct recovery *r, struct tail *tail, const struct listing_segment *listed)
{
	const struct partition_settings *settings = r->settings;
	int64_t base = listed->base;
	int fd = segment_open_file(r->dir_fd, base, O_RDWR);
	struct segment *segment;

	if (fd == -1)
		return refuse_errno(r, base, "open");
	segment = segment_new(fd, base, settings->record_format, settings->index_interval_bytes);
	if (segment == NULL) {
		close(fd);
		errno = ENOMEM;
		return refuse_errno(r, base, "open");
	}
	*tail = (struct tail){ .segment = segment, .file_bytes = segment_file_bytes(fd) };
	tail->read_fd = open_to_read(r, base, fd);
	if (tail->read_fd == -1)
		goto fail;
	if (scan_tail(r, tail, listed->indexed) == 0)
		return 0;
	refuse_disk(r, base, "read");
fail:
	close_tail(tail);
	tail->segment = NULL;
	return -1;
}

static void
drop_foreign(struct recovery *r, size_t at)
{
	char name[SEGMENT_NAME_BYTES];

	segment_name(name, r->listing->segments[at].base);
	listing_report_foreign(r->name, name, "it is empty, and the log does not end there: foreign, or a segment that has lost its content");
	listing_remove(r->listing, at);
}

/* Where did the active segment `base` end, which is not there any more? The clean stop may tell, or its index. */
static int64_t
lost_end(const struct recovery *r, int64_t base)
{
	int64_t end = index_file_end(r->dir_fd, base, r->settings->record_format);

	/* A marker can be an old one: the index is then of later. */
	return r->left != NULL && r->left->base == base && r->left->end > end ? r->left->end : end;
}

/* Had there been a segment behind the last one that is there? The list says so, or what an orphan is left of. */
static bool
is_overtaken(const struct recovery *r, const struct tail *tail)
{
	const struct segment *segment = tail->segment;

	return sealed_list_end(&r->inventory->list) > segment->end
	    || sealed_list_holds(&r->inventory->list, segment->base, segment->end, tail->file_bytes)
	    || (segment->bytes == tail->file_bytes && lost_end(r, segment->end) > segment->end);
}

/*
 * Sorts out the empty segments: of those behind entry `last`, the tail's, one can be the active segment, which then is
 * the last in the listing; all others are foreign. Returns 0, or -1 with `why`.
 */
static int
settle_empty(struct recovery *r, const struct tail *tail, size_t last)
{
	const struct segment view = { .fd = tail->read_fd, .format = tail->segment->format, .end = tail->segment->end,
		.bytes = tail->segment->bytes };
	int64_t sealed_end = sealed_list_end(&r->inventory->list), indexed_end = -1;
	struct listing *listing = r->listing;
	size_t active = last;

	r->next_base = sealed_end > view.end ? sealed_end : view.end;
	if (last + 1 < listing->count)
		indexed_end = is_overtaken(r, tail) ? lost_end(r, r->next_base) : tail->index.forced_end;
	for (size_t i = listing->count; i-- > last + 1 && active == last;) {
		bool ours;

		if (evidence_follows(&view, tail->file_bytes, sealed_end, indexed_end, listing->segments[i].base, &ours) == -1)
			return refuse_disk(r, tail->segment->base, "read");
		if (ours)
			active = i;
	}
	for (size_t i = listing->count; i-- > 0;)
		if ((i > last || listing->segments[i].bytes == 0) && i != active)
			drop_foreign(r, i);
	return 0;
}

/* There are only empty segments: the log is the first that begins at `least` or behind it, the others are foreign. */
static void
settle_only_empty(struct recovery *r, int64_t least)
{
	struct listing *listing = r->listing;
	size_t chosen = listing->count;

	for (size_t i = listing->count; i-- > 0;)
		if (listing->segments[i].base >= least)
			chosen = i;
	for (size_t i = listing->count; i-- > 0;)
		if (i != chosen)
			drop_foreign(r, i);
}

static int
check_published(struct recovery *r, int64_t end)
{
	if (end >= r->known->published_end)
		return 0;
	return refuse(r, "the log on disk ends at offset %" PRId64 ", but %" PRId64 " had been %s: records "
	    "that were acknowledged are gone. Nothing was changed. Restore the directory from a copy; or stop and "
	    "start the whole broker to go on with what is there", end, r->known->published_end,
	    r->known->from_disk ? "forced to disk" : "published");
}

static void
report_damaged_seal(const struct recovery *r, const struct tail *tail)
{
	char file[SEGMENT_NAME_BYTES];

	segment_name(file, tail->segment->base);
	log_error("%s/%s: damaged at position %" PRId64 ", offset %" PRId64 " (%s), in a sealed segment: it is left as it "
	    "is. Restore the file from a copy and restart the broker", r->name, file, tail->segment->bytes,
	    tail->segment->end, record_verdict_text(tail->scan.verdict));
}

/* Has the segment no content: no bytes, or nothing but zeros? -1 with `why` when that cannot be told. */
static int
is_empty(struct recovery *r, const struct tail *tail)
{
	int64_t content_end;

	if (tail->scan.records > 0)
		return 0;
	if (tail->as_left)
		return 1;
	content_end = scan_content_end(tail->read_fd, 0, tail->file_bytes);
	if (content_end == -1)
		return refuse_disk(r, tail->segment->base, "read");
	return content_end == 0;
}

static void
take_active(struct recovery *r, const struct tail *tail)
{
	segment_hold(tail->segment);
	r->active = tail->segment;
	r->index = tail->index;
	r->as_left = tail->as_left;
}

/* Opens the last segment, which is empty, as the active one. */
static int
open_empty(struct recovery *r)
{
	const struct listing_segment *listed = &r->listing->segments[r->listing->count - 1];
	struct tail tail;
	int empty;

	if (read_tail(r, &tail, listed) == -1)
		return -1;
	empty = is_empty(r, &tail);
	if (empty == 1)
		take_active(r, &tail);
	close_tail(&tail);
	if (empty != 0)
		return empty == 1 ? 0 : -1;
	return refuse(r, "%s/%020" PRId64 ".log: changed while it was being opened: another process writes here",
	    r->name, listed->base);
}

/*
 * The last segment that is there had been sealed, so there was one behind it. To go on in its place would give its offsets
 * to other records; so the log goes on where it is known to have ended, behind a gap.
 */
static int
replace_active(struct recovery *r)
{
	char file[SEGMENT_NAME_BYTES], made[SEGMENT_NAME_BYTES];

	r->new_base = lost_end(r, r->next_base);
	segment_name(file, r->next_base);
	segment_name(made, r->new_base);
	log_error("%s/%s is missing, the log's last segment: records from offset %" PRId64 " on are lost, and the log goes on at "
	    "offset %" PRId64 ". To get them back, stop the broker, restore the file, and remove %s, which is made now, unless "
	    "something was appended to it", r->name, file, r->next_base, r->new_base, made);
	return 0;
}

/* Nothing has any content. What the list knows was there, or an index, and its offsets are not given out again. */
static int
look_at_empty(struct recovery *r)
{
	const struct listing *listing = r->listing;
	int64_t least = sealed_list_end(&r->inventory->list);

	if (check_published(r, listing->count == 0 ? 0 : listing->segments[listing->count - 1].base) == -1)
		return -1;
	settle_only_empty(r, least > r->known->published_end ? least : r->known->published_end);
	if (listing->count > 0)
		return open_empty(r);
	r->next_base = least > 0 || listing->index_count == 0 ? least : listing->indexes[0];
	/* Where all of it has been removed, with what is kept beside the segments, the log is a new one. */
	return r->next_base > 0 || index_file_end(r->dir_fd, 0, r->settings->record_format) > 0 ? replace_active(r) : 0;
}

static int
look_at_tail(struct recovery *r, struct tail *tail, size_t last)
{
	int64_t active_base;

	if (check_format(r, tail, last) == -1 || settle_empty(r, tail, last) == -1)
		return -1;
	active_base = r->listing->segments[r->listing->count - 1].base;
	if (active_base == tail->segment->base) {
		if (check_published(r, tail->segment->end) == -1)
			return -1;
		if (is_overtaken(r, tail))
			return replace_active(r);
		take_active(r, tail);
		return 0;
	}
	/* The tail is sealed, whatever its bytes are. */
	if (check_published(r, active_base) == -1)
		return -1;
	if (tail->segment->bytes != tail->file_bytes)
		report_damaged_seal(r, tail);
	return open_empty(r);
}

/* Finds the active segment; with none the log is empty and new. The tail, if there is one, is the caller's to close. */
static int
look(struct recovery *r, struct tail *tail)
{
	for (size_t last = r->listing->count; last > 0; last--) {
		int empty = r->listing->segments[last - 1].bytes == 0;

		if (empty)
			continue;
		if (read_tail(r, tail, &r->listing->segments[last - 1]) == -1)
			return -1;
		empty = is_empty(r, tail);
		if (empty != 1)
			return empty == 0 ? look_at_tail(r, tail, last - 1) : -1;
		close_tail(tail);
		tail->segment = NULL;
	}
	return look_at_empty(r);
}

/*
 * The disk could not be read: it may do no more than tell, once and to whoever reads first, of what it has lost. What is
 * known to be forced the cache shows as it is, so that can be read meanwhile; nothing else comes of this.
 */
static void
look_for_readers(struct recovery *r)
{
	struct partition_known cached = *r->known;
	char why[PARTITION_WHY_BYTES];
	struct recovery again = *r;
	struct tail tail = { .segment = NULL };

	cached.from_disk = false;
	cached.failed = false;
	again.known = &cached;
	again.why = why;
	look(&again, &tail);
	close_tail(&tail);
	r->active = again.active;
}

/*
 * The file is as the living process before this one has left it, so the log ends where that has told. Where it does not, one of
 * the two is wrong about it, or both write here.
 */
static int
check_released(struct recovery *r)
{
	const struct stop_state *told = r->known->stopped;

	if (!r->known->released || r->as_left || r->active == NULL)
		return 0;
	return refuse(r, "%s/%020" PRId64 ".log: the worker before this one has released the log with its end at offset %" PRId64
	    ", position %" PRId64 ", but it ends at offset %" PRId64 ", position %" PRId64 ": one of them is wrong, or another process "
	    "writes here. Nothing was changed. Look for who has the file open; then restart this partition's worker, and the log is "
	    "recovered as after a crash", r->name, r->active->base, told->end, told->position, r->active->end, r->active->bytes);
}

/* ---- try ---- */

static int
write_something(int fd)
{
	uint8_t bytes[TRIED_BYTES];

	/* No zeros: somebody might think of not writing them. */
	memset(bytes, 0xA5, sizeof(bytes));
	if (segment_write(fd, bytes, sizeof(bytes), 0) == -1)
		return -1;
	return syscalls.fdatasync(fd);
}

/*
 * Does the disk take new bytes and names again? What is there already may need neither, and a log that comes back only
 * to fail with its next barrier helps nobody. It also leaves the directory with something to force.
 */
static int
try_disk(struct recovery *r, int64_t base)
{
	char name[SEGMENT_NAME_BYTES];
	int fd, error = 0;

	segment_temporary_name(name, base);
	fd = segment_create_file(r->dir_fd, name);
	if (fd == -1)
		return refuse_disk(r, base, "make a file beside it");
	if (write_something(fd) == -1)
		error = errno;
	close(fd);
	if (syscalls.unlink(r->dir_fd, name) == -1 && error == 0)
		error = errno;
	errno = error;
	return error == 0 ? 0 : refuse_disk(r, base, "write a file beside it");
}

/* ---- forget ---- */

static void
report_index(const struct recovery *r)
{
	char file[SEGMENT_NAME_BYTES];

	index_file_name(file, r->active->base);
	if (r->index.forced_end > r->active->end)
		log_warning("%s/%s: the log had been forced to disk up to offset %" PRId64 ", but ends at %" PRId64 " now: records "
		    "are lost, or files were replaced by older ones. The index is removed and stored anew", r->name, file,
		    r->index.forced_end, r->active->end);
	else if (r->index.wrong != NULL)
		log_warning("%s/%s: %s; the whole segment was read instead, and the index is stored anew", r->name, file,
		    r->index.wrong);
	else if (r->index.stray_bytes > 0)
		log_info("%s/%s: its last %" PRId64 " bytes are damaged: the segment was read from offset %" PRId64 " on instead",
		    r->name, file, r->index.stray_bytes, r->index.file.point.end);
}

/*
 * An index that is wrong of this log could come to fit it once the log has grown again, and then say of records that were
 * never forced that they had been. So it goes before anything else is changed, and durably.
 */
static int
forget_index(struct recovery *r)
{
	report_index(r);
	if (r->index.wrong == NULL)
		return 0;
	if (index_file_remove(r->dir_fd, r->active->base) == -1)
		return refuse_disk(r, r->active->base, "remove the index that does not fit");
	if (syscalls.fsync(r->dir_fd) == -1)
		return refuse_force(r, r->active->base, "the directory");
	return 0;
}

/* ---- cut ---- */

/*
 * Is what stands behind the end one write that was interrupted, in which nobody can miss anything? A record that was not
 * written to its end; or one that was stored through a mapping but for its length, which comes last. When nothing but the
 * process has died since the board was written, that is true of everything behind a length of zero.
 */
static int
is_interrupted(const struct recovery *r, const struct tail *tail, int64_t content_end, bool *is)
{
	enum record_verdict verdict = tail->scan.verdict;
	bool summed = r->settings->record_format == RECORD_CRC32C, holds = false;
	bool process_died = r->known->published_end >= 0 && !r->known->from_disk;

	/* That is not what a log looks like that is too short to tell: there a length has been written. */
	*is = verdict == RECORD_END && process_died;
	if (*is || tail->doubtful || (verdict != RECORD_INCOMPLETE && !(verdict == RECORD_END && summed)))
		return 0;
	/* A damaged length can hide good records. Only their sums can tell, so in plain they are not found. */
	if (summed && scan_holds_record(tail->read_fd, tail->scan.position, content_end, &holds) == -1)
		return -1;
	*is = !holds;
	return 0;
}

/* Copies what is worth it and reports; nothing has been cut yet. */
static int
save_and_report(struct recovery *r, const struct tail *tail, int64_t content_end)
{
	int64_t base = tail->segment->base, position = tail->scan.position;
	char file[SEGMENT_NAME_BYTES], name[SEGMENT_NAME_BYTES];
	bool interrupted;

	segment_name(file, base);
	if (is_interrupted(r, tail, content_end, &interrupted) == -1)
		return refuse_disk(r, base, "read");
	r->truncated_bytes = content_end - position;
	if (interrupted) {
		log_info("%s/%s: cutting %" PRId64 " bytes of an interrupted write at position %" PRId64 ", offset %" PRId64,
		    r->name, file, r->truncated_bytes, position, tail->segment->end);
		return 0;
	}
	if (cut_copy_aside(r->dir_fd, tail->read_fd, base, position, content_end, name) == -1)
		return refuse_disk(r, base, "copy aside what must be cut from");
	log_warning("%s/%s: cutting %" PRId64 " bytes from position %" PRId64 ", offset %" PRId64 " on: %s stands there. "
	    "Records may be lost; what is cut was copied to %s/%s", r->name, file, r->truncated_bytes, position,
	    tail->segment->end, record_verdict_text(tail->scan.verdict), r->name, name);
	return 0;
}

/* When nothing had to be cut: otherwise the log stays closed, and the index as it is. */
static void
report_unread(const struct recovery *r)
{
	char file[SEGMENT_NAME_BYTES];

	if (r->index.unread == 0)
		return;
	index_file_name(file, r->active->base);
	log_warning("%s/%s: cannot be read: %s; the whole segment was read instead, and the index is stored anew", r->name, file,
	    strerror(r->index.unread));
}

/* What is to be cut may have been forced: the index that could tell is there, and must not be passed over. */
static int
refuse_unread(struct recovery *r, const struct tail *tail)
{
	char file[SEGMENT_NAME_BYTES];

	index_file_name(file, tail->segment->base);
	return refuse(r, "%s/%s: cannot be read: %s; and it alone tells whether what is damaged in its segment, from position %"
	    PRId64 " on, had been forced to disk. Nothing was changed. Make it readable and restart the broker; or remove it, and "
	    "the log is cut there", r->name, file, strerror(r->index.unread), tail->scan.position);
}

/*
 * Removes what stands behind the end: durably before anything can be appended, or the dead would come back. Zeros are
 * nothing that could, unless the cache shows something else: they are settled with the file's size.
 */
static int
cut_tail(struct recovery *r, const struct tail *tail)
{
	int64_t base = tail->segment->base, position = tail->scan.position;
	int64_t content_end;

	if (position == tail->file_bytes || tail->as_left)
		return 0;
	content_end = scan_content_end(tail->read_fd, position, tail->file_bytes);
	if (content_end == -1)
		return refuse_disk(r, base, "read");
	/* Zeros within a record belong to it. */
	if (content_end < tail->scan.verdict_end)
		content_end = tail->scan.verdict_end;
	if (content_end == position && !r->known->from_disk)
		return 0;
	if (content_end > position && r->index.unread != 0)
		return refuse_unread(r, tail);
	if (content_end > position && save_and_report(r, tail, content_end) == -1)
		return -1;
	if (segment_truncate(tail->segment->fd, position) == -1)
		return refuse_disk(r, base, "cut");
	if (syscalls.fdatasync(tail->segment->fd) == -1)
		return refuse_force(r, base, "the cut log");
	return 0;
}

/* ---- renew ---- */

/* What a force has confirmed of the tail, as a position in it. */
static int
confirmed(const struct recovery *r, const struct tail *tail, int64_t *position)
{
	const struct segment *segment = tail->segment;
	int64_t offset = r->known->published_end;
	struct index_mark at;

	*position = tail->index.file.point.position;
	if (offset <= segment->base || offset <= tail->index.file.point.end)
		return 0;
	at = segment_mark(segment, offset);
	if (segment_seek(segment, segment->bytes, offset, &at) == -1)
		return -1;
	*position = at.position;
	return 0;
}

/* Without a failed force it is enough that the cache shows the same: one that is to come can be believed. */
static bool
may_stay(const struct recovery *r, int fd, const uint8_t *bytes, uint8_t *room, size_t count, int64_t position)
{
	return !r->known->failed && segment_read(fd, room, count, position) == (ssize_t)count
	    && memcmp(room, bytes, count) == 0;
}

/* Writes what stands in the file once more, as it is read past the page cache. */
static int
renew(const struct recovery *r, const struct tail *tail, int64_t from, uint8_t *bytes, uint8_t *room)
{
	const struct segment *segment = tail->segment;

	while (from < segment->bytes) {
		int64_t left = segment->bytes - from;
		ssize_t n = direct_read(tail->read_fd, bytes, left < RENEWED_BYTES ? (size_t)left : RENEWED_BYTES, from);

		if (n == 0)
			errno = EIO;
		if (n <= 0)
			return -1;
		if (!may_stay(r, segment->fd, bytes, room, (size_t)n, from)
		    && segment_write(segment->fd, bytes, (size_t)n, from) == -1)
			return -1;
		from += n;
	}
	return 0;
}

/* Is it still what was found? A file system that takes some of what is read from its cache shows one thing, then another. */
static int
check_renewed(const struct segment *segment, int64_t from)
{
	struct scan scan = { .position = from };

	if (from >= segment->bytes)
		return 0;
	if (scan_records_on(segment->fd, segment->format, segment->base, segment->bytes, NULL, &scan) == -1)
		return -1;
	errno = EIO;
	return scan.position == segment->bytes ? 0 : -1;
}

/*
 * What an earlier cut has left in the file's last block, when it did not reach the disk: it would come back when the file
 * grows over it.
 */
static int
wipe_behind(const struct segment *segment)
{
	static const uint8_t zeros[PAGE_BYTES];
	size_t bytes = (size_t)(-segment->bytes & (PAGE_BYTES - 1));

	if (bytes == 0)
		return 0;
	if (segment_write(segment->fd, zeros, bytes, segment->bytes) == -1)
		return -1;
	return segment_truncate(segment->fd, segment->bytes);
}

static int
renew_tail(struct recovery *r, const struct tail *tail)
{
	uint8_t *bytes;
	int64_t from;
	int done = -1;

	if (!r->known->from_disk || tail->read_fd == tail->segment->fd)
		return 0;
	bytes = malloc(2 * (size_t)RENEWED_BYTES);
	if (bytes != NULL && confirmed(r, tail, &from) == 0)
		done = renew(r, tail, from, bytes, bytes + RENEWED_BYTES);
	if (done == 0)
		done = check_renewed(tail->segment, from);
	if (done == 0 && r->known->failed)
		done = wipe_behind(tail->segment);
	if (done == -1)
		refuse_disk(r, tail->segment->base, "write once more what no force has confirmed of it");
	free(bytes);
	return done;
}

/* ---- settle ---- */

/*
 * An index of a segment that is missing stays as long as nothing has been appended behind it: it may be all that tells why the log
 * goes on there. (One that lies ahead could come to fit.)
 */
static bool
is_needed(const struct recovery *r, const char *leftover)
{
	int64_t base = segment_parse_base(leftover);

	return base != -1 && strcmp(leftover + SEGMENT_BASE_DIGITS, ".index") == 0 && base < r->active->base
	    && r->active->bytes == 0;
}

static void
remove_leftovers(const struct recovery *r)
{
	for (size_t i = 0; i < r->listing->leftover_count; i++) {
		const char *name = r->listing->leftovers[i];

		if (is_needed(r, name))
			continue;
		if (syscalls.unlink(r->dir_fd, name) == -1 && errno != ENOENT)
			log_warning("%s/%s: cannot remove this left-over: %s; it does no harm", r->name, name,
			    strerror(errno));
	}
}

/*
 * With write_mode = mapped the active file has its full size, and zeros behind the end; where that cannot be given to it the
 * log can be read, and the upkeep that comes before the next append says why. Zeros that are of no use go, and so do those
 * that were read past the page cache, which may show something else.
 */
static int
settle_size(struct recovery *r)
{
	int64_t bytes = r->active->bytes, file_bytes = segment_file_bytes(r->active->fd);
	bool mapped = r->settings->mapped;

	if (file_bytes == -1)
		return refuse_disk(r, r->active->base, "look at");
	if (file_bytes > bytes && (!mapped || r->known->from_disk)) {
		if (segment_truncate(r->active->fd, bytes) == -1)
			return refuse_disk(r, r->active->base, "cut");
		file_bytes = bytes;
	}
	if (mapped && bytes < r->settings->segment_bytes)
		bytes = r->settings->segment_bytes;
	if (file_bytes != bytes)
		segment_truncate(r->active->fd, bytes);
	r->as_left = r->as_left && file_bytes == bytes && file_bytes == r->known->stopped->file_bytes;
	return 0;
}

/* Recovered is not durable yet: a process that died has left pages that no force has reached. */
static int
force_all(struct recovery *r)
{
	int64_t base = r->active->base;
	bool empty = r->listing->count <= 1 && r->active->bytes == 0;

	if (syscalls.fdatasync(r->active->fd) == -1)
		return refuse_force(r, base, "the log");
	if (syscalls.fsync(r->dir_fd) == -1)
		return refuse_force(r, base, "the directory");
	/* The directory itself may be new, from us or from a start that got no further. Nothing was appended then. */
	if (empty && syscalls.fsync(r->data_fd) == -1)
		return refuse_force(r, base, "the directory above");
	return 0;
}

/* The log as it is now is durable: the next recovery goes on from here. */
static void
store_point(struct recovery *r)
{
	struct index_file *file = &r->index.file;
	struct index_point point = { .end = r->active->end, .position = r->active->bytes,
		.first_append_ms = r->first_append_ms, .last_append_ms = r->last_append_ms };

	if (r->active->bytes > file->point.position && index_file_store_all(r->dir_fd, r->active, file, &point) == -1)
		r->index_error = errno;
}

/* Where the index does not tell: all records are as young as the last one. */
static void
date_active(struct recovery *r)
{
	const struct index_file *file = &r->index.file;
	bool whole = r->active->bytes == file->point.position;

	if (r->active->bytes == 0)
		return;
	r->last_append_ms = whole ? file->point.last_append_ms : r->listing->segments[r->listing->count - 1].last_append_ms;
	r->first_append_ms = file->bytes > 0 ? file->point.first_append_ms : r->last_append_ms;
}

static int
create_active(struct recovery *r)
{
	int64_t base = r->new_base;

	r->active = roll_create_segment(r->dir_fd, base, r->settings->record_format, r->settings->index_interval_bytes);
	if (r->active == NULL)
		return refuse_disk(r, base, "create");
	if (syscalls.fdatasync(r->active->fd) == -1 || roll_publish_segment(r->dir_fd, base) == -1
	    || listing_add(r->listing, base) == -1)
		return refuse_disk(r, base, "create");
	/* The next start finds it there. */
	inventory_drop_foreign(r->inventory);
	return 0;
}

static int
change(struct recovery *r, const struct tail *tail)
{
	if (r->known->failed && try_disk(r, r->active == NULL ? r->new_base : r->active->base) == -1)
		return -1;
	if (r->active == NULL && create_active(r) == -1)
		return -1;
	if (forget_index(r) == -1)
		return -1;
	if (r->active == tail->segment && (cut_tail(r, tail) == -1 || renew_tail(r, tail) == -1))
		return -1;
	if (settle_size(r) == -1)
		return -1;
	report_unread(r);
	remove_leftovers(r);
	return r->as_left ? 0 : force_all(r);
}

/* What has been found, before or while changing it failed, or by the cache alone, holds all that is known to be forced. */
static bool
may_be_read(const struct recovery *r)
{
	return r->active != NULL && r->listing->count > 0 && r->known->from_disk && r->known->published_end >= 0;
}

int
recovery_run(struct recovery *recovery)
{
	struct tail tail = { .segment = NULL };
	int done = -1;

	recovery->active = NULL;
	recovery->new_base = 0;
	recovery->next_base = 0;
	recovery->as_left = false;
	recovery->index = (struct index_taken){ 0 };
	recovery->index_error = 0;
	recovery->truncated_bytes = 0;
	recovery->failed = recovery->short_of = false;
	if (look(recovery, &tail) == 0 && check_released(recovery) == 0)
		done = change(recovery, &tail);
	else if (recovery->failed && recovery->known->published_end >= 0)
		look_for_readers(recovery);
	close_tail(&tail);
	if (done == 0) {
		date_active(recovery);
		if (!recovery->known->released || !recovery->as_left)
			store_point(recovery);
		return 0;
	}
	if (!may_be_read(recovery)) {
		segment_drop(recovery->active);
		recovery->active = NULL;
	}
	return -1;
}
