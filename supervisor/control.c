/* See control.h. */
#include "supervisor/control.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "supervisor/page.h"
#include "supervisor/pages.h"
#include "supervisor/status.h"

/* Somebody waits for a sign of life of every worker. */
struct check {
	struct check *next;
	struct http_request *request;
	int64_t began_ns, until_ns;
};

struct control {
	struct orders *orders;
	struct reloading *reloading;
	struct status *status;
	struct check *checks;
	struct event *look;	/* while there are any */
};

enum { DONE = 200, NOT_FOUND = 404, BUSY = 409, FAILED = 500, UNAVAILABLE = 503 };

static double
milliseconds(int64_t ns)
{
	return (double)ns / CLOCK_NS_PER_MS;
}

/* ---- answers ---- */

/* One that cannot be made for want of memory says that at least. */
static void
answer_page(struct http_request *request, int status, struct page *page)
{
	const char *type = http_wants_json(request) ? "application/json" : "text/plain; charset=utf-8";

	if (page->to == NULL || page_end(page) != 0)
		http_answer_text(request, status == DONE ? status : UNAVAILABLE, "no memory for more");
	else
		http_answer(request, status, type, page->to);
	if (page->to != NULL)
		evbuffer_free(page->to);
}

static void
refuse(struct http_request *request, int status, const char *why)
{
	struct page page = { .to = evbuffer_new() };

	if (!http_wants_json(request)) {
		page_print(&page, "%s\n", why);
	} else {
		page_put_text(&page, "{\"done\":false,\"why\":");
		page_put_json(&page, why);
		page_put_text(&page, "}\n");
	}
	answer_page(request, status, &page);
}

static void
put_step_text(struct page *page, const struct orders_step *step)
{
	switch (step->outcome) {
	case ORDERS_REPLACED:
		if (step->pause_ns == -1)
			page_print(page, "worker %d: replaced, but one of its processes died meanwhile: clients were cut\n",
			    (int)step->worker);
		else
			page_print(page, "worker %d: replaced, its clients waited %.1f ms\n", (int)step->worker,
			    milliseconds(step->pause_ns));
		break;
	case ORDERS_FAILED:
		page_print(page, "worker %d: not replaced: %s\n", (int)step->worker, step->why);
		break;
	case ORDERS_NOT_TRIED:
		page_print(page, "worker %d: not tried\n", (int)step->worker);
		break;
	}
}

static void
put_step_json(struct page *page, const struct orders_step *step)
{
	page_print(page, "{\"worker\":%d,\"replaced\":%s", (int)step->worker,
	    step->outcome == ORDERS_REPLACED ? "true" : "false");
	if (step->outcome == ORDERS_REPLACED && step->pause_ns == -1) {
		page_put_text(page, ",\"pause_seconds\":null}");
		return;
	}
	if (step->outcome == ORDERS_REPLACED) {
		page_print(page, ",\"pause_seconds\":%.6f}", milliseconds(step->pause_ns) / 1000);
		return;
	}
	page_put_text(page, ",\"why\":");
	page_put_json(page, step->outcome == ORDERS_FAILED ? step->why : "not tried");
	page_put_text(page, "}");
}

static void
on_restarted(void *context, const struct orders_step *steps, int32_t count, bool ok)
{
	struct http_request *request = context;
	struct page page = { .to = evbuffer_new() };
	bool json = http_wants_json(request);

	if (json)
		page_print(&page, "{\"done\":%s,\"workers\":[", ok ? "true" : "false");
	for (int32_t i = 0; i < count; i++) {
		if (json && i > 0)
			page_put_text(&page, ",");
		(json ? put_step_json : put_step_text)(&page, &steps[i]);
	}
	if (json)
		page_put_text(&page, "]}\n");
	answer_page(request, ok ? DONE : FAILED, &page);
}

/* ---- orders ---- */

static int
status_of(int error)
{
	return error == EBUSY ? BUSY : error == EINVAL ? NOT_FOUND : UNAVAILABLE;
}

/* Called with errno of the refusal. */
static void
refuse_restart(const struct control *control, struct http_request *request, int32_t worker)
{
	int error = errno;
	char under_way[ORDERS_TEXT_BYTES], why[2 * ORDERS_TEXT_BYTES];

	if (orders_busy(control->orders, under_way))
		snprintf(why, sizeof(why), "busy: %s", under_way);
	else if (worker == ORDERS_ALL)
		snprintf(why, sizeof(why), "%s", replace_refusal(error));
	else
		snprintf(why, sizeof(why), "worker %d: %s", (int)worker, replace_refusal(error));
	refuse(request, status_of(error), why);
}

static void
restart_one(void *context, struct http_request *request, int64_t number)
{
	const struct control *control = context;

	if (orders_restart(control->orders, (int32_t)number, on_restarted, request) != 0)
		refuse_restart(control, request, (int32_t)number);
}

