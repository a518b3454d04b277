/* Reading a partition's directory. */
#include "worker/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "worker/index_file.h"
#include "worker/sealed_list.h"
#include "worker/syscalls.h"

/* Is it ".cut" or ".cut.N"? */
static bool
is_cut(const char *suffix)
{
	if (strncmp(suffix, ".cut", 4) != 0)
		return false;
	suffix += 4;
	if (*suffix == '\0')
		return true;
	return *suffix == '.' && suffix[1] != '\0' && suffix[1 + strspn(suffix + 1, "0123456789")] == '\0';
}

void
listing_report_foreign(const char *directory, const char *entry, const char *why)
{
	log_warning("%s/%s does not belong to this log (%s): it is ignored and left alone; move it elsewhere",
	    directory, entry, why);
}

/* Makes room for one more in an array. Returns 0, or -1 with errno ENOMEM. */
static int
reserve(void **array, size_t *capacity, size_t count, size_t size)
{
	size_t wanted = *capacity == 0 ? 16 : *capacity * 2;
	void *grown;

	if (count < *capacity)
		return 0;
	grown = realloc(*array, wanted * size);
	if (grown == NULL)
		return -1;
	*array = grown;
	*capacity = wanted;
	return 0;
}

/* Of a file's last change, by the wall clock. What a file system may say of the far future stays a number. */
static int64_t
modified_ms(const struct stat *st)
{
	int64_t ms;

	if (__builtin_mul_overflow((int64_t)st->st_mtim.tv_sec, 1000, &ms))
		return st->st_mtim.tv_sec < 0 ? 0 : INT64_MAX;
	return ms + st->st_mtim.tv_nsec / 1000000;
}

static int
add_segment(struct listing *listing, int64_t base, const struct stat *st)
{
	void *array = listing->segments;

	if (reserve(&array, &listing->capacity, listing->count, sizeof(*listing->segments)) == -1)
		return -1;
	listing->segments = array;
	listing->segments[listing->count++] = (struct listing_segment){ .base = base, .bytes = st->st_size,
		.last_append_ms = modified_ms(st) };
	return 0;
}

static int
add_leftover(struct listing *listing, const char *name)
{
	void *array = listing->leftovers;

	if (reserve(&array, &listing->leftover_capacity, listing->leftover_count, sizeof(*listing->leftovers)) == -1)
		return -1;
	listing->leftovers = array;
	strcpy(listing->leftovers[listing->leftover_count++], name);
	return 0;
}

static int
add_index(struct listing *listing, int64_t base)
{
	void *array = listing->indexes;

	if (reserve(&array, &listing->index_capacity, listing->index_count, sizeof(*listing->indexes)) == -1)
		return -1;
	listing->indexes = array;
	listing->indexes[listing->index_count++] = base;
	return 0;
}

/* Who hears of what is no segment. */
struct listener {
	listing_note *note;
	void *with;
};

/* Ours, and of no use to anybody. Returns 0, or -1 with errno. */
static int
find_leftover(struct listing *listing, const struct listener *listener, const char *name)
{
	listener->note(listener->with, LISTING_LEFTOVER, name, NULL);
	return add_leftover(listing, name);
}

static bool
is_temporary(const char *name, const char *suffix)
{
	return strcmp(suffix, ".log.tmp") == 0 || strcmp(suffix, ".index.tmp") == 0 || strcmp(suffix, ".cut.tmp") == 0
	    || strcmp(name, SEALED_LIST_TEMPORARY_NAME) == 0;
}

