/*
 * Starts of a really started broker over what an earlier one has left: after a clean stop and after a kill, with caches
 * that are missing, filled with garbage, cannot be written or come from another time, and with another number of workers.
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum { PATH_BYTES = BROKER_PATH_BYTES * 2, SOON_MS = 20000, PAYLOAD = 100, FILES_MAX = 256 };

static const char *const modes[] = { "file", "mapped" };
enum { MODES = sizeof modes / sizeof modes[0] };

static struct broker broker;

static int
connect_tcp(void)
{
	int fd = wire_connect_tcp(broker.port);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* The bytes of a record follow from its partition and offset. */
static void
fill(int32_t partition, int64_t offset, uint8_t *payload)
{
	uint64_t random = (uint64_t)offset * 1000 + (uint64_t)partition + 1;

	for (int i = 0; i < PAYLOAD; i++)
		payload[i] = (uint8_t)wire_random(&random);
}

/* The records from offset `from` to `to` - 1, one by one. */
static void
produce(int32_t partition, int64_t from, int64_t to)
{
	int fd = connect_tcp();

	for (int64_t i = from; i < to; i++) {
		uint8_t payload[PAYLOAD];
		int64_t base;

		fill(partition, i, payload);
		ck_assert_int_eq(wire_produce_one(fd, "t", partition, WIRE_WRITTEN, payload, PAYLOAD, &base), 0);
		ck_assert_int_eq(base, i);
	}
	close(fd);
}

/* The log has exactly the records from `from` to `to` - 1. */
static void
expect_records(int32_t partition, int64_t from, int64_t to)
{
	struct wire_bytes log = { 0 };
	struct wire_record record;
	size_t position = 0;
	int fd = connect_tcp();
	bool good;

	ck_assert_int_eq(wire_log_start(fd, "t", partition), from);
	ck_assert_int_eq(wire_high_watermark(fd, "t", partition), to);
	ck_assert_int_eq(wire_read_log(fd, "t", partition, from, to, 100000, true, &log), to - from);
	for (int64_t i = from; i < to; i++) {
		uint8_t payload[PAYLOAD];

		fill(partition, i, payload);
		ck_assert(wire_next_record(log.data, log.length, &position, true, &record, &good) && good);
		ck_assert_uint_eq(record.length, PAYLOAD);
		ck_assert_mem_eq(record.payload, payload, PAYLOAD);
	}
	wire_bytes_free(&log);
	close(fd);
}

/* Everything of the log, in a small segment size and this write mode. */
static const char *
log_keys(const char *mode)
{
	static char keys[128];

	snprintf(keys, sizeof keys, "segment_bytes = 4KiB\nwrite_mode = %s\n", mode);
	return keys;
}

/* ---- files -------------------------------------------------------------------------------------------------------- */

static char files[FILES_MAX][PATH_BYTES];
static int file_count;

static bool
ends_in(const char *name, const char *ending)
{
	size_t length = strlen(name);

	return length >= strlen(ending) && strcmp(name + length - strlen(ending), ending) == 0;
}

/* All regular files below the directory that are no segments. */
static void
find_files(const char *directory)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL) {
		char path[PATH_BYTES];
		struct stat st;

		snprintf(path, sizeof path, "%.500s/%.300s", directory, entry->d_name);
		ck_assert_int_eq(lstat(path, &st), 0);
		if (S_ISDIR(st.st_mode) && entry->d_name[0] != '.') {
			find_files(path);
		} else if (S_ISREG(st.st_mode) && !ends_in(path, ".log")) {
			ck_assert_int_lt(file_count, FILES_MAX);
			strcpy(files[file_count++], path);
		}
	}
	closedir(dir);
}

static int
count_files(const char *ending)
{
	int count = 0;

	file_count = 0;
	find_files(broker.data_dir);
	for (int i = 0; i < file_count; i++)
		count += ends_in(files[i], ending);
	return count;
}

/* The file's place in the data directory, as log lines name it. */
static const char *
name_of(const char *path)
{
	return path + strlen(broker.data_dir) + 1;
}

/* ---- garbage ------------------------------------------------------------------------------------------------------ */

