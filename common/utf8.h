/* What is UTF-8 (RFC 3629), a character at a time. */
#ifndef COMMON_UTF8_H
#define COMMON_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum { UTF8_MAX_BYTES = 4 };	/* of a character */

/* Stands for a byte that begins no character. */
#define UTF8_REPLACEMENT "\xEF\xBF\xBD"

/*
 * The length of the character that begins at p, of at most `left` bytes (at least one); 0: none does (surrogates, overlong
 * forms and what lies beyond U+10FFFF are none).
 */
size_t utf8_length(const uint8_t *p, size_t left);

#endif
