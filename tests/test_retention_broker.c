/*
 * Retention in a really started broker: which segments go and when, what readers and METADATA see of it, what is left of them
 * anywhere, and that it comes through failures, full disks, clocks that are set, kills and stops.
 *
 * LOGBROKER_TEST_FILE_MB: how much goes through the longest of them (20 times LOGBROKER_TEST_SCALE).
 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum {
	SOON_MS = 20000,
	PAYLOAD = 1000,
	RECORD = 8 + PAYLOAD,
	BATCH = 16,
	MAX_FETCH = 8 * 1024 * 1024,
	SEGMENTS_MAX = 8192,
	OUT_OF_RANGE = WIRE_OFFSET_OUT_OF_RANGE,
};

static const char *const modes[] = { "file", "mapped" };
enum { MODES = sizeof(modes) / sizeof(modes[0]) };

static struct broker broker;

/* ---- records: their bytes follow from partition and offset ------------------------------------------------------- */

static void
fill(int32_t partition, int64_t offset, uint8_t *to)
{
	uint64_t state = (uint64_t)offset * 1000 + (uint64_t)partition;

	for (size_t i = 0; i < PAYLOAD; i += 8) {
		uint64_t word = wire_random(&state);

		memcpy(to + i, &word, 8);
	}
}

/* A batch whose first record gets the offset `from`. Returns the error code or a negative value. */
static int
try_produce(int fd, int32_t partition, int64_t from, int ack)
{
	static _Thread_local uint8_t payloads[BATCH][PAYLOAD];
	struct wire_record records[BATCH];
	int64_t base, end;
	int code;

	for (int i = 0; i < BATCH; i++) {
		fill(partition, from + i, payloads[i]);
		records[i] = (struct wire_record){ payloads[i], PAYLOAD };
	}
	code = wire_produce(fd, "t", partition, ack, records, BATCH, &base, &end);
	if (code == 0)
		ck_assert_int_eq(base, from);
	return code;
}

/* At least that many records from the offset on; returns the offset behind them. */
static int64_t
produce(int fd, int32_t partition, int64_t from, int64_t count)
{
	int64_t end = from + count;

	for (; from < end; from += BATCH)
		ck_assert_int_eq(try_produce(fd, partition, from, WIRE_WRITTEN), 0);
	return from;
}

/* Every whole record is the one of its offset; returns the offset behind them. */
static int64_t
expect_records(int32_t partition, int64_t offset, const uint8_t *payload, size_t length)
{
	struct wire_record record;
	uint8_t expected[PAYLOAD];
	size_t position = 0;
	bool good;

	while (wire_next_record(payload, length, &position, true, &record, &good)) {
		ck_assert_msg(good, "offset %" PRId64, offset);
		fill(partition, offset, expected);
		ck_assert_uint_eq(record.length, PAYLOAD);
		ck_assert_msg(memcmp(record.payload, expected, PAYLOAD) == 0, "offset %" PRId64, offset);
		offset++;
	}
	return offset;
}

/* All records from `from` to the watermark `to` are there. */
static void
expect_log(int fd, int32_t partition, int64_t from, int64_t to)
{
	while (from < to) {
		struct wire_fetched fetched;
		int64_t next;

		ck_assert_int_eq(wire_fetch(fd, "t", partition, from, MAX_FETCH, 0, 0, &fetched), 0);
		next = expect_records(partition, from, fetched.payload, fetched.length);
		wire_fetched_free(&fetched);
		ck_assert_int_gt(next, from);
		from = next;
	}
	ck_assert_int_eq(from, to);
}

/* All that the log holds, up to the watermark `to`, while retention may still go on. */
static void
expect_rest(int fd, int32_t partition, int64_t to)
{
	int64_t from = 0;

	while (from < to) {
		struct wire_fetched fetched;
		int64_t before = from;
		int code = wire_fetch(fd, "t", partition, from, MAX_FETCH, 0, 0, &fetched);

		if (code == OUT_OF_RANGE) {
			from = wire_log_start(fd, "t", partition);
		} else {
			ck_assert_int_eq(code, 0);
			from = expect_records(partition, from, fetched.payload, fetched.length);
			wire_fetched_free(&fetched);
		}
		ck_assert_int_gt(from, before);
	}
	ck_assert_int_eq(from, to);
}

/* ---- the broker -------------------------------------------------------------------------------------------------- */

