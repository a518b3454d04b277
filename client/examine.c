/* Examining a log, see examine.h. */
#include "client/examine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/caches.h"
#include "worker/evidence.h"
#include "worker/listing.h"
#include "worker/scan.h"
#include "worker/sealed_list.h"
#include "worker/segment.h"
#include "worker/walk.h"

enum {
	LOOKS_MAX = 20,		/* at one segment: what is different each time is at work, not damaged */
	ALIKE_RUNNING = 4,	/* looks at the last segment that must have found the same as the one before */
	COMPARE_BYTES = 64 * 1024,
	BEGIN_BYTES = 4096,	/* of a file that holds records: something in it is not zero */
	FORMAT_LOOKS_MAX = 20,	/* at a log in which a broker is at work and nothing tells the format */
};

/* Too many or too few records at a segment's end: not told yet, since the next segment may only have a wrong name. */
struct pending {
	struct finding finding;
	int64_t base;		/* of the segment; -1 = nothing is pending */
};

struct examiner {
	struct examine *e;
	struct listing listing;		/* as last read */
	int64_t last;			/* base of the last segment with content at first: the end of the work */
	int64_t active;			/* base of the empty segment behind it that is the active one; -1 = none is */
	int64_t original;		/* base of a segment, and of the last of its copies, which are left out */
	int64_t copied;
	struct pending pending;
};

/* ---- telling ---- */

static void
tell(struct examiner *x, struct finding *finding, const char *name)
{
	finding->name = name;
	x->e->findings[finding_weight(finding->kind)]++;
	x->e->found(x->e->found_with, finding);
}

static void
tell_segment(struct examiner *x, struct finding *finding, int64_t base)
{
	char name[SEGMENT_NAME_BYTES];

	segment_name(name, base);
	tell(x, finding, name);
}

static struct finding
new_finding(enum finding_kind kind)
{
	return (struct finding){ .kind = kind, .position = -1, .offset = -1, .bytes = -1, .records = -1, .other = -1 };
}

static bool
is_running(const struct examiner *x)
{
	return x->e->running(x->e->running_with);
}

static void
note_entry(void *with, enum listing_kind kind, const char *entry, const char *why)
{
	static const enum finding_kind kinds[] = { [LISTING_FOREIGN] = FINDING_FOREIGN,
		[LISTING_LEFTOVER] = FINDING_LEFTOVER, [LISTING_CUT] = FINDING_CUT_COPY };
	struct finding finding = new_finding(kinds[kind]);
	struct examiner *x = with;
	struct stat st;

	if (x->e->only != -1 || (kind == LISTING_LEFTOVER && is_running(x)))
		return;
	if (fstatat(x->e->dir_fd, entry, &st, AT_SYMLINK_NOFOLLOW) == 0)
		finding.bytes = st.st_size;
	finding.why = why;
	tell(x, &finding, entry);
}

static void
ignore_entry(void *with, enum listing_kind kind, const char *entry, const char *why)
{
	(void)with;
	(void)kind;
	(void)entry;
	(void)why;
}

/* ---- the directory ---- */

/* No log gets as far as offsets that a file of this size could lead beyond. */
static void
drop_impossible(struct examiner *x, bool first_time)
{
	struct listing *listing = &x->listing;

	while (listing->count > 0) {
		const struct listing_segment *last = &listing->segments[listing->count - 1];
		struct finding finding = new_finding(FINDING_FOREIGN);

		if (last->base <= INT64_MAX - last->bytes)
			break;
		finding.why = "no log has so many records";
		if (first_time && x->e->only == -1)
			tell_segment(x, &finding, last->base);
		listing_remove(listing, listing->count - 1);
	}
}

/* Nothing but zeros: a segment that is preallocated and has no record yet. What cannot be read has content. */
static bool
holds_zeros_only(int dir_fd, const struct listing_segment *segment)
{
	int fd = segment_open_file(dir_fd, segment->base, O_RDONLY);
	int64_t begin_bytes = segment->bytes < BEGIN_BYTES ? segment->bytes : BEGIN_BYTES;
	bool zeros;

	if (fd == -1)
		return false;
	zeros = scan_content_end(fd, 0, begin_bytes) == 0
	    && scan_content_end(fd, begin_bytes, segment->bytes) == begin_bytes;
	close(fd);
	return zeros;
}

