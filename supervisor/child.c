/*
 * The life of one worker: events come in (its channel, its timer, waitpid), restart.c decides, this file does it.
 *
 * The supervisor keeps the worker's end of the channel too, and never reads it while the worker lives. So a death
 * takes nothing with it but what the worker had received: when waitpid has reported it, there are three places from
 * which connections are taken back: what it gave back with its last breath (our end), what it was sent and has not
 * received (its end), what could not be sent to it (the queue). Then it is buried.
 */
#include "supervisor/child.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/message.h"
#include "supervisor/report.h"
#include "supervisor/spawn.h"

struct child {
	const struct child_shared *shared;
	int32_t number;
	struct restart restart;

	pid_t pid;			/* 0: none, or reaped */
	bool reaped;			/* waitpid has reported the death of the present process; it is not buried yet */
	int wait_status;		/* once reaped */
	int blame;			/* enum restart_reason why we have killed it; -1 */
	bool unclean;
	int64_t restarts[RESTART_REASON_COUNT];

	struct channel *channel;	/* NULL when no process runs */
	int far_end;			/* the worker's end of it */
	struct channel *unread;		/* the same, while it is read after the death */
	int32_t setup_step;		/* the next to queue; -1 before HELLO, setup_steps when all is */
	struct event *readable, *writable;	/* NULL without channel */
	struct event *retry;		/* descriptors or memory were short */
	struct event *timer;		/* the restart table's */

	int64_t given, returned;	/* connections, by this process */
	int64_t closed_before;		/* the board's connections_closed when this process was started */
	struct log_limit set_up_limit;
};

static void step(struct child *child, enum restart_event event);
static int refuse(struct child *child, enum restart_reason reason, const char *what);

/* ---- the channel, outwards ---- */

static void
retry_later(struct child *child)
{
	static const struct timeval pause = { 0, CHANNEL_RETRY_MS * 1000 };

	if (!evtimer_pending(child->retry, NULL))	/* nor put off again and again */
		evtimer_add(child->retry, &pause);
}

/* We hold the other end open, so that only the worker itself can have shut it down. */
static void
channel_lost(struct child *child)
{
	if (child->reaped)
		return;
	refuse(child, RESTART_BY_PROTOCOL, "it has shut down its channel");
	step(child, RESTART_BROKE);
}

static void
flush(struct child *child)
{
	if (child->channel == NULL)
		return;
	switch (channel_flush(child->channel)) {
	case CHANNEL_IDLE:
		event_del(child->writable);
		break;
	case CHANNEL_BLOCKED:
		event_add(child->writable, NULL);
		break;
	case CHANNEL_LATER:
		event_del(child->writable);
		retry_later(child);
		break;
	case CHANNEL_BROKEN:
		/* What is queued stays there, to be taken back when it is dead. */
		event_del(child->writable);
		channel_lost(child);
		break;
	}
}

static bool
setup_complete(const struct child *child)
{
	return child->setup_step >= setup_steps(child->shared->setup);
}

/* A message of the set-up could not be made. What is short now may be there soon; anything else will not mend itself. */
static void
set_up_failed(struct child *child, int error)
{
	char more[LOG_MORE_BYTES];
	char what[128];

	if (error == EMFILE || error == ENFILE || error == ENOMEM) {
		if (log_limit_pass(&child->set_up_limit, 60 * (int64_t)CLOCK_NS_PER_S, more))
			log_warning("worker %d: cannot be sent its settings: %s; tried again every %d ms%s",
			    (int)child->number, strerror(error), CHANNEL_RETRY_MS, more);
		retry_later(child);
		return;
	}
	snprintf(what, sizeof(what), "cannot be sent its settings: %s", strerror(error));
	refuse(child, RESTART_BY_SPAWN, what);
	step(child, RESTART_BROKE);
}

/* True while the settings are on their way to it. */
static bool
being_set_up(const struct child *child)
{
	return child->restart.state == RESTART_OPENING && child->setup_step >= 0 && !setup_complete(child);
}

/* Queues and sends what is left of the set-up, a few messages at a time: each board holds a descriptor. */
static void
go_on_sending(struct child *child)
{
	const struct setup *setup = child->shared->setup;

	while (child->channel != NULL && being_set_up(child)) {
		while (!setup_complete(child) && channel_queued(child->channel) < CHILD_SETUP_WINDOW) {
			if (setup_queue(setup, child->number, child->setup_step, child->channel) != 0) {
				set_up_failed(child, errno);
				break;
			}
			child->setup_step++;
		}
		flush(child);
		if (child->channel == NULL || channel_queued(child->channel) > 0 || evtimer_pending(child->retry, NULL))
			return;
	}
	flush(child);
}

