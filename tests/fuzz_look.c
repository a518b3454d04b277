/*
 * libFuzzer: any bytes as a segment. A look must end, believe the same records as the scan that recovery decides by, and
 * account for every byte and every record; the first byte chooses format and what stands behind the segment.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "client/look.h"
#include "tests/fuzz_target.h"
#include "worker/scan.h"

static int fd = -1;

static void
put(const uint8_t *data, size_t size)
{
	if (fd < 0)
		fd = memfd_create("fuzz", MFD_CLOEXEC);
	require(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum record_format format;
	struct look look, again;
	struct scan scan;
	int64_t next;

	if (size == 0)
		return 0;
	format = (data[0] & 1) ? RECORD_CRC32C : RECORD_PLAIN;
	next = (data[0] & 2) ? 100 + (data[0] >> 2) : -1;
	put(data + 1, size - 1);
	require(scan_records(fd, format, 100, (int64_t)size - 1, NULL, &scan) == 0);
	require(look_at(&look, fd, format, 100, next, NULL, NULL) == 0);
	require(look.prefix_bytes == scan.position && look.prefix_end == 100 + scan.records);
	require(look.bytes <= look.file_bytes && look.file_bytes == (int64_t)size - 1);
	require(look.prefix_bytes + look.torn_bytes <= look.file_bytes);
	/* Sealed, it has its records and no other byte, or there is something to tell. */
	if (next != -1)
		require((look.count == 0) == (look.bytes == look.file_bytes && look.records == next - 100));
	require(look_at(&again, fd, format, 100, next, NULL, NULL) == 0 && look_alike(&look, &again));
	return 0;
}
