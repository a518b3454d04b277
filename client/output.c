/*
 * Standard output for data.
 */
#include "client/output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tool.h"

enum {
	OUTPUT_BUFFER_BYTES = 256 * 1024,
	OUTPUT_LINE_BYTES = 512,
	OUTPUT_PATIENCE_MS = 1000,	/* for a reader, once we are asked to end */
};

int
output_open(struct output *output, int fd)
{
	*output = (struct output){ .fd = fd, .capacity = OUTPUT_BUFFER_BYTES };
	output->buffer = malloc(output->capacity);
	if (output->buffer != NULL)
		return 0;
	tool_say("out of memory");
	return -1;
}

void
output_free(struct output *output)
{
	free(output->buffer);
	*output = (struct output){ .fd = -1 };
}

static void
note_failure(struct output *output, int error)
{
	if (error == EPIPE) {
		output->closed = true;
		return;
	}
	output->failed = true;
	tool_say("cannot write to standard output: %s", strerror(error));
}

/* Bytes to write now; once we are asked to end, only as many as do not wait, and 0 for a reader who has stopped reading. */
static size_t
next_write(const struct output *output)
{
	struct pollfd writable = { .fd = output->fd, .events = POLLOUT };

	if (!tool_stopped())
		return output->used;
	if (poll(&writable, 1, OUTPUT_PATIENCE_MS) <= 0)
		return 0;
	return output->used < PIPE_BUF ? output->used : PIPE_BUF;
}

/* Somebody has made our standard output non-blocking, and it is full. */
static void
wait_for_reader(const struct output *output)
{
	struct pollfd awaited[] = { { .fd = output->fd, .events = POLLOUT }, { .fd = tool_stop_fd(), .events = POLLIN } };

	poll(awaited, 2, -1);
}

int
output_flush(struct output *output)
{
	const uint8_t *from = output->buffer;

	while (output->used > 0 && !output->closed && !output->failed) {
		size_t bytes = next_write(output);
		ssize_t n = bytes == 0 ? 0 : write(output->fd, from, bytes);

		if (n >= 0) {
			output->closed = bytes == 0;
			from += n;
			output->used -= (size_t)n;
		} else if (errno == EAGAIN) {
			wait_for_reader(output);
		} else if (errno != EINTR) {
			note_failure(output, errno);
		}
	}
	output->used = 0;
	return output->closed || output->failed ? -1 : 0;
}

uint8_t *
output_room(struct output *output, size_t bytes)
{
	uint8_t *grown;

	if (output->capacity - output->used < bytes)
		output_flush(output);
	if (output->capacity < bytes) {
		grown = realloc(output->buffer, bytes);
		if (grown == NULL) {
			note_failure(output, ENOMEM);
			return NULL;
		}
		output->buffer = grown;
		output->capacity = bytes;
	}
	return output->buffer + output->used;
}

void
output_advance(struct output *output, size_t bytes)
{
	output->used += bytes;
}

void
output_put(struct output *output, const void *bytes, size_t size)
{
	uint8_t *room = output_room(output, size);

	if (room == NULL || size == 0)
		return;
	memcpy(room, bytes, size);
	output_advance(output, size);
}

void
output_print(struct output *output, const char *format, ...)
{
	char *room = (char *)output_room(output, OUTPUT_LINE_BYTES);
	va_list arguments;
	int n;

	if (room == NULL)
		return;
	va_start(arguments, format);
	n = vsnprintf(room, OUTPUT_LINE_BYTES, format, arguments);
	va_end(arguments);
	output_advance(output, (size_t)(n < OUTPUT_LINE_BYTES ? n : OUTPUT_LINE_BYTES - 1));
}
