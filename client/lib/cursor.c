/*
 * One partition's states and events: see cursor.h.
 */
#include "client/lib/cursor.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/lib/error.h"
#include "common/bytes.h"
#include "common/clock.h"

static const int64_t SICK_NS = INT64_C(10) * CLOCK_NS_PER_S;	/* a failed partition of the broker comes back, damage does not */
/* Behind an empty answer that did not wait: a broker of version 1, or a max_wait_ms of 0. */
static const int64_t IDLE_FIRST_NS = INT64_C(10) * CLOCK_NS_PER_MS;
static const int64_t IDLE_LONGEST_NS = INT64_C(500) * CLOCK_NS_PER_MS;

enum { GUESSED_RECORD_BYTES = 64 };	/* when not even its length has arrived */

void
lb_cursor_init(struct lb_cursor *cursor, const struct lb_subscription_options *options, const char *address,
    const char *topic, int32_t partition, uint64_t seed)
{
	*cursor = (struct lb_cursor){ .options = options, .address = address, .topic = topic, .partition = partition,
		.fetch_version = 2, .record_format = LB_CRC32C, .next_offset = -1, .stop_offset = INT64_MAX, .high_watermark = -1,
		.max_bytes = options->max_bytes };
	lb_backoff_init(&cursor->sick, seed);
}

enum lb_question
lb_cursor_wants(const struct lb_cursor *cursor)
{
	if (cursor->state == LB_CURSOR_FETCHING)
		return LB_ASK_FETCH;
	return cursor->state == LB_CURSOR_UNPLACED || cursor->state == LB_CURSOR_MISPLACED ? LB_ASK_METADATA : LB_ASK_NOTHING;
}

/* What is known to be there is not waited for: the end of a replay is seldom min_bytes away. */
void
lb_cursor_fetch(const struct lb_cursor *cursor, struct lb_fetch *fetch)
{
	bool waits = cursor->fetch_version >= 2 && cursor->high_watermark < cursor->stop_offset;

	*fetch = (struct lb_fetch){ .topic = cursor->topic, .partition = cursor->partition, .offset = cursor->next_offset,
		.max_bytes = cursor->max_bytes, .max_wait_ms = waits ? cursor->options->max_wait_ms : 0,
		.min_bytes = waits ? cursor->options->min_bytes : 0 };
}

void
lb_cursor_fail(struct lb_cursor *cursor, const struct lb_error *error)
{
	cursor->error = *error;
	cursor->state = LB_CURSOR_FAILED;
}

/* The partition's next offset is what cannot be read. */
static void
fail(struct lb_cursor *cursor, int code, const char *why)
{
	lb_error_set(&cursor->error, code, cursor->topic, cursor->partition, cursor->next_offset,
	    "%s/%d at offset %" PRId64 ": %s (%s)", cursor->topic, (int)cursor->partition, cursor->next_offset, why,
	    lb_code_name(code));
	cursor->state = LB_CURSOR_FAILED;
}

/* The broker's last word. */
static void
fail_refused(struct lb_cursor *cursor, enum lb_question asked, int code)
{
	const char *for_long = code == LB_STORAGE_FAILURE ? " (for 10 s now)" : "";
	char place[64] = "", reason[LB_ERROR_TEXT_BYTES / 2];

	if (asked == LB_ASK_FETCH)
		snprintf(place, sizeof(place), "/%d at offset %" PRId64, (int)cursor->partition, cursor->next_offset);
	lb_error_explain(reason, sizeof(reason), cursor->address, code);
	lb_error_set(&cursor->error, code, cursor->topic, cursor->partition, cursor->next_offset, "%s of %s%s: %s%s",
	    asked == LB_ASK_FETCH ? "FETCH" : "METADATA", cursor->topic, place, reason, for_long);
	cursor->state = LB_CURSOR_FAILED;
}

/* Asked again with back-off, for the last time when SICK_NS are over. False: they are. */
static bool
try_again(struct lb_cursor *cursor, int64_t now_ns)
{
	if (cursor->sick.wait_ns == 0)
		cursor->sick_since_ns = now_ns;
	if (now_ns - cursor->sick_since_ns >= SICK_NS)
		return false;
	lb_backoff_failed(&cursor->sick, now_ns);
	cursor->not_before_ns = cursor->sick.due_ns;
	if (cursor->not_before_ns > cursor->sick_since_ns + SICK_NS)
		cursor->not_before_ns = cursor->sick_since_ns + SICK_NS;
	return true;
}

