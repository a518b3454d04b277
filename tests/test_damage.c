/*
 * What becomes of a log when files in its directory are missing, cut, grown, foreign, doubled, misnamed or cannot be
 * read: the answer for each, with all caches, without the list of sealed segments ("no list"), and without any ("none").
 * In all cases the log opens, unless something else is said; nothing is cut or renumbered, and no sealed file changes.
 * `logbroker verify`, which reads everything, finds all that the start calls an error, and more.
 *
 *   damage                         what start says                       what is readable, where the log goes on
 *   ------                         ---------------                       ---------------------------------------
 *   first segment missing          it is missing, with its offsets;      from the next one on, where the log starts
 *                                  no list: nothing, it could be
 *                                  retention's work
 *   middle or last sealed one      it is missing, with its offsets;      all others; its offsets give an error
 *   missing                        no list: told when it is read
 *   active one missing             it is missing, and where the log      all others; its offsets give an error; the log
 *                                  goes on                               goes on where its index says that it ended;
 *                                                                        no index: at its base
 *   active one missing, none       nothing: nobody knows of it           all others; the log goes on at its base
 *   sealed one cut or emptied      its bytes, and those that it was      what is left of it, and all others
 *                                  sealed with; no list: told when it
 *                                  is read
 *   active one cut ahead of its    how far it had been forced, and       what is left of it; the log goes on there
 *   recovery point                 where it ends
 *   sealed one grown               its bytes, and those that it was      everything; what was added is not read
 *                                  sealed with; no list: told when it
 *                                  is read
 *   active one grown by garbage    what is cut, and where it is copied   everything
 *   active one grown by zeros      nothing: zeros are no content         everything
 *   sealed one's bytes changed,    nothing                               everything as it is; of a length that cannot be
 *   same size                                                            the records up to the next mark give an error
 *   sealed one replaced by         nothing; told when it is read         all others; its offsets give an error
 *   garbage of its size
 *   a foreign file, or a copy of   it does not belong to this log        everything
 *   another segment, among the
 *   offsets of a sealed one; an
 *   empty one behind the end; a
 *   name that no segment has
 *   the same, no list              nothing; or that both overlap         ahead of it all, behind it what is in it: names
 *                                                                        are all that tells whose records these are
 *   a copy behind the log's end    where the log ends, and the copy      all; the gap gives an error; the log goes on
 *                                  begins                                behind the copy: it might be all that is left
 *   sealed one under another name  that name does not belong to this     all others; its offsets give an error
 *                                  log; its own is missing
 *   active one under a later name  what lies between is missing          all; the gap gives an error; the log goes on
 *   no regular file in its place   that it is not of this log; it is     all others; its offsets give an error
 *                                  missing
 *   sealed one cannot be opened    nothing; told when it is read         all others; its offsets give an error as long
 *   or read
 *   active one cannot be opened    the partition stays closed, and why   nothing
 *   or read
 *   any cache missing              nothing, or that the list is made     everything
 *                                  anew
 *   any cache damaged              which, and that it is made anew       everything
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/examine.h"
#include "common/bytes.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/listing.h"

enum {
	FORMATS = 2,
	SIZE = 100,
	PER_SEGMENT = 9,
	/* Four sealed segments, and four records in the active one. */
	ACTIVE = 4 * PER_SEGMENT,
	END = ACTIVE + 4,
	LINES = 3,
};

enum caches { ALL, NO_LIST, NO_INDEXES, NO_CACHES };

static struct logkit kit;

static int64_t
record_bytes(void)
{
	return (int64_t)record_header_bytes(kit.settings.record_format) + SIZE;
}

/* ---- damages ---- */

static void
path_of(int64_t base, char *path)
{
	logkit_segment_path(&kit, base, path);
}

static void
remove_segment(int64_t base)
{
	char path[LOGKIT_PATH_BYTES];

	path_of(base, path);
	ck_assert_int_eq(unlink(path), 0);
}

static void
cut_segment(int64_t base, int64_t bytes)
{
	char path[LOGKIT_PATH_BYTES];

	path_of(base, path);
	logkit_truncate(path, bytes);
}

static void
change_segment(int64_t base, int64_t position, const char *bytes, size_t count)
{
	char path[LOGKIT_PATH_BYTES];

	path_of(base, path);
	logkit_change(path, position, bytes, count);
}

