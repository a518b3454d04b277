/*
 * A worker for the tests of the supervisor: speaks the channel's messages, well or badly, and stores nothing. Lies as
 * "logworker" beside a copy of logsupervisor.
 *
 * Environment: FAKE_DIR (where starts are counted, in the file "starts"), FAKE_SCRIPT (a word for each start, the last
 * one for all further ones): serve, or a way to fail, see main.
 *
 * A client's bytes are commands, executed in order:
 *   i   answers "<number> <pid>\n"
 *   gN  gives the connection to group N, with the bytes behind it inline; mN: in a memfd, not from its start
 *   hN  gives it to group N and dies at once
 *   x k a   exits with 3; kills itself with SIGKILL; with SIGABRT
 *   c   shuts the channel down and lives on
 *   o   says on the board that it is about to end, reads the channel no more, and goes on with its clients
 *   w   writes nonsense into its counters on the board
 *   d?  how it will answer DRAIN, see drain
 *   r   asks to be replaced
 *   e   answers "<ends that it was handed> <the first one's end>\n"
 *   b?  sends a malformed message, see send_bad
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/board.h"
#include "common/channel.h"
#include "common/clock.h"
#include "common/message.h"

enum { CLIENTS_MAX = 4096, SLOTS_MAX = 64, SPILL_BEFORE = 100, HEARTBEAT_MS = 500 };

static struct channel *channel;
static struct board board;
static int32_t number = -1;
static int32_t partitions;
static bool stubborn, ending;
static char drain_way;
static int clients[CLIENTS_MAX];
static int client_count;

static void
must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fake worker: %s: %s\n", what, strerror(errno));
	_exit(9);
}

static void
flush(void)
{
	while (channel_flush(channel) != CHANNEL_IDLE) {
		struct pollfd writable = { channel_fd(channel), POLLOUT, 0 };

		poll(&writable, 1, 10);
	}
}

static void
say_with(uint32_t type, const void *payload, size_t size, int count, int first, int second)
{
	struct channel_message message = { .type = type, .size = size, .payload = payload, .descriptor_count = count };

	message.descriptors[0] = first;
	message.descriptors[1] = second;
	must(channel_queue(channel, &message) == 0, "queue");
	flush();
}

static void
say(uint32_t type, const void *payload, size_t size)
{
	say_with(type, payload, size, 0, -1, -1);
}

static void
say_raw(const void *bytes, size_t size)
{
	must(send(channel_fd(channel), bytes, size, 0) == (ssize_t)size, "raw send");
}

static void
say_hello(uint32_t messages, uint32_t boards)
{
	struct message_hello hello = { messages, boards };

	say(MESSAGE_HELLO, &hello, sizeof(hello));
}

static void
say_serving(int32_t opened, int32_t failed)
{
	struct message_serving serving = { opened, failed };

	say(MESSAGE_SERVING, &serving, sizeof(serving));
}

static void
beat(void)
{
	board_set(&board.worker->heartbeat_ns, ending ? 0 : clock_now_ns());
}

static void
map_board(void)
{
	struct stat st;
	int32_t slots;

	must(fstat(MESSAGE_BOARD_FD, &st) == 0, "board");
	slots = (int32_t)(((size_t)st.st_size - sizeof(struct board_worker)) / sizeof(struct board_partition));
	must(board_map(&board, MESSAGE_BOARD_FD, slots, true) == 0, "board map");
	partitions = slots;
	for (int32_t i = 0; i < slots; i++) {
		board.slots[i].state = BOARD_OPEN;
		board.slots[i].opened = 1;
	}
	beat();
}

/* ---- ends of logs ---- */

/* Those of the predecessor that this one was handed, by slot, and how many. */
static struct message_end handed[SLOTS_MAX];
static int32_t handed_count;

