/* From a new broker.ini to the settings in force; see reload.h. The table of keys, in draft.c, tells what a key needs. */
#include "supervisor/reload.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "supervisor/draft.h"

enum { TEXT_BYTES = 512 };	/* of a value: none is longer than INIFILE_VALUE_MAX, or a path in a data_dir of such a length */

struct comparison {
	const struct reload *reload;
	struct settings *fresh;
	FILE *report;
	struct reload_changes *changes;
};

/* ---- values ---- */

static int64_t
get_number(const void *base, const struct draft_key *key)
{
	int64_t number = 0;
	int32_t small = 0;

	if (key->store == INTO_INT64) {
		memcpy(&number, (const char *)base + key->offset, sizeof(number));
		return number;
	}
	memcpy(&small, (const char *)base + key->offset, sizeof(small));
	return small;
}

static void
copy_number(void *to, const void *from, const struct draft_key *key)
{
	size_t size = key->store == INTO_INT64 ? sizeof(int64_t) : sizeof(int32_t);

	memcpy((char *)to + key->offset, (const char *)from + key->offset, size);
}

static void
print_listen(const struct settings *settings, char *to)
{
	to[0] = '\0';
	for (int i = 0; i < settings->listen_count; i++)
		snprintf(to + strlen(to), TEXT_BYTES - strlen(to), "%s%s", i > 0 ? "," : "", settings->listen[i].text);
}

/* The value of a key of [broker], as it would stand in broker.ini. */
static void
print_value(const struct settings *settings, int name, char *to)
{
	const struct draft_key *key = draft_key(name);

	switch (name) {
	case KEY_LISTEN:
		print_listen(settings, to);
		break;
	case KEY_DATA_DIR:
		snprintf(to, TEXT_BYTES, "%s", settings->data_dir);
		break;
	case KEY_CONTROL:
		snprintf(to, TEXT_BYTES, "%s", settings->control != NULL ? settings->control : "off");
		break;
	case KEY_HTTP:
		snprintf(to, TEXT_BYTES, "%s", settings->http.text != NULL ? settings->http.text : "off");
		break;
	case KEY_WORKERS:
		snprintf(to, TEXT_BYTES, "%" PRId32, settings->workers_asked);
		break;
	default:
		value_print(&key->rule, get_number(settings, key), to, TEXT_BYTES);
		break;
	}
}

/* ---- changes ---- */

/* Counts a change and returns what becomes of it, in words. */
static const char *
count_change(struct reload_changes *changes, enum draft_change change)
{
	switch (change) {
	case CHANGES_AT_ONCE:
		changes->at_once++;
		return "applied";
	case CHANGES_WITH_WORKERS:
		changes->with_workers++;
		return "applied by restarting the workers";
	default:
		changes->with_service++;
		return "needs a restart of the service";
	}
}

static void
compare_broker(const struct comparison *c)
{
	struct settings *used = c->reload->settings;
	char before[TEXT_BYTES], after[TEXT_BYTES];

	for (int k = 0; k < KEY_COUNT; k++) {
		const struct draft_key *key = draft_key(k);

		if (key->place != IN_BROKER)
			continue;
		print_value(used, k, before);
		print_value(c->fresh, k, after);
		if (strcmp(before, after) == 0)
			continue;
		fprintf(c->report, "%s: %s -> %s (%s)\n", key->name, before, after, count_change(c->changes, key->change));
		if (key->change != CHANGES_WITH_SERVICE)
			copy_number(used, c->fresh, key);
	}
}

/* A topic whose value changes as that of [log] does is told with it: nobody wants a line for each of a thousand topics. */
static bool
told_with_log(const struct comparison *c, const struct draft_key *key, const struct settings_topic *before,
    const struct settings_topic *after)
{
	return get_number(&before->log, key) == get_number(&c->reload->settings->log, key) &&
	    get_number(&after->log, key) == get_number(&c->fresh->log, key);
}

static void
tell_log(const struct comparison *c, const char *section, const struct draft_key *key, const struct log_settings *before,
    const struct log_settings *after)
{
	char texts[2][TEXT_BYTES];

	value_print(&key->rule, get_number(before, key), texts[0], TEXT_BYTES);
	value_print(&key->rule, get_number(after, key), texts[1], TEXT_BYTES);
	fprintf(c->report, "%s %s: %s -> %s (%s)\n", section, key->name, texts[0], texts[1],
	    count_change(c->changes, key->change));
}

static void
compare_group(const struct comparison *c, const struct settings_topic *before, const struct settings_topic *after)
{
	char texts[2][TEXT_BYTES] = { "spread over the workers", "spread over the workers" };

	if (before->group == after->group)
		return;
	if (before->group >= 0)
		snprintf(texts[0], TEXT_BYTES, "%" PRId32, before->group);
	if (after->group >= 0)
		snprintf(texts[1], TEXT_BYTES, "%" PRId32, after->group);
	fprintf(c->report, "[topic %s] group: %s -> %s (%s)\n", before->name, texts[0], texts[1],
	    count_change(c->changes, draft_key(KEY_GROUP)->change));
}

