/*
 * logsupervisor: the process that owns whatever must outlive a worker. This file only wires: it loads the settings,
 * sets everything up in the order in which it can fail, runs the loop, and shuts down.
 */
#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "supervisor/boards.h"
#include "supervisor/control.h"
#include "supervisor/crew.h"
#include "supervisor/endpoint.h"
#include "supervisor/handover.h"
#include "supervisor/http.h"
#include "supervisor/listener.h"
#include "supervisor/lock.h"
#include "supervisor/notify.h"
#include "supervisor/options.h"
#include "supervisor/orders.h"
#include "supervisor/parking.h"
#include "supervisor/placement.h"
#include "supervisor/process.h"
#include "supervisor/reload.h"
#include "supervisor/reloading.h"
#include "supervisor/reserve.h"
#include "supervisor/service.h"
#include "supervisor/settings.h"
#include "supervisor/setup.h"
#include "supervisor/silence.h"
#include "supervisor/spawn.h"
#include "supervisor/spare.h"
#include "supervisor/status.h"
#include "supervisor/systemd.h"

enum {
	EXIT_HELD = 75,		/* the data directory, by another broker */
	EXIT_CONFIG = 78,
	DIRECTORY_UMASK = 0027,	/* files 0640, directories 0750, whatever was inherited */
	SIGNALS = 4,
	CONNECTIONS_MIN = 8,	/* when descriptors allow fewer (and fewer than asked for), it is not worth starting */
	STOP_MARGIN_S = 5,	/* what the supervisor itself may need when it stops, on top of what its workers get */
	SERVERS_MAX = 8,	/* of pages: `http` (a name can have several addresses) and `control` */
};

static const char unix_prefix[] = "unix:";

struct broker {
	struct settings settings;
	struct topics topics;
	struct boards boards;
	struct lock lock;
	struct reserve reserve;
	struct endpoints listen, web, control;
	char program[PATH_MAX];
	struct setup setup;
	struct reload reload;
	struct reloading *reloading;

	struct event_base *base;
	struct event *signals[SIGNALS];
	struct parking *parking;
	struct handover *handover;
	struct crew *crew;
	struct listener *listener;
	struct silence *silence;
	struct notify notify;
	struct service *service;
	struct status status;
	struct orders *orders;
	struct control *calls;
	struct http *servers[SERVERS_MAX];
	int server_count;
	bool stopping, failed;
};

/* ---- set-up, step by step; each returns 0, or the exit status after an error line ---- */

static int
fail(const char *what)
{
	log_error("cannot start: %s: %s", what, strerror(errno));
	return EXIT_FAILURE;
}

