/*
 * Where a broker is: "host:port", "[v6]:port" or "unix:/path" into socket addresses to try one after the other.
 */
#ifndef CLIENT_LIB_ADDRESS_H
#define CLIENT_LIB_ADDRESS_H

#include <sys/socket.h>

#include <stddef.h>

#include "client/lib/logbroker.h"

struct lb_address_list {
	struct sockaddr_storage *entries;
	socklen_t *lengths;
	size_t count;
};

/* LB_OK: it is written as one. LB_INVALID_ARGUMENT: it is not, or NULL. Resolves nothing. */
enum lb_code lb_address_check(const char *text, struct lb_error *error);
/*
 * All addresses of a text, in the resolver's order, at least one: LB_OK, and lb_address_free. Otherwise
 * LB_INVALID_ARGUMENT (lb_address_check), LB_CANNOT_CONNECT (its name cannot be resolved), LB_NO_MEMORY; then
 * there is nothing to free.
 */
enum lb_code lb_address_resolve(const char *text, struct lb_address_list *list, struct lb_error *error);
void lb_address_free(struct lb_address_list *list);

#endif
