/*
 * A few descriptors held back, so that accepting can never take the ones that the channels need: a connection given
 * back by a worker is received although the table of descriptors is full, and with it every existing client goes on.
 * They are opened early, so they have low numbers, and giving them up helps even when somebody lowers the limit of
 * the running process. Knows neither channels nor listeners.
 */
#ifndef SUPERVISOR_RESERVE_H
#define SUPERVISOR_RESERVE_H

#include <stdbool.h>

enum { RESERVE_DESCRIPTORS = 8 };

struct reserve {
	int count;
	int descriptors[RESERVE_DESCRIPTORS];
};

/* Fills it. Returns true when it is whole; false when descriptors are short: then nobody may accept. Cheap when
 * it is whole already. */
bool reserve_fill(struct reserve *reserve);

/* Gives all of it up, for one who must have descriptors now. The next reserve_fill takes them back. */
void reserve_release(struct reserve *reserve);

#endif
