/*
 * Which states a power cut may leave at one moment: of the model's units, which are kept. Chooses; neither builds them nor
 * judges what becomes of them.
 */
#ifndef TESTS_POWERCUT_STATES_H
#define TESTS_POWERCUT_STATES_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/powercut_model.h"

/* Of the names of a directory that were changed since its last force, what a power cut keeps. */
enum states_profile {
	STATES_STRICT,		/* any of the changes */
	STATES_ORDERED,		/* the first ones, as a journal does */
};

struct states {
	enum states_profile profile;
	int random;		/* states by chance, of each kind */
	int subsets_of;		/* where there are at most so many units: all subsets of them */
	uint64_t seed;		/* of what is chosen by chance; moves on */
};

struct state {
	const char *kind;
	const uint8_t *fates;	/* of model_units' units */
	uint64_t seed;		/* of what is torn, and of garbage */
	bool garbage;
};

/* Calls `visit` with each state, some of them more than once. Ends with the first value other than 0, and returns it. */
int states_visit(struct states *states, struct model *model, int (*visit)(const struct state *state, void *context),
    void *context);

#endif
