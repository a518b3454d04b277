/* fork and exec of a worker; see spawn.h. */
#include "supervisor/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/message.h"
#include "supervisor/process.h"

enum {
	HANDED = 3,		/* channel, board, lock */
	FIRST_FREE = MESSAGE_LOCK_FD + 1,
	EXIT_NO_EXEC = 127,
};

int
spawn_find_program(const char *libexec_dir, char *path, size_t size)
{
	static const char name[] = "logworker";
	ssize_t n = readlink("/proc/self/exe", path, size);
	char *slash;

	if (n > 0 && (size_t)n < size) {
		path[n] = '\0';
		slash = strrchr(path, '/');
		if (slash != NULL && (size_t)(slash + 1 - path) + sizeof(name) <= size) {
			memcpy(slash + 1, name, sizeof(name));
			if (access(path, X_OK) == 0)
				return 0;
		}
	}
	snprintf(path, size, "%s/%s", libexec_dir, name);
	return access(path, X_OK);
}

/* Closes everything from 3 on but the given descriptors: their numbers may stand in one another's way. */
static void
close_others(const int *kept)
{
	int sorted[HANDED];
	unsigned from = STDERR_FILENO + 1;

	memcpy(sorted, kept, sizeof(sorted));
	for (int i = 1; i < HANDED; i++)
		for (int k = i; k > 0 && sorted[k] < sorted[k - 1]; k--) {
			int swapped = sorted[k];

			sorted[k] = sorted[k - 1];
			sorted[k - 1] = swapped;
		}
	for (int i = 0; i < HANDED; i++) {
		if ((unsigned)sorted[i] > from)
			close_range(from, (unsigned)sorted[i] - 1, 0);
		from = (unsigned)sorted[i] + 1;
	}
	close_range(from, ~0U, 0);
}

static int
arrange_descriptors(const int *handed)
{
	static const int places[HANDED] = { MESSAGE_CHANNEL_FD, MESSAGE_BOARD_FD, MESSAGE_LOCK_FD };
	int moved[HANDED];
	int null;

	close_others(handed);
	for (int i = 0; i < HANDED; i++) {
		moved[i] = fcntl(handed[i], F_DUPFD, FIRST_FREE);
		if (moved[i] < 0)
			return -1;
	}
	for (int i = 0; i < HANDED; i++)
		if (dup2(moved[i], places[i]) < 0)
			return -1;
	close_range(FIRST_FREE, ~0U, 0);
	null = open("/dev/null", O_RDWR);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0)
		return -1;
	close_range(FIRST_FREE, ~0U, 0);
	return 0;
}

static _Noreturn void
become_worker(const char *program, const int *handed)
{
	char name[] = "logworker";
	char *const arguments[] = { name, NULL };

	if (arrange_descriptors(handed) == 0) {
		/* Signals have been blocked up to here: none of them may run a handler of the supervisor's. */
		process_reset_signals();
		execv(program, arguments);
	}
	log_error("cannot start %s: %s", program, strerror(errno));
	_exit(EXIT_NO_EXEC);
}

pid_t
spawn_worker(const char *program, int channel, int board, int lock)
{
	const int handed[HANDED] = { channel, board, lock };
	sigset_t all, before;
	pid_t pid;
	int error;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	pid = fork();
	if (pid == 0)
		become_worker(program, handed);
	error = errno;
	sigprocmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return pid;
}
