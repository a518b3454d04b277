/*
 * The part of a roll that waits for the disk: sealing the active segment, and making the next one or, for a batch
 * larger than a segment, the next ones. Owns the order of these steps and their undoing; knows the partition only by
 * what its owner has put into the job and takes out of it again.
 *
 *   seal       active: trim to its exact length, force
 *   write      each new segment: create under a temporary name, write, force; the last one gets its full size
 *   publish    each new segment in order: rename, force the directory
 *   store      the index of each segment that has records, and the list of the sealed ones: caches, so that this may fail
 *
 * Nothing of the batch has a name before all of it is on disk. The directory is forced between two renames, since a
 * power cut may keep any subset of names that are not forced, and a hole must never come from that.
 */
#ifndef WORKER_ROLL_H
#define WORKER_ROLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/index_file.h"
#include "worker/mapping.h"
#include "worker/segment.h"

/* One new segment and what it is made with. */
struct roll_part {
	int64_t base;
	int64_t count;		/* records; 0 = an empty segment */
	const uint8_t *records;
	size_t bytes;
};

struct partition_roll {
	/* What is to be done: set by the owner. */
	int dir_fd;
	struct segment *active;	/* a reference of the job's own */
	int64_t index_interval_bytes;
	int64_t full_bytes;	/* size of the new active segment's file, if its records need less; 0 = what they need */
	struct mapping ahead, behind;	/* of the active segment: nothing is stored through them any more */
	struct roll_part *parts;	/* at least one; the last becomes the active segment */
	size_t part_count;
	/* The active segment is empty: the first part takes its name, and with it its place. */
	bool replaces;
	/* The active segment's index file and its times; after the run without error the file of the new one. */
	struct index_file stored;
	int64_t first_append_ms, last_append_ms;

	/* What has been done: valid after the run. */
	int error;		/* errno of the first failure; 0 = done. Set before the run: nothing is to be done */
	bool lost;		/* what is on disk is not known any more: the partition has failed */
	bool trimmed;		/* the active file has its exact length */
	int index_error;	/* errno of the first index that could not be stored, which does no harm; 0 = all are */
	int list_error;		/* and of the list of sealed segments */
	/* Without error the new active segment. With an error NULL, or the empty file that stands in the active one's
	 * place since an undone batch had taken its name. */
	struct segment *next;
};

/*
 * Cuts a batch into parts of whole records, each at most `segment_bytes` long, the first with the offset `base`;
 * without bytes: one empty part. Stores a new array in *parts. Returns 0, or -1 with errno: ENOMEM; EINVAL: not that
 * many records, or one that no segment can hold.
 */
int roll_plan(enum record_format format, int64_t segment_bytes, int64_t base, const uint8_t *records, size_t bytes,
    int64_t count, struct roll_part **parts, size_t *part_count);

/* Frees a roll with all it still holds. */
void roll_free(struct partition_roll *roll);

/* Creates an empty segment under its temporary name. Returns it with one reference, or NULL with errno. */
struct segment *roll_create_segment(int dir_fd, int64_t base, enum record_format format,
    int64_t index_interval_bytes);

/* Gives a segment its name. The directory is not forced. Returns 0, or -1 with errno. */
int roll_publish_segment(int dir_fd, int64_t base);

#endif
