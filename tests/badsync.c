/*
 * Preloaded into a broker under test: what fdatasync and fsync do is in the file that BADSYNC_FILE names. "hold": they wait
 * as long as it says so; "fail": EIO, and nothing is forced; anything else, or no file: they do what they always do. With
 * "cold" nothing of a file is ever in memory, and each read takes 100 ms.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The whole file is written at once, by rename. */
static bool
says(const char *word)
{
	const char *path = getenv("BADSYNC_FILE");
	int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	char text[16] = "";

	if (fd < 0)
		return false;
	if (read(fd, text, sizeof text - 1) < 0)
		text[0] = '\0';
	close(fd);
	return strcmp(text, word) == 0;
}

static int
force(long call, int fd)
{
	static const struct timespec moment = { .tv_nsec = 1000000 };

	while (says("hold"))
		nanosleep(&moment, NULL);
	if (says("fail")) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(call, fd);
}

int
fdatasync(int fd)
{
	return force(SYS_fdatasync, fd);
}

int
fsync(int fd)
{
	return force(SYS_fsync, fd);
}

int
mincore(void *address, size_t size, unsigned char *pages)
{
	if (!says("cold"))
		return (int)syscall(SYS_mincore, address, size, pages);
	memset(pages, 0, (size + 4095) / 4096);
	return 0;
}

ssize_t
pread(int fd, void *to, size_t size, off_t position)
{
	static const struct timespec while_it_reads = { .tv_nsec = 100000000 };

	if (says("cold"))
		nanosleep(&while_it_reads, NULL);
	return syscall(SYS_pread64, fd, to, size, position);
}
