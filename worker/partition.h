/*
 * A partition's log: an ordered list of segment files in one directory, the last of them active. Owns offsets,
 * append, roll, barrier and lookup; knows nothing of sockets, requests, ack levels or events.
 *
 *   <data_dir>/<topic>-<partition>/00000000000000000000.log      records back to back from byte 0, nothing else
 *                                  00000000000000004711.log      named by the offset of its first record
 *                                  00000000000000004711.index    its stored index: index_file.h
 *                                  sealed.list                   what is known of all but the last: sealed_list.h
 *
 * One owner: all functions are called by the thread that owns the partition, except the *_run functions, which
 * are the parts that wait for a disk. They belong on other threads and touch nothing but their own job. At most one
 * job of barrier and roll together is under way per partition, and at most one of upkeep and roll together: an upkeep
 * may run beside a barrier, nothing of these beside a roll. Loads, and
 * one job of retention.h, may run beside all of them.
 *
 * "log end" is the offset behind the last written record; "durable end" the one that a successful force has reached;
 * "visible end" the one up to which it is read: the log end, or with durable_only the durable end.
 * All files but the active one, and all files' names, are always forced.
 */
#ifndef WORKER_PARTITION_H
#define WORKER_PARTITION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/record.h"
#include "worker/index_file.h"
#include "worker/mapping.h"
#include "worker/slice.h"

struct partition;
struct segment;
struct stop_state;

struct partition_settings {
	enum record_format record_format;
	int64_t segment_bytes;
	int64_t index_interval_bytes;	/* more where a segment would get more than PARTITION_MARKS_MAX marks */
	bool mapped;			/* the active segment is written through a shared mapping */
	bool durable_only;		/* readers see nothing that a power cut could take back */
	int64_t segment_age_ms;		/* these three: 0 = off; see retention.h */
	int64_t retention_bytes;
	int64_t retention_age_ms;
};

enum { PARTITION_WHY_BYTES = 512, PARTITION_MARKS_MAX = 1024 * 1024 };

struct partition_opened {
	/* NULL: it stays closed. When it is known what had been forced, this may be a log that has failed: there is nothing to
	 * do with it but to read that, until the log can be opened. */
	struct partition *partition;
	int64_t truncated_bytes;		/* what recovery has cut */
	/* When it could not be opened: a force has failed, or the disk could not be read or written past the page cache. To be
	 * opened again later, as `failed`. */
	bool failed;
	/* Or memory, descriptors or room on the disk were out: to be opened again later, as before. */
	bool short_of;
	char why[PARTITION_WHY_BYTES];		/* when it could not be opened: what is wrong, where, what to do */
};

/* What is known of the log from before it is opened. */
struct partition_known {
	/* The high watermark that has been published since the machine's page cache was last lost; -1 = none. A log that
	 * comes back with less has lost acknowledged data and stays closed. */
	int64_t published_end;
	/* The log start that has been published since the broker was started, 0 = none: what lies below does not come back, and
	 * unlinking it is finished by retention. */
	int64_t log_start;
	/* The page cache may show what the disk does not have: a force may have failed without anybody knowing. The end is
	 * read from the disk itself (O_DIRECT), and what the cache shows otherwise is put right. Then published_end says what
	 * had been forced, which alone must come back. */
	bool from_disk;
	/* And a force has failed: a force says nothing any more about what was written before, so that is written once more;
	 * first of all the disk must take something new. Not without from_disk. */
	bool failed;
	int64_t shown_end;	/* with from_disk: the high watermark, which stays published until the log is open */
	/* How a clean stop has left it, with everything forced; NULL: nobody knows. While its file is still so (size and time of
	 * modification tell) the page cache is believed, and nothing is looked for behind its end or forced again. */
	const struct stop_state *stopped;
	/* It was no clean stop: a process that lives has released the log so, with partition_release, and only what lies below
	 * durable_end has been forced. It is opened without a force: the rest is unforced in the log that has been opened. When it
	 * does not end there although the file is still so, it stays closed. */
	bool released;
	int64_t durable_end;		/* as published, like published_end; counts with released alone */
};

/*
 * Opens the log in directory `name` below `data_fd`, creating it when it is not there, and recovers it: the longest
 * valid prefix of the last segment is kept, what lies behind it is removed durably, and everything kept is forced.
 * Blocking; any thread; `data_fd`, `settings` and `known` are borrowed for the call. What was repaired or is foreign is
 * logged.
 */
