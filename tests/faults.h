/*
 * What goes wrong in the broker's processes that faults.so is preloaded into: the n-th of the storage's calls, or of the
 * allocations. The test and they share this, in the file that FAULTS_FILE names.
 */
#ifndef TESTS_FAULTS_H
#define TESTS_FAULTS_H

#include <stdatomic.h>

enum faults_kind {
	FAULTS_NONE,
	FAULTS_CALL,		/* a call fails */
	FAULTS_KILL,		/* the process is killed at a call */
	FAULTS_MEMORY,		/* an allocation fails */
};

enum { FAULTS_SHORT = -1 };	/* half of a read or write, instead of an errno */

struct faults {
	atomic_int kind;	/* set last */
	atomic_int seen;	/* so many of them there were since */
	int at;			/* which one, from 1 */
	int sticky;		/* not 0: and all behind it */
	int error;
	char program[32];	/* of this name's processes alone */
	char path[64];		/* calls on files that have this in their path */
};

#endif
