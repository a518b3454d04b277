/*
 * The lines of an ini file, strictly: what inih would take silently for something else (indented lines, lines without
 * '=', text behind ']', a NUL, lines and names too long for its buffers) is told with its line instead. Knows no
 * section and no key; what they mean is the caller's.
 */
#ifndef SUPERVISOR_INIFILE_H
#define SUPERVISOR_INIFILE_H

#include <stdio.h>

enum {
	INIFILE_NAME_MAX = 255,		/* bytes of a section's or a key's name */
	INIFILE_VALUE_MAX = 190,	/* bytes of a value: with "k=" and a newline it fits inih's 199 */
};

/* Called in the order of lines. Strings are valid during the call only; names and values hold no control characters
 * but tabs, and names are never empty. */
struct inifile_handler {
	/* `name` is NULL for a section whose name cannot be read, which has been told by `wrong`. */
	void (*section)(void *user, int line, const char *name);
	/* Blanks around name and value are gone, an end-of-line comment too; `value` may be empty. */
	void (*entry)(void *user, int line, const char *name, const char *value);
	/* A line that cannot be taken: `text` says why, and what to do. `name` is its key's, or NULL. */
	void (*wrong)(void *user, int line, const char *name, const char *text);
};

/* Reads to the end of the file. Returns 0, or -1 with errno when the file could not be read to its end. */
int inifile_read(FILE *file, const struct inifile_handler *handler, void *user);

#endif
