/* Pages rendered from boards filled by hand. */
#include "supervisor/pages.h"

#include <check.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "supervisor/page.h"
#include "supervisor/rates.h"
#include "tests/unit.h"

enum { GROUPS = 2 };

static struct topics topics;
static struct board boards[GROUPS];
static struct pages_worker workers[GROUPS];
static int64_t restarts[GROUPS][RESTART_REASON_COUNT];
static struct pages_view view;

static void
add_topic(const char *name, int32_t partitions)
{
	struct topic topic = { .partition_count = partitions, .spread = true };

	snprintf(topic.name, sizeof(topic.name), "%s", name);
	ck_assert_int_eq(topics_add(&topics, &topic), 0);
}

static void
make_view(void)
{
	memset(restarts, 0, sizeof(restarts));
	for (int32_t group = 0; group < GROUPS; group++) {
		int fd = board_create(topics.slot_counts[group]);

		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(board_map(&boards[group], fd, topics.slot_counts[group], true), 0);
		close(fd);
		workers[group] = (struct pages_worker){ .state = RESTART_SERVING, .restarts = restarts[group],
			.board = &boards[group] };
		for (int32_t slot = 0; slot < topics.slot_counts[group]; slot++) {
			boards[group].slots[slot].state = BOARD_OPEN;
			boards[group].slots[slot].opened = 1;
		}
	}
	view = (struct pages_view){ .version = "1.2\"3\\", .now_ns = 100 * (int64_t)CLOCK_NS_PER_S, .ready = true,
		.data_free_bytes = 12345, .topics = &topics, .workers = workers };
}

static void
set_up(void)
{
	ck_assert_int_eq(topics_init(&topics, GROUPS), 0);
	add_topic("a", 3);
	add_topic("b.c-d_e", 1);
	make_view();
}

static void
tear_down(void)
{
	for (int32_t group = 0; group < GROUPS; group++)
		board_unmap(&boards[group]);
	topics_free(&topics);
}

/* The rendered page; freed by the caller. */
static char *
render(int (*page)(const struct pages_view *view, struct evbuffer *to), int expected)
{
	struct evbuffer *buffer = evbuffer_new();
	size_t length;
	char *text;

	ck_assert_int_eq(page(&view, buffer), expected);
	length = evbuffer_get_length(buffer);
	text = malloc(length + 1);
	ck_assert_ptr_nonnull(text);
	evbuffer_remove(buffer, text, length);
	text[length] = '\0';
	evbuffer_free(buffer);
	return text;
}

static void
assert_line(const char *page, const char *line)
{
	const char *at = page;
	size_t length = strlen(line);

	while ((at = strstr(at, line)) != NULL) {
		if ((at == page || at[-1] == '\n') && at[length] == '\n')
			return;
		at++;
	}
	ck_abort_msg("no line '%s' in\n%s", line, page);
}

static struct board_partition *
slot(int topic, int32_t partition)
{
	return &boards[topics_group(&topics, &topics.list[topic], partition)]
	    .slots[topics_slot(&topics, &topics.list[topic], partition)];
}

