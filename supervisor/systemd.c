/* The service manager's environment; see systemd.h. */
#include "supervisor/systemd.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const int64_t WATCHDOG_MAX_US = INT64_MAX / 1000;	/* so that it can be counted in nanoseconds */

/* A decimal number from 0 to `most`, nothing else; -1. */
static int64_t
number_in(const char *variable, int64_t most)
{
	const char *text = getenv(variable);
	char *end;
	long long n;

	if (text == NULL || *text < '0' || *text > '9')
		return -1;
	n = strtoll(text, &end, 10);
	return *end != '\0' || n > most ? -1 : n;
}

int
systemd_socket_count(void)
{
	int64_t count;

	if (number_in("LISTEN_PID", INT_MAX) != getpid())
		return 0;
	count = number_in("LISTEN_FDS", INT_MAX - SYSTEMD_FIRST_FD);
	return count < 0 ? 0 : (int)count;
}

bool
systemd_socket_named(int index, const char *name)
{
	const char *names = getenv("LISTEN_FDNAMES");
	size_t length = strlen(name);

	for (; names != NULL && index > 0; index--) {
		names = strchr(names, ':');
		if (names != NULL)
			names++;
	}
	return names != NULL && strcspn(names, ":") == length && memcmp(names, name, length) == 0;
}

const char *
systemd_notify_socket(void)
{
	const char *name = getenv("NOTIFY_SOCKET");

	return name == NULL || *name == '\0' ? NULL : name;
}

int
systemd_watchdog_us(int64_t *us)
{
	*us = 0;
	if (getenv("WATCHDOG_USEC") == NULL)
		return 0;
	if (getenv("WATCHDOG_PID") != NULL && number_in("WATCHDOG_PID", INT_MAX) != getpid())
		return 0;
	*us = number_in("WATCHDOG_USEC", WATCHDOG_MAX_US);
	return *us > 0 ? 0 : -1;
}

void
systemd_forget(void)
{
	static const char *const variables[] = {
		"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID", "NOTIFY_SOCKET", "WATCHDOG_PID",
		"WATCHDOG_USEC",
	};

	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
}
