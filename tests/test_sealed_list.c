/*
 * The list of sealed segments: what is written comes back; of a damaged, cut or foreign file the longest valid prefix or
 * nothing; later entries overtake earlier ones.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/crc32c.h"
#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/sealed_list.h"
#include "worker/syscalls.h"

enum { HEADER_BYTES = 16, ENTRY_BYTES = 36, PER_SEGMENT = 100 };

static struct logkit kit;
static char path[LOGKIT_PATH_BYTES];
static int dir_fd;
static struct sealed_list list;

static void
begin(void)
{
	logkit_begin(&kit, RECORD_CRC32C, 1000);
	ck_assert_int_eq(mkdir(kit.path, 0750), 0);
	dir_fd = open(kit.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	logkit_file_path(&kit, SEALED_LIST_NAME, path);
	list = (struct sealed_list){ 0 };
}

static void
end(void)
{
	sealed_list_free(&list);
	close(dir_fd);
	logkit_end(&kit);
}

static struct sealed_entry
entry_at(int64_t number)
{
	return (struct sealed_entry){ .base = number * PER_SEGMENT, .end = (number + 1) * PER_SEGMENT,
		.bytes = 10000 + number, .last_append_ms = 1700000000000 + number };
}

static int
try_append(int64_t from, int64_t to)
{
	struct sealed_entry entries[3000];

	for (int64_t i = from; i < to; i++)
		entries[i - from] = entry_at(i);
	return sealed_list_append(dir_fd, entries, (size_t)(to - from));
}

static void
append(int64_t from, int64_t to)
{
	ck_assert_int_eq(try_append(from, to), 0);
}

static int
read_list(void)
{
	int64_t stray = 0;
	int done;

	sealed_list_free(&list);
	done = sealed_list_read(dir_fd, &list, &stray);
	if (done == 0)
		ck_assert_int_ge(stray, 0);
	return done;
}

static void
expect_read(int64_t from, int64_t to)
{
	ck_assert_int_eq(read_list(), 0);
	ck_assert_uint_eq(list.count, (size_t)(to - from));
	for (int64_t i = from; i < to; i++) {
		struct sealed_entry wanted = entry_at(i), *found = &list.entries[i - from];

		ck_assert_int_eq(found->base, wanted.base);
		ck_assert_int_eq(found->end, wanted.end);
		ck_assert_int_eq(found->bytes, wanted.bytes);
		ck_assert_int_eq(found->last_append_ms, wanted.last_append_ms);
	}
}

static void
expect_refused(void)
{
	ck_assert_int_eq(read_list(), -1);
	ck_assert_int_eq(errno, EBADMSG);
	ck_assert_uint_eq(list.count, 0);
}

START_TEST(what_is_written_comes_back)
{
	begin();
	ck_assert_int_eq(read_list(), -1);
	ck_assert_int_eq(errno, ENOENT);
	append(0, 1);
	expect_read(0, 1);
	append(1, 5);
	append(5, 2500);
	expect_read(0, 2500);
	ck_assert_uint_eq(list.in_file, 2500);
	ck_assert_int_eq(logkit_file_bytes(path), HEADER_BYTES + 2500 * ENTRY_BYTES);
	ck_assert_int_eq(sealed_list_write(dir_fd, &list), 0);
	expect_read(0, 2500);
	end();
}
END_TEST

START_TEST(an_entry_is_found)
{
	begin();
	append(3, 40);
	append(41, 43);
	ck_assert_int_eq(read_list(), 0);
	for (int64_t i = 0; i < 45; i++) {
		bool there = i >= 3 && i < 43 && i != 40;
		const struct sealed_entry *found = sealed_list_find(&list, i * PER_SEGMENT);

		ck_assert_msg((found != NULL) == there, "%d", (int)i);
		ck_assert(found == NULL || found->base == i * PER_SEGMENT);
		ck_assert_ptr_null(sealed_list_find(&list, i * PER_SEGMENT + 1));
		ck_assert(sealed_list_holds(&list, i * PER_SEGMENT, (i + 1) * PER_SEGMENT, 10000 + i) == there);
		ck_assert(!sealed_list_holds(&list, i * PER_SEGMENT, (i + 1) * PER_SEGMENT - 1, 10000 + i));
		ck_assert(!sealed_list_holds(&list, i * PER_SEGMENT, (i + 1) * PER_SEGMENT, 9999 + i));
		ck_assert_ptr_null(sealed_list_inside(&list, i * PER_SEGMENT));
		for (int64_t k = 1; k < PER_SEGMENT; k += 98)
			ck_assert_ptr_eq(sealed_list_inside(&list, i * PER_SEGMENT + k), found);
	}
	end();
}
END_TEST

START_TEST(later_entries_overtake)
{
	struct sealed_entry other = { .base = 450, .end = 520, .bytes = 7000, .last_append_ms = 1 };

	begin();
	append(0, 10);
	/* The log was cut back to 450 and sealed there. */
	ck_assert_int_eq(sealed_list_append(dir_fd, &other, 1), 0);
	ck_assert_int_eq(read_list(), 0);
	ck_assert_uint_eq(list.count, 5);
	ck_assert_uint_eq(list.in_file, 11);
	ck_assert_int_eq(list.entries[3].end, 400);
	ck_assert_int_eq(list.entries[4].base, 450);
	/* The same again with other numbers. */
	other.bytes = 7001;
	ck_assert_int_eq(sealed_list_append(dir_fd, &other, 1), 0);
	ck_assert_int_eq(read_list(), 0);
	ck_assert_uint_eq(list.count, 5);
	ck_assert_int_eq(list.entries[4].bytes, 7001);
	append(0, 10);
	expect_read(0, 10);
	end();
}
END_TEST

