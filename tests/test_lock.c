/* The lock on the data directory, between real processes. */
#include "supervisor/lock.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/lockfile.h"
#include "common/log.h"
#include "tests/unit.h"

static char directory[64];
static char data_dir[128];
static int saved_stderr;
static FILE *said;

static int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *place)
{
	(void)st;
	(void)type;
	(void)place;
	return remove(path);
}

static void
set_up(void)
{
	strcpy(directory, "/tmp/test_lock-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(data_dir, sizeof(data_dir), "%s/data", directory);
	/* What it logs is looked at. */
	said = tmpfile();
	ck_assert_ptr_nonnull(said);
	saved_stderr = dup(STDERR_FILENO);
	dup2(fileno(said), STDERR_FILENO);
	log_open("supervisor", LOG_INFO);
	umask(0027);
}

static void
tear_down(void)
{
	dup2(saved_stderr, STDERR_FILENO);
	fclose(said);
	nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static bool
has_said(const char *text)
{
	static char all[8192];
	ssize_t n = pread(fileno(said), all, sizeof(all) - 1, 0);

	all[n > 0 ? n : 0] = '\0';
	return strstr(all, text) != NULL;
}

struct holder {
	pid_t pid;
	int until;	/* write end of a pipe: closed, it ends */
};

/* A process by the name of `name` that takes the lock and waits. */
static struct holder
hold(const char *name)
{
	struct holder holder;
	int up[2], down[2];
	char byte;

	ck_assert(pipe2(up, O_CLOEXEC) == 0 && pipe2(down, O_CLOEXEC) == 0);
	holder.pid = fork();
	if (holder.pid == 0) {
		struct lock lock;

		prctl(PR_SET_NAME, name);
		close(down[1]);
		if (lock_take(&lock, data_dir) != LOCK_TAKEN)
			_exit(1);
		if (write(up[1], "x", 1) != 1 || read(down[0], &byte, 1) != 0)
			_exit(1);
		_exit(0);
	}
	close(up[1]);
	close(down[0]);
	ck_assert_int_eq(read(up[0], &byte, 1), 1);
	close(up[0]);
	holder.until = down[1];
	return holder;
}

static void
reap(struct holder *holder)
{
	close(holder->until);
	ck_assert_int_eq(waitpid(holder->pid, NULL, 0), holder->pid);
}

START_TEST(makes_the_directory_and_the_file)
{
	struct lock lock;
	struct stat st;
	char path[256], text[256] = "";
	pid_t pid = 0;
	FILE *file;

	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_TAKEN);
	ck_assert_int_eq(stat(data_dir, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0750);
	ck_assert_int_eq(lock.data_dir[0], '/');
	snprintf(path, sizeof(path), "%s/lock", data_dir);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0640);
	ck_assert_int_eq(st.st_size, LOCKFILE_LINE_BYTES);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fread(text, 1, sizeof(text) - 1, file), LOCKFILE_LINE_BYTES);
	fclose(file);
	ck_assert_int_eq(sscanf(text, "%d", &pid), 1);
	ck_assert_int_eq(pid, getpid());
	ck_assert_int_eq(text[LOCKFILE_LINE_BYTES - 1], '\n');
	lock_free(&lock);
}
END_TEST

/* Of what an earlier broker has left there is nothing in the way, and nothing to be taken for true. */
START_TEST(old_lines_are_gone)
{
	struct lock lock;
	struct stat st;
	char path[256];

	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_TAKEN);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(lockfile_sign_worker(lock.descriptor, i), 0);
	lock_free(&lock);
	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_TAKEN);
	snprintf(path, sizeof(path), "%s/lock", data_dir);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_size, LOCKFILE_LINE_BYTES);
	lock_free(&lock);
}
END_TEST

START_TEST(a_missing_parent_is_named)
{
	struct lock lock;
	char path[256];

	snprintf(path, sizeof(path), "%s/none/data", directory);
	ck_assert_int_eq(lock_take(&lock, path), LOCK_FAILED);
	ck_assert(has_said(path));
	ck_assert(has_said("its parent must exist"));
}
END_TEST

