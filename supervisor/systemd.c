/* The service manager's environment; see systemd.h. */
#include "supervisor/systemd.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A decimal number from 0 to INT_MAX, nothing else; -1. */
static int
number_in(const char *variable)
{
	const char *text = getenv(variable);
	char *end;
	long n;

	if (text == NULL || *text < '0' || *text > '9')
		return -1;
	n = strtol(text, &end, 10);
	return *end != '\0' || n > INT_MAX ? -1 : (int)n;
}

int
systemd_socket_count(void)
{
	int count;

	if (number_in("LISTEN_PID") != (int)getpid())
		return 0;
	count = number_in("LISTEN_FDS");
	return count < 0 || count > INT_MAX - SYSTEMD_FIRST_FD ? 0 : count;
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
