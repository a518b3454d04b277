/*
 * The example programs of client/examples, as they are installed, against a really started broker with three workers: what they print,
 * what they send, and what they leave when they are stopped in the middle.
 */
#include <check.h>
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
#include "runtool.h"
#include "wire.h"

enum { LINES_MAX = 64, PARTITIONS_MAX = 16 };

static struct broker broker;
static struct run run;
static char address[BROKER_PATH_BYTES + 8];
static char positions[BROKER_PATH_BYTES + 16];	/* follow's directory */
static int fd;

/* ---- the broker, and programs with it ---- */

static void
reach(void)
{
	snprintf(address, sizeof address, "unix:%s", broker.unix_path);
	snprintf(positions, sizeof positions, "%s/positions", broker.directory);
	ck_assert(mkdir(positions, 0750) == 0 || errno == EEXIST);
	fd = wire_connect_unix(broker.unix_path);
	ck_assert_int_ge(fd, 0);
}

static void
start(const char *topics, const char *log)
{
	broker_start(&broker, &(struct broker_config){ .topics = topics, .workers = 3, .log = log });
	reach();
}

/* What is acknowledged has been forced, and forcing can be held up. */
static void
start_with_barriers(const char *topics)
{
	procs_start_with_badsync(&broker, &(struct broker_config){ .topics = topics, .workers = 3,
	    .log = "visibility = durable\nflush_interval = off\n" });
	reach();
}

static void
finish(void)
{
	close(fd);
	run_free(&run);
	broker_stop(&broker);
	broker_end(&broker);
}

static void
begin_into(const char *example, const char *arguments, int input_fd, int output_fd)
{
	char name[64], program[BROKER_PATH_BYTES];

	snprintf(name, sizeof name, "client/examples/%s", example);
	broker_build_path(name, program, sizeof program);
	run_start_program(&run, program, arguments, input_fd, output_fd);
}

/* With its standard input a pipe. */
static void
begin(const char *example, const char *arguments)
{
	begin_into(example, arguments, -1, -1);
}

static void
begin_follow(const char *topic, const char *end)
{
	char arguments[BROKER_PATH_BYTES * 3];

	snprintf(arguments, sizeof arguments, "%s %s %s %s", address, topic, positions, end);
	begin("follow", arguments);
}

static void
begin_relay(void)
{
	char arguments[BROKER_PATH_BYTES * 2];

	snprintf(arguments, sizeof arguments, "%s from to", address);
	begin("relay", arguments);
}

static void
produce_lines(const char *topic, const void *lines, size_t bytes)
{
	char arguments[BROKER_PATH_BYTES * 2];
	int input = run_file(lines, bytes);

	snprintf(arguments, sizeof arguments, "%s %s", address, topic);
	begin_into("produce", arguments, input, -1);
	close(input);
	run_end(&run);
}

/* Ended with 1 and said why, in one line that has `text`. */
static void
expect_refusal(const char *text)
{
	ck_assert_int_eq(run.code, 1);
	ck_assert_msg(strstr(run.err, text) != NULL, "%s is not in: %s", text, run.err);
	ck_assert_ptr_eq(strchr(run.err, '\n'), run.err + run.err_bytes - 1);
	ck_assert_uint_eq(run.out_bytes, 0);
}

static void
send_records(const char *topic, int32_t partition, const struct wire_record *records, size_t count)
{
	ck_assert_int_eq(wire_produce(fd, topic, partition, WIRE_WRITTEN, records, count, NULL, NULL), 0);
}

static void
read_log(const char *topic, int32_t partition, struct wire_bytes *log, int64_t *end)
{
	*end = wire_high_watermark(fd, topic, partition);
	ck_assert_int_ge(*end, 0);
	ck_assert_int_eq(wire_read_log(fd, topic, partition, 0, *end, WIRE_PAYLOAD_MAX, true, log), *end);
}

/* ---- produce ---- */

struct golden {
	struct wire_bytes key;
	int partition;		/* of 16 */
};

