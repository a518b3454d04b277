/*
 * The manual, against what it describes: dialogue, tables and examples are read out of the pages and tried on a really
 * started broker. (Keys are compared by test_settings, options of the tool by test_tool, the library's page by library.sh.)
 */
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
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

/* What stands under METRICS; the caller frees it. */
static char *
read_metrics_section(void)
{
	char *page = read_page("logsupervisor.8"), *start = strstr(page, "\n.Sh METRICS"), *end, *section;

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
	char *section = read_metrics_section(), *text;

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
	suite_add_tcase(s, programs);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
