/*
 * logbroker dump, verify and repair as programs: on logs written here by hand, with every exit code and every form of
 * output; on what damages can be done to them; and on the files of a broker that writes, rolls, retires and dies meanwhile.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker.h"
#include "runtool.h"
#include "wire.h"

enum { PATH_BYTES = BROKER_PATH_BYTES * 2 };

static struct broker broker;
static struct run run;

/* ---- logs by hand ------------------------------------------------------------------------------------------- */

static void
put_record(struct wire_bytes *to, bool crc, const void *payload, size_t size)
{
	wire_put_i32(to, (int64_t)size);
	if (crc)
		wire_put_i32(to, (int32_t)wire_crc32c(payload, size));
	wire_put(to, payload, size);
}

/* "$" in the text becomes the data directory; freed by the caller. */
static char *
with_paths(const char *text)
{
	size_t length = strlen(broker.data_dir), size = strlen(text) + 1;
	char *result, *to;

	for (const char *p = text; *p != '\0'; p++)
		size += *p == '$' ? length : 0;
	result = to = malloc(size);
	for (; *text != '\0'; text++) {
		if (*text == '$')
			to = stpcpy(to, broker.data_dir);
		else
			*to++ = *text;
	}
	*to = '\0';
	return result;
}

static char *
path_of(const char *name)
{
	static char paths[4][PATH_BYTES];
	static int next;
	char *path = paths[next++ % 4];

	snprintf(path, PATH_BYTES, "%s/%s", broker.data_dir, name);
	return path;
}

static void
write_file(const char *name, const void *bytes, size_t size)
{
	int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, bytes, size), (ssize_t)size);
	close(fd);
}

static struct wire_bytes
read_file(const char *name)
{
	struct wire_bytes bytes = { 0 };
	uint8_t piece[4096];
	int fd = open(path_of(name), O_RDONLY | O_CLOEXEC);
	ssize_t n;

	ck_assert_int_ge(fd, 0);
	while ((n = read(fd, piece, sizeof piece)) > 0)
		wire_put(&bytes, piece, (size_t)n);
	close(fd);
	return bytes;
}

static void
expect_file(const char *name, const struct wire_bytes *expected)
{
	struct wire_bytes bytes = read_file(name);

	ck_assert_uint_eq(bytes.length, expected->length);
	ck_assert(bytes.length == 0 || memcmp(bytes.data, expected->data, bytes.length) == 0);
	wire_bytes_free(&bytes);
}

static void
flip(const char *name, off_t position)
{
	int fd = open(path_of(name), O_RDWR | O_CLOEXEC);
	uint8_t byte;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, &byte, 1, position), 1);
	byte ^= 0x40;
	ck_assert_int_eq(pwrite(fd, &byte, 1, position), 1);
	close(fd);
}

static void
cut(const char *name, off_t size)
{
	ck_assert_int_eq(truncate(path_of(name), size), 0);
}

#define FIRST "t-0/00000000000000000000.log"
#define SECOND "t-0/00000000000000000003.log"
#define LAST "t-0/00000000000000000006.log"

/* Three segments of three records, "record 0" to "record 8": 16 bytes each with crc32c, 12 with plain. */
static void
make_log(bool crc)
{
	broker_prepare(&broker, &(struct broker_config){ .workers = 1 });
	ck_assert_int_eq(mkdir(broker.data_dir, 0750), 0);
	ck_assert_int_eq(mkdir(path_of("t-0"), 0750), 0);
	for (int base = 0; base < 9; base += 3) {
		struct wire_bytes bytes = { 0 };
		char name[64], payload[16];

		for (int i = base; i < base + 3; i++) {
			snprintf(payload, sizeof payload, "record %d", i);
			put_record(&bytes, crc, payload, 8);
		}
		snprintf(name, sizeof name, "t-0/%020d.log", base);
		write_file(name, bytes.data, bytes.length);
		wire_bytes_free(&bytes);
	}
}

static void
tool(const char *command)
{
	char *words = with_paths(command);

	run_tool(&run, NULL, words, "", 0);
	free(words);
}

static void
expect_code(int code)
{
	ck_assert_msg(run.code == code, "exit %d\n%.2000s%.2000s", run.code, run.out, run.err);
}

/* Runs the tool, expects its exit code and exactly this output; nothing is said. */
static void
expect_output(const char *command, int code, const char *output)
{
	char *expected = with_paths(output);

	tool(command);
	expect_code(code);
	ck_assert_str_eq(run.out, expected);
	ck_assert_str_eq(run.err, "");
	free(expected);
}

static void
expect_in(const char *text, const char *wanted)
{
	char *expected = with_paths(wanted);

	ck_assert_msg(strstr(text, expected) != NULL, "'%s' is not in\n%.4000s", expected, text);
	free(expected);
}

static void
finish(void)
{
	broker_end(&broker);
	run_free(&run);
}

/* ---- what comes out ------------------------------------------------------------------------------------------- */

