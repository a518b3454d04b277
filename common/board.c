/* The board's memory and the order in which its words are written and read; the drawing is in board.h. */
#include "common/board.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"

const int64_t board_bucket_us[BOARD_BUCKETS - 1] = {
	50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000, 5000000,
};

static size_t
size_for(int32_t slot_count)
{
	return sizeof(struct board_worker) + (size_t)slot_count * sizeof(struct board_partition);
}

int
board_create(int32_t slot_count)
{
	int fd = memfd_create("logbroker-board", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	/* Nobody may take the memory away from under a reader: that would be a SIGBUS in every process. */
	if (ftruncate(fd, (off_t)size_for(slot_count)) != 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
		int error = errno;

		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

int
board_reopen_read_only(int fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

int
board_map(struct board *board, int fd, int32_t slot_count, bool writable)
{
	size_t size = size_for(slot_count);
	struct stat st;
	void *memory;

	if (fstat(fd, &st) != 0)
		return -1;
	if (st.st_size != (off_t)size) {
		errno = EPROTO;
		return -1;
	}
	memory = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (memory == MAP_FAILED)
		return -1;
	board->worker = memory;
	board->slots = (struct board_partition *)((char *)memory + sizeof(struct board_worker));
	board->slot_count = slot_count;
	board->mapped_bytes = size;
	return 0;
}

int
board_detach(struct board *board)
{
	void *values = malloc(board->mapped_bytes);
	void *memory;

	if (values == NULL)
		return -1;
	memcpy(values, board->worker, board->mapped_bytes);
	memory = mmap(board->worker, board->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (memory != MAP_FAILED)
		memcpy(memory, values, board->mapped_bytes);
	free(values);
	return memory == MAP_FAILED ? -1 : 0;
}

void
board_unmap(struct board *board)
{
	if (board->worker != NULL)
		munmap(board->worker, board->mapped_bytes);
	memset(board, 0, sizeof(*board));
}

/*
 * A reader loads the high watermark last. A log start or durable end that it sees was stored after a high watermark at
 * or above it, and the acquire load makes that high watermark, or a later one, visible.
 */
void
board_publish(struct board_partition *slot, int64_t log_start, int64_t high_watermark, int64_t durable_end)
{
	atomic_store_explicit(&slot->high_watermark, high_watermark, memory_order_release);
	atomic_store_explicit(&slot->log_start, log_start, memory_order_release);
	atomic_store_explicit(&slot->durable_end, durable_end, memory_order_release);
}

void
board_read(const struct board_partition *slot, int64_t *log_start, int64_t *high_watermark, int64_t *durable_end)
{
	*log_start = atomic_load_explicit(&slot->log_start, memory_order_acquire);
	*durable_end = atomic_load_explicit(&slot->durable_end, memory_order_acquire);
	*high_watermark = atomic_load_explicit(&slot->high_watermark, memory_order_acquire);
}

void
board_observe(struct board_histogram *histogram, int64_t duration_ns)
{
	int bucket = 0;

	while (bucket < BOARD_BUCKETS - 1 && duration_ns > board_bucket_us[bucket] * CLOCK_NS_PER_US)
		bucket++;
	board_add(&histogram->buckets[bucket], 1);
	board_add(&histogram->sum_ns, duration_ns);
}

void
board_clear_gauges(struct board *board)
{
	board_set(&board->worker->heartbeat_ns, 0);
	board_set(&board->worker->fetch_held, 0);
	board_set(&board->worker->buffered_bytes, 0);
	board_set(&board->worker->recovered_bytes, 0);
}
