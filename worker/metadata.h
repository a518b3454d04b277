/* METADATA: answered by any worker for every partition, from the boards. */
#ifndef WORKER_METADATA_H
#define WORKER_METADATA_H

#include "common/codec.h"
#include "worker/conn.h"

/* Nothing is owed on the connection. The request has been parsed without error. */
void metadata_execute(struct worker *worker, struct conn *conn, struct codec_request *request);

#endif
