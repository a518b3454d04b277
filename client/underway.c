/* Places for records under way: a table, and a list of those that have been given back. */
#include "client/underway.h"

#include <stdlib.h>

enum { UNDERWAY_RECORDS = 256 * 1024 };

struct underway {
	void *owner;
	struct underway_record *free;
	size_t used;			/* places that were ever taken: the others' memory has not been touched */
	struct underway_record records[UNDERWAY_RECORDS];
};

struct underway *
underway_new(void *owner)
{
	struct underway *underway = calloc(1, sizeof(*underway));

	if (underway != NULL)
		underway->owner = owner;
	return underway;
}

void
underway_free(struct underway *underway)
{
	free(underway);
}

struct underway_record *
underway_take(struct underway *underway, int64_t number, size_t bytes)
{
	struct underway_record *record = underway->free;

	if (record != NULL)
		underway->free = record->next_free;
	else if (underway->used < UNDERWAY_RECORDS)
		record = &underway->records[underway->used++];
	else
		return NULL;
	*record = (struct underway_record){ .owner = underway->owner, .number = number, .bytes = bytes };
	return record;
}

void
underway_give_back(struct underway *underway, struct underway_record *record)
{
	record->next_free = underway->free;
	underway->free = record;
}
