/* See powercut_workloads.h. */
#include "tests/powercut_workloads.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/procs.h"
#include "tests/wire.h"

enum { PRODUCERS_MAX = 8, KIB = 1024, BATCH_MAX = 40, LARGE_BATCH = 100, LARGEST_BATCH = 200 };

struct workload {
	const char *name;
	void (*run)(struct recording *recording);
	int64_t segment_bytes;
	bool durable;
	const char *flush_interval;	/* off: nothing is forced by the time that passes (powercut_preload.c) */
	const char *log;		/* further lines of broker.ini */
};

/* ---- producers ---- */

struct producers {
	struct recording *recording;
	int fds[PRODUCERS_MAX];
	int count;
	int unanswered[PRODUCERS_MAX];
	int refused;		/* answers of STORAGE_FAILURE */
};

static void
connect_producers(struct recording *recording, struct producers *producers, int count)
{
	*producers = (struct producers){ .recording = recording, .count = count };
	for (int i = 0; i < count; i++) {
		producers->fds[i] = wire_connect_tcp(recording->broker.port);
		ck_assert_int_ge(producers->fds[i], 0);
	}
}

static void
disconnect_producers(struct producers *producers)
{
	for (int i = 0; i < producers->count; i++)
		close(producers->fds[i]);
}

static void
produce(struct producers *producers, int who, int ack, int count)
{
	static uint8_t payloads[LARGEST_BATCH][LEDGER_PAYLOAD_MAX];
	struct recording *recording = producers->recording;
	struct wire_record records[LARGEST_BATCH];
	struct wire_bytes request = { 0 };
	int32_t id = recording->request_count++;

	ck_assert_int_lt(id, WORKLOAD_REQUESTS_MAX);
	recording->requests[id] = (struct ledger_request){ ack, count };
	for (int i = 0; i < count; i++) {
		ledger_payload(id, i, payloads[i], &records[i].length);
		records[i].payload = payloads[i];
	}
	wire_put_produce(&request, id, "t", 0, ack, records, (size_t)count);
	ck_assert_int_eq(wire_send(producers->fds[who], request.data, request.length), 0);
	wire_bytes_free(&request);
	producers->unanswered[who] += ack != WIRE_NONE;
}

static void
note_told(struct recording *recording, const struct wire_answer *answer)
{
	const struct ledger_request *request = &recording->requests[answer->id];
	int64_t end = wire_get_i64(answer->body) + request->count;

	if ((request->ack == WIRE_FORCED || recording->settings.durable_only) && end > recording->told_end)
		recording->told_end = end;
}

/* All answers that are owed to one of them. */
static void
await_answers_of(struct producers *producers, int who)
{
	for (; producers->unanswered[who] > 0; producers->unanswered[who]--) {
		struct wire_answer answer;

		ck_assert_int_eq(wire_read_answer(producers->fds[who], &answer, WIRE_DEADLINE_MS), 0);
		ck_assert(answer.error == WIRE_OK || answer.error == WIRE_STORAGE_FAILURE);
		producers->refused += answer.error != WIRE_OK;
		if (answer.error == WIRE_OK)
			note_told(producers->recording, &answer);
		wire_answer_free(&answer);
	}
}

static void
await_answers(struct producers *producers)
{
	for (int i = 0; i < producers->count; i++)
		await_answers_of(producers, i);
}

static int
chance(struct recording *recording, int below)
{
	return (int)(wire_random(&recording->seed) % (uint64_t)below);
}

/* Each of the producers, so many times, with so many requests at once. */
static void
produce_rounds(struct producers *producers, int rounds, int depth, int ack, int batch_max)
{
	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < producers->count * depth; i++)
			produce(producers, i % producers->count, ack, 1 + chance(producers->recording, batch_max));
		await_answers(producers);
	}
	ck_assert_int_eq(producers->refused, 0);
}

/* ---- workloads ---- */

