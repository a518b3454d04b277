/* From a frame to whoever executes it. */
#ifndef WORKER_DISPATCH_H
#define WORKER_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/conn.h"

/*
 * The group other than this worker's that must execute the request whose length word begins at `data` and which is not
 * complete yet; -1 when it is this one, any, or too little has arrived to tell.
 */
int32_t dispatch_route(const struct worker *worker, const uint8_t *data, size_t available);

enum dispatch_result {
	DISPATCH_EXECUTED,	/* answered, gathered, or held */
	DISPATCH_ELSEWHERE,	/* *group must execute it */
	DISPATCH_BEHIND_APPENDS,	/* offer it again in the next round: reads run after the appends gathered before */
	DISPATCH_WHEN_ANSWERED,	/* offer it again when nothing is owed on the connection */
	DISPATCH_LATER,		/* offer it again after conn_resume_all */
};

/* Executes a whole frame (without its length word). */
enum dispatch_result dispatch_execute(struct worker *worker, struct conn *conn, const uint8_t *frame, size_t bytes,
    int32_t *group);

#endif
