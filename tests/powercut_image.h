/*
 * A directory tree as it may be found after a power cut: paths and contents in memory. Writes it to a file system, and
 * compares it with one. Knows nothing of how it came to be.
 */
#ifndef TESTS_POWERCUT_IMAGE_H
#define TESTS_POWERCUT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { IMAGE_PATH_BYTES = 160, IMAGE_WHY_BYTES = 512 };

struct image_entry {
	char path[IMAGE_PATH_BYTES];	/* below the root; a directory stands ahead of what is in it */
	bool directory;
	bool owned;			/* the bytes are freed with the image */
	const uint8_t *bytes;
	int64_t size;
	uint64_t hash;			/* of the bytes */
};

struct image {
	struct image_entry *entries;
	size_t count, capacity;
};

/* Room for one more of `size` bytes in an array of `count`, which may have moved. */
void *image_grown(void *array, size_t count, size_t *capacity, size_t size);

/* A new entry at the end. Anything but a directory has to get its bytes and their hash by the caller. */
struct image_entry *image_add(struct image *image, const char *path);
/* Forgets all entries, and keeps the memory. */
void image_clear(struct image *image);
void image_free(struct image *image);

const struct image_entry *image_find(const struct image *image, const char *path);

/* Of bytes, by a quick function that nobody needs to be afraid of. */
uint64_t image_hash_bytes(const void *bytes, size_t size);
/* Of all paths and contents. */
uint64_t image_hash(const struct image *image);

/* Makes it anew as `root`, which is then all there is. */
void image_write(const struct image *image, const char *root);
/* Removes a tree, whatever it is. */
void image_remove(const char *root);
/* Is the tree at `root` the same? Otherwise says where not. */
bool image_is_at(const struct image *image, const char *root, char *why);

#endif
