/* Checking a worker's messages; see report.h and common/message.h. */
#include "supervisor/report.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/board.h"
#include "common/clock.h"

static int
malformed(struct report_error *error, const char *why)
{
	error->version = false;
	snprintf(error->why, sizeof(error->why), "%s", why);
	return -1;
}

static int
read_hello(const struct channel_message *message, struct report_error *error)
{
	struct message_hello hello;

	if (message->size != sizeof(hello) || message->descriptor_count != 0)
		return malformed(error, "malformed HELLO");
	memcpy(&hello, message->payload, sizeof(hello));
	if (hello.message_version == MESSAGE_VERSION && hello.board_version == BOARD_VERSION)
		return 0;
	error->version = true;
	snprintf(error->why, sizeof(error->why), "it is of another version (messages %u, board %u; this supervisor: %d, %d): "
	    "install both programs", hello.message_version, hello.board_version, MESSAGE_VERSION, BOARD_VERSION);
	return -1;
}

static int
read_serving(const struct channel_message *message, int32_t slots, struct message_serving *serving,
    struct report_error *error)
{
	if (message->size != sizeof(*serving) || message->descriptor_count != 0)
		return malformed(error, "malformed SERVING");
	memcpy(serving, message->payload, sizeof(*serving));
	if (serving->opened < 0 || serving->failed < 0 || (int64_t)serving->opened + serving->failed != slots)
		return malformed(error, "SERVING with another number of partitions than it has");
	return 0;
}

/* A message that says no more than its name. */
static int
read_plain(const struct channel_message *message, const char *wrong, struct report_error *error)
{
	if (message->size != sizeof(uint32_t) || message->descriptor_count != 0)
		return malformed(error, wrong);
	return 0;
}

static bool
end_valid(const struct message_end *end, int32_t slots)
{
	return end->slot >= 0 && end->slot < slots && end->base >= 0 && end->base <= end->end && end->position >= 0 &&
	    end->position <= end->file_bytes;
}

static int
read_ends(const struct channel_message *message, int32_t slots, struct report *report, struct report_error *error)
{
	struct message_ends head;

	if (message->size < sizeof(head) || message->descriptor_count != 0)
		return malformed(error, "malformed ENDS");
	memcpy(&head, message->payload, sizeof(head));
	if (head.count < 1 || head.count > MESSAGE_ENDS_MAX ||
	    message->size != sizeof(head) + (size_t)head.count * sizeof(*report->ends))
		return malformed(error, "malformed ENDS");
	report->ends = (const struct message_end *)((const char *)message->payload + sizeof(head));
	report->ends_count = head.count;
	for (int32_t i = 0; i < head.count; i++)
		if (!end_valid(&report->ends[i], slots))
			return malformed(error, "ENDS that no log of its can have");
	return 0;
}

static int
read_released(const struct channel_message *message, struct message_released *released, struct report_error *error)
{
	if (message->size != sizeof(*released) || message->descriptor_count != 0)
		return malformed(error, "malformed RELEASED");
	memcpy(released, message->payload, sizeof(*released));
	return 0;
}

static bool
is_kind(int fd, mode_t kind, int64_t least_bytes)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (st.st_mode & S_IFMT) == kind && st.st_size >= least_bytes;
}

static const char *
wrong_with_connection(const struct channel_message *message, int32_t group_count, const struct message_connection *head)
{
	if (!message_connection_valid(head, message->size, message->descriptor_count))
		return "malformed CONNECTION";
	if (head->group < 0 || head->group >= group_count)
		return "CONNECTION for a group that does not exist";
	if (head->frame_started_ns < 0 || head->frame_started_ns > clock_now_ns())
		return "CONNECTION with a frame from the future";
	if (head->active_ns < 0 || head->active_ns > clock_now_ns())
		return "CONNECTION that has been active in the future";
	if (!is_kind(message->descriptors[0], S_IFSOCK, 0) ||
	    (head->spilled_end > 0 && !is_kind(message->descriptors[1], S_IFREG, head->spilled_end)))
		return "CONNECTION with a descriptor of the wrong kind";
	return NULL;
}

static int
read_connection(const struct channel_message *message, int32_t group_count, struct connection *connection,
    struct report_error *error)
{
	const char *wrong;

	if (message->size < sizeof(connection->message))
		return malformed(error, "malformed CONNECTION");
	memcpy(&connection->message, message->payload, sizeof(connection->message));
	wrong = wrong_with_connection(message, group_count, &connection->message);
	if (wrong != NULL)
		return malformed(error, wrong);
	connection->inline_bytes = (const char *)message->payload + sizeof(connection->message);
	connection->socket = message->descriptors[0];
	connection->memfd = message->descriptor_count > 1 ? message->descriptors[1] : -1;
	return 0;
}

int
report_read(const struct channel_message *message, int32_t group_count, int32_t slots, struct report *report,
    struct report_error *error)
{
	switch (message->type) {
	case MESSAGE_HELLO:
		report->kind = REPORT_HELLO;
		return read_hello(message, error);
	case MESSAGE_SERVING:
		report->kind = REPORT_SERVING;
		return read_serving(message, slots, &report->serving, error);
	case MESSAGE_PREPARED:
		report->kind = REPORT_PREPARED;
		return read_plain(message, "malformed PREPARED", error);
	case MESSAGE_REPLACE:
		report->kind = REPORT_REPLACE;
		return read_plain(message, "malformed REPLACE", error);
	case MESSAGE_ENDS:
		report->kind = REPORT_ENDS;
		return read_ends(message, slots, report, error);
	case MESSAGE_RELEASED:
		report->kind = REPORT_RELEASED;
		return read_released(message, &report->released, error);
	case MESSAGE_CONNECTION:
		report->kind = REPORT_CONNECTION;
		return read_connection(message, group_count, &report->connection, error);
	default:
		return malformed(error, "a message of unknown type");
	}
}
