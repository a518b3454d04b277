/*
 * evhttp with a fence around it; see http.h. evhttp itself neither limits its clients nor tells when one is gone, and
 * turns in circles when accept fails for want of descriptors. So its bufferevents are made here, each with a reference
 * of our own: evhttp takes the callbacks off one when it is done with it, which a sweep notices; and the listener is
 * disabled while all places are taken, or for a moment after accept has failed.
 */
#include "supervisor/http.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "common/log.h"
#include "supervisor/spare.h"

enum { PAGES_MAX = 16, NUMBER_DIGITS = 9 };

/* A call that is not answered yet. evhttp's request stays ours until then, whether its connection lives or not. */
struct http_request {
	struct http *http;
	struct evhttp_request *request;	/* NULL: none is under way */
};

struct client {
	struct bufferevent *stream;	/* NULL: the place is free */
	int64_t since_ns;		/* accepted, or its call was answered */
	struct http_request call;
};

/* What was rendered last, as long as it may be shown again. */
struct cached {
	struct evbuffer *body;
	int status;
	int64_t until_ns;
};

struct http {
	struct http *next;		/* of all there are: see on_accept_error */
	struct http_offer offer;
	struct evhttp *server;
	struct evconnlistener *listener;
	struct event *sweep;		/* while there are clients, or the listener is disabled */
	int count;
	struct client clients[HTTP_CLIENTS_MAX];
	struct cached cached[PAGES_MAX];
	struct log_limit limit;
};

static struct http *servers;

/* ---- clients ---- */

/* The next sweep comes after that time, whatever it was set to before. */
static void
sweep_in(struct http *http, int ms)
{
	struct timeval wait = { ms / 1000, (ms % 1000) * 1000 };

	evtimer_add(http->sweep, &wait);
}

/* evhttp has freed it: nobody else sets all callbacks to nothing. */
static bool
is_over(struct bufferevent *stream)
{
	bufferevent_data_cb readable, writable;
	bufferevent_event_cb event;
	void *context;

	bufferevent_getcb(stream, &readable, &writable, &event, &context);
	return readable == NULL && writable == NULL && event == NULL;
}

static void
let_go(struct http *http, struct client *client)
{
	bufferevent_decref(client->stream);	/* the last one: closes the socket */
	client->stream = NULL;
	http->count--;
}

static void
sweep(struct http *http)
{
	int64_t now_ns = clock_now_ns();
	int64_t life_ms = http->count == HTTP_CLIENTS_MAX ? HTTP_CROWDED_MS : HTTP_LIFE_MS;

	for (int i = 0; i < HTTP_CLIENTS_MAX; i++) {
		struct client *client = &http->clients[i];

		if (client->stream == NULL || client->call.request != NULL)
			continue;
		if (is_over(client->stream))
			let_go(http, client);
		else if (now_ns - client->since_ns > life_ms * CLOCK_NS_PER_MS)
			shutdown(bufferevent_getfd(client->stream), SHUT_RDWR);	/* evhttp sees its end, and frees it */
	}
}

static void
on_sweep(evutil_socket_t fd, short what, void *context)
{
	struct http *http = context;
	bool full;

	(void)fd;
	(void)what;
	sweep(http);
	full = http->count == HTTP_CLIENTS_MAX || !spare_is_whole();
	if (!full)
		evconnlistener_enable(http->listener);
	if (full || http->count > 0)
		sweep_in(http, full ? HTTP_SWEEP_CROWDED_MS : HTTP_SWEEP_MS);
}

