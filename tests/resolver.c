/* See resolver.h. */
#include "tests/resolver.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef int resolve(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found);

static const char *several_order = "1";
static int failure = EAI_NONAME, failure_errno;

void
resolver_set_order(const char *order)
{
	several_order = order;
}

void
resolver_set_failure(int error, int system_error)
{
	failure = error;
	failure_errno = system_error;
}

/* In blocks of one each, as freeaddrinfo of the C library frees them: the address stands behind its addrinfo. */
static struct addrinfo *
new_info(char last_byte, int port)
{
	struct addrinfo *info = calloc(1, sizeof(*info) + sizeof(struct sockaddr_in));
	struct sockaddr_in *in = (struct sockaddr_in *)(info + 1);

	*in = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	in->sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xffu) | (uint32_t)(last_byte - '0'));
	*info = (struct addrinfo){ .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_addrlen = sizeof(*in),
		.ai_addr = (struct sockaddr *)in };
	return info;
}

int
getaddrinfo(const char *restrict node, const char *restrict service, const struct addrinfo *restrict hints,
    struct addrinfo **restrict found)
{
	size_t length = strlen(node);
	struct addrinfo **end = found;

	if (strcmp(node, "several.test") == 0) {
		for (const char *at = several_order; *at != '\0'; at++) {
			*end = new_info(*at, atoi(service));
			end = &(*end)->ai_next;
		}
		return 0;
	}
	if (length > 5 && strcmp(node + length - 5, ".test") == 0) {
		errno = failure_errno;
		return failure;
	}
	return ((resolve *)dlsym(RTLD_NEXT, "getaddrinfo"))(node, service, hints, found);
}
