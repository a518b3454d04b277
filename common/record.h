/*
 * A record as it stands in a segment file and travels in a FETCH answer; the same bytes in both places:
 *
 *   crc32c   | int32 length | int32 crc32c(payload) | payload |     length = bytes of payload, 1 or more
 *   plain    | int32 length | payload |
 *
 * Integers are big-endian. A length of zero means "nothing here": it is what a file holds ahead of its log's end.
 */
#ifndef COMMON_RECORD_H
#define COMMON_RECORD_H

#include <stddef.h>
#include <stdint.h>

enum record_format {
	RECORD_PLAIN = 0,	/* the numbers travel in METADATA v2 */
	RECORD_CRC32C = 1,
};

enum {
	RECORD_HEADER_MAX_BYTES = 8,
	/* A whole record must fit into the largest FETCH answer: 8 MiB less the 18 bytes ahead of the payload. */
	RECORD_MAX_BYTES = 8388590,
};

/* Bytes ahead of the payload: 4 or 8. */
static inline size_t
record_header_bytes(enum record_format format)
{
	return format == RECORD_CRC32C ? 8 : 4;
}

/* The largest payload that any FETCH answer can carry whole. */
static inline int32_t
record_max_payload(enum record_format format)
{
	return (int32_t)(RECORD_MAX_BYTES - record_header_bytes(format));
}

/* Writes header and payload at `to` (room for both is the caller's care); returns the byte behind. 1 <= size. */
uint8_t *record_put(uint8_t *to, enum record_format format, const uint8_t *payload, size_t size);

enum record_verdict {
	RECORD_VALID,		/* whole and, in crc32c, its sum fits */
	RECORD_END,		/* a length of zero, or fewer than 4 bytes and all of them zero, or no byte at all */
	RECORD_IMPOSSIBLE,	/* a length that no record can have (negative, or above record_max_payload) */
	RECORD_INCOMPLETE,	/* a possible length, but the bytes end inside the record */
	RECORD_WRONG_SUM,	/* whole, but the sum does not fit */
};

/*
 * Looks at the record that begins at `p` with `left` bytes until the end of what is known. With RECORD_VALID,
 * RECORD_WRONG_SUM and RECORD_INCOMPLETE stores the whole record's bytes (header and payload) in *bytes; where not
 * even the length word is whole (and not zero) the verdict is RECORD_INCOMPLETE with *bytes = 0. Any thread.
 */
enum record_verdict record_check(enum record_format format, const uint8_t *p, size_t left, size_t *bytes);

/* For people: what stands in place of a valid record ("an impossible length"); the format's name in broker.ini. */
const char *record_verdict_text(enum record_verdict verdict);
const char *record_format_name(enum record_format format);

#endif
