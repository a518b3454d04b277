/*
 * What an operator does with a running broker: `logbroker status`, `restart-worker` and `reload` with each of their exit
 * codes, and the control socket itself against clients that mean no good.
 */
#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "runtool.h"
#include "wire.h"

enum { TIMEOUT_S = 120, SOON_MS = 30000, HTTP_CLIENTS_MAX = 16 };

static struct broker broker;
static struct procs_gate gate;
static struct run run;

static void
set_up(void)
{
	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 4\n" });
	procs_gate_set_up(&gate, &broker);
	setenv("LOGBROKER_CONTROL", broker.control_path, 1);
}

static void
start(void)
{
	broker_launch(&broker);
	broker_wait_ready(&broker);
	broker.workers_may_die = true;	/* they are replaced */
}

/* `logbroker` of the build: the gate's directory has none. */
static void
begin_tool_into(struct run *of, const char *command, int output_fd)
{
	char gate_build[BROKER_PATH_BYTES];

	snprintf(gate_build, sizeof gate_build, "%s", getenv("LOGBROKER_BUILD"));
	unsetenv("LOGBROKER_BUILD");
	run_start_into(of, NULL, command, -1, output_fd);
	setenv("LOGBROKER_BUILD", gate_build, 1);
}

static void
begin_tool(struct run *of, const char *command)
{
	begin_tool_into(of, command, -1);
}

static void
tool(const char *command, int code)
{
	begin_tool(&run, command);
	run_end(&run);
	ck_assert_msg(run.code == code, "%s: exit code %d instead of %d: %s%s", command, run.code, code, run.out, run.err);
}

static void
expect_out(const char *text)
{
	ck_assert_msg(strstr(run.out, text) != NULL, "'%s' is not in:\n%s", text, run.out);
}

static void
expect_said(const char *text)
{
	ck_assert_msg(strstr(run.err, text) != NULL, "'%s' is not in:\n%s", text, run.err);
}

static void
stop(void)
{
	run_free(&run);
	broker_stop(&broker);
	broker_end(&broker);
}

static void
end_without_broker(void)
{
	run_free(&run);
	broker_end(&broker);
}

static double
restarts(const char *reason)
{
	return broker_metric(&broker, "logbroker_worker_restarts_total", reason);
}

/* A child of the supervisor that is not one of `but`: the replacement that waits at the gate. */
static pid_t
wait_for_another(const pid_t *but, int count)
{
	int64_t until_ms = wire_now_ms() + SOON_MS;

	while (wire_now_ms() < until_ms) {
		pid_t pids[BROKER_WORKERS_MAX];
		int n = broker_workers(&broker, pids, BROKER_WORKERS_MAX);

		for (int i = 0; i < n; i++) {
			bool known = false;

			for (int k = 0; k < count; k++)
				known = known || but[k] == pids[i];
			if (!known)
				return pids[i];
		}
		usleep(10000);
	}
	ck_abort_msg("no other worker has come");
	return 0;
}

/* Everything that comes back; "" when the connection was closed without a word. */
static const char *
ask_raw(int fd, const char *request, size_t length)
{
	static char answer[65536];
	size_t used = 0;
	long n;

	ck_assert_int_ge(fd, 0);
	wire_send(fd, request, length);	/* it may close before it has taken all of it */
	while (used < sizeof answer - 1 && (n = wire_receive(fd, answer + used, sizeof answer - 1 - used, SOON_MS)) > 0)
		used += (size_t)n;
	answer[used] = '\0';
	close(fd);
	return answer;
}

/* ---- status ---- */

