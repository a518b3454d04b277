/*
 * Reading one line of JSON (RFC 8259), strictly. Strings are decoded where they stand: no escape is shorter than what
 * it means.
 */
#include "client/json.h"

#include <stdbool.h>
#include <string.h>

#include "client/text.h"

enum { DEPTH_MAX = 64 };	/* of arrays and objects in one another */

struct json {
	uint8_t *begin, *next, *end;
	const char *problem;	/* NULL: none so far */
};

struct string {
	uint8_t *bytes;
	size_t size;
};

static bool
fail(struct json *json, const char *problem)
{
	if (json->problem == NULL)
		json->problem = problem;
	return false;
}

static bool
is_blank(uint8_t byte)
{
	return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

static void
skip_blanks(struct json *json)
{
	while (json->next < json->end && is_blank(*json->next))
		json->next++;
}

/* The next byte that is no blank; 0 at the end, which is no byte that JSON allows there. */
static uint8_t
peek(struct json *json)
{
	skip_blanks(json);
	return json->next < json->end ? *json->next : 0;
}

static bool
take(struct json *json, uint8_t byte, const char *problem)
{
	if (peek(json) != byte)
		return fail(json, problem);
	json->next++;
	return true;
}

static int
hex_digit(uint8_t digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	digit |= 0x20;
	return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* The four digits behind \u; -1: they are none. */
static int32_t
take_hex4(struct json *json)
{
	int32_t value = 0;

	for (int i = 0; i < 4; i++, json->next++) {
		int digit = json->next < json->end ? hex_digit(*json->next) : -1;

		if (digit < 0)
			return -1;
		value = value << 4 | digit;
	}
	return value;
}

static uint8_t *
put_utf8(uint8_t *to, uint32_t character)
{
	if (character < 0x80) {
		*to++ = (uint8_t)character;
		return to;
	}
	if (character < 0x800) {
		*to++ = (uint8_t)(0xC0 | character >> 6);
	} else if (character < 0x10000) {
		*to++ = (uint8_t)(0xE0 | character >> 12);
		*to++ = (uint8_t)(0x80 | (character >> 6 & 0x3F));
	} else {
		*to++ = (uint8_t)(0xF0 | character >> 18);
		*to++ = (uint8_t)(0x80 | (character >> 12 & 0x3F));
		*to++ = (uint8_t)(0x80 | (character >> 6 & 0x3F));
	}
	*to++ = (uint8_t)(0x80 | (character & 0x3F));
	return to;
}

/* Behind "\u"; a character beyond U+FFFF is two of them. NULL: wrong. */
static uint8_t *
take_unicode(struct json *json, uint8_t *to)
{
	int32_t high = take_hex4(json), low;

	if (high >= 0 && (high < 0xD800 || high > 0xDFFF))
		return put_utf8(to, (uint32_t)high);
	if (high < 0 || high > 0xDBFF || json->end - json->next < 6 || json->next[0] != '\\' || json->next[1] != 'u')
		return NULL;
	json->next += 2;
	low = take_hex4(json);
	if (low < 0xDC00 || low > 0xDFFF)
		return NULL;
	return put_utf8(to, 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
}

/* Behind the backslash. NULL: wrong. */
static uint8_t *
take_escape(struct json *json, uint8_t *to)
{
	static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
	const char *found;

	if (json->next == json->end || *json->next == '\0')
		return NULL;
	if (*json->next == 'u') {
		json->next++;
		return take_unicode(json, to);
	}
	found = strchr(escapes, *json->next);
	if (found == NULL)
		return NULL;
	json->next++;
	*to++ = (uint8_t)meanings[found - escapes];
	return to;
}

static bool
take_string(struct json *json, struct string *string)
{
	uint8_t *to;

	if (!take(json, '"', "a string is missing"))
		return false;
	string->bytes = to = json->next;
	while (json->next < json->end && *json->next != '"') {
		if (*json->next < ' ')
			return fail(json, "a control character in a string must be written as an escape");
		if (*json->next != '\\') {
			*to++ = *json->next++;
			continue;
		}
		json->next++;
		if ((to = take_escape(json, to)) == NULL)
			return fail(json, "not an escape of JSON");
	}
	if (json->next == json->end)
		return fail(json, "the string does not end");
	json->next++;
	string->size = (size_t)(to - string->bytes);
	return true;
}

static size_t
skip_digits(struct json *json)
{
	const uint8_t *begin = json->next;

	while (json->next < json->end && *json->next >= '0' && *json->next <= '9')
		json->next++;
	return (size_t)(json->next - begin);
}

static bool
skip_byte(struct json *json, const char *any)
{
	if (json->next == json->end || *json->next == '\0' || strchr(any, *json->next) == NULL)
		return false;
	json->next++;
	return true;
}

static bool
skip_number(struct json *json)
{
	bool zero;

	skip_byte(json, "-");
	zero = skip_byte(json, "0");
	if (!zero && skip_digits(json) == 0)
		return fail(json, "a value is missing");
	if (skip_byte(json, ".") && skip_digits(json) == 0)
		return fail(json, "a digit is missing");
	if (skip_byte(json, "eE")) {
		skip_byte(json, "+-");
		if (skip_digits(json) == 0)
			return fail(json, "a digit is missing");
	}
	return true;
}

/* true, false, null. */
static bool
skip_word(struct json *json, const char *word)
{
	size_t length = strlen(word);

	if ((size_t)(json->end - json->next) < length || memcmp(json->next, word, length) != 0)
		return fail(json, "a value is missing");
	json->next += length;
	return true;
}

static bool skip_value(struct json *json, int depth);

/* The members of an array, or an object: its values, each with its name. */
static bool
skip_members(struct json *json, int depth, bool named, uint8_t closing)
{
	struct string name;

	json->next++;
	if (depth == DEPTH_MAX)
		return fail(json, "too deep");
	if (peek(json) == closing)
		return take(json, closing, "");
	do {
		if (named && (!take_string(json, &name) || !take(json, ':', "a colon is missing")))
			return false;
		if (!skip_value(json, depth + 1))
			return false;
	} while (peek(json) == ',' && take(json, ',', ""));
	return take(json, closing, named ? "a comma or } is missing" : "a comma or ] is missing");
}

static bool
skip_value(struct json *json, int depth)
{
	struct string string;

	switch (peek(json)) {
	case '{':
		return skip_members(json, depth, true, '}');
	case '[':
		return skip_members(json, depth, false, ']');
	case '"':
		return take_string(json, &string);
	case 't':
		return skip_word(json, "true");
	case 'f':
		return skip_word(json, "false");
	case 'n':
		return skip_word(json, "null");
	default:
		return skip_number(json);
	}
}

static bool
is(const struct string *string, const char *text)
{
	return string->size == strlen(text) && memcmp(string->bytes, text, string->size) == 0;
}

static bool
take_base64(struct json *json, struct string *string)
{
	uint8_t *at = json->next;

	if (!take_string(json, string))
		return false;
	if (text_decode_base64(string->bytes, &string->size))
		return true;
	json->next = at;
	return fail(json, "the value of payload_base64 is not Base64");
}

static bool
take_member(struct json *json, struct string *payload)
{
	struct string name;
	bool plain, encoded;

	if (!take_string(json, &name) || !take(json, ':', "a colon is missing"))
		return false;
	plain = is(&name, "payload");
	encoded = is(&name, "payload_base64");
	if (!plain && !encoded)
		return skip_value(json, 1);
	if (payload->bytes != NULL)
		return fail(json, "a second payload");
	skip_blanks(json);
	return plain ? take_string(json, payload) : take_base64(json, payload);
}

static bool
take_record(struct json *json, struct string *payload)
{
	if (!take(json, '{', "a record is a JSON object"))
		return false;
	if (peek(json) != '}') {
		do {
			if (!take_member(json, payload))
				return false;
		} while (peek(json) == ',' && take(json, ',', ""));
	}
	if (!take(json, '}', "a comma or } is missing"))
		return false;
	if (peek(json) != 0 || json->next < json->end)
		return fail(json, "something behind the object");
	json->next = json->begin;
	if (payload->bytes == NULL)
		return fail(json, "the object has neither payload nor payload_base64");
	return payload->size > 0 || fail(json, "the payload is empty, and empty records do not exist");
}

const char *
json_read_record(uint8_t *line, size_t bytes, const uint8_t **payload, size_t *payload_bytes, size_t *at)
{
	struct json json = { .begin = line, .next = line, .end = line + bytes };
	struct string found = { NULL, 0 };

	json.next = line + text_utf8_bytes(line, bytes);
	if (json.next < json.end) {
		fail(&json, "not UTF-8");
	} else {
		json.next = line;
		take_record(&json, &found);
	}
	*at = (size_t)(json.next - line);
	*payload = found.bytes;
	*payload_bytes = found.size;
	return json.problem;
}
