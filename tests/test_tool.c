/*
 * `logbroker` from outside, against a fake broker that can misbehave: exit codes, what is said, what is delivered.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker.h"
#include "fakebroker.h"
#include "runtool.h"

static struct fake fake;
static struct run run;

static void
expect_code(int code)
{
	ck_assert_msg(run.code == code, "exit code %d instead of %d; it said: %s", run.code, code, run.err);
}

static void
expect_said(const char *text)
{
	ck_assert_msg(strstr(run.err, text) != NULL, "'%s' is not in: %s", text, run.err);
}

static void
expect_not_said(const char *text)
{
	ck_assert_msg(strstr(run.err, text) == NULL, "'%s' is in: %s", text, run.err);
}

static void
expect_out(const char *text)
{
	ck_assert_str_eq(run.out, text);
}

static void
good_run(const char *command, const char *input)
{
	run_tool(&run, fake.address, command, input, strlen(input));
	expect_code(0);
}

static void
append_numbers(int partition, int from, int to)
{
	for (int i = from; i < to; i++) {
		char text[16];

		fake_append(&fake, partition, text, (size_t)snprintf(text, sizeof text, "%d", i));
	}
}

static void
expect_record(int partition, int64_t offset, const char *text)
{
	size_t size;
	const uint8_t *record = fake_record(&fake, partition, offset, &size);

	ck_assert_uint_eq(size, strlen(text));
	ck_assert_mem_eq(record, text, size);
}

/* ---- the command line ----------------------------------------------------------------------------------------- */

static const struct {
	const char *command, *said;
} wrong_usage[] = {
	{ "", "usage" },
	{ "fetch t", "no verb 'fetch'" },
	{ "produce", "usage" },
	{ "consume", "usage" },
	{ "consume a b", "usage" },
	{ "ping x", "usage: logbroker ping [options] (" },
	{ "consume a/b", "partition's number" },
	{ "consume a/", "partition's number" },
	{ "consume a/1x", "partition's number" },
	{ "consume a/-1", "partition's number" },
	{ "consume ..", "topic" },
	{ "produce ../../etc/x", "topic" },
	{ "topics a/b", "topic" },
	{ "topics t/0", "all its partitions are listed" },
	{ "produce t/0", "choose its partition with -p N" },
	{ "produce /0", "1 to 249 characters" },
	{ "produce --from 1 t", "no option '--from'" },
	{ "consume -a none t", "no option '-a'" },
	{ "-p 1 produce t", "write it behind" },
	{ "produce -p", "needs a value" },
	{ "produce -p x t", "-p 'x'" },
	{ "produce -p -1 t", "-p '-1'" },
	{ "produce -p 99999 t", "-p '99999'" },
	{ "produce -a all t", "-a 'all'" },
	{ "produce -p 1 -k x t", "only one of" },
	{ "produce -k x --key-delim : t", "only one of" },
	{ "produce --key-delim= t", "must not be empty" },
	{ "produce --offsets=1 t", "takes no value" },
	{ "produce --offsets -a none t", "--offsets needs answers" },
	{ "produce --batch-records 0 t", "--batch-records '0'" },
	{ "produce --framing json t", "--framing 'json'" },
	{ "produce t /no/such/file", "No such file" },
	{ "produce t - /", "/: Is a directory" },
	{ "consume --from 0x1 t", "--from '0x1'" },
	{ "consume --from - t", "--from '-'" },
	{ "consume --from 9223372036854775808 t", "--from" },
	{ "consume --to latest t", "--to 'latest'" },
	{ "consume -n 0 t", "-n '0'" },
	{ "consume --max-bytes 0 t", "--max-bytes '0'" },
	{ "consume --max-bytes 8388591 t", "--max-bytes '8388591'" },
	{ "consume --max-bytes 1GiB t", "--max-bytes '1GiB'" },
	{ "consume --on-gap skip t", "--on-gap 'skip'" },
	{ "consume --from checkpoint t", "--checkpoint FILE" },
	{ "consume --checkpoint= t", "must be a file" },
	{ "consume -o jsonl --framing nul t", "no --framing" },
	{ "consume -o json --framing jsonl t", "choose one" },
	{ "consume -f t", "no option '-f'" },
	{ "tail -n 0 t", "-n '0'" },
	{ "tail --from 1 t", "no option '--from'" },
	{ "tail --to 1 t", "no option '--to'" },
	{ "tail", "usage" },
	{ "produce --linger 2min t", "--linger '2min'" },
	{ "produce --linger -1 t", "--linger '-1'" },
	{ "produce --linger 30s t", "less than --timeout" },
	{ "produce --linger 20ms --timeout 20ms t", "less than --timeout" },
	{ "produce -o json t", "what --offsets prints" },
	{ "ping --checkpoint f", "no option '--checkpoint'" },
	{ "dump --framing jsonl f", "--framing 'jsonl'" },
	{ "topics --checkpoint /no/such/file", "No such file" },
	{ "--timeout 0 ping", "--timeout '0'" },
	{ "--timeout 3x ping", "--timeout '3x'" },
	{ "--timeout -1s ping", "--timeout '-1s'" },
	{ "-o xml ping", "-o 'xml'" },
	{ "-b localhost ping", "a port is missing" },
	{ "-b localhost:0 ping", "the port must be" },
	{ "-b localhost:65536 ping", "the port must be" },
	{ "-b ::1:9092 ping", "brackets" },
	{ "-b unix:sock ping", "absolute" },
};

START_TEST(exit_2_wrong_usage_is_told)
{
	run_tool(&run, NULL, wrong_usage[_i].command, "", 0);
	expect_code(2);
	expect_said(wrong_usage[_i].said);
	expect_out("");
}
END_TEST

static const char *const not_built[] = { "bench produce", "bench -h" };

START_TEST(exit_2_what_is_not_built_is_refused_by_name)
{
	run_tool(&run, NULL, not_built[_i], "", 0);
	expect_code(2);
	expect_said("not supported in this version");
}
END_TEST

START_TEST(exit_2_bad_address_in_the_environment_is_told)
{
	static const char *const commands[] = { "ping", "topics", "consume t", "follow t/0", "produce t" };

	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		run_tool(&run, "nowhere", commands[i], "x\n", 2);
		expect_code(2);
		expect_said("LOGBROKER_ADDR in the environment: \"nowhere\" is no broker's address: a port is missing");
	}
	run_tool(&run, "nowhere", "-b elsewhere ping", "", 0);
	expect_code(2);
	expect_said("logbroker: \"elsewhere\" is no broker's address");
}
END_TEST

START_TEST(help_of_every_verb_has_synopsis_and_examples)
{
	static const char *const verbs[] = { "produce", "consume", "replay", "follow", "tail", "topics",
		"ping", "dump", "verify", "repair" };

	run_tool(&run, NULL, "-h", "", 0);
	expect_code(0);
	for (size_t i = 0; i < sizeof verbs / sizeof verbs[0]; i++) {
		struct run verb = { 0 };
		char command[32];

		ck_assert_ptr_nonnull(strstr(run.out, verbs[i]));
		snprintf(command, sizeof command, "%s -h", verbs[i]);
		run_tool(&verb, NULL, command, "", 0);
		ck_assert_int_eq(verb.code, 0);
		snprintf(command, sizeof command, "usage: logbroker %s", verbs[i]);
		ck_assert_ptr_nonnull(strstr(verb.out, command));
		ck_assert_ptr_nonnull(strstr(verb.out, "Examples:\n"));
		ck_assert_str_eq(verb.err, "");
		run_free(&verb);
	}
	run_tool(&run, NULL, "--version", "", 0);
	expect_code(0);
	ck_assert_int_eq(strncmp(run.out, "logbroker ", 10), 0);
}
END_TEST

/* ---- the manual: every option the program knows, and no other -------------------------------------------------- */

/* Adds "-x" or "--word" to the set, each once, with blanks around. */
static void
add_option(char *set, size_t size, const char *option, size_t length)
{
	char with_blanks[64];

	snprintf(with_blanks, sizeof with_blanks, " %.*s ", (int)length, option);
	if (strstr(set, with_blanks) == NULL)
		strncat(set, with_blanks, size - strlen(set) - 1);
}

static void
options_of_program(char *set, size_t size)
{
	static const char *const helps[] = { "produce -h", "consume -h", "replay -h", "follow -h", "tail -h", "topics -h",
		"ping -h", "dump -h", "verify -h", "repair -h", "status -h", "restart-worker -h", "reload -h" };

	for (size_t i = 0; i < sizeof helps / sizeof helps[0]; i++) {
		struct run help = { 0 };
		char *line, *rest;

		run_tool(&help, NULL, helps[i], "", 0);
		rest = help.out;
		while ((line = strsep(&rest, "\n")) != NULL) {
			if (strncmp(line, "  -", 3) == 0)
				add_option(set, size, line + 2, strcspn(line + 2, " "));
		}
		run_free(&help);
	}
}

static void
options_of_manual(char *set, size_t size)
{
	char path[BROKER_PATH_BYTES], line[512], option[64];
	FILE *file;

	broker_source_path("../man/logbroker.1", path, sizeof path);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof line, file) != NULL) {
		if (sscanf(line, ".It Fl %60s", option + 1) != 1)
			continue;
		option[0] = '-';
		add_option(set, size, option, strlen(option));
	}
	fclose(file);
}

static void
expect_subset(const char *set, const char *of, const char *where)
{
	char option[64];
	int length;

	for (; sscanf(set, " %60s%n", option, &length) == 1; set += length) {
		char with_blanks[64 + 2];

		snprintf(with_blanks, sizeof with_blanks, " %s ", option);
		ck_assert_msg(strstr(of, with_blanks) != NULL, "option %s is missing in %s", option, where);
	}
}

START_TEST(manual_has_exactly_the_options_that_the_program_knows)
{
	char program[4096] = "", manual[4096] = "";

	options_of_program(program, sizeof program);
	options_of_manual(manual, sizeof manual);
	ck_assert_ptr_nonnull(strstr(program, " --on-gap "));
	expect_subset(program, manual, "man/logbroker.1");
	expect_subset(manual, program, "the program");
}
END_TEST

