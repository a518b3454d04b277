/*
 * Public bug reports of other brokers and log stores as tests, those that need a really started broker: torn and damaged
 * logs, hostile and dead clients, barriers that fail or take long, full disks. test_protocol and test_scenarios have some
 * more.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum { GROWTH_KIB = 10 * 1024, PATH_BYTES = BROKER_PATH_BYTES * 2 };

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

static void
fill(uint8_t *payload, int64_t seed, size_t size)
{
	uint64_t random = (uint64_t)seed * 7919 + 1;

	for (size_t i = 0; i < size; i++)
		payload[i] = (uint8_t)wire_random(&random);
}

/* One record whose bytes follow from (seed, size). */
static int
produce_seeded(int fd, const char *topic, int32_t partition, int ack, int64_t seed, size_t size)
{
	uint8_t *payload = malloc(size);
	int code;

	fill(payload, seed, size);
	code = wire_produce_one(fd, topic, partition, ack, payload, size, NULL);
	free(payload);
	return code;
}

/* What the log of such a record holds. */
static void
put_stored(struct wire_bytes *to, bool crc, int64_t seed, size_t size)
{
	uint8_t *payload = malloc(size);

	fill(payload, seed, size);
	wire_put_i32(to, (int64_t)size);
	if (crc)
		wire_put_i32(to, wire_crc32c(payload, size));
	wire_put(to, payload, size);
	free(payload);
}

static void
expect_log(int fd, const char *topic, int32_t partition, int64_t end, bool crc, const struct wire_bytes *expected)
{
	struct wire_bytes log = { 0 };

	ck_assert_int_eq(wire_high_watermark(fd, topic, partition), end);
	ck_assert_int_eq(wire_read_log(fd, topic, partition, 0, end, 1000000, crc, &log), end);
	ck_assert_uint_eq(log.length, expected->length);
	ck_assert_mem_eq(log.data, expected->data, log.length);
	wire_bytes_free(&log);
}

/* A caught-up reader at that offset: nothing, without an error, held or not. */
static void
expect_caught_up(int fd, const char *topic, int32_t partition, int64_t offset)
{
	struct wire_fetched fetched;

	for (int wait_ms = 0; wait_ms <= 20; wait_ms += 20) {
		ck_assert_int_eq(wire_fetch(fd, topic, partition, offset, 1000, wait_ms, 1, &fetched), 0);
		ck_assert_int_eq(fetched.high_watermark, offset);
		ck_assert_uint_eq(fetched.length, 0);
		wire_fetched_free(&fetched);
	}
}

static void
segment_path(const char *topic, int32_t partition, int64_t base, char *path)
{
	broker_partition_path(&broker, topic, partition, base, path, PATH_BYTES);
}

/* `_i` of tests in both write modes; test and mode stand in what Check says of a failure. */
static const struct {
	const char *small_segments, *larger_segments, *rarely_forced;
} modes[] = {
	{ "write_mode = file\nsegment_bytes = 4KiB\n", "write_mode = file\nsegment_bytes = 512KiB\n",
		"write_mode = file\nflush_interval = 1h\n" },
	{ "write_mode = mapped\nsegment_bytes = 4KiB\n", "write_mode = mapped\nsegment_bytes = 512KiB\n",
		"write_mode = mapped\nflush_interval = 1h\n" },
};
enum { MODES = 2 };

/* ---- A: torn and damaged logs ------------------------------------------------------------------------------------ */

enum { TORN_PAYLOAD = 12 };

/* Partition p loses all but p bytes of its last record. */
static void
tear_at_every_byte(const char *log, bool crc)
{
	int32_t record = TORN_PAYLOAD + (crc ? 8 : 4), partitions = record + 1;
	char topics[32], path[PATH_BYTES];
	struct wire_bytes expected = { 0 };
	int fd;

	snprintf(topics, sizeof topics, "t = %d\n", (int)partitions);
	broker_start(&broker, &(struct broker_config){ .topics = topics, .log = log });
	fd = connect_tcp();
	for (int32_t p = 0; p < partitions; p++)
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(produce_seeded(fd, "t", p, WIRE_WRITTEN, i, TORN_PAYLOAD), 0);
	close(fd);
	broker_kill(&broker);
	for (int32_t p = 0; p < partitions; p++) {
		segment_path("t", p, 0, path);
		ck_assert_int_ge(procs_file_size(path), 3 * record);
		ck_assert_int_eq(truncate(path, 2 * record + p), 0);
	}
	for (int i = 0; i < 2; i++)
		put_stored(&expected, crc, i, TORN_PAYLOAD);
	for (int round = 0; round < 2; round++) {
		/* At the second start the survivors of the first must not bring anything back. */
		broker_restart(&broker, NULL);
		fd = connect_tcp();
		if (round == 0) {
			for (int32_t p = 0; p < record; p++) {
				expect_log(fd, "t", p, 2, crc, &expected);
				expect_caught_up(fd, "t", p, 2);
				ck_assert_int_eq(produce_seeded(fd, "t", p, WIRE_WRITTEN, 1000, TORN_PAYLOAD), 0);
			}
			put_stored(&expected, crc, 1000, TORN_PAYLOAD);
		}
		for (int32_t p = 0; p < record; p++)
			expect_log(fd, "t", p, 3, crc, &expected);
		ck_assert_int_eq(wire_high_watermark(fd, "t", record), 3);
		close(fd);
		broker_stop(&broker);
	}
	wire_bytes_free(&expected);
	broker_end(&broker);
}

START_TEST(bug_A2_last_segment_cut_at_every_byte)
{
	tear_at_every_byte(NULL, true);
}
END_TEST

START_TEST(bug_A2_last_segment_cut_at_every_byte_plain)
{
	tear_at_every_byte("record_format = plain\n", false);
}
END_TEST

enum { SEGMENT_BYTES = 1024 * 1024 };

static const uint32_t bad_lengths[] = { 0xffffffff, 0x80000000, 0x7fffffff, SEGMENT_BYTES + 1, SEGMENT_BYTES, 0x00ffffff };
enum { BAD_LENGTHS = sizeof bad_lengths / sizeof *bad_lengths };

/*
 * The third of four records gets an impossible length. It is the end; one new record of the same length in its place
 * must not bring back, at the next start, the fourth.
 */
