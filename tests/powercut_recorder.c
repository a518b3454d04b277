/* See powercut_recorder.h. The calls themselves are made as such, since libc's names may be ours. */
#include "tests/powercut_recorder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MAPPINGS_MAX = 64, PAGE_BYTES = 4096 };

/* A file's bytes in memory, writable and shared. */
struct mapped {
	uint8_t *at;	/* NULL: unused */
	size_t size;
	uint64_t file;
	int64_t position;
};

static char root[PATH_MAX];	/* empty: nothing is recorded */
static const char *room_file, *fail_file;
static void (*hand_over)(const void *event, size_t bytes);
static struct mapped mappings[MAPPINGS_MAX];
static pthread_mutex_t mappings_mutex = PTHREAD_MUTEX_INITIALIZER;
static int (*real_store)(void *to, const void *from, size_t size);
static int (*real_store_length)(void *to, const uint8_t *word);
static void (*real_publish)(_Atomic int64_t *word, int64_t end);

_Noreturn void
recorder_fail(const char *text)
{
	dprintf(STDERR_FILENO, "powercut: process %d: %s\n", (int)getpid(), text);
	abort();
}

/* ---- events ---- */

static void
tell(const struct powercut_event *head, const void *data, size_t bytes)
{
	size_t size = (sizeof(*head) + bytes + 7) / 8 * 8;
	struct powercut_event *event = calloc(1, size);
	int error = errno;

	if (event == NULL)
		recorder_fail("no memory for an event");
	*event = *head;
	event->bytes = (uint32_t)bytes;
	event->process = (int32_t)getpid();
	event->thread = (int32_t)syscall(SYS_gettid);
	if (bytes > 0)
		memcpy(event->data, data, bytes);
	hand_over(event, size);
	free(event);
	errno = error;
}

static void
tell_name(enum powercut_kind kind, uint64_t file, uint64_t directory, const char *name)
{
	if (strlen(name) >= POWERCUT_NAME_BYTES || strchr(name, '/') != NULL)
		recorder_fail("a name that is too long");
	tell(&(struct powercut_event){ .kind = kind, .file = file, .directory = directory }, name, strlen(name) + 1);
}

/* ---- what lies below the root ---- */

static bool
is_below(const char *path)
{
	size_t length = strlen(root);

	return length > 0 && strncmp(path, root, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

/* The file's path into PATH_MAX bytes, when it lies below the root. errno stays. */
static bool
below_root(int fd, char *path)
{
	char link[64];
	int error = errno;
	ssize_t n;

	if (root[0] == '\0')
		return false;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, PATH_MAX - 1);
	path[n < 0 ? 0 : n] = '\0';
	errno = error;
	return is_below(path);
}

/* The same of a name in a directory, whether there is such a file or not. */
static bool
name_below_root(int dir_fd, const char *name, char *path)
{
	char directory[PATH_MAX], *slash;

	if (root[0] == '\0')
		return false;
	if (name[0] == '/')
		snprintf(path, PATH_MAX, "%s", name);
	else if (dir_fd == AT_FDCWD)
		return false;	/* the broker's working directory lies above */
	else if (!below_root(dir_fd, directory))
		return false;
	else
		snprintf(path, PATH_MAX, "%.2000s/%.2000s", directory, name);
	slash = strrchr(path, '/');
	return is_below(path) && slash != NULL && slash - path >= (ptrdiff_t)strlen(root);
}

static uint64_t
inode_of(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == -1)
		recorder_fail("a descriptor without a file");
	return st.st_ino;
}

/* The directory that holds the path. */
static uint64_t
inode_above(const char *path)
{
	char directory[PATH_MAX];
	struct stat st;

	snprintf(directory, sizeof(directory), "%.*s", (int)(strrchr(path, '/') - path), path);
	if (stat(directory, &st) == -1)
		recorder_fail("a file without a directory");
	return st.st_ino;
}

static const char *
last_of(const char *path)
{
	return strrchr(path, '/') + 1;
}

void
recorder_refuse(int fd, const char *call)
{
	char path[PATH_MAX], text[PATH_MAX + 64];

	if (!below_root(fd, path))
		return;
	snprintf(text, sizeof(text), "%s of %s, which no event can tell", call, path);
	recorder_fail(text);
}

void
recorder_refuse_path(int dir_fd, const char *name, const char *call)
{
	char path[PATH_MAX], text[PATH_MAX + 64];

	if (!name_below_root(dir_fd, name, path))
		return;
	snprintf(text, sizeof(text), "%s of %s, which no event can tell", call, path);
	recorder_fail(text);
}