/* A vector whose key can be the first word of a line. */
static bool
take_vector(const char *row, struct golden *golden)
{
	const char *field = strchr(row, '\t');

	if (*row == '#' || field == NULL)
		return false;
	golden->key = (struct wire_bytes){ 0 };
	wire_put_hex(&golden->key, row);
	if (golden->key.length > 0 && (memchr(golden->key.data, ' ', golden->key.length) != NULL ||
	    memchr(golden->key.data, '\n', golden->key.length) != NULL)) {
		wire_bytes_free(&golden->key);
		return false;
	}
	ck_assert_int_eq(sscanf(field, "%*u %*d %*d %*d %*d %d", &golden->partition), 1);
	return true;
}

static int
read_vectors(struct golden *golden)
{
	char path[BROKER_PATH_BYTES], row[2048];
	FILE *file;
	int count = 0;

	broker_source_path("vectors/partitioner-fnv1a.tsv", path, sizeof path);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (count < LINES_MAX && fgets(row, sizeof row, file) != NULL)
		count += take_vector(row, &golden[count]);
	fclose(file);
	return count;
}

/* The record of that line: its key, a blank, its number. */
static void
put_line(struct wire_bytes *to, const struct golden *golden, int number)
{
	char rest[32];
	int length = snprintf(rest, sizeof rest, " %d", number);

	wire_put(to, golden->key.data, golden->key.length);
	wire_put(to, rest, (size_t)length);
}

static void
expect_record(int32_t partition, int64_t offset, const struct wire_bytes *payload)
{
	struct wire_fetched fetched;
	struct wire_record record;
	size_t position = 0;

	ck_assert_int_eq(wire_fetch(fd, "t", partition, offset, WIRE_PAYLOAD_MAX, 0, 0, &fetched), 0);
	ck_assert(wire_next_record(fetched.payload, fetched.length, &position, true, &record, NULL));
	ck_assert_uint_eq(record.length, payload->length);
	ck_assert(memcmp(record.payload, payload->data, payload->length) == 0);
	wire_fetched_free(&fetched);
}

/* Every line has a receipt that names its partition, and the record is there. */
static void
expect_receipts(const struct golden *golden, int count)
{
	int64_t next[PARTITIONS_MAX] = { 0 };

	for (int i = 0; i < count; i++) {
		struct wire_bytes line = { 0 };
		char receipt[64];

		snprintf(receipt, sizeof receipt, "line %d is t/%d record %" PRId64 "\n", i + 1, golden[i].partition,
		    next[golden[i].partition]);
		ck_assert_msg(strstr(run.out, receipt) != NULL, "%s is not in: %s", receipt, run.out);
		put_line(&line, &golden[i], i + 1);
		expect_record(golden[i].partition, next[golden[i].partition]++, &line);
		wire_bytes_free(&line);
	}
}

START_TEST(C06_produce_sends_each_line_to_its_keys_golden_partition)
{
	struct golden golden[LINES_MAX];
	struct wire_bytes lines = { 0 };
	int count = read_vectors(golden);

	ck_assert_int_ge(count, 8);
	start("t = 16\n", NULL);
	for (int i = 0; i < count; i++) {
		put_line(&lines, &golden[i], i + 1);
		wire_put(&lines, "\n", i < count - 1);	/* the last has none */
	}
	produce_lines("t", lines.data, lines.length);
	ck_assert_str_eq(run.err, "");
	ck_assert_int_eq(run.code, 0);
	expect_receipts(golden, count);
	for (int i = 0; i < count; i++)
		wire_bytes_free(&golden[i].key);
	wire_bytes_free(&lines);
	finish();
}
END_TEST

START_TEST(C08_produce_sends_a_line_while_it_waits_for_the_next)
{
	char arguments[BROKER_PATH_BYTES * 2];
	struct wire_fetched fetched;

	start("t = 1\n", NULL);
	snprintf(arguments, sizeof arguments, "%s t", address);
	begin("produce", arguments);
	for (int64_t offset = 0; offset < 3; offset++) {
		ck_assert_int_eq(write(run.input, "one line\n\n", 10), 10);
		ck_assert_int_eq(wire_fetch(fd, "t", 0, offset, 100, 30000, 1, &fetched), 0);
		ck_assert_int_eq(wire_count_records(fetched.payload, fetched.length, true), 1);
		wire_fetched_free(&fetched);
	}
	run_end(&run);
	ck_assert_int_eq(run.code, 0);
	ck_assert_str_eq(run.out, "line 1 is t/0 record 0\nline 3 is t/0 record 1\nline 5 is t/0 record 2\n");
	finish();
}
END_TEST