/* Goes on there, unless that is the stop. */
static void
go_on_from(struct lb_cursor *cursor, int64_t offset)
{
	cursor->next_offset = offset;
	cursor->state = offset >= cursor->stop_offset ? LB_CURSOR_ENDED : LB_CURSOR_FETCHING;
}

/* ---- METADATA ---- */

static void
pass_gap(struct lb_cursor *cursor, const struct lb_partition_metadata *found)
{
	enum lb_gap policy = cursor->options->on_gap;
	int64_t to = policy == LB_GAP_LATEST ? found->high_watermark : found->log_start_offset;
	int64_t gone = found->log_start_offset - cursor->next_offset;

	/* Behind a gap up to the stop no batch would tell of it. */
	if (policy != LB_GAP_FAIL && to < cursor->stop_offset) {
		cursor->skipped += to - cursor->next_offset;
		go_on_from(cursor, to);
		return;
	}
	lb_error_set(&cursor->error, LB_GAP, cursor->topic, cursor->partition, cursor->next_offset,
	    "%s/%d at offset %" PRId64 ": %" PRId64 " record%s gone, the log starts at %" PRId64, cursor->topic,
	    (int)cursor->partition, cursor->next_offset, gone, gone == 1 ? " is" : "s are", found->log_start_offset);
	cursor->error.skipped = gone;
	cursor->state = LB_CURSOR_FAILED;
}

/* It was taken from another log, or this one has lost its end. */
static void
fail_above(struct lb_cursor *cursor)
{
	char why[LB_ERROR_TEXT_BYTES / 2];

	snprintf(why, sizeof(why), "the position is above the high watermark, which is %" PRId64 " at %.130s: it is another "
	    "log's, or the log has lost its end", cursor->high_watermark, cursor->address);
	fail(cursor, LB_OFFSET_OUT_OF_RANGE, why);
}

/* Is the position in the log? False: it is moved, or has failed. */
static bool
settle(struct lb_cursor *cursor, const struct lb_partition_metadata *found)
{
	cursor->high_watermark = found->high_watermark;
	if (cursor->next_offset > found->high_watermark) {
		fail_above(cursor);
		return false;
	}
	if (cursor->next_offset >= found->log_start_offset)
		return true;
	if (cursor->loose)
		go_on_from(cursor, found->log_start_offset);
	else
		pass_gap(cursor, found);
	return false;
}

static int64_t
start_offset(const struct lb_cursor *cursor, const struct lb_partition_metadata *found, enum lb_start start)
{
	int64_t offset = cursor->options->start_offset;

	switch (start) {
	case LB_START_LATEST:
		return found->high_watermark;
	case LB_START_OFFSET:
		return offset;
	case LB_START_BEFORE_END:
		if (offset < found->high_watermark - found->log_start_offset)
			return found->high_watermark - offset;
		return found->log_start_offset;
	default:
		return found->log_start_offset;
	}
}

void
lb_cursor_place(struct lb_cursor *cursor, const struct lb_partition_metadata *found, enum lb_start start,
    int64_t kept_offset, int64_t now_ns)
{
	cursor->not_before_ns = now_ns;
	lb_backoff_worked(&cursor->sick);
	if (cursor->options->stop == LB_STOP_AT_WATERMARK)
		cursor->stop_offset = found->high_watermark;
	else if (cursor->options->stop == LB_STOP_AT_OFFSET)
		cursor->stop_offset = cursor->options->stop_offset;
	cursor->loose = kept_offset < 0 && (start == LB_START_EARLIEST || start == LB_START_BEFORE_END);
	cursor->next_offset = kept_offset >= 0 ? kept_offset : start_offset(cursor, found, start);
	if (settle(cursor, found))
		go_on_from(cursor, cursor->next_offset);
}

