/*
 * A first load generator: what the broker's main paths reach on this machine, each beside a bare loop of the same
 * system calls in the same run. Closed loop where it does not say otherwise; a process of its own; talks plain sockets, not
 * our codec.
 *
 *	bench produce|library|fetch|subscribe|forced|replay HOST:PORT TOPIC [SECONDS [DIRECTORY]]
 *	bench restart HOST:PORT TOPIC SECONDS COMMAND
 *
 * TOPIC has two partitions in one group ("[topic TOPIC]" with "group = 0") and record_format = crc32c; the second stays
 * empty, until replay writes to it.
 *
 *	produce   P1: batches of 100 records of 100 bytes, WRITTEN, 64 requests in flight; with 0 and 1,000 held fetches;
 *	          against pwrite of the same bytes to a file in DIRECTORY (default: the working directory)
 *	library   P1 by liblogbroker's producer beside plain sockets: to one partition, without callbacks and with one a record,
 *	          and round robin over all partitions that TOPIC has; client CPU per record (here, not the broker's)
 *	fetch     P3: 1 MiB a request, two in flight, of what produce has left; against sendfile of a file, in pairs
 *	subscribe P3 by liblogbroker's subscription: what produce has left in partition 0 from front to back, again and again,
 *	          1 MiB a request; beside a loop on a plain socket that looks at lengths only, and one that checks sums, too
 *	forced    P4: one record of 128 bytes a request: one synchronous producer, 64 producers; against a round trip
 *	          followed by pwrite and fdatasync in DIRECTORY, which must be on the broker's file system
 *	replay    P7: a producer of 1,000 records a second (open loop) and a reader that has caught up, in partition 1, while
 *	          others replay partition 0 (what produce has left there, in segments of which there should be several), 1 MiB
 *	          a request; whose files, all in DIRECTORY, are evicted ahead of them again and again, or are not
 *	restart   P9: 1,000 connections with 10 requests a second each (open loop, 1 x 100 B, WRITTEN) to one worker; the longest
 *	          that any of them waited in a second, in turn without a restart and with one, which COMMAND
 *	          ("logbroker restart-worker 0") makes. What it is without is the machine's and the load's share
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/lib/logbroker.h"

enum {
	BATCH_RECORDS = 100,
	RECORD_BYTES = 100,
	IN_FLIGHT = 64,
	FETCH_BYTES = 1024 * 1024,
	PRODUCERS = 64,
	HELD = 1000,
	HOT_PER_S = 1000,
	HOT_SAMPLES_MAX = 600 * HOT_PER_S,
	REPLAYERS = 4,
	WAITERS = 1000,
	WAITERS_PER_S = 10 * WAITERS,	/* requests of all of them */
	ROUNDS_MAX = 1000,
};

static struct sockaddr_in address;
static const char *topic;
static double seconds = 5;

