/* The list of sealed segments against the directory. */
#include "worker/inventory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "worker/index_file.h"
#include "worker/scan.h"

/* ---- reading ---- */

/* The listing's entry of that base, or NULL. */
static const struct listing_segment *
find_listed(const struct listing *listing, int64_t base)
{
	size_t low = 0, high = listing->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (listing->segments[middle].base < base)
			low = middle + 1;
		else
			high = middle;
	}
	return low < listing->count && listing->segments[low].base == base ? &listing->segments[low] : NULL;
}

/* Is the segment `ahead` as it was sealed, for all that is known, and do its lengths lead to its end with the record before `base`? */
static bool
ends_ahead_of(const struct inventory *inventory, const struct listing_segment *ahead, int64_t base)
{
	const struct sealed_entry *entry = sealed_list_find(&inventory->list, ahead->base);
	struct segment walk = { .format = inventory->format, .end = ahead->base };
	bool ends;

	if (entry != NULL && entry->bytes != ahead->bytes)
		return false;
	walk.fd = segment_open_file(inventory->dir_fd, ahead->base, O_RDONLY);
	if (walk.fd == -1)
		return false;
	index_init(&walk.index, INT64_MAX / 2);
	ends = segment_walk(&walk, ahead->bytes, base + 1) == 0 && walk.end == base && walk.bytes == ahead->bytes;
	index_free(&walk.index);
	close(walk.fd);
	return ends;
}

/*
 * A file in the middle of a sealed segment's offsets, which was never sealed itself: a copy or another one's file under a
 * wrong name. Its bytes under these offsets would be the wrong records. The segment behind it must be there, too, or
 * the list might be of another time; and it must not begin just where the one ahead of it ends, or it was only missing when
 * the list was made from the directory, and is back.
 */
static bool
is_foreign(const struct inventory *inventory, size_t at)
{
	const struct listing_segment *segments = inventory->listing->segments;
	const struct sealed_entry *around = sealed_list_inside(&inventory->list, segments[at].base);

	return around != NULL && find_listed(inventory->listing, around->end) != NULL
	    && (at == 0 || !ends_ahead_of(inventory, &segments[at - 1], segments[at].base));
}

void
inventory_drop_foreign(struct inventory *inventory)
{
	struct listing *listing = inventory->listing;

	for (size_t i = 0; i + 1 < listing->count;) {
		char file[SEGMENT_NAME_BYTES];

		if (!is_foreign(inventory, i)) {
			i++;
			continue;
		}
		segment_name(file, listing->segments[i].base);
		listing_report_foreign(inventory->name, file, "its offsets are those of a segment ahead of it: a copy, or a wrong name");
		listing_remove(listing, i);
	}
}

static void
take_times(struct inventory *inventory)
{
	struct listing *listing = inventory->listing;

	for (size_t i = 0; i < listing->count; i++) {
		struct listing_segment *segment = &listing->segments[i];
		const struct sealed_entry *entry = sealed_list_find(&inventory->list, segment->base);

		if (entry != NULL && entry->bytes == segment->bytes)
			segment->last_append_ms = entry->last_append_ms;
	}
}

int
inventory_read(struct inventory *inventory)
{
	inventory->list = (struct sealed_list){ 0 };
	inventory->wrong = NULL;
	inventory->stray_bytes = 0;
	inventory->lacking = 0;
	inventory->gap_at = -1;
	if (inventory->listing->has_list && sealed_list_read(inventory->dir_fd, &inventory->list,
	    &inventory->stray_bytes) == -1) {
		if (errno == ENOMEM)
			return -1;
		if (errno != ENOENT)
			inventory->wrong = errno == EBADMSG ? "it is damaged, or no such list" : strerror(errno);
	}
	inventory_drop_foreign(inventory);
	if (inventory->listing->count > 0)
		sealed_list_allow_for(&inventory->list, inventory->stray_bytes, inventory->listing->segments[0].base);
	take_times(inventory);
	return 0;
}

void
inventory_free(struct inventory *inventory)
{
	sealed_list_free(&inventory->list);
}

/* ---- reporting ---- */

