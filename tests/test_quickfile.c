/*
 * Real files through the tool and back, byte for byte: text as lines, programs as len32, made from what the machine has.
 * Once undisturbed, compared by checksum; once while the worker that serves the reader is killed and comes back.
 *
 * LOGBROKER_TEST_FILE_MB: all bytes of both files together (20 times LOGBROKER_TEST_SCALE).
 */
#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum { PIECE = 256 * 1024, SOURCE_MAX = 16 * 1024 * 1024, KILLS = 3, COMMAND_BYTES = BROKER_PATH_BYTES * 4 };

static struct broker broker;

static int64_t
file_bytes(void)
{
	const char *text = getenv("LOGBROKER_TEST_FILE_MB");
	int64_t mb = text != NULL ? atoll(text) : 20 * broker_scale();

	return (mb > 0 ? mb : 1) * 1000000 / 2;
}

/* ---- the material ---------------------------------------------------------------------------------------------- */

static struct {
	FILE *to;
	int64_t bytes, wanted, records;
	bool binary;
	uint64_t random;
} making;

static void
put_bytes(const void *from, size_t length)
{
	ck_assert_uint_eq(fwrite(from, 1, length, making.to), length);
	making.bytes += (int64_t)length;
}

/* Every line as it is, blank ones and bytes beyond ASCII included; the file may end without a newline. */
static void
add_text(const char *text, size_t length)
{
	if (memchr(text, '\0', length < 4096 ? length : 4096) != NULL)
		return;
	put_bytes(text, length);
	if (length > 0 && text[length - 1] != '\n')
		put_bytes("\n", 1);
	making.records++;
}

/* Cut into records of any size. */
static void
add_binary(const char *bytes, size_t length)
{
	while (length > 0) {
		size_t size = 1 + wire_random(&making.random) % (wire_random(&making.random) % 8 == 0 ? 300000 : 3000);
		uint8_t head[4];

		if (size > length)
			size = length;
		wire_set_i32(head, (int64_t)size);
		put_bytes(head, 4);
		put_bytes(bytes, size);
		bytes += size;
		length -= size;
		making.records++;
	}
}

static int
add_file(const char *path, const struct stat *status, int type, struct FTW *place)
{
	char *bytes;
	size_t length;

	(void)place;
	if (type != FTW_F || !S_ISREG(status->st_mode) || status->st_size == 0 || status->st_size > SOURCE_MAX ||
	    access(path, R_OK) < 0)
		return 0;
	bytes = procs_read_file(path, &length);
	if (making.binary)
		add_binary(bytes, length);
	else
		add_text(bytes, length);
	free(bytes);
	return making.bytes >= making.wanted;
}

/* Several times the same when the machine has too little. */
static void
make_file(const char *path, bool binary, uint64_t seed)
{
	static const char *const texts[] = { "/usr/share/doc", "/var/lib/dpkg", "/usr/share/perl5", "/usr/share/common-licenses",
		"/etc", NULL };
	static const char *const programs[] = { "/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu", "/usr/libexec", NULL };
	const char *const *directories = binary ? programs : texts;

	making.to = fopen(path, "we");
	ck_assert_ptr_nonnull(making.to);
	making.bytes = making.records = 0;
	making.wanted = file_bytes();
	making.binary = binary;
	making.random = seed;
	while (making.bytes < making.wanted) {
		int64_t before = making.bytes;

		for (int i = 0; directories[i] != NULL && making.bytes < making.wanted; i++)
			nftw(directories[i], add_file, 32, FTW_PHYS);
		ck_assert_msg(making.bytes > before, "this machine has no such files");
	}
	ck_assert_int_eq(fclose(making.to), 0);
}

/* ---- there and back --------------------------------------------------------------------------------------------- */

static void
tool_path(char *tool)
{
	broker_build_path("logbroker", tool, BROKER_PATH_BYTES);
}

static char *
run_shell(const char *command)
{
	const char *argv[] = { "sh", "-c", command, NULL };
	char *text;
	int code = procs_run(argv, &text, 600000);

	ck_assert_msg(code == 0, "%s: %d: %s", command, code, text);
	return text;
}

