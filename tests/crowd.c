/* See crowd.h. */
#include "crowd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	WINDOW = 16,			/* requests of one burst */
	EVENTS = 256,
	RECORD_HEADER_BYTES = 8,	/* crc32c */
	BATCH_MAX = 3,			/* records of a request */
	SLOW_MAX_BYTES = 8000000,
	SLOW_PIECE_BYTES = 96 * 1024,
	SLOW_PIECE_US = 15000,
	RECONNECT_US = 3000,
	DEADLINE_US = WIRE_DEADLINE_MS * 1000,
};

enum ask { ASK_PRODUCE, ASK_FETCH, ASK_METADATA };

struct asked {
	enum ask what;
	int32_t id;
	int32_t partition;
	int64_t sent_us;
	int32_t wait_ms;		/* of a FETCH */
	bool prompt;			/* FETCH: the next record ends it; PRODUCE: no barrier is waited for */
	int32_t count;			/* of a PRODUCE */
	int64_t numbers[BATCH_MAX];
};

struct client {
	enum crowd_kind kind;
	int index;
	int fd;				/* -1: not connected */
	bool by_unix;
	int32_t group;			/* where it lives once it is settled; -1: anywhere */
	int32_t partition;
	uint64_t random;
	int32_t next_id;
	bool settled;			/* its group's worker has answered on this connection */
	bool came_while_down;
	long kills, kills_all;		/* that this connection has survived */
	struct asked asked[WINDOW];
	int first, count;
	struct wire_bytes in, out;
	size_t in_position, out_position;
	bool wants_out;			/* as epoll knows */
	int64_t due_us;			/* what it does next, it does then */
	int64_t dry_us;			/* CROWD_SLOW: since when there was nothing to read; 0 = there was */
	int64_t answered_us;
	int64_t next_offset;		/* of a follower */
	int64_t last_offset[LEDGER_PARTITIONS_MAX];	/* acknowledged on this connection */
	bool last_asked, done;
};

enum phase { RUNNING, PRODUCERS_END, FOLLOWERS_END, ENDED };

struct crowd {
	struct crowd_config config;
	struct ledger *ledger;
	struct client *clients;
	int count;
	int epoll;
	int port;
	pthread_t thread;
	pthread_mutex_t mutex;		/* everything here; the thread has it but while it waits */
	atomic_int holders;		/* who wants it gets it */
	enum phase phase;
	bool down;
	int calm_turns;			/* > 0: so many whole turns until all losses have been seen */
	long kills[LEDGER_PARTITIONS_MAX];
	long kills_all;
	int64_t target[LEDGER_PARTITIONS_MAX];
	int64_t scanned_us;
	struct crowd_figures figures;
	long answers;
	char wrong[320];
};

#define WRONG(crowd, ...) \
	((crowd)->wrong[0] == '\0' ? (void)snprintf((crowd)->wrong, sizeof (crowd)->wrong, __VA_ARGS__) : (void)0)

static const char *const kind_names[CROWD_KINDS] = { "sync", "pipeline", "follower", "slow", "idle", "dribbler", "asker" };

static void
longest(int64_t *figure, int64_t us)
{
	if (us > *figure)
		*figure = us;
}

/* About that long, so that they do not all act at once. */
static int64_t
about(struct client *client, int64_t us)
{
	return us / 2 + (int64_t)(wire_random(&client->random) % (uint64_t)(us + 1));
}

/* Between two actions of a client: the more there are of its kind, the less each does, so that the load stays. */
static int64_t
pace_us(const struct crowd *crowd, const struct client *client)
{
	static const int64_t share_us[CROWD_KINDS] = { 700, 5000, 600, 1, 1, 500, 3000 };

	return share_us[client->kind] * crowd->config.counts[client->kind];
}

/* ---- connecting, losing --------------------------------------------------------------------------------------- */

static void
watch(struct crowd *crowd, struct client *client, int how)
{
	struct epoll_event event = { .data.u32 = (uint32_t)client->index };

	client->wants_out = client->kind != CROWD_DRIBBLER && client->out_position < client->out.length;
	event.events = (client->kind != CROWD_SLOW ? EPOLLIN : 0u) | (client->wants_out ? EPOLLOUT : 0u);
	if (epoll_ctl(crowd->epoll, how, client->fd, &event) < 0)
		WRONG(crowd, "epoll_ctl: %s", strerror(errno));
}

