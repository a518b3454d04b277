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
	FIRST_NUMBER = 1000, NUMBERS = 1000, TRIES = 500, TRY_US = 10000 };

/*
 * ext4 takes blocks for its lists of extents from the same room as what files hold; one that cannot be written when the
 * kernel comes to it ends with a journal that is aborted and a file system that is read-only, at any later time. It takes
 * them singly, the first that is free, and a single free block for nothing else that matters here. So the free blocks begin
 * with single ones, between blocks that are said to be bad, and these are left as they are when the others become holes.
 */
enum { SPARE_BLOCKS = 128, BLOCKS_MIN = 8, FILES = 8, PIECES = 4 };	/* no fewer than eight together become holes */

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

/* A file system in the image; `bad` lists blocks that it may not use. */
static bool
make_file_system(const char *image, const char *bad)
{
	const char *mkfs[] = { "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-N", "512", "-J", "size=4", "-l", bad, "-E",
		"nodiscard,lazy_itable_init=0,lazy_journal_init=0", image, NULL };

	return procs_run(mkfs, NULL, 30000) == 0;
}

/* The first block behind all that a new file system has; -1 where that cannot be told. */
static int
first_free_block(const char *image)
{
	const char *dump[] = { "dumpe2fs", image, NULL };
	char *text = NULL, *group;
	int block = -1;

	if (procs_run(dump, &text, 30000) == 0 && (group = strstr(text, "\nGroup 0:")) != NULL
	    && (group = strstr(group, " Free blocks: ")) != NULL)
		sscanf(group, " Free blocks: %d", &block);
	free(text);
	return block;
}

/* The list of them takes up to one block more. */
static void
list_bad_blocks(const char *path, int first_free)
{
	char text[SPARE_BLOCKS * 8] = "";

	for (int i = 1; i <= SPARE_BLOCKS; i++)
		snprintf(text + strlen(text), sizeof text - strlen(text), "%d\n", first_free + 2 * i);
	procs_write_file(path, text, strlen(text));
}

static bool
make_image(const struct device *device)
{
	char bad[sizeof device->image + 8];
	int fd = open(device->image, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	bool made = fd >= 0 && ftruncate(fd, IMAGE_BYTES) == 0;
	int first_free;

	if (fd >= 0)
		close(fd);
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	if (!made || !make_file_system(device->image, "/dev/null"))
		return false;
	first_free = first_free_block(device->image);
	if (first_free == -1)
		return false;
	snprintf(bad, sizeof bad, "%s.bad", device->image);
	list_bad_blocks(bad, first_free);
	if (!make_file_system(device->image, bad))
		return false;
	fill_holes(device->image);
	return true;
}

static void
remove_loop(int number)
{
	int control_fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

	/* It lets go of its image a moment after it was unmounted. */
	for (int tries = 0; ioctl(control_fd, LOOP_CTL_REMOVE, number) < 0 && errno == EBUSY && tries < TRIES; tries++)
		usleep(TRY_US);
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

/* What no file has becomes holes again; when all that has been given up is told to the disk, which may lose some of it. */
static bool
trim(const struct device *device)
{
	struct fstrim_range all = { .len = UINT64_MAX, .minlen = BLOCKS_MIN * DEVICE_BLOCK_BYTES };
	int fd = open(device->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool done;

	if (fd < 0)
		return false;
	syncfs(fd);
	done = ioctl(fd, FITRIM, &all) == 0;
	close(fd);
	return done;
}

static int64_t
image_bytes(const struct device *device)
{
	struct stat st;

	ck_assert_int_eq(stat(device->image, &st), 0);
	return (int64_t)st.st_blocks * 512;
}

/* A file of so many extents that it needs a list: every second block is written of a part that was never written to. */
static bool
write_in_pieces(const char *path)
{
	static const char block[DEVICE_BLOCK_BYTES] = "not zero";
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	bool done = fd >= 0 && fallocate(fd, 0, 0, (off_t)2 * PIECES * DEVICE_BLOCK_BYTES) == 0;

	for (int i = 0; done && i < PIECES; i++)
		done = pwrite(fd, block, sizeof block, (off_t)2 * i * DEVICE_BLOCK_BYTES) == (ssize_t)sizeof block
		    && fdatasync(fd) == 0;
	/* What is of the file system itself, too. */
	done = done && syncfs(fd) == 0;
	if (fd >= 0)
		close(fd);
	return done;
}

/* Does it take no hole but for what files hold? More of them than there are other blocks by chance. */
static bool
uses_spare_blocks(const struct device *device)
{
	char path[BROKER_PATH_BYTES + 16];
	int64_t before = image_bytes(device);
	bool does = true;

	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof path, "%s/pieces%d", device->path, i);
		does = does && write_in_pieces(path);
	}
	does = does && image_bytes(device) == before + (int64_t)FILES * PIECES * DEVICE_BLOCK_BYTES;
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof path, "%s/pieces%d", device->path, i);
		unlink(path);
	}
	return does;
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
	*why = "this ext4 does not take its own blocks from those that are kept for it";
	if (trim(device) && uses_spare_blocks(device) && trim(device))
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

	ck_assert(trim(device));
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
	bool mounted = false;

	ck_assert_int_eq(umount(device->path), 0);
	/* As in remove_loop. */
	for (int tries = 0; !(mounted = mount_image(device)) && tries < TRIES; tries++)
		usleep(TRY_US);
	ck_assert(mounted);
}

void
device_end(const struct device *device)
{
	umount2(device->path, MNT_DETACH);
	remove_loop(device->number);
	umount2(device->backing, MNT_DETACH);
}
