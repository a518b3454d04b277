/*
 * The four promises of logbroker.h about callbacks, meant for AddressSanitizer: an operation completes exactly once,
 * never before the submitting call has returned, never after the object's free function has; and any object may be
 * freed inside any callback.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/completions.h"
#include "tests/peer.h"
#include "tests/unit.h"

enum { KINDS = 3, OUTSTANDING = 6, SCHEDULES = 300, OPERATIONS_MAX = 400 };

static struct peer peer;
static struct lb_connection *connection;
static struct completion seen[OPERATIONS_MAX];

static void
open_for(int timeout_ms)
{
	struct lb_connection_options options = lb_connection_defaults();

	options.timeout_ms = timeout_ms;
	for (size_t i = 0; i < OPERATIONS_MAX; i++)
		completion_init(&seen[i]);
	completions_begin();
	ck_assert_int_eq(lb_connection_open(&connection, peer.address, &options, NULL), LB_OK);
}

static void
setup(void)
{
	peer_listen(&peer);
}

static void
teardown(void)
{
	peer_stop(&peer);
}

static void
expect_all_once(int count)
{
	for (int i = 0; i < count; i++)
		ck_assert_int_eq(seen[i].times, 1);
}

static void
turn_until(const struct completion *completion)
{
	int64_t until_ms = wire_now_ms() + 30000;

	while (completion->times == 0) {
		ck_assert_msg(wire_now_ms() < until_ms, "an operation does not complete");
		lb_source_poll(lb_connection_source(connection), 100);
	}
}

static void
answer_all(int count)
{
	struct wire_bytes answers = { 0 };

	for (int i = 0; i < count; i++) {
		struct peer_request request = peer_take(&peer);

		peer_put_good(&answers, &request);
	}
	peer_send(&peer, answers.data, answers.length);
	wire_bytes_free(&answers);
}

/* ---- freed inside a callback ---- */

/* _i: which of the outstanding ones frees, when all are answered at once. */
START_TEST(freed_inside_a_callback_of_an_answer)
{
	open_for(30000);
	peer_accept(&peer, lb_connection_source(connection));
	for (int i = 0; i < OUTSTANDING; i++)
		submit_kind(connection, i % KINDS, &seen[i]);
	seen[_i].frees = connection;
	answer_all(OUTSTANDING);
	turn_until(&seen[_i]);
	expect_all_once(OUTSTANDING);
	for (int i = 0; i < OUTSTANDING; i++) {
		int after = i % KINDS == 0 ? LB_OUTCOME_UNKNOWN : LB_CLOSED;

		ck_assert_int_eq(seen[i].code, i <= _i ? LB_OK : after);
		ck_assert_int_eq(seen[i].order, i <= _i ? i + 1 : seen[i].order);
	}
}
END_TEST

START_TEST(freed_inside_a_callback_of_a_loss)
{
	open_for(30000);
	peer_accept(&peer, lb_connection_source(connection));
	for (int i = 0; i < OUTSTANDING; i++)
		submit_kind(connection, i % KINDS, &seen[i]);
	seen[_i].frees = connection;
	peer_take(&peer);
	peer_close(&peer);
	turn_until(&seen[_i]);
	expect_all_once(OUTSTANDING);
}
END_TEST

START_TEST(freed_inside_a_callback_of_a_bad_answer)
{
	struct wire_bytes answer = { 0 };

	open_for(30000);
	peer_accept(&peer, lb_connection_source(connection));
	for (int i = 0; i < OUTSTANDING; i++)
		submit_kind(connection, i % KINDS, &seen[i]);
	seen[_i].frees = connection;
	/* The first one's is without a body, so its callback is the one that finds out. */
	peer_put_error(&answer, peer_take(&peer).id, 0);
	peer_send(&peer, answer.data, answer.length);
	wire_bytes_free(&answer);
	turn_until(&seen[_i]);
	expect_all_once(OUTSTANDING);
}
END_TEST

