/* The workers as a whole; see crew.h. */
#include "supervisor/crew.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "common/log.h"

enum { NOBODY = -1 };

/* Somebody wants a worker replaced, and has not been answered. */
struct request {
	crew_replaced *replaced;	/* NULL: nobody does */
	void *context;
};

struct crew {
	struct child_shared shared;
	struct crew_hooks hooks;
	bool ready, stopping, stopped;
	int32_t count;
	struct child **children;
	bool *serving;		/* as the hook was told */
	struct request *requests;	/* by worker */
	int32_t replacing;	/* whose replacement is under way; NOBODY */
};

static bool
settled(const struct child *child)
{
	return child_serving(child) || restart_failing(child_restart(child));
}

static bool
all_children(const struct crew *crew, bool (*is)(const struct child *child))
{
	for (int32_t i = 0; i < crew->count; i++)
		if (!is(crew->children[i]))
			return false;
	return true;
}

static void
note_serving(struct crew *crew, int32_t number, bool serving)
{
	if (crew->serving[number] == serving)
		return;
	crew->serving[number] = serving;
	if (serving)
		crew->hooks.serving(crew->hooks.context, number);
}

static void
on_returned(void *context, const struct connection *connection)
{
	struct crew *crew = context;

	crew->hooks.returned(crew->hooks.context, connection);
}

/* ---- replacements ---- */

static void
answer(struct crew *crew, int32_t number, const char *why, int64_t pause_ns)
{
	struct request request = crew->requests[number];

	crew->requests[number] = (struct request){ NULL, NULL };
	if (request.replaced != NULL)
		request.replaced(request.context, number, why, pause_ns);
}

static int
begin_replacing(struct crew *crew, int32_t number)
{
	int error;

	child_take_wish(crew->children[number]);
	if (child_replace(crew->children[number]) == 0) {
		crew->replacing = number;
		return 0;
	}
	error = errno;
	log_warning("worker %d: cannot be replaced: %s", (int)number, replace_refusal(error));
	errno = error;
	return -1;
}

/* In turn, so that one that asks again and again holds up nobody. */
static int32_t
next_to_replace(const struct crew *crew, int32_t last)
{
	for (int32_t i = 1; i <= crew->count; i++) {
		int32_t number = (last + i) % crew->count;
		const struct child *child = crew->children[number];

		if (crew->requests[number].replaced != NULL || (child_wishes(child) && child_serving(child)))
			return number;
	}
	return NOBODY;
}

static void
replace_next(struct crew *crew, int32_t last)
{
	while (crew->replacing == NOBODY && !crew->stopping) {
		int32_t number = next_to_replace(crew, last);

		if (number == NOBODY || begin_replacing(crew, number) == 0)
			return;
		answer(crew, number, replace_refusal(errno), -1);
	}
}

static void
on_replaced(void *context, struct child *child, const char *why, int64_t pause_ns)
{
	struct crew *crew = context;
	int32_t number = child_number(child);

	/* Whoever has asked for the same meanwhile has had his answer; another process has not asked. */
	if (why != NULL)
		child_take_wish(child);
	crew->replacing = NOBODY;
	answer(crew, number, why, pause_ns);
	replace_next(crew, number);
}

int
crew_replace(struct crew *crew, int32_t worker, crew_replaced *replaced, void *context)
{
	int error = 0;

	if (worker < 0 || worker >= crew->count)
		error = EINVAL;
	else if (crew->stopping)
		error = ESHUTDOWN;
	else if (crew->replacing == worker || crew->requests[worker].replaced != NULL)
		error = EBUSY;
	else if (!child_serving(crew->children[worker]))
		error = ENOTCONN;
	else if (crew->replacing == NOBODY && begin_replacing(crew, worker) != 0)
		error = errno;
	if (error != 0) {
		errno = error;
		return -1;
	}
	crew->requests[worker] = (struct request){ replaced, context };
	return 0;
}

static void
on_changed(void *context, struct child *child)
{
	struct crew *crew = context;

	if (child_wishes(child))
		replace_next(crew, child_number(child));
	note_serving(crew, child_number(child), child_serving(child));
	if (!crew->ready && !crew->stopping && all_children(crew, settled)) {
		crew->ready = true;
		crew->hooks.ready(crew->hooks.context);
	}
	if (crew->stopping && !crew->stopped && all_children(crew, child_stopped)) {
		crew->stopped = true;
		crew->hooks.stopped(crew->hooks.context);
	}
}

struct crew *
crew_new(struct event_base *base, const struct setup *setup, const char *program, struct reserve *reserve,
    int lock, const struct crew_hooks *hooks)
{
	struct crew *crew = calloc(1, sizeof(*crew));
	size_t count = (size_t)setup->topics->group_count;

	if (crew == NULL)
		return NULL;
	crew->hooks = *hooks;
	crew->replacing = NOBODY;
	crew->shared = (struct child_shared){ { base, setup, program, lock, reserve }, crew, on_returned, on_changed,
		on_replaced };
	crew->children = calloc(count, sizeof(*crew->children));
	crew->serving = calloc(count, sizeof(*crew->serving));
	crew->requests = calloc(count, sizeof(*crew->requests));
	if (crew->children == NULL || crew->serving == NULL || crew->requests == NULL)
		goto fail;
	for (; crew->count < (int32_t)count; crew->count++) {
		crew->children[crew->count] = child_new(&crew->shared, crew->count);
		if (crew->children[crew->count] == NULL)
			goto fail;
	}
	return crew;
fail:
	crew_free(crew);
	errno = ENOMEM;
	return NULL;
}

void
crew_free(struct crew *crew)
{
	if (crew == NULL)
		return;
	for (int32_t i = 0; i < crew->count; i++)
		child_free(crew->children[i]);
	free(crew->children);
	free(crew->serving);
	free(crew->requests);
	free(crew);
}

void
crew_begin(struct crew *crew)
{
	for (int32_t i = 0; i < crew->count && !crew->stopping; i++)
		child_begin(crew->children[i]);
}

void
crew_reap(struct crew *crew)
{
	pid_t pid;
	int wait_status;

	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
		/* It may be nobody's: left by a program that has become the supervisor by exec. */
		for (int32_t i = 0; i < crew->count; i++)
			if (child_reaped(crew->children[i], pid, wait_status))
				break;
	}
}

void
crew_stop(struct crew *crew)
{
	crew->stopping = true;
	for (int32_t i = 0; i < crew->count; i++)
		if (i != crew->replacing)
			answer(crew, i, "the broker stops", -1);
	for (int32_t i = 0; i < crew->count; i++)
		child_stop(crew->children[i]);
}

int64_t
crew_stop_limit_ns(const struct crew *crew)
{
	int64_t longest_ns = 0;

	for (int32_t i = 0; i < crew->count; i++) {
		int64_t limit_ns = child_stop_limit_ns(crew->children[i]);

		if (limit_ns > longest_ns)
			longest_ns = limit_ns;
	}
	return longest_ns;
}

int32_t
crew_count(const struct crew *crew)
{
	return crew->count;
}

struct child *
crew_child(const struct crew *crew, int32_t number)
{
	return crew->children[number];
}

bool
crew_ready(const struct crew *crew)
{
	return crew->ready;
}

bool
crew_stopping(const struct crew *crew)
{
	return crew->stopping;
}

bool
crew_unclean(const struct crew *crew)
{
	for (int32_t i = 0; i < crew->count; i++)
		if (child_unclean(crew->children[i]))
			return true;
	return false;
}
