/*
 * The manual, against what it describes: dialogue, tables and examples are read out of the pages and tried on a really
 * started broker. (Keys are compared by test_settings, options of the tool by test_tool, the library's page by library.sh.)
 */
#include <check.h>
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "runtool.h"
#include "wire.h"

static struct broker broker;

/* A page of the manual, terminated; the caller frees it. */
static char *
read_page(const char *name)
{
	char relative[64], path[BROKER_PATH_BYTES];
	size_t length;

	snprintf(relative, sizeof relative, "../man/%s", name);
	broker_source_path(relative, path, sizeof path);
	return procs_read_file(path, &length);
}

/* ---- logbroker-protocol(7): the dialogue ------------------------------------------------------------------------- */

struct exchange {
	struct wire_bytes request, answer;
};

enum { EXCHANGES_MAX = 32 };

static void
put_hex_with_blanks(struct wire_bytes *to, const char *line)
{
	for (; *line != '\0'; line += *line != '\0') {
		line += strspn(line, " ");
		ck_assert_msg(*line == '\0' || isxdigit((unsigned char)*line), "this is no hex: %s", line);
		line += 2 * wire_put_hex(to, line);
	}
}

/* "C: " begins a request, "S: " its answer, "   " goes on. */
static int
read_dialogue(struct exchange *exchanges)
{
	char *page = read_page("logbroker-protocol.7"), *rest = strstr(page, "\n.Sh EXAMPLES"), *line;
	struct wire_bytes *to = NULL;
	int count = 0;

	ck_assert_ptr_nonnull(rest);
	while ((line = strsep(&rest, "\n")) != NULL && count < EXCHANGES_MAX) {
		if (strncmp(line, "C: ", 3) == 0)
			to = &exchanges[count++].request;
		else if (strncmp(line, "S: ", 3) == 0 && count > 0)
			to = &exchanges[count - 1].answer;
		else if (strncmp(line, "   ", 3) != 0)
			to = NULL;
		if (to != NULL)
			put_hex_with_blanks(to, line + 3);
	}
	free(page);
	return count;
}

static void
free_dialogue(struct exchange *exchanges, int count)
{
	for (int i = 0; i < count; i++) {
		wire_bytes_free(&exchanges[i].request);
		wire_bytes_free(&exchanges[i].answer);
	}
}

static void
expect_answer(int fd, const struct exchange *exchange, int number)
{
	size_t length = exchange->answer.length, have = 0;
	uint8_t *got = malloc(length);

	ck_assert_uint_ge(length, 10);
	while (have < length) {
		long more = wire_receive(fd, got + have, length - have, WIRE_DEADLINE_MS);

		ck_assert_msg(more > 0, "exchange %d: %ld after %zu of %zu bytes", number, more, have, length);
		have += (size_t)more;
	}
	ck_assert_msg(memcmp(got, exchange->answer.data, length) == 0, "exchange %d is not what the broker says", number);
	free(got);
}

/* Two hex columns behind a name. */
static bool
read_vector(const char *line, struct exchange *vector)
{
	const char *request = strchr(line, '\t'), *answer = request != NULL ? strchr(request + 1, '\t') : NULL;

	if (*line == '#' || answer == NULL)
		return false;
	wire_put_hex(&vector->request, request + 1);
	wire_put_hex(&vector->answer, answer + 1);
	return true;
}

static bool
same_bytes(const struct wire_bytes *a, const struct wire_bytes *b)
{
	return a->length == b->length && memcmp(a->data, b->data, a->length) == 0;
}