START_TEST(freed_inside_a_callback_of_a_deadline)
{
	open_for(50);
	peer_accept(&peer, lb_connection_source(connection));
	for (int i = 0; i < OUTSTANDING; i++)
		submit_kind(connection, i % KINDS, &seen[i]);
	seen[_i].frees = connection;
	turn_until(&seen[_i]);
	expect_all_once(OUTSTANDING);
}
END_TEST

START_TEST(freed_inside_a_callback_of_a_failed_connect)
{
	int fillers[2];

	peer_fill_backlog(&peer, fillers);
	open_for(50);
	for (int i = 0; i < OUTSTANDING; i++)
		submit_kind(connection, i % KINDS, &seen[i]);
	seen[_i].frees = connection;
	turn_until(&seen[_i]);
	expect_all_once(OUTSTANDING);
}
END_TEST

/* Without ack: completes inside the sending. All that left with it is told so. */
START_TEST(freed_inside_a_callback_of_a_sent_request)
{
	open_for(30000);
	peer_accept(&peer, lb_connection_source(connection));
	for (int i = 0; i < OUTSTANDING; i++) {
		if (i % 2 == 0)
			submit_produce(connection, LB_ACK_NONE, 10, &seen[i]);
		else
			submit_produce(connection, LB_ACK_WRITTEN, 10, &seen[i]);
	}
	seen[0].frees = connection;
	turn_until(&seen[0]);
	expect_all_once(OUTSTANDING);
	for (int i = 0; i < OUTSTANDING; i++)
		ck_assert_int_eq(seen[i].code, i % 2 == 0 ? LB_OK : LB_OUTCOME_UNKNOWN);
}
END_TEST

/* ---- freed with operations outstanding ---- */

START_TEST(freed_while_operations_wait_for_answers)
{
	open_for(30000);
	peer_accept(&peer, lb_connection_source(connection));
	for (int i = 0; i < KINDS; i++)
		submit_kind(connection, i, &seen[i]);
	for (int i = 0; i < KINDS; i++)
		peer_take(&peer);
	completions_free(connection);
	expect_all_once(KINDS);
	for (int i = 0; i < KINDS; i++)
		ck_assert_int_eq(seen[i].code, i == 0 ? LB_OUTCOME_UNKNOWN : LB_CLOSED);
}
END_TEST

START_TEST(freed_before_anything_was_sent)
{
	open_for(30000);
	for (int i = 0; i < KINDS; i++)
		submit_kind(connection, i, &seen[i]);
	submit_produce(connection, LB_ACK_NONE, 1, &seen[KINDS]);
	completions_free(connection);
	expect_all_once(KINDS + 1);
	for (int i = 0; i <= KINDS; i++)
		ck_assert_int_eq(seen[i].code, LB_CLOSED);
}
END_TEST

/* What a callback does with every error, also with the one that free itself reports. */
START_TEST(freed_again_inside_its_free)
{
	open_for(30000);
	for (int i = 0; i < KINDS; i++) {
		submit_kind(connection, i, &seen[i]);
		seen[i].frees = connection;
	}
	completions_free(connection);
	expect_all_once(KINDS);
}
END_TEST

START_TEST(freeing_null_is_nothing)
{
	lb_connection_free(NULL);
}
END_TEST

/* ---- synchronous calls ---- */

/* A thread that plays the broker for synchronous calls: takes so many requests, answers so many of them, waits for the end. */
struct script {
	pthread_t thread;
	int takes, answers;
};

static void *
play(void *argument)
{
	struct script *script = argument;
	struct wire_bytes answers = { 0 };

	peer_accept(&peer, NULL);
	for (int i = 0; i < script->takes; i++) {
		struct peer_request request = peer_take(&peer);

		if (i < script->answers)
			peer_put_good(&answers, &request);
	}
	peer_send(&peer, answers.data, answers.length);
	wire_bytes_free(&answers);
	peer_wait_end(&peer);
	return NULL;
}