static void
take_ends(const struct channel_message *message)
{
	struct message_ends head;

	memcpy(&head, message->payload, sizeof(head));
	must(message->size == sizeof(head) + (size_t)head.count * sizeof(handed[0]), "ENDS");
	for (int32_t i = 0; i < head.count; i++) {
		struct message_end end;

		memcpy(&end, (const char *)message->payload + sizeof(head) + (size_t)i * sizeof(end), sizeof(end));
		must(end.slot >= 0 && end.slot < SLOTS_MAX, "slot");
		handed[end.slot] = end;
		handed_count++;
	}
}

/* What it was handed, each end moved on by one. */
static struct message_end
end_of(int32_t slot)
{
	struct message_end end = handed[slot];

	end.slot = slot;
	end.end++;
	end.position += 10;
	end.file_bytes += 10;
	return end;
}

static void
say_ends(int32_t first, int32_t count)
{
	struct { struct message_ends head; struct message_end list[SLOTS_MAX]; } payload;

	memset(&payload, 0, sizeof(payload));
	payload.head.count = count;
	for (int32_t i = 0; i < count; i++)
		payload.list[i] = end_of(first + i);
	say(MESSAGE_ENDS, &payload, sizeof(payload.head) + (size_t)count * sizeof(payload.list[0]));
}

static void
say_released(int32_t ends)
{
	struct message_released released = { .ends = ends };

	say(MESSAGE_RELEASED, &released, sizeof(released));
}

/* ---- connections ---- */

static void
close_client(int index)
{
	close(clients[index]);
	clients[index] = clients[--client_count];
	board_add(&board.worker->connections_closed, 1);
}

static void
forget_client(int fd)
{
	for (int i = 0; i < client_count; i++)
		if (clients[i] == fd)
			clients[i] = clients[--client_count];
}

static void
give(int fd, int32_t group, const char *rest, size_t size, bool spilled)
{
	char payload[sizeof(struct message_connection) + MESSAGE_INLINE_MAX_BYTES];
	struct message_connection head = { .group = group };
	int memfd = -1;

	forget_client(fd);
	if (spilled) {
		memfd = memfd_create("spill", MFD_CLOEXEC);
		must(pwrite(memfd, rest, size, SPILL_BEFORE) == (ssize_t)size, "spill");
		head.spilled_position = SPILL_BEFORE;
		head.spilled_end = SPILL_BEFORE + (int64_t)size;
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 2, fd, memfd);
		return;
	}
	head.inline_bytes = (int32_t)size;
	memcpy(payload, &head, sizeof(head));
	memcpy(payload + sizeof(head), rest, size);
	say_with(MESSAGE_CONNECTION, payload, sizeof(head) + size, 1, fd, -1);
}

