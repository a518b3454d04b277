/*
 * logworker: one partition group's process. Only wires: takes its settings, opens the logs, runs the loop, shuts down.
 * Started by logsupervisor on fixed descriptors; see common/message.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/event_struct.h>

#include "common/channel.h"
#include "common/clock.h"
#include "common/lockfile.h"
#include "common/log.h"
#include "common/message.h"
#include "worker/connections.h"
#include "worker/direct.h"
#include "worker/inbox.h"
#include "worker/jobs.h"
#include "worker/lane.h"
#include "worker/opening.h"
#include "worker/produce.h"
#include "worker/retain.h"
#include "worker/worker.h"

enum {
	HEARTBEAT_S = 1,
	STOP_LOOK_MS = 2,
	DESCRIPTORS = 16384,	/* that the kernel's table has room for at once: in 128 KiB */
};

/* A timer that goes off when the earliest of many deadlines is reached. */
struct deadline {
	struct event timer;
	int64_t armed_ns;	/* for which one; 0 = not armed */
};

/* How far the logs are handed to a replacement; see message.h. */
enum drain {
	DRAIN_NONE,
	DRAIN_FORCING,		/* it still serves: a pass of forcing, so that little is left for the pause */
	DRAIN_FINISHING,	/* the pause has begun: nothing is read any more, what was begun comes to its end */
	DRAIN_RELEASED,		/* neither files nor board are written any more; connections go back */
};

struct process {
	struct worker worker;
	struct event_base *base;
	struct channel *channel;
	struct event channel_readable, channel_writable, channel_retry;
	struct event jobs_readable, terminate, heartbeat;
	struct deadline flush, retain;
	bool channel_broken;
	enum drain drain;
	int64_t stop_deadline_ns;	/* 0 = neither stopping nor released */
};

/* ---- Events ---- */

/* From now on it is looked every moment whether all is done. */
static void
begin_end(struct process *p)
{
	struct timeval soon = { 0, STOP_LOOK_MS * 1000 };

	p->stop_deadline_ns = clock_now_ns() + p->worker.drain_timeout_ns;
	event_del(&p->heartbeat);
	event_add(&p->heartbeat, &soon);
}

static void
begin_stop(struct process *p)
{
	if (p->worker.stopping)
		return;
	log_info("stopping");
	begin_end(p);
	p->worker.stopping = true;
	p->worker.draining = p->drain == DRAIN_RELEASED;
	p->worker.now_ns = clock_now_ns();
	connections_stop(p->worker.connections);
	event_del(&p->channel_readable);
	/* Whoever reads the board sends no more connections here. */
	board_set(&p->worker.counters->heartbeat_ns, 0);
}

static void
begin_drain(struct process *p)
{
	if (p->drain != DRAIN_NONE || p->worker.stopping)
		return;
	log_debug("draining: a replacement is ready");
	p->drain = DRAIN_FORCING;
	p->worker.now_ns = clock_now_ns();
	produce_begin_pass(&p->worker);
}

static void
receive(struct process *p)
{
	struct timeval retry = { 0, CHANNEL_RETRY_MS * 1000 };

	switch (inbox_receive(p->channel, &p->worker)) {
	case INBOX_NOTHING:
		break;
	case INBOX_LATER:
		/* Without memory for the timer it is told again in the next turn: a busy loop, but not a deaf one. */
		if (event_add(&p->channel_retry, &retry) == 0)
			event_del(&p->channel_readable);
		break;
	case INBOX_DRAIN:
		begin_drain(p);
		break;
	case INBOX_STOP:
		begin_stop(p);
		break;
	}
}

static void
flush_channel(struct process *p)
{
	struct timeval retry = { 0, CHANNEL_RETRY_MS * 1000 };

	p->channel_broken = false;
	switch (channel_flush(p->channel)) {
	case CHANNEL_BLOCKED:
		event_add(&p->channel_writable, NULL);
		break;
	case CHANNEL_LATER:
		event_add(&p->channel_retry, &retry);
		break;
	case CHANNEL_BROKEN:
		p->channel_broken = true;	/* the next receive tells that the supervisor is gone */
		break;
	case CHANNEL_IDLE:
		break;
	}
}