static void
length_is_bad(const char *log, bool crc)
{
	int32_t record = 100 + (crc ? 8 : 4);
	struct wire_bytes expected = { 0 };
	char path[PATH_BYTES];
	uint8_t word[4];
	long rss;
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 6\n", .log = log });
	fd = connect_tcp();
	for (int32_t p = 0; p < BAD_LENGTHS; p++)
		for (int i = 0; i < 4; i++)
			ck_assert_int_eq(produce_seeded(fd, "t", p, WIRE_WRITTEN, i, 100), 0);
	close(fd);
	rss = broker_rss_kib(broker.workers[0]);
	broker_kill(&broker);
	for (int32_t p = 0; p < BAD_LENGTHS; p++) {
		segment_path("t", p, 0, path);
		wire_set_i32(word, bad_lengths[p]);
		procs_patch_file(path, 2 * record, word, 4);
	}
	for (int i = 0; i < 2; i++)
		put_stored(&expected, crc, i, 100);
	for (int round = 0; round < 2; round++) {
		broker_restart(&broker, NULL);
		fd = connect_tcp();
		for (int32_t p = 0; p < BAD_LENGTHS && round == 0; p++) {
			expect_log(fd, "t", p, 2, crc, &expected);
			expect_caught_up(fd, "t", p, 2);
			ck_assert_int_eq(produce_seeded(fd, "t", p, WIRE_WRITTEN, 1000, 100), 0);
		}
		if (round == 0)
			put_stored(&expected, crc, 1000, 100);
		for (int32_t p = 0; p < BAD_LENGTHS; p++) {
			expect_log(fd, "t", p, 3, crc, &expected);
			expect_caught_up(fd, "t", p, 3);
		}
		for (int w = 0; w < 2 && !broker_is_asan(); w++)
			ck_assert_int_lt(broker_rss_kib(broker.workers[w]), rss + GROWTH_KIB);
		close(fd);
		broker_kill(&broker);
	}
	wire_bytes_free(&expected);
	broker_end(&broker);
}

START_TEST(bug_A5_impossible_length)
{
	length_is_bad("segment_bytes = 1MiB\n", true);
}
END_TEST

START_TEST(bug_A5_impossible_length_plain)
{
	length_is_bad("segment_bytes = 1MiB\nrecord_format = plain\n", false);
}
END_TEST

START_TEST(bug_A8_foreign_entries)
{
	static const char *const names[] = { "README", "x.swp", "00000000000000000999.log", "directory", "dangling",
		"00000000000000000005.log", "0000000000000000000.log", "lost+found" };
	char path[PATH_BYTES], entry[PATH_BYTES + 64];
	struct stat status;
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n" });
	fd = connect_tcp();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_WRITTEN, i, 100), 0);
	close(fd);
	broker_stop(&broker);
	broker_partition_path(&broker, "t", 0, -1, path, sizeof path);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(entry, sizeof entry, "%s/%s", path, names[i]);
		if (strcmp(names[i], "directory") == 0 || strcmp(names[i], "lost+found") == 0)
			ck_assert_int_eq(mkdir(entry, 0755), 0);
		else if (strcmp(names[i], "dangling") == 0)
			ck_assert_int_eq(symlink("/nonexistent/target", entry), 0);
		else
			procs_write_file(entry, "text", strstr(names[i], ".log") == NULL ? 4 : 0);
	}
	snprintf(entry, sizeof entry, "%s/stranger-0", broker.data_dir);
	ck_assert_int_eq(mkdir(entry, 0755), 0);
	for (int round = 0; round < 2; round++) {
		broker_restart(&broker, NULL);
		fd = connect_tcp();
		ck_assert_int_eq(wire_high_watermark(fd, "t", 0), 3 + round);
		ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, 9, 100), 0);
		close(fd);
		for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
			snprintf(entry, sizeof entry, "/%s ", names[i]);
			ck_assert_msg(broker_count_log(&broker, entry) == 1, "%ld lines about %s", broker_count_log(&broker, entry),
			    names[i]);
		}
		broker_stop(&broker);
	}
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(entry, sizeof entry, "%s/%s", path, names[i]);
		ck_assert_msg(lstat(entry, &status) == 0, "%s is gone", names[i]);
	}
	snprintf(entry, sizeof entry, "%s/stranger-0", broker.data_dir);
	ck_assert_int_eq(rmdir(entry), 0);
	broker_end(&broker);
}
END_TEST

/* `_i`: how the log is kept. Whatever its producer had asked for, that one record is lost, and nothing else. */
START_TEST(bug_A13_flipped_byte_in_a_sealed_segment)
{
	static const char *const logs[] = { "segment_bytes = 1KiB\n",
		"segment_bytes = 1KiB\nwrite_mode = mapped\nvisibility = durable\n" };
	enum { RECORDS = 40, SIZE = 100, BAD = 13 };
	char path[PATH_BYTES];
	int64_t bases[64], sizes[64];
	int count, fd;
	uint8_t byte = 0xff;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .log = logs[_i] });
	fd = connect_tcp();
	for (int i = 0; i < RECORDS; i++)
		ck_assert_int_eq(produce_seeded(fd, "t", 0, (i + 2) % 3, i, SIZE), 0);
	close(fd);
	broker_stop(&broker);
	count = broker_segments(&broker, "t", 0, bases, 64);
	ck_assert_int_ge(count, 4);
	for (int i = 0; i < count; i++) {
		segment_path("t", 0, bases[i], path);
		sizes[i] = procs_file_size(path);
		if (bases[i] <= BAD && BAD < bases[i + 1]) {
			uint8_t payload[SIZE];

			fill(payload, BAD, SIZE);
			byte = payload[50] ^ 0x40;
			ck_assert_int_lt(i, count - 1);
			procs_patch_file(path, (BAD - bases[i]) * (SIZE + 8) + 8 + 50, &byte, 1);
		}
	}
	broker_restart(&broker, NULL);
	fd = connect_tcp();
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), RECORDS);
	ck_assert_int_eq(wire_log_start(fd, "t", 0), 0);
	for (int i = 0; i < RECORDS; i++) {
		struct wire_fetched fetched;
		struct wire_record record;
		uint8_t payload[SIZE];
		size_t position = 0;
		bool good;

		fill(payload, i, SIZE);
		ck_assert_int_eq(wire_fetch(fd, "t", 0, i, SIZE + 8, 0, 0, &fetched), 0);
		ck_assert_uint_eq(fetched.length, SIZE + 8);
		ck_assert(wire_next_record(fetched.payload, fetched.length, &position, true, &record, &good) == (i != BAD));
		ck_assert(good == (i != BAD));
		if (i != BAD)
			ck_assert_mem_eq(record.payload, payload, SIZE);
		wire_fetched_free(&fetched);
	}
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, RECORDS, SIZE), 0);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), RECORDS + 1);
	close(fd);
	for (int i = 0; i < count - 1; i++) {
		segment_path("t", 0, bases[i], path);
		ck_assert_int_eq(procs_file_size(path), sizes[i]);
	}
	finish();
}
END_TEST

static void
remove_index(const char *topic, int32_t partition)
{
	char path[PATH_BYTES];

	segment_path(topic, partition, 0, path);
	strcpy(strrchr(path, '.'), ".index");
	unlink(path);
}

/*
 * Nothing tells that what is damaged had been forced: to the next worker the board does, which keeps the log as it is; a
 * broker that is started anew knows nothing, cuts, says so, and keeps what it has cut.
 */
