/*
 * The supervisor and its workers as processes: who owns what, how they start, die, come back and stop, what is refused,
 * who is served meanwhile.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum { LATE_MS = 30000 };	/* what does not come by then does not come */

static struct broker broker;

static int
connect_tcp(void)
{
	int fd = wire_connect_tcp(broker.port);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static int32_t
partition_in(const char *topic, int32_t group)
{
	struct wire_topics topics;
	int32_t found = -1;
	int fd = connect_tcp();

	ck_assert_int_eq(wire_metadata(fd, 2, topic, &topics), 0);
	for (size_t i = 0; i < topics.count && found < 0; i++)
		if (topics.list[i].group == group)
			found = topics.list[i].partition;
	ck_assert_int_ge(found, 0);
	wire_topics_free(&topics);
	close(fd);
	return found;
}

static void
produce(int fd, const char *topic, int32_t partition, int ack, const char *text)
{
	int code = wire_produce_one(fd, topic, partition, ack, text, strlen(text), NULL);

	ck_assert_msg(code == 0, "PRODUCE to %s/%d: %d", topic, (int)partition, code);
}

/* Record `offset` of the partition is that text. */
static void
expect_record(int fd, const char *topic, int32_t partition, int64_t offset, const char *text)
{
	struct wire_fetched fetched;
	struct wire_record record;
	size_t position = 0;

	ck_assert_int_eq(wire_fetch(fd, topic, partition, offset, 100000, 0, 0, &fetched), 0);
	ck_assert(wire_next_record(fetched.payload, fetched.length, &position, true, &record, NULL));
	ck_assert_uint_eq(record.length, strlen(text));
	ck_assert_mem_eq(record.payload, text, record.length);
	wire_fetched_free(&fetched);
}

static void
finish(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

static pid_t
wait_back(const char *topic, int32_t partition, pid_t but)
{
	pid_t pid = broker_wait_worker_of(&broker, topic, partition, but, 30000);

	ck_assert_msg(pid > 0, "the worker of %s/%d does not come back", topic, (int)partition);
	return pid;
}

/* ---- D01 ------------------------------------------------------------------------------------------------------ */

START_TEST(D01_owned_by_the_worker_of_its_partition)
{
	int fds[2];

	broker_start(&broker, &(struct broker_config){ .workers = 3, .topics = "a = 4\nb = 5\n" });
	fds[0] = connect_tcp();
	fds[1] = connect_tcp();
	for (int round = 0; round < 2; round++)
		for (int32_t partition = 0; partition < 9; partition++) {
			const char *topic = partition < 4 ? "a" : "b";
			int32_t number = partition < 4 ? partition : partition - 4;

			for (int i = 0; i < 2; i++) {
				produce(fds[i], topic, number, WIRE_WRITTEN, "x");
				ck_assert_int_eq(procs_owner_of(&broker, fds[i], 30000), broker_worker_of(&broker, topic, number));
			}
		}
	close(fds[0]);
	close(fds[1]);
	finish();
}
END_TEST

/* Sockets that listen: seen in /proc/net, held by one process. */
static int
count_listening(pid_t pid, int port)
{
	char line[512], link[64];
	FILE *file = fopen("/proc/net/tcp", "re");
	int count = 0;

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof line, file) != NULL) {
		unsigned local, state;
		unsigned long inode;

		if (sscanf(line, " %*d: %*x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*d %*d %lu", &local, &state, &inode) != 3 ||
		    state != 0x0a || local != (unsigned)port)
			continue;
		snprintf(link, sizeof link, "socket:[%lu]", inode);
		count += broker_fd_count_of(pid, link);
	}
	fclose(file);
	return count;
}

START_TEST(D01_accepted_by_the_supervisor_only)
{
	pid_t pids[BROKER_WORKERS_MAX];
	int count;

	broker_start(&broker, &(struct broker_config){ .workers = 3, .topics = "a = 3\n" });
	count = broker_workers(&broker, pids, BROKER_WORKERS_MAX);
	ck_assert_int_eq(count, 3);
	ck_assert_int_eq(count_listening(broker.pid, broker.port), 1);
	ck_assert_int_eq(count_listening(broker.pid, broker.http_port), 1);
	for (int i = 0; i < count; i++) {
		ck_assert_int_eq(count_listening(pids[i], broker.port), 0);
		ck_assert_int_eq(count_listening(pids[i], broker.http_port), 0);
		/* Without clients, the channel is the only socket a worker has. */
		ck_assert_int_eq(broker_fd_count_of(pids[i], "socket:"), 1);
	}
	finish();
}
END_TEST

enum { TURNS_PARTITIONS = 9 };

/* Request i of the long pipeline: PRODUCE with each ack, FETCH, METADATA; what it expects is an offset. */
struct turn {
	int32_t partition;
	int kind;	/* an ack, 3 = FETCH, 4 = METADATA */
	int64_t expected;
};

/* First another partition with each request, then the five on one partition after the other. */
static void
put_turn(struct wire_bytes *out, int i, int count, int64_t *next, struct turn *turn)
{
	bool changes = i < count / 2;

	turn->partition = (changes ? i : i / 5) % TURNS_PARTITIONS;
	turn->kind = (changes ? i / TURNS_PARTITIONS : i) % 5;
	turn->expected = next[turn->partition];
	if (turn->kind < 3) {
		wire_put_produce_one(out, i, "a", turn->partition, turn->kind, &i, sizeof i);
		next[turn->partition]++;
	} else if (turn->kind == 3) {
		wire_put_fetch(out, i, "a", turn->partition, turn->expected - 1, 1000, 0, 0);
	} else {
		wire_put_metadata(out, i, 1, "a");
	}
}

static void
check_turn(int i, const struct wire_answer *answer, const struct turn *turn)
{
	ck_assert_msg(answer->id == i && answer->error == 0, "request %d: answer %d with error %d", i, answer->id,
	    answer->error);
	if (turn->kind < 3) {
		ck_assert_int_eq(wire_get_i64(answer->body), turn->expected);
	} else if (turn->kind == 3) {
		/* It sees everything before it, and nothing else can be there. */
		ck_assert_int_eq(wire_get_i64(answer->body), turn->expected);
		ck_assert_int_eq(wire_get_i32(answer->body + 8), 8 + 4);
	} else {
		struct wire_topics topics;

		ck_assert_int_eq(wire_parse_topics(answer, 1, &topics), 0);
		ck_assert_int_eq(topics.list[turn->partition].high_watermark, turn->expected);
		wire_topics_free(&topics);
	}
}

START_TEST(D01_every_partition_in_turn_pipelined)
{
	int64_t next[TURNS_PARTITIONS] = { 0 };
	int count = 2 * 5 * TURNS_PARTITIONS * 15 * broker_scale();
	struct turn *turns = calloc((size_t)count, sizeof *turns);
	struct wire_bytes out = { 0 }, in = { 0 };
	struct wire_answer answer;
	size_t answers = 0, position = 0;
	int fd;

	broker_start(&broker, &(struct broker_config){ .workers = 3, .topics = "a = 9\n" });
	fd = connect_tcp();
	for (int i = 0; i < count; i++) {
		put_turn(&out, i, count, next, &turns[i]);
		answers += turns[i].kind != WIRE_NONE;
	}
	ck_assert_uint_eq(wire_exchange(fd, out.data, out.length, answers, &in, WIRE_DEADLINE_MS), answers);
	for (int i = 0; i < count; i++) {
		if (turns[i].kind == WIRE_NONE)
			continue;
		ck_assert(wire_next_answer(&in, &position, &answer));
		check_turn(i, &answer, &turns[i]);
	}
	ck_assert_uint_eq(position, in.length);
	for (int32_t partition = 0; partition < TURNS_PARTITIONS; partition++)
		ck_assert_int_eq(wire_high_watermark(fd, "a", partition), next[partition]);
	close(fd);
	wire_bytes_free(&out);
	wire_bytes_free(&in);
	free(turns);
	finish();
}
END_TEST

/* ---- D04: a worker dies ---------------------------------------------------------------------------------------- */

struct load {
	pthread_t thread;
	int32_t partition;
	bool may_be_cut;
	volatile bool stop;
	int cuts;
	long done;
	int64_t acknowledged;		/* records, each at its own offset */
	int64_t *offsets;		/* of record i; -1 = unknown outcome */
	int64_t count;
	int error;
};

/* One record after the other; record i is the number i. */
static void *
run_load(void *argument)
{
	struct load *load = argument;
	int fd = wire_connect_tcp(broker.port);
	int64_t capacity = 0;

	while (!load->stop && load->error == 0) {
		int64_t number = load->count;
		int code;

		if (number == capacity) {
			capacity = capacity ? capacity * 2 : 4096;
			load->offsets = realloc(load->offsets, (size_t)capacity * sizeof *load->offsets);
		}
		load->offsets[load->count++] = -1;
		code = wire_produce_one(fd, "t", load->partition, number % 8 == 0 ? WIRE_FORCED : WIRE_WRITTEN, &number,
		    sizeof number, &load->offsets[number]);
		if (code == 0)
			load->acknowledged++;
		else
			load->offsets[number] = -1;
		if (code == WIRE_LOST && load->may_be_cut) {
			load->cuts++;
			close(fd);
			fd = wire_connect_tcp(broker.port);
		} else if (code != 0) {
			load->error = code;
		}
	}
	close(fd);
	return NULL;
}

/* Every acknowledged record stands at its offset. */
static void
check_load(const struct load *load)
{
	struct wire_bytes log = { 0 };
	int fd = connect_tcp();
	int64_t end = wire_high_watermark(fd, "t", load->partition);
	int64_t *at = calloc((size_t)end + 1, sizeof *at);
	struct wire_record record;
	size_t position = 0;

	ck_assert_int_eq(wire_read_log(fd, "t", load->partition, 0, end, 1000000, true, &log), end);
	for (int64_t offset = 0; offset < end; offset++) {
		ck_assert(wire_next_record(log.data, log.length, &position, true, &record, NULL));
		ck_assert_uint_eq(record.length, sizeof *at);
		memcpy(&at[offset], record.payload, sizeof *at);
	}
	for (int64_t i = 0; i < load->count; i++)
		if (load->offsets[i] >= 0)
			ck_assert_msg(load->offsets[i] < end && at[load->offsets[i]] == i, "acknowledged record %lld is not at %lld",
			    (long long)i, (long long)load->offsets[i]);
	free(at);
	wire_bytes_free(&log);
	close(fd);
}

static int
compare_times(const void *a, const void *b)
{
	return *(const int64_t *)a < *(const int64_t *)b ? -1 : *(const int64_t *)a > *(const int64_t *)b;
}

