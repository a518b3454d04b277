/* Findings in words. */
#include "client/finding.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void
say(char *to, const char *format, ...)
{
	size_t used = strlen(to);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(to + used, FINDING_TEXT_BYTES - used, format, arguments);
	va_end(arguments);
}

/* "1 record", "3 records", "an unknown number of records" */
static void
say_records(const struct finding *f, char *to)
{
	if (f->records == -1)
		say(to, "an unknown number of records");
	else
		say(to, "%" PRId64 " record%s", f->records, f->records == 1 ? "" : "s");
}

static void
say_place(const struct finding *f, char *to)
{
	say(to, "position %" PRId64, f->position);
	if (f->offset != -1)
		say(to, ", offset %" PRId64, f->offset);
	say(to, ": %" PRId64 " bytes ", f->bytes);
}

static void
say_bad_record(const struct finding *f, char *to)
{
	say_place(f, to);
	say(to, "(%s), ", record_verdict_text(f->verdict));
	say_records(f, to);
	if (f->length_only)
		say(to, " with a wrong length and a whole payload");
	say(to, "; good records in this file: %" PRId64 " before, %" PRId64 " behind", f->before, f->behind);
}

static void
say_unreadable(const struct finding *f, char *to)
{
	say_place(f, to);
	say(to, "cannot be read: %s", strerror(f->error));
}

static void
say_missing(const struct finding *f, char *to)
{
	say(to, "its records end at offset %" PRId64 ", but the next segment begins at %" PRId64 ": ", f->offset,
	    f->other);
	say_records(f, to);
	say(to, " missing");
}

static void
say_gone(const struct finding *f, char *to)
{
	say(to, "it is not there any more: ");
	say_records(f, to);
	say(to, " from offset %" PRId64 " on missing", f->offset);
}

static void
say_overlap(const struct finding *f, char *to)
{
	say_records(f, to);
	say(to, " too many: the next segment begins at offset %" PRId64, f->other);
}

static void
say_misnamed(const struct finding *f, char *to)
{
	say(to, "by the segments around it its first record has offset %" PRId64 ": it should be %020" PRId64 ".log",
	    f->offset, f->offset);
}

static void
say_doubled(const struct finding *f, char *to)
{
	say(to, "the same bytes as %020" PRId64 ".log", f->other);
}

static void
say_surplus(const struct finding *f, char *to)
{
	say_place(f, to);
	say(to, "behind its last record");
}

static void
say_more(const struct finding *f, char *to)
{
	say(to, "%" PRId64 " more damaged places", f->records);
}

static void
say_cannot_open(const struct finding *f, char *to)
{
	say(to, "cannot be opened: %s", strerror(f->error));
}

static void
say_torn(const struct finding *f, char *to)
{
	say_place(f, to);
	say(to, "of a write that was interrupted (%s)", record_verdict_text(f->verdict));
}

static void
say_being_written(const struct finding *f, char *to)
{
	say_place(f, to);
	say(to, "that are just being written");
}

static void
say_format_assumed(const struct finding *f, char *to)
{
	(void)f;
	say(to, "nothing in it tells the format of its records: crc32c is assumed");
}

static void
say_empty(const struct finding *f, char *to)
{
	(void)f;
	say(to, "empty, or zeros alone, and the log does not end there: foreign, or a segment that has lost its "
	    "content");
}

static void
say_foreign(const struct finding *f, char *to)
{
	say(to, "does not belong to this log: %s", f->why);
}

static void
say_leftover(const struct finding *f, char *to)
{
	(void)f;
	say(to, "left over from work that was interrupted, or of a segment that is missing");
}

static void
say_cut_copy(const struct finding *f, char *to)
{
	say(to, "%" PRId64 " bytes that were once cut off a log's end", f->bytes);
}

static void
say_lost(const struct finding *f, char *to)
{
	say(to, "position %" PRId64 ", offset %" PRId64 ": its records end here, but up to offset %" PRId64 " they had "
	    "been forced to disk, as its index says: ", f->position, f->offset, f->other);
	say_records(f, to);
	say(to, " lost");
}

static void
say_wrong_cache(const struct finding *f, char *to)
{
	say(to, "%s", f->why);
}

static const char restore[] =
    "restore the file from a copy; until then the broker serves what it can reach around this place";
