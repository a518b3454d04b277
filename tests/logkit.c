/* See logkit.h. */
#include "tests/logkit.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "worker/scan.h"
#include "worker/index_file.h"
#include "worker/sealed_list.h"
#include "worker/segment.h"
#include "worker/store.h"
#include "worker/syscalls.h"

/* ---- faults ---- */

static struct logkit_fault fault;
static int fault_seen;
static bool fault_was_hit;
static bool fault_held;
static int call_counts[CALL_COUNT];
static struct syscalls kernel;
static enum logkit_memory memory;
static char trace[64 * 1024];
static size_t trace_used;
static bool traced, trace_caches;

static const char *const call_names[] = { "open", "fstat", "mkdir", "fchmod", "pread", "pwrite", "ftruncate", "fallocate",
	"mmap", "madvise", "store", "store_length", "fdatasync", "fsync",
	"sync_file_range", "rename", "unlink", "sendfile", "any" };

static const char *
name_of(int fd)
{
	static _Thread_local char target[LOGKIT_PATH_BYTES];
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, target, sizeof(target) - 1);
	target[n < 0 ? 0 : n] = '\0';
	return strrchr(target, '/') == NULL ? "?" : strrchr(target, '/') + 1;
}

static bool
ends_in(const char *name, const char *ending)
{
	size_t length = strlen(name);

	return length >= strlen(ending) && strcmp(name + length - strlen(ending), ending) == 0;
}

static bool
is_cache(const char *name)
{
	return ends_in(name, ".index") || ends_in(name, ".index.tmp") || ends_in(name, ".stopped")
	    || strncmp(name, "sealed.list", 11) == 0;
}

/* Only segments are mapped. */
static const char MAPPED[] = "a mapping";

/* At the file of that name, or with NULL at `fd`; names are looked up where they matter, which takes longer than most calls. */
static bool
aimed_at(const char *name, int fd)
{
	return fault.aim == LOGKIT_AT_ALL || is_cache(name == NULL ? name_of(fd) : name) == (fault.aim == LOGKIT_AT_CACHES);
}

/* Counts a call; returns the errno it must fail with, LOGKIT_SHORT, LOGKIT_EXIT, or 0. */
static int
count_call(enum logkit_call call)
{
	call_counts[call]++;
	if (fault_held || fault.at == 0 || (fault.call != LOGKIT_ANY && fault.call != (int)call))
		return 0;
	fault_seen++;
	if (fault_seen != fault.at && !(fault.sticky && fault_seen > fault.at))
		return 0;
	fault_was_hit = true;
	return fault.error;
}

/* The same for one on a file, and that ends the process when it must. */
static int
meet(enum logkit_call call, const char *name, int fd)
{
	int error = aimed_at(name, fd) ? count_call(call) : 0;

	if (error == LOGKIT_EXIT)
		_exit(77);
	return error;
}

static void
note(const char *call, const char *name)
{
	if (traced && trace_used < sizeof(trace) - 128 && (trace_caches || !is_cache(name)))
		trace_used += (size_t)snprintf(trace + trace_used, sizeof(trace) - trace_used, "%s %s;", call, name);
}

static void
note_fd(const char *call, int fd)
{
	if (traced)
		note(call, name_of(fd));
}

static int
fail_with(int error)
{
	errno = error;
	return -1;
}

static int
test_open(int dir_fd, const char *name, int flags, mode_t mode)
{
	int error = meet(CALL_OPEN, name, -1);

	if (error > 0)
		return fail_with(error);
	if ((flags & O_CREAT) != 0)
		note("create", name);
	return openat(dir_fd, name, flags, mode);
}

static int
test_fstat(int fd, struct stat *st)
{
	int error = meet(CALL_FSTAT, NULL, fd);

	return error > 0 ? fail_with(error) : fstat(fd, st);
}

static int
test_mkdir(int dir_fd, const char *name, mode_t mode)
{
	int error = meet(CALL_MKDIR, name, -1);

	if (error > 0)
		return fail_with(error);
	note("mkdir", name);
	return mkdirat(dir_fd, name, mode);
}

