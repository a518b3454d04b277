/*
 * Which input record is which, of those that are on their way: the library's callbacks tell what became of one, this says its
 * number and size. A fixed number of places, so that tiny records cannot take any amount of memory.
 */
#ifndef CLIENT_UNDERWAY_H
#define CLIENT_UNDERWAY_H

#include <stddef.h>
#include <stdint.h>

struct underway;

struct underway_record {
	void *owner;		/* as underway_new got it */
	int64_t number;
	size_t bytes;
	struct underway_record *next_free;
};

/* NULL: out of memory. */
struct underway *underway_new(void *owner);
void underway_free(struct underway *underway);

/* A place for a record; NULL: all are taken. It stays where it is until it is given back. */
struct underway_record *underway_take(struct underway *underway, int64_t number, size_t bytes);
void underway_give_back(struct underway *underway, struct underway_record *record);

#endif
