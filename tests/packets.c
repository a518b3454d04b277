/* See packets.h. */
#include "tests/packets.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/board.h"
#include "common/message.h"

enum { HEAD_BYTES = 6, HEADER_BYTES = 16, DESCRIPTORS_MAX = 3, COUNT_BITS = 3, RAW_BIT = 4, FILLED_BIT = 8 };
enum { KIND_SOCKET, KIND_MEMFD, KIND_BOARD, KIND_DIRECTORY, KIND_COUNT };

static size_t
size_of(uint8_t type)
{
	static const size_t sizes[] = {
		[MESSAGE_HELLO] = sizeof(struct message_hello), [MESSAGE_SETUP] = sizeof(struct message_setup),
		[MESSAGE_TOPIC] = sizeof(struct message_topic), [MESSAGE_BOARD] = sizeof(struct message_board),
		[MESSAGE_START] = sizeof(struct message_start), [MESSAGE_SERVING] = sizeof(struct message_serving),
		[MESSAGE_CONNECTION] = sizeof(struct message_connection), [MESSAGE_STOP] = sizeof(struct message_stop),
		[MESSAGE_PREPARED] = sizeof(struct message_prepared),
		[MESSAGE_ENDS] = sizeof(struct message_ends) + sizeof(struct message_end),
		[MESSAGE_REPLACE] = sizeof(struct message_replace), [MESSAGE_DRAIN] = sizeof(struct message_drain),
		[MESSAGE_RELEASED] = sizeof(struct message_released),
	};

	return type < sizeof(sizes) / sizeof(sizes[0]) ? sizes[type] : 0;
}

static int
descriptor(int kind, uint8_t size)
{
	int fd;

	switch (kind % KIND_COUNT) {
	case KIND_SOCKET:
		return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case KIND_BOARD:
		return board_create(size);
	case KIND_DIRECTORY:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	default:
		fd = memfd_create("fuzz", MFD_CLOEXEC);
		return ftruncate(fd, size) == 0 ? fd : -1;
	}
}

/* What the machine has no room for is not sent. */
static void
send_packet(int to, const uint8_t *head, const void *packet, size_t bytes)
{
	union { struct cmsghdr header; char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))]; } control = { 0 };
	struct iovec part = { (void *)(uintptr_t)packet, bytes };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int fds[DESCRIPTORS_MAX], count = head[0] & COUNT_BITS;

	for (int i = 0; i < count; i++)
		fds[i] = descriptor(head[2] >> (i % 2 * 4), head[3]);
	if (count > 0) {
		control.header = (struct cmsghdr){ .cmsg_len = CMSG_LEN((size_t)count * sizeof(int)), .cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.header), fds, (size_t)count * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
	}
	sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

void
packets_send(int fd, const uint8_t *data, size_t size)
{
	static uint8_t packet[HEADER_BYTES + UINT16_MAX];

	while (size >= HEAD_BYTES) {
		size_t length = (size_t)data[4] << 8 | data[5], filled = (data[0] & FILLED_BIT) ? size_of(data[1]) : 0;
		uint32_t header[4] = { data[1], 0, data[0] & COUNT_BITS, 0 };
		size_t skipped = (data[0] & RAW_BIT) ? 0 : HEADER_BYTES;

		if (length > size - HEAD_BYTES)
			length = size - HEAD_BYTES;
		if (filled < length)
			filled = length;
		header[1] = (uint32_t)filled;
		memset(packet, 0, HEADER_BYTES + filled);
		memcpy(packet, header, sizeof(header));
		memcpy(packet + skipped, data + HEAD_BYTES, length);
		send_packet(fd, data, packet, skipped + filled);
		data += HEAD_BYTES + length;
		size -= HEAD_BYTES + length;
	}
}

int
packets_lowest_free_descriptor(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}
