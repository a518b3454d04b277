/* See powercut_image.h. */
#include "tests/powercut_image.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void *
image_grown(void *array, size_t count, size_t *capacity, size_t size)
{
	if (count < *capacity)
		return array;
	*capacity = *capacity == 0 ? 16 : 2 * *capacity;
	array = realloc(array, *capacity * size);
	ck_assert_ptr_nonnull(array);
	return array;
}

struct image_entry *
image_add(struct image *image, const char *path)
{
	struct image_entry *entry;

	image->entries = image_grown(image->entries, image->count, &image->capacity, sizeof(*image->entries));
	entry = &image->entries[image->count++];
	memset(entry, 0, sizeof(*entry));
	ck_assert_uint_lt(strlen(path), sizeof(entry->path));
	strcpy(entry->path, path);
	return entry;
}

void
image_clear(struct image *image)
{
	for (size_t i = 0; i < image->count; i++)
		if (image->entries[i].owned)
			free((void *)image->entries[i].bytes);
	image->count = 0;
}

void
image_free(struct image *image)
{
	image_clear(image);
	free(image->entries);
	*image = (struct image){ 0 };
}

const struct image_entry *
image_find(const struct image *image, const char *path)
{
	for (size_t i = 0; i < image->count; i++)
		if (strcmp(image->entries[i].path, path) == 0)
			return &image->entries[i];
	return NULL;
}

static uint64_t
mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
	return hash ^ hash >> 32;
}

uint64_t
image_hash_bytes(const void *from, size_t size)
{
	const uint8_t *bytes = from;
	uint64_t hash = size, word;

	for (; size >= sizeof(word); size -= sizeof(word), bytes += sizeof(word)) {
		memcpy(&word, bytes, sizeof(word));
		hash = mix(hash, word);
	}
	word = 0;
	if (size > 0)
		memcpy(&word, bytes, size);
	return mix(hash, word);
}

/* Entries stand in no order that counts. */
uint64_t
image_hash(const struct image *image)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < image->count; i++) {
		const struct image_entry *entry = &image->entries[i];

		sum += mix(image_hash_bytes(entry->path, strlen(entry->path)), entry->directory ? 1 : entry->hash);
	}
	return sum;
}

/* ---- on a file system ---- */

static void
write_file(const char *path, const struct image_entry *entry)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);

	ck_assert_msg(fd != -1, "%s: %s", path, strerror(errno));
	if (entry->size > 0)
		ck_assert_int_eq(write(fd, entry->bytes, (size_t)entry->size), entry->size);
	close(fd);
}

static int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	if (remove(path) == -1)
		ck_abort_msg("%s: cannot be removed: %s", path, strerror(errno));
	return 0;
}

void
image_remove(const char *root)
{
	if (access(root, F_OK) == 0 && nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == -1)
		ck_abort_msg("%s: cannot be removed: %s", root, strerror(errno));
}

void
image_write(const struct image *image, const char *root)
{
	char path[1024];

	image_remove(root);
	ck_assert_int_eq(mkdir(root, 0750), 0);
	for (size_t i = 0; i < image->count; i++) {
		snprintf(path, sizeof(path), "%.800s/%s", root, image->entries[i].path);
		if (image->entries[i].directory)
			ck_assert_int_eq(mkdir(path, 0750), 0);
		else
			write_file(path, &image->entries[i]);
	}
}

/* What is compared, since nftw hands nothing on. */
static struct {
	const struct image *image;
	size_t root_length, seen;
	char *why;
} comparison;

static bool
holds_same(const char *path, const struct image_entry *entry)
{
	uint8_t *bytes = malloc((size_t)entry->size + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool same;

	ck_assert_ptr_nonnull(bytes);
	same = fd != -1 && read(fd, bytes, (size_t)entry->size + 1) == entry->size
	    && (entry->size == 0 || memcmp(bytes, entry->bytes, (size_t)entry->size) == 0);
	close(fd);
	free(bytes);
	return same;
}

static int
compare_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	const struct image_entry *entry;

	(void)st;
	if (ftw->level == 0)
		return 0;
	entry = image_find(comparison.image, path + comparison.root_length + 1);
	comparison.seen++;
	if (entry == NULL)
		snprintf(comparison.why, IMAGE_WHY_BYTES, "%.300s is there, and nothing has told of it", path);
	else if (entry->directory != (type == FTW_D))
		snprintf(comparison.why, IMAGE_WHY_BYTES, "%.300s is of another kind", path);
	else if (!entry->directory && !holds_same(path, entry))
		snprintf(comparison.why, IMAGE_WHY_BYTES, "%.300s holds something else than the %" PRId64 " bytes that were told",
		    path, entry->size);
	return comparison.why[0] == '\0' ? 0 : 1;
}

bool
image_is_at(const struct image *image, const char *root, char *why)
{
	why[0] = '\0';
	comparison.image = image;
	comparison.root_length = strlen(root);
	comparison.seen = 0;
	comparison.why = why;
	ck_assert_int_ne(nftw(root, compare_entry, 16, FTW_PHYS), -1);
	if (why[0] == '\0' && comparison.seen != image->count)
		snprintf(why, IMAGE_WHY_BYTES, "%zu files are there, of %zu that were told", comparison.seen, image->count);
	return why[0] == '\0';
}
