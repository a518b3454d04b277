/*
 * Checkpoint files: what is saved comes back, whoever is killed when; what is no checkpoint, or another topic's, is told with
 * its place and left alone; and one reader at a time.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/checkpoint.h"
#include "client/tool.h"
#include "tests/unit.h"

enum { PATH_BYTES = 64 };

static char directory[PATH_BYTES], path[2 * PATH_BYTES], beside[3 * PATH_BYTES];
static int said;	/* a file in the place of stderr */

static void
set_up(void)
{
	snprintf(directory, sizeof directory, "/tmp/logbroker-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof path, "%s/position", directory);
	snprintf(beside, sizeof beside, "%s.new", path);
	said = memfd_create("said", MFD_CLOEXEC);
	ck_assert_int_ge(dup2(said, STDERR_FILENO), 0);
}

static void
tear_down(void)
{
	unlink(path);
	unlink(beside);
	rmdir(directory);
	close(said);
}

static void
write_file(const char *name, const char *text, size_t bytes)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, bytes), (ssize_t)bytes);
	close(fd);
}

static void
expect_file(const char *text)
{
	char have[1024];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	ck_assert_int_ge(fd, 0);
	n = read(fd, have, sizeof have - 1);
	ck_assert_int_ge(n, 0);
	have[n] = '\0';
	close(fd);
	ck_assert_str_eq(have, text);
}

static void
expect_said(const char *text)
{
	char have[4096];
	ssize_t n = pread(said, have, sizeof have - 1, 0);

	ck_assert_int_ge(n, 0);
	have[n] = '\0';
	ck_assert_msg(strstr(have, text) != NULL, "'%s' is not in: %s", text, have);
}

START_TEST(checkpoint_comes_back_as_it_was_saved)
{
	struct checkpoint checkpoint;

	ck_assert_int_eq(checkpoint_open(&checkpoint, path, "t"), TOOL_DONE);
	ck_assert(checkpoint_is_empty(&checkpoint));
	expect_file("logbroker checkpoint 1\ntopic t\nend\n");
	ck_assert_int_eq(checkpoint_set(&checkpoint, 0, 0), 0);
	ck_assert_int_eq(checkpoint_set(&checkpoint, 70000, 5), 0);
	ck_assert_int_eq(checkpoint_set(&checkpoint, 3, INT64_MAX - 1), 0);
	ck_assert_int_eq(checkpoint_save(&checkpoint), 0);
	checkpoint_close(&checkpoint);
	expect_file("logbroker checkpoint 1\ntopic t\npartition 0 0\npartition 3 9223372036854775806\npartition 70000 5\nend\n");
	ck_assert_int_eq(checkpoint_read(&checkpoint, path, NULL), TOOL_DONE);
	ck_assert_str_eq(checkpoint.topic, "t");
	ck_assert_int_eq(checkpoint_get(&checkpoint, 0), 0);
	ck_assert_int_eq(checkpoint_get(&checkpoint, 1), -1);
	ck_assert_int_eq(checkpoint_get(&checkpoint, 3), INT64_MAX - 1);
	ck_assert_int_eq(checkpoint_get(&checkpoint, 70000), 5);
	ck_assert_int_eq(checkpoint_get(&checkpoint, 99998), -1);
	checkpoint_close(&checkpoint);
	ck_assert_int_eq(access(beside, F_OK), -1);
}
END_TEST

#define HEAD "logbroker checkpoint 1\ntopic t\n"
static const struct {
	const char *text;
	size_t bytes;
	const char *said;
} wrong[] = {
	{ "", 0, ":1: the end is missing" },
	{ "\n", 1, ":1: not 'logbroker checkpoint 1'" },
	{ "logbroker checkpoint 2\n", 23, ":1: not" },
	{ "\177ELF\2\1\1\0\0\0\0\n", 12, ":1: a line that is too long, or without its newline" },
	{ "logbroker checkpoint 1\ntopic u\nend\n", 35, "is a checkpoint of the topic u, not of t" },
	{ "logbroker checkpoint 1\ntopic a/b\nend\n", 37, ":2: a topic must stand here" },
	{ "logbroker checkpoint 1\nend\n", 27, ":2: a topic must stand here" },
	{ HEAD, sizeof HEAD - 1, ":3: the end is missing" },
	{ HEAD "partition 0 5\n", sizeof HEAD + 13, ":4: the end is missing" },
	{ HEAD "partition 0 5\nend", sizeof HEAD + 16, ":4: a line that is too long, or without its newline" },
	{ HEAD "partition 0 5\nend\nx\n", sizeof HEAD + 19, ":5: something behind the end" },
	{ HEAD "partition 0 5\npartition 0 6\nend\n", sizeof HEAD + 31, ":4: a second position" },
	{ HEAD "partition 0\nend\n", sizeof HEAD + 15, ":3: a partition's number and an offset" },
	{ HEAD "partition  0 5\nend\n", sizeof HEAD + 18, ":3: a partition's number and an offset" },
	{ HEAD "partition 0 -5\nend\n", sizeof HEAD + 18, ":3: a partition's number and an offset" },
	{ HEAD "partition 0 5 \nend\n", sizeof HEAD + 18, ":3: a partition's number and an offset" },
	{ HEAD "partition 99999 5\nend\n", sizeof HEAD + 21, ":3: a partition's number and an offset" },
	{ HEAD "partition 0 9223372036854775807\nend\n", sizeof HEAD + 35, ":3: a partition's number and an offset" },
	{ HEAD "partition 0 99999999999999999999\nend\n", sizeof HEAD + 36, ":3: a partition's number and an offset" },
	{ HEAD "offset 5\nend\n", sizeof HEAD + 12, ":3: 'partition' or 'end' must stand here" },
};

