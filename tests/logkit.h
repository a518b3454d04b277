/*
 * What the tests of the storage share: a log in a fresh directory, records whose bytes follow from their offset, and
 * a table of system calls that counts, traces, fails or ends the process at the n-th call.
 */
#ifndef TESTS_LOGKIT_H
#define TESTS_LOGKIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker/partition.h"

enum { LOGKIT_PATH_BYTES = 512 };

struct logkit {
	char data_path[LOGKIT_PATH_BYTES];	/* the data directory */
	char path[LOGKIT_PATH_BYTES];		/* of the partition */
	int data_fd;
	struct partition_settings settings;
	struct partition_known known;
	struct partition_opened opened;
	struct partition *p;			/* NULL = closed */
	size_t (*size_of)(int64_t offset);	/* a record's payload; NULL: the size given */
};

/* Logs that begin behind this are written so: in file mode when nothing is said. For a test case's fixture. */
void logkit_file_mode(void);
void logkit_mapped_mode(void);

/* A fresh data directory below $TMPDIR or /tmp; the log "t-0" in it is not opened yet. Forces cost nothing from here
 * on: tests of what a force does put their own into the table. */
void logkit_begin(struct logkit *kit, enum record_format format, int64_t segment_bytes);
/* Closes the log and removes the directory. */
void logkit_end(struct logkit *kit);

/* Opens the log, which must work. */
void logkit_open(struct logkit *kit);
/* Opens the log, which must not work; returns why. */
const char *logkit_refused(struct logkit *kit);
void logkit_close(struct logkit *kit);
void logkit_reopen(struct logkit *kit);

/* The payload of the record `offset`: never begins with a zero. */
void logkit_payload(int64_t offset, uint8_t *to, size_t size);
/* `count` encoded records from `offset` on, each of `size` bytes of payload; the caller frees. */
uint8_t *logkit_batch(enum record_format format, int64_t offset, int count, size_t size, size_t *bytes);

/* Appends a batch as the worker does: rolls first where it must. Returns 0, or -1 with errno. */
int logkit_try_append(struct logkit *kit, int count, size_t size);
/* The same one record at a time, which must work. */
void logkit_append(struct logkit *kit, int count, size_t size);
/* One whole roll. Returns 0, or -1 with errno. */
int logkit_roll(struct logkit *kit, const uint8_t *records, size_t bytes, int count);
/* One whole barrier. Returns 0, or -1 with errno. */
int logkit_barrier(struct logkit *kit);
/* One whole upkeep, if one is due; `room_bytes` as for partition_upkeep_begin. Returns 0, or -1 with errno. */
int logkit_upkeep(struct logkit *kit, int64_t room_bytes);
int logkit_upkeep_at(struct logkit *kit, int64_t room_bytes, int64_t now_ns);

/* partition_find with the load that it asks for. */
enum partition_found logkit_find(struct logkit *kit, int64_t offset, struct partition_place *place);
/* Reads the bytes of a slice from its file. */
void logkit_read_slice(const struct slice *slice, uint8_t *to);
/* The record at the offset has the payload that follows from `as`, of `size` bytes, and its header is right. */
void logkit_expect_as(struct logkit *kit, int64_t offset, int64_t as, size_t size);
void logkit_expect(struct logkit *kit, int64_t from, int64_t to, size_t size);
void logkit_expect_broken(struct logkit *kit, int64_t from, int64_t to);

/* Files. Names are relative to the partition's directory. */
void logkit_file_path(const struct logkit *kit, const char *name, char *to);
/* What is stored of a segment is not to be believed of other content. */
void logkit_remove_index(const struct logkit *kit, int64_t base);
void logkit_remove_list(const struct logkit *kit);
void logkit_segment_path(const struct logkit *kit, int64_t base, char *to);
int64_t logkit_file_bytes(const char *path);	/* -1: there is none */
/* The active segment's file has nothing behind `end`: in file mode its size tells, in mapped mode zeros may follow. */
void logkit_expect_file_end(const struct logkit *kit, const char *path, int64_t end);
uint8_t *logkit_read_file(const char *path, size_t *bytes);
void logkit_write_file(const char *path, const void *from, size_t bytes);
void logkit_change(const char *path, int64_t position, const void *from, size_t bytes);
void logkit_flip(const char *path, int64_t position);
void logkit_truncate(const char *path, int64_t bytes);
/* With an empty ending: all but caches. */
int logkit_count_files(const struct logkit *kit, const char *ending);
int logkit_open_descriptors(void);

/* Log lines: from here on stderr goes to a file; returns what was written since, which the caller frees. */
void logkit_catch_lines(void);
char *logkit_caught_lines(void);

/* Faults. */
enum logkit_call { CALL_OPEN, CALL_FSTAT, CALL_MKDIR, CALL_FCHMOD, CALL_PREAD, CALL_PWRITE, CALL_FTRUNCATE, CALL_FALLOCATE,
	CALL_MMAP, CALL_MADVISE, CALL_STORE, CALL_STORE_LENGTH, CALL_FDATASYNC, CALL_FSYNC, CALL_SYNC_FILE_RANGE, CALL_RENAME, CALL_UNLINK, CALL_SENDFILE, CALL_COUNT };

enum { LOGKIT_EXIT = -1, LOGKIT_SHORT = -2, LOGKIT_ANY = CALL_COUNT };

/* On which files calls fail and are counted: caches may fail, and nothing else does for that. */
enum logkit_aim { LOGKIT_AT_LOGS, LOGKIT_AT_CACHES, LOGKIT_AT_ALL };

struct logkit_fault {
	int call;	/* which; LOGKIT_ANY */
	int at;		/* the n-th of them from now on, from 1; 0 = none */
	int error;	/* an errno; or LOGKIT_EXIT, LOGKIT_SHORT (half of a read or write) */
	bool sticky;	/* and all behind it */
	enum logkit_aim aim;
};

/* From now on. The counts begin anew. */
void logkit_set_fault(struct logkit_fault fault);
/* While it is held nothing fails, and what is called counts for nothing: the test's own calls. */
void logkit_hold_fault(bool held);
void logkit_clear_fault(void);
bool logkit_fault_hit(void);
int logkit_calls(enum logkit_call call);
const char *logkit_call_name(int call);

/* What of the files is in memory, from now on. */
enum logkit_memory {
	LOGKIT_WARM,	/* what the kernel says */
	LOGKIT_COLD,	/* nothing, until a read that waits has been made */
	LOGKIT_FROZEN,	/* nothing, whatever is read */
};
void logkit_set_memory(enum logkit_memory what);

/* Every changing call as "name file;", since then; those on caches are left out, or are not. */
void logkit_trace_begin(void);
void logkit_trace_caches(void);
const char *logkit_trace(void);

#endif
