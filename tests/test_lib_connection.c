/*
 * The client library's connection against a peer that does what no broker does: every answer that may not be, cuts at
 * every byte, silence, slowness, closes at every point. Its promises about callbacks are in test_lib_promises.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/completions.h"
#include "tests/peer.h"
#include "tests/unit.h"

enum { KINDS = 3, LARGE_BYTES = 7 * 1024 * 1024 };

static struct peer peer;
static struct lb_connection *connection;
static struct completion seen[32];

/* Buffers that a large request overflows for certain. */
static void
open_with(const struct lb_connection_options *options)
{
	struct lb_error error = { .text = "" };
	int fd, buffer_bytes = PEER_BUFFER_BYTES;

	for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++)
		completion_init(&seen[i]);
	completions_begin();
	ck_assert_msg(lb_connection_open(&connection, peer.address, options, &error) == LB_OK, "%s", error.text);
	peer_accept(&peer, lb_connection_source(connection));
	while (!lb_connection_is_open(connection))
		lb_source_poll(lb_connection_source(connection), 1000);
	fd = lb_source_wants(lb_connection_source(connection)).fd;
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof(buffer_bytes)), 0);
}

static void
open_for(int timeout_ms)
{
	struct lb_connection_options options = lb_connection_defaults();

	options.timeout_ms = timeout_ms;
	open_with(&options);
}

static void
close_both(void)
{
	lb_connection_free(connection);
	peer_close(&peer);
	connection = NULL;
}

/* Descriptors whose system calls are short or interrupted, or fail: see recv and sendmsg below. */
static int stingy_fd, broken_fd;

static void
setup(void)
{
	stingy_fd = broken_fd = -1;
	peer_listen(&peer);
}

static void
teardown(void)
{
	peer_stop(&peer);
}

/* ---- system calls that a test may make short, interrupted or failing ---- */

static struct wire_bytes *broken_answer_bytes;

static bool
interrupted(void)
{
	static unsigned calls;

	errno = EINTR;
	return ++calls % 2 == 0;
}

ssize_t
recv(int fd, void *to, size_t bytes, int flags)
{
	if (fd == stingy_fd && interrupted())
		return -1;
	return syscall(SYS_recvfrom, fd, to, fd == stingy_fd ? (size_t)1 : bytes, flags, NULL, NULL);
}

ssize_t
sendmsg(int fd, const struct msghdr *message, int flags)
{
	struct iovec first = { message->msg_iov[0].iov_base, 1 };
	struct msghdr short_one = { .msg_iov = &first, .msg_iovlen = 1 };

	if (fd == broken_fd) {
		struct pollfd arrived = { .fd = fd, .events = POLLIN };

		peer_send(&peer, broken_answer_bytes->data, broken_answer_bytes->length);
		ck_assert_int_eq(poll(&arrived, 1, 30000), 1);
		errno = ENOBUFS;
		return -1;
	}
	if (fd == stingy_fd && interrupted())
		return -1;
	return syscall(SYS_sendmsg, fd, fd == stingy_fd ? &short_one : message, flags);
}

static void
expect_code(const struct completion *completion, int code)
{
	ck_assert_int_eq(completion->times, 1);
	ck_assert_msg(completion->code == code, "%s instead of %s: %s", lb_code_name(completion->code), lb_code_name(code),
	    completion->error.text);
}

/* What an operation of that kind is told when its request has left and the connection ended. */
static int
loss_of(int kind, int code)
{
	return kind == 0 ? LB_OUTCOME_UNKNOWN : code;
}

/* ---- good answers ---- */

START_TEST(requests_are_answered_in_their_order)
{
	struct wire_bytes answers = { 0 };
	struct peer_request before = { .id = -1 };

	open_for(5000);
	for (int i = 0; i < 6; i++)
		submit_kind(connection, i % KINDS, &seen[i]);
	for (int i = 0; i < 6; i++) {
		struct peer_request request = peer_take(&peer);

		ck_assert_int_ne(request.id, before.id);
		before = request;
		ck_assert_int_eq(request.api, i % KINDS + 1);
		peer_put_good(&answers, &request);
	}
	peer_send(&peer, answers.data, answers.length);
	await_completion(connection, &seen[5]);
	for (int i = 0; i < 6; i++) {
		expect_code(&seen[i], LB_OK);
		ck_assert_int_eq(seen[i].order, i + 1);
	}
	ck_assert_int_eq(seen[0].base_offset, 5);
	ck_assert_int_eq(seen[0].log_end_offset, 6);
	ck_assert_int_eq(seen[1].high_watermark, 6);
	ck_assert_mem_eq(seen[1].payload, "payload", 7);
	ck_assert_int_eq(seen[2].version, 2);
	ck_assert_int_eq(seen[2].high_watermark, 9);
	wire_bytes_free(&answers);
	close_both();
}
END_TEST

START_TEST(answers_come_in_single_bytes)
{
	struct wire_bytes answers = { 0 };

	open_for(5000);
	for (int kind = 0; kind < KINDS; kind++)
		submit_kind(connection, kind, &seen[kind]);
	for (int kind = 0; kind < KINDS; kind++) {
		struct peer_request request = peer_take(&peer);

		peer_put_good(&answers, &request);
	}
	for (size_t i = 0; i < answers.length; i++) {
		ck_assert_int_eq(seen[2].times, 0);
		peer_send(&peer, answers.data + i, 1);
		lb_source_poll(lb_connection_source(connection), 1000);
	}
	await_completion(connection, &seen[2]);
	for (int kind = 0; kind < KINDS; kind++)
		expect_code(&seen[kind], LB_OK);
	wire_bytes_free(&answers);
	close_both();
}
END_TEST

