/*
 * liblogbroker: a client of the log broker (logbroker(1); liblogbroker(3) is this file as a manual).
 *
 * Four layers, each usable alone:
 *
 *   codec          bytes only: no socket, no clock
 *   connection     one connection, pipelined: synchronous calls with a deadline, or submitted operations that complete by callback
 *   producer       an accumulator: records into batches, one connection per worker of the broker, topics that route by key
 *   subscription   batches of records of a topic's partitions, replayed or followed
 *
 * Errors. What can fail returns LB_OK (0) or another enum lb_code, and fills in *error unless that is NULL. Nothing is printed.
 * What an open function that fails was to set is NULL, which all free functions take.
 *
 * Threads and signals. The library has no threads and touches no signals (it sends with MSG_NOSIGNAL). An object, with all
 * that was made from it, may be used by one thread at a time; different objects are independent. After a fork(2) they
 * are one of the two processes' alone: the other neither uses nor frees them.
 *
 * Time. Milliseconds; deadlines are kept on CLOCK_MONOTONIC. No call waits for ever. Resolving a host's name is the one wait
 * that is not ours: getaddrinfo(3) has time-outs of its own (give a number, or a path, where that matters).
 *
 * Callbacks are called from lb_source_process and lb_source_poll, from synchronous calls on the same object, and from its
 * close or free function; from nowhere else. Four promises:
 *   - An operation that was accepted (the call returned LB_OK) completes exactly once; one that was refused, never.
 *   - It does not complete before the call that submitted it has returned.
 *   - Nothing is called back once an object's free function has returned: what was outstanding completes inside it,
 *     with LB_CLOSED, or what the connection had been lost with (a PRODUCE that was sent: LB_OUTCOME_UNKNOWN).
 *   - Any object may be freed inside any callback, the one that is calling included. Its memory goes when the callback has returned.
 * Pointers that a callback is given are valid until it returns. A synchronous call inside a callback of the same object
 * (or of one it was made from) is refused with LB_INVALID_ARGUMENT.
 *
 * Struct sizes may grow in later versions; symbol versions keep programs that were linked before working. Take options from
 * their lb_*_defaults function, so that fields which are new to you have their defaults. Pointers in options are copied at opening.
 */
#ifndef LOGBROKER_H
#define LOGBROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "0.1.0" of the library in use. */
const char *lb_version(void);

/* ---- errors ---- */

enum lb_code {
	LB_OK = 0,
	/* The broker's answers, numbered as on the wire. One that this library does not know is passed on as it came. */
	LB_UNKNOWN_TOPIC_OR_PARTITION = 1,
	LB_OFFSET_OUT_OF_RANGE = 2,
	LB_RECORD_TOO_LARGE = 3,
	LB_UNSUPPORTED_VERSION = 4,
	LB_CORRUPT_REQUEST = 5,
	LB_STORAGE_FAILURE = 6,
	/* The library's own. */
	LB_CANNOT_CONNECT = -1,		/* none of the address's places took the connection; nothing was sent */
	LB_LOST = -2,			/* the connection ended; what was asked for did not happen */
	LB_OUTCOME_UNKNOWN = -3,	/* a PRODUCE was sent and its answer did not come: its records are in the log, or not */
	LB_TIMED_OUT = -4,		/* the deadline passed; a PRODUCE that was sent is LB_OUTCOME_UNKNOWN instead */
	LB_WOULD_BLOCK = -5,		/* a limit of memory is reached: again when something has completed */
	LB_CORRUPT_RECORD = -6,		/* a record whose length is impossible or whose sum does not fit: error.offset */
	LB_RECORD_EXCEEDS_MAX_BYTES = -7,	/* a record that max_bytes cannot carry: error.offset, error.record_bytes */
	LB_BAD_ANSWER = -8,		/* what came is not this protocol; the connection was closed */
	LB_INVALID_ARGUMENT = -9,	/* error.text says which */
	LB_NO_MEMORY = -10,
	LB_CLOSED = -11,		/* the object was closed or freed first */
	LB_GAP = -12,			/* a subscription's position is below the log start: error.skipped records are gone */
	LB_HANDLER_FAILED = -13,	/* a subscription's handler, or loading or saving a checkpoint, said no */
	LB_ENDED = -14,			/* lb_subscription_next: everything up to the end was delivered */
};

