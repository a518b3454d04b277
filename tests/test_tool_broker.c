/*
 * `logbroker` against a really started broker with two workers: what goes in comes out byte for byte, also while
 * workers die.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker.h"
#include "runtool.h"
#include "wire.h"

static struct broker broker;
static struct run run;
static char address[64];

static void
start(const char *topics, const char *log)
{
	broker_start(&broker, &(struct broker_config){ .topics = topics, .log = log });
	snprintf(address, sizeof address, "127.0.0.1:%d", broker.port);
}

static void
end(void)
{
	run_free(&run);
	broker_stop(&broker);
	broker_end(&broker);
}

static void
good_run(const char *command, const void *input, size_t bytes)
{
	run_tool(&run, address, command, input, bytes);
	ck_assert_msg(run.code == 0, "%s: exit code %d: %s", command, run.code, run.err);
}

static void
expect_output(const struct wire_bytes *bytes)
{
	ck_assert_uint_eq(run.out_bytes, bytes->length);
	ck_assert(memcmp(run.out, bytes->data, bytes->length) == 0);
}

/* Lines of random length and printable bytes, some of them blank. */
static struct wire_bytes
make_lines(size_t bytes, uint64_t seed)
{
	struct wire_bytes lines = { 0 };

	while (lines.length < bytes) {
		uint64_t bits = wire_random(&seed);
		size_t size = bits % 13 == 0 ? 0 : bits % 200;
		size_t at = lines.length;

		wire_put_zeros(&lines, size + 1);
		for (size_t i = 0; i < size; i++)
			lines.data[at + i] = (uint8_t)(' ' + (bits >> (i % 57)) % 95);
		lines.data[at + size] = '\n';
	}
	return lines;
}

static struct wire_bytes
make_len32(size_t bytes, uint64_t seed)
{
	struct wire_bytes records = { 0 };

	while (records.length < bytes) {
		size_t size = wire_random(&seed) % 40 == 0 ? wire_random(&seed) % 1000000 + 1 :
		    wire_random(&seed) % 3000 + 1;
		size_t at;

		wire_put_i32(&records, (int64_t)size);
		at = records.length;
		wire_put_zeros(&records, size);
		for (size_t i = 0; i + 8 <= size; i += 8) {
			uint64_t bits = wire_random(&seed);

			memcpy(records.data + at + i, &bits, 8);
		}
	}
	return records;
}

static const char *const formats[] = { "record_format = crc32c\n", "record_format = plain\n" };

START_TEST(real_broker_gives_lines_back_byte_for_byte)
{
	struct wire_bytes lines = make_lines((size_t)32 << 20, broker_seed("real_broker_gives_lines_back"));

	start("t = 3\n", formats[_i]);
	good_run("produce -p 1 t", lines.data, lines.length);
	good_run("consume t/1", "", 0);
	expect_output(&lines);
	good_run("consume t", "", 0);
	expect_output(&lines);
	good_run("produce -p 2 -a forced --batch-records 100 t", lines.data, 0);
	wire_bytes_free(&lines);
	end();
}
END_TEST

START_TEST(real_broker_gives_binary_records_back_byte_for_byte)
{
	struct wire_bytes records = make_len32((size_t)32 << 20, broker_seed("real_broker_gives_binary_back"));

	start("t = 2\n", "segment_bytes = 5MiB\n");
	good_run("produce --framing len32 -p 0 t", records.data, records.length);
	good_run("consume --framing len32 t/0", "", 0);
	expect_output(&records);
	wire_bytes_free(&records);
	end();
}
END_TEST

START_TEST(real_broker_keeps_every_record_of_all_partitions_and_acks)
{
	static const char *const commands[] = { "produce t", "produce -a forced t", "produce -a none t",
		"produce --key-delim : t" };
	struct wire_bytes lines = { 0 };

	for (int i = 0; i < 30000; i++) {
		char line[32];

		wire_put(&lines, line, (size_t)snprintf(line, sizeof line, "%d:%d\n", i % 100, i));
	}
	start("t = 5\n", NULL);
	for (size_t i = 0; i < 4; i++) {
		size_t count = 0;

		good_run(commands[i], lines.data, lines.length);
		good_run("consume t", "", 0);
		for (size_t at = 0; at < run.out_bytes; at++)
			count += run.out[at] == '\n';
		ck_assert_uint_eq(count, 30000 * (i + 1));
		run_free(&run);
	}
	wire_bytes_free(&lines);
	end();
}
END_TEST

