/*
 * The command line. An option of interfaces.md that this version does not have yet stands in the table without a
 * setter: it is refused by name and never ignored.
 */
#include "client/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/tool.h"
#include "common/clock.h"
#include "common/record.h"

enum {
	LINGER_MAX_MS = 60000,
	TIMEOUT_MS = 30000,
	ORDER_TIMEOUT_MS = 120000,
	LINGER_MS = 5,
	TAIL_RECORDS = 10,
	BATCH_RECORDS_MAX = 1000000,
};

static const char not_supported[] = "not supported in this version";

/* Digits only, so that no sign, blank or "0x" slips through. Returns 0, or -1. */
static int
read_number(const char *text, size_t length, int64_t max, int64_t *number)
{
	int64_t value = 0;

	if (length == 0)
		return -1;
	for (size_t i = 0; i < length; i++) {
		int digit = text[i] - '0';

		if (digit < 0 || digit > 9 || value > (max - digit) / 10)
			return -1;
		value = value * 10 + digit;
	}
	*number = value;
	return 0;
}

static int
read_whole_number(const char *text, int64_t max, int64_t *number)
{
	return read_number(text, strlen(text), max, number);
}

struct unit {
	const char *name;
	int64_t factor;
};

/* A number and one of the units, of which the first stands when none is written. Returns 0, or -1. */
static int
read_with_unit(const char *text, const struct unit *units, size_t count, int64_t *value)
{
	size_t digits = strspn(text, "0123456789");
	const char *name = text[digits] == '\0' ? units[0].name : text + digits;

	for (size_t i = 0; i < count; i++) {
		if (strcmp(name, units[i].name) != 0)
			continue;
		if (read_number(text, digits, INT64_MAX / 4 / units[i].factor, value) != 0)
			return -1;
		*value *= units[i].factor;
		return 0;
	}
	return -1;
}

/* The place of `word` among the words, which end with NULL; -1 when it is none of them. */
static int
find_word(const char *const *words, const char *word)
{
	for (int i = 0; words[i] != NULL; i++)
		if (strcmp(word, words[i]) == 0)
			return i;
	return -1;
}

/* Setters: each returns NULL, or what is wrong with the value ("must be ..."). */

static const char *
set_address(struct options *options, const char *value)
{
	options->address = value;	/* the library tells what is wrong with it */
	return NULL;
}

/* A time in whole milliseconds, rounded up; a number without a unit has the first one. Returns 0, or -1. */
static int
read_time(const char *value, const struct unit *units, size_t count, int *ms)
{
	int64_t ns;

	if (read_with_unit(value, units, count, &ns) != 0 || ns > INT32_MAX / 4 * (int64_t)CLOCK_NS_PER_MS)
		return -1;
	*ms = (int)((ns + CLOCK_NS_PER_MS - 1) / CLOCK_NS_PER_MS);
	return 0;
}

static const char *
set_timeout(struct options *options, const char *value)
{
	static const struct unit units[] = {
		{ "s", CLOCK_NS_PER_S },
		{ "us", CLOCK_NS_PER_US },
		{ "ms", CLOCK_NS_PER_MS },
		{ "min", 60 * (int64_t)CLOCK_NS_PER_S },
		{ "h", 3600 * (int64_t)CLOCK_NS_PER_S },
		{ "d", 86400 * (int64_t)CLOCK_NS_PER_S },
	};

	if (read_time(value, units, sizeof(units) / sizeof(units[0]), &options->timeout_ms) != 0 || options->timeout_ms == 0)
		return "must be a time above 0, up to 6 days: a number of seconds, or a number with us, ms, s, min, h or d";
	return NULL;
}

static const char *
set_linger(struct options *options, const char *value)
{
	static const struct unit units[] = {
		{ "ms", CLOCK_NS_PER_MS },
		{ "us", CLOCK_NS_PER_US },
		{ "s", CLOCK_NS_PER_S },
		{ "min", 60 * (int64_t)CLOCK_NS_PER_S },
	};

	if (read_time(value, units, sizeof(units) / sizeof(units[0]), &options->linger_ms) != 0 ||
	    options->linger_ms > LINGER_MAX_MS)
		return "must be a time up to 1min: a number of milliseconds, or a number with us, ms, s or min";
	return NULL;
}