static void
client_connect(struct crowd *crowd, struct client *client)
{
	int small = 32 * 1024;

	client->fd = client->by_unix ? wire_connect_unix(crowd->config.unix_path) : wire_connect_tcp(crowd->port);
	if (client->fd < 0) {
		client->due_us = wire_now_us() + about(client, RECONNECT_US);
		if (!crowd->down)
			WRONG(crowd, "%s client %d cannot connect: %s", kind_names[client->kind], client->index, strerror(errno));
		return;
	}
	fcntl(client->fd, F_SETFL, O_NONBLOCK);
	if (client->kind == CROWD_SLOW)
		setsockopt(client->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	client->settled = false;
	client->came_while_down = crowd->down;
	client->kills = client->group >= 0 ? crowd->kills[client->group] : 0;
	client->kills_all = crowd->kills_all;
	client->due_us = wire_now_us() + about(client, pace_us(crowd, client));
	memset(client->last_offset, -1, sizeof client->last_offset);
	watch(crowd, client, EPOLL_CTL_ADD);
}

static bool
may_be_cut(const struct crowd *crowd, const struct client *client)
{
	if (crowd->down)
		return true;
	if (client->settled && client->group >= 0)
		return crowd->kills[client->group] > client->kills;
	return crowd->kills_all > client->kills_all || (client->came_while_down && !client->settled);
}

static void
lose(struct crowd *crowd, struct client *client, const char *how)
{
	if (!may_be_cut(crowd, client))
		WRONG(crowd, "%s client %d (group %d%s) lost its connection: %s; %d answers were due", kind_names[client->kind],
		    client->index, (int)client->group, client->settled ? "" : ", not settled", how, client->count);
	crowd->figures.cuts[client->kind]++;
	close(client->fd);
	client->fd = -1;
	client->in.length = client->in_position = 0;
	client->out.length = client->out_position = 0;
	client->first = client->count = 0;
	client->last_asked = false;
	client->dry_us = 0;
	client->due_us = wire_now_us() + about(client, RECONNECT_US);
}

/* ---- asking ---------------------------------------------------------------------------------------------------- */

static struct asked *
ask(struct client *client, enum ask what, int32_t partition)
{
	struct asked *asked = &client->asked[(client->first + client->count++) % WINDOW];

	*asked = (struct asked){ .what = what, .id = client->next_id++, .partition = partition, .sent_us = wire_now_us() };
	return asked;
}

static size_t
choose_size(struct client *client)
{
	uint64_t dice = wire_random(&client->random);

	if (dice % 500 == 0)
		return 20000 + dice / 500 % 60000;
	return LEDGER_HEAD_BYTES + dice % 200;
}

static void
ask_produce(struct crowd *crowd, struct client *client, int32_t partition, int ack)
{
	static uint8_t payloads[BATCH_MAX][128 * 1024];
	struct wire_record records[BATCH_MAX];
	struct asked *asked = ask(client, ASK_PRODUCE, partition);

	asked->count = 1 + (int32_t)(wire_random(&client->random) % BATCH_MAX);
	for (int i = 0; i < asked->count; i++) {
		size_t size = client->kind == CROWD_DRIBBLER ? LEDGER_HEAD_BYTES : choose_size(client);

		asked->numbers[i] = ledger_add(crowd->ledger, partition);
		ledger_fill(payloads[i], asked->numbers[i], partition, size);
		records[i] = (struct wire_record){ payloads[i], size };
	}
	asked->prompt = ack != WIRE_FORCED;
	wire_put_produce(&client->out, asked->id, crowd->config.topic, partition, ack, records, (size_t)asked->count);
	if (ack == WIRE_NONE)
		client->count--;
}

static int32_t
loaded(const struct crowd *crowd)
{
	return crowd->config.partitions - crowd->config.quiet;
}

/* Any partition that gets records; of its group when it has one. */
static int32_t
choose_partition(const struct crowd *crowd, struct client *client)
{
	int32_t partition;

	do
		partition = (int32_t)(wire_random(&client->random) % (uint64_t)loaded(crowd));
	while (client->group >= 0 && crowd->config.group_of[partition] != client->group);
	return partition;
}

static void
ask_burst(struct crowd *crowd, struct client *client)
{
	static const int acks[8] = { WIRE_WRITTEN, WIRE_FORCED, WIRE_WRITTEN, WIRE_WRITTEN, WIRE_NONE, WIRE_WRITTEN, WIRE_FORCED,
		WIRE_WRITTEN };
	int count = 1 + (int)(wire_random(&client->random) % WINDOW);

	for (int i = 0; i < count; i++)
		ask_produce(crowd, client, choose_partition(crowd, client), acks[wire_random(&client->random) % 8]);
}

static void
ask_fetch(struct crowd *crowd, struct client *client, int64_t offset, int32_t max_bytes, int32_t wait_ms, int32_t min_bytes)
{
	struct asked *asked = ask(client, ASK_FETCH, client->partition);

	asked->wait_ms = wait_ms;
	asked->prompt = min_bytes <= 1;
	wire_put_fetch(&client->out, asked->id, crowd->config.topic, client->partition, offset, max_bytes, wait_ms, min_bytes);
}

static void
ask_more(struct crowd *crowd, struct client *client)
{
	static const int32_t waits_ms[4] = { 500, 200, 50, 300 };
	uint64_t dice = wire_random(&client->random);

	ask_fetch(crowd, client, client->next_offset, 300000, waits_ms[dice % 4], dice / 4 % 3 == 0 ? 4096 : 1);
}

static void
ask_metadata(struct crowd *crowd, struct client *client)
{
	struct asked *asked = ask(client, ASK_METADATA, -1);

	wire_put_metadata(&client->out, asked->id, 2, crowd->config.topic);
}

static bool
wants_to_end(const struct crowd *crowd, const struct client *client)
{
	if (client->kind == CROWD_FOLLOWER)
		return crowd->phase == FOLLOWERS_END && client->next_offset >= crowd->target[client->partition];
	return crowd->phase >= PRODUCERS_END;
}

/* It is connected, and nobody owes anything. */
static void
act(struct crowd *crowd, struct client *client)
{
	client->out.length = client->out_position = 0;
	if (wants_to_end(crowd, client)) {
		client->last_asked = true;
		ask_metadata(crowd, client);
		return;
	}
	switch (client->kind) {
	case CROWD_SYNC:
		ask_produce(crowd, client, client->partition, wire_random(&client->random) % 8 == 0 ? WIRE_FORCED : WIRE_WRITTEN);
		break;
	case CROWD_PIPELINE:
		ask_burst(crowd, client);
		break;
	case CROWD_FOLLOWER:
		ask_more(crowd, client);
		break;
	case CROWD_SLOW:
		ask_fetch(crowd, client, 0, SLOW_MAX_BYTES, 0, 0);
		break;
	case CROWD_DRIBBLER:
		ask_produce(crowd, client, client->partition, WIRE_WRITTEN);
		break;
	case CROWD_ASKER:
		ask_metadata(crowd, client);
		break;
	default:
		break;
	}
}

/* ---- answers --------------------------------------------------------------------------------------------------- */

static void
check_produced(struct crowd *crowd, struct client *client, const struct asked *asked, const struct wire_answer *answer)
{
	int64_t base;

	if (answer->body_length != 16) {
		WRONG(crowd, "PRODUCE was answered with %zu bytes", answer->body_length);
		return;
	}
	base = wire_get_i64(answer->body);
	if (base <= client->last_offset[asked->partition] || wire_get_i64(answer->body + 8) < base + asked->count)
		WRONG(crowd, "partition %d: %d records at %lld, end %lld, behind %lld on the same connection",
		    (int)asked->partition, (int)asked->count, (long long)base, (long long)wire_get_i64(answer->body + 8),
		    (long long)client->last_offset[asked->partition]);
	for (int i = 0; i < asked->count; i++)
		ledger_acknowledge(crowd->ledger, asked->numbers[i], asked->partition, base + i);
	client->last_offset[asked->partition] = base + asked->count - 1;
}

/* The next whole record from *position on. Its sum is not looked at: the ledger knows every byte of it. */
static bool
next_record(const struct wire_fetched *fetched, size_t *position, struct wire_record *record)
{
	size_t left = fetched->length - *position;
	int32_t length = left >= RECORD_HEADER_BYTES ? wire_get_i32(fetched->payload + *position) : 0;

	if (length < 1 || left - RECORD_HEADER_BYTES < (size_t)length)
		return false;
	*record = (struct wire_record){ fetched->payload + *position + RECORD_HEADER_BYTES, (size_t)length };
	*position += RECORD_HEADER_BYTES + (size_t)length;
	return true;
}

static void
follow(struct crowd *crowd, struct client *client, const struct asked *asked, const struct wire_fetched *fetched)
{
	struct wire_record record;
	size_t position = 0;
	int64_t now_us = wire_now_us();

	while (next_record(fetched, &position, &record)) {
		int64_t sent_us = ledger_read(crowd->ledger, client->partition, client->next_offset++, &record);

		if (asked->prompt && sent_us > asked->sent_us)	/* it was held when that one was sent */
			longest(&crowd->figures.delay_us, now_us - sent_us);
	}
	if (fetched->length > 0 && position == 0)
		WRONG(crowd, "partition %d: no record at offset %lld", (int)client->partition,
		    (long long)client->next_offset);
}

static void
check_slow(struct crowd *crowd, struct client *client, const struct wire_fetched *fetched)
{
	const struct wire_bytes *expected = &crowd->config.slow[client->group];
	size_t length = fetched->length < expected->length ? fetched->length : expected->length;

	if (length == 0 || memcmp(fetched->payload, expected->data, length) != 0)
		WRONG(crowd, "partition %d: a large answer (%zu bytes) is not what stood there", (int)client->partition,
		    fetched->length);
}

static void
check_fetched(struct crowd *crowd, struct client *client, const struct asked *asked, const struct wire_answer *answer)
{
	struct wire_fetched fetched;
	int64_t early_us = asked->sent_us + (int64_t)asked->wait_ms * 1000 - wire_now_us();

	if (wire_parse_fetched(answer, &fetched) != 0) {
		WRONG(crowd, "FETCH was answered with a malformed body");
		return;
	}
	if (fetched.length == 0 && early_us > 0 && !crowd->config.may_end_holds)
		WRONG(crowd, "partition %d: a FETCH held for %d ms was answered empty %lld us before that", (int)asked->partition,
		    (int)asked->wait_ms, (long long)early_us);
	if (client->kind == CROWD_SLOW)
		check_slow(crowd, client, &fetched);
	else
		follow(crowd, client, asked, &fetched);
	wire_fetched_free(&fetched);
}

static void
check_metadata(struct crowd *crowd, const struct wire_answer *answer)
{
	struct wire_topics topics;

	if (wire_parse_topics(answer, 2, &topics) != 0 || topics.count != (size_t)crowd->config.partitions)
		WRONG(crowd, "METADATA was answered with a malformed body");
	else
		wire_topics_free(&topics);
}

/* How long it waited beyond what it asked for, since there was something to wait for. */
static void
measure(struct crowd *crowd, struct client *client, const struct asked *asked)
{
	int64_t now_us = wire_now_us();
	int64_t since_us = asked->sent_us + (int64_t)asked->wait_ms * 1000;

	if (client->answered_us > since_us)
		since_us = client->answered_us;
	client->answered_us = now_us;
	if (client->kind == CROWD_SYNC && !asked->prompt)
		longest(&crowd->figures.forced_us, now_us - since_us);
	else if (client->kind != CROWD_SLOW)
		longest(&crowd->figures.longest_us[client->kind], now_us - since_us);
	crowd->figures.answers[client->kind]++;
	crowd->answers++;
}

static void
check_answer(struct crowd *crowd, struct client *client, const struct wire_answer *answer)
{
	struct asked asked = client->asked[client->first];

	client->first = (client->first + 1) % WINDOW;
	client->count--;
	if (answer->id != asked.id)
		WRONG(crowd, "%s client %d: answer %d where %d was due", kind_names[client->kind], client->index, (int)answer->id,
		    (int)asked.id);
	else if (answer->error != 0)
		WRONG(crowd, "%s client %d: error %d for a request to partition %d", kind_names[client->kind], client->index,
		    answer->error, (int)asked.partition);
	else if (asked.what == ASK_PRODUCE)
		check_produced(crowd, client, &asked, answer);
	else if (asked.what == ASK_FETCH)
		check_fetched(crowd, client, &asked, answer);
	else
		check_metadata(crowd, answer);
	measure(crowd, client, &asked);
	client->settled = client->settled || asked.what != ASK_METADATA;
}

static void
take_answers(struct crowd *crowd, struct client *client)
{
	struct wire_answer answer;

	while (crowd->wrong[0] == '\0' && wire_next_answer(&client->in, &client->in_position, &answer)) {
		if (client->count == 0) {
			WRONG(crowd, "%s client %d: an answer (%d) that nobody asked for", kind_names[client->kind], client->index,
			    (int)answer.id);
			return;
		}
		check_answer(crowd, client, &answer);
	}
	if (client->in_position == client->in.length)
		client->in.length = client->in_position = 0;
	if (client->count > 0)
		return;
	client->done = client->last_asked;
	client->due_us = wire_now_us() + about(client, pace_us(crowd, client));
}

/* ---- moving bytes ---------------------------------------------------------------------------------------------- */

static void
receive(struct crowd *crowd, struct client *client)
{
	static uint8_t piece[256 * 1024];
	size_t size = client->kind == CROWD_SLOW ? SLOW_PIECE_BYTES : sizeof piece;
	ssize_t got = recv(client->fd, piece, size, MSG_DONTWAIT);
	int64_t now_us = wire_now_us();

	if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
		if (client->dry_us == 0)
			client->dry_us = now_us;
		return;
	}
	if (got <= 0) {
		lose(crowd, client, got == 0 ? "ended" : strerror(errno));
		return;
	}
	if (client->kind == CROWD_SLOW && client->dry_us > 0)
		longest(&crowd->figures.longest_us[CROWD_SLOW], now_us - client->dry_us);
	client->dry_us = 0;
	wire_put(&client->in, piece, (size_t)got);
	take_answers(crowd, client);
}