static void
run_simple(struct recording *recording, int count, int rounds, int depth, int ack, int batch_max)
{
	struct producers producers;

	connect_producers(recording, &producers, count);
	produce_rounds(&producers, rounds, depth, ack, batch_max);
	disconnect_producers(&producers);
}

static void
run_first_start(struct recording *recording)
{
	run_simple(recording, 1, 2, 1, WIRE_FORCED, 1);
}

static void
run_forced(struct recording *recording)
{
	run_simple(recording, 1, 40, 1, WIRE_FORCED, 6);
}

static void
run_written(struct recording *recording)
{
	run_simple(recording, 2, 25, 1, WIRE_WRITTEN, 6);
}

/* Barriers under which others write: each goes on as soon as it has its own answer. */
static void
run_shared(struct recording *recording)
{
	struct producers producers;

	connect_producers(recording, &producers, PRODUCERS_MAX);
	for (int i = 0; i < 12 * PRODUCERS_MAX; i++) {
		await_answers_of(&producers, i % PRODUCERS_MAX);
		produce(&producers, i % PRODUCERS_MAX, WIRE_FORCED, 1 + chance(recording, 3));
	}
	await_answers(&producers);
	disconnect_producers(&producers);
}

/* WRITTEN is answered like FORCED; and what nobody is told of is read when it has been forced. */
static void
run_durable(struct recording *recording)
{
	struct producers producers;

	connect_producers(recording, &producers, 4);
	for (int round = 0; round < 6; round++) {
		produce_rounds(&producers, 2, 1, WIRE_WRITTEN, 4);
		produce(&producers, round % producers.count, WIRE_NONE, 1 + chance(recording, 4));
	}
	disconnect_producers(&producers);
}

/* Batches that have two or three segments of their own, and small ones. */
static void
run_large(struct recording *recording)
{
	struct producers producers;

	connect_producers(recording, &producers, 2);
	for (int round = 0; round < 5; round++) {
		produce(&producers, 0, WIRE_FORCED, LARGE_BATCH - chance(recording, LARGE_BATCH / 2));
		produce(&producers, 1, WIRE_FORCED, 1 + chance(recording, BATCH_MAX));
		await_answers(&producers);
	}
	disconnect_producers(&producers);
}

static void
run_mixed(struct recording *recording)
{
	static const int acks[] = { WIRE_NONE, WIRE_WRITTEN, WIRE_WRITTEN, WIRE_FORCED };
	struct producers producers;

	connect_producers(recording, &producers, 3);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 4; i++)
			produce(&producers, chance(recording, 3), acks[chance(recording, 4)],
			    1 + chance(recording, chance(recording, 8) == 0 ? BATCH_MAX : 5));
		await_answers(&producers);
	}
	disconnect_producers(&producers);
}

static bool
has_retired(void *context)
{
	struct recording *recording = context;
	int64_t bases[64];

	return broker_segments(&recording->broker, "t", 0, bases, 64) > 0 && bases[0] > 0;
}

static void
run_retention(struct recording *recording)
{
	struct producers producers;

	connect_producers(recording, &producers, 2);
	/* Large ones, so that several segments are to go at once. */
	for (int round = 0; round < 40 && (round < 4 || !has_retired(recording)); round++)
		produce_rounds(&producers, 3, 1, round % 2 == 0 ? WIRE_FORCED : WIRE_WRITTEN, BATCH_MAX);
	ck_assert(broker_wait(has_retired, recording, WIRE_DEADLINE_MS));
	produce_rounds(&producers, 4, 1, WIRE_FORCED, 5);
	disconnect_producers(&producers);
}

/* ---- a disk that is full ---- */

static void
give_room(struct recording *recording, int64_t bytes)
{
	char path[BROKER_PATH_BYTES + 8];
	FILE *file;

	snprintf(path, sizeof(path), "%s.new", recording->room_path);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fprintf(file, "%lld", (long long)bytes);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(rename(path, recording->room_path), 0);
}

