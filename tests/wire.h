/*
 * The tests' own small wire code: written from protocol.md, sharing nothing with the broker's codec, so that a mistake
 * there cannot hide here. Builds requests as bytes, reads answers with a deadline, walks records. Knows sockets and
 * bytes; knows nothing of how a broker is started (broker.h).
 *
 * Functions that talk return the answer's error code (0 to 6), or one of the negative WIRE_ values when no answer came.
 * None of them asserts; all of them may be called from several threads on different sockets. No SIGPIPE is raised.
 */
#ifndef TESTS_WIRE_H
#define TESTS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	WIRE_PRODUCE = 1,
	WIRE_FETCH = 2,
	WIRE_METADATA = 3,

	WIRE_NONE = 0,		/* acks */
	WIRE_WRITTEN = 1,
	WIRE_FORCED = 2,

	WIRE_OK = 0,		/* error codes */
	WIRE_UNKNOWN_TOPIC_OR_PARTITION = 1,
	WIRE_OFFSET_OUT_OF_RANGE = 2,
	WIRE_RECORD_TOO_LARGE = 3,
	WIRE_UNSUPPORTED_VERSION = 4,
	WIRE_CORRUPT_REQUEST = 5,
	WIRE_STORAGE_FAILURE = 6,

	WIRE_LOST = -1,		/* the connection has ended or was reset */
	WIRE_LATE = -2,		/* the deadline has passed */
	WIRE_MALFORMED = -3,	/* the answer breaks the protocol (length, wrong id, body) */

	WIRE_DEADLINE_MS = 30000,	/* what the talking functions give the broker */
	WIRE_FRAME_MAX = 8 * 1024 * 1024,
	WIRE_PAYLOAD_MAX = 8388590,	/* the largest payload of a FETCH answer */
};

/* ---- time, bytes -------------------------------------------------------------------------------------------- */

int64_t wire_now_ms(void);		/* CLOCK_MONOTONIC */
int64_t wire_now_us(void);

struct wire_bytes {	/* zeroed = empty; grows by itself; freed by wire_bytes_free */
	uint8_t *data;
	size_t length;
	size_t capacity;
};

void wire_bytes_free(struct wire_bytes *bytes);
void wire_put(struct wire_bytes *to, const void *from, size_t length);
void wire_put_zeros(struct wire_bytes *to, size_t length);
void wire_put_i8(struct wire_bytes *to, int value);
void wire_put_i16(struct wire_bytes *to, int value);		/* also u16 */
void wire_put_i32(struct wire_bytes *to, int64_t value);
void wire_put_i64(struct wire_bytes *to, int64_t value);
void wire_put_name(struct wire_bytes *to, const char *name);	/* u16 length, bytes */
void wire_set_i16(uint8_t *at, int value);
void wire_set_i32(uint8_t *at, int64_t value);
void wire_set_i64(uint8_t *at, int64_t value);
int16_t wire_get_i16(const uint8_t *at);
int32_t wire_get_i32(const uint8_t *at);
int64_t wire_get_i64(const uint8_t *at);

uint32_t wire_crc32c(const void *data, size_t length);
/* Two hex digits a byte, up to the first other character; returns the bytes appended. */
size_t wire_put_hex(struct wire_bytes *to, const char *hex);

/* A small seeded generator (splitmix64): the state is the seed. */
uint64_t wire_random(uint64_t *state);

/* ---- requests ----------------------------------------------------------------------------------------------- */

struct wire_record {
	const void *payload;
	size_t length;
};

/* A frame by hand: begin writes length 0 and the header, returns where the frame starts; end sets the length. */
size_t wire_begin(struct wire_bytes *to, int api, int version, int32_t id);
void wire_end(struct wire_bytes *to, size_t start);

void wire_put_produce(struct wire_bytes *to, int32_t id, const char *topic, int32_t partition, int ack,
    const struct wire_record *records, size_t count);
void wire_put_produce_one(struct wire_bytes *to, int32_t id, const char *topic, int32_t partition, int ack,
    const void *payload, size_t length);
void wire_put_fetch_v1(struct wire_bytes *to, int32_t id, const char *topic, int32_t partition, int64_t offset,
    int32_t max_bytes);
void wire_put_fetch(struct wire_bytes *to, int32_t id, const char *topic, int32_t partition, int64_t offset,
    int32_t max_bytes, int32_t max_wait_ms, int32_t min_bytes);	/* v2 */
/* All topics when topic is NULL. */
void wire_put_metadata(struct wire_bytes *to, int32_t id, int version, const char *topic);

/* ---- sockets: blocking ones, TCP_NODELAY -------------------------------------------------------------------- */

int wire_connect_tcp(int port);			/* 127.0.0.1; the descriptor, or -1 with errno */
int wire_connect_unix(const char *path);
void wire_close_reset(int fd);			/* closes with RST */

