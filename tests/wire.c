/*
 * Requests as bytes, answers as fields, by the letter of protocol.md. Everything is big-endian. Sockets stay blocking;
 * deadlines are poll's, and the bulk exchange uses MSG_DONTWAIT.
 */
#include "wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* ---- time, bytes -------------------------------------------------------------------------------------------- */

int64_t
wire_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t
wire_now_ms(void)
{
	return wire_now_us() / 1000;
}

void
wire_bytes_free(struct wire_bytes *bytes)
{
	free(bytes->data);
	memset(bytes, 0, sizeof *bytes);
}

static uint8_t *
grow(struct wire_bytes *to, size_t length)
{
	if (to->length + length > to->capacity) {
		size_t capacity = to->capacity ? to->capacity : 256;

		while (capacity < to->length + length)
			capacity *= 2;
		to->data = realloc(to->data, capacity);
		if (to->data == NULL)
			abort();
		to->capacity = capacity;
	}
	to->length += length;
	return to->data + to->length - length;
}

void
wire_put(struct wire_bytes *to, const void *from, size_t length)
{
	if (length > 0)
		memcpy(grow(to, length), from, length);
}

void
wire_put_zeros(struct wire_bytes *to, size_t length)
{
	if (length > 0)
		memset(grow(to, length), 0, length);
}

void
wire_set_i16(uint8_t *at, int value)
{
	at[0] = (uint8_t)((unsigned)value >> 8);
	at[1] = (uint8_t)value;
}

void
wire_set_i32(uint8_t *at, int64_t value)
{
	for (int i = 0; i < 4; i++)
		at[i] = (uint8_t)((uint64_t)value >> (24 - 8 * i));
}

void
wire_set_i64(uint8_t *at, int64_t value)
{
	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t)((uint64_t)value >> (56 - 8 * i));
}

void
wire_put_i8(struct wire_bytes *to, int value)
{
	*grow(to, 1) = (uint8_t)value;
}

void
wire_put_i16(struct wire_bytes *to, int value)
{
	wire_set_i16(grow(to, 2), value);
}

void
wire_put_i32(struct wire_bytes *to, int64_t value)
{
	wire_set_i32(grow(to, 4), value);
}

void
wire_put_i64(struct wire_bytes *to, int64_t value)
{
	wire_set_i64(grow(to, 8), value);
}

void
wire_put_name(struct wire_bytes *to, const char *name)
{
	size_t length = strlen(name);

	wire_put_i16(to, (int)length);
	wire_put(to, name, length);
}

int16_t
wire_get_i16(const uint8_t *at)
{
	return (int16_t)(at[0] << 8 | at[1]);
}