/* ---- a full disk ---- */

/* Bytes that the files of the directory in which `path` lies may take; -1: any. */
static int64_t
room(void)
{
	char text[32] = "";
	int fd = room_file == NULL ? -1 : (int)syscall(SYS_openat, AT_FDCWD, room_file, O_RDONLY | O_CLOEXEC, 0);
	ssize_t n;

	if (fd == -1)
		return -1;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	return n > 0 ? atoll(text) : -1;
}

static int64_t
taken_beside(const char *path)
{
	char directory[PATH_MAX];
	struct dirent *entry;
	int64_t bytes = 0;
	struct stat st;
	DIR *dir;

	snprintf(directory, sizeof(directory), "%.*s", (int)(strrchr(path, '/') - path), path);
	dir = opendir(directory);
	while (dir != NULL && (entry = readdir(dir)) != NULL)
		if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
			bytes += (int64_t)st.st_blocks * 512;
	if (dir != NULL)
		closedir(dir);
	return bytes;
}

/* How many of the bytes that are to go to that place of the file find room. */
static int64_t
fits(int fd, const char *path, int64_t position, int64_t bytes)
{
	int64_t limit = room(), left, wanted = (position + bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, had;
	struct stat st;

	if (limit == -1 || fstat(fd, &st) == -1)
		return bytes;
	left = limit - taken_beside(path);
	left = left > 0 ? left / PAGE_BYTES * PAGE_BYTES : 0;
	had = (int64_t)st.st_blocks * 512;
	if (wanted - had <= left)
		return bytes;
	return had + left > position ? had + left - position : 0;
}

/* ---- names ---- */

int
recorder_openat(int dir_fd, const char *name, int flags, mode_t mode)
{
	char path[PATH_MAX];
	struct stat st;
	bool changes = (flags & (O_CREAT | O_TRUNC)) != 0 && (flags & O_TMPFILE) != O_TMPFILE
	    && name_below_root(dir_fd, name, path);
	bool there = changes && fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
	int fd = (int)syscall(SYS_openat, dir_fd, name, flags, mode);

	if (fd == -1 || !changes)
		return fd;
	if (!there)
		tell_name(POWERCUT_CREATE, inode_of(fd), inode_above(path), last_of(path));
	else if ((flags & O_TRUNC) != 0)
		tell(&(struct powercut_event){ .kind = POWERCUT_RESIZE, .file = inode_of(fd) }, NULL, 0);
	return fd;
}

int
recorder_mkdirat(int dir_fd, const char *name, mode_t mode)
{
	int done = (int)syscall(SYS_mkdirat, dir_fd, name, mode);
	char path[PATH_MAX];
	struct stat st;

	if (done == 0 && name_below_root(dir_fd, name, path)) {
		if (fstatat(dir_fd, name, &st, 0) == -1)
			recorder_fail("a new directory that is not there");
		tell_name(POWERCUT_DIRECTORY, st.st_ino, inode_above(path), last_of(path));
	}
	return done;
}

int
recorder_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
	char from_path[PATH_MAX], to_path[PATH_MAX], names[2 * POWERCUT_NAME_BYTES];
	bool below = name_below_root(from_fd, from, from_path), to_below = name_below_root(to_fd, to, to_path);
	int done = (int)syscall(SYS_renameat, from_fd, from, to_fd, to);
	size_t length;

	if (done == -1 || (!below && !to_below))
		return done;
	if (!below || !to_below || inode_above(from_path) != inode_above(to_path))
		recorder_fail("a rename from one directory to another");
	length = (size_t)snprintf(names, sizeof(names), "%s%c%s", last_of(from_path), '\0', last_of(to_path)) + 1;
	if (length > sizeof(names))
		recorder_fail("a name that is too long");
	tell(&(struct powercut_event){ .kind = POWERCUT_RENAME, .directory = inode_above(to_path) }, names, length);
	return done;
}

int
recorder_unlinkat(int dir_fd, const char *name, int flags)
{
	char path[PATH_MAX];
	bool below = name_below_root(dir_fd, name, path);
	int done = (int)syscall(SYS_unlinkat, dir_fd, name, flags);

	if (done == 0 && below && flags != 0)
		recorder_fail("a directory that is removed");
	if (done == 0 && below)
		tell_name(POWERCUT_UNLINK, 0, inode_above(path), last_of(path));
	return done;
}