/* In the place of what was refused, and cut off, comes less each time, and nothing forces it. */
static void
refuse_and_write_less(struct producers *producers)
{
	for (int i = 0; i < 16; i++) {
		produce(producers, 0, WIRE_WRITTEN, 1);
		await_answers(producers);
		produce(producers, 1, WIRE_WRITTEN, BATCH_MAX);
		await_answers(producers);
	}
}

/* Batches of all sizes, until there is room for none of them for a while; then there is some again. */
static void
run_full(struct recording *recording)
{
	struct producers producers;

	/* What is refused fits behind what comes then. */
	recording->request_count = LEDGER_USUAL_FROM;
	connect_producers(recording, &producers, 2);
	for (int round = 0; round < 3; round++) {
		int refused;

		give_room(recording, (round + 1) * 20 * KIB);
		/* Less than what was refused last: nothing of that may follow. */
		produce(&producers, 0, WIRE_WRITTEN, 1);
		await_answers(&producers);
		/* Segments of its own, of which not all find room; then fewer of the same names. */
		produce(&producers, 1, WIRE_FORCED, LARGEST_BATCH);
		await_answers(&producers);
		produce(&producers, 1, WIRE_FORCED, LARGEST_BATCH * 2 / 5);
		await_answers(&producers);
		refused = producers.refused;
		for (int i = 0; producers.refused < refused + 6 && i < 100; i++) {
			produce(&producers, i % 2, i % 3 == 0 ? WIRE_WRITTEN : WIRE_FORCED,
			    1 + chance(recording, i % 7 == 0 ? BATCH_MAX : 5));
			if (i % 2 == 0)
				await_answers(&producers);
		}
		await_answers(&producers);
		ck_assert_int_gt(producers.refused, refused);
		give_room(recording, (round + 1) * 20 * KIB + 4 * KIB);
		refuse_and_write_less(&producers);
	}
	unlink(recording->room_path);
	produce(&producers, 0, WIRE_FORCED, 3);
	await_answers(&producers);
	disconnect_producers(&producers);
}

/* ---- restarts ---- */

static int64_t
recorded_bytes(const struct recording *recording)
{
	struct stat st;

	ck_assert_int_eq(stat(recording->log_path, &st), 0);
	return st.st_size;
}

/* Records that nobody waits for, and no barrier comes for. */
static void
leave_unforced(struct recording *recording)
{
	struct producers producers;

	connect_producers(recording, &producers, 1);
	produce(&producers, 0, WIRE_NONE, BATCH_MAX / 2);
	disconnect_producers(&producers);
}

/*
 * All of the broker, once nothing is recorded any more: a thread that dies between a call and its event would leave what
 * nobody has told. How it dies in the middle of anything is not in question here: the states of a power cut are more.
 */
static void
kill_broker(struct recording *recording)
{
	static const struct timespec moment = { .tv_nsec = 5000000 };
	int64_t before = -1;

	leave_unforced(recording);
	for (int still = 0; still < 20; still++) {
		int64_t now = recorded_bytes(recording);

		if (now != before)
			still = 0;
		before = now;
		nanosleep(&moment, NULL);
	}
	broker_kill(&recording->broker);
}

/* Killed and stopped in order, with records behind the last barrier and without. */
static void
run_restart(struct recording *recording)
{
	static const struct { int ack; bool killed; } lives[] = { { WIRE_FORCED, true }, { WIRE_WRITTEN, false },
		{ WIRE_FORCED, false }, { WIRE_WRITTEN, true }, { WIRE_WRITTEN, false }, { WIRE_WRITTEN, false },
		{ WIRE_FORCED, false } };

	for (size_t life = 0; life < sizeof(lives) / sizeof(lives[0]); life++) {
		if (life > 0 && lives[life - 1].killed)
			kill_broker(recording);
		else if (life > 0)
			broker_stop(&recording->broker);
		if (life > 0)
			broker_restart(&recording->broker, NULL);
		run_simple(recording, 2, 3, 1, lives[life].ack, 5);
	}
}