static int
connect_tcp(void)
{
	int fd = wire_connect_tcp(broker.port);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* One topic "t"; `log` is more of [log]. */
static void
start(const char *mode, const char *topics, const char *log)
{
	static char lines[1024];

	snprintf(lines, sizeof lines, "write_mode = %s\n%s", mode, log);
	broker_start(&broker, &(struct broker_config){ .topics = topics, .log = lines });
}

/* Behind broker_prepare: the data directory becomes a file system of its own, in memory. False when there can be none here. */
static bool
data_on_tmpfs(const char *options)
{
	ck_assert_int_eq(mkdir(broker.data_dir, 0750), 0);
	return procs_may_mount() && mount("none", broker.data_dir, "tmpfs", 0, options) == 0;
}

static void
skip_without_tmpfs(const char *test)
{
	procs_skipped(test, "no tmpfs can be mounted here");
	broker_end(&broker);
}

/* A broker's environment in which every force takes so long, and the wall clock is set_clock's. */
static const char *const *
preloads(int force_ms)
{
	static char libraries[BROKER_PATH_BYTES * 2 + 16], us[64], clock[64] = "WALLCLOCK_FILE=clock";
	static const char *environment[] = { libraries, us, clock, NULL };
	char wallclock[BROKER_PATH_BYTES], slowsync[BROKER_PATH_BYTES];

	broker_build_path("tests/wallclock.so", wallclock, sizeof wallclock);
	broker_build_path("tests/slowsync.so", slowsync, sizeof slowsync);
	snprintf(libraries, sizeof libraries, "LD_PRELOAD=%s:%s", wallclock, slowsync);
	snprintf(us, sizeof us, "SLOWSYNC_US=%d", force_ms * 1000);
	return environment;
}

/* Behind broker_prepare. The file is mapped by running processes: it is never shorter. */
static void
set_clock(int64_t off_by_s)
{
	char path[BROKER_PATH_BYTES + 16];

	snprintf(path, sizeof path, "%s/clock", broker.directory);
	if (procs_file_size(path) == sizeof off_by_s)
		procs_patch_file(path, 0, &off_by_s, sizeof off_by_s);
	else
		procs_write_file(path, &off_by_s, sizeof off_by_s);
}

static void
finish(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

static int
segment_count(int32_t partition)
{
	int64_t bases[SEGMENTS_MAX];

	return broker_segments(&broker, "t", partition, bases, SEGMENTS_MAX);
}

static int64_t
first_segment(int32_t partition)
{
	int64_t bases[SEGMENTS_MAX];

	return broker_segments(&broker, "t", partition, bases, SEGMENTS_MAX) > 0 ? bases[0] : -1;
}

struct awaited {
	int fd;
	int32_t partition;
	int64_t number;
};

static bool
start_reached(void *with)
{
	const struct awaited *a = with;

	return wire_log_start(a->fd, "t", a->partition) >= a->number;
}

static void
wait_log_start(int fd, int32_t partition, int64_t least)
{
	struct awaited a = { fd, partition, least };

	ck_assert_msg(broker_wait(start_reached, &a, SOON_MS), "the log starts at %" PRId64 ", not %" PRId64,
	    wire_log_start(fd, "t", partition), least);
}

static bool
files_begin_at(void *with)
{
	const struct awaited *a = with;

	return first_segment(a->partition) == a->number;
}

static bool
files_left(void *with)
{
	const struct awaited *a = with;

	return segment_count(a->partition) <= a->number;
}

static void
wait_files(int32_t partition, int most)
{
	struct awaited a = { -1, partition, most };

	ck_assert_msg(broker_wait(files_left, &a, SOON_MS), "%d segments in partition %d", segment_count(partition), partition);
}

/* Segments that have no name any more and that the process has open or mapped. */
static int
unlinked_in(pid_t pid)
{
	char path[64];
	size_t length;
	char *maps;
	int count = broker_fd_count_of(pid, ".log (deleted)");

	snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
	maps = procs_read_file(path, &length);
	for (const char *at = maps; (at = strstr(at, ".log (deleted)")) != NULL; at++)
		count++;
	free(maps);
	return count;
}

static int
unlinked_anywhere(void)
{
	pid_t pids[BROKER_WORKERS_MAX];
	int count = unlinked_in(broker.pid), workers = broker_workers(&broker, pids, BROKER_WORKERS_MAX);

	for (int i = 0; i < workers; i++)
		count += unlinked_in(pids[i]);
	return count;
}

static bool
nothing_unlinked(void *with)
{
	(void)with;
	return unlinked_anywhere() == 0;
}

static void
expect_nothing_left(void)
{
	ck_assert_msg(broker_wait(nothing_unlinked, NULL, SOON_MS), "%d unlinked segments are still open", unlinked_anywhere());
}

/* ---- a reader that has asked and does not read -------------------------------------------------------------------- */

struct slow_reader {
	int fd;
	int32_t partition;
	int64_t offset;
};

/* Little is on its way to it, the rest of the answer stays with the broker. */
static struct slow_reader
ask_and_stall(int32_t partition, int64_t offset)
{
	struct slow_reader reader = { connect_tcp(), partition, offset };
	struct wire_bytes request = { 0 };
	int small = 65536;
	uint8_t first[14];

	setsockopt(reader.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	wire_put_fetch(&request, 1, "t", partition, offset, MAX_FETCH, 0, 0);
	ck_assert_int_eq(wire_send(reader.fd, request.data, request.length), 0);
	wire_bytes_free(&request);
	/* It is being answered: its length is announced. */
	for (size_t got = 0; got == 0;) {
		long n = recv(reader.fd, first, sizeof first, MSG_PEEK);

		ck_assert_int_gt(n, 0);
		got = n == sizeof first ? 1 : 0;
	}
	return reader;
}

/* Reads it to its end: all that was announced, byte for byte. Returns the offset behind it. */
static int64_t
read_on(struct slow_reader *reader)
{
	struct wire_answer answer;
	struct wire_fetched fetched;
	int64_t next;
	int wide = 4 * 1024 * 1024;

	setsockopt(reader->fd, SOL_SOCKET, SO_RCVBUF, &wide, sizeof wide);
	ck_assert_int_eq(wire_read_answer(reader->fd, &answer, SOON_MS), 0);
	ck_assert_int_eq(answer.error, 0);
	ck_assert_int_eq(wire_parse_fetched(&answer, &fetched), 0);
	next = expect_records(reader->partition, reader->offset, fetched.payload, fetched.length);
	ck_assert_int_gt(next, reader->offset);
	wire_fetched_free(&fetched);
	wire_answer_free(&answer);
	return next;
}

/* ---- by bytes ----------------------------------------------------------------------------------------------------- */

START_TEST(A12_retention_to_one_byte)
{
	struct slow_reader reader;
	int64_t end, active;
	pid_t worker;
	int fd;

	start(modes[_i], "t = 1\n", "segment_bytes = 12MiB\nretention_bytes = 1\nretention_check_interval = 50ms\n");
	fd = connect_tcp();
	worker = broker_worker_of(&broker, "t", 0);
	end = produce(fd, 0, 0, 12000);
	reader = ask_and_stall(0, 0);
	/* Sealed, taken out of the log and unlinked while it is being sent; so is the next one. */
	end = produce(fd, 0, end, 15000);
	wait_files(0, 1);
	active = first_segment(0);
	ck_assert_int_gt(active, 12000);
	ck_assert_int_eq(wire_log_start(fd, "t", 0), active);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), end);
	ck_assert_int_ge(unlinked_in(worker), 1);
	ck_assert_int_gt(read_on(&reader), 8000);
	expect_nothing_left();
	for (int64_t offset = 0; offset < active; offset += active / 7)
		ck_assert_int_eq(wire_fetch(fd, "t", 0, offset, 1000, 0, 0, &(struct wire_fetched){ 0 }), OUT_OF_RANGE);
	expect_log(fd, 0, active, end);
	close(reader.fd);
	close(fd);
	finish();
}
END_TEST

START_TEST(bug_C1_a_reader_that_falls_out_of_the_log_is_told)
{
	struct wire_fetched fetched;
	struct slow_reader reader;
	int64_t end, offset;
	int fd, told = 0;

	start(modes[_i], "t = 1\n", "segment_bytes = 12MiB\nretention_bytes = 20MiB\n");
	fd = connect_tcp();
	end = produce(fd, 0, 0, 13000);
	reader = ask_and_stall(0, 0);
	end = produce(fd, 0, end, 40000);
	offset = read_on(&reader);
	/* On the same connection, from there on, to the end: data, or that it is out of range, never "caught up" before the end. */
	while (offset < end) {
		int code = wire_fetch(reader.fd, "t", 0, offset, 1024 * 1024, 0, 0, &fetched);

		if (code == OUT_OF_RANGE) {
			ck_assert_int_gt(wire_log_start(fd, "t", 0), offset);
			offset = wire_log_start(fd, "t", 0);
			told++;
			continue;
		}
		ck_assert_int_eq(code, 0);
		ck_assert_uint_gt(fetched.length, 0);
		offset = expect_records(0, offset, fetched.payload, fetched.length);
		wire_fetched_free(&fetched);
	}
	ck_assert_int_eq(told, 1);
	close(reader.fd);
	close(fd);
	finish();
}
END_TEST

START_TEST(B06_bug_C11_held_where_retention_passes)
{
	struct wire_bytes request = { 0 };
	struct wire_answer answer;
	int64_t end, began;
	int fd, held;

	start(modes[_i], "t = 1\n", "segment_bytes = 64KiB\nretention_bytes = 1\n");
	fd = connect_tcp();
	held = connect_tcp();
	end = produce(fd, 0, 0, 16);
	wire_put_fetch(&request, 7, "t", 0, end, MAX_FETCH, 60000, MAX_FETCH);
	ck_assert_int_eq(wire_send(held, request.data, request.length), 0);
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, 1, SOON_MS));
	began = wire_now_ms();
	produce(fd, 0, end, 200);
	ck_assert_int_eq(wire_read_answer(held, &answer, SOON_MS), 0);
	ck_assert_int_lt(wire_now_ms() - began, 30000);
	ck_assert_int_eq(answer.error, OUT_OF_RANGE);
	ck_assert_int_eq(answer.id, 7);
	wire_answer_free(&answer);
	ck_assert_int_gt(wire_log_start(fd, "t", 0), end);
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_wakeups_total", "cause=\"retention\"", 1, SOON_MS));
	ck_assert(broker_wait_metric(&broker, "logbroker_fetch_held", NULL, 0, SOON_MS));
	/* The connection is well. */
	ck_assert_int_ge(wire_high_watermark(held, "t", 0), 200);
	wire_bytes_free(&request);
	close(held);
	close(fd);
	finish();
}
END_TEST

