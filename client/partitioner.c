/*
 * Choosing a partition by key.
 */
#include "client/partitioner.h"

uint32_t
partitioner_hash(const void *key, size_t size)
{
	const unsigned char *bytes = key;
	uint32_t hash = 0x811C9DC5;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 0x01000193;
	return hash;
}

int32_t
partitioner_choose(const void *key, size_t size, int32_t partition_count)
{
	return (int32_t)(partitioner_hash(key, size) % (uint32_t)partition_count);
}