/* evhttp wants a bufferevent for a connection that it has just accepted. */
static struct bufferevent *
on_new_client(struct event_base *base, void *context)
{
	struct http *http = context;
	struct bufferevent *stream = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
	int place = 0;

	if (stream == NULL)
		return NULL;
	if (http->count == HTTP_CLIENTS_MAX - 1)
		sweep(http);	/* before the new one is among them: it has no callbacks yet */
	while (place < HTTP_CLIENTS_MAX && http->clients[place].stream != NULL)
		place++;
	if (place == HTTP_CLIENTS_MAX)	/* cannot be: the listener is off then */
		return stream;
	bufferevent_incref(stream);
	http->clients[place] = (struct client){ stream, clock_now_ns(), { http, NULL } };
	http->count++;
	/* Without a spare evhttp must not be given another one. */
	if (http->count == HTTP_CLIENTS_MAX || !spare_is_whole()) {
		evconnlistener_disable(http->listener);
		sweep_in(http, HTTP_SWEEP_CROWDED_MS);
	} else if (!evtimer_pending(http->sweep, NULL)) {	/* nor put off again and again */
		sweep_in(http, HTTP_SWEEP_MS);
	}
	return stream;
}

/* libevent hands over what evhttp has registered with its listener, nothing of ours. */
static void
on_accept_error(struct evconnlistener *listener, void *evhttps_own)
{
	struct http *http = servers;
	int error = errno;
	char more[LOG_MORE_BYTES];

	(void)evhttps_own;
	while (http->listener != listener)
		http = http->next;
	evconnlistener_disable(listener);
	sweep_in(http, HTTP_PAUSE_MS);
	if (log_limit_pass(&http->limit, 60 * (int64_t)CLOCK_NS_PER_S, more))
		log_warning("cannot accept an HTTP client: %s; paused for %d ms%s", strerror(error), HTTP_PAUSE_MS,
		    more);
}

/* ---- requests ---- */

/* evhttp frees the connection right behind this: the next sweep, in the next turn of the loop, closes it. */
static void
on_complete(struct evhttp_request *request, void *context)
{
	struct http *http = context;

	(void)request;
	sweep_in(http, 0);
}

static void
send_whole(struct evhttp_request *request, int status, const char *content_type, struct evbuffer *body)
{
	struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
	bool head_only = evhttp_request_get_command(request) == EVHTTP_REQ_HEAD;
	char length[32];

	snprintf(length, sizeof(length), "%zu", evbuffer_get_length(body));
	evhttp_add_header(headers, "Content-Type", content_type);
	evhttp_add_header(headers, "Content-Length", length);
	evhttp_add_header(headers, "Cache-Control", "no-store");
	evhttp_add_header(headers, "Connection", "close");
	if (!head_only && evbuffer_add_buffer_reference(evhttp_request_get_output_buffer(request), body) != 0) {
		evhttp_send_error(request, HTTP_SERVUNAVAIL, NULL);
		return;
	}
	evhttp_send_reply(request, status, NULL, NULL);
}

static void
send_text(struct evhttp_request *request, int status, const char *text)
{
	struct evbuffer *body = evbuffer_new();

	if (body == NULL || evbuffer_add_printf(body, "%s\n", text) < 0)
		evhttp_send_error(request, HTTP_SERVUNAVAIL, NULL);
	else
		send_whole(request, status, "text/plain; charset=utf-8", body);
	if (body != NULL)
		evbuffer_free(body);
}

/*
 * A page that is dear (100,000 partitions: some tens of milliseconds) is shown again for a while, so that no number of
 * clients can keep the loop busy with it. Returns -1 when it cannot be rendered.
 */
static int
render(struct http *http, const struct http_page *page, struct cached *cached)
{
	struct evbuffer *body;
	int64_t started_ns = clock_now_ns(), cost_ns;

	if (cached->body != NULL && started_ns < cached->until_ns)
		return 0;
	body = evbuffer_new();
	if (body == NULL)
		return -1;
	cached->status = page->render(http->offer.pages_context, body);
	if (cached->status < 0) {
		evbuffer_free(body);
		cached->until_ns = 0;
		return -1;
	}
	if (cached->body != NULL)
		evbuffer_free(cached->body);
	cached->body = body;
	cost_ns = (clock_now_ns() - started_ns) * HTTP_COST_FACTOR;
	if (cost_ns > (int64_t)HTTP_CACHE_MAX_MS * CLOCK_NS_PER_MS)
		cost_ns = (int64_t)HTTP_CACHE_MAX_MS * CLOCK_NS_PER_MS;
	cached->until_ns = started_ns + cost_ns;
	return 0;
}

