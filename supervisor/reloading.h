/*
 * A reload from its beginning to its end: broker.ini is taken over as far as it can be (reload.h), then each worker that
 * runs with older settings is replaced, one after the other, until one cannot be. It is an order like others, of which there
 * is one at a time. Knows neither signals nor HTTP.
 */
#ifndef SUPERVISOR_RELOADING_H
#define SUPERVISOR_RELOADING_H

#include <stdbool.h>

#include "supervisor/orders.h"
#include "supervisor/reload.h"

struct reloading;

/*
 * The end of one: `ok` false when there was an error in the file, or a worker goes on with old settings. `text` has a line
 * for each change or error and one for each worker that was to be replaced; it is valid during the call, and
 * may be changed.
 */
typedef void reloading_done(void *context, char *text, bool ok);

struct reloading_hooks {
	void *context;
	void (*begun)(void *context);
	void (*ended)(void *context);
};

/* All borrowed; `begun` and `ended` hear of every run. NULL with errno. */
struct reloading *reloading_new(const struct reload *reload, struct orders *orders, const struct crew *crew,
    const struct reloading_hooks *hooks);
/* Not before the orders are freed: one that is under way reports to it. NULL is allowed. */
void reloading_free(struct reloading *reloading);

/*
 * Begins. Returns 0: `done` (may be NULL) is called once, in here when no worker has to be replaced; or -1 with errno: EBUSY
 * (an order is under way), ESHUTDOWN (the broker stops), EINPROGRESS (it is not ready yet, and would tell the service manager
 * that it is), ENOMEM.
 */
int reloading_start(struct reloading *reloading, reloading_done *done, void *context);

/*
 * As by SIGHUP: begins; or when an order is under way is one more run behind it, however often it is asked meanwhile; or waits
 * until the broker is ready.
 */
void reloading_ask(struct reloading *reloading);
/* No order is under way now, or the broker is ready: what has been asked meanwhile begins. */
void reloading_orders_idle(struct reloading *reloading);

#endif