START_TEST(an_answer_as_large_as_they_get_arrives)
{
	struct wire_bytes answer = { 0 };
	void *payload = calloc(1, LB_FETCH_MAX_BYTES);

	open_for(30000);
	submit_fetch(connection, 0, &seen[0]);
	submit_fetch(connection, 0, &seen[1]);
	for (int i = 0; i < 2; i++) {
		struct peer_request request = peer_take(&peer);

		peer_put_fetched(&answer, request.id, 6, payload, LB_FETCH_MAX_BYTES);
	}
	peer_send(&peer, answer.data, answer.length);
	await_completion(connection, &seen[1]);
	for (int i = 0; i < 2; i++) {
		expect_code(&seen[i], LB_OK);
		ck_assert_uint_eq(seen[i].payload_bytes, LB_FETCH_MAX_BYTES);
	}
	free(payload);
	wire_bytes_free(&answer);
	close_both();
}
END_TEST

START_TEST(a_produce_without_ack_completes_when_it_has_left)
{
	struct peer_request request;

	open_for(5000);
	submit_produce(connection, LB_ACK_NONE, 10, &seen[0]);
	await_completion(connection, &seen[0]);
	expect_code(&seen[0], LB_OK);
	ck_assert_int_eq(seen[0].base_offset, -1);
	ck_assert_int_eq(seen[0].log_end_offset, -1);
	request = peer_take(&peer);
	ck_assert_int_eq(request.api, WIRE_PRODUCE);
	close_both();
}
END_TEST

/* Error codes of today and of the future, for each kind of request; the connection stays. */
START_TEST(an_error_code_is_passed_on_as_it_came)
{
	const int codes[] = { 1, 2, 3, 4, 5, 6, 7, 77, 32767 };

	open_for(5000);
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		for (int kind = 0; kind < KINDS; kind++) {
			struct wire_bytes answer = { 0 };
			struct peer_request request;

			completion_init(&seen[0]);
			submit_kind(connection, kind, &seen[0]);
			request = peer_take(&peer);
			peer_put_error(&answer, request.id, codes[i]);
			peer_send(&peer, answer.data, answer.length);
			if (kind == 2 && codes[i] == WIRE_UNSUPPORTED_VERSION) {
				request = peer_take(&peer);
				ck_assert_int_eq(request.version, 1);
				peer_send(&peer, answer.data, 4);
				wire_set_i32(answer.data + 4, request.id);
				peer_send(&peer, answer.data + 4, answer.length - 4);
			}
			await_completion(connection, &seen[0]);
			expect_code(&seen[0], codes[i]);
			ck_assert_str_eq(seen[0].error.topic, "t");
			ck_assert_int_eq(seen[0].error.partition, kind == 2 ? -1 : 0);
			ck_assert_int_eq(seen[0].error.offset, kind == 1 ? 5 : -1);
			ck_assert_ptr_nonnull(strstr(seen[0].error.text, peer.address));
			wire_bytes_free(&answer);
		}
	}
	ck_assert_ptr_null(lb_connection_failure(connection));
	close_both();
}
END_TEST

START_TEST(metadata_falls_back_to_version_1_and_remembers)
{
	for (int round = 0; round < 2; round++) {
		struct wire_bytes answer = { 0 };
		struct peer_request request;

		if (round == 0)
			open_for(5000);
		completion_init(&seen[0]);
		completion_init(&seen[1]);
		submit_metadata(connection, &seen[0]);
		submit_produce(connection, LB_ACK_WRITTEN, 1, &seen[1]);
		request = peer_take(&peer);
		ck_assert_int_eq(request.version, round == 0 ? 2 : 1);
		if (round == 0) {
			peer_put_error(&answer, request.id, WIRE_UNSUPPORTED_VERSION);
			request = peer_take(&peer);
			peer_put_good(&answer, &request);
			peer_send(&peer, answer.data, answer.length);
			answer.length = 0;
			request = peer_take(&peer);
			ck_assert_int_eq(request.api, WIRE_METADATA);
			ck_assert_int_eq(request.version, 1);
		}
		peer_put_good(&answer, &request);
		peer_send(&peer, answer.data, answer.length);
		await_completion(connection, &seen[0]);
		expect_code(&seen[0], LB_OK);
		ck_assert_int_eq(seen[0].version, 1);
		wire_bytes_free(&answer);
	}
	close_both();
}
END_TEST

/* ---- answers that may not be ---- */

/* The answer to request `id` of a kind, broken in some way. */
typedef void broken_answer(struct wire_bytes *to, const struct peer_request *request);

static void
with_another_id(struct wire_bytes *to, const struct peer_request *request)
{
	struct peer_request other = *request;

	other.id++;
	peer_put_good(to, &other);
}

static void
with_a_body_behind_an_error(struct wire_bytes *to, const struct peer_request *request)
{
	peer_put_good(to, request);
	wire_set_i16(to->data + 8, WIRE_STORAGE_FAILURE);
}