/* From here on, those at the end that have no records are empty. */
static void
empty_preallocated(const struct listing *listing, int dir_fd)
{
	for (size_t i = listing->count; i-- > 0;) {
		struct listing_segment *segment = &listing->segments[i];

		if (segment->bytes == 0)
			continue;
		if (!holds_zeros_only(dir_fd, segment))
			break;
		segment->bytes = 0;
	}
}

static int
read_directory(struct examiner *x, bool first_time)
{
	struct listing listing;

	if (listing_read_noting(&listing, x->e->dir_fd, first_time ? note_entry : ignore_entry, x) == -1)
		return -1;
	listing_free(&x->listing);
	x->listing = listing;
	drop_impossible(x, first_time);
	empty_preallocated(&x->listing, x->e->dir_fd);
	return 0;
}

/* The first segment with content from that base on; NULL: there is none. */
static const struct listing_segment *
find_from(const struct examiner *x, int64_t base)
{
	size_t low = 0, high = x->listing.count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (x->listing.segments[middle].base < base)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < x->listing.count; low++) {
		const struct listing_segment *segment = &x->listing.segments[low];
		bool copy = segment->base > x->original && segment->base <= x->copied;

		if (segment->bytes > 0 && !copy)
			return segment;
	}
	return NULL;
}

static int64_t
base_behind(const struct examiner *x, int64_t base)
{
	const struct listing_segment *next = find_from(x, base + 1);

	return next == NULL ? -1 : next->base;
}

static int64_t
last_with_content(const struct examiner *x)
{
	for (size_t i = x->listing.count; i-- > 0;)
		if (x->listing.segments[i].bytes > 0)
			return x->listing.segments[i].base;
	return -1;
}

/* ---- the format ---- */

static void
pause_for(int ms)
{
	const struct timespec pause = { 0, ms * 1000000L };

	nanosleep(&pause, NULL);
}

/* Sums that fit are no accident; lengths without sums can be, unless they lead exactly to the end. */
static int
look_for_sums(int fd, enum evidence *evidence)
{
	enum evidence exact = EVIDENCE_NONE;
	struct look look;

	if (evidence_of_file(fd, segment_file_bytes(fd), true, &exact) == 0 && exact == EVIDENCE_PLAIN)
		return 0;
	if (look_at(&look, fd, RECORD_CRC32C, 0, -1, NULL, NULL) == -1)
		return errno == ENOMEM ? -1 : 0;
	if (look.records > 0)
		*evidence = EVIDENCE_CRC32C;
	return 0;
}

/* The evidence of a file that may be torn. */
static int
evidence_of_open(int fd, enum evidence *evidence)
{
	if (evidence_of_file(fd, segment_file_bytes(fd), false, evidence) == -1)
		*evidence = EVIDENCE_NONE;
	return *evidence == EVIDENCE_CRC32C ? 0 : look_for_sums(fd, evidence);
}

static int
evidence_of_last(const struct listing *listing, size_t last, int dir_fd, enum evidence *evidence)
{
	int fd = segment_open_file(dir_fd, listing->segments[last].base, O_RDONLY);
	int done;

	*evidence = EVIDENCE_NONE;
	if (fd == -1)
		return 0;
	done = evidence_of_open(fd, evidence);
	close(fd);
	return done;
}

static void
conclude(int format, enum evidence evidence, enum record_format *record_format, bool *told)
{
	*told = format != -1 || evidence == EVIDENCE_PLAIN || evidence == EVIDENCE_CRC32C;
	if (format != -1)
		*record_format = (enum record_format)format;
	else
		*record_format = evidence == EVIDENCE_PLAIN ? RECORD_PLAIN : RECORD_CRC32C;
}

/* The same evidence as recovery's: of the sealed segments, the newest first, then of the last one. */
static int
evidence_of_log(const struct listing *listing, int dir_fd, enum evidence *evidence)
{
	size_t last = listing->count;

	*evidence = EVIDENCE_NONE;
	while (last > 0 && listing->segments[last - 1].bytes == 0)
		last--;
	if (last-- == 0)
		return 0;
	for (size_t i = last; i-- > 0 && *evidence == EVIDENCE_NONE;)
		if (listing->segments[i].bytes > 0)
			*evidence = evidence_of_sealed(dir_fd, listing->segments[i].base);
	return *evidence == EVIDENCE_NONE ? evidence_of_last(listing, last, dir_fd, evidence) : 0;
}