/* ---- reaching a broker --------------------------------------------------------------------------------------- */

START_TEST(exit_4_cannot_connect)
{
	fake_start(&fake, 1, true);
	fake_stop(&fake);
	run_tool(&run, fake.address, "ping", "", 0);
	expect_code(4);
	expect_said(fake.address);
	expect_said("Connection refused");
	run_tool(&run, fake.address, "consume --timeout 300ms t", "", 0);
	expect_code(4);
	expect_said("Connection refused");
	run_tool(&run, "unix:/no/such/socket", "consume --timeout 300ms t", "", 0);
	expect_code(4);
	run_tool(&run, "no-such-host.invalid:9092", "produce t", "", 0);
	expect_code(4);
}
END_TEST

START_TEST(exit_5_no_answer_in_time)
{
	static const char *const commands[] = { "ping --timeout 150ms", "topics --timeout 150ms",
		"consume t --timeout 150ms", "produce t --timeout 150ms" };

	fake_start(&fake, 1, true);
	fake.faults.mute = true;
	run_tool(&run, fake.address, commands[_i], "x\n", 2);
	expect_code(5);
	expect_said("did not answer within 150 ms");
	fake_stop(&fake);
}
END_TEST

/* localhost may be two addresses, of which the fake broker has one. */
START_TEST(every_address_of_a_name_is_tried)
{
	char command[128];

	fake_start(&fake, 1, true);
	snprintf(command, sizeof command, "-b localhost:%s ping", strchr(fake.address, ':') + 1);
	good_run(command, "");
	fake_stop(&fake);
}
END_TEST

START_TEST(ping_prints_the_round_trip)
{
	double ms;
	int topics, partitions;

	fake_start(&fake, 3, true);
	good_run("ping", "");
	ck_assert_ptr_eq(strstr(run.out, fake.address), run.out);
	ck_assert_int_eq(sscanf(run.out + strlen(fake.address), ": %lf ms, topics=%d partitions=%d", &ms, &topics,
	    &partitions), 3);
	ck_assert_int_eq(topics, 1);
	ck_assert_int_eq(partitions, 3);
	fake_stop(&fake);
}
END_TEST

/* Any answer is a sign of life; the error is told. */
START_TEST(ping_takes_a_refusal_for_a_sign_of_life)
{
	fake_start(&fake, 1, true);
	fake.faults.metadata_error = WIRE_STORAGE_FAILURE;
	good_run("ping", "");
	ck_assert_ptr_nonnull(strstr(run.out, " ms, METADATA answered with STORAGE_FAILURE\n"));
	expect_said("the broker's log names it and says why");
	fake_stop(&fake);
}
END_TEST

static const char *const need_metadata[] = { "topics", "topics t", "consume t", "follow t", "produce t" };

START_TEST(exit_3_metadata_refused_says_where_to_look)
{
	fake_start(&fake, 1, true);
	fake.faults.metadata_error = WIRE_STORAGE_FAILURE;
	run_tool(&run, fake.address, need_metadata[_i], "x\n", 2);
	expect_code(3);
	expect_said("STORAGE_FAILURE");
	expect_said("the broker's log names it and says why");
	expect_out("");
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_3_topics_lists_what_it_can)
{
	fake_start(&fake, 1, true);
	run_tool(&run, fake.address, "topics u t v t", "", 0);
	expect_code(3);
	expect_said("METADATA of u: ");
	expect_said("METADATA of v: ");
	expect_said("UNKNOWN_TOPIC_OR_PARTITION");
	expect_out("TOPIC PARTITION        START    WATERMARK      RECORDS GROUP\n"
	    "t             0            0            0            0     0\n");
	fake_stop(&fake);
}
END_TEST

START_TEST(topics_prints_a_table)
{
	fake_start(&fake, 2, true);
	append_numbers(1, 0, 5);
	fake.partitions[1].start = 2;
	good_run("topics", "");
	expect_out("TOPIC PARTITION        START    WATERMARK      RECORDS GROUP\n"
	    "t             0            0            0            0     0\n"
	    "t             1            2            5            3     1\n");
	good_run("topics t", "");
	fake_stop(&fake);
}
END_TEST

START_TEST(metadata_falls_back_to_version_1)
{
	fake_start(&fake, 1, true);
	fake.faults.only_v1 = true;
	append_numbers(0, 0, 2);
	good_run("topics", "");
	expect_out("TOPIC PARTITION        START    WATERMARK      RECORDS GROUP\n"
	    "t             0            0            2            2     -\n");
	good_run("consume t", "");
	expect_out("0\n1\n");
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_3_unknown_topic_and_partition_are_named)
{
	static const char *const commands[] = { "topics u", "consume u", "follow u/0", "produce u", "consume t/2",
		"produce -p 2 t" };
	static const char *const said[] = { "METADATA of u: ", "u: ", "u: ", "METADATA of u: ", "t/2: ", "topic t has 2 partitions" };

	fake_start(&fake, 2, true);
	run_tool(&run, fake.address, commands[_i], "x\n", 2);
	expect_code(3);
	expect_said("UNKNOWN_TOPIC_OR_PARTITION");
	expect_said(said[_i]);
	fake_stop(&fake);
}
END_TEST

/* ---- produce ------------------------------------------------------------------------------------------------- */

START_TEST(produce_lines_and_consume_them_byte_for_byte)
{
	fake_start(&fake, 1, _i == 1);
	good_run("produce t", "one\n\n  two\r\n\n");
	ck_assert_str_eq(run.err, "");
	ck_assert_int_eq(fake.partitions[0].end, 4);
	expect_record(0, 1, "\n");
	good_run("consume t/0", "");
	expect_out("one\n\n  two\r\n\n");
	good_run("consume t/0 --framing nul", "");
	ck_assert_uint_eq(run.out_bytes, 15);
	fake_stop(&fake);
}
END_TEST

START_TEST(produce_last_line_without_newline_is_said)
{
	fake_start(&fake, 1, true);
	good_run("produce t", "one\ntwo");
	expect_said("no newline");
	good_run("consume t", "");
	expect_out("one\ntwo\n");
	fake_stop(&fake);
}
END_TEST

START_TEST(produce_none_takes_each_file_as_a_record)
{
	char path[2][64] = { "/tmp/logbroker-test-XXXXXX", "/tmp/logbroker-test-XXXXXX" };
	char command[256];

	fake_start(&fake, 1, true);
	for (int i = 0; i < 2; i++) {
		int fd = mkstemp(path[i]);

		ck_assert_int_eq(write(fd, i == 0 ? "a\nb" : "c\n", i == 0 ? 3 : 2), i == 0 ? 3 : 2);
		close(fd);
	}
	snprintf(command, sizeof command, "produce --framing none t %s - %s", path[0], path[1]);
	good_run(command, "stdin");
	unlink(path[0]);
	unlink(path[1]);
	ck_assert_int_eq(fake.partitions[0].end, 3);
	expect_record(0, 0, "a\nb");
	expect_record(0, 1, "stdin");
	expect_record(0, 2, "c\n");
	good_run("consume --framing none t", "");
	expect_out("a\nbstdinc\n");
	fake_stop(&fake);
}
END_TEST

/* Random bytes, 20 MB in records of 1 byte to 3 MB: several frames in flight, larger ones for single records. */
START_TEST(produce_len32_of_random_bytes_comes_back)
{
	struct wire_bytes input = { 0 };
	uint64_t seed = broker_seed("produce_len32_of_random_bytes_comes_back");

	fake_start(&fake, 1, true);
	while (input.length < 20 * 1000 * 1000) {
		size_t size = wire_random(&seed) % 50 == 0 ? wire_random(&seed) % 3000000 + 1 :
		    wire_random(&seed) % 5000 + 1;
		size_t at;

		wire_put_i32(&input, (int64_t)size);
		at = input.length;
		wire_put_zeros(&input, size);
		for (size_t i = 0; i + 8 <= size; i += 8) {
			uint64_t bits = wire_random(&seed);

			memcpy(input.data + at + i, &bits, 8);
		}
	}
	run_tool(&run, fake.address, "produce --framing len32 -p 0 t", input.data, input.length);
	expect_code(0);
	ck_assert_int_gt(fake.produces, 5);
	run_tool(&run, fake.address, "consume --framing len32 t/0", "", 0);
	expect_code(0);
	ck_assert_uint_eq(run.out_bytes, input.length);
	ck_assert(memcmp(run.out, input.data, input.length) == 0);
	wire_bytes_free(&input);
	fake_stop(&fake);
}
END_TEST

START_TEST(produce_requests_stay_near_256_kib)
{
	struct wire_bytes input = { 0 };

	fake_start(&fake, 1, true);
	while (input.length < 3 * 1024 * 1024)
		wire_put(&input, "0123456789012345678901234567890123456789012345678901234567890\n", 62);
	run_tool(&run, fake.address, "produce t", input.data, input.length);
	expect_code(0);
	ck_assert_int_le(fake.largest_request, 256 * 1024);
	ck_assert_int_ge(fake.produces, 12);
	run_tool(&run, fake.address, "produce --batch-records 1000 t", input.data, input.length);
	ck_assert_int_ge(fake.produces, 12 + 50);
	wire_bytes_free(&input);
	fake_stop(&fake);
}
END_TEST

START_TEST(produce_has_several_requests_in_flight)
{
	fake_start(&fake, 1, true);
	fake.faults.hold_produces = 20;
	good_run("produce --batch-records 1 t", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n");
	ck_assert_int_eq(fake.produces, 20);
	expect_record(0, 19, "20");
	fake_stop(&fake);
}
END_TEST

START_TEST(produce_lone_record_leaves_while_the_input_stays_open)
{
	fake_start(&fake, 1, true);
	run_start(&run, fake.address, "produce --offsets t", -1);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(write(run.input, "x\n", 2), 2);
		ck_assert(fake_wait_end(&fake, 0, i + 1));
		ck_assert(run_wait_output(&run, 4 * (size_t)(i + 1)));
	}
	run_end(&run);
	expect_code(0);
	expect_out("0\t0\n0\t1\n0\t2\n");
	fake_stop(&fake);
}
END_TEST