START_TEST(everything_is_there_and_zero_at_first)
{
	static const char *const lines[] = {
		"logbroker_connections 0", "logbroker_connection_handoffs_total 0",
		"logbroker_requests_total{api=\"produce\",code=\"NONE\"} 0",
		"logbroker_requests_total{api=\"other\",code=\"UNSUPPORTED_VERSION\"} 0",
		"logbroker_requests_total{api=\"metadata\",code=\"STORAGE_FAILURE\"} 0",
		"logbroker_request_duration_seconds_count{api=\"fetch\"} 0", "logbroker_fetch_held 0",
		"logbroker_fetch_wakeups_total{cause=\"data\"} 0", "logbroker_fetch_wakeups_total{cause=\"timeout\"} 0",
		"logbroker_produced_records_total{topic=\"a\",partition=\"2\"} 0",
		"logbroker_produced_bytes_total{topic=\"b.c-d_e\",partition=\"0\"} 0",
		"logbroker_fetched_bytes_total{path=\"sendfile\"} 0", "logbroker_fsync_duration_seconds_count 0",
		"logbroker_fsync_duration_seconds_sum 0.000000000", "logbroker_fsync_failures_total 0",
		"logbroker_fetch_wakeups_total{cause=\"retention\"} 0",
		"logbroker_storage_errors_total{op=\"open\"} 0", "logbroker_storage_errors_total{op=\"roll\"} 0",
		"logbroker_storage_errors_total{op=\"retention\"} 0",
		"logbroker_unsynced_bytes 0", "logbroker_partition_log_start_offset{topic=\"a\",partition=\"0\"} 0",
		"logbroker_partition_high_watermark{topic=\"a\",partition=\"1\"} 0",
		"logbroker_partition_durable_offset{topic=\"a\",partition=\"2\"} 0",
		"logbroker_partition_size_bytes{topic=\"a\",partition=\"0\"} 0",
		"logbroker_partition_segments{topic=\"a\",partition=\"0\"} 0",
		"logbroker_partition_failed{topic=\"a\",partition=\"0\"} 0", "logbroker_worker_up{worker=\"0\"} 1",
		"logbroker_worker_up{worker=\"1\"} 1", "logbroker_worker_restarts_total{worker=\"1\",reason=\"killed\"} 0",
		"logbroker_recovery_truncated_bytes_total 0", "logbroker_data_free_bytes 12345", "logbroker_ready 1",
		"logbroker_build_info{version=\"1.2\\\"3\\\\\"} 1",
	};
	char *page = render(pages_metrics, 0);

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		assert_line(page, lines[i]);
	free(page);
}
END_TEST

START_TEST(numbers_of_workers_are_added_up)
{
	char *page;

	boards[0].worker->handoffs = 3;
	boards[1].worker->handoffs = 4;
	boards[0].worker->requests[BOARD_FETCH][CODEC_OFFSET_OUT_OF_RANGE] = 5;
	boards[1].worker->requests[BOARD_FETCH][CODEC_OFFSET_OUT_OF_RANGE] = 6;
	boards[1].worker->fetch_wakeups[BOARD_WAKEUP_FAILURE] = 7;
	boards[0].worker->storage_errors[BOARD_FORCE] = 8;
	boards[1].worker->truncated_bytes = INT64_C(5000000000);
	slot(0, 1)->unsynced_bytes = 10;
	slot(1, 0)->unsynced_bytes = 11;
	restarts[1][RESTART_BY_CRASH] = 12;
	page = render(pages_metrics, 0);
	assert_line(page, "logbroker_connection_handoffs_total 7");
	assert_line(page, "logbroker_requests_total{api=\"fetch\",code=\"OFFSET_OUT_OF_RANGE\"} 11");
	assert_line(page, "logbroker_fetch_wakeups_total{cause=\"failure\"} 7");
	assert_line(page, "logbroker_storage_errors_total{op=\"force\"} 8");
	assert_line(page, "logbroker_recovery_truncated_bytes_total 5000000000");
	assert_line(page, "logbroker_unsynced_bytes 21");
	assert_line(page, "logbroker_worker_restarts_total{worker=\"1\",reason=\"crashed\"} 12");
	free(page);
}
END_TEST

START_TEST(partitions_have_their_own_numbers)
{
	char *page;

	for (int32_t partition = 0; partition < 3; partition++)
		board_publish(slot(0, partition), partition, 100 + partition, 50 + partition);
	slot(0, 2)->state = BOARD_FAILED;
	slot(0, 2)->size_bytes = INT64_MAX;
	slot(1, 0)->state = BOARD_CLOSED;
	slot(1, 0)->opened = 0;
	page = render(pages_metrics, 0);
	for (int partition = 0; partition < 3; partition++) {
		char line[128];

		snprintf(line, sizeof(line), "logbroker_partition_log_start_offset{topic=\"a\",partition=\"%d\"} %d", partition,
		    partition);
		assert_line(page, line);
		snprintf(line, sizeof(line), "logbroker_partition_high_watermark{topic=\"a\",partition=\"%d\"} %d", partition,
		    100 + partition);
		assert_line(page, line);
		snprintf(line, sizeof(line), "logbroker_partition_durable_offset{topic=\"a\",partition=\"%d\"} %d", partition,
		    50 + partition);
		assert_line(page, line);
	}
	assert_line(page, "logbroker_partition_failed{topic=\"a\",partition=\"1\"} 0");
	assert_line(page, "logbroker_partition_failed{topic=\"a\",partition=\"2\"} 1");
	assert_line(page, "logbroker_partition_failed{topic=\"b.c-d_e\",partition=\"0\"} 1");
	assert_line(page, "logbroker_partition_size_bytes{topic=\"a\",partition=\"2\"} 9223372036854775807");
	/* Never opened: it has no offsets, and zero would be a lie. */
	ck_assert_ptr_null(strstr(page, "high_watermark{topic=\"b.c-d_e\""));
	free(page);
}
END_TEST

