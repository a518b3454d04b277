/*
 * liblogbroker-event: connections in a libevent loop, which finds all that they need by itself: connecting, answers,
 * deadlines, ends; and which sleeps when they are idle.
 */
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "client/lib/logbroker-event.h"
#include "tests/completions.h"
#include "tests/peer.h"
#include "tests/resolver.h"
#include "tests/unit.h"

enum { KINDS = 3, TICK_MS = 2 };

static struct peer peer;
static struct event_base *base;
static struct lb_connection *connection;
static struct completion seen[8];

/* So many events for descriptors find no memory. */
static int events_that_fail;

typedef struct event *event_new_function(struct event_base *loop, evutil_socket_t fd, short what, event_callback_fn called,
    void *context);

struct event *
event_new(struct event_base *loop, evutil_socket_t fd, short what, event_callback_fn called, void *context)
{
	if (fd >= 0 && events_that_fail > 0) {
		events_that_fail--;
		return NULL;
	}
	return ((event_new_function *)dlsym(RTLD_NEXT, "event_new"))(loop, fd, what, called, context);
}

static void
setup(void)
{
	for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++)
		completion_init(&seen[i]);
	completions_begin();
	peer_listen(&peer);
	base = event_base_new();
	ck_assert_ptr_nonnull(base);
}

static void
teardown(void)
{
	event_base_free(base);
	peer_stop(&peer);
}

static struct lb_connection *
open_attached(const char *address, int timeout_ms)
{
	struct lb_connection_options options = lb_connection_defaults();
	struct lb_connection *opened;

	options.timeout_ms = timeout_ms;
	ck_assert_int_eq(lb_connection_open(&opened, address, &options, NULL), LB_OK);
	ck_assert_int_eq(lb_event_attach(lb_connection_source(opened), base), 0);
	return opened;
}

