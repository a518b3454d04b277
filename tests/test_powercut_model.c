/*
 * The model of a disk, the states it may be in, and what was promised, by lists of events that are made by hand; and that
 * the recorder ends a process which does what it cannot tell.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/powercut_ledger.h"
#include "tests/powercut_model.h"
#include "tests/powercut_recorder.h"
#include "tests/powercut_states.h"
#include "tests/unit.h"
#include "tests/wire.h"

/* Files and directories by their inodes. */
enum { ROOT = 1, DATA, LOG, OTHER, THIRD };

enum { SECTOR_BYTES = 512, PAGE_BYTES = 4096 };

static struct model *model;
static struct ledger *ledger;
static const char *why;
static uint64_t models;
static struct powercut_event *told[64];	/* which the model needs until its end */
static int told_count;

/* ---- events ---- */

static struct powercut_event *
keep_event(const struct powercut_event *head, const void *data, size_t bytes)
{
	struct powercut_event *event = calloc(1, sizeof(*event) + bytes);

	ck_assert_ptr_nonnull(event);
	ck_assert_int_lt(told_count, 64);
	*event = *head;
	event->bytes = (uint32_t)bytes;
	if (bytes > 0)
		memcpy(event->data, data, bytes);
	return told[told_count++] = event;
}

static int
apply(const struct powercut_event *head, const void *data, size_t bytes)
{
	const struct powercut_event *event = keep_event(head, data, bytes);
	int done;

	done = model_apply(model, event);
	if (done == 0 && ledger != NULL)
		done = ledger_note(ledger, model, event, &why);
	return done;
}

static void
tell(const struct powercut_event *head, const void *data, size_t bytes)
{
	ck_assert_int_eq(apply(head, data, bytes), 0);
}

static void
create(uint64_t directory, const char *name, uint64_t file)
{
	tell(&(struct powercut_event){ .kind = POWERCUT_CREATE, .directory = directory, .file = file }, name,
	    strlen(name) + 1);
}

static void
make_directory(uint64_t directory, const char *name, uint64_t file)
{
	tell(&(struct powercut_event){ .kind = POWERCUT_DIRECTORY, .directory = directory, .file = file }, name,
	    strlen(name) + 1);
}

static void
rename_to(uint64_t directory, const char *from, const char *to)
{
	char names[64];
	int length = snprintf(names, sizeof(names), "%s%c%s", from, '\0', to);

	tell(&(struct powercut_event){ .kind = POWERCUT_RENAME, .directory = directory }, names, (size_t)length + 1);
}

static void
unlink_name(uint64_t directory, const char *name)
{
	tell(&(struct powercut_event){ .kind = POWERCUT_UNLINK, .directory = directory }, name, strlen(name) + 1);
}

static void
write_text(uint64_t file, int64_t position, const char *text)
{
	tell(&(struct powercut_event){ .kind = POWERCUT_WRITE, .file = file, .position = position }, text, strlen(text));
}

static void
resize(uint64_t file, int64_t size)
{
	tell(&(struct powercut_event){ .kind = POWERCUT_RESIZE, .file = file, .position = size }, NULL, 0);
}

static void
begin_force(uint64_t file, int thread)
{
	tell(&(struct powercut_event){ .kind = POWERCUT_FORCE, .file = file, .thread = thread }, NULL, 0);
}

static void
end_force(uint64_t file, int thread)
{
	tell(&(struct powercut_event){ .kind = POWERCUT_FORCED, .file = file, .thread = thread }, NULL, 0);
}

static void
force(uint64_t file)
{
	begin_force(file, 1);
	end_force(file, 1);
}

static void
begin(void)
{
	model = model_new(models++ + unit_seed());
	tell(&(struct powercut_event){ .kind = POWERCUT_START, .file = ROOT }, NULL, 0);
}