static void
with_a_body_too_short(struct wire_bytes *to, const struct peer_request *request)
{
	peer_put_good(to, request);
	to->length--;
	wire_set_i32(to->data, wire_get_i32(to->data) - 1);
}

static void
with_a_body_too_long(struct wire_bytes *to, const struct peer_request *request)
{
	peer_put_good(to, request);
	wire_put_i8(to, 0);
	wire_set_i32(to->data, wire_get_i32(to->data) + 1);
}

static void
without_a_body(struct wire_bytes *to, const struct peer_request *request)
{
	peer_put_error(to, request->id, 0);
}

static void
with_a_code_below_0(struct wire_bytes *to, const struct peer_request *request)
{
	peer_put_error(to, request->id, LB_OUTCOME_UNKNOWN);
}

static void
with_length(struct wire_bytes *to, const struct peer_request *request, int64_t length)
{
	peer_put_good(to, request);
	wire_set_i32(to->data, length);
}

static void
of_length_0(struct wire_bytes *to, const struct peer_request *request)
{
	with_length(to, request, 0);
}

static void
of_length_5(struct wire_bytes *to, const struct peer_request *request)
{
	with_length(to, request, 5);
}

static void
of_length_below_0(struct wire_bytes *to, const struct peer_request *request)
{
	with_length(to, request, -10);
}

static void
of_length_above_8_mib(struct wire_bytes *to, const struct peer_request *request)
{
	with_length(to, request, WIRE_FRAME_MAX + 1);
}

