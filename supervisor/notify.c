/* Saying it; see notify.h. */
#include "supervisor/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "supervisor/systemd.h"

enum { TEXT_BYTES = 512 };

/* ---- the environment ---- */

static int
read_address(struct notify *notify, const char *name)
{
	size_t length = strlen(name);

	if ((name[0] != '/' && name[0] != '@') || length < 2 || length > sizeof(notify->address.sun_path) - 1)
		return -1;
	notify->address.sun_family = AF_UNIX;
	memcpy(notify->address.sun_path, name, length);
	notify->address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	if (name[0] == '@')	/* no file, and no byte behind the name */
		notify->address.sun_path[0] = '\0';
	else
		notify->address_length++;
	return 0;
}

static void
read_watchdog(struct notify *notify)
{
	int64_t us;

	if (systemd_watchdog_us(&us) == 0)
		notify->watchdog_ns = us * CLOCK_NS_PER_US;
	else
		log_warning("WATCHDOG_USEC is not a number of microseconds: the service manager's watchdog is not served");
}

void
notify_init(struct notify *notify)
{
	const char *name = systemd_notify_socket();

	*notify = (struct notify){ .descriptor = -1 };
	if (name == NULL)
		return;
	if (read_address(notify, name) != 0) {
		log_warning("NOTIFY_SOCKET names no Unix socket, neither by an absolute path nor by '@' and a name: the service "
		    "manager is told nothing");
		return;
	}
	notify->descriptor = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (notify->descriptor < 0)
		log_warning("no socket to notify the service manager: %s", strerror(errno));
	else
		read_watchdog(notify);
}

void
notify_free(struct notify *notify)
{
	if (notify->descriptor >= 0)
		close(notify->descriptor);
	notify->descriptor = -1;
}

bool
notify_wanted(const struct notify *notify)
{
	return notify->descriptor >= 0;
}

/* ---- saying ---- */

/* To the name each time: a manager that has been replaced listens behind the same one. */
static bool
send_text(struct notify *notify, const char *text)
{
	size_t length = strlen(text);

	if (notify->descriptor < 0)
		return true;
	if (sendto(notify->descriptor, text, length, MSG_NOSIGNAL, (const struct sockaddr *)&notify->address,
	    notify->address_length) == (ssize_t)length)
		return true;
	if (errno != EAGAIN && errno != EINTR && !notify->warned) {
		log_warning("the service manager cannot be notified: %s; it is tried again, and not said again", strerror(errno));
		notify->warned = true;
	}
	return false;
}

static bool send_line(struct notify *notify, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool
send_line(struct notify *notify, const char *format, ...)
{
	char text[TEXT_BYTES];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	return send_text(notify, text);
}

void
notify_flush(struct notify *notify)
{
	if (notify->owed[0] != '\0' && send_text(notify, notify->owed))
		notify->owed[0] = '\0';
}

void
notify_ready(struct notify *notify)
{
	snprintf(notify->owed, sizeof(notify->owed), "READY=1\n");
	notify_flush(notify);
}

/* The time tells the manager's own requests apart: this answers what was asked for before it. */
void
notify_reloading(struct notify *notify)
{
	snprintf(notify->owed, sizeof(notify->owed), "RELOADING=1\nMONOTONIC_USEC=%lld\n",
	    (long long)(clock_now_ns() / CLOCK_NS_PER_US));
	notify_flush(notify);
}

void
notify_stopping(struct notify *notify, int64_t limit_ns)
{
	snprintf(notify->owed, sizeof(notify->owed), "STOPPING=1\nEXTEND_TIMEOUT_USEC=%lld\n",
	    (long long)(limit_ns / CLOCK_NS_PER_US));
	notify_flush(notify);
}

bool
notify_status(struct notify *notify, const char *text)
{
	return send_line(notify, "STATUS=%s\n", text);
}

bool
notify_watchdog(struct notify *notify)
{
	return send_line(notify, "WATCHDOG=1\n");
}

bool
notify_extend(struct notify *notify, int64_t ns)
{
	return send_line(notify, "EXTEND_TIMEOUT_USEC=%lld\n", (long long)(ns / CLOCK_NS_PER_US));
}
