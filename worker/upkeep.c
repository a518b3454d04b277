/*
 * Upkeep of the active segment: what must be done for it now and then and may wait for the disk. Write-back of what was
 * appended is begun early, so that barriers find little left to do and the kernel's limit of dirty pages, at which a
 * write would wait in the loop, stays far away.
 */
#include <errno.h>
#include <fcntl.h>

#include "worker/partition_state.h"
#include "worker/syscalls.h"

enum {
	WRITE_BACK_BYTES = 8 * 1024 * 1024,	/* so much is put on its way at once */
	/* Of what is given to the disk. The page at the end is still being filled, and would have to be written twice. */
	WRITE_BACK_UNIT_BYTES = 4096,
};

/* What a barrier has forced needs no write-back any more: where barriers are frequent there is none. */
static void
plan_write_back(const struct partition *p, struct partition_upkeep *upkeep)
{
	int64_t from = p->write_back_position > p->durable_position ? p->write_back_position : p->durable_position;
	int64_t to = p->active->bytes - p->active->bytes % WRITE_BACK_UNIT_BYTES;

	if (to - from < WRITE_BACK_BYTES)
		return;
	upkeep->write_back_position = from;
	upkeep->write_back_bytes = to - from;
}

bool
partition_upkeep_begin(struct partition *p, int64_t room_bytes, int64_t now_ns, struct partition_upkeep *upkeep)
{
	(void)room_bytes;
	(void)now_ns;
	*upkeep = (struct partition_upkeep){ 0 };
	if (p->failed)
		return false;
	plan_write_back(p, upkeep);
	if (upkeep->write_back_bytes == 0)
		return false;
	segment_hold(p->active);
	upkeep->segment = p->active;
	return true;
}

/*
 * SYNC_FILE_RANGE_WRITE alone begins write-back. Its other flags wait for its end and take the note of a failure that
 * the kernel keeps for the next force: that one would succeed then, with bytes missing on the disk.
 */
void
partition_upkeep_run(struct partition_upkeep *upkeep)
{
	if (upkeep->write_back_bytes > 0 && syscalls.sync_file_range(upkeep->segment->fd, upkeep->write_back_position,
	    upkeep->write_back_bytes, SYNC_FILE_RANGE_WRITE) == -1)
		upkeep->write_back_error = errno;
}

/* A file system that has no such call, or a kernel without memory for it: then the barrier does it all. */
static bool
harmless(int error)
{
	return error == 0 || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL || error == ESPIPE ||
	    error == EPERM || error == EINTR || error == EAGAIN || error == ENOMEM;
}

int
partition_upkeep_finish(struct partition *p, struct partition_upkeep *upkeep)
{
	int error = upkeep->write_back_error;

	p->write_back_position = upkeep->write_back_position + upkeep->write_back_bytes;
	segment_drop(upkeep->segment);
	upkeep->segment = NULL;
	/* Nobody promises that the next force would tell of these pages again. */
	if (!harmless(error)) {
		errno = error;
		partition_fail(p);
	}
	if (!p->failed)
		return 0;
	errno = harmless(error) ? EIO : error;
	return -1;
}