static void
in_http(struct wire_bytes *to, const struct peer_request *request)
{
	(void)request;
	wire_put(to, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
}

static broken_answer *const broken_answers[] = {
	with_another_id, with_a_body_behind_an_error, with_a_body_too_short, with_a_body_too_long, without_a_body,
	with_a_code_below_0, of_length_0, of_length_5, of_length_below_0, of_length_above_8_mib, in_http,
};

/* It, and what is outstanding behind it, completes; nothing is accepted any more; the peer sees the end. */
START_TEST(an_answer_that_may_not_be_ends_the_connection)
{
	for (int kind = 0; kind < KINDS; kind++) {
		struct wire_bytes answer = { 0 };
		struct lb_fetch fetch = { .topic = "t", .max_bytes = 1 };
		struct lb_error error;
		struct peer_request request;
		uint8_t frame[64];

		open_for(30000);
		submit_kind(connection, kind, &seen[0]);
		submit_produce(connection, LB_ACK_WRITTEN, 1, &seen[1]);
		submit_fetch(connection, 0, &seen[2]);
		request = peer_take(&peer);
		broken_answers[_i](&answer, &request);
		peer_send(&peer, answer.data, answer.length);
		await_completion(connection, &seen[2]);
		expect_code(&seen[0], loss_of(kind, LB_BAD_ANSWER));
		expect_code(&seen[1], LB_OUTCOME_UNKNOWN);
		expect_code(&seen[2], LB_BAD_ANSWER);
		ck_assert_ptr_nonnull(lb_connection_failure(connection));
		ck_assert_int_eq(lb_connection_failure(connection)->code, LB_BAD_ANSWER);
		ck_assert_int_eq(lb_connection_submit_fetch(connection, &fetch, completion_fetched, &seen[3], &error), LB_BAD_ANSWER);
		ck_assert_int_eq(lb_connection_submit_frame(connection, LB_FRAME_QUESTION, frame, sizeof(frame), 1, completion_answered,
		    &seen[3], NULL), LB_BAD_ANSWER);
		ck_assert_int_eq(lb_source_wants(lb_connection_source(connection)).fd, -1);
		peer_wait_end(&peer);
		ck_assert_int_eq(seen[3].times, 0);
		wire_bytes_free(&answer);
		close_both();
	}
}
END_TEST

START_TEST(an_answer_that_nobody_asked_for_ends_the_connection)
{
	for (int round = 0; round < 2; round++) {
		struct wire_bytes answer = { 0 };
		struct peer_request request = { .api = WIRE_PRODUCE, .id = 0 };

		open_for(30000);
		if (round == 1) {
			submit_produce(connection, LB_ACK_NONE, 1, &seen[0]);
			request = peer_take(&peer);
		}
		peer_put_good(&answer, &request);
		peer_send(&peer, answer.data, answer.length);
		while (lb_connection_failure(connection) == NULL)
			lb_source_poll(lb_connection_source(connection), 1000);
		ck_assert_int_eq(lb_connection_failure(connection)->code, LB_BAD_ANSWER);
		wire_bytes_free(&answer);
		close_both();
	}
}
END_TEST

/* ---- ends ---- */

/* Every prefix of the answers to three requests, then the end, or a reset. */
START_TEST(answers_are_cut_at_every_byte)
{
	struct wire_bytes answers = { 0 };
	size_t ends[KINDS] = { SIZE_MAX, SIZE_MAX, SIZE_MAX };

	for (size_t cut = 0; answers.length == 0 || cut <= answers.length; cut++) {
		open_for(30000);
		answers.length = 0;
		for (int kind = 0; kind < KINDS; kind++)
			submit_kind(connection, kind, &seen[kind]);
		for (int kind = 0; kind < KINDS; kind++) {
			struct peer_request request = peer_take(&peer);

			peer_put_good(&answers, &request);
			ends[kind] = answers.length;
		}
		peer_send(&peer, answers.data, cut);
		peer_close(&peer);
		await_completion(connection, &seen[2]);
		for (int kind = 0; kind < KINDS; kind++)
			expect_code(&seen[kind], cut >= ends[kind] ? LB_OK : loss_of(kind, LB_LOST));
		while (lb_connection_failure(connection) == NULL)
			lb_source_poll(lb_connection_source(connection), 1000);
		ck_assert_int_eq(lb_connection_failure(connection)->code, LB_LOST);
		close_both();
	}
	wire_bytes_free(&answers);
}
END_TEST

/* Small requests have left whole however little of them was read. */
START_TEST(the_peer_closes_after_every_byte_of_a_request)
{
	for (size_t cut = 0; cut <= 60; cut += 3) {
		open_for(30000);
		submit_produce(connection, LB_ACK_WRITTEN, 30, &seen[0]);
		submit_fetch(connection, 0, &seen[1]);
		peer_wait_bytes(&peer, cut);
		peer_reset(&peer);
		await_completion(connection, &seen[1]);
		if (cut > 0)
			expect_code(&seen[0], LB_OUTCOME_UNKNOWN);
		expect_code(&seen[1], LB_LOST);
		close_both();
	}
}
END_TEST

/* More than the kernel takes: what did not leave whole has certainly not been executed. */
START_TEST(the_peer_closes_while_a_request_is_being_sent)
{
	open_for(30000);
	submit_produce(connection, LB_ACK_WRITTEN, 1, &seen[0]);
	submit_produce(connection, LB_ACK_WRITTEN, LARGE_BYTES, &seen[1]);
	submit_produce(connection, LB_ACK_NONE, LARGE_BYTES, &seen[2]);
	submit_fetch(connection, 0, &seen[3]);
	peer_wait_bytes(&peer, 100000);
	peer_reset(&peer);
	await_completion(connection, &seen[3]);
	expect_code(&seen[0], LB_OUTCOME_UNKNOWN);
	expect_code(&seen[1], LB_LOST);
	expect_code(&seen[2], LB_LOST);
	expect_code(&seen[3], LB_LOST);
	close_both();
}
END_TEST

/* An idle connection that the broker has closed: the request does not go into the void first. */
START_TEST(a_request_behind_the_end_has_not_been_sent)
{
	open_for(30000);
	peer_close(&peer);
	submit_produce(connection, LB_ACK_WRITTEN, 1, &seen[0]);
	await_completion(connection, &seen[0]);
	expect_code(&seen[0], LB_LOST);
	close_both();
}
END_TEST

/* ---- answers before all of the request has been sent ---- */

static int32_t
begin_large_produce(void)
{
	open_for(30000);
	submit_produce(connection, LB_ACK_WRITTEN, LARGE_BYTES, &seen[0]);
	submit_fetch(connection, 0, &seen[1]);
	peer_wait_bytes(&peer, 12);
	return wire_get_i32(peer.in.data + 8);
}

START_TEST(an_early_answer_counts_when_the_request_has_left)
{
	struct wire_bytes answer = { 0 };
	struct peer_request request;

	peer_put_error(&answer, begin_large_produce(), WIRE_RECORD_TOO_LARGE);
	peer_send(&peer, answer.data, answer.length);
	for (int i = 0; i < 10; i++)
		lb_source_poll(lb_connection_source(connection), 10);
	ck_assert_int_eq(seen[0].times, 0);
	peer_take(&peer);
	await_completion(connection, &seen[0]);
	expect_code(&seen[0], LB_RECORD_TOO_LARGE);
	request = peer_take(&peer);
	answer.length = 0;
	peer_put_good(&answer, &request);
	peer_send(&peer, answer.data, answer.length);
	await_completion(connection, &seen[1]);
	expect_code(&seen[1], LB_OK);
	wire_bytes_free(&answer);
	close_both();
}
END_TEST

/* The broker says why, and goes: orderly, and with a reset. */
START_TEST(an_early_answer_counts_when_the_broker_closes_behind_it)
{
	struct wire_bytes answer = { 0 };

	peer_put_error(&answer, begin_large_produce(), WIRE_RECORD_TOO_LARGE);
	peer_send(&peer, answer.data, answer.length);
	if (_i == 0)
		shutdown(peer.fd, SHUT_WR);
	else
		peer_reset(&peer);
	await_completion(connection, &seen[1]);
	if (_i == 0)
		expect_code(&seen[0], LB_RECORD_TOO_LARGE);
	ck_assert_int_ne(seen[0].code, LB_OUTCOME_UNKNOWN);
	expect_code(&seen[1], LB_LOST);
	wire_bytes_free(&answer);
	close_both();
}
END_TEST

/* One early answer can be meant; a second is to a request of which not a byte has left, and so is a wrong id. */
START_TEST(an_early_answer_may_not_be_wrong)
{
	struct wire_bytes answer = { 0 };
	int32_t id = begin_large_produce();

	if (_i == 0)
		peer_put_error(&answer, id, WIRE_RECORD_TOO_LARGE);
	peer_put_error(&answer, id + 1, WIRE_RECORD_TOO_LARGE);
	peer_send(&peer, answer.data, answer.length);
	await_completion(connection, &seen[1]);
	expect_code(&seen[0], LB_BAD_ANSWER);
	expect_code(&seen[1], LB_BAD_ANSWER);
	wire_bytes_free(&answer);
	close_both();
}
END_TEST

/* ---- time ---- */

START_TEST(silence_ends_with_the_deadline_and_late_answers_are_dropped)
{
	struct wire_bytes answers = { 0 };
	struct peer_request request;
	size_t sent;

	open_for(100);
	for (int kind = 0; kind < KINDS; kind++)
		submit_kind(connection, kind, &seen[kind]);
	for (int kind = 0; kind < KINDS; kind++) {
		request = peer_take(&peer);
		peer_put_good(&answers, &request);
	}
	for (int kind = 0; kind < KINDS; kind++) {
		await_completion(connection, &seen[kind]);
		expect_code(&seen[kind], loss_of(kind, LB_TIMED_OUT));
	}
	ck_assert_ptr_null(lb_connection_failure(connection));
	sent = answers.length - 1;
	peer_send(&peer, answers.data, sent);
	submit_fetch(connection, 30000, &seen[3]);
	request = peer_take(&peer);
	peer_put_good(&answers, &request);
	peer_send(&peer, answers.data + sent, answers.length - sent);
	await_completion(connection, &seen[3]);
	expect_code(&seen[3], LB_OK);
	for (int kind = 0; kind < KINDS; kind++)
		ck_assert_int_eq(seen[kind].times, 1);
	wire_bytes_free(&answers);
	close_both();
}
END_TEST

static void
submit_large_frame(uint8_t *frame, size_t bytes, int timeout_ms, struct completion *completion)
{
	struct lb_error error;

	ck_assert_int_eq(lb_connection_submit_frame(connection, LB_FRAME_PRODUCE, frame, bytes, timeout_ms, completion_answered,
	    completion, &error), LB_OK);
}

/* A frame of which something has left follows to its end, and may be executed; one that waits for it alone never leaves. */
START_TEST(a_deadline_before_all_has_left)
{
	struct lb_payload record = { .data = calloc(1, LARGE_BYTES), .bytes = LARGE_BYTES };
	size_t bytes = lb_encode_produce(NULL, 0, 0, "t", 0, LB_ACK_WRITTEN, &record, 1);
	uint8_t *frames[3] = { malloc(bytes), malloc(bytes), malloc(bytes) };
	struct wire_bytes answers = { 0 };
	struct peer_request request;

	for (int i = 0; i < 3; i++)
		lb_encode_produce(frames[i], bytes, 0, "t", 0, LB_ACK_WRITTEN, &record, 1);
	open_for(30000);
	submit_large_frame(frames[0], bytes, 100, &seen[0]);
	submit_large_frame(frames[1], bytes, 100, &seen[1]);
	submit_fetch(connection, 0, &seen[2]);
	submit_large_frame(frames[2], bytes, 100, &seen[3]);
	for (int i = 0; i < 4; i++) {
		if (i != 2)
			await_completion(connection, &seen[i]);
	}
	expect_code(&seen[0], LB_OUTCOME_UNKNOWN);
	expect_code(&seen[1], LB_TIMED_OUT);
	expect_code(&seen[3], LB_TIMED_OUT);
	memset(frames[1], 0xff, bytes);		/* these are ours again */
	memset(frames[2], 0xff, bytes);
	submit_metadata(connection, &seen[4]);
	for (int i = 0; i < KINDS; i++) {
		request = peer_take(&peer);
		ck_assert_int_eq(request.api, i + 1);
		peer_put_good(&answers, &request);
	}
	peer_send(&peer, answers.data, answers.length);
	await_completion(connection, &seen[4]);
	expect_code(&seen[2], LB_OK);
	expect_code(&seen[4], LB_OK);
	ck_assert_int_eq(seen[0].times, 1);
	close_both();
	for (int i = 0; i < 3; i++)
		free(frames[i]);
	free((void *)(uintptr_t)record.data);
	wire_bytes_free(&answers);
}
END_TEST

START_TEST(a_fetch_has_its_wait_more_time)
{
	int64_t begin_ms;

	open_for(50);
	begin_ms = wire_now_ms();
	submit_fetch(connection, 400, &seen[0]);
	await_completion(connection, &seen[0]);
	expect_code(&seen[0], LB_TIMED_OUT);
	ck_assert_int_ge(wire_now_ms() - begin_ms, 450);
	submit_fetch(connection, INT32_MAX, &seen[1]);
	ck_assert_int_ge(lb_source_wants(lb_connection_source(connection)).timeout_ms, 24 * 3600 * 1000);
	close_both();
}
END_TEST

/* ---- memory and slowness ---- */

START_TEST(a_slow_peer_makes_submits_wait)
{
	struct lb_connection_options options = { .timeout_ms = 60000, .memory_bytes = 20 * 1024 * 1024 };
	struct lb_payload record = { .data = calloc(1, LARGE_BYTES), .bytes = LARGE_BYTES };
	struct wire_bytes answers = { 0 };
	struct lb_error error;

	open_with(&options);
	for (int i = 0; i < 2; i++)
		submit_produce(connection, LB_ACK_WRITTEN, LARGE_BYTES, &seen[i]);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(lb_connection_submit_produce(connection, "t", 0, LB_ACK_WRITTEN, &record, 1, completion_produced, &seen[9],
		    &error), LB_WOULD_BLOCK);
		lb_source_poll(lb_connection_source(connection), 10);
	}
	for (int i = 0; i < 2; i++) {
		struct peer_request request = peer_take(&peer);

		peer_put_good(&answers, &request);
	}
	peer_send(&peer, answers.data, answers.length);
	await_completion(connection, &seen[1]);
	for (int i = 2; i < 4; i++)
		submit_produce(connection, LB_ACK_WRITTEN, LARGE_BYTES, &seen[i]);
	ck_assert_int_eq(lb_connection_submit_produce(connection, "t", 0, LB_ACK_WRITTEN, &record, 1, completion_produced,
	    &seen[9], NULL), LB_WOULD_BLOCK);
	ck_assert_int_eq(seen[9].times, 0);
	close_both();
	expect_code(&seen[2], LB_CLOSED);
	free((void *)(uintptr_t)record.data);
	wire_bytes_free(&answers);
}
END_TEST

