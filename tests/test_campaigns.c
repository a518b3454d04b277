/*
 * Campaigns: a crowd of clients of every sort talks to a broker whose workers are replaced or killed, whose supervisor is
 * killed, or all of it at once, again and again. Whoever must notice nothing notices nothing; what was acknowledged is
 * looked for each time. Small as they stand here; LOGBROKER_TEST_SCALE=100 makes 1,000 clients and 200 restarts, 1,000
 * kills of workers, 200 of the supervisor, 200 of all.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker.h"
#include "crowd.h"
#include "ledger.h"
#include "procs.h"
#include "wire.h"

enum {
	WORKERS = 3,
	PARTITIONS = 12,
	QUIET = 3,
	LOOK_BACK = 500,		/* offsets that were checked before and are read again each time */
	SLOW_RECORDS = 80,		/* with the ones below, more than sockets take in */
	SLOW_RECORD_BYTES = 99000,
};

static struct broker broker;
static struct ledger *ledger;
static struct crowd *crowd;
static uint64_t seed;
static int32_t group_of[PARTITIONS];
static int64_t verified[PARTITIONS];		/* everything below was read and found good */
static struct wire_bytes slow[WORKERS];
static int descriptors;				/* of the supervisor, without clients */

static int32_t
partition_in(int32_t group)
{
	for (int32_t partition = 0; partition < PARTITIONS; partition++)
		if (group_of[partition] == group)
			return partition;
	ck_abort_msg("no partition in group %d", (int)group);
	return -1;
}

/* ---- what stands in the log ------------------------------------------------------------------------------------- */

static void
check_nothing_wrong(const char *when)
{
	const char *wrong = crowd != NULL ? crowd_wrong(crowd) : ledger_wrong(ledger);

	ck_assert_msg(wrong == NULL, "%s: %s", when, wrong);
}

/* Reads [from, end) and has the ledger judge it. */
static void
read_partition(int fd, int32_t partition, int64_t from, int64_t end, const char *when)
{
	while (from < end) {
		struct wire_fetched fetched;
		struct wire_record record;
		size_t position = 0;
		bool good = true;
		int code = wire_fetch(fd, "c", partition, from, 4000000, 0, 0, &fetched);

		ck_assert_msg(code == 0, "%s: partition %d offset %lld: FETCH is answered with %d", when, (int)partition,
		    (long long)from, code);
		while (wire_next_record(fetched.payload, fetched.length, &position, true, &record, &good))
			ledger_read(ledger, partition, from++, &record);
		ck_assert_msg(good && position > 0, "%s: partition %d: no good record at %lld, watermark %lld", when,
		    (int)partition, (long long)from, (long long)end);
		wire_fetched_free(&fetched);
	}
}

/* Whatever was acknowledged or read by now is there, where it was. */
static void
check_log(bool all, const char *when)
{
	int64_t known[PARTITIONS];
	int fd;

	for (int32_t partition = 0; partition < PARTITIONS; partition++)
		known[partition] = ledger_end(ledger, partition);
	fd = wire_connect_tcp(broker.port);
	ck_assert_int_ge(fd, 0);
	for (int32_t partition = 0; partition < PARTITIONS; partition++) {
		int64_t end = wire_high_watermark(fd, "c", partition);
		int64_t from = all || verified[partition] < LOOK_BACK ? 0 : verified[partition] - LOOK_BACK;

		ck_assert_msg(end >= known[partition], "%s: partition %d ends at %lld, but a record stood at %lld", when,
		    (int)partition, (long long)end, (long long)known[partition] - 1);
		read_partition(fd, partition, from, end, when);
		verified[partition] = end;
	}
	close(fd);
	check_nothing_wrong(when);
}

/* ---- beginning and end of a campaign ----------------------------------------------------------------------------- */