START_TEST(D04_worker_killed_under_load)
{
	struct load loads[2] = { 0 };
	enum { KILLS = 7 };
	int64_t down_ms[KILLS];
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n" });
	broker.workers_may_die = true;
	for (int i = 0; i < 2; i++) {
		loads[i].partition = partition_in("t", i);
		loads[i].may_be_cut = i == 1;
	}
	fd = connect_tcp();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&loads[i].thread, NULL, run_load, &loads[i]), 0);
	for (int i = 0; i < KILLS; i++) {
		pid_t victim = wait_back("t", loads[1].partition, 0);
		int64_t acknowledged = loads[1].acknowledged, began;

		while (loads[1].acknowledged < acknowledged + 20 && loads[1].error == 0)
			usleep(1000);
		produce(fd, "t", loads[0].partition, WIRE_WRITTEN, "12345678");
		began = wire_now_ms();
		kill(victim, SIGKILL);
		/* It is back when it serves. */
		ck_assert(broker_wait_gone(victim, 30000));
		while (wire_produce_one(fd, "t", loads[1].partition, WIRE_WRITTEN, "12345678", 8, NULL) != 0) {
			ck_assert_int_lt(wire_now_ms() - began, 20000);
			close(fd);
			fd = connect_tcp();
		}
		down_ms[i] = wire_now_ms() - began;
	}
	for (int i = 0; i < 2; i++) {
		loads[i].stop = true;
		pthread_join(loads[i].thread, NULL);
		ck_assert_msg(loads[i].error == 0, "group %d: %d", i, loads[i].error);
		check_load(&loads[i]);
		free(loads[i].offsets);
	}
	ck_assert_int_eq(loads[0].cuts, 0);
	qsort(down_ms, KILLS, sizeof *down_ms, compare_times);
	printf("D04_worker_killed_under_load: down for %lld ms (median), %lld ms (worst), %d cuts\n",
	    (long long)down_ms[KILLS / 2], (long long)down_ms[KILLS - 1], loads[1].cuts);
	ck_assert_int_lt(down_ms[KILLS / 2], 1000);
	ck_assert(broker_metric(&broker, "logbroker_worker_restarts_total", "reason=\"killed\"") >= KILLS);
	close(fd);
	finish();
}
END_TEST

/* ---- a worker that is away: METADATA, parking ------------------------------------------------------------------ */

static struct procs_gate gate;

/* A broker whose workers have to pass the gate; then group 1's is killed and stands before the closed gate. */
static void
start_with_absent_worker(const char *broker_lines, int32_t *here, int32_t *there)
{
	pid_t victim;
	int fd;

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 2\n", .broker = broker_lines });
	procs_gate_set_up(&gate, &broker);
	broker_launch(&broker);
	broker_wait_ready(&broker);
	broker.workers_may_die = true;
	*here = partition_in("t", 0);
	*there = partition_in("t", 1);
	fd = connect_tcp();
	produce(fd, "t", *here, WIRE_WRITTEN, "before");
	produce(fd, "t", *there, WIRE_WRITTEN, "before");
	close(fd);
	procs_gate_close(&gate);
	victim = broker_worker_of(&broker, "t", *there);
	kill(victim, SIGKILL);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", "worker=\"1\"", 0, 30000));
}

static int
park(int32_t partition, bool by_unix)
{
	struct wire_bytes request = { 0 };
	int fd = by_unix ? wire_connect_unix(broker.unix_path) : connect_tcp();

	ck_assert_int_ge(fd, 0);
	wire_put_produce_one(&request, 7, "t", partition, WIRE_WRITTEN, "parked", 6);
	ck_assert_int_eq(wire_send(fd, request.data, request.length), 0);
	wire_bytes_free(&request);
	return fd;
}

START_TEST(D04_metadata_while_a_worker_is_away)
{
	int32_t here, there;
	int fd;

	start_with_absent_worker(NULL, &here, &there);
	fd = connect_tcp();
	for (int i = 0; i < 200; i++) {
		ck_assert_int_eq(wire_high_watermark(fd, "t", there), 1);
		produce(fd, "t", here, WIRE_FORCED, "during");
		ck_assert_int_eq(wire_high_watermark(fd, "t", here), 2 + i);
	}
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", "worker=\"1\"", 0, 0));
	procs_gate_open(&gate);
	produce(fd, "t", there, WIRE_FORCED, "after");
	ck_assert_int_eq(wire_high_watermark(fd, "t", there), 2);
	close(fd);
	finish();
}
END_TEST

enum { PARKED = 40 };

START_TEST(parked_connections_are_served_when_the_worker_is_back)
{
	int32_t here, there;
	int fds[PARKED], mover;

	start_with_absent_worker(NULL, &here, &there);
	for (int i = 0; i < PARKED; i++)
		fds[i] = park(there, i % 2 == 1);
	/* One that has been served before waits, too, with a half-closed side: its client still reads. */
	mover = fds[0];
	ck_assert_int_eq(shutdown(mover, SHUT_WR), 0);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_parked", NULL, PARKED, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, PARKED, 30000));
	for (int i = 0; i < PARKED; i++)
		ck_assert(wire_silent(fds[i], 0));
	procs_gate_open(&gate);
	for (int i = 0; i < PARKED; i++)
		ck_assert_int_eq(wire_expect(fds[i], 7), 0);
	ck_assert(wire_ended_orderly(mover, 30000));
	for (int i = 0; i < PARKED; i++)
		close(fds[i]);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_parked", NULL, 0, 30000));
	mover = connect_tcp();
	ck_assert_int_eq(wire_high_watermark(mover, "t", there), 1 + PARKED);
	close(mover);
	finish();
}
END_TEST

START_TEST(parked_with_all_workers_away_and_fresh)
{
	struct wire_bytes request = { 0 };
	int32_t here, there;
	int fds[PARKED];

	start_with_absent_worker(NULL, &here, &there);
	kill(broker_worker_of(&broker, "t", here), SIGKILL);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", "worker=\"0\"", 0, 30000));
	for (int i = 0; i < PARKED; i++)
		fds[i] = connect_tcp();
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_parked", NULL, PARKED, 30000));
	procs_gate_open(&gate);
	wire_put_metadata(&request, 3, 1, "t");
	for (int i = 0; i < PARKED; i++) {
		ck_assert_int_eq(wire_ask(fds[i], &request, NULL), 0);
		close(fds[i]);
	}
	wire_bytes_free(&request);
	finish();
}
END_TEST

START_TEST(parked_connections_time_out)
{
	int32_t here, there;
	int fds[PARKED], resident;
	int64_t began;

	start_with_absent_worker("request_timeout = 1s\n", &here, &there);
	resident = connect_tcp();
	produce(resident, "t", here, WIRE_WRITTEN, "x");
	began = wire_now_ms();
	for (int i = 0; i < PARKED; i++)
		fds[i] = park(there, i % 2 == 1);
	for (int i = 0; i < PARKED; i++) {
		ck_assert(wire_ended(fds[i], 30000));
		ck_assert_int_ge(wire_now_ms() - began, 1000);
		close(fds[i]);
	}
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_parked", NULL, 0, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_dropped_total", "worker_away", PARKED, 30000));
	produce(resident, "t", here, WIRE_WRITTEN, "x");
	procs_gate_open(&gate);
	/* Nothing of them was executed. */
	produce(resident, "t", there, WIRE_WRITTEN, "x");
	ck_assert_int_eq(wire_high_watermark(resident, "t", there), 2);
	close(resident);
	finish();
}
END_TEST

START_TEST(parked_peers_that_vanish_are_dropped)
{
	int32_t here, there;
	int fds[PARKED], baseline, fd;

	start_with_absent_worker(NULL, &here, &there);
	fd = connect_tcp();
	produce(fd, "t", here, WIRE_WRITTEN, "x");
	ck_assert_int_gt(procs_owner_of(&broker, fd, 30000), 0);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_parked", NULL, 0, 30000));
	baseline = broker_fd_count_of(broker.pid, "socket:");
	for (int i = 0; i < PARKED; i++)
		fds[i] = park(there, i % 2 == 1);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_parked", NULL, PARKED, 30000));
	ck_assert_int_ge(broker_fd_count_of(broker.pid, "socket:"), baseline + PARKED - 1);
	/* Over TCP only a reset tells that nobody reads any more. */
	for (int i = 0; i < PARKED; i++)
		if (i % 2 == 1)
			close(fds[i]);
		else
			wire_close_reset(fds[i]);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_parked", NULL, 0, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_dropped_total", "peer_gone", PARKED, 30000));
	procs_gate_open(&gate);
	produce(fd, "t", there, WIRE_WRITTEN, "x");
	ck_assert_int_eq(wire_high_watermark(fd, "t", there), 2);
	close(fd);
	finish();
}
END_TEST

/* ---- many deaths ------------------------------------------------------------------------------------------------ */

/* A worker is restarted at once twenty times in ten seconds, then with a back-off: more of them take their time. */
START_TEST(bug_H2_one_worker_killed_many_times)
{
	int rounds = 18 * broker_scale();
	int descriptors, fd;
	int32_t here, there;
	long rss;
	pid_t other, pids[BROKER_WORKERS_MAX];

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n" });
	broker.workers_may_die = true;
	here = partition_in("t", 0);
	there = partition_in("t", 1);
	other = broker_worker_of(&broker, "t", here);
	fd = connect_tcp();
	produce(fd, "t", here, WIRE_WRITTEN, "x");
	ck_assert_int_gt(procs_owner_of(&broker, fd, 30000), 0);
	descriptors = broker_fd_count(broker.pid);
	rss = broker_rss_kib(broker.pid);
	for (int i = 0; i < rounds; i++) {
		pid_t victim = wait_back("t", there, 0);
		int visitor = connect_tcp();

		/* One that dies before it has served is something else. */
		produce(visitor, "t", there, WIRE_WRITTEN, "x");
		close(visitor);
		kill(victim, SIGKILL);
		wait_back("t", there, victim);
		produce(fd, "t", here, WIRE_WRITTEN, "x");
	}
	/* The next client brings back what the supervisor holds in reserve. */
	close(connect_tcp());
	ck_assert(procs_wait_fd_count(broker.pid, descriptors, 30000));
	ck_assert_int_eq(broker_workers(&broker, pids, BROKER_WORKERS_MAX), 2);
	ck_assert_int_eq(procs_zombies(broker.pid), 0);
	ck_assert_msg(broker_is_asan() || broker_rss_kib(broker.pid) < rss + 1024, "the supervisor has grown from %ld to %ld KiB",
	    rss, broker_rss_kib(broker.pid));
	ck_assert_int_eq(broker_worker_of(&broker, "t", here), other);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_restarts_total", "worker=\"1\",reason=\"killed\"", rounds, 30000));
	close(fd);
	finish();
}
END_TEST

