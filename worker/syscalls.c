/* The storage's system calls as the kernel offers them; what a test replaces is a member of the table. */
#include "worker/syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "worker/store.h"

static int
kernel_open(int dir_fd, const char *name, int flags, mode_t mode)
{
	return openat(dir_fd, name, flags, mode);
}

static int
kernel_rename(int dir_fd, const char *from, const char *to)
{
	return renameat(dir_fd, from, dir_fd, to);
}

static int
kernel_unlink(int dir_fd, const char *name)
{
	return unlinkat(dir_fd, name, 0);
}

/* Some file systems do not know the flag. Whoever calls has asked mincore before. */
static ssize_t
kernel_pread_nowait(int fd, void *to, size_t size, off_t position)
{
	struct iovec piece = { to, size };
	ssize_t n = preadv2(fd, &piece, 1, position, RWF_NOWAIT);

	return n == -1 && errno == EOPNOTSUPP ? pread(fd, to, size, position) : n;
}

struct syscalls syscalls = {
	.open = kernel_open,
	.fstat = fstat,
	.mkdir = mkdirat,
	.fchmod = fchmod,
	.pread = pread,
	.pwrite = pwrite,
	.ftruncate = ftruncate,
	.fallocate = fallocate,
	.mmap = mmap,
	.madvise = madvise,
	.store = store_bytes,
	.store_length = store_length,
	.publish = store_end,
	.publish_durable = store_end,
	.fdatasync = fdatasync,
	.fsync = fsync,
	.sync_file_range = sync_file_range,
	.rename = kernel_rename,
	.unlink = kernel_unlink,
	.sendfile = sendfile,
	.mincore = mincore,
	.pread_nowait = kernel_pread_nowait,
	.fadvise = posix_fadvise,
};
