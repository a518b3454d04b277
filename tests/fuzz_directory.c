/*
 * libFuzzer: any files in a partition's directory, under names that mean something there, and a clean-stop marker beside it.
 * Recovery must end. What it opens has records from its start to its end, takes one more, and is the same at the next start in
 * either write mode, also without that one; what is read of it is right by its sums or told as broken.
 *
 *   bytes   byte: 1 = crc32c, 2 = mapped, 4 = in the other mode next time, 8 = read from the disk, 16 = a force has failed
 *           byte: the end that was published, when the next bit says so | byte: 1 = that, 2 = visibility durable,
 *           4 = nothing is appended
 *           then for each file a byte for its name, one for its offset or kind, uint16 length, and its content
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/record.h"
#include "tests/fuzz_files.h"
#include "tests/fuzz_target.h"
#include "worker/partition.h"
#include "worker/sealed_list.h"
#include "worker/segment.h"
#include "worker/stop_marker.h"

enum { HEAD_BYTES = 3, FILE_HEAD_BYTES = 4, FILES_MAX = 32, NAME_BYTES = 64 };
enum { CRC32C_BIT = 1, MAPPED_BIT = 2, OTHER_MODE_BIT = 4, FROM_DISK_BIT = 8, FAILED_BIT = 16, PUBLISHED_BIT = 1,
	DURABLE_BIT = 2, NO_APPEND_BIT = 4 };
enum { MODIFIED_S = 1000000000 };	/* every file, so that a marker can be right about it */

/* Beside the log's directory. */
static const char marker_name[] = "../worker-0.stopped";

static int root_fd = -1, log_fd;
static bool appends;

/* ---- files ---- */