START_TEST(bug_H11_the_holder_is_named)
{
	struct holder holder = hold("logsupervisor");
	char text[64];
	struct lock lock;

	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_HELD);
	snprintf(text, sizeof(text), "pid %d supervisor", (int)holder.pid);
	ck_assert(has_said(text));
	reap(&holder);
	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_TAKEN);
	lock_free(&lock);
}
END_TEST

START_TEST(bug_H11_not_stale_after_a_kill)
{
	struct holder holder = hold("logsupervisor");
	struct lock lock;

	kill(holder.pid, SIGKILL);
	reap(&holder);
	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_TAKEN);
	lock_free(&lock);
}
END_TEST

/* The supervisor is dead and not even reaped, a worker of it still runs and holds the lock. */
START_TEST(a_zombie_is_not_named_and_a_worker_is)
{
	struct holder holder;
	struct lock lock;
	siginfo_t info;
	char text[64];
	pid_t worker;
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	/* The worker inherits the lock's description from the one who took it: here, from a supervisor that dies. */
	holder.pid = fork();
	if (holder.pid == 0) {
		prctl(PR_SET_NAME, "logsupervisor");
		if (lock_take(&lock, data_dir) != LOCK_TAKEN)
			_exit(1);
		worker = fork();
		if (worker == 0) {
			prctl(PR_SET_NAME, "logworker");
			/* The last of many, behind a hole where the others have never run. */
			if (lockfile_sign_worker(lock.descriptor, 1023) != 0)
				_exit(1);
			worker = getpid();
			if (write(ends[1], &worker, sizeof(worker)) != (ssize_t)sizeof(worker))
				_exit(1);
			pause();
			_exit(0);
		}
		_exit(0);
	}
	ck_assert_int_eq(read(ends[0], &worker, sizeof(worker)), (ssize_t)sizeof(worker));
	ck_assert_int_eq(waitid(P_PID, (id_t)holder.pid, &info, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_HELD);
	snprintf(text, sizeof(text), "pid %d worker 1023 still running", (int)worker);
	ck_assert(has_said(text));
	snprintf(text, sizeof(text), "%d supervisor", (int)holder.pid);
	ck_assert(!has_said(text));
	kill(worker, SIGKILL);
	waitpid(holder.pid, NULL, 0);
	while (kill(worker, 0) == 0 && lock_take(&lock, data_dir) == LOCK_HELD)
		;
	if (lock.descriptor < 0)
		ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_TAKEN);
	lock_free(&lock);
}
END_TEST

/* A process of worker `number`: signs, and says so by ending the wait of whoever started it. */
static struct holder
sign(const struct lock *lock, int number)
{
	struct holder holder;
	int up[2], down[2];
	char byte;

	ck_assert(pipe2(up, O_CLOEXEC) == 0 && pipe2(down, O_CLOEXEC) == 0);
	holder.pid = fork();
	if (holder.pid == 0) {
		close(down[1]);
		prctl(PR_SET_NAME, "logworker");
		if (lockfile_sign_worker(lock->descriptor, number) != 0)
			_exit(1);
		close(up[1]);
		_exit(read(down[0], &byte, 1) != 0);
	}
	close(up[1]);
	close(down[0]);
	ck_assert_int_eq(read(up[0], &byte, 1), 0);
	close(up[0]);
	holder.until = down[1];
	return holder;
}

static void
end_signer(struct holder *holder)
{
	kill(holder->pid, SIGKILL);
	reap(holder);
}