/*
 * Of a running broker's log all that was listed may be gone before it is read, or the only record be on its way: what tells
 * nothing then is looked at again.
 */
static int
decide_format(struct examiner *x)
{
	struct examine *e = x->e;
	enum evidence evidence = EVIDENCE_NONE;

	for (int looks = 1;; looks++) {
		if (e->format == -1 && evidence_of_log(&x->listing, e->dir_fd, &evidence) == -1)
			return -1;
		conclude(e->format, evidence, &e->record_format, &e->format_told);
		if (e->format_told || looks == FORMAT_LOOKS_MAX || last_with_content(x) == -1 || !is_running(x))
			return 0;
		pause_for(e->pause_ms);
		if (read_directory(x, false) == -1)
			return -1;
	}
}

int
examine_format(struct examine *e)
{
	struct examiner x = { .e = e, .original = -1, .copied = -1 };
	int done = e->format == -1 && read_directory(&x, false) == -1 ? -1 : decide_format(&x);

	listing_free(&x.listing);
	return done;
}

int
examine_file_format(int fd, int format, enum record_format *record_format, bool *told)
{
	enum evidence evidence = EVIDENCE_NONE;

	if (format == -1 && evidence_of_open(fd, &evidence) == -1)
		return -1;
	conclude(format, evidence, record_format, told);
	return 0;
}

/* ---- one segment ---- */

/* The look was at the last segment with content. Is an empty one behind it the active one, and this one sealed? */
static int
find_empty_behind(struct examiner *x, int fd, const struct caches_index *index, const struct look *look, int64_t *next)
{
	const struct segment segment = { .fd = fd, .format = x->e->record_format, .base = look->base,
		.end = look->prefix_end, .bytes = look->prefix_bytes };
	int64_t sealed_end, indexed_end;
	bool is;

	caches_find_end(x->e->dir_fd, look, x->e->record_format, &sealed_end, &indexed_end);
	if (indexed_end == -1)
		indexed_end = index->file.point.end;
	*next = -1;
	for (size_t i = x->listing.count; i-- > 0 && *next == -1;) {
		int64_t base = x->listing.segments[i].base;

		if (base <= look->base)
			continue;
		if (evidence_follows(&segment, look->file_bytes, sealed_end, indexed_end, base, &is) == -1 && errno == ENOMEM)
			return -1;
		if (is)
			*next = base;
	}
	return 0;
}

/* The look has found an end that is not whole. By now it may be: then all that was read is good. */
static int
look_whether_it_is_whole(struct look *look, int fd, enum record_format format)
{
	int64_t file_bytes = segment_file_bytes(fd);
	struct walk walk;
	struct walk_step step;
	int done;

	if (look->next != -1 || look->count > 0 || look->torn_bytes == 0 || file_bytes < look->prefix_bytes)
		return 0;
	if (walk_open(&walk, fd, format, look->prefix_bytes, file_bytes) == -1)
		return -1;
	done = walk_next(&walk, &step);
	if (done == 0 && step.kind != WALK_BAD)
		look->torn_bytes = 0;
	walk_close(&walk);
	return done;
}

/* The look at an open segment, and what its index says of it. */
static int
look_at_open(struct examiner *x, int fd, const struct caches_index *index, int64_t base, struct look *look)
{
	const struct look_progress *progress = x->e->progress.read == NULL ? NULL : &x->e->progress;
	int64_t next = base_behind(x, base);

	if (look_at(look, fd, x->e->record_format, base, next, &index->marks, progress) == -1)
		return -1;
	if (next == -1 && find_empty_behind(x, fd, index, look, &next) == -1)
		return -1;
	if (look->next != next && look_at(look, fd, x->e->record_format, base, next, &index->marks, NULL) == -1)
		return -1;
	caches_judge(look, index, fd);
	return look_whether_it_is_whole(look, fd, x->e->record_format);
}

/* A look at the segment with what stands behind it now. Returns 0, or -1 with errno; ENOENT: it is gone. */
static int
look_once(struct examiner *x, int64_t base, struct look *look)
{
	struct caches_index index;
	int done = caches_read_index(&index, x->e->dir_fd, base, x->e->record_format);
	int fd = done == -1 ? -1 : segment_open_file(x->e->dir_fd, base, O_RDONLY);
	int error;

	done = fd == -1 ? -1 : look_at_open(x, fd, &index, base, look);
	error = errno;
	if (fd != -1)
		close(fd);
	caches_free_index(&index);
	errno = error;
	return done;
}

