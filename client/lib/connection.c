/*
 * The life of a connection: opened, turned, ended, freed.
 */
#include "client/lib/connection.h"

#include <sys/socket.h>

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/connection_state.h"
#include "client/lib/error.h"
#include "client/lib/wait.h"
#include "common/bytes.h"
#include "common/clock.h"

enum { CONNECTION_ID_AT = 8 };	/* where the correlation id stands in a request */

static struct lb_wants
source_wants(const struct lb_source *source)
{
	return lb_connection_wants((const struct lb_connection *)source);
}

static void
source_process(struct lb_source *source)
{
	lb_connection_turn((struct lb_connection *)source);
}

static void
source_release(struct lb_source *source)
{
	struct lb_connection *connection = (struct lb_connection *)source;

	lb_connecting_forget_retired(connection);
	if (connection->fd >= 0)
		close(connection->fd);
	lb_address_free(&connection->addresses);
	while (connection->unused != NULL) {
		struct operation *operation = connection->unused;

		connection->unused = operation->next;
		free(operation);
	}
	lb_pool_free(&connection->pool);
	free(connection->input.bytes);
	free(connection->kept);
	free(connection->address);
	free(connection);
}

static const struct lb_source_kind connection_kind = {
	.wants = source_wants,
	.process = source_process,
	.release = source_release,
};

/* ---- open ---- */

struct lb_connection_options
lb_connection_defaults(void)
{
	return (struct lb_connection_options){ .timeout_ms = 5000, .memory_bytes = 32 * 1024 * 1024 };
}

static struct lb_connection *
connection_new(const char *address, const struct lb_connection_options *options)
{
	struct lb_connection *connection = calloc(1, sizeof(*connection));

	if (connection == NULL)
		return NULL;
	lb_source_init(&connection->source, &connection_kind);
	connection->timeout_ms = options->timeout_ms;
	connection->memory_bytes = options->memory_bytes;
	connection->metadata_version = 2;
	connection->fd = connection->retired_fd = -1;
	connection->earliest_ns = INT64_MAX;
	lb_operation_init_queue(&connection->unsent);
	lb_operation_init_queue(&connection->left);
	lb_operation_init_queue(&connection->unanswered);
	/* A block is at most twice as large as what is in it. */
	lb_pool_init(&connection->pool, options->memory_bytes < SIZE_MAX / 2 ? 2 * options->memory_bytes : SIZE_MAX);
	connection->address = strdup(address);
	if (connection->address == NULL) {
		source_release(&connection->source);
		return NULL;
	}
	return connection;
}

enum lb_code
lb_connection_open(struct lb_connection **connection, const char *address, const struct lb_connection_options *options,
    struct lb_error *error)
{
	struct lb_connection_options defaults = lb_connection_defaults();
	struct lb_address_list addresses;
	struct lb_connection *new;
	enum lb_code code;

	*connection = NULL;
	if (options == NULL)
		options = &defaults;
	if (options->timeout_ms < 1)
		return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1, "timeout_ms is %d; it must be at least 1",
		    options->timeout_ms);
	if ((code = lb_address_resolve(address, &addresses, error)) != LB_OK)
		return code;
	new = connection_new(address, options);
	if (new == NULL) {
		lb_address_free(&addresses);
		return lb_error_set(error, LB_NO_MEMORY, NULL, -1, -1, "%.200s: out of memory", address);
	}
	new->addresses = addresses;
	new->connect_deadline_ns = clock_now_ns() + new->timeout_ms * (int64_t)CLOCK_NS_PER_MS;
	lb_connecting_begin(new);
	*connection = new;
	return LB_OK;
}

struct lb_source *
lb_connection_source(struct lb_connection *connection)
{
	return &connection->source;
}

const struct lb_error *
lb_connection_failure(const struct lb_connection *connection)
{
	return connection->state == CONNECTION_ENDED ? &connection->failure : NULL;
}

bool
lb_connection_is_open(const struct lb_connection *connection)
{
	return connection->state == CONNECTION_OPEN;
}

/* ---- turns ---- */

