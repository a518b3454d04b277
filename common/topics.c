/* The set of topics and the arithmetic of placement; see topics.h. Pure: no I/O. */
#include "common/topics.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
topics_init(struct topics *topics, int32_t group_count)
{
	memset(topics, 0, sizeof(*topics));
	topics->slot_counts = calloc((size_t)group_count, sizeof(*topics->slot_counts));
	if (topics->slot_counts == NULL)
		return -1;
	topics->group_count = group_count;
	return 0;
}

static int
compare(const struct topic *topic, const char *name, size_t length)
{
	size_t own = strlen(topic->name);
	int order = memcmp(topic->name, name, own < length ? own : length);

	return order != 0 ? order : (own > length) - (own < length);
}

static bool
acceptable(const struct topics *topics, const struct topic *topic)
{
	size_t length = strnlen(topic->name, sizeof(topic->name));

	if (!codec_topic_name_valid(topic->name, length))
		return false;
	if (topic->partition_count < 1 || topic->partition_count > TOPICS_PARTITIONS_MAX)
		return false;
	if (topic->first_group < 0 || topic->first_group >= topics->group_count)
		return false;
	return topics->count == 0 || compare(&topics->list[topics->count - 1], topic->name, length) < 0;
}

/* Partition p lives in (first_group + p) mod n when spread: group g gets every n-th one. */
static int32_t
partitions_in_group(const struct topics *topics, const struct topic *topic, int32_t group)
{
	int32_t n = topics->group_count;
	int32_t first = (group - topic->first_group + n) % n;

	if (!topic->spread)
		return group == topic->first_group ? topic->partition_count : 0;
	return first >= topic->partition_count ? 0 : (topic->partition_count - first + n - 1) / n;
}

int
topics_add(struct topics *topics, const struct topic *topic)
{
	struct topic *list, *added;

	if (!acceptable(topics, topic)) {
		errno = EINVAL;
		return -1;
	}
	list = realloc(topics->list, ((size_t)topics->count + 1) * sizeof(*list));
	if (list == NULL)
		return -1;
	topics->list = list;
	added = &list[topics->count];
	*added = *topic;
	added->first_slots = malloc((size_t)topics->group_count * sizeof(*added->first_slots));
	if (added->first_slots == NULL)
		return -1;
	for (int32_t group = 0; group < topics->group_count; group++) {
		added->first_slots[group] = topics->slot_counts[group];
		topics->slot_counts[group] += partitions_in_group(topics, added, group);
	}
	topics->count++;
	return 0;
}

void
topics_free(struct topics *topics)
{
	for (int32_t i = 0; i < topics->count; i++)
		free(topics->list[i].first_slots);
	free(topics->list);
	free(topics->slot_counts);
	memset(topics, 0, sizeof(*topics));
}

const struct topic *
topics_find(const struct topics *topics, struct codec_name name)
{
	int32_t low = 0, high = topics->count;

	while (low < high) {
		int32_t middle = low + (high - low) / 2;
		int order = compare(&topics->list[middle], name.bytes, name.length);

		if (order == 0)
			return &topics->list[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return NULL;
}

int32_t
topics_group(const struct topics *topics, const struct topic *topic, int32_t partition)
{
	return topic->spread ? (topic->first_group + partition) % topics->group_count : topic->first_group;
}

int32_t
topics_slot(const struct topics *topics, const struct topic *topic, int32_t partition)
{
	int32_t first = topic->first_slots[topics_group(topics, topic, partition)];

	return topic->spread ? first + partition / topics->group_count : first + partition;
}

void
topics_directory(const struct topic *topic, int32_t partition, char *to)
{
	snprintf(to, TOPICS_DIRECTORY_BYTES, "%s-%d", topic->name, (int)partition);
}