static void
learn_groups(void)
{
	int fd = wire_connect_tcp(broker.port);

	for (int32_t partition = 0; partition < PARTITIONS; partition++) {
		group_of[partition] = wire_group(fd, "c", partition);
		ck_assert_int_ge(group_of[partition], 0);
		ck_assert_int_lt(group_of[partition], WORKERS);
	}
	close(fd);
}

/* What slow readers ask for, and a copy of it. */
static void
fill_slow(int32_t group)
{
	int32_t partition = partition_in(group);
	uint8_t payload[SLOW_RECORD_BYTES];
	int fd = wire_connect_tcp(broker.port);

	for (int i = 0; i < SLOW_RECORDS; i++) {
		int64_t base, number = ledger_add(ledger, partition);

		ledger_fill(payload, number, partition, sizeof payload);
		ck_assert_int_eq(wire_produce_one(fd, "c", partition, WIRE_WRITTEN, payload, sizeof payload, &base), 0);
		ledger_acknowledge(ledger, number, partition, base);
	}
	slow[group].length = 0;
	ck_assert_int_eq(wire_read_log(fd, "c", partition, 0, SLOW_RECORDS, 4000000, true, &slow[group]), SLOW_RECORDS);
	close(fd);
}

static void
take_descriptors(void)
{
	int fd = wire_connect_tcp(broker.port);

	ck_assert_int_ge(wire_high_watermark(fd, "c", 0), 0);
	ck_assert_int_gt(procs_owner_of(&broker, fd, 10000), 0);
	descriptors = broker_fd_count(broker.pid);
	close(fd);
}

/* Of ten clients, so many are of each kind. */
static void
choose_counts(int *counts, int clients, bool slow_ones)
{
	static const int shares[CROWD_KINDS] = { 30, 15, 25, 2, 14, 10, 4 };

	for (int kind = 0; kind < CROWD_KINDS; kind++)
		counts[kind] = (clients * shares[kind] + 99) / 100;
	if (!slow_ones)
		counts[CROWD_SLOW] = 0;
}

static void
begin(const char *test, const char *log, int clients, bool slow_ones, bool may_end_holds)
{
	struct crowd_config config = { .topic = "c", .partitions = PARTITIONS, .group_of = group_of, .groups = WORKERS,
		.quiet = QUIET, .may_end_holds = may_end_holds, .slow = slow };

	seed = broker_seed(test);
	broker_start(&broker, &(struct broker_config){ .workers = WORKERS, .topics = "c = 12\n", .log = log,
	    .broker = "drain_timeout = 30s\n" });
	broker.workers_may_die = true;
	take_descriptors();
	learn_groups();
	ledger = ledger_new();
	for (int32_t group = 0; group < WORKERS && slow_ones; group++)
		fill_slow(group);
	config.seed = seed;
	config.port = broker.port;
	config.unix_path = broker.unix_path;
	choose_counts(config.counts, clients, slow_ones);
	crowd = crowd_start(&config, ledger);
}

static void
print_figures(const char *test, const char *when, const struct crowd_figures *figures)
{
	printf("%s: %s: longest wait in ms:", test, when);
	for (int kind = 0; kind < CROWD_KINDS; kind++) {
		static const char *const names[CROWD_KINDS] = { "sync", "pipeline", "held too long", "slow", "idle", "dribbler",
			"metadata" };

		if (kind != CROWD_IDLE)
			printf(" %s %.1f (%ld answers, %ld cuts);", names[kind], (double)figures->longest_us[kind] / 1000,
			    figures->answers[kind], figures->cuts[kind]);
	}
	printf(" sync by barrier %.1f; record to follower %.1f; own turn %.1f\n", (double)figures->forced_us / 1000,
	    (double)figures->delay_us / 1000, (double)figures->turn_us / 1000);
	fflush(stdout);
}

