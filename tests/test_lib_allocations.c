/*
 * The client library's connection allocates nothing once it runs: pipelined PRODUCE and FETCH of many sizes.
 * Under a sanitizer nothing can be counted; the dialogue is held all the same.
 */
#include <check.h>
#include <poll.h>
#include <stdio.h>

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

static Suite *
allocations_suite(void)
{
	Suite *suite = suite_create("lib_allocations");
	TCase *core = tcase_create("allocations");

	tcase_set_timeout(core, UNIT_TIMEOUT_S);
	tcase_add_test(core, a_running_connection_allocates_nothing);
	suite_add_tcase(suite, core);
	return suite;
}

int
main(void)
{
	return unit_run(allocations_suite());
}