START_TEST(status_shows_workers_and_partitions)
{
	int fd;

	start();
	fd = wire_connect_tcp(broker.port);
	ck_assert_int_eq(wire_produce_one(fd, "t", 1, WIRE_FORCED, "12345", 5, NULL), 0);
	tool("status", 0);
	expect_out(" ready\n");
	expect_out("connections  1 open, ");
	expect_out("produced     1 records, 5 B");
	expect_out("\nWORKER STATE ");
	expect_out("\n     1 serving ");
	expect_out("\nTOPIC PARTITION ");
	expect_out("\nt             1      1 open                  0            1            1 ");
	ck_assert_str_eq(run.err, "");
	tool("status -o json", 0);
	expect_out("{\"version\":\"");
	expect_out("{\"topic\":\"t\",\"partition\":1,\"group\":1,\"state\":\"open\",\"log_start\":0,\"high_watermark\":1,\"durable_end\":1,");
	ck_assert_ptr_eq(strchr(run.out, '\n'), run.out + run.out_bytes - 1);
	close(fd);
	stop();
}
END_TEST

START_TEST(status_is_on_http_too)
{
	char *page;
	int status;

	start();
	page = broker_http_get(&broker, "/status.json", &status);
	ck_assert_int_eq(status, 200);
	ck_assert_ptr_nonnull(strstr(page, "\"workers\":[{\"worker\":0,"));
	free(page);
	page = broker_http_get(&broker, "/status", &status);
	ck_assert_int_eq(status, 200);
	ck_assert_ptr_nonnull(strstr(page, "\nWORKER STATE "));
	free(page);
	page = broker_http_get(&broker, "/", &status);
	ck_assert_int_eq(status, 404);
	ck_assert_ptr_nonnull(strstr(page, "the live page is not supported in this version"));
	free(page);
	stop();
}
END_TEST

/* Two tables at least, and the second one has rates; a signal is a good end. */
START_TEST(status_watch_goes_on)
{
	size_t first;

	start();
	tool("status", 0);
	first = run.out_bytes;
	begin_tool(&run, "status --watch");
	ck_assert(run_wait_output(&run, first + first / 2));
	ck_assert_int_eq(kill(run.pid, SIGINT), 0);
	run_end(&run);
	ck_assert_int_eq(run.code, 0);
	expect_out(", 0 B/s");
	expect_out("over the last ");
	stop();
}
END_TEST

/* Whoever reads it has seen enough. */
START_TEST(status_into_a_closed_pipe)
{
	static const char *const commands[] = { "status --watch", "status", "status --check", "restart-worker 0" };
	int ends[2];

	start();
	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		ck_assert_int_eq(pipe(ends), 0);
		close(ends[0]);
		begin_tool_into(&run, commands[i], ends[1]);
		close(ends[1]);
		run_end(&run);
		ck_assert_msg(run.code == 0 && run.err_bytes == 0, "%s: %d: %s", commands[i], run.code, run.err);
	}
	stop();
}
END_TEST

START_TEST(status_check)
{
	pid_t worker;

	start();
	tool("status --check", 0);
	ck_assert_str_eq(run.out, "ok\n");
	tool("status --check -o json", 0);
	ck_assert_str_eq(run.out, "{\"ok\":true,\"reasons\":[]}\n");
	worker = broker_worker_of(&broker, "t", 1);
	procs_gate_close(&gate);
	ck_assert_int_eq(kill(worker, SIGKILL), 0);
	ck_assert(broker_wait_gone(worker, SOON_MS));
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", "worker=\"1\"", 0, SOON_MS));
	tool("status --check", 3);
	expect_out("worker 1: ");
	tool("status", 0);
	expect_out("NOT WELL     worker 1: ");
	tool("status --check -o json", 3);
	expect_out("{\"ok\":false,\"reasons\":[\"worker 1: ");
	procs_gate_open(&gate);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", "worker=\"1\"", 1, SOON_MS));
	tool("status --check", 0);
	stop();
}
END_TEST

/* More than can be said in two lines. */
START_TEST(status_check_is_short)
{
	pid_t workers[2];

	start();
	procs_gate_close(&gate);
	ck_assert_int_eq(broker_workers(&broker, workers, 2), 2);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(kill(workers[i], SIGKILL), 0);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", NULL, 0, SOON_MS));
	tool("status --check", 3);
	ck_assert_int_eq(strncmp(run.out, "worker 0: ", 10), 0);
	ck_assert_str_eq(strchr(run.out, '\n'), "\nand 1 more: logbroker status shows them\n");
	procs_gate_open(&gate);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", NULL, 2, SOON_MS));
	stop();
}
END_TEST