/* The operation at *link has run out of time. Returns the link to go on from. */
static struct operation **
expire_one(struct operation_queue *queue, struct operation **link)
{
	struct operation *operation = *link;
	struct lb_connection *connection = operation->connection;
	bool begun = queue != &connection->unsent || (operation == queue->first && connection->sent_bytes > 0);
	bool unknown = begun && operation->kind != LB_FRAME_QUESTION;
	char reason[LB_ERROR_TEXT_BYTES];

	if (!begun) {
		*link = operation->next;
		if (*link == NULL)
			queue->end = link;
	}
	snprintf(reason, sizeof(reason), "%.200s did not %s within %d ms%s", connection->address, begun ? "answer" : "take it",
	    operation->timeout_ms, unknown ? "; its records are in the log, or will be, or not" : "");
	lb_operation_fail(operation, unknown ? LB_OUTCOME_UNKNOWN : LB_TIMED_OUT, reason);
	if (begun)
		return &operation->next;
	lb_operation_release(operation);
	return link;
}

/*
 * A frame of which a byte is outside stays in its queue, so that frames stay whole and answers in order. Callbacks only
 * append to the queues, or end the connection: the link stays good in the one case, and is not used in the other.
 */
static void
expire_queue(struct operation_queue *queue, struct lb_connection *connection, int64_t now_ns)
{
	struct operation **link = &queue->first;

	while (connection->state != CONNECTION_ENDED && *link != NULL) {
		struct operation *operation = *link;

		if (operation->done != NULL && operation->deadline_ns <= now_ns) {
			link = expire_one(queue, link);
			continue;
		}
		if (operation->done != NULL && operation->deadline_ns < connection->earliest_ns)
			connection->earliest_ns = operation->deadline_ns;
		link = &operation->next;
	}
}

static void
expire(struct lb_connection *connection)
{
	int64_t now_ns;

	if (connection->earliest_ns == INT64_MAX || (now_ns = clock_now_ns()) < connection->earliest_ns)
		return;
	connection->earliest_ns = INT64_MAX;
	expire_queue(&connection->unanswered, connection, now_ns);
	expire_queue(&connection->unsent, connection, now_ns);
}

/*
 * Receives before it sends: a frame that would go to a broker that has closed already has then certainly not been
 * executed.
 */
void
lb_connection_turn(struct lb_connection *connection)
{
	lb_connecting_forget_retired(connection);
	if (connection->state == CONNECTION_CONNECTING)
		lb_connecting_process(connection);
	if (connection->state == CONNECTION_OPEN)
		lb_transfer_receive(connection);
	if (connection->state == CONNECTION_OPEN)
		lb_transfer_send(connection);
	expire(connection);
}

struct lb_wants
lb_connection_wants(const struct lb_connection *connection)
{
	struct lb_wants wants = { .fd = -1, .timeout_ms = -1 };
	int64_t deadline_ns = connection->earliest_ns;

	if (connection->state == CONNECTION_ENDED)
		return wants;
	if (connection->state == CONNECTION_CONNECTING && connection->attempt_deadline_ns < deadline_ns)
		deadline_ns = connection->attempt_deadline_ns;
	if (connection->attempt_again_ns != 0 && connection->attempt_again_ns < deadline_ns)
		deadline_ns = connection->attempt_again_ns;
	if (deadline_ns != INT64_MAX)
		wants.timeout_ms = lb_wait_ms(deadline_ns, clock_now_ns());
	if (connection->attempt_again_ns != 0)
		return wants;
	wants.fd = connection->fd;
	if (connection->state == CONNECTION_CONNECTING)
		wants.events = POLLOUT;
	else
		wants.events = connection->unsent.first != NULL ? POLLIN | POLLOUT : POLLIN;
	return wants;
}

/* ---- submitting ---- */

enum lb_code
lb_connection_submit_frame(struct lb_connection *connection, enum lb_frame_kind kind, void *frame, size_t frame_bytes,
    int timeout_ms, lb_answer_cb *done, void *context, struct lb_error *error)
{
	struct operation *operation = lb_operation_new(connection);
	enum lb_code code;

	if (operation == NULL)
		return lb_error_set(error, LB_NO_MEMORY, NULL, -1, -1, "%.200s: out of memory", connection->address);
	operation->kind = kind;
	operation->frame = frame;
	operation->frame_bytes = frame_bytes;
	operation->timeout_ms = timeout_ms;
	operation->done = done;
	operation->context = context;
	code = lb_connection_submit(connection, operation, error);
	if (code != LB_OK)
		lb_operation_release(operation);
	return code;
}

