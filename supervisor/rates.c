/* See rates.h. */
#include "supervisor/rates.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

static int64_t
partition_count(const struct topics *topics)
{
	int64_t count = 0;

	for (int32_t i = 0; i < topics->count; i++)
		count += topics->list[i].partition_count;
	return count;
}

/* Boards are not believed: sums may overflow, and must not trap. */
static void
add(int64_t *sum, const board_counter *counter)
{
	*sum = (int64_t)((uint64_t)*sum + (uint64_t)board_get(counter));
}

static void
add_worker(struct rates_sample *sample, const struct board_worker *worker)
{
	for (int api = 0; api < BOARD_API_COUNT; api++)
		for (int code = 0; code < CODEC_ERROR_COUNT; code++)
			add(&sample->requests, &worker->requests[api][code]);
	for (int i = 0; i < BOARD_BUCKETS; i++)
		add(&sample->barriers, &worker->fsync_duration.buckets[i]);
	add(&sample->barriers_ns, &worker->fsync_duration.sum_ns);
	add(&sample->fetched_bytes, &worker->fetched_bytes);
}

static void
fill(struct rates_sample *sample, const struct topics *topics, const struct board *const *boards)
{
	struct rates_partition *partition = sample->partitions;

	for (int32_t group = 0; group < topics->group_count; group++)
		add_worker(sample, boards[group]->worker);
	for (int32_t i = 0; i < topics->count; i++) {
		const struct topic *topic = &topics->list[i];

		for (int32_t k = 0; k < topic->partition_count; k++, partition++) {
			const struct board_partition *slot =
			    &boards[topics_group(topics, topic, k)]->slots[topics_slot(topics, topic, k)];

			add(&sample->produced_records, &slot->produced_records);
			add(&sample->produced_bytes, &slot->produced_bytes);
			partition->records = board_get(&slot->produced_records);
			partition->bytes = board_get(&slot->produced_bytes);
		}
	}
}

int
rates_take(struct rates *rates, const struct topics *topics, const struct board *const *boards, int64_t now_ns)
{
	struct rates_sample *latest = &rates->samples[rates->latest], *before = latest, *now;
	int next = 0;

	if (rates->latest == rates->older)	/* at first */
		rates->older = 1;
	while (next == rates->latest || next == rates->older)
		next++;
	now = &rates->samples[next];
	if (now->partitions == NULL)
		now->partitions = calloc((size_t)partition_count(topics) + 1, sizeof(*now->partitions));
	if (now->partitions == NULL)
		return -1;
	*now = (struct rates_sample){ .at_ns = now_ns, .partitions = now->partitions };
	fill(now, topics, boards);
	if (latest->at_ns != 0 && now_ns - latest->at_ns < RATES_MIN_MS * (int64_t)CLOCK_NS_PER_MS) {
		before = &rates->samples[rates->older];
	} else {
		rates->older = rates->latest;
		rates->latest = next;
	}
	rates->now = now;
	rates->before = before->at_ns == 0 || now_ns - before->at_ns > RATES_MAX_MS * (int64_t)CLOCK_NS_PER_MS ? NULL : before;
	return 0;
}

void
rates_free(struct rates *rates)
{
	for (int i = 0; i < 3; i++)
		free(rates->samples[i].partitions);
	memset(rates, 0, sizeof(*rates));
}

double
rates_per_second(const struct rates *rates, int64_t now, int64_t before)
{
	double seconds = (double)(rates->now->at_ns - rates->before->at_ns) / CLOCK_NS_PER_S;

	return now <= before || seconds <= 0 ? 0 : ((double)now - (double)before) / seconds;
}
