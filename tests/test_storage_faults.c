/*
 * Every system call of the storage fails once, or ends the process, and every allocation fails: opening and recovery here,
 * and the life of a log cut off at each call. (Failures of single appends, barriers and rolls are in test_partition and test_roll.)
 */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/allocations.h"
#include "tests/logkit.h"
#include "tests/unit.h"

static struct logkit kit;
static int every;	/* by unit_sample; of samples a fourth, this table is the largest */

/* The first call of a loop over calls: of a sample each number has its share. */
static int
first_call(int number)
{
	return 1 + number % every;
}

/* ---- directories to recover ---- */

static void
segments_of(int records)
{
	logkit_open(&kit);
	logkit_append(&kit, records, 100);
	logkit_close(&kit);
}

/* Each leaves a closed log and returns where it must end once opened. */
static int64_t
nothing_there(void)
{
	return 0;
}

/* With zeros behind the end, as a mapping leaves them. */
static int64_t
all_is_well(void)
{
	char path[LOGKIT_PATH_BYTES];

	segments_of(30);
	logkit_segment_path(&kit, 27, path);
	logkit_truncate(path, 1000);
	return 30;
}

/* Of the last segment, which begins at 27, only `records` were written to their end. */
static int64_t
tear(int64_t records)
{
	int64_t record = 100 + (int64_t)record_header_bytes(kit.settings.record_format);
	char path[LOGKIT_PATH_BYTES];

	logkit_segment_path(&kit, 27, path);
	if (kit.settings.mapped)
		logkit_change(path, records * record, "\0\0\0\0", 4);	/* what is stored last */
	else
		logkit_truncate(path, (records + 1) * record - 30);
	return 27 + records;
}

/* And an empty segment that stands too far behind to be of this log. */
static int64_t
torn_record(void)
{
	char path[LOGKIT_PATH_BYTES];

	segments_of(30);
	logkit_segment_path(&kit, 5000, path);
	logkit_write_file(path, "", 0);
	return tear(2);
}

static int64_t
damage_and_leftovers(void)
{
	char path[LOGKIT_PATH_BYTES];

	segments_of(35);
	logkit_segment_path(&kit, 27, path);
	if (kit.settings.record_format == RECORD_CRC32C)
		logkit_flip(path, 3 * 108 + 40);
	else
		logkit_change(path, 3 * 104, "\xFF\xFF\xFF\xFF", 4);
	logkit_file_path(&kit, "00000000000000000030.log.tmp", path);
	logkit_write_file(path, "xyz", 3);
	logkit_file_path(&kit, "00000000000000000027.cut.tmp", path);
	logkit_write_file(path, "xyz", 3);
	logkit_file_path(&kit, "00000000000000000027.cut", path);
	logkit_write_file(path, "an older copy", 13);
	return 30;
}

static int64_t
empty_active(void)
{
	char path[LOGKIT_PATH_BYTES];

	segments_of(27);
	logkit_segment_path(&kit, 27, path);
	logkit_write_file(path, "", 0);
	if (kit.settings.mapped)
		logkit_truncate(path, 1000);
	return 27;
}

static int64_t
a_single_torn_record(void)
{
	char path[LOGKIT_PATH_BYTES];

	segments_of(10);
	logkit_segment_path(&kit, 9, path);
	logkit_truncate(path, 50);
	return 9;
}

/* A recovery point at 30, and more behind it, the last record of which is torn. */
static int64_t
torn_behind_the_recovery_point(void)
{
	segments_of(30);
	segments_of(3);
	return tear(5);
}

static int64_t
shorter_than_the_recovery_point(void)
{
	segments_of(30);
	segments_of(0);
	return tear(2);
}

static int64_t
a_damaged_index(void)
{
	char path[LOGKIT_PATH_BYTES];

	segments_of(30);
	segments_of(0);
	logkit_file_path(&kit, "00000000000000000027.index", path);
	logkit_flip(path, 10);
	logkit_file_path(&kit, "00000000000000000028.index", path);
	logkit_write_file(path, "an orphan", 9);
	return 30;
}

static int64_t (*const directories[])(void) = { nothing_there, all_is_well, torn_record, damage_and_leftovers,
	empty_active, a_single_torn_record, torn_behind_the_recovery_point, shorter_than_the_recovery_point, a_damaged_index };
