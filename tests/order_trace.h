/*
 * What strace has written down of a broker (-f -y -xx -ttt -o FILE), as a list of calls in the order of their lines. A call
 * that others interrupt has two lines, where it begins and where it returns; both are told. Knows the form of the lines,
 * nothing of what the calls mean.
 *
 *	1234 1796032744.92 fdatasync(5<\x2f\x64> <unfinished ...>
 *	1235 1796032744.93 sendto(9<\x73\x6f>, "\x00\x00", 2, MSG_NOSIGNAL, NULL, 0) = 2
 *	1234 1796032744.94 <... fdatasync resumed>) = 0
 */
#ifndef TESTS_ORDER_TRACE_H
#define TESTS_ORDER_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/wire.h"

enum { ORDER_PATH_BYTES = 1024 };

struct order_call {
	int process;		/* not the thread */
	long begin;		/* lines, from 1 */
	long end;		/* 0: it did not return */
	char *text;		/* "name(arguments) = result", put together */
	const char *arguments;	/* in the text, behind the bracket */
	int64_t result;		/* negative when it has failed or did not return, */
	bool unknown;		/* since its process was killed: it may have done all of it */
};

struct order_trace {
	struct order_call *calls;
	size_t count;
	long line_count;
	int32_t *by_line;	/* the call that a line begins or ends; -1 = none */
};

/* False when the file cannot be read. */
bool order_trace_read(struct order_trace *trace, const char *path);
void order_trace_free(struct order_trace *trace);

bool order_call_is(const struct order_call *call, const char *name);

/* Arguments, one after the other: each moves *at behind itself and the comma. */
int64_t order_number(const char **at);
/* The path or socket behind a descriptor, into ORDER_PATH_BYTES; "" when it has none. Returns the descriptor. */
int64_t order_descriptor(const char **at, char *path);
/* Appends the bytes of a string. False when strace has cut it short. */
bool order_bytes(const char **at, struct wire_bytes *to);
void order_skip(const char **at);

#endif
