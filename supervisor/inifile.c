/*
 * Owns the shape of a line. inih walks the lines, by a reader of our own that shows it a short stand-in for each:
 * "[s]" for a section, "k=VALUE" for an entry, an empty line for all else. So none of its limits (199 bytes a line, 49
 * a section's name) is ever met, and line numbers and names are kept here. What the keys mean is not known here.
 */
#include "supervisor/inifile.h"

#include <ini.h>

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

struct reader {
	FILE *file;
	const struct inifile_handler *handler;
	void *user;
	char *text;	/* getline's */
	size_t room;
	int line;
	int error;	/* errno, when reading failed */
	char name[INIFILE_NAME_MAX + 1];	/* of the entry that inih is looking at */
};

__attribute__((format(printf, 3, 4)))
static void
wrong(struct reader *r, const char *name, const char *format, ...)
{
	char text[2 * INIFILE_NAME_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	r->handler->wrong(r->user, r->line, name, text);
}

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static char *
skip_blanks(char *text)
{
	return text + strspn(text, " \t");
}

/* Cuts blanks at the end of the `length` bytes at `text`. */
static void
strip_end(char *text, size_t length)
{
	while (length > 0 && is_blank(text[length - 1]))
		length--;
	text[length] = '\0';
}

/* A blank and a `mark` behind it, as they stand in front of a comment; or NULL. */
static char *
find_behind_blank(char *text, char mark)
{
	for (char *p = text; *p != '\0'; p++) {
		if (is_blank(p[0]) && p[1] == mark)
			return p;
	}
	return NULL;
}

/* The first control character, tab apart; 0 when there is none. */
static unsigned char
find_control(const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
		if ((*p < 0x20 && *p != '\t') || *p == 0x7f)
			return *p;
	}
	return 0;
}

static void
take_section(struct reader *r, char *text, char *to, size_t room)
{
	char *end = strchr(text, ']');
	const char *name = text + 1;

	snprintf(to, room, "[s]\n");
	if (end == NULL) {
		wrong(r, NULL, "a section without ']' (write '[NAME]')");
		name = NULL;
	} else if (end == name) {
		wrong(r, NULL, "a section without a name (write '[NAME]')");
		name = NULL;
	} else if (end - name > INIFILE_NAME_MAX) {
		wrong(r, NULL, "a section's name of %td bytes is too long (at most %d)", end - name, INIFILE_NAME_MAX);
		name = NULL;
	} else {
		*end = '\0';
		if (end[1] != '\0')
			wrong(r, NULL, "text behind ']' (only a comment may stand there, begun by ' ;')");
	}
	r->handler->section(r->user, r->line, name);
}

static void
take_entry(struct reader *r, char *text, char *to, size_t room)
{
	char *equals = strchr(text, '='), *colon = strchr(text, ':'), *value;

	if (colon != NULL && (equals == NULL || colon < equals)) {
		wrong(r, NULL, "':' instead of '=' (write 'key = value')");
		return;
	}
	if (equals == NULL) {
		wrong(r, NULL, "no '=' in this line (write 'key = value')");
		return;
	}
	strip_end(text, (size_t)(equals - text));
	value = skip_blanks(equals + 1);
	if (text[0] == '\0')
		wrong(r, NULL, "no key before '=' (write 'key = value')");
	else if (strlen(text) > INIFILE_NAME_MAX)
		wrong(r, NULL, "a key of %zu bytes is too long (at most %d)", strlen(text), INIFILE_NAME_MAX);
	else if (find_behind_blank(equals + 1, '#') != NULL)
		wrong(r, text, "%s: '#' begins no comment behind a value (only ' ;' does)", text);
	else if (*value == ';' || *value == '#')
		wrong(r, text, "%s: '%c' begins no comment here, and no value (only ' ;' begins a comment)", text, *value);
	else if (strlen(value) > INIFILE_VALUE_MAX)
		wrong(r, text, "%s: a value of %zu bytes is too long (at most %d)", text, strlen(value),
		    INIFILE_VALUE_MAX);
	else {
		strcpy(r->name, text);
		/* No blank behind '=': inih would take "= ;x" for a comment, which "=;x" is not. */
		snprintf(to, room, "k=%s\n", value);
	}
}

/* Takes the line's end off: LF, CR LF, or at the end of the file nothing. */
static void
strip_newline(char *text, size_t *length)
{
	if (*length > 0 && text[*length - 1] == '\n')
		text[--*length] = '\0';
	if (*length > 0 && text[*length - 1] == '\r')
		text[--*length] = '\0';
}

/* Tells what the line is and writes its stand-in. */
static void
take_line(struct reader *r, char *text, size_t length, char *to, size_t room)
{
	char *body, *comment;
	unsigned char control;

	if (r->line == 1 && strncmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		length -= 3;
	}
	strip_newline(text, &length);
	if (strlen(text) != length) {
		wrong(r, NULL, "a NUL byte in this line (the file is text)");
		return;
	}
	body = skip_blanks(text);
	if (*body == '\0' || *body == ';' || *body == '#')
		return;
	comment = find_behind_blank(body, ';');
	if (comment != NULL)
		*comment = '\0';
	strip_end(body, strlen(body));
	control = find_control(body);
	if (control != 0)
		wrong(r, NULL, "a control character, 0x%02x, in this line (the file is text)", control);
	else if (body != text)
		wrong(r, NULL, "this line is indented (take the blanks at its beginning away)");
	else if (*body == '[')
		take_section(r, body, to, room);
	else
		take_entry(r, body, to, room);
}

/* inih's reader: like fgets. */
static char *
read_line(char *to, int room, void *stream)
{
	struct reader *r = stream;
	ssize_t length;

	errno = 0;
	length = getline(&r->text, &r->room, r->file);
	if (length < 0) {
		if (ferror(r->file) || !feof(r->file))
			r->error = errno != 0 ? errno : EIO;
		return NULL;
	}
	r->line++;
	snprintf(to, (size_t)room, "\n");
	take_line(r, r->text, (size_t)length, to, (size_t)room);
	return to;
}

/* inih's handler; names are the stand-ins. 0 would mean an error. */
static int
take_value(void *user, const char *section, const char *name, const char *value)
{
	struct reader *r = user;

	(void)section;
	if (name != NULL)
		r->handler->entry(r->user, r->line, r->name, value);
	return 1;
}

int
inifile_read(FILE *file, const struct inifile_handler *handler, void *user)
{
	struct reader r = { .file = file, .handler = handler, .user = user };
	int result = ini_parse_stream(read_line, &r, take_value, &r);

	free(r.text);
	if (r.error == 0 && result != 0)
		r.error = result == -2 ? ENOMEM : EIO;
	errno = r.error;
	return r.error == 0 ? 0 : -1;
}
