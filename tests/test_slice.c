/* Slices: the bytes on the wire, their pieces, their references, and files that have become shorter. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/logkit.h"
#include "tests/unit.h"
#include "worker/segment.h"

static const enum record_format formats[] = { RECORD_PLAIN, RECORD_CRC32C };
enum { FORMATS = 2 };

static struct logkit kit;
static int sender = -1, receiver = -1;

/* A TCP connection over loopback, the sending end non-blocking. */
static void
connect_tcp(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &length), 0);
	receiver = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(connect(receiver, (struct sockaddr *)&address, sizeof(address)), 0);
	sender = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
	ck_assert_int_ne(sender, -1);
	close(listener);
}

static void
disconnect(void)
{
	close(sender);
	close(receiver);
}

static void
receive(uint8_t *to, size_t bytes)
{
	ck_assert_int_eq(recv(receiver, to, bytes, MSG_WAITALL), (ssize_t)bytes);
}

/* A slice of the first `bytes` bytes from the record `offset` on. */
static struct slice
cut_slice(int64_t offset, int64_t bytes)
{
	struct partition_place place;
	struct slice slice;

	ck_assert_int_eq(logkit_find(&kit, offset, &place), PARTITION_FOUND);
	partition_slice(&place, bytes, &slice);
	return slice;
}

START_TEST(A06_one_record_on_the_wire_is_as_on_disk)
{
	char path[LOGKIT_PATH_BYTES];
	uint8_t *file, wire[108];
	size_t bytes, record = record_header_bytes(formats[_i]) + 100;
	struct slice slice;

	logkit_begin(&kit, formats[_i], 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, 5, 100);
	connect_tcp();
	slice = cut_slice(3, (int64_t)record);
	ck_assert_int_eq(slice.bytes, record);
	ck_assert_int_eq(slice_send(&slice, sender, INT64_MAX), record);
	ck_assert_int_eq(slice.bytes, 0);
	slice_release(&slice);
	ck_assert_int_eq(shutdown(sender, SHUT_WR), 0);
	receive(wire, record);
	ck_assert_int_eq(recv(receiver, wire + record - 1, 1, 0), 0);
	logkit_segment_path(&kit, 0, path);
	file = logkit_read_file(path, &bytes);
	ck_assert_mem_eq(wire, file + 3 * record, record);
	free(file);
	disconnect();
	logkit_end(&kit);
}
END_TEST

START_TEST(a_large_slice_goes_in_pieces)
{
	size_t size = 3000000, got = 0;
	uint8_t *expected, *wire;
	struct slice slice;
	size_t bytes;
	int pieces = 0;

	logkit_begin(&kit, RECORD_CRC32C, 1 << 24);
	logkit_open(&kit);
	logkit_append(&kit, 1, size);
	connect_tcp();
	expected = logkit_batch(RECORD_CRC32C, 0, 1, size, &bytes);
	wire = malloc(bytes);
	slice = cut_slice(0, INT64_MAX);
	ck_assert_int_eq(slice.bytes, bytes);
	while (slice.bytes > 0) {
		int64_t left = slice.bytes;
		ssize_t n = slice_send(&slice, sender, INT64_MAX);

		if (n == -1) {
			ck_assert_int_eq(errno, EAGAIN);
			ck_assert_int_eq(slice.bytes, left);
		} else {
			ck_assert_int_le(n, SLICE_SENDFILE_MAX_BYTES);
			ck_assert_int_eq(slice.bytes, left - n);
			pieces++;
			receive(wire + got, (size_t)n);
			got += (size_t)n;
		}
	}
	slice_release(&slice);
	ck_assert_uint_eq(got, bytes);
	ck_assert_int_gt(pieces, 10);
	ck_assert_mem_eq(wire, expected, bytes);
	free(wire);
	free(expected);
	disconnect();
	logkit_end(&kit);
}
END_TEST

START_TEST(a_full_socket_is_told)
{
	struct slice slice;
	int64_t left;
	ssize_t n;

	logkit_begin(&kit, RECORD_CRC32C, 1 << 26);
	logkit_open(&kit);
	for (int i = 0; i < 6; i++)
		logkit_append(&kit, 1, 8000000);
	connect_tcp();
	slice = cut_slice(0, INT64_MAX);
	do {
		left = slice.bytes;
		n = slice_send(&slice, sender, INT64_MAX);
	} while (n > 0);
	ck_assert_int_eq(n, -1);
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_int_eq(slice.bytes, left);
	slice_release(&slice);
	ck_assert_ptr_null(slice.segment);
	ck_assert_int_eq(slice.bytes, 0);
	slice_release(&slice);
	disconnect();
	logkit_end(&kit);
}
END_TEST

