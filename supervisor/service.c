/* Looking once a second, or oftener for the watchdog's sake; see service.h. */
#include "supervisor/service.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

enum { STATUS_BYTES = 256, MIB = 1024 * 1024 };

struct service {
	struct event *timer;
	struct notify *notify;
	const struct crew *crew;
	const struct handover *handover;
	const struct boards *boards;
	int64_t interval_ns;		/* between two looks */
	int64_t fed_ns;			/* the watchdog; 0 = not yet */
	int64_t told_ns;		/* the status */
	int64_t advanced;		/* how far the start had come at most */
	char status[STATUS_BYTES];	/* as told */
};

/* As one look finds it. */
struct state {
	int64_t now_ns;
	int32_t serving, silent;	/* workers; the silent ones are among the serving ones */
	int32_t open, failed, partitions;
	int64_t seen;			/* partitions that have been tried */
	int64_t recovered_bytes;
};

/* ---- looking ---- */

/* One that is about to end has cleared its heartbeat. */
static bool
silent(const struct board *board, int64_t now_ns)
{
	int64_t heartbeat_ns = board_get(&board->worker->heartbeat_ns);

	return heartbeat_ns > 0 && heartbeat_ns < now_ns - SERVICE_SILENT_S * (int64_t)CLOCK_NS_PER_S;
}

/* While its worker is away, a partition is as it was left on the board, and not open. */
static void
add_partitions(struct state *state, const struct board *board, bool away)
{
	state->partitions += board->slot_count;
	for (int32_t i = 0; i < board->slot_count; i++) {
		int32_t is = atomic_load_explicit(&board->slots[i].state, memory_order_acquire);

		state->seen += is != BOARD_NEVER_OPENED;
		state->open += is == BOARD_OPEN && !away;
		state->failed += is == BOARD_CLOSED || is == BOARD_FAILED;
	}
}

static struct state
look(const struct service *service)
{
	struct state state = { .now_ns = clock_now_ns() };

	for (int32_t i = 0; i < crew_count(service->crew); i++) {
		const struct child *child = crew_child(service->crew, i);
		const struct board *board = &service->boards->maps[i];
		bool serving = child_serving(child);

		state.serving += serving;
		state.silent += serving && silent(board, state.now_ns);
		add_partitions(&state, board, !serving && child_restart(child)->state != RESTART_OPENING);
		state.recovered_bytes += board_get(&board->worker->recovered_bytes);
	}
	return state;
}

/* ---- telling ---- */

static void
describe(const struct service *service, const struct state *state, char *text)
{
	const char *stage = crew_stopping(service->crew) ? "stopping: " : crew_ready(service->crew) ? "" : "starting: ";
	int64_t connections = handover_connections(service->handover);
	int n;

	n = snprintf(text, STATUS_BYTES, "%s%" PRId32 " of %" PRId32 " workers serving, %" PRId32 " of %" PRId32
	    " partitions open, %" PRId32 " failed, %" PRId64 " connection%s", stage, state->serving,
	    crew_count(service->crew), state->open, state->partitions, state->failed, connections,
	    connections == 1 ? "" : "s");
	if (state->silent > 0)
		n += snprintf(text + n, STATUS_BYTES - (size_t)n, "; without a sign of life: %" PRId32, state->silent);
	if (!crew_ready(service->crew) && state->recovered_bytes >= MIB)
		snprintf(text + n, STATUS_BYTES - (size_t)n, "; %" PRId64 " MiB of logs read",
		    state->recovered_bytes / MIB);
}

static void
tell_status(struct service *service, const struct state *state)
{
	char text[STATUS_BYTES];

	if (service->told_ns != 0 && state->now_ns - service->told_ns < CLOCK_NS_PER_S)
		return;
	describe(service, state, text);
	if (strcmp(text, service->status) == 0 || !notify_status(service->notify, text))
		return;
	memcpy(service->status, text, sizeof(text));
	service->told_ns = state->now_ns;
}

/* When the next look would come behind half of the time. */
static void
feed_watchdog(struct service *service, const struct state *state)
{
	int64_t half_ns = service->notify->watchdog_ns / 2;

	if (half_ns == 0 || state->silent > 0)
		return;
	if (service->fed_ns != 0 && state->now_ns - service->fed_ns + service->interval_ns <= half_ns)
		return;
	if (notify_watchdog(service->notify))
		service->fed_ns = state->now_ns;
}

/*
 * Only what has got further counts: bytes of logs that were read, partitions that have been opened or given up. A loop
 * that turns beside a disk that hangs does not, nor a worker that dies and begins again.
 */
static void
extend_start(struct service *service, const struct state *state)
{
	int64_t advanced = state->recovered_bytes + state->seen;

	if (crew_ready(service->crew) || crew_stopping(service->crew) || advanced <= service->advanced)
		return;
	service->advanced = advanced;
	notify_extend(service->notify, SERVICE_EXTEND_S * (int64_t)CLOCK_NS_PER_S);
}

void
service_look(struct service *service)
{
	struct state state;

	if (!notify_wanted(service->notify))
		return;
	state = look(service);
	notify_flush(service->notify);
	tell_status(service, &state);
	feed_watchdog(service, &state);
	extend_start(service, &state);
}

static void
on_timer(evutil_socket_t descriptor, short what, void *context)
{
	(void)descriptor;
	(void)what;
	service_look(context);
}

/* ---- from outside ---- */

static int64_t
interval_for(const struct notify *notify)
{
	int64_t quarter_ns = notify->watchdog_ns / 4;

	if (quarter_ns == 0 || quarter_ns > CLOCK_NS_PER_S)
		return CLOCK_NS_PER_S;
	return quarter_ns < CLOCK_NS_PER_MS ? CLOCK_NS_PER_MS : quarter_ns;
}

struct service *
service_new(struct event_base *base, struct notify *notify, const struct crew *crew, const struct handover *handover,
    const struct boards *boards)
{
	struct service *service = calloc(1, sizeof(*service));
	struct timeval interval;

	if (service == NULL)
		return NULL;
	service->notify = notify;
	service->crew = crew;
	service->handover = handover;
	service->boards = boards;
	service->interval_ns = interval_for(notify);
	interval = (struct timeval){ service->interval_ns / CLOCK_NS_PER_S,
		service->interval_ns % CLOCK_NS_PER_S / CLOCK_NS_PER_US };
	service->timer = event_new(base, -1, EV_PERSIST, on_timer, service);
	if (service->timer != NULL && (!notify_wanted(notify) || event_add(service->timer, &interval) == 0))
		return service;
	service_free(service);
	errno = ENOMEM;
	return NULL;
}

void
service_free(struct service *service)
{
	if (service == NULL)
		return;
	if (service->timer != NULL)
		event_free(service->timer);
	free(service);
}
