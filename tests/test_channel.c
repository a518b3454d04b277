/*
 * Channels: order, descriptors, limits, and the ends: a full socket, a dead peer, a process without room, packets that
 * the other end should never have sent. Each test ends with as many open descriptors as it began with.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/channel.h"
#include "tests/unit.h"

enum { HEADER_BYTES = 16 };

static int descriptors_before;
static struct channel *a, *b;

static void
begin(void)
{
	int fds[2];

	descriptors_before = unit_open_descriptors();
	ck_assert_int_eq(channel_pair(fds), 0);
	a = channel_new(fds[0]);
	b = channel_new(fds[1]);
	ck_assert_ptr_nonnull(a);
	ck_assert_ptr_nonnull(b);
}

static void
end(void)
{
	channel_free(a);
	channel_free(b);
	ck_assert_int_eq(unit_open_descriptors(), descriptors_before);
}

/* A descriptor of a file that can be told from others by its inode. */
static int
new_file(ino_t *inode)
{
	struct stat st;
	int fd = memfd_create("test", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	*inode = st.st_ino;
	return fd;
}

static ino_t
inode_of(int fd)
{
	struct stat st;

	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_ino;
}

static bool
is_open(int fd)
{
	return fcntl(fd, F_GETFD) != -1;
}

static void
queue(struct channel *channel, uint32_t type, const void *payload, size_t size, int descriptor_count, int d0, int d1)
{
	struct channel_message message = { type, size, payload, descriptor_count, { d0, d1 } };

	ck_assert_int_eq(channel_queue(channel, &message), 0);
}

static void
queue_plain(struct channel *channel, uint32_t type)
{
	queue(channel, type, "payload", 7, 0, -1, -1);
}

static void
expect_type(struct channel *channel, uint32_t type)
{
	struct channel_message message;

	ck_assert_int_eq(channel_receive(channel, &message), CHANNEL_MESSAGE);
	ck_assert_uint_eq(message.type, type);
	for (int i = 0; i < message.descriptor_count; i++)
		close(message.descriptors[i]);
}

static void
expect_news(struct channel *channel, enum channel_received news)
{
	struct channel_message message;

	ck_assert_int_eq(channel_receive(channel, &message), news);
}

/* A packet past the channel's own hands, with `count` copies of a descriptor. */
static void
send_raw(struct channel *channel, const void *packet, size_t size, int count)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(8 * sizeof(int))];
	} control;
	struct iovec part = { (void *)(uintptr_t)packet, size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int fds[8];

	memset(&control, 0, sizeof(control));
	for (int i = 0; i < count; i++)
		fds[i] = STDIN_FILENO;
	if (count > 0) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, (size_t)count * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
	}
	ck_assert_int_eq(sendmsg(channel_fd(channel), &message, MSG_NOSIGNAL), (ssize_t)size);
}

struct raw_header {
	uint32_t type, size, descriptor_count, reserved;
};

START_TEST(both_ends_are_non_blocking_and_close_on_exec)
{
	struct channel *ends[] = { a, b };

	for (size_t i = 0; i < 2; i++) {
		ck_assert((fcntl(channel_fd(ends[i]), F_GETFL) & O_NONBLOCK) != 0);
		ck_assert((fcntl(channel_fd(ends[i]), F_GETFD) & FD_CLOEXEC) != 0);
	}
	expect_news(a, CHANNEL_NOTHING);
	ck_assert_int_eq(channel_flush(a), CHANNEL_IDLE);
}
END_TEST

START_TEST(every_size_arrives_as_it_was)
{
	static const size_t sizes[] = { 0, 1, 7, 8, 9, 4096, 16 * 1024, CHANNEL_PAYLOAD_MAX - 1, CHANNEL_PAYLOAD_MAX };
	uint8_t *payload = malloc(CHANNEL_PAYLOAD_MAX);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct channel_message message;

		for (size_t n = 0; n < sizes[i]; n++)
			payload[n] = (uint8_t)(n * 31 + i);
		queue(a, 100 + (uint32_t)i, payload, sizes[i], 0, -1, -1);
		ck_assert_uint_eq(channel_queued(a), 1);
		ck_assert_int_eq(channel_flush(a), CHANNEL_IDLE);
		ck_assert_uint_eq(channel_queued(a), 0);
		ck_assert_int_eq(channel_receive(b, &message), CHANNEL_MESSAGE);
		ck_assert_uint_eq(message.type, 100 + i);
		ck_assert_uint_eq(message.size, sizes[i]);
		ck_assert_int_eq(message.descriptor_count, 0);
		ck_assert_uint_eq((uintptr_t)message.payload % 8, 0);
		ck_assert(sizes[i] == 0 || memcmp(message.payload, payload, sizes[i]) == 0);
	}
	free(payload);
}
END_TEST

