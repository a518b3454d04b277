/*
 * Jobs: run on threads, finished in the loop, first come first run. Also to be run under ThreadSanitizer. The loop here
 * is poll on the descriptor.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tests/unit.h"
#include "worker/jobs.h"

enum { MANY = 2000 };

struct test_job {
	struct job job;
	int number;
	int left;		/* times to be submitted again */
	int64_t result;		/* written by the thread, read in the loop, without a lock of its own */
	pthread_t ran_on;
	bool done;
};

static struct jobs *jobs;
static pthread_t loop_thread;
static struct test_job list[MANY];
static int done_count;

/* A gate that jobs wait at, and how many stand there. */
static pthread_mutex_t gate_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static int gate_waiting, gate_waiting_most;
static bool gate_open;

static int order[MANY];
static atomic_int order_next;

static void
begin(void)
{
	jobs = jobs_new();
	ck_assert_ptr_nonnull(jobs);
	loop_thread = pthread_self();
	done_count = 0;
	gate_open = false;
	gate_waiting = gate_waiting_most = 0;
	atomic_store(&order_next, 0);
}

static void
end(void)
{
	jobs_free(jobs);
}

static void
submit(struct test_job *t, void (*run)(struct job *), void (*done)(struct job *))
{
	t->job = (struct job){ run, done, NULL };
	jobs_submit(jobs, &t->job);
}

static void
submit_read(struct test_job *t, void (*run)(struct job *), void (*done)(struct job *))
{
	t->job = (struct job){ run, done, NULL };
	jobs_submit_read(jobs, &t->job);
}

static void
collect_until(int count)
{
	while (done_count < count) {
		struct pollfd p = { .fd = jobs_fd(jobs), .events = POLLIN };

		ck_assert_int_eq(poll(&p, 1, -1), 1);
		jobs_collect(jobs);
	}
}

static void
run_square(struct job *job)
{
	struct test_job *t = (struct test_job *)job;

	t->ran_on = pthread_self();
	t->result = (int64_t)t->number * t->number;
}

static void
count_done(struct job *job)
{
	struct test_job *t = (struct test_job *)job;

	ck_assert(pthread_equal(pthread_self(), loop_thread));
	ck_assert(!t->done);
	t->done = true;
	done_count++;
}

static void
run_gate(struct job *job)
{
	(void)job;
	pthread_mutex_lock(&gate_mutex);
	gate_waiting++;
	if (gate_waiting > gate_waiting_most)
		gate_waiting_most = gate_waiting;
	pthread_cond_broadcast(&gate_changed);
	while (!gate_open)
		pthread_cond_wait(&gate_changed, &gate_mutex);
	gate_waiting--;
	pthread_mutex_unlock(&gate_mutex);
}

static void
wait_for_waiting(int count)
{
	pthread_mutex_lock(&gate_mutex);
	while (gate_waiting < count)
		pthread_cond_wait(&gate_changed, &gate_mutex);
	pthread_mutex_unlock(&gate_mutex);
}

static void
open_gate(void)
{
	pthread_mutex_lock(&gate_mutex);
	gate_open = true;
	pthread_cond_broadcast(&gate_changed);
	pthread_mutex_unlock(&gate_mutex);
}

static void
run_note_order(struct job *job)
{
	order[atomic_fetch_add(&order_next, 1)] = ((struct test_job *)job)->number;
}

START_TEST(many_jobs_each_once_on_another_thread)
{
	for (int i = 0; i < MANY; i++) {
		list[i] = (struct test_job){ .number = i };
		submit(&list[i], run_square, count_done);
		if (i % 97 == 0)
			jobs_collect(jobs);
	}
	collect_until(MANY);
	ck_assert_uint_eq(jobs_outstanding(jobs), 0);
	for (int i = 0; i < MANY; i++) {
		ck_assert(list[i].done);
		ck_assert_int_eq(list[i].result, (int64_t)i * i);
		ck_assert(!pthread_equal(list[i].ran_on, loop_thread));
	}
}
END_TEST

