/* Reading the command line; see options.h. */
#include "supervisor/options.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: logsupervisor [-tTv] -f broker.ini\n"
    "       logsupervisor -h | --version\n";

static const char help[] =
    "\n"
    "Runs the broker in the foreground until SIGTERM or SIGINT.\n"
    "\n"
    "  -f FILE    the configuration, see broker.ini(5)\n"
    "  -t         check the configuration and exit: 0, or 78 with every error found\n"
    "  -T         print the effective configuration, with where each value came from\n"
    "  -v         log more (log_level = debug)\n"
    "  -h         this text\n"
    "  --version  the version\n"
    "\n"
    "It is ready when the line \"ready: listen=... http=... control=... workers=N partitions=N pid=N\"\n"
    "has come on stderr. See logsupervisor(8).\n";

static int
complain(const char *what)
{
	fprintf(stderr, "logsupervisor: %s\n%s", what, usage);
	return OPTIONS_EXIT_USAGE;
}

int
options_parse(struct options *options, int argc, char **argv)
{
	enum { OPTION_VERSION = 256 };
	static const struct option names[] = {
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, OPTION_VERSION },
		{ NULL, 0, NULL, 0 },
	};
	int option;

	memset(options, 0, sizeof(*options));
	while ((option = getopt_long(argc, argv, "f:tTvh", names, NULL)) != -1) {
		switch (option) {
		case 'f':
			options->config = optarg;
			break;
		case 't':
			options->check = true;
			break;
		case 'T':
			options->print = true;
			break;
		case 'v':
			options->verbose = true;
			break;
		case 'h':
			printf("%s%s", usage, help);
			return OPTIONS_EXIT_OK;
		case OPTION_VERSION:
			printf("logsupervisor (logbroker) %s\n", PACKAGE_VERSION);
			return OPTIONS_EXIT_OK;
		default:	/* getopt has said which */
			fputs(usage, stderr);
			return OPTIONS_EXIT_USAGE;
		}
	}
	if (optind < argc)
		return complain("it takes no arguments");
	if (options->config == NULL)
		return complain("-f FILE is missing");
	return OPTIONS_GO_ON;
}
