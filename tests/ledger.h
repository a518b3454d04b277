/*
 * What a campaign's clients have sent, what they were told about it, and what anybody has read: every record has a
 * number of its own, which stands in its payload with all that is needed to know the payload again. A record has one
 * offset, an offset one record, whoever tells of it and how often. Knows no sockets; may be used by several threads.
 */
#ifndef TESTS_LEDGER_H
#define TESTS_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

enum {
	LEDGER_PARTITIONS_MAX = 64,
	LEDGER_HEAD_BYTES = 24,		/* of a payload: number, partition, size, when it was sent */
};

struct ledger;

struct ledger *ledger_new(void);
void ledger_free(struct ledger *ledger);

/* A new record for this partition: its number. Its outcome is unknown until somebody tells its offset. */
int64_t ledger_add(struct ledger *ledger, int32_t partition);
/* Its payload, of `size` bytes, at least LEDGER_HEAD_BYTES. */
void ledger_fill(uint8_t *payload, int64_t number, int32_t partition, size_t size);

/* The broker has said that it stands there. */
void ledger_acknowledge(struct ledger *ledger, int64_t number, int32_t partition, int64_t offset);
/* This was read there. Returns when it was sent (wire_now_us), 0 when it is nothing that anybody has sent. */
int64_t ledger_read(struct ledger *ledger, int32_t partition, int64_t offset, const struct wire_record *record);

/* The offset behind the last one that is known: a watermark below it has lost records. */
int64_t ledger_end(struct ledger *ledger, int32_t partition);
/* How many records have been sent, and of how many nobody has told where they stand. */
int64_t ledger_count(struct ledger *ledger, int64_t *unknown);

/* The first thing that was wrong; NULL when nothing is. It stays as it is until ledger_free. */
const char *ledger_wrong(struct ledger *ledger);

#endif