static void
compare_checksums(const char *path, const char *framing)
{
	char tool[BROKER_PATH_BYTES], command[COMMAND_BYTES];
	char *there, *back;

	tool_path(tool);
	snprintf(command, sizeof command, "sha256sum < %s", path);
	there = run_shell(command);
	snprintf(command, sizeof command, "{ %s consume -b 127.0.0.1:%d --framing %s t/0 || echo failed; } | sha256sum", tool,
	    broker.port, framing);
	back = run_shell(command);
	ck_assert_uint_gt(strlen(there), 64);
	ck_assert_str_eq(back, there);
	free(there);
	free(back);
}

static bool
same_piece(FILE *one, FILE *other, size_t *length)
{
	static char a[PIECE], b[PIECE];
	size_t other_length;

	*length = fread(a, 1, sizeof a, one);
	other_length = fread(b, 1, sizeof b, other);
	return *length == other_length && memcmp(a, b, *length) == 0;
}

/* The reader is in the middle, since nobody takes more than a pipe's worth ahead of what is compared. */
static void
consume_while_its_worker_dies(const char *path, const char *framing, int64_t total)
{
	char tool[BROKER_PATH_BYTES], command[COMMAND_BYTES];
	FILE *file = fopen(path, "re"), *pipe;
	int64_t done = 0;
	size_t length;
	int kills = 0;

	tool_path(tool);
	snprintf(command, sizeof command, "exec %s consume -b 127.0.0.1:%d --framing %s t/0", tool, broker.port, framing);
	pipe = popen(command, "re");
	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(pipe);
	broker.workers_may_die = true;
	do {
		ck_assert_msg(same_piece(pipe, file, &length), "different behind byte %lld of %lld", (long long)done,
		    (long long)total);
		done += (int64_t)length;
		if (kills < KILLS && done > total / (KILLS + 1) * (kills + 1)) {
			pid_t victim = broker_worker_of(&broker, "t", 0);

			ck_assert_int_gt(victim, 0);
			kill(victim, SIGKILL);
			ck_assert_int_gt(broker_wait_worker_of(&broker, "t", 0, victim, 30000), 0);
			kills++;
		}
	} while (length > 0);
	ck_assert_int_eq(pclose(pipe), 0);
	ck_assert_int_eq(done, total);
	ck_assert_int_eq(kills, KILLS);
	fclose(file);
}

static void
there_and_back(const char *test, const char *framing, bool binary)
{
	char tool[BROKER_PATH_BYTES], path[BROKER_PATH_BYTES + 16], command[COMMAND_BYTES];
	uint64_t seed = broker_seed(test);
	int64_t began;
	double mb;

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 2\n", .log = "segment_bytes = 8MiB\n" });
	snprintf(path, sizeof path, "%s/file", broker.directory);
	make_file(path, binary, seed);
	mb = (double)making.bytes / 1e6;
	broker_launch(&broker);
	broker_wait_ready(&broker);
	tool_path(tool);
	snprintf(command, sizeof command, "%s produce -b 127.0.0.1:%d --framing %s -p 0 t %s", tool, broker.port, framing, path);
	began = wire_now_ms();
	free(run_shell(command));
	printf("%s: %.1f MB, %lld ms in", test, mb, (long long)(wire_now_ms() - began));
	began = wire_now_ms();
	compare_checksums(path, framing);
	printf(", %lld ms back and compared", (long long)(wire_now_ms() - began));
	began = wire_now_ms();
	consume_while_its_worker_dies(path, framing, making.bytes);
	printf(", %lld ms with %d kills\n", (long long)(wire_now_ms() - began), KILLS);
	broker_stop(&broker);
	unlink(path);
	broker_end(&broker);
}

START_TEST(file_of_text_as_lines)
{
	there_and_back("file_of_text_as_lines", "lines", false);
}
END_TEST

START_TEST(file_of_programs_as_len32)
{
	there_and_back("file_of_programs_as_len32", "len32", true);
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("quickfile");
	TCase *tc = tcase_create("quickfile");

	tcase_set_timeout(tc, 120 + (double)file_bytes() / 1e6);
	tcase_add_test(tc, file_of_text_as_lines);
	tcase_add_test(tc, file_of_programs_as_len32);
	suite_add_tcase(s, tc);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