static void
start_script(struct script *script, int takes, int answers)
{
	script->takes = takes;
	script->answers = answers;
	ck_assert_int_eq(pthread_create(&script->thread, NULL, play, script), 0);
}

static const struct lb_payload one_record = { .data = "x", .bytes = 1 };
static const struct lb_fetch a_fetch = { .topic = "t", .offset = 5, .max_bytes = 1000 };

START_TEST(synchronous_calls_complete_what_else_is_outstanding)
{
	struct script script;
	struct lb_metadata *metadata;

	start_script(&script, 6, 6);
	open_for(30000);
	for (int i = 0; i < KINDS; i++)
		submit_kind(connection, i, &seen[i]);
	submit_produce(connection, LB_ACK_WRITTEN, 1, &seen[3]);
	submit_fetch(connection, 0, &seen[4]);
	ck_assert_int_eq(lb_connection_metadata(connection, NULL, 0, &metadata, NULL), LB_OK);
	ck_assert_int_eq(metadata->topics[0].partitions[0].high_watermark, 9);
	lb_metadata_free(metadata);
	expect_all_once(5);
	lb_connection_free(connection);
	pthread_join(script.thread, NULL);
}
END_TEST

/* The payload of a synchronous fetch outlives what is received behind it in the same call. */
START_TEST(a_fetched_payload_stays_until_the_next_call)
{
	struct script script;
	struct lb_fetched fetched;
	struct lb_produced produced;

	start_script(&script, 2, 2);
	open_for(30000);
	submit_fetch(connection, 0, &seen[0]);
	ck_assert_int_eq(lb_connection_fetch(connection, &a_fetch, &fetched, NULL), LB_OK);
	ck_assert_int_eq(seen[0].times, 1);
	ck_assert_uint_eq(fetched.payload_bytes, 7);
	ck_assert_mem_eq(fetched.payload, "payload", 7);
	for (int i = 0; i < 10; i++)
		lb_source_process(lb_connection_source(connection));
	ck_assert_mem_eq(fetched.payload, "payload", 7);
	ck_assert_int_eq(lb_connection_produce(connection, "t", 0, LB_ACK_NONE, &one_record, 1, &produced, NULL), LB_OK);
	ck_assert_int_eq(produced.base_offset, -1);
	lb_connection_free(connection);
	pthread_join(script.thread, NULL);
}
END_TEST

/* Submits are refused by then; a call that waits anyway is not. */
START_TEST(a_synchronous_call_is_accepted_above_the_limit_of_memory)
{
	struct lb_connection_options options = { .timeout_ms = 30000, .memory_bytes = 0 };
	struct script script;
	struct lb_produced produced;

	start_script(&script, 2, 2);
	completion_init(&seen[0]);
	ck_assert_int_eq(lb_connection_open(&connection, peer.address, &options, NULL), LB_OK);
	submit_fetch(connection, 0, &seen[0]);
	ck_assert_int_eq(lb_connection_submit_fetch(connection, &a_fetch, completion_fetched, &seen[1], NULL), LB_WOULD_BLOCK);
	ck_assert_int_eq(lb_connection_produce(connection, "t", 0, LB_ACK_WRITTEN, &one_record, 1, &produced, NULL), LB_OK);
	ck_assert_int_eq(seen[0].times, 1);
	lb_connection_free(connection);
	pthread_join(script.thread, NULL);
}
END_TEST

/* A foreign callback frees the connection under a synchronous call. _i: the call's kind. */
START_TEST(freed_inside_a_synchronous_call)
{
	struct script script;
	struct lb_produced produced;
	struct lb_fetched fetched;
	struct lb_metadata *metadata;
	struct lb_error error;
	int code;

	start_script(&script, 3, 1);
	open_for(30000);
	submit_fetch(connection, 0, &seen[0]);
	submit_fetch(connection, 0, &seen[1]);
	seen[0].frees = connection;
	if (_i == 0)
		code = lb_connection_produce(connection, "t", 0, LB_ACK_WRITTEN, &one_record, 1, &produced, &error);
	else if (_i == 1)
		code = lb_connection_fetch(connection, &a_fetch, &fetched, &error);
	else
		code = lb_connection_metadata(connection, NULL, 0, &metadata, &error);
	ck_assert_int_eq(code, _i == 0 ? LB_OUTCOME_UNKNOWN : LB_CLOSED);
	ck_assert_int_eq(error.code, code);
	expect_all_once(2);
	pthread_join(script.thread, NULL);
}
END_TEST