static double
used_bytes(const char *path)
{
	struct statvfs at;

	ck_assert_int_eq(statvfs(path, &at), 0);
	return (double)(at.f_blocks - at.f_bfree) * (double)at.f_frsize;
}

struct room {
	const char *path;
	double most;
};

static bool
room_is_back(void *with)
{
	const struct room *room = with;

	return used_bytes(room->path) <= room->most;
}

/* On a file system of its own, where what is used can be told. */
START_TEST(bug_C3_files_and_room_come_back)
{
	enum { READERS = 3, MIB = 1024 * 1024 };
	struct slow_reader readers[READERS];
	char log[256];
	int64_t end = 0;
	int fd;

	snprintf(log, sizeof log, "write_mode = %s\nsegment_bytes = 12MiB\nretention_bytes = 1\n", modes[_i]);
	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = log });
	if (!data_on_tmpfs("size=200m,mode=0750")) {
		skip_without_tmpfs("bug_C3_files_and_room_come_back");
		return;
	}
	broker_launch(&broker);
	broker_wait_ready(&broker);
	fd = connect_tcp();
	for (int i = 0; i < READERS; i++) {
		end = produce(fd, 0, end, 10000);
		readers[i] = ask_and_stall(0, wire_log_start(fd, "t", 0));
	}
	end = produce(fd, 0, end, 13000);
	wait_files(0, 1);
	/* What readers have is still there, and nothing else. */
	ck_assert_int_ge(unlinked_anywhere(), 1);
	ck_assert(used_bytes(broker.data_dir) > 12.0 * MIB);
	/* One reads to its end, one resets, one just goes. */
	read_on(&readers[0]);
	close(readers[0].fd);
	wire_close_reset(readers[1].fd);
	close(readers[2].fd);
	expect_nothing_left();
	ck_assert(broker_wait(room_is_back, &(struct room){ broker.data_dir, 13.0 * MIB }, SOON_MS));
	expect_log(fd, 0, wire_log_start(fd, "t", 0), end);
	close(fd);
	finish();
	ck_assert_int_eq(umount2(broker.data_dir, MNT_DETACH), 0);
}
END_TEST

START_TEST(bug_C9_exactly_the_active_segment_remains)
{
	int64_t end = 0, start_before = 0;
	int fd;

	start(modes[_i], "t = 2\n", "segment_bytes = 64KiB\nretention_bytes = 1\n");
	fd = connect_tcp();
	for (int i = 0; i < 10; i++) {
		int64_t log_start;

		end = produce(fd, 1, end, 200);
		wait_files(1, 1);
		log_start = wire_log_start(fd, "t", 1);
		ck_assert_int_eq(log_start, first_segment(1));
		ck_assert_int_gt(log_start, start_before);
		ck_assert_int_gt(end - log_start, 0);
		expect_log(fd, 1, log_start, end);
		start_before = log_start;
	}
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_segments", "partition=\"1\"", 1, SOON_MS));
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_size_bytes", "partition=\"1\"",
	    (double)(end - start_before) * RECORD, SOON_MS));
	ck_assert(broker_wait_metric(&broker, "logbroker_partition_log_start_offset", "partition=\"1\"", (double)start_before, SOON_MS));
	/* The neighbour keeps its one segment. */
	ck_assert_int_eq(segment_count(0), 1);
	close(fd);
	finish();
}
END_TEST

