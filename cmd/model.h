/* SPDX-License-Identifier: Apache-2.0
 *
 * `sluice model …`: what its files share.
 */
#ifndef CMD_MODEL_H
#define CMD_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

enum { MODEL_MAX_INPUT = 64 << 20 };

struct generate_options {
	const char *path, *prompt, *system, *backend, *quantize;
	uint32_t n_tokens;
	float temperature;
	uint64_t seed;
	int n_threads;
	bool raw, ids, logprobs, batch;
};

/* The exit status. */
int model_generate(const struct generate_options *o);
/* argv: FILE and what follows it. */
int model_render(int argc, char **argv);

/* All of standard input; 0 or the exit status. in must be disposed of either way. */
int model_read_input(struct sl_buf *in);
/* Every output ends here: a full disk or a closed pipe is a failure. The exit status. */
int model_finish_output(void);

/* inspect; random; quantize, with main's arguments from "model" on. The exit status. */
int model_inspect_command(int argc, char **argv);
int model_random(int argc, char **argv);
int model_quantize(int argc, char **argv);

/* A whole number from lo to hi; nothing else in the text. */
bool model_whole(const char *text, uint64_t lo, uint64_t hi, uint64_t *out);
int model_tokenize(int argc, char **argv);
/* Prints `sluice model: …` on standard error and returns status. */
int model_complain(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