static const char *
set_output(struct options *options, const char *value)
{
	static const char *const forms[] = { "text", "json", "jsonl", NULL };
	int form = find_word(forms, value);

	if (form < 0)
		return "must be text, json or jsonl";
	options->output = (enum options_output)form;
	return NULL;
}

static const char *
set_partition(struct options *options, const char *value)
{
	int64_t number;

	if (read_whole_number(value, 99998, &number) != 0)
		return "must be a partition's number, 0 to 99998";
	options->partition = (int32_t)number;
	return NULL;
}

static const char *
set_key(struct options *options, const char *value)
{
	options->key = value;
	return NULL;
}

static const char *
set_key_delimiter(struct options *options, const char *value)
{
	options->key_delimiter = value;
	return value[0] == '\0' ? "must not be empty" : NULL;
}

static const char *
set_ack(struct options *options, const char *value)
{
	static const char *const acks[] = { [LB_ACK_NONE] = "none", [LB_ACK_WRITTEN] = "written",
		[LB_ACK_FORCED] = "forced", NULL };
	int ack = find_word(acks, value);

	if (ack < 0)
		return "must be none, written or forced";
	options->ack = (enum lb_ack)ack;
	return NULL;
}

static const char *
set_framing(struct options *options, const char *value)
{
	int framing = framing_parse(value);

	if (framing < 0)
		return "must be lines, nul, len32, jsonl or none";
	options->framing = (enum framing)framing;
	options->framed = true;
	return NULL;
}

static const char *
set_batch_records(struct options *options, const char *value)
{
	int64_t number;

	if (read_whole_number(value, BATCH_RECORDS_MAX, &number) != 0 || number == 0)
		return "must be a number of records, 1 to 1000000";
	options->batch_records = (int32_t)number;
	return NULL;
}

static const char *
set_offsets(struct options *options, const char *value)
{
	(void)value;
	options->offsets = true;
	return NULL;
}

static const char *
set_from(struct options *options, const char *value)
{
	if (strcmp(value, "checkpoint") == 0) {
		options->from = OPTIONS_FROM_CHECKPOINT;
	} else if (strcmp(value, "earliest") == 0) {
		options->from = OPTIONS_FROM_EARLIEST;
	} else if (strcmp(value, "latest") == 0) {
		options->from = OPTIONS_FROM_LATEST;
	} else {
		options->from = value[0] == '-' ? OPTIONS_FROM_LAST : OPTIONS_FROM_OFFSET;
		if (read_whole_number(value + (value[0] == '-'), INT64_MAX, &options->from_number) != 0)
			return "must be earliest, latest, checkpoint, an offset, or -N for the last N records";
	}
	options->from_given = true;
	return NULL;
}

static const char *
set_to(struct options *options, const char *value)
{
	if (strcmp(value, "end") == 0)
		options->to = OPTIONS_TO_END;
	else if (strcmp(value, "never") == 0)
		options->to = OPTIONS_TO_NEVER;
	else if (read_whole_number(value, INT64_MAX, &options->to_offset) == 0)
		options->to = OPTIONS_TO_OFFSET;
	else
		return "must be end, never or an offset";
	return NULL;
}

static const char *
set_count(struct options *options, const char *value)
{
	if (read_whole_number(value, INT64_MAX - 1, &options->count) != 0 || options->count == 0)
		return "must be a number of records, 1 or more";
	return NULL;
}

static const char *
set_last(struct options *options, const char *value)
{
	if (read_whole_number(value, INT64_MAX - 1, &options->from_number) != 0 || options->from_number == 0)
		return "must be a number of records, 1 or more";
	return NULL;
}

static const char *
set_following(struct options *options, const char *value)
{
	(void)value;
	options->to = OPTIONS_TO_NEVER;
	return NULL;
}

static const char *
set_checkpoint(struct options *options, const char *value)
{
	options->checkpoint = value;
	return value[0] == '\0' ? "must be a file" : NULL;
}

static const char *
set_max_bytes(struct options *options, const char *value)
{
	static const struct unit units[] = { { "B", 1 }, { "KiB", 1024 }, { "MiB", 1024 * 1024 } };
	int64_t bytes;

	if (read_with_unit(value, units, sizeof(units) / sizeof(units[0]), &bytes) != 0 || bytes == 0 ||
	    bytes > LB_FETCH_MAX_BYTES)
		return "must be 1 to 8388590 bytes; B, KiB and MiB are units";
	options->max_bytes = (int32_t)bytes;
	return NULL;
}