/* One line in ten seconds, and that stands for all since the one before. */
START_TEST(bug_B9_the_log_tells_of_all_that_was_removed)
{
	char text[64], *lines, *at;
	int64_t segments, bytes = 0, end = 0, log_start;
	int fd;

	start(modes[0], "t = 1\n", "segment_bytes = 64KiB\nretention_bytes = 1\n");
	fd = connect_tcp();
	for (int i = 0; i < 10; i++)
		end = produce(fd, 0, end, 200);
	wait_files(0, 1);
	log_start = wire_log_start(fd, "t", 0);
	snprintf(text, sizeof text, "begins at offset %" PRId64 " now", log_start);
	ck_assert(broker_wait_log(&broker, text, 10000 + SOON_MS));
	lines = broker_copy_log(&broker);
	for (at = lines; (at = strstr(at, "retention removes ")) != NULL; at++) {
		int64_t more;

		ck_assert_int_eq(sscanf(at, "retention removes %" SCNd64 " %*s with %" SCNd64, &segments, &more), 2);
		bytes += more;
	}
	ck_assert_int_eq(bytes, log_start * RECORD);
	ck_assert_int_le(broker_count_log(&broker, "retention removes"), 4);
	free(lines);
	close(fd);
	finish();
}
END_TEST

/* Without both keys nothing goes. */
START_TEST(nothing_goes_without_being_asked)
{
	int64_t end;
	int fd;

	start(modes[_i], "t = 1\n", "segment_bytes = 64KiB\nretention_check_interval = 1ms\n");
	fd = connect_tcp();
	end = produce(fd, 0, 0, 2000);
	ck_assert_int_gt(segment_count(0), 20);
	ck_assert_int_eq(wire_log_start(fd, "t", 0), 0);
	expect_log(fd, 0, 0, end);
	close(fd);
	finish();
}
END_TEST

/* ---- by age ------------------------------------------------------------------------------------------------------- */

START_TEST(bug_C5_age_goes_on_through_many_rolls)
{
	int64_t end = 0, raised = 0, before = 0, began = wire_now_ms();
	int rolls = 0, most = 0;
	int fd;

	start(modes[_i], "t = 1\n", "segment_bytes = 256KiB\nretention_age = 1s\nretention_check_interval = 20ms\n");
	fd = connect_tcp();
	while (raised < 20) {
		int64_t log_start;
		int files;

		end = produce(fd, 0, end, 64);
		log_start = wire_log_start(fd, "t", 0);
		ck_assert_int_ge(log_start, before);
		raised += log_start > before;
		before = log_start;
		files = segment_count(0);
		most = files > most ? files : most;
		ck_assert_int_lt(wire_now_ms() - began, 60000);
		usleep(4000);
	}
	rolls = (int)(end / (256 * 1024 / RECORD));
	ck_assert_int_gt(rolls, 20);
	printf("bug_C5: %d rolls, at most %d files, in %lld ms\n", rolls, most, (long long)(wire_now_ms() - began));
	/* Every one of them went by its own age: at the end even the last record. */
	wait_log_start(fd, 0, end);
	wait_files(0, 1);
	close(fd);
	finish();
}
END_TEST

/* An idle topic ends as an empty segment, and goes on from there, also when everything is killed and started again. */
START_TEST(bug_A18_bug_C9_an_idle_topic_ends_empty_and_keeps_its_numbers)
{
	int64_t end;
	int fd;

	start(modes[_i], "t = 1\n", "segment_bytes = 64KiB\nretention_age = 1s\nretention_check_interval = 20ms\n");
	fd = connect_tcp();
	end = produce(fd, 0, 0, 500);
	wait_log_start(fd, 0, end);
	wait_files(0, 1);
	ck_assert_int_eq(first_segment(0), end);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), end);
	for (int i = 0; i < 2; i++) {
		close(fd);
		if (i == 0)
			broker_kill(&broker);
		else
			broker_stop(&broker);
		broker_restart(&broker, NULL);
		fd = connect_tcp();
		ck_assert_int_eq(wire_log_start(fd, "t", 0), end);
		ck_assert_int_eq(wire_high_watermark(fd, "t", 0), end);
		ck_assert_int_eq(segment_count(0), 1);
		ck_assert_int_eq(wire_fetch(fd, "t", 0, end - 1, 1000, 0, 0, &(struct wire_fetched){ 0 }), OUT_OF_RANGE);
	}
	ck_assert_int_eq(produce(fd, 0, end, BATCH), end + BATCH);
	expect_log(fd, 0, end, end + BATCH);
	close(fd);
	finish();
}
END_TEST

START_TEST(a_segment_is_sealed_at_its_age)
{
	int64_t end, began;
	int fd;

	start(modes[_i], "t = 2\n", "segment_age = 1s\nvisibility = durable\n");
	fd = connect_tcp();
	began = wire_now_ms();
	end = produce(fd, 0, 0, BATCH);
	while (segment_count(0) == 1) {
		ck_assert_int_lt(wire_now_ms() - began, SOON_MS);
		usleep(2000);
	}
	ck_assert_int_ge(wire_now_ms() - began, 1000);
	/* An empty one has no age; the next record gives it one, under steady load too. */
	ck_assert_int_eq(segment_count(1), 1);
	while (segment_count(0) < 4) {
		end = produce(fd, 0, end, BATCH);
		ck_assert_int_lt(wire_now_ms() - began, SOON_MS);
	}
	ck_assert_int_ge(wire_now_ms() - began, 3000);
	ck_assert_int_eq(wire_log_start(fd, "t", 0), 0);
	expect_log(fd, 0, 0, end);
	close(fd);
	finish();
}
END_TEST