START_TEST(real_broker_serves_the_tool_over_a_unix_socket)
{
	char command[BROKER_PATH_BYTES + 32];

	start("t = 2\n", NULL);
	snprintf(command, sizeof command, "-b unix:%s produce -k a t", broker.unix_path);
	good_run(command, "hello\n", 6);
	snprintf(command, sizeof command, "-b unix:%s consume t", broker.unix_path);
	good_run(command, "", 0);
	ck_assert_str_eq(run.out, "hello\n");
	snprintf(command, sizeof command, "-b unix:%s ping", broker.unix_path);
	good_run(command, "", 0);
	ck_assert_ptr_nonnull(strstr(run.out, "topics=1 partitions=2"));
	end();
}
END_TEST

START_TEST(real_broker_refusals_become_exit_codes)
{
	start("t = 2\n", "segment_bytes = 1KiB\n");
	run_tool(&run, address, "consume u", "", 0);
	ck_assert_int_eq(run.code, 3);
	ck_assert_ptr_nonnull(strstr(run.err, "UNKNOWN_TOPIC_OR_PARTITION"));
	char *large = calloc(1, 5000);

	run_tool(&run, address, "produce -p 0 --framing none t", large, 5000);
	ck_assert_int_eq(run.code, 3);
	ck_assert_ptr_nonnull(strstr(run.err, "RECORD_TOO_LARGE: topic t partition 0"));
	run_tool(&run, address, "consume --from 5 t/0", "", 0);
	ck_assert_int_eq(run.code, 8);
	free(large);
	end();
}
END_TEST

/* A topic with a partition that cannot be opened: the others are listed, and what is said tells where to look. */
START_TEST(real_broker_partition_that_cannot_be_opened)
{
	char path[BROKER_PATH_BYTES + 16];
	FILE *file;

	broker_prepare(&broker, &(struct broker_config){ .topics = "bad = 1\ngood = 1\n" });
	ck_assert(mkdir(broker.data_dir, 0755) == 0 || access(broker.data_dir, W_OK) == 0);
	snprintf(path, sizeof path, "%s/bad-0", broker.data_dir);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fclose(file);
	broker_launch(&broker);
	broker_wait_ready(&broker);
	snprintf(address, sizeof address, "127.0.0.1:%d", broker.port);
	run_tool(&run, address, "topics bad good", "", 0);
	ck_assert_int_eq(run.code, 3);
	ck_assert_ptr_nonnull(strstr(run.err, "METADATA of bad: "));
	ck_assert_ptr_nonnull(strstr(run.err, "the broker's log names it and says why"));
	ck_assert_ptr_nonnull(strstr(run.out, "\ngood "));
	run_tool(&run, address, "topics", "", 0);
	ck_assert_int_eq(run.code, 3);
	good_run("ping", "", 0);
	good_run("produce good", "x\n", 2);
	ck_assert_int_eq(broker_count_log(&broker, "partition bad-0: stays closed: cannot open its directory: Not a"), 1);
	ck_assert_int_eq(broker_count_log(&broker, ", 1 could not be opened"), 1);
	end();
}
END_TEST

/*
 * The worker of the partition is killed again and again while it is read; each time from a reader that is in the
 * middle, made so by a pipe that nobody empties meanwhile.
 */
START_TEST(real_broker_consume_goes_on_while_its_worker_is_killed)
{
	struct wire_bytes lines = make_lines((size_t)48 << 20, broker_seed("real_broker_consume_goes_on"));
	size_t have = 0;
	uint8_t *back = malloc(lines.length + 1);
	int ends[2];

	start("t = 2\n", NULL);
	broker.workers_may_die = true;
	good_run("produce -p 1 t", lines.data, lines.length);
	run_free(&run);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	run_start_into(&run, address, "consume t/1", -1, ends[1]);
	close(ends[1]);
	for (int kills = 0; have <= lines.length; ) {
		ssize_t n = read(ends[0], back + have, lines.length + 1 - have);

		ck_assert_int_ge(n, 0);
		if (n == 0)
			break;
		have += (size_t)n;
		if (kills < 5 && have > lines.length / 6 * (size_t)(kills + 1)) {
			pid_t worker = broker_wait_worker_of(&broker, "t", 1, 0, 30000);

			ck_assert_int_gt(worker, 0);
			kill(worker, SIGKILL);
			ck_assert(broker_wait_gone(worker, 30000));
			kills++;
		}
	}
	run_end(&run);
	ck_assert_msg(run.code == 0, "exit code %d: %s", run.code, run.err);
	ck_assert_uint_eq(have, lines.length);
	ck_assert(memcmp(back, lines.data, have) == 0);
	close(ends[0]);
	free(back);
	wire_bytes_free(&lines);
	end();
}
END_TEST

