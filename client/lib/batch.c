/*
 * The records of a batch, which have been verified when it was made: common/record.h has the drawing.
 */
#include "client/lib/logbroker.h"

#include "common/bytes.h"

bool
lb_batch_next(const struct lb_batch *batch, struct lb_record *record)
{
	size_t header_bytes = batch->record_format == LB_PLAIN ? 4 : 8;
	int64_t offset = record->data == NULL ? batch->base_offset : record->offset + 1;
	const uint8_t *at = record->data == NULL ? batch->records : (const uint8_t *)record->data + record->bytes;

	if (offset >= batch->next_offset)
		return false;
	record->offset = offset;
	record->bytes = (size_t)bytes_get_i32(at);
	record->data = at + header_bytes;
	return true;
}