START_TEST(bug_C5_each_topic_keeps_what_it_is_told)
{
	int64_t bases[SEGMENTS_MAX], end;
	uint8_t payload[PAYLOAD] = { 1 };
	int fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\nu = 1\n", .log = "segment_bytes = 16KiB\n"
		"retention_bytes = 1\n", .sections = "[topic u]\nretention_bytes = 64KiB\n" });
	fd = connect_tcp();
	end = produce(fd, 0, 0, 160);
	for (int i = 0; i < 160; i++)
		ck_assert_int_eq(wire_produce_one(fd, "u", 0, WIRE_WRITTEN, payload, sizeof payload, NULL), 0);
	wait_files(0, 1);
	ck_assert_int_gt(wire_log_start(fd, "t", 0), 140);
	ck_assert_int_ge(wire_log_start(fd, "u", 0), 79);
	ck_assert_int_lt(wire_log_start(fd, "u", 0), 120);
	ck_assert_int_ge(broker_segments(&broker, "u", 0, bases, SEGMENTS_MAX), 3);
	expect_log(fd, 0, wire_log_start(fd, "t", 0), end);
	close(fd);
	finish();
}
END_TEST

/* ---- the wall clock ------------------------------------------------------------------------------------------------ */

/* A broker whose wall clock is set_clock's. */
static void
start_with_clock(const char *log)
{
	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 1\n", .log = log, .environment = preloads(0) });
	set_clock(0);
	broker_launch(&broker);
	broker_wait_ready(&broker);
}

START_TEST(bug_C7_a_wall_clock_that_is_set)
{
	static const int64_t steps_s[] = { -3600, 3600, 86400, -86400, 0 };
	struct wire_fetched fetched;
	int64_t end = 0, began;
	pid_t worker;
	int fd;

	start_with_clock("segment_bytes = 64KiB\nretention_age = 10min\nretention_check_interval = 5ms\nsegment_age = 10min\n");
	fd = connect_tcp();
	worker = broker_worker_of(&broker, "t", 0);
	for (size_t i = 0; i < sizeof steps_s / sizeof steps_s[0]; i++) {
		int64_t cpu_ms;

		end = produce(fd, 0, end, 300);
		set_clock(steps_s[i]);
		end = produce(fd, 0, end, 300);
		/* A hold ends when it should by a clock that nobody sets, and nothing spins meanwhile. */
		cpu_ms = broker_cpu_ms(worker);
		began = wire_now_ms();
		ck_assert_int_eq(wire_fetch(fd, "t", 0, end, 1000, 500, 1, &fetched), 0);
		ck_assert_uint_eq(fetched.length, 0);
		wire_fetched_free(&fetched);
		ck_assert_int_ge(wire_now_ms() - began, 500);
		ck_assert_int_lt(wire_now_ms() - began, 10000);
		ck_assert_msg(broker_cpu_ms(worker) - cpu_ms < 250, "%lld ms of a processor in %lld ms of waiting",
		    (long long)(broker_cpu_ms(worker) - cpu_ms), (long long)(wire_now_ms() - began));
		/* Nothing has become old by that, nor young. */
		ck_assert_int_eq(wire_log_start(fd, "t", 0), 0);
	}
	expect_log(fd, 0, 0, end);
	close(fd);
	finish();
}
END_TEST

START_TEST(bug_C7_set_while_the_broker_is_down)
{
	struct broker_config config = { .topics = "t = 1\n", .log = "segment_bytes = 64KiB\nretention_age = 2s\n"
		"retention_check_interval = 20ms\n", .environment = preloads(0) };
	int64_t end;
	int fd;

	start_with_clock("segment_bytes = 64KiB\n");
	fd = connect_tcp();
	end = produce(fd, 0, 0, 300);
	close(fd);
	broker_stop(&broker);
	/* Back: the records are of the future, which is said; they age from now on. */
	set_clock(-7200);
	broker_restart(&broker, &config);
	fd = connect_tcp();
	ck_assert(broker_wait_log(&broker, "t-0: ", SOON_MS));
	ck_assert_int_eq(broker_count_log(&broker, "written in the future"), 1);
	wait_log_start(fd, 0, end);
	close(fd);
	finish();
}
END_TEST

/* ---- METADATA ------------------------------------------------------------------------------------------------------ */

struct watch {
	pthread_t thread;
	atomic_bool stop;
	int64_t answers, start, watermark;
	const char *wrong;
};

/* Asks without a pause, on a new connection when the old one is lost. */
static void *
watch_metadata(void *argument)
{
	struct watch *watch = argument;
	int fd = -1;

	while (!watch->stop && watch->wrong == NULL) {
		struct wire_topics topics;

		if (fd == -1 && (fd = wire_connect_tcp(broker.port)) == -1)
			continue;
		if (wire_metadata(fd, 1, "t", &topics) != 0) {
			close(fd);
			fd = -1;
			continue;
		}
		if (topics.list[0].log_start < watch->start)
			watch->wrong = "the log start fell";
		if (topics.list[0].high_watermark < watch->watermark)
			watch->wrong = "the watermark fell";
		if (topics.list[0].log_start > topics.list[0].high_watermark)
			watch->wrong = "the log start is above the watermark";
		watch->start = topics.list[0].log_start;
		watch->watermark = topics.list[0].high_watermark;
		watch->answers++;
		wire_topics_free(&topics);
	}
	if (fd != -1)
		close(fd);
	return NULL;
}

