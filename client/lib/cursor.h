/*
 * Where a subscription stands in one partition, and what follows from what the broker says: the next question, a batch, the
 * end or an error. Pure: no socket, no clock of its own, so that planned answers test it.
 *
 *              | METADATA: found            | FETCH: fetched            | refused
 *   -----------+----------------------------+---------------------------+----------------------------------------
 *   UNPLACED   | start and stop -> FETCHING | -                         | STORAGE_FAILURE: again for 10 s;
 *              |                            |                           | else -> FAILED
 *   FETCHING   | -                          | a batch; -> ENDED, FAILED | OFFSET_OUT_OF_RANGE -> MISPLACED;
 *              |                            |                           | version 2: again as version 1;
 *              |                            |                           | STORAGE_FAILURE: again for 10 s;
 *              |                            |                           | else -> FAILED
 *   MISPLACED  | the gap's policy ->        | -                         | STORAGE_FAILURE: again for 10 s;
 *              | FETCHING, ENDED, FAILED    |                           | else -> FAILED
 *   ENDED      | -                          | -                         | -
 *   FAILED     | -                          | -                         | -
 *
 * A seek leads from everywhere but UNPLACED to FETCHING (ENDED behind the stop). "-": an answer to a question of before; ignored.
 */
#ifndef CLIENT_LIB_CURSOR_H
#define CLIENT_LIB_CURSOR_H

#include "client/lib/backoff.h"
#include "client/lib/logbroker.h"

enum lb_cursor_state { LB_CURSOR_UNPLACED, LB_CURSOR_FETCHING, LB_CURSOR_MISPLACED, LB_CURSOR_ENDED, LB_CURSOR_FAILED };

enum lb_question { LB_ASK_NOTHING, LB_ASK_METADATA, LB_ASK_FETCH };

struct lb_cursor {
	const struct lb_subscription_options *options;
	const char *address;	/* for errors */
	const char *topic;
	int32_t partition;
	enum lb_record_format record_format;
	int16_t fetch_version;
	enum lb_cursor_state state;
	int64_t next_offset;	/* to ask for; -1 = UNPLACED */
	int64_t stop_offset;	/* INT64_MAX = never */
	int64_t high_watermark;	/* the last that was told; -1 = none */
	int64_t skipped;	/* records passed over, which the next batch tells */
	bool loose;		/* the start is the log start, and nothing has been read yet: it moves with the log start */
	int32_t max_bytes;	/* of the next FETCH */
	int64_t not_before_ns;	/* of the next question */
	int64_t idle_ns;	/* the pause behind an empty answer that came at once; 0 = the last was not empty */
	struct lb_backoff sick;	/* while the broker refuses what may heal */
	int64_t sick_since_ns;
	struct lb_error error;	/* FAILED */
};

/* The options, the address and the topic's name stay the caller's. partition -1: not known yet. */
void lb_cursor_init(struct lb_cursor *cursor, const struct lb_subscription_options *options, const char *address,
    const char *topic, int32_t partition, uint64_t seed);

enum lb_question lb_cursor_wants(const struct lb_cursor *cursor);
void lb_cursor_fetch(const struct lb_cursor *cursor, struct lb_fetch *fetch);

/*
 * UNPLACED only: METADATA has said where the log begins and ends. kept_offset: a checkpoint's, which goes before the start;
 * -1 = none. start is options->start, but for a partition that the topic has only got since.
 */
void lb_cursor_place(struct lb_cursor *cursor, const struct lb_partition_metadata *found, enum lb_start start,
    int64_t kept_offset, int64_t now_ns);
/* MISPLACED: METADATA has said where the log begins and ends. */
void lb_cursor_found(struct lb_cursor *cursor, const struct lb_partition_metadata *found, int64_t now_ns);
/* A FETCH that was asked at asked_ns has its answer. Fills in *batch, whose record_count may be 0: nothing to deliver. */
void lb_cursor_fetched(struct lb_cursor *cursor, const struct lb_fetched *fetched, int64_t asked_ns, struct lb_batch *batch);
/* There is no memory to keep the batch of the last answer in: it was not fetched, and the cursor has failed. */
void lb_cursor_not_kept(struct lb_cursor *cursor, const struct lb_batch *batch);
/* The broker has answered with an error code. */
void lb_cursor_refused(struct lb_cursor *cursor, int code, int64_t now_ns);
/* The connection was lost: what the next broker refuses has begun then. */
void lb_cursor_lost(struct lb_cursor *cursor);
void lb_cursor_seek(struct lb_cursor *cursor, int64_t offset);
/* For good, for reasons that are not the cursor's. */
void lb_cursor_fail(struct lb_cursor *cursor, const struct lb_error *error);

#endif
