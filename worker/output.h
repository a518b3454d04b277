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

struct output {			/* zero-initialised = empty */
	uint8_t *bytes;
	size_t capacity;
	size_t head, tail;	/* unsent bytes stand in between */
	uint64_t sent;		/* bytes of the queue, slices not counted, ever sent */
	struct output_slice *slices;
	size_t slice_capacity;
	size_t slice_head, slice_tail;
	int64_t slice_bytes_sent;	/* ever, for the caller to take the difference of */
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
	OUTPUT_CUT,	/* a file ended inside a slice: what was announced cannot be kept */
};

/* Sends as much as goes, somewhat more than `budget` at most. SIGPIPE must be ignored: sendfile has no flag for it. */
enum output_state output_flush(struct output *output, int fd, size_t budget);

/* Drops everything and frees the memory. */
void output_clear(struct output *output);

#endif
