/*
 * Memory kept aside for libevent, which cannot do without: evhttp 2.1.12 ends the process where the memory for an accepted
 * client's connection or request is out, and a timer that cannot be set never comes. What malloc does not give comes from
 * here; until it is whole again nothing may be begun that could need much of it. One thread.
 */
#ifndef SUPERVISOR_SPARE_H
#define SUPERVISOR_SPARE_H

#include <stdbool.h>

/* Before anything of libevent is called. Returns 0, or -1 with errno ENOMEM. */
int spare_begin(void);
/* Is it whole, or can it be made so now? */
bool spare_is_whole(void);
void spare_end(void);

#endif
