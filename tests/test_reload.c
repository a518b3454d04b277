/*
 * A changed broker.ini against the settings in force: each key's class, what is told, what is taken over and what is not.
 * In a directory of its own, which each test begins with the file `first`.
 */
#include "supervisor/reload.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "supervisor/draft.h"
#include "supervisor/placement.h"
#include "tests/unit.h"

#define FILE_NAME "broker.ini"

static const char first[] =
    "[broker]\nlisten = 127.0.0.1:0\ndata_dir = data\ncontrol = off\nhttp = off\nworkers = 2\n"
    "[topics]\na = 2\nb = 1\nc = 3\n"
    "[log]\nflush_interval = 1s\n[topic c]\nflush_interval = 2s\n";

static char directory[] = "/tmp/test_reload.XXXXXX";
static struct settings settings;
static struct topics topics;
static struct setup setup;
static struct reload reload;
static struct reload_changes changes;
static char *report;

static void
write_file(const char *text)
{
	FILE *file = fopen(FILE_NAME, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

/* The first file with one text replaced by another. */
static void
write_changed(const char *from, const char *to)
{
	const char *place = strstr(first, from);
	char *text = NULL;

	ck_assert_ptr_nonnull(place);
	ck_assert_int_gt(asprintf(&text, "%.*s%s%s", (int)(place - first), first, to, place + strlen(from)), 0);
	write_file(text);
	free(text);
}

static int
apply(void)
{
	size_t length = 0;
	FILE *to;
	int result;

	free(report);
	report = NULL;
	to = open_memstream(&report, &length);
	ck_assert_ptr_nonnull(to);
	result = reload_apply(&reload, to, &changes);
	fclose(to);
	return result;
}

static void
expect(const char *text, int at_once, int with_workers, int with_service)
{
	ck_assert_int_eq(apply(), 0);
	ck_assert_str_eq(report, text);
	ck_assert_int_eq(changes.at_once, at_once);
	ck_assert_int_eq(changes.with_workers, with_workers);
	ck_assert_int_eq(changes.with_service, with_service);
}

static void
begin(void)
{
	write_file(first);
	ck_assert_int_eq(settings_read(FILE_NAME, &settings, stderr), 0);
	ck_assert_int_eq(placement_build(&settings, &topics), 0);
	setup = (struct setup){ .settings = &settings, .topics = &topics, .log_level = settings.log_level };
	reload = (struct reload){ FILE_NAME, false, INT64_MAX, &settings, &topics, &setup, NULL, NULL };
}

static void
end(void)
{
	topics_free(&topics);
	settings_free(&settings);
	free(report);
	report = NULL;
	unlink(FILE_NAME);
}

START_TEST(every_key_has_a_class)
{
	for (int k = 0; k < KEY_COUNT; k++)
		ck_assert_msg(draft_key(k)->change >= CHANGES_AT_ONCE && draft_key(k)->change <= CHANGES_WITH_SERVICE, "%s",
		    draft_key(k)->name);
}
END_TEST

START_TEST(nothing_has_changed)
{
	expect("nothing has changed\n", 0, 0, 0);
	ck_assert_int_eq(setup.generation, 0);
	write_changed("workers = 2", "workers = 2\nmax_connections = 10000 ; the default");
	expect("nothing has changed\n", 0, 0, 0);
}
END_TEST

START_TEST(what_is_the_supervisors_own_is_applied)
{
	write_changed("workers = 2", "workers = 2\nmax_connections = 7");
	expect("max_connections: 10000 -> 7 (applied)\n", 1, 0, 0);
	ck_assert_int_eq(settings.max_connections, 7);
	ck_assert_int_eq(setup.generation, 0);
	expect("nothing has changed\n", 0, 0, 0);
}
END_TEST

START_TEST(what_workers_are_told_is_applied_by_restarting_them)
{
	write_changed("workers = 2", "workers = 2\nidle_timeout = 90s\nlog_level = warning\nmax_frame_bytes = 1MiB");
	expect("max_frame_bytes: 8MiB -> 1MiB (applied by restarting the workers)\n"
	    "idle_timeout: off -> 90s (applied by restarting the workers)\n"
	    "log_level: info -> warning (applied by restarting the workers)\n", 0, 3, 0);
	ck_assert_int_eq(settings.idle_timeout_ms, 90000);
	ck_assert_int_eq(settings.max_frame_bytes, 1024 * 1024);
	ck_assert_int_eq(setup.log_level, LOG_WARNING);
	ck_assert_int_eq(setup.generation, 1);
}
END_TEST

/* What topics get from [log] is one line; those that say it themselves have their own. */
START_TEST(a_log_key_for_all_topics_and_for_one)
{
	write_changed("[log]\nflush_interval = 1s", "[log]\nflush_interval = 1500ms\n[topic b]\nretention_age = 1h");
	expect("[log] flush_interval: 1s -> 1500ms (applied by restarting the workers)\n"
	    "[topic b] retention_age: off -> 1h (applied by restarting the workers)\n", 0, 2, 0);
	ck_assert_int_eq(settings.topics[0].log.flush_interval_us, 1500000);
	ck_assert_int_eq(topics.list[0].log.flush_interval_us, 1500000);
	ck_assert_int_eq(topics.list[1].log.flush_interval_us, 1500000);
	ck_assert_int_eq(topics.list[1].log.retention_age_ms, 3600 * 1000);
	ck_assert_int_eq(topics.list[2].log.flush_interval_us, 2000000);
	ck_assert_int_eq(topics.list[0].log.retention_age_ms, 0);
	expect("nothing has changed\n", 0, 0, 0);
}
END_TEST

START_TEST(a_topic_that_falls_back_to_log)
{
	write_changed("[topic c]\nflush_interval = 2s\n", "");
	expect("[topic c] flush_interval: 2s -> 1s (applied by restarting the workers)\n", 0, 1, 0);
	ck_assert_int_eq(topics.list[2].log.flush_interval_us, 1000000);
}
END_TEST

START_TEST(what_needs_the_service_stays_and_is_named_each_time)
{
	static const char text[] =
	    "data_dir: data -> other (needs a restart of the service)\n"
	    "workers: 2 -> 3 (needs a restart of the service)\n"
	    "max_connections: 10000 -> 9 (applied)\n";

	write_changed("data_dir = data\ncontrol = off\nhttp = off\nworkers = 2",
	    "data_dir = other\ncontrol = off\nhttp = off\nworkers = 3\nmax_connections = 9");
	expect(text, 1, 0, 2);
	ck_assert_str_eq(settings.data_dir, "data");
	ck_assert_int_eq(settings.workers, 2);
	ck_assert_int_eq(settings.max_connections, 9);
	expect("data_dir: data -> other (needs a restart of the service)\n"
	    "workers: 2 -> 3 (needs a restart of the service)\n", 0, 0, 2);
	write_changed("listen = 127.0.0.1:0\ndata_dir = data\ncontrol = off\nhttp = off",
	    "listen = 127.0.0.1:0, unix:/x/y\ndata_dir = data\ncontrol = c.sock\nhttp = [::1]:9\n");
	expect("listen: 127.0.0.1:0 -> 127.0.0.1:0,unix:/x/y (needs a restart of the service)\n"
	    "control: off -> c.sock (needs a restart of the service)\n"
	    "http: off -> [::1]:9 (needs a restart of the service)\n"
	    "max_connections: 9 -> 10000 (applied)\n", 1, 0, 3);
}
END_TEST

START_TEST(topics_never_change)
{
	write_changed("a = 2\nb = 1\nc = 3\n", "aa = 5\nb = 4\nc = 3\n[topic b]\ngroup = 1\nrecord_format = plain\n");
	expect("[topics] a: 2 -> not there (needs a restart of the service)\n"
	    "[topics] aa: not there -> 5 (needs a restart of the service)\n"
	    "[topics] b: 1 -> 4 (needs a restart of the service)\n"
	    "[topic b] group: spread over the workers -> 1 (needs a restart of the service)\n"
	    "[topic b] record_format: crc32c -> plain (needs a restart of the service)\n", 0, 0, 5);
	ck_assert_int_eq(settings.topic_count, 3);
	ck_assert_str_eq(settings.topics[0].name, "a");
	ck_assert_int_eq(topics.list[1].partition_count, 1);
	ck_assert_int_eq(topics.list[1].log.record_format, RECORD_CRC32C);
	ck_assert_int_eq(setup.generation, 0);
}
END_TEST

START_TEST(an_error_applies_nothing)
{
	write_changed("workers = 2", "workers = 2\nmax_connections = 7\nrention = 1\nlog_level = loud");
	ck_assert_int_eq(apply(), -1);
	ck_assert_str_eq(report, FILE_NAME ":8: unknown key 'rention' in [broker] (broker.ini(5) tells all of them)\n"
	    FILE_NAME ":9: log_level: 'loud' is not known (allowed: error|warning|info|debug)\n");
	ck_assert_int_eq(settings.max_connections, 10000);
	ck_assert_int_eq(setup.generation, 0);
	unlink(FILE_NAME);
	ck_assert_int_eq(apply(), -1);
	ck_assert_str_eq(report, FILE_NAME ": cannot be read: No such file or directory\n");
}
END_TEST

/* What a start would refuse is refused here too. */
START_TEST(fewer_partitions_than_on_disk)
{
	FILE *segment;

	ck_assert_int_eq(mkdir("data", 0700), 0);
	ck_assert_int_eq(mkdir("data/c-2", 0700), 0);
	segment = fopen("data/c-2/00000000000000000000.log", "w");
	ck_assert_ptr_nonnull(segment);
	fclose(segment);
	write_changed("c = 3", "c = 2");
	ck_assert_int_eq(apply(), -1);
	ck_assert_ptr_nonnull(strstr(report, FILE_NAME ":10: c: fewer partitions than on disk, 2 are configured and data/c-2 "));
	unlink("data/c-2/00000000000000000000.log");
	rmdir("data/c-2");
	rmdir("data");
}
END_TEST

START_TEST(a_source_that_is_gone_is_not_read_again)
{
	static const char *const paths[] = { "/dev/fd/63", "/dev/stdin", "/proc/self/fd/0", "fifo" };

	ck_assert_int_eq(mkfifo("fifo", 0600), 0);
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		reload.path = paths[i];
		ck_assert_int_eq(apply(), -1);
		ck_assert_ptr_nonnull(strstr(report, ": is not a file that can be read again; nothing is applied"));
	}
	unlink("fifo");
}
END_TEST

/* Most of what is below /dev is no passed descriptor: /dev/shm is a place for files. */
START_TEST(a_file_in_memory_is_read_again)
{
	char path[] = "/dev/shm/test_reload.XXXXXX";
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, first, sizeof(first) - 1), (ssize_t)sizeof(first) - 1);
	close(fd);
	reload.path = path;
	expect("nothing has changed\n", 0, 0, 0);
	unlink(path);
}
END_TEST

