/* See order_check.h. */
#include "tests/order_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BASE_DIGITS = 20 };

/* A file or directory below the data directory, or that itself, that the broker has made. */
struct file {
	char *path;
	long named_line;	/* where it got this name */
	bool named;		/* and that is forced */
	bool segment;		/* its records count: */
	int64_t base;
	size_t header;
	struct wire_bytes image;
	size_t *starts;		/* of the records */
	int64_t count;
	size_t end;		/* behind the last record */
	int64_t forced;		/* so many of them */
};

/* A file mapped for writing. */
struct map {
	int process;
	uint64_t from, to;
	uint64_t position;
	struct file *file;
};

struct request {
	int api, ack;
	int32_t id, partition;
	int32_t count;
	char topic[256];
	struct wire_bytes records;	/* as they came: length, payload, ... */
};

struct peer {
	char *socket;
	struct wire_bytes in, out;
	size_t in_position, out_position;
	struct request *requests;	/* that are owed an answer, from `first` on */
	size_t first, count;
};

/* A force that has begun. */
struct force {
	struct file *file;
	int64_t count;
	char directory[ORDER_PATH_BYTES];
};

struct check {
	const struct order_config *config;
	struct order_found *found;
	struct file **files;
	size_t file_count;
	struct map *maps;
	size_t map_count;
	struct peer *peers;
	size_t peer_count;
	struct force *forces;	/* by call */
	long line;
};

__attribute__((format(printf, 2, 3))) static void
wrong(struct check *check, const char *format, ...)
{
	struct order_found *found = check->found;
	va_list arguments;
	int n;

	if (found->wrong++ > 0)
		return;
	n = snprintf(found->why, sizeof(found->why), "line %ld of the trace: ", check->line);
	va_start(arguments, format);
	vsnprintf(found->why + n, sizeof(found->why) - (size_t)n, format, arguments);
	va_end(arguments);
}

/* Makes room for one more in an array whose size doubles. */
static void *
grow(void *array, size_t count, size_t size)
{
	if ((count & (count - 1)) != 0)
		return array;
	array = realloc(array, (count == 0 ? 1 : count * 2) * size);
	if (array == NULL)
		abort();
	return array;
}

/* ---- files and names ---- */

static const char *
base_name(const char *path)
{
	return strrchr(path, '/') + 1;
}

static bool
stands_in(const struct file *file, const char *directory)
{
	size_t length = strlen(directory);

	return strncmp(file->path, directory, length) == 0 && file->path[length] == '/' &&
	    strchr(file->path + length + 1, '/') == NULL;
}

static struct file *
find_file(const struct check *check, const char *path)
{
	for (size_t i = 0; i < check->file_count; i++)
		if (path[0] != '\0' && strcmp(check->files[i]->path, path) == 0)
			return check->files[i];
	return NULL;
}

