/*
 * Standard output for data.
 */
#include "client/output.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/tool.h"

enum { OUTPUT_BUFFER_BYTES = 256 * 1024, OUTPUT_LINE_BYTES = 512 };

int
output_open(struct output *output, int fd)
{
	*output = (struct output){ .fd = fd, .capacity = OUTPUT_BUFFER_BYTES };
	output->buffer = malloc(output->capacity);
	return output->buffer == NULL ? -1 : 0;
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

int
output_flush(struct output *output)
{
	const uint8_t *from = output->buffer;
	struct pollfd writable = { .fd = output->fd, .events = POLLOUT };

	while (output->used > 0 && !output->closed && !output->failed) {
		ssize_t n = write(output->fd, from, output->used);

		if (n >= 0) {
			from += n;
			output->used -= (size_t)n;
		} else if (errno == EAGAIN) {	/* somebody made our standard output non-blocking */
			poll(&writable, 1, -1);
		} else if (errno != EINTR) {
			note_failure(output, errno);
		} else if (tool_stopped()) {
			output->closed = true;	/* asked to end while the reader takes nothing */
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
