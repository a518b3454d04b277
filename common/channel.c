/* Messages over a SEQPACKET socket, in order, with descriptors; see channel.h. Knows no event loop and no meaning. */
#include "common/channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

struct header {
	uint32_t type;
	uint32_t size;		/* of the payload; a packet of any other size is malformed */
	uint32_t descriptor_count;
	uint32_t reserved;
};

struct entry {
	struct entry *next;
	int descriptors[CHANNEL_DESCRIPTORS_MAX];
	struct header header;
	_Alignas(8) uint8_t payload[];
};

struct channel {
	int fd;
	size_t queued;
	struct entry *first, *last;
	struct entry *unqueued;		/* what channel_unqueue has lent out */
	_Alignas(8) uint8_t buffer[sizeof(struct header) + CHANNEL_PAYLOAD_MAX];
};

union control {
	struct cmsghdr header;		/* for its alignment */
	char bytes[CMSG_SPACE(CHANNEL_DESCRIPTORS_MAX * sizeof(int))];
};

int
channel_pair(int fds[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds);
}

struct channel *
channel_new(int fd)
{
	struct channel *channel = calloc(1, sizeof(*channel));

	if (channel != NULL)
		channel->fd = fd;
	return channel;
}

static void
close_all(const int *descriptors, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		close(descriptors[i]);
}

static struct entry *
pop(struct channel *channel)
{
	struct entry *entry = channel->first;

	channel->first = entry->next;
	if (channel->first == NULL)
		channel->last = NULL;
	channel->queued--;
	return entry;
}

void
channel_free(struct channel *channel)
{
	if (channel == NULL)
		return;
	while (channel->first != NULL) {
		struct entry *entry = pop(channel);

		close_all(entry->descriptors, entry->header.descriptor_count);
		free(entry);
	}
	free(channel->unqueued);
	close(channel->fd);
	free(channel);
}

int
channel_fd(const struct channel *channel)
{
	return channel->fd;
}

size_t
channel_queued(const struct channel *channel)
{
	return channel->queued;
}

int
channel_queue(struct channel *channel, const struct channel_message *message)
{
	struct entry *entry;

	if (message->size > CHANNEL_PAYLOAD_MAX) {
		errno = EMSGSIZE;
		return -1;
	}
	entry = malloc(sizeof(*entry) + message->size);
	if (entry == NULL)
		return -1;
	entry->next = NULL;
	entry->header = (struct header){ message->type, (uint32_t)message->size,
		(uint32_t)message->descriptor_count, 0 };
	memcpy(entry->descriptors, message->descriptors, sizeof(entry->descriptors));
	if (message->size > 0)
		memcpy(entry->payload, message->payload, message->size);
	if (channel->last == NULL)
		channel->first = entry;
	else
		channel->last->next = entry;
	channel->last = entry;
	channel->queued++;
	return 0;
}

bool
channel_unqueue(struct channel *channel, struct channel_message *message)
{
	struct entry *entry;

	if (channel->first == NULL)
		return false;
	entry = pop(channel);
	free(channel->unqueued);
	channel->unqueued = entry;
	message->type = entry->header.type;
	message->size = entry->header.size;
	message->payload = entry->payload;
	message->descriptor_count = (int)entry->header.descriptor_count;
	memcpy(message->descriptors, entry->descriptors, sizeof(message->descriptors));
	return true;
}

