/*
 * A stretch of a segment file that has been promised to a client. It holds its segment, so the bytes stay readable
 * from the moment their number is announced until the last one is sent, whatever happens to the file's name.
 */
#ifndef WORKER_SLICE_H
#define WORKER_SLICE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct segment;

struct slice {
	struct segment *segment;	/* one reference; NULL = an empty slice */
	int64_t position;		/* of the next byte to send */
	int64_t bytes;			/* left to send */
};

enum { SLICE_SENDFILE_MAX_BYTES = 256 * 1024 };

/* How many of the next bytes are in memory, without a gap and as far as one call would send them: 0 = sending would wait
 * for the disk. Not with an empty slice. */
int64_t slice_bytes_in_memory(const struct slice *slice);

/*
 * Sends the next bytes to a socket by sendfile, at most `bytes` and SLICE_SENDFILE_MAX_BYTES, and moves the slice on. Returns
 * the number sent, or -1 with errno: EAGAIN, the socket's errors, or EIO when the file ends inside the slice (it was
 * truncated) or its log has failed and ends there: the promise cannot be kept, the connection must be closed. Not with an
 * empty slice, nor with 0 bytes.
 */
ssize_t slice_send(struct slice *slice, int socket_fd, int64_t bytes);

/* Does the file still hold all of it? Asked before its bytes are announced. Returns 0, or -1 with errno (EIO: it is shorter). */
int slice_check(const struct slice *slice);

/* Gives the reference back and empties the slice. An empty one is allowed. */
void slice_release(struct slice *slice);

/*
 * Bringing a segment file into memory ahead of a slice. Begun and ended by the owner, run by any thread in between: the
 * kernel is told to read one stretch, and the first bytes of the slice are waited for.
 */
struct slice_read {
	struct segment *segment;	/* a reference of its own */
	int64_t position;		/* of the stretch */
	int64_t bytes;
	int64_t awaited_position;
	int64_t awaited_bytes;
	int error;		/* errno of the wait (EIO: the file ends before), 0 = they have been read */
};

/* The stretch: `bytes` bytes of the slice's segment from `position` on, or what there is. */
void slice_read_begin(const struct slice *slice, int64_t position, int64_t bytes, int64_t awaited_bytes,
    struct slice_read *read);
void slice_read_run(struct slice_read *read);
void slice_read_end(struct slice_read *read);

#endif
