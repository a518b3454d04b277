/*
 * Rolls: what they ask of the kernel in which order, batches larger than a segment, and that a failure at any step
 * leaves nothing of the batch, or a failed partition.
 */
#include <check.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/roll.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

static const enum record_format formats[] = { RECORD_PLAIN, RECORD_CRC32C };
enum { FORMATS = 2 };

static struct logkit kit;

START_TEST(A21_a_batch_larger_than_what_is_left)
{
	logkit_begin(&kit, formats[_i], 1000);
	logkit_open(&kit);
	logkit_append(&kit, 5, 100);
	ck_assert_int_eq(logkit_try_append(&kit, 6, 100), 0);
	ck_assert_int_eq(partition_log_end(kit.p), 11);
	ck_assert_int_eq(partition_segments(kit.p), 2);
	/* It stands in one segment. */
	ck_assert_int_eq(partition_durable_end(kit.p), 5);
	logkit_expect(&kit, 0, 11, 100);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 11, 100);
	logkit_end(&kit);
}
END_TEST

START_TEST(A21_a_batch_larger_than_a_segment)
{
	for (int before = 0; before < 3; before++) {
		logkit_begin(&kit, formats[_i], 1000);
		logkit_open(&kit);
		logkit_append(&kit, before, 100);
		ck_assert_int_eq(logkit_try_append(&kit, 40, 100), 0);
		ck_assert_int_eq(partition_log_end(kit.p), before + 40);
		ck_assert_int_eq(partition_durable_end(kit.p), before + 40);
		ck_assert_int_eq(partition_unforced_bytes(kit.p), 0);
		/* Nine fit a segment. */
		ck_assert_int_eq(partition_segments(kit.p), 5 + (before > 0));
		ck_assert_int_eq(logkit_count_files(&kit, ""), 5 + (before > 0));
		logkit_expect(&kit, 0, before + 40, 100);
		logkit_append(&kit, 4, 100);
		ck_assert_int_eq(logkit_try_append(&kit, 40, 100), 0);
		logkit_expect(&kit, 0, before + 84, 100);
		logkit_reopen(&kit);
		ck_assert_int_eq(partition_log_end(kit.p), before + 84);
		logkit_expect(&kit, 0, before + 84, 100);
		logkit_end(&kit);
	}
}
END_TEST

START_TEST(A21_a_record_that_no_segment_holds_is_refused)
{
	size_t bytes;
	uint8_t *batch;
	int fds;

	logkit_begin(&kit, formats[_i], 1000);
	logkit_open(&kit);
	fds = logkit_open_descriptors();
	batch = logkit_batch(formats[_i], 0, 3, 1000, &bytes);
	ck_assert_ptr_null(partition_roll_begin(kit.p, batch, bytes, 3));
	ck_assert_int_eq(errno, EINVAL);
	free(batch);
	batch = logkit_batch(formats[_i], 0, 30, 100, &bytes);
	ck_assert_ptr_null(partition_roll_begin(kit.p, batch, bytes, 29));
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_ptr_null(partition_roll_begin(kit.p, batch, bytes, 31));
	ck_assert_ptr_null(partition_roll_begin(kit.p, batch, bytes - 1, 30));
	memset(batch, 0, 4);
	ck_assert_ptr_null(partition_roll_begin(kit.p, batch, bytes, 30));
	ck_assert_int_eq(errno, EINVAL);
	free(batch);
	/* The largest that fits: a segment each. */
	ck_assert_int_eq(logkit_try_append(&kit, 3, 1000 - record_header_bytes(formats[_i])), 0);
	ck_assert_int_eq(partition_segments(kit.p), 3);
	logkit_expect(&kit, 0, 3, 1000 - record_header_bytes(formats[_i]));
	ck_assert_int_eq(logkit_open_descriptors(), fds + 2);
	logkit_end(&kit);
}
END_TEST

