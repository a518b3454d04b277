/*
 * One segment file: its descriptor, how far it is readable, its sparse index, and the reference count that keeps
 * them while a partition, a job or a slice needs them. Owns names of segment files, whole reads and writes, and the
 * walk over records' lengths; does not know which segment is active, what stands before or behind it, or why.
 *
 * The reference count may be changed by any thread. The rest belongs to the partition's owner (or to the job that is
 * just making the segment); other threads may use the descriptor of a segment they hold.
 */
#ifndef WORKER_SEGMENT_H
#define WORKER_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/bytes.h"
#include "common/record.h"
#include "worker/index.h"
#include "worker/residency.h"

struct mapping;

struct segment {
	atomic_int references;
	int fd;
	enum record_format format;
	int64_t base;		/* offset of its first record */
	int64_t end;		/* offset behind the last record that is known here */
	int64_t bytes;		/* position behind that record */
	int64_t cut_position;	/* what stands behind may be cut and written anew, so it is not sent any more */
	struct index index;
	struct residency residency;	/* for the owner's questions alone */
	struct segment *next;	/* in a list of the owner's */
};

enum {
	SEGMENT_NAME_BYTES = 48,
	SEGMENT_FILE_MODE = 0640,
	SEGMENT_BASE_DIGITS = 20,
};

/* Names in the partition's directory, into SEGMENT_NAME_BYTES: "<20 digits>.log", and "<20 digits>.log.tmp". */
void segment_name(char *to, int64_t base);
void segment_temporary_name(char *to, int64_t base);

/* The offset that a name begins with; -1 when its first 20 characters are not the digits of one. */
int64_t segment_parse_base(const char *name);

/* A segment without records, with one reference, the caller's. Takes over fd, of which from now on the kernel reads only
 * what is asked for, without a note of the time; or NULL, and fd stays the caller's. */
struct segment *segment_new(int fd, int64_t base, enum record_format format, int64_t index_interval_bytes);
void segment_hold(struct segment *segment);
/* Gives a reference back; with the last one the file is closed. NULL is allowed. */
void segment_drop(struct segment *segment);
/* Has anybody else a reference? When not, what they did with theirs is seen, and only the caller could give out a new one. */
bool segment_is_shared(const struct segment *segment);

/* Opens a file of that name, which must be a regular one. Returns the descriptor, or -1 with errno (EIO: it is not). */
int segment_open_regular(int dir_fd, const char *name, int flags);

/* Opens the segment file of that base, which must be a regular file. Returns the descriptor, or -1 with errno. */
int segment_open_file(int dir_fd, int64_t base, int flags);

/* Creates a file with mode 0640 for writing, in place of a left-over of that name. Returns its descriptor, or -1. */
int segment_create_file(int dir_fd, const char *name);

/* Size of an open file, or -1 with errno. */
int64_t segment_file_bytes(int fd);

/* The first place from `position` on that is not in a hole of the file: what is preallocated can be a terabyte. */
int64_t segment_behind_hole(int fd, int64_t position, int64_t file_bytes);

/* Writes all of it, in several calls if need be. Returns 0, or -1 with errno: an unknown part is then written. */
int segment_write(int fd, const void *from, size_t bytes, int64_t position);

/* Reads until `bytes` are there or the file ends. Returns the number read, or -1 with errno. */
ssize_t segment_read(int fd, void *to, size_t bytes, int64_t position);

/* Cuts (or extends) the file. Returns 0, or -1 with errno. */
int segment_truncate(int fd, int64_t bytes);

/*
 * Size of an open segment with that many bytes of records, or -1 with errno: EIO, it ends before, or has no name any more, since
 * somebody else has cut, removed or replaced it under our hands. A short one is left so: to extend it would turn what is lost into
 * zeros.
 */
int64_t segment_whole_bytes(int fd, int64_t bytes);

/* Cuts what stands behind `bytes`. Returns 0, or -1 with errno, as above. */
int segment_cut(int fd, int64_t bytes);

/* The record's bytes with its header, from its first 4 bytes; 0 when no record can have that length. */
static inline size_t
segment_record_bytes(enum record_format format, const uint8_t *p)
{
	uint32_t length = bytes_get_u32(p);

	if (length == 0 || length > (uint32_t)record_max_payload(format))
		return 0;
	return record_header_bytes(format) + length;
}

/*
 * Writes `count` encoded records of `bytes` bytes behind the last one, through `mapping` unless it is NULL, and moves end,
 * bytes and index. Returns 0, or -1 with errno and those as they were (EINVAL: these bytes are not that many records,
 * nothing was written).
 */
int segment_append(struct segment *segment, const struct mapping *mapping, const uint8_t *records, size_t bytes,
    int64_t count);

/*
 * Walks over the lengths from where the segment ends so far up to the record `limit` or the end of the file, which has
 * `file_bytes`, and moves end, bytes and index. The descriptor may be one of direct_open's. Returns 0 when it came to one
 * of the two; or -1 with errno: EBADMSG where no record can stand (an impossible length, one that leads out of the
 * file), ENOMEM, or the read's.
 */
int segment_walk(struct segment *segment, int64_t file_bytes, int64_t limit);

/*
 * The place of the record `offset`, base <= offset <= end, found in memory: into *at. Returns 0, or -1 with errno: EAGAIN,
 * the disk must be asked (segment_seek_between); EBADMSG, no record can stand where *at says, at or ahead of the one that is
 * looked for, or from there on to the next mark there are not as many as there should be; or the read's.
 */
int segment_locate(struct segment *segment, int64_t offset, struct index_mark *at);

/* The last mark at or before that record, and the first one behind it, or the segment's end. */
struct index_mark segment_mark(const struct segment *segment, int64_t offset);
struct index_mark segment_next_mark(const struct segment *segment, int64_t offset);

/*
 * The same as segment_locate from *at on, the mark, for any thread that holds the segment and may wait: looks at nothing of
 * it that changes. `end` is the next mark.
 */
int segment_seek_between(const struct segment *segment, const struct index_mark *end, int64_t offset, struct index_mark *at);

/* The same where nothing is known of what stands behind the record, up to `end_position`. */
int segment_seek(const struct segment *segment, int64_t end_position, int64_t offset, struct index_mark *at);

#endif
