/*
 * broker.ini: every key with its boundaries, every error with its line, and everything that inih alone would have taken
 * silently for something else. Runs in a directory of its own; compares man/broker.ini.5 and etc/broker.ini (found by
 * $srcdir, else in the directory it was started in) with what the program knows.
 */
#include "supervisor/settings.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "supervisor/draft.h"
#include "tests/unit.h"

#define FILE_NAME "broker.ini"

static char source_dir[4096];

/*
 * Small tools
 */

static void
write_bytes(const char *path, const char *bytes, size_t length)
{
	FILE *file;

	unlink(path);	/* it may be another user's */
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
	ck_assert_int_eq(fclose(file), 0);
}

static char *
read_text(const char *path)
{
	FILE *file = fopen(path, "r");
	char *text = NULL;
	size_t room = 0;

	ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
	ck_assert_int_ge(getdelim(&text, &room, '\0', file), 0);
	fclose(file);
	return text;
}

/* Reads broker.ini as it lies there. Returns the errors, "" when it was taken; then settings are to be freed. */
static char *
read_there(const char *path, struct settings *settings)
{
	char *text = NULL;
	size_t length = 0;
	FILE *errors = open_memstream(&text, &length);
	int result = settings_read(path, settings, errors);

	fclose(errors);
	ck_assert_int_eq(result, length == 0 ? 0 : -1);
	return text;
}

static char *
errors_of_bytes(const char *bytes, size_t length)
{
	struct settings settings;
	char *errors;

	write_bytes(FILE_NAME, bytes, length);
	errors = read_there(FILE_NAME, &settings);
	if (errors[0] == '\0')
		settings_free(&settings);
	return errors;
}

static void
expect_errors(const char *config, const char *expected)
{
	char *errors = errors_of_bytes(config, strlen(config));

	ck_assert_str_eq(errors, expected);
	free(errors);
}

static void
expect_taken(const char *config)
{
	expect_errors(config, "");
}

/* There is an error of line `line` that holds `part`. */
static void
expect_error_with(const char *config, int line, const char *part)
{
	char *errors = errors_of_bytes(config, strlen(config)), *rest = errors, *found;
	char start[64];
	bool seen = false;

	snprintf(start, sizeof(start), FILE_NAME ":%d: ", line);
	while (!seen && (found = strsep(&rest, "\n")) != NULL)
		seen = strncmp(found, start, strlen(start)) == 0 && strstr(found, part) != NULL;
	ck_assert_msg(seen, "no error '%s%s' for\n%s", start, part, config);
	free(errors);
}

static void
read_config(const char *config, struct settings *settings)
{
	char *errors;

	write_bytes(FILE_NAME, config, strlen(config));
	errors = read_there(FILE_NAME, settings);
	ck_assert_str_eq(errors, "");
	free(errors);
}

/* What -T prints. */
static char *
print_there(const char *path)
{
	char *text = NULL;
	size_t length = 0;
	FILE *to = open_memstream(&text, &length);

	ck_assert_int_eq(settings_print(path, to, stderr), 0);
	fclose(to);
	return text;
}

static char *
format_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *
format_text(const char *format, ...)
{
	va_list arguments;
	char *text;

	va_start(arguments, format);
	ck_assert_int_ge(vasprintf(&text, format, arguments), 0);
	va_end(arguments);
	return text;
}

static char *
repeat(char c, size_t count)
{
	char *text = malloc(count + 1);

	ck_assert_ptr_nonnull(text);
	memset(text, c, count);
	text[count] = '\0';
	return text;
}

/*
 * Every key: its boundaries and what is wrong beyond them
 */

#define COUNT "is not a number"
#define SIZE "is not a size"
#define TIME "is not a time"
#define WORD "is not known"
#define TOPIC_T "[topics]\nt = 1\n"

struct key_row {
	const char *section;
	const char *name;
	const char *fallback;	/* "" = none, NULL = depends on the machine */
	const char *allowed;	/* the text behind "allowed: " */
	const char *least, *most;
	const char *below, *above;	/* "" = there is none */
	const char *mistyped;		/* what is said of "foobar" */
	const char *before, *behind;	/* lines around it that it needs */
};

static const struct key_row rows[] = {
	{ "broker", "listen", "127.0.0.1:9092",
	    "host:port, [v6]:port and unix:/path, with commas or blanks between them",
	    "h:0", "h:65535", "h:-1", "h:65536", "names no port", "", "" },
	{ "broker", "data_dir", "/var/lib/logbroker", "a path", "d", "/d", "", "", "", "", "" },
	{ "broker", "workers", "auto", "auto, or a number from 1 to 1024", "1", "1024", "0", "1025", COUNT, "", "" },
	{ "broker", "control", NULL, "off, or a path of at most 107 bytes", "c", "off", "", "", "", "", "" },
	{ "broker", "http", "127.0.0.1:9093", "off, or one host:port or [v6]:port", "h:0", "h:65535", "h:-1", "h:65536",
	    "names no port", "", "" },
	{ "broker", "max_connections", "10000", "a number from 1 to 1000000", "1", "1000000", "0", "1000001", COUNT,
	    "", "" },
	{ "broker", "max_frame_bytes", "8MiB", "a size from 1KiB to 1GiB in B KiB MiB GiB TiB", "1024", "1073741824B",
	    "1023", "1073741825", SIZE, "", "buffer_bytes = 4GiB\n" },
	{ "broker", "buffer_bytes", "256MiB", "a size from 4KiB to 1TiB in B KiB MiB GiB TiB", "4096", "1024GiB",
	    "4095",
	    "1099511627777", SIZE, "", "max_frame_bytes = 1KiB\n" },
	{ "broker", "max_fetch_wait", "60s", "a time from 1ms to 1d in us ms s min h d", "1000us", "24h", "0ms",
	    "86400001ms", TIME, "", "" },
	{ "broker", "request_timeout", "30s", "a time from 1ms to 1d in us ms s min h d", "1ms", "1440min", "0s",
	    "86400001ms", TIME, "", "" },
	{ "broker", "idle_timeout", "off", "off, or a time from 1ms to 365d in us ms s min h d", "1ms", "365d", "0ms",
	    "31536001s", TIME, "", "" },
	{ "broker", "drain_timeout", "10s", "a time from 1ms to 1d in us ms s min h d", "1ms", "1d", "0d", "86400001ms",
	    TIME, "", "" },
	{ "broker", "log_level", "info", "error|warning|info|debug", "error", "debug", "", "", WORD, "", "" },
	{ "log", "write_mode", "file", "file|mapped", "mapped", "mapped", "", "", WORD, "", "" },
	{ "log", "record_format", "crc32c", "plain|crc32c", "plain", "crc32c", "", "", WORD, "", "" },
	{ "log", "segment_bytes", "512MiB", "a size from 1KiB to 1TiB in B KiB MiB GiB TiB", "1KiB", "1TiB", "1023B",
	    "1099511627777B", SIZE, "", "" },
	{ "log", "segment_age", "off", "off, or a time from 1s to 36500d in us ms s min h d", "1s", "36500d", "999ms",
	    "36501d", TIME, "", "" },
	{ "log", "index_interval_bytes", "4KiB", "a size from 64B to 1GiB in B KiB MiB GiB TiB", "64", "1GiB", "63",
	    "1073741825", SIZE, "", "" },
	{ "log", "flush_interval", "1s", "off, or a time from 1ms to 1d in us ms s min h d", "1ms", "1d", "999us",
	    "86400000001us", TIME, "", "" },
	{ "log", "flush_records", "off", "off, or a number from 1 to 2147483647", "1", "2147483647", "0", "2147483648",
	    COUNT, "", "" },
	{ "log", "visibility", "written", "written|durable", "durable", "durable", "", "", WORD, "", "" },
	{ "log", "retention_bytes", "off", "off, or a size from 1B to 1048576TiB in B KiB MiB GiB TiB", "1",
	    "1048576TiB",
	    "0", "1048577TiB", SIZE, "", "" },
	{ "log", "retention_age", "off", "off, or a time from 1s to 36500d in us ms s min h d", "1s", "36500d", "999ms",
	    "36501d", TIME, "", "" },
	{ "log", "retention_check_interval", "30s", "a time from 1ms to 1d in us ms s min h d", "1ms", "1d", "0ms",
	    "86400001ms", TIME, "", "" },
	{ "topic t", "group", "", "a number from 0 to 1023", "0", "1023", "", "1024", COUNT,
	    "[broker]\nworkers = 1024\n", "" },
};

enum { ROW_COUNT = sizeof(rows) / sizeof(rows[0]) };

/* A configuration with one line of this key, and where that line stands. */
static char *
config_of(const struct key_row *row, const char *value, int *line)
{
	char *start = format_text("%s%s[%s]\n", row->before, TOPIC_T, row->section);
	char *config = format_text("%s%s = %s\n%s", start, row->name, value, row->behind);

	*line = 1;
	for (const char *p = start; *p != '\0'; p++)
		*line += *p == '\n';
	free(start);
	return config;
}

static void
expect_value_taken(const struct key_row *row, const char *value)
{
	int line;
	char *config = config_of(row, value, &line);

	expect_taken(config);
	free(config);
}

static void
expect_value_refused(const struct key_row *row, const char *value, const char *what)
{
	int line;
	char *config = config_of(row, value, &line);
	char *expected = format_text(FILE_NAME ":%d: %s: '%s' %s (allowed: %s)\n", line, row->name, value, what,
	    row->allowed);

	expect_errors(config, expected);
	free(config);
	free(expected);
}

static bool
takes_addresses(const struct key_row *row)
{
	return strcmp(row->name, "listen") == 0 || strcmp(row->name, "http") == 0;
}

START_TEST(key_boundaries)
{
	const struct key_row *row = &rows[_i];

	if (row->fallback != NULL && row->fallback[0] != '\0')
		expect_value_taken(row, row->fallback);
	expect_value_taken(row, row->least);
	expect_value_taken(row, row->most);
	if (row->below[0] != '\0')
		expect_value_refused(row, row->below,
		    takes_addresses(row) ? "has a port that is not a number" : "is too small");
	if (row->above[0] != '\0')
		expect_value_refused(row, row->above, takes_addresses(row) ? "has a port above 65535" : "is too large");
}
END_TEST

