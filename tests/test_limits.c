/*
 * What one broker takes upon itself and no more: connections that say nothing, more of them than there are descriptors,
 * peers that are not there any more, signals that come too often.
 */
#include <arpa/inet.h>
#include <check.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum { SOON_MS = 30000, TOPIC_HOLD_MS = 60000 };

static struct broker broker;

static void
finish(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

static int
connect_tcp(void)
{
	int fd = wire_connect_tcp(broker.port);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void
produce(int fd, int32_t partition)
{
	ck_assert_int_eq(wire_produce_one(fd, "t", partition, WIRE_WRITTEN, "x", 1, NULL), 0);
}

/* A FETCH that waits for a record: returns when it is held. */
static int
hold(int32_t partition, int64_t offset, double held)
{
	struct wire_bytes request = { 0 };
	int fd = connect_tcp();

	wire_put_fetch(&request, 1, "t", partition, offset, 1000, TOPIC_HOLD_MS, 1);
	ck_assert_int_eq(wire_send(fd, request.data, request.length), 0);
	wire_bytes_free(&request);
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, held, SOON_MS));
	return fd;
}

/* ---- D08: idle_timeout ------------------------------------------------------------------------------------------- */

/* Somebody who asks for something now and then. */
struct talker {
	int fd;
	int64_t spoke_ms;
	bool held_up;	/* once, for so long that it may have been idle */
};

static void
talk(struct talker *talker, int32_t partition, int64_t idle_ms)
{
	if (talker->fd > 0 && wire_now_ms() - talker->spoke_ms > idle_ms / 2) {
		talker->held_up = true;
		close(talker->fd);
		talker->fd = 0;
	}
	if (talker->fd == 0)
		talker->fd = connect_tcp();
	produce(talker->fd, partition);
	talker->spoke_ms = wire_now_ms();
}

/*
 * Those who say nothing are closed in order, fresh ones, served ones and moved ones; not those who wait, and not those who
 * ask for something now and then.
 */
START_TEST(D08_idle_connections_are_closed_in_order)
{
	enum { EACH = 20, IDLE_MS = 1500 };
	int fresh[EACH], served[EACH], moved[EACH], held;
	struct talker busy = { 0 };
	int64_t began;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .broker = "idle_timeout = 1500ms\n"
	    "request_timeout = 60s\n" });
	talk(&busy, 0, IDLE_MS);
	held = hold(0, 1, 1);
	began = wire_now_ms();
	for (int i = 0; i < EACH; i++) {
		fresh[i] = i % 2 ? wire_connect_unix(broker.unix_path) : connect_tcp();
		served[i] = connect_tcp();
		produce(served[i], 1);
		moved[i] = connect_tcp();
		produce(moved[i], 1);
		ck_assert_int_eq(wire_high_watermark(moved[i], "t", 0), 1);
		talk(&busy, 1, IDLE_MS);
	}
	while (broker_metric(&broker, "logbroker_connections_idle_total", NULL) < 3 * EACH) {
		talk(&busy, 1, IDLE_MS);
		ck_assert_int_lt(wire_now_ms() - began, SOON_MS);
	}
	ck_assert_int_ge(wire_now_ms() - began, IDLE_MS);
	for (int i = 0; i < EACH; i++) {
		ck_assert(wire_ended_orderly(fresh[i], SOON_MS));
		ck_assert(wire_ended_orderly(served[i], SOON_MS));
		ck_assert(wire_ended_orderly(moved[i], SOON_MS));
		close(fresh[i]);
		close(served[i]);
		close(moved[i]);
	}
	ck_assert(wire_silent(held, 0));
	talk(&busy, 0, IDLE_MS);
	ck_assert_int_eq(wire_expect(held, 1), 0);
	/* Its hold has ended: from now on it is idle, too. */
	ck_assert(broker_wait_metric_least(&broker, "logbroker_connections_idle_total", NULL, 3 * EACH + 1, SOON_MS));
	ck_assert(wire_ended_orderly(held, SOON_MS));
	close(held);
	close(busy.fd);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 0, SOON_MS));
	finish();
}
END_TEST

