/*
 * Running the built `logbroker`.
 */
#include "runtool.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "broker.h"

enum { RUN_WORDS_MAX = 64 };

int
run_file(const void *bytes, size_t size)
{
	int fd = memfd_create("file", MFD_CLOEXEC);
	const char *from = bytes;
	size_t done = 0;

	ck_assert_int_ge(fd, 0);
	while (done < size) {
		ssize_t n = write(fd, from + done, size - done);

		ck_assert_int_gt(n, 0);
		done += (size_t)n;
	}
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

static void
exec_tool(const char *program, char *command)
{
	char *words[RUN_WORDS_MAX] = { (char *)(uintptr_t)program };
	int count = 1;

	for (char *word = strtok(command, " "); word != NULL && count < RUN_WORDS_MAX - 1; word = strtok(NULL, " "))
		words[count++] = word;
	execv(program, words);
	_exit(127);
}

static void
become_tool(const char *program, const char *address, const char *command, int input, int output, int errors)
{
	if (dup2(input, 0) < 0 || dup2(output, 1) < 0 || dup2(errors, 2) < 0)
		_exit(127);
	if (address != NULL)
		setenv("LOGBROKER_ADDR", address, 1);
	else
		unsetenv("LOGBROKER_ADDR");
	exec_tool(program, strdup(command));
}

static void
start_program(struct run *run, const char *program, const char *address, const char *command, int input_fd, int output_fd)
{
	int ends[2] = { -1, -1 };

	run_free(run);
	memset(run, 0, sizeof *run);
	run->input = -1;
	if (input_fd < 0) {
		ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
		input_fd = ends[0];
		run->input = ends[1];
	}
	run->output = output_fd >= 0 ? fcntl(output_fd, F_DUPFD_CLOEXEC, 0) : run_file("", 0);
	run->errors = run_file("", 0);
	fflush(NULL);
	run->pid = fork();
	ck_assert_int_ge(run->pid, 0);
	if (run->pid == 0)
		become_tool(program, address, command, input_fd, run->output, run->errors);
	if (ends[0] >= 0)
		close(ends[0]);
	if (output_fd >= 0) {	/* or the one who reads it would never see its end */
		close(run->output);
		run->output = run_file("", 0);
	}
}

void
run_start_into(struct run *run, const char *address, const char *command, int input_fd, int output_fd)
{
	char program[BROKER_PATH_BYTES];

	broker_build_path("logbroker", program, sizeof program);
	start_program(run, program, address, command, input_fd, output_fd);
}

void
run_start(struct run *run, const char *address, const char *command, int input_fd)
{
	run_start_into(run, address, command, input_fd, -1);
}

void
run_start_program(struct run *run, const char *program, const char *command, int input_fd, int output_fd)
{
	start_program(run, program, NULL, command, input_fd, output_fd);
}

static char *
read_back(int fd, size_t *bytes)
{
	struct stat status;
	char *text;

	*bytes = 0;
	ck_assert_int_eq(fstat(fd, &status), 0);
	if (!S_ISREG(status.st_mode))
		return strdup("");
	text = malloc((size_t)status.st_size + 1);
	while (*bytes < (size_t)status.st_size) {
		ssize_t n = pread(fd, text + *bytes, (size_t)status.st_size - *bytes, (off_t)*bytes);

		ck_assert_int_gt(n, 0);
		*bytes += (size_t)n;
	}
	text[*bytes] = '\0';
	return text;
}

void
run_end(struct run *run)
{
	int status;

	if (run->input >= 0)
		close(run->input);
	run->input = -1;
	ck_assert_int_eq(waitpid(run->pid, &status, 0), run->pid);
	run->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	run->out = read_back(run->output, &run->out_bytes);
	run->err = read_back(run->errors, &run->err_bytes);
	close(run->output);
	close(run->errors);
	ck_assert_msg(strstr(run->err, "Sanitizer") == NULL && strstr(run->err, "runtime error") == NULL, "%s", run->err);
}

void
run_free(struct run *run)
{
	free(run->out);
	free(run->err);
	run->out = run->err = NULL;
}

void
run_tool(struct run *run, const char *address, const char *command, const void *input, size_t bytes)
{
	int fd = run_file(input, bytes);

	run_start(run, address, command, fd);
	close(fd);
	run_end(run);
}

int
run_wait_output(struct run *run, size_t bytes)
{
	const struct timespec tick = { 0, 2000000 };

	for (int i = 0; i < 15000; i++) {
		struct stat status;

		if (fstat(run->output, &status) == 0 && (size_t)status.st_size >= bytes)
			return 1;
		nanosleep(&tick, NULL);
	}
	return 0;
}
