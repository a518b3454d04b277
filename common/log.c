/* Log lines on stderr, one write(2) each, so that lines of several threads and processes never mix. */
#include "common/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

enum { LINE_BYTES = 2048 };

static const char *const level_names[] = { "error", "warning", "info", "debug" };
static const char *const journal_prefixes[] = { "<3>", "<4>", "<6>", "<7>" };

static char owner[32] = "logbroker";
static _Atomic int current_level = LOG_INFO;
static bool to_journal;

/* systemd names the device and inode of the stream it gave us; somebody may have redirected stderr since. */
static bool
stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char own[64];
	struct stat st;

	if (stream == NULL || fstat(STDERR_FILENO, &st) != 0)
		return false;
	snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return strcmp(own, stream) == 0;
}

void
log_open(const char *who, enum log_level level)
{
	snprintf(owner, sizeof(owner), "%s", who);
	current_level = (int)level;
	to_journal = stderr_is_journal();
}

bool
log_enabled(enum log_level level)
{
	return (int)level <= current_level;
}

static size_t
put_prefix(char *line, size_t size, enum log_level level)
{
	struct timespec now;
	struct tm tm;
	char stamp[32];
	int n;

	if (to_journal) {
		n = snprintf(line, size, "%s%s: ", journal_prefixes[level], owner);
		return (size_t)n;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &tm);
	n = snprintf(line, size, "%s.%03ldZ %s %s: ", stamp, now.tv_nsec / CLOCK_NS_PER_MS, level_names[level], owner);
	return (size_t)n;
}

/* What clients and files supply may hold anything; a log line stays one line. */
static void
make_printable(char *text)
{
	for (; *text != '\0'; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7F)
			*text = '?';
}

__attribute__((format(printf, 2, 0))) static void
write_line(enum log_level level, const char *format, va_list arguments)
{
	char line[LINE_BYTES];
	int saved_errno = errno;
	size_t used, length;

	if (!log_enabled(level))
		return;
	used = put_prefix(line, sizeof(line), level);
	vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);
	make_printable(line + used);
	length = strlen(line);
	line[length++] = '\n';
	while (write(STDERR_FILENO, line, length) < 0 && errno == EINTR)
		;
	errno = saved_errno;
}

void
log_error(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(LOG_ERROR, format, arguments);
	va_end(arguments);
}

void
log_warning(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(LOG_WARNING, format, arguments);
	va_end(arguments);
}

void
log_info(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(LOG_INFO, format, arguments);
	va_end(arguments);
}

void
log_debug(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(LOG_DEBUG, format, arguments);
	va_end(arguments);
}

void
log_fatal(int status, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	write_line(LOG_ERROR, format, arguments);
	va_end(arguments);
	exit(status);
}

bool
log_limit_pass(struct log_limit *limit, int64_t interval_ns, char *more)
{
	int64_t now = clock_now_ns();

	if (now < limit->next_ns) {
		limit->suppressed++;
		return false;
	}
	more[0] = '\0';
	if (limit->suppressed > 0)
		snprintf(more, LOG_MORE_BYTES, " (%llu more like it since the last line)",
		    (unsigned long long)limit->suppressed);
	limit->suppressed = 0;
	limit->next_ns = now + interval_ns;
	return true;
}
