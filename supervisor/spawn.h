/*
 * A new process for a worker: fork and exec of the binary that is on disk now, on fixed descriptors, with everything
 * else closed and no signal setting inherited. Knows neither channels nor messages, only descriptors.
 */
#ifndef SUPERVISOR_SPAWN_H
#define SUPERVISOR_SPAWN_H

#include <stddef.h>
#include <sys/types.h>

/*
 * The worker's program: "logworker" beside this one (a build tree), else in `libexec_dir`. Writes its path; returns
 * 0, or -1 with errno when neither can be executed (then the path is the second place).
 */
int spawn_find_program(const char *libexec_dir, char *path, size_t size);

/*
 * Starts `program`. The three descriptors become MESSAGE_CHANNEL_FD, MESSAGE_BOARD_FD and MESSAGE_LOCK_FD there, 0 is
 * /dev/null, 1 and 2 are this process's; they stay the caller's here. Returns the pid, or -1 with errno. A failing
 * exec is a line on stderr and exit status 127.
 */
pid_t spawn_worker(const char *program, int channel, int board, int lock);

#endif
