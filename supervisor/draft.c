/*
 * Owns the text of broker.ini: the table of keys, and reading into a draft in which every value keeps its line. Looks
 * at one line at a time; what several values must be to one another is settings.c's.
 */
#include "supervisor/draft.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/codec.h"
#include "common/log.h"
#include "supervisor/settings.h"

static const char *const place_names[] = {
	[IN_BROKER] = "broker", [IN_TOPICS] = "topics", [IN_LOG] = "log", [IN_TOPIC] = "topic NAME",
};

#define KIB INT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)
#define SECOND_MS INT64_C(1000)
#define SECOND_US INT64_C(1000000)
#define DAY_MS (86400 * SECOND_MS)
#define DAY_US (86400 * SECOND_US)
#define BROKER(field) offsetof(struct settings, field)
#define LOG(field) offsetof(struct log_settings, field)

static const struct draft_key keys[KEY_COUNT] = {
	[KEY_LISTEN] = { IN_BROKER, "listen", { VALUE_ADDRESSES, 0, 0, NULL }, "127.0.0.1:9092", BY_HAND, 0,
	    CHANGES_WITH_SERVICE },
	[KEY_DATA_DIR] = { IN_BROKER, "data_dir", { VALUE_PATH, 0, 0, NULL }, "/var/lib/logbroker", BY_HAND, 0,
	    CHANGES_WITH_SERVICE },
	[KEY_WORKERS] = { IN_BROKER, "workers", { VALUE_COUNT, 1, TOPICS_GROUPS_MAX, "auto" }, "auto", BY_HAND, 0,
	    CHANGES_WITH_SERVICE },
	[KEY_CONTROL] = { IN_BROKER, "control", { VALUE_SOCKET_PATH, 0, 0, "off" }, NULL, BY_HAND, 0,
	    CHANGES_WITH_SERVICE },
	[KEY_HTTP] = { IN_BROKER, "http", { VALUE_ADDRESS, 0, 0, "off" }, "127.0.0.1:9093", BY_HAND, 0,
	    CHANGES_WITH_SERVICE },
	[KEY_MAX_CONNECTIONS] = { IN_BROKER, "max_connections", { VALUE_COUNT, 1, 1000000, NULL }, "10000",
	    INTO_INT64, BROKER(max_connections), CHANGES_AT_ONCE },
	[KEY_MAX_FRAME_BYTES] = { IN_BROKER, "max_frame_bytes", { VALUE_SIZE, KIB, GIB, NULL }, "8MiB",
	    INTO_INT64, BROKER(max_frame_bytes), CHANGES_WITH_WORKERS },
	[KEY_BUFFER_BYTES] = { IN_BROKER, "buffer_bytes", { VALUE_SIZE, 4 * KIB, TIB, NULL }, "256MiB",
	    INTO_INT64, BROKER(buffer_bytes), CHANGES_WITH_WORKERS },
	[KEY_MAX_FETCH_WAIT] = { IN_BROKER, "max_fetch_wait", { VALUE_TIME_MS, 1, DAY_MS, NULL }, "60s",
	    INTO_INT64, BROKER(max_fetch_wait_ms), CHANGES_WITH_WORKERS },
	[KEY_REQUEST_TIMEOUT] = { IN_BROKER, "request_timeout", { VALUE_TIME_MS, 1, DAY_MS, NULL }, "30s",
	    INTO_INT64, BROKER(request_timeout_ms), CHANGES_WITH_WORKERS },
	[KEY_IDLE_TIMEOUT] = { IN_BROKER, "idle_timeout", { VALUE_TIME_MS, 1, 365 * DAY_MS, "off" }, "off",
	    INTO_INT64, BROKER(idle_timeout_ms), CHANGES_WITH_WORKERS },
	[KEY_DRAIN_TIMEOUT] = { IN_BROKER, "drain_timeout", { VALUE_TIME_MS, 1, DAY_MS, NULL }, "10s",
	    INTO_INT64, BROKER(drain_timeout_ms), CHANGES_WITH_WORKERS },
	[KEY_LOG_LEVEL] = { IN_BROKER, "log_level", { VALUE_CHOICE, 0, 0, "error|warning|info|debug" }, "info",
	    INTO_INT32, BROKER(log_level), CHANGES_WITH_WORKERS },

	[KEY_WRITE_MODE] = { IN_LOG, "write_mode", { VALUE_CHOICE, 0, 0, "file|mapped" }, "file",
	    INTO_INT32, LOG(write_mode), CHANGES_WITH_WORKERS },
	[KEY_RECORD_FORMAT] = { IN_LOG, "record_format", { VALUE_CHOICE, 0, 0, "plain|crc32c" }, "crc32c",
	    INTO_INT32, LOG(record_format), CHANGES_WITH_SERVICE },
	[KEY_SEGMENT_BYTES] = { IN_LOG, "segment_bytes", { VALUE_SIZE, KIB, TIB, NULL }, "512MiB",
	    INTO_INT64, LOG(segment_bytes), CHANGES_WITH_WORKERS },
	[KEY_SEGMENT_AGE] = { IN_LOG, "segment_age", { VALUE_TIME_MS, SECOND_MS, 36500 * DAY_MS, "off" }, "off",
	    INTO_INT64, LOG(segment_age_ms), CHANGES_WITH_WORKERS },
	[KEY_INDEX_INTERVAL_BYTES] = { IN_LOG, "index_interval_bytes", { VALUE_SIZE, 64, GIB, NULL }, "4KiB",
	    INTO_INT64, LOG(index_interval_bytes), CHANGES_WITH_WORKERS },
	[KEY_FLUSH_INTERVAL] = { IN_LOG, "flush_interval", { VALUE_TIME_US, 1000, DAY_US, "off" }, "1s",
	    INTO_INT64, LOG(flush_interval_us), CHANGES_WITH_WORKERS },
	[KEY_FLUSH_RECORDS] = { IN_LOG, "flush_records", { VALUE_COUNT, 1, INT32_MAX, "off" }, "off",
	    INTO_INT32, LOG(flush_records), CHANGES_WITH_WORKERS },
	[KEY_VISIBILITY] = { IN_LOG, "visibility", { VALUE_CHOICE, 0, 0, "written|durable" }, "written",
	    INTO_INT32, LOG(visibility), CHANGES_WITH_WORKERS },
	[KEY_RETENTION_BYTES] = { IN_LOG, "retention_bytes", { VALUE_SIZE, 1, 1024 * 1024 * TIB, "off" }, "off",
	    INTO_INT64, LOG(retention_bytes), CHANGES_WITH_WORKERS },
	[KEY_RETENTION_AGE] = { IN_LOG, "retention_age", { VALUE_TIME_MS, SECOND_MS, 36500 * DAY_MS, "off" }, "off",
	    INTO_INT64, LOG(retention_age_ms), CHANGES_WITH_WORKERS },
	[KEY_RETENTION_CHECK_INTERVAL] = { IN_LOG, "retention_check_interval", { VALUE_TIME_MS, 1, DAY_MS, NULL },
	    "30s",
	    INTO_INT64, LOG(retention_check_interval_ms), CHANGES_WITH_WORKERS },

	[KEY_GROUP] = { IN_TOPIC, "group", { VALUE_COUNT, 0, TOPICS_GROUPS_MAX - 1, NULL }, NULL, BY_HAND, 0,
	    CHANGES_WITH_SERVICE },
};

