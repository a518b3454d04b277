/* What a client has sent: reads it, finds the frames, has them executed, in order, as long as that is allowed. */
#ifndef WORKER_INTAKE_H
#define WORKER_INTAKE_H

#include <stddef.h>
#include <stdint.h>

struct conn;

/* Keeps a copy of `size` bytes that have been received and not executed, in place of what was kept before. */
void intake_keep(struct conn *conn, const uint8_t *bytes, size_t size);

/*
 * Puts bytes in front of all that was received and not executed, which is in memory afterwards. Returns 0, or -1 without
 * memory, and the connection can only be closed.
 */
int intake_put_back(struct conn *conn, const uint8_t *bytes, size_t size);

/* Executes what is there and may be executed; the socket is read once a turn. Begins the end when the client has ended. */
void intake_serve(struct conn *conn);

/* Reads and drops: everything owed has been sent, and a close with unread bytes would destroy it on its way. */
void intake_discard(struct conn *conn);

/* While nothing is read or sent, the only news can be the peer's end: sets `ending`. */
void intake_look_for_end(struct conn *conn);

#endif
