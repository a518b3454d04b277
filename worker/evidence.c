/* What a segment's bytes tell, see evidence.h. */
#include "worker/evidence.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "worker/scan.h"

/*
 * In which format do a file's bytes make sense? A sum that fits the first record tells crc32c (unless a client has
 * made it up: then the lengths of plain lead exactly to the end, and the sums do not). Lengths that lead exactly to
 * the end of a file tell plain. A file that may be torn behind that needs two whole records, since a single torn record in
 * crc32c can read as one whole record in plain; and then no impossible length may follow. (A lone record in crc32c that is
 * torn just so that it is one of plain, four bytes before its end, is refused as well: a power cut tears at sectors, a
 * wrong record_format is a slip of the pen, and refusing loses nothing.)
 */
int
evidence_of_file(int fd, int64_t file_bytes, bool sealed, enum evidence *evidence)
{
	enum record_verdict first;
	struct scan plain, summed = { 0 };
	bool exact, possible;

	*evidence = EVIDENCE_NONE;
	if (scan_records(fd, RECORD_PLAIN, 0, file_bytes, NULL, &plain) == -1
	    || scan_first(fd, RECORD_CRC32C, file_bytes, &first) == -1)
		return -1;
	exact = plain.position == file_bytes;
	possible = sealed ? exact : plain.verdict != RECORD_IMPOSSIBLE;
	if (first == RECORD_VALID && exact
	    && scan_records(fd, RECORD_CRC32C, 0, file_bytes, NULL, &summed) == -1)
		return -1;
	if (first == RECORD_VALID && (!exact || summed.position == file_bytes))
		*evidence = EVIDENCE_CRC32C;
	else if (possible && plain.records > 0)
		*evidence = sealed || exact || plain.records > 1 ? EVIDENCE_PLAIN : EVIDENCE_DOUBT;
	return 0;
}

enum evidence
evidence_of_sealed(int dir_fd, int64_t base)
{
	enum evidence evidence = EVIDENCE_NONE;
	int fd = segment_open_file(dir_fd, base, O_RDONLY);

	if (fd == -1)
		return EVIDENCE_NONE;
	if (evidence_of_file(fd, segment_file_bytes(fd), true, &evidence) == -1)
		evidence = EVIDENCE_NONE;
	close(fd);
	return evidence;
}

int
evidence_is_seal(const struct segment *segment, int64_t file_bytes, int64_t base, bool *is)
{
	struct segment walk = { .fd = segment->fd, .format = segment->format, .end = segment->end,
		.bytes = segment->bytes };
	int64_t missing = base - segment->end;
	int64_t smallest = (int64_t)record_header_bytes(segment->format) + 1;
	int64_t rest, content_end;
	int error;

	*is = false;
	content_end = scan_content_end(segment->fd, segment->bytes, file_bytes);
	if (content_end == -1)
		return -1;
	rest = content_end - segment->bytes;
	if (missing <= 0 || rest == 0)
		return 0;
	index_init(&walk.index, INT64_MAX / 2);
	error = segment_walk(&walk, file_bytes, INT64_MAX) == -1 ? errno : 0;
	index_free(&walk.index);
	if (error == 0)
		*is = walk.end == base;
	else if (error == EBADMSG)
		*is = missing <= rest / smallest && missing >= (rest + RECORD_MAX_BYTES - 1) / RECORD_MAX_BYTES;
	errno = error;
	return error == 0 || error == EBADMSG ? 0 : -1;
}