int
child_give(struct child *child, const struct connection *connection)
{
	size_t inline_bytes = (size_t)connection->message.inline_bytes;
	struct channel_message message = { .type = MESSAGE_CONNECTION };
	struct message_connection head = connection->message;
	char payload[sizeof(head) + MESSAGE_INLINE_MAX_BYTES];

	head.group = child->number;
	memcpy(payload, &head, sizeof(head));
	if (inline_bytes > 0)
		memcpy(payload + sizeof(head), connection->inline_bytes, inline_bytes);
	message.payload = payload;
	message.size = sizeof(head) + inline_bytes;
	message.descriptors[message.descriptor_count++] = connection->socket;
	if (connection->memfd >= 0)
		message.descriptors[message.descriptor_count++] = connection->memfd;
	if (channel_queue(child->channel, &message) != 0)
		return -1;
	child->given++;
	flush(child);
	return 0;
}

/* ---- the channel, inwards ---- */

static void
close_descriptors(const struct channel_message *message)
{
	for (int i = 0; i < message->descriptor_count; i++)
		close(message->descriptors[i]);
}

/* It has broken the rules: whatever else it says does not count. Returns -1 with the reason noted. */
static int
refuse(struct child *child, enum restart_reason reason, const char *what)
{
	if (child->restart.state != RESTART_KILLED)
		log_error("worker %d: pid %ld: %s; killing it", (int)child->number, (long)child->pid, what);
	if (child->blame < 0)
		child->blame = (int)reason;
	return -1;
}

/* Whether the report fits the state: the table decides, but a reason is better told in words. NULL: it does. */
static const char *
out_of_turn(const struct child *child, enum report_kind kind)
{
	enum restart_state state = child->restart.state;

	switch (kind) {
	case REPORT_HELLO:
		return state == RESTART_OPENING || state == RESTART_SERVING ? "a second HELLO" : NULL;
	case REPORT_SERVING:
		if (child->setup_step < 0 || !setup_complete(child))
			return "SERVING before START";
		return state == RESTART_SERVING ? "a second SERVING" : NULL;
	case REPORT_CONNECTION:
		return child->restart.served ? NULL : "CONNECTION before SERVING";
	}
	return NULL;
}

/* Returns -1 when the message breaks a rule; its descriptors are then still there. */
static int
take_message(struct child *child, const struct channel_message *message)
{
	const struct topics *topics = child->shared->setup->topics;
	struct report report;
	struct report_error error;
	const char *wrong;

	if (report_read(message, topics->group_count, topics->slot_counts[child->number], &report, &error) != 0)
		return refuse(child, error.version ? RESTART_BY_HANDSHAKE : RESTART_BY_PROTOCOL, error.why);
	wrong = out_of_turn(child, report.kind);
	if (wrong != NULL)
		return refuse(child, RESTART_BY_PROTOCOL, wrong);
	switch (report.kind) {
	case REPORT_HELLO:
		step(child, RESTART_HELLO);
		break;
	case REPORT_SERVING:
		log_debug("worker %d: pid %ld serves, %d partitions open, %d not", (int)child->number, (long)child->pid,
		    (int)report.serving.opened, (int)report.serving.failed);
		step(child, RESTART_SERVED);
		break;
	case REPORT_CONNECTION:
		child->returned++;
		child->shared->returned(child->shared->context, &report.connection);
		break;
	}
	return 0;
}

/* A table of descriptors that is full must not stop what serves existing clients: the reserve is for this. */
static enum channel_received
receive(const struct child *child, struct channel *channel, struct channel_message *message)
{
	enum channel_received received = channel_receive(channel, message);

	if (received != CHANNEL_NO_ROOM)
		return received;
	reserve_release(child->shared->reserve);
	return channel_receive(channel, message);
}

static void bury(struct child *child);

/*
 * One message of our end. Returns false when there is nothing more for now: the worker has to say something first, or
 * a timer has been set.
 */