enum { DIRECTORIES = sizeof(directories) / sizeof(directories[0]) };

/* What is known ahead of it: nothing; and, of the first six, that a force may have failed; that one has. `_i`: format,
 * directory, and this. */
enum { KNOWN_MORE_OF = 6, CASES = 2 * (DIRECTORIES + 2 * KNOWN_MORE_OF) };

static int64_t
begin_case(int number)
{
	int more = number / 2 - DIRECTORIES;
	int64_t end;

	logkit_begin(&kit, number % 2, 1000);
	end = directories[more < 0 ? number / 2 : more % KNOWN_MORE_OF]();
	kit.known.from_disk = more >= 0;
	kit.known.failed = more >= KNOWN_MORE_OF;
	return end;
}

static void
expect_recovered(int64_t end)
{
	ck_assert_int_eq(partition_log_end(kit.p), end);
	logkit_expect(&kit, 0, end, 100);
	ck_assert_int_eq(logkit_count_files(&kit, ".tmp"), 0);
	/* Copied aside once, however often it was tried. */
	ck_assert_int_le(logkit_count_files(&kit, ".cut.2"), 1);
	ck_assert_int_eq(logkit_count_files(&kit, ".cut.3"), 0);
	logkit_append(&kit, 1, 100);
	logkit_reopen(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), end + 1);
	logkit_expect(&kit, 0, end + 1, 100);
}

START_TEST(opening_with_any_call_failing)
{
	int errors[] = { EIO, ENOSPC, EINTR, LOGKIT_SHORT };

	for (int e = 0; e < 4; e++)
		for (int at = first_call(_i + e);; at += every) {
			int64_t end;
			bool hit;
			int fds;

			end = begin_case(_i);
			fds = logkit_open_descriptors();
			logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = errors[e],
			    .aim = e == 0 ? LOGKIT_AT_ALL : LOGKIT_AT_LOGS });
			partition_open(kit.data_fd, "t-0", &kit.settings, &kit.known, &kit.opened);
			hit = logkit_fault_hit();
			logkit_clear_fault();
			kit.p = kit.opened.partition;
			ck_assert(kit.p != NULL || hit);
			ck_assert((kit.p == NULL) == (kit.opened.why[0] != '\0'));
			/* A left-over that could not be removed is left over. */
			logkit_reopen(&kit);
			expect_recovered(end);
			logkit_close(&kit);
			ck_assert_int_eq(logkit_open_descriptors(), fds);
			logkit_end(&kit);
			if (!hit)
				break;
		}
}
END_TEST

START_TEST(opening_with_any_allocation_failing)
{
	bool hit = true;

	if (!allocations_are_counted()) {
		printf("opening_with_any_allocation_failing: skipped, a sanitizer allocates here\n");
		return;
	}
	for (unsigned long n = (unsigned long)first_call(_i); hit; n += (unsigned long)every) {
		int64_t end = begin_case(_i);
		int fds = logkit_open_descriptors();

		allocations_fail_at(n);
		allocations_watch(true);
		partition_open(kit.data_fd, "t-0", &kit.settings, &kit.known, &kit.opened);
		allocations_watch(false);
		hit = allocations_count() >= n;
		allocations_fail_at(0);
		kit.p = kit.opened.partition;
		ck_assert(kit.p != NULL || (hit && kit.opened.why[0] != '\0'));
		logkit_reopen(&kit);
		expect_recovered(end);
		logkit_close(&kit);
		ck_assert_int_eq(logkit_open_descriptors(), fds);
		logkit_end(&kit);
	}
}
END_TEST

/* A disk that has gone for good while the log is opened: refused, unless all that was left to do was to write caches; and
 * everything is there when it is back. */