START_TEST(verbose_stays_in_force)
{
	reload.verbose = true;
	settings.log_level = setup.log_level = LOG_DEBUG;
	write_changed("workers = 2", "workers = 2\nlog_level = error");
	expect("nothing has changed\n", 0, 0, 0);
	ck_assert_int_eq(setup.log_level, LOG_DEBUG);
}
END_TEST

START_TEST(max_connections_is_lowered_as_at_the_start)
{
	reload.connections_allowed = 500;
	settings.max_connections = 7;
	ck_assert_int_eq(apply(), 0);
	ck_assert_ptr_nonnull(strstr(report, "max_connections is lowered from 10000 to 500: "));
	ck_assert_ptr_nonnull(strstr(report, "max_connections: 7 -> 500 (applied)\n"));
	ck_assert_int_eq(settings.max_connections, 500);
	expect("nothing has changed\n", 0, 0, 0);
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("reload");
	TCase *tcase = tcase_create("reload");
	int status;

	if (mkdtemp(directory) == NULL || chdir(directory) != 0)
		return EXIT_FAILURE;
	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_test(tcase, every_key_has_a_class);
	tcase_add_test(tcase, nothing_has_changed);
	tcase_add_test(tcase, what_is_the_supervisors_own_is_applied);
	tcase_add_test(tcase, what_workers_are_told_is_applied_by_restarting_them);
	tcase_add_test(tcase, a_log_key_for_all_topics_and_for_one);
	tcase_add_test(tcase, a_topic_that_falls_back_to_log);
	tcase_add_test(tcase, what_needs_the_service_stays_and_is_named_each_time);
	tcase_add_test(tcase, topics_never_change);
	tcase_add_test(tcase, an_error_applies_nothing);
	tcase_add_test(tcase, fewer_partitions_than_on_disk);
	tcase_add_test(tcase, a_source_that_is_gone_is_not_read_again);
	tcase_add_test(tcase, a_file_in_memory_is_read_again);
	tcase_add_test(tcase, verbose_stays_in_force);
	tcase_add_test(tcase, max_connections_is_lowered_as_at_the_start);
	suite_add_tcase(suite, tcase);
	status = unit_run(suite);
	rmdir(directory);
	return status;
}
