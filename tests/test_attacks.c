/* What an attack on the running broker found, as tests: limits of the system, files changed from outside, restarts. */
#include <check.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum { SOON_MS = 20000, STORAGE_FAILURE = 6 };

static struct broker broker;

static void
finish(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

static int
connect_http(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)broker.http_port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	return fd;
}

/* A monitor that asks while no descriptor is free must wait; the supervisor must live. */
START_TEST(D09_http_without_descriptors)
{
	int clients[4], status = 0;
	char *page;

	broker_start(&broker, NULL);
	procs_set_fd_limit(broker.pid, procs_lowest_free_fd(broker.pid));
	for (int i = 0; i < 4; i++) {
		clients[i] = connect_http();
		ck_assert_int_gt(write(clients[i], "GET /healthz HTTP/1.0\r\n\r\n", 25), 0);
	}
	ck_assert(broker_wait_log(&broker, "cannot accept an HTTP client", SOON_MS));
	procs_set_fd_limit(broker.pid, 0);
	for (int i = 0; i < 4; i++) {
		char byte;

		ck_assert_int_eq(wire_receive(clients[i], &byte, 1, SOON_MS), 1);
		close(clients[i]);
	}
	page = broker_http_get(&broker, "/healthz", &status);
	ck_assert_int_eq(status, 200);
	free(page);
	finish();
}
END_TEST

/* Killed processes hold the lock until they are gone: that is no other broker. */
START_TEST(killed_and_started_again_at_once)
{
	/* With many files open it takes them a little longer. */
	broker_start(&broker, &(struct broker_config){ .topics = "t = 1000\n" });
	for (int round = 0; round < 6; round++) {
		pid_t pids[BROKER_WORKERS_MAX];
		int count = broker_workers(&broker, pids, BROKER_WORKERS_MAX);

		kill(broker.pid, SIGSTOP);
		for (int i = 0; i < count; i++)
			kill(pids[i], SIGKILL);
		kill(broker.pid, SIGKILL);
		ck_assert_int_eq(broker_wait_exit(&broker, SOON_MS), 128 + SIGKILL);
		broker_restart(&broker, NULL);
	}
	finish();
}
END_TEST

/* RLIMIT_FSIZE makes a write that crosses it an error of that partition, and kills nobody. */
START_TEST(a_file_that_may_grow_no_more)
{
	static uint8_t payload[20000];
	int fd, error, refused = 0;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .wrapper = "prlimit --fsize=65536" });
	fd = wire_connect_tcp(broker.port);
	for (int i = 0; i < 8; i++) {
		error = wire_produce_one(fd, "t", 0, WIRE_WRITTEN, payload, sizeof payload, NULL);
		ck_assert(error == 0 || error == STORAGE_FAILURE);
		refused += error == STORAGE_FAILURE;
	}
	ck_assert_int_ge(refused, 4);
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "x", 1, NULL), 0);
	close(fd);
	/* The same workers as at the start: broker_stop looks. */
	finish();
}
END_TEST

/* A file that somebody has cut under the running broker: what is gone is an error, what is there is served, nothing is cut off. */
START_TEST(a_segment_truncated_from_outside)
{
	struct wire_fetched fetched;
	char path[BROKER_PATH_BYTES];
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n" });
	fd = wire_connect_tcp(broker.port);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_FORCED, "0123456789", 10, NULL), 0);
	broker_partition_path(&broker, "t", 0, 0, path, sizeof path);
	ck_assert_int_eq(truncate(path, 2 * 18), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(wire_fetch(fd, "t", 0, 1, 1000, 0, 0, &fetched), STORAGE_FAILURE);
	ck_assert_int_eq(wire_fetch(fd, "t", 0, 0, 36, 0, 0, &fetched), 0);
	ck_assert_uint_eq(fetched.length, 36);
	wire_fetched_free(&fetched);
	ck_assert(broker_wait_metric(&broker, "logbroker_storage_errors_total", "op=\"read\"", 3, SOON_MS));
	ck_assert(broker_wait_log(&broker, "truncated from outside", SOON_MS));
	ck_assert_int_eq(broker_count_log(&broker, "truncated from outside"), 1);
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "x", 1, NULL), 0);
	close(fd);
	broker_kill(&broker);
	broker_end(&broker);
}
END_TEST

