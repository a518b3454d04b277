/*
 * Memory for frames that comes back: blocks by size, each size a power of two, so that a steady stream of requests of
 * any mixture of sizes allocates nothing.
 */
#ifndef CLIENT_LIB_POOL_H
#define CLIENT_LIB_POOL_H

#include <stddef.h>
#include <stdint.h>

enum { LB_POOL_SIZES = 17 };	/* 256 bytes to 16 MiB, which has room for the largest frame */

struct lb_block;

struct lb_pool {
	struct lb_block *unused[LB_POOL_SIZES];
	size_t unused_bytes, unused_max_bytes;
};

void lb_pool_init(struct lb_pool *pool, size_t unused_max_bytes);
/* A block for at most a frame's bytes, or NULL: no memory. */
struct lb_block *lb_pool_take(struct lb_pool *pool, size_t bytes);
uint8_t *lb_block_bytes(struct lb_block *block);
void lb_pool_give(struct lb_pool *pool, struct lb_block *block);
void lb_pool_free(struct lb_pool *pool);

#endif