START_TEST(D08_a_connection_that_speaks_is_never_idle)
{
	enum { IDLE_MS = 3000 };
	struct talker talker = { 0 };
	int64_t began;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .broker = "idle_timeout = 3s\n" });
	began = wire_now_ms();
	for (int i = 0; wire_now_ms() - began < IDLE_MS * 3 / 2; i++) {
		talk(&talker, i / 4 % 2, IDLE_MS);
		usleep(100 * 1000);
	}
	if (!talker.held_up)
		ck_assert_int_eq((int)broker_metric(&broker, "logbroker_connections_idle_total", NULL), 0);
	close(talker.fd);
	finish();
}
END_TEST

/* ---- bug_G1: descriptors ------------------------------------------------------------------------------------------ */

static void
expect_calm(const pid_t *pids, int count)
{
	int64_t cpu_ms[BROKER_WORKERS_MAX], began = wire_now_ms();

	for (int i = 0; i < count; i++)
		cpu_ms[i] = broker_cpu_ms(pids[i]);
	usleep(1000 * 1000);
	for (int i = 0; i < count; i++)
		ck_assert_msg((broker_cpu_ms(pids[i]) - cpu_ms[i]) * 100 <= (wire_now_ms() - began) * 10, "process %d spins", i);
}

/* Started with as few: those for whom there is no place are closed at once, and the others do not notice. */
START_TEST(bug_G1_a_limit_of_64_descriptors_at_the_start)
{
	enum { PLACES = 7, ALL = 200 };
	int fds[ALL];
	pid_t pids[2];

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .workers = 1, .wrapper = "prlimit --nofile=64",
	    .broker = "max_connections = 7\n" });
	pids[0] = broker.pid;
	pids[1] = broker.workers[0];
	for (int i = 0; i < PLACES; i++) {
		fds[i] = connect_tcp();
		produce(fds[i], 0);
	}
	for (int i = PLACES; i < ALL; i++)
		fds[i] = connect_tcp();
	for (int i = PLACES; i < ALL; i++) {
		ck_assert(wire_ended(fds[i], SOON_MS));
		close(fds[i]);
	}
	expect_calm(pids, 2);
	for (int i = 0; i < PLACES; i++)
		produce(fds[i], 0);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections_refused_total", NULL, ALL - PLACES, SOON_MS));
	ck_assert_int_le(broker_count_log(&broker, "max_connections = 7 are there"), 2);
	for (int i = 0; i < PLACES; i++)
		close(fds[i]);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 0, SOON_MS));
	for (int i = 0; i < PLACES; i++) {
		fds[i] = connect_tcp();
		produce(fds[i], 0);
	}
	for (int i = 0; i < PLACES; i++)
		close(fds[i]);
	finish();
}
END_TEST

/* Fewer than it had reckoned with: nobody is closed, the surplus waits and has its turn when others go. */
START_TEST(bug_G1_two_hundred_connections_and_64_descriptors)
{
	enum { ALL = 200 };
	struct wire_bytes request = { 0 };
	int fds[ALL], resident, left = ALL;
	pid_t pids[2];

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .workers = 1 });
	pids[0] = broker.pid;
	pids[1] = broker.workers[0];
	resident = connect_tcp();
	produce(resident, 0);
	for (int i = 0; i < 2; i++)
		procs_set_fd_limit(pids[i], 64);
	wire_put_produce_one(&request, 1, "t", 0, WIRE_WRITTEN, "new", 3);
	for (int i = 0; i < ALL; i++) {
		fds[i] = connect_tcp();
		ck_assert_int_eq(wire_send(fds[i], request.data, request.length), 0);
	}
	expect_calm(pids, 2);
	for (int64_t began = wire_now_ms(); left > 0;) {
		ck_assert_msg(wire_now_ms() - began < 2 * SOON_MS, "%d have not been served", left);
		for (int i = 0; i < ALL; i++) {
			if (fds[i] < 0 || wire_silent(fds[i], 0))
				continue;
			ck_assert_int_eq(wire_expect(fds[i], 1), 0);
			close(fds[i]);
			fds[i] = -1;
			left--;
		}
		produce(resident, 0);
	}
	ck_assert_int_le(broker_count_log(&broker, "cannot accept connections"), 2);
	wire_bytes_free(&request);
	close(resident);
	finish();
}
END_TEST

