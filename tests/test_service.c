/*
 * The broker as a service manager sees it: what it tells by the notification protocol, the sockets it is passed, the signals
 * of a whole unit, starts that meet one another on a data directory.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum { SOON_MS = 30000, TOLD_MAX = 512, ENVIRONMENT_MAX = 8 };

static struct broker broker;

static void
finish(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

/* ---- a service manager that listens ------------------------------------------------------------------------------- */

/* What it was told, in order. */
struct manager {
	int fd;
	char variable[BROKER_PATH_BYTES + 32];	/* NOTIFY_SOCKET=... */
	int count;
	char *told[TOLD_MAX];
	pid_t by[TOLD_MAX];
};

static struct manager manager;

/* "@" makes it abstract; otherwise it lies in the broker's directory. */
static void
manager_open(const char *kind)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	char name[BROKER_PATH_BYTES + 16];
	size_t length;
	int on = 1;

	manager = (struct manager){ .fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) };
	if (*kind == '@')
		snprintf(name, sizeof name, "@logbroker-test-%d", (int)getpid());
	else
		snprintf(name, sizeof name, "%s/notify", broker.directory);
	ck_assert_uint_lt(strlen(name), sizeof address.sun_path);
	memcpy(address.sun_path, name, strlen(name));
	snprintf(manager.variable, sizeof manager.variable, "NOTIFY_SOCKET=%s", name);
	length = offsetof(struct sockaddr_un, sun_path) + strlen(name);
	if (*kind == '@')
		address.sun_path[0] = '\0';
	ck_assert_int_eq(setsockopt(manager.fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
	ck_assert_int_eq(bind(manager.fd, (struct sockaddr *)&address, (socklen_t)length), 0);
}

static void
manager_close(void)
{
	for (int i = 0; i < manager.count; i++)
		free(manager.told[i]);
	close(manager.fd);
}

/* Takes one message that is there; false when there is none. */
static bool
manager_take(void)
{
	char text[1024], control[CMSG_SPACE(sizeof(struct ucred))];
	struct iovec bytes = { text, sizeof text - 1 };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	ssize_t n = recvmsg(manager.fd, &message, MSG_DONTWAIT);
	struct ucred credentials;
	struct cmsghdr *head;

	if (n < 0)
		return false;
	ck_assert_int_lt(manager.count, TOLD_MAX);
	text[n] = '\0';
	head = CMSG_FIRSTHDR(&message);
	ck_assert_ptr_nonnull(head);
	memcpy(&credentials, CMSG_DATA(head), sizeof credentials);
	manager.by[manager.count] = credentials.pid;
	manager.told[manager.count++] = strdup(text);
	return true;
}

/* The number of the first message from `from` on that has that text. */
static int
manager_wait(const char *text, int from)
{
	struct pollfd readable = { .fd = manager.fd, .events = POLLIN };
	int64_t until = wire_now_ms() + SOON_MS;

	for (;;) {
		for (; from < manager.count; from++)
			if (strstr(manager.told[from], text) != NULL)
				return from;
		while (!manager_take()) {
			ck_assert_msg(wire_now_ms() < until, "the service manager is not told '%s'", text);
			poll(&readable, 1, 100);
		}
	}
}

/* Of what was told so far. */
static int
manager_count(const char *text, int from, int to)
{
	int count = 0;

	for (; from < to; from++)
		count += strstr(manager.told[from], text) != NULL;
	return count;
}

/* The broker of this test, prepared and ended by the caller, with these variables besides those that it has. */
static void
launch(const char *const *variables)
{
	static const char *environment[ENVIRONMENT_MAX];
	int count = 0;

	for (const char *const *one = broker.config.environment; one != NULL && *one != NULL; one++)
		environment[count++] = *one;
	for (; *variables != NULL && count < ENVIRONMENT_MAX - 1; variables++)
		environment[count++] = *variables;
	environment[count] = NULL;
	broker.config.environment = environment;
	broker_launch(&broker);
}

/* ---- H7 --------------------------------------------------------------------------------------------------------------- */

static void
expect_answers_for_all_partitions(size_t count)
{
	struct wire_topics topics;
	int fd = wire_connect_unix(broker.unix_path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(wire_metadata(fd, 2, NULL, &topics), 0);
	ck_assert_uint_eq(topics.count, count);
	wire_topics_free(&topics);
	for (int32_t i = 0; i < (int32_t)count; i++)
		ck_assert_int_eq(wire_produce_one(fd, "t", i, WIRE_WRITTEN, "x", 1, NULL), 0);
	close(fd);
}

static void
expect_without_variables(pid_t pid)
{
	char path[64], *text;
	size_t length;

	snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
	text = procs_read_file(path, &length);
	for (size_t i = 0; i < length; i += strlen(text + i) + 1) {
		ck_assert_int_ne(strncmp(text + i, "NOTIFY_", 7), 0);
		ck_assert_int_ne(strncmp(text + i, "WATCHDOG_", 9), 0);
	}
	free(text);
}

START_TEST(bug_H7_ready_is_told_once_by_the_supervisor)
{
	static const char *const kinds[] = { "path", "@" };
	int ready, stopping;

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 5\n" });
	manager_open(kinds[_i]);
	launch((const char *const[]){ manager.variable, "WATCHDOG_USEC=60000000", NULL });
	ready = manager_wait("READY=1", 0);
	expect_answers_for_all_partitions(5);
	broker_wait_ready(&broker);
	expect_without_variables(broker.workers[0]);
	manager_wait("2 of 2 workers serving, 5 of 5 partitions open, 0 failed", ready);
	broker_stop(&broker);
	stopping = manager_wait("STOPPING=1", ready);
	while (manager_take())
		;
	ck_assert_int_eq(manager_count("READY=1", 0, manager.count), 1);
	ck_assert_int_eq(manager_count("STOPPING=1", 0, manager.count), 1);
	/* Ten seconds of drain_timeout, and what is behind them. */
	ck_assert_int_gt(strtoll(strstr(manager.told[stopping], "EXTEND_TIMEOUT_USEC=") + 20, NULL, 10), 15000000);
	for (int i = 0; i < manager.count; i++)
		ck_assert_int_eq(manager.by[i], broker.pid);
	broker_end(&broker);
	manager_close();
}
END_TEST

static long long
monotonic_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

/* Each reload is told before anything of it is done, and its end, whatever has become of it. */
START_TEST(bug_H7_reloads_are_told)
{
	static const struct {
		const char *edit, *said;
	} cases[] = {
		{ "", "reload: nothing has changed" },
		{ "1a max_fetch_wait = 7s", "reload: worker 1: restarted with the new settings" },
		{ "1a workers = none", "error supervisor: reload: " },
	};
	enum { CASES = sizeof cases / sizeof cases[0] };
	char command[BROKER_PATH_BYTES + 128];
	int told;

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 2\n", .workers = 2 });
	manager_open("path");
	launch((const char *const[]){ manager.variable, NULL });
	broker_wait_ready(&broker);
	broker.workers_may_die = true;
	told = manager_wait("READY=1", 0);
	for (int i = 0; i < CASES; i++) {
		long long before_us = monotonic_us(), at_us;

		snprintf(command, sizeof command, "sed -i '%s' '%s/broker.ini'", cases[i].edit, broker.directory);
		ck_assert_int_eq(system(command), 0);
		kill(broker.pid, SIGHUP);
		told = manager_wait("RELOADING=1\nMONOTONIC_USEC=", told + 1);
		at_us = strtoll(strrchr(manager.told[told], '=') + 1, NULL, 10);
		ck_assert(at_us >= before_us && at_us <= monotonic_us());
		told = manager_wait("READY=1", told + 1);
		ck_assert_int_eq(manager.by[told], broker.pid);
		ck_assert(broker_wait_log(&broker, cases[i].said, SOON_MS));
	}
	/* Once more, and stopped in the middle of it or behind it: the stop has the last word. */
	snprintf(command, sizeof command, "sed -i -e '/workers = none/d' -e 's/max_fetch_wait = 7s/max_fetch_wait = 8s/' "
	    "'%s/broker.ini'", broker.directory);
	ck_assert_int_eq(system(command), 0);
	kill(broker.pid, SIGHUP);
	manager_wait("RELOADING=1", told + 1);
	broker_stop(&broker);
	told = manager_wait("STOPPING=1", told + 1);
	while (manager_take())
		;
	ck_assert_int_eq(manager_count("RELOADING=1", 0, manager.count), CASES + 1);
	ck_assert_int_eq(manager_count("READY=1", told, manager.count), 0);
	ck_assert_int_eq(manager_count("RELOADING=1", told, manager.count), 0);
	broker_end(&broker);
	manager_close();
}
END_TEST

/* The program of the workers is no good any more: none is replaced, and the reload ends all the same. */
START_TEST(bug_H7_a_reload_that_fails_is_told)
{
	static const char bad[] = "#!/bin/sh\nexit 3\n";
	char path[BROKER_PATH_BYTES + 32], command[BROKER_PATH_BYTES + 128];
	struct procs_gate gate;
	pid_t workers[2];
	int told;

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 2\n", .workers = 2 });
	procs_gate_set_up(&gate, &broker);
	manager_open("path");
	launch((const char *const[]){ manager.variable, NULL });
	broker_wait_ready(&broker);
	told = manager_wait("READY=1", 0);
	snprintf(path, sizeof path, "%s/build/logworker", broker.directory);
	procs_write_file(path, bad, strlen(bad));
	snprintf(command, sizeof command, "sed -i '1a max_fetch_wait = 7s' '%s/broker.ini'", broker.directory);
	ck_assert_int_eq(system(command), 0);
	kill(broker.pid, SIGHUP);
	told = manager_wait("RELOADING=1", told + 1);
	manager_wait("READY=1", told + 1);
	ck_assert(broker_wait_log(&broker, "reload: worker 0: not restarted: its replacement exited (status 3)", SOON_MS));
	ck_assert_int_eq(broker_workers(&broker, workers, 2), 2);
	ck_assert_int_eq(memcmp(workers, broker.workers, sizeof workers), 0);
	finish();
	manager_close();
}
END_TEST

/*
 * Over the control socket, which answers before the broker is ready: it says so, and nobody takes its end for readiness. By
 * a signal it waits until then.
 */
START_TEST(bug_H7_a_reload_is_no_readiness)
{
	static const char request[] = "POST /reload HTTP/1.0\r\n\r\n";
	char answer[1024] = "", command[BROKER_PATH_BYTES + 128];
	struct procs_gate gate;
	size_t length = 0;
	int ready, fd;
	long got;

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 2\n", .workers = 2 });
	procs_gate_set_up(&gate, &broker);
	procs_gate_close(&gate);
	manager_open("path");
	launch((const char *const[]){ manager.variable, NULL });
	manager_wait("STATUS=starting: 0 of 2 workers serving", 0);
	snprintf(command, sizeof command, "sed -i '1a max_fetch_wait = 7s' '%s/broker.ini'", broker.directory);
	ck_assert_int_eq(system(command), 0);
	kill(broker.child, SIGHUP);
	fd = wire_connect_unix(broker.control_path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(wire_send(fd, request, strlen(request)), 0);
	while (length < sizeof answer - 1 && (got = wire_receive(fd, answer + length, sizeof answer - 1 - length, SOON_MS)) > 0)
		length += (size_t)got;
	close(fd);
	procs_gate_open(&gate);
	ck_assert_msg(strstr(answer, " 503 ") != NULL && strstr(answer, "try again when it is ready") != NULL, "%s", answer);
	ready = manager_wait("READY=1", 0);
	broker_wait_ready(&broker);
	ck_assert_int_eq(manager_count("RELOADING=1", 0, ready), 0);
	manager_wait("READY=1", manager_wait("RELOADING=1", ready + 1) + 1);
	ck_assert(broker_wait_log(&broker, "reload: max_fetch_wait: 1min -> 7s (applied by restarting the workers)", SOON_MS));
	broker.workers_may_die = true;
	finish();
	manager_close();
}
END_TEST

/* A worker that could not be replaced goes on with the drain_timeout that it was told, and a stop waits for it. */
START_TEST(bug_H7_a_stop_takes_what_the_workers_were_told)
{
	struct procs_gate gate;
	char command[3 * BROKER_PATH_BYTES];
	int stopping;

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 1\n", .workers = 1, .broker = "drain_timeout = 50s\n" });
	procs_gate_set_up(&gate, &broker);
	manager_open("path");
	launch((const char *const[]){ manager.variable, NULL });
	broker_wait_ready(&broker);
	snprintf(command, sizeof command, "sed -i 's/^drain_timeout.*/drain_timeout = 1s/' '%s/broker.ini' && "
	    "printf '#!/bin/sh\nexit 1\n' > '%s/build/logworker'", broker.directory, broker.directory);
	ck_assert_int_eq(system(command), 0);
	kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "reload: worker 0: not restarted", SOON_MS));
	broker_stop(&broker);
	stopping = manager_wait("STOPPING=1", 0);
	ck_assert_int_gt(strtoll(strstr(manager.told[stopping], "EXTEND_TIMEOUT_USEC=") + 20, NULL, 10), 55000000);
	broker_end(&broker);
	manager_close();
}
END_TEST

START_TEST(bug_H7_nobody_to_tell)
{
	static const struct {
		const char *variables[4], *warning;
	} cases[] = {
		{ { NULL }, NULL },
		{ { "NOTIFY_SOCKET=", "WATCHDOG_USEC=soon", NULL }, NULL },
		{ { "NOTIFY_SOCKET=relative/notify", NULL }, "NOTIFY_SOCKET names no Unix socket" },
		{ { "NOTIFY_SOCKET=/nonexistent/notify", NULL }, "the service manager cannot be notified" },
		{ { "NOTIFY_SOCKET=/nonexistent/notify", "WATCHDOG_USEC=-5", NULL }, "WATCHDOG_USEC is not a number" },
	};
	long warnings;

	broker_prepare(&broker, NULL);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		broker.config.environment = NULL;
		launch(cases[i].variables);
		broker_wait_ready(&broker);
		broker_stop(&broker);
		warnings = broker_count_log(&broker, "NOTIFY_SOCKET") + broker_count_log(&broker, "WATCHDOG_USEC") +
		    broker_count_log(&broker, "cannot be notified");
		ck_assert_int_eq(warnings, cases[i].warning == NULL ? 0 : i == 4 ? 2 : 1);
		if (cases[i].warning != NULL)
			ck_assert_int_eq(broker_count_log(&broker, cases[i].warning), 1);
	}
	broker_end(&broker);
}
END_TEST