/* The queue takes a copy: what the caller does with its own afterwards is of no account. Nothing is sent unasked. */
START_TEST(a_copy_is_queued)
{
	struct channel_message message;
	char text[] = "before";

	queue(a, 1, text, sizeof(text), 0, -1, -1);
	memset(text, 'x', sizeof(text));
	expect_news(b, CHANNEL_NOTHING);
	ck_assert_int_eq(channel_flush(a), CHANNEL_IDLE);
	ck_assert_int_eq(channel_receive(b, &message), CHANNEL_MESSAGE);
	ck_assert_str_eq(message.payload, "before");
}
END_TEST

START_TEST(both_directions_at_once)
{
	for (uint32_t i = 0; i < 50; i++) {
		queue_plain(a, i);
		queue_plain(b, 1000 + i);
	}
	ck_assert_int_eq(channel_flush(a), CHANNEL_IDLE);
	ck_assert_int_eq(channel_flush(b), CHANNEL_IDLE);
	for (uint32_t i = 0; i < 50; i++) {
		expect_type(a, 1000 + i);
		expect_type(b, i);
	}
}
END_TEST

START_TEST(descriptors_travel_and_the_senders_copies_are_closed)
{
	struct channel_message message;
	ino_t first, second;
	int fds[2] = { new_file(&first), new_file(&second) };

	queue(a, 1, "x", 1, 2, fds[0], fds[1]);
	ck_assert(is_open(fds[0]) && is_open(fds[1]));
	ck_assert_int_eq(channel_flush(a), CHANNEL_IDLE);
	ck_assert(!is_open(fds[0]) && !is_open(fds[1]));
	ck_assert_int_eq(channel_receive(b, &message), CHANNEL_MESSAGE);
	ck_assert_int_eq(message.descriptor_count, 2);
	ck_assert_uint_eq(inode_of(message.descriptors[0]), first);
	ck_assert_uint_eq(inode_of(message.descriptors[1]), second);
	for (int i = 0; i < 2; i++) {
		ck_assert((fcntl(message.descriptors[i], F_GETFD) & FD_CLOEXEC) != 0);
		close(message.descriptors[i]);
	}
	fds[0] = new_file(&first);
	queue(a, 2, NULL, 0, 1, fds[0], -1);
	ck_assert_int_eq(channel_flush(a), CHANNEL_IDLE);
	ck_assert_int_eq(channel_receive(b, &message), CHANNEL_MESSAGE);
	ck_assert_int_eq(message.descriptor_count, 1);
	ck_assert_uint_eq(message.size, 0);
	ck_assert_uint_eq(inode_of(message.descriptors[0]), first);
	close(message.descriptors[0]);
}
END_TEST

START_TEST(too_large_is_refused_and_the_descriptor_stays_the_callers)
{
	static const uint8_t payload[CHANNEL_PAYLOAD_MAX + 1];
	ino_t inode;
	int fd = new_file(&inode);
	struct channel_message message = { 1, sizeof(payload), payload, 1, { fd, -1 } };

	ck_assert_int_eq(channel_queue(a, &message), -1);
	ck_assert_int_eq(errno, EMSGSIZE);
	ck_assert_uint_eq(channel_queued(a), 0);
	ck_assert_int_eq(channel_flush(a), CHANNEL_IDLE);
	ck_assert(is_open(fd));
	close(fd);
	expect_news(b, CHANNEL_NOTHING);
}
END_TEST

/* ---- Malformed ---- */

static void
expect_malformed(const void *packet, size_t size, int descriptor_count)
{
	int before = unit_open_descriptors();

	send_raw(a, packet, size, descriptor_count);
	expect_news(b, CHANNEL_MALFORMED);
	ck_assert_int_eq(unit_open_descriptors(), before);
	/* It is over with that packet: the next one is read as ever. */
	queue_plain(a, 5);
	ck_assert_int_eq(channel_flush(a), CHANNEL_IDLE);
	expect_type(b, 5);
}

START_TEST(a_header_that_is_not_whole)
{
	struct raw_header header = { 1, 0, 0, 0 };

	for (size_t size = 1; size < sizeof(header); size++)
		expect_malformed(&header, size, 0);
	expect_malformed(&header, 5, 1);
}
END_TEST

