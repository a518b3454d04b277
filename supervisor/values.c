/*
 * Owns the notation of values: integers, sizes, times, words, addresses. Knows no key and no file.
 */
#include "supervisor/values.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/un.h>

_Static_assert(VALUE_SOCKET_PATH_MAX == sizeof(((struct sockaddr_un *)0)->sun_path) - 1, "a path and its NUL");

struct unit {
	const char *name;
	int64_t factor;
};

/* From small to large. */
static const struct unit size_units[] = {
	{ "B", 1 },
	{ "KiB", INT64_C(1) << 10 },
	{ "MiB", INT64_C(1) << 20 },
	{ "GiB", INT64_C(1) << 30 },
	{ "TiB", INT64_C(1) << 40 },
	{ NULL, 0 },
};

static const struct unit time_units[] = {
	{ "us", 1 },
	{ "ms", 1000 },
	{ "s", 1000000 },
	{ "min", INT64_C(60) * 1000000 },
	{ "h", INT64_C(3600) * 1000000 },
	{ "d", INT64_C(86400) * 1000000 },
	{ NULL, 0 },
};

static const char separators[] = ", \t";

static const char *
fail(struct value_error *error, const char *what, const char *part, size_t part_length)
{
	error->what = what;
	error->part = part;
	error->part_length = part_length;
	return what;
}

static const struct unit *
find_unit(const struct unit *units, const char *name)
{
	for (; units->name != NULL; units++) {
		if (strcmp(units->name, name) == 0)
			return units;
	}
	return NULL;
}

/* Reads digits and moves *text behind them; false when there are none. A number that does not fit becomes INT64_MAX. */
static bool
take_digits(const char **text, int64_t *number)
{
	const char *p = *text;

	*number = 0;
	for (; *p >= '0' && *p <= '9'; p++) {
		if (__builtin_mul_overflow(*number, 10, number) || __builtin_add_overflow(*number, *p - '0', number))
			*number = INT64_MAX;
	}
	if (p == *text)
		return false;
	*text = p;
	return true;
}

/* Once it has reached INT64_MAX a number stays there: too large for every rule, and never a small one by wrapping. */
static int64_t
scale(int64_t number, int64_t factor)
{
	int64_t scaled;

	return __builtin_mul_overflow(number, factor, &scaled) ? INT64_MAX : scaled;
}

static const char *
check_range(const struct value_rule *rule, int64_t number)
{
	return number < rule->min ? "is too small" : number > rule->max ? "is too large" : NULL;
}

static const char *
parse_count(const struct value_rule *rule, const char *text, int64_t *number)
{
	if (!take_digits(&text, number) || *text != '\0')
		return "is not a number";
	return check_range(rule, *number);
}

static const char *
parse_size(const struct value_rule *rule, const char *text, int64_t *number)
{
	const struct unit *unit = size_units;

	if (!take_digits(&text, number))
		return "is not a size";
	if (*text != '\0')
		unit = find_unit(size_units, text);
	if (unit == NULL)
		return "is not a size";
	*number = scale(*number, unit->factor);
	return check_range(rule, *number);
}

static const char *
parse_time(const struct value_rule *rule, const char *text, int64_t *number)
{
	const struct unit *unit;

	if (!take_digits(&text, number))
		return "is not a time";
	if (*text == '\0')
		return "has no unit";
	unit = find_unit(time_units, text);
	if (unit == NULL)
		return strcmp(text, "m") == 0 ? "is not a time, minutes are written min" : "is not a time";
	*number = scale(*number, unit->factor);
	if (rule->kind == VALUE_TIME_MS && *number != INT64_MAX) {
		if (*number % 1000 != 0)
			return "is not a whole number of milliseconds";
		*number /= 1000;
	}
	return check_range(rule, *number);
}

static const char *
parse_choice(const struct value_rule *rule, const char *text, int64_t *number)
{
	const char *word = rule->words;
	size_t length;

	for (*number = 0; ; ++*number, word += length + 1) {
		length = strcspn(word, "|");
		if (length == strlen(text) && strncmp(word, text, length) == 0)
			return NULL;
		if (word[length] == '\0')
			return "is not known";
	}
}

static const char *
check_path(const struct value_rule *rule, const char *text)
{
	size_t length = strlen(text);

	if (length == 0)
		return "is no path";
	if (length > 1 && (text[0] == '"' || text[0] == '\'') && text[length - 1] == text[0])
		return "is in quotes (a value stands without)";
	if (rule->kind == VALUE_SOCKET_PATH && length > VALUE_SOCKET_PATH_MAX)
		return "is too long for a Unix socket";
	return NULL;
}