START_TEST(produce_round_robin_is_even)
{
	fake_start(&fake, 5, true);
	good_run("produce t", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n");
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(fake.partitions[i].end, 2);
	fake_stop(&fake);
}
END_TEST

/*
 * Partitions of keys out of vectors/partitioner-fnv1a.tsv, for 3 and 4 partitions (3, because powers of two do not see
 * whether bytes are read as signed).
 */
START_TEST(produce_key_chooses_the_golden_partition)
{
	static const struct {
		const char *key;
		int of_3, of_4;
	} golden[] = { { "user-1", 1, 0 }, { "user-2", 1, 1 }, { "order-\360\237\232\200", 2, 1 },
		{ "\320\267\320\260\320\272\320\260\320\267-7", 2, 3 }, { "\200", 0, 3 }, { "\377", 2, 2 } };

	for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
		int count = _i == 0 ? 3 : 4;
		int partition = _i == 0 ? golden[i].of_3 : golden[i].of_4;
		char command[64], line[64];

		fake_start(&fake, count, true);
		snprintf(command, sizeof command, "produce t -k %s", golden[i].key);
		good_run(command, "x\n");
		expect_record(partition, 0, "x");
		snprintf(line, sizeof line, "%s::value\n%s::\n", golden[i].key, golden[i].key);
		good_run("produce --key-delim :: t", line);
		expect_record(partition, 1, "value");
		expect_record(partition, 2, "\n");
		fake_stop(&fake);
		run_free(&run);
	}
}
END_TEST

START_TEST(produce_record_without_key_is_told_with_its_place)
{
	fake_start(&fake, 2, true);
	run_tool(&run, fake.address, "produce --key-delim : t", "k:v\nnone\nk:w\n", 13);
	expect_code(7);
	expect_said("record 2 at byte 4 has no key");
	expect_said("--key-delim ':' is not in it\n");
	expect_said("1 records acknowledged");
	run_tool(&run, fake.address, "produce --key-delim : t", "none\n", 5);
	expect_code(2);
	run_tool(&run, fake.address, "produce --key-delim \\t t", "a\tb\n", 4);
	expect_code(2);
	expect_said("--key-delim '\\t' is not in it (a backslash");
	fake_stop(&fake);
}
END_TEST

START_TEST(produce_bad_len32_input_is_told_with_its_place)
{
	fake_start(&fake, 1, true);
	run_tool(&run, fake.address, "produce --framing len32 t", "\0\0\0\1x\0\0\0\0", 9);
	expect_code(7);
	expect_said("a length of 0 at byte 5");
	ck_assert_int_eq(fake.partitions[0].end, 1);
	run_tool(&run, fake.address, "produce --framing len32 t", "\0\0\0\2x", 5);
	expect_code(2);
	expect_said("inside the record that begins at byte 0");
	ck_assert_int_eq(fake.partitions[0].end, 1);
	fake_stop(&fake);
}
END_TEST

START_TEST(produce_ack_goes_out_as_asked_and_none_waits_for_the_broker_to_have_read_all)
{
	static const struct {
		const char *command;
		int ack;
	} acks[] = { { "produce t", 1 }, { "produce -a written t", 1 }, { "produce -a forced t", 2 },
		{ "produce -anone t", 0 } };

	for (size_t i = 0; i < 4; i++) {
		fake_start(&fake, 1, true);
		good_run(acks[i].command, "a\nb\n");
		ck_assert_int_eq(fake.last_ack, acks[i].ack);
		ck_assert_int_eq(fake.partitions[0].end, 2);
		fake_stop(&fake);
	}
}
END_TEST

START_TEST(produce_offsets_prints_partition_and_offset)
{
	fake_start(&fake, 2, true);
	append_numbers(1, 0, 7);
	good_run("produce --offsets -p 1 t", "a\nb\n");
	expect_out("1\t7\n1\t8\n");
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_3_produce_refusal_names_error_topic_partition_and_records)
{
	fake_start(&fake, 2, true);
	fake.faults.produce_error = WIRE_STORAGE_FAILURE;
	fake.faults.produce_error_at = 2;
	run_tool(&run, fake.address, "produce -p 1 --batch-records 2 t", "a\nb\ncc\nd\n", 9);
	expect_code(3);
	expect_said("STORAGE_FAILURE: topic t partition 1: 2 records refused, input records 3 to 4");
	expect_said(" bytes; the broker's log says why\n");
	expect_said("record 3 with 2 bytes");
	expect_said("2 records acknowledged, 2 refused");
	ck_assert_int_eq(fake.partitions[1].end, 2);
	ck_assert_int_eq(fake.produces, 2);	/* and not a third time */
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_7_connection_lost_tells_what_was_acknowledged)
{
	fake_start(&fake, 1, true);
	fake.faults.close_at_produce = 3;
	run_tool(&run, fake.address, "produce --batch-records 2 t", "1\n2\n3\n4\n5\n6\n7\n8\n", 16);
	expect_code(7);
	expect_said("4 records acknowledged");
	expect_said("the first without an answer is input record 5");
	expect_not_said("another connection");		/* that is the program's work */
	ck_assert_int_eq(fake.partitions[0].end, 4);
	ck_assert_int_eq(fake.produces, 3);	/* nothing was tried again, over no connection */
	fake_stop(&fake);
}
END_TEST

/* More requests than are in flight at a time: what waits yet is not sent over another connection. */
START_TEST(exit_7_connection_lost_ends_the_sending)
{
	struct wire_bytes input = { 0 };

	for (int i = 0; i < 200; i++)
		wire_put(&input, "x\n", 2);
	fake_start(&fake, 1, true);
	fake.faults.close_at_produce = 3;
	run_tool(&run, fake.address, "produce --batch-records 1 t", input.data, input.length);
	expect_code(7);
	expect_said("2 records acknowledged, 0 refused");
	ck_assert_int_eq(fake.produces, 3);
	ck_assert_int_eq(fake.partitions[0].end, 2);
	wire_bytes_free(&input);
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_7_connection_lost_while_the_input_pauses)
{
	fake_start(&fake, 1, true);
	fake.faults.close_at_produce = 2;
	run_start(&run, fake.address, "produce t", -1);
	ck_assert_int_eq(write(run.input, "a\n", 2), 2);
	ck_assert(fake_wait_end(&fake, 0, 1));
	ck_assert_int_eq(write(run.input, "b\n", 2), 2);
	waitid(P_PID, (id_t)run.pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT);	/* by itself: its input is still open */
	run_end(&run);
	expect_code(7);
	expect_said("1 records acknowledged");
	expect_said("input record 2");
	fake_stop(&fake);
}
END_TEST

/* ---- consume ------------------------------------------------------------------------------------------------- */

START_TEST(C01_consume_reads_all_partitions_each_in_order)
{
	fake_start(&fake, 3, true);
	append_numbers(0, 0, 3);
	append_numbers(2, 10, 12);
	good_run("consume t", "");
	ck_assert_uint_eq(run.out_bytes, 3 * 2 + 2 * 3);
	ck_assert_ptr_nonnull(strstr(run.out, "0\n1\n"));
	ck_assert_ptr_nonnull(strstr(run.out, "1\n2\n"));
	ck_assert_ptr_nonnull(strstr(run.out, "10\n11\n"));
	good_run("consume t/0", "");
	expect_out("0\n1\n2\n");
	good_run("replay t/2", "");
	expect_out("10\n11\n");
	good_run("consume t/1", "");
	expect_out("");
	fake_stop(&fake);
}
END_TEST

static const struct {
	const char *options, *out;
} ranges[] = {
	{ "--from 7", "7\n8\n9\n" },
	{ "--from 10", "" },
	{ "--from -2", "8\n9\n" },
	{ "--from -100", "3\n4\n5\n6\n7\n8\n9\n" },
	{ "--from latest", "" },
	{ "--from earliest -n 2", "3\n4\n" },
	{ "--to 5", "3\n4\n" },
	{ "--from 4 --to 6", "4\n5\n" },
	{ "--from 6 --to 4", "" },
	{ "--from=4 --to=end -n1", "4\n" },
	{ "--to never -n 7", "3\n4\n5\n6\n7\n8\n9\n" },
};

START_TEST(consume_from_to_and_n_bound_what_is_written)
{
	char command[128];

	fake_start(&fake, 1, true);
	append_numbers(0, 0, 10);
	fake.partitions[0].start = 3;
	snprintf(command, sizeof command, "consume %s t", ranges[_i].options);
	good_run(command, "");
	expect_out(ranges[_i].out);
	fake_stop(&fake);
}
END_TEST

START_TEST(consume_to_an_offset_that_is_not_there_yet_waits_for_it)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 2);
	run_start(&run, fake.address, "consume --to 4 t", -1);
	ck_assert(run_wait_output(&run, 4));
	append_numbers(0, 2, 6);
	run_end(&run);
	expect_code(0);
	expect_out("0\n1\n2\n3\n");
	ck_assert_str_eq(run.err, "logbroker: t/0 ends at offset 2, --to is 4: waiting for what comes\n");
	fake_stop(&fake);
}
END_TEST

static const struct {
	const char *command;
	int code;
} stopped[] = { { "consume --to 4 t", 7 }, { "follow --from earliest -n 3 t", 7 }, { "follow --from earliest t", 0 },
	{ "replay --to never t", 0 } };

/* Only what was to go on for ever is done when a signal comes. */
START_TEST(exit_7_a_signal_comes_before_the_end_that_was_asked_for)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 2);
	run_start(&run, fake.address, stopped[_i].command, -1);
	ck_assert(run_wait_output(&run, 4));
	kill(run.pid, SIGTERM);
	run_end(&run);
	expect_code(stopped[_i].code);
	ck_assert_int_eq(strstr(run.err, "stopped ahead of the end") != NULL, stopped[_i].code == 7);
	expect_out("0\n1\n");
	fake_stop(&fake);
}
END_TEST

START_TEST(bug_J2_replay_ends_at_the_watermark_of_its_start_while_the_topic_grows)
{
	fake_start(&fake, 2, true);
	append_numbers(0, 0, 100);
	append_numbers(1, 0, 5);
	fake.faults.grow = 50;
	good_run("replay --max-bytes 64 t", "");
	ck_assert_ptr_null(strstr(run.out, "grown"));
	ck_assert_int_gt(fake.partitions[0].end, 100);
	ck_assert_uint_eq(run.out_bytes, 10 * 2 + 90 * 3 + 5 * 2);
	fake_stop(&fake);
}
END_TEST