START_TEST(bug_A19_flipped_bit_that_no_recovery_point_covers)
{
	enum { RECORDS = 10, BAD = 4, SIZE = 100 };
	struct wire_bytes expected = { 0 };
	char path[PATH_BYTES];
	uint8_t payload[SIZE];
	pid_t victim;
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = modes[_i].larger_segments });
	broker.workers_may_die = true;
	fd = connect_tcp();
	for (int i = 0; i < RECORDS; i++)
		ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, i, SIZE), 0);
	for (int i = 0; i < BAD; i++)
		put_stored(&expected, true, i, SIZE);
	close(fd);
	victim = broker_worker_of(&broker, "t", 0);
	broker_freeze(broker.pid);
	kill(victim, SIGKILL);
	ck_assert(procs_wait_dead(victim, 30000));
	fill(payload, BAD, SIZE);
	payload[50] ^= 0x40;
	segment_path("t", 0, 0, path);
	procs_patch_file(path, BAD * (SIZE + 8) + 8 + 50, payload + 50, 1);
	remove_index("t", 0);
	kill(broker.pid, SIGCONT);
	ck_assert(broker_wait_log(&broker, "stays closed: the log on disk ends at offset 4, but 10 had been published", 30000));
	fd = connect_tcp();
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, 0, SIZE), WIRE_STORAGE_FAILURE);
	ck_assert_int_eq(produce_seeded(fd, "t", 1, WIRE_FORCED, 0, SIZE), 0);
	ck_assert_int_ge(procs_file_size(path), RECORDS * (SIZE + 8));
	close(fd);
	broker_kill(&broker);
	broker_restart(&broker, NULL);
	fd = connect_tcp();
	expect_log(fd, "t", 0, BAD, true, &expected);
	ck_assert_int_eq(broker_count_log(&broker, "Records may be lost; what is cut was copied to t-0/"), 1);
	strcpy(strrchr(path, '.'), ".cut");
	ck_assert_int_eq(procs_file_size(path), (RECORDS - BAD) * (SIZE + 8));
	close(fd);
	wire_bytes_free(&expected);
	finish();
}
END_TEST

/* The last record begins just before a page's end, and its second page was never written. */
START_TEST(bug_A21_last_record_torn_at_a_page_boundary)
{
	static const int before_page[] = { 1, 2, 3, 4, 5, 7, 8, 9, 20, 100, 199, 200 };
	enum { PARTITIONS = sizeof before_page / sizeof *before_page, SIZE = 300, PAGE = 4096 };
	uint8_t zeros[SIZE + 8] = { 0 };
	char path[PATH_BYTES];
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 12\n" });
	fd = connect_tcp();
	for (int32_t p = 0; p < PARTITIONS; p++) {
		ck_assert_int_eq(produce_seeded(fd, "t", p, WIRE_WRITTEN, 0, (size_t)(PAGE - 8 - before_page[p])), 0);
		ck_assert_int_eq(produce_seeded(fd, "t", p, WIRE_WRITTEN, 1, SIZE), 0);
	}
	close(fd);
	broker_kill(&broker);
	for (int32_t p = 0; p < PARTITIONS; p++) {
		segment_path("t", p, 0, path);
		procs_patch_file(path, PAGE, zeros, (size_t)(SIZE + 8 - before_page[p]));
	}
	for (int round = 0; round < 2; round++) {
		broker_restart(&broker, NULL);
		fd = connect_tcp();
		for (int32_t p = 0; p < PARTITIONS; p++) {
			struct wire_bytes expected = { 0 };

			put_stored(&expected, true, 0, (size_t)(PAGE - 8 - before_page[p]));
			if (round == 0) {
				expect_log(fd, "t", p, 1, true, &expected);
				expect_caught_up(fd, "t", p, 1);
				ck_assert_int_eq(produce_seeded(fd, "t", p, WIRE_WRITTEN, 2, 50), 0);
			}
			put_stored(&expected, true, 2, 50);
			expect_log(fd, "t", p, 2, true, &expected);
			expect_caught_up(fd, "t", p, 2);
			wire_bytes_free(&expected);
		}
		close(fd);
		broker_stop(&broker);
	}
	broker_end(&broker);
}
END_TEST

START_TEST(bug_A20_killed_and_started_again_and_again)
{
	uint64_t random = broker_seed("bug_A20_killed_and_started_again_and_again");
	struct wire_bytes expected[2] = { { 0 }, { 0 } };
	int64_t next[2] = { 0, 0 }, seed = 0;
	int rounds = 12 * broker_scale();

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = modes[_i].small_segments });
	for (int round = 0; round < rounds; round++) {
		int fd = connect_tcp();

		for (int32_t p = 0; p < 2; p++)
			for (int i = 1 + (int)(wire_random(&random) % 3); i > 0; i--) {
				size_t size = 1 + wire_random(&random) % 900;

				ck_assert_int_eq(produce_seeded(fd, "t", p, i % 2 ? WIRE_WRITTEN : WIRE_FORCED, ++seed, size), 0);
				put_stored(&expected[p], true, seed, size);
				next[p]++;
			}
		close(fd);
		broker_kill(&broker);
		broker_restart(&broker, NULL);
		fd = connect_tcp();
		for (int32_t p = 0; p < 2; p++)
			expect_log(fd, "t", p, next[p], true, &expected[p]);
		close(fd);
	}
	for (int32_t p = 0; p < 2; p++)
		wire_bytes_free(&expected[p]);
	finish();
}
END_TEST

/* ---- E1 ----------------------------------------------------------------------------------------------------------- */

START_TEST(bug_E1_record_larger_than_max_bytes)
{
	enum { SIZE = 5000 };
	static const int32_t limits[] = { 1, 3, 4, 7, 8, 9, 100, SIZE, SIZE + 7 };
	struct wire_bytes stored = { 0 };
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n" });
	fd = connect_tcp();
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_WRITTEN, 1, SIZE), 0);
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_WRITTEN, 2, 10), 0);
	put_stored(&stored, true, 1, SIZE);
	for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
		struct wire_fetched fetched;

		/* Not empty, not an error, exactly the record's first bytes: the client sees its length and can say so. */
		ck_assert_int_eq(wire_fetch(fd, "t", 0, 0, limits[i], 0, 0, &fetched), 0);
		ck_assert_uint_eq(fetched.length, (size_t)limits[i]);
		ck_assert_mem_eq(fetched.payload, stored.data, fetched.length);
		ck_assert_int_eq(wire_count_records(fetched.payload, fetched.length, true), 0);
		wire_fetched_free(&fetched);
		ck_assert_int_eq(wire_fetch(fd, "t", 0, 0, limits[i], 10000, 1, &fetched), 0);
		ck_assert_uint_eq(fetched.length, (size_t)limits[i]);
		wire_fetched_free(&fetched);
	}
	close(fd);
	wire_bytes_free(&stored);
	finish();
}
END_TEST

/* ---- F: foreign and hostile bytes --------------------------------------------------------------------------------- */

struct sizes {
	long rss[3];
};

static struct sizes
sizes_now(void)
{
	return (struct sizes){ { broker_rss_kib(broker.pid), broker_rss_kib(broker.workers[0]),
		broker_rss_kib(broker.workers[1]) } };
}

static void
check_growth(const struct sizes *before, long limit_kib)
{
	struct sizes now = sizes_now();

	for (int i = 0; i < 3 && !broker_is_asan(); i++)
		ck_assert_msg(now.rss[i] < before->rss[i] + limit_kib, "process %d has grown from %ld to %ld KiB", i, before->rss[i],
		    now.rss[i]);
}

enum { CROWD = 200 };