START_TEST(bug_H3_all_workers_killed_at_once)
{
	int rounds = 9 * broker_scale();
	pid_t pids[BROKER_WORKERS_MAX], now[BROKER_WORKERS_MAX];

	broker_start(&broker, &(struct broker_config){ .workers = 4, .topics = "t = 4\n" });
	broker.workers_may_die = true;
	for (int i = 0; i < rounds; i++) {
		int64_t until = wire_now_ms() + 30000;
		int fd = connect_tcp();

		ck_assert_int_eq(broker_workers(&broker, pids, BROKER_WORKERS_MAX), 4);
		for (int32_t partition = 0; partition < 4; partition++)
			produce(fd, "t", partition, WIRE_WRITTEN, "x");
		/* All die while it cannot look: one SIGCHLD for four. */
		broker_freeze(broker.pid);
		for (int w = 0; w < 4; w++)
			kill(pids[w], SIGKILL);
		for (int w = 0; w < 4; w++)
			ck_assert(procs_wait_dead(pids[w], 30000));
		kill(broker.pid, SIGCONT);
		close(fd);
		fd = connect_tcp();
		for (int32_t partition = 0; partition < 4; partition++)
			ck_assert_int_eq(wire_high_watermark(fd, "t", partition), i + 1);
		for (int32_t partition = 0; partition < 4; partition++)
			ck_assert_int_gt(broker_wait_worker_of(&broker, "t", partition, pids[partition], 30000), 0);
		while (procs_zombies(broker.pid) > 0)
			ck_assert_int_lt(wire_now_ms(), until);
		ck_assert_int_eq(broker_workers(&broker, now, BROKER_WORKERS_MAX), 4);
		close(fd);
	}
	finish();
}
END_TEST

/* ---- signals ---------------------------------------------------------------------------------------------------- */

static bool
share_a_file(pid_t one, pid_t other, const char *kind)
{
	for (int a = 0; a < 64; a++)
		for (int b = 0; b < 64; b++) {
			char path[64], link[256];
			ssize_t length;

			snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)one, a);
			length = readlink(path, link, sizeof link - 1);
			if (length <= 0)
				continue;
			link[length] = '\0';
			if (strstr(link, kind) != NULL && syscall(SYS_kcmp, one, other, KCMP_FILE, a, b) == 0)
				return true;
		}
	return false;
}

START_TEST(bug_H6_signals_reach_only_whom_they_are_for)
{
	pid_t victim, other;
	int32_t here, there;
	int fd, resident;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = "flush_interval = 1h\n" });
	broker.workers_may_die = true;
	here = partition_in("t", 0);
	there = partition_in("t", 1);
	other = broker_worker_of(&broker, "t", here);
	victim = broker_worker_of(&broker, "t", there);
	if (syscall(SYS_kcmp, broker.pid, broker.pid, KCMP_FILE, 0, 0) == 0) {
		ck_assert(share_a_file(broker.pid, broker.pid, "eventpoll"));	/* that is how it would look */
		ck_assert(!share_a_file(broker.pid, other, "eventpoll"));
		ck_assert(!share_a_file(broker.pid, victim, "eventpoll"));
		ck_assert(!share_a_file(other, victim, "eventpoll"));
	} else {
		procs_skipped("bug_H6_signals_reach_only_whom_they_are_for", "no kcmp here: shared epoll sets were not looked for");
	}
	resident = connect_tcp();
	produce(resident, "t", here, WIRE_WRITTEN, "x");
	fd = connect_tcp();
	produce(fd, "t", there, WIRE_WRITTEN, "x");
	/* It is replaced, and its client stays. */
	kill(victim, SIGTERM);
	wait_back("t", there, victim);
	expect_record(fd, "t", there, 0, "x");
	/* The terminal's signals are not a worker's business. */
	kill(other, SIGINT);
	kill(other, SIGHUP);
	kill(other, SIGQUIT);
	kill(broker.pid, SIGHUP);
	ck_assert(broker_wait_log(&broker, "reload: nothing has changed", 30000));
	produce(resident, "t", here, WIRE_WRITTEN, "x");
	ck_assert_int_eq(broker_worker_of(&broker, "t", here), other);
	ck_assert_int_eq(wire_high_watermark(resident, "t", here), 2);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_restarts_total", "worker=\"1\",reason=\"requested\"", 1, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_restarts_total", "worker=\"0\"", 0, 30000));
	close(fd);
	close(resident);
	finish();
}
END_TEST

struct masks {
	uint64_t ignored, blocked, caught;
};

static struct masks
masks_of(pid_t pid)
{
	return (struct masks){ procs_signal_mask(pid, "SigIgn"), procs_signal_mask(pid, "SigBlk"),
		procs_signal_mask(pid, "SigCgt") };
}

/* Started with every signal ignored and blocked it is as if nothing were. */
START_TEST(inherited_signal_dispositions_and_mask)
{
	char wrapper[BROKER_PATH_BYTES + 32];
	struct masks normal[2], inherited[2];
	pid_t victim;
	int fd;

	broker_start(&broker, NULL);
	normal[0] = masks_of(broker.pid);
	normal[1] = masks_of(broker.workers[0]);
	ck_assert_uint_eq(normal[0].blocked, 0);
	ck_assert_uint_eq(normal[1].blocked, 0);
	ck_assert_uint_ne(normal[0].caught & 1ull << (SIGTERM - 1), 0);
	ck_assert_uint_ne(normal[0].caught & 1ull << (SIGCHLD - 1), 0);
	ck_assert_uint_ne(normal[1].caught & 1ull << (SIGTERM - 1), 0);
	finish();
	snprintf(wrapper, sizeof wrapper, "%s --deaf", procs_self());
	broker_start(&broker, &(struct broker_config){ .wrapper = wrapper });
	inherited[0] = masks_of(broker.pid);
	inherited[1] = masks_of(broker.workers[0]);
	for (int i = 0; i < 2; i++) {
		/* Signals 32 and 33 are the C library's own, which lets nobody set them: whatever started us did. */
		inherited[i].ignored &= ~(3ull << 31);
		normal[i].ignored &= ~(3ull << 31);
		ck_assert_uint_eq(inherited[i].ignored, normal[i].ignored);
		ck_assert_uint_eq(inherited[i].blocked, normal[i].blocked);
		ck_assert_uint_eq(inherited[i].caught, normal[i].caught);
	}
	/* Deaths are seen, too. */
	broker.workers_may_die = true;
	victim = broker.workers[0];
	kill(victim, SIGKILL);
	wait_back("t", 0, victim);
	fd = connect_tcp();
	produce(fd, "t", 0, WIRE_FORCED, "x");
	close(fd);
	finish();
}
END_TEST

START_TEST(sigint_stops_it)
{
	broker_start(&broker, NULL);
	kill(broker.pid, SIGINT);
	ck_assert_int_eq(broker_wait_exit(&broker, BROKER_STOP_MS), 0);
	broker_end(&broker);
}
END_TEST

/* ---- D03: planned restarts --------------------------------------------------------------------------------------- */

static bool
has_just_beaten(void *unused)
{
	static const char name[] = "\"heartbeat_age_seconds\":";
	char *json = broker_http_get(&broker, "/status.json", NULL), *age = json != NULL ? strstr(json, name) : NULL;
	bool now = age != NULL && age[strlen(name)] != 'n' && strtod(age + strlen(name), NULL) < 0.1;

	(void)unused;
	free(json);
	return now;
}

/* Sends it to the only worker; how long it takes until a line of the log tells the `count`th time that another serves. */
static int64_t
ms_until_next(pid_t pid, int signal, const char *line, int count)
{
	int64_t begin_ms = wire_now_ms(), took_ms;

	kill(pid, signal);
	while (broker_count_log(&broker, line) < count) {
		ck_assert_int_lt(wire_now_ms() - begin_ms, LATE_MS);
		usleep(1000);
	}
	took_ms = wire_now_ms() - begin_ms;
	ck_assert(broker_wait_gone(pid, LATE_MS));
	return took_ms;
}

/*
 * With nothing to force, little but its heartbeat would turn its loop, and that comes a second behind the last one: one of
 * five would be lucky all the same.
 */
START_TEST(D03_an_idle_worker_does_not_wait_for_its_heartbeat)
{
	enum { TRIES = 8, ENOUGH = 6, FAST_MS = 600, BEAT_MS = 10000, STARTS = 7, SLOW_START_MS = 100 };
	int fast = 0, slow = 0;
	long lines;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n" });
	broker.workers_may_die = true;
	for (int i = 1; i <= TRIES; i++) {
		pid_t pid = wait_back("t", 0, 0);

		ck_assert(broker_wait(has_just_beaten, NULL, BEAT_MS));
		fast += ms_until_next(pid, SIGTERM, "worker 0: replaced, pid ", i) < FAST_MS;
	}
	/* Too few were: it may be the machine, on which any process takes its time to come up. */
	lines = broker_count_log(&broker, "worker 0: serving ");
	for (int i = 1; i <= STARTS && fast < ENOUGH; i++)
		slow += ms_until_next(wait_back("t", 0, 0), SIGKILL, "worker 0: serving ", (int)lines + i) >= SLOW_START_MS;
	ck_assert_msg(fast >= ENOUGH || slow > STARTS / 2, "%d of %d were fast, and %d of %d starts slow", fast, TRIES, slow, STARTS);
	finish();
}
END_TEST

/* ---- D05: a worker that cannot be started ----------------------------------------------------------------------- */

static int64_t
memory_of(pid_t pid)
{
	char path[64], *text, *line;
	int64_t kib;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	text = procs_read_file(path, NULL);
	line = strstr(text, "VmSize:");
	ck_assert_ptr_nonnull(line);
	kib = strtoll(line + strlen("VmSize:"), NULL, 10);
	free(text);
	return kib * 1024;
}

static void
expect_health(int status, const char *begins)
{
	int is;
	char *body = broker_http_get(&broker, "/healthz", &is);

	ck_assert_ptr_nonnull(body);
	ck_assert_msg(is == status && strncmp(body, begins, strlen(begins)) == 0, "health: %d %s", is, body);
	free(body);
}

