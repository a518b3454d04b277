/*
 * Stands in for getaddrinfo in this program: the name "several.test" has the addresses 127.0.0.1, 127.0.0.2, ... in
 * an order that the test says; other names of .test fail as it says. The rest is the C library's.
 */
#ifndef TESTS_RESOLVER_H
#define TESTS_RESOLVER_H

/* The last bytes of several.test's addresses: "321" is 127.0.0.3, 127.0.0.2, 127.0.0.1. */
void resolver_set_order(const char *order);
/* What getaddrinfo returns for the others, and errno with EAI_SYSTEM. */
void resolver_set_failure(int error, int system_error);

#endif