START_TEST(bug_F1_length_that_is_believed)
{
	static const uint32_t lengths[] = { 0x7fffffff, 0x80000000, 0xffffffff, 0, 8 * 1024 * 1024 + 1 };
	struct sizes before;
	int fds[CROWD], healthy;
	uint8_t word[4];

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n" });
	healthy = connect_tcp();
	ck_assert_int_eq(produce_seeded(healthy, "t", 0, WIRE_WRITTEN, 1, 10), 0);
	before = sizes_now();
	for (int i = 0; i < CROWD; i++) {
		fds[i] = connect_tcp();
		wire_set_i32(word, lengths[i % 5]);
		ck_assert_int_eq(wire_send(fds[i], word, i % 3 == 0 ? 3 : 4), 0);
		if (i % 3 == 0)
			ck_assert_int_eq(wire_send(fds[i], word + 3, 1), 0);
	}
	for (int i = 0; i < CROWD; i++) {
		ck_assert(wire_ended_orderly(fds[i], 30000));
		ck_assert_int_eq(produce_seeded(healthy, "t", i % 2, WIRE_WRITTEN, i, 10), 0);
	}
	check_growth(&before, GROWTH_KIB);
	for (int i = 0; i < CROWD; i++)
		close(fds[i]);
	close(healthy);
	finish();
}
END_TEST

/* A length that is allowed, and then a trickle. */
START_TEST(bug_F1_large_frames_that_never_come)
{
	struct wire_bytes head = { 0 };
	struct sizes before;
	int fds[CROWD], healthy;
	int64_t began;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .broker = "request_timeout = 1s\n" });
	healthy = connect_tcp();
	ck_assert_int_eq(produce_seeded(healthy, "t", 0, WIRE_WRITTEN, 1, 10), 0);
	before = sizes_now();
	wire_begin(&head, WIRE_PRODUCE, 1, 1);
	wire_put_name(&head, "t");
	wire_put_i32(&head, 1);
	wire_put_i8(&head, WIRE_WRITTEN);
	wire_put_i32(&head, 1);
	wire_put_i32(&head, 8000000);
	wire_put_zeros(&head, 100);
	wire_set_i32(head.data, 8 * 1024 * 1024);
	began = wire_now_ms();
	for (int i = 0; i < CROWD; i++) {
		fds[i] = connect_tcp();
		ck_assert_int_eq(wire_send(fds[i], head.data, head.length), 0);
	}
	for (int i = 0; i < CROWD; i++) {
		ck_assert_int_eq(produce_seeded(healthy, "t", i % 2, WIRE_WRITTEN, i, 10), 0);
		wire_send(fds[i], "trickle", 7);	/* it may have been closed already */
	}
	check_growth(&before, GROWTH_KIB);
	for (int i = 0; i < CROWD; i++) {
		ck_assert(wire_ended(fds[i], 30000));
		ck_assert_int_ge(wire_now_ms() - began, 1000);
		close(fds[i]);
	}
	ck_assert_int_eq(produce_seeded(healthy, "t", 0, WIRE_WRITTEN, 1, 10), 0);
	close(healthy);
	wire_bytes_free(&head);
	finish();
}
END_TEST

/* Lines about it so far; there may be one per worker and minute. */
static void
check_lines(const char *kind, const char *word)
{
	ck_assert_msg(broker_wait_log(&broker, word, 30000), "%s: no line with '%s'", kind, word);
	ck_assert_msg(broker_count_log(&broker, word) <= 2, "%s: %ld lines", kind, broker_count_log(&broker, word));
}

START_TEST(bug_F3_foreign_protocols)
{
	static const uint8_t tls[] = { 0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 1, 2, 3, 4, 5, 6 };
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl\r\n\r\n";
	static const char post[] = "POST /topics/t HTTP/1.1\r\nHost: localhost\r\n\r\n";
	static const char proxy[] = "PROXY TCP4 192.0.2.1 192.0.2.2 56324 443\r\n";
	static const char proxy2[] = "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\1\x7f\0\0\1\xdc\x04\x01\xbb";
	size_t zeros_length = 1024 * 1024;
	uint8_t *zeros = calloc(1, zeros_length);
	const struct {
		const char *name;
		const void *bytes;
		size_t length;
		const char *word;	/* in the line about it; NULL: none is due */
	} kinds[] = {
		{ "HTTP", http, sizeof http - 1, "HTTP" },
		{ "HTTP POST", post, sizeof post - 1, "HTTP" },
		{ "TLS", tls, sizeof tls, "TLS" },
		{ "PROXY", proxy, sizeof proxy - 1, "PROXY" },
		{ "PROXY v2", proxy2, sizeof proxy2 - 1, "PROXY" },
		{ "zeros", zeros, zeros_length, NULL },
	};
	struct sizes before;
	long lines;
	int healthy;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n" });
	healthy = connect_tcp();
	ck_assert_int_eq(produce_seeded(healthy, "t", 0, WIRE_WRITTEN, 1, 10), 0);
	before = sizes_now();
	lines = broker_count_log(&broker, "worker");
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
		for (int i = 0; i < 20; i++) {
			int fd = connect_tcp();

			ck_assert_int_eq(wire_send(fd, kinds[k].bytes, kinds[k].length), 0);
			ck_assert_msg(wire_ended_orderly(fd, 30000), "%s: not closed", kinds[k].name);
			close(fd);
		}
		ck_assert_int_eq(produce_seeded(healthy, "t", (int32_t)k % 2, WIRE_WRITTEN, 1, 10), 0);
	}
	check_growth(&before, GROWTH_KIB);
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
		if (kinds[k].word != NULL)
			check_lines(kinds[k].name, kinds[k].word);
	ck_assert_int_le(broker_count_log(&broker, "worker") - lines, 3 * 2);
	close(healthy);
	free(zeros);
	finish();
}
END_TEST

/* Kafka's frames are well-formed: they are answered, on a connection that stays open. */
START_TEST(bug_F3_kafka_clients)
{
	int fds[20];

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n" });
	for (int i = 0; i < 20; i++) {
		struct wire_bytes request = { 0 };
		size_t start = wire_begin(&request, 18, 3, i);	/* ApiVersions v3 */

		wire_put_name(&request, "rdkafka");
		wire_put(&request, "\0\x08librdka\x06" "2.3.0\0", 16);
		wire_end(&request, start);
		fds[i] = connect_tcp();
		ck_assert_int_eq(wire_ask(fds[i], &request, NULL), WIRE_UNSUPPORTED_VERSION);
		ck_assert_int_eq(wire_ask(fds[i], &request, NULL), WIRE_UNSUPPORTED_VERSION);
		ck_assert_int_eq(produce_seeded(fds[i], "t", i % 2, WIRE_WRITTEN, 1, 10), 0);
		wire_bytes_free(&request);
	}
	check_lines("Kafka", "Kafka");
	for (int i = 0; i < 20; i++)
		close(fds[i]);
	finish();
}
END_TEST

/* ---- G: clients that do not read or vanish ------------------------------------------------------------------------ */

/* Writes until nothing more goes for a while, or everything is sent. Returns the bytes. */
static size_t
send_what_goes(int fd, const uint8_t *data, size_t length)
{
	size_t sent = 0;

	while (sent < length) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		ssize_t n = send(fd, data + sent, length - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n > 0)
			sent += (size_t)n;
		else if (errno != EAGAIN || poll(&p, 1, 300) <= 0)
			break;
	}
	return sent;
}