static void
log_warnings(char *lines)
{
	char *rest = NULL;

	for (char *line = strtok_r(lines, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
		log_warning("%s", line);
}

/* Errors of the configuration have a form of their own; its warnings are log lines like others, but for -t. */
static int
check_data(const struct broker *broker, const struct options *options)
{
	char *lines = NULL;
	size_t length;
	FILE *warnings;
	int result;

	if (options->check)
		return settings_check_data(&broker->settings, options->config, stderr, stderr) == 0 ? 0 : EXIT_CONFIG;
	warnings = open_memstream(&lines, &length);
	if (warnings == NULL)
		return fail("warnings");
	result = settings_check_data(&broker->settings, options->config, stderr, warnings);
	/* Without memory glibc may close it well and leave nothing. */
	if (fclose(warnings) == 0 && lines != NULL)
		log_warnings(lines);
	else
		log_warning("no memory for the warnings about the configuration: see logsupervisor -t");
	free(lines);
	return result == 0 ? 0 : EXIT_CONFIG;
}

static int
load(struct broker *broker, const struct options *options)
{
	int status;

	if (settings_read(options->config, &broker->settings, stderr) != 0) {
		memset(&broker->settings, 0, sizeof(broker->settings));
		return EXIT_CONFIG;
	}
	if (options->verbose)
		broker->settings.log_level = LOG_DEBUG;
	log_open("supervisor", (enum log_level)broker->settings.log_level);
	broker->reload.path = options->config;
	broker->reload.verbose = options->verbose;
	status = check_data(broker, options);
	if (status == 0 && placement_build(&broker->settings, &broker->topics) != 0)
		status = fail("placement of partitions");
	return status;
}

static int
check_descriptors(struct broker *broker)
{
	struct settings *settings = &broker->settings;
	int32_t largest = placement_largest_group(&broker->topics);
	int64_t limit = process_raise_descriptor_limit();
	int64_t allowed = process_connections_allowed(limit, settings->workers, largest);

	broker->reload.connections_allowed = allowed;
	if (settings->max_connections <= allowed)
		return 0;
	if (allowed < CONNECTIONS_MIN && allowed < settings->max_connections) {
		log_error("cannot start: the limit of descriptors is %lld; the supervisor with %d worker%s and up to %d "
		    "partition%s in one of them keeps %lld, and each connection may need two (raise LimitNOFILE or ulimit -n)",
		    (long long)limit, (int)settings->workers, settings->workers == 1 ? "" : "s", (int)largest,
		    largest == 1 ? "" : "s", (long long)process_descriptors_kept(settings->workers, largest));
		return EXIT_FAILURE;
	}
	log_warning("max_connections is lowered from %lld to %lld: the limit of descriptors is %lld, and a connection may need "
	    "two (raise LimitNOFILE or ulimit -n)", (long long)settings->max_connections, (long long)allowed,
	    (long long)limit);
	settings->max_connections = allowed;
	return 0;
}

static void
announce(const struct broker *broker)
{
	const struct settings *settings = &broker->settings;

	if (settings->workers < settings->workers_asked)
		log_info("%d worker%s instead of %d: there are no more partitions", (int)settings->workers,
		    settings->workers == 1 ? "" : "s", (int)settings->workers_asked);
	if (geteuid() == 0)
		log_warning("running as root: the broker needs no privileges, give it a user of its own");
}

static int
take_lock(struct broker *broker)
{
	switch (lock_take(&broker->lock, broker->settings.data_dir)) {
	case LOCK_TAKEN:
		return 0;
	case LOCK_HELD:
		return EXIT_HELD;
	default:
		return EXIT_FAILURE;
	}
}

/* Who may open the control socket is decided by the mode of its file. */
static int
adopt_control(struct broker *broker, int descriptor)
{
	const struct endpoint *adopted;

	if (endpoints_adopt(&broker->control, descriptor) != 0)
		return -1;
	adopted = &broker->control.list[broker->control.count - 1];
	if (strncmp(adopted->text, unix_prefix, strlen(unix_prefix)) == 0)
		return 0;
	log_error("descriptor %d, passed by the service manager as 'control', is %s: it must be a Unix socket", descriptor,
	    adopted->text);
	return -1;
}

/* Sockets of the service manager stand in for what the settings say of the same purpose. */
static int
adopt_sockets(struct broker *broker)
{
	int count = systemd_socket_count();

	for (int i = 0; i < count; i++) {
		int descriptor = SYSTEMD_FIRST_FD + i;
		int result;

		if (systemd_socket_named(i, "control"))
			result = adopt_control(broker, descriptor);
		else
			result = endpoints_adopt(systemd_socket_named(i, "http") ? &broker->web : &broker->listen, descriptor);
		if (result != 0)
			return EXIT_FAILURE;
	}
	systemd_forget();
	return 0;
}

static int
open_sockets(struct broker *broker)
{
	struct settings *settings = &broker->settings;
	struct settings_address control = { .text = settings->control, .path = settings->control };

	if (adopt_sockets(broker) != 0)
		return EXIT_FAILURE;
	if (broker->listen.count == 0)
		for (int i = 0; i < settings->listen_count; i++)
			if (endpoints_open(&broker->listen, &settings->listen[i], ENDPOINT_LISTEN_MODE) != 0)
				return EXIT_FAILURE;
	if (broker->web.count == 0 && settings->http.text != NULL &&
	    endpoints_open(&broker->web, &settings->http, ENDPOINT_LISTEN_MODE) != 0)
		return EXIT_FAILURE;
	if (broker->control.count == 0 && settings->control != NULL &&
	    endpoints_open(&broker->control, &control, ENDPOINT_CONTROL_MODE) != 0)
		return EXIT_FAILURE;
	return 0;
}

static int
prepare_workers(struct broker *broker)
{
	if (spawn_find_program(LIBEXECDIR, broker->program, sizeof(broker->program)) != 0) {
		log_error("cannot start: no worker program beside this one, and %s: %s", broker->program, strerror(errno));
		return EXIT_FAILURE;
	}
	if (boards_create(&broker->boards, &broker->topics) != 0)
		return fail("boards (shared memory)");
	broker->setup = (struct setup){ &broker->settings, &broker->topics, &broker->boards, broker->lock.data_dir,
		broker->settings.log_level, 0 };
	return 0;
}

/* ---- what the parts tell one another ---- */

static void
on_accepted(void *context, int descriptor)
{
	struct broker *broker = context;

	handover_fresh(broker->handover, descriptor);
}

static void
on_returned(void *context, const struct connection *connection)
{
	struct broker *broker = context;

	handover_returned(broker->handover, connection);
}

static void
on_serving(void *context, int32_t group)
{
	struct broker *broker = context;

	handover_serving(broker->handover, group);
}

/* Of what a reload can change at once these have copies. */
static void
on_applied(void *context)
{
	struct broker *broker = context;
	const struct settings *settings = &broker->settings;

	log_open("supervisor", (enum log_level)settings->log_level);
	parking_set_timeout(broker->parking, settings->request_timeout_ms * CLOCK_NS_PER_MS);
	handover_set_max_connections(broker->handover, settings->max_connections);
}

static void
on_orders_idle(void *context)
{
	struct broker *broker = context;

	reloading_orders_idle(broker->reloading);
}

static void
on_reload_begun(void *context)
{
	struct broker *broker = context;

	notify_reloading(&broker->notify);
}

/* Whatever has become of it; a stop has been told already. */
static void
on_reload_ended(void *context)
{
	struct broker *broker = context;

	if (!broker->stopping)
		notify_ready(&broker->notify);
}

static void
print_endpoints(FILE *to, const char *key, const struct endpoints *endpoints)
{
	fprintf(to, " %s=%s", key, endpoints->count == 0 ? "off" : "");
	for (int i = 0; i < endpoints->count; i++)
		fprintf(to, "%s%s", i > 0 ? "," : "", endpoints->list[i].text);
}

static void
put_ready(FILE *to, const struct broker *broker)
{
	const struct endpoints *control = &broker->control;

	fputs("ready:", to);
	print_endpoints(to, "listen", &broker->listen);
	print_endpoints(to, "http", &broker->web);
	fprintf(to, " control=%s", control->count == 0 ? "off" : control->list[0].text + strlen(unix_prefix));
	fprintf(to, " workers=%d partitions=%lld pid=%ld\n", (int)broker->topics.group_count,
	    (long long)placement_partitions(&broker->topics), (long)getpid());
}

/* Scripts read this line: its form is fixed, and no log level hides it. In one piece, unless memory for that is out. */
static void
print_ready(const struct broker *broker)
{
	char *line = NULL;
	size_t length;
	FILE *to = open_memstream(&line, &length);

	if (to != NULL)
		put_ready(to, broker);
	if (to == NULL || fclose(to) != 0 || line == NULL)
		put_ready(stderr, broker);
	else if (write(STDERR_FILENO, line, length) < 0)
		log_debug("stderr is closed");
	free(line);
}

static void
tell_stopping(struct broker *broker)
{
	notify_stopping(&broker->notify, crew_stop_limit_ns(broker->crew) + STOP_MARGIN_S * (int64_t)CLOCK_NS_PER_S);
}

static void
stop(struct broker *broker)
{
	broker->stopping = true;
	tell_stopping(broker);
	listener_stop(broker->listener);
	endpoints_close(&broker->listen);
	handover_stop(broker->handover);
	crew_stop(broker->crew);
}

static void
on_ready(void *context)
{
	struct broker *broker = context;

	if (listener_start(broker->listener) == 0) {
		print_ready(broker);
		notify_ready(&broker->notify);
		reloading_orders_idle(broker->reloading);
		service_look(broker->service);
		return;
	}
	log_error("cannot accept connections: %s; stopping", strerror(errno));
	broker->failed = true;
	stop(broker);
}

static void
on_stopped(void *context)
{
	struct broker *broker = context;

	event_base_loopbreak(broker->base);
}

/* ---- signals ---- */

static void
on_terminate(evutil_socket_t number, short what, void *context)
{
	struct broker *broker = context;

	(void)what;
	if (broker->stopping) {
		log_info("signal %d: stopping already", (int)number);
		return;
	}
	log_info("signal %d: stopping", (int)number);
	stop(broker);
}

static void
on_hangup(evutil_socket_t number, short what, void *context)
{
	struct broker *broker = context;

	(void)number;
	(void)what;
	if (!broker->stopping)
		reloading_ask(broker->reloading);
}

static void
on_child(evutil_socket_t number, short what, void *context)
{
	struct broker *broker = context;

	(void)number;
	(void)what;
	crew_reap(broker->crew);
}

static int
catch_signals(struct broker *broker)
{
	static const struct {
		int number;
		event_callback_fn caught;
	} wanted[SIGNALS] = {
		{ SIGTERM, on_terminate }, { SIGINT, on_terminate }, { SIGHUP, on_hangup }, { SIGCHLD, on_child },
	};

	signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < SIGNALS; i++) {
		broker->signals[i] = evsignal_new(broker->base, wanted[i].number, wanted[i].caught, broker);
		if (broker->signals[i] == NULL || evsignal_add(broker->signals[i], NULL) != 0)
			return -1;
	}
	return 0;
}

static void
on_library_line(int severity, const char *text)
{
	static struct log_limit limit;
	char more[LOG_MORE_BYTES];

	if (severity >= EVENT_LOG_WARN && log_limit_pass(&limit, 10 * (int64_t)CLOCK_NS_PER_S, more))
		log_warning("libevent: %s%s", text, more);
}

/* ---- the whole ---- */

/* The endpoints' sockets become the servers'; their files stay the endpoints'. `calls` may be NULL. */
static int
serve_pages(struct broker *broker, struct endpoints *endpoints, const struct http_call *calls)
{
	const struct http_offer offer = { status_pages(), &broker->status, calls, broker->calls };

	for (int i = 0; i < endpoints->count; i++) {
		struct http *server = NULL;

		errno = E2BIG;
		if (broker->server_count < SERVERS_MAX)
			server = http_new(broker->base, endpoints->list[i].descriptor, &offer);
		if (server == NULL)
			return -1;
		endpoints->list[i].descriptor = -1;
		broker->servers[broker->server_count++] = server;
	}
	return 0;
}

/* The environment does not choose how the loop waits (EVENT_NOEPOLL, EVENT_EPOLL_USE_CHANGELIST): sockets move. */
static struct event_base *
new_base(void)
{
	struct event_config *config = event_config_new();
	struct event_base *base = NULL;

	if (config != NULL && event_config_set_flag(config, EVENT_BASE_FLAG_IGNORE_ENV) == 0)
		base = event_base_new_with_config(config);
	if (config != NULL)
		event_config_free(config);
	return base;
}

static int
assemble(struct broker *broker)
{
	const struct crew_hooks hooks = { broker, on_returned, on_serving, on_ready, on_stopped };
	const struct orders_hooks orders_hooks = { broker, on_orders_idle };
	const struct reloading_hooks reloading_hooks = { broker, on_reload_begun, on_reload_ended };
	const struct settings *settings = &broker->settings;

	broker->reload.settings = &broker->settings;
	broker->reload.topics = &broker->topics;
	broker->reload.setup = &broker->setup;
	broker->reload.applied = on_applied;
	broker->reload.context = broker;
	event_set_log_callback(on_library_line);
	if (spare_begin() != 0)
		return fail("spare memory");
	broker->base = new_base();
	if (broker->base == NULL || catch_signals(broker) != 0)
		return fail("event loop");
	broker->parking = parking_new(broker->base, settings->request_timeout_ms * CLOCK_NS_PER_MS);
	if (broker->parking == NULL)
		return fail("parking");
	broker->handover = handover_new(broker->parking, settings->max_connections);
	broker->crew = crew_new(broker->base, &broker->setup, broker->program, &broker->reserve, broker->lock.descriptor,
	    &hooks);
	if (broker->handover == NULL || broker->crew == NULL)
		return fail("workers");
	handover_set_crew(broker->handover, broker->crew);
	broker->listener = listener_new(broker->base, &broker->listen, &broker->reserve, on_accepted, broker);
	broker->silence = silence_new(broker->base, broker->crew, &broker->boards);
	if (broker->listener == NULL || broker->silence == NULL)
		return fail("listener");
	broker->service = service_new(broker->base, &broker->notify, broker->crew, broker->handover, &broker->boards);
	if (broker->service == NULL)
		return fail("notification");
	broker->orders = orders_new(broker->crew, &orders_hooks);
	if (broker->orders == NULL)
		return fail("orders");
	broker->reloading = reloading_new(&broker->reload, broker->orders, broker->crew,
	    &reloading_hooks);
	if (broker->reloading == NULL)
		return fail("reload");
	broker->status = (struct status){ .crew = broker->crew, .handover = broker->handover, .parking = broker->parking,
		.listener = broker->listener, .topics = &broker->topics, .boards = &broker->boards,
		.data_descriptor = broker->lock.descriptor };
	broker->calls = control_new(broker->base, broker->orders, broker->reloading, &broker->status);
	if (broker->calls == NULL)
		return fail("control");
	if (status_init(&broker->status) != 0 || serve_pages(broker, &broker->web, NULL) != 0 ||
	    serve_pages(broker, &broker->control, control_calls()) != 0)
		return fail("HTTP");
	return 0;
}

static int
set_up(struct broker *broker)
{
	int status;

	/* Not before the configuration is read, which may come from a descriptor: -f /dev/fd/63. */
	process_close_from(SYSTEMD_FIRST_FD + systemd_socket_count());
	notify_init(&broker->notify);
	reserve_fill(&broker->reserve);
	status = check_descriptors(broker);
	if (status != 0)
		return status;
	announce(broker);
	status = take_lock(broker);
	if (status == 0)
		status = open_sockets(broker);
	if (status == 0)
		status = prepare_workers(broker);
	if (status == 0)
		status = assemble(broker);
	return status;
}

/* With the event loop the handlers go, and what comes then must not change how this ends. */
static void
hold_signals(void)
{
	sigset_t late;

	sigemptyset(&late);
	sigaddset(&late, SIGTERM);
	sigaddset(&late, SIGINT);
	sigaddset(&late, SIGHUP);
	sigprocmask(SIG_BLOCK, &late, NULL);
}

static void
tear_down(struct broker *broker)
{
	hold_signals();
	orders_free(broker->orders);
	control_free(broker->calls);
	for (int i = 0; i < broker->server_count; i++)
		http_free(broker->servers[i]);
	status_free(&broker->status);
	listener_free(broker->listener);
	silence_free(broker->silence);
	service_free(broker->service);
	notify_free(&broker->notify);
	crew_free(broker->crew);
	reloading_free(broker->reloading);
	handover_free(broker->handover);
	parking_free(broker->parking);
	for (int i = 0; i < SIGNALS; i++)
		if (broker->signals[i] != NULL)
			event_free(broker->signals[i]);
	if (broker->base != NULL)
		event_base_free(broker->base);
	endpoints_close(&broker->listen);
	endpoints_close(&broker->web);
	endpoints_close(&broker->control);
	reserve_release(&broker->reserve);
	spare_end();
	boards_free(&broker->boards);
	lock_free(&broker->lock);
	topics_free(&broker->topics);
	settings_free(&broker->settings);
}

static int
run(struct broker *broker)
{
	crew_begin(broker->crew);
	event_base_dispatch(broker->base);
	if (crew_unclean(broker->crew) || broker->failed)
		return EXIT_FAILURE;
	log_info("stopped");
	return EXIT_SUCCESS;
}

static int
check_only(const struct options *options)
{
	struct broker broker = { .lock.descriptor = -1 };
	int status = load(&broker, options);

	if (status == 0)
		printf("%s: configuration ok\n", options->config);
	topics_free(&broker.topics);
	settings_free(&broker.settings);
	return status;
}

int
main(int argc, char **argv)
{
	static struct broker broker = { .lock.descriptor = -1, .notify.descriptor = -1 };
	struct options options;
	int status;

	process_reset_signals();
	if (process_open_standard_descriptors() != 0)
		return EXIT_FAILURE;
	umask(DIRECTORY_UMASK);
	log_open("supervisor", LOG_INFO);
	status = options_parse(&options, argc, argv);
	if (status != OPTIONS_GO_ON)
		return status;
	if (options.check)
		return check_only(&options);
	if (options.print)
		return settings_print(options.config, stdout, stderr) == 0 ? EXIT_SUCCESS : EXIT_CONFIG;
	status = load(&broker, &options);
	if (status == 0)
		status = set_up(&broker);
	if (status == 0)
		status = run(&broker);
	tear_down(&broker);
	return status;
}