START_TEST(verify_of_a_good_log)
{
	make_log(true);
	expect_output("verify $/t-0", 0, "$/t-0: ok: 3 segments, 9 records, 144 bytes, offsets 0 to before 9, crc32c\n");
	expect_output("verify $/" SECOND, 0, "$/t-0: ok: 1 segment, 3 records, 48 bytes, offsets 3 to before 6, crc32c\n");
	expect_output("verify -o json $/t-0/", 0, "{\"partitions\":[{\"path\":\"$/t-0\",\"findings\":[],\"result\":\"ok\","
	    "\"record_format\":\"crc32c\",\"segments\":3,\"records\":9,\"bytes\":144,\"first_offset\":0,\"end_offset\":9,"
	    "\"torn_bytes\":0,\"corruptions\":0,\"failures\":0,\"notes\":0,\"broker_running\":false}],\"result\":\"ok\"}\n");
	ck_assert_int_eq(mkdir(path_of("t-1"), 0750), 0);
	expect_output("verify $", 0, "$/t-0: ok: 3 segments, 9 records, 144 bytes, offsets 0 to before 9, crc32c\n"
	    "$/t-1: ok: 0 segments, 0 records, 0 bytes\n2 partitions: 0 corrupt, 0 that could not be read in full\n");
	finish();
}
END_TEST

START_TEST(verify_of_a_plain_log)
{
	make_log(false);
	expect_output("verify $/t-0", 0, "$/t-0: ok: 3 segments, 9 records, 108 bytes, offsets 0 to before 9, plain (no sums: "
	    "only lengths could be checked)\n");
	expect_output("dump -n 1 $/t-0", 0, "$/" FIRST " (plain)\n"
	    "      OFFSET     POSITION    LENGTH       SUM\n"
	    "           0            0         8         -\n");
	finish();
}
END_TEST

START_TEST(verify_of_a_damaged_log)
{
	make_log(true);
	flip(SECOND, 16 + 10);
	expect_output("verify $/t-0", 6, "corruption: $/" SECOND ": position 16, offset 4: 16 bytes (a record whose sum does not "
	    "fit), 1 record; good records in this file: 1 before, 1 behind; restore the file from a copy; until then the broker "
	    "serves what it can reach around this place\n"
	    "$/t-0: corrupt: 3 segments, 8 records, 128 bytes, offsets 0 to before 9, crc32c\n");
	expect_output("verify -o jsonl $/t-0", 6, "{\"type\":\"finding\",\"kind\":\"bad_record\",\"weight\":\"corruption\","
	    "\"path\":\"$/t-0\",\"file\":\"00000000000000000003.log\",\"position\":16,\"offset\":4,\"bytes\":16,\"records\":1,"
	    "\"text\":\"position 16, offset 4: 16 bytes (a record whose sum does not fit), 1 record; good records in this file: "
	    "1 before, 1 behind\",\"to_do\":\"restore the file from a copy; until then the broker serves what it can reach "
	    "around this place\"}\n"
	    "{\"type\":\"partition\",\"path\":\"$/t-0\",\"result\":\"corrupt\",\"record_format\":\"crc32c\",\"segments\":3,"
	    "\"records\":8,\"bytes\":128,\"first_offset\":0,\"end_offset\":9,\"torn_bytes\":0,\"corruptions\":1,\"failures\":0,"
	    "\"notes\":0,\"broker_running\":false}\n");
	/* The one segment that is whole is. */
	tool("verify $/" LAST);
	expect_code(0);
	finish();
}
END_TEST

START_TEST(dump_shows_records_and_what_is_none)
{
	make_log(true);
	flip(SECOND, 16 + 10);
	expect_output("dump $/t-0", 6, "$/" FIRST " (crc32c)\n"
	    "      OFFSET     POSITION    LENGTH       SUM\n"
	    "           0            0         8  249a7221\n"
	    "           1           16         8  d6f1f122\n"
	    "           2           32         8  c5a102d6\n"
	    "$/" SECOND " (crc32c)\n"
	    "      OFFSET     POSITION    LENGTH       SUM\n"
	    "           3            0         8  37ca81d5\n"
	    "           4           16         -         -  bad: 16 bytes (a record whose sum does not fit)\n"
	    "           5           32         8  116b663d\n"
	    "$/" LAST " (crc32c)\n"
	    "      OFFSET     POSITION    LENGTH       SUM\n"
	    "           6            0         8  023b95c9\n"
	    "           7           16         8  f05016ca\n"
	    "           8           32         8  ae432aee\n");
	expect_output("dump --payload --from 5 -n 2 $/t-0", 0, "$/" SECOND " (crc32c)\n"
	    "      OFFSET     POSITION    LENGTH       SUM\n"
	    "           5           32         8  116b663d  \"record 5\"\n"
	    "$/" LAST " (crc32c)\n"
	    "      OFFSET     POSITION    LENGTH       SUM\n"
	    "           6            0         8  023b95c9  \"record 6\"\n");
	expect_output("dump --payload -o jsonl $/" SECOND, 6,
	    "{\"type\":\"record\",\"file\":\"$/" SECOND "\",\"offset\":3,\"position\":0,\"length\":8,\"crc32c\":\"37ca81d5\","
	    "\"payload\":\"record 3\"}\n"
	    "{\"type\":\"bad\",\"file\":\"$/" SECOND "\",\"offset\":4,\"position\":16,\"bytes\":16,"
	    "\"reason\":\"a record whose sum does not fit\"}\n"
	    "{\"type\":\"record\",\"file\":\"$/" SECOND "\",\"offset\":5,\"position\":32,\"length\":8,\"crc32c\":\"116b663d\","
	    "\"payload\":\"record 5\"}\n");
	expect_output("dump -o json -n 2 $", 0, "{\"records\":["
	    "{\"type\":\"record\",\"file\":\"$/" FIRST "\",\"offset\":0,\"position\":0,\"length\":8,\"crc32c\":\"249a7221\"},"
	    "{\"type\":\"record\",\"file\":\"$/" FIRST "\",\"offset\":1,\"position\":16,\"length\":8,\"crc32c\":\"d6f1f122\"}]}\n");
	finish();
}
END_TEST

