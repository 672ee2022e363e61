/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/beside.h"
#include "cmd/client/client.h"
#include "cmd/config/cmd.h"
#include "cmd/docs/docs.h"
#include "cmd/doctor/doctor.h"
#include "cmd/plan/plan.h"
#include "cmd/plan/tune.h"
#include "gateway/transport/event_memory.h"
#include "gateway/request/json_mem.h"
#include "gateway/transport/tls_memory.h"
#include "version.h" /* made by the Makefile */

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what;
};

/* `sluice bench …` is the program sluice-bench, beside this one or in PATH. */
static int start_bench(int argc, char **argv)
{
	static char name[] = "sluice-bench";
	char path[PATH_MAX];
	(void)argc;
	argv[0] = name;
	if (beside_executable(name, path, sizeof path))
		execv(path, argv);
	execvp(name, argv);
	fprintf(stderr,
		"sluice: can't start sluice-bench: %s. `make build` builds this program, `make install` installs it "
		"beside sluice\n",
		strerror(errno));
	return CMD_EXIT_UNAVAILABLE;
}

static const struct command commands[] = {
    {"serve", cmd_serve, "start and supervise the engine and the gateway"},
    {"gateway", cmd_gateway, "run the gateway alone"},
    {"engine", cmd_engine, "run the engine alone; --echo: without models, for tests"},
    {"config", cmd_config, "check or show the configuration"},
    {"keys", cmd_keys, "create, list, rotate and revoke API keys"},
    {"model", cmd_model, "inspect, convert and run model files"},
    {"pull", cmd_pull, "get a model from the Hugging Face hub, a mirror or an address"},
    {"run", cmd_run, "pull a model if it is missing, serve it, and chat with it"},
    {"list", cmd_list, "list the models that were pulled"},
    {"rm", cmd_rm, "remove a pulled model"},
    {"cascade", cmd_cascade, "learn from logged outcomes of the cascade, and report"},
    {"flight", cmd_flight, "print a dump of the flight recorder"},
    {"chat", cmd_chat, "chat with a server in this terminal"},
    {"batch", cmd_batch, "send a file of requests to a server"},
    {"doctor", cmd_doctor, "examine this machine, or the way to a server"},
    {"plan", cmd_plan, "simulate engines on this machine: which settings carry which load"},
    {"tune", cmd_tune, "find the engine settings that carry most requests within targets, and verify them"},
    {"bench", start_bench, "measure this machine, models, the engine and servers"},
};

enum { N_COMMANDS = sizeof commands / sizeof *commands };

/* What `make install` calls, so it is not listed. */
static int docs(int argc, char **argv)
{
	struct docs_command all[N_COMMANDS];
	for (size_t i = 0; i < N_COMMANDS; i++)
		all[i] = (struct docs_command){commands[i].name, commands[i].what};
	return cmd_docs(argc, argv, all, N_COMMANDS);
}

static void print_usage(FILE *to)
{
	fprintf(to, "Sluice " SLUICE_VERSION ": a gateway for large language models and their "
		    "engine\n\nusage: sluice COMMAND [options]\n\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].what);
	fprintf(to, "\n  sluice COMMAND --help: the options of a command; sluice --version\n");
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		print_usage(stderr);
		return CMD_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--version") == 0) {
		puts("sluice " SLUICE_VERSION);
		return 0;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_usage(stdout);
		return 0;
	}
	json_mem_install();
	tls_memory_install();
	event_memory_install();
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (strcmp(commands[i].name, argv[1]) == 0)
			return commands[i].run(argc - 1, argv + 1);
	}
	if (strcmp(argv[1], "docs") == 0)
		return docs(argc - 1, argv + 1);
	fprintf(stderr, "sluice: no command '%s'; try sluice --help\n", argv[1]);
	return CMD_EXIT_USAGE;
}
