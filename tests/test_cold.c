/*
 * Logs that are not in the page cache: what must be read from the disk is read by threads, and the loop waits for none of
 * it. coldread.so holds the reads of segment files as long as a test says, and tells what the loop reads and sends.
 */
#include <check.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"
#include "worker/jobs.h"

enum {
	PATH_BYTES = BROKER_PATH_BYTES * 2,
	SOON_MS = 30000,
	RECORDS = 17000,		/* of the topic "old": */
	RECORD_BYTES = 1000,		/* with their headers; several between two marks of the index */
	BATCH = 100,
	SEGMENTS_MAX = 16,
	READERS = 6,
	STALE_US = 20000,		/* what the broker has just seen in memory it believes in for some milliseconds */
};

static struct broker broker;
static char control_path[PATH_BYTES], report_path[PATH_BYTES];
static uint8_t *old_log;	/* the records of "old" as they stand on disk */

static void
let_reads(const char *what)
{
	char next[PATH_BYTES + 16];

	snprintf(next, sizeof next, "%s.next", control_path);
	procs_write_file(next, what, strlen(what));
	ck_assert_int_eq(rename(next, control_path), 0);
}

static long
reports(const char *line)
{
	return access(report_path, F_OK) == 0 ? procs_count_lines(report_path, line, NULL) : 0;
}

static bool
is_held(void *count)
{
	return reports("held") >= *(long *)count;
}

static void
wait_held(long count)
{
	ck_assert(broker_wait(is_held, &count, SOON_MS));
}

static void
expect_no_wait_in_the_loop(void)
{
	ck_assert_int_eq(reports("loop"), 0);
}

static int
dial(void)
{
	int fd = wire_connect_tcp(broker.port);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* A record as it stands on disk; crc32c is the default. */
static void
make_record(uint8_t *record, uint64_t random)
{
	size_t size = RECORD_BYTES - 8;

	for (size_t at = 0; at < size; at++)
		record[8 + at] = (uint8_t)wire_random(&random);
	wire_set_i32(record, (int64_t)size);
	wire_set_i32(record + 4, wire_crc32c(record + 8, size));
}

static void
fill_old(void)
{
	int fd = dial();

	old_log = malloc((size_t)RECORDS * RECORD_BYTES);
	for (int i = 0; i < RECORDS; i += BATCH) {
		struct wire_record batch[BATCH];

		for (int k = 0; k < BATCH; k++) {
			uint8_t *record = old_log + (size_t)(i + k) * RECORD_BYTES;

			make_record(record, (uint64_t)(i + k));
			batch[k] = (struct wire_record){ record + 8, RECORD_BYTES - 8 };
		}
		ck_assert_int_eq(wire_produce(fd, "old", 0, i + BATCH < RECORDS ? WIRE_WRITTEN : WIRE_FORCED, batch, BATCH, NULL,
		    NULL), 0);
	}
	close(fd);
}

/* Evicts a file from `position` on; false when this file system has no disk to read it from again. */
static bool
evict_file(const char *path, int64_t position, int64_t bytes)
{
	int fd = open(path, O_RDONLY);
	int64_t size = procs_file_size(path), left = 1;
	int64_t page = sysconf(_SC_PAGESIZE), count = (size + page - 1) / page;
	unsigned char *pages = malloc((size_t)count);
	void *map = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);

	ck_assert(fd >= 0 && map != MAP_FAILED && fsync(fd) == 0);
	for (int i = 0; i < 1000 && left > 0; i++) {
		ck_assert_int_eq(posix_fadvise(fd, position, bytes, POSIX_FADV_DONTNEED), 0);
		if (bytes != 0)
			break;
		ck_assert_int_eq(mincore(map, (size_t)size, pages), 0);
		left = 0;
		for (int64_t k = 0; k < count; k++)
			left += pages[k] & 1;
	}
	munmap(map, (size_t)size);
	close(fd);
	free(pages);
	return left == 0 || bytes != 0;
}

static bool
evict_old(void)
{
	int64_t bases[SEGMENTS_MAX];
	int count = broker_segments(&broker, "old", 0, bases, SEGMENTS_MAX);
	bool evicted = true;

	ck_assert_int_gt(count, 3);
	usleep(STALE_US);
	for (int i = 0; i < count; i++) {
		char path[PATH_BYTES];

		broker_partition_path(&broker, "old", 0, bases[i], path, sizeof path);
		evicted = evict_file(path, 0, 0) && evicted;
	}
	return evicted;
}

