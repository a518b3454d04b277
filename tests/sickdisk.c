/* See sickdisk.h. */
#include "tests/sickdisk.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker/syscalls.h"

enum { FILES_MAX = 512, BLOCKS = SICKDISK_FILE_BYTES / SICKDISK_BLOCK_BYTES, DIRECT_ALIGN_BYTES = 4096 };

struct image {
	ino_t number;			/* 0 = free */
	uint8_t *shown, *kept;
	uint8_t *clean;			/* the cache as it was when each block was last written, or lost */
	bool dirty[BLOCKS];		/* in the cache, not in shown; so is what differs from clean: it was stored through a mapping */
	bool unflushed[BLOCKS];		/* in shown, not in kept */
	bool error;			/* a block was lost and nobody has been told */
};

static struct image images[FILES_MAX];
static struct sickdisk sick;
static struct syscalls below;
static uint64_t state;

static bool
happens(unsigned per_thousand)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(state >> 40) % 1000 < per_thousand;
}

static struct image *
find_number(ino_t number)
{
	struct image *free_one = NULL;

	for (int i = 0; i < FILES_MAX; i++) {
		if (images[i].number == number)
			return &images[i];
		if (images[i].number == 0 && free_one == NULL)
			free_one = &images[i];
	}
	ck_assert_ptr_nonnull(free_one);
	free_one->number = number;
	free_one->shown = calloc(1, SICKDISK_FILE_BYTES);
	free_one->kept = calloc(1, SICKDISK_FILE_BYTES);
	free_one->clean = calloc(1, SICKDISK_FILE_BYTES);
	return free_one;
}

static struct image *
find(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return find_number(st.st_ino);
}

static struct image *
find_path(const char *path)
{
	struct stat st;

	ck_assert_int_eq(stat(path, &st), 0);
	return find_number(st.st_ino);
}

static void
forget(struct image *image)
{
	free(image->shown);
	free(image->kept);
	free(image->clean);
	memset(image, 0, sizeof(*image));
}

static int
fail_with(int error)
{
	errno = error;
	return -1;
}

