/*
 * A broker in whose processes something goes wrong (faults.h): a worker is killed at the n-th of its storage's calls, such a
 * call fails in one partition, an allocation fails in a worker or in the supervisor. From the start to the stop, n = 1, 2, 3...
 * until everything passes untouched, or of them every so many-th: LOGBROKER_TEST_SAMPLE makes them fewer,
 * LOGBROKER_TEST_SCALE more (8: all). Whatever happens: nothing that was acknowledged is missing, other partitions do not
 * notice a disk that fails, and with the fault gone everything works again, or after a restart where the log asks for one.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker.h"
#include "faults.h"
#include "ledger.h"
#include "unit.h"
#include "wire.h"

enum { PARTITIONS = 2, ROUNDS = 4, RECORD_BYTES = 600, BATCH_MAX = 12, FETCH_BYTES = 1 << 20, WAITERS = 12, HELD_MS = 50,
	TIMEOUT_S = 600 };

static struct broker broker;
static struct faults *faults;
static struct ledger *ledger;
static int fd = -1;

/* ---- the broker ---- */

/* How many of the n are tried: one of so many. */
static int
stride(int coarse)
{
	int all = coarse * unit_sample() / broker_scale();

	return all > 0 ? all : 1;
}

static void
share_faults(const char *path)
{
	int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

	ck_assert_int_ne(file, -1);
	ck_assert_int_eq(ftruncate(file, sizeof(*faults)), 0);
	faults = mmap(NULL, sizeof(*faults), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	ck_assert_ptr_ne(faults, MAP_FAILED);
	close(file);
}

static void
prepare(void)
{
	static char preload[BROKER_PATH_BYTES + 16] = "LD_PRELOAD=", file[BROKER_PATH_BYTES * 2] = "FAULTS_FILE=";
	static const char *const environment[] = { preload, file, NULL };

	broker_build_path("tests/faults.so", preload + strlen(preload), sizeof(preload) - strlen(preload));
	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 2\n", .workers = 1, .environment = environment,
	    .log = "segment_bytes = 4KiB\nretention_bytes = 12KiB\nretention_check_interval = 20ms\n" });
	broker.workers_may_die = true;
	snprintf(file + strlen(file), sizeof(file) - strlen(file), "%.400s/faults", broker.directory);
	share_faults(file + strlen("FAULTS_FILE="));
	ledger = ledger_new();
}

static void
finish(void)
{
	ledger_free(ledger);
	broker_end(&broker);
}

static void
arm(struct faults wanted)
{
	atomic_store(&faults->kind, FAULTS_NONE);
	faults->at = wanted.at;
	faults->sticky = wanted.sticky;
	faults->error = wanted.error;
	memcpy(faults->program, wanted.program, sizeof(faults->program));
	memcpy(faults->path, wanted.path, sizeof(faults->path));
	atomic_store(&faults->seen, 0);
	atomic_store(&faults->kind, wanted.kind);
}

static bool
was_hit(void)
{
	return atomic_load(&faults->seen) >= faults->at;
}

static void
disarm(void)
{
	atomic_store(&faults->kind, FAULTS_NONE);
}

static void
start(void)
{
	broker_launch(&broker);
	broker_wait_ready(&broker);
}

static void
hang_up(void)
{
	if (fd != -1)
		close(fd);
	fd = -1;
}

/* With a fault that may still come. */
static void
stop(void)
{
	int code;

	hang_up();
	kill(broker.pid, SIGTERM);
	code = broker_wait_exit(&broker, BROKER_STOP_MS);
	ck_assert_msg(code == 0 || code == 1, "exit code %d", code);
}

/* ---- clients ---- */

static int
produce(int32_t partition, int ack, int count)
{
	static uint8_t payloads[BATCH_MAX][RECORD_BYTES];
	struct wire_record records[BATCH_MAX];
	int64_t numbers[BATCH_MAX], base = -1;
	int code;

	if (fd == -1)
		fd = wire_connect_tcp(broker.port);
	if (fd == -1)
		return WIRE_LOST;
	for (int i = 0; i < count; i++) {
		numbers[i] = ledger_add(ledger, partition);
		ledger_fill(payloads[i], numbers[i], partition, RECORD_BYTES);
		records[i] = (struct wire_record){ payloads[i], RECORD_BYTES };
	}
	code = wire_produce(fd, "t", partition, ack, records, (size_t)count, &base, NULL);
	for (int i = 0; code == WIRE_OK && i < count; i++)
		ledger_acknowledge(ledger, numbers[i], partition, base + i);
	if (code < 0)
		hang_up();
	return code;
}

