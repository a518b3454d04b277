/*
 * From an address to an open connection of the client library, and all the ways in which that fails.
 */
#include <arpa/inet.h>
#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/lib/watch.h"
#include "tests/completions.h"
#include "tests/peer.h"
#include "tests/resolver.h"
#include "tests/unit.h"

static struct peer peer;
static struct lb_connection *connection;
static struct completion seen;
static char directory[32];
static char socket_path[40];

/* While set, connect() does what the kernel may happen to do: it takes the other side's port for ours. */
static bool connects_to_itself;

typedef int connect_function(int fd, const struct sockaddr *address, socklen_t length);

int
connect(int fd, const struct sockaddr *address, socklen_t length)
{
	if (connects_to_itself)
		ck_assert_int_eq(bind(fd, address, length), 0);
	return ((connect_function *)dlsym(RTLD_NEXT, "connect"))(fd, address, length);
}

static void
setup(void)
{
	connects_to_itself = false;
	snprintf(directory, sizeof(directory), "/tmp/lib-connecting-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(socket_path, sizeof(socket_path), "%s/s", directory);
	completion_init(&seen);
	completions_begin();
	peer_listen(&peer);
}

static void
teardown(void)
{
	peer_stop(&peer);
	unlink(socket_path);
	rmdir(directory);
}

static void
open_at(const char *address, int timeout_ms)
{
	struct lb_connection_options options = lb_connection_defaults();
	struct lb_error error = { .text = "" };

	options.timeout_ms = timeout_ms;
	ck_assert_msg(lb_connection_open(&connection, address, &options, &error) == LB_OK, "%s", error.text);
}

static void
open_several(const char *order, int timeout_ms)
{
	char address[64];

	resolver_set_order(order);
	snprintf(address, sizeof(address), "several.test:%d", peer_port(&peer));
	open_at(address, timeout_ms);
}

/* One request, there and back. */
static void
expect_service(void)
{
	struct wire_bytes answer = { 0 };
	struct peer_request request;

	submit_fetch(connection, 0, &seen);
	if (peer.fd < 0)
		peer_accept(&peer, lb_connection_source(connection));
	request = peer_take(&peer);
	peer_put_good(&answer, &request);
	peer_send(&peer, answer.data, answer.length);
	await_completion(connection, &seen);
	ck_assert_int_eq(seen.code, LB_OK);
	wire_bytes_free(&answer);
}

static const struct lb_error *
expect_failure(void)
{
	int64_t until_ms = wire_now_ms() + 30000;

	while (lb_connection_failure(connection) == NULL) {
		ck_assert(wire_now_ms() < until_ms);
		lb_source_poll(lb_connection_source(connection), 100);
	}
	ck_assert_int_eq(lb_connection_failure(connection)->code, LB_CANNOT_CONNECT);
	return lb_connection_failure(connection);
}

static void
expect_word(const char *text, const char *word)
{
	ck_assert_msg(strstr(text, word) != NULL, "no \"%s\" in \"%s\"", word, text);
}

/* ---- good ones ---- */

START_TEST(a_socket_has_what_it_needs)
{
	int fd, value = 0;
	socklen_t size = sizeof(value);

	open_at(peer.address, 5000);
	expect_service();
	fd = lb_source_wants(lb_connection_source(connection)).fd;
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
	ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
	ck_assert_int_ne(value, 0);
	ck_assert_int_eq(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &size), 0);
	ck_assert_int_ne(value, 0);
	lb_connection_free(connection);
}
END_TEST

START_TEST(a_unix_socket_is_an_address)
{
	struct peer local;

	peer_stop(&peer);
	peer_listen_unix(&local, socket_path);
	peer = local;
	open_at(peer.address, 5000);
	expect_service();
	lb_connection_free(connection);
}
END_TEST

START_TEST(an_ipv6_address_stands_in_brackets)
{
	struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t length = sizeof(in6);
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&in6, length) != 0) {
		printf("an_ipv6_address_stands_in_brackets: skipped, there is no ::1 here\n");
		return;
	}
	ck_assert_int_eq(listen(fd, 16), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&in6, &length), 0);
	close(peer.listener);
	peer.listener = fd;
	snprintf(peer.address, sizeof(peer.address), "[::1]:%d", ntohs(in6.sin6_port));
	open_at(peer.address, 5000);
	expect_service();
	lb_connection_free(connection);
}
END_TEST

/* ---- several addresses ---- */

START_TEST(addresses_that_refuse_are_passed_over)
{
	open_several("321", 5000);
	expect_service();
	lb_connection_free(connection);
}
END_TEST