/* Until its program is good again; the other one serves. */
START_TEST(D05_a_worker_that_dies_at_every_start_is_named)
{
	static const char bad[] = "#!/bin/sh\nexit 3\n";
	char path[BROKER_PATH_BYTES + 32], *good;
	size_t length;

	start();
	snprintf(path, sizeof path, "%s/build/logworker", broker.directory);
	good = procs_read_file(path, &length);
	procs_write_file(path, bad, strlen(bad));
	ck_assert_int_eq(kill(broker_worker_of(&broker, "t", 1), SIGKILL), 0);
	ck_assert(broker_wait_log(&broker, "before it served, 3 times in a row: failing", SOON_MS));
	tool("status --check", 3);
	expect_out("worker 1: failing, died ");
	tool("status", 0);
	expect_out("NOT WELL     worker 1: failing, died ");
	expect_out("\n     0 serving ");
	expect_out("\n     1 failing ");
	tool("status -o json", 0);
	expect_out(",\"failing\":true,");
	procs_write_file(path, good, length);
	free(good);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", "worker=\"1\"", 1, SOON_MS));
	tool("status --check", 0);
	stop();
}
END_TEST

/* connect(2) to its port would succeed, and /healthz knows nothing yet: the check waits for a sign of life. */
START_TEST(bug_L1_a_worker_that_hangs_is_named)
{
	pid_t worker;

	start();
	worker = broker_worker_of(&broker, "t", 1);
	broker_freeze(worker);
	begin_tool(&run, "status --check --timeout 4s");
	run_end(&run);
	/* On a machine that is slow beyond measure it is killed for that meanwhile, and another one is well. */
	if (run.code != 0 || !broker_wait_log(&broker, "; killing it", 0)) {
		ck_assert_msg(run.code == 3, "exit code %d: %s%s", run.code, run.out, run.err);
		ck_assert_msg(strncmp(run.out, "worker 1: ", 10) == 0, "%s", run.out);
	}
	kill(worker, SIGCONT);
	stop();
}
END_TEST

START_TEST(exit_5_a_supervisor_that_hangs)
{
	start();
	broker_freeze(broker.pid);
	tool("status --check --timeout 300ms", 5);
	expect_said(broker.control_path);
	tool("status --timeout 300ms", 5);
	tool("reload --timeout 300ms", 5);
	/* So many have asked that the kernel's queue is full, perhaps. */
	tool("restart-worker 0 --timeout 300ms", 5);
	kill(broker.pid, SIGCONT);
	ck_assert(broker_wait_metric_least(&broker, "logbroker_worker_restarts_total", "reason=\"requested\"", 0, SOON_MS));
	stop();
}
END_TEST

START_TEST(exit_4_nobody_there)
{
	char command[BROKER_PATH_BYTES * 2];

	tool("status", 4);
	expect_said(broker.control_path);
	expect_said("--control or LOGBROKER_CONTROL");
	snprintf(command, sizeof command, "restart-worker 0 --control %s/none", broker.directory);
	tool(command, 4);
	snprintf(command, sizeof command, "--control %s reload", broker.directory);
	tool(command, 4);
	end_without_broker();
}
END_TEST

/* Somebody else's socket where the broker's would be. */
static int
bind_control(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	ck_assert_uint_lt(strlen(broker.control_path), sizeof name.sun_path);
	strcpy(name.sun_path, broker.control_path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, sizeof name), 0);
	return fd;
}

START_TEST(exit_4_a_socket_that_was_left)
{
	int fd = bind_control();

	tool("status --check", 4);
	expect_said("no broker is running there");
	close(fd);
	end_without_broker();
}
END_TEST