START_TEST(bug_J1_exit_6_damaged_record_is_reported_after_the_good_ones)
{
	fake_start(&fake, 2, true);
	fake.faults.flip_offset = 4;
	append_numbers(1, 0, 10);
	run_tool(&run, fake.address, "consume t/1", "", 0);
	expect_code(6);
	expect_out("0\n1\n2\n");
	expect_said("t/1 at offset 3: ");
	expect_said("CORRUPT_RECORD");
	expect_said("what stands behind it is read with t/1 --from 4; ");
	run_tool(&run, fake.address, "consume --from 4 t/1", "", 0);
	expect_code(0);
	expect_out("4\n5\n6\n7\n8\n9\n");
	fake_stop(&fake);
}
END_TEST

START_TEST(bug_J3_exit_8_gap_is_reported_and_nothing_is_skipped)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 10);
	fake.partitions[0].start = 4;
	run_tool(&run, fake.address, "consume --from 1 t/0", "", 0);
	expect_code(8);
	expect_out("");
	expect_said("t/0 at offset 1: 3 records are gone, the log starts at 4");
	run_tool(&run, fake.address, "consume --from 11 t/0", "", 0);
	expect_code(8);
	expect_said("t/0 at offset 11: ");
	expect_said("OFFSET_OUT_OF_RANGE");
	fake_stop(&fake);
}
END_TEST

START_TEST(bug_J3_gap_policy_earliest_goes_on_there_and_counts)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 6);
	fake.partitions[0].start = 4;
	good_run("consume --from 1 --on-gap earliest t/0", "");
	expect_out("4\n5\n");
	expect_said("t/0: skipped 3 records; going on at offset 4");
	/* A gap up to the end, behind which no record would tell of it, is an error whatever was chosen. */
	run_tool(&run, fake.address, "consume --from 1 --on-gap latest t/0", "", 0);
	expect_code(8);
	fake.fetches = 0;
	run_start(&run, fake.address, "follow --from 1 --on-gap latest -n 1 t/0", -1);
	ck_assert(fake_wait_fetches(&fake, 1));
	fake_append(&fake, 0, "x", 1);
	run_end(&run);
	expect_code(0);
	expect_out("x\n");
	expect_said("t/0: skipped 5 records; going on at offset 6");
	fake_stop(&fake);
}
END_TEST

/* Retention overtakes a reader on its way: the same rules, asked at that moment. */
START_TEST(bug_J3_gap_on_the_way_follows_the_policy)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 6);
	fake.faults.raise_start = 4;
	run_tool(&run, fake.address, "consume --from 1 t/0", "", 0);
	expect_code(8);
	expect_said("t/0 at offset 1: 3 records are gone");
	fake_stop(&fake);
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 6);
	fake.faults.raise_start = 4;
	good_run("consume --from 1 --on-gap earliest t/0", "");
	expect_out("4\n5\n");
	fake_stop(&fake);
}
END_TEST

START_TEST(C02_earliest_that_retention_overtakes_before_the_first_fetch_is_no_gap)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 6);
	fake.faults.raise_start = 4;
	good_run("consume t/0", "");
	expect_out("4\n5\n");
	ck_assert_str_eq(run.err, "");
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_3_fetch_refusal_names_error_topic_partition_offset)
{
	fake_start(&fake, 2, true);
	append_numbers(1, 0, 3);
	fake.faults.fetch_error = WIRE_STORAGE_FAILURE;
	run_tool(&run, fake.address, "consume --from 1 t/1", "", 0);
	expect_code(3);
	expect_said("t/1 at offset 1: ");
	expect_said("STORAGE_FAILURE");
	fake_stop(&fake);
}
END_TEST

/* OFFSET_OUT_OF_RANGE for an offset that METADATA shows: no endless loop. */
START_TEST(exit_8_contradicting_broker_ends_the_work)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 3);
	fake.faults.fetch_error = WIRE_OFFSET_OUT_OF_RANGE;
	run_tool(&run, fake.address, "consume t/0", "", 0);
	expect_code(8);
	expect_said("OFFSET_OUT_OF_RANGE");
	ck_assert_int_lt(fake.fetches, 20);
	fake_stop(&fake);
}
END_TEST

/* A log that has become shorter than it was at the start: reported in the end, not polled without pause. */
START_TEST(exit_5_log_that_shrank_is_reported)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 9);
	fake.faults.keep_end = 1 + 4;
	run_tool(&run, fake.address, "consume --timeout 400ms t/0", "", 0);
	expect_code(5);
	expect_out("0\n1\n2\n3\n");
	expect_said("no progress in 400 ms");
	expect_said("is told with --timeout 15s");
	ck_assert_int_lt(fake.fetches, 12);
	fake_stop(&fake);
}
END_TEST

START_TEST(A15_record_larger_than_max_bytes_is_grown_to)
{
	char *large = malloc(3000000);
	size_t expected = 3000000 + 1 + 4;

	fake_start(&fake, 1, true);
	memset(large, 'x', 3000000);
	fake_append(&fake, 0, "a", 1);
	fake_append(&fake, 0, large, 3000000);
	fake_append(&fake, 0, "b", 1);
	good_run(_i == 0 ? "consume t" : "consume --max-bytes 1 t", "");
	ck_assert_uint_eq(run.out_bytes, expected);
	ck_assert_mem_eq(run.out, "a\nxxx", 5);
	ck_assert_mem_eq(run.out + expected - 4, "x\nb\n", 4);
	ck_assert_int_eq(fake.largest_max_bytes, 3000008);
	ck_assert_int_lt(fake.fetches, 12);
	free(large);
	fake_stop(&fake);
}
END_TEST

START_TEST(consume_largest_possible_record)
{
	size_t size = 8388582;
	char *large = calloc(1, size);

	fake_start(&fake, 1, true);
	fake_append(&fake, 0, large, size);
	good_run("consume --framing none t", "");
	ck_assert_uint_eq(run.out_bytes, size);
	free(large);
	fake_stop(&fake);
}
END_TEST

START_TEST(consume_max_bytes_cuts_anywhere_and_nothing_is_lost)
{
	char command[64];

	fake_start(&fake, 1, _i % 2 == 0);
	append_numbers(0, 0, 200);
	good_run("consume t", "");
	char *all = strdup(run.out);

	snprintf(command, sizeof command, "consume --max-bytes %d t", 1 + _i);
	good_run(command, "");
	ck_assert_str_eq(run.out, all);
	free(all);
	fake_stop(&fake);
}
END_TEST

/* ---- connections that break, answers that lie ------------------------------------------------------------------ */

START_TEST(consume_answers_cut_at_every_byte_lose_and_repeat_nothing)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 4);
	fake.faults.cut_fetches = 1;
	fake.faults.cut_bytes = (size_t)_i;
	good_run("consume t", "");
	expect_out("0\n1\n2\n3\n");
	ck_assert_int_eq(fake.connections, 2);
	fake_stop(&fake);
}
END_TEST

START_TEST(consume_goes_on_over_many_lost_connections)
{
	fake_start(&fake, 2, true);
	append_numbers(0, 0, 40);
	append_numbers(1, 40, 80);
	good_run("consume t", "");
	char *all = strdup(run.out);

	fake.faults.cut_fetches = 6;
	fake.faults.cut_bytes = 22 + 40;
	good_run("consume --max-bytes 64 t", "");
	ck_assert_uint_eq(run.out_bytes, strlen(all));
	for (char *line = strtok(all, "\n"); line != NULL; line = strtok(NULL, "\n")) {
		char whole[16];

		snprintf(whole, sizeof whole, "\n%s\n", line);
		ck_assert(strncmp(run.out, whole + 1, strlen(whole) - 1) == 0 || strstr(run.out, whole) != NULL);
	}
	free(all);
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_5_connections_that_break_for_ever_end_it)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 4);
	fake.faults.cut_fetches = 1000000;
	fake.faults.cut_bytes = 20;
	run_tool(&run, fake.address, "consume --timeout 500ms t", "", 0);
	expect_code(5);
	ck_assert_int_lt(fake.connections, 10);	/* with pauses that grow */
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_4_broker_that_stays_away_ends_it)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 4);
	run_start(&run, fake.address, "follow --from earliest --timeout 500ms t", -1);
	ck_assert(run_wait_output(&run, 8));
	fake_stop(&fake);
	run_end(&run);
	expect_code(4);
	expect_said("Connection refused");
}
END_TEST

START_TEST(answers_byte_by_byte_are_understood)
{
	fake_start(&fake, 2, true);
	fake.faults.dribble = true;
	good_run("produce -p 1 t", "one\ntwo\n");
	good_run("consume t", "");
	expect_out("one\ntwo\n");
	good_run("topics t", "");
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_1_wrong_correlation_id_is_never_believed)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 4);
	fake.faults.id_shift = 1;
	run_tool(&run, fake.address, _i == 0 ? "topics" : "consume t", "", 0);
	expect_code(1);
	expect_said("an answer to request 1 came where the one to 0 was due");
	expect_out("");
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_1_payload_length_that_disagrees_with_the_frame)
{
	static const int32_t lies[] = { 1, -1, 1000000, INT32_MAX - 100, -1000 };

	fake_start(&fake, 1, true);
	append_numbers(0, 0, 4);
	fake.faults.payload_lie = lies[_i];
	run_tool(&run, fake.address, "consume t", "", 0);
	expect_code(1);
	expect_out("");
	fake_stop(&fake);
}
END_TEST

