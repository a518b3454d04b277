/*
 * Says in the log when a worker that serves gives no sign of life any more, and when it is back. It is not killed: a disk
 * that hangs would take its successor too, and what it owes may still leave. Knows boards; no pages.
 */
#ifndef SUPERVISOR_SILENCE_H
#define SUPERVISOR_SILENCE_H

#include "supervisor/boards.h"
#include "supervisor/crew.h"

struct event_base;
struct silence;

enum { SILENCE_SAID_AFTER_S = 5 };	/* without a heartbeat, of which there is one a second; /healthz says it then too */

/* Looks once a second from now on. All borrowed. NULL with errno. */
struct silence *silence_new(struct event_base *base, const struct crew *crew, const struct boards *boards);
void silence_free(struct silence *silence);

#endif