/* `all`: whatever was sent must stand in the log, acknowledged or not. */
static void
end(const char *test, bool all)
{
	int64_t unknown, count;
	pid_t pids[BROKER_WORKERS_MAX];

	crowd_finish(crowd);
	check_nothing_wrong("at the end");
	crowd_free(crowd);
	crowd = NULL;
	check_log(true, "at the end");
	count = ledger_count(ledger, &unknown);
	printf("%s: %lld records, %lld of which nobody was told\n", test, (long long)count, (long long)unknown);
	ck_assert_msg(!all || unknown == 0, "%lld records of %lld are gone", (long long)unknown, (long long)count);
	close(wire_connect_tcp(broker.port));
	ck_assert_msg(procs_wait_fd_count(broker.pid, descriptors, 2 * WIRE_DEADLINE_MS), "the supervisor has %d descriptors, it had "
	    "%d", broker_fd_count(broker.pid), descriptors);
	ck_assert_int_eq(broker_workers(&broker, pids, BROKER_WORKERS_MAX), WORKERS);
	ck_assert_int_eq(procs_zombies(broker.pid), 0);
	broker_stop(&broker);
	broker_end(&broker);
	ledger_free(ledger);
	for (int32_t group = 0; group < WORKERS; group++)
		wire_bytes_free(&slow[group]);
}

/* Until the crowd has had so many more answers. */
static void
let_work(long answers)
{
	int64_t until_ms = wire_now_ms() + WIRE_DEADLINE_MS;
	long before = crowd_answers(crowd);

	while (crowd_answers(crowd) < before + answers) {
		check_nothing_wrong("between");
		ck_assert_msg(wire_now_ms() < until_ms, "the crowd stands still");
		usleep(1000);
	}
}

/* Any moment is as good as another. */
static void
any_moment(void)
{
	usleep((useconds_t)(wire_random(&seed) % 20000));
}

/* `large` at LOGBROKER_TEST_SCALE=100. */
static int
sized(int small, int large)
{
	return small + (large - small) * (broker_scale() - 1) / 99;
}

/* ---- workers replaced ---------------------------------------------------------------------------------------------- */

/* POST on the control socket; the whole answer (malloc, terminated). */
static char *
post(const char *path)
{
	struct wire_bytes answer = { 0 };
	char request[256], piece[4096];
	long got;
	int fd = wire_connect_unix(broker.control_path);

	ck_assert_int_ge(fd, 0);
	snprintf(request, sizeof request, "POST %s HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", path);
	ck_assert_int_eq(wire_send(fd, request, strlen(request)), 0);
	while ((got = wire_receive(fd, piece, sizeof piece, WIRE_DEADLINE_MS)) > 0)
		wire_put(&answer, piece, (size_t)got);
	wire_put_i8(&answer, 0);
	close(fd);
	ck_assert_msg(got != WIRE_LATE, "POST %s: no answer", path);
	return (char *)answer.data;
}

/* By order of its operator. Returns how long its clients waited, in ms, as the supervisor says. */
static double
restart_by_order(int32_t group)
{
	char path[64], *answer, *waited;
	double ms;

	snprintf(path, sizeof path, "/workers/%d/restart", (int)group);
	answer = post(path);
	waited = strstr(answer, "waited ");
	ck_assert_msg(strstr(answer, " 200 ") != NULL && waited != NULL, "POST %s: %s", path, answer);
	ms = strtod(waited + strlen("waited "), NULL);
	free(answer);
	return ms;
}

/* It asks for it itself. */
static void
restart_by_signal(int32_t group)
{
	pid_t old = broker_wait_worker_of(&broker, "c", partition_in(group), 0, WIRE_DEADLINE_MS);

	ck_assert_int_gt(old, 0);
	kill(old, SIGTERM);
	/* Looking into a thousand descriptors again and again would disturb what is measured. */
	ck_assert(broker_wait_gone(old, 2 * WIRE_DEADLINE_MS));
	ck_assert_msg(broker_wait_worker_of(&broker, "c", partition_in(group), old, 2 * WIRE_DEADLINE_MS) > 0,
	    "worker %d is not replaced", (int)group);
}

