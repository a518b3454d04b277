/*
 * The connection: a non-blocking socket, one input buffer, and a count of what is still to be answered. Answers are
 * input from outside: a length is checked before it sizes anything, an id before its answer is believed.
 *
 *   input:  | answers given out | answer that was returned last | rest |
 *           0                   start                           start + taken    end                    capacity
 */
#include "client/client.h"

#include <sys/socket.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/address.h"
#include "common/bytes.h"
#include "common/clock.h"
#include "common/codec.h"

enum {
	CLIENT_INPUT_FIRST_BYTES = 64 * 1024,
	CLIENT_INPUT_MAX_BYTES = CODEC_LENGTH_BYTES + CODEC_ANSWER_MAX_BYTES,
	CLIENT_ANSWER_HEADER_BYTES = 6,		/* correlation id, error code */
	CLIENT_BACKLOG_RETRY_MS = 10,		/* a Unix socket's full backlog is told by EAGAIN, not by waiting */
};

struct client {
	char *address;
	int stop_fd;
	int fd;
	int32_t next_id;
	int32_t outstanding;	/* the ids before next_id, this many of them */
	bool ended;		/* the broker has ended its side, in order */
	uint8_t *input;
	size_t capacity, start, taken, end;
	char reason[512];
};

static enum client_status fail(struct client *client, enum client_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static enum client_status
fail(struct client *client, enum client_status status, const char *format, ...)
{
	int used = snprintf(client->reason, sizeof(client->reason), "%.300s: ", client->address);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(client->reason + used, sizeof(client->reason) - (size_t)used, format, arguments);
	va_end(arguments);
	return status;
}

enum client_status
client_break(struct client *client, const char *what)
{
	client_disconnect(client);
	return fail(client, CLIENT_BROKEN, "%s", what);
}

struct client *
client_new(const char *address, int stop_fd)
{
	struct client *client = calloc(1, sizeof(*client));

	if (client == NULL)
		return NULL;
	client->address = strdup(address);
	client->input = malloc(CLIENT_INPUT_FIRST_BYTES);
	client->capacity = CLIENT_INPUT_FIRST_BYTES;
	client->stop_fd = stop_fd;
	client->fd = -1;
	if (client->address == NULL || client->input == NULL) {
		client_free(client);
		return NULL;
	}
	return client;
}

void
client_free(struct client *client)
{
	if (client == NULL)
		return;
	client_disconnect(client);
	free(client->address);
	free(client->input);
	free(client);
}

void
client_disconnect(struct client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	client->fd = -1;
	client->outstanding = 0;
	client->ended = false;
	client->start = client->taken = client->end = 0;
}

bool
client_connected(const struct client *client)
{
	return client->fd >= 0;
}

int
client_fd(const struct client *client)
{
	return client->fd;
}

const char *
client_reason(const struct client *client)
{
	return client->reason;
}

/* Rounded up, so that a wait never ends just before its deadline and spins. */
static int
milliseconds_until(int64_t deadline_ns)
{
	int64_t left = deadline_ns - clock_now_ns();

	if (left <= 0)
		return 0;
	left = left / CLOCK_NS_PER_MS + 1;
	return left > 3600 * 1000 ? 3600 * 1000 : (int)left;
}

/* Waits for `events` on `fd` (-1: only for the time to pass). *happened may be NULL. */
static enum client_status
wait_for(struct client *client, int fd, short events, int64_t deadline_ns, short *happened)
{
	struct pollfd fds[2] = { { .fd = fd, .events = events }, { .fd = client->stop_fd, .events = POLLIN } };

	for (;;) {
		int ready = poll(fds, 2, milliseconds_until(deadline_ns));

		if (ready < 0 && errno != EINTR)
			return fail(client, CLIENT_LOST, "poll: %s", strerror(errno));
		if (ready > 0 && fds[1].revents != 0)
			return fail(client, CLIENT_STOPPED, "stopped");
		if (ready > 0) {
			if (happened != NULL)
				*happened = fds[0].revents;
			return CLIENT_OK;
		}
		if (clock_now_ns() >= deadline_ns)
			return fail(client, CLIENT_TIMEOUT, "no answer in time");
	}
}

static void
set_socket_options(int fd, int family)
{
	int on = 1, idle_s = 60, interval_s = 10, probes = 6;

	if (family == AF_UNIX)
		return;
	/* Each is a wish: a connection without it still works. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/* Waits for a connect() that has begun. */
static enum client_status
connect_end(struct client *client, int fd, int64_t deadline_ns)
{
	int error = 0;
	socklen_t size = sizeof(error);
	enum client_status status = wait_for(client, fd, POLLOUT, deadline_ns, NULL);

	if (status == CLIENT_TIMEOUT)
		return fail(client, CLIENT_TIMEOUT, "no connection in time");
	if (status != CLIENT_OK)
		return status;
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
		error = errno;
	return error == 0 ? CLIENT_OK : fail(client, CLIENT_UNREACHABLE, "cannot connect: %s", strerror(error));
}

static enum client_status
connect_socket(struct client *client, int fd, const struct sockaddr *address, socklen_t length, int64_t deadline_ns)
{
	while (connect(fd, address, length) != 0) {
		if (errno == EINPROGRESS || errno == EINTR)
			return connect_end(client, fd, deadline_ns);
		if (errno != EAGAIN || address->sa_family != AF_UNIX)
			return fail(client, CLIENT_UNREACHABLE, "cannot connect: %s", strerror(errno));
		if (clock_now_ns() >= deadline_ns)
			return fail(client, CLIENT_TIMEOUT, "no connection in time");
		if (wait_for(client, -1, 0, clock_now_ns() + CLIENT_BACKLOG_RETRY_MS * (int64_t)CLOCK_NS_PER_MS, NULL)
		    == CLIENT_STOPPED)
			return CLIENT_STOPPED;
	}
	return CLIENT_OK;
}

static enum client_status
connect_one(struct client *client, const struct sockaddr *address, socklen_t length, int64_t deadline_ns)
{
	enum client_status status;
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return fail(client, CLIENT_UNREACHABLE, "cannot connect: %s", strerror(errno));
	status = connect_socket(client, fd, address, length, deadline_ns);
	if (status != CLIENT_OK) {
		close(fd);
		return status;
	}
	set_socket_options(fd, address->sa_family);
	client->fd = fd;
	return CLIENT_OK;
}

enum client_status
client_connect(struct client *client, int64_t deadline_ns)
{
	struct address_list list;
	enum client_status status = CLIENT_UNREACHABLE;
	const char *problem;

	client_disconnect(client);
	problem = address_resolve(client->address, &list);
	if (problem != NULL)
		return fail(client, CLIENT_UNREACHABLE, "cannot connect: %s", problem);
	for (size_t i = 0; i < list.count; i++) {
		int64_t now = clock_now_ns();
		int64_t share = (deadline_ns - now) / (int64_t)(list.count - i);

		status = connect_one(client, (const struct sockaddr *)&list.entries[i], list.lengths[i], now + share);
		if (status == CLIENT_OK || status == CLIENT_STOPPED)
			break;
	}
	address_free(&list);
	return status;
}

/* Makes room behind `end`. The input is never larger than one answer may be. */
static enum client_status
make_room(struct client *client)
{
	size_t larger = client->capacity * 2;
	uint8_t *grown;

	if (client->end < client->capacity)
		return CLIENT_OK;
	if (client->start > 0) {
		memmove(client->input, client->input + client->start, client->end - client->start);
		client->end -= client->start;
		client->start = 0;
		return CLIENT_OK;
	}
	if (client->capacity >= CLIENT_INPUT_MAX_BYTES)
		return CLIENT_AGAIN;
	if (larger > CLIENT_INPUT_MAX_BYTES)
		larger = CLIENT_INPUT_MAX_BYTES;
	grown = realloc(client->input, larger);
	if (grown == NULL)
		return fail(client, CLIENT_NO_MEMORY, "out of memory");
	client->input = grown;
	client->capacity = larger;
	return CLIENT_OK;
}

/* One read: CLIENT_OK when bytes came, CLIENT_AGAIN when none are there (or none can be taken now). */
static enum client_status
fill(struct client *client)
{
	enum client_status status = make_room(client);
	ssize_t n;

	if (status != CLIENT_OK)
		return status;
	do
		n = recv(client->fd, client->input + client->end, client->capacity - client->end, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		client->end += (size_t)n;
		return CLIENT_OK;
	}
	if (n == 0) {
		client->ended = true;
		return fail(client, CLIENT_LOST, "the broker closed the connection");
	}
	if (errno == EAGAIN)
		return CLIENT_AGAIN;
	return fail(client, CLIENT_LOST, "connection lost: %s", strerror(errno));
}

/* While a send is stuck: reads what has come, so that the broker can go on. */
static enum client_status
wait_to_send(struct client *client, int64_t deadline_ns)
{
	short wanted = client->outstanding > 0 && client->end - client->start < CLIENT_INPUT_MAX_BYTES ?
	    POLLOUT | POLLIN : POLLOUT;
	short happened;
	enum client_status status = wait_for(client, client->fd, wanted, deadline_ns, &happened);

	if (status != CLIENT_OK || (happened & POLLIN) == 0)
		return status;
	status = fill(client);
	return status == CLIENT_AGAIN ? CLIENT_OK : status;
}

static enum client_status
send_all(struct client *client, const uint8_t *bytes, size_t left, int64_t deadline_ns)
{
	while (left > 0) {
		ssize_t n = send(client->fd, bytes, left, MSG_NOSIGNAL | MSG_DONTWAIT);
		enum client_status status;

		if (n >= 0) {
			bytes += n;
			left -= (size_t)n;
			continue;
		}
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return fail(client, CLIENT_LOST, "connection lost: %s", strerror(errno));
		if ((status = wait_to_send(client, deadline_ns)) != CLIENT_OK)
			return status;
	}
	return CLIENT_OK;
}

enum client_status
client_send(struct client *client, uint8_t *frame, size_t bytes, bool answered, int64_t deadline_ns)
{
	enum client_status status;

	if (client->fd < 0)
		return fail(client, CLIENT_LOST, "not connected");
	bytes_put_i32(frame + CODEC_LENGTH_BYTES + 4, answered ? client->next_id : -1);
	status = send_all(client, frame, bytes, deadline_ns);
	/* Also when only a part has left: the answer's outcome is then as unknown as if all had. */
	if (answered) {
		client->next_id = client->next_id == INT32_MAX ? 0 : client->next_id + 1;
		client->outstanding++;
	}
	return status;
}

static int32_t
expected_id(const struct client *client)
{
	int64_t id = (int64_t)client->next_id - client->outstanding;

	return (int32_t)(id < 0 ? id + INT32_MAX + 1 : id);
}

static enum client_status
check_answer(struct client *client, const uint8_t *frame, int32_t length, struct client_answer *answer)
{
	int32_t id = bytes_get_i32(frame);

	if (client->outstanding == 0)
		return fail(client, CLIENT_BROKEN, "an answer that nobody asked for");
	if (id != expected_id(client))
		return fail(client, CLIENT_BROKEN, "an answer to request %d where the one to %d was due", id,
		    expected_id(client));
	answer->error = bytes_get_i16(frame + 4);
	answer->body = frame + CLIENT_ANSWER_HEADER_BYTES;
	answer->body_bytes = (size_t)length - CLIENT_ANSWER_HEADER_BYTES;
	if (answer->error != CODEC_NONE && answer->body_bytes != 0)
		return fail(client, CLIENT_BROKEN, "an error answer with %zu bytes behind it", answer->body_bytes);
	client->outstanding--;
	client->taken = CODEC_LENGTH_BYTES + (size_t)length;
	if (answer->error != CODEC_NONE)
		return fail(client, CLIENT_REFUSED, "%s", codec_error_name(answer->error));
	return CLIENT_OK;
}

/* The next answer out of the input, when it is whole. */
static enum client_status
take_answer(struct client *client, struct client_answer *answer)
{
	const uint8_t *bytes = client->input + client->start;
	size_t available = client->end - client->start;
	int32_t length;

	if (available < CODEC_LENGTH_BYTES)
		return CLIENT_AGAIN;
	length = bytes_get_i32(bytes);
	if (length < CLIENT_ANSWER_HEADER_BYTES || length > CODEC_ANSWER_MAX_BYTES)
		return fail(client, CLIENT_BROKEN, "an answer of %d bytes, which this protocol does not have; "
		    "is it a logbroker's port?", length);
	if (available < CODEC_LENGTH_BYTES + (size_t)length)
		return CLIENT_AGAIN;
	return check_answer(client, bytes + CODEC_LENGTH_BYTES, length, answer);
}

static void
release_taken(struct client *client)
{
	client->start += client->taken;
	client->taken = 0;
	if (client->start == client->end)
		client->start = client->end = 0;
}

enum client_status
client_poll(struct client *client, struct client_answer *answer)
{
	if (client->fd < 0)
		return fail(client, CLIENT_LOST, "not connected");
	release_taken(client);
	for (;;) {
		enum client_status status = take_answer(client, answer);

		if (status != CLIENT_AGAIN)
			return status;
		if ((status = fill(client)) != CLIENT_OK)
			return status;
	}
}

enum client_status
client_receive(struct client *client, struct client_answer *answer, int64_t deadline_ns)
{
	for (;;) {
		enum client_status status = client_poll(client, answer);

		if (status != CLIENT_AGAIN)
			return status;
		if ((status = wait_for(client, client->fd, POLLIN, deadline_ns, NULL)) != CLIENT_OK)
			return status;
	}
}

enum client_status
client_finish(struct client *client, int64_t deadline_ns)
{
	struct client_answer answer;
	enum client_status status;

	if (client->fd < 0 || shutdown(client->fd, SHUT_WR) != 0)
		return fail(client, CLIENT_LOST, "connection lost: %s", strerror(errno));
	status = client_receive(client, &answer, deadline_ns);
	if (client->ended)
		status = CLIENT_OK;
	client_disconnect(client);
	return status;
}