static void
die(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static uint8_t *
put(uint8_t *p, uint64_t value, int bytes)
{
	while (bytes-- > 0)
		*p++ = (uint8_t)(value >> (8 * bytes));
	return p;
}

static uint64_t
get(const uint8_t *p, int bytes)
{
	uint64_t v = 0;

	while (bytes-- > 0)
		v = v << 8 | *p++;
	return v;
}

static int
dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static void
send_all(int fd, const uint8_t *p, size_t n)
{
	while (n > 0) {
		ssize_t k = write(fd, p, n);

		if (k <= 0)
			die("write");
		p += k;
		n -= (size_t)k;
	}
}

static void
receive_all(int fd, uint8_t *p, size_t n)
{
	while (n > 0) {
		ssize_t k = read(fd, p, n);

		if (k <= 0)
			die("read");
		p += k;
		n -= (size_t)k;
	}
}

static uint8_t *
put_header(uint8_t *p, int api, int version)
{
	p = put(p + 4, (uint64_t)api, 2);
	p = put(p, (uint64_t)version, 2);
	p = put(p, 7, 4);
	p = put(p, strlen(topic), 2);
	memcpy(p, topic, strlen(topic));
	return put(p + strlen(topic), 0, 4);
}

static size_t
finish(uint8_t *frame, const uint8_t *end)
{
	put(frame, (uint64_t)(end - frame - 4), 4);
	return (size_t)(end - frame);
}

static size_t
produce_frame(uint8_t *frame, int ack, int records, size_t bytes)
{
	uint8_t *p = put_header(frame, 1, 1);

	*p++ = (uint8_t)ack;
	p = put(p, (uint64_t)records, 4);
	while (records-- > 0) {
		p = put(p, bytes, 4);
		memset(p, 'x', bytes);
		p += bytes;
	}
	return finish(frame, p);
}

static size_t
fetch_frame(uint8_t *frame, uint64_t offset, uint32_t max_bytes, uint32_t wait_ms)
{
	uint8_t *p = put_header(frame, 2, 2);

	p = put(p, offset, 8);
	p = put(p, max_bytes, 4);
	p = put(p, wait_ms, 4);
	return finish(frame, put(p, wait_ms > 0 ? 1 : 0, 4));
}

/* Reads a whole answer into `to` and returns its length; an error code ends the run. */
static size_t
read_answer(int fd, uint8_t *to, size_t room)
{
	size_t length;

	receive_all(fd, to, 4);
	length = (size_t)get(to, 4);
	if (length > room)
		die("answer larger than expected");
	receive_all(fd, to, length);
	if (get(to + 4, 2) != 0) {
		fprintf(stderr, "bench: the broker answers with error %d\n", (int)get(to + 4, 2));
		exit(1);
	}
	return length;
}

/* ---- P1 ---- */

static double
run_produce(void)
{
	static uint8_t frame[65536];
	size_t size = produce_frame(frame, 1, BATCH_RECORDS, RECORD_BYTES);
	int fd = dial(), outstanding = 0;
	double start = now(), end = start + seconds;
	uint64_t batches = 0;
	static uint8_t answers[65536];
	size_t have = 0;

	while (outstanding > 0 || now() < end) {
		ssize_t n;

		while (outstanding < IN_FLIGHT && now() < end) {
			send_all(fd, frame, size);
			outstanding++;
		}
		n = read(fd, answers + have, sizeof(answers) - have);
		if (n <= 0)
			die("read");
		have += (size_t)n;
		while (have >= 26) {
			if (get(answers + 8, 2) != 0)
				die("refused");
			have -= 26;
			memmove(answers, answers + 26, have);
			outstanding--;
			batches++;
		}
	}
	close(fd);
	return (double)batches * BATCH_RECORDS / (now() - start);
}

static double
bare_pwrite(const char *directory)
{
	size_t size = BATCH_RECORDS * (RECORD_BYTES + 8);
	uint8_t *batch = calloc(1, size);
	char path[4096];
	double start, elapsed;
	off_t position = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/bench.tmp", directory);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || batch == NULL)
		die(path);
	unlink(path);
	start = now();
	while ((elapsed = now() - start) < seconds) {
		if (pwrite(fd, batch, size, position) != (ssize_t)size)
			die("pwrite");
		position += (off_t)size;
	}
	close(fd);
	free(batch);
	return (double)position / (double)size * BATCH_RECORDS / elapsed;
}

static void
bench_produce(const char *directory)
{
	int held[HELD];
	uint8_t frame[512];
	struct rlimit limit = { 4096, 4096 };
	double bare, plain, with_held;

	setrlimit(RLIMIT_NOFILE, &limit);
	bare = bare_pwrite(directory);
	plain = run_produce();
	for (int i = 0; i < HELD; i++) {
		size_t n = fetch_frame(frame, 0, FETCH_BYTES, 60000);

		/* Partition 1, which nobody writes to. */
		put(frame + 4 + 8 + 2 + strlen(topic), 1, 4);
		held[i] = dial();
		send_all(held[i], frame, n);
	}
	with_held = run_produce();
	for (int i = 0; i < HELD; i++)
		close(held[i]);
	printf("P1 produce, 100 B x 100, WRITTEN, 64 in flight, 1 connection, closed loop:\n");
	printf("  bare pwrite              %12.0f records/s\n", bare);
	printf("  broker                   %12.0f records/s  ratio %.2f\n", plain, plain / bare);
	printf("  broker, 1,000 held FETCHes %10.0f records/s  ratio %.2f\n", with_held, with_held / bare);
}

/* ---- P1 by the library ---- */

static char broker_address[256];	/* the address as text */

static double
cpu_s(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	    (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void
on_receipt(void *context, const struct lb_receipt *receipt, const struct lb_error *error)
{
	(void)receipt;
	if (error != NULL)
		die(error->text);
	++*(uint64_t *)context;
}

/* One more record, when there is room for it again. */
static void
send_record(struct lb_producer *producer, struct lb_topic *to, int32_t partition, lb_receipt_cb *done, uint64_t *count)
{
	static uint8_t record[RECORD_BYTES];
	struct lb_error error;
	enum lb_code code;

	for (;;) {
		if (partition == LB_ANY_PARTITION)
			code = lb_topic_send(to, NULL, 0, record, sizeof(record), done, count, &error);
		else
			code = lb_topic_send_to(to, partition, record, sizeof(record), done, count, &error);
		if (code == LB_OK)
			return;
		if (code != LB_WOULD_BLOCK)
			die(error.text);
		lb_source_poll(lb_producer_source(producer), 1000);
	}
}

/* Records per second; *ns: of this process's CPU per record. */
static double
run_library(int32_t partition, lb_receipt_cb *done, double *ns)
{
	struct lb_producer_options options = lb_producer_defaults();
	struct lb_producer *producer;
	struct lb_topic *to;
	struct lb_totals totals;
	struct lb_error error;
	uint64_t told = 0;
	double start, elapsed, cpu;

	options.batch_records = BATCH_RECORDS;
	options.in_flight = IN_FLIGHT;
	options.memory_bytes = (size_t)2 * IN_FLIGHT * BATCH_RECORDS * (RECORD_BYTES + 32);
	if (lb_producer_open(&producer, broker_address, &options, &error) != LB_OK || lb_topic_open(&to, producer, topic, &error) != LB_OK)
		die(error.text);
	start = now();
	cpu = cpu_s();
	while (now() < start + seconds) {
		for (int i = 0; i < BATCH_RECORDS; i++)
			send_record(producer, to, partition, done, &told);
		lb_source_process(lb_producer_source(producer));
	}
	if (lb_producer_close(producer, 30000, &totals, &error) != LB_OK)
		die(error.text);
	elapsed = now() - start;
	if (done != NULL && told != totals.acknowledged)
		die("receipts are missing");
	*ns = (cpu_s() - cpu) * 1e9 / (double)totals.acknowledged;
	return (double)totals.acknowledged / elapsed;
}

static void
print_library(const char *what, double records_per_s, double ns, double raw)
{
	printf("  %-34s %10.0f records/s  %5.0f ns of client CPU per record  ratio %.2f\n", what, records_per_s, ns,
	    records_per_s / raw);
}

static void
bench_library(void)
{
	double cpu = cpu_s(), raw = run_produce(), ns = (cpu_s() - cpu) * 1e9 / (raw * seconds), rate;

	printf("P1 produce, 100 B x 100, WRITTEN, 64 in flight, closed loop:\n");
	print_library("plain sockets, ready-made frame", raw, ns, raw);
	rate = run_library(0, NULL, &ns);
	print_library("library, 1 partition", rate, ns, raw);
	rate = run_library(0, on_receipt, &ns);
	print_library("library, 1 partition, callbacks", rate, ns, raw);
	rate = run_library(LB_ANY_PARTITION, NULL, &ns);
	print_library("library, round robin", rate, ns, raw);
	cpu = cpu_s();
	rate = run_produce();
	print_library("plain sockets again", rate, (cpu_s() - cpu) * 1e9 / (rate * seconds), raw);
}

/* ---- P3 ---- */

static double
run_fetch(void)
{
	static uint8_t answer[FETCH_BYTES + 64];
	uint8_t frame[512];
	size_t size = fetch_frame(frame, 0, FETCH_BYTES, 0);
	int fd = dial();
	double start = now(), elapsed;
	uint64_t bytes = 0;

	send_all(fd, frame, size);
	while ((elapsed = now() - start) < seconds) {
		send_all(fd, frame, size);
		bytes += read_answer(fd, answer, sizeof(answer));
	}
	close(fd);
	return (double)bytes / elapsed / 1e9;
}

/* A child that sends a file of zeros round and round, a megabyte at a time in the broker's pieces. */
static void
serve_file(int listener)
{
	char path[] = "/tmp/bench-XXXXXX";
	int file = mkstemp(path), fd = accept(listener, NULL, NULL);
	static uint8_t zeros[FETCH_BYTES];
	uint8_t request[64];

	unlink(path);
	if (file < 0 || fd < 0 || write(file, zeros, sizeof(zeros)) != (ssize_t)sizeof(zeros))
		die("sendfile server");
	while (read(fd, request, sizeof(request)) > 0) {
		off_t position = 0;

		while (position < FETCH_BYTES)
			if (sendfile(fd, file, &position, 256 * 1024) <= 0)
				_exit(0);
	}
	_exit(0);
}

static double
bare_sendfile(void)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(own);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd;
	static uint8_t answer[FETCH_BYTES];
	double start, elapsed;
	uint64_t bytes = 0;
	pid_t child;

	if (bind(listener, (struct sockaddr *)&own, size) != 0 || listen(listener, 1) != 0 ||
	    getsockname(listener, (struct sockaddr *)&own, &size) != 0)
		die("bind");
	child = fork();
	if (child == 0)
		serve_file(listener);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&own, sizeof(own)) != 0)
		die("connect");
	start = now();
	send_all(fd, answer, 40);
	while ((elapsed = now() - start) < seconds) {
		send_all(fd, answer, 40);
		receive_all(fd, answer, sizeof(answer));
		bytes += sizeof(answer);
	}
	close(fd);
	close(listener);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return (double)bytes / elapsed / 1e9;
}

