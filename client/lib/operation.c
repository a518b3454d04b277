/*
 * Operations: queues of them, and how they complete.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/connection_state.h"
#include "common/bytes.h"
#include "common/codec.h"

enum { OPERATION_BODY = 12 };	/* where a request's body begins: length, key, version, correlation id */

void
lb_operation_init_queue(struct operation_queue *queue)
{
	queue->first = NULL;
	queue->end = &queue->first;
}

void
lb_operation_append(struct operation_queue *queue, struct operation *operation)
{
	operation->next = NULL;
	*queue->end = operation;
	queue->end = &operation->next;
}

struct operation *
lb_operation_take_first(struct operation_queue *queue)
{
	struct operation *operation = queue->first;

	queue->first = operation->next;
	if (queue->first == NULL)
		queue->end = &queue->first;
	return operation;
}

struct operation *
lb_operation_new(struct lb_connection *connection)
{
	struct operation *operation = connection->unused;

	if (operation == NULL)
		operation = malloc(sizeof(*operation));
	else
		connection->unused = operation->next;
	if (operation != NULL)
		*operation = (struct operation){ .connection = connection };
	return operation;
}

void
lb_operation_release(struct operation *operation)
{
	struct lb_connection *connection = operation->connection;

	if (operation->block != NULL) {
		connection->public_bytes -= operation->frame_bytes;
		lb_pool_give(&connection->pool, operation->block);
	}
	operation->next = connection->unused;
	connection->unused = operation;
}

void
lb_operation_complete(struct operation *operation, const struct lb_answer *answer, const struct lb_error *error)
{
	lb_answer_cb *done = operation->done;

	if (done == NULL)
		return;
	operation->done = NULL;
	if (operation->block != NULL)
		operation->connection->public_outstanding--;
	done(operation->context, answer, error);
}

void
lb_operation_complete_left(struct lb_connection *connection)
{
	while (connection->left.first != NULL) {
		struct operation *operation = lb_operation_take_first(&connection->left);

		lb_operation_complete(operation, NULL, NULL);
		lb_operation_release(operation);
	}
}

/* A name ahead of which its length stands. */
static const uint8_t *
copy_topic(struct lb_error *error, const uint8_t *at)
{
	size_t length = bytes_get_u16(at);

	memcpy(error->topic, at + 2, length <= LB_TOPIC_NAME_MAX ? length : LB_TOPIC_NAME_MAX);
	return at + 2 + length;
}

static void
describe_metadata(const uint8_t *body, struct lb_error *error)
{
	int32_t count = bytes_get_i32(body);

	if (count == 1)
		copy_topic(error, body + 4);
	if (count == 0)
		snprintf(error->text, sizeof(error->text), "METADATA of all topics");
	else if (count == 1)
		snprintf(error->text, sizeof(error->text), "METADATA of %s", error->topic);
	else
		snprintf(error->text, sizeof(error->text), "METADATA of %d topics", count);
}

static void
describe_records(const uint8_t *body, int16_t key, struct lb_error *error)
{
	const uint8_t *partition = copy_topic(error, body);

	error->partition = bytes_get_i32(partition);
	if (key == CODEC_PRODUCE) {
		snprintf(error->text, sizeof(error->text), "PRODUCE to %s/%d", error->topic, error->partition);
		return;
	}
	error->offset = bytes_get_i64(partition + 4);
	snprintf(error->text, sizeof(error->text), "FETCH of %s/%d at offset %lld", error->topic, error->partition,
	    (long long)error->offset);
}

void
lb_operation_describe(const struct operation *operation, int code, const char *reason, struct lb_error *error)
{
	const uint8_t *body = operation->frame + OPERATION_BODY;
	int16_t key = bytes_get_i16(operation->frame + CODEC_LENGTH_BYTES);
	size_t used;

	*error = (struct lb_error){ .code = code, .partition = -1, .offset = -1, .record_bytes = -1 };
	if (key == CODEC_METADATA)
		describe_metadata(body, error);
	else
		describe_records(body, key, error);
	used = strlen(error->text);
	snprintf(error->text + used, sizeof(error->text) - used, ": %s", reason);
}

void
lb_operation_fail(struct operation *operation, int code, const char *reason)
{
	struct lb_error error;

	if (operation->done == NULL)
		return;
	lb_operation_describe(operation, code, reason, &error);
	lb_operation_complete(operation, NULL, &error);
}