/* A recovery that reads forty mebibytes from a slow disk says that it goes on. */
START_TEST(bug_H7_a_long_start_asks_for_more_time)
{
	enum { RECORDS = 40, RECORD_BYTES = 1024 * 1024 };
	char path[BROKER_PATH_BYTES * 2], *payload = calloc(1, RECORD_BYTES);
	int fd, ready;

	procs_prepare_with_badsync(&broker, &(struct broker_config){ .topics = "t = 1\n" });
	manager_open("path");
	launch((const char *const[]){ manager.variable, "WATCHDOG_USEC=1000000", NULL });
	broker_wait_ready(&broker);
	fd = wire_connect_tcp(broker.port);
	for (int i = 0; i < RECORDS; i++)
		ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_WRITTEN, payload, RECORD_BYTES, NULL), 0);
	close(fd);
	free(payload);
	broker_kill(&broker);
	/* Without a recovery point the whole of it is read. */
	broker_partition_path(&broker, "t", 0, 0, path, sizeof path);
	snprintf(strrchr(path, '.'), 8, ".index");
	unlink(path);
	manager_close();
	unlink(manager.variable + strlen("NOTIFY_SOCKET="));
	manager_open("path");
	procs_let_barriers(&broker, "cold");
	broker_launch(&broker);
	ready = manager_wait("READY=1", 0);
	ck_assert_int_ge(manager_count("EXTEND_TIMEOUT_USEC=", 0, ready), 1);
	ck_assert_int_ge(manager_count("MiB of logs read", 0, ready), 1);
	ck_assert_int_ge(manager_count("STATUS=starting: 0 of 1 workers serving", 0, ready), 1);
	procs_let_barriers(&broker, "work");
	broker_wait_ready(&broker);
	finish();
	manager_close();
}
END_TEST