START_TEST(nothing_is_done_before_collect)
{
	struct pollfd p = { .fd = jobs_fd(jobs), .events = POLLIN };

	ck_assert_int_eq(poll(&p, 1, 0), 0);
	jobs_collect(jobs);
	list[0] = (struct test_job){ .number = 3 };
	submit(&list[0], run_square, count_done);
	ck_assert_uint_eq(jobs_outstanding(jobs), 1);
	ck_assert_int_eq(poll(&p, 1, -1), 1);
	ck_assert(!list[0].done);
	ck_assert_uint_eq(jobs_outstanding(jobs), 1);
	jobs_collect(jobs);
	ck_assert(list[0].done);
	ck_assert_uint_eq(jobs_outstanding(jobs), 0);
	/* It has been told once and does not stay readable. */
	ck_assert_int_eq(poll(&p, 1, 0), 0);
}
END_TEST

/* Each needs all others to run at the same time: a thread that was not started would be a deadlock. */
START_TEST(as_many_at_once_as_there_may_be_threads)
{
	for (int i = 0; i < JOBS_THREADS_MAX; i++) {
		list[i] = (struct test_job){ .number = i };
		submit(&list[i], run_gate, count_done);
	}
	wait_for_waiting(JOBS_THREADS_MAX);
	open_gate();
	collect_until(JOBS_THREADS_MAX);
}
END_TEST

/* The same when some threads are there already and idle: one that has been given a job must not count as idle again. */
START_TEST(idle_threads_are_counted_once)
{
	for (int round = 0; round < 200; round += unit_sample()) {
		jobs_free(jobs);
		begin();
		for (int i = 0; i < 3; i++) {
			list[i] = (struct test_job){ .number = i };
			submit(&list[i], run_square, count_done);
		}
		collect_until(3);
		for (int i = 0; i < JOBS_THREADS_MAX; i++) {
			list[i] = (struct test_job){ .number = i };
			submit(&list[i], run_gate, count_done);
		}
		wait_for_waiting(JOBS_THREADS_MAX);
		open_gate();
		collect_until(3 + JOBS_THREADS_MAX);
	}
}
END_TEST

START_TEST(never_more_than_may_be)
{
	for (int i = 0; i < 50; i++) {
		list[i] = (struct test_job){ .number = i };
		submit(&list[i], run_gate, count_done);
	}
	wait_for_waiting(JOBS_THREADS_MAX);
	ck_assert_uint_eq(jobs_outstanding(jobs), 50);
	open_gate();
	collect_until(50);
	ck_assert_int_le(gate_waiting_most, JOBS_THREADS_MAX);
}
END_TEST

/* All threads but one stand at the gate: the one that is left shows the order. */
START_TEST(first_come_first_run)
{
	struct test_job gates[JOBS_THREADS_MAX - 1];

	for (int i = 0; i < JOBS_THREADS_MAX - 1; i++) {
		gates[i] = (struct test_job){ .number = i };
		submit(&gates[i], run_gate, count_done);
	}
	wait_for_waiting(JOBS_THREADS_MAX - 1);
	for (int i = 0; i < MANY; i++) {
		list[i] = (struct test_job){ .number = i };
		submit(&list[i], run_note_order, count_done);
	}
	collect_until(MANY);
	for (int i = 0; i < MANY; i++)
		ck_assert_int_eq(order[i], i);
	open_gate();
	collect_until(MANY + JOBS_THREADS_MAX - 1);
}
END_TEST

/* Reads that hang leave the other threads to the other jobs, all of them. */
START_TEST(reads_never_take_all_threads)
{
	enum { READS = 30, OTHERS = JOBS_THREADS_MAX - JOBS_READS_MAX };
	struct test_job others[OTHERS];

	for (int i = 0; i < READS; i++) {
		list[i] = (struct test_job){ .number = i };
		submit_read(&list[i], run_gate, count_done);
	}
	wait_for_waiting(JOBS_READS_MAX);
	for (int i = 0; i < MANY - READS; i++) {
		list[READS + i] = (struct test_job){ .number = i };
		submit(&list[READS + i], run_square, count_done);
	}
	collect_until(MANY - READS);
	ck_assert_int_eq(gate_waiting_most, JOBS_READS_MAX);
	for (int i = 0; i < OTHERS; i++) {
		others[i] = (struct test_job){ .number = i };
		submit(&others[i], run_gate, count_done);
	}
	wait_for_waiting(JOBS_THREADS_MAX);
	open_gate();
	collect_until(MANY + OTHERS);
	ck_assert_int_le(gate_waiting_most, JOBS_THREADS_MAX);
}
END_TEST