void
lb_cursor_found(struct lb_cursor *cursor, const struct lb_partition_metadata *found, int64_t now_ns)
{
	if (cursor->state != LB_CURSOR_MISPLACED || !settle(cursor, found))
		return;
	/* The log has grown up to the position meanwhile; or the broker contradicts itself, for which it does not get for ever. */
	cursor->state = LB_CURSOR_FETCHING;
	if (!try_again(cursor, now_ns))
		fail(cursor, LB_OFFSET_OUT_OF_RANGE, "the broker refuses it, although its METADATA has it in the log");
}

/* ---- FETCH ---- */

/* common/record.h has the drawing. */
static size_t
header_bytes_of(enum lb_record_format format)
{
	return format == LB_PLAIN ? 4 : 8;
}

/* Of a request that carries the record. */
static size_t
needed_bytes(const struct lb_cursor *cursor, size_t record_bytes)
{
	return header_bytes_of(cursor->record_format) + record_bytes;
}

/* The first record is larger than the request: asks with as much as it needs, if that is allowed. */
static void
grow(struct lb_cursor *cursor, const struct lb_record *record, size_t payload_bytes)
{
	size_t needed = record->bytes > 0 ? needed_bytes(cursor, record->bytes) : GUESSED_RECORD_BYTES;
	size_t limit = (size_t)cursor->options->max_bytes_limit;

	if (record->bytes > 0 && needed <= (size_t)cursor->max_bytes) {
		fail(cursor, LB_CORRUPT_RECORD, payload_bytes < (size_t)cursor->max_bytes ?
		    "the record's length is more than the log has" : "the record has not come whole, although it fits the request");
		return;
	}
	if (record->bytes == 0 && needed > limit)
		needed = limit;
	if (needed <= limit && needed > (size_t)cursor->max_bytes) {
		cursor->max_bytes = (int32_t)needed;
		return;
	}
	lb_error_set(&cursor->error, LB_RECORD_EXCEEDS_MAX_BYTES, cursor->topic, cursor->partition, cursor->next_offset,
	    "%s/%d at offset %" PRId64 ": the record, of %zu bytes, is larger than a request of at most %zu carries",
	    cursor->topic, (int)cursor->partition, cursor->next_offset, record->bytes, limit);
	cursor->error.record_bytes = (int64_t)record->bytes;
	cursor->state = LB_CURSOR_FAILED;
}

/* Nothing came. When the broker has held the request for longer than the pause, it is over. */
static void
pause_idle(struct lb_cursor *cursor, int64_t asked_ns)
{
	cursor->idle_ns = cursor->idle_ns == 0 ? IDLE_FIRST_NS : cursor->idle_ns * 2;
	if (cursor->idle_ns > IDLE_LONGEST_NS)
		cursor->idle_ns = IDLE_LONGEST_NS;
	cursor->not_before_ns = asked_ns + cursor->idle_ns;
}

/*
 * Where one record is larger than the option's value others are, too: the request keeps its size until an answer has no
 * such record. A length that no request may carry is left to the answer that begins with it.
 */
static void
size_next(struct lb_cursor *cursor, size_t largest_bytes)
{
	size_t needed = needed_bytes(cursor, largest_bytes);

	if (needed <= (size_t)cursor->options->max_bytes)
		cursor->max_bytes = cursor->options->max_bytes;
	else if (needed > (size_t)cursor->max_bytes && needed <= (size_t)cursor->options->max_bytes_limit)
		cursor->max_bytes = (int32_t)needed;
}

static void
move_behind(struct lb_cursor *cursor, struct lb_batch *batch)
{
	batch->skipped = cursor->skipped;
	cursor->skipped = 0;
	cursor->idle_ns = 0;
	go_on_from(cursor, batch->next_offset);
}

/*
 * Walks over the records in front of the stop; returns what has ended that. largest_bytes: the largest record's, one that was cut
 * included, as far as its length has come.
 */
