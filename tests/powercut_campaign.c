/* See powercut_campaign.h. */
#include "tests/powercut_campaign.h"

#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/powercut_check.h"
#include "tests/wire.h"

enum {
	DEEP_EVERY = 6,			/* states, one of which has its recovery cut off */
	SUBSETS_OF = 4,			/* units always, of more of them now and then, */
	SUBSETS_OF_MOST = 12,		/* up to these */
	STATES_OF_EVENT = 14,		/* about, without subsets */
	PASSES_MAX = 64,
};

/* Hashes that have been met. */
struct seen {
	uint64_t *slots;	/* 0: free */
	size_t count, capacity;
};

struct campaign {
	const struct campaign_settings *settings;
	const struct recording *recording;
	struct powercut_log log;
	struct check *check;
	struct ledger *ledger;
	struct model *model;
	struct image image;
	struct seen trees, cases;	/* states; and states with what was promised of them */
	struct campaign_result result;
	size_t event;		/* the last one that has been applied */
	const char *kind;	/* of the state that is checked */
	char why[CHECK_WHY_BYTES];
};

/* ---- distinct ones ---- */

static bool
put_hash(struct seen *seen, uint64_t hash)
{
	size_t at = hash % seen->capacity;

	while (seen->slots[at] != 0 && seen->slots[at] != hash)
		at = (at + 1) % seen->capacity;
	if (seen->slots[at] == hash)
		return false;
	seen->slots[at] = hash;
	return true;
}

/* Returns true when it has not been met before. */
static bool
is_new(struct seen *seen, uint64_t hash)
{
	hash += hash == 0;
	if (2 * seen->count >= seen->capacity) {
		struct seen larger = { .capacity = seen->capacity == 0 ? 4096 : 2 * seen->capacity };

		larger.slots = calloc(larger.capacity, sizeof(*larger.slots));
		ck_assert_ptr_nonnull(larger.slots);
		for (size_t i = 0; i < seen->capacity; i++)
			if (seen->slots[i] != 0)
				put_hash(&larger, seen->slots[i]);
		larger.count = seen->count;
		free(seen->slots);
		*seen = larger;
	}
	if (!put_hash(seen, hash))
		return false;
	seen->count++;
	return true;
}

static uint64_t
with_promises(const struct campaign *campaign, uint64_t hash)
{
	int64_t promises[] = { ledger_forced_end(campaign->ledger), ledger_published_end(campaign->ledger),
		ledger_durable_end(campaign->ledger), ledger_start(campaign->ledger) };

	return hash ^ image_hash_bytes(promises, sizeof(promises));
}

/* ---- one state ---- */

/* Makes its image. Returns a hash: whatever the garbage is that stands in it, it is one state. */
static uint64_t
build(struct campaign *campaign, const struct state *state)
{
	uint64_t hash;

	model_image(campaign->model, state->fates, state->seed, false, &campaign->image);
	hash = image_hash(&campaign->image);
	if (!state->garbage)
		return hash;
	model_image(campaign->model, state->fates, state->seed, true, &campaign->image);
	return image_hash(&campaign->image) == hash ? hash : ~hash;
}

static int
try_state(const struct state *state, void *context)
{
	struct campaign *campaign = context;
	uint64_t hash;
	bool deep;

	if (campaign->result.distinct >= campaign->settings->states)
		return 1;
	hash = build(campaign, state);
	if (!is_new(&campaign->cases, with_promises(campaign, hash)))
		return 0;
	campaign->result.distinct += is_new(&campaign->trees, hash);
	deep = campaign->result.states++ % DEEP_EVERY == 0;
	campaign->kind = state->kind;
	return check_state(campaign->check, &campaign->image, campaign->ledger, deep, state->seed, campaign->why);
}

/* ---- a failure ---- */

static const char *
profile_name(const struct campaign *campaign)
{
	return campaign->settings->profile == STATES_STRICT ? "strict" : "ordered";
}

static const char *
tmp_path(void)
{
	const char *tmp = getenv("TMPDIR");

	return tmp == NULL ? "/tmp" : tmp;
}

