/*
 * The worker's end of the channel: the handshake, then connections and the order to stop. A malformed message is a bug
 * of the supervisor, and there is nobody else to ask: the worker exits.
 */
#ifndef WORKER_INBOX_H
#define WORKER_INBOX_H

#include "common/channel.h"
#include "worker/worker.h"

/*
 * Says HELLO and takes the settings, the topics and the boards, up to START. Blocks; the supervisor watches the time.
 * Exits on anything unexpected.
 */
void inbox_set_up(struct channel *channel, struct worker *worker);

enum inbox_news {
	INBOX_NOTHING,	/* (more) for now */
	INBOX_LATER,	/* no descriptors are free: call again after CHANNEL_RETRY_MS */
	INBOX_STOP,	/* stop in good order: told so, or the supervisor is gone */
};

/* Takes every message that is there. */
enum inbox_news inbox_receive(struct channel *channel, struct worker *worker);

/* Tells that connections may come. */
void inbox_say_serving(struct channel *channel, int32_t opened, int32_t failed);

#endif
