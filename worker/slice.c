/* Slices: from the page cache to a socket without a copy. */
#include "worker/slice.h"

#include <errno.h>

#include "worker/segment.h"
#include "worker/syscalls.h"

ssize_t
slice_send(struct slice *slice, int socket_fd)
{
	size_t wanted = slice->bytes < SLICE_SENDFILE_MAX_BYTES ? (size_t)slice->bytes : SLICE_SENDFILE_MAX_BYTES;
	off_t position = slice->position;
	ssize_t sent;

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
