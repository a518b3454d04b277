/*
 * Which partition lives in which group: from the settings' topics to the set of topics that supervisor and workers
 * share. Pure; knows no processes.
 */
#ifndef SUPERVISOR_PLACEMENT_H
#define SUPERVISOR_PLACEMENT_H

#include "common/topics.h"
#include "supervisor/settings.h"

/*
 * Topics without a `group` are dealt out one partition after the other, each topic going on where the one before it
 * (by name) has ended, so that no group gets more than one partition more than another, however small the topics
 * are. Returns 0 and fills *topics (topics_free), or -1 with errno ENOMEM or EINVAL.
 */
int placement_build(const struct settings *settings, struct topics *topics);

/* All partitions of all topics. */
int64_t placement_partitions(const struct topics *topics);

/* The most partitions that one group has. */
int32_t placement_largest_group(const struct topics *topics);

#endif
