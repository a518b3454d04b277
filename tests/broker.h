/*
 * The harness of the black-box tests: a really started logsupervisor in a directory of its own. Knows processes, files,
 * the ready line, HTTP; knows nothing of the protocol on the broker's port (wire.h).
 *
 * Whatever goes wrong in here fails the test (ck_abort), with the broker's last log lines on stderr. Check runs each test
 * in a process group of its own and kills what is left of it; broker_main removes the directories of all tests.
 *
 *	int main(void) { return broker_main(suite()); }
 *
 * Environment: LOGBROKER_BUILD (where the programs are; otherwise the test program's directory and the ones above it),
 * LOGBROKER_TEST_SCALE (loops are that much longer; 1), LOGBROKER_TEST_KEEP (leave the directories), LOGBROKER_TEST_SEED,
 * TMPDIR.
 */
#ifndef TESTS_BROKER_H
#define TESTS_BROKER_H

#include <check.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	BROKER_PATH_BYTES = 512,
	BROKER_WORKERS_MAX = 64,
	BROKER_START_MS = 30000,
	BROKER_STOP_MS = 30000,
};

/* All may be NULL or 0. Lines are whole lines of broker.ini ("key = value\n" ...), any number in one string. */
struct broker_config {
	const char *broker;	/* [broker]; a key given here (listen, http, workers, ...) replaces the harness's own line */
	const char *topics;	/* [topics]; default "t = 1\n" */
	const char *log;	/* [log] */
	const char *sections;	/* more sections, whole ("[topic t]\ngroup = 1\n") */
	int workers;		/* default 2 (the broker starts no more than there are partitions) */
	const char *const *environment;	/* "NAME=value", ended by NULL; for supervisor and workers */
	const char *strace;	/* options for strace -f -o FILE (e.g. "-e trace=fdatasync"), separated by blanks; NULL: no strace */
	const char *wrapper;	/* a command before the program (after strace), separated by blanks ("prlimit --nofile=64") */
	const char *data_dir;	/* default: "data" in the directory (e.g. a tmpfs of the test's) */
};

struct broker {
	struct broker_config config;
	char directory[BROKER_PATH_BYTES];	/* has broker.ini, log, sock, control.sock, strace.out, data/ */
	char data_dir[BROKER_PATH_BYTES];
	char log_path[BROKER_PATH_BYTES];	/* everything the broker said, all starts */
	char strace_path[BROKER_PATH_BYTES];
	char unix_path[BROKER_PATH_BYTES];
	char control_path[BROKER_PATH_BYTES];
	int port;		/* TCP, 127.0.0.1 */
	int http_port;
	int worker_count;	/* as the ready line says */
	int partition_count;
	pid_t pid;		/* the supervisor */
	pid_t child;		/* what was forked: the supervisor, or strace or the wrapper around it; 0 = not running */
	pid_t workers[BROKER_WORKERS_MAX];	/* as they were at the ready line, ascending */
	bool workers_may_die;	/* otherwise broker_stop asserts that they are still these */
	/* the harness's own */
	pthread_t reader;
	pthread_mutex_t mutex;
	pthread_cond_t news;
	int pipe;
	int log_fd;
	char *text;		/* the log lines since the last start */
	size_t text_length;
	size_t log_mark;
	bool log_ended;
};

/* Runs the suite; makes and removes the directory that all tests' directories stand in. Returns main's value. */
int broker_main(Suite *suite);

/* LOGBROKER_TEST_SCALE, at least 1. */
int broker_scale(void);
/* A seed, printed with the test's name; the same again by LOGBROKER_TEST_SEED. */
uint64_t broker_seed(const char *test);
bool broker_have_strace(void);	/* strace is installed and may trace here */
bool broker_is_asan(void);	/* the broker's programs are built with AddressSanitizer */
/* The path of a program or module of the build ("logbroker", ".libs/slowsync.so"). */
void broker_build_path(const char *name, char *path, size_t size);
/* "/tests/vectors/frames.tsv" etc.: a file of the source tree's tests directory ($srcdir/tests). */
void broker_source_path(const char *name, char *path, size_t size);

/*
 * A fixture (tcase_add_checked_fixture): the test's brokers have write_mode = mapped, unless their [log] names a mode. So a
 * test that must hold in both modes stands in two test cases, one of them with this.
 */
void broker_use_mapped(void);