static bool
found_anything(const struct look *look)
{
	return look->count > 0 || look->torn_bytes > 0 || look->note.kind != FINDING_KINDS;
}

enum outcome { STANDS, GONE, AT_WORK, CANNOT, FAILED };

/* Looks until what is found stands, or nothing is found. */
static enum outcome
look_until_it_stands(struct examiner *x, int64_t base, struct look *look)
{
	struct look before;
	bool running = false, looked = false;
	int alike = 0;

	for (int looks = 0; looks < LOOKS_MAX; looks++) {
		int done;

		running = is_running(x);
		/* What was listed some time ago may be sealed, overtaken or gone by now. */
		if ((looks > 0 || base_behind(x, base) == -1) && read_directory(x, false) == -1)
			return FAILED;
		if (find_from(x, base) == NULL || find_from(x, base)->base != base)
			return GONE;
		done = look_once(x, base, look);
		if (done == -1 && errno == ENOENT)
			continue;
		if (done == -1)
			return errno == ENOMEM ? FAILED : CANNOT;
		if (!found_anything(look))
			return STANDS;
		alike = looked && look_alike(&before, look) ? alike + 1 : 0;
		if (alike >= (running && look->next == -1 ? ALIKE_RUNNING : 1))
			return STANDS;
		before = *look;
		looked = true;
		if (running)
			pause_for(x->e->pause_ms);
	}
	if (!looked)
		return GONE;
	/* Where nobody writes, what is different each time is no less bad. */
	return running && look->next == -1 ? AT_WORK : STANDS;
}

/* Do both segments hold the same bytes? */
static bool
same_bytes(const struct examiner *x, int64_t one, int64_t other)
{
	static uint8_t ours[COMPARE_BYTES], theirs[COMPARE_BYTES];
	int fds[2] = { segment_open_file(x->e->dir_fd, one, O_RDONLY),
		segment_open_file(x->e->dir_fd, other, O_RDONLY) };
	bool same = fds[0] != -1 && fds[1] != -1 && segment_file_bytes(fds[0]) == segment_file_bytes(fds[1]);
	ssize_t n = 1;

	for (int64_t at = 0; same && n > 0; at += n) {
		n = segment_read(fds[0], ours, COMPARE_BYTES, at);
		same = n >= 0 && segment_read(fds[1], theirs, COMPARE_BYTES, at) == n
		    && memcmp(ours, theirs, (size_t)n) == 0;
	}
	for (int i = 0; i < 2; i++)
		if (fds[i] != -1)
			close(fds[i]);
	return same;
}

/* The segment reaches over the next one's base. Is that because the next one is its copy under another name? */
static bool
is_doubled(const struct examiner *x, const struct look *look)
{
	return look->count > 0 && look->found[look->count - 1].kind == FINDING_OVERLAP
	    && same_bytes(x, look->base, look->next);
}

static void
tell_pending(struct examiner *x)
{
	if (x->pending.base != -1)
		tell_segment(x, &x->pending.finding, x->pending.base);
	x->pending.base = -1;
}

/*
 * As many records are missing ahead of this segment as are too many in it, or the other way round: then only its name
 * is wrong, and both findings are this one.
 */
static bool
is_misnamed(const struct examiner *x, const struct look *look)
{
	const struct finding *ahead = &x->pending.finding, *own = &look->found[0];

	return x->pending.base != -1 && look->count == 1 && ahead->other == look->base && ahead->records == own->records
	    && ((ahead->kind == FINDING_MISSING && own->kind == FINDING_OVERLAP)
	    || (ahead->kind == FINDING_OVERLAP && own->kind == FINDING_MISSING));
}

static void
tell_misnamed(struct examiner *x, int64_t base)
{
	const struct finding *ahead = &x->pending.finding;
	struct finding finding = new_finding(FINDING_MISNAMED);

	finding.offset = ahead->kind == FINDING_MISSING ? base - ahead->records : base + ahead->records;
	x->pending.base = -1;
	tell_segment(x, &finding, base);
}

static void
tell_more(struct examiner *x, const struct look *look)
{
	struct finding finding = new_finding(FINDING_MORE);

	finding.records = look->more;
	if (look->more > 0)
		tell_segment(x, &finding, look->base);
}

