/*
 * Addresses of brokers. A port has to be named: a default would let a typing mistake reach some other service.
 */
#include "client/address.h"

#include <sys/un.h>

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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
		return "unix: needs an absolute path, unix:/path";
	return strlen(path) < sizeof(un.sun_path) ? NULL : "the path of a Unix socket has at most 107 bytes";
}

static const char *
port_problem(const char *port)
{
	size_t length = strspn(port, "0123456789");

	if (length == 0 || port[length] != '\0' || length >= ADDRESS_PORT_BYTES)
		return "the port must be a number from 1 to 65535";
	if (atoi(port) < 1 || atoi(port) > 65535)
		return "the port must be a number from 1 to 65535";
	return NULL;
}

/* Splits at the last colon; a host that holds colons itself must stand in brackets. */
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

const char *
address_problem(const char *text)
{
	struct address_parts parts;
	const char *path = unix_path(text);

	return path != NULL ? unix_problem(path) : split(text, &parts);
}

static bool
list_alloc(struct address_list *list, size_t count)
{
	list->count = 0;
	list->entries = calloc(count, sizeof(*list->entries));
	list->lengths = calloc(count, sizeof(*list->lengths));
	if (list->entries != NULL && list->lengths != NULL)
		return true;
	address_free(list);
	return false;
}

static void
list_add(struct address_list *list, const void *address, socklen_t length)
{
	memcpy(&list->entries[list->count], address, length);
	list->lengths[list->count] = length;
	list->count++;
}

static const char *
resolve_unix(const char *path, struct address_list *list)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	memcpy(un.sun_path, path, strlen(path) + 1);
	if (!list_alloc(list, 1))
		return strerror(ENOMEM);
	list_add(list, &un, sizeof(un));
	return NULL;
}

static const char *
resolve_host(const struct address_parts *parts, struct address_list *list)
{
	struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
	struct addrinfo *found;
	size_t count = 0;
	int error = getaddrinfo(parts->host, parts->port, &hints, &found);

	if (error != 0)
		return error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error);
	for (struct addrinfo *info = found; info != NULL; info = info->ai_next)
		count++;
	if (!list_alloc(list, count)) {
		freeaddrinfo(found);
		return strerror(ENOMEM);
	}
	for (struct addrinfo *info = found; info != NULL; info = info->ai_next)
		list_add(list, info->ai_addr, info->ai_addrlen);
	freeaddrinfo(found);
	return NULL;
}

const char *
address_resolve(const char *text, struct address_list *list)
{
	struct address_parts parts;
	const char *path = unix_path(text);
	const char *problem = path != NULL ? unix_problem(path) : split(text, &parts);

	if (problem != NULL)
		return problem;
	return path != NULL ? resolve_unix(path, list) : resolve_host(&parts, list);
}

void
address_free(struct address_list *list)
{
	free(list->entries);
	free(list->lengths);
	*list = (struct address_list){ 0 };
}
