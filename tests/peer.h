/*
 * The other end of a connection under test, in the same thread: it does exactly what the test says, byte by byte,
 * while the connection is given its turns. Its bytes come from wire.h, so it shares no code with the client.
 */
#ifndef TESTS_PEER_H
#define TESTS_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/lib/logbroker.h"
#include "tests/wire.h"

enum { PEER_DEADLINE_MS = 30000, PEER_BUFFER_BYTES = 128 * 1024 };

struct peer {
	int listener;
	int fd;				/* of the connection it has accepted; -1: none */
	char address[128];
	struct wire_bytes in;		/* what has come and was not taken */
	struct lb_source *source;	/* gets turns while the peer waits */
};

/* Request frames as they came. */
struct peer_request {
	int api, version;
	int32_t id;
	size_t bytes;		/* of the frame */
};

/* 127.0.0.1, a free port. */
void peer_listen(struct peer *peer);
/* 127.0.0.last_byte, that port (0: a free one). */
void peer_listen_at(struct peer *peer, int last_byte, int port);
int peer_port(const struct peer *peer);
void peer_listen_unix(struct peer *peer, const char *path);
void peer_stop(struct peer *peer);
/* Two descriptors of connections that are never accepted; a third connect() hangs (TCP) or is told EAGAIN (Unix) until one is. */
void peer_fill_backlog(struct peer *peer, int fillers[2]);

/* Waits for the connection of `source`, which has turns from then on whenever the peer waits. */
void peer_accept(struct peer *peer, struct lb_source *source);
/* Waits for the next whole request and takes it. */
struct peer_request peer_take(struct peer *peer);
/* Waits until that many bytes have come in all and were not taken. */
void peer_wait_bytes(struct peer *peer, size_t bytes);
/* Waits for the end of the other side. */
void peer_wait_end(struct peer *peer);
/* True: a turn or two later still nothing has come. */
bool peer_is_quiet(struct peer *peer);

void peer_send(struct peer *peer, const void *bytes, size_t length);
void peer_close(struct peer *peer);
void peer_reset(struct peer *peer);

/* Answers. */
void peer_put_error(struct wire_bytes *to, int32_t id, int error);
void peer_put_produced(struct wire_bytes *to, int32_t id, int64_t base, int64_t end);
void peer_put_fetched(struct wire_bytes *to, int32_t id, int64_t high_watermark, const void *payload, size_t bytes);
/* Topic "t" with one partition, [3, 9]. */
void peer_put_metadata(struct wire_bytes *to, int32_t id, int version);
/* The answer to any request, a good one: offsets 5 to 6, payload "payload". */
void peer_put_good(struct wire_bytes *to, const struct peer_request *request);

#endif