START_TEST(opening_with_all_calls_failing_from_one_on)
{
	int refused = 0, opened = 0;

	for (int at = first_call(_i);; at += every) {
		int64_t end;
		bool hit;
		int fds;

		end = begin_case(_i);
		fds = logkit_open_descriptors();
		logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = EIO, .sticky = true,
		    .aim = LOGKIT_AT_ALL });
		partition_open(kit.data_fd, "t-0", &kit.settings, &kit.known, &kit.opened);
		hit = logkit_fault_hit();
		logkit_clear_fault();
		ck_assert(kit.opened.partition != NULL || hit);
		refused += kit.opened.partition == NULL;
		opened += kit.opened.partition != NULL;
		/* From one call on it is opened. */
		ck_assert(kit.opened.partition != NULL || opened == 0);
		partition_close(kit.opened.partition);
		ck_assert_int_eq(logkit_open_descriptors(), fds);
		logkit_open(&kit);
		expect_recovered(end);
		logkit_end(&kit);
		if (!hit)
			break;
	}
	ck_assert_int_gt(refused, every == 1 ? 5 : -1);
}
END_TEST

/* ---- crashes ---- */

/* What the child has been told: shared with it. */
struct progress {
	int64_t begun;	/* offset behind the last append that was tried */
	int64_t done;	/* behind the last one that succeeded */
};

static struct progress *progress;

static void
append_and_tell(int count)
{
	progress->begun = partition_log_end(kit.p) + count;
	ck_assert_int_eq(logkit_try_append(&kit, count, 100), 0);
	progress->done = partition_log_end(kit.p);
}

/* A life: recovery, appends, rolls, batches larger than a segment onto a full and an empty one, a barrier. */
static void
live(void)
{
	logkit_open(&kit);
	progress->done = partition_log_end(kit.p);
	append_and_tell(3);
	append_and_tell(8);
	append_and_tell(25);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	append_and_tell(2);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	append_and_tell(25);
	append_and_tell(1);
}

static int
die_at(int at)
{
	int status;
	pid_t child = fork();

	ck_assert_int_ne(child, -1);
	if (child == 0) {
		logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = LOGKIT_EXIT, .aim = LOGKIT_AT_ALL });
		live();
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(a_crash_at_any_call)
{
	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(progress, MAP_FAILED);
	for (int at = first_call(_i);; at += every) {
		int64_t end;
		int status;

		*progress = (struct progress){ 0 };
		progress->begun = progress->done = begin_case(_i);
		status = die_at(at);
		ck_assert(status == 77 || status == 0);
		/* What was acknowledged is there, and what is there was handed over. */
		kit.known.published_end = progress->done;
		logkit_open(&kit);
		end = partition_log_end(kit.p);
		ck_assert_int_ge(end, progress->done);
		ck_assert_int_le(end, progress->begun);
		ck_assert_int_eq(partition_durable_end(kit.p), end);
		logkit_expect(&kit, 0, end, 100);
		ck_assert_int_eq(logkit_count_files(&kit, ".tmp"), 0);
		/* In mapped mode the life that ended may have left one of its own. */
		ck_assert_int_eq(logkit_count_files(&kit, kit.settings.mapped ? ".cut.4" : ".cut.3"), 0);
		logkit_append(&kit, 12, 100);
		logkit_reopen(&kit);
		ck_assert_int_eq(partition_log_end(kit.p), end + 12);
		logkit_expect(&kit, 0, end + 12, 100);
		logkit_end(&kit);
		if (status == 0)
			break;
	}
	munmap(progress, sizeof(*progress));
}
END_TEST

static void
add_tests(TCase *tests)
{
	tcase_add_loop_test(tests, opening_with_any_call_failing, 0, CASES);
	tcase_add_loop_test(tests, opening_with_any_allocation_failing, 0, CASES);
	tcase_add_loop_test(tests, opening_with_all_calls_failing_from_one_on, 0, CASES);
	tcase_add_loop_test(tests, a_crash_at_any_call, 0, CASES);
}

int
main(void)
{
	Suite *suite = suite_create("storage faults");
	TCase *file = tcase_create("file"), *mapped = tcase_create("mapped");

	/* Thousands of logs, with reads that go to the disk: one in memory will do. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	every = 1 + 4 * (unit_sample() - 1);
	tcase_set_timeout(file, 120);
	tcase_set_timeout(mapped, 120);
	tcase_add_checked_fixture(file, logkit_file_mode, NULL);
	tcase_add_checked_fixture(mapped, logkit_mapped_mode, NULL);
	suite_add_tcase(suite, file);
	suite_add_tcase(suite, mapped);
	add_tests(file);
	add_tests(mapped);
	return unit_run(suite);
}