START_TEST(a_size_that_is_not_the_packets)
{
	static const uint32_t sizes[] = { 0, 7, 9, 0x7FFFFFFF, 0xFFFFFFFF, 0xFFFFFFF8 };
	uint8_t packet[HEADER_BYTES + 8] = { 0 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct raw_header header = { 1, sizes[i], 0, 0 };

		memcpy(packet, &header, sizeof(header));
		expect_malformed(packet, sizeof(packet), 0);
	}
}
END_TEST

START_TEST(a_descriptor_count_that_is_not_the_packets)
{
	for (int told = 0; told <= 3; told++)
		for (int sent = 0; sent <= 2; sent++) {
			struct raw_header header = { 1, 0, (uint32_t)told, 0 };

			if (told != sent)
				expect_malformed(&header, sizeof(header), sent);
		}
}
END_TEST

/* MSG_CTRUNC: more descriptors than a message may have. Those that came must not stay. */
START_TEST(more_descriptors_than_allowed)
{
	for (int count = 3; count <= 8; count++) {
		struct raw_header header = { 1, 0, (uint32_t)count, 0 };

		expect_malformed(&header, sizeof(header), count);
		header.descriptor_count = CHANNEL_DESCRIPTORS_MAX;
		expect_malformed(&header, sizeof(header), count);
	}
}
END_TEST

/* MSG_TRUNC: a packet larger than any message. Its header tells the size that would fit what was read. */
START_TEST(a_packet_larger_than_allowed)
{
	uint8_t *packet = calloc(1, HEADER_BYTES + CHANNEL_PAYLOAD_MAX + 1);
	struct raw_header header = { 1, CHANNEL_PAYLOAD_MAX, 1, 0 };

	memcpy(packet, &header, sizeof(header));
	expect_malformed(packet, HEADER_BYTES + CHANNEL_PAYLOAD_MAX + 1, 1);
	free(packet);
}
END_TEST

/* Looks like the end, but for what it carries. */
START_TEST(an_empty_packet_with_descriptors)
{
	expect_malformed("", 0, 2);
	expect_malformed("", 0, 3);
}
END_TEST

/* ---- Full, and then not ---- */

START_TEST(a_full_socket_blocks_and_loses_nothing)
{
	uint8_t payload[4000];
	uint32_t received = 0;
	enum channel_state state;

	memset(payload, 9, sizeof(payload));
	for (uint32_t i = 0; i < 500; i++)
		queue(a, i, payload, sizeof(payload), 0, -1, -1);
	ck_assert_int_eq(channel_flush(a), CHANNEL_BLOCKED);
	ck_assert_uint_gt(channel_queued(a), 0);
	ck_assert_uint_lt(channel_queued(a), 500);
	/* Control behind connections does not overtake them. */
	queue_plain(a, 500);
	ck_assert_int_eq(channel_flush(a), CHANNEL_BLOCKED);
	do {
		state = channel_flush(a);
		expect_type(b, received++);
	} while (state == CHANNEL_BLOCKED);
	ck_assert_int_eq(state, CHANNEL_IDLE);
	while (received <= 500)
		expect_type(b, received++);
	expect_news(b, CHANNEL_NOTHING);
}
END_TEST

/* A user of nobody else's: descriptors in flight are counted per user. */
static uid_t
unprivileged_user(void)
{
	return 30000 + (uid_t)getpid() % 30000;
}

/* Runs in a process without privileges and with a small limit: so many descriptors may be in flight and no more. */
static void
meet_too_many_references(void)
{
	enum channel_state state = CHANNEL_IDLE;
	uint32_t queued = 0, received = 0;
	uid_t user = unprivileged_user();
	struct pollfd writable = { .fd = channel_fd(a), .events = POLLOUT };

	ck_assert(geteuid() != 0 || setresuid(user, user, user) == 0);
	while (state == CHANNEL_IDLE && queued < 200) {
		ino_t ignored;
		int first = new_file(&ignored), second = new_file(&ignored);

		queue(a, queued++, "x", 1, 2, first, second);
		state = channel_flush(a);
	}
	ck_assert_int_eq(state, CHANNEL_LATER);
	/* Why it needs a timer: the socket says that one may send. */
	ck_assert_int_eq(poll(&writable, 1, 0), 1);
	ck_assert_int_eq(channel_flush(a), CHANNEL_LATER);
	ck_assert_uint_eq(channel_queued(a), 1);
	while (received < queued - 1)
		expect_type(b, received++);
	expect_news(b, CHANNEL_NOTHING);
	/* Started without privileges, other processes of this user may have some in flight as well. */
	while ((state = channel_flush(a)) == CHANNEL_LATER)
		sched_yield();
	ck_assert_int_eq(state, CHANNEL_IDLE);
	expect_type(b, received);
}