static void
copy_segment(int64_t from, int64_t to)
{
	char path[LOGKIT_PATH_BYTES];
	uint8_t *content;
	size_t bytes;

	path_of(from, path);
	content = logkit_read_file(path, &bytes);
	path_of(to, path);
	logkit_write_file(path, content, bytes);
	free(content);
}

static void
rename_segment(int64_t from, int64_t to)
{
	copy_segment(from, to);
	remove_segment(from);
}

static void
put_garbage(int64_t base, size_t bytes)
{
	uint8_t garbage[1000];
	char path[LOGKIT_PATH_BYTES];

	for (size_t i = 0; i < sizeof(garbage); i++)
		garbage[i] = (uint8_t)(0x80 | i * 37);
	path_of(base, path);
	logkit_write_file(path, garbage, bytes);
}

static void
put_length(int64_t base, int record, uint32_t length)
{
	uint8_t word[4];

	bytes_put_u32(word, length);
	change_segment(base, record * record_bytes(), (const char *)word, sizeof(word));
}

static void nothing(void) { }
static void first_missing(void) { remove_segment(0); }
static void first_emptied(void) { cut_segment(0, 0); }
static void middle_missing(void) { remove_segment(9); }
static void last_sealed_missing(void) { remove_segment(27); }
static void active_missing(void) { remove_segment(ACTIVE); }
static void active_missing_and_an_empty_one(void) { remove_segment(ACTIVE); put_garbage(45, 0); }
static void sealed_cut(void) { cut_segment(18, 3 * record_bytes() + 50); }
static void sealed_cut_between_records(void) { cut_segment(18, 3 * record_bytes()); }
static void sealed_emptied(void) { cut_segment(18, 0); }
static void active_cut(void) { cut_segment(ACTIVE, 2 * record_bytes() + 50); }
static void sealed_grown(void) { change_segment(18, 9 * record_bytes(), "garbage", 7); }
static void active_grown(void) { change_segment(ACTIVE, 4 * record_bytes(), "\xF0garbage", 8); }
static void active_zeros(void) { cut_segment(ACTIVE, 4 * record_bytes() + 3000); }
static void payload_changed(void) { change_segment(18, 3 * record_bytes() + 50, "x", 1); }
static void length_changed(void) { change_segment(18, 3 * record_bytes(), "\xFF", 1); }
static void length_over_two(void) { put_length(18, 3, SIZE + (uint32_t)record_bytes()); }
static void sealed_garbage(void) { put_garbage(18, (size_t)(9 * record_bytes())); }
static void foreign_between(void) { put_garbage(22, 500); }
static void copy_between(void) { copy_segment(0, 22); }
static void copy_behind(void) { copy_segment(0, 50); }
static void sealed_misnamed(void) { rename_segment(18, 19); }
static void active_misnamed(void) { rename_segment(ACTIVE, ACTIVE + 2); }

