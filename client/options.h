/*
 * The command line of `logbroker`: one table of verbs, one of options, and the values they set. Every value is
 * checked here; what a verb gets is complete, with the verb's own defaults. The help texts come from the same tables.
 */
#ifndef CLIENT_OPTIONS_H
#define CLIENT_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <logbroker.h>

#include "client/framing.h"

enum options_from { OPTIONS_FROM_EARLIEST, OPTIONS_FROM_LATEST, OPTIONS_FROM_OFFSET, OPTIONS_FROM_LAST, OPTIONS_FROM_CHECKPOINT };
enum options_to { OPTIONS_TO_END, OPTIONS_TO_OFFSET, OPTIONS_TO_NEVER };
enum options_output { OPTIONS_OUTPUT_TEXT, OPTIONS_OUTPUT_JSON, OPTIONS_OUTPUT_JSONL };

struct options {
	const char *address;
	bool address_inherited;		/* from LOGBROKER_ADDR */
	const char *control;		/* the path of the control socket */
	int timeout_ms;
	enum options_output output;	/* of readers: JSONL is FRAMING_JSONL */

	/* produce */
	int32_t partition;		/* -1: not given */
	const char *key;		/* NULL: not given */
	const char *key_delimiter;	/* NULL: not given, else not empty */
	enum lb_ack ack;
	int32_t batch_records;
	int linger_ms;
	bool offsets;

	/* produce and the readers */
	enum framing framing;
	bool framed;			/* it was given */

	/* consume, replay, follow, tail; topics has the checkpoint */
	const char *checkpoint;		/* a file; NULL: not given */
	enum options_from from;
	bool from_given;
	enum options_from from_unkept;	/* with FROM_CHECKPOINT, when nothing is kept: EARLIEST or LATEST */
	int64_t from_number;		/* with FROM_OFFSET and FROM_LAST, not negative */
	enum options_to to;
	int64_t to_offset;		/* with TO_OFFSET */
	int64_t count;			/* records at most; INT64_MAX: not given */
	int32_t max_bytes;
	enum lb_gap on_gap;

	/* dump, verify, repair */
	int format;			/* enum record_format; -1: not given */
	bool payload;
	bool apply;

	/* status, restart-worker */
	bool watch;
	bool check;
	bool all;

	char *const *operands;		/* what is left of the command line */
	int32_t operand_count;
};

struct verb {
	const char *name;
	const char *operands;	/* "TOPIC [FILE...]"; NULL: this version does not have the verb */
	const char *summary;
	const char *examples;
	unsigned bit;		/* in the option table's sets of verbs */
	int32_t operands_min, operands_max;
	int (*run)(const struct options *options);
};

enum { VERB_PRODUCE = 1, VERB_CONSUME = 2, VERB_REPLAY = 4, VERB_FOLLOW = 8, VERB_TOPICS = 16, VERB_PING = 32,
	VERB_DUMP = 64, VERB_VERIFY = 128, VERB_REPAIR = 256, VERB_TAIL = 512,
	VERB_STATUS = 1024, VERB_RESTART_WORKER = 2048, VERB_RELOAD = 4096,
	VERB_RANGED = VERB_CONSUME | VERB_REPLAY | VERB_FOLLOW,		/* readers with --from and --to */
	VERB_READERS = VERB_RANGED | VERB_TAIL,
	VERB_ONLINE = VERB_PRODUCE | VERB_READERS | VERB_TOPICS | VERB_PING,	/* those that talk to a broker's port */
	VERB_ORDERS = VERB_RESTART_WORKER | VERB_RELOAD,
	VERB_CONTROL = VERB_STATUS | VERB_ORDERS,				/* those that talk to its control socket */
	VERB_OFFLINE = VERB_DUMP | VERB_VERIFY | VERB_REPAIR, VERB_ALL = VERB_ONLINE | VERB_CONTROL | VERB_OFFLINE };

enum options_wish {
	OPTIONS_RUN,		/* *verb and *options are complete */
	OPTIONS_HELP,		/* of *verb, or of the program when that is NULL */
	OPTIONS_VERSION,
	OPTIONS_WRONG,		/* said on stderr */
};

/*
 * Reads the command line (argv is reordered: operands move to its front). `verbs` ends with a NULL name. The result
 * points into argv and the environment.
 */
enum options_wish options_read(int argc, char **argv, const struct verb *verbs, const struct verb **verb,
    struct options *options);

/* The options that `verb` (NULL: every verb) knows, a line each, on standard output. */
void options_print(const struct verb *verb);

#endif
