/* See powercut_check.h. */
#include "tests/powercut_check.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/powercut_found.h"
#include "tests/powercut_recorder.h"
#include "tests/powercut_states.h"
#include "tests/wire.h"
#include "worker/segment.h"
#include "worker/stop_marker.h"
#include "worker/syscalls.h"

enum { CUT_RECOVERIES = 4, STATES_OF_EVENT = 11, ANY_RECORD = -2, NEW_RECORD_MAX = 64 * 1024 };

static const char NAME[] = "t-0", DATA[] = "data";

struct check {
	struct check_settings settings;
	char state_path[CHECK_PATH_BYTES], again_path[CHECK_PATH_BYTES];
	struct syscalls kernel, plain, recording;
	struct found first, second, third;	/* recoveries of one state, one after the other */
	struct image image;	/* of a recovery that was cut off */
	long recoveries;
};

__attribute__((format(printf, 2, 3))) static int
wrong(char *why, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, CHECK_WHY_BYTES, format, arguments);
	va_end(arguments);
	return -1;
}

/* ---- the recorded recovery ---- */

static uint8_t *events;
static size_t events_bytes, events_capacity;

static void
take_event(const void *event, size_t bytes)
{
	if (events_bytes + bytes > events_capacity) {
		events_capacity = 2 * (events_bytes + bytes);
		events = realloc(events, events_capacity);
		ck_assert_ptr_nonnull(events);
	}
	memcpy(events + events_bytes, event, bytes);
	events_bytes += bytes;
}

static int
no_force(int fd)
{
	(void)fd;
	return 0;
}

/* ---- set-up ---- */

static int lines_fd, stderr_fd;
static void (*tell_end)(int number);

static const int deadly[] = { SIGABRT, SIGSEGV, SIGBUS };
enum { DEADLY = sizeof(deadly) / sizeof(deadly[0]) };
static struct sigaction handled_before[DEADLY];

static void
handle_as_before(void)
{
	for (int i = 0; i < DEADLY; i++)
		sigaction(deadly[i], &handled_before[i], NULL);
}

/* What ends the process comes again when this returns: a sanitizer's handler says what it is, then. */
static void
show_lines(int number)
{
	char bytes[4096];
	ssize_t n;

	handle_as_before();
	for (off_t at = 0; (n = pread(lines_fd, bytes, sizeof(bytes), at)) > 0; at += n)
		if (write(stderr_fd, bytes, (size_t)n) != n)
			break;
	dup2(stderr_fd, STDERR_FILENO);
	tell_end(number);
}

/* The product says much of what it finds, and only what it says of a failure is of use. */
static void
catch_lines(void)
{
	struct sigaction action = { .sa_handler = show_lines };

	lines_fd = memfd_create("lines", MFD_CLOEXEC);
	stderr_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
	ck_assert(lines_fd != -1 && stderr_fd != -1);
	ck_assert_int_ne(dup2(lines_fd, STDERR_FILENO), -1);
	for (int i = 0; i < DEADLY; i++)
		sigaction(deadly[i], &action, &handled_before[i]);
}

struct check *
check_begin(const struct check_settings *settings)
{
	struct check *check = calloc(1, sizeof(*check));

	ck_assert_ptr_nonnull(check);
	check->settings = *settings;
	snprintf(check->state_path, sizeof(check->state_path), "%.400s/state", settings->work_path);
	snprintf(check->again_path, sizeof(check->again_path), "%.400s/again", settings->work_path);
	check->kernel = check->plain = check->recording = syscalls;
	check->plain.fdatasync = check->plain.fsync = no_force;
	recorder_use_stores(&check->recording);
	recorder_use_calls(&check->recording);
	tell_end = settings->on_end;
	catch_lines();
	return check;
}

void
check_end(struct check *check)
{
	syscalls = check->kernel;
	handle_as_before();
	dup2(stderr_fd, STDERR_FILENO);
	close(stderr_fd);
	close(lines_fd);
	image_remove(check->state_path);
	image_remove(check->again_path);
	image_free(&check->image);
	found_free(&check->first);
	found_free(&check->second);
	found_free(&check->third);
	free(check);
}

