/*
 * A fake broker inside the test: one topic "t" in memory, a thread per connection, and faults that a real broker never
 * shows on request. Its bytes come from wire.h, so it shares no code with the client under test.
 */
#ifndef TESTS_FAKEBROKER_H
#define TESTS_FAKEBROKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

enum { FAKE_PARTITIONS_MAX = 8, FAKE_RECORDS_MAX = 200000, FAKE_CONNECTIONS_MAX = 4096 };

/* All zero: a good broker. Set before the tool is started. */
struct fake_faults {
	bool only_v1;			/* METADATA v2 and FETCH v2 are UNSUPPORTED_VERSION */
	bool mute;			/* takes requests, never answers */
	bool dribble;			/* answers byte by byte */
	int32_t id_shift;		/* added to every correlation id */
	int cut_fetches;		/* that many FETCH answers end, with their connection, ... */
	size_t cut_bytes;		/* ... after so many bytes */
	int metadata_error, fetch_error;
	int produce_error, produce_error_at;	/* the n-th PRODUCE (from 1) is refused */
	int close_at_produce;		/* the n-th PRODUCE is not answered but ends the connection */
	int hold_produces;		/* none is answered before so many have come */
	int grow;			/* records appended ahead of each FETCH */
	int64_t raise_start;		/* the log start becomes that ahead of the first FETCH */
	int32_t payload_lie;		/* added to payloadBytes of FETCH answers */
	const void *raw;		/* instead of every answer: these bytes, then the end */
	size_t raw_bytes;
	int flip_offset;		/* n > 0: the record with offset n - 1 has a wrong byte */
	int hold_ms;			/* n > 0: a FETCH is held that long at most */
	int keep_end;			/* n > 0: FETCH shows nothing from offset n - 1 on */
	/* For producers that hold on; these change while they run (fake_change). */
	bool stalled;			/* reads nothing more, but the frame that it waits for if it does */
	int stall_at;			/* n > 0: reads nothing more behind the n-th PRODUCE */
	bool silent;			/* executes PRODUCEs and does not answer them */
	int cut_produces;		/* that many PRODUCE answers end, with their connection, after cut_bytes */
	int groups;			/* partition i is in group i % groups; 0: 2 */
	bool no_topic;			/* every PRODUCE: UNKNOWN_TOPIC_OR_PARTITION */
};

struct fake_partition {
	struct wire_bytes log;
	size_t *positions;		/* of each record in the log, from offset 0 on, and of the end */
	int64_t start, end;
	int peer;			/* the connection that the last PRODUCE came by, from 0 */
};

struct fake {
	struct fake_faults faults;
	char address[64];
	int partition_count;
	bool crc;
	struct fake_partition partitions[FAKE_PARTITIONS_MAX];
	/* What it has seen; under the mutex while the tool runs. */
	int connections, produces, fetches, metadatas;
	int largest_count;		/* records in a PRODUCE */
	int last_ack;
	int32_t largest_max_bytes, largest_request;
	/* its own */
	pthread_mutex_t mutex;
	pthread_cond_t news;
	pthread_t acceptor;
	int listener;
	bool stopping;
	struct {
		pthread_t thread;
		int fd;
	} peers[FAKE_CONNECTIONS_MAX];
};

void fake_start(struct fake *fake, int partition_count, bool crc);
/* The same at a port of 127.0.0.1 that was in use before. */
void fake_start_at(struct fake *fake, int port, int partition_count, bool crc);
int fake_port(const struct fake *fake);
/* Other faults from now on. */
void fake_change(struct fake *fake, const struct fake_faults *faults);
/* Ends all connections that are there now; or one, by its number. */
void fake_cut(struct fake *fake);
void fake_cut_one(struct fake *fake, int peer);
/* Waits until so many PRODUCEs have come. */
bool fake_wait_produces(struct fake *fake, int count);
int64_t fake_end(struct fake *fake, int partition);
void fake_stop(struct fake *fake);
void fake_append(struct fake *fake, int partition, const void *payload, size_t size);
/* Waits until the partition has that many records; false when they do not come in half a minute. */
bool fake_wait_end(struct fake *fake, int partition, int64_t end);
/* Waits until so many FETCHes have come. */
bool fake_wait_fetches(struct fake *fake, int count);
/* The payload of a record. */
const uint8_t *fake_record(const struct fake *fake, int partition, int64_t offset, size_t *size);

#endif
