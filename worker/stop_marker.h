/*
 * The clean-stop marker: where each log of a worker ended when the worker stopped with everything forced, so that its next
 * start need not read what may stand behind the ends nor force it again. A cache. It is taken at start: read, and removed
 * durably before any log is opened for writing. An entry is believed only while the active file has the same size and
 * time of modification, so that a marker which could not be removed, or came back with an old copy, does no harm.
 *
 *   <data_dir>/worker-<N>.stopped    magic | entries | sum         integers are big-endian
 *
 *   magic    8 bytes "lbstoppd" | int32 version 1 | int32 number of entries
 *   entry    uint16 length of the name | name of the partition's directory | int64 base of the active segment |
 *            int64 end offset | int64 end position | int64 bytes of the file | int64 its modification, ns since 1970
 *   sum      int32 CRC-32C of all of these
 */
#ifndef WORKER_STOP_MARKER_H
#define WORKER_STOP_MARKER_H

#include <stddef.h>
#include <stdint.h>

/* How the active segment was left. */
struct stop_state {
	int64_t base;
	int64_t end;
	int64_t position;
	int64_t file_bytes;
	int64_t modified_ns;
};

struct stop_entry {
	const char *name;		/* of the partition's directory */
	struct stop_state state;
};

struct stop_marker {
	struct stop_entry *entries;	/* by name */
	size_t count;
	char *names;
};

/*
 * Takes the marker of this worker: reads and removes it, and removes those of workers from `worker_count` on, which do not
 * exist any more; then forces the directory, if anything was removed. Always gives a marker, without entries when there
 * is none or it is not to be believed; what is wrong is logged. stop_marker_free.
 */
void stop_marker_take(struct stop_marker *marker, int data_fd, int worker, int worker_count);
void stop_marker_free(struct stop_marker *marker);

/* How that log was left; NULL: nobody knows. */
const struct stop_state *stop_marker_find(const struct stop_marker *marker, const char *name);

/* Leaves a marker. Entries in any order, names below 64 KiB. Returns 0, or -1 with errno and no marker. */
int stop_marker_leave(int data_fd, int worker, const struct stop_entry *entries, size_t count);

#endif