START_TEST(A18_protocol_page_has_the_golden_dialogue)
{
	struct exchange told[EXCHANGES_MAX] = { 0 }, vector;
	char path[BROKER_PATH_BYTES], *text, *rest, *line;
	int count = read_dialogue(told), seen = 0;
	size_t length;

	broker_source_path("vectors/frames.tsv", path, sizeof path);
	text = rest = procs_read_file(path, &length);
	while ((line = strsep(&rest, "\n")) != NULL) {
		vector = (struct exchange){ 0 };
		if (!read_vector(line, &vector))
			continue;
		ck_assert_int_lt(seen, count);
		ck_assert_msg(same_bytes(&told[seen].request, &vector.request) && same_bytes(&told[seen].answer, &vector.answer),
		    "not as in the page: %s", line);
		free_dialogue(&vector, 1);
		seen++;
	}
	ck_assert_int_eq(seen, count);
	ck_assert_int_ge(count, 10);
	free_dialogue(told, count);
	free(text);
}
END_TEST

START_TEST(A18_protocol_page_dialogue_with_a_broker)
{
	struct exchange told[EXCHANGES_MAX] = { 0 };
	int count = read_dialogue(told), fd;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n" });
	fd = wire_connect_tcp(broker.port);
	ck_assert_int_ge(fd, 0);
	for (int i = 0; i < count; i++) {
		ck_assert_int_eq(wire_send(fd, told[i].request.data, told[i].request.length), 0);
		expect_answer(fd, &told[i], i + 1);
	}
	free_dialogue(told, count);
	close(fd);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* "key hash p3 p16 p64" of the page against "key hash p1 p2 p3 p4 p16 p64 name" of the vectors. */
static void
expect_golden(const char *vectors, const char *line)
{
	char key[128], start[160];
	unsigned hash, told[3], golden[3];
	const char *at;

	ck_assert_msg(sscanf(line, "%127s %u %u %u %u", key, &hash, &told[0], &told[1], &told[2]) == 5, "%s", line);
	snprintf(start, sizeof start, "\n%s\t%u\t", strcmp(key, "(empty)") == 0 ? "" : key, hash);
	at = strstr(vectors, start);
	ck_assert_msg(at != NULL, "no golden vector is %s", line);
	ck_assert_int_eq(sscanf(at + strlen(start), "%*u %*u %u %*u %u %u", &golden[0], &golden[1], &golden[2]), 3);
	ck_assert_msg(memcmp(told, golden, sizeof told) == 0, "the golden vector has other partitions: %s", line);
}

START_TEST(C06_protocol_page_has_golden_partitions)
{
	char *page = read_page("logbroker-protocol.7"), *rest = strstr(page, "\n(empty) "), path[BROKER_PATH_BYTES];
	char *vectors, *line;
	size_t length;
	int count = 0;

	broker_source_path("vectors/partitioner-fnv1a.tsv", path, sizeof path);
	vectors = procs_read_file(path, &length);
	ck_assert_ptr_nonnull(rest++);
	while ((line = strsep(&rest, "\n")) != NULL && *line != '.') {
		expect_golden(vectors, line);
		count++;
	}
	ck_assert_int_ge(count, 8);
	free(vectors);
	free(page);
}
END_TEST

/* ---- logsupervisor(8): the metrics ------------------------------------------------------------------------------- */

enum { METRICS_MAX = 100, METRIC_BYTES = 160 };

/* Each is "name{labels}", without logbroker_. */
struct metrics {
	char names[METRICS_MAX][METRIC_BYTES];
	int count;
};

/* What stands under that heading; the caller frees it. */
static char *
read_section(const char *heading)
{
	char *page = read_page("logsupervisor.8"), head[64], *start, *end, *section;

	snprintf(head, sizeof head, "\n.Sh %s\n", heading);
	start = strstr(page, head);
	ck_assert_ptr_nonnull(start);
	end = strstr(start + 1, "\n.Sh ");
	ck_assert_ptr_nonnull(end);
	section = strndup(start, (size_t)(end - start));
	free(page);
	return section;
}

static char *
add_metric(struct metrics *metrics)
{
	ck_assert_int_lt(metrics->count, METRICS_MAX);
	return metrics->names[metrics->count++];
}

static void
metrics_of_page(const char *section, struct metrics *metrics)
{
	static const char item[] = "\n.It Ql ";

	for (const char *at = strstr(section, item); at != NULL; at = strstr(at + 1, item)) {
		const char *name = at + strlen(item);

		snprintf(add_metric(metrics), METRIC_BYTES, "%.*s", (int)strcspn(name, "\n"), name);
	}
}

/* The names of a sample's labels, as "{a,b}"; the bound of a bucket is none of them. */
static void
put_labels(char *to, const char *sample)
{
	const char *at = sample + strcspn(sample, "{ "), *end = strchr(at, '}');
	const char *separator = "{";

	while (*at != ' ' && at < end) {
		int length = (int)strcspn(++at, "=");

		if (strncmp(at, "le=", 3) != 0) {
			to += sprintf(to, "%s%.*s", separator, length, at);
			separator = ",";
		}
		at = strchr(at + length + 2, '"') + 1;
	}
	if (*separator == ',')
		strcpy(to, "}");
}

/* "# TYPE logbroker_NAME kind", and its first sample in the next line. */
static void
metrics_of_broker(const char *text, struct metrics *metrics)
{
	static const char head[] = "\n# TYPE logbroker_";

	for (const char *at = strstr(text, head); at != NULL; at = strstr(at + 1, head)) {
		const char *name = at + strlen(head);
		char *to = add_metric(metrics);

		to += snprintf(to, METRIC_BYTES, "%.*s", (int)strcspn(name, " "), name);
		put_labels(to, strchr(name, '\n') + 1);
	}
}

static void
expect_metrics_in(const struct metrics *metrics, const struct metrics *in, const char *where)
{
	for (int i = 0; i < metrics->count; i++) {
		bool found = false;

		for (int j = 0; j < in->count; j++)
			found = found || strcmp(metrics->names[i], in->names[j]) == 0;
		ck_assert_msg(found, "%s is not %s", metrics->names[i], where);
	}
}

/* Each value of these labels is explained: it stands there as .Ql. */
static void
expect_values(const char *text, const char *section)
{
	static const char *const labels[] = { "reason=\"", "cause=\"", "op=\"", "api=\"", "path=\"" };

	for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++)
		for (const char *at = strstr(text, labels[i]); at != NULL; at = strstr(at + 1, labels[i])) {
			const char *value = at + strlen(labels[i]);
			char quoted[64];

			snprintf(quoted, sizeof quoted, "Ql %.*s", (int)strcspn(value, "\""), value);
			ck_assert_msg(strstr(section, quoted) != NULL, "%s of a label %s is not in the manual", quoted + 3, labels[i]);
		}
}

