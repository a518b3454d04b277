/* What the control socket takes besides pages: orders, from HTTP's words into those of the supervisor's parts and back. */
#ifndef SUPERVISOR_CONTROL_H
#define SUPERVISOR_CONTROL_H

#include "supervisor/http.h"
#include "supervisor/orders.h"
#include "supervisor/reloading.h"

struct control;
struct event_base;
struct status;

enum { CONTROL_CHECK_MS = 5000, CONTROL_LOOK_MS = 50 };	/* how long a check waits at most, and looks how often */

/* All borrowed. NULL with errno ENOMEM. */
struct control *control_new(struct event_base *base, struct orders *orders, struct reloading *reloading,
    struct status *status);
/* Checks that wait are answered. NULL is allowed. */
void control_free(struct control *control);

/*
 * Their context is a struct control:
 *
 *   POST /workers/N/restart, /workers/restart     when it is done: 200, or 500 when one could not be replaced
 *
 *   POST /reload                                   when it is done: 200; 500 when broker.ini has errors, or a worker goes
 *                                                  on with old settings. A line for each change, error and worker
 *
 * Otherwise 409 while an order is under way, 404 when there is no such worker, 503 when it cannot be done now. With
 * "Accept: application/json" the answer is an object, else a line for each worker.
 *
 *   GET /check                                     what /healthz says, as soon as each serving worker's loop has turned
 *                                                  once more; or when CONTROL_CHECK_MS (or ?within_ms=N) are over, or
 *                                                  something else is wrong
 */
const struct http_call *control_calls(void);

#endif
