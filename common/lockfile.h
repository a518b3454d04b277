/*
 * `<data_dir>/lock`, the file that says who works on a data directory. It is held by flock on one open file
 * description: the supervisor's, which its workers inherit, so that it lasts as long as any of them runs; or that of a
 * tool that changes the directory's files. What stands in the file (pids) is for people and for the message to whoever
 * comes second; it never decides.
 *
 *   the supervisor | worker 0 | worker 0 | worker 0 | worker 1 | ...      lines of 32 bytes: pid in digits, blanks, newline
 *
 * A worker has three, since so many of its processes can run at a time: the one that has the logs, the one that has
 * released them and finishes, and the next one. Each process writes one line, when it starts and may wait for a disk: a
 * loop never does. A line can be a dead one's, or a hole (zeros) when nobody has written it. A tool writes the first.
 */
#ifndef COMMON_LOCKFILE_H
#define COMMON_LOCKFILE_H

#include <stdbool.h>
#include <stddef.h>

enum { LOCKFILE_LINE_BYTES = 32, LOCKFILE_LINES_OF_WORKER = 3 };

/*
 * Opens the file; its path goes to `path`, of PATH_MAX bytes. With O_CREAT it gets mode 0640. Returns the descriptor,
 * or -1 with errno.
 */
int lockfile_open(const char *data_dir, int flags, char *path);

/* Is it locked by anybody? Leaves no trace but for a moment in which lockfile_lock would wait. -1 with errno. */
int lockfile_is_held(int fd);

/* Locks it, waiting a second at most. Returns 0, or -1 with errno, EWOULDBLOCK: somebody holds it. */
int lockfile_lock(int fd);

/* Is the open file a regular one, and still the one of that path? A lock on another is worthless. */
bool lockfile_is_named(int fd, const char *path);

/* Writes this process's pid into the first line: it is the supervisor, or a tool. Returns 0, or -1 with errno. */
int lockfile_sign(int fd);

/*
 * Writes this process's pid into one of worker `number`'s lines, not into that of one that still runs. No other process of
 * that worker may do so at the same time. Returns as above.
 */
int lockfile_sign_worker(int fd, int number);

/* Names those in the file that still run ("12 supervisor, 14 worker 0"); returns their number. */
int lockfile_holders(int fd, char *names, size_t size);

#endif