static void
bench_fetch(void)
{
	printf("P3 fetch, 1 MiB a request, two in flight, 1 connection, closed loop, in pairs:\n");
	for (int i = 0; i < 3; i++) {
		double bare = bare_sendfile(), broker = run_fetch();

		printf("  bare sendfile %.2f GB/s  broker %.2f GB/s  ratio %.2f\n", bare, broker, broker / bare);
	}
}

/* ---- P3 by the library ---- */

struct reading {
	uint64_t records, bytes;	/* records' bytes, headers included */
	double elapsed_s, cpu_s;
	struct lb_subscription *subscription;
};

static void
print_reading(const char *what, const struct reading *r, const struct reading *raw)
{
	printf("  %-34s %6.2f GB/s %11.0f records/s  %5.1f ns of client CPU per record  ratio %.2f\n", what,
	    (double)r->bytes / r->elapsed_s / 1e9, (double)r->records / r->elapsed_s, r->cpu_s * 1e9 / (double)r->records,
	    (double)r->bytes / r->elapsed_s / ((double)raw->bytes / raw->elapsed_s));
}

/* Bytes of the whole records in a FETCH's payload, and their number. */
static size_t
whole_records(const uint8_t *p, size_t bytes, uint64_t *count)
{
	size_t used = 0;

	while (bytes - used >= 8 && bytes - used - 8 >= get(p + used, 4)) {
		used += 8 + (size_t)get(p + used, 4);
		(*count)++;
	}
	return used;
}

