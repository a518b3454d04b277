/*
 * Preloaded into a broker under test: reads of segment files with COLDREAD_HELD in their path wait as long as the file that
 * COLDREAD_FILE names says "hold". What waits, and what must not be, stands in the file that COLDREAD_REPORT names, a line
 * each:
 *
 *	held		a thread has begun to wait
 *	loop pread	the loop (the process's first thread) has read a segment file in a way that may wait for the disk, or has
 *			begun to
 *	loop sendfile	the loop has sent what was not in memory
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { PAGES_MAX = 4096 };

/* The whole file is written at once, by rename. */
static bool
says_hold(void)
{
	const char *path = getenv("COLDREAD_FILE");
	int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char text[8] = "";

	if (fd < 0)
		return false;
	if (read(fd, text, sizeof text - 1) < 0)
		text[0] = '\0';
	close(fd);
	return strcmp(text, "hold") == 0;
}

static void
report(const char *line)
{
	const char *path = getenv("COLDREAD_REPORT");
	int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;

	if (fd < 0 || write(fd, line, strlen(line)) < 0)
		abort();
	close(fd);
}

/* Is it a segment file with that in its path? */
static bool
is_segment(int fd, const char *part)
{
	char link[64], name[4096];
	ssize_t n;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	n = readlink(link, name, sizeof name - 1);
	name[n < 0 ? 0 : n] = '\0';
	return strstr(name, ".log") != NULL && strstr(name, part) != NULL;
}

static bool
in_loop(void)
{
	return gettid() == getpid();
}

static void
before_read(int fd)
{
	static const struct timespec moment = { .tv_nsec = 1000000 };
	const char *held = getenv("COLDREAD_HELD");
	bool told = false;

	if (in_loop() && is_segment(fd, ""))
		report("loop pread\n");
	if (held == NULL || !is_segment(fd, held))
		return;
	for (; says_hold(); told = true) {
		if (!told)
			report("held\n");
		nanosleep(&moment, NULL);
	}
}

/* Advice to read is what it reads: without waiting, but it would be in memory for others. */
int
posix_fadvise(int fd, off_t position, off_t size, int advice)
{
	if (advice == POSIX_FADV_WILLNEED)
		before_read(fd);
	return syscall(SYS_fadvise64, fd, position, size, advice) == 0 ? 0 : errno;
}

int
posix_fadvise64(int fd, off_t position, off_t size, int advice)
{
	return posix_fadvise(fd, position, size, advice);
}

ssize_t
pread(int fd, void *to, size_t size, off_t position)
{
	before_read(fd);
	return syscall(SYS_pread64, fd, to, size, position);
}

ssize_t
pread64(int fd, void *to, size_t size, off_t position)
{
	return pread(fd, to, size, position);
}

ssize_t
preadv2(int fd, const struct iovec *pieces, int count, off_t position, int flags)
{
	if ((flags & RWF_NOWAIT) == 0)
		before_read(fd);
	return syscall(SYS_preadv2, fd, pieces, count, position, 0L, flags);
}

ssize_t
preadv64v2(int fd, const struct iovec *pieces, int count, off_t position, int flags)
{
	return preadv2(fd, pieces, count, position, flags);
}

/* Is this stretch of the file in memory, as far as the file has it? */
static bool
in_memory(int fd, off_t position, size_t size)
{
	static unsigned char pages[PAGES_MAX];
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	off_t first = position - position % (off_t)page;
	struct stat st;
	size_t bytes;
	void *map;
	bool all = true;

	if (fstat(fd, &st) != 0 || position >= st.st_size)
		return true;
	if ((off_t)size > st.st_size - position)
		size = (size_t)(st.st_size - position);
	bytes = (size_t)(position - first) + size;
	if (bytes > PAGES_MAX * page)
		bytes = PAGES_MAX * page;
	map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, first);
	if (map == MAP_FAILED || mincore(map, bytes, pages) != 0)
		abort();
	munmap(map, bytes);
	for (size_t i = 0; i < (bytes + page - 1) / page; i++)
		all = all && (pages[i] & 1) != 0;
	return all;
}

ssize_t
sendfile(int to_fd, int from_fd, off_t *position, size_t size)
{
	if (in_loop() && is_segment(from_fd, "") && !in_memory(from_fd, *position, size))
		report("loop sendfile\n");
	return syscall(SYS_sendfile, to_fd, from_fd, position, size);
}

ssize_t
sendfile64(int to_fd, int from_fd, off_t *position, size_t size)
{
	return sendfile(to_fd, from_fd, position, size);
}
