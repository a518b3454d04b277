/*
 * Connections that move from worker to worker, with everything that can stand in their way: pipelines, frames cut
 * anywhere, workers killed, descriptors in flight or short. Every answer must come, once, in order, on a connection that
 * lives; every acknowledged record must stand at its offset; all descriptors must come back.
 */
#include <check.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "wire.h"

enum {
	WORKERS = 3,
	PARTITIONS = 6,
	WORKERS_MAX = 12,
	PARTITIONS_MAX = 12,
	CLIENTS = 4,
	CLIENTS_MAX = 16,
	BATCH_MAX = 60,
	HEAD_BYTES = 16,	/* of a payload: client, sequence, size */
};

static struct broker broker;
static int32_t workers = WORKERS, partitions = PARTITIONS;	/* as they run */
static int32_t group_of[PARTITIONS_MAX];

static const struct broker_config three_workers = { .workers = WORKERS, .topics = "h = 6\n" };

static void
learn_groups(void)
{
	int fd = wire_connect_tcp(broker.port);

	for (int32_t partition = 0; partition < partitions; partition++) {
		group_of[partition] = wire_group(fd, "h", partition);
		ck_assert_int_ge(group_of[partition], 0);
		ck_assert_int_lt(group_of[partition], workers);
	}
	close(fd);
}

static int32_t
partition_in(int32_t group)
{
	for (int32_t partition = 0; partition < partitions; partition++)
		if (group_of[partition] == group)
			return partition;
	ck_abort_msg("no partition in group %d", (int)group);
	return -1;
}

static pid_t
worker_of_group(int32_t group)
{
	pid_t pid = broker_worker_of(&broker, "h", partition_in(group));

	ck_assert_int_gt(pid, 0);
	return pid;
}

static bool
sleeps(void *pid)
{
	char path[64], *text, *behind;
	size_t length;
	bool does;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)*(pid_t *)pid);
	text = procs_read_file(path, &length);
	behind = strrchr(text, ')');
	does = behind != NULL && behind[2] == 'S';
	free(text);
	return does;
}

/* It closes its copy of a connection behind handing it over, and the worker may answer in between: only its sleep is rest. */
static void
wait_supervisor_at_rest(void)
{
	ck_assert(broker_wait(sleeps, &broker.pid, 30000));
}

/*
 * On a machine that is slow beyond measure, a worker that a test has stopped is killed for that after ten seconds; what was
 * given to it is then served by the next one, only earlier than the test wants.
 */
static bool
killed_as_hung(void)
{
	broker.workers_may_die = broker_wait_log(&broker, "; killing it", 1000);
	return broker.workers_may_die;
}

/* Descriptors at rest: no client. */
struct baseline {
	int supervisor;
	int worker;	/* each has as many partitions as the others */
	int supervisor_maps, worker_maps;	/* shared memory */
};

static int
shared_maps(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
	return (int)procs_count_lines(path, "/memfd:", NULL);
}


/* Right behind the start: nobody has been connected yet. */
static struct baseline
take_baseline(void)
{
	struct baseline baseline = { .worker = broker_fd_count(broker.workers[0]),
		.worker_maps = shared_maps(broker.workers[0]), .supervisor_maps = shared_maps(broker.pid) };
	int fd = wire_connect_tcp(broker.port);

	ck_assert_int_ge(wire_high_watermark(fd, "h", 0), 0);
	ck_assert_int_gt(procs_owner_of(&broker, fd, 30000), 0);
	wait_supervisor_at_rest();
	baseline.supervisor = broker_fd_count(broker.pid);
	close(fd);
	return baseline;
}

static void
check_baseline(const struct baseline *baseline)
{
	pid_t pids[BROKER_WORKERS_MAX];

	/* The reserve, which a restart of a worker releases, comes back with the next client. */
	close(wire_connect_tcp(broker.port));
	for (int32_t group = 0; group < workers; group++) {
		pid_t pid = broker_wait_worker_of(&broker, "h", partition_in(group), 0, 30000);

		ck_assert_int_gt(pid, 0);
		ck_assert_msg(procs_wait_fd_count(pid, baseline->worker, 30000), "worker %d keeps descriptors", (int)group);
		ck_assert_int_eq(shared_maps(pid), baseline->worker_maps);
	}
	ck_assert_msg(procs_wait_fd_count(broker.pid, baseline->supervisor, 30000), "the supervisor keeps descriptors");
	ck_assert_int_eq(shared_maps(broker.pid), baseline->supervisor_maps);
	ck_assert_int_eq(broker_workers(&broker, pids, BROKER_WORKERS_MAX), workers);
	ck_assert_int_eq(procs_zombies(broker.pid), 0);
}

/* ---- payloads that tell whose they are ---------------------------------------------------------------------- */

static void
fill_payload(uint8_t *payload, uint32_t client, int64_t sequence, size_t size)
{
	uint64_t random = (uint64_t)sequence * 1000003 + client;
	size_t at = HEAD_BYTES;

	wire_set_i32(payload, client);
	wire_set_i64(payload + 4, sequence);
	wire_set_i32(payload + 12, (int64_t)size);
	for (; at + 8 <= size; at += 8)
		wire_set_i64(payload + at, (int64_t)wire_random(&random));
	for (; at < size; at++)
		payload[at] = (uint8_t)(sequence + (int64_t)at);
}

static bool
read_payload(const struct wire_record *record, uint32_t *client, int64_t *sequence)
{
	const uint8_t *payload = record->payload;
	uint8_t *expected;
	bool same;

	if (record->length < HEAD_BYTES || (size_t)wire_get_i32(payload + 12) != record->length)
		return false;
	*client = (uint32_t)wire_get_i32(payload);
	*sequence = wire_get_i64(payload + 4);
	expected = malloc(record->length);
	fill_payload(expected, *client, *sequence, record->length);
	same = memcmp(expected, payload, record->length) == 0;
	free(expected);
	return same;
}

/* ---- clients ------------------------------------------------------------------------------------------------- */

enum kind { ASK_PRODUCE, ASK_FETCH, ASK_METADATA };

struct asked {
	int32_t id;
	enum kind kind;
	int32_t partition;
	int ack;
	int64_t sequence;	/* of a PRODUCE's first record */
	int count;
	int64_t offset;		/* of a FETCH: the client's record `sequence` stands there; or 0 with sequence -1 */
};

/* What the log must hold. */
struct known {
	int64_t sequence;
	int32_t partition;
	int64_t offset;		/* -1: not acknowledged */
	int times;		/* seen in the log */
};

