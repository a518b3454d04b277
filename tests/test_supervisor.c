/*
 * A really started logsupervisor with a worker that misbehaves as told (fake_worker.c): who is restarted when, what a
 * malformed message does, where connections go, what happens when descriptors are short, how it starts and stops.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker.h"
#include "wire.h"

enum { SOON_MS = 20000 };

static char programs[64];	/* a copy of logsupervisor, and fake_worker as logworker */
static char fake_dir[BROKER_PATH_BYTES + 16], fake_script[128];
static const char *const fake_environment[] = { fake_dir, fake_script, NULL };

/* ---- helpers ---- */

static void
copy_program(const char *from, const char *name)
{
	char source[BROKER_PATH_BYTES], target[BROKER_PATH_BYTES], command[3 * BROKER_PATH_BYTES];

	broker_build_path(from, source, sizeof(source));
	snprintf(target, sizeof(target), "%s/%s", programs, name);
	snprintf(command, sizeof(command), "cp '%s' '%s'", source, target);
	ck_assert_int_eq(system(command), 0);
}

static void
install_programs(void)
{
	strcpy(programs, "/tmp/lb-fake-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(programs));
	chmod(programs, 0755);
	copy_program("logsupervisor", "logsupervisor");
	copy_program(getenv("LOGBROKER_BUILD") != NULL ? "tests/fake_worker" : "fake_worker", "logworker");
	setenv("LOGBROKER_BUILD", programs, 1);
}

/* For a test that spoils them: whatever becomes of it, the others have theirs. They go with the rest. */
static void
use_own_programs(void)
{
	char own[sizeof(programs)], command[4 * sizeof(programs)];

	ck_assert_int_lt(snprintf(own, sizeof(own), "%s/XXXXXX", programs), (int)sizeof(own));
	ck_assert_ptr_nonnull(mkdtemp(own));
	snprintf(command, sizeof(command), "cp -p '%s/logsupervisor' '%s/logworker' '%s'", programs, programs, own);
	ck_assert_int_eq(system(command), 0);
	strcpy(programs, own);
	setenv("LOGBROKER_BUILD", programs, 1);
}

static int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *place)
{
	(void)st;
	(void)type;
	(void)place;
	return remove(path);
}

static void
remove_programs(void)
{
	nftw(programs, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* What each start of a worker does, see fake_worker.c. The broker must be prepared. */
static void
set_script(struct broker *broker, const char *script)
{
	snprintf(fake_dir, sizeof(fake_dir), "FAKE_DIR=%s", broker->directory);
	snprintf(fake_script, sizeof(fake_script), "FAKE_SCRIPT=%s", script);
}

static void
launch(struct broker *broker, const struct broker_config *from, const char *script)
{
	struct broker_config config = *from;

	config.environment = fake_environment;
	broker_prepare(broker, &config);
	broker->workers_may_die = true;
	set_script(broker, script);
	broker_launch(broker);
}

static void
start(struct broker *broker, const struct broker_config *config, const char *script)
{
	launch(broker, config, script);
	broker_wait_ready(broker);
	broker->workers_may_die = true;
}

static void
stop(struct broker *broker)
{
	broker_stop(broker);
	broker_end(broker);
}

static int
connect_to(const struct broker *broker)
{
	int fd = wire_connect_tcp(broker->port);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void
send_text(int fd, const char *text)
{
	ck_assert_int_eq(wire_send(fd, text, strlen(text)), 0);
}

/* The answer to 'i'. */
static void
read_identity(int fd, int *number, pid_t *pid)
{
	char line[64];
	size_t length = 0;

	do {
		ck_assert_int_eq(wire_receive(fd, line + length, 1, SOON_MS), 1);
		length++;
	} while (line[length - 1] != '\n' && length < sizeof(line) - 1);
	line[length] = '\0';
	ck_assert_int_eq(sscanf(line, "%d %d", number, pid), 2);
}

static int
who_serves(int fd, const char *commands, pid_t *pid)
{
	pid_t ignored;
	int number;

	send_text(fd, commands);
	read_identity(fd, &number, pid != NULL ? pid : &ignored);
	return number;
}

static bool
metric_becomes(struct broker *broker, const char *name, const char *labels, double value)
{
	return broker_wait_metric(broker, name, labels, value, SOON_MS);
}

struct told {
	const struct broker *broker;
	const char *text;
};

static bool
is_told(void *with)
{
	const struct told *told = with;
	int status;
	char *body = broker_http_get(told->broker, "/status.json", &status);
	bool found = body != NULL && strstr(body, told->text) != NULL;

	free(body);
	return found;
}

static bool
status_tells(const struct broker *broker, const char *text)
{
	struct told told = { broker, text };

	return broker_wait(is_told, &told, SOON_MS);
}

static const struct broker_config two_workers = { .topics = "t = 4\n" };
static const struct broker_config one_worker = { .workers = 1 };

/* ---- connections ---- */

START_TEST(D01_connections_go_where_they_are_sent)
{
	struct broker broker;
	int fd;

	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	for (int i = 0; i < 200; i++) {
		ck_assert_int_eq(who_serves(fd, "g0i", NULL), 0);
		ck_assert_int_eq(who_serves(fd, "g1i", NULL), 1);
		ck_assert_int_eq(who_serves(fd, "m0i", NULL), 0);
		ck_assert_int_eq(who_serves(fd, "m1i", NULL), 1);
		ck_assert_int_eq(who_serves(fd, "m1g0m1g1m0i", NULL), 0);
	}
	close(fd);
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 0));
	stop(&broker);
}
END_TEST

START_TEST(fresh_connections_go_round)
{
	struct broker broker;
	int counts[2] = { 0, 0 };
	int fds[20];

	start(&broker, &two_workers, "serve");
	for (int i = 0; i < 20; i++) {
		fds[i] = i % 2 == 0 ? connect_to(&broker) : wire_connect_unix(broker.unix_path);
		ck_assert_int_ge(fds[i], 0);
		counts[who_serves(fds[i], "i", NULL)]++;
	}
	ck_assert_int_eq(counts[0], 10);
	ck_assert_int_eq(counts[1], 10);
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 20));
	for (int i = 0; i < 20; i++)
		close(fds[i]);
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 0));
	stop(&broker);
}
END_TEST

/* One worker is slow to come back (it does not finish opening): what is for it waits, and the client notices nothing. */
START_TEST(a_connection_waits_for_its_worker)
{
	struct broker_config config = two_workers;
	struct broker broker;
	pid_t first, second;
	int fd, killer;

	start(&broker, &config, "serve serve exit exit serve");
	fd = connect_to(&broker);
	killer = connect_to(&broker);
	who_serves(killer, "g1i", &first);
	who_serves(fd, "g0i", NULL);
	send_text(killer, "k");
	ck_assert(wire_ended(killer, SOON_MS));
	ck_assert_int_eq(who_serves(fd, "g1i", &second), 1);
	ck_assert_int_ne(first, second);
	ck_assert_int_eq(who_serves(fd, "m0m1i", NULL), 1);
	close(fd);
	close(killer);
	stop(&broker);
}
END_TEST

/* What a worker gives back with its last breath is not lost with it. */
START_TEST(given_back_and_dead_at_once)
{
	struct broker broker;
	pid_t before, after;
	int fd;

	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	for (int i = 0; i < 10; i++) {
		ck_assert_int_eq(who_serves(fd, "g0i", &before), 0);
		ck_assert_int_eq(who_serves(fd, "h1i", NULL), 1);
		ck_assert_int_eq(who_serves(fd, "g0i", &after), 0);
		ck_assert_int_ne(before, after);
	}
	close(fd);
	stop(&broker);
}
END_TEST

/* What it was sent and has not even received does not die with it. */
START_TEST(sent_to_a_worker_that_never_received_it)
{
	enum { COUNT = 300 };
	struct broker broker;
	pid_t frozen, pid;
	int fds[COUNT], holder, number;

	start(&broker, &two_workers, "serve");
	holder = connect_to(&broker);
	who_serves(holder, "g1i", &frozen);
	broker_freeze(frozen);
	for (int i = 0; i < COUNT; i++) {
		fds[i] = connect_to(&broker);
		send_text(fds[i], i % 2 == 0 ? "g1i" : "m1i");
	}
	/* Those that went to worker 0 first have gone on; the others are fresh and may go to anyone. */
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, COUNT + 1));
	kill(frozen, SIGKILL);
	for (int i = 0; i < COUNT; i++) {
		read_identity(fds[i], &number, &pid);
		ck_assert_int_eq(number, 1);
		ck_assert_int_ne(pid, frozen);
		close(fds[i]);
	}
	ck_assert(wire_ended(holder, SOON_MS));	/* that one lived in it */
	close(holder);
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 0));
	stop(&broker);
}
END_TEST

/* What worker 1 does that must not keep a fresh client waiting, and how long until it can be seen. */
static const struct {
	const char *commands;
	int seen_ms;
} unhelpful[] = { { "g1oi", 0 }, { "g1i", 2200 } };

/* One that is about to end, or hangs, gets no fresh clients while there is another. */
START_TEST(fresh_connections_avoid_a_worker_that_takes_none)
{
	struct broker broker;
	pid_t pid;
	int holder, fd;

	start(&broker, &two_workers, "serve");
	holder = connect_to(&broker);
	ck_assert_int_eq(who_serves(holder, unhelpful[_i].commands, &pid), 1);
	if (unhelpful[_i].seen_ms > 0) {
		broker_freeze(pid);
		usleep((useconds_t)unhelpful[_i].seen_ms * 1000);	/* its silence is what is tested */
	}
	for (int i = 0; i < 20; i++) {
		fd = connect_to(&broker);
		ck_assert_int_eq(who_serves(fd, "i", NULL), 0);
		close(fd);
	}
	kill(pid, SIGKILL);
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, 1));
	ck_assert(metric_becomes(&broker, "logbroker_worker_up", NULL, 2));
	close(holder);
	stop(&broker);
}
END_TEST

START_TEST(a_silent_worker_that_comes_back_is_left_alone)
{
	struct broker broker;
	char said[64];
	pid_t pid;
	int fd;

	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	ck_assert_int_eq(who_serves(fd, "g1i", &pid), 1);
	broker_freeze(pid);
	snprintf(said, sizeof(said), "worker 1 (pid %d) has given no sign of life for ", (int)pid);
	ck_assert(broker_wait_log(&broker, said, SOON_MS));
	kill(pid, SIGCONT);
	ck_assert(broker_wait_log(&broker, "gives signs of life again", SOON_MS));
	ck_assert_int_eq(broker_count_log(&broker, "sign of life for"), 1);
	ck_assert_int_eq(who_serves(fd, "i", NULL), 1);
	close(fd);
	stop(&broker);
}
END_TEST