START_TEST(synchronous_calls_end_with_their_deadline)
{
	struct script script;
	struct lb_produced produced;
	struct lb_fetched fetched;
	struct lb_metadata *metadata;
	int64_t begin_ms = wire_now_ms();

	start_script(&script, 3, 0);
	open_for(50);
	ck_assert_int_eq(lb_connection_produce(connection, "t", 0, LB_ACK_WRITTEN, &one_record, 1, &produced, NULL), LB_OUTCOME_UNKNOWN);
	ck_assert_int_eq(lb_connection_fetch(connection, &a_fetch, &fetched, NULL), LB_TIMED_OUT);
	ck_assert_int_eq(lb_connection_metadata(connection, NULL, 0, &metadata, NULL), LB_TIMED_OUT);
	ck_assert_ptr_null(metadata);
	ck_assert_int_ge(wire_now_ms() - begin_ms, 150);
	lb_connection_free(connection);
	pthread_join(script.thread, NULL);
}
END_TEST

/* ---- inside callbacks ---- */

static int calls_inside;

static void
call_inside(void *context, const struct lb_fetched *unused, const struct lb_error *no_error)
{
	struct lb_produced produced;
	struct lb_fetched fetched;
	struct lb_metadata *metadata;
	struct lb_error error;

	(void)unused;
	(void)no_error;
	ck_assert_int_eq(lb_connection_produce(connection, "t", 0, LB_ACK_WRITTEN, &one_record, 1, &produced, &error), LB_INVALID_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(error.text, "callback"));
	ck_assert_int_eq(lb_connection_fetch(connection, &a_fetch, &fetched, NULL), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_connection_metadata(connection, NULL, 0, &metadata, NULL), LB_INVALID_ARGUMENT);
	/* Neither of these may give out the next answer. */
	lb_source_process(lb_connection_source(connection));
	lb_source_poll(lb_connection_source(connection), 60000);
	submit_fetch(connection, 0, context);
	calls_inside++;
}

START_TEST(inside_a_callback_operations_are_submitted_and_nothing_waits)
{
	open_for(30000);
	peer_accept(&peer, lb_connection_source(connection));
	ck_assert_int_eq(lb_connection_submit_fetch(connection, &a_fetch, call_inside, &seen[1], NULL), LB_OK);
	submit_fetch(connection, 0, &seen[0]);
	answer_all(2);
	turn_until(&seen[0]);
	ck_assert_int_eq(calls_inside, 1);
	ck_assert_int_eq(seen[1].times, 0);
	answer_all(1);
	turn_until(&seen[1]);
	expect_all_once(2);
	lb_connection_free(connection);
}
END_TEST

/* ---- random schedules ---- */

/* The peer's share of a step: reads some, answers some of what it has read, or ends. */
static void
random_peer_step(uint32_t *state, struct wire_bytes *answers)
{
	uint8_t bytes[4096];
	ssize_t got = recv(peer.fd, bytes, unit_random(state) % sizeof(bytes) + 1, 0);

	if (got > 0)
		wire_put(&peer.in, bytes, (size_t)got);
	while (peer.in.length >= 4 && peer.in.length >= 4 + (size_t)wire_get_i32(peer.in.data)) {
		struct peer_request request = peer_take(&peer);

		if (unit_random(state) % 8 == 0)
			peer_put_error(answers, request.id, (int)(unit_random(state) % 9) + 1);
		else
			peer_put_good(answers, &request);
	}
	if (answers->length > 0) {
		size_t length = unit_random(state) % answers->length + 1;
		ssize_t sent = send(peer.fd, answers->data, length, MSG_NOSIGNAL);

		if (sent > 0) {
			answers->length -= (size_t)sent;
			memmove(answers->data, answers->data + sent, answers->length);
		}
	}
}

