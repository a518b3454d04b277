/* See spare.h. Given back to malloc when something is needed, below its threshold for mappings of their own. */
#include "supervisor/spare.h"

#include <stdlib.h>

#include <event2/event.h>

enum { SPARE_BYTES = 96 * 1024 };

static void *spare;

/* True when there is something to try again with. */
static bool
give_up(void)
{
	bool had = spare != NULL;

	free(spare);
	spare = NULL;
	return had;
}

static void *
allocate(size_t bytes)
{
	void *memory = malloc(bytes);

	return memory == NULL && give_up() ? malloc(bytes) : memory;
}

static void *
allocate_again(void *old, size_t bytes)
{
	void *memory = realloc(old, bytes);

	return memory == NULL && bytes > 0 && give_up() ? realloc(old, bytes) : memory;
}

int
spare_begin(void)
{
	event_set_mem_functions(allocate, allocate_again, free);
	return spare_is_whole() ? 0 : -1;
}

bool
spare_is_whole(void)
{
	if (spare == NULL)
		spare = malloc(SPARE_BYTES);
	return spare != NULL;
}

void
spare_end(void)
{
	give_up();
}
