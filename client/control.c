/* See control.h. */
#include "client/control.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/tool.h"

enum { FIRST_BYTES = 16 * 1024, ANSWER_MAX_BYTES = 1024 * 1024 * 1024, REQUEST_BYTES = 512 };

/* ---- connecting ---- */

static int
cannot_connect(const struct options *options, int error)
{
	const char *remedy = "";

	if (error == EAGAIN || error == EINPROGRESS || error == ETIMEDOUT) {
		tool_say("%s: no connection within the time of --timeout: the broker hangs", options->control);
		return TOOL_TIMEOUT;
	}
	if (error == ENOENT)
		remedy = "; is a broker running? Its ready line says control=PATH, which is named by --control or LOGBROKER_CONTROL";
	else if (error == ECONNREFUSED)
		remedy = ": no broker is running there";
	else if (error == EACCES || error == EPERM)
		remedy = "; the control socket is for the broker's user and group";
	tool_say("cannot connect to %s: %s%s", options->control, strerror(error), remedy);
	return TOOL_UNREACHABLE;
}

/* A broker that does not accept fills its queue, and then connecting waits: as long as a send may. */
static void
limit_connecting(int fd, int timeout_ms)
{
	struct timeval limit = { timeout_ms / 1000, (timeout_ms % 1000) * 1000 };

	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static int
connect_to(const struct options *options, int *fd)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	size_t length = strlen(options->control);
	int error;

	if (length >= sizeof(name.sun_path)) {
		tool_say("%s: the path of a socket has at most %zu bytes", options->control, sizeof(name.sun_path) - 1);
		return TOOL_USAGE;
	}
	memcpy(name.sun_path, options->control, length + 1);
	*fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (*fd < 0) {
		tool_say("cannot make a socket: %s", strerror(errno));
		return TOOL_INTERNAL;
	}
	limit_connecting(*fd, options->timeout_ms);
	if (connect(*fd, (const struct sockaddr *)&name, sizeof(name)) == 0)
		return TOOL_DONE;
	error = errno;
	close(*fd);
	return cannot_connect(options, error);
}

/* ---- one request, one answer ---- */

static int
late(const struct options *options)
{
	tool_say("%s: no answer within the time of --timeout: the broker hangs, or what it was asked takes longer "
	    "(and goes on)", options->control);
	return TOOL_TIMEOUT;
}

static int
lost(const struct options *options)
{
	tool_say("%s: the connection has ended without an answer: %s", options->control,
	    errno == 0 ? "the broker stops, is busy with other clients, or has another control socket" : strerror(errno));
	return TOOL_UNREACHABLE;
}

static int
send_request(const struct options *options, int fd, const char *method, const char *path, bool json)
{
	char request[REQUEST_BYTES];
	int length = snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\nHost: logbroker\r\nConnection: close\r\n"
	    "Content-Length: 0\r\nAccept: %s\r\n\r\n", method, path, json ? "application/json" : "text/plain");

	if (send(fd, request, (size_t)length, MSG_NOSIGNAL) == length)
		return TOOL_DONE;
	return errno == EAGAIN ? late(options) : lost(options);
}

/* Returns a positive number when there is something to read, 0 when time is over, -1 when we were asked to end. */
static int
wait_for(int fd, int timeout_ms)
{
	struct pollfd polled[2] = { { fd, POLLIN, 0 }, { tool_stop_fd(), POLLIN, 0 } };
	int n;

	do
		n = poll(polled, 2, timeout_ms);
	while (n < 0 && errno == EINTR && !tool_stopped());
	return tool_stopped() ? -1 : n;
}

/* Room for more bytes and the end. */
static int
make_room(struct control_answer *answer, size_t used, size_t *capacity)
{
	size_t wanted = *capacity == 0 ? FIRST_BYTES : *capacity * 2;
	char *bytes;

	if (used + 1 < *capacity)
		return 0;
	bytes = wanted > ANSWER_MAX_BYTES ? NULL : realloc(answer->bytes, wanted);
	if (bytes == NULL)
		return -1;
	answer->bytes = bytes;
	*capacity = wanted;
	return 0;
}

/* Everything up to the end of the connection. */
static int
receive(const struct options *options, int fd, struct control_answer *answer, size_t *used)
{
	size_t capacity = 0;
	ssize_t n;

	*used = 0;
	do {
		int ready;

		if (make_room(answer, *used, &capacity) != 0) {
			tool_say("out of memory");
			return TOOL_INTERNAL;
		}
		ready = wait_for(fd, options->timeout_ms);
		if (ready <= 0)
			return ready < 0 ? TOOL_DONE : late(options);
		n = recv(fd, answer->bytes + *used, capacity - *used - 1, 0);
		if (n > 0)
			*used += (size_t)n;
	} while (n > 0 || (n < 0 && errno == EINTR));
	answer->bytes[*used] = '\0';
	if (n == 0)
		errno = 0;
	return *used > 0 ? TOOL_DONE : lost(options);
}

/* Takes it apart. Returns 0, or -1 when it is no answer of HTTP, or not all of one. */
static int
parse(struct control_answer *answer, size_t used)
{
	const char *end = strstr(answer->bytes, "\r\n\r\n"), *length;
	char *digits_end;

	if (end == NULL || strncmp(answer->bytes, "HTTP/1.", 7) != 0 || strlen(answer->bytes) < 12)
		return -1;
	answer->status = atoi(answer->bytes + strlen("HTTP/1.1 "));
	answer->body = end + 4;
	answer->body_bytes = used - (size_t)(answer->body - answer->bytes);
	length = strcasestr(answer->bytes, "\r\nContent-Length:");
	if (length == NULL || length > end)
		return answer->status < 100 ? -1 : 0;
	length += strlen("\r\nContent-Length:");
	return strtoull(length, &digits_end, 10) == answer->body_bytes && answer->status >= 100 ? 0 : -1;
}

int
control_ask(const struct options *options, const char *method, const char *path, bool json,
    struct control_answer *answer)
{
	size_t used = 0;
	int fd, result;

	control_free(answer);
	result = connect_to(options, &fd);
	if (result != TOOL_DONE)
		return result;
	result = send_request(options, fd, method, path, json);
	if (result == TOOL_DONE)
		result = receive(options, fd, answer, &used);
	close(fd);
	if (result == TOOL_DONE && !tool_stopped() && parse(answer, used) != 0) {
		tool_say("%s: what answers there is cut short or no HTTP; is it a broker's control socket?", options->control);
		result = TOOL_INTERNAL;
	}
	if (result != TOOL_DONE)
		control_free(answer);
	return result;
}

void
control_free(struct control_answer *answer)
{
	free(answer->bytes);
	*answer = (struct control_answer){ 0 };
}
