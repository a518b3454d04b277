/*
 * What the library's errors say to a person: the same of the same thing in every layer, with address, topic, partition,
 * offset, what it means and what to do.
 */
#include <check.h>
#include <logbroker.h>
#include <stdio.h>
#include <string.h>

#include "broker.h"
#include "fakebroker.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { PATIENCE_MS = 20000 };

static const struct {
	int code;
	const char *said;	/* behind the address */
} refusals[] = {
	{ LB_UNKNOWN_TOPIC_OR_PARTITION,
	    "answered UNKNOWN_TOPIC_OR_PARTITION: the broker has no such topic or partition; its configuration names them" },
	{ LB_RECORD_TOO_LARGE,
	    "answered RECORD_TOO_LARGE: a record is larger than a segment or an answer can hold; send smaller ones" },
	{ LB_UNSUPPORTED_VERSION, "answered UNSUPPORTED_VERSION: the broker does not know this request in this version; "
	    "it may be older than this library" },
	{ LB_CORRUPT_REQUEST, "answered CORRUPT_REQUEST: the broker could not read the request, a fault of its or of this "
	    "library: report it" },
	{ LB_STORAGE_FAILURE, "answered STORAGE_FAILURE: the broker could not write or read its files; its log says why" },
	{ 77, "answered error 77: this library does not know that error; it may be older than the broker" },
};

static struct fake fake;
static struct lb_connection *connection;
static struct lb_producer *producer;
static struct lb_topic *topic;
static struct lb_error error;

static void
start(void)
{
	fake_start(&fake, 2, true);
	ck_assert_int_eq(lb_connection_open(&connection, fake.address, NULL, &error), LB_OK);
	ck_assert_int_eq(lb_producer_open(&producer, fake.address, NULL, &error), LB_OK);
	ck_assert_int_eq(lb_topic_open(&topic, producer, "t", &error), LB_OK);
}

static void
end(void)
{
	lb_connection_free(connection);
	lb_producer_free(producer);
	fake_stop(&fake);
}

static void
expect_refusal(size_t number, const char *about)
{
	char text[LB_ERROR_TEXT_BYTES];

	snprintf(text, sizeof(text), "%s: %s %s", about, fake.address, refusals[number].said);
	ck_assert_int_eq(error.code, refusals[number].code);
	ck_assert_str_eq(error.text, text);
}

static void
on_receipt(void *context, const struct lb_receipt *receipt, const struct lb_error *failure)
{
	(void)receipt;
	ck_assert_ptr_nonnull(failure);
	*(struct lb_error *)context = *failure;
}

static int
subscribe(const char *name, int64_t offset, int32_t partition)
{
	struct lb_subscription_options options = lb_subscription_defaults();
	struct lb_subscription *subscription;
	const struct lb_batch *batch;
	int code;

	options.start = LB_START_OFFSET;
	options.start_offset = offset;
	options.partitions = &partition;
	options.partition_count = 1;
	ck_assert_int_eq(lb_subscription_open(&subscription, fake.address, name, &options, &error), LB_OK);
	code = lb_subscription_next(subscription, PATIENCE_MS, &batch, &error);
	lb_subscription_free(subscription);
	return code;
}

/* ---- refusals by the broker ---- */

START_TEST(refusals_of_a_produce_read_the_same_in_both_layers)
{
	struct lb_payload records[] = { { "a", 1 }, { "b", 1 } };

	start();
	for (size_t i = 0; i < COUNT(refusals); i++) {
		fake_change(&fake, &(struct fake_faults){ .produce_error = refusals[i].code, .produce_error_at = 3 * (int)i + 1 });
		lb_connection_produce(connection, "t", 1, LB_ACK_WRITTEN, records, 1, NULL, &error);
		expect_refusal(i, "PRODUCE to t/1");
		for (size_t count = 1; count <= 2; count++) {
			fake_change(&fake, &(struct fake_faults){ .produce_error = refusals[i].code,
				.produce_error_at = 3 * (int)i + 1 + (int)count });
			ck_assert_int_eq(lb_topic_send_batch(topic, 1, records, count, on_receipt, &error, NULL), LB_OK);
			ck_assert_int_eq(lb_producer_flush(producer, PATIENCE_MS, NULL), LB_OK);
			expect_refusal(i, count == 1 ? "PRODUCE to t/1, 1 record" : "PRODUCE to t/1, 2 records");
		}
	}
	end();
}
END_TEST