START_TEST(manual_has_the_metrics_of_the_broker)
{
	struct metrics told = { .count = 0 }, shown = { .count = 0 };
	char *section = read_section("METRICS"), *text;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n" });
	text = broker_http_get(&broker, "/metrics", NULL);
	ck_assert_ptr_nonnull(text);
	metrics_of_page(section, &told);
	metrics_of_broker(text, &shown);
	ck_assert_int_ge(shown.count, 30);
	expect_metrics_in(&shown, &told, "in METRICS of logsupervisor(8)");
	expect_metrics_in(&told, &shown, "in /metrics");
	expect_values(text, section);
	free(section);
	free(text);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* ---- logsupervisor(8): promises, and who shows them --------------------------------------------------------------- */

static void
expect_test(const char *program, const char *name)
{
	char file[64], path[BROKER_PATH_BYTES], start[128], *source;

	snprintf(file, sizeof file, "test_%s.c", program);
	broker_source_path(file, path, sizeof path);
	source = procs_read_file(path, NULL);
	snprintf(start, sizeof start, "\nSTART_TEST(%s)\n", name);
	ck_assert_msg(strstr(source, start) != NULL, "%s has no test %s, which logsupervisor(8) names", file, name);
	free(source);
}

/* Each fault has a list of promises, each promise a test or more. */
START_TEST(K_every_promise_names_tests_that_exist)
{
	char *section = read_section("DURABILITY"), *rest = strstr(section, "\n.Ss "), *line, program[40], name[100];
	const char *promise = NULL;
	int promises = 0;

	ck_assert_ptr_nonnull(rest);
	while ((line = strsep(&rest, "\n")) != NULL) {
		if (strncmp(line, ".It ", 4) == 0 || strncmp(line, ".El", 3) == 0) {
			ck_assert_msg(promise == NULL, "no test shows '%s'", promise);
			promise = line[1] == 'I' ? line + 4 : NULL;
			promises += promise != NULL;
		}
		if (sscanf(line, "test_%39[a-z0-9_]: %99s", program, name) != 2)
			continue;
		expect_test(program, name);
		promise = NULL;
	}
	ck_assert_int_ge(promises, 30);
	free(section);
}
END_TEST

/* ---- logsupervisor(8): /status.json ------------------------------------------------------------------------------ */

/* Is it a whole word of the text? */
static bool
has_word(const char *text, const char *word, size_t length)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyz_";

	for (const char *at = text; (at = memmem(at, strlen(at), word, length)) != NULL; at++)
		if ((at == text || strchr(letters, at[-1]) == NULL) && (at[length] == '\0' || strchr(letters, at[length]) == NULL))
			return true;
	return false;
}

