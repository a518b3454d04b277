/*
 * `logbroker VERB`: what a person or a script does with a broker. This file holds the verbs' table and starts one.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "client/options.h"
#include "client/tool.h"

static const struct verb verbs[] = {
	{ "produce", "TOPIC [FILE...]", "send records, from files or standard input",
	    "  logbroker produce events < events.txt\n"
	    "  tail -F app.log | logbroker produce -p 0 app-log\n"
	    "  logbroker produce --key-delim : -a forced orders orders.txt\n"
	    "  logbroker produce --framing none -k thumb images cat.jpg dog.jpg\n"
	    "  logbroker consume -o jsonl events/0 | logbroker produce --framing jsonl -p 0 copy\n",
	    VERB_PRODUCE, 1, INT32_MAX, verb_produce },
	{ "consume", "TOPIC[/PARTITION]", "write records to standard output: all that are there, then end",
	    "  logbroker consume events/0 > copy.txt\n"
	    "  logbroker consume --from -10 events/0\n"
	    "  logbroker consume --from 1000 --to 2000 -o jsonl events/0\n"
	    "  logbroker consume --checkpoint /var/lib/job/events events | job\n",
	    VERB_CONSUME, 1, 1, verb_consume },
	{ "replay", "TOPIC[/PARTITION]", "the same as consume",
	    "  logbroker replay --framing len32 events/0 > copy.len32\n",
	    VERB_REPLAY, 1, 1, verb_consume },
	{ "follow", "TOPIC[/PARTITION]", "write records to standard output as they come, for ever",
	    "  logbroker follow events | grep ERROR\n"
	    "  logbroker follow --from earliest -n 1 events\n"
	    "  logbroker follow --checkpoint /var/lib/job/events events | job\n",
	    VERB_FOLLOW, 1, 1, verb_consume },
	{ "tail", "TOPIC[/PARTITION]", "write the last records to standard output",
	    "  logbroker tail events\n"
	    "  logbroker tail -n 100 -f events/0\n",
	    VERB_TAIL, 1, 1, verb_consume },
	{ "topics", "[TOPIC...]", "list partitions with their ends",
	    "  logbroker topics\n"
	    "  logbroker topics -o json events orders\n"
	    "  logbroker topics --checkpoint /var/lib/job/events\n",
	    VERB_TOPICS, 0, INT32_MAX, verb_topics },
	{ "ping", "", "ask the broker for a sign of life, and say how long it took",
	    "  logbroker -b unix:/run/logbroker/broker.sock --timeout 2s ping\n",
	    VERB_PING, 0, 0, verb_ping },
	{ "dump", "PATH...", "show the records of segment files, partitions' directories or data directories",
	    "  logbroker dump /var/lib/logbroker/events-0\n"
	    "  logbroker dump --payload --from 1000 -n 10 /var/lib/logbroker/events-0\n"
	    "  logbroker dump --framing len32 saved.cut | logbroker produce --framing len32 events\n",
	    VERB_DUMP, 1, INT32_MAX, verb_dump },
	{ "verify", "PATH...", "check every record of segment files, partitions' directories or data directories",
	    "  logbroker verify /var/lib/logbroker\n"
	    "  logbroker verify -o json /var/lib/logbroker/events-0\n",
	    VERB_VERIFY, 1, INT32_MAX, verb_verify },
	{ "repair", "PATH...", "show what a broker's start would cut off the ends of logs, or do it",
	    "  logbroker repair /var/lib/logbroker\n"
	    "  logbroker repair --apply /var/lib/logbroker/events-0\n",
	    VERB_REPAIR, 1, INT32_MAX, verb_repair },
	{ "status", "", "show how a broker is: its clients, workers, partitions, disk",
	    "  logbroker status\n"
	    "  logbroker --control /run/logbroker/control.sock status --watch\n"
	    "  logbroker status -o json | jq '.workers[] | select(.state != \"serving\")'\n"
	    "  logbroker status --check --timeout 10s\n",
	    VERB_STATUS, 0, 0, verb_status },
	{ "restart-worker", "N | --all", "replace workers by new processes, unnoticed by clients",
	    "  logbroker restart-worker 0\n"
	    "  logbroker restart-worker --all\n",
	    VERB_RESTART_WORKER, 0, 1, verb_restart_worker },
	{ "reload", "", "have broker.ini read again, and say what became of it",
	    "  logsupervisor -t -f /etc/logbroker/broker.ini && logbroker reload\n",
	    VERB_RELOAD, 0, 0, verb_reload },
	{ .name = "bench" },
	{ .name = NULL },
};

static void
print_program_help(void)
{
	printf("usage: logbroker [options] VERB ...\n\n");
	for (const struct verb *verb = verbs; verb->name != NULL; verb++) {
		if (verb->run != NULL)
			printf("  %-14s %-17s %s\n", verb->name, verb->operands, verb->summary);
	}
	printf("\nOptions of every verb (-b: of those that talk to a broker, --control: status, restart-worker and\n"
	    "reload, --timeout: of both):\n");
	options_print(NULL);
	printf("\nlogbroker VERB -h tells about one verb, man logbroker about everything.\n");
}

static void
print_verb_help(const struct verb *verb)
{
	printf("usage: logbroker %s [options]%s%s\n\n%c%s.\n\nOptions:\n", verb->name, verb->operands[0] ? " " : "",
	    verb->operands, verb->summary[0] - 'a' + 'A', verb->summary + 1);
	options_print(verb);
	printf("\nExamples:\n%s", verb->examples);
}

/* Help that cannot be written is told by the exit code; a reader that went away is no error. */
static int
end_of_help(void)
{
	return fflush(stdout) == 0 || errno == EPIPE ? TOOL_DONE : TOOL_INTERNAL;
}

/*
 * A standard descriptor that was closed for us must not become a socket. In its place stands one that fails the way a
 * closed one does.
 */
static void
occupy_standard_descriptors(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			_exit(TOOL_INTERNAL);
	}
}

int
main(int argc, char **argv)
{
	const struct verb *verb;
	struct options options;

	occupy_standard_descriptors();
	signal(SIGPIPE, SIG_IGN);
	switch (options_read(argc, argv, verbs, &verb, &options)) {
	case OPTIONS_RUN:
		return verb->run(&options);
	case OPTIONS_HELP:
		if (verb == NULL)
			print_program_help();
		else
			print_verb_help(verb);
		return end_of_help();
	case OPTIONS_VERSION:
		printf("logbroker %s\n", PACKAGE_VERSION);
		return end_of_help();
	case OPTIONS_WRONG:
		break;
	}
	return TOOL_USAGE;
}
