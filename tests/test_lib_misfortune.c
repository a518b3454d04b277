/*
 * The library in a process that has bad luck: no memory, no descriptors, at any moment of a whole session; a child that holds
 * what was closed here. Whatever fails, each accepted record completes once, each offset comes once and in order, and what can be
 * tried again is. The memory is the test's to refuse only without a sanitizer.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allocations.h"
#include "broker.h"
#include "client/lib/logbroker.h"
#include "fakebroker.h"
#include "subscribing.h"

enum { PARTITIONS = 3, RECORDS = 20, SETTLE_TURNS = 20, NEVER = 0, MANY = 340000 };

static struct fake fake;
static struct lb_error error;

/* ---- system calls that fail ---- */

/* What refuses: memory (allocations.h) or descriptors (here). Of this thread, which is the library's; the broker has others. */
static _Thread_local bool watching;
static _Thread_local unsigned long calls, failing, failing_more;

static bool
may_call(int why)
{
	if (!watching || ++calls < failing || failing == NEVER || calls >= failing + failing_more)
		return true;
	errno = why;
	return false;
}

int
socket(int domain, int type, int protocol)
{
	return may_call(EMFILE) ? (int)syscall(SYS_socket, domain, type, protocol) : -1;
}

int
epoll_create1(int flags)
{
	return may_call(EMFILE) ? (int)syscall(SYS_epoll_create1, flags) : -1;
}

int
epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	if (op != EPOLL_CTL_DEL && !may_call(ENOSPC))
		return -1;
	return (int)syscall(SYS_epoll_ctl, epfd, op, fd, event);
}

struct misfortune {
	const char *name;
	void (*begin)(unsigned long n);		/* from here on the n-th fails */
	unsigned long (*end)(void);		/* how many there were */
};

static void
begin_no_memory(unsigned long n)
{
	allocations_fail_at(n);
	allocations_watch(true);
}

static unsigned long
end_no_memory(void)
{
	allocations_watch(false);
	return allocations_count();
}

static void
begin_no_descriptor(unsigned long n)
{
	calls = 0;
	failing = n;
	failing_more = 1;
	watching = true;
}

static void
begin_no_descriptors(unsigned long n)
{
	begin_no_descriptor(n);
	failing_more = 3;
}

static unsigned long
end_no_descriptor(void)
{
	watching = false;
	return calls;
}

static const struct misfortune misfortunes[] = {
	{ "memory", begin_no_memory, end_no_memory },
	{ "a descriptor", begin_no_descriptor, end_no_descriptor },
	{ "descriptors for a while", begin_no_descriptors, end_no_descriptor },
};

enum { MISFORTUNES = sizeof(misfortunes) / sizeof(misfortunes[0]) };

/* ---- sessions ---- */

static unsigned long accepted, told;
static struct lb_totals totals;

static void
on_receipt(void *context, const struct lb_receipt *receipt, const struct lb_error *failure)
{
	(void)context;
	(void)failure;
	told += receipt->record_count;
}

static void
send_some(struct lb_topic *topic)
{
	static const struct lb_payload pair[] = { { "one", 3 }, { "two", 3 } };

	for (int i = 0; i < RECORDS; i++)
		accepted += lb_topic_send(topic, NULL, 0, "record", 6, on_receipt, NULL, &error) == LB_OK;
	accepted += lb_topic_send_batch(topic, 0, pair, 2, on_receipt, NULL, &error) == LB_OK ? 2 : 0;
}

/* Produces before a loss and behind it. */
static void
hold_producer(void)
{
	struct lb_producer_options options = lb_producer_defaults();
	struct lb_producer *producer;
	struct lb_topic *topic;

	options.delivery_timeout_ms = 2000;
	options.batch_records = 4;
	accepted = told = 0;
	totals = (struct lb_totals){ .accepted = 0 };
	if (lb_producer_open(&producer, fake.address, &options, &error) != LB_OK)
		return;
	if (lb_topic_open(&topic, producer, "t", &error) == LB_OK) {
		send_some(topic);
		lb_producer_flush(producer, 3000, &error);
		fake_cut(&fake);
		send_some(topic);
	}
	lb_producer_close(producer, 3000, &totals, &error);
}

