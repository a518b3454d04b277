/*
 * What a power cut may leave of a log while a real broker writes to it: recorded, taken apart and put together again in all
 * the ways in which a disk may, and recovered (powercut_check.h says what must hold then). A test is one life of a broker in
 * one mode, with names lost in one of two ways.
 *
 * Of each 250 states are tried, 20,000 in all: times LOGBROKER_TEST_SCALE (50: a million). With LOGBROKER_TEST_SAMPLE one of
 * so many, in half of the modes. LOGBROKER_TEST_SEED: of all that is left to chance, but not of the broker's own timing. A
 * failure keeps its events. LOGBROKER_POWERCUT_MODE: one of the eight alone, as tests/mutants.sh asks for it.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/broker.h"
#include "tests/powercut_campaign.h"
#include "tests/powercut_workloads.h"
#include "tests/unit.h"

enum { STATES = 250, TIMEOUT_S = 3600, MODES = 8 };

/* A number of a test: which workload, how it writes, how names are lost. */
static void
run(int workload, int mode)
{
	static struct recording recording;
	bool mapped = (mode & 1) != 0;
	enum record_format format = (mode & 2) != 0 ? RECORD_PLAIN : RECORD_CRC32C;
	struct campaign_settings settings = { .profile = (mode & 4) != 0 ? STATES_ORDERED : STATES_STRICT };
	struct campaign_result result;
	char name[128];

	snprintf(name, sizeof(name), "%s, %s, %s", workload_name(workload), mapped ? "mapped" : "file",
	    record_format_name(format));
	settings.name = name;
	settings.seed = broker_seed(name);
	settings.states = (long)STATES * broker_scale() / unit_sample();
	workload_record(workload, mapped, format, settings.seed, &recording);
	result = campaign_run(&settings, &recording);
	printf("%s, %s: %ld events, %ld distinct states, %ld checked, %ld recoveries cut off\n", name,
	    settings.profile == STATES_STRICT ? "strict" : "ordered", result.events, result.distinct, result.states,
	    result.recoveries);
	ck_assert_int_gt(result.distinct, 20);
}

/* Half of them are half of each. */
static const int modes[MODES] = { 0, 5, 2, 7, 4, 1, 6, 3 };

START_TEST(K_power_cut)
{
	run(_i / MODES, modes[_i % MODES]);
}
END_TEST

static void
add_modes(TCase *tests, int workload)
{
	const char *only = getenv("LOGBROKER_POWERCUT_MODE");
	/* The last one waits for seconds. */
	int sampled = workload == WORKLOAD_COUNT - 1 ? MODES / 4 : MODES / 2;

	for (int i = 0; i < (unit_sample() > 1 ? sampled : MODES); i++)
		if (only == NULL || atoi(only) == modes[i])
			tcase_add_loop_test(tests, K_power_cut, workload * MODES + i, workload * MODES + i + 1);
}

static Suite *
powercut_suite(void)
{
	Suite *suite = suite_create("power cut");

	for (int workload = 0; workload < WORKLOAD_COUNT; workload++) {
		TCase *tests = tcase_create(workload_name(workload));

		tcase_set_timeout(tests, TIMEOUT_S);
		add_modes(tests, workload);
		suite_add_tcase(suite, tests);
	}
	return suite;
}

int
main(void)
{
	const char *tmp = getenv("TMPDIR");

	/* Nothing here needs a disk. */
	if ((tmp == NULL || strncmp(tmp, "/dev/shm/", 9) != 0) && access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 1);
	return broker_main(powercut_suite());
}
