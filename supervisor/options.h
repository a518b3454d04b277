/* The command line of logsupervisor. */
#ifndef SUPERVISOR_OPTIONS_H
#define SUPERVISOR_OPTIONS_H

#include <stdbool.h>

enum {
	OPTIONS_GO_ON = -1,
	OPTIONS_EXIT_OK = 0,
	OPTIONS_EXIT_USAGE = 64,
};

struct options {
	const char *config;	/* -f */
	bool check;		/* -t */
	bool print;		/* -T */
	bool verbose;		/* -v */
};

/* Returns OPTIONS_GO_ON; or the status to exit with, after help or version on stdout, or what is wrong on stderr. */
int options_parse(struct options *options, int argc, char **argv);

#endif