/* One that has the logs, one that finishes, one that is next: none hides another, and lines of dead ones are used again. */
START_TEST(D06_each_process_of_a_worker_is_named)
{
	struct holder of_0[LOCKFILE_LINES_OF_WORKER], of_1;
	char names[256], text[256];
	struct lock lock;
	struct stat before, after;

	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_TAKEN);
	of_1 = sign(&lock, 1);
	for (int i = 0; i < LOCKFILE_LINES_OF_WORKER; i++)
		of_0[i] = sign(&lock, 0);
	ck_assert_int_eq(fstat(lock.descriptor, &before), 0);
	for (int round = 0; round < 2 * LOCKFILE_LINES_OF_WORKER; round++) {
		int next = round % LOCKFILE_LINES_OF_WORKER;

		ck_assert_int_eq(lockfile_holders(lock.descriptor, names, sizeof(names)), LOCKFILE_LINES_OF_WORKER + 1);
		snprintf(text, sizeof(text), "%d worker 0, %d worker 0, %d worker 0, %d worker 1", (int)of_0[0].pid,
		    (int)of_0[1].pid, (int)of_0[2].pid, (int)of_1.pid);
		ck_assert_str_eq(names, text);
		end_signer(&of_0[next]);
		ck_assert_int_eq(lockfile_holders(lock.descriptor, names, sizeof(names)), LOCKFILE_LINES_OF_WORKER);
		of_0[next] = sign(&lock, 0);
	}
	ck_assert_int_eq(fstat(lock.descriptor, &after), 0);
	ck_assert_int_eq(before.st_size, after.st_size);
	for (int i = 0; i < LOCKFILE_LINES_OF_WORKER; i++)
		end_signer(&of_0[i]);
	end_signer(&of_1);
	lock_free(&lock);
}
END_TEST

START_TEST(a_look_tells_whether_it_is_held_and_holds_nothing)
{
	struct holder holder = hold("logbroker");
	char path[PATH_MAX], names[64], text[64];
	struct lock lock;
	int fd = lockfile_open(data_dir, O_RDONLY, path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(lockfile_is_held(fd), 1);
	ck_assert_int_eq(lockfile_holders(fd, names, sizeof(names)), 1);
	snprintf(text, sizeof(text), "%d logbroker", (int)holder.pid);
	ck_assert_str_eq(names, text);
	reap(&holder);
	ck_assert_int_eq(lockfile_is_held(fd), 0);
	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_TAKEN);
	ck_assert_int_eq(lockfile_is_held(fd), 1);
	close(fd);
	lock_free(&lock);
}
END_TEST

/* A pid in the file that belongs to something else by now is neither named nor in the way. */
START_TEST(bug_H10_reused_pids)
{
	struct holder other = hold("sleep");
	struct lock lock;
	char text[64];

	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_HELD);
	snprintf(text, sizeof(text), "%d supervisor", (int)other.pid);
	ck_assert(!has_said(text));
	ck_assert(has_said("/lock"));
	reap(&other);
	/* The same file, its pid long dead, unlocked: no obstacle. */
	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_TAKEN);
	lock_free(&lock);
}
END_TEST

START_TEST(only_a_regular_file_will_do)
{
	struct lock lock;
	char path[256];

	ck_assert_int_eq(mkdir(data_dir, 0750), 0);
	snprintf(path, sizeof(path), "%s/lock", data_dir);
	ck_assert_int_eq(symlink("/dev/null", path), 0);
	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_FAILED);
	unlink(path);
	ck_assert_int_eq(mkfifo(path, 0640), 0);
	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_FAILED);
}
END_TEST

START_TEST(garbage_in_the_file_is_no_obstacle)
{
	struct lock lock;
	char path[256];
	FILE *file;

	ck_assert_int_eq(mkdir(data_dir, 0750), 0);
	snprintf(path, sizeof(path), "%s/lock", data_dir);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	for (int i = 0; i < 100000; i++)
		fputc(rand() & 0xFF, file);
	fclose(file);
	ck_assert_int_eq(lock_take(&lock, data_dir), LOCK_TAKEN);
	lock_free(&lock);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("lock");
	TCase *tcase = tcase_create("lock");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 20);
	tcase_add_test(tcase, makes_the_directory_and_the_file);
	tcase_add_test(tcase, old_lines_are_gone);
	tcase_add_test(tcase, a_missing_parent_is_named);
	tcase_add_test(tcase, bug_H11_the_holder_is_named);
	tcase_add_test(tcase, bug_H11_not_stale_after_a_kill);
	tcase_add_test(tcase, a_zombie_is_not_named_and_a_worker_is);
	tcase_add_test(tcase, D06_each_process_of_a_worker_is_named);
	tcase_add_test(tcase, a_look_tells_whether_it_is_held_and_holds_nothing);
	tcase_add_test(tcase, bug_H10_reused_pids);
	tcase_add_test(tcase, only_a_regular_file_will_do);
	tcase_add_test(tcase, garbage_in_the_file_is_no_obstacle);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