/* The group's processes die for want of memory until there is some; the other group's process, which lives, serves. */
START_TEST(D05_a_worker_that_gets_no_memory)
{
	enum { ROOM_BYTES = 1024 * 1024 };	/* for the supervisor's own pages; a worker needs much more */
	struct rlimit before, little;
	int32_t here, there;
	int resident, fd;

	if (broker_is_asan()) {
		procs_skipped("D05_a_worker_that_gets_no_memory", "with AddressSanitizer memory cannot be limited");
		return;
	}
	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n" });
	broker.workers_may_die = true;
	here = partition_in("t", 0);
	there = partition_in("t", 1);
	resident = connect_tcp();
	produce(resident, "t", there, WIRE_WRITTEN, "before");
	produce(resident, "t", here, WIRE_WRITTEN, "before");
	ck_assert_int_eq(prlimit(broker.pid, RLIMIT_AS, NULL, &before), 0);
	little = (struct rlimit){ (rlim_t)(memory_of(broker.pid) + ROOM_BYTES), before.rlim_max };
	ck_assert_int_eq(prlimit(broker.pid, RLIMIT_AS, &little, NULL), 0);
	kill(broker_worker_of(&broker, "t", there), SIGKILL);
	ck_assert(broker_wait_log(&broker, "before it served, 3 times in a row: failing", LATE_MS));
	expect_health(503, "worker 1: failing, died ");
	produce(resident, "t", here, WIRE_FORCED, "meanwhile");
	expect_record(resident, "t", here, 1, "meanwhile");
	ck_assert_int_eq(prlimit(broker.pid, RLIMIT_AS, &before, NULL), 0);
	fd = connect_tcp();
	expect_record(fd, "t", there, 0, "before");
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", NULL, 2, LATE_MS));
	expect_health(200, "ok");
	close(resident);
	close(fd);
	finish();
}
END_TEST

/* ---- D06: the supervisor dies ----------------------------------------------------------------------------------- */

START_TEST(D06_supervisor_killed_second_refused_until_workers_are_gone)
{
	struct broker second;
	struct broker_config config = { .topics = "t = 2\n" };
	char pid_text[32];
	pid_t frozen, other;
	int fd;

	broker_start(&broker, &config);
	fd = connect_tcp();
	produce(fd, "t", 0, WIRE_WRITTEN, "zero");
	produce(fd, "t", 1, WIRE_WRITTEN, "one");
	frozen = broker_worker_of(&broker, "t", 0);
	other = broker_worker_of(&broker, "t", 1);
	broker_freeze(frozen);
	kill(broker.pid, SIGKILL);
	ck_assert(broker_wait_gone(other, 30000));
	config.data_dir = broker.data_dir;
	broker_prepare(&second, &config);
	ck_assert_int_eq(broker_start_fails(&second, NULL), 75);
	snprintf(pid_text, sizeof pid_text, "%d", (int)frozen);
	ck_assert_int_ge(broker_count_log(&second, pid_text), 1);
	ck_assert_int_ge(broker_count_log(&second, broker.data_dir), 1);
	/* Again: it is not the first try that opens the way. */
	ck_assert_int_eq(broker_start_fails(&second, NULL), 75);
	snprintf(pid_text, sizeof pid_text, "%d", (int)other);
	ck_assert_int_eq(broker_count_log(&second, pid_text), 0);
	kill(frozen, SIGCONT);
	ck_assert(broker_wait_gone(frozen, 30000));
	ck_assert_int_eq(broker_wait_exit(&broker, 30000), 128 + SIGKILL);
	close(fd);
	broker_end(&broker);
	broker_restart(&second, NULL);
	fd = wire_connect_tcp(second.port);
	expect_record(fd, "t", 0, 0, "zero");
	expect_record(fd, "t", 1, 0, "one");
	close(fd);
	broker_stop(&second);
	broker_end(&second);
}
END_TEST

static void
expect_refused(struct broker *second, const char *named)
{
	ck_assert_int_eq(broker_start_fails(second, NULL), 75);
	ck_assert_int_eq(broker_count_log(second, named), 1);
}

enum { SLOW_RECORDS = 8, SLOW_RECORD_BYTES = 1024 * 1024 };

/* A reader to whom a large answer is being sent, of which it takes nothing yet. */
static int
begin_slow_answer(void)
{
	static char payload[SLOW_RECORD_BYTES];
	struct wire_bytes request = { 0 };
	struct pollfd readable = { .fd = wire_connect_unix(broker.unix_path), .events = POLLIN };

	for (int i = 0; i < SLOW_RECORDS; i++)
		ck_assert_int_eq(wire_produce_one(readable.fd, "t", 0, WIRE_WRITTEN, payload, sizeof payload, NULL), 0);
	wire_put_fetch(&request, 7, "t", 0, 0, SLOW_RECORDS * SLOW_RECORD_BYTES, 0, 0);
	ck_assert_int_eq(wire_send(readable.fd, request.data, request.length), 0);
	ck_assert_int_eq(poll(&readable, 1, LATE_MS), 1);
	wire_bytes_free(&request);
	return readable.fd;
}

static void
end_slow_answer(int slow)
{
	struct wire_answer answer;

	ck_assert_int_eq(wire_read_answer(slow, &answer, LATE_MS), 0);
	ck_assert_int_eq(answer.error, 0);
	ck_assert_uint_gt(answer.body_length, (SLOW_RECORDS - 1) * SLOW_RECORD_BYTES);
	wire_answer_free(&answer);
	ck_assert(wire_ended_orderly(slow, LATE_MS));
	close(slow);
}

/*
 * In the middle of a planned restart: the old process still owes a slow reader its answer, the new one has the logs and
 * does not run at the moment. Neither hides the other.
 */
START_TEST(D06_supervisor_killed_while_a_replaced_worker_finishes)
{
	struct broker_config config = { .topics = "t = 1\n", .broker = "drain_timeout = 2min\n" };
	struct broker second;
	char named[96];
	pid_t old, pids[3];
	int slow, fd;

	broker_start(&broker, &config);
	broker.workers_may_die = true;
	old = broker.workers[0];
	slow = begin_slow_answer();
	kill(old, SIGTERM);
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_restarts_total", "reason=\"requested\"", 1, LATE_MS));
	fd = connect_tcp();
	produce(fd, "t", 0, WIRE_WRITTEN, "new");
	ck_assert_int_eq(broker_workers(&broker, pids, 3), 2);
	if (pids[0] == old)
		pids[0] = pids[1];
	broker_freeze(pids[0]);
	kill(broker.pid, SIGKILL);
	config.data_dir = broker.data_dir;
	broker_prepare(&second, &config);
	snprintf(named, sizeof named, "pid %d worker 0, %d worker 0 still running", (int)old, (int)pids[0]);
	expect_refused(&second, named);
	kill(pids[0], SIGCONT);
	ck_assert(broker_wait_gone(pids[0], LATE_MS));
	snprintf(named, sizeof named, "pid %d worker 0 still running", (int)old);
	expect_refused(&second, named);
	end_slow_answer(slow);
	ck_assert(broker_wait_gone(old, LATE_MS));
	ck_assert_int_eq(broker_wait_exit(&broker, LATE_MS), 128 + SIGKILL);
	close(fd);
	broker_end(&broker);
	broker_restart(&second, NULL);
	fd = wire_connect_tcp(second.port);
	expect_record(fd, "t", 0, SLOW_RECORDS, "new");
	close(fd);
	broker_stop(&second);
	broker_end(&second);
}
END_TEST

/* While the old process forces its logs for the new one: it answers, and stops in order, and the new one goes with nothing done. */
START_TEST(D06_supervisor_killed_during_a_drain)
{
	struct broker_config config = { .topics = "t = 1\n", .broker = "log_level = debug\n" };
	struct wire_bytes request = { 0 };
	pid_t pids[3];
	int fd;

	procs_start_with_badsync(&broker, &config);
	broker.workers_may_die = true;
	fd = connect_tcp();
	produce(fd, "t", 0, WIRE_FORCED, "before");
	procs_let_barriers(&broker, "hold");
	wire_put_produce_one(&request, 7, "t", 0, WIRE_FORCED, "meanwhile", 9);
	ck_assert_int_eq(wire_send(fd, request.data, request.length), 0);
	ck_assert(procs_wait_read(fd, LATE_MS));
	kill(broker.workers[0], SIGTERM);
	ck_assert(broker_wait_log(&broker, "draining: a replacement is ready", LATE_MS));
	ck_assert_int_eq(broker_workers(&broker, pids, 3), 2);
	kill(broker.pid, SIGKILL);
	procs_let_barriers(&broker, "work");
	ck_assert_int_eq(wire_expect(fd, 7), 0);
	ck_assert(wire_ended_orderly(fd, LATE_MS));
	for (int i = 0; i < 2; i++)
		ck_assert(broker_wait_gone(pids[i], LATE_MS));
	ck_assert_int_eq(broker_wait_exit(&broker, LATE_MS), 128 + SIGKILL);
	close(fd);
	wire_bytes_free(&request);
	broker_restart(&broker, NULL);
	fd = connect_tcp();
	expect_record(fd, "t", 0, 1, "meanwhile");
	ck_assert_int_eq(broker_count_log(&broker, "is recovered"), 0);
	close(fd);
	finish();
}
END_TEST

/* Whether another process has taken them over nobody knows: what was not forced when it released its logs, it forces. */
START_TEST(D06_supervisor_killed_behind_a_release)
{
	struct broker_config config = { .topics = "t = 1\n", .broker = "drain_timeout = 2min\nlog_level = debug\n",
		.log = "flush_interval = off\n" };
	struct procs_tracer tracer;
	pid_t old;
	int slow, fd;

	if (!procs_may_trace()) {
		procs_skipped("D06_supervisor_killed_behind_a_release", "no strace that may attach here");
		return;
	}
	procs_traced_to_the_end();
	procs_start_with_badsync(&broker, &config);
	broker.workers_may_die = true;
	old = broker.workers[0];
	slow = begin_slow_answer();
	fd = connect_tcp();
	procs_let_barriers(&broker, "hold");
	kill(old, SIGTERM);
	ck_assert(broker_wait_log(&broker, "draining: a replacement is ready", LATE_MS));
	produce(fd, "t", 0, WIRE_WRITTEN, "behind what is being forced");
	procs_let_barriers(&broker, "work");
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_restarts_total", "reason=\"requested\"", 1, LATE_MS));
	procs_trace(&tracer, &broker, old, "-e trace=fdatasync,fsync");
	kill(broker.pid, SIGKILL);
	end_slow_answer(slow);
	ck_assert(broker_wait_gone(old, LATE_MS));
	ck_assert_int_eq(waitpid(tracer.pid, NULL, 0), tracer.pid);
	ck_assert_msg(procs_count_lines(tracer.path, "sync(", "= 0") > 0, "nothing has been forced");
	ck_assert_int_eq(broker_wait_exit(&broker, LATE_MS), 128 + SIGKILL);
	close(fd);
	broker_end(&broker);
}
END_TEST

