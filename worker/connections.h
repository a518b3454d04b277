/* All connections of a worker, as its loop sees them. */
#ifndef WORKER_CONNECTIONS_H
#define WORKER_CONNECTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/message.h"
#include "worker/worker.h"

struct channel;
struct connections;
struct event_base;

/* `channel` leads to the supervisor: what belongs to another group is queued there. All are borrowed. NULL with errno. */
struct connections *connections_new(struct worker *worker, struct event_base *base, struct channel *channel);

/* Closes every connection as it stands. */
void connections_free(struct connections *set);

/*
 * Takes over a connection: its socket, the memfd (-1 = none) and what was read before, as they came in `message`.
 * Without memory, and while stopping, it is closed at once, counted.
 */
void connections_take(struct connections *set, const struct message_connection *message, const uint8_t *inline_bytes,
    int socket_fd, int spill_fd);

/*
 * The body of a turn: works on every ready connection until nothing is ready or some rounds are over, with
 * `write_appends` called between the rounds; then sends. Returns true when there is more to do at once.
 */
bool connections_turn(struct connections *set, void (*write_appends)(struct worker *worker));

/* Stopping: no connection reads or executes any more, what is held is answered at once. */
void connections_stop(struct connections *set);

/*
 * The worker's logs are another's now: every connection goes back to the supervisor with what was read and not executed, held
 * requests included; at once, or when what is owed on it has been sent. So does whatever comes from now on.
 */
void connections_return(struct connections *set);

/* Connections that still owe an answer, or whose answers their peers' kernels have not all acknowledged. */
size_t connections_unfinished(struct connections *set);

/* A line for each of them, up to some: they are about to be cut. */
void connections_name_unfinished(struct connections *set);

#endif
