/*
 * liblogbroker-event: attaches connections, producers and subscriptions of liblogbroker to a libevent base. pkg-config
 * liblogbroker-event. From then on the base's loop calls lb_source_process when it is due.
 */
#ifndef LOGBROKER_EVENT_H
#define LOGBROKER_EVENT_H

#include <event2/event.h>

#include <logbroker.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * 0, or -1 with errno. Ends by itself when the object is freed (inside callbacks, too), which must happen before the base is freed; or with
 * lb_event_detach. The base must be the thread's that uses the object.
 */
int lb_event_attach(struct lb_source *source, struct event_base *base);
void lb_event_detach(struct lb_source *source);

#ifdef __cplusplus
}
#endif

#endif