/* Each read needs the others to run at the same time, whatever else is idle or busy. */
START_TEST(as_many_reads_at_once_as_there_may_be)
{
	for (int round = 0; round < 200; round += unit_sample()) {
		jobs_free(jobs);
		begin();
		list[0] = (struct test_job){ .number = 0 };
		submit(&list[0], run_square, count_done);
		if (round % 2 == 0)
			collect_until(1);
		for (int i = 1; i <= JOBS_READS_MAX; i++) {
			list[i] = (struct test_job){ .number = i };
			submit_read(&list[i], run_gate, count_done);
		}
		wait_for_waiting(JOBS_READS_MAX);
		open_gate();
		collect_until(1 + JOBS_READS_MAX);
	}
}
END_TEST

/* All reads but one stand at the gate: the one that is left shows the order. */
START_TEST(reads_too_come_in_order)
{
	struct test_job gates[JOBS_READS_MAX - 1];

	for (int i = 0; i < JOBS_READS_MAX - 1; i++) {
		gates[i] = (struct test_job){ .number = i };
		submit_read(&gates[i], run_gate, count_done);
	}
	wait_for_waiting(JOBS_READS_MAX - 1);
	for (int i = 0; i < MANY; i++) {
		list[i] = (struct test_job){ .number = i };
		submit_read(&list[i], run_note_order, count_done);
	}
	collect_until(MANY);
	for (int i = 0; i < MANY; i++)
		ck_assert_int_eq(order[i], i);
	open_gate();
	collect_until(MANY + JOBS_READS_MAX - 1);
}
END_TEST

static void
again(struct job *job)
{
	struct test_job *t = (struct test_job *)job;

	ck_assert(pthread_equal(pthread_self(), loop_thread));
	done_count++;
	if (t->left-- > 0)
		submit(t, run_square, again);
}

START_TEST(a_job_may_be_submitted_again_in_its_done)
{
	list[0] = (struct test_job){ .number = 7, .left = 500 };
	list[1] = (struct test_job){ .number = 8, .left = 500 };
	submit(&list[0], run_square, again);
	submit(&list[1], run_square, again);
	collect_until(2 * 501);
	ck_assert_uint_eq(jobs_outstanding(jobs), 0);
}
END_TEST

static void
free_job(struct job *job)
{
	done_count++;
	free(job);
}

START_TEST(a_job_may_be_freed_in_its_done)
{
	for (int i = 0; i < 200; i++) {
		struct test_job *t = calloc(1, sizeof(*t));

		t->number = i;
		submit(t, run_square, free_job);
	}
	collect_until(200);
}
END_TEST

static void
run_look_at_signals(struct job *job)
{
	sigset_t blocked;

	pthread_sigmask(SIG_SETMASK, NULL, &blocked);
	((struct test_job *)job)->result = sigismember(&blocked, SIGTERM) && sigismember(&blocked, SIGINT) &&
	    sigismember(&blocked, SIGHUP);
}

START_TEST(signals_belong_to_the_loop)
{
	sigset_t before, after;

	pthread_sigmask(SIG_SETMASK, NULL, &before);
	list[0] = (struct test_job){ .number = 0 };
	submit(&list[0], run_look_at_signals, count_done);
	pthread_sigmask(SIG_SETMASK, NULL, &after);
	collect_until(1);
	ck_assert_int_eq(list[0].result, 1);
	ck_assert_int_eq(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
}
END_TEST

START_TEST(a_set_leaves_nothing_behind)
{
	int before = unit_open_descriptors();
	struct jobs *other = jobs_new();

	ck_assert_ptr_nonnull(other);
	jobs_free(other);
	ck_assert_int_eq(unit_open_descriptors(), before);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("jobs");
	TCase *tests = tcase_create("jobs");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(tests, begin, end);
	tcase_add_test(tests, many_jobs_each_once_on_another_thread);
	tcase_add_test(tests, nothing_is_done_before_collect);
	tcase_add_test(tests, as_many_at_once_as_there_may_be_threads);
	tcase_add_test(tests, idle_threads_are_counted_once);
	tcase_add_test(tests, never_more_than_may_be);
	tcase_add_test(tests, first_come_first_run);
	tcase_add_test(tests, reads_never_take_all_threads);
	tcase_add_test(tests, as_many_reads_at_once_as_there_may_be);
	tcase_add_test(tests, reads_too_come_in_order);
	tcase_add_test(tests, a_job_may_be_submitted_again_in_its_done);
	tcase_add_test(tests, a_job_may_be_freed_in_its_done);
	tcase_add_test(tests, signals_belong_to_the_loop);
	tcase_add_test(tests, a_set_leaves_nothing_behind);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
