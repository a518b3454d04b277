/*
 * Where a broker is: "host:port", "[v6]:port" or "unix:/path" into socket addresses to try one after the other.
 */
#ifndef CLIENT_ADDRESS_H
#define CLIENT_ADDRESS_H

#include <sys/socket.h>

#include <stddef.h>

struct address_list {
	struct sockaddr_storage *entries;
	socklen_t *lengths;
	size_t count;
};

/* What is wrong with the text of an address, or NULL. Looks up nothing. */
const char *address_problem(const char *text);

/*
 * All addresses of a well-formed text, in the resolver's order. Returns NULL, or what went wrong in words (valid
 * until the next call); then there is nothing to free.
 */
const char *address_resolve(const char *text, struct address_list *list);
void address_free(struct address_list *list);

#endif