static void
restart_all(void *context, struct http_request *request, int64_t number)
{
	const struct control *control = context;

	(void)number;
	if (orders_restart(control->orders, ORDERS_ALL, on_restarted, request) != 0)
		refuse_restart(control, request, ORDERS_ALL);
}

static void
put_report(struct page *page, char *text, bool json)
{
	char *rest = NULL;
	const char *separator = "";

	for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
		if (!json) {
			page_print(page, "%s\n", line);
			continue;
		}
		page_put_text(page, separator);
		page_put_json(page, line);
		separator = ",";
	}
}

static void
on_reloaded(void *context, char *text, bool ok)
{
	struct http_request *request = context;
	struct page page = { .to = evbuffer_new() };
	bool json = http_wants_json(request);

	if (json)
		page_print(&page, "{\"done\":%s,\"lines\":[", ok ? "true" : "false");
	put_report(&page, text, json);
	if (json)
		page_put_text(&page, "]}\n");
	answer_page(request, ok ? DONE : FAILED, &page);
}

static void
reload(void *context, struct http_request *request, int64_t number)
{
	const struct control *control = context;

	(void)number;
	if (reloading_start(control->reloading, on_reloaded, request) != 0)
		refuse_restart(control, request, ORDERS_ALL);
}

/* ---- checks ---- */

static void
answer_check_json(struct http_request *request, int status, struct evbuffer *lines)
{
	struct page page = { .to = evbuffer_new() };
	const char *separator = "";
	char *line;

	page_print(&page, "{\"ok\":%s,\"reasons\":[", status == DONE ? "true" : "false");
	while (status != DONE && (line = evbuffer_readln(lines, NULL, EVBUFFER_EOL_LF)) != NULL) {
		page_put_text(&page, separator);
		page_put_json(&page, line);
		free(line);
		separator = ",";
	}
	page_put_text(&page, "]}\n");
	answer_page(request, status, &page);
}

/* Answers it when it is time, or now. Returns false when it goes on waiting. */
static bool
look(struct control *control, const struct check *check, bool now)
{
	struct evbuffer *lines = evbuffer_new();
	struct pages_view view;
	int status;

	status_collect(control->status, &view);
	now = now || view.now_ns >= check->until_ns;
	status = lines == NULL ? -1 : pages_check(&view, now ? check->began_ns : 0, lines);
	if (status == DONE && !now && !pages_alive(&view, check->began_ns)) {
		evbuffer_free(lines);
		return false;
	}
	if (status < 0)
		http_answer_text(check->request, UNAVAILABLE, "no memory");
	else if (http_wants_json(check->request))
		answer_check_json(check->request, status, lines);
	else
		http_answer(check->request, status, "text/plain; charset=utf-8", lines);
	if (lines != NULL)
		evbuffer_free(lines);
	return true;
}

static void
look_at_all(struct control *control, bool now)
{
	struct check **link = &control->checks;

	while (*link != NULL) {
		struct check *check = *link;

		if (!look(control, check, now)) {
			link = &check->next;
			continue;
		}
		*link = check->next;
		free(check);
	}
}

static void
on_look(evutil_socket_t fd, short what, void *context)
{
	static const struct timeval pause = { 0, CONTROL_LOOK_MS * 1000 };
	struct control *control = context;

	(void)fd;
	(void)what;
	look_at_all(control, false);
	if (control->checks != NULL)
		evtimer_add(control->look, &pause);
}

static void
begin_check(void *context, struct http_request *request, int64_t number)
{
	struct control *control = context;
	struct check *check = calloc(1, sizeof(*check));
	int64_t within_ms = http_number(request, "within_ms"), now_ns = clock_now_ns();

	(void)number;
	if (check == NULL) {
		http_answer_text(request, UNAVAILABLE, "no memory");
		return;
	}
	if (within_ms < 0 || within_ms > CONTROL_CHECK_MS)
		within_ms = CONTROL_CHECK_MS;
	*check = (struct check){ control->checks, request, now_ns, now_ns + within_ms * CLOCK_NS_PER_MS };
	control->checks = check;
	on_look(-1, 0, control);
}

/* ---- the whole ---- */

struct control *
control_new(struct event_base *base, struct orders *orders, struct reloading *reloading, struct status *status)
{
	struct control *control = calloc(1, sizeof(*control));

	if (control == NULL)
		return NULL;
	control->orders = orders;
	control->reloading = reloading;
	control->status = status;
	control->look = evtimer_new(base, on_look, control);
	if (control->look != NULL)
		return control;
	free(control);
	errno = ENOMEM;
	return NULL;
}

void
control_free(struct control *control)
{
	if (control == NULL)
		return;
	look_at_all(control, true);
	event_free(control->look);
	free(control);
}

const struct http_call *
control_calls(void)
{
	static const struct http_call calls[] = {
		{ "/workers/#/restart", true, restart_one },
		{ "/workers/restart", true, restart_all },
		{ "/reload", true, reload },
		{ "/check", false, begin_check },
		{ NULL, false, NULL },
	};

	return calls;
}
