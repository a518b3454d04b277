/*
 * What supervisor and workers say to each other over a channel. A message is one of the structs below, of exactly
 * its size, in the machine's byte order, optionally followed by bytes whose number it tells; the receiver checks
 * the length, copies the struct to a local, then acts. A malformed message is a bug: a worker that receives one
 * exits, the supervisor kills the sender and treats it as a crash.
 *
 * A worker starts with three descriptors and nothing else but 0, 1 and 2: its channel, its own board, the data
 * directory's lock. Then:
 *
 *   worker      HELLO
 *   supervisor  SETUP, TOPIC x topic_count (by name), BOARD x group_count
 *   worker      PREPARED: it could begin now, and has touched neither a log nor its board
 *   supervisor  ENDS, any number, and only when a predecessor has released its logs; then START
 *   worker      SERVING, when it has opened what it can
 *   both        CONNECTION, any number
 *   supervisor  STOP;  the worker answers what it has executed, forces its logs and exits with 0
 *
 * A worker that is to be replaced while it serves (it may ask for that itself: REPLACE):
 *
 *   supervisor  DRAIN, when the replacement is PREPARED
 *   worker      forces its logs and stores their recovery points while it still serves; then it stops reading, finishes
 *               the appends and barriers it has begun, and says ENDS, any number, and RELEASED. From then on it writes
 *               neither files nor board. CONNECTION for each that is owed nothing, held ones included; for the others
 *               when their answers have left. Then, or when drain_timeout is over, it exits with 0
 *   supervisor  hands the ENDS on to the replacement, with START behind them, and the connections when that serves
 */
#ifndef COMMON_MESSAGE_H
#define COMMON_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/codec.h"
#include "common/topics.h"

enum {
	MESSAGE_VERSION = 3,
	MESSAGE_CHANNEL_FD = 3,
	MESSAGE_BOARD_FD = 4,
	MESSAGE_LOCK_FD = 5,
	MESSAGE_INLINE_MAX_BYTES = 16 * 1024,
	MESSAGE_PATH_BYTES = 4096,
	MESSAGE_ENDS_MAX = 900,		/* in one message, of at most 64 KiB */
};

enum message_type {
	MESSAGE_HELLO = 1,
	MESSAGE_SETUP,
	MESSAGE_TOPIC,
	MESSAGE_BOARD,
	MESSAGE_START,
	MESSAGE_SERVING,
	MESSAGE_CONNECTION,
	MESSAGE_STOP,
	MESSAGE_PREPARED,
	MESSAGE_ENDS,
	MESSAGE_REPLACE,
	MESSAGE_DRAIN,
	MESSAGE_RELEASED,
};

/* worker -> supervisor, the first message. Nothing follows, no descriptor. Other versions than one's own end it. */
struct message_hello {
	uint32_t message_version;
	uint32_t board_version;
};

/* supervisor -> worker, the answer to HELLO. Nothing follows, no descriptor. */
struct message_setup {
	int32_t worker;			/* this one's number, which is its group's */
	int32_t group_count;
	int32_t topic_count;
	int32_t log_level;
	int64_t max_frame_bytes;
	int64_t buffer_bytes;
	int64_t max_fetch_wait_ms;
	int64_t request_timeout_ms;
	int64_t idle_timeout_ms;	/* 0 = off */
	int64_t drain_timeout_ms;
	char data_dir[MESSAGE_PATH_BYTES];	/* absolute, terminated */
};

/* supervisor -> worker, in the order of names. Nothing follows, no descriptor. See struct topic. */
struct message_topic {
	char name[CODEC_TOPIC_NAME_MAX + 7];	/* terminated */
	int32_t partition_count;
	int32_t first_group;
	int32_t spread;			/* 0 or 1 */
	int32_t reserved;		/* 0 */
	struct log_settings log;
};

/* supervisor -> worker, groups in order. Carries one descriptor: that group's board, read-only. */
struct message_board {
	int32_t group;
};

/* worker -> supervisor: it has its settings and waits for START. Nothing follows, no descriptor. */
struct message_prepared {
	uint32_t reserved;		/* 0 */
};

/*
 * old worker -> supervisor -> replacement: how logs were left at RELEASED. Followed by `count` structs message_end. A
 * partition of which nothing is told is opened as after a death.
 */
struct message_ends {
	int32_t count;			/* 1 to MESSAGE_ENDS_MAX */
	int32_t reserved;		/* 0 */
};

/*
 * One partition: everything up to `end` is written, and will not be written again by the old worker. Where it begins and how
 * far it is forced stands on the board.
 */
struct message_end {
	int32_t slot;			/* on the group's board */
	int32_t reserved;		/* 0 */
	int64_t base;			/* of the active segment */
	int64_t end;			/* offset behind the last record */
	int64_t position;		/* where that is in the active segment */
	int64_t file_bytes;		/* size of the active file */
	int64_t modified_ns;		/* its modification, ns since 1970 */
};

/* supervisor -> worker: open the logs. Nothing follows, no descriptor. */
struct message_start {
	uint32_t reserved;		/* 0 */
};

/* worker -> supervisor: connections may come. Nothing follows, no descriptor. */
struct message_serving {
	int32_t opened;			/* partitions */
	int32_t failed;
};

/*
 * Both directions: a connection changes hands. Carries its socket, and a memfd when spilled_end > 0. Followed by
 * inline_bytes bytes. What was read from the socket and not executed is either those bytes or the memfd's from
 * spilled_position to spilled_end, never both. A fresh connection has neither.
 */
struct message_connection {
	int32_t group;			/* to the supervisor: where it must go; to a worker: its own group */
	int32_t inline_bytes;		/* 0 to MESSAGE_INLINE_MAX_BYTES */
	int64_t spilled_position;
	int64_t spilled_end;
	int64_t frame_started_ns;	/* CLOCK_MONOTONIC when the first byte of the half-read frame came; 0 = none */
	int64_t active_ns;		/* CLOCK_MONOTONIC when bytes last came or left: idle_timeout counts from there; 0 = fresh */
	int64_t held_until_ns;		/* CLOCK_MONOTONIC: the bytes begin with a FETCH that was held until then; 0 = none */
};

/* Do its numbers agree with one another and with the message they came in? The group and what time it is are not looked at. */
bool message_connection_valid(const struct message_connection *connection, size_t message_size, int descriptor_count);

/* worker -> supervisor: it has had SIGTERM and asks to be replaced. Nothing follows, no descriptor. */
struct message_replace {
	uint32_t reserved;		/* 0 */
};

/* supervisor -> worker: make room for the replacement. Nothing follows, no descriptor. */
struct message_drain {
	uint32_t reserved;		/* 0 */
};

/* worker -> supervisor: the logs are the replacement's. Nothing follows, no descriptor. */
struct message_released {
	int32_t ends;			/* partitions told of in all ENDS */
	int32_t reserved;		/* 0 */
};

/* supervisor -> worker: answer what is executed and held, force the logs, exit 0. Nothing follows, no descriptor. */
struct message_stop {
	uint32_t reserved;		/* 0 */
};

#endif
