/*
 * Checkpoint files: text, so that a person may read one and move a position.
 *
 *   logbroker checkpoint 1
 *   topic NAME
 *   partition NUMBER OFFSET        one for each partition of which a position is kept, ascending
 *   end
 *
 * OFFSET is the next one to read. Each line ends with a newline, and words are separated by one blank.
 *
 * The lock is an flock on the file itself. Saving renames a new file over it, which is locked ahead of that: the name never
 * stands for a file that is not locked. Who gets the lock on a file that has lost its name meanwhile begins again. Of two that
 * make the first file at a time, the one comes too late that finds the new file locked, or already in its place.
 */
#include "client/checkpoint.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tool.h"

enum { PARTITION_MAX = 99998, LINE_BYTES = 320 };

static const char first_line[] = "logbroker checkpoint 1";

/* ---- positions ---- */

int64_t
checkpoint_get(const struct checkpoint *checkpoint, int32_t partition)
{
	return partition < checkpoint->count ? checkpoint->next[partition] : -1;
}

int
checkpoint_set(struct checkpoint *checkpoint, int32_t partition, int64_t next)
{
	int32_t count = checkpoint->count;
	int64_t *grown;

	if (partition >= count) {
		count = partition < 16 ? 16 : partition * 2 + 1;
		grown = reallocarray(checkpoint->next, (size_t)count, sizeof(*grown));
		if (grown == NULL) {
			tool_say("out of memory");
			return -1;
		}
		for (int32_t i = checkpoint->count; i < count; i++)
			grown[i] = -1;
		checkpoint->next = grown;
		checkpoint->count = count;
	}
	checkpoint->next[partition] = next;
	return 0;
}

bool
checkpoint_is_empty(const struct checkpoint *checkpoint)
{
	for (int32_t i = 0; i < checkpoint->count; i++)
		if (checkpoint->next[i] >= 0)
			return false;
	return true;
}

/* ---- reading ---- */

static int
say_wrong(const struct checkpoint *checkpoint, int line, const char *what)
{
	if (line > 0)
		tool_say("%s:%d: %s; this is no checkpoint of logbroker(1), or a damaged one", checkpoint->path, line, what);
	else
		tool_say("%s: %s", checkpoint->path, what);
	return TOOL_USAGE;
}

/* Digits up to `end`, which is what *text stands behind afterwards. False: there are none, or too large a number. */
static bool
take_number(const char **text, char end, int64_t max, int64_t *number)
{
	char *behind;

	errno = 0;
	*number = strtoll(*text, &behind, 10);
	if ((*text)[0] < '0' || (*text)[0] > '9' || errno != 0 || *number > max || *behind != end)
		return false;
	*text = end == '\0' ? behind : behind + 1;
	return true;
}

static int
take_position(struct checkpoint *checkpoint, int number, const char *text)
{
	int64_t partition, next;

	if (!take_number(&text, ' ', PARTITION_MAX, &partition) || !take_number(&text, '\0', INT64_MAX - 1, &next))
		return say_wrong(checkpoint, number, "a partition's number and an offset must stand here");
	if (checkpoint_get(checkpoint, (int32_t)partition) >= 0)
		return say_wrong(checkpoint, number, "a second position of one partition");
	return checkpoint_set(checkpoint, (int32_t)partition, next) == 0 ? TOOL_DONE : TOOL_INTERNAL;
}

static int
take_topic(struct checkpoint *checkpoint, int number, const char *line, const char *wanted)
{
	const char *name = line + strlen("topic ");

	if (strncmp(line, "topic ", strlen("topic ")) != 0 || !lb_topic_name_valid(name))
		return say_wrong(checkpoint, number, "a topic must stand here");
	if (wanted != NULL && strcmp(wanted, name) != 0) {
		tool_say("%s is a checkpoint of the topic %s, not of %s", checkpoint->path, name, wanted);
		return TOOL_USAGE;
	}
	memcpy(checkpoint->topic, name, strlen(name) + 1);
	return TOOL_DONE;
}