static const char *
set_on_gap(struct options *options, const char *value)
{
	static const char *const gaps[] = { [LB_GAP_FAIL] = "fail", [LB_GAP_EARLIEST] = "earliest",
		[LB_GAP_LATEST] = "latest", NULL };
	int gap = find_word(gaps, value);

	if (gap < 0)
		return "must be fail, earliest or latest";
	options->on_gap = (enum lb_gap)gap;
	return NULL;
}

static const char *
set_from_offset(struct options *options, const char *value)
{
	options->from = OPTIONS_FROM_OFFSET;
	if (read_whole_number(value, INT64_MAX, &options->from_number) != 0)
		return "must be an offset";
	return NULL;
}

static const char *
set_format(struct options *options, const char *value)
{
	static const char *const formats[] = { [RECORD_PLAIN] = "plain", [RECORD_CRC32C] = "crc32c", NULL };

	options->format = find_word(formats, value);
	return options->format < 0 ? "must be crc32c or plain" : NULL;
}

static const char *
set_payload(struct options *options, const char *value)
{
	(void)value;
	options->payload = true;
	return NULL;
}

/* With what else dump tells of a record in JSON nobody needs another way to say -o jsonl. */
static const char *
set_dump_framing(struct options *options, const char *value)
{
	return set_framing(options, value) == NULL && options->framing != FRAMING_JSONL ? NULL :
	    "must be lines, nul, len32 or none";
}

static const char *
set_apply(struct options *options, const char *value)
{
	(void)value;
	options->apply = true;
	return NULL;
}

static const char *
set_control(struct options *options, const char *value)
{
	options->control = value;
	return value[0] == '\0' ? "must be the path of a socket" : NULL;
}

static const char *
set_watch(struct options *options, const char *value)
{
	(void)value;
	options->watch = true;
	return NULL;
}

static const char *
set_check(struct options *options, const char *value)
{
	(void)value;
	options->check = true;
	return NULL;
}

static const char *
set_all(struct options *options, const char *value)
{
	(void)value;
	options->all = true;
	return NULL;
}

/* Several options may have one name, for different verbs. */
struct option {
	const char *name;	/* with its dashes; one letter behind one dash, a word behind two */
	const char *argument;	/* NULL: takes none */
	unsigned verbs;
	const char *(*set)(struct options *options, const char *value);		/* NULL: not in this version */
	const char *help;
};