static const char *
parse_addresses(const struct value_rule *rule, const char *text, int64_t *number, struct value_error *error)
{
	struct value_address address;
	const char *rest = text;
	int result;

	for (*number = 0; (result = value_next_address(&rest, &address, error)) > 0; ++*number) {
		if (rule->kind == VALUE_ADDRESS && address.path != NULL)
			return fail(error, "is not host:port", address.text, address.length);
		if (rule->kind == VALUE_ADDRESS && *number > 0)
			return fail(error, "is more than one address", text, strlen(text));
	}
	if (result < 0)
		return error->what;
	return *number == 0 ? fail(error, "names no address", text, strlen(text)) : NULL;
}

int
value_parse(const struct value_rule *rule, const char *text, int64_t *number, struct value_error *error)
{
	const char *what = NULL;

	*number = 0;
	fail(error, NULL, text, strlen(text));
	if (rule->kind != VALUE_CHOICE && rule->words != NULL && strcmp(text, rule->words) == 0)
		return 0;
	switch (rule->kind) {
	case VALUE_COUNT:
		what = parse_count(rule, text, number);
		break;
	case VALUE_SIZE:
		what = parse_size(rule, text, number);
		break;
	case VALUE_TIME_US:
	case VALUE_TIME_MS:
		what = parse_time(rule, text, number);
		break;
	case VALUE_CHOICE:
		what = parse_choice(rule, text, number);
		break;
	case VALUE_PATH:
	case VALUE_SOCKET_PATH:
		what = check_path(rule, text);
		break;
	case VALUE_ADDRESS:
	case VALUE_ADDRESSES:
		what = parse_addresses(rule, text, number, error);
		break;
	}
	error->what = what;
	return what == NULL ? 0 : -1;
}

/* The largest unit of which `number` is a whole multiple. */
static void
print_scaled(const struct unit *units, int64_t number, char *to, size_t room)
{
	const struct unit *best = units;

	for (; units->name != NULL; units++) {
		if (number % units->factor == 0)
			best = units;
	}
	snprintf(to, room, "%lld%s", (long long)(number / best->factor), best->name);
}

void
value_print_size(int64_t bytes, char *to, size_t room)
{
	print_scaled(size_units, bytes, to, room);
}

static void
print_choice(const char *words, int64_t number, char *to, size_t room)
{
	for (; number > 0 && strchr(words, '|') != NULL; number--)
		words = strchr(words, '|') + 1;
	snprintf(to, room, "%.*s", (int)strcspn(words, "|"), words);
}

void
value_print(const struct value_rule *rule, int64_t number, char *to, size_t room)
{
	if (rule->kind == VALUE_CHOICE)
		print_choice(rule->words, number, to, room);
	else if (number == 0 && rule->words != NULL)
		snprintf(to, room, "%s", rule->words);
	else if (rule->kind == VALUE_SIZE)
		print_scaled(size_units, number, to, room);
	else if (rule->kind == VALUE_TIME_US)
		print_scaled(time_units, number, to, room);
	else if (rule->kind == VALUE_TIME_MS)
		print_scaled(time_units, number * 1000, to, room);
	else
		snprintf(to, room, "%lld", (long long)number);
}

static void
allowed_range(const struct value_rule *rule, const struct unit *units, int64_t factor, const char *what, char *to,
    size_t room)
{
	char min[32], max[32];

	print_scaled(units, rule->min * factor, min, sizeof(min));
	print_scaled(units, rule->max * factor, max, sizeof(max));
	snprintf(to, room, "a %s from %s to %s in", what, min, max);
	for (; units->name != NULL; units++)
		snprintf(to + strlen(to), room - strlen(to), " %s", units->name);
}

void
value_allowed(const struct value_rule *rule, char *to)
{
	size_t room = VALUE_ALLOWED_BYTES, length;

	if (rule->words != NULL) {
		snprintf(to, room, rule->kind == VALUE_CHOICE ? "%s" : "%s, or ", rule->words);
		length = strlen(to);
		to += length;
		room -= length;
	}
	switch (rule->kind) {
	case VALUE_COUNT:
		snprintf(to, room, "a number from %lld to %lld", (long long)rule->min, (long long)rule->max);
		break;
	case VALUE_SIZE:
		allowed_range(rule, size_units, 1, "size", to, room);
		break;
	case VALUE_TIME_US:
		allowed_range(rule, time_units, 1, "time", to, room);
		break;
	case VALUE_TIME_MS:
		allowed_range(rule, time_units, 1000, "time", to, room);
		break;
	case VALUE_CHOICE:
		break;
	case VALUE_PATH:
		snprintf(to, room, "a path");
		break;
	case VALUE_SOCKET_PATH:
		snprintf(to, room, "a path of at most %d bytes", VALUE_SOCKET_PATH_MAX);
		break;
	case VALUE_ADDRESS:
		snprintf(to, room, "one host:port or [v6]:port");
		break;
	case VALUE_ADDRESSES:
		snprintf(to, room, "host:port, [v6]:port and unix:/path, with commas or blanks between them");
		break;
	}
}

