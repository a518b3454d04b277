/* Caches held against a log. */
#include "client/caches.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int
caches_read_index(struct caches_index *index, int dir_fd, int64_t base, enum record_format format)
{
	*index = (struct caches_index){ 0 };
	index_init(&index->marks, 1);
	if (index_file_read(dir_fd, base, format, &index->marks, &index->file, NULL) == 0 || errno == ENOENT)
		return 0;
	if (errno == ENOMEM)
		return -1;
	index->unread = errno != EBADMSG;
	index->wrong = index->unread ? "its index cannot be read" : "its index is damaged, or of another log";
	return 0;
}

void
caches_free_index(struct caches_index *index)
{
	index_free(&index->marks);
}

static void
note(struct look *look, enum finding_kind kind, const char *why)
{
	look->note = (struct finding){ .kind = kind, .position = -1, .offset = -1, .bytes = -1,
		.records = -1, .other = -1, .why = why };
}

/* The prefix ends in what had been forced, with something behind it: that is no torn write. */
static void
make_damage(struct look *look)
{
	struct finding *finding = look_add(look, FINDING_BAD_RECORD);

	finding->position = look->prefix_bytes;
	finding->offset = look->prefix_end;
	finding->bytes = look->torn_bytes;
	finding->verdict = look->torn_verdict;
	finding->before = look->records;
	finding->behind = 0;
	finding->last = false;
	look->torn_bytes = 0;
}

static void
make_loss(struct look *look, const struct index_point *point)
{
	struct finding *finding = look_add(look, FINDING_LOST);

	finding->position = look->prefix_bytes;
	finding->offset = look->prefix_end;
	finding->bytes = look->torn_bytes;
	finding->other = point->end;
	finding->records = point->end - look->prefix_end;
	look->torn_bytes = 0;
}

/* The last segment, which ends before its index does. */
static void
judge_short(struct look *look, const struct index_point *point, int fd)
{
	if (look->torn_bytes > 0 && index_point_fits(point, fd, look->file_bytes))
		make_damage(look);
	else if (look->marks_right > 0)
		make_loss(look, point);
	else
		note(look, FINDING_WRONG_INDEX, "its index does not fit it");
}

void
caches_judge(struct look *look, const struct caches_index *index, int fd)
{
	const struct index_point *point = &index->file.point;

	if (index->wrong != NULL) {
		note(look, index->unread ? FINDING_UNREADABLE_INDEX : FINDING_WRONG_INDEX, index->wrong);
		return;
	}
	/* The broker's next start goes on from this point: it does not see what is ahead of it, so it does not cut. */
	for (int i = 0; i < look->count; i++)
		look->found[i].last &= look->found[i].position >= point->position;
	if (look->marks_wrong > 0 || (look->count == 0 && look->next != -1 && point->end > look->next))
		note(look, FINDING_WRONG_INDEX, "its index does not fit it");
	else if (look->next == -1 && look->count == 0 && point->position > look->prefix_bytes)
		judge_short(look, point, fd);
}

/* ---- the list of sealed segments ---- */

static int
compare_base(const void *key, const void *element)
{
	int64_t base = *(const int64_t *)key, other = ((const struct listing_segment *)element)->base;

	return (base > other) - (base < other);
}

/* What is not there is judged elsewhere; and the last one may have been sealed since it was listed. */
static const char *
compare_entry(const struct sealed_entry *entry, const struct listing *listing, char *text)
{
	const struct listing_segment *segments = listing->segments;
	const struct listing_segment *segment = bsearch(&entry->base, segments, listing->count, sizeof(*segments),
	    compare_base);

	if (segment == NULL || segment == &segments[listing->count - 1] || segment->bytes == entry->bytes)
		return NULL;
	snprintf(text, CACHES_TEXT_BYTES, "it knows %020" PRId64 ".log with %" PRId64 " bytes, not %" PRId64,
	    entry->base, entry->bytes, segment->bytes);
	return text;
}

int
caches_read_list(struct sealed_list *list, int dir_fd, const struct listing *listing, char *text)
{
	const char *wrong = NULL;
	int64_t stray_bytes;

	text[0] = '\0';
	if (sealed_list_read(dir_fd, list, &stray_bytes) == -1) {
		*list = (struct sealed_list){ 0 };
		if (errno == ENOMEM)
			return -1;
		if (errno == EBADMSG)
			snprintf(text, CACHES_TEXT_BYTES, "it is damaged, or no such list");
		return 0;
	}
	if (listing->count > 0)
		sealed_list_allow_for(list, stray_bytes, listing->segments[0].base);
	for (size_t i = 0; i < list->count && listing->count > 0 && wrong == NULL; i++)
		wrong = compare_entry(&list->entries[i], listing, text);
	return 0;
}

/* As recovery sees it. */
bool
caches_know_more(const struct sealed_list *list, int dir_fd, const struct look *last, enum record_format format,
    int64_t *end)
{
	int64_t sealed_end = sealed_list_end(list);

	if (last->end == -1)
		return false;
	*end = index_file_end(dir_fd, sealed_end > last->end ? sealed_end : last->end, format);
	return sealed_end > last->end || sealed_list_holds(list, last->base, last->end, last->file_bytes)
	    || (last->prefix_bytes == last->file_bytes && *end > last->end);
}

void
caches_find_end(int dir_fd, const struct look *last, enum record_format format, int64_t *sealed_end,
    int64_t *indexed_end)
{
	struct sealed_list list;

	if (sealed_list_read(dir_fd, &list, NULL) == -1)
		list = (struct sealed_list){ 0 };
	*sealed_end = sealed_list_end(&list);
	if (!caches_know_more(&list, dir_fd, last, format, indexed_end))
		*indexed_end = -1;
	sealed_list_free(&list);
}
