/*
 * From what stands in broker.ini to the struct: the checks that look at more than one value, the defaults, and the way
 * back to text for -T. Knows drafts, and no line of text.
 */
#include "supervisor/settings.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/codec.h"
#include "supervisor/draft.h"

enum { SUGGESTION_TOPICS_MAX = 1000 };	/* with more topics no similar name is looked for */

static const char run_dir[] = "/run/logbroker";
static const char control_name[] = "control.sock";

/* The value that counts for a topic: its own, else that of [log]. */
static const struct draft_value *
log_value(const struct draft *d, const struct draft_topic *topic, int k)
{
	if (topic != NULL && topic->section != NULL && topic->section->values[k].line != 0)
		return &topic->section->values[k];
	return &d->values[k];
}

/*
 * Checks that look at more than one value
 */

static int
compare_topics(const void *a, const void *b)
{
	const struct draft_topic *x = a, *y = b;
	int order = strcmp(x->name, y->name);

	return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

static int
compare_sections(const void *a, const void *b)
{
	const struct draft_section *const *x = a, *const *y = b;
	int order = strcmp((*x)->name, (*y)->name);

	return order != 0 ? order : ((*x)->line > (*y)->line) - ((*x)->line < (*y)->line);
}

static int
compare_name_to_topic(const void *name, const void *topic)
{
	return strcmp(name, ((const struct draft_topic *)topic)->name);
}

/*
 * Two topics never share a partition's directory: behind the last '-' of "<topic>-<partition>" there are only the
 * partition's digits, so the name can be taken apart in one way. Hence no check here; a topic twice is one.
 */
static void
check_topics_repeated(struct draft *d)
{
	const struct draft_topic *first = d->topics;

	for (size_t i = 1; i < d->topic_count; i++) {
		if (strcmp(first->name, d->topics[i].name) == 0)
			draft_complain(d, d->topics[i].line,
			    "topic '%s' is repeated (the first is in line %d; remove one)",
			    first->name, first->line);
		else
			first = &d->topics[i];
	}
}

static void
complain_no_such_topic(struct draft *d, const struct draft_section *section)
{
	const char *best = NULL;
	int distance = 0;

	if (d->topic_count == 0)
		return;		/* told already */
	for (size_t i = 0; i < d->topic_count && d->topic_count <= SUGGESTION_TOPICS_MAX; i++)
		draft_suggest(section->name, d->topics[i].name, &best, &distance);
	if (!codec_topic_name_valid(section->name, strlen(section->name)))
		draft_complain(d, section->line, "[topic %s]: '%s' is not a topic's name (write [topic NAME])",
		    section->name, section->name);
	else if (best != NULL)
		draft_complain(d, section->line, "[topic %s]: no such topic in [topics] (did you mean '%s'?)",
		    section->name, best);
	else
		draft_complain(d, section->line, "[topic %s]: no such topic in [topics] (add '%s = partitions' there)",
		    section->name, section->name);
}

/* Gives each topic its section. */
static void
join_sections(struct draft *d)
{
	for (size_t i = 0; i < d->section_count; i++) {
		const struct draft_section *section = d->sections[i];
		struct draft_topic *topic = NULL;

		if (d->topic_count > 0)
			topic = bsearch(section->name, d->topics, d->topic_count, sizeof(*d->topics),
			    compare_name_to_topic);
		if (topic == NULL)
			complain_no_such_topic(d, section);
		else if (topic->section != NULL)
			draft_complain(d, section->line,
			    "section [topic %s] is repeated (the first is in line %d; make them one)",
			    section->name, topic->section->line);
		else
			topic->section = section;
	}
}

/* Clients take no answer above CODEC_ANSWER_MAX_BYTES, and METADATA may be asked for all topics. */
static void
check_metadata_size(struct draft *d)
{
	size_t bytes = codec_metadata_head_bytes() - CODEC_LENGTH_BYTES;

	for (size_t i = 0; i < d->topic_count; i++) {
		const struct draft_topic *topic = &d->topics[i];

		bytes += codec_metadata_topic_bytes(2, strlen(topic->name), topic->partition_count);
		if (bytes <= CODEC_ANSWER_MAX_BYTES)
			continue;
		draft_complain(d, topic->line,
		    "with the %d partitions of topic '%s' a METADATA answer for all topics is longer than "
		    "the %d bytes that clients take (fewer topics or partitions, about %d in all)",
		    topic->partition_count, topic->name, CODEC_ANSWER_MAX_BYTES, CODEC_ANSWER_MAX_BYTES / 24);
		return;
	}
}

static void
check_buffer(struct draft *d)
{
	const struct draft_value *buffer = &d->values[KEY_BUFFER_BYTES], *frame = &d->values[KEY_MAX_FRAME_BYTES];
	int64_t buffer_bytes = draft_number(d, KEY_BUFFER_BYTES), frame_bytes = draft_number(d, KEY_MAX_FRAME_BYTES);
	char texts[3][32];

	if (buffer->wrong || frame->wrong || buffer_bytes / 4 >= frame_bytes)
		return;
	value_print_size(buffer_bytes, texts[0], sizeof(texts[0]));
	value_print_size(frame_bytes, texts[1], sizeof(texts[1]));
	value_print_size(4 * frame_bytes, texts[2], sizeof(texts[2]));
	draft_complain(d, buffer->line != 0 ? buffer->line : frame->line,
	    "buffer_bytes: %s%s is less than four frames of max_frame_bytes, %s%s (allowed: from %s)", texts[0],
	    buffer->line != 0 ? "" : ", the default,", texts[1], frame->line != 0 ? "" : ", the default", texts[2]);
}

/* How many processors this process may use. */
static int32_t
count_processors(void)
{
	for (int most = 1024; most <= 1024 * 1024; most *= 4) {
		size_t size = CPU_ALLOC_SIZE(most);
		cpu_set_t *set = CPU_ALLOC(most);
		int count = 0;

		if (set != NULL && sched_getaffinity(0, size, set) == 0)
			count = CPU_COUNT_S(size, set);
		CPU_FREE(set);
		if (count > 0)
			return count < TOPICS_GROUPS_MAX ? count : TOPICS_GROUPS_MAX;
	}
	return 1;
}

static int32_t
workers_asked(const struct draft *d)
{
	int64_t number = draft_number(d, KEY_WORKERS);

	return number == 0 ? count_processors() : (int32_t)number;
}

static int32_t
group_of(const struct draft_topic *topic)
{
	const struct draft_value *value = topic->section == NULL ? NULL : &topic->section->values[KEY_GROUP];

	return value == NULL || value->line == 0 || value->wrong ? -1 : (int32_t)value->number;
}

static void
check_groups(struct draft *d)
{
	int32_t workers = workers_asked(d);
	const struct draft_value *given = &d->values[KEY_WORKERS];

	for (size_t i = 0; i < d->topic_count && !given->wrong; i++) {
		int32_t group = group_of(&d->topics[i]);

		if (group >= workers)
			draft_complain(d, d->topics[i].section->values[KEY_GROUP].line,
			    "group: '%d' is not below workers, which is %d%s (allowed: 0 to %d, or workers from %d on)",
			    group, workers, draft_number(d, KEY_WORKERS) == 0 ? ", the number of processors" : "",
			    workers - 1, group + 1);
	}
}

/* Where the control socket stands when the file does not say. Returns an allocated path, or NULL without memory. */
static char *
default_control(struct draft *d)
{
	const char *data_dir = d->values[KEY_DATA_DIR].text;
	char *path;
	int length;

	if (faccessat(AT_FDCWD, "/run/logbroker/.", W_OK | X_OK, AT_EACCESS) == 0)
		length = asprintf(&path, "%s/%s", run_dir, control_name);
	else
		length = asprintf(&path, "%s/%s", data_dir != NULL ? data_dir : draft_key(KEY_DATA_DIR)->fallback,
		    control_name);
	if (length < 0) {
		d->no_memory = true;
		return NULL;
	}
	return path;
}

static void
check_default_control(struct draft *d)
{
	char *path;

	if (d->values[KEY_CONTROL].line != 0 || d->values[KEY_DATA_DIR].wrong)
		return;
	path = default_control(d);
	if (path != NULL && strlen(path) > VALUE_SOCKET_PATH_MAX)
		draft_complain(d, d->values[KEY_DATA_DIR].line,
		    "data_dir: '%s', where the control socket goes by default, is "
		    "too long for a Unix socket (set control to a path of at most %d bytes, or to off)", path,
		    VALUE_SOCKET_PATH_MAX);
	free(path);
}

/* Complains when `address`, of key `name` in line `line`, is one of those at `text` in front of `end` (NULL: all). */
static void
check_address_twice(struct draft *d, int line, const char *name, const struct value_address *address, const char *text,
    const char *end)
{
	struct value_address other;
	struct value_error error;
	const char *rest = text;

	while (value_next_address(&rest, &other, &error) > 0 && (end == NULL || other.text < end)) {
		if (!value_same_address(address, &other))
			continue;
		draft_complain(d, line, "%s: '%.*s' is there twice%s (remove one)", name, (int)address->length,
		    address->text, end == NULL ? ", it is in listen too" : "");
		return;
	}
}

static void
check_addresses(struct draft *d)
{
	const char *listen = draft_text(d, KEY_LISTEN), *http = draft_text(d, KEY_HTTP), *rest = listen;
	const char *control = d->values[KEY_CONTROL].text;
	struct value_address address;
	struct value_error error;
	int line = d->values[KEY_LISTEN].line, http_line = d->values[KEY_HTTP].line;

	while (rest != NULL && value_next_address(&rest, &address, &error) > 0) {
		check_address_twice(d, line, "listen", &address, listen, address.text);
		if (address.path != NULL && control != NULL &&
		    strncmp(control, address.path, (size_t)(rest - address.path)) == 0 &&
		    control[rest - address.path] == '\0')
			draft_complain(d, d->values[KEY_CONTROL].line,
			    "control: '%s' is in listen too (take another path)", control);
	}
	if (http != NULL && listen != NULL && value_next_address(&http, &address, &error) > 0)
		check_address_twice(d, http_line != 0 ? http_line : line, "http", &address, listen, NULL);
}

static void
check_draft(struct draft *d)
{
	if (d->topic_count == 0 && d->first_lines[IN_TOPICS] == 0)
		draft_complain(d, DRAFT_WHOLE_FILE,
		    "no topics (add a section [topics] with a line 'NAME = partitions')");
	check_metadata_size(d);
	if (d->topic_count > 0)
		qsort(d->topics, d->topic_count, sizeof(*d->topics), compare_topics);
	if (d->section_count > 0)
		qsort(d->sections, d->section_count, sizeof(*d->sections), compare_sections);
	check_topics_repeated(d);
	join_sections(d);
	check_buffer(d);
	check_groups(d);
	check_default_control(d);
	check_addresses(d);
}

/* Reads and checks a file. Returns 0, or -1 after telling every error; the draft is to be freed in every case. */
static int
read_draft(struct draft *d, const char *path, FILE *errors)
{
	if (draft_read(d, path) == 0)
		check_draft(d);
	return draft_tell(d, errors);
}

/*
 * From a draft without errors to the struct
 */

static void
store_number(void *base, const struct draft_key *key, int64_t number)
{
	int32_t small = (int32_t)number;

	if (key->store == INTO_INT32)
		memcpy((char *)base + key->offset, &small, sizeof(small));
	else if (key->store == INTO_INT64)
		memcpy((char *)base + key->offset, &number, sizeof(number));
}

static int
fill_address(struct settings_address *to, const struct value_address *from)
{
	memset(to, 0, sizeof(*to));
	to->text = strndup(from->text, from->length);
	if (from->path != NULL)
		to->path = strdup(to->text == NULL ? "" : to->text + (from->path - from->text));
	else {
		to->host = strndup(from->host, from->host_length);
		if (asprintf(&to->port, "%d", from->port) < 0)
			to->port = NULL;
	}
	return to->text == NULL || (to->path == NULL && (to->host == NULL || to->port == NULL)) ? -1 : 0;
}

static int
fill_addresses(struct settings *settings, const struct draft *d)
{
	const char *rest = draft_text(d, KEY_LISTEN);
	int64_t count = draft_number(d, KEY_LISTEN);
	struct value_address address;
	struct value_error error;

	settings->listen = calloc((size_t)count, sizeof(*settings->listen));
	if (settings->listen == NULL)
		return -1;
	while (settings->listen_count < count && value_next_address(&rest, &address, &error) > 0) {
		if (fill_address(&settings->listen[settings->listen_count++], &address) < 0)
			return -1;
	}
	rest = draft_text(d, KEY_HTTP);
	if (draft_number(d, KEY_HTTP) == 0 || value_next_address(&rest, &address, &error) <= 0)
		return 0;
	return fill_address(&settings->http, &address);
}

static int
fill_paths(struct settings *settings, struct draft *d)
{
	const struct draft_value *control = &d->values[KEY_CONTROL];

	settings->data_dir = strdup(draft_text(d, KEY_DATA_DIR));
	if (settings->data_dir == NULL)
		return -1;
	if (control->line != 0 && strcmp(control->text, draft_key(KEY_CONTROL)->rule.words) == 0)
		return 0;
	settings->control = control->line != 0 ? strdup(control->text) : default_control(d);
	return settings->control == NULL ? -1 : 0;
}

static int
fill_topics(struct settings *settings, const struct draft *d)
{
	settings->topics = calloc(d->topic_count, sizeof(*settings->topics));
	if (settings->topics == NULL)
		return -1;
	settings->topic_count = (int32_t)d->topic_count;
	for (size_t i = 0; i < d->topic_count; i++) {
		const struct draft_topic *from = &d->topics[i];
		struct settings_topic *to = &settings->topics[i];

		snprintf(to->name, sizeof(to->name), "%s", from->name);
		to->line = from->line;
		to->partition_count = from->partition_count;
		to->group = group_of(from);
		for (int k = 0; k < KEY_COUNT; k++) {
			const struct draft_key *key = draft_key(k);
			const struct draft_value *value = log_value(d, from, k);

			if (key->place == IN_LOG)
				store_number(&to->log, key, value->line != 0 ? value->number : draft_default_number(key));
		}
	}
	return 0;
}

/* No more workers than partitions, but a group that a topic asks for has its worker. */
static int32_t
effective_workers(const struct settings *settings)
{
	int64_t partitions = 0;
	int32_t least_workers = 1;

	for (int32_t i = 0; i < settings->topic_count; i++) {
		partitions += settings->topics[i].partition_count;
		if (settings->topics[i].group >= least_workers)
			least_workers = settings->topics[i].group + 1;
	}
	if (partitions > least_workers)
		least_workers = partitions < TOPICS_GROUPS_MAX ? (int32_t)partitions : TOPICS_GROUPS_MAX;
	return settings->workers_asked < least_workers ? settings->workers_asked : least_workers;
}

static int
fill(struct settings *settings, struct draft *d)
{
	if (fill_addresses(settings, d) < 0 || fill_paths(settings, d) < 0 || fill_topics(settings, d) < 0)
		return -1;
	for (int k = 0; k < KEY_COUNT; k++) {
		if (draft_key(k)->place == IN_BROKER)
			store_number(settings, draft_key(k), draft_number(d, (enum draft_key_name)k));
		else if (draft_key(k)->place == IN_LOG)
			store_number(&settings->log, draft_key(k), draft_number(d, (enum draft_key_name)k));
	}
	settings->workers_asked = workers_asked(d);
	settings->workers = effective_workers(settings);
	return 0;
}

int
settings_read(const char *path, struct settings *settings, FILE *errors)
{
	struct draft d;
	int result;

	memset(settings, 0, sizeof(*settings));
	result = read_draft(&d, path, errors);
	if (result == 0 && fill(settings, &d) < 0) {
		fprintf(errors, "%s: out of memory\n", path);
		settings_free(settings);
		result = -1;
	}
	draft_free(&d);
	return result;
}

static void
free_address(struct settings_address *address)
{
	free(address->text);
	free(address->host);
	free(address->port);
	free(address->path);
}

void
settings_free(struct settings *settings)
{
	for (int i = 0; i < settings->listen_count; i++)
		free_address(&settings->listen[i]);
	free(settings->listen);
	free_address(&settings->http);
	free(settings->control);
	free(settings->data_dir);
	free(settings->topics);
	memset(settings, 0, sizeof(*settings));
}

/*
 * -T
 */

/* One line: what counts, and where it came from. `value` may be of another section than the line stands in. */
static void
print_key(const struct draft *d, FILE *to, const struct draft_key *key, const struct draft_value *value,
    const char *fallback)
{
	const char *text = value->line != 0 ? value->text : fallback;
	int width = (int)(strlen(key->name) + 3 + strlen(text));

	fprintf(to, "%s = %s%*s ; ", key->name, text, width < 40 ? 40 - width : 0, "");
	if (value->line != 0)
		fprintf(to, "%s:%d", d->path, value->line);
	else
		fprintf(to, "default");
}

static void
print_started(const struct draft *d, FILE *to, const struct settings *settings)
{
	fprintf(to, ", %d started", settings->workers);
	if (settings->workers < settings->workers_asked)
		fprintf(to, ": there are no more partitions");
	else if (draft_number(d, KEY_WORKERS) == 0)
		fprintf(to, ": one for each processor");
}

static void
print_broker(struct draft *d, FILE *to, const char *control, const struct settings *settings)
{
	fprintf(to, "[broker]\n");
	for (int k = 0; k < KEY_COUNT; k++) {
		if (draft_key(k)->place != IN_BROKER)
			continue;
		print_key(d, to, draft_key(k), &d->values[k], k == KEY_CONTROL ? control : draft_key(k)->fallback);
		if (k == KEY_WORKERS)
			print_started(d, to, settings);
		fprintf(to, "\n");
	}
}

static void
print_log(const struct draft *d, FILE *to, const struct draft_topic *topic)
{
	for (int k = 0; k < KEY_COUNT; k++) {
		if (draft_key(k)->place != IN_LOG)
			continue;
		print_key(d, to, draft_key(k), log_value(d, topic, k), draft_key(k)->fallback);
		fprintf(to, "\n");
	}
}

static void
print_topics(const struct draft *d, FILE *to)
{
	fprintf(to, "\n[topics]\n");
	for (size_t i = 0; i < d->topic_count; i++) {
		const struct draft_topic *topic = &d->topics[i];

		fprintf(to, "%s = %d ; %s:%d\n", topic->name, topic->partition_count, d->path, topic->line);
	}
}

/* [topic NAME] of the topics that have one, with all that counts for them. */
static void
print_sections(const struct draft *d, FILE *to)
{
	for (size_t i = 0; i < d->topic_count; i++) {
		const struct draft_topic *topic = &d->topics[i];

		if (topic->section == NULL)
			continue;
		fprintf(to, "\n[topic %s]\n", topic->name);
		print_log(d, to, topic);
		if (group_of(topic) >= 0) {
			print_key(d, to, draft_key(KEY_GROUP), &topic->section->values[KEY_GROUP], NULL);
			fprintf(to, "\n");
		}
	}
}

int
settings_print(const char *path, FILE *to, FILE *errors)
{
	struct settings settings = { 0 };
	struct draft d;
	int result = read_draft(&d, path, errors);

	if (result == 0 && fill(&settings, &d) < 0) {
		fprintf(errors, "%s: out of memory\n", path);
		result = -1;
	}
	if (result == 0) {
		print_broker(&d, to, settings.control, &settings);
		print_topics(&d, to);
		fprintf(to, "\n[log]\n");
		print_log(&d, to, NULL);
		print_sections(&d, to);
	}
	settings_free(&settings);
	draft_free(&d);
	return result;
}