_Static_assert(LOG_ERROR == 0 && LOG_WARNING == 1 && LOG_INFO == 2 && LOG_DEBUG == 3, "log_level's words are in order");
_Static_assert(LOG_WRITE_FILE == 0 && LOG_WRITE_MAPPED == 1, "write_mode's words are in order");
_Static_assert(LOG_VISIBLE_WRITTEN == 0 && LOG_VISIBLE_DURABLE == 1, "visibility's words are in order");
_Static_assert(RECORD_PLAIN == 0 && RECORD_CRC32C == 1, "record_format's words are in order");

static const struct value_rule partitions_rule = { VALUE_COUNT, 1, TOPICS_PARTITIONS_MAX, NULL };

/*
 * Small tools
 */

/* Makes room for one more element. Returns the list, or NULL after noting that memory is out. */
static void *
grow(struct draft *d, void *list, size_t count, size_t *room, size_t size)
{
	size_t more = *room == 0 ? 16 : 2 * *room;
	void *grown;

	if (count < *room)
		return list;
	grown = reallocarray(list, more, size);
	if (grown == NULL)
		d->no_memory = true;
	else
		*room = more;
	return grown;
}

static char *
copy_text(struct draft *d, const char *text)
{
	char *copy = strdup(text);

	if (copy == NULL)
		d->no_memory = true;
	return copy;
}

void
draft_complain(struct draft *d, int line, const char *format, ...)
{
	struct draft_complaint *list = grow(d, d->complaints, d->complaint_count, &d->complaint_room, sizeof(*list));
	va_list arguments;
	char *text;
	int length;

	if (list == NULL)
		return;
	d->complaints = list;
	va_start(arguments, format);
	length = vasprintf(&text, format, arguments);
	va_end(arguments);
	if (length < 0) {
		d->no_memory = true;
		return;
	}
	list[d->complaint_count] = (struct draft_complaint){ line, d->complaint_count, text };
	d->complaint_count++;
}