/* The same by the library's walk, which looks at sums. */
static size_t
good_records(const uint8_t *p, size_t bytes, uint64_t *count)
{
	struct lb_record record;
	struct lb_walk walk;
	size_t used = 0;

	lb_walk_begin(&walk, LB_CRC32C, 0, p, bytes);
	for (; lb_walk_next(&walk, &record) == LB_WALK_RECORD; ++*count)
		used += 8 + record.bytes;
	return used;
}

/* One request at a time: where the next begins is in the answer. */
static struct reading
read_raw(size_t (*pass)(const uint8_t *, size_t, uint64_t *))
{
	static uint8_t answer[FETCH_BYTES + 64];
	struct reading r = { 0 };
	uint64_t offset = 0;
	uint8_t frame[512];
	int fd = dial();
	double start = now(), cpu = cpu_s();

	while ((r.elapsed_s = now() - start) < seconds) {
		size_t bytes;

		send_all(fd, frame, fetch_frame(frame, offset, FETCH_BYTES, 0));
		read_answer(fd, answer, sizeof(answer));
		bytes = pass(answer + 18, (size_t)get(answer + 14, 4), &offset);
		r.bytes += bytes;
		if (bytes > 0)
			continue;
		if (r.bytes == 0)
			die("partition 0 is empty");
		r.records += offset;
		offset = 0;
	}
	r.records += offset;
	r.cpu_s = cpu_s() - cpu;
	close(fd);
	return r;
}

static int
on_batch(void *context, const struct lb_batch *batch)
{
	struct lb_record record = { 0 };
	struct reading *r = context;

	while (lb_batch_next(batch, &record))
		r->bytes += 8 + record.bytes;
	r->records += batch->record_count;
	return 0;
}

