/*
 * The board: one area of shared memory per worker, in which it publishes its partitions' ends and its counters. The
 * supervisor creates it (memfd) and keeps it while the worker is down, so the last published values stay readable
 * and counters survive a restart; the worker writes, every other process maps it read-only.
 *
 *   header, a worker's counters | slot 0 | slot 1 | ...        slots on cache lines of their own, see topics.h
 *
 * One writer per field: the worker's loop (release), or the supervisor while no worker runs. Any readers (acquire).
 * A watermark is published before the acknowledgement that depends on it leaves. What the supervisor reads from a
 * board it treats like input from outside.
 */
#ifndef COMMON_BOARD_H
#define COMMON_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/codec.h"

enum { BOARD_VERSION = 4 };

typedef _Atomic int64_t board_counter;

enum board_partition_state {
	BOARD_NEVER_OPENED = 0,	/* not since the supervisor started: its numbers mean nothing */
	BOARD_OPEN = 1,
	BOARD_CLOSED = 2,	/* could not be opened or trusted; the numbers are the last published ones, if any */
	BOARD_FAILED = 3,	/* a force has failed, or its file was cut: takes no writes, readable up to durable_end, opened anew until that works */
};

struct board_partition {
	_Alignas(64) board_counter log_start;
	board_counter high_watermark;
	board_counter durable_end;
	_Atomic int32_t state;		/* enum board_partition_state */
	_Atomic int32_t opened;		/* 1 once it was open since the supervisor started: the ends above count */
	/* 1 while a force is under way, or the log is being opened: how a force ends, a worker that dies meanwhile does not
	 * tell, and the kernel tells only once. */
	_Atomic int32_t forcing;
	_Alignas(64) board_counter produced_records;
	board_counter produced_bytes;
	board_counter size_bytes;	/* bytes of records */
	board_counter segments;
	board_counter unsynced_bytes;
};

/* A histogram of durations: bucket i counts what took at most board_bucket_us[i]; the last one all the rest. */
enum { BOARD_BUCKETS = 16 };
extern const int64_t board_bucket_us[BOARD_BUCKETS - 1];

struct board_histogram {
	board_counter buckets[BOARD_BUCKETS];
	board_counter sum_ns;
};

enum board_api { BOARD_PRODUCE, BOARD_FETCH, BOARD_METADATA, BOARD_OTHER, BOARD_API_COUNT };
enum board_wakeup { BOARD_WAKEUP_DATA, BOARD_WAKEUP_TIMEOUT, BOARD_WAKEUP_STOP, BOARD_WAKEUP_END,
	BOARD_WAKEUP_FAILURE, BOARD_WAKEUP_RETENTION, BOARD_WAKEUP_COUNT };
enum board_operation { BOARD_OPEN_LOG, BOARD_READ, BOARD_WRITE, BOARD_FORCE, BOARD_ROLL, BOARD_RETENTION,
	BOARD_OPERATION_COUNT };

struct board_worker {
	/* Gauges: cleared by the supervisor when the worker has died. */
	_Alignas(64) board_counter heartbeat_ns;	/* CLOCK_MONOTONIC of the loop's last turn, at least one a second */
	board_counter fetch_held;
	board_counter buffered_bytes;
	board_counter recovered_bytes;	/* of segment files, read whole or from a recovery point on, by this process so far */
	/* Counters. */
	board_counter connections_closed;	/* ended in this worker, for whatever reason */
	board_counter connections_overflowed;	/* of them: because buffer_bytes was reached */
	board_counter connections_timed_out;	/* of them: request_timeout */
	board_counter connections_idle;		/* of them: idle_timeout */
	board_counter handoffs;			/* connections given back for another group */
	board_counter requests[BOARD_API_COUNT][CODEC_ERROR_COUNT];
	board_counter fetch_wakeups[BOARD_WAKEUP_COUNT];
	board_counter fetched_bytes;		/* by sendfile */
	board_counter fsync_failures;
	board_counter storage_errors[BOARD_OPERATION_COUNT];
	board_counter truncated_bytes;		/* cut by recovery */
	struct board_histogram request_duration[BOARD_API_COUNT];
	struct board_histogram fsync_duration;
};

struct board {
	struct board_worker *worker;
	struct board_partition *slots;
	int32_t slot_count;
	size_t mapped_bytes;
};

/* A new board's descriptor, close-on-exec, filled with zeros; or -1 with errno. */
int board_create(int32_t slot_count);

/* A second descriptor of the same board that cannot be mapped for writing; or -1 with errno. */
int board_reopen_read_only(int fd);

/*
 * Maps a board. Checks that the file is as large as `slot_count` needs. Returns 0, or -1 with errno (EPROTO: size).
 * The descriptor stays the caller's and may be closed.
 */
int board_map(struct board *board, int fd, int32_t slot_count, bool writable);
void board_unmap(struct board *board);

/*
 * The process goes on with a copy of its own at the same place: whatever it writes, nobody sees any more. For a worker whose
 * board is its successor's now. Returns 0, or -1 with errno: then the board is as it was. No thread may be writing.
 */
int board_detach(struct board *board);

/*
 * The worker's publication of a partition's ends. Readers see 0 <= log start <= high watermark, and durable end <= high
 * watermark, at any moment: the high watermark is stored before the other two and loaded behind them.
 */
void board_publish(struct board_partition *slot, int64_t log_start, int64_t high_watermark, int64_t durable_end);
void board_read(const struct board_partition *slot, int64_t *log_start, int64_t *high_watermark, int64_t *durable_end);

/* Counting by the one writer: no locked instruction. */
static inline void
board_add(board_counter *counter, int64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline void
board_set(board_counter *counter, int64_t value)
{
	atomic_store_explicit(counter, value, memory_order_relaxed);
}

static inline int64_t
board_get(const board_counter *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void board_observe(struct board_histogram *histogram, int64_t duration_ns);

/* The supervisor's, after a worker's death: its gauges are zeroed, its counters and its partitions' ends stay. */
void board_clear_gauges(struct board *board);

#endif