/* Many who wait for news, each with a timer of its own: all are answered, or told that it is over. */
static void
wait_for_news(void)
{
	struct wire_answer answer;
	int fds[WAITERS];

	for (int i = 0; i < WAITERS; i++) {
		struct wire_bytes request = { 0 };
		int64_t end;

		fds[i] = wire_connect_tcp(broker.port);
		ck_assert_msg(fds[i] != -1, "fault %d: nobody listens", faults->at);
		end = wire_high_watermark(fds[i], "t", i % PARTITIONS);
		wire_put_fetch(&request, i, "t", i % PARTITIONS, end < 0 ? 0 : end, FETCH_BYTES, HELD_MS, 1);
		wire_send(fds[i], request.data, request.length);
		wire_bytes_free(&request);
	}
	for (int i = 0; i < WAITERS; i++) {
		int code = wire_read_answer(fds[i], &answer, WIRE_DEADLINE_MS);

		ck_assert_msg(code == 0 || code == WIRE_LOST, "fault %d: a FETCH is answered %d", faults->at, code);
		if (code == 0)
			wire_answer_free(&answer);
		close(fds[i]);
	}
}

/* What may come of it besides success; nobody waits in vain. */
static void
talk(bool may_be_lost, int32_t may_refuse)
{
	for (int i = 0; i < ROUNDS * PARTITIONS; i++) {
		int32_t partition = i % PARTITIONS;
		int code = produce(partition, i % 4 < 2 ? WIRE_FORCED : WIRE_WRITTEN, i < PARTITIONS ? BATCH_MAX : 2);

		ck_assert_msg(code == WIRE_OK || (code == WIRE_LOST && may_be_lost)
		    || (code == WIRE_STORAGE_FAILURE && (partition == may_refuse || may_refuse == PARTITIONS)),
		    "fault %d: partition %d is answered %d", faults->at, (int)partition, code);
	}
	if (atomic_load(&faults->kind) == FAULTS_MEMORY)
		wait_for_news();
}

static bool
all_take(void *unused)
{
	(void)unused;
	for (int32_t i = 0; i < PARTITIONS; i++)
		if (produce(i, WIRE_FORCED, 1) != WIRE_OK)
			return false;
	return true;
}

static void
check_partition(int32_t partition)
{
	struct wire_bytes log = { 0 };
	struct wire_record record;
	int64_t start, end = wire_high_watermark(fd, "t", partition), offset, read;
	size_t position = 0;
	bool good;

	ck_assert_int_ge(end, ledger_end(ledger, partition));
	/* Retention may go on between the two. */
	do {
		wire_bytes_free(&log);
		start = wire_log_start(fd, "t", partition);
		read = wire_read_log(fd, "t", partition, start, end, FETCH_BYTES, true, &log);
	} while (read == -(100 + WIRE_OFFSET_OUT_OF_RANGE) && wire_log_start(fd, "t", partition) > start);
	ck_assert_int_eq(read, end - start);
	for (offset = start; wire_next_record(log.data, log.length, &position, true, &record, &good); offset++)
		ck_assert_int_ne(ledger_read(ledger, partition, offset, &record), 0);
	ck_assert_int_eq(offset, end);
	wire_bytes_free(&log);
}

/* The fault is over: both take records again, in time; after a restart where the log has said that nothing less helps. */
static void
expect_well(void)
{
	disarm();
	if (broker_count_log(&broker, "stays closed") > 0) {
		stop();
		start();
	}
	ck_assert_msg(broker_wait(all_take, NULL, BROKER_START_MS), "fault %d: it does not heal", faults->at);
	for (int32_t i = 0; i < PARTITIONS; i++)
		check_partition(i);
	ck_assert_msg(ledger_wrong(ledger) == NULL, "fault %d: %s", faults->at, ledger_wrong(ledger));
	ck_assert_double_eq(broker_metric(&broker, "logbroker_worker_restarts_total", "reason=\"crashed\""), 0);
	hang_up();
}

/* ---- lives ---- */

/* From a start to a stop, with the fault; returns whether it has come. Then all is well. */
static bool
live(struct faults fault, bool may_be_lost, int32_t may_refuse)
{
	bool hit;

	arm(fault);
	start();
	talk(may_be_lost, may_refuse);
	hit = was_hit();
	if (!hit) {
		stop();
		hit = was_hit();
		disarm();
		start();
	}
	expect_well();
	stop();
	return hit;
}

START_TEST(K_a_worker_killed_at_any_call)
{
	int n = 1;

	prepare();
	while (live((struct faults){ .kind = FAULTS_KILL, .at = n, .program = "logworker", .path = "/data" }, true, -1))
		n += stride(2);
	ck_assert_int_gt(n, 50);
	finish();
}
END_TEST

