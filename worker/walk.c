/* Reading segment files past their damage. */
#include "worker/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "worker/scan.h"
#include "worker/segment.h"

enum {
	BLOCK_BYTES = 4096,		/* a disk refuses this much or more */
	SMALLEST_BYTES = RECORD_HEADER_MAX_BYTES + 1,	/* of a record in crc32c */
	FOLLOWED_MAX = 16,		/* damaged payloads one behind the other */
};

/*
 * In bytes that are no records, lengths that a record can have stand everywhere, and each calls for a sum. From the
 * first limit on a place must also be followed by a length that a record can have; at the second the search ends.
 */
static const int64_t SUMMED_FREELY_BYTES = (int64_t)1 << 30;
static const int64_t SUMMED_MAX_BYTES = (int64_t)1 << 34;

int
walk_open(struct walk *walk, int fd, enum record_format format, int64_t position, int64_t file_bytes)
{
	*walk = (struct walk){ .format = format, .file_bytes = file_bytes, .position = position };
	if (piece_init(&walk->piece, fd, file_bytes) == -1)
		return -1;
	piece_move(&walk->piece, position);
	return 0;
}

void
walk_close(struct walk *walk)
{
	piece_free(&walk->piece);
}

/* ---- reading ---- */

/* Reading the piece full from `position` on has failed: how far can it be read? */
static int64_t
readable_end(const struct piece *piece, int64_t position)
{
	uint8_t block[BLOCK_BYTES];
	int64_t at = position + (int64_t)piece_left(piece, position), end = position + (int64_t)piece->capacity;

	while (at < end) {
		ssize_t n = segment_read(piece->fd, block, (size_t)(BLOCK_BYTES - at % BLOCK_BYTES), at);

		if (n <= 0)
			break;
		at += n;
	}
	return at;
}

/*
 * The piece's file ends, for now, where the disk refuses; when it refuses what it has just given, at what is in
 * memory.
 */
static void
note_refusal(struct walk *walk, int64_t position, int error)
{
	struct piece *piece = &walk->piece;

	if (walk->refused == 0)
		piece->file_bytes = readable_end(piece, position);
	else
		piece->file_bytes = position + (int64_t)piece_left(piece, position);
	walk->refused = error;
}

static void
forget_refusal(struct walk *walk)
{
	walk->refused = 0;
	walk->piece.file_bytes = walk->file_bytes;
}

/* To any position: what is in memory is used if it can be. */
static void
go_to(struct walk *walk, int64_t position)
{
	struct piece *piece = &walk->piece;

	if (position < piece->position || position > piece->position + (int64_t)piece->filled)
		piece_move(piece, position);
}

static int
fill(struct walk *walk, int64_t position, size_t wanted)
{
	while (piece_fill(&walk->piece, position, wanted) == -1) {
		if (errno == ENOMEM)
			return -1;
		note_refusal(walk, position, errno);
	}
	return 0;
}

/* The verdict on what stands at `position`. */
static int
judge(struct walk *walk, int64_t position, enum record_verdict *verdict, size_t *bytes)
{
	go_to(walk, position);
	while (piece_judge(&walk->piece, walk->format, position, verdict, bytes) == -1) {
		if (errno == ENOMEM)
			return -1;
		note_refusal(walk, position, errno);
	}
	if (walk->refused == 0)
		walk->file_bytes = walk->piece.file_bytes;
	return 0;
}

/* ---- searching ---- */

struct search {
	int64_t at;
	int64_t leap_bytes;	/* over what the disk refuses */
	int64_t summed_bytes;
};

/* Can a record have the length at p? */
static bool
possible_length(const uint8_t *p)
{
	return segment_record_bytes(RECORD_CRC32C, p) != 0;
}

/* How many of the bytes at the beginning are zeros? */
static size_t
zeros(const uint8_t *p, size_t size)
{
	size_t n = 0;

	while (n < size && p[n] == 0)
		n++;
	return n;
}

/*
 * Moves on within the piece to the next place with a possible length, and room for the smallest record behind it.
 * False: the piece has no more; search->at is where its next one must begin.
 */
