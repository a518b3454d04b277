/*
 * Work that waits for a disk, done by threads so that the loop never does. A job is a value owned by whoever submits
 * it; its result comes back to the loop through a descriptor that becomes readable. Knows nothing of what jobs do.
 */
#ifndef WORKER_JOBS_H
#define WORKER_JOBS_H

#include <stddef.h>

struct job {
	void (*run)(struct job *job);	/* on a thread */
	void (*done)(struct job *job);	/* in the loop, by jobs_collect; may free or submit the job again */
	struct job *next;
};

struct jobs;

enum {
	JOBS_THREADS_MAX = 8,
	JOBS_READS_MAX = 4,	/* of them at once for what only reads: no barrier may stand behind a client that replays a log */
};

/*
 * One thread is started at once, so that whoever has jobs can do them; others as jobs need them, at most JOBS_THREADS_MAX.
 * Returns NULL with errno.
 */
struct jobs *jobs_new(void);

/* Readable when jobs_collect has something to do. */
int jobs_fd(const struct jobs *jobs);

/* Queues a job; first come, first run. The job must stay where it is until its `done` is called. Loop thread only. */
void jobs_submit(struct jobs *jobs, struct job *job);

/* The same for a job that reads on a client's behalf: in a queue of its own, at most JOBS_READS_MAX of them run at once. */
void jobs_submit_read(struct jobs *jobs, struct job *job);

/* Calls `done` of every job that has run. Loop thread only. */
void jobs_collect(struct jobs *jobs);

/* Jobs submitted whose `done` has not been called. Loop thread only. */
size_t jobs_outstanding(const struct jobs *jobs);

/* Ends the threads. No job may be outstanding. */
void jobs_free(struct jobs *jobs);

#endif
