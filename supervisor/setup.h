/*
 * What a new worker is told before it says PREPARED: SETUP, TOPIC x topics, BOARD x groups, numbered as
 * steps from 0, so that a caller can queue them bit by bit. Knows messages; no processes, no event loop.
 */
#ifndef SUPERVISOR_SETUP_H
#define SUPERVISOR_SETUP_H

#include <stdint.h>

#include "common/channel.h"
#include "common/topics.h"
#include "supervisor/boards.h"
#include "supervisor/settings.h"

/* All borrowed. */
struct setup {
	const struct settings *settings;
	const struct topics *topics;
	const struct boards *boards;
	const char *data_dir;		/* absolute */
	int32_t log_level;
	int64_t generation;		/* of what is told: grows when a reload changes it */
};

int32_t setup_steps(const struct setup *setup);

/* Queues the message of that step for that worker. Returns 0, or -1 with errno (no memory, no descriptors). */
int setup_queue(const struct setup *setup, int32_t worker, int32_t step, struct channel *channel);

#endif
