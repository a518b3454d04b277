/*
 * What the paths on the command line of the offline verbs name, and who is at work there. Knows names, directories and
 * the lock; nothing of what stands in a segment.
 */
#ifndef CLIENT_OFFLINE_H
#define CLIENT_OFFLINE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum offline_kind {
	OFFLINE_DATA_DIR,	/* all its partitions */
	OFFLINE_PARTITION,
	OFFLINE_SEGMENT,	/* one segment of a partition */
	OFFLINE_FILE,		/* another regular file: what a recovery has cut off, a copy */
};

struct offline {
	enum offline_kind kind;
	char path[PATH_MAX];	/* of the data directory, the partition's directory, or the file */
	char **partitions;	/* the names of their directories in it: topics by name, partitions by number */
	size_t count;
	int64_t base;		/* SEGMENT; else -1 */
};

/* One partition's directory. */
struct offline_log {
	char path[PATH_MAX];
	int dir_fd;
	char data_dirs[2][PATH_MAX];	/* where the lock may be: a partition's directory may be a link. "" unused */
	int lock_fds[2];	/* -1: not taken */
	bool lock_made[2];	/* there was none: it goes when the log is closed */
};

/* Looks at the path. Returns TOOL_DONE, or another exit code and the reason has been said. Free it in any case. */
int offline_open(struct offline *offline, const char *path);
void offline_free(struct offline *offline);

/* How many partitions' directories the path names. */
size_t offline_logs(const struct offline *offline);

/* Opens the directory of the `at`-th partition, or the one that the segment is in. Returns as offline_open. */
int offline_open_log(const struct offline *offline, size_t at, struct offline_log *log);
void offline_close_log(struct offline_log *log);

/* Is a broker (or a repair) at work on the log, now? `log` is a struct offline_log. True also when nobody can say. */
bool offline_is_running(void *log);

/* Who is at work on it; "" when the lock's file does not tell. */
void offline_name_holders(const struct offline_log *log, char *names, size_t size);

/*
 * Keeps brokers away until the log is closed. Returns TOOL_DONE; or TOOL_BUSY or another and the reason has been said.
 */
int offline_lock(struct offline_log *log);

#endif
