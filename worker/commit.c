#include "worker/commit.h"

void
commit_init(struct commit *commit, int64_t flush_interval_ns, int64_t flush_records, int64_t end)
{
	*commit = (struct commit){
		.flush_interval_ns = flush_interval_ns,
		.flush_records = flush_records,
		.written_end = end,
		.durable_end = end,
		.wanted_end = end,
	};
}

void
commit_written(struct commit *commit, int64_t end, bool wanted, int64_t now_ns)
{
	commit->written_end = end;
	if (wanted)
		commit->wanted_end = end;
	if (commit->oldest_ns == 0)
		commit->oldest_ns = now_ns;
	if (commit->running && commit->next_oldest_ns == 0)
		commit->next_oldest_ns = now_ns;
}

void
commit_written_durable(struct commit *commit, int64_t end)
{
	commit->written_end = end;
	commit->durable_end = end;
}

bool
commit_due(const struct commit *commit, int64_t now_ns)
{
	if (commit->running || commit->written_end == commit->durable_end)
		return false;
	if (commit->wanted_end > commit->durable_end)
		return true;
	if (commit->flush_records > 0 && commit->written_end - commit->durable_end >= commit->flush_records)
		return true;
	return now_ns >= commit_deadline_ns(commit);
}

int64_t
commit_deadline_ns(const struct commit *commit)
{
	if (commit->flush_interval_ns == 0 || commit->oldest_ns == 0 || commit->running)
		return INT64_MAX;
	return commit->oldest_ns + commit->flush_interval_ns;
}

void
commit_begun(struct commit *commit)
{
	commit->running = true;
	commit->running_end = commit->written_end;
	commit->next_oldest_ns = 0;
}

void
commit_ended(struct commit *commit, int64_t durable_end)
{
	commit->running = false;
	commit->durable_end = durable_end;
	/* A roll can fail before it has forced anything: what it should have covered is as old as it was. */
	if (durable_end >= commit->running_end)
		commit->oldest_ns = commit->next_oldest_ns;
	commit->next_oldest_ns = 0;
}
