/*
 * Many clients of every sort in one thread over epoll, for campaigns: they produce, follow, read slowly, dribble and idle
 * while the test's own thread restarts and kills. Each answer is checked when it comes, and what was promised or read
 * goes into a ledger. A client whose connection is lost is in the wrong unless the test has said that it may be; then it
 * comes again, and sends nothing twice. Knows the protocol, nothing of processes.
 *
 * None of the functions fails the test: crowd_wrong tells.
 */
#ifndef TESTS_CROWD_H
#define TESTS_CROWD_H

#include <stdbool.h>
#include <stdint.h>

#include "ledger.h"

enum crowd_kind {
	CROWD_SYNC,		/* one PRODUCE after the other, each answered before the next, to one partition */
	CROWD_PIPELINE,		/* bursts of PRODUCE; every second client over all partitions, the others in one group */
	CROWD_FOLLOWER,		/* held FETCHes of one partition, from where it ends at first; must get everything, once */
	CROWD_SLOW,		/* large answers, read a little at a time */
	CROWD_IDLE,
	CROWD_DRIBBLER,		/* PRODUCE a few bytes at a time: always in the middle of a frame */
	CROWD_ASKER,		/* METADATA */
	CROWD_KINDS
};

struct crowd_config {
	const char *topic;
	int32_t partitions;
	const int32_t *group_of;	/* by partition */
	int32_t groups;
	int32_t quiet;			/* the last so many partitions get no records: there, FETCHes are held to their end */
	int counts[CROWD_KINDS];
	uint64_t seed;
	int port;
	const char *unix_path;		/* for every fifth client */
	bool may_end_holds;		/* a held FETCH may be answered before its time without anything (a broker that stops) */
	const struct wire_bytes *slow;	/* by group: what the first partition of each group begins with, for CROWD_SLOW */
};

struct crowd_figures {
	long answers[CROWD_KINDS];
	long cuts[CROWD_KINDS];			/* connections that were lost, as they might be */
	int64_t longest_us[CROWD_KINDS];	/* that any client waited for an answer that was due */
	int64_t forced_us;			/* of CROWD_SYNC, when a barrier was asked for; above are those that waited for none */
	int64_t delay_us;			/* longest from the sending of a record to its reading by a follower */
	int64_t turn_us;			/* longest turn of the crowd's own loop: part of what it measures */
};

struct crowd;

/* Connects all of them, and begins. Group and partition numbers stay what they are. */
struct crowd *crowd_start(const struct crowd_config *config, struct ledger *ledger);
/* Everybody gets the answers that are due, followers up to the end of the log, then one METADATA each. */
void crowd_finish(struct crowd *crowd);
void crowd_free(struct crowd *crowd);

/* Between these two nothing is sent, received or judged. */
void crowd_hold(struct crowd *crowd);
void crowd_release(struct crowd *crowd);
/* While it is held: connections that live in this group's worker now may be lost once. */
void crowd_may_cut(struct crowd *crowd, int32_t group);
/* What could be lost by then is lost, and everybody has seen it. */
void crowd_calm(struct crowd *crowd);
/* While it is held: from now on nobody listens; and, not held, now somebody does again. */
void crowd_down(struct crowd *crowd);
void crowd_up(struct crowd *crowd, int port);

/* What has been counted since the last call. */
void crowd_take_figures(struct crowd *crowd, struct crowd_figures *figures);
void crowd_add_figures(struct crowd_figures *sum, const struct crowd_figures *figures);
long crowd_answers(struct crowd *crowd);	/* so far */
/* The first thing that went wrong, with the ledger's; NULL when nothing has. */
const char *crowd_wrong(struct crowd *crowd);

#endif
