/*
 * One partition of a subscription: see reader.h.
 */
#include "client/lib/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/codec.h"
#include "client/lib/error.h"
#include "common/clock.h"

/* A connection that lasted so long without an answer (to a FETCH that was held) was one. */
static const int64_t LASTED_NS = CLOCK_NS_PER_S;

void
lb_reader_init(struct lb_reader *reader, const struct lb_reader_setting *setting, int32_t partition, bool first)
{
	int64_t now_ns = clock_now_ns();
	uint64_t seed = (uint64_t)now_ns ^ (uint64_t)(uintptr_t)reader;

	*reader = (struct lb_reader){ .setting = setting, .first = first, .down_since_ns = now_ns };
	lb_watch_init(&reader->watch, setting->epoll_fd);
	lb_cursor_init(&reader->cursor, setting->options, setting->address, setting->topic, partition, seed);
	lb_backoff_init(&reader->backoff, ~seed);
}

/* ---- the connection ---- */

/* Without a place in the epoll set nothing would be noticed: the connection is given up. */
static void
follow(struct lb_reader *reader)
{
	if (!lb_watch_follow(&reader->watch, reader->connection, reader))
		lb_error_set(&reader->refusal, LB_NO_MEMORY, NULL, -1, -1, "%s: epoll_ctl: %s", reader->setting->address,
		    strerror(errno));
}

void
lb_reader_close(struct lb_reader *reader)
{
	struct lb_connection *connection = reader->connection;

	reader->connection = NULL;
	reader->asked = LB_ASK_NOTHING;
	reader->refusal.code = LB_OK;
	lb_watch_end(&reader->watch);
	lb_connection_free(connection);
}

void
lb_reader_free(struct lb_reader *reader)
{
	lb_reader_close(reader);
	lb_metadata_free(reader->metadata);
	for (unsigned i = 0; i < reader->batch_count; i++)
		free(reader->batches[i].block.memory);
	for (unsigned i = 0; i < reader->spare_count; i++)
		free(reader->spares[i].memory);
}

/* What no other try would change. */
static bool
is_final(int code)
{
	return code == LB_BAD_ANSWER || code == LB_NO_MEMORY || code == LB_INVALID_ARGUMENT;
}

static void
wait_for_next_try(struct lb_reader *reader, const struct lb_error *error, int64_t now_ns)
{
	int64_t give_up_ns = (int64_t)reader->setting->options->give_up_ms * CLOCK_NS_PER_MS;

	if (is_final(error->code) || (give_up_ns >= 0 && now_ns - reader->down_since_ns >= give_up_ns)) {
		lb_cursor_fail(&reader->cursor, error);
		reader->cursor.error.partition = reader->cursor.partition;
		snprintf(reader->cursor.error.topic, sizeof(error->topic), "%s", reader->cursor.topic);
		return;
	}
	lb_backoff_failed(&reader->backoff, now_ns);
	if (give_up_ns >= 0 && reader->backoff.due_ns > reader->down_since_ns + give_up_ns)
		reader->backoff.due_ns = reader->down_since_ns + give_up_ns;
}

/* The connection does not work any more. If it did, the time without one begins now. */
static void
lose(struct lb_reader *reader, const struct lb_error *why, int64_t now_ns)
{
	struct lb_error error = *why;

	if (reader->answered || (error.code == LB_LOST && now_ns - reader->opened_ns >= LASTED_NS)) {
		lb_backoff_worked(&reader->backoff);
		reader->down_since_ns = now_ns;
	}
	lb_reader_close(reader);
	lb_cursor_lost(&reader->cursor);
	if (lb_cursor_wants(&reader->cursor) != LB_ASK_NOTHING)
		wait_for_next_try(reader, &error, now_ns);
}

enum lb_code
lb_reader_connect(struct lb_reader *reader, int64_t now_ns, struct lb_error *error)
{
	struct lb_connection_options options = lb_connection_defaults();
	struct lb_error why;

	options.timeout_ms = reader->setting->options->timeout_ms;
	if (reader->backoff.wait_ns == 0)
		reader->down_since_ns = now_ns;
	reader->opened_ns = now_ns;
	reader->answered = false;
	reader->look = reader->first && reader->cursor.state != LB_CURSOR_UNPLACED ? LB_LOOK_NOW : LB_LOOK_NO;
	if (lb_connection_open(&reader->connection, reader->setting->address, &options, &why) == LB_OK) {
		follow(reader);
		return LB_OK;
	}
	reader->connection = NULL;
	wait_for_next_try(reader, &why, now_ns);
	if (error != NULL)
		*error = why;
	return is_final(why.code) ? (enum lb_code)why.code : LB_OK;
}

