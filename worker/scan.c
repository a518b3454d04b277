/* Scanning segment files. */
#include "worker/scan.h"

#include <stdlib.h>
#include <string.h>

#include "worker/direct.h"
#include "worker/piece.h"
#include "worker/segment.h"

enum {
	/* What scan_holds_record sums up at most before it gives up: some hundredths of a second. */
	SUMMED_MAX_BYTES = 256 * 1024 * 1024,
};

int
scan_records(int fd, enum record_format format, int64_t base, int64_t file_bytes, struct index *index,
    struct scan *scan)
{
	*scan = (struct scan){ .verdict = RECORD_VALID };
	return scan_records_on(fd, format, base, file_bytes, index, scan);
}

int
scan_records_on(int fd, enum record_format format, int64_t base, int64_t file_bytes, struct index *index,
    struct scan *scan)
{
	struct piece piece;
	int done;

	if (piece_init(&piece, fd, file_bytes) == -1)
		return -1;
	piece_move(&piece, scan->position);
	for (;;) {
		size_t bytes;

		done = piece_judge(&piece, format, scan->position, &scan->verdict, &bytes);
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
	piece_free(&piece);
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
	done = piece_judge(&piece, format, 0, verdict, &bytes);
	piece_free(&piece);
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

		n = direct_read(fd, bytes, left < PIECE_BYTES ? (size_t)left : PIECE_BYTES, position);
		if (n <= 0)
			break;
		content = last_content(bytes, (size_t)n);
		if (content > 0)
			end = position + (int64_t)content;
		position += n;
		/* What is preallocated can be a terabyte. */
		if (content == 0)
			position = segment_behind_hole(fd, position, file_bytes);
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
	n = direct_read(fd, bytes, (size_t)size, position);
	if (n != -1)
		*holds = holds_record(bytes, (size_t)n);
	free(bytes);
	return n == -1 ? -1 : 0;
}