/* Each n with another error, or with half of a read or write. */
START_TEST(K_any_call_of_one_partition_fails)
{
	static const struct { int error, sticky; } what[] = { { EIO, 0 }, { ENOSPC, 1 }, { FAULTS_SHORT, 0 }, { EIO, 1 },
		{ EINTR, 0 }, { ENOSPC, 0 }, { FAULTS_SHORT, 1 } };
	struct faults fault = { .kind = FAULTS_CALL, .program = "logworker", .path = "/t-0" };

	prepare();
	fault.at = 1;
	for (size_t i = 0;; i++, fault.at += stride(4)) {
		fault.error = what[i % (sizeof(what) / sizeof(what[0]))].error;
		fault.sticky = what[i % (sizeof(what) / sizeof(what[0]))].sticky;
		if (!live(fault, false, 0))
			break;
	}
	ck_assert_int_gt(fault.at, 30);
	finish();
}
END_TEST

/* ---- allocations ---- */

static bool
is_skipped(const char *test)
{
	if (broker_is_asan())
		printf("%s: skipped, a sanitizer allocates here\n", test);
	return broker_is_asan();
}

START_TEST(K_any_allocation_of_a_worker_fails)
{
	int n = 1;

	if (is_skipped("any_allocation_of_a_worker_fails"))
		return;
	prepare();
	while (live((struct faults){ .kind = FAULTS_MEMORY, .at = n, .program = "logworker" }, true, PARTITIONS))
		n += stride(4);
	ck_assert_int_gt(n, 50);
	finish();
}
END_TEST

/* Either it does not start, and says so; or it goes on. */
static bool
starts(void)
{
	int code;

	broker_launch(&broker);
	if (broker_wait_log(&broker, "ready: listen=", BROKER_START_MS)) {
		broker_wait_ready(&broker);
		return true;
	}
	code = broker_wait_exit(&broker, BROKER_STOP_MS);
	ck_assert_msg(code > 0 && code < 128, "allocation %d: exit code %d", faults->at, code);
	ck_assert_msg(broker_count_log(&broker, "memory") + broker_count_log(&broker, "cannot") > 0,
	    "allocation %d: nothing is said", faults->at);
	return false;
}

/* Pages, a reload, a worker that is replaced: what the supervisor does itself. */
static void
ask_supervisor(void)
{
	static const char *const pages[] = { "/", "/metrics", "/health", "/status" };
	pid_t worker = broker_worker_of(&broker, "t", 0);
	int status;

	for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++)
		free(broker_http_get(&broker, pages[i], &status));
	kill(broker.pid, SIGHUP);
	if (worker > 0)
		kill(worker, SIGTERM);
}

/* From a start to a stop, or to a start that fails; returns whether that allocation has come. */
static bool
live_without(int allocation)
{
	bool hit;

	arm((struct faults){ .kind = FAULTS_MEMORY, .at = allocation, .program = "logsupervisor" });
	if (!starts())
		return true;
	talk(true, PARTITIONS);
	ask_supervisor();
	talk(true, PARTITIONS);
	hit = was_hit();
	expect_well();
	stop();
	return hit;
}

START_TEST(K_any_allocation_of_the_supervisor_fails)
{
	int n = 1;

	if (is_skipped("any_allocation_of_the_supervisor_fails"))
		return;
	prepare();
	while (live_without(n))
		n += stride(8);
	ck_assert_int_gt(n, 50);
	finish();
}
END_TEST

static TCase *
add_case(Suite *suite, const char *name, bool mapped)
{
	TCase *tests = tcase_create(name);

	tcase_set_timeout(tests, TIMEOUT_S);
	if (mapped)
		tcase_add_checked_fixture(tests, broker_use_mapped, NULL);
	suite_add_tcase(suite, tests);
	return tests;
}

static Suite *
faults_suite(void)
{
	Suite *suite = suite_create("faults");

	tcase_add_test(add_case(suite, "kills", false), K_a_worker_killed_at_any_call);
	tcase_add_test(add_case(suite, "kills, mapped", true), K_a_worker_killed_at_any_call);
	tcase_add_test(add_case(suite, "calls", false), K_any_call_of_one_partition_fails);
	tcase_add_test(add_case(suite, "calls, mapped", true), K_any_call_of_one_partition_fails);
	tcase_add_test(add_case(suite, "worker's memory", false), K_any_allocation_of_a_worker_fails);
	tcase_add_test(add_case(suite, "supervisor's memory", false), K_any_allocation_of_the_supervisor_fails);
	return suite;
}

int
main(void)
{
	/* Nothing here needs a disk. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	return broker_main(faults_suite());
}
