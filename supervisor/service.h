/*
 * What the service manager is told in the course of time, unasked: how things stand, when that has changed; that all is
 * alive, as its watchdog wants to hear; that a start that takes long advances. Looks at workers and boards, and believes
 * of these that they change.
 */
#ifndef SUPERVISOR_SERVICE_H
#define SUPERVISOR_SERVICE_H

#include "supervisor/boards.h"
#include "supervisor/crew.h"
#include "supervisor/handover.h"
#include "supervisor/notify.h"

struct event_base;
struct service;

enum {
	SERVICE_SILENT_S = 5,		/* a serving worker whose loop has not turned for so long is not alive */
	SERVICE_EXTEND_S = 60,		/* what a start that advances asks for, from then on */
};

/* All borrowed. Nobody to tell: it never looks. NULL with errno. */
struct service *service_new(struct event_base *base, struct notify *notify, const struct crew *crew,
    const struct handover *handover, const struct boards *boards);
void service_free(struct service *service);

/* Tells how things stand now. */
void service_look(struct service *service);

#endif