/* Somebody writes all the while until another worker has the log. Returns that one. */
static pid_t
replace_worker(struct producers *producers, pid_t worker)
{
	struct broker *broker = &producers->recording->broker;

	ck_assert_int_eq(kill(worker, SIGTERM), 0);
	for (int i = 0; i < 100 && broker_worker_of(broker, "t", 0) == worker; i++) {
		produce(producers, 0, WIRE_FORCED, 1);
		produce(producers, 1, WIRE_WRITTEN, 4 + i % 12);
		await_answers(producers);
	}
	worker = broker_wait_worker_of(broker, "t", 0, worker, WIRE_DEADLINE_MS);
	ck_assert_int_ne(worker, 0);
	return worker;
}

/* The worker is replaced by another one; what is not forced is handed over. */
static void
run_replace(struct recording *recording)
{
	static const int acks[] = { WIRE_WRITTEN, WIRE_FORCED, WIRE_WRITTEN, WIRE_NONE };
	struct producers producers;
	pid_t worker = broker_worker_of(&recording->broker, "t", 0);

	recording->broker.workers_may_die = true;
	connect_producers(recording, &producers, 2);
	for (int round = 0; round < 4; round++) {
		produce_rounds(&producers, 3, 1, acks[round], 5);
		worker = replace_worker(&producers, worker);
	}
	produce_rounds(&producers, 2, 1, WIRE_FORCED, 5);
	disconnect_producers(&producers);
}

/* ---- a force that fails ---- */

/* Otherwise the broker cannot ask the disk what it has, and is not asked to. */
static bool
may_be_read_past_the_cache(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	void *page = aligned_alloc(4096, 4096);
	bool may = fd != -1 && page != NULL && pread(fd, page, 4096, 0) != -1;

	free(page);
	close(fd);
	return may;
}

static void
fail_next_force(const struct recording *recording)
{
	FILE *file = fopen(recording->fail_path, "w");

	ck_assert_ptr_nonnull(file);
	fclose(file);
}

/* Until the log has been read from the disk again, which the broker tries from a second on. */
static void
await_recovery(struct producers *producers)
{
	static const struct timespec moment = { .tv_nsec = 20000000 };
	int refused;

	for (int i = 0; i < WIRE_DEADLINE_MS / 20; i++) {
		refused = producers->refused;
		produce(producers, 0, WIRE_FORCED, 1);
		await_answers(producers);
		if (producers->refused == refused)
			return;
		nanosleep(&moment, NULL);
	}
	ck_abort_msg("a log does not come back after a failed force");
}

static void
run_failing(struct recording *recording)
{
	struct producers producers;

	connect_producers(recording, &producers, 2);
	produce_rounds(&producers, 3, 1, WIRE_FORCED, 5);
	produce_rounds(&producers, 3, 1, WIRE_WRITTEN, BATCH_MAX / 2);
	if (may_be_read_past_the_cache(recording->log_path)) {
		fail_next_force(recording);
		produce(&producers, 0, WIRE_WRITTEN, BATCH_MAX / 2);
		produce(&producers, 1, WIRE_FORCED, 3);
		await_answers(&producers);
		ck_assert_int_ne(access(recording->fail_path, F_OK), 0);
		await_recovery(&producers);
		producers.refused = 0;
	} else {
		procs_skipped("K_power_cut: failing: the force that fails", "no reads past the page cache below TMPDIR");
	}
	produce_rounds(&producers, 4, 1, WIRE_WRITTEN, 5);
	produce_rounds(&producers, 4, 1, WIRE_FORCED, 5);
	disconnect_producers(&producers);
}