/* In memory where that can be: it is the broker's race, not the disk's. */
START_TEST(bug_E11_neither_end_ever_goes_back)
{
	struct watch watches[2] = { { .stop = false } };
	int rolls = 500 * broker_scale(), kills = 3;
	char log[256];
	int64_t end = 0;
	int fd;

	snprintf(log, sizeof log, "write_mode = %s\nsegment_bytes = 64KiB\nretention_bytes = 100KiB\n"
	    "retention_check_interval = 1ms\n", modes[_i]);
	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = log });
	data_on_tmpfs("mode=0750");
	broker_launch(&broker);
	broker_wait_ready(&broker);
	fd = connect_tcp();
	broker.workers_may_die = true;
	for (int i = 0; i < 2; i++)
		pthread_create(&watches[i].thread, NULL, watch_metadata, &watches[i]);
	for (int i = 1; i <= rolls; i++) {
		end = produce(fd, 0, end, 64);
		if (i % (rolls / (kills + 1)) == 0 && kills-- > 0) {
			pid_t victim = broker_worker_of(&broker, "t", 0);

			kill(victim, SIGKILL);
			ck_assert_int_gt(broker_wait_worker_of(&broker, "t", 0, victim, SOON_MS), 0);
			close(fd);
			fd = connect_tcp();
			end = wire_high_watermark(fd, "t", 0);
		}
	}
	for (int i = 0; i < 2; i++) {
		watches[i].stop = true;
		pthread_join(watches[i].thread, NULL);
		ck_assert_msg(watches[i].wrong == NULL, "%s: %" PRId64 " %" PRId64, watches[i].wrong, watches[i].start, watches[i].watermark);
		ck_assert_int_gt(watches[i].answers, rolls);
		ck_assert_int_gt(watches[i].start, 0);
	}
	expect_rest(fd, 0, end);
	close(fd);
	finish();
}
END_TEST

/* ---- many at once, kills, stops ------------------------------------------------------------------------------------ */

/* A broker that is not started yet, with many segments of `records` records in each of both partitions, in memory where that can
 * be. Returns their end. */
static int64_t
prepare_many(const struct broker_config *config, int segments, int records)
{
	uint8_t *bytes = malloc((size_t)records * RECORD);
	char path[BROKER_PATH_BYTES];

	ck_assert_ptr_nonnull(bytes);
	broker_prepare(&broker, config);
	data_on_tmpfs("mode=0750");
	for (int32_t p = 0; p < 2; p++) {
		broker_partition_path(&broker, "t", p, -1, path, sizeof path);
		ck_assert_int_eq(mkdir(path, 0750), 0);
		for (int64_t base = 0; base < (int64_t)segments * records; base += records) {
			for (int i = 0; i < records; i++) {
				uint8_t *record = bytes + (size_t)i * RECORD;

				fill(p, base + i, record + 8);
				wire_set_i32(record, PAYLOAD);
				wire_set_i32(record + 4, (int32_t)wire_crc32c(record + 8, PAYLOAD));
			}
			broker_partition_path(&broker, "t", p, base, path, sizeof path);
			procs_write_file(path, bytes, (size_t)records * RECORD);
		}
	}
	free(bytes);
	return (int64_t)segments * records;
}

/*
 * What was retired stays so, although the next worker would not retire it: the clock is set back meanwhile, so that to it
 * nothing is old.
 */
START_TEST(a_worker_killed_while_it_unlinks)
{
	struct broker_config config = { .topics = "t = 2\n", .log = "segment_bytes = 64KiB\nretention_age = 2s\n"
		"retention_check_interval = 10ms\n", .environment = preloads(20) };
	struct watch watch = { .stop = false };
	int64_t end = prepare_many(&config, 60, 20), log_start;
	pid_t victim;
	int fd;

	set_clock(-86400);
	broker_launch(&broker);
	broker_wait_ready(&broker);
	broker.workers_may_die = true;
	fd = connect_tcp();
	pthread_create(&watch.thread, NULL, watch_metadata, &watch);
	/* At once, however long the files take. */
	wait_log_start(fd, 0, end - 20);
	wait_files(0, 55);
	victim = broker_worker_of(&broker, "t", 0);
	set_clock(-2 * 86400);
	log_start = wire_log_start(fd, "t", 0);
	kill(victim, SIGKILL);
	ck_assert_int_gt(segment_count(0), 1);
	ck_assert_int_gt(broker_wait_worker_of(&broker, "t", 0, victim, SOON_MS), 0);
	close(fd);
	fd = connect_tcp();
	ck_assert_int_ge(wire_log_start(fd, "t", 0), log_start);
	ck_assert_int_eq(wire_fetch(fd, "t", 0, log_start - 1, 1000, 0, 0, &(struct wire_fetched){ 0 }), OUT_OF_RANGE);
	wait_files(0, 1);
	wait_files(1, 1);
	watch.stop = true;
	pthread_join(watch.thread, NULL);
	ck_assert_msg(watch.wrong == NULL, "%s: %" PRId64 " %" PRId64, watch.wrong, watch.start, watch.watermark);
	ck_assert_int_ge(watch.start, log_start);
	expect_rest(fd, 0, end);
	expect_nothing_left();
	close(fd);
	finish();
}
END_TEST

/* A stop waits for the jobs under way and for no more; what is left goes when the broker runs again. */
START_TEST(a_stop_while_ten_thousand_files_go)
{
	struct broker_config config = { .topics = "t = 2\n", .workers = 1, .log = "retention_bytes = 1\n",
		.environment = preloads(30) };
	int64_t end = prepare_many(&config, 5000, 1), took;
	int fd;

	broker_launch(&broker);
	broker_wait_ready(&broker);
	fd = connect_tcp();
	for (int32_t p = 0; p < 2; p++)
		ck_assert_int_eq(wire_log_start(fd, "t", p), end - 1);
	close(fd);
	wait_files(0, 4999);
	took = broker_stop(&broker);
	ck_assert_msg(took < 5000, "%lld ms", (long long)took);
	ck_assert_int_gt(segment_count(0), 1);
	/* With a disk that is not slow. */
	config.environment = NULL;
	broker_restart(&broker, &config);
	wait_files(0, 1);
	wait_files(1, 1);
	fd = connect_tcp();
	for (int32_t p = 0; p < 2; p++)
		expect_log(fd, p, wire_log_start(fd, "t", p), end);
	close(fd);
	finish();
}
END_TEST

/* ---- failures ------------------------------------------------------------------------------------------------------- */

