/* What is done for the active segment now and then: write-back that begins early. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/logkit.h"
#include "tests/unit.h"

enum { MIB = 1024 * 1024 };

static struct logkit kit;

static void
begin_with_mib(int count)
{
	logkit_begin(&kit, RECORD_CRC32C, 64 * MIB);
	logkit_open(&kit);
	logkit_append(&kit, count, MIB);
	logkit_set_fault((struct logkit_fault){ 0 });
}

START_TEST(write_back_begins_every_8_mib)
{
	begin_with_mib(7);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_eq(logkit_calls(CALL_SYNC_FILE_RANGE), 0);
	logkit_append(&kit, 1, MIB);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_eq(logkit_calls(CALL_SYNC_FILE_RANGE), 1);
	/* The same bytes only once, and never a barrier. */
	logkit_append(&kit, 7, MIB);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_eq(logkit_calls(CALL_SYNC_FILE_RANGE), 1);
	logkit_append(&kit, 2, MIB);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_eq(logkit_calls(CALL_SYNC_FILE_RANGE), 2);
	ck_assert_int_eq(logkit_calls(CALL_FDATASYNC), 0);
	ck_assert_int_eq(partition_durable_end(kit.p), 0);
	logkit_end(&kit);
}
END_TEST

START_TEST(what_a_barrier_has_forced_needs_no_write_back)
{
	begin_with_mib(20);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_append(&kit, 7, MIB);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_eq(logkit_calls(CALL_SYNC_FILE_RANGE), 0);
	logkit_append(&kit, 2, MIB);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_eq(logkit_calls(CALL_SYNC_FILE_RANGE), 1);
	logkit_end(&kit);
}
END_TEST

START_TEST(write_back_begins_anew_in_each_segment)
{
	begin_with_mib(20);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_eq(logkit_roll(&kit, NULL, 0, 0), 0);
	logkit_append(&kit, 9, MIB);
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert_int_eq(logkit_calls(CALL_SYNC_FILE_RANGE), 2);
	logkit_end(&kit);
}
END_TEST

/* The kernel may have dropped those pages: no later force would tell. */
START_TEST(failed_write_back_is_a_failed_barrier)
{
	int errors[] = { EIO, ENOSPC, EROFS };

	begin_with_mib(2);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_append(&kit, 9, MIB);
	logkit_set_fault((struct logkit_fault){ .call = CALL_SYNC_FILE_RANGE, .at = 1, .error = errors[_i] });
	ck_assert_int_eq(logkit_upkeep(&kit, 0), -1);
	ck_assert_int_eq(errno, errors[_i]);
	ck_assert(partition_failed(kit.p));
	ck_assert_int_eq(partition_durable_end(kit.p), 2);
	ck_assert_int_eq(logkit_barrier(&kit), -1);
	ck_assert_int_eq(logkit_try_append(&kit, 1, 10), -1);
	logkit_expect(&kit, 0, 2, MIB);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_kernel_that_cannot_write_back_early_does_not_matter)
{
	int errors[] = { ENOSYS, EOPNOTSUPP, EINVAL, ESPIPE, EPERM, EINTR, EAGAIN, ENOMEM };

	begin_with_mib(9);
	logkit_set_fault((struct logkit_fault){ .call = CALL_SYNC_FILE_RANGE, .at = 1, .error = errors[_i] });
	ck_assert_int_eq(logkit_upkeep(&kit, 0), 0);
	ck_assert(logkit_fault_hit());
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	ck_assert_int_eq(partition_durable_end(kit.p), 9);
	logkit_end(&kit);
}
END_TEST

/* `_i`: it works, or fails as well, which is told once. */
START_TEST(upkeep_beside_a_failing_barrier)
{
	struct partition_barrier barrier;
	struct partition_upkeep upkeep;
	char *lines;

	begin_with_mib(9);
	partition_barrier_begin(kit.p, &barrier);
	ck_assert(partition_upkeep_begin(kit.p, 0, 0, &upkeep));
	logkit_set_fault((struct logkit_fault){ .call = _i == 0 ? CALL_FDATASYNC : LOGKIT_ANY, .at = 1, .error = EIO,
	    .sticky = true });
	logkit_catch_lines();
	partition_upkeep_run(&upkeep);
	partition_barrier_run(&barrier);
	ck_assert_int_eq(partition_barrier_finish(kit.p, &barrier), -1);
	ck_assert_int_eq(partition_upkeep_finish(kit.p, &upkeep), -1);
	ck_assert_int_eq(errno, EIO);
	lines = logkit_caught_lines();
	ck_assert_ptr_eq(strchr(lines, '\n'), lines + strlen(lines) - 1);
	free(lines);
	ck_assert(!partition_upkeep_begin(kit.p, 0, 0, &upkeep));
	logkit_end(&kit);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("upkeep");
	TCase *tests = tcase_create("upkeep");

	tcase_set_timeout(tests, 60);
	suite_add_tcase(suite, tests);
	tcase_add_test(tests, write_back_begins_every_8_mib);
	tcase_add_test(tests, what_a_barrier_has_forced_needs_no_write_back);
	tcase_add_test(tests, write_back_begins_anew_in_each_segment);
	tcase_add_loop_test(tests, failed_write_back_is_a_failed_barrier, 0, 3);
	tcase_add_loop_test(tests, a_kernel_that_cannot_write_back_early_does_not_matter, 0, 8);
	tcase_add_loop_test(tests, upkeep_beside_a_failing_barrier, 0, 2);
	return unit_run(suite);
}