/* ---- contents ---- */

ssize_t
recorder_pwrite(int fd, const void *from, size_t size, off_t position)
{
	char path[PATH_MAX];
	bool below = below_root(fd, path);
	ssize_t n;

	if (below && (fcntl(fd, F_GETFL) & O_APPEND) != 0)
		recorder_fail("a write that appends, wherever it is told to go");
	if (below && size > 0) {
		size = (size_t)fits(fd, path, position, (int64_t)size);
		if (size == 0) {
			errno = ENOSPC;
			return -1;
		}
	}
	n = syscall(SYS_pwrite64, fd, from, size, position);
	if (below && n > 0)
		tell(&(struct powercut_event){ .kind = POWERCUT_WRITE, .file = inode_of(fd), .position = position }, from,
		    (size_t)n);
	return n;
}

int
recorder_ftruncate(int fd, off_t size)
{
	char path[PATH_MAX];
	int done = (int)syscall(SYS_ftruncate, fd, size);

	if (done == 0 && below_root(fd, path))
		tell(&(struct powercut_event){ .kind = POWERCUT_RESIZE, .file = inode_of(fd), .position = size }, NULL, 0);
	return done;
}

/* Of what is allocated nothing can be seen: those blocks read as zeros, as the hole did. */
int
recorder_fallocate(int fd, int mode, off_t position, off_t size)
{
	char path[PATH_MAX];
	bool below = below_root(fd, path), punches = mode == (FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE);
	int done;

	if (below && mode != FALLOC_FL_KEEP_SIZE && !punches)
		recorder_fail("fallocate in a way that no event can tell");
	if (below && !punches && fits(fd, path, position, size) < size) {
		errno = ENOSPC;
		return -1;
	}
	done = (int)syscall(SYS_fallocate, fd, mode, position, size);
	if (done == 0 && below && punches)
		tell(&(struct powercut_event){ .kind = POWERCUT_ZERO, .file = inode_of(fd), .position = position,
		    .count = size }, NULL, 0);
	return done;
}

/* ---- mappings ---- */

void *
recorder_mmap(void *at, size_t size, int protection, int flags, int fd, off_t position)
{
	void *memory = (void *)syscall(SYS_mmap, at, size, protection, flags, fd, position);
	char path[PATH_MAX];

	if (memory == MAP_FAILED || fd == -1 || (protection & PROT_WRITE) == 0 || (flags & MAP_TYPE) == MAP_PRIVATE
	    || !below_root(fd, path))
		return memory;
	/* Nobody tells of what is stored there. */
	if (real_store == NULL)
		recorder_refuse(fd, "a shared writable mapping");
	pthread_mutex_lock(&mappings_mutex);
	for (int i = 0; i < MAPPINGS_MAX; i++) {
		if (mappings[i].at != NULL)
			continue;
		mappings[i] = (struct mapped){ memory, size, inode_of(fd), position };
		pthread_mutex_unlock(&mappings_mutex);
		return memory;
	}
	recorder_fail("too many mappings");
}

int
recorder_munmap(void *at, size_t size)
{
	pthread_mutex_lock(&mappings_mutex);
	for (int i = 0; i < MAPPINGS_MAX; i++)
		if (mappings[i].at == at)
			mappings[i].at = NULL;
	pthread_mutex_unlock(&mappings_mutex);
	return (int)syscall(SYS_munmap, at, size);
}

static void
tell_store(const void *to, const void *from, size_t size)
{
	const uint8_t *at = to;
	struct mapped found = { 0 };

	pthread_mutex_lock(&mappings_mutex);
	for (int i = 0; i < MAPPINGS_MAX; i++)
		if (mappings[i].at != NULL && at >= mappings[i].at && at + size <= mappings[i].at + mappings[i].size)
			found = mappings[i];
	pthread_mutex_unlock(&mappings_mutex);
	if (found.at == NULL)
		recorder_fail("a store to nowhere");
	tell(&(struct powercut_event){ .kind = POWERCUT_STORE, .file = found.file,
	    .position = found.position + (at - found.at) }, from, size);
}

static int
recorder_store(void *to, const void *from, size_t size)
{
	int done = real_store(to, from, size);

	if (done == 0)
		tell_store(to, from, size);
	return done;
}

static int
recorder_store_length(void *to, const uint8_t *word)
{
	int done = real_store_length(to, word);

	if (done == 0)
		tell_store(to, word, 4);
	return done;
}

