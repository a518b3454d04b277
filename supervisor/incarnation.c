/*
 * A process and its channel; see incarnation.h.
 *
 * The supervisor keeps the worker's end of the channel too, and never reads it while the worker lives. So a death
 * takes nothing with it but what the worker had received: when waitpid has reported it, there are three places from
 * which connections are taken back: what it gave back with its last breath (our end), what it was sent and has not
 * received (its end), what could not be sent to it (the queue).
 */
#include "supervisor/incarnation.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/message.h"
#include "supervisor/spawn.h"

struct incarnation {
	const struct incarnation_site *site;
	const struct incarnation_hooks *hooks;
	int32_t number;

	pid_t pid;
	bool reaped;			/* waitpid has reported its death */
	int wait_status;		/* once reaped */
	int blame;			/* enum restart_reason why it is to be killed; -1 */
	bool said_hello, prepared, started, served, draining, released;	/* has it said or been told so? */
	bool wishes;
	bool stopping;			/* it was told STOP, and nothing more can be sent to it */

	struct channel *channel;
	int far_end;			/* the worker's end of it */
	struct channel *unread;		/* the same, while it is read after the death */
	int64_t generation;		/* of the settings that it was told */
	int64_t drain_timeout_ms;	/* as it was told */
	int32_t setup_step;		/* the next to queue; -1 before the settings are told, setup_steps when all is */
	struct event *readable, *writable;
	struct event *retry;		/* descriptors or memory were short */

	int64_t given, returned;	/* connections */
	struct log_limit set_up_limit;
};

/* ---- the channel, outwards ---- */

static void
retry_later(struct incarnation *incarnation)
{
	static const struct timeval pause = { 0, CHANNEL_RETRY_MS * 1000 };

	if (!evtimer_pending(incarnation->retry, NULL))	/* nor put off again and again */
		evtimer_add(incarnation->retry, &pause);
}

/* It has broken the rules, or cannot be told what it must know: whatever else it says does not count. */
static void
refuse(struct incarnation *incarnation, enum restart_reason reason, const char *why)
{
	if (incarnation->blame < 0) {
		log_error("worker %d: pid %ld: %s; killing it", (int)incarnation->number, (long)incarnation->pid, why);
		incarnation->blame = (int)reason;
	}
	if (!incarnation->reaped)
		incarnation->hooks->broke(incarnation->hooks->context, incarnation, why);
}

/* We hold the other end open, so that only the worker itself can have shut it down, unless it was told to stop. */
static void
channel_lost(struct incarnation *incarnation)
{
	if (!incarnation->reaped && !incarnation->stopping)
		refuse(incarnation, RESTART_BY_PROTOCOL, "it has shut down its channel");
}

static void
flush(struct incarnation *incarnation)
{
	switch (channel_flush(incarnation->channel)) {
	case CHANNEL_IDLE:
		event_del(incarnation->writable);
		break;
	case CHANNEL_BLOCKED:
		event_add(incarnation->writable, NULL);
		break;
	case CHANNEL_LATER:
		event_del(incarnation->writable);
		retry_later(incarnation);
		break;
	case CHANNEL_BROKEN:
		/* What is queued stays there, to be taken back when it is dead. */
		event_del(incarnation->writable);
		channel_lost(incarnation);
		break;
	}
}

static bool
setup_complete(const struct incarnation *incarnation)
{
	return incarnation->setup_step >= setup_steps(incarnation->site->setup);
}

/* A message of the set-up could not be made. What is short now may be there soon; anything else will not mend itself. */
static void
set_up_failed(struct incarnation *incarnation, int error)
{
	char more[LOG_MORE_BYTES];
	char what[128];

	if (error == EMFILE || error == ENFILE || error == ENOMEM) {
		if (log_limit_pass(&incarnation->set_up_limit, 60 * (int64_t)CLOCK_NS_PER_S, more))
			log_warning("worker %d: cannot be sent its settings: %s; tried again every %d ms%s",
			    (int)incarnation->number, strerror(error), CHANNEL_RETRY_MS, more);
		retry_later(incarnation);
		return;
	}
	snprintf(what, sizeof(what), "cannot be sent its settings: %s", strerror(error));
	refuse(incarnation, RESTART_BY_SPAWN, what);
}

/* True while the settings are on their way to it. */
static bool
being_set_up(const struct incarnation *incarnation)
{
	return incarnation->setup_step >= 0 && !setup_complete(incarnation) && incarnation->blame < 0 && !incarnation->reaped;
}

