/*
 * Framings. The reader keeps one buffer and hands out views into it: no copy and no allocation per record.
 *
 *   buffer:  | done | piece being looked for ... | free |
 *            0      start                        end    capacity
 */
#include "client/framing.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/json.h"
#include "common/bytes.h"

enum {
	FRAMING_BUFFER_BYTES = 512 * 1024,
	FRAMING_LENGTH_BYTES = 4,
	FRAMING_ESCAPE_BYTES = 6,		/* \uXXXX for one byte */
	FRAMING_REST_BYTES = 64 * 1024,		/* what else than the payload stands in a line of JSON */
};

struct framing_reader {
	enum framing framing;
	int fd;
	bool ended;
	uint8_t *buffer;
	size_t max_bytes;
	size_t piece_max_bytes;	/* of what one record may be in the input, without a length ahead of it or a delimiter behind */
	size_t capacity, start, end;
	size_t scanned;		/* bytes from start on that are known to hold no delimiter */
	int64_t position;	/* of `start` in the input */
	char problem[160];
};

static const uint8_t newline = '\n', nul = '\0';

int
framing_parse(const char *name)
{
	static const char *const names[] = { "lines", "nul", "len32", "none", "jsonl" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(name, names[i]) == 0)
			return (int)i;
	}
	return -1;
}

struct framing_reader *
framing_open(enum framing framing, int fd, size_t max_bytes)
{
	struct framing_reader *reader = calloc(1, sizeof(*reader));

	if (reader == NULL)
		return NULL;
	reader->framing = framing;
	reader->fd = fd;
	reader->max_bytes = max_bytes;
	reader->piece_max_bytes = framing == FRAMING_JSONL ? max_bytes * FRAMING_ESCAPE_BYTES + FRAMING_REST_BYTES : max_bytes;
	reader->capacity = FRAMING_BUFFER_BYTES;
	reader->buffer = malloc(reader->capacity);
	if (reader->buffer == NULL) {
		free(reader);
		return NULL;
	}
	return reader;
}

void
framing_close(struct framing_reader *reader)
{
	if (reader == NULL)
		return;
	free(reader->buffer);
	free(reader);
}

const char *
framing_problem(const struct framing_reader *reader)
{
	return reader->problem;
}

static enum framing_result bad(struct framing_reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum framing_result
bad(struct framing_reader *reader, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reader->problem, sizeof(reader->problem), format, arguments);
	va_end(arguments);
	return FRAMING_BAD;
}

static enum framing_result
too_large(struct framing_reader *reader)
{
	return bad(reader, "the record at byte %lld is larger than %zu bytes, the most that a request can carry",
	    (long long)reader->position, reader->max_bytes);
}

/* Room behind `end`. A buffer of piece_max_bytes and a length or delimiter always suffices. */
static bool
make_room(struct framing_reader *reader)
{
	size_t largest = reader->piece_max_bytes + FRAMING_LENGTH_BYTES;
	size_t larger = reader->capacity * 2 < largest ? reader->capacity * 2 : largest;
	uint8_t *grown;

	if (reader->start > 0) {
		memmove(reader->buffer, reader->buffer + reader->start, reader->end - reader->start);
		reader->end -= reader->start;
		reader->start = 0;
	}
	if (reader->end < reader->capacity)
		return true;
	if (larger <= reader->capacity)
		larger = reader->capacity + FRAMING_LENGTH_BYTES;
	grown = realloc(reader->buffer, larger);
	if (grown == NULL)
		return false;
	reader->buffer = grown;
	reader->capacity = larger;
	return true;
}

/* One read; FRAMING_RECORD stands for "more bytes are there". */
static enum framing_result
fill(struct framing_reader *reader)
{
	struct pollfd input = { .fd = reader->fd, .events = POLLIN };
	ssize_t n;

	if (reader->ended)
		return FRAMING_END;
	if (poll(&input, 1, 0) == 0)
		return FRAMING_PAUSE;
	if (!make_room(reader))
		return bad(reader, "out of memory");
	do
		n = read(reader->fd, reader->buffer + reader->end, reader->capacity - reader->end);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return FRAMING_PAUSE;
	if (n < 0)
		return bad(reader, "cannot read at byte %lld: %s",
		    (long long)(reader->position + (int64_t)(reader->end - reader->start)), strerror(errno));
	reader->ended = n == 0;
	reader->end += (size_t)n;
	return n == 0 ? FRAMING_END : FRAMING_RECORD;
}

/* Hands out `size` bytes that stand `ahead` bytes behind start, and goes `whole` bytes on. */
static enum framing_result
hand_out(struct framing_reader *reader, struct framing_record *record, size_t ahead, size_t size, size_t whole)
{
	record->payload = reader->buffer + reader->start + ahead;
	record->size = size;
	record->position = reader->position;
	record->unterminated = false;
	reader->start += whole;
	reader->position += (int64_t)whole;
	reader->scanned = 0;
	return FRAMING_RECORD;
}

