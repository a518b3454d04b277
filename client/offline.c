/* Paths of the offline verbs, and the lock. */
#include "client/offline.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/tool.h"
#include "common/codec.h"
#include "common/lockfile.h"
#include "common/topics.h"
#include "worker/segment.h"

/* Does a directory of that name hold a partition? Stores its number. */
static bool
parse_partition(const char *name, int32_t *number)
{
	const char *dash = strrchr(name, '-');
	size_t digits = dash == NULL ? 0 : strspn(dash + 1, "0123456789");

	if (digits == 0 || digits > 5 || dash[1 + digits] != '\0' || (dash[1] == '0' && digits > 1))
		return false;
	*number = (int32_t)strtol(dash + 1, NULL, 10);
	return *number < TOPICS_PARTITIONS_MAX && codec_topic_name_valid(name, (size_t)(dash - name));
}

static const char *
last_component(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash == NULL ? path : slash + 1;
}

/* The directory that a path is written to lie in. */
static void
parent_of(const char *path, char *to)
{
	const char *name = last_component(path);

	if (name == path)
		snprintf(to, PATH_MAX, ".");
	else if (name - 1 == path)
		snprintf(to, PATH_MAX, "/");
	else
		snprintf(to, PATH_MAX, "%.*s", (int)(name - 1 - path), path);
}

/* ---- what a path names ---- */

static int
cannot_use(const char *path, const char *why)
{
	tool_say("%s: %s", path, why);
	return TOOL_USAGE;
}

/* What stands in a directory that a path names. */
struct content {
	bool segments;
	bool logs;	/* a partition's directory with a segment in it: there are others with such names */
	bool lock;
};

static bool
is_segments_name(const char *name)
{
	return segment_parse_base(name) != -1 && strcmp(name + SEGMENT_BASE_DIGITS, ".log") == 0;
}

static bool
holds_segment(int parent_fd, const char *name)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd == -1 ? NULL : fdopendir(fd);
	struct dirent *entry;
	bool holds = false;

	if (dir == NULL) {
		if (fd != -1)
			close(fd);
		return false;
	}
	while (!holds && (entry = readdir(dir)) != NULL)
		holds = is_segments_name(entry->d_name);
	closedir(dir);
	return holds;
}

static int
add_partition(struct offline *offline, const char *name)
{
	char **grown = offline->partitions;

	/* The array grows when the count is a power of two (0 and 1 are). */
	if ((offline->count & (offline->count - 1)) == 0)
		grown = realloc(grown, (offline->count == 0 ? 1 : offline->count * 2) * sizeof(*grown));
	if (grown == NULL)
		return -1;
	offline->partitions = grown;
	grown[offline->count] = strdup(name);
	return grown[offline->count] == NULL ? -1 : (offline->count++, 0);
}

static int
note_entry(struct offline *offline, struct content *content, int dir_fd, const char *name)
{
	struct stat st;
	int32_t number;

	if (fstatat(dir_fd, name, &st, 0) == -1)
		return 0;	/* a link that leads nowhere, or gone */
	if (S_ISDIR(st.st_mode) && parse_partition(name, &number)) {
		content->logs = content->logs || holds_segment(dir_fd, name);
		return add_partition(offline, name);
	}
	content->lock |= S_ISREG(st.st_mode) && strcmp(name, "lock") == 0;
	content->segments |= S_ISREG(st.st_mode) && is_segments_name(name);
	return 0;
}

static int
compare_names(const void *a, const void *b)
{
	const char *left = *(char *const *)a, *right = *(char *const *)b;
	int32_t left_number = 0, right_number = 0;
	size_t left_topic = (size_t)(strrchr(left, '-') - left), right_topic = (size_t)(strrchr(right, '-') - right);
	int order = memcmp(left, right, left_topic < right_topic ? left_topic : right_topic);

	parse_partition(left, &left_number);
	parse_partition(right, &right_number);
	if (order == 0)
		order = (left_topic > right_topic) - (left_topic < right_topic);
	return order != 0 ? order : (left_number > right_number) - (left_number < right_number);
}

static int
read_content(struct offline *offline, struct content *content)
{
	DIR *dir = opendir(offline->path);
	struct dirent *entry;
	int done = 0;

	if (dir == NULL)
		return -1;
	while (done == 0 && (errno = 0, entry = readdir(dir)) != NULL)
		done = note_entry(offline, content, dirfd(dir), entry->d_name);
	if (errno != 0)
		done = -1;
	closedir(dir);
	if (offline->count > 0)
		qsort(offline->partitions, offline->count, sizeof(*offline->partitions), compare_names);
	return done;
}

