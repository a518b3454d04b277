/*
 * What was appended to one log and what was promised of it, as events tell: the records that have stood in its segments,
 * each with the one ahead of it, and up to where FORCED has been answered, readers could read or the broker has told them to
 * be durable. Knows records' bytes and the answers of PRODUCE; knows nothing of what is on a disk.
 *
 * A batch that is refused can leave records behind which another one takes their offsets. So records make a tree: what a log
 * may hold is a way through it from the first record on, and a record behind one that it was not appended behind is none.
 */
#ifndef TESTS_POWERCUT_LEDGER_H
#define TESTS_POWERCUT_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/record.h"
#include "tests/powercut_events.h"
#include "tests/powercut_model.h"

/* What was asked for, by the request's number: what its answer must be about. */
struct ledger_request {
	int ack;		/* of tests/wire.h */
	int count;		/* records; 0: no PRODUCE */
};

/* The payload of a request's record, of bytes that follow from both numbers. Never begins with a zero. */
void ledger_payload(int32_t id, int record, uint8_t *to, size_t *size);
enum { LEDGER_PAYLOAD_MAX = 1400, LEDGER_USUAL_FROM = 2048 /* these requests' records have one size */ };

struct ledger_settings {
	enum record_format format;
	bool durable;		/* visibility = durable */
	const char *directory;	/* the log's, below the root */
	const struct ledger_request *requests;	/* by id */
	int32_t request_count;
};

struct ledger_record {
	int64_t offset;
	int before;		/* the record ahead of it, -1: none */
	const uint8_t *bytes;	/* with its header */
	size_t size;
	bool forced;		/* FORCED has been answered */
};

struct ledger;

struct ledger *ledger_new(const struct ledger_settings *settings);
void ledger_free(struct ledger *ledger);

/* The next event, which the model has applied. Returns 0, or -1 with `why`: it should not be. */
int ledger_note(struct ledger *ledger, const struct model *model, const struct powercut_event *event, const char **why);

/* What holds from now on, whatever happens. */
int64_t ledger_forced_end(const struct ledger *ledger);		/* everything below was answered with FORCED, or like it */
int64_t ledger_published_end(const struct ledger *ledger);	/* with visibility = durable; otherwise 0 */
int64_t ledger_durable_end(const struct ledger *ledger);	/* everything below was told to be durable, whoever waited for it */
int64_t ledger_start(const struct ledger *ledger);		/* offset of the first record that has not been retired */

/* The record that stands at the offset as processes see it, by number; -1: none does. */
int ledger_at(const struct ledger *ledger, int64_t offset);
const struct ledger_record *ledger_record(const struct ledger *ledger, int number);
/* The record of these bytes that was appended at the offset, behind the one given (-2: any); -1: there is none. */
int ledger_find(const struct ledger *ledger, int64_t offset, int before, const uint8_t *bytes, size_t size);

#endif
