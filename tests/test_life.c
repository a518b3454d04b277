/*
 * The whole life of a log: a start from what a stop has left, appends, rolls, barriers, upkeep, reads, retention, a planned
 * release, a stop. The n-th of its calls or allocations fails, once or with all behind it, or the process ends at it: n = 1,
 * 2, 3... until the life passes untouched. What was acknowledged is there, what was refused is not, and the log works again
 * when the fault is over, by itself or with the next start, and has said why not meanwhile.
 *
 * Of the errors, EINTR comes once only: one that never ends is no interruption.
 */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/allocations.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/retention.h"
#include "worker/stop_marker.h"

enum { RECORD_BYTES = 100, SEGMENT_BYTES = 1000, OFFSETS_MAX = 256, TRIES_MAX = 32, CRASHED = 77 };

static const enum record_format formats[] = { RECORD_PLAIN, RECORD_CRC32C };
enum { FORMATS = 2 };

/* What has happened to the log, and what the board says of it: outlives the process. A record's bytes follow from its number. */
struct story {
	int64_t next_number;
	int64_t given[OFFSETS_MAX];		/* numbers: what was acknowledged there */
	int64_t tried[OFFSETS_MAX][TRIES_MAX];	/* what may stand there */
	int tries[OFFSETS_MAX];
	int64_t end;				/* of what was acknowledged */
	bool closed;				/* it could not be opened, and is not tried again before the next start */
	bool opened, failed, forcing;		/* these are the board's */
	int64_t start, shown_end, durable_end;
};

static struct logkit kit;
static struct story *story;
static int every;	/* unit_sample */
static bool sticky_calls;
static int call_error;	/* an errno, while calls fail with one */
static char fate[128];

/* What the log says in this life goes here, and is shown when something is wrong. */
static int said_fd;

static void
show_said(void)
{
	char text[4096];
	ssize_t n;

	lseek(said_fd, 0, SEEK_SET);
	while ((n = read(said_fd, text, sizeof(text))) > 0)
		fwrite(text, 1, (size_t)n, stdout);
	fflush(stdout);
}

static void
must(bool is_so, const char *what)
{
	if (!is_so)
		show_said();
	ck_assert_msg(is_so, "%s: %s", fate, what);
}

/* Only between these two something goes wrong: the test's own calls and allocations are none of the log's. */
static void
on_stage(bool on)
{
	logkit_hold_fault(!on);
	allocations_watch(on);
}

static unsigned long failing_allocation;	/* 0: none */
static bool mended_hit;

static bool
was_hit(void)
{
	return mended_hit || logkit_fault_hit() || (failing_allocation > 0 && allocations_count() >= failing_allocation);
}

static void
mend(void)
{
	mended_hit = was_hit();
	logkit_clear_fault();
	allocations_fail_at(0);
	failing_allocation = 0;
	sticky_calls = false;
	call_error = 0;
}

/* ---- what stands where ---- */

static bool
stands_at(int64_t offset, int64_t number)
{
	struct partition_place place;
	struct slice slice;
	size_t bytes;
	uint8_t *expected = logkit_batch(kit.settings.record_format, number, 1, RECORD_BYTES, &bytes);
	uint8_t *found = malloc(bytes);
	bool same = false;

	if (logkit_find(&kit, offset, &place) == PARTITION_FOUND) {
		partition_slice(&place, (int64_t)bytes, &slice);
		if (slice.bytes == (int64_t)bytes) {
			logkit_read_slice(&slice, found);
			same = memcmp(found, expected, bytes) == 0;
		}
		slice_release(&slice);
	}
	free(found);
	free(expected);
	return same;
}

static void
forget_tries(int64_t from)
{
	for (int64_t i = from; i < OFFSETS_MAX; i++)
		story->tries[i] = 0;
}

static void
note_try(int64_t offset, int64_t number)
{
	must(offset < OFFSETS_MAX && story->tries[offset] < TRIES_MAX, "the story is too long");
	story->tried[offset][story->tries[offset]++] = number;
}

/* Behind what was acknowledged may stand what was tried, where nobody could take it back. */
static void
adopt(int64_t end)
{
	for (int64_t i = story->end; i < end; i++) {
		int try = 0;

		while (try < story->tries[i] && !stands_at(i, story->tried[i][try]))
			try++;
		must(try < story->tries[i], "a record has come back that was refused");
		story->given[i] = story->tried[i][try];
	}
	story->end = end;
}

static void
expect_all(void)
{
	for (int64_t i = partition_log_start(kit.p); i < story->end; i++)
		must(stands_at(i, story->given[i]), "an acknowledged record is not there");
}

/* ---- opening ---- */

static bool
is_open(void)
{
	return kit.p != NULL && !partition_failed(kit.p);
}

