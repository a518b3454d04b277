/*
 * What a start makes of a damaged data directory. The log has sealed segments of ten records at 0, 10, 20, 30 and 40, and
 * five records in the active one at 50. Whatever is wrong with a sealed region, nothing is cut, renumbered or removed:
 *
 *   damage                                   a line at start   what can be read
 *   -------------------------------------------------------------------------------------------------------------------
 *   sealed segment missing, at 20 or 40      error             all but its ten records
 *   sealed segment missing, the first        error             from 10 on: the log starts there
 *   active segment missing                   error             up to 50, where the log goes on
 *   sealed segment cut                       error             all but the records that are gone
 *   sealed segment emptied                   error             all but its ten records
 *   sealed segment with bytes behind its end error             all
 *   length of a sealed record changed        none              all but that record
 *   payload of a sealed record changed       none              all; the sum of that one tells its reader
 *   sealed segment under another name        warning, error    all but its ten records
 *   copy of a sealed segment, doubled        warning           all
 *   directory in place of a sealed segment   warning, error    all but its ten records
 *   sealed segment that cannot be opened     none              all but its ten records; an error is told to its reader
 *   foreign file, directory, link, empty     warning           all
 *   index or list missing or random bytes    one line          all
 *   active segment that cannot be opened     stays closed, with the reason
 *
 * Each row is looked at in both write modes, at the first start and the next ones; and the log takes records and gives them
 * back each time.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/logkit.h"
#include "worker/segment.h"

enum { SIZE = 100, RECORD = 8 + SIZE, PER_SEGMENT = 10, SEGMENT = PER_SEGMENT * RECORD, END = 55 };

static struct logkit kit;

static void
path_of(int64_t base, char *path)
{
	logkit_segment_path(&kit, base, path);
}

/* ---- damages ---- */

static void
remove_segment(int64_t base)
{
	char path[LOGKIT_PATH_BYTES];

	path_of(base, path);
	ck_assert_int_eq(unlink(path), 0);
}

static void
miss_first(void)
{
	remove_segment(0);
}

static void
miss_middle(void)
{
	remove_segment(20);
}

static void
miss_last_sealed(void)
{
	remove_segment(40);
}

static void
miss_active(void)
{
	remove_segment(50);
}

static void
cut_sealed(void)
{
	char path[LOGKIT_PATH_BYTES];

	path_of(20, path);
	logkit_truncate(path, 5 * RECORD + 7);
}

static void
empty_sealed(void)
{
	char path[LOGKIT_PATH_BYTES];

	path_of(20, path);
	logkit_truncate(path, 0);
}

static void
grow_sealed(void)
{
	char path[LOGKIT_PATH_BYTES];

	path_of(20, path);
	logkit_change(path, SEGMENT, "\0\0\0\1garbage behind the end", 26);
}

static void
change_length(void)
{
	char path[LOGKIT_PATH_BYTES];

	path_of(20, path);
	logkit_change(path, 5 * RECORD, "\x7f\xff\xff\xff", 4);
}

static void
change_payload(void)
{
	char path[LOGKIT_PATH_BYTES];

	path_of(20, path);
	logkit_flip(path, 5 * RECORD + 50);
}

static void
rename_sealed(void)
{
	char path[LOGKIT_PATH_BYTES], other[LOGKIT_PATH_BYTES];

	path_of(20, path);
	path_of(21, other);
	ck_assert_int_eq(rename(path, other), 0);
}

static void
double_sealed(void)
{
	char path[LOGKIT_PATH_BYTES], other[LOGKIT_PATH_BYTES];
	uint8_t *bytes;
	size_t size;

	path_of(20, path);
	path_of(25, other);
	bytes = logkit_read_file(path, &size);
	logkit_write_file(other, bytes, size);
	free(bytes);
}

static void
put_directory(void)
{
	char path[LOGKIT_PATH_BYTES];

	remove_segment(20);
	path_of(20, path);
	ck_assert_int_eq(mkdir(path, 0750), 0);
}