/* Health is red within seconds and names the worker; at last it is killed, and its clients are served by the next one. */
START_TEST(bug_L1_a_worker_that_is_stopped_is_seen_and_then_killed)
{
	struct broker broker;
	char said[64], *body;
	pid_t pid, next;
	int fd, neighbour, status;

	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	neighbour = connect_to(&broker);
	ck_assert_int_eq(who_serves(fd, "g1i", &pid), 1);
	ck_assert_int_eq(who_serves(neighbour, "g0i", NULL), 0);
	broker_freeze(pid);
	ck_assert(broker_wait_log(&broker, "has given no sign of life for", SOON_MS));
	body = broker_http_get(&broker, "/healthz", &status);
	ck_assert_ptr_nonnull(body);
	ck_assert_int_eq(status, 503);
	ck_assert_ptr_nonnull(strstr(body, "worker 1: "));
	free(body);
	ck_assert_int_eq(who_serves(neighbour, "i", NULL), 0);
	send_text(neighbour, "g1i");	/* waits for it */
	snprintf(said, sizeof(said), "worker 1 (pid %d) has given no sign of life for 1", (int)pid);
	ck_assert(broker_wait_log(&broker, said, SOON_MS));
	ck_assert_int_eq(broker_count_log(&broker, "; killing it"), 1);
	read_identity(neighbour, &status, &next);
	ck_assert_int_eq(status, 1);
	ck_assert_int_ne(next, pid);
	ck_assert(wire_ended(fd, SOON_MS));
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", "worker=\"1\",reason=\"hung\"", 1));
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, 1));
	close(fd);
	close(neighbour);
	stop(&broker);
}
END_TEST

START_TEST(nonsense_on_the_board_harms_nobody)
{
	struct broker broker;
	pid_t pid;
	int fd, other;

	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	ck_assert_int_eq(who_serves(fd, "g1wi", &pid), 1);
	other = connect_to(&broker);
	who_serves(other, "g0i", NULL);
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 2));
	kill(pid, SIGKILL);
	ck_assert(wire_ended(fd, SOON_MS));
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 1));
	close(fd);
	close(other);
	stop(&broker);
}
END_TEST

START_TEST(parked_at_most_request_timeout)
{
	struct broker broker;
	struct broker_config config = one_worker;
	int64_t start_ms;
	int fd, other;

	config.broker = "request_timeout = 700ms\n";
	start(&broker, &config, "serve exit");
	fd = connect_to(&broker);
	start_ms = wire_now_ms();
	send_text(fd, "ih0i");
	ck_assert_int_eq(wire_receive(fd, (char[64]){ 0 }, 63, SOON_MS) > 0, 1);
	other = connect_to(&broker);	/* a fresh one waits no longer */
	ck_assert(wire_ended(fd, SOON_MS));
	ck_assert_int_ge(wire_now_ms() - start_ms, 700);
	ck_assert(wire_ended(other, SOON_MS));
	ck_assert(metric_becomes(&broker, "logbroker_connections_dropped_total", "reason=\"worker_away\"", 2));
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 0));
	close(fd);
	close(other);
	stop(&broker);
}
END_TEST

START_TEST(parked_and_reset_is_dropped_at_once)
{
	struct broker_config config = one_worker;
	struct broker broker;
	int fd;

	config.broker = "request_timeout = 1h\n";
	start(&broker, &config, "serve exit");
	fd = connect_to(&broker);
	send_text(fd, "h0i");
	ck_assert(metric_becomes(&broker, "logbroker_connections_parked", NULL, 1));
	wire_close_reset(fd);
	ck_assert(metric_becomes(&broker, "logbroker_connections_parked", NULL, 0));
	ck_assert(metric_becomes(&broker, "logbroker_connections_dropped_total", "reason=\"peer_gone\"", 1));
	stop(&broker);
}
END_TEST

START_TEST(parked_and_half_closed_is_served)
{
	struct broker_config config = one_worker;
	struct broker broker;
	int64_t cpu_ms;
	pid_t pid;
	int number, fd, fresh;

	/* Down for 100 + 200 + 400 + 800 ms. */
	start(&broker, &config, "serve exit exit exit exit serve");
	fd = connect_to(&broker);
	send_text(fd, "h0ii");
	ck_assert(metric_becomes(&broker, "logbroker_connections_parked", NULL, 1));
	send_text(fd, "iii");	/* more data wakes nobody either */
	ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
	fresh = wire_connect_unix(broker.unix_path);
	send_text(fresh, "i");
	ck_assert_int_eq(shutdown(fresh, SHUT_WR), 0);
	cpu_ms = broker_cpu_ms(broker.pid);
	for (int i = 0; i < 5; i++)
		read_identity(fd, &number, &pid);
	ck_assert(wire_ended_orderly(fd, SOON_MS));
	read_identity(fresh, &number, &pid);
	ck_assert(wire_ended_orderly(fresh, SOON_MS));
	ck_assert_int_lt(broker_cpu_ms(broker.pid) - cpu_ms, 200);
	close(fd);
	close(fresh);
	stop(&broker);
}
END_TEST

START_TEST(max_connections_and_one_more)
{
	struct broker_config config = two_workers;
	struct broker broker;
	int fds[8], extra;

	config.broker = "max_connections = 8\n";
	start(&broker, &config, "serve");
	for (int i = 0; i < 8; i++) {
		fds[i] = connect_to(&broker);
		who_serves(fds[i], "g1i", NULL);
	}
	extra = connect_to(&broker);
	ck_assert(wire_ended(extra, SOON_MS));
	close(extra);
	ck_assert(metric_becomes(&broker, "logbroker_connections_refused_total", NULL, 1));
	for (int i = 0; i < 8; i++)
		who_serves(fds[i], "g0i", NULL);
	close(fds[3]);
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 7));
	fds[3] = connect_to(&broker);
	who_serves(fds[3], "i", NULL);
	for (int i = 0; i < 8; i++)
		close(fds[i]);
	stop(&broker);
}
END_TEST

/* ---- workers that break the rules ---- */

static const char bad_messages[] = "usgniIdteExzkfaAhSplPRNDH";

START_TEST(a_malformed_message_costs_the_sender_only)
{
	struct broker broker;
	char bad[8] = { 'b', bad_messages[_i], '\0' };
	pid_t before, other_before, after, other;
	int fd, neighbour;

	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	neighbour = connect_to(&broker);
	ck_assert_int_eq(who_serves(fd, "g0i", &before), 0);
	ck_assert_int_eq(who_serves(neighbour, "g1i", &other_before), 1);
	send_text(fd, bad);
	ck_assert(wire_ended(fd, SOON_MS));
	close(fd);
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", "worker=\"0\",reason=\"protocol\"", 1));
	ck_assert(broker_wait_log(&broker, "; killing it", SOON_MS));
	ck_assert_int_eq(who_serves(neighbour, "i", &other), 1);
	ck_assert_int_eq(other, other_before);
	ck_assert_int_eq(who_serves(neighbour, "g0i", &after), 0);
	ck_assert_int_ne(after, before);
	close(neighbour);
	stop(&broker);
}
END_TEST

static const struct {
	const char *mode, *reason, *said;
} bad_starts[] = {
	{ "version", "handshake", "another version" },
	{ "board", "handshake", "another version" },
	{ "badhello", "protocol", "malformed HELLO" },
	{ "first", "protocol", "SERVING before START" },
	{ "early", "protocol", "PREPARED before its settings" },
	{ "badprepared", "protocol", "malformed PREPARED" },
	{ "prepared2", "protocol", "a second PREPARED" },
	{ "unstarted", "protocol", "SERVING before START" },
	{ "diepreparing", "exited", "exited (status 5) before it served" },
	{ "dieprepared", "exited", "exited (status 6) before it served" },
	{ "counts", "protocol", "another number of partitions" },
	{ "exit", "exited", "exited (status 1) before it served" },
	{ "kill", "killed", "died (signal 9) before it served" },
	{ "dieopening", "exited", "exited (status 4) before it served" },
	{ "silent", "handshake", "has not said HELLO within 10 s" },
};

/* Each way to fail at the start, once; the second try serves. */
START_TEST(a_bad_start_is_tried_again)
{
	struct broker broker;
	char script[64], labels[64];

	snprintf(script, sizeof(script), "%s serve", bad_starts[_i].mode);
	start(&broker, &one_worker, script);
	ck_assert(broker_wait_log(&broker, bad_starts[_i].said, SOON_MS));
	snprintf(labels, sizeof(labels), "reason=\"%s\"", bad_starts[_i].reason);
	ck_assert(broker_metric(&broker, "logbroker_worker_restarts_total", labels) == 1);
	ck_assert(broker_metric(&broker, "logbroker_worker_restarts_total", NULL) == 1);
	ck_assert(broker_count_log(&broker, "ready: listen=") == 1);
	stop(&broker);
}
END_TEST

START_TEST(D05_a_worker_that_dies_at_every_start)
{
	struct broker broker;
	int status;
	char *body;

	start(&broker, &one_worker, "exit");
	ck_assert(broker_count_log(&broker, "3 times in a row: failing") == 1);
	body = broker_http_get(&broker, "/healthz", &status);
	ck_assert_int_eq(status, 503);
	ck_assert_ptr_nonnull(strstr(body, "worker 0: failing, died "));
	free(body);
	body = broker_http_get(&broker, "/readyz", &status);
	ck_assert_int_eq(status, 200);
	free(body);
	ck_assert(broker_metric(&broker, "logbroker_worker_up", "worker=\"0\"") == 0);
	ck_assert(broker_count_log(&broker, "ready: listen=") == 1);
	stop(&broker);
}
END_TEST

/* The program is gone, may not be executed, or is no program: told by name, slower and slower, and mended without a restart. */
static const struct {
	const char *spoil, *why;
} bad_programs[] = {
	{ "rm logworker", "No such file or directory" },
	{ "chmod 0 logworker", "Permission denied" },
	{ "echo spoilt > new && chmod 755 new && mv new logworker", "Exec format error" },
};

START_TEST(D05_a_program_that_cannot_be_executed)
{
	struct broker broker;
	char command[512], said[256], *body;
	pid_t next;
	int fd, neighbour, status;

	use_own_programs();
	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	neighbour = connect_to(&broker);
	ck_assert_int_eq(who_serves(fd, "g1i", NULL), 1);
	ck_assert_int_eq(who_serves(neighbour, "g0i", NULL), 0);
	snprintf(command, sizeof(command), "cp -p '%s/logworker' '%s/kept'", programs, programs);
	ck_assert_int_eq(system(command), 0);
	snprintf(command, sizeof(command), "cd '%s' && %s", programs, bad_programs[_i].spoil);
	ck_assert_int_eq(system(command), 0);
	send_text(fd, "x");
	ck_assert(wire_ended(fd, SOON_MS));
	close(fd);
	ck_assert(broker_wait_log(&broker, "worker 1: exited (status 127) before it served, 3 times in a row: failing", SOON_MS));
	snprintf(said, sizeof(said), "cannot start %s/logworker: %s", programs, bad_programs[_i].why);
	ck_assert_int_ge(broker_count_log(&broker, said), 3);
	ck_assert_int_eq(broker_count_log(&broker, "1 time in a row; next try in 100 ms"), 1);
	ck_assert_int_eq(broker_count_log(&broker, "2 times in a row; next try in 200 ms"), 1);
	ck_assert_int_eq(who_serves(neighbour, "i", NULL), 0);
	body = broker_http_get(&broker, "/healthz", &status);
	ck_assert_int_eq(status, 503);
	ck_assert_int_eq(strncmp(body, "worker 1: failing, died ", 24), 0);
	free(body);
	send_text(neighbour, "g1i");	/* waits for it */
	snprintf(command, sizeof(command), "mv '%s/kept' '%s/logworker'", programs, programs);
	ck_assert_int_eq(system(command), 0);
	read_identity(neighbour, &status, &next);
	ck_assert_int_eq(status, 1);
	ck_assert(metric_becomes(&broker, "logbroker_worker_up", NULL, 2));
	close(neighbour);
	stop(&broker);
}
END_TEST