/* A whole one is less than what a recovery point keeps of the last record. */
START_TEST(A21_a_batch_of_the_smallest_records)
{
	char *lines;

	logkit_begin(&kit, formats[_i], 100);
	logkit_open(&kit);
	ck_assert_int_eq(logkit_try_append(&kit, 201, 1), 0);
	ck_assert_int_gt(partition_segments(kit.p), 10);
	logkit_catch_lines();
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 201, 1);
	lines = logkit_caught_lines();
	ck_assert_str_eq(lines, "");
	free(lines);
	logkit_end(&kit);
}
END_TEST

START_TEST(A21_thousands_of_segments_at_once_need_few_descriptors)
{
	struct partition_roll *roll;
	size_t bytes;
	uint8_t *batch;
	int fds;

	logkit_begin(&kit, RECORD_PLAIN, 64);
	logkit_open(&kit);
	fds = logkit_open_descriptors();
	batch = logkit_batch(RECORD_PLAIN, 0, 2000, 40, &bytes);
	roll = partition_roll_begin(kit.p, batch, bytes, 2000);
	partition_roll_run(roll);
	ck_assert_int_eq(logkit_open_descriptors(), fds + 1);
	ck_assert_int_eq(partition_roll_finish(kit.p, roll), 0);
	free(batch);
	ck_assert_int_eq(partition_segments(kit.p), 2000);
	logkit_reopen(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), 2000);
	logkit_end(&kit);
}
END_TEST

static void
expect_trace(const char *file, const char *mapped)
{
	ck_assert_str_eq(logkit_trace(), kit.settings.mapped ? mapped : file);
}

START_TEST(A21_order_of_a_roll)
{
	logkit_begin(&kit, RECORD_CRC32C, 1000);
	logkit_open(&kit);
	logkit_append(&kit, 5, 100);
	logkit_trace_begin();
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	expect_trace("force 00000000000000000000.log;create 00000000000000000005.log.tmp;"
	    "force 00000000000000000005.log.tmp;rename 00000000000000000005.log;fsync t-0;",
	    "truncate 00000000000000000000.log;force 00000000000000000000.log;create 00000000000000000005.log.tmp;"
	    "truncate 00000000000000000005.log.tmp;force 00000000000000000005.log.tmp;"
	    "rename 00000000000000000005.log;fsync t-0;");
	ck_assert_int_eq(partition_durable_end(kit.p), 5);
	logkit_end(&kit);
}
END_TEST

#define RENAMES "rename 00000000000000000005.log;fsync t-0;rename 00000000000000000014.log;fsync t-0;" \
	"rename 00000000000000000023.log;fsync t-0;"

START_TEST(A21_order_of_a_batch_larger_than_a_segment)
{
	logkit_begin(&kit, RECORD_CRC32C, 1000);
	logkit_open(&kit);
	logkit_append(&kit, 5, 100);
	logkit_trace_begin();
	ck_assert_int_eq(logkit_try_append(&kit, 20, 100), 0);
	expect_trace("force 00000000000000000000.log;"
	    "create 00000000000000000005.log.tmp;write 00000000000000000005.log.tmp;force 00000000000000000005.log.tmp;"
	    "create 00000000000000000014.log.tmp;write 00000000000000000014.log.tmp;force 00000000000000000014.log.tmp;"
	    "create 00000000000000000023.log.tmp;write 00000000000000000023.log.tmp;force 00000000000000000023.log.tmp;"
	    RENAMES, "truncate 00000000000000000000.log;force 00000000000000000000.log;"
	    "create 00000000000000000005.log.tmp;write 00000000000000000005.log.tmp;force 00000000000000000005.log.tmp;"
	    "create 00000000000000000014.log.tmp;write 00000000000000000014.log.tmp;force 00000000000000000014.log.tmp;"
	    "create 00000000000000000023.log.tmp;write 00000000000000000023.log.tmp;"
	    "truncate 00000000000000000023.log.tmp;force 00000000000000000023.log.tmp;" RENAMES);
	logkit_end(&kit);
}
END_TEST