static enum lb_walk_result
count_records(const struct lb_cursor *cursor, const struct lb_fetched *fetched, struct lb_batch *batch, struct lb_record *record,
    size_t *largest_bytes)
{
	enum lb_walk_result result = LB_WALK_END;
	struct lb_walk walk;

	*largest_bytes = 0;
	lb_walk_begin(&walk, cursor->record_format, cursor->next_offset, fetched->payload, fetched->payload_bytes);
	while (batch->next_offset < cursor->stop_offset) {
		result = lb_walk_next(&walk, record);
		if (record->bytes > *largest_bytes)
			*largest_bytes = record->bytes;
		if (result != LB_WALK_RECORD)
			break;
		batch->record_count++;
		batch->next_offset++;
	}
	return result;
}

void
lb_cursor_fetched(struct lb_cursor *cursor, const struct lb_fetched *fetched, int64_t asked_ns, struct lb_batch *batch)
{
	enum lb_walk_result result;
	struct lb_record record;
	size_t largest_bytes;

	*batch = (struct lb_batch){ .topic = cursor->topic, .partition = cursor->partition, .base_offset = cursor->next_offset,
		.next_offset = cursor->next_offset, .high_watermark = fetched->high_watermark, .max_bytes = cursor->max_bytes,
		.records = fetched->payload, .record_format = cursor->record_format };
	if (cursor->state != LB_CURSOR_FETCHING)
		return;
	result = count_records(cursor, fetched, batch, &record, &largest_bytes);
	if (fetched->high_watermark < batch->next_offset) {
		batch->record_count = 0;
		fail(cursor, LB_BAD_ANSWER, "the answer's records, or the position, are above its high watermark");
		return;
	}
	batch->lag = batch->high_watermark - batch->next_offset;
	lb_backoff_worked(&cursor->sick);
	cursor->loose = false;
	cursor->high_watermark = fetched->high_watermark;
	if (batch->record_count > 0) {
		move_behind(cursor, batch);
		size_next(cursor, largest_bytes);
	} else if (result == LB_WALK_END) {
		pause_idle(cursor, asked_ns);
	}
	if (result == LB_WALK_CORRUPT)
		fail(cursor, LB_CORRUPT_RECORD, "the record's length is impossible, or its sum does not fit");
	else if (result == LB_WALK_EXCEEDS)
		grow(cursor, &record, fetched->payload_bytes);
}

void
lb_cursor_not_kept(struct lb_cursor *cursor, const struct lb_batch *batch)
{
	cursor->next_offset = batch->base_offset;
	cursor->skipped = batch->skipped;
	fail(cursor, LB_NO_MEMORY, "out of memory");
}

/* ---- the rest ---- */

void
lb_cursor_refused(struct lb_cursor *cursor, int code, int64_t now_ns)
{
	enum lb_question asked = lb_cursor_wants(cursor);

	if (asked == LB_ASK_NOTHING)
		return;
	if (code == LB_STORAGE_FAILURE && try_again(cursor, now_ns))
		return;
	if (code == LB_OFFSET_OUT_OF_RANGE && asked == LB_ASK_FETCH)
		cursor->state = LB_CURSOR_MISPLACED;
	else if (code == LB_UNSUPPORTED_VERSION && asked == LB_ASK_FETCH && cursor->fetch_version > 1)
		cursor->fetch_version = 1;
	else
		fail_refused(cursor, asked, code);
}

void
lb_cursor_lost(struct lb_cursor *cursor)
{
	lb_backoff_worked(&cursor->sick);
}

void
lb_cursor_seek(struct lb_cursor *cursor, int64_t offset)
{
	cursor->loose = false;
	cursor->skipped = 0;
	cursor->idle_ns = 0;
	cursor->not_before_ns = 0;
	cursor->max_bytes = cursor->options->max_bytes;
	lb_backoff_worked(&cursor->sick);
	go_on_from(cursor, offset);
}

/* ---- batches ---- */

/* Its records have been verified when it was made. */
bool
lb_batch_next(const struct lb_batch *batch, struct lb_record *record)
{
	size_t header_bytes = header_bytes_of(batch->record_format);
	int64_t offset = record->data == NULL ? batch->base_offset : record->offset + 1;
	const uint8_t *at = record->data == NULL ? batch->records : (const uint8_t *)record->data + record->bytes;

	if (offset >= batch->next_offset)
		return false;
	record->offset = offset;
	record->bytes = (size_t)bytes_get_i32(at);
	record->data = at + header_bytes;
	return true;
}
