/*
 * What the tests of processes need besides the harness: programs run to their end, brokers of an unprivileged user,
 * workers that wait at a gate, strace attached to a running process, and looks into /proc. Knows no protocol.
 */
#ifndef TESTS_PROCS_H
#define TESTS_PROCS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "broker.h"

/* ---- programs ------------------------------------------------------------------------------------------------ */

/* Runs argv to its end, with stdout and stderr together in *text (malloc, terminated; may be NULL). Returns its exit code,
 * 128 + signal, or -1 when it had to be killed after `deadline_ms`. */
int procs_run(const char *const *argv, char **text, int deadline_ms);
/* This test program's own path: as a wrapper it puts the process in some state and executes the rest of its arguments. */
const char *procs_self(void);
/* "bug_X: skipped: no strace here" on stdout, where a reader of the test's log finds it. */
void procs_skipped(const char *test, const char *why);

/* ---- brokers in special circumstances ------------------------------------------------------------------------ */

/*
 * Starts the broker as a user without privileges: as this user when it has none, else as one with a number of its own.
 * False, with the reason in *why, when that cannot be done here; then nothing has been started.
 */
bool procs_start_unprivileged(struct broker *broker, const struct broker_config *config, const char **why);

/*
 * A broker whose workers pass a gate before they run: broker_prepare, procs_gate, broker_launch. The gate is open at
 * first. A worker that waits there has not said HELLO, so it is killed after ten seconds.
 */
struct procs_gate {
	char path[BROKER_PATH_BYTES * 2];
};
void procs_gate_set_up(struct procs_gate *gate, const struct broker *broker);
void procs_gate_close(const struct procs_gate *gate);
void procs_gate_open(const struct procs_gate *gate);

/* A broker with badsync.so preloaded: its barriers obey procs_let_barriers, with "hold", "fail" or "work"; and "cold" makes its
 * reads slow. The other one is broker_prepare's part of it alone. */
void procs_start_with_badsync(struct broker *broker, const struct broker_config *config);
void procs_prepare_with_badsync(struct broker *broker, const struct broker_config *config);
void procs_let_barriers(const struct broker *broker, const char *what);

/* ---- strace on a running process ----------------------------------------------------------------------------- */

/* strace is here and may trace processes that it has not started. */
bool procs_may_trace(void);

struct procs_tracer {
	pid_t pid;
	char path[BROKER_PATH_BYTES * 2];	/* what it writes */
};
/* Before the start, when a process is still traced at its end: LeakSanitizer cannot work then. */
void procs_traced_to_the_end(void);
/* strace -f -p PID -o FILE OPTIONS (separated by blanks); returns when all threads are traced. */
void procs_trace(struct procs_tracer *tracer, const struct broker *broker, pid_t pid, const char *options);
void procs_untrace(struct procs_tracer *tracer);
/* Lines of a file that contain both texts (the second may be NULL). */
long procs_count_lines(const char *path, const char *text, const char *and_text);

/* ---- /proc ---------------------------------------------------------------------------------------------------- */

/* A mask of /proc/PID/status ("SigIgn", "SigBlk", "SigCgt"). */
uint64_t procs_signal_mask(pid_t pid, const char *name);
int procs_lowest_free_fd(pid_t pid);		/* with a limit of that nothing more can be opened */
int procs_zombies(pid_t parent);		/* children that have not been waited for */
/* All threads are gone, and with them the process's descriptors (broker_wait_gone returns as soon as the first one is). */
bool procs_wait_dead(pid_t pid, int deadline_ms);
bool procs_wait_fd_count(pid_t pid, int count, int deadline_ms);
void procs_set_fd_limit(pid_t pid, int soft);	/* 0: up to the hard limit again */
/* Which worker has the other end of this TCP connection (waits until the supervisor and all others have let go of it); 0 when that does not come. */
pid_t procs_owner_of(const struct broker *broker, int fd, int deadline_ms);
/* Waits until the broker has read everything that was sent on this connection (TCP or Unix). */
bool procs_wait_read(int fd, int deadline_ms);

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* The whole file (malloc, terminated). Fails the test when it cannot be read. */
char *procs_read_file(const char *path, size_t *length);
void procs_write_file(const char *path, const void *data, size_t length);
/* Overwrites a part of it. */
void procs_patch_file(const char *path, int64_t position, const void *data, size_t length);
int64_t procs_file_size(const char *path);	/* -1: there is none */

/* ---- mounting ------------------------------------------------------------------------------------------------- */

/*
 * Puts this process (each test is one) where it can mount: in a mount namespace of its own, so nobody else sees what it
 * mounts and it goes away with it; without privileges also in a user namespace. False when that cannot be done here.
 */
bool procs_may_mount(void);

#endif
