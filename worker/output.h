/*
 * What a connection still has to send: bytes, and stretches of segment files between them, in order. Sends by send and
 * sendfile on a non-blocking socket; knows no events and no requests.
 */
#ifndef WORKER_OUTPUT_H
#define WORKER_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/slice.h"

struct output_slice {
	struct slice slice;
	uint64_t at;		/* goes out when so many bytes of the queue have been sent */
};

/* How far the files have been read ahead of this queue. */
struct output_ahead {
	const struct segment *segment;	/* of the last read: to be compared, never looked into; NULL = none yet */
	int64_t end;			/* its position up to which the kernel has been told to read */
	int64_t window_bytes;		/* so much at once, to a reader that comes in order; 0 = it does not */
	int in_vain;			/* reads waited for since something was sent */
	int64_t blind_bytes;		/* are sent although they do not show in memory */
	bool unreadable;		/* the next bytes cannot be read */
};

struct output {			/* zero-initialised = empty */
	uint8_t *bytes;
	size_t capacity;
	size_t head, tail;	/* unsent bytes stand in between */
	uint64_t sent;		/* bytes of the queue, slices not counted, ever sent */
	struct output_slice *slices;
	size_t slice_capacity;
	size_t slice_head, slice_tail;
	int64_t slice_bytes_sent;	/* ever, for the caller to take the difference of */
	struct output_ahead ahead;
};

/* Room for `size` more bytes; write them there and call output_put. NULL: no memory. */
uint8_t *output_reserve(struct output *output, size_t size);
void output_put(struct output *output, size_t size);

/* Appends a slice, whose reference becomes the queue's. Returns 0, or -1 without memory (it stays the caller's). */
int output_put_slice(struct output *output, const struct slice *slice);

bool output_empty(const struct output *output);

/* Unsent bytes in memory, and slices not completely sent. */
size_t output_bytes(const struct output *output);
size_t output_slices(const struct output *output);

enum output_state {
	OUTPUT_DRAINED,
	OUTPUT_BLOCKED,	/* the socket is full */
	OUTPUT_MORE,	/* `budget` is used up: let others have their turn */
	OUTPUT_GONE,	/* the peer takes nothing any more */
	OUTPUT_CUT,	/* a file ended inside a slice or cannot be read: what was announced cannot be kept */
	OUTPUT_COLD,	/* the next bytes of a file are not in memory: they must be read before the next flush */
};

/* Sends as much as goes, somewhat more than `budget` at most. SIGPIPE must be ignored: sendfile has no flag for it. */
enum output_state output_flush(struct output *output, int fd, size_t budget);

/*
 * What should be read from a file now, by a thread, so that flushes find it in memory? At most one read at a time is under
 * way for a queue; output_read_done says that it has run, and whoever began it still ends it. `cold`: the last flush has
 * stopped there, and the read waits for what is missing; otherwise it is only to stay ahead of a reader that goes
 * through a segment in order. False: nothing.
 */
bool output_next_read(struct output *output, bool cold, struct slice_read *read);
void output_read_done(struct output *output, const struct slice_read *read);

/* Drops everything and frees the memory. */
void output_clear(struct output *output);

#endif
