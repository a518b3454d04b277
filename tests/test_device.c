/*
 * A disk that really loses what the kernel had accepted (device.h): a barrier fails on it, the page cache goes on showing
 * the records, and the next force would succeed. The partition is red and can be read as far as it is durable, until there
 * is room; then it comes back by itself with everything that was acknowledged as FORCED, and says what is lost.
 */
#include <check.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker.h"
#include "device.h"
#include "procs.h"
#include "wire.h"

enum { SIZE = DEVICE_BLOCK_BYTES - 8, RECORDS_MAX = 1000, SOON_MS = 20000, BACK_MS = 90000, MIB = 1024 * 1024 };

static struct broker broker;
static struct device device;
static int64_t seeds[RECORDS_MAX];	/* by offset: what was acknowledged there, last; -1 = nothing, or it may be lost */
static int64_t next_seed;
static int64_t forced_end;		/* all below it is acknowledged as FORCED, or was before such a record */

/* ---- records -------------------------------------------------------------------------------------------------- */

static void
fill(uint8_t *payload, int64_t seed)
{
	uint64_t state = (uint64_t)seed;

	for (size_t i = 0; i < SIZE; i++)
		payload[i] = (uint8_t)wire_random(&state);
}

static int
produce(int fd, int ack)
{
	uint8_t payload[SIZE];
	int64_t base;
	int error;

	fill(payload, next_seed);
	error = wire_produce_one(fd, "t", 0, ack, payload, SIZE, &base);
	ck_assert(error == 0 || error == WIRE_STORAGE_FAILURE);
	if (error == 0) {
		ck_assert_int_lt(base, RECORDS_MAX);
		seeds[base] = next_seed;
		if (ack == WIRE_FORCED)
			forced_end = base + 1;
	}
	next_seed++;
	return error;
}

/* All that was acknowledged as FORCED is there. */
static void
expect_forced(int fd)
{
	struct wire_bytes log = { 0 };
	struct wire_record record;
	uint8_t payload[SIZE];
	size_t position = 0;
	bool good;

	ck_assert_int_eq(wire_read_log(fd, "t", 0, 0, forced_end, MIB, true, &log), forced_end);
	for (int64_t i = 0; i < forced_end; i++) {
		ck_assert(wire_next_record(log.data, log.length, &position, true, &record, &good) && good);
		ck_assert_uint_eq(record.length, SIZE);
		if (seeds[i] == -1)
			continue;
		fill(payload, seeds[i]);
		ck_assert_msg(memcmp(record.payload, payload, SIZE) == 0, "record %" PRId64, i);
	}
	wire_bytes_free(&log);
}

static int
connect_broker(void)
{
	int fd = wire_connect_tcp(broker.port);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* ---- what the broker says ------------------------------------------------------------------------------------- */

static bool
is_red(void *unused)
{
	int status;
	char *page = broker_http_get(&broker, "/healthz", &status);
	bool red = page != NULL && status == 503 && strstr(page, "partition t-0: failed") != NULL;

	(void)unused;
	free(page);
	return red;
}

/* Nobody knows up to where a log may be read when its first opening since the start has failed. */
static bool
is_readable(void *fd)
{
	struct wire_fetched fetched;
	int error = wire_fetch(*(int *)fd, "t", 0, 0, 1, 0, 0, &fetched);

	if (error == 0)
		wire_fetched_free(&fetched);
	return error == 0;
}

static bool
is_green(void *unused)
{
	int status = 0;
	char *page = broker_http_get(&broker, "/healthz", &status);

	(void)unused;
	free(page);
	return status == 200;
}

/* What has been said of the last loss: where the log ends and how many records that are. False: nothing. */
static bool
told_loss(int64_t *end, int64_t *lost)
{
	static const char words[] = "is open again with less";
	const char *last = NULL;
	char *text = broker_copy_log(&broker);

	for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words))
		last = at;
	if (last != NULL)
		ck_assert_int_eq(sscanf(strstr(last, "ends at offset"), "ends at offset %" SCNd64 ". Lost: %" SCNd64, end, lost), 2);
	free(text);
	return last != NULL;
}

/* ---- steps ------------------------------------------------------------------------------------------------------ */

static bool
begin(const char *log, int records)
{
	const char *why;
	int fd;

	procs_prepare_with_badsync(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = log });
	broker.workers_may_die = true;
	ck_assert_int_eq(mkdir(broker.data_dir, 0750), 0);
	if (!device_begin(&device, broker.directory, broker.data_dir, &why)) {
		procs_skipped("bug_B3 on a disk that loses what it took", why);
		broker_end(&broker);
		return false;
	}
	broker_launch(&broker);
	broker_wait_ready(&broker);
	fd = connect_broker();
	for (int i = 0; i < records; i++)
		ck_assert_int_eq(produce(fd, WIRE_FORCED), 0);
	close(fd);
	return true;
}

