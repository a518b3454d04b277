#include "worker/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
	FIRST_BYTES = 256,
	FIRST_SLICES = 2,
	KEPT_BYTES = 4096,	/* a drained queue keeps no more memory than this */
};

uint8_t *
output_reserve(struct output *output, size_t size)
{
	size_t used = output->tail - output->head;
	size_t capacity = output->capacity;
	uint8_t *bytes;

	if (output->capacity - output->tail >= size)
		return output->bytes + output->tail;
	if (capacity - used >= size && output->head >= used) {
		memcpy(output->bytes, output->bytes + output->head, used);
	} else {
		if (capacity == 0)
			capacity = FIRST_BYTES;
		while (capacity - used < size)
			capacity *= 2;
		bytes = malloc(capacity);
		if (bytes == NULL)
			return NULL;
		if (used > 0)
			memcpy(bytes, output->bytes + output->head, used);
		free(output->bytes);
		output->bytes = bytes;
		output->capacity = capacity;
	}
	output->head = 0;
	output->tail = used;
	return output->bytes + used;
}

void
output_put(struct output *output, size_t size)
{
	output->tail += size;
}

int
output_put_slice(struct output *output, const struct slice *slice)
{
	if (output->slice_head > 0 && output->slice_tail == output->slice_capacity) {
		memmove(output->slices, output->slices + output->slice_head,
		    output_slices(output) * sizeof(*output->slices));
		output->slice_tail -= output->slice_head;
		output->slice_head = 0;
	}
	if (output->slice_tail == output->slice_capacity) {
		size_t capacity = output->slice_capacity == 0 ? FIRST_SLICES : output->slice_capacity * 2;
		struct output_slice *slices = realloc(output->slices, capacity * sizeof(*slices));

		if (slices == NULL)
			return -1;
		output->slices = slices;
		output->slice_capacity = capacity;
	}
	output->slices[output->slice_tail++] = (struct output_slice){
		.slice = *slice,
		.at = output->sent + output_bytes(output),
	};
	return 0;
}

bool
output_empty(const struct output *output)
{
	return output->head == output->tail && output->slice_head == output->slice_tail;
}

size_t
output_bytes(const struct output *output)
{
	return output->tail - output->head;
}

size_t
output_slices(const struct output *output)
{
	return output->slice_tail - output->slice_head;
}

static enum output_state
state_for(int error)
{
	return error == EAGAIN || error == EINTR ? OUTPUT_BLOCKED : OUTPUT_GONE;
}

/* Bytes up to the next slice; the last of them wait in the kernel for the slice's first, to share its packet. */
static enum output_state
send_bytes(struct output *output, int fd, size_t size, bool more, size_t *budget)
{
	ssize_t n = send(fd, output->bytes + output->head, size, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));

	if (n < 0)
		return errno == EINTR ? OUTPUT_MORE : state_for(errno);
	output->head += (size_t)n;
	output->sent += (uint64_t)n;
	*budget -= (size_t)n < *budget ? (size_t)n : *budget;
	return OUTPUT_MORE;
}

static enum output_state
send_slice(struct output *output, int fd, size_t *budget)
{
	struct slice *slice = &output->slices[output->slice_head].slice;
	ssize_t n = slice_send(slice, fd);

	if (n < 0 && errno == EIO)
		return OUTPUT_CUT;
	if (n < 0)
		return errno == EINTR ? OUTPUT_MORE : state_for(errno);
	output->slice_bytes_sent += n;
	*budget -= (size_t)n < *budget ? (size_t)n : *budget;
	if (slice->bytes == 0) {
		slice_release(slice);
		output->slice_head++;
	}
	return OUTPUT_MORE;
}

static void
shrink(struct output *output)
{
	output->head = output->tail = 0;
	output->slice_head = output->slice_tail = 0;
	if (output->capacity > KEPT_BYTES) {
		free(output->bytes);
		output->bytes = NULL;
		output->capacity = 0;
	}
}

enum output_state
output_flush(struct output *output, int fd, size_t budget)
{
	while (!output_empty(output)) {
		bool before_slice = output_slices(output) > 0;
		size_t size = output_bytes(output);
		enum output_state state;

		if (budget == 0)
			return OUTPUT_MORE;
		if (before_slice)
			size = (size_t)(output->slices[output->slice_head].at - output->sent);
		if (size > 0)
			state = send_bytes(output, fd, size, before_slice, &budget);
		else
			state = send_slice(output, fd, &budget);
		if (state != OUTPUT_MORE)
			return state;
	}
	shrink(output);
	return OUTPUT_DRAINED;
}

void
output_clear(struct output *output)
{
	for (size_t i = output->slice_head; i < output->slice_tail; i++)
		slice_release(&output->slices[i].slice);
	free(output->bytes);
	free(output->slices);
	memset(output, 0, sizeof(*output));
}