START_TEST(histograms_are_cumulative_and_in_seconds)
{
	char *page;

	board_observe(&boards[0].worker->fsync_duration, 40 * (int64_t)CLOCK_NS_PER_US);
	board_observe(&boards[1].worker->fsync_duration, 150 * (int64_t)CLOCK_NS_PER_US);
	board_observe(&boards[1].worker->fsync_duration, 150 * (int64_t)CLOCK_NS_PER_US);
	board_observe(&boards[0].worker->fsync_duration, 60 * (int64_t)CLOCK_NS_PER_S);
	page = render(pages_metrics, 0);
	assert_line(page, "logbroker_fsync_duration_seconds_bucket{le=\"5e-05\"} 1");
	assert_line(page, "logbroker_fsync_duration_seconds_bucket{le=\"0.0001\"} 1");
	assert_line(page, "logbroker_fsync_duration_seconds_bucket{le=\"0.0002\"} 3");
	assert_line(page, "logbroker_fsync_duration_seconds_bucket{le=\"5\"} 3");
	assert_line(page, "logbroker_fsync_duration_seconds_bucket{le=\"+Inf\"} 4");
	assert_line(page, "logbroker_fsync_duration_seconds_count 4");
	assert_line(page, "logbroker_fsync_duration_seconds_sum 60.000340000");
	free(page);
}
END_TEST

