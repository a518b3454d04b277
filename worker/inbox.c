/* The messages from the supervisor, checked, and what they mean for the worker; see inbox.h and common/message.h. */
#include "worker/inbox.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/message.h"
#include "worker/connections.h"

static void
say(struct channel *channel, uint32_t type, const void *payload, size_t size)
{
	struct channel_message message = { .type = type, .size = size, .payload = payload };

	if (channel_queue(channel, &message) != 0)
		log_fatal(1, "no memory to talk to the supervisor");
	channel_flush(channel);
}

_Noreturn static void
broken(uint32_t type)
{
	log_fatal(1, "the supervisor sent a malformed or unexpected message (type %u): a bug; the worker exits", type);
}

/* Waits for a message; `type` is what should come. */
static void
await(struct channel *channel, uint32_t type, struct channel_message *message)
{
	struct pollfd p = { .fd = channel_fd(channel), .events = POLLIN };

	for (;;) {
		switch (channel_receive(channel, message)) {
		case CHANNEL_MESSAGE:
			return;
		case CHANNEL_NOTHING:
			if (poll(&p, 1, -1) < 0 && errno != EINTR)
				log_fatal(1, "poll: %s", strerror(errno));
			break;
		case CHANNEL_NO_ROOM:
			log_fatal(1, "no free descriptors at the start of a worker: raise RLIMIT_NOFILE");
		case CHANNEL_LOST:
			broken(type);
		case CHANNEL_END:
			log_fatal(1, "the supervisor has gone during the handshake");
		case CHANNEL_MALFORMED:
			broken(type);
		}
	}
}

/* Waits for a message of that type and size; during the handshake nothing else may come. */
static void
expect(struct channel *channel, uint32_t type, void *to, size_t size, struct channel_message *message)
{
	await(channel, type, message);
	if (message->type != type || message->size != size)
		broken(message->type);
	memcpy(to, message->payload, size);
}

static void
expect_plain(struct channel *channel, uint32_t type, void *to, size_t size)
{
	struct channel_message message;

	expect(channel, type, to, size, &message);
	if (message.descriptor_count != 0)
		broken(type);
}

static bool
durations_valid(const int64_t *ms, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (ms[i] < 0 || ms[i] > INT64_MAX / CLOCK_NS_PER_MS)
			return false;
	return true;
}

/* What is reckoned with must be in range; what else it says is the supervisor's affair. */
static bool
setup_valid(const struct message_setup *setup)
{
	const int64_t durations_ms[] = { setup->max_fetch_wait_ms, setup->request_timeout_ms, setup->idle_timeout_ms,
		setup->drain_timeout_ms };

	return setup->group_count >= 1 && setup->group_count <= TOPICS_GROUPS_MAX && setup->worker >= 0 &&
	    setup->worker < setup->group_count && setup->topic_count >= 0 && setup->max_frame_bytes >= 1 &&
	    setup->buffer_bytes >= 0 && durations_valid(durations_ms, sizeof(durations_ms) / sizeof(durations_ms[0]));
}

static void
apply_setup(struct worker *worker, struct message_setup *setup)
{
	char who[32];

	setup->data_dir[sizeof(setup->data_dir) - 1] = '\0';
	if (!setup_valid(setup))
		broken(MESSAGE_SETUP);
	snprintf(who, sizeof(who), "worker %d", setup->worker);
	log_open(who, (enum log_level)setup->log_level);
	worker->number = setup->worker;
	worker->max_frame_bytes = setup->max_frame_bytes;
	worker->buffer_bytes = setup->buffer_bytes;
	worker->max_fetch_wait_ns = setup->max_fetch_wait_ms * CLOCK_NS_PER_MS;
	worker->request_timeout_ns = setup->request_timeout_ms * CLOCK_NS_PER_MS;
	worker->idle_timeout_ns = setup->idle_timeout_ms * CLOCK_NS_PER_MS;
	worker->drain_timeout_ns = setup->drain_timeout_ms * CLOCK_NS_PER_MS;
	worker->data_dir = strdup(setup->data_dir);
	worker->boards = calloc((size_t)setup->group_count, sizeof(*worker->boards));
	if (worker->data_dir == NULL || worker->boards == NULL || topics_init(&worker->topics, setup->group_count) != 0)
		log_fatal(1, "no memory for the settings");
}

