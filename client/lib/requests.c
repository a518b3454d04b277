/*
 * Submitted operations: arguments checked and encoded into memory of the connection's own, answers decoded for their
 * callbacks.
 */
#include <limits.h>
#include <string.h>

#include "client/lib/codec.h"
#include "client/lib/connection_state.h"
#include "client/lib/error.h"
#include "common/bytes.h"

enum { REQUEST_VERSION_AT = 6 };	/* where the version stands in a request */

/* ---- what is wrong with arguments that the codec does not take ---- */

static enum lb_code
refuse_partition(const char *topic, int32_t partition, struct lb_error *error)
{
	return lb_error_set(error, LB_INVALID_ARGUMENT, topic, partition, -1,
	    "topic %s: partition %d; partitions count from 0", topic, partition);
}

static enum lb_code
refuse_produce(const char *topic, int32_t partition, enum lb_ack ack, const struct lb_payload *records, size_t record_count,
    struct lb_error *error)
{
	if (!lb_topic_name_valid(topic))
		return lb_error_no_topic(error, topic);
	if (partition < 0)
		return refuse_partition(topic, partition, error);
	if (ack != LB_ACK_NONE && ack != LB_ACK_WRITTEN && ack != LB_ACK_FORCED)
		return lb_error_set(error, LB_INVALID_ARGUMENT, topic, partition, -1,
		    "topic %s, partition %d: ack is %d; see enum lb_ack", topic, partition, (int)ack);
	if (record_count < 1)
		return lb_error_set(error, LB_INVALID_ARGUMENT, topic, partition, -1,
		    "topic %s, partition %d: a PRODUCE needs at least one record", topic, partition);
	for (size_t i = 0; i < record_count; i++) {
		if (records[i].bytes < 1)
			return lb_error_set(error, LB_INVALID_ARGUMENT, topic, partition, -1,
			    "topic %s, partition %d: record %zu has no bytes; empty records do not exist", topic, partition, i);
	}
	return lb_error_set(error, LB_INVALID_ARGUMENT, topic, partition, -1,
	    "topic %s, partition %d: %zu records make a frame above %d bytes; send them as several requests", topic, partition,
	    record_count, LB_FRAME_MAX_BYTES);
}

static enum lb_code
refuse_fetch(const struct lb_fetch *fetch, struct lb_error *error)
{
	const char *topic = fetch->topic;

	if (!lb_topic_name_valid(topic))
		return lb_error_no_topic(error, topic);
	if (fetch->partition < 0)
		return refuse_partition(topic, fetch->partition, error);
	return lb_error_set(error, LB_INVALID_ARGUMENT, topic, fetch->partition, fetch->offset,
	    "topic %s, partition %d: a FETCH with offset %lld, max_bytes %d, max_wait_ms %d, min_bytes %d; "
	    "offset and max_wait_ms must be at least 0, max_bytes at least 1, min_bytes 0 to max_bytes",
	    topic, fetch->partition, (long long)fetch->offset, fetch->max_bytes, fetch->max_wait_ms, fetch->min_bytes);
}

static enum lb_code
refuse_metadata(const char *const *topics, size_t topic_count, struct lb_error *error)
{
	for (size_t i = 0; i < topic_count; i++) {
		if (!lb_topic_name_valid(topics[i]))
			return lb_error_no_topic(error, topics[i]);
	}
	return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1,
	    "METADATA of %zu topics does not fit a frame; 0 asks for all", topic_count);
}

static enum lb_code
refuse_no_callback(struct lb_error *error)
{
	return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1, "a submitted operation needs a callback");
}

/* ---- submitting ---- */

/* An operation with memory for its frame, or why not. */
static enum lb_code
begin(struct lb_connection *connection, size_t frame_bytes, bool unlimited, struct operation **operation,
    struct lb_error *error)
{
	struct operation *new;

	if (connection->state == CONNECTION_ENDED)
		return lb_connection_refuse(connection, error);
	if (!unlimited && connection->public_outstanding > 0 &&
	    connection->public_bytes + frame_bytes > connection->memory_bytes)
		return lb_error_set(error, LB_WOULD_BLOCK, NULL, -1, -1,
		    "%.200s: requests of %zu bytes wait for their answers (memory_bytes is %zu); "
		    "submit again when one has completed",
		    connection->address, connection->public_bytes, connection->memory_bytes);
	new = lb_operation_new(connection);
	if (new == NULL)
		return lb_error_set(error, LB_NO_MEMORY, NULL, -1, -1, "%.200s: out of memory", connection->address);
	new->block = lb_pool_take(&connection->pool, frame_bytes);
	if (new->block == NULL) {
		lb_operation_release(new);
		return lb_error_set(error, LB_NO_MEMORY, NULL, -1, -1, "%.200s: out of memory for a request of %zu bytes",
		    connection->address, frame_bytes);
	}
	new->frame = lb_block_bytes(new->block);
	new->frame_bytes = frame_bytes;
	new->timeout_ms = connection->timeout_ms;
	connection->public_bytes += frame_bytes;
	*operation = new;
	return LB_OK;
}

