/* libFuzzer: any bytes as broker.ini. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "supervisor/settings.h"
#include "tests/fuzz_target.h"

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("broker.ini", 0);
	FILE *errors = fopen("/dev/null", "w");
	struct settings settings;
	char path[64];

	require(fd >= 0 && errors != NULL && write(fd, data, size) == (ssize_t)size);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (settings_read(path, &settings, errors) == 0)
		settings_free(&settings);
	fclose(errors);
	close(fd);
	return 0;
}
