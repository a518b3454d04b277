#include "worker/residency.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/clock.h"
#include "worker/syscalls.h"

enum {
	SMALLEST_PAGE_BYTES = 4096,
	MAP_FIRST_BYTES = 16 * 1024 * 1024,	/* of addresses; no memory is behind them */
	KNOWN_NS = 5 * CLOCK_NS_PER_MS,
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

static int64_t
smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Asks the kernel about the pages of these bytes and keeps the answer, if the first one is in memory. */
static void
ask(struct residency *residency, int fd, int64_t position, int64_t bytes)
{
	int64_t page = sysconf(_SC_PAGESIZE);
	int64_t first = position - position % page;
	size_t count = (size_t)((position + bytes - first + page - 1) / page), i = 0;
	uint8_t pages[RESIDENCY_MAX_BYTES / SMALLEST_PAGE_BYTES + 1];

	residency->known_end = 0;
	if (map(residency, fd, first + (int64_t)count * page) == -1
	    || syscalls.mincore(residency->map + first, count * (size_t)page, pages) == -1)
		return;
	while (i < count && (pages[i] & 1) != 0)
		i++;
	residency->known_from = first;
	residency->known_end = first + (int64_t)i * page;
	residency->known_until_ns = clock_now_ns() + KNOWN_NS;
}

int64_t
residency_bytes(struct residency *residency, int fd, int64_t position, int64_t bytes)
{
	int64_t wanted = smaller(bytes, RESIDENCY_MAX_BYTES);

	if (position < residency->known_from || position + wanted > residency->known_end ||
	    clock_now_ns() >= residency->known_until_ns)
		ask(residency, fd, position, wanted);
	return position < residency->known_end ? smaller(residency->known_end - position, wanted) : 0;
}

void
residency_end(struct residency *residency)
{
	if (residency->map != NULL)
		munmap(residency->map, residency->map_bytes);
	memset(residency, 0, sizeof(*residency));
}
