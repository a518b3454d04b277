/*
 * The list of a partition's sealed segments, so that start-up opens none of them and still sees what is missing or has
 * another size. A cache: the directory tells what is there, the list what was. It grows by an entry for each segment that
 * is sealed, written behind the force of the next one's name and not forced itself; it is rewritten when most of it has
 * become stale, or when it is found damaged. An entry is overtaken by a later one that lies below its end.
 *
 * What it knows and the directory does not have is damage, unless retention has noted that it removes it. That note is
 * forced ahead of the removal: also after a power cut nobody takes for damage what retention has done.
 *
 *   sealed.list    header | entry | entry | ...                  integers are big-endian
 *
 *   header   8 bytes "lbsealed" | int32 version 1 | int32 sum of these
 *   entry    int64 base | int64 end offset | int64 bytes | int64 last append, ms | int32 sum of these
 *
 * An entry whose end is its base and which has no bytes is no segment: retention has removed what lies below it, or a start
 * that had no list has found the log to begin there.
 * The sums are CRC-32C.
 *
 * Any threads may write to it at once; a start reads it while nobody does.
 */
#ifndef WORKER_SEALED_LIST_H
#define WORKER_SEALED_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SEALED_LIST_NAME "sealed.list"
#define SEALED_LIST_TEMPORARY_NAME "sealed.list.tmp"

struct sealed_entry {
	int64_t base;
	int64_t end;
	int64_t bytes;
	int64_t last_append_ms;		/* by the wall clock */
};

struct sealed_list {
	struct sealed_entry *entries;	/* by base, none overlaps another */
	size_t count;
	size_t capacity;
	int64_t log_start;	/* the highest one that retention has noted; 0 = none */
	size_t in_file;		/* entries in the file, stale ones too */
};

/*
 * Reads the longest valid prefix. Returns 0; or -1 with errno and nothing to free: ENOENT; EBADMSG, it is no such list;
 * ENOMEM, or the calls'. `stray_bytes` (may be NULL): what stands behind the valid prefix; it hides what is appended.
 */
int sealed_list_read(int dir_fd, struct sealed_list *list, int64_t *stray_bytes);
void sealed_list_free(struct sealed_list *list);

/* Are most of so many entries in a file of no use when there are `sealed` segments? */
static inline bool
sealed_list_stale(size_t in_file, size_t sealed)
{
	return in_file > 2 * sealed + 64;
}

/* Can a segment have these numbers? The file takes no others. */
bool sealed_list_plausible(const struct sealed_entry *entry);

/* Where the last one ends, or what retention has removed: no offset below it is free. 0: the list tells nothing. */
int64_t sealed_list_end(const struct sealed_list *list);

/* The entry of that base, or NULL. */
const struct sealed_entry *sealed_list_find(const struct sealed_list *list, int64_t base);

/* The entry with base < offset < end, or NULL. */
const struct sealed_entry *sealed_list_inside(const struct sealed_list *list, int64_t offset);

/* Is the entry's segment one that retention has noted to remove? */
static inline bool
sealed_list_retired(const struct sealed_list *list, const struct sealed_entry *entry)
{
	return entry->base < list->log_start;
}

/*
 * What stands behind the valid prefix may hide notes of retention: then nothing is missed of what lies ahead of `first`, the
 * first segment that is there. A part of an entry hides none: it has never been written whole.
 */
void sealed_list_allow_for(struct sealed_list *list, int64_t stray_bytes, int64_t first);

/* Was that segment sealed, as it is? Then there was one behind it. */
bool sealed_list_holds(const struct sealed_list *list, int64_t base, int64_t end, int64_t bytes);

/* Adds to the list in memory what is newer than all of it. Returns 0, or -1 with errno ENOMEM. */
int sealed_list_add(struct sealed_list *list, const struct sealed_entry *entry);

/* Adds entries to the file; begins one where there is none. Returns 0, or -1 with errno. */
int sealed_list_append(int dir_fd, const struct sealed_entry *entries, size_t count);

/*
 * Notes, ahead of their removal, that the segments below `log_start` are retired, and forces that. A list to which that
 * cannot be added is removed, since it would miss them. Returns 0, or -1 with errno: not even that could be done.
 */
int sealed_list_note_start(int dir_fd, int64_t log_start);

/* Writes the file anew without what is stale in it, if that is most of it: there are `sealed` segments. Returns 0, or -1
 * with errno and the old file. An entry that is added at the same moment can be lost: then the next start finds out. */
int sealed_list_trim(int dir_fd, size_t sealed);

/* Writes the file anew: what the list has at or above its log start. Returns 0, or -1 with errno and the old file. */
int sealed_list_write(int dir_fd, const struct sealed_list *list);

#endif