static const struct option option_table[] = {
	{ "-p", "N", VERB_PRODUCE, set_partition, "all records go to partition N" },
	{ "-k", "KEY", VERB_PRODUCE, set_key, "all records go to the partition of KEY" },
	{ "--key-delim", "STRING", VERB_PRODUCE, set_key_delimiter,
	    "what stands before STRING in a record is its key, and is not sent" },
	{ "-a", "ACK", VERB_PRODUCE, set_ack, "none, written or forced [written]" },
	{ "--batch-records", "N", VERB_PRODUCE, set_batch_records, "at most N records in a request" },
	{ "--linger", "TIME", VERB_PRODUCE, set_linger, "how long a record may wait for others to go with it [5ms]" },
	{ "--offsets", NULL, VERB_PRODUCE, set_offsets, "print partition and offset of each acknowledged record" },
	{ "-f", NULL, VERB_TAIL, set_following, "go on with what comes, for ever" },
	{ "-n", "N", VERB_TAIL, set_last, "begin with the last N records of each partition [10]" },
	{ "--from", "WHERE", VERB_RANGED, set_from,
	    "earliest, latest, checkpoint, an offset, or -N: the last N [earliest; follow: latest]" },
	{ "--to", "WHERE", VERB_RANGED, set_to, "end (as it is at the start), never, or an offset [end; follow: never]" },
	{ "--from", "OFFSET", VERB_DUMP, set_from_offset, "begin with the record at OFFSET" },
	{ "-n", "MAX", VERB_RANGED | VERB_DUMP, set_count, "stop after MAX records" },
	{ "--checkpoint", "FILE", VERB_RANGED, set_checkpoint, "keep the position in FILE; without --from, begin there" },
	{ "--checkpoint", "FILE", VERB_TAIL, set_checkpoint, "keep the position in FILE; it does not begin there" },
	{ "--checkpoint", "FILE", VERB_TOPICS, set_checkpoint, "list the position that is kept in FILE, and the lag" },
	{ "--max-bytes", "SIZE", VERB_READERS, set_max_bytes, "bytes to ask for at a time [1MiB]" },
	{ "--on-gap", "WHAT", VERB_READERS, set_on_gap,
	    "fail, earliest or latest: when the wanted offset is gone [fail]" },
	{ "--framing", "FRAMING", VERB_PRODUCE | VERB_READERS, set_framing, "lines, nul, len32, jsonl or none [lines]" },
	{ "--payload", NULL, VERB_DUMP, set_payload, "show the payloads too" },
	{ "--framing", "FRAMING", VERB_DUMP, set_dump_framing,
	    "write the payloads and nothing else: lines, nul, len32 or none" },
	{ "--format", "FORMAT", VERB_OFFLINE, set_format, "crc32c or plain: what the records are [what the log tells]" },
	{ "--apply", NULL, VERB_REPAIR, set_apply, "do it; otherwise the plan is shown and nothing changed" },
	{ "--watch", NULL, VERB_STATUS, set_watch, "every 2 seconds, with what has happened since, until a signal" },
	{ "--check", NULL, VERB_STATUS, set_check, "say ok, or what is wrong and end with 3: for monitoring" },
	{ "--all", NULL, VERB_RESTART_WORKER, set_all, "all workers, one after the other" },
	{ "-b", "ADDR", VERB_ONLINE, set_address, "broker: host:port, [v6]:port or unix:/path [127.0.0.1:9092]" },
	{ "--timeout", "TIME", VERB_ONLINE | VERB_STATUS, set_timeout, "give up after TIME without progress [30s]" },
	{ "--timeout", "TIME", VERB_ORDERS, set_timeout, "give up waiting after TIME; what was begun goes on [2min]" },
	{ "-o", "FORMAT", VERB_ALL, set_output, "text, json or jsonl [text]" },
	{ "--control", "PATH", VERB_CONTROL, set_control,
	    "the broker's control socket [/run/logbroker/control.sock]" },
	{ "-h", NULL, VERB_ALL, NULL, "this help" },
	{ "--version", NULL, VERB_ALL, NULL, "name and version" },
};
enum { OPTION_COUNT = sizeof(option_table) / sizeof(option_table[0]) };

/* The option that `text` begins with; *attached becomes the value that is written in the same word, or NULL. */
static bool
is_option(const struct option *option, const char *text, const char **attached)
{
	size_t length = strlen(option->name);
	bool is_word = option->name[1] == '-';

	if (strncmp(text, option->name, length) != 0)
		return false;
	if (text[length] != '\0' && is_word && text[length] != '=')
		return false;
	*attached = text[length] == '\0' ? NULL : text + length + is_word;
	return true;
}

/* That of the verb (NULL: any), or another verb's of that name. */
static const struct option *
find_option(const char *text, const struct verb *verb, const char **attached)
{
	const struct option *found = NULL;

	for (size_t i = 0; i < OPTION_COUNT; i++) {
		const struct option *option = &option_table[i];
		bool fits = verb == NULL || (option->verbs & verb->bit) != 0;

		if ((fits || found == NULL) && is_option(option, text, attached))
			found = option;
		if (fits && found == option)
			break;
	}
	return found;
}

/* May it stand ahead of the verb? */
static bool
is_for_all(const struct option *option)
{
	return (option->verbs & VERB_ONLINE) == VERB_ONLINE || (option->verbs & VERB_CONTROL) == VERB_CONTROL;
}

static const struct verb *
find_verb(const struct verb *verbs, const char *name)
{
	for (const struct verb *verb = verbs; verb->name != NULL; verb++) {
		if (strcmp(verb->name, name) == 0)
			return verb;
	}
	return NULL;
}

static enum options_wish
choose_verb(const struct verb *verbs, const char *name, const struct verb **verb)
{
	*verb = find_verb(verbs, name);
	if (*verb == NULL)
		tool_say("there is no verb '%s'; logbroker -h lists them", name);
	else if ((*verb)->run == NULL)
		tool_say("%s: %s", name, not_supported);
	return *verb == NULL || (*verb)->run == NULL ? OPTIONS_WRONG : OPTIONS_RUN;
}

static enum options_wish
apply_option(const struct option *option, const char *value, struct options *options)
{
	const char *problem = option->set == NULL ? not_supported : option->set(options, value);

	if (problem == NULL)
		return OPTIONS_RUN;
	if (problem == not_supported && option->set == NULL)
		tool_say("%s: %s", option->name, problem);
	else
		tool_say("%s '%s': %s", option->name, value, problem);
	return OPTIONS_WRONG;
}