static bool
is_ours(const struct check *check, const char *path)
{
	size_t length = strlen(check->config->data_dir);

	return strncmp(path, check->config->data_dir, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* The topic is the directory's name. */
static char
topic_letter(const char *path)
{
	const char *end = strrchr(path, '/');

	while (end > path && end[-1] != '/')
		end--;
	return *end;
}

static void
set_path(struct check *check, struct file *file, const char *path, long line)
{
	const char *name = base_name(path);

	free(file->path);
	file->path = strdup(path);
	file->named_line = line;
	file->named = false;
	file->segment = strlen(name) > BASE_DIGITS && strncmp(name + BASE_DIGITS, ".log", 4) == 0;
	file->base = strtoll(name, NULL, 10);
	file->header = file->segment && topic_letter(path) == check->config->plain ? 4 : 8;
}

/* Mappings and forces may still know it: it goes on without a name, and promises nothing. */
static void
remove_file(struct check *check, const char *path)
{
	struct file *file = find_file(check, path);

	if (file == NULL)
		return;
	file->path[0] = '\0';
	file->segment = false;
}

/* It got this name now, if it did not have it. */
static struct file *
make_file(struct check *check, const char *path)
{
	struct file *file = find_file(check, path);

	if (file != NULL || !is_ours(check, path))
		return file;
	file = calloc(1, sizeof(*file));
	if (file == NULL)
		abort();
	set_path(check, file, path, check->line);
	check->files = grow(check->files, check->file_count, sizeof(struct file *));
	return check->files[check->file_count++] = file;
}

/* Is its name forced, and are those of all directories above it that the broker has made? */
static bool
name_stands(const struct check *check, const struct file *file)
{
	char parent[ORDER_PATH_BYTES];

	if (!file->named)
		return false;
	snprintf(parent, sizeof(parent), "%s", file->path);
	*strrchr(parent, '/') = '\0';
	file = find_file(check, parent);
	return file == NULL || name_stands(check, file);
}

/* ---- what is written ---- */

static void
find_records(struct file *file)
{
	while (file->end + file->header <= file->image.length) {
		int32_t length = wire_get_i32(file->image.data + file->end);

		if (length <= 0 || (size_t)length > file->image.length - file->end - file->header)
			return;
		file->starts = grow(file->starts, (size_t)file->count, sizeof(*file->starts));
		file->starts[file->count++] = file->end;
		file->end += file->header + (size_t)length;
	}
}

static void
write_into(struct check *check, struct file *file, const uint8_t *bytes, size_t size, size_t position)
{
	if (!file->segment)
		return;
	if (position < file->end)
		wrong(check, "%s is written at %zu, below its end", file->path, position);
	if (position + size > file->image.length)
		wire_put_zeros(&file->image, position + size - file->image.length);
	memcpy(file->image.data + position, bytes, size);
	find_records(file);
}

static void
cut_file(struct check *check, struct file *file, size_t size)
{
	if (!file->segment)
		return;
	if (size < file->end)
		wrong(check, "%s is cut at %zu, below its end", file->path, size);
	else if (size < file->image.length)
		file->image.length = size;
}

static void
store_into_map(struct check *check, int process, const struct wire_bytes *bytes, uint64_t address)
{
	for (size_t i = check->map_count; i-- > 0;) {
		const struct map *map = &check->maps[i];

		if (map->process != process || address < map->from || address >= map->to)
			continue;
		check->found->stores++;
		write_into(check, map->file, bytes->data, bytes->length, (size_t)(address - map->from + map->position));
		return;
	}
	wrong(check, "a store into a mapping that was not made");
}

static void
end_pwrite(struct check *check, const struct order_call *call)
{
	const char *at = call->arguments;
	struct wire_bytes bytes = { 0 };
	char path[ORDER_PATH_BYTES];
	int64_t fd = order_descriptor(&at, path);
	struct file *file = find_file(check, path);

	if ((fd == -1 || (file != NULL && call->result > 0)) && !order_bytes(&at, &bytes))
		wrong(check, "strace has cut a write short");
	order_skip(&at);	/* the size */
	if (fd == -1)
		store_into_map(check, call->process, &bytes, (uint64_t)order_number(&at));
	else if (file != NULL && call->result > 0)
		write_into(check, file, bytes.data, (size_t)call->result, (size_t)order_number(&at));
	wire_bytes_free(&bytes);
}

static void
end_mmap(struct check *check, const struct order_call *call)
{
	const char *at = call->arguments;
	char path[ORDER_PATH_BYTES];
	struct map map = { .process = call->process, .from = (uint64_t)call->result };
	bool shared = strstr(at, "PROT_WRITE, MAP_SHARED") != NULL;

	order_skip(&at);
	map.to = map.from + (uint64_t)order_number(&at);
	order_skip(&at);
	order_skip(&at);
	order_descriptor(&at, path);
	map.position = (uint64_t)order_number(&at);
	map.file = find_file(check, path);
	if (call->result == -1 || !shared || map.file == NULL)
		return;
	check->maps = grow(check->maps, check->map_count, sizeof(map));
	check->maps[check->map_count++] = map;
}

/* ---- names ---- */

/* "DIRECTORY, NAME" into a path. */
static void
take_path(const char **at, char *path)
{
	struct wire_bytes name = { 0 };
	char directory[ORDER_PATH_BYTES];

	order_descriptor(at, directory);
	order_bytes(at, &name);
	if (name.length > 0 && name.data[0] == '/')
		directory[0] = '\0';
	snprintf(path, ORDER_PATH_BYTES, "%.500s%s%.*s", directory, directory[0] != '\0' ? "/" : "", (int)name.length,
	    (const char *)name.data);
	wire_bytes_free(&name);
}

static void
end_rename(struct check *check, const struct order_call *call)
{
	const char *at = call->arguments;
	char from[ORDER_PATH_BYTES], to[ORDER_PATH_BYTES];
	struct file *file;

	take_path(&at, from);
	take_path(&at, to);
	file = find_file(check, from);
	if (call->result != 0 || file == NULL)
		return;
	remove_file(check, to);
	set_path(check, file, to, check->line);
}

/* What a process that was killed in the middle has removed of a log, or not, is not needed any more. */
static void
end_name(struct check *check, const struct order_call *call)
{
	const char *at = call->arguments;
	char path[ORDER_PATH_BYTES];
	struct wire_bytes absolute = { 0 };

	if (call->result < 0 && !call->unknown)
		return;
	if (order_call_is(call, "mkdir")) {
		order_bytes(&at, &absolute);
		snprintf(path, sizeof(path), "%.*s", (int)absolute.length, (const char *)absolute.data);
		wire_bytes_free(&absolute);
	} else {
		take_path(&at, path);
	}
	if (order_call_is(call, "unlinkat"))
		remove_file(check, path);
	else if (!order_call_is(call, "openat") || strstr(at, "O_CREAT") != NULL)
		make_file(check, path);
}

static void
end_ftruncate(struct check *check, const struct order_call *call)
{
	const char *at = call->arguments;
	char path[ORDER_PATH_BYTES];
	struct file *file;

	order_descriptor(&at, path);
	file = find_file(check, path);
	if (call->result == 0 && file != NULL)
		cut_file(check, file, (size_t)order_number(&at));
}

/* ---- forces ---- */

static void
begin_force(struct check *check, const struct order_call *call, struct force *force)
{
	const char *at = call->arguments;

	order_descriptor(&at, force->directory);
	force->file = find_file(check, force->directory);
	force->count = force->file != NULL ? force->file->count : 0;
}

static bool
is_blind(const struct check *check, const struct force *force)
{
	bool data = strcmp(force->directory, check->config->data_dir) == 0;

	switch (check->config->blind) {
	case ORDER_SEES_ALL:
		return false;
	case ORDER_BLIND_TO_FILES:
		return force->file != NULL && force->file->segment;
	case ORDER_BLIND_TO_DIRECTORIES:
		return force->file == NULL || !force->file->segment;
	case ORDER_BLIND_TO_THE_DATA_DIRECTORY:
		return data;
	}
	return false;
}

/* What stood there when it began is forced now. */
static void
end_force(struct check *check, const struct order_call *call, const struct force *force)
{
	if (call->result != 0 || is_blind(check, force))
		return;
	check->found->forces++;
	if (force->file != NULL && force->file->forced < force->count)
		force->file->forced = force->count;
	for (size_t i = 0; i < check->file_count; i++)
		if (check->files[i]->named_line < call->begin && stands_in(check->files[i], force->directory))
			check->files[i]->named = true;
}

/* The file of the log in that directory with the least base from `least` on. */
static struct file *
next_segment(const struct check *check, const char *directory, int64_t least)
{
	struct file *next = NULL;

	for (size_t i = 0; i < check->file_count; i++) {
		struct file *file = check->files[i];

		if (file->segment && stands_in(file, directory) && strcmp(base_name(file->path) + BASE_DIGITS, ".log") == 0 &&
		    file->base >= least && (next == NULL || file->base < next->base))
			next = file;
	}
	return next;
}

/* The offset up to which a power cut could take nothing of the log, from its first file on. */
static int64_t
forced_end(const struct check *check, const char *directory)
{
	const struct file *file = next_segment(check, directory, 0);
	int64_t end = file != NULL ? file->base : 0;

	while (file != NULL && file->base == end && name_stands(check, file)) {
		end += file->forced;
		if (file->forced < file->count)
			break;
		file = next_segment(check, directory, file->base + 1);
	}
	return end;
}

/* ---- requests and answers ---- */

static struct peer *
peer_of(struct check *check, const char *socket)
{
	for (size_t i = 0; i < check->peer_count; i++)
		if (strcmp(check->peers[i].socket, socket) == 0)
			return &check->peers[i];
	check->peers = grow(check->peers, check->peer_count, sizeof(*check->peers));
	check->peers[check->peer_count] = (struct peer){ .socket = strdup(socket) };
	return &check->peers[check->peer_count++];
}

static void
read_name(const uint8_t **p, char *topic)
{
	int length = wire_get_i16(*p);

	snprintf(topic, 256, "%.*s", length, (const char *)*p + 2);
	*p += 2 + length;
}

/* The frames are the test's own: right ones. */
static void
take_request(struct peer *peer, const uint8_t *frame, const uint8_t *end)
{
	struct request request = { .api = wire_get_i16(frame), .id = wire_get_i32(frame + 4) };
	const uint8_t *p = frame + 8;

	if (request.api != WIRE_METADATA) {
		read_name(&p, request.topic);
		request.partition = wire_get_i32(p);
		p += 4;
	}
	if (request.api == WIRE_PRODUCE) {
		request.ack = *p;
		request.count = wire_get_i32(p + 1);
		wire_put(&request.records, p + 5, (size_t)(end - p - 5));
	}
	if (request.api == WIRE_PRODUCE && request.ack == WIRE_NONE) {
		wire_bytes_free(&request.records);
		return;
	}
	peer->requests = grow(peer->requests, peer->count, sizeof(request));
	peer->requests[peer->count++] = request;
}

/* The next whole frame of a stream, behind its length; false when there is none yet. */
static bool
next_frame(const struct wire_bytes *stream, size_t *position, const uint8_t **frame, const uint8_t **end)
{
	size_t left = stream->length - *position;
	int32_t length;

	if (left < 4)
		return false;
	length = wire_get_i32(stream->data + *position);
	if (length < 0 || left - 4 < (size_t)length)
		return false;
	*frame = stream->data + *position + 4;
	*end = *frame + length;
	*position += 4 + (size_t)length;
	return true;
}

static void
end_receive(struct check *check, const struct order_call *call)
{
	const char *at = call->arguments;
	char socket[ORDER_PATH_BYTES];
	struct wire_bytes bytes = { 0 };
	const uint8_t *frame, *end;
	struct peer *peer;

	if (call->result <= 0 || strstr(at, "MSG_PEEK") != NULL)
		return;
	order_descriptor(&at, socket);
	if (!order_bytes(&at, &bytes))
		wrong(check, "strace has cut a request short");
	peer = peer_of(check, socket);
	wire_put(&peer->in, bytes.data, bytes.length);
	wire_bytes_free(&bytes);
	while (next_frame(&peer->in, &peer->in_position, &frame, &end))
		take_request(peer, frame, end);
}

/* The request's records stand where its answer says, unless retention was quicker. */
static void
compare_records(struct check *check, const char *directory, const struct request *request, int64_t base)
{
	const uint8_t *p = request->records.data;

	for (int64_t i = 0; i < request->count; i++) {
		size_t bytes = (size_t)wire_get_i32(p);
		struct file *file = NULL, *next = next_segment(check, directory, 0);

		for (; next != NULL && next->base <= base + i; next = next_segment(check, directory, next->base + 1))
			file = next;
		if (file != NULL && (base + i - file->base >= file->count ||
		    wire_get_i32(file->image.data + file->starts[base + i - file->base]) != (int32_t)bytes ||
		    memcmp(file->image.data + file->starts[base + i - file->base] + file->header, p + 4, bytes) != 0))
			wrong(check, "record %lld of %s is not what was sent", (long long)(base + i), directory);
		p += 4 + bytes;
	}
}

static void
check_produced(struct check *check, const struct request *request, const char *directory, const uint8_t *body)
{
	bool durable = request->topic[0] == check->config->durable;
	int64_t base = wire_get_i64(body), end = forced_end(check, directory);

	if (request->ack != WIRE_FORCED && !durable)
		return;
	if (request->ack == WIRE_FORCED)
		check->found->forced_answers++;
	else
		check->found->durable_answers++;
	if (end < base + request->count)
		wrong(check, "the answer to request %d leaves, which promises records %lld to %lld of %s, but only those below "
		    "%lld are forced in files whose names are", request->id, (long long)base,
		    (long long)(base + request->count - 1), directory, (long long)end);
	if (durable && wire_get_i64(body + 8) > end)
		wrong(check, "the answer to request %d tells of records below %lld of %s, but only those below %lld are forced",
		    request->id, (long long)wire_get_i64(body + 8), directory, (long long)end);
	compare_records(check, directory, request, base);
}

static void
take_answer(struct check *check, struct peer *peer, const uint8_t *frame)
{
	struct request *request = &peer->requests[peer->first];
	char directory[ORDER_PATH_BYTES];
	const uint8_t *body = frame + 6;

	if (peer->first == peer->count || wire_get_i32(frame) != request->id) {
		wrong(check, "an answer to no request: %d", wire_get_i32(frame));
		return;
	}
	peer->first++;
	snprintf(directory, sizeof(directory), "%.500s/%s-%d", check->config->data_dir, request->topic, request->partition);
	if (wire_get_i16(frame + 4) == WIRE_OK && request->api == WIRE_PRODUCE)
		check_produced(check, request, directory, body);
	else if (wire_get_i16(frame + 4) == WIRE_OK && request->api == WIRE_FETCH &&
	    request->topic[0] == check->config->durable && wire_get_i64(body) > forced_end(check, directory))
		wrong(check, "a reader is told of records below %lld of %s, but only those below %lld are forced",
		    (long long)wire_get_i64(body), directory, (long long)forced_end(check, directory));
	wire_bytes_free(&request->records);
}

static void
send_bytes(struct check *check, const char *socket, const uint8_t *bytes, size_t size)
{
	const uint8_t *frame, *end;
	struct peer *peer = peer_of(check, socket);

	/* Others' sockets: nothing was read from them. */
	if (peer->count == 0)
		return;
	wire_put(&peer->out, bytes, size);
	while (next_frame(&peer->out, &peer->out_position, &frame, &end))
		take_answer(check, peer, frame);
}

/* What leaves is judged by what stood when the call began. */
static void
begin_send(struct check *check, const struct order_call *call)
{
	const char *at = call->arguments;
	char socket[ORDER_PATH_BYTES];
	struct wire_bytes bytes = { 0 };

	order_descriptor(&at, socket);
	if (call->result <= 0 && !call->unknown)
		return;
	if (!order_bytes(&at, &bytes))
		wrong(check, "strace has cut an answer short");
	send_bytes(check, socket, bytes.data, call->unknown ? bytes.length : (size_t)call->result);
	wire_bytes_free(&bytes);
}

static void
begin_sendfile(struct check *check, const struct order_call *call)
{
	const char *at = call->arguments;
	char socket[ORDER_PATH_BYTES], path[ORDER_PATH_BYTES];
	size_t position, forced_bytes;
	struct file *file;

	order_descriptor(&at, socket);
	order_descriptor(&at, path);
	file = find_file(check, path);
	position = (size_t)strtoll(at + 1, NULL, 10);
	if (call->result <= 0)
		return;
	if (file == NULL || position + (size_t)call->result > file->image.length) {
		/* Retired while it is read: its bytes do not matter, their number does. */
		struct wire_bytes none = { 0 };

		if (file != NULL)
			wrong(check, "%zu bytes of %s from %zu on are sent, which ends at %zu", (size_t)call->result, path, position,
			    file->image.length);
		wire_put_zeros(&none, (size_t)call->result);
		send_bytes(check, socket, none.data, none.length);
		wire_bytes_free(&none);
		return;
	}
	forced_bytes = file->forced == file->count ? file->end : file->starts[file->forced];
	if (topic_letter(path) == check->config->durable) {
		check->found->durable_slices++;
		if (position + (size_t)call->result > forced_bytes || !name_stands(check, file))
			wrong(check, "%zu bytes of %s from %zu on are sent, but it is forced up to %zu only", (size_t)call->result,
			    path, position, forced_bytes);
	}
	send_bytes(check, socket, file->image.data + position, (size_t)call->result);
}

/* ---- all of it ---- */

static void
begin_call(struct check *check, const struct order_call *call, struct force *force)
{
	if (order_call_is(call, "sendto"))
		begin_send(check, call);
	else if (order_call_is(call, "sendfile"))
		begin_sendfile(check, call);
	else if (order_call_is(call, "fdatasync") || order_call_is(call, "fsync"))
		begin_force(check, call, force);
	else if (order_call_is(call, "unlinkat") && call->unknown)
		end_name(check, call);
}

static void
end_call(struct check *check, const struct order_call *call, const struct force *force)
{
	if (order_call_is(call, "pwrite64"))
		end_pwrite(check, call);
	else if (order_call_is(call, "recvfrom"))
		end_receive(check, call);
	else if (order_call_is(call, "fdatasync") || order_call_is(call, "fsync"))
		end_force(check, call, force);
	else if (order_call_is(call, "mmap"))
		end_mmap(check, call);
	else if (order_call_is(call, "ftruncate"))
		end_ftruncate(check, call);
	else if (order_call_is(call, "renameat") || order_call_is(call, "renameat2"))
		end_rename(check, call);
	else if (!call->unknown && (order_call_is(call, "openat") || order_call_is(call, "mkdir") ||
	    order_call_is(call, "mkdirat") || order_call_is(call, "unlinkat")))
		end_name(check, call);
}

static void
free_peer(struct peer *peer)
{
	for (size_t i = peer->first; i < peer->count; i++)
		wire_bytes_free(&peer->requests[i].records);
	free(peer->requests);
	free(peer->socket);
	wire_bytes_free(&peer->in);
	wire_bytes_free(&peer->out);
}

static void
free_all(struct check *check)
{
	for (size_t i = 0; i < check->file_count; i++) {
		wire_bytes_free(&check->files[i]->image);
		free(check->files[i]->starts);
		free(check->files[i]->path);
		free(check->files[i]);
	}
	for (size_t i = 0; i < check->peer_count; i++)
		free_peer(&check->peers[i]);
	free(check->files);
	free(check->peers);
	free(check->maps);
	free(check->forces);
}

void
order_check(const struct order_trace *trace, const struct order_config *config, struct order_found *found)
{
	struct check check = { .config = config, .found = found };

	*found = (struct order_found){ 0 };
	check.forces = calloc(trace->count + 1, sizeof(*check.forces));
	if (check.forces == NULL)
		abort();
	for (check.line = 1; check.line <= trace->line_count; check.line++) {
		int32_t at = trace->by_line[check.line];

		if (at < 0)
			continue;
		if (trace->calls[at].begin == check.line)
			begin_call(&check, &trace->calls[at], &check.forces[at]);
		if (trace->calls[at].end == check.line)
			end_call(&check, &trace->calls[at], &check.forces[at]);
	}
	free_all(&check);
}
