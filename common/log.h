/*
 * Lines for the operator on stderr: "2026-01-31T12:34:56.789Z info worker 0: text". Under systemd (stderr is the
 * journal) a priority prefix stands instead of time and level. A line names the object, the number and the remedy.
 * Any thread may log; a line is one write.
 */
#ifndef COMMON_LOG_H
#define COMMON_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level {
	LOG_ERROR,
	LOG_WARNING,
	LOG_INFO,
	LOG_DEBUG,
};

/* `who` ("supervisor", "worker 0") stands in each line; it is copied. Lines above `level` are dropped. */
void log_open(const char *who, enum log_level level);
bool log_enabled(enum log_level level);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Start-up only, and in a worker what cannot be gone on from: logs as error and exits with `status`. */
_Noreturn void log_fatal(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * One subject's allowance of lines: at most one in `interval_ns`; what was held back is counted and told with the
 * next line. Zero-initialise; one owner thread.
 */
struct log_limit {
	int64_t next_ns;
	uint64_t suppressed;
};

enum { LOG_MORE_BYTES = 64 };

/*
 * Returns true when a line may be written now. `more`, of LOG_MORE_BYTES, then is what to end it with: "", or
 * " (N more like it since the last line)" when lines have been held back.
 */
bool log_limit_pass(struct log_limit *limit, int64_t interval_ns, char *more);

#endif