/* What stands about it in the page; the caller frees it. */
static char *
read_status_section(void)
{
	char *page = read_page("logsupervisor.8"), *start = strstr(page, "\nThe members of\n"), *end, *section;

	ck_assert_ptr_nonnull(start);
	end = strstr(start, "\n.Ss ");
	ck_assert_ptr_nonnull(end);
	section = strndup(start, (size_t)(end - start));
	free(page);
	return section;
}

/* Every name of a member is told, in the section or, what are labels of metrics, as their values. */
static void
expect_members_told(const char *json, const char *section, const char *metrics)
{
	for (const char *at = json; (at = strstr(at, "\":")) != NULL; at++) {
		const char *name = at;

		while (name[-1] != '"')
			name--;
		ck_assert_msg(has_word(section, name, (size_t)(at - name)) || has_word(metrics, name, (size_t)(at - name)),
		    "%.*s of /status.json is not in logsupervisor(8)", (int)(at - name), name);
	}
}

/* Every quoted word of the section is a member, or one of the values that this broker's have not. */
static void
expect_told_members(const char *section, const char *json)
{
	static const char others[] = "null none open closed failed not opened";
	char *copy = strdup(section), *rest = copy, *line, *word;

	while ((line = strsep(&rest, "\n")) != NULL) {
		char *quoted = strncmp(line, ".Ql ", 4) == 0 ? line + 4 : strncmp(line, ".Pq Ql ", 7) == 0 ? line + 7 : NULL;

		while (quoted != NULL && (word = strsep(&quoted, " ")) != NULL) {
			char name[64];

			snprintf(name, sizeof name, "\"%s\":", word);
			ck_assert_msg(strchr(",.()", *word) != NULL || has_word(others, word, strlen(word)) ||
			    strstr(json, name) != NULL, "%s is not in /status.json", word);
		}
	}
	free(copy);
}

