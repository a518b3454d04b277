/*
 * The client library's connection allocates nothing once it runs: pipelined PRODUCE and FETCH of many sizes. And an
 * allocation that fails is told, whichever it is. Under a sanitizer nothing can be counted; the dialogue is held all
 * the same.
 */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/lib/logbroker.h"
#include "tests/allocations.h"
#include "tests/peer.h"
#include "tests/unit.h"

enum { PIPELINE = 32, ROUNDS = 50, RECORD_BYTES_MAX = 1000, PAYLOAD_BYTES = 4000 };

static struct peer peer;
static struct lb_connection *connection;
static struct wire_bytes answers;
static uint8_t data[PAYLOAD_BYTES];
static int accepted, completed, failed;

static void
on_produced(void *context, const struct lb_produced *produced, const struct lb_error *error)
{
	(void)context;
	(void)error;
	completed++;
	failed += produced == NULL;
}

static void
on_fetched(void *context, const struct lb_fetched *fetched, const struct lb_error *error)
{
	(void)context;
	(void)error;
	completed++;
	failed += fetched == NULL || fetched->payload_bytes != PAYLOAD_BYTES;
}

static void
submit(int round)
{
	struct lb_fetch fetch = { .topic = "t", .max_bytes = PAYLOAD_BYTES };

	for (int i = 0; i < PIPELINE; i++) {
		struct lb_payload record = { .data = data, .bytes = (size_t)((round * 7 + i * 97) % RECORD_BYTES_MAX + 1) };

		accepted += lb_connection_submit_produce(connection, "t", 0, LB_ACK_WRITTEN, &record, 1, on_produced, NULL, NULL) == LB_OK;
		if (i % 4 == 0)
			accepted += lb_connection_submit_fetch(connection, &fetch, on_fetched, NULL, NULL) == LB_OK;
	}
	while (lb_source_wants(lb_connection_source(connection)).events & POLLOUT)
		lb_source_poll(lb_connection_source(connection), 1000);
}

static void
answer(void)
{
	answers.length = 0;
	for (int i = 0; i < PIPELINE + PIPELINE / 4; i++) {
		struct peer_request request = peer_take(&peer);

		if (request.api == WIRE_FETCH)
			peer_put_fetched(&answers, request.id, 1, data, PAYLOAD_BYTES);
		else
			peer_put_good(&answers, &request);
	}
	peer_send(&peer, answers.data, answers.length);
}

/* Counted is the library only, not the peer that answers it. */
static void
run_rounds(bool counted)
{
	for (int round = 0; round < ROUNDS; round++) {
		allocations_watch(counted);
		submit(round);
		allocations_watch(false);
		answer();
		allocations_watch(counted);
		while (completed < accepted)
			lb_source_poll(lb_connection_source(connection), 1000);
		allocations_watch(false);
	}
}

/* Every size that comes has come before, which is all that a steady state means here. */
START_TEST(a_running_connection_allocates_nothing)
{
	peer_listen(&peer);
	ck_assert_int_eq(lb_connection_open(&connection, peer.address, NULL, NULL), LB_OK);
	peer_accept(&peer, lb_connection_source(connection));
	peer.source = NULL;
	run_rounds(false);
	run_rounds(true);
	ck_assert_int_eq(accepted, 2 * ROUNDS * (PIPELINE + PIPELINE / 4));
	ck_assert_int_eq(failed, 0);
	if (!allocations_are_counted())
		printf("a_running_connection_allocates_nothing: skipped, a sanitizer allocates here\n");
	ck_assert_uint_eq(allocations_count(), 0);
	allocations_watch(true);
	lb_connection_free(connection);
	ck_assert_int_eq(lb_connection_open(&connection, peer.address, NULL, NULL), LB_OK);
	allocations_watch(false);
	if (allocations_are_counted())
		ck_assert_uint_gt(allocations_count(), 0);
	lb_connection_free(connection);
	wire_bytes_free(&answers);
	peer_stop(&peer);
}
END_TEST

/* ---- one that fails ---- */

struct outcome {
	int accepted, completed;	/* of the submitted operations */
	int good;			/* synchronous calls */
};

static void
on_outcome_produced(void *context, const struct lb_produced *produced, const struct lb_error *error)
{
	(void)produced;
	(void)error;
	((struct outcome *)context)->completed++;
}

