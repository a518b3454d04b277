/* Copying aside what is cut, see cut.h. */
#include "worker/cut.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/direct.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

enum { COPY_BYTES = 128 * 1024 };

/* Do the bytes from `from` to `to` of fd already stand in the file `name`? -1 with errno when that cannot be told. */
static int
holds_same(int dir_fd, const char *name, int fd, int64_t from, int64_t to, bool *same)
{
	uint8_t ours[COPY_BYTES], theirs[COPY_BYTES];
	int other = syscalls.open(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	ssize_t n = 0;

	*same = false;
	if (other == -1)
		return errno == ELOOP ? 0 : -1;
	*same = segment_file_bytes(other) == to - from;
	for (int64_t at = from; *same && at < to; at += n) {
		size_t wanted = to - at < COPY_BYTES ? (size_t)(to - at) : COPY_BYTES;

		n = direct_read(fd, ours, wanted, at);
		*same = n > 0 && segment_read(other, theirs, (size_t)n, at - from) == n
		    && memcmp(ours, theirs, (size_t)n) == 0;
	}
	close(other);
	return 0;
}

/*
 * The name for a copy of what is cut: the first that is free; or one that holds these bytes already, since an earlier
 * recovery came as far as that. Returns 0, or -1 with errno.
 */
static int
choose_name(int dir_fd, int fd, int64_t base, int64_t from, int64_t to, char *name, bool *there)
{
	for (int n = 1;; n++) {
		if (n == 1)
			snprintf(name, SEGMENT_NAME_BYTES, "%020" PRId64 ".cut", base);
		else
			snprintf(name, SEGMENT_NAME_BYTES, "%020" PRId64 ".cut.%d", base, n);
		if (holds_same(dir_fd, name, fd, from, to, there) == -1)
			return errno == ENOENT ? 0 : -1;
		if (*there)
			return 0;
	}
}

static int
copy_bytes(int to_fd, int from_fd, int64_t from, int64_t to)
{
	uint8_t bytes[COPY_BYTES];

	for (int64_t at = from; at < to;) {
		ssize_t n = direct_read(from_fd, bytes, to - at < COPY_BYTES ? (size_t)(to - at) : COPY_BYTES, at);

		if (n == 0)
			errno = EIO;
		if (n <= 0 || segment_write(to_fd, bytes, (size_t)n, at - from) == -1)
			return -1;
		at += n;
	}
	return syscalls.fdatasync(to_fd);
}

/* A copy that root makes for the broker (logbroker repair) is the broker's: it must read it at its next start. */
static void
give_to_owner(int copy, int fd)
{
	struct stat st;

	/* Where that is not allowed we are the broker, under a user of its own choice. */
	if (syscalls.fstat(fd, &st) == 0 && st.st_uid != geteuid() && fchown(copy, st.st_uid, st.st_gid) == -1)
		return;
}

/* Copies the bytes into a new file, forced, under a temporary name first: a copy under its name is a whole one. */
static int
write_copy(int dir_fd, int fd, int64_t base, int64_t from, int64_t to, const char *name)
{
	char temporary[SEGMENT_NAME_BYTES];
	int copy, error;

	snprintf(temporary, sizeof(temporary), "%020" PRId64 ".cut.tmp", base);
	copy = segment_create_file(dir_fd, temporary);
	if (copy == -1)
		return -1;
	give_to_owner(copy, fd);
	if (copy_bytes(copy, fd, from, to) == 0 && syscalls.rename(dir_fd, temporary, name) == 0) {
		close(copy);
		return 0;
	}
	error = errno;
	close(copy);
	syscalls.unlink(dir_fd, temporary);
	errno = error;
	return -1;
}

int
cut_copy_aside(int dir_fd, int fd, int64_t base, int64_t from, int64_t to, char *name)
{
	bool there = false;

	if (choose_name(dir_fd, fd, base, from, to, name, &there) == -1)
		return -1;
	if (!there && write_copy(dir_fd, fd, base, from, to, name) == -1)
		return -1;
	/* Also for one that was there: the recovery that wrote it may have ended before this. */
	return syscalls.fsync(dir_fd);
}
