/*
 * The part of every object that an event loop sees: see source.h.
 */
#include "client/lib/source.h"

#include "client/lib/wait.h"

void
lb_source_init(struct lb_source *source, const struct lb_source_kind *kind)
{
	*source = (struct lb_source){ .kind = kind };
}

void
lb_source_enter(struct lb_source *source)
{
	source->depth++;
}

void
lb_source_leave(struct lb_source *source)
{
	if (--source->depth > 0)
		return;
	if (source->gone)
		source->kind->release(source);
	else
		lb_source_changed(source);
}

bool
lb_source_busy(const struct lb_source *source)
{
	return source->depth > 0;
}

bool
lb_source_gone(const struct lb_source *source)
{
	return source->gone;
}

void
lb_source_changed(struct lb_source *source)
{
	if (source->changed != NULL && source->depth == 0)
		source->changed(source->changed_context, false);
}

void
lb_source_watch(struct lb_source *source, lb_changed_cb *changed, void *context)
{
	lb_changed_cb *old = source->changed;
	void *old_context = source->changed_context;

	source->changed = changed;
	source->changed_context = context;
	if (old != NULL)
		old(old_context, true);
}

void
lb_source_free(struct lb_source *source)
{
	source->gone = true;
	lb_source_watch(source, NULL, NULL);
	if (source->depth == 0)
		source->kind->release(source);
}

struct lb_wants
lb_source_wants(const struct lb_source *source)
{
	return source->kind->wants(source);
}

void
lb_source_process(struct lb_source *source)
{
	/* Inside a callback: the work that called it goes on when it has returned. */
	if (source->depth > 0)
		return;
	lb_source_enter(source);
	source->kind->process(source);
	lb_source_leave(source);
}

void
lb_source_poll(struct lb_source *source, int timeout_ms)
{
	if (source->depth > 0)
		return;
	lb_wait_for(source, timeout_ms < 0 ? 0 : timeout_ms);
	lb_source_process(source);
}
