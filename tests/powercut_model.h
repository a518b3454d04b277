/*
 * A disk that is asked for as little as can be: what of a list of events (powercut_events.h) is on it for certain, and
 * what a power cut may keep or lose. Pure: no file is touched.
 *
 *   of a file	its bytes and size at its last force, and the changes since
 *   of a directory	the names at its last force, and the changes since
 *
 * A force makes durable what its file's events ahead of FORCE have changed, once FORCED has come, and nothing else: a
 * file's force does not make its name durable, nor a directory's the bytes behind its names. Each change since then falls
 * into units of which a power cut keeps any: a write's bytes by block, the size that it has given to the file, a name
 * (a rename is one, of both names). What is kept of them is applied in the order in which it was asked for.
 *
 * When a force has failed, the bytes that it was to make durable are on the disk or are not, page by page, and remain so: the
 * kernel has forgotten that they should be written. Names and sizes are as before, since a journal that could not be written
 * takes nothing any more.
 *
 * Whoever cuts a file zeros what is cut off in the page where it ends now; that is a unit of its own, since the page can
 * be on the disk before the size is.
 */
#ifndef TESTS_POWERCUT_MODEL_H
#define TESTS_POWERCUT_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/powercut_events.h"
#include "tests/powercut_image.h"

enum model_unit_kind { MODEL_BYTES, MODEL_SIZE, MODEL_NAME };

struct model_unit {
	enum model_unit_kind kind;
	bool stored;		/* bytes that went through a mapping: of 8 of them any may be kept without the others */
	bool resized;		/* a size that was asked for, or the zeros that came of it */
	uint32_t file;		/* by number; of a name its directory */
	uint32_t change;	/* of that file, by number, oldest first */
	uint32_t event;		/* number of the event, from 0 */
	int64_t from, to;	/* bytes in the file */
};

/* What a power cut does to a unit. */
enum model_fate { MODEL_LOST, MODEL_KEPT, MODEL_TORN };

struct model;

/* `seed`: of what has become of bytes whose force has failed. */
struct model *model_new(uint64_t seed);
void model_free(struct model *model);

/*
 * The next event, which must stay in memory. Those that are not about files are counted and nothing else. Returns 0, or -1
 * when it cannot be: of a file that nobody has made, a force that has not begun.
 */
int model_apply(struct model *model, const struct powercut_event *event);

/* A disk on which `image` is, durably. The inodes are those of the tree at `root`. */
struct model *model_of_image(const struct image *image, const char *root);

/* All units, of blocks of `block_bytes`; the model's own until it is changed. In order of files and their changes. */
size_t model_units(struct model *model, int64_t block_bytes, const struct model_unit **units);

/*
 * The tree of which these units are kept, of the last model_units' (`fates`, one each). With `garbage`, a seed, a lost
 * block that had never been on the disk holds anything, where the file's size has been kept. The image's bytes are the
 * model's until it is changed, or the image's own.
 */
void model_image(struct model *model, const uint8_t *fates, uint64_t seed, bool garbage, struct image *image);
/* The tree as all processes see it; its hashes mean nothing. */
void model_image_applied(const struct model *model, struct image *image);

/* Finds the file as processes see it, by path: its number; -1: there is none. */
int model_find(const struct model *model, const char *path);
/* The file of an event, -1: none. And its name as last given, "" for none. */
int model_file_of(const struct model *model, const struct powercut_event *event);
const char *model_file_name(const struct model *model, int file);
/* The bytes of a file as processes see it. */
const uint8_t *model_bytes(const struct model *model, int file, int64_t *size);
/* Calls `visit` for each name in a directory, as processes see it. */
void model_names(const struct model *model, int directory, void (*visit)(const char *name, void *context), void *context);

#endif
