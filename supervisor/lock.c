/* Taking the data directory's lock, and naming who holds it; see lock.h. */
#include "supervisor/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/lockfile.h"
#include "common/log.h"

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

static void
report_holder(const struct lock *lock, int fd)
{
	char names[512];

	if (lockfile_holders(fd, names, sizeof(names)) > 0)
		log_error("the data directory %s is in use by another broker: pid %s still running; stop it, or wait until its "
		    "workers have finished", lock->data_dir, names);
	else
		log_error("the data directory %s is in use: some process holds %s/lock and its pid is not in there (fuser "
		    "-v %s/lock names it)", lock->data_dir, lock->data_dir, lock->data_dir);
}

/* What an earlier broker has left goes first. A hint only, so that a full disk does not keep the broker from starting. */
static void
write_own_line(const struct lock *lock)
{
	if (ftruncate(lock->descriptor, 0) != 0 || lockfile_sign(lock->descriptor) != 0)
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
	fd = lockfile_open(lock->data_dir, O_RDWR | O_CREAT, path);
	if (fd < 0) {
		log_error("cannot open %s/lock: %s", lock->data_dir, strerror(errno));
		return LOCK_FAILED;
	}
	if (lockfile_lock(fd) != 0) {
		enum lock_result result = errno == EWOULDBLOCK ? LOCK_HELD : LOCK_FAILED;

		if (result == LOCK_HELD)
			report_holder(lock, fd);
		else
			log_error("cannot lock %s: %s", path, strerror(errno));
		close(fd);
		return result;
	}
	if (!lockfile_is_named(fd, path)) {
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
