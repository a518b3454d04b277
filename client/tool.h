/*
 * What the verbs of `logbroker` share: its exit codes, its talk on stderr, and the wish to end (SIGINT, SIGTERM).
 */
#ifndef CLIENT_TOOL_H
#define CLIENT_TOOL_H

#include <stdbool.h>
#include <stdint.h>

#include <logbroker.h>

#include "client/options.h"

enum tool_exit {
	TOOL_DONE = 0,
	TOOL_INTERNAL = 1,
	TOOL_USAGE = 2,
	TOOL_REFUSED = 3,
	TOOL_UNREACHABLE = 4,
	TOOL_TIMEOUT = 5,
	TOOL_CORRUPTION = 6,
	TOOL_PARTLY = 7,
	TOOL_RANGE = 8,
	TOOL_BUSY = 9,
};

/* "logbroker: text" and a newline on stderr, in one write. */
void tool_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The exit code of what failed with an enum lb_code, or a broker's error, and has nothing else to tell. */
int tool_exit_code(int code);

/* Says what has failed, and returns the exit code. */
int tool_failed(const struct lb_error *error);
/* The same of what could not be opened at the user's address: a malformed one that nobody has typed just now is told with where it stands. */
int tool_not_opened(const struct options *options, const struct lb_error *error);

/*
 * From now on the first SIGINT or SIGTERM asks for a clean end: tool_stop_fd() becomes readable and stays so. The
 * second one kills. Returns 0, or -1 with errno.
 */
int tool_catch_stop(void);
int tool_stop_fd(void);		/* -1 until tool_catch_stop */
bool tool_stopped(void);

/* A connection to the user's broker, being opened; NULL when that failed, which has been said, with the code in *exit_code. */
struct lb_connection *tool_connect(const struct options *options, int *exit_code);

/* Can it be a topic's name? If not, that has been said; `partition_hint` is how this verb is told a partition. */
bool tool_topic_valid(const char *name, const char *partition_hint);

/* The verbs: each returns the program's exit code. */
int verb_produce(const struct options *options);
int verb_consume(const struct options *options);
int verb_topics(const struct options *options);
int verb_ping(const struct options *options);
int verb_dump(const struct options *options);
int verb_verify(const struct options *options);
int verb_repair(const struct options *options);
int verb_status(const struct options *options);
int verb_restart_worker(const struct options *options);
int verb_reload(const struct options *options);

#endif