/* The whole system is out of files: as with the process's own table. */
START_TEST(bug_G1_the_system_is_out_of_files)
{
	int fds[20];

	if (!broker_have_strace()) {
		procs_skipped("bug_G1_the_system_is_out_of_files", "no strace that may trace here");
		return;
	}
	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .workers = 1,
	    .strace = "-e trace=accept4 -e inject=accept4:error=ENFILE:when=1..3" });
	for (int i = 0; i < 20; i++)
		fds[i] = connect_tcp();
	for (int i = 0; i < 20; i++) {
		produce(fds[i], 0);
		close(fds[i]);
	}
	ck_assert(broker_wait_log(&broker, "cannot accept connections: Too many open files in system; paused", SOON_MS));
	ck_assert_int_eq(broker_count_log(&broker, "cannot accept connections"), 1);
	ck_assert(broker_wait_metric_least(&broker, "logbroker_accept_pauses_total", NULL, 3, SOON_MS));
	finish();
}
END_TEST

/* ---- bug_G3: peers that are gone ---------------------------------------------------------------------------------- */

/*
 * The timers of the broker's connections, from /proc/net/tcp: "sl local:port remote:port st tx:rx tr:when ...", where tr
 * 02 is keepalive's and `when` counts hundredths of a second. Returns how many have it within `most_s`.
 */
static int
count_keepalive(int most_s)
{
	FILE *file = fopen("/proc/net/tcp", "r");
	unsigned port, state, timer, when;
	char line[512];
	int count = 0;

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof line, file) != NULL)
		if (sscanf(line, " %*d: %*8x:%4x %*8x:%*4x %2x %*8x:%*8x %2x:%8x", &port, &state, &timer, &when) == 4 &&
		    (int)port == broker.port && state == 1 && timer == 2 && when <= (unsigned)most_s * 100)
			count++;
	fclose(file);
	return count;
}

static bool
all_kept_alive(void *with)
{
	return count_keepalive(60) == *(int *)with;
}

START_TEST(bug_G3_connections_are_kept_alive)
{
	enum { COUNT = 20 };
	int fds[COUNT], expected = COUNT;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n" });
	for (int i = 0; i < COUNT; i++) {
		fds[i] = connect_tcp();
		if (i % 2)
			produce(fds[i], i / 2 % 2);
	}
	/* While something is on its way there is another timer. */
	ck_assert(broker_wait(all_kept_alive, &expected, SOON_MS));
	for (int i = 0; i < COUNT; i++)
		close(fds[i]);
	finish();
}
END_TEST

/*
 * A cut link, in network namespaces: the broker's, which is this test's, has one end of a veth pair, the clients' process
 * in another one has the other end and takes it down. Nobody says goodbye.
 */
enum { CUT_CLIENTS = 10, CUT_PORT = 9092 };

struct far_side {
	pid_t pid;
	int news, orders;	/* a byte for each step done; closed to end it */
};

/* The clients' process: waits for its end of the link, connects, waits, cuts, and stays. Never returns. */
static void
run_far_side(int news, int orders)
{
	char byte;
	bool ok = unshare(CLONE_NEWNET) == 0 && write(news, "u", 1) == 1 && read(orders, &byte, 1) == 1 &&
	    system("ip addr add 10.99.0.2/24 dev lbfar && ip link set lbfar up") == 0;

	for (int i = 0; ok && i < CUT_CLIENTS; i++) {
		struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(CUT_PORT) };
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

		inet_pton(AF_INET, "10.99.0.1", &to.sin_addr);
		ok = connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
		    wire_produce_one(fd, "t", i % 2, WIRE_WRITTEN, "x", 1, NULL) == WIRE_OK;
	}
	ok = ok && write(news, "c", 1) == 1 && read(orders, &byte, 1) == 1 && system("ip link set lbfar down") == 0 &&
	    write(news, "d", 1) == 1;
	if (ok && read(orders, &byte, 1) < 0)
		perror("the far side");
	_exit(!ok);
}

