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

/*
 * Sends the next bytes to a socket by sendfile, at most SLICE_SENDFILE_MAX_BYTES, and moves the slice on. Returns the
 * number sent, or -1 with errno: EAGAIN, the socket's errors, or EIO when the file ends inside the slice (it was
 * truncated: the promise cannot be kept, the connection must be closed). Not with an empty slice.
 */
ssize_t slice_send(struct slice *slice, int socket_fd);

/* Does the file still hold all of it? Asked before its bytes are announced. Returns 0, or -1 with errno (EIO: it is shorter). */
int slice_check(const struct slice *slice);

/* Gives the reference back and empties the slice. An empty one is allowed. */
void slice_release(struct slice *slice);

#endif
