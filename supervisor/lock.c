/* Taking the data directory's lock, and naming who holds it; see lock.h. */
#include "supervisor/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/topics.h"

enum {
	LINES_MAX = 1 + TOPICS_GROUPS_MAX,	/* the supervisor's and one for each worker */
	LOCK_TRIES = 20,		/* the holder may be writing the file this very moment */
	LOCK_PAUSE_MS = 50,
	NAMED_MAX = 8,
};

/*
 * Forces the name of the data directory, at each start: it may have been made just before a crash of an earlier one, and
 * every acknowledgement with FORCED rests on it. A parent that cannot be opened for reading is forced with all of its
 * file system.
 */
static int
force_name(const char *data_dir)
{
	int directory = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int parent = directory < 0 ? -1 : openat(directory, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int result = -1;

	if (parent >= 0)
		result = fsync(parent);
	else if (directory >= 0 && errno == EACCES)
		result = syncfs(directory);
	/* A mounted file system below one that cannot be written: its root needs no name. */
	if (result != 0 && parent >= 0 && (errno == EINVAL || errno == EROFS))
		result = 0;
	if (result != 0)
		log_error("cannot force the name of the data directory %s to the disk: %s", data_dir, strerror(errno));
	if (parent >= 0)
		close(parent);
	if (directory >= 0)
		close(directory);
	return result;
}

static int
make_directory(struct lock *lock, const char *data_dir)
{
	if (mkdir(data_dir, 0750) == 0)
		log_info("created the data directory %s", data_dir);
	else if (errno != EEXIST) {
		log_error("cannot create the data directory %s: %s%s", data_dir, strerror(errno),
		    errno == ENOENT ? " (its parent must exist)" : "");
		return -1;
	}
	if (realpath(data_dir, lock->data_dir) == NULL) {
		log_error("cannot use the data directory %s: %s", data_dir, strerror(errno));
		return -1;
	}
	return force_name(lock->data_dir);
}

/* True when the pid belongs to a running process (a zombie does not run) that can be one of a broker's. */
static bool
broker_runs(pid_t pid)
{
	char path[64], line[512], state = 'X';
	char *name, *end;
	FILE *file;
	bool read;

	snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	read = fgets(line, sizeof(line), file) != NULL;
	fclose(file);
	if (!read)
		return false;
	name = strchr(line, '(');	/* "pid (name) state ..."; the name may hold anything */
	end = strrchr(line, ')');
	if (name == NULL || end == NULL || sscanf(end + 1, " %c", &state) != 1)
		return false;
	*end = '\0';
	if (state == 'Z' || state == 'X')
		return false;
	return strcmp(name + 1, "logsupervisor") == 0 || strcmp(name + 1, "logworker") == 0;
}

/* Appends "123 supervisor" or "124 worker 0" for line `number`; returns the new end of the text. */
static char *
append_holder(char *to, char *end, long pid, int number, int named)
{
	const char *before = named > 0 ? ", " : "";
	int n;

	if (named >= NAMED_MAX)
		n = snprintf(to, (size_t)(end - to), "%s", named == NAMED_MAX ? ", and more" : "");
	else if (number == 0)
		n = snprintf(to, (size_t)(end - to), "%s%ld supervisor", before, pid);
	else
		n = snprintf(to, (size_t)(end - to), "%s%ld worker %d", before, pid, number - 1);
	return n < end - to ? to + n : to;
}

/* Names those in the file that still run; returns their number. */
static int
name_holders(int fd, char *names, size_t size)
{
	char line[LOCK_LINE_BYTES + 1] = "";
	char *to = names, *end = names + size;
	int running = 0;

	*names = '\0';
	for (int i = 0; i < LINES_MAX; i++) {
		long pid;

		if (pread(fd, line, LOCK_LINE_BYTES, (off_t)i * LOCK_LINE_BYTES) != LOCK_LINE_BYTES)
			break;
		pid = strtol(line, NULL, 10);
		if (pid > 0 && broker_runs((pid_t)pid))
			to = append_holder(to, end, pid, i, running++);
	}
	return running;
}

static void
report_holder(const struct lock *lock, int fd)
{
	char names[512];

	if (name_holders(fd, names, sizeof(names)) > 0)
		log_error("the data directory %s is in use by another broker: pid %s still running; stop it, or wait until its "
		    "workers have finished", lock->data_dir, names);
	else
		log_error("the data directory %s is in use: some process holds %s/lock and its pid is not in there (fuser "
		    "-v %s/lock names it)", lock->data_dir, lock->data_dir, lock->data_dir);
}

/* Processes that have been killed hold their lock until they are gone: that takes a moment, and is no other broker. */
static int
lock_file(int fd)
{
	static const struct timespec pause = { 0, LOCK_PAUSE_MS * 1000000L };

	for (int i = 0; i < LOCK_TRIES; i++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK)
			return -1;
		nanosleep(&pause, NULL);
	}
	errno = EWOULDBLOCK;
	return -1;
}

static int
open_file(const struct lock *lock, char *path, size_t size)
{
	int fd;

	if ((size_t)snprintf(path, size, "%s/lock", lock->data_dir) >= size) {
		errno = ENAMETOOLONG;
		return -1;
	}
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640);
	return fd;
}

/* The name may have been given to another file between open and flock: then the lock on the old one is worthless. */
static bool
is_file(int fd, const char *path)
{
	struct stat held, named;

	return fstat(fd, &held) == 0 && lstat(path, &named) == 0 && S_ISREG(held.st_mode) &&
	    held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

/* What an earlier broker has left goes first. A hint only, so that a full disk does not keep the broker from starting. */
static void
write_own_line(const struct lock *lock)
{
	char line[LOCK_LINE_BYTES + 1];

	snprintf(line, sizeof(line), "%-31d\n", (int)getpid());
	if (ftruncate(lock->descriptor, 0) != 0 || pwrite(lock->descriptor, line, LOCK_LINE_BYTES, 0) != LOCK_LINE_BYTES)
		log_warning("cannot write the pid into %s/lock: %s", lock->data_dir, strerror(errno));
}

enum lock_result
lock_take(struct lock *lock, const char *data_dir)
{
	char path[PATH_MAX];
	int fd;

	lock->descriptor = -1;
	if (make_directory(lock, data_dir) != 0)
		return LOCK_FAILED;
	fd = open_file(lock, path, sizeof(path));
	if (fd < 0) {
		log_error("cannot open %s/lock: %s", lock->data_dir, strerror(errno));
		return LOCK_FAILED;
	}
	if (lock_file(fd) != 0) {
		enum lock_result result = errno == EWOULDBLOCK ? LOCK_HELD : LOCK_FAILED;

		if (result == LOCK_HELD)
			report_holder(lock, fd);
		else
			log_error("cannot lock %s: %s", path, strerror(errno));
		close(fd);
		return result;
	}
	if (!is_file(fd, path)) {
		log_error("cannot use %s as lock: it is not a regular file, or was replaced just now", path);
		close(fd);
		return LOCK_FAILED;
	}
	lock->descriptor = fd;
	write_own_line(lock);
	return LOCK_TAKEN;
}

void
lock_free(struct lock *lock)
{
	if (lock->descriptor >= 0)
		close(lock->descriptor);
	lock->descriptor = -1;
}
