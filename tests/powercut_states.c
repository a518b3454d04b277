/* See powercut_states.h. */
#include "tests/powercut_states.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "tests/wire.h"

enum { SECTOR_BYTES = 512, PAGE_BYTES = 4096, SUBSETS_MAX = 12 };

/* What is chosen from, and what with. */
struct choice {
	struct states *states;
	const struct model_unit *units;
	size_t count;
	uint8_t *fates;
	int (*visit)(const struct state *state, void *context);
	void *context;
};

static uint64_t
chance(struct choice *choice, uint64_t below)
{
	return wire_random(&choice->states->seed) % below;
}

/* The same for the same block: it is on the disk as it was at one moment, which is not the same for any two of them. */
static uint64_t
number_of_block(uint64_t seed, const struct model_unit *unit, int64_t block_bytes)
{
	uint64_t state = seed ^ ((uint64_t)unit->file << 40 ^ (uint64_t)(unit->from / block_bytes)) * 0x9E3779B97F4A7C15u;

	return wire_random(&state);
}

static int
visit(struct choice *choice, const char *kind, bool garbage)
{
	struct state state = { .kind = kind, .fates = choice->fates, .seed = wire_random(&choice->states->seed),
		.garbage = garbage };

	return choice->visit(&state, choice->context);
}

static void
set_all(struct choice *choice, enum model_unit_kind kind, enum model_fate fate)
{
	for (size_t i = 0; i < choice->count; i++)
		if (choice->units[i].kind == kind)
			choice->fates[i] = (uint8_t)fate;
}

/* In each directory. */
static void
keep_first_names(struct choice *choice)
{
	uint32_t file = UINT32_MAX;
	uint64_t left = 0;

	for (size_t i = 0; i < choice->count; i++) {
		if (choice->units[i].kind != MODEL_NAME)
			continue;
		if (choice->units[i].file != file) {
			size_t end = i;

			file = choice->units[i].file;
			while (end < choice->count && choice->units[end].file == file)
				end++;
			left = chance(choice, end - i + 1);
		}
		choice->fates[i] = left > 0 ? MODEL_KEPT : MODEL_LOST;
		left -= left > 0;
	}
}

static void
keep_some_names(struct choice *choice)
{
	uint64_t tenths = 1 + chance(choice, 9);

	if (choice->states->profile == STATES_ORDERED) {
		keep_first_names(choice);
		return;
	}
	for (size_t i = 0; i < choice->count; i++)
		if (choice->units[i].kind == MODEL_NAME)
			choice->fates[i] = chance(choice, 10) < tenths ? MODEL_KEPT : MODEL_LOST;
}

static void
keep_some_sizes(struct choice *choice)
{
	uint64_t tenths = chance(choice, 3) * 5;

	for (size_t i = 0; i < choice->count; i++)
		if (choice->units[i].kind == MODEL_SIZE)
			choice->fates[i] = chance(choice, 10) < tenths || tenths == 10 ? MODEL_KEPT : MODEL_LOST;
}

/* Each block as it was at a moment of its own since the last force; a store may have been under way. */
static void
keep_moments(struct choice *choice, int64_t block_bytes)
{
	uint64_t seed = wire_random(&choice->states->seed);
	uint32_t first = UINT32_MAX, last = 0;

	for (size_t i = 0; i < choice->count; i++) {
		first = choice->units[i].event < first ? choice->units[i].event : first;
		last = choice->units[i].event > last ? choice->units[i].event : last;
	}
	for (size_t i = 0; i < choice->count; i++) {
		const struct model_unit *unit = &choice->units[i];
		uint64_t number = number_of_block(seed, unit, block_bytes);
		uint32_t until = first + (uint32_t)(number / 3 % (last - first + 2));

		if (unit->kind != MODEL_BYTES)
			continue;
		if (number % 3 != 2)
			until = number % 3 == 0 ? 0 : UINT32_MAX;
		choice->fates[i] = unit->event < until ? MODEL_KEPT : MODEL_LOST;
		if (unit->event < until && unit->stored && chance(choice, 4) == 0)
			choice->fates[i] = MODEL_TORN;
	}
}

