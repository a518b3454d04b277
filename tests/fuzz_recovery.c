/*
 * libFuzzer: any bytes as the last segment of a log. Recovery must end, keep a valid prefix, and find the same again at
 * the next start; the first byte chooses format, neighbours, and the write modes of both starts.
 */
#include <fcntl.h>
#include <unistd.h>

#include "tests/fuzz_files.h"
#include "tests/fuzz_target.h"
#include "worker/partition.h"

static int root_fd = -1, log_fd;

static void
put_file(const char *name, const uint8_t *data, size_t size)
{
	int fd = openat(log_fd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	require(fd >= 0 && write(fd, data, size) == (ssize_t)size);
	close(fd);
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
		fuzz_files_prepare(&root_fd, &log_fd);
	settings.record_format = (data[0] & 1) ? RECORD_CRC32C : RECORD_PLAIN;
	settings.mapped = (data[0] & 4) != 0;
	put_file("00000000000000000000.log", data + 1, size - 1);
	if ((data[0] & 2) != 0)
		put_file("00000000000000000005.log", data, 0);
	first = open_once(&settings);
	if ((data[0] & 8) != 0)
		settings.mapped = !settings.mapped;
	require(open_once(&settings) == first);
	fuzz_files_empty(log_fd);
	return 0;
}
