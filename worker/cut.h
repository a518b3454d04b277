/*
 * Copying aside what is about to be cut off a segment's end, as "<base>.cut" beside it, or "<base>.cut.N" when there
 * are such copies already. Does not cut and does not decide.
 */
#ifndef WORKER_CUT_H
#define WORKER_CUT_H

#include <stdint.h>

/*
 * Copies the bytes from `from` to before `to` of the open segment file `base` and forces copy and name; `fd` may be
 * one of direct_open's. A copy of the same bytes that is there already is taken. Returns 0 with its name in `name`
 * (SEGMENT_NAME_BYTES), or -1 with errno.
 */
int cut_copy_aside(int dir_fd, int fd, int64_t base, int64_t from, int64_t to, char *name);

#endif
