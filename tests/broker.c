/*
 * Starts, watches and ends real brokers for the black-box tests. The broker's stderr is a pipe that a thread of the test
 * reads from start to end, so that a line can be waited for and the broker never blocks on it; the pipe's end says that
 * the last process of that broker is gone.
 */
#include "broker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire.h"

static char root[BROKER_PATH_BYTES];
static const char *default_write_mode = "";	/* a line of broker.ini */

/* ---- failing, the environment ------------------------------------------------------------------------------- */

static void print_log_tail(struct broker *broker);

#define FAIL(broker, ...) do { print_log_tail(broker); ck_abort_msg(__VA_ARGS__); } while (0)

static void
print_log_tail(struct broker *broker)
{
	size_t start;

	if (broker == NULL || broker->text == NULL)
		return;
	pthread_mutex_lock(&broker->mutex);
	start = broker->text_length > 6000 ? broker->text_length - 6000 : 0;
	fprintf(stderr, "--- the broker's last lines (%s)\n%.*s---\n", broker->log_path,
	    (int)(broker->text_length - start), broker->text + start);
	pthread_mutex_unlock(&broker->mutex);
}

int
broker_scale(void)
{
	const char *text = getenv("LOGBROKER_TEST_SCALE");
	int scale = text != NULL ? atoi(text) : 1;

	return scale >= 1 ? scale : 1;
}

uint64_t
broker_seed(const char *test)
{
	const char *text = getenv("LOGBROKER_TEST_SEED");
	uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)wire_now_us();

	printf("%s: LOGBROKER_TEST_SEED=%llu\n", test, (unsigned long long)seed);
	fflush(stdout);
	return seed;
}

bool
broker_have_strace(void)
{
	return system("strace -o /dev/null true >/dev/null 2>&1") == 0;
}

bool
broker_is_asan(void)
{
	char path[BROKER_PATH_BYTES];
	char command[BROKER_PATH_BYTES + 64];

	broker_build_path("logworker", path, sizeof path);
	snprintf(command, sizeof command, "grep -q __asan_init '%s'", path);
	return system(command) == 0;
}