enum { LB_TOPIC_NAME_MAX = 249, LB_ERROR_TEXT_BYTES = 512 };

struct lb_error {
	int code;			/* enum lb_code, or the number of a newer broker */
	char topic[LB_TOPIC_NAME_MAX + 1];	/* "" = no matter of a topic */
	int32_t partition;		/* -1 = none */
	int64_t offset;			/* -1 = none */
	int64_t record_bytes;		/* LB_RECORD_EXCEEDS_MAX_BYTES: the record's payload, 0 = not even its length arrived; else -1 */
	int64_t skipped;		/* LB_GAP: records that are gone; else 0 */
	char text[LB_ERROR_TEXT_BYTES];	/* all of it as one sentence for a person */
};

/* "OFFSET_OUT_OF_RANGE", "OUTCOME_UNKNOWN", ...; "UNKNOWN_ERROR" for a number from the future. Static storage. */
const char *lb_code_name(int code);

/* ---- codec: usable without the rest; any thread ---- */

enum lb_ack { LB_ACK_NONE = 0, LB_ACK_WRITTEN = 1, LB_ACK_FORCED = 2 };
enum lb_record_format { LB_PLAIN = 0, LB_CRC32C = 1 };

enum {
	LB_FRAME_MAX_BYTES = 8 * 1024 * 1024,	/* the largest `length` of a frame, which counts what is behind it */
	LB_FETCH_MAX_BYTES = LB_FRAME_MAX_BYTES - 18,	/* the largest payload of a FETCH answer */
};

struct lb_payload {
	const void *data;
	size_t bytes;		/* at least 1: empty records do not exist */
};

/* 1 to 249 characters out of A-Z a-z 0-9 . _ - and neither "." nor "..". */
bool lb_topic_name_valid(const char *topic);

/*
 * Whole request frames. Each writes at `to` and returns the frame's bytes, the length word included. When that is more than
 * capacity_bytes nothing was written (to may be NULL with 0). 0: an argument that the protocol does not allow, or a
 * frame above LB_FRAME_MAX_BYTES.
 */
size_t lb_encode_produce(void *to, size_t capacity_bytes, int32_t correlation_id, const char *topic, int32_t partition,
    enum lb_ack ack, const struct lb_payload *records, size_t record_count);
/* version 1 has no wait: max_wait_ms and min_bytes must be 0 then. */
size_t lb_encode_fetch(void *to, size_t capacity_bytes, int16_t version, int32_t correlation_id, const char *topic,
    int32_t partition, int64_t fetch_offset, int32_t max_bytes, int32_t max_wait_ms, int32_t min_bytes);
/* topic_count 0: all topics. version 1 or 2. */
size_t lb_encode_metadata(void *to, size_t capacity_bytes, int16_t version, int32_t correlation_id,
    const char *const *topics, size_t topic_count);

/* An answer; body points into what it was read from. error_code other than 0: no body. */
struct lb_answer {
	int32_t correlation_id;
	int16_t error_code;
	const void *body;
	size_t body_bytes;
};

/*
 * Looks for a whole answer at the start of `bytes` bytes. Returns its bytes, the length word included; 0: not whole yet;
 * -1, as soon as it can be told: no answer of this protocol begins here (an impossible length, a negative error code,
 * a body behind an error code).
 */
int64_t lb_decode_answer(struct lb_answer *answer, const void *from, size_t bytes);

struct lb_produced {
	int64_t base_offset;	/* of the request's first record; -1 with LB_ACK_NONE */
	int64_t log_end_offset;	/* the high watermark published before the answer; -1 with LB_ACK_NONE */
};

struct lb_fetched {
	int64_t high_watermark;
	const void *payload;	/* records as on disk: lb_walk_begin */
	size_t payload_bytes;
};

struct lb_partition_metadata {
	int32_t partition;
	int32_t group;		/* the worker that owns it; -1 from a broker that knows only METADATA v1 */
	int64_t log_start_offset;
	int64_t high_watermark;
};

struct lb_topic_metadata {
	const char *name;
	enum lb_record_format record_format;	/* v1 does not tell: LB_CRC32C */
	int32_t partition_count;
	const struct lb_partition_metadata *partitions;	/* by number, from 0 */
};