char *
check_lines(void)
{
	off_t size = lseek(lines_fd, 0, SEEK_END);
	char *lines = calloc(1, (size_t)size + 1);

	ck_assert_ptr_nonnull(lines);
	ck_assert_int_eq(pread(lines_fd, lines, (size_t)size, 0), size);
	return lines;
}

long
check_recoveries(const struct check *check)
{
	return check->recoveries;
}

/* ---- opening ---- */

/*
 * What a clean stop has said of the segment is believed when its file is as it was then: size and time of modification. Here
 * that time is what it says, as if the disk had it: the worst that can be.
 */
static void
keep_times(int data_fd, const struct stop_state *left)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
		{ .tv_sec = left->modified_ns / 1000000000, .tv_nsec = left->modified_ns % 1000000000 } };
	char name[SEGMENT_NAME_BYTES], path[CHECK_PATH_BYTES];

	segment_name(name, left->base);
	snprintf(path, sizeof(path), "%s/%s", NAME, name);
	utimensat(data_fd, path, times, 0);
}

/* As the supervisor does at each start. */
static int
open_data(const char *root)
{
	int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC), data_fd;

	ck_assert_int_ne(root_fd, -1);
	if (syscalls.mkdir(root_fd, DATA, 0750) == -1)
		ck_assert_int_eq(errno, EEXIST);
	ck_assert_int_eq(syscalls.fsync(root_fd), 0);
	data_fd = openat(root_fd, DATA, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ne(data_fd, -1);
	close(root_fd);
	return data_fd;
}

/* As a worker does it, of a broker that is started after the machine was. */
static int
open_log(struct check *check, const char *root, struct partition_opened *opened, char *why)
{
	struct partition_known known = { .published_end = -1, .from_disk = true };
	struct stop_marker marker;
	int data_fd = open_data(root);

	stop_marker_take(&marker, data_fd, 0, 1);
	known.stopped = stop_marker_find(&marker, NAME);
	if (known.stopped != NULL)
		keep_times(data_fd, known.stopped);
	partition_open(data_fd, NAME, &check->settings.partition, &known, opened);
	stop_marker_free(&marker);
	close(data_fd);
	if (opened->partition == NULL)
		return wrong(why, "the log is refused: %s", opened->why);
	return 0;
}

/* ---- judging ---- */

static int64_t
promised_end(const struct ledger *ledger)
{
	int64_t forced = ledger_forced_end(ledger), published = ledger_published_end(ledger), durable = ledger_durable_end(ledger);
	int64_t answered = forced > published ? forced : published;

	return answered > durable ? answered : durable;
}

/* In plain a record that was not written to its end looks like any other. */
static int64_t
told_end(const struct check *check, const struct ledger *ledger, const struct found *found)
{
	return check->settings.partition.record_format == RECORD_CRC32C ? found->end : promised_end(ledger);
}

static int
judge_records(const struct ledger *ledger, const struct found *found, int64_t end, char *why)
{
	int64_t promised = promised_end(ledger);
	int before = ANY_RECORD;

	for (int64_t offset = found->start; offset < end; offset++) {
		size_t size;
		const uint8_t *bytes = found_record(found, (size_t)(offset - found->start), &size);
		int record = ledger_find(ledger, offset, before, bytes, size);

		if (record == -1 && ledger_find(ledger, offset, ANY_RECORD, bytes, size) != -1)
			return wrong(why, "the record at offset %" PRId64 " was not appended behind the one ahead of it",
			    offset);
		if (record == -1)
			return wrong(why, "the record at offset %" PRId64 " was never appended there", offset);
		if (offset < promised && record != ledger_at(ledger, offset))
			return wrong(why, "the record at offset %" PRId64 " is not the one that was acknowledged", offset);
		before = record;
	}
	return 0;
}

