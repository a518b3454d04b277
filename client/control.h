/*
 * The broker's control socket, which speaks HTTP: one request, its whole answer. libevent's client cannot be used: before 2.2
 * it connects by host and port alone.
 */
#ifndef CLIENT_CONTROL_H
#define CLIENT_CONTROL_H

#include <stdbool.h>
#include <stddef.h>

#include "client/options.h"

struct control_answer {
	int status;		/* HTTP's; 0: we were asked to end meanwhile (tool_catch_stop) */
	char *bytes;		/* all that came, terminated */
	const char *body;	/* in it */
	size_t body_bytes;
};

/*
 * Asks at options->control. Returns TOOL_DONE: the answer is there, whatever its status is; or the exit code, and what has
 * failed has been said. `answer` is zeros or an earlier one; it is freed by control_free.
 */
int control_ask(const struct options *options, const char *method, const char *path, bool json,
    struct control_answer *answer);
void control_free(struct control_answer *answer);

#endif