static void
tell_torn(struct examiner *x, const struct look *look)
{
	struct finding finding = new_finding(is_running(x) ? FINDING_BEING_WRITTEN : FINDING_TORN);

	finding.position = look->prefix_bytes;
	finding.offset = look->prefix_end;
	finding.bytes = look->torn_bytes;
	finding.verdict = look->torn_verdict;
	if (look->torn_bytes > 0)
		tell_segment(x, &finding, look->base);
}

static void
tell_index(struct examiner *x, struct finding *note, int64_t base)
{
	char name[SEGMENT_NAME_BYTES];

	index_file_name(name, base);
	tell(x, note, name);
}

static void
tell_look(struct examiner *x, struct look *look)
{
	int count = look->count;
	enum finding_kind at_end = count == 0 ? FINDING_KINDS : look->found[count - 1].kind;

	if (is_misnamed(x, look)) {
		tell_misnamed(x, look->base);
		return;
	}
	tell_pending(x);
	if (at_end == FINDING_MISSING || at_end == FINDING_OVERLAP) {
		x->pending.finding = look->found[--count];
		x->pending.base = look->base;
	}
	for (int i = 0; i < count; i++)
		tell_segment(x, &look->found[i], look->base);
	tell_more(x, look);
	tell_torn(x, look);
	if (look->note.kind != FINDING_KINDS)
		tell_index(x, &look->note, look->base);
}

static void
tell_cannot_open(struct examiner *x, int64_t base, int error)
{
	struct finding finding = new_finding(FINDING_CANNOT_OPEN);

	finding.error = error;
	tell_segment(x, &finding, base);
}

static void
tell_doubled(struct examiner *x, int64_t base, int64_t other)
{
	struct finding finding = new_finding(FINDING_DOUBLED);

	finding.other = other;
	x->original = other;
	x->copied = base;
	tell_segment(x, &finding, base);
}

static void
count_segment(struct examiner *x, const struct look *look)
{
	struct examine *e = x->e;

	if (e->segments++ == 0)
		e->first = look->base;
	e->records += look->records;
	e->bytes += look->bytes;
	e->end = look->end;
	e->last.base = -1;
	if (base_behind(x, look->base) != -1)
		return;
	/* Nothing with content follows. An empty segment that does is the active one. */
	x->active = look->next;
	e->segments += look->next != -1;
	if (look->next == -1)
		e->last = *look;
}

static int
examine_segment(struct examiner *x, int64_t base)
{
	struct look look;

	for (;;) {
		switch (look_until_it_stands(x, base, &look)) {
		case FAILED:
			return -1;
		case GONE:
			return 0;
		case CANNOT:
			tell_cannot_open(x, base, errno);
			return 0;
		case AT_WORK:
			look.count = 0;
			look.more = look.torn_bytes = 0;
			look.note.kind = FINDING_KINDS;
			break;
		case STANDS:
			break;
		}
		if (!is_doubled(x, &look))
			break;
		tell_doubled(x, look.next, base);
	}
	count_segment(x, &look);
	tell_look(x, &look);
	return 0;
}

/* ---- the log ---- */

/* There are only empty segments: the first one behind what the list knows is the log, as for recovery. */
static void
take_empty_log(struct examiner *x, const struct sealed_list *list)
{
	int64_t least = sealed_list_end(list);

	if (x->last != -1)
		return;
	x->active = -1;
	for (size_t i = x->listing.count; i-- > 0;)
		if (x->listing.segments[i].base >= least)
			x->active = x->listing.segments[i].base;
	x->e->segments = x->active == -1 ? 0 : 1;
	x->e->first = x->e->end = x->active;
}

static void
tell_format(struct examiner *x)
{
	struct finding assumed = new_finding(FINDING_FORMAT_ASSUMED);

	if (!x->e->format_told && x->last != -1)
		tell(x, &assumed, "");
}

/* Of a running broker's segments those at the end come and go. */
static void
tell_empty(struct examiner *x)
{
	bool running = is_running(x);

	for (size_t i = 0; i < x->listing.count && x->e->only == -1; i++) {
		const struct listing_segment *segment = &x->listing.segments[i];
		struct finding finding = new_finding(FINDING_EMPTY);

		if (segment->bytes == 0 && segment->base != x->active && !(running && segment->base > x->last))
			tell_segment(x, &finding, segment->base);
	}
}

static void
tell_gone(struct examiner *x, int64_t base, int64_t records)
{
	struct finding finding = new_finding(FINDING_GONE);

	finding.offset = base;
	finding.records = records;
	tell_segment(x, &finding, base);
}