START_TEST(manual_has_the_members_of_the_status)
{
	char *section = read_status_section(), *metrics = read_section("METRICS"), *json;

	broker_start(&broker, &(struct broker_config){ .topics = "t = 1\n", .workers = 1 });
	broker.workers_may_die = true;
	ck_assert_int_eq(kill(broker.workers[0], SIGTERM), 0);	/* so that there is a last restart */
	ck_assert(broker_wait_metric(&broker, "logbroker_worker_restarts_total", "reason=\"requested\"", 1, WIRE_DEADLINE_MS));
	json = broker_http_get(&broker, "/status.json", NULL);
	ck_assert_ptr_nonnull(json);
	expect_members_told(json, section, metrics);
	expect_told_members(section, json);
	free(json);
	free(metrics);
	free(section);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* ---- options of each verb ---------------------------------------------------------------------------------------- */

enum { OPTIONS_BYTES = 1024 };

/* Adds an option to a set, with blanks around, once; those that every verb has are told apart from the synopsis. */
static void
add_option(char *set, const char *option, size_t length)
{
	static const char everywhere[] = " -b --timeout --control -h --version -o --format ";
	char with_blanks[64];

	snprintf(with_blanks, sizeof with_blanks, " %.*s ", (int)length, option);
	if (strstr(everywhere, with_blanks) == NULL && strstr(set, with_blanks) == NULL)
		strncat(set, with_blanks, OPTIONS_BYTES - strlen(set) - 1);
}

static void
options_of_help(const char *command, char *set)
{
	struct run help = { 0 };
	char *rest, *line;

	run_tool(&help, NULL, command, "", 0);
	ck_assert_msg(help.code == 0, "%s: %d", command, help.code);
	rest = help.out;
	while ((line = strsep(&rest, "\n")) != NULL) {
		if (strncmp(line, "  -", 3) == 0)
			add_option(set, line + 2, strcspn(line + 2, " "));
	}
	run_free(&help);
}

/* One ".Nm logbroker" of the synopsis: each .Fl or "Fl" in it. */
static void
options_of_synopsis(const char *form, char *set)
{
	for (const char *at = strstr(form, "Fl "); at != NULL; at = strstr(at + 3, "Fl ")) {
		char option[64];
		int length = snprintf(option, sizeof option, "-%.*s", (int)strcspn(at + 3, " \n"), at + 3);

		add_option(set, option, (size_t)length);
	}
}

static void
expect_subset(const char *set, const char *of, const char *verb, const char *where)
{
	char option[64];
	int length;

	for (; sscanf(set, " %60s%n", option, &length) == 1; set += length) {
		char with_blanks[64 + 2];

		snprintf(with_blanks, sizeof with_blanks, " %s ", option);
		ck_assert_msg(strstr(of, with_blanks) != NULL, "%s %s is not in %s", verb, option, where);
	}
}

static void
compare_verb(const char *verb, const char *form)
{
	char told[OPTIONS_BYTES] = "", known[OPTIONS_BYTES] = "", command[64];

	options_of_synopsis(form, told);
	snprintf(command, sizeof command, "%s -h", verb);
	options_of_help(command, known);
	expect_subset(told, known, verb, "what -h says");
	expect_subset(known, told, verb, "the SYNOPSIS of logbroker(1)");
}

/* The verbs of one form, "consume | replay | follow". Returns how many. */
static int
compare_form(char *form)
{
	char *line = strstr(form, "\n.Cm "), *rest, *word;
	int count = 0;

	if (line == NULL)
		return 0;
	line = rest = strndup(line + 5, strcspn(line + 5, "\n"));
	while ((word = strsep(&rest, " |")) != NULL) {
		if (*word == '\0')
			continue;
		compare_verb(word, form);
		count++;
	}
	free(line);
	return count;
}

/* "  VERB   what it does", as logbroker -h lists those that are built. */
static int
count_verbs(void)
{
	struct run help = { 0 };
	char *rest, *line;
	int count = 0;

	run_tool(&help, NULL, "-h", "", 0);
	rest = help.out;
	while ((line = strsep(&rest, "\n")) != NULL)
		count += strncmp(line, "  ", 2) == 0 && islower((unsigned char)line[2]);
	run_free(&help);
	return count;
}

START_TEST(manual_has_the_options_of_each_verb)
{
	static const char head[] = "\n.Nm logbroker";
	char *page = read_page("logbroker.1"), *form = strstr(page, "\n.Sh SYNOPSIS"), *end = strstr(page, "\n.Sh DESCRIPTION");
	int count = 0;

	ck_assert_ptr_nonnull(form);
	ck_assert_ptr_nonnull(end);
	*end = '\0';
	for (form = strstr(form, head); form != NULL;) {
		char *next = strstr(form + 1, head);

		if (next != NULL)
			*next = '\0';
		count += compare_form(form);
		if (next != NULL)
			*next = '\n';
		form = next;
	}
	ck_assert_int_eq(count, count_verbs());
	free(page);
}
END_TEST

START_TEST(manual_has_the_options_of_the_broker)
{
	char *page = read_page("logsupervisor.8"), *text, option[32], program[BROKER_PATH_BYTES];
	int shown = 0, told = 0;

	broker_build_path("logsupervisor", program, sizeof program);
	ck_assert_int_eq(procs_run((const char *const[]){ program, "-h", NULL }, &text, WIRE_DEADLINE_MS), 0);
	for (const char *at = strstr(text, "\n  -"); at != NULL; at = strstr(at + 1, "\n  -"), shown++) {
		snprintf(option, sizeof option, "\n.It Fl %.*s", (int)strcspn(at + 4, " "), at + 4);
		ck_assert_msg(strstr(page, option) != NULL, "%s is not in logsupervisor(8)", option + 1);
	}
	for (const char *at = strstr(page, "\n.It Fl "); at != NULL; at = strstr(at + 1, "\n.It Fl "))
		told++;
	ck_assert_int_ge(shown, 6);
	ck_assert_int_eq(told, shown);
	free(text);
	free(page);
}
END_TEST

/* ---- examples ---------------------------------------------------------------------------------------------------- */

/* What a page says instead of what there is in a test. */
struct stand_in {
	const char *told, *real;
};

static void
put_text(struct wire_bytes *to, const char *text)
{
	wire_put(to, text, strlen(text));
}

/* A line of the page: without the prompt and the escapes of mdoc, with stand-ins. */
static void
put_line(struct wire_bytes *to, const char *line, const struct stand_in *stand_ins)
{
	const struct stand_in *s;

	line += strncmp(line, "$ ", 2) == 0 ? 2 : 0;
	while (*line != '\0') {
		for (s = stand_ins; s->told != NULL && strncmp(line, s->told, strlen(s->told)) != 0; s++)
			;
		if (s->told != NULL) {
			put_text(to, s->real);
			line += strlen(s->told);
		} else if (strncmp(line, "\\&", 2) == 0) {
			line += 2;
		} else {
			wire_put(to, line++, 1);
		}
	}
	put_text(to, "\n");
}

/* The next literal block behind *at, or false. */
static bool
next_example(const char **at, struct wire_bytes *block, const struct stand_in *stand_ins)
{
	const char *line = strstr(*at, "\n.Bd -literal"), *section = strstr(*at + 1, "\n.Sh ");

	block->length = 0;
	if (line == NULL || (section != NULL && line > section))
		return false;
	for (line = strchr(line + 1, '\n') + 1; strncmp(line, ".Ed", 3) != 0; line = strchr(line, '\n') + 1) {
		char *copy = strndup(line, strcspn(line, "\n"));

		put_line(block, copy, stand_ins);
		free(copy);
	}
	*at = line;
	return true;
}

static char *
path_below(const struct broker *of, const char *name)
{
	char *path;

	ck_assert_int_gt(asprintf(&path, "%s/%s", of->directory, name), 0);
	return path;
}

static void
write_below(const struct broker *of, const char *name, const char *text)
{
	char *path = path_below(of, name);

	procs_write_file(path, text, strlen(text));
	free(path);
}

/* The programs of the build, in a directory to work in, and two that a reader would have. */
static void
put_preamble(struct wire_bytes *script)
{
	char program[BROKER_PATH_BYTES], lines[BROKER_PATH_BYTES * 5];

	broker_build_path("logbroker", program, sizeof program);
	*strrchr(program, '/') = '\0';
	snprintf(lines, sizeof lines, "cd %s\nPATH=%s:$PATH\njq() { grep payload >/dev/null; }\njob() { cat >/dev/null; }\n"
	    "export LOGBROKER_ADDR=unix:%s LOGBROKER_CONTROL=%s\n", broker.directory, program, broker.unix_path, broker.control_path);
	put_text(script, lines);
}

/* Runs `script` by bash, which must succeed. */
static void
begin_script(struct run *run, const struct wire_bytes *script)
{
	char *path = path_below(&broker, "script"), *command;

	procs_write_file(path, script->data, script->length);
	ck_assert_int_gt(asprintf(&command, "-e -o pipefail %s", path), 0);
	run_start_program(run, "/bin/bash", command, -1, -1);
	free(command);
	free(path);
}

static void
end_script(struct run *run, const struct wire_bytes *script)
{
	run_end(run);
	ck_assert_msg(run->code == 0, "exit code %d of:\n%.*s\n%s", run->code, (int)script->length, (const char *)script->data,
	    run->err);
}

static void
run_script(struct wire_bytes *script)
{
	struct run run = { 0 };

	begin_script(&run, script);
	end_script(&run, script);
	run_free(&run);
}

/* What the examples of the tool find: files to send, a directory for positions, something that was cut. */
static void
set_up_files(void)
{
	char *log = path_below(&broker, "access.log"), *cut = path_below(&broker, "data/orders-0/00000000000000004711.cut");
	FILE *file = fopen(log, "w");

	ck_assert_ptr_nonnull(file);
	for (int i = 0; i < 300; i++)
		fprintf(file, "GET /%d\n", i);
	fclose(file);
	write_below(&broker, "cat.jpg", "a cat");
	write_below(&broker, "dog.jpg", "a dog");
	procs_write_file(cut, "\0\0\0\2\x24\x2e\x02\xac" "bc", 10);
	free(cut);
	free(log);
}

/* All examples, in the order of the page. */
START_TEST(manual_examples_of_the_tool_work)
{
	struct stand_in stand_ins[] = { { "/var/lib/logbroker", broker.data_dir }, { "/run/logbroker/broker.sock", broker.unix_path },
		{ "/var/lib/job", broker.directory }, { NULL, NULL } };
	char *page = read_page("logbroker.1");
	const char *at = strstr(page, "\n.Sh EXAMPLES");
	struct wire_bytes block = { 0 }, script = { 0 };
	int count = 0;

	broker_start(&broker, &(struct broker_config){ .topics = "events = 2\norders = 4\ncopy = 1\nimages = 1\n" });
	set_up_files();
	for (; next_example(&at, &block, stand_ins); count++) {
		script.length = 0;
		put_preamble(&script);
		if (memmem(block.data, block.length, " follow ", 8) != NULL)	/* it waits for what comes */
			put_text(&script, "while logbroker produce -p 0 events access.log; do sleep 0.1; done &\ntrap \"kill $!\" EXIT\n");
		wire_put(&script, block.data, block.length);
		run_script(&script);
	}
	ck_assert_int_ge(count, 9);
	wire_bytes_free(&block);
	wire_bytes_free(&script);
	free(page);
	broker.workers_may_die = true;	/* examples may restart them */
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* The broker that an example has started says its pid in `text`; it is stopped, and gone. */
static void
stop_by_ready_line(const char *text)
{
	const char *line = strstr(text, "ready: "), *pid = line != NULL ? strstr(line, " pid=") : NULL;
	pid_t process;

	ck_assert_msg(pid != NULL, "no ready line in: %s", text);
	process = (pid_t)atol(pid + 5);
	ck_assert_int_eq(kill(process, SIGTERM), 0);
	ck_assert(broker_wait_gone(process, BROKER_STOP_MS));
}

/* An example that has "2>> log" ends when the broker is ready; one that has not ends with the broker. */
static void
run_broker_example(const struct wire_bytes *script)
{
	char *path = path_below(&broker, "log"), *text, *shown;
	struct run run = { 0 };
	bool waits = memmem(script->data, script->length, "2>> log", 7) == NULL;
	size_t length;

	begin_script(&run, script);
	if (waits) {
		ck_assert_int_gt(asprintf(&shown, "/proc/self/fd/%d", run.errors), 0);
		while (text = procs_read_file(shown, &length), strstr(text, "ready: ") == NULL) {
			free(text);
			usleep(10000);
		}
		stop_by_ready_line(text);
		end_script(&run, script);
		free(shown);
	} else {
		end_script(&run, script);
		text = procs_read_file(path, &length);
		stop_by_ready_line(text);
	}
	free(text);
	free(path);
	run_free(&run);
}

START_TEST(manual_examples_of_the_broker_work)
{
	static const struct stand_in none[] = { { NULL, NULL } };
	char *page = read_page("logsupervisor.8");
	const char *at = strstr(page, "\n.Sh EXAMPLES");
	struct wire_bytes block = { 0 }, script = { 0 };
	int count = 0;

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 1\n" });
	while (next_example(&at, &block, none)) {
		if (memmem(block.data, block.length, "logsupervisor -f", 16) == NULL)
			continue;	/* of systemd, which is not here */
		script.length = 0;
		put_preamble(&script);
		wire_put(&script, block.data, block.length);
		run_broker_example(&script);
		count++;
	}
	ck_assert_int_ge(count, 2);
	wire_bytes_free(&block);
	wire_bytes_free(&script);
	free(page);
	broker_end(&broker);
}
END_TEST

/* Those that are files are checked, the commands run with the last of them. */
START_TEST(manual_examples_of_the_configuration_work)
{
	static const struct stand_in none[] = { { NULL, NULL } };
	char *page = read_page("broker.ini.5");
	const char *at = strstr(page, "\n.Sh EXAMPLES");
	struct wire_bytes block = { 0 }, script = { 0 };
	int files = 0;

	broker_prepare(&broker, &(struct broker_config){ .topics = "t = 1\n" });
	while (next_example(&at, &block, none)) {
		script.length = 0;
		put_preamble(&script);
		if (block.data[0] == '[') {
			put_text(&script, "cat >broker.ini <<'END'\n");
			wire_put(&script, block.data, block.length);
			put_text(&script, "END\nlogsupervisor -t -f broker.ini\n");
			files++;
		} else {
			wire_put(&script, block.data, block.length);
		}
		run_script(&script);
	}
	ck_assert_int_ge(files, 2);
	wire_bytes_free(&block);
	wire_bytes_free(&script);
	free(page);
	broker_end(&broker);
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("manual");
	TCase *protocol = tcase_create("protocol"), *programs = tcase_create("programs");

	tcase_set_timeout(protocol, 120);
	tcase_add_test(protocol, A18_protocol_page_has_the_golden_dialogue);
	tcase_add_test(protocol, A18_protocol_page_dialogue_with_a_broker);
	tcase_add_test(protocol, C06_protocol_page_has_golden_partitions);
	suite_add_tcase(s, protocol);
	tcase_set_timeout(programs, 120);
	tcase_add_test(programs, manual_has_the_metrics_of_the_broker);
	tcase_add_test(programs, K_every_promise_names_tests_that_exist);
	tcase_add_test(programs, manual_has_the_members_of_the_status);
	tcase_add_test(programs, manual_has_the_options_of_each_verb);
	tcase_add_test(programs, manual_has_the_options_of_the_broker);
	tcase_add_test(programs, manual_examples_of_the_tool_work);
	tcase_add_test(programs, manual_examples_of_the_broker_work);
	tcase_add_test(programs, manual_examples_of_the_configuration_work);
	suite_add_tcase(s, programs);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