/* The first record's length is in memory again, and its page with it: so the place is found at once, and what is read is sent. */
static void
warm_first_page(void)
{
	char path[PATH_BYTES], length[4];
	int fd;

	broker_partition_path(&broker, "old", 0, 0, path, sizeof path);
	fd = open(path, O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
	ck_assert_int_eq(pread(fd, length, sizeof length, 0), sizeof length);
	close(fd);
}

/* Pieces here and there. */
static void
evict_pieces(uint64_t *random)
{
	int64_t bases[SEGMENTS_MAX];
	int count = broker_segments(&broker, "old", 0, bases, SEGMENTS_MAX);

	usleep(STALE_US);
	for (int i = 0; i < 20; i++) {
		char path[PATH_BYTES];

		broker_partition_path(&broker, "old", 0, bases[wire_random(random) % (uint64_t)count], path, sizeof path);
		evict_file(path, (int64_t)(wire_random(random) % 4000000), 1 + (int64_t)(wire_random(random) % 300000));
	}
}

/* With lines of [broker] and of [log]; NULL: none. */
static void
start(const char *settings, const char *log)
{
	static char preload[PATH_BYTES] = "LD_PRELOAD=", control[PATH_BYTES * 2], report[PATH_BYTES * 2];
	static const char *const environment[] = { preload, control, report, "COLDREAD_HELD=/old-0/", NULL };
	static char lines[200];
	struct broker_config config = { .broker = settings, .topics = "hot = 1\nold = 1\n", .workers = 1, .log = lines,
		.environment = environment };

	snprintf(lines, sizeof lines, "segment_bytes = 4MiB\nflush_interval = off\n%s", log == NULL ? "" : log);
	broker_build_path("tests/coldread.so", preload + 11, sizeof preload - 11);
	broker_prepare(&broker, &config);
	snprintf(control_path, sizeof control_path, "%s/coldread", broker.directory);
	snprintf(report_path, sizeof report_path, "%s/coldread.report", broker.directory);
	snprintf(control, sizeof control, "COLDREAD_FILE=%s", control_path);
	snprintf(report, sizeof report, "COLDREAD_REPORT=%s", report_path);
	broker_launch(&broker);
	broker_wait_ready(&broker);
	fill_old();
}

static void
finish(void)
{
	broker_stop(&broker);
	broker_end(&broker);
	free(old_log);
}

static void
restart(void)
{
	broker_stop(&broker);
	broker_restart(&broker, NULL);
}

static void
send_fetch(int fd, int32_t id, int64_t offset, int32_t max_bytes)
{
	struct wire_bytes request = { 0 };

	wire_put_fetch(&request, id, "old", 0, offset, max_bytes, 0, 0);
	ck_assert_int_eq(wire_send(fd, request.data, request.length), 0);
	wire_bytes_free(&request);
}

/* An answer with the bytes of "old" from that offset on. */
static void
expect_fetched(int fd, int32_t id, int64_t offset)
{
	struct wire_fetched fetched;
	struct wire_answer answer;

	ck_assert_int_eq(wire_read_answer(fd, &answer, SOON_MS), 0);
	ck_assert_int_eq(answer.id, id);
	ck_assert_int_eq(answer.error, 0);
	ck_assert_int_eq(wire_parse_fetched(&answer, &fetched), 0);
	ck_assert_uint_ge(fetched.length, RECORD_BYTES);
	ck_assert(memcmp(fetched.payload, old_log + offset * RECORD_BYTES, fetched.length) == 0);
	wire_fetched_free(&fetched);
	wire_answer_free(&answer);
}

/* The log's first record is found without a read, so that what is held is the reading of what is sent of it. False: the
 * file system has no disk. */
static bool
evict_all_but_the_first_page(void)
{
	char path[PATH_BYTES], byte;
	int fd = dial();

	send_fetch(fd, 1, 0, RECORD_BYTES);
	expect_fetched(fd, 1, 0);
	close(fd);
	if (!evict_old())
		return false;
	broker_partition_path(&broker, "old", 0, 0, path, sizeof path);
	fd = open(path, O_RDONLY);
	ck_assert_int_eq(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
	ck_assert_int_eq(read(fd, &byte, 1), 1);
	close(fd);
	return true;
}

/* A producer and a reader that has caught up, on the same worker: all of it is answered, barriers too. */
static void
hot_goes_on(void)
{
	int producer = dial(), reader = dial();
	int64_t end = wire_high_watermark(producer, "hot", 0);

	for (int32_t i = 0; i < 200; i++) {
		struct wire_bytes request = { 0 };
		struct wire_answer answer;
		struct wire_fetched fetched;

		wire_put_fetch(&request, i, "hot", 0, end + i, 1000, SOON_MS, 1);
		ck_assert_int_eq(wire_send(reader, request.data, request.length), 0);
		ck_assert_int_eq(wire_produce_one(producer, "hot", 0, i % 8 == 0 ? WIRE_FORCED : WIRE_WRITTEN, "hot", 3, NULL),
		    0);
		ck_assert_int_eq(wire_read_answer(reader, &answer, SOON_MS), 0);
		ck_assert_int_eq(wire_parse_fetched(&answer, &fetched), 0);
		ck_assert_uint_eq(fetched.length, 11);
		wire_fetched_free(&fetched);
		wire_answer_free(&answer);
		wire_bytes_free(&request);
	}
	close(producer);
	close(reader);
}

/* What is read for the readers: places in the log; places in segments that must be opened, too; what is to be sent. */
enum { PLACES, SEGMENTS, ANSWERS, KINDS };

START_TEST(bug_E2_a_cold_read_stops_nobody_else)
{
	int readers[READERS];
	int64_t offsets[READERS] = { 0, 1, 5003, 6001, 10102, 16999 };

	start(NULL, NULL);
	if (_i == SEGMENTS)
		restart();
	if (!(_i == ANSWERS ? evict_all_but_the_first_page() : evict_old())) {
		procs_skipped("bug_E2_a_cold_read_stops_nobody_else", "this file system has no disk");
		finish();
		return;
	}
	let_reads("hold");
	for (int i = 0; i < READERS; i++) {
		if (_i == ANSWERS)
			offsets[i] = 0;
		readers[i] = dial();
		send_fetch(readers[i], i, offsets[i], WIRE_PAYLOAD_MAX);
	}
	/* One place at a time is looked for; of answers more are wanted than are read at once. */
	wait_held(_i == ANSWERS ? JOBS_READS_MAX : 1);
	hot_goes_on();
	ck_assert_int_eq(reports("held"), _i == ANSWERS ? JOBS_READS_MAX : 1);
	let_reads("work");
	for (int i = 0; i < READERS; i++) {
		expect_fetched(readers[i], i, offsets[i]);
		close(readers[i]);
	}
	expect_no_wait_in_the_loop();
	finish();
}
END_TEST

/* In both write modes every byte, whatever is in memory: in order in pieces of all sizes, several requests at once, from
 * anywhere. */
START_TEST(bug_E2_cold_bytes_are_the_same)
{
	int32_t sizes[] = { 10 * RECORD_BYTES, 300000, 1000000, WIRE_PAYLOAD_MAX };
	uint64_t random = broker_seed("bug_E2_cold_bytes_are_the_same");
	int fd;

	start(NULL, _i == 1 ? "write_mode = mapped\n" : NULL);
	restart();
	fd = dial();
	for (int i = 0; i < 4; i++) {
		struct wire_bytes log = { 0 };

		evict_old();
		ck_assert_int_eq(wire_read_log(fd, "old", 0, 0, RECORDS, sizes[i], true, &log), RECORDS);
		ck_assert_uint_eq(log.length, (size_t)RECORDS * RECORD_BYTES);
		ck_assert(memcmp(log.data, old_log, log.length) == 0);
		wire_bytes_free(&log);
	}
	for (int round = 0; round < 20 * broker_scale(); round++) {
		int64_t offsets[READERS];

		evict_pieces(&random);
		for (int i = 0; i < READERS; i++) {
			offsets[i] = (int64_t)(wire_random(&random) % RECORDS);
			send_fetch(fd, i, offsets[i], RECORD_BYTES + (int32_t)(wire_random(&random) % 2000000));
		}
		for (int i = 0; i < READERS; i++)
			expect_fetched(fd, i, offsets[i]);
	}
	close(fd);
	expect_no_wait_in_the_loop();
	finish();
}
END_TEST

/* Readers that say they will ask no more, or go, while their bytes are being read; and a file whose name goes meanwhile. */
START_TEST(bug_E2_readers_and_files_may_go_meanwhile)
{
	int ends, resets, stays;
	char path[PATH_BYTES];

	start(NULL, NULL);
	if (!evict_all_but_the_first_page()) {
		procs_skipped("bug_E2_readers_and_files_may_go_meanwhile", "this file system has no disk");
		finish();
		return;
	}
	warm_first_page();
	let_reads("hold");
	ends = dial();
	send_fetch(ends, 1, 0, WIRE_PAYLOAD_MAX);
	resets = dial();
	send_fetch(resets, 1, 0, WIRE_PAYLOAD_MAX);
	stays = dial();
	send_fetch(stays, 1, 0, WIRE_PAYLOAD_MAX);
	wait_held(3);
	ck_assert_int_eq(shutdown(ends, SHUT_WR), 0);
	wire_close_reset(resets);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 2, SOON_MS));
	broker_partition_path(&broker, "old", 0, 0, path, sizeof path);
	ck_assert_int_eq(unlink(path), 0);
	let_reads("work");
	expect_fetched(ends, 1, 0);
	ck_assert(wire_ended_orderly(ends, SOON_MS));
	close(ends);
	expect_fetched(stays, 1, 0);
	close(stays);
	hot_goes_on();
	expect_no_wait_in_the_loop();
	finish();
}
END_TEST

