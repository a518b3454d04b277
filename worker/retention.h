/*
 * Retention: which sealed segments the settings do not keep any longer, and getting rid of their files. Owns the order:
 * first the log start is raised over them, by the owner; then a job unlinks them, the oldest first, one at a time, and
 * forces the directory after each, so that a gap in the middle of a log can only be damage. The active segment always
 * stays; when its first record has reached the age, it is time for a roll.
 *
 * Ages are counted on CLOCK_MONOTONIC, from what the wall clock said when the log was opened: that somebody sets the
 * clock meanwhile makes no record older or younger.
 *
 * What a reader is just being sent outlives its file's name: the partition keeps a reference of its own until nobody else
 * has one, and then the job closes the file, since that is when the file system gives its blocks back.
 */
#ifndef WORKER_RETENTION_H
#define WORKER_RETENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/partition.h"

struct partition_retire;

/* When the active segment must be sealed for its age, on CLOCK_MONOTONIC; INT64_MAX when it need not. */
int64_t partition_roll_due_ns(const struct partition *partition);

/*
 * Takes what the settings do not keep out of the log and returns how many segments that were: the log start is raised
 * (publish it before a job begins), their files are still there. Returns -1 with errno ENOMEM and the log as it was.
 * Any job may be under way. Places end.
 */
int64_t partition_retire(struct partition *partition, int64_t now_ns);

/* Are there files left of segments taken out: to be unlinked, or unlinked and still open? */
bool partition_retiring(const struct partition *partition);

/*
 * A job that removes such files, as many as it can in about RETENTION_JOB_MS; one at a time per partition, beside any other
 * job. Returns NULL when there is nothing that it could do now: readers have those that are open; or without memory.
 * In a failed partition nothing is unlinked.
 */
enum { RETENTION_JOB_MS = 100 };
struct partition_retire *partition_retire_begin(struct partition *partition);
void partition_retire_run(struct partition_retire *retire);

/*
 * Frees the job. Returns 0; or -1 with errno: one could not be unlinked, and nothing younger was; the next job tries again. With
 * *force_failed the directory could not be forced: then the names may come back after a power cut, and removing more could
 * leave a gap, so no job of this partition unlinks anything until the log is opened anew.
 */
int partition_retire_finish(struct partition *partition, struct partition_retire *retire, bool *force_failed);

/*
 * Takes over the segments of another log of the same partition that readers have open, in it or out of it: it is to be closed,
 * and nothing else may be done with it.
 */
void partition_take_lingering(struct partition *partition, struct partition *from);

#endif
