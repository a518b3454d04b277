/*
 * A partition as requests see it: its log, its place on the board, the appends gathered in this turn, who waits for
 * the write, for a barrier, for a segment to be opened, for data. One lane per partition of the worker's group.
 */
#ifndef WORKER_LANE_H
#define WORKER_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/message.h"
#include "worker/backoff.h"
#include "worker/commit.h"
#include "worker/conn.h"
#include "worker/hold.h"
#include "worker/jobs.h"
#include "worker/partition.h"
#include "worker/retention.h"
#include "worker/worker.h"

struct reply_queue {
	struct reply *first, *last;
};

/* How far a pass over all logs has come with this one. */
enum lane_passage {
	LANE_FORCED_TO,		/* it is to be forced up to passage_end */
	LANE_POINT_STORED,	/* its recovery point is being stored */
	LANE_PASSED,
};

struct lane {
	struct worker *worker;
	const struct topic *topic;
	int32_t number;
	char name[TOPICS_DIRECTORY_BYTES];	/* "<topic>-<partition>" */
	struct partition *log;			/* NULL: closed; it may have failed */
	struct board_partition *slot;

	/* Opening the log, see opening.h. */
	bool opening;			/* a job is under way */
	struct partition *opened;	/* not NULL: takes the place of the failed `log` when that has no job under way */
	struct backoff backoff;
	struct log_limit opening_limit;

	/* Appends on their way to the file. */
	struct lane *next_dirty;
	bool dirty;
	uint8_t *staged;		/* records as they stand on disk, whole batches */
	size_t staged_head, staged_tail, staged_capacity;
	struct reply_queue to_write;	/* a reply for each staged batch */

	/* Barriers and rolls: one at a time. */
	struct commit commit;
	struct reply_queue to_force;	/* by end offset */
	struct job job;
	struct partition_barrier barrier;
	struct partition_roll *roll;	/* NULL: the job under way, if any, is the barrier */
	uint8_t *roll_batch;		/* the batch larger than a segment that the roll carries, or NULL */
	int64_t roll_again_ns;		/* no roll by age before: the last one has failed */

	enum lane_passage passage;	/* see produce_force_pass */
	int64_t passage_end;

	/* Looking after the active segment: beside barriers, never beside a roll. */
	struct job upkeep_job;
	struct partition_upkeep upkeep;
	bool upkeep_running;
	bool upkeep_awaited;		/* what is staged waits for it: it must have room made */

	/* Retention. */
	int64_t check_ns;		/* when it is looked for segments to remove */
	int64_t remove_ns;		/* no file is removed before */
	struct job retire_job;
	struct partition_retire *retire;	/* NULL: none is under way */
	int64_t removed_segments, removed_bytes;	/* taken out of the log since that was last logged, */
	int64_t removed_told_ns;	/* which it is not again before then */

	/* Readers. */
	struct holds holds;
	int64_t visible_bytes;		/* of the log, as its waiting readers know */
	struct job load_job;
	struct partition_load *load;	/* NULL: none is under way */
	bool load_stores_nothing;	/* and so the log can be another's while it runs */

	struct log_limit log_limits[BOARD_OPERATION_COUNT];	/* what goes wrong with this partition */
};

/* Makes the lanes of this worker's group, all closed. Returns 0, or -1 with errno ENOMEM. */
int lane_create_all(struct worker *worker);
void lane_free_all(struct worker *worker);

/* Leaves word for the next start of how the logs end. All of them are forced, and no job is under way. */
void lane_leave_all(struct worker *worker);

/*
 * Lets go of all logs for a worker that takes this one's place. Nothing is under way. Returns how many of them are told in `ends`,
 * which has room for all: a log that has failed, or could not be opened, is for the other to recover.
 */
int32_t lane_release_all(struct worker *worker, struct message_end *ends);

/* Tells the board where the log stands. */
void lane_publish(struct lane *lane);

/* Counts an error of storage that has been told in the log. */
void lane_count_error(struct lane *lane, enum board_operation operation);

/* Counts an error of storage and says what it means for the operator, one line a while per partition. */
void lane_report(struct lane *lane, enum board_operation operation, int error, const char *what);

void reply_queue_append(struct reply_queue *queue, struct reply *reply);
struct reply *reply_queue_pop(struct reply_queue *queue);

#endif
