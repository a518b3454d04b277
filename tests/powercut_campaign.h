/*
 * Goes through what was recorded, event by event, and has states that a power cut may leave there checked: as many as are
 * asked for, spread over the whole. Says what it was that failed, and keeps it.
 */
#ifndef TESTS_POWERCUT_CAMPAIGN_H
#define TESTS_POWERCUT_CAMPAIGN_H

#include <stdint.h>

#include "tests/powercut_states.h"
#include "tests/powercut_workloads.h"

struct campaign_settings {
	const char *name;		/* of workload and modes, for messages */
	enum states_profile profile;
	long states;			/* so many distinct ones, or as many as there are */
	uint64_t seed;
};

struct campaign_result {
	long events, states, distinct, recoveries;
};

/* Fails the test with the first state in which a promise is broken. */
struct campaign_result campaign_run(const struct campaign_settings *settings, const struct recording *recording);

#endif
