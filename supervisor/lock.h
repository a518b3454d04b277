/*
 * The data directory and the lock on it: `<data_dir>/lock`, held by flock on one open file description that the
 * workers inherit, so that it lasts as long as any of them runs. What stands in the file (pids) is for people and for
 * the message of a second broker; it never decides. Knows nothing else of what the directory holds.
 *
 *   pid of the supervisor | pid of worker 0 | pid of worker 1 | ...      lines of 32 bytes: digits, blanks, newline
 *
 * Each process writes its own line, when it starts and may wait for a disk: the supervisor's loop never does. A line can
 * be a dead one's, or a hole (zeros) when its worker has never run.
 */
#ifndef SUPERVISOR_LOCK_H
#define SUPERVISOR_LOCK_H

#include <limits.h>

enum { LOCK_LINE_BYTES = 32 };

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