/* A replay that has ended begins anew. */
static void
on_stopped(void *context, const struct lb_error *error)
{
	struct reading *r = context;

	if (error != NULL || lb_subscription_seek(r->subscription, 0, 0, NULL) != LB_OK)
		die(error != NULL ? error->text : "seek");
}

static struct reading
read_subscribed(bool pull)
{
	static const int32_t first = 0;
	struct lb_subscription_options options = lb_subscription_defaults();
	const struct lb_batch *batch;
	struct reading r = { 0 };
	struct lb_error error;
	double start = now(), cpu = cpu_s();

	options.partitions = &first;
	options.partition_count = 1;
	options.stop = LB_STOP_AT_WATERMARK;
	options.handler = pull ? NULL : on_batch;
	options.stopped = on_stopped;
	options.context = &r;
	if (lb_subscription_open(&r.subscription, broker_address, topic, &options, &error) != LB_OK)
		die(error.text);
	while ((r.elapsed_s = now() - start) < seconds) {
		if (!pull)
			lb_source_poll(lb_subscription_source(r.subscription), 1000);
		else if (lb_subscription_next(r.subscription, 1000, &batch, &error) == LB_OK)
			on_batch(&r, batch);
	}
	r.cpu_s = cpu_s() - cpu;
	lb_subscription_free(r.subscription);
	return r;
}

static void
bench_subscribe(void)
{
	struct reading raw, r;

	printf("P3 fetch, 1 MiB a request, 1 connection, closed loop:\n");
	for (int i = 0; i < 3; i++) {
		raw = read_raw(whole_records);
		print_reading("plain socket, lengths", &raw, &raw);
		r = read_raw(good_records);
		print_reading("plain socket, sums", &r, &raw);
		r = read_subscribed(false);
		print_reading("subscription, handler", &r, &raw);
		r = read_subscribed(true);
		print_reading("subscription, next", &r, &raw);
	}
}

/* ---- P4 ---- */

static double
run_forced(int producers)
{
	struct pollfd fds[PRODUCERS];
	uint8_t frame[512], answer[64];
	size_t size = produce_frame(frame, 2, 1, 128);
	double start, elapsed;
	uint64_t answered = 0;

	for (int i = 0; i < producers; i++)
		fds[i] = (struct pollfd){ .fd = dial(), .events = POLLIN };
	start = now();
	for (int i = 0; i < producers; i++)
		send_all(fds[i].fd, frame, size);
	while ((elapsed = now() - start) < seconds) {
		if (poll(fds, (nfds_t)producers, -1) < 0)
			die("poll");
		for (int i = 0; i < producers; i++)
			if (fds[i].revents != 0) {
				read_answer(fds[i].fd, answer, sizeof(answer));
				answered++;
				send_all(fds[i].fd, frame, size);
			}
	}
	for (int i = 0; i < producers; i++)
		close(fds[i].fd);
	return (double)answered / elapsed;
}