static int64_t
active_base(const struct inventory *inventory)
{
	return inventory->listing->segments[inventory->listing->count - 1].base;
}

static void
report_missing(const struct inventory *inventory)
{
	for (size_t i = 0; i < inventory->list.count; i++) {
		const struct sealed_entry *entry = &inventory->list.entries[i];
		char file[SEGMENT_NAME_BYTES];

		if (entry->base >= active_base(inventory) || find_listed(inventory->listing, entry->base) != NULL
		    || sealed_list_retired(&inventory->list, entry))
			continue;
		segment_name(file, entry->base);
		log_error("%s/%s is missing: offsets %" PRId64 " to %" PRId64 " cannot be read. Restore the file from a copy and "
		    "restart the broker", inventory->name, file, entry->base, entry->end - 1);
	}
}

/* What the list says of a segment and of the one behind it. */
static void
report_changed(const struct inventory *inventory, const struct listing_segment *segment,
    const struct sealed_entry *entry)
{
	int64_t next = segment[1].base;
	char file[SEGMENT_NAME_BYTES];

	segment_name(file, segment->base);
	if (entry->bytes != segment->bytes)
		log_error("%s/%s: it has %" PRId64 " bytes, but was sealed with %" PRId64 ": it is damaged, and left as it is. "
		    "Restore the file from a copy and restart the broker", inventory->name, file, segment->bytes, entry->bytes);
	else if (entry->end < next && sealed_list_find(&inventory->list, entry->end) == NULL)
		log_error("%s/%s: it ends at offset %" PRId64 ", but the next segment begins at %" PRId64 ": what lies between "
		    "is missing and cannot be read. Restore the files from a copy and restart the broker", inventory->name, file,
		    entry->end, next);
	else if (entry->end > next)
		log_error("%s/%s: it ends at offset %" PRId64 ", but the next segment begins at %" PRId64 ": they overlap. Both are "
		    "left as they are; compare the directory with a copy", inventory->name, file, entry->end, next);
}

/* Without an entry sizes and names alone show some damage. */
static void
report_unlikely(const struct inventory *inventory, const struct listing_segment *segment, int64_t smallest)
{
	int64_t bytes = segment->bytes, next = segment[1].base, records = next - segment->base;
	char file[SEGMENT_NAME_BYTES];

	segment_name(file, segment->base);
	if (records > bytes / smallest)
		log_error("%s/%s: its %" PRId64 " bytes cannot hold the records up to offset %" PRId64 ", where the "
		    "next segment begins: a segment is missing or cut short, reading the gap gives an error. "
		    "Restore the files from a copy and restart the broker", inventory->name, file, bytes, next);
	else if (records < (bytes + RECORD_MAX_BYTES - 1) / RECORD_MAX_BYTES)
		log_error("%s/%s: its %" PRId64 " bytes reach beyond offset %" PRId64 ", where the next "
		    "segment begins: they overlap. Both are left as they are; compare the directory with a copy",
		    inventory->name, file, bytes, next);
}

/* Is there nothing behind that position of the segment? */
static bool
ends_at(const struct inventory *inventory, const struct listing_segment *segment, int64_t position)
{
	int fd = segment_open_file(inventory->dir_fd, segment->base, O_RDONLY);
	bool ends;

	if (fd == -1)
		return false;
	ends = scan_content_end(fd, position, segment->bytes) == position;
	close(fd);
	return ends;
}

/*
 * The list does not know of the last sealed segment: the active one was made just ahead of a crash, or is a file that was put
 * there. The segment's index tells where it ended, if nothing stands behind that.
 */
static bool
find_gap(struct inventory *inventory, const struct listing_segment *segment)
{
	struct index_file stored;
	struct index index;
	char file[SEGMENT_NAME_BYTES];

	index_init(&index, 1);
	if (segment->indexed && index_file_read(inventory->dir_fd, segment->base, inventory->format, &index, &stored, NULL) == 0
	    && stored.point.end < segment[1].base && ends_at(inventory, segment, stored.point.position)) {
		inventory->gap_at = stored.point.end;
		segment_name(file, segment->base);
		log_error("%s/%s: it ends at offset %" PRId64 ", but the next segment begins at %" PRId64 ": what lies between is "
		    "missing and cannot be read. Restore the files from a copy and restart the broker", inventory->name, file,
		    inventory->gap_at, segment[1].base);
	}
	index_free(&index);
	return inventory->gap_at != -1;
}