START_TEST(bug_G4_pipelines_that_are_never_read)
{
	enum { PIPELINES = 4 };
	/* More bytes of answers than two socket buffers between them hold. */
	int requests = 400000, small = 65536, answer_bytes_min = 10;
	struct wire_bytes pipelines[2] = { { 0 }, { 0 } };
	struct sizes before;
	int fds[PIPELINES], healthy, answered_bytes;
	size_t sent[PIPELINES];

	/* Until they are read. */
	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n", .broker = "request_timeout = 10min\n" });
	healthy = connect_tcp();
	ck_assert_int_eq(produce_seeded(healthy, "t", 0, WIRE_WRITTEN, 1, 1000), 0);
	/* Answers from files and from memory, and from memory alone. */
	for (int i = 0; i < requests; i++) {
		if (i % 2 == 0)
			wire_put_metadata(&pipelines[0], i, 2, "t");
		else
			wire_put_fetch_v1(&pipelines[0], i, "t", 0, 0, 2000);
		wire_put_metadata(&pipelines[1], i, 2, "t");
	}
	before = sizes_now();
	for (int i = 0; i < PIPELINES; i++) {
		fds[i] = connect_tcp();
		ck_assert_int_eq(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
		sent[i] = send_what_goes(fds[i], pipelines[i % 2].data, pipelines[i % 2].length);
		ck_assert_int_eq(produce_seeded(healthy, "t", i % 2, WIRE_WRITTEN, 1, 10), 0);
		/* The broker has stopped reading. The rest stays with the client, or in a socket that the kernel lets grow. */
		ck_assert_int_eq(ioctl(fds[i], FIONREAD, &answered_bytes), 0);
		ck_assert_int_lt(answered_bytes, requests * answer_bytes_min);
	}
	check_growth(&before, GROWTH_KIB);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(produce_seeded(healthy, "t", i % 2, WIRE_WRITTEN, 1, 10), 0);
	/* Read at last, all answers are there, in order. */
	for (int i = 0; i < 2; i++) {
		struct wire_bytes in = { 0 };
		struct wire_answer answer;
		size_t position = 0;
		int32_t id = 0;

		ck_assert_uint_eq(wire_exchange(fds[i], pipelines[i].data + sent[i], pipelines[i].length - sent[i],
		    (size_t)requests, &in, 60000), (size_t)requests);
		while (wire_next_answer(&in, &position, &answer)) {
			ck_assert_int_eq(answer.id, id++);
			ck_assert_int_eq(answer.error, 0);
		}
		ck_assert_int_eq(id, requests);
		wire_bytes_free(&in);
	}
	/* The others vanish with everything unread. */
	for (int i = 0; i < PIPELINES; i++)
		close(fds[i]);
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 1, 30000));
	close(healthy);
	wire_bytes_free(&pipelines[0]);
	wire_bytes_free(&pipelines[1]);
	finish();
}
END_TEST

START_TEST(bug_G6_reset_in_the_middle_of_a_body)
{
	int rounds = 300 * broker_scale();
	int descriptors[3], healthy;
	pid_t pids[3];

	broker_start(&broker, &(struct broker_config){ .topics = "t = 2\n" });
	healthy = connect_tcp();
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(produce_seeded(healthy, "t", i % 2, WIRE_WRITTEN, i, 1024 * 1024), 0);
	ck_assert_int_gt(procs_owner_of(&broker, healthy, 30000), 0);
	pids[0] = broker.pid;
	pids[1] = broker.workers[0];
	pids[2] = broker.workers[1];
	for (int i = 0; i < 3; i++)
		descriptors[i] = broker_fd_count(pids[i]);
	for (int i = 0; i < rounds; i++) {
		struct wire_bytes request = { 0 };
		char piece[1024];
		int fd = i % 4 == 3 ? wire_connect_unix(broker.unix_path) : connect_tcp();

		wire_put_fetch_v1(&request, i, "t", i % 2, 0, 1024 * 1024 + 8);
		ck_assert_int_eq(wire_send(fd, request.data, request.length), 0);
		if (i % 8 == 7)
			ck_assert_int_eq(wire_send(fd, request.data, request.length), 0);
		ck_assert_int_gt(wire_receive(fd, piece, sizeof piece, 10000), 0);
		wire_close_reset(fd);
		wire_bytes_free(&request);
	}
	ck_assert_int_eq(produce_seeded(healthy, "t", 1, WIRE_WRITTEN, 1, 10), 0);
	for (int i = 0; i < 3; i++)
		ck_assert(procs_wait_fd_count(pids[i], descriptors[i], 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_connections", NULL, 1, 30000));
	close(healthy);
	finish();	/* which asserts that the workers are the same */
}
END_TEST

/* ---- K: barriers ---------------------------------------------------------------------------------------------------- */

/*
 * One FORCED request at a time: every answer leaves behind a barrier that began after the record was written and has
 * returned success. strace writes its lines in the order in which things happen; a call that others interrupt is
 * "unfinished" where it begins and "resumed" where it returns.
 */
START_TEST(bug_K1_answer_leaves_behind_the_barrier)
{
	enum { REQUESTS = 30 };
	struct procs_tracer tracer;
	char *text, *rest = NULL;
	bool written = false, begun = false, forced = false;
	int fd, answers = 0;

	if (!procs_may_trace()) {
		procs_skipped("bug_K1_answer_leaves_behind_the_barrier", "no strace that may attach here");
		return;
	}
	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .log = "flush_interval = 1h\n" });
	fd = connect_tcp();
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, 0, 100), 0);
	procs_trace(&tracer, &broker, broker.workers[0], "-e trace=pwrite64,pwritev,pwritev2,write,fdatasync,fsync,sendto,sendmsg");
	for (int i = 0; i < REQUESTS; i++)
		ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, i, 100), 0);
	procs_untrace(&tracer);
	text = procs_read_file(tracer.path, NULL);
	for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
		bool sync = strstr(line, "sync(") != NULL, resumed = strstr(line, "sync resumed") != NULL;

		if (strstr(line, "pwrite") != NULL && strstr(line, "unfinished") == NULL)
			written = true;
		if (sync)
			begun = written;
		if ((sync && strstr(line, "unfinished") == NULL) || resumed)
			forced = begun && strstr(line, "= 0") != NULL;
		if (strstr(line, "sendto(") != NULL) {
			ck_assert_msg(forced, "answer %d leaves before its barrier: %s", answers, line);
			answers++;
			written = begun = forced = false;
		}
	}
	ck_assert_int_eq(answers, REQUESTS);
	free(text);
	close(fd);
	finish();
}
END_TEST

static bool
wait_durable(const char *topic, int64_t offset)
{
	char labels[64];

	snprintf(labels, sizeof labels, "topic=\"%s\",partition=\"0\"", topic);
	return broker_wait_metric(&broker, "logbroker_partition_durable_offset", labels, (double)offset, 30000);
}