static int
test_fchmod(int fd, mode_t mode)
{
	int error = meet(CALL_FCHMOD, NULL, fd);

	return error > 0 ? fail_with(error) : fchmod(fd, mode);
}

static ssize_t
test_pread(int fd, void *to, size_t size, off_t position)
{
	int error = meet(CALL_PREAD, NULL, fd);

	if (error > 0)
		return fail_with(error);
	if (memory == LOGKIT_COLD)
		memory = LOGKIT_WARM;
	return pread(fd, to, error == LOGKIT_SHORT ? (size + 1) / 2 : size, position);
}

static ssize_t
test_pwrite(int fd, const void *from, size_t size, off_t position)
{
	int error = meet(CALL_PWRITE, NULL, fd);

	/* A write that fails has written half before: what is worse than nothing. */
	if (error > 0) {
		if (error != EINTR && size > 1)
			ck_assert_int_eq(pwrite(fd, from, size / 2, position), size / 2);
		return fail_with(error);
	}
	note_fd("write", fd);
	return pwrite(fd, from, error == LOGKIT_SHORT ? (size + 1) / 2 : size, position);
}

static int
test_ftruncate(int fd, off_t size)
{
	int error = meet(CALL_FTRUNCATE, NULL, fd);

	if (error > 0)
		return fail_with(error);
	note_fd("truncate", fd);
	return ftruncate(fd, size);
}

/* A disk that fills up midway has given a part before it says so. */
static int
test_fallocate(int fd, int mode, off_t position, off_t size)
{
	int error = meet(CALL_FALLOCATE, NULL, fd);
	bool punching = (mode & FALLOC_FL_PUNCH_HOLE) != 0;

	/* Where all is well nothing of Check's is called: it allocates. */
	if ((mode & FALLOC_FL_KEEP_SIZE) == 0)
		ck_abort();
	if (error > 0) {
		if (!punching && size > 1)
			ck_assert_int_eq(fallocate(fd, mode, position, size / 2), 0);
		return fail_with(error);
	}
	note_fd(punching ? "punch" : "allocate", fd);
	return fallocate(fd, mode, position, size);
}

static void *
test_mmap(void *at, size_t size, int protection, int flags, int fd, off_t position)
{
	int error = meet(CALL_MMAP, NULL, fd);

	if (error > 0) {
		errno = error;
		return MAP_FAILED;
	}
	return mmap(at, size, protection, flags, fd, position);
}

static int
test_madvise(void *at, size_t size, int advice)
{
	int error = meet(CALL_MADVISE, MAPPED, -1);

	return error > 0 ? fail_with(error) : madvise(at, size, advice);
}

/* One that fails, or that a process dies in, has stored half before. */
static int
test_store(void *to, const void *from, size_t size)
{
	int error = aimed_at(MAPPED, -1) ? count_call(CALL_STORE) : 0;

	if (error > 0 || error == LOGKIT_EXIT)
		memcpy(to, from, size / 2);
	if (error == LOGKIT_EXIT)
		_exit(77);
	return error > 0 ? fail_with(error) : store_bytes(to, from, size);
}

static int
test_store_length(void *to, const uint8_t *word)
{
	int error = meet(CALL_STORE_LENGTH, MAPPED, -1);

	return error > 0 ? fail_with(error) : store_length(to, word);
}

static int
test_fdatasync(int fd)
{
	int error = meet(CALL_FDATASYNC, NULL, fd);

	if (error > 0)
		return fail_with(error);
	note_fd("force", fd);
	return 0;
}

static int
test_fsync(int fd)
{
	int error = meet(CALL_FSYNC, NULL, fd);

	if (error > 0)
		return fail_with(error);
	note_fd("fsync", fd);
	return 0;
}

static int
test_sync_file_range(int fd, off_t position, off_t size, unsigned flags)
{
	int error = meet(CALL_SYNC_FILE_RANGE, NULL, fd);

	/* Any other flag would take the note of a failed write-back that the next force must find. */
	if (flags != SYNC_FILE_RANGE_WRITE)
		ck_abort();
	if (error > 0)
		return fail_with(error);
	return sync_file_range(fd, position, size, flags);
}

