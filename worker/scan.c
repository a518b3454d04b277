/* Scanning segment files. */
#include "worker/scan.h"

#include <stdlib.h>
#include <string.h>

#include "worker/segment.h"

enum {
	PIECE_BYTES = 1024 * 1024,
	/* What scan_holds_record sums up at most before it gives up: some hundredths of a second. */
	SUMMED_MAX_BYTES = 256 * 1024 * 1024,
};

/* A stretch of the file in memory. */
struct piece {
	int fd;
	int64_t file_bytes;
	int64_t position;	/* in the file, of bytes[0] */
	uint8_t *bytes;
	size_t filled;
	size_t capacity;
};

static int
piece_init(struct piece *piece, int fd, int64_t file_bytes)
{
	size_t capacity = file_bytes < PIECE_BYTES ? (size_t)file_bytes + 1 : PIECE_BYTES;

	*piece = (struct piece){ .fd = fd, .file_bytes = file_bytes, .capacity = capacity };
	piece->bytes = malloc(capacity);
	return piece->bytes == NULL ? -1 : 0;
}

static size_t
piece_left(const struct piece *piece, int64_t position)
{
	return piece->filled - (size_t)(position - piece->position);
}

/* Makes room for `wanted` bytes, which is at most a record's. */
static int
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

/* Makes `wanted` bytes at `position` (within the piece or at its end) available, or all that the file has. */
static int
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
	n = segment_read(piece->fd, piece->bytes + kept, reading, position + (int64_t)kept);
	if (n == -1)
		return -1;
	piece->filled += (size_t)n;
	if ((size_t)n < reading)
		piece->file_bytes = piece->position + (int64_t)piece->filled;
	return 0;
}

/* The verdict on the record at `position`, with all of it in memory that the file has. */
static int
judge(struct piece *piece, enum record_format format, int64_t position, enum record_verdict *verdict, size_t *bytes)
{
	*bytes = RECORD_HEADER_MAX_BYTES;
	for (int i = 0; i < 2; i++) {
		if (piece_fill(piece, position, *bytes) == -1)
			return -1;
		*verdict = record_check(format, piece->bytes + (position - piece->position),
		    piece_left(piece, position), bytes);
		if (*verdict != RECORD_INCOMPLETE)
			break;
	}
	return 0;
}

int
scan_records(int fd, enum record_format format, int64_t base, int64_t file_bytes, struct index *index,
    struct scan *scan)
{
	struct piece piece;
	int done;

	*scan = (struct scan){ .verdict = RECORD_VALID };
	if (piece_init(&piece, fd, file_bytes) == -1)
		return -1;
	for (;;) {
		size_t bytes;

		done = judge(&piece, format, scan->position, &scan->verdict, &bytes);
		if (done == -1)
			break;
		if (scan->verdict != RECORD_VALID) {
			scan->verdict_end = scan->position + (int64_t)bytes;
			if (scan->verdict_end > piece.file_bytes)
				scan->verdict_end = piece.file_bytes;
			break;
		}
		if (index != NULL && (done = index_note(index, base + scan->records, scan->position)) == -1)
			break;
		scan->records++;
		scan->position += (int64_t)bytes;
	}
	free(piece.bytes);
	return done;
}

int
scan_first(int fd, enum record_format format, int64_t file_bytes, enum record_verdict *verdict)
{
	struct piece piece;
	size_t bytes;
	int done;

	if (piece_init(&piece, fd, file_bytes) == -1)
		return -1;
	done = judge(&piece, format, 0, verdict, &bytes);
	free(piece.bytes);
	return done;
}

/* Position behind the last byte that is not zero; 0 when all are. */
static size_t
last_content(const uint8_t *p, size_t size)
{
	while (size > 0 && p[size - 1] == 0)
		size--;
	return size;
}

int64_t
scan_content_end(int fd, int64_t position, int64_t file_bytes)
{
	uint8_t *bytes = malloc(PIECE_BYTES);
	int64_t end = position;
	ssize_t n = 0;

	if (bytes == NULL)
		return -1;
	while (position < file_bytes) {
		int64_t left = file_bytes - position;
		size_t content;

		n = segment_read(fd, bytes, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES, position);
		if (n <= 0)
			break;
		content = last_content(bytes, (size_t)n);
		if (content > 0)
			end = position + (int64_t)content;
		position += n;
	}
	free(bytes);
	return n == -1 ? -1 : end;
}

/* Does a valid record begin in p[1] or behind? */
static bool
holds_record(const uint8_t *p, size_t size)
{
	size_t summed = 0;

	for (size_t i = 1; i + record_header_bytes(RECORD_CRC32C) < size; i++) {
		size_t bytes;

		switch (record_check(RECORD_CRC32C, p + i, size - i, &bytes)) {
		case RECORD_VALID:
			return true;
		case RECORD_WRONG_SUM:
			summed += bytes;
			break;
		default:
			break;
		}
		if (summed > SUMMED_MAX_BYTES)
			return true;
	}
	return false;
}

int
scan_holds_record(int fd, int64_t position, int64_t file_bytes, bool *holds)
{
	int64_t size = file_bytes - position;
	uint8_t *bytes;
	ssize_t n;

	*holds = true;
	if (size > RECORD_MAX_BYTES)
		return 0;
	bytes = malloc((size_t)size + 1);
	if (bytes == NULL)
		return -1;
	n = segment_read(fd, bytes, (size_t)size, position);
	if (n != -1)
		*holds = holds_record(bytes, (size_t)n);
	free(bytes);
	return n == -1 ? -1 : 0;
}