void
lb_reader_process(struct lb_reader *reader)
{
	struct lb_source *source;

	if (reader->connection == NULL)
		return;
	source = lb_connection_source(reader->connection);
	if (!reader->ready && lb_source_wants(source).timeout_ms != 0)
		return;
	reader->ready = false;
	lb_source_process(source);
	follow(reader);
}

/* ---- answers: called from inside the connection, so they only note ---- */

/* False: it is about a connection that has been given up, or is from now on. */
static bool
note_answer(struct lb_reader *reader, const struct lb_error *error)
{
	if (reader->connection == NULL)
		return false;
	reader->asked = LB_ASK_NOTHING;
	if (error == NULL || error->code > 0)
		return true;
	reader->refusal = *error;
	return false;
}

/* What was wanted of the connection, it does. (METADATA may well be answered by a broker that cannot answer a FETCH to its end.) */
static void
note_service(struct lb_reader *reader)
{
	reader->answered = true;
	lb_backoff_worked(&reader->backoff);
}

static void
keep_batch(struct lb_reader *reader, const struct lb_batch *batch)
{
	struct lb_reader_batch *kept = &reader->batches[reader->batch_count++];
	struct lb_reader_block spare = { NULL, 0 };

	if (reader->spare_count > 0)
		spare = reader->spares[--reader->spare_count];
	kept->batch = *batch;
	kept->block.memory = lb_connection_take_answer(reader->connection, spare.memory, spare.bytes, &kept->block.bytes);
	if (kept->block.memory == NULL) {
		reader->batch_count--;
		lb_cursor_not_kept(&reader->cursor, batch);
	}
}

static void
on_fetched(void *context, const struct lb_answer *answer, const struct lb_error *error)
{
	struct lb_reader *reader = context;
	struct lb_fetched fetched;
	struct lb_batch batch;

	if (!note_answer(reader, error))
		return;
	note_service(reader);
	if (reader->look == LB_LOOK_LATER)
		reader->look = LB_LOOK_NOW;
	if (answer->error_code != 0) {
		lb_cursor_refused(&reader->cursor, answer->error_code, clock_now_ns());
		return;
	}
	if (lb_read_fetched(&fetched, answer, reader->frame) != LB_OK) {
		lb_connection_reject(reader->connection, "its answer to a FETCH is malformed");
		return;
	}
	lb_cursor_fetched(&reader->cursor, &fetched, reader->asked_ns, &batch);
	if (batch.record_count > 0)
		keep_batch(reader, &batch);
}

/* METADATA of a partition whose FETCH was out of range. */
static void
find_again(struct lb_reader *reader, const struct lb_metadata *metadata)
{
	const struct lb_topic_metadata *topic = lb_metadata_find(metadata, reader->setting->topic);

	if (reader->cursor.partition < topic->partition_count)
		lb_cursor_found(&reader->cursor, &topic->partitions[reader->cursor.partition], clock_now_ns());
	else
		lb_cursor_refused(&reader->cursor, LB_UNKNOWN_TOPIC_OR_PARTITION, clock_now_ns());
}

static void
on_metadata(void *context, struct lb_metadata *metadata, const struct lb_error *error)
{
	struct lb_reader *reader = context;
	bool looked = reader->look == LB_LOOK_NOW;

	if (!note_answer(reader, error)) {
		lb_metadata_free(metadata);
		return;
	}
	if (reader->cursor.state == LB_CURSOR_UNPLACED)
		note_service(reader);
	if (looked)
		reader->look = error != NULL ? LB_LOOK_LATER : LB_LOOK_NO;
	else if (error != NULL)
		lb_cursor_refused(&reader->cursor, error->code, clock_now_ns());
	if (metadata == NULL)
		return;
	if (reader->cursor.state == LB_CURSOR_MISPLACED)
		find_again(reader, metadata);
	if (!reader->first) {
		lb_metadata_free(metadata);
		return;
	}
	lb_metadata_free(reader->metadata);
	reader->metadata = metadata;
}

/* ---- questions ---- */

/* Of the next FETCH, or METADATA. */
static enum lb_question
question(const struct lb_reader *reader)
{
	enum lb_question wanted = lb_cursor_wants(&reader->cursor);

	return wanted == LB_ASK_FETCH && reader->look == LB_LOOK_NOW ? LB_ASK_METADATA : wanted;
}

static bool
may_ask_now(const struct lb_reader *reader, int64_t now_ns)
{
	return reader->asked == LB_ASK_NOTHING && reader->metadata == NULL && reader->batch_count < LB_READER_BATCHES &&
	    now_ns >= reader->cursor.not_before_ns;
}

