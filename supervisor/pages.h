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
#include "supervisor/restart.h"

struct evbuffer;

struct pages_worker {
	enum restart_state state;
	bool failing;
	int failures;		/* in a row */
	const int64_t *restarts;	/* RESTART_REASON_COUNT of them */
	const struct board *board;
};

struct pages_view {
	const char *version;
	int64_t now_ns;			/* CLOCK_MONOTONIC */
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
	PAGES_SILENT_S = 5,		/* a serving worker whose loop has not turned for so long is reported */
	PAGES_REASONS_MAX = 100,	/* lines of reasons in /healthz; then their number */
};

/* /metrics, Prometheus' text format 0.0.4. Returns 0, or -1 with errno ENOMEM. */
int pages_metrics(const struct pages_view *view, struct evbuffer *to);

/* /healthz: "ok", or each reason why not, one a line. Returns the HTTP status, 200 or 503, or -1 with errno ENOMEM. */
int pages_health(const struct pages_view *view, struct evbuffer *to);

/* /readyz: 200 "ready", or 503 and why not. */
int pages_ready(const struct pages_view *view, struct evbuffer *to);

#endif
