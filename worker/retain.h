/*
 * Retention of this worker's partitions: when each is looked at, what the board, held readers and the operator are told when
 * a log start is raised, and the jobs that remove files. What goes and how is the storage's (retention.h).
 *
 * A log is looked at when it has been opened, behind each roll, and every retention_check_interval. A few of these jobs run at
 * a time, so that removing ten thousand files leaves threads to barriers.
 */
#ifndef WORKER_RETAIN_H
#define WORKER_RETAIN_H

#include "worker/lane.h"

/* The lane's log has just been opened. */
void retain_opened(struct lane *lane);

/* Another segment has been sealed. */
void retain_rolled(struct lane *lane);

/* Looks at every lane that is due, begins jobs and rolls by age, and finds the next deadline. */
void retain_due(struct worker *worker);

#endif