static void
end(void)
{
	model_free(model);
	if (ledger != NULL)
		ledger_free(ledger);
	ledger = NULL;
	while (told_count > 0)
		free(told[--told_count]);
}

/* ---- states ---- */

/* What is looked for in all states. */
struct question {
	const char *path;
	const char *content;	/* NULL: there is no such file */
	const char *with;	/* and this one is there, too; may be NULL */
	int64_t known_bytes;	/* so many of the file were written before, and are no garbage */
	struct image image;
	uint64_t hashes[4096];
	size_t states, distinct, met;
};

static void
count_distinct(struct question *question, uint64_t hash)
{
	for (size_t i = 0; i < question->distinct; i++)
		if (question->hashes[i] == hash)
			return;
	ck_assert_uint_lt(question->distinct, 4096);
	question->hashes[question->distinct++] = hash;
}

static bool
holds(const struct image_entry *entry, const char *text)
{
	return (size_t)entry->size == strlen(text)
	    && (entry->size == 0 || memcmp(entry->bytes, text, (size_t)entry->size) == 0);
}

static int
ask(const struct state *state, void *context)
{
	struct question *question = context;
	const struct image_entry *entry;
	bool met;

	model_image(model, state->fates, state->seed, state->garbage, &question->image);
	entry = image_find(&question->image, question->path);
	met = entry == NULL ? question->content == NULL : question->content != NULL && holds(entry, question->content);
	if (question->with != NULL && image_find(&question->image, question->with) == NULL)
		met = false;
	question->met += met;
	question->states++;
	if (!state->garbage)
		count_distinct(question, image_hash(&question->image));
	return 0;
}

static struct question
ask_all(enum states_profile profile, const char *path, const char *content, const char *with)
{
	struct states states = { .profile = profile, .random = 20, .subsets_of = 12, .seed = unit_seed() };
	struct question question = { .path = path, .content = content, .with = with };

	ck_assert_int_eq(states_visit(&states, model, ask, &question), 0);
	image_free(&question.image);
	return question;
}

/* In some state, and not in all. */
static bool
may_be(const char *path, const char *content)
{
	struct question question = ask_all(STATES_STRICT, path, content, NULL);

	return question.met > 0 && question.met < question.states;
}

static bool
must_be(const char *path, const char *content)
{
	struct question question = ask_all(STATES_STRICT, path, content, NULL);

	return question.met == question.states;
}

static bool
cannot_be(const char *path, const char *content)
{
	return ask_all(STATES_STRICT, path, content, NULL).met == 0;
}

/* ---- files and their names ---- */

START_TEST(K_model_the_force_of_a_file_does_not_make_its_name_durable)
{
	create(ROOT, "a", LOG);
	write_text(LOG, 0, "one");
	force(LOG);
	ck_assert(may_be("a", "one") && may_be("a", NULL) && cannot_be("a", ""));
	force(ROOT);
	ck_assert(must_be("a", "one"));
}
END_TEST

START_TEST(K_model_the_force_of_a_directory_does_not_make_bytes_durable)
{
	create(ROOT, "a", LOG);
	write_text(LOG, 0, "one");
	force(ROOT);
	ck_assert(may_be("a", "one") && may_be("a", "") && may_be("a", (const char[]){ 0 }) && cannot_be("a", NULL));
	force(LOG);
	ck_assert(must_be("a", "one"));
}
END_TEST

START_TEST(K_model_a_force_covers_what_stood_ahead_of_its_begin)
{
	create(ROOT, "a", LOG);
	force(ROOT);
	write_text(LOG, 0, "one");
	begin_force(LOG, 1);
	write_text(LOG, 3, "two");
	ck_assert(may_be("a", ""));
	end_force(LOG, 1);
	ck_assert(may_be("a", "one") && may_be("a", "onetwo") && cannot_be("a", ""));
}
END_TEST