/* What nobody waits for is forced by age, or when there is so much of it, and not before. */
START_TEST(bug_K1_flush_keys_force_what_nobody_waits_for)
{
	static const int acks[] = { WIRE_WRITTEN, WIRE_NONE };
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "age = 1\nmany = 1\nnever = 1\n", .log = modes[_i].small_segments,
		.sections = "[topic age]\nflush_interval = 50ms\n[topic many]\nflush_interval = off\nflush_records = 5\n"
		    "[topic never]\nflush_interval = off\n" });
	fd = connect_tcp();
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(produce_seeded(fd, "never", 0, acks[i % 2], i, 100), 0);
		ck_assert_int_eq(produce_seeded(fd, "many", 0, acks[i % 2], i, 100), 0);
		ck_assert_int_eq(produce_seeded(fd, "age", 0, acks[i % 2], i, 100), 0);
	}
	ck_assert(wait_durable("age", 4));
	ck_assert(wait_durable("many", 0) && wait_durable("never", 0));
	ck_assert_int_eq(produce_seeded(fd, "many", 0, WIRE_WRITTEN, 4, 100), 0);
	ck_assert(wait_durable("many", 5));
	ck_assert(wait_durable("never", 0));
	close(fd);
	finish();
}
END_TEST

START_TEST(bug_K2_nobody_waits_for_a_slow_barrier)
{
	enum { CALLERS = 20 };
	struct procs_tracer tracer;
	struct wire_bytes request = { 0 };
	int callers[CALLERS], fd;
	int64_t began, slow_us, worst_us = 0;
	double barriers;
	long operations = 0;

	if (!procs_may_trace()) {
		procs_skipped("bug_K2_nobody_waits_for_a_slow_barrier", "no strace that may attach here");
		return;
	}
	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\nu = 1\n", .workers = 1,
		.log = modes[_i].rarely_forced });
	fd = connect_tcp();
	for (int i = 0; i < CALLERS; i++) {
		callers[i] = connect_tcp();
		ck_assert_int_eq(produce_seeded(callers[i], "t", 0, WIRE_WRITTEN, 1, 100), 0);
	}
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, 1, 100), 0);
	barriers = broker_metric(&broker, "logbroker_fsync_duration_seconds_count", NULL);
	procs_trace(&tracer, &broker, broker.workers[0], "-e trace=fdatasync -e inject=fdatasync:delay_exit=1000000");
	began = wire_now_us();
	for (int i = 0; i < CALLERS; i++) {
		request.length = 0;
		wire_put_produce_one(&request, i, "t", 0, WIRE_FORCED, "forced", 6);
		ck_assert_int_eq(wire_send(callers[i], request.data, request.length), 0);
	}
	/* On the same partition and on another one of the same worker, while the first of them waits. */
	while (wire_silent(callers[0], 0)) {
		struct wire_fetched fetched;
		int64_t start = wire_now_us(), us;

		ck_assert_int_eq(produce_seeded(fd, operations % 2 ? "t" : "u", 0, WIRE_WRITTEN, 1, 100), 0);
		ck_assert_int_eq(wire_fetch(fd, "t", 0, operations % CALLERS, 108, 0, 0, &fetched), 0);
		ck_assert_uint_eq(fetched.length, 108);
		wire_fetched_free(&fetched);
		us = wire_now_us() - start;
		worst_us = us > worst_us ? us : worst_us;
		operations++;
	}
	slow_us = wire_now_us() - began;
	for (int i = 0; i < CALLERS; i++)
		ck_assert_int_eq(wire_expect(callers[i], i), 0);
	procs_untrace(&tracer);
	printf("bug_K2_nobody_waits_for_a_slow_barrier: %ld pairs in %lld ms, the slowest took %lld ms\n", operations,
	    (long long)slow_us / 1000, (long long)worst_us / 1000);
	ck_assert_int_ge(slow_us, 1000000);
	ck_assert_int_lt(worst_us, slow_us / 2);
	/* They share: the first one's, and those of the few groups that gathered behind it. */
	barriers = broker_metric(&broker, "logbroker_fsync_duration_seconds_count", NULL) - barriers;
	ck_assert_msg(barriers >= 1 && barriers <= CALLERS / 4, "%.0f barriers", barriers);
	for (int i = 0; i < CALLERS; i++)
		close(callers[i]);
	close(fd);
	wire_bytes_free(&request);
	finish();
}
END_TEST

START_TEST(bug_K4_group_commit)
{
	enum { PRODUCERS = 200, ROUNDS = 3, ALONE = 20 };
	static const char count_name[] = "logbroker_fsync_duration_seconds_count";
	int fds[PRODUCERS];
	struct wire_bytes request = { 0 };
	double before, after;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .log = "flush_interval = 1h\n" });
	for (int i = 0; i < PRODUCERS; i++) {
		fds[i] = connect_tcp();
		ck_assert_int_eq(produce_seeded(fds[i], "t", 0, WIRE_WRITTEN, i, 10), 0);
	}
	before = broker_metric(&broker, count_name, NULL);
	for (int round = 0; round < ROUNDS; round++) {
		broker_freeze_worker(&broker, broker.workers[0]);
		for (int i = 0; i < PRODUCERS; i++) {
			request.length = 0;
			wire_put_produce_one(&request, i, "t", 0, WIRE_FORCED, "forced", 6);
			ck_assert_int_eq(wire_send(fds[i], request.data, request.length), 0);
		}
		broker_thaw_worker(&broker, broker.workers[0]);
		for (int i = 0; i < PRODUCERS; i++)
			ck_assert_int_eq(wire_expect(fds[i], i), 0);
	}
	after = broker_metric(&broker, count_name, NULL);
	printf("bug_K4_group_commit: %.0f barriers for %d requests\n", after - before, PRODUCERS * ROUNDS);
	ck_assert(after > before && after - before <= (double)PRODUCERS * ROUNDS / 10);
	/* Alone, each has its own, at once: nothing but its answer could end the wait in the next hour. */
	for (int i = 0; i < ALONE; i++)
		ck_assert_int_eq(produce_seeded(fds[0], "t", 0, WIRE_FORCED, i, 10), 0);
	ck_assert(broker_wait_metric(&broker, count_name, NULL, after + ALONE, 30000));
	for (int i = 0; i < PRODUCERS; i++)
		close(fds[i]);
	wire_bytes_free(&request);
	finish();
}
END_TEST

/* ---- B: failed barriers, full disks --------------------------------------------------------------------------------- */

static int32_t
partition_with_group(int fd, int32_t group, int32_t but)
{
	for (int32_t p = 0; p < 4; p++)
		if (p != but && wire_group(fd, "t", p) == group)
			return p;
	ck_abort_msg("no other partition in group %d", (int)group);
	return -1;
}

static void
expect_refused(int fd, int32_t partition, int ack)
{
	ck_assert_int_eq(produce_seeded(fd, "t", partition, ack, 1, 10), WIRE_STORAGE_FAILURE);
}

static void
expect_health(int code, const char *with)
{
	int status;
	char *page = broker_http_get(&broker, "/healthz", &status);

	ck_assert_ptr_nonnull(page);
	ck_assert_msg(status == code && strstr(page, with) != NULL, "health is %d: %s", status, page);
	free(page);
}

/* Partition 0 begins with these bytes. */
static void
expect_stored(int fd, const struct wire_bytes *stored)
{
	struct wire_fetched fetched;

	ck_assert_int_eq(wire_fetch(fd, "t", 0, 0, (int32_t)stored->length, 0, 0, &fetched), 0);
	ck_assert_uint_eq(fetched.length, stored->length);
	ck_assert_mem_eq(fetched.payload, stored->data, stored->length);
	wire_fetched_free(&fetched);
}