/* Something else listens: it says nothing of HTTP, less than it announced, or nothing at all. */
START_TEST(exit_1_and_4_not_a_control_socket)
{
	static const struct {
		const char *answer;
		int code;
	} cases[] = {
		{ "", 4 }, { "x", 1 }, { "220 mail ESMTP\r\n\r\n", 1 }, { "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", 1 },
		{ "HTTP/1.1 200 OK\r\n\r", 1 }, { "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nall\n", 0 }, { "HTTP/1.1 xyz\r\n\r\n", 1 },
		{ "HTTP/1.1 200 OK\r\n\r\nto the end\n", 0 }, { "HTTP/1.1\r\n\r\n", 1 },
	};
	int fd = bind_control();

	ck_assert_int_eq(listen(fd, 8), 0);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char request[1024];
		int client;

		begin_tool(&run, "status");
		client = accept(fd, NULL, NULL);
		ck_assert_int_ge(client, 0);
		ck_assert_int_gt(recv(client, request, sizeof request, 0), 0);
		ck_assert_int_eq(send(client, cases[i].answer, strlen(cases[i].answer), MSG_NOSIGNAL), (long)strlen(cases[i].answer));
		close(client);
		run_end(&run);
		ck_assert_msg(run.code == cases[i].code, "'%s': %d: %s", cases[i].answer, run.code, run.err);
	}
	close(fd);
	end_without_broker();
}
END_TEST

START_TEST(exit_2_wrong_usage)
{
	static const struct {
		const char *command, *said;
	} cases[] = {
		{ "restart-worker", "the number of one worker, or --all" }, { "restart-worker --all 0", "the number of one worker, or --all" },
		{ "restart-worker 0 1", "usage: " }, { "restart-worker x", "'x' is not a worker's number" },
		{ "restart-worker 1234567890", "is not a worker's number" }, { "status --watch --check", "choose one" },
		{ "status 0", "usage: " }, { "reload now", "usage: " }, { "-b localhost:1 status", "--control PATH instead of -b" },
		{ "--control /x ping", "--control is for " }, { "status --all", "no option '--all'" }, { "--control= status", "--control" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		tool(cases[i].command, 2);
		expect_said(cases[i].said);
		ck_assert_str_eq(run.out, "");
	}
	end_without_broker();
}
END_TEST

START_TEST(help_of_the_verbs)
{
	static const char *const verbs[] = { "status", "restart-worker", "reload" };

	for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
		char command[64];

		snprintf(command, sizeof command, "%s -h", verbs[i]);
		tool(command, 0);
		expect_out("--control PATH");
		expect_out("Examples:\n  log");
		ck_assert_ptr_null(strstr(run.out, "-b ADDR"));
	}
	end_without_broker();
}
END_TEST

/* ---- restart-worker ---- */

START_TEST(restart_one_and_all)
{
	pid_t before, other;

	start();
	before = broker_worker_of(&broker, "t", 0);
	other = broker_worker_of(&broker, "t", 1);
	tool("restart-worker 0", 0);
	ck_assert_int_eq(strncmp(run.out, "worker 0: replaced, its clients waited ", 39), 0);
	ck_assert_ptr_eq(strchr(run.out, '\n'), run.out + run.out_bytes - 1);
	ck_assert_int_ne(broker_wait_worker_of(&broker, "t", 0, before, SOON_MS), 0);
	ck_assert_int_eq(broker_worker_of(&broker, "t", 1), other);
	tool("restart-worker --all", 0);
	expect_out("worker 0: replaced");
	expect_out("worker 1: replaced");
	tool("restart-worker -o json --all", 0);
	expect_out("{\"done\":true,\"workers\":[{\"worker\":0,\"replaced\":true,\"pause_seconds\":");
	tool("status", 0);
	expect_out("requested");
	ck_assert_double_eq(restarts("reason=\"requested\""), 5);
	ck_assert_double_eq(restarts(NULL), 5);
	stop();
}
END_TEST

START_TEST(exit_3_no_such_worker)
{
	start();
	tool("restart-worker 2", 3);
	expect_said("worker 2: there is no such worker");
	ck_assert_str_eq(run.out, "");
	tool("restart-worker -o json 999999999", 3);
	expect_out("{\"done\":false,\"why\":\"worker 999999999: there is no such worker\"}\n");
	stop();
}
END_TEST

