/*
 * What a process inherits and must put in order before it does anything else: signals, descriptors, their limit. Knows
 * nothing of brokers.
 */
#ifndef SUPERVISOR_PROCESS_H
#define SUPERVISOR_PROCESS_H

#include <stdint.h>

/* Every signal gets its default disposition, none stays blocked: whatever the parent had set. */
void process_reset_signals(void);

/* Closes what the parent has left open, from descriptor `first` on. */
void process_close_from(int first);

/* Makes sure that 0, 1 and 2 are open (on /dev/null where not), so that no socket gets such a number. 0, or -1. */
int process_open_standard_descriptors(void);

/* Raises the soft limit of descriptors to the hard one; returns the limit that counts now. */
int64_t process_raise_descriptor_limit(void);

/*
 * What the supervisor and a worker keep open besides connections: nothing works with less. `largest_group`: the most
 * partitions that one worker has. Pure.
 */
int64_t process_descriptors_kept(int32_t workers, int32_t largest_group);

/*
 * How many connections the limit of descriptors allows, two for each, once that is taken off and, up to half of the
 * rest, the sealed segments that a worker has open while they are read; 0 or less when it does not suffice. Pure.
 */
int64_t process_connections_allowed(int64_t descriptor_limit, int32_t workers, int32_t largest_group);

#endif
