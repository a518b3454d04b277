/* Bytes as text. */
#include "client/text.h"

#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

enum {
	STRETCH = 4096,		/* bytes that are turned at a time */
	ESCAPE_MAX = 8,		/* what one of them becomes at most */
	BASE64_STRETCH = 4095,	/* a multiple of three */
};

/* How many of the first bytes are ASCII, in eights. */
static size_t
skip_ascii(const uint8_t *bytes, size_t size)
{
	size_t i = 0;

	for (uint64_t eight; i + sizeof(eight) <= size; i += sizeof(eight)) {
		memcpy(&eight, bytes + i, sizeof(eight));
		if ((eight & UINT64_C(0x8080808080808080)) != 0)
			break;
	}
	return i;
}

size_t
text_utf8_bytes(const uint8_t *bytes, size_t size)
{
	size_t i = skip_ascii(bytes, size), length;

	for (; i < size; i += length) {
		length = utf8_length(bytes + i, size - i);
		if (length == 0)
			break;
	}
	return i;
}

/* U+0000 to U+001F, U+007F to U+009F. */
static bool
is_control(const uint8_t *p, size_t length)
{
	return (length == 1 && (p[0] < ' ' || p[0] == 0x7F)) || (length == 2 && p[0] == 0xC2 && p[1] < 0xA0);
}

static size_t
escape_for_terminal(char *to, const uint8_t *p, size_t length)
{
	static const char names[] = { ['\n'] = 'n', ['\t'] = 't', ['\r'] = 'r', ['\\'] = '\\', ['"'] = '"' };
	size_t used = 0;

	if (length == 1 && p[0] < sizeof(names) && names[p[0]] != '\0')
		return (size_t)sprintf(to, "\\%c", names[p[0]]);
	if (length > 0 && !is_control(p, length)) {
		memcpy(to, p, length);
		return length;
	}
	for (size_t i = 0; i == 0 || i < length; i++)
		used += (size_t)sprintf(to + used, "\\x%02x", p[i]);
	return used;
}

static size_t
escape_for_json(char *to, const uint8_t *p, size_t length)
{
	if (length == 0)
		return (size_t)sprintf(to, UTF8_REPLACEMENT);
	if (length == 1 && (p[0] == '"' || p[0] == '\\'))
		return (size_t)sprintf(to, "\\%c", p[0]);
	if (is_control(p, length))
		return (size_t)sprintf(to, "\\u%04x", length == 1 ? p[0] : p[1]);
	memcpy(to, p, length);
	return length;
}

/* How many of the first bytes stand for themselves in any text. */
static size_t
plain_run(const uint8_t *bytes, size_t size)
{
	size_t i = 0;

	while (i < size && bytes[i] >= ' ' && bytes[i] < 0x7F && bytes[i] != '"' && bytes[i] != '\\')
		i++;
	return i;
}

static void
put(struct output *output, const uint8_t *bytes, size_t size,
    size_t (*escape)(char *to, const uint8_t *p, size_t length))
{
	for (size_t i = 0; i < size;) {
		size_t end = size - i < STRETCH ? size : i + STRETCH, used = 0;
		char *room = (char *)output_room(output, (STRETCH + 4) * ESCAPE_MAX);

		if (room == NULL)
			return;
		while (i < end) {
			size_t plain = plain_run(bytes + i, end - i), length;

			memcpy(room + used, bytes + i, plain);
			used += plain;
			i += plain;
			if (i == end)
				break;
			length = utf8_length(bytes + i, size - i);
			used += escape(room + used, bytes + i, length);
			i += length == 0 ? 1 : length;
		}
		output_advance(output, used);
	}
}

void
text_put_escaped(struct output *output, const void *bytes, size_t size)
{
	put(output, bytes, size, escape_for_terminal);
}

void
text_put_json(struct output *output, const void *bytes, size_t size)
{
	output_put(output, "\"", 1);
	put(output, bytes, size, escape_for_json);
	output_put(output, "\"", 1);
}

static const char base64_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Up to three bytes as four digits. */
static void
encode_base64(char *to, const uint8_t *bytes, size_t size)
{
	uint32_t group = (uint32_t)bytes[0] << 16;

	group |= size > 1 ? (uint32_t)bytes[1] << 8 : 0;
	group |= size > 2 ? bytes[2] : 0;
	for (int i = 0; i < 4; i++)
		to[i] = base64_digits[group >> (18 - 6 * i) & 0x3F];
	if (size < 3)
		to[3] = '=';
	if (size < 2)
		to[2] = '=';
}

static void
put_base64(struct output *output, const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size;) {
		size_t end = size - i < BASE64_STRETCH ? size : i + BASE64_STRETCH, used = 0;
		char *room = (char *)output_room(output, BASE64_STRETCH / 3 * 4);

		if (room == NULL)
			return;
		for (; i < end; i += 3, used += 4)
			encode_base64(room + used, bytes + i, end - i);
		output_advance(output, used);
	}
}

void
text_put_payload(struct output *output, const uint8_t *payload, size_t size)
{
	if (text_utf8_bytes(payload, size) == size) {
		output_print(output, "\"payload\":");
		text_put_json(output, payload, size);
		return;
	}
	output_print(output, "\"payload_base64\":\"");
	put_base64(output, payload, size);
	output_put(output, "\"", 1);
}

static int
base64_digit(uint8_t digit)
{
	if (digit >= 'A' && digit <= 'Z')
		return digit - 'A';
	if (digit >= 'a' && digit <= 'z')
		return digit - 'a' + 26;
	if (digit >= '0' && digit <= '9')
		return digit - '0' + 52;
	return digit == '+' ? 62 : digit == '/' ? 63 : -1;
}

bool
text_decode_base64(uint8_t *text, size_t *size)
{
	size_t digits = *size, used = 0;

	if (digits % 4 != 0)
		return false;
	for (int i = 0; i < 2 && digits > 0 && text[digits - 1] == '='; i++)
		digits--;
	for (size_t i = 0; i < digits; i += 4) {
		size_t here = digits - i < 4 ? digits - i : 4;
		uint32_t group = 0;

		for (size_t k = 0; k < here; k++) {
			int digit = base64_digit(text[i + k]);

			if (digit < 0)
				return false;
			group |= (uint32_t)digit << (18 - 6 * k);
		}
		for (size_t k = 0; k + 1 < here; k++)
			text[used++] = (uint8_t)(group >> (16 - 8 * k));
	}
	*size = used;
	return true;
}
