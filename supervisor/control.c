/* See control.h. */
#include "supervisor/control.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "supervisor/page.h"

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
		snprintf(why, sizeof(why), "%s", orders_refusal(error));
	else
		snprintf(why, sizeof(why), "worker %d: %s", (int)worker, orders_refusal(error));
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

const struct http_call *
control_calls(void)
{
	static const struct http_call calls[] = {
		{ "/workers/#/restart", true, restart_one },
		{ "/workers/restart", true, restart_all },
		{ "/reload", true, reload },
		{ NULL, false, NULL },
	};

	return calls;
}