static int
judge(const struct check *check, const struct ledger *ledger, const struct found *found, char *why)
{
	if (found->end < ledger_forced_end(ledger))
		return wrong(why, "the log ends at %" PRId64 ", and FORCED had been answered up to %" PRId64, found->end,
		    ledger_forced_end(ledger));
	if (found->end < ledger_published_end(ledger))
		return wrong(why, "the log ends at %" PRId64 ", and %" PRId64 " had been published as durable", found->end,
		    ledger_published_end(ledger));
	if (found->end < ledger_durable_end(ledger))
		return wrong(why, "the log ends at %" PRId64 ", and had been told to be durable up to %" PRId64, found->end,
		    ledger_durable_end(ledger));
	if (found->start > ledger_start(ledger))
		return wrong(why, "the log starts at %" PRId64 ", and only what lies below %" PRId64 " had been retired",
		    found->start, ledger_start(ledger));
	return judge_records(ledger, found, told_end(check, ledger, found), why);
}

/* ---- nothing comes back ---- */

/* The segment of that name holds the record there, and so many bytes behind it as that is long. */
static bool
survives(const struct image_entry *segment, const struct ledger_record *record, int64_t position)
{
	return position + (int64_t)record->size <= segment->size
	    && memcmp(segment->bytes + position, record->bytes, record->size) == 0;
}

/* The segment in which the log ends, and the position. */
static const struct image_entry *
find_end(const struct image *image, const struct found *found, int64_t *position)
{
	const struct image_entry *last = NULL;
	int64_t base, last_base = -1;

	for (size_t i = 0; i < image->count; i++) {
		const char *name = strrchr(image->entries[i].path, '/');

		if (name == NULL || strcmp(name + strcspn(name, "."), ".log") != 0)
			continue;
		base = segment_parse_base(name + 1);
		if (base < found->start || base > found->end || base < last_base)
			continue;
		last = &image->entries[i];
		last_base = base;
	}
	if (last == NULL)
		return NULL;
	*position = (int64_t)found->size;
	if (last_base > found->start)
		*position -= (int64_t)found->ends[last_base - found->start - 1];
	return last;
}

/*
 * How many bytes are lost there, up to a record that has survived behind them: when the new record has just as many, that one
 * follows it. When none has: the bytes of the record that is lost.
 */
static size_t
lost_bytes(const struct image *image, const struct ledger *ledger, const struct found *found)
{
	int lost = ledger_at(ledger, found->end);
	int64_t position = 0, from;
	const struct image_entry *segment = find_end(image, found, &position);

	from = position;
	for (int64_t offset = found->end; segment != NULL && ledger_at(ledger, offset) != -1; offset++) {
		const struct ledger_record *record = ledger_record(ledger, ledger_at(ledger, offset));

		if (offset > found->end && survives(segment, record, position))
			return (size_t)(position - from);
		position += (int64_t)record->size;
	}
	return lost == -1 ? 50 : ledger_record(ledger, lost)->size;
}

/* Other bytes than anybody has produced. */
static size_t
new_record(const struct check *check, size_t bytes, uint8_t *record)
{
	enum record_format format = check->settings.partition.record_format;
	static uint8_t payload[NEW_RECORD_MAX];
	size_t size = bytes - record_header_bytes(format);

	memset(payload, 0xEE, size);
	return (size_t)(record_put(record, format, payload, size) - record);
}

/* As the worker does: makes room first where there is none. */
static int
append(struct partition *p, const uint8_t *record, size_t bytes)
{
	struct partition_upkeep upkeep;
	struct partition_roll *roll;

	if (partition_fit(p, (int64_t)bytes) == PARTITION_ROLL) {
		roll = partition_roll_begin(p, NULL, 0, 0);
		ck_assert_ptr_nonnull(roll);
		partition_roll_run(roll);
		if (partition_roll_finish(p, roll) == -1)
			return -1;
	}
	if (partition_fit(p, (int64_t)bytes) == PARTITION_AHEAD
	    && partition_upkeep_begin(p, (int64_t)bytes, 0, &upkeep)) {
		partition_upkeep_run(&upkeep);
		if (partition_upkeep_finish(p, &upkeep) == -1)
			return -1;
	}
	return partition_append(p, record, bytes, 1);
}

static bool
same_bytes(const uint8_t *one, const uint8_t *other, size_t size)
{
	return size == 0 || memcmp(one, other, size) == 0;
}

