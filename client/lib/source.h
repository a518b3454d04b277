/*
 * What connections, producers and subscriptions have in common: the way an event loop sees them, and the bookkeeping
 * that makes freeing an object inside any of its callbacks legal.
 *
 * An object embeds a struct lb_source. Around every piece of work that may call back it says enter and leave; its
 * free function completes what is outstanding, then says free. The memory goes (by `release`) when the last enter has
 * been left, at once if there is none. After any callback the object looks at lb_source_gone before it touches
 * anything that free takes away.
 */
#ifndef CLIENT_LIB_SOURCE_H
#define CLIENT_LIB_SOURCE_H

#include "client/lib/logbroker.h"

struct lb_source_kind {
	struct lb_wants (*wants)(const struct lb_source *source);
	void (*process)(struct lb_source *source);	/* called with the object entered, and not inside one of its callbacks */
	void (*release)(struct lb_source *source);	/* frees the memory */
};

struct lb_source {
	const struct lb_source_kind *kind;
	lb_changed_cb *changed;
	void *changed_context;
	unsigned depth;		/* of enters */
	bool gone;
};

void lb_source_init(struct lb_source *source, const struct lb_source_kind *kind);
void lb_source_enter(struct lb_source *source);
/*
 * The last one tells the watcher, or releases an object that is gone: it must not be touched afterwards unless the
 * caller has entered it itself.
 */
void lb_source_leave(struct lb_source *source);
/* Inside a callback of the object (or of one it belongs to)? Then synchronous calls are refused. */
bool lb_source_busy(const struct lb_source *source);
bool lb_source_gone(const struct lb_source *source);
/*
 * Tells the watcher that what is wanted may have changed: at the end of every public call that may change it and does
 * not enter. Nothing while the object is entered; the leave tells it.
 */
void lb_source_changed(struct lb_source *source);
/* The end: tells the watcher, and releases the object now or when it has been left. */
void lb_source_free(struct lb_source *source);

#endif
