/*
 * The codec, from the inside: a PRODUCE whose records were put behind its head one by one, for whoever builds frames in
 * place; answers that are held against the request they came for. Everything else of it is in logbroker.h; common/codec.h has
 * the drawing.
 */
#ifndef CLIENT_LIB_CODEC_H
#define CLIENT_LIB_CODEC_H

#include "client/lib/logbroker.h"

enum { LB_LENGTH_BYTES = 4 };	/* ahead of each frame, and of each record of a PRODUCE */

/* Bytes of a PRODUCE frame ahead of its first record, which is ( int32 payloadSize | payload ), like all that follow. */
size_t lb_produce_head_bytes(size_t topic_bytes);
/* Writes that head for a frame of `frame_bytes` in all, the length word included. All arguments have been checked. */
void lb_put_produce_head(uint8_t *to, size_t frame_bytes, int32_t correlation_id, const char *topic, int32_t partition,
    enum lb_ack ack, int32_t record_count);

/*
 * As lb_decode_*, and LB_BAD_ANSWER also when the answer cannot be one to this request (`frame`, whole): fewer records than were
 * produced, a payload above max_bytes or behind the high watermark, a topic missing that was asked for.
 */
enum lb_code lb_read_produced(struct lb_produced *produced, const struct lb_answer *answer, const void *frame);
enum lb_code lb_read_fetched(struct lb_fetched *fetched, const struct lb_answer *answer, const void *frame);
/* In the frame's version. */
enum lb_code lb_read_metadata(struct lb_metadata **metadata, const struct lb_answer *answer, const void *frame);

#endif
