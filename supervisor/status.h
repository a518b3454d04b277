/* Collects what the pages show, from everything that has something to show, and names the pages. */
#ifndef SUPERVISOR_STATUS_H
#define SUPERVISOR_STATUS_H

#include "supervisor/crew.h"
#include "supervisor/handover.h"
#include "supervisor/http.h"
#include "supervisor/listener.h"
#include "supervisor/pages.h"
#include "supervisor/parking.h"
#include "supervisor/rates.h"

/* All borrowed. */
struct status {
	const struct crew *crew;
	const struct handover *handover;
	const struct parking *parking;
	const struct listener *listener;
	const struct topics *topics;
	const struct boards *boards;
	int data_descriptor;		/* of a file in the data directory */
	/* the module's own */
	struct pages_worker *workers;
	const struct board **board_list;
	struct rates rates;
	int64_t started_ns;
	int64_t data_free_bytes;
	int64_t data_asked_ns;
};

/* The pages; their context is a struct status. */
const struct http_page *status_pages(void);

/* What there is to show now; valid until the next call. */
void status_collect(struct status *status, struct pages_view *view);

/* Returns 0, or -1 with errno ENOMEM. */
int status_init(struct status *status);
void status_free(struct status *status);

#endif
