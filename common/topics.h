/*
 * The set of topics and where each partition lives. Built once at start, identically in the supervisor and in every
 * worker, from the same messages; after that it never changes.
 *
 * Groups are numbered from 0; group g is served by worker g. A topic is either spread, then partition p belongs to
 * group (first_group + p) mod group_count, or all in first_group. A group's partitions are numbered by slot, in the
 * order of topics (by name) and then of partitions: the slot is the partition's place on its worker's board.
 */
#ifndef COMMON_TOPICS_H
#define COMMON_TOPICS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/codec.h"
#include "common/record.h"

enum {
	TOPICS_PARTITIONS_MAX = 99999,	/* of one topic: "<topic>-<partition>" must fit 255 bytes */
	TOPICS_GROUPS_MAX = 1024,
	TOPICS_DIRECTORY_BYTES = 256,	/* "<topic>-<partition>" and its NUL */
};

/* When a reader sees a record: once it is written, or once a barrier has reached it. */
enum log_visibility {
	LOG_VISIBLE_WRITTEN = 0,
	LOG_VISIBLE_DURABLE = 1,
};

/* How records get into the active segment: by pwrite, or by stores into a shared mapping of it. */
enum log_write_mode {
	LOG_WRITE_FILE = 0,
	LOG_WRITE_MAPPED = 1,
};

/* What [log] and [topic NAME] say of one topic, effective. */
struct log_settings {
	int32_t record_format;		/* enum record_format */
	int32_t flush_records;		/* 0 = off */
	int32_t visibility;		/* enum log_visibility */
	int32_t write_mode;		/* enum log_write_mode */
	int64_t segment_bytes;
	int64_t segment_age_ms;		/* 0 = off */
	int64_t index_interval_bytes;
	int64_t flush_interval_us;	/* 0 = off */
	int64_t retention_bytes;	/* 0 = off */
	int64_t retention_age_ms;	/* 0 = off */
	int64_t retention_check_interval_ms;
};

struct topic {
	char name[CODEC_TOPIC_NAME_MAX + 1];
	int32_t partition_count;
	int32_t first_group;
	bool spread;
	struct log_settings log;
	int32_t *first_slots;	/* per group: the slot of this topic's first partition in it */
};

struct topics {
	int32_t group_count;
	int32_t count;
	struct topic *list;	/* sorted by name in byte order */
	int32_t *slot_counts;	/* per group */
};

/* An empty set for `group_count` groups (1 to TOPICS_GROUPS_MAX). Returns 0, or -1 with errno ENOMEM. */
int topics_init(struct topics *topics, int32_t group_count);

/*
 * Adds a copy of `topic` (first_slots is ignored) behind the ones there; names must come in byte order, each once.
 * Returns 0, or -1 with errno EINVAL (name or numbers that break a rule above, or the order) or ENOMEM.
 */
int topics_add(struct topics *topics, const struct topic *topic);

void topics_free(struct topics *topics);

/* The topic of that name, or NULL. */
const struct topic *topics_find(const struct topics *topics, struct codec_name name);

int32_t topics_group(const struct topics *topics, const struct topic *topic, int32_t partition);
int32_t topics_slot(const struct topics *topics, const struct topic *topic, int32_t partition);

/* Writes "<topic>-<partition>" into a buffer of TOPICS_DIRECTORY_BYTES. */
void topics_directory(const struct topic *topic, int32_t partition, char *to);

#endif