/* Queues and sends what is left of the set-up, a few messages at a time: each board holds a descriptor. */
static void
go_on_sending(struct incarnation *incarnation)
{
	const struct setup *setup = incarnation->site->setup;

	while (being_set_up(incarnation)) {
		while (being_set_up(incarnation) && channel_queued(incarnation->channel) < INCARNATION_SETUP_WINDOW) {
			if (setup_queue(setup, incarnation->number, incarnation->setup_step, incarnation->channel) != 0) {
				set_up_failed(incarnation, errno);
				break;
			}
			incarnation->setup_step++;
		}
		flush(incarnation);
		if (channel_queued(incarnation->channel) > 0 || evtimer_pending(incarnation->retry, NULL))
			return;
	}
	flush(incarnation);
}

static int
tell(struct incarnation *incarnation, uint32_t type, const void *payload, size_t size)
{
	struct channel_message message = { .type = type, .size = size, .payload = payload };

	return channel_queue(incarnation->channel, &message);
}

void
incarnation_tell_settings(struct incarnation *incarnation)
{
	const struct setup *setup = incarnation->site->setup;

	if (incarnation->setup_step >= 0)
		return;
	incarnation->setup_step = 0;
	incarnation->generation = setup->generation;
	incarnation->drain_timeout_ms = setup->settings->drain_timeout_ms;
	go_on_sending(incarnation);
}

void
incarnation_tell_start(struct incarnation *incarnation, const struct ends *ends)
{
	struct message_start start = { 0 };

	if (ends_queue(ends, incarnation->channel) != 0 ||
	    tell(incarnation, MESSAGE_START, &start, sizeof(start)) != 0) {
		refuse(incarnation, RESTART_BY_SPAWN, "no memory to tell it to start");
		return;
	}
	incarnation->started = true;
	flush(incarnation);
}

int
incarnation_tell_drain(struct incarnation *incarnation)
{
	struct message_drain drain = { 0 };

	if (tell(incarnation, MESSAGE_DRAIN, &drain, sizeof(drain)) != 0)
		return -1;
	incarnation->draining = true;
	flush(incarnation);
	return 0;
}

int
incarnation_tell_stop(struct incarnation *incarnation)
{
	struct message_stop stop = { 0 };

	if (tell(incarnation, MESSAGE_STOP, &stop, sizeof(stop)) != 0)
		return -1;
	flush(incarnation);
	/*
	 * With a full descriptor table it does not get at a message behind a connection; the end it sees all the same. What is
	 * still queued, STOP perhaps, is not sent any more.
	 */
	incarnation->stopping = true;
	shutdown(channel_fd(incarnation->channel), SHUT_WR);
	return 0;
}

int
incarnation_give(struct incarnation *incarnation, const struct connection *connection)
{
	size_t inline_bytes = (size_t)connection->message.inline_bytes;
	struct channel_message message = { .type = MESSAGE_CONNECTION };
	struct message_connection head = connection->message;
	char payload[sizeof(head) + MESSAGE_INLINE_MAX_BYTES];

	head.group = incarnation->number;
	memcpy(payload, &head, sizeof(head));
	if (inline_bytes > 0)
		memcpy(payload + sizeof(head), connection->inline_bytes, inline_bytes);
	message.payload = payload;
	message.size = sizeof(head) + inline_bytes;
	message.descriptors[message.descriptor_count++] = connection->socket;
	if (connection->memfd >= 0)
		message.descriptors[message.descriptor_count++] = connection->memfd;
	if (channel_queue(incarnation->channel, &message) != 0)
		return -1;
	incarnation->given++;
	flush(incarnation);
	return 0;
}

/* ---- the channel, inwards ---- */

static void
close_descriptors(const struct channel_message *message)
{
	for (int i = 0; i < message->descriptor_count; i++)
		close(message->descriptors[i]);
}

static const char *
hello_out_of_turn(const struct incarnation *incarnation)
{
	return incarnation->said_hello ? "a second HELLO" : NULL;
}

static const char *
prepared_out_of_turn(const struct incarnation *incarnation)
{
	if (!setup_complete(incarnation))
		return "PREPARED before its settings";
	return incarnation->prepared ? "a second PREPARED" : NULL;
}