/* `before` is a topic in force, and place `i` is its place in both lists. */
static void
compare_topic(const struct comparison *c, int32_t i, const struct settings_topic *after)
{
	struct settings_topic *before = &c->reload->settings->topics[i];
	char section[CODEC_TOPIC_NAME_MAX + 16];

	if (before->partition_count != after->partition_count)
		fprintf(c->report, "[topics] %s: %" PRId32 " -> %" PRId32 " (%s)\n", before->name, before->partition_count,
		    after->partition_count, count_change(c->changes, CHANGES_WITH_SERVICE));
	compare_group(c, before, after);
	snprintf(section, sizeof(section), "[topic %s]", before->name);
	for (int k = 0; k < KEY_COUNT; k++) {
		const struct draft_key *key = draft_key(k);

		if (key->place != IN_LOG || get_number(&before->log, key) == get_number(&after->log, key))
			continue;
		if (!told_with_log(c, key, before, after))
			tell_log(c, section, key, &before->log, &after->log);
		if (key->change != CHANGES_WITH_SERVICE) {
			copy_number(&before->log, &after->log, key);
			copy_number(&c->reload->topics->list[i].log, &after->log, key);
		}
	}
}

static void
tell_come_or_gone(const struct comparison *c, const struct settings_topic *before, const struct settings_topic *after)
{
	if (before == NULL)
		fprintf(c->report, "[topics] %s: not there -> %" PRId32 " (%s)\n", after->name, after->partition_count,
		    count_change(c->changes, CHANGES_WITH_SERVICE));
	else
		fprintf(c->report, "[topics] %s: %" PRId32 " -> not there (%s)\n", before->name, before->partition_count,
		    count_change(c->changes, CHANGES_WITH_SERVICE));
}

/* Both lists are sorted by name. */
static void
compare_topics(const struct comparison *c)
{
	const struct settings *used = c->reload->settings;
	int32_t i = 0, j = 0;

	while (i < used->topic_count || j < c->fresh->topic_count) {
		const struct settings_topic *before = i < used->topic_count ? &used->topics[i] : NULL;
		const struct settings_topic *after = j < c->fresh->topic_count ? &c->fresh->topics[j] : NULL;
		int order = before == NULL ? 1 : after == NULL ? -1 : strcmp(before->name, after->name);

		if (order == 0)
			compare_topic(c, i, after);
		else
			tell_come_or_gone(c, order < 0 ? before : NULL, order < 0 ? NULL : after);
		i += order <= 0;
		j += order >= 0;
	}
}

static void
compare_log(const struct comparison *c)
{
	for (int k = 0; k < KEY_COUNT; k++) {
		const struct draft_key *key = draft_key(k);

		if (key->place == IN_LOG && get_number(&c->reload->settings->log, key) != get_number(&c->fresh->log, key))
			tell_log(c, "[log]", key, &c->reload->settings->log, &c->fresh->log);
	}
}

/* Last: until then the topics are compared with what [log] said. */
static void
take_log(const struct comparison *c)
{
	for (int k = 0; k < KEY_COUNT; k++) {
		const struct draft_key *key = draft_key(k);

		if (key->place == IN_LOG && key->change != CHANGES_WITH_SERVICE)
			copy_number(&c->reload->settings->log, &c->fresh->log, key);
	}
}

/* ---- the file ---- */

/*
 * A descriptor that was passed (-f /dev/fd/63) has been read and closed, and its number may mean something else by now; a
 * pipe would make the supervisor wait for whoever writes into it.
 */
static int
check_source(const char *path, FILE *report)
{
	struct stat st;
	bool passed = strncmp(path, "/dev/fd/", 8) == 0 || strncmp(path, "/dev/std", 8) == 0 || strncmp(path, "/proc/", 6) == 0;

	if (!passed && (stat(path, &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
		return 0;
	fprintf(report, "%s: is not a file that can be read again; nothing is applied (restart the service, with -f and a file)\n",
	    path);
	return -1;
}

static bool
same_topics(const struct settings *a, const struct settings *b)
{
	if (strcmp(a->data_dir, b->data_dir) != 0 || a->topic_count != b->topic_count)
		return false;
	for (int32_t i = 0; i < a->topic_count; i++)
		if (strcmp(a->topics[i].name, b->topics[i].name) != 0 ||
		    a->topics[i].partition_count != b->topics[i].partition_count)
			return false;
	return true;
}

/* What the command line and the machine make of it, as at the start; that this has been said is not said again. */
static void
adapt(const struct reload *reload, struct settings *fresh, FILE *report)
{
	if (reload->verbose)
		fresh->log_level = LOG_DEBUG;
	if (fresh->max_connections <= reload->connections_allowed)
		return;
	if (reload->settings->max_connections != reload->connections_allowed)
		fprintf(report, "max_connections is lowered from %lld to %lld: the limit of descriptors allows no more, and a "
		    "connection may need two (raise LimitNOFILE or ulimit -n)\n", (long long)fresh->max_connections,
		    (long long)reload->connections_allowed);
	fresh->max_connections = reload->connections_allowed;
}

int
reload_apply(const struct reload *reload, FILE *report, struct reload_changes *changes)
{
	struct settings fresh;
	struct comparison c = { reload, &fresh, report, changes };

	memset(changes, 0, sizeof(*changes));
	if (check_source(reload->path, report) != 0 || settings_read(reload->path, &fresh, report) != 0)
		return -1;
	if (!same_topics(reload->settings, &fresh) && settings_check_data(&fresh, reload->path, report, report) != 0) {
		settings_free(&fresh);
		return -1;
	}
	adapt(reload, &fresh, report);
	compare_broker(&c);
	compare_log(&c);
	compare_topics(&c);
	take_log(&c);
	settings_free(&fresh);
	if (changes->at_once + changes->with_workers + changes->with_service == 0)
		fprintf(report, "nothing has changed\n");
	reload->setup->log_level = reload->settings->log_level;
	if (changes->with_workers > 0)
		reload->setup->generation++;
	if (reload->applied != NULL && changes->at_once + changes->with_workers > 0)
		reload->applied(reload->context);
	return 0;
}
