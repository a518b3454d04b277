/* Ends of logs on their way from one process to the next; see ends.h. */
#include "supervisor/ends.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int
ends_init(struct ends *ends, int32_t slots)
{
	size_t room = slots > 0 ? (size_t)slots : 1;

	*ends = (struct ends){ .slots = slots };
	ends->list = calloc(room, sizeof(*ends->list));
	ends->told = calloc(room, sizeof(*ends->told));
	if (ends->list != NULL && ends->told != NULL)
		return 0;
	ends_free(ends);
	errno = ENOMEM;
	return -1;
}

void
ends_free(struct ends *ends)
{
	free(ends->list);
	free(ends->told);
	*ends = (struct ends){ .slots = 0 };
}

const char *
ends_take(struct ends *ends, const struct message_end *list, int32_t count)
{
	for (int32_t i = 0; i < count; i++) {
		if (list[i].slot >= ends->slots)
			return "ENDS of a partition that it does not have";
		if (ends->told[list[i].slot])
			return "ENDS of a partition for the second time";
		ends->told[list[i].slot] = true;
		ends->list[ends->count++] = list[i];
	}
	return NULL;
}

const char *
ends_release(struct ends *ends, int32_t count)
{
	if (count != ends->count)
		return "RELEASED with another number of partitions than ENDS told of";
	ends->released = true;
	return NULL;
}

static int
queue_some(const struct message_end *list, int32_t count, struct channel *channel)
{
	struct { struct message_ends head; struct message_end list[MESSAGE_ENDS_MAX]; } payload;
	struct channel_message message = { .type = MESSAGE_ENDS, .payload = &payload };

	payload.head = (struct message_ends){ .count = count };
	memcpy(payload.list, list, (size_t)count * sizeof(*list));
	message.size = sizeof(payload.head) + (size_t)count * sizeof(*list);
	return channel_queue(channel, &message);
}

int
ends_queue(const struct ends *ends, struct channel *channel)
{
	if (!ends->released)
		return 0;
	for (int32_t i = 0; i < ends->count; i += MESSAGE_ENDS_MAX) {
		int32_t left = ends->count - i;

		if (queue_some(&ends->list[i], left < MESSAGE_ENDS_MAX ? left : MESSAGE_ENDS_MAX, channel) != 0)
			return -1;
	}
	return 0;
}