START_TEST(the_log_start_is_remembered)
{
	begin();
	append(0, 10);
	ck_assert_int_eq(sealed_list_note_start(dir_fd, 300), 0);
	append(10, 12);
	expect_read(0, 12);
	ck_assert_int_eq(list.log_start, 300);
	ck_assert_int_eq(sealed_list_note_start(dir_fd, 500), 0);
	/* What could not be removed before is noted once more. */
	ck_assert_int_eq(sealed_list_note_start(dir_fd, 200), 0);
	ck_assert_int_eq(read_list(), 0);
	ck_assert_int_eq(list.log_start, 500);
	ck_assert_int_eq(sealed_list_write(dir_fd, &list), 0);
	expect_read(5, 12);
	ck_assert_int_eq(list.log_start, 500);
	ck_assert_int_eq(logkit_file_bytes(path), HEADER_BYTES + 8 * ENTRY_BYTES);
	/* Without an entry it is where the last one ended. */
	ck_assert_int_eq(sealed_list_note_start(dir_fd, 1101), 0);
	ck_assert_int_eq(read_list(), 0);
	ck_assert_int_eq(sealed_list_write(dir_fd, &list), 0);
	expect_read(12, 12);
	ck_assert_int_eq(list.log_start, 1200);
	end();
}
END_TEST

/* A list that cannot be told of what retention removes would miss it: it goes instead. `_i`: what fails. */
START_TEST(a_list_that_cannot_be_told_is_removed)
{
	const int failing[] = { CALL_PWRITE, CALL_FDATASYNC, CALL_OPEN, CALL_OPEN };

	begin();
	append(0, 10);
	logkit_set_fault((struct logkit_fault){ .call = failing[_i], .at = _i == 3 ? 2 : 1, .error = ENOSPC,
	    .aim = LOGKIT_AT_ALL });
	ck_assert_int_eq(sealed_list_note_start(dir_fd, 300), 0);
	ck_assert(logkit_fault_hit());
	ck_assert_int_eq(read_list(), -1);
	ck_assert_int_eq(errno, ENOENT);
	logkit_clear_fault();
	append(10, 12);
	expect_read(10, 12);
	/* Nor can that be done: nothing may be removed then. */
	logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = 1, .error = EROFS, .sticky = true,
	    .aim = LOGKIT_AT_ALL });
	ck_assert_int_eq(sealed_list_note_start(dir_fd, 300), -1);
	ck_assert_int_eq(errno, EROFS);
	logkit_clear_fault();
	expect_read(10, 12);
	end();
}
END_TEST

START_TEST(where_no_list_can_be_made_there_is_none_to_remove)
{
	begin();
	logkit_set_fault((struct logkit_fault){ .call = CALL_OPEN, .at = 2, .error = ENOSPC, .aim = LOGKIT_AT_ALL });
	ck_assert_int_eq(sealed_list_note_start(dir_fd, 300), 0);
	ck_assert(logkit_fault_hit());
	ck_assert_int_eq(read_list(), -1);
	ck_assert_int_eq(errno, ENOENT);
	ck_assert_int_eq(sealed_list_trim(dir_fd, 0), -1);
	ck_assert_int_eq(errno, ENOENT);
	end();
}
END_TEST

START_TEST(the_log_start_is_forced)
{
	begin();
	append(0, 10);
	logkit_set_fault((struct logkit_fault){ .aim = LOGKIT_AT_ALL });
	ck_assert_int_eq(sealed_list_note_start(dir_fd, 300), 0);
	ck_assert_int_eq(logkit_calls(CALL_FDATASYNC), 1);
	logkit_clear_fault();
	end();
}
END_TEST

/* ---- two jobs at once ---- */