static void
no_regular_file(void)
{
	char path[LOGKIT_PATH_BYTES];

	remove_segment(18);
	path_of(18, path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
}

static void
foreign_entries(void)
{
	char path[LOGKIT_PATH_BYTES];

	logkit_file_path(&kit, "README", path);
	logkit_write_file(path, "hello", 5);
	logkit_file_path(&kit, "link", path);
	ck_assert_int_eq(symlink("/nowhere/at/all", path), 0);
	path_of(777, path);
	logkit_write_file(path, "", 0);
}

static void
change_file(const char *name, const char *bytes)
{
	char path[LOGKIT_PATH_BYTES];

	logkit_file_path(&kit, name, path);
	ck_assert_int_gt(logkit_file_bytes(path), 0);
	if (bytes == NULL)
		ck_assert_int_eq(unlink(path), 0);
	else
		logkit_write_file(path, bytes, strlen(bytes));
}

static void sealed_index_missing(void) { change_file("00000000000000000018.index", NULL); }
static void sealed_index_wrong(void) { change_file("00000000000000000018.index", "garbage of some length"); }
static void active_index_missing(void) { change_file("00000000000000000036.index", NULL); }
static void active_index_wrong(void) { change_file("00000000000000000036.index", "garbage of some length"); }
static void list_wrong(void) { change_file("sealed.list", "garbage of some length"); }

/* ---- the table ---- */

struct row {
	const char *name;
	void (*damage)(void);
	enum caches caches;
	int64_t start, end;		/* of the log, once it is open */
	int64_t broken[2];		/* offsets that give an error: from, to */
	int64_t wrong[2];		/* offsets that give other records */
	const char *says[LINES];	/* at start, each in a line of its own, and no other line */
	const char *tells;		/* when everything is read; NULL: nothing */
	int cut;			/* copies of what was cut */
	int64_t interval_bytes;		/* of the index's marks; 0 = one in each segment */
};

/* Texts of lines. */
#define MISSING(base, from, to) base ".log is missing: offsets " from " to " to " cannot be read"
#define NOT_OURS(base) base ".log does not belong to this log"
#define LACKS "sealed.list: it lacks"
#define S0 "00000000000000000000"
#define S9 "00000000000000000009"
#define S18 "00000000000000000018"
#define S27 "00000000000000000027"
#define S36 "00000000000000000036"

static const struct row rows[] = {
	{ "nothing", nothing, .end = END },
	{ "nothing, no list", nothing, NO_LIST, .end = END, .says = { LACKS " 4 of 4" } },
	{ "nothing, none", nothing, NO_CACHES, .end = END, .says = { LACKS " 4 of 4" } },

	{ "first missing", first_missing, .start = 9, .end = END, .says = { MISSING(S0, "0", "8") } },
	{ "first missing, no list", first_missing, NO_LIST, .start = 9, .end = END, .says = { LACKS " 3 of 3" } },
	{ "first emptied", first_emptied, .start = 9, .end = END, .says = { NOT_OURS(S0), MISSING(S0, "0", "8") } },
	{ "middle missing", middle_missing, .end = END, .broken = { 9, 18 }, .says = { MISSING(S9, "9", "17") },
	    .tells = S0 ".log: damaged" },
	{ "middle missing, no list", middle_missing, NO_LIST, .end = END, .broken = { 9, 18 }, .says = { LACKS " 3 of 3" },
	    .tells = S0 ".log: damaged" },
	{ "last sealed missing", last_sealed_missing, .end = END, .broken = { 27, 36 }, .says = { MISSING(S27, "27", "35") },
	    .tells = S18 ".log: damaged" },
	{ "last sealed missing, none", last_sealed_missing, NO_CACHES, .end = END, .broken = { 27, 36 },
	    .says = { LACKS " 3 of 3" }, .tells = S18 ".log: damaged" },
	{ "active missing", active_missing, .end = END, .broken = { ACTIVE, END }, .says = { S36 ".log is missing, the log's "
	    "last segment: records from offset 36 on are lost, and the log goes on at offset 40",
	    S27 ".log: it ends at offset 36, but the next segment begins at 40" }, .tells = S27 ".log: damaged" },
	{ "active missing and an empty one", active_missing_and_an_empty_one, .end = END, .broken = { ACTIVE, END },
	    .says = { S36 ".log is missing", NOT_OURS("00000000000000000045"),
	    S27 ".log: it ends at offset 36, but the next segment begins at 40" }, .tells = S27 ".log: damaged" },
	{ "active missing, no list", active_missing, NO_LIST, .end = END, .broken = { ACTIVE, END },
	    .says = { S36 ".log is missing", LACKS " 4 of 4", S27 ".log: it ends at offset 36, but the next segment begins at 40" },
	    .tells = S27 ".log: damaged" },
	{ "active missing, no indexes", active_missing, NO_INDEXES, .end = ACTIVE, .says = { S36 ".log is missing, the log's last "
	    "segment: records from offset 36 on are lost, and the log goes on at offset 36" } },
	{ "active missing, none", active_missing, NO_CACHES, .end = ACTIVE, .says = { LACKS " 3 of 3" } },

	{ "sealed cut", sealed_cut, .end = END, .broken = { 21, 27 }, .says = { S18 ".log: it has " }, .tells = S18 ".log" },
	{ "sealed cut, none", sealed_cut, NO_CACHES, .end = END, .broken = { 21, 27 }, .says = { LACKS }, .tells = S18 ".log" },
	{ "sealed cut between records", sealed_cut_between_records, .end = END, .broken = { 21, 27 },
	    .says = { S18 ".log: it has " }, .tells = S18 ".log" },
	{ "sealed emptied", sealed_emptied, .end = END, .broken = { 18, 27 },
	    .says = { NOT_OURS(S18), MISSING(S18, "18", "26") }, .tells = S9 ".log: damaged" },
	{ "active cut", active_cut, .end = ACTIVE + 2,
	    .says = { "forced to disk up to offset 40, but ends at 38", "cutting 50 bytes" } },
	{ "active cut, none", active_cut, NO_CACHES, .end = ACTIVE + 2, .says = { "cutting 50 bytes", LACKS } },

	{ "sealed grown", sealed_grown, .end = END, .says = { S18 ".log: it has " }, .tells = S18 ".log: 7 bytes stand behind" },
	{ "sealed grown, none", sealed_grown, NO_CACHES, .end = END, .says = { LACKS },
	    .tells = S18 ".log: 7 bytes stand behind" },
	{ "active grown", active_grown, .end = END, .says = { S36 ".log: cutting 8 bytes" }, .cut = 1 },
	{ "active zeros", active_zeros, .end = END },

	{ "payload changed", payload_changed, .end = END, .wrong = { 21, 22 } },
	{ "length changed", length_changed, .end = END, .broken = { 21, 27 }, .tells = S18 ".log: damaged at position 3" },
	{ "length changed, none", length_changed, NO_CACHES, .end = END, .broken = { 21, 27 }, .says = { LACKS },
	    .tells = S18 ".log: damaged at position 3" },
	{ "length changed, many marks", length_changed, .end = END, .broken = { 21, 22 },
	    .tells = S18 ".log: damaged at position 3", .interval_bytes = 64 },
	/* Between two marks nobody knows which. */
	{ "length over two", length_over_two, .end = END, .broken = { 18, 27 }, .tells = S18 ".log: damaged at position 0" },
	{ "length over two, many marks", length_over_two, .end = END, .broken = { 21, 22 },
	    .tells = S18 ".log: damaged at position 3", .interval_bytes = 64 },
	{ "sealed garbage", sealed_garbage, .end = END, .broken = { 18, 27 }, .tells = S18 ".log: damaged at position 0" },

	{ "foreign between", foreign_between, .end = END, .says = { "22.log does not belong" } },
	{ "foreign between, no list", foreign_between, NO_LIST, .end = END, .broken = { 22, 27 }, .says = { LACKS },
	    .tells = "22.log: damaged at position 0" },
	{ "copy between", copy_between, .end = END, .says = { "22.log does not belong" } },
	{ "copy between, none", copy_between, NO_CACHES, .end = END, .wrong = { 22, 27 }, .says = { LACKS },
	    .tells = S18 ".log" },
	{ "copy behind", copy_behind, .end = 59, .broken = { END, 50 }, .wrong = { 50, 59 }, .says = { LACKS " 1 of 5",
	    S36 ".log: it ends at offset 40, but the next segment begins at 50" }, .tells = S36 ".log: damaged" },
	{ "sealed misnamed", sealed_misnamed, .end = END, .broken = { 18, 27 },
	    .says = { "19.log does not belong", MISSING(S18, "18", "26") }, .tells = S9 ".log: damaged" },
	{ "active misnamed", active_misnamed, .end = END + 2, .broken = { 36, 38 }, .wrong = { 38, END + 2 },
	    .says = { S27 ".log: it ends at offset 36, but the next segment begins at 38" }, .tells = S27 ".log: damaged" },
	{ "no regular file", no_regular_file, .end = END, .broken = { 18, 27 },
	    .says = { NOT_OURS(S18), MISSING(S18, "18", "26") }, .tells = S9 ".log: damaged" },
	{ "foreign entries", foreign_entries, .end = END,
	    .says = { "README does not belong", "link does not belong", "777.log does not belong" } },

	{ "sealed index missing", sealed_index_missing, .end = END },
	{ "sealed index wrong", sealed_index_wrong, .end = END, .tells = S18 ".index: it is damaged" },
	{ "active index missing", active_index_missing, .end = END },
	{ "active index wrong", active_index_wrong, .end = END, .says = { S36 ".index: it is damaged" } },
	{ "list wrong", list_wrong, .end = END, .says = { "sealed.list: it is damaged" } },
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/* ---- checking ---- */

static bool
is_in(int64_t offset, const int64_t range[2])
{
	return offset >= range[0] && offset < range[1];
}

/* Every offset gives its record, an error, or what the table says. */
static void
expect_readable(const struct row *row)
{
	struct partition_place place;

	for (int64_t i = row->start; i < row->end; i++) {
		if (is_in(i, row->broken))
			logkit_expect_broken(&kit, i, i + 1);
		else if (is_in(i, row->wrong))
			ck_assert_msg(logkit_find(&kit, i, &place) == PARTITION_FOUND, "%s: offset %" PRId64, row->name, i);
		else
			logkit_expect(&kit, i, i + 1, SIZE);
	}
}

static int
count_lines(const char *lines)
{
	int count = 0;

	for (; *lines != '\0'; lines++)
		count += *lines == '\n';
	return count;
}

static void
expect_said(const struct row *row, const char *lines)
{
	int said = 0;

	for (; said < LINES && row->says[said] != NULL; said++)
		ck_assert_msg(strstr(lines, row->says[said]) != NULL, "%s: no '%s' in\n%s", row->name, row->says[said], lines);
	ck_assert_msg(count_lines(lines) == said, "%s: other lines than %d in\n%s", row->name, said, lines);
}

static bool
nobody(void *with)
{
	(void)with;
	return false;
}

static void
hear(void *with, const struct finding *finding)
{
	(void)with;
	(void)finding;
}

/* How much corruption does verify find? */
static int64_t
verify(void)
{
	struct examine e = { .dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY), .format = (int)kit.settings.record_format,
		.only = -1, .running = nobody, .found = hear };

	ck_assert_int_ge(e.dir_fd, 0);
	ck_assert_int_eq(examine_log(&e), 0);
	close(e.dir_fd);
	return e.findings[FINDING_CORRUPTION];
}

/* Sizes of all files that had been sealed, foreign ones included. */
static void
sizes_of(int64_t *sizes)
{
	for (int64_t base = 0; base < ACTIVE; base++) {
		char path[LOGKIT_PATH_BYTES];

		path_of(base, path);
		sizes[base] = logkit_file_bytes(path);
	}
}

static void
expect_same_sizes(const struct row *row, const int64_t *before)
{
	int64_t after[ACTIVE];

	sizes_of(after);
	for (int64_t base = 0; base < ACTIVE; base++)
		/* Without any cache the last one that is left is the active one. */
		if (row->damage != active_missing || row->caches != NO_CACHES || base != 27)
			ck_assert_msg(before[base] == after[base], "%s: segment %" PRId64, row->name, base);
}

static void
remove_caches(enum caches caches)
{
	if (caches == NO_LIST || caches == NO_CACHES)
		logkit_remove_list(&kit);
	if (caches == NO_INDEXES || caches == NO_CACHES)
		for (int64_t base = 0; base < END; base++)
			logkit_remove_index(&kit, base);
}

/* A log with all its caches, as a process that was killed leaves it. */
static void
make_log(enum record_format format, int64_t interval_bytes)
{
	logkit_begin(&kit, format, 1000);
	kit.settings.index_interval_bytes = interval_bytes > 0 ? interval_bytes : 4096;
	logkit_open(&kit);
	logkit_append(&kit, END, SIZE);
	logkit_reopen(&kit);
	logkit_close(&kit);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 5);
	ck_assert_int_eq(logkit_count_files(&kit, ".index"), 5);
}

