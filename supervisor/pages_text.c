/* /status: tables for people; see pages.h. */
#include "supervisor/pages.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "supervisor/page.h"
#include "supervisor/rates.h"

enum { CELL_BYTES = 64, RESTARTS_BYTES = 256 };

struct tables {
	struct page page;
	const struct pages_view *view;
	const struct rates *rates;	/* NULL: none */
	struct { int64_t size_bytes, unsynced_bytes, held, fsync_failures; } sums;
};

/* ---- cells; each fills `to` of CELL_BYTES (size: half of that) and returns it ---- */

static const char *
size(char *to, double bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	size_t unit = 0;

	while (bytes >= 1024 && unit < sizeof(units) / sizeof(units[0]) - 1) {
		bytes /= 1024;
		unit++;
	}
	snprintf(to, CELL_BYTES / 2, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
	return to;
}

static const char *
duration(char *to, int64_t seconds)
{
	if (seconds < 60)
		snprintf(to, CELL_BYTES, "%llds", (long long)seconds);
	else if (seconds < 3600)
		snprintf(to, CELL_BYTES, "%lldmin", (long long)(seconds / 60));
	else if (seconds < 86400)
		snprintf(to, CELL_BYTES, "%lldh %lldmin", (long long)(seconds / 3600), (long long)(seconds / 60 % 60));
	else
		snprintf(to, CELL_BYTES, "%lldd %lldh", (long long)(seconds / 86400), (long long)(seconds / 3600 % 24));
	return to;
}

static bool
have_rates(const struct tables *tables)
{
	return tables->rates != NULL && tables->rates->before != NULL;
}

/* These two: "; 12.3/s", or nothing when there is nothing to compare with. */
static const char *
rate(const struct tables *tables, char *to, int64_t now, int64_t before)
{
	to[0] = '\0';
	if (have_rates(tables))
		snprintf(to, CELL_BYTES, "; %.1f/s", rates_per_second(tables->rates, now, before));
	return to;
}

static const char *
byte_rate(const struct tables *tables, char *to, int64_t now, int64_t before)
{
	to[0] = '\0';
	if (have_rates(tables)) {
		memcpy(to, ", ", 3);
		size(to + 2, rates_per_second(tables->rates, now, before));
		strcat(to, "/s");
	}
	return to;
}

/* ---- the broker ---- */

/* Boards are not believed: sums may overflow, and must not trap. */
static void
add(int64_t *sum, const board_counter *counter)
{
	*sum = (int64_t)((uint64_t)*sum + (uint64_t)board_get(counter));
}

static void
sum_up(struct tables *tables)
{
	const struct pages_view *view = tables->view;

	for (int32_t group = 0; group < view->topics->group_count; group++) {
		const struct board *board = view->workers[group].board;

		for (int32_t slot = 0; slot < view->topics->slot_counts[group]; slot++) {
			add(&tables->sums.size_bytes, &board->slots[slot].size_bytes);
			add(&tables->sums.unsynced_bytes, &board->slots[slot].unsynced_bytes);
		}
		add(&tables->sums.held, &board->worker->fetch_held);
		add(&tables->sums.fsync_failures, &board->worker->fsync_failures);
	}
}

static void
put_head(struct tables *tables)
{
	const struct pages_view *view = tables->view;
	char up[CELL_BYTES];

	page_print(&tables->page, "logbroker %s, pid %lld, up %s, %s\n", view->version, (long long)view->pid,
	    duration(up, (view->now_ns - view->started_ns) / CLOCK_NS_PER_S),
	    view->stopping ? "stopping" : view->ready ? "ready" : "starting: the workers open their logs");
	page_print(&tables->page, "connections  %lld open, %lld of them wait for a worker; %lld have come, %lld were refused\n",
	    (long long)view->connections, (long long)view->connections_parked, (long long)view->connections_accepted,
	    (long long)view->connections_refused);
}

static void
put_traffic(struct tables *tables)
{
	static const struct rates_sample none;
	const struct rates_sample *now = tables->rates->now;
	const struct rates_sample *before = have_rates(tables) ? tables->rates->before : &none;
	char bytes[CELL_BYTES], per_second[CELL_BYTES], bytes_per_second[CELL_BYTES];

	page_print(&tables->page, "produced     %lld records, %s%s%s\n", (long long)now->produced_records,
	    size(bytes, (double)now->produced_bytes), rate(tables, per_second, now->produced_records, before->produced_records),
	    byte_rate(tables, bytes_per_second, now->produced_bytes, before->produced_bytes));
	page_print(&tables->page, "fetched      %s%s; %lld requests wait for records\n", size(bytes, (double)now->fetched_bytes),
	    byte_rate(tables, bytes_per_second, now->fetched_bytes, before->fetched_bytes), (long long)tables->sums.held);
	page_print(&tables->page, "requests     %lld%s\n", (long long)now->requests,
	    rate(tables, per_second, now->requests, before->requests));
	page_print(&tables->page, "barriers     %lld, %lld failed%s", (long long)now->barriers,
	    (long long)tables->sums.fsync_failures, rate(tables, per_second, now->barriers, before->barriers));
	if (have_rates(tables) && now->barriers > before->barriers)
		page_print(&tables->page, ", %.2f ms each",
		    ((double)now->barriers_ns - (double)before->barriers_ns) / (double)(now->barriers - before->barriers) / 1e6);
	page_put_text(&tables->page, "\n");
}

static void
put_disk(struct tables *tables)
{
	char records[CELL_BYTES], unsynced[CELL_BYTES], free_bytes[CELL_BYTES] = "unknown";

	if (tables->view->data_free_bytes >= 0)
		size(free_bytes, (double)tables->view->data_free_bytes);
	page_print(&tables->page, "disk         %s free, %s of records, %s not forced yet\n", free_bytes,
	    size(records, (double)tables->sums.size_bytes), size(unsynced, (double)tables->sums.unsynced_bytes));
	if (have_rates(tables))
		page_print(&tables->page, "             (per second: over the last %.1f s)\n",
		    (double)(tables->rates->now->at_ns - tables->rates->before->at_ns) / CLOCK_NS_PER_S);
}

/* What /healthz says, when that is not "ok". */
static void
put_health(struct tables *tables)
{
	struct evbuffer *lines = evbuffer_new();
	char *line;

	if (lines == NULL || pages_health(tables->view, lines) < 0)
		tables->page.failed = true;
	else if (evbuffer_search(lines, "ok\n", 3, NULL).pos != 0)
		while ((line = evbuffer_readln(lines, NULL, EVBUFFER_EOL_LF)) != NULL) {
			page_print(&tables->page, "NOT WELL     %s\n", line);
			free(line);
		}
	if (lines != NULL)
		evbuffer_free(lines);
}

/* ---- workers ---- */

/* "3: 2 killed, 1 requested", or "0". */
static void
restarts_text(const struct pages_worker *worker, char *to, size_t room)
{
	int64_t sum = 0;
	size_t used;

	for (int reason = 0; reason < RESTART_REASON_COUNT; reason++)
		sum += worker->restarts[reason];
	used = (size_t)snprintf(to, room, "%lld", (long long)sum);
	for (int reason = 0, told = 0; reason < RESTART_REASON_COUNT && used < room; reason++)
		if (worker->restarts[reason] > 0)
			used += (size_t)snprintf(to + used, room - used, "%s%lld %s", told++ == 0 ? ": " : ", ",
			    (long long)worker->restarts[reason], restart_reason_name((enum restart_reason)reason));
}

static void
put_last_restart(struct tables *tables, const struct pages_worker *worker)
{
	int64_t ago_ms = tables->view->wall_ms - worker->last_wall_ms;
	char ago[CELL_BYTES];

	if (!worker->restarted)
		return;
	page_print(&tables->page, "; last %s %s ago", restart_reason_name(worker->last_reason),
	    duration(ago, ago_ms > 0 ? ago_ms / 1000 : 0));
	if (worker->last_pause_ns >= 0)
		page_print(&tables->page, ", away for %.1f ms", (double)worker->last_pause_ns / CLOCK_NS_PER_MS);
}

/* What a planned restart would change. */
static void
put_outdated(struct tables *tables, const struct pages_worker *worker)
{
	if (worker->old_settings)
		page_put_text(&tables->page, "; has old settings");
	if (worker->old_program)
		page_put_text(&tables->page, "; runs an old program");
}

static void
put_worker(struct tables *tables, int32_t number)
{
	const struct pages_worker *worker = &tables->view->workers[number];
	const struct board_worker *board = worker->board->worker;
	int64_t age_ns = pages_heartbeat_age_ns(tables->view, number);
	char pid[CELL_BYTES] = "-", beat[CELL_BYTES] = "-", buffered[CELL_BYTES], restarts[RESTARTS_BYTES];
	const char *state = worker->failing ? "failing" : worker->state == RESTART_SERVING &&
	    worker->replacement != REPLACE_NONE ? "being replaced" : restart_state_name(worker->state);

	if (worker->pid > 0)
		snprintf(pid, sizeof(pid), "%lld", (long long)worker->pid);
	if (age_ns >= 0)
		snprintf(beat, sizeof(beat), "%.1fs", (double)age_ns / CLOCK_NS_PER_S);
	restarts_text(worker, restarts, sizeof(restarts));
	page_print(&tables->page, "%6d %-20s %8s %6s %11lld %8lld %10s  %s", (int)number, state, pid, beat,
	    (long long)worker->connections, (long long)board_get(&board->fetch_held),
	    size(buffered, (double)board_get(&board->buffered_bytes)), restarts);
	put_last_restart(tables, worker);
	put_outdated(tables, worker);
	page_put_text(&tables->page, "\n");
}

static void
put_workers(struct tables *tables)
{
	page_print(&tables->page, "\n%6s %-20s %8s %6s %11s %8s %10s  %s\n", "WORKER", "STATE", "PID", "BEAT", "CONNECTIONS", "HELD",
	    "BUFFERED", "RESTARTS");
	for (int32_t i = 0; i < tables->view->topics->group_count; i++)
		put_worker(tables, i);
}

/* ---- partitions ---- */

/* `index` counts the partitions of all topics. */
static void
put_partition_rates(struct tables *tables, int64_t index)
{
	const struct rates *rates = tables->rates;
	char bytes[CELL_BYTES];

	if (!have_rates(tables)) {
		page_print(&tables->page, " %10s %12s\n", "-", "-");
		return;
	}
	page_print(&tables->page, " %10.1f %12s\n",
	    rates_per_second(rates, rates->now->partitions[index].records, rates->before->partitions[index].records),
	    size(bytes, rates_per_second(rates, rates->now->partitions[index].bytes, rates->before->partitions[index].bytes)));
}

static void
put_partition(struct tables *tables, const struct topic *topic, int32_t partition, int width)
{
	const struct pages_view *view = tables->view;
	int32_t group = topics_group(view->topics, topic, partition);
	const struct board_partition *slot =
	    &view->workers[group].board->slots[topics_slot(view->topics, topic, partition)];
	int64_t log_start, high_watermark, durable_end;
	char records[CELL_BYTES], unsynced[CELL_BYTES];

	page_print(&tables->page, "%-*s %9d %6d %-10s", width, topic->name, (int)partition, (int)group,
	    pages_partition_state(slot));
	board_read(slot, &log_start, &high_watermark, &durable_end);
	if (atomic_load_explicit(&slot->opened, memory_order_acquire) != 0)
		page_print(&tables->page, " %12lld %12lld %12lld", (long long)log_start, (long long)high_watermark,
		    (long long)durable_end);
	else
		page_print(&tables->page, " %12s %12s %12s", "-", "-", "-");
	page_print(&tables->page, " %10s %8lld %10s", size(records, (double)board_get(&slot->size_bytes)),
	    (long long)board_get(&slot->segments), size(unsynced, (double)board_get(&slot->unsynced_bytes)));
}

static void
put_partitions(struct tables *tables)
{
	const struct topics *topics = tables->view->topics;
	int width = (int)strlen("TOPIC");
	int64_t index = 0;

	for (int32_t i = 0; i < topics->count; i++)
		if ((int)strlen(topics->list[i].name) > width)
			width = (int)strlen(topics->list[i].name);
	page_print(&tables->page, "\n%-*s %9s %6s %-10s %12s %12s %12s %10s %8s %10s %10s %12s\n", width, "TOPIC", "PARTITION",
	    "GROUP", "STATE", "START", "WATERMARK", "DURABLE", "SIZE", "SEGMENTS", "UNSYNCED", "RECORDS/S", "BYTES/S");
	for (int32_t i = 0; i < topics->count; i++)
		for (int32_t k = 0; k < topics->list[i].partition_count; k++) {
			put_partition(tables, &topics->list[i], k, width);
			put_partition_rates(tables, index++);
		}
}

int
pages_status_text(const struct pages_view *view, const struct rates *rates, struct evbuffer *to)
{
	struct tables tables = { .page.to = to, .view = view, .rates = rates };

	sum_up(&tables);
	put_head(&tables);
	if (rates != NULL)
		put_traffic(&tables);
	put_disk(&tables);
	put_health(&tables);
	put_workers(&tables);
	put_partitions(&tables);
	return page_end(&tables.page);
}