/* The replacement dies before it has anything: the old worker goes on, and the reason is told. */
START_TEST(exit_3_a_replacement_that_dies)
{
	pid_t workers[2], after[2], replacement;

	start();
	ck_assert_int_eq(broker_workers(&broker, workers, 2), 2);
	procs_gate_close(&gate);
	begin_tool(&run, "restart-worker --all");
	replacement = wait_for_another(workers, 2);
	ck_assert_int_eq(kill(replacement, SIGKILL), 0);
	run_end(&run);
	ck_assert_int_eq(run.code, 3);
	expect_said("worker 0: not replaced: ");
	expect_said("worker 1: not tried");
	ck_assert_str_eq(run.out, "");
	ck_assert_int_eq(broker_workers(&broker, after, 2), 2);
	ck_assert_int_eq(memcmp(after, workers, sizeof workers), 0);
	procs_gate_open(&gate);
	tool("status --check", 0);
	stop();
}
END_TEST

START_TEST(exit_3_a_worker_that_is_away)
{
	pid_t worker;

	start();
	worker = broker_worker_of(&broker, "t", 0);
	procs_gate_close(&gate);
	kill(worker, SIGKILL);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", "worker=\"0\"", 0, SOON_MS));
	tool("restart-worker 0", 3);
	expect_said("worker 0: it does not serve now, and is started again by itself");
	procs_gate_open(&gate);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", "worker=\"0\"", 1, SOON_MS));
	stop();
}
END_TEST

/* One that waits at the gate has ten seconds. */
START_TEST(exit_9_busy)
{
	static const char *const refused[] = {
		"POST /workers/1/restart HTTP/1.1\r\nHost: x\r\nAccept: application/json\r\n\r\n",
		"POST /workers/restart HTTP/1.1\r\nHost: x\r\n\r\n", "POST /reload HTTP/1.1\r\nHost: x\r\n\r\n",
	};
	struct run first = { 0 };
	pid_t workers[2];

	start();
	ck_assert_int_eq(broker_workers(&broker, workers, 2), 2);
	procs_gate_close(&gate);
	begin_tool(&first, "restart-worker 1");
	wait_for_another(workers, 2);
	tool("restart-worker 0", 9);
	expect_said("busy: worker 1 is being replaced (1 of 1), begun ");
	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		const char *answer = ask_raw(wire_connect_unix(broker.control_path), refused[i], strlen(refused[i]));

		ck_assert_msg(strstr(answer, " 409 ") != NULL && strstr(answer, "busy: worker 1 ") != NULL, "%s%s", refused[i], answer);
	}
	tool("status", 0);	/* looking is always allowed */
	expect_out("being replaced");
	procs_gate_open(&gate);
	run_end(&first);
	ck_assert_msg(first.code == 0, "%s", first.err);
	run_free(&first);
	tool("restart-worker 1", 0);
	stop();
}
END_TEST

/* Whoever has given an order need not wait for its end. */
START_TEST(a_client_that_goes_away_meanwhile)
{
	pid_t workers[2];

	start();
	ck_assert_int_eq(broker_workers(&broker, workers, 2), 2);
	procs_gate_close(&gate);
	begin_tool(&run, "restart-worker --all");
	wait_for_another(workers, 2);
	ck_assert_int_eq(kill(run.pid, SIGKILL), 0);
	run_end(&run);
	procs_gate_open(&gate);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_restarts_total", "reason=\"requested\"", 2, SOON_MS));
	tool("status --check", 0);
	tool("restart-worker 0", 0);
	stop();
}
END_TEST

START_TEST(a_client_that_gives_up_waiting)
{
	pid_t workers[2];

	start();
	ck_assert_int_eq(broker_workers(&broker, workers, 2), 2);
	procs_gate_close(&gate);
	tool("restart-worker 0 --timeout 500ms", 5);
	expect_said("goes on");
	procs_gate_open(&gate);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_restarts_total", "reason=\"requested\"", 1, SOON_MS));
	stop();
}
END_TEST