/* Looks for the piece up to a delimiter, or to the input's end (*terminated false): `size` bytes from `start` on. */
static enum framing_result
find_piece(struct framing_reader *reader, uint8_t delimiter, size_t *size, bool *terminated)
{
	for (;;) {
		const uint8_t *from = reader->buffer + reader->start;
		size_t left = reader->end - reader->start;
		const uint8_t *found = left == reader->scanned ? NULL :
		    memchr(from + reader->scanned, delimiter, left - reader->scanned);
		enum framing_result result;

		*size = found != NULL ? (size_t)(found - from) : left;
		*terminated = found != NULL;
		if (found != NULL)
			return FRAMING_RECORD;
		reader->scanned = left;
		if (left > reader->piece_max_bytes)
			return too_large(reader);
		result = fill(reader);
		if (result == FRAMING_END && left > 0)
			return FRAMING_RECORD;
		if (result != FRAMING_RECORD)
			return result;
	}
}

static enum framing_result
next_delimited(struct framing_reader *reader, struct framing_record *record, const uint8_t *delimiter)
{
	size_t size;
	bool terminated;
	enum framing_result result = find_piece(reader, *delimiter, &size, &terminated);

	if (result != FRAMING_RECORD)
		return result;
	if (size > reader->max_bytes)
		return too_large(reader);
	hand_out(reader, record, 0, size, size + terminated);
	record->unterminated = !terminated;
	if (size == 0) {
		record->payload = delimiter;
		record->size = 1;
	}
	return FRAMING_RECORD;
}

static enum framing_result
next_jsonl(struct framing_reader *reader, struct framing_record *record)
{
	size_t size, at;
	bool terminated;
	enum framing_result result = find_piece(reader, newline, &size, &terminated);
	const char *problem;

	if (result != FRAMING_RECORD)
		return result;
	problem = json_read_record(reader->buffer + reader->start, size, &record->payload, &record->size, &at);
	if (problem != NULL)
		return bad(reader, "%s, at byte %lld", problem, (long long)(reader->position + (int64_t)at));
	if (record->size > reader->max_bytes)
		return too_large(reader);
	return hand_out(reader, record, (size_t)(record->payload - reader->buffer) - reader->start, record->size,
	    size + terminated);
}

static enum framing_result
truncated(struct framing_reader *reader)
{
	size_t left = reader->end - reader->start;

	if (left == 0)
		return FRAMING_END;
	return bad(reader, "the input ends at byte %lld, inside the record that begins at byte %lld",
	    (long long)(reader->position + (int64_t)left), (long long)reader->position);
}

static enum framing_result
next_len32(struct framing_reader *reader, struct framing_record *record)
{
	for (;;) {
		size_t left = reader->end - reader->start;
		int32_t length = left < FRAMING_LENGTH_BYTES ? 1 : bytes_get_i32(reader->buffer + reader->start);
		size_t whole = FRAMING_LENGTH_BYTES + (size_t)length;
		enum framing_result result;

		if (length <= 0 || (size_t)length > reader->max_bytes)
			return bad(reader, "a length of %d at byte %lld; 1 to %zu are possible", length,
			    (long long)reader->position, reader->max_bytes);
		if (left >= FRAMING_LENGTH_BYTES && left >= whole)
			return hand_out(reader, record, FRAMING_LENGTH_BYTES, (size_t)length, whole);
		result = fill(reader);
		if (result == FRAMING_END)
			return truncated(reader);
		if (result != FRAMING_RECORD)
			return result;
	}
}

static enum framing_result
next_whole(struct framing_reader *reader, struct framing_record *record)
{
	enum framing_result result;

	do {
		if (reader->end - reader->start > reader->max_bytes)
			return too_large(reader);
		result = fill(reader);
	} while (result == FRAMING_RECORD);
	if (result != FRAMING_END)
		return result;
	if (reader->end > reader->start)
		return hand_out(reader, record, 0, reader->end - reader->start, reader->end - reader->start);
	/* The second call of an input that held something ends it; an empty one cannot be a record. */
	return reader->position > 0 ? FRAMING_END : bad(reader, "the input is empty, and empty records do not exist");
}

enum framing_result
framing_next(struct framing_reader *reader, struct framing_record *record)
{
	if (reader->problem[0] != '\0')
		return FRAMING_BAD;
	switch (reader->framing) {
	case FRAMING_LINES:
		return next_delimited(reader, record, &newline);
	case FRAMING_NUL:
		return next_delimited(reader, record, &nul);
	case FRAMING_LEN32:
		return next_len32(reader, record);
	case FRAMING_JSONL:
		return next_jsonl(reader, record);
	case FRAMING_NONE:
		break;
	}
	return next_whole(reader, record);
}

static uint8_t *
put_delimited(uint8_t *to, uint8_t delimiter, const uint8_t *payload, size_t size)
{
	if (size != 1 || payload[0] != delimiter) {
		memcpy(to, payload, size);
		to += size;
	}
	*to++ = delimiter;
	return to;
}

uint8_t *
framing_put(uint8_t *to, enum framing framing, const uint8_t *payload, size_t size)
{
	switch (framing) {
	case FRAMING_LINES:
		return put_delimited(to, newline, payload, size);
	case FRAMING_NUL:
		return put_delimited(to, nul, payload, size);
	case FRAMING_LEN32:
		to = bytes_put_i32(to, (int32_t)size);
		break;
	case FRAMING_NONE:
	case FRAMING_JSONL:
		break;
	}
	memcpy(to, payload, size);
	return to + size;
}
