/*
 * Brokers on file systems of the test's own, small ones that fill up, and on sparse files, in both write modes: what was
 * acknowledged stays, what was refused leaves nothing, and room that is not needed is not taken. Each test is a loop over
 * the modes, one also over what readers see.
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum { PATH_BYTES = BROKER_PATH_BYTES * 2, SOON_MS = 20000, MODES = 2, KIB = 1024, MIB = 1024 * 1024 };

static const char *const modes[MODES] = { "file", "mapped" };

static struct broker broker;

static int
connect_tcp(void)
{
	int fd = wire_connect_tcp(broker.port);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void
finish(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

/* ---- a ledger of what was acknowledged ---------------------------------------------------------------------------- */

struct ledger {
	int32_t partition;
	struct wire_bytes log;	/* as it must stand in the log */
	int64_t next;		/* offset */
	int64_t forced;		/* offset behind the last record that was acknowledged as FORCED, and its bytes */
	size_t forced_bytes;
};

enum { BATCH = 7 };

/* One batch of records whose bytes follow from the ledger's next offset; 0, or the broker's refusal. */
static int
produce_batch(int fd, struct ledger *ledger, int ack, size_t size)
{
	struct wire_record records[BATCH];
	uint8_t *bytes = malloc(size * BATCH);
	uint64_t random = (uint64_t)ledger->next * 31 + (uint64_t)ledger->partition + 1;
	int64_t base;
	int code;

	for (size_t i = 0; i < size * BATCH; i++)
		bytes[i] = (uint8_t)wire_random(&random);
	for (int i = 0; i < BATCH; i++)
		records[i] = (struct wire_record){ bytes + (size_t)i * size, size };
	code = wire_produce(fd, "t", ledger->partition, ack, records, BATCH, &base, NULL);
	if (code == 0) {
		ck_assert_int_eq(base, ledger->next);
		for (int i = 0; i < BATCH; i++) {
			wire_put_i32(&ledger->log, (int64_t)size);
			wire_put_i32(&ledger->log, wire_crc32c(records[i].payload, size));
			wire_put(&ledger->log, records[i].payload, size);
		}
		ledger->next += BATCH;
	}
	if (code == 0 && ack == WIRE_FORCED) {
		ledger->forced = ledger->next;
		ledger->forced_bytes = ledger->log.length;
	}
	free(bytes);
	return code;
}

/* The log is the ledger, no more and no less. */
static void
expect_ledger(int fd, const struct ledger *ledger)
{
	struct wire_bytes log = { 0 };

	ck_assert_int_eq(wire_high_watermark(fd, "t", ledger->partition), ledger->next);
	ck_assert_int_eq(wire_read_log(fd, "t", ledger->partition, 0, ledger->next, MIB, true, &log), ledger->next);
	ck_assert_uint_eq(log.length, ledger->log.length);
	ck_assert_mem_eq(log.data, ledger->log.data, log.length);
	wire_bytes_free(&log);
}

/* ---- small file systems --------------------------------------------------------------------------------------------- */

/* A broker in that mode whose data stand on a tmpfs of that size, prepared and not started. False: not possible here. */
static bool
prepare_small(const char *test, int mode, const char *topics, const char *log, const char *mount_options)
{
	static char lines[256];

	if (!procs_may_mount()) {
		procs_skipped(test, "this user cannot mount here");
		return false;
	}
	snprintf(lines, sizeof lines, "%swrite_mode = %s\n", log, modes[mode]);
	broker_prepare(&broker, &(struct broker_config){ .topics = topics, .log = lines });
	ck_assert_int_eq(mkdir(broker.data_dir, 0750), 0);
	if (mount("none", broker.data_dir, "tmpfs", 0, mount_options) < 0) {
		procs_skipped(test, "no tmpfs can be mounted here");
		broker_end(&broker);
		return false;
	}
	return true;
}

static void
start_small(void)
{
	broker_launch(&broker);
	broker_wait_ready(&broker);
}

