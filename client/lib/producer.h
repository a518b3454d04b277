/*
 * The producer's turns, for lb_topic_send.
 */
#ifndef CLIENT_LIB_PRODUCER_H
#define CLIENT_LIB_PRODUCER_H

#include "client/lib/producer_state.h"

/*
 * Takes what has come, notices what time it is, sends what may be sent. Calls nobody back: what has become of records is
 * told by the next processing. So it may run at any time.
 */
void lb_producer_work(struct lb_producer *producer);

#endif
