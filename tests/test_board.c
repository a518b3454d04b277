/*
 * The board: its memory cannot be taken away or written by readers, and nobody ever sees a log start or a durable end
 * above the high watermark. Also to be run under ThreadSanitizer.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/board.h"
#include "tests/unit.h"

enum { SLOTS = 3, SEEN = 20000 };

static int fd, reader_fd;
static struct board board;

static void
begin(void)
{
	fd = board_create(SLOTS);
	ck_assert_int_ge(fd, 0);
	reader_fd = board_reopen_read_only(fd);
	ck_assert_int_ge(reader_fd, 0);
	ck_assert_int_eq(board_map(&board, fd, SLOTS, true), 0);
}

static void
end(void)
{
	board_unmap(&board);
	close(fd);
	close(reader_fd);
}

START_TEST(new_and_zero)
{
	const uint8_t *bytes = (const uint8_t *)board.worker;
	struct board other;
	int empty = board_create(0);

	ck_assert_int_eq(board.slot_count, SLOTS);
	for (size_t i = 0; i < board.mapped_bytes; i++)
		ck_assert_uint_eq(bytes[i], 0);
	ck_assert_int_eq(atomic_load(&board.slots[0].state), BOARD_NEVER_OPENED);
	ck_assert((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
	ck_assert((fcntl(reader_fd, F_GETFD) & FD_CLOEXEC) != 0);
	/* A worker without partitions has a board, too. */
	ck_assert_int_eq(board_map(&other, empty, 0, true), 0);
	board_unmap(&other);
	close(empty);
}
END_TEST

START_TEST(slots_have_cache_lines_of_their_own)
{
	ck_assert_uint_eq((uintptr_t)board.slots % 64, 0);
	ck_assert_uint_eq(sizeof(struct board_partition) % 64, 0);
	ck_assert_uint_eq(sizeof(struct board_worker) % 64, 0);
	/* What changes with each append and what only scrapes read do not share one. */
	ck_assert_uint_ge(offsetof(struct board_partition, produced_records), 64);
	ck_assert_ptr_eq((char *)&board.slots[SLOTS], (char *)board.worker + board.mapped_bytes);
}
END_TEST