static int
compare_complaints(const void *a, const void *b)
{
	const struct draft_complaint *x = a, *y = b;

	if (x->line != y->line)
		return x->line < y->line ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

int
draft_tell(struct draft *d, FILE *errors)
{
	if (d->complaint_count > 0)
		qsort(d->complaints, d->complaint_count, sizeof(*d->complaints), compare_complaints);
	for (size_t i = 0; i < d->complaint_count; i++) {
		const struct draft_complaint *c = &d->complaints[i];

		if (c->line == DRAFT_WHOLE_FILE)
			fprintf(errors, "%s: %s\n", d->path, c->text);
		else
			fprintf(errors, "%s:%d: %s\n", d->path, c->line, c->text);
	}
	if (d->no_memory)
		fprintf(errors, "%s: out of memory\n", d->path);
	return d->complaint_count == 0 && !d->no_memory ? 0 : -1;
}

static int
least(int a, int b, int c)
{
	int ab = a < b ? a : b;

	return ab < c ? ab : c;
}

/* How many letters must be added, taken away or changed, whatever their case. */
static int
edit_distance(const char *a, const char *b)
{
	int row[INIFILE_NAME_MAX + 1];
	int length = (int)strnlen(b, INIFILE_NAME_MAX);

	for (int j = 0; j <= length; j++)
		row[j] = j;
	for (int i = 0; a[i] != '\0'; i++) {
		int diagonal = row[0];

		row[0] = i + 1;
		for (int j = 1; j <= length; j++) {
			int same = strncasecmp(&a[i], &b[j - 1], 1) == 0;
			int next = least(row[j] + 1, row[j - 1] + 1, diagonal + !same);

			diagonal = row[j];
			row[j] = next;
		}
	}
	return row[length];
}

/* Alike is what differs in less than a third of its letters. */
void
draft_suggest(const char *name, const char *candidate, const char **best, int *best_distance)
{
	int distance = edit_distance(name, candidate);

	if (3 * distance < (int)strlen(candidate) + 2 && (*best == NULL || distance < *best_distance)) {
		*best = candidate;
		*best_distance = distance;
	}
}

/*
 * The table of keys
 */

static bool
belongs(const struct draft_key *key, enum draft_place place)
{
	return key->place == place || (place == IN_TOPIC && key->place == IN_LOG);
}

static const struct draft_key *
find_key(enum draft_place place, const char *name)
{
	for (int k = 0; k < KEY_COUNT; k++) {
		if (belongs(&keys[k], place) && strcmp(keys[k].name, name) == 0)
			return &keys[k];
	}
	return NULL;
}

/* The place of a key that stands in the wrong one; NOWHERE when there is no such key. */
static enum draft_place
home_of_key(const char *name)
{
	for (int k = 0; k < KEY_COUNT; k++) {
		if (strcmp(keys[k].name, name) == 0)
			return keys[k].place;
	}
	return NOWHERE;
}

int64_t
draft_default_number(const struct draft_key *key)
{
	struct value_error error;
	int64_t number = 0;

	if (key->fallback != NULL)
		value_parse(&key->rule, key->fallback, &number, &error);
	return number;
}

const struct draft_key *
draft_key(int name)
{
	return &keys[name];
}

int64_t
draft_number(const struct draft *d, enum draft_key_name name)
{
	const struct draft_value *value = &d->values[name];

	return value->line != 0 && !value->wrong ? value->number : draft_default_number(&keys[name]);
}

const char *
draft_text(const struct draft *d, enum draft_key_name name)
{
	const struct draft_value *value = &d->values[name];

	return value->line != 0 ? value->text : keys[name].fallback;
}

/*
 * Reading: lines into the draft
 */

static void
close_section(struct draft *d)
{
	if (d->place_line == 0 || !d->place_empty)
		return;
	if (d->place == IN_TOPICS)
		draft_complain(d, d->place_line, "section [topics] is empty (add a line 'NAME = partitions')");
	else if (!d->place_unknown)
		draft_complain(d, d->place_line, "section [%s] is empty (remove it)", d->place_name);
}

static void
unknown_section(struct draft *d, int line, const char *name)
{
	const char *best = NULL, *start = name + strspn(name, " \t");
	char meant[INIFILE_NAME_MAX + 1];
	int distance = 0;

	snprintf(meant, sizeof(meant), "%.*s", (int)strcspn(start, " \t"), start);
	for (int p = IN_BROKER; p <= IN_LOG; p++)
		draft_suggest(meant, place_names[p], &best, &distance);
	if (best != NULL)
		draft_complain(d, line, "unknown section [%s] (did you mean [%s]?)", name, best);
	else
		draft_complain(d, line,
		    "unknown section [%s] (there are [broker], [topics], [log] and [topic NAME])", name);
	d->place_unknown = true;
}

static void
open_topic_section(struct draft *d, int line, const char *name)
{
	struct draft_section **list = grow(d, d->sections, d->section_count, &d->section_room, sizeof(*list));
	struct draft_section *section;

	if (list == NULL)
		return;
	d->sections = list;
	section = calloc(1, sizeof(*section));
	if (section == NULL) {
		d->no_memory = true;
		return;
	}
	section->line = line;
	section->name = copy_text(d, name);
	list[d->section_count++] = section;
}

/* The name behind "topic ", or NULL when it is not that kind of section. */
static const char *
topic_of_section(const char *name)
{
	if (strncmp(name, "topic", 5) != 0 || (name[5] != ' ' && name[5] != '\t' && name[5] != '\0'))
		return NULL;
	return name + 5 + strspn(name + 5, " \t");
}

static enum draft_place
place_of_section(const char *name)
{
	for (int p = IN_BROKER; p <= IN_LOG; p++) {
		if (strcmp(name, place_names[p]) == 0)
			return (enum draft_place)p;
	}
	return topic_of_section(name) != NULL ? IN_TOPIC : NOWHERE;
}

static void
take_section(void *user, int line, const char *name)
{
	struct draft *d = user;

	close_section(d);
	d->place_line = line;
	d->place_empty = true;
	d->place_unknown = name == NULL;
	d->place = NOWHERE;
	if (name == NULL)
		return;
	snprintf(d->place_name, sizeof(d->place_name), "%s", name);
	d->place = place_of_section(name);
	if (d->place == NOWHERE)
		unknown_section(d, line, name);
	else if (d->place == IN_TOPIC && topic_of_section(name)[0] == '\0') {
		draft_complain(d, line, "section [topic] without a topic (write [topic NAME])");
		d->place_unknown = true;
	} else if (d->place == IN_TOPIC)
		open_topic_section(d, line, topic_of_section(name));
	else if (d->first_lines[d->place] != 0)
		draft_complain(d, line, "section [%s] is repeated (the first is in line %d; make them one)", name,
		    d->first_lines[d->place]);
	else
		d->first_lines[d->place] = line;
}

static void
unknown_key(struct draft *d, int line, const char *name)
{
	const char *best = NULL;
	int distance = 0;
	enum draft_place home = home_of_key(name);

	for (int k = 0; k < KEY_COUNT; k++) {
		if (belongs(&keys[k], d->place))
			draft_suggest(name, keys[k].name, &best, &distance);
	}
	if (home != NOWHERE)
		draft_complain(d, line, "unknown key '%s' in [%s] (it belongs into [%s])", name, d->place_name,
		    place_names[home]);
	else if (best != NULL)
		draft_complain(d, line, "unknown key '%s' in [%s] (did you mean '%s'?)", name, d->place_name, best);
	else
		draft_complain(d, line, "unknown key '%s' in [%s] (broker.ini(5) tells all of them)", name,
		    d->place_name);
}

static void
key_without_section(struct draft *d, int line, const char *name)
{
	enum draft_place home = home_of_key(name);

	draft_complain(d, line, "key '%s' stands before the first section (write [%s] above it)", name,
	    place_names[home != NOWHERE ? home : IN_BROKER]);
}

/* Returns 0 and the number; or -1 after a complaint that names key, value and what is allowed. */
static int
check_value(struct draft *d, int line, const char *name, const struct value_rule *rule, const char *text,
    int64_t *number)
{
	char allowed[VALUE_ALLOWED_BYTES];
	struct value_error error;

	if (*text != '\0' && value_parse(rule, text, number, &error) == 0)
		return 0;
	value_allowed(rule, allowed);
	if (*text == '\0')
		draft_complain(d, line, "%s: no value (allowed: %s)", name, allowed);
	else
		draft_complain(d, line, "%s: '%.*s' %s (allowed: %s)", name, (int)error.part_length, error.part,
		    error.what, allowed);
	return -1;
}

static void
take_topic(struct draft *d, int line, const char *name, const char *text)
{
	struct draft_topic *list = grow(d, d->topics, d->topic_count, &d->topic_room, sizeof(*list));
	int64_t count = 1;

	if (list == NULL)
		return;
	d->topics = list;
	if (!codec_topic_name_valid(name, strlen(name)))
		draft_complain(d, line,
		    "'%s' is not a topic's name (1 to %d characters out of A-Z a-z 0-9 . _ -, and neither '.' "
		    "nor '..')", name, CODEC_TOPIC_NAME_MAX);
	if (check_value(d, line, name, &partitions_rule, text, &count) < 0)
		count = 1;
	list[d->topic_count++] = (struct draft_topic){ copy_text(d, name), line, (int32_t)count, NULL };
}

static void
take_key(struct draft *d, int line, const struct draft_key *key, struct draft_value *value, const char *text)
{
	struct draft_value repeated = { 0 };

	if (value->line != 0) {
		draft_complain(d, line, "key '%s' is repeated (the first is in line %d; remove one)", key->name,
		    value->line);
		value = &repeated;	/* checked all the same */
	}
	value->line = line;
	value->wrong = check_value(d, line, key->name, &key->rule, text, &value->number) < 0;
	if (value->wrong || value == &repeated)
		return;
	value->text = copy_text(d, text);
}

/* Where the open section keeps its values; NULL when it has none. */
static struct draft_value *
open_values(struct draft *d)
{
	if (d->place_unknown)
		return NULL;
	if (d->place == IN_TOPIC)
		return d->section_count == 0 ? NULL : d->sections[d->section_count - 1]->values;
	return d->place == IN_BROKER || d->place == IN_LOG ? d->values : NULL;
}

static void
take_entry(void *user, int line, const char *name, const char *text)
{
	struct draft *d = user;
	struct draft_value *values = open_values(d);
	const struct draft_key *key = find_key(d->place, name);

	d->place_empty = false;
	if (d->place_line == 0)
		key_without_section(d, line, name);
	else if (d->place == IN_TOPICS)
		take_topic(d, line, name, text);
	else if (values != NULL && key == NULL)
		unknown_key(d, line, name);
	else if (values != NULL)
		take_key(d, line, key, &values[key - keys], text);
}

/* The line is told; that its key or topic is given must be known, or what is missed elsewhere would be told too. */
static void
take_wrong(void *user, int line, const char *name, const char *text)
{
	struct draft *d = user;
	struct draft_value *values = open_values(d);
	const struct draft_key *key = name == NULL ? NULL : find_key(d->place, name);

	d->place_empty = false;
	draft_complain(d, line, "%s", text);
	if (d->place == IN_TOPICS && name != NULL)
		take_topic(d, line, name, "1");
	else if (values != NULL && key != NULL && values[key - keys].line == 0)
		values[key - keys] = (struct draft_value){ .line = line, .wrong = true };
}

static const struct inifile_handler handler = { take_section, take_entry, take_wrong };

/* Opens what can be read to an end: a directory reads as an empty file, a device perhaps for ever. */
static FILE *
open_file(const char *path)
{
	struct stat st;
	FILE *file;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode)) {
		close(fd);
		errno = S_ISDIR(st.st_mode) ? EISDIR : ENODEV;
		return NULL;
	}
	file = fdopen(fd, "r");
	if (file == NULL)
		close(fd);
	return file;
}