START_TEST(K_model_forces_of_two_threads_are_two)
{
	create(ROOT, "a", LOG);
	force(ROOT);
	begin_force(LOG, 1);
	write_text(LOG, 0, "one");
	begin_force(LOG, 2);
	end_force(LOG, 1);
	ck_assert(may_be("a", ""));
	end_force(LOG, 2);
	ck_assert(must_be("a", "one"));
}
END_TEST

START_TEST(K_model_after_a_force_that_failed_no_other_one_helps)
{
	int on_disk = 0;

	for (int round = 0; round < 40; round++) {
		end();
		begin();
		create(ROOT, "a", LOG);
		force(ROOT);
		resize(LOG, 3);
		force(LOG);
		write_text(LOG, 0, "one");
		begin_force(LOG, 1);
		tell(&(struct powercut_event){ .kind = POWERCUT_UNFORCED, .file = LOG, .thread = 1 }, NULL, 0);
		force(LOG);
		on_disk += must_be("a", "one");
		ck_assert(must_be("a", "one") || cannot_be("a", "one"));
		write_text(LOG, 0, "one");
		force(LOG);
		ck_assert(must_be("a", "one"));
	}
	ck_assert(on_disk > 0 && on_disk < 40);
}
END_TEST

START_TEST(K_model_a_directory_needs_its_own_name)
{
	make_directory(ROOT, "d", DATA);
	create(DATA, "a", LOG);
	force(LOG);
	force(DATA);
	ck_assert(may_be("d/a", "") && may_be("d/a", NULL));
	force(ROOT);
	ck_assert(must_be("d/a", ""));
}
END_TEST

START_TEST(K_model_a_rename_is_one_change)
{
	struct question both, none;

	create(ROOT, "a", LOG);
	force(ROOT);
	rename_to(ROOT, "a", "b");
	both = ask_all(STATES_STRICT, "a", "", "b");
	none = ask_all(STATES_STRICT, "b", "", NULL);
	ck_assert_uint_eq(both.met, 0);
	ck_assert_uint_eq(both.distinct, 2);
	ck_assert(none.met > 0 && none.met < none.states);
	force(ROOT);
	ck_assert(must_be("b", "") && must_be("a", NULL));
}
END_TEST

START_TEST(K_model_a_rename_replaces)
{
	create(ROOT, "a", LOG);
	write_text(LOG, 0, "old");
	force(LOG);
	force(ROOT);
	create(ROOT, "b", OTHER);
	write_text(OTHER, 0, "new");
	rename_to(ROOT, "b", "a");
	/* What many have learnt: the name is on the disk before the bytes. */
	ck_assert(may_be("a", "old") && may_be("a", "new") && may_be("a", "") && cannot_be("a", NULL));
	force(OTHER);
	ck_assert(may_be("a", "old") && may_be("a", "new") && cannot_be("a", ""));
}
END_TEST

START_TEST(K_model_what_is_unlinked_comes_back)
{
	create(ROOT, "a", LOG);
	force(ROOT);
	unlink_name(ROOT, "a");
	ck_assert(may_be("a", "") && may_be("a", NULL));
	create(ROOT, "a", OTHER);
	write_text(OTHER, 0, "another");
	force(OTHER);
	ck_assert(may_be("a", "") && may_be("a", "another"));
	force(ROOT);
	ck_assert(must_be("a", "another"));
}
END_TEST

START_TEST(K_model_strict_and_ordered_names)
{
	create(ROOT, "a", LOG);
	create(ROOT, "b", OTHER);
	ck_assert_uint_gt(ask_all(STATES_STRICT, "a", NULL, "b").met, 0);
	ck_assert_uint_eq(ask_all(STATES_ORDERED, "a", NULL, "b").met, 0);
	ck_assert_uint_gt(ask_all(STATES_ORDERED, "b", NULL, "a").met, 0);
	/* No directory knows of another one's. */
	make_directory(ROOT, "d", DATA);
	force(ROOT);
	create(ROOT, "c", THIRD);
	create(DATA, "e", 77);
	ck_assert_uint_gt(ask_all(STATES_ORDERED, "c", NULL, "d/e").met, 0);
}
END_TEST

