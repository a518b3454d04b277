/*
 * `logbroker dump`: the records of segment files one by one, good ones and what stands between them; or their payloads
 * alone, for another program. Changes nothing; a broker may be at work.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/examine.h"
#include "client/offline.h"
#include "client/options.h"
#include "client/output.h"
#include "client/text.h"
#include "client/tool.h"
#include "common/bytes.h"
#include "worker/listing.h"
#include "worker/segment.h"
#include "worker/walk.h"

struct dump {
	const struct options *options;
	struct output output;
	int64_t left;			/* records that may still be shown */
	int64_t shown;			/* records and bad places */
	int exit_code;
};

/* One file that is shown. */
struct file {
	char path[2 * PATH_MAX];
	int fd;
	enum record_format format;
	int64_t offset;			/* of the next record; -1 = nobody knows */
	int64_t next;			/* base of the segment behind it; -1 = it is the last one, or no segment */
	const struct offline_log *log;	/* NULL: no segment of a log */
	int64_t base;
	bool told;			/* its name has been shown */
	bool judged;			/* the last segment: its end has been examined, with this result: */
	bool corrupt;
	bool torn;
};

static bool
is_over(const struct dump *dump)
{
	return dump->left == 0 || dump->output.closed || dump->output.failed;
}

static void
fail(struct dump *dump, int exit_code)
{
	if (dump->exit_code != TOOL_CORRUPTION && exit_code != TOOL_DONE)
		dump->exit_code = exit_code;
}

/* ---- one line ---- */

static void
begin_file(struct dump *dump, struct file *file)
{
	struct output *output = &dump->output;

	if (!file->told && dump->options->output == OPTIONS_OUTPUT_TEXT) {
		text_put_escaped(output, file->path, strlen(file->path));
		output_print(output, " (%s)\n%12s %12s %9s %9s\n", record_format_name(file->format), "OFFSET",
		    "POSITION", "LENGTH", "SUM");
	}
	file->told = true;
}

static void
begin_line(struct dump *dump, struct file *file, const char *type)
{
	struct output *output = &dump->output;

	if (dump->options->output == OPTIONS_OUTPUT_JSON && dump->shown > 0)
		output_print(output, ",");
	dump->shown++;
	begin_file(dump, file);
	if (dump->options->output == OPTIONS_OUTPUT_TEXT)
		return;
	output_print(output, "{\"type\":\"%s\",\"file\":", type);
	text_put_json(output, file->path, strlen(file->path));
	if (file->offset != -1)
		output_print(output, ",\"offset\":%" PRId64, file->offset);
}

static void
end_line(struct dump *dump)
{
	static const char *const ends[] = { [OPTIONS_OUTPUT_TEXT] = "\n", [OPTIONS_OUTPUT_JSON] = "}",
		[OPTIONS_OUTPUT_JSONL] = "}\n" };

	output_print(&dump->output, "%s", ends[dump->options->output]);
}

static void
put_offset_text(struct output *output, int64_t offset)
{
	if (offset == -1)
		output_print(output, "%12s", "?");
	else
		output_print(output, "%12" PRId64, offset);
}

static void
put_record_text(struct dump *dump, const struct file *file, const struct walk_step *step)
{
	struct output *output = &dump->output;
	size_t header = record_header_bytes(file->format);

	put_offset_text(output, file->offset);
	output_print(output, " %12" PRId64 " %9" PRId64, step->position, step->bytes - (int64_t)header);
	if (file->format == RECORD_CRC32C)
		output_print(output, "  %08" PRIx32, bytes_get_u32(step->record + 4));
	else
		output_print(output, " %9s", "-");
	if (!dump->options->payload)
		return;
	output_print(output, "  \"");
	text_put_escaped(output, step->record + header, (size_t)step->bytes - header);
	output_print(output, "\"");
}