/* It has its share of the time only. The descriptor changes, and the one before is not closed before the next turn. */
START_TEST(an_address_that_is_silent_is_given_up)
{
	struct peer deaf;
	int fillers[2];
	int first, second;

	peer_listen_at(&deaf, 2, peer_port(&peer));
	peer_fill_backlog(&deaf, fillers);
	open_several("21", 60000);
	ck_assert_int_le(lb_source_wants(lb_connection_source(connection)).timeout_ms, 30000);
	lb_connection_free(connection);
	open_several("21", 3000);
	first = lb_source_wants(lb_connection_source(connection)).fd;
	ck_assert_int_ge(first, 0);
	do {
		lb_source_poll(lb_connection_source(connection), 1000);
		second = lb_source_wants(lb_connection_source(connection)).fd;
	} while (second == first);
	ck_assert_int_ge(fcntl(first, F_GETFD), 0);
	lb_source_process(lb_connection_source(connection));
	ck_assert_int_eq(fcntl(first, F_GETFD), -1);
	expect_service();
	lb_connection_free(connection);
	peer_stop(&deaf);
}
END_TEST

START_TEST(silence_everywhere_ends_with_the_deadline)
{
	int fillers[2];
	int64_t begin_ms = wire_now_ms();

	peer_fill_backlog(&peer, fillers);
	open_several("11", 200);
	submit_fetch(connection, 60000, &seen);
	expect_word(expect_failure()->text, "no answer in time");
	ck_assert_int_ge(wire_now_ms() - begin_ms, 200);
	ck_assert_int_eq(seen.times, 1);
	ck_assert_int_eq(seen.code, LB_CANNOT_CONNECT);
	lb_connection_free(connection);
}
END_TEST

START_TEST(a_full_backlog_of_a_unix_socket_is_waited_for)
{
	struct peer local;
	int fillers[2];

	peer_stop(&peer);
	peer_listen_unix(&local, socket_path);
	peer = local;
	peer_fill_backlog(&peer, fillers);
	open_at(peer.address, 30000);
	for (int i = 0; i < 5; i++)
		lb_source_poll(lb_connection_source(connection), 20);
	ck_assert(!lb_connection_is_open(connection));
	ck_assert_ptr_null(lb_connection_failure(connection));
	ck_assert_int_eq(lb_source_wants(lb_connection_source(connection)).fd, -1);
	close(accept4(peer.listener, NULL, NULL, SOCK_CLOEXEC));
	while (!lb_connection_is_open(connection))
		lb_source_poll(lb_connection_source(connection), 1000);
	expect_service();
	lb_connection_free(connection);
}
END_TEST

/* As producers and subscriptions hold their connections: also one that has no descriptor to wait for, once more after another. */
START_TEST(an_epoll_set_follows_a_connection)
{
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC), fillers[2];
	struct epoll_event event = { 0 };
	struct lb_watch watch;
	struct peer local;

	lb_watch_init(&watch, epoll_fd);
	open_at(peer.address, 30000);
	ck_assert(lb_watch_follow(&watch, connection, &watch));
	ck_assert_int_eq(epoll_wait(epoll_fd, &event, 1, 30000), 1);
	lb_watch_end(&watch);
	ck_assert_int_eq(epoll_wait(epoll_fd, &event, 1, 0), 0);
	lb_connection_free(connection);
	peer_stop(&peer);
	peer_listen_unix(&local, socket_path);
	peer = local;
	peer_fill_backlog(&peer, fillers);
	open_at(peer.address, 30000);
	ck_assert(lb_watch_follow(&watch, connection, &watch));
	ck_assert_int_eq(epoll_wait(epoll_fd, &event, 1, 0), 0);
	close(accept4(peer.listener, NULL, NULL, SOCK_CLOEXEC));
	while (!lb_connection_is_open(connection))
		lb_source_poll(lb_connection_source(connection), 1000);
	ck_assert(lb_watch_follow(&watch, connection, &watch));
	ck_assert_int_eq(epoll_wait(epoll_fd, &event, 1, 0), 0);
	peer_stop(&peer);
	ck_assert_int_eq(epoll_wait(epoll_fd, &event, 1, 30000), 1);
	ck_assert_ptr_eq(event.data.ptr, &watch);
	while (lb_connection_failure(connection) == NULL)
		lb_source_poll(lb_connection_source(connection), 1000);
	ck_assert(lb_watch_follow(&watch, connection, &watch));
	ck_assert_int_eq(epoll_wait(epoll_fd, &event, 1, 0), 0);
	lb_connection_free(connection);
	close(epoll_fd);
}
END_TEST

/* ---- failures ---- */

START_TEST(a_refused_connect_is_told_with_its_address)
{
	struct lb_error error;
	struct lb_fetch fetch = { .topic = "t", .max_bytes = 1 };
	const char *text;

	open_several("32", 5000);
	text = expect_failure()->text;
	expect_word(text, "several.test:");
	expect_word(text, "any of its addresses");
	expect_word(text, "Connection refused");
	ck_assert_int_eq(lb_connection_submit_fetch(connection, &fetch, completion_fetched, &seen, &error), LB_CANNOT_CONNECT);
	ck_assert_str_eq(error.text, text);
	ck_assert_int_eq(lb_connection_fetch(connection, &fetch, NULL, NULL), LB_CANNOT_CONNECT);
	ck_assert_int_eq(lb_source_wants(lb_connection_source(connection)).timeout_ms, -1);
	lb_connection_free(connection);
	ck_assert_int_eq(seen.times, 0);
}
END_TEST

