/* See powercut_model.h. */
#include "tests/powercut_model.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SECTOR_BYTES = 512, PAGE_BYTES = 4096, PATH_BYTES = 1024 };

struct content {
	uint8_t *bytes;		/* zeros from size to capacity */
	int64_t size;
	int64_t capacity;
};

enum change_kind { CHANGE_BYTES, CHANGE_SIZE, CHANGE_ADD, CHANGE_REMOVE, CHANGE_RENAME };

struct change {
	uint32_t event;
	enum change_kind kind;
	bool stored;
	int64_t from, to;	/* bytes, of a size those that are cut off */
	const uint8_t *data;	/* NULL: zeros */
	int64_t size;		/* that the file has got by it; -1: as it was */
	uint32_t file;		/* of a name */
	const char *name, *to_name;
};

struct name {
	char name[POWERCUT_NAME_BYTES];
	uint32_t file;
};

struct names {
	struct name *list;
	size_t count, capacity;
};

struct file {
	uint64_t inode;
	bool directory;
	char name[POWERCUT_NAME_BYTES];	/* the last one that it was given */
	struct content durable, applied;
	uint8_t *on_disk;		/* for each sector of durable's capacity: has it ever been written? */
	struct names durable_names, applied_names;
	struct change *changes;		/* since the last force */
	size_t change_count, change_capacity;
	uint64_t hash;			/* of durable */
	bool hashed;
	size_t first_unit, unit_count;
};

/* A force that has begun and not ended. */
struct force {
	int32_t process, thread;
	uint32_t file;
	uint32_t event;
};

struct model {
	struct file *files;
	size_t file_count, file_capacity;
	struct force *forces;
	size_t force_count, force_capacity;
	struct model_unit *units;
	size_t unit_count, unit_capacity;
	uint32_t events;
	uint64_t seed;
};

/* ---- contents ---- */

static void
content_reserve(struct content *content, int64_t capacity)
{
	if (capacity <= content->capacity)
		return;
	capacity = (capacity + 4095) / 4096 * 4096;
	content->bytes = realloc(content->bytes, (size_t)capacity);
	ck_assert_ptr_nonnull(content->bytes);
	memset(content->bytes + content->capacity, 0, (size_t)(capacity - content->capacity));
	content->capacity = capacity;
}

static void
content_write(struct content *content, int64_t from, int64_t to, const uint8_t *data)
{
	content_reserve(content, to);
	if (data != NULL)
		memcpy(content->bytes + from, data, (size_t)(to - from));
	else
		memset(content->bytes + from, 0, (size_t)(to - from));
}

static void
content_resize(struct content *content, int64_t size)
{
	content_reserve(content, size);
	if (size < content->size)
		memset(content->bytes + size, 0, (size_t)(content->size - size));
	content->size = size;
}

/* The change as a whole. */
static void
content_change(struct content *content, const struct change *change)
{
	if (change->kind == CHANGE_SIZE)
		content_resize(content, change->size);
	if (change->kind != CHANGE_BYTES)
		return;
	content_write(content, change->from, change->to, change->data);
	if (change->size > content->size)
		content->size = change->size;
}

/* ---- names ---- */

static struct name *
names_find(const struct names *names, const char *name)
{
	for (size_t i = 0; i < names->count; i++)
		if (strcmp(names->list[i].name, name) == 0)
			return &names->list[i];
	return NULL;
}

static void
names_put(struct names *names, const char *name, uint32_t file)
{
	struct name *found = names_find(names, name);

	if (found == NULL) {
		names->list = image_grown(names->list, names->count, &names->capacity, sizeof(*names->list));
		found = &names->list[names->count++];
		memset(found->name, 0, sizeof(found->name));
		strcpy(found->name, name);
	}
	found->file = file;
}

/* That name, if it is that file's. */
static void
names_remove(struct names *names, const char *name, uint32_t file)
{
	struct name *found = names_find(names, name);

	if (found != NULL && found->file == file)
		*found = names->list[--names->count];
}

static void
names_change(struct names *names, const struct change *change)
{
	if (change->kind != CHANGE_ADD)
		names_remove(names, change->name, change->file);
	if (change->kind == CHANGE_ADD)
		names_put(names, change->name, change->file);
	if (change->kind == CHANGE_RENAME)
		names_put(names, change->to_name, change->file);
}