/* The first of DIR/name, DIR/../name, ... that exists, DIR being where this program lies. */
static bool
look_upwards(const char *name, char *path, size_t size)
{
	char directory[BROKER_PATH_BYTES];
	ssize_t length = readlink("/proc/self/exe", directory, sizeof directory - 1);

	if (length < 0)
		return false;
	directory[length] = '\0';
	for (int level = 0; level < 4; level++) {
		char *slash = strrchr(directory, '/');

		if (slash == NULL)
			return false;
		*slash = '\0';
		snprintf(path, size, "%s/%s", directory, name);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

void
broker_build_path(const char *name, char *path, size_t size)
{
	const char *build = getenv("LOGBROKER_BUILD");
	char relative[BROKER_PATH_BYTES];
	char absolute[PATH_MAX];

	if (build != NULL)
		snprintf(relative, sizeof relative, "%s/%s", build, name);
	else if (!look_upwards(name, relative, sizeof relative))
		ck_abort_msg("%s: not beside this program or above it; set LOGBROKER_BUILD", name);
	if (realpath(relative, absolute) == NULL)
		ck_abort_msg("%s: %s", relative, strerror(errno));
	ck_assert_uint_lt(strlen(absolute), size);
	memcpy(path, absolute, strlen(absolute) + 1);
}

void
broker_source_path(const char *name, char *path, size_t size)
{
	const char *source = getenv("srcdir");
	char relative[BROKER_PATH_BYTES];

	if (source != NULL) {
		snprintf(path, size, "%s/tests/%s", source, name);
		if (access(path, F_OK) == 0)
			return;
	}
	snprintf(path, size, "%.*s%s", (int)(strlen(__FILE__) - strlen("broker.c")), __FILE__, name);
	if (access(path, F_OK) == 0)
		return;
	snprintf(relative, sizeof relative, "tests/%s", name);
	if (!look_upwards(relative, path, size))
		ck_abort_msg("tests/%s: not found; set srcdir", name);
}

static int
remove_entry(const char *path, const struct stat *status, int type, struct FTW *place)
{
	(void)status;
	(void)type;
	(void)place;
	remove(path);
	return 0;
}

static void
make_root(void)
{
	const char *directory = getenv("TMPDIR");

	if (directory == NULL || *directory != '/' || strlen(directory) > 40)
		directory = "/tmp";
	snprintf(root, sizeof root, "%s/lb-XXXXXX", directory);
	if (mkdtemp(root) == NULL || chmod(root, 0755) < 0) {
		perror(root);
		exit(1);
	}
}

int
broker_main(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	make_root();
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (getenv("LOGBROKER_TEST_KEEP") != NULL)
		printf("kept: %s\n", root);
	else
		nftw(root, remove_entry, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
	return failed == 0 ? 0 : 1;
}

/* ---- broker.ini --------------------------------------------------------------------------------------------- */

static bool
has_key(const char *lines, const char *key)
{
	size_t length = strlen(key);

	while (lines != NULL && *lines != '\0') {
		if (strncmp(lines, key, length) == 0) {
			const char *behind = lines + length + strspn(lines + length, " \t");

			if (*behind == '=')
				return true;
		}
		lines = strchr(lines, '\n');
		if (lines != NULL)
			lines++;
	}
	return false;
}

void
broker_use_mapped(void)
{
	default_write_mode = "write_mode = mapped\n";
}

static void
write_ini(struct broker *broker)
{
	const struct broker_config *config = &broker->config;
	const char *lines = config->broker != NULL ? config->broker : "";
	const char *log = config->log != NULL ? config->log : "";
	const char *write_mode = has_key(log, "write_mode") ? "" : default_write_mode;
	char path[BROKER_PATH_BYTES + 16];
	FILE *file;

	snprintf(path, sizeof path, "%s/broker.ini", broker->directory);
	file = fopen(path, "w");
	if (file == NULL)
		FAIL(broker, "%s: %s", path, strerror(errno));
	fprintf(file, "[broker]\n");
	if (!has_key(lines, "listen"))
		fprintf(file, "listen = 127.0.0.1:0, unix:%s\n", broker->unix_path);
	if (!has_key(lines, "http"))
		fprintf(file, "http = 127.0.0.1:0\n");
	if (!has_key(lines, "control"))
		fprintf(file, "control = %s\n", broker->control_path);
	if (!has_key(lines, "data_dir"))
		fprintf(file, "data_dir = %s\n", broker->data_dir);
	if (!has_key(lines, "workers"))
		fprintf(file, "workers = %d\n", config->workers ? config->workers : 2);
	fprintf(file, "%s", lines);
	fprintf(file, "[topics]\n%s", config->topics != NULL ? config->topics : "t = 1\n");
	if (*log != '\0' || *write_mode != '\0')
		fprintf(file, "[log]\n%s%s", log, write_mode);
	if (config->sections != NULL)
		fprintf(file, "%s", config->sections);
	if (fclose(file) != 0)
		FAIL(broker, "%s: %s", path, strerror(errno));
}

static void
set_path(char *path, const char *directory, const char *name)
{
	ck_assert_int_lt(snprintf(path, BROKER_PATH_BYTES, "%.*s/%s", BROKER_PATH_BYTES, directory, name), BROKER_PATH_BYTES);
}

void
broker_prepare(struct broker *broker, const struct broker_config *config)
{
	memset(broker, 0, sizeof *broker);
	if (config != NULL)
		broker->config = *config;
	if (*root == '\0')
		make_root();
	set_path(broker->directory, root, "XXXXXX");
	if (mkdtemp(broker->directory) == NULL || chmod(broker->directory, 0755) < 0)
		ck_abort_msg("%s: %s", broker->directory, strerror(errno));
	set_path(broker->log_path, broker->directory, "log");
	set_path(broker->strace_path, broker->directory, "strace.out");
	set_path(broker->unix_path, broker->directory, "sock");
	set_path(broker->control_path, broker->directory, "control.sock");
	if (broker->config.data_dir != NULL)
		snprintf(broker->data_dir, sizeof broker->data_dir, "%s", broker->config.data_dir);
	else
		set_path(broker->data_dir, broker->directory, "data");
	pthread_mutex_init(&broker->mutex, NULL);
	pthread_cond_init(&broker->news, NULL);
	broker->log_fd = open(broker->log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	ck_assert_int_ge(broker->log_fd, 0);
	broker->log_ended = true;
	write_ini(broker);
}

/* ---- starting ----------------------------------------------------------------------------------------------- */

/* With the mutex held, so that whoever has it and finds the pipe empty knows all that was written. Returns 0 at the end. */
static ssize_t
take_piece(struct broker *broker)
{
	char piece[16384];
	ssize_t got = read(broker->pipe, piece, sizeof piece);

	if (got <= 0)
		return got < 0 && errno == EINTR ? 1 : 0;
	if (write(broker->log_fd, piece, (size_t)got) != got)
		perror(broker->log_path);
	broker->text = realloc(broker->text, broker->text_length + (size_t)got + 1);
	if (broker->text == NULL)
		abort();
	memcpy(broker->text + broker->text_length, piece, (size_t)got);
	broker->text_length += (size_t)got;
	broker->text[broker->text_length] = '\0';
	return got;
}

static void *
read_log(void *arg)
{
	struct broker *broker = arg;
	struct pollfd p = { .fd = broker->pipe, .events = POLLIN };
	ssize_t got = 1;

	while (got != 0) {
		/* With the mutex held nothing is waited for. */
		if (poll(&p, 1, -1) != 1)
			continue;
		pthread_mutex_lock(&broker->mutex);
		got = take_piece(broker);
		pthread_cond_broadcast(&broker->news);
		pthread_mutex_unlock(&broker->mutex);
	}
	pthread_mutex_lock(&broker->mutex);
	broker->log_ended = true;
	pthread_cond_broadcast(&broker->news);
	pthread_mutex_unlock(&broker->mutex);
	return NULL;
}

enum { ARGUMENTS_MAX = 64 };

/* Appends the words of `text` (which is cut up) to argv. */
static void
add_words(char **argv, int *count, char *text)
{
	char *rest = NULL;

	for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
		if (*count < ARGUMENTS_MAX - 8)
			argv[(*count)++] = word;
}

static void
add_sanitizer_option(const char *option)
{
	const char *old = getenv("ASAN_OPTIONS");
	char all[1024];

	snprintf(all, sizeof all, "%s%s%s", old != NULL ? old : "", old != NULL ? ":" : "", option);
	setenv("ASAN_OPTIONS", all, 1);
}

/* In the child: the program replaces it. */
static void
execute(struct broker *broker, const char *program, int log_pipe)
{
	const struct broker_config *config = &broker->config;
	char ini[BROKER_PATH_BYTES + 16];
	char *argv[ARGUMENTS_MAX];
	int count = 0;
	int null_fd = open("/dev/null", O_RDONLY);
	sigset_t none;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	snprintf(ini, sizeof ini, "%s/broker.ini", broker->directory);
	dup2(null_fd, 0);
	dup2(log_pipe, 1);
	dup2(log_pipe, 2);
	close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
	unsetenv("NOTIFY_SOCKET");
	unsetenv("LISTEN_FDS");
	if (config->strace != NULL) {
		add_sanitizer_option("detect_leaks=0");
		add_words(argv, &count, strdup("strace -f -o"));
		argv[count++] = broker->strace_path;
		add_words(argv, &count, strdup(config->strace));
	}
	for (const char *const *one = config->environment; one != NULL && *one != NULL; one++) {
		if (strncmp(*one, "LD_PRELOAD=", 11) == 0)
			add_sanitizer_option("verify_asan_link_order=0");
		if (config->strace != NULL && count < ARGUMENTS_MAX - 8) {
			argv[count++] = strdup("-E");
			argv[count++] = strdup(*one);
		} else {
			putenv(strdup(*one));
		}
	}
	if (config->wrapper != NULL)
		add_words(argv, &count, strdup(config->wrapper));
	argv[count++] = strdup(program);
	argv[count++] = strdup("-f");
	argv[count++] = ini;
	argv[count] = NULL;
	if (chdir(broker->directory) == 0)
		execvp(argv[0], argv);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

void
broker_launch(struct broker *broker)
{
	char program[BROKER_PATH_BYTES];
	int ends[2];

	ck_assert_msg(broker->child == 0, "the broker is running already");
	broker_build_path("logsupervisor", program, sizeof program);
	if (pipe2(ends, O_CLOEXEC) < 0)
		ck_abort_msg("pipe2: %s", strerror(errno));
	fflush(NULL);
	broker->child = fork();
	if (broker->child < 0)
		ck_abort_msg("fork: %s", strerror(errno));
	if (broker->child == 0)
		execute(broker, program, ends[1]);
	close(ends[1]);
	broker->pipe = ends[0];
	broker->pid = 0;
	free(broker->text);
	broker->text = calloc(1, 1);
	broker->text_length = 0;
	broker->log_ended = false;
	if (pthread_create(&broker->reader, NULL, read_log, broker) != 0)
		ck_abort_msg("pthread_create failed");
}

/* With the mutex held: waits for news until then. False when the time is over. */
static bool
wait_news(struct broker *broker, int64_t until_ms)
{
	int64_t left = until_ms - wire_now_ms();
	struct timespec until;

	if (left <= 0)
		return false;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += left / 1000;
	until.tv_nsec += left % 1000 * 1000000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_cond_timedwait(&broker->news, &broker->mutex, &until);
	return true;
}

/* With the mutex held: the text when its whole line is there. */
static const char *
find_line(const struct broker *broker, const char *text)
{
	const char *found = broker->text != NULL ? strstr(broker->text, text) : NULL;

	return found != NULL && strchr(found, '\n') != NULL ? found : NULL;
}

bool
broker_wait_log(struct broker *broker, const char *text, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;
	bool found;

	pthread_mutex_lock(&broker->mutex);
	while (!(found = find_line(broker, text) != NULL) && !broker->log_ended)
		if (!wait_news(broker, until))
			break;
	pthread_mutex_unlock(&broker->mutex);
	return found;
}

/* With the mutex held: until all that the broker has written so far is in the text. */
static void
catch_up(struct broker *broker)
{
	int unread = 0;

	while (!broker->log_ended && ioctl(broker->pipe, FIONREAD, &unread) == 0 && unread > 0)
		wait_news(broker, wire_now_ms() + 100);
}

long
broker_count_log(struct broker *broker, const char *text)
{
	const char *at;
	long count = 0;

	pthread_mutex_lock(&broker->mutex);
	catch_up(broker);
	at = broker->text != NULL ? broker->text : "";
	while ((at = strstr(at, text)) != NULL) {
		count++;
		at += strcspn(at, "\n");
	}
	pthread_mutex_unlock(&broker->mutex);
	return count;
}

char *
broker_copy_log(struct broker *broker)
{
	char *copy;

	pthread_mutex_lock(&broker->mutex);
	catch_up(broker);
	copy = strdup(broker->text != NULL ? broker->text : "");
	pthread_mutex_unlock(&broker->mutex);
	ck_assert_ptr_nonnull(copy);
	return copy;
}

/* The number behind `key` in the ready line, -1 when it is not there. */
static long
ready_number(const char *line, const char *key)
{
	const char *at = strstr(line, key);

	return at != NULL ? strtol(at + strlen(key), NULL, 10) : -1;
}

void
broker_wait_ready(struct broker *broker)
{
	char line[1024];
	const char *found;

	if (!broker_wait_log(broker, "ready: listen=", BROKER_START_MS))
		FAIL(broker, "no ready line");
	pthread_mutex_lock(&broker->mutex);
	found = find_line(broker, "ready: listen=");
	snprintf(line, sizeof line, "%.*s", (int)strcspn(found, "\n"), found);
	pthread_mutex_unlock(&broker->mutex);
	broker->port = (int)ready_number(line, "127.0.0.1:");
	broker->http_port = (int)ready_number(line, "http=127.0.0.1:");
	broker->worker_count = (int)ready_number(line, " workers=");
	broker->partition_count = (int)ready_number(line, " partitions=");
	broker->pid = (pid_t)ready_number(line, " pid=");
	if (broker->pid <= 0 || broker->worker_count < 1)
		FAIL(broker, "ready line without pid or workers: %s", line);
	if (broker->config.strace == NULL && broker->config.wrapper == NULL)
		ck_assert_int_eq(broker->pid, broker->child);
	memset(broker->workers, 0, sizeof broker->workers);
	broker_workers(broker, broker->workers, BROKER_WORKERS_MAX);
}

void
broker_start(struct broker *broker, const struct broker_config *config)
{
	broker_prepare(broker, config);
	broker_launch(broker);
	broker_wait_ready(broker);
}

void
broker_restart(struct broker *broker, const struct broker_config *config)
{
	if (config != NULL)
		broker->config = *config;
	write_ini(broker);
	broker_launch(broker);
	broker_wait_ready(broker);
}

int
broker_start_fails(struct broker *broker, const struct broker_config *config)
{
	int code;

	if (*broker->directory == '\0')
		broker_prepare(broker, config);
	else if (config != NULL)
		broker->config = *config;
	write_ini(broker);
	broker_launch(broker);
	code = broker_wait_exit(broker, BROKER_START_MS);
	if (code < 0)
		FAIL(broker, "it was expected to refuse to start and runs");
	return code;
}

/* ---- ending ------------------------------------------------------------------------------------------------- */

/* Waits until the child can be reaped. */
static bool
wait_child(pid_t child, int deadline_ms)
{
	struct pollfd poll_fd = { .fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN };
	int ready;

	if (poll_fd.fd < 0)
		return errno == ESRCH;
	do {
		ready = poll(&poll_fd, 1, deadline_ms);
	} while (ready < 0 && errno == EINTR);
	close(poll_fd.fd);
	return ready > 0;
}

int
broker_wait_exit(struct broker *broker, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;
	int status;

	ck_assert_int_ne(broker->child, 0);
	if (!wait_child(broker->child, deadline_ms))
		return -1;
	ck_assert_int_eq(waitpid(broker->child, &status, 0), broker->child);
	broker->child = 0;
	/* What is left of its processes: they hold the pipe. */
	pthread_mutex_lock(&broker->mutex);
	while (!broker->log_ended)
		if (!wait_news(broker, until)) {
			pthread_mutex_unlock(&broker->mutex);
			FAIL(broker, "the supervisor has exited, but a process of the broker still runs");
		}
	pthread_mutex_unlock(&broker->mutex);
	pthread_join(broker->reader, NULL);
	close(broker->pipe);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void
check_sanitizers(struct broker *broker)
{
	static const char *const reports[] = { "AddressSanitizer", "LeakSanitizer", "runtime error:", "ThreadSanitizer",
		"Assertion" };

	for (size_t i = 0; i < sizeof reports / sizeof *reports; i++)
		if (broker_count_log(broker, reports[i]) > 0)
			FAIL(broker, "the broker's log has a report: %s", reports[i]);
}

int64_t
broker_stop(struct broker *broker)
{
	int64_t start = wire_now_ms();
	pid_t now[BROKER_WORKERS_MAX] = { 0 };
	int code;

	ck_assert_int_ne(broker->child, 0);
	broker_workers(broker, now, BROKER_WORKERS_MAX);
	if (!broker->workers_may_die && memcmp(now, broker->workers, sizeof now) != 0)
		FAIL(broker, "a worker has died or was replaced");
	kill(broker->pid, SIGTERM);
	code = broker_wait_exit(broker, BROKER_STOP_MS);
	if (code != 0)
		FAIL(broker, "SIGTERM: exit code %d", code);
	check_sanitizers(broker);
	return wire_now_ms() - start;
}

void
broker_kill(struct broker *broker)
{
	pid_t pids[BROKER_WORKERS_MAX];
	int count;

	ck_assert_int_ne(broker->child, 0);
	/* Stopped first, so that it starts none while the list is read; killed last, since its end tells workers to finish. */
	broker_freeze(broker->pid);
	count = broker_workers(broker, pids, BROKER_WORKERS_MAX);
	for (int i = 0; i < count; i++)
		kill(pids[i], SIGKILL);
	kill(broker->pid, SIGKILL);
	if (broker_wait_exit(broker, BROKER_STOP_MS) < 0)
		FAIL(broker, "killed and still there");
	check_sanitizers(broker);
}

void
broker_end(struct broker *broker)
{
	ck_assert_msg(broker->child == 0, "broker_end: it still runs");
	free(broker->text);
	broker->text = NULL;
	if (broker->log_fd >= 0)
		close(broker->log_fd);
	broker->log_fd = -1;
}

/* ---- processes ---------------------------------------------------------------------------------------------- */

/* Reads a small file of /proc; false when it is not there. */
static bool
read_small(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd >= 0 ? read(fd, text, size - 1) : -1;

	if (fd >= 0)
		close(fd);
	if (got < 0)
		return false;
	text[got] = '\0';
	return true;
}

/* The fields of /proc/PID/stat from the third on (the state's letter). NULL when the process is gone. */
static const char *
read_stat(const char *path, char *text, size_t size)
{
	char *behind_name;

	if (!read_small(path, text, size))
		return NULL;
	behind_name = strrchr(text, ')');
	return behind_name != NULL ? behind_name + 2 : NULL;
}

static bool
runs(pid_t pid)
{
	char path[64];
	char text[1024];
	const char *stat;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	stat = read_stat(path, text, sizeof text);
	return stat != NULL && *stat != 'Z' && *stat != 'X';
}

static int
compare_pids(const void *a, const void *b)
{
	return *(const pid_t *)a < *(const pid_t *)b ? -1 : *(const pid_t *)a > *(const pid_t *)b;
}

int
broker_workers(const struct broker *broker, pid_t *pids, int max)
{
	char path[64];
	char text[4096];
	char *at = text;
	int count = 0;

	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)broker->pid, (int)broker->pid);
	if (!read_small(path, text, sizeof text))
		return 0;
	for (;;) {
		char *end;
		long pid = strtol(at, &end, 10);

		if (end == at)
			break;
		at = end;
		if (runs((pid_t)pid) && count < max)
			pids[count++] = (pid_t)pid;
	}
	qsort(pids, (size_t)count, sizeof *pids, compare_pids);
	return count;
}

/* Descriptors whose link contains `text` (NULL: all), -1 when the process is gone. */
static int
count_links(pid_t pid, const char *text)
{
	char path[64];
	DIR *directory;
	struct dirent *entry;
	int count = 0;

	snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	directory = opendir(path);
	if (directory == NULL)
		return -1;
	while ((entry = readdir(directory)) != NULL) {
		char link[BROKER_PATH_BYTES];
		ssize_t length;

		if (entry->d_name[0] == '.')
			continue;
		length = readlinkat(dirfd(directory), entry->d_name, link, sizeof link - 1);
		link[length > 0 ? length : 0] = '\0';
		if (text == NULL || strstr(link, text) != NULL)
			count++;
	}
	closedir(directory);
	return count;
}

int
broker_fd_count(pid_t pid)
{
	return count_links(pid, NULL);
}

int
broker_fd_count_of(pid_t pid, const char *text)
{
	return count_links(pid, text);
}

pid_t
broker_fork_holder(void)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == parent)
			pause();
		_exit(0);
	}
	ck_assert_int_gt(pid, 0);
	return pid;
}

void
broker_end_holder(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

pid_t
broker_worker_of(const struct broker *broker, const char *topic, int partition)
{
	pid_t pids[BROKER_WORKERS_MAX];
	char text[BROKER_PATH_BYTES];
	int count = broker_workers(broker, pids, BROKER_WORKERS_MAX);

	snprintf(text, sizeof text, "/%s-%d/", topic, partition);
	for (int i = 0; i < count; i++)
		if (count_links(pids[i], text) > 0)
			return pids[i];
	return 0;
}

pid_t
broker_wait_worker_of(const struct broker *broker, const char *topic, int partition, pid_t but, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;
	pid_t pids[BROKER_WORKERS_MAX];

	for (;;) {
		pid_t pid = broker_worker_of(broker, topic, partition);

		if (pid > 0 && pid != but && broker_workers(broker, pids, BROKER_WORKERS_MAX) == broker->worker_count)
			return pid;
		if (wire_now_ms() > until)
			return 0;
		usleep(1000);
	}
}

bool
broker_wait_gone(pid_t pid, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;

	while (runs(pid)) {
		if (wire_now_ms() > until)
			return false;
		usleep(1000);
	}
	return true;
}

static bool
all_threads_stopped(pid_t pid)
{
	char path[64];
	char thread_path[BROKER_PATH_BYTES];
	char text[1024];
	DIR *directory;
	struct dirent *entry;
	bool stopped = true;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	directory = opendir(path);
	if (directory == NULL)
		return true;
	while ((entry = readdir(directory)) != NULL) {
		const char *stat;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(thread_path, sizeof thread_path, "%s/%s/stat", path, entry->d_name);
		stat = read_stat(thread_path, text, sizeof text);
		if (stat != NULL && strchr("TtZX", *stat) == NULL)
			stopped = false;
	}
	closedir(directory);
	return stopped;
}

enum { FREEZE_MS = 60000 };	/* a thread that waits for a busy disk stops behind that */

void
broker_freeze(pid_t pid)
{
	int64_t until = wire_now_ms() + FREEZE_MS;

	kill(pid, SIGSTOP);
	/* Several looks: under strace a thread also stands still for a moment at each system call. */
	for (int seen = 0; seen < 4; seen++) {
		ck_assert_msg(wire_now_ms() < until, "SIGSTOP did not stop %d", (int)pid);
		if (!all_threads_stopped(pid))
			seen = -1;
		usleep(500);
	}
}

void
broker_freeze_worker(const struct broker *broker, pid_t worker)
{
	broker_freeze(broker->pid);
	broker_freeze(worker);
}

/* In this order: the supervisor is lenient at first when it stood still for long itself. */
void
broker_thaw_worker(const struct broker *broker, pid_t worker)
{
	kill(worker, SIGCONT);
	kill(broker->pid, SIGCONT);
}

long
broker_rss_kib(pid_t pid)
{
	char path[64];
	char text[4096];
	const char *at;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	if (!read_small(path, text, sizeof text))
		return -1;
	at = strstr(text, "VmRSS:");
	return at != NULL ? strtol(at + 6, NULL, 10) : -1;
}

int64_t
broker_cpu_ms(pid_t pid)
{
	char path[64];
	char text[1024];
	const char *stat;
	unsigned long user = 0;
	unsigned long system_time = 0;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	stat = read_stat(path, text, sizeof text);
	if (stat == NULL || sscanf(stat, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system_time) != 2)
		return -1;
	return (int64_t)(user + system_time) * 1000 / sysconf(_SC_CLK_TCK);
}

bool
broker_wait(bool (*met)(void *), void *with, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;

	while (!met(with)) {
		if (wire_now_ms() > until)
			return met(with);
		usleep(2000);
	}
	return true;
}

/* ---- HTTP --------------------------------------------------------------------------------------------------- */

char *
broker_http_get(const struct broker *broker, const char *path, int *status)
{
	struct wire_bytes answer = { 0 };
	char request[BROKER_PATH_BYTES];
	char piece[16384];
	char *body;
	long got = 0;
	int fd = wire_connect_tcp(broker->http_port);

	if (status != NULL)
		*status = 0;
	if (fd < 0)
		return NULL;
	snprintf(request, sizeof request, "GET %s HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
	if (wire_send(fd, request, strlen(request)) == 0)
		while ((got = wire_receive(fd, piece, sizeof piece, 10000)) > 0)
			wire_put(&answer, piece, (size_t)got);
	close(fd);
	wire_put_i8(&answer, 0);
	body = strstr((char *)answer.data, "\r\n\r\n");
	if (got == WIRE_LATE || body == NULL || strncmp((char *)answer.data, "HTTP/1.", 7) != 0) {
		wire_bytes_free(&answer);
		return NULL;
	}
	if (status != NULL)
		*status = atoi((char *)answer.data + 9);
	body = strdup(body + 4);
	wire_bytes_free(&answer);
	return body;
}

/* One sample line: adds its value when name and labels fit. */
static void
add_sample(const char *line, size_t length, const char *name, const char *labels, double *sum, bool *found)
{
	size_t name_length = strlen(name);
	const char *end = line + length;
	const char *value = line + name_length;

	if (length <= name_length || strncmp(line, name, name_length) != 0 || (*value != '{' && *value != ' '))
		return;
	if (*value == '{') {
		const char *close_brace = memrchr(value, '}', (size_t)(end - value));

		if (close_brace == NULL)
			return;
		if (labels != NULL && memmem(value, (size_t)(close_brace - value), labels, strlen(labels)) == NULL)
			return;
		value = close_brace + 1;
	} else if (labels != NULL) {
		return;
	}
	*sum += strtod(value, NULL);
	*found = true;
}

double
broker_metric(const struct broker *broker, const char *name, const char *labels)
{
	char *page = broker_http_get(broker, "/metrics", NULL);
	double sum = 0;
	bool found = false;

	if (page == NULL)
		return -1;
	for (const char *line = page; *line != '\0';) {
		size_t length = strcspn(line, "\n");

		add_sample(line, length, name, labels, &sum, &found);
		line += length + (line[length] == '\n');
	}
	free(page);
	return found ? sum : -1;
}

bool
broker_wait_metric(const struct broker *broker, const char *name, const char *labels, double value, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;

	for (;;) {
		double now = broker_metric(broker, name, labels);

		if (now >= value && now <= value)
			return true;
		if (wire_now_ms() > until) {
			fprintf(stderr, "%s{%s} is %g, not %g\n", name, labels != NULL ? labels : "", now, value);
			return false;
		}
		usleep(5000);
	}
}

bool
broker_wait_metric_least(const struct broker *broker, const char *name, const char *labels, double value, int deadline_ms)
{
	int64_t until = wire_now_ms() + deadline_ms;

	for (;;) {
		double now = broker_metric(broker, name, labels);

		if (now >= value)
			return true;
		if (wire_now_ms() > until) {
			fprintf(stderr, "%s{%s} is %g, not at least %g\n", name, labels != NULL ? labels : "", now, value);
			return false;
		}
		usleep(5000);
	}
}

/* ---- files -------------------------------------------------------------------------------------------------- */

void
broker_partition_path(const struct broker *broker, const char *topic, int partition, int64_t base, char *path, size_t size)
{
	int length;

	if (base < 0)
		length = snprintf(path, size, "%s/%s-%d", broker->data_dir, topic, partition);
	else
		length = snprintf(path, size, "%s/%s-%d/%020lld.log", broker->data_dir, topic, partition, (long long)base);
	ck_assert_int_lt(length, (int)size);
}

static int
compare_bases(const void *a, const void *b)
{
	return *(const int64_t *)a < *(const int64_t *)b ? -1 : *(const int64_t *)a > *(const int64_t *)b;
}

int
broker_segments(const struct broker *broker, const char *topic, int partition, int64_t *bases, int max)
{
	char path[BROKER_PATH_BYTES * 2];
	DIR *directory;
	struct dirent *entry;
	int count = 0;
	int stored = 0;

	broker_partition_path(broker, topic, partition, -1, path, sizeof path);
	directory = opendir(path);
	if (directory == NULL)
		return 0;
	while ((entry = readdir(directory)) != NULL) {
		size_t digits = strspn(entry->d_name, "0123456789");

		if (digits != 20 || strcmp(entry->d_name + digits, ".log") != 0)
			continue;
		count++;
		if (stored < max)
			bases[stored++] = strtoll(entry->d_name, NULL, 10);
	}
	closedir(directory);
	if (stored > 0)
		qsort(bases, (size_t)stored, sizeof *bases, compare_bases);
	return count;
}

long
broker_count_strace(const struct broker *broker, const char *text, const char *and_text)
{
	FILE *file = fopen(broker->strace_path, "r");
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