static const char *
parse_port(const char *text, size_t length, int *port)
{
	*port = 0;
	if (length == 0)
		return "names no port";
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return "has a port that is not a number";
		*port = *port * 10 + (text[i] - '0');
		if (*port > 65535)
			return "has a port above 65535";
	}
	return NULL;
}

/* An IPv6 address as text, where a zone ("%eth0") may stand behind it. */
static bool
is_v6(const char *text, size_t length)
{
	const char *zone = memchr(text, '%', length);
	char copy[INET6_ADDRSTRLEN];
	struct in6_addr v6;

	if (zone != NULL) {
		if (zone + 1 == text + length)
			return false;
		length = (size_t)(zone - text);
	}
	if (length >= sizeof(copy))
		return false;
	memcpy(copy, text, length);
	copy[length] = '\0';
	return inet_pton(AF_INET6, copy, &v6) == 1;
}

/* A host's name, or an IPv4 address: what has only digits and dots must be one (inet_aton's "127.1" is not taken). */
static const char *
check_host(const char *text, size_t length)
{
	char copy[256];
	struct in_addr v4;

	if (length == 0)
		return "names no host (0.0.0.0 is every IPv4 address, [::] every IPv6 address)";
	if (length >= sizeof(copy))
		return "has a host name that is too long";
	memcpy(copy, text, length);
	copy[length] = '\0';
	if (strchr(copy, ':') != NULL)
		return "has more than one ':' (an IPv6 address stands in brackets: [::1]:9092)";
	if (strspn(copy, "0123456789.") == length)
		return inet_pton(AF_INET, copy, &v4) == 1 ? NULL : "is not an IPv4 address";
	if (strspn(copy, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") != length)
		return "has a host name with other characters than A-Z a-z 0-9 . - _";
	return NULL;
}

static const char *
parse_v6(struct value_address *a)
{
	const char *end = memchr(a->text, ']', a->length), *behind = a->text + a->length;

	if (end == NULL || end + 1 == behind || end[1] != ':')
		return "is not [v6]:port";
	a->host = a->text + 1;
	a->host_length = (size_t)(end - a->host);
	if (!is_v6(a->host, a->host_length))
		return "is not an IPv6 address";
	return parse_port(end + 2, (size_t)(behind - end - 2), &a->port);
}

static const char *
parse_unix(struct value_address *a)
{
	size_t length = a->length - strlen("unix:");

	if (length == 0)
		return "names no path";
	a->path = a->text + strlen("unix:");
	return length > VALUE_SOCKET_PATH_MAX ? "is too long for a Unix socket (its path has at most 107 bytes)" : NULL;
}

static const char *
parse_host_port(struct value_address *a)
{
	const char *colon = memrchr(a->text, ':', a->length), *what;

	if (colon == NULL)
		return "names no port";
	a->host = a->text;
	a->host_length = (size_t)(colon - a->text);
	what = check_host(a->host, a->host_length);
	return what != NULL ? what : parse_port(colon + 1, (size_t)(a->text + a->length - colon - 1), &a->port);
}

int
value_next_address(const char **rest, struct value_address *address, struct value_error *error)
{
	struct value_address a = { .text = *rest + strspn(*rest, separators) };
	const char *what;

	a.length = strcspn(a.text, separators);
	*rest = a.text + a.length;
	if (a.length == 0)
		return 0;
	if (strncmp(a.text, "unix:", 5) == 0)
		what = parse_unix(&a);
	else if (a.text[0] == '[')
		what = parse_v6(&a);
	else
		what = parse_host_port(&a);
	*address = a;
	if (what != NULL)
		fail(error, what, a.text, a.length);
	return what == NULL ? 1 : -1;
}

/* The same host in other words: "::1" and "0:0:0:0:0:0:0:1". */
static bool
same_v6(const struct value_address *a, const struct value_address *b)
{
	char copies[2][INET6_ADDRSTRLEN];
	struct in6_addr v6[2];

	if (a->host_length >= sizeof(copies[0]) || b->host_length >= sizeof(copies[1]))
		return false;
	snprintf(copies[0], sizeof(copies[0]), "%.*s", (int)a->host_length, a->host);
	snprintf(copies[1], sizeof(copies[1]), "%.*s", (int)b->host_length, b->host);
	return inet_pton(AF_INET6, copies[0], &v6[0]) == 1 && inet_pton(AF_INET6, copies[1], &v6[1]) == 1 &&
	    memcmp(&v6[0], &v6[1], sizeof(v6[0])) == 0;
}

bool
value_same_address(const struct value_address *a, const struct value_address *b)
{
	if (a->path != NULL || b->path != NULL)
		return a->path != NULL && b->path != NULL && a->length == b->length &&
		    memcmp(a->text, b->text, a->length) == 0;
	if (a->port != b->port || a->port == 0)
		return false;
	return (a->host_length == b->host_length && strncasecmp(a->host, b->host, a->host_length) == 0) || same_v6(a, b);
}