/* The broker stops in the middle of an order: who waits is told, and it stops like any other. */
START_TEST(a_stop_meanwhile)
{
	pid_t workers[2];

	start();
	ck_assert_int_eq(broker_workers(&broker, workers, 2), 2);
	procs_gate_close(&gate);
	begin_tool(&run, "restart-worker --all");
	wait_for_another(workers, 2);
	broker_stop(&broker);
	run_end(&run);
	ck_assert_msg(run.code == 3 || run.code == 4, "%d: %s", run.code, run.err);
	end_without_broker();
}
END_TEST

/* ---- reload ---- */

START_TEST(reload_applies_or_refuses)
{
	char path[BROKER_PATH_BYTES * 2], *text, *changed;
	size_t length;

	start();
	tool("reload", 0);
	ck_assert_str_eq(run.out, "nothing has changed\n");
	snprintf(path, sizeof path, "%s/broker.ini", broker.directory);
	text = procs_read_file(path, &length);
	ck_assert_int_gt(asprintf(&changed, "%s\n[topic t]\nretention_age = 9d\n", text), 0);
	procs_write_file(path, changed, strlen(changed));
	tool("reload", 0);
	expect_out("retention_age");
	expect_out("worker 1: ");
	free(changed);
	ck_assert_int_gt(asprintf(&changed, "%s\n[topic t]\nretention_age = never\n", text), 0);
	procs_write_file(path, changed, strlen(changed));
	tool("reload", 3);
	expect_said("retention_age");
	ck_assert_str_eq(run.out, "");
	tool("reload -o json", 3);
	expect_out("{\"done\":false,\"lines\":[\"");
	free(changed);
	free(text);
	stop();
}
END_TEST

/* ---- the socket itself ---- */

START_TEST(only_the_brokers_user_and_group_get_in)
{
	struct stat status;

	start();
	ck_assert_int_eq(stat(broker.control_path, &status), 0);
	ck_assert(S_ISSOCK(status.st_mode));
	ck_assert_int_eq(status.st_mode & 07777, 0660);
	stop();
}
END_TEST

START_TEST(http_that_is_refused)
{
	static const struct {
		const char *request, *answer;
	} cases[] = {
		{ "POST /workers/2/restart HTTP/1.1\r\nHost: x\r\n\r\n", " 404 " },
		{ "POST /workers/99999999999999999999/restart HTTP/1.1\r\nHost: x\r\n\r\n", " 404 " },
		{ "POST /workers/999999999/restart HTTP/1.1\r\nHost: x\r\n\r\n", " 404 " },
		{ "POST /workers/-1/restart HTTP/1.1\r\nHost: x\r\n\r\n", " 404 " },
		{ "POST /workers//restart HTTP/1.1\r\nHost: x\r\n\r\n", " 404 " },
		{ "POST /workers/0x0/restart HTTP/1.1\r\nHost: x\r\n\r\n", " 404 " },
		{ "POST /workers/0/restart/ HTTP/1.1\r\nHost: x\r\n\r\n", " 404 " },
		{ "POST /workers/0 HTTP/1.1\r\nHost: x\r\n\r\n", " 404 " },
		{ "POST / HTTP/1.1\r\nHost: x\r\n\r\n", " 405 " },
		{ "GET /workers/0/restart HTTP/1.1\r\nHost: x\r\n\r\n", " 405 " },
		{ "HEAD /workers/restart HTTP/1.1\r\nHost: x\r\n\r\n", " 405 " },
		{ "PUT /workers/restart HTTP/1.1\r\nHost: x\r\n\r\n", " 405 " },
		{ "DELETE /workers/0/restart HTTP/1.1\r\nHost: x\r\n\r\n", " 405 " },
		{ "GET /reload HTTP/1.1\r\nHost: x\r\n\r\n", "\r\nAllow: POST\r\n" },
		{ "POST /check HTTP/1.1\r\nHost: x\r\n\r\n", " 405 " },
		{ "POST /status HTTP/1.1\r\nHost: x\r\n\r\n", " 405 " },
		{ "POST /status.json HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab", " 405 " },
		{ "POST /workers/restart HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n", "" },
		{ "POST /workers/restart HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "" },
		{ "GET /check?within_ms=0 HTTP/1.1\r\nHost: x\r\n\r\n", " 200 " },
		{ "GET /check?within_ms=-1&%%%=%zz&a HTTP/1.1\r\nHost: x\r\n\r\n", " 200 " },
		{ "\r\n\r\n\r\n", "" },
		{ "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", NULL },
	};

	start();
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int fd = wire_connect_unix(broker.control_path);
		const char *answer;

		if (cases[i].answer == NULL) {	/* no line comes to its end: it is left to the timers */
			wire_send(fd, cases[i].request, strlen(cases[i].request));
			close(fd);
			continue;
		}
		answer = ask_raw(fd, cases[i].request, strlen(cases[i].request));
		ck_assert_msg(strstr(answer, cases[i].answer) != NULL, "%s: %s", cases[i].request, answer);
	}
	ck_assert_double_eq(restarts(NULL), 0);
	tool("status --check", 0);
	stop();
}
END_TEST

