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

enum { FILE_BYTES = 8 * 1024 * 1024, MODEL_BYTES = 64 * 1024 * 1024, NO_LIMIT = 1 << 30 };

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

/* ---- What is not in memory ---- */

enum { PAGE = 4096, PAGES = FILE_BYTES / PAGE + 1 };

static bool in_memory[PAGES];
static bool keeps_nothing;	/* what is read does not show in memory */
static int read_error;
static int64_t advised_from, advised_end;

static void
bring(int64_t position, int64_t bytes)
{
	for (int64_t page = position / PAGE; page <= (position + bytes - 1) / PAGE && page < PAGES; page++)
		in_memory[page] = !keeps_nothing;
}

static int
pretend_mincore(void *address, size_t size, unsigned char *pages)
{
	size_t first = (size_t)((uint8_t *)address - segment->residency.map) / PAGE;

	for (size_t i = 0; i * PAGE < size; i++)
		pages[i] = in_memory[first + i];
	return 0;
}

static ssize_t
pretend_pread(int fd, void *to, size_t size, off_t position)
{
	if (read_error != 0) {
		errno = read_error;
		return -1;
	}
	bring(position, (int64_t)size);
	return pread(fd, to, size, position);
}

/* The pieces of one read follow each other. */
static int
pretend_fadvise(int fd, off_t position, off_t size, int advice)
{
	(void)fd;
	ck_assert_int_eq(advice, POSIX_FADV_WILLNEED);
	if (position != advised_end)
		advised_from = position;
	advised_end = position + size;
	bring(position, size);
	return 0;
}

static struct syscalls real;

static void
begin_cold(void)
{
	begin();
	real = syscalls;
	segment->bytes = FILE_BYTES;
	memset(in_memory, 0, sizeof(in_memory));
	keeps_nothing = false;
	read_error = 0;
	advised_from = advised_end = -1;
	syscalls.mincore = pretend_mincore;
	syscalls.pread = pretend_pread;
	syscalls.fadvise = pretend_fadvise;
}

static void
end_cold(void)
{
	syscalls = real;
	end();
}

/* The read that is asked for, from there on, and so long. */
static struct slice_read
expect_read(bool cold, int64_t position, int64_t bytes, int64_t awaited_bytes)
{
	struct slice_read read;

	ck_assert(output_next_read(&output, cold, &read));
	ck_assert_int_eq(read.position, position);
	ck_assert_int_eq(read.bytes, bytes);
	ck_assert_int_eq(read.awaited_bytes, awaited_bytes);
	return read;
}

static void
expect_no_read(bool cold)
{
	struct slice_read read;

	ck_assert(!output_next_read(&output, cold, &read));
}

static void
run(struct slice_read *read)
{
	slice_read_run(read);
	output_read_done(&output, read);
	slice_read_end(read);
}

static enum output_state
flush_and_read(void)
{
	enum output_state state;

	while ((state = output_flush(&output, sender, NO_LIMIT)) == OUTPUT_BLOCKED)
		read_all();
	read_all();
	return state;
}

START_TEST(what_is_not_in_memory_waits_for_a_read)
{
	struct slice_read read;
	uint32_t state = 1;

	put_bytes(10, &state);
	put_slice(5000, 300000);
	ck_assert_int_eq(flush_and_read(), OUTPUT_COLD);
	/* The bytes before it have gone. */
	ck_assert_uint_eq(model_read, 10);
	ck_assert_int_eq(flush_and_read(), OUTPUT_COLD);
	ck_assert_uint_eq(model_read, 10);
	read = expect_read(true, 5000, 300000, SLICE_SENDFILE_MAX_BYTES);
	ck_assert_int_eq(atomic_load(&segment->references), 3);
	run(&read);
	ck_assert_int_eq(advised_from, 5000);
	ck_assert_int_eq(advised_end, 305000);
	ck_assert_int_eq(flush_and_read(), OUTPUT_DRAINED);
	ck_assert_uint_eq(model_read, model_put);
}
END_TEST