/* One whose frame and user callback are there. */
static enum lb_code
submit(struct operation *operation, enum lb_frame_kind kind, lb_answer_cb *done, void *user_context, struct lb_error *error)
{
	struct lb_connection *connection = operation->connection;
	enum lb_code code;

	operation->kind = kind;
	operation->done = done;
	operation->context = operation;
	operation->user_context = user_context;
	code = lb_connection_submit(connection, operation, error);
	if (code == LB_OK)
		connection->public_outstanding++;
	else
		lb_operation_release(operation);
	return code;
}

/* A broker's refusal as an error. */
static void
explain_answer(const struct operation *operation, const struct lb_answer *answer, struct lb_error *error)
{
	char reason[LB_ERROR_TEXT_BYTES / 2];

	lb_error_explain(reason, sizeof(reason), operation->connection->address, answer->error_code);
	lb_operation_describe(operation, answer->error_code, reason, error);
}

/* ---- PRODUCE ---- */

static void
finish_produce(void *context, const struct lb_answer *answer, const struct lb_error *error)
{
	struct operation *operation = context;
	struct lb_produced produced = { .base_offset = -1, .log_end_offset = -1 };
	struct lb_error own;

	if (error == NULL && answer != NULL && answer->error_code != 0) {
		explain_answer(operation, answer, &own);
		error = &own;
	} else if (error == NULL && answer != NULL && lb_read_produced(&produced, answer, operation->frame) != LB_OK) {
		lb_connection_reject(operation->connection,
		    "an answer to a PRODUCE has not the size of one, or impossible offsets");
		lb_operation_describe(operation, LB_OUTCOME_UNKNOWN,
		    "its answer cannot be read; its records are in the log, or not", &own);
		error = &own;
	}
	operation->user.produced(operation->user_context, error == NULL ? &produced : NULL, error);
}

enum lb_code
lb_request_produce(struct lb_connection *connection, const char *topic, int32_t partition, enum lb_ack ack,
    const struct lb_payload *records, size_t record_count, bool unlimited, lb_produced_cb *done, void *context,
    struct lb_error *error)
{
	size_t bytes = lb_encode_produce(NULL, 0, 0, topic, partition, ack, records, record_count);
	struct operation *operation;
	enum lb_code code;

	if (bytes == 0)
		return refuse_produce(topic, partition, ack, records, record_count, error);
	if ((code = begin(connection, bytes, unlimited, &operation, error)) != LB_OK)
		return code;
	lb_encode_produce(operation->frame, bytes, 0, topic, partition, ack, records, record_count);
	operation->user.produced = done;
	return submit(operation, ack == LB_ACK_NONE ? LB_FRAME_UNANSWERED : LB_FRAME_PRODUCE, finish_produce, context, error);
}

enum lb_code
lb_connection_submit_produce(struct lb_connection *connection, const char *topic, int32_t partition, enum lb_ack ack,
    const struct lb_payload *records, size_t record_count, lb_produced_cb *done, void *context, struct lb_error *error)
{
	if (done == NULL)
		return refuse_no_callback(error);
	return lb_request_produce(connection, topic, partition, ack, records, record_count, false, done, context, error);
}

/* ---- FETCH ---- */

static void
finish_fetch(void *context, const struct lb_answer *answer, const struct lb_error *error)
{
	struct operation *operation = context;
	struct lb_fetched fetched;
	struct lb_error own;

	if (error == NULL && answer->error_code != 0) {
		explain_answer(operation, answer, &own);
		error = &own;
	} else if (error == NULL && lb_read_fetched(&fetched, answer, operation->frame) != LB_OK) {
		lb_connection_reject(operation->connection,
		    "an answer to a FETCH has other lengths than one, or more than was asked for");
		lb_operation_describe(operation, LB_BAD_ANSWER, "its answer cannot be read; is it a logbroker's port?", &own);
		error = &own;
	}
	operation->user.fetched(operation->user_context, error == NULL ? &fetched : NULL, error);
}

