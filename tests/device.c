/* See device.h. */
#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "procs.h"

enum { IMAGE_BYTES = 24 * 1024 * 1024, ROOM_BYTES = 2 * IMAGE_BYTES, COPY_BYTES = 64 * 1024,
	FIRST_NUMBER = 1000, NUMBERS = 1000 };

/* Holes become blocks. */
static void
fill_holes(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	char *bytes = malloc(COPY_BYTES);

	ck_assert_int_ge(fd, 0);
	for (off_t at = 0; at < IMAGE_BYTES; at += COPY_BYTES) {
		ck_assert_int_eq(pread(fd, bytes, COPY_BYTES, at), COPY_BYTES);
		ck_assert_int_eq(pwrite(fd, bytes, COPY_BYTES, at), COPY_BYTES);
	}
	close(fd);
	free(bytes);
}

static bool
make_image(const struct device *device)
{
	const char *mkfs[] = { "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-N", "512", "-J", "size=4", "-E",
		"nodiscard,lazy_itable_init=0,lazy_journal_init=0", device->image, NULL };
	int fd = open(device->image, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	bool made = fd >= 0 && ftruncate(fd, IMAGE_BYTES) == 0;

	if (fd >= 0)
		close(fd);
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	if (!made || procs_run(mkfs, NULL, 30000) != 0)
		return false;
	fill_holes(device->image);
	return true;
}

static void
remove_loop(int number)
{
	int control_fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	/* It lets go of its image a moment after it was unmounted. */
	for (int tries = 0; ioctl(control_fd, LOOP_CTL_REMOVE, number) < 0 && errno == EBUSY && tries < 100; tries++)
		usleep(10000);
	close(control_fd);
}

static bool
write_one_block_at_a_time(int number)
{
	char path[64];
	int fd;
	bool done;

	snprintf(path, sizeof path, "/sys/block/loop%d/queue/max_sectors_kb", number);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	done = fd >= 0 && write(fd, "4", 1) == 1;
	if (fd >= 0)
		close(fd);
	return done;
}

/* The loop device of that number with the image, open; it lets go of it when nobody has it open or mounted. Or -1. */
static int
open_loop(int number, const char *image, char *path, size_t size)
{
	struct loop_config config = { .info.lo_flags = LO_FLAGS_AUTOCLEAR };
	int fd;

	snprintf(path, size, "/dev/loop%d", number);
	fd = open(path, O_RDWR | O_CLOEXEC);
	config.fd = (uint32_t)open(image, O_RDWR | O_CLOEXEC);
	if (fd >= 0 && (ioctl(fd, LOOP_CONFIGURE, &config) != 0 || !write_one_block_at_a_time(number))) {
		close(fd);
		fd = -1;
	}
	close((int)config.fd);
	return fd;
}

/* Makes one of our own. */
static bool
add_loop(struct device *device)
{
	int control_fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	device->number = FIRST_NUMBER + getpid() % NUMBERS;
	ioctl(control_fd, LOOP_CTL_REMOVE, device->number);
	device->number = control_fd < 0 ? -1 : ioctl(control_fd, LOOP_CTL_ADD, device->number);
	if (control_fd >= 0)
		close(control_fd);
	return device->number >= 0;
}

static bool
mount_image(const struct device *device)
{
	char path[64];
	int fd = open_loop(device->number, device->image, path, sizeof path);
	bool mounted = fd >= 0 && mount(path, device->path, "ext4", 0, "errors=continue") == 0;

	if (fd >= 0)
		close(fd);
	return mounted;
}

/* What no file has becomes holes again. */
static bool
trim(const struct device *device)
{
	struct fstrim_range all = { .len = UINT64_MAX };
	int fd = open(device->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool done = fd >= 0 && ioctl(fd, FITRIM, &all) == 0;

	if (fd >= 0)
		close(fd);
	return done;
}

bool
device_begin(struct device *device, const char *directory, const char *path, const char **why)
{
	char lost[BROKER_PATH_BYTES + 16];

	if (geteuid() != 0 || !procs_may_mount()) {
		*why = "this user cannot mount here";
		return false;
	}
	snprintf(device->backing, sizeof device->backing, "%s/backing", directory);
	snprintf(device->image, sizeof device->image, "%s/image", device->backing);
	snprintf(device->path, sizeof device->path, "%s", path);
	ck_assert(mkdir(device->backing, 0700) == 0 || errno == EEXIST);
	*why = "no tmpfs, mkfs.ext4 or loop device here";
	if (mount("none", device->backing, "tmpfs", 0, "size=48m,mode=0700") != 0)
		return false;
	if (!make_image(device) || !add_loop(device) || !mount_image(device)) {
		umount2(device->backing, MNT_DETACH);
		return false;
	}
	snprintf(lost, sizeof lost, "%s/lost+found", device->path);
	rmdir(lost);
	if (trim(device))
		return true;
	device_end(device);
	return false;
}

static void
limit_backing(const struct device *device, int64_t bytes)
{
	char options[64];

	snprintf(options, sizeof options, "size=%lld", (long long)bytes);
	ck_assert_int_eq(mount("none", device->backing, "tmpfs", MS_REMOUNT, options), 0);
}

void
device_fill(const struct device *device)
{
	struct statfs fs;

	ck_assert_int_eq(statfs(device->backing, &fs), 0);
	limit_backing(device, (int64_t)(fs.f_blocks - fs.f_bfree) * (int64_t)fs.f_bsize);
}

void
device_make_room(const struct device *device)
{
	limit_backing(device, ROOM_BYTES);
}

void
device_remount(const struct device *device)
{
	ck_assert_int_eq(umount(device->path), 0);
	ck_assert(mount_image(device));
}

void
device_end(const struct device *device)
{
	umount2(device->path, MNT_DETACH);
	remove_loop(device->number);
	umount2(device->backing, MNT_DETACH);
}
