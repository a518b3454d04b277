/*
 * The conformance command against a really started broker: every verb, every kind of refusal that a healthy broker gives, and
 * records that are cut or too large.
 */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker.h"
#include "procs.h"

enum { WORDS_MAX = 16, DEADLINE_MS = 60000 };

static struct broker broker;

static void
start(const struct broker_config *config)
{
	char address[64];

	broker_start(&broker, config);
	snprintf(address, sizeof address, "127.0.0.1:%d", broker.port);
	setenv("BOOBLIK_BROKER", address, 1);
}

static void
end(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

/* Runs it with words that are separated by single blanks ("''" is an empty one). Its exit code; the text is the caller's. */
static int
run(const char *command, char **text)
{
	char program[BROKER_PATH_BYTES], *words = strdup(command);
	const char *argv[WORDS_MAX] = { program };
	int count = 1, code;

	broker_build_path("tests/conformance", program, sizeof program);
	for (char *word = strtok(words, " "); word != NULL && count < WORDS_MAX - 1; word = strtok(NULL, " "))
		argv[count++] = strcmp(word, "''") == 0 ? "" : word;
	code = procs_run(argv, text, DEADLINE_MS);
	free(words);
	return code;
}

/* It is carried out and prints exactly that. The command is printf's. */
static void __attribute__((format(printf, 2, 3)))
expect(const char *printed, const char *format, ...)
{
	char *text, command[4096];
	va_list arguments;
	int code;

	va_start(arguments, format);
	vsnprintf(command, sizeof command, format, arguments);
	va_end(arguments);
	code = run(command, &text);
	ck_assert_msg(code == 0 && strcmp(text, printed) == 0, "%s: exit code %d, printed\n%s", command, code, text);
	free(text);
}

START_TEST(conformance_capabilities_need_no_broker)
{
	unsetenv("BOOBLIK_BROKER");
	expect("roles=producer,consumer\nname=liblogbroker\n", "capabilities");
}
END_TEST

START_TEST(conformance_metadata)
{
	start(&(struct broker_config){ .topics = "one = 1\nthree = 3\n" });
	expect("partition=0 0 0\n", "metadata one");
	expect("baseOffset=0\nlogEndOffset=2\n", "produce three 1 written 61,62");
	expect("partition=0 0 0\npartition=1 0 2\npartition=2 0 0\n", "metadata three");
	expect("error=UNKNOWN_TOPIC_OR_PARTITION\n", "metadata absent");
	end();
}
END_TEST

static bool
has_arrived(void *printed)
{
	char *text;
	bool met = run("metadata t", &text) == 0 && strcmp(text, printed) == 0;

	free(text);
	return met;
}

START_TEST(conformance_produce_with_each_ack)
{
	start(&(struct broker_config){ .topics = "t = 1\n" });
	expect("baseOffset=0\nlogEndOffset=1\n", "produce t 0 written 00");
	expect("baseOffset=1\nlogEndOffset=4\n", "produce t 0 forced FF,0a,deadBEEF");
	/* No answer; it arrives all the same. */
	expect("", "produce t 0 none 01,02");
	ck_assert(broker_wait(has_arrived, (void *)(uintptr_t)"partition=0 0 6\n", DEADLINE_MS));
	expect("highWatermark=6\nrecord=00\nrecord=ff\nrecord=0a\nrecord=deadbeef\nrecord=01\nrecord=02\n", "fetch t 0 0 1000");
	end();
}
END_TEST

START_TEST(conformance_refusals)
{
	static char large[2 * 2000 + 1];

	start(&(struct broker_config){ .topics = "t = 2\n", .log = "segment_bytes = 1KiB\n" });
	memset(large, '7', sizeof large - 1);
	expect("error=UNKNOWN_TOPIC_OR_PARTITION\n", "produce absent 0 written 61");
	expect("error=UNKNOWN_TOPIC_OR_PARTITION\n", "produce t 2 forced 61");
	expect("error=UNKNOWN_TOPIC_OR_PARTITION\n", "produce-keyed absent 61 61");
	expect("error=UNKNOWN_TOPIC_OR_PARTITION\n", "fetch absent 0 0 100");
	expect("error=UNKNOWN_TOPIC_OR_PARTITION\n", "fetch t 2 0 100");
	expect("error=RECORD_TOO_LARGE\n", "produce t 0 written 61,%s", large + sizeof large - 1 - 2034);
	expect("error=OFFSET_OUT_OF_RANGE\n", "fetch t 0 1 100");
	/* Refused in silence. */
	expect("", "produce t 2 none 61");
	expect("partition=0 0 0\npartition=1 0 0\n", "metadata t");
	end();
}
END_TEST

/* Records of 3, 1 and 2 bytes, each behind a header of so many. */
static void
fetch_of_sizes(const char *topic, int header)
{
	expect("baseOffset=0\nlogEndOffset=3\n", "produce %s 0 written 616263,64,6566", topic);
	expect("highWatermark=3\nrecord=616263\nrecord=64\nrecord=6566\n", "fetch %s 0 0 %d", topic, 3 * header + 6);
	/* The tail is cut: in the payload, in the header, ahead of it. */
	expect("highWatermark=3\nrecord=616263\nrecord=64\n", "fetch %s 0 0 %d", topic, 3 * header + 5);
	expect("highWatermark=3\nrecord=616263\nrecord=64\n", "fetch %s 0 0 %d", topic, 2 * header + 4 + 2);
	expect("highWatermark=3\nrecord=616263\nrecord=64\n", "fetch %s 0 0 %d", topic, 2 * header + 4);
	expect("highWatermark=3\nrecord=6566\n", "fetch %s 0 2 2147483647", topic);
	expect("highWatermark=3\n", "fetch %s 0 3 100", topic);
	/* Nothing whole fits: with its size when that has arrived. */
	expect("highWatermark=3\nrecordExceedsMaxBytes=3\n", "fetch %s 0 0 %d", topic, header + 2);
	expect("highWatermark=3\nrecordExceedsMaxBytes=2\n", "fetch %s 0 2 4", topic);
	expect("highWatermark=3\nrecordExceedsMaxBytes=0\n", "fetch %s 0 0 3", topic);
}

START_TEST(A14_A15_conformance_fetch)
{
	start(&(struct broker_config){ .topics = "crc = 1\nplain = 1\n", .sections = "[topic plain]\nrecord_format = plain\n" });
	fetch_of_sizes("crc", 8);
	fetch_of_sizes("plain", 4);
	end();
}
END_TEST

/* The vectors' columns, and a topic with as many partitions for each. */
static const int partition_counts[] = { 1, 2, 3, 4, 16, 64 };

static void
produce_keyed(const char *key, size_t key_length, int count, int partition, int64_t *next)
{
	char printed[128];

	snprintf(printed, sizeof printed, "partition=%d\nbaseOffset=%lld\n", partition, (long long)*next);
	expect(printed, "produce-keyed t%d %.*s 6b%.*s", count, key_length > 0 ? (int)key_length : 2, key_length > 0 ? key : "''",
	    (int)key_length, key);
	++*next;
}

START_TEST(C06_conformance_keys_go_where_the_golden_vectors_say)
{
	int64_t next[6][64] = { { 0 } };
	char path[BROKER_PATH_BYTES], line[4096];
	int vectors = 0;
	FILE *file;

	start(&(struct broker_config){ .topics = "t1 = 1\nt2 = 2\nt3 = 3\nt4 = 4\nt16 = 16\nt64 = 64\n" });
	broker_source_path("vectors/partitioner-fnv1a.tsv", path, sizeof path);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof line, file) != NULL) {
		size_t length = strcspn(line, "\t");
		char *field = line + length;

		if (line[0] == '#')
			continue;
		strtoul(field + 1, &field, 10);
		for (int i = 0; i < 6; i++) {
			int partition = (int)strtol(field + 1, &field, 10);

			produce_keyed(line, length, partition_counts[i], partition, &next[i][partition]);
		}
		vectors++;
	}
	fclose(file);
	ck_assert_int_eq(vectors, 11);
	/* The key only chooses: what is there is the payload. */
	expect("highWatermark=1\nrecord=6b757365722d31\n", "fetch t64 52 0 1000");
	end();
}
END_TEST

