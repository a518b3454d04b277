/* Opening listening sockets; see endpoint.h. */
#include "supervisor/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"

enum {
	KEEPALIVE_IDLE_S = 60,
	KEEPALIVE_INTERVAL_S = 10,
	KEEPALIVE_PROBES = 6,
	LOCK_TRIES = 40,
	LOCK_PAUSE_MS = 50,
};

static void
set_option(int fd, int level, int option, int value)
{
	setsockopt(fd, level, option, &value, sizeof(value));
}

/* Connections inherit these from the socket that they were accepted on. */
static void
set_tcp_options(int fd)
{
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
}

/* What the socket is really bound to; NULL with errno when that cannot be told. */
static char *
describe(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_un local;
		struct sockaddr_storage room;
	} name = { .any.sa_family = AF_UNSPEC };
	socklen_t length = sizeof(name);
	char host[NI_MAXHOST], port[NI_MAXSERV], *text = NULL;
	int n;

	if (getsockname(fd, &name.any, &length) != 0)
		return NULL;
	if (name.any.sa_family == AF_UNIX) {
		size_t room = length - offsetof(struct sockaddr_un, sun_path);

		n = asprintf(&text, "unix:%.*s", (int)strnlen(name.local.sun_path, room), name.local.sun_path);
		return n < 0 ? NULL : text;
	}
	if (getnameinfo(&name.any, length, host, sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
		errno = EAFNOSUPPORT;
		return NULL;
	}
	n = asprintf(&text, name.any.sa_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
	return n < 0 ? NULL : text;
}

/* The new entry, blank; NULL with errno. */
static struct endpoint *
add(struct endpoints *endpoints)
{
	struct endpoint *list = realloc(endpoints->list, ((size_t)endpoints->count + 1) * sizeof(*list));

	if (list == NULL)
		return NULL;
	endpoints->list = list;
	list[endpoints->count] = (struct endpoint){ .descriptor = -1 };
	return &list[endpoints->count];
}

/* On failure the descriptor is still the caller's. */
static int
add_described(struct endpoints *endpoints, int fd)
{
	struct endpoint *endpoint = add(endpoints);

	if (endpoint == NULL)
		return -1;
	endpoint->text = describe(fd);
	if (endpoint->text == NULL)
		return -1;
	endpoint->descriptor = fd;
	endpoints->count++;
	return 0;
}

static int
open_one_tcp(struct endpoints *endpoints, const struct addrinfo *info)
{
	int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, info->ai_protocol);
	int error;

	if (fd < 0)
		return -1;
	set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (info->ai_family == AF_INET6)
		set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	set_tcp_options(fd);
	if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0 &&
	    add_described(endpoints, fd) == 0)
		return 0;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

static void
complain(const char *text, int error)
{
	const char *remedy = "";

	if (error == EADDRINUSE)
		remedy = " (another program listens there: ss -ltnp names it)";
	else if (error == EADDRNOTAVAIL)
		remedy = " (no interface of this machine has it)";
	else if (error == EACCES)
		remedy = " (this user may not)";
	log_error("cannot listen on %s: %s%s", text, strerror(error), remedy);
}

static bool
seen_before(const struct addrinfo *first, const struct addrinfo *info)
{
	for (; first != info; first = first->ai_next)
		if (first->ai_addrlen == info->ai_addrlen && memcmp(first->ai_addr, info->ai_addr, info->ai_addrlen) == 0)
			return true;
	return false;
}

/* One that this machine does not have ("localhost" as ::1 where IPv6 is off) is left out while another one works. */
static bool
may_be_left_out(int error)
{
	return error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
}

static int
open_tcp(struct endpoints *endpoints, const struct settings_address *address)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
	struct addrinfo *list;
	int result = getaddrinfo(address->host, address->port, &hints, &list);
	int opened = 0, error = EADDRNOTAVAIL;

	if (result != 0) {
		log_error("cannot listen on %s: %s", address->text,
		    result == EAI_SYSTEM ? strerror(errno) : gai_strerror(result));
		return -1;
	}
	for (const struct addrinfo *info = list; info != NULL; info = info->ai_next) {
		if (seen_before(list, info))
			continue;
		if (open_one_tcp(endpoints, info) == 0) {
			opened++;
			continue;
		}
		error = errno;
		if (!may_be_left_out(error))
			break;
	}
	freeaddrinfo(list);
	if (opened > 0 && may_be_left_out(error))
		return 0;
	complain(address->text, error);
	return -1;
}

/*
 * Makes room for a socket file. Returns 0 when the path is free now, else -1 with errno: EADDRINUSE when somebody
 * listens there (or it cannot be ruled out), EEXIST when it is no socket.
 */