/* What Prometheus wants: HELP and TYPE once, ahead of the samples of their metric, and all of those in one block. */
START_TEST(the_format_is_prometheus)
{
	char *page = render(pages_metrics, 0), *rest = NULL;
	char name[128] = "", seen[16384] = " ";

	for (char *line = strtok_r(page, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
		char found[128], kind[32], mark[160];

		if (sscanf(line, "# HELP %127s", found) == 1) {
			snprintf(mark, sizeof(mark), " %s ", found);
			ck_assert_msg(strstr(seen, mark) == NULL, "%s twice", found);
			strcat(seen, found);
			strcat(seen, " ");
			strcpy(name, found);
		} else if (sscanf(line, "# TYPE %127s %31s", found, kind) == 2) {
			ck_assert_str_eq(found, name);
			ck_assert(strcmp(kind, "gauge") == 0 || strcmp(kind, "counter") == 0 || strcmp(kind, "histogram") == 0);
			ck_assert(strcmp(kind, "counter") != 0 || strcmp(found + strlen(found) - 6, "_total") == 0);
		} else {
			ck_assert_msg(strncmp(line, name, strlen(name)) == 0, "'%s' under %s", line, name);
			ck_assert_ptr_nonnull(strchr(line, ' '));
		}
	}
	free(page);
}
END_TEST

START_TEST(health_names_each_reason)
{
	char *page = render(pages_health, 200);

	ck_assert_str_eq(page, "ok\n");
	free(page);
	workers[0].state = RESTART_WAITING;
	workers[0].failing = true;
	workers[0].failures = 4;
	slot(0, 1)->state = BOARD_FAILED;	/* group 1 */
	slot(1, 0)->state = BOARD_CLOSED;
	page = render(pages_health, 503);
	assert_line(page, "worker 0: failing, died 4 times in a row (waiting)");
	assert_line(page, "partition a-1: failed, takes no writes until its log is read from the disk again");
	assert_line(page, "partition b.c-d_e-0: closed, could not be opened or trusted");
	free(page);
	workers[0].failing = false;
	workers[0].state = RESTART_OPENING;
	page = render(pages_health, 503);
	assert_line(page, "worker 0: down (opening its logs)");
	free(page);
}
END_TEST

/* A planned restart is no alarm, unless it takes long or fails. */
START_TEST(D03_health_stays_green_while_a_worker_is_replaced)
{
	char *page;

	workers[0].state = RESTART_OPENING;
	workers[0].takeover_ns = view.now_ns - PAGES_TAKEOVER_S * (int64_t)CLOCK_NS_PER_S + 1;
	free(render(pages_health, 200));
	workers[0].takeover_ns--;
	page = render(pages_health, 503);
	ck_assert_str_eq(page, "worker 0: down (opening its logs)\n");
	free(page);
	workers[0].takeover_ns = view.now_ns;
	workers[0].failing = true;
	free(render(pages_health, 503));
	workers[0].failing = false;
	slot(0, 0)->state = BOARD_FAILED;
	free(render(pages_health, 503));
}
END_TEST

START_TEST(bug_L1_a_hung_worker_is_not_healthy)
{
	char *page;

	boards[0].worker->heartbeat_ns = view.now_ns - CLOCK_NS_PER_S;
	boards[1].worker->heartbeat_ns = view.now_ns + CLOCK_NS_PER_S;	/* nonsense from outside harms nobody */
	free(render(pages_health, 200));
	boards[1].worker->heartbeat_ns = view.now_ns - 7 * (int64_t)CLOCK_NS_PER_S;
	page = render(pages_health, 503);
	ck_assert_str_eq(page, "worker 1: gives no sign of life for 7 s\n");
	free(page);
}
END_TEST

/* A worker that has been silent for a while is well until somebody has waited for a sign of life in vain. */
START_TEST(bug_L1_a_check_wants_a_sign_of_life)
{
	int64_t asked_ns = view.now_ns - 2 * (int64_t)CLOCK_NS_PER_S;
	struct evbuffer *buffer = evbuffer_new();

	boards[0].worker->heartbeat_ns = view.now_ns;
	boards[1].worker->heartbeat_ns = asked_ns - 1;
	free(render(pages_health, 200));
	ck_assert(!pages_alive(&view, asked_ns));
	ck_assert_int_eq(pages_check(&view, asked_ns, buffer), 503);
	ck_assert_int_eq(evbuffer_search(buffer, "worker 1: gives no sign of life for 2 s\n", 40, NULL).pos, 0);
	boards[1].worker->heartbeat_ns = asked_ns;
	ck_assert(pages_alive(&view, asked_ns));
	evbuffer_drain(buffer, evbuffer_get_length(buffer));
	ck_assert_int_eq(pages_check(&view, asked_ns, buffer), 200);
	/* One that does not serve need not show that it lives: its own line says how it is. */
	workers[1].state = RESTART_WAITING;
	boards[1].worker->heartbeat_ns = 0;
	ck_assert(pages_alive(&view, asked_ns));
	evbuffer_free(buffer);
}
END_TEST

START_TEST(readiness)
{
	char *page = render(pages_ready, 200);

	free(page);
	view.stopping = true;
	page = render(pages_ready, 503);
	ck_assert_str_eq(page, "stopping\n");
	free(page);
	view.stopping = false;
	view.ready = false;
	free(render(pages_ready, 503));
}
END_TEST

/* ---- status ---- */

static const char *skip_json(const char *at);

static const char *
skip_string(const char *at)
{
	for (at++; *at != '"'; at++) {
		if ((unsigned char)*at < ' ' || (unsigned char)*at >= 0x7f)
			ck_abort_msg("a raw byte 0x%02x", *at);
		if (*at == '\\')
			at++;
	}
	return at + 1;
}

/* The members of an object or the elements of an array, at least as long as it is not empty. */
static const char *
skip_list(const char *at, char end)
{
	if (at[1] == end)
		return at + 2;
	do {
		at++;
		if (end == '}') {
			ck_assert_int_eq(*at, '"');
			at = skip_string(at);
			ck_assert_int_eq(*at++, ':');
		}
		at = skip_json(at);
	} while (*at == ',');
	ck_assert_int_eq(*at, end);
	return at + 1;
}

/* One JSON value, of which nothing but its form is looked at. Returns what is behind it. */
static const char *
skip_json(const char *at)
{
	size_t length;

	if (*at == '{')
		return skip_list(at, '}');
	if (*at == '[')
		return skip_list(at, ']');
	if (*at == '"')
		return skip_string(at);
	length = strcspn(at, ",]}");
	ck_assert_msg(strncmp(at, "true", length) == 0 || strncmp(at, "false", length) == 0 || strncmp(at, "null", length) == 0 ||
	    (length > 0 && strspn(at, "-0123456789.") >= length), "no value: %.20s", at);
	return at + length;
}

static char *
render_json(void)
{
	char *page = render(pages_status_json, 0);

	ck_assert_str_eq(skip_json(page), "\n");
	ck_assert_ptr_eq(strchr(page, '\n'), page + strlen(page) - 1);
	return page;
}

static void
assert_holds(const char *page, const char *text)
{
	ck_assert_msg(strstr(page, text) != NULL, "no '%s' in\n%s", text, page);
}

START_TEST(status_json_has_everything)
{
	char *page;

	view.pid = 4711;
	view.started_ns = view.now_ns - 1500 * (int64_t)CLOCK_NS_PER_MS;
	view.connections = 7;
	workers[1] = (struct pages_worker){ .state = RESTART_SERVING, .restarts = restarts[1], .board = &boards[1], .pid = 99,
		.replacement = REPLACE_DRAINING, .connections = 5, .old_program = true, .restarted = true, .last_reason = RESTART_BY_REQUEST,
		.last_wall_ms = 1700000000123, .last_pause_ns = 2500000 };
	restarts[1][RESTART_BY_REQUEST] = 3;
	boards[1].worker->heartbeat_ns = view.now_ns - 250 * (int64_t)CLOCK_NS_PER_MS;
	boards[1].worker->fetch_held = 6;
	boards[1].worker->requests[BOARD_FETCH][CODEC_NONE] = 11;
	boards[1].worker->requests[BOARD_FETCH][CODEC_OFFSET_OUT_OF_RANGE] = 2;
	boards[1].worker->requests[BOARD_FETCH][CODEC_STORAGE_FAILURE] = 3;
	board_publish(slot(0, 2), 10, 30, 20);
	slot(0, 2)->produced_records = 17;
	slot(1, 0)->state = BOARD_CLOSED;
	slot(1, 0)->opened = 0;
	page = render_json();
	assert_holds(page, "{\"version\":\"1.2\\\"3\\\\\",\"pid\":4711,\"uptime_seconds\":1.500000,\"ready\":true,\"stopping\":false,"
	    "\"data_free_bytes\":12345,\"connections\":{\"open\":7,\"parked\":0,\"accepted\":0,\"refused\":0},\"workers\":[{");
	assert_holds(page, "{\"worker\":0,\"pid\":null,\"state\":\"serving\",\"failing\":false,\"replacement\":\"none\","
	    "\"old_settings\":false,\"old_program\":false,\"heartbeat_age_seconds\":null,");
	assert_holds(page, "{\"worker\":1,\"pid\":99,\"state\":\"serving\",\"failing\":false,\"replacement\":\"draining\","
	    "\"old_settings\":false,\"old_program\":true,\"heartbeat_age_seconds\":0.250000,\"connections\":5,\"fetch_held\":6,");
	assert_holds(page, "\"requested\":3");
	assert_holds(page, "\"last_restart\":{\"reason\":\"requested\",\"unix_seconds\":1700000000.123,\"pause_seconds\":0.002500}");
	assert_holds(page, "\"fetch\":{\"done\":11,\"refused\":5}");
	assert_holds(page, "{\"topic\":\"a\",\"partition\":2,\"group\":0,\"state\":\"open\",\"log_start\":10,\"high_watermark\":30,"
	    "\"durable_end\":20,");
	assert_holds(page, "\"produced_records\":17,");
	assert_holds(page, "\"state\":\"closed\",\"log_start\":null,\"high_watermark\":null,\"durable_end\":null,");
	free(page);
}
END_TEST

/* Whatever a worker writes to its board, the page is JSON, and nothing traps. */
START_TEST(status_of_boards_full_of_nonsense)
{
	static const int64_t values[] = { INT64_MIN, INT64_MAX, -1 };
	struct rates rates = { 0 };
	const struct board *list[GROUPS] = { &boards[0], &boards[1] };

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct evbuffer *buffer = evbuffer_new();

		for (int group = 0; group < GROUPS; group++) {
			board_counter *counters = (board_counter *)boards[group].worker;
			board_counter *slots = (board_counter *)boards[group].slots;

			for (size_t k = 0; k < sizeof(struct board_worker) / sizeof(board_counter); k++)
				counters[k] = values[i];
			for (size_t k = 0; k < sizeof(struct board_partition) / sizeof(board_counter); k++)
				slots[k] = values[i];
		}
		free(render_json());
		view.now_ns += 2 * (int64_t)CLOCK_NS_PER_S;
		ck_assert_int_eq(rates_take(&rates, &topics, list, view.now_ns), 0);
		ck_assert_int_eq(pages_status_text(&view, &rates, buffer), 0);
		evbuffer_free(buffer);
	}
	rates_free(&rates);
}
END_TEST