/* ---- bytes and sizes ---- */

START_TEST(K_model_sizes_without_data_and_data_without_sizes)
{
	struct question zeros;

	create(ROOT, "a", LOG);
	force(ROOT);
	write_text(LOG, 0, "one");
	force(LOG);
	write_text(LOG, 3, "two");
	zeros = ask_all(STATES_STRICT, "a", "onetwo", NULL);
	ck_assert_uint_eq(zeros.distinct, 3);	/* nothing; all; and zeros where "two" should be */
	ck_assert(may_be("a", "one"));
}
END_TEST

START_TEST(K_model_a_block_is_lost_alone)
{
	char text[1025];

	memset(text, 'x', sizeof(text) - 1);
	text[1024] = '\0';
	create(ROOT, "a", LOG);
	force(ROOT);
	resize(LOG, 1024);
	force(LOG);
	write_text(LOG, 0, text);
	ck_assert_uint_eq(ask_all(STATES_STRICT, "a", NULL, NULL).distinct, 4);
	ck_assert(may_be("a", text));
}
END_TEST

START_TEST(K_model_a_cut_is_lost_like_anything)
{
	create(ROOT, "a", LOG);
	write_text(LOG, 0, "onetwo");
	force(LOG);
	force(ROOT);
	resize(LOG, 3);
	ck_assert(may_be("a", "onetwo") && may_be("a", "one"));
	resize(LOG, 6);
	force(LOG);
	/* What was cut off does not come back with the size. */
	ck_assert_uint_eq(ask_all(STATES_STRICT, "a", "onetwo", NULL).distinct, 1);
	ck_assert(cannot_be("a", "onetwo"));
}
END_TEST

START_TEST(K_model_what_was_cut_off_is_there_again_behind_what_came_in_its_place)
{
	char refused[PAGE_BYTES + 1], accepted[SECTOR_BYTES + 1], both[PAGE_BYTES + 1];

	memset(refused, 'r', PAGE_BYTES);
	memset(accepted, 'a', SECTOR_BYTES);
	refused[PAGE_BYTES] = accepted[SECTOR_BYTES] = '\0';
	memcpy(both, refused, sizeof(both));
	memcpy(both, accepted, SECTOR_BYTES);
	create(ROOT, "a", LOG);
	force(ROOT);
	write_text(LOG, 0, refused);
	resize(LOG, 0);
	write_text(LOG, 0, accepted);
	ck_assert(may_be("a", both));
	resize(LOG, 0);
	force(LOG);
	write_text(LOG, 0, accepted);
	ck_assert(cannot_be("a", both));
}
END_TEST

static int
look_for_garbage(const struct state *state, void *context)
{
	struct question *question = context;
	const struct image_entry *entry;

	model_image(model, state->fates, state->seed, state->garbage, &question->image);
	entry = image_find(&question->image, "a");
	for (int64_t i = 0; i < entry->size; i++) {
		bool known = entry->bytes[i] == 0 || entry->bytes[i] == 'x' || entry->bytes[i] == 'y';

		ck_assert_msg(known || (state->garbage && i >= question->known_bytes), "byte %d of \"%s\"", (int)i, state->kind);
		question->met += !known;
	}
	return 0;
}

START_TEST(K_model_garbage_stands_only_in_blocks_that_were_never_written)
{
	struct states states = { .random = 20, .seed = unit_seed() };
	struct question question = { .path = "a", .known_bytes = SECTOR_BYTES };
	char text[513];

	memset(text, 'x', sizeof(text) - 1);
	text[512] = '\0';
	create(ROOT, "a", LOG);
	force(ROOT);
	write_text(LOG, 0, text);
	force(LOG);
	memset(text, 'y', sizeof(text) - 1);
	write_text(LOG, 0, text);
	write_text(LOG, 512, text);
	states_visit(&states, model, look_for_garbage, &question);
	ck_assert_uint_gt(question.met, 0);
	image_free(&question.image);
}
END_TEST

