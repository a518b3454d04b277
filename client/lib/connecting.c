/*
 * From addresses to an open connection: one address after the other, each for its share of the time.
 */
#include <sys/socket.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/connection_state.h"
#include "common/clock.h"

enum { CONNECTING_BACKLOG_RETRY_MS = 10 };	/* a Unix socket's full backlog is told by EAGAIN, not by waiting */

static void
set_socket_options(int fd)
{
	int on = 1, idle_s = 60, interval_s = 10, probes = 6;

	/* Each is a wish: a connection without it still works. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/*
 * Connecting to a port of this machine that nobody listens to may, when the kernel happens to choose it as our own
 * port, connect the socket to itself; which would also take the port from a broker that is about to start.
 */
static bool
is_connected_to_itself(int fd)
{
	struct sockaddr_storage own = { 0 }, peer = { 0 };
	socklen_t own_bytes = sizeof(own), peer_bytes = sizeof(peer);

	return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
	    getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0 &&
	    own_bytes == peer_bytes && memcmp(&own, &peer, own_bytes) == 0;
}

/* The address has taken us. Returns false when that turns out to be wrong. */
static bool
become_open(struct lb_connection *connection)
{
	if (connection->addresses.entries[connection->next_address - 1].ss_family != AF_UNIX) {
		if (is_connected_to_itself(connection->fd)) {
			connection->connect_errno = ECONNREFUSED;
			return false;
		}
		set_socket_options(connection->fd);
	}
	connection->state = CONNECTION_OPEN;
	lb_address_free(&connection->addresses);
	return true;
}

/* Returns false when the address does not take us; else the state tells whether it has, or may. */
static bool
try_connect(struct lb_connection *connection)
{
	size_t i = connection->next_address - 1;
	const struct sockaddr *address = (const struct sockaddr *)&connection->addresses.entries[i];

	connection->attempt_again_ns = 0;
	if (connect(connection->fd, address, connection->addresses.lengths[i]) == 0)
		return become_open(connection);
	if (errno == EINPROGRESS || errno == EINTR)
		return true;
	connection->connect_errno = errno;
	if (errno != EAGAIN || address->sa_family != AF_UNIX)
		return false;
	connection->attempt_again_ns = clock_now_ns() + CONNECTING_BACKLOG_RETRY_MS * (int64_t)CLOCK_NS_PER_MS;
	return true;
}

void
lb_connecting_forget_retired(struct lb_connection *connection)
{
	if (connection->retired_fd >= 0)
		close(connection->retired_fd);
	connection->retired_fd = -1;
}

/*
 * A socket takes the place of the one before, which is closed later if a watcher may know it: a closed number could
 * come back as another connection's before the watcher has been told.
 */
static void
replace_socket(struct lb_connection *connection, int fd)
{
	if (connection->retired_fd < 0)
		connection->retired_fd = connection->fd;
	else
		close(connection->fd);
	connection->fd = fd;
}

static bool
attempt(struct lb_connection *connection)
{
	int64_t now_ns = clock_now_ns();
	size_t i = connection->next_address++;
	int64_t left = (int64_t)(connection->addresses.count - i);
	int fd = socket(connection->addresses.entries[i].ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0) {
		connection->connect_errno = errno;
		return false;
	}
	connection->attempt_deadline_ns = now_ns + (connection->connect_deadline_ns - now_ns) / left;
	replace_socket(connection, fd);
	return try_connect(connection);
}

/* Not every failure is the broker's. */
static const char *
advice(int error)
{
	if (error == EMFILE || error == ENFILE)
		return "close descriptors, or raise the limit of them";
	return "is the broker running, and is this its address?";
}

void
lb_connecting_begin(struct lb_connection *connection)
{
	size_t count = connection->addresses.count;
	int error;

	while (connection->next_address < count) {
		if (attempt(connection))
			return;
	}
	error = connection->connect_errno;
	lb_connection_end(connection, LB_CANNOT_CONNECT, "cannot connect%s: %s; %s", count > 1 ? " to any of its addresses" : "",
	    error == ETIMEDOUT ? "no answer in time" : strerror(error), advice(error));
}

/* A connect that has begun: returns false when it has failed. */
static bool
look(struct lb_connection *connection)
{
	struct pollfd fd = { .fd = connection->fd, .events = POLLOUT };
	int error = 0;
	socklen_t size = sizeof(error);

	if (poll(&fd, 1, 0) <= 0)
		return true;
	if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
		error = errno;
	if (error == 0)
		return become_open(connection);
	connection->connect_errno = error;
	return false;
}

void
lb_connecting_process(struct lb_connection *connection)
{
	int64_t now_ns = clock_now_ns();
	bool hope = true;

	if (connection->attempt_again_ns == 0)
		hope = look(connection);
	else if (now_ns >= connection->attempt_again_ns)
		hope = try_connect(connection);
	if (hope && connection->state == CONNECTION_CONNECTING && now_ns >= connection->attempt_deadline_ns) {
		connection->connect_errno = ETIMEDOUT;
		hope = false;
	}
	if (!hope)
		lb_connecting_begin(connection);
}