static void
put_record_json(struct dump *dump, const struct file *file, const struct walk_step *step)
{
	struct output *output = &dump->output;
	size_t header = record_header_bytes(file->format);

	output_print(output, ",\"position\":%" PRId64 ",\"length\":%" PRId64, step->position,
	    step->bytes - (int64_t)header);
	if (file->format == RECORD_CRC32C)
		output_print(output, ",\"crc32c\":\"%08" PRIx32 "\"", bytes_get_u32(step->record + 4));
	if (dump->options->payload) {
		output_put(output, ",", 1);
		text_put_payload(output, step->record + header, (size_t)step->bytes - header);
	}
}

static void
put_framed(struct dump *dump, const struct file *file, const struct walk_step *step)
{
	size_t header = record_header_bytes(file->format), size = (size_t)step->bytes - header;
	uint8_t *room = output_room(&dump->output, size + FRAMING_OVERHEAD_BYTES);

	if (room != NULL)
		output_advance(&dump->output,
		    (size_t)(framing_put(room, dump->options->framing, step->record + header, size) - room));
}

static void
put_record(struct dump *dump, struct file *file, const struct walk_step *step)
{
	dump->left--;
	if (dump->options->framed) {
		put_framed(dump, file, step);
		return;
	}
	begin_line(dump, file, "record");
	if (dump->options->output == OPTIONS_OUTPUT_TEXT)
		put_record_text(dump, file, step);
	else
		put_record_json(dump, file, step);
	end_line(dump);
}

/* A place without a record: in the text's columns, or by what follows `word` in JSON. Among payloads it is talk. */
static void
put_bad(struct dump *dump, struct file *file, const struct walk_step *step, const char *word)
{
	struct output *output = &dump->output;
	const char *what = step->error != 0 ? strerror(step->error) : record_verdict_text(step->verdict);

	if (dump->options->framed) {
		tool_say("%s: position %" PRId64 ": %s: %" PRId64 " bytes (%s) left out", file->path, step->position,
		    word, step->bytes, what);
		return;
	}
	begin_line(dump, file, word);
	if (dump->options->output == OPTIONS_OUTPUT_TEXT) {
		put_offset_text(output, file->offset);
		output_print(output, " %12" PRId64 " %9s %9s  %s: %" PRId64 " bytes (%s)", step->position, "-", "-",
		    word, step->bytes, what);
	} else {
		output_print(output, ",\"position\":%" PRId64 ",\"bytes\":%" PRId64 ",\"reason\":", step->position,
		    step->bytes);
		text_put_json(output, what, strlen(what));
	}
	end_line(dump);
}

/* ---- one file ---- */

static void
note_finding(void *with, const struct finding *finding)
{
	struct file *file = with;

	file->corrupt |= finding_weight(finding->kind) == FINDING_CORRUPTION;
	file->torn |= finding->kind == FINDING_TORN;
}

/* To be examined: a log, with its records' format or -1. */
static struct examine
examination_of(const struct offline_log *log, int format)
{
	return (struct examine){ .dir_fd = log->dir_fd, .format = format, .only = -1, .pause_ms = EXAMINE_PAUSE_MS,
		.running = offline_is_running, .running_with = (void *)(uintptr_t)log };
}

/*
 * The last segment of a log holds something that is no record: damage, a torn end, or what a broker is just writing?
 * Returns 0, or -1 with errno.
 */
static int
judge_last(struct file *file)
{
	struct examine e = examination_of(file->log, file->format);

	e.only = file->base;
	e.found = note_finding;
	e.found_with = file;
	if (file->judged)
		return 0;
	file->judged = true;
	return examine_log(&e);
}

/* How many records does the bad place at `position` of a sealed segment take? -1: nobody knows. */
static int
count_bad(const struct file *file, int64_t position, int64_t *records)
{
	struct look look;

	*records = -1;
	if (file->next == -1)
		return 0;
	if (look_at(&look, file->fd, file->format, file->base, file->next, NULL, NULL) == -1)
		return errno == ENOMEM ? -1 : 0;
	for (int i = 0; i < look.count; i++)
		if (look.found[i].position == position)
			*records = look.found[i].records;
	return 0;
}