/* Returns 0, or -1 after a complaint when the file cannot be read. */
static int
read_file(struct draft *d)
{
	FILE *file = open_file(d->path);
	int result = -1, error;

	if (file != NULL)
		result = inifile_read(file, &handler, d);
	error = errno;
	if (file != NULL)
		fclose(file);
	if (result < 0)
		draft_complain(d, DRAFT_WHOLE_FILE, "cannot be read: %s",
		    error == ENODEV ? "Not a file" : strerror(error));
	else
		close_section(d);
	return result;
}

int
draft_read(struct draft *d, const char *path)
{
	memset(d, 0, sizeof(*d));
	d->path = path;
	return read_file(d) < 0 || d->no_memory ? -1 : 0;
}

static void
free_values(struct draft_value *values)
{
	for (int k = 0; k < KEY_COUNT; k++)
		free(values[k].text);
}

void
draft_free(struct draft *d)
{
	for (size_t i = 0; i < d->complaint_count; i++)
		free(d->complaints[i].text);
	for (size_t i = 0; i < d->topic_count; i++)
		free(d->topics[i].name);
	for (size_t i = 0; i < d->section_count; i++) {
		free_values(d->sections[i]->values);
		free(d->sections[i]->name);
		free(d->sections[i]);
	}
	free_values(d->values);
	free(d->complaints);
	free(d->topics);
	free(d->sections);
}