static const char *
serving_out_of_turn(const struct incarnation *incarnation)
{
	if (!incarnation->started)
		return "SERVING before START";
	return incarnation->served ? "a second SERVING" : NULL;
}

static const char *
release_out_of_turn(const struct incarnation *incarnation, const char *unasked, const char *again)
{
	if (!incarnation->draining)
		return unasked;
	return incarnation->released ? again : NULL;
}

/* Whether the report fits what was said before; NULL: it does. Of an unknown kind there are none. */
static const char *
out_of_turn(const struct incarnation *incarnation, enum report_kind kind)
{
	switch (kind) {
	case REPORT_HELLO:
		return hello_out_of_turn(incarnation);
	case REPORT_PREPARED:
		return prepared_out_of_turn(incarnation);
	case REPORT_SERVING:
		return serving_out_of_turn(incarnation);
	case REPORT_CONNECTION:
		return incarnation->served ? NULL : "CONNECTION before SERVING";
	case REPORT_REPLACE:
		return incarnation->started ? NULL : "REPLACE before START";
	case REPORT_ENDS:
		return release_out_of_turn(incarnation, "ENDS without DRAIN", "ENDS behind RELEASED");
	case REPORT_RELEASED:
		return release_out_of_turn(incarnation, "RELEASED without DRAIN", "a second RELEASED");
	}
	return NULL;
}

static void
note(struct incarnation *incarnation, enum report_kind kind)
{
	switch (kind) {
	case REPORT_HELLO:
		incarnation->said_hello = true;
		break;
	case REPORT_PREPARED:
		incarnation->prepared = true;
		break;
	case REPORT_SERVING:
		incarnation->served = true;
		break;
	case REPORT_CONNECTION:
		incarnation->returned++;
		break;
	case REPORT_REPLACE:
		incarnation->wishes = true;
		break;
	case REPORT_ENDS:
		break;
	case REPORT_RELEASED:
		incarnation->released = true;
		break;
	}
}

/*
 * NULL: the descriptors have gone on. Otherwise it is what is wrong, and they are still there. Of one that is to be killed
 * only the connections count.
 */
static const char *
take_report(struct incarnation *incarnation, const struct report *report)
{
	const struct incarnation_hooks *hooks = incarnation->hooks;
	const char *wrong = out_of_turn(incarnation, report->kind);

	if (incarnation->blame >= 0 && report->kind != REPORT_CONNECTION)
		return NULL;
	if (wrong != NULL)
		return wrong;
	note(incarnation, report->kind);
	if (report->kind != REPORT_CONNECTION)
		return hooks->said(hooks->context, incarnation, report);
	hooks->returned(hooks->context, &report->connection);
	return NULL;
}

static void
take_message(struct incarnation *incarnation, const struct channel_message *message)
{
	const struct topics *topics = incarnation->site->setup->topics;
	enum restart_reason reason = RESTART_BY_PROTOCOL;
	struct report report;
	struct report_error error;
	const char *wrong;

	if (report_read(message, topics->group_count, topics->slot_counts[incarnation->number], &report, &error) == 0)
		wrong = take_report(incarnation, &report);
	else {
		wrong = error.why;
		if (error.version)
			reason = RESTART_BY_HANDSHAKE;
	}
	if (wrong == NULL)
		return;
	close_descriptors(message);
	refuse(incarnation, reason, wrong);
}

/* A table of descriptors that is full must not stop what serves existing clients: the reserve is for this. */
static enum channel_received
receive(const struct incarnation *incarnation, struct channel *channel, struct channel_message *message)
{
	enum channel_received received = channel_receive(channel, message);

	if (received != CHANNEL_NO_ROOM)
		return received;
	reserve_release(incarnation->site->reserve);
	return channel_receive(channel, message);
}

static void
tell_lost(const struct incarnation *incarnation)
{
	log_warning("worker %d: a client's connection that it gave back or had not taken yet was lost: no descriptors were free; "
	    "raise RLIMIT_NOFILE", (int)incarnation->number);
}

/*
 * One message of our end. Returns false when there is nothing more for now: the worker has to say something first, or
 * a timer has been set.
 */
