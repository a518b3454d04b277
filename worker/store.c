/* Copies that survive a bus error: the handler jumps back into the copy that met it. */
#include "worker/store.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

/* A word at any address. */
typedef uint32_t loose_word __attribute__((aligned(1), may_alias));

static _Thread_local sigjmp_buf *volatile way_out;	/* NULL: no copy is under way */
static struct sigaction previous;
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

static void
on_bus_error(int number)
{
	if (way_out != NULL)
		siglongjmp(*way_out, 1);
	/* Not ours: what met it is tried again and ends as it would have ended. */
	sigaction(number, &previous, NULL);
}

static void
prepare(void)
{
	/* The handler is left by a jump that restores no mask, so the signal must not be blocked in it. */
	struct sigaction action = { .sa_handler = on_bus_error, .sa_flags = SA_NODEFER };

	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, &previous);
}

void
store_prepare(void)
{
	pthread_once(&prepared, prepare);
}

static int
failed(void)
{
	way_out = NULL;
	errno = EIO;
	return -1;
}

/* The fences keep the compiler from moving the copy out from where it is guarded. */
int
store_bytes(void *to, const void *from, size_t bytes)
{
	sigjmp_buf here;

	if (sigsetjmp(here, 0) != 0)
		return failed();
	way_out = &here;
	atomic_signal_fence(memory_order_seq_cst);
	memcpy(to, from, bytes);
	atomic_signal_fence(memory_order_seq_cst);
	way_out = NULL;
	return 0;
}

int
store_length(void *to, const uint8_t *word)
{
	sigjmp_buf here;
	uint32_t value;

	memcpy(&value, word, sizeof(value));
	if (sigsetjmp(here, 0) != 0)
		return failed();
	way_out = &here;
	atomic_thread_fence(memory_order_release);
	*(volatile loose_word *)to = value;
	atomic_signal_fence(memory_order_seq_cst);
	way_out = NULL;
	return 0;
}

void
store_end(_Atomic int64_t *word, int64_t end)
{
	atomic_store_explicit(word, end, memory_order_release);
}
