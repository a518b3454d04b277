/*
 * Reads past the page cache go through a buffer of their own: memory, position and length must be multiples of what the
 * device wants, which is a power of two and seldom more than 4 KiB.
 */
#include "worker/direct.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "worker/segment.h"
#include "worker/syscalls.h"

enum {
	ALIGN_BYTES = 64 * 1024,
	BOUNCE_MAX_BYTES = 1024 * 1024 + ALIGN_BYTES,	/* a mebibyte from anywhere needs one read */
};

static _Atomic int64_t bytes_read;	/* of the whole process: it is told to whoever waits for it */

/* A file system can take the flag and read through its cache all the same; where it can tell, it says an alignment of 0. */
static bool
told_impossible(int fd)
{
	struct statx stx;

	return statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 && (stx.stx_mask & STATX_DIOALIGN) != 0
	    && stx.stx_dio_offset_align == 0;
}

/* Some find out only when they are to read. */
static bool
first_read_impossible(int fd)
{
	uint8_t byte;

	return direct_read(fd, &byte, 1, 0) == -1 && errno == EINVAL;
}

int
direct_open(int dir_fd, int64_t base)
{
	int fd = segment_open_file(dir_fd, base, O_RDONLY | O_DIRECT);

	if (fd == -1) {
		errno = errno == EINVAL ? EOPNOTSUPP : errno;
		return -1;
	}
	if (!told_impossible(fd) && !first_read_impossible(fd))
		return fd;
	close(fd);
	errno = EOPNOTSUPP;
	return -1;
}

bool
direct_has_disk(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == -1 || (fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC);
}

/* How much to read at once, from an aligned place, so that what is wanted lies in it. */
static size_t
stretch(size_t ahead, size_t wanted)
{
	size_t bytes = ahead + wanted;

	if (bytes > BOUNCE_MAX_BYTES)
		return BOUNCE_MAX_BYTES;
	return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/*
 * One read by way of `bounce`. Returns the bytes of it that are of use: 0 at the end of the file; or -1 with errno: a read
 * that is short elsewhere, and without use, must not be taken for that end, behind which a log is cut.
 */
static ssize_t
read_some(int fd, uint8_t *bounce, uint8_t *to, size_t bytes, int64_t position)
{
	int64_t from = position - position % ALIGN_BYTES;
	size_t ahead = (size_t)(position - from);
	ssize_t n;

	do
		n = syscalls.pread(fd, bounce, stretch(ahead, bytes), from);
	while (n == -1 && errno == EINTR);
	if (n == -1)
		return -1;
	if ((size_t)n <= ahead) {
		int64_t file_bytes = segment_file_bytes(fd);

		if (file_bytes != -1 && position >= file_bytes)
			return 0;
		errno = file_bytes == -1 ? errno : EIO;
		return -1;
	}
	n -= (ssize_t)ahead;
	if ((size_t)n > bytes)
		n = (ssize_t)bytes;
	memcpy(to, bounce + ahead, (size_t)n);
	return n;
}

/* All of it is written to once: btrfs takes from its cache what would go to memory that has no pages yet. */
static uint8_t *
new_bounce(size_t bytes)
{
	uint8_t *bounce = aligned_alloc(ALIGN_BYTES, bytes);

	if (bounce != NULL)
		memset(bounce, 0xA5, bytes);
	return bounce;
}

static ssize_t
read_through_bounce(int fd, void *to, size_t bytes, int64_t position)
{
	uint8_t *bounce = new_bounce(stretch((size_t)(position % ALIGN_BYTES), bytes));
	size_t got = 0;
	ssize_t n = 0;

	if (bounce == NULL)
		return -1;
	while (got < bytes) {
		n = read_some(fd, bounce, (uint8_t *)to + got, bytes - got, position + (int64_t)got);
		if (n <= 0)
			break;
		got += (size_t)n;
	}
	free(bounce);
	return n == -1 ? -1 : (ssize_t)got;
}

ssize_t
direct_read(int fd, void *to, size_t bytes, int64_t position)
{
	ssize_t n;

	if ((fcntl(fd, F_GETFL) & O_DIRECT) == 0)
		n = segment_read(fd, to, bytes, position);
	else
		n = read_through_bounce(fd, to, bytes, position);
	if (n > 0)
		atomic_fetch_add_explicit(&bytes_read, n, memory_order_relaxed);
	return n;
}

int64_t
direct_bytes_read(void)
{
	return atomic_load_explicit(&bytes_read, memory_order_relaxed);
}