/* STORAGE_FAILURE is asked again for 10 s: test_lib_cursor has a clock of its own. */
START_TEST(refusals_of_a_fetch_read_the_same_in_both_layers)
{
	struct lb_fetch fetch = { "t", 1, 2, 1000, 0, 0 };
	struct lb_fetched fetched;

	start();
	for (int i = 0; i < 3; i++)
		fake_append(&fake, 1, "x", 1);
	for (size_t i = 0; i < COUNT(refusals); i++) {
		fake_change(&fake, &(struct fake_faults){ .fetch_error = refusals[i].code });
		lb_connection_fetch(connection, &fetch, &fetched, &error);
		expect_refusal(i, "FETCH of t/1 at offset 2");
		if (refusals[i].code == LB_STORAGE_FAILURE)
			continue;
		ck_assert_int_eq(subscribe("t", 2, 1), refusals[i].code);
		expect_refusal(i, "FETCH of t/1 at offset 2");
		ck_assert_int_eq(error.partition, 1);
		ck_assert_int_eq(error.offset, 2);
	}
	end();
}
END_TEST

START_TEST(refusals_of_a_topic_read_the_same_in_all_layers)
{
	const char *name = "nothing";
	struct lb_metadata *metadata;

	start();
	lb_connection_metadata(connection, &name, 1, &metadata, &error);
	expect_refusal(0, "METADATA of nothing");
	lb_topic_open(&topic, producer, name, &error);
	expect_refusal(0, "METADATA of nothing");
	subscribe(name, 0, 0);
	expect_refusal(0, "METADATA of nothing");
	ck_assert_str_eq(error.topic, name);
	end();
}
END_TEST

/* ---- what the subscription finds out ---- */

START_TEST(positions_outside_the_log_say_what_the_log_has)
{
	char text[LB_ERROR_TEXT_BYTES];

	start();
	fake_append(&fake, 0, "x", 1);
	ck_assert_int_eq(subscribe("t", 5, 0), LB_OFFSET_OUT_OF_RANGE);
	snprintf(text, sizeof(text), "t/0 at offset 5: the position is above the high watermark, which is 1 at %s: it is "
	    "another log's, or the log has lost its end (OFFSET_OUT_OF_RANGE)", fake.address);
	ck_assert_str_eq(error.text, text);
	fake_change(&fake, &(struct fake_faults){ .raise_start = 1 });
	ck_assert_int_eq(subscribe("t", 0, 0), LB_GAP);
	ck_assert_str_eq(error.text, "t/0 at offset 0: 1 record is gone, the log starts at 1");
	ck_assert_int_eq(subscribe("t", 0, 7), LB_UNKNOWN_TOPIC_OR_PARTITION);
	snprintf(text, sizeof(text), "t/7: the topic has no such partition at %s, but 0 to 1 (UNKNOWN_TOPIC_OR_PARTITION)",
	    fake.address);
	ck_assert_str_eq(error.text, text);
	end();
}
END_TEST

/* ---- what the producer waits for ---- */

START_TEST(outstanding_records_are_counted)
{
	char text[LB_ERROR_TEXT_BYTES];

	start();
	fake_change(&fake, &(struct fake_faults){ .silent = true });
	for (int count = 1; count <= 2; count++) {
		ck_assert_int_eq(lb_topic_send_to(topic, 0, "x", 1, NULL, NULL, &error), LB_OK);
		ck_assert_int_eq(lb_producer_flush(producer, 10, &error), LB_TIMED_OUT);
		snprintf(text, sizeof(text), "%s: %s outstanding after 10 ms", fake.address,
		    count == 1 ? "1 record is" : "2 records are");
		ck_assert_ptr_nonnull(strstr(error.text, text));
	}
	end();
}
END_TEST

