/*
 * Bytes out and in: frames of the queue to the socket, many at a time, and what comes back to the operations it
 * answers.
 */
#include <sys/socket.h>
#include <sys/uio.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/connection_state.h"

enum {
	TRANSFER_INPUT_FIRST_BYTES = 16 * 1024,
	TRANSFER_INPUT_MAX_BYTES = 4 + LB_FRAME_MAX_BYTES,
	TRANSFER_FRAMES_MAX = 64,	/* to one sendmsg */
	TRANSFER_CALLS_MAX = 16,	/* reads and writes in one turn: others want theirs */
};

/* ---- out ---- */

static size_t
collect(const struct lb_connection *connection, struct iovec *pieces, size_t *bytes)
{
	size_t count = 0, skip = connection->sent_bytes;

	*bytes = 0;
	for (struct operation *o = connection->unsent.first; o != NULL && count < TRANSFER_FRAMES_MAX; o = o->next) {
		pieces[count] = (struct iovec){ .iov_base = o->frame + skip, .iov_len = o->frame_bytes - skip };
		*bytes += pieces[count++].iov_len;
		skip = 0;
	}
	return count;
}

/* So many more bytes are outside. */
static void
advance(struct lb_connection *connection, size_t bytes)
{
	connection->sent_bytes += bytes;
	while (connection->unsent.first != NULL && connection->sent_bytes >= connection->unsent.first->frame_bytes) {
		struct operation *operation = lb_operation_take_first(&connection->unsent);

		connection->sent_bytes -= operation->frame_bytes;
		operation->whole = true;
		lb_operation_append(operation->kind == LB_FRAME_UNANSWERED ? &connection->left : &connection->unanswered,
		    operation);
	}
}

/* Returns 1: go on; 0: not now; -1: the socket has failed, with errno. */
static int
send_some(struct lb_connection *connection)
{
	struct iovec pieces[TRANSFER_FRAMES_MAX];
	size_t bytes;
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = collect(connection, pieces, &bytes) };
	ssize_t sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

	if (sent < 0)
		return errno == EINTR ? 1 : errno == EAGAIN ? 0 : -1;
	advance(connection, (size_t)sent);
	/* After all bytes have been accounted for: a callback may end the connection, which asks what has left. */
	lb_operation_complete_left(connection);
	return (size_t)sent == bytes;
}

/* What has been answered before all of it was sent is over once it has been. */
void
lb_transfer_send(struct lb_connection *connection)
{
	int result = 1;

	for (int calls = 0; calls < TRANSFER_CALLS_MAX && result > 0; calls++)
		result = connection->state == CONNECTION_OPEN && connection->unsent.first != NULL ? send_some(connection) : 0;
	if (result < 0) {
		const char *reason = strerror(errno);

		/* The broker may have said why it closed. */
		lb_transfer_receive(connection);
		lb_connection_lost(connection, reason);
		return;
	}
	lb_transfer_dispatch(connection);
	if (connection->state == CONNECTION_OPEN && connection->finishing && connection->unsent.first == NULL)
		shutdown(connection->fd, SHUT_WR);
}

/* ---- in ---- */

/* The whole answer at the front is for an operation whose frame is still on its way: it waits for that. */
static bool
is_early(const struct lb_connection *connection)
{
	return connection->unanswered.first == NULL && connection->sent_bytes > 0;
}

static bool
check_order(struct lb_connection *connection, const struct lb_answer *answer, int64_t bytes)
{
	bool early = is_early(connection);
	struct operation *due = early ? connection->unsent.first : connection->unanswered.first;

	if (due == NULL || due->kind == LB_FRAME_UNANSWERED ||
	    (early && (size_t)bytes < connection->input.end - connection->input.start)) {
		lb_connection_end(connection, LB_BAD_ANSWER,
		    "an answer came that nobody asked for; is it a logbroker's port?");
		return false;
	}
	if (due->id != answer->correlation_id) {
		lb_connection_end(connection, LB_BAD_ANSWER, "an answer to request %" PRId32 " came where the one to %" PRId32
		    " was due; is it a logbroker's port?", answer->correlation_id, due->id);
		return false;
	}
	return !early;
}