enum lb_code
lb_connection_refuse(const struct lb_connection *connection, struct lb_error *error)
{
	if (error != NULL)
		*error = connection->failure;
	return (enum lb_code)connection->failure.code;
}

enum lb_code
lb_connection_submit(struct lb_connection *connection, struct operation *operation, struct lb_error *error)
{
	if (connection->state == CONNECTION_ENDED)
		return lb_connection_refuse(connection, error);
	if (connection->finishing)
		return lb_error_set(error, LB_CLOSED, NULL, -1, -1,
		    "%.200s: the connection is being closed", connection->address);
	if (operation->timeout_ms < 1)
		return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1, "timeout_ms is %d; it must be at least 1",
		    operation->timeout_ms);
	operation->id = connection->next_id;
	connection->next_id = connection->next_id == INT32_MAX ? 0 : connection->next_id + 1;
	bytes_put_i32(operation->frame + CONNECTION_ID_AT, operation->id);
	operation->deadline_ns = clock_now_ns() + operation->timeout_ms * (int64_t)CLOCK_NS_PER_MS;
	if (operation->deadline_ns < connection->earliest_ns)
		connection->earliest_ns = operation->deadline_ns;
	lb_operation_append(&connection->unsent, operation);
	lb_source_changed(&connection->source);
	return LB_OK;
}

/* ---- the end ---- */

static void
abandon(struct operation_queue *queue, const struct lb_error *failure)
{
	while (queue->first != NULL) {
		struct operation *operation = lb_operation_take_first(queue);
		bool unknown = operation->whole && operation->kind == LB_FRAME_PRODUCE;
		char text[LB_ERROR_TEXT_BYTES + 64];

		snprintf(text, sizeof(text), "%s%s", failure->text, unknown ? "; its records are in the log, or not" : "");
		lb_operation_fail(operation, unknown ? LB_OUTCOME_UNKNOWN : failure->code, text);
		lb_operation_release(operation);
	}
}

/* A callback that frees the connection has all that is behind it completed inside that free. */
static void
complete_outstanding(struct lb_connection *connection)
{
	lb_operation_complete_left(connection);
	abandon(&connection->unanswered, &connection->failure);
	abandon(&connection->unsent, &connection->failure);
}

/*
 * The descriptor is shut down, and closed with the connection's memory only: otherwise a connection that is opened
 * inside one of these callbacks would get the same number before this one's watcher has let go of it.
 */
void
lb_connection_end(struct lb_connection *connection, int code, const char *format, ...)
{
	char reason[LB_ERROR_TEXT_BYTES / 2];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, sizeof(reason), format, arguments);
	va_end(arguments);
	lb_error_set(&connection->failure, code, NULL, -1, -1, "%.200s: %s", connection->address, reason);
	connection->state = CONNECTION_ENDED;
	if (connection->fd >= 0)
		shutdown(connection->fd, SHUT_RDWR);
	complete_outstanding(connection);
}

void
lb_connection_lost(struct lb_connection *connection, const char *reason)
{
	if (connection->state != CONNECTION_OPEN)
		return;
	if (connection->sent_bytes > 0) {
		lb_operation_append(&connection->unanswered, lb_operation_take_first(&connection->unsent));
		connection->sent_bytes = 0;
	}
	lb_transfer_dispatch(connection);
	if (connection->state != CONNECTION_OPEN)
		return;
	if (connection->finishing && connection->unsent.first == NULL)
		lb_connection_end(connection, LB_CLOSED, "closed as was asked for");
	else
		lb_connection_end(connection, LB_LOST, "%s", reason);
}

void
lb_connection_reject(struct lb_connection *connection, const char *what)
{
	connection->rejected = true;
	connection->rejection = what;
}

void
lb_connection_finish(struct lb_connection *connection)
{
	connection->finishing = true;
	if (connection->state == CONNECTION_OPEN && connection->unsent.first == NULL)
		shutdown(connection->fd, SHUT_WR);
}

void
lb_connection_free(struct lb_connection *connection)
{
	/* A callback that is told of LB_CLOSED may do what it does with every error. */
	if (connection == NULL || connection->freed)
		return;
	connection->freed = true;
	lb_source_enter(&connection->source);
	if (connection->state != CONNECTION_ENDED)
		lb_connection_end(connection, LB_CLOSED, "the connection was freed");
	else
		complete_outstanding(connection);
	lb_source_free(&connection->source);
	lb_source_leave(&connection->source);
}