/* False when there are no network namespaces here. */
static bool
begin_far_side(struct far_side *far)
{
	int news[2], orders[2];
	char command[256], byte;

	if (unshare(CLONE_NEWNET) != 0 || system("ip link set lo up") != 0)
		return false;
	ck_assert_int_eq(pipe(news), 0);
	ck_assert_int_eq(pipe(orders), 0);
	far->pid = fork();
	if (far->pid == 0) {
		close(news[0]);
		close(orders[1]);
		run_far_side(news[1], orders[0]);
	}
	close(news[1]);
	close(orders[0]);
	far->news = news[0];
	far->orders = orders[1];
	snprintf(command, sizeof command, "ip link add lbnear type veth peer name lbfar netns %d && "
	    "ip addr add 10.99.0.1/24 dev lbnear && ip link set lbnear up", (int)far->pid);
	return read(far->news, &byte, 1) == 1 && system(command) == 0;
}

static void
order_far_side(const struct far_side *far)
{
	char byte;

	ck_assert_int_eq(write(far->orders, "x", 1), 1);
	ck_assert_int_eq(read(far->news, &byte, 1), 1);
}

/* Two minutes are long for a test: the broker's own sockets get a shorter keepalive. Returns how many there were. */
static int
hurry_keepalive(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), count = 0, second = 1, probes = 2;

	for (int number = 3; number < 200; number++) {
		int fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
		struct sockaddr_in peer = { .sin_family = AF_UNSPEC };
		socklen_t size = sizeof peer;

		if (fd >= 0 && getpeername(fd, (struct sockaddr *)&peer, &size) == 0 && peer.sin_family == AF_INET &&
		    ntohl(peer.sin_addr.s_addr) == 0x0a630002) {
			setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
			setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &second, sizeof second);
			setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &second, sizeof second);
			count++;
		}
		if (fd >= 0)
			close(fd);
	}
	close(pidfd);
	return count;
}

START_TEST(bug_G3_a_link_that_is_cut)
{
	struct far_side far = { 0 };
	int found = 0;

	if (!begin_far_side(&far)) {
		procs_skipped("bug_G3_a_link_that_is_cut", "no network namespaces here");
		return;
	}
	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .broker = "listen = 127.0.0.1:0, 10.99.0.1:9092\n" });
	order_far_side(&far);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, CUT_CLIENTS, SOON_MS));
	for (int i = 0; i < broker.worker_count; i++)
		found += hurry_keepalive(broker.workers[i]);
	ck_assert_int_eq(found, CUT_CLIENTS);
	order_far_side(&far);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 0, SOON_MS));
	close(far.orders);
	ck_assert_int_eq(waitpid(far.pid, NULL, 0), far.pid);
	close(far.news);
	finish();
}
END_TEST

/* ---- bug_H17: SIGHUP ------------------------------------------------------------------------------------------------ */

enum { H17_CLIENTS = 8, H17_PARTITIONS = 4 };

struct load {
	pthread_t thread;
	int number;
	atomic_bool *stop;
	int64_t produced;	/* acknowledged */
	int failed;		/* the first code that was not WIRE_OK */
};

/* One connection for the whole time, a record after the other into one partition; half of the clients move to and fro. */
static void *
load_run(void *argument)
{
	struct load *load = argument;
	int fd = wire_connect_tcp(broker.port);
	int32_t own = load->number % H17_PARTITIONS;

	while (!atomic_load(load->stop) && load->failed == WIRE_OK) {
		load->failed = wire_produce_one(fd, "t", own, load->produced % 16 == 0 ? WIRE_FORCED : WIRE_WRITTEN, "record", 6,
		    NULL);
		load->produced += load->failed == WIRE_OK;
		if (load->number >= H17_PARTITIONS && wire_high_watermark(fd, "t", (own + 1) % H17_PARTITIONS) < 0)
			load->failed = WIRE_LOST;
	}
	close(fd);
	return NULL;
}