START_TEST(real_broker_follow_survives_the_death_of_its_worker)
{
	pid_t worker;

	start("t = 2\n", NULL);
	broker.workers_may_die = true;
	run_start(&run, address, "follow --from earliest t", -1);
	struct run producer = { 0 };

	run_tool(&producer, address, "produce t", "1\n2\n3\n4\n", 8);
	ck_assert_int_eq(producer.code, 0);
	run_free(&producer);
	ck_assert(run_wait_output(&run, 8));
	worker = broker_wait_worker_of(&broker, "t", 0, 0, 30000);
	kill(worker, SIGKILL);
	ck_assert(broker_wait_gone(worker, 30000));
	ck_assert_int_gt(broker_wait_worker_of(&broker, "t", 0, worker, 30000), 0);
	run_tool(&producer, address, "produce t", "5\n6\n7\n8\n", 8);
	ck_assert_msg(producer.code == 0, "%s", producer.err);
	run_free(&producer);
	ck_assert(run_wait_output(&run, 16));
	kill(run.pid, SIGTERM);
	run_end(&run);
	ck_assert_int_eq(run.code, 0);
	ck_assert_uint_eq(run.out_bytes, 16);
	end();
}
END_TEST

START_TEST(bug_J1_a_byte_flipped_under_a_broker)
{
	char path[BROKER_PATH_BYTES];
	int fd;

	start("t = 1\n", NULL);
	good_run("produce t", "aaaa\nbbbb\ncccc\n", 15);
	broker_partition_path(&broker, "t", 0, 0, path, sizeof path);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, "x", 1, 12 + 8 + 2), 1);
	close(fd);
	run_tool(&run, address, "consume t", "", 0);
	ck_assert_int_eq(run.code, 6);
	ck_assert_str_eq(run.out, "aaaa\n");
	ck_assert_ptr_nonnull(strstr(run.err, "t/0 at offset 1: "));
	end();
}
END_TEST

/* A producer that never pauses; each replay ends nevertheless, with no more than was there at its start. */
START_TEST(bug_J2_real_broker_replay_of_a_topic_under_load_ends)
{
	int ends[2];
	struct run producer = { 0 };

	start("t = 1\n", NULL);
	good_run("produce t", "first\n", 6);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	pid_t writer = fork();

	if (writer == 0) {
		close(ends[0]);
		while (write(ends[1], "line\n", 5) == 5)
			continue;
		_exit(0);
	}
	close(ends[1]);
	run_start(&producer, address, "produce t", ends[0]);
	close(ends[0]);
	for (int i = 0; i < 5; i++) {
		run_free(&run);
		good_run("replay t", "", 0);
		ck_assert_int_eq(strncmp(run.out, "first\n", 6), 0);
	}
	kill(writer, SIGKILL);
	run_end(&producer);
	ck_assert_int_eq(producer.code, 0);
	run_free(&producer);
	end();
}
END_TEST

/* Binary records in JSON, through a broker with several workers, and back as they were; in order, since one partition is named. */
START_TEST(real_broker_gives_binary_records_back_through_jsonl)
{
	struct wire_bytes records = make_len32((size_t)8 << 20, broker_seed("real_broker_through_jsonl"));
	char *json;
	size_t bytes;

	start("t = 2\n", NULL);
	good_run("produce --framing len32 -p 0 t", records.data, records.length);
	good_run("consume -o jsonl t/0", "", 0);
	json = run.out;
	bytes = run.out_bytes;
	run.out = NULL;
	good_run("produce --framing jsonl -p 1 t", json, bytes);
	good_run("consume --framing len32 t/1", "", 0);
	expect_output(&records);
	free(json);
	wire_bytes_free(&records);
	end();
}
END_TEST

static size_t
count_lines(void)
{
	size_t count = 0;

	for (size_t at = 0; at < run.out_bytes; at++)
		count += run.out[at] == '\n';
	return count;
}