static void
give_out(struct lb_connection *connection, const struct lb_answer *answer)
{
	struct operation *operation = lb_operation_take_first(&connection->unanswered);

	lb_operation_complete(operation, answer, NULL);
	if (operation->again) {
		operation->again = operation->whole = false;
		lb_operation_append(&connection->unsent, operation);
	} else {
		lb_operation_release(operation);
	}
}

void
lb_transfer_dispatch(struct lb_connection *connection)
{
	struct connection_input *input = &connection->input;

	while (connection->state == CONNECTION_OPEN && input->end > input->start) {
		struct lb_answer answer;
		int64_t bytes = lb_decode_answer(&answer, input->bytes + input->start, input->end - input->start);

		if (bytes < 0)
			lb_connection_end(connection, LB_BAD_ANSWER,
			    "what came is no answer of this protocol; is it a logbroker's port?");
		if (bytes <= 0 || !check_order(connection, &answer, bytes))
			return;
		input->answer_bytes = (size_t)bytes;
		give_out(connection, &answer);
		input->start += input->answer_bytes;
		input->answer_bytes = 0;
		if (connection->rejected && connection->state == CONNECTION_OPEN)
			lb_connection_end(connection, LB_BAD_ANSWER, "%s; is it a logbroker's port?", connection->rejection);
	}
}

void *
lb_connection_take_answer(struct lb_connection *connection, void *spare, size_t spare_bytes, size_t *taken_bytes)
{
	struct connection_input *input = &connection->input;
	size_t behind = input->start + input->answer_bytes;
	size_t rest = input->end - behind;
	void *taken = input->bytes;

	if (spare != NULL && spare_bytes < rest) {
		free(spare);
		spare = NULL;
	}
	if (spare == NULL) {
		spare_bytes = rest + TRANSFER_INPUT_FIRST_BYTES;
		spare = malloc(spare_bytes);
		if (spare == NULL)
			return NULL;
	}
	memcpy(spare, input->bytes + behind, rest);
	*taken_bytes = input->capacity;
	*input = (struct connection_input){ .bytes = spare, .capacity = spare_bytes, .end = rest };
	return taken;
}

/* Room for an answer grows with what has come of it, never with what its length announces. */
static bool
make_room(struct connection_input *input)
{
	size_t larger = input->capacity == 0 ? TRANSFER_INPUT_FIRST_BYTES : input->capacity * 2;
	uint8_t *grown;

	if (input->start == input->end)
		input->start = input->end = 0;
	if (input->end < input->capacity)
		return true;
	if (input->start > 0) {
		memmove(input->bytes, input->bytes + input->start, input->end - input->start);
		input->end -= input->start;
		input->start = 0;
		return true;
	}
	if (larger > TRANSFER_INPUT_MAX_BYTES && input->capacity < TRANSFER_INPUT_MAX_BYTES)
		larger = TRANSFER_INPUT_MAX_BYTES;
	grown = realloc(input->bytes, larger);
	if (grown == NULL)
		return false;
	input->bytes = grown;
	input->capacity = larger;
	return true;
}

/* Returns true when there may be more. */
static bool
read_some(struct lb_connection *connection)
{
	struct connection_input *input = &connection->input;
	size_t room;
	ssize_t got;

	if (!make_room(input)) {
		lb_connection_end(connection, LB_NO_MEMORY, "out of memory for its answers");
		return false;
	}
	room = input->capacity - input->end;
	got = recv(connection->fd, input->bytes + input->end, room, MSG_DONTWAIT);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return errno == EINTR;
	if (got <= 0) {
		lb_connection_lost(connection, got == 0 ? "the broker closed the connection" : strerror(errno));
		return false;
	}
	input->end += (size_t)got;
	lb_transfer_dispatch(connection);
	return (size_t)got == room;
}

void
lb_transfer_receive(struct lb_connection *connection)
{
	for (int reads = 0; reads < TRANSFER_CALLS_MAX && connection->state == CONNECTION_OPEN; reads++) {
		if (!read_some(connection))
			return;
	}
}