static void
on_channel_readable(evutil_socket_t fd, short what, void *argument)
{
	(void)fd;
	(void)what;
	receive(argument);
}

/* The channel is flushed at the end of each turn; to have one is all that is needed. */
static void
on_channel_writable(evutil_socket_t fd, short what, void *argument)
{
	(void)fd;
	(void)what;
	(void)argument;
}

static void
on_channel_retry(evutil_socket_t fd, short what, void *argument)
{
	struct process *p = argument;

	(void)fd;
	(void)what;
	if (!p->worker.stopping)
		event_add(&p->channel_readable, NULL);
}

static void
on_jobs(evutil_socket_t fd, short what, void *argument)
{
	struct process *p = argument;

	(void)fd;
	(void)what;
	p->worker.now_ns = clock_now_ns();
	jobs_collect(p->worker.jobs);
}

static void
on_terminate(evutil_socket_t number, short what, void *argument)
{
	struct process *p = argument;

	(void)number;
	(void)what;
	if (p->channel_broken)
		begin_stop(p);
	else if (p->drain == DRAIN_NONE && !p->worker.stopping)
		inbox_say_replace(p->channel);
}

static void
on_heartbeat(evutil_socket_t fd, short what, void *argument)
{
	struct process *p = argument;

	(void)fd;
	(void)what;
	p->worker.now_ns = clock_now_ns();
	if (!p->worker.stopping)
		board_set(&p->worker.counters->heartbeat_ns, p->worker.now_ns);
	board_set(&p->worker.counters->recovered_bytes, direct_bytes_read());
	opening_due(&p->worker);
	if (p->stop_deadline_ns == 0)
		produce_upkeep_due(&p->worker);
}

static void
on_flush(evutil_socket_t fd, short what, void *argument)
{
	struct process *p = argument;

	(void)fd;
	(void)what;
	p->flush.armed_ns = 0;
	p->worker.now_ns = clock_now_ns();
	produce_flush_due(&p->worker);
}

static void
on_retain(evutil_socket_t fd, short what, void *argument)
{
	struct process *p = argument;

	(void)fd;
	(void)what;
	p->retain.armed_ns = 0;
	p->worker.now_ns = clock_now_ns();
	retain_due(&p->worker);
}

/* ---- The loop ---- */

/* Without memory for it the next turn tries again, which comes with the heartbeat if nothing else brings one. */
static void
arm(struct deadline *deadline, int64_t at_ns)
{
	struct timeval wait;

	if (at_ns == INT64_MAX || (deadline->armed_ns != 0 && deadline->armed_ns <= at_ns))
		return;
	wait = clock_until(at_ns);
	if (event_add(&deadline->timer, &wait) == 0)
		deadline->armed_ns = at_ns;
}

/* The last words of a process that owns the logs. */
static void
release(struct process *p)
{
	struct worker *worker = &p->worker;
	struct message_end *ends = calloc((size_t)worker->lane_count + 1, sizeof(*ends));
	int32_t count = ends == NULL ? 0 : lane_release_all(worker, ends);

	if (board_detach(&worker->boards[worker->number]) != 0)
		log_fatal(1, "no memory to let go of the board");
	inbox_say_released(p->channel, ends, count);
	free(ends);
	p->drain = DRAIN_RELEASED;
	begin_end(p);
	connections_return(worker->connections);
}

/* Goes on with handing over the logs; called in each turn. True when it has just released them: connections are to go. */
static bool
advance_drain(struct process *p)
{
	struct worker *worker = &p->worker;

	if (worker->stopping)
		return false;
	worker->now_ns = clock_now_ns();
	if (p->drain == DRAIN_FORCING && produce_force_pass(worker)) {
		worker->draining = true;
		p->drain = DRAIN_FINISHING;
	}
	if (p->drain != DRAIN_FINISHING || !produce_finished(worker))
		return false;
	release(p);
	return true;
}

