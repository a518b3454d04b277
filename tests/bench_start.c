/*
 * How long a start takes (P8): of a broker with many segments after a clean stop, and after a kill with much in the active
 * segment; beside a start with an empty log, which is what processes and handshakes cost.
 *
 *	bench_start BUILD DIRECTORY [SEGMENTS [SEGMENT_KIB [ACTIVE_MIB]]]
 *
 * BUILD has logsupervisor and logworker; DIRECTORY is made, filled with SEGMENTS (1,000) segments of SEGMENT_KIB (2,048)
 * KiB, and removed. Then, in both write modes:
 *
 *	ready     from exec to the line "ready:", three times after a clean stop
 *	killed    ACTIVE_MIB (256) are produced, supervisor and workers are killed seven seconds later, when everything has been
 *	          forced and a recovery point stored; from exec to the first answer
 *	unindexed the same when the active segment's index is gone: everything in it is read
 *	at once   killed at once: what is read is mostly what has to be written first
 *	worker    the same, but only the worker is killed: from the signal to the first answer of the next one
 *
 * Everything is in the page cache unless it is larger than memory; starts of a whole broker read past it all the same.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/record.h"
#include "tests/wire.h"
#include "worker/partition.h"

enum { RECORD_BYTES = 1000, BATCH_RECORDS = 500, PATH_BYTES = 4096, IN_FLIGHT = 8, SETTLED_S = 7 };

static const char *build;
static char directory[PATH_BYTES / 2];
static pid_t supervisor;
static int line_fd = -1;

static void
die(const char *what)
{
	fprintf(stderr, "bench_start: %s: %s\n", what, strerror(errno));
	if (supervisor > 0)
		kill(supervisor, SIGKILL);
	exit(1);
}

/* ---- a log, made without a broker ---- */

static void
roll(struct partition *log)
{
	struct partition_roll *roll = partition_roll_begin(log, NULL, 0, 0);

	if (roll == NULL)
		die("roll");
	partition_roll_run(roll);
	if (partition_roll_finish(log, roll) != 0)
		die("roll");
}

/* A segment of about so many bytes. */
static void
fill_segment(struct partition *log, int64_t bytes)
{
	static uint8_t payload[RECORD_BYTES], batch[BATCH_RECORDS * (RECORD_BYTES + RECORD_HEADER_MAX_BYTES)];
	int64_t records = bytes / (RECORD_BYTES + RECORD_HEADER_MAX_BYTES);

	while (records > 0) {
		int32_t count = records < BATCH_RECORDS ? (int32_t)records : BATCH_RECORDS;
		uint8_t *p = batch;

		for (int32_t i = 0; i < count; i++) {
			memset(payload, 'a' + i % 26, sizeof(payload));
			p = record_put(p, RECORD_CRC32C, payload, sizeof(payload));
		}
		if (partition_append(log, batch, (size_t)(p - batch), count) != 0)
			die("append");
		records -= count;
	}
}

static void
make_log(int64_t segments, int64_t segment_bytes)
{
	struct partition_settings settings = { .record_format = RECORD_CRC32C, .segment_bytes = 1 << 30,
		.index_interval_bytes = 4096 };
	struct partition_known known = { .published_end = -1 };
	struct partition_opened opened;
	char path[PATH_BYTES];
	int fd;

	snprintf(path, sizeof(path), "%s/data", directory);
	if (mkdir(directory, 0750) != 0 || mkdir(path, 0750) != 0)
		die(directory);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	partition_open(fd, "t-0", &settings, &known, &opened);
	if (opened.partition == NULL)
		die(opened.why);
	for (int64_t i = 0; i < segments; i++) {
		fill_segment(opened.partition, segment_bytes);
		roll(opened.partition);
		if (isatty(STDERR_FILENO) && i % 100 == 0)
			fprintf(stderr, "\r%" PRId64 " segments", i);
	}
	partition_close(opened.partition);
	close(fd);
}

/* ---- a broker ---- */

