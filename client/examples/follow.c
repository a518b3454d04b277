/*
 * Follows a topic from where it stopped the last time: writes a batch out, then saves its position in a file. A crash between the two
 * brings that batch again: at least once, never less. Where positions are kept is the application's decision; here it is
 * a file per partition, replaced as a whole so that it always holds a position: write aside, force, rename, force the
 * directory.
 *
 *   cc follow.c $(pkg-config --cflags --libs liblogbroker) -o follow
 *   mkdir positions
 *   ./follow 127.0.0.1:9092 orders positions           until it is killed, which may happen at any time
 *   ./follow 127.0.0.1:9092 orders positions end       only up to what is there now
 *
 * (A program that keeps its results in a database writes the position with them, in one transaction in its handler, and has
 * a load and no save: exactly once.)
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <logbroker.h>

struct follower {
	int positions_fd;	/* the directory */
	int stopped;
	int failed;
};

static void
position_name(char *name, size_t size, const char *topic, int32_t partition, const char *suffix)
{
	snprintf(name, size, "%s-%d%s", topic, (int)partition, suffix);
}

/* The next offset to read; -1: there is no file yet; -2: there is one, and it cannot be read. That is not the same as none! */
static int64_t
load(void *context, const char *topic, int32_t partition)
{
	struct follower *follower = context;
	char name[LB_TOPIC_NAME_MAX + 32], text[32] = "";
	int64_t next_offset;
	int fd;

	position_name(name, sizeof(name), topic, partition, "");
	fd = openat(follower->positions_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 && errno == ENOENT)
		return -1;
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		perror(name);
	if (fd >= 0)
		close(fd);
	if (sscanf(text, "%" SCNd64, &next_offset) != 1 || next_offset < 0)
		return -2;
	return next_offset;
}

static int
write_forced(int directory_fd, const char *name, const char *text)
{
	int fd = openat(directory_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
	int good;

	if (fd < 0)
		return -1;
	good = write(fd, text, strlen(text)) == (ssize_t)strlen(text) && fsync(fd) == 0;
	return close(fd) == 0 && good ? 0 : -1;
}

static int
save(void *context, const char *topic, int32_t partition, int64_t next_offset)
{
	struct follower *follower = context;
	char name[LB_TOPIC_NAME_MAX + 32], aside[LB_TOPIC_NAME_MAX + 32], text[32];

	position_name(name, sizeof(name), topic, partition, "");
	position_name(aside, sizeof(aside), topic, partition, ".new");
	snprintf(text, sizeof(text), "%" PRId64 "\n", next_offset);
	if (write_forced(follower->positions_fd, aside, text) == 0 &&
	    renameat(follower->positions_fd, aside, follower->positions_fd, name) == 0 && fsync(follower->positions_fd) == 0)
		return 0;
	perror(name);
	return -1;
}

/* What has been written must be as safe as its position is about to be. A pipe or a terminal cannot be forced: EINVAL. */
static int
force_output(void)
{
	if (fflush(stdout) != 0 || ferror(stdout))
		return -1;
	return fsync(STDOUT_FILENO) == 0 || errno == EINVAL ? 0 : -1;
}

static int
on_batch(void *context, const struct lb_batch *batch)
{
	struct lb_record record = { 0 };

	(void)context;
	while (lb_batch_next(batch, &record)) {
		printf("%s/%d %" PRId64 ": ", batch->topic, (int)batch->partition, record.offset);
		fwrite(record.data, 1, record.bytes, stdout);	/* bytes, no string */
		putchar('\n');
	}
	if (force_output() == 0)
		return 0;
	perror("standard output");
	return -1;
}

static void
on_stopped(void *context, const struct lb_error *error)
{
	struct follower *follower = context;

	if (error != NULL)
		fprintf(stderr, "%s\n", error->text);
	follower->stopped = 1;
	follower->failed = error != NULL;
}

static int
follow(struct follower *follower, const char *address, const char *topic, enum lb_stop stop)
{
	struct lb_subscription_options options = lb_subscription_defaults();
	struct lb_subscription *subscription;
	struct lb_error error;

	options.stop = stop;
	options.give_up_ms = 10000;	/* time for a broker to start again; without it a wrong address is waited for for ever */
	options.checkpoints = (struct lb_checkpoints){ .load = load, .save = save, .context = follower };
	options.handler = on_batch;
	options.stopped = on_stopped;
	options.context = follower;
	if (lb_subscription_open(&subscription, address, topic, &options, &error) != LB_OK) {
		fprintf(stderr, "%s\n", error.text);
		return 1;
	}
	while (!follower->stopped)
		lb_source_poll(lb_subscription_source(subscription), 60000);
	lb_subscription_free(subscription);
	return follower->failed;
}

int
main(int argc, char **argv)
{
	struct follower follower = { 0 };
	int failed;

	if (argc < 4 || argc > 5 || (argc == 5 && strcmp(argv[4], "end") != 0)) {
		fprintf(stderr, "usage: follow ADDRESS TOPIC DIRECTORY [end]\n");
		return 2;
	}
	follower.positions_fd = open(argv[3], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (follower.positions_fd < 0) {
		perror(argv[3]);
		return 1;
	}
	failed = follow(&follower, argv[1], argv[2], argc == 5 ? LB_STOP_AT_WATERMARK : LB_STOP_NEVER);
	close(follower.positions_fd);
	return failed;
}