/* Sorted by name. One block of memory: lb_metadata_free. */
struct lb_metadata {
	int16_t version;	/* 1 or 2: what the broker knew */
	int32_t topic_count;
	const struct lb_topic_metadata *topics;
};

/*
 * The body of an answer without error. LB_OK, LB_BAD_ANSWER; metadata also LB_NO_MEMORY, LB_INVALID_ARGUMENT (a version other than
 * 1 and 2: the one that was asked for) and *metadata NULL then. Views point into the answer.
 */
enum lb_code lb_decode_produced(struct lb_produced *produced, const struct lb_answer *answer);
enum lb_code lb_decode_fetched(struct lb_fetched *fetched, const struct lb_answer *answer);
enum lb_code lb_decode_metadata(struct lb_metadata **metadata, int16_t version, const struct lb_answer *answer);
void lb_metadata_free(struct lb_metadata *metadata);
/* NULL: not in it. */
const struct lb_topic_metadata *lb_metadata_find(const struct lb_metadata *metadata, const char *topic);

struct lb_record {
	int64_t offset;
	const void *data;
	size_t bytes;
};

enum lb_walk_result {
	LB_WALK_RECORD,		/* *record is the next one, whole, its sum right */
	LB_WALK_END,		/* the payload ended with a whole record (or is empty); record->offset is the next to ask for */
	LB_WALK_CUT,		/* it ends inside record->offset: ask again from there; record->bytes is its payload, 0 = unknown */
	LB_WALK_EXCEEDS,	/* not one whole record: record->offset is larger than max_bytes; record->bytes likewise */
	LB_WALK_CORRUPT,	/* record->offset has an impossible length (also where it ends behind the payload) or a wrong sum */
};

/* A walk over the payload of a FETCH answer. The fields are the walk's own. */
struct lb_walk {
	const uint8_t *next;
	size_t left_bytes;
	int64_t offset;
	enum lb_record_format format;
	bool any;
};

/* fetch_offset: what was asked for. The payload must outlive the walk. */
void lb_walk_begin(struct lb_walk *walk, enum lb_record_format format, int64_t fetch_offset, const void *payload,
    size_t payload_bytes);
/* Results other than LB_WALK_RECORD end the walk: further calls give the same, record->data is NULL. *record points into the payload. */
enum lb_walk_result lb_walk_next(struct lb_walk *walk, struct lb_record *record);

/* FNV-1a, 32 bit, modulo partition_count (at least 1): what all clients of this protocol do with a key. */
int32_t lb_partition_of_key(const void *key, size_t key_bytes, int32_t partition_count);

/* ---- sources: what an event loop needs to know of a connection, producer or subscription ---- */

struct lb_source;	/* part of its object, lives as long */

struct lb_wants {
	int fd;			/* for poll(2); -1: nothing to wait for but the time */
	short events;		/* POLLIN, POLLOUT */
	int timeout_ms;		/* until process must be called even if nothing happened; -1 = no such time */
};

/*
 * What the object waits for now. It may change with every call on the object; the descriptor of a producer or subscription
 * stays the same for its life, that of a connection only once it is connected.
 */
struct lb_wants lb_source_wants(const struct lb_source *source);
/* Does what can be done without waiting; calling it too often does no harm (inside a callback of the object: nothing). */
void lb_source_process(struct lb_source *source);
/* For programs without an event loop: waits until there is something to process, at most timeout_ms (0: not at all), and does it. Returns early at times. */
void lb_source_poll(struct lb_source *source, int timeout_ms);
/*
 * For integrations with event loops: `changed` is called at the end of every call after which lb_source_wants may return something else,
 * process included, and, with gone = true and for the last time, when the object is freed or another watcher (or NULL: none) takes its
 * place. It must not call the library, lb_source_wants apart. (liblogbroker-event does this for libevent: <logbroker-event.h>.)
 */
typedef void lb_changed_cb(void *context, bool gone);
void lb_source_watch(struct lb_source *source, lb_changed_cb *changed, void *context);

/* ---- connection ---- */

/*
 * One connection with one life: when it is lost everything outstanding completes and every later call is refused with the reason;
 * open another. Requests are executed and answered in the order in which they were submitted; a FETCH that waits at
 * the broker holds up what is behind it.
 */
struct lb_connection;