/* Those ahead of all others. One that is gone between others leaves a gap, which is found without the list. */
static void
tell_first_gone(struct examiner *x, const struct sealed_list *list)
{
	const struct listing_segment *first = find_from(x, 0);
	int64_t base = first == NULL ? x->active : first->base;

	for (size_t i = 0; i < list->count && (base == -1 || list->entries[i].base < base); i++)
		if (!sealed_list_retired(list, &list->entries[i]))
			tell_gone(x, list->entries[i].base, list->entries[i].end - list->entries[i].base);
}

/* An empty one is only the next one where the last one ends, or was sealed; or where the list, read before, may be behind. */
static bool
has_come_behind(const struct examiner *x, const struct look *last, int64_t sealed_end)
{
	int64_t next = sealed_end > last->end ? sealed_end : last->end;
	bool running = is_running(x);

	for (size_t i = 0; i < x->listing.count; i++) {
		const struct listing_segment *segment = &x->listing.segments[i];

		if (segment->base > last->base && (segment->bytes > 0 || segment->base == next || running))
			return true;
	}
	return false;
}

/* There is no segment at all: the index of the last one may tell, in whichever format it was. */
static void
tell_only_gone(struct examiner *x, const struct sealed_list *list)
{
	const struct listing *listing = &x->listing;
	int64_t least = sealed_list_end(list);
	int64_t base = least > 0 || listing->index_count == 0 ? least : listing->indexes[0], end = base;

	for (int format = RECORD_PLAIN; format <= RECORD_CRC32C && end == base; format++)
		end = index_file_end(x->e->dir_fd, base, (enum record_format)format);
	if (end > base)
		tell_gone(x, base, end - base);
}

/* A broker that is at work gives the next segment its name before the list knows of this one. */
static int
tell_last_gone(struct examiner *x, const struct sealed_list *list)
{
	const struct look *last = &x->e->last;
	int64_t end;

	if (x->listing.count == 0)
		tell_only_gone(x, list);
	if (last->base == -1 || !caches_know_more(list, x->e->dir_fd, last, x->e->record_format, &end))
		return 0;
	if (read_directory(x, false) == -1)
		return -1;
	if (x->listing.count > 0 && !has_come_behind(x, last, sealed_list_end(list)))
		tell_gone(x, last->end, end > last->end ? end - last->end : -1);
	return 0;
}

/* Read again before the list is: what retention has removed is noted there already. */
static int
tell_list(struct examiner *x)
{
	struct finding finding = new_finding(FINDING_WRONG_LIST);
	struct sealed_list list;
	char text[CACHES_TEXT_BYTES];
	int done;

	if (x->e->only != -1)
		return 0;
	if (read_directory(x, false) == -1 || caches_read_list(&list, x->e->dir_fd, &x->listing, text) == -1)
		return -1;
	finding.why = text;
	if (text[0] != '\0')
		tell(x, &finding, SEALED_LIST_NAME);
	take_empty_log(x, &list);
	tell_first_gone(x, &list);
	done = tell_last_gone(x, &list);
	sealed_list_free(&list);
	return done;
}

static int
examine_all(struct examiner *x)
{
	const struct listing_segment *segment;
	int64_t from = x->e->only == -1 ? 0 : x->e->only;
	int64_t to = x->e->only == -1 ? x->last : x->e->only;

	while ((segment = find_from(x, from)) != NULL && segment->base <= to) {
		from = segment->base + 1;
		if (examine_segment(x, segment->base) == -1)
			return -1;
	}
	tell_pending(x);
	return 0;
}

int
examine_log(struct examine *e)
{
	struct examiner x = { .e = e, .active = -1, .original = -1, .copied = -1, .pending = { .base = -1 } };
	int done = -1, error;

	e->segments = e->records = e->bytes = 0;
	e->first = e->end = e->last.base = -1;
	memset(e->findings, 0, sizeof(e->findings));
	if (read_directory(&x, true) == 0) {
		done = decide_format(&x);
		x.last = last_with_content(&x);
		take_empty_log(&x, &(struct sealed_list){ 0 });
	}
	if (done == 0 && (examine_all(&x) == -1 || tell_list(&x) == -1))
		done = -1;
	if (done == 0) {
		tell_format(&x);
		tell_empty(&x);
	}
	error = errno;
	listing_free(&x.listing);
	errno = error;
	return done;
}
