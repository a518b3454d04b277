/*
 * A fake broker: accepts, reads a frame, answers it, again. One mutex over everything.
 */
#include "fakebroker.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct peer {
	struct fake *fake;
	int index;
};

struct request {
	int api, version;
	int32_t id;
	const uint8_t *body;	/* behind the correlation id */
	size_t bytes;
	int32_t partition;	/* PRODUCE, FETCH */
	const uint8_t *rest;	/* PRODUCE, FETCH: behind the partition */
};

void
fake_append(struct fake *fake, int partition, const void *payload, size_t size)
{
	struct fake_partition *p = &fake->partitions[partition];

	pthread_mutex_lock(&fake->mutex);
	ck_assert_int_lt(p->end, FAKE_RECORDS_MAX);
	wire_put_i32(&p->log, (int64_t)size);
	if (fake->crc)
		wire_put_i32(&p->log, (int32_t)wire_crc32c(payload, size));
	wire_put(&p->log, payload, size);
	if (fake->faults.flip_offset == p->end + 1)
		p->log.data[p->log.length - 1] ^= 1;
	p->end++;
	p->positions[p->end] = p->log.length;
	pthread_cond_broadcast(&fake->news);
	pthread_mutex_unlock(&fake->mutex);
}

const uint8_t *
fake_record(const struct fake *fake, int partition, int64_t offset, size_t *size)
{
	const struct fake_partition *p = &fake->partitions[partition];
	size_t header = fake->crc ? 8 : 4;

	ck_assert_int_lt(offset, p->end);
	*size = p->positions[offset + 1] - p->positions[offset] - header;
	return p->log.data + p->positions[offset] + header;
}

static struct timespec
soon(int64_t ms)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += ms / 1000;
	until.tv_nsec += ms % 1000 * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	return until;
}

bool
fake_wait_end(struct fake *fake, int partition, int64_t end)
{
	struct timespec until = soon(30000);
	bool there;

	pthread_mutex_lock(&fake->mutex);
	while (fake->partitions[partition].end < end &&
	    pthread_cond_timedwait(&fake->news, &fake->mutex, &until) != ETIMEDOUT)
		continue;
	there = fake->partitions[partition].end >= end;
	pthread_mutex_unlock(&fake->mutex);
	return there;
}

bool
fake_wait_fetches(struct fake *fake, int count)
{
	struct timespec until = soon(30000);
	bool there;

	pthread_mutex_lock(&fake->mutex);
	while (fake->fetches < count && pthread_cond_timedwait(&fake->news, &fake->mutex, &until) != ETIMEDOUT)
		continue;
	there = fake->fetches >= count;
	pthread_mutex_unlock(&fake->mutex);
	return there;
}

bool
fake_wait_produces(struct fake *fake, int count)
{
	struct timespec until = soon(30000);
	bool there;

	pthread_mutex_lock(&fake->mutex);
	while (fake->produces < count && pthread_cond_timedwait(&fake->news, &fake->mutex, &until) != ETIMEDOUT)
		continue;
	there = fake->produces >= count;
	pthread_mutex_unlock(&fake->mutex);
	return there;
}

int64_t
fake_end(struct fake *fake, int partition)
{
	int64_t end;

	pthread_mutex_lock(&fake->mutex);
	end = fake->partitions[partition].end;
	pthread_mutex_unlock(&fake->mutex);
	return end;
}

void
fake_change(struct fake *fake, const struct fake_faults *faults)
{
	pthread_mutex_lock(&fake->mutex);
	fake->faults = *faults;
	pthread_cond_broadcast(&fake->news);
	pthread_mutex_unlock(&fake->mutex);
}