/* `_i`: row; format. */
START_TEST(bug_A6_every_damage_has_its_answer)
{
	const struct row *row = &rows[_i / FORMATS];
	int64_t sizes[ACTIVE], found;
	int appended = 0;
	char *lines;

	make_log(_i % FORMATS == 0 ? RECORD_PLAIN : RECORD_CRC32C, row->interval_bytes);
	row->damage();
	remove_caches(row->caches);
	sizes_of(sizes);
	found = verify();
	for (int round = 0; round < 3; round++) {
		logkit_catch_lines();
		logkit_open(&kit);
		lines = logkit_caught_lines();
		if (round == 0) {
			expect_said(row, lines);
			ck_assert_msg(found > 0 || strstr(lines, " error ") == NULL, "%s: verify finds nothing of\n%s", row->name,
			    lines);
		}
		free(lines);
		ck_assert_int_eq(partition_log_start(kit.p), row->start);
		ck_assert_int_eq(partition_log_end(kit.p), row->end + 2 * appended);
		logkit_catch_lines();
		expect_readable(row);
		lines = logkit_caught_lines();
		if (round == 0 && row->tells == NULL)
			ck_assert_msg(lines[0] == '\0', "%s:\n%s", row->name, lines);
		else if (round == 0)
			ck_assert_msg(strstr(lines, row->tells) != NULL, "%s:\n%s", row->name, lines);
		free(lines);
		/* The second start finds what the first one has left, and nothing more. */
		if (round > 0) {
			logkit_append(&kit, 2, SIZE);
			appended++;
		}
		logkit_expect(&kit, row->end, row->end + 2 * appended, SIZE);
		if (round == 1)
			ck_assert_int_eq(logkit_barrier(&kit), 0);
		expect_same_sizes(row, sizes);
		ck_assert_int_eq(logkit_count_files(&kit, ".cut"), row->cut);
		logkit_close(&kit);
	}
	logkit_end(&kit);
}
END_TEST