static bool
next_in_piece(struct walk *walk, struct search *search)
{
	const uint8_t *p = piece_at(&walk->piece, search->at);
	size_t left = piece_left(&walk->piece, search->at), i = 0;

	while (i + SMALLEST_BYTES <= left) {
		size_t run = p[i] == 0 ? zeros(p + i, left - i) : 0;

		if (run >= 4) {
			i += run - 3;	/* a length word ends with a byte that is not zero */
		} else if (possible_length(p + i)) {
			search->at += (int64_t)i;
			return true;
		} else {
			i++;
		}
	}
	search->at += (int64_t)i;
	return false;
}

/* Only zeros are left in the piece: behind it there may be a hole full of them. */
static void
skip_hole(struct walk *walk, struct search *search)
{
	struct piece *piece = &walk->piece;
	int64_t end = piece->position + (int64_t)piece->filled;
	size_t left = piece_left(piece, search->at);
	int64_t data;

	if (zeros(piece_at(piece, search->at), left) < left)
		return;
	data = segment_behind_hole(piece->fd, end, piece->file_bytes);
	if (data - 3 <= end)
		return;
	search->at = data - 3;
	piece_move(piece, search->at);
}

/* The piece has been searched: where to go on. False: nowhere, the file has ended. */
static bool
next_piece(struct walk *walk, struct search *search)
{
	struct piece *piece = &walk->piece;

	if (search->at + SMALLEST_BYTES <= piece->file_bytes) {
		skip_hole(walk, search);
		return true;
	}
	if (walk->refused == 0)
		return false;
	/* Over what cannot be read, in ever longer leaps: each refusal can take a disk seconds. */
	search->at = piece->file_bytes - piece->file_bytes % BLOCK_BYTES + search->leap_bytes;
	if (search->leap_bytes < PIECE_BYTES)
		search->leap_bytes *= 2;
	if (search->at >= walk->file_bytes)
		return false;
	forget_refusal(walk);
	piece_move(piece, search->at);
	return true;
}

/* Is the place behind a record one where another can begin, or the file's end? */
static bool
may_go_on(const struct piece *piece, int64_t position)
{
	return position == piece->file_bytes
	    || (piece_left(piece, position) >= 4 && possible_length(piece_at(piece, position)));
}

/* Does a whole valid record begin at search->at, where a possible length stands? */
static int
check_candidate(struct walk *walk, struct search *search, bool *valid)
{
	struct piece *piece = &walk->piece;
	size_t bytes = segment_record_bytes(RECORD_CRC32C, piece_at(piece, search->at));
	int64_t behind = search->at + (int64_t)bytes;

	*valid = false;
	if (behind > piece->file_bytes)
		return 0;
	/* Twice as much, so that not every further candidate moves all of it. */
	if (bytes > piece->capacity / 2 && piece_reserve(piece, 2 * bytes) == -1)
		return -1;
	if (fill(walk, search->at, bytes + 4) == -1)
		return -1;
	if (behind > piece->file_bytes
	    || (search->summed_bytes > SUMMED_FREELY_BYTES && !may_go_on(piece, behind)))
		return 0;
	search->summed_bytes += (int64_t)bytes;
	*valid = record_check(RECORD_CRC32C, piece_at(piece, search->at), piece_left(piece, search->at), &bytes)
	    == RECORD_VALID;
	return 0;
}

/* Stores the position of the first valid record from `from` on in *found; -1 when there is none. */
static int
search_record(struct walk *walk, int64_t from, int64_t *found)
{
	struct search search = { .at = from, .leap_bytes = BLOCK_BYTES };
	bool valid = false;

	*found = -1;
	if (walk->refused != 0 && from > walk->piece.file_bytes)
		search.at = walk->piece.file_bytes;
	go_to(walk, search.at);
	do {
		if (fill(walk, search.at, SMALLEST_BYTES) == -1)
			return -1;
		while (next_in_piece(walk, &search)) {
			if (check_candidate(walk, &search, &valid) == -1)
				return -1;
			if (valid) {
				*found = search.at;
				return 0;
			}
			if (search.summed_bytes > SUMMED_MAX_BYTES)
				return 0;
			search.at++;
		}
	} while (next_piece(walk, &search));
	return 0;
}

/* ---- steps ---- */

/*
 * Do the bytes from `position` to `end` hold a payload that fits the sum in its header, so that only the length in it
 * is wrong? What cannot be read does not. Returns 0, or -1 with errno ENOMEM.
 */
