/*
 * The conformance command of protocol.md, on the library's synchronous calls: what the kits of other clients' tests call to ask
 * a client for one thing. The broker is in BOOBLIK_BROKER. It prints key=value lines; what a broker refuses is a line, too.
 *
 *   conformance capabilities
 *   conformance metadata TOPIC
 *   conformance produce TOPIC PARTITION none|written|forced HEX[,HEX...]
 *   conformance produce-keyed TOPIC KEYHEX PAYLOADHEX
 *   conformance fetch TOPIC PARTITION OFFSET MAXBYTES
 *
 * Exit codes: 0 carried out, also when refused (error=NAME); 1 not carried out, why is on stderr; 64 called wrongly.
 */
#include <logbroker.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 64 };

static struct lb_connection *connection;

static void
usage(const char *what)
{
	fprintf(stderr, "conformance: %s\n", what);
	exit(EXIT_USAGE);
}

static int64_t
number(const char *text, int64_t largest)
{
	char *end;
	long long value;

	errno = 0;
	value = strtoll(text, &end, 10);
	if (end == text || *end != '\0' || errno != 0 || value > largest || value < -largest)
		usage("a number was expected");
	return value;
}

static int
digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *found = c == '\0' ? NULL : strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);

	if (found == NULL)
		usage("hexadecimal digits were expected, two for each byte");
	return (int)(found - digits);
}

/* The bytes of `length` digits, which take the digits' place. */
static struct lb_payload
from_hex(char *hex, size_t length)
{
	if (length % 2 != 0)
		usage("an odd number of hexadecimal digits");
	for (size_t i = 0; i < length / 2; i++)
		hex[i] = (char)(16 * digit(hex[2 * i]) + digit(hex[2 * i + 1]));
	return (struct lb_payload){ hex, length / 2 };
}

static void
print_hex(const struct lb_record *record)
{
	const uint8_t *bytes = record->data;

	printf("record=");
	for (size_t i = 0; i < record->bytes; i++)
		printf("%02x", bytes[i]);
	printf("\n");
}

/* What a broker answered is a result like any other. Returns the exit code. */
static int
failed(const struct lb_error *error)
{
	if (error->code > 0) {
		printf("error=%s\n", lb_code_name(error->code));
		return EXIT_SUCCESS;
	}
	fprintf(stderr, "conformance: %s\n", error->text);
	return EXIT_FAILURE;
}

static int
capabilities(char **arguments)
{
	(void)arguments;
	printf("roles=producer,consumer\nname=liblogbroker\n");
	return EXIT_SUCCESS;
}

/* The topic that was asked for is in it; NULL: the exit code is in *code. */
static struct lb_metadata *
ask_metadata(const char *topic, int *code)
{
	struct lb_metadata *metadata;
	struct lb_error error;

	if (lb_connection_metadata(connection, &topic, 1, &metadata, &error) == LB_OK)
		return metadata;
	*code = failed(&error);
	return NULL;
}

static int
print_metadata(char **arguments)
{
	int code = EXIT_SUCCESS;
	struct lb_metadata *metadata = ask_metadata(arguments[0], &code);
	const struct lb_topic_metadata *topic;

	if (metadata == NULL)
		return code;
	topic = lb_metadata_find(metadata, arguments[0]);
	for (int32_t i = 0; i < topic->partition_count; i++) {
		const struct lb_partition_metadata *partition = &topic->partitions[i];

		printf("partition=%lld %lld %lld\n", (long long)partition->partition, (long long)partition->log_start_offset,
		    (long long)partition->high_watermark);
	}
	lb_metadata_free(metadata);
	return code;
}

static enum lb_ack
ack_of(const char *name)
{
	static const char *const names[] = { "none", "written", "forced" };

	for (int ack = LB_ACK_NONE; ack <= LB_ACK_FORCED; ack++)
		if (strcmp(names[ack], name) == 0)
			return (enum lb_ack)ack;
	usage("acks are none, written and forced");
	return LB_ACK_NONE;
}

/* The records of "HEX,HEX"; the array is the caller's. */
static struct lb_payload *
read_records(char *hex, size_t *count)
{
	struct lb_payload *records = calloc(strlen(hex) + 1, sizeof(*records));

	if (records == NULL)
		abort();
	*count = 0;
	for (bool more = true; more;) {
		size_t length = strcspn(hex, ",");

		more = hex[length] != '\0';
		records[(*count)++] = from_hex(hex, length);
		hex += length + 1;
	}
	return records;
}