START_TEST(a_unix_socket_that_is_not_there_is_told)
{
	char address[80];

	snprintf(address, sizeof(address), "unix:%s", socket_path);
	open_at(address, 5000);
	expect_word(expect_failure()->text, "No such file");
	expect_word(expect_failure()->text, address);
	lb_connection_free(connection);
}
END_TEST

START_TEST(a_connection_to_itself_is_none)
{
	char address[64];
	int port = peer_port(&peer);

	peer_stop(&peer);
	peer_listen(&peer);
	snprintf(address, sizeof(address), "127.0.0.1:%d", port);
	connects_to_itself = true;
	open_at(address, 5000);
	expect_word(expect_failure()->text, "Connection refused");
	lb_connection_free(connection);
}
END_TEST

START_TEST(names_that_do_not_resolve_are_told)
{
	const struct {
		int error, system_error;
		const char *word;
	} cases[] = { { EAI_NONAME, 0, "not known" }, { EAI_AGAIN, 0, "emporary" }, { EAI_SYSTEM, EMFILE, "Too many open files" } };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct lb_error error;

		resolver_set_failure(cases[i].error, cases[i].system_error);
		ck_assert_int_eq(lb_connection_open(&connection, "nowhere.test:9", NULL, &error), LB_CANNOT_CONNECT);
		ck_assert_ptr_null(connection);
		expect_word(error.text, "nowhere.test:9");
		expect_word(error.text, cases[i].word);
	}
}
END_TEST

START_TEST(texts_that_are_no_address_are_told)
{
	const char *texts[] = { "", ":", ":9", "host", "host:", "host:0", "host:65536", "host:9x", "host:-1", "host: 9", "::1:9", "[::1]",
		"[::1]9", "[]:9", "unix:", "unix:relative", "host:099999" };
	char long_path[200] = "unix:/";
	struct lb_error error;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		ck_assert_msg(lb_connection_open(&connection, texts[i], NULL, &error) == LB_INVALID_ARGUMENT, "%s", texts[i]);
		expect_word(error.text, texts[i]);
	}
	memset(long_path + 6, 'x', 110);
	ck_assert_int_eq(lb_connection_open(&connection, long_path, NULL, &error), LB_INVALID_ARGUMENT);
	ck_assert_int_eq(lb_connection_open(&connection, NULL, NULL, &error), LB_INVALID_ARGUMENT);
}
END_TEST

/* G7: whatever becomes of connections, their descriptors come back. */
START_TEST(bug_G7_descriptors_come_back)
{
	int before = unit_open_descriptors();

	for (int i = 0; i < 100; i++) {
		completion_init(&seen);
		if (i % 4 == 0) {
			open_several("32", 5000);
		} else {
			open_several("321", 5000);
			if (i % 4 == 1)
				expect_service();
			else if (i % 4 == 2)
				submit_fetch(connection, 0, &seen);
		}
		lb_connection_free(connection);
		peer_close(&peer);
		while ((peer.fd = accept4(peer.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
			peer_close(&peer);
		ck_assert_int_eq(unit_open_descriptors(), before);
	}
}
END_TEST

static Suite *
connecting_suite(void)
{
	Suite *suite = suite_create("lib_connecting");
	TCase *core = tcase_create("connecting");

	tcase_set_timeout(core, UNIT_TIMEOUT_S);
	tcase_add_checked_fixture(core, setup, teardown);
	tcase_add_test(core, a_socket_has_what_it_needs);
	tcase_add_test(core, a_unix_socket_is_an_address);
	tcase_add_test(core, an_ipv6_address_stands_in_brackets);
	tcase_add_test(core, addresses_that_refuse_are_passed_over);
	tcase_add_test(core, an_address_that_is_silent_is_given_up);
	tcase_add_test(core, silence_everywhere_ends_with_the_deadline);
	tcase_add_test(core, a_full_backlog_of_a_unix_socket_is_waited_for);
	tcase_add_test(core, an_epoll_set_follows_a_connection);
	tcase_add_test(core, a_refused_connect_is_told_with_its_address);
	tcase_add_test(core, a_unix_socket_that_is_not_there_is_told);
	tcase_add_test(core, a_connection_to_itself_is_none);
	tcase_add_test(core, names_that_do_not_resolve_are_told);
	tcase_add_test(core, texts_that_are_no_address_are_told);
	tcase_add_test(core, bug_G7_descriptors_come_back);
	suite_add_tcase(suite, core);
	return suite;
}

int
main(void)
{
	return unit_run(connecting_suite());
}