/* Each breaks one rule. The client's socket is only lent. */
static void
send_bad(int fd, char kind)
{
	struct message_connection head = { .group = 0 };
	struct { struct message_connection head; char bytes[8]; } more = { head, "1234567" };
	uint32_t header[4] = { MESSAGE_SERVING, 500, 0, 0 };
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), file = memfd_create("bad", MFD_CLOEXEC);

	switch (kind) {
	case 'u':
		say(4711, NULL, 0);
		break;
	case 's':
		say_with(MESSAGE_CONNECTION, &head, sizeof(head) - 8, 1, copy, -1);
		break;
	case 'g':
		head.group = 99;
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 1, copy, -1);
		break;
	case 'n':
		head.group = -1;
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 1, copy, -1);
		break;
	case 'i':
		more.head.inline_bytes = 3;
		say_with(MESSAGE_CONNECTION, &more, sizeof(more), 1, copy, -1);
		break;
	case 'I':
		head.inline_bytes = -1;
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 1, copy, -1);
		break;
	case 'd':
		say(MESSAGE_CONNECTION, &head, sizeof(head));
		break;
	case 't':
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 2, copy, file);
		break;
	case 'e':
		head.spilled_position = 8;
		head.spilled_end = 4;
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 2, copy, file);
		break;
	case 'E':
		head.spilled_end = -4;
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 1, copy, -1);
		break;
	case 'x':
		head.spilled_end = 4;	/* the file has none */
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 2, copy, file);
		break;
	case 'z':
		more.head.inline_bytes = 8;
		more.head.spilled_end = 4;
		must(ftruncate(file, 4) == 0, "ftruncate");
		say_with(MESSAGE_CONNECTION, &more, sizeof(more), 2, copy, file);
		break;
	case 'k':
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 1, file, -1);
		break;
	case 'f':
		head.frame_started_ns = clock_now_ns() + 3600 * (int64_t)CLOCK_NS_PER_S;
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 1, copy, -1);
		break;
	case 'a':
		head.active_ns = clock_now_ns() + 3600 * (int64_t)CLOCK_NS_PER_S;
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 1, copy, -1);
		break;
	case 'A':
		head.active_ns = -1;
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 1, copy, -1);
		break;
	case 'h':
		say_hello(MESSAGE_VERSION, BOARD_VERSION);
		break;
	case 'S':
		say_serving(partitions, 0);
		break;
	case 'P':
		say(MESSAGE_PREPARED, &(struct message_prepared){ 0 }, sizeof(struct message_prepared));
		break;
	case 'R':
		say_released(0);
		break;
	case 'N':
		say_ends(0, 1);
		break;
	case 'D':
		say(MESSAGE_REPLACE, "12345678", 8);
		break;
	case 'H':
		head.held_until_ns = 1;
		say_with(MESSAGE_CONNECTION, &head, sizeof(head), 1, copy, -1);
		break;
	case 'p':
		say_raw("abc", 3);
		break;
	case 'l':
		say_raw(header, sizeof(header));
		break;
	default:
		must(false, "unknown bad message");
	}
}

/* Returns false when the connection is not here any more. */
static bool
execute(int fd, const char *commands, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		char argument = i + 1 < size ? commands[i + 1] : '\0';

		switch (commands[i]) {
		case 'i':
			dprintf(fd, "%d %d\n", (int)number, (int)getpid());
			break;
		case 'g':
		case 'm':
		case 'h':
			give(fd, argument - '0', commands + i + 2, size - i - 2, commands[i] == 'm');
			if (commands[i] == 'h')
				raise(SIGKILL);
			return false;
		case 'x':
			_exit(3);
		case 'k':
			raise(SIGKILL);
			break;
		case 'a':
			abort();
		case 'c':
			shutdown(MESSAGE_CHANNEL_FD, SHUT_RDWR);
			for (;;)
				pause();
		case 'o':
			ending = true;
			beat();
			break;
		case 'w':
			board_set(&board.worker->connections_closed, INT64_MIN);
			break;
		case 'd':
			drain_way = argument;
			i++;
			break;
		case 'r':
			say(MESSAGE_REPLACE, &(struct message_replace){ 0 }, sizeof(struct message_replace));
			break;
		case 'e':
			dprintf(fd, "%d %d\n", (int)handed_count, (int)handed[0].end);
			break;
		case 'b':
			send_bad(fd, argument);
			i++;
			break;
		default:
			break;
		}
	}
	return true;
}

static void
take_connection(const struct channel_message *message)
{
	struct message_connection head;
	const char *bytes = (const char *)message->payload + sizeof(head);
	static char spilled[65536];

	memcpy(&head, message->payload, sizeof(head));
	must(head.group == number && message->size == sizeof(head) + (size_t)head.inline_bytes, "CONNECTION");
	must(client_count < CLIENTS_MAX, "too many clients");
	clients[client_count++] = message->descriptors[0];
	if (head.spilled_end > 0) {
		size_t size = (size_t)(head.spilled_end - head.spilled_position);

		must(message->descriptor_count == 2 &&
		    pread(message->descriptors[1], spilled, size, head.spilled_position) == (ssize_t)size, "spilled");
		close(message->descriptors[1]);
		execute(message->descriptors[0], spilled, size);
		return;
	}
	execute(message->descriptors[0], bytes, (size_t)head.inline_bytes);
}

