/*
 * A page being put together in an evbuffer. With 100,000 partitions one has a million lines, so what is put is copied into
 * a block that goes to the evbuffer when it is full. Knows nothing of what is put.
 */
#ifndef SUPERVISOR_PAGE_H
#define SUPERVISOR_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct evbuffer;

enum {
	PAGE_BLOCK_BYTES = 32 * 1024,
	PAGE_NUMBER_BYTES = 24,
	PAGE_LINE_BYTES = 1024,
};

/* Begins as { .to = evbuffer }. Memory that is out is noticed at the end. */
struct page {
	struct evbuffer *to;
	bool failed;
	size_t used;
	char block[PAGE_BLOCK_BYTES];
};

/* At most PAGE_BLOCK_BYTES at a time. */
void page_put(struct page *page, const char *bytes, size_t length);
void page_put_text(struct page *page, const char *text);
void page_put_number(struct page *page, int64_t value);
/* Cut at PAGE_LINE_BYTES. */
void page_print(struct page *page, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string with its quotes: control characters as escapes, bytes that are no UTF-8 as U+FFFD. */
void page_put_json(struct page *page, const char *text);

/* Returns 0, or -1 with errno ENOMEM: what is in the evbuffer is no page then. */
int page_end(struct page *page);

#endif
