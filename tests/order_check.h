/*
 * Order, proven from a trace alone: no answer that promises records leaves before all of the log up to them has been forced,
 * each file by a force that began after its records were written, and each name, of the file and of the directories above it,
 * by a force of the directory that began after the name was there; and of a topic with `visibility = durable` nothing leaves
 * that has not been forced.
 *
 * Which answer belongs to which records is found in the bytes: requests and answers of each socket, and what was written into
 * each file where. What is answered must stand in the file.
 */
#ifndef TESTS_ORDER_CHECK_H
#define TESTS_ORDER_CHECK_H

#include <stdbool.h>

#include "tests/order_trace.h"

/* To see that the check bites: forces that are taken for none. */
enum order_blind { ORDER_SEES_ALL, ORDER_BLIND_TO_FILES, ORDER_BLIND_TO_DIRECTORIES, ORDER_BLIND_TO_THE_DATA_DIRECTORY };

struct order_config {
	const char *data_dir;
	char plain;		/* topics whose name begins so have records without a sum, */
	char durable;		/* and these visibility = durable */
	enum order_blind blind;
};

enum { ORDER_WHY_BYTES = 1536 };

struct order_found {
	long forced_answers;	/* of PRODUCE, with ack FORCED */
	long durable_answers;	/* with ack WRITTEN, where that is as much */
	long durable_slices;	/* pieces of a file that were sent */
	long forces;
	long stores;		/* into mappings */
	long wrong;
	char why[ORDER_WHY_BYTES];	/* the first wrong one */
};

void order_check(const struct order_trace *trace, const struct order_config *config, struct order_found *found);

#endif