/* What is executed and held is answered, what is written is forced, although nobody says so any more. */
START_TEST(D06_supervisor_killed_workers_answer_and_force)
{
	struct procs_tracer tracers[2];
	struct wire_bytes request = { 0 };
	struct wire_answer answer;
	int writers[2], held;
	bool traced = procs_may_trace();

	procs_traced_to_the_end();
	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = "flush_interval = 1h\n" });
	for (int i = 0; i < 2; i++) {
		writers[i] = connect_tcp();
		produce(writers[i], "t", i, WIRE_WRITTEN, "x");
	}
	held = connect_tcp();
	wire_put_fetch(&request, 9, "t", 0, 1, 1000, 60000, 1);
	ck_assert_int_eq(wire_send(held, request.data, request.length), 0);
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, 1, 30000));
	for (int i = 0; i < 2 && traced; i++)
		procs_trace(&tracers[i], &broker, broker.workers[i], "-e trace=fdatasync,fsync");
	kill(broker.pid, SIGKILL);
	ck_assert_int_eq(wire_read_answer(held, &answer, 15000), 0);
	ck_assert_int_eq(answer.id, 9);
	ck_assert_int_eq(answer.error, 0);
	wire_answer_free(&answer);
	ck_assert(wire_ended_orderly(held, 30000));
	for (int i = 0; i < 2; i++) {
		ck_assert(wire_ended_orderly(writers[i], 30000));
		close(writers[i]);
	}
	close(held);
	ck_assert_int_eq(broker_wait_exit(&broker, 30000), 128 + SIGKILL);
	for (int i = 0; i < 2 && traced; i++) {
		ck_assert_int_eq(waitpid(tracers[i].pid, NULL, 0), tracers[i].pid);
		ck_assert_msg(procs_count_lines(tracers[i].path, "sync(", "= 0") > 0, "worker %d has forced nothing", i);
	}
	if (!traced)
		procs_skipped("D06_supervisor_killed_workers_answer_and_force", "no strace that may attach here: barriers were not seen");
	wire_bytes_free(&request);
	broker_end(&broker);
}
END_TEST

START_TEST(D06_start_after_everything_was_killed)
{
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n" });
	for (int round = 0; round < 3; round++) {
		fd = wire_connect_unix(broker.unix_path);
		ck_assert_int_ge(fd, 0);
		produce(fd, "t", 0, round % 2 ? WIRE_FORCED : WIRE_WRITTEN, "zero");
		produce(fd, "t", 1, WIRE_WRITTEN, "one");
		broker_kill(&broker);
		close(fd);
		broker_restart(&broker, NULL);
		fd = connect_tcp();
		expect_record(fd, "t", 0, round, "zero");
		expect_record(fd, "t", 1, round, "one");
		ck_assert_int_eq(wire_high_watermark(fd, "t", 0), round + 1);
		close(fd);
	}
	finish();
}
END_TEST

/* ---- D07: stopping ---------------------------------------------------------------------------------------------- */

START_TEST(D07_stop_answers_what_is_executed_and_held)
{
	struct procs_tracer tracer;
	struct wire_bytes request = { 0 };
	struct wire_answer answer;
	enum { FORCED = 5, HELD = 5 };
	int forced[FORCED], held[HELD], idle, port;
	bool traced = procs_may_trace();

	/* Barriers take so long that the stop comes in the middle of one. */
	procs_traced_to_the_end();
	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n" });
	port = broker.port;
	if (traced)
		procs_trace(&tracer, &broker, broker_worker_of(&broker, "t", 0),
		    "-e trace=fdatasync -e inject=fdatasync:delay_enter=700000");
	else
		procs_skipped("D07_stop_answers_what_is_executed_and_held", "no strace that may attach here: barriers were not slowed");
	idle = connect_tcp();
	produce(idle, "t", 1, WIRE_WRITTEN, "x");
	for (int i = 0; i < HELD; i++) {
		held[i] = connect_tcp();
		request.length = 0;
		wire_put_fetch(&request, 100 + i, "t", i % 2, i % 2, 1000, 60000, 1);
		ck_assert_int_eq(wire_send(held[i], request.data, request.length), 0);
	}
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, HELD, 30000));
	for (int i = 0; i < FORCED; i++) {
		forced[i] = connect_tcp();
		request.length = 0;
		wire_put_produce_one(&request, i, "t", 0, WIRE_FORCED, "forced", 6);
		ck_assert_int_eq(wire_send(forced[i], request.data, request.length), 0);
	}
	/* Written means executed; the three holds on this partition have ended with it. */
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_high_watermark", "topic=\"t\",partition=\"0\"", FORCED, 30000));
	kill(broker.pid, SIGTERM);
	for (int i = 0; i < FORCED; i++) {
		ck_assert_int_eq(wire_expect(forced[i], i), 0);
		ck_assert(wire_ended_orderly(forced[i], 30000));
	}
	for (int i = 0; i < HELD; i++) {
		ck_assert_int_eq(wire_read_answer(held[i], &answer, 10000), 0);
		ck_assert_int_eq(answer.id, 100 + i);
		ck_assert_int_eq(answer.error, 0);
		if (i % 2 == 1)
			ck_assert_int_eq(wire_get_i32(answer.body + 8), 0);
		wire_answer_free(&answer);
		ck_assert(wire_ended_orderly(held[i], 30000));
	}
	ck_assert(wire_ended_orderly(idle, 30000));
	ck_assert_int_eq(broker_wait_exit(&broker, 30000), 0);
	ck_assert_int_eq(wire_connect_tcp(port), -1);
	if (traced)
		ck_assert_int_eq(waitpid(tracer.pid, NULL, 0), tracer.pid);
	for (int i = 0; i < FORCED; i++)
		close(forced[i]);
	for (int i = 0; i < HELD; i++)
		close(held[i]);
	close(idle);
	wire_bytes_free(&request);
	broker_restart(&broker, NULL);
	idle = connect_tcp();
	ck_assert_int_eq(wire_high_watermark(idle, "t", 0), FORCED);
	close(idle);
	finish();
}
END_TEST

START_TEST(D07_stop_forces_the_logs)
{
	struct procs_tracer tracers[2];
	int fd;

	if (!procs_may_trace()) {
		procs_skipped("D07_stop_forces_the_logs", "no strace that may attach here");
		return;
	}
	procs_traced_to_the_end();
	broker_start(&broker, &(struct broker_config){ .topics = "t = 4\n", .log = "flush_interval = 1h\n" });
	fd = connect_tcp();
	for (int32_t partition = 0; partition < 4; partition++)
		produce(fd, "t", partition, WIRE_WRITTEN, "x");
	for (int i = 0; i < 2; i++)
		procs_trace(&tracers[i], &broker, broker.workers[i], "-y -e trace=fdatasync,fsync,sync_file_range");
	ck_assert_int_lt(broker_stop(&broker), 15000);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(waitpid(tracers[i].pid, NULL, 0), tracers[i].pid);
	for (int32_t partition = 0; partition < 4; partition++) {
		char text[64];
		long seen = 0;

		snprintf(text, sizeof text, "/t-%d/", (int)partition);
		for (int i = 0; i < 2; i++)
			seen += procs_count_lines(tracers[i].path, "sync(", text);
		ck_assert_msg(seen > 0, "partition %d was not forced", (int)partition);
	}
	close(fd);
	broker_end(&broker);
}
END_TEST

/* A client that does not read its answer cannot hold it up for longer than drain_timeout. */
START_TEST(D07_stop_within_the_deadline)
{
	struct wire_bytes request = { 0 };
	char *payload = calloc(1, 2000000);
	int fd, half;
	int64_t took;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .broker = "drain_timeout = 1s\n" });
	fd = connect_tcp();
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_WRITTEN, payload, 2000000, NULL), 0);
	for (int i = 0; i < 40; i++)
		wire_put_fetch(&request, i, "t", 0, 0, 8000000, 0, 0);
	ck_assert_int_eq(wire_send(fd, request.data, request.length), 0);
	ck_assert(broker_wait_metric_least(&broker, "logbroker_fetched_bytes_total", NULL, 100000, 30000));
	half = connect_tcp();
	ck_assert_int_eq(wire_send(half, request.data, 20), 0);
	took = broker_stop(&broker);
	printf("D07_stop_within_the_deadline: %lld ms\n", (long long)took);
	ck_assert_int_ge(took, 1000);
	ck_assert_int_lt(took, 6000);
	close(fd);
	close(half);
	free(payload);
	wire_bytes_free(&request);
	broker_end(&broker);
}
END_TEST

/* ---- D08: crowds ------------------------------------------------------------------------------------------------ */

START_TEST(D08_silent_half_frames_and_never_reading)
{
	enum { EACH = 100, BIG = 1000000 };
	struct wire_bytes fetches = { 0 }, half = { 0 };
	char *payload = calloc(1, BIG);
	int silent[EACH], halves[EACH], deaf[EACH], fd;
	long rss[3], grown[3];
	pid_t pids[3];
	int64_t began;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .broker = "request_timeout = 2s\n" });
	fd = connect_tcp();
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(wire_produce_one(fd, "t", i % 2, WIRE_WRITTEN, payload, BIG, NULL), 0);
	pids[0] = broker.pid;
	pids[1] = broker.workers[0];
	pids[2] = broker.workers[1];
	for (int i = 0; i < 3; i++)
		rss[i] = broker_rss_kib(pids[i]);
	for (int i = 0; i < 50; i++)
		wire_put_fetch(&fetches, i, "t", 0, 0, 4 * BIG, 0, 0);
	/* It announces megabytes and sends fifty kilobytes. */
	wire_put_produce_one(&half, 1, "t", 1, WIRE_WRITTEN, payload, BIG);
	began = wire_now_ms();
	for (int i = 0; i < EACH; i++) {
		silent[i] = connect_tcp();
		halves[i] = connect_tcp();
		ck_assert_int_eq(wire_send(halves[i], half.data, i % 2 ? 50000 : 3), 0);
		deaf[i] = connect_tcp();
		ck_assert_int_eq(wire_send(deaf[i], fetches.data, fetches.length), 0);
	}
	/* Others are served, as long as it takes. */
	while (broker_metric(&broker, "logbroker_connections_timed_out_total", NULL) < 2 * EACH) {
		int64_t before = wire_high_watermark(fd, "t", 1);

		produce(fd, "t", 1, WIRE_WRITTEN, "served");
		expect_record(fd, "t", 1, before, "served");
		ck_assert_int_lt(wire_now_ms() - began, 20000);
		for (int i = 0; i < 3; i++) {
			grown[i] = broker_rss_kib(pids[i]) - rss[i];
			ck_assert_msg(broker_is_asan() || grown[i] < 40 * 1024, "process %d has grown by %ld KiB", i, grown[i]);
		}
	}
	ck_assert_int_ge(wire_now_ms() - began, 2000);
	for (int i = 0; i < EACH; i++) {
		char piece[65536];
		long got;

		ck_assert(wire_ended(halves[i], 30000));
		while ((got = wire_receive(deaf[i], piece, sizeof piece, 10000)) > 0)
			;
		ck_assert_int_eq(got, WIRE_LOST);
		/* One that says nothing owes nothing. */
		ck_assert_int_eq(wire_high_watermark(silent[i], "t", 0), 4);
		close(silent[i]);
		close(halves[i]);
		close(deaf[i]);
	}
	close(fd);
	free(payload);
	wire_bytes_free(&fetches);
	wire_bytes_free(&half);
	finish();
}
END_TEST