/* Are records from `offset` to before `end` to be shown? Also when nobody knows. */
static bool
is_wanted(const struct dump *dump, int64_t offset, int64_t end)
{
	return dump->options->from != OPTIONS_FROM_OFFSET || offset == -1 || end == -1
	    || end > dump->options->from_number;
}

/* Behind the bad place records are shown again. */
static int
pass_bad(struct dump *dump, struct file *file, const struct walk_step *step)
{
	int64_t records = 1, end;

	if (!step->single && file->offset != -1 && count_bad(file, step->position, &records) == -1)
		return -1;
	end = file->offset == -1 || records == -1 ? -1 : file->offset + records;
	if (is_wanted(dump, file->offset, end)) {
		fail(dump, TOOL_CORRUPTION);
		put_bad(dump, file, step, "bad");
	}
	file->offset = end;
	return 0;
}

/* Returns 1 when the file goes on behind the bad place, 0 when it has ended, -1 with errno. */
static int
meet_bad(struct dump *dump, struct file *file, const struct walk_step *step)
{
	bool zeros = step->last && step->verdict == RECORD_END && step->content_end == step->position;

	if (file->log == NULL || file->next != -1)
		return zeros && file->log == NULL ? 0 : pass_bad(dump, file, step) == 0 ? 1 : -1;
	if (zeros)
		return 0;
	if (judge_last(file) == -1)
		return -1;
	if (file->corrupt)
		return pass_bad(dump, file, step) == 0 ? 1 : -1;
	if (file->torn)
		put_bad(dump, file, step, "torn");
	return 0;
}

static int
show_steps(struct dump *dump, struct file *file, struct walk *walk)
{
	int going = 1;

	while (going == 1 && !is_over(dump)) {
		struct walk_step step;

		if (walk_next(walk, &step) == -1)
			return -1;
		if (step.kind == WALK_END)
			break;
		if (step.kind == WALK_BAD) {
			going = meet_bad(dump, file, &step);
			continue;
		}
		if (is_wanted(dump, file->offset, file->offset + 1))
			put_record(dump, file, &step);
		file->offset += file->offset != -1;
	}
	return going == -1 ? -1 : 0;
}

static void
show_file(struct dump *dump, struct file *file)
{
	struct walk walk;
	int64_t file_bytes = segment_file_bytes(file->fd);
	int done = -1;

	if (file_bytes != -1 && walk_open(&walk, file->fd, file->format, 0, file_bytes) == 0) {
		done = show_steps(dump, file, &walk);
		walk_close(&walk);
	}
	if (done == -1) {
		tool_say("%s: cannot be read: %s", file->path, strerror(errno));
		fail(dump, TOOL_INTERNAL);
	}
}

/* ---- segments and logs ---- */

/* One that has gone since it was listed is retention's. */
static void
dump_segment(struct dump *dump, const struct offline_log *log, enum record_format format, int64_t base, int64_t next)
{
	struct file file = { .format = format, .offset = base, .next = next, .log = log, .base = base };
	char name[SEGMENT_NAME_BYTES];

	segment_name(name, base);
	snprintf(file.path, sizeof(file.path), "%s/%s", log->path, name);
	file.fd = segment_open_file(log->dir_fd, base, O_RDONLY);
	if (file.fd == -1) {
		if (errno == ENOENT)
			return;
		tool_say("%s: cannot be opened: %s", file.path, strerror(errno));
		fail(dump, TOOL_INTERNAL);
		return;
	}
	show_file(dump, &file);
	close(file.fd);
}

static int64_t
next_with_content(const struct listing *listing, size_t at)
{
	for (size_t i = at + 1; i < listing->count; i++)
		if (listing->segments[i].bytes > 0)
			return listing->segments[i].base;
	return -1;
}

static void
ignore_entry(void *with, enum listing_kind kind, const char *entry, const char *why)
{
	(void)with;
	(void)kind;
	(void)entry;
	(void)why;
}

