/*
 * `logbroker verify`: every record of every segment, and that segments follow one another. Changes nothing; a broker
 * may be at work.
 */
#include <errno.h>
#include <string.h>

#include "client/examine.h"
#include "client/offline.h"
#include "client/options.h"
#include "client/report.h"
#include "client/tool.h"

static void
verify_log(struct report *report, const struct options *options, const struct offline *offline, struct offline_log *log)
{
	struct examine e = { .dir_fd = log->dir_fd, .format = options->format, .only = offline->base,
		.pause_ms = EXAMINE_PAUSE_MS, .running = offline_is_running, .running_with = log,
		.found = report_finding, .found_with = report, .progress = { report_progress, report } };

	report_log_begin(report, log);
	if (examine_log(&e) == -1) {
		tool_say("%s: cannot be read: %s", log->path, strerror(errno));
		e.findings[FINDING_FAILURE]++;
	}
	report_log_end(report, &e, offline_is_running(log), NULL);
}

int
verb_verify(const struct options *options)
{
	return report_logs(options, verify_log);
}