/* More than the producer's memory holds, so that it has to wait for acknowledgements. */
START_TEST(C05_produce_sends_more_than_its_memory_holds)
{
	enum { COUNT = 96, BYTES = 1000000 };
	struct wire_bytes lines = { 0 };

	start("t = 1\n", NULL);
	for (int i = 0; i < COUNT; i++) {
		wire_put_zeros(&lines, BYTES);
		lines.data[lines.length - 1] = '\n';
	}
	produce_lines("t", lines.data, lines.length);
	ck_assert_str_eq(run.err, "");
	ck_assert_int_eq(run.code, 0);
	ck_assert_int_eq(wire_high_watermark(fd, "t", 0), COUNT);
	wire_bytes_free(&lines);
	finish();
}
END_TEST

START_TEST(A18_produce_says_what_was_refused)
{
	enum { BYTES = 100000 };
	struct wire_bytes lines = { 0 };

	start("t = 1\n", "segment_bytes = 64KiB\n");
	produce_lines("nothing", "a b\n", 4);
	expect_refusal("UNKNOWN_TOPIC_OR_PARTITION");
	wire_put_zeros(&lines, BYTES);
	produce_lines("t", lines.data, lines.length);
	ck_assert_int_eq(run.code, 1);
	ck_assert_ptr_nonnull(strstr(run.err, "line 1: PRODUCE to t/0, 1 record: "));
	ck_assert_ptr_nonnull(strstr(run.err, "\n1 of 1 records not acknowledged: PRODUCE to t/0, 1 record: "));
	wire_put_zeros(&lines, 1024 * 1024);
	memcpy(lines.data, "good line\n", 10);
	produce_lines("t", lines.data, lines.length);
	ck_assert_int_eq(run.code, 1);
	ck_assert_str_eq(run.out, "line 1 is t/0 record 0\n");
	ck_assert_str_eq(run.err, "line 2 is longer than 1048576 bytes\n");
	wire_bytes_free(&lines);
	finish();
}
END_TEST

/* ---- follow ---- */

/* Records that are no strings, and name their partition and offset. */
static void
send_numbered(const char *topic, int32_t partition, int64_t from, int count)
{
	struct wire_record *records = calloc((size_t)count, sizeof *records);
	char (*texts)[32] = calloc((size_t)count, sizeof *texts);

	for (int i = 0; i < count; i++) {
		int length = snprintf(texts[i], sizeof texts[i], "%d%c%" PRId64, (int)partition, '\0', from + i);

		records[i] = (struct wire_record){ texts[i], (size_t)length };
	}
	send_records(topic, partition, records, (size_t)count);
	free(records);
	free(texts);
}

/* The next line is that record's; returns what is behind it. */
static const char *
expect_line(const char *at, int partition, int64_t offset)
{
	char expected[96];
	int length = snprintf(expected, sizeof expected, "t/%d %" PRId64 ": %d%c%" PRId64 "\n", partition, offset, partition,
	    '\0', offset);

	ck_assert_msg(memcmp(at, expected, (size_t)length) == 0, "offset %" PRId64 " of partition %d: %.60s", offset, partition, at);
	return at + length;
}

/* The output is exactly the records from next[] to end[] of each partition, in order within each. Moves next[] there. */
static void
expect_output(int64_t next[3], const int64_t end[3])
{
	const char *at = run.out;

	ck_assert_str_eq(run.err, "");
	ck_assert_int_eq(run.code, 0);
	while (at < run.out + run.out_bytes) {
		int partition;

		ck_assert_int_eq(sscanf(at, "t/%d ", &partition), 1);
		ck_assert(partition >= 0 && partition < 3);
		at = expect_line(at, partition, next[partition]++);
	}
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(next[i], end[i]);
}