/* ---- arguments ---- */

/* By all three layers, at their opening. */
static void
expect_no_address(const char *address, const char *text)
{
	struct lb_subscription *subscription;

	ck_assert_int_eq(lb_connection_open(&connection, address, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_str_eq(error.text, text);
	ck_assert_ptr_null(connection);
	ck_assert_int_eq(lb_producer_open(&producer, address, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_str_eq(error.text, text);
	ck_assert_ptr_null(producer);
	ck_assert_int_eq(lb_subscription_open(&subscription, address, "t", NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_str_eq(error.text, text);
	ck_assert_ptr_null(subscription);
}

START_TEST(malformed_addresses_are_refused_at_opening)
{
	expect_no_address("localhost",
	    "\"localhost\" is no broker's address: a port is missing; write host:port, [v6]:port or unix:/path");
	expect_no_address("localhost:0", "\"localhost:0\" is no broker's address: the port must be a number from 1 to 65535");
	expect_no_address("unix:there", "\"unix:there\" is no broker's address: a Unix socket needs an absolute path, unix:/path");
	expect_no_address(NULL, "a broker's address is missing; write host:port, [v6]:port or unix:/path");
}
END_TEST

START_TEST(impossible_topics_read_the_same_in_all_layers)
{
	static const char *const said[][2] = {
		{ "a/b", "\"a/b\" is no topic: a name has 1 to 249 characters out of A-Z a-z 0-9 . _ - and is neither . nor .." },
		{ NULL, "a topic is missing" },
	};
	struct lb_subscription *subscription;
	struct lb_metadata *metadata;

	start();
	for (size_t i = 0; i < COUNT(said); i++) {
		ck_assert_int_eq(lb_connection_metadata(connection, &said[i][0], 1, &metadata, &error), LB_INVALID_ARGUMENT);
		ck_assert_str_eq(error.text, said[i][1]);
		ck_assert_int_eq(lb_topic_open(&topic, producer, said[i][0], &error), LB_INVALID_ARGUMENT);
		ck_assert_str_eq(error.text, said[i][1]);
		ck_assert_int_eq(lb_subscription_open(&subscription, fake.address, said[i][0], NULL, &error), LB_INVALID_ARGUMENT);
		ck_assert_str_eq(error.text, said[i][1]);
	}
	end();
}
END_TEST

/* A close that was refused has freed nothing: the producer works on. */
START_TEST(refused_close_leaves_the_producer)
{
	struct lb_totals totals;

	start();
	ck_assert_int_eq(lb_producer_close(producer, -1, &totals, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_topic_send_to(topic, 0, "x", 1, NULL, NULL, &error), LB_OK);
	ck_assert_int_eq(lb_producer_close(producer, PATIENCE_MS, &totals, &error), LB_OK);
	ck_assert_uint_eq(totals.acknowledged, 1);
	producer = NULL;
	end();
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("lib_texts");
	TCase *tcase = tcase_create("texts");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, refusals_of_a_produce_read_the_same_in_both_layers);
	tcase_add_test(tcase, refusals_of_a_fetch_read_the_same_in_both_layers);
	tcase_add_test(tcase, refusals_of_a_topic_read_the_same_in_all_layers);
	tcase_add_test(tcase, positions_outside_the_log_say_what_the_log_has);
	tcase_add_test(tcase, outstanding_records_are_counted);
	tcase_add_test(tcase, malformed_addresses_are_refused_at_opening);
	tcase_add_test(tcase, impossible_topics_read_the_same_in_all_layers);
	tcase_add_test(tcase, refused_close_leaves_the_producer);
	suite_add_tcase(suite, tcase);
	return broker_main(suite);
}