/* `_i`: write mode; after a clean stop or a kill. */
START_TEST(bug_A6_random_bytes_in_every_file_but_segments)
{
	uint64_t random = broker_seed("bug_A6");
	bool killed = _i / MODES == 1;
	int caches;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 3\n", .log = log_keys(modes[_i % MODES]) });
	for (int32_t p = 0; p < 3; p++)
		produce(p, 0, 200);
	if (killed)
		broker_kill(&broker);
	else
		broker_stop(&broker);
	caches = count_files(".index") + count_files("sealed.list") + count_files(".stopped");
	ck_assert_int_eq(count_files(".stopped"), killed ? 0 : 2);
	ck_assert_int_eq(count_files("sealed.list"), 3);
	ck_assert_int_ge(caches, 15);
	for (int i = 0; i < file_count; i++) {
		static uint8_t garbage[10000];
		size_t size = (size_t)(wire_random(&random) % sizeof garbage);

		for (size_t k = 0; k < size; k++)
			garbage[k] = (uint8_t)wire_random(&random);
		procs_write_file(files[i], garbage, size);
	}
	broker_restart(&broker, NULL);
	for (int32_t p = 0; p < 3; p++)
		expect_records(p, 0, 200);
	/* One line for each, those of sealed segments when somebody reads them. */
	for (int i = 0; i < file_count; i++)
		if (ends_in(files[i], ".index") || ends_in(files[i], "sealed.list") || ends_in(files[i], ".stopped"))
			ck_assert_msg(broker_count_log(&broker, name_of(files[i])) == 1, "%ld lines about %s",
			    broker_count_log(&broker, name_of(files[i])), files[i]);
	for (int32_t p = 0; p < 3; p++)
		produce(p, 200, 300);
	broker_stop(&broker);
	/* And all is well from then on. */
	broker_restart(&broker, NULL);
	for (int32_t p = 0; p < 3; p++)
		expect_records(p, 0, 300);
	ck_assert_int_eq(broker_count_log(&broker, " warning worker"), 0);
	ck_assert_int_eq(broker_count_log(&broker, " error "), 0);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* Everything but the segments is gone: nothing is lost, and nothing is alarming. */
START_TEST(a_start_without_any_cache)
{
	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = log_keys(modes[_i % MODES]) });
	for (int32_t p = 0; p < 2; p++)
		produce(p, 0, 200);
	if (_i / MODES == 0)
		broker_stop(&broker);
	else
		broker_kill(&broker);
	count_files("");
	for (int i = 0; i < file_count; i++)
		ck_assert_int_eq(unlink(files[i]), 0);
	broker_restart(&broker, NULL);
	for (int32_t p = 0; p < 2; p++) {
		expect_records(p, 0, 200);
		produce(p, 200, 210);
	}
	ck_assert_int_eq(broker_count_log(&broker, " warning worker"), 0);
	ck_assert_int_eq(broker_count_log(&broker, " error "), 0);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* Where a cache should be stands a directory: the log works without, and says so once. */
START_TEST(caches_that_cannot_be_written)
{
	char directory[PATH_BYTES], path[PATH_BYTES + 64];

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .log = log_keys(modes[_i]) });
	produce(0, 0, 10);
	broker_stop(&broker);
	broker_partition_path(&broker, "t", 0, -1, directory, sizeof directory);
	count_files("");
	for (int i = 0; i < file_count; i++)
		ck_assert_int_eq(unlink(files[i]), 0);
	snprintf(path, sizeof path, "%s/00000000000000000000.index", directory);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof path, "%s/sealed.list", directory);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(path, sizeof path, "%s/worker-0.stopped", broker.data_dir);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	for (int round = 0; round < 3; round++) {
		broker_restart(&broker, NULL);
		expect_records(0, 0, 10 + round * 100);
		produce(0, 10 + round * 100, 110 + round * 100);
		expect_records(0, 0, 110 + round * 100);
		ck_assert_int_eq(broker_count_log(&broker, "cannot be written"), 1);
		if (round == 0)
			broker_kill(&broker);
		else
			broker_stop(&broker);
	}
	broker_end(&broker);
}
END_TEST

/* ---- the clean-stop marker ------------------------------------------------------------------------------------------ */

/* A file's bytes, to be put back later. */
struct kept {
	char path[PATH_BYTES];
	char *bytes;
	size_t length;
};

static void
keep(struct kept *kept, const char *path)
{
	snprintf(kept->path, sizeof kept->path, "%.1000s", path);
	kept->bytes = procs_read_file(path, &kept->length);
}

static void
put_back(struct kept *kept)
{
	procs_write_file(kept->path, kept->bytes, kept->length);
	free(kept->bytes);
}

START_TEST(a_marker_is_gone_when_the_broker_runs)
{
	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = log_keys(modes[_i]) });
	produce(0, 0, 100);
	ck_assert_int_eq(count_files(".stopped"), 0);
	broker_stop(&broker);
	ck_assert_int_eq(count_files(".stopped"), 2);
	broker_restart(&broker, NULL);
	ck_assert_int_eq(count_files(".stopped"), 0);
	expect_records(0, 0, 100);
	produce(0, 100, 110);
	broker_kill(&broker);
	ck_assert_int_eq(count_files(".stopped"), 0);
	broker_restart(&broker, NULL);
	expect_records(0, 0, 110);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* Caches of an earlier stop are put back into a data directory that has been written to since, and torn. */
START_TEST(caches_from_another_time)
{
	struct kept kept[FILES_MAX];
	int count;
	char path[PATH_BYTES];
	int64_t bases[64];

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = log_keys(modes[_i]) });
	produce(0, 0, 100);
	broker_stop(&broker);
	count = count_files(".stopped") > 0 ? file_count : 0;
	for (int i = 0; i < count; i++)
		keep(&kept[i], files[i]);
	broker_restart(&broker, NULL);
	produce(0, 100, 110);
	broker_kill(&broker);
	for (int i = 0; i < count; i++)
		put_back(&kept[i]);
	broker_restart(&broker, NULL);
	expect_records(0, 0, 110);
	broker_kill(&broker);
	/* And into one that has lost its end. */
	broker_partition_path(&broker, "t", 0, bases[broker_segments(&broker, "t", 0, bases, 64) - 1], path, sizeof path);
	ck_assert_int_eq(truncate(path, 50), 0);
	broker_restart(&broker, NULL);
	expect_records(0, 0, bases[broker_segments(&broker, "t", 0, bases, 64) - 1]);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* Four workers, two, four again: a marker of a worker that is not there any more says nothing later. */
