/*
 * All workers' boards as the supervisor holds them: created once, kept while workers come and go. Knows no processes.
 */
#ifndef SUPERVISOR_BOARDS_H
#define SUPERVISOR_BOARDS_H

#include <stdint.h>

#include "common/board.h"
#include "common/topics.h"

struct boards {
	int32_t count;		/* groups */
	int *descriptors;	/* writable; one becomes its worker's MESSAGE_BOARD_FD */
	struct board *maps;
};

/* One board for each group. Returns 0, or -1 with errno (then nothing needs freeing). */
int boards_create(struct boards *boards, const struct topics *topics);
void boards_free(struct boards *boards);

#endif