/* Between the status that tells of a silent worker and the one that no longer does, the watchdog goes hungry. */
START_TEST(the_watchdog_is_fed_while_all_workers_live)
{
	int silent, alive, fd;
	pid_t worker;

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 2\n", .workers = 2 });
	manager_open("path");
	launch((const char *const[]){ manager.variable, "WATCHDOG_USEC=1000000", NULL });
	broker_wait_ready(&broker);
	broker.workers_may_die = true;
	fd = wire_connect_tcp(broker.port);
	manager_wait("0 failed, 1 connection", manager_wait("WATCHDOG=1", manager_wait("READY=1", 0)));
	worker = broker.workers[0];
	broker_freeze(worker);
	silent = manager_wait("without a sign of life: 1", 0);
	/* Long enough to be fed several times. What is not there is not waited for in vain: it is the order that counts. */
	usleep(1000000);
	kill(worker, SIGCONT);
	alive = manager_wait("STATUS=2 of 2 workers serving", silent + 1);
	while (strstr(manager.told[alive], "sign of life") != NULL)
		alive = manager_wait("STATUS=", alive + 1);
	/* On a machine that is slow beyond measure it is killed for that meanwhile, and the other one lives. */
	if (broker_count_log(&broker, "; killing it") == 0)
		ck_assert_int_eq(manager_count("WATCHDOG=1", silent, alive), 0);
	manager_wait("WATCHDOG=1", alive);
	close(fd);
	finish();
	manager_close();
}
END_TEST

