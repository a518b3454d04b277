/* The record as bytes: see the drawing in record.h. Knows no files and no offsets. */
#include "common/record.h"

#include <stdbool.h>
#include <string.h>

#include "common/bytes.h"
#include "common/crc32c.h"

uint8_t *
record_put(uint8_t *to, enum record_format format, const uint8_t *payload, size_t size)
{
	size_t header = record_header_bytes(format);

	if (format == RECORD_CRC32C)
		bytes_put_u32(to + 4, crc32c_copy(to + header, payload, size));
	else
		memcpy(to + header, payload, size);
	bytes_put_i32(to, (int32_t)size);
	return to + header + size;
}

static bool
all_zero(const uint8_t *p, size_t size)
{
	while (size > 0 && *p == 0)
		p++, size--;
	return size == 0;
}

enum record_verdict
record_check(enum record_format format, const uint8_t *p, size_t left, size_t *bytes)
{
	size_t header = record_header_bytes(format);
	int32_t length;

	*bytes = 0;
	if (left < 4)
		return all_zero(p, left) ? RECORD_END : RECORD_INCOMPLETE;
	length = bytes_get_i32(p);
	if (length == 0)
		return RECORD_END;
	if (length < 0 || length > record_max_payload(format))
		return RECORD_IMPOSSIBLE;
	*bytes = header + (size_t)length;
	if (left < *bytes)
		return RECORD_INCOMPLETE;
	if (format == RECORD_CRC32C && crc32c(p + header, (size_t)length) != bytes_get_u32(p + 4))
		return RECORD_WRONG_SUM;
	return RECORD_VALID;
}

const char *
record_verdict_text(enum record_verdict verdict)
{
	switch (verdict) {
	case RECORD_END:
		return "a length of zero";
	case RECORD_IMPOSSIBLE:
		return "an impossible length";
	case RECORD_WRONG_SUM:
		return "a record whose sum does not fit";
	default:
		return "an incomplete record";
	}
}

const char *
record_format_name(enum record_format format)
{
	return format == RECORD_CRC32C ? "crc32c" : "plain";
}
