/* Placement: every slot of every group is used exactly once, whatever the set of topics; order, bounds, lookup. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/topics.h"
#include "tests/unit.h"

static struct topics topics;

static struct codec_name
name_of(const char *text)
{
	struct codec_name name = { text, strlen(text) };

	return name;
}

/* Returns topics_add's errno, 0 when it has been added. */
static int
add(const char *name, int32_t partitions, int32_t first_group, bool spread)
{
	struct topic topic = { .partition_count = partitions, .first_group = first_group, .spread = spread };

	ck_assert_uint_lt(strlen(name), sizeof(topic.name));
	memcpy(topic.name, name, strlen(name));
	return topics_add(&topics, &topic) == 0 ? 0 : errno;
}

/* Marks each partition's slot; none may be marked twice or be missing or out of range. */
static void
expect_every_slot_once(void)
{
	for (int32_t group = 0; group < topics.group_count; group++) {
		int32_t slots = topics.slot_counts[group];
		int32_t next = 0;
		bool *used = calloc((size_t)slots + 1, sizeof(*used));

		for (int32_t t = 0; t < topics.count; t++)
			for (int32_t p = 0; p < topics.list[t].partition_count; p++) {
				int32_t slot;

				if (topics_group(&topics, &topics.list[t], p) != group)
					continue;
				slot = topics_slot(&topics, &topics.list[t], p);
				/* In the order of topics, then of partitions. One assertion: Check writes a line for each. */
				ck_assert(slot >= 0 && slot < slots && !used[slot] && slot == next);
				used[slot] = true;
				next++;
			}
		ck_assert_int_eq(next, slots);
		free(used);
	}
}

START_TEST(spread_goes_round_from_the_first_group)
{
	ck_assert_int_eq(topics_init(&topics, 3), 0);
	ck_assert_int_eq(add("a", 7, 2, true), 0);
	for (int32_t p = 0; p < 7; p++) {
		ck_assert_int_eq(topics_group(&topics, &topics.list[0], p), (2 + p) % 3);
		ck_assert_int_eq(topics_slot(&topics, &topics.list[0], p), p / 3);
	}
	ck_assert_int_eq(topics.slot_counts[0], 2);
	ck_assert_int_eq(topics.slot_counts[1], 2);
	ck_assert_int_eq(topics.slot_counts[2], 3);
	topics_free(&topics);
}
END_TEST

START_TEST(a_topic_in_one_group)
{
	ck_assert_int_eq(topics_init(&topics, 3), 0);
	ck_assert_int_eq(add("a", 2, 0, true), 0);
	ck_assert_int_eq(add("b", 5, 1, false), 0);
	ck_assert_int_eq(add("c", 4, 1, true), 0);
	for (int32_t p = 0; p < 5; p++) {
		ck_assert_int_eq(topics_group(&topics, &topics.list[1], p), 1);
		ck_assert_int_eq(topics_slot(&topics, &topics.list[1], p), 1 + p);
	}
	expect_every_slot_once();
	topics_free(&topics);
}
END_TEST

START_TEST(fewer_partitions_than_groups)
{
	ck_assert_int_eq(topics_init(&topics, 5), 0);
	ck_assert_int_eq(add("a", 2, 4, true), 0);
	ck_assert_int_eq(topics.slot_counts[4], 1);
	ck_assert_int_eq(topics.slot_counts[0], 1);
	ck_assert_int_eq(topics.slot_counts[1] + topics.slot_counts[2] + topics.slot_counts[3], 0);
	expect_every_slot_once();
	topics_free(&topics);
}
END_TEST

START_TEST(random_sets_use_every_slot_once)
{
	uint32_t state = unit_seed() + (uint32_t)_i;

	for (int round = 0; round < 20; round += unit_sample()) {
		int32_t groups = 1 + (int32_t)(unit_random(&state) % 17);
		int32_t count = 1 + (int32_t)(unit_random(&state) % 40);
		char name[16];

		ck_assert_int_eq(topics_init(&topics, groups), 0);
		for (int32_t t = 0; t < count; t++) {
			snprintf(name, sizeof(name), "t%05d", t);
			ck_assert_int_eq(add(name, 1 + (int32_t)(unit_random(&state) % 100),
			    (int32_t)(unit_random(&state) % (uint32_t)groups), unit_random(&state) % 3 > 0), 0);
		}
		expect_every_slot_once();
		topics_free(&topics);
	}
}
END_TEST

START_TEST(the_largest_topic)
{
	ck_assert_int_eq(topics_init(&topics, 7), 0);
	ck_assert_int_eq(add("a", TOPICS_PARTITIONS_MAX, 3, true), 0);
	expect_every_slot_once();
	topics_free(&topics);
}
END_TEST

