/*
 * A checkpoint: how far somebody has read a topic, kept in a file. The file is replaced as a whole (written beside it,
 * forced, renamed, the directory forced), so whatever happens it holds an old position or a new one. While it is open here
 * nobody else can open it: two readers with one checkpoint would overwrite each other's positions.
 */
#ifndef CLIENT_CHECKPOINT_H
#define CLIENT_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include <logbroker.h>

struct checkpoint {
	const char *path;
	int fd;			/* the file's, locked; -1: only read */
	char topic[LB_TOPIC_NAME_MAX + 1];
	int64_t *next;		/* by partition: the next offset to read; -1: none is kept */
	int32_t count;		/* of them */
};

/*
 * Reads the file. topic NULL: whatever topic it is of; otherwise one of another topic is refused. A file that is not there is
 * an empty checkpoint only with a topic. Returns an enum tool_exit, having said what is wrong; to be closed in any case.
 */
int checkpoint_read(struct checkpoint *checkpoint, const char *path, const char *topic);
/* The same, to be saved: locks it, and saves it, so that what would fail later fails now. */
int checkpoint_open(struct checkpoint *checkpoint, const char *path, const char *topic);
void checkpoint_close(struct checkpoint *checkpoint);

/* -1: none is kept. */
int64_t checkpoint_get(const struct checkpoint *checkpoint, int32_t partition);
/* Returns 0, or -1 (out of memory, said). */
int checkpoint_set(struct checkpoint *checkpoint, int32_t partition, int64_t next);
/* Does it keep any position? */
bool checkpoint_is_empty(const struct checkpoint *checkpoint);
/* Returns 0, or -1, having said why. */
int checkpoint_save(struct checkpoint *checkpoint);

#endif