START_TEST(K_model_what_was_cut_off_has_no_blocks_any_more)
{
	struct states states = { .random = 20, .seed = unit_seed() };
	struct question question = { .path = "a", .known_bytes = PAGE_BYTES };
	char text[2 * PAGE_BYTES + 1];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	create(ROOT, "a", LOG);
	force(ROOT);
	write_text(LOG, 0, text);
	force(LOG);
	resize(LOG, 100);
	force(LOG);
	/* What stands in the block that is left is known; the one behind it is another one. */
	write_text(LOG, 100, text + 100);
	states_visit(&states, model, look_for_garbage, &question);
	ck_assert_uint_gt(question.met, 0);
	image_free(&question.image);
}
END_TEST

static int
count_torn(const struct state *state, void *context)
{
	struct question *question = context;
	const struct image_entry *entry;
	int kept = 0;

	if (state->garbage)
		return 0;
	model_image(model, state->fates, state->seed, state->garbage, &question->image);
	entry = image_find(&question->image, "a");
	for (int64_t word = 0; word < 64; word += 8) {
		/* A word is whole. */
		for (int64_t i = 1; i < 8; i++)
			ck_assert_int_eq(entry->bytes[word + i], entry->bytes[word]);
		kept += entry->bytes[word] == 's';
	}
	question->met += kept > 0 && kept < 8;
	return 0;
}

START_TEST(K_model_a_store_is_cut_at_any_eight_bytes)
{
	struct states states = { .random = 50, .seed = unit_seed() };
	struct question question = { .path = "a" };
	char text[65];

	memset(text, 's', sizeof(text) - 1);
	create(ROOT, "a", LOG);
	force(ROOT);
	resize(LOG, 4096);
	force(LOG);
	tell(&(struct powercut_event){ .kind = POWERCUT_STORE, .file = LOG }, text, 64);
	states_visit(&states, model, count_torn, &question);
	ck_assert_uint_gt(question.met, 0);
	image_free(&question.image);
}
END_TEST

START_TEST(K_model_all_subsets_of_a_few_units)
{
	create(ROOT, "a", LOG);
	create(ROOT, "b", OTHER);
	create(ROOT, "c", THIRD);
	ck_assert_uint_eq(ask_all(STATES_STRICT, "a", "", NULL).distinct, 8);
	ck_assert_uint_eq(ask_all(STATES_ORDERED, "a", "", NULL).distinct, 4);
}
END_TEST

START_TEST(K_model_what_cannot_be_is_told)
{
	struct powercut_event event = { .kind = POWERCUT_FORCED, .file = ROOT, .thread = 1 };

	ck_assert_int_eq(apply(&event, NULL, 0), -1);
	event = (struct powercut_event){ .kind = POWERCUT_WRITE, .file = 99 };
	ck_assert_int_eq(apply(&event, "x", 1), -1);
	event = (struct powercut_event){ .kind = POWERCUT_UNLINK, .directory = ROOT };
	ck_assert_int_eq(apply(&event, "nothing", 8), -1);
	create(ROOT, "a", LOG);
	event = (struct powercut_event){ .kind = POWERCUT_STORE, .file = LOG };
	ck_assert_int_eq(apply(&event, "behind the end", 14), -1);
}
END_TEST

/* ---- images ---- */

