/*
 * A segment's sparse index: from an offset to a position at or shortly before it. A mark for the first record, then
 * one for the first record that begins at least an interval behind the last mark. Lives in memory only; knows
 * neither files nor records, only where they begin.
 */
#ifndef WORKER_INDEX_H
#define WORKER_INDEX_H

#include <stddef.h>
#include <stdint.h>

struct index_mark {
	int64_t offset;
	int64_t position;
};

struct index {
	int64_t interval_bytes;
	int64_t due_position;	/* a record that begins here or behind gets the next mark */
	struct index_mark *marks;
	size_t count;
	size_t capacity;
};

/* An empty index; the interval is at least 1. */
void index_init(struct index *index, int64_t interval_bytes);
void index_free(struct index *index);

/* Adds a mark. Returns 0, or -1 with errno ENOMEM and the index as it was. */
int index_add(struct index *index, int64_t offset, int64_t position);

/* Told of every record in order; keeps a mark where one is due. Returns 0, or -1 with errno ENOMEM. */
static inline int
index_note(struct index *index, int64_t offset, int64_t position)
{
	return position < index->due_position ? 0 : index_add(index, offset, position);
}

/* Forgets all but the first `count` marks: the records behind them were not written after all. */
void index_cut(struct index *index, size_t count);

/* How many of its marks are of records ahead of `offset`? */
size_t index_count_below(const struct index *index, int64_t offset);

/* The last mark at or before `offset`, which is not before the first one. The index is not empty. */
struct index_mark index_nearest(const struct index *index, int64_t offset);

#endif