static void
publish(void)
{
	story->start = partition_log_start(kit.p);
	story->shown_end = partition_visible_end(kit.p);
	story->durable_end = partition_durable_end(kit.p);
}

/* As opening.c has it from the board. */
static struct partition_known
known(const struct stop_state *stopped)
{
	struct partition_known known = { .published_end = -1, .from_disk = true, .failed = story->failed, .stopped = stopped };

	if (!story->opened)
		return known;
	known.from_disk = story->failed || story->forcing;
	known.log_start = story->start;
	known.durable_end = story->durable_end;
	known.published_end = known.from_disk ? story->durable_end : story->shown_end;
	known.shown_end = story->shown_end;
	return known;
}

static void
take_opened(bool was_forcing, bool was_failed)
{
	kit.p = kit.opened.partition;
	if (!is_open()) {
		must(was_hit() && strlen(kit.opened.why) > 10, "it is not opened, and nothing says why");
		story->failed = was_failed || kit.opened.failed;
		story->closed = !story->failed;
		story->forcing = was_forcing;
		return;
	}
	must(partition_log_end(kit.p) >= story->end, "acknowledged records are gone");
	must(!story->opened || partition_log_start(kit.p) >= story->start, "what was retired has come back");
	adopt(partition_log_end(kit.p));
	publish();
	story->opened = true;
	story->failed = story->closed = story->forcing = false;
}

static void
open_log(struct partition_known how)
{
	bool was_forcing = story->forcing;

	story->forcing = true;
	on_stage(true);
	partition_open(kit.data_fd, "t-0", &kit.settings, &how, &kit.opened);
	on_stage(false);
	take_opened(was_forcing, how.failed);
}

/* A broker is started: the board is new. */
static void
start(void)
{
	struct stop_marker marker;

	story->opened = story->failed = story->forcing = false;
	on_stage(true);
	stop_marker_take(&marker, kit.data_fd, 0, 1);
	on_stage(false);
	open_log(known(stop_marker_find(&marker, "t-0")));
	stop_marker_free(&marker);
}

/* One that has failed is tried again. */
static bool
attend(void)
{
	if (!is_open() && !story->closed) {
		logkit_close(&kit);
		open_log(known(NULL));
	}
	return is_open();
}

/* ---- steps ---- */

static void
fall(void)
{
	must(was_hit(), "something fails without a fault");
	if (!partition_failed(kit.p))
		return;
	story->failed = true;
	must(lseek(said_fd, 0, SEEK_CUR) > 0, "a log has failed, and nothing says so");
}

static int
put(const uint8_t *batch, size_t bytes, int count)
{
	enum partition_fit fit = partition_fit(kit.p, (int64_t)bytes);

	if (fit == PARTITION_ALONE)
		return logkit_roll(&kit, batch, bytes, count);
	if (fit == PARTITION_ROLL && logkit_roll(&kit, NULL, 0, 0) == -1)
		return -1;
	if (fit == PARTITION_UNCUT && logkit_barrier(&kit) == -1)
		return -1;
	if (partition_fit(kit.p, (int64_t)bytes) == PARTITION_AHEAD && logkit_upkeep(&kit, (int64_t)bytes) == -1)
		return -1;
	return partition_append(kit.p, batch, bytes, count);
}

/* Refused with one fault alone, nothing of it may be left, unless the log has failed; and whatever comes next overwrites it. */
static void
note_append(int64_t end, int64_t number, int count, bool done)
{
	if (!done) {
		fall();
		if (!partition_failed(kit.p) && !sticky_calls)
			forget_tries(end);
		return;
	}
	forget_tries(end);
	for (int i = 0; i < count; i++) {
		note_try(end + i, number + i);
		story->given[end + i] = number + i;
	}
	story->end = end + count;
	publish();
}

static bool
append(int count)
{
	int64_t end, number = story->next_number;
	uint8_t *batch;
	size_t bytes;
	int done;

	if (!attend())
		return false;
	end = partition_log_end(kit.p);
	story->next_number += count;
	for (int i = 0; i < count; i++)
		note_try(end + i, number + i);
	batch = logkit_batch(kit.settings.record_format, number, count, RECORD_BYTES, &bytes);
	on_stage(true);
	done = put(batch, bytes, count);
	on_stage(false);
	free(batch);
	must(partition_log_end(kit.p) == (done == 0 ? end + count : end), "the log's end is not what was told");
	note_append(end, number, count, done == 0);
	return done == 0;
}

/* It is one call. */
static bool
barrier(void)
{
	bool was_before;
	int done;

	if (!attend())
		return false;
	was_before = was_hit();
	story->forcing = true;
	on_stage(true);
	done = logkit_barrier(&kit);
	on_stage(false);
	story->forcing = false;
	must(done == -1 || call_error == 0 || !was_hit() || (was_before && !sticky_calls), "a force that failed is told as done");
	if (done == -1)
		fall();
	else
		publish();
	return done == 0;
}

