/* Rendering; see pages.h. With 100,000 partitions /metrics has a million lines, so they are put together without printf. */
#include "supervisor/pages.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/codec.h"
#include "supervisor/page.h"

enum {
	LABELS_BYTES = 2 * CODEC_TOPIC_NAME_MAX + 64,
	LINE_BYTES = 512,
};

static void
put_seconds(struct page *page, int64_t ns)
{
	char text[64];

	snprintf(text, sizeof(text), "%lld.%09lld", (long long)(ns / CLOCK_NS_PER_S), (long long)(ns % CLOCK_NS_PER_S));
	page_put_text(page, ns < 0 ? "0" : text);
}

/* A label's value with what Prometheus wants escaped; `to` has room for twice the length. Returns the end. */
static char *
escape(char *to, const char *value)
{
	for (; *value != '\0'; value++) {
		if (*value == '\\' || *value == '"' || *value == '\n')
			*to++ = '\\';
		*to++ = *value == '\n' ? 'n' : *value;
	}
	return to;
}

static void
head(struct page *page, const char *name, const char *type, const char *help)
{
	page_put_text(page, "# HELP logbroker_");
	page_put_text(page, name);
	page_put_text(page, " ");
	page_put_text(page, help);
	page_put_text(page, "\n# TYPE logbroker_");
	page_put_text(page, name);
	page_put_text(page, " ");
	page_put_text(page, type);
	page_put_text(page, "\n");
}

/* One line. `labels` is what stands between the braces, or "". */
static void
sample_start(struct page *page, const char *name, const char *labels)
{
	page_put(page, "logbroker_", 10);
	page_put_text(page, name);
	if (*labels != '\0') {
		page_put(page, "{", 1);
		page_put_text(page, labels);
		page_put(page, "}", 1);
	}
	page_put(page, " ", 1);
}

static void
sample(struct page *page, const char *name, const char *labels, int64_t value)
{
	sample_start(page, name, labels);
	page_put_number(page, value);
	page_put(page, "\n", 1);
}

static void
single(struct page *page, const char *name, const char *type, const char *help, int64_t value)
{
	head(page, name, type, help);
	sample(page, name, "", value);
}

/* ---- sums over the workers ---- */

/* A counter's place in struct board_worker, so that one function can add up any of them. */
static int64_t
sum(const struct pages_view *view, size_t offset)
{
	uint64_t total = 0;

	for (int32_t i = 0; i < view->topics->group_count; i++) {
		const char *worker = (const char *)view->workers[i].board->worker;

		total += (uint64_t)board_get((const board_counter *)(worker + offset));
	}
	return (int64_t)total;
}

#define SUM(view, field) sum(view, offsetof(struct board_worker, field))

static int64_t
closed(const struct pages_view *view)
{
	int64_t total = SUM(view, connections_closed);

	for (int32_t i = 0; i < view->topics->group_count; i++)
		total = (int64_t)((uint64_t)total + (uint64_t)view->workers[i].connections_ended);
	return total;
}

static const char *const api_names[BOARD_API_COUNT] = { "produce", "fetch", "metadata", "other" };

static void
put_requests(struct page *page, const struct pages_view *view)
{
	char labels[LABELS_BYTES];

	head(page, "requests_total", "counter", "Requests that were answered (or, without acknowledgement, executed).");
	for (size_t api = 0; api < BOARD_API_COUNT; api++)
		for (size_t code = 0; code < CODEC_ERROR_COUNT; code++) {
			size_t offset = offsetof(struct board_worker, requests) +
			    (api * CODEC_ERROR_COUNT + code) * sizeof(board_counter);

			snprintf(labels, sizeof(labels), "api=\"%s\",code=\"%s\"", api_names[api],
			    codec_error_name((int)code));
			sample(page, "requests_total", labels, sum(view, offset));
		}
}

