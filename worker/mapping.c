/* Allocating, mapping and storing, see mapping.h. */
#include "worker/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/segment.h"
#include "worker/store.h"
#include "worker/syscalls.h"

enum { LENGTH_BYTES = 4, ZERO_BYTES = 64 * 1024 };

/*
 * In pieces: Linux 6.18 makes of a larger one a folio of up to 2 MiB, and then every page of it that is mapped for writing
 * walks over all blocks of that folio (ext4: 8 s for a GiB; for one that was allocated but not written as well).
 */
static int
write_zeros(int fd, int64_t from, int64_t to)
{
	static const uint8_t zeros[ZERO_BYTES];

	while (from < to) {
		size_t bytes = to - from < ZERO_BYTES ? (size_t)(to - from) : ZERO_BYTES;

		if (segment_write(fd, zeros, bytes, from) == -1)
			return -1;
		from += (int64_t)bytes;
	}
	return 0;
}

static int
fallocate_again(int fd, int mode, int64_t from, int64_t to)
{
	int done;

	do
		done = syscalls.fallocate(fd, mode, from, to - from);
	while (done == -1 && errno == EINTR);
	return done;
}

int
mapping_allocate(int fd, int64_t from, int64_t to)
{
	int error;

	if (fallocate_again(fd, FALLOC_FL_KEEP_SIZE, from, to) == 0 || errno == EOPNOTSUPP || errno == ENOSYS) {
		if (write_zeros(fd, from, to) == 0)
			return 0;
	}
	/* A disk that filled up midway has given a part, which others need more than we do. */
	error = errno;
	fallocate_again(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, from, to);
	errno = error;
	return -1;
}

/* Kernels that cannot do this ahead (EINVAL, before 5.14) do it with each page's first store. */
static int
populate(struct mapping *mapping)
{
	int done;

	do
		done = syscalls.madvise(mapping->bytes, (size_t)(mapping->end - mapping->position), MADV_POPULATE_WRITE);
	while (done == -1 && errno == EINTR);
	return done == -1 && errno != EINVAL ? -1 : 0;
}

int
mapping_open(struct mapping *mapping, int fd, int64_t from, int64_t to)
{
	int64_t position = from - from % sysconf(_SC_PAGESIZE);
	void *bytes = syscalls.mmap(NULL, (size_t)(to - position), PROT_READ | PROT_WRITE, MAP_SHARED, fd, position);

	*mapping = (struct mapping){ 0 };
	if (bytes == MAP_FAILED)
		return -1;
	*mapping = (struct mapping){ .bytes = bytes, .position = position, .end = to };
	store_prepare();
	if (populate(mapping) == -1) {
		int error = errno == EFAULT ? EIO : errno;

		mapping_close(mapping);
		errno = error;
		return -1;
	}
	return 0;
}

void
mapping_close(struct mapping *mapping)
{
	if (mapping->bytes != NULL)
		munmap(mapping->bytes, (size_t)(mapping->end - mapping->position));
	*mapping = (struct mapping){ 0 };
}

int
mapping_write(const struct mapping *mapping, int fd, const uint8_t *from, size_t bytes, int64_t position)
{
	uint8_t *to = mapping->bytes + (position - mapping->position);

	if (segment_whole_bytes(fd, position + (int64_t)bytes) == -1)
		return -1;
	if (syscalls.store(to + LENGTH_BYTES, from + LENGTH_BYTES, bytes - LENGTH_BYTES) == -1)
		return -1;
	return syscalls.store_length(to, from);
}