/* It serves and dies, again and again: at once twenty times, then slower; and it does not say so without end. */
START_TEST(at_once_twenty_times)
{
	struct broker broker;
	int64_t start_ms;
	int rounds = 0;

	start(&broker, &one_worker, "serve");
	start_ms = wire_now_ms();
	while (broker_count_log(&broker, "too often") == 0) {
		int fd = wire_connect_tcp(broker.port);

		ck_assert_int_ge(fd, 0);
		wire_send(fd, "k", 1);
		ck_assert(wire_ended(fd, SOON_MS));
		close(fd);
		ck_assert_int_lt(++rounds, 100);
	}
	if (wire_now_ms() - start_ms < 9000)
		ck_assert_int_eq(broker_count_log(&broker, ", restarting"), 20);
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 0));
	stop(&broker);
}
END_TEST

/* What will not mend itself is told and counted as a start that failed, not tried for ever without a word. */
START_TEST(settings_that_cannot_be_sent)
{
	struct broker_config config = one_worker;
	struct broker broker;
	char options[2048];
	size_t used;

	if (!broker_have_strace())
		return;
	/* No board can be opened for reading, whatever its descriptor's number is. */
	used = (size_t)snprintf(options, sizeof(options), "-e trace=openat -e inject=openat:error=EACCES");
	for (int i = 3; i < 40; i++)
		used += (size_t)snprintf(options + used, sizeof(options) - used, " -P /proc/self/fd/%d", i);
	config.strace = options;
	start(&broker, &config, "serve");
	ck_assert_int_ge(broker_count_log(&broker, "cannot be sent its settings: Permission denied; killing it"), 3);
	ck_assert(broker_metric(&broker, "logbroker_worker_restarts_total", "reason=\"spawn\"") >= 3);
	stop(&broker);
}
END_TEST

START_TEST(a_worker_that_shuts_its_channel_down_is_killed)
{
	struct broker broker;
	pid_t pid, next;
	int fd;

	start(&broker, &one_worker, "serve");
	fd = connect_to(&broker);
	who_serves(fd, "i", &pid);
	send_text(fd, "c");
	ck_assert(broker_wait_log(&broker, "has shut down its channel", SOON_MS));
	ck_assert(broker_wait_gone(pid, SOON_MS));
	close(fd);
	fd = connect_to(&broker);
	who_serves(fd, "i", &next);
	ck_assert_int_ne(pid, next);
	close(fd);
	stop(&broker);
}
END_TEST

/* ---- planned replacements ---- */

struct children {
	const struct broker *broker;
	int count;
};

static bool
are_children(void *with)
{
	const struct children *children = with;
	pid_t pids[16];

	return broker_workers(children->broker, pids, 16) == children->count;
}

static bool
children_become(const struct broker *broker, int count)
{
	struct children children = { broker, count };

	return broker_wait(are_children, &children, SOON_MS);
}

/* The number and the first end that a worker was handed by the one before it. */
static int
handed_ends(int fd, pid_t *first_end)
{
	int count;

	send_text(fd, "e");
	read_identity(fd, &count, first_end);
	return count;
}

/* The connection lives on, in the next process, which was handed the ends. */
START_TEST(D03_a_worker_that_asks_is_replaced)
{
	struct broker broker;
	pid_t pid, next, other_before, other, end;
	int fd, neighbour;

	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	neighbour = connect_to(&broker);
	ck_assert_int_eq(who_serves(fd, "g0i", &pid), 0);
	ck_assert_int_eq(who_serves(neighbour, "g1i", &other_before), 1);
	for (int i = 1; i <= 5; i++) {
		send_text(fd, "r");
		ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", "worker=\"0\",reason=\"requested\"", i));
		ck_assert_int_eq(who_serves(fd, "i", &next), 0);
		ck_assert_int_ne(next, pid);
		ck_assert_int_eq(handed_ends(fd, &end), 2);
		ck_assert_int_eq(end, i);
		ck_assert(broker_wait_gone(pid, SOON_MS));
		pid = next;
	}
	ck_assert_int_eq(who_serves(neighbour, "i", &other), 1);
	ck_assert_int_eq(other, other_before);
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, 5));
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 2));
	close(fd);
	close(neighbour);
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 0));
	stop(&broker);
}
END_TEST

/* A replacement that does not come up: the old process goes on, and it is said why. */
static const struct {
	const char *mode, *why;
} bad_replacements[] = {
	{ "version", "another version" },
	{ "badhello", "malformed HELLO" },
	{ "first", "SERVING before START" },
	{ "early", "PREPARED before its settings" },
	{ "badprepared", "malformed PREPARED" },
	{ "unstarted", "SERVING before START" },
	{ "exit", "exited (status 1) before it was used (what it said is in the log); the old process goes on" },
	{ "kill", "died (signal 9) before it was used" },
	{ "diepreparing", "exited (status 5) before it was used" },
	{ "unprepared", "has not said PREPARED within 10 s" },
};

START_TEST(D03_a_replacement_that_fails_leaves_the_old_one)
{
	struct broker broker;
	char script[64];
	pid_t pid, same;
	int fd;

	snprintf(script, sizeof(script), "serve %s serve", bad_replacements[_i].mode);
	start(&broker, &one_worker, script);
	fd = connect_to(&broker);
	who_serves(fd, "i", &pid);
	send_text(fd, "r");
	ck_assert(broker_wait_log(&broker, "; the old process goes on", SOON_MS));
	ck_assert(broker_wait_log(&broker, bad_replacements[_i].why, SOON_MS));
	ck_assert(broker_count_log(&broker, "worker 0: cannot be replaced: its replacement ") == 1);
	who_serves(fd, "i", &same);
	ck_assert_int_eq(same, pid);
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, 0));
	/* The next try is the next process's. */
	send_text(fd, "r");
	ck_assert(broker_wait_log(&broker, "worker 0: replaced, pid ", SOON_MS));
	who_serves(fd, "i", &same);
	ck_assert_int_ne(same, pid);
	close(fd);
	stop(&broker);
}
END_TEST

/* It answers DRAIN in a way that it must not, and is killed; the next one begins as after any death. */
static const struct {
	const char *way, *reason, *said;
} bad_drains[] = {
	{ "df", "protocol", "ENDS that no log of its can have" },
	{ "dt", "protocol", "ENDS of a partition for the second time" },
	{ "dm", "protocol", "malformed ENDS" },
	{ "dn", "protocol", "RELEASED with another number" },
	{ "dx", "exited", "exited (status 7), restarting" },
	{ "ds", "handshake", "has not released its logs within" },
};

START_TEST(D03_one_that_does_not_release_its_logs)
{
	struct broker_config config = two_workers;
	struct broker broker;
	char commands[16], labels[64];
	pid_t other_before, other, end;
	int fd, neighbour;

	config.broker = "drain_timeout = 100ms\n";
	start(&broker, &config, "serve");
	fd = connect_to(&broker);
	neighbour = connect_to(&broker);
	ck_assert_int_eq(who_serves(neighbour, "g1i", &other_before), 1);
	snprintf(commands, sizeof(commands), "g0%sr", bad_drains[_i].way);
	send_text(fd, commands);
	ck_assert(wire_ended(fd, SOON_MS));
	close(fd);
	snprintf(labels, sizeof(labels), "worker=\"0\",reason=\"%s\"", bad_drains[_i].reason);
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", labels, 1));
	ck_assert(broker_wait_log(&broker, bad_drains[_i].said, SOON_MS));
	ck_assert(broker_wait_log(&broker, "worker 0: replaced, pid ", SOON_MS));
	ck_assert_int_eq(who_serves(neighbour, "i", &other), 1);
	ck_assert_int_eq(other, other_before);
	ck_assert_int_eq(who_serves(neighbour, "g0i", NULL), 0);
	ck_assert_int_eq(handed_ends(neighbour, &end), 0);
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, 1));
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 1));
	close(neighbour);
	stop(&broker);
}
END_TEST

/* The logs are released, and the old one does not finish as it should: nobody else notices. */
static const struct {
	const char *way, *said;
} bad_finishes[] = {
	{ "dr", "a second RELEASED; killing it" },
	{ "do", "which was replaced, has not finished within" },
	{ "dk", "which was replaced, died (signal 9) before it had finished" },
};

START_TEST(D03_one_that_does_not_finish)
{
	struct broker_config config = two_workers;
	struct broker broker;
	char commands[16];
	pid_t pid;
	int fd, neighbour, kept;

	config.broker = "drain_timeout = 100ms\n";
	start(&broker, &config, "serve");
	fd = connect_to(&broker);
	kept = connect_to(&broker);
	neighbour = connect_to(&broker);
	who_serves(neighbour, "g1i", NULL);
	ck_assert_int_eq(who_serves(kept, "g0i", &pid), 0);
	snprintf(commands, sizeof(commands), "g0%sr", bad_finishes[_i].way);
	send_text(fd, commands);
	ck_assert(broker_wait_log(&broker, "worker 0: replaced, pid ", SOON_MS));
	ck_assert_int_eq(who_serves(neighbour, "g0i", NULL), 0);
	ck_assert(broker_wait_log(&broker, bad_finishes[_i].said, SOON_MS));
	ck_assert(broker_wait_gone(pid, SOON_MS));
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, 1));
	ck_assert(wire_ended(kept, SOON_MS));
	close(fd);
	close(kept);
	close(neighbour);
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 0));
	stop(&broker);
}
END_TEST

/* The successor dies with the logs, before it serves: others follow, with the same ends. */
START_TEST(D03_a_successor_that_dies_is_followed_by_another)
{
	static const char *const scripts[] = { "serve dieopening serve", "serve dieopening dieopening serve" };
	struct broker broker;
	pid_t pid, next, end;
	int fd;

	start(&broker, &one_worker, scripts[_i]);
	fd = connect_to(&broker);
	who_serves(fd, "i", &pid);
	send_text(fd, "r");
	ck_assert(broker_wait_log(&broker, "worker 0: replaced, pid ", SOON_MS));
	ck_assert_int_eq(broker_count_log(&broker, "exited (status 4), restarting"), 1);
	ck_assert_int_eq(broker_count_log(&broker, "exited (status 4) before it served, 1 time in a row"), _i);
	who_serves(fd, "i", &next);
	ck_assert_int_ne(next, pid);
	ck_assert_int_eq(handed_ends(fd, &end), 1);
	ck_assert_int_eq(end, 1);
	close(fd);
	stop(&broker);
}
END_TEST

/* Nobody is woken by a takeover; but when clients have waited for five seconds, and not before. */
START_TEST(D03_a_successor_that_does_not_serve_is_reported)
{
	struct broker broker;
	int64_t begin_ms, until_ms;
	char *body;
	int fd, status;

	start(&broker, &one_worker, "serve opening");
	fd = connect_to(&broker);
	begin_ms = wire_now_ms();
	until_ms = begin_ms + SOON_MS;
	send_text(fd, "r");
	for (;; usleep(20 * 1000)) {
		body = broker_http_get(&broker, "/healthz", &status);
		ck_assert_ptr_nonnull(body);
		if (status == 503)
			break;
		free(body);
		ck_assert_msg(wire_now_ms() < until_ms, "health does not say it");
	}
	ck_assert_int_ge(wire_now_ms() - begin_ms, 5000);
	ck_assert_str_eq(body, "worker 0: down (opening its logs)\n");
	ck_assert_int_eq(broker_count_log(&broker, "worker 0: replaced"), 0);
	free(body);
	close(fd);
	stop(&broker);
}
END_TEST