START_TEST(A21_order_of_undoing)
{
	logkit_begin(&kit, RECORD_CRC32C, 1000);
	logkit_open(&kit);
	logkit_append(&kit, 5, 100);
	logkit_set_fault((struct logkit_fault){ .call = CALL_RENAME, .at = 3, .error = EIO });
	logkit_trace_begin();
	ck_assert_int_eq(logkit_try_append(&kit, 20, 100), -1);
	ck_assert_ptr_nonnull(strstr(logkit_trace(), "rename 00000000000000000014.log;fsync t-0;"
	    "unlink 00000000000000000023.log.tmp;unlink 00000000000000000014.log;fsync t-0;"
	    "unlink 00000000000000000005.log;fsync t-0;"));
	ck_assert(!partition_failed(kit.p));
	ck_assert_int_eq(logkit_count_files(&kit, ""), 1);
	logkit_append(&kit, 4, 100);
	logkit_expect(&kit, 0, 9, 100);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_roll_of_an_empty_segment_changes_nothing)
{
	logkit_begin(&kit, RECORD_CRC32C, 1000);
	logkit_open(&kit);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
		ck_assert_int_eq(partition_segments(kit.p), 1);
		ck_assert_int_eq(logkit_count_files(&kit, ""), 1);
	}
	logkit_append(&kit, 3, 100);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 3, 100);
	logkit_end(&kit);
}
END_TEST

/* What must hold after a refused batch: nothing of it is there, now and after a restart. */
static void
expect_nothing_of_it(int64_t end)
{
	ck_assert_int_eq(partition_log_end(kit.p), end);
	logkit_expect(&kit, 0, partition_failed(kit.p) ? partition_durable_end(kit.p) : end, 100);
	if (!partition_failed(kit.p))
		ck_assert_int_eq(logkit_count_files(&kit, ""), partition_segments(kit.p));
}

/*
 * The n-th call of each kind fails once, for n = 1, 2, ... until the batch passes untouched. `_i`: is the active
 * segment empty before, and is the batch larger than a segment.
 */
START_TEST(A21_any_failure_leaves_nothing_of_it)
{
	int errors[] = { EIO, ENOSPC };
	int before = _i % 2 == 0 ? 0 : 8, count = _i / 2 == 0 ? 8 : 35;

	for (int call = 0; call < CALL_COUNT; call++)
		for (int at = 1;; at++) {
			int fds, done;
			bool hit;

			logkit_begin(&kit, formats[at % FORMATS], 1000);
			fds = logkit_open_descriptors();
			logkit_open(&kit);
			logkit_append(&kit, before, 100);
			ck_assert_int_eq(logkit_barrier(&kit), 0);
			logkit_set_fault((struct logkit_fault){ .call = call, .at = at,
			    .error = errors[at / FORMATS % 2] });
			done = logkit_try_append(&kit, count, 100);
			hit = logkit_fault_hit();
			/* A roll reads for the stored index alone. */
			ck_assert_msg(done == (hit && call != CALL_PREAD ? -1 : 0), "%s %d", logkit_call_name(call), at);
			logkit_clear_fault();
			if (done == -1) {
				/* One failure can be undone, unless it was a force of what was there or of the names; or a roll
				 * cannot tell whether all of what was there still is. */
				bool fatal = call == CALL_FSYNC || (call == CALL_FDATASYNC && at == 1)
				    || (call == CALL_FSTAT && at == 1 && _i > 0);

				ck_assert_msg(partition_failed(kit.p) == fatal, "%s %d", logkit_call_name(call), at);
				expect_nothing_of_it(before);
				logkit_reopen(&kit);
				expect_nothing_of_it(before);
				ck_assert_int_eq(logkit_count_files(&kit, ".tmp"), 0);
			}
			logkit_append(&kit, 20, 100);
			logkit_expect(&kit, 0, partition_log_end(kit.p), 100);
			logkit_close(&kit);
			ck_assert_int_eq(logkit_open_descriptors(), fds);
			logkit_end(&kit);
			if (!hit)
				break;
		}
}
END_TEST