static int
compare_again(const struct found *first, const struct found *second, const uint8_t *record, size_t bytes, char *why)
{
	if (second->end != first->end + 1)
		return wrong(why, "the log ended at %" PRId64 ", one record was appended, and now it ends at %" PRId64,
		    first->end, second->end);
	if (second->start != first->start || second->size != first->size + bytes
	    || !same_bytes(second->bytes, first->bytes, first->size)
	    || !same_bytes(second->bytes + first->size, record, bytes))
		return wrong(why, "the log is another one after a record was appended at its end, %" PRId64, first->end);
	return 0;
}

static int
recover(struct check *check, const char *root, struct found *found, struct partition **kept, char *why)
{
	struct partition_opened opened;
	char path[CHECK_PATH_BYTES];
	int done = open_log(check, root, &opened, why);

	snprintf(path, sizeof(path), "%.400s/%s/%s", root, DATA, NAME);
	if (done == 0)
		done = found_read(found, opened.partition, check->settings.partition.record_format, path, why);
	if (done == 0 && kept != NULL)
		*kept = opened.partition;
	else
		partition_close(opened.partition);
	return done;
}

/* Appends a record where the log in `image` has ended, closes the log and recovers it again. */
static int
append_and_recover(struct check *check, const char *root, struct partition *p, const struct image *image,
    const struct ledger *ledger, const struct found *before, struct found *after, char *why)
{
	static uint8_t record[NEW_RECORD_MAX];
	size_t bytes = new_record(check, lost_bytes(image, ledger, before), record);
	int done = append(p, record, bytes);

	if (done == -1)
		wrong(why, "nothing can be appended: %s", strerror(errno));
	partition_close(p);
	if (done == 0)
		done = recover(check, root, after, NULL, why);
	return done == 0 ? compare_again(before, after, record, bytes, why) : -1;
}

static int
check_twice(struct check *check, const struct image *image, const struct ledger *ledger, char *why)
{
	struct partition *p = NULL;

	if (recover(check, check->state_path, &check->first, &p, why) == -1)
		return -1;
	if (judge(check, ledger, &check->first, why) == -1) {
		partition_close(p);
		return -1;
	}
	return append_and_recover(check, check->state_path, p, image, ledger, &check->first, &check->second, why);
}

/* ---- recoveries that are cut off ---- */

struct again {
	struct check *check;
	struct model *model;
	const struct ledger *ledger;
	uint64_t skip;		/* so many states are not tried */
	const uint8_t *record;	/* that was appended behind the recovery */
	size_t bytes;
	char *why;
};

/* Where that record, and no other one, is the last, it may be there. */
static void
take_back(struct found *found, int64_t at, const uint8_t *record, size_t bytes)
{
	const uint8_t *last;
	size_t size;

	if (bytes == 0 || found->end != at + 1 || found->count == 0)
		return;
	last = found_record(found, found->count - 1, &size);
	if (size != bytes || memcmp(last, record, bytes) != 0)
		return;
	found->end--;
	found->count--;
	found->size -= bytes;
}

/* Is the log the same as after the recovery that was not cut off? */
static int
judge_again(const struct again *again, char *why)
{
	struct found *first = &again->check->first, *second = &again->check->second;

	take_back(second, first->end, again->record, again->bytes);
	if (judge(again->check, again->ledger, second, why) == -1)
		return -1;
	if (second->end != first->end || second->size != first->size || !same_bytes(second->bytes, first->bytes, first->size))
		return wrong(why, "the log had ended at %" PRId64 ", and ends at %" PRId64 " now", first->end, second->end);
	for (int i = 0; i < first->copy_count; i++)
		if (!found_has_copy(second, first->copies[i]))
			return wrong(why, "what it had cut from the log is not there any more");
	return 0;
}