/* Whoever waits for it is told; the worker is as one that dies at every start. */
START_TEST(D03_successors_that_all_die)
{
	struct broker broker;
	char *body;
	int fd, status;

	start(&broker, &one_worker, "serve dieopening");
	fd = connect_to(&broker);
	send_text(fd, "r");
	ck_assert(broker_wait_log(&broker, "cannot be replaced: the new process exited (status 4), as others before it",
	    SOON_MS));
	body = broker_http_get(&broker, "/healthz", &status);
	ck_assert_int_eq(status, 503);
	ck_assert_ptr_nonnull(strstr(body, "worker 0: failing, died 3 times in a row"));
	free(body);
	close(fd);
	stop(&broker);
}
END_TEST

/* The old one dies while its replacement is on its way: that one takes its place, and recovers the logs. */
START_TEST(D03_one_that_dies_during_its_replacement)
{
	struct broker broker;
	pid_t pid, next, end;
	int fd;

	start(&broker, &one_worker, "serve");
	for (int i = 0; i < 10; i++) {
		fd = connect_to(&broker);
		who_serves(fd, "i", &pid);
		send_text(fd, i % 2 == 0 ? "rk" : "rx");
		ck_assert(wire_ended(fd, SOON_MS));
		close(fd);
		fd = connect_to(&broker);
		who_serves(fd, "i", &next);
		ck_assert_int_ne(next, pid);
		ck_assert_int_eq(handed_ends(fd, &end), 0);
		close(fd);
	}
	ck_assert(children_become(&broker, 1));
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, 10));
	stop(&broker);
}
END_TEST

/* Many of them, with connections that come and go: nothing is lost, nothing stays. */
START_TEST(D03_many_replacements_leak_nothing)
{
	enum { CLIENTS = 50, WARM = 3 };
	struct broker broker;
	int fds[CLIENTS], rounds = 30 * broker_scale(), descriptors = 0;
	long rss_kib = 0;

	start(&broker, &two_workers, "serve");
	for (int i = 0; i < CLIENTS; i++)
		fds[i] = connect_to(&broker);
	for (int round = 0; round < rounds + WARM; round++) {
		if (round == WARM) {
			ck_assert(children_become(&broker, 2));
			descriptors = broker_fd_count(broker.pid);
			rss_kib = broker_rss_kib(broker.pid);
		}
		send_text(fds[0], round % 2 == 0 ? "g0r" : "g1r");
		for (int i = 1; i < CLIENTS; i++)
			send_text(fds[i], (i + round) % 2 == 0 ? "g0i" : "m1i");
		for (int i = 1; i < CLIENTS; i++) {
			pid_t pid;
			int number;

			read_identity(fds[i], &number, &pid);
			ck_assert_int_eq(number, (i + round) % 2);
		}
		ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", "reason=\"requested\"", round + 1));
		ck_assert(broker_count_log(&broker, "cannot be replaced") == 0);
	}
	ck_assert(children_become(&broker, 2));
	for (int64_t until = wire_now_ms() + SOON_MS; broker_fd_count(broker.pid) > descriptors; usleep(10000))
		ck_assert_int_lt(wire_now_ms(), until);
	ck_assert(broker_is_asan() || broker_rss_kib(broker.pid) - rss_kib < 2048);	/* its quarantine keeps what is freed */
	for (int i = 0; i < CLIENTS; i++)
		close(fds[i]);
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 0));
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, rounds + WARM));
	stop(&broker);
}
END_TEST

/* The program that runs is the one on disk at that moment. */
START_TEST(D03_a_binary_changed_on_disk_is_picked_up)
{
	struct broker broker;
	char path[96], moved[96], program[BROKER_PATH_BYTES], link[64];
	pid_t pid, next;
	ssize_t n;
	int fd;

	start(&broker, &one_worker, "serve");
	fd = connect_to(&broker);
	who_serves(fd, "i", &pid);
	snprintf(path, sizeof(path), "%s/logworker", programs);
	snprintf(moved, sizeof(moved), "%s/logworker.new", programs);
	snprintf(program, sizeof(program), "cp '%s' '%s'", path, moved);
	ck_assert_int_eq(system(program), 0);
	ck_assert(status_tells(&broker, "\"old_program\":false"));
	ck_assert_int_eq(rename(moved, path), 0);
	ck_assert(status_tells(&broker, "\"old_program\":true"));
	send_text(fd, "r");
	ck_assert(broker_wait_log(&broker, "worker 0: replaced, pid ", SOON_MS));
	who_serves(fd, "i", &next);
	ck_assert_int_ne(next, pid);
	snprintf(link, sizeof(link), "/proc/%d/exe", (int)next);
	n = readlink(link, program, sizeof(program) - 1);
	ck_assert_int_gt(n, 0);
	program[n] = '\0';
	ck_assert_str_eq(program, path);	/* and not "... (deleted)" */
	ck_assert(status_tells(&broker, "\"old_program\":false"));
	close(fd);
	stop(&broker);
}
END_TEST

/* A stop while a replacement is at any stage. */
START_TEST(D07_stops_during_a_replacement)
{
	static const struct {
		const char *script, *commands;
		int children, requested;	/* before the stop */
	} stages[] = {
		{ "serve silent", "r", 2, 0 },
		{ "serve unprepared", "r", 2, 0 },
		{ "serve serve", "dsr", 2, 0 },
		{ "serve opening", "r", 1, 1 },
		{ "serve serve", "dor", 2, 1 },
	};
	struct broker_config config = one_worker;
	struct broker broker;
	int fd;

	config.broker = "drain_timeout = 100ms\n";
	start(&broker, &config, stages[_i].script);
	fd = connect_to(&broker);
	who_serves(fd, "i", NULL);
	send_text(fd, stages[_i].commands);
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", "reason=\"requested\"", stages[_i].requested));
	ck_assert(children_become(&broker, stages[_i].children));
	close(fd);
	stop(&broker);
}
END_TEST

/* ---- many deaths ---- */

static bool
no_zombies(pid_t parent)
{
	char path[64], text[4096] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	if (fgets(text, sizeof(text), file) == NULL)
		text[0] = '\0';
	fclose(file);
	for (char *at = strtok(text, " "); at != NULL; at = strtok(NULL, " ")) {
		char stat_path[64], line[256] = "";

		snprintf(stat_path, sizeof(stat_path), "/proc/%s/stat", at);
		file = fopen(stat_path, "r");
		if (file == NULL)
			continue;
		if (fgets(line, sizeof(line), file) != NULL && strstr(line, ") Z ") != NULL) {
			fclose(file);
			return false;
		}
		fclose(file);
	}
	return true;
}

/* A death costs nothing that stays. Sixteen workers, so that none of them dies too often to be restarted at once. */
START_TEST(bug_H2_three_hundred_deaths_leak_nothing)
{
	enum { WORKERS = 16, ROUNDS = 19, WARM = 3 };
	struct broker_config config = { .topics = "t = 16\n", .workers = WORKERS };
	struct broker broker;
	int descriptors = 0;
	long rss_kib = 0;

	start(&broker, &config, "serve");
	for (int round = 0; round < ROUNDS; round++) {
		pid_t pids[BROKER_WORKERS_MAX];

		if (round == WARM) {
			descriptors = broker_fd_count(broker.pid);
			rss_kib = broker_rss_kib(broker.pid);
		}
		ck_assert_int_eq(broker_workers(&broker, pids, BROKER_WORKERS_MAX), WORKERS);
		for (int i = 0; i < WORKERS; i++)
			kill(pids[i], SIGKILL);
		ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, WORKERS * (round + 1)));
		ck_assert(metric_becomes(&broker, "logbroker_worker_up", NULL, WORKERS));
	}
	ck_assert_int_le(broker_fd_count(broker.pid), descriptors + 2);	/* an HTTP client more or less */
	if (!broker_is_asan())	/* it keeps freed memory on purpose */
		ck_assert_int_lt(broker_rss_kib(broker.pid), rss_kib + 2048);
	ck_assert(no_zombies(broker.pid));
	stop(&broker);
}
END_TEST

START_TEST(bug_H3_all_killed_at_once)
{
	struct broker_config config = { .topics = "t = 8\n", .workers = 8 };
	struct broker broker;

	start(&broker, &config, "serve");
	for (int i = 0; i < 10; i++) {
		pid_t pids[BROKER_WORKERS_MAX];
		int count;

		ck_assert(metric_becomes(&broker, "logbroker_worker_up", NULL, 8));
		count = broker_workers(&broker, pids, BROKER_WORKERS_MAX);
		ck_assert_int_eq(count, 8);
		/* While it cannot take the signals one by one. */
		broker_freeze(broker.pid);
		for (int k = 0; k < count; k++)
			kill(pids[k], SIGKILL);
		kill(broker.pid, SIGCONT);
		ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, 8 * (i + 1)));
	}
	ck_assert(metric_becomes(&broker, "logbroker_worker_up", NULL, 8));
	ck_assert(no_zombies(broker.pid));
	stop(&broker);
}
END_TEST

/* ---- descriptors are short ---- */

static void
limit_descriptors(pid_t pid, rlim_t soft, struct rlimit *before)
{
	struct rlimit limit;

	ck_assert_int_eq(prlimit(pid, RLIMIT_NOFILE, NULL, before), 0);
	limit = (struct rlimit){ soft, before->rlim_max };
	ck_assert_int_eq(prlimit(pid, RLIMIT_NOFILE, &limit, NULL), 0);
}

/* Two workers with two partitions each keep 42, a connection takes two, and sealed segments up to half of the rest. */
START_TEST(a_start_needs_descriptors)
{
	struct broker_config config = two_workers;
	struct broker broker = { 0 };

	config.wrapper = "prlimit --nofile=70";
	ck_assert_int_eq(broker_start_fails(&broker, &config), 1);
	ck_assert_int_eq(broker_count_log(&broker, "cannot start: the limit of descriptors is 70; the supervisor with 2 "
	    "workers and up to 2 partitions in one of them keeps 42"), 1);
	ck_assert_int_eq(broker_count_log(&broker, "LimitNOFILE"), 1);
	broker_end(&broker);
	config.wrapper = "prlimit --nofile=76";
	start(&broker, &config, "serve");
	ck_assert_int_eq(broker_count_log(&broker, "max_connections is lowered from 10000 to 8: "), 1);
	stop(&broker);
}
END_TEST