struct lb_connection_options {
	int timeout_ms;		/* 5000: for connecting, and for an answer; a FETCH's is added to its wait */
	size_t memory_bytes;	/* 32 MiB: requests submitted and not answered; above it LB_WOULD_BLOCK (one is always accepted) */
};

struct lb_connection_options lb_connection_defaults(void);

/*
 * address: "host:port", "[v6]:port" or "unix:/path". Begins to connect (all addresses of a name are tried) and returns;
 * operations may be submitted at once. options NULL: the defaults. LB_CANNOT_CONNECT here: the name cannot be resolved.
 */
enum lb_code lb_connection_open(struct lb_connection **connection, const char *address,
    const struct lb_connection_options *options, struct lb_error *error);
/* NULL is allowed. */
void lb_connection_free(struct lb_connection *connection);
struct lb_source *lb_connection_source(struct lb_connection *connection);

struct lb_fetch {
	const char *topic;
	int32_t partition;
	int64_t offset;
	int32_t max_bytes;	/* at least 1; the broker clamps it to LB_FETCH_MAX_BYTES. A record takes 8 bytes (LB_PLAIN: 4) above its payload */
	int32_t max_wait_ms;	/* 0: answer at once */
	int32_t min_bytes;	/* 0 to max_bytes */
};

/*
 * Synchronous calls. They wait for this operation's answer, at most timeout_ms (a FETCH: max_wait_ms more), and process what else happens
 * on the connection meanwhile. With LB_ACK_NONE lb_connection_produce returns when the request has been handed to the kernel;
 * its produced may be NULL.
 * fetched->payload is valid until the next call on the connection. *metadata is the caller's (lb_metadata_free); it is
 * asked for as v2, and as v1 where the broker refuses that.
 */
enum lb_code lb_connection_produce(struct lb_connection *connection, const char *topic, int32_t partition, enum lb_ack ack,
    const struct lb_payload *records, size_t record_count, struct lb_produced *produced, struct lb_error *error);
enum lb_code lb_connection_fetch(struct lb_connection *connection, const struct lb_fetch *fetch, struct lb_fetched *fetched,
    struct lb_error *error);
enum lb_code lb_connection_metadata(struct lb_connection *connection, const char *const *topics, size_t topic_count,
    struct lb_metadata **metadata, struct lb_error *error);

/*
 * Submitted operations: arguments are copied before the call returns. In the callback, error NULL is success; otherwise the result
 * is NULL. What a metadata callback gets is its own (lb_metadata_free).
 */
typedef void lb_produced_cb(void *context, const struct lb_produced *produced, const struct lb_error *error);
typedef void lb_fetched_cb(void *context, const struct lb_fetched *fetched, const struct lb_error *error);
typedef void lb_metadata_cb(void *context, struct lb_metadata *metadata, const struct lb_error *error);

enum lb_code lb_connection_submit_produce(struct lb_connection *connection, const char *topic, int32_t partition,
    enum lb_ack ack, const struct lb_payload *records, size_t record_count, lb_produced_cb *done, void *context,
    struct lb_error *error);
enum lb_code lb_connection_submit_fetch(struct lb_connection *connection, const struct lb_fetch *fetch, lb_fetched_cb *done,
    void *context, struct lb_error *error);
enum lb_code lb_connection_submit_metadata(struct lb_connection *connection, const char *const *topics, size_t topic_count,
    lb_metadata_cb *done, void *context, struct lb_error *error);

/* ---- producer ---- */

/*
 * Records go into one accumulator per partition and leave it as one PRODUCE when batch_records or batch_bytes are
 * reached, linger_ms after the first of them, or at a flush. Batches of one partition are sent in the order of their
 * records; several are in flight. Lost connections are opened again, with back-off, while there is something to send.
 *
 * What becomes of a record:
 *   - acknowledged: it has its offset, and what options.ack promises holds;
 *   - refused: the broker's error code; it is not in the log;
 *   - LB_TIMED_OUT, LB_CANNOT_CONNECT, LB_CLOSED: it was never sent; it is not in the log;
 *   - LB_OUTCOME_UNKNOWN: it was sent and the connection, or the time, ended before the answer. It is never silently sent again, since
 *     it may be in the log. With at_least_once it is sent again instead, for as long as delivery_timeout_ms allows, and may
 *     then be in the log twice, and behind records that were sent after it.
 *
 * When a record's time has passed without an answer nothing more is sent on its connection until one comes; when nothing else is awaited
 * on it, it is given up for another.
 */