static void
names_copy(struct names *to, const struct names *from)
{
	to->count = 0;
	for (size_t i = 0; i < from->count; i++)
		names_put(to, from->list[i].name, from->list[i].file);
}

/* ---- files ---- */

static int
find_inode(const struct model *model, uint64_t inode)
{
	for (size_t i = model->file_count; i-- > 0;)
		if (model->files[i].inode == inode)
			return (int)i;
	return -1;
}

static uint32_t
add_file(struct model *model, uint64_t inode, bool directory, const char *name)
{
	struct file *file;

	model->files = image_grown(model->files, model->file_count, &model->file_capacity, sizeof(*model->files));
	file = &model->files[model->file_count];
	memset(file, 0, sizeof(*file));
	file->inode = inode;
	file->directory = directory;
	strncpy(file->name, name, sizeof(file->name) - 1);
	return (uint32_t)model->file_count++;
}

static void
free_file(struct file *file)
{
	free(file->durable.bytes);
	free(file->applied.bytes);
	free(file->on_disk);
	free(file->durable_names.list);
	free(file->applied_names.list);
	free(file->changes);
}

struct model *
model_new(uint64_t seed)
{
	struct model *model = calloc(1, sizeof(*model));

	ck_assert_ptr_nonnull(model);
	model->seed = seed;
	return model;
}

void
model_free(struct model *model)
{
	for (size_t i = 0; i < model->file_count; i++)
		free_file(&model->files[i]);
	free(model->files);
	free(model->forces);
	free(model->units);
	free(model);
}

/* ---- events ---- */

static void
add_change(struct model *model, uint32_t file, struct change change)
{
	struct file *f = &model->files[file];

	change.event = model->events;
	f->changes = image_grown(f->changes, f->change_count, &f->change_capacity, sizeof(*f->changes));
	f->changes[f->change_count++] = change;
	if (f->directory)
		names_change(&f->applied_names, &change);
	else
		content_change(&f->applied, &change);
}

static int
apply_create(struct model *model, const struct powercut_event *event, int directory)
{
	const char *name = (const char *)event->data;
	uint32_t file;

	if (directory == -1)
		return -1;
	file = add_file(model, event->file, event->kind == POWERCUT_DIRECTORY, name);
	add_change(model, (uint32_t)directory, (struct change){ .kind = CHANGE_ADD, .file = file, .name = name });
	return 0;
}

static int
apply_name(struct model *model, const struct powercut_event *event, int directory)
{
	const char *name = (const char *)event->data;
	struct change change = { .kind = CHANGE_REMOVE, .name = name };
	const struct name *found = directory == -1 ? NULL : names_find(&model->files[directory].applied_names, name);

	if (found == NULL)
		return -1;
	change.file = found->file;
	if (event->kind == POWERCUT_RENAME) {
		change.kind = CHANGE_RENAME;
		change.to_name = name + strlen(name) + 1;
		strncpy(model->files[change.file].name, change.to_name, POWERCUT_NAME_BYTES - 1);
	}
	add_change(model, (uint32_t)directory, change);
	return 0;
}

static int
apply_bytes(struct model *model, const struct powercut_event *event, int file)
{
	bool zero = event->kind == POWERCUT_ZERO;
	struct change change = { .kind = CHANGE_BYTES, .stored = event->kind == POWERCUT_STORE, .size = -1,
		.from = event->position, .to = event->position + (zero ? event->count : (int64_t)event->bytes),
		.data = zero ? NULL : event->data };
	int64_t size;

	if (file == -1 || model->files[file].directory)
		return -1;
	size = model->files[file].applied.size;
	/* A hole is made, and a store goes, where the file is. */
	if (change.to > size && event->kind == POWERCUT_STORE)
		return -1;
	if (change.to > size && zero)
		change.to = size > change.from ? size : change.from;
	if (change.to > size)
		change.size = change.to;
	if (change.to > change.from)
		add_change(model, (uint32_t)file, change);
	return 0;
}

