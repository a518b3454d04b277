/* The workers as a whole; see crew.h. */
#include "supervisor/crew.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/wait.h>

struct crew {
	struct child_shared shared;
	struct crew_hooks hooks;
	bool ready, stopping, stopped;
	int32_t count;
	struct child **children;
	bool *serving;		/* as the hook was told */
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

static bool
has_stopped(const struct child *child)
{
	return child_restart(child)->state == RESTART_STOPPED;
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

static void
on_changed(void *context, struct child *child)
{
	struct crew *crew = context;

	note_serving(crew, child_number(child), child_serving(child));
	if (!crew->ready && !crew->stopping && all_children(crew, settled)) {
		crew->ready = true;
		crew->hooks.ready(crew->hooks.context);
	}
	if (crew->stopping && !crew->stopped && all_children(crew, has_stopped)) {
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
	crew->shared = (struct child_shared){ base, setup, program, lock, reserve, crew, on_returned, on_changed };
	crew->children = calloc(count, sizeof(*crew->children));
	crew->serving = calloc(count, sizeof(*crew->serving));
	if (crew->children == NULL || crew->serving == NULL)
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
	free(crew);
}

void
crew_begin(struct crew *crew)
{
	for (int32_t i = 0; i < crew->count && !crew->stopping; i++)
		child_begin(crew->children[i]);
}

static struct child *
find(const struct crew *crew, pid_t pid)
{
	for (int32_t i = 0; i < crew->count; i++)
		if (child_pid(crew->children[i]) == pid)
			return crew->children[i];
	return NULL;
}

void
crew_reap(struct crew *crew)
{
	pid_t pid;
	int wait_status;

	while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
		struct child *child = find(crew, pid);

		/* Not ours: left by a program that has become the supervisor by exec. */
		if (child != NULL)
			child_reaped(child, wait_status);
	}
}

void
crew_stop(struct crew *crew)
{
	crew->stopping = true;
	for (int32_t i = 0; i < crew->count; i++)
		child_stop(crew->children[i]);
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