START_TEST(a_producer_has_bad_luck)
{
	const struct misfortune *misfortune = &misfortunes[_i];
	int descriptors = broker_fd_count(getpid());
	unsigned long n = 0, count;

	if (misfortune->begin == begin_no_memory && !allocations_are_counted()) {
		printf("a_producer_has_bad_luck: skipped, a sanitizer allocates here\n");
		return;
	}
	do {
		fake_start(&fake, PARTITIONS, true);
		misfortune->begin(++n);
		hold_producer();
		count = misfortune->end();
		fake_stop(&fake);
		ck_assert_uint_eq(told, accepted);
		ck_assert_uint_eq(totals.accepted, accepted);
		ck_assert_uint_eq(totals.acknowledged + totals.refused + totals.not_sent + totals.unknown, accepted);
		ck_assert_int_eq(broker_fd_count(getpid()), descriptors);
	} while (count >= n);
	ck_assert_uint_gt(n, 5);
	ck_assert_uint_eq(accepted, 2 * (RECORDS + 2));
}
END_TEST

/* What a subscription has delivered; checked when the misfortune is over, since Check takes memory, too. */
struct delivered {
	int64_t next[PARTITIONS];
	long records, batches;
	bool wrong, over;
	struct lb_error end;
};

static int
on_batch(void *context, const struct lb_batch *batch)
{
	struct delivered *delivered = context;
	struct lb_record record = { 0 };

	while (lb_batch_next(batch, &record)) {
		delivered->wrong |= record.offset != delivered->next[batch->partition]++;
		delivered->records++;
	}
	if (++delivered->batches == 2)
		fake_cut(&fake);
	return 0;
}

static void
on_stopped(void *context, const struct lb_error *failure)
{
	struct delivered *delivered = context;

	delivered->over = true;
	if (failure != NULL)
		delivered->end = *failure;
	else
		delivered->end.code = LB_ENDED;
}

static void
pull(struct lb_subscription *subscription, struct delivered *delivered)
{
	const struct lb_batch *batch;

	if (lb_subscription_next(subscription, 1000, &batch, NULL) == LB_OK)
		on_batch(delivered, batch);
}

/* Replays, over a loss, until it stops or a time that is far too long has passed. False: it could not be opened. */
static bool
hold_subscription(struct delivered *delivered, bool pulled)
{
	struct lb_subscription_options options = lb_subscription_defaults();
	struct lb_subscription *subscription;
	int64_t until_ms = wire_now_ms() + 10000;

	*delivered = (struct delivered){ .over = false };
	options.stop = LB_STOP_AT_WATERMARK;
	options.max_bytes = 40;
	options.timeout_ms = 60000;
	options.handler = pulled ? NULL : on_batch;
	options.stopped = on_stopped;
	options.context = delivered;
	if (lb_subscription_open(&subscription, fake.address, "t", &options, &delivered->end) != LB_OK)
		return false;
	while (!delivered->over && wire_now_ms() < until_ms) {
		if (pulled)
			pull(subscription, delivered);
		else
			lb_source_poll(lb_subscription_source(subscription), 1000);
	}
	lb_subscription_free(subscription);
	return true;
}

static void
check_delivered(const struct delivered *delivered, bool opened, bool memory, unsigned long n)
{
	int code = delivered->end.code;

	ck_assert_msg(!opened || delivered->over, "%lu: it does not end; %ld records came", n, delivered->records);
	ck_assert_msg(!delivered->wrong, "%lu: not in order", n);
	/* Descriptors come back, and are waited for; without memory, the kernel's included, it may stop. */
	memory |= strstr(delivered->end.text, "epoll_ctl") != NULL;
	ck_assert_msg(code == LB_ENDED || (code == LB_NO_MEMORY && (memory || !opened)), "%lu: %s", n, delivered->end.text);
	ck_assert(code != LB_ENDED || delivered->records == PARTITIONS * RECORDS);
}