static const char *
path_of(struct evhttp_request *request)
{
	const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(request);
	const char *path = uri == NULL ? NULL : evhttp_uri_get_path(uri);

	return path == NULL ? "" : path;
}

/* What of the request's path and the call's agrees; *number is what stands for #. */
static bool
path_fits(const char *pattern, const char *path, int64_t *number)
{
	for (; *pattern != '\0'; pattern++) {
		size_t digits = strspn(path, "0123456789");

		if (*pattern != '#') {
			if (*pattern != *path++)
				return false;
			continue;
		}
		if (digits == 0 || digits > NUMBER_DIGITS)
			return false;
		*number = strtoll(path, NULL, 10);
		path += digits;
	}
	return *path == '\0';
}

static const struct http_page *
find_page(const struct http *http, const char *path)
{
	const struct http_page *page = http->offer.pages;

	while (page->path != NULL && strcmp(page->path, path) != 0)
		page++;
	return page->path == NULL ? NULL : page;
}

static const struct http_call *
find_call(const struct http *http, const char *path, int64_t *number)
{
	const struct http_call *call = http->offer.calls;

	while (call != NULL && call->path != NULL && !path_fits(call->path, path, number))
		call++;
	return call == NULL || call->path == NULL ? NULL : call;
}

static void
refuse_method(struct evhttp_request *request, const char *allowed, const char *why)
{
	evhttp_add_header(evhttp_request_get_output_headers(request), "Allow", allowed);
	send_text(request, HTTP_BADMETHOD, why);
}

static void
show(struct http *http, struct evhttp_request *request, const struct http_page *page)
{
	struct cached *cached = &http->cached[page - http->offer.pages];

	if (render(http, page, cached) == 0)
		send_whole(request, cached->status, page->content_type, cached->body);
	else
		send_text(request, HTTP_SERVUNAVAIL, "no memory");
}

static void
begin_call(struct http *http, struct evhttp_request *request, const struct http_call *call, int64_t number)
{
	struct bufferevent *stream = evhttp_connection_get_bufferevent(evhttp_request_get_connection(request));

	for (int i = 0; i < HTTP_CLIENTS_MAX; i++) {
		struct client *client = &http->clients[i];

		if (client->stream != stream)
			continue;
		client->call.request = request;
		call->begin(http->offer.calls_context, &client->call, number);
		return;
	}
	send_text(request, HTTP_SERVUNAVAIL, "no place");	/* cannot be: see on_new_client */
}

static void
on_request(struct evhttp_request *request, void *context)
{
	struct http *http = context;
	enum evhttp_cmd_type command = evhttp_request_get_command(request);
	bool reading = command == EVHTTP_REQ_GET || command == EVHTTP_REQ_HEAD;
	const char *path = path_of(request);
	const struct http_page *page = find_page(http, path);
	int64_t number = 0;
	const struct http_call *call = page == NULL ? find_call(http, path, &number) : NULL;

	evhttp_request_set_on_complete_cb(request, on_complete, http);
	if (page == NULL && call == NULL && (reading || http->offer.calls != NULL))
		send_text(request, HTTP_NOTFOUND, "no such page");
	else if (call != NULL && command == (call->post ? EVHTTP_REQ_POST : EVHTTP_REQ_GET))
		begin_call(http, request, call, number);
	else if (call != NULL)
		refuse_method(request, call->post ? "POST" : "GET", call->post ? "this is done by POST" : "this is asked by GET");
	else if (!reading && page != NULL)
		refuse_method(request, "GET, HEAD", "this page can only be read");
	else if (!reading)
		refuse_method(request, "GET, HEAD", "nothing can be changed here; the control socket is for that");
	else
		show(http, request, page);
}

