/* The lock on a data directory as a file, see lockfile.h. */
#include "common/lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/topics.h"

enum {
	LINES_MAX = 1 + LOCKFILE_LINES_OF_WORKER * TOPICS_GROUPS_MAX,
	LOCK_TRIES = 20,		/* the holder may be writing the file this very moment */
	LOCK_PAUSE_MS = 50,
	NAMED_MAX = 8,
	NAME_BYTES = 32,		/* of a process; the kernel keeps 15 characters */
};

int
lockfile_open(const char *data_dir, int flags, char *path)
{
	if (snprintf(path, PATH_MAX, "%s/lock", data_dir) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	return open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640);
}

int
lockfile_is_held(int fd)
{
	if (flock(fd, LOCK_SH | LOCK_NB) == -1)
		return errno == EWOULDBLOCK ? 1 : -1;
	return flock(fd, LOCK_UN);
}

/* Processes that have been killed hold their lock until they are gone: that takes a moment, and is no other broker. */
int
lockfile_lock(int fd)
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

/* The name may have been given to another file between open and flock. */
bool
lockfile_is_named(int fd, const char *path)
{
	struct stat held, named;

	return fstat(fd, &held) == 0 && lstat(path, &named) == 0 && S_ISREG(held.st_mode) &&
	    held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

static int
write_line(int fd, int line)
{
	char text[LOCKFILE_LINE_BYTES + 1];

	snprintf(text, sizeof(text), "%-31d\n", (int)getpid());
	return pwrite(fd, text, LOCKFILE_LINE_BYTES, (off_t)LOCKFILE_LINE_BYTES * line) < 0 ? -1 : 0;
}

/* Returns 0, or -1 when the file ends before it. */
static int
read_line(int fd, int line, pid_t *pid)
{
	char text[LOCKFILE_LINE_BYTES + 1] = "";

	if (pread(fd, text, LOCKFILE_LINE_BYTES, (off_t)LOCKFILE_LINE_BYTES * line) != LOCKFILE_LINE_BYTES)
		return -1;
	*pid = (pid_t)strtol(text, NULL, 10);
	return 0;
}

/* The name of the program that the pid runs, if it runs (a zombie does not). */
static bool
read_name(pid_t pid, char *name)
{
	char path[64], line[512], state = 'X';
	char *begin, *end;
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
	begin = strchr(line, '(');	/* "pid (name) state ..."; the name may hold anything */
	end = strrchr(line, ')');
	if (begin == NULL || end == NULL || sscanf(end + 1, " %c", &state) != 1 || state == 'Z' || state == 'X')
		return false;
	*end = '\0';
	snprintf(name, NAME_BYTES, "%.*s", NAME_BYTES - 1, begin + 1);
	return true;
}

/* Can it be one of those who take this lock? A pid in the file may belong to anything by now. */
static bool
holder_runs(pid_t pid, char *name)
{
	return pid > 0 && read_name(pid, name) && (strcmp(name, "logsupervisor") == 0 ||
	    strcmp(name, "logworker") == 0 || strcmp(name, "logbroker") == 0);
}

int
lockfile_sign(int fd)
{
	return write_line(fd, 0);
}

int
lockfile_sign_worker(int fd, int number)
{
	int line = 1 + LOCKFILE_LINES_OF_WORKER * number;
	int last = line + LOCKFILE_LINES_OF_WORKER - 1;
	char name[NAME_BYTES];
	pid_t pid;

	/* When all of them seem to run, one is a stranger with a dead one's pid. */
	while (line < last && read_line(fd, line, &pid) == 0 && pid != getpid() && holder_runs(pid, name))
		line++;
	return write_line(fd, line);
}

/* Appends "123 supervisor" or "124 worker 0" for line `line`; returns the new end of the text. */
static char *
append_holder(char *to, char *end, long pid, const char *name, int line, int named)
{
	const char *before = named > 0 ? ", " : "";
	int n;

	if (named >= NAMED_MAX)
		n = snprintf(to, (size_t)(end - to), "%s", named == NAMED_MAX ? ", and more" : "");
	else if (strcmp(name, "logbroker") == 0)
		n = snprintf(to, (size_t)(end - to), "%s%ld logbroker", before, pid);
	else if (line == 0)
		n = snprintf(to, (size_t)(end - to), "%s%ld supervisor", before, pid);
	else
		n = snprintf(to, (size_t)(end - to), "%s%ld worker %d", before, pid,
		    (line - 1) / LOCKFILE_LINES_OF_WORKER);
	return n < end - to ? to + n : to;
}

int
lockfile_holders(int fd, char *names, size_t size)
{
	char name[NAME_BYTES];
	char *to = names, *end = names + size;
	int running = 0;
	pid_t pid;

	*names = '\0';
	for (int line = 0; line < LINES_MAX && read_line(fd, line, &pid) == 0; line++)
		if (holder_runs(pid, name))
			to = append_holder(to, end, (long)pid, name, line, running++);
	return running;
}
