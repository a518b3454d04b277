/*
 * The settings against what lies in data_dir: which partitions are there that the configuration would lose or does
 * not know. Reads names of directories and files only; changes nothing and knows no configuration text.
 */
#include "supervisor/settings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BASE_OFFSET_DIGITS = 20 };

/* A directory with a segment in it that no configured partition owns. */
struct stray {
	char topic[CODEC_TOPIC_NAME_MAX + 1];
	int32_t partition;
	int line;		/* the topic's, or 0 when nobody names it */
	int unreadable;		/* errno, or 0 */
};

struct strays {
	struct stray *list;
	size_t count;
	size_t room;
};

/* Takes "<topic>-<partition>" apart. Returns false when it is not the name of a partition's directory. */
static bool
parse_directory(const char *name, struct stray *found)
{
	const char *dash = strrchr(name, '-'), *digits;
	size_t length = dash == NULL ? 0 : (size_t)(dash - name);

	if (dash == NULL || !codec_topic_name_valid(name, length))
		return false;
	digits = dash + 1;
	if (strlen(digits) < 1 || strlen(digits) > 5 || strspn(digits, "0123456789") != strlen(digits))
		return false;
	if (digits[0] == '0' && digits[1] != '\0')
		return false;
	memset(found, 0, sizeof(*found));
	memcpy(found->topic, name, length);
	for (; *digits != '\0'; digits++)
		found->partition = found->partition * 10 + (*digits - '0');
	return found->partition < TOPICS_PARTITIONS_MAX;
}

static bool
is_segment(const char *name)
{
	return strspn(name, "0123456789") == BASE_OFFSET_DIGITS && strcmp(name + BASE_OFFSET_DIGITS, ".log") == 0;
}

/* Is a segment in directory `name` of `parent`? 1 or 0; -1 with errno when that cannot be seen. */
static int
holds_segment(int parent, const char *name)
{
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *entry;
	int found = 0;
	DIR *dir;

	if (fd < 0)
		return errno == ENOTDIR || errno == ENOENT || errno == ELOOP ? 0 : -1;
	dir = fdopendir(fd);
	if (dir == NULL) {
		close(fd);
		return -1;
	}
	errno = 0;
	while (found == 0 && (entry = readdir(dir)) != NULL)
		found = is_segment(entry->d_name);
	if (found == 0 && errno != 0)
		found = -1;
	closedir(dir);
	return found;
}

static int
compare_name_to_topic(const void *name, const void *topic)
{
	return strcmp(name, ((const struct settings_topic *)topic)->name);
}

static const struct settings_topic *
find_topic(const struct settings *settings, const char *name)
{
	if (settings->topic_count == 0)
		return NULL;
	return bsearch(name, settings->topics, (size_t)settings->topic_count, sizeof(*settings->topics),
	    compare_name_to_topic);
}

static int
add_stray(struct strays *strays, const struct stray *found)
{
	size_t room = strays->room == 0 ? 16 : 2 * strays->room;
	struct stray *list = strays->list;

	if (strays->count == strays->room) {
		list = reallocarray(list, room, sizeof(*list));
		if (list == NULL)
			return -1;
		strays->list = list;
		strays->room = room;
	}
	list[strays->count++] = *found;
	return 0;
}

/* Adds what directory entry `name` is, when it is a stray. Returns 0, or -1 without memory. */
static int
look_at(const struct settings *settings, struct strays *strays, int parent, const char *name)
{
	const struct settings_topic *topic;
	struct stray found;
	int held;

	if (!parse_directory(name, &found))
		return 0;
	topic = find_topic(settings, found.topic);
	if (topic != NULL && found.partition < topic->partition_count)
		return 0;
	held = holds_segment(parent, name);
	if (held == 0)
		return 0;
	found.line = topic == NULL ? 0 : topic->line;
	if (held < 0)
		found.unreadable = errno;
	return add_stray(strays, &found);
}

/* Collects all strays of data_dir. Returns 0, or -1 with errno. */
static int
look_around(const struct settings *settings, struct strays *strays)
{
	DIR *dir = opendir(settings->data_dir);
	struct dirent *entry;
	int error = 0;

	if (dir == NULL)
		return errno == ENOENT ? 0 : -1;
	for (;;) {
		errno = 0;
		entry = readdir(dir);
		if (entry == NULL) {
			error = errno;
			break;
		}
		if (look_at(settings, strays, dirfd(dir), entry->d_name) < 0) {
			error = errno;
			break;
		}
	}
	closedir(dir);
	errno = error;
	return error == 0 ? 0 : -1;
}

/* In the order of lines, a topic's together and its last partition last. */
static int
compare_strays(const void *a, const void *b)
{
	const struct stray *x = a, *y = b;
	int order = x->line != y->line ? (x->line > y->line) - (x->line < y->line) : strcmp(x->topic, y->topic);

	return order != 0 ? order : (x->partition > y->partition) - (x->partition < y->partition);
}

/* `highest` is the last of a topic's `count` strays. Returns -1 when the configuration must be refused, else 0. */
static int
tell_topic(const struct settings *settings, const char *path, const struct stray *highest, size_t count, FILE *errors,
    FILE *warnings)
{
	const struct settings_topic *topic = find_topic(settings, highest->topic);
	const char *data_dir = settings->data_dir;

	if (topic == NULL) {
		fprintf(warnings, "topic '%s' is on disk (%zu partition%s, the last in %s/%s-%d) and not in [topics] of %s: "
		    "left alone (add it there to serve it)\n", highest->topic, count, count == 1 ? "" : "s", data_dir,
		    highest->topic, highest->partition, path);
		return 0;
	}
	fprintf(errors, "%s:%d: %s: fewer partitions than on disk, %d are configured and %s/%s-%d ", path, topic->line,
	    topic->name, topic->partition_count, data_dir, topic->name, highest->partition);
	if (highest->unreadable != 0)
		fprintf(errors, "cannot be read: %s ", strerror(highest->unreadable));
	else
		fprintf(errors, "is there ");
	fprintf(errors, "(set it to %d or more, or move the directories from %s-%d on away)\n", highest->partition + 1,
	    topic->name, topic->partition_count);
	return -1;
}

int
settings_check_data(const struct settings *settings, const char *path, FILE *errors, FILE *warnings)
{
	struct strays strays = { 0 };
	int result = 0;
	size_t first = 0;

	if (look_around(settings, &strays) < 0) {
		fprintf(errors, "%s: data_dir: '%s' cannot be read: %s\n", path, settings->data_dir, strerror(errno));
		free(strays.list);
		return -1;
	}
	if (strays.count > 0)
		qsort(strays.list, strays.count, sizeof(*strays.list), compare_strays);
	for (size_t i = 0; i < strays.count; i++) {
		if (i + 1 < strays.count && strcmp(strays.list[i].topic, strays.list[i + 1].topic) == 0)
			continue;
		if (tell_topic(settings, path, &strays.list[i], i + 1 - first, errors, warnings) < 0)
			result = -1;
		first = i + 1;
	}
	free(strays.list);
	return result;
}