/* The limit is lowered below what is open: nothing can be accepted, and connections still go from worker to worker. */
START_TEST(D09_out_of_descriptors)
{
	struct broker broker;
	struct rlimit before;
	int64_t cpu_ms;
	int fds[30], waiting[30];

	start(&broker, &two_workers, "serve");
	for (int i = 0; i < 30; i++) {
		fds[i] = connect_to(&broker);
		who_serves(fds[i], "i", NULL);
	}
	limit_descriptors(broker.pid, (rlim_t)_i, &before);
	for (int i = 0; i < 30; i++) {
		waiting[i] = connect_to(&broker);	/* by the kernel: it is in the listening socket's queue */
		send_text(waiting[i], "i");
	}
	ck_assert(broker_wait_log(&broker, "cannot accept connections", SOON_MS));
	for (int round = 0; round < 20; round++)
		for (int i = 0; i < 30; i++)
			ck_assert_int_eq(who_serves(fds[i], round % 2 == 0 ? "g1i" : "m0i", NULL), round % 2 == 0 ? 1 : 0);
	cpu_ms = broker_cpu_ms(broker.pid);
	ck_assert(wire_silent(waiting[0], 1000));
	ck_assert_int_lt(broker_cpu_ms(broker.pid) - cpu_ms, 100);
	ck_assert_int_eq(broker_count_log(&broker, "cannot accept connections"), 1);
	ck_assert_int_eq(prlimit(broker.pid, RLIMIT_NOFILE, &before, NULL), 0);
	for (int i = 0; i < 30; i++) {
		pid_t pid;
		int number;

		read_identity(waiting[i], &number, &pid);
		close(waiting[i]);
		who_serves(fds[i], "i", NULL);
		close(fds[i]);
	}
	ck_assert(broker_wait_metric_least(&broker, "logbroker_accept_pauses_total", NULL, 2, SOON_MS));
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 0));
	stop(&broker);
}
END_TEST

/* From here on as nobody, who must be able to make directories where all tests have theirs. */
static void
drop_privileges(void)
{
	struct broker unused;
	char *slash;

	if (geteuid() != 0)
		return;
	broker_prepare(&unused, NULL);
	slash = strrchr(unused.directory, '/');
	*slash = '\0';
	ck_assert_int_eq(chmod(unused.directory, 01777), 0);
	broker_end(&unused);
	ck_assert_int_eq(setgroups(0, NULL), 0);
	ck_assert_int_eq(setgid(65534), 0);
	ck_assert_int_eq(setuid(65534), 0);
}

/*
 * The kernel counts descriptors in flight per user, against the sender's limit, unless it is privileged: a worker that
 * does not read its channel makes the next hand-over wait, by ETOOMANYREFS, and nothing is lost.
 */
START_TEST(too_many_descriptors_in_flight)
{
	/* More than the limit below, so that some must wait; fewer than the limit and what the supervisor itself can hold:
	 * else what waits to be received would alone keep it from ever sending again (until the limit is raised). */
	enum { LIMIT = 60, COUNT = 92 };
	struct broker broker;
	struct rlimit before;
	pid_t frozen;
	int fds[COUNT], holder;
	int64_t cpu_ms;

	drop_privileges();
	start(&broker, &two_workers, "serve");
	holder = connect_to(&broker);
	who_serves(holder, "g1i", &frozen);
	for (int i = 0; i < COUNT; i++) {
		fds[i] = connect_to(&broker);
		who_serves(fds[i], "g0i", NULL);
	}
	limit_descriptors(broker.pid, LIMIT, &before);
	broker_freeze(frozen);
	for (int i = 0; i < COUNT; i++)
		send_text(fds[i], "g1i");
	/* It takes from worker 0 what it can hold, and worker 0 is still served. */
	usleep(300 * 1000);
	cpu_ms = broker_cpu_ms(broker.pid);
	usleep(500 * 1000);
	ck_assert_int_lt(broker_cpu_ms(broker.pid) - cpu_ms, 300);
	kill(frozen, SIGCONT);
	for (int i = 0; i < COUNT; i++) {
		pid_t pid;
		int number;

		read_identity(fds[i], &number, &pid);
		ck_assert_int_eq(number, 1);
	}
	ck_assert_int_eq(prlimit(broker.pid, RLIMIT_NOFILE, &before, NULL), 0);
	for (int i = 0; i < COUNT; i++)
		close(fds[i]);
	close(holder);
	ck_assert(metric_becomes(&broker, "logbroker_connections", NULL, 0));
	stop(&broker);
}
END_TEST

/* ---- start and stop ---- */

START_TEST(D07_stops_in_any_state)
{
	static const struct {
		const char *script;
		int fails_at_least;
	} states[] = { { "serve", 0 }, { "silent", 0 }, { "opening", 0 }, { "exit", 1 } };
	struct broker broker;
	pid_t pids[BROKER_WORKERS_MAX];
	int64_t start_ms;

	launch(&broker, &one_worker, states[_i].script);
	if (strcmp(states[_i].script, "serve") == 0 || strcmp(states[_i].script, "exit") == 0)
		broker_wait_ready(&broker);
	broker.pid = broker.child;
	if (strcmp(states[_i].script, "exit") != 0)
		while (broker_workers(&broker, pids, BROKER_WORKERS_MAX) == 0)
			usleep(1000);
	start_ms = wire_now_ms();
	kill(broker.pid, SIGTERM);
	ck_assert_int_eq(broker_wait_exit(&broker, SOON_MS), 0);
	ck_assert_int_lt(wire_now_ms() - start_ms, 9000);	/* nothing was waited for: that takes 10 s at least */
	ck_assert_int_ne(access(broker.unix_path, F_OK), 0);
	ck_assert_int_ne(access(broker.control_path, F_OK), 0);
	broker_end(&broker);
}
END_TEST

/* More waits for it in its channel than that takes; it reads late, and is not killed for what cannot be sent any more. */
START_TEST(D07_a_worker_that_is_behind_stops_in_order)
{
	enum { COUNT = 40, WITH_EACH_BYTES = 8000 };	/* 200 KiB fit */
	struct broker broker;
	char commands[WITH_EACH_BYTES + 1];
	int fds[COUNT], holder;
	pid_t frozen;

	memset(commands, ' ', WITH_EACH_BYTES);
	memcpy(commands, "g1", 2);
	commands[WITH_EACH_BYTES] = '\0';
	start(&broker, &two_workers, "serve");
	holder = connect_to(&broker);
	ck_assert_int_eq(who_serves(holder, "g1i", &frozen), 1);
	for (int i = 0; i < COUNT; i++) {
		fds[i] = connect_to(&broker);
		who_serves(fds[i], "g0i", NULL);
	}
	broker_freeze(frozen);
	for (int i = 0; i < COUNT; i++)
		send_text(fds[i], commands);
	ck_assert(status_tells(&broker, "\"connections\":41,"));	/* all of them, of one worker */
	kill(broker.pid, SIGTERM);
	ck_assert(broker_wait_log(&broker, ": stopping", SOON_MS));
	kill(frozen, SIGCONT);
	ck_assert_int_eq(broker_wait_exit(&broker, SOON_MS), 0);
	ck_assert_int_eq(broker_count_log(&broker, "killing it"), 0);
	for (int i = 0; i < COUNT; i++)
		close(fds[i]);
	close(holder);
	broker_end(&broker);
}
END_TEST

START_TEST(a_worker_that_does_not_stop)
{
	struct broker_config config = one_worker;
	struct broker broker;
	int64_t start_ms;

	config.broker = "drain_timeout = 300ms\n";
	start(&broker, &config, "stubborn");
	start_ms = wire_now_ms();
	kill(broker.pid, SIGTERM);
	kill(broker.pid, SIGINT);
	ck_assert_int_eq(broker_wait_exit(&broker, SOON_MS), 1);
	ck_assert_int_ge(wire_now_ms() - start_ms, 5300);
	ck_assert(broker_count_log(&broker, "has not stopped within drain_timeout") == 1);
	broker_end(&broker);
}
END_TEST

/* One that has its settings may be writing: that it ends badly is not passed over. */
START_TEST(a_worker_that_stops_badly_while_it_opens_its_logs)
{
	struct broker broker;

	launch(&broker, &one_worker, "badopening");
	broker.pid = broker.child;
	ck_assert(broker_wait_log(&broker, "fake worker: opening", SOON_MS));
	kill(broker.pid, SIGTERM);
	ck_assert_int_eq(broker_wait_exit(&broker, SOON_MS), 1);
	ck_assert_int_eq(broker_count_log(&broker, "instead of stopping in order"), 1);
	broker_end(&broker);
}
END_TEST

START_TEST(a_second_signal_changes_nothing)
{
	struct broker broker;

	start(&broker, &two_workers, "serve");
	kill(broker.pid, SIGINT);
	kill(broker.pid, SIGTERM);
	kill(broker.pid, SIGTERM);
	ck_assert_int_eq(broker_wait_exit(&broker, SOON_MS), 0);
	broker_end(&broker);
}
END_TEST

/* Changes broker.ini by sed, which nobody reads before the next reload. */
static void
edit(const struct broker *broker, const char *how)
{
	char command[2 * BROKER_PATH_BYTES];

	snprintf(command, sizeof(command), "sed -i '%s' '%s/broker.ini'", how, broker->directory);
	ck_assert_int_eq(system(command), 0);
}

START_TEST(reload_says_what_it_applies)
{
	struct broker_config config = two_workers;
	struct broker broker;
	pid_t pid, same;
	int fd;

	config.broker = "max_connections = 5\n";
	start(&broker, &config, "serve");
	fd = connect_to(&broker);
	who_serves(fd, "i", &pid);
	kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "reload: nothing has changed", SOON_MS));
	edit(&broker, "s/^max_connections.*/max_connections = 1/");
	kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "reload: max_connections: 5 -> 1 (applied)", SOON_MS));
	ck_assert(wire_ended(connect_to(&broker), SOON_MS));
	edit(&broker, "s/^workers.*/workers = 7/");
	kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "reload: workers: 2 -> 7 (needs a restart of the service)", SOON_MS));
	edit(&broker, "1a max_conections = 9");
	kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "broker.ini:2: unknown key 'max_conections' in [broker] (did you mean "
	    "'max_connections'?)", SOON_MS));
	who_serves(fd, "i", &same);
	ck_assert_int_eq(pid, same);
	close(fd);
	stop(&broker);
}
END_TEST

/* What workers are told: all are replaced, one after the other, and the connection stays. */
START_TEST(reload_replaces_the_workers)
{
	struct broker broker;
	pid_t before[2], after[2];
	int fd;

	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	who_serves(fd, "g0i", &before[0]);
	who_serves(fd, "g1i", &before[1]);
	edit(&broker, "1a max_fetch_wait = 7s");
	kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "reload: max_fetch_wait: 1min -> 7s (applied by restarting the workers)", SOON_MS));
	ck_assert(broker_wait_log(&broker, "reload: worker 0: restarted with the new settings", SOON_MS));
	ck_assert(broker_wait_log(&broker, "reload: worker 1: restarted with the new settings", SOON_MS));
	who_serves(fd, "g0i", &after[0]);
	who_serves(fd, "g1i", &after[1]);
	ck_assert_int_ne(before[0], after[0]);
	ck_assert_int_ne(before[1], after[1]);
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", "reason=\"requested\"", 2));
	kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "reload: nothing has changed", SOON_MS));
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, 2));
	close(fd);
	stop(&broker);
}
END_TEST

/* A replacement that fails leaves the old one serving, with the old settings; the next reload tries again. */
START_TEST(reload_tries_again_what_has_failed)
{
	struct broker broker;
	pid_t before, after;
	int fd;

	start(&broker, &one_worker, "serve exit serve");
	fd = connect_to(&broker);
	who_serves(fd, "i", &before);
	edit(&broker, "1a max_fetch_wait = 7s");
	kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "reload: worker 0: not restarted: ", SOON_MS));
	who_serves(fd, "i", &after);
	ck_assert_int_eq(before, after);
	ck_assert(status_tells(&broker, "\"old_settings\":true"));
	kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "reload: worker 0: restarted with the new settings", SOON_MS));
	who_serves(fd, "i", &after);
	ck_assert_int_ne(before, after);
	ck_assert(status_tells(&broker, "\"old_settings\":false"));
	close(fd);
	stop(&broker);
}
END_TEST

