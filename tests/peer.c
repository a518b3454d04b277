/* See peer.h. */
#include "tests/peer.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void
listen_at(struct peer *peer, const struct sockaddr *address, socklen_t length)
{
	int buffer_bytes = PEER_BUFFER_BYTES;

	peer->fd = -1;
	peer->in = (struct wire_bytes){ 0 };
	peer->source = NULL;
	peer->listener = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_ge(peer->listener, 0);
	setsockopt(peer->listener, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));
	ck_assert_int_eq(bind(peer->listener, address, length), 0);
	ck_assert_int_eq(listen(peer->listener, 16), 0);
}

void
peer_listen_at(struct peer *peer, int last_byte, int port)
{
	struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	socklen_t length = sizeof(in);

	in.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xffu) | (uint32_t)last_byte);
	listen_at(peer, (struct sockaddr *)&in, length);
	ck_assert_int_eq(getsockname(peer->listener, (struct sockaddr *)&in, &length), 0);
	snprintf(peer->address, sizeof(peer->address), "127.0.0.%d:%d", last_byte, ntohs(in.sin_port));
}

void
peer_listen(struct peer *peer)
{
	peer_listen_at(peer, 1, 0);
}

int
peer_port(const struct peer *peer)
{
	return atoi(strrchr(peer->address, ':') + 1);
}

void
peer_listen_unix(struct peer *peer, const char *path)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
	listen_at(peer, (struct sockaddr *)&un, sizeof(un));
	snprintf(peer->address, sizeof(peer->address), "unix:%.100s", path);
}

void
peer_stop(struct peer *peer)
{
	peer_close(peer);
	close(peer->listener);
	peer->listener = -1;
}

void
peer_fill_backlog(struct peer *peer, int fillers[2])
{
	struct sockaddr_storage address;
	socklen_t length = sizeof(address);

	ck_assert_int_eq(listen(peer->listener, 0), 0);
	ck_assert_int_eq(getsockname(peer->listener, (struct sockaddr *)&address, &length), 0);
	for (int i = 0; i < 2; i++) {
		fillers[i] = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		ck_assert_int_ge(fillers[i], 0);
		if (connect(fillers[i], (struct sockaddr *)&address, length) != 0)
			ck_assert(errno == EINPROGRESS || errno == EAGAIN);
	}
}

static void
turn(struct peer *peer, int64_t until_ms)
{
	ck_assert_msg(wire_now_ms() < until_ms, "what the peer waits for does not come");
	if (peer->source != NULL)
		lb_source_poll(peer->source, 1);
	else
		usleep(1000);
}

void
peer_accept(struct peer *peer, struct lb_source *source)
{
	int64_t until_ms = wire_now_ms() + PEER_DEADLINE_MS;

	peer->source = source;
	while ((peer->fd = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0) {
		ck_assert_int_eq(errno, EAGAIN);
		turn(peer, until_ms);
	}
}

/* Takes some of what is there; returns false at the end. */
static bool
receive(struct peer *peer)
{
	uint8_t bytes[65536];
	ssize_t got = recv(peer->fd, bytes, sizeof(bytes), 0);

	if (got > 0)
		wire_put(&peer->in, bytes, (size_t)got);
	return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

void
peer_wait_bytes(struct peer *peer, size_t bytes)
{
	int64_t until_ms = wire_now_ms() + PEER_DEADLINE_MS;

	while (peer->in.length < bytes) {
		bool more = receive(peer);

		if (peer->in.length >= bytes)
			return;
		ck_assert_msg(more, "the connection has ended");
		turn(peer, until_ms);
	}
}

struct peer_request
peer_take(struct peer *peer)
{
	struct peer_request request;

	peer_wait_bytes(peer, 4);
	request.bytes = 4 + (size_t)wire_get_i32(peer->in.data);
	ck_assert_uint_le(request.bytes, 4 + WIRE_FRAME_MAX);
	peer_wait_bytes(peer, request.bytes);
	request.api = wire_get_i16(peer->in.data + 4);
	request.version = wire_get_i16(peer->in.data + 6);
	request.id = wire_get_i32(peer->in.data + 8);
	peer->in.length -= request.bytes;
	memmove(peer->in.data, peer->in.data + request.bytes, peer->in.length);
	return request;
}

void
peer_wait_end(struct peer *peer)
{
	int64_t until_ms = wire_now_ms() + PEER_DEADLINE_MS;

	while (receive(peer))
		turn(peer, until_ms);
}

bool
peer_is_quiet(struct peer *peer)
{
	size_t before = peer->in.length;

	for (int i = 0; i < 3; i++) {
		turn(peer, INT64_MAX);
		receive(peer);
	}
	return peer->in.length == before;
}

void
peer_send(struct peer *peer, const void *bytes, size_t length)
{
	int64_t until_ms = wire_now_ms() + PEER_DEADLINE_MS;

	while (length > 0) {
		ssize_t sent = send(peer->fd, bytes, length, MSG_NOSIGNAL);

		if (sent < 0) {
			ck_assert_int_eq(errno, EAGAIN);
			turn(peer, until_ms);
			continue;
		}
		bytes = (const uint8_t *)bytes + sent;
		length -= (size_t)sent;
	}
}

void
peer_close(struct peer *peer)
{
	if (peer->fd >= 0)
		close(peer->fd);
	peer->fd = -1;
	wire_bytes_free(&peer->in);
	peer->in = (struct wire_bytes){ 0 };
}

void
peer_reset(struct peer *peer)
{
	struct linger linger = { .l_onoff = 1 };

	setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
	peer_close(peer);
}

/* ---- answers ---- */

static size_t
begin(struct wire_bytes *to, int32_t id, int error)
{
	size_t start = to->length;

	wire_put_i32(to, 0);
	wire_put_i32(to, id);
	wire_put_i16(to, error);
	return start;
}

static void
end(struct wire_bytes *to, size_t start)
{
	wire_set_i32(to->data + start, (int64_t)(to->length - start - 4));
}

void
peer_put_error(struct wire_bytes *to, int32_t id, int error)
{
	end(to, begin(to, id, error));
}

void
peer_put_produced(struct wire_bytes *to, int32_t id, int64_t base, int64_t log_end)
{
	size_t start = begin(to, id, 0);

	wire_put_i64(to, base);
	wire_put_i64(to, log_end);
	end(to, start);
}

void
peer_put_fetched(struct wire_bytes *to, int32_t id, int64_t high_watermark, const void *payload, size_t bytes)
{
	size_t start = begin(to, id, 0);

	wire_put_i64(to, high_watermark);
	wire_put_i32(to, (int64_t)bytes);
	wire_put(to, payload, bytes);
	end(to, start);
}

void
peer_put_metadata(struct wire_bytes *to, int32_t id, int version)
{
	size_t start = begin(to, id, 0);

	wire_put_i32(to, 1);
	wire_put_name(to, "t");
	if (version == 2)
		wire_put_i8(to, 0);
	wire_put_i32(to, 1);
	wire_put_i32(to, 0);
	wire_put_i64(to, 3);
	wire_put_i64(to, 9);
	if (version == 2)
		wire_put_i32(to, 4);
	end(to, start);
}

void
peer_put_good(struct wire_bytes *to, const struct peer_request *request)
{
	if (request->api == WIRE_PRODUCE)
		peer_put_produced(to, request->id, 5, 6);
	else if (request->api == WIRE_FETCH)
		peer_put_fetched(to, request->id, 6, "payload", 7);
	else
		peer_put_metadata(to, request->id, request->version);
}