/* Sends everything. Returns 0, WIRE_LOST or WIRE_LATE. */
int wire_send(int fd, const void *data, size_t length);
/* Up to `length` bytes, at least one; returns how many, WIRE_LOST at the end or reset, WIRE_LATE. */
long wire_receive(int fd, void *to, size_t length, int deadline_ms);
/* True when nothing comes (and the connection stays open) for that long. */
bool wire_silent(int fd, int for_ms);
/* Waits for the end of the connection. True when it comes in time with no byte before it; a reset counts as the end. */
bool wire_ended(int fd, int deadline_ms);
/* The same, but a reset does not count: the broker owes a FIN after what it has answered. */
bool wire_ended_orderly(int fd, int deadline_ms);

struct wire_answer {
	int32_t length;
	int32_t id;
	int16_t error;
	uint8_t *body;		/* behind the error code; owned (wire_answer_free) unless it came from wire_next_answer */
	size_t body_length;
};

void wire_answer_free(struct wire_answer *answer);
/* One answer frame and not a byte more. Returns 0, WIRE_LOST, WIRE_LATE or WIRE_MALFORMED (length, body of an error). */
int wire_read_answer(int fd, struct wire_answer *answer, int deadline_ms);
/* Reads one answer, checks its id, throws it away. Returns its error code or a negative value. */
int wire_expect(int fd, int32_t id);
/* Sends the bytes (one request), reads its answer. Returns the error code or a negative value. `answer` may be NULL. */
int wire_ask(int fd, const struct wire_bytes *request, struct wire_answer *answer);

/*
 * Bulk: writes `out` and reads at the same time (so neither side can block the other) until `answers` complete frames
 * stand in `in` (appended) or the deadline passes or the connection ends. Returns the complete frames read by this call.
 * Writing goes on until all of `out` is written even when the answers are complete before.
 */
size_t wire_exchange(int fd, const void *out, size_t out_length, size_t answers, struct wire_bytes *in, int deadline_ms);
/* The next frame of `in` from *position, which moves behind it. False when there is no complete one. */
bool wire_next_answer(const struct wire_bytes *in, size_t *position, struct wire_answer *answer);

/* ---- calls: one request, its answer -------------------------------------------------------------------------- */

/* With WIRE_NONE nothing is read and 0 returned. base and end may be NULL. */
int wire_produce(int fd, const char *topic, int32_t partition, int ack, const struct wire_record *records, size_t count,
    int64_t *base, int64_t *end);
int wire_produce_one(int fd, const char *topic, int32_t partition, int ack, const void *payload, size_t length,
    int64_t *base);

struct wire_fetched {
	int64_t high_watermark;
	uint8_t *payload;	/* owned: wire_fetched_free; NULL when empty */
	size_t length;
};

void wire_fetched_free(struct wire_fetched *fetched);
int wire_fetch(int fd, const char *topic, int32_t partition, int64_t offset, int32_t max_bytes, int32_t max_wait_ms,
    int32_t min_bytes, struct wire_fetched *fetched);
/* Takes an answer's body apart; the payload is a copy. Returns 0 or WIRE_MALFORMED. */
int wire_parse_fetched(const struct wire_answer *answer, struct wire_fetched *fetched);

struct wire_partition {
	char topic[250];
	int record_format;	/* v2: 0 plain, 1 crc32c; v1: -1 */
	int32_t partition;
	int64_t log_start;
	int64_t high_watermark;
	int32_t group;		/* v2; v1: -1 */
};

struct wire_topics {	/* every partition of every topic, in the order of the answer */
	int32_t topic_count;
	struct wire_partition *list;	/* owned: wire_topics_free */
	size_t count;
};

void wire_topics_free(struct wire_topics *topics);
int wire_metadata(int fd, int version, const char *topic, struct wire_topics *topics);
int wire_parse_topics(const struct wire_answer *answer, int version, struct wire_topics *topics);
/* One number of METADATA, or a negative WIRE_ value / -(100 + error code) when refused. */
int64_t wire_high_watermark(int fd, const char *topic, int32_t partition);
int64_t wire_log_start(int fd, const char *topic, int32_t partition);
int32_t wire_group(int fd, const char *topic, int32_t partition);

/* ---- records -------------------------------------------------------------------------------------------------- */

/* The next record of a payload from *position, which moves behind it. False: none or only a part of one is left.
 * *good (may be NULL) tells whether its length is possible and, with crc, its sum right; a bad one ends the walk. */
bool wire_next_record(const uint8_t *payload, size_t length, size_t *position, bool crc, struct wire_record *record,
    bool *good);
/* Complete records in a payload, or -1 when one of them is bad. */
long wire_count_records(const uint8_t *payload, size_t length, bool crc);

/*
 * Fetches [from, to) in pieces of at most max_bytes, moving past whole records, and appends the records' bytes as they
 * stand in the log to `log`. Returns the records read or a negative value (-(100 + code) when refused, WIRE_MALFORMED on
 * a bad record or no progress).
 */
int64_t wire_read_log(int fd, const char *topic, int32_t partition, int64_t from, int64_t to, int32_t max_bytes, bool crc,
    struct wire_bytes *log);

#endif