static int
test_rename(int dir_fd, const char *from, const char *to)
{
	int error = meet(CALL_RENAME, to, -1);

	if (error > 0)
		return fail_with(error);
	note("rename", to);
	return renameat(dir_fd, from, dir_fd, to);
}

static int
test_unlink(int dir_fd, const char *name)
{
	int error = meet(CALL_UNLINK, name, -1);

	if (error > 0)
		return fail_with(error);
	note("unlink", name);
	return unlinkat(dir_fd, name, 0);
}

static ssize_t
test_sendfile(int to_fd, int from_fd, off_t *position, size_t size)
{
	int error = meet(CALL_SENDFILE, NULL, from_fd);

	if (error > 0)
		return fail_with(error);
	return sendfile(to_fd, from_fd, position, error == LOGKIT_SHORT ? (size + 1) / 2 : size);
}

static int
test_mincore(void *address, size_t size, unsigned char *pages)
{
	if (memory == LOGKIT_WARM)
		return kernel.mincore(address, size, pages);
	memset(pages, 0, (size + 4095) / 4096);
	return 0;
}

static ssize_t
test_pread_nowait(int fd, void *to, size_t size, off_t position)
{
	int error = meet(CALL_PREAD, NULL, fd);

	if (error > 0 || memory != LOGKIT_WARM)
		return fail_with(error > 0 ? error : EAGAIN);
	return kernel.pread_nowait(fd, to, error == LOGKIT_SHORT ? (size + 1) / 2 : size, position);
}

/* What is not named here is the kernel's. */
static void
use_table(void)
{
	if (kernel.open == NULL)
		kernel = syscalls;
	syscalls = kernel;
	syscalls.open = test_open;
	syscalls.fstat = test_fstat;
	syscalls.mkdir = test_mkdir;
	syscalls.fchmod = test_fchmod;
	syscalls.pread = test_pread;
	syscalls.pwrite = test_pwrite;
	syscalls.ftruncate = test_ftruncate;
	syscalls.fallocate = test_fallocate;
	syscalls.mmap = test_mmap;
	syscalls.madvise = test_madvise;
	syscalls.store = test_store;
	syscalls.store_length = test_store_length;
	syscalls.fdatasync = test_fdatasync;
	syscalls.fsync = test_fsync;
	syscalls.sync_file_range = test_sync_file_range;
	syscalls.rename = test_rename;
	syscalls.unlink = test_unlink;
	syscalls.sendfile = test_sendfile;
	syscalls.mincore = test_mincore;
	syscalls.pread_nowait = test_pread_nowait;
}

void
logkit_set_memory(enum logkit_memory what)
{
	memory = what;
}

void
logkit_set_fault(struct logkit_fault wanted)
{
	fault = wanted;
	fault_seen = 0;
	fault_was_hit = false;
	fault_held = false;
	memset(call_counts, 0, sizeof(call_counts));
}

void
logkit_hold_fault(bool held)
{
	fault_held = held;
}

void
logkit_clear_fault(void)
{
	fault = (struct logkit_fault){ 0 };
}

bool
logkit_fault_hit(void)
{
	return fault_was_hit;
}

int
logkit_calls(enum logkit_call call)
{
	return call_counts[call];
}

const char *
logkit_call_name(int call)
{
	return call_names[call];
}

void
logkit_trace_begin(void)
{
	trace_used = 0;
	trace[0] = '\0';
	traced = true;
	trace_caches = false;
}

void
logkit_trace_caches(void)
{
	logkit_trace_begin();
	trace_caches = true;
}

const char *
logkit_trace(void)
{
	return trace;
}

/* ---- the log ---- */

static bool mapped_mode;

void
logkit_file_mode(void)
{
	mapped_mode = false;
}

void
logkit_mapped_mode(void)
{
	mapped_mode = true;
}