static void
random_submit(uint32_t *state, int *submitted)
{
	struct completion *completion = &seen[*submitted];

	if (*submitted == OPERATIONS_MAX || lb_connection_failure(connection) != NULL)
		return;
	submit_kind(connection, (int)(unit_random(state) % KINDS), completion);
	(*submitted)++;
	if (unit_random(state) % 200 == 0)
		completion->frees = connection;
}

START_TEST(every_operation_completes_once_under_random_schedules)
{
	uint32_t state = unit_seed();

	for (int schedule = 0; schedule < SCHEDULES; schedule++) {
		struct wire_bytes answers = { 0 };
		int submitted = 0;
		int steps = (int)(unit_random(&state) % 200);

		open_for(unit_random(&state) % 4 == 0 ? 1 : 30000);
		peer_accept(&peer, lb_connection_source(connection));
		for (int step = 0; step < steps && !completions_have_freed(); step++) {
			uint32_t choice = unit_random(&state) % 100;

			if (choice < 40)
				random_submit(&state, &submitted);
			else if (choice < 60)
				lb_source_process(lb_connection_source(connection));
			else if (choice < 99 && peer.fd >= 0)
				random_peer_step(&state, &answers);
			else if (peer.fd >= 0)
				peer_reset(&peer);
		}
		if (!completions_have_freed())
			completions_free(connection);
		expect_all_once(submitted);
		wire_bytes_free(&answers);
		peer_close(&peer);
	}
}
END_TEST

static Suite *
promises_suite(void)
{
	Suite *suite = suite_create("lib_promises");
	TCase *frees = tcase_create("frees");
	TCase *calls = tcase_create("calls");
	TCase *schedules = tcase_create("schedules");
	TCase *cases[] = { frees, calls, schedules };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		tcase_set_timeout(cases[i], UNIT_TIMEOUT_S);
		tcase_add_checked_fixture(cases[i], setup, teardown);
		suite_add_tcase(suite, cases[i]);
	}
	tcase_add_loop_test(frees, freed_inside_a_callback_of_an_answer, 0, OUTSTANDING);
	tcase_add_loop_test(frees, freed_inside_a_callback_of_a_loss, 0, OUTSTANDING);
	tcase_add_loop_test(frees, freed_inside_a_callback_of_a_bad_answer, 0, OUTSTANDING);
	tcase_add_loop_test(frees, freed_inside_a_callback_of_a_deadline, 0, OUTSTANDING);
	tcase_add_loop_test(frees, freed_inside_a_callback_of_a_failed_connect, 0, OUTSTANDING);
	tcase_add_test(frees, freed_inside_a_callback_of_a_sent_request);
	tcase_add_test(frees, freed_while_operations_wait_for_answers);
	tcase_add_test(frees, freed_before_anything_was_sent);
	tcase_add_test(frees, freed_again_inside_its_free);
	tcase_add_test(frees, freeing_null_is_nothing);
	tcase_add_test(calls, synchronous_calls_complete_what_else_is_outstanding);
	tcase_add_test(calls, a_fetched_payload_stays_until_the_next_call);
	tcase_add_test(calls, a_synchronous_call_is_accepted_above_the_limit_of_memory);
	tcase_add_loop_test(calls, freed_inside_a_synchronous_call, 0, KINDS);
	tcase_add_test(calls, synchronous_calls_end_with_their_deadline);
	tcase_add_test(calls, inside_a_callback_operations_are_submitted_and_nothing_waits);
	tcase_add_test(schedules, every_operation_completes_once_under_random_schedules);
	return suite;
}

int
main(void)
{
	return unit_run(promises_suite());
}