static int what_fails_next;	/* of the undoing */
static int renames;
static bool no_memory;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *
__wrap_calloc(size_t count, size_t size)
{
	bool fails = no_memory;

	no_memory = false;
	errno = fails ? ENOMEM : errno;
	return fails ? NULL : __real_calloc(count, size);
}

/* The second one fails, and with it what comes behind. */
static int
failing_rename(int dir_fd, const char *from, const char *to)
{
	static const int calls[] = { CALL_OPEN, CALL_FTRUNCATE, CALL_FDATASYNC };

	if (++renames == 1)
		return renameat(dir_fd, from, dir_fd, to);
	if (what_fails_next < 3)
		logkit_set_fault((struct logkit_fault){ .call = calls[what_fails_next], .at = 1, .error = EIO });
	else
		no_memory = true;
	errno = ENOSPC;
	return -1;
}

/* A large batch has replaced an empty segment by its first part, and that cannot be emptied again: `_i`: why. */
START_TEST(A21_an_undoing_that_fails_as_well)
{
	int (*rename)(int dir_fd, const char *from, const char *to);

	what_fails_next = _i;
	renames = 0;
	logkit_begin(&kit, RECORD_CRC32C, 1000);
	logkit_open(&kit);
	rename = syscalls.rename;
	syscalls.rename = failing_rename;
	ck_assert_int_eq(logkit_try_append(&kit, 35, 100), -1);
	syscalls.rename = rename;
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert(_i == 3 ? !no_memory : logkit_fault_hit());
	/* Nobody knows what of it stands there. */
	ck_assert(partition_failed(kit.p));
	ck_assert_int_eq(partition_log_end(kit.p), 0);
	logkit_close(&kit);
	kit.known = (struct partition_known){ .published_end = 0, .from_disk = true, .failed = true };
	logkit_open(&kit);
	ck_assert_int_eq(partition_log_end(kit.p), _i < 2 ? 9 : 0);
	logkit_expect(&kit, 0, partition_log_end(kit.p), 100);
	logkit_append(&kit, 3, 100);
	logkit_expect(&kit, 0, partition_log_end(kit.p), 100);
	logkit_end(&kit);
}
END_TEST

/* The disk goes away at the n-th call and stays away: a failed partition or an untouched one, and never a hole. */
START_TEST(A21_a_disk_that_stays_broken_leaves_a_prefix)
{
	int before = _i % 2 == 0 ? 0 : 8;

	for (int at = 1;; at++) {
		bool hit;
		int done;

		logkit_begin(&kit, formats[at % FORMATS], 1000);
		logkit_open(&kit);
		logkit_append(&kit, before, 100);
		ck_assert_int_eq(logkit_barrier(&kit), 0);
		logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = EIO, .sticky = true });
		done = logkit_try_append(&kit, 35, 100);
		hit = logkit_fault_hit();
		/* The last calls are for the stored index alone. */
		ck_assert(hit || done == 0);
		logkit_clear_fault();
		if (done == -1) {
			ck_assert_int_eq(partition_durable_end(kit.p), before);
			if (!partition_failed(kit.p))
				logkit_append(&kit, 1, 100);
		}
		logkit_reopen(&kit);
		ck_assert_int_ge(partition_log_end(kit.p), before);
		logkit_expect(&kit, 0, partition_log_end(kit.p), 100);
		logkit_append(&kit, 3, 100);
		logkit_reopen(&kit);
		logkit_expect(&kit, 0, partition_log_end(kit.p), 100);
		logkit_end(&kit);
		if (!hit)
			break;
	}
}
END_TEST