static void
expect_failure(int wanted, const char *says, const char *command)
{
	char *text;
	int code = run(command, &text);

	ck_assert_msg(code == wanted && strstr(text, says) != NULL, "%s: exit code %d, printed\n%s", command, code, text);
	free(text);
}

START_TEST(conformance_what_cannot_be_carried_out)
{
	start(&(struct broker_config){ .topics = "t = 1\n" });
	expect_failure(1, "topic", "metadata a/b");
	expect_failure(1, "", "produce t 0 written ''");
	expect_failure(1, "", "fetch t 0 0 0");
	expect_failure(64, "verb", "metadata");
	expect_failure(64, "verb", "consume t");
	expect_failure(64, "acks", "produce t 0 2 61");
	expect_failure(64, "odd", "produce t 0 written 616");
	expect_failure(64, "hexadecimal", "produce t 0 written 6g");
	expect_failure(64, "number", "fetch t 0 0 2147483648");
	end();
	/* The broker is gone: it says with whom it wanted to talk. */
	expect_failure(1, getenv("BOOBLIK_BROKER"), "metadata t");
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("conformance");
	TCase *tcase = tcase_create("conformance");

	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, conformance_capabilities_need_no_broker);
	tcase_add_test(tcase, conformance_metadata);
	tcase_add_test(tcase, conformance_produce_with_each_ack);
	tcase_add_test(tcase, conformance_refusals);
	tcase_add_test(tcase, A14_A15_conformance_fetch);
	tcase_add_test(tcase, C06_conformance_keys_go_where_the_golden_vectors_say);
	tcase_add_test(tcase, conformance_what_cannot_be_carried_out);
	suite_add_tcase(suite, tcase);
	return broker_main(suite);
}
