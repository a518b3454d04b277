/*
 * Subscriptions of the library against a really started broker with several workers.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "broker.h"
#include "procs.h"
#include "subscribing.h"
#include "wire.h"

static struct broker broker;
static char address[BROKER_PATH_BYTES + 8];

/* By Unix socket, whose path outlives restarts. */
static void
start(const struct broker_config *config)
{
	broker_start(&broker, config);
	snprintf(address, sizeof address, "unix:%s", broker.unix_path);
}

static void
finish(void)
{
	broker_stop(&broker);
	broker_end(&broker);
}

static int
dial(void)
{
	int fd = wire_connect_unix(broker.unix_path);

	ck_assert_int_ge(fd, 0);
	return fd;
}

/* Records that name their partition and offset, `size` bytes each. */
static void
produce(int fd, int32_t partition, int64_t from, int count, size_t size)
{
	struct wire_record *records = calloc((size_t)count, sizeof *records);
	char *bytes = calloc((size_t)count, size);
	int64_t base;

	for (int i = 0; i < count; i++) {
		snprintf(bytes + (size_t)i * size, size, "%d:%lld", (int)partition, (long long)(from + i));
		records[i] = (struct wire_record){ bytes + (size_t)i * size, size };
	}
	ck_assert_int_eq(wire_produce(fd, "t", partition, WIRE_WRITTEN, records, (size_t)count, &base, NULL), 0);
	ck_assert_int_eq(base, from);
	free(records);
	free(bytes);
}

static void
look(struct subscribing *by, int32_t partition, const struct lb_record *record)
{
	char expected[64];

	(void)by;
	snprintf(expected, sizeof expected, "%d:%lld", (int)partition, (long long)record->offset);
	ck_assert_str_eq(record->data, expected);
}

START_TEST(C01_subscribe_by_name_from_earliest)
{
	struct subscribing by;
	int fd;

	start(&(struct broker_config){ .workers = 3, .topics = "t = 3\nother = 2\n" });
	fd = dial();
	for (int32_t partition = 0; partition < 3; partition++)
		produce(fd, partition, 0, 100 + partition, 64);
	subscribing_init(&by, _i);
	by.look = look;
	subscribing_open(&by, address, "t");
	subscribing_until(&by, 303);
	for (int round = 0; round < 20; round++) {
		produce(fd, round % 3, 100 + round % 3 + round / 3, 1, 64);
		subscribing_until(&by, 304 + round);
	}
	for (int32_t partition = 0; partition < 3; partition++)
		ck_assert_int_eq(by.first[partition], 0);
	ck_assert_int_eq(by.error.code, LB_OK);
	subscribing_close(&by);
	close(fd);
	finish();
}
END_TEST

static Suite *
suite(void)
{
	Suite *s = suite_create("lib_follow");
	TCase *tc = tcase_create("follow");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, C01_subscribe_by_name_from_earliest, 0, 2);
	suite_add_tcase(s, tc);
	return s;
}

int
main(void)
{
	return broker_main(suite());
}
