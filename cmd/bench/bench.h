/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice bench …`: what its files share.
 */
#ifndef CMD_BENCH_H
#define CMD_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* argv[1] is the measurement. The exit status. */
int bench_run(int argc, char **argv);
/* The server to measure: `sluice` beside this program, otherwise the one in PATH. */
const char *bench_server(void);

/* argv[0] is the subcommand's name. The exit status. */
int bench_machine(int argc, char **argv);
int bench_model(int argc, char **argv);
int bench_engine(int argc, char **argv);
int bench_speculation(int argc, char **argv);
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

/* Prints `sluice bench: …` on standard error and returns status. */
int bench_complain(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One line about processor, cores and this build; none in JSON. */
void bench_header(void);

/* An option "--name VALUE" with a whole number or a real one within bounds. */
struct bench_option {
	const char *name;
	double *number;    /* or */
	const char **text; /* or */
	bool *flag;        /* takes no value */
	double lo, hi;
};
/* Takes the options; the one argument that is none goes to *word (NULL: none is allowed). 0 or the
 * exit status. */
int bench_parse(int argc, char **argv, const struct bench_option *options, size_t n, const char **word);
/* "1,4,8" into at most max numbers from 1 to most; how many, 0 when malformed. */
int bench_list(const char *text, int most, int *out, int max);

#endif
