/* The sparse index: a sorted array of marks that grows by doubling, so that an append seldom allocates. */
#include "worker/index.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 16 };

void
index_init(struct index *index, int64_t interval_bytes)
{
	*index = (struct index){ .interval_bytes = interval_bytes };
}

void
index_free(struct index *index)
{
	free(index->marks);
	index_init(index, index->interval_bytes);
}

static int
grow(struct index *index)
{
	size_t capacity = index->capacity == 0 ? FIRST_CAPACITY : index->capacity * 2;
	struct index_mark *marks = realloc(index->marks, capacity * sizeof(*marks));

	if (marks == NULL)
		return -1;
	index->marks = marks;
	index->capacity = capacity;
	return 0;
}

int
index_add(struct index *index, int64_t offset, int64_t position)
{
	if (index->count == index->capacity && grow(index) == -1)
		return -1;
	index->marks[index->count++] = (struct index_mark){ .offset = offset, .position = position };
	index->due_position = position + index->interval_bytes;
	return 0;
}

void
index_cut(struct index *index, size_t count)
{
	index->count = count;
	index->due_position = count == 0 ? 0 : index->marks[count - 1].position + index->interval_bytes;
}

size_t
index_count_below(const struct index *index, int64_t offset)
{
	size_t low = 0, high = index->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (index->marks[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct index_mark
index_nearest(const struct index *index, int64_t offset)
{
	size_t low = 0;		/* its mark is at or before the offset */
	size_t high = index->count;	/* this one's is behind it */

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (index->marks[middle].offset <= offset)
			low = middle;
		else
			high = middle;
	}
	return index->marks[low];
}
