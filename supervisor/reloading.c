/* One reload at a time, worker by worker; see reloading.h. Every line of its report is in the log, too. */
#include "supervisor/reloading.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"

struct reloading {
	const struct reload *reload;
	struct orders *orders;
	const struct crew *crew;
	struct reloading_hooks hooks;
	reloading_done *done;
	void *context;
	FILE *report;		/* NULL: none is under way */
	char *text;
	size_t length;
	size_t logged;		/* bytes of the text that are in the log */
	int32_t next;		/* the worker to look at next */
	bool ok;
	bool asked;		/* one more run behind this one */
};

/* Whole lines only are written between two calls. */
static void
log_report(struct reloading *reloading, bool wrong)
{
	fflush(reloading->report);
	while (reloading->logged < reloading->length) {
		const char *line = reloading->text + reloading->logged;
		size_t length = strcspn(line, "\n");

		if (wrong)
			log_error("reload: %.*s", (int)length, line);
		else
			log_info("reload: %.*s", (int)length, line);
		reloading->logged += length + 1;
	}
}

static bool
is_busy(const struct reloading *reloading)
{
	return reloading->report != NULL || orders_busy(reloading->orders, NULL);
}

/* Any order's end, its own included, begins what was asked for meanwhile. */
static void
finish(struct reloading *reloading)
{
	reloading_done *done = reloading->done;
	char *text, none[] = "";	/* which is what glibc may leave without memory: not even an empty one */

	fclose(reloading->report);
	reloading->report = NULL;
	text = reloading->text;
	reloading->text = NULL;
	reloading->done = NULL;
	if (reloading->hooks.ended != NULL)
		reloading->hooks.ended(reloading->hooks.context);
	if (done != NULL)
		done(reloading->context, text == NULL ? none : text, reloading->ok);
	free(text);
	reloading_orders_idle(reloading);
}

static void go_on(struct reloading *reloading);

/* What one worker does not survive is not tried on the others. */
static void
fail_worker(struct reloading *reloading, int32_t worker, const char *why)
{
	reloading->ok = false;
	reloading->next = crew_count(reloading->crew);
	fprintf(reloading->report, "worker %d: not restarted: %s; workers that run go on with the settings they have, until they "
	    "are restarted\n", (int)worker, why);
	log_report(reloading, true);
}

static void
on_restarted(void *context, const struct orders_step *steps, int32_t count, bool ok)
{
	struct reloading *reloading = context;

	(void)count;
	if (ok && steps->pause_ns == -1) {
		fprintf(reloading->report, "worker %d: restarted with the new settings, but one of its processes died meanwhile: "
		    "clients were cut\n", (int)steps->worker);
		log_report(reloading, false);
	} else if (ok) {
		fprintf(reloading->report, "worker %d: restarted with the new settings, its clients waited %.1f ms\n",
		    (int)steps->worker, (double)steps->pause_ns / CLOCK_NS_PER_MS);
		log_report(reloading, false);
	} else {
		fail_worker(reloading, steps->worker, steps->why);
	}
	go_on(reloading);
}

/* Returns true when it is under way. */
static bool
restart(struct reloading *reloading, int32_t worker)
{
	if (orders_restart(reloading->orders, worker, on_restarted, reloading) == 0)
		return true;
	if (errno != ENOTCONN) {
		fail_worker(reloading, worker, replace_refusal(errno));
		return false;
	}
	reloading->ok = false;
	fprintf(reloading->report, "worker %d: does not serve yet, and goes on with the settings it was started with: reload again "
	    "when it does\n", (int)worker);
	log_report(reloading, true);
	return false;
}

static void
go_on(struct reloading *reloading)
{
	while (reloading->next < crew_count(reloading->crew)) {
		int32_t worker = reloading->next++;

		if (child_outdated(crew_child(reloading->crew, worker)) && restart(reloading, worker))
			return;
	}
	finish(reloading);
}

struct reloading *
reloading_new(const struct reload *reload, struct orders *orders, const struct crew *crew,
    const struct reloading_hooks *hooks)
{
	struct reloading *reloading = calloc(1, sizeof(*reloading));

	if (reloading == NULL)
		return NULL;
	reloading->reload = reload;
	reloading->orders = orders;
	reloading->crew = crew;
	reloading->hooks = *hooks;
	return reloading;
}

void
reloading_free(struct reloading *reloading)
{
	if (reloading == NULL)
		return;
	if (reloading->report != NULL)
		fclose(reloading->report);
	free(reloading->text);
	free(reloading);
}

int
reloading_start(struct reloading *reloading, reloading_done *done, void *context)
{
	struct reload_changes changes;

	if (is_busy(reloading) || crew_stopping(reloading->crew) || !crew_ready(reloading->crew)) {
		errno = is_busy(reloading) ? EBUSY : crew_stopping(reloading->crew) ? ESHUTDOWN : EINPROGRESS;
		return -1;
	}
	reloading->report = open_memstream(&reloading->text, &reloading->length);
	if (reloading->report == NULL)
		return -1;
	reloading->asked = false;
	reloading->done = done;
	reloading->context = context;
	reloading->logged = 0;
	reloading->next = 0;
	if (reloading->hooks.begun != NULL)
		reloading->hooks.begun(reloading->hooks.context);
	reloading->ok = reload_apply(reloading->reload, reloading->report, &changes) == 0;
	log_report(reloading, !reloading->ok);
	if (reloading->ok)
		go_on(reloading);
	else
		finish(reloading);
	return 0;
}

void
reloading_ask(struct reloading *reloading)
{
	reloading->asked = true;
	reloading_orders_idle(reloading);
}

void
reloading_orders_idle(struct reloading *reloading)
{
	if (!reloading->asked || is_busy(reloading))
		return;
	if (reloading_start(reloading, NULL, NULL) != 0 && errno != ESHUTDOWN && errno != EINPROGRESS)
		log_error("reload: cannot begin: %s", strerror(errno));
}