/* The broker is killed under a producer that never pauses: what it says was acknowledged is in the log. */
START_TEST(exit_7_real_broker_goes_away_under_produce)
{
	int ends[2];
	struct run producer = { 0 };
	const char *said;
	long acknowledged;
	pid_t writer;

	start("t = 2\n", NULL);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	writer = fork();
	if (writer == 0) {
		close(ends[0]);
		signal(SIGPIPE, SIG_IGN);
		while (write(ends[1], "line\n", 5) == 5)
			continue;
		_exit(0);
	}
	close(ends[1]);
	run_start(&producer, address, "produce --timeout 3s t", ends[0]);
	close(ends[0]);
	ck_assert(broker_wait_metric_least(&broker, "logbroker_produced_records_total", NULL, 1000, 30000));
	broker_kill(&broker);
	run_end(&producer);
	kill(writer, SIGKILL);
	ck_assert_msg(producer.code == 7, "exit code %d: %s", producer.code, producer.err);
	said = strstr(producer.err, " records acknowledged");
	ck_assert_ptr_nonnull(said);
	while (said > producer.err && said[-1] >= '0' && said[-1] <= '9')
		said--;
	acknowledged = atol(said);
	run_free(&producer);
	broker_restart(&broker, NULL);
	snprintf(address, sizeof address, "127.0.0.1:%d", broker.port);
	good_run("consume t", "", 0);
	ck_assert_int_ge((long)count_lines(), acknowledged);
	end();
}
END_TEST

/* Readers that are killed over and over, each with the checkpoint of the one before: every record, and few of them twice. */
START_TEST(C04_real_broker_readers_with_a_checkpoint_are_killed_and_lose_nothing)
{
	enum { RECORDS = 200000 };
	struct wire_bytes lines = { 0 };
	char kept[BROKER_PATH_BYTES + 16], command[BROKER_PATH_BYTES + 64];
	uint8_t *seen = calloc(RECORDS, 1);
	bool ended = false;

	for (int i = 0; i < RECORDS; i++) {
		char line[32];

		wire_put(&lines, line, (size_t)snprintf(line, sizeof line, "%d\n", i));
	}
	start("t = 3\n", NULL);
	good_run("produce t", lines.data, lines.length);
	snprintf(kept, sizeof kept, "%s/position", broker.directory);
	snprintf(command, sizeof command, "consume --max-bytes 4000 --checkpoint %s t", kept);
	for (int round = 0; round < 200 && !ended; round++) {
		int ends[2];
		FILE *out;
		char line[32];

		ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
		run_start_into(&run, address, command, -1, ends[1]);
		close(ends[1]);
		out = fdopen(ends[0], "r");
		for (int i = 0; i < 5000 * (round + 1) && !ended; i++) {
			ended = fgets(line, sizeof line, out) == NULL;
			if (!ended && strchr(line, '\n') != NULL)
				seen[atoi(line)] = 1;
		}
		kill(run.pid, ended ? 0 : SIGKILL);
		/* What it had written when it was killed has been read, by whoever reads the pipe to its end. */
		while (fgets(line, sizeof line, out) != NULL)
			if (strchr(line, '\n') != NULL)
				seen[atoi(line)] = 1;
		fclose(out);
		run_end(&run);
	}
	ck_assert(ended);
	for (int i = 0; i < RECORDS; i++)
		ck_assert_msg(seen[i] == 1, "record %d", i);
	good_run("topics t", "", 0);
	snprintf(command, sizeof command, "topics -o jsonl --checkpoint %s", kept);
	good_run(command, "", 0);
	ck_assert_ptr_nonnull(strstr(run.out, "\"lag\":0}\n"));
	free(seen);
	wire_bytes_free(&lines);
	end();
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("tool_broker");
	TCase *tcase = tcase_create("tool_broker");

	tcase_set_timeout(tcase, 300);
	tcase_add_loop_test(tcase, real_broker_gives_lines_back_byte_for_byte, 0, 2);
	tcase_add_test(tcase, real_broker_gives_binary_records_back_byte_for_byte);
	tcase_add_test(tcase, real_broker_keeps_every_record_of_all_partitions_and_acks);
	tcase_add_test(tcase, real_broker_serves_the_tool_over_a_unix_socket);
	tcase_add_test(tcase, real_broker_refusals_become_exit_codes);
	tcase_add_test(tcase, real_broker_partition_that_cannot_be_opened);
	tcase_add_test(tcase, real_broker_consume_goes_on_while_its_worker_is_killed);
	tcase_add_test(tcase, real_broker_follow_survives_the_death_of_its_worker);
	tcase_add_test(tcase, bug_J1_a_byte_flipped_under_a_broker);
	tcase_add_test(tcase, bug_J2_real_broker_replay_of_a_topic_under_load_ends);
	tcase_add_test(tcase, real_broker_gives_binary_records_back_through_jsonl);
	tcase_add_test(tcase, exit_7_real_broker_goes_away_under_produce);
	tcase_add_test(tcase, C04_real_broker_readers_with_a_checkpoint_are_killed_and_lose_nothing);
	suite_add_tcase(suite, tcase);
	return broker_main(suite);
}