START_TEST(bug_B3_failed_barrier)
{
	enum { CALLERS = 5 };
	char path[PATH_BYTES], options[PATH_BYTES + 128];
	struct procs_tracer tracer;
	struct wire_bytes request = { 0 }, stored = { 0 };
	struct wire_fetched fetched;
	int callers[CALLERS], held, fd;
	int32_t neighbour, elsewhere;
	int64_t ended;
	pid_t victim;

	if (!procs_may_trace()) {
		procs_skipped("bug_B3_failed_barrier", "no strace that may attach here");
		return;
	}
	broker_start(&broker, &(struct broker_config){ .topics = "t = 4\n", .log = "flush_interval = 1h\n" });
	broker.workers_may_die = true;
	fd = connect_tcp();
	neighbour = partition_with_group(fd, wire_group(fd, "t", 0), 0);
	elsewhere = partition_with_group(fd, 1 - wire_group(fd, "t", 0), 0);
	victim = broker_worker_of(&broker, "t", 0);
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_WRITTEN, 0, 10), 0);
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, 1, 10), 0);
	for (int i = 0; i < 2; i++)
		put_stored(&stored, true, i, 10);
	/* Acknowledged as WRITTEN, not forced by anybody yet. */
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_WRITTEN, 2, 10), 0);
	ck_assert_int_eq(produce_seeded(fd, "t", neighbour, WIRE_WRITTEN, 0, 10), 0);
	for (int i = 0; i < CALLERS; i++) {
		callers[i] = connect_tcp();
		ck_assert_int_eq(produce_seeded(callers[i], "t", neighbour, WIRE_WRITTEN, 1, 10), 0);
	}
	held = connect_tcp();
	wire_put_fetch(&request, 77, "t", 0, 3, 1000000, 60000, 100000);
	ck_assert_int_eq(wire_send(held, request.data, request.length), 0);
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, 1, 30000));
	segment_path("t", 0, 0, path);
	snprintf(options, sizeof options, "-P %s -e trace=fdatasync -e inject=fdatasync:error=EIO", path);
	procs_trace(&tracer, &broker, victim, options);
	for (int i = 0; i < CALLERS; i++) {
		request.length = 0;
		wire_put_produce_one(&request, i, "t", 0, WIRE_FORCED, "forced", 6);
		ck_assert_int_eq(wire_send(callers[i], request.data, request.length), 0);
	}
	for (int i = 0; i < CALLERS; i++)
		ck_assert_int_eq(wire_expect(callers[i], i), WIRE_STORAGE_FAILURE);
	ck_assert_int_eq(wire_expect(held, 77), WIRE_STORAGE_FAILURE);
	/* Others of the same worker can be forced, meanwhile and later. */
	ck_assert_int_eq(produce_seeded(fd, "t", neighbour, WIRE_FORCED, 1, 10), 0);
	/* As long as the disk does not take it there is no success, however often it is tried. */
	ck_assert(broker_wait_log(&broker, "its log cannot be opened again yet", 30000));
	ck_assert_int_ge(procs_count_lines(tracer.path, "INJECTED", NULL), 2);
	for (int i = 0; i < 3; i++) {
		expect_refused(fd, 0, WIRE_WRITTEN);
		expect_refused(fd, 0, WIRE_FORCED);
	}
	/* Nobody is told of that, and it is not there either. */
	ended = wire_high_watermark(fd, "t", 0);
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_NONE, 1, 10), 0);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), ended);
	ck_assert_int_eq(produce_seeded(fd, "t", neighbour, WIRE_FORCED, 2, 10), 0);
	ck_assert_int_eq(produce_seeded(fd, "t", elsewhere, WIRE_FORCED, 2, 10), 0);
	/* Readable up to the durable end, an error behind it; what was published stays published. */
	ck_assert_int_eq(wire_fetch(fd, "t", 0, 0, 1000, 0, 0, &fetched), 0);
	ck_assert_uint_eq(fetched.length, stored.length);
	ck_assert_mem_eq(fetched.payload, stored.data, stored.length);
	ck_assert_int_ge(fetched.high_watermark, 3);
	wire_fetched_free(&fetched);
	ck_assert_int_eq(wire_fetch(fd, "t", 0, 2, 1000, 0, 0, &fetched), WIRE_STORAGE_FAILURE);
	ck_assert_int_eq(wire_fetch(fd, "t", 0, 2, 1000, 60000, 1, &fetched), WIRE_STORAGE_FAILURE);
	ck_assert_int_ge(wire_high_watermark(fd, "t", 0), 3);
	expect_health(503, "t-0");
	ck_assert(broker_wait_metric_least(&broker, "logbroker_fsync_failures_total", NULL, 1, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_failed", NULL, 1, 30000));
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_durable_offset", "topic=\"t\",partition=\"0\"", 2, 30000));
	/* The disk works again: the log is read from it and goes on by itself, in the same worker. */
	procs_untrace(&tracer);
	ck_assert(broker_wait_log(&broker, "partition t-0: is open again: its log was read from the disk, and nothing", 60000));
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_failed", NULL, 0, 30000));
	expect_health(200, "ok");
	ck_assert_int_eq(kill(victim, 0), 0);
	expect_stored(fd, &stored);
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, 3, 10), 0);
	/* Again; and this worker does not live to see it through. */
	procs_trace(&tracer, &broker, victim, options);
	expect_refused(fd, 0, WIRE_FORCED);
	expect_health(503, "t-0");
	kill(victim, SIGKILL);
	ck_assert_int_gt(broker_wait_worker_of(&broker, "t", 0, victim, 30000), 0);
	procs_untrace(&tracer);
	close(fd);
	fd = connect_tcp();
	ck_assert_int_eq(produce_seeded(fd, "t", neighbour, WIRE_FORCED, 3, 10), 0);
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, 3, 10), 0);
	expect_stored(fd, &stored);
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_failed", NULL, 0, 30000));
	expect_health(200, "ok");
	for (int i = 0; i < CALLERS; i++)
		close(callers[i]);
	close(held);
	close(fd);
	broker_stop(&broker);
	broker_restart(&broker, NULL);
	fd = connect_tcp();
	ck_assert_int_ge(wire_high_watermark(fd, "t", 0), 4);
	expect_stored(fd, &stored);
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, 3, 10), 0);
	expect_health(200, "ok");
	close(fd);
	wire_bytes_free(&request);
	wire_bytes_free(&stored);
	finish();
}
END_TEST

/* What is left of that directory's file system. */
static void
take_room(const char *directory)
{
	static const char zeros[4096];
	char path[PATH_BYTES + 16];
	int fd;

	snprintf(path, sizeof path, "%s/rest", directory);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	while (write(fd, zeros, sizeof zeros) > 0)
		;
	close(fd);
}

static void
expect_all_refused(int fd, const struct wire_bytes *frames, size_t requests)
{
	struct wire_bytes answers = { 0 };
	struct wire_answer answer;
	size_t position = 0;

	ck_assert_uint_eq(wire_exchange(fd, frames->data, frames->length, requests, &answers, WIRE_DEADLINE_MS), requests);
	while (wire_next_answer(&answers, &position, &answer))
		ck_assert_int_eq(answer.error, WIRE_STORAGE_FAILURE);
	wire_bytes_free(&answers);
}