void partition_open(int data_fd, const char *name, const struct partition_settings *settings,
    const struct partition_known *known, struct partition_opened *opened);

/*
 * Stores the recovery point of a log in which everything is forced, and tells how it is left, for partition_known. Blocking;
 * no job may be under way, and nothing may be appended afterwards. Returns 0, or -1 with errno: the next start has to look.
 */
int partition_leave(struct partition *partition, struct stop_state *state);

/*
 * Tells how the log is left to another process, with what is not forced yet, for partition_known. Forces and writes nothing. No
 * job may be under way, and nothing may be done with the log afterwards but to read it. Returns 0, or -1 with errno: the other
 * process has to recover it.
 */
int partition_release(struct partition *partition, struct stop_state *state);

/* The next upkeep stores how far the log is forced as its recovery point, however little that is. */
void partition_ask_point(struct partition *partition);

/* Forces nothing. No job may be under way. Slices stay valid. NULL is allowed. Any thread, when the owner lets go of it. */
void partition_close(struct partition *partition);

int64_t partition_log_start(const struct partition *partition);
int64_t partition_log_end(const struct partition *partition);
int64_t partition_durable_end(const struct partition *partition);
int64_t partition_visible_end(const struct partition *partition);
/* Bytes of records up to there; what has been retired since the log was opened counts on. */
int64_t partition_visible_bytes(const struct partition *partition);
int64_t partition_size_bytes(const struct partition *partition);	/* bytes of records in all segments */
int64_t partition_unforced_bytes(const struct partition *partition);	/* bytes of records behind the durable end */
int64_t partition_segments(const struct partition *partition);
/* A force has failed, or somebody has cut or removed the active file: no append is possible any more, reads end at the durable end. The
 * log must be opened anew. */
bool partition_failed(const struct partition *partition);

enum partition_fit {
	PARTITION_FITS,		/* append it */
	PARTITION_UNCUT,	/* a failed write may have left something behind the end: a barrier must come first, which cuts it off */
	PARTITION_AHEAD,	/* it fits the segment, but not yet what is allocated of it: an upkeep must come first */
	PARTITION_ROLL,		/* a roll must come first: partition_roll_begin without records, then append */
	PARTITION_ALONE,	/* larger than a segment: partition_roll_begin with the batch itself */
};

/* Where does a batch of `bytes` encoded bytes (records with headers) go? A batch never straddles two segments unless it is
 * larger than one. */
enum partition_fit partition_fit(const struct partition *partition, int64_t bytes);

/* Bytes that can be appended to the active segment now: with `mapped`, to what is allocated of it. */
int64_t partition_room(const struct partition *partition);

/*
 * Writes `count` encoded records (any number of whole batches, `bytes` bytes that fit) with one write at the log end,
 * which then moves. Returns 0, or -1 with errno: then the log end has not moved, nothing of it is visible, and what a
 * short write may have left is cut off, durably, before the next append; or the partition has failed. No roll may be under
 * way; a barrier may.
 */
int partition_append(struct partition *partition, const uint8_t *records, size_t bytes, int32_t count);

/* A job is a value owned by the caller: begin and finish by the owner, run by any thread in between. */
struct partition_barrier {
	struct segment *segment;
	int64_t end_offset;
	int64_t end_position;
	bool cut;		/* what stands behind that goes first */
	int cut_error;		/* errno, 0 = done */
	int error;		/* errno of the force, 0 = done */
	int64_t duration_ns;	/* of the force */
};

/*
 * Remembers the written end; partition_barrier_run forces the active file; with the success of the force finish makes
 * the remembered end durable and returns 0. Else -1 with errno, and the partition has failed. With a cut_error nothing can be
 * appended, and what waits must be refused; it may be tried again.
 */
void partition_barrier_begin(struct partition *partition, struct partition_barrier *barrier);
void partition_barrier_run(struct partition_barrier *barrier);
int partition_barrier_finish(struct partition *partition, struct partition_barrier *barrier);

/* Upkeep of the active segment: what must be done now and then besides, and must not wait in the loop. A job. */
struct partition_upkeep {
	struct segment *segment;	/* a reference of the job's own */
	/* What is to be on its way to the disk. */
	int64_t write_back_position;
	int64_t write_back_bytes;	/* 0 = nothing */
	int write_back_error;		/* errno, 0 = begun */
	/* With `mapped`, the next stretch of the file. */
	bool make_room;
	int64_t end_position;		/* where the log ends; readers and appends may be behind it meanwhile */
	int64_t allocated_end;		/* there are blocks up to here */
	int64_t wanted_end;		/* and should be up to here, */
	int64_t needed_end;		/* or at least up to here */
	int64_t segment_bytes;		/* size of the file */
	struct mapping mapping;		/* the result */
	struct mapping behind;		/* is of no use any more */
	int room_error;			/* errno, 0 = made */
	struct index_point point;	/* the recovery point that is to be stored, */
	struct index_mark *marks;	/* with these marks that its file does not have yet; NULL = nothing */
	size_t mark_count;
	struct index_file stored;	/* that file */
	int store_error;		/* errno, 0 = done */
	int dir_fd;
};