/* Makes the directory and broker.ini, starts, waits for the ready line. */
void broker_start(struct broker *broker, const struct broker_config *config);
/* Only the first half: directory, broker.ini, and an empty data directory's parent; broker_restart starts it. */
void broker_prepare(struct broker *broker, const struct broker_config *config);
/* The same directory again. A config other than NULL replaces the old one. Ports may change. */
void broker_restart(struct broker *broker, const struct broker_config *config);
/* For a start that is expected to fail: runs it to its end, returns the exit code (128 + signal when killed). */
int broker_start_fails(struct broker *broker, const struct broker_config *config);
/* Starts and returns at once, without a ready line. broker_wait_ready fills in the ports. */
void broker_launch(struct broker *broker);
void broker_wait_ready(struct broker *broker);

/* SIGTERM; asserts exit 0 within BROKER_STOP_MS, no report of a sanitizer in the log, no worker replaced (see above).
 * Returns the milliseconds it took. The directory stays. */
int64_t broker_stop(struct broker *broker);
/* Waits for the exit of a broker that was told to stop otherwise; the code, 128 + signal, or -1 when late. */
int broker_wait_exit(struct broker *broker, int deadline_ms);
/* SIGKILL to the supervisor and its workers, all at once; waits until all of them are gone. */
void broker_kill(struct broker *broker);
/* Frees what the harness has of a broker that does not run. The directory goes away with broker_main. */
void broker_end(struct broker *broker);

/* The log since the last start. True when a line with `text` is in it or comes in time. */
bool broker_wait_log(struct broker *broker, const char *text, int deadline_ms);
/* These two see all that has been written when they are called: lines with `text`; the whole, which the caller frees. */
long broker_count_log(struct broker *broker, const char *text);
char *broker_copy_log(struct broker *broker);

/* The supervisor's live children, ascending by pid; zombies do not count. Returns the number (at most `max`). */
int broker_workers(const struct broker *broker, pid_t *pids, int max);
/* The worker that has files of that partition open; 0 when none has. */
pid_t broker_worker_of(const struct broker *broker, const char *topic, int partition);
/* The same, waiting until there is one other than `but` (0: any) and all `worker_count` workers live. */
pid_t broker_wait_worker_of(const struct broker *broker, const char *topic, int partition, pid_t but, int deadline_ms);
/* True when the process does not run any more (gone or a zombie) in time. */
bool broker_wait_gone(pid_t pid, int deadline_ms);
/* SIGSTOP, and back when the kernel says that all its threads have stopped. Continue with kill(pid, SIGCONT). A worker that
 * stands still for ten seconds is killed by its supervisor. */
void broker_freeze(pid_t pid);
/* A worker and the supervisor, which cannot kill it then, however slow the machine is: for what needs no supervisor. */
void broker_freeze_worker(const struct broker *broker, pid_t worker);
void broker_thaw_worker(const struct broker *broker, pid_t worker);
int broker_fd_count(pid_t pid);			/* -1 when the process is gone */
/* Descriptors whose /proc link contains `text` ("(deleted)", "socket:", "-3/"). */
int broker_fd_count_of(pid_t pid, const char *text);
/* A child that has all of our descriptors, and does nothing. */
pid_t broker_fork_holder(void);
void broker_end_holder(pid_t pid);
long broker_rss_kib(pid_t pid);
int64_t broker_cpu_ms(pid_t pid);		/* user + system time so far */
/* Polls `met` every few ms until it is true. Returns its last value. */
bool broker_wait(bool (*met)(void *), void *with, int deadline_ms);

/* GET over `http`. The body (malloc, terminated), or NULL; *status (may be NULL) the code. Never fails the test. */
char *broker_http_get(const struct broker *broker, const char *path, int *status);
/* The sum of a metric's samples whose label text contains `labels` (NULL: all), e.g. ("logbroker_requests_total",
 * "api=\"produce\""). -1 when there is none. At most a second old. */
double broker_metric(const struct broker *broker, const char *name, const char *labels);
/* Waits until it is `value` (exactly) / at least that; false when it does not come. */
bool broker_wait_metric(const struct broker *broker, const char *name, const char *labels, double value, int deadline_ms);
bool broker_wait_metric_least(const struct broker *broker, const char *name, const char *labels, double value,
    int deadline_ms);

/* The path of a partition's directory or, with a base >= 0, of a segment file. */
void broker_partition_path(const struct broker *broker, const char *topic, int partition, int64_t base, char *path,
    size_t size);
/* The segments of a partition: base offsets ascending. Returns the number; at most `max` are stored. */
int broker_segments(const struct broker *broker, const char *topic, int partition, int64_t *bases, int max);
/* Lines of strace.out (so far) that contain both texts (the second may be NULL). */
long broker_count_strace(const struct broker *broker, const char *text, const char *and_text);

#endif