/* Buckets as Prometheus wants them: cumulative, in seconds. `offset` is the histogram's place in struct board_worker. */
static void
put_histogram(struct page *page, const struct pages_view *view, const char *name, const char *more_labels, size_t offset)
{
	char labels[LABELS_BYTES], series[128];
	const char *comma = *more_labels == '\0' ? "" : ",";
	uint64_t count = 0;

	snprintf(series, sizeof(series), "%s_bucket", name);
	for (size_t i = 0; i < BOARD_BUCKETS; i++) {
		count += (uint64_t)sum(view, offset + offsetof(struct board_histogram, buckets) + i * sizeof(board_counter));
		if (i < BOARD_BUCKETS - 1)
			snprintf(labels, sizeof(labels), "%s%sle=\"%g\"", more_labels, comma,
			    (double)board_bucket_us[i] / 1e6);
		else
			snprintf(labels, sizeof(labels), "%s%sle=\"+Inf\"", more_labels, comma);
		sample(page, series, labels, (int64_t)count);
	}
	snprintf(series, sizeof(series), "%s_sum", name);
	sample_start(page, series, more_labels);
	put_seconds(page, sum(view, offset + offsetof(struct board_histogram, sum_ns)));
	page_put_text(page, "\n");
	snprintf(series, sizeof(series), "%s_count", name);
	sample(page, series, more_labels, (int64_t)count);
}

static void
put_durations(struct page *page, const struct pages_view *view)
{
	char labels[LABELS_BYTES];

	head(page, "request_duration_seconds", "histogram", "From a request's arrival to its answer, without deliberate waits.");
	for (size_t api = 0; api < BOARD_API_COUNT; api++) {
		snprintf(labels, sizeof(labels), "api=\"%s\"", api_names[api]);
		put_histogram(page, view, "request_duration_seconds", labels,
		    offsetof(struct board_worker, request_duration) + api * sizeof(struct board_histogram));
	}
	head(page, "fsync_duration_seconds", "histogram", "Barriers (fdatasync of a partition's active segment).");
	put_histogram(page, view, "fsync_duration_seconds", "", offsetof(struct board_worker, fsync_duration));
}

/* A row of counters that differ in one label. */
static void
put_array(struct page *page, const struct pages_view *view, const char *name, const char *label,
    const char *const *values, size_t count, size_t offset)
{
	char labels[LABELS_BYTES];

	for (size_t i = 0; i < count; i++) {
		snprintf(labels, sizeof(labels), "%s=\"%s\"", label, values[i]);
		sample(page, name, labels, sum(view, offset + i * sizeof(board_counter)));
	}
}

static void
put_worker_sums(struct page *page, const struct pages_view *view)
{
	static const char *const causes[BOARD_WAKEUP_COUNT] = { "data", "timeout", "stop", "end", "failure",
		"retention" };
	static const char *const operations[BOARD_OPERATION_COUNT] = { "open", "read", "write", "force", "roll",
		"retention" };

	single(page, "connection_handoffs_total", "counter", "Connections that went on to the worker of another group.",
	    SUM(view, handoffs));
	single(page, "connections_closed_total", "counter", "Connections that have ended in a worker, or with it.", closed(view));
	single(page, "connections_overflowed_total", "counter", "Of them: closed because buffer_bytes was reached.",
	    SUM(view, connections_overflowed));
	single(page, "connections_timed_out_total", "counter", "Of them: closed after request_timeout.",
	    SUM(view, connections_timed_out));
	single(page, "connections_idle_total", "counter", "Of them: closed after idle_timeout.",
	    SUM(view, connections_idle));
	put_requests(page, view);
	put_durations(page, view);
	single(page, "fetch_held", "gauge", "FETCH requests that wait for data.", SUM(view, fetch_held));
	head(page, "fetch_wakeups_total", "counter", "Ends of such waits, by cause.");
	put_array(page, view, "fetch_wakeups_total", "cause", causes, BOARD_WAKEUP_COUNT,
	    offsetof(struct board_worker, fetch_wakeups));
	head(page, "fetched_bytes_total", "counter", "Bytes of records sent, by path.");
	sample(page, "fetched_bytes_total", "path=\"sendfile\"", SUM(view, fetched_bytes));
	single(page, "fsync_failures_total", "counter", "Barriers that have failed.", SUM(view, fsync_failures));
	head(page, "storage_errors_total", "counter", "Failed operations on logs, by operation.");
	put_array(page, view, "storage_errors_total", "op", operations, BOARD_OPERATION_COUNT,
	    offsetof(struct board_worker, storage_errors));
	single(page, "recovery_truncated_bytes_total", "counter", "Bytes that recovery has cut from logs' ends.",
	    SUM(view, truncated_bytes));
	single(page, "buffered_bytes", "gauge", "Received parts of frames and unsent answers in the workers' memory.",
	    SUM(view, buffered_bytes));
}

