/*
 * Partitions and their groups: see groups.h. A wrong group costs the broker the moving of a connection and is no error.
 */
#include "client/lib/groups.h"

#include "client/lib/link.h"
#include "client/lib/sender.h"

void
lb_groups_take(struct lb_topic *topic, const struct lb_topic_metadata *metadata)
{
	for (int32_t i = 0; i < topic->partition_count && i < metadata->partition_count; i++) {
		struct lb_link *link = lb_link_of_group(topic->producer, metadata->partitions[i].group);

		if (link == NULL)
			continue;
		topic->partitions[i].home = link;
		lb_sender_update(&topic->partitions[i]);
	}
}

static void
on_metadata(void *context, struct lb_metadata *metadata, const struct lb_error *error)
{
	struct lb_topic *topic = context;

	if (error != NULL)
		return;
	lb_groups_take(topic, lb_metadata_find(metadata, topic->name));
	lb_metadata_free(metadata);
}

void
lb_groups_ask(struct lb_producer *producer, struct lb_connection *connection)
{
	for (struct lb_topic *topic = producer->topics; topic != NULL; topic = topic->next) {
		const char *name = topic->name;

		/* One that cannot be asked for keeps its groups. */
		lb_connection_submit_metadata(connection, &name, 1, on_metadata, topic, NULL);
	}
}