static const char store_anew[] = "the broker does not believe it, and stores it anew";
static const char move_away[] = "the broker ignores it; move it elsewhere";

static const struct {
	const char *name;
	enum finding_weight weight;
	void (*say)(const struct finding *f, char *to);
	const char *remedy;
} kinds[FINDING_KINDS] = {
	[FINDING_BAD_RECORD] = { "bad_record", FINDING_CORRUPTION, say_bad_record, restore },
	[FINDING_UNREADABLE] = { "unreadable", FINDING_CORRUPTION, say_unreadable, restore },
	[FINDING_MISSING] = { "missing_records", FINDING_CORRUPTION, say_missing,
	    "restore the segment that is missing or cut short from a copy; until then reading the gap gives an error" },
	[FINDING_GONE] = { "missing_records", FINDING_CORRUPTION, say_gone,
	    "stop the broker and restore the file from a copy" },
	[FINDING_OVERLAP] = { "overlap", FINDING_CORRUPTION, say_overlap,
	    "compare it and the next segment with a copy" },
	[FINDING_MISNAMED] = { "misnamed", FINDING_CORRUPTION, say_misnamed,
	    "stop the broker, rename it, verify again" },
	[FINDING_DOUBLED] = { "doubled", FINDING_CORRUPTION, say_doubled,
	    "stop the broker, move it elsewhere, verify again" },
	[FINDING_SURPLUS] = { "surplus_bytes", FINDING_CORRUPTION, say_surplus,
	    "restore the file from a copy; or stop the broker and cut it there (truncate -s POSITION FILE)" },
	[FINDING_LOST] = { "lost_records", FINDING_CORRUPTION, say_lost,
	    "restore the segment from a copy that has them; the broker's next start goes on with what is there" },
	[FINDING_MORE] = { "more", FINDING_CORRUPTION, say_more, restore },
	[FINDING_CANNOT_OPEN] = { "cannot_open", FINDING_FAILURE, say_cannot_open,
	    "run this as the broker's user or as root" },
	[FINDING_TORN] = { "torn_tail", FINDING_NOTE, say_torn, "the broker removes them at its start" },
	[FINDING_BEING_WRITTEN] = { "being_written", FINDING_NOTE, say_being_written, "" },
	[FINDING_FORMAT_ASSUMED] = { "format_assumed", FINDING_NOTE, say_format_assumed, "--format says what it is" },
	[FINDING_EMPTY] = { "empty_segment", FINDING_NOTE, say_empty, move_away },
	[FINDING_FOREIGN] = { "foreign", FINDING_NOTE, say_foreign, move_away },
	[FINDING_LEFTOVER] = { "leftover", FINDING_NOTE, say_leftover, "the broker removes it by itself" },
	[FINDING_CUT_COPY] = { "cut_copy", FINDING_NOTE, say_cut_copy,
	    "logbroker dump shows them; they are yours to delete" },
	[FINDING_WRONG_INDEX] = { "wrong_index", FINDING_NOTE, say_wrong_cache, store_anew },
	[FINDING_UNREADABLE_INDEX] = { "unreadable_index", FINDING_NOTE, say_wrong_cache, "make it readable: a broker that cannot "
	    "read it either reads the segment instead, but keeps a log closed from whose end something is to be cut" },
	[FINDING_WRONG_LIST] = { "wrong_list", FINDING_NOTE, say_wrong_cache, store_anew },
};

const char *
finding_name(enum finding_kind kind)
{
	return kinds[kind].name;
}

enum finding_weight
finding_weight(enum finding_kind kind)
{
	return kinds[kind].weight;
}

const char *
finding_weight_name(enum finding_weight weight)
{
	static const char *const names[] = { "note", "failure", "corruption" };

	return names[weight];
}

void
finding_text(const struct finding *finding, char *to)
{
	to[0] = '\0';
	kinds[finding->kind].say(finding, to);
}

const char *
finding_remedy(const struct finding *finding)
{
	if (finding->kind == FINDING_CANNOT_OPEN && finding->error != EACCES && finding->error != EPERM)
		return "";
	if (finding->last && kinds[finding->kind].remedy == restore)
		return "restore the file from a copy before the broker starts again: it cuts the log here, and copies aside "
		    "what it cuts";
	return kinds[finding->kind].remedy;
}
