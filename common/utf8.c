/* See utf8.h. */
#include "common/utf8.h"

size_t
utf8_length(const uint8_t *p, size_t left)
{
	static const uint32_t smallest[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t length = p[0] < 0x80 ? 1 : p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
	uint32_t character;

	if (length == 1)
		return 1;
	if (p[0] < 0xC0 || p[0] > 0xF7 || length > left)
		return 0;
	character = p[0] & (0x7Fu >> length);
	for (size_t i = 1; i < length; i++) {
		if ((p[i] & 0xC0) != 0x80)
			return 0;
		character = character << 6 | (p[i] & 0x3Fu);
	}
	if (character < smallest[length] || character > 0x10FFFF || (character >= 0xD800 && character <= 0xDFFF))
		return 0;
	return length;
}
