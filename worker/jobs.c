/* Two queues, a few threads and an eventfd; see jobs.h. */
#include "worker/jobs.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/log.h"

struct list {
	struct job *first, *last;
	size_t count;
};

struct jobs {
	pthread_mutex_t mutex;
	pthread_cond_t work;		/* waiting or reads have grown, or ending is set */
	struct list waiting;
	struct list reads;		/* waiting, too */
	size_t reads_running;
	struct list finished;
	size_t idle_threads;
	bool ending;
	int event_fd;
	size_t outstanding;		/* the loop's own count */
	size_t thread_count;
	pthread_t threads[JOBS_THREADS_MAX];
};

static void
list_append(struct list *list, struct job *job)
{
	job->next = NULL;
	if (list->last == NULL)
		list->first = job;
	else
		list->last->next = job;
	list->last = job;
	list->count++;
}

static struct job *
list_pop(struct list *list)
{
	struct job *job = list->first;

	list->first = job->next;
	if (list->first == NULL)
		list->last = NULL;
	list->count--;
	return job;
}

int
jobs_fd(const struct jobs *jobs)
{
	return jobs->event_fd;
}

size_t
jobs_outstanding(const struct jobs *jobs)
{
	return jobs->outstanding;
}

static void
tell_loop(struct jobs *jobs)
{
	uint64_t one = 1;

	/* It can only fail when the counter is full, and then the loop has been told. */
	if (write(jobs->event_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
		log_fatal(1, "eventfd: cannot wake the loop: error %d", errno);
}

/* How many of the waiting jobs may begin now? */
static size_t
runnable(const struct jobs *jobs)
{
	size_t reads_free = JOBS_READS_MAX - jobs->reads_running;

	return jobs->waiting.count + (jobs->reads.count < reads_free ? jobs->reads.count : reads_free);
}

static void *
serve(void *argument)
{
	struct jobs *jobs = argument;

	pthread_mutex_lock(&jobs->mutex);
	for (;;) {
		struct job *job;
		bool is_read;

		jobs->idle_threads++;
		while (runnable(jobs) == 0 && !jobs->ending)
			pthread_cond_wait(&jobs->work, &jobs->mutex);
		jobs->idle_threads--;
		if (runnable(jobs) == 0)
			break;
		is_read = jobs->waiting.count == 0;
		job = list_pop(is_read ? &jobs->reads : &jobs->waiting);
		jobs->reads_running += is_read;
		pthread_mutex_unlock(&jobs->mutex);
		job->run(job);
		pthread_mutex_lock(&jobs->mutex);
		jobs->reads_running -= is_read;
		list_append(&jobs->finished, job);
		tell_loop(jobs);
	}
	pthread_mutex_unlock(&jobs->mutex);
	return NULL;
}

/* Signals belong to the loop's thread. */
static int
start_thread(struct jobs *jobs)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&jobs->threads[jobs->thread_count], NULL, serve, jobs);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error == 0)
		jobs->thread_count++;
	return error;
}

struct jobs *
jobs_new(void)
{
	struct jobs *jobs = calloc(1, sizeof(*jobs));
	int error;

	if (jobs == NULL)
		return NULL;
	jobs->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (jobs->event_fd < 0) {
		free(jobs);
		return NULL;
	}
	pthread_mutex_init(&jobs->mutex, NULL);
	pthread_cond_init(&jobs->work, NULL);
	error = start_thread(jobs);
	if (error == 0)
		return jobs;
	jobs_free(jobs);
	errno = error;
	return NULL;
}

/* A thread that has been woken for a job and does not have it yet still counts as idle, and the job as waiting. */
static void
submit(struct jobs *jobs, struct list *list, struct job *job)
{
	bool needs_thread;

	pthread_mutex_lock(&jobs->mutex);
	list_append(list, job);
	needs_thread = runnable(jobs) > jobs->idle_threads;
	pthread_cond_signal(&jobs->work);
	pthread_mutex_unlock(&jobs->mutex);
	jobs->outstanding++;
	/* One that cannot be started is missed, not needed: there is always the first. */
	if (needs_thread && jobs->thread_count < JOBS_THREADS_MAX)
		start_thread(jobs);
}

void
jobs_submit(struct jobs *jobs, struct job *job)
{
	submit(jobs, &jobs->waiting, job);
}

void
jobs_submit_read(struct jobs *jobs, struct job *job)
{
	submit(jobs, &jobs->reads, job);
}

void
jobs_collect(struct jobs *jobs)
{
	struct list finished;
	uint64_t ignored;

	if (read(jobs->event_fd, &ignored, sizeof(ignored)) < 0 && errno != EAGAIN)
		log_fatal(1, "eventfd: cannot read: error %d", errno);
	pthread_mutex_lock(&jobs->mutex);
	finished = jobs->finished;
	jobs->finished = (struct list){ NULL, NULL, 0 };
	pthread_mutex_unlock(&jobs->mutex);
	while (finished.first != NULL) {
		struct job *job = list_pop(&finished);

		jobs->outstanding--;
		job->done(job);
	}
}

void
jobs_free(struct jobs *jobs)
{
	pthread_mutex_lock(&jobs->mutex);
	jobs->ending = true;
	pthread_cond_broadcast(&jobs->work);
	pthread_mutex_unlock(&jobs->mutex);
	for (size_t i = 0; i < jobs->thread_count; i++)
		pthread_join(jobs->threads[i], NULL);
	pthread_cond_destroy(&jobs->work);
	pthread_mutex_destroy(&jobs->mutex);
	close(jobs->event_fd);
	free(jobs);
}
