/*
 * Runs the built `logbroker` as a person would: arguments, standard input, and what came out of it. A struct run is
 * zeros before its first use.
 */
#ifndef TESTS_RUNTOOL_H
#define TESTS_RUNTOOL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct run {
	pid_t pid;
	int input;		/* our end of its standard input, when it was started with a pipe; else -1 */
	int output, errors;	/* files that it writes to */
	/* After run_end: */
	int code;		/* its exit code, or 128 + signal */
	char *out, *err;	/* terminated */
	size_t out_bytes, err_bytes;
};

/*
 * Starts `logbroker` with the words of `command`, separated by single blanks ("" is no word). `run` is zeros or an earlier
 * run, which is freed. LOGBROKER_ADDR is `address` (NULL: unset). With input_fd -1 standard input is a pipe whose other
 * end is run->input.
 */
void run_start(struct run *run, const char *address, const char *command, int input_fd);
/* The same with standard output going to `output_fd`; run->out stays empty. */
void run_start_into(struct run *run, const char *address, const char *command, int input_fd, int output_fd);
/* Another program, by its path; output_fd -1: run->out. */
void run_start_program(struct run *run, const char *program, const char *command, int input_fd, int output_fd);
/* Closes our end of its input, waits for its end, collects. */
void run_end(struct run *run);
void run_free(struct run *run);

/* From start to end, with these bytes as standard input. */
void run_tool(struct run *run, const char *address, const char *command, const void *input, size_t bytes);

/* Waits until what it has written to standard output so far is at least that long; false when it does not come. */
int run_wait_output(struct run *run, size_t bytes);

/* An open file, at its begin, with these bytes. */
int run_file(const void *bytes, size_t size);

#endif