int32_t
wire_get_i32(const uint8_t *at)
{
	return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

int64_t
wire_get_i64(const uint8_t *at)
{
	return (int64_t)((uint64_t)(uint32_t)wire_get_i32(at) << 32 | (uint32_t)wire_get_i32(at + 4));
}

/* Castagnoli, reflected, four bits at a time: the table has 16 entries and needs no initialisation. */
uint32_t
wire_crc32c(const void *data, size_t length)
{
	static const uint32_t table[16] = {
		0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
		0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
	};
	const uint8_t *at = data;
	uint32_t sum = 0xffffffff;

	for (size_t i = 0; i < length; i++) {
		sum ^= at[i];
		sum = sum >> 4 ^ table[sum & 15];
		sum = sum >> 4 ^ table[sum & 15];
	}
	return ~sum;
}

static int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

size_t
wire_put_hex(struct wire_bytes *to, const char *hex)
{
	size_t count = 0;

	while (hex_digit(hex[0]) >= 0 && hex_digit(hex[1]) >= 0) {
		wire_put_i8(to, hex_digit(hex[0]) << 4 | hex_digit(hex[1]));
		hex += 2;
		count++;
	}
	return count;
}

uint64_t
wire_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* ---- requests ----------------------------------------------------------------------------------------------- */

size_t
wire_begin(struct wire_bytes *to, int api, int version, int32_t id)
{
	size_t start = to->length;

	wire_put_i32(to, 0);
	wire_put_i16(to, api);
	wire_put_i16(to, version);
	wire_put_i32(to, id);
	return start;
}

void
wire_end(struct wire_bytes *to, size_t start)
{
	wire_set_i32(to->data + start, (int64_t)(to->length - start - 4));
}

void
wire_put_produce(struct wire_bytes *to, int32_t id, const char *topic, int32_t partition, int ack,
    const struct wire_record *records, size_t count)
{
	size_t start = wire_begin(to, WIRE_PRODUCE, 1, id);

	wire_put_name(to, topic);
	wire_put_i32(to, partition);
	wire_put_i8(to, ack);
	wire_put_i32(to, (int64_t)count);
	for (size_t i = 0; i < count; i++) {
		wire_put_i32(to, (int64_t)records[i].length);
		wire_put(to, records[i].payload, records[i].length);
	}
	wire_end(to, start);
}

void
wire_put_produce_one(struct wire_bytes *to, int32_t id, const char *topic, int32_t partition, int ack,
    const void *payload, size_t length)
{
	struct wire_record record = { payload, length };

	wire_put_produce(to, id, topic, partition, ack, &record, 1);
}

void
wire_put_fetch_v1(struct wire_bytes *to, int32_t id, const char *topic, int32_t partition, int64_t offset,
    int32_t max_bytes)
{
	size_t start = wire_begin(to, WIRE_FETCH, 1, id);

	wire_put_name(to, topic);
	wire_put_i32(to, partition);
	wire_put_i64(to, offset);
	wire_put_i32(to, max_bytes);
	wire_end(to, start);
}

void
wire_put_fetch(struct wire_bytes *to, int32_t id, const char *topic, int32_t partition, int64_t offset,
    int32_t max_bytes, int32_t max_wait_ms, int32_t min_bytes)
{
	size_t start = wire_begin(to, WIRE_FETCH, 2, id);

	wire_put_name(to, topic);
	wire_put_i32(to, partition);
	wire_put_i64(to, offset);
	wire_put_i32(to, max_bytes);
	wire_put_i32(to, max_wait_ms);
	wire_put_i32(to, min_bytes);
	wire_end(to, start);
}

void
wire_put_metadata(struct wire_bytes *to, int32_t id, int version, const char *topic)
{
	size_t start = wire_begin(to, WIRE_METADATA, version, id);

	wire_put_i32(to, topic != NULL);
	if (topic != NULL)
		wire_put_name(to, topic);
	wire_end(to, start);
}

/* ---- sockets ------------------------------------------------------------------------------------------------ */

int
wire_connect_tcp(int port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int one = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
		close(fd);
		return -1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return fd;
}

int
wire_connect_unix(const char *path)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	int fd;

	if (strlen(path) >= sizeof to.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(to.sun_path, path, strlen(path));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

void
wire_close_reset(int fd)
{
	struct linger linger = { .l_onoff = 1, .l_linger = 0 };

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	close(fd);
}

/* Waits for `events`. Returns those that came (with POLLHUP, POLLERR), 0 when the time is over. */
static int
wait_for(int fd, short events, int64_t until_ms)
{
	struct pollfd poll_fd = { .fd = fd, .events = events };

	for (;;) {
		int64_t left = until_ms - wire_now_ms();
		int ready = poll(&poll_fd, 1, left > 0 ? (int)left : 0);

		if (ready > 0)
			return poll_fd.revents;
		if (ready == 0 && left <= 0)
			return 0;
		if (ready < 0 && errno != EINTR)
			return 0;
	}
}

int
wire_send(int fd, const void *data, size_t length)
{
	const uint8_t *at = data;
	int64_t until = wire_now_ms() + WIRE_DEADLINE_MS;

	while (length > 0) {
		ssize_t sent = send(fd, at, length, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent >= 0) {
			at += sent;
			length -= (size_t)sent;
		} else if (errno == EAGAIN) {
			if (wait_for(fd, POLLOUT, until) == 0)
				return WIRE_LATE;
		} else if (errno != EINTR) {
			return WIRE_LOST;
		}
	}
	return 0;
}

static long
receive_until(int fd, void *to, size_t length, int64_t until_ms)
{
	for (;;) {
		ssize_t got = recv(fd, to, length, MSG_DONTWAIT);

		if (got > 0)
			return got;
		if (got == 0 || (errno != EAGAIN && errno != EINTR))
			return WIRE_LOST;
		if (errno == EAGAIN && wait_for(fd, POLLIN, until_ms) == 0)
			return WIRE_LATE;
	}
}

long
wire_receive(int fd, void *to, size_t length, int deadline_ms)
{
	return receive_until(fd, to, length, wire_now_ms() + deadline_ms);
}

bool
wire_silent(int fd, int for_ms)
{
	return wait_for(fd, POLLIN, wire_now_ms() + for_ms) == 0;
}

bool
wire_ended(int fd, int deadline_ms)
{
	uint8_t byte;

	return wire_receive(fd, &byte, 1, deadline_ms) == WIRE_LOST;
}

bool
wire_ended_orderly(int fd, int deadline_ms)
{
	uint8_t byte;

	if (wait_for(fd, POLLIN, wire_now_ms() + deadline_ms) == 0)
		return false;
	return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

void
wire_answer_free(struct wire_answer *answer)
{
	free(answer->body);
	memset(answer, 0, sizeof *answer);
}

static int
receive_all(int fd, uint8_t *to, size_t length, int64_t until_ms)
{
	while (length > 0) {
		long got = receive_until(fd, to, length, until_ms);

		if (got < 0)
			return (int)got;
		to += got;
		length -= (size_t)got;
	}
	return 0;
}

int
wire_read_answer(int fd, struct wire_answer *answer, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;
	uint8_t head[10];
	int lost;

	memset(answer, 0, sizeof *answer);
	lost = receive_all(fd, head, 4, until);
	if (lost)
		return lost;
	answer->length = wire_get_i32(head);
	if (answer->length < 6 || answer->length > WIRE_FRAME_MAX)
		return WIRE_MALFORMED;
	lost = receive_all(fd, head + 4, 6, until);
	if (lost)
		return lost;
	answer->id = wire_get_i32(head + 4);
	answer->error = wire_get_i16(head + 8);
	answer->body_length = (size_t)answer->length - 6;
	if (answer->error != 0 && answer->body_length != 0)
		return WIRE_MALFORMED;
	if (answer->body_length == 0)
		return 0;
	answer->body = malloc(answer->body_length);
	if (answer->body == NULL)
		abort();
	lost = receive_all(fd, answer->body, answer->body_length, until);
	if (lost)
		wire_answer_free(answer);
	return lost;
}

int
wire_expect(int fd, int32_t id)
{
	struct wire_answer answer;
	int code = wire_read_answer(fd, &answer, WIRE_DEADLINE_MS);

	if (code == 0)
		code = answer.id == id ? answer.error : WIRE_MALFORMED;
	wire_answer_free(&answer);
	return code;
}

int
wire_ask(int fd, const struct wire_bytes *request, struct wire_answer *answer)
{
	struct wire_answer own;
	int32_t id = wire_get_i32(request->data + 8);
	int code = wire_send(fd, request->data, request->length);

	if (code == 0)
		code = wire_read_answer(fd, &own, WIRE_DEADLINE_MS);
	if (code != 0) {
		if (answer != NULL)
			memset(answer, 0, sizeof *answer);
		return code;
	}
	code = own.id == id ? own.error : WIRE_MALFORMED;
	if (answer != NULL)
		*answer = own;
	else
		wire_answer_free(&own);
	return code;
}

/* Moves `position` over complete frames of `in`; returns how many. An impossible length stops it for good. */
static size_t
walk_frames(const struct wire_bytes *in, size_t *position)
{
	struct wire_answer answer;
	size_t count = 0;

	while (wire_next_answer(in, position, &answer))
		count++;
	return count;
}

size_t
wire_exchange(int fd, const void *out, size_t out_length, size_t answers, struct wire_bytes *in, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;
	const uint8_t *at = out;
	size_t position = in->length;
	size_t count = 0;

	while (out_length > 0 || count < answers) {
		int events = wait_for(fd, (short)(POLLIN | (out_length > 0 ? POLLOUT : 0)), until);
		ssize_t moved;

		if (events == 0)
			break;
		if (events & (POLLIN | POLLHUP | POLLERR)) {
			size_t room = 256 * 1024;
			uint8_t *to = grow(in, room);

			moved = recv(fd, to, room, MSG_DONTWAIT);
			in->length -= room - (moved > 0 ? (size_t)moved : 0);
			if (moved == 0 || (moved < 0 && errno != EAGAIN && errno != EINTR))
				break;
			count += walk_frames(in, &position);
		}
		if (events & POLLOUT && out_length > 0) {
			moved = send(fd, at, out_length, MSG_NOSIGNAL | MSG_DONTWAIT);
			if (moved > 0) {
				at += moved;
				out_length -= (size_t)moved;
			} else if (errno != EAGAIN && errno != EINTR) {
				/* A reset is seen by recv too, behind what can still be read. */
				out_length = 0;
			}
		}
	}
	return count;
}

bool
wire_next_answer(const struct wire_bytes *in, size_t *position, struct wire_answer *answer)
{
	const uint8_t *at = in->data + *position;
	size_t left = in->length - *position;

	if (left < 10)
		return false;
	answer->length = wire_get_i32(at);
	if (answer->length < 6 || answer->length > WIRE_FRAME_MAX || left < 4 + (size_t)answer->length)
		return false;
	answer->id = wire_get_i32(at + 4);
	answer->error = wire_get_i16(at + 8);
	answer->body = in->data + *position + 10;
	answer->body_length = (size_t)answer->length - 6;
	*position += 4 + (size_t)answer->length;
	return true;
}

/* ---- calls -------------------------------------------------------------------------------------------------- */

/* Ids of the calls below: any int32, never twice in a row, different in each thread soon enough. */
static int32_t
next_id(void)
{
	static _Thread_local uint32_t id;

	if (id == 0)
		id = (uint32_t)wire_now_us() * 2654435761u | 1;
	id += 0x9e3779b9;
	return (int32_t)id;
}

int
wire_produce(int fd, const char *topic, int32_t partition, int ack, const struct wire_record *records, size_t count,
    int64_t *base, int64_t *end)
{
	struct wire_bytes request = { 0 };
	struct wire_answer answer = { 0 };
	int code;

	wire_put_produce(&request, next_id(), topic, partition, ack, records, count);
	if (ack == WIRE_NONE)
		code = wire_send(fd, request.data, request.length);
	else
		code = wire_ask(fd, &request, &answer);
	if (code == 0 && ack != WIRE_NONE && answer.body_length != 16)
		code = WIRE_MALFORMED;
	if (code == 0 && ack != WIRE_NONE) {
		if (base != NULL)
			*base = wire_get_i64(answer.body);
		if (end != NULL)
			*end = wire_get_i64(answer.body + 8);
		if (wire_get_i64(answer.body + 8) < wire_get_i64(answer.body) + (int64_t)count)
			code = WIRE_MALFORMED;
	}
	wire_answer_free(&answer);
	wire_bytes_free(&request);
	return code;
}

int
wire_produce_one(int fd, const char *topic, int32_t partition, int ack, const void *payload, size_t length, int64_t *base)
{
	struct wire_record record = { payload, length };

	return wire_produce(fd, topic, partition, ack, &record, 1, base, NULL);
}

void
wire_fetched_free(struct wire_fetched *fetched)
{
	free(fetched->payload);
	memset(fetched, 0, sizeof *fetched);
}

int
wire_parse_fetched(const struct wire_answer *answer, struct wire_fetched *fetched)
{
	memset(fetched, 0, sizeof *fetched);
	if (answer->body_length < 12)
		return WIRE_MALFORMED;
	fetched->high_watermark = wire_get_i64(answer->body);
	fetched->length = answer->body_length - 12;
	if (wire_get_i32(answer->body + 8) < 0 || (size_t)wire_get_i32(answer->body + 8) != fetched->length)
		return WIRE_MALFORMED;
	if (fetched->length > 0) {
		fetched->payload = malloc(fetched->length);
		if (fetched->payload == NULL)
			abort();
		memcpy(fetched->payload, answer->body + 12, fetched->length);
	}
	return 0;
}

int
wire_fetch(int fd, const char *topic, int32_t partition, int64_t offset, int32_t max_bytes, int32_t max_wait_ms,
    int32_t min_bytes, struct wire_fetched *fetched)
{
	struct wire_bytes request = { 0 };
	struct wire_answer answer = { 0 };
	int code;

	memset(fetched, 0, sizeof *fetched);
	wire_put_fetch(&request, next_id(), topic, partition, offset, max_bytes, max_wait_ms, min_bytes);
	code = wire_send(fd, request.data, request.length);
	if (code == 0)
		code = wire_read_answer(fd, &answer, WIRE_DEADLINE_MS + max_wait_ms % (1 << 20));
	if (code == 0)
		code = answer.id == wire_get_i32(request.data + 8) ? answer.error : WIRE_MALFORMED;
	if (code == 0)
		code = wire_parse_fetched(&answer, fetched);
	if (code == 0 && fetched->length > (size_t)max_bytes)
		code = WIRE_MALFORMED;
	wire_answer_free(&answer);
	wire_bytes_free(&request);
	return code;
}

void
wire_topics_free(struct wire_topics *topics)
{
	free(topics->list);
	memset(topics, 0, sizeof *topics);
}

/* Bytes that are taken one field after the other; `short_of` once more was asked for than there is. */
struct taker {
	const uint8_t *at;
	size_t left;
	bool short_of;
};

static const uint8_t *
take(struct taker *from, size_t length)
{
	static const uint8_t nothing[256];
	const uint8_t *at = from->at;

	if (from->left < length) {
		from->short_of = true;
		from->left = 0;
		return nothing;
	}
	from->at += length;
	from->left -= length;
	return at;
}

static void
take_topic(struct taker *from, int version, struct wire_topics *topics)
{
	struct wire_partition head = { .record_format = -1, .group = -1 };
	size_t name_length = (uint16_t)wire_get_i16(take(from, 2));
	int32_t count;

	if (name_length < 1 || name_length >= sizeof head.topic) {
		from->short_of = true;
		return;
	}
	memcpy(head.topic, take(from, name_length), name_length);
	if (version >= 2)
		head.record_format = *take(from, 1);
	count = wire_get_i32(take(from, 4));
	if (from->short_of || count < 1 || (size_t)count > from->left / 20) {
		from->short_of = true;
		return;
	}
	topics->list = realloc(topics->list, (topics->count + (size_t)count) * sizeof *topics->list);
	if (topics->list == NULL)
		abort();
	for (int32_t i = 0; i < count; i++) {
		struct wire_partition *partition = &topics->list[topics->count++];

		*partition = head;
		partition->partition = wire_get_i32(take(from, 4));
		partition->log_start = wire_get_i64(take(from, 8));
		partition->high_watermark = wire_get_i64(take(from, 8));
		if (version >= 2)
			partition->group = wire_get_i32(take(from, 4));
	}
}

int
wire_parse_topics(const struct wire_answer *answer, int version, struct wire_topics *topics)
{
	struct taker from = { .at = answer->body, .left = answer->body_length };

	memset(topics, 0, sizeof *topics);
	topics->topic_count = wire_get_i32(take(&from, 4));
	for (int32_t i = 0; i < topics->topic_count && !from.short_of; i++)
		take_topic(&from, version, topics);
	if (!from.short_of && from.left == 0 && topics->topic_count >= 0)
		return 0;
	wire_topics_free(topics);
	return WIRE_MALFORMED;
}

int
wire_metadata(int fd, int version, const char *topic, struct wire_topics *topics)
{
	struct wire_bytes request = { 0 };
	struct wire_answer answer = { 0 };
	int code;

	memset(topics, 0, sizeof *topics);
	wire_put_metadata(&request, next_id(), version, topic);
	code = wire_ask(fd, &request, &answer);
	if (code == 0)
		code = wire_parse_topics(&answer, version, topics);
	wire_answer_free(&answer);
	wire_bytes_free(&request);
	return code;
}

static int
one_partition(int fd, const char *topic, int32_t partition, struct wire_partition *found)
{
	struct wire_topics topics;
	int code = wire_metadata(fd, 2, topic, &topics);

	if (code > 0)
		return -(100 + code);
	if (code < 0)
		return code;
	code = WIRE_MALFORMED;
	for (size_t i = 0; i < topics.count; i++)
		if (topics.list[i].partition == partition) {
			*found = topics.list[i];
			code = 0;
		}
	wire_topics_free(&topics);
	return code;
}

int64_t
wire_high_watermark(int fd, const char *topic, int32_t partition)
{
	struct wire_partition found;
	int code = one_partition(fd, topic, partition, &found);

	return code < 0 ? code : found.high_watermark;
}

int64_t
wire_log_start(int fd, const char *topic, int32_t partition)
{
	struct wire_partition found;
	int code = one_partition(fd, topic, partition, &found);

	return code < 0 ? code : found.log_start;
}

int32_t
wire_group(int fd, const char *topic, int32_t partition)
{
	struct wire_partition found;
	int code = one_partition(fd, topic, partition, &found);

	return code < 0 ? code : found.group;
}

/* ---- records ------------------------------------------------------------------------------------------------ */

bool
wire_next_record(const uint8_t *payload, size_t length, size_t *position, bool crc, struct wire_record *record, bool *good)
{
	size_t header = crc ? 8 : 4;
	size_t left = length - *position;
	const uint8_t *at;
	int32_t record_length;
	bool right = true;

	if (good != NULL)
		*good = true;
	if (left < header)
		return false;
	at = payload + *position;
	record_length = wire_get_i32(at);
	if (record_length < 1) {
		if (good != NULL)
			*good = false;
		return false;
	}
	if (left - header < (size_t)record_length)
		return false;
	if (crc)
		right = wire_crc32c(at + 8, (size_t)record_length) == (uint32_t)wire_get_i32(at + 4);
	if (good != NULL)
		*good = right;
	if (!right)
		return false;
	record->payload = at + header;
	record->length = (size_t)record_length;
	*position += header + (size_t)record_length;
	return true;
}

long
wire_count_records(const uint8_t *payload, size_t length, bool crc)
{
	struct wire_record record;
	size_t position = 0;
	bool good = true;
	long count = 0;

	while (wire_next_record(payload, length, &position, crc, &record, &good))
		count++;
	return good ? count : -1;
}

int64_t
wire_read_log(int fd, const char *topic, int32_t partition, int64_t from, int64_t to, int32_t max_bytes, bool crc,
    struct wire_bytes *log)
{
	int64_t offset = from;

	while (offset < to) {
		struct wire_fetched fetched;
		struct wire_record record;
		size_t position = 0;
		bool good = true;
		int code = wire_fetch(fd, topic, partition, offset, max_bytes, 0, 0, &fetched);

		if (code != 0)
			return code > 0 ? -(100 + code) : code;
		while (offset < to && wire_next_record(fetched.payload, fetched.length, &position, crc, &record, &good))
			offset++;
		wire_put(log, fetched.payload, position);
		wire_fetched_free(&fetched);
		if (!good || position == 0)
			return WIRE_MALFORMED;
	}
	return offset - from;
}