static bool
log_valid(const struct log_settings *log)
{
	const int64_t durations_ms[] = { log->segment_age_ms, log->retention_age_ms, log->retention_check_interval_ms };

	return (log->record_format == RECORD_PLAIN || log->record_format == RECORD_CRC32C) && log->flush_records >= 0 &&
	    log->flush_interval_us >= 0 && log->flush_interval_us <= INT64_MAX / CLOCK_NS_PER_US && log->segment_bytes >= 1 &&
	    log->index_interval_bytes >= 1 && log->retention_bytes >= 0 &&
	    durations_valid(durations_ms, sizeof(durations_ms) / sizeof(durations_ms[0]));
}

static void
take_topic(struct channel *channel, struct worker *worker)
{
	struct message_topic message;
	struct topic topic = { .name = "" };

	expect_plain(channel, MESSAGE_TOPIC, &message, sizeof(message));
	message.name[sizeof(message.name) - 1] = '\0';
	if (strlen(message.name) >= sizeof(topic.name) || !log_valid(&message.log))
		broken(MESSAGE_TOPIC);
	strcpy(topic.name, message.name);
	topic.partition_count = message.partition_count;
	topic.first_group = message.first_group;
	topic.spread = message.spread != 0;
	topic.log = message.log;
	if (topics_add(&worker->topics, &topic) != 0)
		broken(MESSAGE_TOPIC);
}

/* The own board came with the process, to be written; the others' come here, to be read. */
static void
take_board(struct channel *channel, struct worker *worker, int32_t group)
{
	struct channel_message message;
	struct message_board head;
	bool own = group == worker->number;

	expect(channel, MESSAGE_BOARD, &head, sizeof(head), &message);
	if (head.group != group || message.descriptor_count != 1)
		broken(MESSAGE_BOARD);
	if (board_map(&worker->boards[group], own ? MESSAGE_BOARD_FD : message.descriptors[0],
	    worker->topics.slot_counts[group], own) != 0)
		log_fatal(1, "cannot map the board of group %d: %s", group, strerror(errno));
	close(message.descriptors[0]);
}

void
inbox_set_up(struct channel *channel, struct worker *worker)
{
	struct message_hello hello = { MESSAGE_VERSION, BOARD_VERSION };
	struct message_setup setup;

	say(channel, MESSAGE_HELLO, &hello, sizeof(hello));
	expect_plain(channel, MESSAGE_SETUP, &setup, sizeof(setup));
	apply_setup(worker, &setup);
	for (int32_t i = 0; i < setup.topic_count; i++)
		take_topic(channel, worker);
	for (int32_t group = 0; group < setup.group_count; group++)
		take_board(channel, worker, group);
	worker->counters = worker->boards[worker->number].worker;
	close(MESSAGE_BOARD_FD);
}

static void
take_ends(struct worker *worker, const struct channel_message *message)
{
	int32_t slots = worker->topics.slot_counts[worker->number];
	struct message_ends head;
	struct message_end end;

	if (message->size < sizeof(head))
		broken(message->type);
	memcpy(&head, message->payload, sizeof(head));
	if (head.count < 1 || head.count > MESSAGE_ENDS_MAX || message->size != sizeof(head) + (size_t)head.count * sizeof(end))
		broken(message->type);
	for (int32_t i = 0; i < head.count; i++) {
		memcpy(&end, (const char *)message->payload + sizeof(head) + (size_t)i * sizeof(end), sizeof(end));
		if (end.slot < 0 || end.slot >= slots)
			broken(message->type);
		worker->handed[end.slot] = end;
	}
}

