/* /status.json; see pages.h. */
#include "supervisor/pages.h"

#include <stddef.h>

#include "common/clock.h"
#include "common/codec.h"
#include "supervisor/page.h"

/* ---- members of objects; each begins with a comma ---- */

static void
put_name(struct page *page, const char *name)
{
	page_put(page, ",\"", 2);
	page_put_text(page, name);
	page_put(page, "\":", 2);
}

static void
put_number(struct page *page, const char *name, int64_t value)
{
	put_name(page, name);
	page_put_number(page, value);
}

static void
put_number_or_null(struct page *page, const char *name, int64_t value, bool known)
{
	put_name(page, name);
	if (known)
		page_put_number(page, value);
	else
		page_put_text(page, "null");
}

static void
put_seconds(struct page *page, const char *name, int64_t ns, bool known)
{
	put_name(page, name);
	if (known && ns >= 0)
		page_print(page, "%lld.%06lld", (long long)(ns / CLOCK_NS_PER_S),
		    (long long)(ns % CLOCK_NS_PER_S / CLOCK_NS_PER_US));
	else
		page_put_text(page, "null");
}

static void
put_truth(struct page *page, const char *name, bool value)
{
	put_name(page, name);
	page_put_text(page, value ? "true" : "false");
}

static void
put_string(struct page *page, const char *name, const char *value)
{
	put_name(page, name);
	page_put_json(page, value);
}

/* ---- workers ---- */

static void
put_restarts(struct page *page, const struct pages_worker *worker)
{
	put_name(page, "restarts");
	for (int reason = 0; reason < RESTART_REASON_COUNT; reason++) {
		page_put(page, reason == 0 ? "{" : ",", 1);
		page_put_json(page, restart_reason_name((enum restart_reason)reason));
		page_put(page, ":", 1);
		page_put_number(page, worker->restarts[reason]);
	}
	page_put(page, "}", 1);
	put_name(page, "last_restart");
	if (!worker->restarted) {
		page_put_text(page, "null");
		return;
	}
	page_put_text(page, "{\"reason\":");
	page_put_json(page, restart_reason_name(worker->last_reason));
	page_print(page, ",\"unix_seconds\":%lld.%03lld", (long long)(worker->last_wall_ms / 1000),
	    (long long)(worker->last_wall_ms % 1000));
	put_seconds(page, "pause_seconds", worker->last_pause_ns, worker->last_pause_ns >= 0);
	page_put(page, "}", 1);
}

static int64_t
refused(const struct board_worker *worker, int api)
{
	uint64_t sum = 0;

	for (int code = 1; code < CODEC_ERROR_COUNT; code++)
		sum += (uint64_t)board_get(&worker->requests[api][code]);
	return (int64_t)sum;
}

static void
put_requests(struct page *page, const struct board_worker *worker)
{
	static const char *const names[BOARD_API_COUNT] = { "produce", "fetch", "metadata", "other" };

	put_name(page, "requests");
	for (int api = 0; api < BOARD_API_COUNT; api++) {
		page_put(page, api == 0 ? "{" : ",", 1);
		page_print(page, "\"%s\":{\"done\":%lld,\"refused\":%lld}", names[api],
		    (long long)board_get(&worker->requests[api][CODEC_NONE]), (long long)refused(worker, api));
	}
	page_put(page, "}", 1);
}

static void
put_worker(struct page *page, const struct pages_view *view, int32_t number)
{
	const struct pages_worker *worker = &view->workers[number];
	const struct board_worker *board = worker->board->worker;
	int64_t age_ns = pages_heartbeat_age_ns(view, number);

	page_print(page, "%s{\"worker\":%d", number == 0 ? "" : ",", (int)number);
	put_number_or_null(page, "pid", worker->pid, worker->pid > 0);
	put_string(page, "state", restart_state_name(worker->state));
	put_truth(page, "failing", worker->failing);
	put_string(page, "replacement", replace_state_name(worker->replacement));
	put_truth(page, "old_settings", worker->old_settings);
	put_truth(page, "old_program", worker->old_program);
	put_seconds(page, "heartbeat_age_seconds", age_ns, age_ns >= 0);
	put_number(page, "connections", worker->connections);
	put_number(page, "fetch_held", board_get(&board->fetch_held));
	put_number(page, "buffered_bytes", board_get(&board->buffered_bytes));
	put_restarts(page, worker);
	put_requests(page, board);
	put_number(page, "fetched_bytes", board_get(&board->fetched_bytes));
	put_number(page, "fsync_failures", board_get(&board->fsync_failures));
	page_put(page, "}", 1);
}

/* ---- partitions ---- */

static void
put_partition(struct page *page, const struct pages_view *view, const struct topic *topic, int32_t partition)
{
	int32_t group = topics_group(view->topics, topic, partition);
	const struct board_partition *slot =
	    &view->workers[group].board->slots[topics_slot(view->topics, topic, partition)];
	bool known = atomic_load_explicit(&slot->opened, memory_order_acquire) != 0;
	int64_t log_start, high_watermark, durable_end;

	board_read(slot, &log_start, &high_watermark, &durable_end);
	page_put_text(page, "{\"topic\":");
	page_put_json(page, topic->name);
	put_number(page, "partition", partition);
	put_number(page, "group", group);
	put_string(page, "state", pages_partition_state(slot));
	put_number_or_null(page, "log_start", log_start, known);
	put_number_or_null(page, "high_watermark", high_watermark, known);
	put_number_or_null(page, "durable_end", durable_end, known);
	put_number(page, "size_bytes", board_get(&slot->size_bytes));
	put_number(page, "segments", board_get(&slot->segments));
	put_number(page, "unsynced_bytes", board_get(&slot->unsynced_bytes));
	put_number(page, "produced_records", board_get(&slot->produced_records));
	put_number(page, "produced_bytes", board_get(&slot->produced_bytes));
	page_put(page, "}", 1);
}

static void
put_partitions(struct page *page, const struct pages_view *view)
{
	bool first = true;

	put_name(page, "partitions");
	page_put(page, "[", 1);
	for (int32_t i = 0; i < view->topics->count; i++)
		for (int32_t k = 0; k < view->topics->list[i].partition_count; k++) {
			if (!first)
				page_put(page, ",", 1);
			first = false;
			put_partition(page, view, &view->topics->list[i], k);
		}
	page_put(page, "]", 1);
}

/* ---- the whole ---- */

int
pages_status_json(const struct pages_view *view, struct evbuffer *to)
{
	struct page page = { .to = to };

	page_put_text(&page, "{\"version\":");
	page_put_json(&page, view->version);
	put_number(&page, "pid", view->pid);
	put_seconds(&page, "uptime_seconds", view->now_ns - view->started_ns, true);
	put_truth(&page, "ready", view->ready && !view->stopping);
	put_truth(&page, "stopping", view->stopping);
	put_number_or_null(&page, "data_free_bytes", view->data_free_bytes, view->data_free_bytes >= 0);
	page_print(&page, ",\"connections\":{\"open\":%lld,\"parked\":%lld,\"accepted\":%lld,\"refused\":%lld}",
	    (long long)view->connections, (long long)view->connections_parked, (long long)view->connections_accepted,
	    (long long)view->connections_refused);
	put_name(&page, "workers");
	page_put(&page, "[", 1);
	for (int32_t i = 0; i < view->topics->group_count; i++)
		put_worker(&page, view, i);
	page_put(&page, "]", 1);
	put_partitions(&page, view);
	page_put(&page, "}\n", 2);
	return page_end(&page);
}