START_TEST(K_model_an_image_stands_on_the_disk_as_it_is)
{
	char path[64] = "/tmp/image-XXXXXX", file[128], text[IMAGE_WHY_BYTES];
	struct image image = { 0 };

	ck_assert_ptr_nonnull(mkdtemp(path));
	make_directory(ROOT, "d", DATA);
	create(DATA, "a", LOG);
	write_text(LOG, 0, "one");
	model_image_applied(model, &image);
	image_write(&image, path);
	ck_assert_msg(image_is_at(&image, path, text), "%s", text);
	snprintf(file, sizeof(file), "%s/d/a", path);
	ck_assert_int_eq(truncate(file, 2), 0);
	ck_assert(!image_is_at(&image, path, text));
	image_write(&image, path);
	snprintf(file, sizeof(file), "%s/other", path);
	ck_assert_int_eq(mkdir(file, 0700), 0);
	ck_assert(!image_is_at(&image, path, text));
	image_remove(path);
	image_free(&image);
}
END_TEST

/* ---- the ledger ---- */

static const struct ledger_request requests[] = { { WIRE_FORCED, 1 }, { WIRE_WRITTEN, 1 }, { WIRE_FORCED, 2 } };
static const char SEGMENT[] = "00000000000000000000.log";

static void
begin_ledger(bool durable)
{
	const struct ledger_settings settings = { .format = RECORD_CRC32C, .durable = durable, .directory = "d",
		.requests = requests, .request_count = 3 };

	begin();
	ledger = ledger_new(&settings);
	make_directory(ROOT, "d", DATA);
	create(DATA, SEGMENT, LOG);
}

static size_t
encode(int32_t id, int record, uint8_t *to)
{
	uint8_t payload[LEDGER_PAYLOAD_MAX];
	size_t size;

	ledger_payload(id, record, payload, &size);
	return (size_t)(record_put(to, RECORD_CRC32C, payload, size) - to);
}

/* Returns where it ends. */
static int64_t
write_record(uint64_t file, int64_t position, int32_t id, int record)
{
	uint8_t bytes[LEDGER_PAYLOAD_MAX + RECORD_HEADER_MAX_BYTES];
	size_t size = encode(id, record, bytes);

	tell(&(struct powercut_event){ .kind = POWERCUT_WRITE, .file = file, .position = position }, bytes, size);
	return position + (int64_t)size;
}

static int
send_answer(int32_t id, int64_t base, size_t bytes_from, size_t bytes_to)
{
	struct wire_bytes answer = { 0 };
	struct powercut_event event = { .kind = POWERCUT_SEND, .process = 7, .position = 5 };
	int done;

	wire_put_i32(&answer, 22);
	wire_put_i32(&answer, id);
	wire_put_i16(&answer, 0);
	wire_put_i64(&answer, base);
	wire_put_i64(&answer, base + 1);
	done = apply(&event, answer.data + bytes_from, bytes_to - bytes_from);
	event = (struct powercut_event){ .kind = POWERCUT_SENT, .process = 7, .position = 5,
		.count = (int64_t)(bytes_to - bytes_from) };
	if (done == 0)
		done = apply(&event, NULL, 0);
	wire_bytes_free(&answer);
	return done;
}

START_TEST(K_ledger_an_answer_promises_as_soon_as_it_may_leave)
{
	begin_ledger(false);
	write_record(LOG, 0, 0, 0);
	ck_assert_int_eq(ledger_forced_end(ledger), 0);
	ck_assert_int_eq(send_answer(0, 0, 0, 11), 0);
	ck_assert_int_eq(ledger_forced_end(ledger), 0);
	ck_assert_int_eq(send_answer(0, 0, 11, 26), 0);
	ck_assert_int_eq(ledger_forced_end(ledger), 1);
	ck_assert(ledger_record(ledger, ledger_at(ledger, 0))->forced);
	end();
}
END_TEST

START_TEST(K_ledger_what_is_answered_must_have_been_written)
{
	begin_ledger(false);
	ck_assert_int_eq(send_answer(0, 0, 0, 26), -1);
	write_record(LOG, 0, 1, 0);
	/* It is another one's record. */
	ck_assert_int_eq(send_answer(0, 0, 0, 26), -1);
	end();
}
END_TEST

