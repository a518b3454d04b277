/*
 * Looking at a segment. Offsets are counted from its base. Behind a stretch that holds nobody knows how many records
 * they are counted anew; with the next segment's base known, the last such count is set right from the end.
 */
#include "client/look.h"

#include <string.h>

#include "worker/segment.h"
#include "worker/walk.h"

enum { PROGRESS_BYTES = 4 * 1024 * 1024 };

/* What must be known between the steps. */
struct state {
	struct look *look;
	int64_t offset;		/* of the next record; behind a gap: the number of records since */
	int gaps;		/* stretches of unknown length */
	struct finding *gap;	/* the first one's finding */
	int64_t gap_offset;
	int64_t single;		/* damaged records that are known to be one each */
	struct walk_step tail;	/* the stretch at the end, WALK_BAD, or zeroed: WALK_RECORD */
	int64_t before_damage;	/* good records ahead of the first damage, and their bytes */
	int64_t bytes_before_damage;
	const struct index *marks;
	size_t mark;		/* the next one */
};

static bool
is_last(const struct look *look)
{
	return look->next == -1;
}

struct finding *
look_add(struct look *look, enum finding_kind kind)
{
	struct finding *finding = &look->found[look->count];

	/* The place behind the last one takes what is only counted. */
	if (look->count < LOOK_FINDINGS_MAX)
		look->count++;
	else
		look->more++;
	*finding = (struct finding){ .kind = kind, .name = "", .position = -1, .offset = -1, .bytes = -1, .records = -1,
		.other = -1, .last = is_last(look) };
	return finding;
}

static void
end_prefix(struct state *state, int64_t position)
{
	struct look *look = state->look;

	if (look->count + look->more > 0)
		return;
	look->prefix_end = state->offset;
	look->prefix_bytes = position;
	state->before_damage = look->records;
	state->bytes_before_damage = look->bytes;
}

/* Behind a gap an offset is written as a number below -1, until it is known where they count from. */
static int64_t
provisional(const struct state *state)
{
	return state->gaps == 0 ? state->offset : -2 - state->offset;
}

static void
note_damage(struct state *state, const struct walk_step *step)
{
	struct look *look = state->look;
	struct finding *finding;

	end_prefix(state, step->position);
	finding = look_add(look, step->error != 0 ? FINDING_UNREADABLE : FINDING_BAD_RECORD);
	finding->position = step->position;
	finding->offset = provisional(state);
	finding->bytes = step->bytes;
	finding->before = look->records;
	finding->verdict = step->verdict;
	finding->length_only = step->length_only;
	finding->error = step->error;
	if (step->single) {
		finding->records = 1;
		state->single++;
		state->offset++;
		return;
	}
	if (state->gaps++ == 0) {
		state->gap = finding;
		state->gap_offset = state->offset;
	}
	/* With a second gap, what stands between them cannot be counted from either side. */
	for (int i = 0; i < look->count && state->gaps > 1; i++)
		if (look->found[i].offset < -1)
			look->found[i].offset = -1;
	state->offset = 0;
}

/* ---- ends ---- */

static void
note_surplus(struct state *state)
{
	struct finding *finding;

	end_prefix(state, state->tail.position);
	finding = look_add(state->look, FINDING_SURPLUS);
	finding->position = state->tail.position;
	finding->offset = state->offset;
	finding->bytes = state->tail.bytes;
}

static void
note_count(struct look *look, enum finding_kind kind, int64_t offset, int64_t records)
{
	struct finding *finding = look_add(look, kind);

	finding->offset = offset;
	finding->records = records;
	finding->other = look->next;
}

/* One gap: what the counts leave is in it, and behind it they begin where it ends. */
static void
close_gap(struct state *state, int64_t lost)
{
	struct look *look = state->look;

	if (state->gaps != 1)
		return;
	state->gap->records = lost;
	for (int i = 0; i < look->count; i++)
		if (look->found[i].offset < -1)
			look->found[i].offset = state->gap_offset + lost + (-2 - look->found[i].offset);
}

/* A sealed segment ends with its last record, and that is the one before the next segment's base. */
static void
finish_sealed(struct state *state)
{
	struct look *look = state->look;
	int64_t lost;

	if (state->tail.kind == WALK_BAD) {
		if (state->gaps == 0 && state->offset == look->next)
			note_surplus(state);
		else
			note_damage(state, &state->tail);
	}
	end_prefix(state, look->file_bytes);
	look->end = look->next;
	lost = look->next - look->base - look->records - state->single;
	if (state->gaps > 0 && lost >= 0)
		close_gap(state, lost);
	else if (lost > 0)
		note_count(look, FINDING_MISSING, state->offset, lost);
	else if (lost < 0)
		note_count(look, FINDING_OVERLAP, look->next, -lost);
}