static void
finish_small(void)
{
	finish();
	ck_assert_int_eq(umount2(broker.data_dir, MNT_DETACH), 0);
}

/* Takes that much room away until it is unlinked. */
static void
put_ballast(char *path, int number, size_t bytes)
{
	char *zeros = calloc(1, bytes);

	snprintf(path, PATH_BYTES, "%s/ballast-%d", broker.data_dir, number);
	procs_write_file(path, zeros, bytes);
	free(zeros);
}

static void
await_room(int fd, struct ledger *ledger, size_t size)
{
	int64_t until = wire_now_ms() + 10000;

	while (produce_batch(fd, ledger, WIRE_WRITTEN, size) != 0)
		ck_assert_int_lt(wire_now_ms(), until);
}

/*
 * The disk fills up in the middle of a batch, and writing goes on behind that: nothing of the refused batches is there. `_i`:
 * mode; what readers see.
 */
START_TEST(bug_A9_a_full_disk_cuts_a_write)
{
	static const uint8_t zeros[BATCH * 6001];
	struct ledger ledger = { 0 };
	char ballast[PATH_BYTES];
	int fd;

	if (!prepare_small("bug_A9_a_full_disk_cuts_a_write", _i % MODES, "t = 1\n", _i / MODES == 0 ?
	    "segment_bytes = 300KiB\nflush_interval = 10ms\n" : "segment_bytes = 300KiB\nvisibility = durable\n",
	    "size=2m,mode=0750"))
		return;
	put_ballast(ballast, 0, MIB);
	start_small();
	fd = connect_tcp();
	while (produce_batch(fd, &ledger, WIRE_WRITTEN, 3001) == 0)
		ck_assert_int_lt(ledger.next, 1000);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(produce_batch(fd, &ledger, i % 2 ? WIRE_WRITTEN : WIRE_FORCED, 6001), WIRE_STORAGE_FAILURE);
	/* Of this one nobody is told, but whoever counts. */
	ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_NONE, zeros, sizeof zeros, NULL), 0);
	expect_ledger(fd, &ledger);
	ck_assert(broker_wait_metric(&broker, "logbroker_requests_total", "api=\"produce\",code=\"STORAGE_FAILURE\"", 1 + 20 + 1,
	    SOON_MS));
	ck_assert_int_eq(unlink(ballast), 0);
	await_room(fd, &ledger, 101);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(produce_batch(fd, &ledger, i % 2 ? WIRE_WRITTEN : WIRE_FORCED, 701), 0);
	expect_ledger(fd, &ledger);
	for (int round = 0; round < 2; round++) {
		close(fd);
		broker_kill(&broker);
		broker_restart(&broker, NULL);
		fd = connect_tcp();
		expect_ledger(fd, &ledger);
		ck_assert_int_eq(produce_batch(fd, &ledger, WIRE_FORCED, 99), 0);
	}
	close(fd);
	wire_bytes_free(&ledger.log);
	finish_small();
}
END_TEST

enum { PARTITIONS = 6 };

/* Fills the disk with all partitions rolling, each until it is refused. */
static void
fill_disk(int fd, struct ledger *ledgers)
{
	bool refused[PARTITIONS] = { false };
	int left = PARTITIONS;

	for (int i = 0; left > 0; i++) {
		int p = i % PARTITIONS;
		int ack = i % 3 == 0 ? WIRE_FORCED : WIRE_WRITTEN;

		if (!refused[p] && produce_batch(fd, &ledgers[p], ack, 900) != 0) {
			refused[p] = true;
			left--;
		}
		ck_assert_int_lt(i, 100000);
	}
}