START_TEST(A21_a_full_disk_heals_by_itself)
{
	logkit_begin(&kit, formats[_i], 1000);
	logkit_open(&kit);
	logkit_append(&kit, 8, 100);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PWRITE, .at = 1, .error = ENOSPC, .sticky = true });
	for (int i = 0; i < 3; i++) {
		/* In mapped mode it has been allocated. */
		if (!kit.settings.mapped) {
			ck_assert_int_eq(logkit_try_append(&kit, 1, 40), -1);
			ck_assert_int_eq(errno, ENOSPC);
		}
		ck_assert_int_eq(logkit_try_append(&kit, 30, 100), -1);
		ck_assert_int_eq(errno, ENOSPC);
		logkit_expect(&kit, 0, 8, 100);
	}
	/* No room for a new file either. */
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 1, .error = ENOSPC, .sticky = true });
	ck_assert_int_eq(logkit_try_append(&kit, 5, 100), -1);
	ck_assert_int_eq(errno, ENOSPC);
	logkit_clear_fault();
	ck_assert_int_eq(logkit_try_append(&kit, 5, 100), 0);
	ck_assert_int_eq(logkit_try_append(&kit, 30, 100), 0);
	logkit_reopen(&kit);
	logkit_expect(&kit, 0, 43, 100);
	logkit_end(&kit);
}
END_TEST

START_TEST(readers_go_on_while_a_roll_is_under_way)
{
	struct partition_roll *roll;
	struct partition_place place;
	struct slice slice;
	uint8_t bytes[108];

	logkit_begin(&kit, RECORD_CRC32C, 1000);
	logkit_open(&kit);
	logkit_append(&kit, 9, 100);
	ck_assert_int_eq(logkit_find(&kit, 8, &place), PARTITION_FOUND);
	partition_slice(&place, 108, &slice);
	roll = partition_roll_begin(kit.p, NULL, 0, 0);
	logkit_expect(&kit, 0, 9, 100);
	partition_roll_run(roll);
	logkit_expect(&kit, 0, 9, 100);
	ck_assert_int_eq(partition_roll_finish(kit.p, roll), 0);
	/* What was active stays open and indexed. */
	ck_assert_int_eq(partition_find(kit.p, 4, &place), PARTITION_FOUND);
	logkit_expect(&kit, 0, 9, 100);
	logkit_read_slice(&slice, bytes);
	slice_release(&slice);
	logkit_end(&kit);
}
END_TEST

static void
add_tests(TCase *tests)
{
	tcase_add_loop_test(tests, A21_a_batch_larger_than_what_is_left, 0, FORMATS);
	tcase_add_loop_test(tests, A21_a_batch_larger_than_a_segment, 0, FORMATS);
	tcase_add_loop_test(tests, A21_a_record_that_no_segment_holds_is_refused, 0, FORMATS);
	tcase_add_loop_test(tests, A21_a_batch_of_the_smallest_records, 0, FORMATS);
	tcase_add_test(tests, A21_thousands_of_segments_at_once_need_few_descriptors);
	tcase_add_test(tests, A21_order_of_a_roll);
	tcase_add_test(tests, A21_order_of_a_batch_larger_than_a_segment);
	tcase_add_test(tests, A21_order_of_undoing);
	tcase_add_test(tests, a_roll_of_an_empty_segment_changes_nothing);
	tcase_add_loop_test(tests, A21_any_failure_leaves_nothing_of_it, 0, 4);
	tcase_add_loop_test(tests, A21_an_undoing_that_fails_as_well, 0, 4);
	tcase_add_loop_test(tests, A21_a_disk_that_stays_broken_leaves_a_prefix, 0, 2);
	tcase_add_loop_test(tests, A21_a_full_disk_heals_by_itself, 0, FORMATS);
	tcase_add_test(tests, readers_go_on_while_a_roll_is_under_way);
}

int
main(void)
{
	Suite *suite = suite_create("roll");
	TCase *file = tcase_create("file"), *mapped = tcase_create("mapped");

	tcase_set_timeout(file, 60);
	tcase_set_timeout(mapped, 60);
	tcase_add_checked_fixture(file, logkit_file_mode, NULL);
	tcase_add_checked_fixture(mapped, logkit_mapped_mode, NULL);
	suite_add_tcase(suite, file);
	suite_add_tcase(suite, mapped);
	add_tests(file);
	add_tests(mapped);
	return unit_run(suite);
}