static bool
receive_one(struct child *child)
{
	struct channel_message message;

	switch (receive(child, child->channel, &message)) {
	case CHANNEL_MESSAGE:
		if (take_message(child, &message) == 0)
			return true;
		close_descriptors(&message);
		step(child, RESTART_BROKE);
		return true;
	case CHANNEL_MALFORMED:
		refuse(child, RESTART_BY_PROTOCOL, "a malformed packet");
		step(child, RESTART_BROKE);
		return true;
	case CHANNEL_LOST:
		child->returned++;
		log_warning("worker %d: a client's connection that it gave back was lost: no descriptors were free; raise "
		    "RLIMIT_NOFILE", child->number);
		return true;
	case CHANNEL_NO_ROOM:
		event_del(child->readable);
		retry_later(child);
		return false;
	case CHANNEL_NOTHING:
		return false;
	case CHANNEL_END:
		event_del(child->readable);
		channel_lost(child);
		return false;
	}
	return false;
}

static void
receive_some(struct child *child)
{
	for (int i = 0; i < CHILD_BATCH; i++)
		if (!receive_one(child))
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

static void take_leave(struct child *child);

static void
on_retry(evutil_socket_t fd, short what, void *context)
{
	struct child *child = context;

	(void)fd;
	(void)what;
	if (child->channel == NULL)
		return;
	if (child->reaped) {
		take_leave(child);
		return;
	}
	go_on_sending(child);
	event_add(child->readable, NULL);
	receive_some(child);
}

/* ---- the process ---- */

static void
close_channel(struct child *child)
{
	if (child->readable != NULL)
		event_free(child->readable);
	if (child->writable != NULL)
		event_free(child->writable);
	evtimer_del(child->retry);
	channel_free(child->channel);
	if (child->unread != NULL)
		channel_free(child->unread);
	else if (child->far_end >= 0)
		close(child->far_end);
	child->unread = NULL;
	child->far_end = -1;
	child->readable = NULL;
	child->writable = NULL;
	child->channel = NULL;
}

/* The supervisor's end becomes a channel with its events, which takes the descriptor over. Returns 0, or -1. */
static int
open_channel(struct child *child, int fd)
{
	child->channel = channel_new(fd);
	if (child->channel == NULL) {
		close(fd);
		return -1;
	}
	child->readable = event_new(child->shared->base, fd, EV_READ | EV_PERSIST, on_readable, child);
	child->writable = event_new(child->shared->base, fd, EV_WRITE | EV_PERSIST, on_writable, child);
	if (child->readable == NULL || child->writable == NULL)
		return -1;
	return event_add(child->readable, NULL);
}

static int
make_channel(struct child *child)
{
	int ends[2];

	if (channel_pair(ends) != 0) {
		/* A worker that comes back matters more than one connection more. */
		reserve_release(child->shared->reserve);
		if (channel_pair(ends) != 0)
			return -1;
	}
	child->far_end = ends[1];
	if (open_channel(child, ends[0]) == 0)
		return 0;
	close_channel(child);
	errno = ENOMEM;
	return -1;
}

static int
start_process(struct child *child)
{
	const struct child_shared *shared = child->shared;
	int board = shared->setup->boards->descriptors[child->number];
	pid_t pid;

	if (make_channel(child) != 0)
		return -1;
	pid = spawn_worker(shared->program, child->far_end, board, shared->lock);
	if (pid < 0) {
		int error = errno;

		close_channel(child);
		errno = error;
		return -1;
	}
	child->pid = pid;
	return 0;
}

static int64_t
board_closed(const struct child *child)
{
	return board_get(&child->shared->setup->boards->maps[child->number].worker->connections_closed);
}

static void
start(struct child *child)
{
	child->reaped = false;
	child->blame = -1;
	child->setup_step = -1;
	child->given = 0;
	child->returned = 0;
	child->closed_before = board_closed(child);
	if (start_process(child) == 0) {
		log_debug("worker %d: pid %ld started", (int)child->number, (long)child->pid);
		return;
	}
	log_error("worker %d: cannot be started: %s", (int)child->number, strerror(errno));
	child->blame = RESTART_BY_SPAWN;
	child->restarts[RESTART_BY_SPAWN]++;
	step(child, RESTART_DIED);
}

static void
kill_process(const struct child *child)
{
	if (child->pid > 0 && !child->reaped)
		kill(child->pid, SIGKILL);
}

/* A message that was meant for the dead one: connections go on to the next one, the rest was for this process alone. */
static void
take_back(struct child *child, const struct channel_message *message)
{
	const struct topics *topics = child->shared->setup->topics;
	struct report report;
	struct report_error error;

	if (report_read(message, topics->group_count, topics->slot_counts[child->number], &report, &error) == 0 &&
	    report.kind == REPORT_CONNECTION)
		child->shared->returned(child->shared->context, &report.connection);
	else
		close_descriptors(message);
}

/*
 * Empties the worker's end. Returns false when descriptors are short: it must be called again.
 */
static bool
take_back_unread(struct child *child)
{
	struct channel_message message;

	if (child->unread == NULL)
		child->unread = channel_new(child->far_end);
	if (child->unread == NULL)
		return true;	/* no memory: they are lost */
	for (;;) {
		switch (receive(child, child->unread, &message)) {
		case CHANNEL_MESSAGE:
			take_back(child, &message);
			continue;
		case CHANNEL_LOST:
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
take_back_queue(struct child *child)
{
	struct channel_message message;

	while (channel_unqueue(child->channel, &message))
		take_back(child, &message);
}

/* It is dead: nobody adds to either end any more, and both are emptied before it is buried. */
static void
take_leave(struct child *child)
{
	while (receive_one(child))
		;
	if (evtimer_pending(child->retry, NULL))
		return;		/* descriptors are short */
	if (take_back_unread(child))
		bury(child);
	else
		retry_later(child);
}

static void
log_death(const struct child *child, bool had_served)
{
	const struct restart *restart = &child->restart;
	char death[64];

	if (WIFSIGNALED(child->wait_status))
		snprintf(death, sizeof(death), "died (signal %d)", WTERMSIG(child->wait_status));
	else
		snprintf(death, sizeof(death), "exited (status %d)", WEXITSTATUS(child->wait_status));
	if (restart->state == RESTART_STOPPED && child->unclean)
		log_error("worker %d: pid %ld %s instead of stopping in order", (int)child->number, (long)child->pid, death);
	else if (restart->state == RESTART_STOPPED)
		log_debug("worker %d: pid %ld %s", (int)child->number, (long)child->pid, death);
	else if (restart->state == RESTART_STARTING)
		log_warning("worker %d: %s, restarting (was pid %ld)", (int)child->number, death, (long)child->pid);
	else
		log_error("worker %d: %s %s, %d time%s in a row%s; next try in %lld ms (was pid %ld)", (int)child->number, death,
		    had_served ? "too often" : "before it served", restart->failures, restart->failures == 1 ? "" : "s",
		    restart_failing(restart) ? ": failing, what it said before should tell why" : "",
		    (long long)(restart->wait_ns / CLOCK_NS_PER_MS), (long)child->pid);
}

static void perform(struct child *child, enum restart_action action);

static void
arm_timer(struct child *child)
{
	struct timeval wait;

	if (child->restart.timer_ns == 0) {
		evtimer_del(child->timer);
		return;
	}
	wait = clock_until(child->restart.timer_ns);
	evtimer_add(child->timer, &wait);
}

/* The table hears of it, and what is left of this process is cleared away. */
static void
bury(struct child *child)
{
	bool stopping = child->restart.state == RESTART_STOPPING;
	bool had_served = child->restart.served;
	enum restart_action action = restart_step(&child->restart, RESTART_DIED, clock_now_ns());

	take_back_queue(child);
	close_channel(child);
	board_clear_gauges(&child->shared->setup->boards->maps[child->number]);
	/* One that had its settings has opened its logs; without them it is killed by us, and has lost nothing. */
	if (stopping && setup_complete(child) && child->wait_status != 0)
		child->unclean = true;
	if (!stopping)
		child->restarts[child->blame >= 0 ? child->blame : (int)restart_reason_of(child->wait_status)]++;
	log_death(child, had_served);
	child->pid = 0;
	arm_timer(child);
	perform(child, action);
	child->shared->changed(child->shared->context, child);
}

static void
tell_stop(struct child *child)
{
	struct message_stop payload = { 0 };
	struct channel_message message = { .type = MESSAGE_STOP, .size = sizeof(payload), .payload = &payload };

	/* It has opened nothing before START, and STOP must not come ahead of that. */
	if (!setup_complete(child) || channel_queue(child->channel, &message) != 0)
		kill_process(child);
	else
		flush(child);
	/* With a full descriptor table it does not get at a message behind a connection; the end it sees all the same. */
	if (child->channel != NULL && setup_complete(child))
		shutdown(channel_fd(child->channel), SHUT_WR);
}

static void
perform(struct child *child, enum restart_action action)
{
	switch (action) {
	case RESTART_NOTHING:
	case RESTART_WAIT:	/* the timer is armed */
	case RESTART_OPEN:	/* `changed` tells everybody */
	case RESTART_END:
		break;
	case RESTART_START:
		start(child);
		break;
	case RESTART_ANSWER:
		child->setup_step = 0;
		go_on_sending(child);
		break;
	case RESTART_KILL:
		kill_process(child);
		break;
	case RESTART_TELL_STOP:
		tell_stop(child);
		break;
	case RESTART_KILL_LATE:
		log_error("worker %d: pid %ld has not stopped within drain_timeout and %d s more; killing it",
		    (int)child->number, (long)child->pid, RESTART_GRACE_MS / 1000);
		child->unclean = true;
		kill_process(child);
		break;
	}
}

static void
step(struct child *child, enum restart_event event)
{
	enum restart_state before = child->restart.state;
	enum restart_action action = restart_step(&child->restart, event, clock_now_ns());

	if (before == child->restart.state && action == RESTART_NOTHING)
		return;
	arm_timer(child);
	perform(child, action);
	child->shared->changed(child->shared->context, child);
}

static void
on_timer(evutil_socket_t fd, short what, void *context)
{
	struct child *child = context;

	(void)fd;
	(void)what;
	if (clock_now_ns() < child->restart.timer_ns) {	/* the loop's timers can be early */
		arm_timer(child);
		return;
	}
	if (child->restart.state == RESTART_STARTING) {
		log_error("worker %d: pid %ld has not said HELLO within %d s; killing it", (int)child->number,
		    (long)child->pid, RESTART_HELLO_MS / 1000);
		child->blame = RESTART_BY_HANDSHAKE;
	}
	step(child, RESTART_TIMER);
}

/* ---- from outside ---- */

struct child *
child_new(const struct child_shared *shared, int32_t number)
{
	int64_t stop_limit_ms = shared->setup->settings->drain_timeout_ms + RESTART_GRACE_MS;
	struct child *child = calloc(1, sizeof(*child));

	if (child == NULL)
		return NULL;
	child->shared = shared;
	child->number = number;
	child->far_end = -1;
	restart_init(&child->restart, stop_limit_ms * CLOCK_NS_PER_MS);
	child->retry = evtimer_new(shared->base, on_retry, child);
	child->timer = evtimer_new(shared->base, on_timer, child);
	if (child->retry != NULL && child->timer != NULL)
		return child;
	child_free(child);
	errno = ENOMEM;
	return NULL;
}

void
child_free(struct child *child)
{
	if (child == NULL)
		return;
	if (child->channel != NULL)
		close_channel(child);
	if (child->retry != NULL)
		event_free(child->retry);
	if (child->timer != NULL)
		event_free(child->timer);
	free(child);
}

void
child_begin(struct child *child)
{
	step(child, RESTART_BEGIN);
}

void
child_reaped(struct child *child, int wait_status)
{
	child->reaped = true;
	child->wait_status = wait_status;
	evtimer_del(child->retry);
	event_del(child->readable);
	event_del(child->writable);
	take_leave(child);
}

void
child_stop(struct child *child)
{
	step(child, RESTART_STOP);
}

int32_t
child_number(const struct child *child)
{
	return child->number;
}

pid_t
child_pid(const struct child *child)
{
	return child->reaped ? 0 : child->pid;
}

const struct restart *
child_restart(const struct child *child)
{
	return &child->restart;
}

const int64_t *
child_restarts(const struct child *child)
{
	return child->restarts;
}

bool
child_unclean(const struct child *child)
{
	return child->unclean;
}

bool
child_serving(const struct child *child)
{
	return child->restart.state == RESTART_SERVING && !child->reaped;
}

bool
child_behind(const struct child *child)
{
	int64_t heartbeat_ns = board_get(&child->shared->setup->boards->maps[child->number].worker->heartbeat_ns);

	if (child->channel != NULL && channel_queued(child->channel) > 0)
		return true;
	return heartbeat_ns <= 0 || heartbeat_ns < clock_now_ns() - CHILD_SILENT_S * (int64_t)CLOCK_NS_PER_S;
}

/* The board's counter is the worker's word: it cannot make the sum negative or larger than what was given, nor overflow. */
int64_t
child_connections(const struct child *child)
{
	int64_t present = child->given - child->returned;
	int64_t closed = (int64_t)((uint64_t)board_closed(child) - (uint64_t)child->closed_before);

	if (child->channel == NULL)
		return 0;
	if (closed < 0 || closed > present)
		return closed < 0 ? present : 0;
	return present - closed;
}
