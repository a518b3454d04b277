/* Dealing partitions out to groups. */
#include "supervisor/placement.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static struct settings_topic list[200];

static struct settings
settings_of(int32_t workers)
{
	memset(list, 0, sizeof(list));
	return (struct settings){ .workers = workers, .topics = list };
}

static void
add(struct settings *settings, const char *name, int32_t partitions, int32_t group)
{
	struct settings_topic *topic = &list[settings->topic_count++];

	snprintf(topic->name, sizeof(topic->name), "%s", name);
	topic->partition_count = partitions;
	topic->group = group;
	topic->log.segment_bytes = 4096 + partitions;
	topic->log.record_format = RECORD_PLAIN;
}

START_TEST(one_partition_topics_are_spread)
{
	struct settings settings = settings_of(3);
	struct topics topics;
	char name[16];

	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof(name), "t%02d", i);
		add(&settings, name, 1, -1);
	}
	ck_assert_int_eq(placement_build(&settings, &topics), 0);
	ck_assert_int_eq(topics.slot_counts[0], 34);
	ck_assert_int_eq(topics.slot_counts[1], 33);
	ck_assert_int_eq(topics.slot_counts[2], 33);
	ck_assert_int_eq(placement_partitions(&topics), 100);
	ck_assert_int_eq(placement_largest_group(&topics), 34);
	topics_free(&topics);
}
END_TEST

START_TEST(a_topic_goes_on_where_the_one_before_has_ended)
{
	struct settings settings = settings_of(4);
	struct topics topics;

	add(&settings, "a", 6, -1);
	add(&settings, "b", 3, 2);	/* does not take part */
	add(&settings, "c", 5, -1);
	ck_assert_int_eq(placement_build(&settings, &topics), 0);
	for (int32_t partition = 0; partition < 6; partition++)
		ck_assert_int_eq(topics_group(&topics, &topics.list[0], partition), partition % 4);
	for (int32_t partition = 0; partition < 3; partition++)
		ck_assert_int_eq(topics_group(&topics, &topics.list[1], partition), 2);
	for (int32_t partition = 0; partition < 5; partition++)
		ck_assert_int_eq(topics_group(&topics, &topics.list[2], partition), (2 + partition) % 4);
	ck_assert_int_eq(topics.list[2].log.segment_bytes, 4096 + 5);
	ck_assert_int_eq(topics.list[2].log.record_format, RECORD_PLAIN);
	topics_free(&topics);
}
END_TEST

/* Every slot of every group is used once: what the workers count must be what is there. */
START_TEST(slots_are_numbered_without_gaps)
{
	struct settings settings = settings_of(5);
	struct topics topics;
	int used[5][100] = { { 0 } };

	add(&settings, "a", 13, -1);
	add(&settings, "b", 2, -1);
	add(&settings, "c", 7, 4);
	add(&settings, "d", 31, -1);
	ck_assert_int_eq(placement_build(&settings, &topics), 0);
	for (int32_t i = 0; i < topics.count; i++)
		for (int32_t partition = 0; partition < topics.list[i].partition_count; partition++)
			used[topics_group(&topics, &topics.list[i], partition)][topics_slot(&topics, &topics.list[i], partition)]++;
	for (int32_t group = 0; group < 5; group++)
		for (int32_t slot = 0; slot < 100; slot++)
			ck_assert_int_eq(used[group][slot], slot < topics.slot_counts[group] ? 1 : 0);
	topics_free(&topics);
}
END_TEST

START_TEST(many_partitions)
{
	struct settings settings = settings_of(1024);
	struct topics topics;

	add(&settings, "a", TOPICS_PARTITIONS_MAX, -1);
	add(&settings, "b", TOPICS_PARTITIONS_MAX, -1);
	ck_assert_int_eq(placement_build(&settings, &topics), 0);
	ck_assert_int_eq(placement_partitions(&topics), 2 * (int64_t)TOPICS_PARTITIONS_MAX);
	ck_assert_int_eq(placement_largest_group(&topics), 196);
	topics_free(&topics);
}
END_TEST

START_TEST(refuses_what_cannot_be)
{
	struct settings settings = settings_of(2);
	struct topics topics;

	add(&settings, "a", 1, 2);	/* group 2 of 2 */
	ck_assert_int_eq(placement_build(&settings, &topics), -1);
	ck_assert_int_eq(errno, EINVAL);
	settings = settings_of(0);
	ck_assert_int_eq(placement_build(&settings, &topics), -1);
	ck_assert_int_eq(errno, EINVAL);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("placement");
	TCase *tcase = tcase_create("placement");

	tcase_add_test(tcase, one_partition_topics_are_spread);
	tcase_add_test(tcase, a_topic_goes_on_where_the_one_before_has_ended);
	tcase_add_test(tcase, slots_are_numbered_without_gaps);
	tcase_add_test(tcase, many_partitions);
	tcase_add_test(tcase, refuses_what_cannot_be);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