static void
serve_client(int index)
{
	char commands[8192];
	int fd = clients[index];
	ssize_t n = recv(fd, commands, sizeof(commands), MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0)
		close_client(index);
	else
		execute(fd, commands, (size_t)n);
}

/* ---- the channel ---- */

/* Waits for a message. Exits when the supervisor is gone. */
static void
next_message(struct channel_message *message)
{
	for (;;) {
		struct pollfd readable = { MESSAGE_CHANNEL_FD, POLLIN, 0 };

		switch (channel_receive(channel, message)) {
		case CHANNEL_MESSAGE:
			return;
		case CHANNEL_END:
			/* The stubborn one lives on; the test that starts it ends it. */
			while (stubborn)
				pause();
			_exit(0);
		case CHANNEL_LOST:
		case CHANNEL_MALFORMED:
			must(false, "malformed");
			break;
		default:
			poll(&readable, 1, -1);
		}
	}
}

/* Everything up to the last BOARD, and PREPARED behind it. */
static void
read_setup(const char *how)
{
	struct message_prepared prepared = { 0 };
	struct channel_message message;
	struct message_setup setup;
	int32_t boards = 0, topics = 0;

	next_message(&message);
	must(message.type == MESSAGE_SETUP && message.size == sizeof(setup), "SETUP");
	memcpy(&setup, message.payload, sizeof(setup));
	number = setup.worker;
	if (strcmp(how, "diepreparing") == 0)
		_exit(5);
	while (boards < setup.group_count) {
		next_message(&message);
		topics += message.type == MESSAGE_TOPIC;
		if (message.type == MESSAGE_BOARD) {
			must(message.descriptor_count == 1, "BOARD");
			must(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, message.descriptors[0], 0) == MAP_FAILED,
			    "BOARD can be written");
			close(message.descriptors[0]);
			boards++;
		}
	}
	must(topics == setup.topic_count, "counts of SETUP");
	if (strcmp(how, "unprepared") == 0)
		for (;;)
			next_message(&message);
	if (strcmp(how, "unstarted") == 0)
		say_serving(1, 0);
	say(MESSAGE_PREPARED, &prepared, strcmp(how, "badprepared") == 0 ? 1 : sizeof(prepared));
	if (strcmp(how, "prepared2") == 0)
		say(MESSAGE_PREPARED, &prepared, sizeof(prepared));
	if (strcmp(how, "dieprepared") == 0)
		_exit(6);
}

/* The ends that a predecessor has told, and START behind them. */
static void
read_start(void)
{
	struct channel_message message;

	for (;;) {
		next_message(&message);
		if (message.type == MESSAGE_START)
			return;
		must(message.type == MESSAGE_ENDS, "ENDS or START");
		take_ends(&message);
	}
}

/* ---- a planned replacement ---- */

/* Ways to answer DRAIN that break a rule, each with what is set by 'd'. True: nothing else follows. */
static bool
drain_badly(void)
{
	switch (drain_way) {
	case 'f':
		say_ends(partitions, 1);
		return true;
	case 't':
		say_ends(0, partitions);
		say_ends(0, 1);
		return true;
	case 'm':
		say(MESSAGE_ENDS, "1234", 4);
		return true;
	case 'n':
		say_ends(0, partitions);
		say_released(partitions + 1);
		return true;
	case 'x':
		say_ends(0, partitions);
		_exit(7);
	case 's':
		return true;
	default:
		return false;
	}
}

/* Gives every client back and ends. With 'o' it keeps them, with 'k' it dies with them, with 'r' it says more than it may. */
static void
drain(void)
{
	struct channel_message message;

	if (drain_badly())
		return;
	for (int32_t i = 0; i < partitions; i += 2)
		say_ends(i, i + 1 < partitions ? 2 : 1);
	say_released(partitions);
	if (drain_way == 'r')
		say_released(partitions);
	while (drain_way == 'o' || drain_way == 'r')
		next_message(&message);
	if (drain_way == 'k')
		raise(SIGKILL);
	while (client_count > 0)
		give(clients[0], number, "", 0, false);
	_exit(0);
}