/* The disk is full under several rolling partitions, gets room, all processes die: every partition comes up. */
START_TEST(bug_B12_full_disk_then_killed)
{
	enum { ROUNDS = 3 };
	struct ledger ledgers[PARTITIONS] = { 0 };
	char ballast[ROUNDS][PATH_BYTES];
	int fd;

	if (!prepare_small("bug_B12_full_disk_then_killed", _i, "t = 6\n", "segment_bytes = 20KiB\nflush_interval = 5ms\n",
	    "size=4m,mode=0750"))
		return;
	for (int p = 0; p < PARTITIONS; p++)
		ledgers[p].partition = p;
	for (int round = 0; round < ROUNDS; round++)
		put_ballast(ballast[round], round, MIB / 2);
	start_small();
	for (int round = 0; round < ROUNDS; round++) {
		fd = connect_tcp();
		fill_disk(fd, ledgers);
		for (int p = 0; p < PARTITIONS; p++)
			expect_ledger(fd, &ledgers[p]);
		close(fd);
		/* Full when they die, or not any more. */
		if (round % 2 == 0)
			ck_assert_int_eq(unlink(ballast[round]), 0);
		broker_kill(&broker);
		if (round % 2 == 1)
			ck_assert_int_eq(unlink(ballast[round]), 0);
		broker_restart(&broker, NULL);
		fd = connect_tcp();
		for (int p = 0; p < PARTITIONS; p++) {
			expect_ledger(fd, &ledgers[p]);
			ck_assert_int_eq(produce_batch(fd, &ledgers[p], WIRE_FORCED, 50), 0);
		}
		close(fd);
	}
	for (int p = 0; p < PARTITIONS; p++)
		wire_bytes_free(&ledgers[p].log);
	finish_small();
}
END_TEST

/* Killed while the disk is full, and started again while it still is: everything is there, readers are served. */
START_TEST(bug_B7_started_on_a_full_disk)
{
	struct ledger ledgers[PARTITIONS] = { 0 };
	char ballast[PATH_BYTES];
	int fd;

	if (!prepare_small("bug_B7_started_on_a_full_disk", _i, "t = 6\n", "segment_bytes = 100KiB\nflush_interval = 5ms\n",
	    "size=3m,mode=0750"))
		return;
	for (int p = 0; p < PARTITIONS; p++)
		ledgers[p].partition = p;
	put_ballast(ballast, 0, MIB);
	start_small();
	fd = connect_tcp();
	fill_disk(fd, ledgers);
	close(fd);
	broker_kill(&broker);
	broker_restart(&broker, NULL);
	fd = connect_tcp();
	for (int p = 0; p < PARTITIONS; p++)
		expect_ledger(fd, &ledgers[p]);
	ck_assert_int_eq(unlink(ballast), 0);
	for (int p = 0; p < PARTITIONS; p++) {
		await_room(fd, &ledgers[p], 900);
		expect_ledger(fd, &ledgers[p]);
		wire_bytes_free(&ledgers[p].log);
	}
	close(fd);
	finish_small();
}
END_TEST

/* ---- room that is not needed ---------------------------------------------------------------------------------------- */

/* Bytes that the files of a directory tree take on disk (du). */
static int64_t
disk_bytes(const char *path)
{
	char entry_path[PATH_BYTES + 300];
	struct dirent *entry;
	struct stat st;
	int64_t bytes;
	DIR *dir;

	ck_assert_int_eq(lstat(path, &st), 0);
	bytes = (int64_t)st.st_blocks * 512;
	if (!S_ISDIR(st.st_mode))
		return bytes;
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(entry_path, sizeof entry_path, "%s/%s", path, entry->d_name);
		bytes += disk_bytes(entry_path);
	}
	closedir(dir);
	return bytes;
}