/*
 * Is something to be done? It is asked behind each append, and with PARTITION_AHEAD, when `room_bytes` bytes wait to be
 * appended (else 0) and the answer is yes. Returns true with the job in *upkeep, which is to be run; or false, and there
 * is nothing to run or finish. No upkeep and no roll may be under way; a barrier may.
 */
bool partition_upkeep_begin(struct partition *partition, int64_t room_bytes, int64_t now_ns,
    struct partition_upkeep *upkeep);
void partition_upkeep_run(struct partition_upkeep *upkeep);
/*
 * Returns 0: then there is room for what waited. Or -1 with errno: there is none, and what waits must be refused; it may
 * be tried again. When the partition has failed meanwhile, or this upkeep has found that the disk lost what was written,
 * it has failed.
 */
int partition_upkeep_finish(struct partition *partition, struct partition_upkeep *upkeep);

struct partition_roll;

/*
 * A roll: force and trim the active segment, make the next one under a temporary name, rename it, force the
 * directory. With `bytes` > 0 the `count` encoded records are a batch larger than a segment, which is written into as
 * many new segments as it needs before the first is renamed; the last of them becomes the active one. `records` is
 * borrowed until finish. No append between begin and finish. Returns NULL with errno: ENOMEM; EIO, the
 * partition has failed; EINVAL, these are not that many records, or no segment can hold one of them.
 */
struct partition_roll *partition_roll_begin(struct partition *partition, const uint8_t *records, size_t bytes,
    int32_t count);
void partition_roll_run(struct partition_roll *roll);

/*
 * Takes over the result and frees the roll. Returns 0: everything up to the log end is durable, the batch included.
 * Or -1 with errno: nothing of the batch is visible, the active segment is the old one and the roll may be tried
 * again; unless forcing failed, then the partition has failed.
 */
int partition_roll_finish(struct partition *partition, struct partition_roll *roll);

struct partition_load;

/* A place in the log where a reader stands. Borrows; valid until the owner next appends, finishes a roll or
 * a load, retires segments, or closes. */
struct partition_place {
	struct segment *segment;
	int64_t position;
	int64_t bytes_in_segment;	/* readable from here to the end of this segment */
	int64_t bytes_behind;		/* readable from here to the end of the log */
};

enum partition_found {
	PARTITION_FOUND,
	PARTITION_COLD,		/* not open, not indexed, or not in memory: run a load, then ask again */
	PARTITION_BROKEN,	/* damage, a missing segment, or behind the end of a failed partition: errno EIO or the like, */
				/* EBADMSG when a line in the log has told it */
};

/*
 * Where does the record `offset` begin? `offset` must be from log start to visible end; that end itself is found with
 * no bytes behind it (in a failed partition everything from the durable end on is broken).
 */
enum partition_found partition_find(struct partition *partition, int64_t offset, struct partition_place *place);

/* The first at most `max_bytes` bytes from that place, within its segment, with a reference of their own. */
void partition_slice(const struct partition_place *place, int64_t max_bytes, struct slice *slice);

/*
 * Finding the record `offset` where the disk must be asked: opens and indexes its segment if need be (a few of the sealed
 * ones, the last read ones, stay open), and remembers where it begins, until the next load has ended. Returns NULL with
 * errno: ENOMEM; EIO, no segment holds it.
 */
struct partition_load *partition_load_begin(struct partition *partition, int64_t offset);
/* Before the run: an index that it builds is not stored, so that it writes nothing. */
void partition_load_store_nothing(struct partition_load *load);
void partition_load_run(struct partition_load *load);
/*
 * Takes over the result and frees the load. Returns 0 (partition_find then says what can be read: damage is found out
 * here), or -1 with errno: the segment could not be opened, or memory is out. Then what lies in it is BROKEN with that
 * errno for a tenth of a second, and COLD again after that.
 */
int partition_load_finish(struct partition *partition, struct partition_load *load);

#endif