static bool
receive_one(struct incarnation *incarnation)
{
	struct channel_message message;

	switch (receive(incarnation, incarnation->channel, &message)) {
	case CHANNEL_MESSAGE:
		take_message(incarnation, &message);
		return true;
	case CHANNEL_MALFORMED:
		refuse(incarnation, RESTART_BY_PROTOCOL, "a malformed packet");
		return true;
	case CHANNEL_LOST:
		incarnation->returned++;
		tell_lost(incarnation);
		return true;
	case CHANNEL_NO_ROOM:
		event_del(incarnation->readable);
		retry_later(incarnation);
		return false;
	case CHANNEL_NOTHING:
		return false;
	case CHANNEL_END:
		event_del(incarnation->readable);
		channel_lost(incarnation);
		return false;
	}
	return false;
}

static void
receive_some(struct incarnation *incarnation)
{
	for (int i = 0; i < INCARNATION_BATCH; i++)
		if (!receive_one(incarnation))
			return;
}

static void
on_readable(evutil_socket_t fd, short what, void *context)
{
	(void)fd;
	(void)what;
	receive_some(context);
}

static void
on_writable(evutil_socket_t fd, short what, void *context)
{
	(void)fd;
	(void)what;
	go_on_sending(context);
}

static void take_leave(struct incarnation *incarnation);

static void
on_retry(evutil_socket_t fd, short what, void *context)
{
	struct incarnation *incarnation = context;

	(void)fd;
	(void)what;
	if (incarnation->reaped) {
		take_leave(incarnation);
		return;
	}
	go_on_sending(incarnation);
	event_add(incarnation->readable, NULL);
	receive_some(incarnation);
}

/* ---- its start ---- */

/* The supervisor's end becomes a channel with its events, which takes the descriptor over. Returns 0, or -1. */
static int
open_channel(struct incarnation *incarnation, int fd)
{
	struct event_base *base = incarnation->site->base;

	incarnation->channel = channel_new(fd);
	if (incarnation->channel == NULL) {
		close(fd);
		return -1;
	}
	incarnation->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, incarnation);
	incarnation->writable = event_new(base, fd, EV_WRITE | EV_PERSIST, on_writable, incarnation);
	incarnation->retry = evtimer_new(base, on_retry, incarnation);
	if (incarnation->readable == NULL || incarnation->writable == NULL || incarnation->retry == NULL)
		return -1;
	return event_add(incarnation->readable, NULL);
}

static int
make_channel(struct incarnation *incarnation)
{
	int ends[2];

	if (channel_pair(ends) != 0) {
		/* A worker that comes back matters more than one connection more. */
		reserve_release(incarnation->site->reserve);
		if (channel_pair(ends) != 0)
			return -1;
	}
	incarnation->far_end = ends[1];
	if (open_channel(incarnation, ends[0]) == 0)
		return 0;
	errno = ENOMEM;
	return -1;
}

struct incarnation *
incarnation_start(const struct incarnation_site *site, const struct incarnation_hooks *hooks, int32_t number)
{
	struct incarnation *incarnation = calloc(1, sizeof(*incarnation));
	int error;

	if (incarnation == NULL)
		return NULL;
	incarnation->site = site;
	incarnation->hooks = hooks;
	incarnation->number = number;
	incarnation->far_end = -1;
	incarnation->blame = -1;
	incarnation->setup_step = -1;
	incarnation->generation = site->setup->generation;
	incarnation->drain_timeout_ms = site->setup->settings->drain_timeout_ms;
	if (make_channel(incarnation) == 0) {
		incarnation->pid = spawn_worker(site->program, incarnation->far_end, site->setup->boards->descriptors[number],
		    site->lock);
		if (incarnation->pid > 0) {
			log_debug("worker %d: pid %ld started", (int)number, (long)incarnation->pid);
			return incarnation;
		}
	}
	error = errno;
	incarnation_free(incarnation);
	errno = error;
	return NULL;
}

/* ---- its end ---- */

/* A message that was meant for the dead one: connections go on to the next one, the rest was for this process alone. */
static void
take_back(struct incarnation *incarnation, const struct channel_message *message)
{
	const struct topics *topics = incarnation->site->setup->topics;
	struct report report;
	struct report_error error;

	if (report_read(message, topics->group_count, topics->slot_counts[incarnation->number], &report, &error) == 0 &&
	    report.kind == REPORT_CONNECTION) {
		incarnation->returned++;
		incarnation->hooks->returned(incarnation->hooks->context, &report.connection);
	} else {
		close_descriptors(message);
	}
}

/*
 * Empties the worker's end. Returns false when descriptors are short: it must be called again.
 */