/* One option at argv[*i]; *i moves over its value. */
static enum options_wish
read_option(char **argv, int argc, int *i, const struct verb *verb, struct options *options)
{
	const char *attached = NULL;
	const struct option *option = find_option(argv[*i], verb, &attached);

	if (strcmp(argv[*i], "--help") == 0 || strcmp(argv[*i], "-h") == 0)
		return OPTIONS_HELP;
	if (strcmp(argv[*i], "--version") == 0)
		return OPTIONS_VERSION;
	if (option == NULL || (verb != NULL && (option->verbs & verb->bit) == 0) ||
	    (verb == NULL && !is_for_all(option))) {
		tool_say("%s%sthere is no option '%s'%s", verb != NULL ? verb->name : "", verb != NULL ? ": " : "",
		    argv[*i], verb != NULL || option == NULL ? "" : " ahead of the verb; write it behind");
		return OPTIONS_WRONG;
	}
	if (option->argument == NULL && attached != NULL) {
		tool_say("%s takes no value", option->name);
		return OPTIONS_WRONG;
	}
	if (option->argument != NULL && attached == NULL) {
		if (*i + 1 == argc && option->set != NULL) {
			tool_say("%s needs a value: %s %s", option->name, option->name, option->argument);
			return OPTIONS_WRONG;
		}
		attached = *i + 1 < argc ? argv[++*i] : "";
	}
	return apply_option(option, attached, options);
}

static void
set_defaults(struct options *options)
{
	*options = (struct options){
		.partition = -1,
		.format = -1,
		.ack = LB_ACK_WRITTEN,
		.batch_records = BATCH_RECORDS_MAX,
		.linger_ms = -1,
		.framing = FRAMING_LINES,
		.from = OPTIONS_FROM_EARLIEST,
		.from_unkept = OPTIONS_FROM_EARLIEST,
		.to = OPTIONS_TO_END,
		.count = INT64_MAX,
		.max_bytes = 1024 * 1024,
		.on_gap = LB_GAP_FAIL,
	};
}

/* The readers are one with different defaults; what stands on the command line is set afterwards. */
static void
set_verb_defaults(const struct verb *verb, struct options *options)
{
	if (verb->bit == VERB_FOLLOW) {
		options->from = options->from_unkept = OPTIONS_FROM_LATEST;
		options->to = OPTIONS_TO_NEVER;
	}
	if (verb->bit == VERB_TAIL) {
		options->from = OPTIONS_FROM_LAST;
		options->from_number = TAIL_RECORDS;
	}
}

static void
choose_address(struct options *options)
{
	const char *variable = getenv("LOGBROKER_ADDR");

	if (options->address != NULL)
		return;
	options->address_inherited = variable != NULL && variable[0] != '\0';
	options->address = options->address_inherited ? variable : "127.0.0.1:9092";
}

static void
choose_control(struct options *options)
{
	const char *variable = getenv("LOGBROKER_CONTROL");

	if (options->control == NULL)
		options->control = variable != NULL && variable[0] != '\0' ? variable : "/run/logbroker/control.sock";
}

/* What was not given, from what was. */
static void
complete(const struct verb *verb, struct options *options)
{
	choose_address(options);
	choose_control(options);
	if (options->timeout_ms == 0)
		options->timeout_ms = (verb->bit & VERB_ORDERS) != 0 ? ORDER_TIMEOUT_MS : TIMEOUT_MS;
	if (options->linger_ms < 0)
		options->linger_ms = options->timeout_ms > LINGER_MS ? LINGER_MS : options->timeout_ms - 1;
	if (options->checkpoint != NULL && !options->from_given && (verb->bit & VERB_RANGED) != 0)
		options->from = OPTIONS_FROM_CHECKPOINT;
	if ((verb->bit & VERB_READERS) == 0)
		return;
	if (options->output == OPTIONS_OUTPUT_JSONL)
		options->framing = FRAMING_JSONL;
	else if (options->framing == FRAMING_JSONL)
		options->output = OPTIONS_OUTPUT_JSONL;
}

