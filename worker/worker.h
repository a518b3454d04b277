/*
 * What all parts of a worker share: its settings, its partitions ("lanes"), the boards, the lists of what must be done
 * in this turn of the loop. One thread owns it all. Knows no libevent, so that requests can be executed in a test.
 *
 * A turn: the loop hands each ready connection to intake, which executes every complete frame that is there;
 * appends are gathered per lane meanwhile; then produce_write_all writes each lane once and answers; then what has been
 * answered is worked on again, and at last everything is sent.
 */
#ifndef WORKER_WORKER_H
#define WORKER_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/board.h"
#include "common/log.h"
#include "common/message.h"
#include "common/topics.h"
#include "worker/jobs.h"
#include "worker/stop_marker.h"

struct connections;
struct lane;

struct worker {
	int32_t number;			/* and that of its group */
	struct topics topics;
	struct board *boards;		/* one per group; the own one is writable */
	struct board_worker *counters;	/* of the own board */

	int64_t max_frame_bytes;
	int64_t buffer_bytes;
	int64_t max_fetch_wait_ns;
	int64_t request_timeout_ns;
	int64_t idle_timeout_ns;	/* 0 = off */
	int64_t drain_timeout_ns;
	char *data_dir;
	int data_fd;

	struct jobs *jobs;
	struct connections *connections;
	struct stop_marker left;	/* by the predecessor that stopped cleanly; until the logs have been opened */
	struct message_end *handed;	/* by slot, as the predecessor that lives has released them; NULL = it has not. As long */
	struct lane *lanes;		/* by slot */
	int32_t lane_count;

	int64_t now_ns;			/* CLOCK_MONOTONIC, fresh at each step of a turn */
	int64_t buffered_bytes;		/* received parts of frames, and unsent answers */
	int64_t staged_bytes;		/* appends on their way to the files, of all lanes */
	int64_t stalled_at_bytes;	/* producers wait until less is staged; 0 = none waits */
	bool stopping;			/* no frame is read or executed any more, nothing is held */
	bool draining;			/* no frame is read or executed any more, and no job begun that nobody waits for */
	bool leaving;			/* a replacement is ready: it removes files, seals by age and opens again, not this one any more */
	bool overdue;			/* either of them, and drain_timeout is over: nothing more is read for anybody */

	int64_t points_until_ns;	/* leaving: recovery points that cannot be stored by then are not waited for */

	struct lane *dirty;		/* have gathered appends */
	struct log_limit foreign_limit;	/* unknown requests: a line a minute */
	int64_t flush_deadline_ns;	/* when the next flush_interval ends; INT64_MAX = nothing unforced */
	int64_t retain_deadline_ns;	/* when retention, or a roll by age, is due next; INT64_MAX = never */
	int32_t retain_first;		/* the lane that is looked at first */
	int32_t retiring;		/* jobs under way that remove files */
};

#endif
