/*
 * Which partition a record goes to. Keys never reach the wire, so every client must choose alike:
 * ../tests/vectors/partitioner-fnv1a.tsv holds the results.
 */
#ifndef CLIENT_PARTITIONER_H
#define CLIENT_PARTITIONER_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a, 32 bit, over the key's bytes as unsigned. */
uint32_t partitioner_hash(const void *key, size_t size);

/* With a key: the hash modulo `partition_count` (at least 1), unsigned. */
int32_t partitioner_choose(const void *key, size_t size, int32_t partition_count);

#endif