/* One of them, chosen by chance. What the first recovery has begun and the second has believed must not come back either. */
static int
check_again(const struct state *state, void *context)
{
	struct again *again = context;
	struct check *check = again->check;
	struct partition *p = NULL;
	char why[CHECK_WHY_BYTES];
	int done;

	if (again->skip-- > 0)
		return 0;
	model_image(again->model, state->fates, state->seed, state->garbage, &check->image);
	image_write(&check->image, check->again_path);
	check->recoveries++;
	done = recover(check, check->again_path, &check->second, &p, why);
	if (done == 0)
		done = judge_again(again, why);
	if (done == 0 && check->second.end == partition_log_end(p))
		done = append_and_recover(check, check->again_path, p, &check->image, again->ledger, &check->second,
		    &check->third, why);
	else
		partition_close(p);
	return done == 0 ? 1 : wrong(again->why, "a recovery was cut off (%s), and then: %.600s", state->kind, why);
}

/* And appends a record. Not in plain, where one that is not written to its end is a record all the same. */
static int
recover_and_append(struct again *again, const struct image *image)
{
	static uint8_t record[NEW_RECORD_MAX];
	struct check *check = again->check;
	struct partition *p = NULL;
	int done = 0;

	if (recover(check, check->state_path, &check->first, &p, again->why) == -1)
		return -1;
	if (check->settings.partition.record_format == RECORD_CRC32C) {
		again->bytes = new_record(check, lost_bytes(image, again->ledger, &check->first), record);
		again->record = record;
		if (append(p, record, again->bytes) == -1)
			done = wrong(again->why, "nothing can be appended: %s", strerror(errno));
	}
	partition_close(p);
	return done;
}

/* The recovery of the state, as the model sees it: from its events. */
static int
record_recovery(struct again *again, const struct image *image, struct powercut_log *log)
{
	struct check *check = again->check;
	uint8_t *memory;
	int done;

	events_bytes = 0;
	syscalls = check->recording;
	recorder_begin(check->state_path, NULL, NULL, take_event);
	done = recover_and_append(again, image);
	syscalls = check->plain;
	if (done == -1)
		return -1;
	memory = malloc(events_bytes);
	ck_assert_ptr_nonnull(memory);
	memcpy(memory, events, events_bytes);
	ck_assert_int_eq(powercut_log_take(log, memory, events_bytes), 0);
	return 0;
}

static int
cut_recovery(struct check *check, const struct image *image, const struct ledger *ledger, uint64_t seed, char *why)
{
	struct states states = { .profile = seed % 2 == 0 ? STATES_STRICT : STATES_ORDERED, .random = 1, .seed = seed };
	struct again again = { .check = check, .ledger = ledger, .why = why };
	struct powercut_log log = { .memory = NULL };
	int done = 0;

	image_write(image, check->state_path);
	again.model = model_of_image(image, check->state_path);
	if (record_recovery(&again, image, &log) == -1)
		done = -1;
	for (size_t i = 0; done != -1 && i < log.count; i++) {
		ck_assert_msg(model_apply(again.model, log.events[i]) == 0, "of a recovery: %s",
		    powercut_event_text(log.events[i]));
		/* At the last one most is at stake: nothing forces what was appended. */
		if (i + 1 < log.count && wire_random(&seed) % log.count >= CUT_RECOVERIES)
			continue;
		again.skip = wire_random(&seed) % STATES_OF_EVENT;
		done = states_visit(&states, again.model, check_again, &again);
	}
	model_free(again.model);
	if (done != -1 || log.memory != NULL)
		powercut_log_free(&log);
	return done == -1 ? -1 : 0;
}

/* After a power cut nothing is damaged. */
static int
judge_lines(char *why)
{
	char *lines = check_lines(), *found = strstr(lines, "Z error ");
	int done = found == NULL ? 0 : wrong(why, "told as an error: %.*s", (int)strcspn(found, "\n"), found);

	free(lines);
	return done;
}

int
check_state(struct check *check, const struct image *image, const struct ledger *ledger, bool deep, uint64_t seed, char *why)
{
	int done;

	if (ftruncate(lines_fd, 0) == -1 || lseek(lines_fd, 0, SEEK_SET) == -1)
		return wrong(why, "no log lines: %s", strerror(errno));
	syscalls = check->plain;
	image_write(image, check->state_path);
	done = check_twice(check, image, ledger, why);
	if (done == 0 && deep)
		done = cut_recovery(check, image, ledger, seed, why);
	if (done == 0)
		done = judge_lines(why);
	syscalls = check->kernel;
	return done;
}