START_TEST(another_number_of_workers_and_back)
{
	static const int workers[] = { 4, 2, 4, 1, 3, 4 };
	static const char *const keys[] = { "", "workers = 1\n", "workers = 2\n", "workers = 3\n", "workers = 4\n" };
	int64_t end = 0;
	int count = 4;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 4\n", .broker = keys[4], .log = log_keys(modes[_i]) });
	for (size_t round = 0; round < sizeof workers / sizeof workers[0]; round++) {
		for (int32_t p = 0; p < 4; p++)
			produce(p, end, end + 30);
		end += 30;
		if (round % 3 == 2) {
			broker_kill(&broker);
			ck_assert_int_eq(count_files(".stopped"), 0);
		} else {
			broker_stop(&broker);
			ck_assert_int_eq(count_files(".stopped"), count);
		}
		count = workers[round];
		broker_restart(&broker, &(struct broker_config){ .topics = "t = 4\n", .broker = keys[count],
		    .log = log_keys(modes[_i]) });
		ck_assert_int_eq(count_files(".stopped"), 0);
		for (int32_t p = 0; p < 4; p++)
			expect_records(p, 0, end);
	}
	ck_assert_int_eq(broker_count_log(&broker, " error "), 0);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* One worker is told to stop and is replaced: its marker is taken by the next one. */
START_TEST(a_worker_that_is_replaced)
{
	pid_t pid;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = log_keys(modes[_i]) });
	broker.workers_may_die = true;
	for (int round = 0; round < 4; round++) {
		produce(0, round * 50, round * 50 + 50);
		pid = broker_worker_of(&broker, "t", 0);
		ck_assert_int_eq(kill(pid, round % 2 == 0 ? SIGTERM : SIGKILL), 0);
		ck_assert_int_ne(broker_wait_worker_of(&broker, "t", 0, pid, SOON_MS), 0);
		expect_records(0, 0, round * 50 + 50);
	}
	ck_assert_int_eq(count_files(".stopped"), 0);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* ---- nothing there -------------------------------------------------------------------------------------------------- */

static bool
is_empty_and_rolled(void *with)
{
	int64_t bases[64];
	int count = broker_segments(&broker, "t", 0, bases, 64);

	(void)with;
	return count > 0 && bases[count - 1] == 20;
}

/* Everything has expired, the active segment is empty: the log is where it was. `_i`: write mode; retention too. */
START_TEST(bug_A18_killed_with_an_empty_active_segment)
{
	bool retention = _i / MODES == 1;
	char keys[256];
	int64_t start;
	int fd;

	snprintf(keys, sizeof keys, "write_mode = %s\nsegment_age = 1s\n%s", modes[_i % MODES],
	    retention ? "retention_bytes = 1\nretention_check_interval = 1s\n" : "");
	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .log = keys });
	produce(0, 0, 20);
	ck_assert(broker_wait(is_empty_and_rolled, NULL, SOON_MS));
	start = retention ? 20 : 0;
	fd = connect_tcp();
	for (int i = 0; i < SOON_MS / 10 && wire_log_start(fd, "t", 0) != start; i++)
		usleep(10000);
	close(fd);
	for (int round = 0; round < 2; round++) {
		broker_kill(&broker);
		broker_restart(&broker, NULL);
		expect_records(0, start, 20);
	}
	produce(0, 20, 25);
	/* Retention gives these no more than a second. */
	if (!retention)
		expect_records(0, start, 25);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

static Suite *
starts_suite(void)
{
	Suite *suite = suite_create("starts");
	TCase *tc = tcase_create("starts");

	tcase_set_timeout(tc, 120);
	suite_add_tcase(suite, tc);
	tcase_add_loop_test(tc, bug_A6_random_bytes_in_every_file_but_segments, 0, 2 * MODES);
	tcase_add_loop_test(tc, a_start_without_any_cache, 0, 2 * MODES);
	tcase_add_loop_test(tc, caches_that_cannot_be_written, 0, MODES);
	tcase_add_loop_test(tc, a_marker_is_gone_when_the_broker_runs, 0, MODES);
	tcase_add_loop_test(tc, caches_from_another_time, 0, MODES);
	tcase_add_loop_test(tc, another_number_of_workers_and_back, 0, MODES);
	tcase_add_loop_test(tc, a_worker_that_is_replaced, 0, MODES);
	tcase_add_loop_test(tc, bug_A18_killed_with_an_empty_active_segment, 0, 2 * MODES);
	return suite;
}

int
main(void)
{
	return broker_main(starts_suite());
}