static void
write_settings(const char *mode)
{
	char path[PATH_BYTES];
	FILE *file;

	snprintf(path, sizeof(path), "%s/broker.ini", directory);
	file = fopen(path, "we");
	if (file == NULL)
		die(path);
	fprintf(file, "[broker]\nlisten = unix:%s/sock\nhttp = off\ncontrol = off\ndata_dir = %s/data\nworkers = 1\n"
	    "[topics]\nt = 1\nempty = 1\n[log]\nwrite_mode = %s\nsegment_bytes = 4GiB\n", directory, directory, mode);
	fclose(file);
}

static void
start(void)
{
	char program[PATH_BYTES], settings[PATH_BYTES];
	int pipes[2];

	snprintf(program, sizeof(program), "%s/logsupervisor", build);
	snprintf(settings, sizeof(settings), "%s/broker.ini", directory);
	if (pipe(pipes) != 0 || (supervisor = fork()) == -1)
		die("fork");
	if (supervisor == 0) {
		dup2(pipes[1], STDERR_FILENO);
		close(pipes[0]);
		close(pipes[1]);
		execl(program, "logsupervisor", "-f", settings, (char *)NULL);
		_exit(127);
	}
	close(pipes[1]);
	if (line_fd != -1)
		close(line_fd);
	line_fd = pipes[0];
}

/* Reads its lines up to the one that begins so. */
static void
wait_for_line(const char *wanted)
{
	static char text[64 * 1024];
	size_t length = 0;

	text[0] = '\0';
	while (strstr(text, wanted) == NULL || strchr(strstr(text, wanted), '\n') == NULL) {
		ssize_t n = read(line_fd, text + length, sizeof(text) - 1 - length);

		if (n <= 0) {
			fprintf(stderr, "%s", text);
			errno = ECHILD;
			die("the broker has ended");
		}
		length += (size_t)n;
		text[length] = '\0';
		/* What matters is at the end. */
		if (length > sizeof(text) / 2) {
			memmove(text, text + length - 4096, 4097);
			length = 4096;
		}
	}
}

static int
dial(void)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), "%s/sock", directory);
	return wire_connect_unix(path);
}

static void
stop(void)
{
	int status;

	kill(supervisor, SIGTERM);
	if (waitpid(supervisor, &status, 0) != supervisor || status != 0)
		die("stop");
	supervisor = 0;
}

/* The worker's pid, from the lock file, whose second line it is. */
static pid_t
worker(void)
{
	char path[PATH_BYTES], line[33] = "";
	int fd;

	snprintf(path, sizeof(path), "%s/data/lock", directory);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd == -1 || pread(fd, line, 32, 32) != 32)
		die(path);
	close(fd);
	return (pid_t)strtol(line, NULL, 10);
}

static void
kill_all(void)
{
	pid_t pid = worker();

	kill(supervisor, SIGKILL);
	kill(pid, SIGKILL);
	waitpid(supervisor, NULL, 0);
	supervisor = 0;
	while (kill(pid, 0) == 0)
		usleep(1000);
}

/* ---- measuring ---- */

static double
since(int64_t began_us)
{
	return (double)(wire_now_us() - began_us) / 1000;
}

static double
time_ready(void)
{
	int64_t began_us = wire_now_us();
	double ms;

	start();
	wait_for_line("ready:");
	ms = since(began_us);
	stop();
	return ms;
}

/* Until METADATA answers with a watermark. */
static double
time_answer(int64_t began_us, int64_t *end)
{
	int fd;

	while ((fd = dial()) == -1)
		usleep(500);
	*end = wire_high_watermark(fd, "t", 0);
	close(fd);
	if (*end < 0)
		die("METADATA");
	return since(began_us);
}

static void
produce(int64_t bytes)
{
	static uint8_t payload[RECORD_BYTES];
	static struct wire_record records[BATCH_RECORDS];
	struct wire_bytes frame = { 0 };
	int64_t batches = bytes / (BATCH_RECORDS * RECORD_BYTES);
	int fd = dial();

	memset(payload, 'p', sizeof(payload));
	for (int i = 0; i < BATCH_RECORDS; i++)
		records[i] = (struct wire_record){ payload, RECORD_BYTES };
	wire_put_produce(&frame, 1, "t", 0, WIRE_WRITTEN, records, BATCH_RECORDS);
	for (int64_t sent = 0, answered = 0; answered < batches;) {
		if (sent < batches && sent - answered < IN_FLIGHT) {
			if (wire_send(fd, frame.data, frame.length) != 0)
				die("produce");
			sent++;
			continue;
		}
		if (wire_expect(fd, 1) != 0)
			die("produce");
		answered++;
	}
	wire_bytes_free(&frame);
	close(fd);
}