static char *
render_text(const struct rates *rates)
{
	struct evbuffer *buffer = evbuffer_new();
	size_t length;
	char *text;

	ck_assert_int_eq(pages_status_text(&view, rates, buffer), 0);
	length = evbuffer_get_length(buffer);
	text = calloc(1, length + 1);
	evbuffer_remove(buffer, text, length);
	evbuffer_free(buffer);
	return text;
}

START_TEST(status_tables)
{
	const struct board *list[GROUPS] = { &boards[0], &boards[1] };
	struct rates rates = { 0 };
	char *page;

	view.pid = 4711;
	workers[1].state = RESTART_WAITING;
	workers[1].failing = true;
	workers[1].failures = 3;
	workers[1].old_settings = true;
	workers[0].old_program = true;
	restarts[1][RESTART_BY_CRASH] = 2;
	restarts[1][RESTART_BY_KILL] = 1;
	ck_assert_int_eq(rates_take(&rates, &topics, list, view.now_ns), 0);
	page = render_text(&rates);
	assert_holds(page, "pid 4711, up 1min, ready\n");
	assert_holds(page, "produced     0 records, 0 B\n");
	assert_holds(page, "NOT WELL     worker 1: failing, died 3 times in a row (waiting)\n");
	assert_holds(page, "  3: 1 killed, 2 crashed; has old settings\n");
	assert_holds(page, "  0; runs an old program\n");
	free(page);
	view.now_ns += 2 * (int64_t)CLOCK_NS_PER_S;
	slot(0, 0)->produced_records = 500;
	slot(0, 0)->produced_bytes = 4 * 1024 * 1024;
	boards[0].worker->fsync_duration.buckets[3] = 10;
	boards[0].worker->fsync_duration.sum_ns = 15 * (int64_t)CLOCK_NS_PER_MS;
	ck_assert_int_eq(rates_take(&rates, &topics, list, view.now_ns), 0);
	page = render_text(&rates);
	assert_holds(page, "produced     500 records, 4.0 MiB; 250.0/s, 2.0 MiB/s\n");
	assert_holds(page, "barriers     10, 0 failed; 5.0/s, 1.50 ms each\n");
	assert_holds(page, "over the last 2.0 s)\n");
	assert_holds(page, "      250.0      2.0 MiB\n");
	free(page);
	page = render_text(NULL);	/* without memory for samples */
	ck_assert_ptr_null(strstr(page, "produced "));
	free(page);
	rates_free(&rates);
}
END_TEST