START_TEST(what_is_in_memory_in_front_of_it_goes)
{
	struct slice_read read;

	put_slice(100, 100000);
	bring(0, 3 * PAGE);
	bring(5 * PAGE, PAGE);
	ck_assert_int_eq(flush_and_read(), OUTPUT_COLD);
	ck_assert_uint_eq(model_read, 3 * PAGE - 100);
	/* A short slice: a little more is read. */
	read = expect_read(true, 3 * PAGE, 128 * 1024, 100100 - 3 * PAGE);
	run(&read);
	ck_assert_int_eq(flush_and_read(), OUTPUT_DRAINED);
	ck_assert_uint_eq(model_read, model_put);
}
END_TEST

/* Pages that are gone again, or that a file system never shows: some reads, and then it is sent all the same. */
START_TEST(progress_is_certain)
{
	struct slice_read read;
	int reads = 0;

	keeps_nothing = true;
	put_slice(0, 600000);
	while (flush_and_read() == OUTPUT_COLD) {
		ck_assert(output_next_read(&output, true, &read));
		run(&read);
		ck_assert_int_lt(++reads, 100);
	}
	ck_assert(output_empty(&output));
	ck_assert_uint_eq(model_read, model_put);
	/* Each of the two pieces that were waited for has had its tries. */
	ck_assert_int_eq(reads, 6);
}
END_TEST

START_TEST(what_cannot_be_read_cuts)
{
	int errors[] = { EIO, ESTALE };
	struct slice_read read;

	put_slice(0, 600000);
	ck_assert_int_eq(flush_and_read(), OUTPUT_COLD);
	read_error = errors[_i];
	keeps_nothing = true;
	read = expect_read(true, 0, 600000, SLICE_SENDFILE_MAX_BYTES);
	run(&read);
	ck_assert_int_eq(flush_and_read(), OUTPUT_CUT);
	ck_assert_uint_eq(model_read, 0);
}
END_TEST

/* What could not be read is in memory all the same when it is looked for again: somebody else has read it. */
START_TEST(what_could_not_be_read_once_does_not_cut_later)
{
	struct slice_read read;

	put_slice(0, 100000);
	ck_assert_int_eq(flush_and_read(), OUTPUT_COLD);
	read_error = EIO;
	read = expect_read(true, 0, 128 * 1024, 100000);
	run(&read);
	bring(0, 100000);
	ck_assert_int_eq(flush_and_read(), OUTPUT_DRAINED);
	read_error = 0;
	put_slice(300000, 100000);
	ck_assert_int_eq(flush_and_read(), OUTPUT_COLD);
	ck_assert(output_next_read(&output, true, &read));
	run(&read);
	ck_assert_int_eq(flush_and_read(), OUTPUT_DRAINED);
	ck_assert_uint_eq(model_read, model_put);
}
END_TEST

START_TEST(a_file_that_ends_before_what_is_read_cuts)
{
	struct slice_read read;

	put_slice(0, 600000);
	ck_assert_int_eq(ftruncate(segment->fd, PAGE), 0);
	keeps_nothing = true;
	ck_assert_int_eq(flush_and_read(), OUTPUT_COLD);
	read = expect_read(true, 0, 600000, SLICE_SENDFILE_MAX_BYTES);
	run(&read);
	ck_assert_int_eq(flush_and_read(), OUTPUT_CUT);
}
END_TEST

/* A read that ends behind the queue's end, or in another place, says nothing about what stands there now. */
START_TEST(a_read_that_comes_too_late)
{
	struct slice_read read;

	put_slice(0, 1000);
	ck_assert_int_eq(flush_and_read(), OUTPUT_COLD);
	read = expect_read(true, 0, 128 * 1024, 1000);
	output_clear(&output);
	ck_assert_int_eq(atomic_load(&segment->references), 2);
	read_error = EIO;
	run(&read);
	ck_assert_int_eq(atomic_load(&segment->references), 1);
	model_put = 0;
	put_slice(0, 1000);
	read_error = 0;
	read = expect_read(true, 0, 128 * 1024, 1000);
	bring(0, 1000);
	ck_assert_int_eq(flush_and_read(), OUTPUT_DRAINED);
	put_slice(500000, 1000);
	read_error = EIO;
	run(&read);
	bring(500000, 1000);
	ck_assert_int_eq(flush_and_read(), OUTPUT_DRAINED);
	ck_assert_uint_eq(model_read, model_put);
}
END_TEST