static bool
take_back_unread(struct incarnation *incarnation)
{
	struct channel_message message;

	if (incarnation->unread == NULL)
		incarnation->unread = channel_new(incarnation->far_end);
	if (incarnation->unread == NULL) {
		log_error("worker %d: no memory to take back the connections that it had not taken yet: they are closed",
		    (int)incarnation->number);
		return true;
	}
	for (;;) {
		switch (receive(incarnation, incarnation->unread, &message)) {
		case CHANNEL_MESSAGE:
			take_back(incarnation, &message);
			continue;
		case CHANNEL_LOST:
			tell_lost(incarnation);
			continue;
		case CHANNEL_MALFORMED:
			continue;
		case CHANNEL_NO_ROOM:
			return false;
		case CHANNEL_NOTHING:
		case CHANNEL_END:
			return true;
		}
	}
}

static void
take_back_queue(struct incarnation *incarnation)
{
	struct channel_message message;

	while (channel_unqueue(incarnation->channel, &message))
		take_back(incarnation, &message);
}

/* It is dead: nobody adds to either end any more, and all is emptied before it is buried. */
static void
take_leave(struct incarnation *incarnation)
{
	while (receive_one(incarnation))
		;
	if (evtimer_pending(incarnation->retry, NULL))
		return;		/* descriptors are short */
	if (!take_back_unread(incarnation)) {
		retry_later(incarnation);
		return;
	}
	take_back_queue(incarnation);
	incarnation->hooks->gone(incarnation->hooks->context, incarnation);
}

void
incarnation_kill(struct incarnation *incarnation, enum restart_reason reason)
{
	if (incarnation->reaped)
		return;
	if (incarnation->blame < 0)
		incarnation->blame = (int)reason;
	kill(incarnation->pid, SIGKILL);
}

void
incarnation_reaped(struct incarnation *incarnation, int wait_status)
{
	incarnation->reaped = true;
	incarnation->wait_status = wait_status;
	evtimer_del(incarnation->retry);
	event_del(incarnation->readable);
	event_del(incarnation->writable);
	take_leave(incarnation);
}

static void
free_event(struct event *event)
{
	if (event != NULL)
		event_free(event);
}

void
incarnation_free(struct incarnation *incarnation)
{
	if (incarnation == NULL)
		return;
	free_event(incarnation->readable);
	free_event(incarnation->writable);
	free_event(incarnation->retry);
	channel_free(incarnation->channel);
	if (incarnation->unread != NULL)
		channel_free(incarnation->unread);
	else if (incarnation->far_end >= 0)
		close(incarnation->far_end);
	free(incarnation);
}

/* ---- what is known of it ---- */

pid_t
incarnation_pid(const struct incarnation *incarnation)
{
	return incarnation->pid;
}

bool
incarnation_is_reaped(const struct incarnation *incarnation)
{
	return incarnation->reaped;
}

enum restart_reason
incarnation_reason(const struct incarnation *incarnation)
{
	return incarnation->blame >= 0 ? (enum restart_reason)incarnation->blame : restart_reason_of(incarnation->wait_status);
}

int
incarnation_wait_status(const struct incarnation *incarnation)
{
	return incarnation->wait_status;
}

bool
incarnation_said_hello(const struct incarnation *incarnation)
{
	return incarnation->said_hello;
}

bool
incarnation_prepared(const struct incarnation *incarnation)
{
	return incarnation->prepared;
}

bool
incarnation_started(const struct incarnation *incarnation)
{
	return incarnation->started;
}

bool
incarnation_served(const struct incarnation *incarnation)
{
	return incarnation->served;
}

bool
incarnation_draining(const struct incarnation *incarnation)
{
	return incarnation->draining;
}

bool
incarnation_behind(const struct incarnation *incarnation)
{
	return channel_queued(incarnation->channel) > 0;
}

bool
incarnation_wishes(const struct incarnation *incarnation)
{
	return incarnation->wishes;
}

int64_t
incarnation_drain_timeout_ms(const struct incarnation *incarnation)
{
	return incarnation->drain_timeout_ms;
}

int64_t
incarnation_generation(const struct incarnation *incarnation)
{
	return incarnation->generation;
}

bool
incarnation_take_wish(struct incarnation *incarnation)
{
	bool wished = incarnation->wishes;

	incarnation->wishes = false;
	return wished;
}

int64_t
incarnation_connections(const struct incarnation *incarnation)
{
	return incarnation->given - incarnation->returned;
}