/* One entry of the directory. Returns 0, or -1 with errno. */
static int
add_entry(struct listing *listing, int dir_fd, const struct listener *listener, const struct dirent *entry)
{
	const char *name = entry->d_name;
	int64_t base = segment_parse_base(name);
	const char *suffix = base == -1 ? "" : name + SEGMENT_BASE_DIGITS;
	bool index = strcmp(suffix, ".index") == 0;
	struct stat st;

	/* There are as many of these as of segments, and nothing is asked about them. */
	if (index && entry->d_type == DT_REG)
		return add_index(listing, base);
	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == -1)
		return errno == ENOENT ? 0 : -1;
	if (!S_ISREG(st.st_mode)) {
		listener->note(listener->with, LISTING_FOREIGN, name, "not a regular file");
	} else if (strcmp(suffix, ".log") == 0) {
		return add_segment(listing, base, &st);
	} else if (index) {
		return add_index(listing, base);
	} else if (strcmp(name, SEALED_LIST_NAME) == 0) {
		listing->has_list = true;
	} else if (is_temporary(name, suffix)) {
		return find_leftover(listing, listener, name);
	} else if (is_cut(suffix)) {
		listener->note(listener->with, LISTING_CUT, name, NULL);
	} else {
		listener->note(listener->with, LISTING_FOREIGN, name, "no segment has such a name");
	}
	return 0;
}

static int
by_base(const void *a, const void *b)
{
	const struct listing_segment *left = a;
	const struct listing_segment *right = b;

	return left->base < right->base ? -1 : left->base > right->base;
}

static int
by_number(const void *a, const void *b)
{
	const int64_t *left = a;
	const int64_t *right = b;

	return *left < *right ? -1 : *left > *right;
}

static int
read_entries(struct listing *listing, DIR *dir, const struct listener *listener)
{
	for (;;) {
		struct dirent *entry;

		errno = 0;
		entry = readdir(dir);
		if (entry == NULL)
			return errno == 0 ? 0 : -1;
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (add_entry(listing, dirfd(dir), listener, entry) == -1)
			return -1;
	}
}

/* Tells each segment whether it has an index; an index without a segment is a left-over. Returns 0, or -1 with errno. */
static int
match_indexes(struct listing *listing, const struct listener *listener)
{
	size_t at = 0;

	for (size_t i = 0; i < listing->index_count; i++) {
		char name[SEGMENT_NAME_BYTES];

		while (at < listing->count && listing->segments[at].base < listing->indexes[i])
			at++;
		if (at < listing->count && listing->segments[at].base == listing->indexes[i]) {
			listing->segments[at].indexed = true;
			continue;
		}
		index_file_name(name, listing->indexes[i]);
		if (find_leftover(listing, listener, name) == -1)
			return -1;
	}
	return 0;
}

static int
read_and_sort(struct listing *listing, DIR *dir, const struct listener *listener)
{
	if (read_entries(listing, dir, listener) == -1)
		return -1;
	if (listing->count > 0)
		qsort(listing->segments, listing->count, sizeof(*listing->segments), by_base);
	if (listing->index_count > 0)
		qsort(listing->indexes, listing->index_count, sizeof(*listing->indexes), by_number);
	return match_indexes(listing, listener);
}

int
listing_read_noting(struct listing *listing, int dir_fd, listing_note *note, void *with)
{
	const struct listener listener = { note, with };
	/* A descriptor of its own: reading moves the place in the directory. */
	int fd = syscalls.open(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	DIR *dir;
	int error;

	*listing = (struct listing){ 0 };
	if (fd == -1)
		return -1;
	dir = fdopendir(fd);
	if (dir == NULL) {
		error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	error = read_and_sort(listing, dir, &listener) == -1 ? errno : 0;
	closedir(dir);
	if (error != 0) {
		listing_free(listing);
		errno = error;
		return -1;
	}
	return 0;
}

static void
log_foreign(void *with, enum listing_kind kind, const char *entry, const char *why)
{
	if (kind == LISTING_FOREIGN)
		listing_report_foreign(with, entry, why);
}

int
listing_read(struct listing *listing, int dir_fd, const char *name)
{
	return listing_read_noting(listing, dir_fd, log_foreign, (void *)(uintptr_t)name);
}

void
listing_free(struct listing *listing)
{
	free(listing->segments);
	free(listing->leftovers);
	free(listing->indexes);
	*listing = (struct listing){ 0 };
}

int
listing_add(struct listing *listing, int64_t base)
{
	const struct stat nothing = { 0 };

	return add_segment(listing, base, &nothing);
}

void
listing_remove(struct listing *listing, size_t at)
{
	listing->count--;
	memmove(&listing->segments[at], &listing->segments[at + 1],
	    (listing->count - at) * sizeof(*listing->segments));
}
