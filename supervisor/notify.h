/*
 * The notification protocol of service managers, as sd_notify(3) describes it: datagrams of lines to the socket that
 * NOTIFY_SOCKET names, by its path or, behind a '@', in the abstract namespace. Never waits for the manager. Without the
 * variable nothing is said. Knows how things are said; no workers, no event loop, and not when it is time.
 */
#ifndef SUPERVISOR_NOTIFY_H
#define SUPERVISOR_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
	int descriptor;			/* -1: nobody wants to know */
	struct sockaddr_un address;
	socklen_t address_length;
	int64_t watchdog_ns;		/* WATCHDOG=1 is expected at least so often; 0 = it is not */
	char owed[128];			/* the state, while it could not be said; empty when it has been */
	bool warned;
};

/* Takes what the environment says (see systemd_forget); what is wrong in there is a warning. */
void notify_init(struct notify *notify);
void notify_free(struct notify *notify);

/* Is there anybody to tell? */
bool notify_wanted(const struct notify *notify);

/*
 * States; the last one counts, and is said as soon as it can be. A reload ends with notify_ready, whatever has become of
 * it; a stop takes at most `limit_ns`.
 */
void notify_ready(struct notify *notify);
void notify_reloading(struct notify *notify);
void notify_stopping(struct notify *notify, int64_t limit_ns);

/* Says the state that is still owed. To be called now and then. */
void notify_flush(struct notify *notify);

/* These count at their moment and are not made up for. Each returns whether it was said. */
bool notify_status(struct notify *notify, const char *text);	/* one line, for people */
bool notify_watchdog(struct notify *notify);
bool notify_extend(struct notify *notify, int64_t ns);		/* the start goes on, and must say so again by then */

#endif
