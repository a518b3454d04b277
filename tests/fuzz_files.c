#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "tests/fuzz_files.h"
#include "tests/fuzz_target.h"

static int made_root_fd, made_log_fd;
static char root[256];

void
fuzz_files_remove(int fd, const char *name)
{
	if (unlinkat(fd, name, 0) == -1 && errno == EISDIR)
		unlinkat(fd, name, AT_REMOVEDIR);
}

void
fuzz_files_empty(int fd)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fdopendir(copy);
	struct dirent *entry;

	require(directory != NULL);
	while ((entry = readdir(directory)) != NULL)
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			fuzz_files_remove(fd, entry->d_name);
	closedir(directory);
}

static void
remove_root(void)
{
	fuzz_files_empty(made_log_fd);
	fuzz_files_empty(made_root_fd);
	rmdir(root);
}

void
fuzz_files_prepare(int *root_fd, int *log_fd)
{
	const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");

	snprintf(root, sizeof(root), "%.200s/fuzz-XXXXXX", tmp == NULL ? "/tmp" : tmp);
	require(mkdtemp(root) != NULL);
	made_root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	require(made_root_fd >= 0 && mkdirat(made_root_fd, "t-0", 0700) == 0);
	made_log_fd = openat(made_root_fd, "t-0", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	require(made_log_fd >= 0);
	log_open("fuzz", (enum log_level)(LOG_ERROR - 1));
	atexit(remove_root);
	*root_fd = made_root_fd;
	*log_fd = made_log_fd;
}