static void
put_foreign(void)
{
	char path[LOGKIT_PATH_BYTES];

	logkit_file_path(&kit, "README", path);
	logkit_write_file(path, "hello", 5);
	logkit_file_path(&kit, "x.swp", path);
	ck_assert_int_eq(mkdir(path, 0750), 0);
	logkit_file_path(&kit, "link", path);
	ck_assert_int_eq(symlink("/nowhere/at/all", path), 0);
	path_of(777, path);
	logkit_write_file(path, "", 0);
}

static void
spoil(const char *name)
{
	char path[LOGKIT_PATH_BYTES];
	uint8_t noise[200];

	for (size_t i = 0; i < sizeof(noise); i++)
		noise[i] = (uint8_t)(i * 31 + 7);
	logkit_file_path(&kit, name, path);
	logkit_write_file(path, noise, sizeof(noise));
}

static void
spoil_active_index(void)
{
	spoil("00000000000000000050.index");
}

static void
spoil_list(void)
{
	spoil("sealed.list");
}

static void
miss_caches(void)
{
	for (int64_t base = 0; base <= 50; base += 10)
		logkit_remove_index(&kit, base);
	logkit_remove_list(&kit);
}

/* ---- the table ---- */

struct row {
	const char *name;
	void (*harm)(void);
	int64_t start, end;	/* of the log afterwards */
	int64_t broken_from, broken_to;
	int64_t changed;	/* offset of a record that is there and is not what it was; -1: none */
	const char *lines[4];	/* each is told once at start, with these words */
	int64_t untouched;	/* base of a file that keeps its size; -1: none */
};

static const struct row rows[] = {
	{ "first missing", miss_first, 10, END, 0, 0, -1, { "00000000000000000000.log is missing" }, -1 },
	{ "middle missing", miss_middle, 0, END, 20, 30, -1, { "00000000000000000020.log is missing" }, -1 },
	{ "last sealed missing", miss_last_sealed, 0, END, 40, 50, -1, { "00000000000000000040.log is missing" }, -1 },
	{ "active missing", miss_active, 0, 50, 0, 0, -1, { "00000000000000000050.log is missing" }, -1 },
	{ "sealed cut", cut_sealed, 0, END, 25, 30, -1, { "00000000000000000020.log: it has 547 bytes" }, 20 },
	{ "sealed emptied", empty_sealed, 0, END, 20, 30, -1, { "00000000000000000020.log" }, 20 },
	{ "sealed grown", grow_sealed, 0, END, 0, 0, -1, { "00000000000000000020.log: it has 1106 bytes" }, 20 },
	{ "length changed", change_length, 0, END, 25, 26, -1, { NULL }, 20 },
	{ "payload changed", change_payload, 0, END, 0, 0, 25, { NULL }, 20 },
	{ "sealed renamed", rename_sealed, 0, END, 20, 30, -1, { "00000000000000000021.log does not belong to this log",
	    "00000000000000000020.log is missing" }, 21 },
	{ "sealed doubled", double_sealed, 0, END, 0, 0, -1, { "00000000000000000025.log does not belong to this log" }, 25 },
	{ "directory in place", put_directory, 0, END, 20, 30, -1, { "00000000000000000020.log does not belong to this log",
	    "00000000000000000020.log is missing" }, -1 },
	{ "foreign entries", put_foreign, 0, END, 0, 0, -1, { "README does not", "x.swp does not", "link does not",
	    "00000000000000000777.log does not" }, 777 },
	{ "index random", spoil_active_index, 0, END, 0, 0, -1, { "00000000000000000050.index" }, -1 },
	{ "list random", spoil_list, 0, END, 0, 0, -1, { "sealed.list" }, -1 },
	{ "caches missing", miss_caches, 0, END, 0, 0, -1, { NULL }, -1 },
};

enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static size_t
count(const char *text, const char *words)
{
	size_t n = 0;

	for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words))
		n++;
	return n;
}

