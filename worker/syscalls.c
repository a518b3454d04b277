/* The storage's system calls as the kernel offers them; what a test replaces is a member of the table. */
#include "worker/syscalls.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

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

struct syscalls syscalls = {
	.open = kernel_open,
	.mkdir = mkdirat,
	.pread = pread,
	.pwrite = pwrite,
	.ftruncate = ftruncate,
	.fdatasync = fdatasync,
	.fsync = fsync,
	.sync_file_range = sync_file_range,
	.rename = kernel_rename,
	.unlink = kernel_unlink,
	.sendfile = sendfile,
};
