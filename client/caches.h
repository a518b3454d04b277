/*
 * What a broker has stored beside a log to start sooner, its caches, held against what was found in the log itself.
 * Where they are wrong nothing is lost, the broker stores them anew; but a segment's index also tells how far it had
 * been forced to disk, and what is not there of that is damage.
 */
#ifndef CLIENT_CACHES_H
#define CLIENT_CACHES_H

#include <stdbool.h>
#include <stdint.h>

#include "client/look.h"
#include "worker/index.h"
#include "worker/index_file.h"
#include "worker/listing.h"
#include "worker/sealed_list.h"

/* A segment's index. */
struct caches_index {
	struct index marks;
	struct index_file file;		/* zeroed: there is none, or it is not believed */
	const char *wrong;		/* NULL: nothing is known to be wrong with it */
	bool unread;			/* nor anything else: it could not be read */
};

/* Reads the index, before the segment is looked at: then that has all that the index knows. Returns 0, or -1 with errno
 * ENOMEM. Free it in any case. */
int caches_read_index(struct caches_index *index, int dir_fd, int64_t base, enum record_format format);
void caches_free_index(struct caches_index *index);

/* Adds to the look what its index says: damage in what had been forced, a note on the index. `fd` is the segment's. */
void caches_judge(struct look *look, const struct caches_index *index, int fd);

/*
 * Reads the list of sealed segments, which is empty when there is none to believe, and writes into `text` what is wrong with
 * it, "" = nothing. `listing` was read before. Returns 0, or -1 with errno ENOMEM. Free the list in any case.
 */
enum { CACHES_TEXT_BYTES = 160 };
int caches_read_list(struct sealed_list *list, int dir_fd, const struct listing *listing, char *text);

/* Was there a segment behind the last one that is there? Then *end is where the log is known to have ended. */
bool caches_know_more(const struct sealed_list *list, int dir_fd, const struct look *last, enum record_format format,
    int64_t *end);

/* The same by the list as it is now: that end, or -1; and where the last segment was sealed that the list knows, 0 = it tells
 * nothing. */
void caches_find_end(int dir_fd, const struct look *last, enum record_format format, int64_t *sealed_end,
    int64_t *indexed_end);

#endif
