/*
 * Telling of logs.
 *
 *   text    a line for each finding, then one for each log, and one for all when there are several
 *   json    {"partitions":[{"path":..., "findings":[...], "result":..., counts}, ...], "result":...}
 *   jsonl   {"type":"finding",...} lines, then a {"type":"partition",...} line, for each log
 */
#include "client/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/text.h"
#include "client/tool.h"
#include "common/clock.h"

enum { SHOW_INTERVAL_MS = 200 };

/* How much one exit code outweighs another. */
static int
rank(int exit_code)
{
	static const int ascending[] = { TOOL_DONE, TOOL_BUSY, TOOL_USAGE, TOOL_INTERNAL, TOOL_CORRUPTION };
	int place = 0;

	while (ascending[place] != exit_code)
		place++;
	return place;
}

void
report_failure(struct report *report, int exit_code)
{
	if (rank(exit_code) > rank(report->exit_code))
		report->exit_code = exit_code;
}

/* ---- progress ---- */

static void
hide_progress(struct report *report)
{
	if (report->shown_ns != 0)
		fprintf(stderr, "\r\033[K");
	report->shown_ns = 0;
}

void
report_progress(void *with, int64_t bytes)
{
	struct report *report = with;
	int64_t now = clock_now_ns();

	report->read_bytes += bytes;
	if (!report->show_bytes || now - report->shown_ns < SHOW_INTERVAL_MS * CLOCK_NS_PER_MS)
		return;
	report->shown_ns = now;
	fprintf(stderr, "\r\033[Klogbroker: %.1f MiB read", (double)report->read_bytes / (1024 * 1024));
}

/* ---- findings ---- */

static void
put_text(struct output *output, const char *text)
{
	output_put(output, text, strlen(text));
}

static void
put_json_text(struct output *output, const char *key, const char *text)
{
	output_print(output, ",\"%s\":", key);
	text_put_json(output, text, strlen(text));
}

/* Not at all when nobody knows it. */
static void
put_json_number(struct output *output, const char *key, int64_t number)
{
	if (number != -1)
		output_print(output, ",\"%s\":%" PRId64, key, number);
}

static void
put_finding_text(struct report *report, const struct finding *finding)
{
	struct output *output = &report->output;
	const char *remedy = finding_remedy(finding);
	char text[FINDING_TEXT_BYTES];

	finding_text(finding, text);
	output_print(output, "%s: ", finding_weight_name(finding_weight(finding->kind)));
	text_put_escaped(output, report->path, strlen(report->path));
	put_text(output, finding->name[0] == '\0' ? "" : "/");
	text_put_escaped(output, finding->name, strlen(finding->name));
	output_print(output, ": %s%s%s\n", text, remedy[0] == '\0' ? "" : "; ", remedy);
}

static void
put_finding_json(struct report *report, const struct finding *finding)
{
	struct output *output = &report->output;
	char text[FINDING_TEXT_BYTES];

	finding_text(finding, text);
	if (report->form == OPTIONS_OUTPUT_JSON)
		output_print(output, "%s{", report->in_log > 0 ? "," : "");
	else
		output_print(output, "{\"type\":\"finding\",");
	output_print(output, "\"kind\":\"%s\",\"weight\":\"%s\"", finding_name(finding->kind),
	    finding_weight_name(finding_weight(finding->kind)));
	if (report->form == OPTIONS_OUTPUT_JSONL)
		put_json_text(output, "path", report->path);
	put_json_text(output, "file", finding->name);
	put_json_number(output, "position", finding->position);
	put_json_number(output, "offset", finding->offset);
	put_json_number(output, "bytes", finding->bytes);
	put_json_number(output, "records", finding->records);
	put_json_number(output, "next_base", finding->other);
	put_json_text(output, "text", text);
	put_json_text(output, "to_do", finding_remedy(finding));
	output_print(output, "}%s", report->form == OPTIONS_OUTPUT_JSONL ? "\n" : "");
}

void
report_finding(void *with, const struct finding *finding)
{
	struct report *report = with;

	hide_progress(report);
	if (report->form == OPTIONS_OUTPUT_TEXT)
		put_finding_text(report, finding);
	else
		put_finding_json(report, finding);
	report->in_log++;
	output_flush(&report->output);
}

/* ---- logs ---- */

void
report_log_begin(struct report *report, const struct offline_log *log)
{
	report->path = log->path;
	report->in_log = 0;
	if (report->form == OPTIONS_OUTPUT_JSON) {
		output_print(&report->output, "%s{\"path\":", report->logs > 0 ? "," : "");
		text_put_json(&report->output, log->path, strlen(log->path));
		output_print(&report->output, ",\"findings\":[");
	}
	report->logs++;
}

static const char *
result_of(const struct examine *e)
{
	if (e->findings[FINDING_CORRUPTION] > 0)
		return "corrupt";
	return e->findings[FINDING_FAILURE] > 0 ? "incomplete" : "ok";
}

static void
put_plan_text(struct report *report, const struct report_plan *plan)
{
	struct output *output = &report->output;

	output_print(output, "%s: ", plan->done ? "repaired" : "plan");
	text_put_escaped(output, report->path, strlen(report->path));
	output_print(output, "/%s: cut %" PRId64 " bytes from position %" PRId64 ", offset %" PRId64, plan->file,
	    plan->bytes, plan->position, plan->offset);
	if (plan->copy != NULL)
		output_print(output, "; they are in %s beside it", plan->copy);
	else
		output_print(output, " and copy them aside (--apply does it)");
	put_text(output, "\n");
}