START_TEST(too_many_descriptors_in_flight_means_later)
{
	struct rlimit limit;
	int go[2], status;
	char byte;
	pid_t child;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, go), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		if (write(go[0], "", 1) == 1 && read(go[0], &byte, 1) == 1)
			meet_too_many_references();
		_exit(0);
	}
	/* From here, and not by the child itself, since valgrind only pretends to its own process that a limit was set. */
	ck_assert_int_eq(read(go[1], &byte, 1), 1);
	ck_assert_int_eq(prlimit(child, RLIMIT_NOFILE, NULL, &limit), 0);
	limit.rlim_cur = 40;
	ck_assert_int_eq(prlimit(child, RLIMIT_NOFILE, &limit, NULL), 0);
	ck_assert_int_eq(write(go[1], "", 1), 1);
	close(go[0]);
	close(go[1]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

/* ---- No room ---- */

/* Opens copies until `free` descriptors are left; returns how many it has opened. */
static int
use_up_descriptors(int *copies, int limit, int left)
{
	int count = 0;

	while (count < limit && (copies[count] = dup(STDIN_FILENO)) >= 0)
		count++;
	ck_assert_int_eq(errno, EMFILE);
	while (left-- > 0)
		close(copies[--count]);
	return count;
}

START_TEST(without_room_nothing_is_received_and_nothing_lost)
{
	struct rlimit before, limit;
	struct channel_message message;
	ino_t first, second;
	int fds[2] = { new_file(&first), new_file(&second) };
	int copies[128], count;

	queue(a, 1, "x", 1, 2, fds[0], fds[1]);
	ck_assert_int_eq(channel_flush(a), CHANNEL_IDLE);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){ 100, before.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (int left = 0; left <= 1; left++) {
		count = use_up_descriptors(copies, 128, left);
		expect_news(b, CHANNEL_NO_ROOM);
		expect_news(b, CHANNEL_NO_ROOM);
		while (count > 0)
			close(copies[--count]);
	}
	count = use_up_descriptors(copies, 128, 2);
	ck_assert_int_eq(channel_receive(b, &message), CHANNEL_MESSAGE);
	while (count > 0)
		close(copies[--count]);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	ck_assert_int_eq(message.descriptor_count, 2);
	ck_assert_uint_eq(inode_of(message.descriptors[0]), first);
	ck_assert_uint_eq(inode_of(message.descriptors[1]), second);
	close(message.descriptors[0]);
	close(message.descriptors[1]);
}
END_TEST

/* ---- Ends ---- */

START_TEST(what_a_dead_peer_has_sent_is_read_to_the_end)
{
	int status;
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		for (uint32_t i = 0; i < 20; i++) {
			ino_t inode;

			queue(b, i, &i, sizeof(i), 1, new_file(&inode), -1);
		}
		_exit(channel_flush(b) == CHANNEL_IDLE ? 0 : 1);
	}
	channel_free(b);
	b = NULL;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	for (uint32_t i = 0; i < 20; i++)
		expect_type(a, i);
	expect_news(a, CHANNEL_END);
	expect_news(a, CHANNEL_END);
}
END_TEST

/* A peer that leaves messages unread: the kernel tells ECONNRESET ahead of what it had sent. */
START_TEST(a_reset_comes_ahead_of_what_is_still_there)
{
	char byte;
	int raw[2];

	/* So it is: seen without a channel. */
	ck_assert_int_eq(channel_pair(raw), 0);
	ck_assert_int_eq(send(raw[0], "x", 1, 0), 1);
	ck_assert_int_eq(send(raw[1], "y", 1, 0), 1);
	close(raw[1]);
	ck_assert_int_eq(recv(raw[0], &byte, 1, 0), -1);
	ck_assert_int_eq(errno, ECONNRESET);
	ck_assert_int_eq(recv(raw[0], &byte, 1, 0), 1);
	close(raw[0]);

	queue_plain(a, 1);
	ck_assert_int_eq(channel_flush(a), CHANNEL_IDLE);
	for (uint32_t i = 0; i < 10; i++) {
		ino_t inode;

		queue(b, i, "x", 1, 1, new_file(&inode), -1);
	}
	ck_assert_int_eq(channel_flush(b), CHANNEL_IDLE);
	channel_free(b);
	b = NULL;
	for (uint32_t i = 0; i < 10; i++)
		expect_type(a, i);
	expect_news(a, CHANNEL_END);
}
END_TEST

