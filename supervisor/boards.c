/* The boards' descriptors and maps; see boards.h. */
#include "supervisor/boards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int
create_one(struct boards *boards, int32_t group, int32_t slot_count)
{
	int fd = board_create(slot_count);

	if (fd < 0)
		return -1;
	boards->descriptors[group] = fd;
	/* Written by the supervisor only while the worker is dead: its gauges are cleared. */
	return board_map(&boards->maps[group], fd, slot_count, true);
}

int
boards_create(struct boards *boards, const struct topics *topics)
{
	size_t count = (size_t)topics->group_count;
	int error;

	boards->count = topics->group_count;
	boards->descriptors = malloc(count * sizeof(*boards->descriptors));
	boards->maps = calloc(count, sizeof(*boards->maps));
	for (size_t group = 0; boards->descriptors != NULL && group < count; group++)
		boards->descriptors[group] = -1;
	if (boards->descriptors == NULL || boards->maps == NULL)
		goto fail;
	for (int32_t group = 0; group < boards->count; group++)
		if (create_one(boards, group, topics->slot_counts[group]) != 0)
			goto fail;
	return 0;
fail:
	error = errno;
	boards_free(boards);
	errno = error;
	return -1;
}

void
boards_free(struct boards *boards)
{
	for (int32_t group = 0; boards->maps != NULL && group < boards->count; group++) {
		board_unmap(&boards->maps[group]);
		if (boards->descriptors != NULL && boards->descriptors[group] >= 0)
			close(boards->descriptors[group]);
	}
	free(boards->descriptors);
	free(boards->maps);
	memset(boards, 0, sizeof(*boards));
}