static int
compare_doubles(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : *(const double *)a > *(const double *)b;
}

/* Measured is what clients see while one is replaced, not while the test reads the logs. */
static void
restart_worker(int round, double *pauses, int *count, struct crowd_figures *sum)
{
	int32_t group = (int32_t)(wire_random(&seed) % WORKERS);
	struct crowd_figures figures;

	any_moment();
	crowd_take_figures(crowd, &figures);
	if (round % 4 == 3)
		restart_by_signal(group);
	else
		pauses[(*count)++] = restart_by_order(group);
	let_work(200);
	crowd_take_figures(crowd, &figures);
	crowd_add_figures(sum, &figures);
	check_log(false, "behind a restart");
}

static void
restart_workers(const char *test, const char *log, int clients, int restarts)
{
	struct crowd_figures figures, sum = { 0 };
	double *pauses = calloc((size_t)restarts, sizeof *pauses);
	int count = 0;

	begin(test, log, clients, true, false);
	let_work(500);
	check_log(false, "before restarts");
	crowd_take_figures(crowd, &figures);
	let_work(10L * clients);
	crowd_take_figures(crowd, &figures);
	print_figures(test, "without restarts", &figures);
	for (int i = 0; i < restarts; i++)
		restart_worker(i, pauses, &count, &sum);
	print_figures(test, "with restarts", &sum);
	qsort(pauses, (size_t)count, sizeof *pauses, compare_doubles);
	printf("%s: %d clients, %d restarts; without an owner: %.1f ms (median), %.1f ms (worst)\n", test, clients, restarts,
	    pauses[count / 2], pauses[count - 1]);
	free(pauses);
	end(test, true);
}

START_TEST(D03_workers_replaced_under_a_crowd)
{
	restart_workers("D03_workers_replaced_under_a_crowd", "segment_bytes = 4MiB\n", sized(50, 1000), sized(4, 200));
}
END_TEST

START_TEST(D03_workers_replaced_under_a_crowd_mapped)
{
	restart_workers("D03_workers_replaced_under_a_crowd_mapped", "segment_bytes = 4MiB\nwrite_mode = mapped\n",
	    sized(50, 1000), sized(3, 50));
}
END_TEST

START_TEST(D03_workers_replaced_under_a_crowd_durable)
{
	restart_workers("D03_workers_replaced_under_a_crowd_durable", "segment_bytes = 4MiB\nvisibility = durable\n",
	    sized(50, 1000), sized(3, 50));
}
END_TEST

/* All in turn: what an operator does for a new version, with everybody's clients connected. */
START_TEST(bug_H13_maintenance_without_losing_a_client)
{
	int rounds = sized(2, 60);
	struct crowd_figures figures;
	pid_t before[BROKER_WORKERS_MAX], after[BROKER_WORKERS_MAX];

	begin("bug_H13_maintenance_without_losing_a_client", NULL, sized(50, 300), true, false);
	for (int i = 0; i < rounds; i++) {
		char *answer;

		let_work(200);
		ck_assert_int_eq(broker_workers(&broker, before, BROKER_WORKERS_MAX), WORKERS);
		answer = post("/workers/restart");
		ck_assert_msg(strstr(answer, " 200 ") != NULL && strstr(answer, "not replaced") == NULL, "%s", answer);
		free(answer);
		for (int w = 0; w < WORKERS; w++)
			ck_assert(broker_wait_gone(before[w], 2 * WIRE_DEADLINE_MS));
		ck_assert_int_eq(broker_workers(&broker, after, BROKER_WORKERS_MAX), WORKERS);
		check_log(false, "behind the restart of all");
	}
	crowd_take_figures(crowd, &figures);
	ck_assert_int_gt(figures.answers[CROWD_ASKER], 0);
	print_figures("bug_H13_maintenance_without_losing_a_client", "with restarts", &figures);
	end("bug_H13_maintenance_without_losing_a_client", true);
}
END_TEST

