#include "worker/dispatch.h"

#include "common/board.h"
#include "common/clock.h"
#include "common/log.h"
#include "worker/fetch.h"
#include "worker/lane.h"
#include "worker/metadata.h"
#include "worker/produce.h"

/* Groups other than the own one; DISPATCH_HERE also for what does not exist, since any worker can say that. */
static int32_t
owner(const struct worker *worker, struct codec_name name, int32_t partition)
{
	const struct topic *topic = topics_find(&worker->topics, name);
	int32_t group;

	if (topic == NULL || partition < 0 || partition >= topic->partition_count)
		return DISPATCH_HERE;
	group = topics_group(&worker->topics, topic, partition);
	return group == worker->number ? DISPATCH_HERE : group;
}

int32_t
dispatch_route(const struct worker *worker, const uint8_t *data, size_t available)
{
	struct codec_name name;
	int32_t partition;

	switch (codec_route(data, available, &name, &partition)) {
	case CODEC_ROUTE_MORE:
		return DISPATCH_MORE;
	case CODEC_ROUTE_ANYWHERE:
		return DISPATCH_HERE;
	default:
		return owner(worker, name, partition);
	}
}

static enum board_api
api_of(const struct codec_request *request)
{
	switch (request->api_key) {
	case CODEC_PRODUCE:
		return BOARD_PRODUCE;
	case CODEC_FETCH:
		return BOARD_FETCH;
	case CODEC_METADATA:
		return BOARD_METADATA;
	default:
		return BOARD_OTHER;
	}
}

static enum dispatch_result
refuse(struct worker *worker, struct conn *conn, const struct codec_request *request, enum codec_error error)
{
	struct reply *reply = conn_add_reply(conn, request, api_of(request));

	if (reply == NULL)
		conn_abort(conn);
	else
		conn_answer(worker, reply, error);
	return DISPATCH_EXECUTED;
}

/* Most likely a Kafka client, whose frames are well-formed. */
static void
tell_unsupported(struct worker *worker, const struct codec_request *request)
{
	uint64_t suppressed;

	if (log_limit_pass(&worker->foreign_limit, 60LL * CLOCK_NS_PER_S, &suppressed))
		log_info("a client asked for api %d version %d, which this broker does not have: is it a Kafka client? "
		    "(%llu more since the last line)", request->api_key, request->api_version,
		    (unsigned long long)suppressed);
}

static enum dispatch_result
execute_produce(struct worker *worker, struct conn *conn, const struct codec_request *request, struct lane *lane)
{
	if (lane == NULL)
		return refuse(worker, conn, request, CODEC_UNKNOWN_TOPIC_OR_PARTITION);
	return produce_execute(conn, lane, request) ? DISPATCH_EXECUTED : DISPATCH_LATER;
}

/* A FETCH sees what was acknowledged before it on its connection: it waits until nothing is owed. */
static enum dispatch_result
execute_fetch(struct worker *worker, struct conn *conn, const struct codec_request *request, struct lane *lane)
{
	if (conn_owes(conn))
		return DISPATCH_WHEN_ANSWERED;
	if (lane == NULL)
		return refuse(worker, conn, request, CODEC_UNKNOWN_TOPIC_OR_PARTITION);
	return fetch_execute(conn, lane, request) ? DISPATCH_EXECUTED : DISPATCH_LATER;
}

enum dispatch_result
dispatch_execute(struct worker *worker, struct conn *conn, const uint8_t *frame, size_t bytes, int32_t *group)
{
	struct codec_request request;
	enum codec_error error = codec_parse_request(frame, bytes, &request);
	struct lane *lane = NULL;

	if (error == CODEC_UNSUPPORTED_VERSION)
		tell_unsupported(worker, &request);
	if (error != CODEC_NONE)
		return refuse(worker, conn, &request, error);
	if (request.api_key != CODEC_METADATA) {
		*group = owner(worker, request.topic, request.partition);
		if (*group != DISPATCH_HERE)
			return DISPATCH_ELSEWHERE;
		lane = lane_find(worker, request.topic, request.partition);
	}
	switch (request.api_key) {
	case CODEC_PRODUCE:
		return execute_produce(worker, conn, &request, lane);
	case CODEC_FETCH:
		return execute_fetch(worker, conn, &request, lane);
	default:
		if (conn_owes(conn))
			return DISPATCH_WHEN_ANSWERED;
		metadata_execute(worker, conn, &request);
		return DISPATCH_EXECUTED;
	}
}
