/* Putting in order what was inherited; see process.h. */
#include "supervisor/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	/* Standard descriptors, event loop, lock, listening sockets, the reserve, a few HTTP clients. */
	DESCRIPTORS_OF_PROCESS = 32,
	DESCRIPTORS_PER_WORKER = 3,	/* the supervisor's: both ends of the channel, board */
	DESCRIPTORS_PER_PARTITION = 2,	/* the worker's: directory and active segment */
	SEALED_PER_PARTITION = 16,	/* the worker's, as long as there are some to spare: sealed segments that are read */
};

void
process_reset_signals(void)
{
	sigset_t none;

	for (int number = 1; number < NSIG; number++)
		signal(number, SIG_DFL);	/* refused for SIGKILL, SIGSTOP and libc's own, which is right */
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

void
process_close_from(int first)
{
	close_range((unsigned)first, ~0U, 0);
}

int
process_open_standard_descriptors(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
		if (fd < 0)
			return -1;
	} while (fd <= STDERR_FILENO);
	close(fd);
	return 0;
}

int64_t
process_raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return 1024;
	if (limit.rlim_cur < limit.rlim_max) {
		struct rlimit raised = { limit.rlim_max, limit.rlim_max };

		if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
			limit = raised;
	}
	return limit.rlim_cur > INT32_MAX ? INT32_MAX : (int64_t)limit.rlim_cur;
}

int64_t
process_descriptors_kept(int32_t workers, int32_t largest_group)
{
	return DESCRIPTORS_OF_PROCESS + (int64_t)DESCRIPTORS_PER_WORKER * workers +
	    (int64_t)DESCRIPTORS_PER_PARTITION * largest_group;
}

int64_t
process_connections_allowed(int64_t descriptor_limit, int32_t workers, int32_t largest_group)
{
	int64_t left = descriptor_limit - process_descriptors_kept(workers, largest_group);
	int64_t sealed = (int64_t)SEALED_PER_PARTITION * largest_group;

	/* A segment that cannot be opened is tried again, so these take no more than half. */
	return (left - (sealed < left / 2 ? sealed : left / 2)) / 2;
}
