/* What a segment's bytes tell, see evidence.h. */
#include "worker/evidence.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "worker/direct.h"
#include "worker/scan.h"

enum { TORN_BYTES = 8 };

/*
 * A file's records as one format has them. `whole`: they lead to the end of what was written, behind which there is nothing,
 * or zeros in a file that was written through a mapping. `exact`: and their last byte is the last one that is not zero. `blank`:
 * the last one of them ends in zeros, so nobody knows whether it was written.
 */
struct reading {
	struct scan scan;
	bool whole, exact, blank;
};

static int
read_as(int fd, enum record_format format, int64_t file_bytes, struct reading *reading)
{
	int64_t content_end, end;
	uint8_t last;

	if (scan_records(fd, format, 0, file_bytes, NULL, &reading->scan) == -1)
		return -1;
	end = reading->scan.position;
	content_end = scan_content_end(fd, end, file_bytes);
	if (content_end == -1 || (end > 0 && direct_read(fd, &last, 1, end - 1) == -1))
		return -1;
	reading->whole = content_end == end;
	reading->blank = end > 0 && last == 0;
	reading->exact = end == file_bytes || (reading->whole && end > 0 && last != 0);
	return 0;
}

/*
 * Nothing but zeros follows, from a place on where a power cut may tear: a sector in the file, or eight bytes where somebody
 * was storing through a mapping meanwhile.
 */
static bool
ends_where_torn(const struct reading *reading, int64_t file_bytes)
{
	return reading->scan.position < file_bytes && reading->scan.position % TORN_BYTES == 0;
}

/*
 * In which format do a file's bytes make sense? A sum that fits the first record tells crc32c. A client can have made it
 * up: then the lengths of plain lead to the end of what was written, and the sums do not; if both do, nothing can be told.
 * Lengths that lead exactly to the end tell plain. A file that may be torn behind that needs two whole records, since a
 * single torn record in crc32c can read as one whole record in plain, and what is left of its last bytes as the length of a
 * second one, of zeros; and then no impossible length may follow. (A lone record in crc32c that is torn just so that it is
 * one of plain, four bytes before its end, is refused as well where no power cut can have torn it: a wrong record_format is a
 * slip of the pen, and refusing loses nothing.)
 */
int
evidence_of_file(int fd, int64_t file_bytes, bool sealed, enum evidence *evidence)
{
	enum record_verdict first;
	struct reading plain, summed = { 0 };
	bool exact;

	*evidence = EVIDENCE_NONE;
	if (file_bytes == -1 || read_as(fd, RECORD_PLAIN, file_bytes, &plain) == -1
	    || scan_first(fd, RECORD_CRC32C, file_bytes, &first) == -1)
		return -1;
	if (first == RECORD_VALID && plain.whole && read_as(fd, RECORD_CRC32C, file_bytes, &summed) == -1)
		return -1;
	if (first == RECORD_VALID && (!plain.whole || summed.whole)) {
		*evidence = plain.whole ? EVIDENCE_NONE : EVIDENCE_CRC32C;
		return 0;
	}
	if (plain.scan.records == 0 || (sealed ? !plain.exact : plain.scan.verdict == RECORD_IMPOSSIBLE))
		return 0;
	exact = plain.exact && !ends_where_torn(&plain, file_bytes);
	*evidence = exact || plain.scan.records - plain.blank > 1 ? EVIDENCE_PLAIN : EVIDENCE_DOUBT;
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

/*
 * Walks on over the lengths, whatever the records are. Returns 0 when they lead to `content_end`, behind which there is
 * nothing or zeros; or -1 with errno as segment_walk's.
 */
static int
walk_on(struct segment *walk, int64_t file_bytes, int64_t content_end)
{
	int error;

	index_init(&walk->index, INT64_MAX / 2);
	error = segment_walk(walk, file_bytes, INT64_MAX) == -1 ? errno : 0;
	index_free(&walk->index);
	errno = error;
	return error == 0 || (error == EBADMSG && walk->bytes >= content_end) ? 0 : -1;
}

/* Are the bytes behind the good records, or could they be, exactly the records up to `base`? */
static int
leads_to(const struct segment *last, int64_t file_bytes, int64_t base, bool *leads)
{
	struct segment walk = { .fd = last->fd, .format = last->format, .end = last->end, .bytes = last->bytes };
	int64_t missing = base - last->end;
	int64_t smallest = (int64_t)record_header_bytes(last->format) + 1;
	int64_t rest, content_end;

	content_end = scan_content_end(last->fd, last->bytes, file_bytes);
	if (content_end == -1)
		return -1;
	rest = content_end - last->bytes;
	if (missing <= 0 || rest == 0)
		return 0;
	if (walk_on(&walk, file_bytes, content_end) == 0)
		*leads = walk.end == base;
	else if (errno == EBADMSG)
		*leads = missing <= rest / smallest && missing >= (rest + RECORD_MAX_BYTES - 1) / RECORD_MAX_BYTES;
	else
		return -1;
	return 0;
}

int
evidence_follows(const struct segment *last, int64_t file_bytes, int64_t sealed_end, int64_t indexed_end, int64_t base,
    bool *follows)
{
	bool farther = sealed_end > last->end;

	*follows = base == (farther ? sealed_end : last->end) || base == indexed_end;
	if (*follows || farther || last->bytes == file_bytes)
		return 0;
	return leads_to(last, file_bytes, base, follows);
}