#define RAW(bytes) { bytes, sizeof(bytes) - 1 }
static const struct {
	const char *bytes;
	size_t size;
} raw_answers[] = {
	RAW("HTTP/1.1 400 Bad Request\r\n\r\n"),
	RAW("\0\0\0\0"),
	RAW("\0\0\0\5\0\0\0\0\0"),
	RAW("\377\377\377\377\0\0\0\0\0\0"),
	RAW("\200\0\0\0\0\0\0\0\0\0"),
	RAW("\0\200\0\1\0\0\0\0\0\0"),				/* 8 MiB + 1 */
	RAW("\0\0\0\7\0\0\0\0\0\1x"),				/* an error with a body */
	RAW("\0\0\0\6\0\0\0\0\0\0"),				/* METADATA without its count */
	RAW("\0\0\0\12\0\0\0\0\0\0\377\377\377\377"),		/* -1 topics */
	RAW("\0\0\0\12\0\0\0\0\0\0\177\377\377\377"),		/* 2^31 - 1 topics */
	RAW("\0\0\0\13\0\0\0\0\0\0\0\0\0\0x"),			/* trailing bytes */
	RAW("\0\0\0\54\0\0\0\0\0\0\0\0\0\1\377\377t\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
	/* name of "/" */
	RAW("\0\0\0\52\0\0\0\0\0\0\0\0\0\1\0\1/\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
	/* 2^31 - 1 partitions */
	RAW("\0\0\0\52\0\0\0\0\0\0\0\0\0\1\0\1t\1\177\377\377\377\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
	/* record format 2 */
	RAW("\0\0\0\52\0\0\0\0\0\0\0\0\0\1\0\1t\2\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
	/* partition number 1 first */
	RAW("\0\0\0\52\0\0\0\0\0\0\0\0\0\1\0\1t\1\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
	/* log start 1 above high watermark 0 */
	RAW("\0\0\0\52\0\0\0\0\0\0\0\0\0\1\0\1t\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0"),
	/* negative log start */
	RAW("\0\0\0\52\0\0\0\0\0\0\0\0\0\1\0\1t\1\0\0\0\1\0\0\0\0\377\377\377\377\377\377\377\377\0\0\0\0\0\0\0\0\0\0\0\0"),
	/* another topic than the one that was asked for */
	RAW("\0\0\0\52\0\0\0\0\0\0\0\0\0\1\0\1u\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
};

START_TEST(exit_1_bytes_that_are_no_answer_do_no_harm)
{
	fake_start(&fake, 1, true);
	fake.faults.raw = raw_answers[_i].bytes;
	fake.faults.raw_bytes = raw_answers[_i].size;
	run_tool(&run, fake.address, "topics t", "", 0);
	expect_code(1);
	expect_out("");
	fake_stop(&fake);
}
END_TEST

/* Every truncation of a METADATA answer, as a frame of its own. */
START_TEST(exit_1_metadata_answer_cut_anywhere_inside_its_frame)
{
	uint8_t whole[64];
	const char *good = "\0\0\0\52\0\0\0\0\0\0\0\0\0\1\0\1t\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

	memcpy(whole, good, 46);
	whole[3] = (uint8_t)_i;
	fake_start(&fake, 1, true);
	fake.faults.raw = whole;
	fake.faults.raw_bytes = 4 + (size_t)_i;
	run_tool(&run, fake.address, "topics t", "", 0);
	expect_code(_i == 42 ? 0 : 1);
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_4_connection_that_ends_before_the_answer)
{
	fake_start(&fake, 1, true);
	fake.faults.raw = "\0\0\0";
	fake.faults.raw_bytes = 3;
	run_tool(&run, fake.address, "ping", "", 0);
	expect_code(4);
	expect_said("closed the connection");
	expect_not_said("another connection");
	fake_stop(&fake);
}
END_TEST

/* ---- follow, ends --------------------------------------------------------------------------------------------- */

START_TEST(follow_writes_what_comes_to_any_partition_and_ends_on_a_signal)
{
	fake_start(&fake, 3, true);
	append_numbers(0, 0, 3);
	run_start(&run, fake.address, "follow t", -1);
	ck_assert(fake_wait_fetches(&fake, 3));
	for (int i = 0; i < 3; i++) {
		fake_append(&fake, i, "new", 3);
		ck_assert(run_wait_output(&run, 4 * (size_t)(i + 1)));
	}
	/* From 2 on as timeout(1) does it: two of them, at once. */
	for (int i = 0; i <= _i / 2; i++)
		kill(run.pid, _i % 2 == 0 ? SIGINT : SIGTERM);
	run_end(&run);
	expect_code(0);
	expect_out("new\nnew\nnew\n");
	ck_assert_str_eq(run.err, "");
	fake_stop(&fake);
}
END_TEST

START_TEST(follow_asks_again_when_a_hold_runs_out_empty)
{
	fake_start(&fake, 1, true);
	fake.faults.hold_ms = 50;
	run_start(&run, fake.address, "follow -n 1 t", -1);
	ck_assert(fake_wait_fetches(&fake, 2));
	fake_append(&fake, 0, "late", 4);
	run_end(&run);
	expect_code(0);
	expect_out("late\n");
	fake_stop(&fake);
}
END_TEST

START_TEST(follow_goes_on_where_it_was_after_a_lost_connection)
{
	fake_start(&fake, 2, true);
	fake.faults.cut_fetches = 3;
	fake.faults.cut_bytes = 30;
	append_numbers(0, 0, 5);
	append_numbers(1, 0, 5);
	run_start(&run, fake.address, "follow --from earliest -n 12 t", -1);
	ck_assert(run_wait_output(&run, 20));
	fake_append(&fake, 0, "x", 1);
	fake_append(&fake, 1, "y", 1);
	run_end(&run);
	expect_code(0);
	ck_assert_uint_eq(run.out_bytes, 24);
	fake_stop(&fake);
}
END_TEST

START_TEST(broken_pipe_is_a_quiet_end)
{
	int ends[2];

	fake_start(&fake, 1, true);
	append_numbers(0, 0, 100000);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	run_start_into(&run, fake.address, _i == 0 ? "consume t" : "follow --from earliest t", -1, ends[1]);
	close(ends[1]);
	ck_assert_int_eq(read(ends[0], &(char){ 0 }, 1), 1);
	close(ends[0]);
	run_end(&run);
	expect_code(0);
	ck_assert_str_eq(run.err, "");
	fake_stop(&fake);
}
END_TEST

/* The reader of an idle follower goes away: noticed without a record that would have to be written. */
static bool
pipe_becomes_full(int reading_end)
{
	int capacity = fcntl(reading_end, F_GETPIPE_SZ), held = 0;

	for (int i = 0; i < 5000; i++) {
		if (ioctl(reading_end, FIONREAD, &held) == 0 && held == capacity)
			return true;
		usleep(2000);
	}
	return false;
}

/* One signal is enough, also when nobody reads; with a standard output that blocks, and with one that does not. */
START_TEST(a_signal_ends_a_wait_for_a_reader)
{
	static char record[100000];
	int ends[2];

	fake_start(&fake, 1, true);
	for (int i = 0; i < 4; i++)
		fake_append(&fake, 0, record, sizeof record);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC | (_i == 0 ? 0 : O_NONBLOCK)), 0);
	run_start_into(&run, fake.address, "follow --from earliest --framing none t", -1, ends[1]);
	ck_assert(pipe_becomes_full(ends[0]));
	kill(run.pid, SIGINT);
	run_end(&run);
	expect_code(0);
	close(ends[0]);
	close(ends[1]);
	fake_stop(&fake);
}
END_TEST

START_TEST(broken_pipe_ends_an_idle_follower)
{
	int ends[2];

	fake_start(&fake, 1, true);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	run_start_into(&run, fake.address, "follow t", -1, ends[1]);
	close(ends[1]);
	ck_assert(fake_wait_fetches(&fake, 1));
	close(ends[0]);
	run_end(&run);
	expect_code(0);
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_1_full_disk_on_standard_output_is_told)
{
	int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	fake_start(&fake, 1, true);
	append_numbers(0, 0, 10);
	run_start_into(&run, fake.address, "consume t", -1, full);
	run_end(&run);
	expect_code(1);
	expect_said("No space left");
	fake_stop(&fake);
}
END_TEST

/* ---- JSON ---------------------------------------------------------------------------------------------------- */

START_TEST(consume_jsonl_and_json_have_a_record_each)
{
	static const char lines[] =
	    "{\"topic\":\"t\",\"partition\":1,\"offset\":0,\"payload\":\"a\\u000a\\\"b\"}\n"
	    "{\"topic\":\"t\",\"partition\":1,\"offset\":1,\"payload_base64\":\"/wA=\"}\n";

	fake_start(&fake, 2, true);
	fake_append(&fake, 1, "a\n\"b", 4);
	fake_append(&fake, 1, "\377\0", 2);
	good_run("consume -o jsonl t", "");
	expect_out(lines);
	good_run("consume --framing jsonl t/1", "");
	expect_out(lines);
	good_run("consume -o json t/1", "");
	expect_out("[{\"topic\":\"t\",\"partition\":1,\"offset\":0,\"payload\":\"a\\u000a\\\"b\"},\n"
	    "{\"topic\":\"t\",\"partition\":1,\"offset\":1,\"payload_base64\":\"/wA=\"}]\n");
	good_run("consume -o json t/0", "");
	expect_out("[]\n");
	fake_stop(&fake);
}
END_TEST

/* Every byte, alone and between others, and random ones: through JSON, and back as they were. */
START_TEST(any_bytes_go_through_jsonl_and_come_back)
{
	struct wire_bytes input = { 0 };
	uint64_t seed = broker_seed("any_bytes_go_through_jsonl_and_come_back");
	char *json;

	for (int i = 0; i < 256; i++) {
		uint8_t bytes[] = { (uint8_t)i, 'x', (uint8_t)i };

		wire_put_i32(&input, 1);
		wire_put(&input, bytes, 1);
		wire_put_i32(&input, 3);
		wire_put(&input, bytes, 3);
	}
	for (int i = 0; i < 2000; i++) {
		size_t size = wire_random(&seed) % (i % 100 == 0 ? 200000 : 300) + 1, at;
		uint64_t kind = wire_random(&seed) % 3;

		wire_put_i32(&input, (int64_t)size);
		at = input.length;
		wire_put_zeros(&input, size);
		for (size_t k = 0; k < size; k++)
			input.data[at + k] = (uint8_t)(kind == 0 ? wire_random(&seed) : kind == 1 ? wire_random(&seed) % 128 :
			    (uint64_t)"\303\251\""[k % 3]);
	}
	fake_start(&fake, 2, true);
	run_tool(&run, fake.address, "produce --framing len32 -p 0 t", input.data, input.length);
	expect_code(0);
	good_run("consume -o jsonl t/0", "");
	json = strdup(run.out);
	ck_assert_uint_eq(strlen(json), run.out_bytes);		/* no NUL stands in it */
	run_tool(&run, fake.address, "produce --framing jsonl -p 1 t", json, strlen(json));
	expect_code(0);
	ck_assert_str_eq(run.err, "");
	run_tool(&run, fake.address, "consume --framing len32 t/1", "", 0);
	expect_code(0);
	ck_assert_uint_eq(run.out_bytes, input.length);
	ck_assert(memcmp(run.out, input.data, input.length) == 0);
	free(json);
	wire_bytes_free(&input);
	fake_stop(&fake);
}
END_TEST

START_TEST(produce_bad_jsonl_input_is_told_with_its_place)
{
	static const char input[] = "{\"payload\":\"x\"}\n{\"value\":1}\n";

	fake_start(&fake, 1, true);
	run_tool(&run, fake.address, "produce --framing jsonl t", input, sizeof input - 1);
	expect_code(7);
	expect_said("neither payload nor payload_base64, at byte 16");
	expect_said("1 records acknowledged");
	ck_assert_int_eq(fake.partitions[0].end, 1);
	fake_stop(&fake);
}
END_TEST

START_TEST(produce_offsets_in_json)
{
	fake_start(&fake, 2, true);
	append_numbers(1, 0, 7);
	good_run("produce --offsets -o jsonl -p 1 t", "a\nb\n");
	expect_out("{\"partition\":1,\"offset\":7}\n{\"partition\":1,\"offset\":8}\n");
	good_run("produce --offsets -o json -p 1 t", "a\nb\n");
	expect_out("[{\"partition\":1,\"offset\":9},\n{\"partition\":1,\"offset\":10}]\n");
	good_run("produce --offsets -o json -p 1 t", "");
	expect_out("[]\n");
	fake_stop(&fake);
}
END_TEST

START_TEST(topics_and_ping_in_json)
{
	double ms;
	int end = 0;

	fake_start(&fake, 2, false);
	append_numbers(1, 0, 5);
	fake.partitions[1].start = 2;
	good_run("topics -o json t", "");
	expect_out("{\"topics\":[{\"topic\":\"t\",\"record_format\":\"plain\",\"partitions\":["
	    "{\"partition\":0,\"start\":0,\"watermark\":0,\"records\":0,\"group\":0},\n"
	    "{\"partition\":1,\"start\":2,\"watermark\":5,\"records\":3,\"group\":1}]}]}\n");
	good_run("topics -o jsonl", "");
	expect_out("{\"topic\":\"t\",\"record_format\":\"plain\",\"partition\":0,\"start\":0,\"watermark\":0,\"records\":0,\"group\":0}\n"
	    "{\"topic\":\"t\",\"record_format\":\"plain\",\"partition\":1,\"start\":2,\"watermark\":5,\"records\":3,\"group\":1}\n");
	good_run("ping -o json", "");
	ck_assert_ptr_nonnull(strstr(run.out, fake.address));
	ck_assert_int_eq(sscanf(strstr(run.out, "\"ms\""), "\"ms\":%lf,\"topics\":1,\"partitions\":2}%n", &ms, &end), 1);
	ck_assert_int_gt(end, 0);
	fake.faults.metadata_error = WIRE_STORAGE_FAILURE;
	good_run("ping -o jsonl", "");
	ck_assert_ptr_nonnull(strstr(run.out, ",\"error\":\"STORAGE_FAILURE\"}\n"));
	fake_stop(&fake);
}
END_TEST

/* ---- tail, checkpoints ----------------------------------------------------------------------------------------- */

START_TEST(tail_writes_the_last_records_of_each_partition)
{
	fake_start(&fake, 2, true);
	append_numbers(0, 0, 25);
	append_numbers(1, 30, 33);
	good_run("tail t/0", "");
	expect_out("15\n16\n17\n18\n19\n20\n21\n22\n23\n24\n");
	good_run("tail -n 2 t/0", "");
	expect_out("23\n24\n");
	good_run("tail -n 5 t", "");
	ck_assert_ptr_nonnull(strstr(run.out, "20\n21\n22\n23\n24\n"));
	ck_assert_ptr_nonnull(strstr(run.out, "30\n31\n32\n"));
	ck_assert_uint_eq(run.out_bytes, 8 * 3);
	fake_stop(&fake);
}
END_TEST

START_TEST(tail_f_goes_on_until_a_signal)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 5);
	run_start(&run, fake.address, "tail -n 1 -f t", -1);
	ck_assert(run_wait_output(&run, 2));
	fake_append(&fake, 0, "new", 3);
	ck_assert(run_wait_output(&run, 6));
	kill(run.pid, SIGTERM);
	run_end(&run);
	expect_code(0);
	expect_out("4\nnew\n");
	fake_stop(&fake);
}
END_TEST

static char kept[64];

static void
make_kept(void)
{
	snprintf(kept, sizeof kept, "/tmp/logbroker-test-kept-%d", (int)getpid());
	unlink(kept);
}

static void
remove_kept(void)
{
	char beside[sizeof kept + 8];

	snprintf(beside, sizeof beside, "%s.new", kept);
	unlink(kept);
	unlink(beside);
}

/* The command with the file's name in the place of "%s". */
static const char *
with_kept(const char *text)
{
	static char command[256];
	const char *at = strstr(text, "%s");

	snprintf(command, sizeof command, "%.*s%s%s", (int)(at - text), text, kept, at + 2);
	return command;
}

static void
expect_kept(const char *positions)
{
	char have[512] = "", want[512];
	int fd = open(kept, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_gt(read(fd, have, sizeof have - 1), 0);
	close(fd);
	snprintf(want, sizeof want, "logbroker checkpoint 1\ntopic t\n%send\n", positions);
	ck_assert_str_eq(have, want);
}

static void
wait_kept(const char *positions)
{
	for (int i = 0; i < 15000; i++) {
		char have[256] = "";
		int fd = open(kept, O_RDONLY | O_CLOEXEC);

		if (fd >= 0) {
			ck_assert_int_ge(read(fd, have, sizeof have - 1), 0);
			close(fd);
		}
		if (strstr(have, positions) != NULL)
			break;
		usleep(2000);
	}
	expect_kept(positions);
}

static void
write_kept(const char *text)
{
	int fd = open(kept, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

START_TEST(C04_checkpoint_begins_where_the_last_run_ended)
{
	fake_start(&fake, 2, true);
	append_numbers(0, 0, 5);
	append_numbers(1, 10, 12);
	good_run(with_kept("consume --checkpoint %s t"), "");
	ck_assert_uint_eq(run.out_bytes, 5 * 2 + 2 * 3);
	expect_kept("partition 0 5\npartition 1 2\n");
	good_run(with_kept("consume --checkpoint %s t"), "");
	expect_out("");
	append_numbers(0, 5, 8);
	good_run(with_kept("consume --checkpoint %s -n 2 t"), "");
	expect_out("5\n6\n");
	expect_kept("partition 0 7\npartition 1 2\n");
	good_run(with_kept("replay --from checkpoint --checkpoint %s -o jsonl t"), "");
	expect_out("{\"topic\":\"t\",\"partition\":0,\"offset\":7,\"payload\":\"7\"}\n");
	/* Told otherwise, it begins there, and keeps where it ends. */
	good_run(with_kept("consume --from 1 --to 3 --checkpoint %s t/0"), "");
	expect_out("1\n2\n");
	expect_kept("partition 0 3\npartition 1 2\n");
	fake_stop(&fake);
}
END_TEST

/* Of a partition from which nothing has come the position is kept, too: the next run does not begin at the end of then. */
START_TEST(C04_checkpoint_of_a_follower_that_began_at_the_end)
{
	fake_start(&fake, 2, true);
	append_numbers(0, 0, 5);
	append_numbers(1, 10, 13);
	run_start(&run, fake.address, with_kept("follow --checkpoint %s t"), -1);
	ck_assert(fake_wait_fetches(&fake, 2));
	fake_append(&fake, 0, "new", 3);
	ck_assert(run_wait_output(&run, 4));
	kill(run.pid, SIGINT);
	run_end(&run);
	expect_code(0);
	expect_out("new\n");
	expect_kept("partition 0 6\npartition 1 3\n");
	fake_append(&fake, 1, "missed", 6);
	run_start(&run, fake.address, with_kept("follow --checkpoint %s -n 1 t"), -1);
	run_end(&run);
	expect_code(0);
	expect_out("missed\n");
	/* A partition that has been added to the topic is read from its begin. */
	write_kept("logbroker checkpoint 1\ntopic t\npartition 0 6\nend\n");
	run_start(&run, fake.address, with_kept("follow --checkpoint %s -n 4 t"), -1);
	run_end(&run);
	expect_out("10\n11\n12\nmissed\n");
	fake_stop(&fake);
}
END_TEST

/* Within a second of the records, without an end: who is killed then goes on behind them. */
START_TEST(C04_checkpoint_is_kept_while_following_and_survives_kill)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 5);
	run_start(&run, fake.address, with_kept("follow --from earliest --checkpoint %s t"), -1);
	ck_assert(run_wait_output(&run, 10));
	wait_kept("partition 0 5\n");
	kill(run.pid, SIGKILL);
	run_end(&run);
	fake_append(&fake, 0, "next", 4);
	good_run(with_kept("consume --checkpoint %s t"), "");
	expect_out("next\n");
	fake_stop(&fake);
}
END_TEST

/* Killed ahead of the first record: what came since its start is not skipped by the next one. */
START_TEST(C04_checkpoint_of_a_follower_is_kept_from_its_start)
{
	static const char *const commands[] = { "follow --checkpoint %s t", "follow --from latest --checkpoint %s t" };

	fake_start(&fake, 2, true);
	append_numbers(0, 0, 5);
	append_numbers(1, 0, 3);
	run_start(&run, fake.address, with_kept(commands[_i]), -1);
	wait_kept("partition 0 5\npartition 1 3\n");
	kill(run.pid, SIGKILL);
	run_end(&run);
	fake_append(&fake, 1, "missed", 6);
	run_start(&run, fake.address, with_kept("follow --checkpoint %s -n 1 t"), -1);
	run_end(&run);
	expect_code(0);
	expect_out("missed\n");
	fake_stop(&fake);
}
END_TEST

/* What was not written is not kept as read: a reader that goes away, and a disk that is full. */
START_TEST(C04_checkpoint_stays_when_the_output_fails)
{
	static char record[100000];
	int ends[2], full = open("/dev/full", O_WRONLY | O_CLOEXEC);

	fake_start(&fake, 1, true);
	for (int i = 0; i < 4; i++)
		fake_append(&fake, 0, record, sizeof record);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	close(ends[0]);
	run_start_into(&run, fake.address, with_kept("consume --max-bytes 1000 --framing none --checkpoint %s t"), -1, ends[1]);
	close(ends[1]);
	run_end(&run);
	expect_code(0);
	run_start_into(&run, fake.address, with_kept("consume --checkpoint %s t"), -1, full);
	run_end(&run);
	expect_code(1);
	expect_kept("partition 0 0\n");
	good_run(with_kept("consume --checkpoint %s t"), "");
	ck_assert_uint_eq(run.out_bytes, 4 * (sizeof record + 1));
	close(full);
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_2_checkpoint_of_another_topic_or_no_checkpoint_at_all)
{
	static const char *const commands[] = { "consume --checkpoint %s t", "replay --from 0 --checkpoint %s t",
		"follow --checkpoint %s t/0", "tail --checkpoint %s t", "topics --checkpoint %s t" };

	for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
		write_kept("logbroker checkpoint 1\ntopic u\npartition 0 3\nend\n");
		run_tool(&run, "127.0.0.1:1", with_kept(commands[i]), "", 0);
		expect_code(2);
		expect_said("is a checkpoint of the topic u");
		write_kept("hello\n");
		run_tool(&run, "127.0.0.1:1", with_kept(commands[i]), "", 0);
		expect_code(2);
		expect_said(":1: not 'logbroker checkpoint 1'; this is no checkpoint");
	}
}
END_TEST

START_TEST(exit_9_checkpoint_that_another_one_reads_with)
{
	fake_start(&fake, 1, true);
	run_start(&run, fake.address, with_kept("follow --checkpoint %s t"), -1);
	ck_assert(fake_wait_fetches(&fake, 1));
	struct run second = { 0 };

	run_tool(&second, fake.address, with_kept("consume --checkpoint %s t"), "", 0);
	ck_assert_int_eq(second.code, 9);
	ck_assert_ptr_nonnull(strstr(second.err, "another logbroker reads with this checkpoint"));
	run_free(&second);
	kill(run.pid, SIGTERM);
	run_end(&run);
	expect_code(0);
	fake_stop(&fake);
}
END_TEST

START_TEST(exit_8_checkpoint_of_records_that_are_gone)
{
	fake_start(&fake, 1, true);
	append_numbers(0, 0, 10);
	fake.partitions[0].start = 4;
	write_kept("logbroker checkpoint 1\ntopic t\npartition 0 1\nend\n");
	run_tool(&run, fake.address, with_kept("consume --checkpoint %s t"), "", 0);
	expect_code(8);
	expect_said("3 records are gone");
	expect_kept("partition 0 1\n");
	good_run(with_kept("consume --on-gap earliest --checkpoint %s t"), "");
	expect_out("4\n5\n6\n7\n8\n9\n");
	fake_stop(&fake);
}
END_TEST

START_TEST(topics_lists_the_lag_of_a_checkpoint)
{
	fake_start(&fake, 3, true);
	append_numbers(0, 0, 10);
	append_numbers(1, 0, 4);
	write_kept("logbroker checkpoint 1\ntopic t\npartition 0 7\npartition 1 4\nend\n");
	good_run(with_kept("topics --checkpoint %s"), "");
	expect_out("TOPIC PARTITION        START    WATERMARK      RECORDS GROUP     POSITION          LAG\n"
	    "t             0            0           10           10     0            7            3\n"
	    "t             1            0            4            4     1            4            0\n"
	    "t             2            0            0            0     0            -            -\n");
	good_run(with_kept("topics -o jsonl --checkpoint %s t"), "");
	ck_assert_ptr_nonnull(strstr(run.out, "\"partition\":0,\"start\":0,\"watermark\":10,\"records\":10,\"group\":0,"
	    "\"position\":7,\"lag\":3}\n"));
	ck_assert_ptr_nonnull(strstr(run.out, "\"partition\":2,\"start\":0,\"watermark\":0,\"records\":0,\"group\":0}\n"));
	expect_kept("partition 0 7\npartition 1 4\n");
	write_kept("logbroker checkpoint 1\ntopic u\npartition 0 7\nend\n");
	run_tool(&run, fake.address, with_kept("topics --checkpoint %s"), "", 0);
	expect_code(3);
	fake_stop(&fake);
}
END_TEST

/* ---- every exit code, with input from arguments, a file, a pipe and a terminal ---------------------------------- */

/* What a `produce` is told, and its exit code. */
static const struct {
	const char *command, *input;
	int code;
} produce_codes[] = {
	{ "produce t", "a\nb\n", 0 },
	{ "produce --framing jsonl t", "x\n", 2 },
	{ "produce u", "a\n", 3 },
	{ "-b 127.0.0.1:1 produce t", "a\n", 4 },
	{ "produce --key-delim : t", "a:b\nc\n", 7 },
};

enum { SOURCE_ARGUMENT, SOURCE_FILE, SOURCE_PIPE, SOURCE_TERMINAL, SOURCE_COUNT };

/* The terminal's other end; its line discipline makes ^D the end of the input. */
static int
open_terminal(int *terminal)
{
	int other = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

	ck_assert_int_ge(other, 0);
	ck_assert_int_eq(grantpt(other), 0);
	ck_assert_int_eq(unlockpt(other), 0);
	*terminal = open(ptsname(other), O_RDWR | O_NOCTTY | O_CLOEXEC);
	ck_assert_int_ge(*terminal, 0);
	return other;
}

static void
run_from_terminal(const char *command, const char *input)
{
	int terminal, other = open_terminal(&terminal);

	run_start(&run, fake.address, command, terminal);
	close(terminal);
	ck_assert_int_eq(write(other, input, strlen(input)), (ssize_t)strlen(input));
	ck_assert_int_eq(write(other, "\4", 1), 1);
	run_end(&run);
	close(other);
}

static void
run_from(int source, const char *command, const char *input)
{
	char with_file[128];

	switch (source) {
	case SOURCE_ARGUMENT:
		write_kept(input);
		snprintf(with_file, sizeof with_file, "%s %s", command, kept);
		run_tool(&run, fake.address, with_file, "", 0);
		return;
	case SOURCE_FILE:
		run_tool(&run, fake.address, command, input, strlen(input));
		return;
	case SOURCE_PIPE:
		run_start(&run, fake.address, command, -1);
		/* It may have ended without reading: that is what some of them are about. */
		if (write(run.input, input, strlen(input)) < 0)
			ck_assert_int_eq(errno, EPIPE);
		run_end(&run);
		return;
	default:
		run_from_terminal(command, input);
	}
}

START_TEST(exit_codes_of_produce_whatever_the_input_is)
{
	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < sizeof produce_codes / sizeof produce_codes[0]; i++) {
		fake_start(&fake, 1, true);
		run_from(_i, produce_codes[i].command, produce_codes[i].input);
		expect_code(produce_codes[i].code);
		fake_stop(&fake);
	}
	fake_start(&fake, 1, true);
	fake.faults.produce_error = WIRE_STORAGE_FAILURE;
	fake.faults.produce_error_at = 1;
	run_from(_i, "produce t", "a\n");
	expect_code(3);
	fake_stop(&fake);
	fake_start(&fake, 1, true);
	fake.faults.mute = true;
	run_from(_i, "produce --timeout 150ms t", "a\n");
	expect_code(5);
	fake_stop(&fake);
	fake_start(&fake, 1, true);
	fake.faults.close_at_produce = 2;
	run_from(_i, "produce --batch-records 1 t", "a\nb\n");
	expect_code(7);
	fake_stop(&fake);
	fake_start(&fake, 1, true);
	fake.faults.raw = "HTTP/1.1 400 Bad Request\r\n\r\n";
	fake.faults.raw_bytes = 28;
	run_from(_i, "produce t", "a\n");
	expect_code(1);
	fake_stop(&fake);
}
END_TEST

/* ---- produce's time --------------------------------------------------------------------------------------------- */

START_TEST(C08_produce_linger_lets_records_wait_for_others)
{
	fake_start(&fake, 1, true);
	run_start(&run, fake.address, "produce --linger 20s t", -1);
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(write(run.input, "x\n", 2), 2);
		usleep(20000);
	}
	run_end(&run);		/* the end of the input ends the wait */
	expect_code(0);
	ck_assert_int_eq(fake.produces, 1);
	ck_assert_int_eq(fake.partitions[0].end, 5);
	fake_stop(&fake);
}
END_TEST