/* Their clients are about to be cut. */
static void
name_unfinished(const struct process *p)
{
	size_t waiting = channel_queued(p->channel);

	connections_name_unfinished(p->worker.connections);
	if (waiting > 0)
		log_warning("drain_timeout is over: the supervisor takes nothing, and %zu connection%s cut that %s given back to it",
		    waiting, waiting == 1 ? " is" : "s are", waiting == 1 ? "was" : "were");
}

/* Answers have left and been acknowledged, connections given away have gone, or the time for both is over; and
 * everything that was written is forced. */
static bool
stopped(struct process *p)
{
	bool forced, answered;

	if (p->stop_deadline_ns == 0)
		return false;
	p->worker.overdue = clock_now_ns() >= p->stop_deadline_ns;
	/* Of released logs only when the broker stops: should nobody have taken them over, nobody else forces them. */
	forced = (p->drain == DRAIN_RELEASED && !p->worker.stopping) || produce_force_all(&p->worker);
	forced = forced && jobs_outstanding(p->worker.jobs) == 0;
	answered = connections_unfinished(p->worker.connections) == 0 && (channel_queued(p->channel) == 0 || p->channel_broken);
	if (forced && !answered && p->worker.overdue)
		name_unfinished(p);
	return forced && (answered || p->worker.overdue);
}

static void
run(struct process *p)
{
	bool more = false;

	while (!stopped(p)) {
		event_base_loop(p->base, more ? EVLOOP_ONCE | EVLOOP_NONBLOCK : EVLOOP_ONCE);
		more = connections_turn(p->worker.connections, produce_write_all);
		more = advance_drain(p) || more;
		flush_channel(p);
		arm(&p->flush, p->worker.flush_deadline_ns);
		arm(&p->retain, p->worker.retain_deadline_ns);
	}
}

/* ---- Set-up ---- */

static void
logs_opened(void *context, int32_t opened, int32_t failed)
{
	struct process *p = context;

	if (failed == 0)
		log_info("serving %d partition%s", opened, opened == 1 ? "" : "s");
	else
		log_warning("serving %d partition%s, %d could not be opened", opened, opened == 1 ? "" : "s", failed);
	if (p->worker.stopping)
		return;
	inbox_say_serving(p->channel, opened, failed);
	/* What the worker before this one has left unforced. */
	produce_flush_due(&p->worker);
}

static struct event_base *
new_base(void)
{
	struct event_config *config = event_config_new();
	struct event_base *base = NULL;

	if (config != NULL && event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV) == 0 &&
	    event_config_require_features(config, EV_FEATURE_ET | EV_FEATURE_EARLY_CLOSE) == 0)
		base = event_base_new_with_config(config);
	if (config != NULL)
		event_config_free(config);
	return base;
}

/* Returns 0, or -1: one of them would never come. */
static int
assign_events(struct process *p)
{
	struct timeval second = { HEARTBEAT_S, 0 };
	int fd = channel_fd(p->channel);

	event_assign(&p->channel_readable, p->base, fd, EV_READ | EV_PERSIST, on_channel_readable, p);
	event_assign(&p->channel_writable, p->base, fd, EV_WRITE, on_channel_writable, p);
	evtimer_assign(&p->channel_retry, p->base, on_channel_retry, p);
	event_assign(&p->jobs_readable, p->base, jobs_fd(p->worker.jobs), EV_READ | EV_PERSIST, on_jobs, p);
	evsignal_assign(&p->terminate, p->base, SIGTERM, on_terminate, p);
	event_assign(&p->heartbeat, p->base, -1, EV_PERSIST, on_heartbeat, p);
	evtimer_assign(&p->flush.timer, p->base, on_flush, p);
	evtimer_assign(&p->retain.timer, p->base, on_retain, p);
	if (event_add(&p->channel_readable, NULL) != 0 || event_add(&p->jobs_readable, NULL) != 0
	    || event_add(&p->terminate, NULL) != 0)
		return -1;
	return event_add(&p->heartbeat, &second);
}

/* The lock file names who holds it. */
static void
sign_lock(const struct worker *worker)
{
	if (lockfile_sign_worker(MESSAGE_LOCK_FD, worker->number) != 0)
		log_warning("cannot write the lock file: %s; another supervisor could not name this process", strerror(errno));
}

