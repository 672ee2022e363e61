/* SPDX-License-Identifier: Apache-2.0
 *
 * The room: the schema of the configuration (schema.h), the options that subcommands share (options.c), and the
 * subcommands `config` and `keys`. Every subcommand is one function: argv[0] is its name, the result is the process's
 * exit status. Thread: main.
 */
#ifndef CMD_CMD_H
#define CMD_CMD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/log.h"
#include "cmd/config/schema.h"

/* Prints `WHO: …` on standard error and returns status. */
int cmd_complain(const char *who, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Exit statuses besides 0 and 1, as in sysexits.h. After CMD_EXIT_CONFIG the supervisor does not restart. */
enum { CMD_EXIT_USAGE = 64, CMD_EXIT_UNAVAILABLE = 69, CMD_EXIT_CONFIG = 78 };

int cmd_serve(int argc, char **argv);
int cmd_gateway(int argc, char **argv);
int cmd_engine(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_keys(int argc, char **argv);
int cmd_model(int argc, char **argv);
int cmd_cascade(int argc, char **argv);
int cmd_flight(int argc, char **argv);
int cmd_pull(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_run(int argc, char **argv);

/* ---- options.c: -c FILE, --set KEY=VALUE, --state DIR, and those of a child ---- */

enum { CMD_MAX_SETS = 256 };

struct cmd_options {
	const char *path; /* the configuration file; NULL: none was found */
	const char *sets[CMD_MAX_SETS];
	size_t n_sets;
	char found[4096];     /* path, where it was searched for */
	char state_set[4200]; /* --state DIR as an override */
	int beat_fd;          /* --beat-fd N; -1 */
	int handover_fd;      /* --handover-fd N; -1 */
	bool takeover;        /* --takeover */
	bool sockets_stay;    /* --sockets-stay */
	/* The supervisor passes these to a child (cmd/confine/confine.h): --broker-fd N, --state-fd N,
	 * --run-as UID:GID; -1, -1, NULL. */
	int broker_fd, state_fd;
	int kv_fd; /* --kv-fd N: the area in which prompts' pages pass between engines; -1 */
	const char *run_as;
	const char *engine; /* --engine NAME: of `engines`; NULL: the first one */
	const char *word;   /* the one argument that is not an option; NULL */
};

/* 0, or the exit status (--help ends the process). what: one line for --help. takes_word: one argument that is not an
 * option is allowed. */
int cmd_options_parse(struct cmd_options *o, int argc, char **argv, bool takes_word, const char *what);
/* Reads and checks the configuration and starts the log under that name. On failure prints one line and returns
 * CMD_EXIT_CONFIG. */
int cmd_load(const struct cmd_options *o, const char *name, struct sluice_config *cfg);
#endif