START_TEST(a_file_that_cannot_be_unlinked_is_tried_again)
{
	struct broker_config config = { .topics = "t = 2\n", .log = "segment_bytes = 64KiB\nretention_bytes = 1\n"
		"retention_check_interval = 10ms\n", .strace = "-e trace=unlinkat -e inject=unlinkat:error=EIO:when=1..3" };
	int64_t end;
	int fd;

	if (!broker_have_strace()) {
		procs_skipped("a_file_that_cannot_be_unlinked_is_tried_again", "no strace here");
		return;
	}
	broker_start(&broker, &config);
	fd = connect_tcp();
	end = produce(fd, 0, 0, 1000);
	ck_assert(broker_wait_log(&broker, "partition t-0: cannot remove the oldest segment file", SOON_MS));
	ck_assert(broker_wait_metric_least(&broker, "logbroker_storage_errors_total", "op=\"retention\"", 1, SOON_MS));
	wait_files(0, 1);
	expect_log(fd, 0, wire_log_start(fd, "t", 0), end);
	close(fd);
	finish();
}
END_TEST

/* Files that take all inodes, or give them back. */
static void
take_all_inodes(bool take)
{
	char path[BROKER_PATH_BYTES + 32];

	for (int i = 0;; i++) {
		int fd;

		snprintf(path, sizeof path, "%s/ballast-%d", broker.data_dir, i);
		if (!take && unlink(path) < 0)
			return;
		if (take && (fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) < 0)
			return;
		if (take)
			close(fd);
	}
}

/* A full segment waits for a roll; an old one has room, and nobody is refused because it cannot be sealed yet. */
START_TEST(a_roll_by_age_that_fails_refuses_nobody)
{
	int64_t end = 0, began;
	double failures;
	int fd;

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 1\n", .log = "segment_age = 1s\n" });
	if (!data_on_tmpfs("nr_inodes=100,mode=0750")) {
		skip_without_tmpfs("a_roll_by_age_that_fails_refuses_nobody");
		return;
	}
	broker_launch(&broker);
	broker_wait_ready(&broker);
	fd = connect_tcp();
	take_all_inodes(true);
	began = wire_now_ms();
	do {
		end = produce(fd, 0, end, BATCH);
		ck_assert_int_eq(try_produce(fd, 0, end, WIRE_FORCED), 0);
		end += BATCH;
		failures = broker_metric(&broker, "logbroker_storage_errors_total", "op=\"roll\"");
		ck_assert_int_lt(wire_now_ms() - began, SOON_MS);
	} while (failures < 2);
	/* Tried once a second, not in every turn. */
	ck_assert_msg(failures <= (double)(wire_now_ms() - began) / 1000, "%.0f in %lld ms", failures,
	    (long long)(wire_now_ms() - began));
	ck_assert_int_eq(broker_count_log(&broker, "partition t-0: cannot begin a new segment"), 1);
	ck_assert_int_eq(segment_count(0), 1);
	take_all_inodes(false);
	while (segment_count(0) == 1) {
		end = produce(fd, 0, end, BATCH);
		ck_assert_int_lt(wire_now_ms() - began, SOON_MS);
	}
	expect_log(fd, 0, 0, end);
	close(fd);
	finish();
}
END_TEST

/*
 * A disk filled by somebody else: nothing can be written, until the age of what is there gives room, and then by itself.
 */