/* Is the directory by its own name a partition's? Also when it is called ".". */
static bool
has_partitions_name(const char *path)
{
	char real[PATH_MAX];
	int32_t number;

	return parse_partition(last_component(path), &number)
	    || (realpath(path, real) != NULL && parse_partition(last_component(real), &number));
}

static int
open_directory(struct offline *offline)
{
	struct content content = { 0 };

	if (read_content(offline, &content) == -1)
		return cannot_use(offline->path, strerror(errno));
	if (content.segments && (!content.logs || has_partitions_name(offline->path)))
		offline->kind = OFFLINE_PARTITION;
	else if (content.lock || content.logs)
		offline->kind = OFFLINE_DATA_DIR;
	else if (has_partitions_name(offline->path))
		offline->kind = OFFLINE_PARTITION;
	else
		return cannot_use(offline->path, "neither a data directory nor a partition's: no segment is in it, no "
		    "directory of a partition with one, and no lock");
	return TOOL_DONE;
}

static int
open_file(struct offline *offline)
{
	char real[PATH_MAX];
	const char *name = last_component(offline->path);

	/* The segments beside a link are those beside what it leads to. */
	if (realpath(offline->path, real) == NULL)
		return cannot_use(offline->path, strerror(errno));
	if (strcmp(last_component(real), name) != 0)
		snprintf(offline->path, sizeof(offline->path), "%s", real);
	name = last_component(offline->path);
	offline->base = segment_parse_base(name);
	if (is_segments_name(name))
		offline->kind = OFFLINE_SEGMENT;
	else
		offline->base = -1;
	return TOOL_DONE;
}

int
offline_open(struct offline *offline, const char *path)
{
	size_t length = strlen(path);
	struct stat st;

	*offline = (struct offline){ .kind = OFFLINE_FILE, .base = -1 };
	while (length > 1 && path[length - 1] == '/')
		length--;
	if (length == 0 || length >= PATH_MAX)
		return cannot_use(path, length == 0 ? "an empty path" : strerror(ENAMETOOLONG));
	snprintf(offline->path, sizeof(offline->path), "%.*s", (int)length, path);
	if (stat(offline->path, &st) == -1)
		return cannot_use(path, strerror(errno));
	if (S_ISDIR(st.st_mode))
		return open_directory(offline);
	if (S_ISREG(st.st_mode))
		return open_file(offline);
	return cannot_use(path, "neither a directory nor a regular file");
}

void
offline_free(struct offline *offline)
{
	for (size_t i = 0; i < offline->count; i++)
		free(offline->partitions[i]);
	free(offline->partitions);
}

size_t
offline_logs(const struct offline *offline)
{
	return offline->kind == OFFLINE_DATA_DIR ? offline->count : 1;
}

/* ---- one partition ---- */

/* The path of the partition's directory. Returns 0, or -1 when it is too long. */
static int
path_of(const struct offline *offline, size_t at, char *to)
{
	const char *slash = strcmp(offline->path, "/") == 0 ? "" : "/";
	int length = 0;

	if (offline->kind == OFFLINE_DATA_DIR)
		length = snprintf(to, PATH_MAX, "%s%s%s", offline->path, slash, offline->partitions[at]);
	else if (offline->kind == OFFLINE_PARTITION)
		length = snprintf(to, PATH_MAX, "%s", offline->path);
	else
		parent_of(offline->path, to);
	return length < PATH_MAX ? 0 : -1;
}

static bool
is_same_directory(const char *one, const char *other)
{
	struct stat a, b;

	return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/*
 * The lock is in the directory above: above the one that a link leads to, or the one that the link is in. Mostly these are
 * the same, which then is named as the user has named it.
 */
static void
find_data_dirs(const char *path, struct offline_log *log)
{
	const char *name = last_component(path);
	char above[PATH_MAX];

	if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && name[0] != '\0')
		parent_of(path, log->data_dirs[0]);
	if (snprintf(above, sizeof(above), "%s/..", path) < PATH_MAX && !is_same_directory(log->data_dirs[0], above)
	    && realpath(above, log->data_dirs[1]) == NULL)
		memcpy(log->data_dirs[1], above, sizeof(above));
}