static void
transmit(struct crowd *crowd, struct client *client)
{
	size_t left = client->out.length - client->out_position;
	ssize_t put;

	if (client->kind == CROWD_DRIBBLER && left > 3)
		left = 1 + (size_t)(wire_random(&client->random) % 3);
	put = send(client->fd, client->out.data + client->out_position, left, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (put < 0 && errno != EAGAIN && errno != EINTR) {
		lose(crowd, client, strerror(errno));
		return;
	}
	client->out_position += put > 0 ? (size_t)put : 0;
	/* The last byte makes it a request. */
	if (client->kind == CROWD_DRIBBLER && client->count > 0)
		client->asked[client->first].sent_us = wire_now_us();
	if (client->wants_out != (client->kind != CROWD_DRIBBLER && client->out_position < client->out.length))
		watch(crowd, client, EPOLL_CTL_MOD);
}

static void
check_deadline(struct crowd *crowd, const struct client *client, int64_t now_us)
{
	const struct asked *asked = &client->asked[client->first];
	int64_t since_us = asked->sent_us + (int64_t)asked->wait_ms * 1000;

	if (client->kind == CROWD_SLOW)
		since_us = client->dry_us > 0 ? client->dry_us : now_us;
	if (client->count > 0 && client->out_position == client->out.length && now_us - since_us > DEADLINE_US)
		WRONG(crowd, "%s client %d (group %d): no answer from partition %d in %d ms", kind_names[client->kind],
		    client->index, (int)client->group, (int)asked->partition, WIRE_DEADLINE_MS);
}

/* What is due by now. */
static void
look_at(struct crowd *crowd, struct client *client, int64_t now_us)
{
	if (client->fd >= 0)
		check_deadline(crowd, client, now_us);
	if (client->done || now_us < client->due_us)
		return;
	if (client->fd < 0) {
		client_connect(crowd, client);
		return;
	}
	if (client->count == 0 && client->out_position == client->out.length)
		act(crowd, client);
	if (client->out_position < client->out.length && !client->wants_out)
		transmit(crowd, client);
	if (client->fd >= 0 && client->kind == CROWD_SLOW && client->count > 0) {
		receive(crowd, client);
		if (client->count > 0 && client->fd >= 0)
			client->due_us = now_us + about(client, crowd->phase == RUNNING ? SLOW_PIECE_US : 1000);
	} else if (client->kind == CROWD_DRIBBLER) {
		client->due_us = now_us + about(client, pace_us(crowd, client));
	}
}

static void
handle(struct crowd *crowd, struct client *client, uint32_t events)
{
	if (client->fd >= 0 && events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		receive(crowd, client);
	if (client->fd >= 0 && events & EPOLLOUT)
		transmit(crowd, client);
}

/* All that could be lost have been looked at; those who read slowly see it when they have read what came before. */
static void
settle_kills(struct crowd *crowd)
{
	for (int i = 0; i < crowd->count; i++) {
		struct client *client = &crowd->clients[i];

		if (client->kind == CROWD_SLOW)
			continue;
		client->kills = client->group >= 0 ? crowd->kills[client->group] : 0;
		client->kills_all = crowd->kills_all;
	}
}

static void
turn(struct crowd *crowd, const struct epoll_event *events, int count)
{
	int64_t began_us = wire_now_us();

	for (int i = 0; i < count; i++)
		handle(crowd, &crowd->clients[events[i].data.u32], events[i].events);
	if (count < EVENTS && crowd->calm_turns > 0 && --crowd->calm_turns == 0)
		settle_kills(crowd);
	if (began_us - crowd->scanned_us >= 1000) {
		crowd->scanned_us = began_us;
		for (int i = 0; i < crowd->count; i++)
			look_at(crowd, &crowd->clients[i], began_us);
	}
	longest(&crowd->figures.turn_us, wire_now_us() - began_us);
}

static void *
run(void *argument)
{
	struct crowd *crowd = argument;
	struct epoll_event events[EVENTS];
	bool on = true;

	while (on) {
		int count = epoll_wait(crowd->epoll, events, EVENTS, 1);

		while (atomic_load(&crowd->holders) > 0)
			usleep(50);
		pthread_mutex_lock(&crowd->mutex);
		turn(crowd, events, count > 0 ? count : 0);
		on = crowd->phase != ENDED && crowd->wrong[0] == '\0';
		pthread_mutex_unlock(&crowd->mutex);
	}
	return NULL;
}

/* ---- the test's side ------------------------------------------------------------------------------------------- */

/* The quiet partitions stand last; a follower may have one of those. */
static void
client_init(struct crowd *crowd, struct client *client, enum crowd_kind kind, int nth, int index)
{
	const struct crowd_config *config = &crowd->config;

	client->kind = kind;
	client->index = index;
	client->fd = -1;
	client->by_unix = index % 5 == 4;
	client->random = config->seed + (uint64_t)index * 7919;
	client->next_id = index * 100000;
	client->partition = (int32_t)(nth % (kind == CROWD_FOLLOWER ? config->partitions : loaded(crowd)));
	client->group = config->group_of[client->partition];
	if (kind == CROWD_SLOW) {
		client->group = (int32_t)(nth % config->groups);
		client->partition = 0;
		while (config->group_of[client->partition] != client->group)
			client->partition++;
	}
	client->next_offset = ledger_end(crowd->ledger, client->partition);
	if (kind == CROWD_IDLE || kind == CROWD_ASKER || (kind == CROWD_PIPELINE && nth % 2 == 0))
		client->group = -1;
}

struct crowd *
crowd_start(const struct crowd_config *config, struct ledger *ledger)
{
	struct crowd *crowd = calloc(1, sizeof *crowd);

	if (crowd == NULL)
		abort();
	crowd->config = *config;
	crowd->ledger = ledger;
	crowd->port = config->port;
	crowd->epoll = epoll_create1(EPOLL_CLOEXEC);
	pthread_mutex_init(&crowd->mutex, NULL);
	for (int kind = 0; kind < CROWD_KINDS; kind++)
		crowd->count += config->counts[kind];
	crowd->clients = calloc((size_t)crowd->count, sizeof *crowd->clients);
	for (int kind = 0, index = 0; kind < CROWD_KINDS; kind++)
		for (int nth = 0; nth < config->counts[kind]; nth++, index++) {
			client_init(crowd, &crowd->clients[index], (enum crowd_kind)kind, nth, index);
			client_connect(crowd, &crowd->clients[index]);
		}
	if (crowd->epoll < 0 || pthread_create(&crowd->thread, NULL, run, crowd) != 0)
		abort();
	return crowd;
}

void
crowd_hold(struct crowd *crowd)
{
	atomic_fetch_add(&crowd->holders, 1);
	pthread_mutex_lock(&crowd->mutex);
}

void
crowd_release(struct crowd *crowd)
{
	pthread_mutex_unlock(&crowd->mutex);
	atomic_fetch_sub(&crowd->holders, 1);
}

void
crowd_may_cut(struct crowd *crowd, int32_t group)
{
	crowd->kills[group]++;
	crowd->kills_all++;
	crowd->calm_turns = 0;
}

void
crowd_calm(struct crowd *crowd)
{
	crowd_hold(crowd);
	crowd->calm_turns = 3;
	crowd_release(crowd);
}

void
crowd_down(struct crowd *crowd)
{
	crowd->down = true;
	for (int32_t group = 0; group < crowd->config.groups; group++)
		crowd_may_cut(crowd, group);
}

void
crowd_up(struct crowd *crowd, int port)
{
	crowd_hold(crowd);
	crowd->down = false;
	crowd->port = port;
	crowd_release(crowd);
}

void
crowd_take_figures(struct crowd *crowd, struct crowd_figures *figures)
{
	crowd_hold(crowd);
	*figures = crowd->figures;
	memset(&crowd->figures, 0, sizeof crowd->figures);
	crowd_release(crowd);
}

void
crowd_add_figures(struct crowd_figures *sum, const struct crowd_figures *figures)
{
	for (int kind = 0; kind < CROWD_KINDS; kind++) {
		sum->answers[kind] += figures->answers[kind];
		sum->cuts[kind] += figures->cuts[kind];
		longest(&sum->longest_us[kind], figures->longest_us[kind]);
	}
	longest(&sum->forced_us, figures->forced_us);
	longest(&sum->delay_us, figures->delay_us);
	longest(&sum->turn_us, figures->turn_us);
}

long
crowd_answers(struct crowd *crowd)
{
	long answers;

	crowd_hold(crowd);
	answers = crowd->answers;
	crowd_release(crowd);
	return answers;
}

const char *
crowd_wrong(struct crowd *crowd)
{
	const char *wrong = ledger_wrong(crowd->ledger);
	bool own;

	crowd_hold(crowd);
	own = crowd->wrong[0] != '\0';
	crowd_release(crowd);
	return own ? crowd->wrong : wrong;
}

/* True when all are done, or all but the followers. */
static bool
all_done(struct crowd *crowd, bool followers)
{
	bool done = true;

	crowd_hold(crowd);
	for (int i = 0; i < crowd->count; i++)
		done = done && (crowd->clients[i].done || (crowd->clients[i].kind == CROWD_FOLLOWER && !followers));
	crowd_release(crowd);
	return done;
}

static void
wait_done(struct crowd *crowd, enum phase phase)
{
	int64_t until_ms = wire_now_ms() + 4 * WIRE_DEADLINE_MS;

	crowd_hold(crowd);
	crowd->phase = phase;
	crowd_release(crowd);
	while (!all_done(crowd, phase == FOLLOWERS_END) && crowd_wrong(crowd) == NULL && wire_now_ms() < until_ms)
		usleep(5000);
	crowd_hold(crowd);
	if (wire_now_ms() >= until_ms)
		WRONG(crowd, "not all clients came to their end in time");
	crowd_release(crowd);
}

void
crowd_finish(struct crowd *crowd)
{
	int fd;

	wait_done(crowd, PRODUCERS_END);
	fd = wire_connect_tcp(crowd->port);
	for (int32_t partition = 0; partition < crowd->config.partitions; partition++)
		crowd->target[partition] = wire_high_watermark(fd, crowd->config.topic, partition);
	close(fd);
	wait_done(crowd, FOLLOWERS_END);
	crowd_hold(crowd);
	crowd->phase = ENDED;
	crowd_release(crowd);
	pthread_join(crowd->thread, NULL);
}

void
crowd_free(struct crowd *crowd)
{
	for (int i = 0; i < crowd->count; i++) {
		struct client *client = &crowd->clients[i];

		if (client->fd >= 0)
			close(client->fd);
		wire_bytes_free(&client->in);
		wire_bytes_free(&client->out);
	}
	close(crowd->epoll);
	pthread_mutex_destroy(&crowd->mutex);
	free(crowd->clients);
	free(crowd);
}