enum { TWO_AT_ONCE_ROUNDS = 1000, FIRST_SEALED = TWO_AT_ONCE_ROUNDS / PER_SEGMENT };

/* The other one's turn comes between looking at the file and writing to it. */
static ssize_t
slow_pwrite(int fd, const void *from, size_t size, off_t position)
{
	sched_yield();
	return pwrite(fd, from, size, position);
}

static int
no_force(int fd)
{
	return fd == -1 ? -1 : 0;
}

static void *
retire_thread(void *failures)
{
	for (int64_t start = 1; start <= TWO_AT_ONCE_ROUNDS; start++)
		if (sealed_list_note_start(dir_fd, start) == -1 || sealed_list_trim(dir_fd, 1) == -1)
			++*(int *)failures;
	return NULL;
}

/* A roll and a removal by retention: neither may write over what the other one notes. */
START_TEST(a_roll_and_retention_write_to_it_at_once)
{
	const struct syscalls real = syscalls;
	pthread_t thread;
	int failures = 0;

	begin();
	syscalls.pwrite = slow_pwrite;
	syscalls.fdatasync = no_force;
	ck_assert_int_eq(pthread_create(&thread, NULL, retire_thread, &failures), 0);
	for (int64_t i = 0; i < TWO_AT_ONCE_ROUNDS; i++)
		append(FIRST_SEALED + i, FIRST_SEALED + i + 1);
	pthread_join(thread, NULL);
	ck_assert_int_eq(failures, 0);
	expect_read(FIRST_SEALED, FIRST_SEALED + TWO_AT_ONCE_ROUNDS);
	ck_assert_int_eq(list.log_start, TWO_AT_ONCE_ROUNDS);
	syscalls = real;
	end();
}
END_TEST

static void
expect_prefix(int64_t good_bytes)
{
	if (good_bytes < HEADER_BYTES)
		expect_refused();
	else
		expect_read(0, (good_bytes - HEADER_BYTES) / ENTRY_BYTES);
}

START_TEST(every_byte_flipped_or_cut)
{
	size_t bytes;
	uint8_t *whole;

	begin();
	append(0, 7);
	whole = logkit_read_file(path, &bytes);
	for (size_t i = 0; i <= bytes; i++) {
		logkit_write_file(path, whole, i);
		expect_prefix((int64_t)i);
		for (int bit = 0; bit < 8 && i < bytes; bit++) {
			whole[i] ^= (uint8_t)(1 << bit);
			logkit_write_file(path, whole, bytes);
			expect_prefix((int64_t)i);
			whole[i] ^= (uint8_t)(1 << bit);
		}
	}
	free(whole);
	end();
}
END_TEST

START_TEST(random_bytes_zeros_and_the_future)
{
	unsigned seed = (unsigned)time(NULL) * 2 + (unsigned)getpid();
	uint8_t garbage[2000], *whole;
	int64_t stray;
	size_t bytes;

	printf("random_bytes_zeros_and_the_future: seed %u\n", seed);
	fflush(stdout);
	srand(seed);
	begin();
	append(0, 7);
	whole = logkit_read_file(path, &bytes);
	for (int round = 0; round < 500; round++) {
		size_t size = (size_t)rand() % sizeof(garbage);

		for (size_t i = 0; i < size; i++)
			garbage[i] = round % 5 == 0 ? 0 : (uint8_t)rand();
		logkit_write_file(path, garbage, size);
		expect_refused();
		logkit_write_file(path, whole, bytes);
		logkit_change(path, (int64_t)bytes, garbage, size);
		expect_read(0, 7);
		sealed_list_free(&list);
		ck_assert_int_eq(sealed_list_read(dir_fd, &list, &stray), 0);
		ck_assert_int_eq(stray, size);
	}
	bytes_put_i32(whole + 8, 2);
	bytes_put_u32(whole + 12, crc32c(whole, 12));
	logkit_write_file(path, whole, bytes);
	expect_refused();
	free(whole);
	end();
}
END_TEST

START_TEST(what_cannot_be_is_not_believed)
{
	struct sealed_entry bad[] = { { -1, 5, 100, 0 }, { 10, 5, 100, 0 }, { 0, 5, -1, 0 }, { 0, 100, 499, 0 },
		{ 0, 5, 0, 0 }, { 5, 5, 100, 0 } };

	begin();
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		unlink(path);
		append(0, 3);
		ck_assert_int_eq(sealed_list_append(dir_fd, &bad[i], 1), 0);
		append(3, 4);
		expect_read(0, 3);
	}
	end();
}
END_TEST

