/*
 * A small HTTP server for pages that are rendered whole (evhttp underneath), on one listening socket. Its clients are
 * few, short and bounded, so that they cannot take the supervisor down. While all places are taken, one is free again
 * some HTTP_SWEEP_CROWDED_MS after its client has gone, and after HTTP_CROWDED_MS when it has not. Knows no page.
 */
#ifndef SUPERVISOR_HTTP_H
#define SUPERVISOR_HTTP_H

struct evbuffer;
struct event_base;
struct http;

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

/*
 * Takes over the listening descriptor. `pages` ends with a path of NULL and is borrowed, as is `context`. Returns NULL
 * with errno: then the descriptor is still the caller's.
 */
struct http *http_new(struct event_base *base, int descriptor, const struct http_page *pages, void *context);

/* Closes the socket and all connections. NULL is allowed. */
void http_free(struct http *http);

#endif
