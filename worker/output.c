#include "worker/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
	FIRST_BYTES = 256,
	FIRST_SLICES = 2,
	KEPT_BYTES = 4096,	/* a drained queue keeps no more memory than this */

	/* What is read for a slice at least and at most; and for a reader in order, from here to there, doubled whenever it
	 * has to wait all the same. */
	READ_FIRST_BYTES = 128 * 1024,
	READ_SLICE_BYTES = 1024 * 1024,
	READ_AHEAD_BYTES = 1024 * 1024,
	READ_AHEAD_MAX_BYTES = 4 * 1024 * 1024,
	/* So often what was read has gone again before it was sent, or the file system keeps it where nobody can see it: then
	 * it is sent all the same, at the risk of waiting for the disk. Else there might be no way on. */
	IN_VAIN_MAX = 3,
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
	struct output_ahead *ahead = &output->ahead;
	int64_t bytes = slice_bytes_in_memory(slice);
	ssize_t n;

	if (bytes == 0)
		bytes = ahead->blind_bytes;
	if (bytes == 0)
		return ahead->unreadable ? OUTPUT_CUT : OUTPUT_COLD;
	n = slice_send(slice, fd, bytes);
	if (n < 0 && errno == EIO)
		return OUTPUT_CUT;
	if (n < 0)
		return errno == EINTR ? OUTPUT_MORE : state_for(errno);
	ahead->in_vain = 0;
	ahead->unreadable = false;
	ahead->blind_bytes -= n < ahead->blind_bytes ? n : ahead->blind_bytes;
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

/* Is this place in what has been read ahead, or at its end? */
static bool
comes_in_order(const struct output_ahead *ahead, const struct slice *slice)
{
	return ahead->segment == slice->segment && slice->position <= ahead->end &&
	    slice->position >= ahead->end - 2 * READ_AHEAD_MAX_BYTES;
}

static int64_t
within(int64_t bytes, int64_t least, int64_t most)
{
	return bytes < least ? least : bytes > most ? most : bytes;
}

/* What must be in memory before anything can be sent. The further a reader is read ahead of, the more it waits for at
 * once: each wait costs two changes of threads. */
static void
begin_cold_read(struct output_ahead *ahead, const struct slice *slice, struct slice_read *read)
{
	bool in_order = comes_in_order(ahead, slice);
	int64_t position = in_order ? ahead->end : slice->position;
	int64_t bytes = within(slice->bytes, READ_FIRST_BYTES, READ_SLICE_BYTES);

	ahead->window_bytes = in_order ? within(2 * ahead->window_bytes, READ_AHEAD_BYTES, READ_AHEAD_MAX_BYTES) : 0;
	if (in_order)
		bytes = slice->position + ahead->window_bytes - position;
	slice_read_begin(slice, position, bytes, within(slice->bytes, 0, in_order ? ahead->window_bytes / 4 :
	    SLICE_SENDFILE_MAX_BYTES), read);
	ahead->segment = slice->segment;
	if (read->bytes > 0)
		ahead->end = position + read->bytes;
}

/* The next stretch of a reader that comes in order, when not much is left of the last one. Ends where the log ends, and
 * where somebody else has read before. */
static bool
begin_read_ahead(struct output_ahead *ahead, const struct slice *slice, struct slice_read *read)
{
	struct slice next = { .segment = slice->segment, .position = ahead->end, .bytes = 1 };

	if (ahead->window_bytes == 0 || !comes_in_order(ahead, slice) ||
	    ahead->end - slice->position > within(ahead->window_bytes / 2, READ_AHEAD_BYTES, READ_AHEAD_MAX_BYTES))
		return false;
	slice_read_begin(slice, ahead->end, ahead->window_bytes, 0, read);
	if (read->bytes > 0 && slice_bytes_in_memory(&next) == 0) {
		ahead->end += read->bytes;
		return true;
	}
	slice_read_end(read);
	ahead->window_bytes = 0;
	return false;
}

bool
output_next_read(struct output *output, bool cold, struct slice_read *read)
{
	const struct slice *slice;

	if (output_slices(output) == 0)
		return false;
	slice = &output->slices[output->slice_head].slice;
	if (!cold)
		return begin_read_ahead(&output->ahead, slice, read);
	begin_cold_read(&output->ahead, slice, read);
	return true;
}

void
output_read_done(struct output *output, const struct slice_read *read)
{
	const struct slice *slice;

	if (output_slices(output) == 0 || read->awaited_bytes == 0)
		return;
	slice = &output->slices[output->slice_head].slice;
	if (slice->segment != read->segment || slice->position != read->awaited_position)
		return;
	output->ahead.unreadable = read->error != 0;
	if (++output->ahead.in_vain == IN_VAIN_MAX)
		output->ahead.blind_bytes = read->awaited_bytes;
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
