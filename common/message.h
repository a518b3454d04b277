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
 *   supervisor  SETUP, TOPIC x topic_count (by name), BOARD x group_count, START
 *   worker      SERVING, when it has opened what it can
 *   both        CONNECTION, any number
 *   supervisor  STOP;  the worker answers what it has executed, forces its logs and exits with 0
 */
#ifndef COMMON_MESSAGE_H
#define COMMON_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/codec.h"
#include "common/topics.h"

enum {
	MESSAGE_VERSION = 2,
	MESSAGE_CHANNEL_FD = 3,
	MESSAGE_BOARD_FD = 4,
	MESSAGE_LOCK_FD = 5,
	MESSAGE_INLINE_MAX_BYTES = 16 * 1024,
	MESSAGE_PATH_BYTES = 4096,
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

/* supervisor -> worker: the settings are complete, open the logs. Nothing follows, no descriptor. */
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
};

/* Do its numbers agree with one another and with the message they came in? The group and the time are not looked at. */
bool message_connection_valid(const struct message_connection *connection, size_t message_size, int descriptor_count);

/* supervisor -> worker: answer what is executed and held, force the logs, exit 0. Nothing follows, no descriptor. */
struct message_stop {
	uint32_t reserved;		/* 0 */
};

#endif