START_TEST(a_truncated_file_is_an_error)
{
	char path[LOGKIT_PATH_BYTES];
	struct slice slice;

	logkit_begin(&kit, RECORD_CRC32C, 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, 10, 100);
	connect_tcp();
	slice = cut_slice(0, INT64_MAX);
	logkit_segment_path(&kit, 0, path);
	logkit_truncate(path, 300);
	ck_assert_int_eq(slice_send(&slice, sender, INT64_MAX), 300);
	ck_assert_int_eq(slice_send(&slice, sender, INT64_MAX), -1);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(slice.bytes, 1080 - 300);
	slice_release(&slice);
	disconnect();
	logkit_end(&kit);
}
END_TEST

/* What stands behind the durable end of a failed log is cut, and other records are written there, before it is sent. */
START_TEST(a_slice_ends_where_its_failed_log_does)
{
	struct slice slice, behind;

	logkit_begin(&kit, RECORD_CRC32C, 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, 3, 100);
	ck_assert_int_eq(logkit_barrier(&kit), 0);
	logkit_append(&kit, 7, 100);
	connect_tcp();
	slice = cut_slice(0, INT64_MAX);
	behind = cut_slice(5, INT64_MAX);
	logkit_set_fault((struct logkit_fault){ .call = CALL_FDATASYNC, .at = 1, .error = EIO });
	ck_assert_int_eq(logkit_barrier(&kit), -1);
	logkit_close(&kit);
	ck_assert_int_eq(slice_send(&slice, sender, INT64_MAX), 3 * 108);
	ck_assert_int_eq(slice_send(&slice, sender, INT64_MAX), -1);
	ck_assert_int_eq(errno, EIO);
	ck_assert_int_eq(slice_send(&behind, sender, INT64_MAX), -1);
	ck_assert_int_eq(errno, EIO);
	slice_release(&slice);
	slice_release(&behind);
	disconnect();
	logkit_end(&kit);
}
END_TEST

START_TEST(interrupted_short_and_failing_sends)
{
	struct slice slice;

	logkit_begin(&kit, RECORD_CRC32C, 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, 10, 100);
	connect_tcp();
	slice = cut_slice(0, INT64_MAX);
	logkit_set_fault((struct logkit_fault){ .call = CALL_SENDFILE, .at = 1, .error = EINTR });
	ck_assert_int_eq(slice_send(&slice, sender, INT64_MAX), 1080);
	slice_release(&slice);
	slice = cut_slice(0, INT64_MAX);
	logkit_set_fault((struct logkit_fault){ .call = CALL_SENDFILE, .at = 1, .error = LOGKIT_SHORT });
	ck_assert_int_eq(slice_send(&slice, sender, INT64_MAX), 540);
	ck_assert_int_eq(slice.bytes, 540);
	logkit_set_fault((struct logkit_fault){ .call = CALL_SENDFILE, .at = 1, .error = ECONNRESET });
	ck_assert_int_eq(slice_send(&slice, sender, INT64_MAX), -1);
	ck_assert_int_eq(errno, ECONNRESET);
	ck_assert_int_eq(slice.bytes, 540);
	slice_release(&slice);
	disconnect();
	logkit_end(&kit);
}
END_TEST

START_TEST(an_unlinked_segment_stays_readable)
{
	char path[LOGKIT_PATH_BYTES];
	uint8_t wire[216];
	struct slice slice;
	int fds;

	logkit_begin(&kit, RECORD_CRC32C, 1000);
	logkit_open(&kit);
	logkit_append(&kit, 20, 100);
	connect_tcp();
	fds = logkit_open_descriptors();
	logkit_reopen(&kit);
	slice = cut_slice(2, 216);
	logkit_segment_path(&kit, 0, path);
	ck_assert_int_eq(unlink(path), 0);
	logkit_close(&kit);
	ck_assert_int_eq(slice_send(&slice, sender, INT64_MAX), 216);
	receive(wire, 216);
	slice_release(&slice);
	/* The log had its directory, its active segment and what was active before the reopening: all are closed. */
	ck_assert_int_eq(logkit_open_descriptors(), fds - 4);
	disconnect();
	logkit_end(&kit);
}
END_TEST

