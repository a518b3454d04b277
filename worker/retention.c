/* Retention, see retention.h. What waits for the disk is in the run function alone. */
#include "worker/retention.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "worker/index_file.h"
#include "worker/partition_state.h"
#include "worker/sealed_list.h"
#include "worker/syscalls.h"

enum { RETIRE_MAX = 256 };	/* files of one job, however quick the disk is */

struct partition_retire {
	int dir_fd;
	int64_t bases[RETIRE_MAX];	/* oldest first; one that was doomed again may stand anywhere */
	size_t count;
	size_t sealed_count;		/* segments that stay */
	int64_t log_start;		/* where the first of them begins, or the active one */
	struct segment *closing;	/* by next; each with its last reference */

	size_t done;		/* of them are unlinked, and the directory is forced behind each */
	int error;		/* errno of what came next; 0 = none */
	int note_error;		/* errno of noting it; 0 = none */
	bool force_failed;
};

/* ---- which ---- */

int64_t
partition_roll_due_ns(const struct partition *p)
{
	int64_t age_ms = p->settings.segment_age_ms;

	if (p->settings.retention_age_ms > 0 && (age_ms == 0 || p->settings.retention_age_ms < age_ms))
		age_ms = p->settings.retention_age_ms;
	if (age_ms == 0 || p->failed || p->active->bytes == 0)
		return INT64_MAX;
	return p->first_append_ns + age_ms * CLOCK_NS_PER_MS;
}

/* `bytes` are those of the log from this segment on. */
static bool
expired(const struct partition *p, const struct sealed *sealed, int64_t bytes, int64_t now_ns)
{
	const struct partition_settings *settings = &p->settings;

	if (settings->retention_bytes > 0 && bytes > settings->retention_bytes)
		return true;
	return settings->retention_age_ms > 0
	    && now_ns - sealed->last_append_ns > settings->retention_age_ms * CLOCK_NS_PER_MS;
}

/* ---- out of the log ---- */

/* Makes room for `more` further doomed ones. Returns 0, or -1 with errno ENOMEM. */
static int
reserve_doomed(struct partition *p, size_t more)
{
	size_t wanted = p->doomed_count + more;
	int64_t *grown;

	if (wanted <= p->doomed_capacity)
		return 0;
	if (wanted < p->doomed_capacity * 2)
		wanted = p->doomed_capacity * 2;
	grown = realloc(p->doomed, wanted * sizeof(*grown));
	if (grown == NULL)
		return -1;
	p->doomed = grown;
	p->doomed_capacity = wanted;
	return 0;
}

void
partition_linger(struct partition *p, struct segment *segment)
{
	segment->next = p->lingering;
	p->lingering = segment;
}

/* Leaves *segment to be closed by a job of p's if somebody reads it. */
static void
linger_if_shared(struct partition *p, struct segment **segment)
{
	if (*segment == NULL || !segment_is_shared(*segment))
		return;
	partition_linger(p, *segment);
	*segment = NULL;
}

void
partition_take_lingering(struct partition *p, struct partition *from)
{
	while (from->lingering != NULL) {
		struct segment *segment = from->lingering;

		from->lingering = segment->next;
		partition_linger(p, segment);
	}
	for (size_t i = 0; i < from->sealed_count; i++)
		linger_if_shared(p, &from->sealed[i].segment);
	linger_if_shared(p, &from->active);
}

static int
doom(struct partition *p, size_t count)
{
	if (reserve_doomed(p, count) == -1)
		return -1;
	for (size_t i = 0; i < count; i++) {
		struct sealed *sealed = &p->sealed[i];

		p->doomed[p->doomed_count++] = sealed->base;
		p->retired_bytes += sealed->bytes;
		if (sealed->segment != NULL) {
			partition_linger(p, sealed->segment);
			p->loaded_count--;
		}
	}
	p->sealed_count -= count;
	memmove(p->sealed, p->sealed + count, p->sealed_count * sizeof(*p->sealed));
	return 0;
}

void
partition_doom_again(struct partition *p, int64_t base)
{
	if (reserve_doomed(p, 1) == 0)
		p->doomed[p->doomed_count++] = base;
}

int64_t
partition_retire(struct partition *p, int64_t now_ns)
{
	int64_t bytes = partition_size_bytes(p);
	size_t count = 0;

	while (!p->failed && count < p->sealed_count && expired(p, &p->sealed[count], bytes, now_ns))
		bytes -= p->sealed[count++].bytes;
	if (count > 0 && doom(p, count) == -1)
		return -1;
	return (int64_t)count;
}