/* Among payloads nothing else is written; what is left out is said. */
START_TEST(dump_writes_payloads_alone_for_other_programs)
{
	make_log(true);
	expect_output("dump --framing lines --from 4 $", 0, "record 4\nrecord 5\nrecord 6\nrecord 7\nrecord 8\n");
	flip(SECOND, 16 + 10);
	tool("dump --framing lines $/" SECOND);
	expect_code(6);
	ck_assert_str_eq(run.out, "record 3\nrecord 5\n");
	expect_in(run.err, "$/" SECOND ": position 16: bad: 16 bytes (a record whose sum does not fit) left out");
	finish();
}
END_TEST

START_TEST(dump_escapes_what_is_no_text)
{
	static const uint8_t bytes[] = "a\"\\\n\x01\x7F\xC3\xA4\xC2\x85\xFF";
	struct wire_bytes file = { 0 };

	make_log(true);
	put_record(&file, true, bytes, sizeof bytes - 1);
	put_record(&file, true, "\xE2\x82\xAC \"\t\x1B", 7);
	write_file(LAST, file.data, file.length);
	tool("dump --payload $/" LAST);
	expect_code(0);
	expect_in(run.out, "  \"a\\\"\\\\\\n\\x01\\x7f\xC3\xA4\\xc2\\x85\\xff\"\n");
	tool("dump --payload -o jsonl $/" LAST);
	expect_in(run.out, "\"payload_base64\":\"YSJcCgF/w6TChf8=\"");
	expect_in(run.out, "\"payload\":\"\xE2\x82\xAC \\\"\\u0009\\u001b\"");
	wire_bytes_free(&file);
	finish();
}
END_TEST

/* Whatever a file is called, what comes out is one line, and JSON. */
START_TEST(names_with_control_characters_are_escaped)
{
	make_log(true);
	write_file("t-0/evil\x1B[2J\nname\"", "x", 1);
	tool("verify $/t-0");
	expect_code(0);
	expect_in(run.out, "note: $/t-0/evil\\x1b[2J\\nname\\\": does not belong to this log: no segment has such a name; the broker "
	    "ignores it; move it elsewhere\n");
	tool("verify -o json $/t-0");
	expect_in(run.out, "\"file\":\"evil\\u001b[2J\\u000aname\\\"\"");
	finish();
}
END_TEST

/* ---- exit codes ------------------------------------------------------------------------------------------------- */

static const struct {
	const char *command;
	int code;
	const char *said;
} usages[] = {
	{ "verify /no/such/path", 2, "/no/such/path: No such file" },
	{ "verify /dev/null", 2, "neither a directory nor a regular file" },
	{ "verify $/none", 2, "neither a data directory nor a partition's" },
	{ "verify $/README", 2, "not the name of a segment" },
	{ "repair $/README", 2, "not the name of a segment" },
	{ "dump $/README", 2, "nothing in it tells that it holds records" },
	{ "dump --from 3 $/README", 2, "--from is of no use" },
	{ "verify $/fifo", 2, "neither a directory nor a regular file" },
	{ "dump $/t-0/00000000000000000003.log/x", 2, "Not a directory" },
	{ "verify", 2, "usage" },
	{ "verify --apply $", 2, "no option '--apply'" },
	{ "verify -b 127.0.0.1:1 $", 2, "no option '-b'" },
	{ "-b 127.0.0.1:1 verify $", 2, "of no use" },
	{ "verify --format json $", 2, "--format 'json'" },
	{ "dump --from latest $", 2, "--from 'latest'" },
	{ "dump --payload --framing lines $", 2, "no --payload" },
	{ "verify /no/such/path $/t-0", 2, "No such file" },
};
enum { USAGES = sizeof usages / sizeof usages[0] };

