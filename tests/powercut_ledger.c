/* See powercut_ledger.h. */
#include "tests/powercut_ledger.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/wire.h"

enum { BASE_DIGITS = 20, ANSWER_HEAD_BYTES = 10, WHY_BYTES = 256, USUAL_PAYLOAD = 120 };

/* A record in the tree. */
struct node {
	struct ledger_record record;
	int next;	/* at the same offset, -1: none */
};

/* What was appended to a segment's file: where each record ends. */
struct view {
	int file;
	int64_t base;
	int64_t stored_from, stored_to;	/* the last store, which its length word follows */
	struct { int64_t end; int node; } *known;
	size_t count, capacity;
};

/* What a worker sends to one client. */
struct stream {
	int32_t process;
	int64_t fd;
	struct wire_bytes unfinished;	/* of an answer, that has left */
	const struct powercut_event *offered;
};

struct ledger {
	struct ledger_settings settings;
	struct node *nodes;
	size_t node_count, node_capacity;
	int *first, *current;		/* by offset: nodes, the first of a list; and the last one that was written */
	size_t offsets;
	struct view *views;
	size_t view_count, view_capacity;
	struct stream *streams;
	size_t stream_count, stream_capacity;
	int64_t forced_end, published_end, durable_end, start;
	char why[WHY_BYTES];
};

void
ledger_payload(int32_t id, int record, uint8_t *to, size_t *size)
{
	uint64_t state = ((uint64_t)id << 20 | (uint64_t)record) * 0x9E3779B97F4A7C15u + 12345;

	wire_random(&state);
	/*
	 * Many of one size, so that what was lost fits behind what takes its place, and in crc32c of one that divides a sector's;
	 * some that take much of a segment.
	 */
	*size = 1 + wire_random(&state) % (wire_random(&state) % 8 == 0 ? LEDGER_PAYLOAD_MAX : 120);
	if (wire_random(&state) % 2 == 0 || id >= LEDGER_USUAL_FROM)
		*size = USUAL_PAYLOAD;
	for (size_t i = 0; i < *size; i++)
		to[i] = (uint8_t)wire_random(&state);
	to[0] |= 1;
}

struct ledger *
ledger_new(const struct ledger_settings *settings)
{
	struct ledger *ledger = calloc(1, sizeof(*ledger));

	ck_assert_ptr_nonnull(ledger);
	ledger->settings = *settings;
	return ledger;
}

void
ledger_free(struct ledger *ledger)
{
	for (size_t i = 0; i < ledger->node_count; i++)
		free((void *)ledger->nodes[i].record.bytes);
	for (size_t i = 0; i < ledger->view_count; i++)
		free(ledger->views[i].known);
	for (size_t i = 0; i < ledger->stream_count; i++)
		wire_bytes_free(&ledger->streams[i].unfinished);
	free(ledger->nodes);
	free(ledger->first);
	free(ledger->current);
	free(ledger->views);
	free(ledger->streams);
	free(ledger);
}

static int
wrong(struct ledger *ledger, const char *text, int64_t number)
{
	snprintf(ledger->why, sizeof(ledger->why), "%s (%" PRId64 ")", text, number);
	return -1;
}

/* ---- records ---- */

int
ledger_find(const struct ledger *ledger, int64_t offset, int before, const uint8_t *bytes, size_t size)
{
	int node = offset < 0 || (size_t)offset >= ledger->offsets ? -1 : ledger->first[offset];

	for (; node != -1; node = ledger->nodes[node].next) {
		const struct ledger_record *record = &ledger->nodes[node].record;

		if ((before == -2 || record->before == before) && record->size == size
		    && memcmp(record->bytes, bytes, size) == 0)
			return node;
	}
	return -1;
}

static void
reserve_offset(struct ledger *ledger, int64_t offset)
{
	size_t wanted = (size_t)offset + 1;

	if (wanted <= ledger->offsets)
		return;
	wanted = wanted < 2 * ledger->offsets ? 2 * ledger->offsets : wanted;
	ledger->first = realloc(ledger->first, wanted * sizeof(int));
	ledger->current = realloc(ledger->current, wanted * sizeof(int));
	ck_assert(ledger->first != NULL && ledger->current != NULL);
	for (size_t i = ledger->offsets; i < wanted; i++)
		ledger->first[i] = ledger->current[i] = -1;
	ledger->offsets = wanted;
}

static int
add_record(struct ledger *ledger, int64_t offset, int before, const uint8_t *bytes, size_t size)
{
	struct node *node;
	uint8_t *copy = malloc(size);

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, bytes, size);
	ledger->nodes = image_grown(ledger->nodes, ledger->node_count, &ledger->node_capacity, sizeof(*ledger->nodes));
	node = &ledger->nodes[ledger->node_count];
	*node = (struct node){ .record = { .offset = offset, .before = before, .bytes = copy, .size = size },
		.next = ledger->first[offset] };
	return ledger->first[offset] = (int)ledger->node_count++;
}

