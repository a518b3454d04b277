/*
 * Big-endian integers in memory, and a reader that walks bytes from outside without ever leaving them.
 * Everything on the wire and on disk is big-endian; nothing else in the project converts byte order.
 */
#ifndef COMMON_BYTES_H
#define COMMON_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t
bytes_get_u16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap16(v);
}

static inline int16_t
bytes_get_i16(const uint8_t *p)
{
	return (int16_t)bytes_get_u16(p);
}

static inline uint32_t
bytes_get_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return __builtin_bswap32(v);
}

static inline int32_t
bytes_get_i32(const uint8_t *p)
{
	return (int32_t)bytes_get_u32(p);
}

static inline int64_t
bytes_get_i64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return (int64_t)__builtin_bswap64(v);
}

/* The put functions return the byte behind what they wrote. */
static inline uint8_t *
bytes_put_u16(uint8_t *p, uint16_t v)
{
	v = __builtin_bswap16(v);
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static inline uint8_t *
bytes_put_i16(uint8_t *p, int16_t v)
{
	return bytes_put_u16(p, (uint16_t)v);
}

static inline uint8_t *
bytes_put_u32(uint8_t *p, uint32_t v)
{
	v = __builtin_bswap32(v);
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static inline uint8_t *
bytes_put_i32(uint8_t *p, int32_t v)
{
	return bytes_put_u32(p, (uint32_t)v);
}

static inline uint8_t *
bytes_put_i64(uint8_t *p, int64_t v)
{
	uint64_t u = __builtin_bswap64((uint64_t)v);

	memcpy(p, &u, sizeof(u));
	return p + sizeof(u);
}

/*
 * A reader over borrowed bytes. A take that would leave them sets `bad` and yields 0 or NULL; from then on
 * every take fails, so a parser may take all its fields first and look at `bad` once.
 */
struct bytes_reader {
	const uint8_t *next;
	size_t left;
	bool bad;
};

/* Returns `n` bytes as a view into the source, or NULL. */
static inline const uint8_t *
bytes_take(struct bytes_reader *r, size_t n)
{
	const uint8_t *p = r->next;

	if (r->bad || n > r->left) {
		r->bad = true;
		return NULL;
	}
	r->next += n;
	r->left -= n;
	return p;
}

static inline int8_t
bytes_take_i8(struct bytes_reader *r)
{
	const uint8_t *p = bytes_take(r, 1);

	return p == NULL ? 0 : (int8_t)*p;
}

static inline uint16_t
bytes_take_u16(struct bytes_reader *r)
{
	const uint8_t *p = bytes_take(r, 2);

	return p == NULL ? 0 : bytes_get_u16(p);
}

static inline int16_t
bytes_take_i16(struct bytes_reader *r)
{
	return (int16_t)bytes_take_u16(r);
}

static inline int32_t
bytes_take_i32(struct bytes_reader *r)
{
	const uint8_t *p = bytes_take(r, 4);

	return p == NULL ? 0 : bytes_get_i32(p);
}

static inline int64_t
bytes_take_i64(struct bytes_reader *r)
{
	const uint8_t *p = bytes_take(r, 8);

	return p == NULL ? 0 : bytes_get_i64(p);
}

#endif
