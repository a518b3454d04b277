/*
 * Framings: how a byte stream (a file, a pipe) and records turn into one another.
 *
 *   lines   record '\n' record '\n' ...       a record is a line without its newline
 *   nul     record 0x00 record 0x00 ...       the same with NUL bytes
 *   len32   int32 big-endian length | record | int32 length | record ...
 *   none    record                            each input is one record as a whole; written one after the other
 *
 * Empty records do not exist, so with lines and nul an empty piece travels as a record that is the delimiter alone,
 * and such a record is written as the delimiter alone. A record that contains the delimiter (from a producer with
 * another framing) is written as it is. Knows no broker and no options.
 */
#ifndef CLIENT_FRAMING_H
#define CLIENT_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum framing {
	FRAMING_LINES,
	FRAMING_NUL,
	FRAMING_LEN32,
	FRAMING_NONE,
	FRAMING_JSONL,
};

/* "lines", "nul", "len32", "none", "jsonl" to an enum framing; -1 when it is none of them. */
int framing_parse(const char *name);

enum framing_result {
	FRAMING_RECORD,		/* *record is filled in */
	FRAMING_PAUSE,		/* a read would wait: poll the descriptor and call again */
	FRAMING_END,
	FRAMING_BAD,		/* framing_problem tells; the records before it were good */
};

struct framing_record {
	const uint8_t *payload;	/* valid until the next call; size bytes, at least 1 */
	size_t size;
	int64_t position;	/* of its first byte, the framing included, in the input */
	bool unterminated;	/* lines, nul: the input's last piece, without its delimiter */
};

struct framing_reader;

/*
 * Reads records of at most `max_bytes` bytes from `fd`, which stays the caller's. NULL: out of memory. One thread.
 */
struct framing_reader *framing_open(enum framing framing, int fd, size_t max_bytes);
void framing_close(struct framing_reader *reader);

enum framing_result framing_next(struct framing_reader *reader, struct framing_record *record);

/* After FRAMING_BAD: what is wrong and at which byte of the input. */
const char *framing_problem(const struct framing_reader *reader);

enum { FRAMING_OVERHEAD_BYTES = 4 };

/*
 * Writes a record the way `framing` (other than jsonl) has it: at most size + FRAMING_OVERHEAD_BYTES bytes. Returns the byte
 * behind.
 */
uint8_t *framing_put(uint8_t *to, enum framing framing, const uint8_t *payload, size_t size);

#endif
