/*
 * The ends of its logs that a worker has told before RELEASED, kept until its successor serves, and handed on to whoever
 * that is: a successor that dies is followed by another one. Checks that they are of this group and told once each; what
 * they mean is the workers' affair.
 */
#ifndef SUPERVISOR_ENDS_H
#define SUPERVISOR_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/channel.h"
#include "common/message.h"

struct ends {
	int32_t slots;			/* of the group's board */
	int32_t count;			/* told so far */
	bool released;			/* all are told */
	struct message_end *list;	/* in the order in which they were told */
	bool *told;			/* by slot */
};

/* Empty, with room for `slots`. Returns 0, or -1 with errno ENOMEM. ends_free may follow in any case, and repeatedly. */
int ends_init(struct ends *ends, int32_t slots);
void ends_free(struct ends *ends);

/* Takes `count` more, read by report_read. NULL, or what is wrong. */
const char *ends_take(struct ends *ends, const struct message_end *list, int32_t count);

/* RELEASED has come: are these all? NULL, or what is wrong. */
const char *ends_release(struct ends *ends, int32_t count);

/* Queues what has been released, nothing else; so none at all may be one more answer. Returns 0, or -1 with errno. */
int ends_queue(const struct ends *ends, struct channel *channel);

#endif
