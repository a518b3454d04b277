/*
 * Synchronous calls: an operation, and turns of the connection until it has completed. Its deadline is the
 * operation's. What else completes meanwhile calls back as ever, and may free the connection: then this operation
 * completes by that.
 */
#include "client/lib/connection_state.h"
#include "client/lib/error.h"
#include "client/lib/wait.h"

struct call {
	struct lb_connection *connection;
	bool over;
	enum lb_code code;
	struct lb_error *error;		/* NULL: not wanted */
	void *result;
};

static void
settle(struct call *call, const struct lb_error *error)
{
	call->over = true;
	call->code = error == NULL ? LB_OK : (enum lb_code)error->code;
	if (error != NULL && call->error != NULL)
		*call->error = *error;
}

static enum lb_code
await(struct call *call)
{
	struct lb_connection *connection = call->connection;

	lb_source_enter(&connection->source);
	lb_connection_turn(connection);
	while (!call->over) {
		lb_wait_for(&connection->source, -1);
		lb_connection_turn(connection);
	}
	lb_source_leave(&connection->source);
	return call->code;
}

static enum lb_code
refuse_inside_callback(const struct lb_connection *connection, struct lb_error *error)
{
	return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1,
	    "%.200s: a synchronous call inside a callback of the same connection would wait for itself; "
	    "submit the operation instead", connection->address);
}

static void
on_produced(void *context, const struct lb_produced *produced, const struct lb_error *error)
{
	struct call *call = context;
	struct lb_produced *result = call->result;

	if (produced != NULL && result != NULL)
		*result = *produced;
	settle(call, error);
}

enum lb_code
lb_connection_produce(struct lb_connection *connection, const char *topic, int32_t partition, enum lb_ack ack,
    const struct lb_payload *records, size_t record_count, struct lb_produced *produced, struct lb_error *error)
{
	struct call call = { .connection = connection, .error = error, .result = produced };
	enum lb_code code;

	if (lb_source_busy(&connection->source))
		return refuse_inside_callback(connection, error);
	code = lb_request_produce(connection, topic, partition, ack, records, record_count, true, on_produced, &call, error);
	return code != LB_OK ? code : await(&call);
}

/* The payload must outlive this callback: its memory is kept, and the connection receives into what was kept before. */
static void
on_fetched(void *context, const struct lb_fetched *fetched, const struct lb_error *error)
{
	struct call *call = context;
	struct lb_connection *connection = call->connection;
	struct lb_error no_memory;
	void *spare = connection->kept;

	if (fetched != NULL) {
		*(struct lb_fetched *)call->result = *fetched;
		connection->kept = lb_connection_take_answer(connection, spare, connection->kept_bytes, &connection->kept_bytes);
		if (connection->kept == NULL) {
			lb_error_set(&no_memory, LB_NO_MEMORY, NULL, -1, -1, "%.200s: out of memory for an answer",
			    connection->address);
			error = &no_memory;
		}
	}
	settle(call, error);
}

enum lb_code
lb_connection_fetch(struct lb_connection *connection, const struct lb_fetch *fetch, struct lb_fetched *fetched,
    struct lb_error *error)
{
	struct call call = { .connection = connection, .error = error, .result = fetched };
	enum lb_code code;

	if (lb_source_busy(&connection->source))
		return refuse_inside_callback(connection, error);
	code = lb_request_fetch(connection, fetch, true, on_fetched, &call, error);
	return code != LB_OK ? code : await(&call);
}

static void
on_metadata(void *context, struct lb_metadata *metadata, const struct lb_error *error)
{
	struct call *call = context;

	*(struct lb_metadata **)call->result = metadata;
	settle(call, error);
}

enum lb_code
lb_connection_metadata(struct lb_connection *connection, const char *const *topics, size_t topic_count,
    struct lb_metadata **metadata, struct lb_error *error)
{
	struct call call = { .connection = connection, .error = error, .result = metadata };
	enum lb_code code;

	*metadata = NULL;
	if (lb_source_busy(&connection->source))
		return refuse_inside_callback(connection, error);
	code = lb_request_metadata(connection, topics, topic_count, true, on_metadata, &call, error);
	return code != LB_OK ? code : await(&call);
}