static int
take_record(struct ledger *ledger, int64_t offset, int before, const uint8_t *bytes, size_t size)
{
	int node;

	reserve_offset(ledger, offset);
	node = ledger_find(ledger, offset, before, bytes, size);
	if (node == -1)
		node = add_record(ledger, offset, before, bytes, size);
	return ledger->current[offset] = node;
}

/* ---- segments ---- */

/* The base of a segment's name, also of a temporary one; -1: it is none. */
static int64_t
base_of(const char *name)
{
	if (strspn(name, "0123456789") != BASE_DIGITS
	    || (strcmp(name + BASE_DIGITS, ".log") != 0 && strcmp(name + BASE_DIGITS, ".log.tmp") != 0))
		return -1;
	return strtoll(name, NULL, 10);
}

static struct view *
view_of(struct ledger *ledger, int file, int64_t base)
{
	struct view *view;

	for (size_t i = 0; i < ledger->view_count; i++)
		if (ledger->views[i].file == file)
			return &ledger->views[i];
	ledger->views = image_grown(ledger->views, ledger->view_count, &ledger->view_capacity, sizeof(*ledger->views));
	view = &ledger->views[ledger->view_count++];
	*view = (struct view){ .file = file, .base = base };
	return view;
}

static int
last_of(const struct ledger *ledger, const struct view *view)
{
	if (view->count > 0)
		return view->known[view->count - 1].node;
	return view->base == 0 || (size_t)view->base > ledger->offsets ? -1 : ledger->current[view->base - 1];
}

/* Bytes have changed from there on. Behind `end` may stand what nobody has appended to what is there now. */
static void
look_again(struct ledger *ledger, struct view *view, int64_t changed, const uint8_t *bytes, int64_t end)
{
	size_t record_bytes;
	int64_t position;

	while (view->count > 0 && view->known[view->count - 1].end > changed)
		view->count--;
	position = view->count == 0 ? 0 : view->known[view->count - 1].end;
	while (position < end && record_check(ledger->settings.format, bytes + position, (size_t)(end - position),
	    &record_bytes) == RECORD_VALID) {
		int node = take_record(ledger, view->base + (int64_t)view->count, last_of(ledger, view), bytes + position,
		    record_bytes);

		view->known = image_grown(view->known, view->count, &view->capacity, sizeof(*view->known));
		position += (int64_t)record_bytes;
		view->known[view->count].end = position;
		view->known[view->count++].node = node;
	}
}

/* Where ends what an event has appended? A store's first word follows the rest of it. */
static int64_t
end_of_change(struct view *view, const struct powercut_event *event)
{
	int64_t end = event->position + (int64_t)event->bytes;

	if (event->kind != POWERCUT_STORE)
		return event->kind == POWERCUT_WRITE ? end : event->position;
	if (end == view->stored_from)
		return view->stored_to;
	view->stored_from = event->position;
	view->stored_to = end;
	return end;
}

static void
note_bytes(struct ledger *ledger, const struct model *model, const struct powercut_event *event)
{
	int file = model_file_of(model, event);
	int64_t base = base_of(model_file_name(model, file)), size, end;
	const uint8_t *bytes = model_bytes(model, file, &size);
	struct view *view;

	if (base == -1)
		return;
	view = view_of(ledger, file, base);
	end = end_of_change(view, event);
	look_again(ledger, view, event->position, bytes, end < size ? end : size);
}

/* ---- retention ---- */

static void
take_lower(const char *name, void *context)
{
	int64_t *lowest = context, base = base_of(name);

	if (base != -1 && strlen(name) == BASE_DIGITS + strlen(".log") && (*lowest == -1 || base < *lowest))
		*lowest = base;
}

static void
note_names(struct ledger *ledger, const struct model *model)
{
	int directory = model_find(model, ledger->settings.directory);
	int64_t lowest = -1;

	if (directory == -1)
		return;
	model_names(model, directory, take_lower, &lowest);
	if (lowest > ledger->start)
		ledger->start = lowest;
}

/* ---- answers ---- */

/* The records that a request is told to have appended are those that it had. */
static int
note_appended(struct ledger *ledger, int32_t id, int64_t base, bool forced)
{
	uint8_t payload[LEDGER_PAYLOAD_MAX];
	size_t size, head = record_header_bytes(ledger->settings.format);

	for (int i = 0; i < ledger->settings.requests[id].count; i++) {
		int node = ledger_at(ledger, base + i);
		struct ledger_record *record;

		ledger_payload(id, i, payload, &size);
		if (node == -1)
			return wrong(ledger, "acknowledged, and not written", base + i);
		record = &ledger->nodes[node].record;
		if (record->size != head + size || memcmp(record->bytes + head, payload, size) != 0)
			return wrong(ledger, "acknowledged as another record than the one that was written", base + i);
		record->forced = record->forced || forced;
	}
	return 0;
}