static void
remove_active_index(void)
{
	char command[PATH_BYTES + 64];

	snprintf(command, sizeof(command), "rm -f \"$(ls %s/data/t-0/*.log | tail -1 | sed s/log$/index/)\"", directory);
	if (system(command) != 0)
		die(command);
}

/* From exec to the first answer, with so much in the active segment that the last broker was killed over. */
static void
measure_kill(const char *mode, const char *what, int64_t active_bytes, unsigned idle_s, bool unindexed)
{
	int64_t began_us, end, end_again;

	start();
	wait_for_line("ready:");
	produce(active_bytes);
	sleep(idle_s);
	time_answer(0, &end);
	kill_all();
	if (unindexed)
		remove_active_index();
	began_us = wire_now_us();
	start();
	printf("  %-6s %-9s %8.1f ms to the first answer\n", mode, what, time_answer(began_us, &end_again));
	if (end_again != end)
		printf("  and %" PRId64 " records of %" PRId64 " are lost\n", end - end_again, end);
	wait_for_line("ready:");
	stop();
}

static void
measure_worker(const char *mode, int64_t active_bytes)
{
	int64_t began_us, end, end_again = -1;
	pid_t pid;
	int fd;

	start();
	wait_for_line("ready:");
	produce(active_bytes);
	time_answer(0, &end);
	pid = worker();
	began_us = wire_now_us();
	kill(pid, SIGKILL);
	while (worker() == pid)
		usleep(200);
	fd = dial();
	/* A FETCH, which only the new one can answer. */
	while (end_again != end) {
		struct wire_fetched fetched;

		if (fd == -1 || wire_fetch(fd, "t", 0, end, 1, 0, 0, &fetched) != 0) {
			close(fd);
			fd = dial();
			continue;
		}
		end_again = fetched.high_watermark;
		wire_fetched_free(&fetched);
	}
	printf("  %-6s worker    %8.1f ms to the first answer\n", mode, since(began_us));
	close(fd);
	stop();
}

static int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

int
main(int argc, char **argv)
{
	static const char *const modes[] = { "file", "mapped" };
	int64_t segments = argc > 3 ? strtoll(argv[3], NULL, 10) : 1000;
	int64_t segment_bytes = (argc > 4 ? strtoll(argv[4], NULL, 10) : 2048) << 10;
	int64_t active_bytes = (argc > 5 ? strtoll(argv[5], NULL, 10) : 256) << 20;
	int64_t began_us;

	if (argc < 3 || argc > 6) {
		fprintf(stderr, "usage: bench_start BUILD DIRECTORY [SEGMENTS [SEGMENT_KIB [ACTIVE_MIB]]]\n");
		return 64;
	}
	build = argv[1];
	snprintf(directory, sizeof(directory), "%s", argv[2]);
	began_us = wire_now_us();
	make_log(0, 0);
	write_settings("file");
	time_ready();
	printf("P8 start\n  empty log        %8.1f ms to ready:\n", time_ready());
	nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	make_log(segments, segment_bytes);
	printf("  %" PRId64 " segments of %" PRId64 " KiB, made in %.0f s; %" PRId64 " MiB into the active one each time\n", segments,
	    segment_bytes >> 10, since(began_us) / 1000, active_bytes >> 20);
	for (int m = 0; m < 2; m++) {
		write_settings(modes[m]);
		printf("  %-6s first     %8.1f ms to ready:, not stopped cleanly\n", modes[m], time_ready());
		for (int i = 0; i < 3; i++)
			printf("  %-6s ready     %8.1f ms to ready:\n", modes[m], time_ready());
		measure_kill(modes[m], "killed", active_bytes, SETTLED_S, false);
		measure_kill(modes[m], "unindexed", active_bytes, SETTLED_S, true);
		measure_kill(modes[m], "at once", active_bytes, 0, false);
		measure_worker(modes[m], active_bytes);
	}
	nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	return 0;
}
