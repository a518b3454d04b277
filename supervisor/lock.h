/*
 * The supervisor's hold on the data directory: that it is there, and its lock (common/lockfile.h), which the workers
 * inherit. Knows nothing else of what the directory holds.
 */
#ifndef SUPERVISOR_LOCK_H
#define SUPERVISOR_LOCK_H

#include <limits.h>

struct lock {
	int descriptor;		/* -1: not held */
	char data_dir[PATH_MAX];	/* absolute */
};

enum lock_result {
	LOCK_TAKEN,
	LOCK_HELD,		/* by another broker, whose running processes have been named in an error line */
	LOCK_FAILED,		/* an error line says why */
};

/*
 * Creates the directory (one level, 0750) when its parent exists and forces its name, takes the lock (waiting a second at
 * most, for processes that are about to be gone), and writes the supervisor's line.
 */
enum lock_result lock_take(struct lock *lock, const char *data_dir);

void lock_free(struct lock *lock);

#endif
