/* See procs.h. */
#include "procs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire.h"

/* ---- programs ------------------------------------------------------------------------------------------------ */

/* Everything that comes out of the pipe until its end or the deadline. */
static bool
read_all(int fd, char **text, int64_t until_ms)
{
	size_t length = 0;
	bool ended = false;

	*text = calloc(1, 1);
	while (!ended) {
		struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
		int64_t left = until_ms - wire_now_ms();
		ssize_t got;

		if (left <= 0 || poll(&poll_fd, 1, (int)left) == 0)
			break;
		*text = realloc(*text, length + 16385);
		got = read(fd, *text + length, 16384);
		if (got < 0 && errno == EINTR)
			continue;
		ended = got <= 0;
		length += got > 0 ? (size_t)got : 0;
		(*text)[length] = '\0';
	}
	return ended;
}

int
procs_run(const char *const *argv, char **text, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;
	char *output;
	int ends[2], status;
	bool ended;
	pid_t pid;

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

		dup2(null_fd, 0);
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	close(ends[1]);
	ended = read_all(ends[0], &output, until);
	close(ends[0]);
	if (!ended)
		kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (text != NULL)
		*text = output;
	else
		free(output);
	if (!ended)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const char *
procs_self(void)
{
	static char path[BROKER_PATH_BYTES];
	ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);

	ck_assert_int_gt(length, 0);
	path[length] = '\0';
	return path;
}

void
procs_skipped(const char *test, const char *why)
{
	printf("%s: skipped: %s\n", test, why);
	fflush(stdout);
}

/* ---- brokers in special circumstances ------------------------------------------------------------------------ */

bool
procs_start_unprivileged(struct broker *broker, const struct broker_config *config, const char **why)
{
	static char wrapper[128], user[32], group[32];
	struct broker_config own = config != NULL ? *config : (struct broker_config){ 0 };
	char program[BROKER_PATH_BYTES];
	const char *reach[] = { "setpriv", user, group, "--clear-groups", "test", "-x", program, NULL };
	int id = 40000 + getpid() % 20000;	/* descriptors in flight are counted per user: one of our own */

	if (geteuid() != 0) {
		broker_start(broker, config);
		return true;
	}
	snprintf(user, sizeof user, "--reuid=%d", id);
	snprintf(group, sizeof group, "--regid=%d", id);
	broker_build_path("logworker", program, sizeof program);
	if (procs_run(reach, NULL, 10000) != 0) {
		*why = "no setpriv here, or another user cannot reach the build";
		return false;
	}
	snprintf(wrapper, sizeof wrapper, "setpriv %s %s --clear-groups", user, group);
	own.wrapper = wrapper;
	broker_prepare(broker, &own);
	ck_assert_int_eq(chown(broker->directory, (uid_t)id, (gid_t)id), 0);
	broker_launch(broker);
	broker_wait_ready(broker);
	return true;
}

static void
copy_program(const char *from, const char *to)
{
	size_t length;
	char *bytes = procs_read_file(from, &length);

	procs_write_file(to, bytes, length);
	free(bytes);
	ck_assert_int_eq(chmod(to, 0755), 0);
}

/* The supervisor starts the logworker that stands beside itself. */
void
procs_gate_set_up(struct procs_gate *gate, const struct broker *broker)
{
	char build[BROKER_PATH_BYTES + 16], program[BROKER_PATH_BYTES], path[BROKER_PATH_BYTES + 64];
	char script[BROKER_PATH_BYTES * 4];

	snprintf(build, sizeof build, "%s/build", broker->directory);
	snprintf(gate->path, sizeof gate->path, "%s/closed", build);
	ck_assert_int_eq(mkdir(build, 0755), 0);
	broker_build_path("logsupervisor", program, sizeof program);
	snprintf(path, sizeof path, "%s/logsupervisor", build);
	copy_program(program, path);
	broker_build_path("logworker", program, sizeof program);
	snprintf(script, sizeof script, "#!/bin/sh\nwhile [ -e '%s' ]; do sleep 0.02; done\nexec '%s'\n", gate->path, program);
	snprintf(path, sizeof path, "%s/logworker", build);
	procs_write_file(path, script, strlen(script));
	ck_assert_int_eq(chmod(path, 0755), 0);
	setenv("LOGBROKER_BUILD", build, 1);
}