/* Those who look often compare with what lies a second back at least; after a long time there is nothing to compare with. */
START_TEST(rates_of_many_looks)
{
	const struct board *list[GROUPS] = { &boards[0], &boards[1] };
	struct rates rates = { 0 };

	ck_assert_int_eq(rates_take(&rates, &topics, list, view.now_ns), 0);
	ck_assert_ptr_null(rates.before);
	for (int i = 1; i <= 100; i++) {
		ck_assert_int_eq(rates_take(&rates, &topics, list, view.now_ns + i * 100 * (int64_t)CLOCK_NS_PER_MS), 0);
		ck_assert_ptr_ne(rates.now, rates.before);
		if (i < 10) {
			ck_assert_ptr_null(rates.before);
			continue;
		}
		ck_assert_int_ge(rates.now->at_ns - rates.before->at_ns, RATES_MIN_MS * (int64_t)CLOCK_NS_PER_MS);
		ck_assert_int_le(rates.now->at_ns - rates.before->at_ns, 2 * RATES_MIN_MS * (int64_t)CLOCK_NS_PER_MS);
	}
	view.now_ns += (10000 + RATES_MAX_MS + 1) * (int64_t)CLOCK_NS_PER_MS;
	ck_assert_int_eq(rates_take(&rates, &topics, list, view.now_ns), 0);
	ck_assert_ptr_null(rates.before);
	rates_free(&rates);
}
END_TEST

