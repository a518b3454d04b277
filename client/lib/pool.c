/*
 * Blocks of memory, kept for the next frame of their size: see pool.h.
 */
#include "client/lib/pool.h"

#include <stdlib.h>

enum { POOL_SMALLEST_BYTES = 256 };

struct lb_block {
	struct lb_block *next;
	size_t size;		/* an index of unused */
	uint8_t bytes[];
};

static size_t
size_bytes(size_t size)
{
	return (size_t)POOL_SMALLEST_BYTES << size;
}

void
lb_pool_init(struct lb_pool *pool, size_t unused_max_bytes)
{
	*pool = (struct lb_pool){ .unused_max_bytes = unused_max_bytes };
}

struct lb_block *
lb_pool_take(struct lb_pool *pool, size_t bytes)
{
	size_t size = 0;
	struct lb_block *block;

	while (size_bytes(size) < bytes)
		size++;
	block = pool->unused[size];
	if (block != NULL) {
		pool->unused[size] = block->next;
		pool->unused_bytes -= size_bytes(size);
		return block;
	}
	block = malloc(sizeof(*block) + size_bytes(size));
	if (block != NULL)
		block->size = size;
	return block;
}

uint8_t *
lb_block_bytes(struct lb_block *block)
{
	return block->bytes;
}

void
lb_pool_give(struct lb_pool *pool, struct lb_block *block)
{
	if (pool->unused_bytes + size_bytes(block->size) > pool->unused_max_bytes) {
		free(block);
		return;
	}
	block->next = pool->unused[block->size];
	pool->unused[block->size] = block;
	pool->unused_bytes += size_bytes(block->size);
}

void
lb_pool_free(struct lb_pool *pool)
{
	for (size_t size = 0; size < LB_POOL_SIZES; size++) {
		while (pool->unused[size] != NULL) {
			struct lb_block *block = pool->unused[size];

			pool->unused[size] = block->next;
			free(block);
		}
	}
}