/*
 * And written to: nothing that is there can be gone on from, and no later write mends it. What had been forced is lost, so the
 * partition stays closed, and says so. `_i`: write mode.
 */
START_TEST(a_segment_truncated_from_outside_and_written_to)
{
	char path[BROKER_PATH_BYTES];
	int fd, status = 0;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n",
		.log = _i == 0 ? "write_mode = file\n" : "write_mode = mapped\nsegment_bytes = 1MiB\n" });
	fd = wire_connect_tcp(broker.port);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_FORCED, "0123456789", 10, NULL), 0);
	broker_partition_path(&broker, "t", 0, 0, path, sizeof path);
	ck_assert_int_eq(truncate(path, 2 * 18), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_WRITTEN, "0123456789", 10, NULL), STORAGE_FAILURE);
	ck_assert(broker_wait_log(&broker, "was cut to 36 bytes from outside; its records reach to position 72", SOON_MS));
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_failed", "partition=\"0\"", 1, SOON_MS));
	ck_assert_int_eq(broker_count_log(&broker, "goes on by itself"), 0);
	ck_assert(broker_wait_log(&broker, "records that were acknowledged are gone", SOON_MS));
	free(broker_http_get(&broker, "/healthz", &status));
	ck_assert_int_eq(status, 503);
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_WRITTEN, "x", 1, NULL), 0);
	close(fd);
	broker_kill(&broker);
	broker_end(&broker);
}
END_TEST

/* One line says where a sealed segment is damaged; reading it again and again adds none. */
START_TEST(bug_B9_damage_is_told_by_one_line)
{
	struct wire_fetched fetched;
	char path[BROKER_PATH_BYTES];
	int fd, file;

	broker_start(&broker, &(struct broker_config){ .log = "segment_bytes = 1KiB\n" });
	fd = wire_connect_tcp(broker.port);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_WRITTEN, "0123456789012345678901", 22, NULL), 0);
	close(fd);
	broker_stop(&broker);
	broker_partition_path(&broker, "t", 0, 0, path, sizeof path);
	file = open(path, O_RDWR);
	ck_assert_int_eq(pwrite(file, "\xFF", 1, 300), 1);
	close(file);
	broker_restart(&broker, NULL);
	fd = wire_connect_tcp(broker.port);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(wire_fetch(fd, "t", 0, 20, 1000, 0, 0, &fetched), STORAGE_FAILURE);
	ck_assert(broker_wait_metric_least(&broker, "logbroker_storage_errors_total", "op=\"read\"", 5, SOON_MS));
	ck_assert_int_eq(broker_count_log(&broker, ": damaged at position "), 1);
	ck_assert_int_eq(broker_count_log(&broker, " error "), 1);
	close(fd);
	finish();
}
END_TEST

static Suite *
suite(void)
{
	Suite *all = suite_create("attacks");
	TCase *attacks = tcase_create("attacks");

	tcase_set_timeout(attacks, 120.0);
	suite_add_tcase(all, attacks);
	tcase_add_test(attacks, D09_http_without_descriptors);
	tcase_add_test(attacks, killed_and_started_again_at_once);
	tcase_add_test(attacks, a_file_that_may_grow_no_more);
	tcase_add_test(attacks, a_segment_truncated_from_outside);
	tcase_add_loop_test(attacks, a_segment_truncated_from_outside_and_written_to, 0, 2);
	tcase_add_test(attacks, bug_B9_damage_is_told_by_one_line);
	return all;
}

int
main(void)
{
	return broker_main(suite());
}
