/*
 * Judges one state that a power cut may leave: the product's recovery runs on it, and what it finds is held against what
 * was appended and promised (powercut_ledger.h). Then something is appended where the log has ended and the log is
 * recovered again: nothing may come back. And now and then the recovery itself is recorded, cut off and run again, and the same
 * is asked of that one.
 *
 * What is promised:
 *
 *   the log opens, and every record of it can be read
 *   all of it that was answered with FORCED is there, what readers could read with visibility = durable, and, whatever the
 *     producers had asked for, what lies below the durable offset that the broker tells
 *   what is there was appended so, one behind the other (in crc32c: in plain no sum tells what was not written to its end)
 *   what is missing at its front has been retired, and nothing is taken for damage
 *   a recovery that is cut off, or what is appended behind it, changes nothing else of what the next one finds, and what it has
 *   copied aside is not lost
 */
#ifndef TESTS_POWERCUT_CHECK_H
#define TESTS_POWERCUT_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/powercut_image.h"
#include "tests/powercut_ledger.h"
#include "worker/partition.h"

enum { CHECK_WHY_BYTES = 1024, CHECK_PATH_BYTES = 512 };

struct check_settings {
	struct partition_settings partition;
	const char *work_path;		/* a directory in memory, for the states */
	void (*on_end)(int number);	/* the process ends by that signal, in the middle of anything */
};

struct check;

/* One at a time: system calls and log lines are this process's. */
struct check *check_begin(const struct check_settings *settings);
void check_end(struct check *check);

/* Returns 0, or -1 with `why`. `deep`: the recovery is cut off, too, with `seed`. */
int check_state(struct check *check, const struct image *image, const struct ledger *ledger, bool deep, uint64_t seed,
    char *why);

/* What the product has said meanwhile; the caller frees. */
char *check_lines(void);
/* How many states there have been of cut off recoveries. */
long check_recoveries(const struct check *check);

#endif