/* Small slices one behind the other, as a client asks that replays a log: after two waits all is there when it comes. */
START_TEST(a_reader_in_order_is_read_ahead_of)
{
	enum { STEP = 16 * 1024 };
	struct slice_read read;
	int waits = 0, ahead = 0;

	for (int64_t at = 0; at < FILE_BYTES; at += STEP) {
		put_slice(at, STEP);
		if (output_next_read(&output, false, &read)) {
			ck_assert_int_eq(read.awaited_bytes, 0);
			ck_assert_int_ge(read.position, at);
			ck_assert_int_le(read.position - at, 1024 * 1024);
			run(&read);
			ahead++;
		}
		if (flush_and_read() == OUTPUT_COLD) {
			ck_assert(output_next_read(&output, true, &read));
			run(&read);
			waits++;
			ck_assert_int_eq(flush_and_read(), OUTPUT_DRAINED);
		}
	}
	ck_assert_int_eq(waits, 2);
	ck_assert_int_eq(ahead, FILE_BYTES / (1024 * 1024) - 1);
	ck_assert_int_eq(advised_end, FILE_BYTES);
	ck_assert_uint_eq(model_read, model_put);
}
END_TEST

/* What others have read before, and a log's end, need no reading ahead; nor does a reader that jumps about. */
START_TEST(nothing_is_read_ahead_in_vain)
{
	struct slice_read read;

	bring(2 * 1024 * 1024, FILE_BYTES / 2);
	for (int64_t at = 0; at < 3; at++) {
		put_slice(at * 100000, 100000);
		if (flush_and_read() == OUTPUT_COLD) {
			ck_assert(output_next_read(&output, true, &read));
			run(&read);
			ck_assert_int_eq(flush_and_read(), OUTPUT_DRAINED);
		}
	}
	ck_assert_int_gt(output.ahead.end, 1000000);
	put_slice(output.ahead.end - 1000, 1000);
	read = expect_read(false, output.ahead.end, 1024 * 1024, 0);
	run(&read);
	put_slice(output.ahead.end - 1000, 1000);
	expect_no_read(false);
	ck_assert_int_eq(flush_and_read(), OUTPUT_DRAINED);
	put_slice(FILE_BYTES - 1000, 1000);
	ck_assert_int_eq(flush_and_read(), OUTPUT_COLD);
	read = expect_read(true, FILE_BYTES - 1000, 1000, 1000);
	run(&read);
	put_slice(0, 1000);
	expect_no_read(false);
	ck_assert_int_eq(flush_and_read(), OUTPUT_DRAINED);
	expect_no_read(false);
	expect_no_read(true);
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
	TCase *tests = tcase_create("output"), *cold = tcase_create("cold");

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
	tcase_set_timeout(cold, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(cold, begin_cold, end_cold);
	tcase_add_test(cold, what_is_not_in_memory_waits_for_a_read);
	tcase_add_test(cold, what_is_in_memory_in_front_of_it_goes);
	tcase_add_test(cold, progress_is_certain);
	tcase_add_loop_test(cold, what_cannot_be_read_cuts, 0, 2);
	tcase_add_test(cold, what_could_not_be_read_once_does_not_cut_later);
	tcase_add_test(cold, a_file_that_ends_before_what_is_read_cuts);
	tcase_add_test(cold, a_read_that_comes_too_late);
	tcase_add_test(cold, a_reader_in_order_is_read_ahead_of);
	tcase_add_test(cold, nothing_is_read_ahead_in_vain);
	suite_add_tcase(suite, cold);
	return unit_run(suite);
}
