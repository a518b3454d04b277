/*
 * One value of broker.ini, from text to a number or an address, and in words what a key allows. Pure: no file, no
 * memory, no key.
 */
#ifndef SUPERVISOR_VALUES_H
#define SUPERVISOR_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum value_kind {
	VALUE_COUNT,		/* an integer */
	VALUE_SIZE,		/* bytes: an integer, or one with B, KiB, MiB, GiB, TiB */
	VALUE_TIME_US,		/* an integer with us, ms, s, min, h, d; in microseconds */
	VALUE_TIME_MS,		/* the same in milliseconds, no finer */
	VALUE_CHOICE,		/* one of `words`; the number is its place among them */
	VALUE_PATH,		/* not empty */
	VALUE_SOCKET_PATH,	/* one that fits a Unix socket's address */
	VALUE_ADDRESS,		/* one host:port or [v6]:port; the number is 1 */
	VALUE_ADDRESSES,	/* a list by commas or blanks, also of unix:/path; the number is how many */
};

struct value_rule {
	enum value_kind kind;
	int64_t min, max;	/* of the numbers, in the kind's unit */
	const char *words;	/* CHOICE: "file|mapped"; else a word that stands for the number 0 ("off"), or NULL */
};

enum { VALUE_SOCKET_PATH_MAX = 107, VALUE_ALLOWED_BYTES = 200 };

/* What is wrong ("has no unit"), and the part of the text of which it is said. */
struct value_error {
	const char *what;
	const char *part;
	size_t part_length;
};

/* Returns 0 and the number in *number (0 for paths); or -1 and *error, whose `part` points into `text`. */
int value_parse(const struct value_rule *rule, const char *text, int64_t *number, struct value_error *error);

/* Writes what the rule allows, "off, or a time from 1ms to 1d in us ms s min h d", into a buffer of
 * VALUE_ALLOWED_BYTES. */
void value_allowed(const struct value_rule *rule, char *to);

/* Writes a number as one would write it for that rule, "1500ms", "off", "crc32c"; not of addresses and paths. */
void value_print(const struct value_rule *rule, int64_t number, char *to, size_t room);

/* Writes a number of bytes in its largest whole unit ("512MiB"). */
void value_print_size(int64_t bytes, char *to, size_t room);

/* An address as views into its text. */
struct value_address {
	const char *text;
	size_t length;
	const char *host;	/* NULL for a Unix socket; of [v6] without the brackets */
	size_t host_length;
	const char *path;	/* NULL for TCP; it goes on to the end of the text */
	int port;
};

/*
 * The next address of a list: moves *rest behind it. Returns 1; 0 when there is no more; -1 and *error (*rest then is
 * behind the wrong one).
 */
int value_next_address(const char **rest, struct value_address *address, struct value_error *error);

/* Would both bind to the same place? Port 0 is never the same as anything. Names are compared, not resolved. */
bool value_same_address(const struct value_address *a, const struct value_address *b);

#endif
