/* Descriptors held back; see reserve.h. */
#include "supervisor/reserve.h"

#include <fcntl.h>
#include <unistd.h>

bool
reserve_fill(struct reserve *reserve)
{
	while (reserve->count < RESERVE_DESCRIPTORS) {
		int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);

		if (fd < 0)
			return false;
		reserve->descriptors[reserve->count++] = fd;
	}
	return true;
}

void
reserve_release(struct reserve *reserve)
{
	while (reserve->count > 0)
		close(reserve->descriptors[--reserve->count]);
}