/* Sending to a dead peer says so, kills nobody, and what the peer had sent is there all the same. */
START_TEST(a_broken_channel_can_still_be_read)
{
	ino_t inode;
	int fd = new_file(&inode);

	queue_plain(b, 7);
	ck_assert_int_eq(channel_flush(b), CHANNEL_IDLE);
	channel_free(b);
	b = NULL;
	queue(a, 1, "x", 1, 1, fd, -1);
	ck_assert_int_eq(channel_flush(a), CHANNEL_BROKEN);
	ck_assert_int_eq(channel_flush(a), CHANNEL_BROKEN);
	ck_assert_uint_eq(channel_queued(a), 1);
	ck_assert(is_open(fd));
	expect_type(a, 7);
	expect_news(a, CHANNEL_END);
}
END_TEST

/* ---- The queue of a dead worker ---- */

START_TEST(unqueued_in_order_with_their_descriptors)
{
	struct channel_message message;
	ino_t inodes[5];

	for (uint32_t i = 0; i < 5; i++)
		queue(a, i, &i, sizeof(i), 1, new_file(&inodes[i]), -1);
	for (uint32_t i = 0; i < 5; i++) {
		ck_assert_uint_eq(channel_queued(a), 5 - i);
		ck_assert(channel_unqueue(a, &message));
		ck_assert_uint_eq(message.type, i);
		ck_assert_uint_eq(message.size, sizeof(i));
		ck_assert_mem_eq(message.payload, &i, sizeof(i));
		ck_assert_int_eq(message.descriptor_count, 1);
		ck_assert_uint_eq(inode_of(message.descriptors[0]), inodes[i]);
		/* It can go straight into another queue. */
		ck_assert_int_eq(channel_queue(b, &message), 0);
	}
	ck_assert(!channel_unqueue(a, &message));
	ck_assert_uint_eq(channel_queued(a), 0);
	ck_assert_int_eq(channel_flush(b), CHANNEL_IDLE);
	for (uint32_t i = 0; i < 5; i++)
		expect_type(a, i);
	/* And the emptied queue is a queue again. */
	queue_plain(a, 9);
	ck_assert_int_eq(channel_flush(a), CHANNEL_IDLE);
	expect_type(b, 9);
}
END_TEST

START_TEST(freeing_closes_what_waits)
{
	ino_t inode;

	for (uint32_t i = 0; i < 5; i++) {
		int first = new_file(&inode);

		queue(a, i, NULL, 0, 2, first, new_file(&inode));
	}
	channel_free(NULL);
	/* The rest is told by the count of descriptors at the end. */
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("channel");
	TCase *tests = tcase_create("channel");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(tests, begin, end);
	tcase_add_test(tests, both_ends_are_non_blocking_and_close_on_exec);
	tcase_add_test(tests, every_size_arrives_as_it_was);
	tcase_add_test(tests, a_copy_is_queued);
	tcase_add_test(tests, both_directions_at_once);
	tcase_add_test(tests, descriptors_travel_and_the_senders_copies_are_closed);
	tcase_add_test(tests, too_large_is_refused_and_the_descriptor_stays_the_callers);
	tcase_add_test(tests, a_header_that_is_not_whole);
	tcase_add_test(tests, a_size_that_is_not_the_packets);
	tcase_add_test(tests, a_descriptor_count_that_is_not_the_packets);
	tcase_add_test(tests, more_descriptors_than_allowed);
	tcase_add_test(tests, a_packet_larger_than_allowed);
	tcase_add_test(tests, an_empty_packet_with_descriptors);
	tcase_add_test(tests, a_full_socket_blocks_and_loses_nothing);
	tcase_add_test(tests, too_many_descriptors_in_flight_means_later);
	tcase_add_test(tests, without_room_nothing_is_received_and_nothing_lost);
	tcase_add_test(tests, what_a_dead_peer_has_sent_is_read_to_the_end);
	tcase_add_test(tests, a_reset_comes_ahead_of_what_is_still_there);
	tcase_add_test(tests, a_broken_channel_can_still_be_read);
	tcase_add_test(tests, unqueued_in_order_with_their_descriptors);
	tcase_add_test(tests, freeing_closes_what_waits);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
