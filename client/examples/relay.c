/*
 * Copies a topic into another one, in libevent's loop: a subscription and a producer share it with whatever else the program does
 * (here: SIGINT and SIGTERM). Records keep their order within a partition. When the producer has too much on its way, the
 * subscription pauses. It ends when everything that was there at its start has been acknowledged, with 0. Interrupted, it ends
 * with 1 when what it has read has been acknowledged.
 *
 *   cc relay.c $(pkg-config --cflags --libs liblogbroker-event) -o relay
 *   ./relay 127.0.0.1:9092 orders copies
 */
#include <signal.h>
#include <stdio.h>

#include <event2/event.h>

#include <logbroker-event.h>
#include <logbroker.h>

struct relay {
	struct event_base *base;
	struct event *interrupt, *terminate;
	struct lb_subscription *from;
	struct lb_producer *producer;
	struct lb_topic *to;
	size_t on_their_way;		/* records sent and not acknowledged */
	bool all_read;
	int failed;
};

enum { TOO_MANY_RECORDS = 20000 };

static void
fail(struct relay *relay, const char *why)
{
	if (!relay->failed)	/* the first reason is the one that matters */
		fprintf(stderr, "%s\n", why);
	relay->failed = 1;
	event_base_loopbreak(relay->base);
}

static void
end_if_done(struct relay *relay)
{
	if (relay->all_read && relay->on_their_way == 0)
		event_base_loopbreak(relay->base);
}

static void
on_receipt(void *context, const struct lb_receipt *receipt, const struct lb_error *error)
{
	struct relay *relay = context;

	relay->on_their_way -= receipt->record_count;
	if (error != NULL)
		fail(relay, error->text);
	else if (relay->on_their_way < TOO_MANY_RECORDS / 2 && relay->from != NULL)
		lb_subscription_pause(relay->from, false);
	end_if_done(relay);
}

static int
on_batch(void *context, const struct lb_batch *batch)
{
	struct relay *relay = context;
	int32_t partition = batch->partition % lb_topic_partition_count(relay->to);
	struct lb_record record = { 0 };
	enum lb_code code = LB_OK;
	struct lb_error error;
	bool full;

	while (code == LB_OK && lb_batch_next(batch, &record)) {
		code = lb_topic_send_to(relay->to, partition, record.data, record.bytes, on_receipt, relay, &error);
		if (code == LB_OK)
			relay->on_their_way++;
	}
	/* The producer is full: on from this record when some have been acknowledged. */
	full = code == LB_WOULD_BLOCK;
	if (full)
		code = lb_subscription_seek(relay->from, batch->partition, record.offset, &error);
	if (code != LB_OK) {
		fail(relay, error.text);
		return -1;
	}
	if (full || relay->on_their_way >= TOO_MANY_RECORDS)
		lb_subscription_pause(relay->from, true);
	return 0;
}

static void
on_stopped(void *context, const struct lb_error *error)
{
	struct relay *relay = context;

	if (error != NULL) {
		fail(relay, error->text);
		return;
	}
	relay->all_read = true;
	end_if_done(relay);
}

static void
on_signal(evutil_socket_t signal_number, short events, void *context)
{
	(void)signal_number;
	(void)events;
	fail(context, "interrupted");
}

/* Whatever it has got to, finish takes it apart. */
static int
begin(struct relay *relay, char **argv)
{
	struct lb_subscription_options options = lb_subscription_defaults();
	struct lb_error error;

	options.stop = LB_STOP_AT_WATERMARK;
	options.handler = on_batch;
	options.stopped = on_stopped;
	options.context = relay;
	if (lb_producer_open(&relay->producer, argv[1], NULL, &error) != LB_OK ||
	    lb_topic_open(&relay->to, relay->producer, argv[3], &error) != LB_OK ||
	    lb_subscription_open(&relay->from, argv[1], argv[2], &options, &error) != LB_OK) {
		fail(relay, error.text);
		return -1;
	}
	if (lb_event_attach(lb_subscription_source(relay->from), relay->base) != 0 ||
	    lb_event_attach(lb_producer_source(relay->producer), relay->base) != 0) {
		fail(relay, "cannot attach to the event loop");
		return -1;
	}
	return 0;
}

/* The producer's and subscription's lives end before the loop's. */
static void
finish(struct relay *relay)
{
	struct lb_error error;

	lb_subscription_free(relay->from);
	relay->from = NULL;
	/* What has been read is sent, even when that is not all. */
	if (relay->producer != NULL && lb_producer_close(relay->producer, 10000, NULL, &error) != LB_OK)
		fail(relay, error.text);
}

int
main(int argc, char **argv)
{
	struct relay relay = { 0 };

	if (argc != 4) {
		fprintf(stderr, "usage: relay ADDRESS FROM-TOPIC TO-TOPIC\n");
		return 2;
	}
	relay.base = event_base_new();
	if (relay.base == NULL) {
		fprintf(stderr, "libevent does not work here\n");
		return 1;
	}
	relay.interrupt = evsignal_new(relay.base, SIGINT, on_signal, &relay);
	relay.terminate = evsignal_new(relay.base, SIGTERM, on_signal, &relay);
	if (relay.interrupt == NULL || relay.terminate == NULL || event_add(relay.interrupt, NULL) != 0 ||
	    event_add(relay.terminate, NULL) != 0)
		fail(&relay, "cannot watch for signals");
	else if (begin(&relay, argv) == 0)
		event_base_dispatch(relay.base);
	finish(&relay);
	if (relay.interrupt != NULL)
		event_free(relay.interrupt);
	if (relay.terminate != NULL)
		event_free(relay.terminate);
	event_base_free(relay.base);
	return relay.failed;
}