/* ---- workers killed ---------------------------------------------------------------------------------------------- */

static int64_t
kill_worker(int32_t group)
{
	pid_t victim = broker_wait_worker_of(&broker, "c", partition_in(group), 0, 2 * WIRE_DEADLINE_MS);
	int64_t began_ms = wire_now_ms();

	ck_assert_int_gt(victim, 0);
	crowd_hold(crowd);
	crowd_may_cut(crowd, group);
	kill(victim, SIGKILL);
	crowd_release(crowd);
	ck_assert(broker_wait_gone(victim, 2 * WIRE_DEADLINE_MS));
	check_log(false, "behind a kill");
	crowd_calm(crowd);
	return wire_now_ms() - began_ms;
}

static void
kill_workers(const char *test, const char *log, int kills)
{
	struct crowd_figures figures;
	int64_t longest_ms = 0;

	begin(test, log, sized(50, 200), true, false);
	let_work(500);
	for (int i = 0; i < kills; i++) {
		int64_t ms;

		any_moment();
		ms = kill_worker((int32_t)(wire_random(&seed) % WORKERS));
		longest_ms = ms > longest_ms ? ms : longest_ms;
		let_work(50);
	}
	crowd_take_figures(crowd, &figures);
	print_figures(test, "with kills", &figures);
	printf("%s: %d kills; longest until all was there again: %lld ms\n", test, kills, (long long)longest_ms);
	end(test, false);
}

START_TEST(D04_workers_killed_under_a_crowd)
{
	kill_workers("D04_workers_killed_under_a_crowd", "segment_bytes = 4MiB\n", sized(4, 1000));
}
END_TEST

START_TEST(D04_workers_killed_under_a_crowd_mapped)
{
	kill_workers("D04_workers_killed_under_a_crowd_mapped", "segment_bytes = 4MiB\nwrite_mode = mapped\n", sized(2, 200));
}
END_TEST

START_TEST(D04_workers_killed_under_a_crowd_durable)
{
	kill_workers("D04_workers_killed_under_a_crowd_durable", "segment_bytes = 4MiB\nvisibility = durable\n",
	    sized(2, 200));
}
END_TEST

/* ---- the supervisor killed, everything killed --------------------------------------------------------------------- */

static void
nobody_listens(void)
{
	crowd_hold(crowd);
	crowd_down(crowd);
	crowd_release(crowd);
}

static void
start_again(const char *when)
{
	broker_restart(&broker, NULL);
	broker.workers_may_die = true;
	crowd_up(crowd, broker.port);
	check_log(false, when);
	crowd_calm(crowd);
}

/* A start on this data directory is refused with the pid that still runs. */
static void
check_refused(pid_t pid)
{
	char program[BROKER_PATH_BYTES], ini[BROKER_PATH_BYTES + 16], number[32];
	const char *const argv[] = { program, "-f", ini, NULL };
	char *text;
	int code;

	broker_build_path("logsupervisor", program, sizeof program);
	snprintf(ini, sizeof ini, "%s/broker.ini", broker.directory);
	snprintf(number, sizeof number, "%d", (int)pid);
	code = procs_run(argv, &text, 30000);
	ck_assert_msg(code == 75 && strstr(text, number) != NULL, "a second start beside %s: %d, %s", number, code, text);
	free(text);
}

