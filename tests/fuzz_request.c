/* libFuzzer: any bytes as a frame from a client; what the codec accepts must hold what it promises. */
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/codec.h"
#include "tests/fuzz_target.h"

static void
walk_records(const struct codec_request *request)
{
	size_t position = 0;

	for (int32_t i = 0; i < request->record_count; i++) {
		int32_t bytes = bytes_get_i32(request->records + position);

		require(bytes >= 1 && bytes <= request->largest_payload);
		position += 4 + (size_t)bytes;
		require(position <= request->records_bytes);
	}
	require(position == request->records_bytes);
}

static void
walk_names(struct codec_request *request)
{
	for (int32_t i = 0; i < request->topic_count; i++) {
		struct codec_name name = codec_next_name(request);

		require(codec_topic_name_valid(name.bytes, name.length));
	}
}

/* What is told about a frame's destination early must be what the whole frame says. */
static void
compare_routes(const uint8_t *data, size_t size, const struct codec_request *request)
{
	uint8_t *framed = malloc(size + 4);
	struct codec_name name;
	int32_t partition;

	require(framed != NULL);
	bytes_put_i32(framed, (int32_t)size);
	memcpy(framed + 4, data, size);
	for (size_t n = 0; n <= size + 4; n++) {
		if (codec_route(framed, n, &name, &partition) != CODEC_ROUTE_PARTITION)
			continue;
		require(request->api_key != CODEC_METADATA && partition == request->partition &&
		    name.length == request->topic.length && memcmp(name.bytes, request->topic.bytes, name.length) == 0);
	}
	free(framed);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct codec_request request;

	if (size == 0 || codec_parse_request(data, size, &request) != CODEC_NONE)
		return 0;
	if (size < 4096)
		compare_routes(data, size, &request);
	if (request.api_key == CODEC_PRODUCE)
		walk_records(&request);
	else if (request.api_key == CODEC_METADATA)
		walk_names(&request);
	return 0;
}