/* The peer in the loop, too: accepts, takes whole requests, gives good answers. */
static void
serve(evutil_socket_t fd, short events, void *context)
{
	bool *silent = context;
	struct wire_bytes answers = { 0 };
	uint8_t bytes[4096];
	ssize_t got;

	(void)fd;
	(void)events;
	if (peer.fd < 0)
		peer.fd = accept4(peer.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	while (peer.fd >= 0 && (got = recv(peer.fd, bytes, sizeof(bytes), 0)) > 0)
		wire_put(&peer.in, bytes, (size_t)got);
	while (peer.in.length >= 4 && peer.in.length >= 4 + (size_t)wire_get_i32(peer.in.data)) {
		struct peer_request request = peer_take(&peer);

		if (!*silent)
			peer_put_good(&answers, &request);
	}
	if (answers.length > 0)
		peer_send(&peer, answers.data, answers.length);
	wire_bytes_free(&answers);
}

static struct event *
start_serving(bool *silent)
{
	struct timeval often = { .tv_usec = TICK_MS * 1000 };
	struct event *ticks = event_new(base, -1, EV_PERSIST, serve, silent);

	ck_assert_ptr_nonnull(ticks);
	ck_assert_int_eq(event_add(ticks, &often), 0);
	return ticks;
}

static void
loop_until(const struct completion *completion)
{
	int64_t until_ms = wire_now_ms() + 30000;

	while (completion->times == 0) {
		ck_assert_msg(wire_now_ms() < until_ms, "the loop does not complete it");
		ck_assert_int_eq(event_base_loop(base, EVLOOP_ONCE), 0);
	}
}

START_TEST(the_loop_finds_everything)
{
	bool silent = false;
	struct event *ticks = start_serving(&silent);

	connection = open_attached(peer.address, 30000);
	for (int round = 0; round < 2; round++) {
		for (int kind = 0; kind < KINDS; kind++) {
			completion_init(&seen[kind]);
			submit_kind(connection, kind, &seen[kind]);
		}
		for (int kind = 0; kind < KINDS; kind++) {
			loop_until(&seen[kind]);
			ck_assert_int_eq(seen[kind].code, LB_OK);
		}
	}
	event_free(ticks);
	lb_connection_free(connection);
}
END_TEST

START_TEST(the_loop_keeps_deadlines)
{
	bool silent = true;
	struct event *ticks = start_serving(&silent);

	connection = open_attached(peer.address, 50);
	submit_fetch(connection, 0, &seen[0]);
	loop_until(&seen[0]);
	ck_assert_int_eq(seen[0].code, LB_TIMED_OUT);
	event_free(ticks);
	lb_connection_free(connection);
}
END_TEST

/* The first address hangs, the second serves. _i: there is no memory for its events for a while. */
START_TEST(the_loop_follows_descriptors_from_address_to_address)
{
	bool silent = false;
	struct event *ticks = start_serving(&silent);
	struct peer deaf;
	char address[64];
	int fillers[2];

	peer_listen_at(&deaf, 2, peer_port(&peer));
	peer_fill_backlog(&deaf, fillers);
	resolver_set_order("21");
	snprintf(address, sizeof(address), "several.test:%d", peer_port(&peer));
	connection = open_attached(address, 3000);
	events_that_fail = 20 * _i;
	submit_fetch(connection, 60000, &seen[0]);
	loop_until(&seen[0]);
	ck_assert_int_eq(seen[0].code, LB_OK);
	ck_assert_int_eq(events_that_fail < 20 * _i, _i == 1);
	event_free(ticks);
	lb_connection_free(connection);
	peer_stop(&deaf);
}
END_TEST

START_TEST(an_attachment_without_memory_is_none)
{
	ck_assert_int_eq(lb_connection_open(&connection, peer.address, NULL, NULL), LB_OK);
	events_that_fail = 1;
	ck_assert_int_eq(lb_event_attach(lb_connection_source(connection), base), -1);
	ck_assert_int_eq(errno, ENOMEM);
	/* Nothing of it is left in the loop. */
	ck_assert_int_eq(event_base_loop(base, EVLOOP_NONBLOCK), 1);
	lb_connection_free(connection);
}
END_TEST

/* ---- freed, and others in their place ---- */

START_TEST(freed_inside_a_callback_from_the_loop)
{
	bool silent = false;
	struct event *ticks = start_serving(&silent);

	connection = open_attached(peer.address, 30000);
	for (int i = 0; i < 6; i++)
		submit_kind(connection, i % KINDS, &seen[i]);
	seen[_i].frees = connection;
	loop_until(&seen[_i]);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(seen[i].times, 1);
	event_free(ticks);
	/* Nothing of it is left in the loop. */
	ck_assert_int_eq(event_base_loop(base, EVLOOP_NONBLOCK), 1);
}
END_TEST

struct reopening {
	bool free_first;
	bool done;
};

/* What a program does on a loss: another connection at once, in the loop, while the one that calls is still there, or just freed. */
static void
reopen(void *context, const struct lb_fetched *fetched, const struct lb_error *error)
{
	struct reopening *reopening = context;
	struct lb_connection *old = connection;

	ck_assert_ptr_null(fetched);
	ck_assert_int_eq(error->code, LB_LOST);
	if (reopening->free_first)
		lb_connection_free(old);
	connection = open_attached(peer.address, 30000);
	if (!reopening->free_first)
		lb_connection_free(old);
	submit_fetch(connection, 0, &seen[0]);
	reopening->done = true;
}

START_TEST(bug_G7_opened_again_inside_the_callback_of_a_loss)
{
	bool silent = false;
	struct event *ticks = start_serving(&silent);
	struct lb_fetch fetch = { .topic = "t", .max_bytes = 1000 };
	int descriptors = 0;

	connection = open_attached(peer.address, 30000);
	for (int round = 0; round < 50; round++) {
		struct reopening reopening = { .free_first = _i == 1 };

		completion_init(&seen[0]);
		completion_init(&seen[1]);
		submit_fetch(connection, 0, &seen[1]);
		loop_until(&seen[1]);
		ck_assert_int_eq(lb_connection_submit_fetch(connection, &fetch, reopen, &reopening, NULL), LB_OK);
		peer_close(&peer);
		while (!reopening.done)
			event_base_loop(base, EVLOOP_ONCE);
		loop_until(&seen[0]);
		ck_assert_int_eq(seen[0].code, LB_OK);
		if (round == 0)
			descriptors = unit_open_descriptors();
		ck_assert_int_eq(unit_open_descriptors(), descriptors);
	}
	event_free(ticks);
	lb_connection_free(connection);
}
END_TEST

START_TEST(a_detached_source_is_left_alone)
{
	bool silent = false;
	struct event *ticks = start_serving(&silent);

	connection = open_attached(peer.address, 30000);
	submit_fetch(connection, 0, &seen[0]);
	loop_until(&seen[0]);
	event_free(ticks);
	lb_event_detach(lb_connection_source(connection));
	lb_event_detach(lb_connection_source(connection));
	submit_fetch(connection, 0, &seen[1]);
	ck_assert_int_eq(event_base_loop(base, EVLOOP_NONBLOCK), 1);
	lb_connection_free(connection);
	ck_assert_int_eq(seen[1].code, LB_CLOSED);
}
END_TEST

START_TEST(attached_twice_is_attached_once)
{
	bool silent = false;
	struct event *ticks = start_serving(&silent);

	connection = open_attached(peer.address, 30000);
	ck_assert_int_eq(lb_event_attach(lb_connection_source(connection), base), 0);
	submit_fetch(connection, 0, &seen[0]);
	loop_until(&seen[0]);
	event_free(ticks);
	lb_connection_free(connection);
	ck_assert_int_eq(event_base_loop(base, EVLOOP_NONBLOCK), 1);
}
END_TEST

/* ---- idle ---- */

static void
note(evutil_socket_t fd, short events, void *context)
{
	(void)fd;
	(void)events;
	*(bool *)context = true;
}

/* How often the loop turned while `ms` passed. */
static int
turns_within(int ms)
{
	struct timeval time = { .tv_usec = ms * 1000 };
	bool over = false;
	int turns = 0;

	ck_assert_int_eq(event_base_once(base, -1, EV_TIMEOUT, note, &over, &time), 0);
	while (!over) {
		ck_assert_int_eq(event_base_loop(base, EVLOOP_ONCE), 0);
		turns++;
	}
	return turns;
}

/* Open and idle; waiting for an answer; connecting; ended and not freed. */
START_TEST(the_loop_sleeps_while_nothing_happens)
{
	bool silent = false;
	struct event *ticks = start_serving(&silent);

	connection = open_attached(peer.address, 30000);
	submit_fetch(connection, 0, &seen[0]);
	loop_until(&seen[0]);
	event_free(ticks);
	ck_assert_int_le(turns_within(100), 2);
	submit_fetch(connection, 0, &seen[1]);
	/* One turn more: the request is sent. */
	ck_assert_int_le(turns_within(100), 3);
	ck_assert_int_eq(seen[1].times, 0);
	peer_close(&peer);
	loop_until(&seen[1]);
	ck_assert_int_le(turns_within(100), 2);
	lb_connection_free(connection);
}
END_TEST

START_TEST(the_loop_sleeps_while_it_connects)
{
	int fillers[2];

	peer_fill_backlog(&peer, fillers);
	connection = open_attached(peer.address, 30000);
	submit_fetch(connection, 0, &seen[0]);
	ck_assert_int_le(turns_within(100), 2);
	lb_connection_free(connection);
}
END_TEST

static Suite *
event_suite(void)
{
	Suite *suite = suite_create("lib_event");
	TCase *core = tcase_create("event");

	tcase_set_timeout(core, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(core, setup, teardown);
	tcase_add_test(core, the_loop_finds_everything);
	tcase_add_test(core, the_loop_keeps_deadlines);
	tcase_add_loop_test(core, the_loop_follows_descriptors_from_address_to_address, 0, 2);
	tcase_add_test(core, an_attachment_without_memory_is_none);
	tcase_add_loop_test(core, freed_inside_a_callback_from_the_loop, 0, 6);
	tcase_add_loop_test(core, bug_G7_opened_again_inside_the_callback_of_a_loss, 0, 2);
	tcase_add_test(core, a_detached_source_is_left_alone);
	tcase_add_test(core, attached_twice_is_attached_once);
	tcase_add_test(core, the_loop_sleeps_while_nothing_happens);
	tcase_add_test(core, the_loop_sleeps_while_it_connects);
	suite_add_tcase(suite, core);
	return suite;
}

int
main(void)
{
	return unit_run(event_suite());
}
