/*
 * Turns, answers, returns: see sender.h.
 *
 * A partition's bundles stand in one list, from accepted to settled. Those that a connection has are the first of it,
 * `unsent` points behind them; what a lost connection gives back is in its place already, so that nothing is overtaken.
 */
#include "client/lib/sender.h"

#include <limits.h>
#include <stdio.h>

#include "client/lib/codec.h"
#include "client/lib/link.h"
#include "client/lib/outcome.h"
#include "common/clock.h"

static bool
has_something(const struct lb_partition *partition)
{
	return partition->unsent != NULL && !partition->unsent->open;
}

static void
leave_turn(struct lb_partition *partition)
{
	if (partition->ready)
		TAILQ_REMOVE(&partition->link->ready, partition, by_turn);
	partition->ready = false;
}

void
lb_sender_update(struct lb_partition *partition)
{
	if (partition->link != partition->home) {
		leave_turn(partition);
		if (partition->in_flight > 0)
			return;
		partition->link = partition->home;
	}
	if (!has_something(partition)) {
		leave_turn(partition);
	} else if (!partition->ready) {
		TAILQ_INSERT_TAIL(&partition->link->ready, partition, by_turn);
		partition->ready = true;
	}
}

void
lb_sender_close(struct lb_bundle *bundle)
{
	struct lb_partition *partition = bundle->partition;
	struct lb_producer *producer = partition->topic->producer;

	lb_accumulator_close(&producer->accumulator, bundle);
	lb_bundle_seal(bundle, partition->topic->name, partition->number, producer->options.ack);
	partition->expected_bytes = bundle->frame_bytes;
	lb_sender_update(partition);
}

/* ---- answers ---- */

static void
take_answer(struct lb_bundle *bundle, const struct lb_answer *answer)
{
	struct lb_produced produced;

	if (answer == NULL) {
		lb_outcome_acknowledged(bundle, -1);
	} else if (answer->error_code != 0) {
		lb_outcome_refused(bundle, answer->error_code);
	} else if (lb_read_produced(&produced, answer, bundle->frame) == LB_OK) {
		lb_outcome_acknowledged(bundle, produced.base_offset);
	} else {
		lb_connection_reject(bundle->partition->link->connection, "an answer that is none to a PRODUCE");
		lb_outcome_failed(bundle, LB_OUTCOME_UNKNOWN, "its answer is none to a PRODUCE");
	}
}

static void
come_back(struct lb_bundle *bundle, const struct lb_error *error)
{
	struct lb_partition *partition = bundle->partition;
	const struct lb_producer *producer = partition->topic->producer;
	bool sent = error->code == LB_OUTCOME_UNKNOWN;

	if (sent && !producer->options.at_least_once) {
		lb_outcome_failed(bundle, LB_OUTCOME_UNKNOWN, error->text);
		return;
	}
	bundle->maybe_sent |= sent;
	if (partition->unsent == NULL || bundle->number < partition->unsent->number)
		partition->unsent = bundle;
}

static void
on_answer(void *context, const struct lb_answer *answer, const struct lb_error *error)
{
	struct lb_bundle *bundle = context;
	struct lb_partition *partition = bundle->partition;
	struct lb_link *link = partition->link;

	bundle->in_flight = false;
	partition->in_flight--;
	link->in_flight--;
	if (error == NULL) {
		link->silent = false;
		lb_backoff_worked(&link->backoff);
	}
	if (bundle->settled) {
		link->given_up--;
		if (bundle->delivered)
			lb_outcome_recycle(link->producer, bundle);
	} else if (error == NULL) {
		take_answer(bundle, answer);
	} else {
		come_back(bundle, error);
	}
	lb_sender_update(partition);
}

/* ---- sending ---- */

/* The partition whose turn it is sends a bundle and stands at the end again. */
static bool
send_next(struct lb_link *link)
{
	struct lb_partition *partition = TAILQ_FIRST(&link->ready);
	struct lb_bundle *bundle = partition->unsent;
	enum lb_frame_kind kind = link->producer->options.ack == LB_ACK_NONE ? LB_FRAME_UNANSWERED : LB_FRAME_PRODUCE;

	/* Its time is ours to watch: an answer that is late is known for one. */
	if (lb_connection_submit_frame(link->connection, kind, bundle->frame, bundle->frame_bytes, INT_MAX, on_answer, bundle,
	    NULL) != LB_OK)
		return false;
	bundle->in_flight = true;
	partition->in_flight++;
	link->in_flight++;
	partition->unsent = TAILQ_NEXT(bundle, of_partition);
	leave_turn(partition);
	lb_sender_update(partition);
	return true;
}

static bool
send_some(struct lb_link *link, int64_t now_ns)
{
	bool any = false;

	while (!TAILQ_EMPTY(&link->ready) && link->in_flight < link->producer->options.in_flight &&
	    lb_link_usable(link, now_ns) && send_next(link))
		any = true;
	return any;
}

void
lb_sender_send(struct lb_link *link, int64_t now_ns)
{
	/* Answers that come meanwhile make room for more. */
	while (send_some(link, now_ns))
		lb_link_process(link, now_ns);
}

/* ---- time ---- */

static void
give_up(struct lb_bundle *bundle)
{
	struct lb_partition *partition = bundle->partition;
	struct lb_link *link = partition->link;
	int timeout_ms = link->producer->options.delivery_timeout_ms;
	char reason[LB_ERROR_TEXT_BYTES / 2];

	if (bundle->in_flight) {
		link->silent = true;
		link->given_up++;
	}
	snprintf(reason, sizeof(reason), "%.130s: %s within %d ms", link->producer->address,
	    bundle->in_flight ? "no answer" : "not sent", timeout_ms);
	if (bundle->in_flight || bundle->maybe_sent)
		lb_outcome_failed(bundle, LB_OUTCOME_UNKNOWN, reason);
	else if (link->connection == NULL && link->failure.code == LB_CANNOT_CONNECT)
		lb_outcome_failed(bundle, LB_CANNOT_CONNECT, link->failure.text);
	else
		lb_outcome_failed(bundle, LB_TIMED_OUT, reason);
	lb_sender_update(partition);
}

void
lb_sender_expire(struct lb_producer *producer, int64_t now_ns)
{
	int64_t timeout_ns = (int64_t)producer->options.delivery_timeout_ms * CLOCK_NS_PER_MS;
	struct lb_bundle *bundle;

	while ((bundle = TAILQ_FIRST(&producer->by_age)) != NULL && now_ns - bundle->begun_ns >= timeout_ns)
		give_up(bundle);
	for (struct lb_link *link = producer->links; link != NULL; link = link->next) {
		if (link->silent && link->given_up == link->in_flight)
			lb_link_give_up(link, now_ns);
	}
}