static void
on_outcome_fetched(void *context, const struct lb_fetched *fetched, const struct lb_error *error)
{
	(void)fetched;
	(void)error;
	((struct outcome *)context)->completed++;
}

static void
on_outcome_metadata(void *context, struct lb_metadata *metadata, const struct lb_error *error)
{
	(void)error;
	lb_metadata_free(metadata);
	((struct outcome *)context)->completed++;
}

static void
hold_dialogue(struct outcome *outcome)
{
	struct lb_payload record = { .data = data, .bytes = 10 };
	struct lb_fetch fetch = { .topic = "t", .max_bytes = PAYLOAD_BYTES };
	struct lb_fetched fetched;
	struct lb_metadata *metadata;

	if (lb_connection_open(&connection, peer.address, NULL, NULL) != LB_OK)
		return;
	outcome->accepted += lb_connection_submit_produce(connection, "t", 0, LB_ACK_WRITTEN, &record, 1, on_outcome_produced,
	    outcome, NULL) == LB_OK;
	outcome->accepted += lb_connection_submit_fetch(connection, &fetch, on_outcome_fetched, outcome, NULL) == LB_OK;
	outcome->accepted += lb_connection_submit_metadata(connection, NULL, 0, on_outcome_metadata, outcome, NULL) == LB_OK;
	outcome->good += lb_connection_fetch(connection, &fetch, &fetched, NULL) == LB_OK;
	if (lb_connection_metadata(connection, NULL, 0, &metadata, NULL) == LB_OK) {
		lb_metadata_free(metadata);
		outcome->good++;
	}
	lb_connection_free(connection);
}

static void
serve_one(int fd)
{
	struct wire_bytes in = { 0 }, out = { 0 };
	uint8_t bytes[4096];
	long got;

	while ((got = wire_receive(fd, bytes, sizeof(bytes), 60000)) > 0) {
		wire_put(&in, bytes, (size_t)got);
		out.length = 0;
		while (in.length >= 4 && in.length >= 4 + (size_t)wire_get_i32(in.data)) {
			size_t frame = 4 + (size_t)wire_get_i32(in.data);
			struct peer_request request = { .api = wire_get_i16(in.data + 4), .version = wire_get_i16(in.data + 6),
				.id = wire_get_i32(in.data + 8) };

			peer_put_good(&out, &request);
			in.length -= frame;
			memmove(in.data, in.data + frame, in.length);
		}
		if (wire_send(fd, out.data, out.length) != 0)
			break;
	}
	wire_bytes_free(&in);
	wire_bytes_free(&out);
	close(fd);
}

/* Until the listener is shut down. */
static void *
serve(void *unused)
{
	struct pollfd listener = { .fd = peer.listener, .events = POLLIN };
	int fd;

	while (poll(&listener, 1, -1) >= 0 && (fd = accept4(peer.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		serve_one(fd);
	return unused;
}

/* The first one that fails, the second, ... until a dialogue needs no more than came before. */
START_TEST(an_allocation_that_fails_is_told)
{
	struct outcome outcome;
	pthread_t server;
	unsigned long n = 0;

	if (!allocations_are_counted()) {
		printf("an_allocation_that_fails_is_told: skipped, a sanitizer allocates here\n");
		return;
	}
	peer_listen(&peer);
	ck_assert_int_eq(pthread_create(&server, NULL, serve, NULL), 0);
	do {
		outcome = (struct outcome){ 0 };
		allocations_fail_at(++n);
		allocations_watch(true);
		hold_dialogue(&outcome);
		allocations_watch(false);
		ck_assert_int_eq(outcome.completed, outcome.accepted);
	} while (allocations_count() >= n);
	ck_assert_uint_gt(n, 10);
	ck_assert_int_eq(outcome.accepted, 3);
	ck_assert_int_eq(outcome.good, 2);
	shutdown(peer.listener, SHUT_RDWR);
	pthread_join(server, NULL);
	peer_stop(&peer);
}
END_TEST

static Suite *
allocations_suite(void)
{
	Suite *suite = suite_create("lib_allocations");
	TCase *core = tcase_create("allocations");

	tcase_set_timeout(core, UNIT_TIMEOUT_S);
	tcase_add_test(core, a_running_connection_allocates_nothing);
	tcase_add_test(core, an_allocation_that_fails_is_told);
	suite_add_tcase(suite, core);
	return suite;
}

int
main(void)
{
	return unit_run(allocations_suite());
}