/* The whole file as the cache shows it, with zeros behind; also by a descriptor that reads past it. */
static void
read_cache(int fd, uint8_t *to)
{
	char path[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = pread(fd, to, SICKDISK_FILE_BYTES, 0);
	ck_assert_int_ge(n, 0);
	memset(to + n, 0, SICKDISK_FILE_BYTES - (size_t)n);
	close(fd);
}

/* Writes the dirty blocks of a stretch; one that is lost is clean all the same. */
static void
write_blocks(struct image *image, int fd, int64_t from, int64_t to)
{
	static uint8_t cache[SICKDISK_FILE_BYTES];

	read_cache(fd, cache);
	for (int64_t i = from / SICKDISK_BLOCK_BYTES; i < BLOCKS && i * SICKDISK_BLOCK_BYTES < to; i++) {
		size_t at = (size_t)i * SICKDISK_BLOCK_BYTES;

		if (!image->dirty[i] && memcmp(cache + at, image->clean + at, SICKDISK_BLOCK_BYTES) == 0)
			continue;
		image->dirty[i] = false;
		memcpy(image->clean + at, cache + at, SICKDISK_BLOCK_BYTES);
		if (happens(sick.lost_blocks)) {
			image->error = true;
			continue;
		}
		memcpy(image->shown + at, cache + at, SICKDISK_BLOCK_BYTES);
		image->unflushed[i] = true;
	}
}

static int
tell_error(struct image *image)
{
	bool error = image->error;

	image->error = false;
	return error ? fail_with(EIO) : 0;
}

/* ---- the table ---- */

static int
sick_open(int dir_fd, const char *name, int flags, mode_t mode)
{
	int fd;

	if ((flags & O_DIRECT) != 0 && sick.cached_only)
		return fail_with(EINVAL);
	if ((flags & O_CREAT) != 0 && happens(sick.no_new_files))
		return fail_with(ENOSPC);
	fd = below.open(dir_fd, name, flags, mode);
	if (fd != -1 && (flags & O_CREAT) != 0)
		forget(find(fd));	/* another file may have had its number */
	return fd;
}

static ssize_t
sick_pread(int fd, void *to, size_t size, off_t position)
{
	struct image *image;
	struct stat st;

	if ((fcntl(fd, F_GETFL) & O_DIRECT) == 0)
		return below.pread(fd, to, size, position);
	ck_assert_uint_eq((uintptr_t)to % DIRECT_ALIGN_BYTES, 0);
	ck_assert_uint_eq(size % DIRECT_ALIGN_BYTES, 0);
	ck_assert_int_eq(position % DIRECT_ALIGN_BYTES, 0);
	image = find(fd);
	write_blocks(image, fd, position, position + (off_t)size);
	if (tell_error(image) == -1)
		return -1;
	ck_assert_int_eq(fstat(fd, &st), 0);
	if (position >= st.st_size)
		return 0;
	if ((off_t)size > st.st_size - position)
		size = (size_t)(st.st_size - position);
	memcpy(to, image->shown + position, size);
	return (ssize_t)size;
}

static ssize_t
sick_pwrite(int fd, const void *from, size_t size, off_t position)
{
	ssize_t n = below.pwrite(fd, from, size, position);
	struct image *image = find(fd);

	ck_assert_int_le(position + (off_t)size, SICKDISK_FILE_BYTES);
	for (int64_t i = position / SICKDISK_BLOCK_BYTES; n > 0 && i * SICKDISK_BLOCK_BYTES < position + n; i++)
		image->dirty[i] = true;
	return n;
}

/* Whole blocks are gone from the disk; of the last one only the cache knows what is cut. */
static int
sick_ftruncate(int fd, off_t size)
{
	int64_t blocks = (size + SICKDISK_BLOCK_BYTES - 1) / SICKDISK_BLOCK_BYTES;
	struct image *image = find(fd);

	if (below.ftruncate(fd, size) == -1)
		return -1;
	memset(image->shown + blocks * SICKDISK_BLOCK_BYTES, 0, (size_t)(SICKDISK_FILE_BYTES - blocks * SICKDISK_BLOCK_BYTES));
	memset(image->kept + blocks * SICKDISK_BLOCK_BYTES, 0, (size_t)(SICKDISK_FILE_BYTES - blocks * SICKDISK_BLOCK_BYTES));
	memset(image->clean + blocks * SICKDISK_BLOCK_BYTES, 0, (size_t)(SICKDISK_FILE_BYTES - blocks * SICKDISK_BLOCK_BYTES));
	memset(image->dirty + blocks, 0, sizeof(image->dirty) - (size_t)blocks * sizeof(image->dirty[0]));
	memset(image->unflushed + blocks, 0, sizeof(image->unflushed) - (size_t)blocks * sizeof(image->unflushed[0]));
	if (size % SICKDISK_BLOCK_BYTES != 0)
		image->dirty[blocks - 1] = true;
	return 0;
}

static int
sick_fdatasync(int fd)
{
	struct image *image = find(fd);
	bool lost;

	if (below.fdatasync(fd) == -1)
		return -1;
	write_blocks(image, fd, 0, SICKDISK_FILE_BYTES);
	lost = happens(sick.lost_flushes);
	for (int i = 0; i < BLOCKS; i++) {
		if (image->unflushed[i] && !lost)
			memcpy(image->kept + (size_t)i * SICKDISK_BLOCK_BYTES, image->shown + (size_t)i * SICKDISK_BLOCK_BYTES,
			    SICKDISK_BLOCK_BYTES);
		image->unflushed[i] = false;
	}
	if (lost)
		image->error = true;
	return tell_error(image);
}

static int
sick_fsync(int fd)
{
	if (happens(sick.lost_names))
		return fail_with(EIO);
	return below.fsync(fd);
}

/* ---- for tests ---- */

static bool
has_direct_reads(void)
{
	const char *tmp = getenv("TMPDIR");
	char path[256];
	int fd, direct_fd;

	snprintf(path, sizeof(path), "%.200s/sickdisk-XXXXXX", tmp == NULL ? "/tmp" : tmp);
	fd = mkstemp(path);
	ck_assert_int_ne(fd, -1);
	direct_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	close(fd);
	unlink(path);
	if (direct_fd != -1)
		close(direct_fd);
	return direct_fd != -1;
}

bool
sickdisk_begin(uint32_t seed)
{
	if (!has_direct_reads())
		return false;
	state = seed * 2654435761u + 1;
	sick = (struct sickdisk){ 0 };
	below = syscalls;
	syscalls.open = sick_open;
	syscalls.pread = sick_pread;
	syscalls.pwrite = sick_pwrite;
	syscalls.ftruncate = sick_ftruncate;
	syscalls.fdatasync = sick_fdatasync;
	syscalls.fsync = sick_fsync;
	return true;
}

void
sickdisk_end(void)
{
	for (int i = 0; i < FILES_MAX; i++)
		forget(&images[i]);
	syscalls = below;
}

void
sickdisk_set(struct sickdisk how)
{
	sick = how;
}

void
sickdisk_write_back(const char *path)
{
	struct image *image = find_path(path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	write_blocks(image, fd, 0, SICKDISK_FILE_BYTES);
	close(fd);
}

bool
sickdisk_same(const char *path, int64_t from, int64_t to, bool kept)
{
	struct image *image = find_path(path);
	uint8_t *cached = malloc((size_t)(to - from) + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool same;

	ck_assert_int_eq(pread(fd, cached, (size_t)(to - from), from), to - from);
	close(fd);
	same = memcmp(cached, (kept ? image->kept : image->shown) + from, (size_t)(to - from)) == 0;
	free(cached);
	return same;
}

void
sickdisk_cut_power(const char *path)
{
	struct image *image = find_path(path);
	struct stat st;
	int fd = open(path, O_RDWR | O_CLOEXEC);

	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(pwrite(fd, image->kept, (size_t)st.st_size, 0), st.st_size);
	close(fd);
	memcpy(image->shown, image->kept, SICKDISK_FILE_BYTES);
	memcpy(image->clean, image->kept, SICKDISK_FILE_BYTES);
	memset(image->dirty, 0, sizeof(image->dirty));
	memset(image->unflushed, 0, sizeof(image->unflushed));
	image->error = false;
}
