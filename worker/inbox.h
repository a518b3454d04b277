/*
 * The worker's end of the channel: the handshake, then connections and the order to stop. A malformed message is a bug
 * of the supervisor, and there is nobody else to ask: the worker exits.
 */
#ifndef WORKER_INBOX_H
#define WORKER_INBOX_H

#include "common/channel.h"
#include "worker/worker.h"

/*
 * Says HELLO and takes the settings, the topics and the boards. Blocks; the supervisor watches the time. Exits on anything
 * unexpected.
 */
void inbox_set_up(struct channel *channel, struct worker *worker);

/*
 * Says PREPARED and waits for START, with ENDS in front of it when a predecessor that lives has released the logs:
 * worker->handed. Up to here nothing may have been written, neither to files nor to the board. Blocks and exits likewise.
 */
void inbox_await_start(struct channel *channel, struct worker *worker);

enum inbox_news {
	INBOX_NOTHING,	/* (more) for now */
	INBOX_LATER,	/* no descriptors are free: call again after CHANNEL_RETRY_MS */
	INBOX_DRAIN,	/* a replacement is ready: hand the logs over to it. There may be more */
	INBOX_STOP,	/* stop in good order: told so, or the supervisor is gone */
};

/* Takes every message that is there, up to one that is news. */
enum inbox_news inbox_receive(struct channel *channel, struct worker *worker);

/* Tells that connections may come. */
void inbox_say_serving(struct channel *channel, int32_t opened, int32_t failed);

/* Asks to be replaced. */
void inbox_say_replace(struct channel *channel);

/* Tells how the logs are left, all of those that can be taken over as they are; they are not this process's any more. */
void inbox_say_released(struct channel *channel, const struct message_end *ends, int32_t count);

#endif
