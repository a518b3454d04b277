/* See powercut_events.h. */
#include "tests/powercut_events.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const kind_names[POWERCUT_KINDS] = { "?", "start", "create", "mkdir", "rename", "unlink", "write", "store",
	"resize", "zero", "force", "forced", "unforced", "send", "sent", "publish", "durable" };

size_t
powercut_event_bytes(const struct powercut_event *event)
{
	return (sizeof(*event) + event->bytes + 7) / 8 * 8;
}

/* Are names where names must be? */
static int
is_sound(const struct powercut_event *event)
{
	switch (event->kind) {
	case POWERCUT_CREATE:
	case POWERCUT_DIRECTORY:
	case POWERCUT_UNLINK:
	case POWERCUT_RENAME:
		return event->bytes > 0 && event->data[event->bytes - 1] == 0 && event->bytes <= 2 * POWERCUT_NAME_BYTES;
	default:
		return event->kind > 0 && event->kind < POWERCUT_KINDS;
	}
}

int
powercut_log_take(struct powercut_log *log, uint8_t *memory, size_t bytes)
{
	size_t capacity = 0;

	*log = (struct powercut_log){ .memory = memory, .bytes = bytes };
	for (size_t at = 0; at < bytes;) {
		const struct powercut_event *event = (const struct powercut_event *)(memory + at);

		if (bytes - at < sizeof(*event) || bytes - at < powercut_event_bytes(event) || !is_sound(event))
			return -1;
		if (log->count == capacity) {
			capacity = capacity == 0 ? 1024 : 2 * capacity;
			log->events = realloc(log->events, capacity * sizeof(*log->events));
			if (log->events == NULL)
				abort();
		}
		log->events[log->count++] = event;
		at += powercut_event_bytes(event);
	}
	return 0;
}

int
powercut_log_read(struct powercut_log *log, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t *memory = NULL;
	struct stat st;
	int error = 0;

	*log = (struct powercut_log){ 0 };
	if (fd == -1)
		return -1;
	if (fstat(fd, &st) == -1)
		error = errno;
	else if ((memory = malloc((size_t)st.st_size + 1)) == NULL)
		error = ENOMEM;
	else if (read(fd, memory, (size_t)st.st_size) != st.st_size)
		error = EIO;
	close(fd);
	if (error == 0 && powercut_log_take(log, memory, (size_t)st.st_size) == -1)
		error = EBADMSG;
	if (error != 0 && log->memory == NULL)
		free(memory);
	if (error != 0)
		powercut_log_free(log);
	errno = error;
	return error == 0 ? 0 : -1;
}

void
powercut_log_free(struct powercut_log *log)
{
	free(log->memory);
	free(log->events);
	*log = (struct powercut_log){ 0 };
}

const char *
powercut_event_text(const struct powercut_event *event)
{
	static char text[256];
	const char *name = "", *other = "";

	if (event->kind >= POWERCUT_CREATE && event->kind <= POWERCUT_UNLINK)
		name = (const char *)event->data;
	if (event->kind == POWERCUT_RENAME)
		other = name + strlen(name) + 1;
	snprintf(text, sizeof(text), "%-8s process %d thread %d file %" PRIu64 " directory %" PRIu64 " position %" PRId64
	    " count %" PRId64 " bytes %" PRIu32 " %.60s %.60s", kind_names[event->kind], event->process, event->thread,
	    event->file, event->directory, event->position, event->count, event->bytes, name, other);
	return text;
}