void
procs_gate_close(const struct procs_gate *gate)
{
	procs_write_file(gate->path, "", 0);
}

void
procs_gate_open(const struct procs_gate *gate)
{
	ck_assert_int_eq(unlink(gate->path), 0);
}

static void
badsync_path(const struct broker *broker, char *path, size_t size)
{
	snprintf(path, size, "%s/badsync", broker->directory);
}

void
procs_prepare_with_badsync(struct broker *broker, const struct broker_config *config)
{
	static char preload[BROKER_PATH_BYTES + 16] = "LD_PRELOAD=", control[BROKER_PATH_BYTES * 2] = "BADSYNC_FILE=";
	static const char *const environment[] = { preload, control, NULL };
	struct broker_config own = *config;
	size_t name = strlen("BADSYNC_FILE=");

	broker_build_path("tests/badsync.so", preload + 11, sizeof preload - 11);
	own.environment = environment;
	broker_prepare(broker, &own);
	badsync_path(broker, control + name, sizeof control - name);
}

void
procs_start_with_badsync(struct broker *broker, const struct broker_config *config)
{
	procs_prepare_with_badsync(broker, config);
	broker_launch(broker);
	broker_wait_ready(broker);
}

void
procs_let_barriers(const struct broker *broker, const char *what)
{
	char path[BROKER_PATH_BYTES + 16], next[BROKER_PATH_BYTES + 32];

	badsync_path(broker, path, sizeof path);
	snprintf(next, sizeof next, "%s.next", path);
	procs_write_file(next, what, strlen(what));
	ck_assert_int_eq(rename(next, path), 0);
}

/* ---- strace on a running process ----------------------------------------------------------------------------- */

/* Where Yama says so, only root and ancestors may attach. */
bool
procs_may_trace(void)
{
	FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	int scope = 0;

	if (file != NULL) {
		if (fscanf(file, "%d", &scope) != 1)
			scope = 0;
		fclose(file);
	}
	return (scope == 0 || (scope < 3 && geteuid() == 0)) && broker_have_strace();
}

void
procs_traced_to_the_end(void)
{
	const char *old = getenv("ASAN_OPTIONS");
	char all[1024];

	snprintf(all, sizeof all, "%s%sdetect_leaks=0", old != NULL ? old : "", old != NULL ? ":" : "");
	setenv("ASAN_OPTIONS", all, 1);
}

/* The value of a line of a status file; NULL when it is not there. */
static const char *
status_line(const char *path, const char *name, char *text, size_t size)
{
	size_t length = strlen(name);
	FILE *file = fopen(path, "re");
	const char *found = NULL;

	if (file == NULL)
		return NULL;
	while (found == NULL && fgets(text, (int)size, file) != NULL)
		if (strncmp(text, name, length) == 0 && text[length] == ':')
			found = text + length + 1;
	fclose(file);
	return found;
}

static bool
all_traced(pid_t pid)
{
	char path[64], thread_path[BROKER_PATH_BYTES], text[256];
	DIR *directory;
	struct dirent *entry;
	bool traced = true;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	directory = opendir(path);
	if (directory == NULL)
		return false;
	while ((entry = readdir(directory)) != NULL) {
		const char *value;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(thread_path, sizeof thread_path, "%s/%s/status", path, entry->d_name);
		value = status_line(thread_path, "TracerPid", text, sizeof text);
		if (value == NULL || atoi(value) == 0)
			traced = false;
	}
	closedir(directory);
	return traced;
}