START_TEST(the_watchdog_of_another_process_is_not_fed)
{
	int fd;

	broker_prepare(&broker, NULL);
	manager_open("path");
	launch((const char *const[]){ manager.variable, "WATCHDOG_USEC=100000", "WATCHDOG_PID=1", NULL });
	broker_wait_ready(&broker);
	fd = wire_connect_tcp(broker.port);
	manager_wait(", 1 connection", manager_wait("READY=1", 0));
	close(fd);
	manager_wait(", 0 connections", manager_wait(", 1 connection", 0));
	broker_stop(&broker);
	while (manager_take())
		;
	ck_assert_int_eq(manager_count("WATCHDOG", 0, manager.count), 0);
	broker_end(&broker);
	manager_close();
}
END_TEST

/* ---- sockets that are passed -------------------------------------------------------------------------------------------- */

/* The wrapper, see wrap. */
static const char *
passing(const char *what, const char *names, const char *to)
{
	static char wrapper[BROKER_PATH_BYTES * 2];

	snprintf(wrapper, sizeof wrapper, "%s --pass %s %s %s", procs_self(), what, names, to);
	return wrapper;
}

START_TEST(sockets_for_another_process_are_not_ours)
{
	char path[BROKER_PATH_BYTES + 16];
	int fd;

	broker_prepare(&broker, NULL);
	broker.config.wrapper = passing("listening", "-", "other");
	broker_launch(&broker);
	broker_wait_ready(&broker);
	fd = wire_connect_unix(broker.unix_path);	/* as configured */
	ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_WRITTEN, "x", 1, NULL), 0);
	close(fd);
	snprintf(path, sizeof path, "%s/passed", broker.directory);
	ck_assert_int_eq(wire_connect_unix(path), -1);	/* nobody has it open any more */
	finish();
}
END_TEST