START_TEST(checkpoint_that_is_none_is_told_with_its_line_and_left_alone)
{
	struct checkpoint checkpoint;
	struct stat before, after;

	write_file(path, wrong[_i].text, wrong[_i].bytes);
	ck_assert_int_eq(stat(path, &before), 0);
	ck_assert_int_eq(checkpoint_open(&checkpoint, path, "t"), TOOL_USAGE);
	checkpoint_close(&checkpoint);
	expect_said(wrong[_i].said);
	ck_assert_int_eq(stat(path, &after), 0);
	ck_assert_uint_eq(before.st_ino, after.st_ino);
	ck_assert_int_eq(after.st_size, (off_t)wrong[_i].bytes);
}
END_TEST

/* Every length of a whole file but the whole one: never taken for a checkpoint with fewer partitions. */
START_TEST(checkpoint_cut_anywhere_is_refused)
{
	static const char whole[] = HEAD "partition 0 5\npartition 1 17\nend\n";

	for (size_t bytes = 0; bytes < sizeof whole - 1; bytes++) {
		struct checkpoint checkpoint;

		write_file(path, whole, bytes);
		ck_assert_int_eq(checkpoint_read(&checkpoint, path, "t"), TOOL_USAGE);
		checkpoint_close(&checkpoint);
	}
}
END_TEST

/* What a kill leaves between writing and renaming: the old file, and some of the new one beside it. */
START_TEST(checkpoint_killed_between_write_and_rename_keeps_the_old_position)
{
	static const char old[] = HEAD "partition 0 5\nend\n", new[] = HEAD "partition 0 17\nend\n";

	for (size_t bytes = 0; bytes < sizeof new; bytes++) {
		struct checkpoint checkpoint;

		write_file(path, old, sizeof old - 1);
		write_file(beside, new, bytes);
		ck_assert_int_eq(checkpoint_open(&checkpoint, path, "t"), TOOL_DONE);
		ck_assert_int_eq(checkpoint_get(&checkpoint, 0), 5);
		ck_assert_int_eq(checkpoint_set(&checkpoint, 0, 6), 0);
		ck_assert_int_eq(checkpoint_save(&checkpoint), 0);
		checkpoint_close(&checkpoint);
		expect_file(HEAD "partition 0 6\nend\n");
		ck_assert_int_eq(access(beside, F_OK), -1);
	}
}
END_TEST

START_TEST(exit_9_checkpoint_has_one_reader_at_a_time)
{
	struct checkpoint first, second;

	ck_assert_int_eq(checkpoint_open(&first, path, "t"), TOOL_DONE);
	ck_assert_int_eq(checkpoint_open(&second, path, "t"), TOOL_BUSY);
	checkpoint_close(&second);
	expect_said("another logbroker reads with this checkpoint");
	for (int i = 0; i < 3; i++) {	/* the lock goes over to each new file */
		ck_assert_int_eq(checkpoint_save(&first), 0);
		ck_assert_int_eq(checkpoint_open(&second, path, "t"), TOOL_BUSY);
		checkpoint_close(&second);
	}
	ck_assert_int_eq(checkpoint_read(&second, path, "t"), TOOL_DONE);	/* looking is allowed */
	checkpoint_close(&second);
	checkpoint_close(&first);
	ck_assert_int_eq(checkpoint_open(&second, path, "t"), TOOL_DONE);
	checkpoint_close(&second);
}
END_TEST

