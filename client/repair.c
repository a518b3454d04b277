/*
 * `logbroker repair`: cuts a torn tail off a log's last segment, as the broker's start would, and copies aside what it
 * cuts. Without --apply only its plan is shown. Whatever else is wrong is told, and left as it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "client/examine.h"
#include "client/offline.h"
#include "client/options.h"
#include "client/report.h"
#include "client/tool.h"
#include "worker/cut.h"
#include "worker/index_file.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

static bool
cannot(const struct offline_log *log, const char *file, const char *what)
{
	tool_say("%s/%s: cannot %s: %s", log->path, file, what, strerror(errno));
	return false;
}

/*
 * An index that is wrong, or may be, could come to fit once the log has grown again, and say of records that they had been forced.
 * So it goes before the cut, durably. One that ends at or ahead of the cut stays right.
 */
static int
remove_wrong_index(int dir_fd, const struct look *last)
{
	if (last->note.kind != FINDING_WRONG_INDEX && last->note.kind != FINDING_UNREADABLE_INDEX)
		return 0;
	return index_file_remove(dir_fd, last->base) == -1 ? -1 : syscalls.fsync(dir_fd);
}

/* In recovery's order: the copy is on disk before anything is cut. */
static bool
cut(const struct offline_log *log, int fd, const struct look *last, const char *file, char *copy)
{
	int64_t end = last->prefix_bytes + last->torn_bytes;

	if (segment_file_bytes(fd) != last->file_bytes) {
		tool_say("%s/%s: changed while it was looked at: another process writes here", log->path, file);
		return false;
	}
	if (cut_copy_aside(log->dir_fd, fd, last->base, last->prefix_bytes, end, copy) == -1)
		return cannot(log, file, "copy aside what is to be cut from it");
	if (remove_wrong_index(log->dir_fd, last) == -1)
		return cannot(log, file, "remove its index");
	if (segment_truncate(fd, last->prefix_bytes) == -1)
		return cannot(log, file, "cut it");
	if (syscalls.fdatasync(fd) == -1)
		return cannot(log, file, "force the cut to disk");
	return true;
}

static bool
apply(const struct offline_log *log, const struct look *last, const char *file, char *copy)
{
	int fd = segment_open_file(log->dir_fd, last->base, O_RDWR);
	bool done;

	if (fd == -1)
		return cannot(log, file, "open it for writing");
	done = cut(log, fd, last, file, copy);
	close(fd);
	return done;
}

/* Nothing is cut off what nothing tells to be a log: a file of another kind has a name like a segment's, perhaps. */
static bool
knows_format(const struct offline_log *log, const struct examine *e)
{
	if (!e->format_told)
		tool_say("%s: nothing in it tells that this is a log; --format crc32c or --format plain says so",
		    log->path);
	return e->format_told;
}

/* What is to be done is done, or planned. */
static void
finish_log(struct report *report, const struct options *options, struct offline_log *log, struct examine *e)
{
	char file[SEGMENT_NAME_BYTES], copy[SEGMENT_NAME_BYTES];
	struct report_plan plan = { .file = file };

	if (e->last.base == -1 || e->last.torn_bytes == 0 || !knows_format(log, e)) {
		report_log_end(report, e, false, NULL);
		return;
	}
	segment_name(file, e->last.base);
	plan.position = e->last.prefix_bytes;
	plan.offset = e->last.prefix_end;
	plan.bytes = e->last.torn_bytes;
	if (options->apply) {
		plan.done = apply(log, &e->last, file, copy);
		plan.copy = plan.done ? copy : NULL;
		report_failure(report, plan.done ? TOOL_DONE : TOOL_INTERNAL);
	}
	report_log_end(report, e, false, &plan);
}

static int
keep_brokers_away(const struct options *options, struct offline_log *log)
{
	char names[256];

	if (options->apply)
		return offline_lock(log);
	if (!offline_is_running(log))
		return TOOL_DONE;
	offline_name_holders(log, names, sizeof(names));
	tool_say("%s: a broker is at work here%s%s; stop it first", log->path, names[0] == '\0' ? "" : ": pid ", names);
	return TOOL_BUSY;
}

static bool
nobody(void *with)
{
	(void)with;
	return false;
}

static void
repair_log(struct report *report, const struct options *options, const struct offline *offline, struct offline_log *log)
{
	struct examine e = { .dir_fd = log->dir_fd, .format = options->format, .only = offline->base, .running = nobody,
		.found = report_finding, .found_with = report, .progress = { report_progress, report } };
	int away = keep_brokers_away(options, log);

	report_failure(report, away);
	if (away != TOOL_DONE)
		return;
	report_log_begin(report, log);
	if (examine_log(&e) == -1) {
		tool_say("%s: cannot be read: %s", log->path, strerror(errno));
		e.findings[FINDING_FAILURE]++;
		e.last.base = -1;
	}
	finish_log(report, options, log, &e);
}

int
verb_repair(const struct options *options)
{
	return report_logs(options, repair_log);
}
