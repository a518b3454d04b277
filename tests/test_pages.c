/* Pages rendered from boards filled by hand. */
#include "supervisor/pages.h"

#include <check.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"

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
	SRunner *runner;
	int failed;

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
	tcase_add_test(small, readiness);
	tcase_add_test(large, a_hundred_thousand_partitions);
	suite_add_tcase(suite, small);
	suite_add_tcase(suite, large);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