static int
produce(char **arguments)
{
	int32_t partition = (int32_t)number(arguments[1], INT32_MAX);
	enum lb_ack ack = ack_of(arguments[2]);
	size_t count;
	struct lb_payload *records = read_records(arguments[3], &count);
	struct lb_produced produced;
	struct lb_error error;
	enum lb_code code;

	code = lb_connection_produce(connection, arguments[0], partition, ack, records, count, &produced, &error);
	free(records);
	if (code != LB_OK)
		return failed(&error);
	if (ack != LB_ACK_NONE)
		printf("baseOffset=%lld\nlogEndOffset=%lld\n", (long long)produced.base_offset, (long long)produced.log_end_offset);
	return EXIT_SUCCESS;
}

static int
produce_keyed(char **arguments)
{
	struct lb_payload key = from_hex(arguments[1], strlen(arguments[1]));
	struct lb_payload record = from_hex(arguments[2], strlen(arguments[2]));
	int code = EXIT_SUCCESS;
	struct lb_metadata *metadata = ask_metadata(arguments[0], &code);
	struct lb_produced produced;
	struct lb_error error;
	int32_t partition;

	if (metadata == NULL)
		return code;
	partition = lb_partition_of_key(key.data, key.bytes, lb_metadata_find(metadata, arguments[0])->partition_count);
	lb_metadata_free(metadata);
	if (lb_connection_produce(connection, arguments[0], partition, LB_ACK_WRITTEN, &record, 1, &produced, &error) != LB_OK)
		return failed(&error);
	printf("partition=%ld\nbaseOffset=%lld\n", (long)partition, (long long)produced.base_offset);
	return EXIT_SUCCESS;
}

static int
print_records(enum lb_record_format format, int64_t offset, const struct lb_fetched *fetched)
{
	struct lb_walk walk;
	struct lb_record record;
	enum lb_walk_result result;

	printf("highWatermark=%lld\n", (long long)fetched->high_watermark);
	lb_walk_begin(&walk, format, offset, fetched->payload, fetched->payload_bytes);
	while ((result = lb_walk_next(&walk, &record)) == LB_WALK_RECORD)
		print_hex(&record);
	if (result == LB_WALK_EXCEEDS)
		printf("recordExceedsMaxBytes=%zu\n", record.bytes);
	if (result != LB_WALK_CORRUPT)
		return EXIT_SUCCESS;
	fprintf(stderr, "conformance: the record at offset %lld is damaged\n", (long long)record.offset);
	return EXIT_FAILURE;
}

/* What its records look like is METADATA's to tell. */
static int
fetch(char **arguments)
{
	struct lb_fetch fetch = {
		.topic = arguments[0],
		.partition = (int32_t)number(arguments[1], INT32_MAX),
		.offset = number(arguments[2], INT64_MAX),
		.max_bytes = (int32_t)number(arguments[3], INT32_MAX),
	};
	int code = EXIT_SUCCESS;
	struct lb_metadata *metadata = ask_metadata(fetch.topic, &code);
	enum lb_record_format format;
	struct lb_fetched fetched;
	struct lb_error error;

	if (metadata == NULL)
		return code;
	format = lb_metadata_find(metadata, fetch.topic)->record_format;
	lb_metadata_free(metadata);
	if (lb_connection_fetch(connection, &fetch, &fetched, &error) != LB_OK)
		return failed(&error);
	return print_records(format, fetch.offset, &fetched);
}

static const struct verb {
	const char *name;
	int arguments;
	int (*run)(char **arguments);
} verbs[] = {
	{ "capabilities", 0, capabilities },
	{ "metadata", 1, print_metadata },
	{ "produce", 4, produce },
	{ "produce-keyed", 3, produce_keyed },
	{ "fetch", 4, fetch },
};

static const struct verb *
find_verb(const char *name, int arguments)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].name, name) == 0 && verbs[i].arguments == arguments)
			return &verbs[i];
	usage("no such verb, or not with that many arguments");
	return NULL;
}

int
main(int argc, char *argv[])
{
	const char *address = getenv("BOOBLIK_BROKER");
	const struct verb *verb = find_verb(argc > 1 ? argv[1] : "", argc - 2);
	struct lb_error error;
	int code;

	if (verb->run != capabilities) {
		if (address == NULL)
			usage("BOOBLIK_BROKER=host:port must be in the environment");
		if (lb_connection_open(&connection, address, NULL, &error) != LB_OK)
			return failed(&error);
	}
	code = verb->run(argv + 2);
	lb_connection_free(connection);
	return fflush(stdout) == 0 ? code : EXIT_FAILURE;
}
