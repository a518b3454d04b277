/*
 * What a service manager passes in the environment: sockets (LISTEN_FDS), where it wants to be told what (NOTIFY_SOCKET,
 * WATCHDOG_USEC; see notify.h). The variables that are meant for this process alone are taken out of the environment, so
 * that no worker sees them.
 */
#ifndef SUPERVISOR_SYSTEMD_H
#define SUPERVISOR_SYSTEMD_H

#include <stdbool.h>
#include <stdint.h>

enum { SYSTEMD_FIRST_FD = 3 };

/* Returns how many sockets, from SYSTEMD_FIRST_FD on, were passed to this very process. */
int systemd_socket_count(void);

/* Was socket number `index` named `name` (FileDescriptorName= in its unit)? */
bool systemd_socket_named(int index, const char *name);

/* The name of its socket; NULL: it wants to be told nothing. */
const char *systemd_notify_socket(void);

/* How often it wants to hear from this very process, in microseconds; 0 = never. Returns -1 when what is there is no number. */
int systemd_watchdog_us(int64_t *us);

/* Removes LISTEN_*, NOTIFY_SOCKET and WATCHDOG_* from the environment; ends the functions above. */
void systemd_forget(void);

#endif