START_TEST(sockets_with_names_stand_in_for_their_purposes)
{
	char path[BROKER_PATH_BYTES + 16], text[256] = "";
	static const char request[] = "GET /readyz HTTP/1.0\r\n\r\n";
	int fd;

	broker_prepare(&broker, NULL);
	broker.config.wrapper = passing("listening", "control", "self");
	broker_launch(&broker);
	broker_wait_ready(&broker);
	snprintf(path, sizeof path, "%s/passed", broker.directory);
	ck_assert_int_eq(broker_count_log(&broker, "/passed workers="), 1);
	ck_assert_int_eq(access(broker.control_path, F_OK), -1);
	fd = wire_connect_unix(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(wire_send(fd, request, strlen(request)), 0);
	ck_assert_int_gt(wire_receive(fd, text, 12, SOON_MS), 0);
	ck_assert_int_eq(strncmp(text, "HTTP/1.", 7), 0);
	close(fd);
	expect_answers_for_all_partitions(1);
	finish();
}
END_TEST

START_TEST(what_is_no_listening_socket_is_refused)
{
	static const char *const kinds[] = { "idle", "datagram", "file" };

	broker_prepare(&broker, NULL);
	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
		struct broker_config config = broker.config;

		config.wrapper = passing(kinds[i], "-", "self");
		ck_assert_int_eq(broker_start_fails(&broker, &config), 1);
		ck_assert_int_eq(broker_count_log(&broker, "descriptor 3, passed by the service manager, is not a listening"), 1);
	}
	broker_end(&broker);
}
END_TEST

/* ---- the signals of a unit ---------------------------------------------------------------------------------------------- */

