/*
 * What the verbs share.
 */
#include "client/tool.h"

#include <sys/eventfd.h>

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"

static int stop_fd = -1;
static volatile sig_atomic_t stop_wanted;
static _Atomic int64_t stop_since_ns;

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
tool_exit_code(int code)
{
	switch (code) {
	case LB_OK:
		return TOOL_DONE;
	case LB_OFFSET_OUT_OF_RANGE:
	case LB_GAP:
		return TOOL_RANGE;
	case LB_CANNOT_CONNECT:
	case LB_LOST:
		return TOOL_UNREACHABLE;
	case LB_TIMED_OUT:
		return TOOL_TIMEOUT;
	case LB_CORRUPT_RECORD:
		return TOOL_CORRUPTION;
	case LB_OUTCOME_UNKNOWN:
		return TOOL_PARTLY;
	case LB_INVALID_ARGUMENT:	/* all of them come from the command line */
		return TOOL_USAGE;
	default:
		return code > 0 ? TOOL_REFUSED : TOOL_INTERNAL;
	}
}

int
tool_failed(const struct lb_error *error)
{
	bool named = error->code < 0 || strstr(error->text, lb_code_name(error->code)) != NULL;

	tool_say("%s%s%s", error->text, named ? "" : ": ", named ? "" : lb_code_name(error->code));
	if (error->code == LB_STORAGE_FAILURE)
		tool_say("a partition%s cannot be opened, read or written; the broker's log names it and says why",
		    error->topic[0] != '\0' ? " of it" : "");
	if (error->code == LB_CORRUPT_RECORD && error->offset >= 0)
		tool_say("what stands behind it is read with %s/%d --from %" PRId64 "; logbroker verify, at the broker, tells how "
		    "much is damaged", error->topic, (int)error->partition, error->offset + 1);
	return tool_exit_code(error->code);
}

int
tool_not_opened(const struct options *options, const struct lb_error *error)
{
	if (error->code != LB_INVALID_ARGUMENT || !options->address_inherited)
		return tool_failed(error);
	tool_say("LOGBROKER_ADDR in the environment: %s", error->text);
	return TOOL_USAGE;
}

/*
 * Only what is allowed in a signal handler. A second signal is one only when it comes later: timeout(1) sends two at once, and
 * the end that the first has begun should not be cut short by that.
 */
static void
on_stop(int signal_number)
{
	const uint64_t one = 1;

	if (stop_wanted && clock_now_ns() - stop_since_ns >= CLOCK_NS_PER_S) {
		signal(signal_number, SIG_DFL);
		raise(signal_number);	/* comes when this returns */
		return;
	}
	if (!stop_wanted)
		stop_since_ns = clock_now_ns();
	stop_wanted = 1;
	if (write(stop_fd, &one, sizeof(one)) < 0)
		_exit(TOOL_INTERNAL);
}

int
tool_catch_stop(void)
{
	struct sigaction action = { .sa_handler = on_stop };

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
	return stop_wanted != 0;
}

struct lb_connection *
tool_connect(const struct options *options, int *exit_code)
{
	struct lb_connection_options how = lb_connection_defaults();
	struct lb_connection *connection;
	struct lb_error error;

	how.timeout_ms = options->timeout_ms;
	if (lb_connection_open(&connection, options->address, &how, &error) == LB_OK)
		return connection;
	*exit_code = tool_not_opened(options, &error);
	return NULL;
}

bool
tool_topic_valid(const char *name, const char *partition_hint)
{
	const char *slash = strchr(name, '/');

	if (lb_topic_name_valid(name))
		return true;
	if (slash != NULL && slash > name)
		tool_say("'%s' is not a topic's name: %s", name, partition_hint);
	else
		tool_say("'%s' cannot be a topic's name: 1 to 249 characters out of A-Z a-z 0-9 . _ -", name);
	return false;
}
