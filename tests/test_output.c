/*
 * The output queue against a model: whatever is put in, in whatever pieces it goes out, the peer reads the same bytes
 * in the same order. Slices are of a real file whose bytes follow from their position.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit.h"
#include "worker/output.h"
#include "worker/segment.h"
#include "worker/syscalls.h"

enum { FILE_BYTES = 1024 * 1024, MODEL_BYTES = 64 * 1024 * 1024, NO_LIMIT = 1 << 30 };

static struct output output;
static struct segment *segment;
static int sender, receiver;

/* What the peer must read. */
static uint8_t *model;
static size_t model_put, model_read;

static uint8_t
file_byte(int64_t position)
{
	return (uint8_t)(position * 7 + (position >> 9));
}

static void
make_segment(void)
{
	uint8_t *bytes = malloc(FILE_BYTES);
	int fd = memfd_create("test-segment", MFD_CLOEXEC);

	for (int64_t i = 0; i < FILE_BYTES; i++)
		bytes[i] = file_byte(i);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, bytes, FILE_BYTES, 0), FILE_BYTES);
	free(bytes);
	segment = segment_new(fd, 0, RECORD_PLAIN, 4096);
	ck_assert_ptr_nonnull(segment);
}

static void
begin(void)
{
	int fds[2], small = 16 * 1024;

	memset(&output, 0, sizeof(output));
	make_segment();
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	sender = fds[0];
	receiver = fds[1];
	ck_assert_int_eq(setsockopt(sender, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	model = malloc(MODEL_BYTES);
	model_put = model_read = 0;
}

static void
end(void)
{
	output_clear(&output);
	/* All references have been given back. */
	ck_assert_int_eq(atomic_load(&segment->references), 1);
	segment_drop(segment);
	close(sender);
	close(receiver);
	free(model);
}

static void
put_bytes(size_t size, uint32_t *state)
{
	uint8_t *to = output_reserve(&output, size);

	ck_assert_ptr_nonnull(to);
	for (size_t i = 0; i < size; i++)
		to[i] = model[model_put++] = (uint8_t)unit_random(state);
	output_put(&output, size);
}

static void
put_slice(int64_t position, int64_t bytes)
{
	struct slice slice = { segment, position, bytes };

	segment_hold(segment);
	ck_assert_int_eq(output_put_slice(&output, &slice), 0);
	for (int64_t i = 0; i < bytes; i++)
		model[model_put++] = file_byte(position + i);
}

/* Reads at most `most` bytes of what is there and compares; returns their number. */
static size_t
read_some(size_t most)
{
	static uint8_t got[256 * 1024];
	size_t wanted = most < sizeof(got) ? most : sizeof(got);
	ssize_t n = recv(receiver, got, wanted, 0);

	if (n < 0) {
		ck_assert_int_eq(errno, EAGAIN);
		return 0;
	}
	ck_assert_uint_le(model_read + (size_t)n, model_put);
	ck_assert(memcmp(got, model + model_read, (size_t)n) == 0);
	model_read += (size_t)n;
	return (size_t)n;
}

static void
read_all(void)
{
	while (read_some(NO_LIMIT) > 0)
		;
}

static void
drain(void)
{
	enum output_state state;

	while ((state = output_flush(&output, sender, NO_LIMIT)) == OUTPUT_BLOCKED)
		read_all();
	ck_assert_int_eq(state, OUTPUT_DRAINED);
	read_all();
	ck_assert_uint_eq(model_read, model_put);
	ck_assert(output_empty(&output));
}

START_TEST(an_empty_queue)
{
	ck_assert(output_empty(&output));
	ck_assert_uint_eq(output_bytes(&output), 0);
	ck_assert_uint_eq(output_slices(&output), 0);
	ck_assert_int_eq(output_flush(&output, sender, NO_LIMIT), OUTPUT_DRAINED);
	ck_assert_int_eq(output_flush(&output, -1, 0), OUTPUT_DRAINED);
}
END_TEST

START_TEST(bytes_and_slices_in_their_order)
{
	uint32_t state = 1;

	put_slice(100, 50);
	put_bytes(10, &state);
	put_slice(0, 1);
	put_slice(1, 1);
	put_bytes(1, &state);
	put_bytes(1, &state);
	put_slice(5000, 9000);
	put_bytes(3, &state);
	ck_assert_uint_eq(output_bytes(&output), 15);
	ck_assert_uint_eq(output_slices(&output), 4);
	ck_assert(!output_empty(&output));
	drain();
	ck_assert_int_eq(output.slice_bytes_sent, 9052);
	ck_assert_uint_eq(output.sent, 15);
}
END_TEST

/* Random puts, flushes with random budgets and random reads, over a socket that is full most of the time. */
START_TEST(random_pieces)
{
	uint32_t state = unit_seed() + (uint32_t)_i;

	for (int round = 0; round < 3000 && model_put < MODEL_BYTES - 600 * 1024; round++) {
		switch (unit_random(&state) % 6) {
		case 0:
			put_bytes(1 + unit_random(&state) % 40, &state);
			break;
		case 1:
			put_bytes(1 + unit_random(&state) % 9000, &state);
			break;
		case 2:
			put_slice(unit_random(&state) % 1000, 1 + unit_random(&state) % 100);
			break;
		case 3:
			if (output_slices(&output) < 16)
				put_slice(unit_random(&state) % 1000, 1 + unit_random(&state) % 300000);
			break;
		case 4:
			output_flush(&output, sender, 1 + unit_random(&state) % 100000);
			break;
		default:
			read_some(1 + unit_random(&state) % 50000);
		}
	}
	drain();
}
END_TEST

START_TEST(a_full_socket_blocks)
{
	uint32_t state = 1;
	size_t left;

	put_bytes(300000, &state);
	ck_assert_int_eq(output_flush(&output, sender, NO_LIMIT), OUTPUT_BLOCKED);
	left = output_bytes(&output);
	ck_assert_uint_gt(left, 0);
	ck_assert_uint_lt(left, 300000);
	ck_assert_int_eq(output_flush(&output, sender, NO_LIMIT), OUTPUT_BLOCKED);
	ck_assert_uint_eq(output_bytes(&output), left);
	ck_assert_uint_eq(output.sent, 300000 - left);
	drain();
}
END_TEST

START_TEST(a_full_socket_blocks_in_a_slice)
{
	put_slice(0, FILE_BYTES);
	ck_assert_int_eq(output_flush(&output, sender, NO_LIMIT), OUTPUT_BLOCKED);
	ck_assert_uint_eq(output_slices(&output), 1);
	ck_assert_int_gt(output.slice_bytes_sent, 0);
	ck_assert_int_eq(atomic_load(&segment->references), 2);
	drain();
	ck_assert_int_eq(output.slice_bytes_sent, FILE_BYTES);
	ck_assert_int_eq(atomic_load(&segment->references), 1);
}
END_TEST

/* ---- Budget ---- */

static ssize_t
pretend_sendfile(int to_fd, int from_fd, off_t *position, size_t size)
{
	(void)to_fd;
	(void)from_fd;
	*position += (off_t)size;
	return (ssize_t)size;
}

START_TEST(no_more_than_the_budget_and_one_piece)
{
	struct syscalls saved = syscalls;

	syscalls.sendfile = pretend_sendfile;
	put_slice(0, FILE_BYTES);
	put_slice(0, FILE_BYTES);
	ck_assert_int_eq(output_flush(&output, sender, 1), OUTPUT_MORE);
	ck_assert_int_eq(output.slice_bytes_sent, SLICE_SENDFILE_MAX_BYTES);
	ck_assert_int_eq(output_flush(&output, sender, SLICE_SENDFILE_MAX_BYTES + 1), OUTPUT_MORE);
	ck_assert_int_eq(output.slice_bytes_sent, 3 * SLICE_SENDFILE_MAX_BYTES);
	ck_assert_int_eq(output_flush(&output, sender, 0), OUTPUT_MORE);
	ck_assert_int_eq(output.slice_bytes_sent, 3 * SLICE_SENDFILE_MAX_BYTES);
	/* Used up with the last byte: drained all the same. */
	ck_assert_int_eq(output_flush(&output, sender, 2 * FILE_BYTES - 3 * SLICE_SENDFILE_MAX_BYTES), OUTPUT_DRAINED);
	syscalls = saved;
}
END_TEST

/* ---- System calls that do less, or nothing ---- */

static int calls;

/* Every second call is interrupted; the others send at most 1000 bytes. */
static ssize_t
reluctant_sendfile(int to_fd, int from_fd, off_t *position, size_t size)
{
	uint8_t piece[1000];
	ssize_t n;

	if (calls++ % 2 == 0) {
		errno = EINTR;
		return -1;
	}
	n = pread(from_fd, piece, size < sizeof(piece) ? size : sizeof(piece), *position);
	n = send(to_fd, piece, (size_t)n, MSG_NOSIGNAL);
	if (n > 0)
		*position += n;
	return n;
}

START_TEST(short_and_interrupted_sends)
{
	struct syscalls saved = syscalls;
	uint32_t state = 1;

	syscalls.sendfile = reluctant_sendfile;
	put_bytes(10, &state);
	put_slice(3, 123456);
	put_bytes(10, &state);
	put_slice(9, 999);
	drain();
	syscalls = saved;
}
END_TEST

START_TEST(a_file_that_ends_inside_a_slice)
{
	uint32_t state = 1;

	put_bytes(4, &state);
	put_slice(0, 8000);
	put_slice(0, 10);
	ck_assert_int_eq(ftruncate(segment->fd, 5000), 0);
	ck_assert_int_eq(output_flush(&output, sender, NO_LIMIT), OUTPUT_CUT);
	ck_assert_int_eq(output.slice_bytes_sent, 5000);
	read_all();
	ck_assert_uint_eq(model_read, 4 + 5000);
	output_clear(&output);
	ck_assert_int_eq(atomic_load(&segment->references), 1);
	ck_assert(output_empty(&output));
}
END_TEST

START_TEST(a_peer_that_is_gone)
{
	uint32_t state = 1;

	signal(SIGPIPE, SIG_IGN);
	close(receiver);
	receiver = -1;
	put_bytes(4, &state);
	ck_assert_int_eq(output_flush(&output, sender, NO_LIMIT), OUTPUT_GONE);
	output_clear(&output);
	put_slice(0, 8000);
	ck_assert_int_eq(output_flush(&output, sender, NO_LIMIT), OUTPUT_GONE);
}
END_TEST

/* ---- Memory ---- */

START_TEST(a_drained_queue_keeps_little)
{
	uint32_t state = 1;

	for (size_t size = 1; size <= 2 * 1024 * 1024; size *= 4) {
		put_bytes(size, &state);
		drain();
		ck_assert_uint_le(output.capacity, 4096);
		ck_assert_uint_eq(output.slice_head, 0);
	}
}
END_TEST

/* A queue that is never quite empty must not grow with what has gone through it. */
START_TEST(a_busy_queue_does_not_grow)
{
	uint32_t state = 1;

	put_bytes(1000, &state);
	put_slice(0, 100);
	for (int i = 0; i < 2000; i++) {
		put_bytes(1000, &state);
		put_slice(i, 100);
		while (output.slice_bytes_sent < (i + 1) * 100) {
			ck_assert_int_ne(output_flush(&output, sender, 1), OUTPUT_DRAINED);
			read_all();
		}
	}
	ck_assert_uint_le(output.capacity, 16 * 1024);
	ck_assert_uint_le(output.slice_capacity, 8);
	drain();
}
END_TEST

START_TEST(cleared_in_the_middle)
{
	uint32_t state = 1;

	for (int i = 0; i < 10; i++) {
		put_bytes(100, &state);
		put_slice(i, 50000);
	}
	ck_assert_int_eq(output_flush(&output, sender, 60000), OUTPUT_BLOCKED);
	ck_assert_int_gt(atomic_load(&segment->references), 2);
	output_clear(&output);
	ck_assert(output_empty(&output));
	ck_assert_int_eq(atomic_load(&segment->references), 1);
	read_all();
	/* And it is a queue again. */
	model_put = model_read = 0;
	put_bytes(5, &state);
	put_slice(5, 5);
	drain();
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("output");
	TCase *tests = tcase_create("output");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(tests, begin, end);
	tcase_add_test(tests, an_empty_queue);
	tcase_add_test(tests, bytes_and_slices_in_their_order);
	tcase_add_loop_test(tests, random_pieces, 0, 4);
	tcase_add_test(tests, a_full_socket_blocks);
	tcase_add_test(tests, a_full_socket_blocks_in_a_slice);
	tcase_add_test(tests, no_more_than_the_budget_and_one_piece);
	tcase_add_test(tests, short_and_interrupted_sends);
	tcase_add_test(tests, a_file_that_ends_inside_a_slice);
	tcase_add_test(tests, a_peer_that_is_gone);
	tcase_add_test(tests, a_drained_queue_keeps_little);
	tcase_add_test(tests, a_busy_queue_does_not_grow);
	tcase_add_test(tests, cleared_in_the_middle);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
