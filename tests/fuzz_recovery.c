/*
 * libFuzzer: any bytes as the last segment of a log. Recovery must end, keep a valid prefix, and find the same again at
 * the next start; the first byte chooses format, neighbours, and the write modes of both starts.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "worker/partition.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int root_fd = -1;
static char root[256];

static void
require(bool holds)
{
	if (!holds)
		abort();
}

static void
remove_root(void)
{
	unlinkat(root_fd, "t-0", AT_REMOVEDIR);
	rmdir(root);
}

static void
prepare(void)
{
	const char *tmp = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : getenv("TMPDIR");

	snprintf(root, sizeof(root), "%.200s/fuzz-recovery-XXXXXX", tmp == NULL ? "/tmp" : tmp);
	require(mkdtemp(root) != NULL);
	root_fd = open(root, O_RDONLY | O_DIRECTORY);
	require(root_fd >= 0);
	log_open("fuzz", LOG_ERROR);
	atexit(remove_root);
}

static void
put_file(const char *name, const uint8_t *data, size_t size)
{
	int fd = openat(root_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	close(fd);
}

static void
remove_files(void)
{
	static const char *const names[] = { "t-0/00000000000000000000.log", "t-0/00000000000000000000.cut",
		"t-0/00000000000000000000.cut.2", "t-0/00000000000000000005.log" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlinkat(root_fd, names[i], 0);
}

static int64_t
open_once(const struct partition_settings *settings)
{
	struct partition_opened opened;
	int64_t end = -1;

	partition_open(root_fd, "t-0", settings, &(struct partition_known){ .published_end = -1 }, &opened);
	if (opened.partition != NULL) {
		end = partition_log_end(opened.partition);
		require(end >= partition_log_start(opened.partition));
		partition_close(opened.partition);
	}
	return end;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct partition_settings settings = { .segment_bytes = 4096, .index_interval_bytes = 64 };
	int64_t first;

	if (size == 0)
		return 0;
	if (root_fd < 0)
		prepare();
	settings.record_format = (data[0] & 1) ? RECORD_CRC32C : RECORD_PLAIN;
	settings.mapped = (data[0] & 4) != 0;
	mkdirat(root_fd, "t-0", 0700);
	put_file("t-0/00000000000000000000.log", data + 1, size - 1);
	if ((data[0] & 2) != 0)
		put_file("t-0/00000000000000000005.log", data, 0);
	first = open_once(&settings);
	if ((data[0] & 8) != 0)
		settings.mapped = !settings.mapped;
	require(open_once(&settings) == first);
	remove_files();
	return 0;
}