static int
check_sum(struct walk *walk, int64_t position, int64_t end, bool *fits)
{
	size_t header = record_header_bytes(RECORD_CRC32C), size = (size_t)(end - position);
	uint8_t *bytes;

	*fits = false;
	if (walk->format != RECORD_CRC32C || end - position < SMALLEST_BYTES || end - position > RECORD_MAX_BYTES)
		return 0;
	bytes = malloc(size);
	if (bytes == NULL)
		return -1;
	if (segment_read(walk->piece.fd, bytes, size, position) == (ssize_t)size)
		*fits = crc32c(bytes + header, size - header) == bytes_get_u32(bytes + 4);
	free(bytes);
	return 0;
}

/*
 * Do the lengths lead from `position` to a valid record or to the end, with at most `most` damaged payloads on the
 * way?
 */
static int
follow_lengths(struct walk *walk, int64_t position, int most, bool *leads)
{
	*leads = false;
	for (int i = 0; i <= most && !*leads; i++) {
		enum record_verdict verdict;
		size_t bytes;

		if (judge(walk, position, &verdict, &bytes) == -1)
			return -1;
		*leads = verdict == RECORD_VALID || position == walk->file_bytes;
		if (verdict != RECORD_WRONG_SUM)
			break;
		position += (int64_t)bytes;
	}
	return 0;
}

/*
 * Where does the stretch end? With the first valid record behind it; but when its own length leads over that one
 * straight to another, then it stands in the payload. Returns 0 with the place, -1 = no record follows; or -1 with
 * errno ENOMEM.
 */
static int
find_end(struct walk *walk, struct walk_step *step, size_t record_bytes, int64_t *end)
{
	int64_t by_length = step->verdict == RECORD_WRONG_SUM ? step->position + (int64_t)record_bytes : -1;
	bool leads = false;

	*end = -1;
	if (walk->format == RECORD_CRC32C && search_record(walk, step->position + 1, end) == -1)
		return -1;
	if (step->error != 0)
		return 0;
	if (check_sum(walk, step->position, *end == -1 ? walk->file_bytes : *end, &step->length_only) == -1)
		return -1;
	if (by_length != -1 && !step->length_only
	    && follow_lengths(walk, by_length, *end != -1 && *end < by_length ? 0 : FOLLOWED_MAX, &leads) == -1)
		return -1;
	if (leads)
		*end = by_length == walk->file_bytes ? -1 : by_length;
	step->single = step->length_only || leads;
	return 0;
}

/* Where the content of a stretch ends that no record follows. Zeros within a record belong to it. */
static void
find_content_end(const struct walk *walk, struct walk_step *step, size_t record_bytes)
{
	int64_t record_end = step->position + (int64_t)record_bytes;

	step->content_end = scan_content_end(walk->piece.fd, step->position, walk->file_bytes);
	if (step->content_end == -1 || step->error != 0 || record_end > walk->file_bytes)
		step->content_end = walk->file_bytes;
	else if (step->content_end < record_end)
		step->content_end = record_end;
}

/* What stands at the walk's position is no valid record: the step is the stretch from there to the next one. */
static int
pass_bad(struct walk *walk, struct walk_step *step, size_t record_bytes)
{
	int64_t end;

	step->kind = WALK_BAD;
	if (find_end(walk, step, record_bytes, &end) == -1)
		return -1;
	forget_refusal(walk);
	step->last = end == -1;
	walk->position = step->last ? walk->file_bytes : end;
	step->bytes = walk->position - step->position;
	if (step->last)
		find_content_end(walk, step, record_bytes);
	return 0;
}

int
walk_next(struct walk *walk, struct walk_step *step)
{
	size_t bytes;

	*step = (struct walk_step){ .kind = WALK_END, .position = walk->position };
	if (judge(walk, walk->position, &step->verdict, &bytes) == -1)
		return -1;
	if (step->verdict == RECORD_VALID) {
		step->kind = WALK_RECORD;
		step->bytes = (int64_t)bytes;
		step->record = piece_at(&walk->piece, walk->position);
		walk->position += step->bytes;
		return 0;
	}
	if (walk->position >= walk->file_bytes)
		return 0;
	if (walk->refused != 0 && (step->verdict == RECORD_INCOMPLETE || piece_left(&walk->piece, walk->position) < 4))
		step->error = walk->refused;
	return pass_bad(walk, step, bytes);
}