/*
 * What is WRITTEN is acknowledged and lost; what is FORCED is not acknowledged. Blocks that the log has and that were written
 * before are used up first: through a mapping there are some, with zeros.
 */
static void
produce_until_red(int fd)
{
	device_fill(&device);
	do {
		for (int i = 0; i < 3; i++)
			produce(fd, WIRE_WRITTEN);
	} while (produce(fd, WIRE_FORCED) == 0);
	/* These may be lost, and what was refused may be there instead. */
	for (int64_t i = forced_end; i < RECORDS_MAX; i++)
		seeds[i] = -1;
	ck_assert(broker_wait(is_red, NULL, SOON_MS));
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_failed", "partition=\"0\"", 1, SOON_MS));
}

/* Read up to the durable end, refused behind it, the watermark as it was. */
static void
expect_red(int fd, int64_t high_watermark)
{
	struct wire_fetched fetched;

	ck_assert(is_red(NULL));
	expect_forced(fd);
	if (high_watermark > forced_end)
		ck_assert_int_eq(wire_fetch(fd, "t", 0, high_watermark - 1, MIB, 0, 0, &fetched), WIRE_STORAGE_FAILURE);
	ck_assert_int_eq(wire_fetch(fd, "t", 0, high_watermark, MIB, SOON_MS, 1, &fetched), WIRE_STORAGE_FAILURE);
	ck_assert_int_eq(wire_fetch(fd, "t", 0, high_watermark + 1, MIB, SOON_MS, 1, &fetched), WIRE_OFFSET_OUT_OF_RANGE);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), high_watermark);
	ck_assert_int_eq(produce(fd, WIRE_WRITTEN), WIRE_STORAGE_FAILURE);
	ck_assert_int_eq(produce(fd, WIRE_FORCED), WIRE_STORAGE_FAILURE);
}

/* The log is open again in the same life of the broker: what the watermark has fallen by was told. */
static void
expect_back(int fd, int64_t high_watermark, bool mapped)
{
	int64_t end = 0, lost = 0, now;

	device_make_room(&device);
	ck_assert(broker_wait_log(&broker, "partition t-0: is open again", BACK_MS));
	ck_assert(broker_wait(is_green, NULL, SOON_MS));
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_failed", "partition=\"0\"", 0, SOON_MS));
	now = wire_high_watermark(fd, "t", 0);
	ck_assert_int_ge(now, forced_end);
	/* Through a mapping the last record may have been written, and no more than zeros behind it be lost. */
	ck_assert(mapped || now < high_watermark);
	ck_assert(told_loss(&end, &lost) == (now < high_watermark));
	if (now < high_watermark) {
		ck_assert_int_eq(end, now);
		ck_assert_int_eq(lost, high_watermark - now);
		ck_assert(broker_wait_metric_least(&broker, "logbroker_recovery_truncated_bytes_total", NULL,
		    (double)lost * DEVICE_BLOCK_BYTES, SOON_MS));
	}
	printf("%" PRId64 " records, %" PRId64 " forced, %" PRId64 " lost\n", high_watermark, forced_end, high_watermark - now);
}

