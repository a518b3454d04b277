/*
 * broker.ini as a struct. The text is read in this module (and the line reader below it) only; everything after it
 * sees what stands here, checked: no combination in it is invalid.
 */
#ifndef SUPERVISOR_SETTINGS_H
#define SUPERVISOR_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/topics.h"

struct settings_address {
	char *text;		/* as written: "127.0.0.1:9092", "[::1]:0", "unix:/run/x" */
	char *host;		/* NULL for a Unix socket; an IPv6 address without its brackets */
	char *port;		/* decimal; NULL for a Unix socket */
	char *path;		/* NULL for TCP */
};

struct settings_topic {
	char name[CODEC_TOPIC_NAME_MAX + 1];
	int32_t partition_count;
	int32_t group;			/* -1 = spread over the workers */
	int line;			/* of [topics], where it is named */
	struct log_settings log;	/* effective: [topic NAME], else [log], else the default */
};

struct settings {
	struct settings_address *listen;
	int listen_count;
	struct settings_address http;	/* text NULL = off */
	char *control;			/* path; NULL = off */
	char *data_dir;			/* as written */
	int32_t workers;		/* effective: no more than partitions, or than the highest group needs */
	int32_t workers_asked;		/* as written, or the number of CPUs for auto */
	int64_t max_connections;
	int64_t max_frame_bytes;
	int64_t buffer_bytes;
	int64_t max_fetch_wait_ms;
	int64_t request_timeout_ms;
	int64_t idle_timeout_ms;	/* 0 = off */
	int64_t drain_timeout_ms;
	int32_t log_level;		/* enum log_level */
	struct log_settings log;	/* [log], else the defaults: what topics get that say nothing else */
	struct settings_topic *topics;	/* sorted by name in byte order */
	int32_t topic_count;
};

/*
 * Reads `path`. Returns 0 and fills *settings; or -1 after writing every error found, one a line as
 * "file:line: what is wrong (remedy)", to `errors` (then *settings needs no freeing). Touches nothing but that file,
 * but for one question: whether /run/logbroker can be written, which decides the default of `control`.
 */
int settings_read(const char *path, struct settings *settings, FILE *errors);

/*
 * What depends on the disk: refuses fewer partitions of a topic than data_dir holds ("<topic>-<partition>"
 * directories with a segment in them), one line an error as above. Reads the directory, changes nothing. A data_dir
 * that is not there is no error. Directories that look like a partition of a topic nobody names are written to
 * `warnings`, one line a topic.
 */
int settings_check_data(const struct settings *settings, const char *path, FILE *errors, FILE *warnings);

/* The effective configuration as a broker.ini that reads back to the same, with where each value came from
 * ("; default", "; broker.ini:17") behind it. */
int settings_print(const char *path, FILE *to, FILE *errors);

void settings_free(struct settings *settings);

#endif
