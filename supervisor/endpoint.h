/*
 * Listening sockets: TCP on both families, Unix sockets with their files, and those that systemd has opened. Knows
 * nothing of who accepts on them. What cannot be opened is told in an error line that names the address.
 */
#ifndef SUPERVISOR_ENDPOINT_H
#define SUPERVISOR_ENDPOINT_H

#include <stdbool.h>
#include <sys/types.h>

#include "supervisor/settings.h"

struct endpoint {
	int descriptor;		/* listening, non-blocking, close-on-exec; -1 when somebody else has taken it over */
	char *text;		/* as it is, not as it was asked for: "127.0.0.1:40123", "[::1]:9092", "unix:/x" */
	char *path;		/* the file of a Unix socket that we have made, else NULL */
	dev_t device;		/* of that file */
	ino_t inode;
};

struct endpoints {
	int count;
	struct endpoint *list;
};

enum {
	/* Whoever may enter the directory may connect, as whoever can reach a TCP port may: close the directory to
	 * close the socket. */
	ENDPOINT_LISTEN_MODE = 0666,
	ENDPOINT_CONTROL_MODE = 0660,
};

/*
 * Binds and listens; adds one endpoint for each address of the host's name (one at least), or the Unix socket with
 * that file mode. A stale socket file, at which nobody listens, is replaced; nothing else is ever removed. Returns 0
 * or -1 after an error line.
 */
int endpoints_open(struct endpoints *endpoints, const struct settings_address *address, mode_t mode);

/* Adds a listening stream socket that was passed in; it stays the caller's unless 0 is returned. */
int endpoints_adopt(struct endpoints *endpoints, int descriptor);

/* Closes all, and removes the socket files that are still ours. */
void endpoints_close(struct endpoints *endpoints);

#endif