static void
position_path(int partition, const char *suffix, char path[BROKER_PATH_BYTES * 2])
{
	snprintf(path, BROKER_PATH_BYTES * 2, "%s/t-%d%s", positions, partition, suffix);
}

/* "" = there is no file. */
static void
expect_position(int partition, const char *expected)
{
	char path[BROKER_PATH_BYTES * 2];
	size_t length;
	char *text;

	position_path(partition, "", path);
	if (*expected == '\0') {
		ck_assert_int_eq(access(path, F_OK), -1);
		return;
	}
	text = procs_read_file(path, &length);
	ck_assert_str_eq(text, expected);
	free(text);
}

static void
put_position(int partition, const char *text)
{
	char path[BROKER_PATH_BYTES * 2];

	position_path(partition, "", path);
	procs_write_file(path, text, strlen(text));
}

START_TEST(C01_follow_goes_on_from_where_it_ended)
{
	int64_t next[3] = { 0 };
	char text[32];

	start("t = 3\n", NULL);
	for (int32_t partition = 0; partition < 3; partition++)
		send_numbered("t", partition, 0, 1000 + partition);
	begin_follow("t", "end");
	run_end(&run);
	expect_output(next, (int64_t[]){ 1000, 1001, 1002 });
	begin_follow("t", "end");
	run_end(&run);
	expect_output(next, (int64_t[]){ 1000, 1001, 1002 });
	send_numbered("t", 0, 1000, 5);
	send_numbered("t", 2, 1002, 1);
	begin_follow("t", "end");
	run_end(&run);
	expect_output(next, (int64_t[]){ 1005, 1001, 1003 });
	for (int i = 0; i < 3; i++) {
		snprintf(text, sizeof text, "%" PRId64 "\n", next[i]);
		expect_position(i, text);
	}
	finish();
}
END_TEST

START_TEST(C03_follow_does_not_end)
{
	int64_t next[3] = { 0 };
	size_t bytes;

	start("t = 3\n", NULL);
	begin_follow("t", "");
	for (int round = 0; round < 3; round++) {
		bytes = (size_t)(round + 1) * 3 * strlen("t/0 0: 0_0\n");
		for (int32_t partition = 0; partition < 3; partition++)
			send_numbered("t", partition, round, 1);
		ck_assert(run_wait_output(&run, bytes));
	}
	kill(run.pid, SIGTERM);
	run_end(&run);
	ck_assert_int_eq(run.code, 128 + SIGTERM);
	run.code = 0;
	expect_output(next, (int64_t[]){ 3, 3, 3 });
	finish();
}
END_TEST

/* At least once. Where the new position would be written stands a pipe without a reader: it gets no further. */
START_TEST(C04_follow_killed_between_output_and_position_gets_the_batch_again)
{
	int64_t next[3] = { 0 };
	char path[BROKER_PATH_BYTES * 2], *before;
	size_t bytes;

	start("t = 3\n", NULL);
	send_numbered("t", 1, 0, 100);
	put_position(1, "0\n");
	position_path(1, ".new", path);
	ck_assert_int_eq(mkfifo(path, 0640), 0);
	begin_follow("t", "");
	ck_assert(run_wait_output(&run, 1));
	kill(run.pid, SIGKILL);
	run_end(&run);
	ck_assert_int_eq(run.code, 128 + SIGKILL);
	expect_position(1, "0\n");
	before = run.out;
	bytes = run.out_bytes;
	run.out = NULL;
	ck_assert_int_eq(unlink(path), 0);
	begin_follow("t", "end");
	run_end(&run);
	ck_assert_uint_eq(run.out_bytes, bytes);
	ck_assert(memcmp(run.out, before, bytes) == 0);
	expect_output(next, (int64_t[]){ 0, 100, 0 });
	expect_position(1, "100\n");
	free(before);
	finish();
}
END_TEST