struct client {
	uint32_t number;
	uint64_t random;
	int requests;		/* to go */
	int batch_max;		/* 1: one by one */
	int large_every;	/* a request of hundreds of KiB among so many, and one of MiB among ten times as many */
	bool may_be_cut;
	bool unix_socket;

	pthread_t thread;
	int fd;
	int32_t next_id;
	int32_t group;		/* the last request's */
	struct wire_bytes in;
	size_t in_position;
	int64_t last_offset[PARTITIONS_MAX];	/* of the last acknowledged record; -1 */
	int64_t last_sequence[PARTITIONS_MAX];
	struct known *known;	/* by sequence */
	int64_t known_count;
	int64_t known_capacity;
	int cuts;
	long answers;
	char wrong[256];	/* what went wrong; empty = nothing */
};

static atomic_long answered;	/* requests of all clients */

#define WRONG(client, ...) snprintf((client)->wrong, sizeof (client)->wrong, __VA_ARGS__)

static void
client_connect(struct client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	client->in.length = 0;
	client->in_position = 0;
	client->fd = client->unix_socket ? wire_connect_unix(broker.unix_path) : wire_connect_tcp(broker.port);
	if (client->fd < 0)
		WRONG(client, "cannot connect: %s", strerror(errno));
}

static int64_t
add_known(struct client *client, int32_t partition)
{
	if (client->known_count == client->known_capacity) {
		client->known_capacity = client->known_capacity ? client->known_capacity * 2 : 1024;
		client->known = realloc(client->known, (size_t)client->known_capacity * sizeof *client->known);
	}
	client->known[client->known_count] = (struct known){ client->known_count, partition, -1, 0 };
	return client->known_count++;
}

static size_t
choose_size(struct client *client)
{
	uint64_t dice = wire_random(&client->random) % (uint64_t)(client->large_every * 10);

	if (dice == 0)
		return 1000000 + wire_random(&client->random) % 2500000;
	if (dice <= 10)
		return 20000 + wire_random(&client->random) % 500000;
	return HEAD_BYTES + wire_random(&client->random) % 300;
}

static int32_t
choose_partition(struct client *client)
{
	int32_t partition;

	do
		partition = (int32_t)(wire_random(&client->random) % (unsigned)partitions);
	while (group_of[partition] == client->group);
	client->group = group_of[partition];
	return partition;
}

static void
put_produce(struct client *client, struct wire_bytes *out, struct asked *asked)
{
	struct wire_record records[3];
	uint8_t *payloads[3];

	asked->partition = choose_partition(client);
	asked->ack = (int)(wire_random(&client->random) % 3);
	asked->count = wire_random(&client->random) % 4 == 0 ? 3 : 1;
	asked->sequence = client->known_count;
	for (int i = 0; i < asked->count; i++) {
		size_t size = choose_size(client);

		payloads[i] = malloc(size);
		fill_payload(payloads[i], client->number, add_known(client, asked->partition), size);
		records[i] = (struct wire_record){ payloads[i], size };
	}
	wire_put_produce(out, asked->id, "h", asked->partition, asked->ack, records, (size_t)asked->count);
	for (int i = 0; i < asked->count; i++)
		free(payloads[i]);
}

static void
put_request(struct client *client, struct wire_bytes *out, struct asked *asked)
{
	uint64_t dice = wire_random(&client->random) % 10;

	*asked = (struct asked){ .id = client->next_id++, .ack = WIRE_WRITTEN };
	if (dice < 6) {
		asked->kind = ASK_PRODUCE;
		put_produce(client, out, asked);
	} else if (dice < 9) {
		asked->kind = ASK_FETCH;
		asked->partition = choose_partition(client);
		asked->sequence = client->last_offset[asked->partition] >= 0 ? client->last_sequence[asked->partition] : -1;
		asked->offset = asked->sequence >= 0 ? client->last_offset[asked->partition] : 0;
		wire_put_fetch(out, asked->id, "h", asked->partition, asked->offset, 100000, 0, 0);
	} else {
		asked->kind = ASK_METADATA;
		wire_put_metadata(out, asked->id, 2, "h");
	}
}

static void
check_produced(struct client *client, const struct asked *asked, const struct wire_answer *answer)
{
	int64_t base;

	if (answer->body_length != 16) {
		WRONG(client, "PRODUCE answered with %zu bytes", answer->body_length);
		return;
	}
	base = wire_get_i64(answer->body);
	if (base <= client->last_offset[asked->partition] || wire_get_i64(answer->body + 8) < base + asked->count)
		WRONG(client, "partition %d: base %lld end %lld behind %lld", asked->partition, (long long)base,
		    (long long)wire_get_i64(answer->body + 8), (long long)client->last_offset[asked->partition]);
	for (int i = 0; i < asked->count; i++)
		client->known[asked->sequence + i].offset = base + i;
	client->last_offset[asked->partition] = base + asked->count - 1;
	client->last_sequence[asked->partition] = asked->sequence + asked->count - 1;
}

static void
check_fetched(struct client *client, const struct asked *asked, const struct wire_answer *answer)
{
	struct wire_fetched fetched;
	struct wire_record record;
	size_t position = 0;
	uint32_t number;
	int64_t sequence;
	bool good = true;

	if (wire_parse_fetched(answer, &fetched) != 0) {
		WRONG(client, "FETCH answered with a malformed body");
		return;
	}
	if (fetched.high_watermark < asked->offset + (asked->sequence >= 0))
		WRONG(client, "partition %d: watermark %lld, but %lld was acknowledged", asked->partition,
		    (long long)fetched.high_watermark, (long long)asked->offset);
	if (asked->sequence >= 0 && fetched.length == 0)
		WRONG(client, "partition %d: nothing at offset %lld", asked->partition, (long long)asked->offset);
	if (wire_next_record(fetched.payload, fetched.length, &position, true, &record, &good) &&
	    (!read_payload(&record, &number, &sequence) ||
	    (asked->sequence >= 0 && (number != client->number || sequence != asked->sequence))))
		WRONG(client, "partition %d: another record at offset %lld", asked->partition, (long long)asked->offset);
	if (!good)
		WRONG(client, "partition %d: a bad record at offset %lld", asked->partition, (long long)asked->offset);
	wire_fetched_free(&fetched);
}

