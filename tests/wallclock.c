/*
 * Preloaded into a broker under test: its wall clock is off by as many seconds as the file named by WALLCLOCK_FILE says (an int64_t,
 * which a test changes while the broker runs). CLOCK_MONOTONIC is what it is, as when somebody sets a machine's clock.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *off_by;

__attribute__((constructor)) static void
begin(void)
{
	const char *path = getenv("WALLCLOCK_FILE");
	int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
	void *at;

	if (fd < 0)
		return;
	at = mmap(NULL, sizeof(*off_by), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (at != MAP_FAILED)
		off_by = at;
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int done = (int)syscall(SYS_clock_gettime, clock, now);

	if (done == 0 && off_by != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *off_by;
	return done;
}

time_t
time(time_t *to)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (to != NULL)
		*to = now.tv_sec;
	return now.tv_sec;
}