START_TEST(K_ledger_with_durable_written_and_published_are_promises)
{
	begin_ledger(true);
	write_record(LOG, 0, 1, 0);
	tell(&(struct powercut_event){ .kind = POWERCUT_PUBLISH, .position = 1 }, NULL, 0);
	ck_assert_int_eq(ledger_published_end(ledger), 1);
	ck_assert_int_eq(ledger_durable_end(ledger), 0);
	tell(&(struct powercut_event){ .kind = POWERCUT_DURABLE, .position = 1 }, NULL, 0);
	ck_assert_int_eq(ledger_durable_end(ledger), 1);
	ck_assert_int_eq(send_answer(1, 0, 0, 26), 0);
	ck_assert_int_eq(ledger_forced_end(ledger), 1);
	end();
}
END_TEST

START_TEST(K_ledger_a_record_stands_behind_the_one_it_was_appended_behind)
{
	uint8_t first[LEDGER_PAYLOAD_MAX + 8], second[LEDGER_PAYLOAD_MAX + 8];
	size_t first_size = encode(2, 0, first), second_size = encode(2, 1, second);
	int64_t end_of_first;

	begin_ledger(false);
	/* A batch that is refused, and cut off again; another one takes its place. */
	end_of_first = write_record(LOG, 0, 2, 0);
	write_record(LOG, end_of_first, 2, 1);
	resize(LOG, 0);
	write_record(LOG, 0, 0, 0);
	ck_assert_int_ge(ledger_find(ledger, 0, -1, first, first_size), 0);
	ck_assert_int_ge(ledger_find(ledger, 1, ledger_find(ledger, 0, -1, first, first_size), second, second_size), 0);
	ck_assert_int_eq(ledger_find(ledger, 1, ledger_at(ledger, 0), second, second_size), -1);
	end();
}
END_TEST

START_TEST(K_ledger_what_is_retired_is_told_by_names)
{
	begin_ledger(false);
	write_record(LOG, 0, 0, 0);
	create(DATA, "00000000000000000001.log.tmp", OTHER);
	rename_to(DATA, "00000000000000000001.log.tmp", "00000000000000000001.log");
	ck_assert_int_eq(ledger_start(ledger), 0);
	unlink_name(DATA, SEGMENT);
	ck_assert_int_eq(ledger_start(ledger), 1);
	end();
}
END_TEST

/* ---- the recorder ---- */

static int events_seen;

static void
count_event(const void *event, size_t bytes)
{
	(void)event;
	(void)bytes;
	events_seen++;
}

static int
begin_recorder(char *path)
{
	int fd;

	events_seen = 0;
	ck_assert_ptr_nonnull(mkdtemp(path));
	recorder_begin(path, NULL, NULL, count_event);
	fd = open(path, O_RDONLY | O_DIRECTORY);
	ck_assert_int_ne(fd, -1);
	return fd;
}

START_TEST(K_recorder_tells_of_what_lies_below_its_root_alone)
{
	char path[64] = "/tmp/recorder-XXXXXX";
	int dir_fd = begin_recorder(path), other_fd = open("/tmp", O_RDONLY | O_DIRECTORY), fd;

	fd = recorder_openat(dir_fd, "a", O_RDWR | O_CREAT, 0600);
	ck_assert_int_eq(recorder_pwrite(fd, "x", 1, 0), 1);
	ck_assert_int_eq(recorder_fdatasync(fd), 0);
	ck_assert_int_eq(events_seen, 5);
	ck_assert_int_eq(recorder_fsync(other_fd), 0);
	ck_assert_int_eq(recorder_renameat(dir_fd, "a", dir_fd, "b"), 0);
	ck_assert_int_eq(recorder_unlinkat(dir_fd, "b", 0), 0);
	ck_assert_int_eq(events_seen, 7);
	close(fd);
	close(other_fd);
	close(dir_fd);
	rmdir(path);
}
END_TEST

