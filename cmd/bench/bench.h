/* SPDX-License-Identifier: Apache-2.0
 *
 * The room is the program sluice-bench: measurements of the machine, models, the engine and servers. Each measurement
 * is a bench_NAME function in a file of its own; bench.c selects one. Every figure is printed with a ceiling or a
 * comparison from the same run, because absolute times mean little on a shared machine.
 *
 *   bench_box     an engine and a gateway started for a measurement
 *   bench_child   a process started for a measurement
 *   bench_load    endless streams, for the cost per event; cmd/load has the client
 *
 * Thread: main, which calls bench_run; engines report events from their own threads.
 */
#ifndef CMD_BENCH_H
#define CMD_BENCH_H

#include "cmd/config/cmd.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct model_info;

/* argv[1] names the measurement. The exit status. */
int bench_run(int argc, char **argv);
/* The server program to measure: `sluice` beside this program, otherwise the one in PATH. */
const char *bench_server(void);

/* argv[0] is the subcommand's name. The exit status. */
int bench_machine(int argc, char **argv);
int bench_model(int argc, char **argv);
int bench_engine(int argc, char **argv);
int bench_adapters(int argc, char **argv);
int bench_speculation(int argc, char **argv);
int bench_constrained(int argc, char **argv);
int bench_coupling(int argc, char **argv);
int bench_ops(int argc, char **argv);
int bench_gpu(int argc, char **argv);
int bench_serve(int argc, char **argv);
int bench_gateway(int argc, char **argv);
int bench_cleanse(int argc, char **argv);
int bench_store(int argc, char **argv);
int bench_cascade(int argc, char **argv);
int bench_overload(int argc, char **argv);
int bench_pacing(int argc, char **argv);
int bench_grammar(int argc, char **argv);

/* bench_complain(status, format, …): cmd_complain as "sluice bench". */
#define bench_complain(...) cmd_complain("sluice bench", __VA_ARGS__)
/* Prints one line about the processor, its cores and this build. Not for JSON output. */
void bench_header(void);

/* An option --name. Set one of number (a value in [lo, hi]), text and flag. */
struct bench_option {
	const char *name;
	double *number;
	const char **text;
	bool *flag; /* takes no value */
	double lo, hi;
};
/* Parses argv[1..]. One argument that is not an option goes to *word; word NULL: none is allowed. 0, or the exit
 * status. */
int bench_parse(int argc, char **argv, const struct bench_option *options, size_t n, const char **word);
/* The same for a measurement of a model file, its one argument; *out: what the file says. */
int bench_parse_model(int argc, char **argv, const struct bench_option *options, size_t n, const char **path,
		      struct model_info *out);
/* Parses "1,4,8": at most max numbers from 1 to most. Returns how many; 0: malformed. */
int bench_list(const char *text, int most, int *out, int max);

#endif