START_TEST(key_mistyped)
{
	const struct key_row *row = &rows[_i];
	static const char *const bad[] = { "foobar", "-1", "+1", "0x10", "1e3", "1.5", "1_000", "OFF", "on", "1 0",
	    "10 KiB",
	    "10kib", "10KB", "10M", "1S", "1 s", "1sec", "ms", "KiB" };

	if (row->mistyped[0] == '\0')
		return;		/* any text is a path */
	if (takes_addresses(row)) {
		expect_value_refused(row, "foobar", row->mistyped);
		return;
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		expect_value_refused(row, bad[i], row->mistyped);
	/* A time needs its unit, a size goes without, a count has none. */
	if (strcmp(row->mistyped, TIME) == 0) {
		expect_value_refused(row, "5", "has no unit");
		expect_value_refused(row, "0", "has no unit");
		expect_value_refused(row, "5KiB", row->mistyped);
	} else
		expect_value_refused(row, "5s", row->mistyped);
	if (strcmp(row->mistyped, COUNT) == 0)
		expect_value_refused(row, "5B", row->mistyped);
	if (strstr(row->allowed, "off") == NULL)
		expect_value_refused(row, "off", row->mistyped);
	if (strstr(row->allowed, "auto") == NULL)
		expect_value_refused(row, "auto", row->mistyped);
}
END_TEST

/* Beyond 64 bits nothing wraps into the range again. */
START_TEST(key_overflow)
{
	const struct key_row *row = &rows[_i];
	static const char *const digits[] = { "9223372036854775807", "9223372036854775808", "18446744073709551615",
	    "18446744073709551616", "18446744073709551617", "340282366920938463463374607431768211457",
	    "100000000000000000000000000000000000000000000000000000000000001" };
	static const char *const size_units[] = { "", "B", "KiB", "TiB" };
	static const char *const time_units[] = { "us", "ms", "s", "d" };
	bool size = strcmp(row->mistyped, SIZE) == 0, time = strcmp(row->mistyped, TIME) == 0;

	if (!size && !time && strcmp(row->mistyped, COUNT) != 0)
		return;
	for (size_t i = 0; i < sizeof(digits) / sizeof(digits[0]); i++) {
		for (size_t u = 0; u < 4; u++) {
			char *value = format_text("%s%s", digits[i], size ? size_units[u] : time ? time_units[u] : "");

			/* 2^63 - 1 us is no whole number of milliseconds; above that it is only too large. */
			if (strcmp(value, "9223372036854775807us") != 0)
				expect_value_refused(row, value, "is too large");
			free(value);
		}
	}
}
END_TEST

START_TEST(minutes_have_three_letters)
{
	expect_errors("[broker]\nidle_timeout = 5m\nrequest_timeout = 5m\n" TOPIC_T,
	    FILE_NAME ":2: idle_timeout: '5m' is not a time, minutes are written min (allowed: off, or a time from 1ms to 365d in "
	    "us ms s min h d)\n"
	    FILE_NAME ":3: request_timeout: '5m' is not a time, minutes are written min (allowed: a time from 1ms to 1d in us "
	    "ms s min h d)\n");
}
END_TEST

/* What counts milliseconds takes no finer time, and does not round one. */
START_TEST(milliseconds_are_whole)
{
	expect_errors("[broker]\nrequest_timeout = 1500us\ndrain_timeout = 2000us\n" TOPIC_T "[log]\nflush_interval = "
	    "1500us\n",
	    FILE_NAME ":2: request_timeout: '1500us' is not a whole number of milliseconds (allowed: a time from 1ms "
	    "to 1d in "
	    "us ms s min h d)\n");
}
END_TEST

START_TEST(key_empty)
{
	const struct key_row *row = &rows[_i];
	static const char *const empty[] = { "", " ", "\t", " ; 5" };

	for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
		int line;
		char *config = config_of(row, empty[i], &line);
		char *expected = format_text(FILE_NAME ":%d: %s: no value (allowed: %s)\n", line, row->name,
		    row->allowed);

		expect_errors(config, expected);
		free(config);
		free(expected);
	}
}
END_TEST

START_TEST(key_repeated)
{
	const struct key_row *row = &rows[_i];
	const char *value = row->fallback != NULL && row->fallback[0] != '\0' ? row->fallback : row->least;
	char *twice = format_text("%s\n%s = %s", value, row->name, value), *config, *expected;
	int line;

	config = config_of(row, twice, &line);
	expected = format_text(FILE_NAME ":%d: key '%s' is repeated (the first is in line %d; remove one)\n", line + 1,
	    row->name, line);
	expect_errors(config, expected);
	free(config);
	free(expected);
	free(twice);
}
END_TEST

START_TEST(key_in_wrong_section)
{
	const struct key_row *row = &rows[_i];
	static const char *const sections[] = { "broker", "log", "topic t" };
	static const char *const homes[] = { "broker", "log", "topic NAME" };

	for (size_t s = 0; s < 3; s++) {
		size_t home = strcmp(row->section, "broker") == 0 ? 0 : strcmp(row->section, "log") == 0 ? 1 : 2;
		char *config = format_text(TOPIC_T "[%s]\n%s = %s\n", sections[s], row->name, row->least);
		char *what = format_text("unknown key '%s' in [%s] (it belongs into [%s])", row->name, sections[s],
		    homes[home]);

		if (s != home && !(home == 1 && s == 2))
			expect_error_with(config, 4, what);
		free(config);
		free(what);
	}
}
END_TEST

/* Do the rows above, -T and the manual name the same keys? -T is made from the table of the program. */

static const struct key_row *
find_row(const char *name)
{
	for (int i = 0; i < ROW_COUNT; i++) {
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	}
	return NULL;
}

START_TEST(table_is_whole)
{
	int seen[ROW_COUNT] = { 0 };
	char *text, *rest, *line;

	write_bytes(FILE_NAME, TOPIC_T "[topic t]\ngroup = 0\n", strlen(TOPIC_T "[topic t]\ngroup = 0\n"));
	text = rest = print_there(FILE_NAME);
	while ((line = strsep(&rest, "\n")) != NULL) {
		char *equals = strstr(line, " = ");
		const struct key_row *row;

		if (equals == NULL)
			continue;
		*equals = '\0';
		row = find_row(line);
		if (row == NULL) {
			ck_assert_str_eq(line, "t");
			continue;
		}
		seen[row - rows]++;
		if (row->fallback != NULL && row->fallback[0] != '\0') {
			char *value = format_text("%s ", row->fallback);

			ck_assert_msg(strncmp(equals + 3, value, strlen(value)) == 0, "%s: %s", row->name, equals + 3);
			free(value);
		}
	}
	for (int i = 0; i < ROW_COUNT; i++)
		ck_assert_msg(seen[i] == (strcmp(rows[i].section, "log") == 0 ? 2 : 1), "%s: %d", rows[i].name,
		    seen[i]);
	free(text);
}
END_TEST

/* What stands in the manual about a key: its range as "from LEAST to MOST", its default as .Ql. */
static void
expect_item(const struct key_row *row, char *item)
{
	const char *range = strstr(row->allowed, "from ");
	char *text;

	for (char *p = item; *p != '\0'; p++)
		*p = *p == '\n' ? ' ' : *p;
	if (row->fallback != NULL && row->fallback[0] != '\0') {
		text = format_text(" .Ql %s ", row->fallback);
		ck_assert_msg(strstr(item, text) != NULL, "%s: the default, %s, is not in the manual", row->name, text);
		free(text);
	}
	if (range != NULL) {
		text = strdup(range);
		ck_assert_ptr_nonnull(text);
		if (strstr(text, " in ") != NULL)
			*strstr(text, " in ") = '\0';
		ck_assert_msg(strcasestr(item, text) != NULL, "%s: %s is not in the manual", row->name, text);
		free(text);
	}
}

/* Each key is an item ".It Ic NAME ..." of the manual, and no other item is one. */
START_TEST(manual_has_the_same_keys)
{
	int seen[ROW_COUNT] = { 0 };
	char *path = format_text("%s/man/broker.ini.5", source_dir), *text = read_text(path), *next;

	for (char *item = strstr(text, "\n.It Ic "); item != NULL; item = next) {
		char *name = item + strlen("\n.It Ic "), *end = strstr(name, "\n.El");
		const struct key_row *row;

		next = strstr(name, "\n.It Ic ");
		if (next != NULL)
			*next = '\0';
		else if (end != NULL)
			*end = '\0';
		name = strndup(name, strcspn(name, " "));
		row = find_row(name);
		ck_assert_msg(row != NULL, "the manual has a key '%s' that the program does not know", name);
		free(name);
		seen[row - rows]++;
		expect_item(row, item);
		if (next != NULL)
			*next = '\n';
	}
	for (int i = 0; i < ROW_COUNT; i++)
		ck_assert_msg(seen[i] == 1, "%s: %d times in the manual", rows[i].name, seen[i]);
	free(path);
	free(text);
}
END_TEST

/* The keys of each class of change stand in its item of "Changes", ".It Em NAME", as ".Ic KEY". */
START_TEST(manual_tells_what_a_change_takes)
{
	static const char *const items[] = { [CHANGES_AT_ONCE] = "\n.It Em applied\n",
		[CHANGES_WITH_WORKERS] = "\n.It Em applied by restarting the workers\n",
		[CHANGES_WITH_SERVICE] = "\n.It Em needs a restart of the service\n" };
	char *path = format_text("%s/man/broker.ini.5", source_dir), *text = read_text(path), *starts[5] = { NULL };

	for (int c = CHANGES_AT_ONCE; c <= CHANGES_WITH_SERVICE; c++) {
		starts[c] = strstr(text, items[c]);
		ck_assert_ptr_nonnull(starts[c]);
	}
	starts[CHANGES_WITH_SERVICE + 1] = strstr(starts[CHANGES_WITH_SERVICE], "\n.El\n");
	ck_assert_ptr_nonnull(starts[CHANGES_WITH_SERVICE + 1]);
	for (int k = 0; k < KEY_COUNT; k++) {
		const struct draft_key *key = draft_key(k);
		char *line = format_text("\n.Ic %s ", key->name), *found = strstr(starts[CHANGES_AT_ONCE], line);

		ck_assert_msg(found != NULL && found >= starts[key->change] && found < starts[key->change + 1], "%s", key->name);
		free(line);
	}
	free(path);
	free(text);
}
END_TEST