/* In every second round one of its workers stands still, so that a start comes too early for certain. */
static void
kill_supervisor(int round)
{
	pid_t straggler = 0, pid = broker.pid;

	if (round % 2 == 0) {
		straggler = broker_worker_of(&broker, "c", partition_in((int32_t)(wire_random(&seed) % WORKERS)));
		ck_assert_int_gt(straggler, 0);
	}
	nobody_listens();
	/* It does nothing more of its own; what it waits for in the kernel may take a busy disk its time. */
	if (straggler > 0)
		kill(straggler, SIGSTOP);
	kill(pid, SIGKILL);
	if (straggler > 0) {
		ck_assert(broker_wait_gone(pid, 2 * WIRE_DEADLINE_MS));
		check_refused(straggler);
		kill(straggler, SIGCONT);
	}
	ck_assert_int_eq(broker_wait_exit(&broker, 30000), 128 + SIGKILL);
}

START_TEST(D06_supervisor_killed_under_a_crowd)
{
	int kills = sized(2, 200);
	struct crowd_figures figures;

	begin("D06_supervisor_killed_under_a_crowd", "segment_bytes = 4MiB\n", sized(50, 200), false, true);
	for (int i = 0; i < kills; i++) {
		let_work(300);
		any_moment();
		kill_supervisor(i);
		start_again("behind a kill of the supervisor");
	}
	let_work(100);
	crowd_take_figures(crowd, &figures);
	print_figures("D06_supervisor_killed_under_a_crowd", "with kills", &figures);
	end("D06_supervisor_killed_under_a_crowd", false);
}
END_TEST

static void
kill_all(const char *test, const char *log, int kills)
{
	struct crowd_figures figures;

	begin(test, log, sized(50, 200), false, true);
	for (int i = 0; i < kills; i++) {
		let_work(300);
		any_moment();
		nobody_listens();
		broker_kill(&broker);
		start_again("behind a kill of everything");
	}
	let_work(100);
	crowd_take_figures(crowd, &figures);
	print_figures(test, "with kills", &figures);
	end(test, false);
}

START_TEST(D06_all_killed_under_a_crowd)
{
	kill_all("D06_all_killed_under_a_crowd", "segment_bytes = 4MiB\n", sized(2, 200));
}
END_TEST

START_TEST(D06_all_killed_under_a_crowd_mapped)
{
	kill_all("D06_all_killed_under_a_crowd_mapped", "segment_bytes = 4MiB\nwrite_mode = mapped\n", sized(2, 100));
}
END_TEST

START_TEST(D06_all_killed_under_a_crowd_durable)
{
	kill_all("D06_all_killed_under_a_crowd_durable", "segment_bytes = 4MiB\nvisibility = durable\n", sized(2, 100));
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("campaigns");
	TCase *restarts = tcase_create("restarts");
	TCase *kills = tcase_create("kills"), *supervisor = tcase_create("supervisor"), *all = tcase_create("all");

	tcase_set_timeout(restarts, 120 + 60 * broker_scale());
	tcase_add_test(restarts, D03_workers_replaced_under_a_crowd);
	tcase_add_test(restarts, D03_workers_replaced_under_a_crowd_mapped);
	tcase_add_test(restarts, D03_workers_replaced_under_a_crowd_durable);
	tcase_add_test(restarts, bug_H13_maintenance_without_losing_a_client);
	suite_add_tcase(s, restarts);
	tcase_set_timeout(kills, 120 + 60 * broker_scale());
	tcase_add_test(kills, D04_workers_killed_under_a_crowd);
	tcase_add_test(kills, D04_workers_killed_under_a_crowd_mapped);
	tcase_add_test(kills, D04_workers_killed_under_a_crowd_durable);
	suite_add_tcase(s, kills);
	tcase_set_timeout(supervisor, 120 + 60 * broker_scale());
	tcase_add_test(supervisor, D06_supervisor_killed_under_a_crowd);
	suite_add_tcase(s, supervisor);
	tcase_set_timeout(all, 120 + 60 * broker_scale());
	tcase_add_test(all, D06_all_killed_under_a_crowd);
	tcase_add_test(all, D06_all_killed_under_a_crowd_mapped);
	tcase_add_test(all, D06_all_killed_under_a_crowd_durable);
	suite_add_tcase(s, all);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