START_TEST(exit_2_what_cannot_be_used_is_told)
{
	make_log(true);
	ck_assert_int_eq(mkdir(path_of("none"), 0750), 0);
	ck_assert_int_eq(mkfifo(path_of("fifo"), 0640), 0);
	write_file("README", "not a log", 9);
	tool(usages[_i].command);
	expect_code(usages[_i].code);
	expect_in(run.err, usages[_i].said);
	finish();
}
END_TEST

/* Unreadable is not corrupt; corrupt outweighs it. */
START_TEST(exit_1_what_cannot_be_read_is_told)
{
	make_log(true);
	ck_assert_int_eq(chmod(path_of(FIRST), 0), 0);
	if (geteuid() == 0) {
		ck_assert_int_eq(chmod(broker.directory, 0755), 0);
		ck_assert_int_eq(chmod(broker.data_dir, 0755), 0);
		ck_assert_int_eq(chmod(path_of("t-0"), 0755), 0);
		ck_assert_int_eq(chmod(path_of(SECOND), 0644), 0);
		ck_assert_int_eq(chmod(path_of(LAST), 0644), 0);
		flip(LAST, 2);
		ck_assert_int_eq(setuid(65534), 0);
	} else {
		flip(LAST, 2);
	}
	tool("verify $/t-0");
	expect_code(6);
	expect_in(run.out, "failure: $/" FIRST ": cannot be opened: Permission denied; run this as the broker's user or as root\n");
	expect_in(run.out, "corruption: $/" LAST ": position 0, offset 6");
	tool("verify $/" FIRST " $/" SECOND);
	expect_code(1);
	expect_in(run.out, "$/t-0: incomplete: 0 segments");
	tool("dump $/t-0");
	expect_code(6);
	expect_in(run.err, "$/" FIRST ": cannot be opened");
	finish();
}
END_TEST