/* Removes the first segment's file from the page cache; false when it has no disk to go to. */
static bool
evict(const struct slice *slice)
{
	ck_assert_int_eq(fsync(slice->segment->fd), 0);
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(posix_fadvise(slice->segment->fd, 0, 0, POSIX_FADV_DONTNEED), 0);
		residency_end(&slice->segment->residency);
		if (slice_bytes_in_memory(slice) == 0)
			return true;
	}
	printf("skipped: this file system has no disk\n");
	return false;
}

START_TEST(a_read_brings_a_slice_into_memory)
{
	struct slice slice, next;
	struct slice_read read;

	logkit_begin(&kit, RECORD_CRC32C, 1 << 24);
	logkit_open(&kit);
	logkit_append(&kit, 12, 1000000);
	slice = cut_slice(2, 5000000);
	ck_assert_int_eq(slice_bytes_in_memory(&slice), SLICE_SENDFILE_MAX_BYTES);
	if (evict(&slice)) {
		slice_read_begin(&slice, slice.position, 100000, 100000, &read);
		ck_assert_int_eq(atomic_load(&slice.segment->references), 3);
		slice_read_run(&read);
		slice_read_end(&read);
		ck_assert_int_eq(read.error, 0);
		ck_assert_int_eq(atomic_load(&slice.segment->references), 2);
		ck_assert_int_ge(slice_bytes_in_memory(&slice), 100000);
		ck_assert_int_lt(slice_bytes_in_memory(&slice), SLICE_SENDFILE_MAX_BYTES);
		/* Told to read only: it comes by itself. */
		next = (struct slice){ slice.segment, slice.position + 1000000, 1000000 };
		slice_read_begin(&next, next.position, 500000, 0, &read);
		slice_read_run(&read);
		slice_read_end(&read);
		while (slice_bytes_in_memory(&next) < SLICE_SENDFILE_MAX_BYTES)
			usleep(100);
		next.position += 600000;
		ck_assert_int_eq(slice_bytes_in_memory(&next), 0);
	}
	slice_release(&slice);
	logkit_end(&kit);
}
END_TEST

START_TEST(a_read_ends_with_the_log_or_an_error)
{
	char path[LOGKIT_PATH_BYTES];
	struct slice_read read;
	struct slice slice;

	logkit_begin(&kit, RECORD_CRC32C, 1 << 20);
	logkit_open(&kit);
	logkit_append(&kit, 10, 100);
	slice = cut_slice(5, 108);
	slice_read_begin(&slice, 540, 1 << 20, 108, &read);
	ck_assert_int_eq(read.bytes, 540);
	slice_read_run(&read);
	ck_assert_int_eq(read.error, 0);
	slice_read_end(&read);
	slice_read_begin(&slice, 1080, 1 << 20, 0, &read);
	ck_assert_int_eq(read.bytes, 0);
	slice_read_end(&read);
	logkit_set_fault((struct logkit_fault){ .call = CALL_PREAD, .at = 1, .error = ESTALE });
	slice_read_begin(&slice, 540, 108, 108, &read);
	slice_read_run(&read);
	ck_assert_int_eq(read.error, ESTALE);
	slice_read_end(&read);
	logkit_segment_path(&kit, 0, path);
	logkit_truncate(path, 600);
	slice_read_begin(&slice, 540, 108, 108, &read);
	slice_read_run(&read);
	ck_assert_int_eq(read.error, EIO);
	slice_read_end(&read);
	ck_assert_int_eq(atomic_load(&slice.segment->references), 2);
	slice_release(&slice);
	logkit_end(&kit);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("slice");
	TCase *tests = tcase_create("slice");

	tcase_set_timeout(tests, 60);
	suite_add_tcase(suite, tests);
	tcase_add_loop_test(tests, A06_one_record_on_the_wire_is_as_on_disk, 0, FORMATS);
	tcase_add_test(tests, a_large_slice_goes_in_pieces);
	tcase_add_test(tests, a_full_socket_is_told);
	tcase_add_test(tests, a_truncated_file_is_an_error);
	tcase_add_test(tests, a_slice_ends_where_its_failed_log_does);
	tcase_add_test(tests, interrupted_short_and_failing_sends);
	tcase_add_test(tests, an_unlinked_segment_stays_readable);
	tcase_add_test(tests, a_read_brings_a_slice_into_memory);
	tcase_add_test(tests, a_read_ends_with_the_log_or_an_error);
	return unit_run(suite);
}