/* What has no end is cut off: headers, and a body in pieces. */
START_TEST(http_without_end)
{
	static const char header[] = "POST /workers/restart HTTP/1.1\r\nHost: x\r\nX: ";
	static const char body[] = "POST /workers/restart HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
	struct wire_bytes bytes = { 0 };

	start();
	wire_put(&bytes, header, strlen(header));
	for (int i = 0; i < 1 << 20; i++)
		wire_put(&bytes, "x", 1);
	ask_raw(wire_connect_unix(broker.control_path), (const char *)bytes.data, bytes.length);
	bytes.length = 0;
	wire_put(&bytes, body, strlen(body));
	for (int i = 0; i < 1 << 16; i++)
		wire_put(&bytes, "10\r\n0123456789abcdef\r\n", 22);
	ask_raw(wire_connect_unix(broker.control_path), (const char *)bytes.data, bytes.length);
	wire_bytes_free(&bytes);
	ck_assert_double_eq(restarts(NULL), 0);
	tool("status --check", 0);
	stop();
}
END_TEST

START_TEST(http_takes_no_orders)
{
	static const char *const requests[] = {
		"POST /workers/0/restart HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"POST /workers/restart HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"POST /reload HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	};

	start();
	for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
		const char *answer = ask_raw(wire_connect_tcp(broker.http_port), requests[i], strlen(requests[i]));

		ck_assert_msg(strstr(answer, " 405 ") != NULL, "%s", answer);
		ck_assert_ptr_nonnull(strstr(answer, "the control socket is for that"));
	}
	ck_assert_ptr_nonnull(strstr(ask_raw(wire_connect_tcp(broker.http_port), "GET /check HTTP/1.1\r\nHost: x\r\n\r\n", 32), " 404 "));
	ck_assert_double_eq(restarts(NULL), 0);
	stop();
}
END_TEST

/* All places are taken by clients that say nothing, or half a request: the operator gets in all the same. */
START_TEST(clients_that_say_nothing)
{
	int fds[HTTP_CLIENTS_MAX + 8];

	start();
	for (int i = 0; i < HTTP_CLIENTS_MAX + 8; i++) {
		fds[i] = wire_connect_unix(broker.control_path);
		ck_assert_int_ge(fds[i], 0);
		if (i % 2 == 0)
			wire_send(fds[i], "POST /workers/restart HT", 24);
	}
	tool("restart-worker 0", 0);
	tool("status --check", 0);
	for (int i = 0; i < HTTP_CLIENTS_MAX + 8; i++)
		close(fds[i]);
	stop();
}
END_TEST