/* ---- D09: no descriptors ---------------------------------------------------------------------------------------- */

START_TEST(D09_out_of_descriptors_after_the_start)
{
	enum { NEWCOMERS = 40 };
	struct broker_config config = { .topics = "t = 2\n" };
	struct procs_tracer tracer;
	int residents[4], newcomers[NEWCOMERS], descriptors;
	bool traced = procs_may_trace();
	struct wire_bytes request = { 0 };
	int64_t began, cpu_ms;
	const char *why;

	if (!procs_start_unprivileged(&broker, &config, &why)) {
		procs_skipped("D09_out_of_descriptors_after_the_start", why);
		return;
	}
	for (int i = 0; i < 4; i++) {
		residents[i] = connect_tcp();
		produce(residents[i], "t", 0, WIRE_WRITTEN, "x");
		ck_assert_int_gt(procs_owner_of(&broker, residents[i], 30000), 0);
	}
	descriptors = broker_fd_count(broker.pid);
	procs_set_fd_limit(broker.pid, procs_lowest_free_fd(broker.pid));
	if (traced)
		procs_trace(&tracer, &broker, broker.pid, "-e trace=accept4");
	wire_put_produce_one(&request, 1, "t", 1, WIRE_WRITTEN, "new", 3);
	began = wire_now_ms();
	cpu_ms = broker_cpu_ms(broker.pid);
	for (int i = 0; i < NEWCOMERS; i++) {
		newcomers[i] = i % 2 ? wire_connect_unix(broker.unix_path) : connect_tcp();
		ck_assert_int_ge(newcomers[i], 0);
		ck_assert_int_eq(wire_send(newcomers[i], request.data, request.length), 0);
	}
	ck_assert(broker_wait_log(&broker, "cannot accept", 30000));
	/* Existing clients move to and fro, through the full supervisor, for several of the pauses. */
	for (int i = 0; i < 100 || wire_now_ms() - began < 600; i++) {
		produce(residents[i % 4], "t", i % 8 / 4, WIRE_WRITTEN, "x");
		if (i % 16 == 0)
			ck_assert(wire_silent(newcomers[i / 16 % NEWCOMERS], 0));
	}
	if (traced) {
		int64_t elapsed = wire_now_ms() - began;
		long refused;

		procs_untrace(&tracer);
		refused = procs_count_lines(tracer.path, "accept4", "EMFILE");
		ck_assert_msg(refused <= elapsed / 100 + 2, "%ld tries in %lld ms", refused, (long long)elapsed);
	} else {
		procs_skipped("D09_out_of_descriptors_after_the_start", "no strace that may attach here: the pauses were not counted");
	}
	ck_assert_msg(broker_cpu_ms(broker.pid) - cpu_ms < (wire_now_ms() - began) * 9 / 10, "it spins");
	ck_assert_int_le(broker_count_log(&broker, "cannot accept"), 2);
	procs_set_fd_limit(broker.pid, 0);
	for (int i = 0; i < NEWCOMERS; i++) {
		ck_assert_int_eq(wire_expect(newcomers[i], 1), 0);
		close(newcomers[i]);
	}
	ck_assert(broker_metric(&broker, "logbroker_accept_pauses_total", NULL) >= 1);
	ck_assert(procs_wait_fd_count(broker.pid, descriptors, 30000));
	for (int i = 0; i < 4; i++)
		close(residents[i]);
	wire_bytes_free(&request);
	finish();
}
END_TEST

START_TEST(max_connections_one_more_is_closed_and_counted)
{
	int fds[10], more;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .broker = "max_connections = 10\n" });
	for (int i = 0; i < 10; i++) {
		fds[i] = connect_tcp();
		produce(fds[i], "t", i % 2, WIRE_WRITTEN, "x");
	}
	for (int i = 0; i < 5; i++) {
		more = i % 2 ? wire_connect_unix(broker.unix_path) : connect_tcp();
		ck_assert(wire_ended(more, 30000));
		close(more);
	}
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_refused_total", NULL, 5, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 10, 30000));
	for (int i = 0; i < 10; i++)
		produce(fds[i], "t", (i + 1) % 2, WIRE_WRITTEN, "x");
	close(fds[3]);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 9, 30000));
	fds[3] = connect_tcp();
	produce(fds[3], "t", 0, WIRE_WRITTEN, "x");
	for (int i = 0; i < 10; i++)
		close(fds[i]);
	finish();
}
END_TEST

/* ---- one data directory, one broker ----------------------------------------------------------------------------- */

START_TEST(bug_H11_two_on_one_data_directory)
{
	struct broker second;
	struct broker_config config = { .topics = "t = 2\n" };
	char pid_text[32];
	int fd;

	broker_start(&broker, &config);
	fd = connect_tcp();
	config.data_dir = broker.data_dir;
	broker_prepare(&second, &config);
	ck_assert_int_eq(broker_start_fails(&second, NULL), 75);
	snprintf(pid_text, sizeof pid_text, "%d", (int)broker.pid);
	ck_assert_int_ge(broker_count_log(&second, pid_text), 1);
	ck_assert_int_eq(broker_count_log(&second, "ready:"), 0);
	produce(fd, "t", 0, WIRE_FORCED, "x");
	/* By another way to the same place. */
	{
		char link[BROKER_PATH_BYTES + 16];

		snprintf(link, sizeof link, "%s/link", broker.directory);
		ck_assert_int_eq(symlink(broker.data_dir, link), 0);
		config.data_dir = link;
		broker_end(&second);
		broker_prepare(&second, &config);
		ck_assert_int_eq(broker_start_fails(&second, NULL), 75);
	}
	close(fd);
	broker_kill(&broker);
	broker_restart(&second, NULL);
	broker_stop(&second);
	broker_end(&second);
	broker_end(&broker);
}
END_TEST

/* There is no pid file; what the lock file says counts for nothing while nobody holds the lock. */
START_TEST(bug_H10_stale_lock_file)
{
	char path[BROKER_PATH_BYTES + 16], text[64];

	broker_start(&broker, NULL);
	snprintf(path, sizeof path, "%s/lock", broker.data_dir);
	broker_stop(&broker);
	snprintf(text, sizeof text, "%d supervisor\n", 4194303);
	procs_write_file(path, text, strlen(text));
	broker_restart(&broker, NULL);
	broker_stop(&broker);
	snprintf(text, sizeof text, "%d supervisor\n", (int)getpid());
	procs_write_file(path, text, strlen(text));
	broker_restart(&broker, NULL);
	broker_kill(&broker);
	memset(text, 0xa5, sizeof text);
	procs_write_file(path, text, sizeof text);
	broker_restart(&broker, NULL);
	finish();
}
END_TEST

START_TEST(bug_H10_data_directory_that_cannot_be_written)
{
	struct broker_config config = { .topics = "t = 1\n", .data_dir = "/proc/logbroker" };
	struct broker refused;

	broker_prepare(&refused, &config);
	ck_assert_int_eq(broker_start_fails(&refused, NULL), 1);
	ck_assert_int_ge(broker_count_log(&refused, "/proc/logbroker"), 1);
	broker_end(&refused);
	config.data_dir = "/nonexistent/logbroker";
	broker_prepare(&refused, &config);
	ck_assert_int_eq(broker_start_fails(&refused, NULL), 1);
	ck_assert_int_ge(broker_count_log(&refused, "/nonexistent/logbroker"), 1);
	broker_end(&refused);
}
END_TEST

/* ---- the command line, exit codes ------------------------------------------------------------------------------- */

static int
supervisor(const char *options, char **text)
{
	static char program[BROKER_PATH_BYTES], ini[BROKER_PATH_BYTES + 16];
	char *words = strdup(options), *rest = NULL;
	const char *argv[16] = { program };
	int count = 1, code;

	broker_build_path("logsupervisor", program, sizeof program);
	snprintf(ini, sizeof ini, "%s/broker.ini", broker.directory);
	for (char *word = strtok_r(words, " ", &rest); word != NULL && count < 15; word = strtok_r(NULL, " ", &rest))
		argv[count++] = strcmp(word, "INI") == 0 ? ini : word;
	code = procs_run(argv, text, 20000);
	free(words);
	return code;
}

static void
expect_exit(const char *options, int code, const char *with)
{
	char *text;
	int got = supervisor(options, &text);

	ck_assert_msg(got == code, "logsupervisor %s: exit code %d, not %d\n%s", options, got, code, text);
	ck_assert_msg(with == NULL || strstr(text, with) != NULL, "logsupervisor %s: no '%s' in\n%s", options, with, text);
	free(text);
}

START_TEST(command_line)
{
	broker_prepare(&broker, NULL);
	expect_exit("", 64, "-f");
	expect_exit("-x", 64, NULL);
	expect_exit("-f", 64, NULL);
	expect_exit("--nonsense -f INI", 64, NULL);
	expect_exit("-f INI surplus", 64, NULL);
	expect_exit("-h", 0, "-f");
	expect_exit("--version", 0, "0.");
	expect_exit("-t -f INI", 0, NULL);
	expect_exit("-t -f /nonexistent/broker.ini", 78, "/nonexistent/broker.ini");
	expect_exit("-f /nonexistent/broker.ini", 78, "/nonexistent/broker.ini");
	expect_exit("-t -f /", 78, NULL);
	expect_exit("-T -f INI", 0, "request_timeout");
	broker_end(&broker);
}
END_TEST