/* What could not be written out is no record that was handled. */
START_TEST(C04_follow_saves_no_position_of_what_it_could_not_write)
{
	char arguments[BROKER_PATH_BYTES * 3];
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	start("t = 1\n", NULL);
	send_numbered("t", 0, 0, 20000);	/* more than stdio holds */
	snprintf(arguments, sizeof arguments, "%s t %s", address, positions);
	begin_into("follow", arguments, -1, full);
	close(full);
	run_end(&run);
	ck_assert_int_eq(run.code, 1);
	ck_assert_ptr_nonnull(strstr(run.err, "No space left on device"));
	ck_assert_ptr_nonnull(strstr(run.err, "t/0: the handler refuses the batch at offset 0"));
	expect_position(0, "0\n");
	finish();
}
END_TEST

/* The order of what it does behind a batch: output forced; position aside, forced; renamed; directory forced. */
START_TEST(C04_follow_forces_output_and_position_in_order)
{
	static const char *const steps[] = { "write(1, ", "fsync(1", "write(", "fsync(", "renameat", "fsync(" };
	char arguments[BROKER_PATH_BYTES * 6], program[BROKER_PATH_BYTES], path[BROKER_PATH_BYTES + 16], *trace, *at;
	size_t length;

	if (!broker_have_strace()) {
		procs_skipped("C04_follow_forces_output_and_position_in_order", "no strace here");
		return;
	}
	procs_traced_to_the_end();
	start("t = 1\n", NULL);
	send_numbered("t", 0, 0, 3);
	put_position(0, "0\n");	/* or it would be saved at the start, too */
	broker_build_path("client/examples/follow", program, sizeof program);
	snprintf(path, sizeof path, "%s/trace", broker.directory);
	snprintf(arguments, sizeof arguments, "strace -e trace=write,fsync,renameat,renameat2 -o %s %s %s t %s end", path, program,
	    address, positions);
	run_start_program(&run, "/usr/bin/env", arguments, -1, -1);
	run_end(&run);
	ck_assert_msg(run.code == 0, "%s", run.err);
	at = trace = procs_read_file(path, &length);
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		ck_assert_msg(strncmp(at, steps[i], strlen(steps[i])) == 0, "step %zu of:\n%s", i, trace);
		at = strchr(at, '\n') + 1;
	}
	free(trace);
	finish();
}
END_TEST

/* A position that cannot be read is not "from the beginning". */
START_TEST(C04_follow_refuses_positions_that_cannot_be)
{
	static const char *const texts[] = { "forty\n", "", "-1\n" };
	char path[BROKER_PATH_BYTES * 2];

	start("t = 3\nother = 1\n", NULL);
	send_numbered("t", 0, 0, 3);
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		put_position(0, texts[i]);
		begin_follow("t", "end");
		run_end(&run);
		expect_refusal("t/0: the checkpoint could not be loaded");
	}
	/* That of another broker, say. */
	put_position(0, "4\n");
	begin_follow("t", "end");
	run_end(&run);
	expect_refusal("OFFSET_OUT_OF_RANGE");
	expect_position(0, "4\n");
	position_path(0, "", path);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkdir(path, 0750), 0);
	begin_follow("t", "end");
	run_end(&run);
	ck_assert_int_eq(run.code, 1);
	ck_assert_ptr_nonnull(strstr(run.err, "t-0: Is a directory\n"));
	finish();
}
END_TEST

START_TEST(A18_follow_says_what_is_not_there)
{
	char arguments[BROKER_PATH_BYTES * 3];

	start("t = 1\n", NULL);
	begin_follow("nothing", "");
	run_end(&run);
	expect_refusal("UNKNOWN_TOPIC_OR_PARTITION");
	snprintf(arguments, sizeof arguments, "%s t %s/nothing", address, positions);
	begin("follow", arguments);
	run_end(&run);
	expect_refusal("nothing: No such file or directory");
	begin_follow("t", "ende");
	run_end(&run);
	ck_assert_int_eq(run.code, 2);
	finish();
}
END_TEST

/* ---- relay ---- */

