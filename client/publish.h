/*
 * A publisher: records into PRODUCE requests, several of them in flight on one connection. Batches are built where
 * they will be sent from, one per partition, and sent in order; nothing is ever sent twice. What has become of every
 * record is counted, so that the end can be told exactly: acknowledged, refused, or unknown.
 */
#ifndef CLIENT_PUBLISH_H
#define CLIENT_PUBLISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/client.h"
#include "client/output.h"
#include "common/codec.h"

struct publish_settings {
	const char *topic;
	int32_t partition_count;
	enum codec_ack ack;
	int32_t batch_records;		/* a request holds at most that many */
	int64_t timeout_ns;		/* for each step: a request sent, an answer received */
	struct output *offsets;		/* NULL, or where "partition<TAB>offset" of each acknowledged record goes */
};

struct publish_totals {
	int64_t sent;		/* records of requests whose sending has begun */
	int64_t acknowledged;
	int64_t refused;
};

struct publisher;

/*
 * The client must be connected and stays the caller's; the settings are copied, their pointers kept. NULL: out of
 * memory.
 */
struct publisher *publish_new(struct client *client, const struct publish_settings *settings);
void publish_free(struct publisher *publisher);

/* The largest record that a request for this topic can carry. */
size_t publish_max_record(const char *topic);

/*
 * Each of these may send, wait for room in flight, and take answers in. CLIENT_OK: go on. A refusal is said at once
 * (CLIENT_REFUSED); it does not end the connection, but a caller who goes on changes the order of its records.
 * Any other status ends the use of the connection.
 */

/* `number` is the record's number in the input, from 1, for messages. 1 <= size <= publish_max_record. */
enum client_status publish_put(struct publisher *publisher, int32_t partition, const uint8_t *payload, size_t size,
    int64_t number);

/*
 * For a pause in the input: sends what is gathered unless answers are still due, whose arrival is then the moment.
 * So a lone record leaves at once, and under load requests grow instead of becoming more.
 */
enum client_status publish_pause(struct publisher *publisher);

/* Sends what is gathered and waits for everything that is due; with ack NONE, for the broker to have read it all. */
enum client_status publish_end(struct publisher *publisher);

/* When the connection has failed: takes the answers that had already arrived. */
void publish_salvage(struct publisher *publisher);

/* When the oldest request in flight counts as unanswered; INT64_MAX with none in flight. */
int64_t publish_deadline(const struct publisher *publisher);

const struct publish_totals *publish_totals(const struct publisher *publisher);

/* The number in the input of the first record without an answer; 0: none was sent without one. */
int64_t publish_first_unanswered(const struct publisher *publisher);

#endif