/* By then a recovery point is due. */
static void
look_after(void)
{
	int done;

	if (!attend())
		return;
	on_stage(true);
	done = logkit_upkeep_at(&kit, 0, clock_now_ns() + INT64_C(10) * CLOCK_NS_PER_S);
	on_stage(false);
	if (done == -1)
		fall();
}

static enum partition_found
find(int64_t offset, struct partition_place *place)
{
	enum partition_found found = partition_find(kit.p, offset, place);
	struct partition_load *load;

	if (found != PARTITION_COLD)
		return found;
	load = partition_load_begin(kit.p, offset);
	if (load == NULL)
		return PARTITION_BROKEN;
	partition_load_run(load);
	partition_load_finish(kit.p, load);
	return partition_find(kit.p, offset, place);
}

static void
read_one(int64_t offset)
{
	struct partition_place place;
	enum partition_found found;

	if (!attend())
		return;
	on_stage(true);
	found = find(offset, &place);
	on_stage(false);
	must(found == PARTITION_FOUND || was_hit(), "a record cannot be read");
	must(found != PARTITION_FOUND || stands_at(offset, story->given[offset]), "another record is read");
}

static int
remove_files(void)
{
	struct partition_retire *retire;
	bool force_failed;
	int done = 0;

	while (done == 0 && (retire = partition_retire_begin(kit.p)) != NULL) {
		partition_retire_run(retire);
		done = partition_retire_finish(kit.p, retire, &force_failed);
	}
	return done;
}

static void
retire(void)
{
	int64_t count;
	int done;

	if (!attend())
		return;
	on_stage(true);
	count = partition_retire(kit.p, clock_now_ns());
	publish();
	done = remove_files();
	on_stage(false);
	if (count == -1 || done == -1)
		fall();
}

/* Another process takes the log over. */
static void
hand_over(void)
{
	struct partition *before;
	struct partition_known how;
	struct stop_state state;
	int released;

	if (!attend())
		return;
	before = kit.p;
	on_stage(true);
	released = partition_release(before, &state);
	on_stage(false);
	must(released == 0 || was_hit(), "it is not released");
	how = known(released == 0 ? &state : NULL);
	how.released = released == 0;
	open_log(how);
	partition_close(before);
}

static void
stop(void)
{
	struct stop_entry entry = { .name = "t-0" };
	bool left = barrier();
	int told;

	on_stage(true);
	left = left && partition_leave(kit.p, &entry.state) == 0;
	told = stop_marker_leave(kit.data_fd, 0, &entry, left ? 1 : 0);
	on_stage(false);
	must((left && told == 0) || was_hit(), "no word is left of a stop");
	logkit_close(&kit);
	story->opened = false;
}

/* ---- lives ---- */

/* Of each two n that are tried one meets the one format, one the other. */
static enum record_format
format_of(unsigned long n)
{
	return formats[n / (unsigned long)every % FORMATS];
}

static void
begin(enum record_format format)
{
	logkit_begin(&kit, format, SEGMENT_BYTES);
	kit.settings.retention_bytes = 4 * SEGMENT_BYTES;
	memset(story, 0, sizeof(*story));
	mended_hit = false;
	ck_assert_int_eq(ftruncate(said_fd, 0), 0);
	lseek(said_fd, 0, SEEK_SET);
	start();
	for (int i = 0; i < 8; i++)
		append(5);
	stop();
}

static void
live(bool mended_before_stop)
{
	start();
	append(1);
	append(3);
	barrier();
	append(8);
	append(25);
	read_one(2);
	read_one(story->end - 1);
	append(2);
	barrier();
	look_after();
	retire();
	append(4);
	hand_over();
	append(1);
	look_after();
	append(4);
	if (mended_before_stop) {
		mend();
		must(append(1) || story->closed, "it does not heal");
	}
	stop();
}

/* Whatever has happened, the next start opens the log, and it is sound: also when it has to look what stands behind its end. */
static void
expect_sound(bool looks, int descriptors)
{
	if (looks)
		unlinkat(kit.data_fd, "worker-0.stopped", 0);
	start();
	must(is_open(), "the next start does not open it");
	expect_all();
	must(append(3) && append(20) && barrier(), "it cannot be written to");
	stop();
	must(logkit_count_files(&kit, ".tmp") == 0, "temporary files are left");
	start();
	expect_all();
	logkit_close(&kit);
	must(logkit_open_descriptors() == descriptors, "descriptors are left open");
}

/* ---- faults ---- */