/* Random records, together so many. */
static void
send_random(int32_t partition, int count, uint64_t *seed)
{
	enum { AT_ONCE = 500, BYTES_MAX = 400 };
	static uint8_t bytes[AT_ONCE * BYTES_MAX];
	struct wire_record records[AT_ONCE];

	for (int sent = 0; sent < count; sent += AT_ONCE) {
		for (int i = 0; i < AT_ONCE; i++) {
			uint64_t bits = wire_random(seed);

			records[i] = (struct wire_record){ bytes + i * BYTES_MAX, bits % BYTES_MAX + 1 };
			memcpy(bytes + i * BYTES_MAX, &bits, sizeof bits);
		}
		send_records("from", partition, records, AT_ONCE);
	}
}

/* Each partition of "to" is the beginning of that of "from"; returns the records in all. */
static int64_t
expect_beginnings(int partitions, bool whole)
{
	int64_t records = 0;

	for (int32_t partition = 0; partition < partitions; partition++) {
		struct wire_bytes from = { 0 }, to = { 0 };
		int64_t from_end, to_end;

		read_log("from", partition, &from, &from_end);
		read_log("to", partition, &to, &to_end);
		ck_assert_uint_le(to.length, from.length);
		ck_assert(to.length == 0 || memcmp(from.data, to.data, to.length) == 0);
		if (whole)
			ck_assert_int_eq(to_end, from_end);
		records += to_end;
		wire_bytes_free(&from);
		wire_bytes_free(&to);
	}
	return records;
}

START_TEST(C03_relay_copies_every_partition_byte_for_byte)
{
	uint64_t seed = broker_seed("C03_relay_copies_every_partition");

	start("from = 3\nto = 3\n", NULL);
	begin_relay();
	run_end(&run);
	ck_assert_str_eq(run.err, "");
	ck_assert_int_eq(run.code, 0);
	/* More than it lets be on their way, in one partition already. */
	for (int32_t partition = 0; partition < 3; partition++)
		send_random(partition, 25000 + partition * 1000, &seed);
	begin_relay();
	run_end(&run);
	ck_assert_str_eq(run.err, "");
	ck_assert_int_eq(run.code, 0);
	ck_assert_int_eq(expect_beginnings(3, true), 78000);
	finish();
}
END_TEST

/* It waits for events: whatever has come is done with. */
static bool
is_asleep(void *with)
{
	char path[64], state = '\0';
	FILE *file;

	(void)with;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)run.pid);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = '\0';
	fclose(file);
	return state == 'S';
}

/* Until the relay has got so many bytes and does nothing more, since none of what it has sent is acknowledged. */
static void
wait_for_standstill(double bytes)
{
	ck_assert(broker_wait_metric_least(&broker, "logbroker_fetched_bytes_total", NULL, bytes, 30000));
	ck_assert(broker_wait(is_asleep, NULL, 30000));
}

/* Two records fill an answer; 127 are what the producer's 64 MiB hold, so that the last of 64 answers would block. */
START_TEST(C05_relay_pauses_while_its_producer_is_full)
{
	enum { COUNT = 192, BYTES = 512 * 1024 - 8, ANSWERS_BYTES = 64 * 1024 * 1024 };
	uint8_t *bytes = calloc(1, BYTES);

	start_with_barriers("from = 1\nto = 1\n");
	for (int i = 0; i < COUNT; i++) {
		memcpy(bytes, &i, sizeof i);
		send_records("from", 0, &(struct wire_record){ bytes, BYTES }, 1);
	}
	procs_let_barriers(&broker, "hold");
	begin_relay();
	wait_for_standstill(ANSWERS_BYTES);
	procs_let_barriers(&broker, "work");
	run_end(&run);
	ck_assert_str_eq(run.err, "");
	ck_assert_int_eq(run.code, 0);
	/* What was delivered and not sent has been fetched again: it did block. */
	ck_assert(broker_wait_metric_least(&broker, "logbroker_fetched_bytes_total", NULL, COUNT * (BYTES + 8.0) + 1, 10000));
	ck_assert_int_eq(expect_beginnings(1, true), COUNT);
	free(bytes);
	finish();
}
END_TEST