START_TEST(C08_produce_sends_a_full_batch_at_once_whatever_the_linger)
{
	fake_start(&fake, 1, true);
	run_start(&run, fake.address, "produce --linger 20s --batch-records 2 t", -1);
	ck_assert_int_eq(write(run.input, "1\n2\n3\n", 6), 6);
	ck_assert(fake_wait_end(&fake, 0, 2));
	run_end(&run);
	expect_code(0);
	ck_assert_int_eq(fake.partitions[0].end, 3);
	fake_stop(&fake);
}
END_TEST

static bool
sleeps(pid_t pid)
{
	char path[64], state = '?';
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	if (file == NULL)
		return false;
	if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
		state = '?';
	fclose(file);
	return state == 'S';
}

/* It has read what is in the pipe, and waits: all of it has been taken for records. */
static bool
is_read(int writing_end, pid_t pid)
{
	int left = 1;

	for (int i = 0; i < 15000; i++, usleep(2000)) {
		if (ioctl(writing_end, FIONREAD, &left) == 0 && left == 0 && sleeps(pid))
			return true;
	}
	return false;
}

/* An end that takes long can be cut short: by a signal that is not the first one's companion. */
START_TEST(a_later_signal_kills)
{
	fake_start(&fake, 1, true);
	fake.faults.hold_produces = 2;
	run_start(&run, fake.address, "produce --timeout 60 --linger 0 t", -1);
	ck_assert_int_eq(write(run.input, "1\n", 2), 2);
	ck_assert(fake_wait_produces(&fake, 1));
	kill(run.pid, SIGTERM);
	usleep(1100000);	/* the second that the manual promises */
	kill(run.pid, SIGTERM);
	run_end(&run);
	expect_code(128 + SIGTERM);
	fake_stop(&fake);
}
END_TEST

