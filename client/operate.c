/*
 * `logbroker status`, `restart-worker` and `reload`: what an operator asks the broker's supervisor over its control socket.
 * Tables and JSON are the broker's own; here they are passed on.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/control.h"
#include "client/options.h"
#include "client/output.h"
#include "client/tool.h"

enum {
	OK = 200,
	CONFLICT = 409,
	WATCH_MS = 2000,
	CHECK_MAX_MS = 5000,	/* what the broker gives its workers to show that they live */
};

static const char clear_screen[] = "\033[H\033[2J";

/* Exit code of what has been answered with anything but 200. */
static int
exit_code(const struct control_answer *answer)
{
	return answer->status == OK ? TOOL_DONE : answer->status == CONFLICT ? TOOL_BUSY : TOOL_REFUSED;
}

/* The body's lines, on standard error. */
static void
say_lines(const struct control_answer *answer)
{
	const char *line = answer->body;

	while (*line != '\0') {
		size_t length = strcspn(line, "\n");

		tool_say("%.*s", (int)length, line);
		line += length + (line[length] == '\n');
	}
}

static bool
wants_json(const struct options *options)
{
	return options->output != OPTIONS_OUTPUT_TEXT;
}

/* Puts it and lets it go. Returns the exit code. */
static int
write_out(struct output *output, const char *bytes, size_t size)
{
	output_put(output, bytes, size);
	output_flush(output);
	return output->failed ? TOOL_INTERNAL : TOOL_DONE;
}

static int
print_once(const char *bytes, size_t size)
{
	struct output output;
	int result;

	if (output_open(&output, STDOUT_FILENO) != 0)
		return TOOL_INTERNAL;
	result = write_out(&output, bytes, size);
	output_free(&output);
	return result;
}

/* ---- orders ---- */

static int
order(const struct options *options, const char *path)
{
	struct control_answer answer = { 0 };
	int result = control_ask(options, "POST", path, wants_json(options), &answer);
	int printed = TOOL_DONE;

	if (result != TOOL_DONE)
		return result;
	result = exit_code(&answer);
	if (result == TOOL_DONE || wants_json(options))
		printed = print_once(answer.body, answer.body_bytes);
	else
		say_lines(&answer);
	control_free(&answer);
	return printed != TOOL_DONE ? printed : result;
}

int
verb_restart_worker(const struct options *options)
{
	const char *number = options->operand_count > 0 ? options->operands[0] : NULL;
	char path[64];

	if (number != NULL && (number[0] == '\0' || strlen(number) > 9 || number[strspn(number, "0123456789")] != '\0')) {
		tool_say("'%s' is not a worker's number; logbroker status lists them", number);
		return TOOL_USAGE;
	}
	snprintf(path, sizeof(path), number != NULL ? "/workers/%s/restart" : "/workers%s/restart", number != NULL ? number : "");
	return order(options, path);
}

int
verb_reload(const struct options *options)
{
	return order(options, "/reload");
}

/* ---- status ---- */

/* For monitoring: a line that says what is wrong first, and one how much more there is. */
static int
print_verdict(const struct control_answer *answer)
{
	size_t length = strcspn(answer->body, "\n");
	char more[64];
	int lines = 0, result;

	for (const char *at = answer->body; (at = strchr(at, '\n')) != NULL; at++)
		lines++;
	result = print_once(answer->body, length + (answer->body[length] == '\n'));
	if (result != TOOL_DONE || lines < 2)
		return result;
	snprintf(more, sizeof(more), "and %d more: logbroker status shows them\n", lines - 1);
	return print_once(more, strlen(more));
}

static int
check(const struct options *options)
{
	struct control_answer answer = { 0 };
	int within_ms = options->timeout_ms / 4 * 3, result, printed;
	char path[64];

	snprintf(path, sizeof(path), "/check?within_ms=%d", within_ms < CHECK_MAX_MS ? within_ms : CHECK_MAX_MS);
	result = control_ask(options, "GET", path, wants_json(options), &answer);
	if (result != TOOL_DONE)
		return result;
	printed = wants_json(options) ? print_once(answer.body, answer.body_bytes) : print_verdict(&answer);
	result = exit_code(&answer);
	control_free(&answer);
	return printed != TOOL_DONE ? printed : result;
}

/* Returns true when it is time for the next one, false when we were asked to end. */
static bool
pause_for(int ms)
{
	struct pollfd polled = { tool_stop_fd(), POLLIN, 0 };

	while (poll(&polled, 1, ms) < 0 && errno == EINTR)
		;
	return !tool_stopped();
}

/* Between two tables: the screen is cleared, or where there is none a blank line stands. */
static void
put_break(const struct options *options, struct output *output, int64_t shown)
{
	if (wants_json(options))
		return;
	if (isatty(STDOUT_FILENO))
		output_put(output, clear_screen, strlen(clear_screen));
	else if (shown > 0)
		output_put(output, "\n", 1);
}

/* Once, or with --watch until a signal, a reader that has gone, or a failure. */
static int
show(const struct options *options, struct output *output)
{
	const char *path = wants_json(options) ? "/status.json" : "/status";
	struct control_answer answer = { 0 };
	int result;

	for (int64_t shown = 0;; shown++) {
		result = control_ask(options, "GET", path, wants_json(options), &answer);
		if (result != TOOL_DONE || tool_stopped())
			break;
		result = exit_code(&answer);
		if (result != TOOL_DONE) {
			say_lines(&answer);
			break;
		}
		if (options->watch)
			put_break(options, output, shown);
		result = write_out(output, answer.body, answer.body_bytes);
		if (!options->watch || result != TOOL_DONE || output->closed || !pause_for(WATCH_MS))
			break;
	}
	control_free(&answer);
	return result;
}

int
verb_status(const struct options *options)
{
	struct output output;
	int result;

	if (options->check)
		return check(options);
	if (options->watch && tool_catch_stop() != 0) {
		tool_say("cannot catch signals: %s", strerror(errno));
		return TOOL_INTERNAL;
	}
	if (output_open(&output, STDOUT_FILENO) != 0)
		return TOOL_INTERNAL;
	result = show(options, &output);
	output_free(&output);
	return result;
}
