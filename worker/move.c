/* A connection on its way to another worker; see move.h and struct message_connection. */
#include "worker/move.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/channel.h"
#include "common/clock.h"
#include "common/log.h"
#include "worker/conn_state.h"

static int
spill(struct conn *conn, struct message_connection *message)
{
	size_t size = conn_kept_bytes(conn), done = 0;
	int fd = memfd_create("logbroker-connection", MFD_CLOEXEC);

	while (fd >= 0 && done < size) {
		ssize_t n = write(fd, conn->kept + conn->kept_head + done, size - done);

		if (n < 0 && errno != EINTR) {
			close(fd);
			return -1;
		}
		done += n > 0 ? (size_t)n : 0;
	}
	message->spilled_end = (int64_t)size;
	return fd;
}

/*
 * What has been read and not executed travels along: as it came, when it is still in the memfd that it came in (then
 * what was read of it is simply read again there), else inline or in a new memfd.
 */
static int
pack(struct conn *conn, struct message_connection *message, int *spill_fd)
{
	size_t size = conn_kept_bytes(conn);

	*spill_fd = -1;
	if (conn->spill_fd >= 0) {
		message->spilled_position = conn->spill_position - (int64_t)size;
		message->spilled_end = conn->spill_end;
		*spill_fd = conn->spill_fd;
	} else if (size > MESSAGE_INLINE_MAX_BYTES) {
		*spill_fd = spill(conn, message);
		if (*spill_fd < 0)
			return -1;
	} else {
		message->inline_bytes = (int32_t)size;
	}
	return 0;
}

/* No descriptor or memory for the memfd: that passes, and the client need not know. */
static void
put_off(struct conn *conn)
{
	struct connections *set = conn->set;
	char more[LOG_MORE_BYTES];

	if (log_limit_pass(&set->cut_limit, 10 * (int64_t)CLOCK_NS_PER_S, more))
		log_warning("a connection waits to be handed to group %d: %s%s", conn->move_to,
		    strerror(errno), more);
	conn->retry_ns = clock_now_ns() + CHANNEL_RETRY_MS * CLOCK_NS_PER_MS;
	conn_arm_timer(conn);
}

/* Nothing is owed and everything has been sent: the socket leaves this loop, and this process with its message. */
void
move_out(struct conn *conn)
{
	struct connections *set = conn->set;
	struct message_connection head = { .group = conn->move_to, .frame_started_ns = conn->frame_started_ns,
		.active_ns = conn->active_ns, .held_until_ns = conn->held_until_ns };
	uint8_t payload[sizeof(head) + MESSAGE_INLINE_MAX_BYTES];
	struct channel_message message = { .type = MESSAGE_CONNECTION, .payload = payload };
	int spill_fd;

	if (pack(conn, &head, &spill_fd) != 0) {
		put_off(conn);
		return;
	}
	event_del(&conn->io);
	memcpy(payload, &head, sizeof(head));
	if (head.inline_bytes > 0)
		memcpy(payload + sizeof(head), conn->kept + conn->kept_head, (size_t)head.inline_bytes);
	message.size = sizeof(head) + (size_t)head.inline_bytes;
	message.descriptors[message.descriptor_count++] = conn->fd;
	if (spill_fd >= 0)
		message.descriptors[message.descriptor_count++] = spill_fd;
	conn->dead = true;
	if (channel_queue(set->channel, &message) != 0) {
		if (spill_fd >= 0 && spill_fd != conn->spill_fd)
			close(spill_fd);
		return;
	}
	conn->fd = -1;
	if (spill_fd == conn->spill_fd)
		conn->spill_fd = -1;
	board_add(&set->worker->counters->handoffs, 1);
}