/* Everything goes on, and is on the disk. */
static void
expect_healthy(int fd)
{
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(produce(fd, i % 2 ? WIRE_WRITTEN : WIRE_FORCED), 0);
	ck_assert_int_eq(produce(fd, WIRE_FORCED), 0);
	expect_forced(fd);
	close(fd);
	broker_stop(&broker);
	device_remount(&device);
	broker_restart(&broker, NULL);
	fd = connect_broker();
	expect_forced(fd);
	close(fd);
	broker_stop(&broker);
	broker_end(&broker);
	device_end(&device);
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

/* `_i`: a barrier fails; or the seal of a segment of sixteen records; each in both write modes. */
static const char *const logs[] = {
	"flush_interval = 1h\n",
	"flush_interval = 1h\nsegment_bytes = 64KiB\n",
	"flush_interval = 1h\nwrite_mode = mapped\nsegment_bytes = 16MiB\n",
	"flush_interval = 1h\nwrite_mode = mapped\nsegment_bytes = 64KiB\n",
};
enum { LOGS = 4, MAPPED = 2, BEFORE = 46 };

START_TEST(bug_B3_a_disk_that_loses_what_it_took)
{
	int64_t high_watermark;
	int fd;

	if (!begin(logs[_i], BEFORE))
		return;
	fd = connect_broker();
	produce_until_red(fd);
	high_watermark = wire_high_watermark(fd, "t", 0);
	/* Tried, and no better. */
	ck_assert(broker_wait_log(&broker, "its log cannot be opened again yet", SOON_MS));
	expect_red(fd, high_watermark);
	expect_back(fd, high_watermark, _i >= MAPPED);
	expect_healthy(fd);
}
END_TEST

START_TEST(bug_B3_a_worker_killed_with_such_a_disk)
{
	int64_t high_watermark;
	pid_t victim;
	int fd;

	if (!begin(logs[_i], BEFORE))
		return;
	fd = connect_broker();
	victim = broker_worker_of(&broker, "t", 0);
	produce_until_red(fd);
	high_watermark = wire_high_watermark(fd, "t", 0);
	for (int i = 0; i < 2; i++) {
		kill(victim, SIGKILL);
		victim = broker_wait_worker_of(&broker, "t", 0, victim, SOON_MS);
		ck_assert_int_gt(victim, 0);
		close(fd);
		fd = connect_broker();
		expect_red(fd, high_watermark);
	}
	expect_back(fd, high_watermark, _i >= MAPPED);
	expect_healthy(fd);
}
END_TEST

/* Killed, or stopped. */
START_TEST(bug_B3_a_broker_started_anew_with_such_a_disk)
{
	int64_t high_watermark;
	int fd;

	if (!begin(logs[_i], BEFORE))
		return;
	fd = connect_broker();
	produce_until_red(fd);
	close(fd);
	if (_i % 2 == 0)
		broker_kill(&broker);
	else
		broker_stop(&broker);
	/*
	 * Nobody knows any more; the cache is not believed all the same. The disk is as full as it was: whether the log can be
	 * opened, which may need a block, depends on what had reached it before; if not, it is when there is room. That comes at
	 * once: each try without it makes the next one later.
	 */
	broker_restart(&broker, NULL);
	fd = connect_broker();
	if (!is_readable(&fd)) {
		ck_assert_int_ge(broker_count_log(&broker, "its log cannot be opened again yet"), 1);
		device_make_room(&device);
		ck_assert(broker_wait(is_readable, &fd, BACK_MS));
	}
	expect_forced(fd);
	ck_assert_int_ge(wire_high_watermark(fd, "t", 0), forced_end);
	produce_until_red(fd);
	high_watermark = wire_high_watermark(fd, "t", 0);
	expect_red(fd, high_watermark);
	expect_back(fd, high_watermark, _i >= MAPPED);
	expect_healthy(fd);
}
END_TEST

/*
 * The kernel tells of what it lost once: to a process that dies before it has told anybody. So the next one must not
 * believe the cache, though all it knows is that a barrier was under way.
 */
START_TEST(bug_B3_a_worker_killed_while_its_barrier_fails)
{
	struct wire_bytes request = { 0 };
	char path[BROKER_PATH_BYTES];
	int64_t high_watermark = BEFORE + 1;
	pid_t victim;
	int fd, file;

	if (!begin(logs[0], BEFORE))
		return;
	fd = connect_broker();
	victim = broker_worker_of(&broker, "t", 0);
	device_fill(&device);
	procs_let_barriers(&broker, "hold");
	wire_put_produce_one(&request, 1, "t", 0, WIRE_FORCED, seeds, SIZE);
	ck_assert_int_eq(wire_send(fd, request.data, request.length), 0);
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_high_watermark", "partition=\"0\"",
	    (double)high_watermark, SOON_MS));
	/* The next one is not started before that has been told. */
	broker_freeze(broker.pid);
	kill(victim, SIGKILL);
	ck_assert(procs_wait_dead(victim, SOON_MS));
	/* As its barrier would have. */
	broker_partition_path(&broker, "t", 0, 0, path, sizeof path);
	file = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(fdatasync(file), -1);
	ck_assert_int_eq(fdatasync(file), 0);
	close(file);
	procs_let_barriers(&broker, "work");
	kill(broker.pid, SIGCONT);
	ck_assert_int_gt(broker_wait_worker_of(&broker, "t", 0, victim, SOON_MS), 0);
	close(fd);
	fd = connect_broker();
	expect_forced(fd);
	expect_back(fd, high_watermark, false);
	expect_healthy(fd);
	wire_bytes_free(&request);
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("device");
	TCase *tc = tcase_create("device");

	tcase_set_timeout(tc, 240);
	tcase_add_loop_test(tc, bug_B3_a_disk_that_loses_what_it_took, 0, LOGS);
	tcase_add_loop_test(tc, bug_B3_a_worker_killed_with_such_a_disk, 0, LOGS);
	tcase_add_loop_test(tc, bug_B3_a_broker_started_anew_with_such_a_disk, 0, LOGS);
	tcase_add_test(tc, bug_B3_a_worker_killed_while_its_barrier_fails);
	suite_add_tcase(s, tc);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
