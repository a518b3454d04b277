/*
 * The data directory and the lock on it: `<data_dir>/lock`, held by flock on one open file description that the
 * workers inherit, so that it lasts as long as any of them runs. What stands in the file (pids) is for people and for
 * the message of a second broker; it never decides. Knows nothing else of what the directory holds.
 */
#ifndef SUPERVISOR_LOCK_H
#define SUPERVISOR_LOCK_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

struct lock {
	int descriptor;		/* -1: not held */
	char data_dir[PATH_MAX];	/* absolute */
};

enum lock_result {
	LOCK_TAKEN,
	LOCK_HELD,		/* by another broker, whose running processes have been named in an error line */
	LOCK_FAILED,		/* an error line says why */
};

/* Creates the directory (one level, 0750) when its parent exists, and takes the lock without waiting for it. */
enum lock_result lock_take(struct lock *lock, const char *data_dir);

/* Rewrites the file: this process and the workers' pids (0 = none). What goes wrong with that is a warning, once. */
void lock_write_pids(struct lock *lock, const pid_t *workers, int32_t count);

void lock_free(struct lock *lock);

#endif
