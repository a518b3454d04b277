/*
 * PRODUCE: gathers a turn's batches per partition, writes them once, and answers as the ack level says. Also the only
 * place from which barriers and rolls are begun.
 */
#ifndef WORKER_PRODUCE_H
#define WORKER_PRODUCE_H

#include <stdbool.h>

#include "common/codec.h"
#include "worker/lane.h"

/* Returns false when the partition has gathered all it may: the frame must be executed later (the connection is
 * scheduled when that is so). The request has been parsed without error and its partition is here. */
bool produce_execute(struct conn *conn, struct lane *lane, const struct codec_request *request);

/* Writes what has been gathered, of every lane; begins the barriers that are due. */
void produce_write_all(struct worker *worker);

/* Begins the barriers whose flush interval has ended, and finds the next deadline. */
void produce_flush_due(struct worker *worker);

/* Begins the upkeep that has become due with the time: to be asked once a second. */
void produce_upkeep_due(struct worker *worker);

/* Seals the active segment when its age says so and no barrier, roll or upkeep is under way, behind each of which it is
 * looked at again; until then sees to it that retention's deadline is no later than that. */
void produce_roll_due(struct lane *lane);

/*
 * A pass over all logs while they go on: each is forced up to where it ended when the pass began, and its recovery point is
 * stored. produce_force_pass begins what is to be begun next, and returns true when that is done for all.
 */
void produce_begin_pass(struct worker *worker);
bool produce_force_pass(struct worker *worker);

/* Draining: is everything that was begun finished, and everybody answered? No job touches a file or the board any more. */
bool produce_finished(const struct worker *worker);

/* Begins barriers for everything unforced; true when nothing is unforced or under way (failed partitions aside). */
bool produce_force_all(struct worker *worker);

#endif
