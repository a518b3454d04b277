/*
 * What a FETCH answer means for one partition's consumer.
 */
#include "client/reader.h"

#include "common/bytes.h"

/* The verdict on the place where checking stopped, `left` bytes before the payload's end; NULL: nothing is wrong. */
static const char *
damage_at(enum record_verdict verdict, size_t left)
{
	switch (verdict) {
	case RECORD_END:
		/* Fewer than four bytes, all zero, are the begin of a length that was cut. */
		return left < 4 ? NULL : "a record with a length of zero";
	case RECORD_IMPOSSIBLE:
		return "a record with an impossible length";
	case RECORD_WRONG_SUM:
		return "a record whose CRC-32C sum does not fit its bytes";
	case RECORD_VALID:
	case RECORD_INCOMPLETE:
		break;
	}
	return NULL;
}

/* Nothing was whole: `whole` is the first record's size, or 0 when not even its length is there. */
static enum reader_verdict
ask_for_more(struct reader *reader, size_t whole, struct reader_batch *batch)
{
	size_t needed = whole == 0 ? RECORD_HEADER_MAX_BYTES : whole;

	if ((size_t)reader->ask_bytes >= needed) {
		batch->stuck_bytes = whole == 0 ? 0 : whole - record_header_bytes(reader->format);
		return READER_STUCK;
	}
	reader->ask_bytes = (int32_t)needed;
	return READER_LARGER;
}

enum reader_verdict
reader_take(struct reader *reader, const uint8_t *payload, size_t bytes, int64_t most, struct reader_batch *batch)
{
	enum record_verdict verdict = RECORD_INCOMPLETE;
	size_t whole = 0;

	if (most > reader->end - reader->position)
		most = reader->end - reader->position;
	*batch = (struct reader_batch){ 0 };
	while (batch->records < most && batch->bytes < bytes) {
		verdict = record_check(reader->format, payload + batch->bytes, bytes - batch->bytes, &whole);
		if (verdict != RECORD_VALID)
			break;
		batch->bytes += whole;
		batch->records++;
	}
	reader->position += batch->records;
	if (bytes == 0)
		return READER_EMPTY;
	batch->damage = damage_at(verdict, bytes - batch->bytes);
	if (batch->damage != NULL)
		return READER_DAMAGED;
	if (batch->records == 0 && most > 0)
		return ask_for_more(reader, verdict == RECORD_INCOMPLETE ? whole : 0, batch);
	reader->ask_bytes = reader->max_bytes;
	return READER_GOES_ON;
}

const uint8_t *
reader_payload(enum record_format format, const uint8_t *record, size_t *size, const uint8_t **next)
{
	const uint8_t *payload = record + record_header_bytes(format);

	*size = (size_t)bytes_get_i32(record);
	*next = payload + *size;
	return payload;
}
