/*
 * A disk that promises more than it has: ext4 on a loop device whose image lies, with holes, in a small tmpfs. Its own
 * structures are there in full, with spare blocks for those that grow, so that nothing but what files hold can fail: a
 * block that needs a hole filled when the tmpfs is full is lost, the force that wrote it fails, and the next one succeeds.
 * For root only. The mounts are in a name space of the test's process, the loop device is let go of with them: whatever
 * happens to the test, nothing is left.
 *
 * A loop device takes a write of which only the first blocks fitted for done (Linux 6.18): a force that should have failed
 * succeeds then, and blocks are missing. So this one, which has a number that nobody else uses, is given one block at a
 * time. (After a crash that device stays there, with nothing in it.)
 */
#ifndef TESTS_DEVICE_H
#define TESTS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "broker.h"

struct device {
	int number;					/* of the loop device */
	char backing[BROKER_PATH_BYTES * 2];		/* where the tmpfs is */
	char image[BROKER_PATH_BYTES * 2 + 16];
	char path[BROKER_PATH_BYTES];			/* where the disk is mounted */
};

/* Makes the disk, empty, and mounts it at `path`, a directory; `directory` is for what is behind it. False, with the reason
 * in *why, when that cannot be done here; then nothing is left of it. */
bool device_begin(struct device *device, const char *directory, const char *path, const char **why);

enum { DEVICE_BLOCK_BYTES = 4096 };

/* From now on no block can be written but by the file that has written it before; and again as many as there are. */
void device_fill(const struct device *device);
void device_make_room(const struct device *device);

/* Unmounts the disk and mounts it again: nothing remembers what it does not have. Nobody may use it. */
void device_remount(const struct device *device);

/* Nobody may use it. */
void device_end(const struct device *device);

#endif
