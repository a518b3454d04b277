/*
 * Codes, their names, and errors as a whole.
 */
#include "client/lib/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/codec.h"

/* The library's own; those of the wire are in common/codec.h. */
static const struct {
	int code;
	const char *name;
} names[] = {
	{ LB_OK, "OK" },
	{ LB_CANNOT_CONNECT, "CANNOT_CONNECT" },
	{ LB_LOST, "LOST" },
	{ LB_OUTCOME_UNKNOWN, "OUTCOME_UNKNOWN" },
	{ LB_TIMED_OUT, "TIMED_OUT" },
	{ LB_WOULD_BLOCK, "WOULD_BLOCK" },
	{ LB_CORRUPT_RECORD, "CORRUPT_RECORD" },
	{ LB_RECORD_EXCEEDS_MAX_BYTES, "RECORD_EXCEEDS_MAX_BYTES" },
	{ LB_BAD_ANSWER, "BAD_ANSWER" },
	{ LB_INVALID_ARGUMENT, "INVALID_ARGUMENT" },
	{ LB_NO_MEMORY, "NO_MEMORY" },
	{ LB_CLOSED, "CLOSED" },
	{ LB_GAP, "GAP" },
	{ LB_HANDLER_FAILED, "HANDLER_FAILED" },
	{ LB_ENDED, "ENDED" },
};

const char *
lb_version(void)
{
	return PACKAGE_VERSION;
}

const char *
lb_code_name(int code)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].code == code)
			return names[i].name;
	return codec_error_name(code);
}

enum lb_code
lb_error_set(struct lb_error *error, int code, const char *topic, int32_t partition, int64_t offset, const char *format, ...)
{
	va_list arguments;

	if (error == NULL)
		return (enum lb_code)code;
	*error = (struct lb_error){ .code = code, .partition = partition, .offset = offset, .record_bytes = -1 };
	if (topic != NULL)
		snprintf(error->topic, sizeof(error->topic), "%s", topic);
	va_start(arguments, format);
	vsnprintf(error->text, sizeof(error->text), format, arguments);
	va_end(arguments);
	return (enum lb_code)code;
}

enum lb_code
lb_error_no_topic(struct lb_error *error, const char *topic)
{
	if (topic == NULL)
		return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1, "a topic is missing");
	return lb_error_set(error, LB_INVALID_ARGUMENT, topic, -1, -1,
	    "\"%.260s\" is no topic: a name has 1 to %d characters out of A-Z a-z 0-9 . _ - and is neither . nor ..", topic,
	    LB_TOPIC_NAME_MAX);
}

/* And what to do. */
static const char *
meaning(int code)
{
	switch (code) {
	case LB_UNKNOWN_TOPIC_OR_PARTITION:
		return "the broker has no such topic or partition; its configuration names them";
	case LB_OFFSET_OUT_OF_RANGE:
		return "the log has no such offset; METADATA tells what it has";
	case LB_RECORD_TOO_LARGE:
		return "a record is larger than a segment or an answer can hold; send smaller ones";
	case LB_UNSUPPORTED_VERSION:
		return "the broker does not know this request in this version; it may be older than this library";
	case LB_CORRUPT_REQUEST:
		return "the broker could not read the request, a fault of its or of this library: report it";
	case LB_STORAGE_FAILURE:
		return "the broker could not write or read its files; its log says why";
	default:
		return "this library does not know that error; it may be older than the broker";
	}
}

void
lb_error_explain(char *text, size_t bytes, const char *address, int code)
{
	if (code >= LB_UNKNOWN_TOPIC_OR_PARTITION && code <= LB_STORAGE_FAILURE)
		snprintf(text, bytes, "%.130s answered %s: %s", address, lb_code_name(code), meaning(code));
	else
		snprintf(text, bytes, "%.130s answered error %d: %s", address, code, meaning(code));
}
