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

struct segment;

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

/* Up to which offset the log had been forced, by the index of the segment `base`, which may be gone, and of those that follow it;
 * `base` when nothing tells. */
int64_t index_file_end(int dir_fd, int64_t base, enum record_format format);

/* What an index file was found to be worth. */
struct index_taken {
	struct index_file file;	/* zeroed: there is none, or it is not believed */
	const char *wrong;	/* why it is not believed; NULL: it is, or there is none, or nobody knows: */
	int unread;		/* errno of reading it; 0 = it could be */
	int64_t forced_end;	/* with sums that are right, but of another segment or a longer one: its end. Else 0 */
	int64_t stray_bytes;	/* behind what is believed */
};

/*
 * Takes up the stored index of an empty segment whose file has `file_bytes` bytes and whose records lie below `limit`: its
 * end, bytes and marks are what the index says, if that fits. `read_fd` reads the segment and may be one of direct_open's.
 * Returns 0 with *taken, or -1 with errno: ENOMEM, EMFILE, ENFILE.
 */
int index_file_take(struct index_taken *taken, int dir_fd, struct segment *segment, int read_fd, int64_t file_bytes,
    int64_t limit);

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

/*
 * Stores a point of the segment, of which `end`, `position` and the times are given: finds its last record and adds it with
 * the `count` marks from `marks` on that are not in the file yet and are of records below its end. Returns 0, or -1 with
 * errno as the two functions above.
 */
int index_file_store(int dir_fd, const struct segment *segment, struct index_file *file, struct index_point *point,
    const struct index_mark *marks, size_t count);

/* The same with the segment's own marks, of which it chooses: also those of a file that has been begun anew. */
int index_file_store_all(int dir_fd, const struct segment *segment, struct index_file *file, struct index_point *point);

/* Removes the file; the directory is not forced. Returns 0 also when there is none, or -1 with errno. */
int index_file_remove(int dir_fd, int64_t base);

#endif