/* ---- files that cannot be opened or read ---- */

/* `_i`: at the n-th of the calls with which it is looked up. */
START_TEST(a_sealed_segment_that_cannot_be_opened_or_read)
{
	const struct { int call, error; } refusals[] = { { CALL_OPEN, EACCES }, { CALL_OPEN, EIO }, { CALL_PREAD, EIO } };
	struct partition_place place;
	char *lines;

	make_log(RECORD_CRC32C, 0);
	logkit_open(&kit);
	logkit_set_fault((struct logkit_fault){ .call = refusals[_i].call, .at = 1, .error = refusals[_i].error,
	    .sticky = true });
	logkit_catch_lines();
	for (int64_t i = 18; i < 27; i++)
		ck_assert_int_eq(logkit_find(&kit, i, &place), PARTITION_BROKEN);
	lines = logkit_caught_lines();
	ck_assert_int_ge(count_lines(lines), 1);
	ck_assert_ptr_nonnull(strstr(lines, "t-0/" S18));
	free(lines);
	logkit_clear_fault();
	logkit_expect(&kit, 0, 18, SIZE);
	logkit_expect(&kit, 27, END, SIZE);
	logkit_append(&kit, 3, SIZE);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, END + 3, SIZE);
	logkit_end(&kit);
}
END_TEST