/* One is always accepted, and a request that has timed out without an answer does not block for ever. */
START_TEST(one_request_is_always_accepted)
{
	struct lb_connection_options options = { .timeout_ms = 50, .memory_bytes = 0 };
	struct lb_payload record = { .data = "x", .bytes = 1 };

	open_with(&options);
	for (int i = 0; i < 3; i++) {
		submit_produce(connection, LB_ACK_WRITTEN, 1, &seen[i]);
		ck_assert_int_eq(lb_connection_submit_produce(connection, "t", 0, LB_ACK_WRITTEN, &record, 1, completion_produced, &seen[9],
		    NULL), LB_WOULD_BLOCK);
		await_completion(connection, &seen[i]);
	}
	close_both();
}
END_TEST

/* Nothing is asked of poll that is there without end. */
START_TEST(it_wants_no_more_than_it_needs)
{
	struct lb_wants wants;

	open_for(30000);
	wants = lb_source_wants(lb_connection_source(connection));
	ck_assert_int_ge(wants.fd, 0);
	ck_assert_int_eq(wants.events, POLLIN);
	ck_assert_int_eq(wants.timeout_ms, -1);
	submit_fetch(connection, 0, &seen[0]);
	wants = lb_source_wants(lb_connection_source(connection));
	ck_assert_int_eq(wants.events, POLLIN | POLLOUT);
	ck_assert_int_gt(wants.timeout_ms, 25000);
	peer_take(&peer);
	for (int i = 0; i < 100; i++)
		lb_source_process(lb_connection_source(connection));
	wants = lb_source_wants(lb_connection_source(connection));
	ck_assert_int_eq(wants.events, POLLIN);
	ck_assert(peer_is_quiet(&peer));
	close_both();
}
END_TEST