static const struct workload workloads[WORKLOAD_COUNT] = {
	{ "first start", run_first_start, 4 * KIB, false, "off", "" },
	{ "forced", run_forced, 4 * KIB, false, "off", "" },
	{ "written", run_written, 16 * KIB, false, "10ms", "" },
	{ "shared", run_shared, 8 * KIB, false, "off", "" },
	{ "durable", run_durable, 4 * KIB, true, "off", "visibility = durable\n" },
	{ "large", run_large, 4 * KIB, false, "off", "" },
	{ "mixed", run_mixed, 8 * KIB, false, "off", "flush_records = 20\n" },
	{ "retention", run_retention, 4 * KIB, false, "off", "retention_bytes = 12KiB\nretention_check_interval = 20ms\n" },
	{ "full", run_full, 8 * KIB, false, "off", "" },
	{ "restart", run_restart, 64 * KIB, false, "off", "" },
	{ "replace", run_replace, 16 * KIB, false, "off", "" },
	{ "failing", run_failing, 64 * KIB, false, "off", "" },
};

const char *
workload_name(int number)
{
	return workloads[number].name;
}

/* ---- recording ---- */

/* What the broker's processes are told, for as long as they may be started. */
static char environment[7][BROKER_PATH_BYTES + 32];
static const char *environment_list[8];

static void
set_environment(int at, const char *name, const char *value)
{
	snprintf(environment[at], sizeof(environment[at]), "%s=%s", name, value);
	environment_list[at] = environment[at];
}

static void
prepare(struct recording *recording, const struct workload *workload, const struct broker_config *config)
{
	char preload[BROKER_PATH_BYTES];
	struct broker *broker = &recording->broker;
	int fd;

	broker_prepare(broker, config);
	snprintf(recording->root, sizeof(recording->root), "%.400s/disk", broker->directory);
	snprintf(recording->log_path, sizeof(recording->log_path), "%.400s/events", broker->directory);
	snprintf(recording->room_path, sizeof(recording->room_path), "%.400s/room", broker->directory);
	snprintf(recording->fail_path, sizeof(recording->fail_path), "%.400s/fail", broker->directory);
	snprintf(broker->data_dir, sizeof(broker->data_dir), "%.400s/data", recording->root);
	ck_assert_int_eq(mkdir(recording->root, 0755), 0);
	fd = open(recording->log_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_ne(fd, -1);
	close(fd);
	broker_build_path("tests/powercut.so", preload, sizeof(preload));
	set_environment(0, "LD_PRELOAD", preload);
	set_environment(1, "POWERCUT_ROOT", recording->root);
	set_environment(2, "POWERCUT_LOG", recording->log_path);
	set_environment(3, "POWERCUT_ROOM", recording->room_path);
	set_environment(4, "POWERCUT_FAIL", recording->fail_path);
	set_environment(5, "POWERCUT_FORCE_US", "1000");
	/* By which each process has a time of its own: not where connections go from one to another. */
	set_environment(6, "POWERCUT_PACE", workload->run == run_replace ? "0" : "20");
}

void
workload_record(int number, bool mapped, enum record_format format, uint64_t seed, struct recording *recording)
{
	const struct workload *workload = &workloads[number];
	char log[512];
	struct broker_config config = { .topics = "t = 1\n", .workers = 1, .log = log, .environment = environment_list };

	memset(recording, 0, sizeof(*recording));
	recording->seed = seed;
	recording->settings = (struct partition_settings){ .record_format = format, .segment_bytes = workload->segment_bytes,
		.index_interval_bytes = 1024, .mapped = mapped, .durable_only = workload->durable };
	snprintf(log, sizeof(log),
	    "write_mode = %s\nrecord_format = %s\nsegment_bytes = %lld\nindex_interval_bytes = 1024\nflush_interval = %s\n%s",
	    mapped ? "mapped" : "file", record_format_name(format), (long long)workload->segment_bytes, workload->flush_interval,
	    workload->log);
	prepare(recording, workload, &config);
	broker_restart(&recording->broker, NULL);
	workload->run(recording);
	broker_stop(&recording->broker);
	broker_end(&recording->broker);
}
