/*
 * Opening the logs of a worker's partitions: all of them at its start, and one that has failed again until that works.
 * Owns what is known of a log beforehand, the jobs, and what board and operator are told of their results. When it is
 * tried again is backoff.h's.
 *
 *   the board says                    the log is read     must come back
 *   never open since the start        from the disk       nothing: nobody knows of a force that failed before the start;
 *                                                         as a clean stop has left it, if it is still so
 *   open                              as the cache is     the high watermark; released by a worker that lives: as it says
 *   open, a force was under way       from the disk       the durable end: nobody has seen how it ended
 *   failed                            from the disk       the durable end; and what is behind it is written once more
 *
 * A failed log is read up to its durable end until another one takes its place. Nothing but a log that could be opened
 * ends the state "failed" on the board, so that no later process believes the page cache.
 */
#ifndef WORKER_OPENING_H
#define WORKER_OPENING_H

#include <stdint.h>

#include "worker/lane.h"

/* Opens every lane's log by jobs; `done` is called in the loop when each has been opened or given up for now. */
void opening_begin_all(struct worker *worker, void (*done)(void *context, int32_t opened, int32_t failed), void *context);

/* A lane's log has failed: it will be opened anew. Told again this changes nothing. */
void opening_log_failed(struct lane *lane);

/* Begins what is due; called every second or so. */
void opening_due(struct worker *worker);

/* A job of a lane's log has ended, a load or a removal: the one that has been opened may have waited for that. */
void opening_job_ended(struct lane *lane);

#endif