/* What is said of two options, or of one and the verb; NULL: nothing is wrong. */
static const char *
find_contradiction(const struct verb *verb, const struct options *options)
{
	int placements = (options->partition >= 0) + (options->key != NULL) + (options->key_delimiter != NULL);
	bool offline = (verb->bit & VERB_OFFLINE) != 0, reader = (verb->bit & VERB_READERS) != 0;
	bool text = options->output == OPTIONS_OUTPUT_TEXT;

	if (placements > 1)
		return "only one of -p, -k and --key-delim can choose the partition";
	if (options->offsets && options->ack == LB_ACK_NONE)
		return "--offsets needs answers, and with -a none there are none";
	if (options->linger_ms >= (options->timeout_ms != 0 ? options->timeout_ms : TIMEOUT_MS))
		return "--linger must be less than --timeout, within which a record is sent or never";
	if (verb->bit == VERB_PRODUCE && !text && !options->offsets)
		return "of produce, -o is about what --offsets prints; --framing jsonl reads records in JSON";
	if (offline && (options->address != NULL || options->timeout_ms != 0))
		return "-b and --timeout are of no use to a verb that reads files";
	if (options->control != NULL && (verb->bit & VERB_CONTROL) == 0)
		return "--control is for status, restart-worker and reload alone";
	if ((verb->bit & VERB_CONTROL) != 0 && options->address != NULL)
		return "this verb talks to the broker's control socket: --control PATH instead of -b";
	if (options->watch && options->check)
		return "--watch goes on and --check is asked once; choose one";
	if (verb->bit == VERB_RESTART_WORKER && options->all == (options->operand_count > 0))
		return "restart-worker needs the number of one worker, or --all";
	if (offline && options->framed && (options->payload || !text))
		return "with --framing nothing but payloads is written: no --payload, no -o";
	if (reader && options->framed && !text && options->framing != FRAMING_JSONL)
		return "with -o json and -o jsonl records are JSON: no --framing";
	if (reader && options->framing == FRAMING_JSONL && options->output == OPTIONS_OUTPUT_JSON)
		return "--framing jsonl and -o json are two forms; choose one";
	if (options->from == OPTIONS_FROM_CHECKPOINT && options->checkpoint == NULL)
		return "--from checkpoint needs to know the file: --checkpoint FILE";
	return NULL;
}

static enum options_wish
check_together(const struct verb *verb, const struct options *options)
{
	const char *contradiction = find_contradiction(verb, options);

	if (contradiction != NULL)
		tool_say("%s", contradiction);
	else if (options->operand_count < verb->operands_min || options->operand_count > verb->operands_max)
		tool_say("usage: logbroker %s [options]%s%s (logbroker %s -h tells more)", verb->name,
		    verb->operands[0] != '\0' ? " " : "", verb->operands, verb->name);
	else
		return OPTIONS_RUN;
	return OPTIONS_WRONG;
}

enum options_wish
options_read(int argc, char **argv, const struct verb *verbs, const struct verb **verb, struct options *options)
{
	enum options_wish wish = OPTIONS_RUN;
	bool only_operands = false;

	*verb = NULL;
	set_defaults(options);
	options->operands = argv + 1;
	for (int i = 1; i < argc && wish == OPTIONS_RUN; i++) {
		if (!only_operands && strcmp(argv[i], "--") == 0) {
			only_operands = true;
		} else if (!only_operands && argv[i][0] == '-' && argv[i][1] != '\0') {
			wish = read_option(argv, argc, &i, *verb, options);
		} else if (*verb == NULL) {
			wish = choose_verb(verbs, argv[i], verb);
			if (wish == OPTIONS_RUN)
				set_verb_defaults(*verb, options);
		} else {
			argv[1 + options->operand_count++] = argv[i];
		}
	}
	if (wish != OPTIONS_RUN)
		return wish;
	if (*verb == NULL) {
		tool_say("usage: logbroker [options] VERB ... (logbroker -h lists the verbs)");
		return OPTIONS_WRONG;
	}
	wish = check_together(*verb, options);
	complete(*verb, options);
	return wish;
}

void
options_print(const struct verb *verb)
{
	for (size_t i = 0; i < OPTION_COUNT; i++) {
		const struct option *option = &option_table[i];
		char left[32];

		if (option->help == NULL || (verb == NULL ? !is_for_all(option) : !(option->verbs & verb->bit)))
			continue;
		snprintf(left, sizeof(left), "%s%s%s", option->name, option->argument != NULL ? " " : "",
		    option->argument != NULL ? option->argument : "");
		printf("  %-22s %s\n", left, option->help);
	}
}