/* Most files as a whole, or not at all: what one of them says of another comes too early. */
static void
keep_some_files(struct choice *choice)
{
	uint64_t seed = wire_random(&choice->states->seed);

	for (size_t i = 0; i < choice->count; i++) {
		uint64_t state = seed ^ (uint64_t)(choice->units[i].file + 1) * 0x9E3779B97F4A7C15u;
		uint64_t number = wire_random(&state) % 5;

		if (choice->units[i].kind != MODEL_NAME && number < 4)
			choice->fates[i] = number < 2 ? MODEL_KEPT : MODEL_LOST;
	}
}

static int
visit_by_chance(struct choice *choice)
{
	static const struct { const char *kind; int64_t block_bytes; bool garbage, files; } kinds[] = {
		{ "pages", PAGE_BYTES, false, false }, { "sectors", SECTOR_BYTES, false, false },
		{ "sectors and garbage", SECTOR_BYTES, true, false }, { "files", SECTOR_BYTES, false, true } };
	enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };
	int done = 0;

	for (int n = 0; n < KINDS * choice->states->random && done == 0; n++) {
		keep_moments(choice, kinds[n % KINDS].block_bytes);
		keep_some_sizes(choice);
		keep_some_names(choice);
		if (kinds[n % KINDS].files)
			keep_some_files(choice);
		done = visit(choice, kinds[n % KINDS].kind, kinds[n % KINDS].garbage);
	}
	return done;
}

/* ---- the plain ones ---- */

static int
visit_extremes(struct choice *choice)
{
	int done;

	memset(choice->fates, MODEL_LOST, choice->count);
	done = visit(choice, "nothing", false);
	if (done != 0)
		return done;
	memset(choice->fates, MODEL_KEPT, choice->count);
	done = visit(choice, "everything", false);
	if (done != 0)
		return done;
	set_all(choice, MODEL_BYTES, MODEL_LOST);
	done = visit(choice, "names and sizes without data", false);
	if (done == 0)
		done = visit(choice, "names and sizes over garbage", true);
	if (done != 0)
		return done;
	memset(choice->fates, MODEL_KEPT, choice->count);
	set_all(choice, MODEL_NAME, MODEL_LOST);
	return visit(choice, "data without names", false);
}

/* Is it a change of bytes with all that belongs to it? Names and sizes are left as they are. */
static void
set_change(struct choice *choice, size_t unit, enum model_fate fate)
{
	const struct model_unit *wanted = &choice->units[unit];

	for (size_t i = 0; i < choice->count; i++)
		if (choice->units[i].file == wanted->file && choice->units[i].change == wanted->change
		    && choice->units[i].kind == MODEL_BYTES)
			choice->fates[i] = (uint8_t)fate;
}

static int
visit_newest(struct choice *choice)
{
	size_t newest = choice->count;

	for (size_t i = 0; i < choice->count; i++)
		if (choice->units[i].kind == MODEL_BYTES
		    && (newest == choice->count || choice->units[i].event >= choice->units[newest].event))
			newest = i;
	if (newest == choice->count)
		return 0;
	memset(choice->fates, MODEL_KEPT, choice->count);
	set_all(choice, MODEL_BYTES, MODEL_LOST);
	set_change(choice, newest, MODEL_KEPT);
	return visit(choice, "only the newest write", false);
}

/* A name that goes alone: in the ordered profile, with those behind it. */
static void
lose_name(struct choice *choice, size_t unit)
{
	bool ordered = choice->states->profile == STATES_ORDERED;
	uint32_t directory = choice->units[unit].file;

	choice->fates[unit] = MODEL_LOST;
	for (size_t i = unit; ordered && i < choice->count && choice->units[i].file == directory; i++)
		choice->fates[i] = MODEL_LOST;
}