/* ---- what producers and subscriptions use ---- */

struct taker {
	struct completion completion;
	void *block;
	size_t block_bytes;
	const char *body;
};

static void
take(void *context, const struct lb_answer *answer, const struct lb_error *error)
{
	struct taker *taker = context;

	ck_assert_ptr_null(error);
	taker->body = answer->body;
	taker->block = lb_connection_take_answer(connection, taker->block, taker->block_bytes, &taker->block_bytes);
	ck_assert_ptr_nonnull(taker->block);
	taker->completion.times++;
}

/* Three answers at once, the first two taken: each stays what it was, and the rest arrives whole. */
START_TEST(a_taken_answer_stays)
{
	struct taker takers[2] = { { .block = NULL }, { .block = malloc(10), .block_bytes = 10 } };
	uint8_t frames[2][100];
	struct wire_bytes answers = { 0 };

	open_for(30000);
	for (int i = 0; i < 2; i++) {
		size_t bytes = lb_encode_fetch(frames[i], sizeof(frames[i]), 1, 0, "t", 0, 0, 1000, 0, 0);

		ck_assert_int_eq(lb_connection_submit_frame(connection, LB_FRAME_QUESTION, frames[i], bytes, 5000, take, &takers[i], NULL), 0);
	}
	submit_fetch(connection, 0, &seen[0]);
	for (int i = 0; i < 3; i++) {
		struct peer_request request = peer_take(&peer);
		char payload[] = { (char)('0' + i), 0 };

		peer_put_fetched(&answers, request.id, 6, payload, 1);
	}
	peer_send(&peer, answers.data, answers.length);
	await_completion(connection, &seen[0]);
	ck_assert_int_eq(seen[0].payload[0], '2');
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(takers[i].completion.times, 1);
		ck_assert_int_eq(takers[i].body[12], '0' + i);
		free(takers[i].block);
	}
	wire_bytes_free(&answers);
	close_both();
}
END_TEST