START_TEST(exit_9_repair_stays_away_from_a_broker)
{
	struct wire_bytes before;
	int fd;

	make_log(true);
	cut(LAST, 40);
	before = read_file(LAST);
	write_file("lock", "", 0);
	fd = open(path_of("lock"), O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	for (int i = 0; i < 2; i++) {
		tool(i == 0 ? "repair $" : "repair --apply $/t-0");
		expect_code(9);
		expect_in(run.err, i == 0 ? "$/t-0: a broker is at work here" : "$/lock: a broker is at work here");
		expect_file(LAST, &before);
	}
	tool("verify $");
	expect_code(0);
	expect_in(run.out, ": 8 bytes that are just being written\n");
	expect_in(run.out, "a broker is at work\n");
	close(fd);
	wire_bytes_free(&before);
	finish();
}
END_TEST

START_TEST(a_reader_that_goes_away_is_a_quiet_end)
{
	struct wire_bytes file = { 0 };
	int ends[2];

	make_log(true);
	for (int i = 0; i < 20000; i++)
		put_record(&file, true, "a record", 8);
	write_file(LAST, file.data, file.length);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	close(ends[0]);
	for (int i = 0; i < 3; i++) {
		char *command = with_paths(i == 0 ? "dump $" : i == 1 ? "verify $" : "dump --framing lines $");
		int input = run_file("", 0);

		run_start_into(&run, NULL, command, input, ends[1]);
		close(input);
		run_end(&run);
		expect_code(0);
		ck_assert_str_eq(run.err, "");
		free(command);
	}
	close(ends[1]);
	wire_bytes_free(&file);
	finish();
}
END_TEST

/* ---- damages ------------------------------------------------------------------------------------------------------ */

static const struct {
	const char *what;
	const char *file;
	int flip, cut, add;		/* a byte's position; the size; bytes added; -1: not done */
	const char *rename_to;
	int code;
	const char *told;		/* "" = nothing */
} damages[] = {
	{ "nothing", FIRST, -1, -1, -1, NULL, 0, "$/t-0: ok" },
	{ "a payload in a sealed segment", FIRST, 12, -1, -1, NULL, 6, "$/" FIRST ": position 0, offset 0: 16 bytes (a "
	    "record whose sum does not fit), 1 record; good records in this file: 0 before, 2 behind; restore the file" },
	{ "a sum", FIRST, 5, -1, -1, NULL, 6, "$/" FIRST ": position 0, offset 0" },
	{ "a length", SECOND, 17, -1, -1, NULL, 6, "$/" SECOND ": position 16, offset 4: 16 bytes (an incomplete record), 1 record "
	    "with a wrong length and a whole payload" },
	{ "a sealed segment's end is gone", SECOND, -1, 32, -1, NULL, 6, "$/" SECOND ": its records end at offset 5, but the next "
	    "segment begins at 6: 1 record missing" },
	{ "and torn", SECOND, -1, 40, -1, NULL, 6, "$/" SECOND ": position 32, offset 5: 8 bytes (an incomplete record), 1 record" },
	{ "something is added", SECOND, -1, -1, 100, NULL, 6, "$/" SECOND ": position 48, offset 6: 100 bytes behind its last record" },
	{ "a sealed segment is emptied", SECOND, -1, 0, -1, NULL, 6, "$/" FIRST ": its records end at offset 3, but the next segment "
	    "begins at 6: 3 records missing" },
	{ "another name", SECOND, -1, -1, -1, "t-0/00000000000000000004.log", 6, "00000000000000000004.log: by the segments around it "
	    "its first record has offset 3: it should be 00000000000000000003.log" },
	{ "no such name", SECOND, -1, -1, -1, "t-0/3.log", 6, "3 records missing" },
	{ "a torn end", LAST, -1, 40, -1, NULL, 0, "note: $/" LAST ": position 32, offset 8: 8 bytes of a write that was interrupted "
	    "(an incomplete record); the broker removes them at its start\n" },
	{ "the last record's payload", LAST, 46, -1, -1, NULL, 0, "note: $/" LAST ": position 32, offset 8: 16 bytes of a write that "
	    "was interrupted (a record whose sum does not fit)" },
	{ "a record before the last one", LAST, 30, -1, -1, NULL, 6, "$/" LAST ": position 16, offset 7: 16 bytes (a record whose sum "
	    "does not fit), 1 record; good records in this file: 1 before, 1 behind; restore the file from a copy before the "
	    "broker starts" },
};
enum { DAMAGES = sizeof damages / sizeof damages[0] };

/* verify tells; repair cuts nothing of what is damaged, and changes nothing at all without --apply. */
START_TEST(A19_damages_are_told_and_left_alone)
{
	struct wire_bytes files[3];
	static const char *const names[] = { FIRST, SECOND, LAST };
	const char *file = damages[_i].rename_to != NULL ? damages[_i].rename_to : damages[_i].file;

	make_log(true);
	if (damages[_i].flip >= 0)
		flip(damages[_i].file, damages[_i].flip);
	if (damages[_i].cut >= 0)
		cut(damages[_i].file, damages[_i].cut);
	if (damages[_i].add >= 0)
		cut(damages[_i].file, 48 + damages[_i].add);
	if (damages[_i].rename_to != NULL)
		ck_assert_int_eq(rename(path_of(damages[_i].file), path_of(file)), 0);
	tool("verify $/t-0");
	expect_code(damages[_i].code);
	expect_in(run.out, damages[_i].told);
	for (int i = 0; i < 3; i++)
		files[i] = read_file(names[i] == damages[_i].file ? file : names[i]);
	tool("repair $/t-0");
	expect_code(damages[_i].code);
	for (int i = 0; i < 3; i++)
		expect_file(names[i] == damages[_i].file ? file : names[i], &files[i]);
	tool("repair --apply $/t-0");
	expect_code(damages[_i].code);
	for (int i = 0; i < (damages[_i].file == names[2] && damages[_i].code == 0 ? 2 : 3); i++)
		expect_file(names[i] == damages[_i].file ? file : names[i], &files[i]);
	ck_assert_int_eq(access(path_of("lock"), F_OK), -1);
	for (int i = 0; i < 3; i++)
		wire_bytes_free(&files[i]);
	finish();
}
END_TEST

/* Some of the bits that test_look flips all of, through the program. */
START_TEST(A19_flipped_bits_are_found_by_the_program)
{
	uint64_t random = broker_seed("A19_flipped_bits_are_found_by_the_program");

	make_log(true);
	for (int i = 0; i < 20; i++) {
		off_t position = (off_t)(wire_random(&random) % 48);

		flip(SECOND, position);
		tool("repair --apply $");
		expect_code(6);
		expect_in(run.out, "corruption: $/" SECOND ": position ");
		flip(SECOND, position);
		tool("verify $");
		expect_code(0);
	}
	finish();
}
END_TEST

START_TEST(files_beyond_2_gib_are_read_and_holes_are_skipped)
{
	off_t far = ((off_t)5 << 30) + 123;
	struct wire_bytes record = { 0 };
	int fd;

	make_log(true);
	cut(LAST, (off_t)1 << 40);
	tool("verify $/t-0");
	expect_code(0);
	expect_in(run.out, "ok: 3 segments, 9 records, 144 bytes");
	put_record(&record, true, "far away", 8);
	fd = open(path_of(LAST), O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(pwrite(fd, record.data, record.length, far), (ssize_t)record.length);
	close(fd);
	tool("dump --payload $/" LAST);
	expect_code(6);
	expect_in(run.out, "           ?   5368709243         8  ");
	wire_bytes_free(&record);
	finish();
}
END_TEST

START_TEST(ten_thousand_segments_are_read_one_at_a_time)
{
	enum { SEGMENTS = 10000 };
	char name[64];

	make_log(true);
	for (int i = 9; i < SEGMENTS; i++) {
		struct wire_bytes bytes = { 0 };

		put_record(&bytes, true, "lonely", 6);
		snprintf(name, sizeof name, "t-0/%020d.log", i);
		write_file(name, bytes.data, bytes.length);
		wire_bytes_free(&bytes);
	}
	tool("verify $");
	expect_code(0);
	expect_in(run.out, "ok: 9994 segments, 10000 records, ");
	ck_assert_int_eq(unlink(path_of("t-0/00000000000000005000.log")), 0);
	tool("verify $");
	expect_code(6);
	expect_in(run.out, "$/t-0/00000000000000004999.log: its records end at offset 5000, but the next segment begins at 5001: 1 "
	    "record missing");
	finish();
}
END_TEST

/* ---- repair --------------------------------------------------------------------------------------------------------- */

START_TEST(repair_cuts_a_torn_end_and_copies_it_aside)
{
	struct wire_bytes torn = { 0 };
	struct stat st;

	make_log(true);
	flip(LAST, 40);
	cut(LAST, 46);
	torn = read_file(LAST);
	expect_output("repair $/t-0", 0, "note: $/" LAST ": position 32, offset 8: 14 bytes of a write that was interrupted (an "
	    "incomplete record); the broker removes them at its start\n"
	    "plan: $/" LAST ": cut 14 bytes from position 32, offset 8 and copy them aside (--apply does it)\n"
	    "$/t-0: ok: 3 segments, 8 records, 128 bytes, offsets 0 to before 8, crc32c\n");
	expect_file(LAST, &torn);
	tool("repair -o json --apply $");
	expect_code(0);
	expect_in(run.out, "\"plan\":{\"file\":\"00000000000000000006.log\",\"position\":32,\"offset\":8,\"bytes\":14,"
	    "\"copy\":\"00000000000000000006.cut\",\"applied\":true}");
	ck_assert_int_eq(stat(path_of(LAST), &st), 0);
	ck_assert_int_eq(st.st_size, 32);
	torn.length = 14;
	memmove(torn.data, torn.data + 32, 14);
	expect_file("t-0/00000000000000000006.cut", &torn);
	expect_output("repair --apply $/t-0", 0, "note: $/t-0/00000000000000000006.cut: 14 bytes that were once cut off a log's end; "
	    "logbroker dump shows them; they are yours to delete\n"
	    "$/t-0: ok: 3 segments, 8 records, 128 bytes, offsets 0 to before 8, crc32c\n");
	wire_bytes_free(&torn);
	finish();
}
END_TEST

/* Its copy and the lock are the broker's, who reads them at its next start. */
START_TEST(repair_by_root_leaves_the_broker_its_files)
{
	struct stat st;

	if (geteuid() != 0)
		return;
	make_log(true);
	cut(LAST, 40);
	ck_assert_int_eq(chown(path_of(LAST), 4711, 4712), 0);
	tool("repair --apply $");
	expect_code(0);
	ck_assert_int_eq(stat(path_of("t-0/00000000000000000006.cut"), &st), 0);
	ck_assert_uint_eq(st.st_uid, 4711);
	ck_assert_int_eq(access(path_of("lock"), F_OK), -1);
	finish();
}
END_TEST

START_TEST(repair_does_not_write_into_a_lock_that_is_no_brokers)
{
	struct wire_bytes lock;

	make_log(true);
	cut(LAST, 40);
	write_file("lock", "somebody's shopping list: milk, bread", 37);
	lock = read_file("lock");
	tool("repair --apply $/t-0");
	expect_code(0);
	expect_file("lock", &lock);
	wire_bytes_free(&lock);
	finish();
}
END_TEST

START_TEST(repair_cuts_nothing_off_what_may_be_no_log)
{
	static const char text[] = "This file has a name like a segment's, and that is all.";
	struct wire_bytes before;

	make_log(true);
	ck_assert_int_eq(unlink(path_of(FIRST)) + unlink(path_of(SECOND)), 0);
	write_file(LAST, text, sizeof text - 1);
	before = read_file(LAST);
	tool("repair --apply $/t-0");
	expect_in(run.err, "nothing in it tells that this is a log; --format");
	expect_file(LAST, &before);
	tool("repair --format crc32c --apply $/t-0");
	expect_code(0);
	expect_file("t-0/00000000000000000006.cut", &before);
	wire_bytes_free(&before);
	finish();
}
END_TEST

START_TEST(what_was_cut_can_be_shown_and_sent_again)
{
	struct wire_bytes file = { 0 };

	make_log(true);
	put_record(&file, true, "lost 0", 6);
	put_record(&file, true, "lost 1", 6);
	file.data[3] ^= 0x55;
	write_file("t-0/00000000000000000006.cut", file.data, file.length);
	expect_output("dump --payload $/t-0/00000000000000000006.cut", 6, "$/t-0/00000000000000000006.cut (crc32c)\n"
	    "      OFFSET     POSITION    LENGTH       SUM\n"
	    "           ?            0         -         -  bad: 14 bytes (an incomplete record)\n"
	    "           ?           14         6  cd5a3c2d  \"lost 1\"\n");
	tool("dump --framing lines $/t-0/00000000000000000006.cut");
	expect_code(6);
	ck_assert_str_eq(run.out, "lost 1\n");
	/* A copy by any name. */
	write_file("saved", file.data + 14, 14);
	expect_output("dump --framing lines $/saved", 0, "lost 1\n");
	wire_bytes_free(&file);
	finish();
}
END_TEST

/* After a repair the broker finds nothing to do, gives the next offset, and all is as it was. */
START_TEST(a_broker_goes_on_where_repair_has_cut)
{
	int64_t base;
	int fd;

	make_log(_i == 0);
	cut(LAST, _i == 0 ? 40 : 30);
	tool("repair --apply $");
	expect_code(0);
	broker_restart(&broker, &(struct broker_config){ .workers = 1,
	    .log = _i == 0 ? "record_format = crc32c\n" : "record_format = plain\n" });
	ck_assert_int_eq(broker_count_log(&broker, "cutting"), 0);
	fd = wire_connect_tcp(broker.port);
	ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_FORCED, "again", 5, &base), 0);
	ck_assert_int_eq(base, 8);
	close(fd);
	tool("repair $");
	expect_code(9);
	expect_in(run.err, " supervisor, ");
	broker_stop(&broker);
	tool("verify $");
	expect_code(0);
	expect_in(run.out, " 9 records, ");
	finish();
}
END_TEST