int
partition_retire_below(struct partition *p, int64_t log_start)
{
	size_t count = 0;

	while (count < p->sealed_count
	    && (count + 1 < p->sealed_count ? p->sealed[count + 1].base : p->active->base) <= log_start)
		count++;
	p->least_start = log_start < p->active->end ? log_start : p->active->end;
	return count > 0 ? doom(p, count) : 0;
}

static bool
may_unlink(const struct partition *p)
{
	return !p->failed && !p->unlinks_unsure;
}

bool
partition_retiring(const struct partition *p)
{
	return p->lingering != NULL || (p->doomed_count > 0 && may_unlink(p));
}

/* ---- off the disk ---- */

/* Takes those that nobody else has out of the lingering ones. */
static struct segment *
take_unused(struct partition *p)
{
	struct segment **at = &p->lingering;
	struct segment *unused = NULL;

	while (*at != NULL) {
		struct segment *segment = *at;

		if (segment_is_shared(segment)) {
			at = &segment->next;
			continue;
		}
		*at = segment->next;
		segment->next = unused;
		unused = segment;
	}
	return unused;
}

struct partition_retire *
partition_retire_begin(struct partition *p)
{
	struct partition_retire *retire = calloc(1, sizeof(*retire));

	if (retire == NULL)
		return NULL;
	retire->dir_fd = p->dir_fd;
	retire->sealed_count = p->sealed_count;
	retire->log_start = p->sealed_count > 0 ? p->sealed[0].base : p->active->base;
	retire->closing = take_unused(p);
	if (may_unlink(p))
		retire->count = p->doomed_count < RETIRE_MAX ? p->doomed_count : RETIRE_MAX;
	if (retire->count > 0)
		memcpy(retire->bases, p->doomed, retire->count * sizeof(retire->bases[0]));
	if (retire->count == 0 && retire->closing == NULL) {
		free(retire);
		return NULL;
	}
	return retire;
}

/*
 * Returns 0, or -1 with errno. One that is not there any more has been unlinked before. An index that cannot be removed is
 * left to the next start: no disk fills up for it.
 */
static int
unlink_one(struct partition_retire *retire, int dir_fd, int64_t base)
{
	char name[SEGMENT_NAME_BYTES];

	segment_name(name, base);
	index_file_remove(dir_fd, base);
	if (syscalls.unlink(dir_fd, name) == -1 && errno != ENOENT)
		return -1;
	if (syscalls.fsync(dir_fd) == 0)
		return 0;
	retire->force_failed = true;
	return -1;
}

/*
 * What is missing from the front of a log is then known to have been removed. Should that fail the next start may miss it; but
 * no disk fills up for a list.
 */
static void
note_start(struct partition_retire *retire, int dir_fd)
{
	if (sealed_list_note_start(dir_fd, retire->log_start) == -1)
		retire->note_error = errno;
	else
		sealed_list_trim(dir_fd, retire->sealed_count);
}

static int
unlink_all(struct partition_retire *retire)
{
	int64_t deadline_ns = clock_now_ns() + RETENTION_JOB_MS * (int64_t)CLOCK_NS_PER_MS;
	/* A descriptor of its own: the kernel tells a failed force once to each, and a roll that is under way must hear of it. */
	int dir_fd = syscalls.open(retire->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	int error = 0;

	if (dir_fd == -1)
		return -1;
	note_start(retire, dir_fd);
	while (error == 0 && retire->done < retire->count && (retire->done == 0 || clock_now_ns() < deadline_ns)) {
		if (unlink_one(retire, dir_fd, retire->bases[retire->done]) == -1)
			error = errno;
		else
			retire->done++;
	}
	close(dir_fd);
	errno = error;
	return error == 0 ? 0 : -1;
}

void
partition_retire_run(struct partition_retire *retire)
{
	while (retire->closing != NULL) {
		struct segment *segment = retire->closing;

		retire->closing = segment->next;
		segment_drop(segment);
	}
	if (retire->count > 0 && unlink_all(retire) == -1)
		retire->error = errno;
}

int
partition_retire_finish(struct partition *p, struct partition_retire *retire, bool *force_failed)
{
	int error = retire->error;

	p->doomed_count -= retire->done;
	if (retire->done > 0)
		memmove(p->doomed, p->doomed + retire->done, p->doomed_count * sizeof(*p->doomed));
	if (retire->force_failed)
		p->unlinks_unsure = true;
	*force_failed = retire->force_failed;
	partition_note_cache(p, SEALED_LIST_NAME, retire->note_error);
	free(retire);
	errno = error;
	return error == 0 ? 0 : -1;
}