static const char *const errors[] = { "workers = foobar", "rentention_bytes = 5", "listen =", "max_frame_bytes = 5XiB" };

START_TEST(bug_I1_process_refuses_a_wrong_configuration)
{
	const struct broker_config config = { .topics = "t = 1\n",
		.broker = "workers = foobar\nrentention_bytes = 5\nlisten =\nmax_frame_bytes = 5XiB\n" };
	char path[BROKER_PATH_BYTES + 16], *ini, *text;

	ck_assert_int_eq(broker_start_fails(&broker, &config), 78);
	ck_assert_int_eq(broker_count_log(&broker, "ready:"), 0);
	ck_assert_int_eq(access(broker.data_dir, F_OK), -1);
	/* Each by file and line, in one run, and -t says the same. */
	snprintf(path, sizeof path, "%s/broker.ini", broker.directory);
	ini = procs_read_file(path, NULL);
	ck_assert_int_eq(supervisor("-t -f INI", &text), 78);
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		const char *at = strstr(ini, errors[i]);
		char place[64];
		int line = 1;

		ck_assert_ptr_nonnull(at);
		for (const char *p = ini; p < at; p++)
			line += *p == '\n';
		snprintf(place, sizeof place, "broker.ini:%d:", line);
		ck_assert_msg(strstr(text, place) != NULL, "no %s in\n%s", place, text);
		ck_assert_int_eq(broker_count_log(&broker, place), 1);
	}
	free(text);
	free(ini);
	broker_end(&broker);
}
END_TEST

START_TEST(bug_I2_check_touches_nothing)
{
	char *before, *after;
	struct stat status;

	broker_prepare(&broker, NULL);
	expect_exit("-t -f INI", 0, NULL);
	expect_exit("-T -f INI", 0, NULL);
	ck_assert_int_eq(stat(broker.data_dir, &status), -1);
	ck_assert_int_eq(stat(broker.unix_path, &status), -1);
	ck_assert_int_eq(stat(broker.control_path, &status), -1);
	/* Nor does it disturb the broker that runs with that configuration. */
	broker_launch(&broker);
	broker_wait_ready(&broker);
	{
		char path[BROKER_PATH_BYTES + 16];

		snprintf(path, sizeof path, "%s/lock", broker.data_dir);
		before = procs_read_file(path, NULL);
		expect_exit("-t -f INI", 0, NULL);
		after = procs_read_file(path, NULL);
		ck_assert_str_eq(before, after);
		free(before);
		free(after);
	}
	ck_assert_int_eq(stat(broker.unix_path, &status), 0);
	close(connect_tcp());
	finish();
}
END_TEST

START_TEST(address_that_is_taken)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t length = sizeof address;
	char lines[128], text[64];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(address.sin_port));
	snprintf(lines, sizeof lines, "listen = %s\n", text);
	ck_assert_int_eq(broker_start_fails(&broker, &(struct broker_config){ .broker = lines }), 1);
	ck_assert_int_ge(broker_count_log(&broker, text), 1);
	ck_assert_int_eq(broker_count_log(&broker, "ready:"), 0);
	snprintf(lines, sizeof lines, "http = %s\n", text);
	ck_assert_int_eq(broker_start_fails(&broker, &(struct broker_config){ .broker = lines }), 1);
	ck_assert_int_ge(broker_count_log(&broker, text), 1);
	/* Free again, it is taken. */
	close(fd);
	broker_restart(&broker, NULL);
	ck_assert_int_eq(broker.http_port, ntohs(address.sin_port));
	finish();
}
END_TEST

/* ---- sockets ----------------------------------------------------------------------------------------------------- */

/* A socket file without anybody behind it. */
static void
leave_socket(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_uint_lt(strlen(path), sizeof address.sun_path);
	memcpy(address.sun_path, path, strlen(path));
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	close(fd);
}

START_TEST(unix_socket_stale_is_replaced)
{
	struct stat status;
	int fd;

	broker_prepare(&broker, NULL);
	leave_socket(broker.unix_path);
	leave_socket(broker.control_path);
	broker_launch(&broker);
	broker_wait_ready(&broker);
	fd = wire_connect_unix(broker.unix_path);
	ck_assert_int_ge(fd, 0);
	produce(fd, "t", 0, WIRE_FORCED, "x");
	close(fd);
	broker_stop(&broker);
	ck_assert_int_eq(stat(broker.unix_path, &status), -1);
	ck_assert_int_eq(stat(broker.control_path, &status), -1);
	broker_end(&broker);
}
END_TEST

START_TEST(unix_socket_live_is_refused)
{
	char lines[BROKER_PATH_BYTES + 32];
	struct broker second;
	struct stat status;
	int fd;

	broker_start(&broker, NULL);
	snprintf(lines, sizeof lines, "listen = unix:%s\n", broker.unix_path);
	broker_prepare(&second, &(struct broker_config){ .broker = lines });
	ck_assert_int_eq(broker_start_fails(&second, NULL), 1);
	ck_assert_int_ge(broker_count_log(&second, broker.unix_path), 1);
	broker_end(&second);
	fd = wire_connect_unix(broker.unix_path);
	ck_assert_int_ge(fd, 0);
	produce(fd, "t", 0, WIRE_FORCED, "x");
	close(fd);
	broker_stop(&broker);
	/* A file that is no socket is somebody's. */
	procs_write_file(broker.unix_path, "mine", 4);
	ck_assert_int_eq(broker_start_fails(&broker, NULL), 1);
	ck_assert_int_ge(broker_count_log(&broker, broker.unix_path), 1);
	ck_assert_int_eq(stat(broker.unix_path, &status), 0);
	ck_assert_int_eq(status.st_size, 4);
	broker_end(&broker);
}
END_TEST

START_TEST(several_addresses)
{
	char lines[BROKER_PATH_BYTES * 2 + 64];
	char *at;
	int fd;

	broker_prepare(&broker, NULL);
	snprintf(lines, sizeof lines, "listen = 127.0.0.1:0 127.0.0.2:0, unix:%s, unix:%s2\n", broker.unix_path,
	    broker.unix_path);
	broker_restart(&broker, &(struct broker_config){ .broker = lines });
	fd = wire_connect_tcp(broker.port);
	produce(fd, "t", 0, WIRE_FORCED, "x");
	close(fd);
	snprintf(lines, sizeof lines, "%s2", broker.unix_path);
	fd = wire_connect_unix(lines);
	produce(fd, "t", 0, WIRE_FORCED, "x");
	close(fd);
	at = strstr(broker.text, ",127.0.0.2:");
	ck_assert_ptr_nonnull(at);
	{
		struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(at + 11)) };

		address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
		produce(fd, "t", 0, WIRE_FORCED, "x");
		close(fd);
	}
	finish();
}
END_TEST

START_TEST(ready_line)
{
	regex_t pattern;
	char format[BROKER_PATH_BYTES * 4];

	broker_start(&broker, &(struct broker_config){ .topics = "a = 4\nb = 2\n" });
	snprintf(format, sizeof format, "^ready: listen=127\\.0\\.0\\.1:%d,unix:%s http=127\\.0\\.0\\.1:%d control=%s workers=2 "
	    "partitions=6 pid=%d$", broker.port, broker.unix_path, broker.http_port, broker.control_path, (int)broker.pid);
	ck_assert_int_eq(regcomp(&pattern, format, REG_EXTENDED | REG_NEWLINE | REG_NOSUB), 0);
	ck_assert_msg(regexec(&pattern, broker.text, 0, NULL, 0) == 0, "no line like %s in\n%s", format, broker.text);
	ck_assert_int_eq(broker_count_log(&broker, "ready: listen="), 1);
	regfree(&pattern);
	finish();
	/* Without http and control. */
	broker_prepare(&broker, &(struct broker_config){ .broker = "http = off\ncontrol = off\n" });
	broker_launch(&broker);
	ck_assert(broker_wait_log(&broker, "http=off control=off workers=1 partitions=1 pid=", BROKER_START_MS));
	broker_wait_ready(&broker);
	finish();
}
END_TEST

/* As the service manager does it: descriptor 3 is the socket, LISTEN_PID the one that becomes the supervisor. */
START_TEST(activation_with_a_socket_on_descriptor_3)
{
	char wrapper[BROKER_PATH_BYTES * 3], path[BROKER_PATH_BYTES + 16];
	int fd;

	broker_prepare(&broker, NULL);
	snprintf(path, sizeof path, "%s/activated", broker.directory);
	snprintf(wrapper, sizeof wrapper, "%s --activate %s", procs_self(), path);
	broker.config.wrapper = wrapper;
	broker_launch(&broker);
	ck_assert(broker_wait_log(&broker, "ready: listen=", BROKER_START_MS));
	broker_wait_ready(&broker);
	fd = wire_connect_unix(path);
	ck_assert_int_ge(fd, 0);
	produce(fd, "t", 0, WIRE_FORCED, "x");
	close(fd);
	ck_assert_int_eq(broker_count_log(&broker, path), 1);
	/* It stands in for what the configuration says, and workers have no part in it. */
	ck_assert_int_eq(access(broker.unix_path, F_OK), -1);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 0, 30000));
	ck_assert_int_eq(broker_fd_count_of(broker.workers[0], "socket:"), 1);
	broker_stop(&broker);
	/* The file is the service manager's. */
	ck_assert_int_eq(access(path, F_OK), 0);
	broker_end(&broker);
}
END_TEST

START_TEST(modes_of_files_whatever_the_umask)
{
	static const char *const masks[] = { "0", "077" };

	for (size_t i = 0; i < 2; i++) {
		char wrapper[BROKER_PATH_BYTES + 32], path[BROKER_PATH_BYTES * 2];
		struct stat status;
		int fd;

		snprintf(wrapper, sizeof wrapper, "%s --umask %s", procs_self(), masks[i]);
		broker_start(&broker, &(struct broker_config){ .wrapper = wrapper });
		fd = connect_tcp();
		produce(fd, "t", 0, WIRE_FORCED, "x");
		close(fd);
		ck_assert_int_eq(stat(broker.data_dir, &status), 0);
		ck_assert_int_eq(status.st_mode & 07777, 0750);
		broker_partition_path(&broker, "t", 0, -1, path, sizeof path);
		ck_assert_int_eq(stat(path, &status), 0);
		ck_assert_int_eq(status.st_mode & 07777, 0750);
		broker_partition_path(&broker, "t", 0, 0, path, sizeof path);
		ck_assert_int_eq(stat(path, &status), 0);
		ck_assert_int_eq(status.st_mode & 07777, 0640);
		ck_assert_int_eq(stat(broker.control_path, &status), 0);
		ck_assert_int_eq(status.st_mode & 07777, 0660);
		finish();
	}
}
END_TEST

