/* Dealing partitions out to groups; see placement.h. Pure: no I/O. */
#include "supervisor/placement.h"

#include <errno.h>
#include <string.h>

static int
add_topic(struct topics *topics, const struct settings_topic *from, int32_t *next_group)
{
	struct topic topic = { .partition_count = from->partition_count, .log = from->log };

	memcpy(topic.name, from->name, sizeof(topic.name));
	topic.spread = from->group < 0;
	topic.first_group = topic.spread ? *next_group : from->group;
	if (topics_add(topics, &topic) != 0)
		return -1;
	if (topic.spread)
		*next_group = (*next_group + topic.partition_count % topics->group_count) % topics->group_count;
	return 0;
}

int
placement_build(const struct settings *settings, struct topics *topics)
{
	int32_t next_group = 0;

	if (settings->workers < 1 || settings->workers > TOPICS_GROUPS_MAX) {
		errno = EINVAL;
		return -1;
	}
	if (topics_init(topics, settings->workers) != 0)
		return -1;
	for (int32_t i = 0; i < settings->topic_count; i++) {
		if (add_topic(topics, &settings->topics[i], &next_group) != 0) {
			int error = errno;

			topics_free(topics);
			errno = error;
			return -1;
		}
	}
	return 0;
}

int64_t
placement_partitions(const struct topics *topics)
{
	int64_t sum = 0;

	for (int32_t group = 0; group < topics->group_count; group++)
		sum += topics->slot_counts[group];
	return sum;
}

int32_t
placement_largest_group(const struct topics *topics)
{
	int32_t largest = 0;

	for (int32_t group = 0; group < topics->group_count; group++)
		if (topics->slot_counts[group] > largest)
			largest = topics->slot_counts[group];
	return largest;
}