START_TEST(a_subscription_has_bad_luck)
{
	const struct misfortune *misfortune = &misfortunes[_i / 2];
	bool memory = misfortune->begin == begin_no_memory, opened;
	int descriptors = broker_fd_count(getpid());
	struct delivered delivered;
	unsigned long n = 0, count;

	if (memory && !allocations_are_counted()) {
		printf("a_subscription_has_bad_luck: skipped, a sanitizer allocates here\n");
		return;
	}
	do {
		fake_start(&fake, PARTITIONS, true);
		for (int i = 0; i < PARTITIONS * RECORDS; i++)
			fake_append(&fake, i % PARTITIONS, "record", 6);
		misfortune->begin(++n);
		opened = hold_subscription(&delivered, _i % 2 != 0);
		count = misfortune->end();
		fake_stop(&fake);
		check_delivered(&delivered, opened, memory, n);
		ck_assert_int_eq(broker_fd_count(getpid()), descriptors);
	} while (count >= n);
	ck_assert_uint_gt(n, 5);
	ck_assert_int_eq(delivered.end.code, LB_ENDED);
}
END_TEST

/* Turns until so many records have come, it stops, or far too long a time has passed. */
static void
deliver_until(struct lb_subscription *subscription, struct delivered *delivered, long records)
{
	int64_t until_ms = wire_now_ms() + 10000;

	while (!delivered->over && delivered->records < records && wire_now_ms() < until_ms)
		lb_source_poll(lb_subscription_source(subscription), 100);
}

static void
set_partitions(int count)
{
	pthread_mutex_lock(&fake.mutex);
	fake.partition_count = count;
	pthread_mutex_unlock(&fake.mutex);
	fake_cut(&fake);
}

/* From where it was; a partition that could not be added is looked for by the first. */
static void
go_on(struct lb_subscription *subscription, struct delivered *delivered)
{
	int32_t partition = delivered->end.partition;

	ck_assert_int_eq(delivered->end.code, LB_NO_MEMORY);
	if (lb_subscription_position(subscription, partition) < 0)
		partition = 0;
	ck_assert_int_eq(lb_subscription_seek(subscription, partition, delivered->next[partition], &error), LB_OK);
	delivered->over = false;
}

/* The topic has more partitions when the connection is back, and there is no memory for one of them; later there is. */
static void
grow_without_memory(unsigned long n, struct delivered *delivered, unsigned long *count)
{
	struct lb_subscription_options options = lb_subscription_defaults();
	struct lb_subscription *subscription;

	*delivered = (struct delivered){ .batches = 2 };
	options.handler = on_batch;
	options.stopped = on_stopped;
	options.context = delivered;
	set_partitions(1);
	ck_assert_int_eq(lb_subscription_open(&subscription, fake.address, "t", &options, &error), LB_OK);
	deliver_until(subscription, delivered, 1);
	set_partitions(PARTITIONS);
	begin_no_memory(n);
	deliver_until(subscription, delivered, PARTITIONS);
	*count = end_no_memory();
	if (delivered->over) {
		go_on(subscription, delivered);
		for (int i = 0; i < SETTLE_TURNS; i++)
			lb_source_poll(lb_subscription_source(subscription), 10);
		fake_cut(&fake);
		deliver_until(subscription, delivered, PARTITIONS);
	}
	lb_subscription_free(subscription);
}

START_TEST(a_topic_grows_without_memory)
{
	struct delivered delivered;
	unsigned long n = 0, count;

	do {
		fake_start(&fake, PARTITIONS, true);
		for (int i = 0; i < PARTITIONS; i++)
			fake_append(&fake, i, "record", 6);
		grow_without_memory(++n, &delivered, &count);
		fake_stop(&fake);
		ck_assert_msg(delivered.records == PARTITIONS, "%lu: %ld records, %s", n, delivered.records, delivered.end.text);
		ck_assert_msg(fake.metadatas < 3 * PARTITIONS, "%lu: asked for METADATA %d times", n, fake.metadatas);
	} while (allocations_are_counted() && count >= n);
}
END_TEST

/* ---- a child ---- */

/* A process of the same descriptors, that does nothing with them until it is killed. */
static pid_t
fork_idle(void)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	while (pid == 0)
		pause();
	return pid;
}

static void
end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* True: the descriptor wakes the program again and again, although there is nothing to do. */
static bool
spins(struct lb_source *source)
{
	struct lb_wants wants;
	int awake = 0;

	for (int i = 0; i < SETTLE_TURNS; i++)
		lb_source_poll(source, 20);
	for (int i = 0; i < SETTLE_TURNS; i++) {
		struct pollfd fd;

		wants = lb_source_wants(source);
		fd = (struct pollfd){ .fd = wants.fd, .events = wants.events };
		awake += poll(&fd, 1, 0) > 0;
		lb_source_process(source);
	}
	return awake > SETTLE_TURNS / 2;
}

