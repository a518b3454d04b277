/*
 * Sends the lines of standard input as records, keyed by their first word, and says where each has got to, or why not.
 *
 * A loop of its own around poll(2): while it waits for input the library must get its turns, too, or what has been sent would
 * lie around until the next line comes.
 *
 *   cc produce.c $(pkg-config --cflags --libs liblogbroker) -o produce
 *   ./produce 127.0.0.1:9092 orders <orders.txt
 *
 * Exit code 1: not all of it was acknowledged. Blank lines are passed over: there are no empty records.
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <logbroker.h>

enum { LINE_MAX_BYTES = 1024 * 1024 };

struct sending {
	struct lb_producer *producer;
	struct lb_topic *topic;
	intptr_t line;		/* the number of the last one */
	unsigned long failures;
};

/* Called once for every record that was accepted. A context may be anything; here it is the line's number. */
static void
on_receipt(void *context, const struct lb_receipt *receipt, const struct lb_error *error)
{
	long long line = (intptr_t)context;

	if (error == NULL)
		printf("line %lld is %s/%d record %lld\n", line, receipt->topic, (int)receipt->partition,
		    (long long)receipt->base_offset);
	else
		fprintf(stderr, "line %lld: %s\n", line, error->text);
}

static void
send_line(struct sending *sending, const char *line, size_t bytes)
{
	const char *blank = memchr(line, ' ', bytes);
	size_t key_bytes = blank != NULL ? (size_t)(blank - line) : bytes;
	struct lb_error error;
	enum lb_code code;

	sending->line++;
	if (bytes == 0)
		return;
	/* Would block: too much is on its way. This line once more when some of it has arrived. */
	while ((code = lb_topic_send(sending->topic, line, key_bytes, line, bytes, on_receipt, (void *)sending->line, &error)) ==
	    LB_WOULD_BLOCK)
		lb_source_poll(lb_producer_source(sending->producer), 1000);
	/* Refused here and now: nobody will call back. */
	if (code != LB_OK) {
		fprintf(stderr, "line %lld: %s\n", (long long)sending->line, error.text);
		sending->failures++;
	}
}

/* Sends the whole lines; returns the bytes behind them, which are at the beginning of the buffer then. */
static size_t
send_lines(struct sending *sending, char *buffer, size_t bytes)
{
	char *line = buffer, *end;

	while ((end = memchr(line, '\n', bytes)) != NULL) {
		size_t line_bytes = (size_t)(end - line);

		send_line(sending, line, line_bytes);
		bytes -= line_bytes + 1;
		line = end + 1;
	}
	memmove(buffer, line, bytes);
	return bytes;
}

/* Waits for input, in which time the library works. As read(2). */
static ssize_t
read_input(struct lb_source *source, char *to, size_t room)
{
	for (;;) {
		struct lb_wants wants = lb_source_wants(source);
		struct pollfd fds[2] = { { .fd = STDIN_FILENO, .events = POLLIN }, { .fd = wants.fd, .events = wants.events } };

		if (poll(fds, 2, wants.timeout_ms) < 0 && errno != EINTR)
			return -1;
		lb_source_process(source);
		if (fds[0].revents != 0)
			return read(STDIN_FILENO, to, room);
	}
}

/* 0, or -1: the input could not be read to its end. */
static int
send_input(struct sending *sending)
{
	static char buffer[LINE_MAX_BYTES];
	size_t held = 0;
	ssize_t bytes;

	while ((bytes = read_input(lb_producer_source(sending->producer), buffer + held, sizeof(buffer) - held)) > 0) {
		held = send_lines(sending, buffer, held + (size_t)bytes);
		if (held == sizeof(buffer)) {
			fprintf(stderr, "line %lld is longer than %d bytes\n", (long long)sending->line + 1, LINE_MAX_BYTES);
			return -1;
		}
	}
	if (bytes < 0) {
		perror("standard input");
		return -1;
	}
	if (held > 0)	/* a last line without an end */
		send_line(sending, buffer, held);
	return 0;
}

int
main(int argc, char **argv)
{
	struct lb_producer_options options = lb_producer_defaults();
	struct sending sending = { 0 };
	struct lb_totals totals;
	struct lb_error error;
	int failed;

	if (argc != 3) {
		fprintf(stderr, "usage: produce ADDRESS TOPIC\n");
		return 2;
	}
	options.ack = LB_ACK_FORCED;	/* acknowledged means: survives a power cut */
	if (lb_producer_open(&sending.producer, argv[1], &options, &error) != LB_OK ||
	    lb_topic_open(&sending.topic, sending.producer, argv[2], &error) != LB_OK) {
		fprintf(stderr, "%s\n", error.text);
		lb_producer_free(sending.producer);
		return 1;
	}
	failed = send_input(&sending) != 0 || sending.failures > 0;
	/* Waits for what is on its way; frees the producer and the topic in any case. */
	if (lb_producer_close(sending.producer, 10000, &totals, &error) != LB_OK) {
		fprintf(stderr, "%llu of %llu records not acknowledged: %s\n",
		    (unsigned long long)(totals.accepted - totals.acknowledged), (unsigned long long)totals.accepted, error.text);
		failed = 1;
	}
	return failed;
}
