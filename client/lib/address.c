/*
 * Addresses of brokers. A port has to be named: a default would let a typing mistake reach some other service.
 */
#include "client/lib/address.h"

#include <sys/un.h>

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/error.h"

enum { ADDRESS_HOST_BYTES = 256, ADDRESS_PORT_BYTES = 6 };

struct address_parts {
	char host[ADDRESS_HOST_BYTES];
	char port[ADDRESS_PORT_BYTES];
};

static const char *
unix_path(const char *text)
{
	return strncmp(text, "unix:", 5) == 0 ? text + 5 : NULL;
}

static const char *
unix_problem(const char *path)
{
	struct sockaddr_un un;

	if (path[0] != '/')
		return "a Unix socket needs an absolute path, unix:/path";
	return strlen(path) < sizeof(un.sun_path) ? NULL : "the path of a Unix socket has at most 107 bytes";
}

static const char *
port_problem(const char *port)
{
	size_t length = strspn(port, "0123456789");

	if (length == 0 || port[length] != '\0' || length >= ADDRESS_PORT_BYTES || atoi(port) < 1 || atoi(port) > 65535)
		return "the port must be a number from 1 to 65535";
	return NULL;
}

/* Splits at the last colon; a host that holds colons itself must stand in brackets. NULL, or what is wrong. */
static const char *
split(const char *text, struct address_parts *parts)
{
	const char *colon = strrchr(text, ':');
	const char *host = text;
	const char *problem;
	size_t length;

	if (colon == NULL || (text[0] == '[' && colon[-1] != ']'))
		return "a port is missing; write host:port, [v6]:port or unix:/path";
	length = (size_t)(colon - text);
	if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
		host++;
		length -= 2;
	} else if (memchr(host, ':', length) != NULL) {
		return "an IPv6 address must stand in brackets, [v6]:port";
	}
	if (length == 0 || length >= ADDRESS_HOST_BYTES)
		return "the host must have 1 to 255 characters";
	if ((problem = port_problem(colon + 1)) != NULL)
		return problem;
	memcpy(parts->host, host, length);
	parts->host[length] = '\0';
	memcpy(parts->port, colon + 1, strlen(colon + 1) + 1);
	return NULL;
}

static bool
list_alloc(struct lb_address_list *list, size_t count)
{
	list->count = 0;
	list->entries = calloc(count, sizeof(*list->entries));
	list->lengths = calloc(count, sizeof(*list->lengths));
	if (list->entries != NULL && list->lengths != NULL)
		return true;
	lb_address_free(list);
	return false;
}

static void
list_add(struct lb_address_list *list, const void *address, socklen_t length)
{
	memcpy(&list->entries[list->count], address, length);
	list->lengths[list->count] = length;
	list->count++;
}

static enum lb_code
no_memory(const char *text, struct lb_error *error)
{
	return lb_error_set(error, LB_NO_MEMORY, NULL, -1, -1, "%.200s: out of memory", text);
}

static enum lb_code
resolve_unix(const char *text, struct lb_address_list *list, struct lb_error *error)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	const char *path = unix_path(text);

	memcpy(un.sun_path, path, strlen(path) + 1);
	if (!list_alloc(list, 1))
		return no_memory(text, error);
	list_add(list, &un, sizeof(un));
	return LB_OK;
}

static enum lb_code
resolve_host(const char *text, const struct address_parts *parts, struct lb_address_list *list, struct lb_error *error)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	struct addrinfo *found;
	size_t count = 0;
	int problem = getaddrinfo(parts->host, parts->port, &hints, &found);

	if (problem == EAI_MEMORY)
		return no_memory(text, error);
	if (problem != 0)
		return lb_error_set(error, LB_CANNOT_CONNECT, NULL, -1, -1,
		    "%.200s: cannot resolve the host \"%.200s\": %s",
		    text, parts->host, problem == EAI_SYSTEM ? strerror(errno) : gai_strerror(problem));
	for (struct addrinfo *info = found; info != NULL; info = info->ai_next)
		count++;
	if (!list_alloc(list, count)) {
		freeaddrinfo(found);
		return no_memory(text, error);
	}
	for (struct addrinfo *info = found; info != NULL; info = info->ai_next)
		list_add(list, info->ai_addr, info->ai_addrlen);
	freeaddrinfo(found);
	return LB_OK;
}

/* *parts is filled in for a host. */
static enum lb_code
parse(const char *text, struct address_parts *parts, struct lb_error *error)
{
	const char *problem;

	if (text == NULL)
		return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1,
		    "a broker's address is missing; write host:port, [v6]:port or unix:/path");
	problem = unix_path(text) != NULL ? unix_problem(unix_path(text)) : split(text, parts);
	if (problem != NULL)
		return lb_error_set(error, LB_INVALID_ARGUMENT, NULL, -1, -1, "\"%.200s\" is no broker's address: %s", text,
		    problem);
	return LB_OK;
}

enum lb_code
lb_address_check(const char *text, struct lb_error *error)
{
	struct address_parts parts;

	return parse(text, &parts, error);
}

enum lb_code
lb_address_resolve(const char *text, struct lb_address_list *list, struct lb_error *error)
{
	struct address_parts parts;
	enum lb_code code = parse(text, &parts, error);

	if (code != LB_OK)
		return code;
	return unix_path(text) != NULL ? resolve_unix(text, list, error) : resolve_host(text, &parts, list, error);
}

void
lb_address_free(struct lb_address_list *list)
{
	free(list->entries);
	free(list->lengths);
	*list = (struct lb_address_list){ 0 };
}