static double
bare_forced(const char *directory)
{
	uint8_t record[136] = { 0 };
	int pair[2], fd;
	char path[4096];
	double start, elapsed;
	uint64_t rounds = 0;
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(own);
	int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	pid_t child;

	snprintf(path, sizeof(path), "%s/bench.tmp", directory);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || bind(listener, (struct sockaddr *)&own, size) != 0 || listen(listener, 1) != 0 ||
	    getsockname(listener, (struct sockaddr *)&own, &size) != 0)
		die(path);
	unlink(path);
	child = fork();
	if (child == 0) {
		off_t position = 0;

		pair[0] = accept(listener, NULL, NULL);
		setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		while (read(pair[0], record, sizeof(record)) > 0) {
			if (pwrite(fd, record, sizeof(record), position) < 0 || fdatasync(fd) != 0)
				die("fdatasync");
			position += (off_t)sizeof(record);
			send_all(pair[0], record, 26);
		}
		_exit(0);
	}
	pair[1] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(pair[1], (struct sockaddr *)&own, sizeof(own)) != 0)
		die("connect");
	setsockopt(pair[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	start = now();
	while ((elapsed = now() - start) < seconds) {
		send_all(pair[1], record, sizeof(record));
		receive_all(pair[1], record, 26);
		rounds++;
	}
	close(pair[1]);
	close(listener);
	close(fd);
	waitpid(child, NULL, 0);
	return (double)rounds / elapsed;
}

static void
bench_forced(const char *directory)
{
	double bare = bare_forced(directory), one = run_forced(1), many = run_forced(PRODUCERS);

	printf("P4 produce, 1 x 128 B, FORCED, closed loop:\n");
	printf("  bare round trip + pwrite + fdatasync %9.0f /s\n", bare);
	printf("  one producer                         %9.0f /s  ratio %.2f\n", one, one / bare);
	printf("  64 producers                         %9.0f /s  ratio %.1f\n", many, many / bare);
}

/* ---- P7 ---- */

struct replayed {
	volatile uint64_t bytes;	/* by all children */
	volatile int begun;
};

static void
evict(const char *directory)
{
	DIR *dir = opendir(directory);
	struct dirent *entry;
	char path[4096];

	if (dir == NULL)
		die(directory);
	while ((entry = readdir(dir)) != NULL) {
		size_t length = strlen(entry->d_name);
		int fd;

		if (length < 4 || strcmp(entry->d_name + length - 4, ".log") != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
		fd = open(path, O_RDONLY);
		if (fd < 0 || fsync(fd) != 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
			die(path);
		close(fd);
	}
	closedir(dir);
}

/* A child that reads partition 0 from front to back, again and again. Its processor would be another machine's: it yields
 * to the broker and to those whose time is taken. */
static void
replay(const char *evicted, struct replayed *replayed)
{
	static uint8_t answer[FETCH_BYTES + 64];
	uint64_t offset = 0, pass_bytes = 0;
	uint8_t frame[512];
	int fd = dial();

	setpriority(PRIO_PROCESS, 0, 19);
	for (;;) {
		size_t bytes;

		if (offset == 0 && evicted != NULL)
			evict(evicted);
		send_all(fd, frame, fetch_frame(frame, offset, FETCH_BYTES, 0));
		read_answer(fd, answer, sizeof(answer));
		__atomic_store_n(&replayed->begun, 1, __ATOMIC_RELAXED);
		bytes = whole_records(answer + 18, (size_t)get(answer + 14, 4), &offset);
		__atomic_fetch_add(&replayed->bytes, bytes, __ATOMIC_RELAXED);
		pass_bytes += bytes;
		if (bytes == 0 && pass_bytes == 0)
			die("partition 0 is empty");
		if (bytes == 0)
			offset = pass_bytes = 0;
	}
}

struct latencies {
	double *us;
	size_t count;
};

static int
compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double
percentile(struct latencies *l, double part)
{
	qsort(l->us, l->count, sizeof(*l->us), compare);
	return l->us[(size_t)((double)(l->count - 1) * part)];
}

/* The second partition's frames. */
static size_t
hot_frame(uint8_t *frame, size_t size)
{
	put(frame + 4 + 8 + 2 + strlen(topic), 1, 4);
	return size;
}

static uint64_t
high_watermark(int fd)
{
	uint8_t frame[512], answer[FETCH_BYTES / 16];

	send_all(fd, frame, hot_frame(frame, fetch_frame(frame, 0, 1, 0)));
	read_answer(fd, answer, sizeof(answer));
	return get(answer + 6, 8);
}

/* What has come of the produced records or to the tail reader, which were due one after the other. */
static void
note(struct latencies *l, uint64_t count, double start)
{
	while (count-- > 0 && l->count < HOT_SAMPLES_MAX) {
		l->us[l->count] = (now() - start - (double)l->count / HOT_PER_S) * 1e6;
		l->count++;
	}
}

static void
tail(int fd, uint64_t *offset, struct latencies *l, double start, bool read_first)
{
	static uint8_t answer[FETCH_BYTES + 64];
	uint8_t frame[512];
	uint64_t before = *offset;

	if (read_first) {
		read_answer(fd, answer, sizeof(answer));
		whole_records(answer + 18, (size_t)get(answer + 14, 4), offset);
		note(l, *offset - before, start);
	}
	send_all(fd, frame, hot_frame(frame, fetch_frame(frame, *offset, FETCH_BYTES, 1000)));
}

/* Latencies from the time at which each record was due, to its acknowledgement and to its arrival at the reader. */
static void
run_hot(struct latencies *produced, struct latencies *fetched)
{
	struct pollfd fds[2] = { { .fd = dial(), .events = POLLIN }, { .fd = dial(), .events = POLLIN } };
	uint64_t offset = high_watermark(fds[0].fd), sent = 0, total = (uint64_t)(seconds * HOT_PER_S);
	uint8_t frame[512], answer[64];
	size_t size = hot_frame(frame, produce_frame(frame, 1, 1, RECORD_BYTES));
	double start = now();

	if (total > HOT_SAMPLES_MAX)
		total = HOT_SAMPLES_MAX;
	produced->count = fetched->count = 0;
	tail(fds[1].fd, &offset, fetched, start, false);
	while (produced->count < total || fetched->count < total) {
		double wait = start + (double)sent / HOT_PER_S - now();

		for (; sent < total && wait <= 0; wait = start + (double)++sent / HOT_PER_S - now())
			send_all(fds[0].fd, frame, size);
		if (poll(fds, 2, sent < total ? (int)(wait * 1e3) : 1000) < 0)
			die("poll");
		if (fds[0].revents != 0) {
			read_answer(fds[0].fd, answer, sizeof(answer));
			note(produced, 1, start);
		}
		if (fds[1].revents != 0)
			tail(fds[1].fd, &offset, fetched, start, true);
	}
	close(fds[0].fd);
	close(fds[1].fd);
}

/* Returns the two 99th percentiles. */
static void
hot_beside(int replayers, const char *evicted, const char *what, double *p99)
{
	struct replayed *replayed = mmap(NULL, sizeof(*replayed), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct latencies l[2] = { { malloc(HOT_SAMPLES_MAX * sizeof(double)), 0 },
		{ malloc(HOT_SAMPLES_MAX * sizeof(double)), 0 } };
	pid_t children[REPLAYERS];
	uint64_t bytes;
	double start;

	for (int i = 0; i < replayers; i++) {
		children[i] = fork();
		if (children[i] == 0)
			replay(i == 0 ? evicted : NULL, replayed);
	}
	while (replayers > 0 && __atomic_load_n(&replayed->begun, __ATOMIC_RELAXED) == 0)
		usleep(1000);
	bytes = replayed->bytes;
	start = now();
	run_hot(&l[0], &l[1]);
	printf("  %-28s replayed %6.0f MB/s; produce p50 %6.0f p99 %6.0f p99.9 %6.0f us; tail p50 %6.0f p99 %6.0f p99.9 "
	    "%6.0f us\n", what, (double)(replayed->bytes - bytes) / (now() - start) / 1e6, percentile(&l[0], 0.5),
	    percentile(&l[0], 0.99), percentile(&l[0], 0.999), percentile(&l[1], 0.5), percentile(&l[1], 0.99),
	    percentile(&l[1], 0.999));
	for (int i = 0; i < replayers; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
	for (int i = 0; i < 2; i++) {
		p99[i] = percentile(&l[i], 0.99);
		free(l[i].us);
	}
	munmap(replayed, sizeof(*replayed));
}

static void
bench_replay(const char *directory)
{
	static const struct {
		const char *what;
		int replayers;
		bool cold;
	} cases[] = { { "alone", 0, false }, { "1 replays, in memory", 1, false }, { "1 replays, evicted", 1, true },
		{ "4 replay, in memory", REPLAYERS, false }, { "4 replay, evicted", REPLAYERS, true } };
	double alone[2], p99[2];

	printf("P7 1 record of 100 B, WRITTEN, open loop, %d/s, and a tail reader; beside replays of 1 MiB a request:\n",
	    HOT_PER_S);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		hot_beside(cases[i].replayers, cases[i].cold ? directory : NULL, cases[i].what, i == 0 ? alone : p99);
		if (i > 0)
			printf("    p99 against alone: produce %.2f, tail %.2f\n", p99[0] / alone[0], p99[1] / alone[1]);
	}
}

/* ---- P9 ---- */

/* Request n of all is the next one of connection n % WAITERS, and is due n / WAITERS_PER_S after the start. */
struct waiters {
	int epoll;
	struct waiter {
		int fd;
		uint64_t answered;
	} list[WAITERS];
	uint64_t sent;
	double start;
	double longest;
};

static void
connect_waiters(struct waiters *w)
{
	w->epoll = epoll_create1(EPOLL_CLOEXEC);
	for (int i = 0; i < WAITERS; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.ptr = &w->list[i] };

		w->list[i].fd = dial();
		if (epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->list[i].fd, &event) != 0)
			die("epoll_ctl");
	}
	w->start = now();
}

static void
take_answer(struct waiters *w, struct waiter *waiter)
{
	uint8_t answer[64];
	uint64_t n = waiter->answered++ * WAITERS + (uint64_t)(waiter - w->list);
	double wait;

	read_answer(waiter->fd, answer, sizeof(answer));
	wait = now() - w->start - (double)n / WAITERS_PER_S;
	if (wait > w->longest)
		w->longest = wait;
}

static void
run_waiters(struct waiters *w, double until)
{
	uint8_t frame[512];
	size_t size = produce_frame(frame, 1, 1, RECORD_BYTES);
	struct epoll_event events[64];

	while (now() < until) {
		int count;

		for (; w->start + (double)w->sent / WAITERS_PER_S <= now(); w->sent++)
			send_all(w->list[w->sent % WAITERS].fd, frame, size);
		count = epoll_wait(w->epoll, events, 64, 1);
		for (int i = 0; i < count; i++)
			take_answer(w, events[i].data.ptr);
	}
}

/* Returns the longest wait of a second, or of as long as it takes, in which the command has run, in us. */
static double
longest_beside(struct waiters *w, const char *command)
{
	double began = now();
	pid_t child, ended;
	int status;

	w->longest = 0;
	run_waiters(w, began + 0.1);
	child = fork();
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	run_waiters(w, began + 1);
	while ((ended = waitpid(child, &status, WNOHANG)) == 0)
		run_waiters(w, now() + 0.1);
	if (ended < 0 || status != 0) {
		fprintf(stderr, "bench: '%s' has failed\n", command);
		exit(1);
	}
	return w->longest * 1e6;
}

static void
print_longest(const char *what, struct latencies *l)
{
	printf("  %-20s longest wait of a second: median %6.1f, 9 of 10 below %6.1f, worst of %zu %6.1f ms\n", what,
	    percentile(l, 0.5) / 1e3, percentile(l, 0.9) / 1e3, l->count, percentile(l, 1) / 1e3);
}

static void
bench_restart(const char *command)
{
	static double us[2][ROUNDS_MAX];
	static struct waiters waiters;
	struct latencies without = { us[0], 0 }, with = { us[1], 0 };

	printf("P9 1 record of 100 B, WRITTEN, %d connections, open loop, %d/s:\n", WAITERS, WAITERS_PER_S);
	connect_waiters(&waiters);
	longest_beside(&waiters, "true");
	while (with.count * 2 < (size_t)seconds && with.count < ROUNDS_MAX) {
		without.us[without.count++] = longest_beside(&waiters, "true");
		with.us[with.count++] = longest_beside(&waiters, command);
	}
	print_longest("without a restart", &without);
	print_longest("with one", &with);
}

int
main(int argc, char **argv)
{
	char *colon = argc > 2 ? strrchr(argv[2], ':') : NULL;
	const char *directory = argc > 5 ? argv[5] : ".";

	if (argc < 4 || colon == NULL) {
		fprintf(stderr, "usage: bench produce|library|fetch|subscribe|forced|replay HOST:PORT TOPIC [SECONDS [DIRECTORY]]\n"
		    "       bench restart HOST:PORT TOPIC SECONDS COMMAND\n");
		return 64;
	}
	snprintf(broker_address, sizeof(broker_address), "%s", argv[2]);
	*colon = '\0';
	address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10)) };
	if (inet_pton(AF_INET, argv[2], &address.sin_addr) != 1) {
		fprintf(stderr, "bench: '%s' is no IPv4 address\n", argv[2]);
		return 64;
	}
	topic = argv[3];
	if (argc > 4)
		seconds = strtod(argv[4], NULL);
	if (strcmp(argv[1], "produce") == 0)
		bench_produce(directory);
	else if (strcmp(argv[1], "library") == 0)
		bench_library();
	else if (strcmp(argv[1], "fetch") == 0)
		bench_fetch();
	else if (strcmp(argv[1], "subscribe") == 0)
		bench_subscribe();
	else if (strcmp(argv[1], "forced") == 0)
		bench_forced(directory);
	else if (strcmp(argv[1], "replay") == 0)
		bench_replay(directory);
	else if (strcmp(argv[1], "restart") == 0 && argc > 5)
		bench_restart(argv[5]);
	else
		return 64;
	return 0;
}