START_TEST(a_child_holds_a_producers_lost_connection)
{
	struct lb_producer *producer;
	struct lb_topic *topic;
	pid_t child;

	fake_start(&fake, 1, true);
	ck_assert_int_eq(lb_producer_open(&producer, fake.address, NULL, &error), LB_OK);
	ck_assert_int_eq(lb_topic_open(&topic, producer, "t", &error), LB_OK);
	ck_assert_int_eq(lb_topic_send(topic, NULL, 0, "record", 6, NULL, NULL, &error), LB_OK);
	ck_assert_int_eq(lb_producer_flush(producer, 10000, &error), LB_OK);
	child = fork_idle();
	fake_stop(&fake);
	ck_assert(!spins(lb_producer_source(producer)));
	end_child(child);
	lb_producer_free(producer);
}
END_TEST

START_TEST(a_child_holds_a_subscriptions_lost_connections)
{
	struct subscribing by;
	pid_t child;

	fake_start(&fake, PARTITIONS, true);
	for (int i = 0; i < PARTITIONS; i++)
		fake_append(&fake, i, "record", 6);
	subscribing_init(&by, false);
	subscribing_open(&by, fake.address, "t");
	subscribing_until(&by, PARTITIONS);
	child = fork_idle();
	fake_stop(&fake);
	ck_assert(!spins(lb_subscription_source(by.subscription)));
	end_child(child);
	subscribing_close(&by);
}
END_TEST

/* ---- an absurd broker ---- */

/* The answer to the first request of a connection: as many partitions as an answer can have, each in a group of its own. */
static void
put_absurd_metadata(struct wire_bytes *out)
{
	wire_put_i32(out, 0);
	wire_put_i32(out, 0);
	wire_put_i16(out, 0);
	wire_put_i32(out, 1);
	wire_put_name(out, "t");
	wire_put_i8(out, 1);
	wire_put_i32(out, MANY);
	for (int i = 0; i < MANY; i++) {
		wire_put_i32(out, i);
		wire_put_i64(out, 0);
		wire_put_i64(out, 0);
		wire_put_i32(out, i);
	}
	wire_set_i32(out->data, (int64_t)out->length - 4);
}

/* It took half an hour, while no call should. */
START_TEST(a_topic_of_very_many_groups_is_opened)
{
	struct wire_bytes metadata = { 0 };
	struct lb_producer *producer;
	struct lb_topic *topic;

	put_absurd_metadata(&metadata);
	fake_start(&fake, 1, true);
	fake.faults.raw = metadata.data;
	fake.faults.raw_bytes = metadata.length;
	ck_assert_int_eq(lb_producer_open(&producer, fake.address, NULL, &error), LB_OK);
	ck_assert_msg(lb_topic_open(&topic, producer, "t", &error) == LB_OK, "%s", error.text);
	ck_assert_int_eq(lb_topic_partition_count(topic), MANY);
	lb_producer_free(producer);
	fake_stop(&fake);
	wire_bytes_free(&metadata);
}
END_TEST

static Suite *
misfortune_suite(void)
{
	Suite *suite = suite_create("lib_misfortune");
	TCase *luck = tcase_create("luck"), *others = tcase_create("others");

	tcase_set_timeout(luck, 300);
	tcase_add_loop_test(luck, a_producer_has_bad_luck, 0, MISFORTUNES);
	tcase_add_loop_test(luck, a_subscription_has_bad_luck, 0, 2 * MISFORTUNES);
	suite_add_tcase(suite, luck);
	tcase_set_timeout(others, 120);
	tcase_add_test(others, a_topic_grows_without_memory);
	tcase_add_test(others, a_child_holds_a_producers_lost_connection);
	tcase_add_test(others, a_child_holds_a_subscriptions_lost_connections);
	tcase_add_test(others, a_topic_of_very_many_groups_is_opened);
	suite_add_tcase(suite, others);
	return suite;
}

int
main(void)
{
	return broker_main(misfortune_suite());
}
