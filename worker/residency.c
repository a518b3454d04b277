#include "worker/residency.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/syscalls.h"

enum {
	SMALLEST_PAGE_BYTES = 4096,
	MAP_FIRST_BYTES = 16 * 1024 * 1024,	/* of addresses; no memory is behind them */
};

/* Maps the file up to `end` at least. It may be shorter: a mapping may reach beyond the end of a file that grows. */
static int
map(struct residency *residency, int fd, int64_t end)
{
	size_t bytes = residency->map_bytes == 0 ? MAP_FIRST_BYTES : residency->map_bytes;
	void *map;

	if ((int64_t)residency->map_bytes >= end)
		return 0;
	while ((int64_t)bytes < end)
		bytes *= 2;
	map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -1;
	residency_end(residency);
	*residency = (struct residency){ .map = map, .map_bytes = bytes };
	return 0;
}

int64_t
residency_bytes(struct residency *residency, int fd, int64_t position, int64_t bytes)
{
	int64_t page = sysconf(_SC_PAGESIZE);
	int64_t first = position - position % page, there;
	uint8_t pages[RESIDENCY_MAX_BYTES / SMALLEST_PAGE_BYTES + 1];
	size_t count, i = 0;

	if (bytes > RESIDENCY_MAX_BYTES)
		bytes = RESIDENCY_MAX_BYTES;
	count = (size_t)((position + bytes - first + page - 1) / page);
	if (map(residency, fd, first + (int64_t)count * page) == -1
	    || syscalls.mincore(residency->map + first, count * (size_t)page, pages) == -1)
		return 0;
	while (i < count && (pages[i] & 1) != 0)
		i++;
	there = first + (int64_t)i * page - position;
	return there < 0 ? 0 : there < bytes ? there : bytes;
}

void
residency_end(struct residency *residency)
{
	if (residency->map != NULL)
		munmap(residency->map, residency->map_bytes);
	*residency = (struct residency){ NULL, 0 };
}