struct lb_producer;
struct lb_topic;

struct lb_producer_options {
	enum lb_ack ack;		/* LB_ACK_WRITTEN */
	int32_t batch_records;		/* 1000; a million at most */
	size_t batch_bytes;		/* 256 KiB of records, 4 bytes ahead of each included; a larger single record is a batch of its own */
	int linger_ms;			/* 5, counted from a batch's first record; 0: every turn of processing sends what is there */
	int in_flight;			/* 8 requests per connection */
	size_t memory_bytes;		/* 64 MiB: records accepted and not completed, with what is kept for their callbacks and requests; above
					 * it LB_WOULD_BLOCK (one is always accepted) */
	int delivery_timeout_ms;	/* 30000: from accepting a record to its completion at the latest; above linger_ms */
	bool at_least_once;		/* false */
};

struct lb_producer_options lb_producer_defaults(void);

/* Connects when there is something to do, and resolves the address's name then. options NULL: the defaults. */
enum lb_code lb_producer_open(struct lb_producer **producer, const char *address, const struct lb_producer_options *options,
    struct lb_error *error);
struct lb_source *lb_producer_source(struct lb_producer *producer);

/* What was accepted so far (records, not calls), and what became of it; the rest of accepted is outstanding. */
struct lb_totals {
	uint64_t accepted;
	uint64_t acknowledged;	/* with LB_ACK_NONE: sent */
	uint64_t refused;	/* by the broker */
	uint64_t not_sent;
	uint64_t unknown;	/* LB_OUTCOME_UNKNOWN */
};

void lb_producer_totals(const struct lb_producer *producer, struct lb_totals *totals);

/*
 * Sends what the accumulator holds, without its linger, and waits until all that was accepted before has completed and was told.
 * timeout_ms 0 only begins it. LB_TIMED_OUT: some is outstanding yet, and goes on. That a record was refused is its callback's to say.
 */
enum lb_code lb_producer_flush(struct lb_producer *producer, int timeout_ms, struct lb_error *error);
/*
 * Flushes, completes what is outstanding at the deadline (LB_OUTCOME_UNKNOWN or LB_TIMED_OUT), and frees producer and topics.
 * LB_OK: everything ever accepted was acknowledged; otherwise the first thing that was not, and *totals (NULL allowed) tells how much.
 * LB_INVALID_ARGUMENT (inside a callback of the producer, or a negative timeout_ms) alone frees nothing: the producer is as it was, and
 * yours to close or free yet. Inside a callback only lb_producer_free ends it.
 */
enum lb_code lb_producer_close(struct lb_producer *producer, int timeout_ms, struct lb_totals *totals, struct lb_error *error);
/* At once: what is outstanding completes with LB_OUTCOME_UNKNOWN if it was sent, else LB_CLOSED. Topics go with it. NULL is allowed. */
void lb_producer_free(struct lb_producer *producer);

/*
 * A handle for a topic, the producer's: freed with it. Synchronous, at most 5 s or delivery_timeout_ms, whichever is less: asks the
 * broker for the topic's partitions. Their number is that of this moment. The same name twice gives the same handle.
 */
enum lb_code lb_topic_open(struct lb_topic **topic, struct lb_producer *producer, const char *name, struct lb_error *error);
const char *lb_topic_name(const struct lb_topic *topic);
int32_t lb_topic_partition_count(const struct lb_topic *topic);

struct lb_receipt {
	const char *topic;
	int32_t partition;
	int64_t base_offset;	/* of the first record; -1 with LB_ACK_NONE */
	size_t record_count;	/* 1, or the batch's */
};

/* error NULL: acknowledged. receipt is never NULL; base_offset is -1 with an error, whose sentence is about the request that the record was in. */
typedef void lb_receipt_cb(void *context, const struct lb_receipt *receipt, const struct lb_error *error);

enum { LB_ANY_PARTITION = -1 };

/*
 * Sending accepts, or refuses with an error, and never waits (but for a host's name, where a full batch opens a connection). A full
 * batch goes to the connection at once; what comes of it is told by the next processing. Also inside callbacks, except while
 * the producer is being closed or freed (LB_CLOSED).
 *
 * One record: to lb_partition_of_key of its key, or round robin without one (key NULL; a key of 0 bytes is a key).
 * The key only chooses; it is not sent. The payload is copied. done NULL: only the totals tell. LB_INVALID_ARGUMENT: it is empty,
 * or larger than a frame has room for.
 */