static void
check_metadata(struct client *client, const struct wire_answer *answer)
{
	struct wire_topics topics;

	if (wire_parse_topics(answer, 2, &topics) != 0 || topics.count != (size_t)partitions) {
		WRONG(client, "METADATA answered with a malformed body");
		return;
	}
	for (int i = 0; i < partitions; i++)
		if (topics.list[i].high_watermark <= client->last_offset[i])
			WRONG(client, "METADATA: partition %d ends at %lld, but %lld was acknowledged", i,
			    (long long)topics.list[i].high_watermark, (long long)client->last_offset[i]);
	wire_topics_free(&topics);
}

static void
check_answer(struct client *client, const struct asked *asked, const struct wire_answer *answer)
{
	client->answers++;
	atomic_fetch_add(&answered, 1);
	if (answer->id != asked->id)
		WRONG(client, "answer %d came where %d was due", answer->id, asked->id);
	else if (answer->error != 0)
		WRONG(client, "request %d (kind %d, partition %d) answered with error %d", asked->id, asked->kind,
		    asked->partition, answer->error);
	else if (asked->kind == ASK_PRODUCE)
		check_produced(client, asked, answer);
	else if (asked->kind == ASK_FETCH)
		check_fetched(client, asked, answer);
	else
		check_metadata(client, answer);
}

static bool
is_silent(const struct asked *asked)
{
	return asked->kind == ASK_PRODUCE && asked->ack == WIRE_NONE;
}

/* Takes the answers that are complete in `in`; *next moves over what has been answered or is silent. */
static void
take_answers(struct client *client, const struct asked *asked, int count, int *next)
{
	struct wire_answer answer;

	for (;;) {
		while (*next < count && is_silent(&asked[*next]))
			(*next)++;
		if (*client->wrong != '\0' || !wire_next_answer(&client->in, &client->in_position, &answer))
			break;
		if (*next == count) {
			WRONG(client, "an answer (id %d) that nobody asked for", answer.id);
			break;
		}
		check_answer(client, &asked[(*next)++], &answer);
	}
	if (client->in_position == client->in.length)
		client->in.length = client->in_position = 0;
}

/* Sends `length` bytes while it takes what comes; with `to_end`, until everything is answered. False: connection lost. */
static bool
talk(struct client *client, const uint8_t *out, size_t length, const struct asked *asked, int count, int *next, bool to_end)
{
	int64_t until = wire_now_ms() + WIRE_DEADLINE_MS;
	static _Thread_local uint8_t piece[256 * 1024];

	while (*client->wrong == '\0' && (length > 0 || (to_end && *next < count))) {
		struct pollfd p = { .fd = client->fd, .events = (short)(POLLIN | (length > 0 ? POLLOUT : 0)) };
		ssize_t n;

		if (wire_now_ms() > until || poll(&p, 1, WIRE_DEADLINE_MS) == 0) {
			WRONG(client, "no answer to request %d (kind %d, partition %d) in %d ms", asked[*next].id,
			    asked[*next].kind, asked[*next].partition, WIRE_DEADLINE_MS);
			return true;
		}
		if (p.revents & (POLLIN | POLLHUP | POLLERR)) {
			n = recv(client->fd, piece, sizeof piece, MSG_DONTWAIT);
			if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
				return false;
			wire_put(&client->in, piece, n > 0 ? (size_t)n : 0);
			take_answers(client, asked, count, next);
		}
		if (length > 0 && p.revents & POLLOUT) {
			n = send(client->fd, out, length, MSG_NOSIGNAL | MSG_DONTWAIT);
			if (n < 0 && errno != EAGAIN && errno != EINTR)
				return false;
			out += n > 0 ? n : 0;
			length -= n > 0 ? (size_t)n : 0;
		}
	}
	return true;
}

/* One batch of requests, cut once at any byte: what stands before is given time to arrive and be acted on. */
static void
do_batch(struct client *client)
{
	struct asked asked[BATCH_MAX];
	struct wire_bytes out = { 0 };
	int count = client->batch_max == 1 ? 1 : 1 + (int)(wire_random(&client->random) % (unsigned)client->batch_max);
	int next = 0;
	size_t cut = 0;
	bool alive;

	if (count > client->requests)
		count = client->requests;
	client->requests -= count;
	for (int i = 0; i < count; i++)
		put_request(client, &out, &asked[i]);
	while (next < count && is_silent(&asked[next]))
		next++;
	if (out.length > 16384 || wire_random(&client->random) % 8 == 0)
		cut = wire_random(&client->random) % out.length;
	alive = talk(client, out.data, cut, asked, count, &next, false);
	if (alive && cut > 0 && wire_random(&client->random) % 2 == 0)
		procs_wait_read(client->fd, 20);
	alive = alive && talk(client, out.data + cut, out.length - cut, asked, count, &next, true);
	wire_bytes_free(&out);
	if (alive || *client->wrong != '\0')
		return;
	if (!client->may_be_cut) {
		WRONG(client, "connection lost before the answer to request %d", asked[next].id);
		return;
	}
	client->cuts++;
	client_connect(client);
}

/* Nothing must follow the last answer: a METADATA's is the next that comes. */
static void
check_silence(struct client *client)
{
	struct wire_bytes request = { 0 };
	struct wire_answer answer = { 0 };
	int code = 0;

	if (*client->wrong != '\0')
		return;
	wire_put_metadata(&request, -5, 1, "h");
	if (client->in.length > 0)
		WRONG(client, "%zu bytes behind the last answer", client->in.length);
	else
		code = wire_ask(client->fd, &request, &answer);
	if (code != 0 && !(client->may_be_cut && code == WIRE_LOST))
		WRONG(client, "the last METADATA was answered with %d (id %d)", code, answer.id);
	wire_answer_free(&answer);
	wire_bytes_free(&request);
}

static void *
run_client(void *argument)
{
	struct client *client = argument;

	client_connect(client);
	while (client->requests > 0 && *client->wrong == '\0')
		do_batch(client);
	check_silence(client);
	if (client->fd >= 0)
		close(client->fd);
	return NULL;
}

static void
start_client(struct client *client, uint32_t number, uint64_t *seed)
{
	client->number = number;
	client->random = wire_random(seed);
	client->fd = -1;
	client->next_id = (int32_t)(number * 100000000);
	client->group = -1;
	for (int i = 0; i < partitions; i++)
		client->last_offset[i] = -1;
	ck_assert_int_eq(pthread_create(&client->thread, NULL, run_client, client), 0);
}

/* ---- what stands in the log afterwards ----------------------------------------------------------------------- */