/* A new file under the old name, as an editor or a rename leaves it. */
static void
replace_config(int round)
{
	char command[5 * BROKER_PATH_BYTES];

	snprintf(command, sizeof command, "sed 's/^max_fetch_wait.*/max_fetch_wait = %dms/' '%s/broker.ini' > '%s/new' && "
	    "mv '%s/new' '%s/broker.ini'", 1000 + round, broker.directory, broker.directory, broker.directory, broker.directory);
	ck_assert_int_eq(system(command), 0);
}

static bool
has_come(void *before)
{
	return broker_fd_count(broker.pid) > *(const int *)before;
}

/* A client of the control socket that has been accepted. */
static int
connect_control(void)
{
	int before = broker_fd_count(broker.pid), fd = wire_connect_unix(broker.control_path);

	ck_assert_int_ge(fd, 0);
	ck_assert(broker_wait(has_come, &before, SOON_MS));
	return fd;
}

static void
expect_not_replaced(int fd, const char *why)
{
	static const char order[] = "POST /workers/0/restart HTTP/1.1\r\n\r\n";
	char answer[1024] = "";
	size_t length = 0;
	long n;

	ck_assert_int_eq(wire_send(fd, order, sizeof(order) - 1), 0);
	while (length < sizeof(answer) - 1 && (n = wire_receive(fd, answer + length, sizeof(answer) - 1 - length, SOON_MS)) > 0)
		length += (size_t)n;
	ck_assert_msg(strstr(answer, why) != NULL, "%s", answer);
	close(fd);
}

/* Who asks for a replacement that cannot even begin is told why and what to do, and so is the log. */
START_TEST(bug_G1_no_descriptors_for_a_replacement)
{
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .workers = 1 });
	fd = connect_control();
	procs_set_fd_limit(broker.pid, 3);
	expect_not_replaced(fd, "worker 0: no process can be started: no descriptors are free (raise");
	ck_assert(broker_wait_log(&broker, "worker 0: cannot be replaced: no process can be started: no descriptors", SOON_MS));
	procs_set_fd_limit(broker.pid, 0);
	finish();
}
END_TEST

/* One that cannot have a thread, here for want of room for its stack, is found out before the old one has let go. */
START_TEST(bug_G1_no_threads_for_a_replacement)
{
	char command[128];
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .workers = 1 });
	fd = connect_tcp();
	produce(fd, 0);
	snprintf(command, sizeof command, "prlimit --pid %d --stack=%lld:", (int)broker.pid, 200LL << 40);
	ck_assert_int_eq(system(command), 0);
	expect_not_replaced(connect_control(), "worker 0: not replaced: its replacement ");
	produce(fd, 0);
	close(fd);
	finish();
}
END_TEST

static void
fill_segments(int count, size_t record_bytes)
{
	char *record = calloc(1, record_bytes);
	int fd = connect_tcp();

	ck_assert_ptr_nonnull(record);
	for (int i = 0; i < count; i++)
		ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_WRITTEN, record, record_bytes, NULL), 0);
	free(record);
	close(fd);
}

