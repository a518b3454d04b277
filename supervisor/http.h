/*
 * A small HTTP server for pages that are rendered whole (evhttp underneath), on one listening socket. Its clients are
 * few, short and bounded, so that they cannot take the supervisor down. While all places are taken, one is free again
 * some HTTP_SWEEP_CROWDED_MS after its client has gone, and after HTTP_CROWDED_MS when it has not. A request may also be a
 * call, which is answered when what it asks for is done; until then its client keeps its place. Knows no page, no call.
 */
#ifndef SUPERVISOR_HTTP_H
#define SUPERVISOR_HTTP_H

#include <stdbool.h>
#include <stdint.h>

struct evbuffer;
struct event_base;
struct http;
struct http_request;

enum {
	HTTP_CLIENTS_MAX = 16,		/* more wait in the kernel's queue */
	HTTP_IDLE_S = 10,		/* without a byte in either direction: closed */
	HTTP_LIFE_MS = 30 * 1000,	/* from accepting to the end; each connection carries one request */
	HTTP_CROWDED_MS = 2 * 1000,	/* the same while all places are taken */
	HTTP_SWEEP_MS = 250,		/* how often clients that have gone are looked for ... */
	HTTP_SWEEP_CROWDED_MS = 10,	/* ... and while all places are taken */
	HTTP_PAUSE_MS = 100,		/* after a failed accept */
	HTTP_HEADERS_MAX_BYTES = 8 * 1024,
	HTTP_BODY_MAX_BYTES = 4 * 1024,
	HTTP_COST_FACTOR = 10,		/* a page is shown again for so many times as long as rendering it has taken */
	HTTP_CACHE_MAX_MS = 1000,	/* but not longer */
};

struct http_page {
	const char *path;		/* "/metrics" */
	const char *content_type;
	/* Renders; returns the HTTP status, or -1 with errno. */
	int (*render)(void *context, struct evbuffer *to);
};

struct http_call {
	const char *path;		/* "/reload"; in "/workers/#/restart" the # stands for a number */
	bool post;			/* asked for by POST; otherwise by GET */
	/* Begins it. The request is to be answered once, now or later. `number`: what stood for #. */
	void (*begin)(void *context, struct http_request *request, int64_t number);
};

/* What a server has. Both lists end with a path of NULL, and are borrowed like the contexts. */
struct http_offer {
	const struct http_page *pages;
	void *pages_context;
	const struct http_call *calls;	/* NULL: none; then nothing but GET and HEAD is taken */
	void *calls_context;
};

/* Takes over the listening descriptor. Returns NULL with errno: then the descriptor is still the caller's. */
struct http *http_new(struct event_base *base, int descriptor, const struct http_offer *offer);

/* Closes the socket and all connections; every call must have been answered. NULL is allowed. */
void http_free(struct http *http);

/* The request's Accept asks for JSON. */
bool http_wants_json(const struct http_request *request);
/* The number behind "name=" in the request's query; -1: there is none. */
int64_t http_number(const struct http_request *request, const char *name);

/* The answer to a call, which is over with it. Its client may have gone meanwhile. `body` stays the caller's. */
void http_answer(struct http_request *request, int status, const char *content_type, struct evbuffer *body);
/* The same with a line of plain text; the newline is added. */
void http_answer_text(struct http_request *request, int status, const char *text);

#endif