/* KillMode=control-group: all of them get it, in any order. */
START_TEST(a_stop_signal_to_all_processes_is_a_stop)
{
	int held;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .workers = 2 });
	broker.workers_may_die = true;
	held = wire_connect_tcp(broker.port);
	ck_assert_int_eq(wire_produce_one(held, "t", 0, WIRE_WRITTEN, "x", 1, NULL), 0);
	if (_i == 0)
		kill(broker.pid, SIGTERM);
	for (int i = 0; i < broker.worker_count; i++)
		kill(broker.workers[i], SIGTERM);
	if (_i == 1)
		kill(broker.pid, SIGTERM);
	ck_assert_int_eq(broker_wait_exit(&broker, BROKER_STOP_MS), 0);
	ck_assert(wire_ended_orderly(held, SOON_MS));
	close(held);
	for (int i = 0; i < broker.worker_count; i++)
		ck_assert(broker_wait_gone(broker.workers[i], SOON_MS));
	broker_end(&broker);
}
END_TEST

/* What a service manager does when the supervisor was killed. */
START_TEST(workers_without_a_supervisor_end_by_a_stop_signal_too)
{
	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .workers = 2 });
	kill(broker.pid, SIGKILL);
	for (int i = 0; i < broker.worker_count; i++)
		kill(broker.workers[i], SIGTERM);
	for (int i = 0; i < broker.worker_count; i++)
		ck_assert(broker_wait_gone(broker.workers[i], SOON_MS));
	ck_assert_int_eq(broker_wait_exit(&broker, SOON_MS), 128 + SIGKILL);
	broker_restart(&broker, NULL);
	finish();
}
END_TEST

/* ---- H11 ---------------------------------------------------------------------------------------------------------------- */

enum { STARTS = 8, STARTS_MAX = 200 };

struct start {
	pid_t pid;
	char log[BROKER_PATH_BYTES + 32];
};

/* All wait for the gate's end, and go at once. */
static void
start_behind(struct start *start, int number, const int *gate)
{
	char program[BROKER_PATH_BYTES], ini[BROKER_PATH_BYTES + 16], byte;

	broker_build_path("logsupervisor", program, sizeof program);
	snprintf(ini, sizeof ini, "%s/broker.ini", broker.directory);
	snprintf(start->log, sizeof start->log, "%s/log.%d", broker.directory, number);
	fflush(NULL);
	start->pid = fork();
	ck_assert_int_ge(start->pid, 0);
	if (start->pid != 0)
		return;
	close(gate[1]);
	dup2(open(start->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600), STDERR_FILENO);
	if (read(gate[0], &byte, 1) == 0)
		execl(program, "logsupervisor", "-f", ini, NULL);
	_exit(127);
}

static bool
is_ready(const struct start *start)
{
	return access(start->log, F_OK) == 0 && procs_count_lines(start->log, "ready: listen=", NULL) == 1;
}

/* Waits until all but one have been refused. Returns that one. */
static int
wait_for_the_winner(struct start *starts, int count)
{
	int64_t until = wire_now_ms() + 2 * SOON_MS;
	int winner = -1, status;

	for (int refused = 0; refused < count - 1;) {
		pid_t pid = waitpid(-1, &status, WNOHANG);

		ck_assert_msg(wire_now_ms() < until, "only %d of %d were refused", refused, count - 1);
		if (pid <= 0) {
			usleep(10000);
			continue;
		}
		for (int i = 0; i < count; i++)
			if (starts[i].pid == pid)
				starts[i].pid = 0;
		ck_assert_int_eq(status, 75 << 8);
		refused++;
	}
	for (int i = 0; i < count; i++)
		if (starts[i].pid != 0)
			winner = i;
	while (!is_ready(&starts[winner])) {
		ck_assert_msg(wire_now_ms() < until, "the one that won does not become ready");
		usleep(10000);
	}
	return winner;
}

/* Kills it, and waits until its workers have finished: as long as they run all are refused. */
static void
kill_winner(const struct start *start)
{
	pid_t workers[BROKER_WORKERS_MAX];
	int count, status;

	broker.pid = start->pid;
	count = broker_workers(&broker, workers, BROKER_WORKERS_MAX);
	kill(start->pid, SIGKILL);
	ck_assert_int_eq(waitpid(start->pid, &status, 0), start->pid);
	for (int i = 0; i < count; i++)
		ck_assert(procs_wait_dead(workers[i], 2 * SOON_MS));
}