/* ---- calls ---- */

bool
http_wants_json(const struct http_request *request)
{
	const char *accept = evhttp_find_header(evhttp_request_get_input_headers(request->request), "Accept");

	return accept != NULL && strstr(accept, "application/json") != NULL;
}

int64_t
http_number(const struct http_request *request, const char *name)
{
	const char *query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request->request)), *value;
	struct evkeyvalq values;
	int64_t number = -1;

	if (query == NULL || evhttp_parse_query_str(query, &values) != 0)
		return -1;
	value = evhttp_find_header(&values, name);
	if (value != NULL && value[0] != '\0' && strlen(value) <= NUMBER_DIGITS && value[strspn(value, "0123456789")] == '\0')
		number = strtoll(value, NULL, 10);
	evhttp_clear_headers(&values);
	return number;
}

/* Its place is swept again; from now on the client has as much time as one that has just come. */
static struct evhttp_request *
end_call(struct http_request *request)
{
	struct client *client = (struct client *)((char *)request - offsetof(struct client, call));
	struct evhttp_request *ended = request->request;

	request->request = NULL;
	client->since_ns = clock_now_ns();
	sweep_in(request->http, HTTP_SWEEP_CROWDED_MS);
	return ended;
}

void
http_answer(struct http_request *request, int status, const char *content_type, struct evbuffer *body)
{
	send_whole(end_call(request), status, content_type, body);
}

void
http_answer_text(struct http_request *request, int status, const char *text)
{
	send_text(end_call(request), status, text);
}

/* ---- the whole ---- */

static int
configure(struct http *http, int descriptor)
{
	struct evhttp_bound_socket *bound;

	evhttp_set_timeout(http->server, HTTP_IDLE_S);
	evhttp_set_max_headers_size(http->server, HTTP_HEADERS_MAX_BYTES);
	evhttp_set_max_body_size(http->server, HTTP_BODY_MAX_BYTES);
	/* All, so that the refusal is ours: evhttp would call a known method "not implemented". */
	evhttp_set_allowed_methods(http->server, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
	    EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE | EVHTTP_REQ_CONNECT | EVHTTP_REQ_PATCH);
	evhttp_set_bevcb(http->server, on_new_client, http);
	evhttp_set_gencb(http->server, on_request, http);
	bound = evhttp_accept_socket_with_handle(http->server, descriptor);
	if (bound == NULL)
		return -1;
	http->listener = evhttp_bound_socket_get_listener(bound);
	evconnlistener_set_error_cb(http->listener, on_accept_error);
	return 0;
}

struct http *
http_new(struct event_base *base, int descriptor, const struct http_offer *offer)
{
	struct http *http = calloc(1, sizeof(*http));

	if (http == NULL)
		return NULL;
	http->next = servers;
	servers = http;
	http->offer = *offer;
	http->sweep = evtimer_new(base, on_sweep, http);
	http->server = evhttp_new(base);
	if (http->sweep != NULL && http->server != NULL && configure(http, descriptor) == 0)
		return http;
	http_free(http);
	errno = ENOMEM;
	return NULL;
}

void
http_free(struct http *http)
{
	struct http **link = &servers;

	if (http == NULL)
		return;
	while (*link != http)
		link = &(*link)->next;
	*link = http->next;
	if (http->server != NULL)
		evhttp_free(http->server);
	for (int i = 0; i < HTTP_CLIENTS_MAX; i++)
		if (http->clients[i].stream != NULL)
			let_go(http, &http->clients[i]);
	for (int i = 0; i < PAGES_MAX; i++)
		if (http->cached[i].body != NULL)
			evbuffer_free(http->cached[i].body);
	if (http->sweep != NULL)
		event_free(http->sweep);
	free(http);
}