/* ---- pages ------------------------------------------------------------------------------------------------------- */

static const char *const zero_at_start[] = {
	"logbroker_connections", "logbroker_connection_handoffs_total", "logbroker_requests_total", "logbroker_fetch_held",
	"logbroker_fetch_wakeups_total", "logbroker_produced_records_total", "logbroker_produced_bytes_total",
	"logbroker_fetched_bytes_total", "logbroker_fsync_failures_total", "logbroker_storage_errors_total",
	"logbroker_unsynced_bytes", "logbroker_partition_log_start_offset", "logbroker_partition_high_watermark",
	"logbroker_partition_durable_offset", "logbroker_partition_size_bytes", "logbroker_partition_failed",
	"logbroker_worker_restarts_total", "logbroker_recovery_truncated_bytes_total",
	"logbroker_request_duration_seconds_count", "logbroker_request_duration_seconds_sum",
};

START_TEST(pages_fixed_names_are_there_and_start_at_0)
{
	int status;
	char *page;

	broker_start(&broker, &(struct broker_config){ .topics = "a = 2\nb = 1\n" });
	for (size_t i = 0; i < sizeof zero_at_start / sizeof *zero_at_start; i++) {
		double value = broker_metric(&broker, zero_at_start[i], NULL);

		ck_assert_msg(value >= 0 && value <= 0, "%s is %g", zero_at_start[i], value);
	}
	ck_assert(broker_metric(&broker, "logbroker_fsync_duration_seconds_count", NULL) >= 0);
	ck_assert(broker_metric(&broker, "logbroker_fsync_duration_seconds_bucket", "le=\"+Inf\"") >= 0);
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_segments", NULL, 3, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_up", NULL, 2, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_ready", NULL, 1, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_build_info", NULL, 1, 30000));
	ck_assert(broker_metric(&broker, "logbroker_data_free_bytes", NULL) > 0);
	for (int api = 0; api < 3; api++) {
		static const char *const labels[] = { "api=\"produce\"", "api=\"fetch\"", "api=\"metadata\"" };

		ck_assert(broker_metric(&broker, "logbroker_requests_total", labels[api]) >= 0);
		ck_assert(broker_metric(&broker, "logbroker_request_duration_seconds_count", labels[api]) >= 0);
	}
	for (int i = 0; i < 3; i++) {
		static const char *const paths[] = { "/metrics", "/healthz", "/readyz" };

		page = broker_http_get(&broker, paths[i], &status);
		ck_assert_ptr_nonnull(page);
		ck_assert_int_eq(status, 200);
		free(page);
	}
	page = broker_http_get(&broker, "/nothing", &status);
	ck_assert_int_eq(status, 404);
	free(page);
	finish();
}
END_TEST

START_TEST(pages_count_what_happens)
{
	struct wire_fetched fetched;
	int32_t here, there;
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "a = 2\n" });
	here = partition_in("a", 0);
	there = partition_in("a", 1);
	fd = connect_tcp();
	for (int i = 0; i < 5; i++) {
		produce(fd, "a", here, WIRE_FORCED, "1234567");
		produce(fd, "a", there, WIRE_WRITTEN, "123");
	}
	ck_assert_int_eq(wire_fetch(fd, "a", here, 0, 1000, 0, 0, &fetched), 0);
	ck_assert_uint_eq(fetched.length, 75);
	wire_fetched_free(&fetched);
	ck_assert_int_eq(wire_fetch(fd, "a", here, 99, 1000, 0, 0, &fetched), WIRE_OFFSET_OUT_OF_RANGE);
	ck_assert(broker_wait_metric(&broker, "logbroker_requests_total", "api=\"fetch\",code=\"NONE\"", 1, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_requests_total", "api=\"fetch\",code=\"OFFSET_OUT_OF_RANGE\"", 1, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_requests_total", "api=\"produce\",code=\"NONE\"", 10, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_request_duration_seconds_count", "api=\"produce\"", 10, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_produced_records_total", NULL, 10, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_produced_bytes_total", NULL, 50, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_fetched_bytes_total", NULL, 75, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_size_bytes", NULL, 130, 30000));
	ck_assert(broker_wait_metric_least(&broker, "logbroker_fsync_duration_seconds_count", NULL, 5, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 1, 30000));
	ck_assert(broker_wait_metric_least(&broker, "logbroker_connection_handoffs_total", NULL, 9, 30000));
	/* Counters outlive the worker. */
	broker.workers_may_die = true;
	{
		pid_t victim = broker_worker_of(&broker, "a", there);

		kill(victim, SIGKILL);
		wait_back("a", there, victim);
	}
	ck_assert(broker_wait_metric(&broker, "logbroker_produced_records_total", NULL, 10, 30000));
	close(fd);
	finish();
}
END_TEST

/* The control socket shows the same pages. */
START_TEST(pages_over_the_control_socket)
{
	static const char request[] = "GET /readyz HTTP/1.0\r\n\r\n";
	char text[4096];
	size_t length = 0;
	long got;
	int fd;

	broker_start(&broker, NULL);
	fd = wire_connect_unix(broker.control_path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(wire_send(fd, request, strlen(request)), 0);
	while (length < sizeof text - 1 && (got = wire_receive(fd, text + length, sizeof text - 1 - length, 10000)) > 0)
		length += (size_t)got;
	text[length] = '\0';
	ck_assert_msg(strncmp(text, "HTTP/1.", 7) == 0 && atoi(text + 9) == 200, "%s", text);
	close(fd);
	finish();
}
END_TEST

/* ---- as a wrapper ------------------------------------------------------------------------------------------------ */

static int
wrap(int argc, char **argv)
{
	int first = 3;

	if (strcmp(argv[1], "--deaf") == 0) {
		sigset_t all;

		for (int number = 1; number < NSIG; number++)
			signal(number, SIG_IGN);
		sigfillset(&all);
		sigprocmask(SIG_SETMASK, &all, NULL);
		first = 2;
	} else if (strcmp(argv[1], "--umask") == 0 && argc > 3) {
		umask((mode_t)strtol(argv[2], NULL, 8));
	} else if (strcmp(argv[1], "--activate") == 0 && argc > 3) {
		struct sockaddr_un address = { .sun_family = AF_UNIX };
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		char pid[32];

		snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[2]);
		if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 10) < 0 ||
		    (fd != 3 && dup2(fd, 3) < 0))
			return 1;
		if (fd != 3)
			close(fd);
		snprintf(pid, sizeof pid, "%d", (int)getpid());
		setenv("LISTEN_PID", pid, 1);
		setenv("LISTEN_FDS", "1", 1);
	} else {
		fprintf(stderr, "%s: no such wrapper\n", argv[1]);
		return 64;
	}
	execvp(argv[first], argv + first);
	perror(argv[first]);
	return 127;
}

static Suite *
suite(void)
{
	Suite *s = suite_create("processes");
	TCase *tc = tcase_create("processes");

	tcase_set_timeout(tc, 100 + 40 * broker_scale());
	tcase_add_test(tc, D01_owned_by_the_worker_of_its_partition);
	tcase_add_test(tc, D01_accepted_by_the_supervisor_only);
	tcase_add_test(tc, D01_every_partition_in_turn_pipelined);
	tcase_add_test(tc, D04_worker_killed_under_load);
	tcase_add_test(tc, D04_metadata_while_a_worker_is_away);
	tcase_add_test(tc, parked_connections_are_served_when_the_worker_is_back);
	tcase_add_test(tc, parked_with_all_workers_away_and_fresh);
	tcase_add_test(tc, parked_connections_time_out);
	tcase_add_test(tc, parked_peers_that_vanish_are_dropped);
	tcase_add_test(tc, bug_H2_one_worker_killed_many_times);
	tcase_add_test(tc, bug_H3_all_workers_killed_at_once);
	tcase_add_test(tc, bug_H6_signals_reach_only_whom_they_are_for);
	tcase_add_test(tc, inherited_signal_dispositions_and_mask);
	tcase_add_test(tc, sigint_stops_it);
	tcase_add_test(tc, D03_an_idle_worker_does_not_wait_for_its_heartbeat);
	tcase_add_test(tc, D05_a_worker_that_gets_no_memory);
	tcase_add_test(tc, D06_supervisor_killed_second_refused_until_workers_are_gone);
	tcase_add_test(tc, D06_supervisor_killed_while_a_replaced_worker_finishes);
	tcase_add_test(tc, D06_supervisor_killed_during_a_drain);
	tcase_add_test(tc, D06_supervisor_killed_behind_a_release);
	tcase_add_test(tc, D06_supervisor_killed_workers_answer_and_force);
	tcase_add_test(tc, D06_start_after_everything_was_killed);
	tcase_add_test(tc, D07_stop_answers_what_is_executed_and_held);
	tcase_add_test(tc, D07_stop_forces_the_logs);
	tcase_add_test(tc, D07_stop_within_the_deadline);
	tcase_add_test(tc, D08_silent_half_frames_and_never_reading);
	tcase_add_test(tc, D09_out_of_descriptors_after_the_start);
	tcase_add_test(tc, max_connections_one_more_is_closed_and_counted);
	tcase_add_test(tc, bug_H11_two_on_one_data_directory);
	tcase_add_test(tc, bug_H10_stale_lock_file);
	tcase_add_test(tc, bug_H10_data_directory_that_cannot_be_written);
	tcase_add_test(tc, command_line);
	tcase_add_test(tc, bug_I1_process_refuses_a_wrong_configuration);
	tcase_add_test(tc, bug_I2_check_touches_nothing);
	tcase_add_test(tc, address_that_is_taken);
	tcase_add_test(tc, unix_socket_stale_is_replaced);
	tcase_add_test(tc, unix_socket_live_is_refused);
	tcase_add_test(tc, several_addresses);
	tcase_add_test(tc, ready_line);
	tcase_add_test(tc, activation_with_a_socket_on_descriptor_3);
	tcase_add_test(tc, modes_of_files_whatever_the_umask);
	tcase_add_test(tc, pages_fixed_names_are_there_and_start_at_0);
	tcase_add_test(tc, pages_count_what_happens);
	tcase_add_test(tc, pages_over_the_control_socket);
	suite_add_tcase(s, tc);
	return s;
}

int
main(int argc, char **argv)
{
	return argc > 1 ? wrap(argc, argv) : broker_main(suite());
}
