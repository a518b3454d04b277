/* The end of a connection in the supervisor; see connection.h. */
#include "supervisor/connection.h"

#include <sys/socket.h>
#include <unistd.h>

enum {
	CLOSE_READS = 64,		/* of CLOSE_READ_BYTES: more than a socket's buffer usually holds */
	CLOSE_READ_BYTES = 64 * 1024,
};

void
connection_close(const struct connection *connection)
{
	static char discarded[CLOSE_READ_BYTES];

	shutdown(connection->socket, SHUT_WR);
	for (int i = 0; i < CLOSE_READS; i++)
		if (recv(connection->socket, discarded, sizeof(discarded), MSG_DONTWAIT) <= 0)
			break;
	close(connection->socket);
	if (connection->memfd >= 0)
		close(connection->memfd);
}