/* A stop waits for a read that is under way, and its answer still leaves. */
START_TEST(B07_a_stop_while_a_read_is_under_way)
{
	int fd;

	start(NULL, NULL);
	if (!evict_all_but_the_first_page()) {
		procs_skipped("B07_a_stop_while_a_read_is_under_way", "this file system has no disk");
		finish();
		return;
	}
	warm_first_page();
	let_reads("hold");
	fd = dial();
	send_fetch(fd, 1, 0, WIRE_PAYLOAD_MAX);
	wait_held(1);
	ck_assert_int_eq(kill(broker.pid, SIGTERM), 0);
	ck_assert(broker_wait_log(&broker, "worker 0: stopping", SOON_MS));
	let_reads("work");
	expect_fetched(fd, 1, 0);
	ck_assert(wire_ended_orderly(fd, SOON_MS));
	close(fd);
	ck_assert_int_eq(broker_wait_exit(&broker, BROKER_STOP_MS), 0);
	broker_end(&broker);
	free(old_log);
}
END_TEST

/* The time that the disk takes is not the client's: others run into request_timeout meanwhile. */
START_TEST(bug_E2_a_client_that_waits_for_the_disk_is_not_stalled)
{
	int fd;

	start("request_timeout = 1s\n", NULL);
	if (!evict_all_but_the_first_page()) {
		procs_skipped("bug_E2_a_client_that_waits_for_the_disk_is_not_stalled", "this file system has no disk");
		finish();
		return;
	}
	let_reads("hold");
	fd = dial();
	send_fetch(fd, 1, 0, WIRE_PAYLOAD_MAX);
	wait_held(1);
	for (int i = 0; i < 2; i++) {
		int half = dial();

		ck_assert_int_eq(wire_send(half, "\0\0\1", 3), 0);
		ck_assert(wire_ended(half, SOON_MS));
		close(half);
	}
	let_reads("work");
	expect_fetched(fd, 1, 0);
	close(fd);
	expect_no_wait_in_the_loop();
	finish();
}
END_TEST

static Suite *
suite(void)
{
	Suite *all = suite_create("cold");
	TCase *cold = tcase_create("cold");

	tcase_set_timeout(cold, 120.0 * broker_scale());
	suite_add_tcase(all, cold);
	tcase_add_loop_test(cold, bug_E2_a_cold_read_stops_nobody_else, 0, KINDS);
	tcase_add_loop_test(cold, bug_E2_cold_bytes_are_the_same, 0, 2);
	tcase_add_test(cold, bug_E2_readers_and_files_may_go_meanwhile);
	tcase_add_test(cold, B07_a_stop_while_a_read_is_under_way);
	tcase_add_test(cold, bug_E2_a_client_that_waits_for_the_disk_is_not_stalled);
	return all;
}

int
main(void)
{
	struct statfs fs;

	/* What is in memory for good is never cold. */
	if (getenv("TMPDIR") != NULL && statfs(getenv("TMPDIR"), &fs) == 0 && fs.f_type == TMPFS_MAGIC)
		unsetenv("TMPDIR");
	return broker_main(suite());
}