START_TEST(an_active_segment_that_cannot_be_opened_or_read)
{
	const char *why;

	make_log(RECORD_CRC32C, 0);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = EIO, .sticky = true });
	why = logkit_refused(&kit);
	ck_assert_ptr_nonnull(strstr(why, S36 ".log: cannot read: Input/output error"));
	logkit_clear_fault();
	logkit_open(&kit);
	logkit_expect(&kit, 0, END, SIZE);
	logkit_end(&kit);
}
END_TEST

/* `_i`: it is missing, or emptied. Its records had been published: that they are gone is not passed over. */
START_TEST(an_active_segment_that_lacks_what_was_published)
{
	int64_t sizes[ACTIVE];

	make_log(RECORD_CRC32C, 0);
	if (_i == 0)
		active_missing();
	else
		cut_segment(ACTIVE, 0);
	sizes_of(sizes);
	kit.known.published_end = ACTIVE + 1;
	ck_assert_ptr_nonnull(strstr(logkit_refused(&kit), "the log on disk ends at offset 36, but 37 had been published"));
	expect_same_sizes(&rows[0], sizes);
	ck_assert_int_eq(logkit_count_files(&kit, ".log"), 4 + _i);
	kit.known.published_end = ACTIVE;
	logkit_open(&kit);
	logkit_expect(&kit, 0, ACTIVE, SIZE);
	logkit_end(&kit);
}
END_TEST

static void
add_tests(TCase *tests)
{
	tcase_add_loop_test(tests, bug_A6_every_damage_has_its_answer, 0, ROWS * FORMATS);
	tcase_add_loop_test(tests, a_sealed_segment_that_cannot_be_opened_or_read, 0, 3);
	tcase_add_test(tests, an_active_segment_that_cannot_be_opened_or_read);
	tcase_add_loop_test(tests, an_active_segment_that_lacks_what_was_published, 0, 2);
}

int
main(void)
{
	Suite *suite = suite_create("damage");
	TCase *file = tcase_create("file"), *mapped = tcase_create("mapped");

	tcase_set_timeout(file, 60);
	tcase_set_timeout(mapped, 60);
	tcase_add_checked_fixture(file, logkit_file_mode, NULL);
	tcase_add_checked_fixture(mapped, logkit_mapped_mode, NULL);
	suite_add_tcase(suite, file);
	suite_add_tcase(suite, mapped);
	add_tests(file);
	add_tests(mapped);
	return unit_run(suite);
}