static bool
opens_its_logs(void *with)
{
	char *body = broker_http_get(with, "/healthz", NULL);
	bool opens = body != NULL && strstr(body, "worker 1: down (opening its logs)") != NULL;

	free(body);
	return opens;
}

/* One that is on its way up was told the old settings, and goes on with them: that is no success. */
START_TEST(reload_names_a_worker_that_does_not_serve_yet)
{
	struct broker broker;
	int fd;

	start(&broker, &two_workers, "serve serve opening serve");
	fd = connect_to(&broker);
	ck_assert_int_eq(who_serves(fd, "g1i", NULL), 1);
	send_text(fd, "x");
	ck_assert(wire_ended(fd, SOON_MS));
	close(fd);
	ck_assert(broker_wait(opens_its_logs, &broker, SOON_MS));
	edit(&broker, "1a max_fetch_wait = 7s");
	kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "error supervisor: reload: worker 1: does not serve yet, and goes on with the settings it "
	    "was started with", SOON_MS));
	stop(&broker);
}
END_TEST

/* Any number of them at once makes one run, or one and one more behind it. */
START_TEST(reload_burst_is_one)
{
	struct broker broker;
	int fd;

	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	edit(&broker, "1a max_fetch_wait = 7s");
	for (int i = 0; i < 1000; i++)
		kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "reload: worker 1: restarted with the new settings", SOON_MS));
	who_serves(fd, "g1i", NULL);
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, 2));
	close(fd);
	stop(&broker);
}
END_TEST

/* POST `path` to the control socket: its answer, head and all. */
static void
give_order(const struct broker *broker, const char *path, const char *headers, char *answer, size_t size)
{
	char request[256];
	size_t length = 0;
	long got = 1;
	int fd = wire_connect_unix(broker->control_path);

	ck_assert_int_ge(fd, 0);
	snprintf(request, sizeof(request), "POST %s HTTP/1.0\r\n%sContent-Length: 0\r\n\r\n", path, headers);
	send_text(fd, request);
	while (length < size - 1 && (got = wire_receive(fd, answer + length, size - 1 - length, SOON_MS)) > 0)
		length += (size_t)got;
	answer[length] = '\0';
	close(fd);
}

/* The new process serves, but clients were cut: who has ordered it must not hear that they waited. */
START_TEST(D03_an_order_tells_that_the_old_one_died)
{
	struct broker broker;
	char answer[4096];
	pid_t pid;
	int fd;

	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	send_text(fd, "g0dx");
	who_serves(fd, "i", &pid);
	give_order(&broker, "/workers/0/restart", "", answer, sizeof(answer));
	ck_assert_ptr_nonnull(strstr(answer, " 200 "));
	ck_assert_ptr_nonnull(strstr(answer, "worker 0: replaced, but one of its processes died meanwhile: clients were cut\n"));
	close(fd);
	fd = connect_to(&broker);
	send_text(fd, "g0dx");
	who_serves(fd, "i", &pid);
	give_order(&broker, "/workers/0/restart", "Accept: application/json\r\n", answer, sizeof(answer));
	ck_assert_ptr_nonnull(strstr(answer, "{\"worker\":0,\"replaced\":true,\"pause_seconds\":null}"));
	close(fd);
	fd = connect_to(&broker);
	send_text(fd, "g0dx");
	who_serves(fd, "i", &pid);
	edit(&broker, "1a max_fetch_wait = 7s");
	give_order(&broker, "/reload", "", answer, sizeof(answer));
	ck_assert_ptr_nonnull(strstr(answer, "worker 0: restarted with the new settings, but one of its processes died"));
	ck_assert_ptr_nonnull(strstr(answer, "worker 1: restarted with the new settings, its clients waited "));
	close(fd);
	stop(&broker);
}
END_TEST

START_TEST(reload_over_the_control_socket)
{
	struct broker broker;
	char answer[4096], tenths[2];

	start(&broker, &two_workers, "serve");
	give_order(&broker, "/reload", "", answer, sizeof(answer));
	ck_assert_ptr_nonnull(strstr(answer, " 200 "));
	ck_assert_ptr_nonnull(strstr(answer, "\r\n\r\nnothing has changed\n"));
	edit(&broker, "1a max_fetch_wait = 7s");
	give_order(&broker, "/reload", "Accept: application/json\r\n", answer, sizeof(answer));
	ck_assert_ptr_nonnull(strstr(answer, " 200 "));
	ck_assert_ptr_nonnull(strstr(answer, "{\"done\":true,\"lines\":[\"max_fetch_wait: 1min -> 7s (applied by restarting the "
	    "workers)\",\"worker 0: restarted with the new settings, "));
	/* Below a millisecond, too: tenths, as restart-worker tells it. */
	ck_assert_int_eq(sscanf(strstr(answer, "its clients waited ") + 19, "%*d.%1[0-9] ms", tenths), 1);
	edit(&broker, "1a rubbish");
	give_order(&broker, "/reload", "", answer, sizeof(answer));
	ck_assert_ptr_nonnull(strstr(answer, " 500 "));
	ck_assert_ptr_nonnull(strstr(answer, "broker.ini:2: no "));
	stop(&broker);
}
END_TEST

/* A mask of /proc/PID/status ("SigIgn:"): bit n - 1 for signal n. */
static unsigned long long
signal_mask(pid_t pid, const char *key)
{
	char path[64], line[256];
	unsigned long long mask = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file) != NULL)
		if (strncmp(line, key, strlen(key)) == 0)
			mask = strtoull(line + strlen(key), NULL, 16);
	fclose(file);
	return mask & ~(3ULL << 31);	/* 32 and 33 are libc's own, and not to be touched */
}

/* Ignored signals of whoever has started it do not count, neither for it nor for its workers. */
START_TEST(inherited_signal_settings_are_reset)
{
	static const int ignored[] = { SIGTERM, SIGCHLD, SIGQUIT, SIGUSR1, SIGHUP };
	struct broker broker;
	pid_t pid;
	int fd;

	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
	launch(&broker, &two_workers, "serve");
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_DFL);
	broker_wait_ready(&broker);
	fd = connect_to(&broker);
	who_serves(fd, "i", &pid);
	ck_assert_uint_eq(signal_mask(broker.pid, "SigIgn:"), 1ULL << (SIGPIPE - 1));
	ck_assert_uint_eq(signal_mask(broker.pid, "SigBlk:"), 0);
	ck_assert_uint_eq(signal_mask(pid, "SigIgn:"), 1ULL << (SIGINT - 1));	/* the fake worker's own */
	ck_assert_uint_eq(signal_mask(pid, "SigBlk:"), 0);
	ck_assert_uint_eq(signal_mask(pid, "SigCgt:") & ~(1ULL << (SIGSEGV - 1) | 1ULL << (SIGBUS - 1) | 1ULL << (SIGFPE - 1)),
	    0);	/* those a sanitizer catches */
	kill(pid, SIGTERM);
	ck_assert(broker_wait_gone(pid, SOON_MS));
	close(fd);
	ck_assert(metric_becomes(&broker, "logbroker_worker_up", NULL, 2));
	stop(&broker);
}
END_TEST

/* The link of a descriptor, "" when it is not open. */
static void
read_link(pid_t pid, int fd, char *link, size_t size)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	n = readlink(path, link, size - 1);
	link[n > 0 ? n : 0] = '\0';
}

START_TEST(workers_have_their_descriptors_and_nothing_else)
{
	struct broker broker;
	char link[BROKER_PATH_BYTES];
	pid_t pid;
	int http, fd;

	start(&broker, &one_worker, "serve");
	http = wire_connect_tcp(broker.http_port);
	fd = connect_to(&broker);
	send_text(fd, "k");	/* the next one starts while everything is open */
	ck_assert(wire_ended(fd, SOON_MS));
	ck_assert(metric_becomes(&broker, "logbroker_worker_restarts_total", NULL, 1));
	ck_assert(metric_becomes(&broker, "logbroker_worker_up", NULL, 1));
	ck_assert_int_eq(broker_workers(&broker, &pid, 1), 1);
	ck_assert_int_eq(broker_fd_count(pid), 6);
	read_link(pid, 0, link, sizeof(link));
	ck_assert_str_eq(link, "/dev/null");
	read_link(pid, 3, link, sizeof(link));
	ck_assert_ptr_nonnull(strstr(link, "socket:"));
	read_link(pid, 4, link, sizeof(link));
	ck_assert_ptr_nonnull(strstr(link, "logbroker-board"));
	read_link(pid, 5, link, sizeof(link));
	ck_assert_ptr_nonnull(strstr(link, "/data/lock"));
	close(http);
	close(fd);
	stop(&broker);
}
END_TEST

START_TEST(bug_H11_a_second_supervisor)
{
	struct broker broker, second;
	struct broker_config config = two_workers;
	char text[64];
	int64_t start_ms;
	pid_t pid;
	int fd;

	start(&broker, &two_workers, "serve");
	fd = connect_to(&broker);
	who_serves(fd, "i", NULL);
	config.data_dir = broker.data_dir;
	config.environment = fake_environment;
	memset(&second, 0, sizeof(second));
	start_ms = wire_now_ms();
	ck_assert_int_eq(broker_start_fails(&second, &config), 75);
	ck_assert_int_lt(wire_now_ms() - start_ms, 10000);
	snprintf(text, sizeof(text), "pid %d supervisor", (int)broker.pid);
	ck_assert_int_eq(broker_count_log(&second, text), 1);
	broker_end(&second);
	who_serves(fd, "i", &pid);
	close(fd);
	stop(&broker);
	/* Not stale after a kill. */
	start(&broker, &two_workers, "serve");
	config.data_dir = broker.data_dir;
	broker_kill(&broker);
	broker_end(&broker);
	start(&second, &config, "serve");
	stop(&second);
}
END_TEST

START_TEST(an_address_that_is_taken_is_named)
{
	struct broker broker, second;
	struct broker_config config = two_workers;
	char lines[BROKER_PATH_BYTES + 32], text[64];

	start(&broker, &two_workers, "serve");
	snprintf(lines, sizeof(lines), "listen = 127.0.0.1:%d\n", broker.port);
	config.broker = lines;
	memset(&second, 0, sizeof(second));
	ck_assert_int_eq(broker_start_fails(&second, &config), 1);
	snprintf(text, sizeof(text), "cannot listen on 127.0.0.1:%d: Address already in use", broker.port);
	ck_assert_int_eq(broker_count_log(&second, text), 1);
	broker_end(&second);
	snprintf(lines, sizeof(lines), "listen = unix:%s\n", broker.unix_path);
	memset(&second, 0, sizeof(second));
	ck_assert_int_eq(broker_start_fails(&second, &config), 1);
	ck_assert_int_eq(broker_count_log(&second, "another program listens there"), 1);
	broker_end(&second);
	stop(&broker);
}
END_TEST