void
fake_cut(struct fake *fake)
{
	pthread_mutex_lock(&fake->mutex);
	for (int i = 0; i < fake->connections; i++) {
		if (fake->peers[i].fd >= 0)
			shutdown(fake->peers[i].fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&fake->mutex);
}

void
fake_cut_one(struct fake *fake, int peer)
{
	pthread_mutex_lock(&fake->mutex);
	if (fake->peers[peer].fd >= 0)
		shutdown(fake->peers[peer].fd, SHUT_RDWR);
	pthread_mutex_unlock(&fake->mutex);
}

/* ---- answers ------------------------------------------------------------------------------------------------- */

static size_t
begin_answer(struct wire_bytes *out, const struct fake *fake, int32_t id, int error)
{
	size_t begin = out->length;

	wire_put_i32(out, 0);
	wire_put_i32(out, (int32_t)(id + fake->faults.id_shift));
	wire_put_i16(out, error);
	return begin;
}

static void
end_answer(struct wire_bytes *out, size_t begin)
{
	wire_set_i32(out->data + begin, (int64_t)(out->length - begin - 4));
}

static void
put_error(struct wire_bytes *out, const struct fake *fake, int32_t id, int error)
{
	end_answer(out, begin_answer(out, fake, id, error));
}

static bool
metadata_asks_for_others(const struct request *request)
{
	int32_t count = wire_get_i32(request->body);
	const uint8_t *at = request->body + 4;

	for (int32_t i = 0; i < count; i++) {
		size_t length = (uint16_t)wire_get_i16(at);

		if (length != 1 || at[2] != 't')
			return true;
		at += 2 + length;
	}
	return false;
}

static void
answer_metadata(struct fake *fake, const struct request *request, struct wire_bytes *out)
{
	size_t begin;

	fake->metadatas++;
	if (request->version == 2 && fake->faults.only_v1) {
		put_error(out, fake, request->id, WIRE_UNSUPPORTED_VERSION);
		return;
	}
	if (fake->faults.metadata_error != 0 || metadata_asks_for_others(request)) {
		put_error(out, fake, request->id, fake->faults.metadata_error != 0 ? fake->faults.metadata_error :
		    WIRE_UNKNOWN_TOPIC_OR_PARTITION);
		return;
	}
	begin = begin_answer(out, fake, request->id, 0);
	wire_put_i32(out, 1);
	wire_put_name(out, "t");
	if (request->version == 2)
		wire_put_i8(out, fake->crc);
	wire_put_i32(out, fake->partition_count);
	for (int i = 0; i < fake->partition_count; i++) {
		wire_put_i32(out, i);
		wire_put_i64(out, fake->partitions[i].start);
		wire_put_i64(out, fake->partitions[i].end);
		if (request->version == 2)
			wire_put_i32(out, i % (fake->faults.groups > 0 ? fake->faults.groups : 2));
	}
	end_answer(out, begin);
}

/* Appends and puts the answer; returns false when the connection must end instead. */
static bool
answer_produce(struct fake *fake, const struct request *request, struct wire_bytes *out)
{
	struct fake_partition *p = &fake->partitions[request->partition];
	int ack = request->rest[0];
	int32_t count = wire_get_i32(request->rest + 1);
	const uint8_t *at = request->rest + 5;
	int64_t base = p->end;
	size_t begin;

	fake->produces++;
	fake->last_ack = ack;
	if (count > fake->largest_count)
		fake->largest_count = count;
	pthread_cond_broadcast(&fake->news);
	if (fake->produces == fake->faults.close_at_produce)
		return false;
	if (fake->faults.no_topic) {
		put_error(out, fake, request->id, WIRE_UNKNOWN_TOPIC_OR_PARTITION);
		return true;
	}
	if (fake->faults.produce_error != 0 && fake->produces == fake->faults.produce_error_at) {
		put_error(out, fake, request->id, fake->faults.produce_error);
		return true;
	}
	for (int32_t i = 0; i < count; i++) {
		int32_t size = wire_get_i32(at);

		pthread_mutex_unlock(&fake->mutex);
		fake_append(fake, request->partition, at + 4, (size_t)size);
		pthread_mutex_lock(&fake->mutex);
		at += 4 + size;
	}
	if (ack == WIRE_NONE || fake->faults.silent)
		return true;
	begin = begin_answer(out, fake, request->id, 0);
	wire_put_i64(out, base);
	wire_put_i64(out, p->end);
	end_answer(out, begin);
	if (fake->faults.cut_produces == 0)
		return true;
	fake->faults.cut_produces--;
	if (out->length - begin > fake->faults.cut_bytes)
		out->length = begin + fake->faults.cut_bytes;
	return false;
}

static void
hold(struct fake *fake, const struct fake_partition *p, int64_t offset, int32_t wait_ms)
{
	struct timespec until = soon(fake->faults.hold_ms > 0 && fake->faults.hold_ms < wait_ms ? fake->faults.hold_ms : wait_ms);

	while (!fake->stopping && p->end <= offset && p->start <= offset &&
	    pthread_cond_timedwait(&fake->news, &fake->mutex, &until) != ETIMEDOUT)
		continue;
}

static void
prepare_fetch(struct fake *fake, struct fake_partition *p, int partition)
{
	fake->fetches++;
	pthread_cond_broadcast(&fake->news);
	if (fake->faults.raise_start > 0 && fake->fetches == 1)
		p->start = fake->faults.raise_start;
	for (int i = 0; i < fake->faults.grow; i++) {
		pthread_mutex_unlock(&fake->mutex);
		fake_append(fake, partition, "grown", 5);
		pthread_mutex_lock(&fake->mutex);
	}
}

static void
answer_fetch(struct fake *fake, const struct request *request, struct wire_bytes *out)
{
	struct fake_partition *p = &fake->partitions[request->partition];
	int64_t offset = wire_get_i64(request->rest);
	int32_t max_bytes = wire_get_i32(request->rest + 8);
	int64_t end;
	size_t begin, bytes;

	prepare_fetch(fake, p, request->partition);
	if (max_bytes > fake->largest_max_bytes)
		fake->largest_max_bytes = max_bytes;
	if (request->version == 2)
		hold(fake, p, offset, wire_get_i32(request->rest + 12));
	end = fake->faults.keep_end > 0 && fake->faults.keep_end - 1 < p->end ? fake->faults.keep_end - 1 : p->end;
	if (fake->faults.fetch_error != 0 || offset < p->start || offset > p->end) {
		put_error(out, fake, request->id, fake->faults.fetch_error != 0 ? fake->faults.fetch_error :
		    WIRE_OFFSET_OUT_OF_RANGE);
		return;
	}
	bytes = offset >= end ? 0 : p->positions[end] - p->positions[offset];
	if (bytes > (size_t)max_bytes)
		bytes = (size_t)max_bytes;
	begin = begin_answer(out, fake, request->id, 0);
	wire_put_i64(out, end);
	wire_put_i32(out, (int64_t)bytes + fake->faults.payload_lie);
	if (bytes > 0)	/* an empty log has no memory to point into */
		wire_put(out, p->log.data + p->positions[offset], bytes);
	end_answer(out, begin);
}

/* Puts the answer to a request; returns false when the connection must end behind what was put. */
static bool
answer(struct fake *fake, int peer, struct request *request, struct wire_bytes *out)
{
	size_t name_bytes;

	if (fake->faults.mute)
		return true;
	if (fake->faults.raw != NULL) {
		wire_put(out, fake->faults.raw, fake->faults.raw_bytes);
		return false;
	}
	if (request->api == WIRE_METADATA) {
		answer_metadata(fake, request, out);
		return true;
	}
	name_bytes = (uint16_t)wire_get_i16(request->body);
	request->partition = wire_get_i32(request->body + 2 + name_bytes);
	request->rest = request->body + 2 + name_bytes + 4;
	if (request->partition < 0 || request->partition >= fake->partition_count) {
		put_error(out, fake, request->id, WIRE_UNKNOWN_TOPIC_OR_PARTITION);
		return true;
	}
	if (request->api == WIRE_PRODUCE) {
		fake->partitions[request->partition].peer = peer;
		return answer_produce(fake, request, out);
	}
	answer_fetch(fake, request, out);
	if (fake->faults.cut_fetches == 0)
		return true;
	fake->faults.cut_fetches--;
	if (out->length > fake->faults.cut_bytes)
		out->length = fake->faults.cut_bytes;
	return false;
}

/* ---- connections --------------------------------------------------------------------------------------------- */

static bool
send_answers(struct fake *fake, int fd, struct wire_bytes *out)
{
	size_t step = fake->faults.dribble ? 1 : out->length;
	bool good = true;

	for (size_t at = 0; at < out->length && good; at += step)
		good = wire_send(fd, out->data + at, step) == 0;
	out->length = 0;
	return good;
}

/* One frame, whole; false at the end. */
static bool
read_frame(int fd, struct wire_bytes *frame)
{
	uint8_t length[4];
	size_t have = 0;
	int32_t whole;

	while (have < 4) {
		long n = wire_receive(fd, length + have, 4 - have, 120000);

		if (n <= 0)
			return false;
		have += (size_t)n;
	}
	whole = wire_get_i32(length);
	if (whole < 8 || whole > WIRE_FRAME_MAX)
		return false;
	frame->length = 0;
	wire_put_zeros(frame, (size_t)whole);
	for (have = 0; have < (size_t)whole; ) {
		long n = wire_receive(fd, frame->data + have, (size_t)whole - have, 120000);

		if (n <= 0)
			return false;
		have += (size_t)n;
	}
	return true;
}

static void
wait_while_stalled(struct fake *fake)
{
	pthread_mutex_lock(&fake->mutex);
	while ((fake->faults.stalled || (fake->faults.stall_at > 0 && fake->produces >= fake->faults.stall_at)) &&
	    !fake->stopping)
		pthread_cond_wait(&fake->news, &fake->mutex);
	pthread_mutex_unlock(&fake->mutex);
}

static void
serve(struct fake *fake, int peer, int fd)
{
	struct wire_bytes frame = { 0 }, out = { 0 };
	bool good = true;

	for (;;) {
		struct request request;
		bool go_on;

		wait_while_stalled(fake);
		if (!good || !read_frame(fd, &frame))
			break;
		request = (struct request){ .api = wire_get_i16(frame.data), .version = wire_get_i16(frame.data + 2),
			.id = wire_get_i32(frame.data + 4), .body = frame.data + 8, .bytes = frame.length - 8 };
		pthread_mutex_lock(&fake->mutex);
		if ((int32_t)frame.length > fake->largest_request)
			fake->largest_request = (int32_t)frame.length;
		go_on = answer(fake, peer, &request, &out);
		/* Answers pile up in `out` until enough PRODUCEs are there. */
		if (request.api != WIRE_PRODUCE || fake->produces >= fake->faults.hold_produces || !go_on) {
			pthread_mutex_unlock(&fake->mutex);
			good = send_answers(fake, fd, &out) && go_on;
			pthread_mutex_lock(&fake->mutex);
		}
		pthread_mutex_unlock(&fake->mutex);
	}
	wire_bytes_free(&frame);
	wire_bytes_free(&out);
}

static void *
serve_peer(void *argument)
{
	struct peer *peer = argument;
	struct fake *fake = peer->fake;
	int index = peer->index, fd = fake->peers[index].fd;
	uint8_t rest[4096];

	free(peer);
	serve(fake, index, fd);
	/* As protocol.md has it: closing with bytes unread would be a reset, which destroys answers on their way. */
	shutdown(fd, SHUT_WR);
	while (wire_receive(fd, rest, sizeof rest, 120000) > 0)
		continue;
	pthread_mutex_lock(&fake->mutex);
	close(fd);
	fake->peers[index].fd = -1;
	pthread_mutex_unlock(&fake->mutex);
	return NULL;
}

static void *
accept_peers(void *argument)
{
	struct fake *fake = argument;
	int fd;

	while ((fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		struct peer *peer = malloc(sizeof *peer);

		pthread_mutex_lock(&fake->mutex);
		peer->fake = fake;
		peer->index = fake->connections++;
		fake->peers[peer->index].fd = fd;
		pthread_create(&fake->peers[peer->index].thread, NULL, serve_peer, peer);
		pthread_mutex_unlock(&fake->mutex);
	}
	return NULL;
}

void
fake_start(struct fake *fake, int partition_count, bool crc)
{
	fake_start_at(fake, 0, partition_count, crc);
}

int
fake_port(const struct fake *fake)
{
	return atoi(strrchr(fake->address, ':') + 1);
}

void
fake_start_at(struct fake *fake, int port, int partition_count, bool crc)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
		.sin_port = htons((uint16_t)port) };
	socklen_t size = sizeof address;
	pthread_condattr_t attributes;
	int on = 1;

	memset(fake, 0, sizeof *fake);
	fake->partition_count = partition_count;
	fake->crc = crc;
	for (int i = 0; i < partition_count; i++)
		fake->partitions[i].positions = calloc(FAKE_RECORDS_MAX + 1, sizeof(size_t));
	pthread_mutex_init(&fake->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&fake->news, &attributes);
	fake->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fake->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	ck_assert_int_eq(bind(fake->listener, (struct sockaddr *)&address, sizeof address), 0);
	ck_assert_int_eq(listen(fake->listener, 1024), 0);
	ck_assert_int_eq(getsockname(fake->listener, (struct sockaddr *)&address, &size), 0);
	snprintf(fake->address, sizeof fake->address, "127.0.0.1:%d", ntohs(address.sin_port));
	ck_assert_int_eq(pthread_create(&fake->acceptor, NULL, accept_peers, fake), 0);
}

void
fake_stop(struct fake *fake)
{
	shutdown(fake->listener, SHUT_RDWR);
	pthread_join(fake->acceptor, NULL);
	close(fake->listener);
	pthread_mutex_lock(&fake->mutex);
	fake->stopping = true;
	pthread_cond_broadcast(&fake->news);
	for (int i = 0; i < fake->connections; i++) {
		if (fake->peers[i].fd >= 0)
			shutdown(fake->peers[i].fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&fake->mutex);
	for (int i = 0; i < fake->connections; i++)
		pthread_join(fake->peers[i].thread, NULL);
	for (int i = 0; i < fake->partition_count; i++) {
		wire_bytes_free(&fake->partitions[i].log);
		free(fake->partitions[i].positions);
	}
}
