/*
 * Group commit as pure policy: when must a partition's next barrier begin, and whom does it answer? No threads, no
 * I/O, no clock of its own. There is no timer that makes a group: a barrier begins as soon as somebody waits and none
 * is under way, and whatever arrives while it runs is the next group; so the load sizes the groups.
 */
#ifndef WORKER_COMMIT_H
#define WORKER_COMMIT_H

#include <stdbool.h>
#include <stdint.h>

struct commit {
	int64_t flush_interval_ns;	/* 0 = off: a barrier begins at most this long after the oldest unforced write */
	int64_t flush_records;		/* 0 = off: a barrier begins with so many unforced records */
	int64_t written_end;
	int64_t durable_end;
	int64_t wanted_end;		/* somebody waits for everything below it */
	bool running;			/* a barrier, or a roll, which is one as well */
	int64_t running_end;		/* what it will make durable */
	int64_t oldest_ns;		/* when the oldest unforced record was written; 0 = none is unforced */
	int64_t next_oldest_ns;		/* the same of those that the running barrier does not cover; 0 = none */
};

/* A log whose records below `end` are all durable. */
void commit_init(struct commit *commit, int64_t flush_interval_ns, int64_t flush_records, int64_t end);

/* Records up to `end` have been written at `now_ns`; `wanted`: a producer waits until they are durable. */
void commit_written(struct commit *commit, int64_t end, bool wanted, int64_t now_ns);

/* Records up to `end` have been written and forced in one: a roll has carried them. */
void commit_written_durable(struct commit *commit, int64_t end);

/* Must a barrier begin now? Never while one is running. */
bool commit_due(const struct commit *commit, int64_t now_ns);

/* When the flush interval will make a barrier due; INT64_MAX when it never will. */
int64_t commit_deadline_ns(const struct commit *commit);

/* A barrier begins that covers everything written. */
void commit_begun(struct commit *commit);

/* It has ended: everything below `durable_end` is durable (after a failure: as much as before). */
void commit_ended(struct commit *commit, int64_t durable_end);

#endif
