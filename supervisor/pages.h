/*
 * What the HTTP side shows, as text: from a view that somebody else has collected, and from the boards. Pure rendering
 * into an evbuffer; knows neither HTTP nor processes. Worker boards are not believed: a number is shown, never used.
 */
#ifndef SUPERVISOR_PAGES_H
#define SUPERVISOR_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/board.h"
#include "common/topics.h"
#include "supervisor/replace.h"
#include "supervisor/restart.h"

struct evbuffer;
struct rates;

struct pages_worker {
	enum restart_state state;
	bool failing;
	int failures;		/* in a row */
	const int64_t *restarts;	/* RESTART_REASON_COUNT of them */
	const struct board *board;
	int64_t pid;			/* 0: no process */
	enum replace_state replacement;
	int64_t takeover_ns;		/* CLOCK_MONOTONIC: since when the next process takes over in order; 0: it does not */
	int64_t connections;
	int64_t connections_ended;	/* with its processes, on no board */
	bool old_settings;		/* it was told what is not in force any more */
	bool old_program;		/* the file that it runs has been replaced on disk, or removed */
	bool restarted;			/* then the last time: */
	enum restart_reason last_reason;
	int64_t last_wall_ms;		/* since 1970 */
	int64_t last_pause_ns;		/* -1: it does not serve yet */
};

struct pages_view {
	const char *version;
	int64_t pid;
	int64_t now_ns;			/* CLOCK_MONOTONIC */
	int64_t wall_ms;		/* now, since 1970 */
	int64_t started_ns;		/* CLOCK_MONOTONIC */
	bool ready;
	bool stopping;
	int64_t data_free_bytes;	/* -1 = unknown */
	int64_t connections, connections_parked, connections_accepted, connections_refused;
	int64_t parked_timed_out, parked_hung_up, dropped;
	int64_t accept_pauses;
	const struct topics *topics;
	const struct pages_worker *workers;	/* topics->group_count of them */
};

enum {
	PAGES_MISSED_S = 2,		/* after that, one that should have given a sign of life has not */
	PAGES_SILENT_S = 5,		/* a serving worker whose loop has not turned for so long is reported */
	PAGES_TAKEOVER_S = 5,		/* a planned restart takes milliseconds: it is reported when clients wait for longer */
	PAGES_REASONS_MAX = 100,	/* lines of reasons in /healthz; then their number */
};

/* /metrics, Prometheus' text format 0.0.4. Returns 0, or -1 with errno ENOMEM. */
int pages_metrics(const struct pages_view *view, struct evbuffer *to);

/* /healthz: "ok", or each reason why not, one a line. Returns the HTTP status, 200 or 503, or -1 with errno ENOMEM. */
int pages_health(const struct pages_view *view, struct evbuffer *to);

/* Has every worker that serves turned its loop after `since_ns`? */
bool pages_alive(const struct pages_view *view, int64_t since_ns);

/* The same as /healthz, and a worker that should have turned its loop since then and has not is among the reasons. */
int pages_check(const struct pages_view *view, int64_t since_ns, struct evbuffer *to);

/* /status.json: everything, one object without line breaks. Returns 0, or -1 with errno ENOMEM. */
int pages_status_json(const struct pages_view *view, struct evbuffer *to);

/* /status: the same as tables for people. `rates` has a sample of now, or is NULL. */
int pages_status_text(const struct pages_view *view, const struct rates *rates, struct evbuffer *to);

/* How long ago a worker's loop has turned; -1: not since its start. */
int64_t pages_heartbeat_age_ns(const struct pages_view *view, int32_t number);

/* "open", "closed", ...; of a partition's board. */
const char *pages_partition_state(const struct board_partition *slot);

/* /readyz: 200 "ready", or 503 and why not. */
int pages_ready(const struct pages_view *view, struct evbuffer *to);

#endif
