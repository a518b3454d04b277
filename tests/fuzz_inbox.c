/*
 * libFuzzer: any packets as what a supervisor says to a worker (packets.h): settings, topics, boards, ends, the start,
 * then connections and orders. What the worker believes must be whole; what it does not believe makes it exit, which here is a
 * jump back. The first byte is the number of slots of the board that comes with the process.
 */
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/message.h"
#include "tests/fuzz_target.h"
#include "tests/packets.h"
#include "worker/connections.h"
#include "worker/inbox.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
_Noreturn void __wrap_log_fatal(int status, const char *format, ...);

static jmp_buf exited;

/* In place of the process's end. */
_Noreturn void
__wrap_log_fatal(int status, const char *format, ...)
{
	require(status != 0 && format[0] != '\0');
	longjmp(exited, 1);
}

void
connections_take(struct connections *set, const struct message_connection *message, const uint8_t *inline_bytes,
    int socket_fd, int spill_fd)
{
	uint32_t sum = 0;

	require(set == NULL && message->inline_bytes >= 0 && message->inline_bytes <= MESSAGE_INLINE_MAX_BYTES);
	for (int32_t i = 0; i < message->inline_bytes; i++)
		sum += inline_bytes[i];
	require(fcntl(socket_fd, F_GETFD) != -1 && (spill_fd != -1) == (message->spilled_end > 0) && sum < UINT32_MAX);
	close(socket_fd);
	if (spill_fd != -1)
		close(spill_fd);
}

/* What a worker relies on from here on. */
static void
check_settings(const struct worker *worker)
{
	require(worker->number >= 0 && worker->number < worker->topics.group_count);
	require(memchr(worker->data_dir, '\0', MESSAGE_PATH_BYTES) != NULL);
	require(worker->max_fetch_wait_ns >= 0 && worker->request_timeout_ns >= 0 && worker->idle_timeout_ns >= 0 &&
	    worker->drain_timeout_ns >= 0 && worker->max_frame_bytes > 0);
	for (int32_t i = 0; i < worker->topics.count; i++) {
		const struct topic *topic = &worker->topics.list[i];

		require(codec_topic_name_valid(topic->name, strlen(topic->name)));
		require(topic->log.flush_interval_us <= INT64_MAX / 1000 && topic->log.retention_age_ms <= INT64_MAX / 1000000);
		require(topic->partition_count >= 1 && topic->first_group >= 0 && topic->first_group < worker->topics.group_count);
	}
}

static void
check_handed(const struct worker *worker)
{
	for (int32_t i = 0; worker->handed != NULL && i < worker->topics.slot_counts[worker->number]; i++)
		require(worker->handed[i].slot == -1 || worker->handed[i].slot == i);
}

static void
run(struct channel *channel, struct worker *worker)
{
	if (setjmp(exited) != 0)
		return;
	inbox_set_up(channel, worker);
	check_settings(worker);
	inbox_await_start(channel, worker);
	check_handed(worker);
	while (inbox_receive(channel, worker) != INBOX_STOP)
		;
}

static void
free_worker(struct worker *worker)
{
	for (int32_t i = 0; worker->boards != NULL && i < worker->topics.group_count; i++)
		board_unmap(&worker->boards[i]);
	free(worker->boards);
	free(worker->data_dir);
	free(worker->handed);
	topics_free(&worker->topics);
}

/* All but the first three descriptors are the worker's, like those of a process that has just begun. */
int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct worker worker = { 0 };
	struct channel *channel;
	int fds[2], own;

	if (size == 0)
		return 0;
	close_range(MESSAGE_CHANNEL_FD, ~0u, 0);
	own = board_create(data[0]);
	require(own == MESSAGE_CHANNEL_FD && dup2(own, MESSAGE_BOARD_FD) == MESSAGE_BOARD_FD && channel_pair(fds) == 0);
	channel = channel_new(fds[0]);
	require(channel != NULL);
	packets_send(fds[1], data + 1, size - 1);
	shutdown(fds[1], SHUT_WR);
	run(channel, &worker);
	free_worker(&worker);
	channel_free(channel);
	/* What is left to the kernel. */
	close_range(MESSAGE_CHANNEL_FD, ~0u, 0);
	return 0;
}