static void
check_record(struct client *clients, int count, int32_t partition, int64_t offset, const struct wire_record *record,
    int64_t *last_sequence)
{
	uint32_t number;
	int64_t sequence;
	struct known *known;

	ck_assert_msg(read_payload(record, &number, &sequence) && number < (uint32_t)count &&
	    sequence < clients[number].known_count, "partition %d offset %lld: nobody sent this", partition,
	    (long long)offset);
	known = &clients[number].known[sequence];
	ck_assert_msg(known->partition == partition, "client %u record %lld is in partition %d, not %d", number,
	    (long long)sequence, partition, known->partition);
	ck_assert_msg(++known->times == 1, "client %u record %lld stands in partition %d twice", number, (long long)sequence,
	    partition);
	ck_assert_msg(known->offset < 0 || known->offset == offset, "client %u record %lld: acknowledged at %lld, stands at "
	    "%lld", number, (long long)sequence, (long long)known->offset, (long long)offset);
	ck_assert_msg(sequence > last_sequence[number], "client %u: record %lld stands behind %lld", number,
	    (long long)sequence, (long long)last_sequence[number]);
	last_sequence[number] = sequence;
}

/* `all`: even what was not acknowledged must be there. */
static void
check_log(struct client *clients, int count, bool all)
{
	int fd = wire_connect_tcp(broker.port);

	for (int32_t partition = 0; partition < partitions; partition++) {
		int64_t end = wire_high_watermark(fd, "h", partition);
		int64_t last_sequence[CLIENTS_MAX];
		int64_t offset = 0;

		memset(last_sequence, -1, sizeof last_sequence);
		while (offset < end) {
			struct wire_fetched fetched;
			struct wire_record record;
			size_t position = 0;

			ck_assert_int_eq(wire_fetch(fd, "h", partition, offset, 8000000, 0, 0, &fetched), 0);
			while (wire_next_record(fetched.payload, fetched.length, &position, true, &record, NULL))
				check_record(clients, count, partition, offset++, &record, last_sequence);
			ck_assert_msg(position > 0, "partition %d: no record at offset %lld", partition, (long long)offset);
			wire_fetched_free(&fetched);
		}
	}
	for (int c = 0; c < count; c++)
		for (int64_t i = 0; i < clients[c].known_count; i++)
			ck_assert_msg(clients[c].known[i].times == 1 || (!all && clients[c].known[i].offset < 0),
			    "client %d record %lld, acknowledged in partition %d at offset %lld, is gone", c, (long long)i,
			    clients[c].known[i].partition, (long long)clients[c].known[i].offset);
	close(fd);
}

static void
join_clients(struct client *clients, int count)
{
	for (int c = 0; c < count; c++)
		pthread_join(clients[c].thread, NULL);
	for (int c = 0; c < count; c++)
		ck_assert_msg(*clients[c].wrong == '\0', "client %d: %s", c, clients[c].wrong);
}

static void
free_clients(struct client *clients, int count)
{
	for (int c = 0; c < count; c++) {
		free(clients[c].known);
		wire_bytes_free(&clients[c].in);
	}
}

/* ---- requests that change group every time ------------------------------------------------------------------- */

static void
run_clients(const char *test, int requests, int batch_max, int large_every)
{
	struct client clients[CLIENTS] = { 0 };
	uint64_t seed = broker_seed(test);
	struct baseline baseline;
	double handoffs;

	broker_start(&broker, &three_workers);
	baseline = take_baseline();
	learn_groups();
	for (uint32_t c = 0; c < CLIENTS; c++) {
		clients[c].requests = requests;
		clients[c].batch_max = batch_max;
		clients[c].large_every = large_every;
		clients[c].unix_socket = c == 3;
		start_client(&clients[c], c, &seed);
	}
	join_clients(clients, CLIENTS);
	check_log(clients, CLIENTS, true);
	/* Nine of ten requests change the group, and a pipeline saves none of the moves. */
	handoffs = broker_metric(&broker, "logbroker_connection_handoffs_total", NULL);
	ck_assert_msg(broker_wait_metric_least(&broker, "logbroker_connection_handoffs_total", NULL,
	    0.8 * CLIENTS * requests, 5000), "only %.0f hand-overs", handoffs);
	check_baseline(&baseline);
	free_clients(clients, CLIENTS);
	broker_stop(&broker);
	broker_end(&broker);
}

START_TEST(D01_group_changes_every_time_one_by_one)
{
	run_clients("D01_group_changes_every_time_one_by_one", 600 * broker_scale(), 1, 30 * broker_scale());
}
END_TEST

START_TEST(D01_group_changes_every_time_pipelined)
{
	run_clients("D01_group_changes_every_time_pipelined", 1500 * broker_scale(), BATCH_MAX, 100 * broker_scale());
}
END_TEST

START_TEST(D01_group_changes_every_time_large_frames)
{
	run_clients("D01_group_changes_every_time_large_frames", 60 * broker_scale(), 4, 2);
}
END_TEST

/* ---- the same while workers die ------------------------------------------------------------------------------ */

struct killer {
	pthread_t thread;
	uint64_t random;
	int signal;
	volatile bool stop;
	int kills;
};

static void *
run_killer(void *argument)
{
	struct killer *killer = argument;

	while (!killer->stop) {
		pid_t pids[BROKER_WORKERS_MAX];
		int count = broker_workers(&broker, pids, BROKER_WORKERS_MAX);

		if (count > 0 && kill(pids[wire_random(&killer->random) % (unsigned)count], killer->signal) == 0)
			killer->kills++;
		/* Not a wait for anything: how often they die. */
		usleep(250000 + (unsigned)(wire_random(&killer->random) % 200000));
	}
	return NULL;
}