enum lb_code lb_topic_send(struct lb_topic *topic, const void *key, size_t key_bytes, const void *payload, size_t bytes,
    lb_receipt_cb *done, void *context, struct lb_error *error);
/* One record to a partition by number. */
enum lb_code lb_topic_send_to(struct lb_topic *topic, int32_t partition, const void *payload, size_t bytes,
    lb_receipt_cb *done, void *context, struct lb_error *error);
/*
 * Several records as one request of their own, sent behind what the accumulator holds for that partition, without linger.
 * Their offsets are contiguous. It is not atomic: they are refused together, but a crash of the machine may keep the first of
 * them only. LB_ANY_PARTITION: round robin. No records: nothing is sent, and done is called with 0 records at the next processing
 * (base_offset -1). LB_INVALID_ARGUMENT: they do not fit one frame, or one of them is empty.
 */
enum lb_code lb_topic_send_batch(struct lb_topic *topic, int32_t partition, const struct lb_payload *records,
    size_t record_count, lb_receipt_cb *done, void *context, struct lb_error *error);

/* ---- subscription ---- */

/*
 * Reads all partitions of a topic, or some, each over a connection of its own. Order holds within a partition; partitions
 * with something to deliver take turns. The position is yours: every batch names it, the broker keeps none.
 * While a batch waits to be handled its partition has asked for one more at most: memory is bounded by three answers per partition, the
 * third being the room that the next one is received into.
 *
 * A lost connection is opened again, with back-off, and goes on from the position (also from a start at latest: that is resolved once).
 * A broker that answers STORAGE_FAILURE is asked again for 10 s: a failed partition comes back, damage does not. When a
 * partition fails for good, or the handler does, the subscription stops as a whole; the other partitions keep their positions.
 * lb_subscription_seek makes it go on, for example behind a damaged record.
 *
 * Of all partitions means also of those that the topic gets later: they are found when the connection to the first is opened again (a
 * broker learns of them by a restart) and read from their beginning; a replay leaves them out.
 * A broker that does not hold requests (version 1, or max_wait_ms 0) is asked for news every 10 ms at first, then more and more seldom,
 * every 500 ms in the end.
 */
struct lb_subscription;

enum lb_start {
	LB_START_EARLIEST,	/* the log start, which is not offset 0 once retention has removed something */
	LB_START_LATEST,	/* the high watermark of now */
	LB_START_OFFSET,	/* start_offset; with several partitions, in each */
	LB_START_BEFORE_END,	/* start_offset records before the high watermark of now, or the log start */
};

enum lb_stop {
	LB_STOP_NEVER,		/* follow */
	LB_STOP_AT_WATERMARK,	/* replay: ends exactly at the high watermarks that were there at its start */
	LB_STOP_AT_OFFSET,	/* ends before stop_offset, in each partition; waits for it if it is not there yet */
};

/*
 * What to do when records between the position and the log start are gone: fail with LB_GAP, or pass over them, to the log start or to the
 * high watermark of that moment, which the next batch tells. When that would be the stop, no batch can tell: it is LB_GAP, too.
 */
enum lb_gap { LB_GAP_FAIL, LB_GAP_EARLIEST, LB_GAP_LATEST };

struct lb_batch {
	const char *topic;
	int32_t partition;
	int64_t base_offset;
	size_t record_count;	/* at least 1 */
	int64_t next_offset;	/* the position when this batch has been handled: base_offset + record_count */
	int64_t high_watermark;	/* when the broker answered */
	int64_t lag;		/* high_watermark - next_offset */
	int64_t skipped;	/* records passed over ahead of this batch (options.on_gap), else 0 */
	int32_t max_bytes;	/* of the request that brought it: above the option's while larger records need it */
	const void *records;	/* for lb_batch_next */
	enum lb_record_format record_format;
};

/* The records of a batch, in order: begin with a record that is all zero ({0}); false: that was the last. Sums have been verified. */
bool lb_batch_next(const struct lb_batch *batch, struct lb_record *record);

