#include "worker/hold.h"

#include <stddef.h>

void
hold_add(struct holds *holds, struct hold *hold, struct lane *lane, int64_t missing_bytes)
{
	hold->lane = lane;
	hold->wake_bytes = holds->appended_bytes + missing_bytes;
	if (holds->first == NULL || hold->wake_bytes < holds->next_wake_bytes)
		holds->next_wake_bytes = hold->wake_bytes;
	hold->next = holds->first;
	hold->previous = &holds->first;
	if (hold->next != NULL)
		hold->next->previous = &hold->next;
	holds->first = hold;
}

void
hold_remove(struct hold *hold)
{
	*hold->previous = hold->next;
	if (hold->next != NULL)
		hold->next->previous = hold->previous;
	hold->lane = NULL;
}

void
hold_appended(struct holds *holds, int64_t bytes)
{
	holds->appended_bytes += bytes;
}

static struct hold *
take(struct holds *holds, int64_t up_to_bytes, int64_t below_offset)
{
	struct hold *taken = NULL, *next;
	int64_t next_wake_bytes = INT64_MAX;

	for (struct hold *hold = holds->first; hold != NULL; hold = next) {
		next = hold->next;
		if (hold->wake_bytes <= up_to_bytes || hold->offset < below_offset) {
			hold_remove(hold);
			hold->next = taken;
			taken = hold;
		} else if (hold->wake_bytes < next_wake_bytes) {
			next_wake_bytes = hold->wake_bytes;
		}
	}
	holds->next_wake_bytes = next_wake_bytes;
	return taken;
}

struct hold *
hold_take_due(struct holds *holds)
{
	if (holds->first == NULL || holds->appended_bytes < holds->next_wake_bytes)
		return NULL;
	return take(holds, holds->appended_bytes, 0);
}

struct hold *
hold_take_below(struct holds *holds, int64_t offset)
{
	return take(holds, INT64_MIN, offset);
}

struct hold *
hold_take_all(struct holds *holds)
{
	return take(holds, INT64_MAX, 0);
}