/* How does a process end that does it? */
static int
end_of(void (*does)(int fd), int fd)
{
	int status;
	pid_t child = fork();

	ck_assert_int_ne(child, -1);
	if (child == 0) {
		does(fd);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void
read_mapped(int fd)
{
	recorder_mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
}

/* Stores to it would go by no table. */
static void
write_mapped(int fd)
{
	recorder_mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static void
collapse(int fd)
{
	recorder_fallocate(fd, FALLOC_FL_COLLAPSE_RANGE, 0, 4096);
}

START_TEST(K_recorder_does_not_pass_over_what_it_cannot_tell)
{
	char path[64] = "/tmp/recorder-XXXXXX";
	int dir_fd = begin_recorder(path), fd;

	fd = recorder_openat(dir_fd, "a", O_RDWR | O_CREAT, 0600);
	ck_assert_int_eq(end_of(read_mapped, fd), 0);
	ck_assert_int_eq(end_of(write_mapped, fd), SIGABRT);
	ck_assert_int_eq(end_of(collapse, fd), SIGABRT);
	close(fd);
	unlinkat(dir_fd, "a", 0);
	close(dir_fd);
	rmdir(path);
}
END_TEST

static Suite *
model_suite(void)
{
	Suite *suite = suite_create("power cut model");
	TCase *files = tcase_create("model"), *rest = tcase_create("ledger and recorder");

	tcase_add_checked_fixture(files, begin, end);
	tcase_add_test(files, K_model_the_force_of_a_file_does_not_make_its_name_durable);
	tcase_add_test(files, K_model_the_force_of_a_directory_does_not_make_bytes_durable);
	tcase_add_test(files, K_model_a_force_covers_what_stood_ahead_of_its_begin);
	tcase_add_test(files, K_model_forces_of_two_threads_are_two);
	tcase_add_test(files, K_model_after_a_force_that_failed_no_other_one_helps);
	tcase_add_test(files, K_model_a_directory_needs_its_own_name);
	tcase_add_test(files, K_model_a_rename_is_one_change);
	tcase_add_test(files, K_model_a_rename_replaces);
	tcase_add_test(files, K_model_what_is_unlinked_comes_back);
	tcase_add_test(files, K_model_strict_and_ordered_names);
	tcase_add_test(files, K_model_sizes_without_data_and_data_without_sizes);
	tcase_add_test(files, K_model_a_block_is_lost_alone);
	tcase_add_test(files, K_model_a_cut_is_lost_like_anything);
	tcase_add_test(files, K_model_what_was_cut_off_is_there_again_behind_what_came_in_its_place);
	tcase_add_test(files, K_model_garbage_stands_only_in_blocks_that_were_never_written);
	tcase_add_test(files, K_model_what_was_cut_off_has_no_blocks_any_more);
	tcase_add_test(files, K_model_a_store_is_cut_at_any_eight_bytes);
	tcase_add_test(files, K_model_all_subsets_of_a_few_units);
	tcase_add_test(files, K_model_what_cannot_be_is_told);
	tcase_add_test(files, K_model_an_image_stands_on_the_disk_as_it_is);
	suite_add_tcase(suite, files);
	tcase_add_test(rest, K_ledger_an_answer_promises_as_soon_as_it_may_leave);
	tcase_add_test(rest, K_ledger_what_is_answered_must_have_been_written);
	tcase_add_test(rest, K_ledger_with_durable_written_and_published_are_promises);
	tcase_add_test(rest, K_ledger_a_record_stands_behind_the_one_it_was_appended_behind);
	tcase_add_test(rest, K_ledger_what_is_retired_is_told_by_names);
	tcase_add_test(rest, K_recorder_tells_of_what_lies_below_its_root_alone);
	tcase_add_test(rest, K_recorder_does_not_pass_over_what_it_cannot_tell);
	suite_add_tcase(suite, rest);
	return suite;
}

int
main(void)
{
	return unit_run(model_suite());
}