static void
recorder_publish(_Atomic int64_t *word, int64_t end)
{
	tell(&(struct powercut_event){ .kind = POWERCUT_PUBLISH, .position = end }, NULL, 0);
	real_publish(word, end);
}

static void
recorder_publish_durable(_Atomic int64_t *word, int64_t end)
{
	tell(&(struct powercut_event){ .kind = POWERCUT_DURABLE, .position = end }, NULL, 0);
	real_publish(word, end);
}

/* ---- forces ---- */

/* A disk takes its time, in which others write: POWERCUT_FORCE_US. */
static void
take_time(void)
{
	const char *text = getenv("POWERCUT_FORCE_US");
	long us = text != NULL ? atol(text) : 0;
	struct timespec left = { .tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000 };

	while (us > 0 && nanosleep(&left, &left) == -1 && errno == EINTR)
		;
}

static bool
must_fail(const char *path)
{
	return fail_file != NULL && strstr(last_of(path), ".log") != NULL
	    && syscall(SYS_unlinkat, AT_FDCWD, fail_file, 0) == 0;
}

static int
force(long call, int fd)
{
	char path[PATH_MAX];
	bool below = below_root(fd, path);
	int done;

	if (below)
		tell(&(struct powercut_event){ .kind = POWERCUT_FORCE, .file = inode_of(fd) }, NULL, 0);
	if (below && must_fail(path)) {
		tell(&(struct powercut_event){ .kind = POWERCUT_UNFORCED, .file = inode_of(fd) }, NULL, 0);
		errno = EIO;
		return -1;
	}
	done = (int)syscall(call, fd);
	if (below && done == 0) {
		take_time();
		tell(&(struct powercut_event){ .kind = POWERCUT_FORCED, .file = inode_of(fd) }, NULL, 0);
	}
	return done;
}

int
recorder_fdatasync(int fd)
{
	return force(SYS_fdatasync, fd);
}

int
recorder_fsync(int fd)
{
	return force(SYS_fsync, fd);
}

/* ---- answers ---- */

/* A worker's answers go so, and nothing else does: what libevent sends to itself may wait. */
ssize_t
recorder_send(int fd, const void *from, size_t size, int flags)
{
	bool answers = root[0] != '\0' && (flags & MSG_DONTWAIT) != 0;
	ssize_t n;

	if (answers)
		tell(&(struct powercut_event){ .kind = POWERCUT_SEND, .position = fd }, from, size);
	n = syscall(SYS_sendto, fd, from, size, flags, NULL, 0);
	if (answers && n > 0)
		tell(&(struct powercut_event){ .kind = POWERCUT_SENT, .position = fd, .count = n }, NULL, 0);
	return n;
}

/* ---- set-up ---- */

void
recorder_begin(const char *path, const char *room_path, const char *fail_path,
    void (*sink)(const void *event, size_t bytes))
{
	struct stat st;

	if (stat(path, &st) == -1 || strlen(path) >= sizeof(root))
		recorder_fail("there is nothing to record");
	hand_over = sink;
	room_file = room_path;
	fail_file = fail_path;
	memset(mappings, 0, sizeof(mappings));
	strcpy(root, path);
	tell(&(struct powercut_event){ .kind = POWERCUT_START, .file = st.st_ino }, NULL, 0);
}

void
recorder_use_stores(struct syscalls *table)
{
	if (table->store != recorder_store) {
		real_store = table->store;
		real_store_length = table->store_length;
		real_publish = table->publish;
	}
	table->store = recorder_store;
	table->store_length = recorder_store_length;
	table->publish = recorder_publish;
	table->publish_durable = recorder_publish_durable;
}

static int
rename_within(int dir_fd, const char *from, const char *to)
{
	return recorder_renameat(dir_fd, from, dir_fd, to);
}

static int
unlink_file(int dir_fd, const char *name)
{
	return recorder_unlinkat(dir_fd, name, 0);
}

void
recorder_use_calls(struct syscalls *table)
{
	table->open = recorder_openat;
	table->mkdir = recorder_mkdirat;
	table->pwrite = recorder_pwrite;
	table->ftruncate = recorder_ftruncate;
	table->fallocate = recorder_fallocate;
	table->mmap = recorder_mmap;
	table->fdatasync = recorder_fdatasync;
	table->fsync = recorder_fsync;
	table->rename = rename_within;
	table->unlink = unlink_file;
}