static ssize_t
send_entry(int fd, struct entry *entry)
{
	struct iovec parts[2] = {
		{ &entry->header, sizeof(entry->header) },
		{ entry->payload, entry->header.size },
	};
	union control control;
	struct msghdr packet = { .msg_iov = parts, .msg_iovlen = 2 };
	size_t descriptor_bytes = entry->header.descriptor_count * sizeof(int);

	if (descriptor_bytes > 0) {
		memset(&control, 0, sizeof(control));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(descriptor_bytes);
		memcpy(CMSG_DATA(&control.header), entry->descriptors, descriptor_bytes);
		packet.msg_control = &control;
		packet.msg_controllen = CMSG_SPACE(descriptor_bytes);
	}
	return sendmsg(fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static enum channel_state
state_for(int error)
{
	switch (error) {
	case EAGAIN:
		return CHANNEL_BLOCKED;
	case ETOOMANYREFS:	/* too many descriptors of this user are in flight */
	case ENOMEM:
	case ENOBUFS:
		return CHANNEL_LATER;
	default:
		return CHANNEL_BROKEN;
	}
}

enum channel_state
channel_flush(struct channel *channel)
{
	while (channel->first != NULL) {
		struct entry *entry = channel->first;

		if (send_entry(channel->fd, entry) < 0) {
			if (errno == EINTR)
				continue;
			return state_for(errno);
		}
		pop(channel);
		close_all(entry->descriptors, entry->header.descriptor_count);
		free(entry);
	}
	return CHANNEL_IDLE;
}

/*
 * The kernel installs as many descriptors as find room and silently drops the rest: a client would be gone. So the
 * room is tried first; this process has one thread that receives, and what other threads open meanwhile is short-lived
 * and few against the reserve that the descriptor limit keeps.
 */
static bool
room_for_descriptors(int fd)
{
	int first = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	int second = first < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);

	if (first >= 0)
		close(first);
	if (second >= 0)
		close(second);
	return second >= 0;
}

/* Takes every descriptor that came, also more than a message may have; returns their number. */
static int
take_descriptors(struct msghdr *packet, int *descriptors)
{
	int count = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(packet); c != NULL; c = CMSG_NXTHDR(packet, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n && count < CHANNEL_DESCRIPTORS_MAX; i++, count++)
			memcpy(&descriptors[count], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
	return count;
}

/* Only a message with descriptors needs room for them: to be told to stop, or that the other end is gone, needs none. */
static bool
next_has_descriptors(int fd)
{
	struct header header;
	ssize_t n = recv(fd, &header, sizeof(header), MSG_PEEK | MSG_DONTWAIT);

	return n == (ssize_t)sizeof(header) && header.descriptor_count > 0;
}

static ssize_t
receive_packet(struct channel *channel, struct msghdr *packet, union control *control)
{
	struct iovec part = { channel->buffer, sizeof(channel->buffer) };
	ssize_t n;

	do {
		*packet = (struct msghdr){ .msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
			.msg_controllen = sizeof(*control) };
		n = recvmsg(channel->fd, packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		/* ECONNRESET is reported once, ahead of packets that are still there. */
	} while (n < 0 && (errno == EINTR || errno == ECONNRESET));
	packet->msg_iov = NULL;
	return n;
}

enum channel_received
channel_receive(struct channel *channel, struct channel_message *message)
{
	union control control;
	struct msghdr packet;
	struct header header;
	ssize_t n;

	if (!room_for_descriptors(channel->fd) && next_has_descriptors(channel->fd))
		return CHANNEL_NO_ROOM;
	n = receive_packet(channel, &packet, &control);
	if (n < 0 && (errno == ENOMEM || errno == ENOBUFS))
		return CHANNEL_NO_ROOM;
	if (n < 0)
		return errno == EAGAIN ? CHANNEL_NOTHING : CHANNEL_END;
	message->descriptor_count = take_descriptors(&packet, message->descriptors);
	/* An empty packet looks like the end; what comes with it must not be lost all the same. */
	if (n == 0 && message->descriptor_count == 0)
		return CHANNEL_END;
	memset(&header, 0, sizeof(header));
	memcpy(&header, channel->buffer, (size_t)n < sizeof(header) ? (size_t)n : sizeof(header));
	if ((packet.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || (size_t)n != sizeof(header) + header.size ||
	    header.descriptor_count != (uint32_t)message->descriptor_count) {
		bool lost = (packet.msg_flags & MSG_CTRUNC) != 0 && (size_t)n == sizeof(header) + header.size &&
		    header.descriptor_count <= CHANNEL_DESCRIPTORS_MAX &&
		    header.descriptor_count > (uint32_t)message->descriptor_count;

		close_all(message->descriptors, (uint32_t)message->descriptor_count);
		return lost ? CHANNEL_LOST : CHANNEL_MALFORMED;
	}
	message->type = header.type;
	message->size = header.size;
	message->payload = channel->buffer + sizeof(header);
	return CHANNEL_MESSAGE;
}