/* One that has bound its socket and does not listen yet is not taken for a dead one. */
START_TEST(a_socket_file_that_is_being_made_is_not_stale)
{
	struct broker_config config = two_workers;
	struct broker broker, second;
	char lines[BROKER_PATH_BYTES + 32];
	int fd;

	if (!broker_have_strace())
		return;
	config.strace = "-e trace=listen -e inject=listen:delay_enter=400000";
	launch(&broker, &config, "serve");
	while (access(broker.unix_path, F_OK) != 0)
		usleep(1000);
	config = two_workers;
	snprintf(lines, sizeof(lines), "listen = unix:%s\n", broker.unix_path);
	config.broker = lines;
	memset(&second, 0, sizeof(second));
	ck_assert_int_eq(broker_start_fails(&second, &config), 1);
	ck_assert_int_eq(broker_count_log(&second, "another program listens there"), 1);
	broker_end(&second);
	broker_wait_ready(&broker);
	fd = wire_connect_unix(broker.unix_path);
	ck_assert_int_ge(fd, 0);
	who_serves(fd, "i", NULL);
	close(fd);
	stop(&broker);
}
END_TEST

static void
make_stale_socket(const char *path)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_uint_lt(strlen(path), sizeof(name.sun_path));
	memcpy(name.sun_path, path, strlen(path) + 1);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	close(fd);
}