/* Names that recovery looks for; the marker stands beside the directory. */
static int
name_file(uint8_t which, int64_t offset, char *name)
{
	static const char *const endings[] = { ".log", ".index", ".log.tmp", ".index.tmp", ".cut", ".cut.2", ".cut.tmp", ".LOG" };
	static const char *const others[] = { "sealed.list", "sealed.list.tmp", "foreign", marker_name };
	unsigned n = which % 12;

	if (n < 8)
		snprintf(name, NAME_BYTES, "%020lld%s", (long long)offset, endings[n]);
	else
		snprintf(name, NAME_BYTES, "%s", others[n - 8]);
	return openat(log_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* The offset's two highest bits make no file of it, or one with a hole behind its content. */
static void
put_file(const uint8_t *head, const uint8_t *content, size_t size)
{
	static const struct timespec times[2] = { { MODIFIED_S, 0 }, { MODIFIED_S, 0 } };
	char name[NAME_BYTES];
	int fd = name_file(head[0], head[1] & 63, name);

	if (fd == -1)
		return;
	require(write(fd, content, size) == (ssize_t)size);
	if ((head[1] & 192) == 64)
		require(ftruncate(fd, (off_t)size + 4096) == 0);
	futimens(fd, times);
	close(fd);
	if ((head[1] & 192) == 128 && unlinkat(log_fd, name, 0) == 0)
		require(mkdirat(log_fd, name, 0700) == 0);
	if ((head[1] & 192) == 192 && unlinkat(log_fd, name, 0) == 0)
		require(symlinkat("foreign", log_fd, name) == 0);
}

static void
put_files(const uint8_t *data, size_t size)
{
	for (int i = 0; i < FILES_MAX && size >= FILE_HEAD_BYTES; i++) {
		size_t bytes = (size_t)data[2] << 8 | data[3];

		if (bytes > size - FILE_HEAD_BYTES)
			bytes = size - FILE_HEAD_BYTES;
		put_file(data, data + FILE_HEAD_BYTES, bytes);
		data += FILE_HEAD_BYTES + bytes;
		size -= FILE_HEAD_BYTES + bytes;
	}
}

/* ---- the log ---- */

static void
load(struct partition *p, int64_t offset)
{
	struct partition_load *job = partition_load_begin(p, offset);

	if (job == NULL)
		return;
	partition_load_run(job);
	partition_load_finish(p, job);
}

/* A record that is found has a possible length. False when it is broken; *last: its file ends with it. */
static bool
read_record(struct partition *p, enum record_format format, int64_t offset, bool *last)
{
	struct partition_place place;
	struct slice slice;
	uint8_t header[8];
	size_t header_bytes = record_header_bytes(format), bytes;
	enum partition_found found = partition_find(p, offset, &place);

	if (found == PARTITION_COLD) {
		load(p, offset);
		found = partition_find(p, offset, &place);
	}
	if (found != PARTITION_FOUND)
		return false;
	require(place.bytes_in_segment > (int64_t)header_bytes && place.bytes_behind >= place.bytes_in_segment);
	partition_slice(&place, place.bytes_in_segment, &slice);
	require(pread(slice.segment->fd, header, header_bytes, slice.position) == (ssize_t)header_bytes);
	bytes = segment_record_bytes(format, header);
	require(bytes > header_bytes);
	*last = slice.position + (int64_t)bytes == segment_file_bytes(slice.segment->fd);
	slice_release(&slice);
	return true;
}

/* Does the list say that no offset below is free? */
static bool
is_noted(int64_t end)
{
	struct sealed_list list;
	bool noted;

	if (sealed_list_read(log_fd, &list, NULL) == -1)
		return end == 0;
	noted = sealed_list_end(&list) >= end;
	sealed_list_free(&list);
	return noted;
}

/*
 * A last segment of which nothing is left, and the one ahead of it does not end there: unless the list could take the numbers of
 * that one, a start that finds it so takes it for one that is not of this log, where the start that has cut it has gone on behind.
 */
static bool
is_doubtful(const struct partition_opened *opened, enum record_format format)
{
	struct partition *p = opened->partition;
	int64_t end = partition_log_end(p);
	struct partition_place place;
	bool last;

	if (opened->truncated_bytes == 0 || partition_find(p, end, &place) != PARTITION_FOUND || place.segment->base != end)
		return false;
	if (end == partition_log_start(p))
		return !is_noted(end);
	return !read_record(p, format, end - 1, &last) || !last;
}

/* One more record, if there is room for it without a roll. Returns how many there are more. */
static int64_t
append_one(struct partition *p, enum record_format format)
{
	uint8_t record[9];
	size_t bytes = (size_t)(record_put(record, format, (const uint8_t *)"x", 1) - record);
	struct partition_barrier barrier;
	int64_t end = partition_log_end(p);
	bool last;

	if (partition_failed(p) || partition_fit(p, (int64_t)bytes) != PARTITION_FITS ||
	    partition_append(p, record, bytes, 1) == -1)
		return 0;
	require(partition_log_end(p) == end + 1);
	partition_barrier_begin(p, &barrier);
	partition_barrier_run(&barrier);
	require(partition_barrier_finish(p, &barrier) == 0 && partition_durable_end(p) == end + 1);
	require(read_record(p, format, end, &last));
	return 1;
}

/* Returns the end that it has then, -1 when it stays closed, -2 when nobody knows what the next start makes of it. */
static int64_t
open_once(const struct partition_settings *settings, const struct partition_known *known, int64_t *start)
{
	struct partition_opened opened;
	int64_t end, first;
	bool last;

	partition_open(root_fd, "t-0", settings, known, &opened);
	if (opened.partition == NULL) {
		require(opened.why[0] != '\0' && memchr(opened.why, '\0', sizeof(opened.why)) != NULL);
		return -1;
	}
	*start = first = partition_log_start(opened.partition);
	end = partition_log_end(opened.partition);
	require(first >= 0 && end >= first && partition_durable_end(opened.partition) <= end);
	require(opened.why[0] != '\0' || end >= known->published_end || known->from_disk);
	for (int64_t offset = first; offset < partition_visible_end(opened.partition) && offset < first + 64; offset++)
		read_record(opened.partition, settings->record_format, offset, &last);
	if (is_doubtful(&opened, settings->record_format))
		end = -2;
	else if (appends)
		end += append_one(opened.partition, settings->record_format);
	partition_close(opened.partition);
	return end;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct partition_settings settings = { .segment_bytes = 4096, .index_interval_bytes = 64 };
	struct partition_known known = { .published_end = -1 };
	struct stop_marker marker;
	int64_t first, second, start = 0, next_start = 0;

	if (size < HEAD_BYTES)
		return 0;
	if (root_fd < 0)
		fuzz_files_prepare(&root_fd, &log_fd);
	settings.record_format = (data[0] & CRC32C_BIT) ? RECORD_CRC32C : RECORD_PLAIN;
	settings.mapped = (data[0] & MAPPED_BIT) != 0;
	settings.durable_only = (data[2] & DURABLE_BIT) != 0;
	known.from_disk = (data[0] & (FROM_DISK_BIT | FAILED_BIT)) != 0;
	known.failed = (data[0] & FAILED_BIT) != 0;
	if (data[2] & PUBLISHED_BIT)
		known.published_end = known.shown_end = data[1];
	appends = (data[2] & NO_APPEND_BIT) == 0;
	put_files(data + HEAD_BYTES, size - HEAD_BYTES);
	stop_marker_take(&marker, root_fd, 0, 1);
	known.stopped = stop_marker_find(&marker, "t-0");
	first = open_once(&settings, &known, &start);
	/* A marker of ours is right about a file that is still so; this one may lie. */
	if (first != -2 && known.stopped == NULL && known.published_end == -1 && !known.from_disk) {
		if (data[0] & OTHER_MODE_BIT)
			settings.mapped = !settings.mapped;
		second = open_once(&settings, &known, &next_start);
		/* Files that only the damaged part of a list told to be foreign are taken for the log's when it has been made anew. */
		require(first == -1 ? second == -1 : second >= first && second <= first + 1 && next_start <= start);
	}
	stop_marker_free(&marker);
	/* One that is no file has not been taken. */
	fuzz_files_remove(log_fd, marker_name);
	fuzz_files_empty(log_fd);
	return 0;
}