/* What is cut off within a page goes from that page in memory, which is written as it stands there, whatever the size. */
static int
apply_size(struct model *model, const struct powercut_event *event, int file)
{
	struct change change = { .kind = CHANGE_SIZE, .size = event->position, .from = event->position,
		.to = (event->position + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES };
	int64_t size;

	if (file == -1 || model->files[file].directory)
		return -1;
	size = model->files[file].applied.size;
	if (change.to > size)
		change.to = size > change.from ? size : change.from;
	if (change.size != size)
		add_change(model, (uint32_t)file, change);
	return 0;
}

static int
apply_force(struct model *model, const struct powercut_event *event, int file)
{
	if (file == -1)
		return -1;
	model->forces = image_grown(model->forces, model->force_count, &model->force_capacity, sizeof(*model->forces));
	model->forces[model->force_count++] = (struct force){ event->process, event->thread, (uint32_t)file, model->events };
	return 0;
}

/* Its bytes are on the disk from now on; and room for what is there is remembered. What lies behind a size has no blocks. */
static void
put_on_disk(struct file *file, const struct change *change)
{
	size_t before = (size_t)file->durable.capacity / SECTOR_BYTES, sectors;

	content_change(&file->durable, change);
	sectors = (size_t)file->durable.capacity / SECTOR_BYTES;
	if (sectors > before) {
		file->on_disk = realloc(file->on_disk, sectors);
		ck_assert_ptr_nonnull(file->on_disk);
		memset(file->on_disk + before, 0, sectors - before);
	}
	for (int64_t at = change->from / SECTOR_BYTES; change->kind == CHANGE_BYTES && at * SECTOR_BYTES < change->to; at++)
		file->on_disk[at] = 1;
	if (change->kind != CHANGE_SIZE)
		return;
	for (size_t at = (size_t)(change->size + PAGE_BYTES - 1) / PAGE_BYTES * (PAGE_BYTES / SECTOR_BYTES); at < sectors; at++)
		file->on_disk[at] = 0;
}

/* What of a file or directory was changed ahead of that event is durable. */
static void
make_durable(struct file *file, uint32_t before)
{
	size_t done = 0;

	for (; done < file->change_count && file->changes[done].event < before; done++) {
		if (file->directory)
			names_change(&file->durable_names, &file->changes[done]);
		else
			put_on_disk(file, &file->changes[done]);
	}
	file->change_count -= done;
	if (done > 0 && file->change_count > 0)
		memmove(file->changes, file->changes + done, file->change_count * sizeof(*file->changes));
	file->hashed = false;
}

static uint64_t
scramble(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

/* The bytes go to the disk or are forgotten; what size they gave to the file is still to be seen. */
static void
settle_change(struct file *file, struct change *change, uint64_t seed)
{
	struct change part = *change;

	for (part.size = -1; change->kind == CHANGE_BYTES && part.from < change->to; part.from = part.to) {
		int64_t page = part.from / PAGE_BYTES + 1;
		uint64_t state = seed ^ (uint64_t)page * 0x9E3779B97F4A7C15u;

		part.to = page * PAGE_BYTES < change->to ? page * PAGE_BYTES : change->to;
		part.data = change->data == NULL ? NULL : change->data + (part.from - change->from);
		scramble(&state);
		if (scramble(&state) % 2 == 0)
			put_on_disk(file, &part);
	}
	if (change->kind == CHANGE_BYTES)
		change->to = change->from;
}

static void
make_unsure(struct file *file, uint32_t before, uint64_t seed)
{
	for (size_t i = 0; !file->directory && i < file->change_count && file->changes[i].event < before; i++)
		settle_change(file, &file->changes[i], seed ^ before);
	file->hashed = false;
}

/* A force ends, well or not. */
static int
apply_force_end(struct model *model, const struct powercut_event *event, int file)
{
	for (size_t i = model->force_count; i-- > 0;) {
		const struct force *force = &model->forces[i];

		if (force->process != event->process || force->thread != event->thread || (int)force->file != file)
			continue;
		if (event->kind == POWERCUT_FORCED)
			make_durable(&model->files[file], force->event);
		else
			make_unsure(&model->files[file], force->event, model->seed);
		model->forces[i] = model->forces[--model->force_count];
		return 0;
	}
	return -1;
}

int
model_apply(struct model *model, const struct powercut_event *event)
{
	int file = find_inode(model, event->file), directory = find_inode(model, event->directory), done = 0;

	switch (event->kind) {
	case POWERCUT_START:
		if (file == -1)
			add_file(model, event->file, true, "");
		break;
	case POWERCUT_CREATE:
	case POWERCUT_DIRECTORY:
		done = apply_create(model, event, directory);
		break;
	case POWERCUT_RENAME:
	case POWERCUT_UNLINK:
		done = apply_name(model, event, directory);
		break;
	case POWERCUT_WRITE:
	case POWERCUT_STORE:
	case POWERCUT_ZERO:
		done = apply_bytes(model, event, file);
		break;
	case POWERCUT_RESIZE:
		done = apply_size(model, event, file);
		break;
	case POWERCUT_FORCE:
		done = apply_force(model, event, file);
		break;
	case POWERCUT_FORCED:
	case POWERCUT_UNFORCED:
		done = apply_force_end(model, event, file);
		break;
	default:
		break;
	}
	model->events++;
	return done;
}

/* ---- a disk as it was found ---- */

static uint32_t
take_entry(struct model *model, const char *root, const struct image_entry *entry)
{
	char path[PATH_BYTES];
	const char *slash = strrchr(entry->path, '/');
	uint32_t file;
	struct stat st;

	snprintf(path, sizeof(path), "%.600s/%s", root, entry->path);
	ck_assert_int_eq(stat(path, &st), 0);
	file = add_file(model, st.st_ino, entry->directory, slash == NULL ? entry->path : slash + 1);
	if (!entry->directory && entry->size > 0) {
		struct change whole = { .kind = CHANGE_BYTES, .to = entry->size, .size = entry->size, .data = entry->bytes };

		add_change(model, file, whole);
		make_durable(&model->files[file], model->events + 1);
	}
	return file;
}

struct model *
model_of_image(const struct image *image, const char *root)
{
	struct model *model = model_new(0);
	struct stat st;

	ck_assert_int_eq(stat(root, &st), 0);
	add_file(model, st.st_ino, true, "");
	for (size_t i = 0; i < image->count; i++) {
		const struct image_entry *entry = &image->entries[i];
		const char *slash = strrchr(entry->path, '/');
		char above[IMAGE_PATH_BYTES];
		uint32_t file = take_entry(model, root, entry);
		struct file *directory;

		snprintf(above, sizeof(above), "%.*s", slash == NULL ? 0 : (int)(slash - entry->path), entry->path);
		directory = &model->files[model_find(model, above)];
		names_put(&directory->applied_names, model->files[file].name, file);
		names_put(&directory->durable_names, model->files[file].name, file);
	}
	return model;
}

/* ---- units ---- */

static void
add_unit(struct model *model, struct model_unit unit)
{
	model->units = image_grown(model->units, model->unit_count, &model->unit_capacity, sizeof(*model->units));
	model->units[model->unit_count++] = unit;
}

static void
add_units_of(struct model *model, struct model_unit unit, const struct change *change, int64_t block_bytes)
{
	unit.event = change->event;
	unit.stored = change->stored;
	unit.resized = change->kind == CHANGE_SIZE;
	unit.kind = MODEL_BYTES;
	for (int64_t from = change->from; from < change->to; from = unit.to) {
		unit.from = from;
		unit.to = (from / block_bytes + 1) * block_bytes;
		if (unit.to > change->to)
			unit.to = change->to;
		add_unit(model, unit);
	}
	unit.from = unit.to = 0;
	unit.kind = change->kind >= CHANGE_ADD ? MODEL_NAME : MODEL_SIZE;
	if (change->kind != CHANGE_BYTES || change->size != -1)
		add_unit(model, unit);
}

size_t
model_units(struct model *model, int64_t block_bytes, const struct model_unit **units)
{
	model->unit_count = 0;
	for (size_t i = 0; i < model->file_count; i++) {
		struct file *file = &model->files[i];

		file->first_unit = model->unit_count;
		for (size_t k = 0; k < file->change_count; k++)
			add_units_of(model, (struct model_unit){ .file = (uint32_t)i, .change = (uint32_t)k },
			    &file->changes[k], block_bytes);
		file->unit_count = model->unit_count - file->first_unit;
	}
	*units = model->units;
	return model->unit_count;
}

/* ---- images ---- */

/* Any of the unit's words of 8 bytes. */
static void
write_torn(struct content *content, const struct model_unit *unit, const uint8_t *data, uint64_t *seed)
{
	for (int64_t from = unit->from, to; from < unit->to; from = to) {
		to = (from / 8 + 1) * 8;
		if (to > unit->to)
			to = unit->to;
		if (scramble(seed) % 2 == 0)
			content_write(content, from, to, data == NULL ? NULL : data + (from - unit->from));
	}
}

/* A block that has never been on the disk, nor has come to it by what was kept so far. */
static bool
is_unwritten(const struct file *file, const uint8_t *touched, int64_t position)
{
	int64_t sector = position / SECTOR_BYTES;

	return touched[sector] == 0 && (position >= file->durable.capacity || file->on_disk[sector] == 0);
}

/*
 * Any bytes; or small numbers of four, which lengths of records could be. Not in a file whose front is not on the disk: there
 * they are a log in the format without sums, and the product is right to say so.
 */
static void
fill_garbage(const struct file *file, const struct model_unit *unit, uint64_t *seed, struct content *content)
{
	bool numbers = file->durable.capacity > 0 && file->on_disk[0] != 0 && scramble(seed) % 2 == 0;

	for (int64_t at = unit->from; at < unit->to; at++)
		content->bytes[at] = numbers && at % 4 != 3 ? 0 : (uint8_t)scramble(seed);
}

static void
build_bytes(const struct file *file, const struct model_unit *unit, enum model_fate fate, bool garbage, uint64_t *seed,
    struct content *content, uint8_t *touched)
{
	const struct change *change = &file->changes[unit->change];
	const uint8_t *data = change->data == NULL ? NULL : change->data + (unit->from - change->from);

	if (fate == MODEL_KEPT)
		content_write(content, unit->from, unit->to, data);
	else if (fate == MODEL_TORN)
		write_torn(content, unit, data, seed);
	else if (garbage && is_unwritten(file, touched, unit->from))
		fill_garbage(file, unit, seed, content);
	if (fate != MODEL_LOST)
		touched[unit->from / SECTOR_BYTES] = 1;
}

/* Its largest size, ever since the last force. */
static int64_t
reach(const struct file *file)
{
	int64_t bytes = file->durable.size;

	for (size_t i = 0; i < file->change_count; i++) {
		bytes = file->changes[i].to > bytes ? file->changes[i].to : bytes;
		bytes = file->changes[i].size > bytes ? file->changes[i].size : bytes;
	}
	return bytes;
}

/* A size that is lost leaves the one before it, whatever has been written behind that. */
static struct content
build_content(const struct model *model, const struct file *file, const uint8_t *fates, bool garbage, uint64_t seed)
{
	struct content content = { 0 };
	int64_t bytes = reach(file), there = bytes < file->durable.capacity ? bytes : file->durable.capacity;
	uint8_t *touched = calloc(1, (size_t)(bytes / SECTOR_BYTES) + 1);

	ck_assert_ptr_nonnull(touched);
	content_reserve(&content, bytes);
	if (there > 0)
		memcpy(content.bytes, file->durable.bytes, (size_t)there);
	content.size = file->durable.size;
	for (size_t i = file->first_unit; i < file->first_unit + file->unit_count; i++) {
		const struct model_unit *unit = &model->units[i];
		const struct change *change = &file->changes[unit->change];

		if (unit->kind == MODEL_BYTES)
			build_bytes(file, unit, fates[i], garbage, &seed, &content, touched);
		else if (fates[i] != MODEL_LOST && change->kind == CHANGE_SIZE && change->size < content.size)
			memset(content.bytes + change->size, 0, (size_t)(bytes - change->size));
		if (unit->kind == MODEL_SIZE && fates[i] != MODEL_LOST
		    && (change->kind == CHANGE_SIZE || change->size > content.size))
			content.size = change->size;
	}
	free(touched);
	return content;
}

static void
put_durable(struct file *file, struct image_entry *entry)
{
	if (!file->hashed)
		file->hash = image_hash_bytes(file->durable.bytes, (size_t)file->durable.size);
	file->hashed = true;
	entry->bytes = file->durable.bytes;
	entry->size = file->durable.size;
	entry->hash = file->hash;
}

static void
put_built(const struct model *model, const struct file *file, const uint8_t *fates, bool garbage, uint64_t seed,
    struct image_entry *entry)
{
	struct content content = build_content(model, file, fates, garbage, seed ^ file->inode);

	entry->bytes = content.bytes;
	entry->owned = true;
	entry->size = content.size;
	entry->hash = image_hash_bytes(content.bytes, (size_t)content.size);
}

static void put_directory(struct model *model, const struct file *directory, const char *path, const uint8_t *fates,
    bool garbage, uint64_t seed, struct image *image);

static void
put_file(struct model *model, const char *above, const struct name *name, const uint8_t *fates, bool garbage, uint64_t seed,
    struct image *image)
{
	struct file *file = &model->files[name->file];
	struct image_entry *entry;
	char path[IMAGE_PATH_BYTES];

	snprintf(path, sizeof(path), "%s%s%.40s", above, above[0] == '\0' ? "" : "/", name->name);
	entry = image_add(image, path);
	entry->directory = file->directory;
	if (file->directory)
		put_directory(model, file, path, fates, garbage, seed, image);
	else if (file->change_count == 0)
		put_durable(file, entry);
	else
		put_built(model, file, fates, garbage, seed, entry);
}

static void
put_directory(struct model *model, const struct file *directory, const char *path, const uint8_t *fates, bool garbage,
    uint64_t seed, struct image *image)
{
	struct names names = { 0 };

	names_copy(&names, &directory->durable_names);
	for (size_t i = directory->first_unit; i < directory->first_unit + directory->unit_count; i++)
		if (fates[i] != MODEL_LOST)
			names_change(&names, &directory->changes[model->units[i].change]);
	for (size_t i = 0; i < names.count; i++)
		put_file(model, path, &names.list[i], fates, garbage, seed, image);
	free(names.list);
}

void
model_image(struct model *model, const uint8_t *fates, uint64_t seed, bool garbage, struct image *image)
{
	image_clear(image);
	if (model->file_count > 0)
		put_directory(model, &model->files[0], "", fates, garbage, seed, image);
}

static void
put_applied(const struct model *model, const struct file *directory, const char *above, struct image *image)
{
	for (size_t i = 0; i < directory->applied_names.count; i++) {
		const struct name *name = &directory->applied_names.list[i];
		const struct file *file = &model->files[name->file];
		struct image_entry *entry;
		char path[IMAGE_PATH_BYTES];

		snprintf(path, sizeof(path), "%s%s%.40s", above, above[0] == '\0' ? "" : "/", name->name);
		entry = image_add(image, path);
		entry->directory = file->directory;
		entry->bytes = file->applied.bytes;
		entry->size = file->applied.size;
		if (file->directory)
			put_applied(model, file, path, image);
	}
}

void
model_image_applied(const struct model *model, struct image *image)
{
	image_clear(image);
	if (model->file_count > 0)
		put_applied(model, &model->files[0], "", image);
}

/* ---- as processes see it ---- */

int
model_find(const struct model *model, const char *path)
{
	const struct name *found;
	char name[POWERCUT_NAME_BYTES];
	uint32_t file = 0;
	size_t length;

	for (; *path != '\0'; path += length + (path[length] == '/')) {
		length = strcspn(path, "/");
		snprintf(name, sizeof(name), "%.*s", (int)length, path);
		found = names_find(&model->files[file].applied_names, name);
		if (found == NULL)
			return -1;
		file = found->file;
	}
	return (int)file;
}

int
model_file_of(const struct model *model, const struct powercut_event *event)
{
	return find_inode(model, event->file);
}

const char *
model_file_name(const struct model *model, int file)
{
	return model->files[file].name;
}

const uint8_t *
model_bytes(const struct model *model, int file, int64_t *size)
{
	*size = model->files[file].applied.size;
	return model->files[file].applied.bytes;
}

void
model_names(const struct model *model, int directory, void (*visit)(const char *name, void *context), void *context)
{
	const struct names *names = &model->files[directory].applied_names;

	for (size_t i = 0; i < names->count; i++)
		visit(names->list[i].name, context);
}