static void
put_log_text(struct report *report, const struct examine *e, bool running)
{
	struct output *output = &report->output;

	text_put_escaped(output, report->path, strlen(report->path));
	output_print(output, ": %s: %" PRId64 " segment%s, %" PRId64 " record%s, %" PRId64 " bytes", result_of(e),
	    e->segments, e->segments == 1 ? "" : "s", e->records, e->records == 1 ? "" : "s", e->bytes);
	if (e->first != -1 && e->end != -1)
		output_print(output, ", offsets %" PRId64 " to before %" PRId64, e->first, e->end);
	if (e->format_told)
		output_print(output, ", %s", record_format_name(e->record_format));
	if (e->format_told && e->record_format == RECORD_PLAIN)
		put_text(output, " (no sums: only lengths could be checked)");
	output_print(output, "%s\n", running ? ", a broker is at work" : "");
}

static void
put_plan_json(struct output *output, const struct report_plan *plan)
{
	output_print(output, ",\"plan\":{\"file\":\"%s\",\"position\":%" PRId64 ",\"offset\":%" PRId64, plan->file,
	    plan->position, plan->offset);
	put_json_number(output, "bytes", plan->bytes);
	if (plan->copy != NULL)
		put_json_text(output, "copy", plan->copy);
	output_print(output, ",\"applied\":%s}", plan->done ? "true" : "false");
}

static void
put_log_json(struct report *report, const struct examine *e, bool running, const struct report_plan *plan)
{
	struct output *output = &report->output;

	if (report->form == OPTIONS_OUTPUT_JSON) {
		put_text(output, "]");
	} else {
		put_text(output, "{\"type\":\"partition\"");
		put_json_text(output, "path", report->path);
	}
	put_json_text(output, "result", result_of(e));
	if (e->format_told)
		put_json_text(output, "record_format", record_format_name(e->record_format));
	put_json_number(output, "segments", e->segments);
	put_json_number(output, "records", e->records);
	put_json_number(output, "bytes", e->bytes);
	put_json_number(output, "first_offset", e->first);
	put_json_number(output, "end_offset", e->end);
	put_json_number(output, "torn_bytes", e->last.base == -1 ? 0 : e->last.torn_bytes);
	put_json_number(output, "corruptions", e->findings[FINDING_CORRUPTION]);
	put_json_number(output, "failures", e->findings[FINDING_FAILURE]);
	put_json_number(output, "notes", e->findings[FINDING_NOTE]);
	output_print(output, ",\"broker_running\":%s", running ? "true" : "false");
	if (plan != NULL)
		put_plan_json(output, plan);
	output_print(output, "}%s", report->form == OPTIONS_OUTPUT_JSONL ? "\n" : "");
}

void
report_log_end(struct report *report, const struct examine *e, bool running, const struct report_plan *plan)
{
	hide_progress(report);
	if (report->form != OPTIONS_OUTPUT_TEXT) {
		put_log_json(report, e, running, plan);
	} else {
		if (plan != NULL)
			put_plan_text(report, plan);
		put_log_text(report, e, running);
	}
	report->corrupt += e->findings[FINDING_CORRUPTION] > 0;
	report->failed += e->findings[FINDING_CORRUPTION] == 0 && e->findings[FINDING_FAILURE] > 0;
	if (e->findings[FINDING_CORRUPTION] > 0)
		report_failure(report, TOOL_CORRUPTION);
	if (e->findings[FINDING_FAILURE] > 0)
		report_failure(report, TOOL_INTERNAL);
	output_flush(&report->output);
}

/* ---- all of them ---- */

static int
open_report(struct report *report, enum options_output form)
{
	*report = (struct report){ .form = form, .show_bytes = isatty(STDERR_FILENO) == 1 };
	if (output_open(&report->output, STDOUT_FILENO) != 0)
		return -1;
	if (form == OPTIONS_OUTPUT_JSON)
		put_text(&report->output, "{\"partitions\":[");
	return 0;
}

static int
close_report(struct report *report)
{
	struct output *output = &report->output;

	hide_progress(report);
	if (report->form == OPTIONS_OUTPUT_JSON)
		output_print(output, "],\"result\":\"%s\"}\n", report->corrupt > 0 ? "corrupt" :
		    report->exit_code != TOOL_DONE ? "incomplete" : "ok");
	else if (report->form == OPTIONS_OUTPUT_TEXT && report->logs > 1)
		output_print(output, "%" PRId64 " partitions: %" PRId64 " corrupt, %" PRId64 " that could not be read in "
		    "full\n", report->logs, report->corrupt, report->failed);
	output_flush(output);
	if (output->failed)
		report_failure(report, TOOL_INTERNAL);
	output_free(output);
	return report->exit_code;
}

/* Nobody listens any more, or nothing can be written. */
static bool
is_over(const struct report *report)
{
	return report->output.closed || report->output.failed;
}

static void
work_on_path(struct report *report, const struct options *options, const char *path, report_work *work)
{
	struct offline offline;
	int result = offline_open(&offline, path);

	if (result == TOOL_DONE && offline.kind == OFFLINE_FILE) {
		tool_say("%s: not the name of a segment (20 digits and .log); logbroker dump shows what is in it",
		    path);
		result = TOOL_USAGE;
	}
	report_failure(report, result);
	for (size_t i = 0; result == TOOL_DONE && i < offline_logs(&offline) && !is_over(report); i++) {
		struct offline_log log;
		int opened = offline_open_log(&offline, i, &log);

		report_failure(report, opened);
		if (opened == TOOL_DONE)
			work(report, options, &offline, &log);
		offline_close_log(&log);
	}
	offline_free(&offline);
}

int
report_logs(const struct options *options, report_work *work)
{
	struct report report;

	if (open_report(&report, options->output) == -1)
		return TOOL_INTERNAL;
	for (int32_t i = 0; i < options->operand_count && !is_over(&report); i++)
		work_on_path(&report, options, options->operands[i], work);
	return close_report(&report);
}
