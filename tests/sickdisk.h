/*
 * A disk behind the page cache that a test can make sick, as a table of system calls: the real files are the page cache,
 * and what the disk has of them is kept here, block by block. A block that cannot be written when a force or a read past
 * the cache asks for it is clean from then on, the force (or the read) fails once, and the next one succeeds: as on Linux.
 * A flush that fails makes the disk forget what it had taken since the last one, although it goes on showing it.
 *
 *   cache    the real file      what read, sendfile and a process that starts anew see
 *   shown    in memory          what a read past the cache sees
 *   kept     in memory          what a power cut leaves
 *
 * Names and sizes are on the disk at once. Files have at most SICKDISK_FILE_BYTES.
 */
#ifndef TESTS_SICKDISK_H
#define TESTS_SICKDISK_H

#include <stdbool.h>
#include <stdint.h>

enum { SICKDISK_FILE_BYTES = 256 * 1024, SICKDISK_BLOCK_BYTES = 512 };

/* Per thousand. */
struct sickdisk {
	unsigned lost_blocks;	/* writes of a block that fail */
	unsigned lost_flushes;	/* flushes that fail behind them */
	unsigned no_new_files;	/* files that cannot be created: ENOSPC */
	unsigned lost_names;	/* forces of a directory that fail */
	bool cached_only;	/* nothing can be opened past the cache: EINVAL */
};

/* Behind logkit_begin. False when the file system of the tests has no reads past its cache. */
bool sickdisk_begin(uint32_t seed);
void sickdisk_end(void);

/* From now on. */
void sickdisk_set(struct sickdisk how);

/* Blocks of that file are written now, as the kernel does now and then; nobody is told of those that are lost. */
void sickdisk_write_back(const char *path);

/* Bytes from `from` to `to` are the same in cache and disk; `kept`: also behind a power cut. */
bool sickdisk_same(const char *path, int64_t from, int64_t to, bool kept);

/* The power fails: the file is what is kept of it. */
void sickdisk_cut_power(const char *path);

#endif