void
logkit_begin(struct logkit *kit, enum record_format format, int64_t segment_bytes)
{
	const char *tmp = getenv("TMPDIR");
	char path[LOGKIT_PATH_BYTES / 2];

	memset(kit, 0, sizeof(*kit));
	snprintf(path, sizeof(path), "%.200s/logkit-XXXXXX", tmp == NULL ? "/tmp" : tmp);
	ck_assert_ptr_nonnull(mkdtemp(path));
	snprintf(kit->data_path, sizeof(kit->data_path), "%s", path);
	snprintf(kit->path, sizeof(kit->path), "%s/t-0", path);
	kit->data_fd = open(kit->data_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ne(kit->data_fd, -1);
	kit->settings = (struct partition_settings){ .record_format = format, .segment_bytes = segment_bytes,
		.index_interval_bytes = 4096, .mapped = mapped_mode };
	kit->known = (struct partition_known){ .published_end = -1 };
	use_table();
	logkit_set_memory(LOGKIT_WARM);
	logkit_set_fault((struct logkit_fault){ 0 });
}

static int
remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

void
logkit_end(struct logkit *kit)
{
	logkit_clear_fault();
	logkit_close(kit);
	close(kit->data_fd);
	ck_assert_int_eq(nftw(kit->data_path, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void
logkit_open(struct logkit *kit)
{
	partition_open(kit->data_fd, "t-0", &kit->settings, &kit->known, &kit->opened);
	kit->p = kit->opened.partition;
	ck_assert_msg(kit->p != NULL, "refused: %s", kit->opened.why);
}

const char *
logkit_refused(struct logkit *kit)
{
	partition_open(kit->data_fd, "t-0", &kit->settings, &kit->known, &kit->opened);
	ck_assert_ptr_null(kit->opened.partition);
	ck_assert_uint_gt(strlen(kit->opened.why), 10);
	return kit->opened.why;
}

void
logkit_close(struct logkit *kit)
{
	partition_close(kit->p);
	kit->p = NULL;
}

void
logkit_reopen(struct logkit *kit)
{
	logkit_close(kit);
	logkit_open(kit);
}

void
logkit_payload(int64_t offset, uint8_t *to, size_t size)
{
	uint64_t state = (uint64_t)offset * 0x9E3779B97F4A7C15u + 1;

	for (size_t i = 0; i < size; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		to[i] = (uint8_t)(state >> 56);
	}
	if (size > 0)
		to[0] |= 1;
}

uint8_t *
logkit_batch(enum record_format format, int64_t offset, int count, size_t size, size_t *bytes)
{
	uint8_t *payload = malloc(size);
	uint8_t *batch = malloc((size_t)count * (RECORD_HEADER_MAX_BYTES + size));
	uint8_t *p = batch;

	ck_assert(payload != NULL && batch != NULL);
	for (int i = 0; i < count; i++) {
		logkit_payload(offset + i, payload, size);
		p = record_put(p, format, payload, size);
	}
	free(payload);
	*bytes = (size_t)(p - batch);
	return batch;
}

int
logkit_roll(struct logkit *kit, const uint8_t *records, size_t bytes, int count)
{
	struct partition_roll *roll = partition_roll_begin(kit->p, records, bytes, count);

	if (roll == NULL)
		return -1;
	partition_roll_run(roll);
	return partition_roll_finish(kit->p, roll);
}

int
logkit_barrier(struct logkit *kit)
{
	struct partition_barrier barrier;

	partition_barrier_begin(kit->p, &barrier);
	partition_barrier_run(&barrier);
	if (partition_barrier_finish(kit->p, &barrier) == -1)
		return -1;
	return barrier.cut_error == 0 ? 0 : fail_with(barrier.cut_error);
}

int
logkit_upkeep(struct logkit *kit, int64_t room_bytes)
{
	return logkit_upkeep_at(kit, room_bytes, clock_now_ns());
}

int
logkit_upkeep_at(struct logkit *kit, int64_t room_bytes, int64_t now_ns)
{
	struct partition_upkeep upkeep;

	if (!partition_upkeep_begin(kit->p, room_bytes, now_ns, &upkeep))
		return 0;
	partition_upkeep_run(&upkeep);
	return partition_upkeep_finish(kit->p, &upkeep);
}

static int
append_batch(struct logkit *kit, const uint8_t *batch, size_t bytes, int count)
{
	switch (partition_fit(kit->p, (int64_t)bytes)) {
	case PARTITION_ALONE:
		return logkit_roll(kit, batch, bytes, count);
	case PARTITION_ROLL:
		if (logkit_roll(kit, NULL, 0, 0) == -1)
			return -1;
		break;
	case PARTITION_UNCUT:
		if (logkit_barrier(kit) == -1)
			return -1;
		break;
	case PARTITION_AHEAD:
	case PARTITION_FITS:
		break;
	}
	if (partition_fit(kit->p, (int64_t)bytes) == PARTITION_AHEAD && logkit_upkeep(kit, (int64_t)bytes) == -1)
		return -1;
	return partition_append(kit->p, batch, bytes, count);
}

int
logkit_try_append(struct logkit *kit, int count, size_t size)
{
	int64_t end = partition_log_end(kit->p);
	size_t bytes;
	uint8_t *batch = logkit_batch(kit->settings.record_format, end, count, size, &bytes);
	int done = append_batch(kit, batch, bytes, count);
	int error = errno;

	free(batch);
	ck_assert_int_eq(partition_log_end(kit->p), done == 0 ? end + count : end);
	errno = error;
	return done;
}

void
logkit_append(struct logkit *kit, int count, size_t size)
{
	for (int i = 0; i < count; i++) {
		size_t bytes = kit->size_of == NULL ? size : kit->size_of(partition_log_end(kit->p));

		ck_assert_int_eq(logkit_try_append(kit, 1, bytes), 0);
	}
}

enum partition_found
logkit_find(struct logkit *kit, int64_t offset, struct partition_place *place)
{
	enum partition_found found = partition_find(kit->p, offset, place);
	struct partition_load *load;

	if (found != PARTITION_COLD)
		return found;
	load = partition_load_begin(kit->p, offset);
	ck_assert_ptr_nonnull(load);
	partition_load_run(load);
	partition_load_finish(kit->p, load);
	return partition_find(kit->p, offset, place);
}

void
logkit_read_slice(const struct slice *slice, uint8_t *to)
{
	ck_assert_int_eq(pread(slice->segment->fd, to, (size_t)slice->bytes, slice->position), slice->bytes);
}

void
logkit_expect_as(struct logkit *kit, int64_t offset, int64_t as, size_t size)
{
	size_t bytes, wanted = record_header_bytes(kit->settings.record_format) + size;
	uint8_t *expected = logkit_batch(kit->settings.record_format, as, 1, size, &bytes);
	uint8_t *found = malloc(wanted);
	struct partition_place place;
	struct slice slice;

	ck_assert_msg(logkit_find(kit, offset, &place) == PARTITION_FOUND, "offset %" PRId64, offset);
	ck_assert_int_ge(place.bytes_in_segment, wanted);
	ck_assert_int_ge(place.bytes_behind, place.bytes_in_segment);
	partition_slice(&place, (int64_t)wanted, &slice);
	ck_assert_int_eq(slice.bytes, wanted);
	logkit_read_slice(&slice, found);
	ck_assert_msg(memcmp(found, expected, wanted) == 0, "bytes of record %" PRId64, offset);
	slice_release(&slice);
	free(found);
	free(expected);
}

void
logkit_expect(struct logkit *kit, int64_t from, int64_t to, size_t size)
{
	for (int64_t i = from; i < to; i++)
		logkit_expect_as(kit, i, i, kit->size_of == NULL ? size : kit->size_of(i));
}

void
logkit_expect_broken(struct logkit *kit, int64_t from, int64_t to)
{
	struct partition_place place;

	for (int64_t i = from; i < to; i++) {
		errno = 0;
		ck_assert_msg(logkit_find(kit, i, &place) == PARTITION_BROKEN, "offset %" PRId64, i);
		ck_assert(errno == EIO || errno == EBADMSG);
	}
}

/* ---- files ---- */

void
logkit_file_path(const struct logkit *kit, const char *name, char *to)
{
	snprintf(to, LOGKIT_PATH_BYTES, "%.300s/%.200s", kit->path, name);
}

void
logkit_segment_path(const struct logkit *kit, int64_t base, char *to)
{
	snprintf(to, LOGKIT_PATH_BYTES, "%.300s/%020" PRId64 ".log", kit->path, base);
}

void
logkit_remove_index(const struct logkit *kit, int64_t base)
{
	char name[SEGMENT_NAME_BYTES], path[LOGKIT_PATH_BYTES];

	index_file_name(name, base);
	logkit_file_path(kit, name, path);
	unlink(path);
}

void
logkit_remove_list(const struct logkit *kit)
{
	char path[LOGKIT_PATH_BYTES];

	logkit_file_path(kit, SEALED_LIST_NAME, path);
	unlink(path);
}

int64_t
logkit_file_bytes(const char *path)
{
	struct stat st;

	return lstat(path, &st) == -1 ? -1 : (int64_t)st.st_size;
}

void
logkit_expect_file_end(const struct logkit *kit, const char *path, int64_t end)
{
	int64_t bytes = logkit_file_bytes(path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (!kit->settings.mapped)
		ck_assert_int_eq(bytes, end);
	ck_assert_int_ge(bytes, end);
	ck_assert_int_eq(scan_content_end(fd, end, bytes), end);
	close(fd);
}

uint8_t *
logkit_read_file(const char *path, size_t *bytes)
{
	int64_t size = logkit_file_bytes(path);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *content;

	ck_assert_msg(fd != -1 && size != -1, "%s", path);
	content = malloc((size_t)size + 1);
	ck_assert_int_eq(read(fd, content, (size_t)size), size);
	close(fd);
	*bytes = (size_t)size;
	return content;
}

void
logkit_write_file(const char *path, const void *from, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);

	ck_assert_msg(fd != -1, "%s", path);
	if (bytes > 0)
		ck_assert_int_eq(write(fd, from, bytes), (ssize_t)bytes);
	close(fd);
}

void
logkit_change(const char *path, int64_t position, const void *from, size_t bytes)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	ck_assert_int_ne(fd, -1);
	ck_assert_int_eq(pwrite(fd, from, bytes, position), (ssize_t)bytes);
	close(fd);
}

void
logkit_flip(const char *path, int64_t position)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;

	ck_assert_int_ne(fd, -1);
	ck_assert_int_eq(pread(fd, &byte, 1, position), 1);
	byte ^= 0x10;
	ck_assert_int_eq(pwrite(fd, &byte, 1, position), 1);
	close(fd);
}

void
logkit_truncate(const char *path, int64_t bytes)
{
	ck_assert_int_eq(truncate(path, bytes), 0);
}

int
logkit_count_files(const struct logkit *kit, const char *ending)
{
	DIR *dir = opendir(kit->path);
	struct dirent *entry;
	int count = 0;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] != '.' && ends_in(entry->d_name, ending) && (*ending != '\0' || !is_cache(entry->d_name)))
			count++;
	}
	closedir(dir);
	return count;
}

int
logkit_open_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir) != NULL)
		count++;
	closedir(dir);
	return count;
}

/* ---- log lines ---- */

static int caught_fd = -1;
static int real_stderr = -1;

void
logkit_catch_lines(void)
{
	caught_fd = memfd_create("stderr", MFD_CLOEXEC);
	real_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
	ck_assert(caught_fd != -1 && real_stderr != -1);
	ck_assert_int_ne(dup2(caught_fd, STDERR_FILENO), -1);
}

char *
logkit_caught_lines(void)
{
	off_t size = lseek(caught_fd, 0, SEEK_END);
	char *lines = calloc(1, (size_t)size + 1);

	ck_assert_int_eq(pread(caught_fd, lines, (size_t)size, 0), size);
	dup2(real_stderr, STDERR_FILENO);
	close(real_stderr);
	close(caught_fd);
	fputs(lines, stderr);
	return lines;
}