/* _i: with something to send, or nothing. */
START_TEST(a_finished_connection_sends_what_it_has_and_ends)
{
	struct lb_fetch fetch = { .topic = "t", .max_bytes = 1 };

	open_for(30000);
	if (_i == 0)
		submit_produce(connection, LB_ACK_NONE, LARGE_BYTES, &seen[0]);
	lb_connection_finish(connection);
	ck_assert_int_eq(lb_connection_submit_fetch(connection, &fetch, completion_fetched, &seen[1], NULL), LB_CLOSED);
	if (_i == 0) {
		peer_take(&peer);
		expect_code(&seen[0], LB_OK);
	} else {
		peer.source = NULL;	/* it needs no turn for that */
	}
	peer_wait_end(&peer);
	ck_assert_ptr_null(lb_connection_failure(connection));
	peer_close(&peer);
	while (lb_connection_failure(connection) == NULL)
		lb_source_poll(lb_connection_source(connection), 1000);
	ck_assert_int_eq(lb_connection_failure(connection)->code, LB_CLOSED);
	close_both();
}
END_TEST

/* ---- arguments ---- */

static void
expect_no_produce(const char *topic, int32_t partition, int ack, const struct lb_payload *record, size_t count, const char *word)
{
	struct lb_error error;

	ck_assert_int_eq(lb_connection_submit_produce(connection, topic, partition, (enum lb_ack)ack, record, count,
	    completion_produced, &seen[0], &error), LB_INVALID_ARGUMENT);
	ck_assert_msg(strstr(error.text, word) != NULL, "no \"%s\" in \"%s\"", word, error.text);
}

static void
expect_no_fetch(const struct lb_fetch *fetch, const char *word)
{
	struct lb_error error;

	ck_assert_int_eq(lb_connection_submit_fetch(connection, fetch, completion_fetched, &seen[0], &error), LB_INVALID_ARGUMENT);
	ck_assert_msg(strstr(error.text, word) != NULL, "no \"%s\" in \"%s\"", word, error.text);
}

static void
expect_no_metadata(const char *const *topics, size_t count, const char *word)
{
	struct lb_error error;

	ck_assert_int_eq(lb_connection_submit_metadata(connection, topics, count, completion_metadata, &seen[0], &error),
	    LB_INVALID_ARGUMENT);
	ck_assert_msg(strstr(error.text, word) != NULL, "no \"%s\" in \"%s\"", word, error.text);
}

START_TEST(arguments_that_the_protocol_does_not_allow_are_named)
{
	struct lb_payload none = { .data = "", .bytes = 0 }, one = { .data = "x", .bytes = 1 };
	struct lb_payload large = { .data = "x", .bytes = LB_FRAME_MAX_BYTES };
	const char *wrong[] = { "t", "a/b" };
	static const char *many[LB_FRAME_MAX_BYTES / 10];

	open_for(5000);
	for (size_t i = 0; i < sizeof(many) / sizeof(many[0]); i++)
		many[i] = "ten-letter";
	expect_no_produce("a b", 0, 1, &one, 1, "a b");
	expect_no_produce("t", 0, 3, &one, 1, "ack is 3");
	expect_no_produce("t", -1, 1, &one, 1, "partition -1");
	expect_no_produce("t", 0, 1, &none, 1, "record 0");
	expect_no_produce("t", 0, 1, &one, 0, "at least one");
	expect_no_produce("t", 0, 1, &large, 1, "8388608");
	expect_no_fetch(&(struct lb_fetch){ .topic = "..", .max_bytes = 1 }, "\"..\"");
	expect_no_fetch(&(struct lb_fetch){ .topic = NULL, .max_bytes = 1 }, "missing");
	expect_no_fetch(&(struct lb_fetch){ .topic = "t", .partition = -1, .max_bytes = 1 }, "partition -1");
	expect_no_fetch(&(struct lb_fetch){ .topic = "t", .offset = -7, .max_bytes = 1 }, "-7");
	expect_no_fetch(&(struct lb_fetch){ .topic = "t" }, "max_bytes 0");
	expect_no_fetch(&(struct lb_fetch){ .topic = "t", .max_bytes = 1, .min_bytes = 2 }, "min_bytes 2");
	expect_no_fetch(&(struct lb_fetch){ .topic = "t", .max_bytes = 1, .max_wait_ms = -1 }, "max_wait_ms -1");
	expect_no_metadata(wrong, 2, "a/b");
	expect_no_metadata(many, sizeof(many) / sizeof(many[0]), "does not fit");
	ck_assert(peer_is_quiet(&peer));
	ck_assert_int_eq(seen[0].times, 0);
	close_both();
}
END_TEST