START_TEST(nobody_can_take_the_memory_away)
{
	struct stat st;

	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(ftruncate(fd, 1 << 20), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(fcntl(reader_fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_uint_eq((size_t)st.st_size, board.mapped_bytes);
}
END_TEST

START_TEST(a_reader_cannot_write)
{
	struct board other;
	char byte = 1;

	ck_assert_int_eq(board_map(&other, reader_fd, SLOTS, true), -1);
	ck_assert_int_eq(errno, EACCES);
	ck_assert_ptr_eq(mmap(NULL, board.mapped_bytes, PROT_WRITE, MAP_SHARED, reader_fd, 0), MAP_FAILED);
	ck_assert_int_eq(pwrite(reader_fd, &byte, 1, 0), -1);
	ck_assert_int_eq(board_map(&other, reader_fd, SLOTS, false), 0);
	ck_assert_int_eq(mprotect(other.worker, other.mapped_bytes, PROT_READ | PROT_WRITE), -1);
	ck_assert_int_eq(errno, EACCES);
	board_unmap(&other);
	ck_assert_ptr_null(other.worker);
	board_unmap(&other);
}
END_TEST

START_TEST(a_board_of_another_size_is_refused)
{
	struct board other;

	ck_assert_int_eq(board_map(&other, reader_fd, SLOTS + 1, false), -1);
	ck_assert_int_eq(errno, EPROTO);
	ck_assert_int_eq(board_map(&other, reader_fd, SLOTS - 1, false), -1);
	ck_assert_int_eq(errno, EPROTO);
	ck_assert_int_eq(board_map(&other, -1, SLOTS, false), -1);
	ck_assert_int_eq(errno, EBADF);
}
END_TEST

START_TEST(readers_see_what_is_published)
{
	int64_t log_start, high_watermark, durable_end;
	struct board other;

	ck_assert_int_eq(board_map(&other, reader_fd, SLOTS, false), 0);
	board_publish(&board.slots[1], 5, 1000, 900);
	board_read(&other.slots[1], &log_start, &high_watermark, &durable_end);
	ck_assert_int_eq(log_start, 5);
	ck_assert_int_eq(high_watermark, 1000);
	ck_assert_int_eq(durable_end, 900);
	board_read(&other.slots[0], &log_start, &high_watermark, &durable_end);
	ck_assert_int_eq(log_start + high_watermark + durable_end, 0);
	board_read(&other.slots[2], &log_start, &high_watermark, &durable_end);
	ck_assert_int_eq(log_start + high_watermark + durable_end, 0);
	board_add(&board.slots[1].produced_records, 3);
	board_add(&board.slots[1].produced_records, 4);
	ck_assert_int_eq(board_get(&other.slots[1].produced_records), 7);
	board_set(&board.slots[1].segments, 9);
	ck_assert_int_eq(board_get(&other.slots[1].segments), 9);
	board_unmap(&other);
}
END_TEST

/* ---- The order that readers see, with start, durable end and high watermark all moving at once ---- */

static atomic_int readers_at_work;
static atomic_int wrong;

/* Looks until it has seen enough different watermarks; returns false at the first wrong sight. */
static bool
watch(const struct board_partition *slot)
{
	int64_t last_start = 0, last_high = 0;

	for (int seen = 0; seen < SEEN;) {
		int64_t log_start, high_watermark, durable_end;

		board_read(slot, &log_start, &high_watermark, &durable_end);
		if (log_start > high_watermark || durable_end > high_watermark)
			return false;
		if (log_start < last_start || high_watermark < last_high)
			return false;
		seen += high_watermark != last_high;
		last_start = log_start;
		last_high = high_watermark;
	}
	return true;
}

static void *
watch_thread(void *argument)
{
	if (!watch(argument))
		atomic_fetch_add(&wrong, 1);
	atomic_fetch_sub(&readers_at_work, 1);
	return NULL;
}

START_TEST(a_reader_thread_never_sees_start_above_high)
{
	pthread_t threads[2];

	atomic_store(&readers_at_work, 2);
	for (size_t i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, watch_thread, &board.slots[0]), 0);
	for (int64_t end_offset = 1; atomic_load(&readers_at_work) > 0; end_offset++)
		board_publish(&board.slots[0], end_offset, end_offset, end_offset);
	for (size_t i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(atomic_load(&wrong), 0);
}
END_TEST

START_TEST(a_reader_process_never_sees_start_above_high)
{
	struct board other;
	int status = 0;
	pid_t child = fork();

	if (child == 0)
		_exit(board_map(&other, reader_fd, SLOTS, false) == 0 && watch(&other.slots[2]) ? 0 : 1);
	ck_assert_int_gt(child, 0);
	for (int64_t end_offset = 1; waitpid(child, &status, WNOHANG) == 0; end_offset++)
		for (int i = 0; i < 1000; i++)
			board_publish(&board.slots[2], end_offset * 1000 + i, end_offset * 1000 + i, end_offset * 1000 + i);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

/* ---- Counters ---- */

START_TEST(durations_fall_into_their_buckets)
{
	struct board_histogram *h = &board.worker->fsync_duration;

	for (int i = 0; i < BOARD_BUCKETS - 1; i++) {
		ck_assert(i == 0 || board_bucket_us[i] > board_bucket_us[i - 1]);
		board_observe(h, board_bucket_us[i] * 1000);
		ck_assert_int_eq(board_get(&h->buckets[i]), i == 0 ? 1 : 2);
		board_observe(h, board_bucket_us[i] * 1000 + 1);
		ck_assert_int_eq(board_get(&h->buckets[i + 1]), 1);
	}
	board_observe(h, 0);
	board_observe(h, INT64_MAX / 2);
	ck_assert_int_eq(board_get(&h->buckets[0]), 2);
	ck_assert_int_eq(board_get(&h->buckets[BOARD_BUCKETS - 1]), 2);
}
END_TEST

START_TEST(durations_are_summed)
{
	struct board_histogram *h = &board.worker->request_duration[BOARD_FETCH];

	board_observe(h, 1500);
	board_observe(h, 2500);
	ck_assert_int_eq(board_get(&h->sum_ns), 4000);
	ck_assert_int_eq(board_get(&board.worker->request_duration[BOARD_PRODUCE].sum_ns), 0);
}
END_TEST

START_TEST(gauges_of_a_dead_worker_are_cleared_and_nothing_else)
{
	int64_t log_start, high_watermark, durable_end;

	board_publish(&board.slots[0], 1, 3, 2);
	board_set(&board.worker->heartbeat_ns, 1);
	board_set(&board.worker->fetch_held, 2);
	board_set(&board.worker->buffered_bytes, 3);
	board_set(&board.worker->recovered_bytes, 6);
	board_add(&board.worker->handoffs, 4);
	board_add(&board.worker->requests[BOARD_PRODUCE][CODEC_NONE], 5);
	board_clear_gauges(&board);
	ck_assert_int_eq(board_get(&board.worker->heartbeat_ns), 0);
	ck_assert_int_eq(board_get(&board.worker->fetch_held), 0);
	ck_assert_int_eq(board_get(&board.worker->buffered_bytes), 0);
	ck_assert_int_eq(board_get(&board.worker->recovered_bytes), 0);
	ck_assert_int_eq(board_get(&board.worker->handoffs), 4);
	ck_assert_int_eq(board_get(&board.worker->requests[BOARD_PRODUCE][CODEC_NONE]), 5);
	board_read(&board.slots[0], &log_start, &high_watermark, &durable_end);
	ck_assert_int_eq(high_watermark, 3);
}
END_TEST

/* The successor writes it from now on; what the old one still counts is seen by itself alone, at the places that it knows. */
START_TEST(D03_a_board_that_is_let_go_of)
{
	const struct board_partition *slot = &board.slots[SLOTS - 1];
	int64_t log_start, high_watermark, durable_end;
	struct board next;

	ck_assert_int_eq(board_map(&next, fd, SLOTS, true), 0);
	board_add(&board.worker->handoffs, 4);
	board_publish(&board.slots[SLOTS - 1], 1, 3, 2);
	ck_assert_int_eq(board_detach(&board), 0);
	board_add(&next.worker->handoffs, 10);
	board_publish(&next.slots[SLOTS - 1], 5, 7, 6);
	board_add(&board.worker->handoffs, 1);
	board_read(slot, &log_start, &high_watermark, &durable_end);
	ck_assert_int_eq(high_watermark, 3);
	board_publish(&board.slots[SLOTS - 1], 0, 0, 0);
	ck_assert_int_eq(board_get(&board.worker->handoffs), 5);
	ck_assert_int_eq(board_get(&next.worker->handoffs), 14);
	board_read(&next.slots[SLOTS - 1], &log_start, &high_watermark, &durable_end);
	ck_assert_int_eq(log_start, 5);
	ck_assert_int_eq(high_watermark, 7);
	ck_assert_int_eq(durable_end, 6);
	board_unmap(&next);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("board");
	TCase *tests = tcase_create("board");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(tests, begin, end);
	tcase_add_test(tests, new_and_zero);
	tcase_add_test(tests, slots_have_cache_lines_of_their_own);
	tcase_add_test(tests, nobody_can_take_the_memory_away);
	tcase_add_test(tests, a_reader_cannot_write);
	tcase_add_test(tests, a_board_of_another_size_is_refused);
	tcase_add_test(tests, readers_see_what_is_published);
	tcase_add_test(tests, a_reader_thread_never_sees_start_above_high);
	tcase_add_test(tests, a_reader_process_never_sees_start_above_high);
	tcase_add_test(tests, durations_fall_into_their_buckets);
	tcase_add_test(tests, durations_are_summed);
	tcase_add_test(tests, gauges_of_a_dead_worker_are_cleared_and_nothing_else);
	tcase_add_test(tests, D03_a_board_that_is_let_go_of);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
