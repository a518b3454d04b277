/*
 * What verify and repair tell of the logs they have looked at, on standard output: as text, as one JSON document, or
 * as JSON lines. Keeps the tool's exit code: the worst of what was told.
 */
#ifndef CLIENT_REPORT_H
#define CLIENT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "client/examine.h"
#include "client/offline.h"
#include "client/options.h"
#include "client/output.h"

struct report {
	enum options_output form;
	struct output output;
	const char *path;	/* of the log that is told of */
	bool show_bytes;	/* standard error is a terminal: it shows how far the work is */
	int64_t read_bytes, shown_ns;
	int64_t logs, corrupt, failed;	/* partitions: all, with corruption, that could not be looked at in full */
	int64_t in_log;		/* findings told of this log */
	int exit_code;
};

/* What repair does or would do to a log's last segment. */
struct report_plan {
	const char *file;
	int64_t position;
	int64_t offset;
	int64_t bytes;
	const char *copy;	/* the name of the copy of what is cut; NULL: not made (yet) */
	bool done;
};

/*
 * Does `work` with every log that the operands name, and tells of it in the form that was asked for. Returns the
 * tool's exit code.
 */
typedef void report_work(struct report *report, const struct options *options, const struct offline *offline,
    struct offline_log *log);
int report_logs(const struct options *options, report_work *work);

/* Something went wrong that has been said already: `exit_code` is the tool's, unless a worse one is. */
void report_failure(struct report *report, int exit_code);

/* A log: first this, then its findings (`report` is a struct report), then what was counted. */
void report_log_begin(struct report *report, const struct offline_log *log);
void report_finding(void *report, const struct finding *finding);
/* `plan` may be NULL: there is none. */
void report_log_end(struct report *report, const struct examine *e, bool running, const struct report_plan *plan);

/* More bytes have been read. `report` is a struct report. */
void report_progress(void *report, int64_t bytes);

#endif