void
procs_trace(struct procs_tracer *tracer, const struct broker *broker, pid_t pid, const char *options)
{
	static int number;
	char pid_text[32];
	char *words = strdup(options), *rest = NULL;
	const char *argv[40] = { "strace", "-f", "-qq", "-o", tracer->path, "-p", pid_text };
	int count = 7;
	int64_t until = wire_now_ms() + 10000;

	snprintf(tracer->path, sizeof tracer->path, "%s/trace.%d", broker->directory, ++number);
	snprintf(pid_text, sizeof pid_text, "%d", (int)pid);
	for (char *word = strtok_r(words, " ", &rest); word != NULL && count < 39; word = strtok_r(NULL, " ", &rest))
		argv[count++] = word;
	argv[count] = NULL;
	fflush(NULL);
	tracer->pid = fork();
	ck_assert_int_ge(tracer->pid, 0);
	if (tracer->pid == 0) {
		close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	while (!all_traced(pid)) {
		ck_assert_msg(wire_now_ms() < until, "strace does not attach to %d", (int)pid);
		usleep(1000);
	}
	free(words);
}

void
procs_untrace(struct procs_tracer *tracer)
{
	kill(tracer->pid, SIGINT);
	ck_assert_int_eq(waitpid(tracer->pid, NULL, 0), tracer->pid);
}

long
procs_count_lines(const char *path, const char *text, const char *and_text)
{
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;
	long count = 0;

	if (file == NULL)
		return -1;
	while (getline(&line, &size, file) >= 0)
		if (strstr(line, text) != NULL && (and_text == NULL || strstr(line, and_text) != NULL))
			count++;
	free(line);
	fclose(file);
	return count;
}

/* ---- /proc ---------------------------------------------------------------------------------------------------- */

uint64_t
procs_signal_mask(pid_t pid, const char *name)
{
	char path[64], text[256];
	const char *value;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	value = status_line(path, name, text, sizeof text);
	ck_assert_ptr_nonnull(value);
	return strtoull(value, NULL, 16);
}

int
procs_lowest_free_fd(pid_t pid)
{
	char path[64];

	for (int fd = 0;; fd++) {
		char link[BROKER_PATH_BYTES];

		snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
		if (readlink(path, link, sizeof link) < 0)
			return fd;
	}
}

int
procs_zombies(pid_t parent)
{
	char path[64], text[256], *line;
	FILE *file;
	long pid;
	int count = 0;

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
	file = fopen(path, "re");
	if (file == NULL)
		return -1;
	while (fscanf(file, "%ld", &pid) == 1) {
		snprintf(path, sizeof path, "/proc/%ld/status", pid);
		line = (char *)status_line(path, "State", text, sizeof text);
		if (line != NULL && line[strspn(line, " \t")] == 'Z')
			count++;
	}
	fclose(file);
	return count;
}

static int
count_threads(pid_t pid)
{
	char path[64], text[256];
	const char *value;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	value = status_line(path, "Threads", text, sizeof text);
	return value != NULL ? atoi(value) : 0;
}

bool
procs_wait_dead(pid_t pid, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;

	if (!broker_wait_gone(pid, deadline_ms))
		return false;
	while (count_threads(pid) > 1) {
		if (wire_now_ms() > until)
			return false;
		usleep(500);
	}
	return true;
}

bool
procs_wait_fd_count(pid_t pid, int count, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;
	int now;

	while ((now = broker_fd_count(pid)) != count) {
		if (wire_now_ms() > until) {
			fprintf(stderr, "process %d has %d descriptors, not %d\n", (int)pid, now, count);
			return false;
		}
		usleep(2000);
	}
	return true;
}

/* As the process's own user: root may be without CAP_SYS_RESOURCE in a container. */
void
procs_set_fd_limit(pid_t pid, int soft)
{
	char path[64];
	struct stat owner;
	struct rlimit limit;
	int status;
	pid_t child;

	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	ck_assert_int_eq(stat(path, &owner), 0);
	fflush(NULL);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		if (owner.st_uid != geteuid() && (setresgid(owner.st_gid, owner.st_gid, owner.st_gid) < 0 ||
		    setresuid(owner.st_uid, owner.st_uid, owner.st_uid) < 0))
			_exit(1);
		if (prlimit(pid, RLIMIT_NOFILE, NULL, &limit) < 0)
			_exit(2);
		limit.rlim_cur = soft > 0 ? (rlim_t)soft : limit.rlim_max;
		_exit(prlimit(pid, RLIMIT_NOFILE, &limit, NULL) < 0 ? 3 : 0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(status == 0, "the descriptor limit of %d cannot be set (%d)", (int)pid, WEXITSTATUS(status));
}

struct peer {
	unsigned long inode;
	unsigned unread;	/* bytes in its receive queue */
};

/* The other end of one of our TCP connections over loopback. */
static bool
find_peer(int fd, struct peer *peer)
{
	struct sockaddr_in mine, other;
	socklen_t length = sizeof mine;
	char line[512];
	FILE *file;
	bool found = false;

	if (getsockname(fd, (struct sockaddr *)&mine, &length) < 0 || mine.sin_family != AF_INET)
		return false;
	length = sizeof other;
	if (getpeername(fd, (struct sockaddr *)&other, &length) < 0)
		return false;
	file = fopen("/proc/net/tcp", "re");
	ck_assert_ptr_nonnull(file);
	while (!found && fgets(line, sizeof line, file) != NULL) {
		unsigned local, remote, unread;
		unsigned long inode;

		if (sscanf(line, " %*d: %*x:%x %*x:%x %*x %*x:%x %*x:%*x %*x %*d %*d %lu", &local, &remote, &unread,
		    &inode) != 4)
			continue;
		if (local == ntohs(other.sin_port) && remote == ntohs(mine.sin_port)) {
			*peer = (struct peer){ inode, unread };
			found = true;
		}
	}
	fclose(file);
	return found;
}

/* How many descriptors of the process are that socket. */
static int
count_holding(pid_t pid, const struct peer *peer)
{
	char link[64];

	snprintf(link, sizeof link, "socket:[%lu]", peer->inode);
	return broker_fd_count_of(pid, link);
}

pid_t
procs_owner_of(const struct broker *broker, int fd, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;
	struct peer peer;

	if (!find_peer(fd, &peer) || peer.inode == 0)
		return 0;
	do {
		pid_t pids[BROKER_WORKERS_MAX], owner = 0;
		int count = broker_workers(broker, pids, BROKER_WORKERS_MAX);
		int copies = count_holding(broker->pid, &peer);

		for (int i = 0; i < count; i++) {
			int held = count_holding(pids[i], &peer);

			if (held > 0)
				owner = pids[i];
			copies += held;
		}
		if (copies == 1 && owner != 0)
			return owner;
		usleep(500);
	} while (wire_now_ms() < until);
	return 0;
}

static bool
all_read(int fd)
{
	int unread = 0, domain = 0;
	socklen_t size = sizeof domain;
	struct peer peer;

	if (ioctl(fd, SIOCOUTQ, &unread) < 0 || unread > 0)
		return false;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX)
		return true;
	return find_peer(fd, &peer) && peer.unread == 0;
}

bool
procs_wait_read(int fd, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;

	while (!all_read(fd)) {
		if (wire_now_ms() > until)
			return false;
		usleep(200);
	}
	return true;
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

char *
procs_read_file(const char *path, size_t *length)
{
	FILE *file = fopen(path, "re");
	size_t used = 0, capacity = 65536;
	char *text = malloc(capacity + 1);

	if (file == NULL)
		ck_abort_msg("%s: %s", path, strerror(errno));
	for (;;) {
		size_t got = fread(text + used, 1, capacity - used, file);

		if (got == 0)
			break;
		used += got;
		if (used == capacity)
			text = realloc(text, (capacity *= 2) + 1);
	}
	fclose(file);
	text[used] = '\0';
	if (length != NULL)
		*length = used;
	return text;
}

void
procs_write_file(const char *path, const void *data, size_t length)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, data, length) != (ssize_t)length || close(fd) < 0)
		ck_abort_msg("%s: %s", path, strerror(errno));
}

void
procs_patch_file(const char *path, int64_t position, const void *data, size_t length)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || pwrite(fd, data, length, position) != (ssize_t)length || close(fd) < 0)
		ck_abort_msg("%s: %s", path, strerror(errno));
}

int64_t
procs_file_size(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 ? status.st_size : -1;
}

/* ---- mounting ------------------------------------------------------------------------------------------------- */

static bool
write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return done;
}

bool
procs_may_mount(void)
{
	char map[64];
	uid_t uid = geteuid();
	gid_t gid = getegid();

	if (unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) < 0)
		return false;
	if (uid != 0) {
		snprintf(map, sizeof map, "0 %d 1\n", (int)uid);
		if (!write_text("/proc/self/uid_map", map) || !write_text("/proc/self/setgroups", "deny"))
			return false;
		snprintf(map, sizeof map, "0 %d 1\n", (int)gid);
		if (!write_text("/proc/self/gid_map", map))
			return false;
	}
	return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}
