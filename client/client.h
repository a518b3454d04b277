/*
 * A connection to a broker, synchronous and small: connect, send a request, receive its answer, each until a
 * deadline. Requests may be pipelined; answers come back in the order of the requests, and their correlation ids are
 * checked. Knows frames, not what is in them (wire.h does). It retries nothing: who sent a request knows whether
 * sending it twice does harm.
 *
 * Deadlines are CLOCK_MONOTONIC in nanoseconds (common/clock.h). One thread per client.
 */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum client_status {
	CLIENT_OK = 0,
	CLIENT_AGAIN,		/* nothing whole has arrived yet */
	CLIENT_REFUSED,		/* the answer holds an error code, and nothing else */
	CLIENT_UNREACHABLE,	/* none of the address's hosts could be connected to */
	CLIENT_LOST,		/* the connection ended or was reset, or there is none */
	CLIENT_TIMEOUT,		/* the deadline passed */
	CLIENT_BROKEN,		/* bytes that are not this protocol; the connection is of no use any more */
	CLIENT_STOPPED,		/* stop_fd became readable */
	CLIENT_NO_MEMORY,
};

struct client_answer {
	int16_t error;		/* enum codec_error; not 0 with CLIENT_REFUSED only */
	const uint8_t *body;	/* behind the error code; valid until the next client_receive or client_poll */
	size_t body_bytes;
};

struct client;

/*
 * A client of a well-formed address (address.h), not connected yet. While it waits for anything it also watches `stop_fd`
 * (-1: nothing), and gives up as soon as that is readable. NULL: out of memory.
 */
struct client *client_new(const char *address, int stop_fd);
void client_free(struct client *client);

/*
 * Connects, having dropped the connection there was. All addresses of the name are tried, each for its share of the
 * time that is left. Returns CLIENT_OK, CLIENT_UNREACHABLE, CLIENT_TIMEOUT or CLIENT_STOPPED.
 */
enum client_status client_connect(struct client *client, int64_t deadline_ns);
void client_disconnect(struct client *client);
bool client_connected(const struct client *client);

/* For poll(): readable when client_poll is worth calling. -1 when not connected. */
int client_fd(const struct client *client);

/*
 * Sends a whole frame of `bytes` bytes, length word included; its correlation id is written into it here. With
 * `answered` false no answer is expected (PRODUCE with ack NONE). Answers that arrive meanwhile are read, so that a
 * broker which waits for us to read cannot stop us from writing; views into earlier answers may become invalid only
 * if requests were outstanding.
 */
enum client_status client_send(struct client *client, uint8_t *frame, size_t bytes, bool answered, int64_t deadline_ns);

/*
 * The answer to the oldest outstanding request: client_receive waits for it, client_poll returns CLIENT_AGAIN. With
 * nothing outstanding client_poll tells whether the connection still stands (CLIENT_AGAIN).
 */
enum client_status client_receive(struct client *client, struct client_answer *answer, int64_t deadline_ns);
enum client_status client_poll(struct client *client, struct client_answer *answer);

/*
 * Ends our side and waits until the broker has ended its own: all frames before the end are executed by then.
 * The connection is gone afterwards, whatever is returned.
 */
enum client_status client_finish(struct client *client, int64_t deadline_ns);

/*
 * For who has read an answer's body and found it impossible: notes `what` as the reason, drops the connection and
 * returns CLIENT_BROKEN.
 */
enum client_status client_break(struct client *client, const char *what);

/* The last failure in words, for a person: "127.0.0.1:9092: Connection refused". */
const char *client_reason(const struct client *client);

#endif
