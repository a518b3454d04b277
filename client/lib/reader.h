/*
 * One partition of a subscription: a cursor, the connection that asks its questions and is opened again when it is lost, and the
 * batches that have come and not been handled. Calls nobody back: the subscription looks.
 */
#ifndef CLIENT_LIB_READER_H
#define CLIENT_LIB_READER_H

#include "client/lib/backoff.h"
#include "client/lib/connection.h"
#include "client/lib/cursor.h"
#include "client/lib/watch.h"

enum {
	LB_READER_BATCHES = 2,		/* one to be handled, one ahead */
	LB_READER_FRAME_BYTES = 4 + 8 + 2 + LB_TOPIC_NAME_MAX + 4 + 8 + 4 + 8,
};

/* What the readers of a subscription have in common. */
struct lb_reader_setting {
	const char *address;
	const char *topic;
	const struct lb_subscription_options *options;
	int epoll_fd;		/* where each has the descriptor of its connection, with itself as data */
};

struct lb_reader_block {
	void *memory;
	size_t bytes;
};

/* A batch, and the block of memory that its records stand in. */
struct lb_reader_batch {
	struct lb_batch batch;
	struct lb_reader_block block;
};

/* METADATA ahead of the next FETCH, to see whether the topic has more partitions: only the first reader does. */
enum lb_reader_look { LB_LOOK_NO, LB_LOOK_NOW, LB_LOOK_LATER };

struct lb_reader {
	const struct lb_reader_setting *setting;
	struct lb_cursor cursor;	/* its partition is -1 until the subscription has been placed */
	struct lb_metadata *metadata;	/* with the topic in it: the subscription's to look at, and to free; NULL = none came */
	bool first;
	enum lb_reader_look look;
	/* the connection */
	struct lb_connection *connection;	/* NULL while there is none */
	struct lb_watch watch;
	bool ready;			/* something has happened to it */
	bool answered;
	int64_t opened_ns;
	int64_t down_since_ns;		/* while it does not work: since then */
	struct lb_backoff backoff;
	/* the question that is out */
	enum lb_question asked;
	int64_t asked_ns;
	uint8_t frame[LB_READER_FRAME_BYTES];
	struct lb_error refusal;	/* why the connection is given up; code LB_OK = it is not */
	/* what has come */
	struct lb_reader_batch batches[LB_READER_BATCHES];
	unsigned batch_count;
	bool replaced;			/* a seek has taken the place of batches[0]'s next offset */
	struct lb_reader_block spares[LB_READER_BATCHES];	/* for answers to come */
	unsigned spare_count;
};

void lb_reader_init(struct lb_reader *reader, const struct lb_reader_setting *setting, int32_t partition, bool first);
/* Closes the connection. Batches stay until lb_reader_free. */
void lb_reader_close(struct lb_reader *reader);
void lb_reader_free(struct lb_reader *reader);

/* Opens the connection. LB_OK, or what makes the address wrong for good; else it is tried again. */
enum lb_code lb_reader_connect(struct lb_reader *reader, int64_t now_ns, struct lb_error *error);
/* Reads and writes, where that can be done without waiting. */
void lb_reader_process(struct lb_reader *reader);
/* What follows: gives up what was lost; opens and asks, if that is wanted. */
void lb_reader_work(struct lb_reader *reader, bool may_ask, int64_t now_ns);
/* When one of the two has something to do although nothing happens; INT64_MAX = never. */
int64_t lb_reader_due_ns(const struct lb_reader *reader, bool may_ask, int64_t now_ns);

/* The batch that is next to be handled; NULL = none is there. */
const struct lb_batch *lb_reader_batch(const struct lb_reader *reader);
/* It was: its memory is the reader's again. */
void lb_reader_handled(struct lb_reader *reader);
/* batch_out: the first batch is with the application, and stays until lb_reader_handled. */
void lb_reader_seek(struct lb_reader *reader, int64_t offset, bool batch_out);
/* The next offset to be handled, or passed over and not told yet; -1 = not known yet. batch_out: as above. */
int64_t lb_reader_position(const struct lb_reader *reader, bool batch_out);

#endif
