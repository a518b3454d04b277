/*
 * What a service manager passes in the environment: sockets (LISTEN_FDS). The variables that are meant for this
 * process alone are taken out of the environment, so that no worker sees them.
 */
#ifndef SUPERVISOR_SYSTEMD_H
#define SUPERVISOR_SYSTEMD_H

#include <stdbool.h>

enum { SYSTEMD_FIRST_FD = 3 };

/* Returns how many sockets, from SYSTEMD_FIRST_FD on, were passed to this very process. */
int systemd_socket_count(void);

/* Was socket number `index` named `name` (FileDescriptorName= in its unit)? */
bool systemd_socket_named(int index, const char *name);

/* Removes LISTEN_*, NOTIFY_SOCKET and WATCHDOG_* from the environment; ends the two functions above. */
void systemd_forget(void);

#endif
