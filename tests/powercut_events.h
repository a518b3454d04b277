/*
 * What a broker has asked of the kernel, one event after the other, as the recorder writes it down and the model reads it.
 * Owns the format; knows neither of them. The log never leaves the machine: integers are the machine's own.
 *
 *   log      event | event | ...            each appended with one write, so that processes and threads never mix
 *   event    struct powercut_event | its data, `bytes` of them | zeros up to a multiple of 8
 *
 * Files are named by their inode: on tmpfs one is never used again. An event stands behind what it tells of: a write or a
 * name when the call has returned. But FORCE stands ahead of its call and FORCED behind it, and SEND, PUBLISH and DURABLE
 * ahead of theirs: what they promise counts from the moment at which somebody could have seen it.
 */
#ifndef TESTS_POWERCUT_EVENTS_H
#define TESTS_POWERCUT_EVENTS_H

#include <stddef.h>
#include <stdint.h>

enum powercut_kind {
	POWERCUT_START = 1,	/* a process begins; file: the directory below which all is recorded */
	POWERCUT_CREATE,	/* file, directory; data: its name */
	POWERCUT_DIRECTORY,	/* the same of a directory */
	POWERCUT_RENAME,	/* within directory; data: the old name and the new one, each with its zero */
	POWERCUT_UNLINK,	/* directory; data: the name */
	POWERCUT_WRITE,		/* file, position; data: the bytes */
	POWERCUT_STORE,		/* the same, through a mapping */
	POWERCUT_RESIZE,	/* file; position: its new size */
	POWERCUT_ZERO,		/* file, position, count: bytes that are a hole from now on */
	POWERCUT_FORCE,		/* file (or directory), by thread: begins */
	POWERCUT_FORCED,	/* and has ended well, */
	POWERCUT_UNFORCED,	/* or has failed: the bytes are on the disk or are not, and no later force changes that */
	POWERCUT_SEND,		/* process, position: descriptor; data: all that may leave now */
	POWERCUT_SENT,		/* process, position: descriptor, count: bytes of it that have left */
	POWERCUT_PUBLISH,	/* position: offset up to which others read from now on */
	POWERCUT_DURABLE,	/* position: offset up to which the broker says that a power cut takes nothing */
	POWERCUT_KINDS
};

enum { POWERCUT_NAME_BYTES = 48 };	/* the longest name, with its zero */

struct powercut_event {
	uint32_t kind;
	uint32_t bytes;
	int32_t process;
	int32_t thread;
	uint64_t file;
	uint64_t directory;
	int64_t position;
	int64_t count;
	uint8_t data[];
};

/* Bytes of the event in the log. */
size_t powercut_event_bytes(const struct powercut_event *event);

/* A log in memory, which the caller of _read frees. */
struct powercut_log {
	uint8_t *memory;
	size_t bytes;
	const struct powercut_event **events;
	size_t count;
};

/* Finds the events in `bytes` bytes of memory, which the log takes over. Returns 0, or -1: it is not made of whole events. */
int powercut_log_take(struct powercut_log *log, uint8_t *memory, size_t bytes);
/* Reads a file. Returns 0, or -1 with errno (EBADMSG: it is not made of whole events). */
int powercut_log_read(struct powercut_log *log, const char *path);
void powercut_log_free(struct powercut_log *log);

/* One line that tells what it is, for people; valid until the next call. */
const char *powercut_event_text(const struct powercut_event *event);

#endif