void
inventory_report(struct inventory *inventory)
{
	const struct listing *listing = inventory->listing;
	int64_t smallest = (int64_t)record_header_bytes(inventory->format) + 1;

	if (listing->count == 0)
		return;
	report_missing(inventory);
	for (size_t i = 0; i + 1 < listing->count; i++) {
		const struct sealed_entry *entry = sealed_list_find(&inventory->list, listing->segments[i].base);

		if (entry != NULL)
			report_changed(inventory, &listing->segments[i], entry);
		else if (i + 2 < listing->count || !find_gap(inventory, &listing->segments[i]))
			report_unlikely(inventory, &listing->segments[i], smallest);
	}
}

/* ---- storing ---- */

/* There is no list, or nothing of it to be read. */
static bool
has_none(const struct inventory *inventory)
{
	return inventory->wrong != NULL || !inventory->listing->has_list || inventory->list.in_file == 0;
}

/* The list as it should be: what it has told of sealed segments, also of those that are missing, and the others. */
static int
merge(struct inventory *inventory, struct sealed_list *merged)
{
	const struct listing *listing = inventory->listing;
	const struct sealed_list *list = &inventory->list;
	size_t at = 0;

	merged->log_start = list->log_start;
	/* Nothing tells what was ahead of the first one: these offsets are not free, if ever nothing else is left. */
	if (listing->count > 0 && (has_none(inventory) || listing->segments[0].base < list->log_start))
		merged->log_start = listing->segments[0].base;
	for (size_t i = 0; i < listing->count; i++) {
		const struct listing_segment *segment = &listing->segments[i];
		struct sealed_entry added = { .base = segment->base, .bytes = segment->bytes,
			.last_append_ms = segment->last_append_ms };

		while (at < list->count && list->entries[at].base < segment->base)
			if (sealed_list_add(merged, &list->entries[at++]) == -1)
				return -1;
		if (i + 1 == listing->count || (at < list->count && list->entries[at].base == segment->base))
			continue;
		added.end = i + 2 == listing->count && inventory->gap_at != -1 ? inventory->gap_at : segment[1].base;
		/* Otherwise it is damaged, and nobody knows where it ended. */
		if (!sealed_list_plausible(&added))
			continue;
		inventory->lacking++;
		if (sealed_list_add(merged, &added) == -1)
			return -1;
	}
	return 0;
}

static void
report_list(const struct inventory *inventory, size_t sealed)
{
	if (inventory->wrong != NULL)
		log_warning("%s/" SEALED_LIST_NAME ": %s; it is made anew from the directory", inventory->name, inventory->wrong);
	else if (inventory->lacking > 0)
		log_info("%s/" SEALED_LIST_NAME ": it lacks %zu of %zu sealed segments, which are taken from the directory",
		    inventory->name, inventory->lacking, sealed);
	else if (inventory->stray_bytes > 0)
		log_info("%s/" SEALED_LIST_NAME ": its last %" PRId64 " bytes are damaged; it is made anew", inventory->name,
		    inventory->stray_bytes);
}

int
inventory_store(struct inventory *inventory)
{
	size_t sealed = inventory->listing->count == 0 ? 0 : inventory->listing->count - 1;
	struct sealed_list merged = { 0 };
	int done, error;

	done = merge(inventory, &merged);
	report_list(inventory, sealed);
	if (done == 0 && (inventory->wrong != NULL || inventory->lacking > 0 || inventory->stray_bytes > 0
	    || (merged.log_start > 0 && has_none(inventory)) || sealed_list_stale(inventory->list.in_file, merged.count)))
		done = sealed_list_write(inventory->dir_fd, &merged);
	error = errno;
	sealed_list_free(&merged);
	errno = error;
	return done;
}