/* What was read is delivered, and said; what was not read is not. */
START_TEST(exit_7_a_signal_ends_produce_with_what_was_read)
{
	fake_start(&fake, 1, true);
	run_start(&run, fake.address, "produce --linger 20s t", -1);
	ck_assert_int_eq(write(run.input, "1\n2\n3", 5), 5);
	ck_assert(is_read(run.input, run.pid));
	kill(run.pid, SIGTERM);
	waitid(P_PID, (id_t)run.pid, &(siginfo_t){ 0 }, WEXITED | WNOWAIT);
	run_end(&run);
	expect_code(7);
	expect_said("stopped ahead of the end of the input");
	expect_said("2 records acknowledged, 0 refused, 0 sent without an answer, 0 read and not sent");
	ck_assert_int_eq(fake.partitions[0].end, 2);
	fake_stop(&fake);
}
END_TEST

/* Between two records nothing is lost with a connection. */
START_TEST(C09_produce_goes_on_when_an_idle_connection_ended)
{
	fake_start(&fake, 1, true);
	run_start(&run, fake.address, "produce --offsets t", -1);
	ck_assert_int_eq(write(run.input, "1\n", 2), 2);
	ck_assert(run_wait_output(&run, 4));
	fake_cut(&fake);
	ck_assert_int_eq(write(run.input, "2\n", 2), 2);
	run_end(&run);
	expect_code(0);
	expect_out("0\t0\n0\t1\n");
	fake_stop(&fake);
}
END_TEST