START_TEST(retention_brings_a_full_disk_back_to_life)
{
	char ballast[BROKER_PATH_BYTES + 16], zeros[4096] = { 0 }, log[256];
	int64_t end, began;
	int fd, to;

	snprintf(log, sizeof log, "write_mode = %s\nsegment_bytes = 256KiB\nretention_age = 3s\nretention_check_interval = 20ms\n",
	    modes[_i]);
	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 1\n", .log = log });
	if (!data_on_tmpfs("size=6m,mode=0750")) {
		skip_without_tmpfs("retention_brings_a_full_disk_back_to_life");
		return;
	}
	broker_launch(&broker);
	broker_wait_ready(&broker);
	fd = connect_tcp();
	end = produce(fd, 0, 0, 3000);
	snprintf(ballast, sizeof ballast, "%s/ballast", broker.data_dir);
	to = open(ballast, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(to, 0);
	while (write(to, zeros, sizeof zeros) > 0)
		;
	close(to);
	began = wire_now_ms();
	while (try_produce(fd, 0, end, WIRE_FORCED) == 0) {
		end += BATCH;
		ck_assert_int_lt(wire_now_ms() - began, SOON_MS);
	}
	while (try_produce(fd, 0, end, WIRE_FORCED) != 0) {
		ck_assert_int_lt(wire_now_ms() - began, SOON_MS);
		usleep(10000);
	}
	end += BATCH;
	ck_assert_int_gt(wire_log_start(fd, "t", 0), 0);
	expect_rest(fd, 0, end);
	close(fd);
	finish();
	ck_assert_int_eq(umount2(broker.data_dir, MNT_DETACH), 0);
}
END_TEST

/* ---- the long one ---------------------------------------------------------------------------------------------------- */

static int64_t
long_records(void)
{
	const char *text = getenv("LOGBROKER_TEST_FILE_MB");
	int64_t mb = text != NULL ? atoll(text) : 20 * broker_scale();

	return (mb > 0 ? mb : 1) * 1000000 / RECORD;
}

struct producer {
	pthread_t thread;
	int32_t partition;
	int64_t records;
	atomic_llong end;	/* acknowledged so far */
	atomic_int failed;
};

static void *
produce_all(void *argument)
{
	struct producer *producer = argument;
	int fd = wire_connect_tcp(broker.port);

	while (producer->end < producer->records && producer->failed == 0) {
		producer->failed = try_produce(fd, producer->partition, producer->end, WIRE_WRITTEN);
		producer->end += BATCH;
	}
	close(fd);
	return NULL;
}

/* Reads everything it can get, slowly, from the beginning; told that it fell behind it goes on at the log's start. */
static void
follow_slowly(struct producer *producer)
{
	int64_t offset = 0, read = 0;
	int fd = connect_tcp(), told = 0;

	while (offset < producer->end || producer->end < producer->records) {
		struct wire_fetched fetched;
		int64_t before = offset;
		int code = wire_fetch(fd, "t", producer->partition, offset, 64 * 1024, 1000, 1, &fetched);

		ck_assert_int_eq(producer->failed, 0);
		if (code == OUT_OF_RANGE) {
			offset = wire_log_start(fd, "t", producer->partition);
			ck_assert_int_gt(offset, before);
			told++;
			continue;
		}
		ck_assert_int_eq(code, 0);
		ck_assert(fetched.length > 0 || fetched.high_watermark == offset);
		offset = expect_records(producer->partition, offset, fetched.payload, fetched.length);
		read += offset - before;
		wire_fetched_free(&fetched);
		/* That is what makes it slow. */
		usleep(5000);
	}
	printf("file_behind_a_slow_reader: partition %d: %lld of %lld records read, fell behind %d times\n", producer->partition,
	    (long long)read, (long long)offset, told);
	close(fd);
}

static void *
follow(void *argument)
{
	follow_slowly(argument);
	return NULL;
}

/* What is on disk from the log start on, file by file, is what was produced. */
static void
expect_files(int32_t partition, int64_t log_start, int64_t end)
{
	int64_t bases[SEGMENTS_MAX];
	int count = broker_segments(&broker, "t", partition, bases, SEGMENTS_MAX);

	ck_assert_int_gt(count, 0);
	ck_assert_int_eq(bases[0], log_start);
	for (int i = 0; i < count; i++) {
		char path[BROKER_PATH_BYTES];
		size_t length;
		char *bytes;
		int64_t next;

		broker_partition_path(&broker, "t", partition, bases[i], path, sizeof path);
		bytes = procs_read_file(path, &length);
		/* Zeros may stand behind the end of the last one. */
		if (i + 1 == count && length > (size_t)(end - bases[i]) * RECORD)
			length = (size_t)(end - bases[i]) * RECORD;
		next = expect_records(partition, bases[i], (const uint8_t *)bytes, length);
		free(bytes);
		ck_assert_int_eq(next, i + 1 < count ? bases[i + 1] : end);
	}
}

START_TEST(file_behind_a_slow_reader)
{
	enum { PARTITIONS = 2 };
	struct producer producers[PARTITIONS];
	pthread_t followers[PARTITIONS];
	int64_t starts[PARTITIONS], ends[PARTITIONS];
	int fd;

	start(modes[_i], "t = 2\n", "segment_bytes = 1MiB\nretention_bytes = 4MiB\nretention_check_interval = 50ms\n");
	for (int p = 0; p < PARTITIONS; p++) {
		producers[p] = (struct producer){ .partition = p, .records = long_records() / PARTITIONS };
		pthread_create(&producers[p].thread, NULL, produce_all, &producers[p]);
		pthread_create(&followers[p], NULL, follow, &producers[p]);
	}
	for (int p = 0; p < PARTITIONS; p++) {
		pthread_join(producers[p].thread, NULL);
		pthread_join(followers[p], NULL);
		ck_assert_int_eq(producers[p].failed, 0);
	}
	expect_nothing_left();
	fd = connect_tcp();
	for (int p = 0; p < PARTITIONS; p++) {
		ends[p] = wire_high_watermark(fd, "t", p);
		ck_assert_int_eq(ends[p], producers[p].end);
		/* What is too much goes with the next check, and its files behind that. */
		wait_log_start(fd, p, ends[p] - 4 * 1024 * 1024 / RECORD);
		starts[p] = wire_log_start(fd, "t", p);
		ck_assert(broker_wait(files_begin_at, &(struct awaited){ -1, p, starts[p] }, SOON_MS));
		expect_log(fd, p, starts[p], ends[p]);
	}
	close(fd);
	broker_stop(&broker);
	for (int p = 0; p < PARTITIONS; p++)
		expect_files(p, starts[p], ends[p]);
	broker_end(&broker);
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("retention in a broker");
	TCase *tc = tcase_create("retention"), *file = tcase_create("file");

	tcase_set_timeout(tc, 120 * broker_scale());
	tcase_add_loop_test(tc, A12_retention_to_one_byte, 0, MODES);
	tcase_add_loop_test(tc, bug_C1_a_reader_that_falls_out_of_the_log_is_told, 0, MODES);
	tcase_add_loop_test(tc, B06_bug_C11_held_where_retention_passes, 0, MODES);
	tcase_add_loop_test(tc, bug_C3_files_and_room_come_back, 0, MODES);
	tcase_add_loop_test(tc, bug_C9_exactly_the_active_segment_remains, 0, MODES);
	tcase_add_test(tc, bug_B9_the_log_tells_of_all_that_was_removed);
	tcase_add_loop_test(tc, nothing_goes_without_being_asked, 0, MODES);
	tcase_add_loop_test(tc, bug_C5_age_goes_on_through_many_rolls, 0, MODES);
	tcase_add_loop_test(tc, bug_A18_bug_C9_an_idle_topic_ends_empty_and_keeps_its_numbers, 0, MODES);
	tcase_add_loop_test(tc, a_segment_is_sealed_at_its_age, 0, MODES);
	tcase_add_test(tc, a_roll_by_age_that_fails_refuses_nobody);
	tcase_add_test(tc, bug_C5_each_topic_keeps_what_it_is_told);
	tcase_add_test(tc, bug_C7_a_wall_clock_that_is_set);
	tcase_add_test(tc, bug_C7_set_while_the_broker_is_down);
	tcase_add_loop_test(tc, bug_E11_neither_end_ever_goes_back, 0, MODES);
	tcase_add_test(tc, a_worker_killed_while_it_unlinks);
	tcase_add_test(tc, a_stop_while_ten_thousand_files_go);
	tcase_add_test(tc, a_file_that_cannot_be_unlinked_is_tried_again);
	tcase_add_loop_test(tc, retention_brings_a_full_disk_back_to_life, 0, MODES);
	suite_add_tcase(s, tc);
	tcase_set_timeout(file, 120 + (double)long_records() * RECORD / 1e6);
	tcase_add_loop_test(file, file_behind_a_slow_reader, 0, MODES);
	suite_add_tcase(s, file);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