START_TEST(sample_is_taken)
{
	char *path = format_text("%s/etc/broker.ini", source_dir), *errors;
	struct settings settings;

	errors = read_there(path, &settings);
	ck_assert_str_eq(errors, "");
	ck_assert_int_ge(settings.topic_count, 1);
	settings_free(&settings);
	free(errors);
	free(path);
}
END_TEST

/* What the sample shows commented out is right too: all lines with a ';' right before a letter or a '[' are taken. */
START_TEST(sample_comments_are_right)
{
	char *path = format_text("%s/etc/broker.ini", source_dir), *text = read_text(path), *to = text, *errors;
	size_t uncommented = 0;

	for (const char *from = text; *from != '\0'; ) {
		if ((from == text || from[-1] == '\n') && from[0] == ';' && from[1] != ' ') {
			from++;
			uncommented++;
		}
		*to++ = *from++;
	}
	*to = '\0';
	errors = errors_of_bytes(text, strlen(text));
	ck_assert_str_eq(errors, "");
	ck_assert_uint_gt(uncommented, 10);
	free(errors);
	free(text);
	free(path);
}
END_TEST

/*
 * What comes out
 */

START_TEST(defaults)
{
	struct settings s;
	cpu_set_t set;

	read_config("[topics]\nb = 3\na = 99999\n", &s);
	ck_assert_int_eq(s.listen_count, 1);
	ck_assert_str_eq(s.listen[0].text, "127.0.0.1:9092");
	ck_assert_str_eq(s.listen[0].host, "127.0.0.1");
	ck_assert_str_eq(s.listen[0].port, "9092");
	ck_assert_ptr_null(s.listen[0].path);
	ck_assert_str_eq(s.http.text, "127.0.0.1:9093");
	ck_assert_str_eq(s.http.host, "127.0.0.1");
	ck_assert_str_eq(s.http.port, "9093");
	ck_assert_str_eq(s.data_dir, "/var/lib/logbroker");
	ck_assert_str_eq(s.control, faccessat(AT_FDCWD, "/run/logbroker/.", W_OK | X_OK, AT_EACCESS) == 0 ?
	    "/run/logbroker/control.sock" : "/var/lib/logbroker/control.sock");
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	ck_assert_int_eq(s.workers_asked, CPU_COUNT(&set));
	ck_assert_int_eq(s.workers, s.workers_asked);
	ck_assert_int_eq(s.max_connections, 10000);
	ck_assert_int_eq(s.max_frame_bytes, 8 << 20);
	ck_assert_int_eq(s.buffer_bytes, 256 << 20);
	ck_assert_int_eq(s.max_fetch_wait_ms, 60000);
	ck_assert_int_eq(s.request_timeout_ms, 30000);
	ck_assert_int_eq(s.drain_timeout_ms, 10000);
	ck_assert_int_eq(s.log_level, LOG_INFO);
	ck_assert_int_eq(s.topic_count, 2);
	ck_assert_str_eq(s.topics[0].name, "a");
	ck_assert_int_eq(s.topics[0].partition_count, 99999);
	ck_assert_int_eq(s.topics[0].line, 3);
	ck_assert_str_eq(s.topics[1].name, "b");
	ck_assert_int_eq(s.topics[1].line, 2);
	ck_assert_int_eq(s.topics[1].group, -1);
	ck_assert_int_eq(s.topics[1].log.record_format, RECORD_CRC32C);
	ck_assert_int_eq(s.topics[1].log.flush_records, 0);
	ck_assert_int_eq(s.topics[1].log.segment_bytes, 512 << 20);
	ck_assert_int_eq(s.topics[1].log.index_interval_bytes, 4096);
	ck_assert_int_eq(s.topics[1].log.flush_interval_us, 1000000);
	settings_free(&s);
	settings_free(&s);	/* and once more is harmless */
}
END_TEST

static const char everything[] =
    "; a comment\n"
    "# another\n"
    "  ; an indented one\n"
    "[broker] ; end of line\n"
    "listen=localhost:09092,[::1]:0\tunix:/run/x.sock , 0.0.0.0:65535 ; four\n"
    "data_dir\t=\t/srv/log broker\n"
    "workers = 3\n"
    "control = c.sock\n"
    "http = [::]:8080\n"
    "max_connections = 007\n"
    "max_frame_bytes = 1MiB\n"
    "buffer_bytes = 4194304\n"
    "max_fetch_wait = 2min\n"
    "request_timeout = 1500ms\n"
    "idle_timeout = 2h\n"
    "drain_timeout = 5000000us\n"
    "log_level = debug\n"
    "\n"
    "[log]\n"
    "write_mode = mapped\n"
    "record_format = plain\n"
    "segment_bytes = 1GiB\n"
    "segment_age = off\n"
    "index_interval_bytes = 512B\n"
    "flush_interval = off\n"
    "flush_records = 1000\n"
    "visibility = written\n"
    "retention_bytes = off\n"
    "retention_age = off\n"
    "retention_check_interval = 30000ms\n"
    "[topic orders]\n"
    "group = 2\n"
    "record_format = crc32c\n"
    "flush_interval = 1500us\n"
    "flush_records = off\n"
    "[topics]\n"
    "payments = 4\n"
    "orders = 2\n"
    "[topic  a.b_c-D ]\n"
    "segment_bytes = 1KiB\n"
    "[topics ]\n";

START_TEST(every_value_arrives)
{
	char *config = format_text("%.*s", (int)(strlen(everything) - strlen("[topic  a.b_c-D ]\nsegment_bytes = 1KiB\n"
	    "[topics ]\n")), everything);
	char *whole = format_text("%sa.b_c-D = 1\n[topic  a.b_c-D]\nsegment_bytes = 1KiB\n", config);
	struct settings s;

	read_config(whole, &s);
	ck_assert_int_eq(s.listen_count, 4);
	ck_assert_str_eq(s.listen[0].text, "localhost:09092");
	ck_assert_str_eq(s.listen[0].host, "localhost");
	ck_assert_str_eq(s.listen[0].port, "9092");
	ck_assert_str_eq(s.listen[1].text, "[::1]:0");
	ck_assert_str_eq(s.listen[1].host, "::1");
	ck_assert_str_eq(s.listen[1].port, "0");
	ck_assert_str_eq(s.listen[2].text, "unix:/run/x.sock");
	ck_assert_str_eq(s.listen[2].path, "/run/x.sock");
	ck_assert_ptr_null(s.listen[2].host);
	ck_assert_ptr_null(s.listen[2].port);
	ck_assert_str_eq(s.listen[3].port, "65535");
	ck_assert_str_eq(s.data_dir, "/srv/log broker");
	ck_assert_int_eq(s.workers_asked, 3);
	ck_assert_int_eq(s.workers, 3);
	ck_assert_str_eq(s.control, "c.sock");
	ck_assert_str_eq(s.http.host, "::");
	ck_assert_int_eq(s.max_connections, 7);
	ck_assert_int_eq(s.max_frame_bytes, 1 << 20);
	ck_assert_int_eq(s.buffer_bytes, 4 << 20);
	ck_assert_int_eq(s.max_fetch_wait_ms, 120000);
	ck_assert_int_eq(s.request_timeout_ms, 1500);
	ck_assert_int_eq(s.drain_timeout_ms, 5000);
	ck_assert_int_eq(s.log_level, LOG_DEBUG);
	ck_assert_int_eq(s.topic_count, 3);
	ck_assert_str_eq(s.topics[0].name, "a.b_c-D");
	ck_assert_int_eq(s.topics[0].log.segment_bytes, 1024);
	ck_assert_int_eq(s.topics[0].log.record_format, RECORD_PLAIN);
	ck_assert_int_eq(s.topics[0].log.write_mode, LOG_WRITE_MAPPED);
	ck_assert_int_eq(s.topics[0].log.flush_interval_us, 0);
	ck_assert_str_eq(s.topics[1].name, "orders");
	ck_assert_int_eq(s.topics[1].group, 2);
	ck_assert_int_eq(s.topics[1].log.record_format, RECORD_CRC32C);
	ck_assert_int_eq(s.topics[1].log.segment_bytes, 1 << 30);
	ck_assert_int_eq(s.topics[1].log.index_interval_bytes, 512);
	ck_assert_int_eq(s.topics[1].log.flush_interval_us, 1500);
	ck_assert_int_eq(s.topics[1].log.flush_records, 0);
	ck_assert_str_eq(s.topics[2].name, "payments");
	ck_assert_int_eq(s.topics[2].group, -1);
	ck_assert_int_eq(s.topics[2].log.record_format, RECORD_PLAIN);
	ck_assert_int_eq(s.topics[2].log.flush_records, 1000);
	settings_free(&s);
	free(config);
	free(whole);
}
END_TEST

START_TEST(switched_off)
{
	struct settings s;

	read_config("[broker]\nhttp = off\ncontrol = off\n" TOPIC_T, &s);
	ck_assert_ptr_null(s.http.text);
	ck_assert_ptr_null(s.control);
	settings_free(&s);
}
END_TEST