int
offline_open_log(const struct offline *offline, size_t at, struct offline_log *log)
{
	char path[PATH_MAX];

	*log = (struct offline_log){ .dir_fd = -1, .lock_fds = { -1, -1 } };
	if (path_of(offline, at, path) == -1)
		return cannot_use(offline->path, strerror(ENAMETOOLONG));
	log->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (log->dir_fd == -1) {
		tool_say("%s: cannot be opened: %s", path, strerror(errno));
		return TOOL_INTERNAL;
	}
	snprintf(log->path, sizeof(log->path), "%s", path);
	find_data_dirs(path, log);
	return TOOL_DONE;
}

void
offline_close_log(struct offline_log *log)
{
	char path[PATH_MAX];

	for (int i = 0; i < 2; i++) {
		/* Before it is closed. Whoever waits for it sees that it has no name any more. */
		if (log->lock_made[i] && snprintf(path, sizeof(path), "%s/lock", log->data_dirs[i]) < PATH_MAX)
			unlink(path);
		if (log->lock_fds[i] != -1)
			close(log->lock_fds[i]);
	}
	if (log->dir_fd != -1)
		close(log->dir_fd);
}

/* ---- the lock ---- */

/* Opens the lock in one of the data directories. -1: there is none, or errno is not ENOENT. */
static int
open_lock(const struct offline_log *log, int which, int flags, char *path)
{
	if (log->data_dirs[which][0] != '\0')
		return lockfile_open(log->data_dirs[which], flags, path);
	errno = ENOENT;
	return -1;
}

bool
offline_is_running(void *with)
{
	const struct offline_log *log = with;
	char path[PATH_MAX];

	for (int i = 0; i < 2; i++) {
		int fd = open_lock(log, i, O_RDONLY, path);
		int held = fd == -1 ? errno != ENOENT : lockfile_is_held(fd);

		if (fd != -1)
			close(fd);
		if (held != 0)
			return true;
	}
	return false;
}

void
offline_name_holders(const struct offline_log *log, char *names, size_t size)
{
	char path[PATH_MAX];

	names[0] = '\0';
	for (int i = 0; i < 2 && names[0] == '\0'; i++) {
		int fd = open_lock(log, i, O_RDONLY, path);

		if (fd != -1) {
			lockfile_holders(fd, names, size);
			close(fd);
		}
	}
}

static int
cannot_lock(const struct offline_log *log, int which, const char *path)
{
	char names[256];

	if (errno != EWOULDBLOCK) {
		tool_say("%s: cannot lock the data directory: %s", path, strerror(errno));
		return TOOL_INTERNAL;
	}
	lockfile_holders(log->lock_fds[which], names, sizeof(names));
	tool_say("%s: a broker is at work here%s%s; stop it first", path, names[0] == '\0' ? "" : ": pid ", names);
	return TOOL_BUSY;
}

/* A hint for who comes second. A file of that name which no broker has written stays as it is. */
static void
sign_lock(int fd)
{
	char line[LOCKFILE_LINE_BYTES];
	ssize_t n = pread(fd, line, sizeof(line), 0);

	if (n != 0 && (n != (ssize_t)sizeof(line) || line[sizeof(line) - 1] != '\n' || line[0] < '1' || line[0] > '9'))
		return;
	if (ftruncate(fd, 0) == 0)
		lockfile_sign(fd);
}

static int
take_lock(struct offline_log *log, int which)
{
	char path[PATH_MAX];

	log->lock_fds[which] = open_lock(log, which, O_RDWR, path);
	if (log->lock_fds[which] == -1 && errno == ENOENT) {
		log->lock_fds[which] = open_lock(log, which, O_RDWR | O_CREAT, path);
		log->lock_made[which] = log->lock_fds[which] != -1;
	}
	if (log->lock_fds[which] == -1 || lockfile_lock(log->lock_fds[which]) == -1)
		return cannot_lock(log, which, path);
	if (!lockfile_is_named(log->lock_fds[which], path)) {
		tool_say("%s is no regular file, or was replaced just now", path);
		return TOOL_INTERNAL;
	}
	sign_lock(log->lock_fds[which]);
	return TOOL_DONE;
}

int
offline_lock(struct offline_log *log)
{
	int result = TOOL_DONE;

	for (int i = 0; i < 2 && result == TOOL_DONE; i++)
		if (log->data_dirs[i][0] != '\0')
			result = take_lock(log, i);
	return result;
}