enum lb_code
lb_request_fetch(struct lb_connection *connection, const struct lb_fetch *fetch, bool unlimited, lb_fetched_cb *done,
    void *context, struct lb_error *error)
{
	/* Brokers that know only version 1 are asked in it as far as it goes. */
	int16_t version = fetch->max_wait_ms == 0 && fetch->min_bytes == 0 ? 1 : 2;
	size_t bytes = lb_encode_fetch(NULL, 0, version, 0, fetch->topic, fetch->partition, fetch->offset, fetch->max_bytes,
	    fetch->max_wait_ms, fetch->min_bytes);
	struct operation *operation;
	enum lb_code code;

	if (bytes == 0)
		return refuse_fetch(fetch, error);
	if ((code = begin(connection, bytes, unlimited, &operation, error)) != LB_OK)
		return code;
	lb_encode_fetch(operation->frame, bytes, version, 0, fetch->topic, fetch->partition, fetch->offset, fetch->max_bytes,
	    fetch->max_wait_ms, fetch->min_bytes);
	if (operation->timeout_ms > INT_MAX - fetch->max_wait_ms)
		operation->timeout_ms = INT_MAX;
	else
		operation->timeout_ms += fetch->max_wait_ms;
	operation->user.fetched = done;
	return submit(operation, LB_FRAME_QUESTION, finish_fetch, context, error);
}

enum lb_code
lb_connection_submit_fetch(struct lb_connection *connection, const struct lb_fetch *fetch, lb_fetched_cb *done, void *context,
    struct lb_error *error)
{
	if (done == NULL)
		return refuse_no_callback(error);
	return lb_request_fetch(connection, fetch, false, done, context, error);
}

/* ---- METADATA ---- */

static void finish_metadata(void *context, const struct lb_answer *answer, const struct lb_error *error);

/* Version 1 has the same body, so the frame goes once more, behind what has been submitted meanwhile. */
static void
ask_again_as_v1(struct operation *operation)
{
	operation->connection->metadata_version = 1;
	operation->connection->public_outstanding++;
	bytes_put_i16(operation->frame + REQUEST_VERSION_AT, 1);
	operation->done = finish_metadata;
	operation->again = true;
}

static void
finish_metadata(void *context, const struct lb_answer *answer, const struct lb_error *error)
{
	struct operation *operation = context;
	int16_t version = bytes_get_i16(operation->frame + REQUEST_VERSION_AT);
	struct lb_metadata *metadata = NULL;
	struct lb_error own;
	enum lb_code code = LB_OK;

	if (error == NULL && answer->error_code == LB_UNSUPPORTED_VERSION && version == 2) {
		ask_again_as_v1(operation);
		return;
	}
	if (error == NULL && answer->error_code != 0) {
		explain_answer(operation, answer, &own);
		error = &own;
	} else if (error == NULL && (code = lb_read_metadata(&metadata, answer, operation->frame)) != LB_OK) {
		if (code == LB_BAD_ANSWER)
			lb_connection_reject(operation->connection,
			    "an answer to a METADATA has counts or lengths that cannot be, or lacks a topic");
		lb_operation_describe(operation, code, code == LB_NO_MEMORY ? "out of memory for its answer" :
		    "its answer cannot be read; is it a logbroker's port?", &own);
		error = &own;
	}
	operation->user.metadata(operation->user_context, error == NULL ? metadata : NULL, error);
}

enum lb_code
lb_request_metadata(struct lb_connection *connection, const char *const *topics, size_t topic_count, bool unlimited,
    lb_metadata_cb *done, void *context, struct lb_error *error)
{
	int16_t version = connection->metadata_version;
	size_t bytes = lb_encode_metadata(NULL, 0, version, 0, topics, topic_count);
	struct operation *operation;
	enum lb_code code;

	if (bytes == 0)
		return refuse_metadata(topics, topic_count, error);
	if ((code = begin(connection, bytes, unlimited, &operation, error)) != LB_OK)
		return code;
	lb_encode_metadata(operation->frame, bytes, version, 0, topics, topic_count);
	operation->user.metadata = done;
	return submit(operation, LB_FRAME_QUESTION, finish_metadata, context, error);
}

enum lb_code
lb_connection_submit_metadata(struct lb_connection *connection, const char *const *topics, size_t topic_count,
    lb_metadata_cb *done, void *context, struct lb_error *error)
{
	if (done == NULL)
		return refuse_no_callback(error);
	return lb_request_metadata(connection, topics, topic_count, false, done, context, error);
}
