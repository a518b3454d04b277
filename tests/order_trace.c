/* See order_trace.h. */
#include "tests/order_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 65536 };

/* What is known of threads while the lines are read. */
struct threads {
	int32_t pending[THREADS_MAX];	/* the call that is not finished, + 1 */
	int parent[THREADS_MAX];	/* another thread of the same process */
	int count;
	int pids[THREADS_MAX];
};

static int
thread_of(struct threads *threads, int pid)
{
	for (int i = 0; i < threads->count; i++)
		if (threads->pids[i] == pid)
			return i;
	threads->pids[threads->count] = pid;
	threads->parent[threads->count] = threads->count;
	return threads->count++;
}

static struct order_call *
add_call(struct order_trace *trace)
{
	if ((trace->count & (trace->count - 1)) == 0)
		trace->calls = realloc(trace->calls, (trace->count == 0 ? 1 : trace->count * 2) * sizeof(*trace->calls));
	trace->calls[trace->count] = (struct order_call){ .result = -1, .unknown = true };
	return &trace->calls[trace->count++];
}

static void
append(struct order_call *call, const char *text)
{
	size_t length = call->text == NULL ? 0 : strlen(call->text);

	call->text = realloc(call->text, length + strlen(text) + 1);
	strcpy(call->text + length, text);
}

/* The call has returned: its text is whole. */
static void
finish(struct order_call *call, struct threads *threads, int thread)
{
	const char *result = NULL;

	for (const char *p = call->text; (p = strstr(p, " = ")) != NULL; p += 3)
		result = p + 3;
	call->unknown = result == NULL || *result == '?';
	if (!call->unknown)
		call->result = (int64_t)strtoull(result, NULL, 0);
	/* New threads belong to their maker's process. */
	if (strncmp(call->text, "clone", 5) == 0 && strstr(call->text, "CLONE_THREAD") != NULL && call->result > 0)
		threads->parent[thread_of(threads, (int)call->result)] = thread;
}

static void
read_line(struct order_trace *trace, struct threads *threads, char *line)
{
	char *rest, *text, *cut;
	int thread = thread_of(threads, (int)strtol(line, &rest, 10));
	struct order_call *call;

	strtod(rest, &text);
	text += strspn(text, " ");
	cut = strstr(text, " <unfinished ...>");
	if (cut != NULL)
		*cut = '\0';
	if (strncmp(text, "<... ", 5) == 0) {
		if (threads->pending[thread] == 0)
			return;
		call = &trace->calls[threads->pending[thread] - 1];
		append(call, strchr(text, '>') + 1);
	} else if (*text == '+' || *text == '-' || strchr(text, '(') == NULL) {
		return;
	} else {
		call = add_call(trace);
		call->process = thread;
		call->begin = trace->line_count;
		append(call, text);
	}
	trace->by_line[trace->line_count] = (int32_t)(call - trace->calls);
	threads->pending[thread] = cut != NULL ? (int32_t)(call - trace->calls) + 1 : 0;
	if (cut != NULL)
		return;
	call->end = trace->line_count;
	finish(call, threads, thread);
}

static int
process_of(const struct threads *threads, int thread)
{
	while (threads->parent[thread] != thread)
		thread = threads->parent[thread];
	return thread;
}

bool
order_trace_read(struct order_trace *trace, const char *path)
{
	struct threads *threads = calloc(1, sizeof(*threads));
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;
	long room = 0;

	*trace = (struct order_trace){ 0 };
	while (file != NULL && getline(&line, &size, file) >= 0) {
		line[strcspn(line, "\n")] = '\0';
		if (++trace->line_count >= room) {
			room = room * 2 + 1024;
			trace->by_line = realloc(trace->by_line, (size_t)room * sizeof(*trace->by_line));
		}
		trace->by_line[trace->line_count] = -1;
		read_line(trace, threads, line);
	}
	for (size_t i = 0; i < trace->count; i++) {
		trace->calls[i].process = process_of(threads, trace->calls[i].process);
		trace->calls[i].arguments = strchr(trace->calls[i].text, '(') + 1;
	}
	free(line);
	free(threads);
	if (file == NULL)
		return false;
	fclose(file);
	return true;
}

void
order_trace_free(struct order_trace *trace)
{
	for (size_t i = 0; i < trace->count; i++)
		free(trace->calls[i].text);
	free(trace->calls);
	free(trace->by_line);
	*trace = (struct order_trace){ 0 };
}

bool
order_call_is(const struct order_call *call, const char *name)
{
	size_t length = strlen(name);

	return strncmp(call->text, name, length) == 0 && call->text[length] == '(';
}

void
order_skip(const char **at)
{
	*at += strcspn(*at, ",");
	*at += strspn(*at, ", ");
}

int64_t
order_number(const char **at)
{
	int64_t number = (int64_t)strtoull(*at, NULL, 0);

	order_skip(at);
	return number;
}

/* Bytes as \x and two digits, up to something else. */
static const char *
put_hex(const char *p, struct wire_bytes *to)
{
	while (p[0] == '\\' && p[1] == 'x') {
		const char digits[3] = { p[2], p[3] };

		wire_put_i8(to, (int)strtol(digits, NULL, 16));
		p += 4;
	}
	return p;
}

int64_t
order_descriptor(const char **at, char *path)
{
	int64_t fd = (int64_t)strtoll(*at, NULL, 10);
	struct wire_bytes bytes = { 0 };
	const char *p = *at + strcspn(*at, "<,)");

	if (*p == '<')
		p = put_hex(p + 1, &bytes);
	snprintf(path, ORDER_PATH_BYTES, "%.*s", (int)bytes.length, (const char *)bytes.data);
	wire_bytes_free(&bytes);
	*at = p;
	order_skip(at);
	return fd;
}

bool
order_bytes(const char **at, struct wire_bytes *to)
{
	const char *p = *at;
	bool whole;

	if (*p != '"')
		return false;
	p = put_hex(p + 1, to);
	whole = p[0] == '"' && p[1] != '.';
	*at = p;
	order_skip(at);
	return whole;
}
