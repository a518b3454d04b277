/*
 * CRC-32C two ways: by the processor's instruction (SSE4.2 on x86-64, chosen once at the first call) and by an
 * eight-row table. One pass over memory; the copying form exists because an append needs both.
 */
#include "common/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>


enum { POLYNOMIAL_REFLECTED = 0x82F63B78 };

static uint32_t table[8][256];
static bool have_instruction;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
prepare(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int bit = 0; bit < 8; bit++)
			c = (c & 1) ? (c >> 1) ^ (uint32_t)POLYNOMIAL_REFLECTED : c >> 1;
		table[0][i] = c;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int row = 1; row < 8; row++)
			table[row][i] = (table[row - 1][i] >> 8) ^ table[0][table[row - 1][i] & 0xFF];
#if defined(__x86_64__)
	__builtin_cpu_init();
	have_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

static uint32_t
update_by_table(uint32_t c, const uint8_t *p, size_t size)
{
	for (; size >= 8; size -= 8, p += 8) {
		uint64_t v;

		memcpy(&v, p, sizeof(v));
		v ^= c;
		c = 0;
		for (int row = 7; row >= 0; row--, v >>= 8)
			c ^= table[row][v & 0xFF];
	}
	while (size-- > 0)
		c = (c >> 8) ^ table[0][(c ^ *p++) & 0xFF];
	return c;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) static uint32_t
update_by_instruction(uint32_t c, const uint8_t *p, size_t size)
{
	uint64_t wide = c;

	for (; size >= 8; size -= 8, p += 8) {
		uint64_t v;

		memcpy(&v, p, sizeof(v));
		wide = __builtin_ia32_crc32di(wide, v);
	}
	c = (uint32_t)wide;
	while (size-- > 0)
		c = __builtin_ia32_crc32qi(c, *p++);
	return c;
}

__attribute__((target("sse4.2"))) static uint32_t
copy_by_instruction(uint32_t c, uint8_t *to, const uint8_t *from, size_t size)
{
	uint64_t wide = c;

	for (; size >= 8; size -= 8, from += 8, to += 8) {
		uint64_t v;

		memcpy(&v, from, sizeof(v));
		memcpy(to, &v, sizeof(v));
		wide = __builtin_ia32_crc32di(wide, v);
	}
	c = (uint32_t)wide;
	while (size-- > 0) {
		c = __builtin_ia32_crc32qi(c, *from);
		*to++ = *from++;
	}
	return c;
}

#else

static uint32_t
update_by_instruction(uint32_t c, const uint8_t *p, size_t size)
{
	return update_by_table(c, p, size);
}

static uint32_t
copy_by_instruction(uint32_t c, uint8_t *to, const uint8_t *from, size_t size)
{
	memcpy(to, from, size);
	return update_by_table(c, from, size);
}

#endif

uint32_t
crc32c_by_table(const void *data, size_t size)
{
	pthread_once(&once, prepare);
	return ~update_by_table(~0U, data, size);
}

uint32_t
crc32c(const void *data, size_t size)
{
	pthread_once(&once, prepare);
	return ~(have_instruction ? update_by_instruction : update_by_table)(~0U, data, size);
}

uint32_t
crc32c_copy(void *to, const void *from, size_t size)
{
	pthread_once(&once, prepare);
	if (have_instruction)
		return ~copy_by_instruction(~0U, to, from, size);
	memcpy(to, from, size);
	return ~update_by_table(~0U, from, size);
}