static int
note_answer(struct ledger *ledger, const uint8_t *answer, int64_t length)
{
	int32_t id = wire_get_i32(answer + 4);
	const struct ledger_request *request;
	int64_t base, end;
	bool forced;

	if (id < 0 || id >= ledger->settings.request_count)
		return wrong(ledger, "an answer to nothing", id);
	request = &ledger->settings.requests[id];
	if (request->count == 0 || wire_get_i16(answer + 8) != 0)
		return 0;
	if (length != ANSWER_HEAD_BYTES + 16)
		return wrong(ledger, "no answer of PRODUCE", id);
	base = wire_get_i64(answer + ANSWER_HEAD_BYTES);
	end = base + request->count;
	forced = request->ack == WIRE_FORCED || ledger->settings.durable;
	if (forced && end > ledger->forced_end)
		ledger->forced_end = end;
	return note_appended(ledger, id, base, forced);
}

/* Takes whole answers from there on; returns the bytes that they had, -1 with `why`. */
static int64_t
note_answers(struct ledger *ledger, const struct wire_bytes *bytes)
{
	size_t at = 0;

	while (bytes->length - at >= ANSWER_HEAD_BYTES) {
		int64_t length = wire_get_i32(bytes->data + at) + 4;

		if (length < ANSWER_HEAD_BYTES || length > WIRE_FRAME_MAX)
			return wrong(ledger, "no answer", length);
		if (bytes->length - at < (size_t)length)
			break;
		if (note_answer(ledger, bytes->data + at, length) == -1)
			return -1;
		at += (size_t)length;
	}
	return (int64_t)at;
}

static struct stream *
stream_of(struct ledger *ledger, const struct powercut_event *event)
{
	struct stream *stream;

	for (size_t i = 0; i < ledger->stream_count; i++)
		if (ledger->streams[i].process == event->process && ledger->streams[i].fd == event->position)
			return &ledger->streams[i];
	ledger->streams = image_grown(ledger->streams, ledger->stream_count, &ledger->stream_capacity, sizeof(*ledger->streams));
	stream = &ledger->streams[ledger->stream_count++];
	*stream = (struct stream){ .process = event->process, .fd = event->position };
	return stream;
}

/* What has left already and what may leave now. */
static int
note_send(struct ledger *ledger, const struct powercut_event *event)
{
	struct stream *stream = stream_of(ledger, event);
	struct wire_bytes all = { 0 };
	int64_t done;

	wire_put(&all, stream->unfinished.data, stream->unfinished.length);
	wire_put(&all, event->data, event->bytes);
	done = note_answers(ledger, &all);
	wire_bytes_free(&all);
	stream->offered = event;
	return done == -1 ? -1 : 0;
}

static int
note_sent(struct ledger *ledger, const struct powercut_event *event)
{
	struct stream *stream = stream_of(ledger, event);
	int64_t done;

	if (stream->offered == NULL || event->count > stream->offered->bytes)
		return wrong(ledger, "sent, and not offered", event->count);
	wire_put(&stream->unfinished, stream->offered->data, (size_t)event->count);
	stream->offered = NULL;
	done = note_answers(ledger, &stream->unfinished);
	if (done == -1)
		return -1;
	stream->unfinished.length -= (size_t)done;
	memmove(stream->unfinished.data, stream->unfinished.data + done, stream->unfinished.length);
	return 0;
}

/* ---- events ---- */

int
ledger_note(struct ledger *ledger, const struct model *model, const struct powercut_event *event, const char **why)
{
	int done = 0;

	*why = ledger->why;
	switch (event->kind) {
	case POWERCUT_WRITE:
	case POWERCUT_STORE:
	case POWERCUT_RESIZE:
	case POWERCUT_ZERO:
		note_bytes(ledger, model, event);
		break;
	case POWERCUT_UNLINK:
		note_names(ledger, model);
		break;
	case POWERCUT_SEND:
		done = note_send(ledger, event);
		break;
	case POWERCUT_SENT:
		done = note_sent(ledger, event);
		break;
	case POWERCUT_PUBLISH:
		if (ledger->settings.durable && event->position > ledger->published_end)
			ledger->published_end = event->position;
		break;
	case POWERCUT_DURABLE:
		if (event->position > ledger->durable_end)
			ledger->durable_end = event->position;
		break;
	default:
		break;
	}
	return done;
}

int64_t
ledger_forced_end(const struct ledger *ledger)
{
	return ledger->forced_end;
}

int64_t
ledger_published_end(const struct ledger *ledger)
{
	return ledger->published_end;
}

int64_t
ledger_durable_end(const struct ledger *ledger)
{
	return ledger->durable_end;
}

int64_t
ledger_start(const struct ledger *ledger)
{
	return ledger->start;
}

int
ledger_at(const struct ledger *ledger, int64_t offset)
{
	return offset < 0 || (size_t)offset >= ledger->offsets ? -1 : ledger->current[offset];
}

const struct ledger_record *
ledger_record(const struct ledger *ledger, int number)
{
	return &ledger->nodes[number].record;
}
