/* FETCH: range check, place, slice; or into the hold until there is something to send. */
#ifndef WORKER_FETCH_H
#define WORKER_FETCH_H

#include <stdbool.h>

#include "common/board.h"
#include "common/codec.h"
#include "worker/lane.h"

/*
 * Nothing is owed on the connection. Returns false when the frame must be executed again later: its segment is being
 * opened (the connection is scheduled then). Otherwise it has been answered, or is held.
 */
bool fetch_execute(struct conn *conn, struct lane *lane, const struct codec_request *request);

/* Answers the readers for whom enough has been appended. */
void fetch_wake_due(struct lane *lane);

/* Answers the readers that are held below an offset: the log begins there now. */
void fetch_wake_below(struct lane *lane, int64_t offset);

/* Answers all held readers of a partition, or one of them, with what is there now; it may have to be loaded first. */
void fetch_wake_all(struct lane *lane, enum board_wakeup cause);
void fetch_wake(struct hold *hold, enum board_wakeup cause);

/*
 * Ends a hold without an answer: its request is written at `to`, CODEC_FETCH_REQUEST_MAX_BYTES at most, for another worker to
 * hold on until *held_until_ns. Returns the byte behind.
 */
uint8_t *fetch_write_again(struct hold *hold, uint8_t *to, int64_t *held_until_ns);

#endif