static void
dump_log(struct dump *dump, const struct offline *offline, const struct offline_log *log)
{
	int64_t from = dump->options->from == OPTIONS_FROM_OFFSET ? dump->options->from_number : 0;
	struct examine e = examination_of(log, dump->options->format);
	struct listing listing;

	if (examine_format(&e) == -1
	    || listing_read_noting(&listing, log->dir_fd, ignore_entry, NULL) == -1) {
		tool_say("%s: cannot be read: %s", log->path, strerror(errno));
		fail(dump, TOOL_INTERNAL);
		return;
	}
	for (size_t i = 0; i < listing.count && !is_over(dump); i++) {
		const struct listing_segment *segment = &listing.segments[i];
		int64_t next = next_with_content(&listing, i);

		if (segment->bytes > 0 && (offline->base == -1 || offline->base == segment->base)
		    && (next == -1 || next > from))
			dump_segment(dump, log, e.record_format, segment->base, next);
	}
	listing_free(&listing);
}

/* ---- other files ---- */

/* The format of a file that is no segment: by the log it lies beside, or by itself. */
static int
decide_format(const struct dump *dump, const struct offline *offline, const struct offline_log *log, struct file *file)
{
	const char *slash = strrchr(offline->path, '/');
	bool told = false;
	int result = 0;

	if (segment_parse_base(slash == NULL ? offline->path : slash + 1) != -1) {
		struct examine e = examination_of(log, dump->options->format);

		result = examine_format(&e);
		file->format = e.record_format;
		told = e.format_told;
	}
	if (result == 0 && !told)
		result = examine_file_format(file->fd, dump->options->format, &file->format, &told);
	if (result == 0 && !told) {
		tool_say("%s: nothing in it tells that it holds records; --format crc32c or --format plain says so",
		    offline->path);
		return TOOL_USAGE;
	}
	if (result == -1)
		tool_say("%s: cannot be read: %s", offline->path, strerror(errno));
	return result == -1 ? TOOL_INTERNAL : TOOL_DONE;
}

static void
dump_file(struct dump *dump, const struct offline *offline, const struct offline_log *log)
{
	struct file file = { .offset = -1, .next = -1 };
	int result;

	snprintf(file.path, sizeof(file.path), "%s", offline->path);
	if (dump->options->from == OPTIONS_FROM_OFFSET) {
		tool_say("%s: nothing tells the offsets of the records in it: --from is of no use here", file.path);
		fail(dump, TOOL_USAGE);
		return;
	}
	file.fd = open(offline->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (file.fd == -1) {
		tool_say("%s: cannot be opened: %s", file.path, strerror(errno));
		fail(dump, TOOL_INTERNAL);
		return;
	}
	result = decide_format(dump, offline, log, &file);
	if (result == TOOL_DONE)
		show_file(dump, &file);
	fail(dump, result);
	close(file.fd);
}

static void
dump_path(struct dump *dump, const char *path)
{
	struct offline offline;
	int result = offline_open(&offline, path);

	fail(dump, result);
	for (size_t i = 0; result == TOOL_DONE && i < offline_logs(&offline) && !is_over(dump); i++) {
		struct offline_log log;
		int opened = offline_open_log(&offline, i, &log);

		fail(dump, opened);
		if (opened == TOOL_DONE && offline.kind == OFFLINE_FILE)
			dump_file(dump, &offline, &log);
		else if (opened == TOOL_DONE)
			dump_log(dump, &offline, &log);
		offline_close_log(&log);
	}
	offline_free(&offline);
}

int
verb_dump(const struct options *options)
{
	struct dump dump = { .options = options, .left = options->count };

	if (output_open(&dump.output, STDOUT_FILENO) != 0)
		return TOOL_INTERNAL;
	if (options->output == OPTIONS_OUTPUT_JSON)
		output_print(&dump.output, "{\"records\":[");
	for (int32_t i = 0; i < options->operand_count && !is_over(&dump); i++)
		dump_path(&dump, options->operands[i]);
	if (options->output == OPTIONS_OUTPUT_JSON)
		output_print(&dump.output, "]}\n");
	output_flush(&dump.output);
	if (dump.output.failed)
		fail(&dump, TOOL_INTERNAL);
	output_free(&dump.output);
	return dump.exit_code;
}