/* One line without its newline. */
static int
take_line(struct checkpoint *checkpoint, int number, const char *line, const char *topic, bool *ended)
{
	if (*ended)
		return say_wrong(checkpoint, number, "something behind the end");
	if (number == 1)
		return strcmp(line, first_line) == 0 ? TOOL_DONE : say_wrong(checkpoint, number, "not 'logbroker checkpoint 1'");
	if (number == 2)
		return take_topic(checkpoint, number, line, topic);
	*ended = strcmp(line, "end") == 0;
	if (*ended)
		return TOOL_DONE;
	if (strncmp(line, "partition ", strlen("partition ")) != 0)
		return say_wrong(checkpoint, number, "'partition' or 'end' must stand here");
	return take_position(checkpoint, number, line + strlen("partition "));
}

/* A directory, or what may not be read, is the user's mistake. */
static int
cannot_read(const struct checkpoint *checkpoint)
{
	int error = errno;

	tool_say("%s: %s", checkpoint->path, strerror(error));
	return error == EIO ? TOOL_INTERNAL : TOOL_USAGE;
}

static int
take_lines(struct checkpoint *checkpoint, FILE *file, const char *topic)
{
	char line[LINE_BYTES];
	bool ended = false;
	int number = 0, result = TOOL_DONE;

	while (result == TOOL_DONE && fgets(line, sizeof(line), file) != NULL) {
		size_t length = strcspn(line, "\n");

		number++;
		if (line[length] != '\n')
			return say_wrong(checkpoint, number, "a line that is too long, or without its newline");
		line[length] = '\0';
		result = take_line(checkpoint, number, line, topic, &ended);
	}
	if (ferror(file))
		return cannot_read(checkpoint);
	if (result == TOOL_DONE && !ended)
		return say_wrong(checkpoint, number + 1, "the end is missing");
	return result;
}

/* `fd` stays the caller's. */
static int
read_from(struct checkpoint *checkpoint, int fd, const char *topic)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	FILE *file = copy < 0 ? NULL : fdopen(copy, "r");
	int result;

	if (file == NULL) {
		tool_say("%s: %s", checkpoint->path, strerror(errno));
		if (copy >= 0)
			close(copy);
		return TOOL_INTERNAL;
	}
	result = take_lines(checkpoint, file, topic);
	fclose(file);
	return result;
}

static void
init(struct checkpoint *checkpoint, const char *path, const char *topic)
{
	*checkpoint = (struct checkpoint){ .path = path, .fd = -1 };
	if (topic != NULL)
		snprintf(checkpoint->topic, sizeof(checkpoint->topic), "%s", topic);
}

int
checkpoint_read(struct checkpoint *checkpoint, const char *path, const char *topic)
{
	int fd, result;

	init(checkpoint, path, topic);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0 && errno == ENOENT && topic != NULL)
		return TOOL_DONE;
	if (fd < 0)
		return cannot_read(checkpoint);
	result = read_from(checkpoint, fd, topic);
	close(fd);
	return result;
}

/* ---- locking and saving ---- */

static bool
is_named(int fd, const char *path)
{
	struct stat open_one, named;

	return fstat(fd, &open_one) == 0 && stat(path, &named) == 0 && open_one.st_ino == named.st_ino &&
	    open_one.st_dev == named.st_dev;
}

static int
lock(int fd, int how)
{
	int result;

	do
		result = flock(fd, how);
	while (result != 0 && errno == EINTR);
	return result;
}

/* Opens what is at `path` and locks it, `how` as flock has it. -1 with errno; EWOULDBLOCK: somebody else has it. */
static int
open_locked(const char *path, int flags, int how)
{
	for (;;) {
		int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666);
		int error;

		if (fd < 0)
			return -1;
		if (lock(fd, how) != 0) {
			error = errno;
			close(fd);
			errno = error;
			return -1;
		}
		if (is_named(fd, path))
			return fd;
		close(fd);
	}
}

