/*
 * A stretch of a segment file in memory, which moves forward over the file in large reads and grows for a record that
 * does not fit, never beyond the largest possible one.
 */
#ifndef WORKER_PIECE_H
#define WORKER_PIECE_H

#include <stddef.h>
#include <stdint.h>

#include "common/record.h"

enum { PIECE_BYTES = 1024 * 1024 };

struct piece {
	int fd;
	int64_t file_bytes;	/* falls when the file turns out to be shorter */
	int64_t position;	/* in the file, of bytes[0] */
	uint8_t *bytes;
	size_t filled;
	size_t capacity;
};

/* Returns 0, or -1 with errno ENOMEM. */
int piece_init(struct piece *piece, int fd, int64_t file_bytes);
void piece_free(struct piece *piece);

/* Makes room for `wanted` bytes at a time. Returns 0, or -1 with errno ENOMEM. */
int piece_reserve(struct piece *piece, size_t wanted);

/* Forgets what is there and goes to any position. */
void piece_move(struct piece *piece, int64_t position);

/*
 * Makes `wanted` bytes at `position` (within the piece or at its end) available, or all that the file has. Returns 0,
 * or -1 with errno: ENOMEM or the read's.
 */
int piece_fill(struct piece *piece, int64_t position, size_t wanted);

/* The byte at a position that is in the piece, and how many are there from it on. */
static inline const uint8_t *
piece_at(const struct piece *piece, int64_t position)
{
	return piece->bytes + (position - piece->position);
}

static inline size_t
piece_left(const struct piece *piece, int64_t position)
{
	return piece->filled - (size_t)(position - piece->position);
}

/*
 * The verdict on the record at `position`, which is filled in with all of it that the file has; *bytes as
 * record_check's. Returns 0, or -1 with errno as above.
 */
int piece_judge(struct piece *piece, enum record_format format, int64_t position, enum record_verdict *verdict,
    size_t *bytes);

#endif