static void
make_room_for_ends(struct worker *worker)
{
	int32_t slots = worker->topics.slot_counts[worker->number];

	worker->handed = calloc((size_t)slots + 1, sizeof(*worker->handed));
	if (worker->handed == NULL)
		log_fatal(1, "no memory for the ends of %d logs", slots);
	for (int32_t i = 0; i < slots; i++)
		worker->handed[i].slot = -1;
}

void
inbox_await_start(struct channel *channel, struct worker *worker)
{
	struct message_prepared prepared = { 0 };
	struct channel_message message;

	say(channel, MESSAGE_PREPARED, &prepared, sizeof(prepared));
	for (;;) {
		await(channel, MESSAGE_START, &message);
		if (message.descriptor_count != 0)
			broken(message.type);
		if (message.type == MESSAGE_START && message.size == sizeof(struct message_start))
			return;
		if (message.type != MESSAGE_ENDS)
			broken(message.type);
		if (worker->handed == NULL)
			make_room_for_ends(worker);
		take_ends(worker, &message);
	}
}

static void
take_connection(struct worker *worker, const struct channel_message *message)
{
	struct message_connection head;

	if (message->size < sizeof(head))
		broken(message->type);
	memcpy(&head, message->payload, sizeof(head));
	if (!message_connection_valid(&head, message->size, message->descriptor_count))
		broken(message->type);
	connections_take(worker->connections, &head, (const uint8_t *)message->payload + sizeof(head), message->descriptors[0],
	    message->descriptor_count == 2 ? message->descriptors[1] : -1);
}

static bool
supervisor_gone(const struct channel *channel)
{
	struct pollfd p = { .fd = channel_fd(channel), .events = POLLRDHUP };

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP)) != 0;
}

enum inbox_news
inbox_receive(struct channel *channel, struct worker *worker)
{
	struct channel_message message;

	for (;;) {
		switch (channel_receive(channel, &message)) {
		case CHANNEL_MESSAGE:
			break;
		case CHANNEL_NOTHING:
			return INBOX_NOTHING;
		case CHANNEL_NO_ROOM:
			/* The end behind connections that cannot be taken is not seen by reading. */
			return supervisor_gone(channel) ? INBOX_STOP : INBOX_LATER;
		case CHANNEL_LOST:
			log_warning("a client's connection was lost: no descriptors were free; raise RLIMIT_NOFILE");
			board_add(&worker->counters->connections_closed, 1);
			continue;
		case CHANNEL_END:
			return INBOX_STOP;
		case CHANNEL_MALFORMED:
			broken(0);
		}
		if (message.type == MESSAGE_CONNECTION)
			take_connection(worker, &message);
		else if (message.descriptor_count != 0)
			broken(message.type);
		else if (message.type == MESSAGE_STOP && message.size == sizeof(struct message_stop))
			return INBOX_STOP;
		else if (message.type == MESSAGE_DRAIN && message.size == sizeof(struct message_drain))
			return INBOX_DRAIN;
		else
			broken(message.type);
	}
}

void
inbox_say_replace(struct channel *channel)
{
	struct message_replace replace = { 0 };

	say(channel, MESSAGE_REPLACE, &replace, sizeof(replace));
}

void
inbox_say_released(struct channel *channel, const struct message_end *ends, int32_t count)
{
	struct { struct message_ends head; struct message_end list[MESSAGE_ENDS_MAX]; } payload;
	struct message_released released = { .ends = count };

	for (int32_t told = 0, n; told < count; told += n) {
		n = count - told < MESSAGE_ENDS_MAX ? count - told : MESSAGE_ENDS_MAX;
		payload.head = (struct message_ends){ .count = n };
		memcpy(payload.list, ends + told, (size_t)n * sizeof(*ends));
		say(channel, MESSAGE_ENDS, &payload, sizeof(payload.head) + (size_t)n * sizeof(*ends));
	}
	say(channel, MESSAGE_RELEASED, &released, sizeof(released));
}

void
inbox_say_serving(struct channel *channel, int32_t opened, int32_t failed)
{
	struct message_serving serving = { opened, failed };

	say(channel, MESSAGE_SERVING, &serving, sizeof(serving));
}