/* Positions, kept by the application (a file, a database). Next offset to read; load: -1 = none kept, -2 = failed. save: 0, or -1 = failed. */
struct lb_checkpoints {
	int64_t (*load)(void *context, const char *topic, int32_t partition);
	int (*save)(void *context, const char *topic, int32_t partition, int64_t next_offset);
	void *context;
};

/* 0: handled, the position moves on. Anything else: the position stays and the subscription stops with LB_HANDLER_FAILED. */
typedef int lb_batch_cb(void *context, const struct lb_batch *batch);
/* The subscription has stopped: error NULL = everything up to its stop was delivered. Once per stop. */
typedef void lb_stopped_cb(void *context, const struct lb_error *error);

struct lb_subscription_options {
	enum lb_start start;		/* LB_START_EARLIEST */
	int64_t start_offset;		/* 0 */
	enum lb_stop stop;		/* LB_STOP_NEVER */
	int64_t stop_offset;		/* 0 */
	enum lb_gap on_gap;		/* LB_GAP_FAIL */
	const int32_t *partitions;	/* NULL: all */
	size_t partition_count;		/* 0: all */
	int32_t max_bytes;		/* 1 MiB a request */
	int32_t max_bytes_limit;	/* LB_FETCH_MAX_BYTES: how far a request grows for a larger record, and stays while there are such records;
					 * above it LB_RECORD_EXCEEDS_MAX_BYTES */
	int32_t max_wait_ms;		/* 30000: below what routers and firewalls give an idle connection */
	int32_t min_bytes;		/* 1 */
	int timeout_ms;			/* 5000: for connecting, and for an answer beyond its wait; then the connection is given up */
	int give_up_ms;			/* -1 (never): how long a partition may be without a connection before the subscription stops */
	struct lb_checkpoints checkpoints;	/* load, save NULL: not done. A position that load knows goes before start; where it knows none,
						 * the one that start comes to is saved at once, so that the next run begins there
						 * even if nothing came. Each batch's next offset is saved after its handler
						 * returned: at-least-once */
	lb_batch_cb *handler;		/* NULL: lb_subscription_next is used */
	lb_stopped_cb *stopped;		/* NULL: allowed; error in lb_subscription_next */
	void *context;			/* of both */
};

struct lb_subscription_options lb_subscription_defaults(void);

/*
 * Does no more than begin: that a topic is not there is told when the broker has answered, that the broker is not, when give_up_ms are
 * over (0: at its first failure; so is a name that cannot be resolved). options NULL: the defaults.
 */
enum lb_code lb_subscription_open(struct lb_subscription **subscription, const char *address, const char *topic,
    const struct lb_subscription_options *options, struct lb_error *error);
/* NULL is allowed. A batch that is with the handler, or out by lb_subscription_next, is not saved. */
void lb_subscription_free(struct lb_subscription *subscription);
struct lb_source *lb_subscription_source(struct lb_subscription *subscription);

/*
 * Without a handler: the next batch, waited for at most timeout_ms. It is valid until the next call on the subscription; the next
 * lb_subscription_next says that it was handled (its position is saved then). LB_TIMED_OUT: nothing came. LB_ENDED:
 * everything up to the stop was delivered. Otherwise what it has stopped with, each time until a seek.
 */
enum lb_code lb_subscription_next(struct lb_subscription *subscription, int timeout_ms, const struct lb_batch **batch,
    struct lb_error *error);

/*
 * Goes on from `offset` in that partition, also after a stop (where the broker was given up: for give_up_ms anew). Inside the handler,
 * or while lb_subscription_next's batch is out: takes the place of that batch's next offset and is what is saved.
 */
enum lb_code lb_subscription_seek(struct lb_subscription *subscription, int32_t partition, int64_t offset, struct lb_error *error);
/*
 * The next offset to be delivered, or the first that was passed over (options.on_gap) until a batch has told it: who begins there again
 * is told, too. -1: not known yet, or no such partition.
 */
int64_t lb_subscription_position(const struct lb_subscription *subscription, int32_t partition);
/*
 * Paused: no handler is called and nothing more asked for, until it is undone (lb_subscription_next gives what has already come). For
 * handlers that pass records on to something slow.
 */
void lb_subscription_pause(struct lb_subscription *subscription, bool paused);

#ifdef __cplusplus
}
#endif

#endif
