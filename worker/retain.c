#include "worker/retain.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

#include "worker/fetch.h"
#include "worker/opening.h"
#include "worker/produce.h"
#include "worker/retention.h"

enum {
	JOBS_AT_ONCE_MAX = 2,
	/* Files that readers have open are looked at so often; what could not be removed is tried again no sooner. */
	LOOK_AGAIN_NS = CLOCK_NS_PER_S,
	REPORT_INTERVAL_S = 10,
};

static bool
keeps_all(const struct lane *lane)
{
	return lane->topic->log.retention_bytes == 0 && lane->topic->log.retention_age_ms == 0;
}

/* ---- Raising the log start ---- */

/* Another look at this time, unless that is now: what is due and was not begun waits for a job under way, whose end looks. */
static void
expect(struct worker *worker, int64_t deadline_ns)
{
	if (deadline_ns > worker->now_ns && deadline_ns < worker->retain_deadline_ns)
		worker->retain_deadline_ns = deadline_ns;
}

/* One line for all that was taken out of the log since the last one. */
static void
tell_removed(struct lane *lane)
{
	if (lane->removed_segments == 0)
		return;
	if (lane->removed_told_ns > lane->worker->now_ns) {
		expect(lane->worker, lane->removed_told_ns);
		return;
	}
	log_info("partition %s: retention removes %" PRId64 " segment%s with %" PRId64 " bytes: the log begins at offset %" PRId64
	    " now", lane->name, lane->removed_segments, lane->removed_segments == 1 ? "" : "s", lane->removed_bytes,
	    partition_log_start(lane->log));
	lane->removed_segments = lane->removed_bytes = 0;
	lane->removed_told_ns = lane->worker->now_ns + (int64_t)REPORT_INTERVAL_S * CLOCK_NS_PER_S;
}

static void
raised(struct lane *lane, int64_t segments, int64_t bytes)
{
	/* Before any file goes: a restarted worker must know. */
	lane_publish(lane);
	fetch_wake_below(lane, partition_log_start(lane->log));
	lane->removed_segments += segments;
	lane->removed_bytes += bytes;
	tell_removed(lane);
}

static void
check(struct lane *lane)
{
	int64_t interval_ns = lane->topic->log.retention_check_interval_ms * CLOCK_NS_PER_MS;
	int64_t bytes = partition_size_bytes(lane->log);
	int64_t segments = partition_retire(lane->log, lane->worker->now_ns);

	/* On the same beat as all others of that interval: one wake-up for all. */
	lane->check_ns = (lane->worker->now_ns / interval_ns + 1) * interval_ns;
	if (segments == -1)
		lane_report(lane, BOARD_RETENTION, errno, "cannot look for segments to remove");
	else if (segments > 0)
		raised(lane, segments, bytes - partition_size_bytes(lane->log));
}

/* ---- Removing files ---- */

static struct lane *
lane_of(struct job *job)
{
	return (struct lane *)((char *)job - offsetof(struct lane, retire_job));
}

static void
run_retire(struct job *job)
{
	partition_retire_run(lane_of(job)->retire);
}

static void
retire_done(struct job *job)
{
	struct lane *lane = lane_of(job);
	struct worker *worker = lane->worker;
	int64_t again_ns = worker->now_ns + LOOK_AGAIN_NS;
	bool force_failed;

	worker->retiring--;
	if (partition_retire_finish(lane->log, lane->retire, &force_failed) != 0) {
		lane->remove_ns = lane->check_ns > again_ns ? lane->check_ns : again_ns;
		lane_report(lane, BOARD_RETENTION, errno, force_failed
		    ? "forcing the directory to disk failed while segments were removed: no more of them are until the broker is "
		      "restarted; look after the disk"
		    : "cannot remove the oldest segment file, which retention has taken out of the log (it is tried again)");
	}
	lane->retire = NULL;
	opening_job_ended(lane);
	/* The next one's turn. */
	worker->retain_first = (int32_t)(lane - worker->lanes) + 1;
	retain_due(worker);
}

/* Begins a job when there is something to remove and a place for it. */
static void
remove_files(struct lane *lane)
{
	struct worker *worker = lane->worker;

	if (lane->retire != NULL || worker->retiring >= JOBS_AT_ONCE_MAX || lane->remove_ns > worker->now_ns ||
	    !partition_retiring(lane->log))
		return;
	lane->retire = partition_retire_begin(lane->log);
	if (lane->retire == NULL) {
		lane->remove_ns = worker->now_ns + LOOK_AGAIN_NS;
		return;
	}
	worker->retiring++;
	lane->retire_job = (struct job){ run_retire, retire_done, NULL };
	jobs_submit(worker->jobs, &lane->retire_job);
}

/* ---- When ---- */

static void
look(struct lane *lane)
{
	if (lane->log == NULL || lane->worker->stopping || lane->worker->leaving)
		return;
	if (!keeps_all(lane)) {
		if (lane->check_ns <= lane->worker->now_ns)
			check(lane);
		expect(lane->worker, lane->check_ns);
		tell_removed(lane);
	}
	remove_files(lane);
	if (partition_retiring(lane->log))
		expect(lane->worker, lane->remove_ns);
	produce_roll_due(lane);
}

void
retain_due(struct worker *worker)
{
	worker->retain_deadline_ns = INT64_MAX;
	for (int32_t i = 0; i < worker->lane_count; i++)
		look(&worker->lanes[(worker->retain_first + i) % worker->lane_count]);
}

void
retain_opened(struct lane *lane)
{
	lane->check_ns = lane->remove_ns = lane->worker->now_ns;
	look(lane);
}

void
retain_rolled(struct lane *lane)
{
	if (keeps_all(lane) || lane->worker->stopping || lane->worker->leaving)
		return;
	check(lane);
	remove_files(lane);
}