/*
 * The kernel's table of descriptors starts small and doubles. In a process with threads each time takes ten milliseconds and
 * more, since the kernel waits until no thread can be looking into the old one (RCU): a thousand connections to be taken over
 * from another worker would wait for five of those. So it is made large while there is one thread; it never shrinks.
 */
static void
enlarge_descriptor_table(void)
{
	struct rlimit limit;
	int fd = -1;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
		fd = fcntl(MESSAGE_CHANNEL_FD, F_DUPFD_CLOEXEC, (int)(limit.rlim_cur < DESCRIPTORS ? limit.rlim_cur : DESCRIPTORS) - 1);
	if (fd >= 0)
		close(fd);
}

static void
set_up(struct process *p)
{
	struct worker *worker = &p->worker;

	enlarge_descriptor_table();
	p->channel = channel_new(MESSAGE_CHANNEL_FD);
	if (p->channel == NULL)
		log_fatal(1, "no memory");
	inbox_set_up(p->channel, worker);
	worker->flush_deadline_ns = INT64_MAX;
	worker->retain_deadline_ns = INT64_MAX;
	worker->data_fd = open(worker->data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (worker->data_fd < 0)
		log_fatal(1, "%s: %s", worker->data_dir, strerror(errno));
	p->base = new_base();
	worker->jobs = jobs_new();
	if (worker->jobs == NULL)
		log_fatal(1, "cannot start a thread for disk work: %s; raise the limit on processes, or that on memory",
		    strerror(errno));
	if (p->base == NULL)
		log_fatal(1, "cannot set up the event loop: %s", strerror(errno));
	worker->connections = connections_new(worker, p->base, p->channel);
	if (worker->connections == NULL || lane_create_all(worker) != 0)
		log_fatal(1, "no memory for %d partitions", worker->topics.slot_counts[worker->number]);
	if (assign_events(p) != 0)
		log_fatal(1, "no memory for the event loop");
	sign_lock(worker);
	inbox_await_start(p->channel, worker);
	/* The board and the logs are this process's now. */
	board_clear_gauges(&worker->boards[worker->number]);
	board_set(&worker->counters->heartbeat_ns, clock_now_ns());
	opening_begin_all(worker, logs_opened, p);
}

/* With the event loop its handlers go, and what comes then must not kill a process that ends in order. */
static void
hold_signals(void)
{
	sigset_t late;

	sigemptyset(&late);
	sigaddset(&late, SIGTERM);
	sigprocmask(SIG_BLOCK, &late, NULL);
}

static void
shut_down(struct process *p)
{
	struct worker *worker = &p->worker;

	hold_signals();
	jobs_free(worker->jobs);
	connections_free(worker->connections);
	if (p->drain != DRAIN_RELEASED)
		lane_leave_all(worker);
	lane_free_all(worker);
	event_base_free(p->base);
	for (int32_t group = 0; group < worker->topics.group_count; group++)
		board_unmap(&worker->boards[group]);
	free(worker->boards);
	topics_free(&worker->topics);
	close(worker->data_fd);
	free(worker->data_dir);
	channel_free(p->channel);
}

/* The terminal's signals are the supervisor's; it tells what they mean. */
static void
ignore_signals(void)
{
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	/* A file that may grow no more is an error of the write, and the partition's alone. */
	signal(SIGXFSZ, SIG_IGN);
}

static bool
started_by_supervisor(void)
{
	int type = 0;
	socklen_t size = sizeof(type);

	return getsockopt(MESSAGE_CHANNEL_FD, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

int
main(int argc, char **argv)
{
	struct process process = { .channel_broken = false };

	if (argc > 1 && strcmp(argv[1], "--version") == 0) {
		printf("logworker %s\n", PACKAGE_VERSION);
		return 0;
	}
	if (argc > 1 || !started_by_supervisor()) {
		fprintf(stderr, "logworker is started by logsupervisor only; see logsupervisor(8)\n");
		return argc == 2 && strcmp(argv[1], "-h") == 0 ? 0 : 64;
	}
	log_open("worker", LOG_INFO);
	ignore_signals();
	set_up(&process);
	run(&process);
	log_info("stopped");
	shut_down(&process);
	return 0;
}