/* A life with that; returns whether it was touched. */
static bool
try_fault(struct logkit_fault fault, bool mended_before_stop)
{
	int descriptors;
	bool hit;

	begin(format_of((unsigned long)fault.at));
	descriptors = logkit_open_descriptors();
	snprintf(fate, sizeof(fate), "call %d, error %d%s%s", fault.at, fault.error, fault.sticky ? " from then on" : "",
	    mended_before_stop ? ", over before the stop" : "");
	sticky_calls = fault.sticky;
	call_error = fault.error > 0 ? fault.error : 0;
	logkit_set_fault(fault);
	live(mended_before_stop);
	mend();
	hit = mended_hit;
	expect_sound((fault.at + fault.error) % 2 == 0, descriptors);
	logkit_end(&kit);
	return hit;
}

/* `_i`: what happens. */
START_TEST(A21_K_any_call_of_a_life_fails)
{
	static const struct { int error; bool sticky, mended; } what[] = { { EIO, false, false }, { ENOSPC, false, false },
		{ EINTR, false, false }, { LOGKIT_SHORT, false, false }, { EIO, true, false }, { EIO, true, true },
		{ ENOSPC, true, false }, { ENOSPC, true, true }, { LOGKIT_SHORT, true, false } };
	int at = 1 + _i % every;

	while (try_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = what[_i].error, .sticky = what[_i].sticky,
	    .aim = LOGKIT_AT_ALL }, what[_i].mended))
		at += every;
	ck_assert_int_gt(at, 50);
}
END_TEST
enum { WHAT_FAILS = 9 };

/* `_i`: once, from then on, and from then on until before the stop. */
START_TEST(A21_K_any_allocation_of_a_life_fails)
{
	bool sticky = _i > 0, mended = _i > 1, hit = true;
	unsigned long n = 1 + (unsigned long)(_i % every);

	if (!allocations_are_counted()) {
		printf("any_allocation_of_a_life_fails: skipped, a sanitizer allocates here\n");
		return;
	}
	for (; hit; n += (unsigned long)every) {
		int descriptors;

		begin(format_of(n));
		descriptors = logkit_open_descriptors();
		snprintf(fate, sizeof(fate), "allocation %lu%s%s", n, sticky ? " and all behind it" : "",
		    mended ? ", over before the stop" : "");
		failing_allocation = n;
		if (sticky)
			allocations_fail_from(n);
		else
			allocations_fail_at(n);
		live(mended);
		mend();
		hit = mended_hit;
		expect_sound(n % 2 == 0, descriptors);
		logkit_end(&kit);
	}
	ck_assert_uint_gt(n, 50);
}
END_TEST

/* ---- ends ---- */

static int
end_at(int at)
{
	int status;
	pid_t child = fork();

	ck_assert_int_ne(child, -1);
	if (child == 0) {
		logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = LOGKIT_EXIT, .aim = LOGKIT_AT_ALL });
		live(false);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* Another worker opens the log, while the board is what it was; then the broker is started anew. */
START_TEST(A21_K_a_process_ends_at_any_call_of_a_life)
{
	int status = CRASHED, at = 1 + _i % every;

	for (; status == CRASHED; at += every) {
		int descriptors;

		begin(format_of((unsigned long)at));
		descriptors = logkit_open_descriptors();
		snprintf(fate, sizeof(fate), "ended at call %d", at);
		status = end_at(at);
		ck_assert(status == CRASHED || status == 0);
		if (story->opened) {
			open_log(known(NULL));
			must(is_open(), "the next worker does not open it");
			expect_all();
			retire();
			must(append(1), "the next worker cannot write to it");
			logkit_close(&kit);
		}
		expect_sound(at % 2 == 0, descriptors);
		logkit_end(&kit);
	}
	ck_assert_int_gt(at, 50);
}
END_TEST

static void
prepare(void)
{
	said_fd = memfd_create("stderr", MFD_CLOEXEC);
	ck_assert_int_ne(dup2(said_fd, STDERR_FILENO), -1);
	story = mmap(NULL, sizeof(*story), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(story, MAP_FAILED);
}

static void
add_tests(Suite *suite, const char *name, void (*mode)(void))
{
	TCase *tests = tcase_create(name);

	tcase_set_timeout(tests, 120);
	tcase_add_checked_fixture(tests, mode, NULL);
	tcase_add_checked_fixture(tests, prepare, NULL);
	tcase_add_loop_test(tests, A21_K_any_call_of_a_life_fails, 0, WHAT_FAILS);
	tcase_add_loop_test(tests, A21_K_any_allocation_of_a_life_fails, 0, 3);
	tcase_add_loop_test(tests, A21_K_a_process_ends_at_any_call_of_a_life, 0, FORMATS);
	suite_add_tcase(suite, tests);
}

int
main(void)
{
	Suite *suite = suite_create("life");

	/* Thousands of logs: one in memory will do. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	every = unit_sample();
	add_tests(suite, "file", logkit_file_mode);
	add_tests(suite, "mapped", logkit_mapped_mode);
	return unit_run(suite);
}