static void
free_run(void)
{
	run_free(&run);
}

#define ADD(test) tcase_add_test(tcase, test)
#define ADD_LOOP(test, count) tcase_add_loop_test(tcase, test, 0, (int)(count))
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void
add_command_line(TCase *tcase)
{
	ADD_LOOP(exit_2_wrong_usage_is_told, COUNT(wrong_usage));
	ADD_LOOP(exit_2_what_is_not_built_is_refused_by_name, COUNT(not_built));
	ADD(exit_2_bad_address_in_the_environment_is_told);
	ADD(help_of_every_verb_has_synopsis_and_examples);
	ADD(manual_has_exactly_the_options_that_the_program_knows);
	ADD(exit_4_cannot_connect);
	ADD_LOOP(exit_5_no_answer_in_time, 4);
	ADD(every_address_of_a_name_is_tried);
	ADD(ping_prints_the_round_trip);
	ADD(ping_takes_a_refusal_for_a_sign_of_life);
	ADD_LOOP(exit_3_metadata_refused_says_where_to_look, COUNT(need_metadata));
	ADD(exit_3_topics_lists_what_it_can);
	ADD(topics_prints_a_table);
	ADD(metadata_falls_back_to_version_1);
	ADD_LOOP(exit_3_unknown_topic_and_partition_are_named, 6);
}

static void
add_produce(TCase *tcase)
{
	ADD_LOOP(produce_lines_and_consume_them_byte_for_byte, 2);
	ADD(produce_last_line_without_newline_is_said);
	ADD(produce_none_takes_each_file_as_a_record);
	ADD(produce_len32_of_random_bytes_comes_back);
	ADD(produce_requests_stay_near_256_kib);
	ADD(produce_has_several_requests_in_flight);
	ADD(produce_lone_record_leaves_while_the_input_stays_open);
	ADD(produce_round_robin_is_even);
	ADD_LOOP(produce_key_chooses_the_golden_partition, 2);
	ADD(produce_record_without_key_is_told_with_its_place);
	ADD(produce_bad_len32_input_is_told_with_its_place);
	ADD(produce_ack_goes_out_as_asked_and_none_waits_for_the_broker_to_have_read_all);
	ADD(produce_offsets_prints_partition_and_offset);
	ADD(exit_3_produce_refusal_names_error_topic_partition_and_records);
	ADD(exit_7_connection_lost_tells_what_was_acknowledged);
	ADD(exit_7_connection_lost_ends_the_sending);
	ADD(exit_7_connection_lost_while_the_input_pauses);
}

static void
add_consume(TCase *tcase)
{
	ADD(C01_consume_reads_all_partitions_each_in_order);
	ADD_LOOP(consume_from_to_and_n_bound_what_is_written, COUNT(ranges));
	ADD(consume_to_an_offset_that_is_not_there_yet_waits_for_it);
	ADD_LOOP(exit_7_a_signal_comes_before_the_end_that_was_asked_for, COUNT(stopped));
	ADD(bug_J2_replay_ends_at_the_watermark_of_its_start_while_the_topic_grows);
	ADD(bug_J1_exit_6_damaged_record_is_reported_after_the_good_ones);
	ADD(bug_J3_exit_8_gap_is_reported_and_nothing_is_skipped);
	ADD(bug_J3_gap_policy_earliest_goes_on_there_and_counts);
	ADD(bug_J3_gap_on_the_way_follows_the_policy);
	ADD(C02_earliest_that_retention_overtakes_before_the_first_fetch_is_no_gap);
	ADD(exit_3_fetch_refusal_names_error_topic_partition_offset);
	ADD(exit_8_contradicting_broker_ends_the_work);
	ADD(exit_5_log_that_shrank_is_reported);
	ADD_LOOP(A15_record_larger_than_max_bytes_is_grown_to, 2);
	ADD(consume_largest_possible_record);
	ADD_LOOP(consume_max_bytes_cuts_anywhere_and_nothing_is_lost, 40);
}

static void
add_faults(TCase *tcase)
{
	ADD_LOOP(consume_answers_cut_at_every_byte_lose_and_repeat_nothing, 22 + 4 * 9);
	ADD(consume_goes_on_over_many_lost_connections);
	ADD(exit_5_connections_that_break_for_ever_end_it);
	ADD(exit_4_broker_that_stays_away_ends_it);
	ADD(answers_byte_by_byte_are_understood);
	ADD_LOOP(exit_1_wrong_correlation_id_is_never_believed, 2);
	ADD_LOOP(exit_1_payload_length_that_disagrees_with_the_frame, 5);
	ADD_LOOP(exit_1_bytes_that_are_no_answer_do_no_harm, COUNT(raw_answers));
	tcase_add_loop_test(tcase, exit_1_metadata_answer_cut_anywhere_inside_its_frame, 6, 43);
	ADD(exit_4_connection_that_ends_before_the_answer);
	ADD_LOOP(follow_writes_what_comes_to_any_partition_and_ends_on_a_signal, 4);
	ADD(follow_asks_again_when_a_hold_runs_out_empty);
	ADD(follow_goes_on_where_it_was_after_a_lost_connection);
	ADD_LOOP(broken_pipe_is_a_quiet_end, 2);
	ADD_LOOP(a_signal_ends_a_wait_for_a_reader, 2);
	ADD(broken_pipe_ends_an_idle_follower);
	ADD(exit_1_full_disk_on_standard_output_is_told);
}

static void
add_json(TCase *tcase)
{
	ADD(consume_jsonl_and_json_have_a_record_each);
	ADD(any_bytes_go_through_jsonl_and_come_back);
	ADD(produce_bad_jsonl_input_is_told_with_its_place);
	ADD(produce_offsets_in_json);
	ADD(topics_and_ping_in_json);
}

static void
add_checkpoints(TCase *tcase)
{
	ADD(tail_writes_the_last_records_of_each_partition);
	ADD(tail_f_goes_on_until_a_signal);
	ADD(C04_checkpoint_begins_where_the_last_run_ended);
	ADD(C04_checkpoint_of_a_follower_that_began_at_the_end);
	ADD(C04_checkpoint_is_kept_while_following_and_survives_kill);
	ADD_LOOP(C04_checkpoint_of_a_follower_is_kept_from_its_start, 2);
	ADD(C04_checkpoint_stays_when_the_output_fails);
	ADD(exit_2_checkpoint_of_another_topic_or_no_checkpoint_at_all);
	ADD(exit_9_checkpoint_that_another_one_reads_with);
	ADD(exit_8_checkpoint_of_records_that_are_gone);
	ADD(topics_lists_the_lag_of_a_checkpoint);
	tcase_add_checked_fixture(tcase, make_kept, remove_kept);
}

static void
add_input(TCase *tcase)
{
	ADD_LOOP(exit_codes_of_produce_whatever_the_input_is, SOURCE_COUNT);
	ADD(C08_produce_linger_lets_records_wait_for_others);
	ADD(C08_produce_sends_a_full_batch_at_once_whatever_the_linger);
	ADD(a_later_signal_kills);
	ADD(exit_7_a_signal_ends_produce_with_what_was_read);
	ADD(C09_produce_goes_on_when_an_idle_connection_ended);
	tcase_add_checked_fixture(tcase, make_kept, remove_kept);
}

int
main(void)
{
	static void (*const groups[])(TCase *) = { add_command_line, add_produce, add_consume, add_faults, add_json,
		add_checkpoints, add_input };
	static const char *const names[] = { "command line", "produce", "consume", "faults", "json", "checkpoints", "input" };
	Suite *suite = suite_create("tool");

	for (size_t i = 0; i < COUNT(groups); i++) {
		TCase *tcase = tcase_create(names[i]);

		tcase_set_timeout(tcase, 120);
		tcase_add_checked_fixture(tcase, NULL, free_run);
		groups[i](tcase);
		suite_add_tcase(suite, tcase);
	}
	return broker_main(suite);
}
