/* Slices: from the page cache to a socket without a copy. */
#include "worker/slice.h"

#include <errno.h>
#include <fcntl.h>

#include "worker/segment.h"
#include "worker/syscalls.h"

enum {
	ADVICE_BYTES = 128 * 1024,	/* of one piece of advice the kernel heeds no more than its own window */
	READ_BYTES = 64 * 1024,		/* are read at once: on the stack, and in the processor's cache */
};

int64_t
slice_bytes_in_memory(const struct slice *slice)
{
	int64_t wanted = slice->bytes < SLICE_SENDFILE_MAX_BYTES ? slice->bytes : SLICE_SENDFILE_MAX_BYTES;

	return residency_bytes(&slice->segment->residency, slice->segment->fd, slice->position, wanted);
}

/* How much to send next; 0 when nothing that can be relied upon is left. */
static size_t
next_bytes(const struct slice *slice, int64_t bytes)
{
	int64_t left = slice->segment->cut_position - slice->position;

	if (bytes > SLICE_SENDFILE_MAX_BYTES)
		bytes = SLICE_SENDFILE_MAX_BYTES;
	if (bytes > slice->bytes)
		bytes = slice->bytes;
	if (bytes > left)
		bytes = left;
	return bytes > 0 ? (size_t)bytes : 0;
}

ssize_t
slice_send(struct slice *slice, int socket_fd, int64_t bytes)
{
	size_t wanted = next_bytes(slice, bytes);
	off_t position = slice->position;
	ssize_t sent;

	if (wanted == 0) {
		errno = EIO;
		return -1;
	}
	do
		sent = syscalls.sendfile(socket_fd, slice->segment->fd, &position, wanted);
	while (sent == -1 && errno == EINTR);
	if (sent == 0) {
		errno = EIO;
		return -1;
	}
	if (sent > 0) {
		slice->position += sent;
		slice->bytes -= sent;
	}
	return sent;
}

int
slice_check(const struct slice *slice)
{
	int64_t file_bytes = segment_file_bytes(slice->segment->fd);

	if (file_bytes == -1)
		return -1;
	if (slice->position + slice->bytes <= file_bytes)
		return 0;
	errno = EIO;
	return -1;
}

void
slice_release(struct slice *slice)
{
	segment_drop(slice->segment);
	*slice = (struct slice){ 0 };
}

void
slice_read_begin(const struct slice *slice, int64_t position, int64_t bytes, int64_t awaited_bytes, struct slice_read *read)
{
	int64_t slice_end = slice->position + slice->bytes;
	int64_t end = slice->segment->bytes > slice_end ? slice->segment->bytes : slice_end;

	segment_hold(slice->segment);
	*read = (struct slice_read){ .segment = slice->segment, .position = position,
		.bytes = bytes < end - position ? bytes : end - position,
		.awaited_position = slice->position, .awaited_bytes = awaited_bytes };
}

void
slice_read_run(struct slice_read *read)
{
	uint8_t buffer[READ_BYTES];
	int64_t done = 0;

	for (int64_t at = 0; at < read->bytes; at += ADVICE_BYTES)
		syscalls.fadvise(read->segment->fd, read->position + at,
		    read->bytes - at < ADVICE_BYTES ? read->bytes - at : ADVICE_BYTES, POSIX_FADV_WILLNEED);
	while (done < read->awaited_bytes) {
		int64_t left = read->awaited_bytes - done;
		ssize_t n = segment_read(read->segment->fd, buffer, left < READ_BYTES ? (size_t)left : READ_BYTES,
		    read->awaited_position + done);

		if (n <= 0) {
			read->error = n == 0 ? EIO : errno;
			return;
		}
		done += n;
	}
}

void
slice_read_end(struct slice_read *read)
{
	segment_drop(read->segment);
	read->segment = NULL;
}