static void
append_garbage(const char *name)
{
	int fd = open(path_of(name), O_WRONLY | O_APPEND | O_CLOEXEC);

	ck_assert_int_eq(write(fd, "\0\0\0\x9" "half", 8), 8);
	close(fd);
}

/* Stored indexes are the broker's: one that ends ahead of the cut stays, another goes, or it might fit one day. */
START_TEST(repair_removes_an_index_only_when_it_is_wrong)
{
	static const char segment[] = "t-0/00000000000000000000.log", index[] = "t-0/00000000000000000000.index";
	struct wire_bytes stored;
	int fd;

	broker_start(&broker, &(struct broker_config){ .workers = 1 });
	fd = wire_connect_tcp(broker.port);
	ck_assert_int_eq(wire_produce_one(fd, "t", 0, WIRE_FORCED, "first", 5, NULL), 0);
	close(fd);
	broker_stop(&broker);
	append_garbage(segment);
	stored = read_file(index);
	tool("repair --apply $");
	expect_code(0);
	expect_in(run.out, "repaired: $/t-0/00000000000000000000.log: cut 8 bytes from position 13, offset 1");
	expect_file(index, &stored);
	append_garbage(segment);
	write_file(index, "no index", 8);
	tool("repair $");
	expect_code(0);
	expect_in(run.out, "note: $/t-0/00000000000000000000.index: its index is damaged, or of another log; ");
	ck_assert_int_eq(access(path_of(index), F_OK), 0);
	tool("repair --apply $");
	expect_code(0);
	ck_assert_int_eq(access(path_of(index), F_OK), -1);
	broker_restart(&broker, NULL);
	ck_assert_int_eq(broker_count_log(&broker, "cutting") + broker_count_log(&broker, ".index"), 0);
	broker_stop(&broker);
	wire_bytes_free(&stored);
	finish();
}
END_TEST