/* Clients come and go with an order under way: the one who waits for it keeps his place, and gets his answer. */
START_TEST(an_order_keeps_its_place)
{
	struct run first = { 0 };
	int fds[HTTP_CLIENTS_MAX];
	pid_t workers[2];

	start();
	ck_assert_int_eq(broker_workers(&broker, workers, 2), 2);
	procs_gate_close(&gate);
	begin_tool(&first, "restart-worker 0");
	wait_for_another(workers, 2);
	for (int i = 0; i < HTTP_CLIENTS_MAX; i++)
		fds[i] = wire_connect_unix(broker.control_path);
	tool("status", 0);	/* comes behind them: all but the first have lost their places */
	for (int i = 0; i < HTTP_CLIENTS_MAX; i++)
		close(fds[i]);
	procs_gate_open(&gate);
	run_end(&first);
	/* On a slow machine the replacement has waited at the gate for longer than it may. */
	ck_assert_msg(first.code == 0 || strstr(first.err, "has not said HELLO") != NULL, "%d: %s", first.code, first.err);
	run_free(&first);
	stop();
}
END_TEST

/* Checks that wait are answered when the broker stops, or their clients have gone. */
START_TEST(checks_that_wait)
{
	pid_t worker;
	int fds[HTTP_CLIENTS_MAX / 2];

	start();
	worker = broker_worker_of(&broker, "t", 0);
	broker_freeze(worker);
	for (int i = 0; i < HTTP_CLIENTS_MAX / 2; i++) {
		fds[i] = wire_connect_unix(broker.control_path);
		wire_send(fds[i], "GET /check HTTP/1.1\r\nHost: x\r\n\r\n", 32);
	}
	for (int i = 0; i < HTTP_CLIENTS_MAX / 2; i += 2)
		close(fds[i]);
	tool("status", 0);
	kill(worker, SIGCONT);
	broker_stop(&broker);
	for (int i = 1; i < HTTP_CLIENTS_MAX / 2; i += 2)
		close(fds[i]);
	end_without_broker();
}
END_TEST

static TCase *
add_case(Suite *s, const char *name)
{
	TCase *tcase = tcase_create(name);

	tcase_set_timeout(tcase, TIMEOUT_S);
	tcase_add_checked_fixture(tcase, set_up, NULL);
	suite_add_tcase(s, tcase);
	return tcase;
}

static Suite *
suite(void)
{
	Suite *s = suite_create("operate");
	TCase *tcase;

	tcase = add_case(s, "status");
	tcase_add_test(tcase, status_shows_workers_and_partitions);
	tcase_add_test(tcase, status_is_on_http_too);
	tcase_add_test(tcase, status_watch_goes_on);
	tcase_add_test(tcase, status_into_a_closed_pipe);
	tcase_add_test(tcase, status_check);
	tcase_add_test(tcase, status_check_is_short);
	tcase_add_test(tcase, D05_a_worker_that_dies_at_every_start_is_named);
	tcase_add_test(tcase, bug_L1_a_worker_that_hangs_is_named);

	tcase = add_case(s, "codes");
	tcase_add_test(tcase, exit_5_a_supervisor_that_hangs);
	tcase_add_test(tcase, exit_4_nobody_there);
	tcase_add_test(tcase, exit_4_a_socket_that_was_left);
	tcase_add_test(tcase, exit_1_and_4_not_a_control_socket);
	tcase_add_test(tcase, exit_2_wrong_usage);
	tcase_add_test(tcase, help_of_the_verbs);

	tcase = add_case(s, "restart");
	tcase_add_test(tcase, restart_one_and_all);
	tcase_add_test(tcase, exit_3_no_such_worker);
	tcase_add_test(tcase, exit_3_a_replacement_that_dies);
	tcase_add_test(tcase, exit_3_a_worker_that_is_away);
	tcase_add_test(tcase, exit_9_busy);
	tcase_add_test(tcase, a_client_that_goes_away_meanwhile);
	tcase_add_test(tcase, a_client_that_gives_up_waiting);
	tcase_add_test(tcase, a_stop_meanwhile);
	tcase_add_test(tcase, reload_applies_or_refuses);

	tcase = add_case(s, "socket");
	tcase_add_test(tcase, only_the_brokers_user_and_group_get_in);
	tcase_add_test(tcase, http_that_is_refused);
	tcase_add_test(tcase, http_without_end);
	tcase_add_test(tcase, http_takes_no_orders);
	tcase_add_test(tcase, clients_that_say_nothing);
	tcase_add_test(tcase, an_order_keeps_its_place);
	tcase_add_test(tcase, checks_that_wait);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