/* An append to a mapping stores its first record's length last; what a crash leaves then is no damage. */
static bool
is_unfinished_append(const struct look *look)
{
	return look->count == 1 && look->more == 0 && look->found[0].verdict == RECORD_END
	    && look->found[0].length_only;
}

static void
finish_last(struct state *state)
{
	struct look *look = state->look;
	const struct walk_step *tail = &state->tail;
	int64_t content_end = tail->kind == WALK_BAD ? tail->content_end : look->file_bytes;

	if (tail->kind == WALK_BAD && tail->error != 0)
		note_damage(state, tail);
	end_prefix(state, tail->kind == WALK_BAD ? tail->position : look->file_bytes);
	look->end = state->gaps == 0 ? state->offset : -1;
	look->torn_verdict = tail->verdict;
	if (is_unfinished_append(look)) {
		look->count = 0;
		look->records = state->before_damage;
		look->bytes = state->bytes_before_damage;
		look->end = look->prefix_end;
		look->torn_verdict = RECORD_END;
	}
	if (look->count == 0)
		look->torn_bytes = content_end - look->prefix_bytes;
}

static void
count_behind(struct look *look)
{
	for (int i = 0; i < look->count; i++) {
		struct finding *finding = &look->found[i];

		finding->behind = look->records - finding->before;
		if (finding->offset < -1)
			finding->offset = -1;
	}
}

/* ---- the look ---- */

/* A record begins: does the index say so, too? Behind damage nobody asks. */
static void
compare_marks(struct state *state, int64_t position)
{
	struct look *look = state->look;

	if (state->marks == NULL || look->count > 0)
		return;
	while (state->mark < state->marks->count && state->marks->marks[state->mark].offset <= state->offset) {
		const struct index_mark *mark = &state->marks->marks[state->mark++];
		bool right = mark->offset == state->offset && mark->position == position;

		look->marks_right += right && position > 0;
		look->marks_wrong += !right;
	}
}

static void
take_step(struct state *state, const struct walk_step *step)
{
	struct look *look = state->look;

	if (step->kind == WALK_RECORD) {
		compare_marks(state, step->position);
		look->records++;
		look->bytes += step->bytes;
		state->offset++;
	} else if (step->last) {
		state->tail = *step;
	} else {
		note_damage(state, step);
	}
}

static int
take_steps(struct state *state, struct walk *walk, const struct look_progress *progress)
{
	int64_t told = 0;
	struct walk_step step;

	do {
		if (walk_next(walk, &step) == -1)
			return -1;
		if (progress != NULL && (step.kind == WALK_END || step.position - told >= PROGRESS_BYTES)) {
			progress->read(progress->with, step.position - told);
			told = step.position;
		}
		if (step.kind != WALK_END)
			take_step(state, &step);
	} while (step.kind != WALK_END);
	state->look->file_bytes = walk->file_bytes;
	return 0;
}

int
look_at(struct look *look, int fd, enum record_format format, int64_t base, int64_t next, const struct index *marks,
    const struct look_progress *progress)
{
	struct state state = { .look = look, .offset = base, .marks = marks };
	struct walk walk;
	int done;

	*look = (struct look){ .base = base, .next = next, .file_bytes = segment_file_bytes(fd),
		.note = { .kind = FINDING_KINDS } };
	if (look->file_bytes == -1 || walk_open(&walk, fd, format, 0, look->file_bytes) == -1)
		return -1;
	done = take_steps(&state, &walk, progress);
	walk_close(&walk);
	if (done == -1)
		return -1;
	if (is_last(look))
		finish_last(&state);
	else
		finish_sealed(&state);
	count_behind(look);
	return 0;
}

bool
look_alike(const struct look *one, const struct look *other)
{
	if (one->next != other->next || one->records != other->records || one->prefix_bytes != other->prefix_bytes
	    || one->count != other->count || one->more != other->more || one->torn_bytes != other->torn_bytes
	    || one->note.kind != other->note.kind)
		return false;
	for (int i = 0; i < one->count; i++)
		if (one->found[i].kind != other->found[i].kind || one->found[i].position != other->found[i].position)
			return false;
	return true;
}
