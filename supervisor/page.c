/* See page.h. */
#include "supervisor/page.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"

static void
flush(struct page *page)
{
	if (page->to == NULL || (page->used > 0 && evbuffer_add(page->to, page->block, page->used) != 0))
		page->failed = true;
	page->used = 0;
}

void
page_put(struct page *page, const char *bytes, size_t length)
{
	if (length > PAGE_BLOCK_BYTES - page->used)
		flush(page);
	if (length > PAGE_BLOCK_BYTES) {	/* no line is that long */
		page->failed = true;
		return;
	}
	memcpy(page->block + page->used, bytes, length);
	page->used += length;
}

void
page_put_text(struct page *page, const char *text)
{
	page_put(page, text, strlen(text));
}

static size_t
number_to_text(int64_t value, char *to)
{
	char digits[PAGE_NUMBER_BYTES];
	uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
	size_t n = 0, length = 0;

	do
		digits[n++] = (char)('0' + rest % 10);
	while ((rest /= 10) > 0);
	if (value < 0)
		to[length++] = '-';
	while (n > 0)
		to[length++] = digits[--n];
	return length;
}

void
page_put_number(struct page *page, int64_t value)
{
	char text[PAGE_NUMBER_BYTES];

	page_put(page, text, number_to_text(value, text));
}

void
page_print(struct page *page, const char *format, ...)
{
	char line[PAGE_LINE_BYTES];
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	if (n > 0)
		page_put(page, line, (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

/* Returns how many bytes of the text it was. */
static size_t
put_json_character(struct page *page, const char *text)
{
	unsigned char c = (unsigned char)*text;
	size_t length = utf8_length((const uint8_t *)text, strnlen(text, UTF8_MAX_BYTES));

	if (c == '"' || c == '\\')
		page_put(page, "\\", 1);
	if (c < ' ' || c == 0x7f)
		page_print(page, "\\u%04x", c);
	else if (length == 0)
		page_put_text(page, UTF8_REPLACEMENT);
	else
		page_put(page, text, length);
	return length == 0 ? 1 : length;
}

void
page_put_json(struct page *page, const char *text)
{
	page_put(page, "\"", 1);
	while (*text != '\0')
		text += put_json_character(page, text);
	page_put(page, "\"", 1);
}

int
page_end(struct page *page)
{
	flush(page);
	if (!page->failed)
		return 0;
	errno = ENOMEM;
	return -1;
}
