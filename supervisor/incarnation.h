/*
 * One process of a worker's group, with its channel: starts it, sends it what it is to be told, checks what it says and
 * passes that on, and takes back the connections that it leaves behind. Believes nothing that comes over the channel
 * without a check. Knows nothing of when processes are started and ended, nor of the group's other processes.
 */
#ifndef SUPERVISOR_INCARNATION_H
#define SUPERVISOR_INCARNATION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "supervisor/connection.h"
#include "supervisor/ends.h"
#include "supervisor/report.h"
#include "supervisor/reserve.h"
#include "supervisor/restart.h"
#include "supervisor/setup.h"

struct event_base;
struct incarnation;

enum {
	INCARNATION_BATCH = 64,		/* messages from one process before the loop turns to something else */
	INCARNATION_SETUP_WINDOW = 8,	/* messages of the set-up that wait at a time, and with them the descriptors they hold */
};

/* What a process needs of its surroundings; borrowed. */
struct incarnation_site {
	struct event_base *base;
	const struct setup *setup;
	const char *program;
	int lock;			/* descriptor */
	struct reserve *reserve;
};

struct incarnation_hooks {
	void *context;
	/* A valid message that fits what was said before. NULL, or what is wrong with it all the same. Not CONNECTION. */
	const char *(*said)(void *context, struct incarnation *incarnation, const struct report *report);
	/* A connection comes back, checked: it must go to message.group. Its descriptors go over; bytes: for the call. */
	void (*returned)(void *context, const struct connection *connection);
	/* It has broken a rule, or cannot be talked to: it must be killed. Its blame is noted, a line is in the log. */
	void (*broke)(void *context, struct incarnation *incarnation, const char *why);
	/* It is dead and everything has been taken back: incarnation_free follows in here. */
	void (*gone)(void *context, struct incarnation *incarnation);
};

/* Starts a process for group `number`. Site and hooks are borrowed. NULL with errno. */
struct incarnation *incarnation_start(const struct incarnation_site *site, const struct incarnation_hooks *hooks,
    int32_t number);
/* A process that still runs is left alone. NULL is allowed. */
void incarnation_free(struct incarnation *incarnation);

/* ---- what is told to it, in this order ---- */

/* The second time it does nothing. */
void incarnation_tell_settings(struct incarnation *incarnation);
/* The ends that its predecessor has told, when it has released them, and START. */
void incarnation_tell_start(struct incarnation *incarnation, const struct ends *ends);
/* Returns 0, or -1 with errno ENOMEM: then it has not been told. */
int incarnation_tell_drain(struct incarnation *incarnation);
/* It must have been told START. Returns as above. */
int incarnation_tell_stop(struct incarnation *incarnation);
/*
 * Gives it a connection; message.group becomes its own number. What cannot be sent comes back by `returned` when it is
 * dead. Returns 0, and the descriptors are gone; or -1 with errno ENOMEM, and they are still the caller's.
 */
int incarnation_give(struct incarnation *incarnation, const struct connection *connection);

/* SIGKILL, once more if need be. `reason`: why it will have to be replaced, unless there was a reason before. */
void incarnation_kill(struct incarnation *incarnation, enum restart_reason reason);
void incarnation_reaped(struct incarnation *incarnation, int wait_status);

/* ---- what is known of it ---- */

pid_t incarnation_pid(const struct incarnation *incarnation);
bool incarnation_is_reaped(const struct incarnation *incarnation);
/* Why it had to be replaced: a reason given before its death, or what waitpid said. */
enum restart_reason incarnation_reason(const struct incarnation *incarnation);
int incarnation_wait_status(const struct incarnation *incarnation);
bool incarnation_said_hello(const struct incarnation *incarnation);
bool incarnation_prepared(const struct incarnation *incarnation);
bool incarnation_started(const struct incarnation *incarnation);	/* was told START */
bool incarnation_served(const struct incarnation *incarnation);
bool incarnation_draining(const struct incarnation *incarnation);	/* was told DRAIN */
bool incarnation_behind(const struct incarnation *incarnation);		/* messages wait because it does not read */
/* What it was told of drain_timeout; the settings' generation. Before it was told anything: what it would be told now. */
int64_t incarnation_drain_timeout_ms(const struct incarnation *incarnation);
int64_t incarnation_generation(const struct incarnation *incarnation);
/* It has asked to be replaced; the wish is forgotten. */
bool incarnation_take_wish(struct incarnation *incarnation);
bool incarnation_wishes(const struct incarnation *incarnation);

/*
 * Connections given to it that it has not given back, those it has closed included: how many those are stands on the
 * board, which has one writer at a time, so the caller knows.
 */
int64_t incarnation_connections(const struct incarnation *incarnation);

#endif