START_TEST(a_stale_socket_file_is_replaced_and_nothing_else)
{
	struct broker_config config = two_workers;
	struct broker broker;
	struct stat st;
	FILE *file;
	int fd;

	config.environment = fake_environment;
	broker_prepare(&broker, &config);
	broker.workers_may_die = true;
	set_script(&broker, "serve");
	make_stale_socket(broker.unix_path);
	make_stale_socket(broker.control_path);
	broker_launch(&broker);
	broker_wait_ready(&broker);
	fd = wire_connect_unix(broker.unix_path);
	who_serves(fd, "i", NULL);
	close(fd);
	ck_assert_int_eq(stat(broker.control_path, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0660);
	/* Not ours any more: it stays. */
	ck_assert_int_eq(unlink(broker.unix_path), 0);
	file = fopen(broker.unix_path, "w");
	ck_assert_ptr_nonnull(file);
	fclose(file);
	broker_stop(&broker);
	ck_assert_int_eq(access(broker.unix_path, F_OK), 0);
	ck_assert_int_eq(broker_start_fails(&broker, NULL), 1);
	ck_assert_int_eq(broker_count_log(&broker, "is not a socket"), 1);
	ck_assert_int_eq(access(broker.unix_path, F_OK), 0);
	broker_end(&broker);
}
END_TEST

static int
run_program(const char *arguments, char *output, size_t size)
{
	char command[1024];
	FILE *pipe;
	size_t n;
	int status;

	snprintf(command, sizeof(command), "%s/logsupervisor %s 2>&1", programs, arguments);
	pipe = popen(command, "r");
	ck_assert_ptr_nonnull(pipe);
	n = fread(output, 1, size - 1, pipe);
	output[n] = '\0';
	status = pclose(pipe);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(the_command_line)
{
	struct broker broker;
	char output[8192], arguments[BROKER_PATH_BYTES + 64];

	ck_assert_int_eq(run_program("--version", output, sizeof(output)), 0);
	ck_assert_ptr_nonnull(strstr(output, "logsupervisor (logbroker) "));
	ck_assert_int_eq(run_program("-h", output, sizeof(output)), 0);
	ck_assert_ptr_nonnull(strstr(output, "usage: "));
	ck_assert_int_eq(run_program("--help", output, sizeof(output)), 0);
	ck_assert_int_eq(run_program("", output, sizeof(output)), 64);
	ck_assert_int_eq(run_program("-x", output, sizeof(output)), 64);
	ck_assert_int_eq(run_program("-f a b", output, sizeof(output)), 64);
	ck_assert_ptr_nonnull(strstr(output, "usage: "));
	ck_assert_int_eq(run_program("-f /nonexistent/broker.ini", output, sizeof(output)), 78);
	ck_assert_ptr_nonnull(strstr(output, "/nonexistent/broker.ini"));
	broker_prepare(&broker, &two_workers);
	snprintf(arguments, sizeof(arguments), "-t -f %s/broker.ini", broker.directory);
	ck_assert_int_eq(run_program(arguments, output, sizeof(output)), 0);
	ck_assert_ptr_nonnull(strstr(output, "configuration ok"));
	ck_assert_int_ne(access(broker.data_dir, F_OK), 0);
	ck_assert_int_ne(access(broker.unix_path, F_OK), 0);
	snprintf(arguments, sizeof(arguments), "-T -f %s/broker.ini", broker.directory);
	ck_assert_int_eq(run_program(arguments, output, sizeof(output)), 0);
	ck_assert_ptr_nonnull(strstr(output, "request_timeout = "));
	ck_assert_int_ne(access(broker.data_dir, F_OK), 0);
	broker_end(&broker);
}
END_TEST

START_TEST(the_configuration_may_come_from_a_descriptor)
{
	struct broker broker;
	char output[8192], arguments[BROKER_PATH_BYTES + 64];

	broker_prepare(&broker, &two_workers);
	snprintf(arguments, sizeof(arguments), "-t -f /dev/fd/7 7< %s/broker.ini", broker.directory);
	ck_assert_int_eq(run_program(arguments, output, sizeof(output)), 0);
	ck_assert_ptr_nonnull(strstr(output, "configuration ok"));
	snprintf(arguments, sizeof(arguments), "-T -f /dev/fd/7 7< %s/broker.ini", broker.directory);
	ck_assert_int_eq(run_program(arguments, output, sizeof(output)), 0);
	broker_end(&broker);
}
END_TEST

/* A name that is not on the disk takes everything below it along in a power cut. */
START_TEST(the_data_directory_is_forced_by_name)
{
	struct broker_config config = two_workers;
	struct broker broker;
	char parent[BROKER_PATH_BYTES + 8];

	if (!broker_have_strace())
		return;
	config.strace = "-y -e trace=fsync";
	start(&broker, &config, "serve");
	snprintf(parent, sizeof(parent), "<%s>", broker.directory);
	ck_assert_int_eq(broker_count_strace(&broker, "fsync(", parent), 1);
	stop(&broker);
}
END_TEST

START_TEST(a_topic_that_nobody_names_is_a_log_line)
{
	struct broker_config config = two_workers;
	struct broker broker;
	char command[4 * BROKER_PATH_BYTES];

	config.environment = fake_environment;
	broker_prepare(&broker, &config);
	broker.workers_may_die = true;
	set_script(&broker, "serve");
	snprintf(command, sizeof(command), "mkdir -p '%s/old-0' && : > '%s/old-0/00000000000000000000.log'", broker.data_dir,
	    broker.data_dir);
	ck_assert_int_eq(system(command), 0);
	broker_launch(&broker);
	broker_wait_ready(&broker);
	ck_assert_int_eq(broker_count_log(&broker, "Z warning supervisor: topic 'old' is on disk (1 partition"), 1);
	stop(&broker);
}
END_TEST

START_TEST(pages_can_be_off)
{
	struct broker_config config = two_workers;
	struct broker broker;

	config.broker = "http = off\ncontrol = off\n";
	config.environment = fake_environment;
	broker_prepare(&broker, &config);
	set_script(&broker, "serve");
	broker.workers_may_die = true;
	broker_launch(&broker);
	ck_assert(broker_wait_log(&broker, " http=off control=off workers=2 partitions=4 pid=", SOON_MS));
	broker.pid = broker.child;
	kill(broker.pid, SIGTERM);
	ck_assert_int_eq(broker_wait_exit(&broker, SOON_MS), 0);
	broker_end(&broker);
}
END_TEST

/* What systemd does: sockets from descriptor 3 on, their number and our pid in the environment. */
START_TEST(sockets_of_the_service_manager)
{
	struct broker broker;
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(name);
	char config_path[BROKER_PATH_BYTES + 16], program[BROKER_PATH_BYTES], text[64], pid_text[32];
	int sockets[2], ports[2], log[2], status, fd;
	FILE *lines;
	pid_t pid;

	broker_prepare(&broker, &two_workers);
	set_script(&broker, "serve");
	snprintf(config_path, sizeof(config_path), "%s/broker.ini", broker.directory);
	broker_build_path("logsupervisor", program, sizeof(program));
	for (int i = 0; i < 2; i++) {
		sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		name.sin_port = 0;
		ck_assert_int_eq(bind(sockets[i], (struct sockaddr *)&name, sizeof(name)), 0);
		ck_assert_int_eq(listen(sockets[i], 10), 0);
		ck_assert_int_eq(getsockname(sockets[i], (struct sockaddr *)&name, &length), 0);
		ports[i] = ntohs(name.sin_port);
	}
	ck_assert_int_eq(pipe2(log, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		int moved[2] = { fcntl(sockets[0], F_DUPFD, 100), fcntl(sockets[1], F_DUPFD, 100) };

		dup2(log[1], 2);
		dup2(moved[0], 3);
		dup2(moved[1], 4);
		snprintf(pid_text, sizeof(pid_text), "%d", (int)getpid());
		setenv("LISTEN_PID", pid_text, 1);
		setenv("LISTEN_FDS", "2", 1);
		setenv("LISTEN_FDNAMES", "logbroker.socket:http", 1);
		setenv("NOTIFY_SOCKET", "/nowhere", 1);
		putenv(fake_dir);
		putenv(fake_script);
		execl(program, "logsupervisor", "-f", config_path, NULL);
		_exit(127);
	}
	close(log[1]);
	lines = fdopen(log[0], "r");
	snprintf(text, sizeof(text), "ready: listen=127.0.0.1:%d http=127.0.0.1:%d control=", ports[0], ports[1]);
	for (;;) {
		char line[1024];

		ck_assert_ptr_nonnull(fgets(line, sizeof(line), lines));
		if (strstr(line, text) != NULL)
			break;
	}
	fd = wire_connect_tcp(ports[0]);
	who_serves(fd, "i", &broker.workers[0]);
	/* None of it is any worker's business. */
	snprintf(text, sizeof(text), "grep -qzE '^(LISTEN_|NOTIFY_)' /proc/%d/environ", (int)broker.workers[0]);
	ck_assert_int_ne(system(text), 0);
	snprintf(text, sizeof(text), "grep -qzE '^FAKE_DIR' /proc/%d/environ", (int)broker.workers[0]);
	ck_assert_int_eq(system(text), 0);
	close(fd);
	broker.http_port = ports[1];
	free(broker_http_get(&broker, "/readyz", &status));
	ck_assert_int_eq(status, 200);
	kill(pid, SIGTERM);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	fclose(lines);
	broker_end(&broker);
}
END_TEST

/* Its file's mode is all that keeps strangers from it. */
START_TEST(the_control_socket_of_the_service_manager_is_no_port)
{
	struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct broker broker;
	char command[4 * BROKER_PATH_BYTES];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status;
	pid_t pid;

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&name, sizeof(name)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	broker_prepare(&broker, &two_workers);
	snprintf(command, sizeof(command), "LISTEN_FDS=1 LISTEN_FDNAMES=control LISTEN_PID=$$ exec %s/logsupervisor "
	    "-f %s/broker.ini > %s/out 2>&1", programs, broker.directory, broker.directory);
	pid = fork();
	if (pid == 0) {
		dup2(fd, 3);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	close(fd);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 1 << 8);
	snprintf(command, sizeof(command), "grep -q 'must be a Unix socket' %s/out", broker.directory);
	ck_assert_int_eq(system(command), 0);
	broker_end(&broker);
}
END_TEST

/* ---- HTTP ---- */

static long
http_raw(int port, const char *request, char *answer, size_t size)
{
	int fd = wire_connect_tcp(port);
	size_t used = 0;
	long n;

	ck_assert_int_ge(fd, 0);
	send_text(fd, request);
	while (used < size - 1 && (n = wire_receive(fd, answer + used, size - 1 - used, SOON_MS)) > 0)
		used += (size_t)n;
	answer[used] = '\0';
	close(fd);
	return (long)used;
}

START_TEST(http_answers_what_it_should)
{
	static const struct {
		const char *request, *answer;
	} cases[] = {
		{ "GET /healthz HTTP/1.0\r\n\r\n", " 200 OK\r\n" },
		{ "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "\r\n\r\nok\n" },
		{ "GET http://x/readyz HTTP/1.1\r\nHost: x\r\n\r\n", "\r\n\r\nready\n" },
		{ "GET /metrics?x=y HTTP/1.1\r\nHost: x\r\n\r\n", "logbroker_ready 1\n" },
		{ "GET / HTTP/1.1\r\nHost: x\r\n\r\n", " 404 " },
		{ "GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n", " 404 " },
		{ "GET /metrics%00 HTTP/1.1\r\nHost: x\r\n\r\n", " 404 " },
		{ "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", " 405 " },
		{ "DELETE /healthz HTTP/1.1\r\nHost: x\r\n\r\n", " 405 " },
		{ "OPTIONS /healthz HTTP/1.1\r\nHost: x\r\n\r\n", "Allow: GET, HEAD\r\n" },
		{ "BREW /healthz HTTP/1.1\r\nHost: x\r\n\r\n", " 501 " },
	};
	struct broker broker;
	static char answer[256 * 1024];
	char *large = malloc(1 << 20);

	start(&broker, &two_workers, "serve");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		http_raw(broker.http_port, cases[i].request, answer, sizeof(answer));
		ck_assert_msg(strstr(answer, cases[i].answer) != NULL, "%s: %s", cases[i].request, answer);
	}
	http_raw(broker.http_port, "HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\n", answer, sizeof(answer));
	ck_assert_ptr_nonnull(strstr(answer, "Content-Length: 3\r\n"));
	ck_assert_str_eq(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
	/* A header or a body without end is cut off, and harms nobody. */
	memset(large, 'x', (1 << 20) - 1);
	large[(1 << 20) - 1] = '\0';
	memcpy(large, "GET /", 5);
	{
		int fd = wire_connect_tcp(broker.http_port);

		wire_send(fd, large, strlen(large));
		close(fd);
	}
	http_raw(broker.http_port, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n", answer, sizeof(answer));
	http_raw(broker.http_port, cases[0].request, answer, sizeof(answer));
	ck_assert_ptr_nonnull(strstr(answer, " 200 OK\r\n"));
	free(large);
	stop(&broker);
}
END_TEST

/* Clients that say nothing, half a request, or never read take places, and lose them to others soon. */
START_TEST(http_is_not_taken_hostage)
{
	enum { HOSTILE = 40, MOVES = 1000, MOVES_MS = 1000 };
	struct broker broker;
	int fds[HOSTILE], client, status;
	int64_t start_ms, cpu_ms;
	char *body;

	start(&broker, &two_workers, "serve");
	for (int i = 0; i < HOSTILE; i++) {
		fds[i] = wire_connect_tcp(broker.http_port);
		ck_assert_int_ge(fds[i], 0);
		if (i % 3 == 1)
			send_text(fds[i], "GET /metr");
		else if (i % 3 == 2)
			send_text(fds[i], "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
	}
	client = connect_to(&broker);
	start_ms = wire_now_ms();
	cpu_ms = broker_cpu_ms(broker.pid);
	for (int i = 0; i < MOVES && wire_now_ms() - start_ms < MOVES_MS; i++)
		who_serves(client, i % 2 == 0 ? "g0i" : "g1i", NULL);
	/* Behind them in the queue, and served before the first of them has had its whole time. */
	do
		body = broker_http_get(&broker, "/readyz", &status);
	while (body == NULL && wire_now_ms() - start_ms < 2 * SOON_MS);
	ck_assert_ptr_nonnull(body);
	ck_assert_int_lt(wire_now_ms() - start_ms, 9000);	/* they did not time out by themselves: that is 10 s */
	free(body);
	ck_assert_int_lt(broker_fd_count_of(broker.pid, "socket:"), 40);
	ck_assert_int_lt(broker_cpu_ms(broker.pid) - cpu_ms, 3000);
	for (int i = 0; i < HOSTILE; i++)
		close(fds[i]);
	close(client);
	stop(&broker);
}
END_TEST

/* Clients that come and go without a word (a port scan, a balancer's probes) hold nobody up. */
START_TEST(http_after_a_thousand_clients_without_a_word)
{
	struct broker broker;
	int64_t start_ms;
	int status;

	start(&broker, &two_workers, "serve");
	for (int i = 0; i < 1000; i++) {
		int fd = wire_connect_tcp(broker.http_port);

		ck_assert_int_ge(fd, 0);
		close(fd);
	}
	/* Each sweep frees 16 places: less than a second, and more on a busy machine. If they kept them, it would be two minutes. */
	start_ms = wire_now_ms();
	do
		free(broker_http_get(&broker, "/healthz", &status));
	while (status != 200 && wire_now_ms() - start_ms < 30000);
	ck_assert_int_eq(status, 200);
	stop(&broker);
}
END_TEST

static Suite *
make_suite(void)
{
	Suite *suite = suite_create("supervisor");
	TCase *tcase = tcase_create("supervisor");

	tcase_add_unchecked_fixture(tcase, install_programs, remove_programs);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, D01_connections_go_where_they_are_sent);
	tcase_add_test(tcase, fresh_connections_go_round);
	tcase_add_test(tcase, a_connection_waits_for_its_worker);
	tcase_add_test(tcase, given_back_and_dead_at_once);
	tcase_add_test(tcase, sent_to_a_worker_that_never_received_it);
	tcase_add_loop_test(tcase, fresh_connections_avoid_a_worker_that_takes_none, 0,
	    (int)(sizeof(unhelpful) / sizeof(unhelpful[0])));
	tcase_add_test(tcase, nonsense_on_the_board_harms_nobody);
	tcase_add_test(tcase, parked_at_most_request_timeout);
	tcase_add_test(tcase, parked_and_reset_is_dropped_at_once);
	tcase_add_test(tcase, parked_and_half_closed_is_served);
	tcase_add_test(tcase, max_connections_and_one_more);
	tcase_add_loop_test(tcase, a_malformed_message_costs_the_sender_only, 0, (int)sizeof(bad_messages) - 1);
	tcase_add_test(tcase, D03_a_worker_that_asks_is_replaced);
	tcase_add_loop_test(tcase, D03_a_replacement_that_fails_leaves_the_old_one, 0,
	    (int)(sizeof(bad_replacements) / sizeof(bad_replacements[0])));
	tcase_add_loop_test(tcase, D03_one_that_does_not_release_its_logs, 0,
	    (int)(sizeof(bad_drains) / sizeof(bad_drains[0])));
	tcase_add_loop_test(tcase, D03_one_that_does_not_finish, 0, (int)(sizeof(bad_finishes) / sizeof(bad_finishes[0])));
	tcase_add_loop_test(tcase, D03_a_successor_that_dies_is_followed_by_another, 0, 2);
	tcase_add_test(tcase, D03_a_successor_that_does_not_serve_is_reported);
	tcase_add_test(tcase, D03_successors_that_all_die);
	tcase_add_test(tcase, D03_one_that_dies_during_its_replacement);
	tcase_add_test(tcase, D03_many_replacements_leak_nothing);
	tcase_add_test(tcase, D03_a_binary_changed_on_disk_is_picked_up);
	tcase_add_loop_test(tcase, D07_stops_during_a_replacement, 0, 5);
	tcase_add_loop_test(tcase, a_bad_start_is_tried_again, 0, (int)(sizeof(bad_starts) / sizeof(bad_starts[0])));
	tcase_add_test(tcase, D05_a_worker_that_dies_at_every_start);
	tcase_add_loop_test(tcase, D05_a_program_that_cannot_be_executed, 0,
	    (int)(sizeof(bad_programs) / sizeof(bad_programs[0])));
	tcase_add_test(tcase, at_once_twenty_times);
	tcase_add_test(tcase, settings_that_cannot_be_sent);
	tcase_add_test(tcase, a_worker_that_shuts_its_channel_down_is_killed);
	tcase_add_test(tcase, bug_H2_three_hundred_deaths_leak_nothing);
	tcase_add_test(tcase, bug_H3_all_killed_at_once);
	tcase_add_loop_test(tcase, D09_out_of_descriptors, 20, 22);
	tcase_add_test(tcase, too_many_descriptors_in_flight);
	tcase_add_loop_test(tcase, D07_stops_in_any_state, 0, 4);
	tcase_add_test(tcase, D07_a_worker_that_is_behind_stops_in_order);
	tcase_add_test(tcase, a_worker_that_does_not_stop);
	tcase_add_test(tcase, a_worker_that_stops_badly_while_it_opens_its_logs);
	tcase_add_test(tcase, a_second_signal_changes_nothing);
	tcase_add_test(tcase, reload_says_what_it_applies);
	tcase_add_test(tcase, reload_replaces_the_workers);
	tcase_add_test(tcase, reload_tries_again_what_has_failed);
	tcase_add_test(tcase, reload_names_a_worker_that_does_not_serve_yet);
	tcase_add_test(tcase, reload_burst_is_one);
	tcase_add_test(tcase, D03_an_order_tells_that_the_old_one_died);
	tcase_add_test(tcase, reload_over_the_control_socket);
	tcase_add_test(tcase, inherited_signal_settings_are_reset);
	tcase_add_test(tcase, workers_have_their_descriptors_and_nothing_else);
	tcase_add_test(tcase, bug_H11_a_second_supervisor);
	tcase_add_test(tcase, an_address_that_is_taken_is_named);
	tcase_add_test(tcase, a_socket_file_that_is_being_made_is_not_stale);
	tcase_add_test(tcase, a_stale_socket_file_is_replaced_and_nothing_else);
	tcase_add_test(tcase, the_command_line);
	tcase_add_test(tcase, a_silent_worker_that_comes_back_is_left_alone);
	tcase_add_test(tcase, bug_L1_a_worker_that_is_stopped_is_seen_and_then_killed);
	tcase_add_test(tcase, a_start_needs_descriptors);
	tcase_add_test(tcase, the_configuration_may_come_from_a_descriptor);
	tcase_add_test(tcase, the_data_directory_is_forced_by_name);
	tcase_add_test(tcase, a_topic_that_nobody_names_is_a_log_line);
	tcase_add_test(tcase, pages_can_be_off);
	tcase_add_test(tcase, sockets_of_the_service_manager);
	tcase_add_test(tcase, the_control_socket_of_the_service_manager_is_no_port);
	tcase_add_test(tcase, http_answers_what_it_should);
	tcase_add_test(tcase, http_is_not_taken_hostage);
	tcase_add_test(tcase, http_after_a_thousand_clients_without_a_word);
	suite_add_tcase(suite, tcase);
	return suite;
}

int
main(void)
{
	return broker_main(make_suite());
}
