/*
 * What a real broker does while it is recorded: it is started with the recorder preloaded, producers write to its one
 * log, and it is stopped. Leaves the events in a file and says what was asked for. Knows the broker and the protocol;
 * knows nothing of models and states.
 */
#ifndef TESTS_POWERCUT_WORKLOADS_H
#define TESTS_POWERCUT_WORKLOADS_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/broker.h"
#include "tests/powercut_ledger.h"
#include "worker/partition.h"

enum { WORKLOAD_REQUESTS_MAX = 4096 };

struct workload;

/* A broker under recording; and afterwards what has been recorded. */
struct recording {
	struct broker broker;
	char root[BROKER_PATH_BYTES];		/* below which all is recorded; it holds data/t-0 */
	char log_path[BROKER_PATH_BYTES];
	char room_path[BROKER_PATH_BYTES];
	char fail_path[BROKER_PATH_BYTES];
	struct partition_settings settings;
	struct ledger_request requests[WORKLOAD_REQUESTS_MAX];
	int32_t request_count;
	int64_t told_end;	/* up to there its clients were answered with FORCED, or like it */
	uint64_t seed;
};

enum { WORKLOAD_COUNT = 12 };

const char *workload_name(int number);

/* Runs it from start to stop. What goes wrong fails the test. */
void workload_record(int number, bool mapped, enum record_format format, uint64_t seed, struct recording *recording);

#endif