static int
write_all(int fd, const struct checkpoint *checkpoint)
{
	FILE *file;
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	bool good;

	if (copy < 0 || ftruncate(fd, 0) != 0 || (file = fdopen(copy, "w")) == NULL) {
		if (copy >= 0)
			close(copy);
		return -1;
	}
	fprintf(file, "%s\ntopic %s\n", first_line, checkpoint->topic);
	for (int32_t i = 0; i < checkpoint->count; i++)
		if (checkpoint->next[i] >= 0)
			fprintf(file, "partition %d %" PRId64 "\n", i, checkpoint->next[i]);
	fprintf(file, "end\n");
	good = fflush(file) == 0 && fsync(fd) == 0;
	return fclose(file) == 0 && good ? 0 : -1;
}

static int
force_directory_of(const char *path)
{
	const char *slash = strrchr(path, '/');
	char directory[PATH_MAX];
	int fd, result;

	if (slash == NULL)
		snprintf(directory, sizeof(directory), ".");
	else
		snprintf(directory, sizeof(directory), "%.*s", slash == path ? 1 : (int)(slash - path), path);
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	result = fsync(fd);
	close(fd);
	return result;
}

/* Has somebody else made the file that we did not find? Asked with the lock on the new one, so it cannot come later. */
static bool
is_late(const struct checkpoint *checkpoint)
{
	return checkpoint->fd < 0 && access(checkpoint->path, F_OK) == 0;
}

/* The new file, locked and renamed over the old one; -1 with errno, EWOULDBLOCK: somebody else does that. */
static int
replace(const struct checkpoint *checkpoint)
{
	char beside[PATH_MAX];
	int fd, error;

	if (snprintf(beside, sizeof(beside), "%s.new", checkpoint->path) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	/* Who has the file's lock waits for one that is late, and will see it. */
	fd = open_locked(beside, O_RDWR | O_CREAT, checkpoint->fd >= 0 ? LOCK_EX : LOCK_EX | LOCK_NB);
	if (fd < 0)
		return -1;
	if (is_late(checkpoint))
		errno = EWOULDBLOCK;
	else if (write_all(fd, checkpoint) == 0 && rename(beside, checkpoint->path) == 0 && force_directory_of(beside) == 0)
		return fd;
	error = errno;
	unlink(beside);
	close(fd);
	errno = error;
	return -1;
}

static int
busy(const struct checkpoint *checkpoint)
{
	tool_say("%s: another logbroker reads with this checkpoint", checkpoint->path);
	return TOOL_BUSY;
}

/* Returns an enum tool_exit. */
static int
keep(struct checkpoint *checkpoint)
{
	int fd = replace(checkpoint);

	if (fd < 0 && errno == EWOULDBLOCK)
		return busy(checkpoint);
	if (fd < 0) {
		tool_say("%s: the position cannot be kept: %s", checkpoint->path, strerror(errno));
		return TOOL_INTERNAL;
	}
	if (checkpoint->fd >= 0)
		close(checkpoint->fd);
	checkpoint->fd = fd;
	return TOOL_DONE;
}

int
checkpoint_save(struct checkpoint *checkpoint)
{
	return keep(checkpoint) == TOOL_DONE ? 0 : -1;
}

int
checkpoint_open(struct checkpoint *checkpoint, const char *path, const char *topic)
{
	int result = TOOL_DONE;

	init(checkpoint, path, topic);
	checkpoint->fd = open_locked(path, O_RDONLY, LOCK_EX | LOCK_NB);
	if (checkpoint->fd < 0 && errno == EWOULDBLOCK)
		return busy(checkpoint);
	if (checkpoint->fd < 0 && errno != ENOENT)
		return cannot_read(checkpoint);
	if (checkpoint->fd >= 0)
		result = read_from(checkpoint, checkpoint->fd, topic);
	return result == TOOL_DONE ? keep(checkpoint) : result;
}

void
checkpoint_close(struct checkpoint *checkpoint)
{
	free(checkpoint->next);
	if (checkpoint->fd >= 0)
		close(checkpoint->fd);
	checkpoint->next = NULL;
	checkpoint->count = 0;
	checkpoint->fd = -1;
}