START_TEST(C09_relay_interrupted_sends_what_it_has_read)
{
	uint64_t seed = broker_seed("C09_relay_interrupted");

	start_with_barriers("from = 2\nto = 2\n");
	for (int32_t partition = 0; partition < 2; partition++)
		send_random(partition, 50000, &seed);
	procs_let_barriers(&broker, "hold");
	begin_relay();
	/* One of the partitions has had a whole answer of 1 MiB. */
	wait_for_standstill(3.0 * 1024 * 1024);
	kill(run.pid, _i == 0 ? SIGTERM : SIGINT);
	procs_let_barriers(&broker, "work");
	run_end(&run);
	ck_assert_str_eq(run.err, "interrupted\n");
	ck_assert_int_eq(run.code, 1);
	ck_assert_int_gt(expect_beginnings(2, false), 0);
	finish();
}
END_TEST

START_TEST(A18_relay_says_what_is_not_there)
{
	start("from = 1\n", NULL);
	begin_relay();
	run_end(&run);
	expect_refusal("UNKNOWN_TOPIC_OR_PARTITION");
	finish();
	start("to = 1\n", NULL);
	begin_relay();
	run_end(&run);
	expect_refusal("UNKNOWN_TOPIC_OR_PARTITION");
	finish();
}
END_TEST

/* ---- all of them ---- */

/* One of them waits ten seconds for it to come back. */
START_TEST(C09_examples_without_a_broker_say_so)
{
	start("t = 1\nfrom = 1\nto = 1\n", NULL);
	finish();
	produce_lines("t", "a b\n", 4);
	expect_refusal(broker.unix_path);
	begin_relay();
	run_end(&run);
	expect_refusal(broker.unix_path);
	begin_follow("t", "");
	run_end(&run);
	expect_refusal(broker.unix_path);
	run_free(&run);
}
END_TEST

START_TEST(examples_tell_their_usage)
{
	static const char *const names[] = { "produce", "follow", "relay" };

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		char usage[64];

		begin(names[i], "");
		run_end(&run);
		ck_assert_int_eq(run.code, 2);
		snprintf(usage, sizeof usage, "usage: %s ADDRESS ", names[i]);
		ck_assert(strncmp(run.err, usage, strlen(usage)) == 0);
	}
	run_free(&run);
}
END_TEST

static TCase *
add_case(Suite *s, const char *name)
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 120);
	suite_add_tcase(s, tc);
	return tc;
}

static Suite *
suite(void)
{
	Suite *s = suite_create("examples");
	TCase *produce = add_case(s, "produce"), *follow = add_case(s, "follow"), *relay = add_case(s, "relay");
	TCase *all = add_case(s, "all");

	tcase_add_test(produce, C06_produce_sends_each_line_to_its_keys_golden_partition);
	tcase_add_test(produce, C08_produce_sends_a_line_while_it_waits_for_the_next);
	tcase_add_test(produce, C05_produce_sends_more_than_its_memory_holds);
	tcase_add_test(produce, A18_produce_says_what_was_refused);
	tcase_add_test(follow, C01_follow_goes_on_from_where_it_ended);
	tcase_add_test(follow, C03_follow_does_not_end);
	tcase_add_test(follow, C04_follow_killed_between_output_and_position_gets_the_batch_again);
	tcase_add_test(follow, C04_follow_saves_no_position_of_what_it_could_not_write);
	tcase_add_test(follow, C04_follow_forces_output_and_position_in_order);
	tcase_add_test(follow, C04_follow_refuses_positions_that_cannot_be);
	tcase_add_test(follow, A18_follow_says_what_is_not_there);
	tcase_add_test(relay, C03_relay_copies_every_partition_byte_for_byte);
	tcase_add_test(relay, C05_relay_pauses_while_its_producer_is_full);
	tcase_add_loop_test(relay, C09_relay_interrupted_sends_what_it_has_read, 0, 2);
	tcase_add_test(relay, A18_relay_says_what_is_not_there);
	tcase_add_test(all, C09_examples_without_a_broker_say_so);
	tcase_add_test(all, examples_tell_their_usage);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
