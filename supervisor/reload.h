/*
 * broker.ini once more, while the broker runs: read and checked as at the start, compared key by key with what is in
 * force, and put in force as far as that is possible. Topics, partitions, workers, groups and record formats stay as they
 * are until the service is restarted. Knows settings and what new workers are told; restarts nobody itself.
 */
#ifndef SUPERVISOR_RELOAD_H
#define SUPERVISOR_RELOAD_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/topics.h"
#include "supervisor/settings.h"
#include "supervisor/setup.h"

/* All borrowed. */
struct reload {
	const char *path;		/* as it stands behind -f */
	bool verbose;			/* -v, which stays in force */
	int64_t connections_allowed;	/* what max_connections is lowered to: the limit of descriptors; INT64_MAX: none */
	struct settings *settings;	/* in force: changes are written here */
	struct topics *topics;		/* built from them: what they say of logs is written here too */
	struct setup *setup;		/* points to both; its generation grows when workers are to be told something else */
	void (*applied)(void *context);	/* something else is in force: for whoever keeps copies of settings. NULL: nobody */
	void *context;
};

/* How many changes were found, by what becomes of them. */
struct reload_changes {
	int at_once;		/* in force now */
	int with_workers;	/* in force for every worker that is started from now on; those that run are child_outdated */
	int with_service;	/* not applied */
};

/*
 * Writes to `report`, and returns:
 *   0: *changes, and a line for each, "key: old -> new (applied)", or "nothing has changed". What can be is in force now.
 *  -1: every error, one a line, as at the start; or in one line why the file cannot be read again. Nothing is applied.
 * Reads that file; the data directory too (as at the start) if topics or data_dir differ, and only then: the supervisor
 * does not wait for a sick disk on behalf of an answer that it knows already.
 */
int reload_apply(const struct reload *reload, FILE *report, struct reload_changes *changes);

#endif
