/*
 * libFuzzer: any packets as what a worker says over its channel (packets.h). Whatever the supervisor believes must hold
 * what report.h and ends.h promise of it, what it does not believe must leave nothing behind.
 */
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/board.h"
#include "common/clock.h"
#include "supervisor/ends.h"
#include "supervisor/report.h"
#include "tests/fuzz_target.h"
#include "tests/packets.h"

enum { GROUPS = 3, SLOTS = 5 };

static mode_t
kind_of(int fd, off_t *bytes)
{
	struct stat st;

	require(fstat(fd, &st) == 0);
	*bytes = st.st_size;
	return st.st_mode & S_IFMT;
}

static void
check_connection(const struct connection *connection, const struct channel_message *message)
{
	const struct message_connection *head = &connection->message;
	const char *end = (const char *)message->payload + message->size;
	off_t bytes;

	require(head->group >= 0 && head->group < GROUPS && head->frame_started_ns <= clock_now_ns());
	require(head->inline_bytes >= 0 && (const char *)connection->inline_bytes + head->inline_bytes == end);
	require(connection->socket == message->descriptors[0] && kind_of(connection->socket, &bytes) == S_IFSOCK);
	require((connection->memfd != -1) == (head->spilled_end > 0));
	require(head->inline_bytes == 0 || head->spilled_end == 0);
	require(head->spilled_position >= 0 && head->spilled_position <= head->spilled_end);
	if (connection->memfd != -1)
		require(kind_of(connection->memfd, &bytes) == S_IFREG && bytes >= head->spilled_end);
}

/* The ends that were believed, handed on when all are told, are what was told. */
static void
check_handed(const struct ends *ends)
{
	struct channel_message message;
	int32_t seen = 0;
	int fds[2];
	struct channel *channel;

	require(ends->count >= 0 && ends->count <= SLOTS && channel_pair(fds) == 0);
	channel = channel_new(fds[0]);
	require(channel != NULL && ends_queue(ends, channel) == 0);
	while (channel_unqueue(channel, &message)) {
		struct message_ends head;

		require(message.type == MESSAGE_ENDS && message.descriptor_count == 0);
		memcpy(&head, message.payload, sizeof(head));
		require(head.count >= 1 && message.size == sizeof(head) + (size_t)head.count * sizeof(struct message_end));
		require(memcmp((const char *)message.payload + sizeof(head), ends->list + seen,
		    (size_t)head.count * sizeof(*ends->list)) == 0);
		seen += head.count;
	}
	require(seen == (ends->released ? ends->count : 0));
	channel_free(channel);
	close(fds[1]);
}

/* As the supervisor does. False when it would kill the worker. */
static bool
take(const struct report *report, const struct channel_message *message, struct ends *ends)
{
	switch (report->kind) {
	case REPORT_SERVING:
		require(report->serving.opened + report->serving.failed == SLOTS);
		return true;
	case REPORT_CONNECTION:
		check_connection(&report->connection, message);
		return true;
	case REPORT_ENDS:
		require(report->ends_count >= 1 && (const char *)(report->ends + report->ends_count) ==
		    (const char *)message->payload + message->size);
		for (int32_t i = 0; i < report->ends_count; i++)
			require(report->ends[i].slot >= 0 && report->ends[i].slot < SLOTS);
		return ends_take(ends, report->ends, report->ends_count) == NULL;
	case REPORT_RELEASED:
		return ends_release(ends, report->released.ends) == NULL;
	default:
		require(message->descriptor_count == 0);
		return true;
	}
}

static bool
receive(struct channel *channel, struct ends *ends)
{
	struct channel_message message;
	struct report_error error = { .why = "" };
	struct report report;
	enum channel_received received = channel_receive(channel, &message);
	bool believed;

	if (received != CHANNEL_MESSAGE)
		return received == CHANNEL_LOST;
	believed = report_read(&message, GROUPS, SLOTS, &report, &error) == 0;
	require(believed == (error.why[0] == '\0') && memchr(error.why, '\0', sizeof(error.why)) != NULL);
	if (believed)
		believed = take(&report, &message, ends);
	for (int i = 0; i < message.descriptor_count; i++)
		close(message.descriptors[i]);
	return believed;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fds[2], before = packets_lowest_free_descriptor();
	struct channel *channel;
	struct ends ends;

	require(channel_pair(fds) == 0 && ends_init(&ends, SLOTS) == 0);
	channel = channel_new(fds[0]);
	require(channel != NULL);
	packets_send(fds[1], data, size);
	close(fds[1]);
	while (receive(channel, &ends))
		;
	check_handed(&ends);
	ends_free(&ends);
	channel_free(channel);
	require(packets_lowest_free_descriptor() == before);
	return 0;
}