/* Two rounds: what the first one's winner has left when it was killed is in nobody's way. */
START_TEST(bug_H11_of_many_starts_at_once_exactly_one_wins)
{
	static struct start starts[STARTS_MAX];
	int scaled = STARTS * broker_scale(), count = scaled < STARTS_MAX ? scaled : STARTS_MAX, gate[2];

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 2\n",
	    .broker = "listen = 127.0.0.1:0\nhttp = off\ncontrol = off\n" });
	for (int round = 0; round < 2; round++) {
		int winner;

		ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);
		for (int i = 0; i < count; i++)
			start_behind(&starts[i], i, gate);
		close(gate[1]);
		winner = wait_for_the_winner(starts, count);
		close(gate[0]);
		kill_winner(&starts[winner]);
	}
	broker_restart(&broker, NULL);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* ---- as a wrapper --------------------------------------------------------------------------------------------------------- */

static int
socket_to_pass(const char *what)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, strcmp(what, "datagram") == 0 ? SOCK_DGRAM : SOCK_STREAM, 0);

	if (strcmp(what, "file") == 0)
		return open("passed", O_RDWR | O_CREAT, 0600);
	if (strcmp(what, "listening") != 0)
		return fd;
	if (getcwd(address.sun_path, sizeof address.sun_path - 8) == NULL)
		return -1;
	strcat(address.sun_path, "/passed");
	if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 10) < 0)
		return -1;
	return fd;
}

/* --pass WHAT NAMES|- self|other COMMAND...: as the service manager starts a unit that has one socket, in the broker's directory. */
static int
wrap(int argc, char **argv)
{
	char pid[32];
	int fd;

	if (strcmp(argv[1], "--pass") != 0 || argc < 6)
		return 64;
	fd = socket_to_pass(argv[2]);
	if (fd < 0 || (fd != 3 && dup2(fd, 3) < 0))
		return 1;
	if (fd != 3)
		close(fd);
	snprintf(pid, sizeof pid, "%d", (int)(strcmp(argv[4], "self") == 0 ? getpid() : getppid()));
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
	if (strcmp(argv[3], "-") != 0)
		setenv("LISTEN_FDNAMES", argv[3], 1);
	execvp(argv[5], argv + 5);
	return 127;
}

static Suite *
suite(void)
{
	Suite *s = suite_create("service");
	TCase *tc = tcase_create("telling"), *stopping = tcase_create("stopping"), *starts = tcase_create("starts");

	tcase_set_timeout(tc, 120);
	tcase_set_timeout(stopping, 120);
	tcase_set_timeout(starts, 180);
	tcase_add_loop_test(tc, bug_H7_ready_is_told_once_by_the_supervisor, 0, 2);
	tcase_add_test(tc, bug_H7_reloads_are_told);
	tcase_add_test(tc, bug_H7_a_reload_that_fails_is_told);
	tcase_add_test(tc, bug_H7_a_reload_is_no_readiness);
	tcase_add_test(tc, bug_H7_a_stop_takes_what_the_workers_were_told);
	tcase_add_test(tc, bug_H7_nobody_to_tell);
	tcase_add_test(tc, bug_H7_a_long_start_asks_for_more_time);
	tcase_add_test(tc, the_watchdog_is_fed_while_all_workers_live);
	tcase_add_test(tc, the_watchdog_of_another_process_is_not_fed);
	tcase_add_test(tc, sockets_for_another_process_are_not_ours);
	tcase_add_test(tc, sockets_with_names_stand_in_for_their_purposes);
	tcase_add_test(tc, what_is_no_listening_socket_is_refused);
	tcase_add_loop_test(stopping, a_stop_signal_to_all_processes_is_a_stop, 0, 2);
	tcase_add_test(stopping, workers_without_a_supervisor_end_by_a_stop_signal_too);
	tcase_add_test(starts, bug_H11_of_many_starts_at_once_exactly_one_wins);
	suite_add_tcase(s, tc);
	suite_add_tcase(s, stopping);
	suite_add_tcase(s, starts);
	return s;
}

int
main(int argc, char **argv)
{
	return argc > 1 ? wrap(argc, argv) : broker_main(suite());
}
