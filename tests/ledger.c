/* See ledger.h. */
#include "ledger.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	int64_t offset;		/* -1: unknown */
	int32_t partition;
};

struct place {
	int64_t *numbers;	/* of the record at each offset; -1: unknown */
	int64_t end;
	int64_t capacity;
};

struct ledger {
	pthread_mutex_t mutex;
	struct entry *entries;	/* by number */
	int64_t count;
	int64_t capacity;
	struct place places[LEDGER_PARTITIONS_MAX];
	char wrong[256];
};

struct ledger *
ledger_new(void)
{
	struct ledger *ledger = calloc(1, sizeof *ledger);

	if (ledger == NULL)
		abort();
	pthread_mutex_init(&ledger->mutex, NULL);
	return ledger;
}

void
ledger_free(struct ledger *ledger)
{
	for (int i = 0; i < LEDGER_PARTITIONS_MAX; i++)
		free(ledger->places[i].numbers);
	free(ledger->entries);
	pthread_mutex_destroy(&ledger->mutex);
	free(ledger);
}

#define WRONG(ledger, ...) \
	((ledger)->wrong[0] == '\0' ? (void)snprintf((ledger)->wrong, sizeof (ledger)->wrong, __VA_ARGS__) : (void)0)

static void *
grow(void *list, int64_t *capacity, int64_t least, size_t size)
{
	int64_t more = *capacity > 0 ? *capacity : 4096;

	while (more < least)
		more *= 2;
	list = more > *capacity ? realloc(list, (size_t)more * size) : list;
	if (list == NULL)
		abort();
	*capacity = more;
	return list;
}

int64_t
ledger_add(struct ledger *ledger, int32_t partition)
{
	int64_t number;

	pthread_mutex_lock(&ledger->mutex);
	number = ledger->count++;
	if (ledger->count > ledger->capacity)
		ledger->entries = grow(ledger->entries, &ledger->capacity, ledger->count, sizeof *ledger->entries);
	ledger->entries[number] = (struct entry){ -1, partition };
	pthread_mutex_unlock(&ledger->mutex);
	return number;
}

/* ---- payloads ------------------------------------------------------------------------------------------------- */

/* Behind the head: words that follow from number and place, and the last bytes of one more. */
static void
fill_rest(uint8_t *payload, int64_t number, size_t size)
{
	uint64_t word = (uint64_t)number * 0x9e3779b97f4a7c15u;
	size_t at = LEDGER_HEAD_BYTES;

	for (; at + sizeof word <= size; at += sizeof word, word += 0x9e3779b97f4a7c15u)
		memcpy(payload + at, &word, sizeof word);
	memcpy(payload + at, &word, size - at);
}

void
ledger_fill(uint8_t *payload, int64_t number, int32_t partition, size_t size)
{
	wire_set_i64(payload, number);
	wire_set_i32(payload + 8, partition);
	wire_set_i32(payload + 12, (int64_t)size);
	wire_set_i64(payload + 16, wire_now_us());
	fill_rest(payload, number, size);
}

static bool
is_ours(const struct wire_record *record, int32_t partition)
{
	const uint8_t *payload = record->payload;
	uint64_t word, here;
	size_t at = LEDGER_HEAD_BYTES;

	if (record->length < LEDGER_HEAD_BYTES || wire_get_i32(payload + 8) != partition ||
	    (size_t)wire_get_i32(payload + 12) != record->length)
		return false;
	word = (uint64_t)wire_get_i64(payload) * 0x9e3779b97f4a7c15u;
	for (; at + sizeof word <= record->length; at += sizeof word, word += 0x9e3779b97f4a7c15u) {
		memcpy(&here, payload + at, sizeof here);
		if (here != word)
			return false;
	}
	return memcmp(payload + at, &word, record->length - at) == 0;
}

/* ---- places ---------------------------------------------------------------------------------------------------- */

static void
reach(struct place *place, int64_t offset)
{
	if (offset < place->end)
		return;
	place->numbers = grow(place->numbers, &place->capacity, offset + 1, sizeof *place->numbers);
	while (place->end <= offset)
		place->numbers[place->end++] = -1;
}

/* With the mutex held. */
static void
put(struct ledger *ledger, int64_t number, int32_t partition, int64_t offset, const char *how)
{
	struct entry *entry = &ledger->entries[number];
	struct place *place = &ledger->places[partition];

	if (offset < 0 || offset > INT32_MAX || entry->partition != partition) {
		WRONG(ledger, "record %lld of partition %d was %s in partition %d at offset %lld", (long long)number,
		    (int)entry->partition, how, (int)partition, (long long)offset);
		return;
	}
	reach(place, offset);
	if (entry->offset >= 0 && entry->offset != offset)
		WRONG(ledger, "partition %d: record %lld was %s at offset %lld, but stood at %lld", (int)partition,
		    (long long)number, how, (long long)offset, (long long)entry->offset);
	else if (place->numbers[offset] >= 0 && place->numbers[offset] != number)
		WRONG(ledger, "partition %d: offset %lld is that of record %lld, and now record %lld was %s there",
		    (int)partition, (long long)offset, (long long)place->numbers[offset], (long long)number, how);
	entry->offset = offset;
	place->numbers[offset] = number;
}

void
ledger_acknowledge(struct ledger *ledger, int64_t number, int32_t partition, int64_t offset)
{
	pthread_mutex_lock(&ledger->mutex);
	put(ledger, number, partition, offset, "acknowledged");
	pthread_mutex_unlock(&ledger->mutex);
}

int64_t
ledger_read(struct ledger *ledger, int32_t partition, int64_t offset, const struct wire_record *record)
{
	bool ours = is_ours(record, partition);
	int64_t number = ours ? wire_get_i64(record->payload) : -1;

	pthread_mutex_lock(&ledger->mutex);
	ours = ours && number >= 0 && number < ledger->count;
	if (ours)
		put(ledger, number, partition, offset, "read");
	else
		WRONG(ledger, "partition %d: at offset %lld stands what nobody has sent (%zu bytes)", (int)partition,
		    (long long)offset, record->length);
	pthread_mutex_unlock(&ledger->mutex);
	return ours ? wire_get_i64((const uint8_t *)record->payload + 16) : 0;
}

int64_t
ledger_end(struct ledger *ledger, int32_t partition)
{
	int64_t end;

	pthread_mutex_lock(&ledger->mutex);
	end = ledger->places[partition].end;
	pthread_mutex_unlock(&ledger->mutex);
	return end;
}

int64_t
ledger_count(struct ledger *ledger, int64_t *unknown)
{
	int64_t count;

	pthread_mutex_lock(&ledger->mutex);
	count = ledger->count;
	*unknown = 0;
	for (int64_t i = 0; i < count; i++)
		*unknown += ledger->entries[i].offset < 0;
	pthread_mutex_unlock(&ledger->mutex);
	return count;
}

const char *
ledger_wrong(struct ledger *ledger)
{
	bool wrong;

	pthread_mutex_lock(&ledger->mutex);
	wrong = ledger->wrong[0] != '\0';
	pthread_mutex_unlock(&ledger->mutex);
	return wrong ? ledger->wrong : NULL;
}