/* The events, in a directory of their own. */
static void
keep_events(const struct campaign *campaign, char *path, size_t size)
{
	char command[3 * BROKER_PATH_BYTES];

	snprintf(path, size, "%.200s/powercut-XXXXXX", tmp_path());
	ck_assert_ptr_nonnull(mkdtemp(path));
	snprintf(command, sizeof(command), "cp %.400s %.400s/events", campaign->recording->log_path, path);
	if (system(command) != 0)
		fprintf(stderr, "%s: cannot keep the events\n", path);
}

static void
report_event(struct campaign *campaign)
{
	char path[BROKER_PATH_BYTES];

	check_end(campaign->check);
	keep_events(campaign, path, sizeof(path));
	ck_abort_msg("%s, %s names: event %zu: %s: %s. LOGBROKER_TEST_SEED=%" PRIu64 "; all events are kept in %s",
	    campaign->settings->name, profile_name(campaign), campaign->event, campaign->why,
	    powercut_event_text(campaign->log.events[campaign->event]), campaign->settings->seed, path);
}

static void
report_state(struct campaign *campaign)
{
	char *lines = check_lines();
	char path[BROKER_PATH_BYTES], state_path[BROKER_PATH_BYTES + 8];

	check_end(campaign->check);
	keep_events(campaign, path, sizeof(path));
	snprintf(state_path, sizeof(state_path), "%s/state", path);
	image_write(&campaign->image, state_path);
	fprintf(stderr, "%s", lines);
	ck_abort_msg("%s, %s names: power is cut behind event %zu (%s), of what is not forced \"%s\" is kept: %s. Promised: FORCED "
	    "to %" PRId64 ", published %" PRId64 ", durable %" PRId64 ". LOGBROKER_TEST_SEED=%" PRIu64
	    "; the state, and all events, are kept in %s", campaign->settings->name, profile_name(campaign), campaign->event,
	    powercut_event_text(campaign->log.events[campaign->event]), campaign->kind, campaign->why,
	    ledger_forced_end(campaign->ledger), ledger_published_end(campaign->ledger), ledger_durable_end(campaign->ledger),
	    campaign->settings->seed, path);
}

static const struct campaign *running;

/* A recovery ends the process: all that the broker has left, and the state as it is by now, goes where it stays. */
static void
report_end(int number)
{
	const struct campaign *campaign = running;
	char path[BROKER_PATH_BYTES];

	snprintf(path, sizeof(path), "%.200s/powercut-%d", tmp_path(), (int)getpid());
	if (rename(campaign->recording->broker.directory, path) == -1)
		path[0] = '\0';
	dprintf(STDERR_FILENO, "%s, %s names: power is cut behind event %zu (%s), of what is not forced \"%s\" is kept: signal %d. "
	    "LOGBROKER_TEST_SEED=%" PRIu64 "; the state, and all events, are kept in %s\n", campaign->settings->name,
	    profile_name(campaign), campaign->event, powercut_event_text(campaign->log.events[campaign->event]), campaign->kind,
	    number, campaign->settings->seed, path);
}

/* ---- all of them ---- */

static void
begin_pass(struct campaign *campaign, uint64_t seed)
{
	const struct recording *recording = campaign->recording;
	struct ledger_settings settings = { .format = recording->settings.record_format,
		.durable = recording->settings.durable_only, .directory = "data/t-0", .requests = recording->requests,
		.request_count = recording->request_count };

	campaign->model = model_new(seed);
	campaign->ledger = ledger_new(&settings);
}

static void
end_pass(struct campaign *campaign)
{
	model_free(campaign->model);
	ledger_free(campaign->ledger);
}

/* The event of that number, which must be one that can be. */
static void
apply(struct campaign *campaign, size_t number)
{
	const struct powercut_event *event = campaign->log.events[number];
	const char *why = "it cannot be";

	campaign->event = number;
	if (model_apply(campaign->model, event) == 0 && ledger_note(campaign->ledger, campaign->model, event, &why) == 0)
		return;
	snprintf(campaign->why, sizeof(campaign->why), "%s", why);
	report_event(campaign);
}

