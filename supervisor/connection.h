/*
 * A client's connection on its way through the supervisor: the socket, and what travels with it. A value that one part
 * passes to the next together with its descriptors. Knows nothing of where it comes from and where it goes.
 */
#ifndef SUPERVISOR_CONNECTION_H
#define SUPERVISOR_CONNECTION_H

#include "common/message.h"

enum { CONNECTION_ANY_GROUP = -1 };	/* a fresh connection, which any worker may have */

struct connection {
	struct message_connection message;	/* its group may be CONNECTION_ANY_GROUP */
	const void *inline_bytes;		/* message.inline_bytes of them */
	int socket;
	int memfd;				/* -1 = none */
};

/*
 * Closes its descriptors. It may have been served before: what the client has sent is read off first, since closing a
 * socket with unread bytes is a reset, which can destroy answers that are still on their way.
 */
void connection_close(const struct connection *connection);

#endif