static int64_t
free_bytes(void)
{
	struct statvfs fs;

	ck_assert_int_eq(statvfs(broker.data_dir, &fs), 0);
	return (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
}

START_TEST(bug_B6_empty_partitions_take_no_room)
{
	enum { EMPTY = 200 };
	char log[128], path[PATH_BYTES];
	int64_t before;
	int fd;

	snprintf(log, sizeof log, "segment_bytes = 512MiB\nwrite_mode = %s\n", modes[_i]);
	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 200\n", .log = log });
	ck_assert_int_eq(mkdir(broker.data_dir, 0750), 0);
	before = free_bytes();
	broker_launch(&broker);
	broker_wait_ready(&broker);
	ck_assert_int_lt(disk_bytes(broker.data_dir), 8 * MIB);
	/* Others write on this disk, too; so much at once is only somebody who takes 512 MiB for each. */
	ck_assert_int_lt(before - free_bytes(), INT64_C(10) * 1024 * MIB);
	/* The first record does not take it either. */
	fd = connect_tcp();
	for (int p = 0; p < EMPTY; p++)
		ck_assert_int_eq(wire_produce_one(fd, "t", p, WIRE_WRITTEN, "x", 1, NULL), 0);
	ck_assert_int_lt(disk_bytes(broker.data_dir), 48 * MIB);
	broker_partition_path(&broker, "t", 7, 0, path, sizeof path);
	ck_assert_int_eq(procs_file_size(path), _i == 0 ? 9 : 512 * MIB);
	close(fd);
	finish();
}
END_TEST

/* ---- names ------------------------------------------------------------------------------------------------------------ */

/*
 * Between a new segment's rename and the first FORCED answer behind it stands a successful fsync of its directory. One
 * request at a time; strace writes its lines in the order in which things happen.
 */
START_TEST(bug_A17_the_directory_is_forced_before_the_answer)
{
	enum { REQUESTS = 60 };
	struct procs_tracer tracer;
	char log[128], *text, *rest = NULL;
	bool named = false, begun = false;
	int fd, answers = 0, renames = 0;

	if (!procs_may_trace()) {
		procs_skipped("bug_A17_the_directory_is_forced_before_the_answer", "no strace that may attach here");
		return;
	}
	snprintf(log, sizeof log, "segment_bytes = 1KiB\nflush_interval = 1h\nwrite_mode = %s\n", modes[_i]);
	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .log = log });
	fd = connect_tcp();
	ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_FORCED, "x", 1, NULL), 0);
	procs_trace(&tracer, &broker, broker.workers[0], "-y -e trace=renameat,renameat2,fsync,sendto");
	for (int i = 0; i < REQUESTS; i++) {
		char payload[300] = { (char)i };

		ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_FORCED, payload, sizeof payload, NULL), 0);
	}
	procs_untrace(&tracer);
	text = procs_read_file(tracer.path, NULL);
	for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
		bool unfinished = strstr(line, "unfinished") != NULL;

		if (strstr(line, "rename") != NULL && strstr(line, ".log\"") != NULL) {
			named = true;
			begun = false;
			renames++;
		}
		if (strstr(line, "fsync(") != NULL && strstr(line, "/t-0>") != NULL)
			begun = true;
		if (begun && strstr(line, "fsync") != NULL && !unfinished && strstr(line, "= 0") != NULL)
			named = begun = false;
		if (strstr(line, "sendto(") != NULL) {
			ck_assert_msg(!named, "answer %d leaves before its segment's name is forced: %s", answers, line);
			answers++;
		}
	}
	ck_assert_int_eq(answers, REQUESTS);
	ck_assert_int_ge(renames, REQUESTS / 3 - 1);
	free(text);
	close(fd);
	finish();
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("disks");
	TCase *tc = tcase_create("disks");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, bug_A9_a_full_disk_cuts_a_write, 0, 2 * MODES);
	tcase_add_loop_test(tc, bug_A17_the_directory_is_forced_before_the_answer, 0, MODES);
	tcase_add_loop_test(tc, bug_B6_empty_partitions_take_no_room, 0, MODES);
	tcase_add_loop_test(tc, bug_B7_started_on_a_full_disk, 0, MODES);
	tcase_add_loop_test(tc, bug_B12_full_disk_then_killed, 0, MODES);
	suite_add_tcase(s, tc);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
