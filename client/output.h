/*
 * Standard output for data: one buffer, large writes. A reader that has gone away (EPIPE) is no error: `closed` turns
 * true, and what is put from then on is dropped; so is one that takes nothing for a second when we are asked to end. Any
 * other failure is said once and kept in `failed`.
 */
#ifndef CLIENT_OUTPUT_H
#define CLIENT_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct output {
	int fd;
	uint8_t *buffer;
	size_t used, capacity;
	bool closed, failed;
};

/* Returns 0, or -1: out of memory (said). The descriptor stays the caller's. */
int output_open(struct output *output, int fd);
void output_free(struct output *output);

/* Room for `bytes` bytes; what is written there counts after output_advance. NULL: out of memory (said). */
uint8_t *output_room(struct output *output, size_t bytes);
void output_advance(struct output *output, size_t bytes);

void output_put(struct output *output, const void *bytes, size_t size);
void output_print(struct output *output, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns 0, or -1 when nothing that is put can arrive any more (closed or failed). */
int output_flush(struct output *output);

#endif