/* No more workers than partitions; but never fewer than a group needs. */
START_TEST(workers_and_groups)
{
	static const struct {
		const char *config;
		int32_t asked, started;
	} cases[] = {
		{ "[broker]\nworkers = 8\n[topics]\na = 1\n", 8, 1 },
		{ "[broker]\nworkers = 8\n[topics]\na = 3\nb = 4\n", 8, 7 },
		{ "[broker]\nworkers = 8\n[topics]\na = 9\n", 8, 8 },
		{ "[broker]\nworkers = 8\n[topics]\na = 1\n[topic a]\ngroup = 5\n", 8, 6 },
		{ "[broker]\nworkers = 8\n[topics]\na = 1\n[topic a]\ngroup = 7\n", 8, 8 },
		{ "[broker]\nworkers = 8\n[topics]\na = 4\nb = 1\n[topic b]\ngroup = 1\n", 8, 5 },
		{ "[broker]\nworkers = 1024\n[topics]\na = 99999\n", 1024, 1024 },
		{ "[broker]\nworkers = 1\n[topics]\na = 5\n[topic a]\ngroup = 0\n", 1, 1 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct settings s;

		read_config(cases[i].config, &s);
		ck_assert_int_eq(s.workers_asked, cases[i].asked);
		ck_assert_int_eq(s.workers, cases[i].started);
		settings_free(&s);
	}
	expect_errors("[broker]\nworkers = 2\n[topics]\na = 5\n[topic a]\ngroup = 2\n",
	    FILE_NAME ":6: group: '2' is not below workers, which is 2 (allowed: 0 to 1, or workers from 3 on)\n");
	expect_error_with("[topics]\na = 5\n[topic a]\ngroup = 1023\n", 4, ", the number of processors");
}
END_TEST

START_TEST(buffer_holds_four_frames)
{
	expect_taken("[broker]\nmax_frame_bytes = 64MiB\n" TOPIC_T);
	expect_errors("[broker]\nmax_frame_bytes = 67108865\n" TOPIC_T,
	    FILE_NAME ":2: buffer_bytes: 256MiB, the default, is less than four frames of max_frame_bytes, 67108865B "
	    "(allowed: from 268435460B)\n");
	expect_errors("[broker]\nbuffer_bytes = 33554431\n" TOPIC_T,
	    FILE_NAME ":2: buffer_bytes: 33554431B is less than four frames of max_frame_bytes, 8MiB, the default "
	    "(allowed: from 32MiB)\n");
	expect_taken("[broker]\nbuffer_bytes = 32MiB\n" TOPIC_T);
	expect_error_with("[broker]\nmax_frame_bytes = 2KiB\nbuffer_bytes = 8191\n" TOPIC_T, 3, "(allowed: from 8KiB)");
	expect_taken("[broker]\nmax_frame_bytes = 2KiB\nbuffer_bytes = 8KiB\n" TOPIC_T);
}
END_TEST

/* A METADATA v2 answer for all topics: 10 bytes and per topic 7, its name, and 24 for each partition. */
START_TEST(metadata_fits_an_answer)
{
	static const char start[] = "[topics]\na = 99999\nb = 99999\nc = 99999\n";
	char *config = format_text("%sfifteen-letters = 49526\n", start);

	expect_taken(config);	/* 8,388,608 bytes */
	free(config);
	config = format_text("%ssixteen-letters. = 49526\n", start);
	expect_error_with(config, 5, "a METADATA answer for all topics is longer than the 8388608 bytes");
	free(config);
	config = format_text("%sd = 49527\ne = 1\n", start);
	expect_errors(config,
	    FILE_NAME ":5: with the 49527 partitions of topic 'd' a METADATA answer for all topics is "
	    "longer than the 8388608 bytes that clients take (fewer topics or partitions, about 349525 in all)\n");
	free(config);
}
END_TEST

/* Nearly a hundred thousand topics are read in a moment: nothing looks through all of them for each. */
START_TEST(many_topics)
{
	int many = 99999 / unit_sample();
	char *config = NULL, *errors, *name = format_text("t%05d", many), *error;
	size_t length = 0;
	FILE *text = open_memstream(&config, &length);
	struct settings s;

	fprintf(text, "[topics]\n");
	for (int i = many; i > 0; i--)
		fprintf(text, "t%05d = 1\n", i);
	for (int i = 1; i <= many; i++)
		fprintf(text, "[topic t%05d]\nflush_interval = %dms\n", i, i);
	fclose(text);
	read_config(config, &s);
	ck_assert_int_eq(s.topic_count, many);
	ck_assert_str_eq(s.topics[many - 1].name, name);
	ck_assert_int_eq(s.topics[many - 1].log.flush_interval_us, many * INT64_C(1000));
	settings_free(&s);
	/* All of them unknown: as many errors. */
	for (char *p = config; *p != '\0'; p++) {
		if (p[0] == '\n' && p[1] == 't')
			p[1] = 'u';
	}
	errors = errors_of_bytes(config, length);
	/* Of a few of them one that is like it is named. */
	error = many < 10000 ? format_text("[topic %s]: no such topic in [topics] (did you mean 'u", name)
	    : format_text("[topic %s]: no such topic in [topics] (add '%s = partitions' there)", name, name);
	ck_assert_ptr_nonnull(strstr(errors, error));
	free(error);
	free(name);
	free(errors);
	free(config);
}
END_TEST

/* "<topic>-<partition>": no two partitions of different topics share a directory, whatever the names. */
START_TEST(directories_never_collide)
{
	static const char *const names[] = { "a", "a-1", "a-1-0", "a-", "a--", "a-0", "-", "--", "0", "1", "-1",
	    "1-1", "a-01" };
	enum { NAMES = sizeof(names) / sizeof(names[0]), PARTITIONS = 12 };
	char all[NAMES * PARTITIONS][TOPICS_DIRECTORY_BYTES];
	size_t count = 0;

	for (size_t n = 0; n < NAMES; n++) {
		struct topic topic = { .partition_count = PARTITIONS };

		snprintf(topic.name, sizeof(topic.name), "%s", names[n]);
		for (int32_t p = 0; p < PARTITIONS; p++)
			topics_directory(&topic, p, all[count++]);
	}
	for (size_t i = 0; i < count; i++) {
		for (size_t j = i + 1; j < count; j++)
			ck_assert_str_ne(all[i], all[j]);
	}
	expect_taken("[topics]\na = 2\na-1 = 2\na-1-0 = 1\n- = 1\n-- = 1\n0 = 1\n");
}
END_TEST

/*
 * Addresses and paths
 */

static void
expect_listen(const char *value, const char *what)
{
	char *config = format_text("[broker]\nlisten = %s\n" TOPIC_T, value);

	if (what == NULL)
		expect_taken(config);
	else
		expect_error_with(config, 2, what);
	free(config);
}

START_TEST(listen_addresses)
{
	static const struct {
		const char *value, *what;
	} cases[] = {
		{ "h:1", NULL }, { "a-b_c.example.org:1 , [fe80::1%eth0]:2,,unix:rel.sock", NULL },
		    { "127.0.0.1:0,127.0.0.1:0", NULL },
		{ "[::]:1,0.0.0.0:1", NULL }, { "unix:/a,unix:/b", NULL }, { "[::ffff:1.2.3.4]:1", NULL },
		{ ",", "names no address" }, { ", ,", "names no address" },
		{ ":9092", "names no host (0.0.0.0 is every IPv4 address" }, { "9092", "names no port" },
		{ "h:", "names no port" }, { "h:x", "has a port that is not a number" }, { "h:1x", "not a number" },
		{ "h:99999", "above 65535" }, { "h:4294967297", "above 65535" }, { "h:18446744073709551617",
		    "above 65535" },
		{ "::1:9092", "has more than one ':'" }, { "[::1]", "is not [v6]:port" }, { "[::1",
		    "is not [v6]:port" },
		{ "[::1]9092", "is not [v6]:port" }, { "[]:1", "is not an IPv6 address" }, { "[h]:1",
		    "is not an IPv6 address" },
		{ "[::1%]:1", "is not an IPv6 address" }, { "[::1]:", "names no port" }, { "[1.2.3.4]:1",
		    "is not an IPv6 address" },
		{ "127.1:1", "is not an IPv4 address" }, { "256.0.0.1:1", "is not an IPv4 address" },
		    { "1.2.3.4.5:1", "IPv4" },
		{ "h/x:1", "other characters" }, { "tcp://h:1", "has more than one ':'" }, { "*:1",
		    "other characters" },
		{ "off", "names no port" }, { "unix:", "names no path" }, { "good:1,bad", "'bad' names no port" },
		{ "h:1,H:1", "'H:1' is there twice" }, { "h:1,i:1,h:1", "'h:1' is there twice" },
		{ "[::1]:5,[0:0:0:0:0:0:0:1]:5", "is there twice" }, { "unix:/a unix:/a", "'unix:/a' is there twice" },
		{ "h:1,h:01", "is there twice" }, { "h:9092;x", "not a number" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect_listen(cases[i].value, cases[i].what);
}
END_TEST

START_TEST(http_address)
{
	expect_errors("[broker]\nhttp = a:1,b:2\n" TOPIC_T,
	    FILE_NAME ":2: http: 'a:1,b:2' is more than one address (allowed: "
	    "off, or one host:port or [v6]:port)\n");
	expect_error_with("[broker]\nhttp = unix:/x\n" TOPIC_T, 2, "http: 'unix:/x' is not host:port");
	expect_error_with("[broker]\nlisten = a:1 b:2\nhttp = b:2\n" TOPIC_T, 3,
	    "http: 'b:2' is there twice, it is in listen too");
	expect_error_with("[broker]\nlisten = 127.0.0.1:9093\n" TOPIC_T, 2, "http: '127.0.0.1:9093' is there twice");
	expect_taken("[broker]\nlisten = 127.0.0.1:0\nhttp = 127.0.0.1:0\n" TOPIC_T);
}
END_TEST

START_TEST(socket_paths_fit)
{
	char *path = repeat('p', 107), *config;

	config = format_text("[broker]\nlisten = unix:%s\ncontrol = c\n" TOPIC_T, path);
	expect_taken(config);
	free(config);
	config = format_text("[broker]\nlisten = unix:%sp\n" TOPIC_T, path);
	expect_error_with(config, 2, "is too long for a Unix socket (its path has at most 107 bytes)");
	free(config);
	config = format_text("[broker]\ncontrol = %s\n" TOPIC_T, path);
	expect_taken(config);
	free(config);
	config = format_text("[broker]\ncontrol = %sp\n" TOPIC_T, path);
	expect_error_with(config, 2, "is too long for a Unix socket (allowed: off, or a path of at most 107 bytes)");
	free(config);
	expect_error_with("[broker]\nlisten = unix:/x\ncontrol = /x\n" TOPIC_T, 3, "control: '/x' is in listen too");
	expect_taken("[broker]\nlisten = unix:/x\ncontrol = /xy\n" TOPIC_T);
	free(path);
}
END_TEST

/* The default of control lies in data_dir, which may be too deep for a socket. */
START_TEST(default_control_fits)
{
	char *dir = repeat('d', 107 - strlen("/control.sock")), *config;
	bool in_run = faccessat(AT_FDCWD, "/run/logbroker/.", W_OK | X_OK, AT_EACCESS) == 0;

	config = format_text("[broker]\ndata_dir = %s\n" TOPIC_T, dir);
	expect_taken(config);
	free(config);
	config = format_text("[broker]\ndata_dir = %sd\n" TOPIC_T, dir);
	if (in_run)
		expect_taken(config);
	else
		expect_error_with(config, 2,
		    "too long for a Unix socket (set control to a path of at most 107 bytes, or to off)");
	free(config);
	config = format_text("[broker]\ndata_dir = %sd\ncontrol = off\n" TOPIC_T, dir);
	expect_taken(config);
	free(config);
	free(dir);
	expect_error_with("[broker]\ndata_dir = \"/var/lib/x\"\n" TOPIC_T, 2, "is in quotes");
}
END_TEST

/*
 * Lines: what inih alone would have got wrong
 */

START_TEST(long_lines)
{
	char *longest = repeat('d', 190), *comment = repeat('c', 5000), *config;
	struct settings s;

	config = format_text("[broker]\ncontrol = off\ndata_dir =                                  %s ; "
	    "%s\n;%s\n" TOPIC_T, longest,
	    comment, comment);
	read_config(config, &s);
	ck_assert_str_eq(s.data_dir, longest);
	settings_free(&s);
	free(config);
	config = format_text("[broker]\ncontrol = off\ndata_dir = %sd\n" TOPIC_T, longest);
	expect_errors(config, FILE_NAME ":3: data_dir: a value of 191 bytes is too long (at most 190)\n");
	free(config);
	config = format_text("[broker]\ndata_dir = %s\nworkers = none\n" TOPIC_T, comment);
	expect_errors(config, FILE_NAME ":2: data_dir: a value of 5000 bytes is too long (at most 190)\n" FILE_NAME
	    ":3: workers: 'none' is not a number (allowed: auto, or a number from 1 to 1024)\n");
	free(config);
	config = format_text(TOPIC_T "%s = 1\n[%s]\n", comment, comment);
	expect_errors(config, FILE_NAME ":3: a key of 5000 bytes is too long (at most 255)\n" FILE_NAME
	    ":4: a section's name of 5000 bytes is too long (at most 255)\n");
	free(config);
	free(longest);
	free(comment);
}
END_TEST

START_TEST(long_topic_names)
{
	char *name = repeat('n', 249), *other = repeat('n', 248), *config;
	struct settings s;

	config = format_text("[topic %s]\nflush_interval = 5s\n[topics]\n%s = 99999\n%s = 3 ; %s\n", name, name,
	    other, other);
	read_config(config, &s);
	ck_assert_int_eq(s.topic_count, 2);
	ck_assert_str_eq(s.topics[0].name, other);
	ck_assert_int_eq(s.topics[0].log.flush_interval_us, 1000000);
	ck_assert_str_eq(s.topics[1].name, name);
	ck_assert_int_eq(s.topics[1].partition_count, 99999);
	ck_assert_int_eq(s.topics[1].log.flush_interval_us, 5000000);
	settings_free(&s);
	free(config);
	config = format_text("[topics]\n%sn = 1\n", name);
	expect_error_with(config, 2, "is not a topic's name (1 to 249 characters");
	free(config);
	free(name);
	free(other);
}
END_TEST

static const char nul_line[] = "[broker]\nworkers = 1\0 = 2\n" TOPIC_T;
static const char nul_comment[] = "; a\0b\n" TOPIC_T;

START_TEST(nul_bytes)
{
	char *errors = errors_of_bytes(nul_line, sizeof(nul_line) - 1);

	ck_assert_str_eq(errors, FILE_NAME ":2: a NUL byte in this line (the file is text)\n");
	free(errors);
	errors = errors_of_bytes(nul_comment, sizeof(nul_comment) - 1);
	ck_assert_str_eq(errors, FILE_NAME ":1: a NUL byte in this line (the file is text)\n");
	free(errors);
}
END_TEST

START_TEST(control_characters)
{
	expect_errors("[broker]\nworkers = 1\rlisten = h:1\n" TOPIC_T,
	    FILE_NAME ":2: a control character, 0x0d, in this line (the file is text)\n");
	expect_errors("[broker]\ndata_dir = /x\033[2J\n" TOPIC_T,
	    FILE_NAME ":2: a control character, 0x1b, in this line (the file is text)\n");
	expect_errors("\f\n" TOPIC_T, FILE_NAME ":1: a control character, 0x0c, in this line (the file is text)\n");
	expect_taken("; \a\r tolerated here\n" TOPIC_T);
}
END_TEST

#define INDENTED "this line is indented (take the blanks at its beginning away)\n"

/* inih takes each of them for more of the value above. */
START_TEST(indentation)
{
	expect_errors("[broker]\nworkers = 1\n  log_level = debug\n\t[topics]\nt = 1\n[topics]\nt = 1\n",
	    FILE_NAME ":3: " INDENTED FILE_NAME ":4: " INDENTED
	    FILE_NAME ":5: unknown key 't' in [broker] (broker.ini(5) tells all of them)\n");
	expect_errors(TOPIC_T " u = 1\n v = 1\n", FILE_NAME ":3: " INDENTED FILE_NAME ":4: " INDENTED);
	expect_taken("[topics]\n   \n\t; comment\n  # comment\nt = 1\n \t \n");
}
END_TEST

START_TEST(text_behind_section)
{
	static const char what[] = "text behind ']' (only a comment may stand there, begun by ' ;')\n";
	char *expected = format_text(FILE_NAME ":1: %s", what);

	expect_errors("[topics] t = 1\nu = 1\n", expected);
	expect_errors("[topics];comment\nu = 1\n", expected);
	expect_errors("[topics] # comment\nu = 1\n", expected);
	expect_errors("[topics]]\nu = 1\n", expected);
	expect_taken("[topics] ; comment\nu = 1\n");
	expect_taken("[topics]   \nu = 1\n");
	free(expected);
}
END_TEST

START_TEST(broken_sections)
{
	expect_errors(TOPIC_T "[log\nsegment_bytes = 1\n", FILE_NAME ":3: a section without ']' (write '[NAME]')\n");
	expect_errors(TOPIC_T "[]\nsegment_bytes = 1\n", FILE_NAME ":3: a section without a name (write '[NAME]')\n");
	expect_errors(TOPIC_T "[topic]\ngroup = 0\n",
	    FILE_NAME ":3: section [topic] without a topic (write [topic NAME])\n");
	expect_errors(TOPIC_T "[topic  ]\ngroup = 0\n",
	    FILE_NAME ":3: section [topic] without a topic (write [topic NAME])\n");
	expect_errors(TOPIC_T "[ log ]\nx = 0\n", FILE_NAME ":3: unknown section [ log ] (did you mean [log]?)\n");
	expect_errors(TOPIC_T "[Log]\nx = 0\n", FILE_NAME ":3: unknown section [Log] (did you mean [log]?)\n");
	expect_errors(TOPIC_T "[topict]\nx = 0\n", FILE_NAME ":3: unknown section [topict] (did you mean [topics]?)\n");
	expect_errors(TOPIC_T "[storage]\nx = 0\n",
	    FILE_NAME ":3: unknown section [storage] (there are [broker], [topics], [log] and [topic NAME])\n");
}
END_TEST

START_TEST(lines_without_equals)
{
	expect_errors("[broker]\nworkers\nlisten 127.0.0.1\n" TOPIC_T,
	    FILE_NAME ":2: no '=' in this line (write 'key = value')\n"
	    FILE_NAME ":3: no '=' in this line (write 'key = value')\n");
	expect_errors("[broker]\nworkers: 2\nlisten : a=1\nlog_level :=debug\n" TOPIC_T,
	    FILE_NAME ":2: ':' instead of '=' (write 'key = value')\n" FILE_NAME ":3: ':' instead of '=' (write 'key "
	    "= value')\n"
	    FILE_NAME ":4: ':' instead of '=' (write 'key = value')\n");
	expect_errors("[broker]\n= 2\n" TOPIC_T, FILE_NAME ":2: no key before '=' (write 'key = value')\n");
	expect_errors("[topics]\nt ; = 1\n", FILE_NAME ":2: no '=' in this line (write 'key = value')\n");
}
END_TEST

START_TEST(comments_behind_values)
{
	struct settings s;

	expect_errors("[broker]\nworkers = 2 # two\ndata_dir = /x #1\ncontrol = # off\nlog_level =#debug\n" TOPIC_T,
	    FILE_NAME ":2: workers: '#' begins no comment behind a value (only ' ;' does)\n"
	    FILE_NAME ":3: data_dir: '#' begins no comment behind a value (only ' ;' does)\n"
	    FILE_NAME ":4: control: '#' begins no comment behind a value (only ' ;' does)\n"
	    FILE_NAME ":5: log_level: '#' begins no comment here, and no value (only ' ;' begins a comment)\n");
	expect_errors("[broker]\nhttp =;off\n" TOPIC_T,
	    FILE_NAME ":2: http: ';' begins no comment here, and no value (only ' ;' begins a comment)\n");
	/* A key whose line was refused for its comment counts as given. */
	expect_errors("[topics]\nt = 1 # one\n[topic t]\ngroup = 3\n[broker]\nworkers = 4 # four\n",
	    FILE_NAME ":2: t: '#' begins no comment behind a value (only ' ;' does)\n"
	    FILE_NAME ":6: workers: '#' begins no comment behind a value (only ' ;' does)\n");
	read_config("[broker]\ndata_dir = /a;b#c\t; comment ; and more # here\n" TOPIC_T, &s);
	ck_assert_str_eq(s.data_dir, "/a;b#c");
	settings_free(&s);
}
END_TEST

START_TEST(sections_empty_or_repeated)
{
	expect_errors("[log]\n[broker]\n; nothing\n\n" TOPIC_T "[topic t]\n",
	    FILE_NAME ":1: section [log] is empty (remove it)\n"
	    FILE_NAME ":2: section [broker] is empty (remove it)\n" FILE_NAME ":7: section [topic t] is empty (remove "
	    "it)\n");
	expect_errors("[topics]\n", FILE_NAME ":1: section [topics] is empty (add a line 'NAME = partitions')\n");
	expect_errors("[log]\nflush_records = 5\n" TOPIC_T "[log]\nflush_interval = 5\n[topics]\nu = 2\n",
	    FILE_NAME ":5: section [log] is repeated (the first is in line 1; make them one)\n"
	    FILE_NAME ":6: flush_interval: '5' has no unit (allowed: off, or a time from 1ms to 1d in us ms s min h "
	    "d)\n"
	    FILE_NAME ":7: section [topics] is repeated (the first is in line 3; make them one)\n");
	expect_errors(TOPIC_T "[topic t]\nflush_records = 5\n[topic t]\nflush_records = 6\n",
	    FILE_NAME ":5: section [topic t] is repeated (the first is in line 3; make them one)\n");
	expect_errors("[topics]\nt = 1\nu = 1\nt = 1\nt = 2\n",
	    FILE_NAME ":4: topic 't' is repeated (the first is in line 2; remove one)\n"
	    FILE_NAME ":5: topic 't' is repeated (the first is in line 2; remove one)\n");
}
END_TEST

START_TEST(line_ends)
{
	struct settings s;

	read_config("\xef\xbb\xbf[broker]\r\nlog_level = error\r\n\r\n[topics] ; x\r\nt = 2\r\nu = 3", &s);
	ck_assert_int_eq(s.log_level, LOG_ERROR);
	ck_assert_int_eq(s.topic_count, 2);
	ck_assert_int_eq(s.topics[1].partition_count, 3);
	settings_free(&s);
	read_config("[topics]\nt = 4\r", &s);
	ck_assert_int_eq(s.topics[0].partition_count, 4);
	settings_free(&s);
	expect_errors("[topics]\nt = 1\nu = x",
	    FILE_NAME ":3: u: 'x' is not a number (allowed: a number from 1 to 99999)\n");
}
END_TEST

START_TEST(topics_missing)
{
	static const char expected[] = FILE_NAME ": no topics (add a section [topics] with a line 'NAME = "
	    "partitions')\n";

	expect_errors("", expected);
	expect_errors("; nothing\n\n", expected);
	expect_errors("[broker]\nworkers = 1\n[topic t]\ngroup = 0\n", expected);
	expect_errors("workers = 1\n",
	    FILE_NAME ":1: key 'workers' stands before the first section (write [broker] above it)\n"
	    FILE_NAME ": no topics (add a section [topics] with a line 'NAME = partitions')\n");
}
END_TEST

START_TEST(topic_without_partitions)
{
	static const char *const bad[] = { "0", "-1", "100000", "4294967297", "x", "1 2", "" };

	expect_taken("[topics]\nt = 99999\n");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char *config = format_text("[topics]\nt = %s\n[topic t]\nflush_records = 1\n", bad[i]);

		expect_error_with(config, 2, "(allowed: a number from 1 to 99999)");
		free(config);
	}
	expect_errors("[topics]\norders = 1\n[topic ordres]\nflush_records = 1\n[topic foo]\nflush_records = 1\n",
	    FILE_NAME ":3: [topic ordres]: no such topic in [topics] (did you mean 'orders'?)\n"
	    FILE_NAME ":5: [topic foo]: no such topic in [topics] (add 'foo = partitions' there)\n");
	expect_errors(TOPIC_T "[topic a b]\ngroup = 0\n[topic t ]\ngroup = 0\n",
	    FILE_NAME ":3: [topic a b]: 'a b' is not a topic's name (write [topic NAME])\n"
	    FILE_NAME ":5: [topic t ]: 't ' is not a topic's name (write [topic NAME])\n");
}
END_TEST

static void
expect_unreadable(const char *path, const char *why)
{
	char *expected = format_text("%s: cannot be read: %s\n", path, why), *errors;
	struct settings settings;

	errors = read_there(path, &settings);
	ck_assert_str_eq(errors, expected);
	free(errors);
	free(expected);
}

START_TEST(unreadable_files)
{
	uid_t user = geteuid();

	write_bytes("secret.ini", TOPIC_T, strlen(TOPIC_T));
	ck_assert_int_eq(chmod("secret.ini", 0), 0);
	if (user == 0)
		ck_assert_int_eq(seteuid(65534), 0);
	expect_unreadable("secret.ini", "Permission denied");
	ck_assert_int_eq(seteuid(user), 0);
	expect_unreadable("missing.ini", "No such file or directory");
	expect_unreadable(".", "Is a directory");
	expect_unreadable("/dev/zero", "Not a file");
	expect_unreadable("/dev/null", "Not a file");
}
END_TEST

/* A pipe, as a shell's <(...) makes it, is read like a file. */
START_TEST(pipe_is_read)
{
	int fds[2];
	char path[64], *errors;
	struct settings s;

	ck_assert_int_eq(pipe(fds), 0);
	ck_assert_int_eq(write(fds[1], TOPIC_T, strlen(TOPIC_T)), (ssize_t)strlen(TOPIC_T));
	close(fds[1]);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	errors = read_there(path, &s);
	ck_assert_str_eq(errors, "");
	ck_assert_int_eq(s.topic_count, 1);
	settings_free(&s);
	free(errors);
	close(fds[0]);
}
END_TEST

/*
 * Reports of others
 */

START_TEST(bug_I1_unknown_key)
{
	expect_errors("[topics]\norders = 3\n\n[log]\nrentention_bytes = 4GiB\n",
	    FILE_NAME ":5: unknown key 'rentention_bytes' in [log] (did you mean 'retention_bytes'?)\n");
	expect_errors("[broker]\nLISTEN = a:1\nlog_levl = info\nfrobnicate = 1\n" TOPIC_T "[topic t]\ngruop = 0\n",
	    FILE_NAME ":2: unknown key 'LISTEN' in [broker] (did you mean 'listen'?)\n"
	    FILE_NAME ":3: unknown key 'log_levl' in [broker] (did you mean 'log_level'?)\n"
	    FILE_NAME ":4: unknown key 'frobnicate' in [broker] (broker.ini(5) tells all of them)\n"
	    FILE_NAME ":8: unknown key 'gruop' in [topic t] (did you mean 'group'?)\n");
}
END_TEST

START_TEST(bug_I1_unknown_section)
{
	expect_errors("[brokers]\nworkers = 1\n" TOPIC_T "[Topics]\nu = 1\n",
	    FILE_NAME ":1: unknown section [brokers] (did you mean [broker]?)\n"
	    FILE_NAME ":5: unknown section [Topics] (did you mean [topics]?)\n");
}
END_TEST

START_TEST(bug_I1_wrong_type_and_empty_value)
{
	expect_errors("[broker]\nworkers = foobar\nmax_connections =\nlog_level = verbose\n" TOPIC_T,
	    FILE_NAME ":2: workers: 'foobar' is not a number (allowed: auto, or a number from 1 to 1024)\n"
	    FILE_NAME ":3: max_connections: no value (allowed: a number from 1 to 1000000)\n"
	    FILE_NAME ":4: log_level: 'verbose' is not known (allowed: error|warning|info|debug)\n");
}
END_TEST

/* Every error in one run, in the order of lines although some are found only at the end. */
START_TEST(bug_I2_all_errors_in_one_run)
{
	expect_errors("[topic nobody]\ngroup = 9\n[log]\nretention_age = 7\n[broker]\nbuffer_bytes = 4KiB\nhttp = x\n"
	    "[topics]\na = 1\n../b = 2\na = 3\n[topic a]\n",
	    FILE_NAME ":1: [topic nobody]: no such topic in [topics] (add 'nobody = partitions' there)\n"
	    FILE_NAME ":4: retention_age: '7' has no unit (allowed: off, or a time from 1s to 36500d in us ms s min h d)\n"
	    FILE_NAME ":6: buffer_bytes: 4KiB is less than four frames of max_frame_bytes, 8MiB, the default "
	    "(allowed: from 32MiB)\n"
	    FILE_NAME ":7: http: 'x' names no port (allowed: off, or one host:port or [v6]:port)\n"
	    FILE_NAME ":10: '../b' is not a topic's name (1 to 249 characters out of A-Z a-z 0-9 . _ -, and neither "
	    "'.' nor '..')\n"
	    FILE_NAME ":11: topic 'a' is repeated (the first is in line 9; remove one)\n"
	    FILE_NAME ":12: section [topic a] is empty (remove it)\n");
}
END_TEST

static int
count_entries(const char *path)
{
	DIR *dir = opendir(path);
	int count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

/* Checking and printing make no data directory, write nothing into one that is there, and leave no descriptor. */
START_TEST(bug_I2_check_only_touches_nothing)
{
	struct settings s;
	struct stat before, after;
	char *text;
	int descriptors;

	ck_assert_int_eq(mkdir("touched", 0750), 0);
	ck_assert_int_eq(chdir("touched"), 0);
	write_bytes(FILE_NAME, "[broker]\ndata_dir = data\n" TOPIC_T, strlen("[broker]\ndata_dir = data\n" TOPIC_T));
	descriptors = count_entries("/proc/self/fd");
	for (int round = 0; round < 2; round++) {
		int entries = count_entries(".");

		ck_assert_int_eq(stat(".", &before), 0);
		text = read_there(FILE_NAME, &s);
		ck_assert_str_eq(text, "");
		free(text);
		ck_assert_int_eq(settings_check_data(&s, FILE_NAME, stderr, stderr), 0);
		settings_free(&s);
		free(print_there(FILE_NAME));
		ck_assert_int_eq(stat(".", &after), 0);
		ck_assert_int_eq(count_entries("."), entries);
		ck_assert(before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
		    before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
		if (round == 1)
			ck_assert_int_eq(count_entries("data"), 2);
		else
			ck_assert_int_eq(mkdir("data", 0750), 0);
	}
	ck_assert_int_eq(count_entries("/proc/self/fd"), descriptors);
}
END_TEST

START_TEST(bug_I5_topic_names)
{
	static const char *const bad[] = { "../../etc/x", ".", "..", "a/b", "/", "a b", "a,b", "caf\xc3\xa9",
	    "\xff\xfe", "a%2f",
	    "~", "a\"b", "a'b", "$x", "a;b" };
	char *config;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		config = format_text("[topics]\n%s = 1\n", bad[i]);
		expect_error_with(config, 2, "is not a topic's name");
		free(config);
	}
	expect_taken("[topics]\n... = 1\n.a = 1\n-rf = 1\n_ = 1\n");
}
END_TEST

/*
 * -T
 */

/* The text without its comments. */
static char *
without_comments(const char *text)
{
	char *copy = strdup(text), *to = copy;

	ck_assert_ptr_nonnull(copy);
	for (const char *from = text; *from != '\0'; ) {
		if (from[0] == ' ' && (from[strspn(from, " ")] == ';'))
			from += strcspn(from, "\n");
		else
			*to++ = *from++;
	}
	*to = '\0';
	return copy;
}

static void
expect_same_settings(const struct settings *a, const struct settings *b)
{
	ck_assert_int_eq(a->listen_count, b->listen_count);
	for (int i = 0; i < a->listen_count; i++)
		ck_assert_str_eq(a->listen[i].text, b->listen[i].text);
	ck_assert_pstr_eq(a->http.text, b->http.text);
	ck_assert_pstr_eq(a->control, b->control);
	ck_assert_str_eq(a->data_dir, b->data_dir);
	ck_assert_int_eq(a->workers, b->workers);
	ck_assert_int_eq(a->workers_asked, b->workers_asked);
	ck_assert_mem_eq(&a->max_connections, &b->max_connections,
	    offsetof(struct settings, topics) - offsetof(struct settings, max_connections));
	ck_assert_int_eq(a->topic_count, b->topic_count);
	for (int i = 0; i < a->topic_count; i++) {
		ck_assert_str_eq(a->topics[i].name, b->topics[i].name);
		ck_assert_int_eq(a->topics[i].partition_count, b->topics[i].partition_count);
		ck_assert_int_eq(a->topics[i].group, b->topics[i].group);
		ck_assert_mem_eq(&a->topics[i].log, &b->topics[i].log, sizeof(a->topics[i].log));
	}
}

static void
expect_reads_back(const char *config)
{
	struct settings first, second;
	char *printed, *again, *errors, *bare, *bare_again;

	read_config(config, &first);
	printed = print_there(FILE_NAME);
	write_bytes("printed.ini", printed, strlen(printed));
	errors = read_there("printed.ini", &second);
	ck_assert_str_eq(errors, "");
	expect_same_settings(&first, &second);
	again = print_there("printed.ini");
	bare = without_comments(printed);
	bare_again = without_comments(again);
	ck_assert_str_eq(bare, bare_again);
	settings_free(&first);
	settings_free(&second);
	free(printed);
	free(again);
	free(errors);
	free(bare);
	free(bare_again);
}

START_TEST(print_reads_back)
{
	char *name = repeat('n', 249), *dir = repeat('d', 190), *config;

	expect_reads_back(TOPIC_T);
	expect_reads_back("[broker]\nlisten = a:1,\t[::1]:0  unix:/x;y\nhttp = off\ncontrol = off\ndata_dir = /a  "
	    "b;c#d\nworkers = 5\n"
	    "log_level = error\n[log]\nflush_interval = off\nflush_records = 7\nrecord_format = plain\n[topics]\nb = "
	    "3\na = 2\n"
	    "c = 1\n[topic c]\nflush_records = off\n[topic a]\ngroup = 4\nsegment_bytes = 1025B\n");
	config = format_text("[broker]\ncontrol = off\ndata_dir = %s\n[topics]\n%s = 7\n[topic %s]\ngroup = 0\n",
	    dir, name, name);
	expect_reads_back(config);
	free(config);
	free(name);
	free(dir);
}
END_TEST

START_TEST(print_tells_origins)
{
	char *text, *section;
	static const char config[] = "[broker]\nworkers = 3\n[log]\nflush_records = 7\n[topics]\nt = 1\n[topic "
	    "t]\nsegment_bytes = 2KiB\n";

	write_bytes(FILE_NAME, config, strlen(config));
	text = print_there(FILE_NAME);
	ck_assert_ptr_nonnull(strstr(text,
	    "\nworkers = 3                              ; " FILE_NAME ":2, 1 started: there are no more partitions\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nlog_level = info                         ; default\n"));
	ck_assert_ptr_nonnull(strstr(text, "\n[topics]\nt = 1 ; " FILE_NAME ":6\n"));
	section = strstr(text, "\n[topic t]\n");
	ck_assert_ptr_nonnull(section);
	ck_assert_ptr_nonnull(strstr(section, "\nflush_records = 7                        ; " FILE_NAME ":4\n"));
	ck_assert_ptr_nonnull(strstr(section, "\nsegment_bytes = 2KiB                     ; " FILE_NAME ":8\n"));
	ck_assert_ptr_nonnull(strstr(section, "\nflush_interval = 1s                      ; default\n"));
	free(text);
}
END_TEST

START_TEST(print_of_wrong_file_tells_errors)
{
	char *out = NULL, *text = NULL;
	size_t out_length = 0, length = 0;
	FILE *to = open_memstream(&out, &out_length), *errors = open_memstream(&text, &length);

	write_bytes(FILE_NAME, "[topics]\nt = 0\n", strlen("[topics]\nt = 0\n"));
	ck_assert_int_eq(settings_print(FILE_NAME, to, errors), -1);
	fclose(to);
	fclose(errors);
	ck_assert_str_eq(out, "");
	ck_assert_str_eq(text, FILE_NAME ":2: t: '0' is too small (allowed: a number from 1 to 99999)\n");
	free(out);
	free(text);
}
END_TEST

/*
 * The data directory
 */

static void
make_partition(const char *name, const char *file)
{
	char *path = format_text("data/%s", name);

	ck_assert(mkdir(path, 0750) == 0 || errno == EEXIST);
	free(path);
	path = format_text("data/%s/%s", name, file);
	write_bytes(path, "", 0);
	free(path);
}

static void
expect_data(const char *topics, const char *expected_errors, const char *expected_warnings)
{
	char *config = format_text("[broker]\ndata_dir = data\n[topics]\n%s", topics), *errors = NULL, *warnings = NULL;
	size_t lengths[2];
	FILE *to_errors = open_memstream(&errors, &lengths[0]), *to_warnings = open_memstream(&warnings, &lengths[1]);
	struct settings s;
	int result;

	read_config(config, &s);
	result = settings_check_data(&s, FILE_NAME, to_errors, to_warnings);
	fclose(to_errors);
	fclose(to_warnings);
	ck_assert_str_eq(errors, expected_errors);
	ck_assert_str_eq(warnings, expected_warnings);
	ck_assert_int_eq(result, expected_errors[0] == '\0' ? 0 : -1);
	settings_free(&s);
	free(config);
	free(errors);
	free(warnings);
}

#define SEGMENT "00000000000000000000.log"

START_TEST(data_directory)
{
	ck_assert_int_eq(mkdir("on-disk", 0755), 0);
	ck_assert_int_eq(chdir("on-disk"), 0);
	expect_data("a = 1\n", "", "");
	ck_assert_int_eq(mkdir("data", 0755), 0);
	expect_data("a = 1\n", "", "");
	make_partition("a-0", SEGMENT);
	make_partition("a-1", SEGMENT);
	make_partition("a-11", "00000000000000004711.log");
	make_partition("a-9", SEGMENT);
	/* None of these is a partition with a segment in it. */
	make_partition("a-20", "0.log");
	make_partition("a-21", "00000000000000000000.log.new");
	make_partition("a-22", "00000000000000000000.index");
	make_partition("a-023", SEGMENT);
	make_partition("a-x", SEGMENT);
	make_partition("a", SEGMENT);
	make_partition("b c-0", SEGMENT);
	make_partition("a-99999", SEGMENT);
	make_partition("a-4294967296", SEGMENT);
	write_bytes("data/a-24", "", 0);
	expect_data("a = 12\n", "", "");
	expect_data("b = 1\na = 9\n",
	    FILE_NAME ":5: a: fewer partitions than on disk, 9 are configured and data/a-11 is there "
	    "(set it to 12 or more, or move the directories from a-9 on away)\n", "");
	make_partition("old-0", SEGMENT);
	make_partition("a-1-0", SEGMENT);
	make_partition("old-1", SEGMENT);
	expect_data("a = 11\n",
	    FILE_NAME ":4: a: fewer partitions than on disk, 11 are configured and data/a-11 is there "
	    "(set it to 12 or more, or move the directories from a-11 on away)\n",
	    "topic 'a-1' is on disk (1 partition, the last in data/a-1-0) and not in [topics] of " FILE_NAME
	    ": left alone (add it there to serve it)\n"
	    "topic 'old' is on disk (2 partitions, the last in data/old-1) and not in [topics] of " FILE_NAME
	    ": left alone (add it there to serve it)\n");
}
END_TEST

/* More than one topic may have shrunk: each is told, and in the order of lines. */
START_TEST(data_directory_errors_in_order)
{
	ck_assert_int_eq(mkdir("in-order", 0755), 0);
	ck_assert_int_eq(chdir("in-order"), 0);
	ck_assert_int_eq(mkdir("data", 0755), 0);
	make_partition("a-5", SEGMENT);
	make_partition("z-1", SEGMENT);
	expect_data("z = 1\na = 5\n",
	    FILE_NAME ":4: z: fewer partitions than on disk, 1 are configured and data/z-1 is there "
	    "(set it to 2 or more, or move the directories from z-1 on away)\n"
	    FILE_NAME ":5: a: fewer partitions than on disk, 5 are configured and data/a-5 is there "
	    "(set it to 6 or more, or move the directories from a-5 on away)\n", "");
}
END_TEST

START_TEST(data_directory_unreadable)
{
	uid_t user = geteuid();

	ck_assert_int_eq(mkdir("closed", 0755), 0);
	ck_assert_int_eq(chdir("closed"), 0);
	write_bytes("data", "", 0);
	expect_data("a = 1\n", FILE_NAME ": data_dir: 'data' cannot be read: Not a directory\n", "");
	ck_assert_int_eq(unlink("data"), 0);
	ck_assert_int_eq(mkdir("data", 0755), 0);
	make_partition("a-3", SEGMENT);
	ck_assert_int_eq(chmod("data/a-3", 0), 0);
	ck_assert_int_eq(chmod(".", 0777), 0);
	if (user == 0)
		ck_assert_int_eq(seteuid(65534), 0);
	expect_data("a = 1\n",
	    FILE_NAME ":4: a: fewer partitions than on disk, 1 are configured and data/a-3 cannot be read: "
	    "Permission denied (set it to 4 or more, or move the directories from a-1 on away)\n", "");
	ck_assert_int_eq(seteuid(user), 0);
	ck_assert_int_eq(chmod("data/a-3", 0755), 0);
}
END_TEST

/*
 * Mutated configurations: whatever the bytes, there is an answer. The seed is printed; a larger
 * LOGBROKER_TEST_SCALE makes more rounds.
 */

static uint64_t
next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* A few bytes are changed, doubled, taken away, or pieces of the text put elsewhere. */
static size_t
mutate(char *text, size_t length, size_t room, uint64_t *state)
{
	static const char spice[] = "\n\r\t =:;#[],\"'\\%-.0123456789\0\x7f\xff\xef\xbb\xbf";

	for (uint64_t changes = 1 + next_random(state) % 8; changes > 0 && length > 1; changes--) {
		size_t at = next_random(state) % length, from = next_random(state) % length;
		size_t many = next_random(state) % 40;

		switch (next_random(state) % 5) {
		case 0:
			text[at] = spice[next_random(state) % sizeof(spice)];
			break;
		case 1:
			text[at] = (char)next_random(state);
			break;
		case 2:
			memmove(&text[at], &text[at + 1], length - at - 1);
			length--;
			break;
		case 3:
			if (at + many <= length && from + many <= length)
				memmove(&text[at], &text[from], many);
			break;
		default:
			if (length + many <= room && from + many <= length) {
				memmove(&text[at + many], &text[at], length - at);
				memmove(&text[at], &text[from], many);
				length += many;
			}
			break;
		}
	}
	return length;
}

/* What is taken must read back from -T; what is refused names the file in every line. */
static void
expect_an_answer(const char *text, size_t length)
{
	struct settings settings, again;
	char *errors, *printed;

	write_bytes(FILE_NAME, text, length);
	errors = read_there(FILE_NAME, &settings);
	for (char *line = errors; *line != '\0'; line = strchr(line, '\n') + 1)
		ck_assert(strncmp(line, FILE_NAME ":", strlen(FILE_NAME ":")) == 0 && strchr(line, '\n') != NULL);
	if (errors[0] == '\0') {
		printed = print_there(FILE_NAME);
		write_bytes("printed.ini", printed, strlen(printed));
		free(printed);
		printed = read_there("printed.ini", &again);
		ck_assert_str_eq(printed, "");
		expect_same_settings(&settings, &again);
		settings_free(&settings);
		settings_free(&again);
		free(printed);
	}
	free(errors);
}

START_TEST(random_bytes)
{
	const char *scale = getenv("LOGBROKER_TEST_SCALE"), *given = getenv("LOGBROKER_TEST_SEED");
	long rounds = 2000 * (scale != NULL && strtol(scale, NULL, 10) > 0 ? strtol(scale, NULL, 10) : 1) / unit_sample();
	uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 20260131, state = seed * 2 + 1;
	char text[4096];

	printf("random_bytes: seed %llu, %ld rounds\n", (unsigned long long)seed, rounds);
	fflush(stdout);
	for (long i = 0; i < rounds; i++) {
		size_t length = strlen(everything) - (i % 2 == 0 ? strlen("[topics ]\n") : 0);

		memcpy(text, everything, length);
		length = mutate(text, length, sizeof(text), &state);
		expect_an_answer(text, length);
	}
}
END_TEST

/* A line that comes too often tells how many were held back, and only then. */
START_TEST(held_back_lines_are_told)
{
	struct log_limit limit = { 0 };
	char more[LOG_MORE_BYTES];

	ck_assert(log_limit_pass(&limit, INT64_C(3600000000000), more));
	ck_assert_str_eq(more, "");
	ck_assert(!log_limit_pass(&limit, INT64_C(3600000000000), more));
	ck_assert(!log_limit_pass(&limit, INT64_C(3600000000000), more));
	limit.next_ns = 0;
	ck_assert(log_limit_pass(&limit, INT64_C(3600000000000), more));
	ck_assert_str_eq(more, " (2 more like it since the last line)");
	limit.next_ns = 0;
	ck_assert(log_limit_pass(&limit, 0, more));
	ck_assert_str_eq(more, "");
}
END_TEST

static Suite *
settings_suite(void)
{
	Suite *suite = suite_create("settings");
	TCase *keys = tcase_create("keys"), *values = tcase_create("values"), *lines = tcase_create("lines");
	TCase *reports = tcase_create("reports"), *print = tcase_create("print"), *data = tcase_create("data");
	TCase *random = tcase_create("random");

	tcase_add_loop_test(keys, key_boundaries, 0, ROW_COUNT);
	tcase_add_loop_test(keys, key_mistyped, 0, ROW_COUNT);
	tcase_add_loop_test(keys, key_overflow, 0, ROW_COUNT);
	tcase_add_test(keys, milliseconds_are_whole);
	tcase_add_test(keys, minutes_have_three_letters);
	tcase_add_loop_test(keys, key_empty, 0, ROW_COUNT);
	tcase_add_loop_test(keys, key_repeated, 0, ROW_COUNT);
	tcase_add_loop_test(keys, key_in_wrong_section, 0, ROW_COUNT);
	tcase_add_test(keys, table_is_whole);
	tcase_add_test(keys, manual_has_the_same_keys);
	tcase_add_test(keys, manual_tells_what_a_change_takes);
	tcase_add_test(keys, sample_is_taken);
	tcase_add_test(keys, sample_comments_are_right);

	tcase_add_test(values, defaults);
	tcase_add_test(values, every_value_arrives);
	tcase_add_test(values, switched_off);
	tcase_add_test(values, workers_and_groups);
	tcase_add_test(values, buffer_holds_four_frames);
	tcase_add_test(values, metadata_fits_an_answer);
	tcase_add_test(values, many_topics);
	tcase_add_test(values, directories_never_collide);
	tcase_add_test(values, listen_addresses);
	tcase_add_test(values, http_address);
	tcase_add_test(values, socket_paths_fit);
	tcase_add_test(values, default_control_fits);

	tcase_add_test(lines, long_lines);
	tcase_add_test(lines, long_topic_names);
	tcase_add_test(lines, nul_bytes);
	tcase_add_test(lines, control_characters);
	tcase_add_test(lines, indentation);
	tcase_add_test(lines, text_behind_section);
	tcase_add_test(lines, broken_sections);
	tcase_add_test(lines, lines_without_equals);
	tcase_add_test(lines, comments_behind_values);
	tcase_add_test(lines, sections_empty_or_repeated);
	tcase_add_test(lines, line_ends);
	tcase_add_test(lines, topics_missing);
	tcase_add_test(lines, topic_without_partitions);
	tcase_add_test(lines, unreadable_files);
	tcase_add_test(lines, pipe_is_read);

	tcase_add_test(reports, bug_I1_unknown_key);
	tcase_add_test(reports, bug_I1_unknown_section);
	tcase_add_test(reports, bug_I1_wrong_type_and_empty_value);
	tcase_add_test(reports, bug_I2_all_errors_in_one_run);
	tcase_add_test(reports, bug_I2_check_only_touches_nothing);
	tcase_add_test(reports, bug_I5_topic_names);

	tcase_add_test(print, print_reads_back);
	tcase_add_test(print, print_tells_origins);
	tcase_add_test(print, print_of_wrong_file_tells_errors);

	tcase_add_test(data, data_directory);
	tcase_add_test(data, data_directory_errors_in_order);
	tcase_add_test(data, data_directory_unreadable);

	tcase_add_test(random, random_bytes);
	tcase_add_test(random, held_back_lines_are_told);

	for (size_t i = 0; i < 7; i++) {
		TCase *cases[] = { keys, values, lines, reports, print, data, random };

		tcase_set_timeout(cases[i], 300);
		suite_add_tcase(suite, cases[i]);
	}
	return suite;
}

/* Goes to a directory of its own, which the test's user may read even after dropping root. */
static int
enter_directory(char *directory)
{
	const char *source = getenv("srcdir");

	if (realpath(source != NULL ? source : ".", source_dir) == NULL || mkdtemp(directory) == NULL)
		return -1;
	return chmod(directory, 0777) < 0 || chdir(directory) < 0 ? -1 : 0;
}

int
main(void)
{
	char directory[] = "/tmp/test_settings.XXXXXX", command[64];
	int status;

	if (enter_directory(directory) < 0) {
		perror(directory);
		return EXIT_FAILURE;
	}
	status = unit_run(settings_suite());
	snprintf(command, sizeof(command), "rm -rf %s", directory);
	if (chdir("/") < 0 || system(command) != 0)
		fprintf(stderr, "%s is left\n", directory);
	return status;
}