/* Is the later unit never on the disk without the earlier one? A block is written as it stands in memory. */
static bool
needs(const struct choice *choice, const struct model_unit *later, const struct model_unit *earlier)
{
	if (later->file != earlier->file || later->kind != earlier->kind)
		return false;
	if (later->kind == MODEL_NAME)
		return choice->states->profile == STATES_ORDERED;
	return later->kind == MODEL_BYTES && later->from / SECTOR_BYTES == earlier->from / SECTOR_BYTES;
}

/* Is there a kept one that is never on the disk without it? */
static bool
is_needed(const struct choice *choice, size_t unit)
{
	for (size_t i = unit + 1; i < choice->count; i++)
		if (choice->fates[i] != MODEL_LOST && needs(choice, &choice->units[i], &choice->units[unit]))
			return true;
	return false;
}

/* One block, or one write as a whole, a size or a name. */
static int
visit_all_but_one(struct choice *choice)
{
	size_t unit;

	if (choice->count == 0)
		return 0;
	unit = chance(choice, choice->count);
	memset(choice->fates, MODEL_KEPT, choice->count);
	if (choice->units[unit].kind == MODEL_BYTES && (chance(choice, 2) == 0 || is_needed(choice, unit)))
		set_change(choice, unit, MODEL_LOST);
	else if (choice->units[unit].kind == MODEL_NAME)
		lose_name(choice, unit);
	else
		choice->fates[unit] = MODEL_LOST;
	return visit(choice, "all but one", false);
}

/* From one of them on no size that was asked for, so that what was cut off is there again behind what came in its place. */
static int
visit_without_resizes(struct choice *choice)
{
	size_t first = choice->count, count = 0;

	for (size_t i = 0; i < choice->count; i++)
		if (choice->units[i].resized && choice->units[i].kind == MODEL_SIZE && chance(choice, ++count) == 0)
			first = i;
	if (count == 0)
		return 0;
	memset(choice->fates, MODEL_KEPT, choice->count);
	for (size_t i = choice->count; i-- > 0;)
		if (choice->units[i].resized && choice->units[i].event >= choice->units[first].event && !is_needed(choice, i))
			choice->fates[i] = MODEL_LOST;
	return visit(choice, "all but what was cut", false);
}

static bool
may_be(const struct choice *choice)
{
	for (size_t i = 1; i < choice->count; i++)
		for (size_t k = 0; k < i && choice->fates[i] != MODEL_LOST; k++)
			if (choice->fates[k] == MODEL_LOST && needs(choice, &choice->units[i], &choice->units[k]))
				return false;
	return true;
}

static int
visit_subsets(struct choice *choice)
{
	int done = 0;

	if (choice->count > (size_t)choice->states->subsets_of || choice->count > SUBSETS_MAX)
		return 0;
	for (uint32_t subset = 0; subset < 1u << choice->count && done == 0; subset++) {
		for (size_t i = 0; i < choice->count; i++)
			choice->fates[i] = (subset >> i & 1) != 0 ? MODEL_KEPT : MODEL_LOST;
		if (may_be(choice))
			done = visit(choice, "a subset", false);
	}
	return done;
}

int
states_visit(struct states *states, struct model *model, int (*visit_state)(const struct state *state, void *context),
    void *context)
{
	struct choice choice = { .states = states, .visit = visit_state, .context = context };
	int done;

	choice.count = model_units(model, SECTOR_BYTES, &choice.units);
	choice.fates = malloc(choice.count + 1);
	ck_assert_ptr_nonnull(choice.fates);
	done = visit_extremes(&choice);
	if (done == 0)
		done = visit_newest(&choice);
	if (done == 0)
		done = visit_all_but_one(&choice);
	if (done == 0)
		done = visit_without_resizes(&choice);
	if (done == 0)
		done = visit_subsets(&choice);
	if (done == 0)
		done = visit_by_chance(&choice);
	free(choice.fates);
	return done;
}
