/*
 * CRC-32C (Castagnoli: polynomial 0x1EDC6F41 reflected, init and xorout 0xFFFFFFFF).
 * Uses the processor's instruction where it has one; both ways give the same sums.
 */
#ifndef COMMON_CRC32C_H
#define COMMON_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The sum of `size` bytes. Any thread. */
uint32_t crc32c(const void *data, size_t size);

/* Copies `size` bytes and returns their sum: one pass over the data. The areas must not overlap. Any thread. */
uint32_t crc32c_copy(void *to, const void *from, size_t size);

/* The sum by table, whatever the processor has: what crc32c() is tested against. */
uint32_t crc32c_by_table(const void *data, size_t size);

#endif