/* Has the recorder seen everything? Otherwise the tree would be another one, or clients would have been promised more. */
static void
judge_recording(struct campaign *campaign)
{
	const struct recording *recording = campaign->recording;
	const struct ledger *ledger = campaign->ledger;
	char why[IMAGE_WHY_BYTES];

	model_image_applied(campaign->model, &campaign->image);
	if (!image_is_at(&campaign->image, recording->root, why))
		snprintf(campaign->why, sizeof(campaign->why), "not all has been recorded: %s", why);
	else if (ledger_forced_end(ledger) != recording->told_end || ledger_durable_end(ledger) < recording->told_end
	    || (recording->settings.durable_only && ledger_published_end(ledger) < recording->told_end))
		snprintf(campaign->why, sizeof(campaign->why), "not all has been recorded: FORCED was answered up to %" PRId64
		    ", recorded are %" PRId64 ", durable %" PRId64 ", published %" PRId64, recording->told_end,
		    ledger_forced_end(ledger), ledger_durable_end(ledger), ledger_published_end(ledger));
	else
		return;
	report_event(campaign);
}

/* Once through all of it. */
static void
rehearse(struct campaign *campaign)
{
	begin_pass(campaign, 0);
	for (size_t i = 0; i < campaign->log.count; i++)
		apply(campaign, i);
	judge_recording(campaign);
	end_pass(campaign);
}

/* What does not change anything, nor promise anything, leaves the same states. */
static bool
matters(const struct powercut_event *event)
{
	return event->kind != POWERCUT_FORCE && event->kind != POWERCUT_SENT && event->kind != POWERCUT_START;
}

/* The more units there are, the seldomer all their subsets: on average no more than of the fewest, and not most of all states. */
static int
subsets_of(struct states *states, long wanted)
{
	int units = SUBSETS_OF;

	while (units < SUBSETS_OF_MOST && 8L << units < wanted && wire_random(&states->seed) % 2 == 0)
		units++;
	return units;
}

/* At every so-many-th event, another one each time. */
static int
run_pass(struct campaign *campaign, struct states *states, uint64_t stride)
{
	int done = 0;

	begin_pass(campaign, wire_random(&states->seed));
	for (size_t i = 0; i < campaign->log.count && done == 0; i++) {
		apply(campaign, i);
		if (!matters(campaign->log.events[i]) || wire_random(&states->seed) % stride != 0)
			continue;
		states->subsets_of = subsets_of(states, campaign->settings->states);
		done = states_visit(states, campaign->model, try_state, campaign);
		if (done == -1)
			report_state(campaign);
	}
	end_pass(campaign);
	return done;
}

struct campaign_result
campaign_run(const struct campaign_settings *settings, const struct recording *recording)
{
	struct campaign campaign = { .settings = settings, .recording = recording };
	struct states states = { .profile = settings->profile, .random = 2, .seed = settings->seed };
	char work_path[CHECK_PATH_BYTES];
	struct check_settings check = { .partition = recording->settings, .work_path = work_path, .on_end = report_end };
	uint64_t stride;

	ck_assert_msg(powercut_log_read(&campaign.log, recording->log_path) == 0, "%s: %s", recording->log_path,
	    strerror(errno));
	/* The broker's directory goes away, whatever becomes of this. */
	snprintf(work_path, sizeof(work_path), "%.400s/states", recording->broker.directory);
	ck_assert_int_eq(mkdir(work_path, 0700), 0);
	running = &campaign;
	campaign.check = check_begin(&check);
	stride = campaign.log.count * STATES_OF_EVENT / (uint64_t)settings->states + 1;
	rehearse(&campaign);
	for (int pass = 0; pass < PASSES_MAX && campaign.result.distinct < settings->states; pass++)
		run_pass(&campaign, &states, stride);
	campaign.result.events = (long)campaign.log.count;
	campaign.result.recoveries = check_recoveries(campaign.check);
	check_end(campaign.check);
	image_free(&campaign.image);
	powercut_log_free(&campaign.log);
	free(campaign.trees.slots);
	free(campaign.cases.slots);
	return campaign.result;
}