static enum lb_code
submit_fetch(struct lb_reader *reader, struct lb_error *error)
{
	struct lb_fetch fetch;
	size_t bytes;

	lb_cursor_fetch(&reader->cursor, &fetch);
	bytes = lb_encode_fetch(reader->frame, sizeof(reader->frame), reader->cursor.fetch_version, 0, fetch.topic,
	    fetch.partition, fetch.offset, fetch.max_bytes, fetch.max_wait_ms, fetch.min_bytes);
	return lb_connection_submit_frame(reader->connection, LB_FRAME_QUESTION, reader->frame, bytes,
	    reader->setting->options->timeout_ms + fetch.max_wait_ms, on_fetched, reader, error);
}

static void
ask(struct lb_reader *reader, int64_t now_ns)
{
	struct lb_error error;
	enum lb_code code;

	reader->asked = question(reader);
	reader->asked_ns = now_ns;
	if (reader->asked == LB_ASK_FETCH)
		code = submit_fetch(reader, &error);
	else
		code = lb_connection_submit_metadata(reader->connection, &reader->setting->topic, 1, on_metadata, reader, &error);
	if (code != LB_OK) {
		lose(reader, &error, now_ns);
		return;
	}
	/* Sent at once. */
	lb_source_process(lb_connection_source(reader->connection));
	follow(reader);
}

void
lb_reader_work(struct lb_reader *reader, bool may_ask, int64_t now_ns)
{
	if (reader->connection != NULL && reader->refusal.code != LB_OK)
		lose(reader, &reader->refusal, now_ns);
	else if (reader->connection != NULL && lb_connection_failure(reader->connection) != NULL)
		lose(reader, lb_connection_failure(reader->connection), now_ns);
	if (reader->cursor.state == LB_CURSOR_ENDED)
		lb_reader_close(reader);
	if (!may_ask || question(reader) == LB_ASK_NOTHING)
		return;
	if (reader->connection == NULL && now_ns >= reader->backoff.due_ns)
		lb_reader_connect(reader, now_ns, NULL);
	if (reader->connection != NULL && may_ask_now(reader, now_ns))
		ask(reader, now_ns);
}

static int64_t
earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t
lb_reader_due_ns(const struct lb_reader *reader, bool may_ask, int64_t now_ns)
{
	int64_t due_ns = INT64_MAX;

	if (reader->metadata != NULL || reader->refusal.code != LB_OK)
		return now_ns;
	if (reader->connection != NULL) {
		struct lb_wants wants = lb_source_wants(lb_connection_source(reader->connection));

		if (wants.timeout_ms >= 0)
			due_ns = now_ns + (int64_t)wants.timeout_ms * CLOCK_NS_PER_MS;
	}
	if (!may_ask || question(reader) == LB_ASK_NOTHING)
		return due_ns;
	if (reader->connection == NULL)
		return reader->backoff.due_ns;
	if (may_ask_now(reader, INT64_MAX))
		return earlier(due_ns, reader->cursor.not_before_ns);
	return due_ns;
}

/* ---- batches ---- */

const struct lb_batch *
lb_reader_batch(const struct lb_reader *reader)
{
	return reader->batch_count > 0 ? &reader->batches[0].batch : NULL;
}

/* A block is only allocated while there is no spare one, so there are never more than fit. */
static void
give_back(struct lb_reader *reader, const struct lb_reader_batch *batch)
{
	reader->spares[reader->spare_count++] = batch->block;
}

void
lb_reader_handled(struct lb_reader *reader)
{
	give_back(reader, &reader->batches[0]);
	reader->batch_count--;
	if (reader->batch_count > 0)
		reader->batches[0] = reader->batches[1];
	reader->replaced = false;
}

/* A question that is out may be held by the broker for long, and holds up what is behind it: a new connection does not wait. */
void
lb_reader_seek(struct lb_reader *reader, int64_t offset, bool batch_out)
{
	unsigned stay = batch_out ? 1 : 0;

	while (reader->batch_count > stay)
		give_back(reader, &reader->batches[--reader->batch_count]);
	reader->replaced = batch_out;
	if (reader->asked != LB_ASK_NOTHING)
		lb_reader_close(reader);
	/* What was given up is tried anew, for as long. */
	if (reader->cursor.state == LB_CURSOR_FAILED)
		reader->down_since_ns = clock_now_ns();
	lb_cursor_seek(&reader->cursor, offset);
}

/* Ahead of a gap that no batch has told yet: who keeps the position now, and begins there again, is told. */
int64_t
lb_reader_position(const struct lb_reader *reader, bool batch_out)
{
	unsigned next = reader->replaced ? 1 : 0;
	const struct lb_batch *batch = &reader->batches[next].batch;

	if (next < reader->batch_count)
		return batch->base_offset - (next == 0 && batch_out ? 0 : batch->skipped);
	return reader->cursor.next_offset - reader->cursor.skipped;
}