START_TEST(json_strings_are_escaped)
{
	struct evbuffer *buffer = evbuffer_new();
	struct page page = { .to = buffer };
	char text[128] = "";

	page_put_json(&page, "a\"b\\c\n\x01\x7f\xff.\u00fc\u20ac\U0001f4dc \xc3 \xed\xa0\x80\xe2\x82");
	ck_assert_int_eq(page_end(&page), 0);
	evbuffer_remove(buffer, text, sizeof(text) - 1);
	ck_assert_str_eq(text, "\"a\\\"b\\\\c\\u000a\\u0001\\u007f\ufffd.\u00fc\u20ac\U0001f4dc \ufffd \ufffd\ufffd\ufffd"
	    "\ufffd\ufffd\"");
	evbuffer_free(buffer);
}
END_TEST

START_TEST(a_hundred_thousand_partitions)
{
	int64_t start_ns;
	char *page;

	ck_assert_int_eq(topics_init(&topics, GROUPS), 0);
	add_topic("huge", TOPICS_PARTITIONS_MAX);
	add_topic("one-more", 1);
	make_view();
	start_ns = clock_now_ns();
	page = render(pages_metrics, 0);
	printf("metrics of 100,000 partitions: %zu bytes in %lld ms\n", strlen(page),
	    (long long)((clock_now_ns() - start_ns) / CLOCK_NS_PER_MS));
	assert_line(page, "logbroker_partition_high_watermark{topic=\"huge\",partition=\"99998\"} 0");
	free(page);
	start_ns = clock_now_ns();
	page = render(pages_status_json, 0);
	printf("status of 100,000 partitions: %zu bytes in %lld ms\n", strlen(page),
	    (long long)((clock_now_ns() - start_ns) / CLOCK_NS_PER_MS));
	free(page);
	for (int32_t group = 0; group < GROUPS; group++)
		for (int32_t i = 0; i < topics.slot_counts[group]; i++)
			boards[group].slots[i].state = BOARD_FAILED;
	page = render(pages_health, 503);
	assert_line(page, "and 99900 more");
	ck_assert_uint_lt(strlen(page), 10000);
	free(page);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("pages");
	TCase *small = tcase_create("small"), *large = tcase_create("large");

	tcase_add_checked_fixture(small, set_up, tear_down);
	tcase_add_checked_fixture(large, NULL, tear_down);
	tcase_set_timeout(large, 30);
	tcase_add_test(small, everything_is_there_and_zero_at_first);
	tcase_add_test(small, numbers_of_workers_are_added_up);
	tcase_add_test(small, partitions_have_their_own_numbers);
	tcase_add_test(small, histograms_are_cumulative_and_in_seconds);
	tcase_add_test(small, the_format_is_prometheus);
	tcase_add_test(small, health_names_each_reason);
	tcase_add_test(small, D03_health_stays_green_while_a_worker_is_replaced);
	tcase_add_test(small, bug_L1_a_hung_worker_is_not_healthy);
	tcase_add_test(small, bug_L1_a_check_wants_a_sign_of_life);
	tcase_add_test(small, readiness);
	tcase_add_test(small, status_json_has_everything);
	tcase_add_test(small, status_of_boards_full_of_nonsense);
	tcase_add_test(small, status_tables);
	tcase_add_test(small, rates_of_many_looks);
	tcase_add_test(small, json_strings_are_escaped);
	tcase_add_test(large, a_hundred_thousand_partitions);
	suite_add_tcase(suite, small);
	suite_add_tcase(suite, large);
	return unit_run(suite);
}
