#include "worker/dispatch.h"

#include "common/board.h"
#include "common/clock.h"
#include "common/log.h"
#include "worker/fetch.h"
#include "worker/lane.h"
#include "worker/metadata.h"
#include "worker/produce.h"

/* NULL when there is no such partition. */
static const struct topic *
find(const struct worker *worker, struct codec_name name, int32_t partition)
{
	const struct topic *topic = topics_find(&worker->topics, name);

	return topic != NULL && partition >= 0 && partition < topic->partition_count ? topic : NULL;
}

int32_t
dispatch_route(const struct worker *worker, const uint8_t *data, size_t available)
{
	struct codec_name name;
	const struct topic *topic;
	int32_t partition, group;

	if (codec_route(data, available, &name, &partition) != CODEC_ROUTE_PARTITION)
		return -1;
	/* What does not exist any worker can refuse. */
	topic = find(worker, name, partition);
	if (topic == NULL)
		return -1;
	group = topics_group(&worker->topics, topic, partition);
	return group == worker->number ? -1 : group;
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
	char more[LOG_MORE_BYTES];

	if (log_limit_pass(&worker->foreign_limit, 60LL * CLOCK_NS_PER_S, more))
		log_info("a client asked for api %d version %d, which this broker does not have: is it a Kafka client?%s",
		    request->api_key, request->api_version, more);
}

static enum dispatch_result
execute_produce(struct conn *conn, struct lane *lane, const struct codec_request *request)
{
	return produce_execute(conn, lane, request) ? DISPATCH_EXECUTED : DISPATCH_LATER;
}

/* A FETCH sees what was acknowledged before it on its connection: it waits until nothing is owed. */
static enum dispatch_result
execute_fetch(struct conn *conn, struct lane *lane, const struct codec_request *request)
{
	if (conn_owes(conn))
		return DISPATCH_WHEN_ANSWERED;
	if (lane->dirty && !conn_deferred(conn))
		return DISPATCH_BEHIND_APPENDS;
	return fetch_execute(conn, lane, request) ? DISPATCH_EXECUTED : DISPATCH_LATER;
}

static enum dispatch_result
execute_metadata(struct worker *worker, struct conn *conn, struct codec_request *request)
{
	if (conn_owes(conn))
		return DISPATCH_WHEN_ANSWERED;
	metadata_execute(worker, conn, request);
	return DISPATCH_EXECUTED;
}

static enum dispatch_result
execute_on_partition(struct worker *worker, struct conn *conn, const struct codec_request *request, int32_t *group)
{
	const struct topic *topic = find(worker, request->topic, request->partition);
	struct lane *lane;

	if (topic == NULL)
		return refuse(worker, conn, request, CODEC_UNKNOWN_TOPIC_OR_PARTITION);
	*group = topics_group(&worker->topics, topic, request->partition);
	if (*group != worker->number)
		return DISPATCH_ELSEWHERE;
	lane = &worker->lanes[topics_slot(&worker->topics, topic, request->partition)];
	return request->api_key == CODEC_PRODUCE ? execute_produce(conn, lane, request)
	                                         : execute_fetch(conn, lane, request);
}

enum dispatch_result
dispatch_execute(struct worker *worker, struct conn *conn, const uint8_t *frame, size_t bytes, int32_t *group)
{
	struct codec_request request;
	enum codec_error error = codec_parse_request(frame, bytes, &request);

	if (error == CODEC_UNSUPPORTED_VERSION)
		tell_unsupported(worker, &request);
	if (error != CODEC_NONE)
		return refuse(worker, conn, &request, error);
	if (request.api_key == CODEC_METADATA)
		return execute_metadata(worker, conn, &request);
	return execute_on_partition(worker, conn, &request, group);
}