/* ---- partitions ---- */

enum series {
	LOG_START, HIGH_WATERMARK, DURABLE_OFFSET, SIZE_BYTES, SEGMENTS, FAILED, PRODUCED_RECORDS, PRODUCED_BYTES,
	SERIES_COUNT
};

static const struct {
	const char *name, *type, *help;
} series_heads[SERIES_COUNT] = {
	[LOG_START] = { "partition_log_start_offset", "gauge", "The first offset that can be read." },
	[HIGH_WATERMARK] = { "partition_high_watermark", "gauge", "The offset behind the last record that can be read." },
	[DURABLE_OFFSET] = { "partition_durable_offset", "gauge", "The offset that a successful barrier has reached." },
	[SIZE_BYTES] = { "partition_size_bytes", "gauge", "Bytes of records." },
	[SEGMENTS] = { "partition_segments", "gauge", "Segment files." },
	[FAILED] = { "partition_failed", "gauge", "1 when its log could not be opened or trusted, or a force has failed and it "
	    "takes no writes until it has been read from the disk again; a full disk is not told here." },
	[PRODUCED_RECORDS] = { "produced_records_total", "counter", "Records appended." },
	[PRODUCED_BYTES] = { "produced_bytes_total", "counter", "Bytes of payload appended." },
};

const char *
pages_partition_state(const struct board_partition *slot)
{
	switch (atomic_load_explicit(&slot->state, memory_order_acquire)) {
	case BOARD_OPEN:
		return "open";
	case BOARD_CLOSED:
		return "closed";
	case BOARD_FAILED:
		return "failed";
	default:
		return "not opened";
	}
}

static bool
is_broken(const struct board_partition *slot)
{
	int32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);

	return state == BOARD_CLOSED || state == BOARD_FAILED;
}

/* Returns false when there is nothing to show: a log that was never open has no offsets. */
static bool
series_value(const struct board_partition *slot, enum series series, int64_t *value)
{
	int64_t log_start, high_watermark, durable_end;

	switch (series) {
	case LOG_START:
	case HIGH_WATERMARK:
	case DURABLE_OFFSET:
		board_read(slot, &log_start, &high_watermark, &durable_end);
		*value = series == LOG_START ? log_start : series == HIGH_WATERMARK ? high_watermark : durable_end;
		return atomic_load_explicit(&slot->opened, memory_order_acquire) != 0;
	case SIZE_BYTES:
		*value = board_get(&slot->size_bytes);
		return true;
	case SEGMENTS:
		*value = board_get(&slot->segments);
		return true;
	case FAILED:
		*value = is_broken(slot);
		return true;
	case PRODUCED_RECORDS:
		*value = board_get(&slot->produced_records);
		return true;
	case PRODUCED_BYTES:
		*value = board_get(&slot->produced_bytes);
		return true;
	case SERIES_COUNT:
		break;
	}
	return false;
}

static const struct board_partition *
slot_of(const struct pages_view *view, const struct topic *topic, int32_t partition)
{
	int32_t group = topics_group(view->topics, topic, partition);

	return &view->workers[group].board->slots[topics_slot(view->topics, topic, partition)];
}

static void
put_topic_series(struct page *page, const struct pages_view *view, const struct topic *topic, enum series series)
{
	char start[LABELS_BYTES + 64], *to;
	size_t length;

	to = start + snprintf(start, sizeof(start), "logbroker_%s{topic=\"", series_heads[series].name);
	to = escape(to, topic->name);
	memcpy(to, "\",partition=\"", 13);
	length = (size_t)(to + 13 - start);
	for (int32_t partition = 0; partition < topic->partition_count; partition++) {
		int64_t value;

		if (!series_value(slot_of(view, topic, partition), series, &value))
			continue;
		page_put(page, start, length);
		page_put_number(page, partition);
		page_put(page, "\"} ", 3);
		page_put_number(page, value);
		page_put(page, "\n", 1);
	}
}

