/* From the parts of the supervisor to the view that the pages render; see status.h. */
#include "supervisor/status.h"

#include <event2/buffer.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/clock.h"

enum { DATA_INTERVAL_S = 1 };

int
status_init(struct status *status)
{
	size_t count = (size_t)status->topics->group_count;

	status->started_ns = clock_now_ns();
	status->workers = calloc(count, sizeof(*status->workers));
	status->board_list = calloc(count, sizeof(*status->board_list));
	if (status->workers == NULL || status->board_list == NULL)
		return -1;
	for (size_t i = 0; i < count; i++)
		status->board_list[i] = &status->boards->maps[i];
	return 0;
}

void
status_free(struct status *status)
{
	free(status->workers);
	status->workers = NULL;
	free(status->board_list);
	status->board_list = NULL;
	rates_free(&status->rates);
}

/*
 * On an open descriptor there is no path to look up, and local file systems answer from memory: the disk is not waited
 * for. At most once a second all the same.
 */
static int64_t
data_free_bytes(struct status *status, int64_t now_ns)
{
	struct statvfs fs;

	if (status->data_asked_ns != 0 && now_ns - status->data_asked_ns < DATA_INTERVAL_S * (int64_t)CLOCK_NS_PER_S)
		return status->data_free_bytes;
	status->data_asked_ns = now_ns;
	if (fstatvfs(status->data_descriptor, &fs) != 0)
		status->data_free_bytes = -1;
	else
		status->data_free_bytes = (int64_t)(fs.f_bavail * fs.f_frsize);
	return status->data_free_bytes;
}

/* The kernel's own word, in memory: no path is looked up. */
static bool
runs_old_program(pid_t pid)
{
	static const char mark[] = " (deleted)";
	const size_t mark_length = sizeof(mark) - 1;
	char link[64], program[PATH_MAX];
	ssize_t length;

	if (pid == 0)
		return false;
	snprintf(link, sizeof(link), "/proc/%ld/exe", (long)pid);
	length = readlink(link, program, sizeof(program));
	return length > (ssize_t)mark_length && memcmp(program + length - mark_length, mark, mark_length) == 0;
}

static void
collect_worker(const struct status *status, int32_t number)
{
	const struct child *child = crew_child(status->crew, number);
	const struct restart *restart = child_restart(child);
	const struct child_restart_told *last = child_last_restart(child);

	status->workers[number] = (struct pages_worker){
		.state = restart->state,
		.failing = restart_failing(restart),
		.failures = restart->failures,
		.restarts = child_restarts(child),
		.board = &status->boards->maps[number],
		.pid = child_pid(child),
		.replacement = child_replacement(child)->state,
		.takeover_ns = child_takeover_ns(child),
		.connections = child_connections(child),
		.connections_ended = child_connections_ended(child),
		.old_settings = child_outdated(child),
		.old_program = runs_old_program(child_pid(child)),
		.restarted = last->number > 0,
		.last_reason = last->reason,
		.last_wall_ms = last->wall_ms,
		.last_pause_ns = last->pause_ns,
	};
}

void
status_collect(struct status *status, struct pages_view *view)
{
	const struct handover_counts *handover = handover_counts(status->handover);
	const struct parking_counts *parking = parking_counts(status->parking);
	int64_t now_ns = clock_now_ns();

	for (int32_t i = 0; i < crew_count(status->crew); i++)
		collect_worker(status, i);
	*view = (struct pages_view){
		.version = PACKAGE_VERSION,
		.pid = getpid(),
		.now_ns = now_ns,
		.wall_ms = clock_wall_ms(),
		.started_ns = status->started_ns,
		.ready = crew_ready(status->crew),
		.stopping = crew_stopping(status->crew),
		.data_free_bytes = data_free_bytes(status, now_ns),
		.connections = handover_connections(status->handover),
		.connections_parked = parking->waiting,
		.connections_accepted = handover->accepted,
		.connections_refused = handover->refused,
		.parked_timed_out = parking->timed_out,
		.parked_hung_up = parking->hung_up,
		.dropped = handover->dropped,
		.accept_pauses = listener_pauses(status->listener),
		.topics = status->topics,
		.workers = status->workers,
	};
}

static int
render_metrics(void *context, struct evbuffer *to)
{
	struct pages_view view;

	status_collect(context, &view);
	return pages_metrics(&view, to) == 0 ? 200 : -1;
}

static int
render_health(void *context, struct evbuffer *to)
{
	struct pages_view view;

	status_collect(context, &view);
	return pages_health(&view, to);
}

static int
render_ready(void *context, struct evbuffer *to)
{
	struct pages_view view;

	status_collect(context, &view);
	return pages_ready(&view, to);
}

static int
render_json(void *context, struct evbuffer *to)
{
	struct pages_view view;

	status_collect(context, &view);
	return pages_status_json(&view, to) == 0 ? 200 : -1;
}

/* Without memory for a sample there are no rates. */
static int
render_text(void *context, struct evbuffer *to)
{
	struct status *status = context;
	struct pages_view view;
	bool sampled;

	status_collect(status, &view);
	sampled = rates_take(&status->rates, status->topics, status->board_list, view.now_ns) == 0;
	return pages_status_text(&view, sampled ? &status->rates : NULL, to) == 0 ? 200 : -1;
}

/* Where the live page will be. */
static int
render_root(void *context, struct evbuffer *to)
{
	(void)context;
	return evbuffer_add_printf(to, "the live page is not supported in this version; /status shows tables, /status.json, /metrics, "
	    "/healthz and /readyz are for programs\n") < 0 ? -1 : 404;
}

const struct http_page *
status_pages(void)
{
	static const struct http_page pages[] = {
		{ "/", "text/plain; charset=utf-8", render_root },
		{ "/metrics", "text/plain; version=0.0.4; charset=utf-8", render_metrics },
		{ "/healthz", "text/plain; charset=utf-8", render_health },
		{ "/readyz", "text/plain; charset=utf-8", render_ready },
		{ "/status", "text/plain; charset=utf-8", render_text },
		{ "/status.json", "application/json", render_json },
		{ NULL, NULL, NULL },
	};

	return pages;
}
