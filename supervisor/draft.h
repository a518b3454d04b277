/*
 * What stands in broker.ini, before it is settings: every value with its line, every error with its line. Config text
 * is read here (with inifile.c for the lines and values.c for the notation of values) and nowhere else. Only
 * settings.c looks into a draft; the table of keys is reload.c's too.
 */
#ifndef SUPERVISOR_DRAFT_H
#define SUPERVISOR_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "supervisor/inifile.h"
#include "supervisor/values.h"

/* Where a key may stand. [topic NAME] takes those of [log] too. */
enum draft_place { NOWHERE, IN_BROKER, IN_TOPICS, IN_LOG, IN_TOPIC };

/* What becomes of a key's number. */
enum draft_store {
	BY_HAND,
	INTO_INT32,	/* at `offset` of struct settings, or for a key of [log] of struct log_settings */
	INTO_INT64,
};

/* What it takes to put another value in force while the broker runs. */
enum draft_change {
	CHANGES_AT_ONCE = 1,	/* the supervisor's own */
	CHANGES_WITH_WORKERS,	/* a worker learns it at its start */
	CHANGES_WITH_SERVICE,	/* sockets, the data directory, where partitions live */
};

enum draft_key_name {
	KEY_LISTEN, KEY_DATA_DIR, KEY_WORKERS, KEY_CONTROL, KEY_HTTP, KEY_MAX_CONNECTIONS, KEY_MAX_FRAME_BYTES,
	KEY_BUFFER_BYTES, KEY_MAX_FETCH_WAIT, KEY_REQUEST_TIMEOUT, KEY_IDLE_TIMEOUT, KEY_DRAIN_TIMEOUT, KEY_LOG_LEVEL,
	KEY_WRITE_MODE, KEY_RECORD_FORMAT, KEY_SEGMENT_BYTES, KEY_SEGMENT_AGE, KEY_INDEX_INTERVAL_BYTES,
	KEY_FLUSH_INTERVAL, KEY_FLUSH_RECORDS, KEY_VISIBILITY, KEY_RETENTION_BYTES, KEY_RETENTION_AGE,
	KEY_RETENTION_CHECK_INTERVAL,
	KEY_GROUP,
	KEY_COUNT,
};

struct draft_key {
	enum draft_place place;
	const char *name;
	struct value_rule rule;
	const char *fallback;	/* the default, as one would write it; NULL: none, or found out when it is needed */
	enum draft_store store;
	size_t offset;
	enum draft_change change;
};

struct draft_value {
	int line;	/* 0: not given */
	bool wrong;	/* told already; number and text say nothing */
	int64_t number;
	char *text;
};

struct draft_section {		/* one [topic NAME] */
	char *name;
	int line;
	struct draft_value values[KEY_COUNT];
};

struct draft_topic {		/* one line of [topics] */
	char *name;
	int line;
	int32_t partition_count;	/* 1 when it was wrong */
	const struct draft_section *section;
};

struct draft_complaint {
	int line;	/* INT_MAX: of the file as a whole */
	size_t number;
	char *text;
};

struct draft {
	const char *path;
	struct draft_complaint *complaints;
	size_t complaint_count;
	size_t complaint_room;
	bool no_memory;

	struct draft_value values[KEY_COUNT];	/* of [broker] and [log] */
	struct draft_topic *topics;		/* in the order of lines */
	size_t topic_count;
	size_t topic_room;
	struct draft_section **sections;
	size_t section_count;
	size_t section_room;

	/* While reading: the section that is open. */
	enum draft_place place;
	int place_line;
	char place_name[INIFILE_NAME_MAX + 1];
	bool place_empty;
	bool place_unknown;			/* told already; its lines cannot be checked */
	int first_lines[IN_TOPIC];		/* where [broker], [topics] and [log] stand first; 0 = nowhere */
};

const struct draft_key *draft_key(int name);

/*
 * Reads a file into *draft (zeroed here; to be freed in every case). What is wrong with single lines and values is
 * kept as complaints. Returns 0, or -1 when the file could not be read to its end or memory is out.
 */
int draft_read(struct draft *d, const char *path);
void draft_free(struct draft *d);

/* The number of a key of [broker] or [log]: as given, else (and when it is wrong) the default's. */
int64_t draft_number(const struct draft *d, enum draft_key_name name);
int64_t draft_default_number(const struct draft_key *key);

/* The text of a key of [broker]: as given, else the default. NULL when it is wrong, or has no default. */
const char *draft_text(const struct draft *d, enum draft_key_name name);

/* Keeps one more error, of line `line` or of the file as a whole. */
enum { DRAFT_WHOLE_FILE = __INT_MAX__ };
void draft_complain(struct draft *d, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Writes every error kept, in the order of lines. Returns 0 when there is none, else -1. */
int draft_tell(struct draft *d, FILE *errors);

/* Keeps `candidate` in *best (NULL at first) when it is so like `name` that it may be meant, more than all before. */
void draft_suggest(const char *name, const char *candidate, const char **best, int *best_distance);

#endif
