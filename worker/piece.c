/* Segment files in memory, a piece at a time. */
#include "worker/piece.h"

#include <stdlib.h>
#include <string.h>

#include "worker/direct.h"

int
piece_init(struct piece *piece, int fd, int64_t file_bytes)
{
	size_t capacity = file_bytes < PIECE_BYTES ? (size_t)file_bytes + 1 : PIECE_BYTES;

	*piece = (struct piece){ .fd = fd, .file_bytes = file_bytes, .capacity = capacity };
	piece->bytes = malloc(capacity);
	return piece->bytes == NULL ? -1 : 0;
}

void
piece_free(struct piece *piece)
{
	free(piece->bytes);
}

int
piece_reserve(struct piece *piece, size_t wanted)
{
	uint8_t *bytes;

	if (wanted <= piece->capacity)
		return 0;
	bytes = realloc(piece->bytes, wanted);
	if (bytes == NULL)
		return -1;
	piece->bytes = bytes;
	piece->capacity = wanted;
	return 0;
}

int
piece_fill(struct piece *piece, int64_t position, size_t wanted)
{
	size_t kept = piece_left(piece, position);
	int64_t rest = piece->file_bytes - position;
	size_t reading;
	ssize_t n;

	if (kept >= wanted || (int64_t)kept == rest)
		return 0;
	memmove(piece->bytes, piece->bytes + (piece->filled - kept), kept);
	piece->position = position;
	piece->filled = kept;
	if (piece_reserve(piece, rest < (int64_t)wanted ? (size_t)rest : wanted) == -1)
		return -1;
	reading = piece->capacity - kept;
	if ((int64_t)reading > rest - (int64_t)kept)
		reading = (size_t)(rest - (int64_t)kept);
	n = direct_read(piece->fd, piece->bytes + kept, reading, position + (int64_t)kept);
	if (n == -1)
		return -1;
	piece->filled += (size_t)n;
	if ((size_t)n < reading)
		piece->file_bytes = piece->position + (int64_t)piece->filled;
	return 0;
}

void
piece_move(struct piece *piece, int64_t position)
{
	piece->position = position;
	piece->filled = 0;
}

int
piece_judge(struct piece *piece, enum record_format format, int64_t position, enum record_verdict *verdict,
    size_t *bytes)
{
	*bytes = RECORD_HEADER_MAX_BYTES;
	for (int i = 0; i < 2; i++) {
		if (piece_fill(piece, position, *bytes) == -1)
			return -1;
		*verdict = record_check(format, piece_at(piece, position), piece_left(piece, position), bytes);
		if (*verdict != RECORD_INCOMPLETE)
			break;
	}
	return 0;
}