/* ---- a broker at work ------------------------------------------------------------------------------------------------ */

static atomic_bool stop;
static atomic_long produced;

/* Batches of many sizes, as fast as they go, until told to stop; the worker may be killed meanwhile. */
static void *
produce(void *topic)
{
	static uint8_t payload[3000];
	uint64_t random = 1;
	int fd = -1;

	memset(payload, 'x', sizeof payload);
	while (!stop) {
		struct wire_record records[40];
		size_t count = 1 + wire_random(&random) % 40;

		if (fd == -1 && (fd = wire_connect_tcp(broker.port)) == -1)
			continue;
		for (size_t i = 0; i < count; i++)
			records[i] = (struct wire_record){ payload, 1 + wire_random(&random) % (i % 8 == 0 ? sizeof payload : 100) };
		if (wire_produce(fd, topic, 0, WIRE_WRITTEN, records, count, NULL, NULL) == 0) {
			produced += (long)count;
			continue;
		}
		close(fd);
		fd = -1;
	}
	if (fd != -1)
		close(fd);
	return NULL;
}

static void
expect_no_alarm(const char *command)
{
	static const char *const alarms[] = { "corruption", "failure", "bad:", "torn", "its index", "sealed.list",
		"does not belong", "empty, or zeros", "left over" };

	tool(command);
	for (size_t i = 0; i < sizeof alarms / sizeof alarms[0]; i++) {
		const char *alarm = strstr(run.out, alarms[i]);

		ck_assert_msg(alarm == NULL, "%s: %.1000s", command, alarm);
	}
	ck_assert_msg(run.err[0] == '\0', "%.1000s", run.err);
	expect_code(0);
}

static const char *const live_modes[] = { "write_mode = file\n", "write_mode = mapped\n" };
static const char *const live_formats[] = { "record_format = crc32c\n", "record_format = plain\n" };

/*
 * Segments of 64 KiB, of which retention leaves a few; a worker is killed now and then. Nothing of that is ever damage.
 * `_i`: mode and format.
 */