/* Every offset of the log is what the row says, and what was appended behind it is there. */
static void
expect_row(const struct row *row, int64_t end)
{
	int64_t from = row->start;

	ck_assert_int_eq(partition_log_start(kit.p), row->start);
	ck_assert_int_eq(partition_log_end(kit.p), end);
	if (row->broken_to > row->broken_from) {
		logkit_expect(&kit, from, row->broken_from, SIZE);
		logkit_expect_broken(&kit, row->broken_from, row->broken_to);
		from = row->broken_to;
	}
	if (row->changed != -1) {
		struct partition_place place;

		logkit_expect(&kit, from, row->changed, SIZE);
		ck_assert_int_eq(logkit_find(&kit, row->changed, &place), PARTITION_FOUND);
		from = row->changed + 1;
	}
	logkit_expect(&kit, from, end, SIZE);
}

static void
expect_untouched(const struct row *row, int64_t bytes)
{
	char path[LOGKIT_PATH_BYTES];

	if (row->untouched == -1)
		return;
	path_of(row->untouched, path);
	ck_assert_int_eq(logkit_file_bytes(path), bytes);
}

static int64_t
size_of_untouched(const struct row *row)
{
	char path[LOGKIT_PATH_BYTES];

	if (row->untouched == -1)
		return 0;
	path_of(row->untouched, path);
	return logkit_file_bytes(path);
}

static void
make_log(void)
{
	logkit_begin(&kit, RECORD_CRC32C, SEGMENT);
	kit.settings.index_interval_bytes = 64;
	logkit_open(&kit);
	logkit_append(&kit, END, SIZE);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
}

START_TEST(bug_A6_a_start_with_damage)
{
	const struct row *row = &rows[_i];
	int64_t bytes, end = row->end;
	char *text;

	make_log();
	logkit_close(&kit);
	row->harm();
	bytes = size_of_untouched(row);
	logkit_catch_lines();
	logkit_open(&kit);
	text = logkit_caught_lines();
	for (size_t i = 0; i < 4 && row->lines[i] != NULL; i++)
		ck_assert_msg(count(text, row->lines[i]) >= 1, "%s: no line with \"%s\", but:\n%s", row->name, row->lines[i], text);
	free(text);
	for (int round = 0; round < 3; round++) {
		expect_row(row, end);
		expect_untouched(row, bytes);
		logkit_append(&kit, 7, SIZE);
		end += 7;
		expect_row(row, end);
		if (round == 1)
			ck_assert_int_eq(logkit_barrier(&kit), 0);
		logkit_reopen(&kit);
	}
	expect_row(row, end);
	expect_untouched(row, bytes);
	logkit_end(&kit);
}
END_TEST

/* A disk that does not give the file: the reader is told, and served again when it does. */
START_TEST(a_sealed_segment_that_cannot_be_opened)
{
	make_log();
	logkit_reopen(&kit);
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 1, .error = EIO, .sticky = true });
	logkit_expect_broken(&kit, 20, 30);
	logkit_clear_fault();
	logkit_expect(&kit, 30, END, SIZE);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, END, SIZE);
	logkit_end(&kit);
}
END_TEST

START_TEST(an_active_segment_that_cannot_be_opened)
{
	char path[LOGKIT_PATH_BYTES];

	make_log();
	logkit_close(&kit);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = EIO, .sticky = true });
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "00000000000000000050.log"));
	logkit_clear_fault();
	logkit_open(&kit);
	logkit_expect(&kit, 0, END, SIZE);
	path_of(50, path);
	logkit_expect_file_end(&kit, path, 5 * RECORD);
	logkit_end(&kit);
}
END_TEST

static void
add_tests(TCase *tests)
{
	tcase_add_loop_test(tests, bug_A6_a_start_with_damage, 0, ROWS);
	tcase_add_test(tests, a_sealed_segment_that_cannot_be_opened);
	tcase_add_test(tests, an_active_segment_that_cannot_be_opened);
}

int
main(void)
{
	Suite *suite = suite_create("damage");
	TCase *file = tcase_create("in file mode"), *mapped = tcase_create("in mapped mode");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_set_timeout(file, 60);
	tcase_set_timeout(mapped, 60);
	tcase_add_checked_fixture(file, logkit_file_mode, NULL);
	tcase_add_checked_fixture(mapped, logkit_mapped_mode, NULL);
	add_tests(file);
	add_tests(mapped);
	suite_add_tcase(suite, file);
	suite_add_tcase(suite, mapped);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
