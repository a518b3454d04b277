/* The messages of a worker's set-up; see setup.h and common/message.h. */
#include "supervisor/setup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/message.h"

int32_t
setup_steps(const struct setup *setup)
{
	return 1 + setup->topics->count + setup->boards->count;
}

static int
queue_plain(struct channel *channel, uint32_t type, const void *payload, size_t size)
{
	struct channel_message message = { .type = type, .size = size, .payload = payload };

	return channel_queue(channel, &message);
}

static int
queue_settings(const struct setup *setup, int32_t worker, struct channel *channel)
{
	const struct settings *settings = setup->settings;
	struct message_setup message;

	memset(&message, 0, sizeof(message));
	message.worker = worker;
	message.group_count = setup->topics->group_count;
	message.topic_count = setup->topics->count;
	message.log_level = setup->log_level;
	message.max_frame_bytes = settings->max_frame_bytes;
	message.buffer_bytes = settings->buffer_bytes;
	message.max_fetch_wait_ms = settings->max_fetch_wait_ms;
	message.request_timeout_ms = settings->request_timeout_ms;
	message.idle_timeout_ms = settings->idle_timeout_ms;
	message.drain_timeout_ms = settings->drain_timeout_ms;
	snprintf(message.data_dir, sizeof(message.data_dir), "%s", setup->data_dir);
	return queue_plain(channel, MESSAGE_SETUP, &message, sizeof(message));
}

static int
queue_topic(const struct topic *topic, struct channel *channel)
{
	struct message_topic message;

	memset(&message, 0, sizeof(message));
	snprintf(message.name, sizeof(message.name), "%s", topic->name);
	message.partition_count = topic->partition_count;
	message.first_group = topic->first_group;
	message.spread = topic->spread;
	message.log = topic->log;
	return queue_plain(channel, MESSAGE_TOPIC, &message, sizeof(message));
}

static int
queue_board(const struct boards *boards, int32_t group, struct channel *channel)
{
	struct message_board payload = { .group = group };
	struct channel_message message = { .type = MESSAGE_BOARD, .size = sizeof(payload), .payload = &payload,
		.descriptor_count = 1 };
	int error;

	message.descriptors[0] = board_reopen_read_only(boards->descriptors[group]);
	if (message.descriptors[0] < 0)
		return -1;
	if (channel_queue(channel, &message) == 0)
		return 0;
	error = errno;
	close(message.descriptors[0]);
	errno = error;
	return -1;
}

int
setup_queue(const struct setup *setup, int32_t worker, int32_t step, struct channel *channel)
{
	if (step == 0)
		return queue_settings(setup, worker, channel);
	step -= 1;
	if (step < setup->topics->count)
		return queue_topic(&setup->topics->list[step], channel);
	return queue_board(setup->boards, step - setup->topics->count, channel);
}