START_TEST(D04_group_changes_while_workers_are_killed)
{
	struct client clients[CLIENTS] = { 0 };
	uint64_t seed = broker_seed("D04_group_changes_while_workers_are_killed");
	struct killer killer = { .random = wire_random(&seed), .signal = SIGKILL };
	struct baseline baseline;
	int cuts = 0;

	broker_start(&broker, &three_workers);
	broker.workers_may_die = true;
	baseline = take_baseline();
	learn_groups();
	for (uint32_t c = 0; c < CLIENTS; c++) {
		clients[c].requests = 2500 * broker_scale();
		clients[c].batch_max = c % 2 == 0 ? 1 : BATCH_MAX;
		clients[c].large_every = 60 * broker_scale();
		clients[c].may_be_cut = true;
		clients[c].unix_socket = c == 3;
		start_client(&clients[c], c, &seed);
	}
	ck_assert_int_eq(pthread_create(&killer.thread, NULL, run_killer, &killer), 0);
	for (int c = 0; c < CLIENTS; c++)
		pthread_join(clients[c].thread, NULL);
	killer.stop = true;
	pthread_join(killer.thread, NULL);
	for (int c = 0; c < CLIENTS; c++) {
		ck_assert_msg(*clients[c].wrong == '\0', "client %d: %s", c, clients[c].wrong);
		cuts += clients[c].cuts;
	}
	printf("D04_group_changes_while_workers_are_killed: %d kills, %d connections cut\n", killer.kills, cuts);
	ck_assert_int_gt(killer.kills, 0);
	for (int32_t group = 0; group < workers; group++)
		ck_assert_int_gt(broker_wait_worker_of(&broker, "h", partition_in(group), 0, 30000), 0);
	check_log(clients, CLIENTS, false);
	check_baseline(&baseline);
	free_clients(clients, CLIENTS);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* ---- the same while workers are replaced ----------------------------------------------------------------------- */

/* A worker that gets SIGTERM asks to be replaced; one that is just starting ends. Neither is to be noticed by anybody. */
START_TEST(D03_group_changes_while_workers_are_replaced)
{
	struct client clients[CLIENTS] = { 0 };
	uint64_t seed = broker_seed("D03_group_changes_while_workers_are_replaced");
	struct killer replacer = { .random = wire_random(&seed), .signal = SIGTERM };
	struct baseline baseline;

	broker_start(&broker, &three_workers);
	broker.workers_may_die = true;
	baseline = take_baseline();
	learn_groups();
	for (uint32_t c = 0; c < CLIENTS; c++) {
		clients[c].requests = 1500 * broker_scale();
		clients[c].batch_max = c % 2 == 0 ? 1 : BATCH_MAX;
		clients[c].large_every = 60 * broker_scale();
		clients[c].unix_socket = c == 3;
		start_client(&clients[c], c, &seed);
	}
	ck_assert_int_eq(pthread_create(&replacer.thread, NULL, run_killer, &replacer), 0);
	join_clients(clients, CLIENTS);
	replacer.stop = true;
	pthread_join(replacer.thread, NULL);
	ck_assert_int_gt(replacer.kills, 0);
	check_log(clients, CLIENTS, true);
	check_baseline(&baseline);
	free_clients(clients, CLIENTS);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* ---- a death for every hundred moves --------------------------------------------------------------------------- */

enum { ANSWERS_PER_KILL = 80 };	/* those of cut connections are moves, too, and never answered */

struct living {
	pid_t pid;
	long since;	/* the lower, the older */
};

/* The one that has lived longest; its place is that of its successor. Pids tell no age: they begin again. */
static pid_t
oldest_worker(struct living *living, const pid_t *pids, int count, long *newest)
{
	pid_t oldest = 0;
	long since = LONG_MAX;

	for (int i = 0; i < count; i++) {
		struct living *place = NULL;

		for (int k = 0; k < WORKERS_MAX; k++)
			if (living[k].pid == pids[i])
				place = &living[k];
		for (int k = 0; k < WORKERS_MAX && place == NULL; k++)
			if (living[k].pid == 0 || kill(living[k].pid, 0) < 0) {
				place = &living[k];
				*place = (struct living){ pids[i], ++*newest };
			}
		if (place != NULL && place->since < since) {
			since = place->since;
			oldest = pids[i];
		}
	}
	return oldest;
}

/* The oldest dies each time, so none dies too often to be restarted at once. */
static void *
run_steady_killer(void *argument)
{
	struct killer *killer = argument;
	struct living living[WORKERS_MAX] = { 0 };
	long newest = 0, next = ANSWERS_PER_KILL;

	while (!killer->stop) {
		pid_t pids[BROKER_WORKERS_MAX], victim;
		int count = atomic_load(&answered) >= next ? broker_workers(&broker, pids, BROKER_WORKERS_MAX) : 0;

		victim = count == workers ? oldest_worker(living, pids, count, &newest) : 0;
		if (victim > 0 && kill(victim, SIGKILL) == 0) {
			killer->kills++;
			next = atomic_load(&answered) + ANSWERS_PER_KILL;
		} else {
			usleep(500);
		}
	}
	return NULL;
}

/* The supervisor's memory, when it has seen a few deaths. */
static long
settled_rss(const struct killer *killer)
{
	while (killer->kills < 5 && atomic_load(&answered) < ANSWERS_PER_KILL * 100)
		usleep(10000);
	return broker_rss_kib(broker.pid);
}

START_TEST(D04_a_kill_for_every_hundred_moves)
{
	static const struct broker_config many = { .workers = WORKERS_MAX, .topics = "h = 12\n" };
	struct client clients[CLIENTS_MAX] = { 0 };
	uint64_t seed = broker_seed("D04_a_kill_for_every_hundred_moves");
	struct killer killer = { .random = wire_random(&seed) };
	struct baseline baseline;
	double moves;
	long rss;
	int cuts = 0;

	workers = WORKERS_MAX;
	partitions = PARTITIONS_MAX;
	broker_start(&broker, &many);
	broker.workers_may_die = true;
	baseline = take_baseline();
	learn_groups();
	for (uint32_t c = 0; c < CLIENTS_MAX; c++) {
		clients[c].requests = 150 * broker_scale();
		clients[c].batch_max = c % 2 == 0 ? 1 : BATCH_MAX;
		clients[c].large_every = 1000;
		clients[c].may_be_cut = true;
		clients[c].unix_socket = c % 4 == 3;
		start_client(&clients[c], c, &seed);
	}
	ck_assert_int_eq(pthread_create(&killer.thread, NULL, run_steady_killer, &killer), 0);
	rss = settled_rss(&killer);
	for (int c = 0; c < CLIENTS_MAX; c++)
		pthread_join(clients[c].thread, NULL);
	killer.stop = true;
	pthread_join(killer.thread, NULL);
	for (int c = 0; c < CLIENTS_MAX; c++) {
		ck_assert_msg(*clients[c].wrong == '\0', "client %d: %s", c, clients[c].wrong);
		cuts += clients[c].cuts;
	}
	check_log(clients, CLIENTS_MAX, false);
	check_baseline(&baseline);
	moves = broker_metric(&broker, "logbroker_connection_handoffs_total", NULL);
	printf("D04_a_kill_for_every_hundred_moves: %.0f moves, %d kills, %d connections cut; the supervisor's memory %ld, then "
	    "%ld KiB\n", moves, killer.kills, cuts, rss, broker_rss_kib(broker.pid));
	ck_assert_int_gt(killer.kills, 0);
	ck_assert(broker_is_asan() || broker_rss_kib(broker.pid) < rss + 1024);
	free_clients(clients, CLIENTS_MAX);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

/* ---- single steps -------------------------------------------------------------------------------------------- */

enum { MANY = 30 };

static bool
has_sockets(pid_t pid, int count, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;

	while (broker_fd_count_of(pid, "socket:") != count) {
		if (wire_now_ms() > until)
			return false;
		usleep(1000);
	}
	return true;
}

/* `count` connections that live in the worker of `group`, besides `others` of this test that do, and nowhere else. */
static void
connect_into(int *fds, int count, int32_t group, int others)
{
	pid_t pid = worker_of_group(group);

	for (int i = 0; i < count; i++) {
		fds[i] = wire_connect_tcp(broker.port);
		ck_assert_int_ge(fds[i], 0);
		ck_assert_int_eq(wire_produce_one(fds[i], "h", partition_in(group), WIRE_WRITTEN, "here", 4, NULL), 0);
	}
	/* And its channel. */
	ck_assert(has_sockets(pid, 1 + others + count, 10000));
}

static void
send_produce(int fd, int32_t id, int32_t group)
{
	struct wire_bytes request = { 0 };

	wire_put_produce_one(&request, id, "h", partition_in(group), WIRE_WRITTEN, &id, sizeof id);
	ck_assert_int_eq(wire_send(fd, request.data, request.length), 0);
	wire_bytes_free(&request);
}

static void
expect_answer(int fd, int32_t id)
{
	int code = wire_expect(fd, id);

	ck_assert_msg(code == 0, "connection %d: %s (%d)", id, code == WIRE_LOST ? "lost" : "no answer", code);
}

static void
close_all(int *fds, int count)
{
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

static void
finish(const struct baseline *baseline)
{
	check_baseline(baseline);
	broker_stop(&broker);
	broker_end(&broker);
}

/* Connections that stand unread in the channel of a worker when it dies are not its own yet: they go to the next one. */
START_TEST(D04_worker_killed_with_connections_in_its_channel)
{
	struct baseline baseline;
	int fds[MANY], witness;
	int64_t before;
	pid_t other, victim;

	broker_start(&broker, &three_workers);
	broker.workers_may_die = true;
	baseline = take_baseline();
	learn_groups();
	witness = wire_connect_tcp(broker.port);
	for (int round = 0; round < 3; round++) {
		victim = worker_of_group(1);
		other = worker_of_group(0);
		ck_assert_int_eq(wire_produce_one(witness, "h", partition_in(0), WIRE_WRITTEN, "here", 4, NULL), 0);
		connect_into(fds, MANY, 0, 1);
		before = wire_high_watermark(witness, "h", partition_in(1));
		broker_freeze(victim);
		for (int i = 0; i < MANY; i++)
			send_produce(fds[i], 1000 + i, 1);
		/* All have left the first worker, and the supervisor has let go of them, too. */
		ck_assert(procs_wait_fd_count(other, baseline.worker + 1, 30000));
		ck_assert(procs_wait_fd_count(broker.pid, baseline.supervisor, 30000));
		ck_assert(wire_high_watermark(witness, "h", partition_in(1)) == before || killed_as_hung());
		kill(victim, SIGKILL);
		for (int i = 0; i < MANY; i++)
			expect_answer(fds[i], 1000 + i);
		ck_assert_int_eq(wire_high_watermark(witness, "h", partition_in(1)), before + MANY);
		close_all(fds, MANY);
		ck_assert_int_gt(broker_wait_worker_of(&broker, "h", partition_in(1), victim, 30000), 0);
		ck_assert_int_eq(wire_produce_one(witness, "h", partition_in(1), WIRE_FORCED, "back", 4, NULL), 0);
	}
	close(witness);
	finish(&baseline);
}
END_TEST

/* What a worker gave back with its last breath lies in the channel behind its death, and nothing of it is lost. */
START_TEST(D04_worker_killed_behind_what_it_gave_back)
{
	struct baseline baseline;
	struct wire_bytes pipeline = { 0 };
	int fds[MANY];
	pid_t victim;

	broker_start(&broker, &three_workers);
	broker.workers_may_die = true;
	baseline = take_baseline();
	learn_groups();
	for (int round = 0; round < 3; round++) {
		victim = worker_of_group(1);
		connect_into(fds, MANY, 1, 0);
		broker_freeze(broker.pid);
		for (int i = 0; i < MANY - 1; i++)
			send_produce(fds[i], 1000 + i, 0);
		/* One with more behind it than fits a message. */
		pipeline.length = 0;
		for (int i = 0; i < 1000; i++)
			wire_put_produce_one(&pipeline, i, "h", partition_in(2 - i % 3), WIRE_WRITTEN, &i, sizeof i);
		ck_assert_int_eq(wire_send(fds[MANY - 1], pipeline.data, pipeline.length), 0);
		ck_assert_msg(procs_wait_fd_count(victim, baseline.worker, 30000), "it does not give them back");
		kill(victim, SIGKILL);
		ck_assert(procs_wait_dead(victim, 30000));
		kill(broker.pid, SIGCONT);
		for (int i = 0; i < MANY - 1; i++)
			expect_answer(fds[i], 1000 + i);
		for (int i = 0; i < 1000; i++) {
			int code = wire_expect(fds[MANY - 1], i);

			ck_assert_msg(code == 0, "pipeline: answer %d: %d", i, code);
		}
		close_all(fds, MANY);
		ck_assert_int_gt(broker_wait_worker_of(&broker, "h", partition_in(1), victim, 30000), 0);
	}
	wire_bytes_free(&pipeline);
	finish(&baseline);
}
END_TEST

/* A burst across all groups that one read takes whole: far more than a message carries is not executed at each move. */
START_TEST(D01_moves_with_more_than_16_kib_unexecuted)
{
	struct baseline baseline;
	struct wire_bytes burst = { 0 };
	struct procs_tracer tracer;
	bool traced = procs_may_trace();
	int64_t next[PARTITIONS] = { 0 };
	uint8_t payload[1000];
	enum { COUNT = 900 };
	int fd;
	pid_t pid;

	broker_start(&broker, &three_workers);
	baseline = take_baseline();
	learn_groups();
	fd = wire_connect_unix(broker.unix_path);
	ck_assert_int_eq(wire_produce_one(fd, "h", partition_in(0), WIRE_WRITTEN, "here", 4, NULL), 0);
	next[partition_in(0)] = 1;
	pid = worker_of_group(0);
	memset(payload, 'x', sizeof payload);
	for (int i = 0; i < COUNT; i++)
		wire_put_produce_one(&burst, i, "h", partition_in((i + 1) % WORKERS), i % 50 == 0 ? WIRE_FORCED : WIRE_WRITTEN,
		    payload, 1 + (size_t)i % sizeof payload);
	if (traced)
		procs_trace(&tracer, &broker, pid, "-e trace=memfd_create");
	for (int round = 0; round < 3; round++) {
		struct wire_bytes in = { 0 };
		struct wire_answer answer;
		size_t position = 0;

		ck_assert_int_eq(wire_exchange(fd, burst.data, burst.length, COUNT, &in, WIRE_DEADLINE_MS), COUNT);
		for (int i = 0; i < COUNT; i++) {
			int32_t partition = partition_in((i + 1) % WORKERS);

			ck_assert(wire_next_answer(&in, &position, &answer));
			ck_assert_int_eq(answer.id, i);
			ck_assert_int_eq(answer.error, 0);
			ck_assert_int_eq(wire_get_i64(answer.body), next[partition]++);
		}
		ck_assert_uint_eq(position, in.length);
		wire_bytes_free(&in);
	}
	if (traced) {
		procs_untrace(&tracer);
		ck_assert_msg(procs_count_lines(tracer.path, "memfd_create", NULL) > 0, "no memfd was needed");
	} else {
		procs_skipped("D01_moves_with_more_than_16_kib_unexecuted", "no strace that may attach here: whether by memfd was not seen");
	}
	close(fd);
	wire_bytes_free(&burst);
	finish(&baseline);
}
END_TEST

/* Half a large frame travels, more than once, and its client goes on where it stopped. */
START_TEST(D01_half_frames_travel)
{
	struct baseline baseline;
	struct wire_bytes frame = { 0 };
	size_t size = 3000000;
	uint8_t *payload = malloc(size);
	uint64_t random = broker_seed("D01_half_frames_travel");
	int64_t next = 0;
	int fds[2];

	broker_start(&broker, &three_workers);
	baseline = take_baseline();
	learn_groups();
	fds[0] = wire_connect_tcp(broker.port);
	fds[1] = wire_connect_unix(broker.unix_path);
	for (int round = 0; round < 12 * broker_scale(); round++) {
		int fd = fds[round % 2];
		size_t length = round % 3 == 0 ? size : 1 + wire_random(&random) % 400000;
		size_t cut;
		int64_t base;

		fill_payload(payload, 0, round, size);
		/* The connection lives elsewhere when the first half comes. */
		ck_assert_int_eq(wire_produce_one(fd, "h", partition_in(1 + round % 2), WIRE_WRITTEN, "x", 1, NULL), 0);
		frame.length = 0;
		wire_put_produce_one(&frame, round, "h", partition_in(0), WIRE_FORCED, payload, length);
		cut = wire_random(&random) % frame.length;
		ck_assert_int_eq(wire_send(fd, frame.data, cut), 0);
		ck_assert_msg(procs_wait_read(fd, 30000), "%zu of %zu bytes of a frame: they are not read", cut, frame.length);
		ck_assert_int_eq(wire_send(fd, frame.data + cut, frame.length - cut), 0);
		ck_assert_int_eq(wire_expect(fd, round), 0);
		/* It stands there, byte for byte. */
		base = wire_high_watermark(fd, "h", partition_in(0)) - 1;
		ck_assert_int_eq(base, next++);
		{
			struct wire_fetched fetched;
			struct wire_record record;
			size_t position = 0;

			ck_assert_int_eq(wire_fetch(fd, "h", partition_in(0), base, 4000000, 0, 0, &fetched), 0);
			ck_assert(wire_next_record(fetched.payload, fetched.length, &position, true, &record, NULL));
			ck_assert_uint_eq(record.length, length);
			ck_assert_mem_eq(record.payload, payload, length);
			wire_fetched_free(&fetched);
		}
	}
	close_all(fds, 2);
	free(payload);
	wire_bytes_free(&frame);
	finish(&baseline);
}
END_TEST

/* ---- descriptors --------------------------------------------------------------------------------------------- */

/*
 * The kernel lets a user without privileges have as many descriptors in flight as its limit says: a worker stands still
 * while connections pile up in its channel, and `more` than the limit allows want to go there.
 */
static int
pile_up(int **fds, int *resident, struct baseline *baseline, int limit_above, int more, const char *test)
{
	struct procs_tracer tracer;
	bool traced = procs_may_trace();
	int64_t before, until = wire_now_ms() + 20000;
	int limit = baseline->supervisor + limit_above;
	int count = limit + more;
	pid_t victim = worker_of_group(1);

	*fds = calloc((size_t)count, sizeof **fds);
	connect_into(*fds, count, 0, 0);
	connect_into(resident, 1, 0, count);
	before = wire_high_watermark(*resident, "h", partition_in(1));
	if (traced)
		procs_trace(&tracer, &broker, broker.pid, "-e trace=sendmsg");
	else
		procs_skipped(test, "no strace that may attach here: ETOOMANYREFS was not seen");
	broker_freeze(victim);
	procs_set_fd_limit(broker.pid, limit);
	for (int i = 0; i < count; i++)
		send_produce((*fds)[i], i, 1);
	ck_assert(procs_wait_fd_count(worker_of_group(0), baseline->worker + 1, 30000));
	while (traced && procs_count_lines(tracer.path, "ETOOMANYREFS", NULL) == 0) {
		ck_assert_msg(wire_now_ms() < until, "ETOOMANYREFS does not come");
		usleep(5000);
	}
	if (traced)
		procs_untrace(&tracer);
	/* Meanwhile nobody else notices. */
	for (int i = 0; i < 20; i++) {
		ck_assert_int_eq(wire_produce_one(*resident, "h", partition_in(0), WIRE_FORCED, "here", 4, NULL), 0);
		ck_assert(wire_high_watermark(*resident, "h", partition_in(1)) == before || killed_as_hung());
	}
	return count;
}

static void
all_are_answered(int *fds, int count, int resident)
{
	int64_t before = wire_high_watermark(resident, "h", partition_in(1));

	kill(worker_of_group(1), SIGCONT);
	for (int i = 0; i < count; i++)
		expect_answer(fds[i], i);
	ck_assert(wire_high_watermark(resident, "h", partition_in(1)) == before + count || killed_as_hung());
}

START_TEST(D09_too_many_descriptors_in_flight)
{
	struct baseline baseline;
	const char *why;
	int *fds, count, resident;

	if (!procs_start_unprivileged(&broker, &three_workers, &why)) {
		procs_skipped("D09_too_many_descriptors_in_flight", why);
		return;
	}
	baseline = take_baseline();
	learn_groups();
	count = pile_up(&fds, &resident, &baseline, 20, 12, "D09_too_many_descriptors_in_flight");
	all_are_answered(fds, count, resident);
	procs_set_fd_limit(broker.pid, 0);
	close_all(fds, count);
	close(resident);
	free(fds);
	finish(&baseline);
}
END_TEST

/* So many that the supervisor's own table fills as well: nothing moves until somebody raises the limit, and then all. */
START_TEST(D09_too_many_descriptors_in_flight_and_a_full_table)
{
	struct baseline baseline;
	const char *why;
	int *fds, count, resident;

	if (!procs_start_unprivileged(&broker, &three_workers, &why)) {
		procs_skipped("D09_too_many_descriptors_in_flight_and_a_full_table", why);
		return;
	}
	baseline = take_baseline();
	learn_groups();
	count = pile_up(&fds, &resident, &baseline, 4, 80, "D09_too_many_descriptors_in_flight_and_a_full_table");
	procs_set_fd_limit(broker.pid, 0);
	all_are_answered(fds, count, resident);
	close_all(fds, count);
	close(resident);
	free(fds);
	finish(&baseline);
}
END_TEST

START_TEST(D09_table_of_a_worker_is_full)
{
	struct baseline baseline;
	const char *why;
	int fds[MANY], residents[4];
	pid_t pid;

	if (!procs_start_unprivileged(&broker, &three_workers, &why)) {
		procs_skipped("D09_table_of_a_worker_is_full", why);
		return;
	}
	baseline = take_baseline();
	learn_groups();
	pid = worker_of_group(1);
	connect_into(residents, 4, 1, 0);
	connect_into(fds, MANY, 0, 0);
	procs_set_fd_limit(pid, procs_lowest_free_fd(pid));
	for (int i = 0; i < MANY; i++)
		send_produce(fds[i], i, 1);
	ck_assert(procs_wait_fd_count(worker_of_group(0), baseline.worker, 30000));
	/* Those that live there are served, and nobody can come in. */
	for (int i = 0; i < 200; i++)
		ck_assert_int_eq(wire_produce_one(residents[i % 4], "h", partition_in(1), i % 10 == 0 ? WIRE_FORCED : WIRE_WRITTEN,
		    "here", 4, NULL), 0);
	for (int i = 0; i < MANY; i++)
		ck_assert(wire_silent(fds[i], 0));
	procs_set_fd_limit(pid, 0);
	for (int i = 0; i < MANY; i++)
		expect_answer(fds[i], i);
	close_all(fds, MANY);
	close_all(residents, 4);
	finish(&baseline);
}
END_TEST

/* No free descriptor in the supervisor: nobody can be accepted, and those who are there move all the same. */
START_TEST(D09_moves_go_on_with_a_full_table)
{
	struct client clients[CLIENTS] = { 0 };
	uint64_t seed = broker_seed("D09_moves_go_on_with_a_full_table");
	struct baseline baseline;
	const char *why;
	int limit, newcomer;

	if (!procs_start_unprivileged(&broker, &three_workers, &why)) {
		procs_skipped("D09_moves_go_on_with_a_full_table", why);
		return;
	}
	baseline = take_baseline();
	learn_groups();
	wait_supervisor_at_rest();
	limit = procs_lowest_free_fd(broker.pid);
	for (uint32_t c = 0; c < CLIENTS; c++) {
		clients[c].requests = 400 * broker_scale();
		clients[c].batch_max = c % 2 == 0 ? 1 : BATCH_MAX;
		clients[c].large_every = 100;
		start_client(&clients[c], c, &seed);
	}
	/* All are accepted: each has been answered. */
	ck_assert(broker_wait_metric_least(&broker, "logbroker_connections", NULL, CLIENTS, 30000));
	procs_set_fd_limit(broker.pid, limit);
	newcomer = wire_connect_tcp(broker.port);
	send_produce(newcomer, 7, 0);
	join_clients(clients, CLIENTS);
	ck_assert_msg(wire_silent(newcomer, 0), "it was accepted in spite of the limit");
	procs_set_fd_limit(broker.pid, 0);
	ck_assert_int_eq(wire_expect(newcomer, 7), 0);
	close(newcomer);
	check_baseline(&baseline);
	free_clients(clients, CLIENTS);
	broker_stop(&broker);
	broker_end(&broker);
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("handover");
	TCase *tc = tcase_create("handover");

	tcase_set_timeout(tc, 120 * broker_scale());
	tcase_add_test(tc, D01_group_changes_every_time_one_by_one);
	tcase_add_test(tc, D01_group_changes_every_time_pipelined);
	tcase_add_test(tc, D01_group_changes_every_time_large_frames);
	tcase_add_test(tc, D01_moves_with_more_than_16_kib_unexecuted);
	tcase_add_test(tc, D01_half_frames_travel);
	tcase_add_test(tc, D03_group_changes_while_workers_are_replaced);
	tcase_add_test(tc, D04_group_changes_while_workers_are_killed);
	tcase_add_test(tc, D04_worker_killed_with_connections_in_its_channel);
	tcase_add_test(tc, D04_worker_killed_behind_what_it_gave_back);
	tcase_add_test(tc, D09_too_many_descriptors_in_flight);
	tcase_add_test(tc, D09_too_many_descriptors_in_flight_and_a_full_table);
	tcase_add_test(tc, D09_table_of_a_worker_is_full);
	tcase_add_test(tc, D09_moves_go_on_with_a_full_table);
	suite_add_tcase(s, tc);
	tc = tcase_create("mapped");
	tcase_set_timeout(tc, 120 * broker_scale());
	tcase_add_checked_fixture(tc, broker_use_mapped, NULL);
	tcase_add_test(tc, D03_group_changes_while_workers_are_replaced);
	suite_add_tcase(s, tc);
	tc = tcase_create("kills");
	tcase_set_timeout(tc, 120 * broker_scale());
	tcase_add_test(tc, D04_a_kill_for_every_hundred_moves);
	suite_add_tcase(s, tc);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