START_TEST(a_submitted_operation_needs_a_callback)
{
	struct lb_payload one = { .data = "x", .bytes = 1 };
	struct lb_fetch fetch = { .topic = "t", .max_bytes = 1 };
	struct lb_error error;

	open_for(5000);
	ck_assert_int_eq(lb_connection_submit_produce(connection, "t", 0, 1, &one, 1, NULL, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_connection_submit_fetch(connection, &fetch, NULL, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_connection_submit_metadata(connection, NULL, 0, NULL, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_ptr_nonnull(strstr(error.text, "callback"));
	close_both();
}
END_TEST

/* ---- a kernel that gives and takes as little as it may ---- */

/* One byte at a time, and every other call interrupted. */
START_TEST(system_calls_are_interrupted_and_short)
{
	struct wire_bytes answers = { 0 };

	open_for(30000);
	stingy_fd = lb_source_wants(lb_connection_source(connection)).fd;
	for (int kind = 0; kind < KINDS; kind++)
		submit_kind(connection, kind, &seen[kind]);
	for (int kind = 0; kind < KINDS; kind++) {
		struct peer_request request = peer_take(&peer);

		peer_put_good(&answers, &request);
	}
	peer_send(&peer, answers.data, answers.length);
	await_completion(connection, &seen[2]);
	for (int kind = 0; kind < KINDS; kind++)
		expect_code(&seen[kind], LB_OK);
	ck_assert_ptr_null(lb_connection_failure(connection));
	wire_bytes_free(&answers);
	close_both();
}
END_TEST

/* The answer to the first request comes between the turn's reading and its sending, which fails. */
START_TEST(a_send_that_fails_still_takes_what_has_come)
{
	struct wire_bytes answer = { 0 };

	open_for(30000);
	submit_produce(connection, LB_ACK_WRITTEN, 1, &seen[0]);
	peer_put_produced(&answer, peer_take(&peer).id, 5, 6);
	submit_fetch(connection, 0, &seen[1]);
	broken_fd = lb_source_wants(lb_connection_source(connection)).fd;
	broken_answer_bytes = &answer;
	await_completion(connection, &seen[1]);
	expect_code(&seen[0], LB_OK);
	expect_code(&seen[1], LB_LOST);
	ck_assert_ptr_nonnull(strstr(seen[1].error.text, "No buffer space"));
	wire_bytes_free(&answer);
	close_both();
}
END_TEST

START_TEST(times_must_be_positive)
{
	struct lb_connection_options options = lb_connection_defaults();
	uint8_t frame[100];
	size_t bytes = lb_encode_fetch(frame, sizeof(frame), 1, 0, "t", 0, 0, 1000, 0, 0);

	ck_assert_int_eq(options.timeout_ms, 5000);
	for (options.timeout_ms = -1; options.timeout_ms <= 0; options.timeout_ms++) {
		ck_assert_int_eq(lb_connection_open(&connection, peer.address, &options, NULL), LB_INVALID_ARGUMENT);
		ck_assert_ptr_null(connection);
	}
	open_for(1000);
	ck_assert_int_eq(lb_connection_submit_frame(connection, LB_FRAME_QUESTION, frame, bytes, 0, completion_answered, &seen[0],
	    NULL), LB_INVALID_ARGUMENT);
	close_both();
	ck_assert_int_eq(seen[0].times, 0);
}
END_TEST

static Suite *
connection_suite(void)
{
	Suite *suite = suite_create("lib_connection");
	TCase *answers = tcase_create("answers");
	TCase *ends = tcase_create("ends");
	TCase *times = tcase_create("times");
	TCase *rest = tcase_create("rest");
	TCase *cases[] = { answers, ends, times, rest };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		tcase_set_timeout(cases[i], UNIT_TIMEOUT_S);
		tcase_add_checked_fixture(cases[i], setup, teardown);
		suite_add_tcase(suite, cases[i]);
	}
	tcase_add_test(answers, requests_are_answered_in_their_order);
	tcase_add_test(answers, answers_come_in_single_bytes);
	tcase_add_test(answers, an_answer_as_large_as_they_get_arrives);
	tcase_add_test(answers, a_produce_without_ack_completes_when_it_has_left);
	tcase_add_test(answers, an_error_code_is_passed_on_as_it_came);
	tcase_add_test(answers, metadata_falls_back_to_version_1_and_remembers);
	tcase_add_loop_test(answers, an_answer_that_may_not_be_ends_the_connection, 0,
	    (int)(sizeof(broken_answers) / sizeof(broken_answers[0])));
	tcase_add_test(answers, an_answer_that_nobody_asked_for_ends_the_connection);
	tcase_add_test(ends, answers_are_cut_at_every_byte);
	tcase_add_test(ends, the_peer_closes_after_every_byte_of_a_request);
	tcase_add_test(ends, the_peer_closes_while_a_request_is_being_sent);
	tcase_add_test(ends, a_request_behind_the_end_has_not_been_sent);
	tcase_add_test(ends, an_early_answer_counts_when_the_request_has_left);
	tcase_add_loop_test(ends, an_early_answer_counts_when_the_broker_closes_behind_it, 0, 2);
	tcase_add_loop_test(ends, an_early_answer_may_not_be_wrong, 0, 2);
	tcase_add_test(times, silence_ends_with_the_deadline_and_late_answers_are_dropped);
	tcase_add_test(times, a_deadline_before_all_has_left);
	tcase_add_test(times, a_fetch_has_its_wait_more_time);
	tcase_add_test(rest, a_slow_peer_makes_submits_wait);
	tcase_add_test(rest, one_request_is_always_accepted);
	tcase_add_test(rest, it_wants_no_more_than_it_needs);
	tcase_add_test(rest, a_taken_answer_stays);
	tcase_add_loop_test(rest, a_finished_connection_sends_what_it_has_and_ends, 0, 2);
	tcase_add_test(rest, arguments_that_the_protocol_does_not_allow_are_named);
	tcase_add_test(rest, a_submitted_operation_needs_a_callback);
	tcase_add_test(rest, times_must_be_positive);
	tcase_add_test(rest, system_calls_are_interrupted_and_short);
	tcase_add_test(rest, a_send_that_fails_still_takes_what_has_come);
	return suite;
}

int
main(void)
{
	return unit_run(connection_suite());
}