static void
put_partitions(struct page *page, const struct pages_view *view)
{
	uint64_t unsynced = 0;

	for (int series = 0; series < SERIES_COUNT; series++) {
		head(page, series_heads[series].name, series_heads[series].type, series_heads[series].help);
		for (int32_t i = 0; i < view->topics->count; i++)
			put_topic_series(page, view, &view->topics->list[i], (enum series)series);
	}
	for (int32_t group = 0; group < view->topics->group_count; group++)
		for (int32_t slot = 0; slot < view->topics->slot_counts[group]; slot++)
			unsynced += (uint64_t)board_get(&view->workers[group].board->slots[slot].unsynced_bytes);
	single(page, "unsynced_bytes", "gauge", "Bytes written and not yet forced.", (int64_t)unsynced);
}

/* ---- the supervisor's own ---- */

static void
put_workers(struct page *page, const struct pages_view *view)
{
	char labels[LABELS_BYTES];

	head(page, "worker_up", "gauge", "1 while the worker serves.");
	for (int32_t i = 0; i < view->topics->group_count; i++) {
		snprintf(labels, sizeof(labels), "worker=\"%d\"", (int)i);
		sample(page, "worker_up", labels, view->workers[i].state == RESTART_SERVING);
	}
	head(page, "worker_restarts_total", "counter", "Restarts of the worker, by reason.");
	for (int32_t i = 0; i < view->topics->group_count; i++)
		for (int reason = 0; reason < RESTART_REASON_COUNT; reason++) {
			snprintf(labels, sizeof(labels), "worker=\"%d\",reason=\"%s\"", (int)i,
			    restart_reason_name((enum restart_reason)reason));
			sample(page, "worker_restarts_total", labels, view->workers[i].restarts[reason]);
		}
}

static void
put_supervisor(struct page *page, const struct pages_view *view)
{
	char labels[LABELS_BYTES], *to = labels;

	single(page, "connections", "gauge", "Clients that are connected.", view->connections);
	single(page, "connections_parked", "gauge", "Of them: waiting for a worker that is away.", view->connections_parked);
	single(page, "connections_accepted_total", "counter", "Clients that have connected.", view->connections_accepted);
	single(page, "connections_refused_total", "counter", "Of them: closed at once, max_connections were there.",
	    view->connections_refused);
	head(page, "connections_dropped_total", "counter", "Connections that ended in the supervisor, by reason.");
	sample(page, "connections_dropped_total", "reason=\"worker_away\"", view->parked_timed_out);
	sample(page, "connections_dropped_total", "reason=\"peer_gone\"", view->parked_hung_up);
	sample(page, "connections_dropped_total", "reason=\"other\"", view->dropped);
	single(page, "accept_pauses_total", "counter", "Pauses of 100 ms because descriptors were short.", view->accept_pauses);
	put_workers(page, view);
	if (view->data_free_bytes >= 0)
		single(page, "data_free_bytes", "gauge", "Free space of the data directory's file system.",
		    view->data_free_bytes);
	single(page, "ready", "gauge", "1 once connections are accepted.", view->ready && !view->stopping);
	head(page, "build_info", "gauge", "1; the version is in the label.");
	memcpy(to, "version=\"", 9);
	to = escape(to + 9, view->version);
	memcpy(to, "\"", 2);
	sample(page, "build_info", labels, 1);
}

int
pages_metrics(const struct pages_view *view, struct evbuffer *to)
{
	struct page page = { .to = to };

	put_supervisor(&page, view);
	put_worker_sums(&page, view);
	put_partitions(&page, view);
	return page_end(&page);
}

/* ---- health ---- */

__attribute__((format(printf, 3, 4))) static void
reason(struct page *page, int *count, const char *format, ...)
{
	char line[LINE_BYTES];
	va_list arguments;

	if ((*count)++ >= PAGES_REASONS_MAX)
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	page_put_text(page, line);
	page_put_text(page, "\n");
}

int64_t
pages_heartbeat_age_ns(const struct pages_view *view, int32_t number)
{
	int64_t heartbeat_ns = board_get(&view->workers[number].board->worker->heartbeat_ns);

	if (heartbeat_ns <= 0)
		return -1;
	return heartbeat_ns < view->now_ns ? view->now_ns - heartbeat_ns : 0;
}