/* Those who read nothing of what they have asked for keep sealed segments open: never all descriptors of the worker. */
START_TEST(bug_G1_readers_that_do_not_read_leave_descriptors)
{
	enum { READERS = 10, EACH = 12 };
	struct wire_bytes requests = { 0 };
	int fds[READERS], newcomer;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .workers = 1, .wrapper = "prlimit --nofile=96",
	    .broker = "request_timeout = 10min\n", .log = "segment_bytes = 64KiB\n" });
	fill_segments(READERS * EACH + 1, 60000);
	for (int i = 0; i < READERS; i++) {
		requests.length = 0;
		for (int k = 0; k < EACH; k++)
			wire_put_fetch(&requests, k, "t", 0, i * EACH + k, 1 << 20, 0, 0);
		fds[i] = wire_connect_unix(broker.unix_path);
		ck_assert_int_ge(fds[i], 0);
		ck_assert_int_eq(wire_send(fds[i], requests.data, requests.length), 0);
	}
	wire_bytes_free(&requests);
	/* All have been executed, and what does not go into the sockets stays where it is. */
	ck_assert(broker_wait_metric(&broker, "logbroker_requests_total", "api=\"fetch\"", READERS * EACH, SOON_MS));
	newcomer = connect_tcp();
	ck_assert_int_eq(wire_high_watermark(newcomer, "t", 0), READERS * EACH + 1);
	fill_segments(2, 60000);
	ck_assert_int_le(broker_count_log(&broker, "cannot be opened: Too many open files"), 2);
	for (int i = 0; i < READERS; i++)
		close(fds[i]);
	close(newcomer);
	finish();
}
END_TEST

/* Once a second under load, with something new for the workers each time: no connection is lost, and no record. */
START_TEST(bug_H17_a_hangup_once_a_second)
{
	struct load loads[H17_CLIENTS];
	atomic_bool stop = false;
	int64_t expected[H17_PARTITIONS] = { 0 };
	struct wire_bytes log = { 0 };
	int rounds = 4 * broker_scale(), fd;
	char line[64];

	broker_start(&broker, &(struct broker_config){ .topics = "t = 4\n", .broker = "max_fetch_wait = 1s\n" });
	broker.workers_may_die = true;
	for (int i = 0; i < H17_CLIENTS; i++) {
		loads[i] = (struct load){ .number = i, .stop = &stop };
		ck_assert_int_eq(pthread_create(&loads[i].thread, NULL, load_run, &loads[i]), 0);
	}
	for (int round = 1; round <= rounds; round++) {
		replace_config(round);
		kill(broker.pid, SIGHUP);
		usleep(1000 * 1000);
		snprintf(line, sizeof line, "-> %dms (applied by restarting the workers)", 1000 + round);
		ck_assert(broker_wait_log(&broker, line, SOON_MS));
	}
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_restarts_total", "reason=\"requested\"", 2 * rounds, SOON_MS));
	atomic_store(&stop, true);
	for (int i = 0; i < H17_CLIENTS; i++) {
		pthread_join(loads[i].thread, NULL);
		ck_assert_msg(loads[i].failed == WIRE_OK, "client %d: %d", i, loads[i].failed);
		expected[i % H17_PARTITIONS] += loads[i].produced;
	}
	fd = connect_tcp();
	for (int32_t p = 0; p < H17_PARTITIONS; p++) {
		ck_assert_int_eq(wire_high_watermark(fd, "t", p), expected[p]);
		ck_assert_int_eq(wire_read_log(fd, "t", p, 0, expected[p], 1 << 20, true, &log), expected[p]);
	}
	wire_bytes_free(&log);
	close(fd);
	finish();
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("limits");
	TCase *tc = tcase_create("limits");

	tcase_set_timeout(tc, 120 + 10 * broker_scale());
	tcase_add_test(tc, D08_idle_connections_are_closed_in_order);
	tcase_add_test(tc, D08_a_connection_that_speaks_is_never_idle);
	tcase_add_test(tc, bug_G1_a_limit_of_64_descriptors_at_the_start);
	tcase_add_test(tc, bug_G1_two_hundred_connections_and_64_descriptors);
	tcase_add_test(tc, bug_G1_the_system_is_out_of_files);
	tcase_add_test(tc, bug_G1_no_descriptors_for_a_replacement);
	tcase_add_test(tc, bug_G1_no_threads_for_a_replacement);
	tcase_add_test(tc, bug_G1_readers_that_do_not_read_leave_descriptors);
	tcase_add_test(tc, bug_G3_connections_are_kept_alive);
	tcase_add_test(tc, bug_G3_a_link_that_is_cut);
	tcase_add_test(tc, bug_H17_a_hangup_once_a_second);
	suite_add_tcase(s, tc);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
