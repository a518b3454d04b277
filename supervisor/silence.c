/* Looking at the workers' heartbeats; see silence.h. */
#include "supervisor/silence.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/log.h"

struct silence {
	const struct crew *crew;
	const struct boards *boards;
	struct event *timer;
	int64_t looked_ns;
	int64_t lenient_until_ns;	/* nobody is killed before */
	pid_t *said;		/* by worker: the process of which it has been said; 0: none */
};

/* It says once that it will be killed, and once that it is. */
static void
say(struct silence *silence, const struct child *child, int64_t silent_s)
{
	pid_t pid = child_pid(child), *said = &silence->said[child_number(child)];

	if (silent_s >= SILENCE_SAID_AFTER_S && *said != pid) {
		log_warning("worker %d (pid %ld) has given no sign of life for %lld s: what its partitions are asked is not "
		    "answered. It is killed and restarted when that stays so for %d s", (int)child_number(child), (long)pid,
		    (long long)silent_s, SILENCE_KILLED_AFTER_S);
		*said = pid;
	} else if (silent_s < SILENCE_SAID_AFTER_S && *said == pid) {
		log_warning("worker %d (pid %ld) gives signs of life again", (int)child_number(child), (long)pid);
		*said = 0;
	}
}

static void
look_at(struct silence *silence, int32_t number, int64_t now_ns)
{
	struct child *child = crew_child(silence->crew, number);
	int64_t heartbeat_ns = board_get(&silence->boards->maps[number].worker->heartbeat_ns);
	int64_t silent_s;

	/* One that is about to end has cleared it. */
	if (!child_has_loop(child) || heartbeat_ns <= 0)
		return;
	silent_s = heartbeat_ns < now_ns ? (now_ns - heartbeat_ns) / CLOCK_NS_PER_S : 0;
	say(silence, child, silent_s);
	if (silent_s < SILENCE_KILLED_AFTER_S || now_ns < silence->lenient_until_ns)
		return;
	log_error("worker %d (pid %ld) has given no sign of life for %lld s; killing it", (int)number,
	    (long)child_pid(child), (long long)silent_s);
	child_hung(child);
}

static void
on_timer(evutil_socket_t descriptor, short what, void *context)
{
	struct silence *silence = context;
	int64_t now_ns = clock_now_ns(), before_ns = silence->looked_ns;

	(void)descriptor;
	(void)what;
	silence->looked_ns = now_ns;
	/* Whoever was stopped itself (the whole machine, perhaps) gives the others time to go on first. */
	if (now_ns - before_ns > 3 * (int64_t)CLOCK_NS_PER_S) {
		silence->lenient_until_ns = now_ns + SILENCE_GRACE_S * (int64_t)CLOCK_NS_PER_S;
		return;
	}
	for (int32_t i = 0; i < crew_count(silence->crew); i++)
		look_at(silence, i, now_ns);
}

struct silence *
silence_new(struct event_base *base, const struct crew *crew, const struct boards *boards)
{
	static const struct timeval second = { 1, 0 };
	struct silence *silence = calloc(1, sizeof(*silence));

	if (silence == NULL)
		return NULL;
	silence->crew = crew;
	silence->boards = boards;
	silence->said = calloc((size_t)crew_count(crew), sizeof(*silence->said));
	silence->timer = event_new(base, -1, EV_PERSIST, on_timer, silence);
	if (silence->said == NULL || silence->timer == NULL || event_add(silence->timer, &second) != 0) {
		silence_free(silence);
		errno = ENOMEM;
		return NULL;
	}
	return silence;
}

void
silence_free(struct silence *silence)
{
	if (silence == NULL)
		return;
	if (silence->timer != NULL)
		event_free(silence->timer);
	free(silence->said);
	free(silence);
}
