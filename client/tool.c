/*
 * What the verbs share.
 */
#include "client/tool.h"

#include <sys/eventfd.h>

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/wire.h"
#include "common/clock.h"

static int stop_fd = -1;

void
tool_say(const char *format, ...)
{
	char line[2048];
	int used = snprintf(line, sizeof(line), "logbroker: ");
	size_t room = sizeof(line) - (size_t)used - 1;
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(line + used, room, format, arguments);
	va_end(arguments);
	used += (size_t)n < room ? n : (int)room - 1;
	line[used++] = '\n';
	if (write(STDERR_FILENO, line, (size_t)used) < 0)
		return;		/* nobody is left to be told */
}

int
tool_exit_code(enum client_status status)
{
	switch (status) {
	case CLIENT_OK:
	case CLIENT_STOPPED:
		return TOOL_DONE;
	case CLIENT_REFUSED:
		return TOOL_REFUSED;
	case CLIENT_UNREACHABLE:
	case CLIENT_LOST:
		return TOOL_UNREACHABLE;
	case CLIENT_TIMEOUT:
		return TOOL_TIMEOUT;
	case CLIENT_AGAIN:
	case CLIENT_BROKEN:
	case CLIENT_NO_MEMORY:
		break;
	}
	return TOOL_INTERNAL;
}

/* Only what is allowed in a signal handler. */
static void
on_stop(int signal_number)
{
	const uint64_t one = 1;

	(void)signal_number;
	if (write(stop_fd, &one, sizeof(one)) < 0)
		_exit(TOOL_INTERNAL);
}

int
tool_catch_stop(void)
{
	struct sigaction action = { .sa_handler = on_stop, .sa_flags = (int)SA_RESETHAND };

	stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (stop_fd < 0)
		return -1;
	sigemptyset(&action.sa_mask);
	if (sigaction(SIGINT, &action, NULL) != 0)
		return -1;
	return sigaction(SIGTERM, &action, NULL);
}

int
tool_stop_fd(void)
{
	return stop_fd;
}

bool
tool_stopped(void)
{
	struct pollfd stop = { .fd = stop_fd, .events = POLLIN };

	return stop_fd >= 0 && poll(&stop, 1, 0) > 0;
}

int64_t
tool_deadline(const struct options *options)
{
	return clock_now_ns() + options->timeout_ns;
}

struct client *
tool_connect(const struct options *options, int *exit_code)
{
	struct client *client = client_new(options->address, tool_stop_fd());
	enum client_status status;

	if (client == NULL) {
		tool_say("out of memory");
		*exit_code = TOOL_INTERNAL;
		return NULL;
	}
	status = client_connect(client, tool_deadline(options));
	if (status == CLIENT_OK)
		return client;
	/* A host that does not answer is as unreachable as one that refuses. */
	if (status == CLIENT_TIMEOUT)
		status = CLIENT_UNREACHABLE;
	*exit_code = tool_exit_code(status);
	if (status != CLIENT_STOPPED)
		tool_say("%s", client_reason(client));
	client_free(client);
	return NULL;
}

int
tool_failed(enum client_status status, int16_t error, const struct client *client, const char *topic)
{
	if (status == CLIENT_NO_MEMORY)
		tool_say("out of memory");
	else if (status != CLIENT_STOPPED)
		tool_say("%s%s%s", client_reason(client), topic != NULL ? ": topic " : "", topic != NULL ? topic : "");
	if (status == CLIENT_REFUSED && error == CODEC_STORAGE_FAILURE)
		tool_say("a partition%s could not be opened; the broker's log and its page /healthz name it",
		    topic != NULL ? " of it" : "");
	return tool_exit_code(status);
}

bool
tool_topic_valid(const char *name, const char *partition_hint)
{
	const char *slash = strchr(name, '/');

	if (codec_topic_name_valid(name, strlen(name)))
		return true;
	if (slash != NULL && codec_topic_name_valid(name, (size_t)(slash - name)))
		tool_say("'%s' is not a topic's name: %s", name, partition_hint);
	else
		tool_say("'%s' cannot be a topic's name: 1 to 249 characters out of A-Z a-z 0-9 . _ -", name);
	return false;
}

int
tool_metadata(struct client *client, const struct options *options, const char *const *names, int32_t count,
    struct wire_metadata *metadata)
{
	int16_t error;
	enum client_status status = wire_ask_metadata(client, names, count, tool_deadline(options), metadata, &error);

	return status == CLIENT_OK ? TOOL_DONE : tool_failed(status, error, client, count == 1 ? names[0] : NULL);
}