/* Two that find no file: the one that is still making the first one is there, too. */
START_TEST(exit_9_checkpoint_that_another_reader_is_just_making)
{
	struct checkpoint checkpoint;
	int fd = open(beside, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	ck_assert_int_eq(flock(fd, LOCK_EX | LOCK_NB), 0);
	ck_assert_int_eq(checkpoint_open(&checkpoint, path, "t"), TOOL_BUSY);
	checkpoint_close(&checkpoint);
	expect_said("another logbroker reads with this checkpoint");
	ck_assert_int_eq(access(path, F_OK), -1);
	close(fd);
	ck_assert_int_eq(checkpoint_open(&checkpoint, path, "t"), TOOL_DONE);
	checkpoint_close(&checkpoint);
}
END_TEST

/* One that has found no file, and comes to make it when another one has. */
START_TEST(exit_9_checkpoint_that_another_reader_has_made_meanwhile)
{
	struct checkpoint first, late;

	ck_assert_int_eq(checkpoint_read(&late, path, "t"), TOOL_DONE);
	ck_assert_int_eq(checkpoint_open(&first, path, "t"), TOOL_DONE);
	ck_assert_int_eq(checkpoint_set(&first, 0, 5), 0);
	ck_assert_int_eq(checkpoint_save(&first), 0);
	ck_assert_int_eq(checkpoint_save(&late), -1);
	checkpoint_close(&late);
	expect_said("another logbroker reads with this checkpoint");
	ck_assert_int_eq(access(beside, F_OK), -1);
	ck_assert_int_eq(checkpoint_save(&first), 0);
	checkpoint_close(&first);
	expect_file(HEAD "partition 0 5\nend\n");
}
END_TEST

START_TEST(checkpoint_that_cannot_be_kept_is_told_at_the_start)
{
	struct checkpoint checkpoint;

	ck_assert_int_eq(mkdir(beside, 0700), 0);	/* also where the tests run as root */
	ck_assert_int_eq(checkpoint_open(&checkpoint, path, "t"), TOOL_INTERNAL);
	checkpoint_close(&checkpoint);
	expect_said("the position cannot be kept: Is a directory");
	rmdir(beside);
	ck_assert_int_eq(checkpoint_open(&checkpoint, "/no/such/directory/position", "t"), TOOL_INTERNAL);
	checkpoint_close(&checkpoint);
	ck_assert_int_eq(checkpoint_open(&checkpoint, directory, "t"), TOOL_USAGE);
	checkpoint_close(&checkpoint);
	ck_assert_int_eq(checkpoint_read(&checkpoint, directory, "t"), TOOL_USAGE);
	checkpoint_close(&checkpoint);
	ck_assert_int_eq(checkpoint_read(&checkpoint, path, NULL), TOOL_USAGE);	/* of which topic? */
	checkpoint_close(&checkpoint);
	ck_assert_int_eq(checkpoint_read(&checkpoint, path, "t"), TOOL_DONE);
	ck_assert(checkpoint_is_empty(&checkpoint));
	checkpoint_close(&checkpoint);
}
END_TEST

/* A writer that is killed at any moment: what is found is one of the positions it kept, and never an older one. */
START_TEST(checkpoint_survives_kill_at_any_moment)
{
	int64_t last = 0;

	for (int i = 0; i < 40; i++) {
		struct checkpoint checkpoint;
		int ends[2];
		int64_t kept = 0;
		pid_t pid;

		ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
		pid = fork();
		if (pid == 0) {
			if (checkpoint_open(&checkpoint, path, "t") != TOOL_DONE)
				_exit(1);
			for (int64_t next = last + 1;; next++) {
				if (checkpoint_set(&checkpoint, 0, next) != 0 || checkpoint_save(&checkpoint) != 0 ||
				    write(ends[1], &next, sizeof next) != sizeof next)
					_exit(1);
			}
		}
		close(ends[1]);
		for (int saves = 0; saves <= i; saves++)
			ck_assert_int_eq(read(ends[0], &kept, sizeof kept), (ssize_t)sizeof kept);
		kill(pid, SIGKILL);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
		close(ends[0]);
		ck_assert_int_eq(checkpoint_read(&checkpoint, path, "t"), TOOL_DONE);
		ck_assert_int_ge(checkpoint_get(&checkpoint, 0), kept);
		last = checkpoint_get(&checkpoint, 0);
		checkpoint_close(&checkpoint);
	}
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("checkpoint");
	TCase *tcase = tcase_create("checkpoint");

	tcase_set_timeout(tcase, 120);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, checkpoint_comes_back_as_it_was_saved);
	tcase_add_loop_test(tcase, checkpoint_that_is_none_is_told_with_its_line_and_left_alone, 0,
	    (int)(sizeof(wrong) / sizeof(wrong[0])));
	tcase_add_test(tcase, checkpoint_cut_anywhere_is_refused);
	tcase_add_test(tcase, checkpoint_killed_between_write_and_rename_keeps_the_old_position);
	tcase_add_test(tcase, exit_9_checkpoint_has_one_reader_at_a_time);
	tcase_add_test(tcase, exit_9_checkpoint_that_another_reader_is_just_making);
	tcase_add_test(tcase, exit_9_checkpoint_that_another_reader_has_made_meanwhile);
	tcase_add_test(tcase, checkpoint_that_cannot_be_kept_is_told_at_the_start);
	tcase_add_test(tcase, checkpoint_survives_kill_at_any_moment);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