static bool
is_alive(const struct pages_view *view, int32_t number, int64_t since_ns)
{
	return view->workers[number].state != RESTART_SERVING ||
	    board_get(&view->workers[number].board->worker->heartbeat_ns) >= since_ns;
}

bool
pages_alive(const struct pages_view *view, int64_t since_ns)
{
	for (int32_t i = 0; i < view->topics->group_count; i++)
		if (!is_alive(view, i, since_ns))
			return false;
	return true;
}

/* What an operator has asked for is no reason to wake him, as long as it goes well. */
static bool
takes_over(const struct pages_view *view, const struct pages_worker *worker)
{
	return worker->takeover_ns != 0 &&
	    view->now_ns - worker->takeover_ns < PAGES_TAKEOVER_S * (int64_t)CLOCK_NS_PER_S;
}

/* since_ns 0: nobody has waited for a sign of life. */
static void
worker_health(struct page *page, int *count, const struct pages_view *view, int32_t number, int64_t since_ns)
{
	const struct pages_worker *worker = &view->workers[number];
	int64_t silence_s = pages_heartbeat_age_ns(view, number) / CLOCK_NS_PER_S;
	bool missed = !is_alive(view, number, since_ns) && silence_s >= PAGES_MISSED_S;

	if (worker->failing)
		reason(page, count, "worker %d: failing, died %d times in a row (%s)", (int)number, worker->failures,
		    restart_state_name(worker->state));
	else if (worker->state != RESTART_SERVING && !takes_over(view, worker))
		reason(page, count, "worker %d: down (%s)", (int)number, restart_state_name(worker->state));
	else if (silence_s >= PAGES_SILENT_S || missed)
		reason(page, count, "worker %d: gives no sign of life for %lld s", (int)number, (long long)silence_s);
}

static void
partition_health(struct page *page, int *count, const struct pages_view *view, const struct topic *topic,
    int32_t partition)
{
	const struct board_partition *slot = slot_of(view, topic, partition);
	bool serves = view->workers[topics_group(view->topics, topic, partition)].state == RESTART_SERVING;

	switch (atomic_load_explicit(&slot->state, memory_order_acquire)) {
	case BOARD_OPEN:
		break;
	case BOARD_CLOSED:
		reason(page, count, "partition %s-%d: closed, could not be opened or trusted", topic->name, (int)partition);
		break;
	case BOARD_FAILED:
		reason(page, count, "partition %s-%d: failed, takes no writes until its log is read from the disk again",
		    topic->name, (int)partition);
		break;
	default:
		if (serves)	/* otherwise the worker's own line says it */
			reason(page, count, "partition %s-%d: not opened", topic->name, (int)partition);
		break;
	}
}

int
pages_check(const struct pages_view *view, int64_t since_ns, struct evbuffer *to)
{
	struct page page = { .to = to };
	char line[LINE_BYTES];
	int count = 0;

	for (int32_t i = 0; i < view->topics->group_count; i++)
		worker_health(&page, &count, view, i, since_ns);
	for (int32_t i = 0; i < view->topics->count; i++)
		for (int32_t partition = 0; partition < view->topics->list[i].partition_count; partition++)
			partition_health(&page, &count, view, &view->topics->list[i], partition);
	if (count > PAGES_REASONS_MAX) {
		snprintf(line, sizeof(line), "and %d more\n", count - PAGES_REASONS_MAX);
		page_put_text(&page, line);
	}
	if (count == 0)
		page_put_text(&page, "ok\n");
	if (page_end(&page) != 0)
		return -1;
	return count == 0 ? 200 : 503;
}

int
pages_health(const struct pages_view *view, struct evbuffer *to)
{
	return pages_check(view, 0, to);
}

int
pages_ready(const struct pages_view *view, struct evbuffer *to)
{
	struct page page = { .to = to };
	bool ready = view->ready && !view->stopping;

	page_put_text(&page, ready ? "ready\n" : view->stopping ? "stopping\n" : "starting: the workers open their logs\n");
	if (page_end(&page) != 0)
		return -1;
	return ready ? 200 : 503;
}
