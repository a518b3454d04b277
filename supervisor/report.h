/*
 * What a worker says over its channel, checked like input from outside: whoever gets a report may rely on every field
 * of it. Pure, but for a look at what kind of file a descriptor is; knows no worker's state.
 */
#ifndef SUPERVISOR_REPORT_H
#define SUPERVISOR_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/channel.h"
#include "common/message.h"
#include "supervisor/connection.h"

enum report_kind {
	REPORT_HELLO,
	REPORT_PREPARED,
	REPORT_SERVING,
	REPORT_CONNECTION,
	REPORT_REPLACE,
	REPORT_ENDS,
	REPORT_RELEASED,
};

struct report {
	enum report_kind kind;
	struct message_serving serving;
	struct connection connection;	/* its bytes are the message's, its descriptors too */
	const struct message_end *ends;	/* ends_count of them, the message's */
	int32_t ends_count;
	struct message_released released;
};

enum { REPORT_WHY_BYTES = 160 };

struct report_error {
	bool version;		/* not malformed: of another version */
	char why[REPORT_WHY_BYTES];
};

/*
 * Reads a message of a worker with `slots` partitions, in a broker with `group_count` groups. Returns 0, or -1 and fills
 * *error. The descriptors stay the caller's either way.
 */
int report_read(const struct channel_message *message, int32_t group_count, int32_t slots, struct report *report,
    struct report_error *error);

#endif