static void
serve(void)
{
	static struct pollfd watched[CLIENTS_MAX + 1];

	for (;;) {
		struct channel_message message;
		int count = client_count;

		beat();
		watched[0] = (struct pollfd){ MESSAGE_CHANNEL_FD, ending ? 0 : POLLIN, 0 };
		for (int i = 0; i < count; i++)
			watched[i + 1] = (struct pollfd){ clients[i], POLLIN, 0 };
		must(poll(watched, (nfds_t)count + 1, HEARTBEAT_MS) >= 0 || errno == EINTR, "poll");
		if (watched[0].revents != 0) {
			next_message(&message);
			if (message.type == MESSAGE_STOP && !stubborn)
				_exit(0);
			if (message.type == MESSAGE_CONNECTION)
				take_connection(&message);
			if (message.type == MESSAGE_DRAIN)
				drain();
			continue;
		}
		for (int i = count; i-- > 0;)
			if (watched[i + 1].revents != 0 && i < client_count && clients[i] == watched[i + 1].fd)
				serve_client(i);
	}
}

static void
wait_for_stop(int status)
{
	struct channel_message message;

	do
		next_message(&message);
	while (message.type != MESSAGE_STOP);
	_exit(status);
}

/* The word for this start. */
static const char *
mode(void)
{
	static char word[64];
	const char *script = getenv("FAKE_SCRIPT"), *directory = getenv("FAKE_DIR");
	char path[512];
	struct stat st;
	int fd;

	if (script == NULL || directory == NULL)
		return "serve";
	snprintf(path, sizeof(path), "%s/starts", directory);
	fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	must(fd >= 0 && flock(fd, LOCK_EX) == 0 && fstat(fd, &st) == 0 && write(fd, ".", 1) == 1, path);
	close(fd);
	for (off_t i = 0; i < st.st_size && strchr(script, ' ') != NULL; i++)
		script = strchr(script, ' ') + 1;
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(script, " "), script);
	return word;
}

int
main(void)
{
	const char *how = mode();

	signal(SIGINT, SIG_IGN);
	channel = channel_new(MESSAGE_CHANNEL_FD);
	must(channel != NULL, "channel");
	if (strcmp(how, "exit") == 0)
		_exit(1);
	if (strcmp(how, "kill") == 0)
		raise(SIGKILL);
	if (strcmp(how, "silent") == 0)
		for (;;)
			pause();
	if (strcmp(how, "version") == 0)
		say_hello(MESSAGE_VERSION + 1, BOARD_VERSION);
	else if (strcmp(how, "board") == 0)
		say_hello(MESSAGE_VERSION, BOARD_VERSION + 1);
	else if (strcmp(how, "badhello") == 0)
		say(MESSAGE_HELLO, "1234", 4);
	else if (strcmp(how, "first") == 0)
		say_serving(1, 0);
	else if (strcmp(how, "early") == 0)
		say(MESSAGE_PREPARED, &(struct message_prepared){ 0 }, sizeof(struct message_prepared));
	else
		say_hello(MESSAGE_VERSION, BOARD_VERSION);
	read_setup(how);
	read_start();
	map_board();
	if (strcmp(how, "opening") == 0)
		wait_for_stop(0);
	if (strcmp(how, "badopening") == 0) {
		fprintf(stderr, "fake worker: opening\n");
		wait_for_stop(1);
	}
	if (strcmp(how, "dieopening") == 0)
		_exit(4);
	stubborn = strcmp(how, "stubborn") == 0;
	if (strcmp(how, "counts") == 0)
		say_serving(partitions + 1, 0);
	else
		say_serving(partitions, 0);
	serve();
}
