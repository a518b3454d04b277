/*
 * A channel between the supervisor and one worker: AF_UNIX SOCK_SEQPACKET, one message a packet, each with up to two
 * descriptors. Moves messages and knows neither their meaning nor an event loop. Both ends are non-blocking; what
 * cannot be sent yet waits in one queue, so that connections and control keep their order.
 *
 *   packet = type, size, number of descriptors | payload
 */
#ifndef COMMON_CHANNEL_H
#define COMMON_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CHANNEL_PAYLOAD_MAX = 64 * 1024 - 16,	/* a packet has at most 64 KiB */
	CHANNEL_DESCRIPTORS_MAX = 2,
	CHANNEL_RETRY_MS = 10,			/* after CHANNEL_LATER */
};

struct channel_message {
	uint32_t type;
	size_t size;		/* of the payload */
	const void *payload;	/* received: valid until the next channel_receive, 8-byte aligned */
	int descriptor_count;
	int descriptors[CHANNEL_DESCRIPTORS_MAX];
};

struct channel;

/* Makes both ends of a new channel, non-blocking and close-on-exec. Returns 0, or -1 with errno. */
int channel_pair(int fds[2]);

/* Takes over the descriptor. Returns NULL with errno ENOMEM (then the descriptor stays the caller's). */
struct channel *channel_new(int fd);

/* Closes the socket and every descriptor that still waits in the queue. NULL is allowed. */
void channel_free(struct channel *channel);

int channel_fd(const struct channel *channel);

/*
 * Appends a copy of the message to the queue; the descriptors become the channel's (each is closed after its packet
 * has been sent, or with the channel). Nothing is sent before channel_flush. Returns 0, or -1 with errno: ENOMEM,
 * EMSGSIZE; the descriptors are then still the caller's.
 */
int channel_queue(struct channel *channel, const struct channel_message *message);

enum channel_state {
	CHANNEL_IDLE,		/* everything is sent */
	CHANNEL_BLOCKED,	/* the socket is full: flush again when it is writable */
	CHANNEL_LATER,		/* ETOOMANYREFS or no memory for now: the socket may look writable, so flush again by a
				   timer of CHANNEL_RETRY_MS */
	CHANNEL_BROKEN,		/* the other end is gone; what it has sent before can still be received */
};

/* Sends as much of the queue as goes. */
enum channel_state channel_flush(struct channel *channel);

/* Messages that wait in the queue. */
size_t channel_queued(const struct channel *channel);

/* Takes the oldest waiting message out of the queue instead of sending it: what a dead worker has not been given.
 * Its descriptors are the caller's then, its payload is valid until the next call on the channel. False: none left. */
bool channel_unqueue(struct channel *channel, struct channel_message *message);

enum channel_received {
	CHANNEL_MESSAGE,	/* one message; its descriptors are the caller's */
	CHANNEL_NOTHING,	/* none for now */
	CHANNEL_NO_ROOM,	/* fewer than two descriptors are free in this process: nothing was received (the kernel
				   would close a client silently); try again by a timer of CHANNEL_RETRY_MS */
	CHANNEL_LOST,		/* the table was full after all: a message came without all of its descriptors. What came has
				   been closed, a connection is lost; go on */
	CHANNEL_END,		/* the other end is closed and everything it sent has been received */
	CHANNEL_MALFORMED,	/* truncated data or descriptors, or no whole header: a bug at the other end. What came
				   with it has been closed */
};

/* ECONNRESET can come ahead of messages that are still there; it is read past, so CHANNEL_END is the end. */
enum channel_received channel_receive(struct channel *channel, struct channel_message *message);

#endif