/* A partition on a file system of its own, of four megabytes, one of them taken by a file that can go. */
START_TEST(bug_B2_B7_bug_B9_full_disk)
{
	enum { SIZE = 60000, SMALL = 5000, MORE = 1000, TIMES = 10 };
	char path[PATH_BYTES], ballast[PATH_BYTES + 16];
	struct wire_bytes stored = { 0 }, frames = { 0 };
	struct stat before, after;
	int64_t count = 0, began;
	long lines;
	int fd, code;
	int32_t neighbour, elsewhere;
	char *zeros = calloc(1, 1024 * 1024);

	if (!procs_may_mount()) {
		procs_skipped("bug_B2_B7_bug_B9_full_disk", "this user cannot mount here");
		free(zeros);
		return;
	}
	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 4\n", .log = modes[_i].larger_segments });
	broker_partition_path(&broker, "t", 0, -1, path, sizeof path);
	ck_assert_int_eq(mkdir(broker.data_dir, 0750), 0);
	ck_assert_int_eq(mkdir(path, 0750), 0);
	if (mount("none", path, "tmpfs", 0, "size=4m,mode=0750") < 0) {
		procs_skipped("bug_B2_B7_bug_B9_full_disk", "no tmpfs can be mounted here");
		broker_end(&broker);
		free(zeros);
		return;
	}
	snprintf(ballast, sizeof ballast, "%s/ballast", path);
	procs_write_file(ballast, zeros, 1024 * 1024);
	broker_launch(&broker);
	broker_wait_ready(&broker);
	fd = connect_tcp();
	neighbour = partition_with_group(fd, wire_group(fd, "t", 0), 0);
	elsewhere = partition_with_group(fd, 1 - wire_group(fd, "t", 0), 0);
	while ((code = produce_seeded(fd, "t", 0, count % 4 ? WIRE_WRITTEN : WIRE_FORCED, count, SIZE)) == 0) {
		put_stored(&stored, true, count++, SIZE);
		ck_assert_int_lt(count, 100);
	}
	ck_assert_int_eq(code, WIRE_STORAGE_FAILURE);
	ck_assert_int_gt(count, 20);
	/* Readers, other partitions, METADATA do not notice. */
	expect_log(fd, "t", 0, count, true, &stored);
	expect_caught_up(fd, "t", 0, count);
	lines = broker_count_log(&broker, "t-0");
	ck_assert_int_eq(stat(broker.log_path, &before), 0);
	take_room(path);
	while (produce_seeded(fd, "t", 0, WIRE_WRITTEN, count, SMALL) == 0)
		put_stored(&stored, true, count++, SMALL);
	for (int i = 0; i < MORE; i++)
		wire_put_produce_one(&frames, i, "t", 0, i % 2 ? WIRE_WRITTEN : WIRE_FORCED, zeros, SMALL);
	for (int i = 0; i < TIMES; i++) {
		expect_all_refused(fd, &frames, MORE);
		ck_assert_int_eq(produce_seeded(fd, "t", neighbour, WIRE_FORCED, i, SIZE), 0);
		ck_assert_int_eq(produce_seeded(fd, "t", elsewhere, WIRE_FORCED, i, SIZE), 0);
		ck_assert_int_eq(wire_high_watermark(fd, "t", 0), count);
	}
	wire_bytes_free(&frames);
	ck_assert_msg(broker_count_log(&broker, "t-0") - lines < 20, "%ld lines about it", broker_count_log(&broker, "t-0") - lines);
	ck_assert_int_eq(stat(broker.log_path, &after), 0);
	ck_assert_int_lt(after.st_size - before.st_size, 64 * 1024);
	ck_assert(broker_wait_metric_least(&broker, "logbroker_storage_errors_total", NULL, 1, 30000));
	/* With room again it writes again, by itself, from the same offset. */
	ck_assert_int_eq(unlink(ballast), 0);
	began = wire_now_ms();
	while (produce_seeded(fd, "t", 0, WIRE_WRITTEN, count, SIZE) != 0)
		ck_assert_int_lt(wire_now_ms() - began, 10000);
	put_stored(&stored, true, count++, SIZE);
	ck_assert_int_eq(produce_seeded(fd, "t", 0, WIRE_FORCED, count, SIZE), 0);
	put_stored(&stored, true, count++, SIZE);
	expect_log(fd, "t", 0, count, true, &stored);
	for (int w = 0; w < 2; w++)
		ck_assert_int_eq(kill(broker.workers[w], 0), 0);
	close(fd);
	broker_kill(&broker);
	broker_restart(&broker, NULL);
	fd = connect_tcp();
	expect_log(fd, "t", 0, count, true, &stored);
	close(fd);
	finish();
	ck_assert_int_eq(umount2(path, MNT_DETACH), 0);
	wire_bytes_free(&stored);
	free(zeros);
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("bugs");
	TCase *tc = tcase_create("bugs"), *kills = tcase_create("kills");

	tcase_set_timeout(tc, 100 + 40 * broker_scale());
	tcase_add_test(tc, bug_A2_last_segment_cut_at_every_byte);
	tcase_add_test(tc, bug_A2_last_segment_cut_at_every_byte_plain);
	tcase_add_test(tc, bug_A5_impossible_length);
	tcase_add_test(tc, bug_A5_impossible_length_plain);
	tcase_add_test(tc, bug_A8_foreign_entries);
	tcase_add_loop_test(tc, bug_A13_flipped_byte_in_a_sealed_segment, 0, MODES);
	tcase_add_loop_test(tc, bug_A19_flipped_bit_that_no_recovery_point_covers, 0, MODES);
	tcase_add_test(tc, bug_A21_last_record_torn_at_a_page_boundary);
	tcase_add_loop_test(tc, bug_B2_B7_bug_B9_full_disk, 0, MODES);
	tcase_add_test(tc, bug_B3_failed_barrier);
	tcase_add_test(tc, bug_E1_record_larger_than_max_bytes);
	tcase_add_test(tc, bug_F1_length_that_is_believed);
	tcase_add_test(tc, bug_F1_large_frames_that_never_come);
	tcase_add_test(tc, bug_F3_foreign_protocols);
	tcase_add_test(tc, bug_F3_kafka_clients);
	tcase_add_test(tc, bug_G4_pipelines_that_are_never_read);
	tcase_add_test(tc, bug_G6_reset_in_the_middle_of_a_body);
	tcase_add_test(tc, bug_K1_answer_leaves_behind_the_barrier);
	tcase_add_loop_test(tc, bug_K1_flush_keys_force_what_nobody_waits_for, 0, MODES);
	tcase_add_loop_test(tc, bug_K2_nobody_waits_for_a_slow_barrier, 0, MODES);
	tcase_add_test(tc, bug_K4_group_commit);
	suite_add_tcase(s, tc);
	/* Two hundred rounds with LOGBROKER_TEST_SCALE=17. */
	tcase_set_timeout(kills, 100 + 40 * broker_scale());
	tcase_add_loop_test(kills, bug_A20_killed_and_started_again_and_again, 0, MODES);
	suite_add_tcase(s, kills);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