static int
remove_stale(const struct sockaddr_un *name)
{
	struct stat st;
	int fd, connected, error;

	if (lstat(name->sun_path, &st) != 0)
		return errno == ENOENT ? 0 : -1;
	if (!S_ISSOCK(st.st_mode)) {
		errno = EEXIST;
		return -1;
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	connected = connect(fd, (const struct sockaddr *)name, sizeof(*name));
	error = connected == 0 ? 0 : errno;
	close(fd);
	if (error == ECONNREFUSED)
		return unlink(name->sun_path);
	errno = EADDRINUSE;
	return -1;
}

/*
 * Between bind and listen a socket looks like one at which nobody listens: another broker that starts just then would
 * take its file away. So each holds a lock on the directory from looking to listening. It is soon free again, or some
 * other program's: then, or when the directory cannot be opened, it goes without. Returns the descriptor, or -1.
 */
static int
lock_directory(const char *path)
{
	static const struct timespec pause = { 0, LOCK_PAUSE_MS * 1000000L };
	const char *slash = strrchr(path, '/');
	char *directory = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
	int fd = directory == NULL ? -1 : open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	free(directory);
	for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) != 0; i++)
		nanosleep(&pause, NULL);
	return fd;
}

static int
bind_unix(int fd, const struct sockaddr_un *name, mode_t mode, struct endpoint *endpoint)
{
	struct stat st;

	if (remove_stale(name) != 0 || bind(fd, (const struct sockaddr *)name, sizeof(*name)) != 0)
		return -1;
	if (lstat(name->sun_path, &st) != 0)
		return -1;
	endpoint->device = st.st_dev;
	endpoint->inode = st.st_ino;
	if (chmod(name->sun_path, mode) == 0 && listen(fd, SOMAXCONN) == 0)
		return 0;
	unlink(name->sun_path);
	return -1;
}

static int
open_unix(struct endpoints *endpoints, const char *path, mode_t mode)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	struct endpoint *endpoint = add(endpoints);
	int fd = -1, lock = -1;

	if (endpoint == NULL)
		goto fail;
	if (strlen(path) >= sizeof(name.sun_path)) {
		errno = ENAMETOOLONG;
		goto fail;
	}
	memcpy(name.sun_path, path, strlen(path) + 1);
	endpoint->path = strdup(path);
	if (endpoint->path == NULL || asprintf(&endpoint->text, "unix:%s", path) < 0)
		goto fail;
	lock = lock_directory(path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0 || bind_unix(fd, &name, mode, endpoint) != 0)
		goto fail;
	endpoint->descriptor = fd;
	endpoints->count++;
	if (lock >= 0)
		close(lock);
	return 0;
fail:
	log_error("cannot listen on unix:%s: %s%s", path, strerror(errno),
	    errno == EEXIST ? " and is not a socket: remove it, or choose another path" :
	    errno == EADDRINUSE ? " (another program listens there)" : "");
	if (lock >= 0)
		close(lock);
	if (fd >= 0)
		close(fd);
	if (endpoint != NULL) {
		free(endpoint->path);
		free(endpoint->text);
	}
	return -1;
}

int
endpoints_open(struct endpoints *endpoints, const struct settings_address *address, mode_t mode)
{
	if (address->path != NULL)
		return open_unix(endpoints, address->path, mode);
	return open_tcp(endpoints, address);
}

static int
get_option(int fd, int option)
{
	int value = -1;
	socklen_t length = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 ? value : -1;
}

int
endpoints_adopt(struct endpoints *endpoints, int descriptor)
{
	int domain = get_option(descriptor, SO_DOMAIN);

	if (get_option(descriptor, SO_ACCEPTCONN) != 1 || get_option(descriptor, SO_TYPE) != SOCK_STREAM ||
	    (domain != AF_INET && domain != AF_INET6 && domain != AF_UNIX)) {
		log_error("descriptor %d, passed by the service manager, is not a listening stream socket", descriptor);
		return -1;
	}
	if (fcntl(descriptor, F_SETFD, FD_CLOEXEC) != 0 ||
	    fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK) != 0 ||
	    add_described(endpoints, descriptor) != 0) {
		log_error("cannot use descriptor %d, passed by the service manager: %s", descriptor, strerror(errno));
		return -1;
	}
	if (domain != AF_UNIX)
		set_tcp_options(descriptor);
	return 0;
}

static void
remove_own_file(const struct endpoint *endpoint)
{
	struct stat st;

	if (lstat(endpoint->path, &st) == 0 && st.st_dev == endpoint->device && st.st_ino == endpoint->inode)
		unlink(endpoint->path);
}

void
endpoints_close(struct endpoints *endpoints)
{
	for (int i = 0; i < endpoints->count; i++) {
		struct endpoint *endpoint = &endpoints->list[i];

		if (endpoint->path != NULL)
			remove_own_file(endpoint);
		if (endpoint->descriptor >= 0)
			close(endpoint->descriptor);
		free(endpoint->path);
		free(endpoint->text);
	}
	free(endpoints->list);
	memset(endpoints, 0, sizeof(*endpoints));
}