START_TEST(a_broker_at_work_is_never_a_false_alarm)
{
	char log[512];
	pthread_t producer;
	int rounds = 25 * broker_scale();
	long before = 0;

	snprintf(log, sizeof log, "%s%ssegment_bytes = 64KiB\nretention_bytes = 512KiB\nretention_check_interval = 20ms\n"
	    "flush_interval = 50ms\n", live_modes[_i % 2], live_formats[_i / 2]);
	broker_start(&broker, &(struct broker_config){ .workers = 1, .log = log });
	broker.workers_may_die = true;
	stop = false;
	ck_assert_int_eq(pthread_create(&producer, NULL, produce, (void *)(uintptr_t)"t"), 0);
	for (int i = 0; i < rounds; i++) {
		pid_t worker = i % 5 == 4 ? broker_wait_worker_of(&broker, "t", 0, 0, 20000) : 0;

		if (worker > 0)
			kill(worker, SIGKILL);
		expect_no_alarm("verify $");
		expect_in(run.out, "a broker is at work\n");
		expect_no_alarm(i % 2 == 0 ? "dump $/t-0" : "dump --framing len32 $");
		while (produced == before)
			usleep(1000);
		before = produced;
	}
	stop = true;
	ck_assert_int_eq(pthread_join(producer, NULL), 0);
	ck_assert_int_eq(broker_wait_worker_of(&broker, "t", 0, 0, 20000) > 0, 1);
	broker_stop(&broker);
	expect_no_alarm("verify $");
	finish();
}
END_TEST

/* Killed with all it had: whatever stands at the end is no damage, and repair makes it what the next start would. */
START_TEST(a_broker_that_was_killed_leaves_no_damage)
{
	for (int round = 0; round < 5; round++) {
		char log[512];
		pthread_t producer;

		snprintf(log, sizeof log, "%s%ssegment_bytes = 1MiB\n", live_modes[_i % 2], live_formats[_i / 2]);
		broker_start(&broker, &(struct broker_config){ .workers = 1, .log = log });
		stop = false;
		produced = 0;
		ck_assert_int_eq(pthread_create(&producer, NULL, produce, (void *)(uintptr_t)"t"), 0);
		while (produced < 3000)
			usleep(1000);
		broker_kill(&broker);
		stop = true;
		ck_assert_int_eq(pthread_join(producer, NULL), 0);
		tool("verify $");
		expect_code(0);
		tool("repair --apply $");
		expect_code(0);
		broker_restart(&broker, NULL);
		ck_assert_int_eq(broker_count_log(&broker, "cutting"), 0);
		broker_stop(&broker);
		broker_end(&broker);
	}
	run_free(&run);
}
END_TEST

static Suite *
suite(void)
{
	Suite *suite = suite_create("offline");
	TCase *tests = tcase_create("offline"), *live = tcase_create("live");

	suite_add_tcase(suite, tests);
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, verify_of_a_good_log);
	tcase_add_test(tests, verify_of_a_plain_log);
	tcase_add_test(tests, verify_of_a_damaged_log);
	tcase_add_test(tests, dump_shows_records_and_what_is_none);
	tcase_add_test(tests, dump_writes_payloads_alone_for_other_programs);
	tcase_add_test(tests, dump_escapes_what_is_no_text);
	tcase_add_test(tests, names_with_control_characters_are_escaped);
	tcase_add_loop_test(tests, exit_2_what_cannot_be_used_is_told, 0, USAGES);
	tcase_add_test(tests, exit_1_what_cannot_be_read_is_told);
	tcase_add_test(tests, exit_9_repair_stays_away_from_a_broker);
	tcase_add_test(tests, a_reader_that_goes_away_is_a_quiet_end);
	tcase_add_loop_test(tests, A19_damages_are_told_and_left_alone, 0, DAMAGES);
	tcase_add_test(tests, A19_flipped_bits_are_found_by_the_program);
	tcase_add_test(tests, files_beyond_2_gib_are_read_and_holes_are_skipped);
	tcase_add_test(tests, ten_thousand_segments_are_read_one_at_a_time);
	tcase_add_test(tests, repair_cuts_a_torn_end_and_copies_it_aside);
	tcase_add_test(tests, repair_by_root_leaves_the_broker_its_files);
	tcase_add_test(tests, repair_does_not_write_into_a_lock_that_is_no_brokers);
	tcase_add_test(tests, repair_cuts_nothing_off_what_may_be_no_log);
	tcase_add_test(tests, what_was_cut_can_be_shown_and_sent_again);
	tcase_add_loop_test(tests, a_broker_goes_on_where_repair_has_cut, 0, 2);
	tcase_add_test(tests, repair_removes_an_index_only_when_it_is_wrong);
	suite_add_tcase(suite, live);
	tcase_set_timeout(live, 300 * broker_scale());
	tcase_add_loop_test(live, a_broker_at_work_is_never_a_false_alarm, 0, 4);
	tcase_add_loop_test(live, a_broker_that_was_killed_leaves_no_damage, 0, 4);
	return suite;
}

int
main(void)
{
	return broker_main(suite());
}