START_TEST(names_in_byte_order_each_once)
{
	ck_assert_int_eq(topics_init(&topics, 1), 0);
	ck_assert_int_eq(add("B", 1, 0, true), 0);
	ck_assert_int_eq(add("a", 1, 0, true), 0);
	ck_assert_int_eq(add("a", 1, 0, true), EINVAL);
	ck_assert_int_eq(add("Z", 1, 0, true), EINVAL);
	ck_assert_int_eq(add("a-", 1, 0, true), 0);
	ck_assert_int_eq(add("a.", 1, 0, true), 0);
	ck_assert_int_eq(add("a", 1, 0, true), EINVAL);
	ck_assert_int_eq(add("aa", 1, 0, true), 0);
	ck_assert_int_eq(topics.count, 5);
	ck_assert_int_eq(topics.slot_counts[0], 5);
	expect_every_slot_once();
	topics_free(&topics);
}
END_TEST

START_TEST(numbers_that_break_a_rule)
{
	char longest[CODEC_TOPIC_NAME_MAX + 1];
	struct topic topic = { .partition_count = 1, .spread = true };

	ck_assert_int_eq(topics_init(&topics, 2), 0);
	ck_assert_int_eq(add("a", 0, 0, true), EINVAL);
	ck_assert_int_eq(add("a", -1, 0, true), EINVAL);
	ck_assert_int_eq(add("a", TOPICS_PARTITIONS_MAX + 1, 0, true), EINVAL);
	ck_assert_int_eq(add("a", 1, -1, true), EINVAL);
	ck_assert_int_eq(add("a", 1, 2, true), EINVAL);
	ck_assert_int_eq(add("", 1, 0, true), EINVAL);
	ck_assert_int_eq(add(".", 1, 0, true), EINVAL);
	ck_assert_int_eq(add("..", 1, 0, true), EINVAL);
	ck_assert_int_eq(add("a b", 1, 0, true), EINVAL);
	/* A name without its end. */
	memset(topic.name, 'x', sizeof(topic.name));
	ck_assert_int_eq(topics_add(&topics, &topic), -1);
	ck_assert_int_eq(errno, EINVAL);
	ck_assert_int_eq(topics.count, 0);
	ck_assert_int_eq(topics.slot_counts[0] + topics.slot_counts[1], 0);
	memset(longest, 'x', sizeof(longest));
	longest[CODEC_TOPIC_NAME_MAX] = '\0';
	ck_assert_int_eq(add(longest, 1, 1, true), 0);
	topics_free(&topics);
}
END_TEST

START_TEST(found_by_name)
{
	static const char *const names[] = { "A", "Z", "a", "a-", "a.b", "aa", "ab", "b", "zz" };
	enum { COUNT = sizeof(names) / sizeof(names[0]) };

	ck_assert_int_eq(topics_init(&topics, 2), 0);
	ck_assert_ptr_null(topics_find(&topics, name_of("a")));
	for (size_t i = 0; i < COUNT; i++)
		ck_assert_int_eq(add(names[i], 1, 0, true), 0);
	for (size_t i = 0; i < COUNT; i++)
		ck_assert_ptr_eq(topics_find(&topics, name_of(names[i])), &topics.list[i]);
	ck_assert_ptr_null(topics_find(&topics, name_of("0")));
	ck_assert_ptr_null(topics_find(&topics, name_of("a.")));
	ck_assert_ptr_null(topics_find(&topics, name_of("a.bc")));
	ck_assert_ptr_null(topics_find(&topics, name_of("zzz")));
	/* A view into a frame is not terminated: only its length counts. */
	ck_assert_ptr_eq(topics_find(&topics, (struct codec_name){ "aab", 2 }), &topics.list[5]);
	topics_free(&topics);
}
END_TEST

START_TEST(directories)
{
	struct topic topic = { .name = "orders.v2" };
	char directory[TOPICS_DIRECTORY_BYTES];

	topics_directory(&topic, 0, directory);
	ck_assert_str_eq(directory, "orders.v2-0");
	memset(topic.name, 'x', CODEC_TOPIC_NAME_MAX);
	topic.name[CODEC_TOPIC_NAME_MAX] = '\0';
	topics_directory(&topic, TOPICS_PARTITIONS_MAX - 1, directory);
	ck_assert_uint_eq(strlen(directory), CODEC_TOPIC_NAME_MAX + 1 + 5);
	ck_assert_str_eq(directory + CODEC_TOPIC_NAME_MAX, "-99998");
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("topics");
	TCase *tests = tcase_create("topics");

	tcase_set_timeout(tests, UNIT_TIMEOUT_S);
	tcase_add_test(tests, spread_goes_round_from_the_first_group);
	tcase_add_test(tests, a_topic_in_one_group);
	tcase_add_test(tests, fewer_partitions_than_groups);
	tcase_add_loop_test(tests, random_sets_use_every_slot_once, 0, 8);
	tcase_add_test(tests, the_largest_topic);
	tcase_add_test(tests, names_in_byte_order_each_once);
	tcase_add_test(tests, numbers_that_break_a_rule);
	tcase_add_test(tests, found_by_name);
	tcase_add_test(tests, directories);
	suite_add_tcase(suite, tests);
	return unit_run(suite);
}