/* A write that was cut short leaves a part of an entry: the next one stands in its place. */
START_TEST(a_torn_append_is_overwritten)
{
	begin();
	append(0, 3);
	for (int more = 1; more < ENTRY_BYTES; more++) {
		logkit_truncate(path, HEADER_BYTES + 3 * ENTRY_BYTES + more);
		append(3, 4);
		expect_read(0, 4);
		logkit_truncate(path, HEADER_BYTES + 3 * ENTRY_BYTES);
	}
	for (int size = 0; size < HEADER_BYTES; size++) {
		logkit_truncate(path, size);
		ck_assert_int_eq(try_append(3, 4), -1);
		ck_assert_int_eq(errno, EBADMSG);
	}
	end();
}
END_TEST

/* The same six segments again and again: most of the list is stale. */
static void
append_often(void)
{
	for (int i = 0; i < 20; i++)
		append(0, 6);
}

/* `_i`: an append to a list that is there, one that begins it, writing it anew, removing what is stale. */
static int
change_list(int how)
{
	struct sealed_list all = { 0 };
	int done;

	if (how < 2)
		return try_append(how == 0 ? 3 : 0, 6);
	if (how == 3)
		return sealed_list_trim(dir_fd, 6);
	for (int64_t i = 0; i < 6; i++) {
		struct sealed_entry entry = entry_at(i);

		ck_assert_int_eq(sealed_list_add(&all, &entry), 0);
	}
	done = sealed_list_write(dir_fd, &all);
	sealed_list_free(&all);
	return done;
}

START_TEST(a_failed_write_leaves_what_was_there)
{
	for (int call = 0; call < CALL_COUNT; call++)
		for (int at = 1;; at++) {
			int fds, done;
			bool hit;

			begin();
			fds = logkit_open_descriptors();
			if (_i != 1)
				append(0, 3);
			if (_i == 3)
				append_often();
			logkit_set_fault((struct logkit_fault){ .call = call, .at = at, .error = ENOSPC, .aim = LOGKIT_AT_ALL });
			done = change_list(_i);
			hit = logkit_fault_hit();
			logkit_clear_fault();
			if (done == -1) {
				ck_assert(hit);
				ck_assert_int_eq(errno, ENOSPC);
				if (_i == 1)
					ck_assert_int_eq(read_list(), -1);
				else
					/* A write that fails has written half: that may be whole entries. */
					ck_assert(read_list() == 0 && list.count >= 3);
				ck_assert_int_eq(change_list(_i), 0);
			}
			expect_read(0, 6);
			ck_assert_int_eq(logkit_count_files(&kit, ".tmp"), 0);
			ck_assert_int_eq(logkit_open_descriptors(), fds);
			end();
			if (!hit)
				break;
		}
}
END_TEST

START_TEST(a_crash_at_any_call_leaves_what_was_there)
{
	for (int at = 1;; at++) {
		int status;
		pid_t child;

		begin();
		if (_i != 1)
			append(0, 3);
		if (_i == 3)
			append_often();
		child = fork();
		if (child == 0) {
			logkit_set_fault((struct logkit_fault){ .call = LOGKIT_ANY, .at = at, .error = LOGKIT_EXIT, .aim = LOGKIT_AT_ALL });
			_exit(change_list(_i) == 0 ? 0 : 1);
		}
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert(WIFEXITED(status));
		if (_i != 1)
			ck_assert(read_list() == 0 && list.count >= 3);
		ck_assert_int_eq(change_list(_i), 0);
		expect_read(0, 6);
		end();
		if (WEXITSTATUS(status) == 0)
			break;
		ck_assert_int_eq(WEXITSTATUS(status), 77);
	}
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("sealed list");
	TCase *tests = tcase_create("sealed list");

	tcase_set_timeout(tests, 60);
	suite_add_tcase(suite, tests);
	tcase_add_test(tests, what_is_written_comes_back);
	tcase_add_test(tests, an_entry_is_found);
	tcase_add_test(tests, later_entries_overtake);
	tcase_add_test(tests, the_log_start_is_remembered);
	tcase_add_loop_test(tests, a_list_that_cannot_be_told_is_removed, 0, 4);
	tcase_add_test(tests, where_no_list_can_be_made_there_is_none_to_remove);
	tcase_add_test(tests, the_log_start_is_forced);
	tcase_add_test(tests, a_roll_and_retention_write_to_it_at_once);
	tcase_add_test(tests, every_byte_flipped_or_cut);
	tcase_add_test(tests, random_bytes_zeros_and_the_future);
	tcase_add_test(tests, what_cannot_be_is_not_believed);
	tcase_add_test(tests, a_torn_append_is_overwritten);
	tcase_add_loop_test(tests, a_failed_write_leaves_what_was_there, 0, 4);
	tcase_add_loop_test(tests, a_crash_at_any_call_leaves_what_was_there, 0, 4);
	return unit_run(suite);
}
