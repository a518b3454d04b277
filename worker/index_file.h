/*
 * A segment's stored index, beside it in the directory. A cache: believed as far as its sums and the segment itself say
 * so, and built anew from the records where it is missing or wrong. It only grows: each chunk says that everything up to
 * its end has been forced, and brings the marks of the records since the chunk before. So in the active segment the last
 * chunk is the recovery point, and in a sealed one it ends where the segment ends. A chunk is written after the force it
 * speaks of and never forced itself: what a power cut leaves of it is a shorter file, or sums that do not fit.
 *
 *   <20 digits>.index    header | chunk | chunk | ...           integers are big-endian
 *
 *   header   8 bytes "lbindex\n" | int32 version 1 | int32 record format | int64 base | int32 sum of these
 *   chunk    int32 number of marks | int64 end offset | int64 end position | int64 position of the last record |
 *            the first 8 bytes of that record, zeros behind its end | int64 first append, ms | int64 last append, ms |
 *            marks x ( int64 offset | int64 position ) | int32 sum of the sum before this chunk and of these
 *
 * The sums are CRC-32C. That the last record stands where the chunk says, with the same length and sum, tells an index of
 * this log from a left-over of another one.
 */
#ifndef WORKER_INDEX_FILE_H
#define WORKER_INDEX_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/record.h"
#include "worker/index.h"

enum { INDEX_LAST_BYTES = 8 };

/* What a chunk says. */
struct index_point {
	int64_t end;			/* every record below this offset has been forced; at least one in this segment */
	int64_t position;		/* behind the last of them */
	int64_t last_position;		/* of the last of them */
	uint8_t last_bytes[INDEX_LAST_BYTES];
	int64_t first_append_ms;	/* to this segment, by the wall clock */
	int64_t last_append_ms;
};

/* A file as it is known to be: where its next chunk goes. Zeroed: there is none, and the next chunk begins a new one. */
struct index_file {
	struct index_point point;	/* what its last chunk says */
	size_t marks;			/* in all chunks */
	size_t chunks;
	int64_t bytes;			/* up to the end of the last chunk */
	uint32_t sum;			/* of that */
};

/* The file's name into SEGMENT_NAME_BYTES. */
void index_file_name(char *to, int64_t base);

/*
 * Reads the longest valid prefix of the file. Its marks, sorted, are added to `index`, which is empty. Returns 0 with at
 * least one chunk; or -1 with errno, `index` empty and *file zeroed: ENOENT; EBADMSG, this is no index of that segment in
 * that format; ENOMEM, or the calls'. Whether it fits the segment is not looked at. `stray_bytes` (may be NULL): what
 * stands behind the valid prefix.
 */
int index_file_read(int dir_fd, int64_t base, enum record_format format, struct index *index, struct index_file *file,
    int64_t *stray_bytes);

/* Does the point fit the segment's file of `file_bytes` bytes? */
bool index_point_fits(const struct index_point *point, int segment_fd, int64_t file_bytes);

/*
 * Fills in the point's last record, looking for it from `from` on, where a record ahead of the point's end begins. Returns
 * 0, or -1 with errno: EBADMSG, the lengths do not lead to the end; ENOMEM, or the read's.
 */
int index_point_find_last(struct index_point *point, int segment_fd, enum record_format format, struct index_mark from);

/*
 * Adds a chunk with the `count` marks since the file's last one; where most of a file would be heads of chunks, writes it
 * anew. Returns 0, or -1 with errno and *file as it was: then the next chunk may be tried at any time. ESTALE: the file is
 * not what it was; *file is zeroed, and the next chunk must bring all marks.
 */
int index_file_append(int dir_fd, int64_t base, enum record_format format, struct index_file *file,
    const struct index_point *point, const struct index_mark *marks, size_t count);

/* Removes the file; the directory is not forced. Returns 0 also when there is none, or -1 with errno. */
int index_file_remove(int dir_fd, int64_t base);

#endif
