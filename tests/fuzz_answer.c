/*
 * libFuzzer: any bytes as what a broker sends. The first byte chooses what was asked for; the rest is an answer, or (with its
 * highest bit) the payload of a FETCH. What the library's codec believes must lie inside the bytes and hold what the header says.
 */
#include <string.h>

#include "client/lib/logbroker.h"
#include "tests/fuzz_target.h"

enum { PAYLOAD_BIT = 0x80, VERSION_BIT = 0x40, FORMAT_BIT = 0x20 };

static void
check_end(struct lb_walk *walk, enum lb_walk_result result, const struct lb_record *record)
{
	struct lb_record again;

	require(lb_walk_next(walk, &again) == result && again.offset == record->offset && again.bytes == record->bytes);
	require(record->data == NULL && again.data == NULL);
	require((result == LB_WALK_END) == (walk->left_bytes == 0));
	require(record->bytes == 0 || result == LB_WALK_CUT || result == LB_WALK_EXCEEDS);
	require(record->bytes <= LB_FETCH_MAX_BYTES);
}

/* Returns the number of whole records. */
static int64_t
walk(enum lb_record_format format, const uint8_t *payload, size_t bytes)
{
	size_t header = format == LB_CRC32C ? 8 : 4;
	const uint8_t *place = payload;
	struct lb_walk walk;
	struct lb_record record;
	int64_t offset = 100;
	enum lb_walk_result result;

	lb_walk_begin(&walk, format, offset, payload, bytes);
	while ((result = lb_walk_next(&walk, &record)) == LB_WALK_RECORD) {
		require(record.offset == offset++ && record.data == place + header);
		require(record.bytes >= 1 && record.bytes <= bytes - (size_t)(place - payload) - header);
		place += header + record.bytes;
	}
	require(record.offset == offset);
	check_end(&walk, result, &record);
	require(result != LB_WALK_CUT || offset > 100);
	require(result != LB_WALK_EXCEEDS || offset == 100);
	return offset - 100;
}

/* Without its last byte it holds the same records, but for the last one at most. */
static void
walk_and_cut(enum lb_record_format format, const uint8_t *payload, size_t bytes)
{
	int64_t whole = walk(format, payload, bytes), less;

	if (bytes == 0)
		return;
	less = walk(format, payload, bytes - 1);
	require(less == whole || less == whole - 1);
}

static void
check_topic(const struct lb_topic_metadata *topic, int16_t version)
{
	require(lb_topic_name_valid(topic->name) && topic->partition_count >= 1);
	require(topic->record_format == LB_CRC32C || (version == 2 && topic->record_format == LB_PLAIN));
	for (int32_t i = 0; i < topic->partition_count; i++) {
		const struct lb_partition_metadata *partition = &topic->partitions[i];

		require(partition->partition == i && partition->log_start_offset >= 0);
		require(partition->log_start_offset <= partition->high_watermark);
		require(version == 2 ? partition->group >= 0 : partition->group == -1);
	}
}

static void
check_metadata(int16_t version, const struct lb_answer *answer)
{
	struct lb_metadata *metadata;

	if (lb_decode_metadata(&metadata, version, answer) != LB_OK) {
		require(metadata == NULL);
		return;
	}
	require(metadata->version == version && metadata->topic_count >= 0);
	for (int32_t i = 0; i < metadata->topic_count; i++) {
		check_topic(&metadata->topics[i], version);
		require(i == 0 || strcmp(metadata->topics[i - 1].name, metadata->topics[i].name) < 0);
		require(lb_metadata_find(metadata, metadata->topics[i].name) == &metadata->topics[i]);
	}
	lb_metadata_free(metadata);
}

static void
check_bodies(enum lb_record_format format, int16_t version, const struct lb_answer *answer)
{
	struct lb_produced produced;
	struct lb_fetched fetched;

	if (lb_decode_produced(&produced, answer) == LB_OK)
		require(produced.base_offset >= 0 && produced.log_end_offset > produced.base_offset);
	if (lb_decode_fetched(&fetched, answer) == LB_OK) {
		require(fetched.high_watermark >= 0 && fetched.payload_bytes + 12 == answer->body_bytes);
		walk_and_cut(format, fetched.payload, fetched.payload_bytes);
	}
	check_metadata(version, answer);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	enum lb_record_format format;
	int16_t version;
	struct lb_answer answer, less;
	int64_t bytes;

	if (size == 0)
		return 0;
	format = (data[0] & FORMAT_BIT) ? LB_CRC32C : LB_PLAIN;
	version = (data[0] & VERSION_BIT) ? 2 : 1;
	if (data[0] & PAYLOAD_BIT) {
		walk_and_cut(format, data + 1, size - 1);
		return 0;
	}
	bytes = lb_decode_answer(&answer, data + 1, size - 1);
	require(bytes >= -1 && bytes <= (int64_t)size - 1);
	if (bytes <= 0)
		return 0;
	require((const uint8_t *)answer.body + answer.body_bytes == data + 1 + bytes);
	require(answer.error_code == 0 || (answer.error_code > 0 && answer.body_bytes == 0));
	require(lb_decode_answer(&less, data + 1, (size_t)bytes - 1) == 0);
	check_bodies(format, version, &answer);
	return 0;
}
