/* Gives a connection away, with what has been read of it and not executed. */
#ifndef WORKER_MOVE_H
#define WORKER_MOVE_H

struct conn;

/* To the group `move_to`, through the supervisor. Nothing is owed and everything has been sent. The connection is dead
 * here afterwards, and closed when it could not be given away. */
void move_out(struct conn *conn);

#endif
